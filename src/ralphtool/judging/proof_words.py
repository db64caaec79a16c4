"""What the "done" of a story may claim, in words: one wording for headlines, lists and reports.

Standard library only, because `ralphtool watch` and `ralphtool list` must start quickly.
"""

from __future__ import annotations

from ralphtool.core.amounts import pluralize

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ralphtool.judging.receipt import Suspicion

WORDS: dict[str, str] = {
    "proven": "proven by its own tests",
    "held": "held by the existing tests",
    "unproven": "done, not proven",
    "accepted": "accepted by you",
    "ticked": "ticked by you",
}
# For the agent of the next attempt, at the end of a reason.
IF_NOTHING_NEEDS_TO_CHANGE = "if nothing needs to change, say so with `ralphtool agent observe finding`"
KEEP_OR_EXPLAIN = (
    "keep the behaviour; or, if the story asks for the change, explain it with `ralphtool agent observe finding`"
)
RUN_AND_KEEP = "run it before you promise, and keep what it changes"
SHORT_WORDS: dict[str, str] = {**{state: state for state in WORDS}, "unproven": "not proven"}
_PLURALS = {**WORDS, "proven": "proven by their own tests"}
_WEAKENED = {  # the kinds of suspicions about the strength of a test
    "test-skipped": ("test that still passes was skipped", "tests that still pass were skipped"),
    "assertion-weakened": ("assertion that still passes was weakened", "assertions that still pass were weakened"),
}
WEAKENING = frozenset(_WEAKENED)
_MOST_FILES = _MOST_NAMES = 3
_LONGEST_NAME = 200


def drop_agent_advice(text: str) -> str:
    """A reason as people need it: without what the agent of the next attempt should do."""
    for advice in list_agent_advice(text):
        text = text.replace(f"; {advice}", "")
    return text


def list_agent_advice(text: str) -> list[str]:
    """What the agent of the next attempt should do, according to a reason."""
    return [advice for advice in (IF_NOTHING_NEEDS_TO_CHANGE, KEEP_OR_EXPLAIN) if f"; {advice}" in text]


def count_states(proofs: Iterable[str]) -> dict[str, int]:
    """The number for each state, in the order of `WORDS`; other values are left out."""
    found = list(proofs)
    return {state: number for state in WORDS if (number := found.count(state))}


def describe_counts(proofs: Iterable[str], whys: Sequence[str] = ()) -> str:
    """For example `3 proven by their own tests, 1 done, not proven: there is no gate`; empty for old records.

    `whys` has the reasons of those that are not proven. The reason is shown if all have the same one.
    """
    claimed = list(proofs)
    counts = count_states(claimed)
    why = whys[0] if len(set(whys)) == 1 else ""
    parts = [f"{number} {(WORDS if number == 1 else _PLURALS)[state]}" for state, number in counts.items()]
    unknown = len(claimed) - sum(counts.values())
    parts += [f"{unknown} without a receipt"] if parts and unknown else []
    if why and "unproven" in counts:  # at the end, because it may contain commas
        index = list(counts).index("unproven")
        parts.append(f"{parts.pop(index)}: {why}")
    return ", ".join(parts)


def describe_short_counts(counts: Mapping[str, int]) -> str:
    """For example `3 proven, 1 held, 1 not proven`, for a line in a list."""
    return ", ".join(f"{counts[state]} {word}" for state, word in SHORT_WORDS.items() if counts.get(state))


def describe_proof(state: str, why: str = "") -> str:
    """What one story claims: `held by the existing tests`, `done, not proven: there is no gate`; else `done`."""
    words = WORDS.get(state, "done")
    return f"{words}: {why}" if state == "unproven" and why else words


def describe_removed(number: int) -> str:
    """As in `3 tests that still pass were removed`; empty if there are none."""
    return pluralize(number, "test that still passes was removed", "tests that still pass were removed") * (number > 0)


def describe_weakened(found: Sequence[Suspicion]) -> str:
    """As in `1 assertion that still passes was weakened: tests/test_units.py`; empty if there are none."""
    return "; ".join(filter(None, (_describe_kind(found, kind) for kind in _WEAKENED)))


def _describe_kind(found: Sequence[Suspicion], kind: str) -> str:
    paths = [one.path for one in found if one.kind == kind]
    files = list(dict.fromkeys(paths))
    more = f" and {len(files) - _MOST_FILES} more" if len(files) > _MOST_FILES else ""
    return f"{pluralize(len(paths), *_WEAKENED[kind])}: {', '.join(files[:_MOST_FILES])}{more}" if paths else ""


def describe_lost(number: int, names: str, allowed: str) -> str:
    """As in `1 test as it was fails on the new code: test_total; allowed: the story asks for it: …`."""
    told = pluralize(number, "test as it was fails on the new code", "tests as they were fail on the new code")
    return f"{told}: {names}{f'; allowed: {allowed}' if allowed else ''}" if number else ""


def describe_allowed(lost: Sequence[str], allowed: str) -> str:
    """The old tests that the story was allowed to break; empty if there are none."""
    names = [" ".join(name.split())[:_LONGEST_NAME] for name in lost[:_MOST_NAMES]]
    more = f" and {len(lost) - _MOST_NAMES} more" if len(lost) > _MOST_NAMES else ""
    return describe_lost(len(lost), ", ".join(names) + more, allowed) if allowed else ""


def describe_weaker_tests(removed: int, weakened: Sequence[Suspicion]) -> str:
    """Tests that check less now; empty if nothing was removed or weakened."""
    return "; ".join(filter(None, (describe_removed(removed), describe_weakened(weakened))))
