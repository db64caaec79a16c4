"""The wording of all views of a run: texts safe for a terminal, and sentences about runs and stories.

Agents wrote much of what is in an event, and the file is not trusted: every text goes through `flatten` or
`make_copyable`. This module imports neither rich nor the typed events, because `ralphtool watch` has to start quickly.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ralphtool.core.amounts import pluralize
from ralphtool.core.text import can_write_unicode, make_printable
from ralphtool.judging import proof_words
from ralphtool.views import look

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralphtool.record.event_parts import LastCheck
    from ralphtool.record.events import SentBack
    from ralphtool.record.run_end import LastCheckEnd
    from ralphtool.views.terminal.styled import Piece

    Claim = tuple[str, str]  # what the "done" of a story claims, and why not more

LONGEST_WHY = 160  # characters of a reason in a headline
_FEW = 3  # commands in a headline
LONGEST = 300  # characters shown of one text
LONGEST_WORKER = 24  # characters of a worker's name
_FIRST = 20  # texts shown of a list
_ESCAPES = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))"
_SELECTORS = {0xFE0E: None, 0xFE0F: None}  # terminals disagree about the width of characters with these
ACTIONS = {  # the decision after an attempt
    "next": "on to the next story",
    "retry": "retrying",
    "fix-state": "retrying from the last checkpoint",
    "break-chunks": "its open tasks one by one",
    "skip": "skipped",
    "manual": "needs your answer",
    "wait": "waiting",
    "stop": "stopping",
}
_GATE_TIMES = {
    "before": "before the work",
    "before-again": "before the work, run again",
    "after": "after the work",
    "replay": "on the tests as they were",
    "replay-again": "on the tests as they were, run again",
    "own-tests": "on the new tests without the work",
    "own-tests-again": "without the work, run again",
    "after-again": "with the work, run again",
    "guarded": "on tests that earlier stories changed, as they were",
    "guarded-before": "on the same tests without the work",
    "guarded-again": "on the same tests, run again",
    "build": "for the next tests",
    "tip": "at the end of the run",
    "outside": "in your own folder",
    "same-files": "with your uncommitted files",
    "blind": "with the source broken on purpose",
}
_MUST_FAIL = ("own-tests", "own-tests-again", "blind")


# --- untrusted texts --------------------------------------------------------------------------------


def flatten(text: str, longest: int = LONGEST) -> str:
    """The beginning of a text as one line without colours; other control characters become visible."""
    kept = text[: 4 * longest]
    if "\x1b" in kept:  # the pattern takes a while to compile, and few texts need it
        kept = re.sub(_ESCAPES, "", kept)
    line = make_writable(" ".join(kept.translate(_SELECTORS).split()))
    return line if len(line) <= longest else line[:longest] + ("…" if can_write_unicode() else "...")


def shorten_middle(text: str, longest: int) -> str:
    """Shortens a path or a branch. Its two ends say most, so the middle is removed."""
    if len(text) <= longest:
        return text
    gap = "…" if can_write_unicode() else "..."
    kept = max(longest - len(gap), 2)
    return text[: kept - kept // 2] + gap + text[len(text) - kept // 2 :]


def make_copyable(text: str | None) -> str:
    """A command or a path with all its spaces: people copy it."""
    return make_writable((text or "")[: 10 * LONGEST])


def flatten_first(texts: Sequence[str]) -> list[str]:
    """The first texts of a list."""
    return [flatten(one) for one in texts[:_FIRST]]


def make_writable(text: str) -> str:
    shown = make_printable(text)
    return shown if can_write_unicode() else shown.encode("ascii", "backslashreplace").decode()


# --- notation ---------------------------------------------------------------------------------------


def render_mark(state: str) -> Piece:
    return look.STORIES.get(state, look.STORIES["open"]).mark


def render_attempt_mark(status: str) -> Piece:
    return look.ATTEMPTS[look.find_attempt_name(status)].mark


def format_story(id: str | None, title: str = "") -> str:
    """A story as in `3. Login form`."""
    id, title = flatten(id or "", 40), flatten(title, 120)
    return f"{id}. {title}" if id and title else id or title or "a story"


def format_attempt(number: int, most: int) -> str:
    return f"attempt {number} of {most}" if number and most else f"attempt {number}" if number else ""


def describe_workers(
    names: Sequence[str], longest: int = LONGEST_WORKER, clean: Callable[[str, int], str] = flatten
) -> str:
    """As in `on build-7, build-9`: the other machines that worked on it; empty if there are none."""
    shown = list(filter(None, (clean(one, longest) for one in names[:_FEW])))
    more = [f"{len(names) - _FEW} more"] if len(names) > _FEW else []
    return f"on {', '.join([*shown, *more])}" if shown else ""


def describe_end(result: str, states: Sequence[str], claims: Sequence[Claim] = (), red: str = "") -> str:
    """How a run ended. `claims` are those of the stories that are done; `red` are the gates that are red at the end.

    Both must be safe to show.
    """
    told = "Interrupted; run it again and it resumes where it stopped."
    if result != "interrupted":
        is_only = result in ("done", "unproven") and list(states) == ["done"]
        told = _describe_only_story(*(*claims, ("", ""))[0]) if is_only else _describe_stories(states, claims)
        if result == "unfinished" and not states:
            told = "The run ended with an error."  # only then, its last event names no stories
    return f"The gates are red at the end of the run: {red}. {told}" if red else told


def _describe_stories(states: Sequence[str], claims: Sequence[Claim]) -> str:
    if not states:
        return "There was nothing to do."
    whys = [why for proof, why in claims if proof == "unproven"]
    return join_counts(states, proof_words.describe_counts([proof for proof, _ in claims], whys))


def join_counts(states: Sequence[str], counts: str) -> str:
    """How many stories are in each state. `counts` are the claims of those that are done."""
    done = f"{states.count('done')} of {pluralize(len(states), 'story is', 'stories are')} done"
    parts = [f"{done}: {counts}" if counts else done]
    for state, one, many in (
        ("waiting", "needs your answer", "need your answer"),
        ("failed", "failed", "failed"),
        ("skipped", "was skipped", "were skipped"),
        ("open", "is open", "are open"),
    ):
        if number := states.count(state):
            parts.append(pluralize(number, one, many))
    return "; ".join(parts) + "."


def _describe_only_story(proof: str, why: str) -> str:
    """As in `The story is done: held by the existing tests.`"""
    if proof not in proof_words.WORDS:
        return "The story is done."
    told = proof_words.describe_proof(proof, why)
    return f"The story is {told}." if proof == "unproven" else f"The story is done: {told}."


def describe_red_gates(tip: LastCheck | LastCheckEnd | None, clean: Callable[[str, int], str] = flatten) -> str:
    """As in `pytest -q (2 failed, 4 passed)`; empty if the last check was green, or there was none."""
    if tip is None or tip.ok:
        return ""
    red = [one for one in tip.runs if not one.ok]
    told = [clean(one.command, 100) + (f" ({clean(one.tally, 80)})" if one.tally else "") for one in red[:_FEW]]
    more = [f"{len(red) - _FEW} more"] if len(red) > _FEW else []
    return ", ".join([*told, *more]) or "the record does not say which"


def describe_gate_time(when: str, clean: Callable[[str, int], str] = flatten) -> str:
    """As in `after the work`: which state a gate was run on."""
    return _GATE_TIMES.get(when) or clean(when, 20)


def name_guidance(action: str, status: str) -> str:
    """What the guidance of a decision is. A story that needs an answer gets no next attempt until then."""
    if action != "manual":
        return "guidance for the next attempt"
    return "what is missing" if status == "blocked" else "what happened"


def describe_return(event: SentBack, clean: Callable[[str, int], str] = flatten) -> str:
    """Why the work of a story was sent back to its agent."""
    files, tests = ", ".join(event.files), "; ".join(event.tests)
    what = f"both change {files}" if files else f"together this is red: {tests}"
    return clean(f"it conflicts with story {', '.join(event.others)}: {what}", 500)


def describe_denial(host: str, port: int, allow: str) -> str:
    """What a program in a box could not reach. The texts must be safe to show."""
    return f"network: {host}:{port} was denied" + (f"; to allow it, set {allow}" if allow else "")


def is_expected(when: str, ok: bool) -> bool:
    """Whether a gate ended as expected: new tests must fail without the work, and all tests on broken source."""
    return ok != (when in _MUST_FAIL)


def choose_gate_mark(when: str, ok: bool) -> str:
    if is_expected(when, ok):
        return "done"
    return "unproven" if when in _MUST_FAIL else "failed"


def choose_mark(state: str, proof: str) -> str:
    """The mark of a story: done but not proven has a separate one."""
    return "unproven" if state == "done" and proof == "unproven" else state
