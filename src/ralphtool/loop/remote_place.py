"""A workspace of a run whose iterations run on other machines: only files for git to merge, no programs."""

from __future__ import annotations

import os
import re
from collections import Counter
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, cast

from msgspec import Struct

from ralphtool.core import files, layout, project
from ralphtool.errors import GitError, InvalidValue
from ralphtool.loop import remote_refs
from ralphtool.loop.run_claim import RunClaim
from ralphtool.loop.run_place import RunPlace
from ralphtool.record.events import Notice
from ralphtool.settings.executor import apply_environment, is_loopback
from ralphtool.workspace.remote import Remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ralphtool.executors import LaneExecutor
    from ralphtool.executors.temporal.link import Link
    from ralphtool.loop.run import StopRequest
    from ralphtool.record.log import Log
    from ralphtool.settings import Settings
    from ralphtool.workspace.box import Box
    from ralphtool.workspace.git import Repository


class RemotePlace(RunPlace, frozen=True, kw_only=True):
    """One workspace of a run on workers."""

    link: Link
    remote: Remote
    claim: Callable[[], AbstractContextManager[None]]
    losses: Counter[str]

    @contextmanager
    def open(self) -> Iterator[LaneExecutor]:
        """The first workspace of a run claims the change; the others share that claim."""
        with nullcontext() if self.slot else self.claim():
            yield self._build_remote_executor()

    def _build_remote_executor(self) -> LaneExecutor:
        from ralphtool.executors.temporal.client import RemoteContext, TemporalExecutor

        return TemporalExecutor(
            RemoteContext(
                link=self.link,
                remote=self.remote,
                workspace=cast("Box", self.workspace),
                log=self.log,
                settings=self.settings,
                run=self.run,
                change=self.spec.change,
                spec=self.spec.ref,
                prd_ids=self.prd_ids,
                folder=self.folder,
                losses=self.losses,
            )
        )


class RemoteRun(Struct, frozen=True):
    """A run whose iterations run on workers."""

    repository: Repository | None
    root: str
    change: str
    id: str
    settings: Settings
    stop: StopRequest
    log: Log

    @contextmanager
    def open_places(self) -> Iterator[Callable[..., RemotePlace]]:
        """Yields the constructor of the run's workspaces, while the connection to the server is open."""
        from ralphtool.executors.temporal.link import Link

        remote = find_remote(self.repository, self.settings)
        link = Link.open(apply_environment(self.settings.executor))
        try:
            yield partial(RemotePlace, link=link, remote=remote, claim=partial(self._claim, remote), losses=Counter())
        finally:
            link.close()

    @contextmanager
    def _claim(self, remote: Remote) -> Iterator[None]:
        claim = RunClaim(remote, self.change, self.id, self._lose, self._is_known)
        claim.take(lambda: self.stop.count > 0, lambda text: self.log.note(Notice(text=text)))
        try:
            self._clear(partial(remote_refs.clear_earlier, remote, self._is_earlier))
            yield
            self._clear(partial(remote_refs.clear, remote, self.id))
        finally:
            claim.release()

    def _clear(self, act: Callable[[], None]) -> None:
        """If refs can't be removed now, the next run removes them: nothing depends on them."""
        try:
            act()
        except GitError as error:
            self.log.note(Notice(text=f"some refs of workers could not be deleted: {error}"))

    def _lose(self) -> None:
        self.log.note(Notice(text=f"another run has taken over {self.change} through the same remote: stopping"))
        self.stop.ask()

    def _is_earlier(self, run: str) -> bool:
        """Whether it is a run of this change: it is dead, since this run has the lock. Other runs may be alive."""
        own = re.fullmatch(re.escape(self.change[:90]) + r"-\d{8}-\d{6}-[0-9a-f]{4}", run)
        return own is not None and self._is_known(run)

    def _is_known(self, run: str) -> bool:
        return project.is_name(run) and os.path.isdir(layout.run(self.root, run))


def find_remote(repository: Repository | None, settings: Settings) -> Remote:
    """The remote through which loop and workers exchange commits. On one machine, a local repository is enough."""
    if repository is None:
        raise InvalidValue("workers exchange work as git commits: make this folder a git repository (`git init`)")
    named = settings.executor.remote
    if not named and not is_loopback(apply_environment(settings.executor).address):
        raise InvalidValue(
            'executor.remote is not set: name a git repository that you and all workers can push to, as in remote = "…"'
        )
    if named and os.path.isdir(os.path.join(repository.top, os.path.expanduser(named))):
        named = os.path.join(repository.top, os.path.expanduser(named))
    return Remote(repository, named or _ensure_exchange(repository))


def _ensure_exchange(repository: Repository) -> str:
    """A repository for workers on this machine, which borrows the project's own objects."""
    place = os.path.join(layout.in_git(repository.common), "exchange.git")
    if not os.path.isdir(os.path.join(place, "refs")):
        repository.run("init", "--quiet", "--bare", place, own_index=False)
    own = os.fsencode(os.path.join(repository.common, "objects")) + b"\n"
    files.replace(os.path.join(place, "objects", "info", "alternates"), own)
    return place
