"""The cases of the executor contract: small stories, the actions of a scripted agent, and the expected results."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from ralphtool.core import layout
from ralphtool.core.secrets import MASK
from ralphtool.testing.adapters import ContractBroken
from ralphtool.testing.sample_project import CHANGE, SampleProject, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# A variable whose name makes it secret. Machines that run agents may have it too.
SECRET_NAME, SECRET_VALUE = "EXECUTOR_CONTRACT_TOKEN", "swordfish-31415926"
_FOLDER = f"openspec/changes/{CHANGE}"
_PROPOSAL = "# Why\n\nShops count things.\n"
_KNOWN = "the till is closed on Sundays"
_END: list[Step] = [{"tick": "all"}, {"complete": True}]


def _plan(tasks: str) -> dict[str, str]:
    return {f"{_FOLDER}/proposal.md": _PROPOSAL, f"{_FOLDER}/tasks.md": tasks}


_ONE = _plan("## 1. Count\n\n- [ ] 1.1 Count\n")
_TWO_TASKS = _plan("## 1. Count\n\n- [ ] 1.1 Count\n- [ ] 1.2 Count again\n")
_THREE = _plan(
    "## 1. Part 1\n\n- [ ] 1.1 Write it\n\n## 2. Part 2\n\n- [ ] 2.1 Write it\n\n"
    "## 3. Part 3 (depends on 1)\n\n- [ ] 3.1 Write it\n"
)


def _require(holds: bool, promise: str) -> None:
    if not holds:
        raise ContractBroken(promise)


def _write(name: str, *, result: int = 1) -> list[Step]:
    """A module with a test that proves it, if the result is 1."""
    test = f"import unittest\n\nimport {name}\n\n\nclass Test{name.title()}(unittest.TestCase):\n"
    test += f"    def test_{name}(self):\n        self.assertEqual({name}.{name}(), 1)\n"
    code = f"def {name}():\n    return {result}\n"
    return [{"write": f"{name}.py", "text": code}, {"write": f"test_{name}.py", "text": test}]


_DONE = [*_write("count"), *_END]
_BREAK_TOTAL: list[Step] = [
    {"replace": "shop.py", "old": "sum(prices)", "new": "sum(prices) + 1"},
    {"replace": "test_shop.py", "old": ", 3)", "new": ", 4)"},
]


def _turn(steps: list[Step], **when: Any) -> Step:
    return {**when, "steps": steps}


def _run_once(project: SampleProject) -> int:
    return project.run()


def _accept(project: SampleProject) -> None:
    """The checks that all cases share are enough."""


class ExecutorCase(Struct, frozen=True, kw_only=True):
    """One change, and its expected results."""

    turns: list[Step]
    statuses: dict[str, list[str]]  # the verdicts of each story, in order
    stories: list[str]  # with a commit at the end
    exit_code: int = 0
    files: Mapping[str, str] = field(default_factory=lambda: _ONE)
    settings: Mapping[str, Any] = {}
    act: Callable[[SampleProject], int] = _run_once
    check: Callable[[SampleProject], None] = _accept


# --- further checks of some cases -------------------------------------------------------------------


def _list_events(project: SampleProject, kind: str) -> list[dict[str, Any]]:
    return [event for event in project.read_events() if event["type"] == kind]


def _read_prompt(project: SampleProject, number: int) -> str:
    """The prompt of an iteration, counted from 0 over all runs."""
    directory = _list_events(project, "iteration_started")[number]["directory"]
    with open(os.path.join(project.root, directory, "prompt.md"), encoding="utf-8") as file:
        return file.read()


def _check_proven(project: SampleProject) -> None:
    states = [event["receipt"]["state"] for event in _list_events(project, "proof")]
    _require(states == ["proven"], f"a story with a test of its own is proven, not {states}")


def _check_red(project: SampleProject) -> None:
    first = _list_events(project, "verdict")[0]
    _require("test_count" in json.dumps(first["reasons"]), "the verdict names the test that is red")
    _require("test_count" in _read_prompt(project, 1), "the next prompt names the test that is red")
    kept = project.git("ls-tree", "--name-only", layout.ATTEMPTS + first["entry"])
    _require("count.py" in kept.split(), "the work of an attempt that failed can be found by its ref")
    gates = [event for event in _list_events(project, "gate") if event["when"] == "after" and event["failed"]]
    _require(bool(gates), "the event of a red gate names its failed tests")
    _require("test_count" in project.read_log(gates[0]["log"]), "the log of a gate has what it printed")


def _check_question(project: SampleProject) -> None:
    asked = _list_events(project, "question")
    _require(len(asked) == 1 and os.path.exists(asked[0]["path"]), "a blocker becomes a question, as a file")
    _require("BOX_OFFICE_ADDRESS" in asked[0]["missing"], "the question says what is missing")


def _check_findings(project: SampleProject) -> None:
    _require(bool(_list_events(project, "verdict")[0]["findings"]), "an edit of the plan is a finding of the guard")


def _check_same_attempt(project: SampleProject) -> None:
    attempts = [event["attempt"] for event in _list_events(project, "iteration_started")]
    _require(set(attempts) == {1}, f"what is nobody's fault charges no attempt: {attempts}")
    _require(len(project.read_history("entries")) == 1, "what is nobody's fault has no entry")


def _check_learning(project: SampleProject) -> None:
    texts = [one["content"] for one in project.read_history("learnings")]
    _require(_KNOWN in texts, "what the agent learnt is in the history")
    _require(_KNOWN in _read_prompt(project, 1), "what the agent learnt is in the next prompt")


def _check_usage(project: SampleProject) -> None:
    spent = _list_events(project, "run_ended")[-1]["spent"]
    told = (spent["input_tokens"], spent["output_tokens"], round(spent["cost"], 6))
    _require(told == (1500, 150, 0.75), f"tokens and costs of all attempts are added up: {told}")


def _check_secret(project: SampleProject) -> None:
    records = {**project.read_records(), "what it printed": project.read_printed()}
    found = [path for path, text in records.items() if SECRET_VALUE.encode() in text]
    _require(not found, f"a secret is in no record: {', '.join(found)}")
    texts = [text for path, text in records.items() if "transcript.log" in os.path.basename(path)]
    _require(any(f"agent has {MASK}".encode() in text for text in texts), "the transcript has the rest, masked")


def _check_marks(project: SampleProject) -> None:
    stories = json.loads(project.read_branch()["prd.json"])["userStories"]
    _require([one["passes"] for one in stories] == [True, True], "both stories are marked as done")


def _stop_and_go_on(project: SampleProject) -> int:
    """Ctrl-C after the agent's message; then another run, with an agent that completes the story."""
    code = project.run_until(lambda: any(one["event"].get("text") == "Busy." for one in _list_events(project, "agent")))
    _require(code == 130, f"a run that was stopped has the exit code 130, not {code}")
    ended = _list_events(project, "run_ended")[-1]
    _require(ended["result"] == "interrupted", f"a run that was stopped is interrupted, not {ended['result']}")
    refs = project.git("for-each-ref", "--format=%(refname)", layout.INTERRUPTED).split()
    kept = [project.git("ls-tree", "--name-only", ref).split() for ref in refs]
    _require(any("half.txt" in names for names in kept), "what a stopped agent had done can be found by a ref")
    project.play([_turn(_DONE)])
    return project.run()


# --- the cases --------------------------------------------------------------------------------------

_PRD = {
    "branchName": layout.BRANCH + CHANGE,
    "userStories": [
        {"id": f"US-{n}", "title": f"Part {n}", "acceptanceCriteria": ["one", "two"], "priority": n, "passes": False}
        for n in (1, 2)
    ],
}
_PARTS = [
    _turn([*_write("one"), *_END], story="1"),
    _turn([*_write("two"), *_END], story="2"),
    _turn([{"run": "test -e one.py", "must": True}, *_write("three"), *_END], story="3"),
]
_USAGE = {"usage": {"input_tokens": 500, "output_tokens": 50, "cost": 0.25}}

CASES: dict[str, ExecutorCase] = {
    "proven": ExecutorCase(turns=[_turn(_DONE)], statuses={"1": ["completed"]}, stories=["1"], check=_check_proven),
    "several stories": ExecutorCase(
        files=_THREE,
        turns=_PARTS,
        statuses={id: ["completed"] for id in "123"},
        stories=["1", "2", "3"],
    ),
    "red gate": ExecutorCase(
        turns=[
            _turn([*_write("count", result=2), *_END], attempt=1),
            _turn([{"run": "test ! -e count.py", "must": True}, *_DONE], attempt=2),
        ],
        statuses={"1": ["failed", "completed"]},
        stories=["1"],
        check=_check_red,
    ),
    "false done": ExecutorCase(
        turns=[_turn(_END, attempt=1), _turn(_DONE, attempt=2)],
        statuses={"1": ["failed", "completed"]},
        stories=["1"],
    ),
    "blocked": ExecutorCase(
        turns=[_turn([{"write": "half.txt", "text": "half\n"}, {"blocked": "BOX_OFFICE_ADDRESS is not set"}])],
        statuses={"1": ["blocked"]},
        stories=[],
        exit_code=1,
        check=_check_question,
    ),
    "plan edited": ExecutorCase(
        turns=[
            _turn([{"replace": f"{_FOLDER}/tasks.md", "old": "1.1 Count", "new": "1.1 Rest"}, *_DONE], attempt=1),
            _turn(_DONE, attempt=2),
        ],
        statuses={"1": ["failed", "completed"]},
        stories=["1"],
        check=_check_findings,
    ),
    "test weakened": ExecutorCase(
        turns=[
            _turn([*_BREAK_TOTAL, *_DONE], attempt=1),
            _turn(_DONE, attempt=2),
        ],
        statuses={"1": ["failed", "completed"]},
        stories=["1"],
    ),
    "partial": ExecutorCase(
        files=_TWO_TASKS,
        turns=[
            _turn([*_write("first"), {"tick": "1.1"}, {"say": "The rest is for later."}], attempt=1),
            _turn([{"run": "test -e first.py", "must": True}, *_DONE], attempt=2),
        ],
        statuses={"1": ["partial", "completed"]},
        stories=["1"],
    ),
    "rate limit": ExecutorCase(
        turns=[
            _turn([{"run": "test -e half.txt", "must": True}, *_DONE], told="interrupted from outside"),
            _turn(
                [{"write": "half.txt", "text": "half\n"}, {"error": "rate-limit", "text": "slow down", "reset_in": 1}]
            ),
        ],
        statuses={"1": ["transient", "completed"]},
        stories=["1"],
        check=_check_same_attempt,
    ),
    "no final word": ExecutorCase(
        turns=[_turn([{"exit": 3}], attempt=1), _turn(_DONE, attempt=2)],
        statuses={"1": ["failed", "completed"]},
        stories=["1"],
    ),
    "agent killed": ExecutorCase(
        turns=[_turn([*_write("count"), {"tick": "all"}, {"kill": "self"}], attempt=1), _turn(_DONE, attempt=2)],
        statuses={"1": ["partial", "completed"]},
        stories=["1"],
    ),
    "learnings": ExecutorCase(
        files=_TWO_TASKS,
        turns=[
            _turn([*_write("first"), {"learn": _KNOWN}, {"tick": "1.1"}], attempt=1),
            _turn(_DONE, attempt=2, told=_KNOWN),
        ],
        statuses={"1": ["partial", "completed"]},
        stories=["1"],
        check=_check_learning,
    ),
    "stopped": ExecutorCase(
        turns=[_turn([{"write": "half.txt", "text": "half\n"}, {"say": "Busy."}, {"hang": True}])],
        statuses={"1": ["interrupted", "completed"]},
        stories=["1"],
        act=_stop_and_go_on,
        check=_check_same_attempt,
    ),
    "prd.json": ExecutorCase(
        files={"prd.json": json.dumps(_PRD, indent=2) + "\n"},
        turns=[
            _turn([*_write("first"), {"tick": "US-1.1"}], story="US-1", attempt=1),
            _turn([*_write("second"), *_END], story="US-1", attempt=2),
            _turn([*_write("third"), *_END], story="US-2"),
        ],
        statuses={"US-1": ["partial", "completed"], "US-2": ["completed"]},
        stories=["US-1", "US-2"],
        check=_check_marks,
    ),
    "secret": ExecutorCase(
        settings={"sandbox": {"env": [SECRET_NAME]}},
        turns=[_turn([{"run": f"echo agent has ${SECRET_NAME}"}, *_DONE])],
        statuses={"1": ["completed"]},
        stories=["1"],
        check=_check_secret,
    ),
    "usage": ExecutorCase(
        files=_TWO_TASKS,
        turns=[
            _turn([_USAGE, *_write("first"), {"tick": "1.1"}], attempt=1),
            _turn([_USAGE, *_write("second"), _USAGE, *_END], attempt=2),
        ],
        statuses={"1": ["partial", "completed"]},
        stories=["1"],
        check=_check_usage,
    ),
    "setup": ExecutorCase(
        settings={
            "run": {"setup": ["echo once >> installed"]},
            "verify": {"checks": ['test "$(cat installed)" = once']},
        },
        files=_THREE,
        turns=_PARTS,
        statuses={id: ["completed"] for id in "123"},
        stories=["1", "2", "3"],
    ),
}
