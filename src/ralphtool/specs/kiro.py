"""Kiro: `.kiro/specs/<feature>/tasks.md`, whose numbered boxes are stories and the boxes below them tasks.

If a story has tasks, its own box is the mark of the story: it is ticked together with the last required task.
"""

import os

from ralphtool import specs
from ralphtool.core import files
from ralphtool.core import project as projects
from ralphtool.errors import ChangeNotFound, SpecError, TaskNotFound, shorten
from ralphtool.specs import Scenario, Story, Task, markdown
from ralphtool.specs.boxed import WithNotes
from ralphtool.specs.unique import UniqueIds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from ralphtool.specs.markdown import Box, Section
    from ralphtool.specs.outline import Outline
    from ralphtool.specs.scaffold import Scaffold

name = "kiro"
found_in = ".kiro/specs/<feature>/"
_FILES = ("tasks.md", "requirements.md", "bugfix.md", "design.md")


def _specs_path(project: str) -> str:
    return os.path.join(project, ".kiro", "specs")


def changes(project: str) -> list[str]:
    try:
        names = sorted(os.listdir(_specs_path(project)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [name for name in names if _is_change(project, name)]


def _is_change(project: str, change: str) -> bool:
    folder = os.path.join(_specs_path(project), change)
    return projects.is_name(change) and any(os.path.lexists(os.path.join(folder, name)) for name in _FILES)


def open(project: str, change: str, where: str | None = None) -> "Kiro":
    if not _is_change(project, change):
        raise ChangeNotFound(
            f"there is no {os.path.join(_specs_path(project), change)}: `ralphtool list` shows the changes"
        )
    return Kiro(project, change)


def places(change: str, where: str | None = None) -> list[str]:
    return [f".kiro/specs/{change}"]


class Kiro(WithNotes):
    adapter = name
    ref = name
    task_example = "`- [ ] 1. What the story is about`, and below it `  - [ ] 1.1 What to do`"

    def __init__(self, project: str, change: str) -> None:
        self.change = change
        self.path = os.path.join(_specs_path(project), change)
        self.tasks_file = os.path.join(self.path, "tasks.md")
        self.notes_file = os.path.join(self.path, f"{change}-learnings.md")

    def stories(self, completed: "Collection[str]" = ()) -> list[Story]:
        stories = [group.story() for group in self._read_groups()]
        specs.check(stories, self.tasks_file)
        return stories

    def _read_groups(self) -> "list[_Group]":
        reader = _TaskReader(markdown.load(self.tasks_file) or "", self.tasks_file)
        for text in reader.warnings:
            self.warn(text)
        return reader.groups

    def tick(self, task_id: str, completed: "Collection[str]" = (), *, proven: bool = True) -> None:
        self._edit(task_id, _tick)

    def untick(self, task_id: str) -> None:
        self._edit(task_id, _untick)

    def _edit(self, task_id: str, edit: "Callable[[str, _Group, Box], str]") -> None:
        def change(text: str) -> str:
            for group in _TaskReader(text, self.tasks_file).groups:
                for id, _, box, _ in group.tasks:
                    if id == task_id:
                        return edit(text, group, box)
            raise TaskNotFound(f"{self.tasks_file} has no task {shorten(task_id)}")

        markdown.edit(self.tasks_file, change)

    def is_marked(self, story_id: str) -> bool:
        groups = [group for group in self._read_groups() if group.id == story_id]
        return all(mark.done for group in groups for mark in group.own_mark())

    def proposal(self) -> str | None:
        found = [self._load_context(name) for name in ("requirements.md", "bugfix.md")]
        return "\n\n".join(text for text in found if text) or None

    def design(self) -> str | None:
        return self._load_context("design.md")

    def scenarios(self, story: Story) -> list[Scenario]:
        """The acceptance criteria that the tasks of a story refer to."""
        group = next((one for one in self._read_groups() if one.id == story.id), None)
        named = _find_references(group.lines()) if group else []
        if not named:
            return []
        known = _parse_criteria(self.proposal() or "")
        found = [one for one in known if any(_covers(reference, one[0]) for reference in named)]
        return [_build_scenario(self.change, *one) for one in found]

    def _load_context(self, name: str) -> str | None:
        """A file that is only context: invalid UTF-8 in it must not stop the work."""
        path = os.path.join(self.path, name)
        try:
            return markdown.load(path)
        except SpecError:
            text = _read_leniently(path)
        self.warn(f"{path} is not UTF-8: unreadable characters are replaced; save the file as UTF-8")
        return text


def _read_leniently(path: str) -> str:
    try:
        return files.read(path).decode("utf-8", "replace").removeprefix(markdown.BOM)
    except OSError as error:
        raise SpecError(f"{path} can't be read ({error.strerror}): check its permissions") from None


def _tick(text: str, group: "_Group", box: "Box") -> str:
    is_last = all(one.done or one is box for one in group.required())
    for one in [box, *group.own_mark()] if is_last else [box]:
        text = text if one.done else markdown.tick(text, one)
    return text


def _untick(text: str, group: "_Group", box: "Box") -> str:
    for one in [box, *group.own_mark()]:
        text = markdown.untick(text, one) if one.done else text
    return text


# --- stories ----------------------------------------------------------------------------------------


class _Group:
    """A story while it is read: its own box, if any, and the boxes below it."""

    def __init__(self, id: str, number: str, title: str, mark: "Box | None", optional: bool = False) -> None:
        self.id = id
        self.number = number
        self.title = title or number
        self.mark = mark
        self.optional = optional
        self.prose: list[str] = []
        self.below: list[tuple[str, str, Box, bool]] = []
        self.unnumbered = 0
        self.depends_on: list[str] = []

    @property
    def _is_own_task(self) -> bool:
        """Without a required box below it, the story's own box is its task."""
        return self.mark is not None and all(optional for _, _, _, optional in self.below)

    @property
    def tasks(self) -> "list[tuple[str, str, Box, bool]]":
        """Id, text, box and whether it is optional."""
        if self.mark is None or not self._is_own_task:
            return self.below
        return [(self.id, "\n".join([self.title, *self.mark.texts[1:]]), self.mark, False), *self.below]

    def own_mark(self) -> "list[Box]":
        """The box that marks the whole story as done, if it is not one of its tasks."""
        return [self.mark] if self.mark and not self._is_own_task else []

    def required(self) -> "list[Box]":
        boxes = [(box, optional) for _, _, box, optional in self.tasks]
        return [box for box, optional in boxes if not optional] or [box for box, _ in boxes]

    def lines(self) -> list[str]:
        mark = self.mark.texts if self.mark else []
        return [line for texts in (mark, *(box.texts for _, _, box, _ in self.below)) for line in texts]

    def story(self) -> Story:
        tasks = [Task(id, text, box.done, optional) for id, text, box, optional in self.tasks]
        details = self.mark.texts[1:] if self.mark and not self._is_own_task else []
        description = markdown.join_prose([*details, *self.prose])
        return Story(self.id, self.title, tasks, description, self.optional, self.depends_on)


class _TaskReader:
    """Reads the boxes of a tasks.md in order."""

    def __init__(self, text: str, path: str) -> None:
        self.groups: list[_Group] = []
        # Separate, since a story without boxes below it has the same id as its only task.
        self._story_ids = UniqueIds(path, "story")
        self._task_ids = UniqueIds(path, "task")
        for section in markdown.sections(text, path, is_mark=lambda mark: not mark.isalnum()):
            self._read_section(section)
        self._add_dependencies()

    def _read_section(self, section: "Section") -> None:
        heading = markdown.split_number(section.title) if section.level > 1 else None
        first = len(self.groups)
        for box in section.boxes:
            optional, number, title = _split_box(box.texts[0])
            owner = self._find_owner(number, box, section, heading)
            if owner is None:
                self._begin(number, title, section, box, optional)
            else:
                owner.unnumbered += not number
                own = number if "." in number else f"{owner.id}.{number or f'#{owner.unnumbered}'}"
                id = self._task_ids.claim(own)
                owner.below.append((id, "\n".join([title, *box.texts[1:]]), box, optional))
        if heading and len(self.groups) > first and self.groups[first].mark is None:
            self.groups[first].prose += section.prose

    def _find_owner(
        self, number: str, box: "Box", section: "Section", heading: "tuple[str, str] | None"
    ) -> _Group | None:
        """The story that a box is a task of; None if it is a story itself."""
        current = self.groups[-1] if self.groups else None
        if current and current.mark and box.indent > current.mark.indent and "." not in number:
            return current
        if number:
            first, dot, _ = number.partition(".")
            if not dot:
                return None
            # The nearest one: if each part of a plan starts again at 1, it is the one in the same part.
            same = next((group for group in reversed(self.groups) if group.number == first), None)
            title = heading[1] if heading and heading[0] == first else section.title
            return same or self._begin(first, title, section)
        if heading is None:
            return None
        return current if current and current.number == heading[0] else self._begin(heading[0], heading[1], section)

    def _begin(
        self, number: str, title: str, section: "Section", box: "Box | None" = None, optional: bool = False
    ) -> _Group:
        id = self._story_ids.claim(number or projects.build_slug(title)[:40].strip("-") or "task")
        later = markdown.is_optional(title, (*section.above, section.title))
        self.groups.append(_Group(id, number, title, box, optional or later))
        return self.groups[-1]

    @property
    def warnings(self) -> list[str]:
        return [*self._story_ids.warnings, *self._task_ids.warnings]

    def _add_dependencies(self) -> None:
        owner = {id: group.id for group in self.groups for id, _, _, _ in group.tasks}
        owner |= {group.id: group.id for group in self.groups}
        for group in self.groups:
            said = [id for id in markdown.parse_dependencies(group.title) if id in owner or markdown.is_number(id)]
            waits = [owner.get(id, id) for id in [*said, *_find_named_tasks(group.lines())]]
            group.depends_on = list(dict.fromkeys(id for id in waits if id != group.id))


def _split_box(text: str) -> tuple[bool, str, str]:
    """Splits `* 1.2 Title`, or `1.2* Title`, into whether it is optional, its number and the rest."""
    bare = text.removeprefix("\\")
    optional = bare[:1] == "*" and bare[1:2] != "*"
    bare = bare[1:].lstrip() if optional else text
    head, _, rest = bare.partition("*")
    if rest[:1] not in ("", "*") and markdown.is_number(head := head.rstrip("\\.")):
        optional, bare = True, f"{head}. {rest.lstrip()}"
    number, title = markdown.split_number(bare.replace("**", "", 2) if bare.startswith("**") else bare) or ("", bare)
    return optional, number, title


def _find_named_tasks(lines: "Iterable[str]") -> list[str]:
    """The ids in `_Depends: 1.2, 3_`."""
    listed = [line.partition(":")[2] for line in lines if line.lstrip("-* ").lower().startswith("_depends")]
    words = [word.strip("_.;*`") for part in listed for word in part.replace(",", " ").split()]
    return [word for word in words if markdown.is_number(word)]


# --- acceptance criteria ----------------------------------------------------------------------------


def _find_references(lines: "Iterable[str]") -> list[tuple[str, str]]:
    """The ranges in `_Requirements: 1.1, 2, 4.1-4.5_` and `**Validates: Requirements 1.1**`, as first and last."""
    found: list[tuple[str, str]] = []
    for line in lines:
        head, _, listed = line.lower().partition(":")
        words = listed.replace(",", " ").replace("–", "-").replace("requirements", " ").replace("requirement", " ")
        if head.strip("-*_ ") in ("requirements", "requirement", "validates"):
            found += [_parse_range(word.strip("_*.;()")) for word in words.split()]
    return [pair for pair in found if pair[0]]


def _parse_range(word: str) -> tuple[str, str]:
    first, dash, last = word.partition("-")
    return (first, last if dash else first) if all(map(markdown.is_number, (first, last or first))) else ("", "")


def _covers(reference: tuple[str, str], id: str) -> bool:
    """Whether it includes a criterion: by its own number, that of its requirement, or a range."""
    first, last, own = (tuple(map(int, text.split("."))) for text in (*reference, id))
    return first <= own[: len(first)] and own[: len(last)] <= last


def _parse_criteria(text: str) -> list[tuple[str, str, str]]:
    """The number, the requirement and the text of every acceptance criterion."""
    found: dict[str, tuple[str, list[str]]] = {}
    requirement, title, level, last = "", "", 0, ""
    for number, line, plain in markdown.iterate_lines(text.split("\n")):
        head = markdown.parse_heading(line, number) if plain else None
        if head:
            last, own = "", _find_number(head.title)
            if own or head.level <= level:
                requirement, title, level = own, head.title, head.level
        elif plain and (item := _parse_criterion(line, requirement)):
            last = item[0]
            found.setdefault(last, (title, [item[1]]))
        elif last and line.strip():
            found[last][1].append(line.strip())
    return [(id, title, "\n".join(lines)) for id, (title, lines) in found.items()]


def _find_number(title: str) -> str:
    """The number in "Requirement 3: Title"; empty for a heading without one."""
    digits = "".join(mark if mark in "0123456789" else " " for mark in title).split()
    return digits[0] if digits and len(digits[0]) <= 6 else ""


def _parse_criterion(line: str, requirement: str) -> tuple[str, str] | None:
    """Splits "2. WHEN …" below requirement 1, and "1.2 WHEN …" anywhere, into 1.2 and the rest."""
    bare = line.strip().removeprefix("- ").removeprefix("* ").lstrip("*_")
    parts = markdown.split_number(bare)
    if parts is None or len(line) - len(line.lstrip()) > 3:
        return None
    number, text = parts[0], parts[1].lstrip("*_ ")
    if "." in number:
        return number, text
    is_item = bare[len(number) : len(number) + 1] in (".", ")")
    return (f"{requirement}.{number}", text) if requirement and is_item else None


def _build_scenario(capability: str, id: str, requirement: str, text: str) -> Scenario:
    """A criterion in EARS notation: WHEN or IF something, WHILE or WHERE something, THEN something."""
    scenario = Scenario(capability, requirement or None, id)
    word = text.partition(" ")[0].strip("*_").upper()
    clause = {"WHEN": scenario.when, "IF": scenario.when, "WHILE": scenario.given, "WHERE": scenario.given}.get(word)
    condition, answer = _split_answer(text)
    if clause is None or not answer:
        scenario.then.append(text)
        return scenario
    first, trigger, second = condition.partition(" WHEN ") if clause is scenario.given else (condition, "", "")
    clause.append(first.partition(" ")[2].strip(" ,*_"))
    scenario.when += [second.strip(" ,*_")] if trigger else []
    scenario.then.append(answer)
    return scenario


def _split_answer(text: str) -> tuple[str, str]:
    for word in ("THEN", ", then ", ", THE ", " THE ", ", the "):
        before, found, after = text.partition(word)
        if found:
            kept = "" if "then" in word.lower() else word.strip(" ,") + " "
            return before, (kept + after.strip(" ,*_")).strip()
    return text, ""


# --- new changes ------------------------------------------------------------------------------------


def is_used(project: str) -> bool:
    return os.path.isdir(_specs_path(project))


def scaffold(project: str, text: str, name: str | None, file: str | None) -> "Scaffold":
    from ralphtool.specs.scaffold import STORIES, Scaffold, name_for, title_of

    change = name_for(text, name)
    fill = {"title": title_of(text), "text": text, "stories": STORIES}
    texts = {
        "requirements.md": _REQUIREMENTS.format(**fill),
        "design.md": _DESIGN.format(**fill),
        "tasks.md": _TASKS.format(**fill),
    }
    return Scaffold(change, os.path.join(_specs_path(project), change), texts)


_REQUIREMENTS = """\
# Requirements Document

## Introduction

{text}

## Requirements

### Requirement 1: The first working part

**User Story:** As a <role>, I want <feature>, so that <benefit>.

#### Acceptance Criteria

1. WHEN a user does something THEN the system SHALL respond like this
2. IF the input is invalid THEN the system SHALL report what is wrong, and change nothing
"""

_DESIGN = """\
# Design Document

## Overview

<!-- How it is built: which parts of the code, which interfaces, which data. -->
"""

_TASKS = """\
# Implementation Plan

<!--
{stories}Each numbered box at the margin is a story; the indented boxes are its tasks; `[ ]*` is an optional task.
-->

- [ ] 1. The first working part
  - [ ] 1.1 Describe the result: a file, a command, a response to a request
    - _Requirements: 1.1_
  - [ ] 1.2 Name the test that proves it, and what it checks
    - _Requirements: 1.1, 1.2_

- [ ] 2. The next part, which builds on it
  - [ ] 2.1 One task for each condition that must be true
  - [ ] 2.2 What must not change, if that is not obvious
    - _Depends: 1_
"""


def compose(project: str, outline: "Outline", file: str | None) -> "Scaffold":
    from ralphtool.specs.scaffold import Scaffold

    criteria = _number_criteria(outline)
    texts = {"requirements.md": _compose_requirements(outline, criteria), "tasks.md": _compose_tasks(outline, criteria)}
    if outline.design:
        texts["design.md"] = outline.design
    return Scaffold(outline.name, os.path.join(_specs_path(project), outline.name), texts)


def _number_criteria(outline: "Outline") -> "dict[tuple[str, ...], tuple[str, str, str]]":
    """The number, the requirement and the text of every scenario."""
    from ralphtool.specs.outline import describe, join_words

    requirements: dict[str, int] = {}
    found: dict[tuple[str, ...], tuple[str, str, str]] = {}
    for one in outline.find_scenarios():
        title = join_words(one.requirement or one.capability or outline.title)
        number = requirements.setdefault(title, len(requirements) + 1)
        position = 1 + sum(id.partition(".")[0] == str(number) for id, _, _ in found.values())
        found[describe(one)] = (f"{number}.{position}", title, _compose_criterion(one))
    return found


def _compose_criterion(scenario: Scenario) -> str:
    given, when, then = (
        " AND ".join(" ".join(text.split()) for text in texts)
        for texts in (scenario.given, scenario.when, scenario.then)
    )
    parts = [f"WHILE {given}" if given else "", f"WHEN {when}" if when else ""]
    return " ".join([*filter(None, parts), f"THEN {then}" if given or when else then])


def _compose_requirements(outline: "Outline", criteria: "dict[tuple[str, ...], tuple[str, str, str]]") -> str:
    intro = ["## Introduction", "", outline.proposal.strip() if outline.proposal else outline.title, ""]
    lines = ["## Requirements", ""]
    last = ""
    for id, title, text in criteria.values():
        if title != last:
            lines += ["", f"### Requirement {id.partition('.')[0]}: {title}", "", "#### Acceptance Criteria", ""]
            last = title
        lines.append(f"{id.partition('.')[2]}. {text}")
    # Numbered items of an introduction must not be read as criteria.
    parts = [*lines, "", *intro] if _parse_criteria("\n".join(intro)) else [*intro, *lines, ""]
    return "\n".join(["# Requirements Document", "", *parts])


def _compose_tasks(outline: "Outline", criteria: "dict[tuple[str, ...], tuple[str, str, str]]") -> str:
    from ralphtool.specs.outline import build_box, describe, escape, is_own_task, strip_title

    lines = ["# Implementation Plan", ""]
    for number, story in enumerate(outline.stories, 1):
        optional = "* " if story.optional else " "
        lines.append(f"- [{'x' if story.done else ' '}]{optional}{number}. {strip_title(story)}")
        lines += [f"  {line}" for line in escape(story.description or "") if line.strip()]
        named = [criteria[describe(one)][0] for one in outline.scenarios.get(story.id, ())]
        waits = outline.list_dependencies(story)
        lines += [f"  - _Requirements: {', '.join(named)}_"] if named else []
        lines += [f"  - _Depends: {', '.join(map(str, waits))}_"] if waits else []
        for position, task in enumerate(() if is_own_task(story) else story.tasks, 1):
            first, *more = build_box(task, f"{number}.{position} ", "  ")
            lines += [first.replace("] ", "]* ", 1) if task.optional else first, *more]
        lines.append("")
    return "\n".join(lines)
