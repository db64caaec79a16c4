"""Where an iteration works: the user's own tree, a worktree of its own, or a plain folder without git.

A workspace can be put into a state, and its state can be taken down as a tree; commits and refs are made of trees.
The loop knows nothing else of git.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
from typing import TYPE_CHECKING, Protocol

from ralphtool.core import files, locks
from ralphtool.record import log
from ralphtool.workspace.git import GitError, Paths, Repository, printable
from ralphtool.workspace.protected_git import Internals
from ralphtool.workspace.stash import Away, Busy
from ralphtool.workspace.tree import START, Taken, Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralphtool.workspace.stash import Note

_PATIENCE = 30.0  # seconds for a git command of a run that was killed


class Workspace(Protocol):
    """What the loop asks of the place where an iteration works."""

    root: str  # the project's folder in there
    branch: str | None

    @property
    def tree(self) -> str | None:
        """What the iteration began with."""
        ...

    def at_start(self, folder: str, ref: str) -> bool:
        """Writes the spec as it was when work began into a folder; False where nobody knows."""
        ...

    @property
    def needs_setup(self) -> bool:
        """Whether the set-up commands have never run to their end there."""
        ...

    def was_set_up(self) -> None: ...

    def disturbed(self) -> None:
        """Commands of ours have run since it was put into a state, and may have left files."""
        ...

    def open(self, run: str, own_files: Sequence[str]) -> list[str]:
        """Makes it ours; `own_files` are those of the change. Tells what is worth telling."""
        ...

    def close(self) -> None:
        """Gives it back as it was."""
        ...

    def begin(self, kept: str | None, cut_off: str | None = None) -> str | None:
        """Puts it into the state to work on: the last checkpoint, and what was `kept` on top. Tells what went wrong.

        What was `cut_off` is put on top too, but counts as done in this iteration: nobody has looked at it yet.
        """
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

    def follows(self, commit: str) -> bool:
        """Whether a commit is the last checkpoint, or was made upon it."""
        ...

    def keep_interrupted(self, run: str, known: str | None = None) -> str | None:
        """Keeps the work of an iteration that is no attempt; tells the ref, if there is any work. `known` is the ref of
        what was there when the iteration began, if that was cut off as well."""
        ...


# --- without git ------------------------------------------------------------------------------------


class Folder:
    """A project without git: nothing can be taken back, compared or kept."""

    needs_setup = False

    branch: str | None = None
    tree: str | None = None

    def __init__(self, root: str) -> None:
        self.root = root

    def at_start(self, folder: str, ref: str) -> bool:
        return False

    def disturbed(self) -> None:
        pass

    def open(self, run: str, own_files: Sequence[str]) -> list[str]:
        return [
            "this project has no git repository: nothing is committed, a failed attempt is not taken back, "
            "and cheating in the diff can't be seen; `git init` gives you all that"
        ]

    def close(self) -> None:
        pass

    def begin(self, kept: str | None, cut_off: str | None = None) -> str | None:
        return None

    def take(self) -> Taken:
        return Taken(None)

    def add(self, paths: Sequence[str]) -> str | None:
        return None

    def commit(self, tree: str | None, message: str) -> str | None:
        return None

    def publish(self, attempt: str, commit: str | None, *, tree: str | None = None, story: str = "") -> None:
        pass

    def was_set_up(self) -> None:
        pass

    def checkpoints(self) -> dict[str, str]:
        return {}

    def follows(self, commit: str) -> bool:
        return True

    def keep_interrupted(self, run: str, known: str | None = None) -> str | None:
        return None


# --- with git ---------------------------------------------------------------------------------------


class Here(Tree):
    """The user's own tree, which is where installed packages point to. What was in it waits meanwhile."""

    def __init__(self, repository: Repository, project: str, change: str) -> None:
        super().__init__(repository, project, change)
        self.internals = Internals(repository, self.ref, shared=False)
        self.away = Away(repository, self.ours)
        self._lock = -1

    def open(self, run: str, own_files: Sequence[str]) -> list[str]:
        self._lock_tree()
        told = [text for text in [_recover_locked(self.repository, self.root)] if text]
        self.away.refuse_if_busy()
        self.internals.forget()
        self._prepare_index()
        self.repository.ensure_identity()
        own = [self.relative(path) for path in own_files]
        as_begun = None if self.repository.resolve(self.ref) is None else self._as_begun(own)
        told += self.start_branch(own, self.repository.resolve("HEAD"))
        try:
            note = self.away.leave(self.change, run, self._tip_tree)
            self._take_over(note)
        except BaseException:
            self.close()
            raise
        return told + self._tell(note, own, as_begun)

    def _as_begun(self, own: Sequence[str]) -> set[str]:
        """The files of the change that are still as they were when its branch began."""
        start = self.repository.resolve(START + self.change)
        begun = self.repository.files_at(start, *own) if start else {}
        return {name for name, data in begun.items() if _content(os.path.join(self.repository.top, name)) == data}

    def _tell(self, note: Note, own: Sequence[str], as_begun: set[str] | None) -> list[str]:
        """What the user should know; `as_begun` is None where the branch is new."""
        told, mine = [], Paths(own)
        aside = [] if as_begun is None else [path for path in note.aside() if path not in as_begun]
        if edited := [path for path in aside if mine.cover(path)]:
            told.append(
                f"the branch has its own version of the change: what you changed in {_some(edited)} is not used; "
                f"commit it to {self.branch} if it should be"
            )
        if note.aside():
            told.append(f"uncommitted work of yours waits until the run is over: {_some(note.aside())}")
        return told

    def _prepare_index(self) -> None:
        os.makedirs(os.path.dirname(self.repository.index), exist_ok=True)
        _drop_lock(self.repository.index)

    def _take_over(self, note: Note) -> None:
        """The tree becomes ours. Our index begins as a copy of theirs: it knows which files need not be read."""
        self._know(note)
        theirs = os.path.join(self.repository.gitdir, "index")
        if os.path.exists(theirs):
            shutil.copyfile(theirs, self.repository.index)
            self._clear_marks()
        else:
            self.repository.run("read-tree", "--empty")
        self.repository.set_entries(self._tip_tree, self._spared)
        self._put(self._tip_tree)
        self.repository.set_head(self.ref)

    def _clear_marks(self) -> None:
        """Of files that git was told not to look at."""
        lines = self.repository.listed("ls-files", "-z", "-v", "--full-name", ":/")
        marked = os.fsencode("\0".join(line[2:] for line in lines if line[0] == "S" or line[0].islower()))
        for option in ("--no-assume-unchanged", "--no-skip-worktree") if marked else ():
            self.repository.run("update-index", option, "-z", "--stdin", input=marked)

    def _know(self, note: Note) -> None:
        """What stays in its place, and is none of ours."""
        staying = note.staying()
        self._left = Paths([self.ours, *staying])
        inside = [path for path in staying if os.path.lexists(os.path.join(self.repository.top, path, ".git"))]
        self._spared = [self.ours, *inside]

    def _lock_tree(self) -> None:
        folder = os.path.join(self.repository.gitdir, "ralph")
        os.makedirs(folder, exist_ok=True)
        self._lock = os.open(os.path.join(folder, "tree.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._wait_for_lock()
        except BaseException:
            self._unlock_tree()
            raise
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()} {locks.start_time_of(os.getpid())}".encode(), 0)
        # A git command that outlives us holds the lock until it has ended: nobody gets in its way.
        self.repository.held = (self._lock,)

    def _wait_for_lock(self) -> None:
        end = time.monotonic() + _PATIENCE
        while not _locked(self._lock):
            pid, _, began = os.pread(self._lock, 1000, 0).decode("utf-8", "replace").partition(" ")
            is_alive = pid.isdigit() and locks.start_time_of(int(pid)) == began
            if is_alive or time.monotonic() > end:
                note = self.away.note()
                by = f"the run {note.run} of {note.change}" if note else "another run"
                raise Busy(f'{self.repository.top} is in use by {by}: wait for its end, or set workspace = "worktree"')
            time.sleep(0.05)

    def _unlock_tree(self) -> None:
        self.repository.held = ()
        os.close(self._lock)
        self._lock = -1

    def recover(self) -> str:
        """After a run that was killed: the user's files first of all. Tells what was done."""
        note = self.away.note()
        if note is None:
            return ""
        if note.phase == "away":
            self._recover_tree(note)
        self._give_back()
        self.internals.forget()
        return f"the run {note.run} was cut off: your files are back as they were"

    def _recover_tree(self, note: Note) -> None:
        self.internals.unlock()
        self._prepare_index()
        self.repository.ensure_identity()
        known = self.repository.resolve(self.ref)
        is_ours = self._is_as_left(note)  # else the user has been here since
        if not os.path.exists(self.repository.index):
            self.repository.run("read-tree", known or "--empty")
        if known:
            self._advance(known, self.repository.tree_of(known))
            self._know(note)
            if is_ours:
                self.internals.recover()
            self.keep_interrupted(note.run)
            if is_ours and self.internals.tip:
                self.repository.set_refs({self.ref: self.internals.tip})
        if is_ours and note.commit and note.head not in (self.ref, note.commit):
            self.repository.set_refs({note.head: note.commit})

    def _is_as_left(self, note: Note) -> bool:
        """Whether nobody has switched branches since the run was killed. Its agent may have, before."""
        if self.repository.head() == self.ref:
            return True
        last = log.last_sign(os.path.join(self.root, ".ralph", "runs", note.run))
        switched = os.stat(os.path.join(self.repository.gitdir, "HEAD")).st_mtime
        return last is not None and switched <= last + log.BREATH

    def _give_back(self) -> None:
        self.away.give_back(self._check_out_theirs)

    def _check_out_theirs(self, note: Note) -> None:
        commit = self.repository.resolve(note.head) if note.commit else None
        self._know(note)
        self._files = None
        self._put(self.repository.tree_of(commit) if commit else self.repository.empty_tree())
        self.repository.set_head(note.head)

    def close(self) -> None:
        try:
            self.internals.recover()
            self.internals.unlock()
            self._give_back()
            self.internals.forget()
        finally:
            self._unlock_tree()


class Worktree(Tree):
    """A working tree of its own, beside the user's, which stays untouched. A new one has to be set up first."""

    is_new = False

    def __init__(self, repository: Repository, project: str, change: str) -> None:
        super().__init__(repository, project, change)
        self.home = repository
        self.place = os.path.join(repository.common, "ralph", "worktrees", change)
        self.root = os.path.join(self.place, self.prefix.rstrip("/")) if self.prefix else self.place

    def open(self, run: str, own_files: Sequence[str]) -> list[str]:
        told = self._start_at_home(own_files)
        self._use(self._made())
        self.internals.recover()
        self.internals.unlock()
        _drop_lock(self.repository.index)
        if not os.path.exists(self.repository.index):
            os.makedirs(os.path.dirname(self.repository.index), exist_ok=True)
            self.repository.run("read-tree", "--empty")
        elif not self.is_new:
            self.keep_interrupted(self.change)
        self._put(self._tip_tree)
        self.repository.set_head(self.ref)
        return [*told, f"work happens in {self.place}"]

    def _start_at_home(self, own_files: Sequence[str]) -> list[str]:
        """The change's own files may not be committed yet, and are only in the user's tree."""
        index = os.path.join(self.home.common, "ralph", f"start-{self.change}.index")
        os.makedirs(os.path.dirname(index), exist_ok=True)
        self.repository = Repository(self.home.top, self.home.gitdir, self.home.common, index)
        self.repository.ensure_identity()
        try:
            other = Away(self.home, self.ours).note()  # of a run that uses the user's tree at this very time
            start = other.commit if other else self.home.resolve("HEAD")
            return self.start_branch([self.relative(path) for path in own_files], start)
        finally:
            files.remove(index)

    def _made(self) -> Repository:
        """The working tree, made if it is not there, or not whole."""
        found = Repository.find(self.place) if os.path.exists(os.path.join(self.place, ".git")) else None
        if found and os.path.realpath(found.top) == os.path.realpath(self.place):
            return found
        shutil.rmtree(self.place, ignore_errors=True)
        self.is_new = True
        self.home.run("worktree", "prune")
        self.home.run("worktree", "add", "--quiet", "--detach", "--no-checkout", "--force", self.place, self.tip)
        made = Repository.find(self.place)
        if made is None:
            raise GitError(f"git worktree add made no working tree at {self.place}")
        return made

    def _use(self, repository: Repository) -> None:
        self.repository = repository
        self.repository.ensure_identity()
        self.internals = Internals(repository, self.ref, shared=True)

    @property
    def needs_setup(self) -> bool:
        return not os.path.exists(self._mark)

    def was_set_up(self) -> None:
        """Git removes the mark together with the tree."""
        with open(self._mark, "wb"):
            pass

    @property
    def _mark(self) -> str:
        return os.path.join(self.repository.gitdir, "ralph-is-set-up")

    def close(self) -> None:
        """The tree stays for the next run: it is filled, and set up."""
        self.internals.forget()


def waiting(repository: Repository, project: str) -> Note | None:
    """What waits to be given back, by a run that is at work or by one that was killed."""
    return Here(repository, project, "any").away.note()


def recover(repository: Repository, project: str, first: Callable[[Note], None] = lambda note: None) -> str:
    """Gives the user's tree back after a run that was killed; tells what was done, if anything was.

    `first` is called when it is sure that nobody is at work there.
    """
    place = Here(repository, project, "any")
    if place.away.note() is None:
        return ""
    place._lock_tree()
    try:
        if note := place.away.note():
            first(note)
        return _recover_locked(repository, project)
    finally:
        place._unlock_tree()


def _recover_locked(repository: Repository, project: str) -> str:
    """The same, for somebody who holds the tree. The run that was killed may have been one of another change."""
    note = Here(repository, project, "any").away.note()
    return Here(repository, project, note.change).recover() if note else ""


def make(project: str, change: str, kind: str) -> Workspace:
    repository = Repository.find(project)
    if repository is None:
        return Folder(project)
    return (Worktree if kind == "worktree" else Here)(repository, project, change)


def _content(path: str) -> bytes | None:
    try:
        return files.read(path)
    except OSError:
        return None


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
        return False
    return True


def _drop_lock(index: str) -> None:
    """Only a killed run of ours can have left it: nobody else uses this index."""
    files.clear(f"{index}.lock")


def _some(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return f"{', '.join(printable(path) for path in paths[:3])}{more}"
