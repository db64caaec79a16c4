"""Files that are too long or too deep to be parsed: only names, and numbers of assertions and skips."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from ralphtool.judging.guard.model import GuardFinding, ParsedTestFile, Test, build_unknown_body
from ralphtool.judging.guard.pairs import ChangedTestFile
from ralphtool.judging.guard.test_files import find_language

# Plain strings, not patterns: searching for them is fast even in a file of megabytes.
_HEADS = {
    "py": ("def test",),
    "js": ("it(", "test("),
    "rb": ("it ", "test ", "def test_"),
    "exs": ("test ",),
    "": ("func Test", "fn test", "void test", "function test", "fun test", "Task Test", "TEST("),
}
_CHECKS = ("assert", "expect", "EXPECT_", "ASSERT_", "XCTAssert", "refute", "t.Error", "t.Fatal")
_SKIPS: tuple[str, ...] = (
    "mark.skip",
    "mark.xfail",
    "pytest.skip",
    "skipTest",
    "importorskip",
    "unittest.skip",
    "t.Skip",
    "#[ignore",
)
_SKIPS += ("@Disabled", "@Ignore", "it.skip", "it.only", "it.todo", "test.skip", "test.only", "test.todo")
_SKIPS += (
    "describe.skip",
    "describe.only",
    "xit(",
    "xdescribe(",
    "fit(",
    "fdescribe(",
    "markTestSkipped",
    "GTEST_SKIP",
)
_NAME = re.compile(r"\s{0,9}[\"'`]([^\"'`\n]{1,200})|(\w{0,200})")


def read_coarsely(path: str, text: str) -> ParsedTestFile:
    tests: dict[str, Test] = {}
    for head in _HEADS.get(find_language(path), _HEADS[""]):
        for at in _find_places(head, text):
            found = _NAME.match(text, at + len(head))
            name = found[1] or f"{head.rpartition(' ')[2]}{found[2]}" if found else ""
            tests[name] = Test("", name, (), build_unknown_body, {})
    checks = sum(text.count(word) for word in _CHECKS)
    skips = Counter({word: sum(1 for _ in _find_places(word, text)) for word in _SKIPS})
    return ParsedTestFile(text=text, tests=tests, coarse=(checks, skips))


def _find_places(word: str, text: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        if at == 0 or not (text[at - 1].isalnum() or text[at - 1] in "_$"):
            yield at
        at = text.find(word, at + len(word))


def compare_coarsely(file: ChangedTestFile) -> list[GuardFinding]:
    if file.gone or not file.old.coarse or not file.new.coarse:
        return []
    (before, old_skips), (after, new_skips) = file.old.coarse, file.new.coarse
    found = [GuardFinding("test-skipped", file.path, f"more of {what} than before") for what in new_skips - old_skips]
    if after < before:
        found.append(GuardFinding("assertion-weakened", file.path, f"{before} assertions before, {after} now"))
    return found
