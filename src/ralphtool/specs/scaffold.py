"""A change to start from: a spec with two stories to replace, in the format that the project uses already.

Nothing that is there is ever written over. A change of several files is made aside and put in place in one step.
"""

from __future__ import annotations

import json
import os
import unicodedata

from msgspec import Struct

from ralphtool import specs
from ralphtool.core import config, files, project
from ralphtool.errors import InvalidName, InvalidValue, shorten

FORMATS = ("checklist", "openspec", "prd", "speckit")
_USUAL = ("fix_plan.md", "plan.md", "todo.md")  # where a checklist is found without being named
_MARKDOWN = (".md", ".markdown")
_NO_CHANGES = ("archive", "readme", "changelog", "learnings")  # names that mean something else to the formats
_LONGEST_NAME = 60
_LONGEST_TITLE = 100


class Skeleton(Struct, frozen=True, kw_only=True):
    """What is to be made: the texts of its files, by their paths below `place`; `place` alone for a single file."""

    change: str
    format: str
    place: str
    texts: dict[str, str]
    spec: str | None = None  # what `--spec` has to say so that it is found

    @property
    def paths(self) -> list[str]:
        return [os.path.join(self.place, name) if name else self.place for name in self.texts]


def plan(
    root: str, text: str, *, format: str | None = None, name: str | None = None, file: str | None = None
) -> Skeleton:
    """What `ralphtool new` would make. `text` is what the change is about, `file` the path of a checklist."""
    told = _one_line(text)
    if not told:
        raise InvalidValue('there is nothing in it: say what the change is about, as in `ralphtool new "Add login"`')
    if file and format not in (None, "checklist"):
        raise InvalidValue(f"--file names a checklist, and --format says {format}: give one of them")
    chosen = "checklist" if file else format or format_of(root)
    made = {"checklist": _checklist, "openspec": _openspec, "prd": _prd, "speckit": _speckit}[chosen](
        root, told, name, file
    )
    _refuse_taken(root, made)
    return made


def make(skeleton: Skeleton) -> None:
    """Writes it; FileExistsError, and nothing written, if somebody was quicker."""
    folder, name = os.path.split(skeleton.place)
    os.makedirs(folder, exist_ok=True)
    if list(skeleton.texts) == [""]:
        files.create(skeleton.place, skeleton.texts[""].encode(), 0o644)
        return
    aside = os.path.join(folder, f".{name}.ralph-aside")
    files.clear(aside)  # which one that was killed may have left
    for inside, text in skeleton.texts.items():
        path = os.path.join(aside, inside)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        files.create(path, text.encode(), 0o644)
    os.rename(aside, skeleton.place)
    files.sync_folder(skeleton.place)


def format_of(root: str) -> str:
    """The format that the project uses: what its settings say, else what lies there."""
    told = (config.spec(root) or "").partition(":")[0]
    if told in FORMATS:
        return told
    if os.path.isdir(os.path.join(root, "openspec")):
        return "openspec"
    if os.path.lexists(os.path.join(root, "prd.json")):
        return "prd"
    if os.path.isdir(os.path.join(root, ".specify")) or specs.adapter("speckit").changes(root):
        return "speckit"
    return "checklist"


# --- names ------------------------------------------------------------------------------------------


def _one_line(text: str) -> str:
    """Without control characters, line ends and what would begin a heading or a list."""
    whole = text.encode("utf-8", "replace").decode()
    shown = "".join(mark if mark.isprintable() else " " for mark in whole)
    return " ".join(shown.split()).lstrip("#-*+> ")


def _title(text: str) -> str:
    if len(text) <= _LONGEST_TITLE:
        return text
    return text[:_LONGEST_TITLE].rpartition(" ")[0] or text[:_LONGEST_TITLE]


def _name_for(text: str, name: str | None) -> str:
    if name is not None:
        return _checked(project.check_name(name, "a change's name"))
    plain = unicodedata.normalize("NFKD", text[: 10 * _LONGEST_NAME]).casefold()
    slug = project.slug("".join(mark for mark in plain if not unicodedata.combining(mark)))
    if not slug:
        raise InvalidName(f"{shorten(text)} has no letters to make a name of: give one, as in --name add-login")
    return _checked(slug if len(slug) <= _LONGEST_NAME else slug[: _LONGEST_NAME + 1].rpartition("-")[0] or slug[:60])


def _checked(name: str) -> str:
    if name.lower() in _NO_CHANGES or name.lower().endswith("-learnings"):
        raise InvalidName(f"a change can't be called {name}: give another name with --name")
    return name


def _refuse_taken(root: str, made: Skeleton) -> None:
    near = os.path.relpath(made.place, root)
    if made.format == "prd" and os.path.lexists(made.place):
        raise InvalidValue(
            f"{near} is there already, and holds one change only: add a story to it, or begin a checklist with "
            "--file docs/NAME.md"
        )
    if made.format == "checklist" and _is_there(made.place):
        raise InvalidValue(f"{near} is there already: add a story to it, or name another file with --file docs/NAME.md")
    known = {place.change: place.ref for place in specs.find_all(root) if not place.error}
    if os.path.lexists(made.place) or made.change in known:
        where = near if os.path.lexists(made.place) else known[made.change]
        raise InvalidValue(f"there is a change {made.change} already ({where}): give another name with --name")


def _is_there(path: str) -> bool:
    """Also where a file system, or the one who reads it next, makes no difference between PLAN.md and plan.md."""
    folder, name = os.path.split(path)
    return os.path.isdir(folder) and name.lower() in (one.lower() for one in os.listdir(folder))


def refuse_untouched(spec: specs.Spec) -> None:
    """What nobody has filled in would cost attempts, and could only fail."""
    texts = [task.text for story in spec.stories() for task in story.tasks if not task.done]
    if any(example in text for text in texts for example in _EXAMPLES):
        raise InvalidValue(f"{spec.path} still has the examples of `ralphtool new`: replace them by what you want")


_EXAMPLES = (
    "Say what is there afterwards: a file, a command, an answer to a request",
    "Name the test that proves it, and what it looks at",
    "One task for each thing that has to be true",
    "What has to stay as it is, if that is not plain",
)


# --- formats ----------------------------------------------------------------------------------------

_STORIES = """\
A story is what the agent gets at one time, with a fresh mind. Good ones are small (an hour's work of yours, not
a week's), come one after another, and can be proven: by a test, or by a command that fails before and passes
afterwards. The tasks say what has to be true when it is done. Replace the two examples.
"""


def _checklist(root: str, text: str, name: str | None, file: str | None) -> Skeleton:
    place = os.path.abspath(file) if file else os.path.join(root, f"{_name_for(text, name)}.md" if name else "PLAN.md")
    inside = os.path.relpath(os.path.realpath(place), os.path.realpath(root))
    if inside.startswith(".."):
        raise InvalidValue(f"{shorten(place)} is outside of the project: name a file in {root}")
    if not place.endswith(_MARKDOWN):
        raise InvalidValue(f"{shorten(inside)} is no Markdown file: name one that ends in .md")
    change = _checked(project.check_name(os.path.splitext(os.path.basename(place))[0], "a change's name"))
    is_found = inside.lower() in _USUAL
    texts = {"": _CHECKLIST.format(title=_title(text), about=_about(text), stories=_STORIES)}
    return Skeleton(change=change, format="checklist", place=place, texts=texts, spec=None if is_found else inside)


def _about(text: str) -> str:
    return f"{text}\n\n" if text != _title(text) else ""


_CHECKLIST = """\
# {title}

{about}<!--
{stories}Boxes without a number are numbered by their place: 1.1, 1.2.
-->

## The first thing that can be seen to work

- [ ] Say what is there afterwards: a file, a command, an answer to a request
- [ ] Name the test that proves it, and what it looks at

## The next thing, which builds on it

- [ ] One task for each thing that has to be true
- [ ] What has to stay as it is, if that is not plain
"""


def _openspec(root: str, text: str, name: str | None, file: str | None) -> Skeleton:
    change = _name_for(text, name)
    fill = {"title": _title(text), "text": text, "stories": _STORIES}
    texts = {
        "proposal.md": _PROPOSAL.format(**fill),
        f"specs/{project.slug(change) or 'capability'}/spec.md": _SPEC.format(**fill),
        "tasks.md": _TASKS.format(**fill),
    }
    place = os.path.join(root, "openspec", "changes", change)
    return Skeleton(change=change, format="openspec", place=place, texts=texts)


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


def _prd(root: str, text: str, name: str | None, file: str | None) -> Skeleton:
    change = _name_for(text, name)
    stories = [
        _user_story(1, "The first thing that can be seen to work", "Small: an hour's work of yours, not a week's."),
        _user_story(2, "The next thing, which builds on it", "It can be proven: by a test, or by a command."),
    ]
    stories[1]["dependsOn"] = ["US-001"]
    document = {"project": _title(text), "branchName": f"ralph/{change}", "description": text, "userStories": stories}
    written = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    return Skeleton(change=change, format="prd", place=os.path.join(root, "prd.json"), texts={"": written})


def _user_story(number: int, title: str, hint: str) -> dict[str, object]:
    return {
        "id": f"US-{number:03}",
        "title": title,
        "description": f"As somebody I want something, so that something is better. {hint}",
        "acceptanceCriteria": [
            "Say what is there afterwards: a file, a command, an answer to a request",
            "Name the test that proves it, and what it looks at",
        ],
        "priority": number,
        "passes": False,
        "notes": "",
    }


def _speckit(root: str, text: str, name: str | None, file: str | None) -> Skeleton:
    change = _name_for(text, name) if name else f"{_next_number(root):03}-{_name_for(text, None)}"
    fill = {"title": _title(text), "text": text, "stories": _STORIES}
    texts = {"spec.md": _FEATURE.format(**fill), "tasks.md": _PHASES.format(**fill)}
    place = os.path.join(root, "specs", change)
    return Skeleton(change=change, format="speckit", place=place, texts=texts)


def _next_number(root: str) -> int:
    folder = os.path.join(root, "specs")
    names = os.listdir(folder) if os.path.isdir(folder) else []
    heads = [name.partition("-")[0] for name in names]
    return 1 + max((int(head) for head in heads if head.isascii() and head.isdigit() and len(head) <= 6), default=0)


_FEATURE = """\
# Feature Specification: {title}

{text}

## User Scenarios & Testing

### User Story 1 - The first thing that can be seen to work (Priority: P1)

<!-- Who wants what, and why. How it is tried by itself. -->

**Acceptance Scenarios**:

1. **Given** what is there at the beginning, **When** somebody does something, **Then** this can be seen

### User Story 2 - The next thing, which builds on it (Priority: P2)

**Acceptance Scenarios**:

1. **Given** the first thing, **When** somebody gives it something wrong, **Then** it says what is wrong

## Requirements

- **FR-001**: The system MUST do what this change is about
"""

_PHASES = """\
# Tasks: {title}

<!--
{stories}Each phase is a story. Setup and Foundational, where there are such phases, come before all others.
-->

## Phase 1: User Story 1 - The first thing that can be seen to work

- [ ] T001 [US1] Say what is there afterwards: a file, a command, an answer to a request
- [ ] T002 [US1] Name the test that proves it, and what it looks at

## Phase 2: User Story 2 - The next thing, which builds on it

- [ ] T003 [US2] One task for each thing that has to be true (depends on T001)
- [ ] T004 [US2] What has to stay as it is, if that is not plain
"""
