"""The prompt of an iteration: task, what we know, how it is verified, how to finish.

The text of each section is a file in `prompts/`; a file of the same name in `.ralph/prompts/` replaces it. What others
wrote (specs, learnings, failures) stands inside fences that it can't close. All of it is kept within a budget, and
what had to be left out says so in its place.
"""

from __future__ import annotations

import os
import re
import unicodedata
from importlib import resources
from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool import files, learnings
from ralphtool.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.history.records import Learning, Pattern
    from ralphtool.specs import Scenario, Story

SECTIONS = ("task", "known", "verify", "finish")
_CHARACTERS = 4  # to a token, roughly
_PLACE = re.compile(r"\{\{(\w+)\}\}")
_FAILURE = 4000  # characters of a failure or a guidance are enough
_LONG_RUN = 100
_SHORTEST = 20  # characters: no learning says anything in less
_LEAST = 1000  # characters of the story are there, however small the budget
_MORE = "`ralphtool agent context` has the whole"


class Material(Struct, frozen=True, kw_only=True):
    """What a prompt is made of."""

    change: str
    story: Story
    token: str
    attempt: int
    attempts: int
    task: str | None = None  # of a chunk
    proposal: str | None = None
    design: str | None = None
    scenarios: Sequence[Scenario] = ()
    failure: str | None = None
    guidance: str = ""
    warnings: Sequence[str] = ()
    learnings: Sequence[Learning] = ()
    noted: Sequence[str] = ()  # learnings of this run, not written out yet
    patterns: Sequence[Pattern] = ()
    notes: str | None = None  # what stands in the learnings file
    notes_path: str = ""
    gates: Sequence[str] = ()
    budget_tokens: int = 30_000
    memory_tokens: int = 2_000


class Prompt(Struct, frozen=True):
    text: str
    cut: tuple[str, ...]  # what was shortened
    shown: tuple[str, ...]  # the ids of the learnings that are in it


def build(material: Material, folder: str | None = None) -> Prompt:
    """The prompt. `folder` may hold sections of the user's own."""
    room = _Room(material.budget_tokens * _CHARACTERS)
    templates = {name: _template(name, folder) for name in SECTIONS}
    for text in templates.values():
        room.take(len(text))
    story = _titled("Story", room.fit("the story", _story(material), least=_LEAST))
    shown, memory = _memory(material, room)
    parts = _parts(material, room, memory) | {"story": story}
    sections = [_filled(templates[name], parts, name) for name in SECTIONS]
    text = "\n".join(section for section in sections if section)
    _require_token("finish", templates["finish"])
    return Prompt(text, tuple(room.cut), shown)


def blocker(story: Story, told: str, token: str, folder: str | None = None) -> str:
    """The prompt for an agent that looks into a claimed blocker."""
    tasks = "\n".join(f"{task.id} {task.text}" for task in story.tasks)
    about = f"Story {story.id}: {story.title}\n\n{tasks}\n\n{story.description or ''}"
    parts = {
        "story": _titled("Story", fenced(about[:_FAILURE])),
        "blocker": fenced(told[:_FAILURE]),
        "token": token,
    }
    template = _template("blocker", folder)
    _require_token("blocker", template)
    return _filled(template, parts, "blocker")


def _require_token(name: str, template: str) -> None:
    if "token: {{token}}" not in template.splitlines():
        raise InvalidValue(
            f"the prompt's section {name} has no line `token: {{{{token}}}}`: without it nothing can be finished"
        )


class _Room:
    """The characters that are left, and what had to be cut."""

    def __init__(self, characters: int) -> None:
        self.left = characters
        self.cut: list[str] = []

    def take(self, characters: int) -> None:
        self.left = max(0, self.left - characters)

    def fit(self, what: str, text: str, most: int | None = None, *, least: int = 0, keep_end: bool = False) -> str:
        """As much of a text as there is room for, fenced, with a notice where it was cut."""
        text = visible(text)
        most = max(least, self.left if most is None else min(most, self.left))
        if learnings.longest_run(text) > _LONG_RUN:
            most //= 3  # the fence is as long, at both ends
        left_out = len(text) - most
        if left_out > 0:
            self.cut.append(what)
            text = text[left_out:] if keep_end else text[:most]
            notice = f"[{left_out} characters of {what} left out here; {_MORE}]"
            text = f"{notice}\n{text}" if keep_end else f"{text}\n{notice}"
        self.take(len(fenced(text)))
        return fenced(text)


def fenced(text: str) -> str:
    """Within a fence that it can't close; control characters that could hide something become visible."""
    text = visible(text).strip("\n")
    fence = "`" * max(3, learnings.longest_run(text) + 1)
    return f"{fence}text\n{text}\n{fence}"


def visible(text: str) -> str:
    """Control characters, and letters that are not seen, spelled out. Spaces of other widths hide nothing."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(line if line.isprintable() else "".join(map(_spelled_out, line)) for line in lines)


def _spelled_out(character: str) -> str:
    is_harmless = character.isprintable() or character == "\t" or unicodedata.category(character) == "Zs"
    return character if is_harmless else ascii(character)[1:-1]


def _template(name: str, folder: str | None) -> str:
    own = os.path.join(folder, f"{name}.md") if folder else ""
    if own and os.path.exists(own):
        try:
            return files.read(own).decode("utf-8")
        except UnicodeDecodeError:
            raise InvalidValue(f"{own} is not UTF-8: save it as UTF-8") from None
    return resources.files("ralphtool").joinpath("prompts", f"{name}.md").read_text("utf-8")


def _filled(template: str, parts: dict[str, str], name: str) -> str:
    """The section with its places filled; a paragraph that has nothing but empty places goes."""
    if unknown := [place for place in _PLACE.findall(template) if place not in parts]:
        raise InvalidValue(
            f"the section {name} of the prompt names {{{{{unknown[0]}}}}}: it can be one of {', '.join(sorted(parts))}"
        )
    lines = [line for line in template.split("\n") if not _is_empty(line, parts)]
    text = _PLACE.sub(lambda found: parts[found[1]], "\n".join(lines))
    has_more = any(line.strip() and not line.startswith("#") for line in text.split("\n"))
    return f"{text.strip()}\n" if has_more else ""


def _is_empty(line: str, parts: dict[str, str]) -> bool:
    places = _PLACE.findall(line)
    return bool(places) and not _PLACE.sub("", line).strip() and not any(parts[place] for place in places)


# --- the parts --------------------------------------------------------------------------------------


def _parts(material: Material, room: _Room, memory: str) -> dict[str, str]:
    """Every place of the templates. What matters most takes its room first."""
    return {
        "change": material.change,
        "token": material.token,
        "attempt": str(material.attempt),
        "attempts": str(material.attempts),
        "notes_path": material.notes_path,
        "chunk": _chunk(material.task),
        "failure": _optional(room, "the last failure", "How the last attempt ended", material.failure, _FAILURE),
        "guidance": _optional(room, "the guidance", "Do this first", material.guidance, _FAILURE),
        "gates": room.fit("the commands", "\n".join(material.gates)) if material.gates else "(there are no commands)",
        "warnings": _optional(room, "the warnings", "Beware", "\n".join(material.warnings), _FAILURE),
        "learnings": memory,
        "patterns": _optional(
            room, "the patterns", "Patterns of this code base", _patterns(material), _memory_room(material)
        ),
        "notes": _notes(material, room),
        "scenarios": _optional(room, "the scenarios", "Scenarios that have to hold", _scenarios(material.scenarios)),
        "design": _optional(room, "the design", "Design", material.design),
        "proposal": _optional(room, "the proposal", "Why", material.proposal),
    }


def _titled(title: str, text: str) -> str:
    return f"## {title}\n\n{text}\n"


def _optional(room: _Room, what: str, title: str, text: str | None, most: int | None = None) -> str:
    return _titled(title, room.fit(what, text, most)) if text and text.strip() else ""


def _story(material: Material) -> str:
    story = material.story
    own = [task for task in story.tasks if material.task in (None, task.id)]
    tasks = [f"[{'x' if task.done else ' '}] {task.id} {task.text}" for task in own]
    described = ["", story.description.strip()] if story.description else []
    return "\n".join([f"Story {story.id}: {story.title}", "", "Tasks:", *tasks, *described])


def _chunk(task: str | None) -> str:
    if task is None:
        return ""
    id = " ".join(visible(task).split())  # whatever its author wrote, it stays one line
    return f"This time do only the task {id}, and tick it. The others come later, each on its own.\n"


def _memory_room(material: Material) -> int:
    return material.memory_tokens * _CHARACTERS


def _memory(material: Material, room: _Room) -> tuple[tuple[str, ...], str]:
    """Learnings, the newest ones if not all fit; error workarounds before the others."""
    ordered = sorted(material.learnings, key=lambda one: (one.type == "error-workaround", one.created_at), reverse=True)
    lines = [(None, f"- {' '.join(text.split())}") for text in reversed(material.noted)]
    every = chain(lines, ((one.id, f"- {' '.join(one.content.split())} ({one.source_prd_id})") for one in ordered))
    left = min(_memory_room(material), room.left)
    chosen: list[tuple[str | None, str]] = []
    for id, line in every:
        if len(line) <= left:
            chosen.append((id, line))
            left -= len(line) + 1
        if left < _SHORTEST:
            break  # of hundreds of learnings, most need not be looked at
    if not lines and not ordered:
        return (), ""
    hidden = len(lines) + len(ordered) - len(chosen)
    notice = [f"[{hidden} more learnings left out here]"] if hidden else []
    room.cut += ["the learnings"] if hidden else []
    text = "\n".join([*(line for _, line in chosen), *notice])
    room.take(len(text))
    return tuple(id for id, _ in chosen if id), _titled("What was learnt before", fenced(text))


def _patterns(material: Material) -> str:
    return "\n".join(f"- {one.name}: {' '.join((one.description or '').split())}" for one in material.patterns)


def _notes(material: Material, room: _Room) -> str:
    if not material.notes:
        return ""
    budget = max(
        200, min(room.left // (6 if learnings.longest_run(material.notes) > _LONG_RUN else 2), len(material.notes))
    )
    if len(material.notes) > budget:
        room.cut.append("the learnings file")
    text = learnings.fenced(material.notes, budget, material.notes_path)
    room.take(len(text))
    return _titled(f"Learnings file ({material.notes_path})", text)


def _scenarios(scenarios: Sequence[Scenario]) -> str:
    blocks = []
    for one in scenarios:
        clauses = [("given", one.given), ("when", one.when), ("then", one.then)]
        lines = [f"  {word} {text}" for word, texts in clauses for text in texts]
        blocks.append(
            "\n".join([" / ".join(part for part in (one.capability, one.requirement, one.name) if part), *lines])
        )
    return "\n\n".join(blocks)
