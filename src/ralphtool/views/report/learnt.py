"""What the history adds to a run's record: new learnings, learnings that helped, and totals."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import UNSET

from ralphtool import typed
from ralphtool.core import files, project
from ralphtool.errors import RalphError
from ralphtool.history import History
from ralphtool.memory import usefulness
from ralphtool.record import runs
from ralphtool.record.run_end import get_rows, get_text
from ralphtool.record.view_parts import parse_time
from ralphtool.views.report import formatting
from ralphtool.views.report.facts import NewLearning, RunKnowledge, ShownLearning

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from ralphtool.history.records import Learning
    from ralphtool.memory.usefulness import ShownItems
    from ralphtool.record.runs import RunSummary
    from ralphtool.views.report.facts import Facts

_RECENT = 20_000  # learnings that are searched
_MOST = 200  # learnings that are listed
_MOST_RUNS = 500  # the newest, of all changes
_LONGEST = 600  # characters of one
_SLACK = 2.0  # seconds: notes are written to the history after the last event


def look_up(root: str, facts: Facts) -> RunKnowledge:
    """The history's facts about a run. If the history can't be read, the rest of the report is still written."""
    entries = [one.entry for one in facts.attempts if one.counts and one.entry]
    try:
        history = History(root)
        recent = history.learnings(valid_only=False, last=_RECENT)
        others = _read_other_runs(root, facts)
        entries_of_all = [one for id in _list_all_prd_ids(facts, others) for one in history.entries(prd_id=id)]
        drafts = sum([facts.is_plan, *(one.purpose == "plan" for one in others)])
        return RunKnowledge(
            learnt=tuple(_find_new_learnings(facts, recent, set(entries)))[:_MOST],
            shown=tuple(_find_shown(root, history, recent, facts, set(entries)))[:_MOST],
            entries=sum(one.duration_seconds is not UNSET for one in entries_of_all),  # `accept` takes no time
            seconds=sum([facts.seconds, *(runs.measure_duration(one) or 0.0 for one in others)]),
            runs=1 + len(others) - drafts,
            drafts=drafts,
            cost=sum([facts.used.cost, *map(_find_cost, others)]),
        )
    except (RalphError, OSError) as error:
        return RunKnowledge(trouble=formatting.clean_line(str(error)))


def _read_other_runs(root: str, facts: Facts) -> list[RunSummary]:
    """The other runs of the change."""
    names = [
        id
        for id in runs.list_ids(root)[:_MOST_RUNS]
        if facts.change.startswith(runs.parse_change(id)) and id != facts.run
    ]
    return [one for one in (runs.read_summary(root, id) for id in names) if one.change == facts.change]


def _find_cost(run: RunSummary) -> float:
    cost = run.spent.get("cost")
    return float(cost) if isinstance(cost, int | float) else 0.0


def _list_all_prd_ids(facts: Facts, others: Sequence[RunSummary]) -> list[str]:
    """Includes the stories that only other runs name: a record may have none."""
    told = {get_text(row, "id") for one in others for row in get_rows(one.start, "stories")}
    more = sorted(told - {one.id for one in facts.stories} - {""})
    return list(dict.fromkeys([*_list_prd_ids(facts), *(project.build_slug(f"{facts.change}-{id}") for id in more)]))


def _list_prd_ids(facts: Facts) -> list[str]:
    """The ids of all stories: from the entries if there are any, otherwise as most formats build them."""
    tried = {one.story: one.entry.rpartition("-")[0] for one in facts.attempts if one.entry}
    ids = [tried.get(one.id) or project.build_slug(f"{facts.change}-{one.id}") for one in facts.stories]
    return list(dict.fromkeys(ids))


def _find_new_learnings(facts: Facts, recent: Sequence[Learning], entries: set[str]) -> Iterator[NewLearning]:
    ids = {*_list_prd_ids(facts), project.build_slug(facts.change)}
    for one in recent:
        if one.source_entry_id in entries or (one.source_prd_id in ids and _is_within(one.created_at, facts)):
            source = one.source_entry_id or one.source_prd_id
            yield NewLearning(
                one.id, one.type, formatting.clean_block(one.content, _LONGEST), formatting.clean_line(source, 200)
            )


def _is_within(moment: str, facts: Facts) -> bool:
    at = parse_time(moment)
    return at is not None and facts.began <= at <= facts.ended + _SLACK


def _find_shown(
    root: str, history: History, recent: Sequence[Learning], facts: Facts, entries: set[str]
) -> Iterator[ShownLearning]:
    shown: Counter[str] = Counter()
    helped: Counter[str] = Counter()
    ids: dict[str, str] = {}
    for showing in _read_showings(usefulness.path_of(root)):
        # A restored history reuses the numbers of entries.
        if showing.entry in entries and (not showing.at or _is_within(showing.at, facts)):
            shown.update(list(showing.shown))
            helped.update(list(showing.shown) if showing.status == "completed" else [])
            ids |= {digest: id for digest, id in showing.shown.items() if id}
    known = _find_texts(history, recent, shown, ids)
    for digest, times in sorted(shown.items(), key=lambda item: (-helped[item[0]], -item[1], item[0])):
        if digest in known:
            id, text = known[digest]
            yield ShownLearning(id, formatting.clean_block(text, _LONGEST), times, helped[digest])


def _find_texts(
    history: History, recent: Sequence[Learning], shown: Collection[str], ids: dict[str, str]
) -> dict[str, tuple[str, str]]:
    """The ids and texts of learnings and patterns by digest; those that no longer exist are left out."""
    digests = ((usefulness.digest(one.content), one) for one in recent) if shown else ()
    found = {digest: (one.id, one.content) for digest, one in digests if digest in shown}
    named = {id: digest for digest, id in ids.items() if digest not in found}
    patterns = history.find_patterns(list(named)[:_MOST]) if named else []
    return found | {named[one.id]: (one.id, f"{one.name}: {one.description or ''}") for one in patterns}


def _read_showings(path: str) -> Iterator[ShownItems]:
    try:
        fd = files.open_in_project(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    with os.fdopen(fd, "rb") as file:
        for line in file:
            try:
                yield typed.decode(line, usefulness.ShownItems)
            except (ValueError, RecursionError):  # includes msgspec's errors and invalid UTF-8
                continue  # incomplete, or not ours
