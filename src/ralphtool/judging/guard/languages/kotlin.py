"""Kotlin: JUnit, kotlin.test, Kotest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ralphtool.judging.guard.languages.annotated import read_modifiers
from ralphtool.judging.guard.languages.called import CallHeads
from ralphtool.judging.guard.languages.java import ASSERTING, HEADS, SKIPPING
from ralphtool.judging.guard.source_tree import Link, SourceTree, list_arguments
from ralphtool.judging.guard.tree_reader import Head, TreeLanguage

if TYPE_CHECKING:
    from tree_sitter import Node


def _split_link(tree: SourceTree, node: Node) -> Link | None:
    if node.type == "call_expression":
        return _split_call(tree, node)
    if node.type == "infix_expression" and node.named_child_count == 3:  # x shouldBe 3
        receiver, name, argument = node.named_children
        return Link(receiver, tree.get_text(name), [argument], node)
    if node.type == "navigation_expression" and node.named_child_count > 1:
        return Link(node.named_children[0], tree.get_text(node.named_children[-1]), None, node)
    known = node.type in ("identifier", "this_expression", "super_expression")
    return Link(None, tree.get_text(node), None, node) if known else None


def _split_call(tree: SourceTree, node: Node) -> Link | None:
    """Parentheses with a block after them are two nested calls in the tree: they are one here."""
    function, arguments = node, list["Node"]()
    while function.type == "call_expression" and function.named_child_count:
        given = function.named_children[-1]
        lists = given.type == "value_arguments"
        arguments = [*(list_arguments(given) if lists else [given]), *arguments]
        function = function.named_children[0]
        if lists:
            break
    inner = _split_link(tree, function)
    return Link(inner.receiver, inner.name, arguments, node) if inner else Link(function, "", arguments, node)


_CALLED = CallHeads(
    split=_split_link,
    begins=re.compile(rb"[xf]?(?:it|test|describe|context|should|feature|scenario|given)\b"),
    functions=frozenset(("annotated_lambda", "lambda_literal", "anonymous_function")),
    rows=frozenset(),
)


def _find_head(tree: SourceTree, node: Node) -> Head | None:
    if node.type == "call_expression":
        return _CALLED.find(tree, node)
    is_group = node.type != "function_declaration"
    return HEADS.build(tree, node, read_modifiers(tree, node), node.start_byte, is_group=is_group)


LANGUAGE = TreeLanguage(
    query="""
        [(line_comment) (block_comment)] @comment (call_expression) @call @head (infix_expression) @call
        (if_expression) @condition [(function_declaration) (class_declaration) (object_declaration)] @head
    """,
    split=_split_link,
    find_head=_find_head,
    asserting=re.compile(rf"{ASSERTING.pattern}|(?<=\.)should[A-Z]\w*"),
    skipping=SKIPPING,
)
