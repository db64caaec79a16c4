"""Spec Kit: `specs/<feature>/tasks.md`, whose phases are stories and whose `T001` are tasks."""

import os

from ralphtool import specs
from ralphtool.core import project as projects
from ralphtool.errors import ChangeNotFound, SpecError
from ralphtool.specs import Scenario, Story, markdown
from ralphtool.specs.boxed import BoxedSpec, Draft, make_unique

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralphtool.specs.markdown import Section
    from ralphtool.specs.scaffold import Scaffold

name = "speckit"
found_in = "specs/<feature>/tasks.md"

# Phases of these names come before all others, which wait for them.
_GROUNDWORK = ("setup", "foundational", "foundation")


def changes(project: str) -> list[str]:
    try:
        names = sorted(os.listdir(os.path.join(project, "specs")))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [name for name in names if _is_change(project, name)]


def _is_change(project: str, change: str) -> bool:
    return projects.is_name(change) and os.path.lexists(os.path.join(project, "specs", change, "tasks.md"))


def open(project: str, change: str, where: str | None = None) -> "SpecKit":
    if not _is_change(project, change):
        raise ChangeNotFound(f"there is no specs/{change}/tasks.md in {project}: `ralphtool list` shows the changes")
    return SpecKit(project, change)


def places(change: str, where: str | None = None) -> list[str]:
    return [f"specs/{change}"]


class SpecKit(BoxedSpec):
    adapter = name
    ref = name

    def __init__(self, project: str, change: str) -> None:
        self.change = change
        self.path = os.path.join(project, "specs", change)
        self.tasks_file = os.path.join(self.path, "tasks.md")
        self.notes_file = os.path.join(self.path, f"{change}-learnings.md")

    def drafts(self, text: str) -> list[Draft]:
        drafts = _parse_drafts(text, self.tasks_file)
        _add_dependencies(drafts)
        groundwork = [draft for draft in drafts if _is_groundwork(draft)]
        return groundwork + [draft for draft in drafts if draft not in groundwork]

    def proposal(self) -> str | None:
        return markdown.load(os.path.join(self.path, "spec.md"))

    def design(self) -> str | None:
        return markdown.load(os.path.join(self.path, "plan.md"))

    def scenarios(self, story: Story) -> list[Scenario]:
        """The acceptance scenarios of the user story that a phase is about; of all of them for other phases."""
        found = _parse_scenarios(markdown.load(os.path.join(self.path, "spec.md")) or "", self.change)
        about = _parse_user_story(story.title)
        return [one for one in found if about is None or _parse_user_story(one.requirement or "") == about]


# --- stories ----------------------------------------------------------------------------------------


def _parse_drafts(text: str, path: str) -> list[Draft]:
    drafts: dict[str, Draft] = {}
    current: Draft | None = None
    # The template explains its marks in a list: `- [P] tasks can run in parallel` is no box.
    for section in markdown.sections(text, path, is_mark=lambda mark: not mark.isalnum()):
        phase = _parse_phase(section.title)
        if phase:
            current = drafts.setdefault(phase[0], Draft(phase[0], phase[1], section.above))
        elif section.level <= 2 or (current is None and section.boxes):
            current = _add_draft_outside_phases(section, drafts)
        if current:
            current.add(section, _split_task_id)
    return list(drafts.values())


def _parse_phase(title: str) -> tuple[str, str] | None:
    """Parts "Phase 3: Title" and "Phase 3.1 - Title" into the number and the title."""
    if title[:6].lower() != "phase ":
        return None
    number, _, rest = title[6:].strip().replace(":", " ", 1).partition(" ")
    counts = any(character.isdigit() for character in number) or len(number) == 1
    return (number, rest.strip(" \t-–—") or title) if counts else None


def _add_draft_outside_phases(section: "Section", drafts: dict[str, Draft]) -> Draft | None:
    """Boxes outside of any phase are work too."""
    if not section.boxes:
        return None
    id = make_unique(projects.build_slug(section.title) or "tasks", drafts)
    return drafts.setdefault(id, Draft(id, section.title or "Tasks", section.above))


def _split_task_id(text: str) -> tuple[str, str] | None:
    word, _, rest = text.lstrip("*_`").partition(" ")
    id = word.rstrip("*_`:.")
    return (id, rest.strip()) if _is_task_id(id) else None


def _is_task_id(word: str) -> bool:
    number = word[1:].removeprefix("-")
    return word[:1] == "T" and number[:1].isdigit() and number.isascii() and number.isalnum()


def _is_groundwork(draft: Draft) -> bool:
    return draft.title.lower().startswith(_GROUNDWORK)


def _add_dependencies(drafts: list[Draft]) -> None:
    """What each phase waits for: what its heading says, the groundwork, and the phases of the tasks that it names."""
    _check_task_cycles(drafts)
    named = [_find_named_phases(draft, drafts) for draft in drafts]
    waits = {
        draft.id: [*_list_declared_dependencies(draft, drafts), *more]
        for draft, more in zip(drafts, named, strict=True)
    }
    if specs.find_cycle(waits):
        # Two phases can need each other's tasks. Then the order of the phases decides.
        order = [draft.id for draft in drafts]
        for draft, more in zip(drafts, named, strict=True):
            earlier = order[: order.index(draft.id)]
            waits[draft.id] = [*_list_declared_dependencies(draft, drafts), *[id for id in more if id in earlier]]
    for draft in drafts:
        draft.depends_on = list(dict.fromkeys(id for id in waits[draft.id] if id != draft.id))


def _check_task_cycles(drafts: list[Draft]) -> None:
    waits = {
        id: [other for other in _parse_task_ids(text) if other != id] for draft in drafts for id, text, _ in draft.tasks
    }
    if circle := specs.find_cycle(waits):
        raise SpecError(f"the tasks {', '.join(circle)} wait for each other: break the circle")


def _list_declared_dependencies(draft: Draft, drafts: list[Draft]) -> list[str]:
    owner = _map_tasks_to_phases(drafts)
    ground = [one.id for one in drafts if _is_groundwork(one)]
    before = ground[: ground.index(draft.id)] if draft.id in ground else ground
    return [*[owner.get(id, id) for id in draft.depends_on], *before]


def _map_tasks_to_phases(drafts: list[Draft]) -> dict[str, str]:
    return {id: draft.id for draft in drafts for id, _, _ in draft.tasks}


def _find_named_phases(draft: Draft, drafts: list[Draft]) -> list[str]:
    owner = _map_tasks_to_phases(drafts)
    named = [id for _, text, _ in draft.tasks for id in _parse_task_ids(text)]
    # `T009` that is nobody's is a mistake, and told as one; "T4 templates" is prose.
    return [owner.get(id, id) for id in named if (id in owner or len(id) > 3) and owner.get(id) != draft.id]


def _parse_task_ids(text: str) -> list[str]:
    listed = markdown.find_dependency_list(text).partition(")")[0].replace(",", " ")
    return [word for word in (word.strip(".;:#") for word in listed.split()) if _is_task_id(word)]


# --- scenarios --------------------------------------------------------------------------------------


def _parse_user_story(title: str) -> str | None:
    """The number in "User Story 3 - Title"."""
    _, found, after = title.lower().partition("user story ")
    number = after[: len(after) - len(after.lstrip("0123456789"))]
    return number if found and number else None


def _parse_scenarios(text: str, capability: str) -> list[Scenario]:
    """The numbered `**Given** a, **When** b, **Then** c` of spec.md."""
    found: list[Scenario] = []
    title: str | None = None
    for number, line, plain in markdown.iterate_lines(text.split("\n")):
        head = markdown.parse_heading(line, number) if plain else None
        if head:
            title = head.title
        elif plain and "**given**" in line.lower() and "**then**" in line.lower():
            found.append(_fill_scenario(line, Scenario(capability, title, "")))
    return found


def _fill_scenario(line: str, scenario: Scenario) -> Scenario:
    scenario.name = line.strip()
    clause: list[str] | None = None
    for index, part in enumerate(line.split("**")):
        if index % 2:  # what stands between the stars
            word = part.strip(" :").lower()
            clause = {"given": scenario.given, "when": scenario.when, "then": scenario.then}.get(word, clause)
        elif clause is not None and part.strip(" ,.;:\r"):
            clause.append(part.strip(" ,;:\r"))
    return scenario


# --- what `ralphtool new` writes --------------------------------------------------------------------


def is_used(project: str) -> bool:
    return os.path.isdir(os.path.join(project, ".specify")) or bool(changes(project))


def scaffold(project: str, text: str, name: str | None, file: str | None) -> "Scaffold":
    from ralphtool.specs.scaffold import STORIES, Scaffold, name_for, title_of

    change = name_for(text, name) if name else f"{_next_number(project):03}-{name_for(text, None)}"
    fill = {"title": title_of(text), "text": text, "stories": STORIES}
    texts = {"spec.md": _FEATURE.format(**fill), "tasks.md": _PHASES.format(**fill)}
    return Scaffold(change, os.path.join(project, "specs", change), texts)


def _next_number(project: str) -> int:
    folder = os.path.join(project, "specs")
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
