"""The summary at the end of a run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal, NamedTuple

from ralphtool.core.amounts import format_cost, format_duration, format_tokens, pluralize
from ralphtool.judging.proof_words import WORDS, count_states, describe_short_counts
from ralphtool.views import look
from ralphtool.views.terminal.phrases import (
    LONGEST_WHY,
    choose_mark,
    describe_end,
    describe_red_gates,
    flatten,
    format_story,
    join_counts,
    make_copyable,
    render_mark,
)
from ralphtool.views.terminal.styled import assemble

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralphtool.record.event_parts import NextStep, StoryAfter, Totals
    from ralphtool.record.events import RunEnded
    from ralphtool.record.run_end import RunCost, RunEnd, StepToTake, StoryEnd
    from ralphtool.views.terminal.styled import StyledLine

_STATES = ("done", "waiting", "failed", "skipped", "open")


class _SummaryLine(NamedTuple):
    text: StyledLine
    indent: int = 0
    fit: Literal["wrap", "cut", "whole"] = "wrap"  # text to copy stays whole: a terminal wraps it without adding blanks


def print_summary(event: RunEnd | RunEnded, change: str) -> None:
    """Writes a `run_ended` event to standard output."""
    if sys.stdout is None:
        return
    lines = _build_lines(event, flatten(change))
    try:
        _write_fitted(lines) if sys.stdout.isatty() else _write_plain(lines)
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = None  # the reader is gone: Python must not flush it at exit


def _write_plain(lines: Iterator[_SummaryLine]) -> None:
    for line in lines:
        sys.stdout.write(f"{' ' * line.indent}{line.text.plain}".rstrip() + "\n")


def _write_fitted(lines: Iterator[_SummaryLine]) -> None:
    from rich.padding import Padding
    from rich.text import Text

    from ralphtool.views.terminal.drawing import build_console, truncate

    terminal = build_console()
    for line, indent, fit in lines:
        if fit == "wrap" and line:
            text = Text.assemble(*line)
            terminal.print(Padding(text, (0, 0, 0, min(indent, terminal.width // 4)), expand=False))
        else:
            whole = Text.assemble(" " * indent, *line)
            terminal.print(truncate(whole, terminal.width) if fit == "cut" else whole, soft_wrap=True)


def _build_lines(event: RunEnd | RunEnded, change: str) -> Iterator[_SummaryLine]:
    done = event.result == "done"
    is_clear = done and all(_find_section(one) != "unproven" for one in event.stories)
    yield _SummaryLine(assemble((describe_run_end(event), "bold green" if is_clear else "bold yellow")))
    # The unproven stories, each with its reason, are listed below.
    is_told = event.result in ("done", "unproven") or event.reason == "interrupted"
    if not is_told and (reason := flatten(event.reason)):
        yield _SummaryLine(assemble(reason))
    for state in look.STORIES:
        yield from _build_section(state, [one for one in event.stories if _find_section(one) == state])
    yield from _build_spent(event.spent)
    yield from _build_story_table(event.stories)
    yield from _build_next_steps(event.next)


def _find_section(story: StoryEnd | StoryAfter) -> str:
    return choose_mark(story.state if story.state in _STATES else "open", story.proof)


def describe_run_end(event: RunEnd | RunEnded) -> str:
    """How the run ended, in one sentence."""
    states = [one.state if one.state in _STATES else "open" for one in event.stories]
    claims = [(one.proof, flatten(one.proof_why, LONGEST_WHY)) for one in event.stories if one.state == "done"]
    return describe_end(event.result, states, claims, describe_red_gates(event.tip))


def describe_run_end_shortly(event: RunEnded) -> str:
    """The same for a short line."""
    states = [one.state if one.state in _STATES else "open" for one in event.stories]
    if event.result == "interrupted" or not states:
        return describe_run_end(event)
    proofs = count_states(one.proof for one in event.stories if one.state == "done")
    red = "The gates are red at the end. " if event.tip and not event.tip.ok else ""
    return red + join_counts(states, describe_short_counts(proofs))


def _build_section(state: str, stories: Sequence[StoryEnd | StoryAfter]) -> Iterator[_SummaryLine]:
    if not stories:
        return
    yield _SummaryLine(assemble())
    yield _SummaryLine(assemble((look.STORIES[state].title, "bold")))
    for story in stories:
        yield _SummaryLine(
            assemble(render_mark(state), " ", format_story(story.id, story.title), (_format_remarks(story), "dim")),
            2,
        )
        for why in _list_reasons(story, state):
            yield _SummaryLine(assemble(why), 6)
        if weaker := flatten(story.weaker_tests):
            yield _SummaryLine(assemble((weaker, "yellow")), 6)
        if state == "waiting" and (path := make_copyable(story.question)):
            yield _SummaryLine(assemble((path, "cyan")), 6, "whole")


def _list_reasons(story: StoryEnd | StoryAfter, state: str) -> list[str]:
    """Why it is not done, or not proven. Of a question, the question itself comes first."""
    if state == "done":
        return []
    why = flatten(story.proof_why if state == "unproven" else story.why)
    asked = flatten(story.failure) if state == "waiting" else ""
    return [one for one in ("" if asked in why else asked, why) if one]


def _format_remarks(story: StoryEnd | StoryAfter) -> str:
    attempts, commit = story.attempts, flatten(story.commit or "", 100)[:10]
    remarks = [WORDS[story.proof]] if story.proof in WORDS and _find_section(story) == "done" else []
    remarks += [f"commit {commit}"] if commit else []
    if attempts > 1 or (attempts and _find_section(story) == "failed"):
        remarks.append(pluralize(attempts, "attempt", "attempts"))
    return f"  ({', '.join(remarks)})" if remarks else ""


def _build_spent(spent: RunCost | Totals) -> Iterator[_SummaryLine]:
    parts = [format_duration(spent.seconds or 0.0)]
    shares = (("agent", spent.agent_seconds), ("gates", spent.gate_seconds))
    if told := [f"{name} {format_duration(seconds)}" for name, seconds in shares if seconds]:
        is_at_once = sum(seconds or 0.0 for _, seconds in shares) > (spent.seconds or 0.0) + 1
        parts[0] += f" ({', '.join(told)}{', some of them at the same time' if is_at_once else ''})"
    if spent.iterations:
        parts.append(pluralize(spent.iterations, "iteration", "iterations"))
    if spent.input_tokens or spent.output_tokens:
        parts.append(
            f"{format_tokens(spent.input_tokens or 0)} tokens in, {format_tokens(spent.output_tokens or 0)} out"
        )
    if cost := format_cost(spent.cost or 0.0):
        parts.append(cost)
    yield _SummaryLine(assemble())
    yield _SummaryLine(assemble(("This run took ", "bold"), ", ".join(parts)))


def _build_story_table(stories: Sequence[StoryEnd | StoryAfter]) -> Iterator[_SummaryLine]:
    """The cost of each story. Empty columns are left out."""
    busy = [one for one in stories if one.seconds or one.input_tokens]
    if len(busy) < 2:
        return
    table = [("TIME", "IN", "OUT", "COST")] + [
        (
            format_duration(one.seconds),
            *(format_tokens(number) if number else "" for number in (one.input_tokens, one.output_tokens)),
            format_cost(one.cost),
        )
        for one in busy
    ]
    columns = [column for column in zip(*table, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    for row, name in zip(
        zip(*columns, strict=True), ["STORY", *(format_story(one.id, one.title) for one in busy)], strict=True
    ):
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        yield _SummaryLine(assemble(("  ".join([*cells, name]), "dim" if name == "STORY" else "")), 2, "cut")


def _build_next_steps(steps: Sequence[StepToTake | NextStep]) -> Iterator[_SummaryLine]:
    if not steps:
        return
    yield _SummaryLine(assemble())
    yield _SummaryLine(assemble(("Next steps", "bold")))
    for step in steps:
        if say := flatten(step.say):
            yield _SummaryLine(assemble(say), 2)
        if command := make_copyable(step.run):
            yield _SummaryLine(assemble((command, "bold cyan")), 4, "whole")
