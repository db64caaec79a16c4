"""Files that the configuration of a test program consists of: what it imports, extends or takes as a preset."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

import msgspec

from ralphtool.judging.guard.test_files import find_language
from ralphtool.judging.roles import TEST_ROLES, find_role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ralphtool.judging.guard.model import FileChange

    Read = Callable[[Sequence[str]], Mapping[str, bytes]]
    Grep = Callable[[str], Sequence[str]]

_LONGEST = 200_000
_MOST = 200  # files that are read for one question
_DEEPEST = 3
_IMPORTED = re.compile(r"(?:\brequire(?:\.resolve)?\(|\bfrom|\bimport\(?)\s*[\"'](\.[^\"'\n]*)[\"']")
_NAMED = re.compile(r"\b(?:preset|extends|plugins)[\"']?\s*:\s*(\[[^\]]*\]|[\"'][^\"'\n]*[\"'])")
_QUOTED = re.compile(r"[\"']([^\"'\n]+)[\"']")
_ROOT = re.compile(r"^(?:<rootDir>|\{projectRoot\}|\{workspaceRoot\})/")
_ENDS = ("", ".js", ".cjs", ".mjs", ".ts", ".cts", ".mts", ".json")
_INSIDE = ("/index.js", "/index.ts", "/jest-preset.js", "/jest-preset.cjs", "/jest-preset.mjs", "/jest-preset.json")
_MANIFEST = "package.json"
_KEYS = ("jest", "vitest", "mocha", "ava", "nyc", "c8", "babel")  # of a manifest: the rest is about the product


def find_config_parts(changes: Sequence[FileChange], files: Sequence[str], read: Read, grep: Grep) -> frozenset[str]:
    """The changed files of which the configuration of test programs consists, and that no source imports.

    `files` are those of the project.
    """
    asked = [one for one in changes if one.old is not None and _may_be_part(one.old_path or one.path)]
    named = _find_named(files, read) if asked else set()
    found = [
        one for one in asked if (path := one.old_path or one.path) in named and _is_part(path, read, grep, _DEEPEST)
    ]
    return frozenset(path for one in found for path in (one.path, one.old_path or one.path))


def _find_named(files: Sequence[str], read: Read) -> set[str]:
    """All files that configuration names, directly or through others."""
    known, found = {*files}, set[str]()
    asked = [path for path in files if find_role(path) == "config" and _may_name(path)]
    for _ in range(_DEEPEST):
        texts = read(asked[:_MOST]) if asked else {}
        fresh = {place for path, data in texts.items() for place in _list_parts(path, data)} & known - found
        found |= fresh
        asked = sorted(path for path in fresh if _may_name(path))
    return found


def _may_name(path: str) -> bool:
    return find_language(path) == "js" or path.endswith((".json", "rc"))


def _may_be_part(path: str) -> bool:
    return find_role(path) == "source" and (find_language(path) == "js" or path.endswith(".json"))


def _is_part(path: str, read: Read, grep: Grep, depth: int) -> bool:
    holders = [one for one in _list_holders(path, read, grep) if find_role(one) not in TEST_ROLES]
    if not holders or (depth == 0 and any(find_role(one) != "config" for one in holders)):
        return False
    return all(find_role(one) == "config" or _is_part(one, read, grep, depth - 1) for one in holders)


def _list_holders(path: str, read: Read, grep: Grep) -> list[str]:
    """The files that import it, or name it as a part of their configuration."""
    *folders, name = path.split("/")
    stem = name.partition(".")[0]
    words = {stem, folders[-1]} if folders and f"/{name}" in _INSIDE else {stem}
    asked = sorted({one for word in words if word for one in grep(word) if one != path and _is_script(one)})
    texts = read(asked) if 0 < len(asked) <= _MOST else {}
    return [one for one, data in texts.items() if path in _list_parts(one, data)]


def _is_script(path: str) -> bool:
    return find_language(path) == "js" or find_role(path) == "config"


def _list_parts(path: str, data: bytes) -> set[str]:
    text = _read_manifest(data) if path.endswith(_MANIFEST) else data[:_LONGEST].decode("utf-8", "replace")
    words = [found[1] for found in _IMPORTED.finditer(text)]
    if find_role(path) == "config":
        words += [word for found in _NAMED.finditer(text) for word in _QUOTED.findall(found[1])]
    return {place for word in words for place in _list_places(path, word)}


def _read_manifest(data: bytes) -> str:
    try:
        about = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return ""
    kept = {key: about[key] for key in _KEYS if key in about} if isinstance(about, dict) else {}
    return msgspec.json.encode(kept).decode()


def _list_places(path: str, word: str) -> Iterable[str]:
    """Where a file may be that another one names: beside that one, or below the root of the project."""
    folder = path.rpartition("/")[0]
    inside = _ROOT.sub("", word)
    for base in {folder, ""} if inside != word else {folder}:
        place = posixpath.normpath(posixpath.join(base, inside))
        yield from (f"{place}{end}" for end in (*_ENDS, *_INSIDE))
