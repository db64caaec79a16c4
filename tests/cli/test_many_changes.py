"""Several changes in one project: which one a command means, and all of them in order."""

from __future__ import annotations

import os
import pty
import subprocess

import click
import pytest
from lab import DONE, Lab
from patience import PATIENCE
from project import COMMAND

PLAN = "# {title}\n\n## Part\n\n- [ ] Write it\n"


@pytest.fixture
def two(lab: Lab) -> Lab:
    """Two open checklists, and one that is done."""
    lab.repository()
    lab.git("rm", "-rq", "openspec")
    for name, title in (("colours", "Nicer colours"), ("sounds", "Better sounds")):
        lab.write(f"plans/{name}.md", PLAN.format(title=title))
    lab.write("plans/old.md", PLAN.format(title="Long ago").replace("[ ]", "[x]"))
    lab.git("add", "plans")
    lab.git("commit", "--quiet", "--message=plans")
    lab.play(default=DONE)
    return lab


def test_without_a_terminal_run_names_the_open_ones(two: Lab) -> None:
    told = two.run("run")
    assert told.exit_code == 2
    assert "several changes are open: name one, or use --all: colours, sounds" in told.stderr
    assert two.events() == []


def test_in_a_terminal_run_asks_which(two: Lab) -> None:
    mine, theirs = pty.openpty()
    process = subprocess.Popen(
        [COMMAND, "run"], cwd=two.root, env=two.env | {"TERM": "xterm"}, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    os.write(mine, b"2\n")
    shown = read_all(mine)
    assert process.wait(timeout=PATIENCE) == 0, shown
    assert "1  Nicer colours (colours): 1 of 1 stories open" in shown
    assert two.git("log", "-1", "--format=%s", "ralph/sounds")
    assert two.git("branch", "--list", "ralph/colours") == ""


@pytest.mark.parametrize("answers", [["sounds"], ["sonds", "9", "sounds"]])
def test_the_answer_may_be_a_name(two: Lab, answers: list[str]) -> None:
    mine, theirs = pty.openpty()
    command, env = [COMMAND, "run", "--dry-run"], two.env | {"TERM": "xterm"}
    process = subprocess.Popen(command, cwd=two.root, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(mine, "".join(f"{one}\n" for one in answers).encode())
    shown = click.unstyle(read_all(mine))
    assert "sounds: what a run would do" in shown
    assert process.wait(timeout=PATIENCE) == 0, shown
    assert ("'sonds' is not in the list: did you mean sounds?" in shown) == ("sonds" in answers)
    assert ("'9' is not in the list: enter a number from 1 to 2, or a name" in shown) == ("9" in answers)


@pytest.mark.parametrize(("answer", "moved"), [(b"\n", True), (b"n\n", False)])
def test_in_a_terminal_run_offers_to_move_a_plan_out_of_our_folder(lab: Lab, answer: bytes, moved: bool) -> None:
    """Another loop keeps its plan there, but a run commits no files in .ralph."""
    lab.repository().play(default=DONE)
    lab.git("rm", "-rq", "openspec")
    plan = lab.write(".ralph/fix_plan.md", PLAN.format(title="Repairs"))
    lab.git("add", "--force", ".ralph/fix_plan.md")
    lab.git("commit", "--quiet", "--message=another loop's plan")
    assert "mv .ralph/fix_plan.md fix_plan.md" in lab.run("run").stderr
    mine, theirs = pty.openpty()
    env = lab.env | {"TERM": "xterm"}
    process = subprocess.Popen([COMMAND, "run"], cwd=lab.root, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(mine, answer)
    shown = read_all(mine)
    assert "Move it to fix_plan.md [Y/n]" in shown
    assert (process.wait(timeout=PATIENCE) == 0) == moved, shown
    assert (plan.exists(), (lab.root / "fix_plan.md").exists()) == (not moved, moved)
    if moved:
        assert "- [x] Write it" in lab.git("show", "ralph/fix_plan:fix_plan.md")
        finished = lab.run("finish", "fix_plan", "--merge")
        assert finished.exit_code == 0, finished.stderr
        assert "- [x] Write it" in lab.read("fix_plan.md")
        assert not plan.exists(), "what was moved stays moved"


def read_all(terminal: int) -> str:
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # Linux raises this when the other end is closed
            part = b""
        if not part:
            os.close(terminal)
            return b"".join(parts).decode(errors="replace")
        parts.append(part)


def test_all_of_them_run_in_order(two: Lab) -> None:
    told = two.run("run", "--all")
    assert told.exit_code == 0, told.stderr
    started = [event["change"] for event in two.events() if event["type"] == "run_started"]
    assert started == ["colours", "sounds"]
    again = two.run("run", "--all")
    assert (again.exit_code, "every change is complete" in again.stderr) == (1, True)


def test_one_that_fails_does_not_hold_up_the_next(two: Lab) -> None:
    two.play({"told": "colours", "attempt": 1, "steps": [{"say": "I could not."}]}, default=DONE)
    told = two.run("run", "--all", "--attempts", "1")
    assert told.exit_code == 1
    assert two.git("branch", "--list", "ralph/sounds") != ""


def test_all_and_a_name_are_too_much(two: Lab) -> None:
    told = two.run("run", "--all", "colours")
    assert (told.exit_code, "leave CHANGE out" in told.stderr) == (2, True)


def test_what_is_done_can_still_be_named(two: Lab) -> None:
    assert two.run("run", "--all").exit_code == 0
    told = two.run("run")
    assert told.exit_code == 2
    assert "every readable change is complete; to run one anyway, name it" in told.stderr


def test_new_always_works_and_names_the_change_after_its_title(two: Lab) -> None:
    first, second = two.run("new", "Second thing"), two.run("new", "Second thing")
    assert (first.exit_code, second.exit_code) == (0, 0), second.stderr
    names = [one["name"] for one in two.run("list", "--json").json["changes"]]
    assert {"second-thing", "second-thing-2"} <= set(names)
    assert (two.root / "plans/second-thing-2.md").read_text().startswith("# Second thing\n")


def test_a_title_in_other_letters_makes_a_change_too(two: Lab) -> None:
    made = two.run("new", "日本語", "--json").json
    assert made["change"] == "change"
    assert (two.root / "plans/change.md").read_text().startswith("# 日本語\n")
    assert "日本語" in two.run("list").stdout


@pytest.mark.parametrize("name", ["x.lock", "x.", "a..b"])
def test_a_name_that_can_be_no_branch_is_refused(two: Lab, name: str) -> None:
    told = two.run("new", "Locks", "--name", name)
    assert (told.exit_code, "can't be called" in told.stderr) == (1, True), told.stderr


def test_the_list_says_which_changes_need_an_answer(two: Lab) -> None:
    two.play(default=[{"blocked": "Which one?"}])
    assert "answer" not in two.run("list").stdout
    assert two.run("run", "colours").exit_code == 1
    asked = len(two.run("questions", "--json").json["questions"])
    words = "1 story needs your answer" if asked == 1 else f"{asked} stories need your answer"
    listed = two.run("list").stdout
    assert listed.count(f"{words}: `ralphtool questions`") == 1
    for one in two.run("questions", "--json").json["questions"]:
        assert two.run("answer", one["story"], "Both", "--change", "colours").exit_code == 0
    assert "your answer" not in two.run("list").stdout


def test_suggested_commands_name_the_change_where_several_have_that_story(two: Lab) -> None:
    two.git("rm", "--quiet", "--cached", "plans/colours.md", "plans/sounds.md", "plans/old.md")
    two.git("commit", "--quiet", "--message=plans are not committed")
    two.configure(workspace="worktree")
    two.play(default=[{"blocked": "Which one?"}])
    told = [two.run("run", name).stdout for name in ("colours", "sounds")]
    assert 'ralphtool answer 1 "…" --change sounds' in told[1]
    assert "1. Part 0/1  (needs your answer: `ralphtool questions`)" in two.run("show", "sounds").stdout
    asked = two.run("questions", "--change", "sounds").stdout
    assert 'ralphtool answer 1 "…" --change sounds' in asked
    assert two.run("answer", "1", "Both", "--change", "sounds").exit_code == 0
    assert "add --change NAME (colours, old, sounds)" in two.run("explain", "1").stderr


def test_two_plans_of_one_name_are_told_apart(two: Lab) -> None:
    """As other loops leave them. Only the first one has been run."""
    two.write("fix_plan.md", PLAN.format(title="Repairs") + "\n## More\n\n- [ ] Write more\n")
    two.write(".ralph/fix_plan.md", PLAN.format(title="Old repairs").replace("[ ]", "[x]"))
    two.git("add", "fix_plan.md")
    two.git("commit", "--quiet", "--message=repairs")
    told = two.loop("fix_plan", "--spec", "fix_plan.md", "--max-iterations", "1")
    assert "ralphtool run fix_plan --spec fix_plan.md" in told.stdout
    [mine, theirs] = [line for line in two.run("list").stdout.splitlines() if line.startswith("fix_plan")]
    assert "stories 1/2: 1 not proven" in mine
    assert theirs.split("stories ")[1].split() == ["1/1", ".ralph/fix_plan.md"]
    shown = [two.run("show", "fix_plan", "--spec", file).stdout for file in ("fix_plan.md", ".ralph/fix_plan.md")]
    assert ["not proven" in one for one in shown] == [True, False]
    assert "`ralphtool run fix_plan --spec fix_plan.md`" in two.run("finish", "fix_plan").stdout
    refused = two.run("run", "fix_plan", "--spec", ".ralph/fix_plan.md").stderr
    assert "`mv .ralph/fix_plan.md plans/fix_plan-2.md`" in refused, "it would replace the other plan"
    two.write("plans/fix_plan.md", PLAN.format(title="Newer repairs"))
    refused = two.run("run", "fix_plan", "--spec", "plans/fix_plan.md").stderr
    assert "another plan of that name (fix_plan.md): finish that one first, or rename plans/fix_plan.md" in refused
