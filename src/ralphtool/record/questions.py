"""Questions for a human: one file for each, in `.ralph/questions/`, that is read and answered in place.

The change state (`.ralph/standing/`) says which questions are open, never the files: a `git clean` is not an answer.
Writing an answer and applying one exclude each other, so that no answer is lost in between.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ralphtool.core import files, layout, project, sender
from ralphtool.errors import InvalidValue, UnsafePath
from ralphtool.record import change_flag, steering
from ralphtool.record.person_text import LONGEST as LONGEST
from ralphtool.record.person_text import check_text as check_text
from ralphtool.record.plain_state import load_change_state as load_change_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

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


_VIA_WEB = "<!-- answered through the web page -->"  # on a separate line before the answer


class OpenQuestion:
    """An open question, and its answer, if there is one already.

    If the story is done, but not proven, only `accept` or `reject` decides: an agent could write an answer, too.
    """

    __slots__ = ("answer", "asked", "change", "is_done", "missing", "path", "prd_id", "story", "text", "title", "why")

    def __init__(self, root: str, change: str, story: str, fields: Mapping[str, Any], *, is_done: bool = False) -> None:
        self.change = change
        self.story = story
        self.text = str(fields.get("text") or "")
        self.title = str(fields.get("title") or "")
        self.missing = str(fields.get("missing") or "")
        self.why = str(fields.get("why") or "")
        self.asked = str(fields.get("asked") or "")
        name = os.path.basename(str(fields.get("name") or ""))
        self.prd_id = name.removesuffix(".md")
        self.path = path_of(root, name) if name else ""  # no question was asked
        self.is_done = is_done
        self.answer = None if is_done or not self.path else read_answer(self.path)

    def as_dict(self) -> dict[str, str | bool | None]:
        names = ("change", "story", "title", "prd_id", "missing", "why", "asked", "path", "answer", "is_done")
        return {name: getattr(self, name) for name in names} | {"path": self.path or None}


# --- the files --------------------------------------------------------------------------------------


def path_of(root: str, name: str) -> str:
    return os.path.join(layout.questions(root), name)


def render(prd_id: str, fields: Mapping[str, str], *, is_done: bool = False) -> str:
    """A file that a person can read and, unless the story is done, answer in place."""
    parts = [f"# {prd_id}: a question for you\n\nprd_id: {prd_id}\n"]
    parts += [f"## {title}\n\n{text.strip()}\n" for title, text in fields.items() if text.strip()]
    if not is_done:
        parts.append(f"{_ANSWER}\n\n{_HINT}\n")
    return "\n".join(parts)


def read_answer(path: str) -> str | None:
    """A person's answer; None while the question is open. A `git clean`, a link or a folder is not an answer."""
    return read_answer_and_via(path)[0]


def read_answer_and_via(path: str) -> tuple[str | None, str]:
    """The same, and `web` if it was answered through the web page."""
    text = _read_text(path) or ""
    before, hint, told = _split_at_hint(text)
    via = "web" if told.lstrip().startswith(_VIA_WEB) else ""
    told = told.replace(_VIA_WEB, "", 1) if via else told
    if not hint:  # the person removed it
        if _ANSWER not in told:
            return None, ""
        return told.rpartition(_ANSWER)[2].strip()[:LONGEST] or None, via
    return f"{before.rpartition(_ANSWER)[2].strip()}\n{told.strip()}".strip()[:LONGEST] or None, via


def _read_text(path: str) -> str | None:
    """The file, if it is a text file; links are not followed, because an agent may have created one."""
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
    """The text before the hint, the hint, and the text after it. An editor may have rewrapped its lines."""
    start = text.rfind(_HINT[:20])
    end = text.find("-->", start) + len("-->")
    if start < 0 or end < start or text[start:end].split() not in (_HINT.split(), _EARLIER_HINT.split()):
        return "", "", text
    return text[:start], text[start:end], text[end:]


def ask(path: str, text: str) -> str | None:
    """Writes the question, unless it is already there and a person may be answering it.

    If a different file was there, it is archived and its new path is returned.
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
    """Moves an answered question to the answered ones; returns its new path."""
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
    """The lock that is held while an answer is written or applied."""
    folder = os.path.dirname(path)
    files.ensure_folder(folder)
    lock = os.path.join(folder, ".turn")
    if os.path.lexists(lock) and (os.path.islink(lock) or not os.path.isfile(lock)):
        files.clear(lock)  # an agent created it: nothing of ralphtool's is lost
    return files.FileLock(lock, here=True, make=True)


# --- open questions ---------------------------------------------------------------------------------


def list_open(root: str, change: str | None = None) -> list[OpenQuestion]:
    """The open questions of one change or of all. A story that the next run will skip or try again needs no answer."""
    return [one for name in ([change] if change else list_changes(root)) for one in _list_of_change(root, name)]


def build_answer_command(root: str, one: OpenQuestion) -> str:
    """A done story has two commands."""
    import shlex  # only messages need it

    story, flag = shlex.quote(one.story), change_flag.build(one.change, root)
    if one.is_done:
        return f'ralphtool accept {story}{flag}, or ralphtool reject {story} --why "…"{flag}'
    return f'ralphtool answer {story} "…"{flag}'


def list_changes(root: str) -> list[str]:
    """The changes that have a state."""
    try:
        names = sorted(os.listdir(layout.change_states(root)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [name.removesuffix(".json") for name in names if name.endswith(".json") and project.is_name(name[:-5])]


def _list_of_change(root: str, change: str) -> Iterator[OpenQuestion]:
    state = load_change_state(root, change)
    asked = {story: one for story, one in state.get("stories", {}).items() if one.get("question")}
    if not asked:
        return
    sent = steering.list_pending(root, change, state.get("heeded") or ())
    decided = {one.story for one in sent if one.action in ("skip", "retry")}
    for story, fields in asked.items():
        if story not in decided:
            yield OpenQuestion(root, change, story, fields["question"], is_done=fields.get("status") == "completed")


def reply(root: str, question: OpenQuestion, text: str) -> None:
    """Writes an answer below the question: the current run applies it, or else the next one."""
    check_answerable(root, question)
    told = check_text(text)
    with turn(question.path):
        if not any(one.path == question.path for one in list_open(root, question.change)):
            raise InvalidValue(f"story {question.story} no longer needs an answer: it was answered in the meantime")
        ask(question.path, question.text)
        marked = f"{_VIA_WEB}\n{told}" if sender.describe_via() else told
        files.rewrite(question.path, lambda data: data.rstrip() + b"\n\n" + marked.encode() + b"\n")


def check_answerable(root: str, question: OpenQuestion) -> None:
    if question.is_done:
        flag = change_flag.build(question.change, root)
        raise InvalidValue(
            f"story {question.story} is done, but not proven, so it needs a decision: accept it as it is (`ralphtool "
            f"accept {question.story}{flag}`), or reject it, which reverts its work and puts your reason in the next "
            f'prompt (`ralphtool reject {question.story} --why "…"{flag}`)'
        )
