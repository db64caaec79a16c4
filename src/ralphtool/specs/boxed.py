"""What the Markdown formats share: stories made of boxes, ticked one at a time, with notes beside them."""

from ralphtool import specs
from ralphtool.errors import TaskNotFound, shorten
from ralphtool.specs import Story, Task, markdown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Any

    from ralphtool.specs.markdown import Box, Section

__all__ = ["BoxedSpec", "Draft", "WithNotes"]


class Draft:
    """A story while its sections are being read."""

    def __init__(self, id: str, title: str, above: "Sequence[str]" = ()) -> None:
        self.id = id
        self.title = title
        self.optional = markdown.is_optional(title, above)
        self.depends_on = markdown.parse_dependencies(title)
        self.tasks: list[tuple[str, str, Box]] = []
        self.prose: list[str] = []
        self._unnumbered = 0

    def add(self, section: "Section", task_id: "Callable[[str], tuple[str, str] | None]") -> None:
        """Takes a section's boxes; `task_id` parts a box's text into the id that it begins with and the rest."""
        self.prose += section.prose
        for box in section.boxes:
            parts = task_id(box.text)
            if parts is None:
                self._unnumbered += 1
                parts = f"{self.id}.#{self._unnumbered}", box.text
            self.tasks.append((*parts, box))

    def story(self, known: "Collection[str]") -> Story:
        tasks = [Task(id, text, box.done) for id, text, box in self.tasks]
        # A number that is nobody's is a mistake, and told as one; a word that is nobody's is prose.
        depends_on = [id for id in self.depends_on if id in known or _is_id(id)]
        return Story(self.id, self.title, tasks, markdown.join_prose(self.prose), self.optional, depends_on)


def _is_id(text: str) -> bool:
    return markdown.is_number(text) or (text[:1] == "T" and text[1:].isdigit())


class WithNotes:
    """What writes a spec's notes into a Markdown file. Whatever its format, an adapter can inherit this."""

    notes_file: str

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
        """The stories of the file, in the order in which they are to be done."""
        raise NotImplementedError

    def stories(self, completed: "Collection[str]" = ()) -> list[Story]:
        drafts = self.drafts(markdown.load_required(self.tasks_file))
        known = {draft.id for draft in drafts}
        stories = [draft.story(known) for draft in drafts]
        specs.check(stories, self.tasks_file)
        return stories

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
        boxes = [box for draft in self.drafts(text) for id, _, box in draft.tasks if id == task_id]
        if not boxes:
            raise TaskNotFound(f"{self.tasks_file} has no task {shorten(task_id)}")
        return boxes[0]


def make_unique(name: str, taken: "Collection[str]") -> str:
    """The second "testing" is `testing-2`."""
    count = 2
    candidate = name
    while candidate in taken:
        candidate, count = f"{name}-{count}", count + 1
    return candidate
