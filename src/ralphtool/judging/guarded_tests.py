"""Tests as they were before stories of the change touched them: these guard the later stories.

A test that a story changed while the code still passed it costs that story nothing. If it checks less now, a later
story could break the code unnoticed, and no reading of the diff can rule that out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MOST_LATER = 2  # versions besides that of the beginning


class GuardedTests(Struct, frozen=True, kw_only=True):
    """The files around the tests that a story changed, and where they are as they were before."""

    story: str = ""
    base: str = ""  # the commit of the checkpoint before the story
    files: tuple[str, ...] = ()  # those that the base does not have are new
    configs: tuple[str, ...] = ()  # files of which only the configuration of tests is restored
    inline: tuple[str, ...] = ()  # source files of which only the tests inside are restored
    passed: int | None = None  # how many tests passed as they were, on the story's source
    lost: tuple[str, ...] = ()  # tests that failed as they were, which the story was allowed to
    is_weaker: bool = False  # the diff or the runs show that they check less now

    @property
    def paths(self) -> frozenset[str]:
        return frozenset((*self.files, *self.configs, *self.inline))


class GuardedVersion(Struct, frozen=True, kw_only=True):
    """The test side as it was before the first of some stories."""

    stories: tuple[str, ...]
    bases: Mapping[str, str]  # for each path the commit that has it as it was
    configs: frozenset[str]
    inline: frozenset[str]
    passed: int | None
    lost: frozenset[str]


def list_versions(guarded: Sequence[GuardedTests]) -> list[GuardedVersion]:
    """The versions that guard a story, from the earlier stories in their order.

    Usually that is one: the tests as they were when the change began. Tests that one story added and another one
    weakened are only in a later version; the newest of those are enough, so that the cost does not grow.
    """
    later = [at for at in range(1, len(guarded)) if guarded[at].is_weaker and _overlaps(guarded[at], guarded[:at])]
    return [_merge(guarded[at:]) for at in (0, *later[-_MOST_LATER:])] if guarded else []


def _overlaps(one: GuardedTests, earlier: Sequence[GuardedTests]) -> bool:
    return any(one.paths & other.paths for other in earlier)


def _merge(guarded: Sequence[GuardedTests]) -> GuardedVersion:
    first = {path: one for one in reversed(guarded) for path in one.paths}
    return GuardedVersion(
        stories=tuple(one.story for one in guarded),
        bases={path: one.base for path, one in first.items()},
        configs=frozenset(path for path, one in first.items() if path in one.configs),
        inline=frozenset(path for path, one in first.items() if path in one.inline),
        passed=guarded[0].passed,
        lost=frozenset(name for one in guarded for name in one.lost),
    )
