"""The report as JUnit XML, for the programs that show the results of tests: a suite for the change, a case for a story.

A story that failed is a failure, and one that waits for a person an error: it could not be tried to its end. What was
skipped, or is still open, is skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphtool.views.report import formatting, wording
from ralphtool.views.report.elements import tag, xml

if TYPE_CHECKING:
    from ralphtool.views.report.elements import Element
    from ralphtool.views.report.facts import Attempt, Facts, Story


def written(facts: Facts) -> str:
    counts: dict[str, str | int] = {
        "tests": len(facts.stories),
        "failures": len(facts.of_state("failed")),
        "errors": len(facts.of_state("waiting")),
        "skipped": len(facts.of_state("skipped")) + len(facts.of_state("open")),
        "time": _seconds(sum(one.used.seconds for one in facts.stories)),
    }
    moment = formatting.moment(facts.began).removesuffix("Z")
    suite = tag(
        "testsuite",
        _properties([*wording.settings(facts), ("state", facts.state), ("verdict", facts.verdict)]),
        [_case(facts.change, story) for story in facts.stories],
        name=facts.change,
        **counts,
        timestamp=moment,
    )
    return xml(tag("testsuites", suite, name="ralphtool", **counts))


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}"


def _properties(rows: list[tuple[str, str]]) -> Element:
    return tag("properties", [tag("property", name=name, value=value) for name, value in rows])


def _case(change: str, story: Story) -> Element:
    rows = [(_name(one), _attempt(one)) for one in story.attempts]
    rows += [("commit", story.commit)] if story.commit else []
    return tag(
        "testcase",
        _properties(rows) if rows else None,
        _ending(story),
        classname=change,
        name=story.name,
        time=_seconds(story.used.seconds),
    )


def _name(one: Attempt) -> str:
    return f"{'put off' if one.is_put_off else 'attempt'} {one.entry or one.number}"


def _attempt(one: Attempt) -> str:
    took, cost = formatting.duration(one.work.seconds + one.gate_seconds), formatting.cost(one.work.cost)
    return ", ".join(filter(None, [one.status, took, cost]))


def _ending(story: Story) -> Element | None:
    if story.state == "failed":
        reasons = wording.why_it_failed(story)
        return tag("failure", "\n".join([*reasons, *_hints(story)]), message=reasons[0], type="failed")
    if story.state == "waiting":
        asked = story.question
        text = "\n\n".join(filter(None, [asked.missing, asked.why] if asked else [story.why]))
        answer = f"Answer: {wording.answer_command(story)}"
        return tag("error", f"{text}\n\n{answer}", message=_first_line(text) or "waits for you", type="waiting")
    if story.state == "done":
        return None
    return tag("skipped", message=story.why or wording.TITLES[story.state].lower())


def _hints(story: Story) -> list[str]:
    last = story.attempts[-1] if story.attempts else None
    commands = [wording.explain_command(last), wording.diff_command(last)] if last and last.counts else []
    return ["", *filter(None, commands)] if commands else []


def _first_line(text: str) -> str:
    return formatting.line(text.strip().split("\n")[0], 300)
