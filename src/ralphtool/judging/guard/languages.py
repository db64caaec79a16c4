"""The languages that are read as text: how their tests, assertions and skips are written."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from ralphtool.judging.guard.masked_text import (
    CHARACTER,
    FILL,
    QUOTED,
    SCRIPT_NOISE,
    SLASHES,
    TRIPLE,
    Source,
    compile_noise,
)
from ralphtool.judging.guard.model import (
    EXACT,
    Assertion,
    Body,
    ParsedTestFile,
    Test,
    add_skip,
    build_unknown_body,
    shorten,
)
from ralphtool.judging.guard.test_blocks import (
    FunctionHeads,
    Head,
    find_call_heads,
    find_indented_heads,
    find_macro_heads,
)
from ralphtool.judging.guard.text_assertions import parse_text_assertions


class _Language(Struct, frozen=True):
    """How the tests of a language are written."""

    noise: re.Pattern[str]
    heads: Callable[[Source], list[Head]]
    checks: re.Pattern[str]
    skips: re.Pattern[str]
    file_skips: re.Pattern[str] | None = None
    lines: bool = False
    """Whether an assertion ends with its line."""


_LONG = r'"(?:\\.|[^"\\])*+"?'  # a string that may go over lines
_LONG_SINGLE = r"'(?:\\.|[^'\\])*+'?"
_DEAD = r"^[ \t]*#[ \t]*if[ \t]+(?:0|false)\b(?:.*?^[ \t]*#[ \t]*(?:endif|else|elif)|.*)"
_ASSERTING_CALL = r"^[ \t]*+(?:await\s|try\s)?\s*(?:assert|check|verify|expect)(?:_\w+|[A-Z]\w*)(?=\s*\()"


_PHP_FUNCTIONS = FunctionHeads(
    re.compile(r"\bfunction\s+(?P<name>\w+)\s*\("),
    re.compile(r"\#\[\s*\\?(?:\w+\\)*Test\b|@test\b|\Aname:test"),
    re.compile(r"\#\[TestWith|@testWith"),
)


def _find_php_heads(source: Source) -> list[Head]:
    return _PHP_FUNCTIONS(source) + find_call_heads(source)


LANGUAGES = {
    "js": _Language(
        SCRIPT_NOISE,
        find_call_heads,
        re.compile(
            rf"(?<![\w.$])(?:expect(?:\.soft|TypeOf)?|assert(?:\.\w+)*|t\.(?:is|not|deepEqual|truthy|true|throws\w*|like"
            rf"|equal|ok|same))(?=\s*\()|{_ASSERTING_CALL}|\.should\b|\.expect(?=\()"
        ),
        re.compile(r"\b(?:this|ctx|context|t|test)\.skip\s*\(|\bpending\s*\(|\btest\.(?:fixme|fail)\s*\("),
    ),
    "go": _Language(
        compile_noise(SLASHES, QUOTED, r"`[^`]*+`?", CHARACTER),
        FunctionHeads(
            re.compile(r"^[ \t]*+func\s+(?P<name>(?:Test|Fuzz|Example)(?!Main\b)\w*)\s*\(", re.MULTILINE),
            re.compile(r"\Aname:"),
        ),
        re.compile(
            r"\b(?:t|tb|f)\.(?:Errorf?|Fatalf?|Fail|FailNow)(?=\()|\b(?:assert|require|is|qt)\.\w+(?=\()"
            rf"|{_ASSERTING_CALL}"
        ),
        re.compile(r"\b(?:t|tb|f)\.Skip"),
        file_skips=re.compile(r"^//\s?(?:go:build|\+build)\s[^\n]+", re.MULTILINE),
    ),
    "rs": _Language(
        compile_noise(SLASHES, r'\br(?P<hash>#*)"(?:.*?"(?P=hash)|.*)', _LONG, CHARACTER),
        FunctionHeads(
            re.compile(r"\bfn\s+(?P<name>\w+)"),
            re.compile(r"#\[\s*(?:\w+::)*(?:test|rstest|test_case|wasm_bindgen_test|quickcheck)\b"),
            re.compile(r"#\[\s*(?:case|test_case)\b"),
        ),
        re.compile(rf"\b(?:\w+_)?assert\w*!|{_ASSERTING_CALL}"),
        re.compile(r"#\[\s*(?:ignore|cfg_attr\([^\]\n]*ignore|cfg\((?:any\(\)|FALSE|not\(test\)))"),
        file_skips=re.compile(r"#!\[cfg\([^\n]*"),
    ),
    "java": _Language(
        compile_noise(SLASHES, TRIPLE, QUOTED, CHARACTER),
        FunctionHeads(
            re.compile(r"\b(?:void|fun)\s+(?P<name>`[^`\n]+`|\w+)\s*\("),
            re.compile(
                r"@(?:\w+\.)*(?:Test|ParameterizedTest|RepeatedTest|TestFactory|TestTemplate|Property)\b|\Aname:test[A-Z_]"
            ),
        ),
        re.compile(
            r"(?<![\w@])(?!assert(?:All|Softly)\b)assert\w*(?=\s*[(<])|(?<![\w@.])(?:verify|expect|fail)\w*(?=\s*[(<])"
        ),
        re.compile(
            r"@(?:Disabled\w*|Ignore\b|EnabledIf\w*|EnabledOn\w*)|\benabled\s*=\s*false|\bassume(?:True|False|That)\b"
        ),
    ),
    "rb": _Language(
        compile_noise(r"#[^\n]*|^=begin(?:.*?^=end|.*)", _LONG, _LONG_SINGLE),
        find_indented_heads,
        re.compile(
            r"(?<![\w.:@])(?:(?:assert|refute)\w*|expect|is_expected)\b|\.(?:must|wont)_\w+|\.should(?:_not)?\b"
        ),
        re.compile(r"^\s*(?:skip|pending)\b(?!\s*=)", re.MULTILINE),
        lines=True,
    ),
    "cs": _Language(
        compile_noise(SLASHES, r'@"(?:[^"]|"")*+"?', TRIPLE, QUOTED, CHARACTER),
        FunctionHeads(
            re.compile(r"\b(?:void|Task|ValueTask)\s+(?P<name>\w+)\s*\("),
            re.compile(
                r"[\[,]\s*(?:\w+\.)*(?:Fact|Theory|Test|TestMethod|TestCase|DataTestMethod|TestCaseSource|SkippableFact)\b"
            ),
            re.compile(r"\b(?:InlineData|TestCase|DataRow)\s*\("),
        ),
        re.compile(
            r"\b(?:Collection|String)?Assert\.(?!Multiple|Ignore|Inconclusive|Skip)\w+(?=\s*[(<])|\.Should(?=\s*\()"
            r"|(?<![\w.])(?:Assert|Verify|Check|Expect)[A-Z]\w*(?=\s*\()|\.(?:Verify|Received|DidNotReceive)(?:All|NoOtherCalls|WithAnyArgs)?(?=\()"
        ),
        re.compile(r"\[\s*(?:Ignore|Explicit)\b|\bSkip\s*=|\bAssert\.(?:Ignore|Inconclusive|Skip)\b|\bSkip\.If"),
    ),
    "php": _Language(
        compile_noise(rf"\#(?!\[)[^\n]*|{SLASHES}", _LONG, _LONG_SINGLE),
        _find_php_heads,
        re.compile(
            r"(?:\$this->|\bself::|\bstatic::|\bAssert::)(?:assert\w+|expectException\w*|fail)(?=\s*\()"
            rf"|(?<![\w>$])expect(?=\s*\()|{_ASSERTING_CALL}"
        ),
        re.compile(r"(?:->|::)markTest(?:Skipped|Incomplete)\b|@requires\b|\#\[Requires\w*"),
    ),
    "swift": _Language(
        compile_noise(f"{_DEAD}|{SLASHES}", TRIPLE, QUOTED),
        FunctionHeads(
            re.compile(r"\bfunc\s+(?P<name>`[^`\n]+`|\w+)\s*\("),
            re.compile(r"@Test\b|\Aname:test"),
        ),
        re.compile(rf"\bXCT(?:Assert\w*|Fail|Unwrap)(?=\s*\()|#(?:expect|require)(?=\s*\()|{_ASSERTING_CALL}"),
        re.compile(r"\bXCTSkip\w*|\.disabled\b|\.enabled\s*\("),
    ),
    "exs": _Language(
        compile_noise(r"#[^\n]*", TRIPLE, _LONG),
        find_indented_heads,
        re.compile(r"(?<![\w.:@])(?:assert|refute)\w*"),
        re.compile(r"@(?:tag|describetag)\s+:?(?:skip|pending)\b"),
        file_skips=re.compile(r"@moduletag\s+:?skip[^\n]*"),
        lines=True,
    ),
    "cpp": _Language(
        compile_noise(f"{_DEAD}|{SLASHES}", r'\bR"(?P<mark>[^()\s"]{0,16})\((?:.*?\)(?P=mark)"|.*)', QUOTED, CHARACTER),
        find_macro_heads,
        re.compile(r"\b(?:(?:EXPECT|ASSERT)_\w+|(?:CHECK|REQUIRE)(?:_\w+)?|BOOST_(?:CHECK|REQUIRE|TEST)\w*)(?=\s*\()"),
        re.compile(r"\bGTEST_SKIP\b|\bdoctest::(?:skip|may_fail|should_fail)\b|\bSKIP\s*\("),
    ),
}


def read_text(text: str, language: _Language) -> ParsedTestFile:
    source = Source(text, language.noise)
    heads = sorted(language.heads(source), key=lambda head: (head.before, -head.end))
    reading = ParsedTestFile(text=text, focused=tuple(head.name for head in heads if head.focused))
    reading.outside = _count_outside(source, language, [head for head in heads if head.is_test])
    groups = [_TestGroup("", _find_file_skips(text, language), len(text) + 1)]
    numbers, room = Counter[str](), 8 * len(text)
    for head in heads:
        while groups[-1].end <= head.start:
            groups.pop()
        owner = groups[-1].owner
        name = f"{owner}{shorten(head.name, 80)}"
        own = {**head.skips, **dict(_find_skips(source, language, head.before, head.start))}
        skips = {**groups[-1].skips, **{key: f"{name}: {what}" for key, what in own.items()}}
        if not head.is_test:
            groups.append(_TestGroup(f"{name} > ", skips, head.end))
            continue
        room -= head.end - head.before
        test = _build_test(source, language, head, owner, skips, readable=room > 0)
        numbers[test.name] += 1
        test.number = numbers[test.name]
        reading.tests[test.name] = test
    return reading


class _TestGroup(Struct, frozen=True):
    """What the tests up to `end` have in common: what stands before their names, and what skips them all."""

    owner: str
    skips: dict[str, str]
    end: int


def _find_file_skips(text: str, language: _Language) -> dict[str, str]:
    found = language.file_skips.search(text[:4000]) if language.file_skips else None
    return {" ".join(found[0].split()): f"the file: {shorten(found[0])}"} if found else {}


def _count_outside(source: Source, language: _Language, tests: Sequence[Head]) -> int:
    """The assertions that stand in no test."""
    count, covered = _count_assertions(language, source, 0, len(source.bare)), 0
    for head in tests:
        if head.start >= covered:
            count -= _count_assertions(language, source, head.start, head.end)
            covered = head.end
    return count


def _count_assertions(language: _Language, source: Source, start: int, end: int) -> int:
    return sum(1 for _ in language.checks.finditer(source.bare, start, end))


def _find_skips(source: Source, language: _Language, start: int, end: int) -> Iterator[tuple[str, str]]:
    for skip in language.skips.finditer(source.code, start, end):
        if source.bare[skip.start()] != FILL:
            yield re.sub(r"[^\w.]+", "", skip[0]), shorten(skip[0])


def _build_test(
    source: Source, language: _Language, head: Head, owner: str, skips: dict[str, str], *, readable: bool
) -> Test:
    """Tests nested in tests without end would be read again and again: they keep their names only."""
    if not readable:
        return Test(owner, head.name, (), build_unknown_body, skips, head.cases)
    lines = tuple(filter(None, (line.strip() for line in source.code[head.before : head.end].split("\n"))))
    shown = shorten(f"{owner}{head.name}")
    return Test(owner, head.name, lines, lambda: _read_body(source, language, head, shown), skips, head.cases)


_LOOP = re.compile(r"\b(?:for|foreach|forEach|each)\b|\bt\.Run\(")
_EARLY = re.compile(r"\{\s*return\s*(?:;|\n|\})")


def _read_body(source: Source, language: _Language, head: Head, shown: str) -> Body:
    body = Body(checks=parse_text_assertions(source, language.checks, head.start, head.end, lines=language.lines))
    inside = source.bare[head.start : head.end]
    body.loops = _LOOP.search(inside) is not None
    body.empty = inside.strip().count("\n") < 2 and not body.checks if language.lines else _is_empty_block(inside)
    for key, what in _find_skips(source, language, head.start, head.end):
        add_skip(body.skips, key, f"{shown}: {what}")
    if _EARLY.search(inside, 0, inside.find("{") + 40 if "{" in inside else 0):
        body.skips["return"] = f"{shown}: returns at once"
    if head.panics:
        body.checks.append(Assertion(f"#[{head.panics}]", (), EXACT, raises=("panic",), matched='"' in head.panics))
    return body


def _is_empty_block(inside: str) -> bool:
    block = inside.partition("{")[2].rpartition("}")[0] if "{" in inside else inside
    return not block.strip()
