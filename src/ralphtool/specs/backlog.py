"""Backlog.md: `backlog/tasks/*.md`, where each file is a story and its acceptance criteria are tasks.

A milestone is a change, and so is a task with sub-tasks; all other tasks are the change `backlog`. The status in the
front matter is the mark of the story: it is set with the last criterion, and only if the work is proven.
"""

import os

from ralphtool import specs
from ralphtool.core import project as projects
from ralphtool.errors import ChangeNotFound, SpecError, TaskNotFound, shorten
from ralphtool.specs import Scenario, Story, Task, cache, frontmatter, markdown
from ralphtool.specs.boxed import WithNotes
from ralphtool.specs.frontmatter import FrontMatter
from ralphtool.specs.unique import UniqueIds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from ralphtool.specs.cache import Stamp
    from ralphtool.specs.markdown import Box, Section
    from ralphtool.specs.outline import Outline
    from ralphtool.specs.scaffold import Scaffold

name = "backlog"
found_in = "backlog/tasks/"
_FOLDERS = ("backlog", ".backlog")
_REST = "backlog"  # the change of all tasks without a milestone or parent
_ROOT_CONFIG = "backlog.config.yml"
_STATUSES = ("To Do", "In Progress", "Done")
_ENDED = ("done", "completed", "complete", "closed", "won't do", "wont do", "cancelled", "canceled")
_PUT_ASIDE = {
    **{"draft": "a draft", "blocked": "blocked", "deferred": "deferred", "on hold": "on hold"},
    **{"review": "in review", "in review": "in review"},
}
_PRIORITIES = {"critical": 0, "high": 1, "medium": 2, "low": 3}
_CRITERIA = {"acceptance criteria": "", "definition of done": "dod."}  # with the prefix of their numbers


def changes(project: str) -> list[str]:
    folder = _find_folder(project)
    return sorted(_read_backlog(folder).by_change if folder else (), key=lambda change: (change != _REST, change))


def _find_folder(project: str) -> str | None:
    for one in _FOLDERS:
        folder = os.path.join(project, one)
        if os.path.isdir(os.path.join(folder, "tasks")) and (_has_config(project, folder) or _has_tasks(folder)):
            return folder
    return None


def _has_config(project: str, folder: str) -> bool:
    return os.path.lexists(os.path.join(folder, "config.yml")) or os.path.lexists(os.path.join(project, _ROOT_CONFIG))


def _has_tasks(folder: str) -> bool:
    """Whether the files in a folder without configuration are named in the way of Backlog.md: `task-1 - Title.md`."""
    names = os.listdir(os.path.join(folder, "tasks"))
    heads = [name.partition(" - ")[0] for name in names if " - " in name and name.endswith(".md")]
    return any(markdown.is_number(head.rpartition("-")[2]) for head in heads)


def open(project: str, change: str, where: str | None = None) -> "BacklogSpec":
    folder = _find_folder(project)
    if folder is None:
        raise ChangeNotFound(f"there is no {_FOLDERS[0]}/tasks in {project}: `ralphtool list` shows the changes")
    # Whether the change still exists is checked when its stories are read.
    known = cache.peek(folder)
    is_known = isinstance(known, _Backlog) and change in known.by_change
    if not is_known and change not in _read_backlog(folder).by_change:
        raise ChangeNotFound(f"{folder} has no milestone and no task {change}: `ralphtool list` shows the changes")
    return BacklogSpec(folder, change)


def places(change: str, where: str | None = None) -> list[str]:
    return [f"{folder}/{inside}" for folder in _FOLDERS for inside in ("tasks", "config.yml")] + [_ROOT_CONFIG]


class BacklogSpec(WithNotes):
    adapter = name
    ref = name
    task_example = "`- [ ] #1 What must be true`, below `## Acceptance Criteria` in the file of a task"

    def __init__(self, folder: str, change: str) -> None:
        self.change = change
        self._folder = folder
        self.path = os.path.join(folder, "tasks")
        self.notes_file = os.path.join(folder, f"{change}-learnings.md")

    @property
    def title(self) -> str:
        return self._read().titles.get(self.change, "")

    def _read(self) -> "_Backlog":
        return _read_backlog(self._folder)

    def stories(self, completed: "Collection[str]" = ()) -> list[Story]:
        read = self._read()
        stories = read.build_stories(self.change, completed)
        for text in read.list_warnings(self.change):
            self.warn(text)
        specs.check(stories, self.path)
        return stories

    def tick(self, task_id: str, completed: "Collection[str]" = (), *, proven: bool = True) -> None:
        def change(text: str, file: "_TaskFile", box: "Box | None") -> str:
            is_done = file.is_done
            if box is not None and not box.done and not is_done:
                text = markdown.tick(text, box)
            is_last = all(one.done or one is box for _, _, one in file.criteria())
            return (
                text if is_done or not (proven and is_last) else frontmatter.set_text(text, "status", file.done_status)
            )

        self._edit(task_id, change)

    def untick(self, task_id: str) -> None:
        def change(text: str, file: "_TaskFile", box: "Box | None") -> str:
            if box is not None and box.done:
                text = markdown.untick(text, box)
            return frontmatter.set_text(text, "status", file.open_status) if file.is_done else text

        self._edit(task_id, change)

    def _edit(self, task_id: str, edit: "Callable[[str, _TaskFile, Box | None], str]") -> None:
        """Changes the file of a task; the box is None if the story is its own only task."""
        file = next((one for one in self._read().members(self.change) if task_id in one.task_ids()), None)
        if file is None:
            raise TaskNotFound(f"{self.path} has no task {shorten(task_id)}")
        story, config, path = file.id, file.config, file.path

        def change(text: str) -> str:
            now = _TaskFile(path, text, config)
            now.id = story
            if task_id not in now.task_ids():
                raise TaskNotFound(f"{path} no longer has the task {shorten(task_id)}")
            return edit(text, now, next((box for id, _, box in now.criteria() if id == task_id), None))

        markdown.edit(path, change)

    def is_marked(self, story_id: str) -> bool:
        return all(file.is_done for file in self._read().members(self.change) if file.id == story_id)

    def proposal(self) -> str | None:
        return None

    def design(self) -> str | None:
        return None

    def scenarios(self, story: Story) -> list[Scenario]:
        return []


# --- one file ---------------------------------------------------------------------------------------


class _Config:
    """The statuses and the prefix of ids from the configuration."""

    def __init__(self, folder: str) -> None:
        text = next((text for path in _list_config_paths(folder) if (text := markdown.load(path)) is not None), "")
        front = FrontMatter(f"---\n{text}\n---")
        statuses = front.texts("statuses") or list(_STATUSES)
        self.done = statuses[-1]
        self.start = front.text("default_status") or statuses[0]
        self.middle = statuses[1] if len(statuses) > 2 else self.start
        self.prefix = front.text("task_prefix") or "task"


def _list_config_paths(folder: str) -> list[str]:
    return [os.path.join(folder, "config.yml"), os.path.join(os.path.dirname(folder), _ROOT_CONFIG)]


class _TaskFile:
    """One file: its front matter is read at once, the rest on demand."""

    def __init__(self, path: str, text: str, config: _Config) -> None:
        self.path = path
        self.config = config
        self.front = FrontMatter(text)
        self.id = self.front.text("id")
        self.title = self.front.text("title") or self.id
        self.parent = parent if (parent := self.front.text("parent_task_id").lower()) != self.id.lower() else ""
        self.milestone = self.front.text("milestone")
        self.dependencies = self.front.texts("dependencies")
        self._text = text
        self._criteria: list[tuple[str, str, Box]] | None = None
        self._prose: list[str] = []
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings += [text] if text not in self.warnings else []

    @property
    def done_status(self) -> str:
        return self.config.done

    @property
    def open_status(self) -> str:
        return self.config.start

    @property
    def status(self) -> str:
        return self.front.text("status").lower()

    @property
    def is_done(self) -> bool:
        return self.status in (self.config.done.lower(), *_ENDED)

    @property
    def put_aside(self) -> str:
        return "" if self.is_done else _PUT_ASIDE.get(self.status, "")

    def rank(self) -> "tuple[int, float, list[tuple[int, int, str]]]":
        """High priority first, then as on the board, then by number."""
        priority = _PRIORITIES.get(self.front.text("priority").lower(), len(_PRIORITIES))
        ordinal = self.front.text("ordinal").partition(".")[0]
        is_number = ordinal.isascii() and ordinal.isdigit() and len(ordinal) < 15
        return priority, int(ordinal) if is_number else float("inf"), split_id(self.id)

    def criteria(self) -> "list[tuple[str, str, Box]]":
        """The id, the text and the box of every criterion."""
        if self._criteria is None:
            ids = UniqueIds(self.path, "criterion")
            markdown.refuse_conflict(self._text, self.path)  # also in the front matter
            body = frontmatter.strip_front_matter(self._text)
            sections = markdown.sections(body, self.path, is_mark=lambda mark: not mark.isalnum())
            self._criteria = [one for section in sections for one in self._read_section(section, ids)]
            self.warnings += ids.warnings
        return self._criteria

    def _read_section(self, section: "Section", ids: UniqueIds) -> "Iterable[tuple[str, str, Box]]":
        """The criteria of a section; other sections become prose."""
        titles = [title.lower() for title in (section.title, *section.above)]
        kinds = [kind for title in titles for kind in _CRITERIA if title.startswith(kind)]
        if not kinds:
            self._prose += ["", f"## {section.title}"] if titles[0] not in ("", "description") else []
            self._prose += [*section.prose, *(f"- [{box.mark or ' '}] {box.text}" for box in section.boxes)]
            return
        for position, box in enumerate(section.boxes, 1):
            number, text = _split_number(box.text)
            yield ids.claim(f"{self.id}.{_CRITERIA[kinds[0]]}#{number or position}"), text, box

    def task_ids(self) -> list[str]:
        return [id for id, _, _ in self.criteria()] or [self.id]

    def tasks(self, completed: "Collection[str]") -> list[Task]:
        tasks = [Task(id, text, box.done or self.is_done) for id, text, box in self.criteria()]
        return tasks or [Task(self.id, self.title, self.is_done or self.id in completed)]

    def description(self) -> str | None:
        self.criteria()
        return markdown.join_prose(line for line in self._prose if not _is_marker(line))


def _is_marker(line: str) -> bool:
    """`<!-- SECTION:DESCRIPTION:BEGIN -->` is only for the program."""
    return line.startswith("<!-- ") and line.endswith((":BEGIN -->", ":END -->"))


def _split_number(text: str) -> tuple[str, str]:
    """Splits "#2 text" into 2 and the text."""
    word, _, rest = text.partition(" ")
    number = word.removeprefix("#")
    is_numbered = word != number and number.isascii() and number.isdigit() and len(number) < 10
    return (number, rest.strip()) if is_numbered else ("", text)


def split_id(id: str) -> list[tuple[int, int, str]]:
    """An id for sorting: task-10.2 comes after task-9.1."""
    parts = id.lower().replace("-", ".").split(".")
    return [(0, int(part), "") if _is_digits(part) else (1, 0, part) for part in parts]


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 15


# --- all files --------------------------------------------------------------------------------------


def _read_backlog(folder: str) -> "_Backlog":
    stamps = _scan(os.path.join(folder, "tasks"))
    configs = {path: cache.read_stamp(path) for path in _list_config_paths(folder)}
    return cache.fetch(folder, stamps | configs, lambda: _Backlog(folder, list(stamps)))


class _Backlog:
    """All tasks of a project, and which change each belongs to."""

    def __init__(self, folder: str, paths: list[str]) -> None:
        self._folder = folder
        self._ids = UniqueIds(os.path.join(folder, "tasks"), "task")
        self._strays: list[str] = []
        config = _Config(folder)
        self.files = [file for path in paths if (file := self._load(path, config))]
        self._by_id = {file.id.lower(): file for file in self.files}
        self._by_number = {_get_number(file.id): file for file in self.files}
        self._parents = {file.parent for file in self.files}
        self.titles = {_make_name(one.id.lower()): one.title for one in self.files if one.id.lower() in self._parents}
        self.changes = {file.id: self._find_change(file) for file in self.files}
        self.by_change: dict[str, list[_TaskFile]] = {}
        for file in self.files:
            self.by_change.setdefault(self.changes[file.id], []).append(file)

    def list_warnings(self, change: str) -> list[str]:
        found = [text for file in self.members(change) for text in file.warnings]
        return [*found, *self._strays] if change == _REST else found

    def _load(self, path: str, config: _Config) -> _TaskFile | None:
        text = markdown.load(path)
        file = _TaskFile(path, text, config) if text is not None else None
        if file is None or not file.id:
            markdown.refuse_conflict(text or "", path)  # its id may be in both sides
            is_at_top = os.path.basename(os.path.dirname(path)) == "tasks"
            if file and is_at_top and not os.path.basename(path).lower().startswith("readme"):
                self._strays.append(
                    f"{path} has no front matter with an id, so it is not a task: add one, or move the file away"
                )
            return None
        known = len(self._ids.warnings)
        own = self._ids.claim(file.id.lower())
        file.id += own[len(file.id) :]
        file.warnings += self._ids.warnings[known:]
        return file

    def _find(self, id: str) -> _TaskFile | None:
        """A task by its id, ignoring case, and with any prefix, since a project may have changed it."""
        return self._by_id.get(id.lower()) or self._by_number.get(_get_number(id))

    def _find_change(self, file: _TaskFile) -> str:
        root, seen = file, {file.id}
        while True:
            if milestone := _make_name(root.milestone):
                return milestone
            above = self._by_id.get(root.parent)
            if above is None or above.id in seen:
                break
            seen.add(above.id)
            root = above
        return _make_name(root.id.lower()) or _REST if root.id.lower() in self._parents else _REST

    def members(self, change: str) -> list[_TaskFile]:
        return sorted(self.by_change.get(change, ()), key=_TaskFile.rank)

    def build_stories(self, change: str, completed: "Collection[str]") -> list[Story]:
        members = self.members(change)
        if not members:
            raise SpecError(f"{self._folder} no longer has tasks of {change}: restore them, or choose another change")
        declared = {file.id: self._resolve(file, change) for file in members}
        waits = {file.id: [*declared[file.id], *self._list_children(file, members)] for file in members}
        if specs.find_cycle(waits):  # a sub-task may depend on its parent: then the parent can't wait for it
            waits = declared
        return [self._build_story(file, completed, waits[file.id]) for file in members]

    def _build_story(self, file: _TaskFile, completed: "Collection[str]", waits: list[str]) -> Story:
        depends_on = list(dict.fromkeys(waits))
        tasks, aside = file.tasks(completed), file.put_aside or self._explain_wait(file)
        optional = markdown.is_optional(file.title)
        return Story(file.id, file.title, tasks, file.description(), optional, depends_on, aside)

    def _list_children(self, file: _TaskFile, members: "Iterable[_TaskFile]") -> list[str]:
        return [one.id for one in members if one.parent == file.id.lower()]

    def _resolve(self, file: _TaskFile, change: str) -> list[str]:
        known = [self._find(id) for id in file.dependencies]
        return [one.id for one in known if one and one is not file and self.changes[one.id] == change]

    def _explain_wait(self, file: _TaskFile) -> str:
        """Why a task can't be worked on if it depends on a task of another change."""
        for id in file.dependencies:
            other = self._find(id)
            if other is None:
                self._check_known(file, id)
            elif self.changes[other.id] != self.changes[file.id] and not _is_over(other) and not file.is_done:
                where = self.changes[other.id]
                file.warn(
                    f"{file.id} waits for {other.id}, which belongs to the change {where}: finish that change first"
                )
                return "blocked"
        return ""

    def _check_known(self, file: _TaskFile, id: str) -> None:
        ended = [os.path.join(self._folder, "completed"), os.path.join(self._folder, "archive", "tasks")]
        names = [name for folder in ended if os.path.isdir(folder) for name in os.listdir(folder)]
        if _get_number(id) not in {_get_number(name.partition(" ")[0]) for name in names}:
            file.warn(
                f"{file.path}: {file.id} depends on {shorten(id)}, which does not exist, so the dependency is "
                "ignored: remove it from the dependencies"
            )


def _get_number(id: str) -> str:
    return id.lower().rpartition("-")[2]


def _is_over(file: _TaskFile) -> bool:
    return all(task.done for task in file.tasks(()))


def _make_name(text: str) -> str:
    return text if projects.is_name(text) else projects.build_slug(text)[:100]


def _scan(folder: str) -> "dict[str, Stamp | None]":
    """The Markdown files below a folder, each with a stamp that shows whether it has changed."""
    with os.scandir(folder) as found:
        entries = [(entry.name, entry) for entry in found if entry.name[0] != "."]
    stamps: dict[str, Stamp | None] = {}
    for name, entry in sorted(entries):
        if name.endswith(".md"):
            stamps[entry.path] = cache.read_stamp(entry)
        elif entry.is_dir(follow_symlinks=False):
            stamps |= _scan(entry.path)
    return stamps


# --- new changes ------------------------------------------------------------------------------------


def is_used(project: str) -> bool:
    return _find_folder(project) is not None


def scaffold(project: str, text: str, name: str | None, file: str | None) -> "Scaffold":
    from ralphtool.specs.outline import build_example
    from ralphtool.specs.scaffold import name_for, title_of

    return compose(project, build_example(text, name_for(text, name), title_of(text)), None)


def compose(project: str, outline: "Outline", file: str | None) -> "Scaffold":
    from ralphtool.specs.scaffold import Scaffold

    folder = _find_folder(project) or os.path.join(project, _FOLDERS[0])
    config = _Config(folder)
    first = 1 + _find_last_number(folder)
    texts = (
        {} if _has_config(project, folder) else {"config.yml": _CONFIG.format(title=frontmatter.quote(outline.title))}
    )
    for index, story in enumerate(outline.stories):
        name = f"{config.prefix.lower()}-{first + index} - {_build_file_title(story)}.md"
        texts[os.path.join("tasks", name)] = _compose_file(outline, story, first, config)
    return Scaffold(outline.name, folder, texts, is_shared=True)


def _find_last_number(folder: str) -> int:
    """The highest number of all tasks, including completed, archived and draft ones."""
    names = [name for _, _, names in os.walk(folder) for name in names if " - " in name]
    numbers = [name.partition(" - ")[0].rpartition("-")[2].partition(".")[0] for name in names]
    return max((int(number) for number in numbers if _is_digits(number)), default=0)


def _build_file_title(story: Story) -> str:
    plain = "".join(mark if mark.isalnum() or mark in "_.()" else " " for mark in story.title)
    return "-".join(plain.split())[:80].strip("-.") or "Task"


def _compose_file(outline: "Outline", story: Story, first: int, config: "_Config") -> str:
    import time

    from ralphtool.specs.outline import escape, is_over, is_own_task, join_words, strip_title

    prefix = config.prefix.upper()
    number = first + outline.stories.index(story)
    status = config.done if is_over(story) else config.middle if story.tasks_done else config.start
    waits = [f"{prefix}-{first + one - 1}" for one in outline.list_dependencies(story)]
    title = strip_title(story) + (" (optional)" if story.optional else "")
    front = [
        *(
            "---",
            f"id: {prefix}-{number}",
            f"title: {frontmatter.quote(title)}",
            f"status: {frontmatter.quote(status)}",
        ),
        *("assignee: []", f"created_date: '{time.strftime('%Y-%m-%d %H:%M', time.gmtime())}'", "labels: []"),
        *(f"milestone: {frontmatter.quote(outline.name)}", "dependencies:" + (" []" if not waits else "")),
        *(f"  - {one}" for one in waits),
        *(f"ordinal: {1000 * number}", "---", "", "## Description", ""),
    ]
    described = escape(story.description) if story.description else []
    body = ["<!-- SECTION:DESCRIPTION:BEGIN -->", *described, "<!-- SECTION:DESCRIPTION:END -->"]
    boxes = [
        f"- [{'x' if task.done else ' '}] #{position} {join_words(task.text)}"
        for position, task in enumerate(() if is_own_task(story) else story.tasks, 1)
    ]
    criteria = ["", "## Acceptance Criteria", "<!-- AC:BEGIN -->", *boxes, "<!-- AC:END -->"] if boxes else []
    return "\n".join([*front, *body, *criteria, ""])


_CONFIG = """\
project_name: {title}
default_status: "To Do"
statuses: ["To Do", "In Progress", "Done"]
labels: []
date_format: yyyy-mm-dd
task_prefix: "task"
"""
