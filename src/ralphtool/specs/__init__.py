"""Specs: what a change is made of, and how the formats that people have are found and opened.

An adapter is the reader and writer of one format: a module, or any object, that fits `Adapter`.
`open` looks for the change; the commands and the loop know no format.

On the agent's hot path: standard library only, and adapters are imported when they are needed.

One file, over 500 lines: every further module would make each call of an agent slower.
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
TRACKERS = ("beads", "github")  # whose changes are begun in a program of their own
DEFAULT = "checklist"  # what a change is begun in where no format is used yet
_ENDINGS = (".md", ".markdown", ".json", ".jsonl", ".yml", ".yaml", ".txt", ".toml")  # of files, and of no module
_NEEDED = ("name", "found_in", "changes", "open", "places")


# --- what a change is made of -----------------------------------------------------------------------


class Task:
    """One checkbox. A story can be done without those of its tasks that are optional."""

    __slots__ = ("done", "id", "optional", "text")

    def __init__(self, id: str, text: str, done: bool, optional: bool = False) -> None:
        self.id = id
        self.text = text
        self.done = done
        self.optional = optional


class Story:
    """What one iteration is given. `put_aside` says why it is not handed out though open: "blocked" or "deferred"."""

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
        """The tasks without which it is not done."""
        return [task for task in self.tasks if not task.optional] or list(self.tasks)

    @property
    def done(self) -> bool:
        """A story without tasks is not done: what it asks for was never written as a task."""
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
    #   title: str                          what the change is called by its author, for people
    #   warnings: list[str]                 what was read so far though it is not as it should be: each
    #                                       says what is wrong, what was made of it, and what to do
    #   task_example: str                   how a task is written in this format, for a change that has none yet
    #   is_marked(story_id: str) -> bool    whether a story itself is marked as done, in a format where a story has a
    #                                       mark of its own beside those of its tasks
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
    #   locate(project: str) -> list[ChangeLocation]
    #                                       the changes with their refs, instead of `changes`: where changes can
    #                                       lie in several places, or one that can't be read must hide no other
    #   name_in(project: str, file: str) -> str
    #                                       what the change in a file is called that is given as `--spec FILE`
    #   takes_file: bool                    whether `ralphtool new --file` can name the file to make
    #   is_used(project: str) -> bool       whether the project uses the format, if it can without having changes
    #   guide: str                          how the format is written, for an agent that drafts a change in it


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
    from ralphtool.core import spelling  # only where something is wrong

    known = [*BUILT_IN, *strangers]
    others = f"use one of {', '.join(known)}, the path of a Markdown file, or the dotted path of an adapter"
    raise InvalidValue(f"unknown spec format {shorten(name)}: {spelling.suggest(name, known, others)}")


def _load(dotted: str) -> "Adapter":
    module, _, attribute = dotted.partition(":")
    try:
        __import__(module)  # what importlib.import_module does, without the price of importlib
        found: Any = sys.modules[module]
        found = getattr(found, attribute) if attribute else found
    except Exception as error:  # other people's code may raise anything when it is imported
        raise InvalidValue(
            f"the spec adapter {shorten(dotted)} can't be loaded ({error}): check its name, and install it for the "
            "Python that runs ralphtool, or put its folder on PYTHONPATH"
        ) from None
    if missing := [name for name in _NEEDED if not hasattr(found, name)]:
        raise InvalidValue(f"{dotted} is not a spec adapter: it has no {', '.join(missing)}")
    return found  # type: ignore[no-any-return]


def names() -> list[str]:
    """The formats that are looked for: those that come with us, and those of other packages."""
    return [*BUILT_IN, *(name for name in _entry_points() if name not in BUILT_IN)]


def _entry_points() -> dict[str, str]:
    from ralphtool.specs import plugins

    return plugins.find_entry_points()


def open(project: str, change: str, spec: str | None = None) -> Spec:
    """The change of that name, found by looking; `spec` decides when several formats hold one."""
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
    raise SpecError(f"{found[0].change} exists in several specs ({held}): choose one with --spec")


def parse_ref(project: str, text: str | None) -> str | None:
    """What somebody gave as `--spec`, as a ref."""
    return text if text is None or not is_path(text) else _locate_path(project, text)[0].ref


def find_named(project: str, text: str | None) -> str | None:
    """The change that a path given as `--spec` names by itself, if it holds only one."""
    found = {place.change for place in _locate_path(project, text)} if text and is_path(text) else set()
    return found.pop() if len(found) == 1 else change_of(text)


def _locate_path(project: str, path: str, known: "list[ChangeLocation] | None" = None) -> "list[ChangeLocation]":
    """The changes that a path holds: those whose files it is among, else the one that is read from the file itself."""
    from ralphtool.specs import refs

    inside = refs.find_inside(project, path)
    places = find_all(project) if known is None else known
    found = [place for place in places if not place.error and _holds(project, place, os.path.join(project, inside))]
    return found or [ChangeLocation(*refs.locate_file(project, inside, adapter))]


def _holds(project: str, place: "ChangeLocation", full: str) -> bool:
    try:
        own = open(project, place.change, place.ref).path
    except (RalphError, OSError):
        return False  # what can't be opened holds nothing; whoever opens it is told why
    return full == own or full.startswith(os.path.join(own, ""))


def is_path(text: str) -> bool:
    """Whether it can only be a path: a module has no slash in its name, and a ref has a format before its ':'."""
    return text.partition(":")[0] not in BUILT_IN and ("/" in text or text.endswith(_ENDINGS))


def file_of(ref: str | None) -> str | None:
    """The path that a ref names, if it names one: `docs/plan.md`, with or without its format before it."""
    name, _, where = (ref or "").partition(":")
    if name in TRACKERS:
        return None  # what follows is the number of an issue
    if name in BUILT_IN:
        return where or None
    return ref if ref and is_path(ref) else None


def change_of(ref: str | None) -> str | None:
    """The change that a ref of an issue tracker names by itself: it is called after the issue."""
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
    """The adapter that a ref names; None where its package is broken, which must not hide the changes of others."""
    try:
        return _resolve(ref)
    except RalphError:
        return None


def list_own_paths(project: str, spec: Spec) -> list[str]:
    """The paths of a change that is there, in full."""
    found = [os.path.join(project, place) for place in places(project, spec.change, spec.ref)]
    return list(dict.fromkeys([spec.path, *(path for path in found if os.path.lexists(path))]))


class ChangeLocation:
    """Where a change was found. `error` says why its format could not be read, if so.

    One that is `nested` is of a project below this one: it gives way to a change of this project of the same name.
    """

    __slots__ = ("change", "error", "nested", "ref")

    def __init__(self, change: str, ref: str, error: RalphError | None = None, nested: bool = False) -> None:
        self.change, self.ref, self.error, self.nested = change, ref, error, nested


def find_all(project: str) -> list[ChangeLocation]:
    """Every change of the project, of every format; what the configuration names comes along."""
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
    for place in located:  # an adapter does not know by which entry point it is found
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
    """What the configuration names, if that is no format which is looked for anyway: a file, an adapter's path."""
    from ralphtool.core import config

    ref = config.read_spec(project)
    if file := file_of(ref):
        from ralphtool.specs import refs

        return [built] if (built := refs.build_ref(file)) else []
    return [ref] if ref and "." in ref.partition(":")[0] and ref not in names() else []


def _not_found_error(project: str, change: str, places: list[ChangeLocation]) -> Exception:
    for place in places:
        if place.error:  # the change may well be in what can't be read
            return place.error
    names = sorted({place.change for place in places})
    from ralphtool.core import spelling  # only where something is wrong

    known = f"the changes are {', '.join(names[:20])}" if names else "there are no changes yet"
    advice = spelling.suggest(change, names, f"{known};")
    return ChangeNotFound(f"there is no change {change} in {project}: {advice} `ralphtool list` shows them")


# --- what follows from the stories ------------------------------------------------------------------


def check(stories: "Sequence[Story]", path: str) -> None:
    """Refuses what would confuse or stall a run: ids twice, and stories that wait for ever."""
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
    if circle := find_cycle({story.id: story.depends_on for story in stories}):
        raise SpecError(
            f"{path}: the stories {', '.join(circle)} depend on each other: remove one of these dependencies"
        )


def find_cycle(depends_on: "Mapping[str, Sequence[str]]") -> list[str]:
    """The ids that would wait for ever, given what each waits for."""
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
    near = spelling.suggest(id, ids)
    raise StoryNotFound(
        f"the change has no story {shorten(id)}; its stories are {', '.join(ids) or 'none'}{near and f'; {near}'}"
    )


def can_be_handed_out(story: Story) -> bool:
    return bool(story.tasks) and not story.put_aside


def next_story(stories: "Sequence[Story]") -> Story | None:
    """The first story that is open and waits for none; optional ones come last."""
    done = {story.id for story in stories if story.done}
    ready = [
        one for one in stories if one.id not in done and can_be_handed_out(one) and done.issuperset(one.depends_on)
    ]
    return next((story for story in ready if not story.optional), ready[0] if ready else None)


def is_complete(stories: "Iterable[Story]") -> bool:
    """Whether all that has to be done is done; a change without any task never is."""
    known = list(stories)
    return any(story.tasks for story in known) and all(story.done for story in known if not story.optional)


def list_warnings(spec: Spec) -> list[str]:
    return list(getattr(spec, "warnings", ()))


def prd_id(spec: Spec, story_id: str | None) -> str:
    """What the history calls a story; without one, the change. An adapter may know better, by a method of that name."""
    own = getattr(spec, "prd_id", None)
    known = own(story_id) if own and story_id is not None else ""
    return known or projects.build_slug(spec.change if story_id is None else f"{spec.change}-{story_id}")
