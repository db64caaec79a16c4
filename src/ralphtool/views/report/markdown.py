"""The report as Markdown, which is read in a terminal as well: what waits for people comes first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ralphtool.core.text import fence_visible
from ralphtool.record.run_view import Used
from ralphtool.views.report import formatting, wording
from ralphtool.views.report.facts import total
from ralphtool.views.terminal import summary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralphtool.views.report.facts import Attempt, Facts, Story

_SPECIAL = re.compile(r"[\\`*\[\]<>|~]|&(?=[#\w])|(?<!\w)_|_(?!\w)")
_AT_THE_START = re.compile(r"^([#+=-])")
_WORDS = ("entry", "ended as", "story")  # columns
_MOST = 200  # attempts in the table
_TICKS = re.compile("`+")
_QUOTED = re.compile(r"((?<!`)`[^`]+`(?!`))")  # as our own sentences name commands
_UNFIT = re.compile(r"[|<>&]")  # for code: some readers see more in it, in a table for one


def written(facts: Facts, width: int | None = None) -> str:
    """With the width of a terminal, tables that are wider than it are not made wider still by blanks."""
    parts = [_head(facts), _waiting(facts), _next(facts), _failed(facts), _done(facts), _rest(facts)]
    parts += [_attempts(facts, width), _costs(facts, width), _knowledge(facts), _run(facts)]
    return "\n".join(line for part in parts for line in part).rstrip("\n") + "\n"


# --- pieces -----------------------------------------------------------------------------------------


def text(text: str) -> str:
    """A text as text: nothing in it is taken for Markdown, or for HTML; but what stands in backticks is code."""
    pieces = _QUOTED.split(" ".join(text.split("\n")))
    told = [
        piece if number % 2 and not _UNFIT.search(piece) else _SPECIAL.sub(r"\\\g<0>", piece)
        for number, piece in enumerate(pieces)
    ]
    return _AT_THE_START.sub(r"\\\1", "".join(told))


def code(text: str) -> str:
    ticks = "`" * (max((len(run) for run in _TICKS.findall(text)), default=0) + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield from (f"## {title}", "", "\n".join(lines).rstrip("\n"), "")


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Numbers are in all columns but those of words; columns that nobody told anything for are left out."""
    kept = [number for number, _ in enumerate(columns) if number == 0 or any(row[number] for row in rows)]
    table = [[row[number] for number in kept] for row in (columns, *rows)]
    sizes = [max(3, *(len(row[number]) for row in table)) for number, _ in enumerate(kept)]
    if width is not None and sum(sizes) + 3 * len(sizes) + 1 > width:
        sizes = [3 for _ in sizes]
    is_words = [name in _WORDS for name in table[0]]
    rule = ["-" * size if left else "-" * (size - 1) + ":" for size, left in zip(sizes, is_words, strict=True)]
    lines = [
        [cell.ljust(size) if left else cell.rjust(size) for cell, size, left in zip(row, sizes, is_words, strict=True)]
        for row in table
    ]
    return [f"| {' | '.join(line)} |" for line in (lines[0], rule, *lines[1:])]


# --- sections ---------------------------------------------------------------------------------------


def _head(facts: Facts) -> Iterator[str]:
    yield f"# {text(facts.change)}: {text(facts.verdict)}"
    yield ""
    yield f"It {'ran' if facts.is_over else 'has been running for'} {wording.when(facts)}."
    spent = ", ".join(filter(None, [wording.tokens(facts.used), formatting.cost(facts.used.cost)]))
    if spent:
        yield f"It used {spent.replace(' in,', ' tokens in,')}."
    if why := wording.ending(facts):
        yield text(why)
    if since := wording.since_it_began(facts):
        yield since
    yield ""


def _waiting(facts: Facts) -> Iterator[str]:
    lines = [line for story in facts.of_state("waiting") for line in _question(story)]
    yield from _section("Waiting for you", lines)


def _question(story: Story) -> Iterator[str]:
    yield f"### {text(story.name)}"
    yield ""
    asked = story.question
    if asked and asked.missing:
        yield from (fence_visible(asked.missing), "")
    if asked and asked.why:
        yield from (f"Why you are asked: {text(asked.why)}", "")
    if asked and not asked.is_open:
        yield from ("This question does not wait any more: it was answered, or put away, after the run.", "")
        return
    if asked and asked.answer:
        yield from ("You have answered already; the next run takes it up:", "", fence_visible(asked.answer), "")
    yield from (f"Answer: {code(wording.answer_command(story))}", "")
    if asked and asked.path:
        yield from (f"Or write into {code(asked.path)}.", "")


def _next(facts: Facts) -> Iterator[str]:
    steps = [f"- {text(one.say)}{': ' + code(one.run) if one.run else ''}" for one in facts.next]
    yield from _section("What next", steps)


def _failed(facts: Facts) -> Iterator[str]:
    yield from _section("Failed", [line for story in facts.of_state("failed") for line in _failure(story)])


def _failure(story: Story) -> Iterator[str]:
    yield f"### {text(story.name)}"
    yield ""
    yield ", ".join(map(text, wording.remarks(story)))
    yield ""
    yield from (f"- {text(one)}" for one in wording.why_it_failed(story))
    if not story.attempts:
        yield ""
        return
    last = story.attempts[-1]
    if decided := wording.decision(last):
        yield f"- Decided: {text(decided)}"
    if last.counts:
        commands = filter(None, [wording.explain_command(last), wording.diff_command(last)])
        yield f"- More: {', '.join(map(code, commands))}"
    yield ""


def _done(facts: Facts) -> Iterator[str]:
    lines = []
    for story in facts.of_state("done"):
        remarks = ", ".join(map(text, wording.remarks(story)))
        lines.append(f"- **{text(story.name)}**{f' ({remarks})' if remarks else ''}")
        if (last := story.attempts[-1] if story.attempts else None) and last.counts:
            lines += [f"  {text(last.summary)}"] if last.summary else []
            lines += [f"  {code(command)}"] if (command := wording.diff_command(last)) else []
    yield from _section("Done", lines)


def _rest(facts: Facts) -> Iterator[str]:
    for state in ("skipped", "open"):
        stories = facts.of_state(state)
        yield from _section(wording.TITLES[state], [_plain(story) for story in stories])


def _plain(story: Story) -> str:
    remarks = ", ".join(map(text, wording.remarks(story)))
    why = f": {text(story.why)}" if story.why else ""
    return f"- **{text(story.name)}**{f' ({remarks})' if remarks else ''}{why}"


def _attempts(facts: Facts, width: int | None) -> Iterator[str]:
    attempts = facts.attempts
    rows = [_row(one) for one in attempts[-_MOST:]]
    columns = ("entry", "began", "ended as", "agent", "gates", "newly red", "cost")
    more = [f"The {len(attempts) - _MOST} before these are left out.", ""] if len(attempts) > _MOST else []
    waits = [
        f"- {formatting.clock(one.began)}: {_wait(one.kind, one.ended - one.began)}: {text(one.why)}"
        for one in facts.waits
    ]
    lines = [*more, *_table(columns, rows, width)] if rows else []
    yield from _section("Attempts", [*lines, *([""] if lines and waits else []), *waits[-_MOST:]])


def _wait(kind: str, seconds: float) -> str:
    return f"{'waited' if kind == 'wait' else 'paused'} {formatting.duration(seconds)}"


def _row(one: Attempt) -> tuple[str, ...]:
    red = sum(len(gate.new) for gate in one.gates)
    work, gates = formatting.duration(one.work.seconds), formatting.duration(one.gate_seconds)
    cells = (formatting.clock(one.began), one.status, work, gates, str(red or ""), formatting.cost(one.work.cost))
    return (text(one.entry or f"story {one.story}"), *map(text, cells))


def _costs(facts: Facts, width: int | None) -> Iterator[str]:
    busy = [one for one in facts.stories if one.attempts]
    sums = ("first", "retries", "gates", "in all", "in", "out", "cost", "of that retries")
    columns = ("story", "attempts", "not counted", *sums)
    rows = [_cost(text(formatting.line(one.name, 60)), one.attempts, one.first, one.retries, one.gates) for one in busy]
    if len(busy) > 1:
        parts = [total([getattr(one, name) for one in busy]) for name in ("first", "retries", "gates")]
        rows.append(_cost("in all", facts.attempts, *parts))
    yield from _section("Time and cost", _table(columns, rows, width) if rows else [])


def _cost(name: str, attempts: Sequence[Attempt], first: Used, retries: Used, gates: Used) -> tuple[str, ...]:
    counted = sum(one.counts for one in attempts)
    whole = first + retries + gates
    times = [formatting.duration(one.seconds) if one.seconds else "" for one in (first, retries, gates, whole)]
    read, wrote = (summary.tokens(number) if number else "" for number in (whole.input_tokens, whole.output_tokens))
    return (
        name,
        str(counted),
        str(len(attempts) - counted or ""),
        *times,
        read,
        wrote,
        formatting.cost(whole.cost),
        formatting.cost(retries.cost),
    )


def _knowledge(facts: Facts) -> Iterator[str]:
    known = facts.knowledge
    if known.trouble:
        yield from _section("Learnings", [f"The history can't be read: {text(known.trouble)}"])
        return
    if not known.learnt and not known.shown:
        return
    lines = [wording.learnt_summary(known), ""]
    lines += [f"- {text(one.text)} ({text(one.id)}, {text(one.type)}, from {text(one.source)})" for one in known.learnt]
    if shown := [one for one in known.shown if one.helped]:
        lines += [*([""] if known.learnt else []), "Shown to attempts that completed:", ""]
        lines += [f"- {one.helped} of {one.shown}: {text(one.text)}{f' ({one.id})' if one.id else ''}" for one in shown]
    yield from _section("Learnings", lines)


def _run(facts: Facts) -> Iterator[str]:
    lines = [f"- {text(name)}: {text(value)}" for name, value in wording.settings(facts)]
    lines += [f"- gate: {code(one)}" for one in facts.gates]
    lines += [
        f"- {formatting.clock(one.at)} {_happening(one.kind, one.story)}: {text(one.text)}" for one in facts.happenings
    ]
    lines += [f"- {facts.left_out} more events are left out here: the record has them"] if facts.left_out else []
    yield from _section("The run", lines)


def _happening(kind: str, story: str) -> str:
    return f"{kind} (story {text(story)})" if story else kind
