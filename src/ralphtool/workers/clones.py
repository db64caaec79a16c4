"""A project on a worker: one repository with everything that was fetched, and folders that borrow from it."""

from __future__ import annotations

import hashlib
import os
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from ralphtool.core import files, layout
from ralphtool.errors import GitError
from ralphtool.workspace.git import Repository
from ralphtool.workspace.remote import Remote, hide_login

if TYPE_CHECKING:
    from ralphtool.executors.orders import Offer

_CHANGES = "changes"  # the folder of the benches, by change
_UNUSED = 7 * 24 * 3600.0  # seconds
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class ProjectClone:
    """A project on a worker. `folder` is the worker's own, for this project."""

    def __init__(self, home: str, url: str) -> None:
        digest = hashlib.sha256(hide_login(url).encode()).hexdigest()[:10]
        name = _UNSAFE.sub("-", os.path.basename(url.rstrip("/")).removesuffix(".git")) or "project"
        self.folder = os.path.join(home, f"{name}-{digest}")
        self.url = url

    @property
    def shown_url(self) -> str:
        return hide_login(self.url)

    def fetch(self, offer: Offer) -> Repository:
        """Fetches the order; returns the repository that has it."""
        store = self._open_store()
        if Remote(store, self.url).fetch(offer.order) != offer.commit:
            raise GitError(f"{offer.order} is not {offer.commit[:10]}: the order was withdrawn, or replaced")
        return store

    def find_result(self, offer: Offer) -> str | None:
        """The result that was already pushed for this order, if any."""
        return Remote(self._open_store(), self.url).fetch(offer.result)

    def push(self, offer: Offer, repository: Repository, commit: str) -> str:
        """The first result counts, and is returned for later ones. If the push fails, the result is kept for later."""
        remote = Remote(repository, self.url)
        try:
            is_first = remote.push_new(offer.result, commit, upon={offer.order: offer.commit})
        except GitError:
            self._keep(offer, repository, commit)
            raise
        return commit if is_first else remote.fetch(offer.result) or commit

    def _keep(self, offer: Offer, repository: Repository, commit: str) -> None:
        """Keeps it in the store: the folder of a bench may be gone by then."""
        store, kept = self._open_store(), _name_kept(offer)
        if repository.common == store.common:
            return
        with suppress(GitError, OSError):  # the disk may be full: then the work is done again
            repository.set_refs({kept: commit})
            Remote(store, repository.common).fetch(kept)
            repository.set_refs({kept: None})

    def push_kept(self, offer: Offer) -> str | None:
        """Pushes a result for this order that could not be pushed earlier, so that the work is not repeated."""
        store = self._open_store()
        commit = store.resolve(_name_kept(offer))
        if commit is None:
            return None
        self.fetch(offer)
        pushed = self.push(offer, store, commit)
        store.set_refs({_name_kept(offer): None})
        return pushed

    def _open_store(self) -> Repository:
        place = os.path.join(self.folder, "store")
        with files.FileLock(_make_lock(self.folder), make=True):
            return _ensure_repository(place)

    def open_folder(self, change: str, number: int) -> Repository:
        """A project folder for one box, with access to everything that was fetched, and no files of its own."""
        store, place = self._open_store(), os.path.join(self.folder, _CHANGES, change, str(number))
        with files.FileLock(_make_lock(self.folder), make=True):
            made = _ensure_repository(place)
        borrowed = os.path.join(made.common, "objects", "info", "alternates")
        files.replace(borrowed, os.fsencode(os.path.join(store.common, "objects")) + b"\n")
        return made


def list_folders(clone: str) -> list[str]:
    """The folders of all benches that a project has had."""
    top = os.path.join(clone, _CHANGES)
    changes = [os.path.join(top, name) for name in (os.listdir(top) if os.path.isdir(top) else ())]
    found = [os.path.join(place, number) for place in changes for number in os.listdir(place)]
    return [place for place in found if os.path.isdir(layout.folder(place))]


def shrink(clone: str) -> None:
    """Removes what is no longer needed, such as benches that were not used for a while. No bench may be open."""
    for place in list_folders(clone):
        if time.time() - os.stat(layout.folder(place)).st_mtime > _UNUSED:
            files.clear(place)
    store = _ensure_repository(os.path.join(clone, "store"))
    store.set_refs(dict.fromkeys(store.refs(layout.ORDERS, layout.RESULTS)))
    if not list_folders(clone):  # otherwise they may borrow objects that no ref of the store names
        store.run("gc", "--quiet", "--prune=now", own_index=False)


def list_clones(home: str) -> list[str]:
    """The folders of the projects that a worker has."""
    found = [os.path.join(home, name) for name in (os.listdir(home) if os.path.isdir(home) else ())]
    return [place for place in found if os.path.isdir(os.path.join(place, "store"))]


def _name_kept(offer: Offer) -> str:
    return layout.UNSENT + offer.result.removeprefix(layout.RESULTS)


def _make_lock(folder: str) -> str:
    os.makedirs(folder, exist_ok=True)
    return os.path.join(folder, "clones.lock")


def _ensure_repository(place: str) -> Repository:
    if not os.path.isdir(os.path.join(place, ".git", "refs")):
        os.makedirs(place, exist_ok=True)
        Repository(place, os.path.join(place, ".git"), os.path.join(place, ".git")).run(
            "init", "--quiet", own_index=False
        )
    found = Repository.find(place)
    if found is None or os.path.realpath(found.top) != os.path.realpath(place):
        raise GitError(f"{place} is not a repository of its own: delete it")
    return found
