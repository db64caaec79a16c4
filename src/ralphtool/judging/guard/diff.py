"""What a diff did to the tests and to their configuration: the main task of the guard."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from ralphtool.judging.guard.chunks import read_chunks
from ralphtool.judging.guard.compare import Comparison
from ralphtool.judging.guard.configs import inspect_configs
from ralphtool.judging.guard.fallback import compare_coarsely, read_coarsely
from ralphtool.judging.guard.languages import load_language
from ralphtool.judging.guard.lints import inspect_lints
from ralphtool.judging.guard.model import (
    ALWAYS_TRUE,
    LONGEST,
    Body,
    FileChange,
    FindingKind,
    GuardFinding,
    ParsedTestFile,
    Test,
    decode,
    shorten,
)
from ralphtool.judging.guard.pairs import ChangedTestFile, LocatedTest, pair_tests
from ralphtool.judging.guard.python import has_syntax_error, read_python
from ralphtool.judging.guard.test_files import find_language, is_named_test, is_run_by_runner, is_test
from ralphtool.judging.guard.tree_reader import read_tree


def inspect_changes(changes: Sequence[FileChange]) -> list[GuardFinding]:
    """Findings about tests, their configuration, and the configuration of other checks."""
    found = _inspect_tests([change for change in changes if _has_tests(change)])
    found += [*inspect_configs(changes), *inspect_lints(changes)]
    return list(dict.fromkeys(GuardFinding(one.kind, one.path, shorten(one.detail, 300)) for one in found))


def _inspect_tests(changes: Sequence[FileChange]) -> list[GuardFinding]:
    files = [_read_both(change) for change in changes]
    gone = "no longer parses: none of its tests are run"
    told = [GuardFinding("test-deleted", file.path, gone) for file in files if file.unparsable]
    files = [file for file in files if not file.unparsable]
    pairs, lost, fresh = pair_tests(files)
    compared = Comparison(files, pairs, fresh)
    there = {file.new.text for file in files}
    for file in files:
        told += _find_focused(file) + _find_deleted_files(file, there)
        told += compare_coarsely(file) if file.old.coarse else compared.beside(file)
    for old, new in pairs:
        told += compared.compare_pair(old, new)
    return told + _find_missing(compared.find_unexplained(lost))


def find_empty_tests(path: str, data: bytes) -> set[str]:
    """The names of tests that certainly assert nothing, or only something about constants: they check no result."""
    return {test.bare for test, asserts in _read_asserting(path, data) if not asserts}


def list_checking_tests(path: str, data: bytes) -> tuple[str, ...]:
    """The names of the tests that check a result, in the order of the file; skipped ones are left out."""
    return tuple(test.name for test, asserts in _read_asserting(path, data) if asserts and not test.skips)


def _read_asserting(path: str, data: bytes) -> Iterator[tuple[Test, bool]]:
    text = decode(data)
    file = None if len(text) > LONGEST else read_tests(path, text, False)
    if file is None or file.coarse:
        return
    helpers = {name for name, one in file.beside.items() if _asserts(one.body, frozenset())}
    quiet = {name for name, one in file.beside.items() if not one.body.doubts}  # what these do is known
    for test in file.tests.values():
        yield test, _asserts(test.body, helpers) or not quiet.issuperset(test.body.doubts)


def _asserts(body: Body, helpers: Collection[str]) -> bool:
    checks = [check for check in body.checks if not check.fixed]
    if body.unknown or any(check.strength > ALWAYS_TRUE or check.raises is not None for check in checks):
        return True
    calls = [call for call in body.calls if not call.fixed]
    return any(call.asserts or call.name.rpartition(".")[2] in helpers for call in calls)


def _read_both(change: FileChange) -> ChangedTestFile:
    """Reads both sides the same way, so that they can be compared."""
    before, after = decode(change.old), decode(change.new)
    old_path = change.old_path or change.path
    coarse = max(len(before), len(after)) > LONGEST
    old, new = read_tests(old_path, before, coarse), read_tests(change.path, after, coarse)
    if old and change.old is not None and new is None and _is_broken_python(change.path, after):
        return ChangedTestFile(change.path, old, ParsedTestFile(), unparsable=True)
    if old is None or new is None or bool(old.coarse) != bool(new.coarse):
        old, new = read_coarsely(old_path, before), read_coarsely(change.path, after)
    if not is_run_by_runner(change.path) and (change.old is None or is_run_by_runner(old_path)):
        new.tests = {}
    return ChangedTestFile(change.path, old, new, gone=change.new is None)


def read_tests(path: str, text: str, coarse: bool) -> ParsedTestFile | None:
    """None for Python that can't be parsed, and for files that are nested too deeply."""
    if coarse:
        return read_coarsely(path, text)
    language = find_language(path)
    if language == "py":
        return read_python(text)
    if tree_language := load_language(path):
        return read_tree(text, path, tree_language)
    return read_chunks(text, language) if language else ParsedTestFile(text=text)


def _is_broken_python(path: str, text: str) -> bool:
    return find_language(path) == "py" and has_syntax_error(text)


def _has_tests(change: FileChange) -> bool:
    paths = (change.path, change.old_path or change.path)
    return any(is_test(path) or find_language(path) == "rs" or path.endswith("conftest.py") for path in paths)


def _find_focused(file: ChangedTestFile) -> list[GuardFinding]:
    more = Counter(file.new.focused) - Counter(file.old.focused)
    if not file.old.tests:
        return []
    return [GuardFinding("test-skipped", file.path, f"{shorten(one)}: all other tests are left out") for one in more]


def _find_deleted_files(file: ChangedTestFile, there: set[str]) -> list[GuardFinding]:
    """Goes by the name of a file: its tests may be written in an unknown way."""
    if not file.gone or file.old.tests or not is_named_test(file.path):
        return []
    if not file.old.text.strip() or file.old.text in there:
        return []
    return [GuardFinding("test-deleted", file.path, "the file is gone")]


def _find_missing(lost: Sequence[LocatedTest]) -> list[GuardFinding]:
    by_file: dict[str, list[LocatedTest]] = {}
    for one in lost:
        by_file.setdefault(one.file.path, []).append(one)
    return [finding for path, placed in by_file.items() for finding in _find_missing_in_file(path, placed)]


def _find_missing_in_file(path: str, placed: Sequence[LocatedTest]) -> list[GuardFinding]:
    file = placed[0].file
    live = {test.bare for test in file.new.tests.values()}
    words = set(re.findall(r"\w+", file.new.text[:LONGEST])) - live
    off = {id(one) for one in placed[:50] if _is_still_text(one, words)}
    if file.gone or not file.new.tests:
        what = "is gone" if file.gone else "no longer contains tests"
        names = ", ".join([shorten(one.test.name, 60) for one in placed[:5]] + ["…"] * (len(placed) > 5))
        kind: FindingKind = "test-skipped" if len(off) == len(placed) else "test-deleted"
        return [GuardFinding(kind, path, f"the file {what}: {len(placed)} test{'s' * (len(placed) > 1)} ({names})")]
    return [
        GuardFinding("test-skipped", path, f"{shorten(one.test.name)} is still there as text, but is no longer a test")
        if id(one) in off
        else GuardFinding("test-deleted", path, f"{shorten(one.test.name)} is gone")
        for one in placed[:50]
    ]


def _is_still_text(one: LocatedTest, words: set[str]) -> bool:
    """Whether it is commented out, in a string, behind `if False`, or has a name that no runner collects."""
    name = one.test.bare
    last = name.rpartition(".")[2]
    return any(word.endswith(last) for word in words) if last.isidentifier() else name in one.file.new.text
