"""The report as one self-contained HTML page: no script, no external resources, light and dark, phone and paper.

The most important sentence comes first, then open questions.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

from ralphtool.core.amounts import (
    format_cost,
    format_duration,
    format_time_of_day,
    format_tokens,
    format_utc,
    pluralize,
)
from ralphtool.judging import proof_words
from ralphtool.record.view_parts import STORY_STATES
from ralphtool.views import look
from ralphtool.views.report import formatting, timeline, wording
from ralphtool.views.report.elements import Css, build_bar, render_html, tag
from ralphtool.views.report.facts import sum_use
from ralphtool.views.terminal.phrases import describe_gate_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphtool.record.view_parts import ResourceUse
    from ralphtool.views.report.elements import Element
    from ralphtool.views.report.facts import Diff, Facts, ReportAttempt, ReportGate, ReportOccurrence, ReportStory

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_WHOLE = 30  # characters that fit into any line


def render(facts: Facts, diffs: Mapping[str, Diff]) -> str:
    return render_html(tag("html", _build_document_head(facts), tag("body", build_report(facts, diffs)), lang="en"))


def build_report(facts: Facts, diffs: Mapping[str, Diff]) -> list[Element]:
    """The body of the page."""
    sections = [
        _build_section("since", wording.SINCE_TITLE, _build_since(facts)),
        _build_section(
            "waiting", look.STORIES["waiting"].title, [_build_question(one) for one in facts.list_stories("waiting")]
        ),
        _build_section(
            "unproven", look.STORIES["unproven"].title, [_build_doubt(facts, one) for one in facts.list_unproven()]
        ),
        _build_section("failed", "Failed", [_build_failure(one) for one in facts.list_stories("failed")]),
        _build_section("next", "Next steps", _build_next_steps(facts)),
        _build_section("timeline", "Timeline", timeline.draw(facts)),
        _build_section("stories", "Stories", [build_story(one, diffs) for one in facts.stories]),
        _build_section("cost", "Time and cost", _build_costs(facts)),
        _build_section("learnings", "Learnings", _build_knowledge(facts)),
        _build_section("run", "The run", _build_run(facts)),
    ]
    present = [one for one in sections if one is not None]
    return [_build_head(facts), _build_navigation(present), tag("main", present), _build_foot(facts)]


def _build_document_head(facts: Facts) -> Element:
    style = resources.files("ralphtool.views.report").joinpath("page.css").read_text("utf-8") + look.build_css()
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="generator", content="ralphtool"),
        tag("title", wording.build_title(facts)),
        tag("style", Css(style)),
    )


def _build_section(id: str, title: str, content: object) -> Element | None:
    return tag("section", tag("h2", title), content, id=id, class_=f"part-{id}") if content else None


def _build_navigation(sections: list[Element]) -> Element:
    links = [
        tag("li", tag("a", one.children[0].children, href=f"#{one.attributes['id']}"))  # type: ignore[attr-defined]
        for one in sections
    ]
    return tag("nav", tag("ul", links), aria_label="Parts of this report")


# --- the head ---------------------------------------------------------------------------------------


def _build_head(facts: Facts) -> Element:
    more = filter(None, (wording.describe_saved(facts), wording.describe_all_runs(facts)))
    return tag(
        "header",
        tag("p", "Report of ", tag("strong", facts.title), class_="eyebrow"),
        tag("h1", _split_clauses(facts.verdict), class_=f"verdict is-{_choose_tone(facts)}"),
        tag("p", _describe_run(facts), class_="lead"),
        _build_progress(facts),
        _build_numbers(facts),
        *(tag("p", text, class_="soft") for text in more),
    )


def _split_clauses(sentence: str) -> list[object]:
    """Lines may break only between clauses."""
    *before, last = sentence.split("; ")
    return [*([tag("span", f"{one};"), " "] for one in before), tag("span", last)]


def _choose_tone(facts: Facts) -> str:
    if facts.state == "done" and facts.list_unproven():
        return "unfinished"  # the settings accept it; green would claim too much
    if facts.state in ("running", "paused", "done"):
        return facts.state
    return "died" if facts.state == "died" else "unfinished"


def _describe_run(facts: Facts) -> str:
    began = f"It {'ran' if facts.is_over else 'has been running'} for {wording.describe_time(facts)}."
    why = wording.describe_ending(facts) if facts.state != "done" else ""
    return " ".join(filter(None, [began, why]))


def _build_progress(facts: Facts) -> Element | None:
    """All stories as one bar, by their states."""
    doubtful, total = len(facts.list_unproven()), len(facts.stories)
    if not total:
        return None
    counts: dict[str, int] = {state: len(facts.list_stories(state)) for state in STORY_STATES}
    shown = {**counts, "done": counts["done"] - doubtful, "unproven": doubtful}
    parts = [(state, shown[state]) for state in look.STORIES if shown.get(state)]
    said = ", ".join(f"{number} {look.STORIES[state].words}" for state, number in parts)
    label = f"{pluralize(total, 'story', 'stories')}: {said}"
    return build_bar(parts, role="img", aria_label=label)


def _build_numbers(facts: Facts) -> Element:
    used, tries = facts.used, facts.attempts
    done = f"{len(facts.list_stories('done'))} of {len(facts.stories)}"
    claims = proof_words.describe_short_counts(proof_words.count_states(one.proof for one in facts.stories))
    retries = sum(one.is_retry and one.counts for one in tries)
    counted = sum(one.counts for one in tries)
    others = wording.count_attempts([one for one in tries if not one.counts])
    more = ", ".join([*([pluralize(retries, "retry", "retries")] if retries else []), *others])
    waited = sum(one.ended - one.began for one in facts.waits)
    tiles = [
        ("stories done", done, claims),
        ("attempts", str(counted), more),
        (
            "time",
            format_duration(facts.seconds),
            f"{format_duration(waited)} of it waiting" if waited else "",
        ),
        ("cost", format_cost(used.cost), _describe_all_costs(facts)),
        (
            "tokens",
            format_tokens(used.input_tokens + used.output_tokens) if used.input_tokens else "",
            _describe_output(used),
        ),
    ]
    return tag("dl", [_build_number(*one) for one in tiles if one[1]], class_="numbers")


def _describe_all_costs(facts: Facts) -> str:
    known = facts.knowledge
    return f"{format_cost(known.cost)} in {known.runs} runs" if known.runs > 1 and known.cost else ""


def _describe_output(used: ResourceUse) -> str:
    return f"{format_tokens(used.output_tokens)} of them written"


def _build_number(name: str, value: str, more: str) -> Element:
    return tag("div", tag("dt", name), tag("dd", value, tag("small", more) if more else None))


# --- what needs an action ---------------------------------------------------------------------------


def _build_since(facts: Facts) -> Element | None:
    return tag("ul", [tag("li", one.text) for one in facts.since]) if facts.since else None


def _build_question(story: ReportStory) -> Element:
    asked = story.question
    if asked is None:
        return tag("article", tag("h3", story.name), tag("p", story.why), class_="card is-waiting")
    whole = asked.text and tag("details", tag("summary", "the whole question"), tag("pre", asked.text))
    return tag(
        "article",
        tag("h3", story.name),
        tag("blockquote", asked.missing) if asked.missing else None,
        tag("p", "Why you are asked: ", asked.why) if asked.why else None,
        _build_answer(story) if asked.is_open else tag("p", _QUESTION_CLOSED, class_="soft"),
        whole or None,
        class_="card is-waiting",
    )


_QUESTION_CLOSED = "This question is closed: it was answered or withdrawn after the run."


def _build_answer(story: ReportStory) -> list[Element]:
    asked = story.question
    if asked and asked.answer:
        return [tag("p", "You have already answered; the next run uses this:"), tag("blockquote", asked.answer)]
    parts = [tag("p", "To answer:"), _build_command(wording.build_answer_command(story))]
    if asked and asked.path:
        parts.append(tag("p", "Or write below the question in ", tag("code", asked.path), ".", class_="soft"))
    return parts


def _build_command(text: str) -> Element:
    return tag("pre", tag("code", text), class_="command")


def _build_doubt(facts: Facts, story: ReportStory) -> Element:
    last = story.attempts[-1] if story.attempts else None
    commands = wording.build_accept_commands(facts, story)
    return tag(
        "article",
        tag("h3", story.name),
        tag("p", story.proof_why) if story.proof_why else None,
        _build_receipt(story),
        tag("p", f"Look at it, then {'accept or reject it' if commands[1:] else 'accept it'}:") if commands else None,
        _build_command(wording.build_explain_command(last)) if last and last.counts else None,
        [_build_command(one) for one in commands],
        class_="card is-waiting",
    )


def _build_receipt(story: ReportStory) -> Element | None:
    rows = story.receipt.rows if story.receipt else ()
    return tag("dl", [[tag("dt", label), tag("dd", text)] for label, text in rows], class_="settings") if rows else None


def _build_failure(story: ReportStory) -> Element:
    last = story.attempts[-1] if story.attempts else None
    decided = wording.describe_decision(last) if last else ""
    return tag(
        "article",
        tag("h3", story.name),
        tag("ul", [tag("li", one) for one in wording.list_failure_reasons(story)]),
        tag("p", "Decided: ", decided) if decided else None,
        tag("p", ", ".join(wording.list_remarks(story)), class_="soft"),
        _build_command(wording.build_explain_command(last)) if last and last.counts else None,
        class_="card is-failed",
    )


def _build_next_steps(facts: Facts) -> Element | None:
    steps = [tag("li", one.say, _build_command(one.run) if one.run else None) for one in facts.next]
    return tag("ol", steps, class_="steps") if steps else None


def _join_dotted(parts: list[str]) -> list[object]:
    """Short remarks in a row; no line breaks inside a remark."""
    pieces = [tag("span", one, class_="whole" if len(one) < _WHOLE else None) for one in parts if one]
    return [[" · " if number else None, one] for number, one in enumerate(pieces)]


# --- stories ----------------------------------------------------------------------------------------


def build_story(story: ReportStory, diffs: Mapping[str, Diff]) -> Element:
    remarks, receipt = wording.list_remarks(story), _build_receipt(story)
    name = "unproven" if story.is_unproven else story.state
    chip = proof_words.describe_proof(story.proof) if story.state == "done" else look.STORIES[story.state].words
    state = tag("span", chip, class_=f"chip is-{name}")
    mark = tag("span", look.STORIES[name].symbol, class_=f"sign is-{name}", aria_hidden="true")
    return tag(
        "article",
        tag("h3", mark, tag("span", story.name, class_="title", title=story.name), " ", state),
        tag("p", _join_dotted(remarks), class_="soft") if remarks else None,
        tag("p", story.why) if story.why and story.state in ("skipped", "open") else None,
        tag("details", tag("summary", "receipt"), receipt) if receipt else None,
        [_build_attempt(one, diffs.get(one.entry) if one.counts else None) for one in story.attempts],
        class_="story",
    )


def _build_attempt(one: ReportAttempt, diff: Diff | None) -> Element:
    head = [wording.name_attempt(one), format_time_of_day(one.began), *wording.describe_use(one.work), one.agent]
    head.append(wording.describe_workers(one))
    status = tag("span", _describe_status(one), class_=f"chip v-{look.find_attempt_name(one.status)}")
    return tag(
        "details",
        tag("summary", status, tag("span", _join_dotted(head), class_="soft")),
        tag("div", _build_attempt_parts(one, diff), class_="inside"),
        class_="attempt",
    )


def _describe_status(one: ReportAttempt) -> str:
    return look.ATTEMPTS[one.status].words if one.status in look.ATTEMPTS else one.status


def _build_attempt_parts(one: ReportAttempt, diff: Diff | None) -> list[Element | None]:
    files = f"{pluralize(one.files_changed, 'file', 'files')} changed: {', '.join(one.files)}" if one.files else ""
    more = "…" if one.files_changed > len(one.files) else ""
    decided, guidance, command = wording.describe_decision(one), one.decision.guidance, wording.build_diff_command(one)
    reasons = [reason for reason in (*one.reasons, *one.findings) if reason not in one.summary]
    return [
        tag("p", one.summary) if one.summary else None,
        tag("ul", [tag("li", reason) for reason in reasons]) if reasons else None,
        tag("ul", [_build_gate(gate) for gate in one.gates], class_="gates") if one.gates else None,
        tag("p", "Decided: ", decided) if decided else None,
        tag("details", tag("summary", wording.name_guidance(one)), tag("pre", guidance)) if guidance else None,
        tag("p", files, more, class_="soft") if files else None,
        _build_diff(one, diff) if diff else _build_command(command) if command else None,
    ]


def _build_gate(gate: ReportGate) -> Element:
    colour = "green" if gate.ok else "red"
    words = "red, as it should be" if gate.is_fine and not gate.ok else colour
    chip = tag("span", words, class_=f"chip gate-{'green' if gate.is_fine else 'red'}")
    took = format_duration(gate.ended - gate.began)
    said = _join_dotted([describe_gate_time(gate.when, formatting.clean_line), gate.told, took])
    new = tag("ul", [tag("li", tag("code", one)) for one in gate.new]) if gate.new else None
    return tag("li", chip, " ", tag("code", gate.command), " ", tag("span", said, class_="soft"), new)


def _build_diff(one: ReportAttempt, diff: Diff) -> Element:
    if not diff.lines:
        return tag("p", "It changed nothing.", class_="soft")
    cut = f"The diff is too long for this page. All of it: {wording.build_diff_command(one)}"
    count = "cut" if diff.is_cut else f"+{diff.added} -{diff.removed}"
    return tag(
        "details",
        tag("summary", "diff ", tag("span", count, class_="soft")),
        tag(
            "pre",
            tag("code", [tag("span", f"{line}\n", class_=kind) if kind else f"{line}\n" for kind, line in diff.lines]),
            tabindex=0,
        ),
        tag("p", cut, class_="notice") if diff.is_cut else None,
        tag("p", tag("code", wording.build_diff_command(one)), class_="soft"),
        class_="diff",
    )


# --- time, cost, learnings, the run -----------------------------------------------------------------


def _build_costs(facts: Facts) -> object:
    busy = [one for one in facts.stories if one.attempts]
    if not busy:
        return None
    longest = max(one.used.seconds for one in busy) or 1.0
    rows = [(one.name, (one.first, one.retries, one.gates)) for one in busy]
    sums = (
        sum_use(one.first for one in busy),
        sum_use(one.retries for one in busy),
        sum_use(one.gates for one in busy),
    )
    shown = _CostColumns(bool(facts.used.input_tokens), bool(facts.used.cost))
    head = tag(
        "tr",
        tag("th", "Story", scope="col"),
        tag("td"),
        [tag("th", name, scope="col", class_="n") for name in shown.names()],
    )
    body = [
        tag(
            "tr",
            tag("th", formatting.clean_line(name, 80), scope="row"),
            _build_bars(parts, longest),
            shown.cells(parts),
        )
        for name, parts in rows
    ]
    foot = (
        tag("tfoot", tag("tr", tag("th", "In all", scope="row"), tag("td"), shown.cells(sums)))
        if len(busy) > 1
        else None
    )
    table = tag("table", tag("thead", head), tag("tbody", body), foot)
    keys = [tag("li", tag("i", class_=f"key t-{name}"), said) for name, said in _SHARES]
    box = tag("div", table, class_="scroll", tabindex=0, role="region", aria_label="Time and cost by story")
    return [box, tag("ul", keys, class_="legend")]


_SHARES = (("first", "first attempts"), ("retries", "retries"), ("gates", "gates"))


def _build_bars(parts: tuple[ResourceUse, ResourceUse, ResourceUse], longest: float) -> Element:
    bars = [
        tag("i", class_=f"t-{name}", style=f"width:{100 * one.seconds / longest:.2f}%")
        for (name, _), one in zip(_SHARES, parts, strict=True)
        if one.seconds
    ]
    return tag("td", tag("div", bars, class_="shares", aria_hidden="true"))


class _CostColumns(NamedTuple):
    """Columns for tokens and cost, only if any are known."""

    has_tokens: bool
    has_cost: bool

    def names(self) -> list[str]:
        names = ["First", "Retries", "Gates", "In all"]
        return names + ["Tokens in", "Tokens out"] * self.has_tokens + ["Cost", "of it retries"] * self.has_cost

    def cells(self, parts: tuple[ResourceUse, ResourceUse, ResourceUse]) -> list[Element]:
        whole = sum_use(parts)
        cells = [format_duration(one.seconds) if one.seconds else "" for one in (*parts, whole)]
        counted = [format_tokens(number) if number else "" for number in (whole.input_tokens, whole.output_tokens)]
        cells += counted * self.has_tokens + [format_cost(whole.cost), format_cost(parts[1].cost)] * self.has_cost
        return [tag("td", one, class_="n", data_label=name) for name, one in zip(self.names(), cells, strict=True)]


def _build_knowledge(facts: Facts) -> object:
    known = facts.knowledge
    if known.trouble:
        return tag("p", "The history can't be read: ", known.trouble, class_="notice")
    if not known.learnt and not known.shown:
        return None
    learnt = [
        tag("li", tag("span", one.text, class_="lines"), tag("small", f"{one.type} · {one.id} · from {one.source}"))
        for one in known.learnt
    ]
    shown = [
        tag("li", tag("span", one.text, class_="lines"), tag("small", _describe_help(one.helped, one.shown, one.id)))
        for one in known.shown
    ]
    return [
        tag("p", wording.summarize_learnings(known)),
        [tag("h3", "Learnt in this run"), tag("ul", learnt, class_="learnings")] if learnt else None,
        [tag("h3", "Shown to attempts"), tag("ul", shown, class_="learnings")] if shown else None,
    ]


def _describe_help(helped: int, shown: int, id: str) -> str:
    times = "once" if shown == 1 else f"{shown} times"
    result = f"helped {helped} of them" if helped and shown > 1 else "helped" if helped else "did not help"
    return " · ".join(filter(None, [f"shown {times}, {result}", id]))


def _build_run(facts: Facts) -> list[object]:
    rows = [[tag("dt", name), tag("dd", value)] for name, value in wording.list_settings(facts)]
    gates = [[tag("dt", "gate"), tag("dd", tag("code", one))] for one in facts.gates]
    happenings = [_build_occurrence(one) for one in facts.happenings]
    left = f"{facts.left_out} more events are left out here; the record has them."
    return [
        tag("dl", rows, gates, class_="settings"),
        [tag("h3", "Other events"), tag("ul", happenings, class_="happenings")] if happenings else None,
        tag("p", left, class_="notice") if facts.left_out else None,
    ]


def _build_occurrence(one: ReportOccurrence) -> Element:
    about = f"{one.kind}, story {one.story}" if one.story else one.kind
    return tag(
        "li",
        tag("time", format_time_of_day(one.at), datetime=format_utc(one.at)),
        tag("b", about),
        " ",
        one.text,
    )


def _build_foot(facts: Facts) -> Element:
    return tag("footer", tag("p", "Made by ralphtool from the record of run ", tag("code", facts.run), "."))
