"""The report as JUnit XML, for programs that show test results: a suite per change, a case per story.

A story that failed is a failure; one that needs an answer is an error, because it could not be completed. Skipped and
open stories are skipped. A story that is done but not proven is a failure: the run's exit code is 1 as well, and most
of these programs show skipped cases as green. It is skipped if the settings accept it, so that the run is done; so is a
done story without any proof in its record. A red last check is a separate failure. A run that an error ended is a
separate error: its stories are open, so all other cases could be skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ralphtool.core.amounts import format_cost, format_duration, format_utc
from ralphtool.judging.proof_words import describe_proof
from ralphtool.views import look
from ralphtool.views.report import formatting, wording
from ralphtool.views.report.elements import render_xml, tag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.views.report.elements import Element
    from ralphtool.views.report.facts import Facts, ReportAttempt, ReportStory


_RUN = "ralphtool run"  # the case of the run itself
_COUNTS = ("tests", "failures", "errors")  # of all suites: Jenkins' schema has only these


class NoRun(NamedTuple):
    """A change without a run. It is written too: otherwise the file of an earlier job would stay in place."""

    change: str
    why: str
    is_error: bool  # otherwise there was nothing to do


def render(facts: Facts) -> str:
    return render_all([facts])


def render_all(runs: Sequence[Facts | NoRun]) -> str:
    """A suite for each change."""
    suites = [_build_empty_suite(one) if isinstance(one, NoRun) else _build_suite(one) for one in runs]
    sums = {name: sum(int(one.attributes[name]) for one in suites) for name in _COUNTS}
    seconds = sum(float(one.attributes["time"]) for one in suites)
    return render_xml(tag("testsuites", suites, name="ralphtool", **sums, time=_format_seconds(seconds)))


def _build_suite(facts: Facts) -> Element:
    is_red = facts.tip is not None and not facts.tip.ok
    unproven, is_accepted = len(facts.list_unproven()), facts.state == "done"
    unknown = sum(not one.proof for one in facts.list_stories("done"))
    skipped = len(facts.list_stories("skipped")) + len(facts.list_stories("open")) + unknown
    counts: dict[str, str | int] = {
        "tests": len(facts.stories) + is_red + facts.is_cut_short,
        "failures": len(facts.list_stories("failed")) + unproven * (not is_accepted) + is_red,
        "errors": len(facts.list_stories("waiting")) + facts.is_cut_short,
        "skipped": skipped + unproven * is_accepted,
        "time": _format_seconds(sum(one.used.seconds for one in facts.stories)),
    }
    return tag(
        "testsuite",
        _build_properties([*wording.list_settings(facts), ("state", facts.state), ("verdict", facts.verdict)]),
        [_build_case(facts, story) for story in facts.stories],
        _build_last_check(facts) if is_red else None,
        _build_run_error(facts) if facts.is_cut_short else None,
        name=facts.change,
        **counts,
        timestamp=format_utc(facts.began).removesuffix("Z"),
    )


def _build_empty_suite(one: NoRun) -> Element:
    change, why = formatting.clean_line(one.change, 200), formatting.clean_block(one.why)
    message = _clean_first_line(why)
    ending = tag("error", why, message=message, type="refused") if one.is_error else tag("skipped", message=message)
    case = tag("testcase", ending, classname=change, name=_RUN, time=_format_seconds(0.0))
    counts: dict[str, str | int] = {"tests": 1, "failures": 0, "errors": int(one.is_error)}
    return tag("testsuite", case, name=change, **counts, skipped=int(not one.is_error), time=_format_seconds(0.0))


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.3f}"


def _build_properties(rows: list[tuple[str, str]]) -> Element:
    return tag("properties", [tag("property", name=name, value=value) for name, value in rows])


def _build_last_check(facts: Facts) -> Element:
    told = facts.tip.told if facts.tip else ""
    ending = tag("failure", f"the gates are red at the end of the run: {told}", message=told, type="red")
    return tag("testcase", ending, classname=facts.change, name="last check of the branch", time=_format_seconds(0.0))


def _build_run_error(facts: Facts) -> Element:
    why = facts.reason or facts.verdict
    error = tag("error", why, message=_clean_first_line(why), type=facts.state)
    return tag("testcase", error, classname=facts.change, name=_RUN, time=_format_seconds(0.0))


def _build_case(facts: Facts, story: ReportStory) -> Element:
    rows = [(_format_name(one), _format_attempt(one)) for one in story.attempts]
    rows += [("commit", story.commit)] if story.commit else []
    rows += [("proof", story.proof)] if story.proof else []
    rows += [row for row in story.receipt.rows if row[0] != "commit"] if story.receipt else []
    return tag(
        "testcase",
        _build_doubt(facts, story) if story.is_unproven else _build_ending(story),
        # Not as properties: Jenkins' schema allows them only in suites.
        tag("system-out", "\n".join(f"{name}: {text}" for name, text in rows)) if rows else None,
        classname=facts.change,
        name=story.name,
        time=_format_seconds(story.used.seconds),
    )


def _format_name(one: ReportAttempt) -> str:
    return f"{'not counted as an attempt:' if one.is_put_off else 'attempt'} {one.entry or one.number}"


def _format_attempt(one: ReportAttempt) -> str:
    took, cost = format_duration(one.work.seconds + one.gate_seconds), format_cost(one.work.cost)
    return ", ".join(filter(None, [one.status, took, cost]))


def _build_ending(story: ReportStory) -> Element | None:
    if story.state == "failed":
        reasons = wording.list_failure_reasons(story)
        return tag("failure", "\n".join([*reasons, *_list_hints(story)]), message=reasons[0], type="failed")
    if story.state == "waiting":
        asked = story.question
        text = "\n\n".join(filter(None, [asked.missing, asked.why] if asked else [story.why]))
        answer = f"Answer: {wording.build_answer_command(story)}"
        return tag(
            "error",
            f"{text}\n\n{answer}",
            message=_clean_first_line(text) or look.STORIES["waiting"].words,
            type="waiting",
        )
    if story.state == "done":
        return None if story.proof else tag("skipped", message="done, but the record has no proof of it")
    return tag("skipped", message=story.why or look.STORIES[story.state].words)


def _build_doubt(facts: Facts, story: ReportStory) -> Element:
    """For a story that is done but not proven."""
    told = describe_proof(story.proof, story.proof_why)
    if facts.state == "done":
        return tag("skipped", message=told)
    commands = wording.build_accept_commands(facts, story)
    return tag("failure", "\n".join([told, *_list_hints(story), *commands]), message=told, type="unproven")


def _list_hints(story: ReportStory) -> list[str]:
    last = story.attempts[-1] if story.attempts else None
    commands = [wording.build_explain_command(last), wording.build_diff_command(last)] if last and last.counts else []
    return ["", *filter(None, commands)] if commands else []


def _clean_first_line(text: str) -> str:
    return formatting.clean_line(text.strip().split("\n")[0], 300)
