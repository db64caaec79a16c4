"""Go: testing, testify and similar packages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ralphtool.judging.guard.assertions import parse_claim, parse_failing_branch
from ralphtool.judging.guard.languages.annotated import FunctionHeads
from ralphtool.judging.guard.model import EXACT, Assertion
from ralphtool.judging.guard.source_tree import Link, SourceTree, list_arguments
from ralphtool.judging.guard.tree_reader import Head, TreeLanguage, build_claim

if TYPE_CHECKING:
    from tree_sitter import Node

_HEADS = FunctionHeads(named=re.compile(r"(?:Test|Fuzz|Example)(?![a-z])(?!Main\Z)"))
_COMPARED = re.compile(r":= (?:cmp|deep|pretty)\.(?:Diff|Equal|Compare)\((.*)\)\Z")
_OUTPUT = re.compile(rb"(?i)//\s*(?:unordered )?output:")
_FAILING = {"Error", "Errorf", "Fatal", "Fatalf", "Fail", "FailNow"}


def _split_link(tree: SourceTree, node: Node) -> Link | None:
    if node.type == "call_expression":
        function, given = node.child_by_field_name("function"), list_arguments(node.child_by_field_name("arguments"))
        inner = _split_link(tree, function) if function is not None else None
        return Link(inner.receiver, inner.name, given, node) if inner else None
    if node.type == "selector_expression":
        name = node.child_by_field_name("field")
        return Link(node.child_by_field_name("operand"), tree.get_text(name) if name else "", None, node)
    return Link(None, tree.get_text(node), None, node) if node.type == "identifier" else None


def _find_head(tree: SourceTree, node: Node) -> Head | None:
    head = _HEADS.build(tree, node, "", node.start_byte)
    if head and head.kind == "test" and head.name.startswith("Example"):
        head.doubts = ["output"] if _OUTPUT.search(tree.data, node.start_byte, node.end_byte) else []
    return head


def _parse_call(tree: SourceTree, links: Sequence[Link], index: int) -> Assertion | None:
    if links[-1].name not in _FAILING or links[0].name in ("assert", "require"):
        return parse_claim(build_claim(tree, links, index))
    condition = _find_condition(tree, links[-1].node)
    return parse_failing_branch(condition) if condition else Assertion(tree.get_text(links[-1].node), (), EXACT)


def _find_condition(tree: SourceTree, node: Node) -> str:
    """The condition of the branch whose first statement is a call."""
    block = node.parent
    while block is not None and block.type in ("expression_statement", "statement_list"):
        block = block.parent
    branch = block.parent if block is not None else None
    if branch is None or branch.type != "if_statement" or branch.child_by_field_name("consequence") != block:
        return ""
    said, first = branch.child_by_field_name("condition"), branch.child_by_field_name("initializer")
    compared = _COMPARED.search(tree.get_text(first)) if first is not None else None
    if compared:  # if diff := cmp.Diff(want, got); diff != ""
        return f"!cmp.Equal({compared[1]})"
    return tree.get_text(said) if said is not None else ""


LANGUAGE = TreeLanguage(
    query="""
        (comment) @comment (call_expression) @call (if_statement) @condition
        [(function_declaration) (method_declaration)] @head
    """,
    split=_split_link,
    find_head=_find_head,
    asserting=re.compile(
        r"\A(?:(?:t|tb|f)\.(?:Errorf?|Fatalf?|Fail|FailNow)|(?:assert|require|is|qt|c|s)\.(?=[A-Z]))(?![a-z])"
    ),
    skipping=re.compile(r"\A(?:t|tb|f|b|s\.T)\.Skip"),
    parse_call=_parse_call,
    failing=re.compile(r"\bpanic\(|\bMust\w*\("),
    file_skips=re.compile(r"^//\s?(?:go:build|\+build)\s[^\n]+", re.MULTILINE),
)
