"""When the user's own files count as an edit of the plan."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import cast

from ralphtool.workspace.git import Repository
from ralphtool.workspace.revert import SpecPlace
from ralphtool.workspace.user_plan import UserPlan


class _Place:
    change = "shop"

    def list_paths(self) -> list[str]:
        return ["plan.md"]


def test_what_is_there_on_another_branch_is_no_edit_until_the_user_is_back(tmp_path: Path) -> None:
    (tmp_path / "plan.md").write_text("# Shop\n")
    subprocess.run("git init --quiet --initial-branch=main", shell=True, cwd=tmp_path, check=True)
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
