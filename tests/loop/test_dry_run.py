"""`ralphtool run --dry-run` shows what a run would do, and does none of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab import DONE, Lab
from sandbox.boxes import needs_box

from ralphtool.loop.dryrun import TOKEN

STORIES = """\
## 1. First

- [x] 1.1 Make a

## 2. Second (depends on 3)

- [ ] 2.1 Make b

## 3. Third

- [ ] 3.1 Make c
- [ ] 3.2 Make d

## 4. Fourth (optional)

- [ ] 4.1 Make e
"""


def everything(root: Path) -> dict[str, bytes]:
    """Every file of the project, `.ralph` and `.git` included."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.fixture
def planned(lab: Lab) -> Lab:
    lab.repository(STORIES, tests=["true"])
    return lab.play(default=DONE)


def test_stories_come_in_the_order_of_a_run_with_what_each_waits_for(planned: Lab) -> None:
    told = planned.run("run", "--dry-run", "--json").json
    assert [(one["id"], one["state"], one["waits_for"]) for one in told["steps"]] == [
        ("1", "done", []),
        ("3", "ready", []),
        ("4", "ready", []),
        ("2", "later", ["3"]),
    ]
    assert (told["first"], told["gates"], told["agents"], told["trouble"]) == ("3", ["true"], ["scripted"], None)
    shown = planned.run("run", "--dry-run").stdout
    assert "[ ] 3. Third  0/2  (first)" in shown
    assert "[ ] 2. Second (depends on 3)  0/1  (waits for 3)" in shown


def test_the_prompt_is_the_one_that_is_sent_then(planned: Lab) -> None:
    planned.run("guide", "3", "Mind the gap")
    told = planned.run("run", "--dry-run", "--json").json["prompt"]
    assert planned.loop("--max-iterations", "1").exit_code == 1
    [sent] = [path.read_text() for path in planned.root.glob(".ralph/runs/*/001-*/prompt.md")]
    [token] = [line for line in sent.splitlines() if line.startswith("token: ")]
    assert f"token: {TOKEN}" in told
    assert told.replace(f"token: {TOKEN}", token) == sent


@needs_box
def test_the_first_prompt_in_a_box_is_the_one_that_is_sent_then(lab: Lab) -> None:
    lab.repository(STORIES, tests=["true"], workspace="auto").play(default=DONE)
    told = lab.run("run", "--dry-run", "--json").json
    assert told["workspace"][0].startswith("work happens in a box")
    lab.loop("--max-iterations", "1")
    [sent] = [path.read_text() for path in lab.root.glob(".ralph/runs/*/001-*/prompt.md")]
    [token] = [line for line in sent.splitlines() if line.startswith("token: ")]
    assert told["prompt"].replace(f"token: {TOKEN}", token) == sent
    assert "You are in a sandbox." in sent
    assert "or freely in" not in sent


def test_after_a_part_was_kept_and_something_learnt_too(planned: Lab) -> None:
    partly = [{"learn": "The tests need a database"}, {"run": "echo c > c.txt"}, {"tick": "3.1"}]
    planned.play({"story": "3", "attempt": 1, "steps": partly}, default=DONE)
    assert planned.loop("--max-iterations", "1").exit_code == 1
    before = everything(planned.root)
    told = planned.run("run", "--dry-run", "--json").json
    assert everything(planned.root) == before
    assert planned.loop("--max-iterations", "1").exit_code == 1
    sent = max(planned.root.glob(".ralph/runs/*/001-*/prompt.md"), key=lambda path: path.stat().st_mtime_ns).read_text()
    [token] = [line for line in sent.splitlines() if line.startswith("token: ")]
    assert "[x] 3.1" in sent
    assert "The tests need a database" in sent
    assert told["prompt"].replace(f"token: {TOKEN}", token) == sent


def test_nothing_is_changed(planned: Lab) -> None:
    before, made = everything(planned.root), everything(planned.tmp)
    assert planned.run("run", "--dry-run").exit_code == 0
    assert (everything(planned.root), everything(planned.tmp)) == (before, made)


def test_a_progress_txt_is_only_taken_over_by_a_run_which_says_so(planned: Lab) -> None:
    planned.write("progress.txt", "# Progress\n\n## Codebase Patterns\n- Use cents\n")
    before = everything(planned.root)
    assert planned.run("run", "--dry-run").exit_code == 0
    assert everything(planned.root) == before
    told = planned.run("run", "--max-iterations", "1")
    assert "progress.txt of another loop is now part of the history" in told.stdout
    assert not (planned.root / "progress.txt").exists()


def test_what_keeps_a_run_from_beginning_is_told(planned: Lab) -> None:
    planned.configure(agent="nobody")
    told = planned.run("run", "--dry-run")
    assert told.exit_code == 1
    assert "unknown agent 'nobody'" in told.stdout
    assert "Make c" in told.stdout, "the plan is shown all the same"
    planned.begin()
    assert "locked by session s1" in planned.run("run", "--dry-run").stdout


def test_mistakes_in_a_script_are_lines(planned: Lab) -> None:
    planned.play({"steps": [{"wirte": 1}]})
    told = planned.run("run", "--dry-run").stdout
    assert "the script is invalid:\n" in told
    assert "\\n" not in told


def test_nothing_left_to_do(planned: Lab) -> None:
    assert planned.loop().exit_code == 0
    told = planned.run("run", "--dry-run")
    assert (told.exit_code, "No story can be worked on now" in told.stdout) == (0, True)


def test_what_is_ticked_and_not_proven_is_not_done(lab: Lab) -> None:
    """Without git, ticks stay, even those of an attempt without a promise."""
    lab.openspec("## 1. First\n\n- [ ] 1.1 Make a\n\n## 2. Second\n\n- [ ] 2.1 Make b\n")
    lab.configure()
    lab.play(default=[{"tick": "all"}])
    assert lab.loop("--max-iterations", "1").exit_code == 1
    told = lab.run("run", "--dry-run", "--json").json
    assert [(one["id"], one["state"], one["tasks_done"]) for one in told["steps"]] == [
        ("1", "ready", 1),
        ("2", "ready", 0),
    ]
    lab.play(default=DONE)
    started = [one["story"] for one in lab.events(lab.loop()) if one["type"] == "iteration_started"]
    assert (started[0], told["first"]) == ("1", "1"), "the run begins where the plan does"


@pytest.mark.parametrize(("workspace", "where"), [("here", "your own folder"), ("worktree", "in a worktree")])
def test_where_work_would_happen_is_told(lab: Lab, workspace: str, where: str) -> None:
    lab.repository(workspace=workspace).play(default=DONE)
    told = lab.run("run", "--dry-run").stdout
    assert f"work happens in {where.removeprefix('in ')}" in told
    assert lab.run("run", "--dry-run", "--json").json["workspace"]


def test_a_project_without_commits_gets_a_command_that_works(lab: Lab) -> None:
    lab.git("init", "--quiet", "--initial-branch=main")
    lab.openspec(STORIES).configure()  # type: ignore[attr-defined]
    lab.play(default=DONE)
    end = lab.events(lab.loop())[-1]
    [command] = [step["run"] for step in end["next"] if step["run"].startswith("git log")]
    lab.git(*command.split()[1:])


@pytest.mark.parametrize(("stories", "words"), [(1, ""), (2, "With --side-by-side 2:"), (6, "With --side-by-side 4:")])
def test_no_more_stories_at_once_are_suggested_than_there_are(lab: Lab, stories: int, words: str) -> None:
    numbers = range(1, stories + 1)
    lab.repository("".join(f"## {one}. Part\n\n- [ ] {one}.1 Make it\n\n" for one in numbers))
    shown = lab.run("run", "--dry-run").stdout.partition("The first prompt")[0]
    assert words in shown
    assert ("--side-by-side" in shown) == bool(words)
    assert (f"stories {', '.join(map(str, numbers))} at once\n" in shown) == bool(words)
