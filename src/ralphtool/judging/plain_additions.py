"""Whether a story only added plain tests: then the tests from before are as strong as they were.

Python is parsed. Of other languages only new files of tests are plain, if nothing in them looks as if it reached beyond
its test. If in doubt the answer is no: later stories then need one more run of the tests.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ralphtool.judging.guard.model import decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ralphtool.judging.guard.model import FileChange

# Names of new test files, and what reaches beyond them: mocks, hooks, global names, files, and assignments to a part of
# something else. A test program of Rust is a program of its own.
_NEW_FILES = (
    (r"(?:.*/)?tests/\w+\.rs", r"\b(?:fs|File|Command|process|env)\b"),
    (
        r".*\.(?:test|spec)\.[cm]?[jt]sx?",
        r"(?i)mock|stub|spy|sinon|global|prototype|file|\b(?:process|require\.|import\(|Object|Reflect|fs|only)\b"
        r"|(?:\.\w+|\])\s*[-+*/%|&^?]{0,3}=(?![=>])"
        # The same by unpacking or in a loop, by way of a constructor, and hooks that Mocha calls for all files.
        r"|\(\s*\{[^;]*\}\s*=(?![=>])|\bfor\s*\([\w$.\[\]]+[.\[]|__"
        r"|\b(?:constructor|delete|(?:before|after)(?:Each|All)?)\b",
    ),
    (
        r".*_test\.go",
        r"\bfunc (?:init|TestMain)\b|\b(?:os|ioutil|exec|unsafe|flag)\b|(?<![:=!<>])=(?!=)"
        # A method hides the one that its type embeds: the source's own is then never called.
        r"|\bfunc\s*\([^)]*\)\s*\w+\s*\(|\b(?:copy|clear|delete)\(",
    ),
)
# Words for what reaches beyond the test that uses it; a test with such a word may still be honest.
_FAR_REACHING_WORDS = (
    "setattr delattr exec eval compile globals locals vars modules environ start patch mock settrace setprofile"
    " importlib ctypes gc atexit site sys os shutil subprocess builtins register addfinalizer autouse"
    " write_text write_bytes open unlink rename touch symlink_to"
    " pytest_plugins pytestmark collect_ignore conftest load_tests"
    " getattr operator inspect f_back f_globals f_locals f_builtins pickle marshal"
    " request session pytestconfig _outcome exit _exit"
)
_FAR_REACHING = frozenset(_FAR_REACHING_WORDS.split())
# Any other such name may reach into a module, a function or a class.
_SPECIAL = re.compile(r"__(?!(?:future|init|name|file|doc|version|eq|len|repr|str|iter|next|enter|exit|call)__)\w+__")
_PLAIN_BASES = {"unittest.TestCase", "TestCase", "unittest.IsolatedAsyncioTestCase"}
_HOOK = re.compile(r"pytest_|setup|teardown|load_tests", re.IGNORECASE)  # functions that test programs call by name


def are_plain_additions(changes: Sequence[FileChange]) -> bool:
    return all(map(_is_plain, changes))


def _is_plain(change: FileChange) -> bool:
    if change.new is None or (change.old_path or change.path) != change.path:
        return False
    if not change.path.endswith(".py"):
        return change.old is None and _is_plain_file(change.path, decode(change.new))
    name = change.path.rpartition("/")[2]
    if not (name.startswith("test_") or name.endswith("_test.py")):
        return False
    try:
        old, new = (ast.parse(decode(data)) for data in (change.old or b"", change.new))
    except (SyntaxError, ValueError, RecursionError):
        return False
    return not (old.body and _imports_all(old)) and _only_adds(old.body, new.body, {*_list_words(old)})


def _imports_all(tree: ast.Module) -> bool:
    """Whether it has names that are not known: a new one may replace one of these."""
    found = (one for one in ast.walk(tree) if isinstance(one, ast.ImportFrom))
    return any(name.name == "*" for one in found for name in one.names)


def _is_plain_file(path: str, text: str) -> bool:
    beyond = next((words for name, words in _NEW_FILES if re.fullmatch(name, path)), None)
    return beyond is not None and re.search(beyond, text) is None


def _only_adds(old: Sequence[ast.stmt], new: Sequence[ast.stmt], known: set[str]) -> bool:
    """Whether all old statements are there, in order, with only plain ones between them. `known` words are taken."""
    rest = list(old)
    for one in new:
        if rest and (_is_same(rest[0], one) or _imports_more(rest[0], one, known)):
            rest.pop(0)
        elif rest and isinstance(one, ast.ClassDef) and _is_same_head(rest[0], one):
            if not _adds_tests(rest.pop(0), one, known):
                return False
        elif not _is_plain_statement(one, known):
            return False
    return not rest


def _adds_tests(old: ast.stmt, new: ast.ClassDef, known: set[str]) -> bool:
    """A class may inherit what a new name in it replaces, such as another test, or how unittest compares values."""
    body = _get_body(old)
    is_known = {ast.unparse(base) for base in new.bases} <= _PLAIN_BASES and not new.keywords
    added = [one for one in new.body if not any(_is_same(each, one) for each in body)]
    are_tests = is_known and all(_get_name(one).startswith("test") for one in added)
    return (are_tests or not added) and _only_adds(body, new.body, known)


def _is_same(old: ast.stmt, new: ast.stmt) -> bool:
    return ast.dump(old) == ast.dump(new)


def _imports_more(old: ast.stmt, new: ast.stmt, known: set[str]) -> bool:
    if not isinstance(old, ast.ImportFrom) or not isinstance(new, ast.ImportFrom):
        return False
    names = [[(name.name, name.asname) for name in one.names] for one in (old, new)]
    more = ast.ImportFrom(new.module, [one for one in new.names if (one.name, one.asname) not in names[0]], new.level)
    is_same_module = (old.module, old.level) == (new.module, new.level)
    return is_same_module and set(names[0]) <= set(names[1]) and _is_plain_statement(more, known)


def _is_same_head(old: ast.stmt, new: ast.ClassDef) -> bool:
    if not isinstance(old, ast.ClassDef):
        return False
    empty = [ast.ClassDef(one.name, one.bases, one.keywords, [], one.decorator_list) for one in (old, new)]
    return ast.dump(empty[0]) == ast.dump(empty[1])


def _get_name(statement: ast.stmt) -> str:
    return statement.name if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) else ""


def _get_body(statement: ast.stmt) -> list[ast.stmt]:
    return statement.body if isinstance(statement, ast.ClassDef) else []


def _is_plain_statement(one: ast.stmt, known: set[str]) -> bool:
    """An import, a constant, a function or a class of tests, with new names, which changes nothing around it."""
    if any(map(_is_far_reaching, _list_words(one))) or known.intersection(_list_bound(one)) or _writes_outside(one):
        return False
    if isinstance(one, (ast.Import, ast.ImportFrom)):
        return all(name.name != "*" for name in one.names)
    if isinstance(one, ast.Expr):
        return isinstance(one.value, ast.Constant)
    if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return not _HOOK.match(one.name) and all(map(_is_mark, one.decorator_list))
    if isinstance(one, ast.ClassDef):
        # A base class calls its methods by name, and unittest gives one of them the results of all tests.
        is_free = not one.bases or all(_get_name(part).startswith("test") for part in _list_functions(one))
        return is_free and not one.decorator_list and all(_is_plain_statement(part, set()) for part in one.body)
    return isinstance(one, ast.Assign) and _is_constant(one.value)


def _is_far_reaching(word: str) -> bool:
    return word in _FAR_REACHING or _SPECIAL.fullmatch(word) is not None


def _list_functions(one: ast.ClassDef) -> list[ast.stmt]:
    return [part for part in one.body if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))]


def _is_mark(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).startswith("pytest.mark.")


def _is_constant(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _writes_outside(tree: ast.AST) -> bool:
    """Whether it assigns to something that is not a plain variable, such as an attribute of a module."""
    for one in ast.walk(tree):
        if isinstance(one, (ast.Global, ast.Nonlocal)):
            return True
        is_part = isinstance(one, (ast.Attribute, ast.Subscript))
        if is_part and isinstance(one.ctx, (ast.Store, ast.Del)):  # type: ignore[attr-defined]
            return True
    return False


def _list_bound(one: ast.stmt) -> Iterable[str]:
    if isinstance(one, (ast.Import, ast.ImportFrom)):
        return [(name.asname or name.name).partition(".")[0] for name in one.names]
    if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [one.name]
    return [node.id for node in ast.walk(one) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]


def _list_words(tree: ast.AST) -> Iterable[str]:
    """Every identifier in it."""
    for one in ast.walk(tree):
        for name in ("id", "attr", "name", "arg", "asname", "module"):
            if isinstance(word := getattr(one, name, None), str):
                yield from word.split(".")
