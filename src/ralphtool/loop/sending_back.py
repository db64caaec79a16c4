"""Sends a story back to its agent, because its work conflicts with stories that were done meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.core.text import fence_visible
from ralphtool.judging.guard import merges
from ralphtool.record.change_state import ReturnedWork
from ralphtool.workspace.paths import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ralphtool.judging.guard.model import GuardFinding
    from ralphtool.loop.loop import Started
    from ralphtool.workspace.box import Box

_MOST_DIFF = 20_000  # characters of the other stories' diffs
_MOST_TESTS = 20
_CONFLICT = """\
While you worked on this story, other stories were finished that change the same lines of these files: {files}.
The tree has your work on top of theirs, with conflict markers (<<<<<<<, =======, >>>>>>>) in those files. Resolve every
conflict so that both changes work, leave no marker, and prove it as before. Where one side has a file and the other a
folder, the file is kept under a name with `~` and a commit: resolve that too, and leave no such file. Everything else
is already merged: leave the work of the other stories as it is."""
_RED = """\
While you worked on this story, other stories were finished. Your work and theirs are green separately, but together
this is red: {tests}. The tree has your work on top of theirs. Find out why they conflict, and fix it; don't change the
tests of the other stories."""


class Meeting(Struct, frozen=True, kw_only=True):
    """How the work of a story conflicts with that of others. File names are in printable form: not all are text."""

    tree: str  # both together, with markers at conflicts
    others: Sequence[str]  # stories
    files: Sequence[str] = ()  # in conflict
    tests: Sequence[str] = ()  # that are red
    own_paths: Sequence[str] = ()  # files that the story has changed
    their_paths: Sequence[str] = ()

    def explain(self) -> str:
        """The conflict, in one line for people."""
        red = "; ".join(self.tests[:_MOST_TESTS])
        what = f"both change {', '.join(self.files)}" if self.files else f"together this is red: {red}"
        return f"it conflicts with story {', '.join(self.others)}: {what}"


def send_back(started: Started, place: Box, meeting: Meeting) -> None:
    """The next attempt begins with both in one tree, and its prompt says why."""
    change, story = started.change, started.story
    state = change.change_state.story(story.id)
    change.undo_ticks(story)
    message = f"ralphtool: {change.name}, story {story.id} met other work\n"
    commit = str(place.commit(meeting.tree, message))
    before = state.cut_off if state.sent_back else None
    state.cut_off = place.keep_commit(change.run, commit)
    state.returns += 1
    state.sent_back = ReturnedWork(
        text=_describe(place, meeting),
        why=meeting.explain(),
        commit=commit,
        base=str(place.tip),
        in_conflict=list(meeting.files),
        own=list(meeting.own_paths),
        others=list(meeting.their_paths),
    )
    change.save()
    drop(place, before)


def drop(place: Box, ref: str | None) -> None:
    """Drops the tree with the markers: the conflict is resolved, or was sent back again with a newer tree."""
    if ref and place.repository.resolve(ref):
        place.repository.set_refs({ref: None})


def inspect(place: Box, returned: ReturnedWork, tree: str, base: str) -> list[GuardFinding]:
    """Checks how an agent resolved work that was sent back for a conflict. `base` is the checkpoint it began with."""
    if not returned.in_conflict:
        return []
    wanted = {*returned.in_conflict}
    there = [path for path in place.list_between(returned.base, tree) if printable(path) in wanted]
    texts = {printable(path): data for path, data in place.read_tree(tree, there).items()}
    left = [*merges.find_markers(texts), *merges.find_sides(texts)]
    if base != returned.base:
        return left  # more stories were done before it began: the differences may be theirs
    changed = [printable(path) for path in place.list_between(returned.commit, tree)]
    return [*left, *merges.find_clobbered(changed, returned.in_conflict, returned.own, returned.others)]


def _describe(place: Box, meeting: Meeting) -> str:
    text = (
        _CONFLICT.format(files=", ".join(meeting.files))
        if meeting.files
        else _RED.format(tests="; ".join(meeting.tests[:_MOST_TESTS]) or "the gates")
    )
    commits = place.checkpoints()
    most = _MOST_DIFF // max(1, len(meeting.others))
    diffs = [place.read_diff(commits[id], most) for id in meeting.others if id in commits]
    done = fence_visible("\n".join(diffs))
    return f"{text}\n\nWhat was done in the meantime (story {', '.join(meeting.others)}):\n\n{done}" if diffs else text


def list_changing(
    place: Box, checkpoints: Mapping[str, str], stories: Sequence[str], files: Sequence[str]
) -> tuple[str, ...]:
    """The stories that changed one of the files."""
    commits = {id: checkpoints[id] for id in stories}
    return tuple(id for id, commit in commits.items() if {*place.list_between(f"{commit}^", commit)} & {*files})
