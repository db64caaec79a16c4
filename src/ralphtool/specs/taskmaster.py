"""Task Master: `.taskmaster/tasks/tasks.json`. Its tags are changes, its tasks stories, and its subtasks tasks.

Only `status` is ever written, by changing its characters in the text. The status of a task is the mark of the story:
it becomes "done" once all its subtasks are, and only if the work is proven.
"""

import os

from ralphtool import specs
from ralphtool.core import project as projects
from ralphtool.errors import ChangeNotFound, InvalidValue, SpecError, TaskNotFound, shorten
from ralphtool.specs import Scenario, Story, Task, cache, jsontext, markdown
from ralphtool.specs.boxed import WithNotes
from ralphtool.specs.unique import UniqueIds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from ralphtool.specs.outline import Outline
    from ralphtool.specs.scaffold import Scaffold

name = "taskmaster"
found_in = ".taskmaster/tasks/tasks.json"
_FILES = (".taskmaster/tasks/tasks.json", "tasks/tasks.json")  # the second one is that of older versions
_UNTAGGED = "master"  # Task Master's own name for the tasks of a file without tags
_ENDED = ("done", "completed", "cancelled", "canceled")
# `task-master next` only returns pending and in-progress tasks; these wait for a person.
_PUT_ASIDE = {"deferred": "deferred", "blocked": "blocked", "review": "in review"}
_PRIORITIES = {"critical": 0, "high": 1, "medium": 2, "low": 3}


def changes(project: str) -> list[str]:
    path = _find_file(project)
    return list(_list_tags(_load(path), path)) if path else []


def _find_file(project: str) -> str | None:
    new, old = (os.path.join(project, file) for file in _FILES)
    if os.path.lexists(new):
        return new
    return old if os.path.lexists(old) and _is_ours(old) else None


def _is_ours(path: str) -> bool:
    """Whether a `tasks/tasks.json`, which any program could have written, is Task Master's."""
    try:
        tags = _list_tags(_load(path), path)
        lists = [tasks for _, tasks in tags.values()]
        return any(lists) and all(_looks_like_task(one) for tasks in lists for one in tasks)
    except SpecError:
        return False


def _looks_like_task(item: object) -> bool:
    return isinstance(item, dict) and {"id", "title", "status", "dependencies"} <= item.keys()


def _load(path: str) -> "dict[str, Any]":
    return cache.fetch(
        path, {path: cache.read_stamp(path)}, lambda: jsontext.parse_object(markdown.load_required(path), path)
    )


def _list_tags(document: "dict[str, Any]", path: str) -> "dict[str, tuple[list[str | int], list[Any]]]":
    """For each change, the path to its list of tasks, and the list."""
    if "tasks" in document and not isinstance(document["tasks"], dict):
        return {_UNTAGGED: (["tasks"], _check_list(document["tasks"], f"{path}: tasks"))}
    found: dict[str, tuple[list[str | int], list[Any]]] = {}
    for tag, value in document.items():
        if isinstance(value, dict) and "tasks" in value:
            change = tag if projects.is_name(tag) else projects.build_slug(tag)[:100]
            if not change:
                raise SpecError(
                    f"{path}: {shorten(tag)} can't be used as a change's name: rename the tag, using letters"
                )
            found.setdefault(change, ([tag, "tasks"], _check_list(value["tasks"], f"{path}: {shorten(tag)}.tasks")))
    if document and not found:
        raise SpecError(f"{path} has no tags with tasks; its keys are {shorten(', '.join(document))}: fix it")
    return found


def _check_list(value: object, where: str) -> "list[Any]":
    if not isinstance(value, list):
        raise SpecError(f"{where} must be a list, not {jsontext.NAMES.get(type(value), 'nothing')}")
    return value


def open(project: str, change: str, where: str | None = None) -> "TaskMaster":
    path = _find_file(project)
    if path is None:
        raise ChangeNotFound(f"there is no {_FILES[0]} in {project}: `ralphtool list` shows the changes")
    if change not in (tags := _list_tags(_load(path), path)):
        raise ChangeNotFound(f"{path} has no tag {change}; its tags are {shorten(', '.join(tags) or 'none')}")
    return TaskMaster(path, change)


def places(change: str, where: str | None = None) -> list[str]:
    return list(_FILES)


class TaskMaster(WithNotes):
    adapter = name
    ref = name
    task_example = '`{"id": 1, "title": "What to do", "status": "pending", "dependencies": []}` in "tasks"'

    def __init__(self, path: str, change: str) -> None:
        self.change = change
        self.path = path
        self.notes_file = os.path.join(os.path.dirname(path), f"{change}-learnings.md")

    def stories(self, completed: "Collection[str]" = ()) -> list[Story]:
        reader = self._read(_load(self.path))
        stories = [entry.story(completed, reader) for entry in reader.entries]
        for text in reader.warnings:
            self.warn(text)
        specs.check(stories, self.path)
        return stories

    def _read(self, document: "dict[str, Any]") -> "_TagReader":
        tags = _list_tags(document, self.path)
        if self.change not in tags:
            raise SpecError(f"{self.path} no longer has the tag {self.change}: restore it, or choose another change")
        return _TagReader(*tags[self.change], self.path)

    def tick(self, task_id: str, completed: "Collection[str]" = (), *, proven: bool = True) -> None:
        def change(text: str) -> str:
            entry, task = self._find_task(text, task_id)
            if entry.is_ended:
                return text
            if task is not None and not task.is_ended:
                text = task.set_status(text, "done")
            known = {*completed, task_id}
            is_last = all(one.is_ended or one.is_aside or one is task for one in entry.subtasks)
            return entry.set_status(text, "done") if proven and is_last and entry.has_all(known) else text

        markdown.edit(self.path, change)

    def untick(self, task_id: str) -> None:
        def change(text: str) -> str:
            entry, task = self._find_task(text, task_id)
            for one in (task, entry):
                text = one.set_status(text, "pending") if one is not None and one.is_ended else text
            return text

        markdown.edit(self.path, change)

    def _find_task(self, text: str, task_id: str) -> "tuple[_Entry, _Entry | None]":
        """The story of a task, and its subtask; None if the story is its own only task."""
        for entry in self._read(jsontext.parse_object(text, self.path)).entries:
            if task_id == entry.id and not entry.subtasks:
                return entry, None
            for task in entry.subtasks:
                if task.id == task_id:
                    return entry, task
        raise TaskNotFound(f"{self.path} has no task {shorten(task_id)}")

    def is_marked(self, story_id: str) -> bool:
        reader = self._read(_load(self.path))
        return all(entry.is_ended for entry in reader.entries if entry.id == story_id)

    def proposal(self) -> str | None:
        return None

    def design(self) -> str | None:
        return None

    def scenarios(self, story: Story) -> list[Scenario]:
        return []


# --- reading ----------------------------------------------------------------------------------------


class _TagReader:
    """The tasks of one tag: highest priority first, as in `task-master next`."""

    def __init__(self, way: "list[str | int]", items: "list[Any]", path: str) -> None:
        self._path = path
        self._ids = UniqueIds(path, "task")
        self._unknown: list[str] = []
        named = ".".join(map(str, way))
        read = [_Entry([*way, index], item, f"{path}: {named}[{index}]") for index, item in enumerate(items)]
        for position, entry in enumerate(read, 1):
            entry.name(self._ids, str(position))
        self.entries = sorted(read, key=lambda entry: entry.priority())
        self._by_id = {entry.id: entry for entry in read}

    @property
    def warnings(self) -> list[str]:
        found = [text for entry in self.entries for text in entry.subtask_ids.warnings]
        return [*self._ids.warnings, *found, *self._unknown]

    def resolve(self, entry: "_Entry", said: list[str]) -> list[str]:
        """The stories that those ids belong to; ids from outside the tag are ignored."""
        known = [id if id in self._by_id else id.partition(".")[0] for id in said]
        for id, story in zip(said, known, strict=True):
            if story not in self._by_id:
                self._unknown.append(
                    f"{self._path}: task {entry.id} depends on {shorten(id)}, which this tag does not have, so the "
                    "dependency is ignored: remove it from the dependencies"
                )
        return list(dict.fromkeys(id for id in known if id in self._by_id and id != entry.id))


class _Entry:
    """One task or subtask, and the path to it in the document."""

    def __init__(self, way: "list[str | int]", item: object, where: str) -> None:
        if not isinstance(item, dict):
            raise SpecError(f"{where} must be an object, not {jsontext.NAMES.get(type(item), 'nothing')}")
        self._item: dict[str, Any] = item
        self._way = way
        self._where = where
        self.status = self.get("status", (str,), "pending").strip().lower().replace("_", "-").replace(" ", "-")
        below = self.get("subtasks", (list,), [])
        self.subtasks = [
            _Entry([*way, "subtasks", index], one, f"{where}.subtasks[{index}]") for index, one in enumerate(below)
        ]
        self.id = ""

    def name(self, ids: UniqueIds, position: str, above: str = "") -> None:
        own = str(self.get("id", (int, float, str), "")).strip() or position
        # A subtask is numbered within its task; some files write the full id.
        self.id = ids.claim(own if not above or own.startswith(f"{above}.") else f"{above}.{own}")
        self.subtask_ids = UniqueIds(self._where.partition(": ")[0], "subtask")
        for number, one in enumerate(self.subtasks, 1):
            one.name(self.subtask_ids, str(number), self.id)

    def get(self, key: str, kinds: tuple[type, ...], default: "Any") -> "Any":
        value = self._item.get(key)
        if value is None:
            return default
        if type(value) not in kinds:
            wanted, found = jsontext.NAMES[kinds[0]], jsontext.NAMES.get(type(value), "that")
            raise SpecError(f"{self._where}.{key} must be {wanted}, not {found}: fix it")
        return value

    @property
    def is_ended(self) -> bool:
        return self.status in _ENDED

    @property
    def is_aside(self) -> bool:
        return self.status in _PUT_ASIDE

    @property
    def title(self) -> str:
        return self.get("title", (str,), "").strip() or self.id

    def priority(self) -> int:
        return _PRIORITIES.get(self.get("priority", (str,), "medium").lower(), 2)

    def texts(self, *keys: str) -> list[str]:
        return [text for key in keys if (text := self.get(key, (str,), "").strip())]

    def dependencies(self) -> list[str]:
        values = self.get("dependencies", (list,), [])
        for index, value in enumerate(values):
            if type(value) not in (int, float, str):
                raise SpecError(f"{self._where}.dependencies[{index}] must be an id, not {value!r:.40}: fix it")
        return [str(value).strip() for value in values]

    def has_all(self, known: set[str]) -> bool:
        return bool(self.subtasks) or self.id in known

    def story(self, completed: "Collection[str]", reader: _TagReader) -> Story:
        # A plain number in a subtask's dependencies is a sibling; a subtask of another task has a dot in its id.
        below = [id for one in self.subtasks for id in one.dependencies() if "." in id]
        depends_on = reader.resolve(self, [*self.dependencies(), *below])
        aside = "" if self.is_ended else _PUT_ASIDE.get(self.status, "")
        optional = markdown.is_optional(self.title)
        return Story(self.id, self.title, self._tasks(completed), self._describe(), optional, depends_on, aside)

    def _tasks(self, completed: "Collection[str]") -> list[Task]:
        if not self.subtasks:
            return [Task(self.id, self.title, self.is_ended or self.id in completed)]
        return [one._task(self.is_ended) for one in self.subtasks]

    def _task(self, is_ended: bool) -> Task:
        text = "\n".join([self.title, *self.texts("description", "details", "acceptanceCriteria", "testStrategy")])
        return Task(self.id, text, is_ended or self.is_ended, self.is_aside)

    def _describe(self) -> str | None:
        parts = self.texts("description", "details")
        parts += [f"How to test it: {text}" for text in self.texts("testStrategy")]
        return "\n\n".join(parts) or None

    def set_status(self, text: str, status: str) -> str:
        try:
            return jsontext.replace(text, jsontext.find(text, *self._way, "status"), f'"{status}"')
        except KeyError:
            return jsontext.add_member(text, jsontext.find(text, *self._way), f'"status": "{status}"')


# --- new changes ------------------------------------------------------------------------------------


def is_used(project: str) -> bool:
    return os.path.isdir(os.path.join(project, ".taskmaster")) or _find_file(project) is not None


def scaffold(project: str, text: str, name: str | None, file: str | None) -> "Scaffold":
    from ralphtool.specs.outline import build_example
    from ralphtool.specs.scaffold import name_for, title_of

    return compose(project, build_example(text, name_for(text, name), title_of(text)), None)


def compose(project: str, outline: "Outline", file: str | None) -> "Scaffold":
    import json

    from ralphtool.specs.scaffold import Scaffold

    tasks = [_compose_task(outline, number, story) for number, story in enumerate(outline.stories, 1)]
    tag = {"tasks": tasks, "metadata": {"description": outline.title}}
    written = json.dumps({outline.name: tag}, indent=2, ensure_ascii=False)
    member = written[1:-1].strip()
    place = _find_file(project) or os.path.join(project, _FILES[0])
    return Scaffold(
        outline.name, place, {"": f"{written}\n"}, extend=lambda text: _add_tag(text, place, outline.name, member)
    )


def _add_tag(text: str, path: str, tag: str, member: str) -> str:
    document = jsontext.parse_object(text, path)
    tags = _list_tags(document, path)
    if _UNTAGGED in tags and tags[_UNTAGGED][0] == ["tasks"]:
        raise InvalidValue(f"{path} has no tags yet: run `task-master list` once to add them, then try again")
    if tag in document or tag in tags:
        raise InvalidValue(f"{path} already has a tag {tag}: give another name with --name")
    return jsontext.add_member(text, jsontext.find(text), member)


def _compose_task(outline: "Outline", number: int, story: Story) -> "dict[str, Any]":
    from ralphtool.specs.outline import is_over, is_own_task, strip_title

    subtasks = [] if is_own_task(story) else [_compose_subtask(*one) for one in enumerate(story.tasks, 1)]
    aside = next((status for status, said in _PUT_ASIDE.items() if said == story.put_aside), "pending")
    return {
        "id": number,
        "title": strip_title(story) + (" (optional)" if story.optional else ""),
        "description": story.description or "",
        "details": "",
        "testStrategy": "",
        "priority": "medium",
        "dependencies": outline.list_dependencies(story),
        "status": "done" if is_over(story) else "in-progress" if story.tasks_done else aside,
        "subtasks": subtasks,
    }


def _compose_subtask(number: int, task: Task) -> "dict[str, Any]":
    title, _, more = task.text.partition("\n")
    status = "done" if task.done else "pending"
    return {"id": number, "title": title, "description": more, "dependencies": [], "details": "", "status": status}
