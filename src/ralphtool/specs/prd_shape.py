"""The variants of prd.json and feature_list.json: which keys a file uses for its stories, criteria and marks.

Only "done" marks are ever written, by changing their characters in the text: unknown keys, their order and all
spacing are kept.
"""

from ralphtool.core import quickjson
from ralphtool.errors import SpecError
from ralphtool.specs import Story, Task, markdown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Any

_LISTS = ("userStories", "user_stories", "stories", "features", "items", "tasks")
_CRITERIA = (
    *("acceptanceCriteria", "acceptance_criteria", "acceptance", "criteria", "doneCriteria", "done_criteria"),
    *("steps", "testSteps", "test_steps"),
)
_DONE = ("passes", "passed", "completed", "complete", "done", "tested", "status")
_TEXTS = ("description", "text", "criterion", "title", "name", "requirement", "condition", "step")
_TITLES = ("title", "name", "description", "summary")
_DEPENDS_ON = ("dependsOn", "depends_on", "blockedBy", "blocked_by")

# Statuses in lower case, without '-', '_' and spaces.
_DONE_WORDS = (
    *("done", "completed", "complete", "passed", "passes", "passing", "pass", "tested", "verified", "closed"),
    *("finished", "implemented", "shipped", "merged", "resolved"),
)
_ASIDE_WORDS = {
    **dict.fromkeys(("blocked", "onhold"), "blocked"),
    **dict.fromkeys(("deferred", "postponed", "cancelled", "canceled", "skipped", "wontdo", "wontfix"), "deferred"),
}
_PRIORITIES = {
    **dict.fromkeys(("critical", "urgent", "highest", "blocker", "must"), 0),
    **dict.fromkeys(("high", "should"), 1),
    **dict.fromkeys(("medium", "normal", "moderate", "could"), 2),
    "low": 3,
    **dict.fromkeys(("lowest", "trivial", "optional"), 4),
}


def name_kind(value: object) -> str:
    from ralphtool.specs import jsontext  # not needed by most calls

    return jsontext.NAMES.get(type(value), "nothing")


def parse_document(text: str, path: str) -> "dict[str, Any] | list[Any]":
    try:
        value = quickjson.loads(text)
    except ValueError as error:
        markdown.refuse_conflict(text, path)
        raise SpecError(f"{path} is not JSON ({error}): fix it. Comments and trailing commas are not allowed") from None
    if not isinstance(value, (dict, list)):
        raise SpecError(f"{path} must contain an object or a list of stories, not {name_kind(value)}")
    return value


class StoryFile:
    """A parsed file: its stories, and the keys that it uses."""

    def __init__(self, text: str, path: str) -> None:
        self.path = path
        self.value = parse_document(text, path)
        self.key, self.items = _find_stories(self.value, path)
        label = self.key or ""
        self.readers = [StoryReader(item, f"{path}: {label}[{index}]") for index, item in enumerate(self.items)]
        self.done_key = next((key for key in _DONE if any(key in one.marks for one in self.readers)), "passes")
        for one in self.readers:
            one.done_key = next(iter(one.marks), self.done_key)
        self.ids = _list_ids(self.readers)

    def way(self, index: int) -> "list[str | int]":
        """The path of keys and positions to a story."""
        return [index] if self.key is None else [self.key, index]

    def read_stories(self, completed: "Collection[str]", warn: "Callable[[str], None]") -> list[Story]:
        """By priority, then in the order of the file."""
        self._warn_of_twins(warn)
        known = [
            (one.priority(), self._build(one, id, completed, warn))
            for one, id in zip(self.readers, self.ids, strict=True)
        ]
        return [story for _, story in sorted(known, key=lambda pair: pair[0])]

    def _build(self, one: "StoryReader", id: str, completed: "Collection[str]", warn: "Callable[[str], None]") -> Story:
        loose = one.list_loose_dependencies()
        if unknown := [other for other in loose if other not in self.ids]:
            warn(f"{one.where}.dependencies: {', '.join(unknown[:5])} is not a story of this file, and is ignored")
        return one.story(id, completed, [other for other in loose if other in self.ids])

    def _warn_of_twins(self, warn: "Callable[[str], None]") -> None:
        own = [one.own_id() for one in self.readers]
        if twins := [id for id, told in zip(self.ids, own, strict=True) if told and told != id]:
            warn(f"{self.path}: duplicate ids got a suffix ({', '.join(twins[:5])}): give each story its own id")

    def find_word(self, *, done: bool) -> str:
        """The status that this file uses for done or for open stories."""
        words = [str(one.item["status"]) for one in self.readers if isinstance(one.item.get("status"), str)]
        usual = "completed" if any(_normalize(word) == "notstarted" for word in words) else "done"
        fitting = [word for word in words if is_done_word(word) == done and _normalize(word) not in _ASIDE_WORDS]
        return next(iter(fitting), usual if done else "pending")


def _find_stories(value: "dict[str, Any] | list[Any]", path: str) -> "tuple[str | None, list[Any]]":
    if isinstance(value, list):
        return None, value
    lists = [key for key in _LISTS if isinstance(value.get(key), list)]
    if lists:
        return lists[0], value[lists[0]]
    wrong = next((key for key in _LISTS if key in value), None)
    if wrong:
        raise SpecError(f"{path}: {wrong} must be a list, not {name_kind(value[wrong])}")
    found = ", ".join(list(value)[:12]) or "none"
    raise SpecError(
        f"{path} has no list of stories; its keys are {found}. Name the list userStories, or one of "
        f"{', '.join(_LISTS[2:])}"
    )


def _list_ids(readers: "Sequence[StoryReader]") -> list[str]:
    """The id of each story: its own, or its position; a duplicate gets a suffix."""
    own = [one.own_id() for one in readers]
    taken = set(own)
    seen: set[str] = set()
    ids = []
    for position, told in enumerate(own, 1):
        id, count = told or str(position), 2
        while id in seen or (not told and id in taken):
            id, count = f"{told or position}-{count}", count + 1
        seen.add(id)
        ids.append(id)
    return ids


def _normalize(word: str) -> str:
    return "".join(letter for letter in word.lower() if letter.isalnum())


def is_done_word(word: str) -> bool:
    return _normalize(word) in _DONE_WORDS


def find_marks(item: "dict[str, Any]") -> list[str]:
    """The keys of an object that say whether it is done. A completion date or a count is not one."""
    return [key for key in _DONE if key in item and _is_mark(key, item[key])]


def _is_mark(key: str, value: object) -> bool:
    if key == "passes" or value is None:
        return True
    return isinstance(value, str) if key == "status" else isinstance(value, bool)


def is_marked(item: "dict[str, Any]", key: str) -> bool:
    value = item.get(key)
    return is_done_word(value) if isinstance(value, str) else value is True


class StoryReader:
    """Reads one story's object; errors name the field."""

    def __init__(self, item: object, where: str) -> None:
        if not isinstance(item, dict):
            raise SpecError(f"{where} must be an object, not {name_kind(item)}")
        self.item: dict[str, Any] = item
        self.where = where
        self.marks = find_marks(item)
        self.done_key = "passes"

    def get(self, key: str, kinds: tuple[type, ...], default: "Any") -> "Any":
        value = self.item.get(key)
        if value is None:
            return default
        if type(value) not in kinds:
            wanted = name_kind(kinds[0]())
            raise SpecError(f"{self.where}.{key} must be {wanted}, not {name_kind(value)}")
        return value

    def texts(self, key: str, kinds: tuple[type, ...] = (str,)) -> list[str]:
        values = self.get(key, (list,), [])
        for index, value in enumerate(values):
            if type(value) not in kinds:
                raise SpecError(f"{self.where}.{key}[{index}] must be a string, not {name_kind(value)}")
        return [str(value) for value in values]

    def priority(self) -> "float | int":
        value = self.get("priority", (int, float, str), float("inf"))
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]
        word = _normalize(value)
        number = word.removeprefix("p")
        return int(number) if number.isdigit() and len(number) < 10 else _PRIORITIES.get(word, float("inf"))

    def own_id(self) -> str:
        return str(self.get("id", (str, int), ""))

    def criteria_key(self) -> str | None:
        return next((key for key in _CRITERIA if self.item.get(key)), None)

    def criteria(self) -> "list[tuple[str, dict[str, Any] | None]]":
        """The text of each criterion, and its object if it is one."""
        key = self.criteria_key()
        if key is None:
            return []
        values = self.get(key, (list,), [])
        return [self._read_criterion(value, f"{key}[{index}]") for index, value in enumerate(values)]

    def _read_criterion(self, value: object, where: str) -> "tuple[str, dict[str, Any] | None]":
        if isinstance(value, str):
            return value, None
        if not isinstance(value, dict):
            raise SpecError(f"{self.where}.{where} must be a string, not {name_kind(value)}")
        text = next((value[key] for key in _TEXTS if isinstance(value.get(key), str) and value[key]), None)
        if text is None:
            keys = ", ".join(list(value)[:8]) or "none"
            raise SpecError(f"{self.where}.{where} has no text; its keys are {keys}. Use the key description")
        return text, value

    def is_done(self) -> bool:
        if self.done_key == "passes":
            return bool(self.get("passes", (bool,), False))
        return is_marked(self.item, self.done_key)

    def story(self, id: str, completed: "Collection[str]", loose: "Sequence[str]") -> Story:
        told = [text for key in _TITLES if (text := self.get(key, (str,), None))]
        title = (told[0].partition("\n")[0] if told else "") or id
        tasks = self._build_tasks(id, title, completed)
        optional = self.get("optional", (bool,), False) or "optional" in [one.lower() for one in self.texts("labels")]
        description = self.get("description", (str,), None) or self.get("summary", (str,), None)
        depends_on = [other for key in _DEPENDS_ON for other in self.texts(key, (str, int))]  # ids can be numbers
        aside = _ASIDE_WORDS.get(_normalize(status), "") if isinstance(status := self.item.get("status"), str) else ""
        optional = optional or markdown.is_optional(title) or aside == "deferred"
        shown = None if description == title else description
        return Story(id, title, tasks, shown, optional, list(dict.fromkeys([*depends_on, *loose])), aside)

    def _build_tasks(self, id: str, title: str, completed: "Collection[str]") -> list[Task]:
        is_done = self.is_done()
        criteria = self.criteria() or [(title, None)]
        tasks = []
        for number, (text, own) in enumerate(criteria, 1):
            has_mark = own is not None and any(is_marked(own, key) for key in find_marks(own))
            tasks.append(Task(f"{id}.{number}", text, is_done or has_mark or f"{id}.{number}" in completed))
        return tasks

    def list_loose_dependencies(self) -> list[str]:
        """The items of `dependencies`: ids of stories, in some files also packages and other prose."""
        values = self.item.get("dependencies")
        known = values if isinstance(values, list) else [values] if isinstance(values, str) else []
        return [str(one) for one in known if isinstance(one, (str, int)) and not isinstance(one, bool) and str(one)]


# --- writing ----------------------------------------------------------------------------------------


def set_story(text: str, path: str, story_id: str, *, done: bool) -> str:
    """The text with the story's own mark set or removed."""
    document = StoryFile(text, path)
    index = document.ids.index(story_id)
    reader = document.readers[index]
    return _set_mark(text, document.way(index), reader.item, reader.done_key, document, done=done)


def set_criterion(text: str, path: str, story_id: str, position: int, *, done: bool) -> str:
    """The text with the mark of a criterion set or removed, if it is an object that has one."""
    document = StoryFile(text, path)
    index = document.ids.index(story_id)
    reader = document.readers[index]
    criteria = reader.criteria()
    own = criteria[position][1] if criteria else None
    marks = find_marks(own) if own is not None else []
    if own is None or not marks or is_marked(own, marks[0]) == done:
        return text
    way = [*document.way(index), str(reader.criteria_key()), position]
    return _set_mark(text, way, own, marks[0], document, done=done)


def has_own_marks(reader: StoryReader) -> bool:
    """Whether all criteria of a story have their own marks, and the story has none."""
    criteria = reader.criteria()
    return bool(criteria) and not reader.marks and all(own is not None and find_marks(own) for _, own in criteria)


def _set_mark(
    text: str, way: "list[str | int]", item: "dict[str, Any]", key: str, document: StoryFile, *, done: bool
) -> str:
    from ralphtool.specs import jsontext

    mark = _write_mark(key, document, done=done)
    if key in item:
        return jsontext.replace(text, jsontext.find(text, *way, key), mark)
    return jsontext.add_member(text, jsontext.find(text, *way), f'"{key}": {mark}') if done else text


def _write_mark(key: str, document: StoryFile, *, done: bool) -> str:
    return quickjson.dumps(document.find_word(done=done)) if key == "status" else "true" if done else "false"
