"""The knowledge of a project, found by topic: the history's learnings and patterns in a memory.

The history decides what is known; the memory only selects what is relevant. Its index is `.ralph/memory.index`, and
every query updates it first.
"""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from ralphtool.history import classify
from ralphtool.history.records import parse_number
from ralphtool.memory import Memory, tokens, usefulness
from ralphtool.memory.labels import (
    INDEX,
    NOTE,
    build_label,
    build_note_label,
    build_note_source,
    find_finished_notes,
    note_id,
    parse_session,
)
from ralphtool.memory.usefulness import UseCounts, UseStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ralphtool.core.session import SessionState
    from ralphtool.history import History
    from ralphtool.history.records import Learning, Pattern

Result = TypeVar("Result")
_MAX_TRIES = 20  # if other processes update the index at the same time
_SEARCH_LIMIT = 60  # results of each search
_RELEVANT = 0.06  # below this score, words are shared only by chance
_LIKE_THE_FAILURE = 0.12  # from this score on, a workaround may fit this failure;
_AROUND = 3  # this many of them come first
_OWN, _OWNED = 0.2, 3  # the last learnings of a story's own attempts are relevant, whatever their words
_FRESH, _FADING = 0.1, 0.9  # and so are those of this run, the last ones most
_BY_FILES = 0.6  # file names say less than the task
_TASKS, _TELLING = 6, 3  # tasks that are searched for one by one, and the words that one must have
_AFTER_ALL = 1 << 60  # notes are newer than everything in the history
_HELPFUL, _NEWEST = 10, 10  # shown if there is room, whatever their topic
_LONGEST = 4000  # characters of a query
_MOST, _COMPARED = 80, 2000  # texts that a prompt may contain, and characters of them that are compared
_MOST_COMPARED = 200
_ALIKE = 0.5  # the share of common words from which two texts are compared closely


class KnownItem(Struct, frozen=True, kw_only=True):
    """A learning, a pattern, or a note of an open session."""

    id: str | None  # None for a note that is not in the history yet,
    note: str = ""  # and has this id in the index
    kind: str  # learning or pattern
    type: str
    text: str
    sources: tuple[str, ...]  # the PRDs that it comes from
    created_at: str = ""
    order: int = 0  # the order of recording: clocks may be wrong
    score: float = 0.0
    is_workaround: bool = False  # for a failure like the last one


class KnowledgeQuery(Struct, frozen=True, kw_only=True):
    """The work that knowledge is needed for."""

    prd_id: str
    story: str
    story_id: str = ""
    tasks: Sequence[str] = ()  # each is also searched for separately: one word is lost among many
    failure: str = ""
    files: Sequence[str] = ()


class RelevantKnowledge(Struct, frozen=True):
    """The relevant items, the most relevant first, and the number of all items."""

    items: tuple[KnownItem, ...]
    known: int


class KnowledgeBase:
    def __init__(self, history: History, *, by_meaning: bool | None = None, index: str | None = None) -> None:
        self.history = history
        self._by_meaning = by_meaning
        self._index = index or os.path.join(history.folder, INDEX)
        self._memory: Memory | None = None  # None until there is some knowledge
        self._notes: dict[str, tuple[str, str]] = {}  # the session's notes, with labels

    @property
    def memory(self) -> Memory:
        if self._memory is None:
            path = self._index if os.path.isdir(os.path.dirname(self._index)) else None
            self._memory = Memory(path, by_meaning=self._by_meaning)
        return self._memory

    @property
    def uses(self) -> UseStore:
        return UseStore(self.history.root, self.memory.cache)

    @property
    def known(self) -> int:
        """The number of known items."""
        return len(self._memory) if self._memory else 0

    def close(self) -> None:
        if self._memory:
            self._memory.close()

    # --- updating the index -----------------------------------------------------------------------

    def sync(self, session_id: str = "", notes: Sequence[SessionState] = ()) -> None:
        """Updates the memory from the history, and from a session's notes."""
        if not self._is_empty(notes):
            self._answered(lambda: self._sync(session_id, notes))

    def _is_empty(self, notes: Sequence[SessionState]) -> bool:
        """Whether there is no knowledge yet: then no index is created either."""
        if self._memory or notes or os.path.lexists(self._index):
            return False
        return not (self.history.learnings(last=1) or self.history.patterns(last=1))

    def _answered(self, work: Callable[[], Result]) -> Result:
        """Runs `work`; if the contents of the index make no sense, again with a new index."""
        try:
            return work()
        except (ValueError, LookupError, TypeError, AttributeError):
            self.memory.cache.rebuild()
            self._sync_history()
            return work()

    def _sync(self, session_id: str, notes: Sequence[SessionState]) -> None:
        self.memory.cache.reopen()
        self._sync_history()
        self._sync_notes(session_id, notes)
        self.uses.read_on()

    def _sync_history(self) -> None:
        for _ in range(_MAX_TRIES):
            if self._keep_up():
                return

    def _keep_up(self) -> bool:
        """Applies the changes; returns False if another process was faster."""
        since = self.memory.fact("mark")
        learnt = self.history.learnt(since)
        fresh = {one.id: (one.content, _label_learning(one)) for one in learnt.learnings}
        fresh |= {one.id: (_format_pattern(one), _label_pattern(one)) for one in learnt.patterns}
        gone = learnt.gone
        if learnt.is_whole:
            held = self.memory.held()
            gone = [id for id in held if id not in fresh and not id.startswith(NOTE)]
            fresh = {id: one for id, one in fresh.items() if held.get(id) != one}
        return since == learnt.mark or self.memory.update(fresh, gone, since=since, mark=learnt.mark)

    def _sync_notes(self, session_id: str, notes: Sequence[SessionState]) -> None:
        """Updates a session's notes; notes of finished sessions are in the history by now."""
        self._notes = {
            note_id(session_id, number): (one["description"], build_note_label({**one, "type": _find_type(one)}))
            for number, one in enumerate(notes)
        }
        held = self.memory.held(NOTE)
        old = [id for id in held if parse_session(id) == session_id and id not in self._notes]
        if old := [*old, *find_finished_notes(held.keys() - set(old))]:
            self.memory.remove(*old)
        if fresh := {id: one for id, one in self._notes.items() if held.get(id) != one}:
            self.memory.add_all([(id, text) for id, (text, _) in fresh.items()], [label for _, label in fresh.values()])

    # --- queries ----------------------------------------------------------------------------------

    def search(self, text: str, limit: int = 10) -> list[KnownItem]:
        """The knowledge about a topic, the best first, including notes of open sessions."""
        if not self._memory:
            return []
        return self._answered(lambda: self._told(dict(self.memory.search(text, limit)), self.memory.held(NOTE)))

    def select_for_story(self, wanted: KnowledgeQuery) -> RelevantKnowledge:
        """The knowledge that is relevant to a story. Workarounds for failures like its last one come first."""
        if not self._memory:
            return RelevantKnowledge((), 0)
        return self._answered(lambda: self._for_story(wanted))

    def _for_story(self, wanted: KnowledgeQuery) -> RelevantKnowledge:
        failed = self._found(wanted.failure)
        scores = self._relevant(wanted, failed)
        for id, worth in self._list_favoured(wanted):
            scores[id] = scores.get(id, 0.0) + worth
        items = self._rank(self._told(scores), failed)
        told, repeats = _merge_repeats(self.memory, [*items, *self._list_others(scores)])
        return RelevantKnowledge(tuple(told), len(self.memory) - repeats)

    def _relevant(self, wanted: KnowledgeQuery, failed: Mapping[str, float]) -> dict[str, float]:
        """The scores of what relates to the story as a whole, one of its tasks, the last failure, or its files."""
        tasks = [one for one in wanted.tasks if len(set(tokens.split_tokens(one))) >= _TELLING][:_TASKS]
        found = [*map(self._found, ("\n".join([wanted.story, *wanted.tasks]), wanted.story, *tasks)), failed]
        found.append({id: _BY_FILES * score for id, score in self._found(" ".join(wanted.files)).items()})
        scores: dict[str, float] = {}
        for id, score in (one for part in found for one in part.items()):
            scores[id] = max(score, scores.get(id, 0.0))
        # The longer the query, the smaller the scores: the best ones count in any case.
        least = min(_RELEVANT, max(scores.values(), default=0.0) / 2)
        return {id: score for id, score in scores.items() if score >= least}

    def _list_favoured(self, wanted: KnowledgeQuery) -> list[tuple[str, float]]:
        """The last learnings of the story's own attempts, and those of this run: they are about this change."""
        own = [(id, _OWN) for id in self._own(wanted)]
        return own + [(id, _FRESH * _FADING**age) for age, id in enumerate(islice(reversed(self._notes), _NEWEST))]

    def _found(self, text: str) -> dict[str, float]:
        return dict(self.memory.search(text[:_LONGEST], _SEARCH_LIMIT)) if text.strip() else {}

    def _own(self, wanted: KnowledgeQuery) -> list[str]:
        """The last learnings of the story's own attempts."""
        known = [one.id for one in self.history.learnings(prd_id=wanted.prd_id, last=_OWNED)]
        source = build_note_source(wanted.story_id)
        noted = [id for id, (_, about) in self._notes.items() if msgspec.json.decode(about)["source"] == source]
        return [*known, *(noted if source else ())][-_OWNED:]

    def _rank(self, items: Sequence[KnownItem], failed: Mapping[str, float]) -> list[KnownItem]:
        """By relevance, and by how much they helped before."""
        uses = self.uses.of(usefulness.digest(one.text) for one in items)
        usual = self.uses.success_rate()
        weighed = [
            msgspec.structs.replace(
                one,
                score=one.score * uses.get(usefulness.digest(one.text), UseCounts()).factor(usual),
                is_workaround=one.type == "error-workaround" and failed.get(_get_id(one), 0.0) >= _LIKE_THE_FAILURE,
            )
            for one in items
        ]
        ranked = sorted(weighed, key=lambda one: (one.score, one.order), reverse=True)
        first = sorted((one for one in ranked if one.is_workaround), key=lambda one: -failed[_get_id(one)])[:_AROUND]
        return [*first, *(one for one in ranked if one not in first)]

    def _list_others(self, scores: Mapping[str, float]) -> list[KnownItem]:
        """Items that helped often, and new ones, to fill the remaining room."""
        newest = [*reversed(self._notes), *(one.id for one in reversed(self.history.learnings(last=_NEWEST)))][:_NEWEST]
        ids = [id for id in dict.fromkeys([*self.uses.most_helpful(_HELPFUL), *newest]) if id not in scores]
        told = {_get_id(one): one for one in self._told(dict.fromkeys(ids, 0.0))}
        return [told[id] for id in ids if id in told]

    def _told(self, scores: Mapping[str, float], notes: Mapping[str, tuple[str, str]] | None = None) -> list[KnownItem]:
        """The items with these ids, with the text from the history or the session: the index is only a cache."""
        found = {
            one.id: _convert_learning(one) for one in self.history.find_learnings(_filter_ids(scores, "learning-"))
        }
        found |= {one.id: _convert_pattern(one) for one in self.history.find_patterns(_filter_ids(scores, "pattern-"))}
        notes = self._notes if notes is None else notes
        found |= {id: _convert_note(id, *notes[id]) for id in scores if id in notes}
        return [msgspec.structs.replace(found[id], score=score) for id, score in scores.items() if id in found]


def _merge_repeats(memory: Memory, items: Iterable[KnownItem]) -> tuple[list[KnownItem], int]:
    """Each item once, and the number of repeats that were merged into others.

    Of two that contradict each other, the later one is kept.
    """
    kept: list[tuple[KnownItem, set[str]]] = []
    repeats, close = 0, _TextComparer(memory)
    for one in items:
        spelled = set(one.text[:_COMPARED].lower().split())
        twin, is_opposite = close.find_twin(one, spelled, kept)
        if twin is None:
            kept.append((one, spelled))
        elif is_opposite:
            kept[twin] = max(kept[twin], (one, spelled), key=lambda other: other[0].order)
        else:
            other, known = kept[twin]
            sources = tuple(dict.fromkeys([*other.sources, *one.sources]))
            kept[twin] = msgspec.structs.replace(other, sources=sources), known
            repeats += 1
        if len(kept) >= _MOST:
            break  # no prompt has room for more
    return [one for one, _ in kept], repeats


class _TextComparer:
    """Compares texts closely, up to a limit: if hundreds are similar, the first ones matter."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._left = _MOST_COMPARED

    def find_twin(
        self, one: KnownItem, spelled: set[str], kept: Sequence[tuple[KnownItem, set[str]]]
    ) -> tuple[int | None, bool]:
        """The index of an item that says the same, or the opposite. Only items that share many words are compared."""
        for place, (other, known) in enumerate(kept):
            if self._left and len(spelled & known) >= _ALIKE * min(len(spelled), len(known)):
                self._left -= 1
                match = self._memory.same(one.text[:_COMPARED], other.text[:_COMPARED])
                if match.level == "same" or match.is_opposite:
                    return place, match.is_opposite
        return None, False


# --- records and their labels in the index -----------------------------------------------------------


def _label_learning(one: Learning) -> str:
    return build_label("learning", one.type, one.source_prd_id, one.created_at)


def _label_pattern(one: Pattern) -> str:
    return build_label("pattern", one.type, one.source_prd_id or "", one.discovered_at)


def _find_type(note: SessionState) -> str:
    return note.get("type") or classify.find_learning_type(note["description"])


def _convert_learning(one: Learning) -> KnownItem:
    return KnownItem(
        id=one.id,
        kind="learning",
        type=one.type,
        text=one.content,
        sources=(one.source_prd_id,),
        created_at=one.created_at,
        order=parse_number(one.id),
    )


def _convert_pattern(one: Pattern) -> KnownItem:
    return KnownItem(
        id=one.id,
        kind="pattern",
        type=one.type,
        text=_format_pattern(one),
        sources=(one.source_prd_id,) if one.source_prd_id else (),
        created_at=one.discovered_at,
    )


def _convert_note(id: str, text: str, about: str) -> KnownItem:
    told: dict[str, Any] = msgspec.json.decode(about)
    return KnownItem(
        id=None,
        note=id,
        kind=told["kind"],
        type=told["type"],
        text=text,
        order=_AFTER_ALL + int(id.rpartition("/")[2]),
        sources=(told["source"],) if told["source"] else (),
        created_at=told["created_at"],
    )


def _get_id(one: KnownItem) -> str:
    return one.id or one.note


def _format_pattern(one: Pattern) -> str:
    return f"{one.name}: {one.description}" if one.description else one.name


def _filter_ids(ids: Iterable[str], prefix: str) -> list[str]:
    return [id for id in ids if id.startswith(prefix)]
