"""Converts a change from one format to another, and finds what gets lost.

No table says what a format can't express: the new change is written to a temporary folder, read back by its own
adapter, and compared with the old one.
"""

import os

from ralphtool import specs
from ralphtool.errors import InvalidValue, SpecError, shorten
from ralphtool.specs import scaffold
from ralphtool.specs.outline import Outline, describe, join_words, read_outline, strip_title

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from ralphtool.specs import Scenario, Spec, Story
    from ralphtool.specs.scaffold import Scaffold

__all__ = ["Conversion", "formats", "plan"]


class Conversion:
    """The files to write, the new id of each story, and the losses."""

    __slots__ = ("losses", "made", "stories")

    def __init__(self, made: "Scaffold", stories: dict[str, str], losses: "Sequence[str]") -> None:
        self.made = made
        self.stories = stories
        self.losses = tuple(losses)


def formats() -> list[str]:
    """The formats that a change can be converted to."""
    return [name for name in scaffold.formats() if hasattr(specs.adapter(name), "compose")]


def plan(root: str, spec: "Spec", format: str, name: str | None = None, file: str | None = None) -> Conversion:
    """What `ralphtool convert` would write; existing files are not touched. `file` is relative to the project."""
    compose = _find_composer(spec, format)
    adapter = specs.adapter(format)
    if file and not getattr(adapter, "takes_file", False):
        raise InvalidValue(f"--file works only with the format {specs.DEFAULT}, not with {format}: leave it out")
    old = read_outline(spec, scaffold.check_change(name or spec.change))
    if not old.stories:
        raise SpecError(f"{spec.path} has no stories to convert: write its tasks first")
    made: Scaffold = compose(root, old, file)
    made.format = format
    _check_free(root, made)
    new = _read_back(compose, old, file, format)
    stories = _match_stories(old, new, format)
    losses = [
        *_list_other_text(spec, new),
        *_compare_texts(old, new),
        *(loss for pair in stories for loss in _compare_stories(old, new, *pair)),
    ]
    return Conversion(made, {one.id: other.id for one, other in stories}, losses)


def _find_composer(spec: "Spec", format: str) -> "Any":
    if spec.adapter == format:
        raise InvalidValue(f"{spec.change} is already in the format {format}: name another format")
    compose = getattr(specs.adapter(format), "compose", None)
    if compose is None:
        raise InvalidValue(f"a change can't be written as {format}: choose one of {', '.join(formats())}")
    return compose


def _check_free(root: str, made: "Scaffold") -> None:
    near = os.path.relpath(made.place, root)
    if not os.path.lexists(made.place):
        return
    if not made.extend and not made.is_shared:
        raise InvalidValue(f"{near} already exists: {made.if_taken or 'give another name with --name'}")
    if made.change in specs.adapter(made.format).changes(root):
        raise InvalidValue(f"{near} already has a change {made.change}: give another name with --name")
    scaffold.check_addition(made)


def _read_back(compose: "Any", old: Outline, file: str | None, format: str) -> Outline:
    """The new change as its own adapter reads it, in the order of the old one's stories."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="ralph-") as folder:
        made = compose(folder, old, file)
        scaffold.write(made)
        try:
            return read_outline(specs.adapter(format).open(folder, made.change, specs.file_of(made.spec)))
        except SpecError as error:
            raise SpecError(
                f"{old.name} can't be written as {format} ({str(error).replace(folder, '')}): change that in the "
                "original, then try again"
            ) from None


def _match_stories(old: Outline, new: Outline, format: str) -> "list[tuple[Story, Story]]":
    """Pairs each story with its new version. Titles may be cut or respaced, but no story is invented or dropped."""
    rest = list(new.stories)
    pairs = []
    for story in old.stories:
        same = [one for one in rest if _simplify(strip_title(one)).endswith(_simplify(strip_title(story)))]
        fitting = [one for one in same if len(one.tasks) == len(story.tasks)]
        if not fitting:
            raise SpecError(
                f"story {story.id} of {old.name} can't be written as {format}: its title or a task would be misread "
                "there; simplify it to plain text in the original, then try again"
            )
        rest.remove(fitting[0])
        pairs.append((story, fitting[0]))
    return pairs


def _simplify(text: str) -> str:
    """Letters and digits only: formats escape and space the rest in different ways."""
    return "".join(mark for mark in text if mark.isalnum())


# --- losses -----------------------------------------------------------------------------------------


def _list_other_text(spec: "Spec", new: Outline) -> list[str]:
    """The lost text of a format with text outside its stories, such as notes or an introduction."""
    own = getattr(spec, "list_other_text", None)
    kept = f"{new.proposal or ''}{new.design or ''}"
    return [f"the text {shorten(one)}" for one in (own() if own else []) if not _is_inside(one, kept)]


def _compare_texts(old: Outline, new: Outline) -> list[str]:
    lost = []
    if old.proposal and not _is_inside(old.proposal, new.proposal):
        lost.append("the proposal")
    if old.design and not _is_inside(old.design, new.design):
        lost.append("the design")
    names = [one.name for one in old.find_scenarios()]
    kept = " ".join(_simplify(one.name) for one in new.find_scenarios())
    missing = [name for name in names if _simplify(name) not in kept]
    return [*lost, f"the names of {len(missing)} scenarios"] if missing and new.find_scenarios() else lost


def _is_inside(text: str, other: str | None) -> bool:
    return _simplify(text) in _simplify(other or "")


def _compare_stories(old: Outline, new: Outline, story: "Story", other: "Story") -> "Iterable[str]":
    yield from (f"story {story.id}: {loss}" for loss in _list_losses(old, new, story, other))


def _list_losses(old: Outline, new: Outline, story: "Story", other: "Story") -> "Iterable[str]":
    texts = [other.description or "", *(task.text for task in other.tasks)]
    if story.description and not _is_inside(story.description, "\n".join(texts)):
        yield "its description"
    if story.optional != other.optional:
        yield "that it is optional"
    if story.put_aside and not other.put_aside and not story.done:
        yield f"that it is {story.put_aside}"
    yield from _compare_tasks(story, other)
    if missing := [id for id in story.depends_on if not _has_dependency(old, new, id, other)]:
        yield f"that it depends on {', '.join(missing)}"
    before, after = (outline.scenarios.get(one.id, ()) for outline, one in ((old, story), (new, other)))
    if lost := sum(not any(_says_the_same(one, two) for two in after) for one in before):
        yield f"{lost} of its scenarios" if lost < len(before) else f"its scenarios ({lost})"


def _compare_tasks(story: "Story", other: "Story") -> "Iterable[str]":
    pairs = list(zip(story.tasks, other.tasks, strict=True))
    if any(two.done and not one.done for one, two in pairs):
        raise SpecError(
            f"story {story.id} would count as done, although it has open tasks: tick or remove them, then try again"
        )
    if marks := [one.id for one, two in pairs if one.done and not two.done]:
        yield f"that {', '.join(marks)} {'is' if len(marks) == 1 else 'are'} done"
    if texts := [one.id for one, two in pairs if not _is_inside(one.text, two.text)]:
        yield f"part of the text of {', '.join(texts)}"
    if optional := [one.id for one, two in pairs if one.optional and not two.optional]:
        yield f"that {', '.join(optional)} {'is' if len(optional) == 1 else 'are'} optional"


def _has_dependency(old: Outline, new: Outline, id: str, other: "Story") -> bool:
    title = next((_simplify(strip_title(one)) for one in old.stories if one.id == id), "")
    known = [one for one in new.stories if one.id in other.depends_on]
    return any(_simplify(strip_title(one)).endswith(title) for one in known)


def _says_the_same(one: "Scenario", other: "Scenario") -> bool:
    """Whether all the text of the one is in the other."""
    said = [join_words(text) for text in describe(one)[3:]]
    return all(_is_inside(text, " ".join(describe(other)[3:])) for text in said if text)
