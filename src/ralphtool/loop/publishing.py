"""A change from an issue tracker: copied before a run, and updated there once a story is proven.

Only the run does this, outside any box and with the user's own login. A tracker that can't be reached never stops a
run: unsent updates stay on a list, and the next run sends them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ralphtool import specs
from ralphtool.core import layout, locks
from ralphtool.errors import RalphError, from_os_error
from ralphtool.record import events, published, receipts
from ralphtool.specs import tracker
from ralphtool.specs.tracker import DoneStory
from ralphtool.workspace import branch
from ralphtool.workspace.git import Repository

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralphtool.judging.receipt import Receipt
    from ralphtool.record.log import Log
    from ralphtool.settings import Settings
    from ralphtool.specs import Spec, Story

_CLAIMED = ("proven", "held", "accepted")


def update(root: str, change: str, ref: str | None, stop: Callable[[], bool]) -> list[str]:
    """Copies the issues before a run; a branch keeps the copy that it began with. Returns notices."""
    repository = Repository.find(root)
    if repository is None or repository.resolve(layout.BRANCHES + change) is None:
        return tracker.update_copy(root, change, ref, stop)
    with branch.open_spec(root, change, ref) as on_branch:
        used = tracker.read_copy(on_branch or specs.open(root, change, ref))
    return tracker.compare_copy(root, change, ref, used, stop)


def prepare(root: str, change: str, ref: str | None, settings: Settings, stop: Callable[[], bool]) -> list[str]:
    """Before a run: sends updates that an earlier run could not send, and copies the issues. Returns notices.

    If another run has the change, that run does all this.
    """
    known = tracker.find_adapter(root, change, ref)
    if known is None or locks.find_holder(root, change):
        return []
    return [*publish(root, change, known[2], settings, stop), *update(root, change, known[2], stop)]


def report(log: Log, root: str, spec: Spec, settings: Settings, stop: Callable[[], bool], *, during_run: bool) -> None:
    """Publishes, and records the notices. A stopped run leaves it to the next one."""
    if not stop():
        for text in publish(root, spec.change, spec.ref, settings, stop, during_run=during_run):
            log.note(events.Notice(text=text))


def publish(
    root: str, change: str, ref: str, settings: Settings, stop: Callable[[], bool], *, during_run: bool = False
) -> list[str]:
    """Sends finished stories that were not sent yet; returns notices."""
    known = tracker.find_adapter(root, change, ref)
    if known is None or (during_run and not known[0].publishes_during_run):
        return []
    if not os.path.exists(layout.change_state(root, change)):
        return []  # no run has worked on it
    adapter, where, _ = known
    try:
        stories, marks = _read_stories(root, change, ref), published.load(root, change)
        claimed = (*_CLAIMED, *(["unproven"] if settings.proof.accept == "unproven" else []))
        claims = receipts.read_receipts(root, change)
        done = _list_done(stories, claims, claimed, marks)
        notices = _forget_reopened(root, change, marks, {story.id for story in done}, adapter.name)
        if not any(story.is_new for story in done):
            return notices
        sent = adapter.publish(root, change, where, done, _is_complete(stories, claims, claimed), stop)
        if sent is not None:
            published.save(root, change, {story.id: _build_mark(story) for story in done})
        return [*notices, *(sent or [])]
    except RalphError as error:
        return [_describe_failure(adapter.name, str(error))]
    except OSError as error:
        return [_describe_failure(adapter.name, str(from_os_error(error)))]


def _describe_failure(name: str, why: str) -> str:
    return f"progress could not be sent to {name}: {why}. The next run retries"


def _read_stories(root: str, change: str, ref: str) -> Sequence[Story]:
    with branch.open_spec(root, change, ref) as on_branch:
        return (on_branch or specs.open(root, change, ref)).stories()


def _list_done(
    stories: Sequence[Story], claims: dict[str, Receipt], claimed: Sequence[str], marks: dict[str, str]
) -> list[DoneStory]:
    """The stories that a run has proven. Stories that a person ticked are for that person to publish."""
    found = []
    for story in stories:
        proof = claims.get(story.id)
        if story.done and proof and proof.state in claimed:
            one = DoneStory(story, proof.commit or "", proof.state)
            one.is_new = marks.get(story.id) != _build_mark(one)
            found.append(one)
    return found


def _build_mark(story: DoneStory) -> str:
    return story.commit or "done"


def _is_complete(stories: Sequence[Story], claims: dict[str, Receipt], claimed: Sequence[str]) -> bool:
    """Whether nothing is left: all stories are done, and the work of runs is proven."""
    found = [claims[story.id] for story in stories if story.id in claims and not story.optional]
    return specs.is_complete(stories) and all(one.state in claimed for one in found)


def _forget_reopened(root: str, change: str, marks: dict[str, str], done: set[str], name: str) -> list[str]:
    """A rejected story is open here but still done in the tracker, where a person may have seen it."""
    reopened = [id for id in marks if id not in done]
    if reopened:
        published.save(root, change, {id: mark for id, mark in marks.items() if id in done})
    return [f"story {id} is open again, but it is marked as done in {name}: reopen it there" for id in reopened]
