"""The spec as it was when an iteration began, and an agent's changes to it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool import specs
from ralphtool.core import session
from ralphtool.errors import RalphError
from ralphtool.executors import spec_files
from ralphtool.judging.guard.model import GuardFinding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ralphtool.specs import Spec, Story


class SpecSnapshot(Struct, frozen=True):
    path: str
    files: Mapping[str, bytes]
    stories: Sequence[Story]
    ticked: frozenset[str]

    def restore(self) -> None:
        """Without git, nothing else can revert it."""
        spec_files.write_files(self.path, self.files)


class SpecWatch(Struct, frozen=True):
    """The spec of a change in the folder where agents work on it."""

    root: str
    change: str
    ref: str
    session_id: str

    def open(self) -> Spec:
        return specs.open(self.root, self.change, self.ref)

    def find_path(self) -> str:
        try:
            return self.open().path
        except RalphError:
            return os.path.join(self.root, self.change)

    def read(self, story_id: str) -> SpecSnapshot:
        spec = self.open()
        stories = self._list_stories(spec)
        return SpecSnapshot(spec.path, spec_files.read_files(spec), stories, _list_ticked(stories, story_id))

    def compare(self, before: SpecSnapshot, story_id: str) -> tuple[frozenset[str], list[GuardFinding]]:
        """The tasks that are ticked now, and findings for any other change."""
        from ralphtool.judging.guard.spec import inspect_spec

        try:
            spec = self.open()
            stories = self._list_stories(spec)
            ticked = _list_ticked(stories, story_id)
            after = spec_files.read_files(spec)
        except RalphError as error:
            return before.ticked, [GuardFinding("spec-edited", self.change, str(error))]
        done_key = getattr(spec, "done_key", None)
        found = inspect_spec(before.files, after, before.stories, stories, story_id, done_key=done_key)
        new = sorted(ticked - before.ticked)
        is_fine = found and spec_files.has_only_ticks(self.root, before.files, spec, new)
        return ticked, [] if is_fine else found

    def _list_stories(self, spec: Spec) -> list[Story]:
        return spec.stories(session.load(self.session_id)["completed_tasks"])


def _list_ticked(stories: Sequence[Story], story_id: str) -> frozenset[str]:
    return frozenset(task.id for task in specs.find_story(stories, story_id).tasks if task.done)
