"""Configuration that is code: `jest.config.js` and similar files by tree-sitter, `conftest.py` by Python's parser."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.judging.guard.source_tree import SourceTree

if TYPE_CHECKING:
    from tree_sitter import Node

_QUERY = "(comment) @comment (pair) @head"


class Setting(Struct, frozen=True):
    """A key with its value: the strings of a list, or a text. `inside` has the keys around it."""

    key: str
    value: str | list[str]
    inside: frozenset[str]


def list_settings(text: str, path: str) -> Iterator[Setting]:
    """The settings of a configuration in JavaScript, as far as they are literals."""
    try:
        tree = SourceTree(text, path, _QUERY)
    except RecursionError:
        return
    for node in tree.heads:
        key, value = node.child_by_field_name("key"), node.child_by_field_name("value")
        if key is not None and value is not None:
            yield Setting(
                _unquote(tree.get_text(key)), _read_value(tree, value), frozenset(_list_outer_keys(tree, node))
            )


def _read_value(tree: SourceTree, value: Node) -> str | list[str]:
    if value.type == "array":
        return [_unquote(tree.get_text(one)) for one in value.named_children if not one.is_extra]
    return _unquote(tree.get_text(value))


def _unquote(text: str) -> str:
    return text.strip("\"'`/")


def _list_outer_keys(tree: SourceTree, node: Node) -> Iterator[str]:
    above = node.parent
    for _ in range(60):
        if above is None:
            return
        if above.type == "pair" and (key := above.child_by_field_name("key")) is not None:
            yield _unquote(tree.get_text(key))
        above = above.parent


_HOOKS = re.compile(
    r"pytest_(?:collection_modifyitems|ignore_collect|deselected|pyfunc_call|runtest_(?:protocol|setup|call|makereport)"
    r"|sessionfinish|report_teststatus|collection|pycollect_makeitem|exception_interact|runtestloop|cmdline_main)\Z"
)
_REPLACED = {"exitstatus", "runtest", "outcome", "runtestprotocol", "failed"}
_MARKED = re.compile(r"\b(?:skip|xfail)")


def find_hooks(text: str) -> list[tuple[str, str]] | None:
    """How a conftest.py affects collecting, running and reporting tests; None if it can't be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
        return [found for node in ast.walk(tree) for found in _read_node(node)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _read_node(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _HOOKS.match(node.name):
        yield node.name, ""
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from _read_assignment(target, node.value)
    elif isinstance(node, ast.Call):
        yield from _read_call(node)


def _read_assignment(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[str, str]]:
    if isinstance(target, ast.Name) and target.id.startswith("collect_ignore"):
        named = [one.value for one in ast.walk(value) if isinstance(one, ast.Constant)] if value else []
        for one in [name for name in named if isinstance(name, str)] or [""]:
            yield target.id, one
    elif isinstance(target, ast.Attribute) and target.attr in _REPLACED:
        yield f"{ast.unparse(target)} =", ""


def _read_call(node: ast.Call) -> Iterator[tuple[str, str]]:
    name = ast.unparse(node.func)
    if name in ("os._exit", "sys.exit", "exit", "quit") or name.endswith(("pytest_deselected", ".deselect")):
        yield name, ""
    elif name.endswith("add_marker") and node.args and _MARKED.search(ast.unparse(node.args[0])):
        yield f"add_marker {ast.unparse(node.args[0])[:60]}", ""
    elif name == "setattr" and len(node.args) > 1 and ast.unparse(node.args[1]).strip("'\"") in _REPLACED:
        yield f"setattr {ast.unparse(node.args[0])[:60]}", ""
