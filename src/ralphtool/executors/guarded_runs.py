"""Runs tests as they were before earlier stories weakened them, on the new source.

One run of the test commands is usually enough. Only if a test fails does the same run on the checkpoint's source, too:
what fails there as well is not this story's fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, structs

from ralphtool.errors import GitError
from ralphtool.judging.guard.inline import splice_tests
from ralphtool.judging.guard.mixed import merge_config
from ralphtool.judging.guarded_tests import split_into_groups
from ralphtool.judging.lost_tests import compare_guarded
from ralphtool.judging.proof_evidence import GuardedRun, merge_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ralphtool.judging.guard.model import FileChange
    from ralphtool.judging.guarded_tests import GuardedTests
    from ralphtool.judging.proof_evidence import SuiteRun
    from ralphtool.workspace import Workspace

    Contents = Mapping[str, bytes | None]
    ShowAndRun = Callable[[str, Callable[[str], bool], Contents], tuple[SuiteRun, ...]]


class AsTheyWere(Struct, frozen=True):
    """The test side of a story as at its checkpoint: names to restore, and the contents of mixed files."""

    names: frozenset[str]
    contents: Mapping[str, bytes]


class GuardedRuns(Struct, frozen=True, kw_only=True):
    """`show_and_run` puts a mixture of the work and the checkpoint in place, and runs the test commands there."""

    workspace: Workspace
    changes: Sequence[FileChange]
    own: AsTheyWere
    show_and_run: ShowAndRun

    def run_all(self, guarded: Sequence[GuardedTests]) -> tuple[GuardedRun, ...]:
        return tuple(map(self._run, split_into_groups(guarded)))

    def _run(self, group: Sequence[GuardedTests]) -> GuardedRun:
        stories = tuple(dict.fromkeys(one.story for one in group))
        made = GuardedRun(stories=stories, names=frozenset(name for one in group for name in one.names))
        try:
            originals = self._read_originals(group)
        except GitError as error:
            return structs.replace(made, trouble=str(error))
        made = self._run_mix(made, group, originals)
        if made.is_clean or made.is_effective or not any(one.new for one in group):
            return made
        # Tests that were split or moved exist twice, which some languages refuse.
        without = {path: None for one in group for path in one.new}
        return self._run_mix(structs.replace(made, before=()), group, {**originals, **without})

    def _run_mix(self, made: GuardedRun, group: Sequence[GuardedTests], originals: Contents) -> GuardedRun:
        made = structs.replace(made, work=self._run_on_work("guarded", group, originals))
        if made.is_clean:
            return made
        contents = _restore(group, originals, self.workspace.read_checkpoint(sorted(originals)))
        made = structs.replace(made, before=self.show_and_run("guarded-before", lambda path: True, contents))
        if not compare_guarded(made):
            return made
        again = self._run_on_work("guarded-again", group, originals)  # a flaky test proves nothing against the story
        return structs.replace(made, work=tuple(map(merge_runs, made.work, again)))

    def _read_originals(self, group: Sequence[GuardedTests]) -> Contents:
        found: dict[str, bytes | None] = {}
        for one in group:
            read = self.workspace.read_commit(one.base, sorted(one.paths))
            found |= {path: read.get(path) for path in one.paths}
        return found

    def _run_on_work(self, when: str, group: Sequence[GuardedTests], originals: Contents) -> tuple[SuiteRun, ...]:
        """The story's own changes of tests are left out, too, as in replay."""
        current = {**self.workspace.read_checkpoint(sorted(originals))}
        current |= {one.path: one.new for one in self.changes if one.path in originals and one.new is not None}
        contents = {**self.own.contents, **_restore(group, originals, current)}
        return self.show_and_run(when, lambda path: path in self.own.names, contents)


def _restore(group: Sequence[GuardedTests], originals: Contents, current: Mapping[str, bytes]) -> Contents:
    """The contents of the files, of which some are more than tests: of these only the tests are restored."""
    mixed = {path: _merge_config for one in group for path in one.configs}
    mixed |= {path: splice_tests for one in group for path in one.inline}
    found = {path: data for path, data in originals.items() if path not in mixed}
    for path in mixed.keys() & current.keys():
        if (data := mixed[path](originals[path] or b"", current[path], path)) is not None:
            found[path] = data
    return found


def _merge_config(old: bytes, new: bytes, path: str) -> bytes | None:
    return merge_config(old, new, path, with_lint=False)
