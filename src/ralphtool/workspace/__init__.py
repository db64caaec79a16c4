"""Where an iteration works: the user's own tree, a worktree of its own, or a plain folder without git.

A workspace can be put into a state, and its state can be taken down as a tree; commits and refs are made of trees.
The loop knows nothing else of git.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ralphtool.judging.guard.model import FileChange
    from ralphtool.specs import Spec
    from ralphtool.workspace.revert import RevertedTree
    from ralphtool.workspace.snapshots import ProtectedWork, WorkspaceSnapshot
    from ralphtool.workspace.user_plan import MergedPlan


RISK = "anything that you change in this folder until the run ends counts as the agent's work"
_TEXTS = {
    "box": "work happens in a box: your own files are not touched",
    "worktree": "work happens in a worktree, without a sandbox: your own files are not touched",
    "workers": "work happens on other machines: your own files are not touched",
    "here": f"work happens in your own folder, without a sandbox: {RISK}",
}


def describe(kind: str) -> str:
    """Where a run works, as a line for people; empty for what no run works in."""
    return _TEXTS.get(kind, "")


class Workspace(Protocol):
    """What the loop asks of the place where an iteration works."""

    root: str  # the project's folder in there
    shown_root: str  # the same, as programs see it
    branch: str | None

    @property
    def tip(self) -> str | None:
        """The last checkpoint's commit."""
        ...

    @property
    def tree(self) -> str | None:
        """What the iteration began with."""
        ...

    def write_spec_at_start(self, folder: str, ref: str) -> bool:
        """Writes the spec as its user had it, when a run last looked, into a folder; False where nobody knows."""
        ...

    def has_edited_plan(self, ref: str) -> bool:
        """Whether the user may have edited the plan since it was merged last; cheap."""
        ...

    def merge_users_plan(self, ref: str) -> MergedPlan | None:
        """The plan as the user has it now with what the branch has done; None where nothing was edited.

        Raises UnusablePlan where the user's plan can't be used as it is now.
        """
        ...

    def publish_plan(self, merged: MergedPlan, message: str, seen: str) -> str:
        """Makes it the last checkpoint, and notes the user's own version with the message `seen`; tells that commit."""
        ...

    def read_plan_message(self) -> tuple[str, str]:
        """The commit of the user's version that was merged last, and its message."""
        ...

    @property
    def needs_setup(self) -> bool:
        """Whether the set-up commands have never run to their end there."""
        ...

    def mark_set_up(self) -> None: ...

    def mark_dirty(self) -> None:
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

    def take(self) -> WorkspaceSnapshot:
        """What is there now, and how it differs from what the iteration began with."""
        ...

    @property
    def prefix(self) -> str:
        """The project's folder in its repository, as in `backend/`; empty for the root."""
        ...

    # --- for a proof ----------------------------------------------------------------------------

    @property
    def checkpoint_tree(self) -> str | None:
        """The tree of the last checkpoint."""
        ...

    def compare(self, tree: str) -> tuple[FileChange, ...]:
        """How a tree differs from the last checkpoint."""
        ...

    def list_files(self) -> list[str]:
        """The files of the last checkpoint that are below `root`, as seen from there."""
        ...

    def read_checkpoint(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        """Those of some files that the last checkpoint has."""
        ...

    def grep_checkpoint(self, word: str) -> Sequence[str]:
        """The files of the last checkpoint that hold a word."""
        ...

    def has_same_work(self, tree: str, own_files: Sequence[str]) -> bool:
        """Whether the last checkpoint is a tree, but for files of the change itself."""
        ...

    def clean_up(self) -> list[str]:
        """Removes what gates have left; returns the files that git ignores and that they made or changed."""
        ...

    def show_mix(self, tree: str, is_old: Callable[[str], bool], contents: Mapping[str, bytes]) -> None:
        """Puts a mixture in place: the work, but with some changed paths as at the last checkpoint, and some files
        with other contents. `compare` comes first."""
        ...

    def show_work(self, tree: str) -> None:
        """Puts the work in place again."""
        ...

    def protect(self, tree: str, story: str, entry: str) -> None:
        """Keeps the tree of an iteration by a ref while others are shown, until the next one begins."""
        ...

    def take_protected(self, run: str) -> list[ProtectedWork]:
        """The work of iterations that were killed meanwhile; refs of `run` keep it from here on."""
        ...

    def mark_attempt(self) -> None:
        """An attempt begins: files that git ignores and that change from here on are its own."""
        ...

    def find_dirty_submodules(self) -> list[str]:
        """Submodules with files that no commit of theirs has: no commit here can have them either."""
        ...

    def find_ignored_changes(self) -> list[str]:
        """Those files, as git names them."""
        ...

    def set_ignored_aside(self, paths: Sequence[str]) -> None: ...

    def put_ignored_back(self) -> None: ...

    def set_environments_aside(self, paths: Sequence[str]) -> None:
        """Whole folders of installed packages, so that they can be made anew."""
        ...

    def put_environments_back(self, *, keep_new: bool) -> None:
        """Puts them in place of what was made meanwhile; `keep_new` leaves that, and removes those."""
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

    def follow_branch(self) -> str:
        """Between two stories: takes in what the user committed to the branch. Returns what to tell them."""
        ...

    def follows(self, commit: str) -> bool:
        """Whether a commit was made upon the last checkpoint, or is in it."""
        ...

    def merge_attempt(self, entry: str, ref: str) -> str:
        """The tree of a kept attempt upon the last checkpoint. `ref` says where the spec is."""
        ...

    def revert(self, story: str, ref: str) -> RevertedTree:
        """The tree of the last checkpoint without a story's work, and without later work that does not fit then."""
        ...

    def edit_spec(self, tree: str, ref: str, edit: Callable[[Spec], None]) -> str:
        """A tree with its spec edited; the last checkpoint's spec where the tree has none that can be read."""
        ...

    def list_changed(self, tree: str) -> list[str]:
        """The paths in which a tree differs from the last checkpoint."""
        ...

    def check_publish(self, tree: str) -> None:
        """Raises an error where the branch could not move to a tree."""
        ...

    def drop_checkpoints(self, stories: Sequence[str]) -> None:
        """The stories that are done no longer."""
        ...

    def keep_interrupted(self, run: str, known: str | None = None) -> str | None:
        """Keeps the work of an iteration that is no attempt; tells the ref, if there is any work. `known` is the ref of
        what was there when the iteration began, if that was cut off as well."""
        ...


def make(project: str, change: str, kind: str, must_end: Callable[[], bool] = lambda: False) -> Workspace:
    """`must_end` says whether somebody wants the run to end: nothing waits long for a git command then."""
    # Imported here: those who only look at a branch load none of this, and a run only what it works with.
    from ralphtool.workspace.git import Repository

    repository = Repository.find(project)
    if repository is None:
        from ralphtool.workspace.folder import Folder

        return Folder(project)
    if kind == "box":
        from ralphtool.workspace.box import Box

        return Box(repository, project, change, must_end)
    if kind == "worktree":
        from ralphtool.workspace.worktree import Worktree

        return Worktree(repository, project, change, must_end)
    from ralphtool.workspace.in_place import InPlace

    return InPlace(repository, project, change)
