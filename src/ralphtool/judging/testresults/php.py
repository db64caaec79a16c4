"""The output of PHPUnit."""

from __future__ import annotations

import re

from ralphtool.judging.testresults.model import Counts, ProgramReport, add_up

_LIST = re.compile(r"There (?:was|were) \d+ (error|failure|warning|risky test|\w+ test)s?:$")
_END = re.compile(r"Tests: (\d{1,9}), Assertions: \d+(.*)\.$|OK \((\d{1,9}) tests?, \d+ assertions?\)$")
_SUM = re.compile(r", ([A-Z]\w+): (\d{1,9})")
_DATA = re.compile(r"( with data set (?:#\d+|\"[^\"]*\")) .*$")


def read_phpunit(lines: list[str]) -> ProgramReport | None:
    """Reads numbered lists of errors and failures (`1) CartTest::testTwo`), and `Tests: 6, …, Failures: 2.`"""
    names: list[str] = []
    kind, number, summaries = "", 1, list[Counts]()
    for line in lines:
        if found := _LIST.match(line):
            kind, number = found[1], 1
        elif kind in ("error", "failure") and line.startswith(f"{number}) "):
            names.append(_DATA.sub(r"\1", line.partition(" ")[2]))
            number += 1
        elif found := _END.match(line):
            kind = ""
            summaries.append(_parse_summary(found))
    return add_up(names, summaries)


def _parse_summary(found: re.Match[str]) -> Counts:
    if found[3]:
        return Counts(int(found[3]), 0, 0)
    sums = {word: int(number) for word, number in _SUM.findall(found[2])}
    failed = sums.get("Errors", 0) + sums.get("Failures", 0)
    skipped = sums.get("Skipped", 0) + sums.get("Incomplete", 0)
    return Counts(max(0, int(found[1]) - failed - skipped), failed, skipped)
