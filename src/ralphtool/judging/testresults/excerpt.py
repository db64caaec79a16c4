"""The part of a red command's output that says what is wrong: the output of the failed tests, and the end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Lines that only report a test that passed or was skipped, or that a test begins.
_PASSED = re.compile(
    r"--- (?:PASS|SKIP): \S+ \([\d.]+s\)$|PASS$|ok  \t\S+\s|\?   \t\S+\s"  # go
    r"|test .* \.\.\. (?:ok|ignored)\b"  # cargo
    r"|.* \.\.\. (?:ok|skipped .*|expected failure)$"  # unittest -v
    r"|\S.* (?:PASSED|SKIPPED|XFAIL)(?: \(.*\))? +\[ *\d+%\]$"  # pytest -v
    r"|\[gw\d+\] \[ *\d+%\] (?:PASSED|SKIPPED|XFAIL) "
    r"|ok\b(?: +\d+)?(?: +-)? |# Subtest: "  # TAP
    r"|[✓✔√] |PASS +\S"  # Jest, Vitest, Mocha, Node
)
_PASSED_IN_GO = re.compile(r"^\s*--- (?:PASS|SKIP): (\S+) \(", re.MULTILINE)
_FAILED_IN_GO = re.compile(r"^\s*--- FAIL: (\S+) \(", re.MULTILINE)
_BEGUN_IN_GO = re.compile(r"=== (?:RUN|PAUSE|CONT|NAME) +(\S+)$")
# Lines that name a failed test, but are not followed by its output.
_ONLY_NAMED = re.compile(r'--- FAIL: |"Action":"(?:run|fail)"|\s(?:FAIL|FAILED|ERROR)(?: +\[ *\d+%\])?$')
_SEPARATOR = re.compile(r"::| > | \u203a |[. ]")
_SHORTEST_NAME = 3
_MOST_TESTS = 10
_GAP = "\n…\n"


def cut_excerpt(lines: Sequence[str], failed: Sequence[str], most: int) -> str:
    """The end of an output, in at most so many characters. If it does not reach back to the output of any of these
    tests, its first half is that output."""
    text = "\n".join(_leave_out_passed(lines))
    starts = [at for name in failed[:_MOST_TESTS] if (at := _find_output(text, name)) is not None]
    if not starts or max(starts) >= len(text) - most:
        return text[-most:]
    half = (most - len(_GAP)) // 2
    return text[max(starts) :][:half] + _GAP + text[-half:]


def _leave_out_passed(lines: Sequence[str]) -> Iterator[str]:
    text = "\n".join(lines)
    passed_in_go = set(_PASSED_IN_GO.findall(text)) - set(_FAILED_IN_GO.findall(text))
    is_after_ok = is_detail = False
    for line in lines:
        own = line.strip()
        is_detail = is_detail or (is_after_ok and own == "---")  # what TAP says about a test that passed
        begun = _BEGUN_IN_GO.match(own)
        is_passed = bool(_PASSED.match(own)) or (begun is not None and begun[1] in passed_in_go)
        if not is_detail and not is_passed:
            yield line
        is_detail = is_detail and own != "..."
        is_after_ok = is_passed


def _find_output(text: str, name: str) -> int | None:
    """Where the output of a failed test begins; None if the text does not name it.

    Programs print less of a name than its id has: the longest end of the id that is there counts.
    """
    named: int | None = None
    for short in _list_ends(name):
        for begin, line in _find_lines(text, short):
            if not _ONLY_NAMED.search(line) and line.strip() != short:
                return begin
            named = begin if named is None else named
    return named


def _find_lines(text: str, name: str) -> Iterator[tuple[int, str]]:
    """The lines that have a name, the last one first, with their places: programs repeat failures at the end."""
    pattern = rf"(?<!\w){re.escape(name)}(?![\w/])"
    places = [one.start() for one in re.finditer(pattern, text)] if name in text else []
    for place in reversed(places):
        begin, end = text.rfind("\n", 0, place) + 1, text.find("\n", place)
        yield begin, text[begin : end if end >= 0 else len(text)]


def _list_ends(name: str) -> list[str]:
    name = re.sub(r" #\d+$", "", name)
    ends = [name, *(name[one.end() :] for one in _SEPARATOR.finditer(name))]
    return [one for one in ends if len(one) >= _SHORTEST_NAME]
