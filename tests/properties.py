"""The settings of property tests: those about any document and any order of commands."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from hypothesis import HealthCheck, settings

# The same examples every time: a build that fails must fail again during debugging.
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
settings.load_profile("ours")  # in no test is a busy machine a failure
OURS = settings.get_profile("ours")
THOROUGH = os.environ.get("RALPH_TESTS") in ("all", "every")  # as `scripts/test --all` and `--every` set it


def examples(number: int) -> int:
    """The full number with `scripts/test --all`; an eighth of it otherwise."""
    return number if THOROUGH else max(10, number // 8)


def sample(items: Iterable[Item], share: int) -> list[Item]:
    """All items with `scripts/test --all`; one in `share` otherwise."""
    return list(items)[:: 1 if THOROUGH else share]


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)
