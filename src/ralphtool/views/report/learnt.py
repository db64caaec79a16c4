"""What the history adds to a run's record: what was learnt in it, which of the learnings helped, and the sums."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from ralphtool.core import files, project
from ralphtool.errors import RalphError
from ralphtool.history import History
from ralphtool.memory import usefulness
from ralphtool.record.run_view import seconds_of
from ralphtool.views.report import formatting
from ralphtool.views.report.facts import Helped, Knowledge, Learnt

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from ralphtool.history.records import Learning
    from ralphtool.memory.usefulness import Showing
    from ralphtool.views.report.facts import Facts

_RECENT = 20_000  # learnings that are looked through
_MOST = 200  # that are told
_LONGEST = 600  # characters of one
_SLACK = 2.0  # seconds: notes are written to the history after the last event


def look_up(root: str, facts: Facts) -> Knowledge:
    """What the history knows about a run. A history that can't be read is no reason to tell nothing."""
    entries = [one.entry for one in facts.attempts if one.counts and one.entry]
    try:
        history = History(root)
        recent = history.learnings(valid_only=False, last=_RECENT)
        seconds = [one.duration_seconds or 0 for id in _prd_ids(facts) for one in history.entries(prd_id=id)]
        return Knowledge(
            learnt=tuple(_gained(facts, recent, set(entries)))[:_MOST],
            shown=tuple(_shown(root, history, recent, facts, set(entries)))[:_MOST],
            entries=len(seconds),
            seconds=sum(seconds),
        )
    except (RalphError, OSError) as error:
        return Knowledge(trouble=formatting.line(str(error)))


def _prd_ids(facts: Facts) -> list[str]:
    """Those of the stories that were tried, as their entries have them; of the others, as most formats make them."""
    tried = {one.story: one.entry.rpartition("-")[0] for one in facts.attempts if one.entry}
    ids = [tried.get(one.id) or project.slug(f"{facts.change}-{one.id}") for one in facts.stories]
    return list(dict.fromkeys(ids))


def _gained(facts: Facts, recent: Sequence[Learning], entries: set[str]) -> Iterator[Learnt]:
    ids = {*_prd_ids(facts), project.slug(facts.change)}
    for one in recent:
        if one.source_entry_id in entries or (one.source_prd_id in ids and _is_within(one.created_at, facts)):
            source = one.source_entry_id or one.source_prd_id
            yield Learnt(one.id, one.type, formatting.block(one.content, _LONGEST), formatting.line(source, 200))


def _is_within(moment: str, facts: Facts) -> bool:
    at = seconds_of(moment)
    return at is not None and facts.began <= at <= facts.ended + _SLACK


def _shown(
    root: str, history: History, recent: Sequence[Learning], facts: Facts, entries: set[str]
) -> Iterator[Helped]:
    shown: Counter[str] = Counter()
    helped: Counter[str] = Counter()
    ids: dict[str, str] = {}
    for showing in _showings(usefulness.path_of(root)):
        # A history that was put back uses the numbers of entries again.
        if showing.entry in entries and (not showing.at or _is_within(showing.at, facts)):
            shown.update(list(showing.shown))
            helped.update(list(showing.shown) if showing.status == "completed" else [])
            ids |= {digest: id for digest, id in showing.shown.items() if id}
    known = _known(history, recent, shown, ids)
    for digest, times in sorted(shown.items(), key=lambda item: (-helped[item[0]], -item[1], item[0])):
        if digest in known:
            id, text = known[digest]
            yield Helped(id, formatting.block(text, _LONGEST), times, helped[digest])


def _known(
    history: History, recent: Sequence[Learning], shown: Collection[str], ids: dict[str, str]
) -> dict[str, tuple[str, str]]:
    """The ids and the words behind digests, of learnings and of patterns; what is nowhere any more is left out."""
    digests = ((usefulness.digest(one.content), one) for one in recent) if shown else ()
    found = {digest: (one.id, one.content) for digest, one in digests if digest in shown}
    named = {id: digest for digest, id in ids.items() if digest not in found}
    patterns = history.patterns_of(list(named)[:_MOST]) if named else []
    return found | {named[one.id]: (one.id, f"{one.name}: {one.description or ''}") for one in patterns}


def _showings(path: str) -> Iterator[Showing]:
    try:
        fd = files.open_here(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    with os.fdopen(fd, "rb") as file:
        for line in file:
            try:
                yield msgspec.json.decode(line, type=usefulness.Showing)
            except (ValueError, RecursionError):  # also of msgspec, and of what is not UTF-8
                continue  # torn, or not ours
