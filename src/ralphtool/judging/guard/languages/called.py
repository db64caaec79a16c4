"""Tests that are calls: `it("does", () => { … })`, as in JavaScript, Pest and Kotest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.judging.guard.model import MANY
from ralphtool.judging.guard.source_tree import Link, SourceTree, Splitter, unroll_chain
from ralphtool.judging.guard.tree_reader import Head

if TYPE_CHECKING:
    from tree_sitter import Node

_MODIFIERS = {"concurrent", "sequential", "serial", "parallel", "shuffle", "each", "for", "only", "describe", "slow"}
_MODIFIERS |= {"test", "extend", "with"}
_OFF = {"skip", "todo", "fixme", "fails", "failing", "skipIf", "runIf", "if", "ignore"}
_TABLES = {"each", "for", "with"}
_GROUP = re.compile(r"describe|context|suite")
_BASE = re.compile(r"[xf]?(?:it|test|describe|context|arch)|specify|suite|Deno|QUnit|t|should|feature|scenario|given")
_FOCUSED = {"fit", "fdescribe", "fcontext", "ftest"}


class CallHeads(Struct, frozen=True):
    """Finds such tests in a language by its node types."""

    split: Splitter
    begins: re.Pattern[bytes]
    """What such a call begins with: most calls are something else."""
    functions: frozenset[str]
    rows: frozenset[str]
    """The nodes that are tables of cases."""

    def find(self, tree: SourceTree, node: Node) -> Head | None:
        if not self.begins.match(tree.data, node.start_byte):
            return None
        links = unroll_chain(tree, node, self.split)
        words = [link.name for link in links if link.name]
        if not words or not _BASE.fullmatch(words[0]) or set(words[1:]) - _MODIFIERS - _OFF:
            return None
        return self._build(tree, links, words)

    def _build(self, tree: SourceTree, links: Sequence[Link], words: Sequence[str]) -> Head | None:
        arguments = [_unwrap(one) for one in links[-1].arguments or ()]
        function = next((one for one in arguments if one.type in self.functions), None)
        if not arguments or (links[0].name in ("Deno", "QUnit", "t") and len(words) == 1):
            return None
        named = _STRING.search(arguments[0].type) is not None
        if not named and (function is None or len(arguments) < 2):
            return None  # `test.skip(condition, "reason")` inside a test: a skip; `it.each(table)`: half a head
        return self._build_head(tree, links, words, arguments[0], function)

    def _build_head(
        self, tree: SourceTree, links: Sequence[Link], words: Sequence[str], name: Node, function: Node | None
    ) -> Head:
        is_test = not any(_GROUP.search(word) for word in words)
        after = _find_following(tree, links[-1].node)
        skips = {}
        if _OFF & {*words, *after} or words[0].startswith("x"):
            skips["skip"] = ".".join([*words, *after])
        elif is_test and function is None:
            skips["skip"] = "it has no body"
        return Head(
            tree.get_text(name).strip("\"'`")[:200],
            links[-1].node,
            kind="test" if is_test else "group",
            body=function.child_by_field_name("body") or function if function is not None else None,
            skips=skips,
            cases=self._count_cases(links),
            focused="only" in words or words[0] in _FOCUSED,
        )

    def _count_cases(self, links: Sequence[Link]) -> int:
        table = next((link.arguments for link in links if link.name in _TABLES and link.arguments), None)
        if not table:
            return 1
        first = _unwrap(table[0])
        if first.type == "template_string":
            return max(1, first.end_point[0] - first.start_point[0] - 2)
        return max(1, first.named_child_count) if first.type in self.rows else MANY


_STRING = re.compile(r"string|heredoc")


def _unwrap(node: Node) -> Node:
    """PHP and Kotlin wrap arguments in nodes."""
    while node.type in ("argument", "value_argument", "as_expression", "annotated_lambda") and node.named_child_count:
        node = node.named_children[-1] if node.type == "annotated_lambda" else node.named_children[0]
    return node


def _find_following(tree: SourceTree, node: Node) -> list[str]:
    """The words that follow the call, such as `->skip()`."""
    found: list[str] = []
    while (parent := node.parent) is not None and parent.type in ("member_call_expression", "member_expression"):
        name = parent.child_by_field_name("name") or parent.child_by_field_name("property")
        found += [tree.get_text(name)] if name is not None else []
        node = parent
    return [word for word in found if word in _OFF]
