"""What the Markdown formats share: stories made of boxes, ticked one at a time, with notes beside them."""

from ralphtool import specs
from ralphtool.errors import TaskNotFound, shorten
from ralphtool.specs import Story, Task, markdown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Any

    from ralphtool.specs.markdown import Box, Section


class Draft:
    """A story while its sections are being read."""

    def __init__(self, id: str, title: str, above: "Sequence[str]" = ()) -> None:
        self.id = id
        self.title = title
        self.optional = markdown.is_optional(title, above)
        self.depends_on = markdown.depends_on(title)
        self.tasks: list[tuple[str, Box]] = []
        self.prose: list[str] = []
        self._unnumbered = 0

    def add(self, section: "Section", task_id: "Callable[[str], tuple[str, str] | None]") -> None:
        """Takes a section's boxes; `task_id` parts a box's text into the id that it begins with and the rest."""
        self.prose += section.prose
        for box in section.boxes:
            parts = task_id(box.text)
            if parts is None:
                self._unnumbered += 1
            id, box.text = parts or (f"{self.id}.#{self._unnumbered}", box.text)
            self.tasks.append((id, box))

    def story(self) -> Story:
        tasks = [Task(id, box.text, box.done) for id, box in self.tasks]
        return Story(self.id, self.title, tasks, markdown.prose(self.prose), self.optional, self.depends_on)


class BoxedSpec:
    """A change whose tasks are the boxes of one Markdown file."""

    tasks_file: str
    notes_file: str

    def drafts(self, text: str) -> list[Draft]:
        """The stories of the file, in the order in which they are to be done."""
        raise NotImplementedError

    def stories(self, completed: "Collection[str]" = ()) -> list[Story]:
        stories = [draft.story() for draft in self.drafts(markdown.load_required(self.tasks_file))]
        specs.check(stories, self.tasks_file)
        return stories

    def tick(self, task_id: str, completed: "Collection[str]" = (), *, proven: bool = True) -> None:
        def change(text: str) -> str:
            boxes = [box for draft in self.drafts(text) for id, box in draft.tasks if id == task_id]
            if not boxes:
                raise TaskNotFound(f"{self.tasks_file} has no task {shorten(task_id)}")
            return text if boxes[0].done else markdown.tick(text, boxes[0])

        markdown.edit(self.tasks_file, change)

    def write_learnings(self, learnings: "Sequence[dict[str, Any]]") -> int:
        from ralphtool.specs import notes

        return notes.write_learnings(self.notes_file, learnings)

    def write_patterns(self, patterns: "Sequence[dict[str, Any]]") -> int:
        from ralphtool.specs import notes

        return notes.write_patterns(self.notes_file, patterns)

    def write_observations(self, observations: "Sequence[dict[str, Any]]") -> int:
        from ralphtool.specs import notes

        return notes.write_observations(self.notes_file, observations)


def unique_name(name: str, taken: "Collection[str]") -> str:
    """The second "testing" is `testing-2`."""
    count = 2
    candidate = name
    while candidate in taken:
        candidate, count = f"{name}-{count}", count + 1
    return candidate
