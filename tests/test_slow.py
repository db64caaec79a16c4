"""tests/slow.txt says what the quick run leaves out: every line names an existing test."""

from __future__ import annotations

import re

from conftest import SLOW
from project import TESTS


def test_every_line_names_a_test() -> None:
    assert [name for name in SLOW if f"def {name.rpartition('::')[2]}(" not in source(name)] == []


def source(name: str) -> str:
    path = TESTS / name.partition("::")[0]
    return path.read_text() if path.exists() else ""


def test_whole_tests_are_left_out_only_where_smaller_ones_try_the_same() -> None:
    """Each of these repeats, at a large size or for a long time, what another test of its file does once.

    The demo of workers takes half a minute; tests/workers and tests/executors/temporal test what it shows. Installing
    a wheel needs a separate environment; the other tests of that file read the wheel's contents. The story that
    loses nine workers, which mostly waits for the server, is the only one without a smaller counterpart.
    """
    assert sum(share == 0 for share in SLOW.values()) <= 11
    assert not [name for name in SLOW if not re.fullmatch(r"[\w/]+\.py(::\w+)+", name)]
