"""The branch of a change that no run works on: its commits and its spec, without a working tree."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from ralphtool.core import files, layout
from ralphtool.errors import ChangeNotFound, GitError
from ralphtool.workspace import spec_files
from ralphtool.workspace.git import Repository
from ralphtool.workspace.revert import SpecPlace
from ralphtool.workspace.shared_branch import list_checked_out, move_files
from ralphtool.workspace.tree import Tree
from ralphtool.workspace.user_plan import UserPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.workspace.user_plan import MergedPlan


class Idle(Tree):
    """Carries out steering commands between two runs. The user's files change only if that branch is checked out."""

    def __init__(self, repository: Repository, project: str, change: str, spec_ref: str, *, is_lent: bool) -> None:
        super().__init__(repository, project, change)
        self._home = repository
        self.project = project
        self._spec_ref = spec_ref
        self._is_lent = is_lent  # to a run in progress, so that this may only read
        self._folder = tempfile.TemporaryDirectory(prefix="ralph-")
        self.root = self._folder.name  # contains the spec, as the branch has it

    @property
    def spec_root(self) -> str:
        return self.project

    def open(self, run: str, own_files: Sequence[str]) -> list[str]:
        tip = self.repository.resolve(self.ref)
        if tip is None:
            raise ChangeNotFound(f"the branch {self.branch} was deleted meanwhile: try again")
        self.repository.ensure_identity()
        self._advance(tip, self.repository.tree_of(tip))
        self.begin(None)
        return []

    def close(self) -> None:
        self._folder.cleanup()

    def begin(self, kept: str | None, cut_off: str | None = None) -> str | None:
        files.clear(self.root)
        os.makedirs(self.root, exist_ok=True)
        spec_files.write_spec_files(self.repository, self.project, self.change, self.tip, self.root, self._spec_ref)
        return None

    # --- the plan, which the user may edit ---------------------------------------------------------

    def has_edited_plan(self, ref: str) -> bool:
        """While the branch is checked out, the user's plan is the branch's."""
        return not self._is_lent and self._home.head() != self.ref

    def _take_users_plan(self, ref: str, known: str) -> str | None:
        return UserPlan(self._home, SpecPlace(self._home, self.project, self.change, ref)).take(known)

    def publish_plan(self, merged: MergedPlan, message: str, seen: str) -> str:
        commit, old = self.repository.commit(merged.tree, [self.tip], message), self.tip
        start = self.repository.commit(self._users_tree, [], seen)
        self._move_checked_out(merged.tree)
        self._move_own_tree(merged.tree)
        self._advance(commit, merged.tree)
        lines = [f"update {self.ref} {commit} {old}\n", f"update {layout.START}{self.change} {start}\n"]
        self.repository.run("update-ref", "--stdin", input=os.fsencode("".join(lines)))
        self._proven = None
        return start

    # --- moving the branch ----------------------------------------------------------------------

    def check_publish(self, tree: str) -> None:
        for place in [] if self._is_lent else list_checked_out(self.repository, self.ref):
            if self._find_index_tree(place, tree) == self._tip_tree:
                move_files(place, self._tip_tree, tree, "--dry-run")

    def publish(self, attempt: str, commit: str | None, *, tree: str | None = None, story: str = "") -> None:
        old, refs = self.tip, {f"{layout.ATTEMPTS}{attempt}": str(commit)} if attempt else {}
        if tree and not self._has_commit(str(commit)):
            self._move_checked_out(tree)
            self._move_own_tree(tree)
            self._advance(str(commit), tree)
        # The branch moves only from the commit that was read: the user may commit there at the same moment.
        lines = [f"update {name} {value}\n" for name, value in refs.items()]
        lines += [f"update {self.ref} {self.tip} {old}\n"] if self.tip != old else []
        if lines:
            self.repository.run("update-ref", "--stdin", input=os.fsencode("".join(lines)))
        self._note_checkpoint(story, commit)

    def _move_checked_out(self, tree: str) -> None:
        """Moves the files before the branch: after a kill they match the branch once the command is repeated."""
        for place in list_checked_out(self.repository, self.ref):
            if self._find_index_tree(place, tree) == self._tip_tree != tree:
                move_files(place, self._tip_tree, tree)

    def _move_own_tree(self, tree: str) -> None:
        """A worktree of ralphtool that stays behind its branch would seem to contain interrupted work."""
        top = os.path.join(layout.in_git(self.repository.common), "worktrees", self.change)
        place = Repository.find(top) if os.path.exists(os.path.join(top, ".git")) else None
        if place is None or os.path.realpath(place.common) != os.path.realpath(self.repository.common):
            return  # the project is a copy, and this is the original's
        if place.tree_of_index(place.index) != self._tip_tree:
            return
        place.run("update-index", "-q", "--refresh", check=False)
        try:
            place.run("read-tree", "-m", "-u", self._tip_tree, tree)
        except GitError:
            pass  # it does contain such work, which the next run keeps

    def _find_index_tree(self, place: Repository, new: str) -> str:
        """The tree in the index of a checked-out branch; refused if it has uncommitted work of the user."""
        place.run("update-index", "-q", "--refresh", own_index=False, check=False)
        tree = place.tree_of_index(os.path.join(place.gitdir, "index"))
        if tree not in (self._tip_tree, new) or place.list_items("diff-files", "-z", "--name-only", own_index=False):
            raise GitError(
                f"{self.branch} is checked out in {place.top} and has uncommitted changes: commit or `git stash` them, "
                "or `git switch` to another branch; then try again"
            )
        return tree
