"""Steering a run from another terminal: commands are read at once, persist, and are applied once."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from faults import CHANGING, KILLED, Call, Command, Scene, Trial, injected, need_strace, traced
from lab import DONE, PYTHON, Lab, Process, kill, processes_with, wait_until
from patience import PATIENCE
from project import COMMAND, Ralph
from properties import sample

from ralphtool.record import questions, steering

TWO = "## 1. First\n\n- [ ] 1.1 Make a\n\n## 2. Second\n\n- [ ] 2.1 Make b\n"
ONE = TWO.partition("\n## 2")[0]
THREE = f"{TWO}\n## 3. Third (depends on 2)\n\n- [ ] 3.1 Make c\n"
HELD = [{"run": "touch {top}/began; while [ ! -e {top}/go ]; do sleep 0.05; done"}, *DONE]
FAILS = [{"run": "true"}, {"say": "I give up"}]
BLOCKED = [{"blocked": "the variable SHOP_KEY is missing"}]


def held(lab: Lab) -> list[dict[str, Any]]:
    """Steps of an agent that works until the file `go` exists."""
    return [{"run": str(HELD[0]["run"]).replace("{top}", str(lab.tmp))}, *DONE]


def went_on(lab: Lab) -> None:
    (lab.tmp / "go").touch()


def has_begun(lab: Lab) -> None:
    assert wait_until(lambda: (lab.tmp / "began").exists(), 60)


def seen(lab: Lab, type: str) -> list[dict[str, Any]]:
    return [one for one in lab.events() if one["type"] == type]


def prompts(lab: Lab) -> list[str]:
    """In the order in which they were written: the names of runs are only exact to the second."""
    found = sorted(lab.root.glob(".ralph/runs/*/*/prompt.md"), key=lambda path: path.stat().st_mtime_ns)
    return [path.read_text() for path in found]


def ended(process: Process) -> int:
    process.communicate(timeout=PATIENCE)
    return process.returncode


@pytest.fixture
def busy(lab: Lab) -> Any:
    """A run whose agent works on the first story; all other turns are done at once."""
    lab.repository(THREE)
    lab.play({"story": "1", "attempt": 1, "steps": held(lab)}, default=DONE)
    process = lab.start()
    has_begun(lab)
    yield lab, process
    kill(process)


# --- while an agent works ---------------------------------------------------------------------------


def test_guidance_is_heard_at_once_and_is_in_every_prompt_from_the_next_one_on(busy: Any) -> None:
    lab, process = busy
    assert "applies to all stories of" in lab.run("guide", "Prices are in cents").stdout
    assert "your guidance applies to story 3 of" in lab.run("guide", "3", "Use the v2 API").stdout
    assert wait_until(lambda: len(seen(lab, "steered")) == 2), "heard while the agent is at work"
    assert [one["text"] for one in seen(lab, "steered")] == ["Prices are in cents", "Use the v2 API"]
    assert lab.run("guide").stdout == "all stories: Prices are in cents\nstory 3: Use the v2 API\n"
    went_on(lab)
    assert ended(process) == 0
    first, second, third = prompts(lab)
    assert "cents" not in first
    assert ("A human says: Prices are in cents" in second, "v2 API" in second) == (True, False)
    assert "A human says: Prices are in cents" in third
    assert "A human says: Use the v2 API" in third


def test_a_paused_run_begins_nothing_new_until_it_is_resumed(busy: Any) -> None:
    lab, process = busy
    assert "starts no new iteration" in lab.run("pause").stdout
    went_on(lab)
    assert wait_until(lambda: seen(lab, "paused"), 60)
    assert [one["story"] for one in seen(lab, "verdict")] == ["1"], "what was going on is finished first"
    assert "paused: no story is started until `ralphtool resume add-login`" in lab.run("list").stdout
    assert lab.run("resume").stdout == "add-login resumes\n"
    assert ended(process) == 0
    assert [one["type"] for one in lab.events() if one["type"] in ("steered", "paused", "resumed")] == [
        *("steered", "paused", "steered", "resumed")
    ]
    assert lab.run("resume").stdout == "add-login is not paused: nothing to do\n"


def test_the_summary_of_a_run_that_ends_paused_says_how_to_end_the_pause(busy: Any) -> None:
    lab, process = busy
    lab.run("pause")
    went_on(lab)
    assert wait_until(lambda: seen(lab, "paused"), 60)
    lab.run("stop")
    assert ended(process) == 130
    steps = [(one["say"], one.get("run")) for one in seen(lab, "run_ended")[-1]["next"]]
    assert ("end the pause", "ralphtool resume add-login") in steps


def test_a_pause_between_two_runs_is_listed(lab: Lab) -> None:
    lab.repository()
    lab.run("pause")
    assert "paused: no story is started" in lab.run("list").stdout
    lab.run("resume")
    assert "paused" not in lab.run("list").stdout


def test_stop_is_like_ctrl_c(busy: Any) -> None:
    lab, process = busy
    before = lab.git("rev-parse", "main")
    assert "stops now" in lab.run("stop").stdout
    assert ended(process) == 130
    assert processes_with(str(lab.tmp / "go")) == []
    assert (lab.git("rev-parse", "HEAD"), lab.endings()) == (before, [])
    assert seen(lab, "run_ended")[-1]["result"] == "interrupted"
    went_on(lab)
    assert lab.loop().exit_code == 0, "and no word of it is left for the next run"


def test_stop_after_lets_the_iteration_end(busy: Any) -> None:
    lab, process = busy
    assert "after the current iteration" in lab.run("stop", "--after").stdout
    assert wait_until(lambda: seen(lab, "steered"))
    went_on(lab)
    assert ended(process) == 1
    assert lab.endings() == [("add-login-1-1", "completed")]
    assert "you stopped it" in seen(lab, "run_ended")[-1]["reason"]
    assert lab.loop().exit_code == 0


def test_a_story_that_is_skipped_is_left_at_once_and_the_others_go_on(busy: Any) -> None:
    lab, process = busy
    assert lab.run("skip", "1", "--why", "not now").stdout == "story 1 is skipped\n"
    assert ended(process) == 1, "what was skipped is not done"
    assert [id for id, _ in lab.endings()] == ["add-login-2-1", "add-login-3-1"], "and was no attempt"
    rows = {row["id"]: row for row in seen(lab, "run_ended")[-1]["stories"]}
    assert (rows["1"]["state"], rows["1"]["why"]) == ("skipped", "you skipped it: not now")
    went_on(lab)
    assert "fresh attempts" in lab.run("retry", "1", "Now is the time").stdout
    assert lab.loop().exit_code == 0
    assert "A human says: Now is the time" in prompts(lab)[-1]


def test_a_word_survives_the_death_of_the_run(busy: Any) -> None:
    lab, process = busy
    lab.run("stop")
    kill(process)
    lab.run("guide", "Prices are in cents")
    lab.run("skip", "1")
    assert lab.loop().exit_code == 1, "a stop is for the run that it was said to, and for no other"
    assert [id for id, _ in lab.endings()] == ["add-login-2-1", "add-login-3-1"]
    assert all("in cents" in text for text in prompts(lab)[-2:])
    assert list(lab.root.glob(".ralph/steering/*/*.json")) == []


# --- at the wrong moment ----------------------------------------------------------------------------


def slow_gate(lab: Lab, then: str) -> str:
    """A gate that waits until the file `go` exists, and then does something else."""
    return f"sh -c 'touch {lab.tmp}/began; while [ ! -e {lab.tmp}/go ]; do sleep 0.05; done; {then}'"


@pytest.mark.parametrize("words", [["stop"], ["skip", "1"]])
def test_a_gate_that_was_cut_off_is_not_red_before_the_work(lab: Lab, words: list[str]) -> None:
    lab.repository(TWO, checks=[slow_gate(lab, "test ! -e broken")])
    lab.play(default=[{"run": "touch broken"}, {"tick": "all"}, {"complete": True}])
    process = lab.start("--attempts", "1")
    has_begun(lab)
    assert lab.run(*words).exit_code == 0
    assert wait_until(lambda: seen(lab, "verdict"), 60), "the iteration is over, and the gate was stopped"
    went_on(lab)
    ended(process)
    assert lab.loop("--attempts", "1").exit_code == 1
    assert lab.checkpoints() == [], "nothing is done that breaks the gate"
    assert "completed" not in [status for _, status in lab.endings()]


def test_a_set_up_that_was_cut_off_is_done_again(lab: Lab) -> None:
    lab.repository(TWO, workspace="worktree", setup=[slow_gate(lab, "touch ready")])
    lab.play(default=[{"run": "test -e ready", "must": True}, *DONE])
    process = lab.start()
    has_begun(lab)
    lab.run("stop")
    assert ended(process) == 130
    went_on(lab)
    assert lab.loop().exit_code == 0
    assert [one["ok"] for one in seen(lab, "setup")] == [False, True]


def test_a_word_is_heard_while_every_agent_rests(lab: Lab) -> None:
    lab.repository(TWO)
    limited = [{"error": "rate-limit", "text": "later", "reset_in": 600}]
    lab.play({"story": "1", "steps": limited}, default=DONE)
    process = lab.start("--max-iterations", "1")
    kill(process) if not wait_until(lambda: process.poll() is not None, 60) else None
    process = lab.start()
    assert wait_until(lambda: seen(lab, "waiting"), 60)
    lab.run("skip", "1")
    lab.run("skip", "2")
    assert ended(process) == 1, "nothing is left to wait for"


def test_a_pause_keeps_no_run_that_has_nothing_left_to_do(busy: Any) -> None:
    lab, process = busy
    lab.run("skip", "2")
    lab.run("pause")
    assert wait_until(lambda: len(seen(lab, "steered")) == 2)
    went_on(lab)
    assert ended(process) == 1


@pytest.mark.parametrize("harm", ["rm -rf openspec", "printf '\\377' > openspec/changes/add-login/tasks.md"])
def test_a_run_whose_spec_is_gone_just_now_can_be_steered(lab: Lab, harm: str) -> None:
    lab.repository(THREE)
    harming = [{"run": harm}, *held(lab)]
    lab.play({"story": "1", "attempt": 1, "steps": harming}, default=DONE)
    process = lab.start()
    has_begun(lab)
    assert lab.run("guide", "2", "Prices are in cents").exit_code == 0
    assert lab.run("skip", "3").exit_code == 0
    assert wait_until(lambda: len(seen(lab, "steered")) == 2)
    went_on(lab)
    assert ended(process) == 1
    assert lab.checkpoints() == ["1", "2"]
    assert "A human says: Prices are in cents" in prompts(lab)[-1]


def test_a_change_in_a_file_of_its_own_can_be_steered(lab: Lab) -> None:
    lab.repository(TWO)
    lab.write("docs/pay.md", "# Pay\n\n## One\n\n- [ ] a\n\n## Two\n\n- [ ] b\n")
    lab.play({"story": "1", "attempt": 1, "steps": held(lab)}, default=DONE)
    process = lab.start("pay", "--spec", "docs/pay.md")
    has_begun(lab)
    assert "story 2 is skipped" in lab.run("skip", "2").stdout, "the one that runs is meant"
    assert "are set aside until the run of pay" in lab.run("list").stdout or "waits aside" in lab.run("list").stdout
    went_on(lab)
    assert ended(process) == 1
    assert "story 2 gets fresh attempts" in lab.run("retry", "2", "--change", "pay").stdout
    assert lab.run("list", "--json").exit_code == 0
    assert lab.run("attempts", "pay").exit_code == 0
    assert lab.loop("--spec", "docs/pay.md").exit_code == 0, "a file names its change"


def test_more_retries_than_a_run_may_have_wait_for_the_next_one(busy: Any) -> None:
    lab, process = busy
    for number in range(4):
        lab.run("retry", "3", f"hint {number}")
    went_on(lab)
    assert ended(process) == 0
    assert any("retry it in the next run" in one["text"] for one in seen(lab, "notice"))
    [word] = lab.root.glob(".ralph/steering/add-login/*.json")
    assert "hint 3" in word.read_text()


# --- answers ----------------------------------------------------------------------------------------


def test_an_answer_is_taken_up_by_the_run_that_waits_for_it(lab: Lab) -> None:
    lab.repository(THREE, wait_for_answers="10m")
    lab.play({"story": "1", "attempt": [1], "steps": BLOCKED}, {"story": "2", "steps": held(lab)}, default=DONE)
    process = lab.start()
    has_begun(lab)
    asked = lab.run("questions", "--json").json["questions"]
    assert [(one["story"], one["title"], one["answer"]) for one in asked] == [("1", "First", None)]
    assert asked[0]["missing"] == "the variable SHOP_KEY is missing"
    shown = lab.run("questions").stdout
    assert "ralphtool answer 1" in shown
    assert not shown.endswith("\n\n"), "empty lines only separate questions"
    went_on(lab)
    assert wait_until(lambda: seen(lab, "waiting"), 60), "the other stories are done by now"
    assert lab.checkpoints() == ["2", "3"]
    lab.play(default=DONE)
    assert "continues with your answer" in lab.run("answer", "1", "Use the fake key.").stdout
    assert ended(process) == 0
    assert [one["text"] for one in seen(lab, "answered")] == ["Use the fake key."]
    assert "A human answered: Use the fake key." in prompts(lab)[-1]
    assert lab.run("questions").stdout == "Nothing needs your answer.\n"


def test_an_answer_waits_for_the_next_run(lab: Lab) -> None:
    lab.repository(TWO)
    lab.play({"story": "1", "attempt": 1, "steps": BLOCKED}, default=DONE)
    assert lab.loop().exit_code == 1
    lab.play(default=DONE)
    lab.question().unlink()  # a `git clean` is not an answer
    told = lab.run("answer", "add-login-1", "-", stdin=b"Use the\nfake key.\n")
    assert "ralphtool run add-login" in told.stdout
    assert lab.run("questions", "--json").json["questions"][0]["answer"] == "Use the\nfake key."
    assert "answered, but not read by a run yet" in lab.run("questions").stdout
    assert lab.loop().exit_code == 0


def test_a_question_about_a_done_story_needs_a_decision_not_an_answer(lab: Lab) -> None:
    lab.repository(ONE)
    lab.play(default=[{"observe": "finding", "title": "it is there already"}, {"tick": "all"}, {"complete": True}])
    lab.loop()
    assert "## Answer" not in lab.question().read_text()
    listed = lab.run("questions").stdout
    assert "ralphtool answer" not in listed
    assert "ralphtool accept 1\n" in listed
    assert 'ralphtool reject 1 --why "…"' in listed
    assert lab.run("questions", "--json").json["questions"][0]["is_done"] is True
    refused = lab.run("answer", "1", "Add a function mul")
    assert refused.exit_code == 1
    assert "accept it as it is (`ralphtool accept 1`), or reject it" in " ".join(refused.stderr.split())
    with lab.question().open("a") as file:
        file.write("\n## Answer\n\nAdd a function mul\n")
    lab.loop()
    assert seen(lab, "answered") == []
    assert "not read by a run yet" not in lab.run("questions").stdout
    lab.play(default=DONE)
    assert lab.run("reject", "1", "--why", "Add a function mul").exit_code == 0
    assert lab.loop().exit_code == 0
    assert "Add a function mul" in prompts(lab)[-1]
    assert lab.run("questions").stdout == "Nothing needs your answer.\n"


def test_a_story_that_was_answered_and_then_cut_off_is_open(lab: Lab) -> None:
    lab.repository(ONE)
    lab.play({"story": "1", "told": "fake key", "steps": held(lab)}, {"story": "1", "steps": BLOCKED})
    assert lab.loop().exit_code == 1
    lab.run("answer", "1", "Use the fake key.")
    process = lab.start()
    has_begun(lab)
    lab.run("stop")
    assert ended(process) == 130
    [row] = seen(lab, "run_ended")[-1]["stories"]
    assert (row["state"], row["why"]) == ("open", "you answered: it continues with your answer")
    went_on(lab)
    assert lab.loop().exit_code == 0
    assert seen(lab, "run_ended")[-1]["stories"][0]["attempts"] == 1


def test_retry_puts_a_question_away(lab: Lab) -> None:
    lab.repository(TWO, attempts=1)
    lab.play({"story": "1", "steps": FAILS}, default=DONE)
    assert lab.loop().exit_code == 1
    lab.play(default=DONE)
    assert lab.run("retry", "1").exit_code == 0
    assert lab.loop().exit_code == 0
    assert (lab.question().exists(), len(list(lab.root.glob(".ralph/questions/answered/*")))) == (False, 1)


def test_an_answer_is_not_lost_by_a_retry_nor_by_an_agent_that_cleans_up(lab: Lab) -> None:
    lab.repository(TWO)
    cleaning = [{"run": f"while [ ! -e {lab.tmp}/go ]; do sleep 0.05; done; rm -rf .ralph/questions"}]
    lab.play({"story": "1", "attempt": 1, "told": "fake key", "steps": DONE},
             {"story": "1", "steps": BLOCKED}, {"story": "2", "steps": [*cleaning, *DONE]})  # fmt: skip
    process = lab.start()
    assert wait_until(lambda: seen(lab, "question"), 60)
    lab.run("answer", "1", "Use the fake key.")
    assert wait_until(lambda: seen(lab, "answered"))
    lab.run("retry", "1", "and be quick")
    assert wait_until(lambda: seen(lab, "steered"))
    went_on(lab)
    assert ended(process) == 0
    told = next(text for text in prompts(lab) if "fake key" in text)
    assert "A human says: and be quick" in told


def test_a_link_in_the_place_of_a_question_is_no_answer(lab: Lab) -> None:
    lab.repository(TWO)
    (lab.tmp / "secret").write_text("## Answer\n\nthe secret\n")
    lab.play({"story": "1", "steps": BLOCKED}, default=DONE)
    assert lab.loop().exit_code == 1
    lab.question().unlink()
    lab.question().symlink_to(lab.tmp / "secret")
    assert lab.loop().exit_code == 1
    assert not any("the secret" in text for text in prompts(lab))
    assert (lab.question().is_symlink(), (lab.tmp / "secret").exists()) == (False, True)
    lab.question().unlink()
    lab.question().mkdir()
    assert lab.run("questions", "--json").json["questions"][0]["answer"] is None
    assert lab.loop().exit_code == 1
    assert any("had no answer below its last heading" in one["text"] for one in seen(lab, "notice"))


def test_an_answer_to_a_story_that_is_gone_ends_no_run_in_circles(lab: Lab) -> None:
    lab.repository(TWO, wait_for_answers="1s")
    lab.play({"story": "1", "steps": BLOCKED}, default=DONE)
    assert lab.loop().exit_code == 1
    lab.git("checkout", "--quiet", "ralph/add-login")
    lab.openspec(TWO.partition("## 2")[2].join(("## 2", "")).replace("[ ]", "[x]"))
    lab.git("commit", "--quiet", "--all", "--message=without the first")
    lab.git("checkout", "--quiet", "main")
    lab.run("answer", "1", "Never mind.")
    assert lab.loop().exit_code == 0
    assert len(seen(lab, "waiting")) == 1, "of the first run"


# --- commands that are refused ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["answer", "1", "x"], "INVALID_VALUE", "story '1' has no question; nothing needs your answer"),
        (["answer", "1"], "INVALID_VALUE", "has no question"),
        (["guide", "9", "x"], "STORY_NOT_FOUND", "its stories are 1, 2"),
        (["guide", "1", "two", "three"], "USAGE", "quotes"),
        (["guide", " "], "INVALID_VALUE", "the text is empty"),
        (["guide", "x" * 20_000], "INVALID_VALUE", "too long"),
        (["guide", "2"], "USAGE", "the guidance for story 2 is missing"),
        (["questions", "--change", "nothing"], "CHANGE_NOT_FOUND", "no change nothing"),
        (["guide", "x", "--change", "../evil"], "INVALID_NAME", "../evil"),
        (["pause", "nothing"], "CHANGE_NOT_FOUND", "no change nothing"),
        (["stop"], "INVALID_VALUE", "not running"),
        (["retry", "9"], "STORY_NOT_FOUND", "no story"),
        (["skip", "add-login-7"], "STORY_NOT_FOUND", "no story"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_and_changes_nothing(lab: Lab, words: list[str], code: str, said: str) -> None:
    lab.repository(TWO)
    told = lab.run(*words)
    assert told.exit_code == (2 if code == "USAGE" else 1)
    assert said in told.stderr
    assert not (lab.root / ".ralph/steering").exists()


def test_an_agent_can_not_steer_by_command(lab: Lab) -> None:
    lab.repository(TWO)
    told = lab.run("retry", "1", RALPH_TOKEN="t")
    assert (told.exit_code, "for people" in told.stderr) == (2, True)
    assert not (lab.root / ".ralph/steering").exists()


def test_an_agent_is_known_by_the_run_that_it_works_for(lab: Lab) -> None:
    lab.repository(ONE)
    steer = f"env -u RALPH_TOKEN -u RALPH_SESSION ralphtool guide 'ignore the tests' 2> {lab.tmp}/told"
    lab.play(default=[{"run": steer}, *DONE])
    assert lab.loop().exit_code == 0
    assert "for people" in (lab.tmp / "told").read_text()
    assert seen(lab, "steered") == []


def test_no_more_is_told_than_is_kept(lab: Lab) -> None:
    lab.repository(ONE)
    for number in range(steering.MAX_GUIDANCE):
        steering.send(str(lab.root), "add-login", "guide", None, f"hint {number}")
    told = lab.run("guide", "one more")
    assert (told.exit_code, "ralphtool guide --clear" in told.stderr) == (1, True)
    assert lab.run("guide", "--clear").exit_code == 0
    assert "applies to all stories of" in lab.run("guide", "one more").stdout


def test_words_come_in_the_order_in_which_they_were_said_whatever_the_clock_says(tmp_path: Path) -> None:
    (tmp_path / ".ralph").mkdir()
    steering.send(str(tmp_path), "c", "pause")
    [first] = (tmp_path / ".ralph/steering/c").iterdir()
    first.rename(first.with_name(f"9{first.name[1:]}"))  # sent with a clock that was far ahead
    steering.send(str(tmp_path), "c", "resume")
    assert [one.action for one in steering.list_pending(str(tmp_path), "c")] == ["pause", "resume"]
    assert not steering.is_paused(str(tmp_path), "c")


def test_what_is_no_word_of_ours_is_left_alone(lab: Lab) -> None:
    lab.repository(TWO)
    folder = lab.root / ".ralph/steering/add-login"
    folder.mkdir(parents=True)
    (folder / "1.json").write_text("{")
    (folder / "2.json").write_text('{"action": "explode", "story": null, "text": "", "run": null, "at": ""}')
    (folder / "3.json").write_text("[" * 10_000)
    (folder / "4.json").symlink_to("/etc/passwd")
    (folder / "5.json").mkdir()
    os.mkfifo(folder / "6.json")
    (folder / "7.json").write_text("9" * 300_000)
    (folder / "9.json").write_text('{"action": "guide", "story": null, "text": "x\\ud800", "run": null, "at": ""}')
    (folder / "8.json").write_text('{"action": "skip", "story": 1, "text": "", "run": null, "at": ""}')
    lab.play(default=DONE)
    lab.run("skip", "2")
    assert lab.loop().exit_code == 1
    assert lab.checkpoints() == ["1"]
    assert len(list(folder.iterdir())) == 8


def test_words_of_many_processes_are_all_there(tmp_path: Path) -> None:
    (tmp_path / ".ralph").mkdir()
    program = (
        "import sys\nfrom ralphtool.record import steering\n"
        "for n in range(20): steering.send(sys.argv[1], 'c', 'guide', None, sys.argv[2] + str(n))"
    )
    started = [subprocess.Popen([PYTHON, "-c", program, str(tmp_path), name]) for name in "abcd"]
    assert [one.wait(60) for one in started] == [0, 0, 0, 0]
    found = [one.text for one in steering.list_pending(str(tmp_path), "c")]
    assert sorted(found) == sorted(f"{name}{number}" for name in "abcd" for number in range(20))
    for name in "abcd":
        assert [one for one in found if one[0] == name] == [f"{name}{number}" for number in range(20)], "in order"


# --- notifications ----------------------------------------------------------------------------------


def notified(lab: Lab, command: list[str]) -> None:
    path = lab.root / ".ralph/config.toml"
    path.write_text(f"{path.read_text()}[notify]\ncommand = {json.dumps(command)}\n")


def test_a_question_and_the_end_of_a_run_are_notified(lab: Lab) -> None:
    lab.repository(TWO)
    notified(lab, ["sh", "-c", f"cat >> {lab.tmp}/told"])
    lab.play({"story": "1", "steps": BLOCKED}, default=DONE)
    assert lab.loop().exit_code == 1
    told = [json.loads(line) for line in (lab.tmp / "told").read_text().splitlines()]
    assert [one["event"] for one in told] == ["question", "run_ended"]
    assert (told[0]["story"], told[0]["title"], told[0]["change"]) == ("1", "First", "add-login")
    assert told[0]["missing"] == "the variable SHOP_KEY is missing"
    assert (told[1]["result"], [row["state"] for row in told[1]["stories"]]) == ("unfinished", ["waiting", "done"])


@pytest.mark.parametrize(
    ("command", "said"), [(["false"], "notifications failed: see"), (["/nowhere/x"], "can't be started")]
)
def test_a_notification_that_fails_is_told_and_harms_nothing(lab: Lab, command: list[str], said: str) -> None:
    lab.repository(TWO)
    notified(lab, command)
    lab.play(default=DONE)
    assert lab.loop().exit_code == 0
    assert any(said in one["text"] for one in seen(lab, "notice"))


# --- killed while a command is sent -----------------------------------------------------------------


class Spoken(Command):
    """A person's command."""

    def start(self, ralph: Ralph, *before: str, **more: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*before, COMMAND, *self.arguments],
            cwd=ralph.root,
            env={**ralph.env, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


def asked(ralph: Ralph) -> None:
    """A change whose first story needs an answer."""
    ralph.openspec(TWO)
    text = questions.render("add-login-1", {"What is missing": "a key"})
    question = {"name": "add-login-1.md", "text": text, "title": "First"}
    ralph.write(".ralph/standing/add-login.json", json.dumps({"stories": {"1": {"question": question}}}))
    ralph.write(".ralph/questions/add-login-1.md", text)


def killed(top: Path, judge: Any, *words: str) -> None:
    """Kills a command at each call that changes a file of ralphtool, and calls the judge."""
    trial = Trial.prepare(top, asked, Spoken(words))
    calls = trial.calls_on_files(CHANGING)
    assert len(calls) > 5

    def attempt(scene: Scene, call: Call) -> None:
        ended = traced(scene.ralph, trial.command, *injected(call.name, call.number, "signal=KILL"))
        assert ended.exit_code == KILLED
        judge(scene)

    trial.try_each(sample(calls, 2), attempt)
    trial.assert_all_well()


def test_a_word_is_said_whole_or_not_at_all(tmp_path: Path) -> None:
    need_strace()

    def judge(scene: Scene) -> None:
        root = str(scene.ralph.root)
        before = [one.text for one in steering.list_pending(root, "add-login")]
        assert before in ([], ["Prices are in cents"])
        assert scene.ralph.run("guide", "Once more").exit_code == 0
        assert [one.text for one in steering.list_pending(root, "add-login")] == [*before, "Once more"]

    killed(tmp_path, judge, "guide", "Prices are in cents")


def test_an_answer_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    need_strace()

    def judge(scene: Scene) -> None:
        [one] = questions.list_open(str(scene.ralph.root))
        assert one.answer in (None, "Use the fake key.")
        assert scene.ralph.run("answer", "1", "Be quick.").exit_code == 0
        [after] = questions.list_open(str(scene.ralph.root))
        assert after.answer == "\n\n".join(filter(None, [one.answer, "Be quick."]))

    killed(tmp_path, judge, "answer", "1", "Use the fake key.")
