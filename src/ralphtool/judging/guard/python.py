"""Tests that are written in Python, read as a syntax tree."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property, partial

from msgspec.structs import replace

from ralphtool.judging.guard.model import (
    MANY,
    Assertion,
    Body,
    CallSite,
    ParsedTestFile,
    Test,
    add_skip,
    may_check,
    shorten,
)
from ralphtool.judging.guard.python_assertions import (
    convert_call,
    count_elements,
    evaluate_truth,
    get_dotted_name,
    get_last_name,
    is_about_values,
    parse_assertion_call,
    parse_assertions,
)
from ralphtool.judging.guard.python_constants import PythonConstants, PythonScope

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_SKIP_MARK = re.compile(r"(?:.*\.)?(?:skip|skip[_A-Zi]\w*|xfail\w*|expectedFailure)\Z")
_SKIP_CALL = re.compile(r"(?:.*\.)?(?:skipTest|importorskip|SkipTest|Skipped)\Z|pytest\.(?:skip|xfail|exit)\Z|skip\Z")
_ASSERTING = re.compile(r"_?(?:assert|check(?!_output|_call)|verify|expect|should)(?:_|[A-Z]|$)")


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():  # for example about "\d" in a string
        warnings.simplefilter("ignore")
        return ast.parse(text)


def has_syntax_error(text: str) -> bool:
    """Whether it can't be parsed because of its syntax, rather than its depth."""
    try:
        _parse(text)
    except (SyntaxError, ValueError):
        return True
    except (RecursionError, MemoryError):
        pass
    return False


def read_python(text: str) -> ParsedTestFile | None:
    try:
        reader = _PythonReader(text)
        reader.scope(reader.tree.body, "", {}, 1)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return reader.reading


class _PythonReader:
    """Finds the tests of a module, and the functions beside them."""

    def __init__(self, text: str) -> None:
        self.tree = _parse(text)
        self.lines = [line.strip() for line in text.split("\n")]
        self.reading = ParsedTestFile(text=text)
        self.tables: dict[str, ast.expr] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.tables[node.targets[0].id] = node.value

    @cached_property
    def constants(self) -> PythonConstants:
        return PythonConstants(self.tree)

    def scope(self, body: Sequence[ast.stmt], owner: str, skips: dict[str, str], cases: int) -> None:
        skips = {**skips, **_find_scope_skips(body, owner or "the file", is_module=not owner)}
        for node in body:
            if isinstance(node, _Function):
                self._function(node, owner, skips, cases)
            elif isinstance(node, ast.ClassDef):
                self._class(node, owner, skips, cases)
            elif isinstance(node, ast.If):
                self._condition(node, owner, skips, cases)
            elif isinstance(node, ast.Try | ast.TryStar | ast.With):
                for block in _list_blocks(node):
                    self.scope(block, owner, skips, cases)
            else:
                self._undo(node, owner)

    def _function(self, node: _Function, owner: str, skips: dict[str, str], cases: int) -> None:
        name = f"{owner}{node.name}"
        first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        lines = self._lines(first, node.end_lineno) + self._table_lines(node)
        skips = {**skips, **_find_decorator_skips(node.decorator_list, name)}
        cases *= _count_cases(node, self.tables)
        test = Test(owner, node.name, lines, partial(_read_body, node, name, self), skips, cases)
        if node.name.startswith("test") and not _is_fixture(node):
            self.reading.tests[name] = test
        else:
            self.reading.beside[node.name] = test

    def _lines(self, first: int, last: int | None) -> tuple[str, ...]:
        return tuple(line for line in self.lines[first - 1 : last] if line)

    def _table_lines(self, node: _Function) -> tuple[str, ...]:
        """The lines of the tables that its marks name: removing a row there removes a case."""
        names = [one.id for mark in node.decorator_list for one in ast.walk(mark) if isinstance(one, ast.Name)]
        tables = [self.tables[name] for name in names if name in self.tables]
        return tuple(line for table in tables[:3] for line in self._lines(table.lineno, table.end_lineno)[:100])

    def _class(self, node: ast.ClassDef, owner: str, skips: dict[str, str], cases: int) -> None:
        name = f"{owner}{node.name}"
        skips = {**skips, **_find_decorator_skips(node.decorator_list, name)}
        if not node.bases and not node.name.startswith("Test"):
            # It may be a base class, so this matters only if it was different before.
            skips["collected"] = f"{name}: test runners do not collect a class with this name"
        self.scope(node.body, f"{name}.", skips, cases * _count_cases(node, self.tables))

    def _condition(self, node: ast.If, owner: str, skips: dict[str, str], cases: int) -> None:
        known = evaluate_truth(node.test)
        shown = shorten(ast.unparse(node.test))
        if known is None or known:
            more = {} if known else {f"if {shown}": f"{owner or 'tests '}only if {shown}"}
            self.scope(node.body, owner, {**skips, **more}, cases)
        if not known:
            self.scope(node.orelse, owner, skips, cases)

    def _undo(self, node: ast.stmt, owner: str) -> None:
        """`del test_x`, `test_x = None`, `test_x.__test__ = False`."""
        targets = node.targets if isinstance(node, ast.Delete | ast.Assign) else []
        for target in targets:
            name = owner + ast.unparse(target).removesuffix(".__test__")
            test = self.reading.tests.get(name)
            if test is None:
                continue
            marks = _find_marks(node.value, name) if isinstance(node, ast.Assign) else {}
            if marks:
                test.outer_skips.update(marks)
            else:
                del self.reading.tests[name]


def _list_blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        yield getattr(node, field, [])
    for one in getattr(node, "handlers", []):
        yield one.body


def _is_fixture(node: _Function) -> bool:
    marks = [mark.func if isinstance(mark, ast.Call) else mark for mark in node.decorator_list]
    return any(get_last_name(mark) == "fixture" for mark in marks)


def _find_scope_skips(body: Sequence[ast.stmt], owner: str, *, is_module: bool) -> dict[str, str]:
    """Skips of a whole module or class."""
    found: dict[str, str] = {}
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            if "pytestmark" in names:
                found |= _find_marks(node.value, owner.rstrip("."))
            if "__test__" in names and evaluate_truth(node.value) is False:
                found["__test__"] = f"{owner.rstrip('.')}: __test__ = False"
        elif is_module and isinstance(node, ast.Expr | ast.Raise | ast.Assign):
            found |= _find_skip_calls(node, owner)
    return found


def _find_decorator_skips(marks: Sequence[ast.expr], owner: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for mark in marks:
        found |= _find_marks(mark, owner)
    return found


def _find_marks(expression: ast.expr, owner: str) -> dict[str, str]:
    """The skip marks anywhere in an expression: they may be on single cases."""
    found: dict[str, str] = {}
    called: set[int] = set()
    for node in ast.walk(expression):
        call = node if isinstance(node, ast.Call) else None
        name = call.func if call else node
        if not isinstance(name, ast.Name | ast.Attribute) or id(name) in called:
            continue
        called.add(id(name))
        dotted = get_dotted_name(name)
        if _SKIP_MARK.match(dotted) and (node is expression or "mark." in dotted):
            found[_build_mark_key(dotted, call)] = f"{owner}: @{shorten(ast.unparse(call or name))}"
    return found


def _build_mark_key(dotted: str, call: ast.Call | None) -> str:
    """The mark with its condition and without its reason."""
    word = dotted.rpartition(".")[2]
    if word == "skip":
        return "skip"
    given = [*call.args, *(one.value for one in call.keywords if one.arg == "condition")] if call else []
    return f"{word}({ast.unparse(given[0])})" if given else word


def _find_skip_calls(statement: ast.stmt, owner: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and _SKIP_CALL.match(get_dotted_name(node.func)):
            what = ast.unparse(node.args[0]) if node.args and "import" in get_dotted_name(node.func) else ""
            add_skip(found, f"{get_dotted_name(node.func)}({what})", f"{owner}: {shorten(ast.unparse(node))}")
    if isinstance(statement, ast.Raise) and statement.exc and _SKIP_CALL.match(get_dotted_name(statement.exc)):
        found[f"{get_dotted_name(statement.exc)}()"] = f"{owner}: {shorten(ast.unparse(statement))}"
    return found


def _count_cases(node: _Function | ast.ClassDef, tables: dict[str, ast.expr]) -> int:
    cases = 1
    for mark in node.decorator_list:
        if isinstance(mark, ast.Call) and get_last_name(mark.func) in ("parametrize", "expand", "data"):
            table = (mark.args[1:2] if "parametrize" in get_dotted_name(mark.func) else []) or mark.args[:1]
            table += [one.value for one in mark.keywords if one.arg == "argvalues"]
            cases *= count_elements(table[-1], tables) if table else MANY
    return min(cases, MANY)


def _read_body(node: _Function, name: str, file: _PythonReader) -> Body:
    reader = _BodyReader(name, file.constants.scope(node))
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    reader.start(body)
    reader.block(body, 1)
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    reader.body.checks = [check for check in reader.body.checks if check.weight]
    reader.body.calls += [
        CallSite(one.arg, partial(convert_call, ast.Name(f"fixture {one.arg}")), 1) for one in arguments
    ]
    return reader.body


class _BodyReader:
    """Collects the assertions, calls and skips of a function; unreachable ones have no weight."""

    def __init__(self, name: str, scope: PythonScope) -> None:
        self.name = name
        self.scope = scope
        self.body = Body()

    def start(self, body: Sequence[ast.stmt]) -> None:
        self.body.empty = all(
            isinstance(one, ast.Pass) or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
            for one in body
        )
        first = body[0] if body else None
        if isinstance(first, ast.Return) and (len(body) > 1 or first.value is None):
            self.body.skips["return"] = f"{self.name}: returns at once"
        elif isinstance(first, ast.If) and isinstance(first.body[0], ast.Return):
            test = shorten(ast.unparse(first.test))
            self.body.skips[f"return if {test}"] = f"{self.name}: returns at once if {test}"

    def block(self, statements: Sequence[ast.stmt], weight: int) -> None:
        for one in statements:
            self._statement(one, weight)
            if isinstance(one, ast.Return | ast.Raise | ast.Continue | ast.Break):
                weight = 0

    def _statement(self, node: ast.stmt, weight: int) -> None:
        if isinstance(node, ast.Assert):
            # `assert False` says that this place must not be reached.
            fixed = evaluate_truth(node.test) is not False and self.scope.is_constant(node.test)
            self._add(parse_assertions(node.test, weight), fixed=fixed)
        elif isinstance(node, ast.If):
            self._if(node, weight)
        elif isinstance(node, ast.For | ast.AsyncFor):
            self._expression(node.iter, weight)
            self.block(node.body, min(weight * count_elements(node.iter), MANY))
            self.block(node.orelse, weight)
        elif isinstance(node, ast.With | ast.AsyncWith):
            self._with(node, weight)
        elif isinstance(node, ast.Try | ast.TryStar):
            self.block(node.body, 0 if any(_is_swallowing(one) for one in node.handlers) else weight)
            for block in list(_list_blocks(node))[1:]:
                self.block(block, weight)
        else:
            self._other(node, weight)

    def _if(self, node: ast.If, weight: int) -> None:
        known = evaluate_truth(node.test)
        if known is False:
            self.body.skips["if False"] = f"{self.name}: if {shorten(ast.unparse(node.test))}"
        self._expression(node.test, weight)
        self.block(node.body, 0 if known is False else weight)
        self.block(node.orelse, 0 if known else weight)

    def _with(self, node: ast.With | ast.AsyncWith, weight: int) -> None:
        for item in node.items:
            call = item.context_expr
            if isinstance(call, ast.Call) and get_last_name(call.func) == "suppress":
                weight = 0 if any(_is_catching_assertions(one) for one in call.args) else weight
            before = len(self.body.checks)
            self._expression(call, weight)
            raising = self.body.checks[before:]
            if raising and all(map(self.scope.is_constant, node.body)):
                self.body.checks[before:] = [replace(one, fixed=True) for one in raising]
        self.block(node.body, weight)

    def _other(self, node: ast.stmt, weight: int) -> None:
        if isinstance(node, ast.While):
            self.block(node.body, 0 if evaluate_truth(node.test) is False else weight)
        elif isinstance(node, ast.Match):
            for case in node.cases:
                self.block(case.body, weight)
        elif isinstance(node, _Function | ast.ClassDef):
            self.block(node.body, weight)
        else:
            for key, shown in _find_skip_calls(node, self.name).items() if weight else ():
                add_skip(self.body.skips, key, shown)
            value = node.value if isinstance(node, ast.Expr) else None
            alone = value.value if isinstance(value, ast.Await) else value
            self._expression(node, weight, alone)
            if weight:
                self._doubt(node, alone)

    def _doubt(self, node: ast.stmt, alone: ast.expr | None) -> None:
        """Notes what may fail the test: a raised exception, or a call that may be there to check something."""
        if isinstance(node, ast.Raise):
            self.body.doubts.append("raise")
        elif isinstance(alone, ast.Call) and not _SKIP_CALL.match(get_dotted_name(alone.func)):
            given = [part for one in ast.walk(alone) if isinstance(one, ast.Call) for part in _list_given(one)]
            has_subject = not all(isinstance(one, ast.Lambda) or self.scope.is_constant(one) for one in given)
            name = get_dotted_name(alone.func).removeprefix("self.")
            is_known = parse_assertion_call(alone, get_last_name(alone.func), 1) is not None
            if not is_known and may_check(name, has_subject=has_subject):
                self.body.doubts.append(name)

    def _expression(self, node: ast.AST, weight: int, statement: ast.expr | None = None) -> None:
        for one in ast.walk(node):
            if isinstance(one, ast.Call):
                self._call(one, weight, alone=one is statement)

    def _call(self, node: ast.Call, weight: int, *, alone: bool) -> None:
        name = get_last_name(node.func)
        if _SKIP_CALL.match(get_dotted_name(node.func)):
            return
        known = parse_assertion_call(node, name, weight)
        if known is None:
            # Methods of other objects are the code under test, or its setup.
            ours = get_dotted_name(node.func) in (name, f"self.{name}", f"cls.{name}")
            asserts = alone and _ASSERTING.match(name) is not None
            if ours or asserts:
                fixed = self.scope.is_constant(node)
                self.body.calls.append(CallSite(name, partial(convert_call, node), weight, asserts, fixed))
        else:
            given = [*node.args, *(one.value for one in node.keywords)]
            self._add(known, fixed=is_about_values(node, name) and all(map(self.scope.is_constant, given)))

    def _add(self, checks: Sequence[Assertion], *, fixed: bool) -> None:
        self.body.checks += [replace(one, fixed=True) for one in checks] if fixed else checks


def _list_given(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(one.value for one in call.keywords)]


def _is_swallowing(node: ast.ExceptHandler) -> bool:
    """Whether a failed assertion would go unnoticed here."""
    inside = [one for part in node.body for one in ast.walk(part)]
    loud = any(isinstance(one, ast.Raise | ast.Assert) for one in inside)
    failing = any(isinstance(one, ast.Call) and get_last_name(one.func) == "fail" for one in inside)
    return not loud and not failing and (node.type is None or _is_catching_assertions(node.type))


def _is_catching_assertions(node: ast.expr) -> bool:
    classes = node.elts if isinstance(node, ast.Tuple) else [node]
    return any(get_last_name(one) in ("AssertionError", "Exception", "BaseException") for one in classes)
