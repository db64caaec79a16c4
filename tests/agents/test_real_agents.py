"""Every agent, as the real program, through the real loop: the good ending and all the bad ones."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import kill, processes_with, wait_until
from realagents import EVERY_AGENT, RealLab, by_story, some, turns, work
from sandbox.boxes import needs_box

from ralphtool.testing import (
    Call,
    Cut,
    Fail,
    Mcp,
    ModelServer,
    Request,
    Run,
    Say,
    Silence,
    TooLong,
    Turn,
    Write,
    script,
)

TWO_STORIES = "## 1. First\n\n- [ ] 1.1 Make a\n- [ ] 1.2 Make b\n\n## 2. Second\n\n- [ ] 2.1 Make c\n"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[RealLab]:
    made = RealLab(tmp_path)
    yield made
    made.nobody_is_left()


@EVERY_AGENT
def test_it_solves_a_change(lab: RealLab, agent: str) -> None:
    with ModelServer(by_story(story_1=work(agent, "1", "1.1", "1.2"), story_2=work(agent, "2", "2.1"))) as model:
        lab.prepare(agent, model, TWO_STORIES, gate="test -e 1.txt -o ! -e 2.txt")
        before = lab.users_state()
        result = lab.loop()
    assert result.exit_code == 0, result.stdout[-3000:]
    assert lab.endings() == [("add-login-1-1", "completed"), ("add-login-2-1", "completed")]
    assert lab.checkpoints() == ["1", "2"]
    assert lab.git("show", "ralph/add-login:1.txt") == "work on 1"
    assert "Story 2 needs its own file" in lab.git("show", "ralph/add-login:openspec/changes/add-login/design.md")
    assert lab.told(result, "gate", "ok")[-1] is True
    assert lab.users_state() == before
    assert model.errors == []


TROUBLES = {
    "rate-limit": Fail(status=429, message="Rate limit reached, slow down"),
    "overload": Fail(status=500, message="Internal server error"),
    "login": Fail(status=401, message="Invalid API key"),
    "network": Cut(),
}


@EVERY_AGENT
@pytest.mark.parametrize("trouble", TROUBLES)
def test_what_is_nobodys_fault_is_charged_to_nobody(lab: RealLab, agent: str, trouble: str) -> None:
    with ModelServer(script(TROUBLES[trouble])) as model:
        lab.prepare(agent, model, max_iterations=1, patience="4s")
        result = lab.loop()
    assert result.exit_code == 1
    [status] = lab.told(result, "verdict", "status")
    [summary] = lab.told(result, "verdict", "summary")
    assert (status, summary.partition(":")[0]) == ("transient", trouble), summary
    assert lab.entries() == []


@EVERY_AGENT
def test_one_that_hangs_is_ended(lab: RealLab, agent: str) -> None:
    with ModelServer(script(Silence())) as model:
        lab.prepare(agent, model, max_iterations=1, silence="12s")
        result = lab.loop()
    assert result.exit_code == 1
    assert lab.told(result, "verdict", "status") == ["failed"]
    assert "printed nothing for too long" in lab.told(result, "verdict", "summary")[0]


@EVERY_AGENT
def test_a_killed_run_leaves_nobody_and_charges_nothing(lab: RealLab, agent: str) -> None:
    """Killed in the middle of a tool whose shell has its own session."""
    marker = f"7{os.getpid()}{abs(hash(str(lab.root))) % 1000}"
    with ModelServer(script(Run(f"sleep {marker}"), Say("{promise}"))) as model:
        lab.prepare(agent, model)
        running = lab.start()
        assert wait_until(lambda: processes_with(f"sleep\0{marker}"), 60), "the tool was never started"
        kill(running, signal.SIGINT)
    assert running.returncode == 130
    assert processes_with(f"sleep\0{marker}") == []
    assert lab.entries() == []


@some("claude", "codex")
def test_a_context_that_is_too_small_makes_the_story_smaller(lab: RealLab, agent: str) -> None:
    with ModelServer(script(TooLong())) as model:
        lab.prepare(agent, model, TWO_STORIES, max_iterations=1, patience="4s")
        result = lab.loop()
    assert lab.told(result, "verdict", "status") == ["failed"], result.stdout[-2000:]
    assert lab.told(result, "decision", "action") == ["break-chunks"]


@some("claude", "codex")
def test_a_promise_without_work_is_not_believed(lab: RealLab, agent: str) -> None:
    """Nor is its text about limits: no error reported any."""
    talk = "I used the package ratelimit. Error 429: rate limit reached, usage limit, try again in 2 hours."
    with ModelServer(
        script(Write("ratelimit.txt", talk), Run("cat ratelimit.txt"), Say(f"{talk}\n{{promise}}"))
    ) as model:
        lab.prepare(agent, model, max_iterations=1)
        result = lab.loop()
    assert lab.told(result, "verdict", "status") == ["failed"]
    assert "not ticked: 1.1" in lab.told(result, "verdict", "summary")[0]


# --- permissions ------------------------------------------------------------------------------------


CALLS = {  # the tools that can create a file
    "claude": [("Write", "file_path", "content"), ("Bash", "command")],
    "gemini": [("write_file", "file_path", "content"), ("run_shell_command", "command")],
    "opencode": [("write", "filePath", "content"), ("bash", "command")],
}


def planting(agent: str, path: str) -> list[Turn]:
    """Two ways to create a file. Even if an agent does not offer a tool for that, a model may still call it."""
    if agent not in CALLS:
        return [Write(path, "x"), Run(f"touch {path}")]
    (write, place, content), (shell, command) = CALLS[agent]
    about = {"description": "a command of the script"}
    return [Call(write, {place: path, content: "x"}), Call(shell, {command: f"touch {path}", **about})]


@some("claude", "codex", "gemini", "opencode")
def test_without_a_free_shell_it_works_by_our_tools(lab: RealLab, agent: str) -> None:
    """It can't do what the user has not allowed; ticks and learnings go through MCP."""
    forbidden = lab.root.parent / "outside.txt"
    doing = [
        planting(agent, str(forbidden))[1],
        Write("1.txt", "work on 1\n"),
        Mcp("task_done", {"id": "1.1"}),
        Mcp("learn", {"text": "Tools need no shell"}),
        Say("{promise}"),
    ]
    with ModelServer(script(*doing)) as model:
        lab.prepare(agent, model, more={"permissions": "edit"})
        result = lab.loop()
    assert result.exit_code == 0, result.stdout[-3000:]
    assert any(f"{agent} " in text and 'permissions = "all"' in text for text in lab.told(result, "notice", "text"))
    assert not forbidden.exists()
    assert lab.checkpoints() == ["1"]
    assert "Tools need no shell" in lab.git("show", "ralph/add-login:openspec/changes/add-login/design.md")
    assert any(name.endswith("task_done") for request in model.requests for name in request.tools)


@some("claude", "codex")
def test_without_our_tools_it_works_by_our_command(lab: RealLab, agent: str) -> None:
    """As if `ralphtool[mcp]` were not installed: that one command is allowed."""
    with ModelServer(script(*work(agent, "1", "1.1"))) as model:
        lab.prepare(agent, model, more={"permissions": "edit", "mcp": False})
        result = lab.loop()
    assert result.exit_code == 0, result.stdout[-3000:]
    assert lab.checkpoints() == ["1"]
    assert not any(name.endswith("task_done") for request in model.requests for name in request.tools)


@pytest.mark.parametrize(
    ("workspace", "words"),
    [
        ("here", "it can run any command and change any file that you can"),
        pytest.param("box", "restricted by its box", marks=needs_box),
    ],
)
def test_what_is_allowed_is_said_once(lab: RealLab, workspace: str, words: str) -> None:
    with ModelServer(by_story(story_1=work("claude", "1", "1.1", "1.2"), story_2=work("claude", "2", "2.1"))) as model:
        lab.prepare("claude", model, TWO_STORIES, workspace=workspace)
        result = lab.loop()
    [said] = [text for text in lab.told(result, "notice", "text") if "without asking" in text]
    assert words in said


BLOCKED = "ralphtool agent observe blocker 'Nobody told me the colour' --description 'The design names none'"


@some("claude", "codex", "gemini", "opencode", "aider")
def test_a_blocker_is_looked_into_by_one_who_changes_nothing(lab: RealLab, agent: str) -> None:
    planted = lab.root / "planted.txt"
    blocked = script(*turns(agent, Run(BLOCKED), Say("<promise>BLOCKED:{token}:nobody told me the colour</promise>")))
    say = Say("<promise>UNREAL:{token}:the README has it</promise>")
    looking = script(*turns(agent, *planting(agent, str(planted)), say))
    working = script(*work(agent, "1", "1.1"))
    was_there = []

    def choose(request: Request) -> Turn:
        if "UNREAL" in request.prompt:
            was_there.append(planted.exists())
            return looking(request)
        return (working if "the README has it" in request.prompt else blocked)(request)

    with ModelServer(choose) as model:
        lab.prepare(agent, model, check_blockers=True)
        result = lab.loop()
    assert result.exit_code == 0, result.stdout[-3000:]
    assert lab.endings() == [("add-login-1-1", "blocked"), ("add-login-1-2", "completed")]
    assert lab.told(result, "blocker_checked", "real") == [False]
    assert lab.told(result, "decision", "action")[0] == "retry"
    assert was_there
    assert not any(was_there)
    assert not lab.git("ls-tree", "--name-only", "ralph/add-login", "planted.txt")


@some("claude", "codex")
def test_a_question_in_its_last_word_is_passed_on(lab: RealLab, agent: str) -> None:
    asking = script(*turns(agent, Run("ls"), Say("The design names none.\n\nWhich colour should the button have?")))
    with ModelServer(asking) as model:
        lab.prepare(agent, model, attempts=5, max_iterations=4)
        result = lab.loop()
    assert result.exit_code == 1
    assert lab.told(result, "decision", "action") == ["retry", "manual"]
    assert lab.told(result, "question", "missing") == ["Which colour should the button have?"]


# --- limits -----------------------------------------------------------------------------------------


def test_when_one_meets_its_limit_the_next_takes_over(lab: RealLab) -> None:
    limited, working = script(Fail(status=429, message="Slow down")), script(*work("codex", "1", "1.1"))
    with ModelServer(lambda request: (limited if request.dialect == "anthropic" else working)(request)) as model:
        lab.prepare("claude codex", model, patience="4s")
        result = lab.loop()
    assert result.exit_code == 0
    assert lab.told(result, "iteration_started", "agent") == ["claude", "codex"]
    assert lab.told(result, "iteration_started", "attempt") == [1, 1]
    assert lab.told(result, "handed_over", "to") == ["codex"]


@pytest.mark.parametrize(("first", "second", "delay"), [("codex", "claude", 3600), ("claude", "codex", 45)])
def test_one_that_waits_in_silence_is_handed_over(lab: RealLab, first: str, second: str, delay: int) -> None:
    """Codex says once that it reconnects, then nothing for an hour. Claude says how long it will wait."""
    wait = {"retry-after": str(delay)}
    limited, working = script(Fail(status=429, message="Slow down", headers=wait)), script(*work(second, "1", "1.1"))
    refused = {"claude": "anthropic", "codex": "responses"}[first]
    with ModelServer(lambda request: (limited if request.dialect == refused else working)(request)) as model:
        lab.prepare(f"{first} {second}", model, patience="4s", silence="60s")
        result = lab.loop()
    assert result.exit_code == 0, result.stdout[-3000:]
    assert lab.told(result, "verdict", "status") == ["transient", "completed"]
    assert lab.told(result, "iteration_started", "agent") == [first, second]
    assert lab.told(result, "iteration_started", "attempt") == [1, 1]
    assert lab.told(result, "verdict", "seconds")[0]["agent"] < 30, (
        "it was ended by patience, not by the clock of silence"
    )
    failures = [one for one in lab.told(result, "agent", "event") if one["kind"] == "failure"]
    assert len(failures) == 1
    assert ("reset_at" in failures[0]) == (first == "claude")


def subscribed(lab: RealLab) -> None:
    """Claude reports the quota only to subscribers."""
    del lab.env["ANTHROPIC_API_KEY"]
    lab.env["CLAUDE_CODE_OAUTH_TOKEN"] = "no-token-is-needed-here"


def test_a_reserve_of_the_quota_is_left_to_its_user(lab: RealLab) -> None:
    doing = by_story(story_1=work("claude", "1", "1.1", "1.2"), story_2=work("codex", "2", "2.1"))
    headers = {
        "anthropic-ratelimit-unified-status": "allowed_warning",
        "anthropic-ratelimit-unified-reset": str(int(time.time()) + 3600),
        "anthropic-ratelimit-unified-representative-claim": "five_hour",
        "anthropic-ratelimit-unified-5h-utilization": "0.83",
        "anthropic-ratelimit-unified-5h-reset": str(int(time.time()) + 3600),
        "anthropic-ratelimit-unified-5h-surpassed-threshold": "0.8",
    }
    with ModelServer(doing, headers=headers) as model:
        lab.prepare("claude codex", model, TWO_STORIES, more={"stop_at": "80%"})
        subscribed(lab)
        result = lab.loop()
    assert result.exit_code == 0, result.stdout[-3000:]
    assert lab.told(result, "iteration_started", "agent") == ["claude", "codex"]
    assert lab.told(result, "handed_over", "why") == ["claude has used 83% of its five-hour quota, and stops at 80%"]


def test_a_told_time_is_waited_for(lab: RealLab) -> None:
    over = {"anthropic-ratelimit-unified-representative-claim": "five_hour"}
    limit = Fail(status=429, reset_in=3, headers=over, message="limit", times=1)
    with ModelServer(script(limit, *work("claude", "1", "1.1"))) as model:
        lab.prepare("claude", model)
        subscribed(lab)
        result = lab.loop()
    assert result.exit_code == 0, result.stdout[-3000:]
    assert lab.told(result, "verdict", "status") == ["transient", "completed"]
    [seconds] = lab.told(result, "waiting", "seconds")
    assert 0 < seconds < 5
    assert lab.endings() == [("add-login-1-1", "completed")]


# --- money ------------------------------------------------------------------------------------------


def test_claude_keeps_to_what_is_left_of_a_budget(lab: RealLab) -> None:
    many = [Run(f"echo {number}") for number in range(20)]
    with ModelServer(script(*many, Say("{promise}"))) as model:
        lab.prepare("claude", model, max_cost=0.02)
        result = lab.loop()
    assert result.exit_code == 1
    assert len(model.requests) < 20
    assert lab.told(result, "verdict", "status") == ["interrupted"], "the run's money is no fault of the story's"
    assert lab.entries() == []
    assert lab.told(result, "run_ended", "reason") == ["the limit of $0.02 is reached (--max-cost)"]
    assert lab.told(result, "run_ended", "spent")[0]["cost"] >= 0.02


def test_tokens_are_counted_and_priced(lab: RealLab) -> None:
    with ModelServer(script(*work("codex", "1", "1.1"))) as model:
        lab.prepare("codex", model)
        with (lab.root / ".ralph/config.toml").open("a") as config:
            config.write("[prices.codex]\ninput = 10\noutput = 100\n")
        result = lab.loop()
    assert result.exit_code == 0
    [read], [written], [cost] = (
        lab.told(result, "verdict", field) for field in ("input_tokens", "output_tokens", "cost")
    )
    assert (read, written) == (1000 * len(model.requests), 50 * len(model.requests))
    assert cost == pytest.approx(read * 10e-6 + written * 100e-6)


# --- chunks -----------------------------------------------------------------------------------------


def test_what_is_too_big_is_done_task_by_task(lab: RealLab) -> None:
    """The whole story does not fit into the context; each of its tasks does."""
    whole = script(TooLong())
    tasks = {task: script(*work("claude", "1", task)) for task in ("1.1", "1.2")}

    def choose(request: Request) -> Turn:
        found = re.search(r"do only the task (\S+),", request.prompt)
        return tasks[found[1]](request) if found else whole(request)

    with ModelServer(choose) as model:
        lab.prepare("claude", model, "## 1. First\n\n- [ ] 1.1 Make a\n- [ ] 1.2 Make b\n")
        result = lab.loop()
    assert result.exit_code == 0, result.stdout[-3000:]
    tried = list(zip(*(lab.told(result, "verdict", name) for name in ("task", "reasons")), strict=True))
    assert [task for task, _ in tried] == [None, "1.1", "1.2"], tried
    assert [status for _, status in lab.endings()] == ["failed", "partial", "completed"]
    assert lab.checkpoints() == ["1"]
