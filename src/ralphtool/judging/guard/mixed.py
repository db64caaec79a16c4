"""Files that configure the test program among other things: the new file with that part as it was."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct


def merge_config(old: bytes, new: bytes, path: str) -> bytes:
    """The new file with all that configures or runs tests as it was in the old one; dependencies and the rest stay new.

    A file that can't be taken apart, and one that is about nothing else, is given back as it was.
    """
    merge = _MERGERS.get(path.rpartition("/")[2])
    try:
        return old if merge is None else merge(old.decode(), new.decode()).encode()
    except (ValueError, RecursionError, AttributeError, TypeError):
        return old


_TEST_KEYS = (
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


def _merge_package(old: str, new: str) -> str:
    before, after = json.loads(old), json.loads(new)
    merged = {key: value for key, value in after.items() if key not in _TEST_KEYS or key in before}
    merged |= {key: before[key] for key in _TEST_KEYS if key in before}
    if "scripts" in before or "scripts" in after:
        merged["scripts"] = _merge_scripts(before.get("scripts", {}), after.get("scripts", {}))
    indent = re.search(r"\n([ \t]+)\"", new)
    return json.dumps(merged, indent=indent[1] if indent else None, ensure_ascii=False) + (
        "\n" if new.endswith("\n") else ""
    )


def _merge_scripts(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """A script that is new stays, unless it would run before or after an old one."""
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
_CARGO_TABLES = (("test",), ("bench",), ("profile",), ("target", "test"), ("package", "metadata", "nextest"))
_CARGO_KEYS = re.compile(r"\s*(?:test|doctest|harness|bench|autotests|autobenches|autoexamples|autobins)\s*=[^\n]*\n?")


def _merge_pyproject(old: str, new: str) -> str:
    merged = _replace_tables(old, new, _PYTHON_TABLES)
    before, after = tomllib.loads(old), tomllib.loads(merged)
    # Dotted keys and inline tables can hide a setting from the headers: then none of the new file is taken.
    return merged if all(_get(before, keys) == _get(after, keys) for keys in _PYTHON_TABLES) else old


def _merge_cargo(old: str, new: str) -> str:
    kept = {_identify(table): table.text for table in _split_tables(old) if table.keys[:1] in _MIXED_TABLES}
    merged = _replace_tables(old, new, _CARGO_TABLES)
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
    """`test = false` and its relatives inside of `[lib]`, `[[bin]]` and `[package]`, as they were."""
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
    """The lines of a TOML file, and whether each is a header: it may also be part of a list or a string."""
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


def _merge_setup_cfg(old: str, new: str) -> str:
    rest = "".join(text for name, text in _split_sections(new) if not _INI_SECTIONS.fullmatch(name))
    restored = "".join(text for name, text in _split_sections(old) if _INI_SECTIONS.fullmatch(name))
    return f"{rest}{'' if rest.endswith(chr(10)) or not restored or not rest else chr(10)}{restored}"


def _split_sections(text: str) -> Iterator[tuple[str, str]]:
    starts = [(match[1].strip(), match.start()) for match in _INI_HEADER.finditer(text)]
    ends = [*(start for _, start in starts), len(text)]
    yield "", text[: ends[0]]
    for (name, start), end in zip(starts, ends[1:], strict=True):
        yield name, text[start:end]


_MERGERS: dict[str, Callable[[str, str], str]] = {
    "package.json": _merge_package,
    "pyproject.toml": _merge_pyproject,
    "Cargo.toml": _merge_cargo,
    "setup.cfg": _merge_setup_cfg,
}
