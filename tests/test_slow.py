"""tests/slow.txt names tests that exist, and keeps a case of each sweep for the quick run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import SLOW
from project import TESTS


def test_every_line_names_a_test() -> None:
    missing = [name for name, *_ in SLOW if not re.search(rf"def {name.rpartition('::')[2]}\(", source(name))]
    assert missing == []


def source(name: str) -> str:
    path = TESTS / name.partition("::")[0]
    return path.read_text() if path.exists() else ""


def test_what_is_kept_is_run(request: pytest.FixtureRequest) -> None:
    if request.config.option.keyword or request.config.args != [str(TESTS)]:
        pytest.skip("only a part of the tests was collected")
    found = {item.nodeid.removeprefix("tests/") for item in request.session.items}
    assert [one for one in kept_cases() if one not in found] == []


def kept_cases() -> Iterator[str]:
    return (f"{name}[{case}]" for name, *cases in SLOW for case in cases)


def test_ids_are_of_this_folder() -> None:
    assert all(Path(name.partition("::")[0]).parts[0] != "tests" for name, *_ in SLOW)
