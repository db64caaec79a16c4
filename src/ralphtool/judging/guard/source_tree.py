"""A file as a syntax tree, and the chains of calls in it: `expect(a).not.toBe(3)`."""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.judging.guard.grammars import parse_source

if TYPE_CHECKING:
    from tree_sitter import Node

_DEAD = re.compile(rb"\bif\s*\(?\s*(?:false|0)\b")
_LONGEST_CHAIN = 200


class SourceTree:
    """`code` is the file with its comments blanked, so that byte offsets stay the same."""

    def __init__(self, text: str, path: str, query: str) -> None:
        self.data = text.encode("utf-8", "replace")
        self.root, found = parse_source(self.data, path, query)
        self.code = _blank(self.data, found.get("comment", []))
        self.dead = sorted(self._find_dead(found.get("condition", []))) if _DEAD.search(self.data) else []
        self.calls = self._sort(found.get("call", []))
        self.starts = [call.start_byte for call in self.calls]
        self.heads = self._sort(found.get("head", []))

    def _find_dead(self, conditions: Sequence[Node]) -> Iterator[tuple[int, int]]:
        """Code inside `if (false) { … }` counts as a comment."""
        for node in conditions:
            said, block = node.child_by_field_name("condition"), node.child_by_field_name("consequence")
            said = said or (node.named_children[0] if node.named_children else None)
            if said and self.get_text(said).strip("() ") in ("false", "0"):
                block = block or (node.named_children[1] if node.named_child_count > 1 else node)
                yield block.start_byte, block.end_byte

    def _sort(self, nodes: Sequence[Node]) -> list[Node]:
        live = [node for node in nodes if not self.is_dead(node)] if self.dead else nodes
        return sorted(live, key=lambda node: (node.start_byte, -node.end_byte))

    def is_dead(self, node: Node) -> bool:
        at = bisect.bisect_right(self.dead, (node.start_byte, len(self.data) + 1)) - 1
        return at >= 0 and node.start_byte < self.dead[at][1]

    def get_text(self, node: Node) -> str:
        """Its text, on one line and without comments."""
        return " ".join(
            self.code[node.start_byte : min(node.end_byte, node.start_byte + 4000)].decode("utf-8", "replace").split()
        )

    def list_lines(self, start: int, end: int) -> tuple[str, ...]:
        text = self.code[start:end].decode("utf-8", "replace")
        return tuple(line for line in (one.strip() for one in text.split("\n")) if line)

    def list_calls(self, node: Node) -> list[Node]:
        """The calls inside a node: of those with the same start only the longest, which contains the others."""
        first = bisect.bisect_left(self.starts, node.start_byte)
        last = bisect.bisect_left(self.starts, node.end_byte)
        return [self.calls[at] for at in range(first, last) if at == first or self.starts[at] != self.starts[at - 1]]


def _blank(data: bytes, comments: Sequence[Node]) -> bytes:
    code = bytearray(data)
    for node in comments:
        start, end = node.start_byte, node.end_byte
        code[start:end] = b"\n".join(b" " * len(line) for line in data[start:end].split(b"\n"))
    return bytes(code)


class Link(Struct, frozen=True):
    """One step of a chain: `.toBe(3)`. `arguments` is None if nothing is called."""

    receiver: Node | None
    name: str
    arguments: Sequence[Node] | None
    node: Node


Splitter = Callable[[SourceTree, "Node"], Link | None]
"""Takes the last link off a chain; None where it is no chain."""


def unroll_chain(tree: SourceTree, node: Node, split: Splitter) -> list[Link]:
    """The links of a chain, in order."""
    links: list[Link] = []
    at: Node | None = node
    while at is not None and len(links) < _LONGEST_CHAIN and (link := split(tree, at)):
        links.append(link)
        at = link.receiver
    return links[::-1]


def list_arguments(node: Node | None) -> Sequence[Node]:
    """The arguments of a call, without comments."""
    return [one for one in node.named_children if not one.is_extra] if node else []
