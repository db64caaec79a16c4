"""What a project has learnt, found by what it is about: the history's learnings and patterns in a memory.

The history decides what is known; the memory only tells what of it matters here. Its index lies in
`.ralph/memory.index`, and is brought up to date by whoever asks.
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
_MAX_TRIES = 20  # so often do we begin anew when others bring the index up to date at the same time
_SEARCH_LIMIT = 60  # for each thing that is looked for
_RELEVANT = 0.06  # below this score only chance words are shared
_LIKE_THE_FAILURE = 0.12  # from this score on, a way around an error may be one around this error;
_AROUND = 3  # so many of them come before all else
_OWN, _OWNED = 0.2, 3  # what a story's own attempts taught last matters, whatever its words
_FRESH, _FADING = 0.1, 0.9  # what was found out in this run does too, the last the most
_BY_FILES = 0.6  # names of files tell less than what is to be done
_TASKS, _TELLING = 6, 3  # that are looked for one by one, and words that make one worth it
_AFTER_ALL = 1 << 60  # notes are newer than all that is in the history
_HELPFUL, _NEWEST = 10, 10  # which are shown where there is room, whatever they are about
_LONGEST = 4000  # characters of what is looked for
_MOST, _COMPARED = 80, 2000  # texts that may come into a prompt, and characters of them that are compared
_MOST_COMPARED = 200
_ALIKE = 0.5  # of two texts' words that are shared: only then it is worth comparing them closely


class KnownItem(Struct, frozen=True, kw_only=True):
    """Something that is known."""

    id: str | None  # None for what is not in the history yet,
    note: str = ""  # which has this id in the index
    kind: str  # learning or pattern
    type: str
    text: str
    sources: tuple[str, ...]  # the PRDs that it comes from
    created_at: str = ""
    order: int = 0  # when it was recorded, among others: clocks may be wrong
    score: float = 0.0
    is_workaround: bool = False  # for a failure like the last one


class KnowledgeQuery(Struct, frozen=True, kw_only=True):
    """What somebody is about to do."""

    prd_id: str
    story: str
    story_id: str = ""
    tasks: Sequence[str] = ()  # each is looked for by itself as well: among many one word is lost
    failure: str = ""
    files: Sequence[str] = ()


class RelevantKnowledge(Struct, frozen=True):
    """What matters, the most first, and how much is known in all."""

    items: tuple[KnownItem, ...]
    known: int


class KnowledgeBase:
    def __init__(self, history: History, *, by_meaning: bool | None = None, index: str | None = None) -> None:
        self.history = history
        self._by_meaning = by_meaning
        self._index = index or os.path.join(history.folder, INDEX)
        self._memory: Memory | None = None  # none before there is something to be known
        self._notes: dict[str, tuple[str, str]] = {}  # what the session has noted, with labels

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
        """How much there is to be known."""
        return len(self._memory) if self._memory else 0

    def close(self) -> None:
        if self._memory:
            self._memory.close()

    # --- keeping up -------------------------------------------------------------------------------

    def sync(self, session_id: str = "", notes: Sequence[SessionState] = ()) -> None:
        """Brings the memory up to date with the history, and with what a session has noted."""
        if not self._is_empty(notes):
            self._answered(lambda: self._sync(session_id, notes))

    def _is_empty(self, notes: Sequence[SessionState]) -> bool:
        """Whether there is nothing to be known yet: then no index is made either."""
        if self._memory or notes or os.path.lexists(self._index):
            return False
        return not (self.history.learnings(last=1) or self.history.patterns(last=1))

    def _answered(self, work: Callable[[], Result]) -> Result:
        """With a new index, if what stands in the one that is there makes no sense."""
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
        """Takes in what has changed; tells whether nobody else was quicker."""
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
        """What a session has noted; notes of sessions that are over stand in the history by now."""
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

    # --- asking -----------------------------------------------------------------------------------

    def search(self, text: str, limit: int = 10) -> list[KnownItem]:
        """What is known about something, the best first; also what sessions have noted that are still open."""
        if not self._memory:
            return []
        return self._answered(lambda: self._told(dict(self.memory.search(text, limit)), self.memory.held(NOTE)))

    def select_for_story(self, wanted: KnowledgeQuery) -> RelevantKnowledge:
        """What matters to a story. Ways around a failure like its last one come first."""
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
        """What has to do with the story as a whole, with one of its tasks, the last failure, or its files."""
        tasks = [one for one in wanted.tasks if len(set(tokens.split_tokens(one))) >= _TELLING][:_TASKS]
        found = [*map(self._found, ("\n".join([wanted.story, *wanted.tasks]), wanted.story, *tasks)), failed]
        found.append({id: _BY_FILES * score for id, score in self._found(" ".join(wanted.files)).items()})
        scores: dict[str, float] = {}
        for id, score in (one for part in found for one in part.items()):
            scores[id] = max(score, scores.get(id, 0.0))
        # The more is asked for at once, the smaller are the scores: the best ones count in any case.
        least = min(_RELEVANT, max(scores.values(), default=0.0) / 2)
        return {id: score for id, score in scores.items() if score >= least}

    def _list_favoured(self, wanted: KnowledgeQuery) -> list[tuple[str, float]]:
        """What the story's own attempts taught last, and what this run has found out: it is about this change."""
        own = [(id, _OWN) for id in self._own(wanted)]
        return own + [(id, _FRESH * _FADING**age) for age, id in enumerate(islice(reversed(self._notes), _NEWEST))]

    def _found(self, text: str) -> dict[str, float]:
        return dict(self.memory.search(text[:_LONGEST], _SEARCH_LIMIT)) if text.strip() else {}

    def _own(self, wanted: KnowledgeQuery) -> list[str]:
        """What the story's own attempts taught last."""
        known = [one.id for one in self.history.learnings(prd_id=wanted.prd_id, last=_OWNED)]
        source = build_note_source(wanted.story_id)
        noted = [id for id, (_, about) in self._notes.items() if msgspec.json.decode(about)["source"] == source]
        return [*known, *(noted if source else ())][-_OWNED:]

    def _rank(self, items: Sequence[KnownItem], failed: Mapping[str, float]) -> list[KnownItem]:
        """By how much they matter, and how much they helped before."""
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
        """What helped often, and what is new: for the room that is left."""
        newest = [*reversed(self._notes), *(one.id for one in reversed(self.history.learnings(last=_NEWEST)))][:_NEWEST]
        ids = [id for id in dict.fromkeys([*self.uses.most_helpful(_HELPFUL), *newest]) if id not in scores]
        told = {_get_id(one): one for one in self._told(dict.fromkeys(ids, 0.0))}
        return [told[id] for id in ids if id in told]

    def _told(self, scores: Mapping[str, float], notes: Mapping[str, tuple[str, str]] | None = None) -> list[KnownItem]:
        """What is known under these ids, in the history's own words, or the session's: the index is only a cache."""
        found = {
            one.id: _convert_learning(one) for one in self.history.find_learnings(_filter_ids(scores, "learning-"))
        }
        found |= {one.id: _convert_pattern(one) for one in self.history.find_patterns(_filter_ids(scores, "pattern-"))}
        notes = self._notes if notes is None else notes
        found |= {id: _convert_note(id, *notes[id]) for id in scores if id in notes}
        return [msgspec.structs.replace(found[id], score=score) for id, score in scores.items() if id in found]


def _merge_repeats(memory: Memory, items: Iterable[KnownItem]) -> tuple[list[KnownItem], int]:
    """Each thing once, and how many are told with another one that says the same.

    Of two that contradict each other it is the later one.
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
    """Compares texts closely, as often as it may: where hundreds are much alike, the first ones matter."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._left = _MOST_COMPARED

    def find_twin(
        self, one: KnownItem, spelled: set[str], kept: Sequence[tuple[KnownItem, set[str]]]
    ) -> tuple[int | None, bool]:
        """Where something stands that says the same, or the opposite. Only what shares many words is looked at."""
        for place, (other, known) in enumerate(kept):
            if self._left and len(spelled & known) >= _ALIKE * min(len(spelled), len(known)):
                self._left -= 1
                match = self._memory.same(one.text[:_COMPARED], other.text[:_COMPARED])
                if match.level == "same" or match.is_opposite:
                    return place, match.is_opposite
        return None, False


# --- records, and what is kept of them with the index ------------------------------------------------


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
