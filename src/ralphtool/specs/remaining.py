"""Explains problems of a change to people: no tasks yet, or stories that can't be worked on."""

import os

from ralphtool import specs
from ralphtool.core import layout
from ralphtool.errors import InvalidValue, SpecError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ralphtool.specs import Spec, Story

_MOST_NAMED = 5
_PLANS = "plans"  # where checklists are found


def check_has_tasks(spec: "Spec", stories: "Iterable[Story]") -> None:
    """Refuses a change without any task: there is nothing to work on, and it is not complete either."""
    if not any(story.tasks for story in stories):
        raise SpecError(f"{spec.path} has no tasks yet: write them as {describe_task(spec)}")


def check_can_run(root: str, spec: "Spec") -> None:
    """Refuses a change that a run can't complete."""
    from ralphtool.specs import scaffold

    check_has_tasks(spec, spec.stories())
    scaffold.check_filled_in(spec)
    inside = os.path.relpath(spec.path, root)
    if is_in_our_folder(root, spec.path) or inside.split(os.sep)[0] == os.pardir:
        raise InvalidValue(
            f"{inside} can't be run: a run commits the ticks of its change, but it never commits files in "
            f"{layout.FOLDER} or outside the project. Move it: `{_build_move(root, inside)}`"
        )


def _build_move(root: str, inside: str) -> str:
    """A command that replaces no other file, such as a plan of the same name."""
    import shlex  # its import takes longer than most commands of an agent

    stem, ending = os.path.splitext(os.path.basename(inside))
    names = [f"{stem}{ending}", *(f"{_PLANS}/{stem}-{number}{ending}" for number in range(2, 100))]
    free = next(name for name in names if not os.path.lexists(os.path.join(root, name)))
    is_missing = "/" in free and not os.path.isdir(os.path.join(root, _PLANS))
    return f"{f'mkdir {_PLANS} && ' if is_missing else ''}mv {shlex.quote(inside)} {shlex.quote(free)}"


def is_in_our_folder(root: str, path: str) -> bool:
    return os.path.relpath(path, root).split(os.sep)[0] == layout.FOLDER


def describe_task(spec: "Spec") -> str:
    """How to write a task in the format of a spec."""
    return getattr(spec, "task_example", "") or "`- [ ] What to do`"


def read_warnings(spec: "Spec") -> list[str]:
    """The warnings about all files of a change, including those that are only context."""
    for story in spec.stories():
        spec.scenarios(story)
    spec.proposal()
    spec.design()
    return specs.list_warnings(spec)


def check_complete(spec: "Spec", stories: "Sequence[Story]") -> None:
    """Refuses to call a change complete if required stories are open but can't be worked on."""
    check_has_tasks(spec, stories)
    if reason := explain_rest(stories):
        raise SpecError(f"{spec.path}: no story can be worked on, although the change is not complete: {reason}")


def explain_rest(stories: "Iterable[Story]") -> str:
    """Why open required stories are not worked on; empty if there are none."""
    left = [story for story in stories if not (story.optional or story.done or specs.can_be_handed_out(story))]
    named = [f"story {story.id} {explain_held(story)}" for story in left[:_MOST_NAMED]]
    return "; ".join([*named, *([f"{len(left) - len(named)} more"] if len(left) > len(named) else [])])


def explain_held(story: "Story") -> str:
    """Why a story is not worked on, and what to do."""
    if not story.tasks:
        return (
            "has no tasks: write its tasks as boxes (`- [ ] …`) below its heading; or, if there is nothing to do, add "
            "(optional) to the heading"
        )
    return f"is {story.put_aside}: to include it, move it out of that section, or change its status"
