"""Spec Kit: `specs/<feature>/tasks.md`, whose phases are stories and whose `T001` boxes are tasks."""

import os

from ralphtool import specs
from ralphtool.core import project as projects
from ralphtool.errors import ChangeNotFound, SpecError, shorten
from ralphtool.specs import Scenario, Story, markdown
from ralphtool.specs.boxed import BoxedSpec, Draft, find_folder, make_unique

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphtool.specs import ChangeLocation
    from ralphtool.specs.markdown import Section
    from ralphtool.specs.outline import Outline
    from ralphtool.specs.scaffold import Scaffold

name = "speckit"
found_in = "specs/<feature>/tasks.md (also in .specify)"

_FEATURES = "specs"
_ELSEWHERE = os.path.join(".specify", "specs")
# Phases with these names come before all others, which depend on them.
_GROUNDWORK = ("setup", "foundational", "foundation")


def changes(project: str) -> list[str]:
    return [place.change for place in locate(project)]


def locate(project: str) -> "list[ChangeLocation]":
    from ralphtool.specs import folders

    return [
        *folders.locate(project, name, _FEATURES, _is_change),
        *folders.locate(project, name, _ELSEWHERE, _is_change, is_usual=False),
    ]


def _is_change(path: str) -> bool:
    """Whether it is a feature; one without tasks yet is recognized by Spec Kit's number in its name."""
    if os.path.lexists(os.path.join(path, "tasks.md")):
        return True
    number = os.path.basename(path).partition("-")[0]
    return len(number) >= 3 and number.isdigit() and os.path.isfile(os.path.join(path, "spec.md"))


def open(project: str, change: str, where: str | None = None) -> "SpecKit":
    place = find_folder(project, _FEATURES, change, where, _is_change, locate)
    if place is None:
        missing = os.path.join(where or os.path.join(_FEATURES, change), "tasks.md")
        raise ChangeNotFound(f"there is no {missing} in {project}: `ralphtool list` shows the changes")
    return SpecKit(project, change, place)


def places(change: str, where: str | None = None) -> list[str]:
    return [where] if where else [f"{_FEATURES}/{change}"]


class SpecKit(BoxedSpec):
    adapter = name
    task_example = "`- [ ] T001 What to do` below a heading `## Phase 1: Title` in tasks.md"

    def __init__(self, project: str, change: str, place: str) -> None:
        self.change = change
        self.ref = name if place == os.path.join(_FEATURES, change) else f"{name}:{place}"
        self.path = os.path.join(project, place)
        self.tasks_file = os.path.join(self.path, "tasks.md")
        self.notes_file = os.path.join(self.path, f"{change}-learnings.md")

    def drafts(self, text: str) -> list[Draft]:
        drafts = _Phases(self.warn, self.tasks_file).read(text)
        self.rename_twins(drafts)
        _add_dependencies(drafts)
        groundwork = _find_groundwork(drafts)
        return groundwork + [draft for draft in drafts if draft not in groundwork]

    def proposal(self) -> str | None:
        return markdown.load_context(os.path.join(self.path, "spec.md"), self.warn)

    def design(self) -> str | None:
        return markdown.load_context(os.path.join(self.path, "plan.md"), self.warn)

    def scenarios(self, story: Story) -> list[Scenario]:
        """The acceptance scenarios of the phase's user story; all scenarios for other phases."""
        found = _parse_scenarios(self.proposal() or "", self.change)
        about = _parse_user_story(story.title)
        return [one for one in found if about is None or _parse_user_story(one.requirement or "") == about]


# --- stories ----------------------------------------------------------------------------------------


class _Phases:
    """Reads the phases of a tasks file. Everything below a phase's heading belongs to it, including subheadings."""

    def __init__(self, warn: "Callable[[str], None]", path: str) -> None:
        self._warn = warn
        self._path = path
        self._drafts: dict[str, Draft] = {}
        self._current: Draft | None = None
        self._level = 0
        self._is_phase = False

    def read(self, text: str) -> list[Draft]:
        # The template explains its marks in a list: `- [P] tasks can run in parallel` is not a box.
        for section in markdown.sections(text, self._path, is_mark=lambda mark: not mark.isalnum()):
            if self._current is None or self._is_outside(section):
                self._begin(section)
            if self._current:
                self._current.add(section, _split_task_id)
        return list(self._drafts.values())

    def _is_outside(self, section: "Section") -> bool:
        """Whether a heading ends the current story; work outside any phase ends with the next level 1 or 2 heading."""
        most = self._level if self._is_phase else max(self._level, 2)
        return section.level <= most or (not self._is_phase and markdown.parse_phase(section.title) is not None)

    def _begin(self, section: "Section") -> None:
        """Finds out what a heading begins: a phase, work outside any phase, or nothing."""
        self._level, self._current, self._is_phase = section.level, None, False
        if phase := markdown.parse_phase(section.title):
            self._is_phase = True
            self._current = self._drafts.setdefault(phase[0], Draft(phase[0], phase[1], section.above))
        elif section.boxes and self._is_work(section):
            id = projects.build_slug(section.title) or ("tasks" if not section.title else str(len(self._drafts) + 1))
            id = make_unique(id, self._drafts)
            self._current = self._drafts.setdefault(id, Draft(id, section.title or "Tasks", section.above))
        elif section.boxes:
            self._warn(
                f"{self._path}: the boxes below {shorten(section.title)} have no task ids, so they are treated as a "
                "checklist: give them ids (T001) to include them"
            )

    def _is_work(self, section: "Section") -> bool:
        """Whether boxes outside any phase are work. After tasks with ids, boxes without ids are a mere checklist."""
        if any(_split_task_id(box.text) for box in section.boxes):
            return True
        return not any(_is_task_id(id) for id in _list_task_ids(list(self._drafts.values())))


def _list_task_ids(drafts: list[Draft]) -> list[str]:
    return [id for draft in drafts for id, _, _ in draft.tasks]


def _split_task_id(text: str) -> tuple[str, str] | None:
    word, _, rest = text.lstrip("*_`").partition(" ")
    id = word.rstrip("*_`:.")
    return (id, rest.strip()) if _is_task_id(id) else None


def _is_task_id(word: str) -> bool:
    number = word[1:].removeprefix("-")
    return word[:1] == "T" and number[:1].isdigit() and number.isascii() and number.isalnum()


def _find_groundwork(drafts: list[Draft]) -> list[Draft]:
    """The phases before all others: by name, or, in other languages, those before the first user story."""
    if named := [draft for draft in drafts if draft.tasks and draft.title.lower().startswith(_GROUNDWORK)]:
        return named
    about = [index for index, draft in enumerate(drafts) if any("[US" in text for _, text, _ in draft.tasks)]
    return drafts[: about[0]] if about else []


def _add_dependencies(drafts: list[Draft]) -> None:
    """The dependencies of each phase: those in its heading, the groundwork, and the phases of tasks that it names."""
    _check_task_cycles(drafts)
    named = [_find_named_phases(draft, drafts) for draft in drafts]
    waits = {
        draft.id: [*_list_declared_dependencies(draft, drafts), *more]
        for draft, more in zip(drafts, named, strict=True)
    }
    if specs.find_cycle(waits):
        # Two phases can depend on each other's tasks; then their order decides.
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
        raise SpecError(f"the tasks {', '.join(circle)} depend on each other: remove one of these dependencies")


def _list_declared_dependencies(draft: Draft, drafts: list[Draft]) -> list[str]:
    owner = _map_tasks_to_phases(drafts)
    ground = [one.id for one in _find_groundwork(drafts)]
    before = ground[: ground.index(draft.id)] if draft.id in ground else ground
    return [*[owner.get(id, id) for id in draft.depends_on], *before]


def _map_tasks_to_phases(drafts: list[Draft]) -> dict[str, str]:
    return {id: draft.id for draft in drafts for id, _, _ in draft.tasks}


def _find_named_phases(draft: Draft, drafts: list[Draft]) -> list[str]:
    owner = _map_tasks_to_phases(drafts)
    named = [id for _, text, _ in draft.tasks for id in _parse_task_ids(text)]
    # An unknown `T009` is an error, and is reported later; "T4 templates" is prose.
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
        if index % 2:  # the text between the stars
            word = part.strip(" :").lower()
            clause = {"given": scenario.given, "when": scenario.when, "then": scenario.then}.get(word, clause)
        elif clause is not None and part.strip(" ,.;:\r"):
            clause.append(part.strip(" ,;:\r"))
    return scenario


# --- new changes ------------------------------------------------------------------------------------


def is_used(project: str) -> bool:
    return os.path.isdir(os.path.join(project, ".specify")) or bool(changes(project))


def scaffold(project: str, text: str, name: str | None, file: str | None) -> "Scaffold":
    from ralphtool.specs.scaffold import STORIES, Scaffold, name_for, title_of

    change = name_for(text, name) if name else f"{_next_number(project):03}-{name_for(text, None)}"
    fill = {"title": title_of(text), "text": text, "stories": STORIES}
    texts = {"spec.md": _FEATURE.format(**fill), "tasks.md": _PHASES.format(**fill)}
    return Scaffold(change, os.path.join(project, _FEATURES, change), texts)


def _next_number(project: str) -> int:
    folder = os.path.join(project, _FEATURES)
    names = os.listdir(folder) if os.path.isdir(folder) else []
    heads = [name.partition("-")[0] for name in names]
    return 1 + max((int(head) for head in heads if head.isascii() and head.isdigit() and len(head) <= 6), default=0)


_FEATURE = """\
# Feature Specification: {title}

{text}

## User Scenarios & Testing

### User Story 1 - The first working part (Priority: P1)

<!-- Who wants what, and why. How to test it on its own. -->

**Acceptance Scenarios**:

1. **Given** the initial state, **When** a user does something, **Then** this is the result

### User Story 2 - The next part, which builds on it (Priority: P2)

**Acceptance Scenarios**:

1. **Given** the first part, **When** the input is invalid, **Then** it reports what is wrong

## Requirements

- **FR-001**: The system MUST do what this change is about
"""

_PHASES = """\
# Tasks: {title}

<!--
{stories}Each phase is a story. Phases called Setup and Foundational, if there are any, come before all others.
-->

## Phase 1: User Story 1 - The first working part

- [ ] T001 [US1] Describe the result: a file, a command, a response to a request
- [ ] T002 [US1] Name the test that proves it, and what it checks

## Phase 2: User Story 2 - The next part, which builds on it

- [ ] T003 [US2] One task for each condition that must be true (depends on T001)
- [ ] T004 [US2] What must not change, if that is not obvious
"""


def compose(project: str, outline: "Outline", file: str | None) -> "Scaffold":
    from ralphtool.specs.scaffold import Scaffold

    texts = {"spec.md": _compose_feature(outline), "tasks.md": _compose_phases(outline)}
    if outline.design:
        texts["plan.md"] = outline.design
    return Scaffold(outline.name, os.path.join(project, "specs", outline.name), texts)


def _compose_feature(outline: "Outline") -> str:
    from ralphtool.specs.outline import join_words, strip_title

    lines = [f"# Feature Specification: {outline.title}", "", (outline.proposal or outline.title).strip(), ""]
    lines += ["## User Scenarios & Testing", ""]
    for number, story in enumerate(outline.stories, 1):
        lines += [f"### User Story {number} - {strip_title(story)} (Priority: P{min(number, 3)})", ""]
        for position, one in enumerate(outline.scenarios.get(story.id, ()), 1):
            given = one.given or ["the system as it is"]
            clauses = ("Given", given), ("When", one.when), ("Then", one.then)
            parts = [f"**{word}** {join_words(text)}" for word, texts in clauses for text in texts]
            lines.append(f"{position}. {', '.join(parts)}")
        lines.append("")
    return "\n".join(lines)


def _compose_phases(outline: "Outline") -> str:
    from ralphtool.specs.outline import build_box, build_title, escape

    lines, count = [f"# Tasks: {outline.title}", ""], 0
    for number, story in enumerate(outline.stories, 1):
        # As user stories: a phase that begins with "Setup" would come before all others.
        lines += [f"## Phase {number}: User Story {number} - {build_title(outline, story)}", ""]
        lines += [*escape(story.description), ""] if story.description else []
        for task in story.tasks:
            count += 1
            lines += build_box(task, f"T{count:03} [US{number}] ")
        lines.append("")
    return "\n".join(lines)
