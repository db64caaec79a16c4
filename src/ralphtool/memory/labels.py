"""What is kept with each text in a project's index: which kind it is, and where it comes from."""

from __future__ import annotations

from ralphtool import quickjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralphtool.session import State

INDEX = "memory.index"
NOTE = "note/"  # ids of what a session has recorded and not written out yet: note/SESSION/NUMBER


def note_id(session_id: str, number: int) -> str:
    return f"{NOTE}{session_id}/{number}"


def note_label(note: State) -> str:
    source = f"story {note['story_id']}" if note.get("story_id") else ""
    return label("learning", str(note.get("type") or ""), source, str(note.get("timestamp") or ""))


def label(kind: str, type: str, source: str, created_at: str) -> str:
    """What is kept with a text in the index."""
    return quickjson.dumps({"kind": kind, "type": type, "source": source, "created_at": created_at})
