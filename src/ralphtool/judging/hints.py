"""Which changed files belong to the tests although their names don't say so, found in the last checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ralphtool.judging.checking_packages import find_checking_packages
from ralphtool.judging.config_parts import find_config_parts
from ralphtool.judging.gate_files import find_bases, find_check_files, find_gate_data, find_run_files, find_test_data
from ralphtool.judging.step_files import find_step_files
from ralphtool.judging.test_side import ChangedPaths, TestHints, find_tested_files
from ralphtool.judging.test_support import find_checking_modules, find_hiding, find_plugins

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Checkpoint(Protocol):
    """The files of a project as no attempt can change them."""

    @property
    def prefix(self) -> str: ...
    def list_files(self) -> list[str]: ...
    def read_checkpoint(self, paths: Sequence[str]) -> Mapping[str, bytes]: ...
    def grep_checkpoint(self, word: str) -> Sequence[str]: ...


def find_hints(
    paths: ChangedPaths, commands: Sequence[str], checks: Sequence[str], known: Iterable[str], project: Checkpoint, *,
    is_green: bool,
) -> TestHints:  # fmt: skip
    """`known`: the names of all tests. `is_green`: all of them passed before."""
    read, grep, unsure = project.read_checkpoint, project.grep_checkpoint, paths.unsure
    suites = [one for one in commands if one not in checks]
    bases = find_bases(commands, project.prefix)
    run = find_run_files(commands, read, bases)
    plugins = find_plugins(unsure, commands, run, read, grep, bases)
    listed = project.list_files() if unsure else []
    files = [f"{project.prefix}{one}" for one in listed]
    parts = find_config_parts(unsure, files, read, grep)
    helpers = find_step_files(unsure, files, grep) | find_checking_modules(unsure, read, grep)
    helpers |= find_checking_packages(unsure, read, grep)
    return TestHints(
        bases=bases,
        run=run | parts,
        tested=find_tested_files(known, unsure),
        data=find_test_data(unsure, read, grep),
        named=find_gate_data(suites, unsure, read, grep, bases),
        helpers=plugins | helpers,
        hiding=find_hiding(unsure, listed, read, grep, bases, is_green=is_green),
        checks=find_check_files(checks, paths.changes, read, grep, bases),
    )
