"""Specs: what a change is made of, and how the formats that people have are found and opened.

An adapter is the reader and writer of one format: a module, or any object, that fits `Adapter`.
`open` looks for the change; the commands and the loop know no format.

On the agent's hot path: standard library only, and adapters are imported when they are needed.
"""

import os
import sys

from ralphtool.core import files, layout
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

BUILT_IN = {name: module for name, (module, _) in projects.FORMATS.items()}
ENTRY_POINTS = "ralphtool.specs"
_INSTALLED = (".dist-info", ".egg-info")
DEFAULT = "checklist"  # what a change is begun in where no format is used yet
# Files that can be named where a format is asked for: how the name ends says which format it is.
_BY_ENDING = {".md": "checklist", ".markdown": "checklist"}
_NEEDED = ("name", "found_in", "changes", "open", "places")


# --- what a change is made of -----------------------------------------------------------------------


class Task:
    """One checkbox."""

    __slots__ = ("done", "id", "text")

    def __init__(self, id: str, text: str, done: bool) -> None:
        self.id = id
        self.text = text
        self.done = done


class Story:
    """What one iteration is given."""

    __slots__ = ("depends_on", "description", "id", "optional", "tasks", "title")

    def __init__(
        self,
        id: str,
        title: str,
        tasks: "Sequence[Task]",
        description: str | None = None,
        optional: bool = False,
        depends_on: "Sequence[str]" = (),
    ) -> None:
        self.id = id
        self.title = title
        self.tasks = tuple(tasks)
        self.description = description
        self.optional = optional
        self.depends_on = tuple(depends_on)

    @property
    def done(self) -> bool:
        return all(task.done for task in self.tasks)

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
    """What people call the change's place: its folder or its file."""
    ref: str
    """What `open` takes as `spec` to come straight back to this very change."""

    def stories(self, completed: "Collection[str]" = ()) -> list[Story]:
        """In the order in which they are to be done. `completed` are the tasks that the session knows as done."""
        ...

    def tick(self, task_id: str, completed: "Collection[str]" = (), *, proven: bool = True) -> None:
        """Marks a task as done and changes not one byte else.

        Where a format has no box for each task, the story's own mark is set once all are in `completed`,
        and only if the work is `proven`.
        """
        ...

    def proposal(self) -> str | None: ...

    def design(self) -> str | None: ...

    def scenarios(self, story: Story) -> list[Scenario]: ...

    def write_learnings(self, learnings: "Sequence[dict[str, Any]]") -> int:
        """Writes what is not there yet; tells how many that were."""
        ...

    def write_patterns(self, patterns: "Sequence[dict[str, Any]]") -> int: ...

    def write_observations(self, observations: "Sequence[dict[str, Any]]") -> int: ...

    # A spec may also have:
    #   done_key: str                       the key of a story's object, in a format that is JSON, which says that it is
    #                                       done: only a proven story gets it, and never from an agent
    #   untick(task_id: str) -> None        opens a box again, for a story that a person rejects; where a format has no
    #                                       box for each task, it takes the story's own mark away
    #   prd_id(story_id: str) -> str        what the history calls a story
    #   is_untouched() -> bool              whether it is still what `scaffold` made of it


class Adapter(Protocol):
    """The reader and writer of one spec format."""

    name: str
    found_in: str
    """Where changes lie in a project, for people: `plans/<name>.md`."""

    def changes(self, project: str) -> list[str]:
        """The names of the changes that this format holds in a project; cheap, and none is no error."""
        ...

    def open(self, project: str, change: str, where: str | None = None) -> Spec:
        """The change of that name, or ChangeNotFound. `where` is what follows the ':' of a ref."""
        ...

    def places(self, change: str, where: str | None = None) -> "Sequence[str]":
        """The paths in a project, files or folders, that can belong to the change; nothing has to be there.

        What a run commits with the change, and what is read from its branch without checking that out.
        """
        ...

    # An adapter may also have:
    #   scaffold(project: str, text: str, name: str | None, file: str | None) -> Scaffold
    #                                       what `ralphtool new` writes: see ralphtool.specs.scaffold
    #   takes_file: bool                    whether `ralphtool new --file` can name the file to make
    #   is_used(project: str) -> bool       whether the project uses the format, if it can without having changes


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
    raise InvalidValue(
        f"there is no spec format {shorten(name)}: it is one of {', '.join([*BUILT_IN, *strangers])}, "
        "the path of a Markdown file, or the dotted path of an adapter"
    )


def _load(dotted: str) -> "Adapter":
    module, _, attribute = dotted.partition(":")
    try:
        __import__(module)  # what importlib.import_module does, without the price of importlib
        found: Any = sys.modules[module]
        found = getattr(found, attribute) if attribute else found
    except Exception as error:  # other people's code may raise anything when it is imported
        raise InvalidValue(
            f"the spec adapter {shorten(dotted)} can't be loaded ({error}): check its name, and that the Python which "
            "runs ralphtool can import it (install it there, or put its folder on PYTHONPATH)"
        ) from None
    if missing := [name for name in _NEEDED if not hasattr(found, name)]:
        raise InvalidValue(f"{dotted} is no spec adapter: it has no {', '.join(missing)}")
    return found  # type: ignore[no-any-return]


def names() -> list[str]:
    """The formats that are looked for: those that come with us, and those of other packages."""
    return [*BUILT_IN, *(name for name in _entry_points() if name not in BUILT_IN)]


def _entry_points() -> dict[str, str]:
    """The formats that other packages bring. Asking Python costs more than the rest of a list, so we look first."""
    if not any(_may_bring_formats(folder) for folder in sys.path):
        return {}
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}


def _may_bring_formats(folder: str) -> bool:
    """Whether a package that is installed there names our group; what can't be looked into, such as an archive, may."""
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return os.path.isfile(folder)
    marks = [os.path.join(folder, name, "entry_points.txt") for name in names if name.endswith(_INSTALLED)]
    return any(_has_our_group(path) for path in marks)


def _has_our_group(path: str) -> bool:
    try:
        return f"[{ENTRY_POINTS}]".encode() in files.read(path)
    except OSError:
        return False


def open(project: str, change: str, spec: str | None = None) -> Spec:
    """The change of that name, found by looking; `spec` decides when several formats hold one."""
    projects.check_name(change, "a change's name")
    if spec:
        return _open_ref(project, change, spec)
    places = find_all(project)
    found = [place for place in places if place.change == change and not place.error]
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
    raise SpecError(f"{found[0].change} is held by several formats ({held}): say which one with --spec")


def parse_ref(project: str, text: str | None) -> str | None:
    """What somebody gave as `--spec`, as a ref: a file that is named from where they stand is found all the same."""
    file = file_of(text)
    if text is None or file is None:
        return text
    here = os.path.abspath(file)
    return _file_ref(os.path.relpath(here, project) if os.path.exists(here) else os.path.normpath(file))


def file_of(ref: str | None) -> str | None:
    """The file that a ref names, if it names one: `docs/plan.md`, with or without its format before it."""
    name, colon, file = (ref or "").partition(":")
    ending = os.path.splitext(ref or "")[1]
    if colon and name == _BY_ENDING.get(ending):
        return file
    return ref if ending in _BY_ENDING else None


def _file_ref(file: str) -> str:
    return f"{_BY_ENDING[os.path.splitext(file)[1]]}:{file}"


def change_of(ref: str | None) -> str | None:
    """The change that a ref names by itself: a file's is called after it."""
    file = file_of(ref)
    return None if file is None else os.path.splitext(os.path.basename(file))[0]


def _open_ref(project: str, change: str, ref: str) -> Spec:
    if file := file_of(ref):
        ref = _file_ref(file)
    found, where = _resolve(ref)
    spec = found.open(project, change, where)
    if spec.ref.partition(":")[0] != ref.partition(":")[0]:
        spec.ref = ref  # an adapter does not know by which entry point or path it is found
    return spec


def _resolve(ref: str) -> tuple[Adapter, str | None]:
    """The adapter that a ref names, and the rest of the ref."""
    name, _, where = ref.partition(":")
    if name in BUILT_IN or "." not in name:
        return adapter(name), where or None
    return adapter(ref), None


def places(project: str, change: str, ref: str | None = None) -> list[str]:
    """The paths in a project that can belong to a change; without a ref, those of every format."""
    file = file_of(ref)
    if file or ref:
        found, where = _resolve(_file_ref(file) if file else str(ref))
        return check_places(found, change, where)
    known = [find_working(name) for name in [*names(), *list_configured(project)]]
    found_in = [check_places(found, change, where) for found, where in filter(None, known)]
    return list(dict.fromkeys(place for some in found_in for place in some))


def find_working(ref: str) -> "tuple[Adapter, str | None] | None":
    """The adapter that a ref names; None where its package is broken, which must not hide the changes of others."""
    try:
        return _resolve(ref)
    except RalphError:
        return None


def check_places(adapter: "Adapter", change: str, where: str | None) -> list[str]:
    """What an adapter says belongs to a change: paths below the project's folder, as git can be asked for them."""
    places = adapter.places(change, where)
    wrong = [place for place in places if not _is_inside(place)] if isinstance(places, (list, tuple)) else [places]
    if wrong:
        raise SpecError(
            f"the spec adapter {adapter.name} says that {shorten(str(wrong[0]))} belongs to {change}: places are a "
            "list of paths inside the project, relative to its folder"
        )
    return list(places)


def _is_inside(place: object) -> bool:
    if not isinstance(place, str) or not place or "\0" in place or place.startswith((":", "/")):
        return False
    parts = place.split("/")
    return ".." not in parts and parts[0] not in (layout.FOLDER, ".git")


def list_own_paths(project: str, spec: Spec) -> list[str]:
    """The paths of a change that is there, in full."""
    found = [os.path.join(project, place) for place in places(project, spec.change, spec.ref)]
    return list(dict.fromkeys([spec.path, *(path for path in found if os.path.lexists(path))]))


class ChangeLocation:
    """Where a change was found. `error` says why its format could not be read, if so."""

    __slots__ = ("change", "error", "ref")

    def __init__(self, change: str, ref: str, error: RalphError | None = None) -> None:
        self.change = change
        self.ref = ref
        self.error = error


def find_all(project: str) -> list[ChangeLocation]:
    """Every change of the project, of every format; what the configuration names comes along."""
    places = [place for name in names() for place in _find_by_format(project, name)]
    return places + _find_in_config(project, places)


def _find_by_format(project: str, ref: str) -> list[ChangeLocation]:
    try:
        return [ChangeLocation(change, ref) for change in adapter(ref).changes(project)]
    except RalphError as error:
        return [ChangeLocation(os.path.basename(project), ref, error)]
    except OSError as error:
        return [ChangeLocation(os.path.basename(project), ref, SpecError(str(from_os_error(error))))]


def _find_in_config(project: str, known: list[ChangeLocation]) -> list[ChangeLocation]:
    found = []
    for ref in list_configured(project):
        file = file_of(ref)
        if file is None:
            found += _find_by_format(project, ref)
        else:
            change, name = os.path.splitext(os.path.basename(file))[0], ref.partition(":")[0]
            usual = any(place.change == change and place.ref == name for place in known)
            found += [] if usual and file == os.path.basename(file) else [ChangeLocation(change, ref)]
    return found


def list_configured(project: str) -> list[str]:
    """What the configuration names, if that is no format which is looked for anyway: a file, an adapter's path."""
    from ralphtool.core import config

    ref = config.read_spec(project)
    if file := file_of(ref):
        return [_file_ref(os.path.normpath(file))]
    return [ref] if ref and "." in ref.partition(":")[0] and ref not in names() else []


def _not_found_error(project: str, change: str, places: list[ChangeLocation]) -> Exception:
    for place in places:
        if place.error:  # the change may well be in what can't be read
            return place.error
    names = sorted({place.change for place in places})
    known = f"there are {', '.join(names[:20])}" if names else "there are no changes at all"
    return ChangeNotFound(f"there is no change {change} in {project}: {known}; `ralphtool list` shows them")


# --- what follows from the stories ------------------------------------------------------------------


def check(stories: "Sequence[Story]", path: str) -> None:
    """Refuses what would confuse or stall a run: ids twice, and stories that wait for ever."""
    _check_unique([task.id for story in stories for task in story.tasks], "task", path)
    _check_unique([story.id for story in stories], "story", path)
    known = {story.id for story in stories}
    for story in stories:
        if missing := [other for other in story.depends_on if other not in known]:
            raise SpecError(f"{path}: story {story.id} depends on {', '.join(missing)}, which is not there: fix it")
    _check_cycles(stories, path)


def _check_unique(ids: list[str], what: str, path: str) -> None:
    seen: set[str] = set()
    for id in ids:
        if id in seen:
            raise SpecError(f"{path}: the {what} id {shorten(id)} is there twice: give each {what} an id of its own")
        seen.add(id)


def _check_cycles(stories: "Sequence[Story]", path: str) -> None:
    if circle := find_cycle({story.id: story.depends_on for story in stories}):
        raise SpecError(f"{path}: the stories {', '.join(circle)} wait for each other: break the circle")


def find_cycle(depends_on: "Mapping[str, Sequence[str]]") -> list[str]:
    """The ids that would wait for ever, given what each waits for."""
    waiting = {id: set(others) for id, others in depends_on.items()}
    while free := [id for id, others in waiting.items() if not others & waiting.keys()]:
        for id in free:
            del waiting[id]
    return list(waiting)


def find_story(stories: "Iterable[Story]", id: str) -> Story:
    known = list(stories)
    for story in known:
        if story.id == id:
            return story
    raise StoryNotFound(
        f"the change has no story {shorten(id)}: it has {', '.join(story.id for story in known) or 'none'}"
    )


def next_story(stories: "Sequence[Story]") -> Story | None:
    """The first story that is open and waits for none; optional ones come last."""
    done = {story.id for story in stories if story.done}
    ready = [story for story in stories if not story.done and done.issuperset(story.depends_on)]
    return next((story for story in ready if not story.optional), ready[0] if ready else None)


def is_complete(stories: "Iterable[Story]") -> bool:
    return all(story.done for story in stories if not story.optional)


def prd_id(spec: Spec, story_id: str | None) -> str:
    """What the history calls a story; without one, the change. An adapter may know better, by a method of that name."""
    own = getattr(spec, "prd_id", None)
    known = own(story_id) if own and story_id is not None else ""
    return known or projects.build_slug(spec.change if story_id is None else f"{spec.change}-{story_id}")
