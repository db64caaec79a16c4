"""The settings of the tests that hold for every document and every order of commands."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from hypothesis import HealthCheck, settings

# The same examples every time: a build that fails must fail again when somebody looks into it.
settings.register_profile(
    "ours",
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=False,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
Item = TypeVar("Item")
settings.load_profile("ours")  # a busy machine is no failure, in any test
OURS = settings.get_profile("ours")
THOROUGH = os.environ.get("RALPH_TESTS") == "all"  # as `scripts/test --all` sets it


def examples(number: int) -> int:
    """So many with `scripts/test --all`; an eighth of them otherwise."""
    return number if THOROUGH else max(10, number // 8)


def sample(items: Iterable[Item], share: int) -> list[Item]:
    """All of a sweep with `scripts/test --all`; one in so many otherwise."""
    return list(items)[:: 1 if THOROUGH else share]


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)
