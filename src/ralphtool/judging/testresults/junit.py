"""JUnit reports: the XML that most test programs can write, into a file or to their output."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from typing import TYPE_CHECKING, Protocol
from xml.parsers import expat

from msgspec import Struct

from ralphtool.judging.testresults.model import (
    Counts,
    ProgramReport,
    TestResult,
    build_report,
    parse_number,
    shorten,
    shorten_path,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_BEGIN = re.compile(r"\s*(?:<\?xml [^>]*>\s*)?<testsuite")
_OPTIONS = ("--junitxml", "--junit-xml", "--outputFile", "--outputFile.junit", "--junitfile", "--log-junit")

_RESULTS: dict[str, TestResult] = {"passed": "passed", "failed": "failed"}


class _DoctypeRefused(Exception):
    """The document has a doctype: no test program writes one, and entities can be used for an expansion attack."""


class _Suite(Struct, frozen=True):
    name: str
    prefix: str  # of the ids of its tests
    announced: bool  # its attributes count failures
    seen: int  # how many failures came before it


def find_paths(command: str) -> list[str]:
    """Returns the files that a shell command names as its JUnit reports, unless the shell would expand them."""
    found = []
    words = _split_words(command)
    for word, following in zip(words, [*words[1:], ""], strict=False):
        option, equals, value = word.partition("=")
        if option in _OPTIONS:
            found.append(value if equals else following)
    return [path for path in found if path and path[0] not in "-~&|;<>()" and not set(path) & set("$`*?")]


def _split_words(command: str) -> list[str]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:
        return []  # an unclosed quote: the shell won't run it either


def split_off_report(lines: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Splits an output into the lines before a report, the report, which may lack its end, and the lines after it."""
    begin = next((at for at, line in enumerate(lines) if _BEGIN.match(line)), None)
    if begin is None:
        return lines, [], []
    ends = (at for at in range(len(lines) - 1, begin - 1, -1) if "</testsuite" in lines[at])
    end = next(ends, len(lines) - 1) + 1
    return lines[:begin], lines[begin:end], lines[end:]


class DocumentReader(Protocol):
    """The callbacks for each element of a report."""

    def start(self, tag: str, attributes: dict[str, str]) -> None: ...

    def end(self, tag: str) -> None: ...


def parse(data: bytes, document: DocumentReader, read_comment: Callable[[str], None] | None = None) -> bool:
    """Reads a report into a document; returns False if it is not XML, or in an unknown encoding."""
    parser = expat.ParserCreate()
    parser.StartElementHandler = document.start
    parser.EndElementHandler = document.end
    parser.StartDoctypeDeclHandler = _refuse_doctype
    parser.CommentHandler = read_comment
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, LookupError, ValueError, _DoctypeRefused):
        return False
    return True


def _refuse_doctype(*_: object) -> None:
    raise _DoctypeRefused


def read_report(data: bytes) -> ProgramReport | None:
    """Reads a report; None if it is not XML, or in an unknown encoding."""
    document = _ReportCollector()
    if not parse(data, document):
        return None
    outcomes, failures = document.outcomes, len(document.failed)
    counts = Counts(outcomes["passed"], failures, outcomes["skipped"] + outcomes["todo"])
    return build_report(document.failed, failures, counts, complete=document.complete, tests=document.tests)


class _ReportCollector:
    """The tests in a report, collected while a parser reads it."""

    def __init__(self) -> None:
        self.suites: list[_Suite] = []
        self.case: str | None = None
        self.outcome = ""
        self.failed: list[str] = []
        self.tests: list[tuple[str, TestResult]] = []
        self.outcomes = Counter[str]()
        self.complete = True

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "testsuite":
            self._start_suite(attributes)
        elif tag == "testcase":
            self.case, self.outcome = self._name_case(attributes), "passed"
        elif tag in ("failure", "error"):
            self._fail()
        elif tag == "skipped" and self.outcome == "passed":
            self.outcome = "todo" if attributes.get("type") == "todo" else "skipped"

    def end(self, tag: str) -> None:
        if tag == "testcase" and self.case is not None:
            self.outcomes[self.outcome] += 1
            self.tests.append((self.case, _RESULTS.get(self.outcome, "skipped")))
            if self.outcome == "failed":
                self.failed.append(self.case)
            self.case = None
        elif tag == "testsuite" and self.suites:
            suite = self.suites.pop()
            if suite.announced and self._count_failures() == suite.seen:
                self.complete = False

    def _start_suite(self, attributes: dict[str, str]) -> None:
        name = attributes.get("name", "")
        announced = any(parse_number(attributes.get(word)) for word in ("failures", "errors"))
        self.suites.append(_Suite(name, self._join(name), announced, self._count_failures()))

    def _fail(self) -> None:
        if self.case is None:
            self.failed.append(self._join("(as a whole)"))
        elif self.outcome != "todo":  # node also reports the failure of a test that may fail
            self.outcome = "failed"

    def _count_failures(self) -> int:
        return len(self.failed) + self.outcomes["todo"]

    def _name_case(self, attributes: dict[str, str]) -> str:
        name, group = attributes.get("name", ""), attributes.get("classname", "")
        if group == name or (self.suites and group == self.suites[-1].name):
            group = ""
        return self._join(shorten_path(attributes.get("file", "")), group, name)

    def _join(self, *parts: str) -> str:
        prefix = self.suites[-1].prefix if self.suites else ""
        return shorten(" > ".join(filter(None, (prefix, *map(shorten, parts)))))
