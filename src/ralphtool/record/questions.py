"""What waits for a human: one file for each question, in `.ralph/questions/`, that is read and answered in place.

Which questions wait is told by where the change stands (`.ralph/standing/`), never by the files: a `git clean` is no
answer. Whoever takes an answer up and whoever writes one take turns, so that none falls in between.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ralphtool.core import files, layout, project, quickjson, sender
from ralphtool.errors import CorruptState, InvalidValue, UnsafePath

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

LONGEST = 16_000  # characters of an answer, or of anything else that a person tells an agent
_MOST = 1 << 20  # bytes of a question with its answer
_ANSWER = "## Answer"
_HINT = (
    "<!-- Write below this line what the agent should know or do, and save. The current or next run tries the story "
    "again, with your answer and fresh attempts. -->"
)
# Questions that were asked by an earlier version may still be open.
_EARLIER_HINT = (
    "<!-- Write below this line what the agent should know or do, and save: the story is taken up with your answer and "
    "fresh attempts, by a run that goes on, or by the next one. -->"
)


_VIA_WEB = "<!-- answered through the web page -->"  # it stands in a line of its own before the answer


class OpenQuestion:
    """A question that waits, and what was answered since, if anything was."""

    __slots__ = ("answer", "asked", "change", "missing", "path", "prd_id", "story", "text", "title", "why")

    def __init__(self, root: str, change: str, story: str, fields: Mapping[str, Any]) -> None:
        self.change = change
        self.story = story
        self.text = str(fields.get("text") or "")
        self.title = str(fields.get("title") or "")
        self.missing = str(fields.get("missing") or "")
        self.why = str(fields.get("why") or "")
        self.asked = str(fields.get("asked") or "")
        name = os.path.basename(str(fields.get("name") or ""))
        self.prd_id = name.removesuffix(".md")
        self.path = path_of(root, name)
        self.answer = read_answer(self.path)

    def as_dict(self) -> dict[str, str | None]:
        names = ("change", "story", "title", "prd_id", "missing", "why", "asked", "path", "answer")
        return {name: getattr(self, name) for name in names}


# --- the files --------------------------------------------------------------------------------------


def path_of(root: str, name: str) -> str:
    return os.path.join(layout.questions(root), name)


def render(prd_id: str, fields: Mapping[str, str]) -> str:
    """One file that a person can read, and answer in place."""
    parts = [f"# {prd_id}: a question for you\n\nprd_id: {prd_id}\n"]
    parts += [f"## {title}\n\n{text.strip()}\n" for title, text in fields.items() if text.strip()]
    parts.append(f"{_ANSWER}\n\n{_HINT}\n")
    return "\n".join(parts)


def read_answer(path: str) -> str | None:
    """What a person answered; None while the question waits. A `git clean`, a link or a folder is no answer."""
    return read_answer_and_via(path)[0]


def read_answer_and_via(path: str) -> tuple[str | None, str]:
    """The same, and `web` if it was answered through the page."""
    text = _read_text(path) or ""
    before, hint, told = _split_at_hint(text)
    via = "web" if told.lstrip().startswith(_VIA_WEB) else ""
    told = told.replace(_VIA_WEB, "", 1) if via else told
    if not hint:  # they have removed it
        return told.rpartition(_ANSWER)[2].strip()[:LONGEST] or None, via
    return f"{before.rpartition(_ANSWER)[2].strip()}\n{told.strip()}".strip()[:LONGEST] or None, via


def _read_text(path: str) -> str | None:
    """The file, if it is one of text: never through a link, which an agent may have put there."""
    try:
        fd = files.open_in_project(path)
    except (OSError, UnsafePath):
        return None
    try:
        data = files.read_at(fd, 0, _MOST)
    finally:
        os.close(fd)
    return None if b"\0" in data else data.decode("utf-8-sig", "replace").replace("\r\n", "\n")


def _split_at_hint(text: str) -> tuple[str, str, str]:
    """What stands before our hint, the hint, and what stands behind it. An editor may have broken its lines anew."""
    start = text.rfind(_HINT[:20])
    end = text.find("-->", start) + len("-->")
    if start < 0 or end < start or text[start:end].split() not in (_HINT.split(), _EARLIER_HINT.split()):
        return "", "", text
    return text[:start], text[start:end], text[end:]


def ask(path: str, text: str) -> str | None:
    """Writes the question, unless it is there already and somebody may be answering it.

    Tells where something is now that stood there and is no answer to it.
    """
    files.ensure_folder(os.path.dirname(path))
    away = None
    if os.path.lexists(path):
        if (_read_text(path) or "").startswith(text.partition(_ANSWER)[0]):
            return None
        away = archive(path)
    files.create(path, text.encode("utf-8", "replace"), 0o644)
    return away


def archive(path: str) -> str | None:
    """Keeps an answered question among the answered ones; tells where."""
    if not os.path.lexists(path):
        return None
    folder, name = os.path.split(path)
    answered = os.path.join(folder, "answered")
    files.ensure_folder(answered)
    number = 1
    while os.path.lexists(place := os.path.join(answered, f"{name.removesuffix('.md')}-{number}.md")):
        number += 1
    os.rename(path, place)
    files.sync_folder(place)
    return place


def turn(path: str) -> files.FileLock:
    """Taken by whoever writes an answer, or takes one up, for as long as that takes."""
    folder = os.path.dirname(path)
    files.ensure_folder(folder)
    lock = os.path.join(folder, ".turn")
    if os.path.lexists(lock) and (os.path.islink(lock) or not os.path.isfile(lock)):
        files.clear(lock)  # an agent put it there: nothing of ours is lost with it
    return files.FileLock(lock, here=True, make=True)


# --- what waits -------------------------------------------------------------------------------------


def list_open(root: str, change: str | None = None) -> list[OpenQuestion]:
    """The questions that wait, of one change or of all."""
    return [one for name in ([change] if change else _list_changes(root)) for one in _list_of_change(root, name)]


def _list_changes(root: str) -> list[str]:
    try:
        names = sorted(os.listdir(layout.change_states(root)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [name.removesuffix(".json") for name in names if name.endswith(".json") and project.is_name(name[:-5])]


def _list_of_change(root: str, change: str) -> Iterator[OpenQuestion]:
    for story, fields in load_change_state(root, change).get("stories", {}).items():
        if fields.get("question"):
            yield OpenQuestion(root, change, story, fields["question"])


def load_change_state(root: str, change: str) -> dict[str, Any]:
    """Where a change stands, as it is written down: for whoever only looks, and has to be quick. Empty before a run."""
    path = layout.change_state(root, change)
    try:
        fields = quickjson.loads(files.read(path).decode())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except ValueError:
        raise _damaged_error(path) from None
    if not (isinstance(fields, dict) and _is_sound(fields)):
        raise _damaged_error(path)
    return fields


def _is_sound(fields: dict[str, Any]) -> bool:
    stories = fields.get("stories", {})
    if not isinstance(stories, dict) or not all(isinstance(one, dict) for one in stories.values()):
        return False
    asked = [one.get("question") for one in stories.values()]
    told = [one.get("told", []) for one in (fields, *stories.values())]
    return all(one is None or isinstance(one, dict) for one in asked) and all(map(_are_texts, told))


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _damaged_error(path: str) -> CorruptState:
    return CorruptState(f"{path} is damaged: run `ralphtool doctor` to see what to do")


def reply(root: str, question: OpenQuestion, text: str) -> None:
    """Writes an answer below the question: the run that goes on takes it up, or else the next one."""
    told = check_text(text)
    with turn(question.path):
        if not any(one.path == question.path for one in list_open(root, question.change)):
            raise InvalidValue(f"story {question.story} no longer needs an answer: it was answered in the meantime")
        ask(question.path, question.text)
        marked = f"{_VIA_WEB}\n{told}" if sender.describe_via() else told
        files.rewrite(question.path, lambda data: data.rstrip() + b"\n\n" + marked.encode() + b"\n")


def check_text(text: str) -> str:
    """What a person says to an agent, fit to be kept."""
    told = text.encode("utf-8", "replace").decode().replace("\0", "").strip()
    if not told:
        raise InvalidValue("the text is empty: say what the agent should know or do")
    if len(told) > LONGEST:
        raise InvalidValue(
            f"the text is too long ({len(told)} characters; the maximum is {LONGEST}): name a file instead"
        )
    return told
