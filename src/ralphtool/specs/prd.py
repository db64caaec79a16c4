"""prd.json and feature_list.json: acceptance criteria are tasks, and a key such as `passes` says what is done."""

import os

from ralphtool import specs
from ralphtool.core import layout
from ralphtool.core import project as projects
from ralphtool.errors import ChangeNotFound, SpecError, TaskNotFound, shorten
from ralphtool.specs import ChangeLocation, Scenario, Story, markdown, prd_shape
from ralphtool.specs.boxed import WithNotes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from ralphtool.specs.outline import Outline
    from ralphtool.specs.prd_shape import StoryFile
    from ralphtool.specs.scaffold import Scaffold

name = "prd"
found_in = "prd.json and feature_list.json (also in scripts/ralph, ralph, tasks, plans)"
_FILE = "prd.json"
_FILES = projects.PRD_FILES


def changes(project: str) -> list[str]:
    found = locate(project)
    for place in found:
        if place.error:
            raise place.error
    return [place.change for place in found]


def locate(project: str) -> list[ChangeLocation]:
    """The change of each existing file; an unreadable one does not hide the others."""
    return [_locate_file(project, file) for file in _FILES if os.path.lexists(os.path.join(project, file))]


def _locate_file(project: str, file: str) -> ChangeLocation:
    try:
        own = _read_own_name(os.path.join(project, file))
        return ChangeLocation(own or _name_without_own(project, file), _build_ref(file, own))
    except SpecError as error:
        return ChangeLocation(os.path.basename(project), _build_ref(file, name), error)


def _build_ref(file: str, own: str) -> str:
    """Without a path only if the file contains its name: that also works for a copy in another folder."""
    return name if file == _FILE and own else f"{name}:{file}"


def open(project: str, change: str, where: str | None = None) -> "Prd":
    if where:
        return _open_file(project, change, where)
    found = locate(project)
    for place in found:
        if place.change == change and not place.error:
            return _open_file(project, change, specs.file_of(place.ref) or _FILE)
    for place in found:
        if place.error:  # the change may be in the unreadable file
            raise place.error
    held = [f"{specs.file_of(place.ref) or _FILE} in {project} contains the change {place.change}" for place in found]
    told = f"{', '.join(held)}, not {change}" if held else f"there is no {os.path.join(project, _FILE)}"
    raise ChangeNotFound(f"{told}: `ralphtool list` shows the changes")


def _open_file(project: str, change: str, file: str) -> "Prd":
    path = os.path.join(project, file)
    if not os.path.lexists(path):
        raise ChangeNotFound(f"there is no {path}: `ralphtool list` shows the changes")
    own = _read_own_name(path)
    # One that is named after its folder may be a copy in another folder.
    holds = own or ("" if os.path.basename(file) == _FILE else _name_without_own(project, file))
    if holds and holds != change:
        raise ChangeNotFound(f"{path} contains the change {holds}, not {change}: `ralphtool list` shows the changes")
    return Prd(path, change, _build_ref(file, own))


def places(change: str, where: str | None = None) -> list[str]:
    files = [where] if where else list(_FILES)
    # Files outside the project or in our own folder are not on a branch.
    return [file for file in files if not os.path.isabs(file) and file.split(os.sep)[0] not in ("..", layout.FOLDER)]


def name_in(project: str, file: str) -> str:
    return _read_own_name(os.path.join(project, file)) or _name_without_own(project, file)


def _read_own_name(path: str) -> str:
    """The name in the file: `branchName` without its `ralph/`, else `project` or `name`; made a valid name."""
    document = prd_shape.parse_document(markdown.load_required(path), path)
    known = document if isinstance(document, dict) else {}
    wanted = [_text_or_empty(known.get(key)) for key in ("branchName", "project", "name")]
    wanted[0] = wanted[0].removeprefix("ralph/")
    return next(filter(None, map(_make_fit, wanted)), "")


def _name_without_own(project: str, file: str) -> str:
    """A prd.json is named after the project's folder, any other file after itself."""
    stem = os.path.splitext(os.path.basename(file))[0]
    return _make_fit(os.path.basename(project) if stem == "prd" else stem) or "prd"


def _make_fit(text: str) -> str:
    return text if projects.is_name(text) else projects.build_slug(text)[:128]


def _text_or_empty(value: object) -> str:
    return value if isinstance(value, str) else ""


class Prd(WithNotes):
    adapter = name
    task_example = (
        '`{"id": "US-001", "title": "…", "acceptanceCriteria": ["What to do"], "passes": false}` '
        "in the list `userStories`"
    )

    def __init__(self, path: str, change: str, ref: str) -> None:
        self.change = change
        self.ref = ref
        self.path = path
        self.notes_file = os.path.join(os.path.dirname(self.path), f"{change}-learnings.md")

    @property
    def done_key(self) -> str:
        return self._read_document().done_key

    def stories(self, completed: "Collection[str]" = ()) -> list[Story]:
        stories = self._read_document().read_stories(completed, self.warn)
        specs.check(stories, self.path)
        return stories

    def _read_document(self) -> "StoryFile":
        return prd_shape.StoryFile(markdown.load_required(self.path), self.path)

    def tick(self, task_id: str, completed: "Collection[str]" = (), *, proven: bool = True) -> None:
        """Sets the criterion's own mark, if it has one. Others are kept in the session, and the last one of a story
        sets the story's mark."""
        story, position = self._find_task(task_id)
        known = {*completed, task_id, *(task.id for task in story.tasks if task.done)}
        is_last = proven and all(task.id in known for task in story.tasks)

        def change(text: str) -> str:
            text = prd_shape.set_criterion(text, self.path, story.id, position, done=True)
            document = prd_shape.StoryFile(text, self.path)
            reader = document.readers[document.ids.index(story.id)]
            if not is_last or reader.is_done() or prd_shape.has_own_marks(reader):
                return text
            return prd_shape.set_story(text, self.path, story.id, done=True)

        markdown.edit(self.path, change)

    def untick(self, task_id: str) -> None:
        story, position = self._find_task(task_id)

        def change(text: str) -> str:
            text = prd_shape.set_criterion(text, self.path, story.id, position, done=False)
            document = prd_shape.StoryFile(text, self.path)
            is_done = document.readers[document.ids.index(story.id)].is_done()
            return prd_shape.set_story(text, self.path, story.id, done=False) if is_done else text

        markdown.edit(self.path, change)

    def _find_task(self, task_id: str) -> tuple[Story, int]:
        """The story of a task, and the task's position in it."""
        for story in self.stories():
            ids = [task.id for task in story.tasks]
            if task_id in ids:
                return story, ids.index(task_id)
        raise TaskNotFound(f"{self.path} has no task {shorten(task_id)}")

    def prd_id(self, story_id: str) -> str:
        """A story with its own id is identified by that alone, whatever the name of the change."""
        own = [reader.own_id() for reader in self._read_document().readers]
        return projects.build_slug(story_id) if story_id in own else ""

    def proposal(self) -> str | None:
        document = self._read_document().value
        return _text_or_empty(document.get("description")) or None if isinstance(document, dict) else None

    def design(self) -> str | None:
        return None

    def scenarios(self, story: Story) -> list[Scenario]:
        return []


# --- new changes ------------------------------------------------------------------------------------


def is_used(project: str) -> bool:
    return bool(locate(project))


def scaffold(project: str, text: str, name: str | None, file: str | None) -> "Scaffold":
    import json

    from ralphtool.specs.scaffold import Scaffold, name_for, title_of

    change = name_for(text, name)
    stories = [
        _user_story(1, "The first working part", "Small: an hour of your work, not a week."),
        _user_story(2, "The next part, which builds on it", "It can be proven by a test or a command."),
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
        "description": f"As a <role> I want <feature>, so that <benefit>. {hint}",
        "acceptanceCriteria": list(EXAMPLES[:2]),
        "priority": number,
        "passes": False,
        "notes": "",
    }


_TAKEN = "it contains only one change: add a story to it, or create a checklist with --file docs/NAME.md"


def compose(project: str, outline: "Outline", file: str | None) -> "Scaffold":
    import json

    from ralphtool.specs.scaffold import Scaffold

    document = {
        "project": outline.title,
        "branchName": f"ralph/{outline.name}",
        "description": outline.proposal or outline.title,
        "userStories": [_compose_story(outline, number, story) for number, story in enumerate(outline.stories, 1)],
    }
    written = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    return Scaffold(outline.name, os.path.join(project, _FILE), {"": written}, if_taken=_TAKEN)


def _compose_story(outline: "Outline", number: int, story: Story) -> "dict[str, Any]":
    from ralphtool.specs.outline import is_over, strip_title

    return {
        "id": f"US-{number:03}",
        "title": strip_title(story),
        "description": story.description or "",
        "acceptanceCriteria": [task.text for task in story.tasks],
        "priority": number,
        "passes": is_over(story),
        "dependsOn": [f"US-{one:03}" for one in outline.list_dependencies(story)],
        **({"optional": True} if story.optional else {}),
    }
