"""A separate working tree, next to the user's."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from ralphtool.core import files, layout, locks
from ralphtool.errors import GitError
from ralphtool.judging.manifests import has_manifest
from ralphtool.sandbox import beneath
from ralphtool.workspace import revert
from ralphtool.workspace.branch import describe_newer_commits
from ralphtool.workspace.environments import find_environments
from ralphtool.workspace.git import Repository
from ralphtool.workspace.ignored import IgnoredFiles
from ralphtool.workspace.paths import Paths, join_first
from ralphtool.workspace.protected_git import ProtectedGit, remove_index_lock
from ralphtool.workspace.protected_work import keep_commit
from ralphtool.workspace.revert import MergedTree, SpecPlace
from ralphtool.workspace.stash import Stash
from ralphtool.workspace.tree import Tree
from ralphtool.workspace.user_plan import UserPlan, find_seen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralphtool.specs import Spec
    from ralphtool.workspace.snapshots import WorkspaceSnapshot


_MOST_READ = 10_000_000  # bytes of a file that is searched for conflict markers
_LARGE = 1 << 20  # bytes of a file that may fill a disk


class Worktree(Tree):
    """A separate working tree; the user's own stays untouched. A new one must be set up first."""

    is_new = False

    def __init__(
        self,
        repository: Repository,
        project: str,
        change: str,
        must_end: Callable[[], bool] = lambda: False,
        slot: int = 0,
    ) -> None:
        """`slot` is 0 for the first worktree of a change, and numbers the others."""
        super().__init__(repository, project, change, slot)
        self._must_end = must_end
        self.home = repository
        self.place = os.path.join(layout.in_git(repository.common), "worktrees", self.slot_name)
        self.root = os.path.join(self.place, self.prefix.rstrip("/")) if self.prefix else self.place
        self.shown_root = self.root
        self.lost_environments: Sequence[str] = ()
        self._skipped = ""  # the tree of the last checkpoint whose packages could not be installed
        self._user_plan: UserPlan | None = None

    def open(self, run: str, own_files: Sequence[str]) -> list[str]:
        told = self._take_up_commits()
        told += self._start_from_user_tree(own_files) + self._describe_unseen(own_files)
        self._use(self._ensure_worktree())
        self._recover_git()
        self.protected_git.run = run
        if not os.path.exists(self.repository.index):
            os.makedirs(os.path.dirname(self.repository.index), exist_ok=True)
            self.repository.run("read-tree", "--empty")
        elif not self.is_new:
            self._keep_left()
        # `.ralph` is never read here: the branch keeps what the user has committed of it.
        self.repository.set_entries(self._tip_tree, [self.ours])
        self._switch_to(self._tip_tree)
        self.repository.set_head(self.ref)
        told += self.take_notices()  # about the agent of a killed run
        return [*told, f"the worktree is {self.place}"]

    def _take_up_commits(self) -> list[str]:
        """Between two runs HEAD is no branch, and the user may have committed upon it."""
        found = self._find_worktree()
        left, head = (_read_left(found), found.resolve("HEAD")) if found else ("", "")
        if not (found and left and head):
            return []
        files.remove(_left_path(found))  # after a kill, commits upon HEAD may be an agent's
        tip = self.home.resolve(self.ref)
        if not tip or head == left or self.home.is_ancestor(head, left) or self.home.is_ancestor(head, tip):
            return []
        if tip != left or self.home.head() == self.ref or not self.home.is_ancestor(left, head):
            ref = keep_commit(self.home, self.change, head)
            return [f"the commits made in {self.place} are not on {self.branch}, but kept: git merge {ref}"]
        self.home.set_refs({self.ref: head})
        return [f"the commits made in {self.place} are on {self.branch} now"]

    def _recover_git(self) -> None:
        run = self.protected_git.find_killed_run()
        self.protected_git.recover(self._find_end(run) if run else None)
        self.protected_git.unlock()
        remove_index_lock(self.repository.index)

    def _find_end(self, run: str) -> float | None:
        """When a run that was killed had certainly ended; None if its records are gone."""
        last = locks.read_last_heartbeat(self._project, run)
        return None if last is None else last + locks.HEARTBEAT_SECONDS

    def _fill_new(self) -> None:
        """Writes the files of the last checkpoint to an empty worktree: it has no index, and nothing is in the way."""
        os.makedirs(os.path.dirname(self.repository.index), exist_ok=True)
        self._own_entries = []
        self.repository.check_out(self._tip_tree, self._spared)
        self._set_own_entries(self._tip_tree)
        self._files = self._tip_tree

    def _keep_left(self) -> None:
        """Keeps the work of a killed run, based on the commit that it began with: the branch may have moved since."""
        if self._is_at_rest:
            return
        newest, self._began_with = self.tip, self._tip_tree  # committed work was not interrupted
        if base := self.repository.resolve("HEAD"):
            self.catch_up(base)
        self.keep_interrupted(self.change)
        self.catch_up(newest)

    @property
    def _is_at_rest(self) -> bool:
        """Whether its files are known to be committed."""
        return False

    def keep_work(self, newest: str | None) -> str | None:
        """Keeps the work that a killed run left here, and changes nothing else. Returns the ref that keeps it; None if
        there is no such work. Raises an error if the files can't be read.

        `newest` is the last commit of the branch, if that is known.
        """
        found = self._find_worktree() or self._repair_worktree()
        base = _read_left(found) or found.resolve("HEAD") if found else None
        if found is None or not (newest := newest or base):
            raise GitError("git does not know it as a worktree")
        self._advance(newest, self.home.tree_of(newest))
        self._use(found)
        self._recover_git()
        self._began_with = self._tip_tree
        self.catch_up(base or newest)
        if self._is_at_rest:
            return None
        if not os.path.exists(self.repository.index):
            os.makedirs(os.path.dirname(self.repository.index), exist_ok=True)
            self.repository.run("read-tree", self._tip_tree)
        tree, _ = self._snapshot(self._tip_tree)
        known = {ref: found for ref, found in self._list_kept().items() if found == tree}
        if any(ref.startswith(layout.ATTEMPTS) for ref in known):
            return None  # it was judged
        return next(iter(known), None) or self._keep_tree(tree)

    def _keep_tree(self, tree: str) -> str | None:
        if tree in (self._tip_tree, self._began_with):
            return None
        message = f"ralphtool: {self.change}, interrupted\n"
        return self.keep_commit(self.change, self.repository.commit(tree, [self.tip], message))

    def _list_kept(self) -> dict[str, str]:
        """The refs of attempts and of interrupted work, and their trees."""
        options = ("--format=%(refname) %(tree)", layout.ATTEMPTS, layout.INTERRUPTED)
        lines = self.repository.text("for-each-ref", *options).split("\n")
        return dict(line.rsplit(" ", 1) for line in lines if line)

    def _start_from_user_tree(self, own_files: Sequence[str]) -> list[str]:
        """The change's own files may not be committed yet, so that only the user's tree has them."""
        index = os.path.join(layout.in_git(self.home.common), f"start-{self.change}.index")
        os.makedirs(os.path.dirname(index), exist_ok=True)
        self.repository = Repository(self.home.top, self.home.gitdir, self.home.common, index)
        self.repository.ensure_identity()
        try:
            other = Stash(self.home, self.ours).note()  # from a run that uses the user's tree right now
            start = other.commit if other else self.home.resolve("HEAD")
            known = self.repository.resolve(self.ref)
            return self.start_branch([self.relative(path) for path in own_files], known, start)
        finally:
            files.remove(index)

    def _describe_unseen(self, own_files: Sequence[str]) -> list[str]:
        """The files that an agent does not get, because it starts from the user's last commit."""
        if self.home.resolve("HEAD") is None or Stash(self.home, self.ours).note():
            return []  # without a commit all files are included; in a lent tree they are set aside
        own = [self.ours, *(self.relative(path) for path in own_files)]
        unseen = [path for path in self.home.list_uncommitted() if not _is_known(path, own)]
        told = [f"the run does not include your uncommitted files: {join_first(unseen)}"] if unseen else []
        return told + describe_newer_commits(self.home, self.change, own)

    def _find_user_plan(self, ref: str) -> UserPlan:
        if self._user_plan is None:
            self._user_plan = UserPlan(self.home, SpecPlace(self.home, self._project, self.change, ref))
        return self._user_plan

    def has_edited_plan(self, ref: str) -> bool:
        return self._find_user_plan(ref).has_changed()

    def forget_users_plan(self) -> None:
        if self._user_plan:
            self._user_plan.forget()

    def _take_users_plan(self, ref: str, known: str) -> str | None:
        return self._find_user_plan(ref).take(known)

    def _find_seen_plan(self, ref: str) -> str | None:
        return find_seen(self.home, self.change, self._spec_place(ref).list_paths())

    def commit_user_files(self) -> str | None:
        """A commit of the user's own tree as it is now, on the last checkpoint; None if the files are the same."""
        index = os.path.join(layout.in_git(self.home.common), f"look-{self.change}.index")
        theirs = Repository(self.home.top, self.home.gitdir, self.home.common, index)
        try:
            theirs.run("read-tree", self._tip_tree)
            theirs.add_all([self.ours])
            tree = theirs.write_tree()
        finally:
            files.remove(index)
        return None if tree == self._tip_tree else self.repository.commit(tree, [self.tip], "ralphtool: a look\n")

    def _ensure_worktree(self) -> Repository:
        """The worktree, created if it does not exist or is incomplete."""
        if found := self._find_worktree() or self._repair_worktree():
            return found
        shutil.rmtree(self.place, ignore_errors=True)
        prune_worktrees(self.home)
        self._add_worktree()
        made = Repository.find(self.place)
        if made is None:
            raise GitError(f"git worktree add did not create a worktree at {self.place}")
        return made

    def _repair_worktree(self) -> Repository | None:
        """The project may have been moved: git links a worktree by absolute paths."""
        with _lock_worktrees(self.home):
            _repair_worktrees(self.home)
        return self._find_worktree()

    def _find_worktree(self) -> Repository | None:
        found = Repository.find(self.place) if os.path.exists(os.path.join(self.place, ".git")) else None
        return found if found and _is_same(found.top, self.place) and _is_same(found.common, self.home.common) else None

    def _add_worktree(self) -> str:
        """Creates it, and returns its git folder."""
        self.is_new = True
        with _lock_worktrees(self.home):  # `--force` replaces git's record of a removed one
            self.home.run("worktree", "add", "--quiet", "--detach", "--no-checkout", "--force", self.place, self.tip)
        link = os.fsdecode(files.read(os.path.join(self.place, ".git")))
        return os.path.normpath(os.path.join(self.place, link.removeprefix("gitdir: ").rstrip("\n")))

    def _use(self, repository: Repository) -> None:
        repository.ensure_identity()
        self._use_prepared(repository)

    def _use_prepared(self, repository: Repository) -> None:
        self.repository = repository
        self.repository.must_end = self._must_end
        self.protected_git = ProtectedGit(repository, self.ref, shared=True)
        self.ignored = self._find_ignored()
        self.ignored.put_back()

    def _find_ignored(self) -> IgnoredFiles:
        return IgnoredFiles(self.repository, Paths([self.ours]))

    def _prepare_look(self) -> None:
        """Removes pipes and other special files: git would wait forever if it opened one, as `.gitignore`."""
        beneath.sweep(self.place)

    def needs_setup(self, commands: Sequence[str]) -> bool:
        _, done = self._read_setup_mark()
        return done != _join_commands(commands)

    def has_other_packages(self) -> bool:
        tree = self._skipped or self._read_setup_mark()[0]
        if not tree or tree == self._tip_tree:
            return False
        try:
            return has_manifest(one.path for one in self.repository.changed(tree, self._tip_tree))
        except GitError:
            return True  # the user has rewritten the branch, and git has removed the tree

    def _read_setup_mark(self) -> tuple[str, bytes | None]:
        """The tree that was in place then, and the commands."""
        try:
            tree, _, commands = files.read(self._mark_path).partition(b"\n")
        except FileNotFoundError:
            return "", None
        return os.fsdecode(tree), commands

    def skip_packages(self) -> None:
        self._skipped = self._tip_tree

    def mark_set_up(self, commands: Sequence[str]) -> None:
        """Git removes the mark together with the tree."""
        self._skipped = ""
        self._prepare_look()
        self.lost_environments = find_environments(self.prefix, self.repository.list_unknown_files())
        files.replace(self._mark_path, os.fsencode(f"{self._tip_tree}\n") + _join_commands(commands))

    @property
    def _mark_path(self) -> str:
        return os.path.join(self.repository.gitdir, "ralph-is-set-up")

    # --- next to other worktrees of the same change ------------------------------------------------

    def catch_up(self, tip: str, done: str = "") -> None:
        """The branch was moved elsewhere: new work begins there. `done` is the story of that commit, if nothing else
        was committed."""
        if tip == self.tip:
            return
        self._advance(tip, self.repository.tree_of(tip))
        if done:
            self._note_checkpoint(done, tip)
        else:
            self._proven = None

    @property
    def is_there(self) -> bool:
        """Whether it still exists."""
        return os.path.exists(os.path.join(self.place, ".git"))

    def check_there(self) -> None:
        if not self.is_there:
            raise GitError(f"{self.place} was deleted")

    def take(self) -> WorkspaceSnapshot:
        taken = super().take()
        if taken.full_disk:
            self._remove_large()
        return taken

    def _remove_large(self) -> None:
        """Work that met a full disk can't be saved, and is removed before the next attempt. Its large files are removed
        at once: the run could not save its own state, and the next one could not begin."""
        with suppress(GitError, OSError):
            top = self.repository.top
            for path in self.repository.list_unknown_files():
                if os.lstat(os.path.join(top, path)).st_size > _LARGE:
                    beneath.unlink(top, path)

    def release(self) -> None:
        if self._protected:
            self.home.set_refs({self._proof_ref: None})  # through the user's own tree: this one may be gone
            self._protected = ""

    def merge_work(self, tree: str, tip: str, ref: str) -> MergedTree:
        """Merges work on the last checkpoint known here into a newer one. Conflicts in the spec are ignored: the spec
        of the newer checkpoint counts."""
        place, work = self._spec_place(ref), self._commit_work(tree)
        merged = revert.merge_commits(self.repository, tip, work)
        own = Paths(place.list_paths())
        conflicts = tuple(path for path in merged.conflicts if not own.cover(path))
        if not conflicts:
            return MergedTree(merged.tree)
        return MergedTree(place.take_from(merged.tree, self.repository.tree_of(tip)), conflicts)

    def _commit_work(self, tree: str) -> str:
        """A commit on top of the last checkpoint; most likely the protected one."""
        own = self._protected
        is_same = own and self.repository.tree_of(own) == tree and self._protected_upon == self.tip
        return own if is_same else self.repository.commit(tree, [self.tip], "side\n")

    def edit_newest_spec(self, tree: str, ref: str, edit: Callable[[Spec], None]) -> str:
        """The tree with the spec of the last checkpoint, edited."""
        return self._spec_place(ref).edit_from(tree, self._tip_tree, edit)

    def read_diff(self, commit: str, most: int) -> str:
        """The diff of a commit; only its beginning if it is long."""
        told = self.repository.text("show", "--format=", "--no-ext-diff", "--no-textconv", commit)
        return told if len(told) <= most else f"{told[:most]}\n(and more)"

    def list_between(self, old: str, new: str) -> list[str]:
        """The files in which two trees differ, without those in `.ralph`."""
        return [one.path for one in self.repository.changed(old, new) if not Paths([self.ours]).cover(one.path)]

    def read_tree(self, tree: str, paths: Sequence[str]) -> dict[str, bytes]:
        return self.repository.read_files(tree, paths, _MOST_READ)

    def show_upon(self, tip: str, tree: str) -> None:
        """Puts a tree in place, as work on another checkpoint; ignored files stay as the attempt left them."""
        self.catch_up(tip)
        self._switch_to(tree)
        self._shown = tree
        self._lend_index()

    def close(self) -> None:
        """The worktree stays for the next run, since it is filled and set up. The branch may move elsewhere until then:
        HEAD shows what its files are based on."""
        self.protected_git.forget()
        if self.is_there:
            files.replace(_left_path(self.repository), os.fsencode(self.tip))
            self.repository.run("update-ref", "--no-deref", "HEAD", self.tip, check=False)


def _left_path(worktree: Repository) -> str:
    """Names the commit that the last run left HEAD on, unless it was killed."""
    return os.path.join(worktree.gitdir, "ralph-left")


def _read_left(worktree: Repository) -> str:
    try:
        return os.fsdecode(files.read(_left_path(worktree)))
    except FileNotFoundError:
        return ""


def _join_commands(commands: Sequence[str]) -> bytes:
    return "".join(f"{command}\0" for command in commands).encode("utf-8", "surrogateescape")


def prune_worktrees(repository: Repository) -> None:
    """Makes git forget worktrees that no longer exist; not those of a project that was moved."""
    with _lock_worktrees(repository):
        _repair_worktrees(repository)
        repository.run("worktree", "prune")


def _repair_worktrees(repository: Repository) -> None:
    """Corrects git's links to worktrees of ralphtool that were moved or copied with the project.

    `git worktree repair` would take those of the original away from it, and the user's own worktrees too.
    """
    folder = os.path.join(layout.in_git(repository.common), "worktrees")
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        link = os.path.join(folder, name, ".git")
        if os.path.isfile(link):
            _repair_link(repository, link)


def _repair_link(repository: Repository, link: str) -> None:
    target = _read_link(link)
    record = os.path.join(repository.common, "worktrees", os.path.basename(target))
    back = os.path.join(record, "gitdir")
    if not os.path.isfile(back):
        return
    if not _is_same(_read_link(back), link):
        files.replace(back, os.fsencode(f"{link}\n"))
    if not _is_same(target, record):
        files.replace(link, os.fsencode(f"gitdir: {record}\n"))


def _is_same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _read_link(path: str) -> str:
    """The path in one of the files by which git links a worktree and its record."""
    named = os.fsdecode(files.read(path)).removeprefix("gitdir: ").rstrip("\n")
    return os.path.join(os.path.dirname(path), named)


def _lock_worktrees(repository: Repository) -> files.FileLock:
    """Git itself has no lock for this: one run would prune a worktree that another is creating."""
    return files.FileLock(os.path.join(layout.in_git(repository.common), "worktrees.lock"), make=True)


def _is_known(path: str, own: Sequence[str]) -> bool:
    """Whether a run does not need a file, or has it: `ralphtool init` adds lines to .gitignore."""
    holds_own = path.endswith("/") and any(one.startswith(path) for one in own)
    return holds_own or os.path.basename(path) == ".gitignore" or Paths(own).cover(path)
