"""The user's own work, put aside while the loop uses the working tree, and given back byte for byte.

Files are moved, not copied through git: what git's filters would change, and what git does not keep (modes, times),
stays as it is. A note beside them says how far we are, so that a kill at any moment can be answered:

    leaving    files are being moved aside; the tree is still the user's   -> move them back
    away       the tree is ours                                           -> check out the user's commit, then as below
    returning  the tree is the user's again; files are being moved back    -> move the rest back

What git does not know and what stays where it is (ignored files, environments, repositories inside the repository) is
written down too: nothing of that is ever removed or committed, whatever an agent makes of the ignore rules.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct, structs

from ralphtool.core import files, layout
from ralphtool.errors import CorruptState, GitError, TreeBusy
from ralphtool.workspace.git import SUBMODULE, Paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ralphtool.workspace.git import Repository

_LARGEST_COPY = 1 << 20  # ignored files up to this size are copied: .env and the like
_MOST_COPIES = 5000
_MOST_BYTES = 64 << 20
_MADE_AGAIN = {"node_modules", "__pycache__", "target", "build", "dist", ".venv", "venv", ".tox", ".nox", ".cache"}
_UNDER_WAY = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply")
_ENVIRONMENT = ("pyvenv.cfg", ".git")


class Note(Struct, frozen=True, kw_only=True):
    """What has to be given back. Paths are bytes: a name need not be text."""

    change: str
    run: str
    phase: Literal["leaving", "away", "returning"]
    head: str  # a ref, or a commit
    commit: str | None  # None: there was no commit yet
    has_index: bool
    moved: tuple[bytes, ...]  # moved aside
    gone: tuple[bytes, ...]  # known to git, and removed by the user
    copied: tuple[bytes, ...]  # ignored ones, of which a copy was made
    left: tuple[bytes, ...]  # not known to git, or repositories of their own: they stay where they are

    def aside(self) -> list[str]:
        """What is not in the tree for now, as people write it."""
        return [os.fsdecode(path) for path in (*self.moved, *self.gone)]

    def staying(self) -> list[str]:
        return [os.fsdecode(path) for path in self.left]


def note_path(gitdir: str) -> str:
    """Where the note of a working tree is, by the folder that git keeps for that tree."""
    return os.path.join(layout.in_git(gitdir), "away.json")


class Away:
    """The place in git's own folder where a user's work waits."""

    def __init__(self, repository: Repository, ours: str) -> None:
        self.repository = repository
        self.ours = Paths([ours])  # never moved
        self._place = layout.in_git(repository.gitdir)
        self._note = note_path(repository.gitdir)
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

    def _at(self, path: str) -> str:
        return os.path.join(self.repository.top, path)

    # --- leaving --------------------------------------------------------------------------------

    def refuse_if_busy(self) -> None:
        for name in _UNDER_WAY:
            if os.path.lexists(os.path.join(self.repository.gitdir, name)):
                raise TreeBusy(
                    f"a merge, rebase or the like is under way in {self.repository.top} ({name}): finish or abort it, "
                    'or set workspace = "worktree"'
                )

    def leave(self, change: str, run: str, target: str) -> Note:
        """Moves the user's uncommitted work aside, to make way for a tree; tells what there was."""
        moved, gone, left = self._looked_over(target)
        self._empty_place()
        note = Note(
            change=change,
            run=run,
            phase="leaving",
            head=self.repository.head(),
            commit=self.repository.resolve("HEAD"),
            has_index=self._copy_index(),
            moved=_as_bytes(moved),
            gone=_as_bytes(gone),
            copied=_as_bytes(self._copy_small(left)),
            left=_as_bytes(left),
        )
        self._write(note)
        self._hold_staged()
        for path in moved:
            _move(self._at(path), os.path.join(self._files, path))
        return self._write(structs.replace(note, phase="away"))

    def _looked_over(self, target: str) -> tuple[list[str], list[str], list[str]]:
        """What is moved aside; what the user removed; what stays though git does not know it."""
        listed = self._status()
        submodules = self._submodules()
        staying = [path for mark, path in listed if mark == "??" and self._stays(path)]
        left = [*staying, *submodules, *self._ignored()]
        changed = [path for _, path in listed if path not in staying]
        hidden = self._hidden()
        changed += [*self._in_the_way(target, Paths(left)), *hidden, *self._unlike_git()]
        wanted = [path for path in _outermost(changed) if path not in submodules and not self.ours.cover(path)]
        there = {path: _is_there(self.repository.top, path) for path in wanted}
        moved = [path for path in wanted if there[path]]
        # A folder that is moved as a whole takes along what was removed inside of it.
        named = [*(path for _, path in listed), *hidden]
        gone = [path for path in named if not there.get(path, True) or self._is_gone(path, wanted)]
        return moved, [path for path in gone if not self.ours.cover(path)], left

    def _empty_place(self) -> None:
        """Files without a note are somebody's all the same."""
        place = os.path.dirname(self._files)
        number = 1
        while any(names for _, _, names in os.walk(self._files)) and os.path.isdir(place):
            if not os.path.lexists(f"{place}-{number}"):
                os.rename(place, f"{place}-{number}")
            number += 1
        shutil.rmtree(place, ignore_errors=True)
        os.makedirs(self._files)

    def _is_gone(self, path: str, wanted: Sequence[str]) -> bool:
        return path not in wanted and not _is_there(self.repository.top, path)

    def _status(self) -> list[tuple[str, str]]:
        """Folders that git knows nothing of are named as one, unless ours is in them."""
        found = self._ask("normal")
        holds_ours = any(Paths([path]).cover(ours) for _, path in found for ours in self.ours.names)
        return self._ask("all") if holds_ours else found

    def _ask(self, untracked: str) -> list[tuple[str, str]]:
        options = ("--no-renames", f"--untracked-files={untracked}", "--ignore-submodules=all")
        lines = self.repository.listed("status", "--porcelain", "-z", *options, own_index=False)
        return [(line[:2], line[3:].rstrip("/")) for line in lines]

    def _stays(self, path: str) -> bool:
        """A repository of its own, or an installed environment: whoever works here needs it in its place."""
        if os.path.basename(path) == "node_modules":
            return True
        return any(os.path.lexists(os.path.join(self._at(path), mark)) for mark in _ENVIRONMENT)

    def _submodules(self) -> list[str]:
        lines = self.repository.listed("ls-files", "-z", "--stage", "--full-name", ":/", own_index=False)
        return [line.partition("\t")[2] for line in lines if line.startswith(SUBMODULE)]

    def _ignored(self) -> list[str]:
        options = ("--others", "--ignored", "--exclude-standard", "--directory", "--full-name")
        listed = self.repository.listed("ls-files", "-z", *options, "--", ":/", own_index=False)
        return [path.rstrip("/") for path in listed if not self.ours.cover(path.rstrip("/"))]

    def _in_the_way(self, target: str, left: Paths) -> list[str]:
        """What stays, but has the name of a file in the tree that we check out."""
        tracked = self.repository.listed("ls-tree", "-r", "-z", "--name-only", "--full-tree", target)
        return [path for path in tracked if left.cover(path) and _is_there(self.repository.top, path)]

    def _hidden(self) -> list[str]:
        """Files that git was told not to look at, or not to check out."""
        lines = self.repository.listed("ls-files", "-z", "-v", "--full-name", ":/", own_index=False)
        return [line[2:] for line in lines if line[0] == "S" or line[0].islower()]

    def _unlike_git(self) -> list[str]:
        """Files that git calls unchanged, and would yet write in another way: line ends, filters, modes."""
        tracked = self.repository.listed("ls-files", "-z", "--full-name", ":/", own_index=False)
        odd = [path for path in tracked if _has_odd_mode(self._at(path))]
        return [*odd, *self._converted(tracked)]

    def _converted(self, tracked: Sequence[str]) -> list[str]:
        told = self.repository.text("config", "--get", "core.autocrlf", check=False).lower()
        attributes = os.path.join(self.repository.common, "info", "attributes")
        has_rules = any(os.path.basename(path) == ".gitattributes" for path in tracked) or os.path.exists(attributes)
        if told not in ("true", "input") and not has_rules:
            return []
        rows = self.repository.listed("ls-files", "-z", "--eol", "--full-name", ":/", own_index=False)
        other_ends = [row.partition("\t")[2] for row in rows if _has_other_ends(row.partition("\t")[0].split())]
        return [*other_ends, *self._filtered(tracked)]

    def _filtered(self, tracked: Sequence[str]) -> list[str]:
        asked = os.fsencode("\0".join(tracked))
        told = os.fsdecode(self.repository.run("check-attr", "-z", "--stdin", "filter", input=asked, own_index=False))
        words = told.split("\0")
        rows = zip(words[::3], words[2::3], strict=False)
        return [path for path, value in rows if value not in ("unspecified", "unset", "lfs")]

    def _copy_index(self) -> bool:
        index = os.path.join(self.repository.gitdir, "index")
        if not os.path.exists(index):
            return False
        shutil.copyfile(index, self._index)
        return True

    def _hold_staged(self) -> None:
        """What is staged is nowhere else: a `git gc` of an agent's must not take it for rubbish."""
        if os.path.exists(self._index):
            tree = self.repository.tree_of_index(self._index)
            self.repository.set_refs({layout.STAGED: tree} if tree else {})

    def _copy_small(self, left: Iterable[str]) -> list[str]:
        """Copies ignored files that somebody may have written, those in ignored folders too, within reason."""
        room = _MOST_BYTES
        copied: list[str] = []
        for path in self._small(left):
            room -= os.lstat(self._at(path)).st_size
            if room < 0 or len(copied) == _MOST_COPIES:
                break
            copy = os.path.join(self._copies, path)
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            shutil.copy2(self._at(path), copy)
            copied.append(path)
        return copied

    def _small(self, left: Iterable[str]) -> Iterator[str]:
        folders = []
        for path in left:
            if _is_small(self._at(path)):
                yield path
            elif not os.path.islink(self._at(path)) and not self._stays(path):
                folders.append(path)
        for folder in folders:
            for place, names, inside in os.walk(self._at(folder)):
                names[:] = [name for name in names if name not in _MADE_AGAIN and not name.endswith("_cache")]
                if os.path.basename(place) in _MADE_AGAIN or os.path.basename(place).endswith("_cache"):
                    names[:] = []
                    continue
                paths = [os.path.join(place, name) for name in inside]
                yield from (os.path.relpath(path, self.repository.top) for path in paths if _is_small(path))

    # --- returning ------------------------------------------------------------------------------

    def give_back(self, check_out: Callable[[Note], None]) -> Note | None:
        """Makes everything the user's again. `check_out` makes tree and HEAD be those of the note."""
        note = self.note()
        if note is None:
            return None
        was_cut_off = note.phase != "away"
        if note.phase == "away":
            self._check_out(note, check_out)
            self._remove_gone(note)
            note = self._write(structs.replace(note, phase="returning"))
        self._move_back(note, was_cut_off=was_cut_off)
        self._restore_copies(note)
        if note.phase == "returning":
            self._restore_index(note)
        self.repository.set_refs({layout.STAGED: None} if self.repository.refs(layout.STAGED) else {})
        files.remove(self._note)
        shutil.rmtree(os.path.dirname(self._files), ignore_errors=True)
        return note

    def _check_out(self, note: Note, check_out: Callable[[Note], None]) -> None:
        try:
            check_out(note)
        except GitError as error:
            raise GitError(f"{error}; mend that, then `ralphtool back`; your own files are in {self._files}") from None

    def _remove_gone(self, note: Note) -> None:
        for path in map(os.fsdecode, note.gone):
            files.clear(self._at(path))
            files.remove_empty_above(self._at(path), self.repository.top)

    def _move_back(self, note: Note, *, was_cut_off: bool) -> None:
        for path in map(os.fsdecode, note.moved):
            waiting = os.path.join(self._files, path)
            if os.path.lexists(waiting):  # else it is back already
                if was_cut_off:  # somebody may have been at work since
                    self._keep_changed(self._at(path), path, note.run)
                files.clear(self._at(path))
                _make_way(self._at(path), self.repository.top)
                _move(waiting, self._at(path))

    def _restore_copies(self, note: Note) -> None:
        for path in map(os.fsdecode, note.copied):
            copy, place = os.path.join(self._copies, path), self._at(path)
            if os.path.lexists(copy) and not _is_same(copy, place):
                self._keep_changed(place, path, note.run)
                _make_way(place, self.repository.top)
                os.makedirs(os.path.dirname(place), exist_ok=True)
                shutil.copy2(copy, place)

    def _keep_changed(self, place: str, path: str, run: str) -> None:
        """An ignored file that is not as it was: an agent changed it, or you did. What it is now is kept as well."""
        if os.path.lexists(place):
            kept = os.path.join(self._place, "changed", run, path)
            files.clear(kept)
            _move(place, kept)

    def _restore_index(self, note: Note) -> None:
        index = os.path.join(self.repository.gitdir, "index")
        files.clear(f"{index}.lock")  # of an agent that was killed in the middle of a git command
        if not note.has_index:
            files.clear(index)
            return
        if os.path.exists(self._index):
            self._rebase_index(note)
            os.replace(self._index, index)
        self.repository.run("update-index", "-q", "--refresh", own_index=False, check=False)

    def _rebase_index(self, note: Note) -> None:
        """For somebody who is on the very branch that the run moved: what they had staged, on top of the new commit."""
        now = self.repository.resolve("HEAD")
        if not note.commit or now == note.commit or note.head != self.repository.head():
            return
        staged = self.repository.staged(self._index, note.commit)
        self.repository.make_index(self._index, str(now), staged)


def _as_bytes(paths: Iterable[str]) -> tuple[bytes, ...]:
    return tuple(os.fsencode(path) for path in paths)


def _outermost(paths: Iterable[str]) -> list[str]:
    """Each once, without those that lie in another one."""
    every = Paths(paths)
    return [path for path in sorted(every.names) if not every.cover(os.path.dirname(path))]


def _is_there(top: str, path: str) -> bool:
    """Whether a path is there, and not only behind a link."""
    parent = os.path.dirname(path)
    while parent:
        if os.path.islink(os.path.join(top, parent)):
            return False
        parent = os.path.dirname(parent)
    return os.path.lexists(os.path.join(top, path))


def _has_odd_mode(path: str) -> bool:
    try:
        info = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISREG(info.st_mode) and stat.S_IMODE(info.st_mode) not in (_PLAIN, _PLAIN | (0o111 & ~_MASK))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


_MASK = _umask()
_PLAIN = 0o666 & ~_MASK


def _has_other_ends(words: Sequence[str]) -> bool:
    """Whether the lines of a file end in another way in the tree than they do in the index: `i/lf w/crlf attr/…`."""
    if len(words) < 2 or words[1] == "w/":
        return False
    return words[0][2:] != words[1][2:] or ("eol=crlf" in words and words[1] != "w/crlf")


def _is_small(path: str) -> bool:
    try:
        info = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(info.st_mode) and info.st_size <= _LARGEST_COPY and os.access(path, os.R_OK)


def _is_same(one: str, other: str) -> bool:
    try:
        left, right = os.lstat(one), os.lstat(other)
        if not stat.S_ISREG(right.st_mode) or (left.st_size, left.st_mode) != (right.st_size, right.st_mode):
            return False
        return left.st_mtime_ns == right.st_mtime_ns or files.read(one) == files.read(other)
    except OSError:
        return False


def _make_way(path: str, top: str) -> None:
    """Nothing but folders may stand above it."""
    parent = os.path.dirname(path)
    while parent.startswith(top) and parent != top:
        if os.path.lexists(parent) and (os.path.islink(parent) or not os.path.isdir(parent)):
            os.unlink(parent)
        parent = os.path.dirname(parent)


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
    files.clear(aside)
    if os.path.isdir(source) and not os.path.islink(source):
        shutil.copytree(source, aside, symlinks=True)
    else:
        shutil.copy2(source, aside, follow_symlinks=False)
    os.rename(aside, target)
    files.clear(source)
