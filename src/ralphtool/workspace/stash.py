"""The user's own work, set aside while the loop uses the working tree, and restored byte for byte.

Files are moved, not copied through git: contents that git's filters would change, and properties that git does not keep
(modes, times), stay as they are. A note next to them records the phase, so that a kill at any moment can be recovered:

    leaving    files are being moved aside; the tree is still the user's   -> move them back
    away       the run uses the tree                                      -> check out the user's commit, then as below
    returning  the tree is the user's again; files are being moved back    -> move the rest back

Untracked files that stay in place (ignored files, environments, repositories inside the repository) are listed too:
they are never removed or committed, however an agent changes the ignore rules.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct, structs

from ralphtool import typed
from ralphtool.core import files, layout
from ralphtool.errors import CorruptState, GitError, TreeBusy
from ralphtool.workspace.git import SUBMODULE
from ralphtool.workspace.paths import Paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ralphtool.workspace.git import Repository

_LARGEST_COPY = 1 << 20  # ignored files up to this size are copied: .env and the like
_MOST_COPIES = 5000
_MOST_BYTES = 64 << 20
_MADE_AGAIN = {"node_modules", "__pycache__", "target", "build", "dist", ".venv", "venv", ".tox", ".nox", ".cache"}
_UNDER_WAY = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply")
_ENVIRONMENT = ("pyvenv.cfg", ".git")


def find_under_way(repository: Repository) -> str | None:
    """The git operation in progress in the user's tree, named by its marker file."""
    return next((name for name in _UNDER_WAY if os.path.lexists(os.path.join(repository.gitdir, name))), None)


class StashNote(Struct, frozen=True, kw_only=True):
    """What must be restored. Paths are bytes: a name need not be text."""

    change: str
    run: str
    phase: Literal["leaving", "away", "returning"]
    head: str  # a ref, or a commit
    commit: str | None  # None: there was no commit yet
    has_index: bool
    moved: tuple[bytes, ...]  # moved aside
    gone: tuple[bytes, ...]  # tracked, but removed by the user
    copied: tuple[bytes, ...]  # ignored files that were copied
    left: tuple[bytes, ...]  # untracked, or separate repositories: they stay in place

    def list_absent(self) -> list[str]:
        """The files that are not in the tree for now, as text."""
        return [os.fsdecode(path) for path in (*self.moved, *self.gone)]

    def list_remaining(self) -> list[str]:
        return [os.fsdecode(path) for path in self.left]


class Stash:
    """The place in git's own folder where a user's work is kept."""

    def __init__(self, repository: Repository, ours: str) -> None:
        self.repository = repository
        self.ours = Paths([ours])  # never moved
        self._place = layout.in_git(repository.gitdir)
        self._note = layout.stash_note(repository.gitdir)
        self._files = os.path.join(self._place, "away", "files")
        self._copies = os.path.join(self._place, "away", "copies")
        self._index = os.path.join(self._place, "away", "index")

    def note(self) -> StashNote | None:
        try:
            data = files.read(self._note)
        except FileNotFoundError:
            return None
        try:
            return typed.decode(data, StashNote)
        except msgspec.DecodeError as error:
            raise CorruptState(
                f"{self._note} is damaged ({error}): your files are in {self._files}; "
                "move them back by hand, then delete it"
            ) from None

    def _write_note(self, note: StashNote) -> StashNote:
        files.replace(self._note, msgspec.json.encode(note))
        return note

    def _full_path(self, path: str) -> str:
        return os.path.join(self.repository.top, path)

    # --- leaving --------------------------------------------------------------------------------

    def check_not_busy(self) -> None:
        if name := find_under_way(self.repository):
            raise TreeBusy(
                f"a merge, rebase or similar operation is in progress in {self.repository.top} ({name}): "
                'finish or abort it, or set workspace = "worktree"'
            )

    def set_aside(self, change: str, run: str, target: str) -> StashNote:
        """Moves the user's uncommitted work aside, to make room for a tree; returns the note about it."""
        moved, gone, left = self._classify_files(target)
        self._clear_folder()
        note = StashNote(
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
        self._write_note(note)
        self._protect_staged()
        for path in moved:
            _move(self._full_path(path), os.path.join(self._files, path))
        return self._write_note(structs.replace(note, phase="away"))

    def _classify_files(self, target: str) -> tuple[list[str], list[str], list[str]]:
        """Files to move aside; files that the user removed; untracked files that stay."""
        listed = self._list_status()
        index = self._list_index()
        submodules = [path for _, mode, path in index if mode == SUBMODULE]
        staying = [path for mark, path in listed if mark == "??" and self._must_stay(path)]
        left = [*staying, *submodules, *self._list_ignored()]
        changed = [path for _, path in listed if path not in staying]
        hidden = [path for tag, _, path in index if tag == "S" or tag.islower()]  # skip-worktree or assume-unchanged
        unlike_git = self._find_unlike_git([path for _, _, path in index])
        changed += [*self._find_obstacles(target, Paths(left)), *hidden, *unlike_git]
        wanted = [path for path in _drop_nested(changed) if path not in submodules and not self.ours.cover(path)]
        there = {path: _exists_in_tree(self.repository.top, path) for path in wanted}
        moved = [path for path in wanted if there[path]]
        # A folder that is moved as a whole includes the files that were removed inside it.
        named = [*(path for _, path in listed), *hidden]
        gone = [path for path in named if not there.get(path, True) or self._is_gone(path, wanted)]
        return moved, [path for path in gone if not self.ours.cover(path)], left

    def _clear_folder(self) -> None:
        """Files without a note may still be the user's, so they are kept."""
        place = os.path.dirname(self._files)
        number = 1
        while any(names for _, _, names in os.walk(self._files)) and os.path.isdir(place):
            if not os.path.lexists(f"{place}-{number}"):
                os.rename(place, f"{place}-{number}")
            number += 1
        shutil.rmtree(place, ignore_errors=True)
        os.makedirs(self._files)

    def _is_gone(self, path: str, wanted: Sequence[str]) -> bool:
        return path not in wanted and not _exists_in_tree(self.repository.top, path)

    def _list_status(self) -> list[tuple[str, str]]:
        """Untracked folders are listed as one entry, unless they contain `.ralph`."""
        found = self._run_status("normal")
        holds_ours = any(Paths([path]).cover(ours) for _, path in found for ours in self.ours.names)
        return self._run_status("all") if holds_ours else found

    def _run_status(self, untracked: str) -> list[tuple[str, str]]:
        options = ("--no-renames", f"--untracked-files={untracked}", "--ignore-submodules=all")
        lines = self.repository.list_items("status", "--porcelain", "-z", *options, own_index=False)
        return [(line[:2], line[3:].rstrip("/")) for line in lines]

    def _must_stay(self, path: str) -> bool:
        """A separate repository, or an installed environment: work here needs it in place."""
        if os.path.basename(path) == "node_modules":
            return True
        return any(os.path.lexists(os.path.join(self._full_path(path), mark)) for mark in _ENVIRONMENT)

    def _list_index(self) -> list[tuple[str, str, str]]:
        """For every tracked file: the letter for its flags in the index, its mode and its path."""
        options = ("-z", "-v", "--stage", "--full-name")
        lines = self.repository.list_items("ls-files", *options, ":/", own_index=False)
        rows = [line.partition("\t") for line in lines]
        return [(about[0], about.split(" ")[1], path) for about, _, path in rows]

    def _list_ignored(self) -> list[str]:
        options = ("--others", "--ignored", "--exclude-standard", "--directory", "--full-name")
        listed = self.repository.list_items("ls-files", "-z", *options, "--", ":/", own_index=False)
        return [path.rstrip("/") for path in listed if not self.ours.cover(path.rstrip("/"))]

    def _find_obstacles(self, target: str, left: Paths) -> list[str]:
        """Files that would stay, but have the name of a file in the tree to check out."""
        tracked = self.repository.list_items("ls-tree", "-r", "-z", "--name-only", "--full-tree", target)
        return [path for path in tracked if left.cover(path) and _exists_in_tree(self.repository.top, path)]

    def _find_unlike_git(self, tracked: Sequence[str]) -> list[str]:
        """Files that git calls unchanged but would write differently: line endings, filters, modes."""
        odd = [path for path in tracked if _has_odd_mode(self._full_path(path))]
        return [*odd, *self._find_converted(tracked)]

    def _find_converted(self, tracked: Sequence[str]) -> list[str]:
        told = self.repository.text("config", "--get", "core.autocrlf", check=False).lower()
        attributes = os.path.join(self.repository.common, "info", "attributes")
        has_rules = any(os.path.basename(path) == ".gitattributes" for path in tracked) or os.path.exists(attributes)
        if told not in ("true", "input") and not has_rules:
            return []
        rows = self.repository.list_items("ls-files", "-z", "--eol", "--full-name", ":/", own_index=False)
        other_ends = [row.partition("\t")[2] for row in rows if _has_other_ends(row.partition("\t")[0].split())]
        return [*other_ends, *self._find_filtered(tracked)]

    def _find_filtered(self, tracked: Sequence[str]) -> list[str]:
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

    def _protect_staged(self) -> None:
        """Staged contents exist nowhere else: an agent's `git gc` must not delete them."""
        if os.path.exists(self._index):
            tree = self.repository.tree_of_index(self._index)
            self.repository.set_refs({layout.STAGED: tree} if tree else {})

    def _copy_small(self, left: Iterable[str]) -> list[str]:
        """Copies ignored files that the user may have written, including those in ignored folders, within limits."""
        room = _MOST_BYTES
        copied: list[str] = []
        for path in self._find_small(left):
            room -= os.lstat(self._full_path(path)).st_size
            if room < 0 or len(copied) == _MOST_COPIES:
                break
            copy = os.path.join(self._copies, path)
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            shutil.copy2(self._full_path(path), copy)
            copied.append(path)
        return copied

    def _find_small(self, left: Iterable[str]) -> Iterator[str]:
        folders = []
        for path in left:
            if _is_small(self._full_path(path)):
                yield path
            elif not os.path.islink(self._full_path(path)) and not self._must_stay(path):
                folders.append(path)
        for folder in folders:
            for place, names, inside in os.walk(self._full_path(folder)):
                names[:] = [name for name in names if name not in _MADE_AGAIN and not name.endswith("_cache")]
                if os.path.basename(place) in _MADE_AGAIN or os.path.basename(place).endswith("_cache"):
                    names[:] = []
                    continue
                paths = [os.path.join(place, name) for name in inside]
                yield from (os.path.relpath(path, self.repository.top) for path in paths if _is_small(path))

    # --- returning ------------------------------------------------------------------------------

    def restore(self, check_out: Callable[[StashNote], None]) -> StashNote | None:
        """Restores everything for the user. `check_out` sets tree and HEAD to those of the note."""
        note = self.note()
        if note is None:
            return None
        was_cut_off = note.phase != "away"
        if note.phase == "away":
            self._check_out(note, check_out)
            self._remove_gone(note)
            note = self._write_note(structs.replace(note, phase="returning"))
        self._move_back(note, was_cut_off=was_cut_off)
        self._restore_copies(note)
        if note.phase == "returning":
            self._restore_index(note)
        self.repository.set_refs({layout.STAGED: None} if self.repository.refs(layout.STAGED) else {})
        files.remove(self._note)
        shutil.rmtree(os.path.dirname(self._files), ignore_errors=True)
        return note

    def _check_out(self, note: StashNote, check_out: Callable[[StashNote], None]) -> None:
        try:
            check_out(note)
        except GitError as error:
            raise GitError(
                f"{error}; fix that, then run `ralphtool back`. Your own files are in {self._files}"
            ) from None

    def _remove_gone(self, note: StashNote) -> None:
        for path in map(os.fsdecode, note.gone):
            files.clear(self._full_path(path))
            files.remove_empty_above(self._full_path(path), self.repository.top)

    def _move_back(self, note: StashNote, *, was_cut_off: bool) -> None:
        for path in map(os.fsdecode, note.moved):
            waiting = os.path.join(self._files, path)
            if os.path.lexists(waiting):  # otherwise it is already back
                if was_cut_off:  # the user may have worked here since
                    self._keep_changed(self._full_path(path), path, note.run)
                files.clear(self._full_path(path))
                _make_folders_above(self._full_path(path), self.repository.top)
                _move(waiting, self._full_path(path))

    def _restore_copies(self, note: StashNote) -> None:
        for path in map(os.fsdecode, note.copied):
            copy, place = os.path.join(self._copies, path), self._full_path(path)
            if os.path.lexists(copy) and not _is_same(copy, place):
                self._keep_changed(place, path, note.run)
                _make_folders_above(place, self.repository.top)
                os.makedirs(os.path.dirname(place), exist_ok=True)
                shutil.copy2(copy, place)

    def _keep_changed(self, place: str, path: str, run: str) -> None:
        """A file that changed: an agent changed it, or the user did. The changed version is kept too."""
        if os.path.lexists(place):
            kept = os.path.join(self._place, "changed", run, path)
            files.clear(kept)
            _move(place, kept)

    def _restore_index(self, note: StashNote) -> None:
        index = os.path.join(self.repository.gitdir, "index")
        files.clear(f"{index}.lock")  # from an agent that was killed during a git command
        if not note.has_index:
            files.clear(index)
            return
        if os.path.exists(self._index):
            self._rebase_index(note)
            os.replace(self._index, index)
        self.repository.run("update-index", "-q", "--refresh", own_index=False, check=False)

    def _rebase_index(self, note: StashNote) -> None:
        """If the user is on the very branch that the run moved, puts their staged files on top of the new commit."""
        now = self.repository.resolve("HEAD")
        if not note.commit or now == note.commit or note.head != self.repository.head():
            return
        staged = self.repository.staged(self._index, note.commit)
        self.repository.make_index(self._index, str(now), staged)


def _as_bytes(paths: Iterable[str]) -> tuple[bytes, ...]:
    return tuple(os.fsencode(path) for path in paths)


def _drop_nested(paths: Iterable[str]) -> list[str]:
    """Each path once, without those below another one."""
    every = Paths(paths)
    return [path for path in sorted(every.names) if not every.cover(os.path.dirname(path))]


def _exists_in_tree(top: str, path: str) -> bool:
    """Whether a path exists, and not only through a link."""
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


def _read_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


_MASK = _read_umask()
_PLAIN = 0o666 & ~_MASK


def _has_other_ends(words: Sequence[str]) -> bool:
    """Whether a file has other line endings in the tree than in the index: `i/lf w/crlf attr/…`."""
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


def _make_folders_above(path: str, top: str) -> None:
    """Removes files and links in place of the folders above a path."""
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
    """To another file system: the copy is complete before the original is removed."""
    aside = f"{target}.ralph-aside"
    files.clear(aside)
    if os.path.isdir(source) and not os.path.islink(source):
        shutil.copytree(source, aside, symlinks=True)
    else:
        shutil.copy2(source, aside, follow_symlinks=False)
    os.rename(aside, target)
    files.clear(source)
