"""What allows an attempt to change tests: the story's marker, its plain words, or a setting. A pure function."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ralphtool.specs import Story

_MARKER = "(may change tests)"
# Words that ask for different behaviour. "Add" and "fix" are not among them.
_CHANGES = re.compile(
    r"\b(?:remov\w*|delet\w*|drop(?:s|ped|ping)?|replac\w*|renam\w*|chang\w*|instead|no longer|switch\w*|deprecat\w*"
    r"|migrat\w*|convert\w*|rather than|not any ?more|anymore|update[sd]?|updating|becomes?|breaking|obsolete"
    r"|get rid of|retir\w*|mov(?:e|es|ed|ing)\b|split\w*|merg(?:e|es|ed|ing)|wrong(?:ly)?|incorrect\w*"
    r"|(?:should|must) (?:be (?!shown|told|documented|tested|covered)|return|say|give|raise)|turn\w* into"
    r"|expected (?:value|output|result)s?|snapshots?)\b",
    re.IGNORECASE,
)
# Words of a sentence that does not ask for different behaviour, whatever its verbs are.
_KEEPS = re.compile(
    r"\b(?:not|never|without|un(?:changed|touched|affected)|stays?|keeps?|remains?|same"
    r"|as (?:it|they) (?:is|are|was|were)|document\w*|docs?|docstrings?"
    r"|readme|comments?|refactor\w*|tid(?:y|ies)|clean\w*|simplif\w*|nothing)\b|n't\b",
    re.IGNORECASE,
)
_NO_LONGER = re.compile(r"\b(?:not any ?more|no longer|anymore)\b", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
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
    asked = [sentence for text in said for sentence in _SENTENCE.split(text) if _asks_for_change(sentence)]
    if lost and all(any(_shares_word(text, name) for text in asked) for name in lost):
        return f"the story asks for it: {_shorten(asked[0])}"
    return ""


def _is_covered(name: str, paths: Iterable[str], patterns: Sequence[str]) -> bool:
    """Whether the file of a test matches a pattern. The test's name starts with that file's path, or its end."""
    file = re.split(r"::| > ", name)[0]
    named = [path for path in paths if path == file or path.endswith(f"/{file}")] or [file]
    return any(fnmatchcase(path, pattern) for path in named for pattern in patterns)


def _asks_for_change(sentence: str) -> bool:
    """Whether it asks for different behaviour; "Do not change the total" and "Update the documentation" don't."""
    return _CHANGES.search(sentence) is not None and _KEEPS.search(_NO_LONGER.sub("", sentence)) is None


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
