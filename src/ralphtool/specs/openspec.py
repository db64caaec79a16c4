"""OpenSpec: `openspec/changes/<name>/` with tasks.md, proposal.md, design.md and specs/**/spec.md."""

import os

from ralphtool.core import project as projects
from ralphtool.errors import ChangeNotFound
from ralphtool.specs import Scenario, Story, markdown
from ralphtool.specs.boxed import BoxedSpec, Draft, find_folder, make_unique

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralphtool.specs import ChangeLocation
    from ralphtool.specs.markdown import Section
    from ralphtool.specs.outline import Outline
    from ralphtool.specs.scaffold import Scaffold

name = "openspec"
found_in = "openspec/changes/<name>/"
_CHANGES = os.path.join("openspec", "changes")

# Folders that are not searched for the projects of a monorepo.
_NO_PROJECTS = ("node_modules", "vendor", "venv", "dist", "build", "target", "out", "openspec", "site-packages")
# What a test needs is no work for an agent. In any case: `Fixtures`, `TestData`.
_TEST_DATA = (
    *("fixture", "fixtures", "__fixtures__", "testfixtures", "test-fixtures", "test_fixtures"),
    *("testdata", "test-data", "test_data", "__tests__", "__mocks__", "__snapshots__"),
)
_DEEPEST = 3
_MOST_FOLDERS = 1000  # searched at most: other files must not slow down a list


def changes(project: str) -> list[str]:
    return [place.change for place in locate(project)]


def locate(project: str) -> "list[ChangeLocation]":
    """The project's own changes, then those of the projects below it."""
    nested = [pair for place in _find_nested(project) for pair in _locate_in(project, place)]
    return [*_locate_in(project, ""), *nested]


def _locate_in(project: str, place: str) -> "list[ChangeLocation]":
    from ralphtool.specs import folders

    return folders.locate(project, name, place + _CHANGES, _is_change, is_usual=not place, nested=bool(place))


def _find_nested(project: str) -> list[str]:
    """The subfolders with their own `openspec`, as in a monorepo; each ends in a slash."""
    found: list[str] = []
    level, seen = [""], 0
    for _ in range(_DEEPEST):
        level = [f"{place}{name}/" for place in level for name in _list_folders(os.path.join(project, place))]
        level = level[: _MOST_FOLDERS - seen]
        seen += len(level)
        found += [place for place in level if os.path.isdir(os.path.join(project, place, _CHANGES))]
    return sorted(found)


def _list_folders(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(
                one.name for one in entries if _may_hold_projects(one.name) and one.is_dir(follow_symlinks=False)
            )
    except OSError:
        return []  # we may not read it, so nothing in it is a change of this project


def _may_hold_projects(name: str) -> bool:
    return name[:1] != "." and name not in _NO_PROJECTS and name.lower() not in _TEST_DATA


def _is_change(path: str) -> bool:
    return os.path.basename(path) != "archive" and os.path.isdir(path)


def open(project: str, change: str, where: str | None = None) -> "OpenSpec":
    place = find_folder(project, _CHANGES, change, where, _is_change, locate)
    if place is None:
        raise ChangeNotFound(
            f"there is no {os.path.join(project, where or os.path.join(_CHANGES, change))}: "
            "`ralphtool list` shows the changes"
        )
    return OpenSpec(project, change, place)


def places(change: str, where: str | None = None) -> list[str]:
    return [where or f"openspec/changes/{change}"]


class OpenSpec(BoxedSpec):
    adapter = name
    task_example = "`- [ ] 1.1 What to do` below a heading `## 1. Title` in tasks.md"

    def __init__(self, project: str, change: str, place: str) -> None:
        self.change = change
        self.ref = name if place == os.path.join(_CHANGES, change) else f"{name}:{place}"
        self.path = os.path.join(project, place)
        self.tasks_file = os.path.join(self.path, "tasks.md")
        self.notes_file = os.path.join(self.path, "design.md")

    def drafts(self, text: str) -> list[Draft]:
        return _sort_drafts(_parse_drafts(text, self.tasks_file))

    def proposal(self) -> str | None:
        return markdown.load_context(os.path.join(self.path, "proposal.md"), self.warn)

    def design(self) -> str | None:
        return markdown.load_context(self.notes_file, self.warn)

    def scenarios(self, story: Story) -> list[Scenario]:
        found: list[Scenario] = []
        top = os.path.join(self.path, "specs")
        for folder, below, names in os.walk(top):
            below.sort()
            if "spec.md" in names:
                text = markdown.load_context(os.path.join(folder, "spec.md"), self.warn)
                found += _parse_scenarios(text or "", os.path.relpath(folder, top))
        return found


# --- stories ----------------------------------------------------------------------------------------


def split_task_number(text: str) -> tuple[str, str] | None:
    """Splits "1.1 text" into id and text; bold numbers and a closing '.', ':' or ')' are fine."""
    bare = text.lstrip("*_`")
    stars = text[: len(text) - len(bare)]
    number, rest = _split_bold_number(bare, stars) if stars else markdown.split_number(text) or ("", "")
    return (number, rest) if "." in number else None


def _split_bold_number(bare: str, stars: str) -> tuple[str, str]:
    """Splits "1.1** text" and "1.1 text**", which had `stars` before them."""
    close = stars[::-1]
    number, closed, rest = bare.partition(close)
    if closed and markdown.is_number(number.strip(" .:)")):
        return number.strip(" .:)"), rest.lstrip(" \t:)-")
    number, rest = markdown.split_number(bare) or ("", "")
    return number, rest.replace(close, "", 1) if closed else rest


def _parse_drafts(text: str, path: str) -> list[Draft]:
    """A story for each `## N. Title`; boxes elsewhere are work too, and get their own story."""
    drafts: dict[str, Draft] = {}
    current: Draft | None = None
    read = markdown.sections(text, path)
    numbers = {parts[0] for section in read if section.level < 3 and (parts := markdown.split_number(section.title))}
    for section in read:
        if section.level == 1 and not section.boxes:
            current = None
        elif section.level in (1, 2) or (current is None and section.boxes):
            current = _find_or_add_draft(section, drafts, numbers)
        elif current and section.level > 2:
            current.prose.append(f"{'#' * section.level} {section.title}")
        if current:
            current.add(section, split_task_number)
    return [draft for draft in drafts.values() if draft.tasks or _asks_for_work(draft)]


def _asks_for_work(draft: Draft) -> bool:
    """Whether a heading without boxes is a story that was written as prose."""
    return draft.id[0].isdigit() and not markdown.is_notes(draft.title)


def _find_or_add_draft(section: "Section", drafts: dict[str, Draft], numbers: set[str]) -> Draft:
    if parts := markdown.split_number(section.title):
        # A repeated number continues its story.
        return drafts.setdefault(parts[0], Draft(parts[0], parts[1] or section.title, section.above))
    title = section.title or "Tasks"
    phase = markdown.parse_phase(title)
    if phase and markdown.is_number(phase[0]) and phase[0] not in numbers:
        id, title = make_unique(phase[0], drafts), phase[1]
    else:
        id = make_unique(_make_id(title), drafts)
    return drafts.setdefault(id, Draft(id, title, section.above))


def _make_id(title: str) -> str:
    id = projects.build_slug(title) or "section"
    return f"section-{id}" if id[0].isdigit() else id


def _sort_drafts(drafts: list[Draft]) -> list[Draft]:
    """By number, 10 after 2; a story without a number stays after its predecessor."""
    keys: list[tuple[int, ...]] = []
    for draft in drafts:
        number = tuple(int(part) for part in draft.id.split(".")) if markdown.is_number(draft.id) else None
        keys.append(number or (keys[-1] if keys else (-1,)))
    order = sorted(range(len(drafts)), key=keys.__getitem__)
    return [drafts[index] for index in order]


# --- scenarios --------------------------------------------------------------------------------------

_CLAUSES = {"GIVEN": "given", "WHEN": "when", "THEN": "then", "AND": "", "BUT": ""}


def _parse_scenarios(text: str, capability: str) -> list[Scenario]:
    reader = _ScenarioReader(capability)
    for number, line, plain in markdown.iterate_lines(text.split("\n")):
        head = markdown.parse_heading(line, number) if plain else None
        if head:
            reader.heading(head.level, head.title)
        else:
            reader.line(line, plain)
    return reader.finish()


class _ScenarioReader:
    def __init__(self, capability: str) -> None:
        self.capability = None if capability == "." else capability
        self.requirement: str | None = None
        self.found: list[Scenario] = []
        self._removed = False
        self._open = False
        self._clause: list[str] | None = None
        self._more: list[str] = []

    def finish(self) -> list[Scenario]:
        self._finish()
        return self.found

    def _finish(self) -> None:
        if self._clause and self._more:
            self._clause[-1] = "\n".join([self._clause[-1], *self._more])
        self._more = []

    def heading(self, level: int, title: str) -> None:
        self._finish()
        self._open, self._clause = False, None
        kind, _, rest = title.partition(":")
        if level <= 2:
            self._removed = title.upper().startswith("REMOVED")
        elif kind.strip().lower() == "requirement":
            self.requirement = rest.strip()
        elif kind.strip().lower() == "scenario" and not self._removed:
            self.found.append(Scenario(self.capability, self.requirement, rest.strip()))
            self._open = True

    def line(self, line: str, plain: bool) -> None:
        if not self._open:
            return
        parts = _parse_clause(line) if plain else None
        if parts is None:
            if self._clause and line.strip():  # further lines belong to the clause
                self._more.append(line.strip())
            return
        self._finish()
        word, text = parts
        if _CLAUSES[word]:
            self._clause = getattr(self.found[-1], _CLAUSES[word])
        if self._clause is not None:
            self._clause.append(text)


def _parse_clause(line: str) -> tuple[str, str] | None:
    """Splits `- **WHEN** something` into the word and the rest."""
    bare = line.strip()
    if bare[:1] in ("-", "*", "+") and bare[1:2] == " ":
        bare = bare[2:].lstrip()
    bare = bare.lstrip("*_")
    word = bare[:5].upper().rstrip("*_: \t,")
    if word not in _CLAUSES or bare[len(word) : len(word) + 1].isalnum():
        word = word[:4].rstrip() if word[:4] in _CLAUSES else word[:3]
        if word not in _CLAUSES or bare[len(word) : len(word) + 1].isalnum():
            return None
    return word, bare[len(word) :].lstrip("*_: \t,")


# --- new changes ------------------------------------------------------------------------------------


def is_used(project: str) -> bool:
    return os.path.isdir(os.path.join(project, "openspec"))


def scaffold(project: str, text: str, name: str | None, file: str | None) -> "Scaffold":
    from ralphtool.specs.scaffold import STORIES, Scaffold, name_for, title_of

    change = name_for(text, name)
    fill = {"title": title_of(text), "text": text, "stories": STORIES}
    texts = {
        "proposal.md": _PROPOSAL.format(**fill),
        f"specs/{projects.build_slug(change) or 'capability'}/spec.md": _SPEC.format(**fill),
        "tasks.md": _TASKS.format(**fill),
    }
    return Scaffold(change, os.path.join(project, _CHANGES, change), texts)


_PROPOSAL = """\
## Why

{text}

<!-- One or two more sentences: who has which problem today, and why now. -->

## What Changes

- <!-- What is added, changed or removed. Mark breaking changes with **BREAKING**. -->

## Impact

- <!-- Which parts of the code, which interfaces, which data. -->
"""

_SPEC = """\
<!--
What the finished change does, as requirements with scenarios. Name the folder of this file after the capability
that it belongs to. A requirement says SHALL or MUST, and has at least one scenario that a test can check.
-->

## ADDED Requirements

### Requirement: {title}

The system SHALL do what this change is about.

#### Scenario: The usual case

- **GIVEN** the initial state
- **WHEN** a user does something
- **THEN** this is the result

#### Scenario: What is not allowed

- **WHEN** the input is invalid
- **THEN** the system reports what is wrong, and changes nothing
"""

_TASKS = """\
# Tasks

<!--
{stories}Each heading with a number is a story.
-->

## 1. The first working part

- [ ] 1.1 Describe the result: a file, a command, a response to a request
- [ ] 1.2 Name the test that proves it, and what it checks

## 2. The next part, which builds on it (depends on 1)

- [ ] 2.1 One task for each condition that must be true
- [ ] 2.2 What must not change, if that is not obvious
"""


def compose(project: str, outline: "Outline", file: str | None) -> "Scaffold":
    from ralphtool.specs.scaffold import Scaffold

    texts = {"proposal.md": outline.proposal or f"## Why\n\n{outline.title}\n", "tasks.md": _compose_tasks(outline)}
    if outline.design:
        texts["design.md"] = outline.design
    for capability in dict.fromkeys(one.capability for one in outline.find_scenarios()):
        folder = projects.build_slug(capability or outline.name) or "capability"
        texts[f"specs/{folder}/spec.md"] = _compose_scenarios(outline, capability)
    return Scaffold(outline.name, os.path.join(project, _CHANGES, outline.name), texts)


def _compose_tasks(outline: "Outline") -> str:
    from ralphtool.specs.outline import build_box, build_title, escape

    lines = ["# Tasks", ""]
    for number, story in enumerate(outline.stories, 1):
        lines += [f"## {number}. {build_title(outline, story)}", ""]
        lines += [*escape(story.description), ""] if story.description else []
        for position, task in enumerate(story.tasks, 1):
            lines += build_box(task, f"{number}.{position} ")
        lines.append("")
    return "\n".join(lines)


def _compose_scenarios(outline: "Outline", capability: str | None) -> str:
    from ralphtool.specs.outline import join_words

    lines, last = ["## ADDED Requirements"], ""
    for one in outline.find_scenarios():
        if one.capability != capability:
            continue
        requirement = join_words(one.requirement or outline.title)
        if requirement != last:
            lines += ["", f"### Requirement: {requirement}", "", f"The system SHALL do this: {requirement}."]
            last = requirement
        lines += ["", f"#### Scenario: {join_words(one.name)}", ""]
        clauses = ("GIVEN", one.given), ("WHEN", one.when), ("THEN", one.then)
        lines += [f"- **{word}** {join_words(text)}" for word, texts in clauses for text in texts]
    return "\n".join([*lines, ""])
