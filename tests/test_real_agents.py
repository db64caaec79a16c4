"""Every agent, as the real program, through the real loop: the good ending and all the bad ones."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import kill, processes_with, wait_until
from realagents import EVERY_AGENT, RealLab, by_story, turns, work

from ralphtool.testing import Cut, Fail, ModelServer, Run, Say, Silence, TooLong, Write, script

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
    assert "said nothing for too long" in lab.told(result, "verdict", "summary")[0]


@EVERY_AGENT
def test_a_killed_run_leaves_nobody_and_charges_nothing(lab: RealLab, agent: str) -> None:
    """In the middle of a tool whose shell has a session of its own."""
    marker = f"7{os.getpid()}{abs(hash(str(lab.root))) % 1000}"
    with ModelServer(script(Run(f"sleep {marker}"), Say("{promise}"))) as model:
        lab.prepare(agent, model)
        running = lab.start()
        assert wait_until(lambda: processes_with(f"sleep\0{marker}"), 60), "the tool was never started"
        kill(running, signal.SIGINT)
    assert running.returncode == 130
    assert processes_with(f"sleep\0{marker}") == []
    assert lab.entries() == []


@EVERY_AGENT
def test_a_context_that_is_too_small_makes_the_story_smaller(lab: RealLab, agent: str) -> None:
    with ModelServer(script(TooLong())) as model:
        lab.prepare(agent, model, TWO_STORIES, max_iterations=1, patience="4s")
        result = lab.loop()
    assert lab.told(result, "verdict", "status") == ["failed"], result.stdout[-2000:]
    assert lab.told(result, "decision", "action") == ["break-chunks"]


@EVERY_AGENT
def test_a_promise_without_work_is_not_believed(lab: RealLab, agent: str) -> None:
    with ModelServer(script(*turns(agent, Write("x.txt", "x\n"), Say("{promise}")))) as model:
        lab.prepare(agent, model, max_iterations=1)
        result = lab.loop()
    assert lab.told(result, "verdict", "status") == ["failed"]
    assert "not ticked: 1.1" in lab.told(result, "verdict", "summary")[0]
