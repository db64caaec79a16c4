"""OpenSpec: `openspec/changes/<name>/` with tasks.md, proposal.md, design.md and specs/**/spec.md."""

import os

from ralphtool.core import project as projects
from ralphtool.errors import ChangeNotFound
from ralphtool.specs import Scenario, Story, markdown
from ralphtool.specs.boxed import BoxedSpec, Draft, make_unique

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralphtool.specs.markdown import Section
    from ralphtool.specs.scaffold import Scaffold

name = "openspec"
found_in = "openspec/changes/<name>/"


def _changes_path(project: str) -> str:
    return os.path.join(project, "openspec", "changes")


def changes(project: str) -> list[str]:
    try:
        names = sorted(os.listdir(_changes_path(project)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [name for name in names if _is_change(project, name)]


def _is_change(project: str, change: str) -> bool:
    return (
        change != "archive" and projects.is_name(change) and os.path.isdir(os.path.join(_changes_path(project), change))
    )


def open(project: str, change: str, where: str | None = None) -> "OpenSpec":
    if not _is_change(project, change):
        raise ChangeNotFound(
            f"there is no {os.path.join(_changes_path(project), change)}: `ralphtool list` shows the changes"
        )
    return OpenSpec(project, change)


def places(change: str, where: str | None = None) -> list[str]:
    return [f"openspec/changes/{change}"]


class OpenSpec(BoxedSpec):
    adapter = name
    ref = name

    def __init__(self, project: str, change: str) -> None:
        self.change = change
        self.path = os.path.join(_changes_path(project), change)
        self.tasks_file = os.path.join(self.path, "tasks.md")
        self.notes_file = os.path.join(self.path, "design.md")

    def drafts(self, text: str) -> list[Draft]:
        return _sort_drafts(_parse_drafts(text, self.tasks_file))

    def proposal(self) -> str | None:
        return markdown.load(os.path.join(self.path, "proposal.md"))

    def design(self) -> str | None:
        return markdown.load(self.notes_file)

    def scenarios(self, story: Story) -> list[Scenario]:
        found: list[Scenario] = []
        top = os.path.join(self.path, "specs")
        for folder, folders, names in os.walk(top):
            folders.sort()
            if "spec.md" in names:
                text = markdown.load_required(os.path.join(folder, "spec.md"))
                found += _parse_scenarios(text, os.path.relpath(folder, top))
        return found


# --- stories ----------------------------------------------------------------------------------------


def split_task_number(text: str) -> tuple[str, str] | None:
    """Parts "1.1 text" into id and text; bold numbers and a closing '.', ':' or ')' are fine."""
    bare = text.lstrip("*_`")
    stars = text[: len(text) - len(bare)]
    number, rest = _split_bold_number(bare, stars) if stars else markdown.split_number(text) or ("", "")
    return (number, rest) if "." in number else None


def _split_bold_number(bare: str, stars: str) -> tuple[str, str]:
    """Parts "1.1** text" and "1.1 text**", where `stars` stood before them."""
    close = stars[::-1]
    number, closed, rest = bare.partition(close)
    if closed and markdown.is_number(number.strip(" .:)")):
        return number.strip(" .:)"), rest.lstrip(" \t:)-")
    number, rest = markdown.split_number(bare) or ("", "")
    return number, rest.replace(close, "", 1) if closed else rest


def _parse_drafts(text: str, path: str) -> list[Draft]:
    """A story for each `## N. Title`; boxes that stand elsewhere are work too, and get a story of their own."""
    drafts: dict[str, Draft] = {}
    current: Draft | None = None
    for section in markdown.sections(text, path):
        if section.level == 1 and not section.boxes:
            current = None
        elif section.level in (1, 2) or (current is None and section.boxes):
            current = _find_or_add_draft(section, drafts)
        elif current and section.level > 2:
            current.prose.append(f"{'#' * section.level} {section.title}")
        if current:
            current.add(section, split_task_number)
    return [draft for draft in drafts.values() if draft.tasks or draft.id[0].isdigit()]


def _find_or_add_draft(section: "Section", drafts: dict[str, Draft]) -> Draft:
    parts = markdown.split_number(section.title)
    title = section.title or "Tasks"
    id, title = parts or (make_unique(_make_id(title), drafts), title)
    # A number that comes again goes on with its story.
    return drafts.setdefault(id, Draft(id, title or section.title, section.above))


def _make_id(title: str) -> str:
    id = projects.build_slug(title) or "section"
    return f"section-{id}" if id[0].isdigit() else id


def _sort_drafts(drafts: list[Draft]) -> list[Draft]:
    """By number, 10 after 2; a story without one stays behind the one that it follows."""
    keys: list[tuple[int, ...]] = []
    for draft in drafts:
        number = tuple(int(part) for part in draft.id.split(".")) if draft.id[0].isdigit() else None
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
            if self._clause and line.strip():  # what follows a clause belongs to it
                self._more.append(line.strip())
            return
        self._finish()
        word, text = parts
        if _CLAUSES[word]:
            self._clause = getattr(self.found[-1], _CLAUSES[word])
        if self._clause is not None:
            self._clause.append(text)


def _parse_clause(line: str) -> tuple[str, str] | None:
    """Parts `- **WHEN** something` into the word and the rest."""
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


# --- what `ralphtool new` writes --------------------------------------------------------------------


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
    return Scaffold(change, os.path.join(_changes_path(project), change), texts)


_PROPOSAL = """\
## Why

{text}

<!-- One or two sentences more: who has which trouble today, and why now. -->

## What Changes

- <!-- What is added, changed or removed. Mark what breaks others with **BREAKING**. -->

## Impact

- <!-- Which parts of the code, which interfaces, which data. -->
"""

_SPEC = """\
<!--
What the finished change does, as requirements with scenarios. Name the folder of this file after the capability
that it belongs to. A requirement says SHALL or MUST, and has at least one scenario that a test can play through.
-->

## ADDED Requirements

### Requirement: {title}

The system SHALL do what this change is about.

#### Scenario: The usual case

- **GIVEN** what is there at the beginning
- **WHEN** somebody does something
- **THEN** this can be seen

#### Scenario: What is not allowed

- **WHEN** somebody gives it something wrong
- **THEN** it says what is wrong, and changes nothing
"""

_TASKS = """\
# Tasks

<!--
{stories}Each heading with a number is a story.
-->

## 1. The first thing that can be seen to work

- [ ] 1.1 Say what is there afterwards: a file, a command, an answer to a request
- [ ] 1.2 Name the test that proves it, and what it looks at

## 2. The next thing, which builds on it (depends on 1)

- [ ] 2.1 One task for each thing that has to be true
- [ ] 2.2 What has to stay as it is, if that is not plain
"""
