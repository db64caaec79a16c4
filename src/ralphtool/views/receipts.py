"""The receipt of a story as rows that every view shows: which tests, how many, suspicions, commands.

Its names come from test programs and agents: `clean` sanitizes each for the view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ralphtool.core.amounts import pluralize
from ralphtool.judging.proof_words import (
    describe_lost,
    describe_proof,
    describe_removed,
    describe_weakened,
    describe_weaker_tests,
)
from ralphtool.views.terminal.phrases import flatten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ralphtool.judging.receipt import ProofRun, Receipt, Suspicion

    Clean = Callable[[str, int], str]

_FEW = 3  # names shown; the others are only counted
_MOST_RUNS, _MOST_NOTES = 8, 5
_NAME, _TEXT = 120, 300  # characters
_UNLOADED = "can't be loaded without the work, and pass with it"
_KINDS = {
    "before": "before the work",
    "gates": "gates",
    "replay": "the tests as they were, on the new code",
    "checks": "the checks as they were, on the new code",
    "own-tests": "the new tests, without the work",
    "guarded": "tests that earlier stories changed, as they were",
    "tip": "at the end of the run",
}


class ReceiptRow(NamedTuple):
    label: str
    text: str


def describe_receipt(receipt: Receipt, clean: Clean = flatten) -> str:
    """One line: `proven by its own tests (2 tests fail without it)`."""
    told = describe_proof(receipt.state, clean(receipt.why, _TEXT))
    if receipt.state == "proven" and (number := _count_own(receipt)):
        return f"{told} ({_describe_short(receipt, number)} without it)"
    if receipt.state == "held" and receipt.passed_after:
        return f"{told} ({pluralize(receipt.passed_after, 'test passes', 'tests pass')})"
    if receipt.state == "accepted" and receipt.why:
        return f"{told}: {clean(receipt.why, _TEXT)}"
    return told


def list_rows(receipt: Receipt, clean: Clean = flatten) -> list[ReceiptRow]:
    """The rows below that line."""
    return [ReceiptRow(label, text) for label, text in _list_pairs(receipt, clean) if text]


def _list_pairs(receipt: Receipt, clean: Clean) -> Iterator[tuple[str, str]]:
    yield "own tests", _describe_own_tests(receipt, clean)
    yield "passing", _describe_passing(receipt)
    yield "lost", _describe_lost(receipt, clean)
    yield "removed", _describe_removed(receipt, clean)
    yield "weakened", clean(describe_weakened(receipt.weakened), _TEXT)
    yield "suspected", _describe_suspicions(receipt.suspicions, clean)
    yield "cleared", clean(receipt.cleared, _TEXT)
    yield from (("ran", _describe_run(one, clean)) for one in receipt.runs[:_MOST_RUNS])
    yield "ran", _count_rest(receipt.runs, _MOST_RUNS)
    yield from (("note", clean(one, _TEXT)) for one in receipt.told[:_MOST_NOTES])
    yield "note", _count_rest(receipt.told, _MOST_NOTES)
    yield "accepted", _describe_acceptance(receipt, clean)
    yield "commit", clean(receipt.commit or "", 100)[:10]


def describe_weaker(receipt: Receipt, clean: Clean = flatten) -> str:
    """Tests that check less now, as in `3 tests that still pass were removed`, and those that the story was allowed to
    break; empty if there are none."""
    allowed = _describe_lost(receipt, clean) if receipt.allowed else ""
    weaker = clean(describe_weaker_tests(receipt.number_removed, receipt.weakened), _TEXT)
    return "; ".join(filter(None, (allowed, weaker)))


def _describe_removed(receipt: Receipt, clean: Clean) -> str:
    number = receipt.number_removed
    names = _name_few(receipt.removed, clean, number)
    return f"{describe_removed(number)}: {names}" if names else describe_removed(number)


def _describe_acceptance(receipt: Receipt, clean: Clean) -> str:
    moment = clean(receipt.at, 40)[:16].replace("T", " ")
    return " ".join(filter(None, [f"by {clean(receipt.by, _NAME)}" if receipt.by else "", moment and f"on {moment}"]))


def _count_own(receipt: Receipt) -> int:
    return max(receipt.own_count, len(receipt.own_tests))


def _describe_short(receipt: Receipt, number: int) -> str:
    if receipt.own_unloaded >= number:
        return pluralize(number, "test can't be loaded", "tests can't be loaded")
    return pluralize(number, "test fails", "tests fail")


def _describe_own_tests(receipt: Receipt, clean: Clean) -> str:
    number = _count_own(receipt)
    if not number:
        return ""
    unloaded = min(receipt.own_unloaded, number)
    told = pluralize(number, "fails without the work and passes with it", "fail without the work and pass with it")
    if unloaded == number:
        told = pluralize(number, "can't be loaded without the work, and passes with it", _UNLOADED)
    elif unloaded:
        told += f" ({unloaded} can't even be loaded without it)"
    names = _name_few(receipt.own_tests, clean, number)
    return f"{told}: {names}" if names else told


def _describe_passing(receipt: Receipt) -> str:
    before, after = receipt.passed_before, receipt.passed_after
    if before is None and after is None:
        return ""
    return f"{'unknown' if before is None else before} before, {'unknown' if after is None else after} now"


def _describe_lost(receipt: Receipt, clean: Clean) -> str:
    return describe_lost(len(receipt.lost), _name_few(receipt.lost, clean), clean(receipt.allowed, _TEXT))


def _describe_suspicions(found: Sequence[Suspicion], clean: Clean) -> str:
    told = [
        " ".join(filter(None, (clean(one.kind, 40), clean(one.path, _NAME), clean(one.detail, _NAME)))) for one in found
    ]
    rest = _count_rest(found, _FEW)
    return "; ".join([*told[:_FEW], *([rest] if rest else [])])


def _describe_run(run: ProofRun, clean: Clean) -> str:
    kind = _KINDS.get(run.kind, clean(run.kind, 40))
    colour = "green" if run.ok else "red, as it should be" if run.kind == "own-tests" else "red"
    found = ", ".join(filter(None, (colour, clean(run.tally or "", 80))))
    return f"{clean(run.command, _NAME)}: {found}" + (f" ({kind})" if kind else "")


def _name_few(names: Sequence[str], clean: Clean, number: int = 0) -> str:
    """The first names, and the number of the others."""
    shown = [clean(one, _NAME) for one in names[:_FEW]]
    more = max(number, len(names)) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more and shown else "")


def _count_rest(items: Sequence[object], shown: int) -> str:
    return f"and {len(items) - shown} more" if len(items) > shown else ""
