"""Files that contain source and tests: builds the new source with the old tests.

Rust: code under `#[cfg(test)]`, single functions marked as tests, and comments with examples. JavaScript and
TypeScript: Vitest's `if (import.meta.vitest) { … }`. Python: tests beside the source, and examples in docstrings.
Whether a test program is configured to run them is not checked here: the caller must know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.judging.guard.grammars import parse_source
from ralphtool.judging.guard.inline_python import is_python_test_module, splice_python_tests
from ralphtool.judging.guard.inline_rust_docs import restore_rust_examples

if TYPE_CHECKING:
    from tree_sitter import Node


class _InlineTest(Struct, frozen=True):
    """A piece of a file that is only for tests; an equal key before and after means the same piece."""

    key: tuple[str, ...]
    start: int
    end: int


def splice_tests(old: bytes, new: bytes, path: str) -> bytes | None:
    """The new file with the old tests in it; None if neither has tests inside, or if it can't be parsed."""
    if path.endswith(".py"):
        return splice_python_tests(old, new)
    find = _FINDERS.get(path.rpartition(".")[2].lower())
    if find is None:
        return None
    try:
        before, after = _drop_inner(find(old, path)), _drop_inner(find(new, path))
    except RecursionError:
        return None
    spliced = _splice(old, new, before, after) if before or after else None
    if path.endswith(".rs") and (b"```" in old or b"```" in new):
        return restore_rust_examples(old, new if spliced is None else spliced)
    return spliced


def extract_tests(data: bytes, path: str) -> bytes:
    """Only the tests inside a source."""
    find = _FINDERS.get(path.rpartition(".")[2].lower())
    pieces = _drop_inner(find(data, path)) if find else []
    return b"\n".join(data[one.start : one.end] for one in pieces)


def remove_tests(data: bytes, path: str) -> bytes:
    """A source without the tests inside it."""
    find = _FINDERS.get(path.rpartition(".")[2].lower())
    parts, at = [], 0
    for one in _drop_inner(find(data, path)) if find else []:
        parts.append(data[at : one.start])
        at = one.end
    return b"".join([*parts, data[at:]])


def has_tests_inside(old: bytes, new: bytes, path: str, *, is_known: bool) -> bool:
    """Whether a source has tests inside. In Python any function may be named like one, so it counts only if known."""
    if path.endswith(".py"):
        return is_known and not is_python_test_module(old or new) and splice_python_tests(old, new) is not None
    return splice_tests(old, new, path) is not None


def is_test_module(path: str, data: bytes, *, is_known: bool) -> bool:
    """Whether a file has only tests, whatever its name: by the framework that it uses, or because that is known."""
    suffix = path.rpartition(".")[2].lower()
    if suffix == "py":
        return is_python_test_module(data) and (is_known or _PYTHON_FRAMEWORK.search(data) is not None)
    return suffix in _SCRIPTS and b"import.meta.vitest" not in data and _SCRIPT_FRAMEWORK.search(data) is not None


_SCRIPTS = ("js", "jsx", "mjs", "cjs", "ts", "mts", "cts", "tsx")
_PYTHON_FRAMEWORK = re.compile(rb"^\s*(?:import|from)\s+(?:pytest|unittest)\b", re.MULTILINE)
_SCRIPT_FRAMEWORK = re.compile(
    rb"""(?:\bfrom|\brequire\()\s*["'](?:node:test|vitest|@jest/globals|bun:test|ava|tape|mocha|uvu|@playwright/test)["']"""
    rb"""|^(?:describe|it|test)(?:\.\w+)?\(\s*["'`]""",
    re.MULTILINE,
)


def _drop_inner(found: Iterator[_InlineTest]) -> list[_InlineTest]:
    kept: list[_InlineTest] = []
    for one in sorted(found, key=lambda item: (item.start, -item.end)):
        if not kept or one.start >= kept[-1].end:
            kept.append(one)
    return kept


def _splice(old: bytes, new: bytes, before: Sequence[_InlineTest], after: Sequence[_InlineTest]) -> bytes:
    """Each old piece replaces its counterpart, or goes to the end; pieces that are only in the new file are removed."""
    waiting: dict[tuple[str, ...], list[bytes]] = {}
    for one in before:
        waiting.setdefault(one.key, []).append(old[one.start : one.end])
    parts, at = [], 0
    for one in after:
        parts.append(new[at : one.start])
        at = one.end
        if same := waiting.get(one.key):
            parts.append(same.pop(0))
    left = [text for texts in waiting.values() for text in texts]
    rest = new[at:]
    return b"".join(
        [*parts, rest, b"" if rest.endswith(b"\n") or not left else b"\n", *(text + b"\n" for text in left)]
    )


_COVERED = re.compile(
    rb"#\[\s*cfg\s*\(\s*(?:all\s*\(\s*)?test\b|#\[\s*(?:\w+::)*(?:test|rstest|test_case|wasm_bindgen_test|quickcheck)\b"
)
_RUST = "(attribute_item) @head"


def _find_rust(data: bytes, path: str) -> Iterator[_InlineTest]:
    for attribute in parse_source(data, path, _RUST)[1].get("head", []):
        if _COVERED.match(data, attribute.start_byte) and (item := _find_item(attribute)) is not None:
            start = _find_first_attribute(attribute)
            yield _InlineTest((*_list_modules(item), item.type, _name_item(data, item)), start, item.end_byte)


def _find_item(attribute: Node) -> Node | None:
    item = attribute.next_named_sibling
    while item is not None and (item.type == "attribute_item" or item.is_extra):
        item = item.next_named_sibling
    return item


def _find_first_attribute(attribute: Node) -> int:
    start, before = attribute.start_byte, attribute.prev_named_sibling
    while before is not None and (before.type == "attribute_item" or before.is_extra):
        start = before.start_byte if before.type == "attribute_item" else start
        before = before.prev_named_sibling
    return start


def _list_modules(item: Node) -> list[str]:
    found, above = [], item.parent
    while above is not None:
        name = above.child_by_field_name("name") if above.type in ("mod_item", "impl_item", "trait_item") else None
        found += [name.text.decode("utf-8", "replace")] if name is not None and name.text else []
        above = above.parent
    return found[::-1]


def _name_item(data: bytes, item: Node) -> str:
    name = item.child_by_field_name("name")
    node = item if name is None else name
    return data[node.start_byte : node.end_byte].decode("utf-8", "replace")


_SCRIPT = "(if_statement) @head"
_IN_SOURCE = re.compile(rb"if\s*\(\s*import\.meta\.vitest\b")


def _find_script(data: bytes, path: str) -> Iterator[_InlineTest]:
    if b"import.meta.vitest" not in data:
        return
    for node in parse_source(data, path, _SCRIPT)[1].get("head", []):
        if _IN_SOURCE.match(data, node.start_byte):
            yield _InlineTest(("vitest",), node.start_byte, node.end_byte)


_FINDERS: dict[str, Callable[[bytes, str], Iterator[_InlineTest]]] = {
    "rs": _find_rust,
    **dict.fromkeys(_SCRIPTS, _find_script),
}
