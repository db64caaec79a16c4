"""Any Markdown file with boxes: `fix_plan.md`, `PLAN.md`, `TODO.md`, or one that is named. Headings are stories."""

import os

from ralphtool.core import project as projects
from ralphtool.errors import ChangeNotFound, InvalidName, InvalidValue, SpecError, shorten
from ralphtool.specs import Scenario, Story, markdown
from ralphtool.specs.boxed import BoxedSpec, Draft

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralphtool.specs.markdown import Section
    from ralphtool.specs.scaffold import Scaffold

name = "checklist"
found_in = "checklists (fix_plan.md, PLAN.md, TODO.md)"

_USUAL = ("fix_plan.md", "plan.md", "todo.md")
_NEVER = ("readme", "changelog", "learnings")
_MARKDOWN = (".md", ".markdown")
takes_file = True


def changes(project: str) -> list[str]:
    return [change_of(file) for file in _list_files(project)]


def _list_files(project: str) -> list[str]:
    usual = [name for name in sorted(os.listdir(project)) if name.lower() in _USUAL]
    return [name for name in usual if _has_boxes(os.path.join(project, name))]


def _has_boxes(path: str) -> bool:
    try:
        text = markdown.load(path)
        return text is not None and any(section.boxes for section in _read_sections(text, path))
    except SpecError:
        return os.path.isfile(path)  # a file that can't be read is told when it is opened


def _read_sections(text: str, path: str) -> "list[Section]":
    return markdown.sections(text, path, is_mark=lambda mark: not mark.isalnum())


def change_of(file: str) -> str:
    return os.path.splitext(os.path.basename(file))[0]


def open(project: str, change: str, where: str | None = None) -> "Checklist":
    files = [where] if where else [file for file in _list_files(project) if change_of(file) == change]
    if not files or change_of(files[0]) != change:
        raise ChangeNotFound(f"there is no checklist {change} in {project}: name its file with --spec PATH")
    path = os.path.join(project, files[0])
    _check_is_checklist(path, change)
    return Checklist(path, change, f"{name}:{files[0]}")


def _check_is_checklist(path: str, change: str) -> None:
    if change.lower() in _NEVER or change.lower().endswith("-learnings"):
        raise InvalidName(f"{path} can't be a checklist: boxes in a {change} are no work to do")
    if not os.path.isfile(path):
        raise ChangeNotFound(f"{path} is not a file: name the checklist with --spec PATH")


def places(change: str, where: str | None = None) -> list[str]:
    if where:  # a file outside of the project is on no branch
        return [] if os.path.isabs(where) or ".." in where.split(os.sep) else [where]
    return [f"{change}{ending}" for ending in (".md", ".MD")] if f"{change}.md".lower() in _USUAL else []


class Checklist(BoxedSpec):
    adapter = name

    def __init__(self, path: str, change: str, ref: str) -> None:
        self.change = change
        self.path = path
        self.ref = ref
        self.tasks_file = path
        self.notes_file = os.path.join(os.path.dirname(path), f"{change}-learnings.md")

    def drafts(self, text: str) -> list[Draft]:
        drafts: list[Draft] = []
        for section in _read_sections(text, self.path):
            if section.boxes:
                drafts.append(Draft(str(len(drafts) + 1), section.title or self.change, section.above))
                drafts[-1].add(section, _split_id)
        _number_by_position(drafts)
        return drafts

    def proposal(self) -> str | None:
        return None

    def design(self) -> str | None:
        return None

    def scenarios(self, story: Story) -> list[Scenario]:
        return []


def _number_by_position(drafts: list[Draft]) -> None:
    """A box without an id of its own is `<story>.<position>`, unless another one has that id as its own."""
    own = {id for draft in drafts for id, _, _ in draft.tasks}
    for draft in drafts:
        for index, (id, text, box) in enumerate(draft.tasks):
            position = f"{draft.id}.{index + 1}"
            if id.startswith(f"{draft.id}.#") and position not in own:
                draft.tasks[index] = (position, text, box)


def _split_id(text: str) -> tuple[str, str] | None:
    """`1.2 text`, `T001 text` and `ABC-12: text` bring their ids along."""
    word, _, rest = text.lstrip("*_`").partition(" ")
    id = word.rstrip("*_`.:)")
    if _is_number(id) or (id[:1] == "T" and id[1:].isdigit() and len(id) > 3) or (_is_ticket(id) and ":" in word):
        return id, rest.strip()
    return None


def _is_number(id: str) -> bool:
    parts = id.split(".")
    return len(parts) > 1 and all(part.isascii() and part.isdigit() for part in parts)


def _is_ticket(id: str) -> bool:
    prefix, _, number = id.partition("-")
    return projects.is_name(prefix) and prefix.isupper() and number.isascii() and number.isdigit()


# --- what `ralphtool new` writes --------------------------------------------------------------------


def scaffold(project: str, text: str, name: str | None, file: str | None) -> "Scaffold":
    from ralphtool.specs.scaffold import STORIES, Scaffold, check_change, name_for, title_of

    place = (
        os.path.abspath(file) if file else os.path.join(project, f"{name_for(text, name)}.md" if name else "PLAN.md")
    )
    inside = os.path.relpath(os.path.realpath(place), os.path.realpath(project))
    _check_file(project, place, inside)
    title = title_of(text)
    written = _CHECKLIST.format(title=title, about="" if text == title else f"{text}\n\n", stories=STORIES)
    ref = None if inside.lower() in _USUAL else inside
    return Scaffold(check_change(change_of(place)), place, {"": written}, ref, _TAKEN)


def _check_file(project: str, place: str, inside: str) -> None:
    if inside.startswith(".."):
        raise InvalidValue(f"{shorten(place)} is outside of the project: name a file in {project}")
    if not place.endswith(_MARKDOWN):
        raise InvalidValue(f"{shorten(inside)} is no Markdown file: name one that ends in .md")


_TAKEN = "add a story to it, or name another file with --file docs/NAME.md"
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
