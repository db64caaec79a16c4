"""What other limits would have changed: as tables, and compared with real runs that have those limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lab import DONE, Lab
from project import Ralph

from ralphtool.judging.recovery import RecoveryContext, RecoveryDecision, RecoveryPolicy, decide
from ralphtool.judging.verdict import Verdict
from ralphtool.record import backtest, steps
from ralphtool.record.backtest import Backtest, Difference
from ralphtool.record.lines import LONGEST, LineReader
from ralphtool.record.steps import Expense, RecordedRun

Event = dict[str, Any]
LIMITS = {"attempts": 3, "max_iterations": 0, "max_time": 0, "timeout": 3600, "max_tokens": 0, "max_cost": 0}


class Record:
    """Writes the events of a run as the loop does; a step costs 100 seconds, 1000 tokens and a dollar."""

    def __init__(self, id: str = "r1", stories: tuple[Event, ...] = (), **limits: float) -> None:
        self.limits: dict[str, float] = {**LIMITS, **limits}
        self.clock = 0
        self.began = f"2026-03-01T{22 if id == 'r1' else 23}"
        self.lines: list[str] = []
        self.add("run_started", run=id, change="c", limits=self.limits, stories=list(stories))

    def add(self, type: str, **fields: Any) -> Record:
        at = f"{self.began}:{self.clock // 60:02}:{self.clock % 60:02}.000000Z"
        self.lines.append(json.dumps({"at": at, "type": type, **fields}, separators=(",", ":")))
        return self

    def step(self, entry: str, status: str, attempt: int = 1, *, is_old: bool = False, **more: Any) -> Record:
        """An attempt; its story is the first part of its entry."""
        story = entry.partition("-")[0]
        seconds, usage = more.pop("seconds", 100), more.pop("usage", [1000])
        counts = status in ("failed", "blocked", "partial")
        past = {"attempts": attempt - (not counts), **more.pop("past", {})}
        verdict = {"status": status, "summary": f"{entry} {status}", **more.pop("verdict", {})}
        decided = self.decided(status, past, verdict)
        self.add("iteration_started", story=story, entry=entry, attempt=attempt)
        for tokens in usage:
            self.add("agent", event={"kind": "usage", "input_tokens": tokens})
        self.clock += seconds
        spent = {"seconds": {"agent": seconds, "gates": 0}, "input_tokens": 600, "output_tokens": 400, "cost": 1.0}
        self.add("verdict", entry=entry, **verdict, tasks_total=1, **spent)
        given = {} if is_old else {"given": {"verdict": verdict, "past": past, "policy": {"attempts": 3}}}
        action = more.pop("action", decided.action)
        return self.add("decision", entry=entry, story=story, action=action, reason=decided.reason, **{**given, **more})

    def decided(self, status: Any, past: Event, verdict: Event) -> RecoveryDecision:
        known = Verdict(**{**verdict, "status": status})
        return decide(known, RecoveryContext(**past), RecoveryPolicy(int(self.limits["attempts"])))

    def ended(self, reason: str) -> Record:
        return self.add("run_ended", result="unfinished", reason=reason, stories=[], spent={}, next=[])

    def read(self) -> RecordedRun:
        found = steps.read_run(line.encode() + b"\n" for line in self.lines)
        assert found is not None
        return found


def tried(**limits: float) -> Record:
    """Story 1 completes at its third attempt; story 2, which depends on it, at its first; story 3 never."""
    stories = ({"id": "1"}, {"id": "2", "depends_on": ["1"]}, {"id": "3"})
    record = Record("r1", stories, **limits)
    record.step("1-1", "failed", 1).step("1-2", "failed", 2).step("1-3", "completed", 3).step("2-1", "completed")
    return record.step("3-1", "failed", 1).step("3-2", "failed", 2).step("3-3", "failed", 3)


def told(one: Difference) -> tuple[str, str, str, str, list[str], list[str]]:
    return one.limit, one.entry, one.was, one.would_be, one.left_out, one.lost


def only(done: Backtest) -> Difference:
    assert len(done.differences) == 1
    return done.differences[0]


# --- fewer of something -----------------------------------------------------------------------------

FROM_2 = ["2-1", "3-1", "3-2", "3-3"]


@pytest.mark.parametrize(
    ("limits", "differences"),
    [
        ({}, []),
        ({"attempts": 3}, []),
        ({"timeout": 3600, "max_iterations": 7, "max_time": 701, "max_tokens": 7001, "max_cost": 7.5}, []),
        (
            {"attempts": 2},
            [
                ("attempts", "1-2", "retry", "manual", ["1-3", "2-1"], ["1-3", "2-1"]),
                ("attempts", "3-2", "retry", "manual", ["3-3"], []),
            ],
        ),
        (
            {"attempts": 1},
            [
                ("attempts", "1-1", "retry", "manual", ["1-2", "1-3", "2-1"], ["1-3", "2-1"]),
                ("attempts", "3-1", "retry", "manual", ["3-2", "3-3"], []),
            ],
        ),
        ({"max_iterations": 3}, [("max_iterations", "2-1", "next", "not begun", FROM_2, ["2-1"])]),
        ({"max_time": 300}, [("max_time", "2-1", "next", "not begun", FROM_2, ["2-1"])]),
        ({"max_time": 350}, [("max_time", "2-1", "next", "stop", FROM_2[1:], ["2-1"])]),
        ({"max_tokens": 3000}, [("max_tokens", "2-1", "next", "not begun", FROM_2, ["2-1"])]),
        ({"max_cost": 2.5}, [("max_cost", "2-1", "next", "not begun", FROM_2, ["2-1"])]),
        (
            {"story_cost": 2},
            [
                ("story_cost", "1-3", "next", "not begun", ["1-3", "2-1"], ["1-3", "2-1"]),
                ("story_cost", "3-3", "manual", "not begun", ["3-3"], []),
            ],
        ),
        (
            {"story_tokens": 1500},
            [
                ("story_tokens", "1-3", "next", "not begun", ["1-3", "2-1"], ["1-3", "2-1"]),
                ("story_tokens", "3-3", "manual", "not begun", ["3-3"], []),
            ],
        ),
        # Fewer attempts leave room for others: only 3-2 would be too much.
        (
            {"attempts": 2, "max_iterations": 3},
            [
                ("attempts", "1-2", "retry", "manual", ["1-3", "2-1"], ["1-3", "2-1"]),
                ("max_iterations", "3-2", "retry", "not begun", ["3-2", "3-3"], []),
            ],
        ),
        (
            {"attempts": 2, "max_time": 250},
            [
                ("attempts", "1-2", "retry", "manual", ["1-3", "2-1"], ["1-3", "2-1"]),
                ("max_time", "3-1", "retry", "stop", ["3-2", "3-3"], []),
            ],
        ),
    ],
)
def test_lower_limits(limits: dict[str, float], differences: list[Any]) -> None:
    done = backtest.backtest([tried().read()], limits)
    assert [told(one) for one in done.differences] == differences
    assert (done.check.decisions, done.check.same, done.check.rebuilt) == (7, 7, 0)


def test_what_would_not_have_happened_is_counted_as_it_was() -> None:
    done = backtest.backtest([tried().read()], {"attempts": 2})
    assert [one.saved for one in done.differences] == [Expense(200, 2000, 2), Expense(100, 1000, 1)]
    assert done.sum_by_limit() == {"attempts": backtest.LimitTotal(2, Expense(300, 3000, 3), Expense(), 2)}


def test_the_clock_ends_an_attempt_earlier() -> None:
    record = Record().step("1-1", "failed").step("1-2", "completed", 2, seconds=400)
    found = only(backtest.backtest([record.read()], {"timeout": 200}))
    assert told(found) == ("timeout", "1-2", "next", "retry", [], ["1-2"])
    assert (found.saved, found.more_attempts, found.more) == (Expense(200, 500, 0.5), 1, Expense(200, 500, 0.5))


def test_many_tasks_and_too_little_time_are_done_one_by_one() -> None:
    record = Record().step("1-1", "completed", past={"open_tasks": 4})
    assert only(backtest.backtest([record.read()], {"timeout": 50})).would_be == "break-chunks"


def test_an_attempt_that_fails_anyway_fails_earlier() -> None:
    record = Record().step("1-1", "failed").step("1-2", "completed", 2)
    first, second = backtest.backtest([record.read()], {"timeout": 40}).differences
    assert (first.was, first.would_be, first.saved) == ("retry", "retry", Expense(60, 600, 0.6))
    assert (second.was, second.would_be) == ("next", "retry")


def test_an_agent_that_was_ended_took_a_moment_longer_than_its_limit() -> None:
    record = Record(timeout=100).step("1-1", "failed", seconds=101, verdict={"too_big": True})
    assert backtest.backtest([record.read()], {"timeout": 100}).differences == []


@pytest.mark.parametrize(
    ("usage", "would_be"), [([1000], "not begun"), ([100, 900], "not begun"), ([900, 100], "retry")]
)
def test_an_agent_is_ended_by_what_it_tells_while_it_works(usage: list[int], would_be: str) -> None:
    record = Record().step("1-1", "partial", usage=usage).step("1-2", "completed", 2)
    assert only(backtest.backtest([record.read()], {"story_cost": 0.5})).would_be == would_be


# --- more of something ------------------------------------------------------------------------------


def test_more_attempts() -> None:
    found = only(backtest.backtest([tried().read()], {"attempts": 5}))
    assert told(found) == ("attempts", "3-3", "manual", "retry", [], [])
    assert (found.more_attempts, found.more, found.completed_later) == (2, Expense(200, 2000, 2), None)


def test_an_answer_begins_a_new_round_in_a_later_run() -> None:
    later = Record("r2").step("3-4", "failed", 1).step("3-5", "failed", 2).step("3-6", "completed", 3)
    runs = [later.read(), tried().read()]  # in any order
    more = only(backtest.backtest(runs, {"attempts": 4}))
    assert (more.entry, more.completed_later) == ("3-3", "3-6")
    fewer = backtest.backtest(runs, {"attempts": 2}).differences
    assert [(one.entry, one.left_out, one.lost) for one in fewer[1:]] == [
        ("3-2", ["3-3"], []),
        ("3-5", ["3-6"], ["3-6"]),
    ]


def test_attempts_count_on_across_runs() -> None:
    first = Record().step("1-1", "failed", 1).step("1-2", "failed", 2)
    second = Record("r2").step("1-3", "transient", 3).step("1-3", "completed", 3)
    found = only(backtest.backtest([first.read(), second.read()], {"attempts": 2}))
    assert told(found) == ("attempts", "1-2", "retry", "manual", ["1-3", "1-3"], ["1-3"])


@pytest.mark.parametrize(
    ("name", "before", "after", "more"),
    [
        ("max_iterations", 7, 10, Expense(300, 3000, 3)),
        ("max_iterations", 7, 0, None),
        ("max_time", 700, 900, Expense(seconds=200)),
        ("max_tokens", 7000, 9000, Expense(tokens=2000)),
        ("max_cost", 7, 9, Expense(cost=2)),
    ],
)
def test_a_run_goes_on(name: str, before: float, after: float, more: Expense | None) -> None:
    flag = name.replace("_", "-")
    record = tried(**{name: before}).ended(f"the limit of so many is reached (--{flag})")
    assert backtest.backtest([record.read()], {name: before}).differences == []
    found = only(backtest.backtest([record.read()], {name: after}))
    assert (found.limit, found.entry, found.was, found.would_be) == (name, "3-3", "the run ended", "goes on")
    assert found.more == more


def test_a_story_goes_on() -> None:
    record = Record(story_cost=2).step("1-1", "failed").step("1-2", "failed", 2)
    found = only(backtest.backtest([record.read()], {"story_cost": 5}))
    assert (found.entry, found.would_be, found.more) == ("1-2", "goes on", Expense(cost=3))


def test_the_clock_would_not_have_ended_it() -> None:
    record = Record(timeout=100).step("1-1", "failed", verdict={"too_big": True}, past={"open_tasks": 3})
    found = only(backtest.backtest([record.read()], {"timeout": 160}))
    assert (found.was, found.would_be, found.more) == ("break-chunks", "goes on", Expense(seconds=60))
    assert only(backtest.backtest([record.read()], {"timeout": 0})).more is None


# --- whether the record can be trusted --------------------------------------------------------------


def test_what_another_version_decided_is_compared_with_nothing() -> None:
    record = Record().step("1-1", "failed", action="manual").step("2-1", "failed", given={"verdict": {}})
    done = backtest.backtest([record.read()], {"attempts": 1})
    assert (done.check.decisions, done.check.same, done.check.rebuilt, done.check.otherwise) == (2, 1, 1, 1)
    assert [one.entry for one in done.differences] == ["2-1"]


def test_old_records_are_rebuilt_where_they_tell_enough() -> None:
    record = Record("r1", ({"id": "4", "optional": True},))
    record.step("1-1", "failed", is_old=True).step("1-2", "failed", 2, is_old=True).step(
        "1-3", "failed", 3, is_old=True
    )
    record.step("2-1", "completed", is_old=True).step("3-1", "blocked", past={"blocker_is_real": True}, is_old=True)
    record.step("4-1", "failed", past={"is_optional": True}, is_old=True)
    record.step("5-1", "failed", verdict={"is_broken": True}, is_old=True)
    record.step(
        "6-1", "failed", verdict={"summary": "x"}, past={"last_failure": "x"}, is_old=True
    )  # the record has no first failure
    done = backtest.backtest([record.read()], {"attempts": 2})
    assert (done.check.decisions, done.check.same, done.check.rebuilt, done.check.unknown) == (8, 7, 7, 1)
    assert [told(one)[1:5] for one in done.differences] == [("1-2", "retry", "manual", ["1-3"])]


def test_a_confirmed_blocker_is_known_by_the_words_of_every_version() -> None:
    record = Record().step("3-1", "blocked", past={"blocker_is_real": True}, is_old=True)
    now, earlier = "ralphtool confirmed the blocker", "the blocker is real"
    assert any(now in line for line in record.lines)
    old = Record()
    old.lines = [line.replace(now, earlier) for line in record.lines]
    for one in (record, old):
        assert backtest.backtest([one.read()], {"attempts": 2}).check.same == 1


def test_a_damaged_record_is_read_as_far_as_it_goes() -> None:
    lines = [line.encode() for line in tried().lines]
    deep = b'{"at":"x","type":"decision","entry":"1-3","given":' + b"[" * 5000
    wrong = [
        b"",
        b"\xff\x00",
        b"[]",
        b"{",
        b'{"type":"verdict"}',
        b'{"type":"news"}',
        deep,
        b'{"type":"verdict","cost":1e999}',
    ]
    odd = [json.dumps({"type": "verdict", "entry": "3-3", "status": "failed", "cost": -1}).encode()]
    found = steps.read_run([*wrong, lines[0], *wrong, *lines[1:-1], *odd])
    assert found is not None
    done = backtest.backtest([found], {"attempts": 2})
    assert [one.left_out for one in done.differences] == [["1-3", "2-1"], ["3-3"]]
    assert [one.saved.cost for one in done.differences] == [2, 1]
    assert done.check.decisions == 6  # 3-3 was judged, but its decision is cut off
    assert steps.read_run(lines[1:]) is None


def test_a_line_that_nobody_wrote_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"x" * LONGEST + b'{"of": "it"}\n{"whole": 1}\n{"cut')
    assert list(LineReader(str(path)).new()) == [b'{"whole": 1}']


# --- the command ------------------------------------------------------------------------------------


def test_without_runs_it_says_so(ralph: Ralph) -> None:
    result = ralph.run("backtest", "--attempts", "5")
    assert (result.exit_code, result.stderr) == (1, "Error: there are no runs yet: `ralphtool run` starts one\n")
    ralph.write(".ralph/runs/c-20260301-220000-1a2b/events.jsonl", "no\n")
    result = ralph.run("backtest", "--json")
    assert result.exit_code == 1
    assert "no run can be replayed" in json.loads(result.stderr)["error"]


def test_it_tells_what_it_means_and_writes_nothing(ralph: Ralph) -> None:
    ralph.write(".ralph/runs/c-20260301-220000-1a2b/events.jsonl", "\n".join(tried().lines) + "\n")
    ralph.write(".ralph/runs/c-20260301-230000-1a2b/events.jsonl", "no\n")
    before = ralph.snapshot()
    shown = ralph.run("backtest", "--attempts", "2")
    assert "  needs your answer  " in shown.stdout
    assert "manual" not in shown.stdout
    assert shown.exit_code == 0, shown.stderr
    why, lost = "2 attempts did not complete it", "lost: 1-3, 2-1 completed their stories"
    assert [line.split("  ")[-1].lstrip() for line in shown.stdout.splitlines()] == [
        "REASON AND CONSEQUENCE",
        f"{why}; 1-3, 2-1 would not have happened; 3 min 20 s, 2k tokens, $2.00 saved; {lost}",
        f"{why}; 3-3 would not have happened; 1 min 40 s, 1k tokens, $1.00 saved; nothing lost: it never completed",
        "",
        "--attempts: 2 differences; 5 min, 3k tokens, $3.00 saved; 2 stories lost",
        "7 of 7 recorded decisions come out the same with the recorded limits.",
        "1 record can't be read: c-20260301-230000-1a2b.",
    ]
    assert "Nothing would have been different in 1 run." in ralph.run("backtest", "--attempts", "3").stdout
    assert "add one" in ralph.run("backtest", "--change", "c").stdout
    assert ralph.run("backtest", "--attempts", "0").exit_code == 2
    assert ralph.run("backtest", "--run", "nope").exit_code == 1
    assert ralph.snapshot() == before


def test_hostile_texts_stay_texts(ralph: Ralph) -> None:
    lines = "\n".join(tried().lines).replace("3-2", "3-\\u001b[31m2")
    ralph.write(".ralph/runs/c-20260301-220000-1a2b/events.jsonl", f"{lines}\n")
    shown = ralph.run("backtest", "--attempts", "2").stdout
    assert "3-\\x1b[31m2" in shown
    assert "\x1b" not in shown


# --- against real runs ------------------------------------------------------------------------------

TASKS = """\
## 1. First

- [ ] 1.1 Make a

## 2. Second (depends on 1)

- [ ] 2.1 Make b

## 3. Third

- [ ] 3.1 Make c
"""
COST: Event = {"usage": {"input_tokens": 900, "output_tokens": 100, "cost": 0.5}}
FAILS = [COST, {"say": "not yet"}]


def made(top: Path) -> Lab:
    lab = Lab(top).repository(TASKS)
    turns: list[Event] = [{"story": "1", "attempt": [1, 2], "steps": FAILS}, {"story": "3", "steps": FAILS}]
    return lab.play(*turns, default=[COST, *DONE])


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A run with three attempts."""
    lab = made(tmp_path_factory.mktemp("usual"))
    assert lab.loop("--attempts", "3").exit_code == 1
    return lab


def entries(lab: Lab) -> list[str]:
    return [event["entry"] for event in lab.events() if event["type"] == "decision"]


def spent(lab: Lab) -> float:
    cost: float = [event for event in lab.events() if event["type"] == "run_ended"][-1]["spent"]["cost"]
    return cost


def test_with_the_recorded_limits_every_decision_comes_out_to_the_word(usual: Lab) -> None:
    decisions = [event for event in usual.events() if event["type"] == "decision"]
    assert len(decisions) == 7
    for event in decisions:
        given = steps.parse_input(event["given"])
        assert given is not None
        assert given.decide_again() == RecoveryDecision(event["action"], event["guidance"], event["reason"])
    assert usual.run("backtest", "--attempts", "3", "--json").json["check"]["same"] == 7


@pytest.mark.parametrize("limit", [("--attempts", "2"), ("--max-iterations", "3"), ("--story-cost", "1")])
def test_a_real_run_does_what_was_predicted(usual: Lab, tmp_path: Path, limit: tuple[str, str]) -> None:
    predicted = usual.run("backtest", *limit, "--json").json["differences"]
    left_out = [entry for one in predicted for entry in one["left_out"]]
    assert left_out
    real = made(tmp_path)
    assert real.loop(*limit).exit_code == 1
    assert entries(real) == [entry for entry in entries(usual) if entry not in left_out]
    assert spent(real) == pytest.approx(spent(usual) - sum(one["saved"]["cost"] for one in predicted))


def test_a_real_run_with_more_attempts_takes_no_more_than_was_estimated(usual: Lab, tmp_path: Path) -> None:
    found = usual.run("backtest", "--attempts", "5", "--json").json["differences"][0]
    real = made(tmp_path)
    assert real.loop("--attempts", "5").exit_code == 1
    assert len(entries(real)) == len(entries(usual)) + found["more_attempts"] == 9
    assert spent(real) == pytest.approx(spent(usual) + found["more"]["cost"])
