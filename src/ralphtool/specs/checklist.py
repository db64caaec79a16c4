"""Any Markdown file with boxes: `fix_plan.md`, `PLAN.md`, `TODO.md`, or a given one. Headings are stories."""

import os

from ralphtool import specs
from ralphtool.core import layout
from ralphtool.core import project as projects
from ralphtool.errors import ChangeNotFound, InvalidName, InvalidValue, SpecError, shorten
from ralphtool.specs import ChangeLocation, Scenario, Story, markdown
from ralphtool.specs.boxed import BoxedSpec, Draft, make_unique

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralphtool.specs.markdown import Section
    from ralphtool.specs.outline import Outline
    from ralphtool.specs.scaffold import Scaffold

name = "checklist"
found_in = "checklists (plans/<name>.md, fix_plan.md, PLAN.md, TODO.md, IMPLEMENTATION_PLAN.md)"

_USUAL = ("fix_plan.md", "@fix_plan.md", "plan.md", "todo.md", "implementation_plan.md")
_ELSEWHERE = (os.path.join(layout.FOLDER, "fix_plan.md"), os.path.join("tasks", "todo.md"))
_PLANS = "plans"  # every file of this folder is a change
_NEVER = ("readme", "changelog", "learnings")
_MARKDOWN = (".md", ".markdown")
_NO_TITLES = ("plan", "todo", "to do", "tasks", "fix plan", "implementation plan", "work", "checklist")
takes_file = True


def changes(project: str) -> list[str]:
    return [place.change for place in locate(project)]


def locate(project: str) -> list[ChangeLocation]:
    """The change of each file. A file in the project's own folder needs no path in its ref."""
    # No local `name` here: Python 3.12.1 would confuse it with the module's below, and not find that.
    usual = sorted(file for file in _list_names(project) if file.lower() in _USUAL)
    plans = [os.path.join(_PLANS, plan) for plan in sorted(_list_names(os.path.join(project, _PLANS)), key=_get_stem)]
    files = [*usual, *_ELSEWHERE, *(file for file in plans if file.endswith(_MARKDOWN))]
    named = [(name_in(project, file), file) for file in files]
    found = [pair for pair in named if _is_checklist(pair[0]) and _has_boxes(os.path.join(project, pair[1]))]
    return [ChangeLocation(change, name if file == f"{change}.md" else f"{name}:{file}") for change, file in found]


def _get_stem(name: str) -> str:
    return os.path.splitext(name)[0]  # thing before thing-2


def _list_names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def name_in(project: str, file: str) -> str:
    """The change is named after the file: fix_plan for `@fix_plan.md`, my-plan for `plans/my plan.md`."""
    return projects.make_name(os.path.splitext(os.path.basename(file))[0].lstrip("@"))


def _has_boxes(path: str) -> bool:
    try:
        text = markdown.load(path)
    except SpecError:
        return os.path.isfile(path)  # an unreadable file is reported when it is opened
    lines = (text or "").split("\n")
    return any(plain and _find_box(line) for _, line, plain in markdown.iterate_lines(lines))


def _find_box(line: str) -> bool:
    box = markdown.parse_box(line)
    return box is not None and (box.mark in ("", "x", "X") or _is_mark(box.mark))


def _is_mark(mark: str) -> bool:
    return not mark.isalnum()


def _is_checklist(change: str) -> bool:
    return bool(change) and change.lower() not in _NEVER and not change.lower().endswith("-learnings")


def open(project: str, change: str, where: str | None = None) -> "Checklist":
    held = [] if where else [place.ref for place in locate(project) if place.change == change]
    files = [where] if where else [specs.file_of(ref) or f"{change}.md" for ref in held]
    if not files or name_in(project, files[0]) != change:
        raise ChangeNotFound(f"there is no checklist {change} in {project}: name its file with --spec PATH")
    path = os.path.join(project, files[0])
    if not _is_checklist(change):
        raise InvalidName(f"{path} can't be used as a checklist: the boxes of such files are not tasks; name another")
    if not os.path.isfile(path):
        raise ChangeNotFound(f"{path} is not a file: name the checklist with --spec PATH")
    return Checklist(path, change, f"{name}:{files[0]}")


def places(change: str, where: str | None = None) -> list[str]:
    if where:  # files outside the project or in our own folder are not on a branch
        parts = where.split(os.sep)
        return [] if os.path.isabs(where) or ".." in parts or parts[0] == layout.FOLDER else [where]
    names = [f"{change}{ending}" for ending in (".md", ".MD")] if f"{change}.md".lower() in _USUAL else []
    more = ["@fix_plan.md"] if change == "fix_plan" else ["tasks/todo.md"] if change == "todo" else []
    return [*names, *more, *(f"{_PLANS}/{change}{ending}" for ending in _MARKDOWN)]


_DONE_WORDS = ("✅", "✓", "complete", "done", "finished")  # in the heading of a phase that has no boxes


class Checklist(BoxedSpec):
    adapter = name
    task_example = "`- [ ] What to do` below a heading"

    def __init__(self, path: str, change: str, ref: str) -> None:
        self.change = change
        self.path = path
        self.ref = ref
        self.tasks_file = path
        self.notes_file = os.path.join(os.path.dirname(path), f"{change}-learnings.md")

    def drafts(self, text: str) -> list[Draft]:
        read = _list_stories(markdown.sections(text, self.path, is_mark=_is_mark))
        drafts = [Draft(id, title or self.change, section.above) for id, title, section in _number(read)]
        for draft, section in zip(drafts, read, strict=True):
            draft.add(section, _split_id)
        _number_by_position(drafts)
        return drafts

    def list_other_text(self) -> list[str]:
        """The text outside its stories, one for each heading. Comments are left out: they are for the plan's author."""
        sections = markdown.sections(markdown.load(self.path) or "", self.path, is_mark=_is_mark)
        texts = [_drop_comments("\n".join(section.prose)).strip() for section in sections if not section.boxes]
        return [text for text in texts if text]

    @property
    def title(self) -> str:
        """The top heading, if it is the only one of its level and says more than "Plan"."""
        lines = (markdown.load(self.path) or "").split("\n")
        heads = [
            line[2:].strip() for _, line, plain in markdown.iterate_lines(lines) if plain and line.startswith("# ")
        ]
        return heads[0] if len(heads) == 1 and heads[0].lower() not in _NO_TITLES else ""

    def proposal(self) -> str | None:
        return None

    def design(self) -> str | None:
        return None

    def scenarios(self, story: Story) -> list[Scenario]:
        return []


def _list_stories(sections: "list[Section]") -> "list[Section]":
    """Sections with boxes, and phases without boxes if other phases have some: their work was written as prose."""
    levels = {one.level for one in sections if one.boxes and markdown.parse_phase(one.title)}
    titles = {title for one in sections for title in one.above if one.boxes}  # their boxes are further below
    return [one for one in sections if one.boxes or (one.level in levels and _is_prose_phase(one, titles))]


def _is_prose_phase(section: "Section", above_boxes: set[str]) -> bool:
    phase = markdown.parse_phase(section.title)
    if phase is None or section.title in above_boxes or markdown.is_notes(phase[1]):
        return False
    return not any(word in phase[1].lower() for word in _DONE_WORDS)


def _drop_comments(text: str) -> str:
    first, *rest = text.split("<!--")
    return first + "".join(part.partition("-->")[2] for part in rest)


def _number(sections: "list[Section]") -> "list[tuple[str, str, Section]]":
    """A story for each section: headings keep their numbers, the others are numbered by position."""
    own = [_split_story_number(section.title) for section in sections]
    taken = {parts[0] for parts in own if parts}
    found: list[tuple[str, str, Section]] = []
    seen: set[str] = set()
    for position, (section, parts) in enumerate(zip(sections, own, strict=True), 1):
        id, title = parts if parts else (_find_free_number(position, taken), section.title)
        id = make_unique(id, seen) if parts else id
        taken.add(id)
        seen.add(id)
        found.append((id, title, section))
    return found


def _split_story_number(title: str) -> tuple[str, str] | None:
    """The number of `7. Title`, `7) Title`, `1.2 Title` and `Phase 7: Title`; "3 days left" has none."""
    parts = markdown.split_number(title)
    if parts is None:
        phase = markdown.parse_phase(title)
        return phase if phase and markdown.is_number(phase[0]) else None
    number, rest = parts
    is_marked = "." in number or title[len(number) : len(number) + 1] in (".", ":", ")")
    return (number, rest or title) if is_marked else None


def _find_free_number(position: int, taken: set[str]) -> str:
    while str(position) in taken:
        position += 1
    return str(position)


def _number_by_position(drafts: list[Draft]) -> None:
    """A box without its own id becomes `<story>.<position>`, unless another box has that id."""
    own = {id for draft in drafts for id, _, _ in draft.tasks}
    for draft in drafts:
        for index, (id, text, box) in enumerate(draft.tasks):
            position = f"{draft.id}.{index + 1}"
            if id.startswith(f"{draft.id}.#") and position not in own:
                draft.tasks[index] = (position, text, box)


def _split_id(text: str) -> tuple[str, str] | None:
    """The id at the start of `1.2 text`, `T001 text` and `ABC-12: text`, and the rest."""
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


# --- new changes ------------------------------------------------------------------------------------


def scaffold(project: str, text: str, name: str | None, file: str | None) -> "Scaffold":
    from ralphtool.specs.scaffold import STORIES, Scaffold, check_change, name_for, title_of

    place = os.path.abspath(file) if file else os.path.join(project, _PLANS, f"{name_for(text, name)}.md")
    inside = os.path.relpath(os.path.realpath(place), os.path.realpath(project))
    _check_file(project, place, inside)
    title = title_of(text)
    written = _CHECKLIST.format(title=title, about="" if text == title else f"{text}\n\n", stories=STORIES)
    return Scaffold(check_change(name_in(project, place)), place, {"": written}, _name_ref(inside), _TAKEN)


def _check_file(project: str, place: str, inside: str) -> None:
    if inside.startswith(".."):
        raise InvalidValue(f"{shorten(place)} is outside the project: name a file in {project}")
    if not place.endswith(_MARKDOWN):
        raise InvalidValue(f"{shorten(inside)} is not a Markdown file: name one that ends in .md")


_TAKEN = "add a story to it, or name another file with --file docs/NAME.md"
_CHECKLIST = """\
# {title}

{about}<!--
{stories}Tasks without a number are numbered by position: 1.1, 1.2.
-->

## The first working part

- [ ] Describe the result: a file, a command, a response to a request
- [ ] Name the test that proves it, and what it checks

## The next part, which builds on it (depends on 1)

- [ ] One task for each condition that must be true
- [ ] What must not change, if that is not obvious
"""


def compose(project: str, outline: "Outline", file: str | None) -> "Scaffold":
    from ralphtool.specs.outline import build_box, build_title, escape
    from ralphtool.specs.scaffold import Scaffold, check_change

    place = os.path.join(project, file or os.path.join(_PLANS, f"{outline.name}.md"))
    inside = os.path.relpath(os.path.realpath(place), os.path.realpath(project))
    _check_file(project, place, inside)
    lines = [f"# {outline.title}", ""]
    for number, story in enumerate(outline.stories, 1):
        lines += [f"## {build_title(outline, story)}", ""]
        lines += [*escape(story.description), ""] if story.description else []
        for position, task in enumerate(story.tasks, 1):
            lines += build_box(task, f"{number}.{position} ")
        lines.append("")
    return Scaffold(check_change(name_in(project, place)), place, {"": "\n".join(lines)}, _name_ref(inside), _TAKEN)


def _name_ref(inside: str) -> str | None:
    """The value that `--spec` needs; None if the checklist is found without it."""
    return None if inside.lower() in _USUAL or os.path.dirname(inside) == _PLANS else inside
