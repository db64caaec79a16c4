"""What changes in the user's own folder while no agent works there: the user saved it, or a gate wrote it.

It is not part of the work, so it is removed before the next gates or the next agent. A ref keeps it first: the parent
of its commit has the files as ralphtool had put them in place, so that the commit itself is the edit.

Some gates write files each time, and nobody wants to read that again and again. The gates run in rounds: on the
checkpoint, and on each attempt. What changes in at least two, and never in fewer than there were complete ones, is the
gates' own: it is kept without a notice. Gates that are red may not write everything, so such a round is not complete.
"""

from __future__ import annotations

import os
import shutil
import stat
from typing import TYPE_CHECKING

from ralphtool.errors import GitError
from ralphtool.sandbox import beneath, layers
from ralphtool.workspace import revert
from ralphtool.workspace.paths import join_first
from ralphtool.workspace.protected_work import keep_commit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ralphtool.workspace.git import Repository
    from ralphtool.workspace.swapped_files import FileState

_LARGEST, _MOST_BYTES, _MOST_FILES = 10 << 20, 64 << 20, 1000  # of what is kept at once


class LateEdits:
    """Keeps such files during a run, and says which of them may be the user's."""

    def __init__(self, repository: Repository, change: str) -> None:
        self._repository = repository
        self._change = change
        self.run = ""  # without one, nothing is kept
        self._is_attempt = False
        self._is_complete = False  # the present round
        self._rounds = 0  # complete ones
        self._counts: dict[str, int] = {}  # in how many rounds a path has changed
        self._now: set[str] = set()  # what changed in the present round
        self._unsure: set[str] = set()  # what changed in earlier ones, and may be the gates'
        self._gates_own: set[str] = set()
        self._notices: list[str] = []
        self._begin_commit()

    def _begin_commit(self) -> None:
        self._ref = self._commit = self._parent = ""
        self._bases: dict[str, bytes] = {}  # entries of an index, by path
        self._edits: dict[str, bytes] = {}

    # --- rounds ---------------------------------------------------------------------------------

    def note_commands(self) -> None:
        """Commands have run. On an attempt, they may have been red."""
        self._is_complete = self._is_complete or not self._is_attempt

    def note_proof(self) -> None:
        """All gates have run on the attempt, and are green: the proof continues."""
        self._is_complete = True

    def begin_attempt(self) -> None:
        """What changed on the checkpoint may be the gates' own: those of the attempt will show it."""
        self._unsure |= self._end_round()
        self._is_attempt = True

    def end_attempt(self) -> None:
        if self._is_attempt:
            self._is_attempt = False
            self._report(is_over=False)

    def finish(self) -> None:
        self._report(is_over=True)

    def take_notices(self) -> list[str]:
        taken, self._notices = self._notices, []
        return taken

    def _report(self, *, is_over: bool) -> None:
        is_sure = self._is_complete or is_over
        found = self._end_round()
        if is_sure:
            found, self._unsure = found | self._unsure, set()
        if found := found - self._gates_own:
            self._notices.append(_describe(sorted(found), self._ref))
            if not self._unsure:  # otherwise they are told later, with the same ref
                self._begin_commit()

    def _end_round(self) -> set[str]:
        """Returns what changed in it."""
        found, self._now = self._now, set()
        self._rounds += self._is_complete
        self._is_complete = False
        self._counts |= {path: self._counts.get(path, 0) + 1 for path in found}
        self._gates_own = {path for path, number in self._counts.items() if number >= max(2, self._rounds)}
        return found - self._gates_own

    # --- keeping --------------------------------------------------------------------------------

    def keep(self, paths: Iterable[str], tip: str, shown: Mapping[str, FileState] | None = None) -> None:
        """Keeps files that are about to be removed or overwritten. `shown` are those that were put in place otherwise
        than in the index, as they were."""
        chosen = self._choose(paths) if self.run else []
        if not chosen:
            return
        try:
            self._keep(chosen, tip, shown or {})
        except (GitError, OSError) as error:
            self._notices.append(f"{join_first(chosen)} changed while no agent worked, and can't be kept: {error}")

    def _choose(self, paths: Iterable[str]) -> list[str]:
        """Those that git can keep, within limits. The user's own files are rarely deep inside folders."""
        chosen, room = [], _MOST_BYTES
        for path in sorted(set(paths), key=lambda path: (path.count("/"), path)):
            size = _find_size(self._repository.top, path)
            if size is None or layers.is_cache(path) or size > min(_LARGEST, room):
                continue
            room -= size
            chosen.append(path)
            if len(chosen) == _MOST_FILES:
                break
        return chosen

    def _keep(self, paths: Sequence[str], tip: str, shown: Mapping[str, FileState]) -> None:
        with revert.open_own_index(self._repository) as own:
            shutil.copyfile(self._repository.index, own.index)
            own.stage([_write_entry(own, path, shown[path]) for path in paths if path in shown])
            before = _read_entries(own, paths)
            own.run("update-index", "--add", "--remove", "--replace", "-z", "--stdin", input=_join(paths))
            after = _read_entries(own, paths)
            changed = [path for path in paths if before[path] != after[path]]
            new = {path: after[path] for path in changed if self._edits.get(path) != after[path]}
            if new:
                if any(path in self._edits for path in new.keys() - self._gates_own):
                    self._parent = self._commit  # so that the earlier version is not lost
                self._bases |= {path: before[path] for path in new}
                self._edits |= new
                self._save(self._build_commit(own, self._parent or tip))
            self._now.update(changed)

    def _build_commit(self, own: Repository, parent: str) -> str:
        """What the gates write is not part of the edit, but part of what it is based on."""
        message = f"ralphtool: {self._change}, "
        own.stage([self._edits[path] if path in self._gates_own else base for path, base in self._bases.items()])
        base = self._repository.commit(own.write_tree(), [parent], f"{message}as it was in place\n")
        if self._gates_own.issuperset(self._edits):
            return base
        own.stage(list(self._edits.values()))
        return self._repository.commit(own.write_tree(), [base], f"{message}changed while no agent worked\n")

    def _save(self, commit: str) -> None:
        self._commit = commit
        if self._ref:
            self._repository.set_refs({self._ref: commit})
        else:
            self._ref = keep_commit(self._repository, self.run, commit)


def list_changes(repository: Repository) -> list[str]:
    """The files that differ from the separate index; unknown ones, but not ignored ones."""
    options = ("-z", "-t", "--full-name", "--modified", "--deleted", "--others", "--exclude-standard")
    return list(dict.fromkeys(row[2:] for row in repository.list_items("ls-files", *options, "--", ":/")))


def _describe(paths: Sequence[str], ref: str) -> str:
    return (
        f"changed while no agent worked, and not part of the work: {join_first(paths)}. If that was you, run "
        f"`git cherry-pick --no-commit {ref}` after the run"
    )


def _find_size(top: str, path: str) -> int | None:
    """Of a file, a link, or nothing; None for anything else, and behind a link."""
    full = os.path.join(top, path)
    if not beneath.is_reached(top, path):
        return None if os.path.lexists(full) else 0
    try:
        info = os.lstat(full)
    except FileNotFoundError:
        return 0
    if stat.S_ISDIR(info.st_mode) and not path.endswith("/") and not os.path.lexists(os.path.join(full, ".git")):
        return 0  # in the place of a file
    is_kept = stat.S_ISLNK(info.st_mode) or (stat.S_ISREG(info.st_mode) and os.access(full, os.R_OK))
    return info.st_size if is_kept else None


def _join(paths: Iterable[str]) -> bytes:
    return os.fsencode("\0".join(paths))


def _read_entries(own: Repository, paths: Sequence[str]) -> dict[str, bytes]:
    """The entries of an index, as lines for `stage`; for a missing path, the line that removes it."""
    listed = own.run("--literal-pathspecs", "ls-files", "-z", "--stage", "--full-name", "--", *paths)
    there = {os.fsdecode(line.partition(b"\t")[2]): line for line in listed.split(b"\0") if line}
    return {path: there.get(path) or _write_removal(own, path) for path in paths}


def _write_removal(own: Repository, path: str) -> bytes:
    return b"0 %s\t%s" % (b"0" * len(own.empty_tree), os.fsencode(path))


def _write_entry(own: Repository, path: str, state: FileState) -> bytes:
    if not state.mode:
        return _write_removal(own, path)
    blob = own.run("hash-object", "-w", "--stdin", input=state.data).strip()
    return b"%s %s\t%s" % (state.mode.encode(), blob, os.fsencode(path))
