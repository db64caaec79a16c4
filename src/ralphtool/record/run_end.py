"""How a run ended, as far as its summary needs it: the one event that is shown without the typed events.

Building the typed events takes as long as everything else that `ralphtool watch` does for a finished run. The
attributes are those of `events.RunEnded`, so that a summary can be written from either. As there, a field of the wrong
type counts as absent. Standard library only.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    EventFields = dict[str, Any]
    StoryClaim = tuple[str, str, bool]  # the state of a story, its proof, and whether it is optional

_MOST = 10**15  # a larger number is not a real count


class RunEnd:
    """A `run_ended` event."""

    __slots__ = ("next", "reason", "result", "spent", "stories", "tip")

    def __init__(self, fields: EventFields) -> None:
        self.result, self.reason = get_text(fields, "result"), get_text(fields, "reason")
        self.stories = tuple(map(StoryEnd, get_rows(fields, "stories")))
        spent = fields.get("spent")
        self.spent = RunCost(spent if isinstance(spent, dict) else {})
        self.next = tuple(map(StepToTake, get_rows(fields, "next")))
        tip = fields.get("tip")
        self.tip = LastCheckEnd(tip) if isinstance(tip, dict) else None


class StoryEnd:
    """A story when its run ended."""

    __slots__ = (
        *("id", "title", "optional", "state", "why", "failure", "question"),
        *("commit", "proof", "proof_why", "weaker_tests"),
        *("attempts", "seconds", "input_tokens", "output_tokens", "cost"),
    )

    def __init__(self, fields: EventFields) -> None:
        self.id, self.title = get_text(fields, "id"), get_text(fields, "title")
        self.optional = fields.get("optional") is True
        self.state, self.why = get_text(fields, "state"), get_text(fields, "why")
        self.failure = get_text(fields, "failure")
        self.question, self.commit = get_text(fields, "question"), get_text(fields, "commit")
        self.proof, self.proof_why = get_text(fields, "proof"), get_text(fields, "proof_why")
        self.weaker_tests = get_text(fields, "weaker_tests")
        self.attempts = _get_count(fields, "attempts")
        self.seconds, self.cost = get_number(fields, "seconds"), get_number(fields, "cost")
        self.input_tokens, self.output_tokens = _get_count(fields, "input_tokens"), _get_count(fields, "output_tokens")


class LastCheckEnd:
    """The gates on the branch's tip, when its run ended."""

    __slots__ = ("commit", "ok", "runs")

    def __init__(self, fields: EventFields) -> None:
        self.ok, self.commit = fields.get("ok") is True, get_text(fields, "commit")
        self.runs = tuple(map(CheckedCommand, get_rows(fields, "runs")))


class CheckedCommand:
    """One of these gates."""

    __slots__ = ("command", "ok", "tally")

    def __init__(self, fields: EventFields) -> None:
        self.command, self.ok = get_text(fields, "command"), fields.get("ok") is True
        self.tally = get_text(fields, "tally")


class RunCost:
    """What a run spent."""

    __slots__ = ("agent_seconds", "cost", "gate_seconds", "input_tokens", "iterations", "output_tokens", "seconds")

    def __init__(self, fields: EventFields) -> None:
        self.seconds, self.cost = get_number(fields, "seconds"), get_number(fields, "cost")
        self.agent_seconds, self.gate_seconds = get_number(fields, "agent_seconds"), get_number(fields, "gate_seconds")
        self.input_tokens, self.output_tokens = _get_count(fields, "input_tokens"), _get_count(fields, "output_tokens")
        self.iterations = _get_count(fields, "iterations")


class StepToTake:
    """Something that people can do after a run."""

    __slots__ = ("run", "say")

    def __init__(self, fields: EventFields) -> None:
        self.say, self.run = get_text(fields, "say"), get_text(fields, "run")


def find_result(recorded: str, then: Sequence[StoryClaim], now: Sequence[StoryClaim], *, is_red: bool) -> str:
    """The result of a run as its loop would conclude it from the stories as they are now, not as they were then."""
    if recorded not in ("done", "unproven", "unfinished"):
        return recorded
    if not all(state == "done" or is_optional for state, _, is_optional in now):
        return "unfinished"
    is_accepted = recorded == "done" and _has_unproven(then)  # by the settings
    return "unproven" if is_red or (_has_unproven(now) and not is_accepted) else "done"


def _has_unproven(stories: Sequence[StoryClaim]) -> bool:
    return any((state, proof) == ("done", "unproven") for state, proof, _ in stories)


# --- untrusted fields -------------------------------------------------------------------------------


def get_text(fields: EventFields, name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def get_rows(fields: EventFields, name: str) -> list[EventFields]:
    value = fields.get(name)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def get_number(fields: EventFields, name: str) -> float:
    value: Any = fields.get(name)
    return float(value) if is_sane(value) else 0.0


def _get_count(fields: EventFields, name: str) -> int:
    value = get_number(fields, name)
    return int(value) if value.is_integer() else 0


def is_sane(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MOST
