"""PHP: PHPUnit, Pest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ralphtool.judging.guard.languages.annotated import FunctionHeads
from ralphtool.judging.guard.languages.called import CallHeads
from ralphtool.judging.guard.source_tree import Link, SourceTree, list_arguments
from ralphtool.judging.guard.tree_reader import Head, TreeLanguage

if TYPE_CHECKING:
    from tree_sitter import Node

_CALLS = (
    "function_call_expression",
    "member_call_expression",
    "scoped_call_expression",
    "nullsafe_member_call_expression",
)
_HEADS = FunctionHeads(
    named=re.compile(r"test(?![a-z])"),
    marked=re.compile(r"#\[\s*\\?(?:\w+\\)*Test\b|@test\b"),
    skipped=re.compile(r"@requires\b|#\[Requires\w*"),
    rows=re.compile(r"#\[TestWith|@testWith"),
)


def _split_link(tree: SourceTree, node: Node) -> Link | None:
    if node.type in _CALLS or node.type in ("member_access_expression", "class_constant_access_expression"):
        return _split_member(tree, node)
    known = node.type in ("name", "variable_name", "relative_scope", "qualified_name")
    return Link(None, tree.get_text(node).lstrip("$\\"), None, node) if known else None


def _split_member(tree: SourceTree, node: Node) -> Link:
    name = node.child_by_field_name("name") or node.child_by_field_name("function")
    receiver = node.child_by_field_name("object") or node.child_by_field_name("scope")
    arguments = list_arguments(node.child_by_field_name("arguments")) if node.type in _CALLS else None
    return Link(receiver, tree.get_text(name).lstrip("\\") if name is not None else "", arguments, node)


_CALLED = CallHeads(
    split=_split_link,
    begins=re.compile(rb"(?:it|test|describe|arch)\b"),
    functions=frozenset(("anonymous_function", "arrow_function", "anonymous_function_creation_expression")),
    rows=frozenset(("array_creation_expression",)),
)


def _find_head(tree: SourceTree, node: Node) -> Head | None:
    if node.type == "function_call_expression":
        return _CALLED.find(tree, node)
    before = node.prev_named_sibling
    comment = before if before is not None and before.type == "comment" else None
    start = comment.start_byte if comment is not None else node.start_byte
    said = tree.data[start : node.end_byte if node.type == "class_declaration" else _find_start(node)]
    is_group = node.type not in ("method_declaration", "function_definition")
    return _HEADS.build(tree, node, said.decode("utf-8", "replace") if not is_group else "", start, is_group=is_group)


def _find_start(node: Node) -> int:
    """Where the body begins: attributes and comments come before it."""
    body = node.child_by_field_name("body")
    return body.start_byte if body is not None else node.end_byte


LANGUAGE = TreeLanguage(
    query=f"""
        (comment) @comment (function_call_expression) @head [{" ".join(f"({one})" for one in _CALLS)}] @call
        (if_statement) @condition
        [(method_declaration) (function_definition) (class_declaration) (trait_declaration)] @head
    """,
    split=_split_link,
    find_head=_find_head,
    asserting=re.compile(
        r"\A(?:this|self|static|(?:\w+\\)*Assert)\.(?:assert\w+|expectException\w*|fail)|\Aexpect(?=\Z|\.)|\Aassert\w*(?=\Z|\.)"
    ),
    skipping=re.compile(r"\.markTest(?:Skipped|Incomplete)\Z"),
)
