"""Which expressions of a Python test file have the same value whatever the code under test does.

An assertion about nothing else, such as `assert 1 + 1 == 2`, shows nothing. When in doubt, an expression is not
constant: an honest test must not be refused.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_IMPURE = {"open", "input", "eval", "exec", "compile", "globals", "locals", "vars", "dir", "super", "iter", "next"}
_PURE = {name for name in dir(builtins) if not name.startswith("_")} - _IMPURE
_PURE_MODULES = {"math", "operator", "string", "decimal", "fractions", "re", "json", "typing", "__future__"}
_PURE_NAMES = {"pytest.approx", "pytest.param"}
_IMMUTABLE = ast.Constant | ast.JoinedStr | ast.BinOp | ast.UnaryOp | ast.BoolOp | ast.Compare
_PURE_CALLS = {"len", "sum", "min", "max", "abs", "round", "str", "int", "float", "bool", "ord", "chr", "repr"}
_DEEPEST = 20


class _Bindings:
    """The values that names get in a function, a class or a module; None if the value is not certain."""

    def __init__(self) -> None:
        self.values: dict[str, ast.expr | None] = {}

    def add(self, name: str, value: ast.expr | None) -> None:
        # A second value may depend on what happened in between: `raised = False`, and later `raised = True`.
        self.values[name] = None if name in self.values else value


def _bind(body: Sequence[ast.stmt], owner: str = "") -> _Bindings:
    found = _Bindings()
    for name, value in _list_bindings(body, is_certain=True):
        found.add(owner + name, value)
    return found


def _list_bindings(body: Sequence[ast.stmt], *, is_certain: bool) -> Iterator[tuple[str, ast.expr | None]]:
    """Every name that statements store to. Below an `if`, a loop or a `try`, the value is not certain."""
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and is_certain:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                yield from ((name, node.value if _is_plain(target) else None) for name in _list_stored(target))
        elif isinstance(node, ast.With | ast.AsyncWith):
            yield from ((name, None) for item in node.items for name in _list_stored(item))
            yield from _list_bindings(node.body, is_certain=is_certain)
        elif isinstance(node, _Function | ast.ClassDef):
            yield node.name, None
            # A nested function may change the names and the objects around it.
            yield from ((name, None) for name in _list_stored(node) if "." in name)
            yield from ((name, None) for one in ast.walk(node) for name in _list_declared(one))
        else:
            yield from ((name, None) for name in _list_stored(node))


def _is_plain(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) or (
        isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id in ("self", "cls")
    )


def _list_declared(node: ast.AST) -> list[str]:
    return node.names if isinstance(node, ast.Global | ast.Nonlocal) else []


def _list_stored(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load):
            yield one.id
        elif isinstance(one, ast.Attribute) and not isinstance(one.ctx, ast.Load):
            yield ast.unparse(one)
        elif isinstance(one, ast.alias):
            yield (one.asname or one.name).partition(".")[0]
        elif isinstance(one, ast.ExceptHandler) and one.name:
            yield one.name
        yield from _list_declared(one)


class PythonConstants:
    """Reads a module once; `scope` says what is constant in one of its functions."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.module = _bind(tree.body).values
        self.imported = dict(_list_imports(tree))
        self.fields: dict[str, ast.expr | None] = {}
        self.functions: dict[str, _Function] = {}
        for one in ast.walk(tree):
            if isinstance(one, ast.ClassDef):
                self._read_class(one)
            self.module.update(dict.fromkeys(_list_declared(one)))  # a function may change the names of its module
        self.functions |= {one.name: one for one in tree.body if isinstance(one, _Function)}

    def _read_class(self, node: ast.ClassDef) -> None:
        for name, value in _bind(node.body, "self.").values.items():
            self._add_field(name, value)
        for function in node.body:
            if isinstance(function, _Function):
                self.functions[f"self.{function.name}"] = function
                for name, value in _bind(function.body).values.items():
                    if name.startswith("self."):
                        self._add_field(name, value)

    def _add_field(self, name: str, value: ast.expr | None) -> None:
        self.fields[name] = None if name in self.fields else value

    def scope(self, node: _Function) -> PythonScope:
        return PythonScope(self, node)


def _list_imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                yield (one.asname or one.name).partition(".")[0], one.name if one.asname else one.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            for one in node.names:
                yield one.asname or one.name, f"{'.' * node.level}{node.module or ''}.{one.name}"


class PythonScope:
    """The names of one function."""

    def __init__(self, file: PythonConstants, node: _Function) -> None:
        self.file = file
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
        self.local = _bind(node.body).values
        tables = dict(_list_tables(node))
        self.local |= {one.arg: tables.get(one.arg) for one in arguments if one}
        self.tables = set(tables)
        self.known: dict[str, bool] = {}

    def is_constant(self, node: ast.AST, depth: int = 0) -> bool:
        """Whether nothing in it depends on code outside of the test."""
        if depth > _DEEPEST or isinstance(node, ast.Await | ast.Yield | ast.YieldFrom | ast.Lambda):
            return False
        if isinstance(node, ast.Attribute):
            dotted = ast.unparse(node)
            if dotted.startswith(("self.", "cls.")):
                return self._is_constant_value(self.file.fields.get(f"self.{dotted.partition('.')[2]}"), depth)
            return self._is_pure(dotted) or self.is_constant(node.value, depth + 1)
        if isinstance(node, ast.Name):
            return not isinstance(node.ctx, ast.Load) or self._is_constant_name(node.id, depth)
        if isinstance(node, ast.Call) and (function := self.file.functions.get(ast.unparse(node.func))):
            given = [*node.args, *(one.value for one in node.keywords)]
            return _is_closed(function) and all(self.is_constant(one, depth + 1) for one in given)
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            return all(self.is_constant(one.iter, depth + 1) for one in node.generators) and _is_closed(node)
        return all(self.is_constant(one, depth + 1) for one in ast.iter_child_nodes(node))

    def _is_constant_name(self, name: str, depth: int) -> bool:
        if name not in self.known:
            self.known[name] = False  # also if its value names itself
            self.known[name] = self._find_constant_name(name, depth)
        return self.known[name]

    def _find_constant_name(self, name: str, depth: int) -> bool:
        if name in self.tables:
            value = self.local[name]
            return value is not None and self.is_constant(value, depth + 1)
        if name in self.local:
            return self._is_constant_value(self.local[name], depth)
        if name in self.file.imported or name not in self.file.module:
            return self._is_pure(name)
        return self._is_constant_value(self.file.module[name], depth)

    def _is_constant_value(self, value: ast.expr | None, depth: int) -> bool:
        """A list may be changed by the code that gets it, so only values that can't change count."""
        return value is not None and _is_immutable(value) and self.is_constant(value, depth + 1)

    def _is_pure(self, dotted: str) -> bool:
        first, _, rest = dotted.partition(".")
        if first not in self.file.imported:
            return first in _PURE
        source = self.file.imported[first] + (f".{rest}" if rest else "")
        return source in _PURE_NAMES or source.partition(".")[0] in _PURE_MODULES


def _is_immutable(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple):
        return all(map(_is_immutable, node.elts))
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _PURE_CALLS
    return isinstance(node, _IMMUTABLE)


def _is_closed(node: ast.AST) -> bool:
    """Whether all names in it are its own, or pure functions of Python, or the test program's assertions."""
    stored = set(_list_stored(node)) | {one.arg for one in ast.walk(node) if isinstance(one, ast.arg)}
    loaded = [one for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)]
    fields = [ast.unparse(one) for one in ast.walk(node) if isinstance(one, ast.Attribute)]
    uses_object = any(one.startswith(("self.", "cls.")) and not one.startswith("self.assert") for one in fields)
    loads_module = any(isinstance(one, ast.Import | ast.ImportFrom) for one in ast.walk(node))
    return not uses_object and not loads_module and all(one.id in stored or one.id in _PURE for one in loaded)


def _list_tables(node: _Function) -> Iterator[tuple[str, ast.expr]]:
    """The arguments that `pytest.mark.parametrize` gives, each with the table of its values."""
    for mark in node.decorator_list:
        if not isinstance(mark, ast.Call) or not ast.unparse(mark.func).endswith("parametrize"):
            continue
        names = mark.args[0] if mark.args else None
        words = [names] if isinstance(names, ast.Constant) else getattr(names, "elts", [])
        text = ",".join(str(one.value) for one in words if isinstance(one, ast.Constant))
        if len(mark.args) > 1:
            yield from ((one.strip(), mark.args[1]) for one in text.split(",") if one.strip())
