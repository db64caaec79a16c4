"""What a project has learnt, found by what it is about: the history's learnings and patterns in a memory.

The history decides what is known; the memory only tells what of it matters here. Its index lies in
`.ralph/memory.index`, and is brought up to date by whoever asks.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ralphtool import session, usefulness
from ralphtool.history import kinds
from ralphtool.memory import Memory
from ralphtool.memory.labels import INDEX, NOTE, label, note_id, note_label
from ralphtool.usefulness import Use, Uses

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ralphtool.history import History
    from ralphtool.history.records import Learning, Pattern
    from ralphtool.session import State

_FOUND = 60  # for each thing that is looked for
_RELEVANT = 0.06  # below this score only chance words are shared
_OWN = 0.2  # what a story's own attempts taught matters, whatever its words
_HELPFUL, _NEWEST = 10, 10  # which are shown where there is room, whatever they are about
_LONGEST = 4000  # characters of what is looked for
_ALIKE = 0.5  # of two texts' words that are shared: only then it is worth comparing them closely


class Remembered(Struct, frozen=True, kw_only=True):
    """Something that is known."""

    id: str | None  # None for what is not in the history yet
    kind: str  # learning or pattern
    type: str
    text: str
    sources: tuple[str, ...]  # the PRDs that it comes from
    created_at: str = ""
    score: float = 0.0
    is_workaround: bool = False  # for a failure like the last one


class Wanted(Struct, frozen=True, kw_only=True):
    """What somebody is about to do."""

    prd_id: str
    story: str
    failure: str = ""
    files: Sequence[str] = ()


class Remembrance(Struct, frozen=True):
    """What matters, the most first, and how much is known in all."""

    items: tuple[Remembered, ...]
    known: int


class Knowledge:
    def __init__(self, history: History, *, by_meaning: bool | None = None) -> None:
        self.history = history
        folder = history.folder if os.path.isdir(history.folder) else None
        self.memory = Memory(os.path.join(folder, INDEX) if folder else None, by_meaning=by_meaning)
        self.uses = Uses(history.root, self.memory.cache)

    def close(self) -> None:
        self.memory.close()

    # --- keeping up -------------------------------------------------------------------------------

    def sync(self, session_id: str = "", notes: Sequence[State] = ()) -> None:
        """Brings the memory up to date with the history, and with what a session has noted."""
        learnt = self.history.learnt(self.memory.fact("mark"))
        fresh = {one.id: (one.content, label_of(one)) for one in learnt.learnings}
        fresh |= {one.id: (_pattern_text(one), _pattern_label(one)) for one in learnt.patterns}
        gone = learnt.gone
        if learnt.is_whole:
            held = self.memory.held()
            gone = [id for id in held if id not in fresh and not id.startswith(NOTE)]
            fresh = {id: one for id, one in fresh.items() if held.get(id) != one}
        self._change(fresh, gone)
        self.memory.note(mark=learnt.mark)
        self._sync_notes(session_id, notes)
        self.uses.read_on()

    def _sync_notes(self, session_id: str, notes: Sequence[State]) -> None:
        """Notes of sessions that are over stand in the history by now."""
        wanted = {
            note_id(session_id, number): (one["description"], note_label({"type": _type(one), **one}))
            for number, one in enumerate(notes)
        }
        held = self.memory.held(NOTE)
        over = {session for session in map(_session_of, held) if session == session_id or not _is_open(session)}
        old = [id for id in held if id not in wanted and _session_of(id) in over]
        self._change({id: one for id, one in wanted.items() if held.get(id) != one}, old)

    def _change(self, fresh: Mapping[str, tuple[str, str]], gone: Sequence[str]) -> None:
        if gone:
            self.memory.remove(*gone)
        if fresh:
            self.memory.add_all([(id, text) for id, (text, _) in fresh.items()], [label for _, label in fresh.values()])

    # --- asking -----------------------------------------------------------------------------------

    def search(self, text: str, limit: int = 10) -> list[Remembered]:
        """What is known about something, the best first."""
        found = dict(self.memory.search(text, limit))
        return self._told(found)

    def for_story(self, wanted: Wanted) -> Remembrance:
        """What matters to a story. Ways around a failure like its last one come first."""
        failed = dict(self.memory.search(wanted.failure[:_LONGEST], _FOUND)) if wanted.failure.strip() else {}
        scores = dict(self.memory.search(wanted.story[:_LONGEST], _FOUND))
        about_files = self.memory.search(" ".join(wanted.files)[:_LONGEST], _FOUND) if wanted.files else []
        for id, score in (*failed.items(), *((id, 0.6 * score) for id, score in about_files)):
            scores[id] = max(score, scores.get(id, 0.0))
        scores = {id: score for id, score in scores.items() if score >= _RELEVANT}
        for one in self.history.learnings(prd_id=wanted.prd_id, last=_NEWEST):
            scores[one.id] = scores.get(one.id, 0.0) + _OWN
        items = self._weighed(self._told(scores), failed)
        return Remembrance(tuple(_merged(self.memory, [*items, *self._others(scores)])), len(self.memory))

    def _weighed(self, items: Sequence[Remembered], failed: Mapping[str, float]) -> list[Remembered]:
        """By how much they matter, and how much they helped before."""
        uses = self.uses.of(usefulness.digest(one.text) for one in items)
        usual = self.uses.usual()
        weighed = [
            msgspec.structs.replace(
                one,
                score=one.score * uses.get(usefulness.digest(one.text), Use()).factor(usual),
                is_workaround=one.type == "error-workaround" and failed.get(one.id or "", 0.0) >= _RELEVANT,
            )
            for one in items
        ]
        return sorted(weighed, key=lambda one: (one.is_workaround, one.score, one.created_at), reverse=True)

    def _others(self, scores: Mapping[str, float]) -> list[Remembered]:
        """What helped often, and what is new: for the room that is left."""
        newest = [one.id for one in self.history.learnings(last=_NEWEST)][::-1]
        ids = [id for id in dict.fromkeys([*self.uses.most_helpful(_HELPFUL), *newest]) if id not in scores]
        told = {one.id: one for one in self._told(dict.fromkeys(ids, 0.0))}
        return [told[id] for id in ids if id in told]

    def _told(self, scores: Mapping[str, float]) -> list[Remembered]:
        """What is known under these ids, in the history's own words: the index is only a cache."""
        found = {one.id: _learning(one) for one in self.history.learnings_of(_of(scores, "learning-"))}
        found |= {one.id: _pattern(one) for one in self.history.patterns_of(_of(scores, "pattern-"))}
        notes = self.memory.get(id for id in scores if id.startswith(NOTE))
        found |= {id: _note(text, label) for id, (text, label) in notes.items()}
        return [msgspec.structs.replace(found[id], score=score) for id, score in scores.items() if id in found]


def _merged(memory: Memory, items: Iterable[Remembered]) -> list[Remembered]:
    """Each thing once: what says the same is told once, and of two that contradict each other the later one."""
    kept: list[Remembered] = []
    for one in items:
        twin = next((place for place, other in enumerate(kept) if _is_twin(memory, one, other)), None)
        if twin is None:
            kept.append(one)
        elif memory.same(one.text, kept[twin].text).is_opposite:
            kept[twin] = max(kept[twin], one, key=lambda other: other.created_at)
        else:
            sources = tuple(dict.fromkeys([*kept[twin].sources, *one.sources]))
            kept[twin] = msgspec.structs.replace(kept[twin], sources=sources)
    return kept


def _is_twin(memory: Memory, one: Remembered, other: Remembered) -> bool:
    left, right = set(one.text.lower().split()), set(other.text.lower().split())
    if len(left & right) < _ALIKE * min(len(left), len(right)):
        return False
    match = memory.same(one.text, other.text)
    return match.level == "same" or match.is_opposite


# --- records, and what is kept of them with the index ------------------------------------------------


def label_of(one: Learning) -> str:
    return label("learning", one.type, one.source_prd_id, one.created_at)


def _pattern_label(one: Pattern) -> str:
    return label("pattern", one.type, one.source_prd_id or "", one.discovered_at)


def _type(note: State) -> str:
    return note.get("type") or kinds.of_learning(note["description"])


def _learning(one: Learning) -> Remembered:
    return Remembered(
        id=one.id,
        kind="learning",
        type=one.type,
        text=one.content,
        sources=(one.source_prd_id,),
        created_at=one.created_at,
    )


def _pattern(one: Pattern) -> Remembered:
    return Remembered(
        id=one.id,
        kind="pattern",
        type=one.type,
        text=_pattern_text(one),
        sources=(one.source_prd_id,) if one.source_prd_id else (),
        created_at=one.discovered_at,
    )


def _note(text: str, about: str) -> Remembered:
    told: dict[str, Any] = msgspec.json.decode(about)
    return Remembered(
        id=None,
        kind="learning",
        type=told["type"],
        text=text,
        sources=(told["source"],) if told["source"] else (),
        created_at=told["created_at"],
    )


def _pattern_text(one: Pattern) -> str:
    return f"{one.name}: {one.description}" if one.description else one.name


def _of(ids: Iterable[str], prefix: str) -> list[str]:
    return [id for id in ids if id.startswith(prefix)]


def _session_of(note: str) -> str:
    return note.removeprefix(NOTE).rpartition("/")[0]


def _is_open(session_id: str) -> bool:
    return os.path.exists(session.path_of(session_id))
