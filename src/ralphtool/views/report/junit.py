"""The report as JUnit XML, for the programs that show the results of tests: a suite for the change, a case for a story.

A story that failed is a failure, and one that waits for a person an error: it could not be tried to its end. What was
skipped, or is still open, is skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphtool.views.report import formatting, wording
from ralphtool.views.report.elements import render_xml, tag

if TYPE_CHECKING:
    from ralphtool.views.report.elements import Element
    from ralphtool.views.report.facts import Facts, ReportAttempt, ReportStory


def render(facts: Facts) -> str:
    counts: dict[str, str | int] = {
        "tests": len(facts.stories),
        "failures": len(facts.list_stories("failed")),
        "errors": len(facts.list_stories("waiting")),
        "skipped": len(facts.list_stories("skipped")) + len(facts.list_stories("open")),
        "time": _format_seconds(sum(one.used.seconds for one in facts.stories)),
    }
    moment = formatting.format_utc(facts.began).removesuffix("Z")
    suite = tag(
        "testsuite",
        _build_properties([*wording.list_settings(facts), ("state", facts.state), ("verdict", facts.verdict)]),
        [_build_case(facts.change, story) for story in facts.stories],
        name=facts.change,
        **counts,
        timestamp=moment,
    )
    return render_xml(tag("testsuites", suite, name="ralphtool", **counts))


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.3f}"


def _build_properties(rows: list[tuple[str, str]]) -> Element:
    return tag("properties", [tag("property", name=name, value=value) for name, value in rows])


def _build_case(change: str, story: ReportStory) -> Element:
    rows = [(_format_name(one), _format_attempt(one)) for one in story.attempts]
    rows += [("commit", story.commit)] if story.commit else []
    return tag(
        "testcase",
        _build_properties(rows) if rows else None,
        _build_ending(story),
        classname=change,
        name=story.name,
        time=_format_seconds(story.used.seconds),
    )


def _format_name(one: ReportAttempt) -> str:
    return f"{'put off' if one.is_put_off else 'attempt'} {one.entry or one.number}"


def _format_attempt(one: ReportAttempt) -> str:
    took, cost = formatting.format_duration(one.work.seconds + one.gate_seconds), formatting.format_cost(one.work.cost)
    return ", ".join(filter(None, [one.status, took, cost]))


def _build_ending(story: ReportStory) -> Element | None:
    if story.state == "failed":
        reasons = wording.list_failure_reasons(story)
        return tag("failure", "\n".join([*reasons, *_list_hints(story)]), message=reasons[0], type="failed")
    if story.state == "waiting":
        asked = story.question
        text = "\n\n".join(filter(None, [asked.missing, asked.why] if asked else [story.why]))
        answer = f"Answer: {wording.build_answer_command(story)}"
        return tag("error", f"{text}\n\n{answer}", message=_clean_first_line(text) or "waits for you", type="waiting")
    if story.state == "done":
        return None
    return tag("skipped", message=story.why or wording.TITLES[story.state].lower())


def _list_hints(story: ReportStory) -> list[str]:
    last = story.attempts[-1] if story.attempts else None
    commands = [wording.build_explain_command(last), wording.build_diff_command(last)] if last and last.counts else []
    return ["", *filter(None, commands)] if commands else []


def _clean_first_line(text: str) -> str:
    return formatting.clean_line(text.strip().split("\n")[0], 300)
