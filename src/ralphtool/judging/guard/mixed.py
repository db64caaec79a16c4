"""Files that configure the test program among other things: builds the new file with the old test configuration."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct


def merge_config(old: bytes, new: bytes, path: str, *, with_lint: bool = False) -> bytes:
    """The new file with the old version of everything that configures or runs tests; dependencies and so on stay new.

    `with_lint`: also the configuration of linters and type checkers. A file that can't be split, or that contains
    nothing else, is returned in its old version.
    """
    merge = _MERGERS.get(path.rpartition("/")[2])
    try:
        return old if merge is None else merge(old.decode(), new.decode(), with_lint).encode()
    except (ValueError, RecursionError, AttributeError, TypeError):
        return old


def is_neutral(old: bytes, new: bytes, path: str) -> bool:
    """Whether a file with mixed contents has no changes to what configures or runs tests or linters."""
    if path.rpartition("/")[2] not in _MERGERS:
        return False
    merged = merge_config(old, new, path, with_lint=True)
    try:
        return merged == new or _parse(merged, path) == _parse(new, path)
    except (ValueError, RecursionError):
        return False


def _parse(data: bytes, path: str) -> Any:
    if path.endswith(".json"):
        return json.loads(data)
    return tomllib.loads(data.decode()) if path.endswith(".toml") else data.split()


_TEST_KEYS: tuple[str, ...] = (
    "jest",
    "vitest",
    "mocha",
    "ava",
    "c8",
    "nyc",
    "tap",
    "karma",
    "jasmine",
    "cypress",
    "playwright",
    "qunit",
)
_TEST_KEYS += ("vite", "babel", "ts-jest", "wireit", "nx", "tsd")


_PLACES = {"imports"}  # where the names are that tests import, too: new names stay
_LINT_KEYS = ("eslintConfig", "eslintIgnore", "prettier", "stylelint", "xo", "standard", "lint-staged")


def _merge_package(old: str, new: str, with_lint: bool) -> str:
    before, after = json.loads(old), json.loads(new)
    keys = (*_TEST_KEYS, *(_LINT_KEYS if with_lint else ()))
    merged = {key: value for key, value in after.items() if key not in keys or key in before}
    merged |= {key: before[key] for key in keys if key in before}
    if "scripts" in before or "scripts" in after:
        merged["scripts"] = _merge_scripts(before.get("scripts", {}), after.get("scripts", {}))
    for key in _PLACES & before.keys():
        merged[key] = {**after.get(key, {}), **before[key]}
    indent = re.search(r"\n([ \t]+)\"", new)
    return json.dumps(merged, indent=indent[1] if indent else None, ensure_ascii=False) + (
        "\n" if new.endswith("\n") else ""
    )


def _merge_scripts(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """A new script stays, unless it would run before or after an old one."""
    hooks = {f"{word}{name}" for name in old for word in ("pre", "post")}
    return {**old, **{name: script for name, script in new.items() if name not in old and name not in hooks}}


class _Table(Struct):
    """A header with the lines up to the next one; the first has none."""

    keys: tuple[str, ...]
    text: str


_PYTHON_TABLES = (
    ("tool", "pytest"),
    ("tool", "tox"),
    ("tool", "coverage"),
    ("tool", "nox"),
    ("tool", "poe"),
    ("tool", "taskipy"),
    ("tool", "doit"),
    ("tool", "hatch", "envs"),
    ("tool", "pdm", "scripts"),
    ("tool", "pixi", "tasks"),
    ("tool", "rye", "scripts"),
    ("tool", "cibuildwheel"),
    ("project", "entry-points", "pytest11"),
    ("tool", "poetry", "plugins", "pytest11"),
)
_PYTHON_LINT_TABLES = tuple(
    ("tool", name)
    for name in (
        "ruff",
        "mypy",
        "pyright",
        "basedpyright",
        "pylint",
        "flake8",
        "black",
        "isort",
        "pyre",
        "pytype",
        "ty",
    )
)
_CARGO_TABLES = (("test",), ("bench",), ("profile",), ("target", "test"), ("package", "metadata", "nextest"))
_CARGO_LINT_TABLES = (("lints",), ("workspace", "lints"))
_CARGO_KEYS = re.compile(r"\s*(?:test|doctest|harness|bench|autotests|autobenches|autoexamples|autobins)\s*=[^\n]*\n?")


def _merge_pyproject(old: str, new: str, with_lint: bool) -> str:
    wanted = _PYTHON_TABLES + (_PYTHON_LINT_TABLES if with_lint else ())
    merged = _replace_tables(old, new, wanted)
    before, after = tomllib.loads(old), tomllib.loads(merged)
    # Dotted keys and inline tables can set something without a header: then nothing of the new file is used.
    return merged if all(_get(before, keys) == _get(after, keys) for keys in wanted) else old


def _merge_cargo(old: str, new: str, with_lint: bool) -> str:
    kept = {_identify(table): table.text for table in _split_tables(old) if table.keys[:1] in _MIXED_TABLES}
    merged = _replace_tables(old, new, _CARGO_TABLES + (_CARGO_LINT_TABLES if with_lint else ()))
    tables = [_restore_keys(table, kept.get(_identify(table), "")) for table in _split_tables(merged)]
    text = "".join(tables)
    before, after = tomllib.loads(old), tomllib.loads(text)
    return text if all(_get(before, keys) == _get(after, keys) for keys in _CARGO_TABLES) else old


_MIXED_TABLES = (("package",), ("lib",), ("bin",), ("example",))


def _identify(table: _Table) -> tuple[str, ...]:
    name = (
        re.search(r"^\s*name\s*=\s*(.*)$", table.text, re.MULTILINE)
        if table.keys[:1] in (("bin",), ("example",))
        else None
    )
    return (*table.keys, name[1].strip() if name else "")


def _restore_keys(table: _Table, old: str) -> str:
    """Restores the old `test = false` and similar keys inside `[lib]`, `[[bin]]` and `[package]`."""
    if table.keys[:1] not in _MIXED_TABLES or len(table.keys) > 1:
        return table.text
    head, *lines = table.text.splitlines(keepends=True)
    restored = [line if line.endswith("\n") else f"{line}\n" for line in old.splitlines(keepends=True)[1:]]
    kept = [line for line in restored if _CARGO_KEYS.fullmatch(line)]
    rest = [line for line in lines if not _CARGO_KEYS.fullmatch(line)]
    return "".join([head if head.endswith("\n") else f"{head}\n", *kept, *rest]) if lines or kept else table.text


def _get(document: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _replace_tables(old: str, new: str, wanted: Sequence[tuple[str, ...]]) -> str:
    def is_wanted(table: _Table) -> bool:
        return any(table.keys[: len(keys)] == keys for keys in wanted)

    rest = "".join(table.text for table in _split_tables(new) if not is_wanted(table))
    restored = "".join(table.text for table in _split_tables(old) if is_wanted(table))
    return f"{rest}{'' if rest.endswith(chr(10)) or not restored else chr(10)}{restored}"


def _split_tables(text: str) -> list[_Table]:
    found = [_Table((), "")]
    for line, is_header in _scan_lines(text):
        if is_header:
            found.append(_Table(_read_header(line), line))
        else:
            found[-1].text += line
    return found


def _read_header(line: str) -> tuple[str, ...]:
    keys, value = [], tomllib.loads(line)
    while isinstance(value, list) or (isinstance(value, dict) and value):
        if isinstance(value, list):
            value = value[0]
        else:
            [(key, value)] = value.items()
            keys.append(key)
    return tuple(keys)


_TOML_TOKEN = re.compile(r'"""|\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|[\[\]{}]|#')


def _scan_lines(text: str) -> Iterator[tuple[str, bool]]:
    """The lines of a TOML file, and whether each is a header rather than part of a list or a string."""
    depth, quote = 0, ""
    for line in text.splitlines(keepends=True):
        is_header = not depth and not quote and line.lstrip().startswith("[")
        yield line, is_header
        if not is_header:
            depth, quote = _scan_line(line, depth, quote)


def _scan_line(line: str, depth: int, quote: str) -> tuple[int, str]:
    at = 0
    while at < len(line):
        if quote:
            end = line.find(quote, at)
            if end < 0:
                return depth, quote
            at, quote = end + 3, ""
        token = _TOML_TOKEN.search(line, at)
        if token is None or token[0] == "#":
            break
        at = token.end()
        quote = token[0] if token[0] in ('"""', "'''") else ""
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
    return depth, quote


_INI_HEADER = re.compile(r"^\[([^\]\n]*)\]", re.MULTILINE)
_INI_SECTIONS = re.compile(
    r"tool:pytest|pytest|coverage:.*|run|report|tox.*|testenv.*|aliases|nosetests|unittest|tool:nox|nox|test"
)


_INI_LINT_SECTIONS = re.compile(r"mypy.*|flake8.*|pylint.*|isort|pycodestyle|pydocstyle|tool:.*")


def _merge_setup_cfg(old: str, new: str, with_lint: bool) -> str:
    def is_wanted(name: str) -> bool:
        return bool(_INI_SECTIONS.fullmatch(name) or (with_lint and _INI_LINT_SECTIONS.fullmatch(name)))

    rest = "".join(text for name, text in _split_sections(new) if not is_wanted(name))
    restored = "".join(text for name, text in _split_sections(old) if is_wanted(name))
    return f"{rest}{'' if rest.endswith(chr(10)) or not restored or not rest else chr(10)}{restored}"


def _split_sections(text: str) -> Iterator[tuple[str, str]]:
    starts = [(match[1].strip(), match.start()) for match in _INI_HEADER.finditer(text)]
    ends = [*(start for _, start in starts), len(text)]
    yield "", text[: ends[0]]
    for (name, start), end in zip(starts, ends[1:], strict=True):
        yield name, text[start:end]


_GO_BLOCK = re.compile(r"^(replace|exclude|tool)[ \t]*\((.*?)^\)[ \t]*\n?", re.MULTILINE | re.DOTALL)
_GO_LINE = re.compile(r"^(replace|exclude|tool)[ \t]+(?!\()([^\n]+)\n?", re.MULTILINE)


def _merge_go(old: str, new: str, with_lint: bool) -> str:
    """A module that was used before is not replaced by another one; new modules and their replacements stay."""
    known = set(re.findall(r"[\w.~-]+\.[\w.~-]+(?:/[\w.~-]+)*", old))
    rest = _GO_LINE.sub("", _GO_BLOCK.sub("", new))
    fresh = [line for line in _list_go_directives(new) if line.split()[1] not in known]
    return "\n".join([rest.rstrip("\n"), *_list_go_directives(old), *fresh, ""])


def _list_go_directives(text: str) -> list[str]:
    blocks = [(found[1], line) for found in _GO_BLOCK.finditer(text) for line in found[2].split("\n")]
    lines = [(found[1], found[2]) for found in _GO_LINE.finditer(_GO_BLOCK.sub("", text))]
    return [f"{word} {line.strip()}" for word, line in [*blocks, *lines] if line.strip() and line.strip()[:2] != "//"]


_MERGERS: dict[str, Callable[[str, str, bool], str]] = {
    "go.mod": _merge_go,
    "package.json": _merge_package,
    "pyproject.toml": _merge_pyproject,
    "Cargo.toml": _merge_cargo,
    "setup.cfg": _merge_setup_cfg,
}
