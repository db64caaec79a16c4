"""Answers an agent's query for knowledge: `ralphtool agent recall "…"`.

An agent may ask often, so the answer comes from the memory's index alone while that is up to date, according to the
state of the history's files. Only if it is not, the history itself is opened.
"""

from __future__ import annotations

import os

from ralphtool.core import files, layout, quickjson, secrets
from ralphtool.memory import Memory
from ralphtool.memory.labels import INDEX, NOTE, build_note_label, find_finished_notes, note_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.core.session import SessionState

MOST = 10


def answer_query(root: str, session_id: str, notes: Sequence[SessionState], text: str) -> SessionState:
    """Up to ten known items about a topic, and the number of all known items."""
    folder = layout.folder(root)
    notes = secrets.mask(list(notes), secrets.list_values())
    memory = Memory(os.path.join(folder, INDEX) if os.path.isdir(folder) else None, by_meaning=False)
    try:
        if not _is_current(memory.fact("mark"), folder):
            memory.close()
            memory = _open_synced_memory(root)
        return _search_memory(memory, session_id, notes, text)
    except (ValueError, LookupError, TypeError, AttributeError):  # the contents of the index make no sense: rebuild it
        memory.cache.rebuild()
        memory.close()
        memory = _open_synced_memory(root)
        return _search_memory(memory, session_id, notes, text)
    finally:
        memory.close()


def _search_memory(memory: Memory, session_id: str, notes: Sequence[SessionState], text: str) -> SessionState:
    _sync_notes(memory, session_id, notes)
    scores = dict(memory.search(text, MOST))
    found = memory.get(scores)
    told = [
        {"id": id, "text": found[id][0], **_parse_label(found[id][1]), "score": round(score, 4)}
        for id, score in scores.items()
        if id in found  # another process may have removed it meanwhile
    ]
    return {"success": True, "learnings": told, "known": len(memory)}


def _open_synced_memory(root: str) -> Memory:
    from ralphtool.history import History
    from ralphtool.memory.knowledge import KnowledgeBase

    knowledge = KnowledgeBase(History(root), by_meaning=False)
    knowledge.sync()
    return knowledge.memory


def _is_current(mark: str, folder: str) -> bool:
    """Whether document and journal are unchanged since the index was updated."""
    if not mark:
        return False
    seen = quickjson.loads(mark)
    return _read_identity(layout.history(os.path.dirname(folder))) == seen["identity"] and _is_last_line(
        os.path.join(folder, "progress.journal"), seen["last"], seen["last_check"], seen["read_to"]
    )


def _read_identity(path: str) -> list[int] | None:
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return None
    return [info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns]


def _is_last_line(journal: str, last: int, check: str, end: int) -> bool:
    """Whether the journal's last line is the one that was read last."""
    try:
        fd = files.open_in_project(journal)
    except FileNotFoundError:
        return end == 0
    try:
        tail = files.read_at(fd, last, end + 1)
    finally:
        os.close(fd)
    return end > 0 and tail[:8] == check.encode() and tail[end - last :] in (b"", b"\0")


def _sync_notes(memory: Memory, session_id: str, notes: Sequence[SessionState]) -> None:
    """Adds notes since the last update of the index, mostly by this same agent."""
    held = memory.held(NOTE)
    if old := find_finished_notes(held):
        memory.remove(*old)
    ids = [note_id(session_id, number) for number in range(len(notes))]
    fresh = {id: one for id, one in zip(ids, notes, strict=True) if held.get(id, ("",))[0] != one["description"]}
    if fresh:
        memory.add_all([(id, one["description"]) for id, one in fresh.items()], map(build_note_label, fresh.values()))


def _parse_label(label: str) -> SessionState:
    told: SessionState = quickjson.loads(label)
    return {name: told[name] or None for name in ("kind", "type", "source", "created_at")}
