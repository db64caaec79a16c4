"""Specs: the parts of a change, and how changes of all formats are found and opened.

An adapter is the reader and writer of one format: a module, or any object, that fits `Adapter`.
`open` looks for the change; the commands and the loop know no concrete format.

On the agent's hot path: standard library only, and adapters are imported only when needed.

One file, although over 500 lines: each further module would make every agent command slower.
"""

import os
import sys

from ralphtool.core import project as projects
from ralphtool.errors import (
    ChangeNotFound,
    InvalidValue,
    RalphError,
    SpecError,
    StoryNotFound,
    from_os_error,
    shorten,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from typing import Any, Protocol
else:
    Protocol = object

__all__ = ["Adapter", "Scenario", "Spec", "Story", "Task", "open"]

BUILT_IN = {name: module for name, (module, _, _) in projects.FORMATS.items()}
TRACKERS = ("beads", "github")  # their changes are created with another program
DEFAULT = "checklist"  # for a new change, if the project uses no format yet
_ENDINGS = (".md", ".markdown", ".json", ".jsonl", ".yml", ".yaml", ".txt", ".toml")  # of files, never of modules
_NEEDED = ("name", "found_in", "changes", "open", "places")


# --- the parts of a change --------------------------------------------------------------------------


class Task:
    """One checkbox. A story can be done without its optional tasks."""

    __slots__ = ("done", "id", "optional", "text")

    def __init__(self, id: str, text: str, done: bool, optional: bool = False) -> None:
        self.id = id
        self.text = text
        self.done = done
        self.optional = optional


class Story:
    """The work of one iteration. `put_aside` says why an open story is not worked on: "blocked" or "deferred"."""

    __slots__ = ("depends_on", "description", "id", "optional", "put_aside", "tasks", "title")

    def __init__(
        self,
        id: str,
        title: str,
        tasks: "Sequence[Task]",
        description: str | None = None,
        optional: bool = False,
        depends_on: "Sequence[str]" = (),
        put_aside: str = "",
    ) -> None:
        self.id = id
        self.title = title
        self.tasks = tuple(tasks)
        self.description = description
        self.optional = optional
        self.depends_on = tuple(depends_on)
        self.put_aside = put_aside

    @property
    def required(self) -> "list[Task]":
        """The tasks that must be done."""
        return [task for task in self.tasks if not task.optional] or list(self.tasks)

    @property
    def done(self) -> bool:
        """A story without tasks is never done: its work was not written as tasks."""
        return bool(self.tasks) and all(task.done for task in self.required)

    @property
    def tasks_done(self) -> int:
        return sum(task.done for task in self.tasks)


class Scenario:
    """An example of how the finished change behaves."""

    __slots__ = ("capability", "given", "name", "requirement", "then", "when")

    def __init__(self, capability: str | None, requirement: str | None, name: str) -> None:
        self.capability = capability
        self.requirement = requirement
        self.name = name
        self.given: list[str] = []
        self.when: list[str] = []
        self.then: list[str] = []

    def as_dict(self) -> "dict[str, Any]":
        return {
            "capability": self.capability,
            "requirement": self.requirement,
            "name": self.name,
            "given": self.given,
            "when": self.when,
            "then": self.then,
        }


class Spec(Protocol):
    """One change, as its adapter reads and writes it."""

    adapter: str
    change: str
    path: str
    """The folder or file of the change, as shown to people."""
    ref: str
    """The value of `spec` with which `open` finds exactly this change again."""

    def stories(self, completed: "Collection[str]" = ()) -> list[Story]:
        """In the order of work. `completed` are the tasks that the session recorded as done."""
        ...

    def tick(self, task_id: str, completed: "Collection[str]" = (), *, proven: bool = True) -> None:
        """Marks a task as done and changes no other byte.

        If a format has no box for each task, the story's own mark is set once all tasks are in `completed`,
        and only if the work is `proven`.
        """
        ...

    def proposal(self) -> str | None: ...

    def design(self) -> str | None: ...

    def scenarios(self, story: Story) -> list[Scenario]: ...

    def write_learnings(self, learnings: "Sequence[dict[str, Any]]") -> int:
        """Writes the learnings that are not there yet; returns their number."""
        ...

    def write_patterns(self, patterns: "Sequence[dict[str, Any]]") -> int: ...

    def write_observations(self, observations: "Sequence[dict[str, Any]]") -> int: ...

    # A spec may also have:
    #   done_key: str                       in a JSON format, the key of a story's object that says that it is done:
    #                                       set only for a proven story, and never by an agent
    #   untick(task_id: str) -> None        reopens a box, for a story that a person rejects; if a format has no box
    #                                       for each task, it removes the story's own mark
    #   prd_id(story_id: str) -> str        the story's id in the history
    #   title: str                          the author's title of the change, for people
    #   warnings: list[str]                 the problems of what was read so far: each says what is wrong, how it was
    #                                       interpreted, and what to do
    #   task_example: str                   how a task is written in this format, for a change that has none yet
    #   is_marked(story_id: str) -> bool    whether a story itself is marked as done, in a format where a story has its
    #                                       own mark besides those of its tasks
    #   is_untouched() -> bool              whether it is unchanged since `scaffold` wrote it


class Adapter(Protocol):
    """The reader and writer of one spec format."""

    name: str
    found_in: str
    """The place of changes in a project, as shown to people: `plans/<name>.md`."""

    def changes(self, project: str) -> list[str]:
        """The names of the project's changes in this format; must be cheap, and must not fail if there are none."""
        ...

    def open(self, project: str, change: str, where: str | None = None) -> Spec:
        """The change of that name, or ChangeNotFound. `where` is the part of a ref after its ':'."""
        ...

    def places(self, change: str, where: str | None = None) -> "Sequence[str]":
        """The paths in a project, files or folders, that can belong to the change; they need not exist.

        A run commits them with the change, and reads them from its branch without checking that out.
        """
        ...

    # An adapter may also have:
    #   scaffold(project: str, text: str, name: str | None, file: str | None) -> Scaffold
    #                                       the files that `ralphtool new` writes: see ralphtool.specs.scaffold
    #   locate(project: str) -> list[ChangeLocation]
    #                                       the changes with their refs, instead of `changes`: if changes can be in
    #                                       several places, or an unreadable one must not hide the others
    #   name_in(project: str, file: str) -> str
    #                                       the name of the change in a file that is given as `--spec FILE`
    #   takes_file: bool                    whether `ralphtool new --file` can name the file to create
    #   is_used(project: str) -> bool       whether the project uses the format, if it can do so without changes
    #   guide: str                          how to write the format, for an agent that drafts a change in it


# --- finding adapters and changes -------------------------------------------------------------------


def adapter(name: str) -> Adapter:
    """A built-in name, a name from the entry points, or a dotted path (`package.module:object`)."""
    if name in BUILT_IN:
        return _load(BUILT_IN[name])
    strangers = _entry_points()
    if name in strangers:
        return _load(strangers[name])
    if "." in name:
        return _load(name)
    from ralphtool.core import spelling  # needed only for the error

    known = [*BUILT_IN, *strangers]
    others = f"use one of {', '.join(known)}, the path of a Markdown file, or the dotted path of an adapter"
    raise InvalidValue(f"unknown spec format {shorten(name)}: {spelling.suggest(name, known, others)}")


def _load(dotted: str) -> "Adapter":
    module, _, attribute = dotted.partition(":")
    try:
        __import__(module)  # what importlib.import_module does, without the cost of importlib
        found: Any = sys.modules[module]
        found = getattr(found, attribute) if attribute else found
    except Exception as error:  # third-party code may raise anything on import
        raise InvalidValue(
            f"the spec adapter {shorten(dotted)} can't be loaded ({error}): check its name, and install it for the "
            "Python that runs ralphtool, or put its folder on PYTHONPATH"
        ) from None
    if missing := [name for name in _NEEDED if not hasattr(found, name)]:
        raise InvalidValue(f"{dotted} is not a spec adapter: it has no {', '.join(missing)}")
    return found  # type: ignore[no-any-return]


def names() -> list[str]:
    """All formats that are looked for: the built-in ones, and those of other packages."""
    return [*BUILT_IN, *(name for name in _entry_points() if name not in BUILT_IN)]


def _entry_points() -> dict[str, str]:
    from ralphtool.specs import plugins

    return plugins.find_entry_points()


def open(project: str, change: str, spec: str | None = None) -> Spec:
    """Finds the change of that name; `spec` decides if several formats have one."""
    projects.check_name(change, "a change's name")
    if spec:
        return _open_ref(project, change, spec)
    places = find_all(project)
    held = [place for place in places if place.change == change and not place.error]
    found = [place for place in held if not place.nested] or held
    if not found:
        raise _not_found_error(project, change, places)
    return _open_ref(project, change, _choose_location(project, found).ref)


def _choose_location(project: str, found: "list[ChangeLocation]") -> "ChangeLocation":
    if len(found) == 1:
        return found[0]
    from ralphtool.core import config

    preferred = parse_ref(project, config.read_spec(project))
    told = [place for place in found if place.ref == preferred]
    if len(told) == 1:
        return told[0]
    held = ", ".join(place.ref for place in found)
    raise SpecError(
        f'{found[0].change} exists in several specs ({held}): set spec = "{found[0].ref}" under [run] in '
        f".ralph/config.toml, delete the others, or choose one, as in `ralphtool run {found[0].change} --spec "
        f"{found[0].ref}`"
    )


def parse_ref(project: str, text: str | None) -> str | None:
    """The value of `--spec` as a ref."""
    return text if text is None or not is_path(text) else _locate_path(project, text)[0].ref


def find_named(project: str, text: str | None) -> str | None:
    """The change that a `--spec` path identifies without a name, if it contains only one."""
    found = {place.change for place in _locate_path(project, text)} if text and is_path(text) else set()
    return found.pop() if len(found) == 1 else change_of(text)


def _locate_path(project: str, path: str, known: "list[ChangeLocation] | None" = None) -> "list[ChangeLocation]":
    """The changes that a path belongs to; if there are none, the one in the file itself."""
    from ralphtool.specs import refs

    inside = refs.find_inside(project, path)
    places = find_all(project) if known is None else known
    found = [place for place in places if not place.error and _holds(project, place, os.path.join(project, inside))]
    return found or [ChangeLocation(*refs.locate_file(project, inside, adapter))]


def _holds(project: str, place: "ChangeLocation", full: str) -> bool:
    try:
        own = open(project, place.change, place.ref).path
    except (RalphError, OSError):
        return False  # one that can't be opened has no paths; opening it reports why
    return full == own or full.startswith(os.path.join(own, ""))


def is_path(text: str) -> bool:
    """Whether it can only be a path: the name of a module has no slash, and a ref has a format before its ':'."""
    return text.partition(":")[0] not in BUILT_IN and ("/" in text or text.endswith(_ENDINGS))


def file_of(ref: str | None) -> str | None:
    """The path in a ref, if any: `docs/plan.md`, with or without a format before it."""
    name, _, where = (ref or "").partition(":")
    if name in TRACKERS:
        return None  # the rest is the number of an issue
    if name in BUILT_IN:
        return where or None
    return ref if ref and is_path(ref) else None


def change_of(ref: str | None) -> str | None:
    """The change that a ref of an issue tracker implies: it is named after the issue."""
    name, _, where = (ref or "").partition(":")
    if name not in TRACKERS or not where:
        return None
    named: str = adapter(name).name_change(where)  # type: ignore[attr-defined]
    return named


def _open_ref(project: str, change: str, ref: str) -> Spec:
    ref = parse_ref(project, ref) or ref
    found, where = _resolve(ref)
    spec = found.open(project, change, where)
    if spec.ref.partition(":")[0] != ref.partition(":")[0]:
        spec.ref = ref  # an adapter does not know the entry point or path that it was found by
    return spec


def _resolve(ref: str) -> tuple[Adapter, str | None]:
    """The adapter that a ref names, and the rest of the ref."""
    name, _, where = ref.partition(":")
    if name in BUILT_IN or "." not in name:
        return adapter(name), where or None
    return adapter(ref), None


def places(project: str, change: str, ref: str | None = None) -> list[str]:
    """The paths in a project that can belong to a change; without a ref, for every format."""
    if ref:
        found, where = _resolve(parse_ref(project, ref) or ref)
        return check_places(found, change, where)
    located = [place.ref for place in find_all(project) if place.change == change and not place.error]
    known = [find_working(name) for name in [*located, *names(), *list_configured(project)]]
    found_in = [check_places(found, change, where) for found, where in filter(None, known)]
    return list(dict.fromkeys(place for some in found_in for place in some))


def check_places(adapter: "Adapter", change: str, where: str | None) -> list[str]:
    from ralphtool.specs import refs

    return refs.check_places(adapter.places(change, where), adapter.name, change)


def find_working(ref: str) -> "tuple[Adapter, str | None] | None":
    """The adapter that a ref names; None if its package is broken, which must not hide the changes of others."""
    try:
        return _resolve(ref)
    except RalphError:
        return None


def list_own_paths(project: str, spec: Spec) -> list[str]:
    """The full paths of a change that exist."""
    found = [os.path.join(project, place) for place in places(project, spec.change, spec.ref)]
    return list(dict.fromkeys([spec.path, *(path for path in found if os.path.lexists(path))]))


class ChangeLocation:
    """Where a change was found. `error` says why its format could not be read, if so.

    A `nested` one is in a project below this one: a change of this project with the same name takes precedence.
    """

    __slots__ = ("change", "error", "nested", "ref")

    def __init__(self, change: str, ref: str, error: RalphError | None = None, nested: bool = False) -> None:
        self.change, self.ref, self.error, self.nested = change, ref, error, nested


def find_all(project: str) -> list[ChangeLocation]:
    """Every change of the project, in every format, including the one that the configuration names."""
    formats = [name for name in names() if may_be_used(project, name)]
    places = [place for name in formats for place in _find_by_format(project, name)]
    return places + _find_in_config(project, places)


def may_be_used(project: str, name: str) -> bool:
    from ralphtool.core import config

    traces = projects.FORMATS[name][2] if name in projects.FORMATS else ()
    is_there = any(os.path.lexists(os.path.join(project, trace)) for trace in traces)
    return not traces or is_there or config.mentions(project, name)


def _find_by_format(project: str, ref: str) -> list[ChangeLocation]:
    try:
        return _locate(project, ref)
    except RalphError as error:
        return [ChangeLocation(os.path.basename(project), ref, error)]
    except OSError as error:
        return [ChangeLocation(os.path.basename(project), ref, SpecError(str(from_os_error(error))))]


def _locate(project: str, ref: str) -> list[ChangeLocation]:
    found = adapter(ref)
    own = getattr(found, "locate", None)
    if own is None or "." in ref:
        return [ChangeLocation(change, ref) for change in found.changes(project)]
    located: list[ChangeLocation] = own(project)
    for place in located:  # an adapter does not know the entry point that it was found by
        place.ref = ":".join([ref, *place.ref.split(":", 1)[1:]])
    return located


def _find_in_config(project: str, known: list[ChangeLocation]) -> list[ChangeLocation]:
    from ralphtool.core import config

    ref = config.read_spec(project)
    if not ref or not is_path(path := file_of(ref) or ref):
        return [place for one in list_configured(project) for place in _find_by_format(project, one)]
    try:
        return [place for place in _locate_path(project, os.path.join(project, path), known) if place not in known]
    except RalphError as error:
        return [ChangeLocation(projects.make_name(os.path.basename(path)), ref, error)]


def list_configured(project: str) -> list[str]:
    """The file or adapter path in the configuration, unless it is a format that is looked for anyway."""
    from ralphtool.core import config

    ref = config.read_spec(project)
    if file := file_of(ref):
        from ralphtool.specs import refs

        return [built] if (built := refs.build_ref(file)) else []
    return [ref] if ref and "." in ref.partition(":")[0] and ref not in names() else []


def _not_found_error(project: str, change: str, places: list[ChangeLocation]) -> Exception:
    for place in places:
        if place.error:  # the change may be in the unreadable one
            return place.error
    names = sorted({place.change for place in places})
    from ralphtool.core import spelling  # needed only for the error

    known = f"the changes are {', '.join(names[:20])}" if names else "there are no changes yet"
    advice = spelling.suggest(change, names, f"{known};")
    return ChangeNotFound(f"there is no change {change} in {project}: {advice} `ralphtool list` shows them")


# --- checking and choosing stories ------------------------------------------------------------------


def check(stories: "Sequence[Story]", path: str) -> None:
    """Refuses specs that would confuse or stall a run: duplicate ids, and stories that wait forever."""
    _check_unique([task.id for story in stories for task in story.tasks], "task", path)
    _check_unique([story.id for story in stories], "story", path)
    known = {story.id for story in stories}
    for story in stories:
        if missing := [other for other in story.depends_on if other not in known]:
            raise SpecError(
                f"{path}: story {story.id} depends on {', '.join(missing)}, which does not exist: fix the dependency"
            )
    _check_cycles(stories, path)


def _check_unique(ids: list[str], what: str, path: str) -> None:
    seen: set[str] = set()
    for id in ids:
        if id in seen:
            raise SpecError(f"{path}: the {what} id {shorten(id)} is used twice: give each {what} its own id")
        seen.add(id)


def _check_cycles(stories: "Sequence[Story]", path: str) -> None:
    if own := [story.id for story in stories if story.id in story.depends_on]:
        raise SpecError(f"{path}: story {own[0]} depends on itself: remove this dependency")
    if circle := find_cycle({story.id: story.depends_on for story in stories}):
        raise SpecError(
            f"{path}: the stories {', '.join(circle)} depend on each other: remove one of these dependencies"
        )


def find_cycle(depends_on: "Mapping[str, Sequence[str]]") -> list[str]:
    """The ids that would wait forever, given the dependencies of each."""
    waiting = {id: set(others) for id, others in depends_on.items()}
    while free := [id for id, others in waiting.items() if not others & waiting.keys()]:
        for id in free:
            del waiting[id]
    return list(waiting)


def find_story(stories: "Iterable[Story]", id: str) -> Story:
    known = list(stories)
    if found := [story for story in known if story.id == id]:
        return found[0]
    from ralphtool.core import spelling

    ids = [story.id for story in known]
    near = spelling.suggest_id(id, ids)
    raise StoryNotFound(
        f"the change has no story {shorten(id)}; its stories are {', '.join(ids) or 'none'}{near and f'; {near}'}"
    )


def can_be_handed_out(story: Story) -> bool:
    return bool(story.tasks) and not story.put_aside


def next_story(stories: "Sequence[Story]") -> Story | None:
    """The first open story whose dependencies are done; optional ones come last."""
    done = {story.id for story in stories if story.done}
    ready = [
        one for one in stories if one.id not in done and can_be_handed_out(one) and done.issuperset(one.depends_on)
    ]
    return next((story for story in ready if not story.optional), ready[0] if ready else None)


def is_complete(stories: "Iterable[Story]") -> bool:
    """Whether all required stories are done; a change without any task is never complete."""
    known = list(stories)
    return any(story.tasks for story in known) and all(story.done for story in known if not story.optional)


def list_warnings(spec: Spec) -> list[str]:
    return list(getattr(spec, "warnings", ()))


def prd_id(spec: Spec, story_id: str | None) -> str:
    """The id of a story in the history; without a story, of the change. A spec may have its own method for that."""
    own = getattr(spec, "prd_id", None)
    known = own(story_id) if own and story_id is not None else ""
    return known or projects.build_slug(spec.change if story_id is None else f"{spec.change}-{story_id}")
