"""Plain answers, computed from the whole history, to compare with every answer of the store."""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import msgspec
from history.store.samples import PRD, Value, ids
from msgspec import structs

from ralphtool.history import AttemptCounts, History, document
from ralphtool.history.journal import Batch, LearningRef
from ralphtool.history.records import Category, Entry, Learning, Pattern, Progress

# --- plain answers ----------------------------------------------------------------------------------


class Content(NamedTuple):
    """All records of a history."""

    entries: tuple[Entry, ...] = ()
    learnings: tuple[Learning, ...] = ()
    patterns: tuple[Pattern, ...] = ()


def content(progress: Progress) -> Content:
    return Content(progress.entries, progress.learnings, progress.patterns)


def on_disk(history: History) -> Content:
    """The content of progress.json, which must be valid and correctly formatted at every moment."""
    if not os.path.exists(history.path):
        return Content()
    data = Path(history.path).read_bytes()
    progress = document.parse(data)
    assert data == msgspec.json.format(data, indent=2) + b"\n"
    return content(progress)


def answers(history: History) -> Content:
    """All records, after checking the answer to every query."""
    whole = history.load()
    everything = content(whole)
    exported = document.parse(history.export())
    assert content(exported) == everything
    assert (exported.version, exported.project_name) == (whole.version, whole.project_name)
    on_disk(history)
    check_entries(history, everything.entries)
    check_learnings(history, everything.learnings)
    check_patterns(history, everything.patterns)
    assert history.counts() == {
        "entries": len(everything.entries),
        "learnings": len(everything.learnings),
        "patterns": len(everything.patterns),
        "valid_learnings": sum(one.still_valid for one in everything.learnings),
    }
    return everything


def last_of(found: Sequence[Entry], last: int | None) -> list[Entry]:
    return list(found if last is None else found[max(len(found) - last, 0) :])


def check_entries(history: History, entries: Sequence[Entry]) -> None:
    for prd in (None, "never-tried", *{one.prd_id: 0 for one in entries}):
        of_prd = [one for one in entries if prd in (None, one.prd_id)]
        for last in (None, 1, 3, 1000):
            chosen = last_of(of_prd, last)
            assert history.entries(last=last, prd_id=prd) == chosen
            found = history.observations(last=last, prd_id=prd)
            assert [(one.entry, one.observation) for one in found] == [(e, o) for e in chosen for o in e.observations]
            assert history.blockers(last=last, prd_id=prd) == [
                one for one in found if one.observation.type == "blocker"
            ]
        if prd is not None:
            assert history.attempts(prd) == len(of_prd)
            assert history.last_entry(prd) == (of_prd[-1] if of_prd else None)
            assert history.next_iteration(prd) == 1 + max((one.iteration for one in of_prd), default=0)
    assert history.endings(3) == [one.status for one in entries[-3:]]
    assert history.tallies() == plain_tallies(entries)
    assert list(history.failures().items()) == plain_failures(entries)


def plain_tallies(entries: Sequence[Entry]) -> list[AttemptCounts]:
    by_last_try = list({one.prd_id: 0 for one in reversed(entries)})[::-1]
    counts = Counter((one.prd_id, one.status) for one in entries)
    totals = Counter(one.prd_id for one in entries)
    return [
        AttemptCounts(
            prd, totals[prd], *(counts[prd, status] for status in ("completed", "failed", "blocked", "partial"))
        )
        for prd in by_last_try
    ]


def plain_failures(entries: Sequence[Entry]) -> list[tuple[Category, int]]:
    bad = [one for one in entries if one.status in ("failed", "blocked")]
    times = Counter(seen.category for one in bad for seen in one.observations if seen.category)
    return sorted(times.items(), key=lambda item: (-item[1], item[0]))


def check_learnings(history: History, learnings: Sequence[Learning]) -> None:
    valid = [one for one in learnings if one.still_valid]
    assert history.learnings() == valid
    assert history.learnings(valid_only=False) == list(learnings)
    assert history.learnings(("tool-usage", "test-pattern")) == [
        one for one in valid if one.type in ("tool-usage", "test-pattern")
    ]
    assert history.learnings(prd_id=PRD) == [one for one in valid if one.source_prd_id == PRD]
    assert history.learnings(("tool-usage",), prd_id=PRD, valid_only=False) == [
        one for one in learnings if one.source_prd_id == PRD and one.type == "tool-usage"
    ]
    assert history.next_learning_number() == 1 + max((number(one) for one in learnings), default=0)


def check_patterns(history: History, patterns: Sequence[Pattern]) -> None:
    assert history.patterns() == list(patterns)
    assert history.patterns(("api-pattern",)) == [one for one in patterns if one.type == "api-pattern"]
    assert history.patterns(prd_id=PRD) == [one for one in patterns if one.source_prd_id == PRD]
    assert history.next_pattern_number() == 1 + max((number(one) for one in patterns), default=0)


def number(record: Learning | Pattern) -> int:
    return int(record.id.rpartition("-")[2])


# --- a plain reader of the journal ------------------------------------------------------------------


def journal_lines(data: bytes) -> list[bytes]:
    """The complete lines of a journal after the first one; zeros at its end are spare room."""
    whole = data.partition(b"\0")[0]
    return whole.split(b"\n")[1:-1]


def batches(history: History) -> list[Batch]:
    if not os.path.exists(history.journal_path):
        return []
    found = []
    for line in journal_lines(Path(history.journal_path).read_bytes()):
        checksum, _, data = line.partition(b" ")
        assert checksum == b"%08x" % zlib.crc32(data)
        found.append(msgspec.json.decode(data, type=Batch))
    return found


def applied(before: Content, changes: Iterable[Batch]) -> Content:
    """The records after some changes, which may belong to another document."""
    entries, learnings, patterns = (list(part) for part in before)
    links: dict[str, str] = {}
    for batch in changes:
        for new in batch.learnings:
            links[new.id] = apply_learning(learnings, new)  # type: ignore[arg-type]
        for one in batch.patterns:
            apply_pattern(patterns, one)  # type: ignore[arg-type]
        for tried in batch.entries:
            apply_entry(entries, tried, links)  # type: ignore[arg-type]
        for gone in batch.invalidated:
            change(learnings, meant(learnings, gone.about, links), invalid, gone.why)  # type: ignore[arg-type]
        for used in batch.referenced:
            change(learnings, meant(learnings, used.about, links), counted, used.times)  # type: ignore[arg-type]
    return Content(tuple(entries), tuple(learnings), tuple(patterns))  # type: ignore[arg-type]


def free_id(kind: str, id: str, known: Sequence[Learning | Pattern]) -> str:
    return f"{kind}-{1 + max(map(number, known)):04}" if id in ids(known) else id


def apply_learning(learnings: list[Learning], new: Learning) -> str:
    same = [one for one in learnings if one.content == new.content]
    for known in [
        *(one for one in same if one.created_at == new.created_at),
        *(one for one in same if one.still_valid),
    ]:
        return known.id
    learnings.append(structs.replace(new, id=free_id("learning", new.id, learnings)))
    return learnings[-1].id


def apply_pattern(patterns: list[Pattern], new: Pattern) -> None:
    if (new.name, new.description) not in [(known.name, known.description) for known in patterns]:
        patterns.append(structs.replace(new, id=free_id("pattern", new.id, patterns)))


def apply_entry(entries: list[Entry], new: Entry, links: dict[str, str]) -> None:
    last = max((known.iteration for known in entries if known.prd_id == new.prd_id), default=0)
    if new.iteration == last + 1:
        seen = [
            structs.replace(one, related_learning_id=links.get(one.related_learning_id, one.related_learning_id))
            if one.related_learning_id
            else one
            for one in new.observations
        ]
        entries.append(structs.replace(new, observations=tuple(seen)))


def meant(learnings: Sequence[Learning], about: LearningRef, links: dict[str, str]) -> str | None:
    same = [one for one in learnings if blake2b(one.content.encode(), digest_size=16).hexdigest() == about.words]
    known = [one for one in same if one.created_at == about.created_at] or [one for one in same if one.still_valid]
    return known[0].id if known else links.get(about.id)


def change(learnings: list[Learning], id: str | None, how: Callable[[Learning, Value], Learning], by: Value) -> None:
    learnings[:] = [how(one, by) if one.id == id else one for one in learnings]


def invalid(known: Learning, why: str) -> Learning:
    context = f"{known.context}\n{why}" if known.context else why
    return structs.replace(known, still_valid=False, context=context) if known.still_valid else known


def counted(known: Learning, times: int) -> Learning:
    return structs.replace(known, times_referenced=max(known.times_referenced, times))
