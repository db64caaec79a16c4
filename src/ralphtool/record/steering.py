"""Steering commands, from a person to a run: one small file for each, in `.ralph/steering/<change>/`.

Any process may write one at any time; files appear complete, and no writer waits for another. The run looks there a few
times a second, records what it found as an event, and applies it when it can. The file is removed only when the command
is part of the change state. So a kill loses nothing, and a command that was not applied is left for the next run.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Literal

from ralphtool.core import files, layout, locks, project, quickjson, sender, session
from ralphtool.errors import UnsafePath
from ralphtool.record.person_text import LONGEST, check_text
from ralphtool.record.plain_state import load_change_state

if TYPE_CHECKING:
    from collections.abc import Collection

Action = Literal["pause", "resume", "stop", "stop-after", "guide", "forget", "retry", "skip", "accept", "reject"]
ACTIONS: tuple[Action, ...] = (
    *("pause", "resume", "stop", "stop-after", "guide", "forget", "retry", "skip", "accept", "reject"),
)
MAX_GUIDANCE = 20  # texts kept for a story, or for all stories
JUDGEMENTS: tuple[Action, ...] = ("accept", "reject")  # no agent may send these
_LONGEST_NAME = 200
_LONGEST = 200_000  # bytes; ralphtool writes no larger ones


class SteeringCommand:
    """One command from a person."""

    __slots__ = ("action", "at", "by", "entry", "id", "run", "sender", "story", "text", "via")

    def __init__(
        self,
        id: str,
        action: Action,
        story: str | None,
        text: str,
        run: str | None = None,
        at: str = "",
        *,
        by: str = "",
        entry: str | None = None,
        sender: object = None,
        via: str = "",
    ) -> None:
        self.id = id  # the name of its file; later commands sort later
        self.action = action
        self.story = story
        self.text = text
        self.run = run  # the only run that it is meant for, if there is one
        self.at = at
        self.by = by  # who sent it, if that matters
        self.entry = entry  # the attempt that it is about, if any
        self.sender = sender  # the process that sent it, if that matters
        self.via = via  # `web` if it was sent through the web page


def folder_of(root: str, change: str) -> str:
    project.check_name(change, "a change's name")
    return layout.steering(root, change)


def send(
    root: str,
    change: str,
    action: Action,
    story: str | None = None,
    text: str = "",
    run: str | None = None,
    **more: Any,
) -> str:
    """Sends a command to the current or next run of a change; returns its id. It is on disk when this returns."""
    folder = folder_of(root, change)
    for above in (layout.folder(root), os.path.dirname(folder), folder):
        files.ensure_folder(above)
    ignore = os.path.join(os.path.dirname(folder), ".gitignore")
    if not os.path.lexists(ignore):
        _create_file(ignore, b"*\n")
    told = {
        "action": action,
        "story": story,
        "text": text and check_text(text),
        "run": run,
        "at": session.now(),
        **sender.describe_via(),
        **more,
    }
    name = f"{_next_timestamp(folder):020}-{os.urandom(4).hex()}.json"
    _create_file(os.path.join(folder, name), quickjson.dumps(told).encode() + b"\n")
    return name


def _next_timestamp(folder: str) -> int:
    """Later than all earlier commands, even if the clock was changed."""
    said = [int(name[:20]) for name in os.listdir(folder) if name[:20].isdecimal() and name[20:21] == "-"]
    return max([time.time_ns(), *(moment + 1 for moment in said)])


def _create_file(path: str, data: bytes) -> None:
    aside = files.prepare(path, data)
    try:
        files.publish(aside, path)
    except FileExistsError:
        pass  # another process was faster to write the same
    finally:
        files.finish_publish(aside, path)


def list_pending(root: str, change: str, known: Collection[str] = ()) -> list[SteeringCommand]:
    """The commands that are not applied yet, in the order in which they were sent, without those in `known`."""
    folder = folder_of(root, change)
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = [
        _read_command(folder, name) for name in names if name.endswith(".json") and name[0] != "." and name not in known
    ]
    return [one for one in found if one is not None]


def _read_command(folder: str, name: str) -> SteeringCommand | None:
    """A file that is not a steering command is left alone."""
    try:
        fd = files.open_in_project(os.path.join(folder, name))
    except (OSError, UnsafePath):
        return None
    try:
        fields = quickjson.loads(files.read_at(fd, 0, _LONGEST).decode())
        action, story, text, run, at = (fields.get(key) for key in ("action", "story", "text", "run", "at"))
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    finally:
        os.close(fd)
    is_ours = action in ACTIONS and _is_text(story) and _is_text(run) and isinstance(text, str) and isinstance(at, str)
    by, entry = fields.get("by", ""), fields.get("entry")
    if not (is_ours and isinstance(by, str) and _is_text(entry)):
        return None
    more = {"by": _clean(by)[:_LONGEST_NAME], "entry": entry and _clean(entry), "sender": fields.get("sender")}
    more["via"] = "web" if fields.get("via") == "web" else ""
    return SteeringCommand(name, action, story and _clean(story), _clean(text), run, at, **more)


def _clean(text: str) -> str:
    """Text that can be written: the file may not be ralphtool's."""
    return text.encode("utf-8", "replace").decode()[:LONGEST]


def _is_text(value: object) -> bool:
    return value is None or isinstance(value, str)


def is_paused(root: str, change: str) -> bool:
    """Whether the change is paused, or will be as soon as its run applies the last command."""
    fields = load_change_state(root, change)
    new = list_pending(root, change, fields.get("heeded") or ())
    words = [one.action for one in new if one.action in ("pause", "resume")]
    return words[-1] == "pause" if words else fields.get("paused") is True


def list_guidance(root: str, change: str) -> list[tuple[str | None, str]]:
    """A person's guidance that is still valid: the story that it is for, if any, and the text."""
    fields = load_change_state(root, change)
    found: list[tuple[str | None, str]] = [(None, text) for text in fields.get("told") or ()]
    found += [(id, text) for id, one in fields.get("stories", {}).items() for text in one.get("told") or ()]
    for one in list_pending(root, change, fields.get("heeded") or ()):
        if one.action == "forget":
            found = [each for each in found if one.story is not None and each[0] != one.story]
        elif one.text and one.action in ("guide", "retry"):
            found.append((one.story, one.text))
    return found


def remove_applied(root: str, change: str, ids: Collection[str]) -> None:
    """Removes commands that have become part of the change state."""
    for id in ids:
        files.remove(os.path.join(folder_of(root, change), os.path.basename(id)))


def clear(root: str, change: str, applied: Collection[str]) -> None:
    """Removes the commands that no run will apply any more. Those that were applied stay until a run records them."""
    folder = folder_of(root, change)
    if not applied:
        files.clear(folder)
    for one in list_pending(root, change, applied):
        files.remove(os.path.join(folder, one.id))


def describe_when(root: str, change: str) -> str:
    """When a command applies, for the end of a message: empty if a run is there to apply it."""
    lock = locks.find_holder(root, change)
    return "" if lock and lock.owner else f"; {change} is not running now, so this applies to its next run"
