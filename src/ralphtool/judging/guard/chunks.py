"""Reads C#, Swift, Elixir, C and C++ line by line, because their grammars are as big as all others together.

That finds the names of tests, their skips, and the number and strength of their assertions. Lines that begin as a
comment, and the lines that `#if 0` disables, are skipped; nothing else is distinguished.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from ralphtool.judging.guard.assertions import Claim, parse_claim
from ralphtool.judging.guard.model import MANY, Assertion, Body, ParsedTestFile, Test, add_skip, shorten


class _ChunkLanguage(Struct, frozen=True):
    """How the tests of a language are written, a line at a time."""

    head: re.Pattern[str]
    """The first line of a function, or of a test; its `name` may be in several groups."""
    marked: re.Pattern[str]
    """What marks it as a test: in its first line, or in the annotations before it."""
    checks: re.Pattern[str]
    skips: re.Pattern[str]
    group: re.Pattern[str] = re.compile(r"^\s*[\w\s]*\b(?:class|struct|namespace|extension)\s+\w")
    rows: re.Pattern[str] | None = None
    comment: str = "//"
    brackets: bool = True
    """Whether the arguments of an assertion are in brackets; if not, they reach to the end of the line."""


_LANGUAGES = {
    "cs": _ChunkLanguage(
        head=re.compile(r"^[^\n/=;]*\b(?:void|Task|ValueTask)\s+(?P<name>\w+)\s*\("),
        marked=re.compile(
            r"[\[,]\s*(?:\w+\.)*(?:Fact|Theory|Test|TestMethod|TestCase|DataTestMethod|TestCaseSource|SkippableFact)\b"
        ),
        checks=re.compile(
            r"\b(?:Collection|String)?Assert\.(?!Multiple|Ignore|Inconclusive|Skip)\w+(?=\s*[(<])|\.Should(?=\s*\()"
            r"|(?<![\w.])(?:Assert|Verify|Check|Expect)[A-Z]\w*(?=\s*\()"
            r"|\.(?:Verify|Received|DidNotReceive)(?:All|NoOtherCalls|WithAnyArgs)?(?=\()"
        ),
        skips=re.compile(r"\[\s*(?:Ignore|Explicit)\b|\bSkip\s*=|\bAssert\.(?:Ignore|Inconclusive|Skip)\b|\bSkip\.If"),
        rows=re.compile(r"\b(?:InlineData|TestCase|DataRow)\s*\("),
    ),
    "swift": _ChunkLanguage(
        head=re.compile(r"^[^\n/]*\bfunc\s+(?P<name>`[^`\n]+`|\w+)\s*\("),
        marked=re.compile(r"@Test\b|\bfunc\s+test"),
        checks=re.compile(
            r"\bXCT(?:Assert\w*|Fail|Unwrap)(?=\s*\()|#(?:expect|require)(?=\s*\()|^\s*(?:assert|check|verify|expect)[A-Z]\w*(?=\s*\()"
        ),
        skips=re.compile(r"\bXCTSkip\w*|\.disabled\b|\.enabled\s*\("),
    ),
    "exs": _ChunkLanguage(
        head=re.compile(r"^\s*(?:(?:test|property)\s+\"(?P<name>[^\"\n]+)|defp?\s+(?P<function>\w+))"),
        marked=re.compile(r"(?:^|\s)(?:test|property)\s+\""),
        checks=re.compile(r"(?<![\w.:@])(?:assert|refute)\w*"),
        skips=re.compile(r"@(?:tag|describetag|moduletag)\s+:?(?:skip|pending)\b"),
        group=re.compile(r"^\s*defmodule\b"),
        comment="#",
        brackets=False,
    ),
    "cpp": _ChunkLanguage(
        head=re.compile(
            r"^\s*(?:(?:TYPED_)?TEST(?:_F|_P)?\s*\(\s*(?P<suite>\w+)\s*,\s*(?P<name>\w+)\s*\)"
            r"|BOOST_(?:AUTO|FIXTURE|DATA)_TEST_CASE\s*\(\s*(?P<boost>\w+)"
            r"|(?:TEST_CASE|SCENARIO|TEST_CASE_METHOD|TEMPLATE_TEST_CASE)\s*\(\s*\"(?P<said>[^\"\n]*))"
        ),
        marked=re.compile(r"(?:TEST|SCENARIO)"),
        checks=re.compile(
            r"\b(?:(?:EXPECT|ASSERT)_\w+|(?:CHECK|REQUIRE)(?:_\w+)?|BOOST_(?:CHECK|REQUIRE|TEST)\w*)(?=\s*\()"
        ),
        skips=re.compile(
            r"\bGTEST_SKIP\b|\bdoctest::(?:skip|may_fail|should_fail)\b|\bSKIP\s*\(|\bDISABLED_|(?<=\")\[[.!]"
        ),
        group=re.compile(r"^(?:static|void|int|bool|template|class|struct)\b[^;]*$"),
    ),
}


def read_chunks(text: str, name: str) -> ParsedTestFile:
    language = _LANGUAGES[name]
    reading, numbers = ParsedTestFile(text=text), Counter[str]()
    for chunk in _split_chunks(text, language):
        test = _build_test(chunk, language)
        if language.marked.search(chunk.said):
            numbers[test.bare] += 1
            test.number = numbers[test.bare]
            reading.tests[test.name] = test
        else:
            reading.beside[test.bare] = test
    return reading


class _Chunk(Struct):
    """A function or a test, up to the next one. `said` is its first line with its annotations."""

    name: str
    said: str
    outer: str
    """The text before the class that it is in."""
    lines: list[str] = []


def _split_chunks(text: str, language: _ChunkLanguage) -> list[_Chunk]:
    found: list[_Chunk] = []
    marks: list[str] = []
    outer, now = "", None
    for line in _drop_comments(text, language.comment):
        if line.startswith(("[", "@")) and not language.head.match(line):
            marks.append(line)
            outer += f" {line}" if line.startswith("@moduletag") else ""
            continue
        if match := language.head.match(line):
            now = _Chunk(_join_name(match), " ".join([*marks, line]), outer, [*marks])
            found.append(now)
        elif language.group.match(line):
            outer, now = " ".join([*marks, line]), None
        if now is not None:
            now.lines.append(line)
        marks = []
    return found


def _join_name(match: re.Match[str]) -> str:
    return ".".join(one.strip("`").replace("DISABLED_", "") for one in match.groups() if one)


_OFF = re.compile(r"#\s*if\s+(?:0|false)\b")


def _drop_comments(text: str, comment: str) -> Iterator[str]:
    ends: tuple[str, ...] = ()
    for line in (one.strip() for one in text.split("\n")):
        if ends:
            ends = () if any(end in line for end in ends) else ends
        elif line.startswith("/*") and "*/" not in line:
            ends = ("*/",)
        elif _OFF.match(line):
            ends = ("#endif", "#else", "#elif")
        elif line and not line.startswith((comment, "/*")):
            yield line


def _build_test(chunk: _Chunk, language: _ChunkLanguage) -> Test:
    skips = {match[0].strip(): f"{chunk.name}: {match[0].strip()}" for match in language.skips.finditer(chunk.said)}
    skips |= {match[0].strip(): f"{chunk.name}: {match[0].strip()}" for match in language.skips.finditer(chunk.outer)}
    rows = len(language.rows.findall(chunk.said)) if language.rows else 0
    cases = (
        MANY if "arguments:" in chunk.said or re.search(r"MemberData|ClassData|Source\b", chunk.said) else max(1, rows)
    )
    return Test("", chunk.name, tuple(chunk.lines), lambda: _read_body(chunk, language), skips, cases)


_LOOP = re.compile(r"\b(?:for|foreach|forEach|each|while)\b")


def _read_body(chunk: _Chunk, language: _ChunkLanguage) -> Body:
    inside = "\n".join(chunk.lines)
    start = inside.find(chunk.said[-20:])
    body = Body(checks=list(_find_assertions(inside, language)), loops=_LOOP.search(inside) is not None)
    rest = [
        line for line in chunk.lines[1:] if line.strip("{}; ") and line != "end" and not line.startswith(("[", "@"))
    ]
    body.empty = not rest and not body.checks and "{" not in chunk.lines[0].rstrip("{ ")
    for skip in language.skips.finditer(inside, max(0, start) + len(chunk.said[-20:])):
        add_skip(body.skips, skip[0].strip(), f"{chunk.name}: {shorten(skip[0])}")
    return body


def _find_assertions(text: str, language: _ChunkLanguage) -> Iterator[Assertion]:
    past = 0
    for match in language.checks.finditer(text):
        if match.start() >= past:
            claim, past = _read_claim(text, match) if language.brackets else _read_line(text, match)
            yield parse_claim(claim)


_CHAIN = re.compile(r"\s*(?:\?\.|\.)\s*(\w+)\s*(?:<[^<>()\n]{0,100}>)?")
_OPEN = re.compile(r"\s*+(?:<[^<>()\n]{0,100}>\s*+)?[({]")


def _read_claim(text: str, match: re.Match[str]) -> tuple[Claim, int]:
    words, first, at = re.findall(r"\w+", match[0]), [], match.end()
    chained = match[0].startswith(".")
    if chained:
        first = [re.split(r"[;{}\n]", text[max(0, match.start() - 300) : match.start()])[-1].strip()]
    last: Sequence[str] = ()
    if opening := _OPEN.match(text, at):
        last, at = _split_arguments(text, opening.end() - 1)
        first = first or list(last)
    while following := _CHAIN.match(text, at):
        words.append(following[1])
        chained, at = True, following.end()
        if text[at : at + 1] == "(":
            last, at = _split_arguments(text, at)
    return Claim(" ".join(text[match.start() : at].split())[:2000], words, first, last, chained), at


def _read_line(text: str, match: re.Match[str]) -> tuple[Claim, int]:
    stop = text.find("\n", match.end())
    stop = len(text) if stop < 0 else stop
    rest = text[match.end() : stop].strip()
    whole = match[0] in ("assert", "refute")
    first = [rest] if whole else [part.strip() for part in rest.split(", ")]
    return Claim(" ".join(text[match.start() : stop].split())[:2000], [match[0]], first, first), stop


_TOKEN = re.compile(r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*"|[(){}\[\],]')


def _split_arguments(text: str, opening: int) -> tuple[list[str], int]:
    """The arguments inside a pair of brackets, and the position after it."""
    found, depth, start = [], 0, opening + 1
    for token in _TOKEN.finditer(text, opening, opening + 4000):
        if token[0] in "([{":
            depth += 1
        elif token[0] in ")]}":
            depth -= 1
        if depth == 0 or (token[0] == "," and depth == 1):
            found.append(" ".join(text[start : token.start()].split()))
            start = token.end()
        if depth == 0:
            return [one for one in found if one], token.end()
    return [], opening + 1
