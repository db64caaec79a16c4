"""Files that hold source and tests: the new source with the tests as they were.

Rust: what `#[cfg(test)]` covers, and single functions marked as tests. JavaScript and TypeScript: Vitest's
`if (import.meta.vitest) { … }`. Tests in comments (doctests of Python, Rust and Elixir) stay with their source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.judging.guard.grammars import parse_source

if TYPE_CHECKING:
    from tree_sitter import Node


class _InlineTest(Struct, frozen=True):
    """A piece of a file that is there for tests only; equal keys are the same piece, before and after."""

    key: tuple[str, ...]
    start: int
    end: int


def splice_tests(old: bytes, new: bytes, path: str) -> bytes | None:
    """The new file with the old tests in it; None where neither has tests inside, or where it can't be parsed."""
    find = _FINDERS.get(path.rpartition(".")[2].lower())
    if find is None:
        return None
    try:
        before, after = _drop_inner(find(old, path)), _drop_inner(find(new, path))
    except RecursionError:
        return None
    return _splice(old, new, before, after) if before or after else None


def _drop_inner(found: Iterator[_InlineTest]) -> list[_InlineTest]:
    kept: list[_InlineTest] = []
    for one in sorted(found, key=lambda item: (item.start, -item.end)):
        if not kept or one.start >= kept[-1].end:
            kept.append(one)
    return kept


def _splice(old: bytes, new: bytes, before: Sequence[_InlineTest], after: Sequence[_InlineTest]) -> bytes:
    """Each piece goes where its counterpart is, or to the end; what is only in the new file goes."""
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
    **dict.fromkeys(("js", "jsx", "mjs", "cjs", "ts", "mts", "cts", "tsx"), _find_script),
}
