"""The common part of the Markdown formats: stories made of boxes, ticked one at a time, with a file of notes."""

import os

from ralphtool import specs
from ralphtool.errors import TaskNotFound, shorten
from ralphtool.specs import Story, Task, markdown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Any

    from ralphtool.specs.folders import Locate
    from ralphtool.specs.markdown import Box, Section

__all__ = ["BoxedSpec", "Draft", "WithNotes"]

_MOST_NAMED = 5


class Draft:
    """A story while its sections are being read."""

    def __init__(self, id: str, title: str, above: "Sequence[str]" = ()) -> None:
        self.id = id
        self.title = title
        self.optional = markdown.is_optional(title, above)
        self.put_aside = markdown.find_reason_aside(title, above)
        self.depends_on = markdown.parse_dependencies(title)
        self.tasks: list[tuple[str, str, Box]] = []
        self.prose: list[str] = []
        self._unnumbered = 0

    def add(self, section: "Section", task_id: "Callable[[str], tuple[str, str] | None]") -> None:
        """Adds a section's boxes; `task_id` splits a box's text into its leading id and the rest."""
        self.prose += section.prose
        for box in section.boxes:
            parts = task_id(box.text)
            if parts is None:
                self._unnumbered += 1
                parts = f"{self.id}.#{self._unnumbered}", box.text
            self.tasks.append((*parts, box))

    def story(self, known: "Collection[str]") -> Story:
        tasks = [Task(id, text, box.done, _is_optional(text)) for id, text, box in self.tasks]
        # An unknown number is an error, and is reported later; an unknown word is prose.
        depends_on = [id for id in self.depends_on if id in known or _is_id(id)]
        optional = self.optional or self.put_aside == "deferred" or (tasks and all(task.optional for task in tasks))
        prose = markdown.join_prose(self.prose)
        return Story(self.id, self.title, tasks, prose, bool(optional), depends_on, self.put_aside)


def _is_optional(text: str) -> bool:
    return "(optional)" in text.partition("\n")[0].lower()


def _is_id(text: str) -> bool:
    return markdown.is_number(text) or (text[:1] == "T" and text[1:].isdigit())


class WithNotes:
    """Writes a spec's notes into a Markdown file. Specs of any format can inherit this."""

    notes_file: str

    @property
    def warnings(self) -> list[str]:
        """The problems of what was read so far."""
        return list(self.__dict__.get("_warnings", ()))

    def warn(self, text: str) -> None:
        self.__dict__.setdefault("_warnings", {})[text] = None  # a dict keeps the order and drops duplicates

    def write_learnings(self, learnings: "Sequence[dict[str, Any]]") -> int:
        from ralphtool.specs import notes

        return notes.write_learnings(self.notes_file, learnings)

    def write_patterns(self, patterns: "Sequence[dict[str, Any]]") -> int:
        from ralphtool.specs import notes

        return notes.write_patterns(self.notes_file, patterns)

    def write_observations(self, observations: "Sequence[dict[str, Any]]") -> int:
        from ralphtool.specs import notes

        return notes.write_observations(self.notes_file, observations)


class BoxedSpec(WithNotes):
    """A change whose tasks are the boxes of one Markdown file."""

    tasks_file: str

    def drafts(self, text: str) -> list[Draft]:
        """The stories of the file, in the order of work."""
        raise NotImplementedError

    def stories(self, completed: "Collection[str]" = ()) -> list[Story]:
        text = markdown.load(self.tasks_file)
        drafts = [] if text is None else self._read_drafts(text)  # the tasks file may not be written yet
        known = {draft.id for draft in drafts}
        stories = [draft.story(known) for draft in drafts]
        specs.check(stories, self.tasks_file)
        self._warn_of_prose(stories)
        return stories

    def _read_drafts(self, text: str) -> list[Draft]:
        drafts = self.drafts(text)
        self.rename_twins(drafts)
        return drafts

    def rename_twins(self, drafts: list[Draft]) -> None:
        """Gives duplicate ids a suffix, with a warning."""
        if twins := _rename_twins(drafts):
            shown = f"{', '.join(twins[:_MOST_NAMED])}{' …' if len(twins) > _MOST_NAMED else ''}"
            self.warn(f"{self.tasks_file}: duplicate ids got a suffix ({shown}): give each task its own id")

    def _warn_of_prose(self, stories: list[Story]) -> None:
        empty = [story.id for story in stories if not (story.tasks or story.optional)]
        if empty and len(empty) < len(stories):
            what = "story" if len(empty) == 1 else "stories"
            ids = f"{', '.join(empty[:_MOST_NAMED])}{' …' if len(empty) > _MOST_NAMED else ''}"
            self.warn(
                f"{self.tasks_file}: there are no boxes below the heading of {what} {ids}, so no work is done there: "
                "write its tasks as boxes (`- [ ] …`); or, if there is nothing to do, add (optional) to the heading"
            )

    def tick(self, task_id: str, completed: "Collection[str]" = (), *, proven: bool = True) -> None:
        def change(text: str) -> str:
            box = self._find_box(text, task_id)
            return text if box.done else markdown.tick(text, box)

        markdown.edit(self.tasks_file, change)

    def untick(self, task_id: str) -> None:
        def change(text: str) -> str:
            box = self._find_box(text, task_id)
            return markdown.untick(text, box) if box.done else text

        markdown.edit(self.tasks_file, change)

    def _find_box(self, text: str, task_id: str) -> "Box":
        boxes = [box for draft in self._read_drafts(text) for id, _, box in draft.tasks if id == task_id]
        if not boxes:
            raise TaskNotFound(f"{self.tasks_file} has no task {shorten(task_id)}")
        return boxes[0]


def _rename_twins(drafts: "Sequence[Draft]") -> list[str]:
    """Gives tasks with a duplicate id a new one: the second 1.1 becomes `1.1-2`. Returns the new ids."""
    taken = {id for draft in drafts for id, _, _ in draft.tasks}
    seen: set[str] = set()
    renamed = []
    for draft in drafts:
        for index, (id, text, box) in enumerate(draft.tasks):
            if id in seen:
                id = make_unique(id, taken)
                taken.add(id)
                renamed.append(id)
                draft.tasks[index] = (id, text, box)
            seen.add(id)
    return renamed


def find_folder(
    project: str, parent: str, change: str, where: str | None, is_change: "Callable[[str], bool]", locate: "Locate"
) -> str | None:
    """The path in the project of a change that is a folder; None if it does not exist."""
    place = os.path.normpath(where or os.path.join(parent, change))
    if os.path.basename(place) == change and is_change(os.path.join(project, place)):
        return place
    from ralphtool.specs import folders  # needed only if the folder is not at the usual place

    return folders.find(project, change, where, is_change, locate)


def make_unique(name: str, taken: "Collection[str]") -> str:
    """The second "testing" becomes `testing-2`."""
    count = 2
    candidate = name
    while candidate in taken:
        candidate, count = f"{name}-{count}", count + 1
    return candidate
