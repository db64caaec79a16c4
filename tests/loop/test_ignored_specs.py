"""Specs that git ignores, as some templates for agents do: a run commits them to its branch all the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from lab import DONE, Lab
from sandbox.boxes import needs_box
from specs.formats import MAKERS, open_spec

IGNORED = {
    **{"openspec": "openspec/", "prd": "prd.json", "speckit": "specs/", "checklist": "*_plan.md", "kiro": ".kiro/"},
    **{"taskmaster": ".taskmaster/", "backlog": "backlog/"},
}
CASES = [
    *(pytest.param(format, "box", "--squash", marks=needs_box) for format in IGNORED),
    pytest.param("prd", "box", "--merge", marks=needs_box),
    *(("prd", kind, "--merge") for kind in ("worktree", "here")),
    *(("backlog", kind, "--squash") for kind in ("worktree", "here")),
]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def prepare(lab: Lab, format: str, kind: str) -> str:
    """Creates a repository with a change in that format, which git ignores; returns the change."""
    lab.repository(workspace=kind).play(default=DONE)
    shutil.rmtree(lab.root / "openspec")
    lab.write(".gitignore", f"{IGNORED[format]}\n.ralph/\n")
    lab.git("add", "--all")
    lab.git("commit", "--quiet", "--message=ignore the spec")
    change = MAKERS[format](lab)
    assert lab.git("status", "--porcelain") == ""
    return change


def count_done(lab: Lab) -> list[tuple[int, int]]:
    """The stories that are done, and all of them, as `list` shows them."""
    return [(one["stories_done"], one["stories_total"]) for one in lab.run("list", "--json").json["changes"]]


@pytest.mark.parametrize(("format", "kind", "way"), CASES)
def test_ticks_of_an_ignored_spec_last(lab: Lab, format: str, kind: str, way: str) -> None:
    change = prepare(lab, format, kind)
    done = lab.loop(change)
    assert done.exit_code == 0, done.stderr
    assert count_done(lab) == [(2, 2)]
    finished = lab.run("finish", change, way)
    assert "still open" not in finished.stdout, finished.stdout
    assert "not committed" not in finished.stdout, finished.stdout
    assert [story.done for story in open_spec(lab, change).stories()] == [True, True]  # in the user's own file
    again = lab.run("run", change)
    assert (again.exit_code, count_done(lab)) == (0, [(2, 2)])
    assert "nothing left to run" in again.stdout


@needs_box
def test_a_file_that_an_attempt_stops_ignoring_keeps_its_version(lab: Lab) -> None:
    """The user's version of an ignored file is copied into a box, but only until the branch has the file."""
    lab.write(".gitignore", "settings.ini\n")
    lab.repository(workspace="box")
    lab.write("settings.ini", "mine\n")
    first = [{"run": "rm .gitignore && echo shared > settings.ini"}, {"tick": "all"}, {"complete": True}]
    lab.play({"story": "1", "steps": first}, default=DONE)
    assert lab.loop().exit_code == 0
    assert lab.git("show", "ralph/add-login:settings.ini") == "shared"
    assert lab.read("settings.ini") == "mine\n"
