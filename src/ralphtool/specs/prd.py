"""prd.json in the shapes of snarktank/ralph and ralph-tui: acceptance criteria are tasks, `passes` is done.

Only `passes` is ever written, by changing its characters in the text: keys that we don't know, their order
and all spacing stay as they are.
"""

import os

from ralphtool import specs
from ralphtool.core import project as projects
from ralphtool.core import quickjson
from ralphtool.errors import ChangeNotFound, SpecError, TaskNotFound, shorten
from ralphtool.specs import Scenario, Story, Task, markdown
from ralphtool.specs.boxed import WithNotes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from ralphtool.specs.scaffold import Scaffold

name = "prd"
found_in = "prd.json"
_FILE = "prd.json"
_NAMES = {dict: "an object", list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}


def changes(project: str) -> list[str]:
    path = os.path.join(project, _FILE)
    text = markdown.load(path)
    return [] if text is None else [_find_change_name(_parse_document(text, path), project)]


def open(project: str, change: str, where: str | None = None) -> "Prd":
    path = os.path.join(project, _FILE)
    text = markdown.load(path)
    if text is None:
        raise ChangeNotFound(f"there is no {path}: `ralphtool list` shows the changes")
    if (found := _find_change_name(_parse_document(text, path), project)) != change:
        raise ChangeNotFound(f"{path} holds the change {found}, not {change}")
    return Prd(path, change)


def places(change: str, where: str | None = None) -> list[str]:
    return [_FILE]


def _find_change_name(document: "dict[str, Any]", project: str) -> str:
    """After `branchName` without its `ralph/`, else `project` or `name`, else the folder; made fit to be a name."""
    wanted = [_text_or_empty(document.get(key)) for key in ("branchName", "project", "name")]
    wanted[0] = wanted[0].removeprefix("ralph/")
    for text in [*wanted, os.path.basename(project)]:
        if fit := text if projects.is_name(text) else projects.build_slug(text)[:128]:
            return fit
    return "prd"


def _text_or_empty(value: object) -> str:
    return value if isinstance(value, str) else ""


class Prd(WithNotes):
    adapter = name
    ref = name
    done_key = "passes"

    def __init__(self, path: str, change: str) -> None:
        self.change = change
        self.path = path
        self.notes_file = os.path.join(os.path.dirname(path), f"{change}-learnings.md")

    def stories(self, completed: "Collection[str]" = ()) -> list[Story]:
        document = self._read_document()
        stories = [story for _, story in self._read_stories(document, completed)]
        specs.check(stories, self.path)
        return stories

    def _read_document(self) -> "dict[str, Any]":
        return _parse_document(markdown.load_required(self.path), self.path)

    def _read_stories(self, document: "dict[str, Any]", completed: "Collection[str]") -> "list[tuple[float, Story]]":
        items = _find_stories(document, self.path)[1]
        read = [_StoryReader(item, f"{self.path}: userStories[{index}]") for index, item in enumerate(items)]
        known = [(one.priority(), one.story(index, completed)) for index, one in enumerate(read, 1)]
        return sorted(known, key=lambda pair: pair[0])

    def tick(self, task_id: str, completed: "Collection[str]" = (), *, proven: bool = True) -> None:
        """A criterion has no box of its own: the session keeps it. The last one of a story sets its `passes`."""
        story = self._find_story_of(task_id)
        known = {*completed, task_id}
        if proven and not story.done and all(task.id in known for task in story.tasks):
            markdown.edit(self.path, lambda text: _set_passes(text, story.id, self.path, "true"))

    def untick(self, task_id: str) -> None:
        story = self._find_story_of(task_id)
        if story.done:
            markdown.edit(self.path, lambda text: _set_passes(text, story.id, self.path, "false"))

    def _find_story_of(self, task_id: str) -> Story:
        story = next((one for one in self.stories() if task_id in [task.id for task in one.tasks]), None)
        if story is None:
            raise TaskNotFound(f"{self.path} has no task {shorten(task_id)}")
        return story

    def prd_id(self, story_id: str) -> str:
        """A story that has an id of its own is known by that alone, whatever the change is called."""
        items = _find_stories(self._read_document(), self.path)[1]
        own = [str(item["id"]) for item in items if isinstance(item, dict) and item.get("id") not in (None, "")]
        return projects.build_slug(story_id) if story_id in own else ""

    def proposal(self) -> str | None:
        return _text_or_empty(self._read_document().get("description")) or None

    def design(self) -> str | None:
        return None

    def scenarios(self, story: Story) -> list[Scenario]:
        return []


# --- reading ----------------------------------------------------------------------------------------


def _parse_document(text: str, path: str) -> "dict[str, Any]":
    try:
        value = quickjson.loads(text)
    except ValueError as error:
        raise SpecError(f"{path} is not JSON ({error}); comments and trailing commas are not either: fix it") from None
    if not isinstance(value, dict):
        raise SpecError(f"{path} must hold an object, not {_NAMES.get(type(value), 'nothing')}")
    return value


def _find_stories(document: "dict[str, Any]", path: str) -> "tuple[str, list[Any]]":
    key = "userStories" if "userStories" in document else "stories"
    items = document.get(key)
    if not isinstance(items, list):
        raise SpecError(f"{path}: userStories must be a list, not {_NAMES.get(type(items), 'nothing')}")
    return key, items


class _StoryReader:
    """One story's object, read with an error that names the field."""

    def __init__(self, item: object, where: str) -> None:
        if not isinstance(item, dict):
            raise SpecError(f"{where} must be an object, not {_NAMES.get(type(item), 'nothing')}")
        self.item: dict[str, Any] = item
        self.where = where

    def get(self, key: str, kinds: tuple[type, ...], default: "Any") -> "Any":
        value = self.item.get(key)
        if value is None:
            return default
        if type(value) not in kinds:
            wanted = _NAMES[kinds[0]]
            raise SpecError(f"{self.where}.{key} must be {wanted}, not {_NAMES.get(type(value), 'that')}")
        return value

    def texts(self, key: str, kinds: tuple[type, ...] = (str,)) -> list[str]:
        values = self.get(key, (list,), [])
        for index, value in enumerate(values):
            if type(value) not in kinds:
                raise SpecError(f"{self.where}.{key}[{index}] must be a text, not {_NAMES.get(type(value), 'nothing')}")
        return [str(value) for value in values]

    def priority(self) -> "float | int":
        return self.get("priority", (int, float), float("inf"))  # type: ignore[no-any-return]

    def id(self, position: int) -> str:
        return str(self.get("id", (str, int), "")) or str(position)

    def story(self, position: int, completed: "Collection[str]") -> Story:
        id = self.id(position)
        title = self.get("title", (str,), None) or self.get("name", (str,), None) or id
        passes = self.get("passes", (bool,), False)
        criteria = self.texts("acceptanceCriteria") or [title]
        tasks = [
            Task(f"{id}.{number}", text, passes or f"{id}.{number}" in completed)
            for number, text in enumerate(criteria, 1)
        ]
        optional = self.get("optional", (bool,), False) or "optional" in [one.lower() for one in self.texts("labels")]
        description = self.get("description", (str,), None)
        depends_on = self.texts("dependsOn", (str, int))  # as an id can be a number
        return Story(id, title, tasks, description, optional or markdown.is_optional(title), depends_on)


# --- writing ----------------------------------------------------------------------------------------


def _set_passes(text: str, story_id: str, path: str, value: str) -> str:
    key, items = _find_stories(_parse_document(text, path), path)
    ids = [_StoryReader(item, path).id(index) for index, item in enumerate(items, 1)]
    start = _find_value(text, quickjson.skip_space(text, 0), key)
    start = _find_element(text, start, ids.index(story_id))
    try:
        at = _find_value(text, start, "passes")
    except KeyError:
        return _add_passes(text, start) if value == "true" else text
    return text[:at] + value + text[quickjson.scan_value(text, at)[1] :]


def _find_members(text: str, start: int) -> "list[tuple[str, int, int]]":
    """The key, and where the value begins and ends, of every member of the object that begins at `start`."""
    members = []
    index = quickjson.skip_space(text, start + 1)
    while text[index] != "}":
        key, index = quickjson.scan_value(text, index)
        value = quickjson.skip_space(text, quickjson.skip_space(text, index) + 1)
        end = quickjson.scan_value(text, value)[1]
        members.append((key, value, end))
        index = quickjson.skip_space(text, end)
        if text[index] == ",":
            index = quickjson.skip_space(text, index + 1)
    return members


def _find_value(text: str, start: int, key: str) -> int:
    for name, value, _ in reversed(_find_members(text, start)):  # of a key that comes twice, the last one counts
        if name == key:
            return value
    raise KeyError(key)


def _find_element(text: str, start: int, position: int) -> int:
    index = quickjson.skip_space(text, start + 1)
    for _ in range(position):
        end = quickjson.skip_space(text, quickjson.scan_value(text, index)[1])
        index = quickjson.skip_space(text, end + 1)
    return index


def _add_passes(text: str, start: int) -> str:
    """Adds the member that is missing, after the last one and spaced as that one is."""
    members = _find_members(text, start)
    if not members:
        return f'{text[: start + 1]}"passes": true{text[start + 1 :]}'
    first = text.index('"', start)
    end = members[-1][2]
    return f'{text[:end]},{text[start + 1 : first]}"passes": true{text[end:]}'


# --- what `ralphtool new` writes --------------------------------------------------------------------


def is_used(project: str) -> bool:
    return os.path.lexists(os.path.join(project, _FILE))


def scaffold(project: str, text: str, name: str | None, file: str | None) -> "Scaffold":
    import json

    from ralphtool.specs.scaffold import Scaffold, name_for, title_of

    change = name_for(text, name)
    stories = [
        _user_story(1, "The first thing that can be seen to work", "Small: an hour's work of yours, not a week's."),
        _user_story(2, "The next thing, which builds on it", "It can be proven: by a test, or by a command."),
    ]
    stories[1]["dependsOn"] = ["US-001"]
    document = {"project": title_of(text), "branchName": f"ralph/{change}", "description": text, "userStories": stories}
    written = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    return Scaffold(change, os.path.join(project, _FILE), {"": written}, if_taken=_TAKEN)


def _user_story(number: int, title: str, hint: str) -> "dict[str, Any]":
    from ralphtool.specs.scaffold import EXAMPLES

    return {
        "id": f"US-{number:03}",
        "title": title,
        "description": f"As somebody I want something, so that something is better. {hint}",
        "acceptanceCriteria": list(EXAMPLES[:2]),
        "priority": number,
        "passes": False,
        "notes": "",
    }


_TAKEN = "it holds one change only, so add a story to it, or begin a checklist with --file docs/NAME.md"
