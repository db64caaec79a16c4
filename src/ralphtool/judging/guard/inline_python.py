"""Python modules that contain source and tests: functions that pytest collects, and examples in docstrings."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

from msgspec import Struct

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_Described = ast.Module | _Definition


class _Edit(Struct, frozen=True):
    """`text` replaces the bytes between two offsets."""

    start: int
    end: int
    text: bytes


def splice_python_tests(old: bytes, new: bytes) -> bytes | None:
    """The new module with the tests and examples of the old one; None if neither has any, or one can't be parsed."""
    try:
        before, after = PythonModule(old), PythonModule(new)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not (before.tests or after.tests or before.examples or after.examples):
        return None
    edits = [*_restore_examples(before, after), *_restore_tests(before, after)]
    return _apply(new, edits) + _add_missing_tests(before, after)


def is_python_test_module(data: bytes) -> bool:
    """Whether it consists of tests and their helpers."""
    try:
        module = PythonModule(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return bool(module.tests) and len(module.tests) >= module.other_count


class PythonModule:
    """The tests of a module by name, and the docstrings with examples by the names of the documented objects."""

    def __init__(self, data: bytes) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(data)
        self.data = data
        self._starts = [0]
        for line in data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        definitions = [node for node in tree.body if isinstance(node, _Definition)]
        self.tests = {node.name: node for node in definitions if _is_test(node)}
        self.other_count = len(definitions) - len(self.tests)
        self.described = dict(_list_described(tree, ""))
        self.examples = {name: node for name, node in self.described.items() if ">>>" in (_get_docstring(node) or "")}

    def find_span(self, node: ast.stmt) -> tuple[int, int]:
        """Starts at its first decorator."""
        first = min([node, *getattr(node, "decorator_list", [])], key=lambda one: one.lineno)
        return self._starts[first.lineno - 1], self._find_end(node)

    def find_docstring(self, name: str) -> tuple[int, int]:
        """Where it is, or would be if there is none."""
        node = self.described[name].body[0]
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._find_end(node) if _get_docstring(self.described[name]) is not None else start

    def _find_end(self, node: ast.stmt) -> int:
        return self._starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)

    def find_indent(self, name: str) -> bytes:
        return b" " * self.described[name].body[0].col_offset


def _is_test(node: _Definition) -> bool:
    if not isinstance(node, ast.ClassDef):
        return node.name.startswith("test")
    bases = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
    return node.name.startswith("Test") or any(base.endswith("TestCase") for base in bases)


def _list_described(node: _Described, name: str) -> Iterator[tuple[str, _Described]]:
    if node.body:
        yield name, node
    for child in node.body:
        if isinstance(child, _Definition):
            yield from _list_described(child, f"{name}.{child.name}")


def _get_docstring(node: _Described) -> str | None:
    return ast.get_docstring(node, clean=False)


def _restore_examples(before: PythonModule, after: PythonModule) -> Iterator[_Edit]:
    """Restores an old docstring even if the new object has none."""
    for name in before.examples:
        if name in after.described:
            start, end = before.find_docstring(name)
            text = before.data[start:end]
            place, stop = after.find_docstring(name)
            yield _Edit(place, stop, text if stop > place else text + b"\n" + after.find_indent(name))


def _restore_tests(before: PythonModule, after: PythonModule) -> Iterator[_Edit]:
    for name, node in after.tests.items():
        start, end = after.find_span(node)
        there = before.tests.get(name)
        yield _Edit(start, end, before.data[slice(*before.find_span(there))] if there else b"pass")


def _add_missing_tests(before: PythonModule, after: PythonModule) -> bytes:
    missing = [node for name, node in before.tests.items() if name not in after.tests]
    return b"".join(b"\n\n" + before.data[slice(*before.find_span(node))] + b"\n" for node in missing)


def _apply(data: bytes, edits: list[_Edit]) -> bytes:
    """Works from the end to the beginning; an edit inside another one is left out."""
    limit = len(data)
    for edit in sorted(edits, key=lambda one: (one.end, -one.start), reverse=True):
        if edit.end <= limit:
            data, limit = data[: edit.start] + edit.text + data[edit.end :], edit.start
    return data
