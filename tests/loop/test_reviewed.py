"""Faults that reviewers found in the loop: interrupted work, limits, secrets, and agents that take liberties."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from lab import DONE, Lab, Process, kill, processes_with, wait_until
from patience import PATIENCE

from ralphtool import settings, specs
from ralphtool.agents import End
from ralphtool.core import lifecycle, locks
from ralphtool.executors import Assignment, Report
from ralphtool.history import History
from ralphtool.judging.gates import GateResult
from ralphtool.loop.change import Change
from ralphtool.loop.loop import Loop, Parts
from ralphtool.record.log import Log
from ralphtool.workspace.folder import Folder
from ralphtool.workspace.git import Repository
from ralphtool.workspace.protected_state import ProtectedState

Steps = list[dict[str, Any]]

TASKS = "openspec/changes/add-login/tasks.md"
ONE = "## 1. First\n\n- [ ] 1.1 Make a\n"
TWO = f"{ONE}\n## 2. Second\n\n- [ ] 2.1 Make b\n"
TWO_TASKS = f"{ONE}- [ ] 1.2 Make b\n"
LIMITED: dict[str, Any] = {"error": "rate-limit", "text": "slow down", "reset_in": 3600}
AGAIN: dict[str, Any] = {"error": "rate-limit", "text": "slow down"}
HANG: dict[str, Any] = {"hang": True}
BLOCKED: Steps = [{"blocked": "nobody told me the colour of the button"}]
CUT_OFF = "was interrupted from outside"
SECRET = "hunter2hunter2x"

# A scripted agent with extra arguments that say how it differs.
ODD = """
import os, time
from ralphtool.agents import End, Message, Quota, Tool, Traits, Usage
from ralphtool.agents.scripted import ScriptedReader, Scripted


class Odd(Scripted):
    def __init__(self, name, options):
        script, *others = options["args"]
        super().__init__(name, {**options, "args": (script,)})
        self.odd = dict(other.split("=", 1) for other in others)
        self.traits = Traits(cost="told", read_only="look" in self.odd, is_kept="kept" in self.odd)

    def start(self, job):
        if job.read_only:
            return Scripted(self.name, {"args": (self.odd["look"],)}).start(job)
        self._env["OWN_FILE"] = os.path.join(job.folder, "own.log")
        return super().start(job)

    def reader(self, job):
        return OddLines(self.odd, os.path.join(job.folder, "own.log"))


class OddLines(ScriptedReader):
    def __init__(self, odd, own):
        super().__init__()
        self.odd, self.own, self.late = odd, own, []

    def take(self, line):
        for event in super().take(line):
            if "late" in self.odd and isinstance(event, Usage):
                self.late.append(event)
            else:
                yield event

    def rest(self):
        past = [Tool("edit", "a.txt"), Message("I have made a.")] if "past" in self.odd else []
        told = [Message(open(self.own).read())] if os.path.exists(self.own) else []
        quotas = [one.split(":") for one in self.odd.get("quotas", "").split(",") if one]
        quotas = [Quota(float(used), time.time() + float(seconds), name) for used, seconds, name in quotas]
        return [*super().rest(), *past, *told, *self.late, *quotas]

    def end(self, exit_code):
        if os.path.exists(self.own):
            return End(True, open(self.own).read())
        return super().end(exit_code)
"""


@pytest.fixture
def odd(lab: Lab, tmp_path: Path) -> Callable[..., None]:
    """Registers the agent `odd`; returns a function that configures it."""
    info = tmp_path / "odd/odd-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ralphtool.agents]\nodd = odd_agent:Odd\n")
    (info.parent / "odd_agent.py").write_text(ODD)
    lab.env |= {"PYTHONPATH": str(info.parent), "PYTHONDONTWRITEBYTECODE": "1"}

    def describe(*args: str, **more: Any) -> None:
        lines = ["[agents.odd]", f"args = {json.dumps([str(lab.script), *args])}"]
        configure(lab, "\n".join([*lines, *(f"{name} = {json.dumps(value)}" for name, value in more.items())]))

    return describe


def configure(lab: Lab, text: str) -> None:
    with (lab.root / ".ralph/config.toml").open("a") as config:
        config.write(f"{text}\n")


def other(lab: Lab, name: str, steps: Steps) -> None:
    """Another scripted agent, which does the same each time."""
    script = lab.script.with_name(f"{name}.json")
    script.write_text(json.dumps({"turn": [{"steps": steps}]}))
    configure(lab, f'[agents.{name}]\nkind = "scripted"\nargs = ["{script}"]')


def turn(steps: Steps, **more: Any) -> dict[str, Any]:
    return {"story": "1", "steps": steps, **more}


def told(lab: Lab, kind: str, field: str) -> list[Any]:
    return [event[field] for event in lab.events() if event["type"] == kind]


def row(lab: Lab) -> dict[str, Any]:
    found: dict[str, Any] = told(lab, "run_ended", "stories")[-1][0]
    return found


def prompts(lab: Lab) -> list[str]:
    """All prompts, in order."""
    found = sorted(lab.root.glob(".ralph/runs/*/*/prompt.md"), key=lambda path: path.stat().st_mtime_ns)
    return [path.read_text() for path in found]


def on_branch(lab: Lab) -> list[str]:
    return lab.git("ls-tree", "-r", "--name-only", "ralph/add-login").split()


def cut_off(lab: Lab) -> list[str]:
    return lab.git("for-each-ref", "--format=%(refname)", "refs/ralph/interrupted").split()


def needs(condition: str) -> dict[str, Any]:
    return {"run": condition, "must": True}


# --- interrupted work is resumed --------------------------------------------------------------------


def test_what_was_cut_off_is_taken_up_also_after_others_came_no_further(lab: Lab) -> None:
    lab.repository(TWO_TASKS, agents=["scripted", "second", "third"], tests=["true"])
    lab.play(default=[{"write": "half.txt", "text": "half"}, {"tick": "1.1"}, LIMITED])
    other(lab, "second", [LIMITED])
    other(lab, "third", [needs("grep -q half half.txt"), *DONE])
    assert lab.loop().exit_code == 0
    assert told(lab, "verdict", "status") == ["transient", "transient", "completed"]
    assert [CUT_OFF in text for text in prompts(lab)] == [False, True, True]
    assert "half.txt" in on_branch(lab)
    assert len(cut_off(lab)) == 1, "there was nothing new to keep"
    assert told(lab, "gate", "when") == ["before", "after"], "nothing new can be red before a retry, or after a limit"


def test_the_next_run_takes_it_up_as_well(lab: Lab) -> None:
    lab.repository(ONE, max_iterations=1).play(default=[{"write": "half.txt", "text": "half"}, LIMITED])
    assert lab.loop().exit_code == 1
    lab.play(default=[needs("grep -q half half.txt"), *DONE])
    assert lab.loop().exit_code == 0
    assert CUT_OFF in prompts(lab)[-1]
    assert lab.endings() == [("add-login-1-1", "completed")]
    assert "half.txt" in on_branch(lab)


def test_it_is_taken_up_on_top_of_what_an_attempt_has_proven(lab: Lab) -> None:
    lab.repository(TWO_TASKS, agents=["scripted", "second", "third"])
    partial: Steps = [{"write": "a.txt", "text": "a"}, {"tick": "1.1"}, {"complete": True}]
    lab.play(turn(partial, attempt=1), turn([{"write": "b.txt", "text": "b"}, LIMITED], attempt=2))
    other(lab, "second", [LIMITED])
    other(lab, "third", [needs("cat a.txt b.txt"), *DONE])
    assert lab.loop().exit_code == 0
    assert told(lab, "verdict", "status") == ["partial", "transient", "transient", "completed"]
    assert {"a.txt", "b.txt"} <= set(on_branch(lab))
    assert len(cut_off(lab)) == 1


def with_edited_spec(lab: Lab, **more: Any) -> Lab:
    lab.repository(ONE, max_iterations=1, **more)
    edit = {"run": f"sed -i 's/Make a/Make nothing/' {TASKS}"}
    lab.play(default=[edit, {"write": "half.txt", "text": "half"}, LIMITED])
    return lab


def test_work_that_was_not_honest_is_not_taken_up(lab: Lab) -> None:
    assert with_edited_spec(lab).loop().exit_code == 1
    lab.play(default=[needs(f"grep -q 'Make a' {TASKS} && test ! -e half.txt"), *DONE])
    assert lab.loop().exit_code == 0
    assert CUT_OFF not in prompts(lab)[-1]
    assert lab.git("show", f"{cut_off(lab)[0]}:half.txt") == "half", "it is not lost either"


def test_cheating_in_what_was_taken_up_is_found_in_the_end(lab: Lab) -> None:
    assert with_edited_spec(lab, guard="off").loop().exit_code == 1
    lab.play(default=[needs(f"grep -q 'Make nothing' {TASKS}"), *DONE])
    assert lab.loop("--guard", "fail").exit_code == 1
    assert told(lab, "verdict", "status") == ["transient", "failed"]
    assert [one["kind"] for one in told(lab, "verdict", "findings")[-1]] == ["spec-edited"]


def test_what_is_red_because_of_it_is_newly_red_and_it_is_dropped_then(lab: Lab) -> None:
    lab.repository(ONE, agents=["scripted", "second"], tests=["test ! -e bad.txt"])
    lab.play(default=[{"write": "bad.txt", "text": ""}, LIMITED])
    other(lab, "second", [{"run": "test -e bad.txt; echo $? >> $HOME/there"}, *DONE])
    assert lab.loop().exit_code == 0
    assert told(lab, "verdict", "status") == ["transient", "failed", "completed"]
    assert "`test ! -e bad.txt` is newly red" in told(lab, "verdict", "reasons")[1][0]
    assert (lab.home / "there").read_text().split() == ["0", "1"]
    assert [CUT_OFF in text for text in prompts(lab)] == [False, True, False]


# --- without git ------------------------------------------------------------------------------------

BREAKS: Steps = [{"write": "1.txt", "text": "broken"}, {"tick": "all"}, {"run": "touch $HOME/up"}]


@pytest.fixture
def tried(lab: Lab, request: pytest.FixtureRequest) -> Lab:
    """A project without git, after an iteration that broke something, ticked everything, and did not finish."""
    lab.openspec(ONE)
    lab.configure(tests=["! grep -q broken 1.txt"], max_iterations=1)
    lab.play(default=[*BREAKS, LIMITED if request.param == "limited" else HANG])
    process = lab.start()
    try:
        assert wait_until((lab.home / "up").exists)
    finally:
        if request.param == "interrupted":
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    assert "[x] 1.1" in lab.tasks_file.read_text()
    assert lab.entries() == []
    return lab


@pytest.mark.parametrize("tried", ["limited", "interrupted"], indirect=True)
def test_without_git_ticks_of_a_story_that_was_tried_prove_nothing(tried: Lab) -> None:
    tried.play(default=[{"say": "no"}])
    assert tried.loop().exit_code == 1
    assert told(tried, "iteration_started", "story") == ["1", "1"]
    assert tried.endings() == [("add-login-1-1", "failed")]


@pytest.mark.parametrize("tried", ["limited", "interrupted"], indirect=True)
def test_without_git_what_is_red_since_it_was_tried_is_newly_red(tried: Lab) -> None:
    tried.play(default=[{"complete": True}])
    assert tried.loop().exit_code == 1
    assert told(tried, "verdict", "reasons")[-1] == ["`! grep -q broken 1.txt` is newly red: exit status 1"]


# --- budgets ----------------------------------------------------------------------------------------

SPENDS: dict[str, Any] = {"usage": {"input_tokens": 10, "output_tokens": 1, "cost": 0.6}}


@pytest.mark.parametrize(
    ("args", "end"), [((), HANG), (("late=yes",), {"exit": 1})], ids=["we end it", "it ends by itself"]
)
@pytest.mark.parametrize(("budget", "attempts"), [("max_cost", 0), ("story_cost", 1)])
def test_the_runs_money_is_no_fault_of_a_story(
    lab: Lab, odd: Callable[..., None], args: tuple[str, ...], end: dict[str, Any], budget: str, attempts: int
) -> None:
    limits: dict[str, Any] = {budget: 0.5}
    lab.repository(ONE, agent="odd", **limits)
    odd(*args)
    lab.play(default=[SPENDS, end])
    assert lab.loop().exit_code == 1
    assert told(lab, "verdict", "status") == ["failed" if attempts else "interrupted"]
    assert row(lab)["attempts"] == len(lab.entries()) == attempts
    assert row(lab)["cost"] == 0.6


def test_who_is_killed_before_telling_its_cost_is_priced_by_what_it_told_before(
    lab: Lab, odd: Callable[..., None]
) -> None:
    lab.repository(TWO, agent="odd", max_iterations=2, timeout="10s")
    odd()
    lab.play(turn([{"usage": {"input_tokens": 1000, "cost": 0.5}}, *DONE]), default=[
        {"usage": {"input_tokens": 2000}}, HANG])  # fmt: skip
    lab.loop()
    assert told(lab, "verdict", "cost") == [0.5, 1.0]
    assert told(lab, "run_ended", "spent")[0]["cost"] == 1.5


# --- waiting and handing over -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "tries"),
    [({"patience": "1s"}, [AGAIN, {"sleep": 1.3}, AGAIN]), ({"patience": 0, "silence": "5s"}, [AGAIN])],
    ids=["for trying again", "for its silence"],
)
def test_who_tells_of_its_past_while_it_is_ended_has_still_only_tried_again(
    lab: Lab, odd: Callable[..., None], limits: dict[str, Any], tries: Steps
) -> None:
    lab.repository(ONE, agent="odd", agents=["second"], **limits)
    odd("past=yes")
    lab.play(default=[*tries, HANG])
    other(lab, "second", DONE)
    assert lab.loop().exit_code == 0
    assert told(lab, "verdict", "status") == ["transient", "completed"]
    assert told(lab, "handed_over", "why") == ["rate-limit: slow down"]
    assert told(lab, "iteration_started", "attempt") == [1, 1]


def test_of_two_quotas_the_later_one_is_waited_for(lab: Lab, odd: Callable[..., None]) -> None:
    lab.repository(TWO, agent="odd", max_time="1h")
    odd("quotas=0.9:60:5 hours,0.85:432000:7 days", stop_at="80%")
    lab.play(default=DONE)
    assert lab.loop().exit_code == 1
    assert lab.checkpoints() == ["1"]
    [reason] = told(lab, "run_ended", "reason")
    assert reason.startswith("odd has used 85% of its 7 days quota, and stops at 80%: waiting would exceed")


class CutsOff:
    """An executor whose iterations all end as if they had been stopped."""

    times = 0

    def execute(self, assignment: Assignment, stop: Callable[[], bool]) -> Report:
        self.times += 1
        return Report(ending="stopped", end=End(False))

    examine = execute

    def check_tip(self, gates: Sequence[str], directory: str, stop: Callable[[], bool]) -> tuple[GateResult, ...]:
        return ()


def test_an_interruption_by_nobody_is_not_tried_again_at_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.openspec(ONE)
    monkeypatch.setenv("TMPDIR", str(lab.tmp))
    monkeypatch.chdir(lab.root)
    root, executor = str(lab.root), CutsOff()
    spec = specs.open(root, "add-login")
    lifecycle.begin(root, "run-1", "add-login", spec.ref, locks.describe_process())
    result = Loop(
        Parts(
            change=Change(root, "run-1", "add-login", spec.ref, Folder(root), History(root)),
            folder=str(lab.tmp),
            settings=settings.load(root, {"max_time": "20s", "max_iterations": "50"}),
            gates=(),
            executor=executor,
            agents=["some"],
            log=Log(str(lab.tmp / "events.jsonl")),
            stop=lambda: False,
        )
    ).run()
    assert executor.times == 1
    assert result.reason == "interrupted: waiting would exceed the time limit (--max-time)"
    assert result.stories[0].attempts == 0


# --- checking a blocker -----------------------------------------------------------------------------


@pytest.fixture
def looking(lab: Lab, odd: Callable[..., None]) -> Callable[..., None]:
    """A lab whose agent is blocked; the agent that checks the blocker plays the given steps."""
    script = lab.script.with_name("look.json")

    def describe(*steps: dict[str, Any]) -> None:
        if not script.exists():
            lab.repository(ONE, agent="odd", check_blockers=True)
            odd(f"look={script}")
        script.write_text(json.dumps({"turn": [{"steps": list(steps)}]}))
        lab.play(default=BLOCKED)

    return describe


def kill_with_its_supervisor(process: Process) -> None:
    """As a machine that runs out of memory may do: both at once, so that neither cleans up after the other."""
    process.send_signal(signal.SIGSTOP)
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        if b"supervisor" in Path(f"/proc/{child}/cmdline").read_bytes():
            os.kill(int(child), signal.SIGKILL)
    kill(process)


def test_what_whoever_looked_left_behind_is_ended_after_a_kill(lab: Lab, looking: Callable[..., None]) -> None:
    # An orphan in its own process group.
    looking({"run": "setsid sh -c 'echo $$ > $HOME/group; sleep 4321; :' < /dev/null > /dev/null 2>&1 &"},
            {"run": "until test -s $HOME/group; do sleep 0.05; done; touch $HOME/up"}, HANG)  # fmt: skip
    process = lab.start()
    try:
        assert wait_until((lab.home / "up").exists)
        kill_with_its_supervisor(process)
        assert any("4321" in line for line in processes_with(str(lab.home))), "else there is nothing to end"
        looking({"forge": "<promise>REAL:{token}: it is missing</promise>"})
        assert lab.loop().exit_code == 1
        assert processes_with(str(lab.home)) == []
        assert lab.question().exists()
    finally:
        kill(process)
        if any("4321" in line for line in processes_with(str(lab.home))):
            os.killpg(int((lab.home / "group").read_text()), signal.SIGKILL)


def test_an_answer_does_nothing_to_a_terminal_or_a_page(lab: Lab, looking: Callable[..., None]) -> None:
    looking({"forge": "<promise>REAL:{token}: see \x1b[2J\x1b]0;owned\x07 <!-- \rAll \u202e is well</promise>"})
    assert lab.loop().exit_code == 1
    asked = lab.question().read_bytes().decode()
    assert "an agent checked it: see [2J ]0;owned (!-- All is well" in asked
    assert [mark for mark in asked if not mark.isprintable() and mark != "\n"] == []
    assert asked.count("<!--") == 1, "our own"


# --- secrets, and liberties -------------------------------------------------------------------------


def test_secrets_in_files_that_a_runner_reads_are_told_nobody(lab: Lab, odd: Callable[..., None]) -> None:
    lab.env["SHOP_PASSWORD"] = SECRET
    lab.repository(ONE, agent="odd", attempts=1)
    odd()
    promise = "<promise>BLOCKED:$RALPH_TOKEN: the login with $SHOP_PASSWORD is refused</promise>"
    lab.play(default=[{"run": f'echo "I log in with $SHOP_PASSWORD.\n{promise}" > $OWN_FILE'}])
    assert lab.loop().exit_code == 1
    assert told(lab, "verdict", "summary") == ["blocked: the login with [redacted] is refused"]
    assert "the login with [redacted] is refused" in lab.question().read_text()
    [own] = lab.root.glob(".ralph/runs/*/*/own.log")
    assert own.read_text().startswith("I log in with ")
    assert SECRET not in lab.git("log", "--all", "--format=%B")
    files = [path for path in lab.root.rglob("*") if path.is_file() and ".git" not in path.parts]
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


@pytest.mark.parametrize("is_kept", [True, False])
def test_what_would_allow_an_agent_more_is_found_where_it_is_not_allowed_all(
    lab: Lab, odd: Callable[..., None], is_kept: bool
) -> None:
    lab.repository(ONE, agent="odd", max_iterations=1)
    odd(*(["kept=yes"] if is_kept else []))
    lab.play(default=[{"write": ".claude/settings.json", "text": "{}"}, *DONE])
    assert lab.loop().exit_code == is_kept
    found = [(one["kind"], one["path"]) for one in told(lab, "verdict", "findings")[0]]
    assert found == ([("agent-config", ".claude/settings.json")] if is_kept else [])
    assert told(lab, "verdict", "status") == ["failed" if is_kept else "completed"]


@pytest.mark.parametrize(
    "planted",
    [
        "rm $here/ralphtool; printf '#!/bin/sh\\ntouch $HOME/fooled\\n' > $here/ralphtool; chmod +x $here/ralphtool",
        "ln -sf /bin/true $here/ralphtool",
        "rm -r $here; echo > $here",
        "rm -r $here",
        "printf '#!/bin/sh\\ntouch $HOME/fooled\\n' > $here/echo-it; chmod +x $here/echo-it",
    ],
    ids=["another program", "another link", "no folder", "nothing", "one more program"],
)
def test_the_command_on_the_path_is_ours_for_everybody(lab: Lab, planted: str) -> None:
    lab.repository(TWO).play(
        turn([*DONE[:2], {"run": f"here=$(echo $PWD/.ralph/runs/*/bin); {planted}"}, {"complete": True}]),
        default=[{"run": "echo-it || true"}, {"run": "readlink -f $(command -v ralphtool) > $HOME/is"}, *DONE],
    )
    lab.env["PATH"] = "/usr/bin:/bin"
    assert lab.loop().exit_code == 0
    assert lab.checkpoints() == ["1", "2"]
    assert not (lab.home / "fooled").exists()
    assert (lab.home / "is").read_text().rstrip().endswith("ralphtool")


# --- copies of ralphtool's own files ----------------------------------------------------------------


def test_half_a_copy_is_never_put_back(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed while it copies ralphtool's files leaves a copy that the next one must not trust."""
    monkeypatch.setenv("TMPDIR", str(lab.tmp))
    lab.write(".ralph/progress.json", "the first version")
    root, kept = str(lab.root), lab.tmp / "ralph/kept-run-1"
    state = {"session_id": "run-1"}
    ProtectedState(root, "add-login", "run-1").remember(state)
    lab.write(".ralph/progress.json", "the second, which an entry has made longer")
    (kept / "copy-of-progress.json").write_text("")  # an incomplete copy
    assert ProtectedState(root, "add-login", "run-1").recover() == []
    assert lab.read(".ralph/progress.json") == "the second, which an entry has made longer"


def test_a_copy_is_whole_or_the_one_before(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(lab.tmp))
    lab.write(".ralph/progress.json", "the first version")
    root, kept = str(lab.root), lab.tmp / "ralph/kept-run-1"
    ours = ProtectedState(root, "add-login", "run-1")
    ours.remember({"session_id": "run-1"})
    lab.write(".ralph/progress.json", "the second, which an entry has made longer")

    def killed(source: str, target: str) -> None:
        Path(target).write_text("")
        raise KeyboardInterrupt

    monkeypatch.setattr("shutil.copyfile", killed)
    with pytest.raises(KeyboardInterrupt):
        ours.remember({"session_id": "run-1"})
    assert (kept / "copy-of-progress.json").read_text() == "the first version"


def test_a_ctrl_c_of_the_terminal_does_not_reach_our_git(lab: Lab) -> None:
    """A terminal sends it to its whole foreground group: git would be interrupted while it restores the files."""
    lab.repository(ONE)
    repository = Repository.find(str(lab.root))
    assert repository is not None
    told = repository.run("-c", "alias.group=!cut -d' ' -f5 /proc/self/stat", "group")
    assert int(told) != os.getpgrp()
