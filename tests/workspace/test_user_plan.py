"""When the user's own files count as an edit of the plan."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import cast

import pytest

from ralphtool.workspace.git import Repository
from ralphtool.workspace.revert import SpecPlace
from ralphtool.workspace.user_plan import UserPlan, find_seen

COMMIT = "git -c user.name=a -c user.email=a@example.org commit --quiet --allow-empty"


def sh(folder: Path, *commands: str) -> str:
    command = " && ".join(commands)
    return subprocess.run(command, shell=True, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


class _Place:
    change = "shop"

    def list_paths(self) -> list[str]:
        return ["plan.md"]


def test_what_is_there_on_another_branch_is_no_edit_until_the_user_is_back(tmp_path: Path) -> None:
    (tmp_path / "plan.md").write_text("# Shop\n")
    sh(tmp_path, "git init --quiet --initial-branch=main")
    home = Repository.find(str(tmp_path))
    assert home is not None
    plan = UserPlan(home, cast("SpecPlace", _Place()))
    assert plan.take(None)
    assert not plan.has_changed()
    home.set_head("refs/heads/other")
    (tmp_path / "plan.md").unlink()
    assert not plan.has_changed()
    home.set_head("refs/heads/main")
    assert plan.has_changed()


@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("is_shallow", [True, False])
def test_another_clone_finds_what_the_change_began_with(tmp_path: Path, is_committed: bool, is_shallow: bool) -> None:
    plan = "echo plan > plan.md; git add plan.md"
    sh(tmp_path, "git init --quiet --initial-branch=main", plan if is_committed else "true")
    sh(tmp_path, f"{COMMIT} -m begun -m 'Ralph-Change: shop-2'")
    sh(tmp_path, "git switch --quiet --create ralph/shop", plan)
    first = sh(tmp_path, f"{COMMIT} -m 'The change' -m 'Ralph-Change: shop'", "git rev-parse HEAD")
    sh(tmp_path, f"{COMMIT} -m 'Story 1' -m 'Ralph-Change: shop'", "git switch --quiet main")
    unrelated = f"git switch --quiet --orphan new && {COMMIT} -m cut-off"  # as `git clone --depth 1` leaves it
    sh(tmp_path, unrelated if is_shallow else f"{COMMIT} -m newer")
    home = Repository.find(str(tmp_path))
    assert home is not None
    assert find_seen(home, "shop", ["plan.md"]) == (home.resolve(f"{first}^") if is_committed else first)
