"""Which tests failed, read from what a test program wrote; so that only new failures count against a story.

Every reader knows one program and answers with a report, or None where the program did not speak. A report is whole
when it names every failure that the program's own summary counts. Whatever is doubtful (no summary, a crash, fewer
names than failures) makes the answer None, and the whole command counts: a name too few would hide a new failure.

An id says the file or package and the name of a test, and nothing that differs from run to run. Tests that the output
doesn't tell apart are numbered, so one more of them is a new id.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING
from xml.parsers import expat

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LIMIT = 4 * 1024 * 1024  # an output that reaches this length may have lost its beginning
_LONGEST_ID = 400
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[()][A-Za-z0-9])")
_GAPS = re.compile(r"\n{3,}")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_ADDRESS = re.compile(r"(?<=\bat )0x[0-9a-fA-F]+")
_COVERAGE = re.compile(r"FAIL Required test coverage|ERROR: Coverage (?:failure|for)|Jest: .*coverage threshold")
_JUNIT_OPTIONS = ("--junitxml", "--junit-xml", "--outputFile", "--outputFile.junit", "--junitfile", "--log-junit")


class Tally(Struct, frozen=True):
    """How many tests there were. What was expected to fail, or is still to be written, counts as skipped."""

    passed: int
    failed: int
    skipped: int

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)


class _Report(Struct, frozen=True):
    """What one program said about its tests."""

    failed: frozenset[str] = frozenset()
    tally: Tally | None = None
    whole: bool = True


def failed_tests(output: bytes, root: str = "") -> frozenset[str] | None:
    """The ids of the tests that failed, for the output of a command whose exit status was not 0.

    None where that can't be told, or where no test is to blame. Paths below `root`, the folder that the command ran
    in, become relative to it.
    """
    lines = _lines(output, root)
    reports = _reports(lines, cut=len(output) >= LIMIT)
    if not reports or not all(report.whole for report in reports):
        return None
    failed = frozenset[str]().union(*(report.failed for report in reports))
    if any(map(_COVERAGE.match, lines)):
        failed |= {"coverage threshold"}
    return failed or None


def tally(output: bytes) -> Tally | None:
    """How many tests passed, failed and were skipped, where the summaries tell; several summaries are added up."""
    told = [report.tally for report in _reports(_lines(output, "")) if report.tally]
    return sum(told[1:], told[0]) if told else None


def failed_in_junit(data: bytes, root: str = "") -> frozenset[str] | None:
    """The ids of the tests that failed according to a JUnit report; None where it names none, or can't be read."""
    report = _junit(_relative(data, root))
    return report.failed or None if report and report.whole else None


def junit_paths(command: str) -> list[str]:
    """The files that a shell command names as its JUnit reports, as they are written there."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError:
        return []  # a quote that never ends: the shell won't run it either
    found = []
    for word, following in zip(words, [*words[1:], ""], strict=False):
        option, equals, value = word.partition("=")
        if option in _JUNIT_OPTIONS:
            found.append(value if equals else following)
    return [path for path in found if path and path[0] not in "-~&|;<>()" and not set(path) & set("$`*?")]


# --- what all readers share -------------------------------------------------------------------------


def _relative(output: bytes, root: str) -> bytes:
    folder = root.rstrip("/").encode("utf-8", "surrogateescape")
    return re.sub(rb"(?<![\w.-])" + re.escape(folder) + b"/", b"", output) if folder else output


def _lines(output: bytes, root: str) -> list[str]:
    text = _relative(output, root).decode("utf-8", "replace")
    text = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    text = _GAPS.sub("\n\n", text)
    return [line.rstrip() for line in text.split("\n")]


def _reports(lines: list[str], *, cut: bool = False) -> list[_Report]:
    """What every program in an output said. What tests printed inside of pytest or XML is nobody's word."""
    xml, lines = _xml(lines, before_pytest=True)
    runs, rest, ended = _pytest_runs(lines)
    reports: list[_Report | None] = [_pytest(run) for run in runs]
    if not ended or any(map(_PYTEST_BROKE.match, lines)):
        reports.append(_Report(whole=False))
    if not xml:
        xml, rest = _xml(rest, before_pytest=False)
    if xml:
        reports.append(_junit("\n".join(xml).encode("utf-8", "replace")) or _Report(whole=False))
    text = "\n".join(rest)
    for mark, reader, counts_all in _READERS:
        report = reader(rest) if mark in text else None
        if report and cut and not counts_all:
            report = _Report(tally=report.tally, whole=False)
        reports.append(report)
    return [report for report in reports if report]


def _report(names: Iterable[str], told: int, tally: Tally | None, *, whole: bool = True) -> _Report:
    """A report of tests of these names, where the summary counts `told` failures."""
    stable = [_stable(name) for name in names]
    failed = frozenset(stable)
    if len(failed) < told:
        failed = frozenset(_numbered(stable))
    return _Report(failed, tally, whole and len(failed) >= told)


def _summed(names: list[str], tallies: list[Tally], *, whole: bool = True) -> _Report | None:
    """A report of a program that ended as often as there are tallies; it can run more than once in one command."""
    if not tallies:
        return None
    tally = sum(tallies[1:], tallies[0])
    return _report(names, tally.failed, tally, whole=whole)


def _stable(name: str) -> str:
    return _short(_CONTROLS.sub("?", _ADDRESS.sub("0x…", name.strip())))


def _short(name: str) -> str:
    if len(name) <= _LONGEST_ID:
        return name
    return f"{name[:_LONGEST_ID]}…{sha256(name.encode('utf-8', 'replace')).hexdigest()[:12]}"


def _numbered(names: list[str]) -> Iterator[str]:
    seen = Counter[str]()
    for name in names:
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name} #{seen[name]}"


def _place(path: str) -> str:
    """A file as part of an id: of one that is not below the root, its name and its folder's are all that lasts."""
    path = path.removeprefix("file://").removeprefix("./")
    return "/".join(path.split("/")[-2:]) if path.startswith("/") else path


def _counts(text: str) -> Counter[str]:
    """The numbers in `3 failed, 12 passed`, by their words in the singular."""
    counts = Counter[str]()
    for number, word in re.findall(r"(\d{1,9}) ([a-z]+)", text):
        counts[word.removesuffix("s")] += int(number)
    return counts


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 10 else 0


# --- pytest -----------------------------------------------------------------------------------------

_PYTEST_START = re.compile(r"=+ test session starts =+$")
_PYTEST_BEGIN = re.compile(
    r"=+ (?:test session starts|ERRORS|FAILURES|PASSES|warnings summary|short test summary info) (?:\(.*\) )?=+$"
)
_PYTEST_SUMMARY = re.compile(r"=+ short test summary info =+$")
_PYTEST_END = re.compile(
    r"(?:=+ )?(?:\d+ (?:x?failed|x?passed|skipped|deselected|warnings?|errors?|rerun|subtests)\b[\w, ]*|no tests ran)"
    r" in [\d.]+s(?: \([\w :,]+\))?(?: =+)?$"
)
_PYTEST_BROKE = re.compile(r"INTERNALERROR>|!+ (?:KeyboardInterrupt|_pytest\.outcomes\.Exit)\b")


def _pytest_runs(lines: list[str]) -> tuple[list[list[str]], list[str], bool]:
    """The runs in an output, the lines around them, and whether the last run came to its end.

    A failing test may have run pytest itself, and its captured output is shown: that run is left out, where it said
    when it started. With -q a run doesn't; it begins with its first section, and its last line has no frame.
    """
    runs: list[list[str]] = []
    rest: list[str] = []
    run: list[str] | None = None
    depth = outermost = 0
    for line in lines:
        started = bool(_PYTEST_START.match(line))
        ends = bool(_PYTEST_END.match(line)) and (depth == 0 or line.startswith("="))
        if run is None and (ends or _PYTEST_BEGIN.match(line)):
            run, depth, outermost = [], 0, int(started)
        depth += started
        if run is None:
            rest.append(line)
        elif depth == outermost:
            run.append(line)
        if run is not None and ends:
            depth -= 1
            if depth < outermost:
                runs.append(run)
                run, depth = None, 0
    return runs, rest, run is None


def _pytest(run: list[str]) -> _Report:
    counts = _counts(run[-1].rpartition(" in ")[0])
    told = counts["failed"] + counts["error"]
    tally = Tally(counts["passed"] + counts["xpassed"], told, counts["skipped"] + counts["xfailed"])
    summaries = [at for at, line in enumerate(run) if _PYTEST_SUMMARY.match(line)]
    listed = run[summaries[-1] :] if summaries else []
    return _report(filter(None, map(_pytest_id, listed)), told, tally)


def _pytest_id(line: str) -> str | None:
    word, _, rest = line.partition(" ")
    if word in ("FAILED", "ERROR"):
        return _pytest_node(rest)
    if not line.startswith("SUBFAILED"):
        return None
    subtest, _, node = line[: line.find("::")].rpartition(" ")
    return f"{_pytest_node(node + line[line.find('::') :])} {subtest.removeprefix('SUBFAILED')}"


def _pytest_node(text: str) -> str:
    """The node id without the message after it; parameters may look like the beginning of one."""
    name = max(0, text.find(".py::"))
    bracket, dash = text.find("[", name), text.find(" - ", name)
    if dash < 0 or bracket < 0 or dash < bracket:
        return text if dash < 0 else text[:dash]
    closing = text.find("] - ", bracket)
    return text if closing < 0 else text[: closing + 1]


# --- JUnit XML --------------------------------------------------------------------------------------


_JUNIT_BEGIN = re.compile(r"\s*(?:<\?xml [^>]*>\s*)?<testsuite")


class _Refused(Exception):
    """A document type: nothing that reports tests has one, and entities can be made to explode."""


class _Suite(Struct, frozen=True):
    name: str
    prefix: str  # what the ids of its tests begin with
    announced: bool  # its attributes speak of failures
    seen: int  # how many failures came before it


class _Junit:
    """Listens to a parser."""

    def __init__(self) -> None:
        self.suites: list[_Suite] = []
        self.case: str | None = None
        self.outcome = ""
        self.failed: list[str] = []
        self.outcomes = Counter[str]()
        self.whole = True

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "testsuite":
            name = attributes.get("name", "")
            announced = any(_number(attributes.get(word)) for word in ("failures", "errors"))
            self.suites.append(_Suite(name, self._id(name), announced, self._seen()))
        elif tag == "testcase":
            self.case, self.outcome = self._case(attributes), "passed"
        elif tag in ("failure", "error"):
            self._broke()
        elif tag == "skipped" and self.outcome == "passed":
            self.outcome = "todo" if attributes.get("type") == "todo" else "skipped"

    def end(self, tag: str) -> None:
        if tag == "testcase" and self.case is not None:
            self.outcomes[self.outcome] += 1
            if self.outcome == "failed":
                self.failed.append(self.case)
            self.case = None
        elif tag == "testsuite" and self.suites:
            suite = self.suites.pop()
            if suite.announced and self._seen() == suite.seen:
                self.whole = False

    def refuse(self, *_: object) -> None:
        raise _Refused

    def _broke(self) -> None:
        if self.case is None:
            self.failed.append(self._id("(as a whole)"))
        elif self.outcome != "todo":  # node says so of what may fail
            self.outcome = "failed"

    def _seen(self) -> int:
        return len(self.failed) + self.outcomes["todo"]

    def _case(self, attributes: dict[str, str]) -> str:
        name, group = attributes.get("name", ""), attributes.get("classname", "")
        if group == name or (self.suites and group == self.suites[-1].name):
            group = ""
        return self._id(_place(attributes.get("file", "")), group, name)

    def _id(self, *parts: str) -> str:
        known = self.suites[-1].prefix if self.suites else ""
        return _short(" > ".join(filter(None, (known, *map(_short, parts)))))


def _xml(lines: list[str], *, before_pytest: bool) -> tuple[list[str], list[str]]:
    """The lines of a JUnit report, which may end too early, and the lines around it."""
    begin = next((at for at, line in enumerate(lines) if _JUNIT_BEGIN.match(line)), None)
    if begin is None or (before_pytest and any(map(_PYTEST_BEGIN.match, lines[:begin]))):
        return [], lines
    ends = (at for at in range(len(lines) - 1, begin - 1, -1) if "</testsuite" in lines[at])
    end = next(ends, len(lines) - 1) + 1
    return lines[begin:end], lines[:begin] + lines[end:]


def _junit(data: bytes) -> _Report | None:
    listener, parser = _Junit(), expat.ParserCreate()
    parser.StartElementHandler = listener.start
    parser.EndElementHandler = listener.end
    parser.StartDoctypeDeclHandler = listener.refuse
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, LookupError, ValueError, _Refused):
        return None  # no XML, or in an encoding that nobody knows
    outcomes = listener.outcomes
    skipped = outcomes["skipped"] + outcomes["todo"]
    told = Tally(outcomes["passed"], len(listener.failed), skipped)
    return _report(listener.failed, len(listener.failed), told, whole=listener.whole)


# --- unittest, phpunit, rspec -----------------------------------------------------------------------

_UNITTEST_NAME = re.compile(r"(?:FAIL|ERROR|UNEXPECTED SUCCESS): (\S.*)$")
_UNITTEST_RAN = re.compile(r"Ran (\d{1,9}) tests? in [\d.]+s$")
_UNITTEST_RESULT = re.compile(r"(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$")


def _unittest(lines: list[str]) -> _Report | None:
    names: list[str] = []
    sums = Counter[str]()
    ran, before, unfinished = 0, "", False
    for line in lines:
        if found := _UNITTEST_NAME.match(line):
            if before == "=" * 70 or line.startswith("UNEXPECTED"):
                names.append(found[1])
                unfinished = True
        elif found := _UNITTEST_RAN.match(line):
            ran, sums["runs"], unfinished = ran + int(found[1]), sums["runs"] + 1, True
        elif unfinished and (found := _UNITTEST_RESULT.match(line)):
            pairs = (part.partition("=") for part in (found[1] or "").split(", "))
            sums.update({word: _number(number) for word, _, number in pairs})
            unfinished = False
        before = line
    if not sums["runs"]:
        return None
    told = sums["failures"] + sums["errors"] + sums["unexpected successes"]
    skipped = sums["skipped"] + sums["expected failures"]
    return _report(names, told, Tally(max(0, ran - told - skipped), told, skipped), whole=not unfinished)


_PHPUNIT_LIST = re.compile(r"There (?:was|were) \d+ (error|failure|warning|risky test|\w+ test)s?:$")
_PHPUNIT_END = re.compile(r"Tests: (\d{1,9}), Assertions: \d+(.*)\.$|OK \((\d{1,9}) tests?, \d+ assertions?\)$")
_PHPUNIT_DATA = re.compile(r"( with data set (?:#\d+|\"[^\"]*\")) .*$")


def _phpunit(lines: list[str]) -> _Report | None:
    names: list[str] = []
    kind, number, tallies = "", 1, list[Tally]()
    for line in lines:
        if found := _PHPUNIT_LIST.match(line):
            kind, number = found[1], 1
        elif kind in ("error", "failure") and line.startswith(f"{number}) "):
            names.append(_PHPUNIT_DATA.sub(r"\1", line.partition(" ")[2]))
            number += 1
        elif found := _PHPUNIT_END.match(line):
            kind = ""
            tallies.append(_phpunit_tally(found))
    return _summed(names, tallies)


def _phpunit_tally(found: re.Match[str]) -> Tally:
    if found[3]:
        return Tally(int(found[3]), 0, 0)
    sums = {word: int(number) for word, number in re.findall(r", ([A-Z]\w+): (\d{1,9})", found[2])}
    failed = sums.get("Errors", 0) + sums.get("Failures", 0)
    skipped = sums.get("Skipped", 0) + sums.get("Incomplete", 0)
    return Tally(max(0, int(found[1]) - failed - skipped), failed, skipped)


_RSPEC_END = re.compile(
    r"\d+ examples?, \d+ failures?(?:, \d+ pending)?(?:, \d+ errors? occurred outside of examples)?$"
)
_RSPEC_PLACE = re.compile(r"(?::\d+|\[[\d:]+\])$")
_RSPEC_OUTSIDE = "An error occurred "


def _rspec(lines: list[str]) -> _Report | None:
    names: list[str] = []
    tallies, listing = list[Tally](), False
    for line in lines:
        if _RSPEC_END.match(line):
            counts = _counts(line)
            passed = counts["example"] - counts["failure"] - counts["pending"]
            tallies.append(Tally(max(0, passed), counts["failure"] + counts["error"], counts["pending"]))
        elif line.startswith(_RSPEC_OUTSIDE):
            names.append(line.removeprefix(_RSPEC_OUTSIDE).removesuffix("."))
        elif listing and line.startswith("rspec "):
            names.append(_rspec_id(line))
        listing = line == "Failed examples:" or (listing and (not line or line.startswith("rspec ")))
    return _summed(names, tallies)


def _rspec_id(line: str) -> str:
    """Without the line number: it changes with every line above it."""
    place, _, description = line.removeprefix("rspec ").partition(" # ")
    return f"{_place(_RSPEC_PLACE.sub('', place.strip(chr(39))))} # {description}"


# --- JavaScript -------------------------------------------------------------------------------------

_JEST_FILE = re.compile(r" ?(PASS|FAIL) +(\S.*?)(?: \([\d.]+ m?s\))?$")
_JEST_UNLOADED = " > Test suite failed to run"  # counts as a suite, not as a test
_JEST_END = re.compile(r"(Test Suites|Tests): +(\d.*) total$")


def _jest(lines: list[str]) -> _Report | None:
    names: list[str] = []
    suites, tests = Counter[str](), Counter[str]()
    file, blocks, unfinished = "", 0, False
    for line in lines:
        if found := _JEST_FILE.match(line):
            file = _short(_place(found[2])) if found[1] == "FAIL" else ""
            unfinished = unfinished or bool(file)
            blocks += bool(file)
        elif file and line.startswith("  ● ") and line != "  ● Console":
            names.append(f"{file} > {line[4:]}")
        elif found := _JEST_END.match(line):
            file, unfinished = "", False
            (tests if found[1] == "Tests" else suites).update(_counts(found[2]))
    if not tests and not suites:
        return None
    tally = Tally(tests["passed"], tests["failed"], tests["skipped"] + tests["todo"])
    told = tests["failed"] + sum(name.endswith(_JEST_UNLOADED) for name in set(names))
    return _report(names, told, tally, whole=not unfinished and suites["failed"] <= blocks)


_VITEST_LIST = re.compile(r"⎯+ Failed (?:Suites|Tests) (\d{1,9}) ⎯+$")
_VITEST_END = re.compile(r" +(Test Files|Tests|Errors)  (\d+ .*|no tests)$")


def _vitest(lines: list[str]) -> _Report | None:
    names: list[str] = []
    sums = {"Test Files": Counter[str](), "Tests": Counter[str](), "Errors": Counter[str]()}
    listed, listing, ended = 0, False, False
    for line in lines:
        if found := _VITEST_LIST.match(line):
            listed, listing = listed + int(found[1]), True
        elif listing and line.startswith(" FAIL  "):
            names.append(_place(line[7:].partition(" [ ")[0]))
        elif found := _VITEST_END.match(line):
            sums[found[1]].update(_counts(found[2]))
            listing, ended = False, True
    if not ended:
        return None
    tests = sums["Tests"]
    tally = Tally(tests["passed"], tests["failed"], tests["skipped"] + tests["todo"])
    whole = not sums["Errors"] and sums["Test Files"]["failed"] <= listed
    return _report(names, max(listed, tests["failed"]), tally, whole=whole)


_MOCHA_COUNT = re.compile(r"  (\d{1,9}) (passing \(.*\)|pending|failing)$")


def _mocha(lines: list[str]) -> _Report | None:
    names: list[str] = []
    sums = Counter[str]()
    wanted = 0
    for at, line in enumerate(lines):
        if found := _MOCHA_COUNT.match(line):
            word = found[2].partition(" ")[0]
            sums[word] += int(found[1])
            wanted = int(word == "failing")
        elif wanted and line.startswith(f"  {wanted}) "):
            names += _mocha_ids(lines, at)
            wanted += 1
    tally = Tally(sums["passing"], sums["failing"], sums["pending"])
    return _report(names, sums["failing"], tally) if "passing" in sums else None


def _mocha_ids(lines: list[str], at: int) -> list[str]:
    """The titles from the outermost on, as one id: each stands two columns deeper than the one above it.

    The last one ends with a colon; without it, the output ends too early.
    """
    titles, indent = [lines[at].partition(") ")[2]], 7
    for line in lines[at + 1 : at + 100]:
        if len(line) - len(line.lstrip(" ")) != indent or not line:
            break
        titles.append(line.strip())
        indent += 2
    return [" > ".join(titles)[:-1]] if titles[-1].endswith(":") else []


_NODE_COUNT = re.compile(r"(?:\u2139|#) (tests|pass|fail|cancelled|skipped|todo) (\d{1,9})$")
_NODE_PLACE = re.compile(r"test at (.+?):\d+:\d+$")
_NODE_NAME = re.compile(r"✖ (.*) \([\d.]+ms\)(.*)$")


def _node_tally(sums: Counter[str]) -> Tally:
    return Tally(sums["pass"], sums["fail"] + sums["cancelled"], sums["skipped"] + sums["todo"])


def _node_spec(lines: list[str]) -> _Report | None:
    names: list[str] = []
    sums = Counter[str]()
    listing, place = False, ""
    for line in lines:
        if line.startswith("\u2139") and (found := _NODE_COUNT.match(line)):
            sums[found[1]] += int(found[2])
        elif line == "✖ failing tests:":
            listing = True
        elif listing and (found := _NODE_PLACE.match(line)):
            place = _place(found[1])
        elif place and (found := _NODE_NAME.match(line)):
            if not found[2].startswith(" # TODO"):
                names.append(_in_file(place, found[1]))
            place = ""
    tally = _node_tally(sums)
    return _report(names, tally.failed, tally) if "fail" in sums else None


def _in_file(file: str, name: str) -> str:
    """A file that can't even be loaded is a failing test of its own name."""
    if not file or _place(name) == file:
        return file or name
    return f"{file} > {name}"


# --- TAP --------------------------------------------------------------------------------------------

_TAP_RESULT = re.compile(r"((?:    )*)(not )?ok\b(?: +\d+)?(?: +-)? *(.*)$")
_TAP_DIRECTIVE = re.compile(r"(?:^| )# *(skip|todo)\b", re.IGNORECASE)
_TAP_PLAN = re.compile(r"1\.\.(\d{1,9})\b")
_TAP_LOCATION = re.compile(r" +location: '(.+?):\d+:\d+'$")


class _Tap:
    """Subtests come before the test that they are part of, four columns deeper."""

    def __init__(self) -> None:
        self.failed: dict[int, list[tuple[str, str]]] = {}  # by depth: file and name
        self.last: list[tuple[str, str]] | None = None  # where the last result stands, if it is a failure
        self.outcomes = Counter[str]()
        self.sums = Counter[str]()
        self.planned: int | None = None
        self.details = ""  # the line that ends the details of a result
        self.whole = True

    def read(self, line: str) -> None:
        if self.details:
            self._detail(line)
        elif found := _TAP_RESULT.match(line):
            self._result(len(found[1]) // 4, bool(found[2]), found[3])
        elif line.strip(" ") == "---":
            self.details = line.replace("---", "...")
        elif found := _TAP_PLAN.match(line):
            self.planned = (self.planned or 0) + int(found[1])
        elif found := _NODE_COUNT.match(line):
            self.sums[found[1]] += int(found[2])
        elif line.startswith("Bail out!"):
            self.whole = False

    def _detail(self, line: str) -> None:
        if line == self.details:
            self.details = ""
        elif self.last and (found := _TAP_LOCATION.match(line)):
            self.last[-1] = (_place(found[1]), self.last[-1][1])
            self.last = None

    def _result(self, depth: int, broken: bool, text: str) -> None:
        inside = [case for below in sorted(self.failed) if below > depth for case in self.failed[below]]
        self.failed = {level: cases for level, cases in self.failed.items() if level <= depth}
        directive = _TAP_DIRECTIVE.search(text)
        outcome = "skipped" if directive else "failed" if broken else "passed"
        self.outcomes[outcome] += depth == 0
        self.last = None
        if outcome == "failed":
            name = _short(text.partition(" # ")[0].replace("\\#", "#"))
            cases = self.failed.setdefault(depth, [])
            cases += [(file, _short(f"{name} > {inner}")) for file, inner in inside] or [("", name)]
            self.last = None if inside else cases

    def report(self) -> _Report | None:
        if self.planned is None or not self.outcomes:
            return None
        tally = Tally(self.outcomes["passed"], self.outcomes["failed"], self.outcomes["skipped"])
        whole = self.whole and tally.passed + tally.failed + tally.skipped >= self.planned and not self.details
        if "fail" in self.sums:
            tally = _node_tally(self.sums)
        names = [_in_file(file, name) for cases in self.failed.values() for file, name in cases]
        return _report(names, tally.failed, tally, whole=whole)


def _tap(lines: list[str]) -> _Report | None:
    listener = _Tap()
    for line in lines:
        listener.read(line)
    return listener.report()


# --- Go, Rust ---------------------------------------------------------------------------------------

_GO_TEST = re.compile(r" *--- (PASS|FAIL|SKIP): (\S+) \([\d.]+s\)$")
_GO_PACKAGE = re.compile(r"(ok  |FAIL|\?   )\t([^\s]+)\s+(\S.*)$")


def _go(lines: list[str]) -> _Report | None:
    names: list[str] = []
    pending: list[str] = []
    outcomes = Counter[str]()
    packages, whole, closed = 0, True, True
    for at, line in enumerate(lines):
        if found := _GO_TEST.match(line):
            outcomes[found[1]] += 1
            pending += [found[2]] if found[1] == "FAIL" else []
        elif found := _GO_PACKAGE.match(line):
            packages += 1
            if found[1] == "FAIL":
                broken = _go_broken(found[2], found[3], pending)
                names += broken
                whole = whole and bool(broken)
                closed = packages == 1 and (found[3].startswith("[") or lines[at - 1].startswith("exit status"))
            pending = []
        elif line == "FAIL":
            closed = True
    if not packages:
        return None
    verbose = any(line.startswith("=== RUN ") for line in lines)
    tally = Tally(outcomes["PASS"], outcomes["FAIL"], outcomes["SKIP"]) if verbose else None
    return _report(names, len(names), tally, whole=whole and closed and not pending)


def _go_broken(package: str, state: str, tests: list[str]) -> list[str]:
    """The ids of a package that failed: it may not even have been built. A test with a failing part is no other."""
    if state.startswith("["):
        return [f"{package} {state}"]
    parents = {test.rpartition("/")[0] for test in tests}
    return [f"{package}.{test}" for test in tests if test not in parents]


class _GoEvent(Struct):
    action: str = msgspec.field(name="Action")
    package: str = msgspec.field(name="Package")
    test: str = msgspec.field(name="Test", default="")
    unbuilt: str = msgspec.field(name="FailedBuild", default="")


_GO_EVENT = msgspec.json.Decoder(_GoEvent)


def _go_events(lines: list[str]) -> Iterator[_GoEvent]:
    for line in lines:
        if line.startswith("{") and '"Action":"' in line:
            try:
                yield _GO_EVENT.decode(line)
            except msgspec.DecodeError:
                continue  # a line that was cut, or a program that speaks alike


def _go_json(lines: list[str]) -> _Report | None:
    tests: dict[str, list[str]] = {}
    ended: dict[str, str] = {}
    outcomes = Counter[str]()
    for event in _go_events(lines):
        tests.setdefault(event.package, [])
        if event.action not in ("pass", "fail", "skip"):
            continue
        if not event.test:
            ended[event.package] = "[build failed]" if event.unbuilt else event.action
            continue
        outcomes[event.action] += 1
        tests[event.package] += [event.test] if event.action == "fail" else []
    if not tests:
        return None
    failing = [package for package, state in ended.items() if state not in ("pass", "skip")]
    broken = [_go_broken(package, ended[package], tests[package]) for package in failing]
    tally = Tally(outcomes["pass"], outcomes["fail"], outcomes["skip"])
    names = [name for some in broken for name in some]
    return _report(names, len(names), tally, whole=all(broken) and len(ended) == len(tests))


_CARGO_END = re.compile(r"test result: (?:ok|FAILED)\. (\d{1,9}) passed; (\d{1,9}) failed; (\d{1,9}) ignored;")
_CARGO_BEGIN = re.compile(r"running \d+ tests?$")
_CARGO_TARGET = re.compile(
    r" +(?:Running (?:unittests )?(\S+) \((\S+)\)|Running `(\S+-[0-9a-f]{16})(?: .*)?`|Doc-tests (\S+))$"
)
_CARGO_LINE = re.compile(r" \(line \d+\)$")


def _cargo(lines: list[str]) -> _Report | None:
    targets: list[str] = []
    failed: list[list[str]] = []  # by target
    tallies: list[Tally] = []
    listed: list[str] = []
    running = listing = False
    for line in lines:
        if _CARGO_BEGIN.match(line):
            listed, running = [], True
        elif found := _CARGO_END.match(line):
            tallies.append(Tally(int(found[1]), int(found[2]), int(found[3])))
            failed.append(listed)
            listed, running = [], False
        elif line == "failures:":  # the list is the last of these: before it stands what the tests printed
            listed, listing = [], True
            continue
        elif not running and (found := _CARGO_TARGET.match(line)):
            targets.append(_cargo_target(found))
        elif listing and line.startswith("    "):
            listed.append(_CARGO_LINE.sub("", line[4:]))
            continue
        listing = False
    # The targets are on stderr, in the same order; with -q there are none.
    named = zip(targets or [""] * len(failed), failed, strict=False)
    whole = not running and len(targets) in (0, len(failed))
    return _summed([f"{target} {name}" for target, names in named for name in names], tallies, whole=whole)


def _cargo_target(found: re.Match[str]) -> str:
    """`unittests src/lib.rs (target/debug/deps/shop-507999230d6984fa)` without what changes with every build."""
    binary = found[2] or found[3] or ""
    crate = binary.replace("\\", "/").rpartition("/")[2].rpartition("-")[0]
    return " ".join(filter(None, (crate, found[1], found[4])))


# What each program's summary can't be without; and whether the summary counts all that failed. Where it only tells of
# one package or binary, nobody knows what was lost with the beginning of an output that was cut.
_READERS = (
    ("Ran ", _unittest, True),
    ("ssertion", _phpunit, True),
    (" example", _rspec, True),
    ("Test Suites:", _jest, True),
    ("Test Files", _vitest, True),
    (" passing (", _mocha, True),
    ("\u2139 fail ", _node_spec, True),
    ("1..", _tap, True),
    ("\t", _go, False),
    ('"Action":"', _go_json, False),
    ("test result: ", _cargo, False),
)
