"""Which files of an attempt belong to the tests: replay restores them, and own tests are taken from them.

A file's name and folder usually decide (`judging.roles`). Beyond that, a file belongs to the tests if a gate runs it,
also through a Makefile or a script; if a test program named tests in it; if it uses a test framework; or if it
contains data that only tests read. `judging.gate_files` and `judging.test_support` find out.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from ralphtool.judging.guard.inline import (
    extract_tests,
    has_tests_inside,
    is_test_module,
    remove_tests,
    splice_tests,
)
from ralphtool.judging.guard.mixed import is_neutral, merge_config
from ralphtool.judging.guard.model import FileChange
from ralphtool.judging.manifests import has_manifest
from ralphtool.judging.moves import only_follows_moves
from ralphtool.judging.renamed_tests import rename_in_tests
from ralphtool.judging.renames import is_same_but_renamed
from ralphtool.judging.roles import TEST_ROLES, find_role
from ralphtool.judging.touched import find_touched_tests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ralphtool.judging.roles import Role

_TEST_SIDE: frozenset[Role] = frozenset(("test", "helper", "snapshot", "fixture", "config", "shadow"))
_TEST: frozenset[Role] = frozenset(("test",))


class TestHints(Struct, frozen=True, kw_only=True):
    """Facts about files beyond their names."""

    __test__ = False  # otherwise pytest collects it as a test

    run: frozenset[str] = frozenset()  # by a gate
    tested: frozenset[str] = frozenset()  # a test program named tests in them
    data: frozenset[str] = frozenset()  # only tests read them
    named: frozenset[str] = frozenset()  # by a gate, which compares results with them
    helpers: frozenset[str] = frozenset()  # test programs load them, or tests check results with them
    hiding: frozenset[str] = frozenset()  # new, and imported instead of an installed library
    checks: frozenset[str] = frozenset()  # a check runs them, or reads its rules from them
    bases: tuple[str, ...] = ("",)  # the folders in which the gates run: "", or for example "backend/"


class ChangedPaths(Struct, frozen=True):
    """The files of an attempt, by their role for the tests."""

    changes: tuple[FileChange, ...]
    hints: TestHints = TestHints()

    def find_base_role(self, path: str) -> Role:
        """The role by name, relative to each of the folders in which the gates run."""
        seen = [find_role(path.removeprefix(base)) for base in self.hints.bases if path.startswith(base)]
        return next((role for role in seen if role not in ("source", "docs")), seen[0] if seen else find_role(path))

    def list_side(self, roles: frozenset[Role]) -> list[FileChange]:
        return [one for one in self.changes if self._find_roles(one) & roles]

    def _find_roles(self, change: FileChange) -> set[Role]:
        return {self._find_role(path, change) for path in (change.path, change.old_path or change.path)}

    def _find_role(self, path: str, change: FileChange) -> Role:
        role = self.find_base_role(path)
        if role == "config" and is_neutral(change.old or b"", change.new or b"", path):
            return "source"
        if role == "lint" and path in self.hints.run:
            return "config"  # a `tsconfig.json` may lead imports to other files
        if role in ("source", "docs") and path in self.hints.helpers:
            return "helper"
        if role not in ("source", "docs") or self._is_mixed(path, change):
            return role
        if change.old is None and (path in self.hints.hiding or self._hides_library(path)):
            return "shadow"
        if path in self.hints.run:
            return "config"
        data = change.new if change.old is None else change.old
        if role == "docs":
            is_test = path in self.hints.tested
        else:
            is_test = is_test_module(path, data or b"", is_known=path in self.hints.tested)
        return "test" if is_test else "fixture" if path in self.hints.data | self.hints.named else role

    def _is_mixed(self, path: str, change: FileChange) -> bool:
        """Whether it is source with tests inside."""
        is_known = path in self.hints.tested or path in self.hints.run
        return has_tests_inside(change.old or b"", change.new or b"", path, is_known=is_known)

    def _hides_library(self, path: str) -> bool:
        """Whether Python would import it instead of a module of its standard library."""
        inside = [path.removeprefix(base).removeprefix("src/") for base in self.hints.bases if path.startswith(base)]
        first = {one.partition("/")[0].removesuffix(".py") for one in inside if one.endswith(".py")}
        return bool(first & (sys.stdlib_module_names - {"test", "site", "this"}))

    @property
    def tests(self) -> list[FileChange]:
        return self.list_side(_TEST_SIDE)

    @property
    def builds(self) -> list[FileChange]:
        """Files that may also build or locate the source: the old versions may not work with the new source."""
        named = [one for one in self.tests if self._find_role(one.path, one) == "config"]
        return [*named, *(one for one in self.tests if one.old is None and self._hides_library(one.path))]

    @property
    def own(self) -> list[FileChange]:
        """Files that may contain own tests: test files, their helpers and data that exist now, and inline tests."""
        side = [one for one in self.list_side(TEST_ROLES) if one.new is not None]
        return [*side, *self.inline]

    @property
    def checks(self) -> list[FileChange]:
        """Files that decide what checks find, except those that only follow moved files or renamed code."""
        side = [one for one in self.changes if {one.path, one.old_path} & self.hints.checks or self._is_lint(one)]
        side = [one for one in side if not is_neutral(one.old or b"", one.new or b"", one.path)]
        rest = [one for one in self.changes if one not in side]
        return [
            one for one in side if not only_follows_moves(one, self.changes) and not is_same_but_renamed([one], rest)
        ]

    def _is_lint(self, change: FileChange) -> bool:
        """Whether it configures linters, alone or among other things."""
        if self.find_base_role(change.path) == "lint":
            return True
        if change.old is None or change.new is None or self.find_base_role(change.path) != "config":
            return False
        plain, strict = (merge_config(change.old, change.new, change.path, with_lint=one) for one in (False, True))
        return plain != strict

    @property
    def inline(self) -> list[FileChange]:
        """Source files whose inline tests differ."""
        sources = [one for one in self.changes if self.find_base_role(one.path) == "source"]
        found = [one for one in sources if self._is_mixed(one.path, one)]
        return [one for one in found if splice_tests(one.old or b"", one.new or b"", one.path) != (one.new or b"")]

    @property
    def sources(self) -> list[FileChange]:
        return [one for one in self.changes if one not in self.tests]

    @property
    def has_source(self) -> bool:
        """Whether anything else than tests and documentation was changed."""
        return any(self.find_base_role(one.path) != "docs" for one in self.sources)

    def is_same_but_renamed(self) -> bool:
        """Whether the tests only follow names that the work renamed, and nothing else around them was changed."""
        known = [one for one in self.tests if one.old is not None]
        are_tests = all(self._find_role(one.path, one) == "test" for one in self.tests)
        inside = [_rewrite(one, extract_tests) for one in self.inline]
        can_read = not any(one.path.endswith(".py") for one in self.inline)  # their tests can't be separated
        # A name that occurred only in the inline tests of a source was not renamed by the work.
        sources = [_rewrite(one, remove_tests) for one in self.sources]
        return are_tests and can_read and is_same_but_renamed([*known, *inside], sources)

    def rename_in_tests(self) -> dict[str, bytes]:
        """The old tests and their helpers, with the new names of what they use; empty if there are none."""
        known = [one for one in self.tests if one.old is not None and self._has_tests_only(one)]
        inside = [one for one in self.inline if one.old is not None]
        found = rename_in_tests([*known, *inside], [_rewrite(one, remove_tests) for one in self.sources])
        whole = {one.old_path or one.path: one for one in inside}
        # Tests inside a source that was moved are put where it is now.
        return {
            (one.path if one else path): splice_tests(data, one.new or b"", path) or b"" if one else data
            for path, data in found.items()
            for one in [whole.get(path)]
        }

    def _has_tests_only(self, change: FileChange) -> bool:
        return self._find_role(change.path, change) in ("test", "helper") or change.path.endswith("conftest.py")

    def find_touched_tests(self) -> frozenset[str] | None:
        """None if more than tests was changed: that may change the meaning of any test."""
        are_tests = all(one.new is None or self._find_role(one.path, one) == "test" for one in self.tests)
        return find_touched_tests([*self.list_side(_TEST), *self.inline]) if are_tests else None

    @property
    def has_test_files(self) -> bool:
        return bool(self.list_side(TEST_ROLES) or self.inline)

    @property
    def has_gate_files(self) -> bool:
        """Whether the gates themselves name some of the files that belong to the tests."""
        return any({one.path, one.old_path} & (self.hints.run | self.hints.named) for one in self.tests)

    @property
    def has_new_tests(self) -> bool:
        """Whether the test files contain lines that were not there before."""
        return any(set((one.new or b"").split(b"\n")) - set((one.old or b"").split(b"\n")) for one in self.tests)

    @property
    def has_manifest(self) -> bool:
        return has_manifest(one.path for one in self.changes)

    @property
    def unsure(self) -> list[FileChange]:
        """Files whose names do not show whether they belong to the tests."""
        return [one for one in self.changes if self.find_base_role(one.path) in ("source", "docs")]


def _rewrite(change: FileChange, rewrite: Callable[[bytes, str], bytes]) -> FileChange:
    old, new = (None if data is None else rewrite(data, change.path) for data in (change.old, change.new))
    return structs.replace(change, old=old, new=new)


# --- files that test programs name ------------------------------------------------------------------


def find_tested_files(names: Iterable[str], changes: Sequence[FileChange]) -> frozenset[str]:
    """The changed files that contain tests with names such as `check/total.py::test_a`, `check.total.Case.test_a`."""
    heads = {re.split(r"::| > ", name)[0] for name in names}
    modules = {".".join(parts[:end]) for head in heads for parts in [head.split(".")] for end in range(1, len(parts))}
    ends = {"/".join(parts[at:]) for one in changes for parts in [one.path.split("/")] for at in range(len(parts))}
    known = {end for end in ends if end in heads or _name_module(end) in modules}
    return frozenset(one.path for one in changes if any(f"/{one.path}".endswith(f"/{end}") for end in known))


def _name_module(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".") if path.endswith(".py") else path
