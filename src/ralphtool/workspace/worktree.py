"""A working tree of its own, beside the user's."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from ralphtool.core import files, layout
from ralphtool.errors import GitError
from ralphtool.workspace.git import Paths, Repository
from ralphtool.workspace.ignored import IgnoredFiles
from ralphtool.workspace.protected_git import ProtectedGit
from ralphtool.workspace.stash import Stash
from ralphtool.workspace.tree import Tree, remove_index_lock

if TYPE_CHECKING:
    from collections.abc import Sequence


class Worktree(Tree):
    """A working tree of its own, beside the user's, which stays untouched. A new one has to be set up first."""

    is_new = False

    def __init__(self, repository: Repository, project: str, change: str) -> None:
        super().__init__(repository, project, change)
        self.home = repository
        self.place = os.path.join(layout.in_git(repository.common), "worktrees", change)
        self.root = os.path.join(self.place, self.prefix.rstrip("/")) if self.prefix else self.place

    def open(self, run: str, own_files: Sequence[str]) -> list[str]:
        told = self._start_from_user_tree(own_files)
        self._use(self._ensure_worktree())
        self.protected_git.recover()
        self.protected_git.unlock()
        remove_index_lock(self.repository.index)
        if not os.path.exists(self.repository.index):
            os.makedirs(os.path.dirname(self.repository.index), exist_ok=True)
            self.repository.run("read-tree", "--empty")
        elif not self.is_new:
            self.keep_interrupted(self.change)
        self._switch_to(self._tip_tree)
        self.repository.set_head(self.ref)
        return [*told, f"work happens in {self.place}"]

    def _start_from_user_tree(self, own_files: Sequence[str]) -> list[str]:
        """The change's own files may not be committed yet, and are only in the user's tree."""
        index = os.path.join(layout.in_git(self.home.common), f"start-{self.change}.index")
        os.makedirs(os.path.dirname(index), exist_ok=True)
        self.repository = Repository(self.home.top, self.home.gitdir, self.home.common, index)
        self.repository.ensure_identity()
        try:
            other = Stash(self.home, self.ours).note()  # of a run that uses the user's tree at this very time
            start = other.commit if other else self.home.resolve("HEAD")
            known = self.repository.resolve(self.ref)
            return self.start_branch([self.relative(path) for path in own_files], known, start)
        finally:
            files.remove(index)

    def _ensure_worktree(self) -> Repository:
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
        self.protected_git = ProtectedGit(repository, self.ref, shared=True)
        self.ignored = IgnoredFiles(repository, Paths([self.ours]))
        self.ignored.put_back()

    @property
    def needs_setup(self) -> bool:
        return not os.path.exists(self._mark_path)

    def mark_set_up(self) -> None:
        """Git removes the mark together with the tree."""
        with open(self._mark_path, "wb"):
            pass

    @property
    def _mark_path(self) -> str:
        return os.path.join(self.repository.gitdir, "ralph-is-set-up")

    def close(self) -> None:
        """The tree stays for the next run: it is filled, and set up."""
        self.protected_git.forget()
