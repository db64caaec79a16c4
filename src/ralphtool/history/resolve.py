"""Applies a batch to the existing records: drops known records, renumbers taken ids, and updates links.

A batch is resolved before it is appended, and again when the journal is read. The results differ if the document was
replaced in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import UNSET, structs

from ralphtool.errors import InvalidValue
from ralphtool.history.catalog import digest_pattern, digest_words
from ralphtool.history.journal import Batch, LearningRef
from ralphtool.history.records import learning_id, parse_number, pattern_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ralphtool.history.catalog import Catalog, Sources
    from ralphtool.history.journal import Invalidation, ReferenceCount
    from ralphtool.history.records import Entry, Learning, Pattern

    Aside = list[tuple[bytes, str]]
    Statement = TypeVar("Statement", Invalidation, ReferenceCount)


def resolve(catalog: Catalog, sources: Sources, batch: Batch, aside: Aside | None = None) -> Batch:
    """The batch as it applies here.

    A record that does not fit is an error, or is added to `aside` with the reason if that is given.
    """
    if not batch.is_more_than_entries:  # the usual case, which must be fast
        return _select_new_entries(catalog, sources, batch, catalog.renamed, aside)
    catalog.settle()
    learnings, renamed = _select_new_learnings(catalog, batch.learnings)
    if aside is not None:
        renamed = catalog.renamed = catalog.renamed | renamed
    fresh = {learning.id: learning for learning in learnings}
    return structs.replace(
        _select_new_entries(catalog, sources, batch, renamed, aside),
        learnings=learnings,
        patterns=_select_new_patterns(catalog, batch.patterns),
        invalidated=_resolve_targets(catalog, batch.invalidated, renamed, fresh, aside),
        referenced=_resolve_targets(catalog, batch.referenced, renamed, fresh, aside),
    )


def _reject(record: object, problem: str, aside: Aside | None) -> None:
    if aside is None:
        raise InvalidValue(problem)
    aside.append((msgspec.json.encode(record), problem))


# --- entries ----------------------------------------------------------------------------------------


def _select_new_entries(
    catalog: Catalog, sources: Sources, batch: Batch, renamed: dict[str, str], aside: Aside | None
) -> Batch:
    """The new entries that follow the existing ones, with the current numbers of linked learnings."""
    last: dict[str, int] = {}
    entries = []
    for entry in batch.entries:
        problem = _find_problem(catalog, sources, entry, last)
        if problem:
            _reject(entry, problem, aside)
        elif problem is None:
            last[entry.prd_id] = entry.iteration
            entries.append(_replace_links(entry, renamed.get) if renamed else entry)
    if len(entries) == len(batch.entries) and not renamed:
        return batch
    return structs.replace(batch, entries=tuple(entries))


def _find_problem(catalog: Catalog, sources: Sources, entry: Entry, last: dict[str, int]) -> str | None:
    """Why an entry can't be added; empty if it already exists, None if it can be added."""
    if entry.id != f"{entry.prd_id}-{entry.iteration}":
        return f"entry {entry.id}: the id must be prd_id-iteration, but these are {entry.prd_id} and {entry.iteration}"
    before = last.get(entry.prd_id) or catalog.last_iteration(entry.prd_id)
    if catalog.facts.odd or entry.iteration <= before:
        known = catalog.find_same_id(sources, entry)
        if known and _remove_links(known) == _remove_links(entry):
            return ""
        if known:
            return f"entry {entry.id}: another entry has the same id, recorded at {known.timestamp}"
    if entry.iteration != before + 1 and not (catalog.facts.has_gaps and entry.iteration > before):
        return (
            f"entry {entry.id}: iteration {entry.iteration} does not follow {before}: the next one must be {before + 1}"
        )
    return None


def _replace_links(entry: Entry, new_id: Callable[[str, str], str]) -> Entry:
    observations = tuple(
        structs.replace(one, related_learning_id=new_id(one.related_learning_id, one.related_learning_id))
        if one.related_learning_id is not UNSET
        else one
        for one in entry.observations
    )
    return structs.replace(entry, observations=observations)


def _remove_links(entry: Entry) -> Entry:
    """Learnings may have been renumbered meanwhile: entries that differ only in those numbers are equal."""
    return _replace_links(entry, lambda old, default: "")


# --- learnings and patterns -------------------------------------------------------------------------


def _select_new_learnings(
    catalog: Catalog, learnings: Iterable[Learning]
) -> tuple[tuple[Learning, ...], dict[str, str]]:
    """The new learnings with free numbers, and the changed numbers of all."""
    numbers = _IdAllocator(catalog, "learnings", learning_id)
    fresh: dict[bytes, Learning] = {}
    renamed: dict[str, str] = {}
    for learning in learnings:
        words = digest_words(learning.content)
        known = fresh[words].id if words in fresh else catalog.find_learning_id(words, learning.created_at, learning.id)
        if known is None:
            known = numbers.free(learning.id)
            fresh[words] = structs.replace(learning, id=known)
        if known != learning.id:
            renamed[learning.id] = known
    return tuple(fresh.values()), renamed


def _select_new_patterns(catalog: Catalog, patterns: Iterable[Pattern]) -> tuple[Pattern, ...]:
    numbers = _IdAllocator(catalog, "patterns", pattern_id)
    fresh: dict[bytes, Pattern] = {}
    for pattern in patterns:
        words = digest_pattern(pattern)
        if words not in fresh and not catalog.has_pattern(words):
            fresh[words] = structs.replace(pattern, id=numbers.free(pattern.id))
    return tuple(fresh.values())


class _IdAllocator:
    """Allocates free ids: the wanted one, else the next number."""

    def __init__(self, catalog: Catalog, table: str, id_of: Callable[[int], str]) -> None:
        self._catalog = catalog
        self._table = table
        self._id_of = id_of
        self._highest = catalog.highest(table)
        self._given: set[str] = set()

    def free(self, wished: str) -> str:
        id = wished
        while id in self._given or self._catalog.has(self._table, id):
            self._highest += 1
            id = self._id_of(self._highest)
        self._highest = max(self._highest, parse_number(id))
        self._given.add(id)
        return id


# --- statements about learnings ---------------------------------------------------------------------


def _resolve_targets(
    catalog: Catalog,
    said: Iterable[Statement],
    renamed: dict[str, str],
    fresh: dict[str, Learning],
    aside: Aside | None,
) -> tuple[Statement, ...]:
    """The statements about learnings, with the learnings' current numbers: their words identify them."""
    aimed = []
    for one in said:
        id = _find_target(catalog, one.about) or renamed.get(one.about.id)
        if id is None and one.about.id not in fresh:
            _reject(one, f"{one.about.id}: the learning that it refers to does not exist", aside)
        else:
            aimed.append(structs.replace(one, about=structs.replace(one.about, id=id or one.about.id)))
    return tuple(aimed)


def _find_target(catalog: Catalog, about: LearningRef) -> str | None:
    return catalog.find_learning_id(bytes.fromhex(about.words), about.created_at, about.id)
