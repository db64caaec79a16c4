"""A plain folder without git as a workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphtool.errors import GitError
from ralphtool.workspace.environments import NeverSetUp
from ralphtool.workspace.snapshots import ProtectedWork, WorkspaceSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ralphtool.judging.guard.model import FileChange
    from ralphtool.specs import Spec
    from ralphtool.workspace.revert import RevertedTree
    from ralphtool.workspace.swapped_files import Contents, FileState
    from ralphtool.workspace.user_plan import MergedPlan


class Folder(NeverSetUp):
    """A project without git: nothing can be reverted, compared or kept."""

    branch: str | None = None
    tip: str | None = None
    tree: str | None = None

    def __init__(self, root: str) -> None:
        self.root = self.shown_root = root
        self.agent_variables: dict[str, str] = {}

    def write_spec_at_start(self, folder: str, ref: str) -> bool:
        return False

    def has_edited_plan(self, ref: str) -> bool:
        return False  # there is only one version of it

    def forget_users_plan(self) -> None:
        pass

    def merge_users_plan(self, ref: str, outdated: Collection[str] = ()) -> MergedPlan | None:
        return None

    def publish_plan(self, merged: MergedPlan, message: str, seen: str) -> str:
        raise GitError("without git there is one version of a plan")

    def read_plan_message(self) -> tuple[str, str]:
        return "", ""

    def mark_dirty(self) -> None:
        pass

    def open(self, run: str, own_files: Sequence[str]) -> list[str]:
        return [
            "this project has no git repository: nothing is committed, failed attempts are not undone, and cheating "
            "in the diff can't be detected; run `git init` to change that"
        ]

    def close(self) -> None:
        pass

    def begin(self, kept: str | None, cut_off: str | None = None) -> str | None:
        return None

    def take(self) -> WorkspaceSnapshot:
        return WorkspaceSnapshot(None)

    def take_notices(self) -> list[str]:
        return []

    # Without git there are no trees, and an attempt's changes are unknown.
    checkpoint_tree: str | None = None
    prefix = ""

    def compare(self, tree: str) -> tuple[FileChange, ...]:
        return ()

    def list_files(self) -> list[str]:
        return []

    def read_checkpoint(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        return {}

    def grep_checkpoint(self, word: str) -> Sequence[str]:
        return ()

    def has_same_work(self, tree: str, own_files: Sequence[str]) -> bool:
        return False

    def clean_up(self) -> list[str]:
        return []

    def read_in_place(self, paths: Sequence[str]) -> Mapping[str, bytes | None]:
        return dict.fromkeys(paths)

    def read_commit(self, commit: str, paths: Sequence[str]) -> Mapping[str, FileState]:
        return {}

    def show_mix(self, tree: str, is_old: Callable[[str], bool], contents: Contents) -> None:
        pass

    def show_work(self, tree: str) -> None:
        pass

    def protect(self, tree: str, story: str, entry: str) -> None:
        pass

    def take_protected(self, run: str) -> list[ProtectedWork]:
        return []

    def mark_attempt(self) -> None:
        pass

    def find_dirty_submodules(self) -> list[str]:
        return []

    def find_ignored_changes(self) -> list[str]:
        return []

    def set_ignored_aside(self, paths: Sequence[str]) -> None:
        pass

    def put_ignored_back(self) -> None:
        pass

    def set_environments_aside(self, paths: Sequence[str]) -> None:
        pass

    def put_environments_back(self, *, keep_new: bool) -> None:
        pass

    def add(self, paths: Sequence[str]) -> str | None:
        return None

    def commit(self, tree: str | None, message: str) -> str | None:
        return None

    def publish(self, attempt: str, commit: str | None, *, tree: str | None = None, story: str = "") -> None:
        pass

    def checkpoints(self) -> dict[str, str]:
        return {}

    def follow_branch(self) -> str:
        return ""

    def follows(self, commit: str) -> bool:
        return True

    def merge_attempt(self, entry: str, commit: str | None, ref: str) -> str:
        raise GitError("this project has no git repository, so no attempts are kept, and none can be accepted")

    def revert(self, story: str, ref: str, lost: str | None = None) -> RevertedTree:
        raise GitError(
            f"this project has no git repository, so the work of story {story} can't be reverted: undo it by hand "
            "and untick its boxes"
        )

    def edit_spec(self, tree: str, ref: str, edit: Callable[[Spec], None]) -> str:
        return tree

    def list_changed(self, tree: str) -> list[str]:
        return []

    def check_publish(self, tree: str) -> None:
        pass

    def drop_checkpoints(self, stories: Sequence[str]) -> None:
        pass

    def keep_interrupted(self, run: str, known: str | None = None) -> str | None:
        return None
