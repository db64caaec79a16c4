"""What a source file says outside of its comments and docstrings, and the strings in it: they may name files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.judging.guard.test_files import find_language

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# An unclosed string or comment ends with its line or with the file: otherwise the search would start again and again.
_DOUBLE, _SINGLE = r"\"(?:\\.|[^\"\\\n])*(?:\"|(?=\n)|\Z)", r"'(?:\\.|[^'\\\n])*(?:'|(?=\n)|\Z)"
_BLOCK, _TICKS = r"/\*(?:.*?\*/|.*)", r"`(?:\\.|[^`\\])*(?:`|\Z)"
_LONG = r"\"\"\"(?:\\.|[^\\])*?(?:\"\"\"|\Z)|'''(?:\\.|[^\\])*?(?:'''|\Z)"
_SLASHES = re.compile(rf"//[^\n]*|{_BLOCK}|{_DOUBLE}|{_SINGLE}|{_TICKS}", re.DOTALL)
_RUST = re.compile(rf"//[^\n]*|{_BLOCK}|{_DOUBLE}", re.DOTALL)
_HASHES = re.compile(rf"#[^\n]*|{_LONG}|{_DOUBLE}|{_SINGLE}|{_TICKS}", re.DOTALL)
_BOTH = re.compile(rf"//[^\n]*|#[^\n]*|{_BLOCK}|{_DOUBLE}|{_SINGLE}|{_TICKS}", re.DOTALL)
_TOKENS = {
    **dict.fromkeys(("py", "rb", "exs"), _HASHES),
    **dict.fromkeys(("js", "go", "java", "cs", "swift", "cpp"), _SLASHES),
    "php": _BOTH,
    "rs": _RUST,
}
_LONG_QUOTES = ('"""', "'''")
_COMMENTS = ("//", "/*", "#")
_EMBEDS = "//go:embed "  # an instruction to the compiler: the files become part of the program
_NEAR = 60  # characters around a string
_PREFIX = re.compile(r"[ \t]*[a-zA-Z]{1,2}")  # r"…", rb"…"
_INSIDE = tuple("([{,=+/%\\|&<>?")  # a string after one of these is part of an expression
_DOCUMENTS = re.compile(r"@(?:module|type)?doc[ \t]*~?\w?$")
_NO_PATH_BEFORE = re.compile(r"(?:[=!]==?|\bis|\bis[ \t]+not|\bcase|[\w\])]\??\.?\[|\.(?:get|has|includes|pop)\()\s*$")
_KEY_BEFORE = re.compile(r"(?:[{,]|^|\n)\s*$")
_NO_PATH_AFTER = re.compile(r"\s*(?:[=!]=|=>|(?:not[ \t]+)?in\b)")
_FILE = re.compile(r"^/|\.")
_BACKSLASH = "\\"
_OF_PATH = re.compile(r"[.*{}%$~]|/$")


class Quoted(Struct, frozen=True):
    """One string, with what is before and after it."""

    text: str
    before: str
    after: str


class SourceText(Struct, frozen=True):
    """The code of a file without comments and docstrings, and the strings in it."""

    code: str
    strings: Sequence[Quoted]


def read_source(path: str, text: str) -> SourceText | None:
    """None if the language is not known."""
    tokens = _TOKENS.get(find_language(path))
    if tokens is None:
        return None
    code, strings, at = [], [], 0
    for found in tokens.finditer(text):
        one = _read_string(found, text, is_hashed=tokens is _HASHES)
        if one is None:
            code.append(text[at : found.start()])
            at = found.end()
        else:
            strings.append(one)
    return SourceText("".join([*code, text[at:]]), strings)


def _read_string(found: re.Match[str], text: str, *, is_hashed: bool) -> Quoted | None:
    """None for a comment and a docstring."""
    token, start = found[0], found.start()
    if token.startswith(_COMMENTS):
        return Quoted(token.removeprefix(_EMBEDS), "", "") if token.startswith(_EMBEDS) else None
    size = 3 if token.startswith(_LONG_QUOTES) else 1
    before = text[max(0, start - _NEAR) : start]
    if is_hashed and _is_docstring(before, is_long=size > 1):
        return None
    return Quoted(token[size:].removesuffix(token[:size]), before, text[found.end() : found.end() + _NEAR])


def _is_docstring(before: str, *, is_long: bool) -> bool:
    """Whether a string is a statement of its own."""
    head, _, line = before.rpartition("\n")
    if _DOCUMENTS.search(line):
        return True
    if line.strip() and not _PREFIX.fullmatch(line):
        return False
    head = head.rstrip()
    return not head or head.endswith(":") or (is_long and not head.endswith(_INSIDE))


def may_name(source: SourceText | None, names: Iterable[str]) -> bool:
    """Whether a source file may name a file or folder in one of these ways; always, if its language is not known.

    A name is that of a file (`a.json`), a suffix (`.json`), an import (`/a`), or a folder with those above it (`a/b`).
    """
    return source is None or any(
        _names_file(source, one) if _FILE.search(one) else _names_folder(source, one) for one in names
    )


def _names_file(source: SourceText, name: str) -> bool:
    if name not in source.code:
        return False
    if name[0] == "/":
        return any(one.text.endswith(name) for one in source.strings)
    if name[0] == ".":  # `reply.json()` is not a suffix
        return re.search(rf"{re.escape(name)}(?![\w(-])", source.code) is not None
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", source.code) is not None


def _names_folder(source: SourceText, name: str) -> bool:
    """A sentence with such a word in it does not name a folder."""
    return any(_may_be_folder(one, name) for one in source.strings if name in one.text)


def _may_be_folder(one: Quoted, name: str) -> bool:
    if one.text == name:
        return _may_be_path(one)
    words = one.text.split()
    paths = words if len(words) < 2 else [word for word in words if _OF_PATH.search(word)]
    return any(f"/{name}/" in f"/{word}/".replace(_BACKSLASH, "/").replace("//", "/") for word in paths)


def _may_be_path(one: Quoted) -> bool:
    """Whether a single word may be a path, rather than what is compared, or the key of a table."""
    is_key = one.after.lstrip(" \t").startswith(":") and _KEY_BEFORE.search(one.before)
    return not (is_key or _NO_PATH_BEFORE.search(one.before) or _NO_PATH_AFTER.match(one.after))
