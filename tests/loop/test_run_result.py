"""How a run ends when its stories are done: what each claims, the exit code, and what a person can do next."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lab import DONE, Lab

from ralphtool.history import History
from ralphtool.judging.receipt import ProofRun, Receipt
from ralphtool.judging.recovery import RecoveryDecision
from ralphtool.loop import run_result
from ralphtool.loop.budget import Budget
from ralphtool.loop.change import Change
from ralphtool.record.change_state import Question, StoryState
from ralphtool.record.event_parts import LastCheck, Totals
from ralphtool.record.events import Gate, RunEnded
from ralphtool.record.log import Log
from ralphtool.settings import RunSettings
from ralphtool.specs import Story, Task

WHY = "there is no gate"
GREEN = LastCheck(ok=True, runs=(ProofRun(kind="gates", command="pytest -q", ok=True),))
RED = LastCheck(ok=False, runs=(ProofRun(kind="gates", command="pytest -q", ok=False, tally="1 failed"),))


class GivenChange(Change):
    """A change whose stories, checkpoints and receipts are given. Those in `open_ones` are not done."""

    def __init__(self, root: Path, receipts: dict[str, Receipt | None], open_ones: tuple[str, ...] = ()) -> None:
        self.commits = {id: id * 40 for id in receipts if id not in open_ones}
        place: Any = SimpleNamespace(branch="ralph/add-login", checkpoints=lambda: self.commits)
        super().__init__(str(root), "r", "add-login", "openspec:", place, History(str(root)))
        self.given = [Story(id, f"Story {id}", [Task(f"{id}.1", "Do it", True)]) for id in receipts]
        self.open_ones = open_ones
        for id, receipt in receipts.items():
            self.change_state.stories[id] = StoryState(proof=receipt, entry=f"add-login-{id}-1", status="completed")

    def stories(self) -> list[Story]:
        return self.given

    def done(self, stories: Any) -> set[str]:
        return {one.id for one in self.given if one.id not in self.open_ones}

    def change_flag(self) -> str:
        return ""

    def spec_flag(self) -> str:
        return ""


def conclude(change: Change, **more: Any) -> RunEnded:
    return run_result.conclude(change, Budget(RunSettings()), "it ended", is_stopped=False, **more)


def claim(state: str, why: str = "", **more: Any) -> Receipt:
    return Receipt(state=state, why=why, **more)


@pytest.mark.parametrize(
    ("states", "tip", "accepts", "result", "reason"),
    [
        (
            ["proven", "held", "accepted"],
            GREEN,
            False,
            "done",
            "every story is done: 1 proven by its own tests, 1 held by",
        ),
        (["proven", "proven"], None, False, "done", "every story is done: 2 proven by their own tests"),
        (["proven", "unproven"], GREEN, False, "unproven", f"story 2 is done, not proven: {WHY}"),
        (["proven", "unproven"], GREEN, True, "done", f"story 2 is done, not proven: {WHY}"),
        (["proven", "proven"], RED, False, "unproven", "the gates are red at the end of the run: pytest -q"),
        (["proven", "proven"], RED, True, "unproven", "the gates are red at the end of the run: pytest -q"),
        (
            ["unproven"],
            RED,
            True,
            "unproven",
            "the gates are red at the end of the run: pytest -q; story 1 is done, not",
        ),
        (
            ["unproven"] * 9,
            None,
            False,
            "unproven",
            "; ".join(f"story {n} is done, not proven: {WHY}" for n in range(1, 6)),
        ),
    ],
)
def test_the_result(
    tmp_path: Path, states: list[str], tip: LastCheck | None, accepts: bool, result: str, reason: str
) -> None:
    receipts = {str(number): claim(state, WHY if state == "unproven" else "") for number, state in enumerate(states, 1)}
    end = conclude(GivenChange(tmp_path, {**receipts}), tip=tip, accepts_unproven=accepts)
    assert end.result == result
    assert end.reason.startswith(reason)
    assert [row.proof for row in end.stories] == states
    assert [row.proof_why for row in end.stories] == [WHY if state == "unproven" else "" for state in states]
    assert end.tip == tip


def test_what_is_not_done_is_unfinished_whatever_the_rest_claims(tmp_path: Path) -> None:
    end = conclude(GivenChange(tmp_path, {"1": claim("unproven", WHY), "2": None}, ("2",)), tip=RED)
    assert (end.result, end.reason) == ("unfinished", "it ended")
    assert [row.proof for row in end.stories] == ["unproven", ""]


def test_a_story_without_a_receipt_is_not_proven(tmp_path: Path) -> None:
    receipts: dict[str, Receipt | None] = {
        "1": claim("proven"),
        "2": None,
        "3": None,
        "4": claim("accepted", "fine", by="Ann"),
    }
    change = GivenChange(tmp_path, receipts)
    change.change_state.stories["3"] = StoryState()  # no attempt has completed it: the user ticked it
    end = conclude(change)
    assert [row.proof for row in end.stories] == ["proven", "unproven", "ticked", "accepted"]
    assert [row.proof_why for row in end.stories] == ["", "no proof of it is recorded", "", "fine"]


def test_advice_for_what_is_not_proven(tmp_path: Path) -> None:
    steps = conclude(GivenChange(tmp_path, {"1": claim("proven"), "2": claim("unproven", WHY)})).next
    assert [step.run for step in steps] == [
        "ralphtool explain add-login-2-1",
        "ralphtool accept 2",
        'ralphtool reject 2 --why "…"',
        "git log -p HEAD..ralph/add-login",
        "ralphtool finish add-login --squash",
    ]


def test_advice_stays_short(tmp_path: Path) -> None:
    steps = conclude(GivenChange(tmp_path, {str(number): claim("unproven", WHY) for number in range(1, 30)})).next
    assert sum("accept" in (step.run or "") for step in steps) == 5
    assert [step.say for step in steps if "24 more" in step.say]


def test_the_reason_stays_short(tmp_path: Path) -> None:
    end = conclude(GivenChange(tmp_path, {str(number): claim("unproven", WHY) for number in range(1, 30)}))
    assert end.reason.endswith("; 24 more are done, not proven")


@pytest.mark.parametrize("accused", [[], ["tests/test_a.py::test_a"]])
@pytest.mark.parametrize("asks", [False, True])
def test_an_accused_attempt_can_be_accepted(tmp_path: Path, accused: list[str], asks: bool) -> None:
    change = GivenChange(tmp_path, {"1": None}, ("1",))
    state = change.change_state.story("1")
    state.accused = accused
    state.status, state.attempts, state.question = "failed", 3, Question("add-login-1.md", "?") if asks else None
    end = conclude(change)
    assert (end.stories[0].state, end.stories[0].proof) == ("waiting" if asks else "failed", "")
    assert ("ralphtool accept add-login-1-1" in [step.run for step in end.next]) == bool(accused)


@pytest.mark.parametrize(
    ("skipped", "left", "steps"),
    [
        (["2"], [], ["ralphtool retry 2", "git log", "ralphtool finish"]),
        (["2"], ["3"], ["ralphtool retry 2", "git log", "ralphtool finish"]),
        (["2"], ["4"], ["ralphtool retry 2", "ralphtool run"]),
        (["2-optional"], ["3"], ["ralphtool retry 2-optional", "git log", "ralphtool finish"]),
        (["2-optional"], [], ["git log", "ralphtool finish"]),
    ],
)
def test_continue_is_suggested_only_if_another_run_can_work_on_a_story(
    tmp_path: Path, skipped: list[str], left: list[str], steps: list[str]
) -> None:
    open_ones = (*skipped, *left)
    change = GivenChange(tmp_path, {"1": claim("proven"), **dict.fromkeys(open_ones)}, open_ones)
    for story in change.given:
        story.optional = "optional" in story.id
        story.depends_on = tuple(skipped) if story.id == "3" else ()
        if story.id in open_ones:
            decision = RecoveryDecision("skip", "", "you skipped it") if story.id in skipped else None
            change.change_state.stories[story.id] = StoryState(decision=decision)
    told = [step.run or "" for step in conclude(change).next]
    assert len(told) == len(steps)
    assert all(map(str.startswith, told, steps)), told


def test_what_was_ticked_before_is_said_to_be_ticked(lab: Lab) -> None:
    lab.repository("## 1. First\n\n- [x] 1.1 Make a\n").play(default=DONE)
    end = lab.events(lab.loop())[-1]
    assert [(row["proof"], row["commit"]) for row in end["stories"]] == [("ticked", None)]
    assert "The story is done: ticked by you." in lab.run("watch").stdout


def test_a_pull_request_is_named_where_there_is_a_remote(lab: Lab) -> None:
    lab.repository().play(default=DONE)
    assert lab.loop().exit_code == 0
    assert "--pr" not in str(lab.events()[-1]["next"])
    lab.git("remote", "add", "origin", "../elsewhere.git")
    lab.loop()
    assert {"say": "or open a pull request", "run": "ralphtool finish add-login --pr"} in lab.events()[-1]["next"]


def test_commits_that_conflict_with_the_work_are_to_be_merged_first(lab: Lab) -> None:
    lab.repository(workspace="worktree").play(default=[{"run": "echo theirs > README.md"}, *DONE])
    lab.loop("--max-iterations", "1")
    lab.write("README.md", "mine\n")
    plan = "openspec/changes/add-login/tasks.md"
    lab.write(plan, lab.read(plan).replace("Make c", "Make it"))
    lab.git("commit", "--quiet", "--all", "--message=mine")
    lab.loop()
    steps = [step["run"] for step in lab.events()[-1]["next"] if step["run"].startswith(("git merge", "ralphtool fin"))]
    assert steps == ["git merge ralph/add-login", "ralphtool finish add-login --squash"]
    lab.git("merge", "ralph/add-login", check=False)
    assert lab.git("diff", "--name-only", "--diff-filter=U").splitlines()[0] == "README.md"
    lab.git("commit", "--quiet", "--all", "--message=merged")
    assert "Your branch already has all the work" in lab.run("finish", "--squash").stdout


def test_the_gates_that_belong_to_no_story_are_part_of_the_time(tmp_path: Path) -> None:
    with closing(Log(str(tmp_path / "events.jsonl"))) as log:
        for when, iteration in (("before", 0), ("blind", 0), ("after", 1), ("replay", 1), ("tip", 0)):
            log.add(Gate(when=when, command="pytest -q", seconds=10.0, iteration=iteration))
    ended = run_result.complete(RunEnded(spent=Totals(gate_seconds=20.0, agent_seconds=30.0)), log.path)
    assert ended.spent.gate_seconds == 50.0
    assert ended.spent.agent_seconds == 30.0


def test_every_view_shows_the_same_duration_of_a_run(lab: Lab) -> None:
    lab.repository().play(default=DONE)
    assert lab.loop().exit_code == 0
    began, ended = (datetime.fromisoformat(lab.events()[place]["at"]) for place in (0, -1))
    seconds = lab.events()[-1]["spent"]["seconds"]
    assert seconds == pytest.approx((ended - began).total_seconds(), abs=0.001)
    assert lab.run("runs", "--json").json["runs"][0]["seconds"] == pytest.approx(seconds, abs=0.001)
    assert lab.run("report", "--json").json["seconds"] == pytest.approx(seconds, abs=0.001)
