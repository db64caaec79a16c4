"""Steering a run from another terminal: what is said is heard at once, lasts, and is taken up once."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from lab import DONE, PYTHON, Lab, kill, processes_with, wait_until

from ralphtool import steering

TWO = "## 1. First\n\n- [ ] 1.1 Make a\n\n## 2. Second\n\n- [ ] 2.1 Make b\n"
THREE = f"{TWO}\n## 3. Third (depends on 2)\n\n- [ ] 3.1 Make c\n"
HELD = [{"run": "touch {top}/began; while [ ! -e {top}/go ]; do sleep 0.05; done"}, *DONE]
FAILS = [{"run": "true"}, {"say": "I give up"}]
BLOCKED = [{"blocked": "the variable SHOP_KEY is missing"}]


def held(lab: Lab) -> list[dict[str, Any]]:
    """Steps of an agent that is at work until the file `go` is there."""
    return [{"run": str(HELD[0]["run"]).replace("{top}", str(lab.tmp))}, *DONE]


def went_on(lab: Lab) -> None:
    (lab.tmp / "go").touch()


def has_begun(lab: Lab) -> None:
    assert wait_until(lambda: (lab.tmp / "began").exists(), 60)


def seen(lab: Lab, type: str) -> list[dict[str, Any]]:
    return [one for one in lab.events() if one["type"] == type]


def prompts(lab: Lab) -> list[str]:
    return [path.read_text() for path in sorted(lab.root.glob(".ralph/runs/*/*/prompt.md"))]


def ended(process: subprocess.Popen[bytes]) -> int:
    process.communicate(timeout=90)
    return process.returncode


@pytest.fixture
def busy(lab: Lab) -> Any:
    """A run whose first story is being worked on; all other turns are done at once."""
    lab.repository(THREE)
    lab.play({"story": "1", "attempt": 1, "steps": held(lab)}, default=DONE)
    process = lab.start()
    has_begun(lab)
    yield lab, process
    kill(process)


# --- while an agent works ---------------------------------------------------------------------------


def test_guidance_is_heard_at_once_and_is_in_every_prompt_from_the_next_one_on(busy: Any) -> None:
    lab, process = busy
    assert "told for all stories" in lab.run("guide", "Prices are in cents").stdout
    assert "told for story 3" in lab.run("guide", "3", "Use the v2 API").stdout
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
    assert "begins nothing new" in lab.run("pause").stdout
    went_on(lab)
    assert wait_until(lambda: seen(lab, "paused"), 60)
    assert [one["story"] for one in seen(lab, "verdict")] == ["1"], "what was going on is finished first"
    assert lab.run("resume").stdout == "add-login goes on\n"
    assert ended(process) == 0
    assert [one["type"] for one in lab.events() if one["type"] in ("steered", "paused", "resumed")] == [
        *("steered", "paused", "steered", "resumed")
    ]
    assert lab.run("resume").stdout == "add-login is not paused: nothing to do\n"


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
    assert "after the iteration" in lab.run("stop", "--after").stdout
    assert wait_until(lambda: seen(lab, "steered"))
    went_on(lab)
    assert ended(process) == 1
    assert lab.endings() == [("add-login-1-1", "completed")]
    assert "you stopped it" in seen(lab, "run_ended")[-1]["reason"]
    assert lab.loop().exit_code == 0


def test_a_story_that_is_skipped_is_left_at_once_and_the_others_go_on(busy: Any) -> None:
    lab, process = busy
    assert lab.run("skip", "1", "--why", "not now").stdout == "story 1 is left out\n"
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


# --- answers ----------------------------------------------------------------------------------------


def test_an_answer_is_taken_up_by_the_run_that_waits_for_it(lab: Lab) -> None:
    lab.repository(THREE, wait_for_answers="10m")
    lab.play({"story": "1", "attempt": [1], "steps": BLOCKED}, {"story": "2", "steps": held(lab)}, default=DONE)
    process = lab.start()
    has_begun(lab)
    asked = lab.run("questions", "--json").json["questions"]
    assert [(one["story"], one["title"], one["answer"]) for one in asked] == [("1", "First", None)]
    assert asked[0]["missing"] == "the variable SHOP_KEY is missing"
    assert "ralphtool answer 1" in lab.run("questions").stdout
    went_on(lab)
    assert wait_until(lambda: seen(lab, "waiting"), 60), "the other stories are done by now"
    assert lab.checkpoints() == ["2", "3"]
    lab.play(default=DONE)
    assert "goes on with your answer" in lab.run("answer", "1", "Use the fake key.").stdout
    assert ended(process) == 0
    assert [one["text"] for one in seen(lab, "answered")] == ["Use the fake key."]
    assert "A human answered: Use the fake key." in prompts(lab)[-1]
    assert lab.run("questions").stdout == "Nothing waits for you.\n"


def test_an_answer_waits_for_the_next_run(lab: Lab) -> None:
    lab.repository(TWO)
    lab.play({"story": "1", "attempt": 1, "steps": BLOCKED}, default=DONE)
    assert lab.loop().exit_code == 1
    lab.play(default=DONE)
    lab.question().unlink()  # a `git clean` is no answer
    told = lab.run("answer", "add-login-1", "-", stdin=b"Use the\nfake key.\n")
    assert "ralphtool run add-login" in told.stdout
    assert lab.run("questions", "--json").json["questions"][0]["answer"] == "Use the\nfake key."
    assert "answered, and not taken up yet" in lab.run("questions").stdout
    assert lab.loop().exit_code == 0


def test_retry_puts_a_question_away(lab: Lab) -> None:
    lab.repository(TWO, attempts=1)
    lab.play({"story": "1", "steps": FAILS}, default=DONE)
    assert lab.loop().exit_code == 1
    lab.play(default=DONE)
    assert lab.run("retry", "1").exit_code == 0
    assert lab.loop().exit_code == 0
    assert (lab.question().exists(), len(list(lab.root.glob(".ralph/questions/answered/*")))) == (False, 1)


# --- what can't be said -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["answer", "1", "x"], "INVALID_VALUE", "story '1' asks nothing; nothing waits for you"),
        (["answer", "1"], "INVALID_VALUE", "asks nothing"),
        (["guide", "9", "x"], "STORY_NOT_FOUND", "there are 1, 2"),
        (["guide", "1", "two", "three"], "USAGE", "quotes"),
        (["guide", " "], "INVALID_VALUE", "nothing in it"),
        (["guide", "x" * 20_000], "INVALID_VALUE", "too long"),
        (["guide", "x", "--change", "../evil"], "INVALID_NAME", "../evil"),
        (["pause", "nothing"], "INVALID_VALUE", "no change nothing"),
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
    assert (told.exit_code, "for the people" in told.stderr) == (2, True)
    assert not (lab.root / ".ralph/steering").exists()


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
    (folder / "8.json").write_text('{"action": "skip", "story": 1, "text": "", "run": null, "at": ""}')
    lab.play(default=DONE)
    lab.run("skip", "2")
    assert lab.loop().exit_code == 1
    assert lab.checkpoints() == ["1"]
    assert len(list(folder.iterdir())) == 8


def test_words_of_many_processes_are_all_there(tmp_path: Path) -> None:
    (tmp_path / ".ralph").mkdir()
    program = (
        "import sys\nfrom ralphtool import steering\n"
        "for n in range(20): steering.say(sys.argv[1], 'c', 'guide', None, sys.argv[2] + str(n))"
    )
    started = [subprocess.Popen([PYTHON, "-c", program, str(tmp_path), name]) for name in "abcd"]
    assert [one.wait(60) for one in started] == [0, 0, 0, 0]
    found = [one.text for one in steering.heard(str(tmp_path), "c")]
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
