"""Where an iteration works: the user's own tree, a separate worktree, or a plain folder without git.

A workspace can be put into a state, and its state can be saved as a tree; commits and refs are made from trees.
The loop knows nothing else about git.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Protocol

    from ralphtool.judging.guard.model import FileChange
    from ralphtool.specs import Spec
    from ralphtool.workspace.revert import RevertedTree
    from ralphtool.workspace.snapshots import ProtectedWork, WorkspaceSnapshot
    from ralphtool.workspace.swapped_files import Contents, FileState
    from ralphtool.workspace.user_plan import MergedPlan
else:
    Protocol = object  # a real one takes a while to create, and every list of changes imports this


RISK = "what you change in this folder while an agent works counts as its work; other changes are moved to a git ref"
_TEXTS = {
    "box": "work happens in a box: your own files are not touched",
    "worktree": "work happens in a worktree, without a sandbox: your own files are not touched",
    "workers": "work happens on other machines: your own files are not touched",
    "here": f"work happens in your own folder, without a sandbox: {RISK}",
}


def describe(kind: str) -> str:
    """Where a run works, as a line for people; empty for other kinds."""
    return _TEXTS.get(kind, "")


class Workspace(Protocol):
    """What the loop requires of the place where an iteration works."""

    root: str  # the project's folder in it
    shown_root: str  # the same, as programs see it
    branch: str | None

    @property
    def tip(self) -> str | None:
        """The last checkpoint's commit."""
        ...

    @property
    def tree(self) -> str | None:
        """The tree that the iteration began with."""
        ...

    def write_spec_at_start(self, folder: str, ref: str) -> bool:
        """Writes the spec, as the user had it when a run last looked, into a folder; False if that is unknown."""
        ...

    def has_edited_plan(self, ref: str) -> bool:
        """Whether the user may have edited the plan since it was merged last; cheap."""
        ...

    def forget_users_plan(self) -> None:
        """The next merge finds the same edit again."""
        ...

    def merge_users_plan(self, ref: str, outdated: Collection[str] = ()) -> MergedPlan | None:
        """The user's present plan with the branch's progress; None if nothing was edited.

        `outdated` are done stories that were reworded while an agent worked on them: they are open again.

        Raises UnusablePlan if the user's plan can't be used as it is now.
        """
        ...

    def publish_plan(self, merged: MergedPlan, message: str, seen: str) -> str:
        """Makes it the last checkpoint; commits the user's own version with the message `seen`, and returns that."""
        ...

    def read_plan_message(self) -> tuple[str, str]:
        """The commit of the user's version that was merged last, and its message."""
        ...

    def needs_setup(self, commands: Sequence[str]) -> bool:
        """Whether these setup commands were not the last ones that completed there."""
        ...

    def has_other_packages(self) -> bool:
        """Whether the last checkpoint declares other packages than the one that setup ran on."""
        ...

    def skip_packages(self) -> None:
        """Those of the last checkpoint can't be installed now."""
        ...

    def mark_set_up(self, commands: Sequence[str]) -> None: ...

    @property
    def lost_environments(self) -> Sequence[str]:
        """Environments that these commands created and git does not ignore, so that they were removed."""
        ...

    def mark_dirty(self) -> None:
        """Commands of ralphtool have run since it was put into a state, and may have left files."""
        ...

    def open(self, run: str, own_files: Sequence[str]) -> list[str]:
        """Takes it for the run; `own_files` are those of the change. Returns notices."""
        ...

    def close(self) -> None:
        """Restores it as it was."""
        ...

    def begin(self, kept: str | None, cut_off: str | None = None) -> str | None:
        """Puts it into the state to work on: the last checkpoint with the `kept` work on top. Returns an error, if any.

        The `cut_off` work is put on top too, but counts as done in this iteration: it was not judged yet.
        """
        ...

    def take(self) -> WorkspaceSnapshot:
        """The current state, and how it differs from the one that the iteration began with."""
        ...

    def take_notices(self) -> list[str]:
        """What changed in git's own files and refs while an agent worked, and may be the user's work. Each is told
        once."""
        ...

    @property
    def agent_variables(self) -> dict[str, str]:
        """Variables for the environment of an agent."""
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
        """The files of the last checkpoint below `root`, relative to it."""
        ...

    def read_checkpoint(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        """The contents of those files that the last checkpoint has."""
        ...

    def grep_checkpoint(self, word: str) -> Sequence[str]:
        """The files of the last checkpoint that contain a word."""
        ...

    def has_same_work(self, tree: str, own_files: Sequence[str]) -> bool:
        """Whether the last checkpoint equals a tree, except for files of the change itself."""
        ...

    def clean_up(self) -> list[str]:
        """Removes files that gates left; returns the ignored files that they created or changed."""
        ...

    def read_in_place(self, paths: Sequence[str]) -> Mapping[str, bytes | None]:
        """The contents of these files as they are in place now; None for what is not a file, or too large."""
        ...

    def read_commit(self, commit: str, paths: Sequence[str]) -> Mapping[str, FileState]:
        """Those files that a commit has. Raises GitError if there is no such commit, or one of them can't be read."""
        ...

    def show_mix(self, tree: str, is_old: Callable[[str], bool], contents: Contents) -> None:
        """Puts a mixture in place: the work, but with some changed paths as at the last checkpoint, and some files
        with other contents, or without them (None). Call `compare` first."""
        ...

    def show_work(self, tree: str) -> None:
        """Puts the work in place again."""
        ...

    def protect(self, tree: str, story: str, entry: str) -> None:
        """Keeps the tree of an iteration in a ref while other trees are in place, until the next one begins."""
        ...

    def take_protected(self, run: str) -> list[ProtectedWork]:
        """The work of iterations that were killed during that; refs of `run` keep it from here on."""
        ...

    def mark_attempt(self) -> None:
        """An attempt begins: ignored files that change from here on belong to it."""
        ...

    def find_dirty_submodules(self) -> list[str]:
        """Submodules with uncommitted files: no commit here can contain those."""
        ...

    def find_ignored_changes(self) -> list[str]:
        """The ignored files that changed since `mark_attempt`, as git names them."""
        ...

    def set_ignored_aside(self, paths: Sequence[str]) -> None: ...

    def put_ignored_back(self) -> None: ...

    def set_environments_aside(self, paths: Sequence[str]) -> None:
        """Sets whole folders of installed packages aside, so that they can be created anew."""
        ...

    def put_environments_back(self, *, keep_new: bool) -> None:
        """Restores them in place of the new ones; `keep_new` keeps the new ones and removes the old ones."""
        ...

    def add(self, paths: Sequence[str]) -> str | None:
        """Adds these files, which are part of the tree that was taken last, also if git ignores their folder; returns
        the new tree."""
        ...

    def commit(self, tree: str | None, message: str) -> str | None:
        """A commit of a tree on top of the last checkpoint; nothing points to it yet."""
        ...

    def publish(self, attempt: str, commit: str | None, *, tree: str | None = None, story: str = "") -> None:
        """Keeps an attempt. With a `tree`, its commit becomes the last checkpoint, possibly of a `story`.

        Repeating it changes nothing.
        """
        ...

    def checkpoints(self) -> dict[str, str]:
        """The stories that have a checkpoint, and its commit."""
        ...

    def follow_branch(self) -> str:
        """Between two stories: includes the user's commits on the branch. Returns a notice about them."""
        ...

    def follows(self, commit: str) -> bool:
        """Whether a commit is based on the last checkpoint, or is part of it."""
        ...

    def merge_attempt(self, entry: str, commit: str | None, ref: str) -> str:
        """The tree of a kept attempt, if it was kept, on top of the last checkpoint. `ref` says where the spec is."""
        ...

    def revert(self, story: str, ref: str, lost: str | None = None) -> RevertedTree:
        """The tree of the last checkpoint without a story's work, and without later work that then conflicts.

        `lost` is the story's commit, if the branch no longer has it as a checkpoint.
        """
        ...

    def edit_spec(self, tree: str, ref: str, edit: Callable[[Spec], None]) -> str:
        """A tree with its spec edited; with the last checkpoint's spec if the tree has no readable one."""
        ...

    def list_changed(self, tree: str) -> list[str]:
        """The paths in which a tree differs from the last checkpoint."""
        ...

    def check_publish(self, tree: str) -> None:
        """Raises an error if the branch could not move to a tree."""
        ...

    def drop_checkpoints(self, stories: Sequence[str]) -> None:
        """Forgets the checkpoints of stories that are no longer done."""
        ...

    def keep_interrupted(self, run: str, known: str | None = None) -> str | None:
        """Keeps the work of an iteration that does not count as an attempt; returns the ref, if there is any work.
        `known` is the ref of the work that the iteration began with, if that was interrupted too."""
        ...


def make(project: str, change: str, kind: str, must_end: Callable[[], bool] = lambda: False) -> Workspace:
    """`must_end` returns whether the run must end: then nothing waits long for a git command."""
    # Imported here: commands that only read a branch load none of this, and a run only the kind that it uses.
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
