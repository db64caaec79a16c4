"""Whole runs over changes that live in an issue tracker: what is copied, what is published there, and when."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lab import DONE, Lab
from project import Result
from specs.trackers import Tracker, put_bead, put_issue

BODY = "## One\n\n- [ ] a\n\n## Two\n\n- [ ] b\n"
COPY = ".ralph-issues/github-12.md"


@pytest.fixture
def hub(lab: Lab) -> Tracker:
    made = Tracker(lab, "gh")
    put_issue(made, 12, "Add login", BODY)
    return made


def prepare(lab: Lab, specs: str = "[specs.github]\nwrite = true\n", **config: Any) -> Lab:
    lab.git("init", "--quiet", "--initial-branch=main")
    lab.git("config", "user.name", "Tester")
    lab.git("config", "user.email", "tester@example.org")
    lab.write("README.md", "hello\n")
    lab.git("add", "README.md")
    lab.git("commit", "--quiet", "--message=first")
    lab.configure(**config)
    lab.write(".ralph/config.toml", lab.read(".ralph/config.toml") + specs)
    return lab.play(default=DONE)


def notices(lab: Lab, result: Result) -> str:
    return "\n".join(event["text"] for event in lab.events(result) if event["type"] == "notice")


def on_branch(lab: Lab, path: str = COPY, change: str = "github-12") -> str:
    return lab.git("show", f"ralph/{change}:{path}")


@pytest.mark.parametrize("workspace", ["here", "worktree"])
def test_an_issue_is_copied_worked_on_ticked_and_closed(lab: Lab, hub: Tracker, workspace: str) -> None:
    prepare(lab, workspace=workspace)
    result = lab.loop("--spec", "github:12")
    assert result.exit_code == 0, result.stdout
    assert lab.checkpoints("github-12") == ["1", "2"]
    assert on_branch(lab).count("- [x]") == 2
    assert lab.read(COPY).count("\n- [ ]") == 2, "the user's own copy is as it was made"
    issue = hub.issues["12"]
    assert issue["body"] == BODY.replace("[ ]", "[x]")
    assert issue["state"] == "CLOSED"
    tips = lab.git("log", "--format=%h", "--abbrev=12", "--grep=Ralph-Story", "ralph/github-12").split()
    assert all(tip in issue["comments"][0]["body"] for tip in tips)
    verbs = [call[1] for call in hub.calls()]
    assert verbs.index("edit") < len(verbs) - 1 - verbs[::-1].index("edit"), "each story is told when it is done"


def test_the_change_can_be_finished_and_is_copied_again_afterwards(lab: Lab, hub: Tracker) -> None:
    prepare(lab, workspace="worktree")
    assert lab.loop("--spec", "github:12").exit_code == 0
    done = lab.run("finish", "github-12", "--squash")
    assert done.exit_code == 0, done.stderr
    lab.git("commit", "--quiet", "--all", "--message=login")
    assert lab.read(COPY).count("\n- [x]") == 2
    hub.put(number=12, body=hub.issues["12"]["body"] + "- [ ] c\n", state="OPEN")
    lab.play(default=[{"run": "echo more > {story}.txt"}, *DONE[1:]])
    result = lab.loop("github-12")
    assert result.exit_code == 0, result.stdout
    assert hub.issues["12"]["body"].count("[x]") == 3
    assert lab.checkpoints("github-12")[-1] == "2"


def test_nothing_is_told_without_write(lab: Lab, hub: Tracker) -> None:
    prepare(lab, specs="")
    before = hub.issues
    assert lab.loop("--spec", "github:12").exit_code == 0
    assert hub.issues == before
    assert on_branch(lab).count("- [x]") == 2
    lab.write(".ralph/config.toml", lab.read(".ralph/config.toml") + "[specs.github]\nwrite = true\n")
    assert lab.loop("github-12").exit_code == 0
    assert hub.issues["12"]["state"] == "CLOSED", "the next run may write, and tells all"


def test_what_is_not_proven_is_not_told(lab: Lab, hub: Tracker) -> None:
    prepare(lab, accept="held")
    assert lab.loop("--spec", "github:12").exit_code == 1
    assert hub.issues["12"]["body"] == BODY
    done = lab.run("accept", "1", "--change", "github-12")
    assert done.exit_code == 0, done.stderr
    assert hub.issues["12"]["body"] == BODY.replace("[ ] a", "[x] a"), "a person has decided, and it is told at once"
    assert hub.issues["12"]["state"] == "OPEN"


def test_an_outage_stops_no_run_and_the_next_one_tells_it(lab: Lab, hub: Tracker) -> None:
    prepare(lab)
    steps = [{"run": f"echo '\"fail\"' > {hub.folder}/behaviour"}, *DONE]
    lab.play(default=steps)
    result = lab.loop("--spec", "github:12")
    assert result.exit_code == 0
    assert "could not be sent to github" in notices(lab, result)
    assert "no such host" in notices(lab, result)
    assert hub.issues["12"]["body"] == BODY
    hub.behave("")
    result = lab.loop("github-12")
    assert result.exit_code == 0
    assert hub.issues["12"]["state"] == "CLOSED"
    assert len(hub.issues["12"]["comments"]) == 1


def test_a_run_that_was_killed_before_it_noted_what_it_told_tells_it_once(lab: Lab, hub: Tracker) -> None:
    prepare(lab)
    assert lab.loop("--spec", "github:12").exit_code == 0
    (lab.root / ".ralph/published/github-12.json").unlink()
    hub.put(number=12, state="OPEN")
    assert lab.loop("github-12").exit_code == 0
    assert hub.issues["12"]["state"] == "CLOSED"
    assert len(hub.issues["12"]["comments"]) == 1


def test_notes_that_are_damaged_are_told_and_stop_nothing(lab: Lab, hub: Tracker) -> None:
    prepare(lab)
    lab.write(".ralph/published/github-12.json", "{")
    result = lab.loop("--spec", "github:12")
    assert result.exit_code == 0
    assert "is damaged" in notices(lab, result)


def test_an_issue_that_is_edited_meanwhile_is_told(lab: Lab, hub: Tracker) -> None:
    prepare(lab, max_iterations=1)
    assert lab.loop("--spec", "github:12").exit_code == 1
    assert hub.issues["12"]["body"] == BODY.replace("[ ] a", "[x] a")
    put_issue(hub, 12, "Add login", hub.issues["12"]["body"] + "- [ ] c\n")
    result = lab.loop("github-12", "--max-iterations", "0")
    assert result.exit_code == 0
    assert "were edited after its branch was created" in notices(lab, result)
    assert "stays open: it has a box that was not part of this run" in notices(lab, result)
    assert hub.issues["12"]["body"] == BODY.replace("[ ]", "[x]") + "- [ ] c\n"
    assert hub.issues["12"]["state"] == "OPEN"


def test_a_change_without_an_edit_is_told_nothing(lab: Lab, hub: Tracker) -> None:
    prepare(lab, max_iterations=1)
    assert lab.loop("--spec", "github:12").exit_code == 1
    assert "edited after" not in notices(lab, lab.loop("github-12"))


def test_a_rejected_story_is_said_to_be_told_already(lab: Lab, hub: Tracker) -> None:
    prepare(lab, max_iterations=1)
    assert lab.loop("--spec", "github:12").exit_code == 1
    done = lab.run("reject", "1", "--change", "github-12", "--why", "no")
    assert "reopen it there" in done.stdout + done.stderr
    assert json.loads(lab.read(".ralph/published/github-12.json")) == {}


def test_an_agent_that_edits_the_copy_is_caught(lab: Lab, hub: Tracker) -> None:
    prepare(lab, attempts=1)
    lab.play(default=[{"run": f"sed -i 's/1.1 a/1.1 nothing/' {COPY}"}, *DONE])
    result = lab.loop("--spec", "github:12")
    assert result.exit_code == 1
    assert lab.checkpoints("github-12") == []
    assert hub.issues["12"]["body"] == BODY


@pytest.mark.parametrize("program", ["bd", "br"])
def test_an_epic_is_closed_at_the_end_when_the_tree_is_the_users_again(lab: Lab, program: str) -> None:
    made = Tracker(lab, program)
    put_bead(made, "shop-1", "Add login", issue_type="epic")
    put_bead(made, "shop-1.1", "Log in", "shop-1")
    put_bead(made, "shop-1.2", "Log out", "shop-1", ["shop-1.1"])
    prepare(lab, specs=f'[specs.beads]\nprogram = "{program}"\n')
    source, seen = (made.bin / program).read_text(), made.folder / "heads"
    look = ["import subprocess", f"heads = open({str(seen)!r}, 'a')", "ask = ['git', 'symbolic-ref', 'HEAD']"]
    look += ["if words[0] == 'close': heads.write(subprocess.check_output(ask, text=True))", "heads.close()", ""]
    made.write_program(source.replace("verb, ids = words[0]", "\n".join(look) + "verb, ids = words[0]"))
    result = lab.loop("--spec", "beads:shop-1")
    assert result.exit_code == 0, result.stdout
    assert {issue["status"] for issue in made.issues.values()} == {"closed"}
    assert set(seen.read_text().split()) == {"refs/heads/main"}, "never while the branch is in the user's tree"
    assert made.issues["shop-1.2"]["close_reason"].startswith("Done in commit ")
