"""A command that a message suggests works when it is pasted, also if there are several changes."""

from __future__ import annotations

import shlex

import pytest
from lab import DONE, Lab

from ralphtool.record import change_flag

PLAN = "# Plan\n\n## 1. First\n\n- [ ] 1.1 Make a\n\n## 2. Second\n\n- [ ] 2.1 Make b\n"
UNPROVEN = [{"observe": "finding", "title": "it is there already"}, {"tick": "all"}, {"complete": True}]


@pytest.fixture
def two(lab: Lab) -> Lab:
    """Two changes with the same stories. Story 1 of `colours` is done, not proven; story 2 needs an answer."""
    lab.repository(attempts=1)
    lab.git("rm", "-rq", "openspec")
    for name in ("colours", "sounds"):
        lab.write(f"plans/{name}.md", PLAN)
    lab.git("add", "plans")
    lab.git("commit", "--quiet", "--message=plans")
    lab.play({"story": "1", "attempt": 1, "steps": UNPROVEN}, default=[{"blocked": "Which one?"}])
    lab.loop("colours")
    return lab


def paste(lab: Lab, command: str) -> int:
    program, *arguments = shlex.split(command.replace("…", "Because"))
    assert program == "ralphtool"
    return lab.run(*arguments).exit_code


def test_the_commands_of_questions(two: Lab) -> None:
    listed = two.run("questions").stdout
    commands = [line.strip() for line in listed.partition("      or edit")[0].splitlines() if "ralphtool" in line]
    assert commands == [
        "ralphtool accept 1 --change colours",
        'ralphtool reject 1 --why "…" --change colours',
        'ralphtool answer 2 "…" --change colours',
    ]
    assert [paste(two, command) for command in commands] == [0, 0, 0]


def test_the_commands_of_other_messages(two: Lab) -> None:
    told = [
        two.run("answer", "1", "Both").stderr,
        two.run("answer", "2").stderr,
        two.run("guide", "1", "Use cents", "--change", "colours").stdout,
        two.run("guide", "2", "Use cents", "--change", "colours").stdout,
        two.run("guide", "--change", "sounds").stdout,
        two.run("reject", "2", "--change", "colours").stdout,
        two.run("run", "colours", "--dry-run").stdout,
    ]
    for text in told:
        commands = [one for one in " ".join(text.split()).split("`")[1::2] if one.startswith("ralphtool")]
        about = [one for one in commands if one.split()[1] in ("accept", "reject", "answer", "retry", "guide")]
        assert about, text
        assert all(" --change " in one for one in about), text


def test_without_git_no_command_is_suggested_that_needs_it(lab: Lab) -> None:
    lab.write("plans/colours.md", "# Plan\n\n## 1. First\n\n- [ ] 1.1 Make a\n")
    lab.configure(accept="held")
    lab.play(default=DONE)
    commands = (["run"], ["explain", "1"], ["report"], ["report", "--output", "-", "--format", "html"])
    told = [lab.run(*command).stdout for command in commands]
    assert all("ralphtool accept" in text for text in told)
    assert not [text for text in told if "ralphtool reject" in text or "ralphtool diff" in text]


def test_a_change_that_is_alone_is_not_named(lab: Lab) -> None:
    root = str(lab.root)
    others = [lab.write(f"plans/{name}.md", PLAN) for name in ("colours", "sounds")]
    assert change_flag.build("colours", root) == " --change colours"
    others[1].unlink()
    assert change_flag.build("colours", root) == ""
    assert change_flag.build("gone", root) == " --change gone", "without it, the only other change would be meant"


def test_a_skip_is_shown_with_the_command_that_undoes_it(lab: Lab) -> None:
    for name in ("colours", "sounds"):
        lab.write(f"plans/{name}.md", PLAN)
    assert lab.run("skip", "2", "--change", "sounds").exit_code == 0
    shown = lab.run("show", "sounds").stdout
    assert "[ ] 1. First 0/1\n" in shown
    assert "[ ] 2. Second 0/1  (skipped; `ralphtool retry 2 --change sounds` undoes it)" in shown
    listed = lab.run("list").stdout
    assert listed.count("1 story is skipped: `ralphtool show sounds`") == 1
    assert paste(lab, "ralphtool retry 2 --change sounds") == 0
    assert "skipped" not in lab.run("show", "sounds").stdout + lab.run("list").stdout


def test_an_optional_story_that_a_run_skipped_is_shown(lab: Lab) -> None:
    lab.repository("## 1. Nice (optional)\n\n- [ ] 1.1 Make a\n", attempts=1).play(default=[{"say": "I give up."}])
    lab.loop()
    assert "(skipped; `ralphtool retry 1` undoes it)" in lab.run("show").stdout
    assert "1 story is skipped" in lab.run("list").stdout


def test_a_run_that_left_only_skipped_stories_suggests_what_helps(lab: Lab) -> None:
    lab.repository(tasks=PLAN).play(default=DONE)
    assert lab.run("skip", "2").exit_code == 0
    assert lab.loop().exit_code == 1
    steps = [step["run"] for step in lab.events()[-1]["next"]]
    review = "git log -p HEAD..ralph/add-login"
    assert steps[-3:] == ["ralphtool retry 2", review, "ralphtool finish add-login --squash"]
    assert "ralphtool run add-login" not in lab.run("report").stdout
    assert [paste(lab, "ralphtool retry 2"), lab.loop().exit_code] == [0, 0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["accept", "1"], "several changes have a story 1: add --change NAME (colours, sounds)"),
        (["reject", "1"], "several changes have a story 1: add --change NAME (colours, sounds)"),
        (["retry", "1"], "several changes have a story 1: add --change NAME (colours, sounds)"),
        (["skip", "1"], "several changes have a story 1: add --change NAME (colours, sounds)"),
        (["guide", "1", "Use cents"], "several changes have a story 1: add --change NAME (colours, sounds)"),
        (["guide", "1", "--clear"], "several changes have a story 1: add --change NAME (colours, sounds)"),
        (["explain", "1"], "several changes have a story 1: add --change NAME (colours, old, sounds)"),
        (["skip", "2"], "there are several changes: add --change colours, the only open one with a story 2"),
        (["skip", "9"], "there are several changes: add --change NAME (colours, sounds)"),
        (["guide", "Use cents"], "there are several changes: add --change NAME (colours, sounds)"),
        (["pause"], "there are several changes: name one (colours, old, sounds)"),
    ],
)
def test_which_change_must_be_named(lab: Lab, words: list[str], said: str) -> None:
    lab.write("plans/colours.md", PLAN)
    lab.write("plans/sounds.md", PLAN.partition("## 2.")[0])
    lab.write("plans/old.md", PLAN.replace("[ ]", "[x]"))
    told = lab.run(*words)
    assert (told.exit_code, told.stdout) == (2, "")
    assert said in " ".join(told.stderr.split())


def test_a_damaged_state_does_not_keep_the_progress_from_the_list(lab: Lab) -> None:
    lab.write("plans/colours.md", PLAN)
    lab.write(".ralph/standing/colours.json", "{damaged")
    assert "tasks 0/2" in lab.run("list").stdout
    assert "[ ] 1. First 0/1\n" in lab.run("show").stdout
