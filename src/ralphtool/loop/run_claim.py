"""One run of a change at a time, even if several machines share a remote: a ref says which.

The run that holds the ref moves it every few seconds. A ref that has not moved for a while belongs to a dead run, and
may be taken over: so clocks of different machines are never compared.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from ralphtool.core import layout, locks
from ralphtool.errors import ChangeLocked, GitError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphtool.workspace.remote import Remote

_BEAT = 15.0  # seconds between two moves
_LEASE = 60.0  # seconds without a move after which a run counts as dead
_TICK = 0.5


class RunClaim:
    """Held by a run from `take` to `release`. `lose` is called if another run has taken it meanwhile."""

    def __init__(
        self,
        remote: Remote,
        change: str,
        run: str,
        lose: Callable[[], None],
        is_known: Callable[[str], bool],
        beat: float = _BEAT,
        lease: float = _LEASE,
    ) -> None:
        """`is_known` returns whether a run belongs to this folder: then it is dead, since this run has the lock."""
        self._beat = beat
        self._lease = lease
        self._repository = remote.repository
        self._is_known = is_known
        self._remote = remote
        self._ref = layout.CLAIMS + change
        self._change = change
        self._run = run
        self._lose = lose
        self._own = self._next = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)

    def take(self, stop: Callable[[], bool], tell: Callable[[str], None]) -> RunClaim:
        """Raises ChangeLocked if a run on another machine is alive. Finding that out takes a minute."""
        self._repository.ensure_identity()
        self._own, self._next = self._write("a"), self._write("b")
        if not self._remote.push_new(self._ref, self._own):
            self._take_over(stop, tell)
        self._thread.start()
        return self

    def _take_over(self, stop: Callable[[], bool], tell: Callable[[str], None]) -> None:
        found = self._remote.fetch(self._ref)
        if found and not self._is_ours(found):
            who = f"{self._describe(found)} has {self._change}"
            tell(f"{who}: waiting for {self._lease:.0f} seconds to see whether it is alive")
            self._watch(found, stop)
        if not (self._remote.replace(self._ref, found or "", self._own) or self._remote.push_new(self._ref, self._own)):
            raise self._build_error(self._remote.fetch(self._ref))

    def _watch(self, found: str, stop: Callable[[], bool]) -> None:
        until = time.monotonic() + self._lease
        while time.monotonic() < until:
            time.sleep(_TICK)
            now = self._remote.find(self._ref)
            if now is None:
                return  # that run is over
            if stop() or now != found:
                raise self._build_error(found)

    def _build_error(self, found: str | None) -> ChangeLocked:
        who = self._describe(found) if found else "another run"
        return ChangeLocked(
            f"{who} works on {self._change} through the same remote: wait until it ends, or stop it there"
        )

    def _write(self, name: str) -> str:
        """One of the two commits between which the ref alternates."""
        machine = locks.describe_process()["machine"]
        message = f"ralphtool: {self._change} is being run\n\nRalph-Run: {self._run}\nRalph-Machine: {machine}\n"
        message += f"Ralph-Beat: {name}\n"
        return self._repository.commit(self._repository.empty_tree, [], message)

    def _read(self, commit: str) -> dict[str, str]:
        lines = self._repository.text("log", "-1", "--format=%B", commit).split("\n")
        return dict(line.partition(": ")[::2] for line in lines if line.startswith("Ralph-"))

    def _describe(self, commit: str) -> str:
        return f"the run {self._read(commit).get('Ralph-Run', 'of another user')}"

    def _is_ours(self, commit: str) -> bool:
        told = self._read(commit)
        is_here = told.get("Ralph-Machine") == str(locks.describe_process()["machine"])
        return is_here and self._is_known(told.get("Ralph-Run", ""))

    def _renew(self) -> None:
        while not self._over.wait(self._beat):
            try:
                # A push may have succeeded without reporting it: then the commit is already there.
                if not self._remote.replace(self._ref, self._own, self._next) and not self._is_there(self._next):
                    self._lose()
                    return
                self._own, self._next = self._next, self._own
            except GitError:
                continue  # the remote is unreachable: another run that waits for a move waits for the lease

    def _is_there(self, commit: str) -> bool:
        return self._remote.find(self._ref) == commit

    def release(self) -> None:
        self._over.set()
        if self._thread.ident:
            self._thread.join()
        self._repository.set_refs({self._ref: None})  # left by a fetch of another run's claim
        try:
            self._remote.replace(self._ref, self._own, None)
        except GitError:
            pass  # it can be taken over when it has not moved for a while
