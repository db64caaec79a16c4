"""Failed tests that do not exist: readers report a file that could not be loaded as one, and a coverage too low."""

from __future__ import annotations

import re

COVERAGE = "coverage threshold"

# Compiled on first use, long after most runs start.
_FORMS = (
    r"unittest\.loader\._FailedTest\.([\w.]+)\)",
    r"([\w.]+) \(unittest\.loader\._FailedTest\)",  # before Python 3.11
    r"([^>]+?) > Test suite failed to run",  # Jest
    r"while loading (\S+)",  # RSpec
    r"([^\s>:]+\.(?:py|[cm]?[jt]sx?))",  # pytest, Vitest, Node: the file itself
    r"(\S+) \[(?:build|setup) failed\]",  # Go
)
_PLACES = (
    r"([^:>]+)::",  # tests/test_a.py::TestCart::test_two
    r"\w+ \(([\w.]+)\)",  # test_two (tests.test_a.TestCart.test_two)
    r"([^>]+?\.(?:[cm]?[jt]sx?)) > ",  # tests/a.test.js > cart > two
)


def find_unloaded(name: str) -> str | None:
    """The file, module or package that could not be loaded, if that is what a failed test with this name stands for."""
    found = next((found for form in _FORMS if (found := re.fullmatch(form, name) or _match_end(form, name))), None)
    return found[1].removeprefix("./") if found else None


def _match_end(form: str, name: str) -> re.Match[str] | None:
    """`test_a (unittest.loader._FailedTest.test_a)`: the form is only the end of the name."""
    at = name.find("unittest.loader._FailedTest.")
    return re.fullmatch(form, name[at:]) if at >= 0 else None


def describe_failure(name: str) -> str:
    """A failed test for people: `test_calc (can't be loaded)` if it stands for a file."""
    part = find_unloaded(name)
    return f"{part} (can't be loaded)" if part else name


def find_place(name: str) -> str | None:
    """The file or module in the name of a test; None if its program does not name it."""
    return next((found[1] for form in _PLACES if (found := re.match(form, name))), None)


def is_inside(place: str, part: str) -> bool:
    """Whether a file or module is the one that could not be loaded, or is in it."""
    one, whole = _normalize(place), _normalize(part)
    return one == whole or one.startswith(f"{whole}.")


def is_file(path: str, part: str) -> bool:
    """Whether a path of the project is what could not be loaded; its program may run in another folder."""
    one, whole = _normalize(path), _normalize(part)
    return one == whole or one.endswith(f".{whole}")


def _normalize(place: str) -> str:
    return place.removesuffix(".py").replace("/", ".")
