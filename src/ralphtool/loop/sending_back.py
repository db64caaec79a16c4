"""A story whose work does not go together with what others have done meanwhile: what its own agent is given then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphtool.core.text import fence_visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.loop.loop import Started
    from ralphtool.workspace.box import Box

_MOST_DIFF = 20_000  # characters of what others have done
_MOST_TESTS = 20
_CONFLICT = """\
While you worked on this story, others were done, and both of you changed the same lines of these files: {files}.
The tree has your work upon theirs, with conflict markers (<<<<<<<, =======, >>>>>>>) in those files. Resolve every one,
so that both do what they should, leave no marker, and prove it as before. What is not in conflict is merged already."""
_RED = """\
While you worked on this story, others were done. Your work is green by itself, and so is theirs, but together this is
red: {tests}. The tree has your work upon theirs. Find out why they don't go together, and fix it; their tests have to
stay as they are."""


def send_back(
    started: Started, place: Box, tree: str, others: Sequence[str], files: Sequence[str], tests: Sequence[str]
) -> None:
    """The next attempt begins with both in one tree, and knows why."""
    change, story = started.change, started.story
    state = change.change_state.story(story.id)
    change.undo_ticks(story)
    commit = place.commit(tree, f"ralphtool: {change.name}, story {story.id} met other work\n")
    state.cut_off = place.keep_commit(change.run, str(commit))
    state.returns += 1
    state.sent_back = _describe(started, place, others, files, tests)
    change.save()


def explain(others: Sequence[str], files: Sequence[str], tests: Sequence[str]) -> str:
    """Why work does not go together with that of others, in a line for people."""
    what = f"both change {', '.join(files)}" if files else f"together this is red: {'; '.join(tests[:_MOST_TESTS])}"
    return f"it does not go together with story {', '.join(others)}: {what}"


def _describe(started: Started, place: Box, others: Sequence[str], files: Sequence[str], tests: Sequence[str]) -> str:
    text = (
        _CONFLICT.format(files=", ".join(files))
        if files
        else _RED.format(tests="; ".join(tests[:_MOST_TESTS]) or "the gates")
    )
    commits = place.checkpoints()
    diffs = [place.read_diff(commits[id], _MOST_DIFF // max(1, len(others))) for id in others if id in commits]
    done = fence_visible("\n".join(diffs))
    return f"{text}\n\nWhat was done meanwhile (story {', '.join(others)}):\n\n{done}" if diffs else text
