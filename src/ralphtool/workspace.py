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

from msgspec import Struct

from ralphtool import files, guard, locks
from ralphtool.away import Away, Busy, remove_empty_above
from ralphtool.errors import from_os_error
from ralphtool.git import GitError, Paths, Repository, printable
from ralphtool.internals import Internals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.away import Note
    from ralphtool.git import Changed

ATTEMPTS = "refs/ralph/attempts/"
_BASE = "refs/ralph/base/"
_INTERRUPTED = "refs/ralph/interrupted/"
_PATIENCE = 30.0  # seconds for a git command of a run that was killed


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

    def follows(self, commit: str) -> bool:
        """Whether a commit is the last checkpoint, or was made upon it."""
        ...

    def keep_interrupted(self, run: str) -> None:
        """Keeps the work of an iteration that is no attempt."""
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

    def follows(self, commit: str) -> bool:
        return True

    def keep_interrupted(self, run: str) -> None:
        pass


# --- with git ---------------------------------------------------------------------------------------


class _Tree:
    """What both kinds of working trees share."""

    def __init__(self, repository: Repository, project: str, change: str) -> None:
        self.repository = repository
        self.change = change
        self.branch: str | None = f"ralph/{change}"
        self.ref = f"refs/heads/{self.branch}"
        self.root = project
        inside = os.path.relpath(os.path.realpath(project), os.path.realpath(repository.top))
        self.prefix = "" if inside == "." else f"{inside}/"
        self.ours = f"{self.prefix}.ralph"
        self.internals: Internals
        self.tip = ""  # the last checkpoint
        self._tip_tree = ""
        self._spared = [self.ours]  # neither checked out nor committed
        self._left = Paths([self.ours])  # never removed
        self._files: str | None = None  # the tree that the files are known to be; None: anything may be there
        self._began_with = ""  # the tree that this iteration began with
        self._index_state: tuple[int, ...] = ()
        self._proven: dict[str, str] | None = None

    # --- beginning a run ------------------------------------------------------------------------

    def _start_branch(self, own_files: Sequence[str], start: str | None) -> list[str]:
        """Makes the branch if it is not there; a change that is not committed yet goes into its first commit."""
        if known := self.repository.resolve(self.ref):
            self._advance(known, self.repository.tree_of(known))
            return []
        tree = self.repository.tree_of(start) if start else self.repository.empty_tree()
        self.repository.run("read-tree", tree)
        self._stage_own(own_files)
        grown = self.repository.write_tree()
        first = start
        if grown != tree or not start:
            message = f"ralphtool: the change {self.change}\n\nRalph-Change: {self.change}\n"
            first = self.repository.commit(grown, [start] if start else [], message)
        self.repository.set_refs({self.ref: first, **({_BASE + self.change: start} if start else {})})
        self._advance(str(first), grown)
        return [f"work happens on the branch {self.branch}"]

    def _stage_own(self, own_files: Sequence[str]) -> None:
        there = [path for path in own_files if os.path.lexists(os.path.join(self.repository.top, path))]
        if there:
            self.repository.run("add", "--all", "--force", "--", *[f":(top,literal){path}" for path in there])

    def relative(self, path: str) -> str:
        """A path as git names it."""
        return os.path.relpath(os.path.realpath(path), os.path.realpath(self.repository.top))

    def _advance(self, commit: str, tree: str) -> None:
        self.tip, self._tip_tree = commit, tree

    # --- an iteration ---------------------------------------------------------------------------

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
        try:
            self.repository.check_out(tree, self._spared)
        except GitError:  # the disk may be full, or our index the thing that is broken: it can be made anew
            self._free_room()
            self.repository.run("read-tree", self._tip_tree or tree)
            self.repository.check_out(tree, self._spared)
        self._remove_unknown()
        self._files = tree

    def _free_room(self) -> None:
        try:
            self._remove_unknown()
        except GitError:
            pass  # git can't tell by an index that is broken
        files.clear(self.repository.index)

    def _remove_unknown(self) -> None:
        """What an agent or a command left, and git does not ignore. What was there before us is never touched."""
        for path in self.repository.unknown_files():
            if not self._left.cover(path):
                full = os.path.join(self.repository.top, path.rstrip("/"))
                files.clear(full)
                remove_empty_above(full, self.repository.top)

    def _lend_index(self) -> None:
        """The index that people and agents see becomes ours, unless it is already."""
        theirs = os.path.join(self.repository.gitdir, "index")
        if self._index_state and self._index_state == self._signature(theirs):
            return
        shutil.copyfile(self.repository.index, f"{theirs}.ralph-aside")
        os.replace(f"{theirs}.ralph-aside", theirs)
        self._index_state = self._signature(theirs)

    def _signature(self, theirs: str) -> tuple[int, ...]:
        try:
            found = [os.stat(path) for path in (theirs, self.repository.index)]
        except OSError:
            return ()
        return tuple(number for info in found for number in (info.st_ino, info.st_size, info.st_mtime_ns))

    def take(self) -> Taken:
        findings = self.internals.touched()
        self._files = None
        try:
            tree, changed = self._snapshot(self._began_with)
            contents = self._contents(changed)
        except GitError as error:
            return Taken(None, findings=tuple(findings), trouble=str(error))
        except OSError as error:
            return Taken(None, findings=tuple(findings), trouble=str(from_os_error(error)))
        paths = dict.fromkeys(printable(path) for one in changed for path in (one.old_path, one.path))
        return Taken(tree, tuple(paths), contents, tuple(findings + self._embedded(changed)))

    def _snapshot(self, before: str) -> tuple[str, list[Changed]]:
        """The tree of all that is there, and what differs. What was there before us, unknown to git, is not in it."""
        self.repository.add_all(self._spared)
        tree = self.repository.write_tree()
        changed = self.repository.changed(before, tree) if tree != before else []
        if hidden := [one.path for one in changed if one.status == "A" and self._left.cover(one.path)]:
            self.repository.drop(hidden)  # an agent has changed what git ignores
            tree = self.repository.write_tree()
            changed = self.repository.changed(before, tree)
        self._files = tree
        return tree, changed

    def _contents(self, changed: Sequence[Changed]) -> tuple[guard.Change, ...]:
        known = [one for one in changed if not one.is_submodule]
        wanted = [one for one in known if guard.wants_content(one.path) or guard.wants_content(one.old_path)]
        blobs = self.repository.blobs(blob for one in wanted for blob in (one.old_blob, one.new_blob) if blob)

        def content(blob: str | None) -> bytes | None:
            return None if blob is None else blobs.get(blob, b"")

        def renamed(one: Changed) -> str | None:
            return printable(one.old_path) if one.status == "R" else None

        return tuple(
            guard.Change(printable(one.path), content(one.old_blob), content(one.new_blob), renamed(one))
            for one in known
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
        scope = f"{base}..{self.ref}" if base else self.ref
        one_line = "valueonly,separator=%x2C)"
        form = f"%H%x00%(trailers:key=Ralph-Change,{one_line}%x00%(trailers:key=Ralph-Story,{one_line}"
        told = self.repository.text("log", "--reverse", f"--format={form}", scope, "--")
        rows = [line.split("\0") for line in told.split("\n") if line.count("\0") == 2]
        return {story: commit for commit, change, story in rows if change == self.change and story}

    def follows(self, commit: str) -> bool:
        parent = self.repository.text("rev-parse", "--verify", "--quiet", f"{commit}^", check=False)
        return self.tip in (commit, parent)

    def keep_interrupted(self, run: str) -> None:
        """What an iteration that was cut off had done is no attempt, but it is somebody's work: a ref keeps it."""
        try:
            tree, changed = self._snapshot(self._tip_tree)
        except (GitError, OSError):
            return  # it can't be read, so it can't be kept either
        if changed:
            commit = self.repository.commit(tree, [self.tip], f"ralphtool: {self.change}, interrupted\n")
            self.repository.set_refs({_INTERRUPTED + run: commit})


class Here(_Tree):
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
        self._prepare_index()
        self.repository.ensure_identity()
        own = [self.relative(path) for path in own_files]
        is_known = self.repository.resolve(self.ref) is not None
        told += self._start_branch(own, self.repository.resolve("HEAD"))
        try:
            note = self.away.leave(self.change, run, self._tip_tree)
            self._take_over(note)
        except BaseException:
            self.close()
            raise
        return told + self._tell(note, own, is_known=is_known)

    def _tell(self, note: Note, own: Sequence[str], *, is_known: bool) -> list[str]:
        told = []
        mine = Paths(own)
        if is_known and (edited := [path for path in note.aside() if mine.cover(path)]):
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
        if not os.path.exists(self.repository.index):
            self.repository.run("read-tree", known or "--empty")
        if known:
            self._advance(known, self.repository.tree_of(known))
            self._know(note)
            self.internals.recover()
            self.keep_interrupted(note.run)
        is_ours = self.repository.head() == self.ref  # else the user has been here since
        if is_ours and note.commit and note.head not in (self.ref, note.commit):
            self.repository.set_refs({note.head: note.commit})

    def _give_back(self) -> None:
        self.away.give_back(self._check_out_theirs)

    def _check_out_theirs(self, note: Note) -> None:
        commit = self.repository.resolve(self.ref) if note.head == self.ref else note.commit
        self._know(note)
        self._files = None
        self._put(self.repository.tree_of(commit) if commit else self.repository.empty_tree())
        self.repository.set_head(note.head)

    def close(self) -> None:
        try:
            self.internals.unlock()
            self._give_back()
            self.internals.forget()
        finally:
            self._unlock_tree()


class Worktree(_Tree):
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
        index = os.path.join(self.home.common, "ralph", f"start-{self.change}.index")
        os.makedirs(os.path.dirname(index), exist_ok=True)
        self.repository = Repository(self.home.top, self.home.gitdir, self.home.common, index)
        self.repository.ensure_identity()
        try:
            other = Away(self.home, self.ours).note()  # of a run that uses the user's tree at this very time
            start = other.commit if other else self.home.resolve("HEAD")
            return self._start_branch([self.relative(path) for path in own_files], start)
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

    def close(self) -> None:
        """The tree stays for the next run: it is filled, and set up."""


def waiting(repository: Repository, project: str) -> Note | None:
    """What waits to be given back, by a run that is at work or by one that was killed."""
    return Here(repository, project, "any").away.note()


def recover(repository: Repository, project: str) -> str:
    """Gives the user's tree back after a run that was killed; tells what was done, if anything was."""
    place = Here(repository, project, "any")
    if place.away.note() is None:
        return ""
    place._lock_tree()
    try:
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
