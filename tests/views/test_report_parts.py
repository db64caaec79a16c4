"""The parts of a report agree: the counts in the head match the stories, the tables and the other formats."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from views.night import RUN, Night, a_night

from ralphtool.core.amounts import format_cost, format_duration
from ralphtool.judging import proof_words
from ralphtool.record import runs
from ralphtool.record.event_parts import NextStep
from ralphtool.views.report import from_record, junit, learnt, markdown, next_steps, page
from ralphtool.views.report.facts import Facts, ReportStep, sum_use

EARLIER = "add-login-20260228-220000-0a0b"


def build_side_by_side() -> Night:
    """Two stories at once, one of them on another machine, and one that is sent back."""
    night = Night()
    night.start()
    for number in (2, 3, 4):
        begun: dict[str, Any] = {
            "iteration": number,
            "story": str(number),
            "entry": f"add-login-{number}-1",
            "attempt": 1,
        }
        night.add("iteration_started", number=number, agent="claude", **begun)
    night.add("worker_joined", iteration=3, story="3", worker="build-7", part="agent")
    for number, status in ((2, "completed"), (3, "failed"), (4, "completed")):
        night.add(
            "verdict",
            minutes=20,
            iteration=number,
            story=str(number),
            entry=f"add-login-{number}-1",
            attempt=1,
            status=status,
            seconds={"agent": 900.0, "gates": 60.0},
            cost=0.5,
            input_tokens=1000,
            output_tokens=10,
        )
    night.end({3: "failed", **dict.fromkeys(range(5, 10), "open")})
    return night


def build_resumed() -> Night:
    """The second run of a change: its first attempt is the third at the story."""
    night = Night()
    night.start()
    night.attempt(2, 3, "failed", 10)
    night.attempt(2, 4, "completed", 10)
    night.end(dict.fromkeys(range(3, 10), "open"))
    return night


def build_interrupted() -> Night:
    """With attempts that don't count, and one that is in progress."""
    night = Night()
    night.start()
    night.attempt(2, 1, "transient", 10, action="wait")
    night.attempt(2, 1, "failed", 10)
    night.add("iteration_started", story="2", entry="add-login-2-2", attempt=2)
    return night


NIGHTS = {
    "retries": a_night,
    "side by side": build_side_by_side,
    "resumed": build_resumed,
    "interrupted": build_interrupted,
}


def read(root: Path, run: str = RUN) -> Facts:
    facts = from_record.read_facts(runs.read_summary(str(root), run))
    return structs.replace(facts, knowledge=learnt.look_up(str(root), facts))


@pytest.fixture(params=NIGHTS)
def facts(request: pytest.FixtureRequest, tmp_path: Path) -> Facts:
    NIGHTS[request.param]().write(tmp_path)
    return read(tmp_path)


def find_tile(html: str, name: str) -> str:
    found = re.search(rf"<dt>{name}</dt><dd>([^<]*)", html)
    return found[1] if found else ""


def test_the_head_counts_what_the_parts_have(facts: Facts) -> None:
    html = page.render(facts, {})
    counted = [one for one in facts.attempts if one.counts]
    assert find_tile(html, "attempts") == str(len(counted))
    assert find_tile(html, "stories done") == f"{len(facts.list_stories('done'))} of {len(facts.stories)}"
    assert find_tile(html, "cost") == format_cost(sum(one.work.cost for one in facts.attempts))
    assert html.count('class="story"') == len(facts.stories)
    assert html.count('class="attempt"') == len(facts.attempts)
    assert len(re.findall(r'class="bar v-', html)) == len(facts.attempts)
    assert html.count('class="card is-failed"') == len(facts.list_stories("failed"))


def test_the_table_adds_up(facts: Facts) -> None:
    parts = [sum_use(getattr(one, name) for one in facts.stories) for name in ("first", "retries", "gates")]
    assert sum_use(parts) == facts.used
    text = markdown.render(facts)
    rows = [line for line in text.split("\n") if line.startswith("| in all")]
    if len([one for one in facts.stories if one.attempts]) > 1:
        [row] = rows
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells[1] == str(sum(one.counts for one in facts.attempts))
        assert format_cost(facts.used.cost) in cells
        assert format_duration(facts.used.seconds) in cells


def test_all_formats_tell_the_same(facts: Facts) -> None:
    html, text, xml = page.render(facts, {}), markdown.render(facts), junit.render(facts)
    verdict = facts.verdict[0].lower() + facts.verdict[1:]
    assert f"<title>{facts.title}: {verdict}</title>" in html
    assert text.startswith(f"# {facts.title}: {verdict}")
    assert xml.count("<testcase ") >= len(facts.stories)
    for story in facts.list_stories("done"):
        short = story.commit[:10]
        assert (short in html) == (short in text)
    done = proof_words.count_states(one.proof for one in facts.stories)
    assert sum(done.values()) <= len(facts.list_stories("done"))


def test_attempts_are_numbered_through_all_runs(tmp_path: Path) -> None:
    build_resumed().write(tmp_path)
    attempts = read(tmp_path).attempts
    assert [one.number for one in attempts] == [3, 4]
    assert "attempt 3" in page.render(read(tmp_path), {})


def test_fresh_attempts_count_on(tmp_path: Path) -> None:
    """If a person gave a story fresh attempts, the run counts from 1 again; its entries don't."""
    night = Night()
    night.start()
    night.add("iteration_started", number=1, story="2", entry="add-login-2-5", attempt=1)
    night.write(tmp_path)
    assert [one.number for one in read(tmp_path).attempts] == [5]


def test_the_cost_of_all_runs_is_told(tmp_path: Path) -> None:
    earlier = Night()
    earlier.start(run=EARLIER)
    earlier.attempt(2, 1, "failed", 10)
    earlier.attempt(2, 2, "failed", 10)
    earlier.add("run_ended", result="unfinished", reason="", stories=[], spent={"seconds": 10, "cost": 1.4}, next=[])
    earlier.write(tmp_path, EARLIER)
    build_resumed().write(tmp_path)
    told = read(tmp_path)
    assert (told.knowledge.runs, round(told.knowledge.cost, 2)) == (2, 2.8)
    assert "<dd>$1.40<small>$2.80 in 2 runs</small></dd>" in page.render(told, {})
    assert "all runs together: 2 runs, " in markdown.render(told)


def test_an_answer_is_where_the_run_advised_it_so_that_the_next_step_can_say_or() -> None:
    advised = [("see", "explain x-1-3"), ("tell", 'answer 1 "…"'), ("or retry", "retry 1"), ("tell", 'answer 2 "…"')]
    steps = [NextStep(say=say, run=f"ralphtool {run}") for say, run in advised]
    answers = {id: ReportStep(f"tell {id}", f'ralphtool answer {id} "…"') for id in ("1", "12")}  # 2 was answered
    told = [one.say for one in next_steps.place_answers(steps, answers)]
    assert told == ["tell 12", "see", "tell 1", "or retry"]
