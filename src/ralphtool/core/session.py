"""A session's state: what one run over one change has recorded but not yet written out.

It is one file under the temporary directory, which each command replaces whole while it holds the
file's lock. Standard library only: every agent command imports this module.
"""

import os
import time

from ralphtool.core import files, project, quickjson
from ralphtool.errors import CorruptState, InvalidValue, SessionNotFound, shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    SessionState = dict[str, Any]

LEARNING_TYPES = (
    "codebase-pattern",
    "build-command",
    "test-pattern",
    "api-convention",
    "error-workaround",
    "tool-usage",
    "architecture-constraint",
    "dependency-quirk",
)
PATTERN_TYPES = (
    "file-structure",
    "naming-convention",
    "api-pattern",
    "test-pattern",
    "error-handling",
    "state-management",
    "build-pattern",
    "deployment-pattern",
)
OBSERVATION_TYPES = ("blocker", "finding", "completion")
CATEGORIES = (
    "bug",
    "stub",
    "dependency",
    "scope-creep",
    "api-issue",
    "test-failure",
    "tooling-friction",
    "architecture",
    "documentation",
    "performance",
    "security",
)
SEVERITIES = ("critical", "high", "medium", "low", "info")

NOTES = ("learnings", "patterns", "observations")  # what a flush writes out
BUFFERS = (*NOTES, "completed_tasks")


def now() -> str:
    """UTC, to the microsecond, as in 2026-01-31T09:30:00.000123Z."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{nanoseconds // 1000:06}Z"


# --- the session's file -----------------------------------------------------------------------------


def path_of(session_id: str) -> str:
    project.check_name(session_id, "a session id")
    return files.private_path("ralph", "sessions", f"{session_id}.json")


def load(session_id: str) -> "SessionState":
    path = path_of(session_id)
    try:
        return parse(files.read_private(path), path)
    except FileNotFoundError:
        raise _build_not_found_error(session_id) from None


class LockedSession:
    """The session's state, locked while the block runs. `save` writes changes."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.path = path_of(session_id)
        self._lock = files.FileLock(self.path, ours=True)

    def __enter__(self) -> "LockedSession":
        try:
            self._lock.__enter__()
        except FileNotFoundError:
            raise _build_not_found_error(self.session_id) from None
        try:
            self._data = self._lock.read()
            self.state = parse(self._data, self.path)
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *exception: "Any") -> None:
        self._lock.__exit__(*exception)

    def save(self) -> None:
        files.replace(self.path, encode(self.state))

    def add_learning(self, learning: "SessionState") -> int:
        """Adds a learning and saves; returns how many there are. The cost hardly grows with their number."""
        learnings: list[SessionState] = self.state["learnings"]
        head = encode({name: value for name, value in self.state.items() if name != "learnings"})
        prefix = head[: -len(b"}\n")] + b', "learnings": ['
        # We write the list last in the file. If it still is, the new one is appended as text.
        plain = self._data.startswith(prefix) and self._data.endswith(b"]}\n") and self._ends_with_list(len(prefix))
        learnings.append(learning)
        if plain:
            comma = b", " if len(learnings) > 1 else b""
            files.replace(self.path, self._data[: -len(b"]}\n")] + comma + encode(learning)[:-1] + b"]}\n")
        else:
            self.save()
        return len(learnings)

    def _ends_with_list(self, start: int) -> bool:
        """Whether the list that begins there is last in the file: another program may have added something after it."""
        items = self._data[start : -len(b"]}\n")]
        return b"]" not in items or b"]," not in items.translate(None, b" \t\r\n")

    def remove(self) -> None:
        files.remove(self.path)


def _build_not_found_error(session_id: str) -> SessionNotFound:
    return SessionNotFound(
        f"there is no session {session_id}: create one with `ralphtool agent session init --change NAME`, or use "
        "`ralphtool run`"
    )


def build_state(session_id: str, change: str) -> "SessionState":
    return {
        "session_id": session_id,
        "change_name": change,
        "current_story_id": None,
        "created_at": now(),
        "iteration": 0,
        "patterns": [],
        "observations": [],
        "completed_tasks": [],
        "learnings": [],  # last, so that adding to it is cheap
    }


def inherit(state: "SessionState", legacy: "SessionState") -> None:
    """Takes over the buffers of another session, without duplicates."""
    for name in BUFFERS:
        known = {quickjson.dumps(item) for item in state[name]}
        state[name] += [item for item in legacy[name] if quickjson.dumps(item) not in known]


def encode(state: "SessionState") -> bytes:
    return quickjson.dumps(state).encode("ascii") + b"\n"


def parse(data: bytes, path: str) -> "SessionState":
    state = _parse_object(data, path)
    if "accumulated_learnings" in state:  # the name in an earlier format
        earlier = state.pop("accumulated_learnings")
        if isinstance(earlier, list) and isinstance(state.setdefault("learnings", []), list):
            state["learnings"] = earlier + state["learnings"]
        else:
            state["learnings"] = None
    for name in BUFFERS:
        state.setdefault(name, [])
    state.setdefault("iteration", 0)
    state.setdefault("current_story_id", None)
    if not _is_session(state, os.path.basename(path)):
        raise CorruptState(f"{path} is not a session file: {_MOVE_ADVICE}")
    return state


_MOVE_ADVICE = "move it away, run `ralphtool unlock CHANGE`, and start a new session"


def _parse_object(data: bytes, path: str) -> "dict[str, Any]":
    try:
        value = quickjson.loads(files.decode(data, path))
    except ValueError as error:
        raise CorruptState(f"{path} is damaged ({error}): {_MOVE_ADVICE}") from None
    if not isinstance(value, dict):
        raise CorruptState(f"{path} is damaged (it holds no object): {_MOVE_ADVICE}")
    return value


def _is_session(state: "SessionState", file_name: str) -> bool:
    return (
        f"{state.get('session_id')}.json" == file_name
        and isinstance(state.get("change_name"), str)
        and project.is_name(state["change_name"])
        and isinstance(state.get("created_at"), str)
        and isinstance(state["current_story_id"], str | None)
        and type(state["iteration"]) is int
        and all(isinstance(state[name], list) for name in BUFFERS)
        and all(_has_text(item, "description") for item in state["learnings"])
        and all(_has_text(item, "name", "description") for item in state["patterns"])
        and all(_has_text(item, "type", "title") for item in state["observations"])
        and all(isinstance(task, str) for task in state["completed_tasks"])
    )


def _has_text(item: object, name: str, other: str | None = None) -> bool:
    """Without a loop over the names: there may be thousands of items."""
    if not isinstance(item, dict) or not isinstance(item.get(name), str):
        return False
    return other is None or isinstance(item.get(other), str)


# --- what the agent records -------------------------------------------------------------------------


def build_learning(text: str, task: str | None, story: str | None, iteration: int, kind: str | None) -> "SessionState":
    check_text(text, "a learning")
    if task is not None:
        check_label(task, "a task's id")
    check_choice(kind, LEARNING_TYPES, "--type")
    made: SessionState = {
        "description": text,
        "task_id": task,
        "story_id": story,
        "iteration": iteration,
        "timestamp": now(),
    }
    return made | ({"type": kind} if kind else {})


def build_pattern(name: str, description: str, kind: str | None) -> "SessionState":
    check_label(name, "a pattern's name")
    check_text(description, "a pattern's description")
    check_choice(kind, PATTERN_TYPES, "--type")
    made: SessionState = {"name": name, "description": description, "timestamp": now()}
    return made | ({"type": kind} if kind else {})


def build_observation(
    kind: str, title: str, story: str | None, iteration: int, more: "dict[str, str]"
) -> "SessionState":
    check_choice(kind, OBSERVATION_TYPES, "TYPE")
    check_label(title, "a title")
    check_choice(more.get("category"), CATEGORIES, "--category")
    check_choice(more.get("severity"), SEVERITIES, "--severity")
    for name in ("description", "file"):
        if (text := more.get(name)) is not None:
            check_text(text, f"--{name}")
    return {
        "type": kind,
        "title": title,
        "description": more.get("description"),
        "file": more.get("file"),
        "category": more.get("category"),
        "severity": more.get("severity"),
        "story_id": story,
        "iteration": iteration,
        "timestamp": now(),
    }


_LONGEST_TEXT = 4 << 20
# Besides those below the space: what some programs treat as a control character or a line end.
_UNPRINTABLE = "".join(map(chr, range(0x7F, 0xA0))) + "\u2028\u2029"


def check_text(text: str, what: str) -> None:
    if not text.strip():
        raise InvalidValue(f"{what} can't be empty: give some text")
    if len(text) > _LONGEST_TEXT:
        raise InvalidValue(f"{what} of {len(text)} characters is too long: the maximum is {_LONGEST_TEXT}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidValue(f"{what} must be UTF-8, but {shorten(text)} is not") from None


def check_label(text: str, what: str) -> None:
    """A text that must fit on one line: a name, a title, an id."""
    check_text(text, what)
    if len(text) > 1000 or any(character < " " or character in _UNPRINTABLE for character in text):
        raise InvalidValue(
            f"{what} must be one line of printable text, at most 1000 characters, but {shorten(text)} is not"
        )


def check_choice(value: str | None, allowed: "Sequence[str]", what: str) -> None:
    if value is not None and value not in allowed:
        raise InvalidValue(f"{what} can't be {shorten(value)}: use one of {', '.join(allowed)}")
