"""What happens next, and why: the table of decisions, known workarounds, and whether a blocker is real."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from properties import examples

from ralphtool.history import EntryObservation
from ralphtool.history.records import Entry, IterationContext, Observation
from ralphtool.judging import blockers
from ralphtool.judging.recovery import RecoveryContext, RecoveryPolicy, Workaround, decide, find_workaround
from ralphtool.judging.verdict import Verdict
from ralphtool.memory import fingerprint, profile

NOW = "2025-01-15T10:30:00Z"

# --- the table --------------------------------------------------------------------------------------

TIMED = Verdict(status="failed", summary="`make` is newly red: exit status 2 after 3.1s")
UNTICKED = Verdict(status="failed", summary="2 tasks not ticked: 1.1, 1.2")
RED = Verdict(status="failed", summary="`pytest` is newly red: tests/unit/test_views.py::test_list")
FAILED = Verdict(status="failed", summary="`make` is newly red: exit status 2")
PARTIAL = Verdict(status="partial", summary="1 task done, but 2 tasks not ticked: 1.2, 1.3", ticked=("1.1",))
BLOCKED = Verdict(status="blocked", summary="blocked: API_KEY is missing", blocker="API_KEY is missing")
TOO_BIG = structs.replace(FAILED, too_big=True)
BROKEN = structs.replace(FAILED, is_broken=True)
FIRST = RecoveryContext(attempts=1, open_tasks=3)
REAL: dict[str, Any] = {"blocker_is_real": True, "blocker_check": "the variable API_KEY is missing"}
LIKE = Workaround("run make clean first", "learning-0001")
KNOWN: dict[str, Any] = {"workaround": LIKE}
SURE: dict[str, Any] = {"workaround": structs.replace(LIKE, is_certain=True)}
SAME: dict[str, Any] = {"attempts": 2, "last_status": "failed", "last_failure": FAILED.summary}
PART: dict[str, Any] = {"attempts": 2, "last_status": "partial", "last_failure": "something else"}

COLOUR = "Which colour should the button have?"
ASKED = structs.replace(UNTICKED, question=COLOUR)
AGAIN: dict[str, Any] = {"attempts": 2, "last_status": "failed", "last_question": COLOUR}

TABLE: list[tuple[str, Verdict, dict[str, Any], int, str]] = [
    # manual: three attempts, or a verified blocker
    ("the last attempt but one", FAILED, {"attempts": 2}, 3, "retry"),
    ("the last attempt", FAILED, {"attempts": 3}, 3, "manual"),
    ("beyond the last attempt, as after a change of the setting", FAILED, {"attempts": 9}, 3, "manual"),
    ("the only attempt", FAILED, {"attempts": 1}, 1, "manual"),
    ("the last attempt was a part", PARTIAL, {"attempts": 3}, 3, "manual"),
    ("the last attempt was blocked", BLOCKED, {"attempts": 3}, 3, "manual"),
    ("the last attempt was too big", TOO_BIG, {"attempts": 3}, 3, "manual"),
    ("the last attempt broke the tree", BROKEN, {"attempts": 3}, 3, "manual"),
    ("the last attempt, a workaround is known", FAILED, {"attempts": 3, **KNOWN}, 3, "manual"),
    ("a verified blocker", BLOCKED, REAL, 3, "manual"),
    ("a verified blocker, a workaround is known", BLOCKED, REAL | KNOWN, 3, "manual"),
    ("a real blocker of an optional story, and the only attempt", BLOCKED, REAL | {"is_optional": True}, 1, "manual"),
    ("a verified blocker of an optional story", BLOCKED, REAL | {"is_optional": True}, 3, "manual"),
    ("the last attempt at an optional story", FAILED, {"attempts": 3, "is_optional": True}, 3, "manual"),
    ("something is missing, but nobody was blocked by it", FAILED, REAL, 3, "retry"),
    # manual: the same question twice
    ("a question", ASKED, {}, 3, "retry"),
    ("the same question", ASKED, AGAIN, 3, "manual"),
    ("the same question in other words", ASKED, AGAIN | {"last_question": "the colour of the button?"}, 3, "manual"),
    ("another question", ASKED, AGAIN | {"last_question": "Which port does the server use?"}, 3, "retry"),
    ("a question after a blocker with the same words", structs.replace(BLOCKED, question=COLOUR), AGAIN, 3, "manual"),
    ("the same question after a part of it", structs.replace(PARTIAL, question=COLOUR), AGAIN, 3, "manual"),
    ("the same question, too big", structs.replace(TOO_BIG, question=COLOUR), AGAIN, 3, "manual"),
    ("the same question, broken", structs.replace(BROKEN, question=COLOUR), AGAIN, 3, "manual"),
    ("the same question of an optional story", ASKED, AGAIN | {"is_optional": True}, 3, "manual"),
    ("the same question, a workaround is known", ASKED, AGAIN | SURE, 3, "manual"),
    ("the same question, but it is answered here", structs.replace(BLOCKED, question=COLOUR),
        AGAIN | {"blocker_is_real": False, "blocker_check": "it is there", "last_failure": "x"}, 3, "retry"),
    ("no question after a question", FAILED, AGAIN | {"last_failure": "x"}, 3, "retry"),
    # skip: the story is optional and did not complete
    ("optional and failed", FAILED, {"is_optional": True}, 3, "skip"),
    ("optional, and the only attempt", FAILED, {"attempts": 1, "is_optional": True}, 1, "skip"),
    ("optional and a part", PARTIAL, {"is_optional": True}, 3, "skip"),
    ("optional and blocked by something unknown", BLOCKED, {"is_optional": True}, 3, "skip"),
    ("optional and too big", TOO_BIG, {"is_optional": True}, 3, "skip"),
    ("optional and broken", BROKEN, {"is_optional": True}, 3, "skip"),
    ("optional, a workaround is known", FAILED, {"is_optional": True, **KNOWN}, 3, "skip"),
    # break-chunks: clock or context ran out, or partial twice
    ("too big", TOO_BIG, {}, 3, "break-chunks"),
    ("too big and a part", structs.replace(PARTIAL, too_big=True), {}, 3, "break-chunks"),
    ("too big and blocked", structs.replace(BLOCKED, too_big=True), {}, 3, "break-chunks"),
    ("too big and broken", structs.replace(BROKEN, too_big=True), {}, 3, "break-chunks"),
    ("too big twice", TOO_BIG, SAME, 3, "break-chunks"),
    ("two tasks are open", TOO_BIG, {"open_tasks": 2}, 3, "break-chunks"),
    ("one task is open", TOO_BIG, {"open_tasks": 1}, 3, "retry"),
    ("no task is open", TOO_BIG, {"open_tasks": 0}, 3, "retry"),
    ("a chunk is too big", TOO_BIG, {"in_chunks": True}, 3, "retry"),
    ("a part", PARTIAL, {}, 3, "retry"),
    ("a part after a part", PARTIAL, PART, 3, "break-chunks"),
    ("a part after a part, one task is open", PARTIAL, PART | {"open_tasks": 1}, 3, "retry"),
    ("a part after a failure", PARTIAL, SAME, 3, "retry"),
    ("a failure after a part", FAILED, PART, 3, "retry"),
    ("a part in chunks", PARTIAL, {"in_chunks": True}, 3, "break-chunks"),
    ("a part in chunks, after so many", PARTIAL, {"in_chunks": True, "attempts": 3}, 3, "break-chunks"),
    # fix-state: the tree or the environment is broken, or the same failure came twice
    ("broken", BROKEN, {}, 3, "fix-state"),
    ("broken, a workaround is known", BROKEN, KNOWN, 3, "fix-state"),
    ("broken in chunks", BROKEN, {"in_chunks": True}, 3, "fix-state"),
    ("the same failure", FAILED, SAME, 3, "fix-state"),
    ("the same failure in chunks", FAILED, SAME | {"in_chunks": True}, 3, "fix-state"),
    ("the same failure, a workaround is known", FAILED, SAME | KNOWN, 3, "fix-state"),
    ("another failure", FAILED, SAME | {"last_failure": "`make lint` is newly red: exit status 2"}, 3, "retry"),
    ("the same in another time", TIMED, SAME | {"last_failure": TIMED.summary.replace("3.1s", "77s")}, 3, "fix-state"),
    ("another task", UNTICKED, SAME | {"last_failure": UNTICKED.summary.replace("1.2", "1.3")}, 3, "retry"),
    ("another test", RED, SAME | {"last_failure": RED.summary.replace("unit", "end")}, 3, "retry"),
    ("no failure before", FAILED, {"last_failure": None}, 3, "retry"),
    # Every part is progress and is kept: reverting to the checkpoint would discard it.
    ("a part like the last part", PARTIAL, PART | {"open_tasks": 1, "last_failure": PARTIAL.summary}, 3, "retry"),
    # retry: a workaround is known, or attempts are left
    ("a failure", FAILED, {}, 3, "retry"),
    ("a failure, a workaround is known", FAILED, KNOWN, 3, "retry"),
    ("a blocker that nobody can look up", BLOCKED, {}, 3, "retry"),
    ("a blocker that is none", BLOCKED, {"blocker_is_real": False, "blocker_check": "it is there"}, 3, "retry"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("verdict", "past", "attempts", "action"), [row[1:] for row in TABLE], ids=[r[0] for r in TABLE]
)
def test_the_first_row_that_fits(verdict: Verdict, past: dict[str, Any], attempts: int, action: str) -> None:
    decision = decide(verdict, structs.replace(FIRST, **past), RecoveryPolicy(attempts))
    assert decision.action == action
    assert decision.reason


@pytest.mark.parametrize(("status", "action"), [("completed", "next"), ("interrupted", "stop"), ("transient", "wait")])
def test_what_was_no_failure_needs_no_recovery(status: Any, action: str) -> None:
    worst = RecoveryContext(
        attempts=99, last_status="failed", last_failure="x", is_optional=True, in_chunks=True, **REAL, **KNOWN
    )
    decision = decide(Verdict(status=status, summary="x", too_big=True, is_broken=True), worst, RecoveryPolicy(1))
    assert (decision.action, decision.guidance) == (action, "")


def failed_with(summary: str) -> Verdict:
    return structs.replace(FAILED, summary=summary)


def guided(verdict: Verdict, **past: Any) -> str:
    return decide(verdict, structs.replace(FIRST, **past), RecoveryPolicy()).guidance


def test_the_guidance_is_what_helps_most() -> None:
    assert guided(FAILED) == FAILED.summary
    assert guided(FAILED, **SURE) == "run make clean first"
    assert guided(FAILED, **KNOWN).startswith(FAILED.summary), "what is only like it is a suggestion"
    assert guided(FAILED, **KNOWN).endswith("run make clean first")
    none = {"blocker_is_real": False, "blocker_check": "the file a.txt is there"}
    assert "the file a.txt is there" in guided(BLOCKED, **none)
    assert "a different approach" in guided(FAILED, **SAME)
    assert "one task at a time" in guided(TOO_BIG)
    assert guided(BLOCKED, **REAL) == "API_KEY is missing"
    assert guided(ASKED).startswith(f"{ASKED.summary}\n\nThe last attempt asked: {COLOUR}")
    assert "ask the same question again" in guided(ASKED, **KNOWN)
    assert guided(ASKED, **AGAIN) == COLOUR, "its own words"


def test_the_reason_names_what_decided() -> None:
    assert "the variable API_KEY is missing" in decide(BLOCKED, structs.replace(FIRST, **REAL), RecoveryPolicy()).reason
    assert "3 attempts" in decide(FAILED, structs.replace(FIRST, attempts=3), RecoveryPolicy()).reason
    assert "learning-0001" in decide(FAILED, structs.replace(FIRST, **KNOWN), RecoveryPolicy()).reason
    assert "the same problem was solved" not in decide(FAILED, structs.replace(FIRST, **KNOWN), RecoveryPolicy()).reason
    assert (
        "the same problem was solved before (learning-0001)"
        in decide(FAILED, structs.replace(FIRST, **SURE), RecoveryPolicy()).reason
    )
    assert "1 attempt left" in decide(FAILED, structs.replace(FIRST, attempts=2), RecoveryPolicy()).reason
    assert "2 attempts left" in decide(FAILED, FIRST, RecoveryPolicy()).reason


STATUSES = ["completed", "failed", "blocked", "partial", "interrupted", "transient"]
words = st.sampled_from(["", "a", "b 1", "b 2"])
verdicts = st.builds(
    Verdict,
    status=st.sampled_from(STATUSES),
    summary=words,
    ticked=st.sampled_from([(), ("1.1",)]),
    blocker=st.none() | words,
    too_big=st.booleans(),
    is_broken=st.booleans(),
)
pasts = st.builds(
    RecoveryContext,
    attempts=st.integers(0, 5),
    last_status=st.none() | st.sampled_from(STATUSES),
    last_failure=st.none() | words,
    open_tasks=st.integers(0, 4),
    in_chunks=st.booleans(),
    is_optional=st.booleans(),
    blocker_is_real=st.sampled_from([True, False, None]),
    blocker_check=words,
    workaround=st.none() | st.builds(Workaround, words, words, st.booleans()),
)


@settings(max_examples=examples(500), deadline=None)
@given(verdicts, pasts, st.integers(1, 4))
def test_every_decision_has_a_reason_and_comes_again(verdict: Verdict, past: RecoveryContext, attempts: int) -> None:
    decision = decide(verdict, past, RecoveryPolicy(attempts))
    assert decision.reason
    assert decide(verdict, past, RecoveryPolicy(attempts)) == decision
    is_open = verdict.status in ("failed", "blocked", "partial")
    assert is_open == (decision.action in ("manual", "skip", "break-chunks", "fix-state", "retry"))
    if past.attempts >= attempts and is_open and not (past.in_chunks and verdict.status == "partial"):
        real = verdict.status == "blocked" and past.blocker_is_real
        assert decision.action == ("skip" if past.is_optional and past.attempts == 1 and not real else "manual")
    if decision.action == "retry":
        assert past.attempts < attempts


# --- known workarounds ------------------------------------------------------------------------------


def entry(
    prd_id: str, number: int, status: Any, summary: str = "", *observations: Observation, **context: Any
) -> Entry:
    return Entry(
        id=f"{prd_id}-{number}",
        timestamp=NOW,
        prd_id=prd_id,
        iteration=number,
        status=status,
        summary=summary,
        observations=observations,
        context=IterationContext(**context),
    )


def blocked(prd_id: str, title: str, description: str = "") -> EntryObservation:
    observation = Observation(type="blocker", title=title, description=description)
    return EntryObservation(entry(prd_id, 1, "blocked", title, observation), observation)


PORT = "the database refuses connections on port 5432"
SOLVED = entry(
    "storage", 2, "completed", "the pool is made lazily", recovery_guidance="start the database with make db"
)
LEARNT = ("the database on port 5432 is started by make up", "learning-0007")


def solved_by(*entries: Entry) -> Any:
    return lambda seen: next((one for one in entries if one.prd_id == seen.prd_id), None)


def test_a_similar_blocker_that_was_solved_tells_how() -> None:
    found = find_workaround(PORT, [blocked("storage", "database refuses connections")], solved_by(SOLVED), [])
    assert found is not None
    assert found.text == "start the database with make db"
    assert "storage-1" in found.source
    assert "storage-2" in found.source


def test_how_it_was_solved_is_the_guidance_then_what_was_noted_then_the_summary() -> None:
    noted = Observation(type="finding", title="Lazy", description="make the pool lazily")
    again = Observation(type="blocker", title="blocked again")
    seen = [blocked("storage", "database refuses connections")]

    def how(*observations: Observation, summary: str = "done", **context: Any) -> str | None:
        done = entry("storage", 2, "completed", summary, *observations, **context)
        found = find_workaround(PORT, seen, solved_by(done), [])
        return found.text if found else None

    assert how(again, noted, recovery_guidance="start it") == "start it"
    assert how(again, noted) == "make the pool lazily"
    assert how(again) == "done"
    assert how(summary="") is None


def test_a_blocker_that_was_not_solved_helps_nobody() -> None:
    seen = [blocked("storage", "database refuses connections")]
    assert find_workaround(PORT, seen, solved_by(), []) is None
    assert find_workaround(PORT, seen, solved_by(), [LEARNT]) == Workaround(*LEARNT)


def test_a_solved_blocker_comes_before_a_learning() -> None:
    seen = [blocked("storage", "database refuses connections")]
    found = find_workaround(PORT, seen, solved_by(SOLVED), [LEARNT])
    assert found is not None
    assert found.text == "start the database with make db"


def test_one_that_was_not_solved_does_not_hide_one_that_was() -> None:
    seen = [blocked("storage", "database refuses connections"), blocked("other", PORT), blocked("third", PORT)]
    found = find_workaround(PORT, seen, solved_by(SOLVED), [])
    assert found is not None
    assert "storage-1" in found.source


def test_something_else_that_was_solved_is_no_workaround() -> None:
    seen = [blocked("storage", "certificate expired yesterday")]
    assert find_workaround(PORT, seen, solved_by(SOLVED), [("use tabs in makefiles", "learning-0001")]) is None
    assert find_workaround("", seen, solved_by(SOLVED), [LEARNT]) is None
    assert find_workaround(PORT, [], solved_by(SOLVED), []) is None


def test_a_short_learning_that_shares_one_common_word_is_no_workaround() -> None:
    """Our own phrases for a failure are in every summary: they say nothing about the cause."""
    summary = "2 tasks not ticked: 1.1, 1.2; the final message does not end with the promise of this iteration"
    for learning in ("tick tasks late", "message catalogues live in locale", "end users are called members"):
        assert find_workaround(summary, [], solved_by(), [(learning, "learning-0001")]) is None, learning


class Read:
    """A blocker that counts how many times it is read."""

    def __init__(self) -> None:
        self.times = 0
        self.description = "the same words again"

    @property
    def title(self) -> str:
        self.times += 1
        return PORT


def test_a_long_past_of_unsolved_blockers_is_read_once() -> None:
    """The number of comparisons grows with the past, not with its square: they happen after every failure."""
    asked: list[str] = []
    counted: list[Any] = [Read() for _ in range(200)]
    seen = [EntryObservation(entry(f"story-{number}", 1, "blocked"), one) for number, one in enumerate(counted)]
    assert find_workaround(PORT, seen, lambda one: asked.append(one.id), []) is None
    assert sorted(asked) == sorted(one.entry.id for one in seen)
    assert max(one.times for one in counted) <= 3


# --- is a blocker real? -----------------------------------------------------------------------------

ENVIRON = {"SET_KEY": "value", "EMPTY_KEY": ""}


@pytest.fixture
def root(tmp_path: Path) -> str:
    (tmp_path / "certs").mkdir()
    (tmp_path / "certs/server.pem").write_text("x")
    (tmp_path / "fixtures.json").write_text("{}")
    (tmp_path / "broken.toml").symlink_to("nowhere")
    return str(tmp_path)


BLOCKERS: list[tuple[str, bool | None, str]] = [
    ("the variable STRIPE_API_KEY is not set", True, "STRIPE_API_KEY is missing"),
    ("SET_KEY is missing", False, "SET_KEY is available"),
    ("EMPTY_KEY has no value", True, "EMPTY_KEY is missing"),
    ("neither SET_KEY nor STRIPE_API_KEY is set", True, "STRIPE_API_KEY is missing"),
    ("`certs/client.pem` is missing", True, "certs/client.pem is missing"),
    ("certs/server.pem is missing", False, "certs/server.pem is available"),
    ("there is no ./certs/client.pem", True, "certs/client.pem is missing"),
    ("no fixtures.json", False, "fixtures.json is available"),
    ("secrets.env has to be made", True, "secrets.env is missing"),
    ("the command `no-such-program-here` is missing", True, "no-such-program-here is missing"),
    ("the command 'sh' is missing", False, "the command sh is available"),
    ("the program no-such-program-here is not installed", True, "no-such-program-here is missing"),
    ("SET_KEY and certs/server.pem are missing", False, "are available"),
    ("the design is not decided", None, "nothing that can be checked"),
    ("", None, "nothing that can be checked"),
]


@pytest.mark.parametrize(("text", "is_real", "found"), BLOCKERS, ids=[row[0] or "nothing" for row in BLOCKERS])
def test_what_is_named_is_looked_up(text: str, is_real: bool | None, found: str, root: str) -> None:
    check = blockers.check_claim(text, root, ENVIRON)
    assert check.is_real is is_real
    assert found in check.found


@pytest.mark.parametrize(
    "text",
    [
        "the command fails with exit status 1",
        "the command line is too long",
        "that tool is broken, and I can't mend it",
        "the program crashes",
        "I can't tell whether client and/or server should validate",
        "POST /api/login answers with 500",
        "the service at https://example.org/v1/users is down",
        "example.org/v1/users is down",
        "the CI/CD pipeline is red",
        "I have no rights to push to origin/main",
    ],
)
def test_prose_names_nothing_that_could_be_missing(text: str, root: str) -> None:
    assert blockers.check_claim(text, root, ENVIRON).is_real is not True


HOSTILE = [
    "'~a\0b/c' is missing",
    "'~\ud800/c' is missing",
    "`\0/\0` is missing",
    f"'{'a/' * 99}' is missing",
    "A_" * 100_000,
    "a/" * 100_000,
    "`" * 100_000,
    "command " * 100_000,
    "x" * 10_000_000,
    f"{'../' * 3000}etc/passwd",
    "$(touch /tmp/pwned) `touch pwned`",
    "\ud800\udfff KEY_\ud800",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_only_looked_at(text: str, root: str) -> None:
    before = sorted(os.listdir(root))
    assert blockers.check_claim(text, root, ENVIRON).found
    assert sorted(os.listdir(root)) == before


@settings(max_examples=examples(300), deadline=None)
@given(st.text() | st.text(alphabet="~/`'\"\0.aA_ \ud800"))
def test_any_text_can_be_checked(text: str) -> None:
    check = blockers.check_claim(text, "/nowhere", {})
    assert (check.is_real is None) == ("nothing" in check.found and "be checked" in check.found)


# --- same and similar texts -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "are_same"),
    [
        ("exit status 2", "exit status 3", False),
        ("took 0.31s at 0xdeadbeef", "took 12.5s at 0x00c0ffee", True),
        ("Red:  make\n", "red: make", True),
        ("", "", True),
        ("red: make lint", "red: make test", False),
        ("red: tests/test_a.py::test_one", "red: tests/test_a.py::test_two", False),
        ("failed", "", False),
    ],
)
def test_two_failures_are_the_same_but_for_what_is_volatile(one: str, other: str, are_same: bool) -> None:
    assert (fingerprint.fingerprint(one) == fingerprint.fingerprint(other)) is are_same
    again = decide(failed_with(one), structs.replace(FIRST, last_failure=other), RecoveryPolicy())
    assert (again.action == "fix-state") is (are_same and bool(other))


@settings(deadline=None)
@given(st.text(), st.text())
def test_likeness_is_a_share_and_the_same_from_both_sides(one: str, other: str) -> None:
    assert 0.0 <= profile.measure_overlap(one, other) <= 1.0 + 1e-9
    assert profile.measure_overlap(one, other) == pytest.approx(profile.measure_overlap(other, one))


def test_likeness_is_about_words() -> None:
    assert profile.measure_overlap("database connection refused", "Connection refused: DATABASE!") == pytest.approx(1.0)
    assert (
        0.4
        < profile.measure_overlap("database connection pool exhausted", "the pool of database connections is slow")
        < 1.0
    )
    assert profile.measure_overlap("the database is slow", "database is slow today") == 0.0  # two words are not enough
    assert profile.measure_overlap("it is not for the", "it is not for the") == 0.0
    assert profile.measure_overlap("", "") == 0.0


def test_the_most_alike_is_taken_and_of_equals_the_last() -> None:
    learnings = [("red green blue", "first"), ("red green blue black", "second"), ("red green blue black", "third")]
    for known, source in ((learnings, "third"), (learnings[:2], "second"), (learnings[:1], "first")):
        assert find_workaround("red green blue black", [], solved_by(), known) == Workaround(known[-1][0], source)


def test_only_the_same_error_is_certain() -> None:
    port = "connect ECONNREFUSED 127.0.0.1:5432 (pid 4711)"
    seen = [blocked("storage", "connect ECONNREFUSED 127.0.0.1:5432 (pid 99)")]
    found = find_workaround(f"blocked: {port}\n{port}", seen, solved_by(SOLVED), [])
    assert found
    assert found.is_certain
    found = find_workaround(PORT, [blocked("storage", "database refuses connections")], solved_by(SOLVED), [])
    assert found
    assert not found.is_certain
