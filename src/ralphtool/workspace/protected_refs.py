"""The user's branches, tags and stash, which an agent must not change.

While an agent works, refs of ralphtool keep their commits: nothing can be pruned before it is restored. Where the user
may work at the same time, only a move that the agent's own git commands report is reverted; any other is reported.
"""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ralphtool.core import files, layout
from ralphtool.errors import GitError
from ralphtool.judging.guard.model import GuardFinding

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ralphtool.workspace.after_kill import AfterKill
    from ralphtool.workspace.agent_trace import TracedGit
    from ralphtool.workspace.git import Repository

_STASH = "refs/stash"
_FORMAT = "--format=%(refname) %(objecttype) %(objectname) %(*objecttype) %(*objectname)"
_MOST_KEPT = 10_000  # tips, whose commits are the parents of one commit
_MOST_TAGS = 500  # annotated ones, each of which needs a ref of its own


class RestoredRefs(NamedTuple):
    findings: list[GuardFinding]
    notices: list[str]


class ProtectedRefs:
    """Their state before an agent began. `branch` is the one that the run itself moves."""

    def __init__(self, repository: Repository, branch: str) -> None:
        self._repository = repository
        self._kept_as = layout.GUARDED + branch.removeprefix(layout.BRANCHES) + "/"
        self._log = os.path.join(repository.common, "logs", _STASH)
        self._kept: tuple[str, ...] = ()
        self.refs: dict[str, str] | None = None  # None: not known
        self.stash: list[bytes] = []  # the lines of its log, oldest first

    def remember(self) -> None:
        self.refs, self.stash = self._read(), self._read_stash()

    def _read(self) -> dict[str, str]:
        """Branches and tags, and the stash; not the branches that runs move."""
        every = self._repository.refs("refs/heads", "refs/tags", _STASH)
        return {name: value for name, value in every.items() if not name.startswith(layout.BRANCHES)}

    def _read_stash(self) -> list[bytes]:
        try:
            return files.read(self._log).splitlines()
        except OSError:
            return []

    # --- kept from being pruned -------------------------------------------------------------------

    def keep(self, tip: str) -> None:
        """Keeps the commits of all of them, and of the run's branch, until `let_go`."""
        wanted = tuple(sorted({tip, *(self.refs or {}).values(), *map(_new_id, self.stash)} - {""}))
        if wanted == self._kept:
            return
        with suppress(GitError):  # damaged refs: the others are protected as far as that is possible
            self._keep_commits(tip)
            self._kept = wanted

    def _keep_commits(self, tip: str) -> None:
        rows = [line.split() for line in self._repository.text("for-each-ref", _FORMAT).split("\n") if line]
        rows = [row for row in rows if row[0] in (self.refs or {})]
        tips = [row[-1] for row in rows if row[-2] == "commit"]
        tags = [row[2] for row in rows if row[1] == "tag"][:_MOST_TAGS]
        parents = list(dict.fromkeys([tip, *map(_new_id, self.stash), *tips]))[:_MOST_KEPT]
        made = self._repository.commit(self._repository.empty_tree, parents, "ralphtool: kept while an agent works\n")
        self._repository.set_refs({f"{self._kept_as}tips": made, **{f"{self._kept_as}{id}": id for id in tags}})

    def let_go(self) -> None:
        self._kept = ()
        # A git command of the user's may be at work: then they stay until the next run.
        with suppress(GitError):
            self._repository.set_refs(dict.fromkeys(self._repository.refs(self._kept_as)))

    # --- afterwards -------------------------------------------------------------------------------

    def restore(self, traced: TracedGit | None, late: AfterKill | None) -> RestoredRefs:
        """Reverts an agent's moves. New refs do no harm, and may be the user's.

        `traced` is None if every change is the agent's; but if the run is not at work anymore (`late`), the later ones
        are the user's, who has been here since."""
        restored = RestoredRefs([], [])
        if self.refs is None:
            return restored
        try:
            now = self._read()
            self._restore_stash(traced, restored, late)
            changed = {name: value for name, value in self.refs.items() if now.get(name) != value and name != _STASH}
            if _STASH in self.refs and not self.stash and _STASH not in now:
                changed[_STASH] = self.refs[_STASH]  # it has no log of the usual kind
            # All are looked up first: each move leaves its own time.
            later = [name for name in changed if late and traced is None and late.has_moved(name, now.get(name))]
            for name, value in sorted(changed.items()):
                if late and name in later:
                    restored.notices.extend(self._describe_kept(name, value, now.get(name), late))
                else:
                    self._settle(name, value, now.get(name), traced, restored, is_late=late is not None)
        except GitError as error:
            restored.findings.append(GuardFinding("git-touched", "refs", f"can't be read after the attempt: {error}"))
        return restored

    def _describe_kept(self, name: str, before: str, now: str | None, late: AfterKill) -> list[str]:
        """A ref that the user moved last stays. Notices say what may be the agent's after all."""
        if now is None:
            self._keep_moved([before])
            command = f"git update-ref {shlex.quote(name)} {before}"
            return [f"{name} was deleted after the run had been killed. If it wasn't you, run `{command}`"]
        was = late.find_value_at_kill(name)
        if was in (None, before):
            return []
        return [
            f"{name} is left as it is, because it was moved after the run had been killed. But it had been moved "
            f"before, maybe by the agent: `git log {before[:10]}..{str(was)[:10]}` shows what that added"
        ]

    def _settle(
        self,
        name: str,
        before: str,
        now: str | None,
        traced: TracedGit | None,
        restored: RestoredRefs,
        *,
        is_late: bool,
    ) -> None:
        verb = "moved" if now else "deleted"
        if traced is None or traced.has_written(name, now):
            goal = before if traced is None else self._find_users_value(name, before, traced)
            try:
                shown = move_back(self._repository, name, goal, now)
                told = f"{verb} by the agent, and restored{shown if is_late else ''}"
            except GitError as error:
                told = f"{verb} by the agent, and can't be restored: {error}"
            restored.findings.append(GuardFinding("git-touched", name, told))
        elif not is_late:
            if now is None or not self._repository.is_ancestor(before, now):
                self._keep_moved([before])
            changed = f"was moved from {before[:10]} to {now[:10]}" if now else f"was deleted (it was {before[:10]})"
            command = f"git update-ref {shlex.quote(name)} {before}"
            restored.notices.append(
                f"{name} {changed} while the agent worked, maybe by you. If it wasn't you, run `{command}`"
            )

    def _find_users_value(self, name: str, before: str, traced: TracedGit) -> str:
        """The value to restore: the user may have committed to a branch before the agent moved it."""
        log = self._repository.text("reflog", "show", "--format=%H", name, "--", check=False).split("\n")
        newest = next((id for id in log if id and not traced.has_written(name, id)), before)
        return before if newest == before or self._repository.is_ancestor(newest, before) else newest

    def _keep_moved(self, ids: Iterable[str]) -> None:
        self._repository.set_refs({f"{layout.MOVED}{id}": id for id in ids})

    # --- the stash: a ref whose log has the older entries -------------------------------------------

    def _restore_stash(self, traced: TracedGit | None, restored: RestoredRefs, late: AfterKill | None) -> None:
        now = self._read_stash()
        new = _without(now, self.stash)
        lost = _without(self.stash, now)
        has_no_log = not self.stash and _STASH in (self.refs or {})
        theirs = new if traced is not None else [line for line in new if late and late.is_later(_read_moment(line))]
        wanted = [*self.stash, *theirs]
        if not lost and (traced is not None or now == wanted or has_no_log):
            return
        if traced is not None and not traced.has_touched(_STASH):
            if late is None:
                self._report_stash(lost, restored)
            return
        try:
            removed = _without(new, theirs)
            self._keep_moved(map(_new_id, removed))  # maybe the only copy
            self._write_stash(wanted)
            told = f"changed by the agent, and restored{_describe_stashes(removed) if late else ''}"
        except GitError as error:
            told = f"changed by the agent, and can't be restored: {error}"
        restored.findings.append(GuardFinding("git-touched", _STASH, told))

    def _report_stash(self, lost: Sequence[bytes], restored: RestoredRefs) -> None:
        self._keep_moved(map(_new_id, lost))
        for line in lost:
            text = line.partition(b"\t")[2].decode("utf-8", "replace")
            command = f"git stash store -m {shlex.quote(text)} {_new_id(line)}"
            restored.notices.append(
                f"a stash entry was removed while the agent worked, maybe by you. If it wasn't you, run `{command}`"
            )

    def _write_stash(self, lines: Sequence[bytes]) -> None:
        if not lines:
            self._repository.set_refs({_STASH: None})
            return
        chained, last = [], b"0" * len(_new_id(lines[-1]))
        for line in lines:
            chained.append(last + line[len(last) :])
            last = os.fsencode(_new_id(line))
        self._repository.set_refs({_STASH: last.decode()})
        # Git has added an entry of its own.
        os.makedirs(os.path.dirname(self._log), exist_ok=True)
        files.clear(self._log)
        files.create(self._log, b"".join(line + b"\n" for line in chained), 0o644)


def move_back(repository: Repository, ref: str, goal: str, now: str | None) -> str:
    """Restores a ref. Another one keeps the commits that only it had; returns how to see them, if there are any."""
    if now is None or repository.is_ancestor(now, goal):
        repository.set_refs({ref: goal})
        return ""
    repository.set_refs({f"{layout.MOVED}{now}": now, ref: goal})
    return f"; it had other commits, which are kept: `git log {goal[:10]}..{now[:10]}` shows them"


def _describe_stashes(lines: Sequence[bytes]) -> str:
    ids = [_new_id(line)[:10] for line in lines]
    return f"; it had other entries, which are kept: `git stash show -p {ids[0]}`" if ids else ""


def _read_moment(line: bytes) -> int:
    """The time of a line of a log, in seconds."""
    words = line.partition(b"\t")[0].split(b" ")
    return int(words[-2]) if len(words) > 2 and words[-2].isdigit() else 0


def _new_id(line: bytes) -> str:
    """The commit of a line of a log: `<old> <new> <who and when>\t<message>`."""
    return line.split(b" ", 2)[1].decode("ascii", "replace") if line.count(b" ") > 1 else ""


def _without(lines: Sequence[bytes], others: Sequence[bytes]) -> list[bytes]:
    known = set(map(_new_id, others))
    return [line for line in lines if _new_id(line) not in known]
