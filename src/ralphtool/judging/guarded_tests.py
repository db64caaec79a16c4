"""Tests that a story removed or weakened although they still passed: as they were, they guard the later stories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_GUARDED = 200  # names that are kept; without names, only failures and numbers are compared


class GuardedTests(Struct, frozen=True, kw_only=True):
    """The files that a story changed around its tests, and where they are as they were."""

    story: str = ""
    base: str = ""  # the commit of the checkpoint before the story
    files: tuple[str, ...] = ()  # those that the base does not have are left out of the run
    new: tuple[str, ...] = ()  # files that the story added: left out only if the tests can't run otherwise
    configs: tuple[str, ...] = ()  # files of which only the configuration of tests is restored
    inline: tuple[str, ...] = ()  # source files of which only the tests inside are restored
    names: tuple[str, ...] = ()  # the tests that were removed or changed, as far as they are known

    @property
    def paths(self) -> frozenset[str]:
        return frozenset((*self.files, *self.configs, *self.inline))


def split_into_groups(guarded: Iterable[GuardedTests]) -> list[list[GuardedTests]]:
    """Those of different files can run together; two versions of one file need two runs."""
    groups: list[list[GuardedTests]] = []
    for one in guarded:
        fitting = (group for group in groups if not any(one.paths & other.paths for other in group))
        if group := next(fitting, None):
            group.append(one)
        else:
            groups.append([one])
    return groups
