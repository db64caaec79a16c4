"""The first page: what makes it refresh."""

from __future__ import annotations

from project import Ralph
from views.night import RUN, a_night

from ralphtool.views.web import home


def test_a_run_is_noticed_when_its_record_comes_after_its_folder(project: Ralph) -> None:
    """A run creates its folder first. The record that follows changes none of the folders that are checked."""
    projects = {"p": str(project.root)}
    folder = project.root / ".ralph/runs" / RUN
    folder.mkdir(parents=True)
    before = home.read_fingerprint(projects)
    assert home.read_fingerprint(projects) == before
    (folder / "events.jsonl").write_bytes(b"\n".join(a_night().lines) + b"\n")
    assert home.read_fingerprint(projects) != before
