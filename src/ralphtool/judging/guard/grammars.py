"""The grammars of tree-sitter: each is loaded when the first file of its language is read."""

from __future__ import annotations

import importlib
import re
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Query

# The wheel and the function in it, by the suffix of a file.
_WHEELS = {
    **dict.fromkeys(("js", "jsx", "mjs", "cjs"), ("tree_sitter_javascript", "language")),
    **dict.fromkeys(("ts", "mts", "cts"), ("tree_sitter_typescript", "language_typescript")),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
    "go": ("tree_sitter_go", "language"),
    "rs": ("tree_sitter_rust", "language"),
    "java": ("tree_sitter_java", "language"),
    **dict.fromkeys(("kt", "kts"), ("tree_sitter_kotlin", "language")),
    "rb": ("tree_sitter_ruby", "language"),
    "php": ("tree_sitter_php", "language_php"),
}


class _Grammar(Struct, frozen=True):
    """A loaded language, with the query for the nodes of interest."""

    parser: Parser
    query: Query
    errors: Query


@cache
def _load_grammar(wheel: str, function: str, query: str) -> _Grammar:
    from tree_sitter import Language, Parser, Query

    language = Language(getattr(importlib.import_module(wheel), function)())
    return _Grammar(Parser(language), Query(language, query), Query(language, "[(ERROR) (MISSING)] @error"))


def parse_source(data: bytes, path: str, query: str) -> tuple[Node, dict[str, list[Node]]]:
    """The tree of a file, and the nodes in it that a query captures, by the names of the captures.

    Raises RecursionError if it is too long, too deep or too broken: a parser that recovers from errors may need
    minutes for a file that is full of them, and can't be interrupted.
    """
    from tree_sitter import QueryCursor

    grammar = _load_grammar(*_WHEELS[path.rpartition(".")[2].lower()], query)
    if not _is_balanced(data) or len(data) > _LONGEST or _is_broken(data, grammar):
        raise RecursionError("this is too long or too malformed to be parsed")
    root = grammar.parser.parse(data).root_node
    if _is_deep(root):
        raise RecursionError("this is nested too deeply")
    return root, QueryCursor(grammar.query).captures(root)


_LONGEST = 200_000
_FIRST_LOOK = 6_000
_MOST_OPEN = 100
_DEEPEST = 500
_STEP = 1000
_OPERATORS = re.compile(rb"[-+!~*&<]{200}")


def _is_balanced(data: bytes) -> bool:
    pairs = ((b"(", b")"), (b"[", b"]"), (b"{", b"}"), (b"/*", b"*/"))
    if _OPERATORS.search(data):
        return False
    return all(data.count(opening) - data.count(closing) < _MOST_OPEN for opening, closing in pairs)


def _is_broken(data: bytes, grammar: _Grammar) -> bool:
    """Parses longer and longer prefixes, to stop before it takes long."""
    from tree_sitter import QueryCursor

    size = _FIRST_LOOK
    while size < len(data):
        root = grammar.parser.parse(data[:size]).root_node
        errors = [] if _is_deep(root) else QueryCursor(grammar.errors).captures(root).get("error", [])
        if len(errors) + max((one.named_child_count for one in errors), default=0) > size // 60:
            return True
        size *= 2
    return False


def _is_deep(root: Node) -> bool:
    """The time of a query grows with the square of the tree's depth."""
    cursor = root.walk()
    for number in range(_STEP, root.descendant_count, _STEP):
        cursor.goto_descendant(number)
        if cursor.depth > _DEEPEST:
            return True
    return False
