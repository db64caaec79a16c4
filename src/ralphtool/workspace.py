"""Where an iteration works: the user's own tree, a worktree of its own, or a plain folder without git.

A workspace can be put into a state, and its state can be taken down as a tree; commits and refs are made of trees.
The loop knows nothing else of git.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from ralphtool import files, guard
from ralphtool.away import Away, Busy
from ralphtool.errors import from_os_error
from ralphtool.git import GitError, Repository, is_under
from ralphtool.internals import Internals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.away import Note
    from ralphtool.git import Changed

ATTEMPTS = "refs/ralph/attempts/"
_BASE = "refs/ralph/base/"
_INTERRUPTED = "refs/ralph/interrupted/"


class Taken(Struct, frozen=True):
    """What a workspace held when an agent had ended. `trouble` says why it could not be taken down, if so."""

    tree: str | None
    paths: tuple[str, ...] = ()
    changes: tuple[guard.Change, ...] = ()
    findings: tuple[guard.Finding, ...] = ()
    trouble: str = ""


class Workspace(Protocol):
    """What the loop asks of the place where an iteration works."""

    root: str  # the project's folder in there
    branch: str | None

    @property
    def tree(self) -> str | None:
        """What the iteration began with."""
        ...

    def disturbed(self) -> None:
        """Commands of ours have run since it was put into a state, and may have left files."""
        ...

    def open(self, run: str, own_files: Sequence[str]) -> list[str]:
        """Makes it ours; `own_files` are those of the change. Tells what is worth telling."""
        ...

    def close(self) -> None:
        """Gives it back as it was."""
        ...

    def begin(self, kept: str | None) -> str | None:
        """Puts it into the state to work on: the last checkpoint, and what was `kept` on top. Tells what went wrong."""
        ...

    def take(self) -> Taken:
        """What is there now, and how it differs from what the iteration began with."""
        ...

    def add(self, paths: Sequence[str]) -> str | None:
        """Takes these files into the tree that was taken last; tells the new one."""
        ...

    def commit(self, tree: str | None, message: str) -> str | None:
        """A commit of a tree upon the last checkpoint; nothing points to it yet."""
        ...

    def publish(self, attempt: str, commit: str | None, *, tree: str | None = None, story: str = "") -> None:
        """Keeps an attempt. With a `tree`, its commit is the last checkpoint from here on, for a `story` perhaps.

        Doing it again changes nothing.
        """
        ...

    def checkpoints(self) -> dict[str, str]:
        """The stories that have one, and its commit."""
        ...


# --- without git ------------------------------------------------------------------------------------


class Folder:
    """A project without git: nothing can be taken back, compared or kept."""

    branch: str | None = None
    tree: str | None = None

    def __init__(self, root: str) -> None:
        self.root = root

    def disturbed(self) -> None:
        pass

    def open(self, run: str, own_files: Sequence[str]) -> list[str]:
        return [
            "this project has no git repository: nothing is committed, a failed attempt is not taken back, "
            "and cheating in the diff can't be seen; `git init` gives you all that"
        ]

    def close(self) -> None:
        pass

    def begin(self, kept: str | None) -> str | None:
        return None

    def take(self) -> Taken:
        return Taken(None)

    def add(self, paths: Sequence[str]) -> str | None:
        return None

    def commit(self, tree: str | None, message: str) -> str | None:
        return None

    def publish(self, attempt: str, commit: str | None, *, tree: str | None = None, story: str = "") -> None:
        pass

    def checkpoints(self) -> dict[str, str]:
        return {}


# --- with git ---------------------------------------------------------------------------------------


class _Tree:
    """What both kinds of working trees share. `tip` is the last checkpoint, `base` where the work began."""

    def __init__(self, repository: Repository, project: str, change: str) -> None:
        self.repository = repository
        self.change = change
        self.branch: str | None = f"ralph/{change}"
        self.ref = f"refs/heads/{self.branch}"
        self.project = project
        self.root = project
        inside = os.path.relpath(os.path.realpath(project), os.path.realpath(repository.top))
        self.prefix = "" if inside == "." else f"{inside}/"
        self.ours = f"{self.prefix}.ralph"
        self.excluded = [self.ours]
        self.tip = ""  # the last checkpoint
        self._tip_tree = ""
        self._files: str | None = None  # the tree that the files are known to be; None: anything may be there
        self._began_with = ""  # the tree that this iteration began with
        self._proven: dict[str, str] | None = None
        self._index_state: tuple[int, ...] = ()
        self._ours_tracked: list[str] = []  # files of ours that the user has in git
        self.internals: Internals

    # --- beginning a run ------------------------------------------------------------------------

    def _start_branch(self, own_files: Sequence[str], start: str | None) -> list[str]:
        """Makes the branch if it is not there; a change that is not committed yet goes into its first commit."""
        if known := self.repository.resolve(self.ref):
            self._advance(known, self.repository.tree_of(known))
            return []
        self.repository.set_refs({_BASE + self.change: start} if start else {})
        tree = self.repository.tree_of(start) if start else self.repository.empty_tree()
        self.repository.run("read-tree", tree)
        self._stage_own(own_files)
        grown = self.repository.write_tree()
        first = start
        if grown != tree or not start:
            subject = f"ralphtool: the change {self.change}"
            first = self.repository.commit(
                grown, [start] if start else [], f"{subject}\n\nRalph-Change: {self.change}\n"
            )
        self.repository.set_refs({self.ref: first})
        self._advance(str(first), grown)
        return [f"work happens on the branch {self.branch}"]

    def _stage_own(self, own_files: Sequence[str]) -> None:
        paths = [
            f":(top,literal){path}" for path in own_files if os.path.lexists(os.path.join(self.repository.top, path))
        ]
        if paths:
            self.repository.run("add", "--all", "--force", "--", *paths)

    def relative(self, path: str) -> str:
        """A path as git names it."""
        return os.path.relpath(os.path.realpath(path), os.path.realpath(self.repository.top))

    # --- an iteration ---------------------------------------------------------------------------

    def _advance(self, commit: str, tree: str) -> None:
        self.tip, self._tip_tree = commit, tree

    def begin(self, kept: str | None) -> str | None:
        tree, trouble = self._merged(kept) if kept else (self._tip_tree, None)
        self._put(tree)
        self._began_with = tree
        self._lend_index()
        self.internals.remember()
        return trouble

    def _merged(self, kept: str) -> tuple[str, str | None]:
        """What an earlier attempt left, upon the last checkpoint."""
        if self.repository.text("rev-parse", "--verify", "--quiet", f"{kept}^", check=False) == self.tip:
            return self.repository.tree_of(kept), None
        try:
            return self.repository.text("merge-tree", "--write-tree", self.tip, kept).split("\n")[0], None
        except GitError:
            trouble = f"what an earlier attempt left ({kept[:10]}) does not fit on top of newer work: begun anew"
            return self._tip_tree, trouble

    def _put(self, tree: str) -> None:
        if self._files == tree:
            return
        spared = [self.ours] if self._ours_tracked else []
        try:
            self.repository.check_out(tree, spared)
        except GitError:  # our index may be the thing that is broken: it can be made anew
            files.remove(self.repository.index)
            self.repository.run("read-tree", "--empty")
            self.repository.check_out(tree, spared)
        self._remove_unknown()
        self._files = tree

    def _remove_unknown(self) -> None:
        for path in self.repository.unknown_files(self.excluded):
            full = os.path.join(self.repository.top, path)
            if path.endswith("/"):
                shutil.rmtree(full)
            else:
                os.unlink(full)
            _remove_empty(os.path.dirname(full.rstrip("/")), self.repository.top)

    def _lend_index(self) -> None:
        """The index that people and agents see becomes ours, unless it is already."""
        theirs = os.path.join(self.repository.gitdir, "index")
        for leftover in (f"{theirs}.lock",):
            if os.path.lexists(leftover):
                os.unlink(leftover)
        if self._index_state == self._signature(theirs):
            return
        shutil.copyfile(self.repository.index, f"{theirs}.ralph-aside")
        os.replace(f"{theirs}.ralph-aside", theirs)
        self._index_state = self._signature(theirs)

    def _signature(self, theirs: str) -> tuple[int, ...]:
        found = []
        for path in (theirs, self.repository.index):
            try:
                info = os.stat(path)
            except OSError:
                return ()
            found += [info.st_ino, info.st_size, info.st_mtime_ns]
        return tuple(found)

    def take(self) -> Taken:
        findings = self.internals.touched()
        self._files = None
        try:
            tree = self._snapshot()
        except GitError as error:
            return Taken(None, findings=tuple(findings), trouble=str(error))
        except OSError as error:
            return Taken(None, findings=tuple(findings), trouble=str(from_os_error(error)))
        if tree == self._began_with:
            return Taken(tree, findings=tuple(findings))
        changed = self.repository.changed(self._began_with, tree)
        paths = tuple(dict.fromkeys(path for one in changed for path in (one.old_path, one.path)))
        return Taken(tree, paths, self._contents(changed), tuple(findings + self._embedded(changed)))

    def _snapshot(self) -> str:
        self.repository.add_all(self.excluded, self._ours_tracked)
        self._files = self.repository.write_tree()
        return self._files

    def _contents(self, changed: Sequence[Changed]) -> tuple[guard.Change, ...]:
        known = [one for one in changed if not one.is_submodule]
        wanted = [one for one in known if guard.wants_content(one.path) or guard.wants_content(one.old_path)]
        blobs = self.repository.blobs(blob for one in wanted for blob in (one.old_blob, one.new_blob) if blob)

        def content(blob: str | None) -> bytes | None:
            return None if blob is None else blobs.get(blob, b"")

        def renamed(one: Changed) -> str | None:
            return one.old_path if one.status == "R" else None

        return tuple(
            guard.Change(one.path, content(one.old_blob), content(one.new_blob), renamed(one)) for one in known
        )

    def _embedded(self, changed: Sequence[Changed]) -> list[guard.Finding]:
        return [
            guard.Finding("git-touched", one.path, "a repository inside the repository: its files can't be committed")
            for one in changed
            if one.is_submodule and one.status == "A" and not self._is_registered(one.path)
        ]

    def _is_registered(self, path: str) -> bool:
        listed = self.repository.text("config", "--file", ".gitmodules", "--get-regexp", r"\.path$", check=False)
        return path in [line.partition(" ")[2] for line in listed.split("\n")]

    def add(self, paths: Sequence[str]) -> str | None:
        was_known = self._files is not None
        self.repository.run("add", "--", *[f":(top,literal){self.relative(path)}" for path in paths])
        tree = self.repository.write_tree()
        self._files = tree if was_known else None
        return tree

    def disturbed(self) -> None:
        self._files = None

    @property
    def tree(self) -> str | None:
        return self._began_with

    def commit(self, tree: str | None, message: str) -> str | None:
        return self.repository.commit(tree or self._tip_tree, [self.tip], message)

    def publish(self, attempt: str, commit: str | None, *, tree: str | None = None, story: str = "") -> None:
        refs = {f"{ATTEMPTS}{attempt}": str(commit)} if attempt else {}
        if tree:
            self._advance(str(commit), tree)
        self.repository.set_refs({**refs, self.ref: self.tip})
        if story and self._proven is not None:
            self._proven[story] = str(commit)

    def checkpoints(self) -> dict[str, str]:
        if self._proven is None:
            self._proven = self._read_checkpoints()
        return self._proven

    def _read_checkpoints(self) -> dict[str, str]:
        base = self.repository.resolve(_BASE + self.change)
        scope = [f"{base}..{self.ref}"] if base else [self.ref]
        told = self.repository.text(
            "log",
            "--reverse",
            "--format=%H%x00%(trailers:key=Ralph-Change,valueonly,separator=%x2C)%x00"
            "%(trailers:key=Ralph-Story,valueonly,separator=%x2C)",
            *scope,
            "--",
        )
        rows = [line.split("\0") for line in told.split("\n") if line.count("\0") == 2]
        return {story: commit for commit, change, story in rows if change == self.change and story}

    def keep_interrupted(self) -> None:
        """What an iteration that was cut off had done is no attempt, but it is somebody's work: a ref keeps it."""
        try:
            tree = self._snapshot()
        except (GitError, OSError):
            return  # it can't be read, so it can't be kept either
        if tree != self._tip_tree:
            commit = self.repository.commit(tree, [self.tip], f"ralphtool: {self.change}, interrupted\n")
            self.repository.set_refs({_INTERRUPTED + self.change: commit})


class Here(_Tree):
    """The user's own tree, which is where installed packages point to. What was in it waits meanwhile."""

    def __init__(self, repository: Repository, project: str, change: str) -> None:
        super().__init__(repository, project, change)
        self.internals = Internals(repository, self.ref, shared=False)
        self._lock = -1

    def open(self, run: str, own_files: Sequence[str]) -> list[str]:
        self._lock_tree()
        away = Away(self.repository, [self.ours])
        told = self._recover(away)
        os.makedirs(os.path.dirname(self.repository.index), exist_ok=True)
        _drop_lock(self.repository.index)
        self.repository.ensure_identity()
        start = self.repository.resolve("HEAD")
        own = [self.relative(path) for path in own_files]
        is_known = self.repository.resolve(self.ref) is not None
        told += self._start_branch(own, start)
        self._ours_tracked = self.repository.tracked(self.tip, self.ours)
        note = away.leave(self.change, run)
        self.excluded = [self.ours, *note.left]
        if is_known and (edited := [path for path in (*note.moved, *note.gone) if is_under(path, own)]):
            told.append(
                f"the branch has its own version of the change: what you changed in {_some(edited)} is not used; "
                f"commit it to {self.branch} if it should be"
            )
        if note.moved or note.gone:
            told.append(f"uncommitted work of yours waits until the run is over: {_some([*note.moved, *note.gone])}")
        self._use_index(os.path.join(self.repository.gitdir, "index"))
        self._put(self._tip_tree)
        self.repository.set_head(self.ref)
        return told

    def _use_index(self, theirs: str) -> None:
        """Ours begins as a copy of theirs: it knows which files are unchanged, so that they need not be read."""
        if os.path.exists(theirs):
            shutil.copyfile(theirs, self.repository.index)
        else:
            self.repository.run("read-tree", "--empty")

    def _lock_tree(self) -> None:
        folder = os.path.join(self.repository.gitdir, "ralph")
        os.makedirs(folder, exist_ok=True)
        self._lock = os.open(os.path.join(folder, "tree.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            note = Away(self.repository, [self.ours]).note()
            by = f"the run {note.run} of {note.change}" if note else "another run"
            raise Busy(
                f'{self.repository.top} is in use by {by}: wait for its end, or set workspace = "worktree"'
            ) from None

    def recover(self) -> str:
        """Only gives back what a run that was killed has left; tells what it did."""
        self._lock_tree()
        try:
            return "; ".join(self._recover(Away(self.repository, [self.ours])))
        finally:
            os.close(self._lock)

    def _recover(self, away: Away) -> list[str]:
        """After a run that was killed: the user's files first of all."""
        note = away.note()
        if note is None:
            return []
        if note.phase == "away":
            self.internals.unlock()
            self._adopt_index()
            known = self.repository.resolve(self.ref)
            if known and note.change == self.change:
                self._advance(known, self.repository.tree_of(known))
                self._ours_tracked = self.repository.tracked(known, self.ours)
                self.excluded = [self.ours, *note.left]
                self.keep_interrupted()
        self._give_back(away)
        return [f"the run {note.run} was cut off: your files are back as they were"]

    def _adopt_index(self) -> None:
        _drop_lock(self.repository.index)
        if not os.path.exists(self.repository.index):
            self._use_index(os.path.join(self.repository.gitdir, "index"))

    def _give_back(self, away: Away) -> None:
        def check_out(note: Note) -> None:
            commit = self.repository.resolve(self.ref) if note.head == self.ref else note.commit
            tree = self.repository.tree_of(commit) if commit else self.repository.empty_tree()
            self.excluded = [self.ours, *note.left]
            self._ours_tracked = self.repository.tracked(tree, self.ours)
            self._files = None
            self._put(tree)

        away.give_back(check_out)

    def close(self) -> None:
        try:
            self.internals.unlock()
            self._give_back(Away(self.repository, [self.ours]))
        finally:
            os.close(self._lock)
            self._lock = -1


class Worktree(_Tree):
    """A working tree of its own, beside the user's, which stays untouched. A new one has to be set up first."""

    is_new = False

    def __init__(self, repository: Repository, project: str, change: str) -> None:
        place = os.path.join(repository.common, "ralph", "worktrees", change)
        gitdir = os.path.join(repository.common, "worktrees", f"ralph-{change}")
        super().__init__(repository, project, change)
        self.home = repository
        self.place = place
        self.repository = repository.at(place, gitdir)
        self.root = os.path.join(place, self.prefix.rstrip("/")) if self.prefix else place
        self.internals = Internals(self.repository, self.ref, shared=True)

    def open(self, run: str, own_files: Sequence[str]) -> list[str]:
        self.home.ensure_identity()
        self.repository.ensure_identity()
        os.makedirs(os.path.dirname(self.home.index), exist_ok=True)
        told = self._start_at_home(own_files)
        self._make_tree()
        self._ours_tracked = self.repository.tracked(self.tip, self.ours)
        self.internals.unlock()
        _drop_lock(self.repository.index)
        if not os.path.exists(self.repository.index):
            os.makedirs(os.path.dirname(self.repository.index), exist_ok=True)
            self.repository.run("read-tree", "--empty")
        self._put(self._tip_tree)
        self.repository.set_head(self.ref)
        return [*told, f"work happens in {self.place}"]

    def _start_at_home(self, own_files: Sequence[str]) -> list[str]:
        """The change's own files may not be committed yet, and are only in the user's tree."""
        mine, self.repository = self.repository, self.home
        try:
            return self._start_branch([self.relative(path) for path in own_files], self.home.resolve("HEAD"))
        finally:
            self.repository = mine

    def _make_tree(self) -> None:
        if os.path.exists(os.path.join(self.place, ".git")) and os.path.isdir(self.repository.gitdir):
            return
        shutil.rmtree(self.place, ignore_errors=True)
        self.is_new = True
        self.home.run("worktree", "prune")
        self.home.run("worktree", "add", "--quiet", "--detach", "--no-checkout", "--force", self.place, self.tip)
        found = Repository.find(self.place)
        if found is None:
            raise GitError(f"git worktree add made no working tree at {self.place}")
        found.index = os.path.join(found.gitdir, "ralph", "index")
        self.repository = found
        self.repository.ensure_identity()
        self.internals = Internals(found, self.ref, shared=True)

    def close(self) -> None:
        """The tree stays for the next run: it is filled, and set up."""


def recover(repository: Repository, project: str) -> str:
    """Gives the user's tree back after a run that was killed; tells what was done, if anything was."""
    inside = os.path.relpath(os.path.realpath(project), os.path.realpath(repository.top))
    ours = ".ralph" if inside == "." else f"{inside}/.ralph"
    note = Away(repository, [ours]).note()
    return Here(repository, project, note.change).recover() if note else ""


def make(project: str, change: str, kind: str) -> Workspace:
    repository = Repository.find(project)
    if repository is None or is_under(os.path.realpath(project), [os.path.join(os.path.realpath(repository.gitdir))]):
        return Folder(project)
    return (Worktree if kind == "worktree" else Here)(repository, project, change)


def _drop_lock(index: str) -> None:
    """Only a killed run of ours can have left it: nobody else uses this index."""
    try:
        os.unlink(f"{index}.lock")
    except FileNotFoundError:
        pass


def _some(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return f"{', '.join(paths[:3])}{more}"


def _remove_empty(folder: str, top: str) -> None:
    while folder != top and folder.startswith(top):
        try:
            os.rmdir(folder)
        except OSError:
            return
        folder = os.path.dirname(folder)


def files_below(path: str) -> dict[str, bytes]:
    """The files at or below a path, by their names relative to it."""
    if not os.path.isdir(path):
        return {os.path.basename(path): files.read(path)} if os.path.exists(path) else {}
    found = {}
    for folder, _, names in os.walk(path):
        for name in names:
            full = os.path.join(folder, name)
            if os.path.isfile(full):
                found[os.path.relpath(full, path)] = files.read(full)
    return found
