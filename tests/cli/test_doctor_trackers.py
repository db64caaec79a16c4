"""What `ralphtool doctor` says about issue trackers."""

from __future__ import annotations

import os
import shutil

import pytest
from project import Ralph
from specs.trackers import Tracker, export, put_bead, put_issue


def find(ralph: Ralph) -> list[tuple[str, str]]:
    findings = ralph.run("doctor", "--no-gates", "--json")
    import json

    told = json.loads(findings.stdout)["findings"]
    return [(one["state"], one["text"]) for one in told if one["about"] == "trackers"]


def hide_programs(ralph: Ralph) -> None:
    """A PATH with git and nothing else."""
    folder = ralph.root.parent / "only-git"
    folder.mkdir()
    (folder / "git").symlink_to(str(shutil.which("git")))
    ralph.env["PATH"] = str(folder)


def test_projects_without_one_hear_nothing(ralph: Ralph) -> None:
    assert find(ralph) == []


def test_github_without_gh(ralph: Ralph) -> None:
    ralph.write(".ralph/config.toml", '[specs.github]\nchanges = ["12"]\n')
    hide_programs(ralph)
    assert find(ralph) == [("wrong", "GitHub issues: gh is not on the PATH")]


@pytest.mark.parametrize(("write", "says"), [("true", "ticked and closed there"), ("false", "only read")])
def test_github_with_gh(ralph: Ralph, write: str, says: str) -> None:
    made = Tracker(ralph, "gh")
    put_issue(made, 12, "x", "")
    ralph.write(".ralph/config.toml", f"[specs.github]\nwrite = {write}\n")
    [(state, text)] = find(ralph)
    assert state == "ok"
    assert says in text
    assert made.calls() == [["auth", "token"]], "no network is asked"
    made.behave("logged out")
    [(state, text)] = find(ralph)
    assert state == "wrong"
    assert "not logged in" in text


def test_beads_with_and_without_a_program(ralph: Ralph) -> None:
    made = Tracker(ralph, "br")
    put_bead(made, "shop-1", "x", issue_type="epic")
    (ralph.root / ".beads").mkdir()
    assert [state for state, _ in find(ralph)] == ["ok", "warning"]
    export(made, ralph)
    assert [state for state, _ in find(ralph)] == ["ok"]
    hide_programs(ralph)
    [(state, text)] = find(ralph)
    assert state == "warning"
    assert "neither bd nor br is on the PATH: epics are read from .beads/issues.jsonl" in text
    os.unlink(ralph.root / ".beads/issues.jsonl")
    [(state, text)] = find(ralph)
    assert state == "wrong"
