"""Java: JUnit, TestNG, AssertJ, Hamcrest, Mockito."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ralphtool.judging.guard.languages.annotated import FunctionHeads, read_modifiers
from ralphtool.judging.guard.source_tree import Link, SourceTree, list_arguments
from ralphtool.judging.guard.tree_reader import Head, TreeLanguage

if TYPE_CHECKING:
    from tree_sitter import Node

HEADS = FunctionHeads(
    named=re.compile(r"test(?:[A-Z_]|\Z)"),
    marked=re.compile(r"@(?:\w+\.)*(?:Test|ParameterizedTest|RepeatedTest|TestFactory|TestTemplate|Property)\b"),
    skipped=re.compile(r"@(?:Disabled\w*|Ignore\b|EnabledIf\w*|EnabledOn\w*)|\benabled\s*=\s*false"),
)
ASSERTING = re.compile(
    r"(?:\A|(?<=\.))(?!assert(?:All|Softly)\b)assert\w*|\A(?:\w+\.)?(?:verify|expect|fail)(?=[A-Z.]|\Z)\w*"
)
SKIPPING = re.compile(r"(?:\A|\.)assume(?:True|False|That)\b")


def _split_link(tree: SourceTree, node: Node) -> Link | None:
    if node.type == "method_invocation":
        name, given = node.child_by_field_name("name"), node.child_by_field_name("arguments")
        return Link(
            node.child_by_field_name("object"), tree.get_text(name) if name else "", list_arguments(given), node
        )
    if node.type == "field_access":
        name = node.child_by_field_name("field")
        return Link(node.child_by_field_name("object"), tree.get_text(name) if name else "", None, node)
    return Link(None, tree.get_text(node), None, node) if node.type in ("identifier", "this", "super") else None


def _find_head(tree: SourceTree, node: Node) -> Head | None:
    is_group = node.type != "method_declaration"
    return HEADS.build(tree, node, read_modifiers(tree, node), node.start_byte, is_group=is_group)


LANGUAGE = TreeLanguage(
    query="""
        [(line_comment) (block_comment)] @comment (method_invocation) @call (if_statement) @condition
        [(method_declaration) (class_declaration) (interface_declaration) (record_declaration)] @head
    """,
    split=_split_link,
    find_head=_find_head,
    asserting=ASSERTING,
    skipping=SKIPPING,
)
