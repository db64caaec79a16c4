"""JavaScript, TypeScript, TSX: Jest, Vitest, Mocha, node:test, Playwright, AVA, Chai, supertest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ralphtool.judging.guard.languages.called import CallHeads
from ralphtool.judging.guard.source_tree import Link, SourceTree, list_arguments
from ralphtool.judging.guard.tree_reader import Head, TreeLanguage

if TYPE_CHECKING:
    from tree_sitter import Node

_FUNCTIONS = ("function_declaration", "method_definition", "variable_declarator")


def split_link(tree: SourceTree, node: Node) -> Link | None:
    """Splits the last link off a chain in JavaScript."""
    if node.type == "call_expression":
        return _split_call(tree, node)
    if node.type == "member_expression":
        name = node.child_by_field_name("property")
        return Link(node.child_by_field_name("object"), tree.get_text(name) if name else "", None, node)
    if node.type in ("identifier", "this", "super"):
        return Link(None, tree.get_text(node), None, node)
    if node.type in ("await_expression", "non_null_expression") and node.named_child_count:
        return split_link(tree, node.named_children[0])
    return None


def _split_call(tree: SourceTree, node: Node) -> Link | None:
    function, given = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    if function is None:
        return None
    arguments = [given] if given is not None and given.type == "template_string" else list_arguments(given)
    if function.type == "identifier":
        return Link(None, tree.get_text(function), arguments, node)
    if function.type == "member_expression":
        name = function.child_by_field_name("property")
        return Link(function.child_by_field_name("object"), tree.get_text(name) if name else "", arguments, node)
    return Link(function, "", arguments, node)  # it.each(table)("name", …)


_CALLED = CallHeads(
    split=split_link,
    begins=re.compile(rb"[xf]?(?:it|test|describe|context)\b|specify\b|suite\b|Deno\.|QUnit\.|t\.test\b"),
    functions=frozenset(("arrow_function", "function_expression", "function", "generator_function")),
    rows=frozenset(("array",)),
)


def _find_head(tree: SourceTree, node: Node) -> Head | None:
    if node.type == "call_expression":
        return _CALLED.find(tree, node)
    name = node.child_by_field_name("name")
    value = node.child_by_field_name("value") if node.type == "variable_declarator" else node
    body = value.child_by_field_name("body") if value is not None else None
    if name is None or body is None:
        return None
    return Head(tree.get_text(name), node, kind="function", body=body)


LANGUAGE = TreeLanguage(
    query=f"""
        (comment) @comment (call_expression) @call @head (if_statement) @condition
        [{" ".join(f"({one})" for one in _FUNCTIONS)}] @head
    """,
    split=split_link,
    find_head=_find_head,
    asserting=re.compile(
        r"\A(?:expect(?:\.soft|\.poll)?(?=\Z|\.(?!any\b|anything\b|extend\b|(?:not\.)?(?:object|array|string)\w*\Z|assertions\b"
        r"|hasAssertions\b|addSnapshotSerializer\b))|expectTypeOf|assert(?=\Z|\.)|t\.(?:is|not|deepEqual|truthy|falsy|true|false|throws\w*"
        r"|like|equal|ok|same|notThrows\w*|regex|snapshot)\b)|(?<=\.)(?:should|expect)(?=\Z|\.)"
    ),
    skipping=re.compile(r"\A(?:this|ctx|context|t|test|testInfo)\.(?:skip|fixme|fail)\Z|\Apending\Z"),
    failing=re.compile(r"\bthrow\b|\b(?:get|find)(?:All)?By[A-Z]\w*\("),  # Testing Library: they throw
)
