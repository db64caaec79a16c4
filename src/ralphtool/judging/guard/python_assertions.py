"""What one assertion in Python checks: its subjects and its strength."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from ralphtool.judging.guard.model import ALWAYS_TRUE, EXACT, LOOSE, MANY, PARTIAL, Assertion


def evaluate_truth(node: ast.expr) -> bool | None:
    """Whether an expression is always true or always false, if it is either."""
    if isinstance(node, ast.Constant):
        return bool(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        known = evaluate_truth(node.operand)
        return None if known is None else not known
    if isinstance(node, ast.BoolOp):
        values = [evaluate_truth(value) for value in node.values]
        decisive = isinstance(node.op, ast.Or)
        if decisive in values:
            return decisive
        return None if None in values else not decisive
    return True if isinstance(node, ast.Tuple | ast.List) and node.elts else None


def get_dotted_name(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(parts))


def get_last_name(node: ast.expr) -> str:
    return get_dotted_name(node).rpartition(".")[2]


def count_elements(node: ast.expr, tables: Mapping[str, ast.expr] | None = None) -> int:
    """The number of elements of a table, if it is a literal here or at the top of the module."""
    if isinstance(node, ast.Name) and tables and node.id in tables:
        return count_elements(tables[node.id])
    if isinstance(node, ast.Dict):
        return len(node.keys)
    if isinstance(node, ast.List | ast.Tuple | ast.Set) and not any(isinstance(one, ast.Starred) for one in node.elts):
        return len(node.elts)
    return MANY


_COMPARING: dict[str, type[ast.cmpop]] = {
    "assertNotEqual": ast.NotEq,
    "assertIs": ast.Is,
    "assertIsNot": ast.IsNot,
    "assertIn": ast.In,
    "assertNotIn": ast.NotIn,
    "assertGreater": ast.Gt,
    "assertGreaterEqual": ast.GtE,
    "assertLess": ast.Lt,
    "assertLessEqual": ast.LtE,
}
_EQUAL = re.compile(r"assert(?:Equals?|\w+Equal)\Z")
_VALUES = re.compile(
    r"assert(?:_|True|False|IsNone|IsNotNone|IsInstance"
    r"|(?:Not)?(?:Almost)?Equals?|(?:List|Tuple|Dict|Set|Sequence|MultiLine|Count)Equal)\Z"
)
_RAISING = re.compile(r"(?:raises|warns|assertRaises(?:Regex)?|assertWarns(?:Regex)?)\Z")
_MOCKED = re.compile(r"assert_(?:\w+_)?(?:called|awaited|calls?|awaits?)\w*\Z")
_ROUGHLY = re.compile(r"(?:approx|isclose|allclose|assertAlmostEqual|assertNotAlmostEqual|assert_allclose)\Z")


def parse_assertion_call(node: ast.Call, name: str, weight: int) -> list[Assertion] | None:
    """The assertions that a call makes; None if it is not an assertion."""
    if _RAISING.match(name):
        return [_parse_raising(node, name, weight)]
    if _MOCKED.match(name) and isinstance(node.func, ast.Attribute):
        strength = LOOSE if name in ("assert_called", "assert_awaited") else PARTIAL if "any" in name else EXACT
        strength = PARTIAL if name in ("assert_called_once", "assert_awaited_once") else strength
        return [Assertion(ast.unparse(node), _find_subjects(node.func.value), strength, weight)]
    if name == "fail":
        return [Assertion(ast.unparse(node), (), EXACT, weight)]
    said = _convert_to_expression(node, name) if name.startswith("assert") and node.args else None
    return None if said is None else parse_assertions(said, weight)


def is_about_values(node: ast.Call, name: str) -> bool:
    """Whether a call checks only its arguments, rather than, for example, the file that an argument names."""
    if _RAISING.match(name):
        return len(node.args) > 1 and "Regex" not in name
    said = _convert_to_expression(node, name) if name.startswith("assert") and node.args else None
    is_known = name in _COMPARING or _VALUES.match(name) is not None
    return is_known and said is not None and evaluate_truth(said) is not False


def _convert_to_expression(node: ast.Call, name: str) -> ast.expr | None:
    """`self.assertEqual(a, b)` as `a == b`, so that replacing one by the other is not a change."""
    first, second = node.args[0], node.args[1] if len(node.args) > 1 else None
    if name in ("assertTrue", "assert_"):
        return first
    if name == "assertFalse":
        return ast.UnaryOp(ast.Not(), first)
    if name in ("assertIsNone", "assertIsNotNone"):
        return ast.Compare(first, [ast.Is() if name == "assertIsNone" else ast.IsNot()], [ast.Constant(None)])
    if second is None:
        return None
    if name == "assertIsInstance":
        return ast.Call(ast.Name("isinstance"), [first, second], [])
    if "Almost" in name:
        return ast.Compare(first, [ast.Eq()], [ast.Call(ast.Name("approx"), [second], [])])
    if name in _COMPARING:
        return ast.Compare(first, [_COMPARING[name]()], [second])
    return ast.Compare(first, [ast.Eq()], [second]) if _EQUAL.match(name) and "Not" not in name else None


def _parse_raising(node: ast.Call, name: str, weight: int) -> Assertion:
    first = node.args[0] if node.args else next((one.value for one in node.keywords if "exc" in (one.arg or "")), None)
    classes = first.elts if isinstance(first, ast.Tuple) else [first] if first is not None else []
    names = tuple(get_last_name(one) for one in classes)
    patterns = [one.value for one in node.keywords if one.arg == "match"] + (node.args[1:2] if "Regex" in name else [])
    matched = any(not (isinstance(one, ast.Constant) and one.value in ("", ".*", ".+", None)) for one in patterns)
    return Assertion(ast.unparse(node), (), EXACT, weight, raises=names, matched=matched)


def parse_assertions(node: ast.expr, weight: int) -> list[Assertion]:
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return [check for value in node.values for check in parse_assertions(value, weight)]
    if isinstance(node, ast.Call) and get_dotted_name(node.func) == "all" and node.args:
        if isinstance(node.args[0], ast.GeneratorExp | ast.ListComp):
            rounds = count_elements(node.args[0].generators[0].iter)
            return parse_assertions(node.args[0].elt, min(weight * rounds, MANY))
        weight = min(weight * count_elements(node.args[0]), MANY)
    return [_parse_assertion(node, weight)]


def _parse_assertion(node: ast.expr, weight: int) -> Assertion:
    text = ast.unparse(node)
    if evaluate_truth(node) is True or isinstance(node, ast.Lambda | ast.JoinedStr):
        return Assertion(text, _find_subjects(node), ALWAYS_TRUE, weight)
    if isinstance(node, ast.BoolOp):
        inner = [_parse_assertion(value, weight) for value in node.values]
        strength = min(PARTIAL, *(one.strength for one in inner))
        return Assertion(text, tuple(subject for one in inner for subject in one.subjects), strength, weight)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return Assertion(text, _find_subjects(node.operand), LOOSE, weight)
    if isinstance(node, ast.Compare):
        return _parse_comparison(node, text, weight)
    if isinstance(node, ast.Call):
        return _parse_call(node, text, weight)
    return Assertion(text, (text,), LOOSE, weight)


def _parse_comparison(node: ast.Compare, text: str, weight: int) -> Assertion:
    sides = [node.left, *node.comparators]
    subjects = tuple(subject for side in sides for subject in _find_subjects(side))
    parts = tuple(part for side in sides for part in _find_measured(side))
    strength = _measure_strength(node.ops[0], node.left, node.comparators[0]) if len(node.ops) == 1 else PARTIAL
    subjects = subjects if strength == EXACT else (*subjects, text)
    if strength == EXACT and isinstance(node.left, ast.Tuple) and weight:
        weight = min(weight * max(1, len(node.left.elts)), MANY)
    return Assertion(text, subjects, strength, weight, parts)


def _measure_strength(op: ast.cmpop, left: ast.expr, right: ast.expr) -> int:
    if isinstance(op, ast.Eq | ast.Is):
        return _measure_equality(left, right)
    if isinstance(op, ast.GtE) and ast.unparse(right) == "0" and _find_measured(left):
        return ALWAYS_TRUE
    return LOOSE if isinstance(op, ast.NotEq | ast.IsNot | ast.NotIn) else PARTIAL


def _measure_equality(left: ast.expr, right: ast.expr) -> int:
    if ast.unparse(left) == ast.unparse(right) and not any(isinstance(one, ast.Call) for one in ast.walk(left)):
        return ALWAYS_TRUE
    for side in (left, right):
        if isinstance(side, ast.Call) and _ROUGHLY.match(get_last_name(side.func)):
            return PARTIAL
        if isinstance(side, ast.Constant) and isinstance(side.value, bool):
            return LOOSE  # `x == True` is the same as `x`
        if get_last_name(side) == "ANY":
            return ALWAYS_TRUE
    return EXACT


def _parse_call(node: ast.Call, text: str, weight: int) -> Assertion:
    name = get_last_name(node.func)
    subjects = tuple(subject for one in node.args[:2] for subject in _find_subjects(one))
    if name == "isinstance":
        anything = len(node.args) > 1 and get_dotted_name(node.args[1]) == "object"
        return Assertion(text, subjects[:1], ALWAYS_TRUE if anything else PARTIAL, weight)
    if name in ("array_equal", "equals", "samefile"):
        return Assertion(text, (*subjects, *_find_owner(node)), EXACT, weight)
    if name == "any":
        inner = [part for part in node.args if isinstance(part, ast.GeneratorExp | ast.ListComp)]
        about = [subject for part in inner for subject in _find_subjects(part.generators[0].iter)]
        return Assertion(text, tuple(about) or subjects, LOOSE, weight)
    if _ROUGHLY.match(name) or name in ("startswith", "endswith", "issubset", "issuperset", "match", "search"):
        return Assertion(text, (*subjects, *_find_owner(node)), PARTIAL, weight)
    return Assertion(text, (text,), LOOSE, weight, _find_measured(node))


def _find_owner(node: ast.Call) -> tuple[str, ...]:
    return (ast.unparse(node.func.value),) if isinstance(node.func, ast.Attribute) else ()


_FIXED = ast.Constant | ast.List | ast.Dict | ast.Set | ast.Tuple | ast.UnaryOp | ast.unaryop | ast.expr_context


def _find_subjects(node: ast.expr) -> tuple[str, ...]:
    """What an assertion is about, without the constants."""
    if isinstance(node, ast.Tuple):
        return tuple(subject for one in node.elts[:50] for subject in _find_subjects(one))
    if isinstance(node, ast.Call) and _ROUGHLY.match(get_last_name(node.func)):
        return tuple(subject for one in node.args[:1] for subject in _find_subjects(one))
    is_fixed = all(isinstance(one, _FIXED) for one in ast.walk(node))
    return () if is_fixed else (ast.unparse(node),)


def _find_measured(node: ast.expr) -> tuple[str, ...]:
    """The x of `len(x)`, `bool(x)`, `type(x)`."""
    if isinstance(node, ast.Call) and get_dotted_name(node.func) in ("len", "bool", "type"):
        return tuple(ast.unparse(one) for one in node.args[:1])
    return ()


def convert_call(node: ast.expr, weight: int) -> Assertion:
    """The call of a function that contains assertions."""
    arguments = node.args[:2] if isinstance(node, ast.Call) else []
    subjects = tuple(subject for one in arguments for subject in _find_subjects(one))
    return Assertion(ast.unparse(node), subjects, EXACT, weight)
