"""Tests that are functions, marked by their names or by annotations before them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.judging.guard.model import MANY, shorten
from ralphtool.judging.guard.source_tree import SourceTree
from ralphtool.judging.guard.tree_reader import Head

if TYPE_CHECKING:
    from tree_sitter import Node

_PROVIDED = re.compile(r"[pP]rovider|MethodSource|MemberData|ClassData|Source\b|Sources\b|arguments:|values")


class FunctionHeads(Struct, frozen=True):
    """Distinguishes tests from other functions; `said` is the text of their annotations."""

    named: re.Pattern[str] | None = None
    """The names of tests."""
    marked: re.Pattern[str] | None = None
    """The annotations of tests."""
    skipped: re.Pattern[str] | None = None
    """The annotations that skip a test or a class."""
    rows: re.Pattern[str] | None = None
    """The annotations that are one case each."""

    def build(self, tree: SourceTree, node: Node, said: str, start: int, *, is_group: bool = False) -> Head | None:
        name, body = node.child_by_field_name("name"), _find_body(node)
        if name is None or body is None:
            return None
        shown = tree.get_text(name).strip("`")
        head = Head(shown, node, kind="group" if is_group else "test", start=start, body=body)
        if not is_group and not self._is_test(shown, said):
            head.kind = "function"
        head.skips = {_clean(one): shorten(one) for one in self._find_skips(said)}
        head.cases = 1 if is_group else self._count_cases(said)
        return head

    def _is_test(self, name: str, said: str) -> bool:
        by_name = self.named is not None and self.named.match(name)
        return bool(by_name or (self.marked is not None and self.marked.search(said)))

    def _find_skips(self, said: str) -> list[str]:
        return [match[0] for match in self.skipped.finditer(said)] if self.skipped else []

    def _count_cases(self, said: str) -> int:
        rows = len(self.rows.findall(said)) if self.rows else 0
        return MANY if _PROVIDED.search(said) else max(1, rows)


def _find_body(node: Node) -> Node | None:
    body = node.child_by_field_name("body")
    if body is None:
        body = next((one for one in node.named_children if one.type in ("function_body", "class_body")), None)
    return body


def _clean(text: str) -> str:
    return re.sub(r"[^\w.]+", "", text)


_STRING = re.compile(r'"(?:\\.|[^"\\])*"')


def read_modifiers(tree: SourceTree, node: Node) -> str:
    """The modifiers of a declaration in Java or Kotlin, with their strings emptied."""
    found = next((one for one in node.children if one.type == "modifiers"), None)
    return _STRING.sub('""', tree.get_text(found)) if found is not None else ""
