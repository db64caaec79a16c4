"""Runs tests as they were before earlier stories touched them, on the new source.

One run of the test commands is usually enough. Only if a test fails does the same run on the checkpoint's source, too:
what fails there as well is not this story's fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, structs

from ralphtool.errors import GitError
from ralphtool.judging.guard.inline import splice_tests
from ralphtool.judging.guard.mixed import merge_config
from ralphtool.judging.guarded_tests import list_versions
from ralphtool.judging.lost_tests import compare_guarded
from ralphtool.judging.proof_evidence import GuardedRun, merge_runs
from ralphtool.judging.roles import find_role

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ralphtool.judging.guard.model import FileChange
    from ralphtool.judging.guarded_tests import GuardedTests, GuardedVersion
    from ralphtool.judging.proof_evidence import SuiteRun
    from ralphtool.judging.test_side import ChangedPaths
    from ralphtool.workspace import Workspace
    from ralphtool.workspace.swapped_files import Contents, FileState

    Originals = Mapping[str, FileState | None]
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
    after: tuple[SuiteRun, ...]
    show_and_run: ShowAndRun
    known_red: frozenset[str]  # tests that fail at the checkpoint, or are known to be lost

    def run_all(self, guarded: Sequence[GuardedTests]) -> tuple[GuardedRun, ...]:
        return tuple(map(self._run, list_versions(guarded)))

    def _run(self, version: GuardedVersion) -> GuardedRun:
        excused = version.lost | self.known_red
        made = GuardedRun(stories=version.stories, passed=version.passed, excused=excused, after=self.after)
        try:
            originals = self._read_originals(version)
        except GitError as error:
            return structs.replace(made, trouble=str(error))
        made = structs.replace(made, work=self._run_on_work("guarded", version, originals))
        if made.is_clean:
            return made
        contents = _restore(version, originals, self.workspace.read_checkpoint(sorted(originals)))
        made = structs.replace(made, before=self.show_and_run("guarded-before", lambda path: True, contents))
        if not compare_guarded(made):
            return made
        again = self._run_on_work("guarded-again", version, originals)  # a flaky test proves nothing against the story
        return structs.replace(made, work=tuple(map(merge_runs, made.work, again)))

    def _read_originals(self, version: GuardedVersion) -> Originals:
        found: dict[str, FileState | None] = dict.fromkeys(version.bases)
        for commit in sorted(set(version.bases.values())):
            paths = sorted(path for path, base in version.bases.items() if base == commit)
            found |= self.workspace.read_commit(commit, paths)
        return found

    def _run_on_work(self, when: str, version: GuardedVersion, originals: Originals) -> tuple[SuiteRun, ...]:
        """The story's own changes of tests are left out, too, as in replay."""
        current = {**self.workspace.read_checkpoint(sorted(originals))}
        current |= {one.path: one.new for one in self.changes if one.path in originals and one.new is not None}
        contents = {**self.own.contents, **_restore(version, originals, current)}
        return self.show_and_run(when, lambda path: path in self.own.names, contents)


def _restore(version: GuardedVersion, originals: Originals, current: Mapping[str, bytes]) -> Contents:
    """The contents of the files, of which some are more than tests: of these only the tests are restored."""
    mixed = {**dict.fromkeys(version.configs, _merge_config), **dict.fromkeys(version.inline, splice_tests)}
    found: dict[str, FileState | bytes | None] = {path: one for path, one in originals.items() if path not in mixed}
    for path in mixed.keys() & current.keys():
        old = originals[path]
        if (data := mixed[path](old.data if old else b"", current[path], path)) is not None:
            found[path] = data
    return found


def _merge_config(old: bytes, new: bytes, path: str) -> bytes | None:
    return merge_config(old, new, path, with_lint=False)


# --- the test side of a story as it was ---------------------------------------------------------------


def list_names(change: FileChange) -> list[str]:
    return list(dict.fromkeys((change.path, change.old_path or change.path)))


def is_mixed_change(change: FileChange) -> bool:
    return change.old is not None and change.new is not None and find_role(change.path) == "config"


def restore_inline(paths: ChangedPaths) -> dict[str, bytes]:
    return {one.path: splice_tests(one.old or b"", one.new or b"", one.path) or b"" for one in paths.inline}


def describe_as_they_were(side: Sequence[FileChange], inline: Mapping[str, bytes], *, with_lint: bool) -> AsTheyWere:
    mixed = {one.path: _restore_config(one, with_lint=with_lint) for one in side if is_mixed_change(one)}
    names = frozenset(name for one in side if one.path not in mixed for name in list_names(one))
    return AsTheyWere(names - inline.keys(), {**mixed, **inline})


def _restore_config(change: FileChange, *, with_lint: bool) -> bytes:
    return merge_config(change.old or b"", change.new or b"", change.path, with_lint=with_lint)
