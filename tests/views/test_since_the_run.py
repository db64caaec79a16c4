"""What people decided after a run: its report tells that, and every view agrees on the state of the stories."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import termios
from typing import Any

import pytest
from lab import DONE, Lab
from project import COMMAND

from ralphtool.record import change_state
from ralphtool.record.change_state import Question

FOUR = "".join(f"## {number}. Story {number}\n\n- [ ] {number}.1 Make it\n\n" for number in range(1, 5))
WHY_REJECTED = "you rejected story 1: it logs passwords"
ASKS: list[dict[str, Any]] = [{"blocked": "STRIPE_API_KEY is not set"}]


@pytest.fixture(scope="module")
def made_asked(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    lab = Lab(tmp_path_factory.mktemp("asked")).repository(FOUR, accept="held")
    lab.play({"story": "4", "steps": ASKS}, default=DONE)
    assert lab.loop().exit_code == 1
    return lab


@pytest.fixture
def asked(made_asked: Lab, lab: Lab) -> Lab:
    """Three stories are done, not proven; the fourth needs an answer."""
    return lab.copy(made_asked)


def facts(lab: Lab, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = lab.run("report", "--json", *arguments).json
    return found


def states(lab: Lab, *arguments: str) -> list[tuple[str, str]]:
    return [(one["state"], one["proof"]) for one in facts(lab, *arguments)["stories"]]


def decide(lab: Lab, *arguments: str) -> None:
    done = lab.run(*arguments)
    assert done.exit_code == 0, done.stderr


def test_a_report_tells_what_was_decided_since_its_run(asked: Lab) -> None:
    before = states(asked)
    assert (before[0], before[3][0]) == (("done", "unproven"), "waiting")
    decide(asked, "reject", "1", "--why", "it logs passwords")
    decide(asked, "accept", "2")
    decide(asked, "skip", "4", "--why", "later")
    told = facts(asked)
    assert states(asked) == [("open", ""), ("done", "accepted"), ("done", "unproven"), ("skipped", "")]
    assert told["stories"][0]["why"] == "you rejected it: it logs passwords"
    assert told["verdict"].startswith("2 of 4 stories are done: 1 accepted by you, 1 done, not proven")
    assert [one["text"] for one in told["since"]] == [
        "you rejected story 1: it logs passwords",
        "you accepted story 2",
        "you skipped story 4: later",
    ]
    assert [one["run"] for one in told["next"]] == [
        f"ralphtool explain {asked.endings()[2][0]}",
        "ralphtool accept 3",
        'ralphtool reject 3 --why "…"',
        "ralphtool retry 4",
        "ralphtool run add-login",
    ]
    assert told["ended"] - told["began"] == pytest.approx(told["seconds"])
    for form in ("markdown", "html"):
        text = asked.run("report", "--format", form, "--output", "-").stdout
        assert "you rejected story 1: it logs passwords" in text
        assert "ralphtool accept 2" not in text
        assert 'ralphtool answer 4 "…"' not in text
    junit = asked.run("report", "--format", "junit").stdout
    assert 'skipped="2"' in junit
    assert 'errors="0"' in junit


def test_a_run_whose_last_story_is_accepted_is_done(asked: Lab) -> None:
    for story in ("1", "2", "3"):
        decide(asked, "accept", story)
    assert facts(asked)["state"] == "unfinished"
    decide(asked, "skip", "4")
    assert facts(asked)["state"] == "unfinished", "it is not optional"
    decide(asked, "retry", "4")
    assert [one["state"] for one in facts(asked)["stories"]] == ["done", "done", "done", "open"]
    asked.play(default=DONE)
    asked.loop()
    assert facts(asked)["state"] == "unproven"
    decide(asked, "accept", "4")
    told = facts(asked)
    assert (told["state"], told["reason"]) == ("done", "")
    assert [one["run"] for one in told["next"]] == [
        "git log -p HEAD..ralph/add-login",
        "ralphtool finish add-login --squash",
    ]
    decide(asked, "reject", "4")
    told = facts(asked)
    assert (told["state"], told["reason"]) == ("unfinished", "")
    assert [one["run"] for one in told["next"]] == ["ralphtool run add-login"]


@pytest.mark.parametrize("action", ["skip", "retry"])
def test_a_skipped_or_retried_story_needs_no_answer_anywhere(asked: Lab, action: str) -> None:
    assert "needs your answer" in asked.run("show", "add-login").stdout
    decide(asked, action, "4")
    assert not any(one["story"] == "4" for one in asked.run("questions", "--json").json["questions"])
    for command in (["list"], ["show", "add-login"], ["report"]):
        assert 'answer 4 "…"' not in asked.run(*command).stdout
    assert "4. Story 4 0/1  (needs your answer" not in asked.run("show", "add-login").stdout


def test_the_report_of_an_older_run_tells_the_decisions_and_leads_to_the_newest(asked: Lab) -> None:
    [old] = [one["id"] for one in asked.run("runs", "--json").json["runs"]]
    decide(asked, "reject", "1", "--why", "it logs passwords")
    decide(asked, "skip", "4")
    asked.play(default=DONE)
    asked.loop()
    told = facts(asked, old)
    newest = asked.run("runs", "--json").json["runs"][0]["id"]
    assert (told["newer"], facts(asked)["newer"]) == (newest, "")
    assert [one["text"] for one in told["since"]] == [
        "you rejected story 1: it logs passwords",
        "you skipped story 4",
    ]
    assert [one["run"] for one in told["next"]] == ["ralphtool report add-login"]
    assert "ralphtool accept" not in asked.run("report", old).stdout
    assert facts(asked)["since"] == []


def test_explain_tells_that_a_story_was_rejected(asked: Lab) -> None:
    assert "Since then" not in asked.run("explain", "1").stdout
    decide(asked, "reject", "1", "--why", "it logs passwords")
    told = asked.run("explain", "1").stdout
    assert "Since then\n  you rejected it: it logs passwords; story 1 is open again\n" in told
    assert asked.run("explain", "1", "--json").json["since"] == [
        "you rejected it: it logs passwords; story 1 is open again"
    ]
    decide(asked, "skip", "4")
    assert "Since then\n  you skipped it\n" in asked.run("explain", "4").stdout


def in_terminal(lab: Lab, *arguments: str) -> str:
    own, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 100, 0, 0))
    process = subprocess.Popen([COMMAND, *arguments], cwd=lab.root, env=lab.env, stdin=subprocess.DEVNULL, stdout=its)
    os.close(its)
    told = b""
    try:
        while block := os.read(own, 1 << 16):
            told += block
    except OSError:
        pass  # how the end of a terminal looks
    process.wait()
    os.close(own)
    return told.decode()


def test_a_terminal_shows_no_backslashes_of_markdown(asked: Lab) -> None:
    decide(asked, "accept", "2", "--why", r"a_b _c_ <d> `e\*f` g\h *i*")
    assert r"a_b \_c\_ \<d\> `e\*f` g\\h \*i\*" in asked.run("report").stdout
    assert r"a_b _c_ <d> `e\*f` g\h *i*" in " ".join(in_terminal(asked, "report").split())


def test_a_run_that_is_refused_leaves_no_record(asked: Lab) -> None:
    """Without the package of the workers, or without a server, as here."""
    before = facts(asked), asked.run("runs").stdout
    config = asked.read(".ralph/config.toml")
    asked.write(".ralph/config.toml", f'{config}\n[executor]\naddress = "127.0.0.1:1"\n')
    for arguments in ((), ("--format", "json")):
        refused = asked.run("run", "add-login", "--executor", "temporal", "--agent-command", "true", *arguments)
        assert refused.exit_code in (1, 2), refused.stderr
    told = json.loads(refused.stdout)
    assert (told["result"], told["run"], told["paths"]["record"]) == ("refused", None, None)
    assert (facts(asked), asked.run("runs").stdout) == before
    assert [name for name in os.listdir(asked.root / ".ralph/runs") if name != ".gitignore"] == [before[0]["run"]]
    assert asked.run("logs", "add-login:1").exit_code == 0


# --- counts -----------------------------------------------------------------------------------------


def test_an_accepted_attempt_is_no_further_attempt(asked: Lab) -> None:
    decide(asked, "accept", "4")
    assert len(asked.endings()) == 5
    assert "all runs together" not in asked.run("report").stdout
    asked.play(default=DONE)
    decide(asked, "reject", "1")
    asked.loop()
    told = facts(asked)
    assert "all runs together: 2 runs, 5 attempts, " in asked.run("report").stdout
    of_all = [one["seconds"] for one in asked.run("runs", "--json").json["runs"]]
    assert told["knowledge"]["seconds"] == pytest.approx(sum(of_all), abs=0.01)


def test_the_totals_have_the_attempts_of_all_runs_even_if_a_record_names_no_stories(asked: Lab) -> None:
    run = facts(asked)["run"]
    empty = f"{run[:-20]}29991231-235959-abcd"
    end = {"at": "2999-12-31T23:59:59.000000Z", "type": "run_ended", "result": "unfinished", "reason": "refused"}
    asked.write(f".ralph/runs/{empty}/events.jsonl", json.dumps(end, separators=(",", ":")) + "\n")
    assert facts(asked)["run"] == empty
    assert "all runs together: 2 runs, 4 attempts, " in asked.run("report").stdout


def test_a_list_counts_stories_as_the_summary_of_the_run_does(asked: Lab) -> None:
    summary = asked.run("watch").stdout.splitlines()[1]
    assert "3 of 4 stories are done: 3 done, not proven" in summary
    assert "; 1 needs your answer." in summary
    hint = "1 story needs your answer, 3 stories are done, not proven: `ralphtool questions`"
    assert hint in asked.run("list").stdout
    current = change_state.load(str(asked.root), "add-login")
    current.story("1").question = Question("add-login-1.md", "## Why\n\nthere is no gate")
    change_state.save(str(asked.root), "add-login", current)
    assert hint in asked.run("list").stdout, "a question about a done story is not counted twice"
    assert len(asked.run("questions", "--json").json["questions"]) == 4


def test_ticks_of_an_attempt_that_failed_are_undone_in_every_view(lab: Lab) -> None:
    lab.repository(FOUR, attempts=1).play({"story": "4", "steps": [{"tick": "all"}, *ASKS]}, default=DONE)
    lab.loop()
    assert "4. Story 4 0/1" in lab.run("show", "add-login").stdout
    story = facts(lab)["stories"][3]
    assert (story["state"], story["tasks_done"], story["tasks_total"]) == ("waiting", 0, 1)


# --- after `finish`, and old summaries --------------------------------------------------------------


def steps_of_watch(lab: Lab, *arguments: str) -> list[str]:
    told = lab.run("watch", *arguments).stdout
    return [line.strip() for line in told.partition("Next steps\n")[2].splitlines()]


@pytest.mark.parametrize("arguments", [(), ("--replay", "--speed", "0")])
def test_watch_advises_only_what_is_still_possible(asked: Lab, arguments: tuple[str, ...]) -> None:
    assert "ralphtool accept 1" in steps_of_watch(asked, *arguments)
    decide(asked, "accept", "1")
    assert steps_of_watch(asked, *arguments) == ["see what has changed since", "ralphtool report add-login"]
    decide(asked, "finish", "add-login", "--squash")
    assert steps_of_watch(asked, *arguments) == [
        "review the finished work",
        "git log -p refs/ralph/finished/add-login",
    ]


@pytest.mark.parametrize("way", ["--squash", "--merge"])
def test_a_story_that_was_rejected_is_open_after_finish_as_well(asked: Lab, way: str) -> None:
    decide(asked, "reject", "1", "--why", "it logs passwords")
    before = facts(asked)
    decide(asked, "finish", "add-login", way)
    told = facts(asked)
    assert (told["state"], told["stories"][0]["state"]) == ("unfinished", "open")
    assert told["stories"][0]["why"] == "you rejected it: it logs passwords"
    assert told["since"] == before["since"] == [{**before["since"][0], "text": WHY_REJECTED}]
    assert asked.run("report", "--format", "junit").stdout.count("you rejected it: it logs passwords") == 1
    again = asked.run("finish", "add-login", way)
    assert "add-login is already finished" in again.stderr, "all of it was done"
    asked.play(default=DONE)
    asked.loop()
    prompts = sorted(asked.root.glob(".ralph/runs/*/*add-login-1-2*/prompt.md"))
    assert ["it logs passwords" in one.read_text() for one in prompts] == [True]
    assert not list(asked.root.glob(".ralph/steering/add-login/*.json")), "the run has recorded it"


def test_after_finish_nothing_is_accepted_and_the_error_says_what_to_do(asked: Lab) -> None:
    decide(asked, "finish", "add-login", "--squash")
    refused = asked.run("accept", "4")
    assert refused.exit_code == 1
    assert "add-login is already finished" in refused.stderr
    assert "`ralphtool run add-login` creates a new branch if there is more to do" in refused.stderr
    report = asked.run("report").stdout
    assert "ralphtool accept" not in report
    assert "ralphtool reject" not in report
