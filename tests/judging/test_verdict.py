"""What a final message promises, and how an iteration ended: values in, values out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from properties import examples

from ralphtool.agents import End, Failure
from ralphtool.judging.gates import RedGate
from ralphtool.judging.guard import merges
from ralphtool.judging.guard.model import GuardFinding
from ralphtool.judging.verdict import Claim, Evidence, Verdict, judge, parse_claim

TOKEN = "0123456789abcdef0123456789abcdef"
OTHER = "fedcba9876543210fedcba9876543210"
PROMISE = f"<promise>COMPLETE:{TOKEN}</promise>"

# --- what a final message promises ------------------------------------------------------------------

KEPT = {
    "alone": PROMISE,
    "after talk": f"All done.\n\n{PROMISE}",
    "with blank lines after it": f"All done.\n{PROMISE}\n\n  \n\t\n",
    "indented": f"All done.\n    {PROMISE}",
    "with the line ends of Windows": f"All done.\r\n{PROMISE}\r\n\r\n",
    "after the promise of an earlier iteration": f"<promise>COMPLETE:{OTHER}</promise>\n{PROMISE}",
    "said twice": f"{PROMISE}\n{PROMISE}",
    "after 10 MB": f"{'talk ' * 2_000_000}\n{PROMISE}",
}


@pytest.mark.parametrize("message", KEPT.values(), ids=KEPT)
def test_a_promise_in_the_last_line_counts(message: str) -> None:
    assert parse_claim(message, TOKEN) == Claim(complete=True)


FORGED = {
    "an empty message": "",
    "blank lines": " \n\t\r\n\n",
    "no promise": "All done.",
    "10 MB of nothing": "x" * 10_000_000,
    "10 MB of blank lines": "\n" * 10_000_000,
    "an echo of the prompt": f"make the last line the promise, with your token:\n\ntoken: {TOKEN}\n",
    "the token alone": TOKEN,
    "no token": "<promise>COMPLETE</promise>",
    "an empty token": "<promise>COMPLETE:</promise>",
    "the place for a token": "<promise>COMPLETE:{{token}}</promise>",
    "the token of another iteration": f"<promise>COMPLETE:{OTHER}</promise>",
    "a part of the token": f"<promise>COMPLETE:{TOKEN[:-1]}</promise>",
    "more than the token": f"<promise>COMPLETE:{TOKEN}0</promise>",
    "the token in capitals": f"<promise>COMPLETE:{TOKEN.upper()}</promise>",
    "not in the last line": f"{PROMISE}\nThat was it.",
    "text after it": f"{PROMISE} is what I would write.",
    "a full stop after it": f"{PROMISE}.",
    "text before it": f"Now I write {PROMISE}",
    "quoted": f"> {PROMISE}",
    "in backticks": f"`{PROMISE}`",
    "in a list": f"- {PROMISE}",
    "bold": f"**{PROMISE}**",
    "inside a fence": f"```\n{PROMISE}\n```",
    "a fence opened after it": f"{PROMISE}\n```",
    "twice in a line": f"{PROMISE}{PROMISE}",
    "twice in a line, apart": f"{PROMISE} {PROMISE}",
    "lower case": PROMISE.lower(),
    "another tag": PROMISE.replace("promise", "Promise"),
    "blanks around the token": f"<promise>COMPLETE: {TOKEN} </promise>",
    "blanks inside the tag": f"< promise >COMPLETE:{TOKEN}</ promise >",
    "over two lines": f"<promise>COMPLETE:\n{TOKEN}</promise>",
    "not closed": f"<promise>COMPLETE:{TOKEN}",
    "not opened": f"COMPLETE:{TOKEN}</promise>",
    "coloured": f"\x1b[32m{PROMISE}\x1b[0m",
    "hidden behind a carriage return": f"I won't write {PROMISE}\rNow something else",
    "behind a carriage return": f"I won't write this:\r{PROMISE}",
    "behind a line separator": f"I won't write this:\u2028{PROMISE}",
    "with a NUL": f"{PROMISE}\0",
    "with a letter that is not seen": f"\u200b{PROMISE}",
    "in other letters": PROMISE.replace("C", "\u0421"),
    "as JSON": f'{{"text": "{PROMISE}"}}',
    "escaped": PROMISE.replace("<", "&lt;").replace(">", "&gt;"),
    "a reason with it": f"<promise>COMPLETE:{TOKEN}: yes</promise>",
    "only an attempt": f"<promise>PARTIAL:{TOKEN}</promise>",
}


@pytest.mark.parametrize("message", FORGED.values(), ids=FORGED)
def test_what_looks_like_a_promise_is_none(message: str) -> None:
    assert parse_claim(message, TOKEN) == Claim()


REASONS = {
    "the key is missing": "the key is missing",
    ": the key: API_KEY: is missing:": "the key: API_KEY: is missing:",
    "<b>no</b> > key": "<b>no</b> > key",
    "   ": "no reason was given",
    "": "no reason was given",
    "COMPLETE": "COMPLETE",
    "x" * 100_000: "x" * 100_000,
}


@pytest.mark.parametrize("given_reason", REASONS, ids=range(len(REASONS)))
def test_a_reason_may_be_anything_in_one_line(given_reason: str) -> None:
    wanted = REASONS[given_reason].removeprefix(": ")
    found = parse_claim(f"Sorry.\n<promise>BLOCKED:{TOKEN}: {given_reason.removeprefix(': ')}</promise>\n", TOKEN)
    assert found == Claim(blocked=wanted)


@pytest.mark.parametrize(
    "line",
    [
        f"<promise>BLOCKED:{OTHER}: no key</promise>",
        f"<promise>BLOCKED:{TOKEN}</promise>",
        f"<promise>BLOCKED:{TOKEN}: no key</promise> it said",
        f"it said <promise>BLOCKED:{TOKEN}: no key</promise>",
        f"<promise>blocked:{TOKEN}: no key</promise>",
        f"<promise>BLOCKED:{TOKEN}: no key",
    ],
)
def test_what_looks_like_a_reported_blocker_is_none(line: str) -> None:
    assert parse_claim(line, TOKEN) == Claim()


def test_a_blocker_never_completes_whatever_stands_in_its_reason() -> None:
    for reason in (PROMISE, f"a\n{PROMISE}\nb", f"</promise>{PROMISE}<promise>", "two\nlines"):
        assert not parse_claim(f"<promise>BLOCKED:{TOKEN}: {reason}</promise>", TOKEN).complete, reason


@settings(deadline=None)
@given(st.text(), st.text())
def test_no_text_without_the_token_is_a_claim(before: str, after: str) -> None:
    assert parse_claim(f"{before}<promise>COMPLETE:{after}</promise>", TOKEN) == Claim()


@settings(deadline=None)
@given(st.text(), st.text(st.characters(exclude_categories=["Zs", "Zl", "Zp", "Cc"]), min_size=1))
def test_nothing_may_follow_the_promise(before: str, after: str) -> None:
    assert parse_claim(f"{before}\n{PROMISE}{after}", TOKEN) == Claim()


# --- how an iteration ended -------------------------------------------------------------------------

CONFLICT = b"<<<<<<< one\na\n=======\nb\n>>>>>>> other\n"
CHEATED = GuardFinding("test-deleted", "tests/test_a.py", "it is gone")
MARKED = tuple(merges.find_markers(dict.fromkeys(("tests/test_units.py", "units/__init__.py"), CONFLICT)))
CLOBBERED = GuardFinding("merge-clobber", "a.py", "other stories changed it")
DONE = Evidence(
    ending="exit",
    end=End(ok=True, message=PROMISE),
    claim=Claim(complete=True),
    tasks=("1.1", "1.2"),
    ticked_before=frozenset(),
    ticked=frozenset(("1.1", "1.2")),
    gates_ran=True,
)
RATE_LIMIT = Failure("rate-limit", "slow down", 123.0)


def but(**changed: Any) -> Verdict:
    """The verdict on an iteration that would be done, except for these changes."""
    return judge(structs.replace(DONE, **changed))


def test_all_of_it_is_done() -> None:
    verdict = judge(DONE)
    assert (verdict.status, verdict.reasons, verdict.ticked) == ("completed", (), ("1.1", "1.2"))
    assert verdict.summary == "every task is ticked, all gates are green"
    assert (verdict.too_big, verdict.is_broken, verdict.blocker) == (False, False, None)


def test_without_gates_it_says_that_nothing_was_proven() -> None:
    verdict = but(gates_ran=False)
    assert verdict.status == "completed"
    assert "there is no gate" in verdict.summary


FAILED_END = End(ok=False, reason="it\nbroke")
SHORT_OF_DONE: dict[str, tuple[dict[str, Any], str, str]] = {
    "the end": ({"end": FAILED_END}, "partial", "the agent failed: it broke"),
    "the end, without a reason": ({"end": End(ok=False)}, "partial", "it gave no reason"),
    "the promise": ({"claim": Claim()}, "partial", "does not end with the promise of this iteration"),
    "an answer": (
        {"claim": Claim(), "end": End(ok=True, message="It is not in the spec.\n\nWhich colour?")},
        "partial",
        "ended with a question: Which colour?",
    ),
    "a tick": ({"ticked": frozenset(("1.2",))}, "partial", "1 task not ticked: 1.1"),
    "all ticks": ({"ticked": frozenset()}, "failed", "2 tasks not ticked: 1.1, 1.2"),
    "a gate": (
        {"red": (RedGate("make check", (), "exit status 2"),)},
        "failed",
        "`make check` is newly red: exit status 2",
    ),
    "a repair": (
        {"red": (RedGate("make fmt", why="it changes a.py", is_repair=True),)},
        "partial",
        "`make fmt` did not test the work: it changes a.py; run it before you promise, and keep what it changes",
    ),
    "a repair, and a gate": (
        {"red": (RedGate("make"), RedGate("make fmt", why="it changes a.py", is_repair=True))},
        "failed",
        "`make` is newly red",
    ),
    "a repair of a task": (
        {"task": "1.1", "red": (RedGate("make fmt", why="it changes a.py", is_repair=True),)},
        "failed",
        "`make fmt` did not test the work",
    ),
    "a test": ({"red": (RedGate("pytest", ("tests/a.py::b",)),)}, "failed", "newly red: tests/a.py::b (`pytest`)"),
    "markers": ({"findings": MARKED}, "failed", "conflict markers are left in tests/test_units.py, units/__init__.py"),
    "others' work": ({"findings": (CLOBBERED,)}, "failed", "conflicts were not resolved properly: merge-clobber a.py"),
    "honesty": ({"findings": (CHEATED,)}, "failed", "shows cheating: test-deleted tests/test_a.py (it is gone)"),
    "a tree": ({"trouble": "disk\nfull"}, "failed", "the work can't be read: disk full"),
    "time": ({"ending": "wall-clock"}, "partial", "ran out of time"),
    "a sign of life": ({"ending": "silence"}, "partial", "printed nothing for too long"),
    "measure": ({"ending": "too-much"}, "partial", "printed too much"),
    "room": ({"ending": "no-room"}, "partial", "the disk was full"),
    "its supervisor": ({"ending": "supervisor-lost"}, "partial", "supervisor process was killed"),
    "a start": ({"ending": "not-started", "ticked": frozenset()}, "failed", "could not be started"),
    "money": ({"ending": "budget"}, "partial", "the budget was used up"),
    "freedom": ({"claim": Claim(blocked="no key")}, "blocked", "reported a blocker: no key"),
}


@pytest.mark.parametrize("missing", SHORT_OF_DONE)
def test_one_part_of_done_is_missing(missing: str) -> None:
    changed, status, reason = SHORT_OF_DONE[missing]
    verdict = but(**changed)
    assert verdict.status == status
    assert reason in " | ".join(verdict.reasons)
    assert reason in verdict.summary or status == "blocked"


QUESTION = End(ok=True, message="Which colour?")
ASKING: dict[str, tuple[dict[str, Any], str]] = {
    "the last word": ({"claim": Claim(), "end": QUESTION}, "Which colour?"),
    "a blocker": ({"blockers": ("Which size?",), "claim": Claim(), "end": QUESTION}, "Which size?"),
    "a claim": ({"claim": Claim(blocked="Which size?"), "end": QUESTION}, "Which size?"),
    "a promise that does not hold": ({"end": QUESTION, "ticked": frozenset()}, ""),
    "words of a program that broke": ({"claim": Claim(), "end": structs.replace(QUESTION, ok=False)}, ""),
    "words before it was ended": ({"claim": Claim(), "end": QUESTION, "ending": "silence"}, ""),
    "done": ({"end": QUESTION}, ""),
}


@pytest.mark.parametrize("how", ASKING)
def test_what_the_agent_wants_to_know(how: str) -> None:
    changed, question = ASKING[how]
    assert but(**changed).question == question


def test_what_was_ticked_before_is_no_progress() -> None:
    ticked = frozenset(("1.1",))
    assert but(ticked_before=ticked, ticked=ticked).status == "failed"
    assert but(ticked_before=ticked, ticked=ticked).ticked == ()
    assert but(ticked_before=ticked).status == "completed"
    assert but(ticked_before=ticked).ticked == ("1.2",)


def test_ticks_of_other_stories_are_no_progress() -> None:
    assert but(ticked=frozenset(("2.1", "2.2"))).status == "failed"


def test_a_story_that_was_ticked_before_still_needs_its_promise() -> None:
    assert but(ticked_before=DONE.ticked).status == "completed"
    assert but(ticked_before=DONE.ticked, claim=Claim()).status == "failed"


# A reported blocker, and other reasons against an iteration: the first that applies, as in the specification.
PRECEDENCE: list[tuple[dict[str, Any], str]] = [
    ({"claim": Claim(), "blockers": ("no key",)}, "blocked"),
    ({"claim": Claim(blocked="no key"), "red": (RedGate("make"),)}, "blocked"),
    ({"claim": Claim(blocked="no key"), "ticked": frozenset()}, "blocked"),
    ({"claim": Claim(blocked="no key"), "end": FAILED_END}, "blocked"),
    ({"claim": Claim(blocked="no key"), "ending": "wall-clock"}, "blocked"),
    ({"claim": Claim(blocked="no key"), "findings": (CHEATED,)}, "blocked"),
    ({"claim": Claim(), "red": (RedGate("make"),)}, "failed"),
    ({"claim": Claim(), "findings": (CHEATED,)}, "failed"),
    ({"claim": Claim(), "trouble": "no tree"}, "failed"),
    ({"blockers": ("it was there in the end",)}, "completed"),
]


@pytest.mark.parametrize(("changed", "status"), PRECEDENCE, ids=range(len(PRECEDENCE)))
def test_the_first_that_fits(changed: dict[str, Any], status: str) -> None:
    assert but(**changed).status == status


def test_the_blocker_of_the_promise_comes_before_an_observed_one() -> None:
    assert but(claim=Claim(blocked="no key"), blockers=("no file",)).blocker == "no key"
    assert but(claim=Claim(), blockers=("no file", "no key")).blocker == "no file"
    assert but(claim=Claim(), blockers=("no\nfile " * 100,)).summary.startswith("blocked: no file no file")
    assert len(but(claim=Claim(), blockers=("no file " * 1000,)).summary) < 300


def test_not_every_finding_is_cheating() -> None:
    told = but(findings=(*MARKED, CLOBBERED)).reasons
    assert len(told) == 2
    assert "cheating" not in "".join(told)
    assert len(but(findings=(*MARKED, CHEATED)).reasons) == 2


@pytest.mark.parametrize(("is_guarded", "status"), [(True, "failed"), (False, "completed")])
def test_a_guard_that_only_warns_keeps_nothing_from_being_done(is_guarded: bool, status: str) -> None:
    verdict = but(findings=(CHEATED,), is_guarded=is_guarded)
    assert verdict.status == status
    assert "test-deleted tests/test_a.py" in verdict.summary


def test_a_warning_is_reported_and_fails_nothing() -> None:
    verdict = but(findings=(GuardFinding("lint-config", "ruff.toml", "is less strict: ignore S101"),))
    assert verdict.status == "completed"
    assert "warned: lint-config ruff.toml" in verdict.summary
    assert not verdict.is_dishonest


# --- a chunk ----------------------------------------------------------------------------------------


def test_a_chunk_is_a_part_until_the_last_one() -> None:
    first = but(task="1.1", ticked=frozenset(("1.1",)))
    assert (first.status, first.ticked, first.reasons) == ("partial", ("1.1",), ())
    assert first.summary == "task 1.1 is done, all gates are green"
    assert but(task="1.2", ticked_before=frozenset(("1.1",))).status == "completed"


def test_a_chunk_answers_for_its_own_task() -> None:
    nothing = but(task="1.1", ticked=frozenset())
    assert nothing.status == "failed"
    assert nothing.reasons == ("1 task not ticked: 1.1",)
    other = but(task="1.1", ticked=frozenset(("1.2",)))
    assert other.reasons == ("1 task not ticked: 1.1",)
    assert but(task="1.1", ticked=frozenset(("1.1",)), red=(RedGate("make"),)).status == "failed"
    assert but(task="1.1", ticked=frozenset(("1.1",)), claim=Claim(blocked="no key")).status == "blocked"


def test_a_chunk_without_its_promise_is_a_part_with_a_reason() -> None:
    verdict = but(task="1.1", ticked=frozenset(("1.1",)), claim=Claim())
    assert verdict.status == "partial"
    assert "promise" in verdict.reasons[0]


# --- transient failures -----------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", ["rate-limit", "overload", "network", "login"])
def test_trouble_that_passes_is_no_attempt(trouble: Any) -> None:
    verdict = but(end=FAILED_END, claim=Claim(), failure=Failure(trouble, "slow\ndown", 123.0))
    assert (verdict.status, verdict.retry_at) == ("transient", 123.0)
    assert verdict.summary == f"{trouble}: slow down"


@pytest.mark.parametrize("trouble", ["context", "other"])
def test_other_trouble_is_an_attempt(trouble: Any) -> None:
    verdict = but(end=FAILED_END, claim=Claim(), ticked=frozenset(), failure=Failure(trouble, "too long"))
    assert verdict.status == "failed"
    assert verdict.too_big == (trouble == "context")


def test_a_full_disk_is_nobodys_fault_unless_somebody_cheated() -> None:
    red = {"red": (RedGate("pytest"),), "full_disk": "/small", "retry_at": 5.0}
    verdict = but(**red)
    assert (verdict.status, verdict.retry_at) == ("transient", 5.0)
    assert "the disk of /small is full: free some space there" in verdict.summary
    assert but(full_disk="/small").status == "completed"
    assert but(**red, findings=(GuardFinding("test-deleted", "a", "b"),)).status == "failed"


def test_words_alone_are_no_trouble_that_passes() -> None:
    words = "Error 429: rate limit exceeded, overloaded, network is unreachable, please login"
    verdict = but(end=End(ok=False, message=words, reason=words), claim=Claim(), exit_detail=words)
    assert verdict.status == "partial"


def test_an_agent_that_got_over_its_trouble_is_judged_by_its_work() -> None:
    assert but(failure=RATE_LIMIT).status == "completed"
    assert but(failure=RATE_LIMIT, claim=Claim(), ticked=frozenset()).status == "failed"
    assert not but(failure=Failure("context", "too long"), claim=Claim()).too_big


@pytest.mark.parametrize("ending", ["wall-clock", "silence", "retrying"])
def test_an_agent_that_did_nothing_but_try_again_when_we_ended_it_is_nobodys_fault(ending: Any) -> None:
    verdict = but(ending=ending, end=FAILED_END, claim=Claim(), failure=RATE_LIMIT)
    assert verdict.status == "transient"


@pytest.mark.parametrize("ending", ["too-much", "no-room", "budget"])
def test_an_agent_that_we_ended_had_no_passing_trouble(ending: Any) -> None:
    verdict = but(ending=ending, end=FAILED_END, claim=Claim(), failure=RATE_LIMIT)
    assert verdict.status == "partial"


def test_an_interrupted_iteration_is_that_whatever_else_it_was() -> None:
    for changed in ({}, {"failure": RATE_LIMIT, "end": FAILED_END}, {"claim": Claim(blocked="x")}, {"trouble": "x"}):
        assert but(ending="stopped", **changed).status == "interrupted", changed


@pytest.mark.parametrize(
    ("changed", "too_big", "is_broken"),
    [
        ({"ending": "wall-clock"}, True, False),
        ({"ending": "silence"}, False, False),
        ({"ending": "too-much"}, False, False),
        ({"ending": "budget"}, False, False),
        ({"ending": "no-room"}, False, True),
        ({"ending": "supervisor-lost"}, False, True),
        ({"ending": "not-started"}, False, True),
        ({"trouble": "no tree"}, False, True),
        ({"claim": Claim()}, False, False),
        ({"ending": "wall-clock", "red": (RedGate("make"),)}, True, False),
        ({"ending": "wall-clock", "claim": Claim(blocked="no key")}, True, False),
    ],
)
def test_what_was_too_big_and_what_is_broken(changed: dict[str, Any], too_big: bool, is_broken: bool) -> None:
    verdict = but(**changed)
    assert (verdict.too_big, verdict.is_broken) == (too_big, is_broken)


def test_reasons_are_single_lines_of_a_bearable_length() -> None:
    endless = "a\nb\x1b " * 100_000
    verdict = but(
        red=(RedGate(endless, (endless,) * 1000), RedGate(endless, (), endless)),
        findings=(GuardFinding("test-deleted", "tests/a.py", endless),) * 1000,
        trouble=endless,
        end=End(ok=False, reason=endless),
        tasks=tuple(f"1.{number}" for number in range(10_000)),
        claim=Claim(blocked=endless),
    )
    assert all("\n" not in reason for reason in verdict.reasons)
    assert sum(map(len, verdict.reasons)) < 10_000
    assert "and 995 more" in "".join(verdict.reasons)


# --- done means everything --------------------------------------------------------------------------

TASKS = ("1.1", "1.2", "1.3")
ENDINGS = [
    "exit",
    "wall-clock",
    "silence",
    "stopped",
    "too-much",
    "no-room",
    "supervisor-lost",
    "not-started",
    "budget",
    "retrying",
]
TROUBLES = ["rate-limit", "overload", "network", "login", "context", "other"]
some_tasks = st.sets(st.sampled_from(TASKS)).map(frozenset)
evidence = st.builds(
    Evidence,
    ending=st.just("exit") | st.sampled_from(ENDINGS),
    end=st.builds(End, ok=st.booleans(), message=st.just(""), reason=st.sampled_from(["", "it broke"])),
    claim=st.sampled_from([Claim(complete=True), Claim(complete=True), Claim(), Claim(blocked="no key")]),
    failure=st.none() | st.builds(Failure, trouble=st.sampled_from(TROUBLES), text=st.just("told")),
    task=st.none() | st.sampled_from(TASKS),
    tasks=st.just(TASKS),
    ticked_before=some_tasks,
    ticked=st.just(frozenset(TASKS)) | some_tasks,
    red=st.sampled_from([(), (), (RedGate("make"),)]),
    gates_ran=st.booleans(),
    findings=st.sampled_from([(), (), (CHEATED,)]),
    is_guarded=st.booleans(),
    blockers=st.sampled_from([(), (), ("no key",)]),
    trouble=st.sampled_from(["", "", "no tree"]),
)


def expected(one: Evidence) -> str:
    """The specification's sentence on Done, and the ones after it, as code."""
    if one.ending == "stopped":
        return "interrupted"
    told = one.failure.trouble if one.failure else None
    if (
        one.ending in ("exit", "wall-clock", "silence", "retrying")
        and not one.end.ok
        and told in ("rate-limit", "overload", "network", "login")
    ):
        return "transient"
    cheated = bool(one.findings) and one.is_guarded
    wanted = [one.task] if one.task else one.tasks
    is_good = one.ending == "exit" and one.end.ok and one.claim.complete and not one.red and not cheated
    if is_good and not one.trouble and all(task in one.ticked for task in wanted):
        return "completed" if all(task in one.ticked for task in one.tasks) else "partial"
    if one.claim.blocked or one.blockers:
        return "blocked"
    has_progress = any(task in one.ticked and task not in one.ticked_before for task in one.tasks)
    return "partial" if has_progress and not one.red and not cheated and not one.trouble else "failed"


@settings(max_examples=examples(1000), deadline=None)
@given(evidence)
def test_every_verdict_is_the_specifications(one: Evidence) -> None:
    verdict = judge(one)
    assert verdict.status == expected(one)
    assert verdict.summary
    assert judge(one) == verdict
    assert (verdict.status in ("failed", "blocked")) <= bool(verdict.reasons)
