"""Warns of lint and type checks whose configuration got weaker: rules off, strict off, more exclusions."""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ralphtool.judging.guard.config_code import list_settings
from ralphtool.judging.guard.model import LONGEST, FileChange, GuardFinding, decode, shorten

_Flags = dict[str, str]
"""What makes a check ask less, by a key that is the same before and after, with what is shown of it."""
_Reader = Callable[[str, str], _Flags | None]


def inspect_lints(changes: Sequence[FileChange]) -> list[GuardFinding]:
    """Checks all files together, because a setting may move from one to another."""
    sides = [(change.path, *both) for change in changes if (both := _read_both(change))]
    known = {key for _, old, _ in sides for key in old}
    return [
        GuardFinding("lint-config", path, f"is less strict: {shorten(shown)}")
        for path, _, new in sides
        for key, shown in new.items()
        if key not in known and _was_configured(key, known)
    ]


_TOOLS = ("ruff", "mypy", "flake8")


def _was_configured(key: str, known: set[str]) -> bool:
    """A new configuration of a tool that had none before does not make anything weaker."""
    tool = key.partition(" ")[0]
    return tool not in _TOOLS or tool in known


def find_lint_reader(path: str) -> _Reader | None:
    name = path.rpartition("/")[2]
    for pattern, read in _READERS:
        if pattern.fullmatch(name):
            return read
    return None


def _read_both(change: FileChange) -> tuple[_Flags, _Flags] | None:
    """None for a new file: there was nothing that it could make weaker."""
    read = find_lint_reader(change.path)
    before, after = decode(change.old), decode(change.new)
    if read is None or change.old is None or max(len(before), len(after)) > LONGEST:
        return None
    gone = {f"{change.path} is gone": "the file is gone"} if before.strip() and _is_lint_only(change.path) else {}
    try:
        old = read(before, change.path)
        new = gone if change.new is None else read(after, change.path)
    except (ValueError, RecursionError, configparser.Error, AttributeError):
        return None
    return (old, new) if old is not None and new is not None else None


def _is_lint_only(path: str) -> bool:
    return path.rpartition("/")[2] not in ("pyproject.toml", "setup.cfg", "Cargo.toml", "package.json", "tox.ini")


_OFF = {"off", "0", "false", "none", "allow", "warn", "1", "disable"}
_STRICT = re.compile(
    r"strict\w*|no(?:Implicit|Unchecked|Unused|Fallthrough|Property)\w*|exactOptionalPropertyTypes|checkJs|forceConsistent\w*|alwaysStrict|useUnknown\w*"
)
_LOOSE = re.compile(r"skipLibCheck|allowJs|allowUnreachableCode|allowUnusedLabels|suppress\w+|noCheck")


def _read_eslint(text: str, path: str) -> _Flags:
    """Rules that are off or only warn, and ignored files, in JSON or JavaScript."""
    found: _Flags = {}
    for setting in list_settings(_wrap_json(text, path), _as_script(path)):
        value = setting.value if isinstance(setting.value, str) else (setting.value or [""])[0]
        if setting.key in ("ignores", "ignorePatterns"):
            found |= {f"ignores {one}": f"ignores {one}" for one in _as_list(setting.value)}
        elif "rules" in setting.inside and value in _OFF:
            found[f"rule {setting.key} {value in ('warn', '1')}"] = f"{setting.key} is {value}"
    return found


def _wrap_json(text: str, path: str) -> str:
    return text if re.search(r"\.[cm]?[jt]s\Z", path) else f"({text}\n)"


def _as_script(path: str) -> str:
    return path if re.search(r"\.[cm]?[jt]s\Z", path) else f"{path}.js"


def _as_list(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]


def _read_tsconfig(text: str, path: str) -> _Flags:
    """JSON with comments is JavaScript in parentheses."""
    found: _Flags = {}
    for setting in list_settings(_wrap_json(text, path), _as_script(path)):
        on = setting.value == "true"
        if setting.key == "exclude":
            found |= {f"exclude {one}": f"exclude {one}" for one in _as_list(setting.value) if one != "node_modules"}
        elif (_STRICT.fullmatch(setting.key) and setting.value == "false") or (_LOOSE.fullmatch(setting.key) and on):
            found[setting.key] = f"{setting.key} is {setting.value}"
    if not any(
        one.key == "strict" and one.value == "true" for one in list_settings(_wrap_json(text, path), _as_script(path))
    ):
        found.setdefault("strict", "strict is not set")
    return found


_MYPY_ON = re.compile(
    r"ignore_errors|ignore_missing_imports|allow_\w+|disable_error_code|exclude|implicit_\w+|follow_imports"
)
_MYPY_OFF = re.compile(
    r"strict\w*|disallow_\w+|warn_\w+|check_untyped_defs|no_implicit_\w+|extra_checks|enable_error_code"
)


def _read_mypy(values: Mapping[str, Any], where: str = "") -> _Flags:
    found: _Flags = {"mypy": "configured"}
    for key, value in values.items():
        said = str(value).lower()
        if _MYPY_ON.fullmatch(key) and said not in ("false", "[]", "", "normal"):
            found |= {f"mypy {where}{key} {one}": f"{where}{key} = {one}" for one in _split(value)}
        elif _MYPY_OFF.fullmatch(key) and said == "false":
            found[f"mypy {where}{key}"] = f"{where}{key} = {value}"
    if not where and values and str(values.get("strict", "")).lower() != "true":
        found["mypy strict"] = "strict is not set"
    return found


def _split(value: Any) -> list[str]:
    return _as_list(value) if isinstance(value, list) else [one for one in re.split(r"[\s,]+", str(value)) if one]


def _get_table(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    table = values.get(key)
    return table if isinstance(table, dict) else {}


def _read_ruff(values: Any) -> _Flags:
    if not isinstance(values, dict):
        return {}
    lint = {**values, **_get_table(values, "lint")}
    found: _Flags = {"ruff": "configured"}
    for key in ("ignore", "extend-ignore", "exclude", "extend-exclude"):
        found |= {f"ruff {key} {one}": f"{key} {one}" for one in _split(lint.get(key, []))}
    for key in ("per-file-ignores", "extend-per-file-ignores"):
        table = _get_table(lint, key)
        found |= {
            f"ruff {key} {file} {one}": f"{one} in {file}" for file, rules in table.items() for one in _split(rules)
        }
    chosen = set(_split(lint.get("select", []))) | set(_split(lint.get("extend-select", [])))
    return found | {
        f"ruff without {one}": f"{one} is not selected" for one in _FAMILIES - chosen if chosen and "ALL" not in chosen
    }


_FAMILIES = {
    "A",
    "ANN",
    "ARG",
    "ASYNC",
    "B",
    "BLE",
    "C4",
    "C90",
    "D",
    "E",
    "F",
    "I",
    "N",
    "PERF",
    "PL",
    "PT",
    "RET",
    "RUF",
}
_FAMILIES |= {"S", "SIM", "T20", "TRY", "UP", "W"}


def _read_toml(text: str, path: str) -> _Flags:
    document: dict[str, Any] = tomllib.loads(text)
    if not path.endswith("pyproject.toml"):
        return _read_ruff(document)
    tool = document.get("tool")
    tool = tool if isinstance(tool, dict) else {}
    found = _read_ruff(tool.get("ruff"))
    mypy = tool.get("mypy")
    if isinstance(mypy, dict):
        found |= _read_mypy({key: value for key, value in mypy.items() if key != "overrides"})
        for one in mypy.get("overrides") or []:
            found |= _read_mypy({key: value for key, value in one.items() if key != "module"}, f"{one.get('module')} ")
    return found


def _read_ini(text: str, path: str) -> _Flags:
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    parser.read_string(text)
    found: _Flags = {}
    for section in parser.sections():
        values = {key: value or "" for key, value in parser.items(section)}
        if section.startswith("mypy"):
            found |= _read_mypy(values, "" if section == "mypy" else f"{section} ")
        elif section == "flake8":
            found["flake8"] = "configured"
            wanted = ("ignore", "extend-ignore", "exclude", "extend-exclude", "per-file-ignores")
            found |= {f"flake8 {key} {one}": f"{key} {one}" for key in wanted for one in _split(values.get(key, ""))}
    return found


def _read_cargo(text: str, path: str) -> _Flags:
    document: dict[str, Any] = tomllib.loads(text)
    tables = [document.get("lints"), (document.get("workspace") or {}).get("lints")]
    found: _Flags = {}
    for tool, rules in ((tool, rules) for table in tables if isinstance(table, dict) for tool, rules in table.items()):
        for rule, level in rules.items() if isinstance(rules, dict) else ():
            said = level.get("level") if isinstance(level, dict) else level
            if said == "allow":
                found[f"{tool}::{rule}"] = f"{tool}::{rule} is allowed"
    return found


_LISTED = re.compile(r"^\s*-\s*[\"']?([^\"'#\n]+?)[\"']?\s*(?:#.*)?$")
_YAML_KEY = re.compile(r"^\s*([\w-]+):\s*(.*?)\s*$")
_LEAVING_OUT = {
    "disable",
    "exclude-rules",
    "exclude",
    "exclude-dirs",
    "exclude-files",
    "skip-dirs",
    "skip-files",
    "paths",
    "rules",
}


def _read_golangci(text: str, path: str) -> _Flags:
    """Reads only lists under keys, and ignores the rest of YAML."""
    found: _Flags = {}
    key = ""
    for line in text.splitlines():
        if item := _LISTED.match(line):
            if key in _LEAVING_OUT:
                found[f"{key} {item[1]}"] = f"{key}: {item[1]}"
        elif pair := _YAML_KEY.match(line):
            key = pair[1]
            if key in ("disable-all", "new", "tests") and pair[2] == ("false" if key == "tests" else "true"):
                found[key] = f"{key}: {pair[2]}"
    return found


def _read_pyright(text: str, path: str) -> _Flags:
    document = json.loads(text)
    found = {
        f"{key}": f"{key} is {value}"
        for key, value in document.items()
        if str(value).lower() in ("none", "false", "off", "basic")
    }
    return found | {f"{key} {one}": f"{key} {one}" for key in ("exclude", "ignore") for one in document.get(key, [])}


_READERS: tuple[tuple[re.Pattern[str], _Reader], ...] = (
    (re.compile(r"\.eslintrc(?:\.(?:json|[cm]?js))?|eslint\.config\.[cm]?[jt]s|\.?oxlintrc\.json"), _read_eslint),
    (re.compile(r"tsconfig[\w.-]*\.json"), _read_tsconfig),
    (re.compile(r"pyproject\.toml|\.?ruff\.toml"), _read_toml),
    (re.compile(r"\.?mypy\.ini|setup\.cfg|\.flake8|tox\.ini"), _read_ini),
    (re.compile(r"Cargo\.toml"), _read_cargo),
    (re.compile(r"\.golangci\.ya?ml"), _read_golangci),
    (re.compile(r"pyrightconfig\.json"), _read_pyright),
)
