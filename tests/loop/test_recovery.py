"""What happens after an attempt that did not complete, seen from outside: files, branch, history, prompts."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from lab import PYTHON, Lab

from ralphtool.agents import End, Usage
from ralphtool.executors import Report
from ralphtool.loop.budget import Budget
from ralphtool.record import questions
from ralphtool.settings import RunSettings

ONE = "## 1. First\n\n- [ ] 1.1 Make a\n- [ ] 1.2 Make b\n- [ ] 1.3 Make c\n"
TASKS = "openspec/changes/add-login/tasks.md"
DONE: list[dict[str, Any]] = [{"run": "echo work > {story}.txt"}, {"tick": "all"}, {"complete": True}]
CHUNK: list[dict[str, Any]] = [{"run": "echo $RALPH_TASK >> log"}, {"tick": "all"}, {"complete": True}]
NO_PROMISE: list[dict[str, Any]] = [{"say": "I gave up."}]


def turn(story: str, steps: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"story": story, "steps": steps, **more}


def prompt(lab: Lab, entry: str) -> str:
    """The prompt that led to an entry; of several, the last."""
    found = sorted(lab.root.glob(f".ralph/runs/*/*-{entry}/prompt.md"), key=lambda path: path.stat().st_mtime_ns)
    return found[-1].read_text()


def known(lab: Lab, entry: str) -> str:
    """The text below "What we know"."""
    return prompt(lab, entry).partition("# What we know\n")[2].partition("\n# How it is verified")[0]


def told(lab: Lab, kind: str, field: str) -> list[Any]:
    return [event[field] for event in lab.events() if event["type"] == kind]


def ended(lab: Lab) -> dict[str, Any]:
    return [event for event in lab.events() if event["type"] == "run_ended"][-1]


def row(lab: Lab, story: str = "1") -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in ended(lab)["stories"] if one["id"] == story)
    return found


def attempts(lab: Lab) -> list[str]:
    """The attempts that are kept as refs."""
    return [
        line.rpartition("/")[2]
        for line in lab.git("for-each-ref", "--format=%(refname)", "refs/ralph/attempts").split()
    ]


# --- manual -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Story 1 needs a key that is really missing; story 2 needs nothing."""
    lab = Lab(tmp_path_factory.mktemp("asked")).repository()
    steps = [{"write": "half.txt", "text": "half"}, {"tick": "1.1"}, {"blocked": "STRIPE_API_KEY is not set"}]
    lab.play(turn("1", steps), default=DONE)
    assert lab.loop().exit_code == 1
    return lab


def test_a_verified_blocker_becomes_a_question_and_the_others_go_on(asked: Lab) -> None:
    assert asked.endings() == [("add-login-1-1", "blocked"), ("add-login-2-1", "completed")]
    text = asked.question().read_text()
    assert "prd_id: add-login-1\n" in text
    assert "the variable STRIPE_API_KEY is missing" in text
    assert "add-login-1-1: blocked: STRIPE_API_KEY is not set" in text
    assert told(asked, "question", "prd_id") == ["add-login-1"]
    assert row(asked)["state"] == "waiting"
    assert row(asked)["question"] == str(asked.question())


def test_a_question_is_closed_once_another_clone_has_done_the_story(asked: Lab, lab: Lab) -> None:
    """A CI job caches the state with the question; the user answers on another machine, and pushes the branch."""
    lab.copy(asked)
    kept = lab.root.parent / "cache"
    for name in ("standing", "questions"):
        shutil.copytree(lab.root / ".ralph" / name, kept / name)
    lab.run("answer", "1", "It is set now.")
    lab.play(default=DONE)
    assert lab.loop().exit_code == 0
    for name in ("standing", "questions"):
        shutil.rmtree(lab.root / ".ralph" / name)
        shutil.copytree(kept / name, lab.root / ".ralph" / name)
    assert len(lab.run("questions", "--json").json["questions"]) == 1
    assert lab.loop().exit_code == 0
    assert lab.run("questions", "--json").json["questions"] == []
    assert "questions" not in lab.run("list").stdout


def test_the_entry_tells_what_became_of_the_blocker(asked: Lab) -> None:
    context = asked.entries()[0]["context"]
    assert (context["blocker_verified"], context["blocker_valid"]) == (True, True)


def test_blocked_work_is_not_kept_but_can_be_found(asked: Lab) -> None:
    assert asked.checkpoints() == ["2"]
    assert "half.txt" not in asked.git("ls-tree", "-r", "--name-only", "ralph/add-login")
    assert "- [ ] 1.1" in asked.git("show", f"ralph/add-login:{TASKS}")
    assert asked.git("show", "refs/ralph/attempts/add-login-1-1:half.txt") == "half"


def test_a_story_that_used_its_attempts_shows_the_error_and_what_can_be_done(tmp_path: Path) -> None:
    lab = Lab(tmp_path).repository("## 1. First\n\n- [ ] 1.1 Make a\n", attempts=1, tests=["python3 -m unittest -q"])
    good = (
        "import unittest\n\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertTrue(id(self))\n"
    )
    lab.write("test_calc.py", good)
    lab.git("add", "--all")
    lab.git("commit", "--quiet", "--message=tests")
    lab.play(default=[{"write": "test_calc.py", "text": f"{good}def add(:\n"}, {"tick": "all"}, {"complete": True}])
    assert lab.loop().exit_code == 1
    assert told(lab, "question", "missing") == ["newly red: test_calc (can't be loaded) (`python3 -m unittest -q`)"]
    advice = [one["run"] for one in lab.events()[-1]["next"]]
    assert advice[:3] == ["ralphtool explain add-login-1-1", 'ralphtool answer 1 "…"', "ralphtool retry 1"]
    report = lab.run("report").stdout
    assert "tell the agent what to do in story 1" in report
    assert "answer story 1's question" not in report
    explained = lab.run("explain", "1").stdout
    assert "SyntaxError" in explained
    assert "gate-1-after.log" in explained
    assert "what happened: newly red" in explained
    assert "guidance for the next attempt" not in explained


def test_an_explanation_shows_the_error_before_the_end_of_a_long_report(lab: Lab) -> None:
    """As TAP of `node --test`: the error, then twenty lines of the test's record and of totals."""
    gate = "test ! -f bad || { echo the cause; seq -f 'total %.0f' 25; false; }"
    lab.repository(ONE, attempts=1, tests=[gate]).play(default=[{"write": "bad", "text": ""}, *DONE])
    assert lab.loop().exit_code == 1
    explained = lab.run("explain", "1").stdout
    assert "  the cause\n  total 1\n" in explained
    assert not explained.endswith("\n\n")


def test_a_question_says_what_happened_and_what_the_agent_was_told(tmp_path: Path) -> None:
    lab = Lab(tmp_path).repository("## 1. First\n\n- [ ] 1.1 Make a\n", attempts=2)
    lab.play(default=[{"tick": "all"}, {"complete": True}])
    assert lab.loop().exit_code == 1
    assert "say so with `ralphtool agent observe finding`" in known(lab, "add-login-1-2")
    assert told(lab, "question", "missing") == ["only the spec was changed"]
    text = lab.question().read_text()
    assert "## What happened" in text
    assert "## What is missing" not in text
    assert "told: if nothing needs to change, say so with `ralphtool agent observe finding`." in text
    assert "agent observe" not in lab.run("questions").stdout


ASKED = "I read the design. It names no colour.\n\nWhich colour should the button have?\n\n- red\n- blue"
ASKED_AGAIN = "There is nothing about it in the code either. What colour should the button be: red or blue?"
REPORTED: dict[str, Any] = {"observe": "blocker", "title": "Which colour should the button have?"}
QUESTIONS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]], str]] = {
    "in its last word": ([{"say": ASKED}], [{"say": ASKED_AGAIN}], "What colour should the button be: red or blue?"),
    "as a blocker": ([REPORTED], [REPORTED, {"say": "I stop here."}], "Which colour should the button have?"),
    "in both ways": ([REPORTED, {"say": "I stop here."}], [{"say": ASKED}], "- red\n- blue"),
}


@pytest.mark.parametrize("way", QUESTIONS)
def test_the_same_question_twice_is_yours_at_once(tmp_path: Path, way: str) -> None:
    first, second, words = QUESTIONS[way]
    lab = Lab(tmp_path).repository("## 1. First\n\n- [ ] 1.1 Make a\n", attempts=5)
    lab.play(turn("1", first, attempt=1), turn("1", second, attempt=2))
    assert lab.loop().exit_code == 1
    assert told(lab, "decision", "action") == ["retry", "manual"]
    assert "The last attempt asked: " in known(lab, "add-login-1-2")
    assert "Which colour should the button have?" in known(lab, "add-login-1-2")
    assert words in lab.question().read_text()
    assert "two attempts in a row ended with the same question" in lab.question().read_text()
    assert words in told(lab, "question", "missing")[0]
    assert row(lab)["state"] == "waiting"

    assert lab.run("answer", "1", "Blue").exit_code == 0
    lab.play(turn("1", first, attempt=1), turn("1", DONE, attempt=2))
    assert lab.loop().exit_code == 0, "an answer counts anew: the first attempt after it may ask once more"
    assert "A human answered: Blue" in known(lab, "add-login-1-3")


def test_two_questions_are_two_attempts(tmp_path: Path) -> None:
    lab = Lab(tmp_path).repository("## 1. First\n\n- [ ] 1.1 Make a\n", attempts=3)
    other = [{"say": "Which port does the server listen on?"}]
    lab.play(turn("1", [{"say": ASKED}], attempt=1), turn("1", other, attempt=2), turn("1", DONE, attempt=3))
    assert lab.loop().exit_code == 0
    assert told(lab, "decision", "action") == ["retry", "retry", "next"]


def test_an_answer_is_taken_up_with_fresh_attempts(tmp_path: Path) -> None:
    lab = Lab(tmp_path).repository("## 1. First\n\n- [ ] 1.1 Make a\n", attempts=2)
    lab.play(turn("1", [{"blocked": "STRIPE_API_KEY is not set"}]))
    assert lab.loop().exit_code == 1
    before = lab.question().read_text()
    assert lab.loop().exit_code == 1, "nobody has answered yet"
    lab.question().unlink()
    assert lab.loop().exit_code == 1, "a question that was removed is asked again"
    assert len(lab.entries()) == 1
    assert lab.question().read_text() == before

    lab.question().write_text(f"{before}\nUse the sandbox key sk-123.\n")
    lab.play(turn("1", NO_PROMISE, attempt=1), turn("1", DONE, attempt=2))
    assert lab.loop().exit_code == 0
    assert [status for _, status in lab.endings()] == ["blocked", "failed", "completed"]
    assert "Use the sandbox key sk-123." in known(lab, "add-login-1-2")
    assert "attempt 1 of 2" in prompt(lab, "add-login-1-2")
    assert not lab.question().exists()
    [answered] = (lab.root / ".ralph/questions/answered").iterdir()
    assert "Use the sandbox key sk-123." in answered.read_text()
    assert "Use the sandbox key sk-123." in known(lab, "add-login-1-3"), "one failed attempt makes no answer void"


def test_three_attempts_then_a_human(lab: Lab) -> None:
    """A part is kept with its ticks, and built upon; a failure goes back to it; the third time a human is asked."""
    lab.repository(checks=["test ! -e bad"])
    untouched = f"test -e a && test ! -e bad && grep -q 'x. 1.1' {TASKS} && ! grep -q 'x. 1.2' {TASKS}"
    lab.play(
        turn("1", [{"write": "a", "text": "a"}, {"tick": "1.1"}, *NO_PROMISE], attempt=1),
        turn("1", [{"write": "bad", "text": ""}, {"delete": "a"}, {"tick": "1.2"}, {"complete": True}], attempt=2),
        turn("1", [{"run": untouched, "must": True}, {"run": "touch proof"}, *NO_PROMISE], attempt=3),
        default=DONE,
    )
    assert lab.loop().exit_code == 1
    ids = [f"add-login-1-{number}" for number in (1, 2, 3)]
    statuses = ["partial", "failed", "failed", "completed"]
    assert lab.endings() == list(zip([*ids, "add-login-2-1"], statuses, strict=True))
    assert told(lab, "decision", "action") == ["retry", "retry", "manual", "next"]
    assert attempts(lab) == [*ids, "add-login-2-1"]
    assert "proof" in lab.git("ls-tree", "--name-only", "refs/ralph/attempts/add-login-1-3")
    assert "[x] 1.1" in prompt(lab, ids[1])
    assert "`test ! -e bad` is newly red" in known(lab, ids[2])
    assert all(id in lab.question().read_text() for id in ids)
    assert lab.checkpoints() == ["2"]
    assert not {"a", "bad", "proof"} & set(lab.git("ls-tree", "--name-only", "ralph/add-login").split())

    with lab.question().open("a") as question:
        question.write("Try again.\n")
    lab.play(default=[{"run": "test -e a", "must": True}, *DONE])
    assert lab.loop().exit_code == 0
    assert lab.checkpoints() == ["2", "1"]
    assert lab.git("show", "ralph/add-login:a") == "a"


def test_the_next_prompt_tells_what_the_next_attempt_begins_with(lab: Lab) -> None:
    """The ticks and spec edits of a failed attempt are reverted before the spec is read again."""
    lab.repository(ONE, checks=["test ! -e bad"])
    lab.play(
        turn("1", [{"tick": "1.1"}, {"write": "bad", "text": ""}, {"complete": True}], attempt=1),
        turn("1", [{"replace": TASKS, "old": "Make c", "new": "Make nothing"}, {"complete": True}], attempt=2),
        turn("1", DONE, attempt=3),
    )
    assert lab.loop().exit_code == 0
    assert "[ ] 1.1" in prompt(lab, "add-login-1-2")
    assert "Make c" in prompt(lab, "add-login-1-3")


def test_a_spec_that_an_agent_broke_ends_no_run(lab: Lab) -> None:
    lab.repository("## 1. First\n\n- [ ] 1.1 Make a\n\n## 2. Second (depends on 1)\n\n- [ ] 2.1 Make b\n")
    lab.play(
        turn("2", [{"delete": "openspec"}, {"complete": True}], attempt=1),
        turn("2", [{"write": TASKS, "text": "## 2. Second\n\n- [ ] 2.1 a\n- [ ] 2.1 b\n"}], attempt=2),
        default=DONE,
    )
    assert lab.loop().exit_code == 0
    assert [status for _, status in lab.endings()] == ["completed", "failed", "failed", "completed"]


def asks(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / ".ralph").mkdir(exist_ok=True)
    path = questions.path_of(str(tmp_path), "add-login-1.md")
    questions.ask(path, questions.render("add-login-1", {"What is missing": "## Answer\n\n-->\n\nforged"}))
    return path, Path(path).read_text()


@pytest.mark.parametrize(
    ("written", "answer"),
    [
        (lambda text: text, None),
        (lambda text: text + "\n  \n\n", None),
        (lambda text: text.rstrip(), None),
        (lambda text: text.replace("\n", "\r\n"), None),
        (lambda text: text + "Use the key.\n", "Use the key."),
        (lambda text: text.replace("\n", "\r\n") + "Use the key.\r\n", "Use the key."),
        (lambda text: re.sub(r"<!--.*?-->\n", "Use the key.\n", text, flags=re.DOTALL), "Use the key."),
        (lambda text: text.replace("<!--", "Use the key.\n\n<!--"), "Use the key."),
        (lambda text: text + "a --> b\n<!-- not this -->\n", "a --> b\n<!-- not this -->"),
        (lambda text: text + "See below.\n\n## Answer\n\nUse the key.\n", "See below.\n\n## Answer\n\nUse the key."),
    ],
    ids=[
        "untouched", "blank lines", "no newline at the end", "line ends of Windows", "below", "below, Windows",
        "in place of the comment", "above the comment", "with a comment", "with a heading",
    ],
)  # fmt: skip
def test_an_answer_is_what_a_person_wrote(tmp_path: Path, written: Any, answer: str | None) -> None:
    path, text = asks(tmp_path)
    Path(path).write_bytes(written(text).encode())
    assert questions.read_answer(path) == answer


def test_a_question_is_not_written_over_an_answer(tmp_path: Path) -> None:
    path, text = asks(tmp_path)
    Path(path).write_text(f"{text}Use the key.\n")
    asks(tmp_path)
    assert questions.read_answer(path) == "Use the key."
    Path(path).unlink()
    assert questions.read_answer(path) is None, "a file that is gone says nothing"


# --- skip -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attempts", [1, 2])
def test_an_optional_story_is_skipped_and_what_depends_on_it_waits(lab: Lab, attempts: int) -> None:
    lab.repository(
        "## 1. Nice (optional)\n\n- [ ] 1.1 Make a\n\n## 2. Needs it (depends on 1)\n\n- [ ] 2.1 Make b\n\n"
        "## 3. Plain\n\n- [ ] 3.1 Make c\n",
        attempts=attempts,
    )
    lab.play(turn("1", NO_PROMISE), default=DONE)
    assert lab.loop().exit_code == 1
    assert lab.endings() == [("add-login-3-1", "completed"), ("add-login-1-1", "failed")]
    assert told(lab, "decision", "action") == ["next", "skip"]
    assert [one["state"] for one in ended(lab)["stories"]] == ["skipped", "open", "done"]
    assert not lab.question().exists()


def test_only_optional_stories_are_missing(lab: Lab) -> None:
    lab.repository(
        "## 1. Nice (optional)\n\n- [ ] 1.1 Make a\n\n## 2. Second (depends on 3)\n\n- [ ] 2.1 Make b\n\n"
        "## 3. Third\n\n- [ ] 3.1 Make c\n"
    )
    lab.play(turn("1", NO_PROMISE), default=DONE)
    assert lab.loop().exit_code == 0
    assert ended(lab)["result"] == "done"
    assert row(lab)["state"] == "skipped"
    assert lab.checkpoints() == ["3", "2"], "a story waits for what it depends on"


# --- break-chunks -----------------------------------------------------------------------------------


def test_what_was_too_big_is_done_task_by_task(lab: Lab) -> None:
    lab.repository(ONE, attempts=2)
    tasks = [turn("1", CHUNK, task=task) for task in ("1.1", "1.2", "1.3")]
    lab.play(*tasks, turn("1", [{"error": "context", "text": "the context is full"}]))
    assert lab.loop().exit_code == 0
    assert [status for _, status in lab.endings()] == ["failed", "partial", "partial", "completed"]
    assert told(lab, "decision", "action") == ["break-chunks", "break-chunks", "break-chunks", "next"]
    assert told(lab, "iteration_started", "task") == [None, "1.1", "1.2", "1.3"]
    assert told(lab, "iteration_started", "attempt") == [1, 2, 2, 2]
    assert lab.checkpoints() == ["1"]
    assert lab.git("rev-list", "--count", "main..ralph/add-login") == "1"
    assert lab.git("show", "ralph/add-login:log") == "1.1\n1.2\n1.3"
    assert "only the task 1.2" in prompt(lab, "add-login-1-3")
    assert "only the task" not in prompt(lab, "add-login-1-1")


def test_chunks_go_on_in_the_next_run(lab: Lab) -> None:
    lab.repository("## 1. First\n\n- [ ] 1.1 Make a\n- [ ] 1.2 Make b\n")
    tasks = [turn("1", CHUNK, task=task) for task in ("1.1", "1.2")]
    lab.play(*tasks, turn("1", [{"error": "context", "text": "the context is full"}]))
    assert lab.loop("--max-iterations", "2").exit_code == 1
    assert "--max-iterations" in ended(lab)["reason"]
    assert lab.loop("--max-iterations", "2").exit_code == 0
    assert told(lab, "iteration_started", "task") == [None, "1.1", "1.2"]
    assert lab.git("show", "ralph/add-login:log") == "1.1\n1.2"


def test_a_chunk_that_does_another_task_uses_up_an_attempt(lab: Lab) -> None:
    lab.repository(ONE, max_iterations=2)
    lab.play(turn("1", [{"tick": "1.3"}, {"complete": True}], task="1.1"), turn("1", [{"error": "context"}]))
    lab.loop()
    assert told(lab, "iteration_started", "task") == [None, "1.1"]
    assert row(lab)["attempts"] == 2


def test_ticks_that_are_taken_back_count_as_open(lab: Lab) -> None:
    """Time ran out over three tasks; ticking them does not make the story small."""
    lab.repository(ONE, checks=["test ! -e bad"], timeout="10s", max_iterations=1)
    lab.play(default=[{"write": "bad", "text": ""}, {"tick": "all"}, {"hang": True}])
    lab.loop()
    assert told(lab, "verdict", "status") == ["failed"]
    assert told(lab, "decision", "action") == ["break-chunks"]


# --- fix-state --------------------------------------------------------------------------------------


def test_the_same_failure_twice_goes_back_to_the_checkpoint(lab: Lab) -> None:
    lab.repository(attempts=5, setup=['echo "set up" >> "$HOME/setup.log"'])
    clean = f"test ! -e a && ! grep -q 'x. 1.1' {TASKS}"
    lab.play(
        turn("1", [{"write": "a", "text": "a"}, {"tick": "1.1"}, *NO_PROMISE], attempt=1),
        turn("1", [{"run": "test -e a", "must": True}, *NO_PROMISE], attempt=[2, 3]),
        turn("1", [{"run": clean, "must": True}, *DONE], attempt=4),
        default=DONE,
    )
    assert lab.loop().exit_code == 0
    assert [status for _, status in lab.endings()] == ["partial", "failed", "failed", "completed", "completed"]
    assert told(lab, "decision", "action") == ["retry", "retry", "fix-state", "next", "next"]
    assert (lab.home / "setup.log").read_text() == "set up\n"
    assert attempts(lab)[:4] == [f"add-login-1-{number}" for number in (1, 2, 3, 4)]
    assert lab.git("show", "refs/ralph/attempts/add-login-1-1:a") == "a"
    assert lab.entries()[3]["context"]["recovery_action"] == "fix-state"
    assert "retrying from the last checkpoint: the same failure" in lab.run("explain", "add-login-1-3").stdout
    assert "[ ] 1.1" in prompt(lab, "add-login-1-4")
    assert "a different approach" in known(lab, "add-login-1-4")


@pytest.mark.parametrize("workspace", ["here", "worktree"])
def test_an_environment_that_broke_between_two_runs_is_not_the_fault_of_every_story(lab: Lab, workspace: str) -> None:
    """After the same failure twice the gates run at the checkpoint again: later stories lose no attempt."""
    database = lab.tmp / "database"
    database.touch()
    lab.repository(attempts=4, tests=[f"test -e {database}"], workspace=workspace)
    lab.play(default=[{"run": "echo {story} > work.txt"}, *DONE])
    lab.loop("--max-iterations", "1")
    database.unlink()
    result = lab.loop()
    assert result.exit_code == 1
    assert told(lab, "verdict", "status") == ["completed", "failed", "failed", "completed"]
    assert "was red before and is still red" in told(lab, "verdict", "summary")[-1]


def test_parts_that_end_alike_are_not_thrown_away(lab: Lab) -> None:
    lab.repository(ONE)
    lab.play(
        turn("1", [{"tick": "1.1"}, {"exit": 3}], attempt=1),
        turn("1", [{"tick": "1.2"}, {"exit": 3}], attempt=2),
        turn("1", DONE, attempt=3),
    )
    lab.loop()
    assert told(lab, "verdict", "status")[:2] == ["partial", "partial"]
    assert told(lab, "decision", "action")[:2] == ["retry", "retry"]
    assert "[x] 1.1" in prompt(lab, "add-login-1-3")
    assert "[x] 1.2" in prompt(lab, "add-login-1-3")


# --- retry ------------------------------------------------------------------------------------------


def test_what_an_earlier_story_learnt_is_the_guidance(lab: Lab) -> None:
    learning = "when zlint panics over its cache, delete .zlint-cache"
    lab.repository()
    lab.play(
        turn("1", [{"learn": learning, "type": "error-workaround"}, *DONE]),
        turn("2", [{"blocked": "zlint panics over its cache"}], attempt=1),
        default=DONE,
    )
    assert lab.loop().exit_code == 0
    assert told(lab, "decision", "action") == ["next", "retry", "next"]
    text = known(lab, "add-login-2-2")
    assert re.findall(r"^## (.*)", text, re.MULTILINE)[:2] == ["How the last attempt ended", "Do this first"]
    assert "zlint panics over its cache" in text.partition("## Do this first")[0]
    assert learning in text.partition("## Do this first")[2].partition("\n## ")[0]
    context = lab.entries()[2]["context"]
    assert context["recovery_action"] == "retry"
    assert context["recovery_guidance"].startswith("blocked: zlint panics"), "prose only suggests"
    assert context["recovery_guidance"].endswith(f"This may help; it is about a similar problem: {learning}")


def test_a_claim_of_being_blocked_that_is_wrong_is_told_so(lab: Lab) -> None:
    lab.repository("## 1. First\n\n- [ ] 1.1 Make a\n")
    lab.play(turn("1", [{"blocked": "the file `./README.md` is missing"}], attempt=1), default=DONE)
    assert lab.loop().exit_code == 0
    assert "README.md is available" in known(lab, "add-login-1-2")
    context = lab.entries()[0]["context"]
    assert (context["blocker_verified"], context["blocker_valid"]) == (True, False)


# --- which story ------------------------------------------------------------------------------------


def test_in_strict_order_nothing_goes_on_behind_a_question(lab: Lab) -> None:
    lab.repository(strict_order=True, attempts=1)
    lab.play(turn("1", NO_PROMISE), default=DONE)
    assert lab.loop().exit_code == 1
    assert lab.endings() == [("add-login-1-1", "failed")]
    assert lab.question().exists()
    assert row(lab, "2")["state"] == "open"


# --- limits -----------------------------------------------------------------------------------------


def test_an_agent_is_ended_when_the_tokens_are_used_up(lab: Lab) -> None:
    lab.repository().play(default=[{"usage": {"input_tokens": 60, "output_tokens": 50}}, {"hang": True}])
    assert lab.loop("--max-tokens", "100").exit_code == 1
    assert told(lab, "verdict", "status") == ["interrupted"]
    assert lab.entries() == [], "the run's end is no fault of the story"
    assert "--max-tokens" in ended(lab)["reason"]
    assert ended(lab)["spent"]["input_tokens"] == 60


SPENT = Report(ending="exit", end=End(True), usage=Usage(60, 50, 0.6))
LIMITS: list[tuple[dict[str, Any], str]] = [
    ({}, ""),
    ({"max_tokens": 111, "max_cost": 0.7, "max_iterations": 2}, ""),
    ({"max_tokens": 110}, "--max-tokens"),
    ({"max_cost": 0.6}, "--max-cost"),
    ({"max_iterations": 1}, "--max-iterations"),
    ({"story_tokens": 1, "story_cost": 0.1}, ""),
]


@pytest.mark.parametrize(("limits", "reached"), LIMITS)
def test_a_limit_is_reached_when_it_is_used_up(limits: dict[str, Any], reached: str) -> None:
    budget = Budget(RunSettings(**limits))
    budget.iterations = 1
    budget.add("1", SPENT)
    assert reached in budget.describe_reached_limit()
    assert bool(reached) == bool(budget.describe_reached_limit())


@pytest.mark.parametrize(
    ("seconds", "told"), [(28_800, "8 h"), (5400, "1 h 30 min"), (45, "45 s"), (0.5, "0.5 s"), (7_776_001, "2160 h")]
)
def test_a_time_limit_is_told_as_people_write_it(seconds: float, told: str) -> None:
    budget = Budget(RunSettings(max_time=seconds))
    budget._began -= seconds
    assert budget.describe_reached_limit() == f"the limit of {told} is reached (--max-time)"


def test_a_story_has_a_budget_of_its_own() -> None:
    budget = Budget(RunSettings(story_tokens=110, max_tokens=1000, story_cost=1.0))
    assert (budget.remaining_for("1").tokens, budget.remaining_for("1").cost) == (110, 1.0)
    budget.add("1", SPENT)
    assert budget.is_story_exhausted("1")
    assert not budget.is_story_exhausted("2")
    assert 0 < budget.remaining_for("1").tokens < 1, "0 would be no limit"
    assert budget.remaining_for("2").tokens == 110
    assert budget.remaining_for("1").cost == pytest.approx(0.4)


def test_a_run_out_of_time_leaves_no_attempt(lab: Lab) -> None:
    lab.repository().play(default=[{"tick": "1.1"}, {"hang": True}])
    assert lab.loop("--max-time", "8s").exit_code == 1
    assert lab.entries() == []
    assert row(lab)["attempts"] == 0
    assert "--max-time" in ended(lab)["reason"]


def test_a_story_that_used_up_its_budget_holds_up_no_other(lab: Lab) -> None:
    lab.repository(story_tokens=100)
    lab.play(turn("1", [{"usage": {"input_tokens": 200}}, *NO_PROMISE]), default=DONE)
    assert lab.loop().exit_code == 1
    assert lab.endings() == [("add-login-1-1", "failed"), ("add-login-2-1", "completed")]


# --- proof ------------------------------------------------------------------------------------------


def test_a_prd_passes_only_after_the_gates(lab: Lab) -> None:
    lab.repository()
    stories = [{"id": "US-1", "title": "Login", "acceptanceCriteria": ["a", "b"], "priority": 1, "passes": False}]
    lab.write("prd.json", json.dumps({"project": "shop", "branchName": "ralph/shop", "userStories": stories}, indent=2))
    lab.configure(checks=["test -e good || ! test -e begun", "! grep -q '\"passes\": true' prd.json"])
    lab.git("add", "prd.json")
    lab.git("commit", "--quiet", "--message=prd")
    lab.play(
        turn("US-1", [{"write": "begun", "text": ""}, {"tick": "all"}, {"complete": True}], attempt=1),
        turn("US-1", [{"write": "good", "text": ""}, *DONE], attempt=2),
    )
    assert lab.loop("shop").exit_code == 0
    assert lab.endings() == [("us-1-1", "failed"), ("us-1-2", "completed")]
    assert "[ ] US-1.1" in prompt(lab, "us-1-2"), "the ticks of a failed attempt are taken back"
    assert '"passes": false' in lab.git("show", "refs/ralph/attempts/us-1-1:prd.json")
    assert '"passes": true' in lab.git("show", "ralph/shop:prd.json")
    assert lab.git("rev-list", "--count", "main..ralph/shop") == "1"


def test_what_was_red_before_does_not_count_test_by_test(lab: Lab) -> None:
    lab.write("code.py", "value = 1\n")
    lab.write(
        "tests/test_code.py",
        "import code_under_test as code\n\ndef test_old():\n    assert code.value == 5\n\n"
        "def test_new():\n    assert code.value == 1\n",
    )
    lab.write("code_under_test.py", "value = 1\n")
    pytest_command = f"PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1 {PYTHON} -m pytest -q -p no:cacheprovider tests"
    lab.repository("## 1. First\n\n- [ ] 1.1 Make a\n", tests=[pytest_command], checks=["false"])
    lab.play(
        turn("1", [{"write": "code_under_test.py", "text": "value = 2\n"}, *DONE], attempt=1),
        turn("1", DONE, attempt=2),
    )
    assert lab.loop().exit_code == 1  # it is still red, and that is reported
    assert [status for _, status in lab.endings()] == ["failed", "completed"]
    [reason] = told(lab, "verdict", "reasons")[0]
    assert "test_new" in reason
    assert "test_old" not in reason


# --- transient endings ------------------------------------------------------------------------------


def test_a_rate_limit_charges_nothing(lab: Lab) -> None:
    lab.repository()
    lab.play(default=DONE)
    later = lab.script.rename(lab.script.with_name("later.json"))
    limited: list[dict[str, Any]] = [
        {"write": "half", "text": ""},
        {"tick": "1.1"},
        {"run": f"cp {later} {lab.script}", "must": True},
    ]
    lab.play(default=[*limited, {"error": "rate-limit", "text": "slow down", "reset_in": 15}])
    assert lab.loop().exit_code == 0
    assert lab.endings() == [("add-login-1-1", "completed"), ("add-login-2-1", "completed")]
    assert told(lab, "verdict", "status") == ["transient", "completed", "completed"]
    assert told(lab, "iteration_started", "attempt") == [1, 1, 1]
    [waited] = told(lab, "waiting", "seconds")
    assert 0 < waited <= 15
    assert "[x] 1.1" in prompt(lab, "add-login-1-1"), "what was cut off is taken up"
    assert "was interrupted from outside" in prompt(lab, "add-login-1-1")
    assert "was interrupted from outside" not in prompt(lab, "add-login-2-1")
    [ref] = lab.git("for-each-ref", "--format=%(refname)", "refs/ralph/interrupted").split()
    assert lab.git("ls-tree", "--name-only", ref, "half") == "half"
    assert "half" in lab.git("ls-tree", "--name-only", "ralph/add-login").split()


def test_a_limit_that_the_agent_got_over_excuses_nothing_later(lab: Lab) -> None:
    lab.repository(attempts=1, max_iterations=2, max_time="5m")
    lab.play(turn("1", [{"error": "rate-limit", "reset_in": 0}, {"write": "a", "text": ""}, {"exit": 3}]), default=DONE)
    lab.loop()
    assert told(lab, "verdict", "status") == ["failed", "completed"]
    assert lab.question().exists()


TICKING = """\
token=$(sed -n 's/^token: //p' | tail -n 1)
for id in 1.1 1.2 2.1; do ralphtool agent task done $id 2>/dev/null; done
echo "by the second" > $RALPH_STORY.txt
echo "<promise>COMPLETE:$token</promise>"
"""


def test_the_next_agent_takes_over(lab: Lab) -> None:
    lab.repository(agents=["scripted", "second"])
    lab.write(".ralph/second.sh", TICKING)
    with (lab.root / ".ralph/config.toml").open("a") as config:
        config.write(f'[agents.second]\ncommand = ["sh", "{lab.root}/.ralph/second.sh"]\n')
    lab.play(default=[{"error": "overload", "text": "try again in an hour", "reset_in": 3600}])
    assert lab.loop("--max-time", "5m").exit_code == 0
    assert told(lab, "iteration_started", "agent") == ["scripted", "second", "second"]
    assert told(lab, "iteration_started", "attempt") == [1, 1, 1]
    assert lab.endings() == [("add-login-1-1", "completed"), ("add-login-2-1", "completed")]
    assert lab.git("show", "ralph/add-login:2.txt") == "by the second"


def test_an_agent_whose_limit_is_over_takes_over_again(lab: Lab, tmp_path: Path) -> None:
    """The run does not wait an hour for the second agent while the first one can work."""
    info = tmp_path / "twin/twin-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: twin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ralphtool.agents]\ntwin = ralphtool.agents.scripted:Scripted\n")
    lab.env["PYTHONPATH"] = str(info.parent)
    lab.repository(agents=["scripted", "twin"], max_time="5m")
    with (lab.root / ".ralph/config.toml").open("a") as config:
        config.write(f'[agents.twin]\nargs = ["{tmp_path}/twin.json"]\n')
    limited: dict[str, Any] = {"error": "rate-limit", "text": "slow down"}
    twin = {"turn": [turn("1", [{"run": "sleep 10"}, *DONE]), turn("2", [limited | {"reset_in": 3600}])]}
    (tmp_path / "twin.json").write_text(json.dumps(twin))
    lab.play(turn("1", [limited | {"reset_in": 9}]), turn("2", DONE))
    assert lab.loop().exit_code == 0
    assert told(lab, "iteration_started", "agent") == ["scripted", "twin", "scripted"]


# --- what the next prompt has of a red gate ---------------------------------------------------------


def test_the_next_prompt_has_the_error_that_a_red_gate_printed(lab: Lab) -> None:
    """The names of red tests alone don't show, for example, where a file can't be parsed."""
    lab.write("error.txt", "clock.js:7: Unexpected token\n")
    lab.repository(ONE, tests=["test ! -e 1.txt || { cat error.txt; exit 1; }"], attempts=2).play(default=DONE)
    assert lab.loop().exit_code == 1
    assert "Unexpected token" not in prompt(lab, "add-login-1-1")
    told = known(lab, "add-login-1-2").partition("How the last attempt ended")[2]
    assert "The end of the output of the red gates:\nclock.js:7: Unexpected token" in told


def test_the_next_prompt_and_explain_have_the_error_of_a_test_before_many_others(lab: Lab) -> None:
    noise = "".join(f"# request {one} took a while\n" for one in range(200))
    lab.write("error.txt", f"{noise}not ok 1 - delta\n  ---\n  error: 'too big'\n  ...\n{noise}ok 2 - z\n1..2\n")
    lab.repository(ONE, tests=["test ! -e 1.txt || { cat error.txt; exit 1; }"], attempts=2).play(default=DONE)
    assert lab.loop().exit_code == 1
    assert "error: 'too big'" in known(lab, "add-login-1-2").partition("How the last attempt ended")[2]
    assert "error: 'too big'" in lab.run("explain", "add-login-1-1").stdout
