"""GitHub issues as changes: copied once, ticked here, and updated on GitHub when they are proven."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from project import Ralph
from specs.formats import done_ids, outline
from specs.trackers import REAL_GH, Tracker, put_issue, real_gh

from ralphtool import specs
from ralphtool.errors import ChangeNotFound, InvalidValue, RalphError, SpecError, UnsafePath
from ralphtool.specs import Story, Task, github, github_issues, issue_copy, program, tracker
from ralphtool.specs.tracker import DoneStory
from ralphtool.testing import check_adapter

BODY = """\
We need a way in.

- [ ] Read the docs

## Form
Some words about it.

- [ ] A field for the name
- [x] A button
  that can be pressed

## Later (optional)

- [ ] Dark mode
"""
WRITE = "[specs.github]\nwrite = true\n"


def never() -> bool:
    return False


@pytest.fixture
def hub(ralph: Ralph, monkeypatch: pytest.MonkeyPatch) -> Tracker:
    made = Tracker(ralph, "gh")
    monkeypatch.setenv("PATH", ralph.env["PATH"])
    put_issue(made, 12, "Add login", BODY)
    return made


@pytest.fixture(params=["stand-in", "real"])
def either(hub: Tracker, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tracker]:
    """The stand-in and the real program behave the same."""
    if request.param == "stand-in":
        yield hub
        return
    if REAL_GH is None:
        pytest.skip("gh is not installed")
    with real_gh(hub):
        for name in ("GH_CONFIG_DIR", "GH_TOKEN", "GH_REPO"):
            monkeypatch.setenv(name, hub.ralph.env[name])
        yield hub


def copy(hub: Tracker, where: str = "12") -> Any:
    root, change = str(hub.ralph.root), github.name_change(where)
    tracker.update_copy(root, change, f"github:{where}", never)
    return specs.open(root, change, f"github:{where}")


def done_story(story: Story, commit: str = "abc123") -> DoneStory:
    return DoneStory(story, commit, "proven")


def publish(hub: Tracker, spec: Any, *ids: str, where: str = "12", complete: bool = False) -> list[str] | None:
    done = [done_story(story) for story in spec.stories() if story.id in ids]
    return github.publish(str(hub.ralph.root), spec.change, where, done, complete, never)


# --- reading ----------------------------------------------------------------------------------------


def test_an_issue_with_boxes_is_a_change(either: Tracker) -> None:
    spec = copy(either)
    assert spec.change == "github-12"
    assert outline(spec) == {"1": ["1.1"], "2": ["2.1", "2.2"], "3": ["3.1"]}
    first, form, later = spec.stories()
    assert (first.title, form.title, later.optional) == ("Add login", "Form", True)
    assert form.description == "Some words about it."
    assert form.tasks[1].text == "A button that can be pressed"
    assert done_ids(spec) == ["2.2"]
    assert spec.proposal() == BODY.strip()
    assert spec.ref == "github:12"


def test_a_milestone_is_a_change_of_issues(either: Tracker) -> None:
    put_issue(either, 3, "Second", "Depends on #2, #99\n\n- [ ] one\n- [x] two\n", milestone="v1.0")
    put_issue(either, 2, "First", "No boxes.", milestone="v1.0")
    put_issue(either, 4, "Past", "- [ ] left open", milestone="v1.0", state="CLOSED")
    spec = copy(either, "milestone:v1.0")
    assert spec.change == "github-milestone-v1-0"
    assert outline(spec) == {"2": ["2.1"], "3": ["3.1", "3.2"], "4": ["4.1"]}
    assert done_ids(spec) == ["3.2", "4.1"], "what is closed is done"
    assert spec.stories()[1].depends_on == ("2",), "issues that are not part of it are waited for by nobody"
    assert spec.stories()[0].tasks[0].text == "First"


def test_a_label_is_a_change_of_open_issues(either: Tracker) -> None:
    put_issue(either, 2, "First", "", labels=["ralph"])
    put_issue(either, 4, "Past", "", labels=["ralph"], state="CLOSED")
    assert outline(copy(either, "label:ralph")) == {"2": ["2.1"]}


def test_an_issue_that_is_not_there(either: Tracker) -> None:
    with pytest.raises(SpecError, match=r"`gh issue view` failed.*99"):
        copy(either, "99")
    with pytest.raises(SpecError, match=r"the milestone .*nope.* has no issues"):
        copy(either, "milestone:nope")
    assert not (either.ralph.root / issue_copy.FOLDER / "github-99.md").exists()


def test_it_keeps_the_contract(hub: Tracker) -> None:
    copy(hub)
    check_adapter(specs.adapter("github"), str(hub.ralph.root), "github-12")


def test_a_copy_keeps_the_contract_with_crlf_and_a_byte_order_mark(hub: Tracker) -> None:
    path = Path(copy(hub).path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    check_adapter(specs.adapter("github"), str(hub.ralph.root), "github-12")
    assert path.read_bytes().startswith(b"\xef\xbb\xbf")


@pytest.mark.parametrize(
    ("where", "change"),
    [("12", "github-12"), ("#12", "github-12"), ("label:good first", "github-label-good-first")],
)
def test_what_a_change_is_called(where: str, change: str) -> None:
    assert specs.change_of(f"github:{where}") == change


@pytest.mark.parametrize("where", ["0", "-1", "twelve", "1 2", "milestone:", "label:---", "project:x", "--repo=a/b"])
def test_what_names_no_issue(where: str) -> None:
    with pytest.raises(InvalidValue, match="github:12"):
        specs.change_of(f"github:{where}")


# --- without the network -------------------------------------------------------------------------------


def test_a_number_can_be_spelled_in_several_ways(hub: Tracker) -> None:
    assert copy(hub, "#12").ref == copy(hub, "012").ref == copy(hub).ref == "github:12"


def test_lists_and_agents_never_call_it(hub: Tracker) -> None:
    copy(hub)
    before = hub.calls()
    assert hub.ralph.run("list", "--json").json["changes"][0]["tasks_done"] == 1
    assert hub.ralph.run("show", "github-12", "--spec", "github:12").exit_code == 0
    hub.ralph.begin("github-12")
    assert hub.ralph.agent("task", "done", "1.1").json["story_complete"]
    assert hub.ralph.agent("context").json["tasks"] == [{"id": "1.1", "description": "Read the docs", "done": True}]
    assert hub.calls() == before


def test_what_is_configured_is_listed_and_says_how_to_copy_it(hub: Tracker) -> None:
    hub.ralph.write(".ralph/config.toml", '[specs.github]\nchanges = ["12", "label:ralph"]\n')
    root = str(hub.ralph.root)
    assert [place.change for place in specs.find_all(root)] == ["github-12", "github-label-ralph"]
    with pytest.raises(ChangeNotFound, match=r"not copied yet.*--spec github:12"):
        specs.open(root, "github-12")
    assert hub.calls() == []
    assert hub.ralph.run("show", "github-12", "--spec", "github:12").exit_code == 0
    assert len(hub.calls()) == 1
    assert outline(specs.open(root, "github-12"))["1"] == ["1.1"]


# --- copies -----------------------------------------------------------------------------------------


def test_a_later_copy_keeps_the_ticks_and_brings_what_is_new(hub: Tracker) -> None:
    spec = copy(hub)
    spec.tick("2.1")
    put_issue(hub, 12, "Add login", "## New\n- [ ] first\n" + BODY.replace("Read the docs", "Read more"))
    assert outline(copy(hub)) == {"1": ["1.1", "1.2"], "2": ["2.1", "2.2"], "3": ["3.1"]}
    assert [task.done for story in copy(hub).stories() for task in story.tasks] == [False, False, True, True, False]
    assert not copy(hub).stories()[0].done


def test_without_a_network_the_copy_is_used_and_that_is_said(hub: Tracker) -> None:
    copy(hub)
    hub.behave("fail")
    [told] = tracker.update_copy(str(hub.ralph.root), "github-12", "github:12", never)
    assert "no such host" in told
    assert "uses the copy of" in told


def test_without_a_network_and_a_copy_it_is_an_error_and_nothing_is_written(hub: Tracker) -> None:
    hub.behave("fail")
    result = hub.ralph.run("run", "--spec", "github:12", "--agent-command", "true")
    assert result.exit_code == 1
    assert "no such host" in result.stderr
    assert not (hub.ralph.root / issue_copy.FOLDER).exists()


HOSTILE = """\
# Not a title
## 9: Not a story
- [ ] real \u2028 box
<!-- depends on 7 -->
> quoted
```
- [ ] in a fence
```
- [ ] 1.9 has another's id \udcff\0
-->
"""


def test_the_text_of_an_issue_forges_nothing(hub: Tracker) -> None:
    put_issue(hub, 12, "Add\n## 8: login\r# x", HOSTILE)
    spec = copy(hub)
    assert outline(spec) == {"1": ["1.1", "1.2"]}
    [story] = spec.stories()
    assert story.title == "9: Not a story"
    assert story.depends_on == ()
    assert story.tasks[1].text.startswith("1.9 has another's id")
    assert "in a fence" in str(spec.proposal())


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("rubbish", "did not print JSON"),
        ("fail", "failed with exit status 1"),
        ("latin1", "not UTF-8"),
        ("wrong types", "without a number"),
        ("no objects", "not a list of objects"),
    ],
)
@pytest.mark.parametrize("where", ["12", "label:ralph"])
def test_a_program_that_misbehaves_is_one_clear_error(hub: Tracker, how: str, says: str, where: str) -> None:
    hub.behave(how)
    with pytest.raises(SpecError, match=says):
        copy(hub, where)
    assert not (hub.ralph.root / issue_copy.FOLDER).exists()


def test_a_program_that_hangs_is_ended(hub: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "SECONDS", 0.5)
    hub.behave("hang")
    with pytest.raises(SpecError, match=r"did not respond for 0.5 seconds"):
        copy(hub)


def test_a_program_that_prints_without_end_is_ended(hub: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "MOST_BYTES", 2**20)
    hub.behave("flood")
    with pytest.raises(SpecError, match="printed more than 1 MB"):
        copy(hub)


def test_a_program_is_ended_when_the_run_stops(hub: Tracker) -> None:
    hub.behave("hang")
    with pytest.raises(SpecError, match="because the run is stopping"):
        program.run(["gh", "issue", "view", "12"], str(hub.ralph.root), stop=lambda: True)


def test_a_program_that_is_not_there(hub: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(hub.folder))
    with pytest.raises(SpecError, match="gh is not on the PATH"):
        copy(hub)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("- [ ] a\n```\n- [ ] hidden\n", "never closed"),
        ("## A (depends on 2)\n- [ ] a\n## B (depends on 1)\n- [ ] b\n", "depend on each other"),
    ],
)
def test_what_an_issue_can_have_wrong(hub: Tracker, body: str, says: str) -> None:
    put_issue(hub, 12, "Add login", body)
    with pytest.raises(SpecError, match=says):
        copy(hub)
    assert not (hub.ralph.root / issue_copy.FOLDER).exists()


def test_a_circle_of_issues_is_refused(hub: Tracker) -> None:
    put_issue(hub, 2, "A", "- Blocked by #3", milestone="m")
    put_issue(hub, 3, "B", "**Depends on** #2.", milestone="m")
    with pytest.raises(SpecError, match="2, 3 depend on each other"):
        copy(hub, "milestone:m")


def test_a_pull_request_is_refused(hub: Tracker) -> None:
    hub.put(number=12, url="https://github.com/owner/name/pull/12")
    with pytest.raises(SpecError, match="pull request"):
        copy(hub)


def test_more_issues_than_anybody_reads_are_refused(hub: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(github_issues, "_MOST", 2)
    for number in (1, 2, 3):
        put_issue(hub, number, "A", "", labels=["ralph"])
    with pytest.raises(SpecError, match="more than 2 issues"):
        copy(hub, "label:ralph")


def test_an_issue_of_20_mb(hub: Tracker) -> None:
    put_issue(hub, 12, "Big", "".join(f"- [ ] box {number} {'x' * 10_000}\n" for number in range(2_100)))
    spec = copy(hub)
    assert len(spec.stories()[0].tasks) == 2_100
    spec.tick("1.2100")
    assert done_ids(spec) == ["1.2100"]


# --- spoiled copies -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["github-12.md", "github-13.md"])
def test_a_file_of_somebody_elses_is_left_alone(hub: Tracker, name: str) -> None:
    text = "# Mine\n" if name == "github-12.md" else issue_copy.render(("github", "12"), "x", "", [])
    file = hub.ralph.write(f"{issue_copy.FOLDER}/{name}", text)
    with pytest.raises(SpecError):
        copy(hub, name[7:9])
    assert file.read_text() == text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"## 2: Form", b"## Form"),
        (b"## 2: Form", b"- [ ] stray\n## 2: Form\xff"),
        (b"## 1: Add login", b"- [ ] stray\n## 1: Add login"),
        (b"## 2: Form", b"## 1: Form"),
        (b"## 2: Form\n", b"## 2: Form\n<!-- depends on 9 -->\n"),
    ],
)
def test_a_copy_that_is_damaged_is_refused(hub: Tracker, before: bytes, after: bytes) -> None:
    path = Path(copy(hub).path)
    assert before in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(before, after))
    with pytest.raises(SpecError, match=r"github-12\.md"):
        specs.open(str(hub.ralph.root), "github-12").stories()


def test_a_truncated_copy_is_one_with_less_in_it_or_an_error(hub: Tracker) -> None:
    path = Path(copy(hub).path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        try:
            known = specs.open(str(hub.ralph.root), "github-12", "github:12").stories()
        except RalphError:
            continue
        assert [story.id for story in known] == ["1", "2", "3"][: len(known)]


def test_links_that_lead_out_of_the_project_are_refused(hub: Tracker, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (hub.ralph.root / issue_copy.FOLDER).symlink_to(outside)
    with pytest.raises(UnsafePath):
        copy(hub)
    assert os.listdir(outside) == []
    (hub.ralph.root / issue_copy.FOLDER).unlink()
    spec = copy(hub)
    path = Path(spec.path)
    path.rename(outside / "real.md")
    path.symlink_to(outside / "real.md")
    before = (outside / "real.md").read_bytes()
    with pytest.raises(UnsafePath):
        spec.tick("1.1")
    with pytest.raises(UnsafePath):
        copy(hub)
    assert (outside / "real.md").read_bytes() == before


# --- writing ----------------------------------------------------------------------------------------


def test_without_write_nothing_is_written(hub: Tracker) -> None:
    spec = copy(hub)
    before = hub.issues
    assert publish(hub, spec, "1", complete=True) is None
    assert hub.issues == before


def test_a_proven_story_is_ticked_and_no_other_character_changes(either: Tracker) -> None:
    either.ralph.write(".ralph/config.toml", WRITE)
    body = BODY.replace("\n", "\r\n") + "é 🎉 no newline"
    put_issue(either, 12, "Add login", body)
    spec = copy(either)
    assert publish(either, spec, "2") == []
    assert either.issues["12"]["body"] == body.replace("[ ] A field", "[x] A field")
    assert either.issues["12"]["state"] == "OPEN"
    assert either.issues["12"]["comments"] == []


def test_a_complete_issue_gets_one_comment_and_is_closed(either: Tracker) -> None:
    either.ralph.write(".ralph/config.toml", WRITE)
    spec = copy(either)
    assert publish(either, spec, "1", "2", complete=True) == []
    issue = either.issues["12"]
    assert issue["state"] == "CLOSED"
    [comment] = issue["comments"]
    assert "Form: Done in commit abc123 (proven)" in comment["body"]
    assert "- [ ] Dark mode" in issue["body"], "what is optional keeps nothing open"
    either.put(number=12, state="OPEN")
    assert publish(either, spec, "1", "2", complete=True) == []
    assert len(either.issues["12"]["comments"]) == 1, "a run that was killed says it once"


def test_each_issue_of_a_milestone_is_closed_by_itself(either: Tracker) -> None:
    either.ralph.write(".ralph/config.toml", WRITE)
    put_issue(either, 2, "First", "- [ ] one", milestone="m")
    put_issue(either, 3, "Second", "", milestone="m")
    spec = copy(either, "milestone:m")
    assert publish(either, spec, "2", where="milestone:m") == []
    assert {number: issue["state"] for number, issue in either.issues.items()} == {
        "12": "OPEN",
        "2": "CLOSED",
        "3": "OPEN",
    }
    assert either.issues["2"]["body"] == "- [x] one"


def test_what_somebody_edited_meanwhile_stays(hub: Tracker) -> None:
    hub.ralph.write(".ralph/config.toml", WRITE)
    spec = copy(hub)
    edited = "- [ ] A new box on top\n\n" + BODY.replace("- [ ] Read the docs", "").replace("## Form", "## The form")
    put_issue(hub, 12, "Add a login", edited)
    told = publish(hub, spec, "1", "2", complete=True)
    assert hub.issues["12"]["body"] == edited.replace("[ ] A field", "[x] A field")
    assert told is not None
    assert "no longer has the box" in told[0]
    assert "Read the docs" in told[0]
    assert "stays open" in told[1]
    assert hub.issues["12"]["state"] == "OPEN"


def test_boxes_with_the_same_words_are_told_apart_by_their_heading(hub: Tracker) -> None:
    hub.ralph.write(".ralph/config.toml", WRITE)
    put_issue(hub, 12, "T", "## A\n- [ ] tests\n## B\n- [ ] tests\n")
    spec = copy(hub)
    assert publish(hub, spec, "2") == []
    assert hub.issues["12"]["body"] == "## A\n- [ ] tests\n## B\n- [x] tests\n"


def test_an_edit_that_is_lost_is_made_again_and_then_given_up(hub: Tracker) -> None:
    """A person's editor had the page open, and saves its own text over ralphtool's."""
    hub.ralph.write(".ralph/config.toml", WRITE)
    spec = copy(hub)
    source = (hub.bin / "gh").read_text()
    hub.write_program(source.replace('issue["body"] = sys', "dropped = sys"))
    with pytest.raises(SpecError, match="did not store the update"):
        publish(hub, spec, "1")
    edits = [call for call in hub.calls() if call[1] == "edit"]
    assert len(edits) == 3


def test_an_issue_without_boxes_is_closed_without_an_edit(hub: Tracker) -> None:
    hub.ralph.write(".ralph/config.toml", WRITE)
    put_issue(hub, 12, "Small", "Just do it.")
    spec = copy(hub)
    assert outline(spec) == {"1": ["1.1"]}
    assert publish(hub, spec, "1", complete=True) == []
    assert hub.issues["12"]["state"] == "CLOSED"
    assert hub.issues["12"]["body"] == "Just do it."


def test_the_repository_can_be_named(hub: Tracker) -> None:
    hub.ralph.write(".ralph/config.toml", '[specs.github]\nrepository = "owner/name"\n')
    copy(hub)
    assert "--repo=owner/name" in hub.calls()[-1]
    hub.ralph.write(".ralph/config.toml", '[specs.github]\nrepository = "--web"\n')
    with pytest.raises(InvalidValue, match="owner/name"):
        copy(hub)


def test_no_task_text_becomes_an_option_or_a_shell_word(hub: Tracker) -> None:
    hub.ralph.write(".ralph/config.toml", WRITE)
    put_issue(hub, 12, "--web", "- [ ] $(touch pwned) `touch pwned`\n")
    spec = copy(hub)
    assert publish(hub, spec, "1", complete=True) == []
    assert not (hub.ralph.root / "pwned").exists()
    assert all("pwned" not in " ".join(call) and "--web" not in call for call in hub.calls())


def test_a_story_says_what_it_rests_on() -> None:
    story = Story("1", "A", [Task("1.1", "a", True)])
    assert done_story(story, "0123456789abcdef").describe() == "Done in commit 0123456789ab (proven), by ralphtool"
