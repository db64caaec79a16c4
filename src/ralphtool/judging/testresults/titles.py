"""Tests in an output that shows them as a tree: the titles of suites, and below them their tests with a mark."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphtool.judging.testresults.model import TestResult

_PASSED, _FAILED, _SKIPPED, _SUITE = "✓✔√", "✕✖\u00d7", "○✎﹣-", "▶"
_LINE = re.compile(
    rf"(?P<indent> *)(?:(?P<mark>[{_PASSED}{_FAILED}{_SUITE}{_SKIPPED}]|\d+\)) )?(?P<title>\S.*?)"
    r"(?: \([\d.]+ ?m?s\))?(?P<directive> # (?:SKIP|TODO)\b.*)?$"
)
_MARKS: dict[str, TestResult] = {
    **dict.fromkeys(_PASSED, "passed"),
    **dict.fromkeys(_FAILED, "failed"),
    **dict.fromkeys(_SKIPPED, "skipped"),
}


class TitleTree:
    """The tests so far. A suite may be shown again, with a mark, below its tests.

    If suites have their own mark, a line without a mark was printed by a test.
    """

    def __init__(self, separator: str, *, has_marked_suites: bool = False) -> None:
        self.tests: list[tuple[str, TestResult]] = []
        self.parents: list[tuple[str, TestResult]] = []  # suites, or tests with subtests
        self._separator = separator
        self._has_marked_suites = has_marked_suites
        self._titles: dict[int, str] = {}  # by indentation
        self._deepest = -1  # the indentation of the last test

    def read(self, line: str) -> None:
        found = _LINE.match(line)
        if not found:
            return
        indent, mark, title = len(found["indent"]), found["mark"], found["title"]
        above = {at: one for at, one in self._titles.items() if at < indent}
        if mark is None or mark == _SUITE:
            if mark or not self._has_marked_suites:
                self._titles, self._deepest = {**above, indent: title}, -1
            return
        result: TestResult = "skipped" if found["directive"] else _MARKS.get(mark, "failed")
        path = self._separator.join([*above.values(), _strip_word(mark, title)])
        (self.parents if indent < self._deepest else self.tests).append((path, result))
        self._deepest = indent

    def pick(self, passed: int) -> list[tuple[str, TestResult]]:
        """Returns the tests, and their parents too if the program's count of passed tests requires it."""
        counted = sum(result == "passed" for _, result in self.tests)
        return self.tests if counted == passed else self.tests + self.parents


def _strip_word(mark: str, title: str) -> str:
    """Removes the word that Jest writes before the title of a test that it did not run."""
    return title.removeprefix("skipped ").removeprefix("todo ") if mark in "○✎" else title
