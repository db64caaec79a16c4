"""The local copy of a change in an issue tracker: one Markdown file, `.ralph-issues/<change>.md`.

Agents work in a box, offline, on the files of a branch. So the issues are copied into a file once, the boxes in that
file are ticked, and the run publishes proven stories to the tracker later. The text of issues is quoted, so that it
can't forge a story, a box or a heading.
"""

import os

from ralphtool import specs
from ralphtool.core import files, quickjson
from ralphtool.errors import ChangeNotFound, SpecError, shorten
from ralphtool.specs import Scenario, Story, markdown
from ralphtool.specs.boxed import BoxedSpec, Draft

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ralphtool.specs.markdown import Section

FOLDER = ".ralph-issues"
_HEAD, _TAIL = "<!-- ralphtool copy of ", " -->"
_WAITS, _OPTIONAL = "<!-- depends on ", "<!-- optional -->"
_FIRST_LINE = 4096  # bytes; enough to find out what a file is a copy of
_NOTE = "This is a copy. Edit the issues, not this file: the next run that starts without a branch copies them again."


# --- finding copies ---------------------------------------------------------------------------------


def path_of(project: str, change: str) -> str:
    return os.path.join(project, FOLDER, f"{change}.md")


def list_places(change: str) -> list[str]:
    return [f"{FOLDER}/{change}.md", f"{FOLDER}/{change}-learnings.md"]


def list_changes(project: str, adapter: str) -> list[str]:
    """The changes that an adapter has a copy of."""
    folder = os.path.join(project, FOLDER)
    try:
        names = sorted(name[:-3] for name in os.listdir(folder) if name.endswith(".md"))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [name for name in names if (source := read_source(project, name)) and source[0] == adapter]


def read_source(project: str, change: str) -> tuple[str, str] | None:
    """The adapter that a copy belongs to, and what it is a copy of; None if there is no copy."""
    try:
        with open(path_of(project, change), "rb") as file:
            return parse_source(file.read(_FIRST_LINE).decode("utf-8", "replace").partition("\n")[0])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SpecError(f"{path_of(project, change)} can't be read ({error.strerror}): check its permissions") from None


def parse_source(line: str) -> tuple[str, str] | None:
    line = line.removeprefix(markdown.BOM).rstrip()
    if not (line.startswith(_HEAD) and line.endswith(_TAIL)):
        return None
    try:
        adapter, where = quickjson.loads(line[len(_HEAD) : -len(_TAIL)])
    except (ValueError, TypeError):
        return None
    return (adapter, where) if isinstance(adapter, str) and isinstance(where, str) else None


def open_copy(project: str, change: str, adapter: str, where: str | None) -> "IssueCopy":
    """The copy of a change, or ChangeNotFound."""
    source = read_source(project, change)
    if source is None or source[0] != adapter:
        raise ChangeNotFound(f"{FOLDER}/{change}.md is missing, or is not a copy of {adapter}")
    if where and source[1] != where:
        raise SpecError(
            f"{FOLDER}/{change}.md is a copy of {shorten(source[1])}, not of {shorten(where)}: rename or delete it"
        )
    return IssueCopy(path_of(project, change), change, adapter, f"{adapter}:{source[1]}")


# --- reading ----------------------------------------------------------------------------------------


class IssueCopy(BoxedSpec):
    """A change as its local copy has it."""

    def __init__(self, path: str, change: str, adapter: str, ref: str) -> None:
        self.path = self.tasks_file = path
        self.change = change
        self.adapter = adapter
        self.ref = ref
        self.notes_file = os.path.join(os.path.dirname(path), f"{change}-learnings.md")

    def drafts(self, text: str) -> list[Draft]:
        return [_read_draft(section, self.path) for section in _list_sections(text, self.path)]

    @property
    def title(self) -> str:
        heads = (line[2:].strip() for line in self.read_intro().split("\n") if line.startswith("# "))
        return next(heads, "")

    def proposal(self) -> str | None:
        first = [one for one in markdown.sections(self.read_intro(), self.path) if one.level < 2]
        return markdown.join_prose(line for section in first for line in _unquote(section.prose))

    def read_intro(self) -> str:
        return markdown.load_required(self.tasks_file)

    def design(self) -> str | None:
        return None

    def scenarios(self, story: Story) -> list[Scenario]:
        return []


def _list_sections(text: str, path: str) -> "list[Section]":
    """One for each story. A file with boxes before the first story was not written by us."""
    sections = markdown.sections(text, path)
    if any(section.boxes for section in sections if section.level < 2):
        raise SpecError(f"{path} has boxes before its first story: delete the file, and it is copied again")
    return [section for section in sections if section.level >= 2]


def _read_draft(section: "Section", path: str) -> Draft:
    id, colon, title = section.title.partition(": ")
    if not colon or not id or " " in id:
        raise SpecError(
            f"{path}: the heading {shorten(section.title)} has no id before a colon: remove the file, and it is copied "
            "again"
        )
    draft = Draft(id, title)
    draft.add(section, lambda text: _split_task(text, id))
    draft.optional = _OPTIONAL in section.prose
    draft.depends_on = _read_dependencies(section.prose)
    draft.prose = _unquote(section.prose)
    return draft


def _split_task(text: str, story: str) -> tuple[str, str] | None:
    id, _, rest = text.partition(" ")
    return (id, rest) if id.startswith(f"{story}.") else None


def _read_dependencies(prose: "Iterable[str]") -> list[str]:
    listed = [line[len(_WAITS) : -len(_TAIL)] for line in prose if line.startswith(_WAITS) and line.endswith(_TAIL)]
    return [id for line in listed for id in line.split(" ") if id]


def _unquote(lines: "Iterable[str]") -> list[str]:
    return [line[1:].removeprefix(" ") for line in lines if line.startswith(">")]


# --- writing ----------------------------------------------------------------------------------------


def flatten(text: str) -> str:
    """On one line, and safe to write: a lone surrogate or a NUL would break the file."""
    return " ".join(text.encode("utf-8", "replace").decode().replace("\0", " ").split())


def render(source: tuple[str, str], title: str, about: str, stories: "Sequence[Story]", url: str = "") -> str:
    """The text of a copy."""
    named = quickjson.dumps(list(source)).replace("<", "\\u003c").replace(">", "\\u003e")
    lines = [f"{_HEAD}{named}{_TAIL}", f"# {flatten(title) or 'Untitled'}", "", _NOTE]
    lines += [flatten(url)] if url else []
    lines += ["", *_quote(about)]
    for story in stories:
        lines += ["", *_render_story(story)]
    return "\n".join(lines) + "\n"


def _render_story(story: Story) -> list[str]:
    waits = [f"{_WAITS}{' '.join(story.depends_on)}{_TAIL}"] if story.depends_on else []
    optional = [_OPTIONAL] if story.optional else []
    boxes = [f"- [{'x' if task.done else ' '}] {task.id} {flatten(task.text)}".rstrip() for task in story.tasks]
    quoted = _quote(story.description or "")
    title = flatten(story.title) or "Untitled"
    return [f"## {story.id}: {title}", "", *waits, *optional, *quoted, *([""] if quoted else []), *boxes]


def _quote(text: str) -> list[str]:
    clean = text.encode("utf-8", "replace").decode().replace("\0", " ").replace("\r\n", "\n").replace("\r", "\n")
    return [f"> {line}".rstrip() for line in clean.strip().split("\n")] if clean.strip() else []


def check(text: str, name: str) -> None:
    """Refuses inconsistent stories before anything is written."""
    drafts = [_read_draft(section, name) for section in _list_sections(text, name)]
    specs.check([draft.story({one.id for one in drafts}) for draft in drafts], name)


def store(project: str, change: str, text: str) -> bool:
    """Writes a copy; boxes that were ticked in the old one stay ticked. Returns whether anything changed."""
    path = path_of(project, change)
    files.ensure_folder(os.path.dirname(path))
    source = read_source(project, change)
    if source is None and os.path.lexists(path):
        raise SpecError(f"{path} exists, but ralphtool did not write it: move it away")
    if source is None:
        files.create(path, text.encode(), 0o644)
        return True
    if source != parse_source(text.partition("\n")[0]):
        raise SpecError(f"{path} is a copy of {source[0]}:{shorten(source[1])}: rename or delete it")
    before = markdown.load_required(path)
    markdown.edit(path, lambda old: keep_ticks(text, old, path))
    return markdown.load_required(path) != before


def keep_ticks(new: str, old: str, path: str) -> str:
    """The new text, with those boxes ticked that are ticked in the old one."""
    done = {key for key, box in _list_boxes(old, path) if box.done}
    return tick_all(new, [box for key, box in _list_boxes(new, path) if key in done])


def tick_all(text: str, boxes: "Iterable[markdown.Box]") -> str:
    """Ticks these boxes of a text, perhaps thousands, and changes no other character."""
    lines = text.split("\n")
    for box in boxes:
        if not box.done:
            number, box.line = box.line, 0
            lines[number] = markdown.tick(lines[number], box)
            box.line, box.mark = number, "x"
    return "\n".join(lines)


def is_same_work(one: str, other: str, path: str) -> bool:
    """Whether two copies have the same tasks, ticked or not."""
    return [key for key, _ in _list_boxes(one, path)] == [key for key, _ in _list_boxes(other, path)]


def _list_boxes(text: str, path: str) -> "list[tuple[tuple[str, str], markdown.Box]]":
    """Every box, by the title of its story and its own text: ids may change when a story is added."""
    drafts = [_read_draft(section, path) for section in _list_sections(text, path)]
    return [((draft.title, words), box) for draft in drafts for _, words, box in draft.tasks]
