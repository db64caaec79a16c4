"""A working tree with git: put into a state, saved as a tree, and committed."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from ralphtool import errors
from ralphtool.core import files, layout
from ralphtool.errors import GitError, from_os_error
from ralphtool.judging.guard.model import FileChange
from ralphtool.workspace import revert, spec_files, submodules, user_plan
from ralphtool.workspace.checkpoints import build_trailers, read_checkpoints, read_work
from ralphtool.workspace.earlier_work import find_outdated
from ralphtool.workspace.environments import NeverSetUp
from ralphtool.workspace.git import Repository
from ralphtool.workspace.ignored import IgnoredFiles
from ralphtool.workspace.lent_index import LentIndex
from ralphtool.workspace.mixed_tree import build_mixed_tree, read_states
from ralphtool.workspace.paths import Paths, printable
from ralphtool.workspace.protected_work import keep_commit, take_protected
from ralphtool.workspace.revert import SpecPlace
from ralphtool.workspace.snapshots import ProtectedWork, WorkspaceSnapshot, build_changes
from ralphtool.workspace.swapped_files import SwappedFiles, build_swap, read_in_place, set_time

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ralphtool.specs import Spec
    from ralphtool.workspace.git import ChangedFile
    from ralphtool.workspace.protected_git import ProtectedGit
    from ralphtool.workspace.revert import RevertedTree
    from ralphtool.workspace.swapped_files import Contents, FileState
    from ralphtool.workspace.user_plan import MergedPlan

_MOST_READ = 1_000_000  # bytes of a file that are read for a proof


class Tree(NeverSetUp):
    """The code that all kinds of working trees share."""

    def __init__(self, repository: Repository, project: str, change: str, slot: int = 0) -> None:
        self.repository = repository
        self.change = change
        self.slot_name = layout.slot_name(change, slot)
        self.branch: str | None = layout.branch(change)
        self.ref = f"refs/heads/{self.branch}"
        self.root = self.shown_root = self._project = project
        inside = os.path.relpath(os.path.realpath(project), os.path.realpath(repository.top))
        self.prefix = "" if inside == "." else f"{inside}/"
        self.ours = f"{self.prefix}{layout.FOLDER}"
        self.protected_git: ProtectedGit
        self.tip = ""  # the last checkpoint
        self._tip_tree = ""
        self._spared = [self.ours]  # neither checked out nor committed
        self._left = Paths([self.ours])  # never removed
        self._own_entries: list[bytes] | None = None  # of `.ralph` in the separate index; None: not known
        self._files: str | None = None  # the tree that the files are known to match; None: unknown
        self._began_with = ""  # the tree that this iteration began with
        self._lent_index = LentIndex()
        self.ignored = IgnoredFiles(repository, Paths([self.ours]))
        self._protected = self._protected_upon = ""  # the commit that keeps the work, and the one below it
        self._shown = ""  # the tree that was last put in place, or taken
        self._last_stamp = 0
        self._swap: SwappedFiles | None = None
        self._proven: dict[str, str] | None = None
        self._users_tree = ""  # the user's version of the plan, as last taken

    # --- beginning a run ------------------------------------------------------------------------

    def start_branch(self, own_files: Sequence[str], known: str | None, start: str | None) -> list[str]:
        """Creates the branch if it is not `known`; an uncommitted change goes into its first commit."""
        if known:
            self._advance(known, self.repository.tree_of(known))
            return []
        tree = self.repository.tree_of(start) if start else self.repository.empty_tree
        self.repository.run("read-tree", tree)
        if not start:
            self.repository.add_all([self.ours])  # an empty tree has nothing to work on, and all gates are green
        self._stage_own(own_files)
        grown = self.repository.write_tree()
        first = start
        outdated = find_outdated(self.repository, self._project, self.change, start) if start else []
        if grown != tree or outdated or not start:
            what = f"the change {self.change}" if start else f"the files as they are, and the change {self.change}"
            message = f"ralphtool: {what}\n\nRalph-Change: {self.change}\n{build_trailers(outdated, ())}"
            first = self.repository.commit(grown, [start] if start else [], message)
        base = {layout.BASE + self.change: start} if start else {}
        self.repository.set_refs({self.ref: first, layout.START + self.change: first, **base})
        self._advance(str(first), grown)
        return [f"finished work is committed to the branch {self.branch}"]

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

    def begin(self, kept: str | None, cut_off: str | None = None) -> str | None:
        self.release()  # the proven work is settled by now
        tree, trouble = self._merge_kept(kept) if kept else (self._tip_tree, None)
        self._began_with = tree  # also with interrupted work, which was not judged yet
        if cut_off:
            tree, trouble = self._merge_kept(cut_off)
        self._switch_to(tree)
        self._lend_index()
        self.protected_git.remember(self.tip)
        return trouble

    def _merge_kept(self, kept: str) -> tuple[str, str | None]:
        """The work of an earlier attempt, on top of the last checkpoint."""
        commit = self.repository.resolve(kept)
        if commit is None:
            return self._tip_tree, "the work that an earlier attempt left is not in this clone: starting over"
        if self.repository.resolve(f"{commit}^") == self.tip:
            return self.repository.tree_of(commit), None
        try:
            return self.repository.text("merge-tree", "--write-tree", self.tip, commit).split("\n")[0], None
        except GitError:
            left = f"what an earlier attempt left ({commit[:10]})"
            return self._tip_tree, f"{left} can't be applied on top of newer work: starting over"

    def _switch_to(self, tree: str) -> None:
        if self._files == tree:
            return
        self._prepare_look()
        self._files = None  # until all of them are in place
        try:
            self.repository.check_out(tree, self._spared)
        except GitError:  # the disk may be full, or the separate index broken: it can be rebuilt
            self._free_space()
            self._own_entries = None
            self.repository.run("read-tree", self._tip_tree or tree)
            self.repository.check_out(tree, self._spared)
        self._set_own_entries(tree)
        self._remove_unknown()
        self._files = tree

    def _set_own_entries(self, tree: str) -> None:
        """Committed settings are never checked out: if they were not in the index, they would seem to be deleted."""
        own = self.repository.list_entries(tree, [self.ours])
        if own != self._own_entries or not os.path.exists(self.repository.index):
            self.repository.set_entries(tree, [self.ours])
            self._own_entries = own

    def _prepare_look(self) -> None:
        """Called before git looks at files that programs have left."""

    def _free_space(self) -> None:
        try:
            self._remove_unknown()
        except GitError:
            pass  # git can't tell with a broken index
        files.clear(self.repository.index)

    def _remove_unknown(self) -> None:
        """Removes files that an agent or a command left and git does not ignore. Earlier files are never touched."""
        for path in self.repository.list_unknown_files():
            if not self._left.cover(path):
                self._remove(path)

    def _remove(self, path: str) -> None:
        full = os.path.join(self.repository.top, path.rstrip("/"))
        files.clear(full)
        files.remove_empty_above(full, self.repository.top)

    def _lend_index(self) -> None:
        self._lent_index.renew(self.repository)

    def _lend_to_gates(self) -> None:
        """The index that gates see has the work, and nothing that the agent staged."""
        self._lend_index()

    def take(self) -> WorkspaceSnapshot:
        findings = self.protected_git.restore_changed()
        self._undo_branch_moves()
        self._files = None
        try:
            tree, changed = self._snapshot(self._began_with)
            self._lend_to_gates()
        except GitError as error:
            return WorkspaceSnapshot(None, findings=tuple(findings), trouble=str(error), full_disk=error.full_disk)
        except OSError as error:
            return WorkspaceSnapshot(None, findings=tuple(findings), trouble=str(from_os_error(error)))
        paths = dict.fromkeys(printable(path) for one in changed for path in (one.old_path, one.path))
        return WorkspaceSnapshot(tree, tuple(paths), (*findings, *submodules.find_embedded(self.repository, changed)))

    def take_notices(self) -> list[str]:
        return self.protected_git.take_notices()

    @property
    def agent_variables(self) -> dict[str, str]:
        return self.protected_git.agent_variables

    def _undo_branch_moves(self) -> None:
        """An agent's own commits prove nothing."""
        if (self.repository.read_loose(self.ref) or self.repository.resolve(self.ref)) != self.tip:
            self.repository.set_refs({self.ref: self.tip})

    def _snapshot(self, before: str) -> tuple[str, list[ChangedFile]]:
        """The tree of all files, and the differences. Untracked files from before the run are not in it."""
        self._prepare_look()
        self.repository.add_all(self._spared)
        tree = self.repository.write_tree()
        changed = self.repository.changed(before, tree) if tree != before else []
        if hidden := [one.path for one in changed if one.status == "A" and self._left.cover(one.path)]:
            self.repository.drop(hidden)  # an agent has changed the ignore rules
            self._own_entries = None
            tree = self.repository.write_tree()
            changed = self.repository.changed(before, tree)
        self._files = self._shown = tree
        return tree, changed

    # --- proving --------------------------------------------------------------------------------

    @property
    def checkpoint_tree(self) -> str | None:
        return self._tip_tree

    def compare(self, tree: str) -> tuple[FileChange, ...]:
        changed = self.repository.changed(self._tip_tree, tree)
        read = [one for one in changed if not one.is_submodule]
        ids = [blob for one in read for blob in (one.old_blob, one.new_blob) if blob]
        blobs = self.repository.small_blobs(ids, _MOST_READ)
        self._swap = build_swap(self.repository.top, self.repository.common, changed, blobs)
        return build_changes(changed, blobs)

    def list_files(self) -> list[str]:
        scope = [self.prefix] if self.prefix else []
        listed = self.repository.list_items("ls-tree", "-r", "-z", "--full-tree", "--name-only", self._tip_tree, *scope)
        return [path.removeprefix(self.prefix) for path in listed]

    def read_checkpoint(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        return self.repository.read_files(self._tip_tree, paths, _MOST_READ)

    def grep_checkpoint(self, word: str) -> Sequence[str]:
        return self.repository.grep(self._tip_tree, word)

    def has_same_work(self, tree: str, own_files: Sequence[str]) -> bool:
        own = Paths(self.relative(path) for path in own_files)
        return all(own.cover(one.path) for one in self.repository.changed(tree, self._tip_tree))

    def read_in_place(self, paths: Sequence[str]) -> Mapping[str, bytes | None]:
        return {path: read_in_place(self.repository.top, path, _MOST_READ) for path in paths}

    def read_commit(self, commit: str, paths: Sequence[str]) -> Mapping[str, FileState]:
        return read_states(self.repository, commit, paths)

    def show_mix(self, tree: str, is_old: Callable[[str], bool], contents: Contents) -> None:
        self._files = None
        if self._swap is not None and self._swap.can_show(contents):
            self._swap.show(is_old, contents, self._next_stamp())
            return
        swapped = list(self._swap.paths) if self._swap else []
        self._swap = None  # from here on, git puts the trees in place
        changed = self.repository.changed(self._tip_tree, tree)
        paths = [path for one in changed for path in dict.fromkeys((one.path, one.old_path)) if is_old(printable(path))]
        self._show(build_mixed_tree(self.repository, tree, self._tip_tree, paths, contents), swapped)

    def show_work(self, tree: str) -> None:
        self._files = None
        if self._swap is not None:
            self._swap.show(lambda path: False, {}, self._next_stamp())
        else:
            self._show(tree)

    def _show(self, tree: str, swapped: Sequence[str] = ()) -> None:
        """`swapped` files may be in place in any state."""
        before = self._shown or self._tip_tree
        self._switch_to(tree)
        self._shown = tree
        moment = self._next_stamp()
        for path in {*swapped, *(one.path for one in self.repository.changed(before, tree))}:
            set_time(self.repository.top, path, moment)

    def _next_stamp(self) -> int:
        """A time for files that are written now, a second apart: Python matches bytecode by time and size."""
        self._last_stamp = max(int(time.time()), self._last_stamp) + 1
        return self._last_stamp

    def clean_up(self) -> list[str]:
        """Removes files that the gates left, except ignored ones; returns the new ones of those."""
        self._prepare_look()
        if self._swap is None:
            return self.find_ignored_changes()  # checking out the next tree removes the rest
        left = self.repository.list_changes()
        broken = [path for path in left.changed if not self._swap.has_swapped(path) and not self._left.cover(path)]
        unknown = [path for path in left.unknown if not self._swap.has_swapped(path) and not self._left.cover(path)]
        self._discard(broken, unknown)
        return self.ignored.find_changed(left.ignored)

    def _discard(self, changed: Sequence[str], unknown: Sequence[str]) -> None:
        """Restores changed files, and removes unknown ones."""
        if changed:
            self.repository.restore_from_index(changed)
        for path in unknown:
            self._remove(path)

    def protect(self, tree: str, story: str, entry: str) -> None:
        if not self._protected:  # otherwise it is kept from before a merge: after a kill it is merged again
            message = f"ralphtool: {self.change}, being proven\n\nRalph-Entry: {entry}\nRalph-Story: {story}\n"
            self._protected, self._protected_upon = self.repository.commit(tree, [self.tip], message), self.tip
            self.repository.set_refs({self._proof_ref: self._protected})

    def take_protected(self, run: str) -> list[ProtectedWork]:
        return take_protected(self.repository, self.change, run)

    @property
    def _proof_ref(self) -> str:
        return f"{layout.PROVING}{self.slot_name}"

    def release(self) -> None:
        """The protected work is kept elsewhere by now."""
        if self._protected:
            self.repository.set_refs({self._proof_ref: None})
            self._protected = ""

    def mark_attempt(self) -> None:
        self.ignored.mark()

    def find_dirty_submodules(self) -> list[str]:
        return submodules.find_dirty(self.repository)

    def find_ignored_changes(self) -> list[str]:
        self._prepare_look()
        return self.ignored.find_changed()

    def set_ignored_aside(self, paths: Sequence[str]) -> None:
        self.ignored.move_aside(paths)

    def put_ignored_back(self) -> None:
        self.ignored.put_back()

    def set_environments_aside(self, paths: Sequence[str]) -> None:
        self.ignored.move_folders_aside(paths)

    def put_environments_back(self, *, keep_new: bool) -> None:
        self.ignored.put_folders_back(keep_new=keep_new)

    def add(self, paths: Sequence[str]) -> str | None:
        was_known = self._files is not None
        self.repository.run("add", "--update", "--", *[f":(top,literal){self.relative(path)}" for path in paths])
        tree = self.repository.write_tree()
        self._files = tree if was_known else None
        return tree

    def write_spec_at_start(self, folder: str, ref: str) -> bool:
        commit = self.repository.resolve(layout.START + self.change) or self.repository.resolve(
            layout.BASE + self.change
        )
        if commit:
            spec_files.write_spec_files(self.repository, self.spec_root, self.change, commit, folder, ref)
        return commit is not None

    # --- the plan, which the user may edit ---------------------------------------------------------

    def has_edited_plan(self, ref: str) -> bool:
        return False

    def _take_users_plan(self, ref: str, known: str) -> str | None:
        """A tree with the user's version of the plan; None if there is nothing new."""
        raise NotImplementedError

    def _find_seen_plan(self, ref: str) -> str | None:
        """The commit with the user's version when a run last looked."""
        return user_plan.find_seen(self.repository, self.change, self._spec_place(ref).list_paths())

    def forget_users_plan(self) -> None:
        pass

    def merge_users_plan(self, ref: str, outdated: Collection[str] = ()) -> MergedPlan | None:
        if not self.has_edited_plan(ref) or (known := self._find_seen_plan(ref)) is None:
            return None
        taken = self._take_users_plan(ref, known)
        if taken is None:
            return None
        self._users_tree = taken
        return user_plan.merge(self._spec_place(ref), known, self._tip_tree, taken, outdated)

    def publish_plan(self, merged: MergedPlan, message: str, seen: str) -> str:
        commit = self.repository.commit(merged.tree, [self.tip], message)
        start = self.repository.commit(self._users_tree, [], seen)
        self._advance(commit, merged.tree)
        self.protected_git.expect(self.tip)
        self.repository.set_refs({self.ref: commit, layout.START + self.change: start})
        self._proven = None
        return start

    def read_plan_message(self) -> tuple[str, str]:
        start = self.repository.resolve(layout.START + self.change)
        return (start, self.repository.text("log", "-1", "--format=%B", start)) if start else ("", "")

    def mark_dirty(self) -> None:
        self._files = None

    @property
    def tree(self) -> str | None:
        return self._began_with

    def commit(self, tree: str | None, message: str) -> str | None:
        return self.repository.commit(tree or self._tip_tree, [self.tip], message)

    def publish(self, attempt: str, commit: str | None, *, tree: str | None = None, story: str = "") -> None:
        refs = {f"{layout.ATTEMPTS}{attempt}": str(commit)} if attempt else {}
        old = self.tip
        if tree and not self._has_commit(str(commit)):
            self._advance(str(commit), tree)
            # Before the branch moves: after a kill it is set to the expected commit.
            self.protected_git.expect(self.tip)
        self._move_branch(refs, old)
        self._note_checkpoint(story, commit)

    def _move_branch(self, refs: dict[str, str], old: str) -> None:
        """Moves it from an old commit to the last checkpoint, and sets other refs too."""
        self.repository.set_refs({**refs, self.ref: self.tip})

    def _has_commit(self, commit: str) -> bool:
        """Whether the last checkpoint is a commit, or a descendant of it."""
        return commit == self.tip or self.repository.is_ancestor(commit, self.tip)

    def follow_branch(self) -> str:
        return ""

    def _note_checkpoint(self, story: str, commit: str | None) -> None:
        if story and self._proven is not None:
            self._proven.pop(story, None)
            self._proven[story] = str(commit)  # as the newest

    def check_publish(self, tree: str) -> None:
        pass

    def checkpoints(self) -> dict[str, str]:
        if self._proven is None:
            self._proven = read_checkpoints(self.repository, self.change)
        return self._proven

    # --- what a person decides ------------------------------------------------------------------

    @property
    def spec_root(self) -> str:
        """The project's folder below the top of the repository."""
        return self.root

    def _spec_place(self, ref: str) -> SpecPlace:
        return SpecPlace(self.repository, self.spec_root, self.change, ref)

    def merge_attempt(self, entry: str, commit: str | None, ref: str) -> str:
        return revert.merge_kept(self._spec_place(ref), entry, commit, self.tip, self.branch)

    def edit_spec(self, tree: str, ref: str, edit: Callable[[Spec], None]) -> str:
        place = self._spec_place(ref)
        try:
            return place.edit(tree, edit)
        except (errors.ChangeNotFound, errors.SpecError, errors.StoryNotFound, errors.TaskNotFound):
            # An attempt may have broken it.
            return place.edit(place.take_from(tree, self._tip_tree), edit)

    def revert(self, story: str, ref: str, lost: str | None = None) -> RevertedTree:
        work = [(id, one.commit) for id, one in read_work(self.repository, self.change)]
        if story not in dict(work):
            work.insert(0, (story, revert.check_lost(self.repository, self.branch, story, lost)))
        return revert.revert(self._spec_place(ref), work, story, self.tip)

    def list_changed(self, tree: str) -> list[str]:
        return [printable(one.path) for one in self.repository.changed(self._tip_tree, tree)]

    def drop_checkpoints(self, stories: Sequence[str]) -> None:
        for story in stories:
            self.checkpoints().pop(story, None)

    def follows(self, commit: str) -> bool:
        parent = self.repository.text("rev-parse", "--verify", "--quiet", f"{commit}^", check=False)
        return parent == self.tip or self._has_commit(commit)

    def keep_interrupted(self, run: str, known: str | None = None) -> str | None:
        """The work of an interrupted iteration does not count as an attempt, but a ref keeps it."""
        try:
            tree, _ = self._snapshot(self._tip_tree)
        except (GitError, OSError):
            return known  # it can't be read, so it can't be kept either
        if known and self.repository.resolve(known) and self.repository.tree_of(known) == tree:
            return known
        if tree in (self._tip_tree, self._began_with):
            return None
        message = f"ralphtool: {self.change}, interrupted\n"
        return self.keep_commit(run, self.repository.commit(tree, [self.tip], message))

    def keep_commit(self, run: str, commit: str) -> str:
        """Creates a ref for work that nothing else keeps, and returns it."""
        return keep_commit(self.repository, run, commit)
