"""What allows an attempt to change tests: the story's marker, its plain words, or a setting. A pure function."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ralphtool.judging.asked_changes import list_asked_changes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ralphtool.specs import Story

_MARKER = "(may change tests)"
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_COMMON_WORDS = (
    "a an and are as at be by for from has have in into is it its no not now of on or so than that the their them then"
    " there this to was were when which with without all any each test tests spec should must can may add adds new old"
    " py js ts go rs rb java kt php src lib app main index case cases work works returns return get set value values"
    " file files function method class module code unit check checks describe expect assert change changes changed"
    " remove removes update updates story task use uses user users make makes give gives one two three"
)
_COMMON = frozenset(_COMMON_WORDS.split())


def find_allowance(story: Story, lost: Sequence[str], paths: Iterable[str], patterns: Sequence[str]) -> str:
    """Why the old versions of these tests may fail, in words for people; empty if nothing permits it.

    `lost` has the names of the tests, `paths` the test files that were changed.
    """
    said = [story.title, story.description or "", *(task.text for task in story.tasks)]
    if any(_MARKER in " ".join(text.casefold().split()) for text in said):
        return f"the story says {_MARKER}"
    if patterns and lost and all(_is_covered(name, paths, patterns) for name in lost):
        return "[proof] may_change names these tests"
    asked = list_asked_changes(said) if lost else []
    naming = [next((one for one in asked if _shares_word(" ".join(one.words), name)), None) for name in lost]
    if naming and (first := naming[0]) and all(naming):
        return f"the story asks for it: {_shorten(first.sentence)}"
    return ""


def _is_covered(name: str, paths: Iterable[str], patterns: Sequence[str]) -> bool:
    """Whether the file of a test matches a pattern. The test's name starts with that file's path, or its end."""
    file = re.split(r"::| > ", name)[0]
    named = [path for path in paths if path == file or path.endswith(f"/{file}")] or [file]
    return any(fnmatchcase(path, pattern) for path in named for pattern in patterns)


def _shares_word(text: str, name: str) -> bool:
    """Compares only the name of the test itself: other tests share its file and class."""
    bare = re.split(r"::| > |(?<=\w)\.(?=\w)", re.sub(r"\[.*|\s\(.*", "", name))[-1]
    return bool(_list_words(text) & _list_words(bare))


def _list_words(text: str) -> set[str]:
    words = (word.lower() for word in _WORD.findall(text))
    return {_stem(word) for word in words if word not in _COMMON and len(word) > 2}


def _stem(word: str) -> str:
    """The same for `greets`, `greeting` and `greeted`; roughly, since both sides are cut the same way."""
    for ending in ("ings", "ing", "ies", "ied", "ers", "er", "ed", "es", "s", "y", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else f"{line[:79]}…"
