"""The user's own working tree as a workspace: lent to an agent, and restored byte for byte."""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import shutil
import time
from typing import TYPE_CHECKING

from ralphtool.core import layout, locks
from ralphtool.errors import GitError, TreeBusy
from ralphtool.workspace.after_kill import AfterKill
from ralphtool.workspace.branch import describe_newer_commits
from ralphtool.workspace.git import Repository
from ralphtool.workspace.late_edits import LateEdits, list_changes
from ralphtool.workspace.paths import Paths, join_first
from ralphtool.workspace.protected_git import ProtectedGit, remove_index_lock
from ralphtool.workspace.protected_refs import move_back
from ralphtool.workspace.shared_branch import check_committed
from ralphtool.workspace.stash import Stash
from ralphtool.workspace.tree import Tree
from ralphtool.workspace.user_plan import find_seen, is_left_behind, take_files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralphtool.workspace.snapshots import WorkspaceSnapshot
    from ralphtool.workspace.stash import StashNote
    from ralphtool.workspace.swapped_files import Contents

_PATIENCE = 30.0  # seconds for a git command of a killed run


class InPlace(Tree):
    """The user's own tree, which installed packages point to. Uncommitted files are set aside meanwhile."""

    def __init__(self, repository: Repository, project: str, change: str) -> None:
        super().__init__(repository, project, change)
        self.protected_git = ProtectedGit(repository, self.ref, shared=False)
        self.stash = Stash(repository, self.ours)
        self._lock = -1
        self._plan_at_start: str | None = None  # as the user had it, before it was set aside
        self._seen_at_start: str | None = None
        self.late_edits = LateEdits(repository, change)
        self._is_taken = False  # the work of the present attempt
        self._outdated_files: list[str] = []  # the notice about them, once they are back

    def open(self, run: str, own_files: Sequence[str]) -> list[str]:
        self._lock_tree()
        told = _recover_locked(self.repository, self.root)
        self.stash.check_not_busy()
        self.ignored.put_back()
        self.protected_git.forget()
        self._prepare_index()
        self.repository.ensure_identity()
        own = [self.relative(path) for path in own_files]
        if self.repository.head() == self.ref:
            check_committed(self.repository, self.ref, [self.ours, *own])  # an edited plan is merged
        known = self.repository.resolve(self.ref)
        self._plan_at_start = self._take_plan(own) if known else None
        self._seen_at_start = find_seen(self.repository, self.change, own)  # HEAD is the branch from now on
        told += describe_newer_commits(self.repository, self.change, [self.ours, *own]) if known else []
        told += self.start_branch(own, known, self.repository.resolve("HEAD"))
        try:
            note = self.stash.set_aside(self.change, run, self._tip_tree)
            self._take_over(note)
        except BaseException:
            self.close()
            raise
        self.late_edits.run = run
        return told + self._build_notices(note)

    def _take_plan(self, paths: Sequence[str]) -> str | None:
        tree = take_files(self.repository, paths)
        theirs = self.repository.files_at(tree, *paths)
        return None if is_left_behind(self.repository, self.change, paths, theirs) else tree

    def has_edited_plan(self, ref: str) -> bool:
        """Only when the run begins: from then on, changes in the folder are the agent's."""
        return self._plan_at_start is not None

    def _find_seen_plan(self, ref: str) -> str | None:
        return self._seen_at_start

    def _take_users_plan(self, ref: str, known: str) -> str | None:
        taken, self._plan_at_start = self._plan_at_start, None
        return taken

    def _build_notices(self, note: StashNote) -> list[str]:
        aside = note.list_absent()
        return [f"your uncommitted files are set aside until the run ends: {join_first(aside)}"] if aside else []

    def _prepare_index(self) -> None:
        os.makedirs(os.path.dirname(self.repository.index), exist_ok=True)
        remove_index_lock(self.repository.index)

    def _take_over(self, note: StashNote) -> None:
        """Takes the tree. The separate index starts as a copy of the user's: it knows which files need not be read."""
        self._set_spared_paths(note)
        theirs = os.path.join(self.repository.gitdir, "index")
        if os.path.exists(theirs):
            shutil.copyfile(theirs, self.repository.index)
            self._clear_marks()
        else:
            self.repository.run("read-tree", "--empty")
        self.repository.set_entries(self._tip_tree, self._spared)
        self._switch_to(self._tip_tree)
        self.repository.set_head(self.ref)

    def _clear_marks(self) -> None:
        """Clears the marks of files that git was told not to look at."""
        lines = self.repository.list_items("ls-files", "-z", "-v", "--full-name", ":/")
        marked = os.fsencode("\0".join(line[2:] for line in lines if line[0] == "S" or line[0].islower()))
        for option in ("--no-assume-unchanged", "--no-skip-worktree") if marked else ():
            self.repository.run("update-index", option, "-z", "--stdin", input=marked)

    def _set_spared_paths(self, note: StashNote) -> None:
        """Spares the files that stay in place and don't belong to the run."""
        staying = note.list_remaining()
        self._left = Paths([self.ours, *staying])
        inside = [path for path in staying if os.path.lexists(os.path.join(self.repository.top, path, ".git"))]
        self._spared = [self.ours, *inside]

    def _lock_tree(self) -> None:
        folder = layout.in_git(self.repository.gitdir)
        os.makedirs(folder, exist_ok=True)
        self._lock = os.open(os.path.join(folder, "tree.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._wait_for_lock()
        except BaseException:
            self._unlock_tree()
            raise
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()} {locks.read_start_time(os.getpid())}".encode(), 0)
        # A git command that outlives ralphtool holds the lock until it ends, so that no other run interferes.
        self.repository.held = (self._lock,)

    def _wait_for_lock(self) -> None:
        end = time.monotonic() + _PATIENCE
        while not _try_lock(self._lock):
            pid, _, began = os.pread(self._lock, 1000, 0).decode("utf-8", "replace").partition(" ")
            is_alive = pid.isdigit() and locks.read_start_time(int(pid)) == began
            if is_alive or time.monotonic() > end:
                note = self.stash.note()
                by = f"the run {note.run} of {note.change}" if note else "another run"
                raise TreeBusy(
                    f'{self.repository.top} is in use by {by}: wait until it ends, or set workspace = "worktree"'
                )
            time.sleep(0.05)

    def _unlock_tree(self) -> None:
        self.repository.held = ()
        os.close(self._lock)
        self._lock = -1

    def recover(self) -> list[str]:
        """After a killed run, restores the user's files first. Returns what was done."""
        note = self.stash.note()
        if note is None:
            return []
        told = self._recover_tree(note) if note.phase == "away" else []
        self._restore_user_files()
        self.protected_git.forget()
        return [f"the run {note.run} was interrupted: your files are restored", *told, *self._outdated_files]

    def _recover_tree(self, note: StashNote) -> list[str]:
        last = locks.read_last_heartbeat(self.root, note.run)
        since = None if last is None else last + locks.HEARTBEAT_SECONDS
        head = self.repository.resolve(note.head)  # without it, there would be nothing to go back to
        is_users = head is not None and AfterKill(self.repository, since).has_moved(note.head, head)
        self.protected_git.unlock()
        # If nothing is known of its end, a branch that was switched shows that the user has been here.
        is_sure = since is not None or self.repository.head() == self.ref
        if is_sure:
            self.protected_git.recover(since)
        told = self.protected_git.take_notices()
        self._prepare_index()
        self.repository.ensure_identity()
        told += self._recover_branch(note)
        if is_sure and not is_users and note.commit and note.head not in (self.ref, note.commit):
            told += self._move_back(note.head, note.commit)
        return told

    def _recover_branch(self, note: StashNote) -> list[str]:
        """The branch of the change, on which only the run's commits count. What is in the tree is kept first."""
        tip = self.protected_git.tip
        known, told = self.repository.resolve(self.ref) or tip, []
        if not os.path.exists(self.repository.index):
            self.repository.run("read-tree", known or "--empty")
        if known:
            self._advance(known, self.repository.tree_of(known))
            self._set_spared_paths(note)
            kept = self.keep_interrupted(note.run)
            text = f"the tree had files that are not committed; they are kept as {kept} (`git show {kept}`)"
            told = [text] if kept else []
        return told + (self._move_back(self.ref, tip) if tip else [])

    def _move_back(self, ref: str, commit: str) -> list[str]:
        now = self.repository.resolve(ref)
        if now == commit:
            return []
        shown = move_back(self.repository, ref, commit, now)
        return [f"{ref.removeprefix('refs/heads/')} is back at {commit[:10]}, where the run had it{shown}"]

    def _restore_user_files(self) -> None:
        note = self.stash.restore(self._check_out_theirs)
        self._outdated_files = self._describe_outdated(note) if note else []

    def _describe_outdated(self, note: StashNote) -> list[str]:
        """Committing a file that was set aside would undo what was committed to the user's branch meanwhile."""
        now = self.repository.resolve(note.head)
        if not note.commit or not now or now == note.commit or note.head == self.ref:
            return []
        newer = {one.path for one in self.repository.changed(note.commit, now)}
        if not (files := [path for path in note.list_absent() if path in newer]):
            return []
        command = f"git diff HEAD -- {' '.join(shlex.quote(f':/{path}') for path in files)}"
        return [
            f"{note.head.removeprefix('refs/heads/')} has newer commits that change {join_first(files)}. Your "
            f"uncommitted version from before them is back, and committing it would undo them: see `{command}`"
        ]

    def _check_out_theirs(self, note: StashNote) -> None:
        commit = self.repository.resolve(note.head) if note.commit else None
        self._set_spared_paths(note)
        self._files = None
        self._switch_to(self.repository.tree_of(commit) if commit else self.repository.empty_tree)
        self.repository.set_head(note.head)

    def close(self) -> None:
        try:
            self.protected_git.recover()
            self.protected_git.take_notices()  # what the agent changed was told when its work was taken
            self.protected_git.unlock()
            self._restore_user_files()
            self.protected_git.forget()
            self.late_edits.finish()
        finally:
            self._unlock_tree()

    # --- what changes while no agent works --------------------------------------------------------

    def begin(self, kept: str | None, cut_off: str | None = None) -> str | None:
        trouble = super().begin(kept, cut_off)
        self._is_taken = False
        if not cut_off:  # otherwise the attempt has just begun
            self.late_edits.end_attempt()
        return trouble

    def mark_attempt(self) -> None:
        super().mark_attempt()
        self.late_edits.begin_attempt()

    def mark_dirty(self) -> None:
        super().mark_dirty()
        self.late_edits.note_commands()

    def take(self) -> WorkspaceSnapshot:
        if self._is_taken:  # an agent that only looked at the work: what has changed is not part of it
            self._keep_changes()
        self._is_taken = True
        return super().take()

    def take_notices(self) -> list[str]:
        return [*super().take_notices(), *self.late_edits.take_notices(), *self._outdated_files]

    def _switch_to(self, tree: str) -> None:
        if self._files == tree:
            return
        self._keep_changes()
        super()._switch_to(tree)
        self._swap = None  # it knows the files of the last proof, and they have just been replaced

    def _discard(self, changed: Sequence[str], unknown: Sequence[str]) -> None:
        self.late_edits.keep([*changed, *unknown], self.tip)
        super()._discard(changed, unknown)

    def show_mix(self, tree: str, is_old: Callable[[str], bool], contents: Contents) -> None:
        self.late_edits.note_proof()
        self._keep_swapped()
        if self._swap is not None and not self._swap.can_show(contents):
            super().show_work(tree)  # git will put the mix in place: it must know the files that are there
        super().show_mix(tree, is_old, contents)

    def show_work(self, tree: str) -> None:
        self._keep_swapped()
        super().show_work(tree)

    def _keep_swapped(self) -> None:
        changed = self._swap.find_changed() if self._swap else {}
        self.late_edits.keep(changed, self.tip, changed)

    def _keep_changes(self) -> None:
        if not self.late_edits.run:
            return
        try:
            listed = list_changes(self.repository)
        except GitError:
            return  # its index is broken, and will be built anew
        swapped = self._swap.find_changed() if self._swap else {}
        is_shown = self._swap.has_swapped if self._swap else lambda path: False
        changed = [path for path in listed if not is_shown(path) and not self._left.cover(path)]
        self.late_edits.keep([*changed, *swapped], self.tip, swapped)


def check_not_busy(project: str) -> None:
    """Refuses a user's tree in the middle of a merge. One that a killed run left there is reverted first."""
    repository = Repository.find(project)
    if repository is not None and not os.path.lexists(layout.stash_note(repository.gitdir)):
        Stash(repository, layout.FOLDER).check_not_busy()


def find_note(repository: Repository, project: str) -> StashNote | None:
    """The note of files that a running or killed run must still restore."""
    return InPlace(repository, project, "any").stash.note()


def recover(repository: Repository, project: str, first: Callable[[StashNote], None] = lambda note: None) -> list[str]:
    """Restores the user's tree after a killed run; returns what was done, if anything.

    `first` is called once it is certain that no run is using the tree.
    """
    place = InPlace(repository, project, "any")
    if place.stash.note() is None:
        return []
    place._lock_tree()
    try:
        if note := place.stash.note():
            first(note)
        return _recover_locked(repository, project)
    finally:
        place._unlock_tree()


def _recover_locked(repository: Repository, project: str) -> list[str]:
    """Like `recover`, for a caller that has locked the tree. The killed run may be one of another change."""
    note = InPlace(repository, project, "any").stash.note()
    return InPlace(repository, project, note.change).recover() if note else []


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
        return False
    return True
