"""A change without its format, from which an adapter writes a change that came from another format.

Text of one format can be markup in another: a line that would begin a story or a task there is escaped.
"""

from ralphtool.specs import Scenario, Story, Task, markdown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ralphtool.specs import Spec

__all__ = ["Outline", "build_example", "read_outline"]


class Outline:
    """A change: its stories in order, and its other texts. `scenarios` are by the id of their story."""

    __slots__ = ("design", "name", "proposal", "scenarios", "stories", "title")

    def __init__(
        self,
        name: str,
        title: str,
        stories: "Sequence[Story]",
        proposal: str | None = None,
        design: str | None = None,
        scenarios: "Mapping[str, Sequence[Scenario]] | None" = None,
    ) -> None:
        self.name = name
        self.title = title
        self.stories = list(stories)
        self.proposal = proposal
        self.design = design
        self.scenarios = dict(scenarios or {})

    def number_stories(self) -> dict[str, int]:
        """The number of each story, for formats that number them."""
        return {story.id: number for number, story in enumerate(self.stories, 1)}

    def list_dependencies(self, story: Story) -> list[int]:
        numbers = self.number_stories()
        return [numbers[id] for id in story.depends_on]

    def find_scenarios(self) -> list[Scenario]:
        """Every scenario once, in order: in some formats all stories share them."""
        found = {describe(one): one for story in self.stories for one in self.scenarios.get(story.id, ())}
        return list(found.values())


def read_outline(spec: "Spec", name: str | None = None) -> Outline:
    stories = spec.stories()
    scenarios = {story.id: spec.scenarios(story) for story in stories}
    change = name or spec.change
    proposal = spec.proposal()
    return Outline(change, _find_title(proposal) or change, stories, proposal, spec.design(), scenarios)


def _find_title(text: str | None) -> str:
    """The title in a first heading such as `# Feature Specification: Title`; empty without one."""
    first = next((line for line in (text or "").split("\n") if line.strip()), "")
    head = markdown.parse_heading(first)
    return head.title.rpartition(": ")[2] if head and head.level == 1 and ": " in head.title else ""


def build_example(text: str, name: str, title: str) -> Outline:
    """The two stories of `ralphtool new`."""
    from ralphtool.specs.scaffold import EXAMPLES

    first, second = EXAMPLES[:2], EXAMPLES[2:]
    stories = [
        Story("1", "The first working part", _build_tasks("1", first), "Small: an hour of work."),
        Story("2", "The next part, which builds on it", _build_tasks("2", second), depends_on=["1"]),
    ]
    return Outline(name, title, stories, text)


def _build_tasks(story: str, texts: "Sequence[str]") -> list[Task]:
    return [Task(f"{story}.{number}", text, False) for number, text in enumerate(texts, 1)]


def describe(scenario: Scenario) -> tuple[str, ...]:
    """The values that identify a scenario."""
    clauses = ["\n".join(texts) for texts in (scenario.given, scenario.when, scenario.then)]
    return (scenario.capability or "", scenario.requirement or "", scenario.name, *clauses)


# --- shared by the formats --------------------------------------------------------------------------


def join_words(text: str) -> str:
    return " ".join(text.split())


def strip_title(story: Story) -> str:
    """The title on one line, without its `(depends on …)` and `(optional)`."""
    title = join_words(story.title)
    for mark in ("(depends on", "(optional"):
        while (at := title.lower().find(mark)) >= 0 and ")" in title[at:]:
            title = join_words(title[:at] + title[at:].partition(")")[2])
    return title or story.id


def build_title(outline: Outline, story: Story) -> str:
    """The title with `(optional)` and `(depends on …)`, for a Markdown heading."""
    waits = ", ".join(map(str, outline.list_dependencies(story)))
    title = strip_title(story) + (" (optional)" if story.optional else "")
    return f"{title} (depends on {waits})" if waits else title


def is_own_task(story: Story) -> bool:
    """Whether a story has only one task, which merely repeats its title."""
    return len(story.tasks) == 1 and join_words(story.tasks[0].text) == join_words(story.title)


def is_over(story: Story) -> bool:
    """Whether all tasks of a story are done, even optional ones: for formats with one mark for the whole story."""
    return bool(story.tasks) and all(task.done for task in story.tasks)


def build_box(task: Task, head: str = "", indent: str = "") -> list[str]:
    """A task as a box, with its further lines indented below."""
    first, *more = escape(task.text) or [""]
    mark = "x" if task.done else " "
    return [f"{indent}- [{mark}] {head}{first.lstrip()}", *[f"{indent}  {line}" for line in more if line.strip()]]


def escape(text: str) -> list[str]:
    """Lines of Markdown without a heading, a box or an open fence."""
    fences, lines = markdown.Fences(), []
    for line in text.replace("\r", "").strip("\n").split("\n"):
        inside = fences.inside(line)
        lines.append(line.rstrip() if inside else _escape_line(line.rstrip()))
    return [*lines, *([fences.mark] if fences.mark else [])]


def _escape_line(line: str) -> str:
    bare = line.lstrip()
    if bare.startswith("#") and markdown.parse_heading(bare):
        return f"{line[: len(line) - len(bare)]}\\{bare}"
    return line.replace("[", "\\[", 1) if markdown.parse_box(line) else line
