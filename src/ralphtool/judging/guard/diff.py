"""What a diff did to the tests and to the configuration of tests: the guard's main question."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from ralphtool.judging.guard.compare import Comparison
from ralphtool.judging.guard.configs import config_reader, look_at_configs
from ralphtool.judging.guard.fallback import compare_coarsely, read_coarsely
from ralphtool.judging.guard.languages import LANGUAGES, read_text
from ralphtool.judging.guard.model import LONGEST, Change, Finding, Kind, Reading, decoded, short
from ralphtool.judging.guard.pairs import File, Placed, paired
from ralphtool.judging.guard.python import has_syntax_error, read_python
from ralphtool.judging.guard.test_files import is_named_test, is_run, is_test, language_of
from ralphtool.specs import Story


def look(changes: Sequence[Change]) -> list[Finding]:
    """What was done to tests and to the configuration of tests."""
    found = [*_look_at_tests([change for change in changes if _holds_tests(change)]), *look_at_configs(changes)]
    return list(dict.fromkeys(Finding(one.kind, one.path, short(one.detail, 300)) for one in found))


def wants_content(path: str) -> bool:
    """Whether `look` needs the bytes of a file: other files may come with b""."""
    return is_test(path) or language_of(path) == "rs" or config_reader(path) is not None


def may_change_tests(story: Story) -> bool:
    """Whether a story says that its tests may go or get weaker."""
    said = (story.title, story.description or "", *(task.text for task in story.tasks))
    return any("(may change tests)" in " ".join(text.casefold().split()) for text in said)


def _look_at_tests(changes: Sequence[Change]) -> list[Finding]:
    files = [_read_both(change) for change in changes]
    gone = "no longer parses: none of its tests is run"
    told = [Finding("test-deleted", file.path, gone) for file in files if file.unparsable]
    files = [file for file in files if not file.unparsable]
    pairs, lost, fresh = paired(files)
    compared = Comparison(files, pairs, fresh)
    there = {file.new.text for file in files}
    for file in files:
        told += _focused(file) + _unreadable(file, there)
        told += compare_coarsely(file) if file.old.coarse else compared.beside(file)
    for old, new in pairs:
        told += compared.of_pair(old, new)
    return told + _missing(compared.without_excuse(lost))


def _read_both(change: Change) -> File:
    """Reads both sides the same way, so that they can be compared."""
    before, after = decoded(change.old), decoded(change.new)
    old_path = change.old_path or change.path
    coarse = max(len(before), len(after)) > LONGEST
    old, new = _read(old_path, before, coarse), _read(change.path, after, coarse)
    if old and change.old is not None and new is None and has_syntax_error(after):
        return File(change.path, old, Reading(), unparsable=True)
    if old is None or new is None or bool(old.coarse) != bool(new.coarse):
        old, new = read_coarsely(old_path, before), read_coarsely(change.path, after)
    if not is_run(change.path) and (change.old is None or is_run(old_path)):
        new.tests = {}
    return File(change.path, old, new, gone=change.new is None)


def _read(path: str, text: str, coarse: bool) -> Reading | None:
    """None for Python that can't be parsed."""
    if coarse:
        return read_coarsely(path, text)
    language = language_of(path)
    if language == "py":
        return read_python(text)
    return read_text(text, LANGUAGES[language]) if language else Reading(text=text)


def _holds_tests(change: Change) -> bool:
    paths = (change.path, change.old_path or change.path)
    return any(is_test(path) or language_of(path) == "rs" or path.endswith("conftest.py") for path in paths)


def _focused(file: File) -> list[Finding]:
    more = Counter(file.new.focused) - Counter(file.old.focused)
    if not file.old.tests:
        return []
    return [Finding("test-skipped", file.path, f"{short(one)}: all other tests are left out") for one in more]


def _unreadable(file: File, there: set[str]) -> list[Finding]:
    """A test file is one by its name, even if none of its tests is written in a way that we know."""
    if not file.gone or file.old.tests or not is_named_test(file.path):
        return []
    if not file.old.text.strip() or file.old.text in there:
        return []
    return [Finding("test-deleted", file.path, "the file is gone")]


def _missing(lost: Sequence[Placed]) -> list[Finding]:
    by_file: dict[str, list[Placed]] = {}
    for one in lost:
        by_file.setdefault(one.file.path, []).append(one)
    return [finding for path, placed in by_file.items() for finding in _missing_in(path, placed)]


def _missing_in(path: str, placed: Sequence[Placed]) -> list[Finding]:
    file = placed[0].file
    live = {test.bare for test in file.new.tests.values()}
    words = set(re.findall(r"\w+", file.new.text[:LONGEST])) - live
    off = {id(one) for one in placed[:50] if _is_still_text(one, words)}
    if file.gone or not file.new.tests:
        what = "is gone" if file.gone else "holds no tests any more"
        names = ", ".join([short(one.test.name, 60) for one in placed[:5]] + ["…"] * (len(placed) > 5))
        kind: Kind = "test-skipped" if len(off) == len(placed) else "test-deleted"
        return [Finding(kind, path, f"the file {what}: {len(placed)} test{'s' * (len(placed) > 1)} ({names})")]
    return [
        Finding("test-skipped", path, f"{short(one.test.name)} is there as text, but is no test any more")
        if id(one) in off
        else Finding("test-deleted", path, f"{short(one.test.name)} is gone")
        for one in placed[:50]
    ]


def _is_still_text(one: Placed, words: set[str]) -> bool:
    """Commented out, inside a string, behind `if False`, or under a name that nobody runs."""
    name = one.test.bare
    last = name.rpartition(".")[2]
    return any(word.endswith(last) for word in words) if last.isidentifier() else name in one.file.new.text
