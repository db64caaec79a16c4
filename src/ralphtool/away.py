"""The user's own work, put aside while the loop uses the working tree, and given back byte for byte.

Files are moved, not copied through git: what git's filters would change, and what git does not keep (modes, times),
stays as it is. A note beside them says how far we are, so that a kill at any moment can be answered:

    leaving    files are being moved aside; the tree is still the user's   -> move them back
    away       the tree is ours                                           -> check out the user's commit, then as below
    returning  the tree is the user's again; files are being moved back    -> move the rest back
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct, structs

from ralphtool import files
from ralphtool.errors import CorruptState, RalphError
from ralphtool.git import is_under

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ralphtool.git import Repository

_LARGEST_COPY = 1 << 20  # ignored files up to this size are kept as well: .env and the like
_MOST_COPIES = 1000
_UNDER_WAY = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply")


class Busy(RalphError):
    """The working tree can't be used now."""

    code = "TREE_BUSY"


class Note(Struct, frozen=True, kw_only=True):
    """What has to be given back."""

    change: str
    run: str
    phase: Literal["leaving", "away", "returning"]
    head: str  # a ref, or a commit
    commit: str | None  # None: there was no commit yet
    has_index: bool
    moved: tuple[str, ...]  # moved aside
    gone: tuple[str, ...]  # known to git, and removed by the user
    copied: tuple[str, ...]  # ignored ones, of which a copy was made
    left: tuple[str, ...]  # unknown to git, and left where they are


class Away:
    """The place in git's own folder where a user's work waits."""

    def __init__(self, repository: Repository, spared: Sequence[str]) -> None:
        self.repository = repository
        self.spared = tuple(spared)  # never moved: our own folder
        self._place = os.path.join(repository.gitdir, "ralph")
        self._note = os.path.join(self._place, "away.json")
        self._files = os.path.join(self._place, "away", "files")
        self._copies = os.path.join(self._place, "away", "copies")
        self._index = os.path.join(self._place, "away", "index")

    def note(self) -> Note | None:
        try:
            data = files.read(self._note)
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(data, type=Note)
        except msgspec.DecodeError as error:
            raise CorruptState(
                f"{self._note} is damaged ({error}): your files are in {self._files}; "
                "move them back by hand, then remove it"
            ) from None

    def _write(self, note: Note) -> Note:
        files.replace(self._note, msgspec.json.encode(note))
        return note

    # --- leaving --------------------------------------------------------------------------------

    def leave(self, change: str, run: str) -> Note:
        """Moves the user's uncommitted work aside; tells what there was."""
        self._refuse_if_busy()
        head = self.repository.head()
        moved, gone, left = self._uncommitted()
        os.makedirs(self._files, exist_ok=True)
        note = Note(
            change=change,
            run=run,
            phase="leaving",
            head=head,
            commit=self.repository.resolve("HEAD"),
            has_index=self._copy_index(),
            moved=tuple(moved),
            gone=tuple(gone),
            copied=tuple(self._copy_ignored()),
            left=tuple(left),
        )
        self._write(note)
        for path in moved:
            _move(self._at(path), os.path.join(self._files, path))
        return self._write(structs.replace(note, phase="away"))

    def _refuse_if_busy(self) -> None:
        for name in _UNDER_WAY:
            if os.path.lexists(os.path.join(self.repository.gitdir, name)):
                raise Busy(
                    f"a merge, rebase or the like is under way in {self.repository.top} ({name}): finish or abort it, "
                    'or set workspace = "worktree"'
                )

    def _uncommitted(self) -> tuple[list[str], list[str], list[str]]:
        """What is there and differs from the commit; what was removed; what is unknown and stays where it is."""
        moved, gone, left = [], [], []
        for mark, path in self._status():
            if is_under(path, self.spared):
                continue
            if mark == "??" and self._stays(path):
                left.append(path.rstrip("/"))
            elif os.path.lexists(self._at(path)):
                moved.append(path.rstrip("/"))
            else:
                gone.append(path)
        return moved, gone, left

    def _status(self) -> list[tuple[str, str]]:
        """Folders that git knows nothing of are named as one, unless ours is in them."""
        found = self._ask("normal")
        return (
            self._ask("all")
            if any(is_under(ours, [path.rstrip("/")]) for _, path in found for ours in self.spared)
            else found
        )

    def _ask(self, untracked: str) -> list[tuple[str, str]]:
        told = self.repository.run(
            "status",
            "--porcelain",
            "-z",
            "--no-renames",
            f"--untracked-files={untracked}",
            "--ignore-submodules=all",
            own_index=False,
        )
        return [(line[:2], line[3:]) for line in os.fsdecode(told).split("\0") if line]

    def _stays(self, path: str) -> bool:
        """A repository of its own, or an installed environment: whoever works here needs it in its place."""
        full = self._at(path)
        marks = (".git", "pyvenv.cfg")
        return os.path.basename(path.rstrip("/")) == "node_modules" or any(
            os.path.lexists(os.path.join(full, mark)) for mark in marks
        )

    def _copy_index(self) -> bool:
        index = os.path.join(self.repository.gitdir, "index")
        os.makedirs(os.path.dirname(self._index), exist_ok=True)
        if not os.path.exists(index):
            return False
        shutil.copyfile(index, self._index)
        return True

    def _copy_ignored(self) -> list[str]:
        told = self.repository.run(
            "ls-files",
            "-z",
            "--others",
            "--ignored",
            "--exclude-standard",
            "--directory",
            "--full-name",
            "--",
            ":/",
            own_index=False,
        )
        paths = [path for path in os.fsdecode(told).split("\0") if path and not path.endswith("/")]
        small = [path for path in paths if not is_under(path, self.spared) and _is_small(self._at(path))][:_MOST_COPIES]
        for path in small:
            copy = os.path.join(self._copies, path)
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            shutil.copy2(self._at(path), copy)
        return small

    def _at(self, path: str) -> str:
        return os.path.join(self.repository.top, path)

    # --- returning ------------------------------------------------------------------------------

    def give_back(self, check_out: Callable[[Note], None]) -> Note | None:
        """Makes everything the user's again. `check_out` makes the tree be that of the note's commit."""
        note = self.note()
        if note is None:
            return None
        if note.phase == "away":
            check_out(note)
            self.repository.set_head(note.head)
            note = self._write(structs.replace(note, phase="returning"))
        self._move_back(note)
        self._restore_copies(note.copied)
        self._restore_index(note)
        files.remove(self._note)
        shutil.rmtree(os.path.dirname(self._files), ignore_errors=True)
        return note

    def _move_back(self, note: Note) -> None:
        for path in note.moved:
            waiting = os.path.join(self._files, path)
            if os.path.lexists(waiting):  # else it is back already
                _remove(self._at(path))
                _move(waiting, self._at(path))
        for path in note.gone if note.phase == "returning" else ():
            _remove(self._at(path))

    def _restore_copies(self, paths: Iterable[str]) -> None:
        for path in paths:
            copy, place = os.path.join(self._copies, path), self._at(path)
            if os.path.lexists(copy) and not _same_file(copy, place):
                _remove(place)
                os.makedirs(os.path.dirname(place), exist_ok=True)
                shutil.copy2(copy, place)

    def _restore_index(self, note: Note) -> None:
        index = os.path.join(self.repository.gitdir, "index")
        _unlock_index(index)
        if note.has_index:
            if os.path.exists(self._index):
                os.replace(self._index, index)
            self.repository.run("update-index", "-q", "--refresh", own_index=False, check=False)
        elif os.path.lexists(index):
            os.unlink(index)


def _unlock_index(index: str) -> None:
    """What an agent that was killed in the middle of a git command has left."""
    try:
        os.unlink(f"{index}.lock")
    except FileNotFoundError:
        pass


def _is_small(path: str) -> bool:
    info = os.lstat(path)
    return stat.S_ISREG(info.st_mode) and info.st_size <= _LARGEST_COPY and os.access(path, os.R_OK)


def _same_file(one: str, other: str) -> bool:
    try:
        left, right = os.lstat(one), os.lstat(other)
        if not stat.S_ISREG(right.st_mode) or (left.st_size, left.st_mode) != (right.st_size, right.st_mode):
            return False
        return left.st_mtime_ns == right.st_mtime_ns or files.read(one) == files.read(other)
    except OSError:
        return False


def _move(source: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _move_across(source, target)


def _move_across(source: str, target: str) -> None:
    """Onto another file system: a copy that is whole before the original goes."""
    aside = f"{target}.ralph-aside"
    _remove(aside)
    if os.path.isdir(source) and not os.path.islink(source):
        shutil.copytree(source, aside, symlinks=True)
    else:
        shutil.copy2(source, aside, follow_symlinks=False)
    os.rename(aside, target)
    _remove(source)


def _remove(path: str) -> None:
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except FileNotFoundError:
        pass
