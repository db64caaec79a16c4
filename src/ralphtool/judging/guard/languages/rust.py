"""Rust: tests may be anywhere in the source, and assertions are macros."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ralphtool.judging.guard.languages.annotated import FunctionHeads
from ralphtool.judging.guard.model import EXACT, Assertion
from ralphtool.judging.guard.source_tree import Link, SourceTree, list_arguments
from ralphtool.judging.guard.tree_reader import Head, TreeLanguage

if TYPE_CHECKING:
    from tree_sitter import Node

_HEADS = FunctionHeads(
    marked=re.compile(r"#\[\s*(?:\w+::)*(?:test|rstest|test_case|wasm_bindgen_test|quickcheck|bench)\b"),
    skipped=re.compile(r"#\[\s*(?:ignore|cfg_attr\([^\]\n]*ignore|cfg\((?:any\(\)|FALSE|not\(test\)))"),
    rows=re.compile(r"#\[\s*(?:case|test_case)\b"),
)
_PANICS = re.compile(r"should_panic(?:\s*\([^\]]*\)|\s*=[^\]]*)?")


def _split_link(tree: SourceTree, node: Node) -> Link | None:
    if node.type == "macro_invocation":
        name, tokens = node.child_by_field_name("macro"), node.named_children[-1]
        return Link(None, tree.get_text(name).rpartition("::")[2] + "!" if name else "", _split_tokens(tokens), node)
    if node.type == "call_expression":
        function, given = node.child_by_field_name("function"), list_arguments(node.child_by_field_name("arguments"))
        inner = _split_link(tree, function) if function is not None else None
        return Link(inner.receiver, inner.name, given, node) if inner else None
    if node.type == "field_expression":
        name = node.child_by_field_name("field")
        return Link(node.child_by_field_name("value"), tree.get_text(name) if name else "", None, node)
    known = node.type in ("identifier", "scoped_identifier", "self")
    return Link(None, tree.get_text(node).rpartition("::")[2], None, node) if known else None


class _Tokens:
    """The tokens between two commas of a macro: not a node of the tree, but with a position like one."""

    type = "tokens"
    named_child_count = 0

    def __init__(self, first: Node, last: Node) -> None:
        self.start_byte, self.end_byte = first.start_byte, last.end_byte


def _split_tokens(tokens: Node) -> list[Node]:
    found: list[list[Node]] = [[]]
    for child in tokens.children[1:-1]:
        if child.type == ",":
            found.append([])
        elif not child.is_extra:
            found[-1].append(child)
    return [_Tokens(part[0], part[-1]) for part in found if part]  # type: ignore[misc]


def _find_head(tree: SourceTree, node: Node) -> Head | None:
    said, start = read_attributes(tree, node)
    is_group = node.type != "function_item"
    head = _HEADS.build(tree, node, said, start, is_group=is_group)
    panics = _PANICS.search(said)
    if head and panics and not is_group:
        head.checks = [Assertion(f"#[{panics[0]}]", (), EXACT, raises=("panic",), matched='"' in panics[0])]
    return head


def read_attributes(tree: SourceTree, node: Node) -> tuple[str, int]:
    """The attributes before an item, and where they begin."""
    found, start, before = [], node.start_byte, node.prev_named_sibling
    while before is not None and (before.type == "attribute_item" or before.is_extra):
        if before.type == "attribute_item":
            found.append(tree.get_text(before))
            start = before.start_byte
        before = before.prev_named_sibling
    return " ".join(reversed(found)), start


LANGUAGE = TreeLanguage(
    query="""
        [(line_comment) (block_comment)] @comment [(call_expression) (macro_invocation)] @call
        (if_expression) @condition
        [(function_item) (mod_item) (impl_item) (trait_item)] @head
    """,
    split=_split_link,
    find_head=_find_head,
    asserting=re.compile(r"\A(?:\w+_)?assert\w*!\Z"),
    skipping=re.compile(r"\A(?!)"),
    file_skips=re.compile(r"#!\[cfg\([^\n]*"),
    failing=re.compile(r"\?(?=\s*[;.,)}])|\.(?:unwrap|expect)\w*\(|\b(?:panic|unreachable|todo|unimplemented)!"),
)
