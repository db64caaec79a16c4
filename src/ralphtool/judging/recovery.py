"""What happens next, and why: a pure function of a verdict, the past and the policy.

The rows in `decide` are tried in order; the first that applies decides.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, TypeVar

from msgspec import UNSET, Struct

from ralphtool.judging.proof_words import describe_proof

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ralphtool.history import EntryObservation
    from ralphtool.history.records import Entry
    from ralphtool.judging.verdict import Verdict

Item = TypeVar("Item")
NextAction = Literal["next", "manual", "skip", "break-chunks", "fix-state", "retry", "wait", "stop"]


class RecoveryPolicy(Struct, frozen=True):
    attempts: int = 3


class Workaround(Struct, frozen=True):
    """What helped before, and the source of that knowledge."""

    text: str
    source: str
    is_certain: bool = False  # it helped against the same error, not only against a similarly worded one


class RecoveryContext(Struct, frozen=True, kw_only=True):
    """What the decision depends on besides the verdict."""

    attempts: int  # used for this story, including this one
    last_status: str | None = None  # of the attempt before this one
    last_failure: str | None = None
    last_question: str = ""  # of its agent
    open_tasks: int = 1
    in_chunks: bool = False
    is_optional: bool = False
    blocker_is_real: bool | None = None  # None: it could not be checked
    blocker_check: str = ""
    workaround: Workaround | None = None  # what helped against the same or a similar problem


class RecoveryDecision(Struct, frozen=True):
    """What happens next; guidance for the next attempt; the reason."""

    action: NextAction
    guidance: str
    reason: str


def decide(verdict: Verdict, past: RecoveryContext, policy: RecoveryPolicy) -> RecoveryDecision:
    for row in (_decide_settled, _decide_question, _decide_manual, _decide_skip, _decide_chunks, _decide_fix):
        if decision := row(verdict, past, policy):
            return decision
    return _decide_retry(verdict, past, policy)


def _decide_settled(verdict: Verdict, past: RecoveryContext, policy: RecoveryPolicy) -> RecoveryDecision | None:
    if verdict.status == "completed":
        return RecoveryDecision("next", "", f"the story is {_describe_receipt(verdict)}")
    if verdict.status == "interrupted":
        return RecoveryDecision("stop", "", "not counted as an attempt")
    if verdict.status == "transient":
        return RecoveryDecision("wait", "", f"the work is not at fault ({verdict.summary}); not counted as an attempt")
    if past.in_chunks and verdict.status == "partial":
        return RecoveryDecision(
            "break-chunks", "", ("a task of the story is done and kept; continuing with the next task")
        )
    return None


def _describe_receipt(verdict: Verdict) -> str:
    receipt = verdict.receipt
    return describe_proof(receipt.state, receipt.why) if receipt else "done"


def _decide_question(verdict: Verdict, past: RecoveryContext, policy: RecoveryPolicy) -> RecoveryDecision | None:
    """A question that was asked twice would be asked again: only a human can answer it."""
    from ralphtool.judging.agent_questions import is_same_question  # compiles its patterns

    is_open = verdict.question and past.last_question and past.blocker_is_real is None
    if not is_open or not is_same_question(verdict.question, past.last_question):
        return None
    return RecoveryDecision("manual", verdict.question, "two attempts in a row ended with the same question")


def _decide_manual(verdict: Verdict, past: RecoveryContext, policy: RecoveryPolicy) -> RecoveryDecision | None:
    if verdict.status == "blocked" and past.blocker_is_real:
        return RecoveryDecision(
            "manual", verdict.blocker or "", f"ralphtool confirmed the blocker: {past.blocker_check}"
        )
    is_skipped = past.is_optional and past.attempts == 1  # also if one attempt is all that the settings allow
    if past.attempts >= policy.attempts and not is_skipped:
        times = f"{past.attempts} attempt{'' if past.attempts == 1 else 's'}"
        return RecoveryDecision("manual", verdict.summary, f"{times} did not complete it")
    return None


def _decide_skip(verdict: Verdict, past: RecoveryContext, policy: RecoveryPolicy) -> RecoveryDecision | None:
    if past.is_optional:
        return RecoveryDecision("skip", verdict.summary, "the story is optional and did not complete")
    return None


def _decide_chunks(verdict: Verdict, past: RecoveryContext, policy: RecoveryPolicy) -> RecoveryDecision | None:
    if past.in_chunks or past.open_tasks < 2:
        return None
    one_by_one = "working on one task at a time"
    if verdict.too_big:
        return RecoveryDecision("break-chunks", one_by_one, "the attempt was too big: it ran out of time or context")
    if verdict.status == past.last_status == "partial":
        return RecoveryDecision("break-chunks", one_by_one, "two attempts in a row completed only a part of it")
    return None


def _decide_fix(verdict: Verdict, past: RecoveryContext, policy: RecoveryPolicy) -> RecoveryDecision | None:
    if verdict.is_broken:
        return RecoveryDecision("fix-state", verdict.summary, "the tree or the environment is broken")
    if verdict.status != "partial" and past.last_failure and _is_same_failure(verdict.summary, past.last_failure):
        return RecoveryDecision("fix-state", _suggest_other_way(verdict), "the same failure occurred twice")
    return None


def _suggest_other_way(verdict: Verdict) -> str:
    return f"This failed twice in the same way, so try a different approach: {verdict.summary}"


def _decide_retry(verdict: Verdict, past: RecoveryContext, policy: RecoveryPolicy) -> RecoveryDecision:
    if verdict.status == "blocked" and past.blocker_is_real is False:
        return RecoveryDecision(
            "retry", f"You are not blocked: {past.blocker_check}", f"not a blocker: {past.blocker_check}"
        )
    known = past.workaround
    if known and known.is_certain:
        return RecoveryDecision("retry", known.text, f"the same problem was solved before ({known.source})")
    left = policy.attempts - past.attempts
    again = f"{left} attempt{'' if left == 1 else 's'} left"
    guidance = _suggest_deciding(verdict) if verdict.question else verdict.summary
    if known:
        guidance = f"{guidance}\n\nThis may help; it is about a similar problem: {known.text}"
        return RecoveryDecision("retry", guidance, f"{again}; a similar problem occurred before ({known.source})")
    return RecoveryDecision("retry", guidance, again)


_ASKED = "\n\nThe last attempt asked: "


def _suggest_deciding(verdict: Verdict) -> str:
    return (
        f"{verdict.summary}{_ASKED}{verdict.question}\n\nThere is no answer yet. Look for one in the spec and the "
        "code, and decide yourself if that is reasonable. If only a human can decide, ask the same question again: "
        "it is then forwarded."
    )


# Parts that vary and mean nothing: an address, an id, a duration, a time, a place on this machine.
_VOLATILE = (
    r"\W*(?:0x[0-9a-f]+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?=[a-f]*\d)[0-9a-f]{12,}"
    r"|\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h|sec|secs|seconds|min|minutes)|\d{4}-\d\d-\d\d(?:t[\d:.,+z-]*)?|\d\d?:\d\d(?::[\d.,]+)?)\W*"
)
_ADDRESS = r"\W*\d{1,3}(?:\.\d{1,3}){3}(?::(\d+))?\W*"
_FIRST_RANDOM_PORT = 32768  # the first ephemeral port
_NUMBER_LABELS = ("pid", "tid", "line")  # the number after these means nothing either


def _is_same_failure(one: str, other: str) -> bool:
    """Whether two failures are the same one. Different tests, tasks, ports or files make a different failure.

    Work is discarded because of the result, so it is stricter than a fingerprint, which is for searching.
    """
    from ralphtool.memory import fingerprint  # compiles its patterns

    left, right = one.lower().split(), other.lower().split()
    if len(left) != len(right) or fingerprint.fingerprint(one) != fingerprint.fingerprint(other):
        return False
    return all(
        _normalize_word(word, before) == _normalize_word(also, before)
        for before, word, also in zip(["", *left], left, right, strict=False)
    )


def _normalize_word(word: str, before: str) -> str:
    if re.fullmatch(_VOLATILE, word) or (
        before.strip("([#:") in _NUMBER_LABELS and word.strip("()[],.:;#").isdecimal()
    ):
        return ""
    if address := re.fullmatch(_ADDRESS, word):  # the port identifies the service
        return address[1] if address[1] and int(address[1][:9]) < _FIRST_RANDOM_PORT else ""
    is_place = word.lstrip("([\"'`").startswith("/")
    return word.rpartition("/")[2] if is_place else word


# --- workarounds ------------------------------------------------------------------------------------


_LEAST_SHARE = 0.4  # the share of the shorter text's words that must be in both


def find_workaround(
    failure: str,
    blockers: Sequence[EntryObservation],
    solution: Callable[[Entry], Entry | None],
    learnings: Iterable[tuple[str, str]],
) -> Workaround | None:
    """How the same blocker was solved later, else a similar one, else a learning about a similar error.

    `solution` returns the entry that completed the work at which another was blocked; a learning is text and source.
    """
    for likeness, seen in _find_similar(failure, blockers, _describe_blocker):
        if (solved := solution(seen.entry)) and (text := _describe_solution(solved, seen.entry)):
            source = f"{seen.entry.id} was blocked by it, {solved.id} was not"
            return Workaround(text, source, is_certain=likeness >= _SAME_SCORE)
    learning = next(iter(_find_similar(failure, learnings, lambda one: one[0])), None)
    return Workaround(*learning[1]) if learning else None


_SAME_SCORE = 2.0  # higher than any share


def _find_similar(text: str, items: Iterable[Item], words: Callable[[Item], str]) -> list[tuple[float, Item]]:
    """The items that are similar to a text, the most similar first; among equals, the last first."""
    scored = [(_score_similarity(text, words(item)), place, item) for place, item in enumerate(items)]
    ranked = sorted(scored, key=lambda one: one[:2], reverse=True)
    return [(score, item) for score, _, item in ranked if score >= _LEAST_SHARE]


def _score_similarity(text: str, other: str) -> float:
    from ralphtool.memory import profile  # likewise

    shared = profile.measure_overlap(text, other)
    # In a few words, many different things look the same.
    return (
        _SAME_SCORE if shared and any(_is_same_failure(part, other) for part in (text, *text.splitlines())) else shared
    )


def _describe_blocker(seen: EntryObservation) -> str:
    one = seen.observation
    return f"{one.title}: {one.description}" if one.description else one.title


def _describe_solution(entry: Entry, blocked: Entry) -> str:
    """How an entry was completed, from its own texts. Guidance that only repeats the failure is left out."""
    guidance = entry.context.recovery_guidance if entry.context is not UNSET else UNSET
    if guidance and _is_same_failure(guidance.partition(_ASKED)[0], blocked.summary or ""):
        guidance = ""
    noted = [one.description or one.title for one in entry.observations if one.type != "blocker"]
    return guidance or next(iter(noted), "") or entry.summary or ""
