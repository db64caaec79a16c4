"""A third-party format: found by dotted path or entry point, and used like a built-in one."""

from __future__ import annotations

from pathlib import Path

import pytest
from project import Ralph

from ralphtool import specs
from ralphtool.errors import SpecError


def install(ralph: Ralph, entry_points: str) -> None:
    """Writes what an installer leaves for a distribution with entry points."""
    info = Path(ralph.env["PYTHONPATH"]) / "stranger_jobs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger-jobs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)


def whole_session(ralph: Ralph, *more: str) -> None:
    assert ralph.agent("session", "init", "--change", "jobs", *more).json["stories"][0]["tasks_total"] == 2
    assert ralph.agent("session", "next-story").json["story_id"] == "all"
    assert ralph.agent("task", "done", "2").json["remaining"] == ["1"]
    assert ralph.read("jobs.txt") == "todo 1 sweep\ndone 2 mop\n"
    ralph.agent("learn", "mop last", "--task", "2")
    assert ralph.agent("session", "flush").json["learnings_written"] == 1
    assert "- mop last (Task 2)\n" in ralph.read("jobs-notes.md")


def test_an_adapter_by_dotted_path(stranger: Ralph) -> None:
    whole_session(stranger, "--spec", "stranger_jobs.formats:by_path")


def test_an_adapter_by_entry_point(stranger: Ralph) -> None:
    install(stranger, "[ralphtool.specs]\njobs = stranger_jobs.formats:by_name\n")
    [listed] = stranger.run("list", "--json").json["changes"]
    assert (listed["name"], listed["adapter"], listed["tasks_total"]) == ("jobs", "jobs", 2)
    whole_session(stranger)


def test_spec_names_an_entry_point(stranger: Ralph) -> None:
    install(stranger, "[ralphtool.specs]\njobs = stranger_jobs.formats:by_name\n")
    whole_session(stranger, "--spec", "jobs")


def test_an_entry_point_counts_when_formats_collide(stranger: Ralph) -> None:
    install(stranger, "[ralphtool.specs]\njobs = stranger_jobs.formats:by_name\n")
    stranger.openspec(change="jobs")
    refused = stranger.agent("session", "init", "--change", "jobs")
    assert refused.code == "SPEC_ERROR"
    assert "openspec, jobs" in refused.error["error"]
    whole_session(stranger, "--spec", "jobs")


@pytest.mark.parametrize(
    "path", ["stranger_jobs.nowhere:by_path", "stranger_jobs.formats:nothing", "no_such.package:x"]
)
def test_an_adapter_that_is_not_there(stranger: Ralph, path: str) -> None:
    refused = stranger.agent("session", "init", "--change", "jobs", "--spec", path)
    assert refused.code == "INVALID_VALUE"
    assert path in refused.error["error"]


def test_an_entry_point_that_can_not_be_loaded_names_itself(stranger: Ralph) -> None:
    install(stranger, "[ralphtool.specs]\njobs = stranger_jobs.formats:gone\n")
    refused = stranger.agent("session", "init", "--change", "jobs", "--spec", "jobs")
    assert refused.code == "INVALID_VALUE"
    assert "stranger_jobs.formats:gone" in refused.error["error"]


@pytest.mark.parametrize("module", ["no_such_module:x", "stranger_jobs.explodes:x", "stranger_jobs.formats:nothing"])
def test_a_broken_package_hides_no_changes_of_others(stranger: Ralph, module: str) -> None:
    (Path(stranger.env["PYTHONPATH"]) / "stranger_jobs/explodes.py").write_text("raise RuntimeError('boom')\n")
    install(stranger, f"[ralphtool.specs]\nbroken = {module}\n")
    stranger.openspec()
    shown = stranger.run("show", "add-login", "--spec", "openspec")
    assert (shown.exit_code, shown.stderr) == (0, "")
    made = stranger.run("new", "Something else", "--format", "openspec")
    assert made.exit_code == 0, made.stderr


ODD_PLACES = ["../outside", "/etc/hostname", ":(glob)**", ".ralph/config.toml", "a\0b", "", None, b"x"]


@pytest.mark.parametrize("place", ODD_PLACES)
def test_places_lie_inside_the_project(place: object) -> None:
    class Odd:
        name = "odd"

        def places(self, change: str, where: str | None = None) -> list[object]:
            return ["fine.txt", place]

    with pytest.raises(SpecError, match=r"the spec adapter odd returned the place .* for x: places must be paths"):
        specs.check_places(Odd(), "x", None)  # type: ignore[arg-type]
