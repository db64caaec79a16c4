"""The label of each text in a project's index: its kind, and its source."""

from __future__ import annotations

import os

from ralphtool.core import project, quickjson, session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from ralphtool.core.session import SessionState

INDEX = "memory.index"
NOTE = "note/"  # prefix of notes that a session has not written out yet: note/SESSION/NUMBER


def list_notes(state: SessionState) -> list[SessionState]:
    """The learnings and patterns of a session, in the same form."""
    patterns = [{**one, "description": f"{one['name']}: {one['description']}"} for one in state["patterns"]]
    return [*state["learnings"], *patterns]


def note_id(session_id: str, number: int) -> str:
    return f"{NOTE}{session_id}/{number}"


def get_id_in_history(id: str) -> str | None:
    return None if id.startswith(NOTE) else id


def find_finished_notes(ids: Collection[str]) -> list[str]:
    """The notes among these whose sessions are over: they are in the history by now, or lost."""
    names = set(map(parse_session, ids))
    is_open = {name for name in names if project.is_name(name) and os.path.exists(session.path_of(name))}
    return [id for id in ids if id.startswith(NOTE) and parse_session(id) not in is_open]


def parse_session(note: str) -> str:
    return note.removeprefix(NOTE).rpartition("/")[0]


def build_note_label(note: SessionState) -> str:
    source = build_note_source(note.get("story_id"))
    kind = "pattern" if "name" in note else "learning"
    return build_label(kind, str(note.get("type") or ""), source, str(note.get("timestamp") or ""))


def build_note_source(story: str | None) -> str:
    return f"story {story}" if story else ""


def build_label(kind: str, type: str, source: str, created_at: str) -> str:
    """The label of a text in the index."""
    return quickjson.dumps({"kind": kind, "type": type, "source": source, "created_at": created_at})
