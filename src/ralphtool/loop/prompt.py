"""The prompt of an iteration: the task, what is known, how it is verified, how to finish.

The text of each section is a file in `prompts/`; a file of the same name in `.ralph/prompts/` replaces it. Text from
others (specs, learnings, failures) is inside fences that it can't close. All of it is kept within a budget, and a
notice replaces each text that had to be left out.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.core import files, learnings_file
from ralphtool.core.text import count_longest_run, fence_visible, make_visible
from ralphtool.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.memory.knowledge import KnownItem
    from ralphtool.specs import Scenario, Story, Task

SECTIONS = ("task", "known", "verify", "finish")
_PROMPTS = os.path.join(os.path.dirname(__file__), "prompts")
_CHARACTERS = 4  # per token, roughly
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")
_FAILURE = 4000  # characters of a failure that are shown
_GUIDANCE = 20_000  # it includes a person's words
_LONG_RUN = 100
_LONGEST_LEARNING = 800
_SOURCES = 3
_TICKS = re.compile("`{7,}")
_RECALL = '[{} more left out: `ralphtool agent recall "what you want to know"` finds up to 10 of them]'
_SHORTEST = 20  # characters: a shorter learning says nothing
_LEAST = 1000  # characters of the story are always included, however small the budget
_MORE = "`ralphtool agent context` has all of it"


class Material(Struct, frozen=True, kw_only=True):
    """The contents of a prompt."""

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
    memory: Sequence[KnownItem] = ()  # the relevant knowledge, most important first
    known: int = 0  # the number of all known items
    notes: str | None = None  # the text of the learnings file
    notes_path: str = ""
    box: str = ""  # about the sandbox that the agent works in; its learnings file can't be written there
    gates: Sequence[str] = ()
    budget_tokens: int = 30_000
    memory_tokens: int = 2_000


class Prompt(Struct, frozen=True):
    text: str
    cut: tuple[str, ...]  # what was shortened
    shown: tuple[KnownItem, ...]  # the items from the memory


def build(material: Material, folder: str | None = None) -> Prompt:
    """The prompt. `folder` may contain the user's own sections."""
    room = _CharacterBudget(material.budget_tokens * _CHARACTERS)
    templates = {name: _read_template(name, folder) for name in SECTIONS}
    for text in templates.values():
        room.take(len(text))
    story = _add_title("Story", room.fit("the story", _describe_story(material), least=_LEAST))
    shown, memory = _select_memory(material, room)
    parts = _build_parts(material, room, memory) | {"story": story}
    sections = [_fill_template(templates[name], parts, name) for name in SECTIONS]
    text = "\n".join(section for section in sections if section)
    _require_token("finish", templates["finish"])
    return Prompt(text, tuple(room.cut), shown)


def build_blocker(story: Story, told: str, token: str, folder: str | None = None) -> str:
    """The prompt for an agent that checks a claimed blocker."""
    tasks = "\n".join(f"{task.id} {task.text}" for task in story.tasks)
    about = f"Story {story.id}: {story.title}\n\n{tasks}\n\n{story.description or ''}"
    parts = {
        "story": _add_title("Story", fence_visible(about[:_FAILURE])),
        "blocker": fence_visible(told[:_FAILURE]),
        "token": token,
    }
    template = _read_template("blocker", folder)
    _require_token("blocker", template)
    return _fill_template(template, parts, "blocker")


class PlanMaterial(Struct, frozen=True, kw_only=True):
    """The contents of the prompt that asks for a plan."""

    change: str
    format: str
    project: str  # where the project is, as the agent sees it
    idea: str
    files: Sequence[str]  # where to write the plan
    examples: Sequence[tuple[str, str]]  # the names and contents of such files
    guide: str
    most_tasks: int
    gates: Sequence[str] = ()
    problems: Sequence[str] = ()  # of the existing draft


def build_plan(material: PlanMaterial, folder: str | None = None) -> str:
    """The prompt for an agent that plans a change. The idea is never cut, since it is the user's own text."""
    gates = fence_visible("\n".join(material.gates)) if material.gates else ""
    told = "\n".join(f"- {text}" for text in material.problems)
    parts = {
        "change": material.change,
        "format": material.format,
        "project": material.project,
        "idea": fence_visible(material.idea),
        "files": fence_visible("\n".join(material.files)),
        "example": "\n\n".join(f"`{name}`:\n\n{fence_visible(text)}" for name, text in material.examples),
        "guide": material.guide.strip(),
        "most_tasks": str(material.most_tasks),
        "gates": f"Work in this project is verified with these commands:\n\n{gates}" if gates else "",
        "problems": _add_title("Your draft exists already. Fix these problems in it", fence_visible(told))
        if told
        else "",
    }
    return _fill_template(_read_template("plan", folder), parts, "plan")


def _require_token(name: str, template: str) -> None:
    if "token: {{token}}" not in template.splitlines():
        raise InvalidValue(
            f"the prompt's section {name} has no line `token: {{{{token}}}}`: without it no iteration can be finished"
        )


class _CharacterBudget:
    """The characters that are left, and the texts that were cut."""

    def __init__(self, characters: int) -> None:
        self.left = characters
        self.cut: list[str] = []

    def take(self, characters: int) -> None:
        self.left = max(0, self.left - characters)

    def fit(self, what: str, text: str, most: int | None = None, *, least: int = 0, keep_end: bool = False) -> str:
        """As much of a text as there is room for, fenced, with a notice where it was cut."""
        text = make_visible(text)
        most = max(least, self.left if most is None else min(most, self.left))
        if count_longest_run(text) > _LONG_RUN:
            most //= 3  # each of the two fences is as long as the run
        left_out = len(text) - most
        if left_out > 0:
            self.cut.append(what)
            text = text[left_out:] if keep_end else text[:most]
            notice = f"[{left_out} characters of {what} left out; {_MORE}]"
            text = f"{notice}\n{text}" if keep_end else f"{text}\n{notice}"
        self.take(len(fence_visible(text)))
        return fence_visible(text)


def _read_template(name: str, folder: str | None) -> str:
    own = os.path.join(folder, f"{name}.md") if folder else ""
    if own and os.path.exists(own):
        try:
            return files.read(own).decode("utf-8")
        except UnicodeDecodeError:
            raise InvalidValue(f"{own} is not UTF-8: save it as UTF-8") from None
    with open(os.path.join(_PROMPTS, f"{name}.md"), encoding="utf-8") as file:
        return file.read()


def _fill_template(template: str, parts: dict[str, str], name: str) -> str:
    """The section with its placeholders filled; a line that has only empty placeholders is removed."""
    if unknown := [place for place in _PLACEHOLDER.findall(template) if place not in parts]:
        raise InvalidValue(
            f"the section {name} of the prompt names {{{{{unknown[0]}}}}}: use one of {', '.join(sorted(parts))}"
        )
    lines = [line for line in template.split("\n") if not _is_empty(line, parts)]
    text = _PLACEHOLDER.sub(lambda found: parts[found[1]], "\n".join(lines))
    has_more = any(line.strip() and not line.startswith("#") for line in text.split("\n"))
    return f"{text.strip()}\n" if has_more else ""


def _is_empty(line: str, parts: dict[str, str]) -> bool:
    places = _PLACEHOLDER.findall(line)
    return bool(places) and not _PLACEHOLDER.sub("", line).strip() and not any(parts[place] for place in places)


# --- the parts --------------------------------------------------------------------------------------


def _build_parts(material: Material, room: _CharacterBudget, memory: dict[str, str]) -> dict[str, str]:
    """Every placeholder of the templates. The most important parts take their room first."""
    return {
        "change": material.change,
        "token": material.token,
        "attempt": str(material.attempt),
        "attempts": str(material.attempts),
        "notes_path": material.notes_path,
        "or_notes": "" if material.box or not material.notes_path else f", or freely in {material.notes_path}",
        "box": material.box,
        "chunk": _describe_chunk(material.task),
        "failure": _build_optional(room, "the last failure", "How the last attempt ended", material.failure, _FAILURE),
        "guidance": _build_optional(room, "the guidance", "Do this first", _find_new_guidance(material), _GUIDANCE),
        "gates": room.fit("the commands", "\n".join(material.gates)) if material.gates else "(there are no commands)",
        "warnings": _build_optional(room, "the warnings", "Beware", "\n".join(material.warnings), _FAILURE),
        **memory,
        "notes": _format_notes(material, room),
        "scenarios": _build_optional(
            room, "the scenarios", "Scenarios that must hold", _format_scenarios(material.scenarios)
        ),
        "design": _build_optional(room, "the design", "Design", material.design),
        "proposal": _build_optional(room, "the proposal", "Why", material.proposal),
    }


def _find_new_guidance(material: Material) -> str:
    """Without a better idea, a decision repeats why the last attempt failed: the failure has that already."""
    return "" if material.guidance.strip() in (material.failure or "") else material.guidance


def _add_title(title: str, text: str) -> str:
    return f"## {title}\n\n{text}\n"


def _build_optional(room: _CharacterBudget, what: str, title: str, text: str | None, most: int | None = None) -> str:
    return _add_title(title, room.fit(what, text, most)) if text and text.strip() else ""


def _describe_story(material: Material) -> str:
    story = material.story
    own = [task for task in story.tasks if material.task in (None, task.id)]
    tasks = [f"[{'x' if task.done else ' '}] {task.id} {task.text}{_describe_optional(task)}" for task in own]
    described = ["", story.description.strip()] if story.description else []
    return "\n".join([f"Story {story.id}: {story.title}", "", "Tasks:", *tasks, *described])


def _describe_optional(task: Task) -> str:
    return " (optional)" if task.optional and "optional" not in task.text.lower() else ""


def _describe_chunk(task: str | None) -> str:
    if task is None:
        return ""
    id = " ".join(make_visible(task).split())  # one line, whatever its author wrote
    return f"This time do only the task {id}, and tick it. The other tasks come later, one by one.\n"


def _select_memory(material: Material, room: _CharacterBudget) -> tuple[tuple[KnownItem, ...], dict[str, str]]:
    """As many items as the memory's budget allows, in order; a notice counts those left out."""
    left = min(material.memory_tokens * _CHARACTERS, room.left) - len(_RECALL)
    if not material.memory_tokens:
        return (), {"learnings": "", "patterns": ""}
    shown: list[tuple[KnownItem, str]] = []
    for one in material.memory:
        line = _format_remembered(one)
        if len(line) < left:
            shown.append((one, line))
            left -= len(line) + 1
        if left < _SHORTEST:
            break
    hidden = max(material.known, len(material.memory)) - len(shown)
    room.cut += ["the memory"] if hidden > 0 else []
    notice = [_RECALL.format(hidden)] if hidden > 0 else []
    learnt = [line for one, line in shown if one.kind == "learning"]
    found = [line for one, line in shown if one.kind != "learning"]
    parts = {
        "learnings": _build_list("Learnings from earlier iterations", [*learnt, *notice]),
        "patterns": _build_list("Patterns of this code base", found),
    }
    room.take(sum(map(len, parts.values())))
    return tuple(one for one, _ in shown), parts


def _build_list(title: str, lines: Sequence[str]) -> str:
    return _add_title(title, fence_visible("\n".join(lines))) if lines else ""


def _format_remembered(one: KnownItem) -> str:
    """One known item and its sources; a long one is cut to leave room for others."""
    text = _TICKS.sub("`" * 6, make_visible(" ".join(one.text.split())))  # a long run would need long fences
    if len(text) > _LONGEST_LEARNING:
        text = f"{text[:_LONGEST_LEARNING]} … [{len(text) - _LONGEST_LEARNING} characters more]"
    sources = _TICKS.sub("", ", ".join(one.sources[:_SOURCES]))
    return f"- {text} ({sources})" if sources else f"- {text}"


def _format_notes(material: Material, room: _CharacterBudget) -> str:
    if not material.notes:
        return ""
    budget = max(
        200, min(room.left // (6 if count_longest_run(material.notes) > _LONG_RUN else 2), len(material.notes))
    )
    if len(material.notes) > budget:
        room.cut.append("the learnings file")
    text = learnings_file.format_for_prompt(material.notes, budget, material.notes_path)
    room.take(len(text))
    return _add_title(f"Learnings file ({material.notes_path})", text)


def _format_scenarios(scenarios: Sequence[Scenario]) -> str:
    blocks = []
    for one in scenarios:
        clauses = [("given", one.given), ("when", one.when), ("then", one.then)]
        lines = [f"  {word} {text}" for word, texts in clauses for text in texts]
        blocks.append(
            "\n".join([" / ".join(part for part in (one.capability, one.requirement, one.name) if part), *lines])
        )
    return "\n\n".join(blocks)
