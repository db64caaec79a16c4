"""The simulation behind docs/scale.md, in cases whose results are known."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from project import REPOSITORY

sys.path.append(str(REPOSITORY / "scripts"))

from simulate_scale import TABLES
from simulation import Simulation, summarize
from simulation_whatif import simulate
from simulation_world import Case, Clock, Forest, Station, draw

FREE: dict[str, Any] = dict.fromkeys(("step", "find", "begin", "take", "merge", "show", "prove", "settle"), 0.0) | {
    **dict.fromkeys(("push", "push_ref", "fetch", "temporal", "beat"), 0.0)
}
SMOOTH: dict[str, Any] = {"conflict": 0.0, "red_together": 0.0, "own_red": 0.0, "flaky": 0.0, "agent_spread": 0.0}
ROUGH: dict[str, Any] = {"conflict": 0.02, "red_together": 0.01, "own_red": 0.2, "flaky": 0.05, "depends": 0.3}
QUEUES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "far ahead": {"speculate": 12},
    "whole proof ahead": {"speculate": 12, "is_proven_ahead": True, "is_gated_first": True},
    "red aside": {"speculate": 12, "is_proven_ahead": True, "is_red_aside": True},
    "trains": {"train": 7},
    "without places": {"train": 7, "is_unbound": True, "is_tidied": True},
    "limits": {"limited": 0.05},
    "limits, growing by a share": {"limited": 0.05, "limit_growth": 0.5},
}


@pytest.mark.parametrize("queue", QUEUES.values(), ids=QUEUES)
def test_no_story_is_lost_or_done_twice(queue: dict[str, Any]) -> None:
    done = simulate(Case(stories=80, workers=12, **ROUGH, **queue))
    endings = [story.ending or "held up" for story in done.stories]
    for story, ending in zip(done.stories, endings, strict=True):
        held_up = any(endings[one] != "done" for one in story.depends_on)
        assert (ending == "held up") == held_up  # by a story that needs an answer
    assert endings.count("done") == len({*done.forest.list_between("root", done.tip)}) > 60
    assert done.machines.taken == done.remote.taken == 0
    assert not done.jobs


@pytest.mark.parametrize("queue", QUEUES.values(), ids=QUEUES)
def test_the_same_seed_gives_the_same_run(queue: dict[str, Any]) -> None:
    first, second, other = (
        summarize(simulate(Case(stories=40, workers=8, seed=seed, **ROUGH, **queue))) for seed in (1, 1, 2)
    )
    assert first == second != other


def test_one_worker_takes_the_sum_of_the_times() -> None:
    case = Case(stories=20, workers=1, speculate=1, agent=100.0, gates=7.0, proof_runs=0.0, **SMOOTH, **FREE)
    assert simulate(case).clock.now == pytest.approx(20 * (100 + 7))


def test_steps_of_the_loop_are_taken_one_after_the_other() -> None:
    """If agents take no time, only the loop's thread is waited for."""
    free = {**FREE, "begin": 2.0, "settle": 3.0}
    done = simulate(Case(stories=20, workers=50, agent=0.0, gates=0.0, **SMOOTH, **free))
    assert done.clock.now == pytest.approx(20 * (2 + 3))
    assert summarize(done)["loop_busy"] == pytest.approx(1)


def test_without_gates_agents_are_the_limit() -> None:
    case = Case(stories=200, workers=10, slots=2, agent=100.0, gates=0.0, **SMOOTH, **FREE)
    found = summarize(simulate(case))
    assert found["hours"] * 3600 == pytest.approx(200 * 100 / 20)
    assert found["agents_busy"] == pytest.approx(1)


def test_one_by_one_the_gates_are_the_limit() -> None:
    """With a story that touches tests, replay and own tests are two more runs."""
    case = Case(stories=30, workers=30, speculate=1, agent=10.0, gates=5.0, tests_touched=1.0, **SMOOTH, **FREE)
    assert simulate(case).clock.now == pytest.approx(10 + 30 * 3 * 5)


def test_looking_ahead_saves_gates_and_not_the_rest_of_the_proof() -> None:
    """The real queue does the same, and docs/scale.md relies on it."""
    case = Case(stories=30, workers=30, speculate=30, agent=10.0, gates=5.0, tests_touched=1.0, **SMOOTH, **FREE)
    assert simulate(case).clock.now == pytest.approx(10 + 3 * 5 + 29 * 2 * 5)


def test_a_train_is_proven_once() -> None:
    case = Case(stories=30, workers=30, train=30, agent=10.0, gates=5.0, proof_runs=0.0, **SMOOTH, **FREE)
    assert simulate(case).counts["runs of proofs"] <= 2


def test_a_story_in_conflict_goes_back_three_times_and_then_needs_an_answer() -> None:
    case = Case(stories=12, workers=12, conflict=1.0, gates=5.0, red_together=0.0, own_red=0.0, flaky=0.0)
    done = simulate(case)
    assert {story.ending for story in done.stories} == {"done", "asked"}
    assert {story.returns for story in done.stories if story.ending == "asked"} == {4}


def test_every_row_of_the_tables_is_a_case() -> None:
    for row in (row for table in TABLES.values() for row in table.values()):
        Simulation(Case(**row | {"stories": 1}))


def test_places_are_given_by_rank_and_then_by_turn() -> None:
    clock, ended = Clock(), []
    station = Station(clock, 1)

    def live(name: str) -> Any:
        yield from station.use(1.0)
        ended.append((name, clock.now))

    for name, rank in (("first", 1), ("agent", 1), ("gates", 0)):
        clock.start(live(name), rank)
    clock.advance(10.0)
    assert ended == [("first", 1.0), ("gates", 2.0), ("agent", 3.0)]
    assert station.measure_busy() == 3.0


def test_a_tree_is_the_same_in_whatever_order_work_came_to_it() -> None:
    forest = Forest()
    one, other = forest.add("0", 1), forest.add("0", 2)
    assert forest.add(one, 2) == forest.add(other, 1) != one
    commit = forest.commit(one, ["root"], "")
    assert list(forest.list_between("root", forest.commit(forest.add(one, 2), [commit], ""))) == [2, 1]


def test_what_chance_says_is_spread_evenly() -> None:
    drawn = [draw(1, 2, number, other) for number in range(100) for other in range(100)]
    assert sum(one < 0.01 for one in drawn) == pytest.approx(100, abs=30)
    assert sum(drawn) / len(drawn) == pytest.approx(0.5, abs=0.02)
