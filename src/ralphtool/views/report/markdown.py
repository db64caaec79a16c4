"""The report as Markdown, also for reading in a terminal: open questions come first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ralphtool.core.amounts import format_cost, format_duration, format_time_of_day, format_tokens
from ralphtool.core.text import fence_visible
from ralphtool.judging.proof_words import WORDS
from ralphtool.record.view_parts import ResourceUse
from ralphtool.views import look
from ralphtool.views.report import formatting, wording
from ralphtool.views.report.facts import sum_use

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralphtool.views.report.facts import Facts, ReportAttempt, ReportStory

_SPECIAL = re.compile(r"[\\`*\[\]<>|~]|&(?=[#\w])|(?<!\w)_|_(?!\w)")
_AT_THE_START = re.compile(r"^([#+=-])")
_WORDS = ("entry", "ended as", "story", "worker")  # columns of text
_MOST = 200  # attempts in the table
_TICKS = re.compile("`+")
_QUOTED = re.compile(r"((?<!`)`[^`]+`(?!`))")  # how ralphtool's texts name commands
_UNFIT = re.compile(r"[|<>&]")  # not allowed in code: some renderers interpret it, for example in a table


def render(facts: Facts, width: int | None = None) -> str:
    """Given a terminal's `width`, tables that don't fit are not padded."""
    parts = [
        _build_head(facts),
        _build_since(facts),
        _build_waiting(facts),
        _build_unproven(facts),
        _build_next_steps(facts),
        _build_failed(facts),
        _build_done(facts),
        _build_rest(facts),
    ]
    parts += [_build_attempts(facts, width), _build_costs(facts, width), _build_knowledge(facts), _build_run(facts)]
    return "\n".join(line for part in parts for line in part).rstrip("\n") + "\n"


# --- pieces -----------------------------------------------------------------------------------------


def escape_text(text: str) -> str:
    """Escapes a text: nothing in it is read as Markdown or HTML, except that text in backticks is code."""
    pieces = _QUOTED.split(" ".join(text.split("\n")))
    told = [
        piece if number % 2 and not _UNFIT.search(piece) else _SPECIAL.sub(r"\\\g<0>", piece)
        for number, piece in enumerate(pieces)
    ]
    return _AT_THE_START.sub(r"\\\1", "".join(told))


def quote_code(text: str) -> str:
    ticks = "`" * (max((len(run) for run in _TICKS.findall(text)), default=0) + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def _build_section(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield from (f"## {title}", "", "\n".join(lines).rstrip("\n"), "")


def _build_table(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """All columns except those of text are aligned as numbers; empty columns are left out."""
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


def _build_head(facts: Facts) -> Iterator[str]:
    yield f"# {escape_text(wording.build_title(facts))}"
    yield ""
    yield f"It {'ran' if facts.is_over else 'has been running'} for {wording.describe_time(facts)}."
    spent = ", ".join(filter(None, [wording.describe_tokens(facts.used), format_cost(facts.used.cost)]))
    if spent:
        yield f"It used {spent.replace(' in,', ' tokens in,')}."
    if why := wording.describe_ending(facts):
        yield escape_text(why)
    yield from filter(None, (wording.describe_saved(facts), wording.describe_all_runs(facts)))
    yield ""


def _build_since(facts: Facts) -> Iterator[str]:
    yield from _build_section(wording.SINCE_TITLE, [f"- {escape_text(one.text)}" for one in facts.since])


def _build_waiting(facts: Facts) -> Iterator[str]:
    lines = [line for story in facts.list_stories("waiting") for line in _build_question(story)]
    yield from _build_section(look.STORIES["waiting"].title, lines)


def _build_question(story: ReportStory) -> Iterator[str]:
    yield f"### {escape_text(story.name)}"
    yield ""
    asked = story.question
    if asked and asked.missing:
        yield from (fence_visible(asked.missing), "")
    if asked and asked.why:
        yield from (f"Why you are asked: {escape_text(asked.why)}", "")
    if asked and not asked.is_open:
        yield from ("This question is closed: it was answered or withdrawn after the run.", "")
        return
    if asked and asked.answer:
        yield from ("You have already answered; the next run uses this:", "", fence_visible(asked.answer), "")
        return
    yield from (f"Answer: {quote_code(wording.build_answer_command(story))}", "")
    if asked and asked.path:
        yield from (f"Or write into {quote_code(asked.path)}.", "")


def _build_unproven(facts: Facts) -> Iterator[str]:
    lines = [line for story in facts.list_unproven() for line in _build_doubt(facts, story)]
    yield from _build_section(look.STORIES["unproven"].title, lines)


def _build_doubt(facts: Facts, story: ReportStory) -> Iterator[str]:
    yield from (f"### {escape_text(story.name)}", "")
    if story.proof_why:
        yield from (escape_text(story.proof_why), "")
    if rows := _build_receipt(story, ""):
        yield from (*rows, "")
    if story.attempts and story.attempts[-1].counts:
        yield f"- Look at it: {quote_code(wording.build_explain_command(story.attempts[-1]))}"
    for name, command in zip(("Accept", "Reject"), wording.build_accept_commands(facts, story), strict=False):
        yield f"- {name} it: {quote_code(command)}"
    yield ""


def _build_receipt(story: ReportStory, indent: str) -> list[str]:
    rows = story.receipt.rows if story.receipt else ()
    return [f"{indent}- {escape_text(label)}: {escape_text(text)}" for label, text in rows]


def _build_next_steps(facts: Facts) -> Iterator[str]:
    steps = [f"- {escape_text(one.say)}{': ' + quote_code(one.run) if one.run else ''}" for one in facts.next]
    yield from _build_section("Next steps", steps)


def _build_failed(facts: Facts) -> Iterator[str]:
    yield from _build_section(
        "Failed", [line for story in facts.list_stories("failed") for line in _build_failure(story)]
    )


def _build_failure(story: ReportStory) -> Iterator[str]:
    yield f"### {escape_text(story.name)}"
    yield ""
    yield ", ".join(map(escape_text, wording.list_remarks(story)))
    yield ""
    yield from (f"- {escape_text(one)}" for one in wording.list_failure_reasons(story))
    if not story.attempts:
        yield ""
        return
    last = story.attempts[-1]
    if decided := wording.describe_decision(last):
        yield f"- Decided: {escape_text(decided)}"
    if last.counts:
        commands = filter(None, [wording.build_explain_command(last), wording.build_diff_command(last)])
        yield f"- More: {', '.join(map(quote_code, commands))}"
    yield ""


def _build_done(facts: Facts) -> Iterator[str]:
    lines = []
    for story in facts.list_stories("done"):
        if story.is_unproven:
            continue
        claim = [WORDS[story.proof]] if story.proof else []
        remarks = ", ".join(map(escape_text, [*claim, *wording.list_remarks(story)]))
        lines.append(f"- **{escape_text(story.name)}**{f' ({remarks})' if remarks else ''}")
        if (last := story.attempts[-1] if story.attempts else None) and last.counts:
            lines += [f"  {escape_text(last.summary)}"] if last.summary else []
            lines += [f"  {quote_code(command)}"] if (command := wording.build_diff_command(last)) else []
        lines += _build_receipt(story, "  ")
    yield from _build_section("Done", lines)


def _build_rest(facts: Facts) -> Iterator[str]:
    for state in ("skipped", "open"):
        stories = facts.list_stories(state)
        yield from _build_section(look.STORIES[state].title, [_format_story(story) for story in stories])


def _format_story(story: ReportStory) -> str:
    remarks = ", ".join(map(escape_text, wording.list_remarks(story)))
    why = f": {escape_text(story.why)}" if story.why else ""
    return f"- **{escape_text(story.name)}**{f' ({remarks})' if remarks else ''}{why}"


def _build_attempts(facts: Facts, width: int | None) -> Iterator[str]:
    attempts = facts.attempts
    rows = [_build_attempt_row(one) for one in attempts[-_MOST:]]
    columns = ("entry", "began", "ended as", "agent", "gates", "newly red", "cost", "worker")
    more = [f"The {len(attempts) - _MOST} before these are left out.", ""] if len(attempts) > _MOST else []
    waits = [
        f"- {format_time_of_day(one.began)}: {_format_wait(one.kind, one.ended - one.began)}: {escape_text(one.why)}"
        for one in facts.waits
    ]
    lines = [*more, *_build_table(columns, rows, width)] if rows else []
    yield from _build_section("Attempts", [*lines, *([""] if lines and waits else []), *waits[-_MOST:]])


def _format_wait(kind: str, seconds: float) -> str:
    return f"{'waited' if kind == 'wait' else 'paused'} {format_duration(seconds)}"


def _build_attempt_row(one: ReportAttempt) -> tuple[str, ...]:
    red = sum(len(gate.new) for gate in one.gates)
    work, gates = format_duration(one.work.seconds), format_duration(one.gate_seconds)
    cells = (
        format_time_of_day(one.began),
        one.status,
        work,
        gates,
        str(red or ""),
        format_cost(one.work.cost),
        ", ".join(one.workers),
    )
    return (escape_text(one.entry or f"story {one.story}"), *map(escape_text, cells))


def _build_costs(facts: Facts, width: int | None) -> Iterator[str]:
    busy = [one for one in facts.stories if one.attempts]
    sums = ("first", "retries", "gates", "in all", "in", "out", "cost", "of that retries")
    columns = ("story", "attempts", "not counted", *sums)
    rows = [
        _build_cost_row(
            escape_text(formatting.clean_line(one.name, 60)), one.attempts, one.first, one.retries, one.gates
        )
        for one in busy
    ]
    if len(busy) > 1:
        parts = [sum_use([getattr(one, name) for one in busy]) for name in ("first", "retries", "gates")]
        rows.append(_build_cost_row("in all", facts.attempts, *parts))
    yield from _build_section("Time and cost", _build_table(columns, rows, width) if rows else [])


def _build_cost_row(
    name: str, attempts: Sequence[ReportAttempt], first: ResourceUse, retries: ResourceUse, gates: ResourceUse
) -> tuple[str, ...]:
    counted = sum(one.counts for one in attempts)
    in_progress = sum(one.status == "running" for one in attempts)
    whole = first + retries + gates
    times = [format_duration(one.seconds) if one.seconds else "" for one in (first, retries, gates, whole)]
    read, wrote = (format_tokens(number) if number else "" for number in (whole.input_tokens, whole.output_tokens))
    return (
        name,
        str(counted),
        str(len(attempts) - counted - in_progress or ""),
        *times,
        read,
        wrote,
        format_cost(whole.cost),
        format_cost(retries.cost),
    )


def _build_knowledge(facts: Facts) -> Iterator[str]:
    known = facts.knowledge
    if known.trouble:
        yield from _build_section("Learnings", [f"The history can't be read: {escape_text(known.trouble)}"])
        return
    if not known.learnt and not known.shown:
        return
    lines = [wording.summarize_learnings(known), ""]
    lines += [
        f"- {escape_text(one.text)} ({escape_text(one.id)}, {escape_text(one.type)}, from {escape_text(one.source)})"
        for one in known.learnt
    ]
    if shown := [one for one in known.shown if one.helped]:
        lines += [*([""] if known.learnt else []), "Shown to attempts that completed:", ""]
        lines += [
            f"- {one.helped} of {one.shown}: {escape_text(one.text)}{f' ({one.id})' if one.id else ''}" for one in shown
        ]
    yield from _build_section("Learnings", lines)


def _build_run(facts: Facts) -> Iterator[str]:
    lines = [f"- {escape_text(name)}: {escape_text(value)}" for name, value in wording.list_settings(facts)]
    lines += [f"- gate: {quote_code(one)}" for one in facts.gates]
    lines += [
        f"- {format_time_of_day(one.at)} {_format_occurrence(one.kind, one.story)}: {escape_text(one.text)}"
        for one in facts.happenings
    ]
    lines += [f"- {facts.left_out} more events are left out here: the record has them"] if facts.left_out else []
    yield from _build_section("The run", lines)


def _format_occurrence(kind: str, story: str) -> str:
    return f"{kind} (story {escape_text(story)})" if story else kind
