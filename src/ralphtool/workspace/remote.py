"""A git repository that a loop and its workers share: one pushes a ref, and the others fetch it by name.

A new ref can be pushed only once: a second push fails, since it exists. That is all the coordination that the machines
need, although they may be paused, cut off from each other, or started twice.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ralphtool.core import files
from ralphtool.errors import GitError, UnsafePath
from ralphtool.sandbox import beneath

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ralphtool.workspace.git import Repository

_LOGIN = re.compile(r"(?<=://)[^\s]*@(?=[^/@\s]+(?:/|$|\s))")
_SSH_PASSWORD = re.compile(r"(?<=ssh://)([^:@/\s]*)(:[^\s]*)?@(?=[^/@\s]+(?:/|$|\s))")
_TRIES, _PAUSE = 3, 0.5  # for network failures, and seconds before the second try
_LONGEST = 300.0  # seconds that a push or a fetch may take
_PLAIN_FILES = (b"100644", b"100755")


def hide_login(text: str) -> str:
    """A text without the logins in its URLs. User names of ssh stay: they are needed, and not secret."""
    kept = _SSH_PASSWORD.sub(lambda found: f"{found[1]}\0" if found[1] else "", text)
    return _LOGIN.sub("", kept).replace("\0", "@")


class Remote:
    def __init__(self, repository: Repository, url: str) -> None:
        if url.startswith("-"):
            raise GitError(f"{url} is not a git repository: correct executor.remote")
        self.repository = repository
        self.url = url
        # Nothing would end a dead connection otherwise, or answer a password prompt.
        self._git = repository.for_network(_LONGEST)

    def push_new(self, ref: str, commit: str, upon: Mapping[str, str] | None = None) -> bool:
        """Creates a ref; False if another process has already created it.

        `upon` are refs that must not have moved: a push that comes too late leaves nothing behind.
        """
        return self._push_if(ref, "", commit, upon or {})

    def replace(self, ref: str, old: str, new: str | None) -> bool:
        """Moves or removes a ref; False if it has changed meanwhile."""
        return self._push_if(ref, old, new, {})

    def _push_if(self, ref: str, old: str, new: str | None, upon: Mapping[str, str]) -> bool:
        """Retries unless another process was first; a failed push may have succeeded without reporting it."""
        leases = [f"--force-with-lease={name}:{commit}" for name, commit in {ref: old, **upon}.items()]
        moves = [f"{commit or ''}:{name}" for name, commit in {ref: new, **upon}.items()]
        for turn in range(_TRIES):
            try:
                self._run("push", "--quiet", "--atomic", *leases, self.url, *moves)
                return True
            except GitError as error:
                found = self.find(ref)
                if found == new:
                    return True
                if (found or "") != old:
                    return False
                if turn == _TRIES - 1:
                    raise error
                time.sleep(_PAUSE * 2**turn)
        raise AssertionError("the last turn returns, or raises")

    def try_push(self, ref: str, commit: str) -> None:
        """Raises the error that a push would raise, as far as a dry run shows. Nothing is pushed."""
        self._run("push", "--quiet", "--dry-run", self.url, f"+{commit}:{ref}")

    def push(self, refs: Mapping[str, str | None]) -> None:
        """Moves, creates or removes (None) refs, whatever they were before."""
        if refs:
            self._run("push", "--quiet", self.url, *(f"+{commit or ''}:{ref}" for ref, commit in refs.items()))

    def find(self, ref: str) -> str | None:
        return self.list(ref).get(ref)

    def list(self, *patterns: str) -> dict[str, str]:
        listed = os.fsdecode(self._run("ls-remote", "--quiet", self.url, *patterns)).split("\n")
        return {ref: commit for commit, _, ref in (line.partition("\t") for line in listed if line)}

    def fetch(self, ref: str) -> str | None:
        """Fetches a ref and the objects that it needs, and nothing else; None if there is no such ref."""
        options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")
        for turn in range(_TRIES):
            try:
                self._run("fetch", *options, self.url, f"+{ref}:{ref}")
                return self.repository.resolve(ref)
            except GitError as error:
                if self.find(ref) is None:
                    return None
                if turn == _TRIES - 1:
                    raise error
                time.sleep(_PAUSE * 2**turn)
        raise AssertionError("the last turn returns, or raises")

    def _run(self, *arguments: str) -> bytes:
        try:
            return self._git.run(*arguments, own_index=False)
        except GitError as error:
            raise GitError(hide_login(str(error))) from None


# --- files as trees -----------------------------------------------------------------------------------


def write_files(repository: Repository, contents: Mapping[str, bytes]) -> str:
    """A tree of some files, which may be in folders."""
    with _open_scratch(repository) as own:
        ids = {path: own.run("hash-object", "-w", "--stdin", input=data).strip() for path, data in contents.items()}
        own.stage([b"100644 %s\t%s" % (id, os.fsencode(path)) for path, id in ids.items()])
        return own.write_tree()


def list_plain(folder: str) -> list[str]:
    """The plain files below a folder, relative to it."""
    found = [os.path.join(place, name) for place, _, names in os.walk(folder) for name in names]
    return sorted(os.path.relpath(path, folder) for path in found if os.path.isfile(path) and not os.path.islink(path))


def read_folder(repository: Repository, tree: str, folder: str) -> None:
    """Writes the files of a tree to a folder. A tree with anything but plain files is refused: it is not trusted."""
    listed = repository.run("ls-tree", "-r", "-z", "--full-tree", tree).split(b"\0")
    rows = [line.partition(b"\t") for line in listed if line]
    if not all(_is_safe(about, path) for about, _, path in rows):
        raise UnsafePath(f"a worker sent something other than regular files: {tree} is refused")
    ids = {os.fsdecode(path): about.split(b" ")[2].decode() for about, _, path in rows}
    found = repository.blobs(ids.values())
    os.makedirs(folder, exist_ok=True)
    for path, id in ids.items():
        beneath.make_folder(folder, os.path.dirname(path))
        files.replace(os.path.join(folder, path), found[id])


def _is_safe(about: bytes, path: bytes) -> bool:
    return about.split(b" ")[0] in _PLAIN_FILES and not {b"", b".", b".."} & {*path.split(b"/")}


@contextmanager
def _open_scratch(repository: Repository) -> Iterator[Repository]:
    """The same repository with an index that is removed afterwards."""
    index = os.path.join(os.path.dirname(repository.index), f"scratch-{os.urandom(8).hex()}")
    own = repository.with_index(index)
    os.makedirs(os.path.dirname(index), exist_ok=True)
    try:
        own.run("read-tree", "--empty")
        yield own
    finally:
        files.remove(index)
