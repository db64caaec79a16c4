"""Epics of beads as changes: read from `bd`, `br` or the exported file, and closed by the program when proven."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from project import Ralph
from specs.formats import done_ids, outline
from specs.trackers import Tracker, export, put_bead

from ralphtool import specs
from ralphtool.errors import ChangeNotFound, InvalidValue, SpecError, TaskNotFound
from ralphtool.specs import beads, beads_issues, issue_copy, program, tracker
from ralphtool.specs.tracker import DoneStory
from ralphtool.testing import check_adapter

CRITERIA = "- [ ] a form\n- [x] a button"


def never() -> bool:
    return False


def fill(made: Tracker) -> None:
    put_bead(made, "shop-1", "Add login", issue_type="epic", description="Users want in.")
    put_bead(made, "shop-1.2", "Log out", "shop-1", ["shop-1.1"], priority=1)
    put_bead(made, "shop-1.1", "Log in", "shop-1", priority=1, acceptance_criteria=CRITERIA, description="Words.")
    put_bead(made, "shop-1.10", "Past", "shop-1", status="closed")
    put_bead(made, "shop-2", "Other epic", issue_type="epic", status="closed")
    put_bead(made, "shop-3", "Loose task")


@pytest.fixture(params=["bd", "br"])
def made(ralph: Ralph, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Tracker:
    found = Tracker(ralph, request.param)
    ralph.write(".beads/metadata.json", '{"database": "beads.db", "jsonl_export": "issues.jsonl"}')
    monkeypatch.setenv("PATH", f"{found.bin}{os.pathsep}/usr/bin{os.pathsep}/bin")
    fill(found)
    return found


@pytest.fixture
def exported(ralph: Ralph, monkeypatch: pytest.MonkeyPatch) -> Tracker:
    """Only the file: neither program is installed."""
    found = Tracker(ralph, "br")
    fill(found)
    export(found, ralph)
    (found.bin / "br").unlink()
    monkeypatch.setenv("PATH", str(found.bin))
    return found


def copy(made: Tracker, epic: str = "shop-1") -> Any:
    root = str(made.ralph.root)
    tracker.update_copy(root, epic, f"beads:{epic}", never)
    return specs.open(root, epic, f"beads:{epic}")


def publish(made: Tracker, spec: Any, *ids: str, complete: bool = False) -> list[str] | None:
    done = [DoneStory(story, "abc123", "proven") for story in spec.stories() if story.id in ids]
    return beads.publish(str(made.ralph.root), spec.change, spec.change, done, complete, never)


def states(made: Tracker) -> dict[str, str]:
    return {id: issue["status"] for id, issue in made.issues.items()}


# --- reading ----------------------------------------------------------------------------------------


def check_login(spec: Any) -> None:
    assert outline(spec) == {
        "shop-1.1": ["shop-1.1.1", "shop-1.1.2"],
        "shop-1.2": ["shop-1.2.1"],
        "shop-1.10": ["shop-1.10.1"],
    }
    first, second, _ = spec.stories()
    assert [task.text for task in first.tasks] == ["a form", "a button"]
    assert second.depends_on == ("shop-1.1",)
    assert second.tasks[0].text == "Log out"
    assert done_ids(spec) == ["shop-1.10.1"], "the status of an issue says whether it is done"
    assert spec.proposal() == "Users want in."
    assert first.description.startswith("Words.")


def test_an_epic_is_a_change_and_its_children_are_stories(made: Tracker) -> None:
    check_login(copy(made))


def test_bd_may_wrap_its_answers(ralph: Ralph, monkeypatch: pytest.MonkeyPatch) -> None:
    bd = Tracker(ralph, "bd")
    fill(bd)
    monkeypatch.setenv("PATH", f"{bd.bin}{os.pathsep}/usr/bin")
    ralph.write(".beads/config.yaml", "")
    spec = copy(bd)
    bd.behave("envelope")
    assert publish(bd, spec, "shop-1.1") == []
    assert states(bd)["shop-1.1"] == "closed"


def test_without_a_program_the_exported_file_is_read(exported: Tracker) -> None:
    root = str(exported.ralph.root)
    assert beads.changes(root) == ["shop-1"], "closed epics are no changes"
    check_login(specs.open(root, "shop-1"))
    [missing, *_] = tracker.update_copy(root, "shop-1", None, never)[1:]
    assert "is not on the PATH" in missing
    check_login(specs.open(root, "shop-1"))
    assert exported.ralph.run("list", "--json").json["changes"][0]["name"] == "shop-1"


def test_a_tick_before_a_run_makes_the_copy_and_leaves_the_file_alone(exported: Tracker) -> None:
    ralph = exported.ralph
    before = ralph.read(".beads/issues.jsonl")
    ralph.begin("shop-1")
    assert ralph.agent("task", "done", "shop-1.1.1").json["remaining"] == ["shop-1.1.2"]
    assert ralph.agent("status").json["story"]["tasks_done"] == 1
    assert ralph.read(".beads/issues.jsonl") == before
    assert "[x] shop-1.1.1 a form" in ralph.read(".ralph-issues/shop-1.md")


def test_an_unknown_task_makes_no_copy(exported: Tracker) -> None:
    spec = specs.open(str(exported.ralph.root), "shop-1")
    with pytest.raises(TaskNotFound):
        spec.tick("no.such.task")
    assert not (exported.ralph.root / issue_copy.FOLDER).exists()


def test_it_keeps_the_contract(made: Tracker) -> None:
    copy(made)
    check_adapter(specs.adapter("beads"), str(made.ralph.root), "shop-1")


def test_no_program_is_called_by_lists_and_agents(made: Tracker) -> None:
    copy(made)
    before = made.calls()
    assert made.ralph.run("list").exit_code == 0
    made.ralph.begin("shop-1")
    assert made.ralph.agent("task", "done", "shop-1.1.1").json
    assert made.calls() == before


def test_what_is_blocked_from_outside_is_left_out_and_that_is_said(made: Tracker) -> None:
    put_bead(made, "shop-9", "Elsewhere")
    put_bead(made, "shop-1.1", "Log in", "shop-1", ["shop-9", "gone-1"])
    root = str(made.ralph.root)
    told = tracker.update_copy(root, "shop-1", "beads:shop-1", never)
    assert outline(specs.open(root, "shop-1")) == {"shop-1.10": ["shop-1.10.1"]}
    assert any("shop-1.1 is skipped: it waits for shop-9, which is open" in text for text in told)
    assert any("shop-1.2 is skipped: it waits for shop-1.1" in text for text in told)
    made.put(id="shop-9", status="closed")
    assert sorted(outline(copy(made))) == ["shop-1.1", "shop-1.10", "shop-1.2"]


def test_epics_below_an_epic_lend_their_blockers_to_their_children(made: Tracker) -> None:
    put_bead(made, "shop-1.3", "Sub", "shop-1", ["shop-1.1"], issue_type="epic")
    put_bead(made, "shop-1.3.1", "Deep", "shop-1.3")
    put_bead(made, "shop-1.4", "After", "shop-1", ["shop-1.3"])
    waits = {story.id: story.depends_on for story in copy(made).stories()}
    assert "shop-1.3" not in waits
    assert waits["shop-1.3.1"] == ("shop-1.1",)
    assert waits["shop-1.4"] == ("shop-1.3.1",)


def test_an_epic_without_children_is_its_own_story(made: Tracker) -> None:
    put_bead(made, "shop-7", "Alone", issue_type="epic", description="- [ ] one\n- [ ] two")
    assert outline(copy(made, "shop-7")) == {"shop-7": ["shop-7.1", "shop-7.2"]}


def test_an_epic_that_is_not_there(made: Tracker) -> None:
    with pytest.raises((SpecError, ChangeNotFound), match=r"nope-1"):
        copy(made, "nope-1")
    with pytest.raises((SpecError, ChangeNotFound), match="-1"):
        copy(made, "-1")
    assert not (made.ralph.root / issue_copy.FOLDER).exists()


def test_neither_a_program_nor_a_file(ralph: Ralph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(ralph.tmp))
    ralph.write(".beads/config.yaml", "")
    with pytest.raises(SpecError, match="neither bd nor br"):
        beads.download(str(ralph.root), "shop-1", None, never)
    with pytest.raises(ChangeNotFound, match=r"ralphtool run --spec beads:shop-1"):
        specs.open(str(ralph.root), "shop-1", "beads:shop-1")


@pytest.mark.parametrize(("backend", "program_name"), [("dolt", "bd"), ("sqlite", "br")])
def test_of_two_programs_the_one_that_fits_the_database(
    ralph: Ralph, monkeypatch: pytest.MonkeyPatch, backend: str, program_name: str
) -> None:
    for name in ("bd", "br"):
        Tracker(ralph, name)
    monkeypatch.setenv("PATH", ralph.env["PATH"])
    ralph.write(".beads/metadata.json", json.dumps({"backend": backend}))
    assert beads_issues.find_program(str(ralph.root)) == program_name
    ralph.write(".ralph/config.toml", '[specs.beads]\nprogram = "bd"\n')
    assert beads_issues.find_program(str(ralph.root)) == "bd"
    ralph.write(".ralph/config.toml", '[specs.beads]\nprogram = "rm"\n')
    with pytest.raises(InvalidValue, match='"bd" or "br"'):
        beads_issues.find_program(str(ralph.root))


# --- bad input --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("rubbish", "not print JSON|invalid JSON"),
        ("fail", "failed with exit status 1"),
        ("latin1", "not UTF-8"),
        ("wrong types", "id must be a string|not an object"),
        ("no objects", "not an object|not a list of objects"),
    ],
)
def test_a_program_that_misbehaves_is_one_clear_error(made: Tracker, how: str, says: str) -> None:
    made.behave(how)
    with pytest.raises(SpecError, match=says):
        copy(made)
    assert not (made.ralph.root / issue_copy.FOLDER).exists()


def test_a_program_that_hangs_is_ended_and_the_copy_is_used(made: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    copy(made)
    monkeypatch.setattr(program, "SECONDS", 0.5)
    made.behave("hang")
    [told] = tracker.update_copy(str(made.ralph.root), "shop-1", None, never)
    assert "did not respond" in told
    assert "uses the copy" in told


BAD_LINES: dict[str, tuple[bytes, str]] = {
    "truncated": (b'{"id": "shop-1", "issue_type": "epic", "tit', "line 1: invalid JSON"),
    "not UTF-8": (b'{"id": "shop-1\xff", "issue_type": "epic"}', "not UTF-8"),
    "a number as an id": (b'{"id": 1, "issue_type": "epic"}', "id must be a string"),
    "no id": (b'{"issue_type": "epic"}', "is not a valid issue id"),
    "an id with a blank": (b'{"id": "a b", "issue_type": "epic"}', "is not a valid issue id"),
    "a list as a title": (b'{"id": "shop-1", "issue_type": "epic", "title": []}', "title must be a string"),
    "a list": (b'["epic"]', "not an object"),
    "dependencies as a text": (b'{"id": "shop-1", "issue_type": "epic", "dependencies": "x"}', "list of objects"),
    "a dependency on a number": (
        b'{"id": "shop-1", "issue_type": "epic", "dependencies": [{"depends_on_id": 3, "type": "blocks"}]}',
        "no type or no id",
    ),
    "deep nesting": (b'{"id": "epic", "issue_type": "epic", "x": ' + b"[" * 100_000, "invalid JSON"),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_bad_line_of_the_file_is_one_clear_error(ralph: Ralph, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("PATH", str(ralph.tmp))
    line, says = BAD_LINES[name]
    ralph.write(".beads/issues.jsonl", line + b"\n")
    with pytest.raises(SpecError, match=says):
        beads.changes(str(ralph.root))
    assert ralph.run("list").exit_code == 0, "the changes of other formats are still listed"


def test_an_id_twice(exported: Tracker) -> None:
    file = exported.ralph.root / ".beads/issues.jsonl"
    file.write_text(file.read_text() + json.dumps({"id": "shop-1.1", "title": "again"}) + "\n")
    with pytest.raises(SpecError, match=r"shop-1\.1.* is listed twice"):
        specs.open(str(exported.ralph.root), "shop-1")


@pytest.mark.parametrize("kind", ["blocks", "parent-child"])
def test_circles(made: Tracker, kind: str) -> None:
    other = "shop-1.2" if kind == "blocks" else "shop-1.1"
    back = [{"issue_id": "shop-1.1", "depends_on_id": other, "type": kind}]
    made.put(id="shop-1.1", dependencies=[*made.issues["shop-1.1"]["dependencies"], *back])
    with pytest.raises(SpecError, match=r"depend on each other|parents of each other"):
        copy(made)
    assert not (made.ralph.root / issue_copy.FOLDER).exists()


def test_crlf_a_byte_order_mark_and_other_records(exported: Tracker) -> None:
    file = exported.ralph.root / ".beads/issues.jsonl"
    more = [{"_type": "memory", "key": "epic"}, {"id": "gone", "status": "tombstone", "issue_type": "epic"}]
    text = file.read_text() + "".join(f"{json.dumps(one)}\n\n" for one in more)
    file.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert beads.changes(str(exported.ralph.root)) == ["shop-1"]
    check_login(specs.open(str(exported.ralph.root), "shop-1"))


def test_the_older_name_of_the_file(exported: Tracker) -> None:
    folder = exported.ralph.root / ".beads"
    (folder / "issues.jsonl").rename(folder / "beads.jsonl")
    check_login(specs.open(str(exported.ralph.root), "shop-1"))


def test_a_link_out_of_the_project_is_refused(exported: Tracker, tmp_path: Path) -> None:
    file = exported.ralph.root / ".beads/issues.jsonl"
    file.rename(tmp_path / "outside.jsonl")
    file.symlink_to(tmp_path / "outside.jsonl")
    with pytest.raises(SpecError, match="points outside of"):
        beads.changes(str(exported.ralph.root))


def test_a_file_of_20_mb(exported: Tracker) -> None:
    file = exported.ralph.root / ".beads/issues.jsonl"
    filler = [{"id": f"big-{number}", "title": "x", "description": "y" * 10_000} for number in range(2_100)]
    file.write_text(file.read_text() + "".join(f"{json.dumps(one)}\n" for one in filler))
    assert beads.changes(str(exported.ralph.root)) == ["shop-1"]
    check_login(specs.open(str(exported.ralph.root), "shop-1"))


def test_what_the_program_writes_meanwhile_is_read_again(exported: Tracker) -> None:
    root = str(exported.ralph.root)
    check_login(specs.open(root, "shop-1"))
    put_bead(exported, "shop-1.11", "New", "shop-1")
    export(exported, exported.ralph)
    assert "shop-1.11" in outline(specs.open(root, "shop-1"))


def test_misspelt_kinds_of_dependencies_and_no_priority(made: Tracker) -> None:
    put_bead(made, "shop-1.5", "Odd", priority="high")
    made.put(id="shop-1.5", dependencies=[{"issue_id": "shop-1.5", "depends_on_id": "shop-1", "type": "parent_child"}])
    assert list(outline(copy(made)))[-1] == "shop-1.5"


# --- closing ----------------------------------------------------------------------------------------


def test_what_is_proven_is_closed_with_a_reason(made: Tracker) -> None:
    spec = copy(made)
    assert publish(made, spec, "shop-1.1") == []
    assert made.issues["shop-1.1"]["close_reason"] == "Done in commit abc123 (proven), by ralphtool"
    assert states(made)["shop-1"] == "open"
    assert publish(made, spec, "shop-1.1", "shop-1.2", complete=True) == []
    assert states(made) == {
        "shop-1": "closed",
        "shop-1.2": "closed",
        "shop-1.1": "closed",
        "shop-1.10": "closed",
        "shop-2": "closed",
        "shop-3": "open",
    }
    closed = [call[1] for call in made.calls() if call[0] == "close"]
    assert closed == ["shop-1.1", "shop-1.2", "shop-1"], "what is closed already is left alone"


def test_an_epic_with_new_children_stays_open(made: Tracker) -> None:
    spec = copy(made)
    put_bead(made, "shop-1.11", "New", "shop-1")
    told = publish(made, spec, "shop-1.1", "shop-1.2", complete=True)
    assert told is not None
    assert "were not part of this run: shop-1.11" in told[0]
    assert states(made)["shop-1"] == "open"


def test_without_write_nothing_is_closed(made: Tracker) -> None:
    made.ralph.write(".ralph/config.toml", "[specs.beads]\nwrite = false\n")
    spec = copy(made)
    assert publish(made, spec, "shop-1.1") is None
    assert states(made)["shop-1.1"] == "open"


def test_without_a_program_nothing_is_closed(exported: Tracker) -> None:
    before = exported.ralph.read(".beads/issues.jsonl")
    spec = copy(exported)
    assert publish(exported, spec, "shop-1.1") is None
    assert exported.ralph.read(".beads/issues.jsonl") == before


def test_an_epic_is_called_by_its_title(exported: Tracker) -> None:
    assert "Add login" in exported.ralph.run("list").stdout
    assert exported.ralph.run("show", "shop-1").stdout.startswith("Add login (shop-1)")
