"""The contract of an adapter, as a function.

    from ralphtool.testing import check_adapter

    def test_my_adapter(tmp_path):
        make_my_sample(tmp_path)
        check_adapter(my_adapter, str(tmp_path), "my-change")

The sample needs at least two open tasks. The check changes it: pass a copy.
"""

from __future__ import annotations

import os
import shutil
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ralphtool import specs
from ralphtool.core import project as projects
from ralphtool.errors import ChangeNotFound, InvalidValue, RalphError, SpecError, TaskNotFound
from ralphtool.specs import scaffold
from ralphtool.specs.markdown import parse_heading

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphtool.specs import Adapter, Spec, Task

_LEARNINGS: list[dict[str, Any]] = [
    {"description": "plain", "task_id": None, "story_id": None, "iteration": 1, "timestamp": "2026-01-31T09:30:00Z"},
    {
        "description": "two lines\n## no heading",
        "task_id": "1.1",
        "story_id": "1",
        "iteration": 1,
        "timestamp": "2026-01-31T09:30:01Z",
    },
]
_PATTERNS: list[dict[str, Any]] = [{"name": "layers", "description": "downward", "timestamp": "2026-01-31T09:30:00Z"}]
_OBSERVATIONS: list[dict[str, Any]] = [
    {"type": "finding", "title": "slow", "story_id": "1", "iteration": 1, "timestamp": "2026-01-31T09:30:00Z"}
]


class ContractBroken(AssertionError):
    """An adapter, runner or executor breaks a promise of its protocol."""


def _require(holds: bool, promise: str) -> None:
    if not holds:
        raise ContractBroken(promise)


def check_adapter(adapter: Adapter, project: str, change: str) -> None:
    """Runs an adapter through its life cycle on a sample change; raises ContractBroken with the broken promise."""
    _require(projects.is_name(adapter.name), "an adapter's name is a name")
    _require(bool(adapter.found_in.strip()), "an adapter says where its changes are")
    _check_finding(adapter, project, change)
    spec = adapter.open(project, change)
    _check_reading(spec, project, change)
    _check_places(adapter, project, change)
    _check_scaffold(adapter)
    _check_ticking(spec, project)
    _check_notes(project, lambda: spec.write_learnings(_LEARNINGS), len(_LEARNINGS), "learnings")
    _check_notes(project, lambda: spec.write_patterns(_PATTERNS), len(_PATTERNS), "patterns")
    _check_notes(project, lambda: spec.write_observations(_OBSERVATIONS), len(_OBSERVATIONS), "observations")


def _check_finding(adapter: Adapter, project: str, change: str) -> None:
    _require(change in adapter.changes(project), "`changes` names the change")
    _require_error(
        lambda: adapter.open(project, "no-such-change"),
        ChangeNotFound,
        "`open` raises ChangeNotFound for a change that is not there",
    )


def _check_places(adapter: Adapter, project: str, change: str) -> None:
    """With only the files at these places, the change must be the same: that is how it is read from a branch."""
    places = list(adapter.places(change))
    for place in places:
        inside = not os.path.isabs(place) and ".." not in place.split("/") and os.path.normpath(place) != "."
        _require(inside, f"`places` names paths inside of the project, not {place}")
    with TemporaryDirectory(prefix="ralph-") as copy:
        for place in places:
            _copy(os.path.join(project, place), os.path.join(copy, place))
        promise = "`places` names all that the change needs to be read"
        try:
            there, here = (adapter.open(one, change) for one in (copy, project))
            _require(_content(there) == _content(here), promise)
        except (RalphError, OSError) as error:
            raise ContractBroken(f"{promise}: {error}") from error


def _copy(path: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.isdir(path):
        shutil.copytree(path, target, dirs_exist_ok=True)
    elif os.path.exists(path):
        shutil.copyfile(path, target)


def _content(spec: Spec) -> Any:
    stories = spec.stories()
    tasks = [(task.id, task.text, task.done) for story in stories for task in story.tasks]
    scenarios = [one.as_dict() for story in stories for one in spec.scenarios(story)]
    return [(story.id, story.title) for story in stories], tasks, scenarios, spec.proposal(), spec.design()


def _check_scaffold(adapter: Adapter) -> None:
    """The adapter finds and reads a change that it scaffolds, and can distinguish it from one with real work."""
    make_scaffold = getattr(adapter, "scaffold", None)
    if make_scaffold is None:
        return
    with TemporaryDirectory(prefix="ralph-") as folder:
        made = make_scaffold(folder, "Add login", "add-login", None)
        _require(os.listdir(folder) == [], "`scaffold` writes nothing itself")
        scaffold.write(made)
        try:
            spec = adapter.open(folder, made.change, specs.file_of(made.spec))
        except RalphError as error:
            raise ContractBroken(f"a change that is begun can be opened, not {type(error).__name__}") from error
        places = [os.path.join(folder, place) for place in adapter.places(made.change, specs.file_of(made.spec))]
        _require(all(_is_below(path, places) for path in made.paths), "a change is begun at its places")
        _require(any(story.tasks for story in spec.stories()), "a change that is begun has tasks")
        _require_error(
            lambda: scaffold.check_filled_in(spec), InvalidValue, "a change that is not filled in is recognised"
        )


def _is_below(path: str, places: list[str]) -> bool:
    return any(path == place or path.startswith(f"{place}{os.sep}") for place in places)


def _require_error(act: Callable[[], object], kind: type[Exception], promise: str) -> None:
    try:
        act()
    except kind:
        return
    except (RalphError, LookupError, ValueError, OSError) as error:
        raise ContractBroken(f"{promise}, not {type(error).__name__}") from error
    raise ContractBroken(promise)


def _check_reading(spec: Spec, project: str, change: str) -> None:
    _require(spec.change == change, "a spec knows the name of its change")
    _require(os.path.exists(spec.path), "a spec's path exists")
    before = _read_tree(project)
    stories = spec.stories()
    try:
        specs.check(stories, spec.path)
    except SpecError as error:
        raise ContractBroken(str(error)) from error
    _require(all(story.id and story.title for story in stories), "every story has an id and a title")
    for story in stories:
        spec.scenarios(story)
    spec.proposal()
    spec.design()
    _require(_read_tree(project) == before, "reading changes nothing")


def _open_tasks(spec: Spec, completed: list[str]) -> list[Task]:
    return [task for story in spec.stories(completed) for task in story.tasks if not task.done]


def _check_ticking(spec: Spec, project: str) -> None:
    completed: list[str] = []
    _require(len(_open_tasks(spec, completed)) >= 2, "the sample has two open tasks or more")
    _check_unknown_task(spec, project)
    while tasks := _open_tasks(spec, completed):
        _tick_one(spec, project, tasks[0], completed)
    _require(all(story.done for story in spec.stories(completed)), "when all tasks are ticked, all stories are done")


def _check_unknown_task(spec: Spec, project: str) -> None:
    before = _read_tree(project)
    _require_error(
        lambda: spec.tick("no.such.task"), TaskNotFound, "`tick` raises TaskNotFound for a task that is not there"
    )
    _require(_read_tree(project) == before, "an unknown task changes nothing")


def _tick_one(spec: Spec, project: str, task: Task, completed: list[str]) -> None:
    before, others = _read_tree(project), _find_done(spec, completed)
    spec.tick(task.id, completed)
    completed.append(task.id)
    after = _read_tree(project)
    _require(_find_done(spec, completed) == others | {task.id}, f"ticking {task.id} ticks {task.id}, and nothing else")
    changed = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
    _require(len(changed) <= 1, f"ticking {task.id} changes one file at the most")
    ends_story = any(story.done for story in spec.stories(completed) if task.id in [one.id for one in story.tasks])
    for path in changed:
        edit = before.get(path, b""), after.get(path, b"")
        kept = _is_small_edit(*edit) or (ends_story and _is_pair_of_small_edits(*edit))
        _require(kept, f"ticking {task.id} keeps all other bytes")
    spec.tick(task.id, completed)
    _require(_read_tree(project) == after, f"ticking {task.id} again changes nothing")


def _find_done(spec: Spec, completed: list[str]) -> set[str]:
    return {task.id for story in spec.stories(completed) for task in story.tasks if task.done}


def _is_small_edit(old: bytes, new: bytes) -> bool:
    """Whether the only difference is a few bytes in one place."""
    start = _count_common_prefix(old, new)
    end = _count_common_prefix(old[start:][::-1], new[start:][::-1])
    return len(old) - start - end <= 8 and len(new) - start - end <= 40


def _is_pair_of_small_edits(old: bytes, new: bytes) -> bool:
    """Whether a few bytes differ in two lines: that of the task, and the one that marks its story as done."""
    lines = old.split(b"\n"), new.split(b"\n")
    if len(lines[0]) != len(lines[1]):
        return False
    changed = [pair for pair in zip(*lines, strict=True) if pair[0] != pair[1]]
    return len(changed) == 2 and all(_is_small_edit(*pair) for pair in changed)


def _count_common_prefix(one: bytes, other: bytes) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (left, right) in pairs if left != right), min(len(one), len(other)))


def _check_notes(project: str, write: Callable[[], int], count: int, what: str) -> None:
    before = _read_tree(project)
    _require(write() == count, f"writing {what} tells how many were written")
    after = _read_tree(project)
    _require(after != before, f"writing {what} writes something")
    _require(write() == 0, f"writing the same {what} again writes none")
    _require(_read_tree(project) == after, f"writing the same {what} again changes nothing")
    lines = [line for data in after.values() for line in data.decode("utf-8", "replace").splitlines()]
    _require(
        not any(found and found.title == "no heading" for found in map(parse_heading, lines)),
        "a note forges no heading",
    )
    for path, data in before.items():
        kept = iter(after.get(path, b"").splitlines())
        _require(all(line in kept for line in data.splitlines()), f"writing {what} keeps what was in {path}")


def _read_tree(project: str) -> dict[str, bytes]:
    seen = {}
    for folder, _, names in os.walk(project):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                seen[path] = file.read()
    return seen
