"""Packages of Go and crates of Rust that only tests use, to check results. Read from the last checkpoint."""

from __future__ import annotations

import re
import tomllib
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ralphtool.judging.guard.test_files import find_language
from ralphtool.judging.roles import TEST_ROLES, find_role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ralphtool.judging.guard.model import FileChange

    Read = Callable[[Sequence[str]], Mapping[str, bytes]]
    Grep = Callable[[str], Sequence[str]]

_LONGEST = 200_000
_MOST = 200  # files that are read for one question
_GO_TESTING = re.compile(r"^[ \t]*(?:import[ \t]+)?(?:[\w.]+[ \t]+)?\"testing\"", re.MULTILINE)
_RUST_OFFERED = re.compile(r"^[ \t]*(?:pub[ \t]+(?:(?:async|const|unsafe)[ \t]+)*fn\b|macro_rules!)", re.MULTILINE)
_RUST_CHECKS = re.compile(r"\b(?:debug_)?assert\w*!|\bpanic!|\bunreachable!")
_USING = ("dependencies", "build-dependencies")


def find_checking_packages(changes: Sequence[FileChange], read: Read, grep: Grep) -> frozenset[str]:
    """The changed files of Go packages and Rust crates that only tests import."""
    found = set[str]()
    for one in changes:
        path, text = one.old_path or one.path, (one.old or b"")[:_LONGEST].decode("utf-8", "replace")
        is_asked = one.old is not None and find_role(path) == "source"
        is_found = _FINDERS.get(find_language(path)) if is_asked else None
        if is_found and is_found(path, text, read, grep):
            found |= {path, one.path}
    return frozenset(found)


def _is_checking_package(path: str, text: str, read: Read, grep: Grep) -> bool:
    """Whether it uses `testing`, and only tests of other packages import its package."""
    folder = path.rpartition("/")[0]
    if not folder or not _GO_TESTING.search(text):
        return False
    word = f'/{folder.rpartition("/")[2]}"'
    importers = [one for one in grep(word) if one.endswith(".go") and one.rpartition("/")[0] != folder]
    rest = [one for one in importers if find_role(one) not in TEST_ROLES]
    texts = read(rest) if 0 < len(rest) <= _MOST else {}
    checking = [one for one, data in texts.items() if _GO_TESTING.search(data[:_LONGEST].decode("utf-8", "replace"))]
    return len(importers) > len(rest) == len(checking)


def _is_checking_crate(path: str, text: str, read: Read, grep: Grep) -> bool:
    """Whether every function that it offers checks something, and its crate is only a development dependency."""
    starts = [found.start() for found in _RUST_OFFERED.finditer(text)]
    parts = [text[start:end] for start, end in pairwise([*starts, len(text)])]
    if not parts or not all(map(_RUST_CHECKS.search, parts)):
        return False
    own, crate = _find_crate(path, read)
    manifests = [one for one in grep(crate) if one.endswith("Cargo.toml") and one != own][:_MOST] if crate else []
    used = [kind for data in (read(manifests) if manifests else {}).values() for kind in _list_uses(data, crate)]
    return "dev-dependencies" in used and not {*used} & {*_USING}


def _find_crate(path: str, read: Read) -> tuple[str, str]:
    """The manifest of the crate of a file, and its name."""
    folders = path.split("/")[:-1]
    asked = ["/".join([*folders[:end], "Cargo.toml"]) for end in range(len(folders), 0, -1)]
    files = read(asked) if asked else {}
    nearest = next((one for one in asked if one in files), "")
    package = _parse(files[nearest]).get("package") if nearest else None
    name = package.get("name") if isinstance(package, dict) else None
    return nearest, name if isinstance(name, str) else ""


def _list_uses(manifest: bytes, crate: str) -> Iterable[str]:
    """The kinds of dependencies by which a manifest names a crate."""
    document = _parse(manifest)
    targets = document.get("target")
    tables = [document, *(targets.values() if isinstance(targets, dict) else ())]
    for table in tables:
        for kind in (*_USING, "dev-dependencies"):
            named = table.get(kind) if isinstance(table, dict) else None
            if isinstance(named, dict) and any(_is_crate(key, value, crate) for key, value in named.items()):
                yield kind


def _is_crate(key: str, value: Any, crate: str) -> bool:
    return (value.get("package", key) if isinstance(value, dict) else key) == crate


def _parse(data: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError):
        return {}


_FINDERS = {"go": _is_checking_package, "rs": _is_checking_crate}
