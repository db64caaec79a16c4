"""The issues of beads: turns the output of `bd`, `br` or the exported file into a copy, and closes proven issues."""

import os

from ralphtool import specs
from ralphtool.core import config, files
from ralphtool.errors import ChangeNotFound, InvalidValue, SpecError, shorten
from ralphtool.specs import Story, Task, issue_copy, markdown, program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from typing import Any

    from ralphtool.specs.tracker import DoneStory

_ADAPTER = "beads"
_FOLDER = ".beads"
_EXPORTS = ("issues.jsonl", "beads.jsonl")  # the second is the older name
_PROGRAMS = ("bd", "br")
_ENDED = ("closed", "tombstone")
_CHILD_TYPES = ("parent-child", "parent_child", "child")  # two of them are misspelled, but occur
_NOT_NOW = ("blocked", "deferred", "pinned", "hooked")
_LOWEST = 99


class Bead:
    """One issue."""

    __slots__ = (
        "blockers",
        "created",
        "criteria",
        "description",
        "id",
        "kind",
        "parents",
        "priority",
        "status",
        "title",
    )

    def __init__(self, fields: "dict[str, Any]", where: str) -> None:
        self.id = _read_text(fields, "id", where)
        if not self.id or any(mark.isspace() for mark in self.id) or ":" in self.id:
            raise SpecError(f"{where}: {shorten(self.id)} is not a valid issue id: fix it, or export the issues again")
        about = f"{where}, issue {shorten(self.id)}"
        self.title = issue_copy.flatten(_read_text(fields, "title", about)) or self.id
        self.description = _read_text(fields, "description", about)
        self.criteria = _read_text(fields, "acceptance_criteria", about)
        self.status = _read_text(fields, "status", about) or "open"
        self.kind = _read_text(fields, "issue_type", about)
        self.created = _read_text(fields, "created_at", about)
        priority = fields.get("priority")
        self.priority = priority if isinstance(priority, int) else _LOWEST
        self.parents: list[str] = []
        self.blockers: list[str] = []
        for kind, other in _list_dependencies(fields, about):
            if kind in _CHILD_TYPES:
                self.parents.append(other)
            elif kind == "blocks":
                self.blockers.append(other)

    @property
    def about(self) -> str:
        criteria = self.criteria and f"Acceptance criteria:\n{self.criteria}"
        return "\n\n".join(filter(None, (self.description.strip(), criteria.strip())))

    @property
    def is_closed(self) -> bool:
        return self.status in _ENDED


class BeadGraph:
    """Issues by id, and the children of each."""

    def __init__(self, beads: "dict[str, Bead]", where: str) -> None:
        self.beads = beads
        self.where = where
        self.children: dict[str, list[str]] = {}
        for bead in beads.values():
            for parent in bead.parents:
                self.children.setdefault(parent, []).append(bead.id)

    def is_open(self, id: str) -> bool:
        """A missing issue blocks nothing: it was deleted, or is in another repository."""
        return id in self.beads and not self.beads[id].is_closed

    def list_leaves(self, epic: str) -> "dict[str, list[str]]":
        """The issues without children, each with its ancestors; an epic without children is its own story."""
        found: dict[str, list[str]] = {}
        waiting = [(epic, [epic])]
        while waiting:
            id, above = waiting.pop()
            if not self.children.get(id):
                found.setdefault(id, above)
            for child in self.children.get(id, []):
                if child in above:
                    raise SpecError(
                        f"{self.where}: the issues {', '.join(above)} are parents of each other: remove one of these "
                        "links"
                    )
                waiting.append((child, [*above, child]))
        return found

    def list_blockers(self, leaves: "dict[str, list[str]]", id: str) -> list[str]:
        """The blockers of a story and of its parents; a blocker with children stands for all of them."""
        found = []
        for blocker in [one for parent in leaves[id] for one in self.beads[parent].blockers]:
            below = self.list_leaves(blocker) if self.children.get(blocker) else [blocker]
            found += [one for one in below if one != id and (one in leaves or self.is_open(one))]
        return list(dict.fromkeys(found))


def _read_text(fields: "dict[str, Any]", key: str, where: str) -> str:
    value = fields.get(key)
    if value is not None and not isinstance(value, str):
        raise SpecError(f"{where}: {key} must be a string: fix it, or export the issues again")
    return value or ""


def _list_dependencies(fields: "dict[str, Any]", where: str) -> "Iterator[tuple[str, str]]":
    """The kind and the issue of each dependency; the file and the programs use different keys."""
    listed = fields.get("dependencies") or []
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise SpecError(f"{where}: dependencies must be a list of objects: fix it, or export the issues again")
    for one in listed:
        kind = one.get("type") or one.get("dependency_type") or one.get("dep_type")
        other = one.get("depends_on_id") or one.get("id")
        if not isinstance(kind, str) or not isinstance(other, str):
            raise SpecError(f"{where}: a dependency has no type or no id: fix it, or export the issues again")
        yield kind, other


# --- the exported file ------------------------------------------------------------------------------


def find_export(project: str) -> str | None:
    paths = [os.path.join(project, _FOLDER, name) for name in _EXPORTS]
    return next((path for path in paths if os.path.lexists(path)), None)


def list_open_epics(project: str) -> list[str]:
    """Their ids. Lines without "epic" are not parsed: there can be thousands."""
    path = find_export(project)
    if path is None:
        return []
    lines = "\n".join(line if '"epic"' in line else "" for line in _read_export(path, project).split("\n"))
    found = [Bead(fields, path) for fields in program.parse_lines(lines, path) if _is_issue(fields)]
    return [bead.id for bead in found if bead.kind == "epic" and not bead.is_closed]


def _read_export(path: str, project: str) -> str:
    inside = os.path.join(os.path.realpath(project), "")
    if not os.path.realpath(path).startswith(inside):
        raise SpecError(f"{path} is a link that points outside of {project}: replace the link by the file")
    return markdown.load_required(path)


def _is_issue(fields: "dict[str, Any]") -> bool:
    """`bd export` may print other records between the issues."""
    return fields.get("_type", "issue") == "issue" and fields.get("status") != "tombstone"


_last_read: "tuple[object, BeadGraph] | None" = None  # a list opens one epic after another


def read_export(path: str, project: str) -> BeadGraph:
    global _last_read
    info = os.stat(path)
    key = (path, files.version(info), info.st_size)
    if _last_read is None or _last_read[0] != key:
        _last_read = (key, _collect(program.parse_lines(_read_export(path, project), path), path))
    return _last_read[1]


def _collect(records: "Iterable[dict[str, Any]]", where: str) -> BeadGraph:
    found: dict[str, Bead] = {}
    for fields in records:
        if _is_issue(fields):
            bead = Bead(fields, where)
            if bead.id in found:
                raise SpecError(f"{where}: the issue {shorten(bead.id)} is listed twice: export the issues again")
            found[bead.id] = bead
    return BeadGraph(found, where)


def open_export(project: str, epic: str) -> "ExportedEpic":
    """An epic that no run has copied yet, read from the exported file."""
    path = find_export(project)
    graph = read_export(path, project) if path else None
    if path is None or graph is None or epic not in graph.beads:
        hint = (
            f"`ralphtool run --spec beads:{epic}` reads it from the program"
            if path is None
            else "`ralphtool list` shows them"
        )
        raise ChangeNotFound(f"{os.path.join(project, _FOLDER)} has no exported issue {shorten(epic)}: {hint}")
    return ExportedEpic(project, path, epic, graph)


class ExportedEpic(issue_copy.IssueCopy):
    """It reads like its copy, which is created when the first box is ticked."""

    def __init__(self, project: str, path: str, epic: str, graph: BeadGraph) -> None:
        super().__init__(issue_copy.path_of(project, epic), epic, _ADAPTER, f"{_ADAPTER}:{epic}")
        self.path = path
        self._project = project
        self._graph = graph

    def stories(self, completed: "Collection[str]" = ()) -> list[Story]:
        if os.path.lexists(self.tasks_file):
            return super().stories(completed)
        return build_stories(self._graph, self.change)[0]  # a list opens many epics, and needs no text

    def tick(self, task_id: str, completed: "Collection[str]" = (), *, proven: bool = True) -> None:
        if not os.path.lexists(self.tasks_file):
            text = self.read_intro()
            self._find_box(text, task_id)  # an unknown task changes nothing
            issue_copy.store(self._project, self.change, text)
        super().tick(task_id, completed, proven=proven)

    def read_intro(self) -> str:
        return build_copy(self._graph, self.change)[0]


# --- an epic as a copy ------------------------------------------------------------------------------


def build_copy(graph: BeadGraph, epic: str) -> tuple[str, list[str]]:
    """The text of an epic's copy, and notices about it for people."""
    if epic not in graph.beads:
        raise ChangeNotFound(f"{graph.where} has no issue {shorten(epic)}")
    stories, notices = build_stories(graph, epic)
    return issue_copy.render((_ADAPTER, epic), graph.beads[epic].title, graph.beads[epic].about, stories), notices


def build_stories(graph: BeadGraph, epic: str) -> tuple[list[Story], list[str]]:
    """The stories of an epic in order, and notices about the issues that are left out."""
    leaves = graph.list_leaves(epic)
    waits = {id: graph.list_blockers(leaves, id) for id in leaves}
    left_out = _find_left_out(graph, leaves, waits)
    order = sorted((id for id in leaves if id not in left_out), key=lambda one: _build_sort_key(graph.beads[one]))
    stories = [_build_story(graph.beads[id], waits[id]) for id in order]
    specs.check(stories, graph.where)
    return stories, [f"{id} is skipped: {why}" for id, why in left_out.items()]


def _find_left_out(graph: BeadGraph, leaves: "dict[str, list[str]]", waits: "dict[str, list[str]]") -> dict[str, str]:
    """The issues that can't be worked on in this change, with reasons, and those that wait for them."""
    left: dict[str, str] = {}
    for id in leaves:
        outside = [one for one in waits[id] if one not in leaves]
        if graph.beads[id].status in _NOT_NOW:
            left[id] = f"its status is {graph.beads[id].status}"
        elif outside and not graph.beads[id].is_closed:
            left[id] = f"it waits for {', '.join(outside)}, which is open and not part of this epic"
    while more := {id: [one for one in waits[id] if one in left] for id in leaves if id not in left}:
        blocked = {id: f"it waits for {', '.join(found)}" for id, found in more.items() if found and graph.is_open(id)}
        if not blocked:
            break
        left.update(blocked)
    for id in leaves:
        waits[id] = [one for one in waits[id] if one in leaves and one not in left]
    return left


def _build_sort_key(bead: Bead) -> "tuple[int, str, list[tuple[int, str]]]":
    """By priority, then age; x.2 before x.10 if the age is equal."""
    parts = [(int(part), "") if part.isascii() and part.isdigit() else (0, part) for part in bead.id.split(".")]
    return bead.priority, bead.created[:19], parts


def _build_story(bead: Bead, depends_on: "Sequence[str]") -> Story:
    texts = _list_criteria(bead) or [bead.title]
    words = [issue_copy.flatten(text) for text in texts]
    tasks = [Task(f"{bead.id}.{number}", text, bead.is_closed) for number, text in enumerate(words, 1)]
    return Story(bead.id, bead.title, tasks, bead.about or None, depends_on=depends_on)


def _list_criteria(bead: Bead) -> list[str]:
    """The boxes of the acceptance criteria, else their lines, else the boxes of the description."""
    boxes = _list_boxes(bead.criteria)
    lines = [line.strip().lstrip("-*+ ").strip() for line in bead.criteria.split("\n")]
    return boxes or [line for line in lines if line and not line.startswith("#")] or _list_boxes(bead.description)


def _list_boxes(text: str) -> list[str]:
    found = [box for section in markdown.sections(text, "", is_file=False) for box in section.boxes]
    return [box.text for box in found if box.text]


# --- the programs -----------------------------------------------------------------------------------


def find_program(project: str) -> str | None:
    """The name of the program to call; None if there is none."""
    told = config.read_tracker(project, _ADAPTER).get("program")
    if told is not None:
        if told not in _PROGRAMS:
            raise InvalidValue(f'{config.path_of(project)}: specs.beads.program must be "bd" or "br"')
        return str(told)
    order = _PROGRAMS if _uses_dolt(project) else _PROGRAMS[::-1]
    return next((name for name in order if program.find(name)), None)


def _uses_dolt(project: str) -> bool:
    """Only `bd` can read such a database; if both programs are installed, other databases mostly belong to `br`."""
    try:
        return b'"dolt"' in files.read(os.path.join(project, _FOLDER, "metadata.json"))
    except OSError:
        return False


def download(project: str, epic: str, stop: "Callable[[], bool]") -> tuple[str, list[str]]:
    """The current epic from the program; without a program, as last exported."""
    named = find_program(project)
    if named and program.find(named):
        return build_copy(_ask(project, named, epic, stop), epic)
    path = find_export(project)
    if path is None:
        raise SpecError(
            f"{os.path.join(project, _FOLDER)} has no issues.jsonl, and neither bd nor br is on the PATH: install "
            "the one that your project uses, or export the issues (`bd export -o .beads/issues.jsonl`)"
        )
    text, notices = build_copy(read_export(path, project), epic)
    missing = (
        f"{named or 'bd or br'} is not on the PATH: issues are read from {path}, and are not closed when they are done"
    )
    return text, [missing, *notices]


def _ask(project: str, named: str, epic: str, stop: "Callable[[], bool]") -> BeadGraph:
    """Reads an epic and all issues related to it."""
    return _ask_bd(project, named, stop) if named == "bd" else _ask_br(project, named, epic, stop)


def _ask_bd(project: str, named: str, stop: "Callable[[], bool]") -> BeadGraph:
    return _collect(
        program.parse_lines(program.run([named, "export"], project, stop=stop), f"`{named} export`"),
        f"`{named} export`",
    )


def _ask_br(project: str, named: str, epic: str, stop: "Callable[[], bool]") -> BeadGraph:
    """`br` exports only to a file, so children and blockers are read level by level."""
    found: dict[str, Bead] = {}
    wanted = [epic]
    while wanted:
        objects = _show(project, named, wanted, stop)
        children = [id for fields in objects for id in _list_children(fields)]
        for fields in objects:
            bead = Bead(fields, f"`{named} show`")
            found[bead.id] = bead
        for id in wanted:
            if id not in found:
                raise SpecError(f"`{named} show` printed nothing about {shorten(id)}: run it by hand to see why")
        blockers = [id for fields in objects for id in found[str(fields["id"])].blockers]
        wanted = [id for id in dict.fromkeys([*children, *blockers]) if id not in found]
    return BeadGraph(found, f"`{named} show`")


def _show(project: str, named: str, ids: "Sequence[str]", stop: "Callable[[], bool]") -> "list[dict[str, Any]]":
    if odd := [id for id in ids if id.startswith("-")]:
        raise SpecError(f"{shorten(odd[0])} is not a valid issue id: give the id of an epic, as in beads:bd-a1b2")
    command = [named, "show", *ids, "--json"]
    return program.parse_objects(program.run(command, project, stop=stop), command)


def _list_children(fields: "dict[str, Any]") -> list[str]:
    listed = fields.get("dependents") or []
    if not isinstance(listed, list):
        raise SpecError("`br show` printed dependents that are not a list: update br")
    children = [one for one in listed if isinstance(one, dict) and one.get("dependency_type") in _CHILD_TYPES]
    return [one["id"] for one in children if isinstance(one.get("id"), str)]


# --- closing ----------------------------------------------------------------------------------------


def publish(
    project: str, epic: str, done: "Sequence[DoneStory]", *, is_complete: bool, stop: "Callable[[], bool]"
) -> list[str] | None:
    """Closes the issues that are done; None if nothing may be written."""
    named = find_program(project)
    if config.read_tracker(project, _ADAPTER).get("write") is False or not (named and program.find(named)):
        return None
    new = [story for story in done if story.is_new]
    graph = _collect_states(project, named, [epic, *(story.id for story in new)], stop)
    for story in new:
        if graph.is_open(story.id):
            _close(project, named, story.id, story.describe(), stop)
    if is_complete and graph.is_open(epic) and epic not in [story.id for story in new]:
        return _close_epic(project, named, epic, stop)
    return []


def _collect_states(project: str, named: str, ids: "Sequence[str]", stop: "Callable[[], bool]") -> BeadGraph:
    unique = list(dict.fromkeys(ids))
    return _collect(_show(project, named, unique, stop), f"`{named} show`")


def _close(project: str, named: str, id: str, reason: str, stop: "Callable[[], bool]") -> None:
    program.run([named, "close", id, f"--reason={reason}", "--json"], project, stop=stop)


def _close_epic(project: str, named: str, epic: str, stop: "Callable[[], bool]") -> list[str]:
    """Keeps it open while it has open children, such as issues that were added since or left out."""
    graph = _ask(project, named, epic, stop)
    open_ones = [id for id in graph.list_leaves(epic) if id != epic and graph.is_open(id)]
    if open_ones:
        listed = ", ".join(open_ones[:5])
        return [f"the epic {epic} stays open: it has open issues that were not part of this run: {listed}"]
    _close(project, named, epic, "All stories are done", stop)
    return []
