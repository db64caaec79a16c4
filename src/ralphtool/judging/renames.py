"""Whether tests are the same except for names that the work renamed: then the old tests can't even be loaded.

Compares token by token, in any language: the old file, with identifiers renamed, must be contained in the new one, in
the same order. So tests may be added, but nothing that they checked may be missing or different.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from ralphtool.judging.guard.model import FileChange

_LONGEST = 300_000  # bytes of a file
_HASH, _SLASHES, _STARS = r"\#[^\n]*", r"//[^\n]*", r"/\*.{0,5000}?\*/"
_WORDS = r"""
    |(?P<text>(?:\"\"\".*?\"\"\"|'''.*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`))
    |(?P<name>[^\W\d]\w*)
    |(?P<number>\d[\w.]*)
    |(?P<other>[^\s\w])"""


def _build_pattern(*comments: str) -> re.Pattern[str]:
    return re.compile(f"(?P<comment>{'|'.join(comments)}){_WORDS}", re.VERBOSE | re.DOTALL)


_TOKEN = _build_pattern(_HASH, _SLASHES, _STARS)
_PYTHON, _OTHER = _build_pattern(_HASH), _build_pattern(_SLASHES, _STARS)
_IMPORT = re.compile(
    r"""^[ \t]*(?:use\s[^;]*;|from\s+[\w.]+\s+import\s*(?:\([^)]*\)|[^\n]*)|import\s*\([^)]{0,4000}\)
    |import\s[^;'"\n(]*\{[^}]{0,4000}\}[^\n]*|import\s[^\n]*|(?:const|let|var)\s[^=]{0,4000}=\s*require\([^)]*\);?)""",
    re.VERBOSE | re.MULTILINE,
)
_TITLED = frozenset(("it", "test", "describe", "context", "specify", "scenario"))
_STARTERS = _TITLED | {"def", "async", "func", "fn", "class", "#", "@", "assert", "expect", "mod", "let", "const"}
_NONE: Mapping[str, str] = {}
_NAME = re.compile(r"[^\W\d]\w*")
_DEFINED = re.compile(
    r"\b(?:def|class|fn|func|function|struct|enum|trait|type|interface|const|let|var|static|mod|fun|val)\s+([^\W\d]\w*)"
    r"|^(?:func\s*\([^)]*\)\s*)([^\W\d]\w*)|^([^\W\d]\w*)\s*(?::[^=\n]+)?=[^=]",
    re.MULTILINE,
)


def is_same_but_renamed(tests: Sequence[FileChange], sources: Sequence[FileChange]) -> bool:
    """Whether each of these test files still checks everything, and only names that the work renamed differ."""
    gone = _list_gone_names(sources)
    there = {name for one in sources for name in (*_list_names(one.new), *_NAME.findall(one.path))}
    defined = {name for one in sources for name in _list_defined(one.old)}
    became = [_find_renames(one, gone, there) for one in tests]
    # Tests that use no renamed name can be run in their old version.
    return any(became) and all(one is not None and _are_renames(one, there - defined) for one in became)


def find_new_names(tests: Sequence[FileChange], sources: Sequence[FileChange]) -> dict[str, str]:
    """What the names that the work removed became, as the changed tests and the moved files show."""
    gone = _list_gone_names(sources)
    there = {name for one in sources for name in (*_list_names(one.new), *_NAME.findall(one.path))}
    defined = {name for one in sources for name in _list_defined(one.old)}
    moved = {old: new for one in sources for old, new in _list_moved_parts(one) if old in gone}
    became = dict(moved)
    for one in tests:
        if one.old is not None and one.new is not None and max(len(one.old), len(one.new)) <= _LONGEST:
            old, new = (_split_tokens(_split_imports(data)[1]) for data in (one.old, one.new))
            became = {**(_match(old, new, gone, moved) or {}), **became}
    return became if _are_renames(became, there - defined) else {}


def _list_moved_parts(change: FileChange) -> list[tuple[str, str]]:
    """The parts of a path that a move renamed."""
    if not change.old_path or change.new is None:
        return []
    old, new = ([re.sub(r"\.\w+$", "", part) for part in path.split("/")] for path in (change.old_path, change.path))
    return [pair for pair in zip(old, new, strict=False) if pair[0] != pair[1]] if len(old) == len(new) else []


def replace_names(text: str, became: Mapping[str, str], strings: AbstractSet[str], path: str) -> str:
    """A file with the new names, in its code and in those strings that the new files have."""

    def replace(found: re.Match[str]) -> str:
        word, kind = found[0], found.lastgroup
        if kind == "name":
            return became.get(word, word)
        if kind == "text":
            named = _NAME.sub(lambda name: became.get(name[0], name[0]), word)
            return named if named in strings else word
        return word

    pattern = _PYTHON if path.endswith(".py") else _OTHER
    return pattern.sub(replace, text) if became else text


def list_strings(data: bytes | None) -> set[str]:
    tokens = _split_tokens((data or b"")[:_LONGEST].decode("utf-8", "replace"))
    return {word for kind, word in tokens if kind == "text"}


def _are_renames(became: dict[str, str], new_names: set[str]) -> bool:
    """Whether each became a different, new name: a name that the old source defined may have meant something else."""
    named = [name for name in became.values() if name]
    return len(set(named)) == len(named) and set(named) <= new_names


def _list_gone_names(sources: Iterable[FileChange]) -> set[str]:
    """Names that the old source had and the new one no longer has, including the names of renamed files."""
    old, new = set[str](), set[str]()
    for one in sources:
        old |= _list_names(one.old) | set(_NAME.findall(one.old_path or one.path))
        new |= _list_names(one.new) | (set(_NAME.findall(one.path)) if one.new is not None else set())
    return old - new


def _list_defined(data: bytes | None) -> set[str]:
    found = _DEFINED.finditer((data or b"")[:_LONGEST].decode("utf-8", "replace"))
    return {str(one[one.lastindex or 0]) for one in found}


def _list_names(data: bytes | None) -> set[str]:
    """Names in code; words in comments and strings don't count."""
    tokens = _split_tokens((data or b"")[:_LONGEST].decode("utf-8", "replace"))
    return {word for kind, word in tokens if kind == "name"}


def _find_renames(change: FileChange, gone: set[str], there: set[str]) -> dict[str, str] | None:
    """What the removed names became in a file that still checks everything; None if it doesn't."""
    if change.old is None or change.new is None or max(len(change.old), len(change.new)) > _LONGEST:
        return None
    (imports, old), (new_imports, new) = _split_imports(change.old), _split_imports(change.new)
    became = _match(_split_tokens(old), _split_tokens(new), gone)
    if became is None or imports - gone - new_imports:
        return None
    became |= dict.fromkeys(imports & gone - became.keys(), "")  # a module or a package was renamed
    return became if new_imports - imports <= there | set(became.values()) else None


def _split_imports(data: bytes) -> tuple[set[str], str]:
    """The names in the import lines, whose order does not matter; and the file without these lines."""
    text = data.decode("utf-8", "replace")
    names = {name for found in _IMPORT.finditer(text) for name in _NAME.findall(found[0])}
    return names, _IMPORT.sub("", text)


def _split_tokens(text: str) -> list[tuple[str, str]]:
    """Kind and text of each token, without comments."""
    found = [(one.lastgroup or "", one[0]) for one in _TOKEN.finditer(text)]
    return [(kind, word) for kind, word in found if kind != "comment"]


def _match(
    old: Sequence[tuple[str, str]], new: Sequence[tuple[str, str]], gone: set[str], known: Mapping[str, str] = _NONE
) -> dict[str, str] | None:
    """Greedy: matches each old token with the next equal one in the new file, or with what a removed name became."""
    became = dict(known)
    position = 0
    for number, (kind, word) in enumerate(old):
        if _is_title(old, number) and position < len(new) and new[position][0] == kind:
            position += 1
        else:
            position = _find_token(kind, word, new, position, gone, became)
        if position < 0:
            return None
    return became


def _is_title(tokens: Sequence[tuple[str, str]], number: int) -> bool:
    """Whether a token is the name of a test, which checks nothing."""
    before = [word for _, word in tokens[max(0, number - 2) : number]]
    if tokens[number][0] == "name":
        return before[-1:] in (["def"], ["fn"], ["func"], ["function"], ["fun"])
    return tokens[number][0] == "text" and len(before) == 2 and before[0] in _TITLED and before[1] == "("


def _find_token(
    kind: str, word: str, new: Sequence[tuple[str, str]], start: int, gone: set[str], became: dict[str, str]
) -> int:
    """The position after the token that matches a word; -1 if there is none."""
    for position in range(start, len(new)):
        if position > start and new[start][1] not in _STARTERS:
            return -1  # the inserted code is neither a test nor an assertion
        other_kind, other = new[position]
        if other_kind != kind:
            continue
        if other == word or became.get(word) == other:
            return position + 1
        if kind == "name" and word in gone and word not in became:
            became[word] = other
            return position + 1
        if kind == "text" and _is_renamed_text(word, other, became):
            return position + 1
    return -1


def _is_renamed_text(word: str, other: str, became: dict[str, str]) -> bool:
    """Whether a string differs only by renamed names, as in `mock.patch("cart.total")`."""
    return _NAME.sub(lambda name: became.get(name[0], name[0]), word) == other
