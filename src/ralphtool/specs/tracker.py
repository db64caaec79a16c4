"""Changes in an issue tracker: copied before a run, and updated there after a story is proven.

An adapter of such a format has, besides what every adapter has,

    name_change(where) -> str                           the change that `--spec <format>:<where>` names
    download(project, change, where, stop) -> (text, notices)     a current copy from the tracker
    publish(project, change, where, done, is_complete, stop) -> notices    None if it may not write
    publishes_during_run: bool                        whether that may happen between two stories

Neither `download` nor `publish` is called by an agent's commands or by `ralphtool list`.
"""

import os

from ralphtool import specs
from ralphtool.errors import SpecError
from ralphtool.specs import issue_copy, markdown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class DoneStory:
    """A proven story, for the tracker."""

    __slots__ = ("commit", "id", "is_new", "proof", "tasks", "title")

    def __init__(self, story: specs.Story, commit: str, proof: str, *, is_new: bool = True) -> None:
        self.id = story.id
        self.title = story.title
        self.tasks = [task.text for task in story.tasks]
        self.commit = commit
        self.proof = proof
        self.is_new = is_new  # not published yet

    def describe(self) -> str:
        at = f" in commit {self.commit[:12]}" if self.commit else ""
        return f"Done{at} ({self.proof}), by ralphtool"


def find_adapter(project: str, change: str, ref: str | None) -> "tuple[Any, str | None, str] | None":
    """The adapter of a change in a tracker, its name there, and its ref; None for files."""
    found = ref or next((one.ref for one in specs.find_all(project) if one.change == change and not one.error), None)
    known = specs.find_working(found) if found and specs.file_of(found) is None else None
    if known is None or found is None or not hasattr(known[0], "download"):
        return None
    source = issue_copy.read_source(project, change)
    where = known[1] or (source[1] if source and source[0] == known[0].name else None)
    return known[0], where, found


def update_copy(project: str, change: str, ref: str | None, stop: "Callable[[], bool]") -> list[str]:
    """Copies a change from its tracker; returns notices for people. A change that is a file is left alone.

    If the tracker can't be reached, an existing copy is good enough.
    """
    known = find_adapter(project, change, ref)
    if known is None:
        return []
    adapter, where, _ = known
    has_copy = issue_copy.read_source(project, change) is not None
    try:
        text, notices = adapter.download(project, change, where, stop)
    except SpecError as error:
        if not has_copy:
            raise
        return [f"{error}. The run uses the copy of {_read_date(project, change)}"]
    changed = issue_copy.store(project, change, text)
    place = os.path.join(issue_copy.FOLDER, f"{change}.md")
    return [*([f"copied {change} to {place}"] if changed and not has_copy else []), *notices]


def copy_named(project: str, change: str, ref: str) -> list[str]:
    """Copies a change that the user names, if there is no copy of it yet."""
    return [] if issue_copy.read_source(project, change) else update_copy(project, change, ref, lambda: False)


def compare_copy(project: str, change: str, ref: str | None, used: str, stop: "Callable[[], bool]") -> list[str]:
    """A notice if the tracker's tasks differ from those of the copy `used`; a branch keeps the copy it began with."""
    known = find_adapter(project, change, ref)
    if known is None:
        return []
    try:
        text, _ = known[0].download(project, change, known[1], stop)
        if issue_copy.is_same_work(text, used, change):
            return []
    except SpecError as error:
        return [f"{error}. The run uses the copy on its branch"]
    return [
        f"the issues of {change} were edited after its branch was created: the run uses the copy on the branch. "
        f"After `ralphtool finish {change} --squash`, the next run copies them again"
    ]


def _read_date(project: str, change: str) -> str:
    import time

    return time.strftime("%Y-%m-%d %H:%M", time.localtime(os.stat(issue_copy.path_of(project, change)).st_mtime))


def read_copy(spec: specs.Spec) -> str:
    """The text of the copy that a spec was read from."""
    return markdown.load_required(str(getattr(spec, "tasks_file", spec.path)))
