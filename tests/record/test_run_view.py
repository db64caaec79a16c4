"""The state of a run after its events: a table of events and their effects, several iterations at once, records of
earlier versions, more than there is room for; and that reading the middle of a record last makes no difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from properties import examples

from ralphtool import agents
from ralphtool.judging.receipt import Receipt
from ralphtool.record import events, follow
from ralphtool.record.event_parts import Durations, NextStep, StoryAfter, StoryBefore
from ralphtool.record.events import (
    Agent,
    Answered,
    BlockerChecked,
    Checkpoint,
    Decision,
    Event,
    Gate,
    GateStarted,
    HandedOver,
    IterationStarted,
    Notice,
    Paused,
    PlanEdited,
    Proof,
    Question,
    Queued,
    Reopened,
    Resumed,
    RunEnded,
    RunStarted,
    SentBack,
    Setup,
    Steered,
    Ticked,
    Verdict,
    Waiting,
    WorkerJoined,
)
from ralphtool.record.follow import Follower
from ralphtool.record.lines import LineReader
from ralphtool.record.run_view import RunView
from ralphtool.record.view_parts import ResourceUse, Wait

NOON = 1772366400.0


def at(seconds: int) -> str:
    return f"2026-03-01T12:{seconds // 60:02}:{seconds % 60:02}.000000Z"


START = RunStarted(
    at=at(0),
    change="add-login",
    stories=(
        StoryBefore(id="1", title="Set up", state="done"),
        StoryBefore(id="2", tasks_total=4),
        StoryBefore(id="3"),
    ),
)
BEGUN = IterationStarted(at=at(10), iteration=1, number=1, story="2", entry="e-2-1", attempt=1, attempts=3)
FAILED = Verdict(at=at(70), iteration=1, story="2", status="failed", input_tokens=5, cost=1.5)
COMPLETED = Verdict(at=at(70), iteration=1, story="2", status="completed", tasks_done=4, tasks_total=4)


def fed(*happened: Event) -> RunView:
    view = RunView()
    for event in happened:
        view.feed(event)
    return view


def usage(tokens: int, iteration: int = 0) -> Agent:
    return Agent(event=agents.Usage(input_tokens=tokens), iteration=iteration)


def word(text: str, iteration: int = 0) -> Agent:
    return Agent(event=agents.Message(text), iteration=iteration)


# --- events and their effects on a run --------------------------------------------------------------

Look = Callable[[RunView], object]


def of_story(name: str) -> Look:
    return lambda view: getattr(view.stories["2"], name)


def of_attempt(name: str) -> Look:
    return lambda view: getattr(view.attempts[-1], name)


BACK = SentBack(at=at(60), story="2", iteration=1)
MEASURED = structs.replace(BACK, seconds=Durations(agent=15.0, gates=2.0))
ON_BRANCH = structs.replace(START, branch="ralph/add-login")
NEXT = Decision(story="2", action="next", reason="the story is proven")
DONE = (START, BEGUN, COMPLETED, Checkpoint(story="2", commit="9f2c", proof="unproven"))
TABLE: list[tuple[Sequence[Event], Look, object]] = [
    ([], lambda view: (view.state, view.began, view.stories), ("running", None, {})),
    ([START], lambda view: [one.state for one in view.stories.values()], ["done", "open", "open"]),
    ([START], lambda view: (view.began, view.stories["1"].was_done), (NOON, True)),
    ([START, BEGUN], lambda view: list(view.current), [1]),
    ([START, BEGUN], of_attempt("began"), NOON + 10),
    ([START, BEGUN], of_attempt("status"), ""),
    ([START, BEGUN, FAILED], of_story("state"), "failed"),
    ([START, BEGUN, FAILED], lambda view: view.current, {}),
    ([START, BEGUN, FAILED], lambda view: view.spent_so_far, ResourceUse(0.0, 5, 0, 1.5)),
    ([START, BEGUN, FAILED, BEGUN], of_story("state"), "open"),
    ([START, BEGUN, COMPLETED], of_story("state"), "done"),
    ([ON_BRANCH, BEGUN, COMPLETED], of_story("state"), "open"),
    ([ON_BRANCH, BEGUN, COMPLETED, NEXT], of_story("why"), "its work is not on the branch"),
    ([ON_BRANCH, BEGUN, COMPLETED, Checkpoint(story="2", commit="9f2c")], of_story("state"), "done"),
    ([START, BEGUN, COMPLETED], of_story("tasks_done"), 4),
    ([START, BEGUN, Verdict(iteration=1, story="2", status="partial")], of_story("state"), "open"),
    ([START, BEGUN, FAILED, Decision(story="2", action="skip", reason="optional")], of_story("state"), "skipped"),
    ([START, BEGUN, FAILED, Decision(story="2", action="manual", reason="red")], of_story("why"), "red"),
    ([START, BEGUN, COMPLETED, Checkpoint(story="2", commit="9f2c")], of_story("commit"), "9f2c"),
    ([*DONE, Reopened(story="2", why="no")], of_story("state"), "open"),
    ([*DONE, Reopened(story="2", why="no")], of_story("why"), "you rejected it: no"),
    ([*DONE, Reopened(story="2")], lambda view: (view.stories["2"].commit, view.stories["2"].proof), ("", "")),
    ([*DONE, Reopened(story="2"), BEGUN, COMPLETED], of_story("state"), "done"),
    ([START, Reopened(story="1")], lambda view: (view.stories["1"].was_done, view.stories["1"].state), (False, "open")),
    ([START, Question(story="2", missing="a key")], of_story("state"), "waiting"),
    ([START, Question(story="2", missing="a key")], of_story("is_asking"), True),
    ([START, Question(story="2"), Answered(story="2", text="x")], of_story("state"), "open"),
    ([START, Question(story="2"), Answered(story="2", text="x")], of_story("answer"), "x"),
    ([START, Question(story="2"), Answered(story="2", text="x")], of_story("is_asking"), False),
    ([START, Steered(action="skip", story="2", text="later")], of_story("why"), "you skipped it: later"),
    ([START, BEGUN, Steered(action="skip", story="2"), FAILED], of_story("state"), "skipped"),
    ([START, BEGUN, Steered(action="skip", story="2"), COMPLETED], of_story("state"), "done"),
    ([START, Steered(action="skip", story="1")], lambda view: view.stories["1"].state, "done"),
    ([START, Steered(action="pause")], lambda view: (view.is_pause_requested, view.state), (True, "running")),
    ([START, Paused(why="you")], lambda view: (view.is_pause_requested, view.state), (True, "paused")),
    ([START, Paused(), Resumed()], lambda view: (view.is_pause_requested, view.state), (False, "running")),
    ([START, Waiting(seconds=9, why="limit")], lambda view: view.waiting is not None, True),
    ([START, Waiting(seconds=9), Steered(action="guide")], lambda view: view.waiting is not None, True),
    ([START, Waiting(seconds=9), BEGUN], lambda view: view.waiting, None),
    ([START, Waiting(at=at(5), seconds=9), BEGUN], lambda view: view.waits, [Wait("wait", NOON + 5, NOON + 10, "")]),
    ([START, BEGUN, usage(3), usage(4)], of_attempt("used"), ResourceUse(0.0, 7)),
    ([START, BEGUN, usage(3), usage(4)], lambda view: view.spent_so_far, ResourceUse(0.0, 7)),
    ([START, BEGUN, usage(3), Verdict(iteration=1, story="2")], lambda view: view.spent_so_far, ResourceUse(0.0, 3)),
    ([START, BEGUN, usage(3), FAILED], lambda view: view.spent_so_far, ResourceUse(0.0, 5, 0, 1.5)),
    ([START, BEGUN, word("a"), usage(3), Agent(event=agents.Result("b"))], of_attempt("last_event"), word("a")),
    ([START, BEGUN, GateStarted(command="make")], lambda view: view.gates[0].is_running, True),
    ([START, BEGUN, GateStarted(command="make"), Gate(command="make")], lambda view: len(view.gates), 1),
    ([START, BEGUN, Gate(when="before"), Gate(when="after")], lambda view: view.gates[0].event.when, "after"),
    ([START, Setup(ok=True), Setup(command="npm ci")], lambda view: len(view.happenings), 1),
    ([START, Notice(), HandedOver(), BlockerChecked(), Question(), Answered()], lambda view: len(view.happenings), 5),
    ([START, RunEnded(result="done", next=(NextStep(say="x"),))], lambda view: view.state, "done"),
    ([START, RunEnded(result="from the future")], lambda view: view.state, "unfinished"),
    ([START, BEGUN, RunEnded(stories=(StoryAfter(id="2", state="failed", why="red"),))], of_story("why"), "red"),
    ([START, BEGUN, RunEnded(at=at(30))], of_attempt("status"), "cut off"),
    ([START, BEGUN, Queued(at=at(30), iteration=1), BACK], of_attempt("work"), ResourceUse(20.0)),
    ([START, BEGUN, Queued(at=at(30), iteration=1), MEASURED], of_attempt("work"), ResourceUse(15.0)),
    ([START, BEGUN, MEASURED], of_attempt("gate_seconds"), 2.0),
    ([START, RunEnded(stories=(StoryAfter(id="9", state="open"),))], lambda view: view.stories["9"].is_late, True),
    ([FAILED], of_attempt("status"), "failed"),
    ([Gate(command="make"), Verdict(story="2")], lambda view: len(view.attempts[0].gates), 1),
    ([usage(3), Verdict(story="2")], lambda view: view.spent, ResourceUse(0.0, 3)),
]  # fmt: skip


@pytest.mark.parametrize(("happened", "look", "found"), TABLE)
def test_events_and_what_they_make_of_a_run(happened: Sequence[Event], look: Look, found: object) -> None:
    assert look(fed(*happened)) == found


def test_a_clock_that_is_put_back_takes_no_time_away() -> None:
    view = fed(START, BEGUN, msgspec.structs.replace(FAILED, at=at(3)))
    assert (view.now, view.attempts[0].ended) == (NOON + 10, NOON + 10)


def test_where_there_are_no_more_events_all_has_an_end() -> None:
    view = fed(START, BEGUN, Gate(at=at(20), seconds=5, iteration=1), usage(3), Paused(at=at(30), why="you"))
    view.close(NOON + 90, is_over=False)
    [attempt] = view.attempts
    assert (attempt.status, attempt.ended, attempt.gate_seconds) == ("running", NOON + 90, 5)
    assert attempt.work == ResourceUse(75.0, 3)
    assert view.waits == [Wait("pause", NOON + 30, NOON + 90, "you")]


# --- several iterations at once ---------------------------------------------------------------------

OTHER = IterationStarted(at=at(20), iteration=2, number=2, story="3", attempt=1)


def test_what_belongs_to_an_iteration_goes_to_it_whatever_else_is_under_way() -> None:
    view = fed(
        START, BEGUN, OTHER, word("a", 1), usage(3, 1), word("b", 2), Gate(iteration=1), GateStarted(iteration=2)
    )
    first, second = view.attempts
    assert (first.last_event, first.used, len(first.gates)) == (word("a", 1), ResourceUse(0.0, 3), 1)
    assert (second.last_event, second.used, second.gates[0].is_running) == (word("b", 2), ResourceUse(), True)
    view.feed(COMPLETED)
    assert list(view.current) == [2]
    assert (first.status, second.status) == ("completed", "")
    assert [one.state for one in view.stories.values()] == ["done", "done", "open"]


def test_an_iteration_of_the_same_story_shows_that_the_one_before_was_cut_off() -> None:
    view = fed(START, BEGUN, usage(3), msgspec.structs.replace(BEGUN, iteration=2, number=2), usage(4))
    assert [one.status for one in view.attempts] == ["cut off", ""]
    assert view.spent_so_far == ResourceUse(0.0, 7)


# --- on other machines ------------------------------------------------------------------------------


def joined(worker: str, iteration: int = 1, story: str = "2", when: int = 0) -> WorkerJoined:
    return WorkerJoined(at=at(when), worker=worker, iteration=iteration, story=story)


def test_an_iteration_knows_who_works_on_it_and_who_has() -> None:
    view = fed(START, BEGUN, OTHER, joined("build-7"), joined("build-8", 2, "3"), joined("build-7"), joined("build-9"))
    first, second = view.attempts
    assert (first.worker, first.worker_names, len(first.workers)) == ("build-9", ("build-7", "build-9"), 2)
    assert (second.worker, second.worker_names) == ("build-8", ("build-8",))
    view.feed(Queued(iteration=1, story="2"))
    assert (first.worker, first.worker_names) == ("", ("build-7", "build-9")), "nobody works on what waits"
    view.feed(joined("build-7"))
    assert (first.worker, first.worker_names) == ("build-7", ("build-7", "build-9"))


@pytest.mark.parametrize("event", [joined("build-9", 0, ""), joined("build-9", 7), joined("build-9", 2, "2")])
def test_a_worker_that_has_something_else_takes_no_iteration(event: WorkerJoined) -> None:
    """The last check, an iteration that has ended, and one that never started."""
    view = fed(START, BEGUN, joined("build-7"), event)
    assert (view.attempts[0].worker, len(view.attempts)) == ("build-7", 1)


def test_of_an_iteration_whose_start_is_not_known_the_worker_is() -> None:
    view = fed(START, joined("build-9", 7, "3"), joined("build-7"), joined("build-8", 0, ""), FAILED)
    assert view.attempts[0].worker_names == ("build-7",)


@pytest.mark.parametrize("iteration", [1, 0], ids=["of an iteration", "of the last check"])
def test_a_gate_of_a_worker_that_is_gone_does_not_run_any_more(iteration: int) -> None:
    begun = [BEGUN] if iteration else []
    view = fed(START, *begun, joined("build-7", iteration), GateStarted(command="make", iteration=iteration))
    view.feed(joined("build-9", iteration))
    assert view.gates == []
    view.feed(Gate(command="make", iteration=iteration, ok=True))
    view.feed(joined("build-9", iteration))
    assert [one.event.command for one in view.gates] == ["make"], "what has ended stays told"


def test_a_worker_is_news_only_where_the_iteration_was_with_another() -> None:
    happened = [joined(name, when=20 + number) for number, name in enumerate(["a", "a", "b", "b", "a"])]
    story = fed(START, BEGUN, *happened).stories["2"]
    assert [story.is_known_worker(one) for one in happened] == [False, True, False, True, False]
    assert story.is_known_worker(joined("a", 1, when=40)), "also before it was read"
    assert not story.is_known_worker(joined("a", 2, when=40))


def test_endless_workers_and_their_names_fill_no_memory() -> None:
    many = [joined(f"{number}-{'x' * 10_000}", when=20) for number in range(500)]
    [attempt] = fed(START, BEGUN, *many).attempts
    assert (len(attempt.workers), len(attempt.worker)) == (20, 200)
    assert attempt.worker.startswith("499-")


# --- records of earlier versions --------------------------------------------------------------------

OLD = [
    b'{"at":"2026-03-01T12:00:00.000000Z","type":"run_started","stories":[{"id":"1","done":true},{"id":"2","done":false}]}',
    b'{"at":"2026-03-01T12:00:01.000000Z","type":"iteration_started","number":1,"story":"2","entry":"e-1","attempt":1}',
    b'{"at":"2026-03-01T12:00:02.000000Z","type":"gate_started","when":"before","command":"make"}',
    b'{"at":"2026-03-01T12:00:04.000000Z","type":"gate","when":"before","command":"make","ok":true,"seconds":2}',
    b'{"at":"2026-03-01T12:00:05.000000Z","type":"agent","event":{"kind":"usage","input_tokens":7}}',
    b'{"at":"2026-03-01T12:00:06.000000Z","type":"from_the_future","story":"2"}',
    b'{"at":"2026-03-01T12:00:07.000000Z","type":"verdict","entry":"e-1","story":"2","status":"failed","input_tokens":9}',
    b'{"at":"2026-03-01T12:00:08.000000Z","type":"decision","entry":"e-1","story":"2","action":"retry","reason":"left"}',
    b'{"at":"2026-03-01T12:00:09.000000Z","type":"iteration_started","number":2,"story":"2","entry":"e-2","attempt":2}',
    b'{"at":"2026-03-01T12:00:10.000000Z","type":"agent","event":{"kind":"tool","name":"Edit"}}',
]  # fmt: skip


def test_events_without_an_iteration_belong_to_the_last_that_began() -> None:
    view = fed(*follow.decode_all(OLD))
    assert [one.state for one in view.stories.values()] == ["done", "open"]
    first, second = view.attempts
    assert (first.status, first.work.input_tokens, first.used.input_tokens) == ("failed", 9, 7)
    assert (first.gates[0].began, first.gates[0].ended) == (NOON + 2, NOON + 4)
    assert first.decision is not None
    assert (second.start.attempt, second.status) == (2, "")
    assert second.last_event is not None


# --- more than there is room for --------------------------------------------------------------------


def test_what_there_is_no_room_for_is_counted() -> None:
    many = [event for number in range(2500) for event in (BEGUN, FAILED, Notice(text=f"{number}"))]
    view = fed(START, *many)
    assert (len(view.attempts), len(view.happenings)) == (2000, 300)
    assert view.left_out == 500 + 2200
    assert view.spent.input_tokens == 2500 * 5


def test_endless_texts_and_lists_are_cut() -> None:
    endless = Verdict(
        iteration=1,
        story="2",
        status="failed",
        summary="x" * 1_000_000,
        files=("y" * 10_000,) * 5000,
        seconds=Durations(agent=3),
    )
    decision = Decision(story="2", action="retry", guidance="z" * 1_000_000, given={"a": ["b" * 1000] * 1000})
    view = fed(START, BEGUN, endless, decision, *[Gate(iteration=1)] * 100)
    [attempt] = view.attempts
    assert len(msgspec.json.encode(attempt)) < 200_000
    assert attempt.verdict is not None
    assert len(attempt.verdict.files) == 1000
    assert attempt.decision is not None
    assert attempt.decision.given is None


def test_iterations_that_never_end_fill_no_memory() -> None:
    begun = [IterationStarted(iteration=number, story=str(number)) for number in range(1, 3000)]
    view = fed(START, *begun)
    assert len(view.current) == 64
    assert len(view.stories) == 1000


# --- the head and the tail first, then the middle ---------------------------------------------------

IDS = st.sampled_from(["1", "2", "3"])
NUMBERS = st.integers(0, 3)
SAID = st.one_of(
    st.builds(agents.Message, st.text(max_size=5)),
    st.builds(agents.Output, st.sampled_from(["", " \n", "some output"])),
    st.builds(agents.Usage, st.integers(0, 9), cost=st.none() | st.just(0.5)),
    st.builds(agents.Result, st.just('{"kind":"usage"}')),
    st.builds(agents.Failure, st.just("overload"), st.just("busy")),
    st.builds(agents.End, st.booleans()),
)
SPOKEN = st.builds(Agent, event=SAID, iteration=NUMBERS)
WORK = st.one_of(
    st.builds(IterationStarted, iteration=NUMBERS, story=IDS),
    st.builds(GateStarted, when=st.sampled_from(["before", "after"]), iteration=NUMBERS),
    st.builds(Gate, when=st.sampled_from(["before", "after"]), iteration=NUMBERS, ok=st.booleans()),
    st.builds(Verdict, iteration=NUMBERS, story=IDS, status=st.sampled_from(["completed", "failed", "partial"])),
    st.builds(Decision, story=IDS, action=st.sampled_from(["next", "skip", "manual"])),
    st.builds(Question, story=IDS),
    st.builds(Answered, story=IDS),
    st.builds(Steered, action=st.sampled_from(["skip", "retry", "pause", "accept", "reject"]), story=IDS),
    st.builds(Proof, story=IDS, receipt=st.builds(Receipt, state=st.sampled_from(["proven", "unproven", "accepted"]))),
    st.builds(Reopened, story=IDS, why=st.text(max_size=9)),
    st.builds(Checkpoint, story=IDS, proof=st.sampled_from(["", "held", "unproven"])),
    st.builds(WorkerJoined, worker=st.sampled_from(["build-7", "build-9"]), story=IDS, iteration=NUMBERS),
    st.builds(Waiting, seconds=st.integers(0, 99)),
    st.just(Paused()),
    st.just(Resumed()),
    st.builds(Notice, text=st.text(max_size=9)),
)


def written(happened: Sequence[Event]) -> bytes:
    moments = (at(number % 3600) for number in range(len(happened)))
    fields: list[Any] = [events.encode_fields(event, when) for event, when in zip(happened, moments, strict=True)]
    return b"".join(msgspec.json.encode(one) + b"\n" for one in fields)


@pytest.mark.parametrize("detail", [0, 1000], ids=["skimmed", "in full"])
@settings(max_examples=examples(60), deadline=None)
@given(happened=st.lists(WORK | SPOKEN | SPOKEN, max_size=60), later=st.lists(WORK | SPOKEN, max_size=9))
def test_reading_the_middle_last_makes_no_difference(
    tmp_path_factory: pytest.TempPathFactory, detail: int, happened: list[Event], later: list[Event]
) -> None:
    path = tmp_path_factory.mktemp("run") / "events.jsonl"
    path.write_bytes(written([START, *happened]))
    with patch.object(follow, "_TAIL", 1000):
        follower = Follower(str(path), RunView, joins=True, detail=detail)
        assert list(follower.read_new())
        with path.open("ab") as file:
            file.write(written(later))
        follower.read(5.0)
    whole = fed(*follow.decode_all(LineReader(str(path)).new()))
    assert not follower.is_behind
    assert vars(follower.view) == vars(whole)


def test_a_record_that_is_not_there_yet_is_read_when_it_is(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    follower = Follower(str(path), RunView, joins=True)
    assert list(follower.read_new()) == []
    path.write_bytes(written([START, BEGUN]))
    assert len(list(follower.read_new())) == 2
    assert list(follower.view.current) == [1]


def test_the_last_words_of_several_iterations_come_in_the_order_in_which_they_were_said(tmp_path: Path) -> None:
    said = [
        events.Agent(event=agents.Message(text), iteration=number) for number, text in ((1, "a"), (2, "b"), (1, "c"))
    ]
    path = tmp_path / "events.jsonl"
    path.write_bytes(written(said))
    found = list(follow._find_last_words(list(LineReader(str(path)).new())))
    assert [one.event for one in found if isinstance(one, events.Agent)] == [agents.Message("b"), agents.Message("c")]


def test_ticks_are_counted_while_the_agent_works() -> None:
    view = RunView()
    begin = IterationStarted(number=1, story="1", iteration=1)
    for event in (START, begin, Ticked(story="1", ticked=("1.1",), tasks_done=1, tasks_total=3, iteration=1)):
        view.feed(event)
    story = view.stories["1"]
    assert (story.tasks_done, story.tasks_total, story.ticked) == (1, 3, ("1.1",))
    view.feed(Verdict(story="1", status="failed", tasks_done=2, tasks_total=3, iteration=1))
    assert (story.tasks_done, story.tasks_total, story.ticked) == (0, 3, ()), "the ticks of a failed attempt are undone"
    view.feed(IterationStarted(number=2, story="1", iteration=2))
    assert story.ticked == ()
    view.feed(Verdict(story="1", status="partial", tasks_done=2, tasks_total=3, iteration=2))
    assert (story.tasks_done, story.tasks_total) == (2, 3), "the verdict has the last word"


def test_stories_that_are_renumbered_keep_what_is_known_of_them() -> None:
    view = RunView()
    view.feed(START)
    first, second = list(view.stories.values())[:2]
    rows = [{"id": "9", "title": "New"}, {"id": "8", "title": first.title}, {"id": "7", "title": second.title}]
    for moved in ([[first.id, "8"], [second.id, "7"]], [["8"], "x"]):  # ralphtool never writes the second one
        line = {"type": "plan_edited", "at": at(5), "text": "", "stories": rows, "renumbered": moved}
        event = events.decode(msgspec.json.encode(line))
        assert event is not None
        view.feed(event)
        assert [(one.id, one.title) for one in view.stories.values()] == [(row["id"], row["title"]) for row in rows]
        assert view.stories["8"] is first


def test_a_new_story_with_the_id_of_another_is_a_story_of_its_own() -> None:
    view = RunView()
    view.feed(START)
    first, second = list(view.stories.values())[:2]
    rows = tuple(StoryBefore(id=id, title=title) for id, title in (("1", "New"), ("2", "First"), ("3", "Second")))
    view.feed(PlanEdited(stories=rows, renumbered=(("1", "2"), ("2", "3"))))
    assert [(one.id, one.title) for one in view.stories.values()] == [(row.id, row.title) for row in rows]
    assert (view.stories["2"], view.stories["3"]) == (first, second)
    assert view.stories["1"] not in (first, second)
