"""Test configuration: the files that say which tests are run, and what is required of them."""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from ralphtool.judging.guard.commands import (
    CHECKING_SCRIPT,
    find_weakened_scripts,
    is_benign,
    list_options,
    list_programs,
)
from ralphtool.judging.guard.config_code import find_hooks, list_settings
from ralphtool.judging.guard.model import LONGEST, FileChange, GuardFinding, decode, shorten


class _TestConfig(Struct):
    """What a configuration file says about which tests are run, and what is required of them."""

    left_out: dict[str, str] = {}
    """What is left out, or let pass: by a key that is the same wherever it is written."""
    places: dict[str, list[str]] = {}
    """Where tests are looked for."""
    floors: dict[str, float] = {}
    """How much has to be covered."""
    scripts: dict[str, str] = {}
    """What is run as tests and checks."""


_ConfigParser = Callable[[str], _TestConfig | None]


def inspect_configs(changes: Sequence[FileChange]) -> list[GuardFinding]:
    """Checks all files together, because a setting may move from one to another."""
    sides = [(change.path, *both) for change in changes if (both := _read_configs(change))]
    known = {key for _, old, _ in sides for key in old.left_out}
    floors: dict[str, float] = {}
    for _, _, new in sides:
        for key, value in new.floors.items():
            floors[key] = max(value, floors.get(key, value))
    ran = {program for _, _, new in sides for script in new.scripts.values() for program in list_programs(script)}
    found = []
    for path, old, new in sides:
        why = [f"adds {shorten(shown)}" for key, shown in new.left_out.items() if key not in known]
        why += _find_lowered(old.floors, new.floors, floors) + _find_narrowed(old.places, new.places)
        why += find_weakened_scripts(old.scripts, new.scripts, ran)
        found += [GuardFinding("test-config", path, one) for one in why]
    return found


def _read_configs(change: FileChange) -> tuple[_TestConfig, _TestConfig] | None:
    read = find_config_parser(change.path)
    before, after = decode(change.old), decode(change.new)
    if read is None or max(len(before), len(after)) > LONGEST:
        return None
    old, new = read(before), read(after)
    return (old, new) if old and new else None


def _find_lowered(old: Mapping[str, float], new: Mapping[str, float], everywhere: Mapping[str, float]) -> list[str]:
    now = {key: new.get(key, everywhere.get(key)) for key in old}
    return [
        f"{key} {'is gone' if now[key] is None else f'is {now[key]:g}'}, it was {value:g}"
        for key, value in old.items()
        if (now[key] or 0) < value
    ]


def _find_narrowed(old: Mapping[str, Sequence[str]], new: Mapping[str, Sequence[str]]) -> list[str]:
    found = []
    for key, before in old.items():
        after = new.get(key, [])
        gone = [one for one in before if after and one not in after]
        inside = [one for one in gone if any(other.startswith(f"{one.rstrip('/')}/") for other in after)]
        if inside or (gone and len(after) < len(before)):
            found.append(f"{key} no longer names {shorten((inside or gone)[0])}")
    return found


_SCRIPTED = re.compile(
    r"(?:jest|vitest|playwright|cypress|karma|vite)\.(?:config|conf|workspace)\.[cm]?[jt]s|\.mocharc\.[cm]?js"
)


def find_config_parser(path: str) -> _ConfigParser | None:
    """The parser of a file. It returns None for an unreadable file: the tool that uses it will report the error."""
    name = path.rpartition("/")[2]
    if name in _CONFIG_READERS:
        return _CONFIG_READERS[name]
    if _SCRIPTED.fullmatch(name):
        return lambda text: _parse_script(text, path)
    if re.fullmatch(r"jest\.config\.json|\.mocharc\.jsonc?", name):
        return _parse_json_config
    return _parse_makefile if name.endswith(".mk") else None


def _parse_ini(text: str) -> _TestConfig | None:
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    try:
        parser.read_string(text)
    except (configparser.Error, AttributeError):  # before Python 3.13, an indented line under a key without a value
        return None
    settings = _TestConfig()
    for section in parser.sections():
        values = {key: value or "" for key, value in parser.items(section)}
        if section in ("pytest", "tool:pytest"):
            _add_pytest(values, settings)
        if section in ("coverage:report", "report"):
            _add_floor(settings, values.get("fail_under"))
        if section.startswith("testenv") and values.get("commands"):
            settings.scripts[f"[{section}] commands"] = values["commands"]
    return settings


def _parse_toml(text: str) -> _TestConfig | None:
    try:
        document: Any = tomllib.loads(text)
    except (ValueError, RecursionError):
        return None
    settings = _TestConfig()
    for table in (
        _get_table(document, "tool", "pytest", "ini_options"),
        _get_table(document, "tool", "pytest"),
        _get_table(document, "pytest"),
    ):
        _add_pytest({key: _join_words(value) for key, value in table.items() if key != "ini_options"}, settings)
    _add_floor(settings, _get_table(document, "tool", "coverage", "report").get("fail_under"))
    return settings


def _get_table(document: Any, *keys: str) -> dict[str, Any]:
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}


def _join_words(value: Any) -> str:
    return " ".join(str(one) for one in value) if isinstance(value, list) else str(value)


def _add_pytest(values: Mapping[str, str], settings: _TestConfig) -> None:
    settings.left_out |= list_options(values.get("addopts", ""))
    if floor := re.search(r"--cov-fail-under[= ](\S+)", values.get("addopts", "")):
        _add_floor(settings, floor[1])
    for one in values.get("norecursedirs", "").split():
        if not is_benign(one):
            settings.left_out[f"norecursedirs {one}"] = f"norecursedirs = {one}"
    for key in ("testpaths", "python_files", "python_classes", "python_functions"):
        if values.get(key, "").split():
            settings.places[key] = values[key].split()


def _add_floor(settings: _TestConfig, value: Any) -> None:
    if value is not None and _PERCENT.fullmatch(str(value)):
        settings.floors["the required coverage"] = float(value)


_PERCENT = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,9})?")
_LISTS = {"testPathIgnorePatterns", "exclude", "testIgnore", "ignore", "modulePathIgnorePatterns", "excludeSpecPattern"}
_LISTS |= {"testNamePattern", "grep", "grepInvert", "invert", "fgrep"}
_SWITCHES = {"passWithNoTests", "allowOnly", "dangerouslyIgnoreUnhandledErrors"}
_FLOORS = {"branches", "functions", "lines", "statements"}
_KEYS = _LISTS | _SWITCHES | _FLOORS


def _parse_script(text: str, path: str) -> _TestConfig:
    """The configuration of Jest, Vitest and others in JavaScript: parsed, not run."""
    settings = _TestConfig()
    for setting in list_settings(text, path):
        if setting.key not in _KEYS or (setting.key in _LISTS and "coverage" in setting.inside):
            continue  # exclusions from coverage do not affect which tests run
        if not path.rpartition("/")[2].startswith("vite.") or "test" in setting.inside:
            _add_setting(settings, setting.key, setting.value)
    return settings


def _parse_conftest(text: str) -> _TestConfig | None:
    hooks = find_hooks(text)
    if hooks is None:
        return None
    settings = _TestConfig()
    for name, value in hooks:
        if not is_benign(value) and value not in ("setup.py", "conftest.py"):
            settings.left_out[f"{name} {value}"] = f"{name} {value}".strip()
    return settings


def _add_setting(settings: _TestConfig, key: str, value: Any) -> None:
    if key in _LISTS:
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str) and one and not is_benign(one):
                settings.left_out[f"{key} {one}"] = f"{key}: {one}"
    elif key in _SWITCHES:
        if str(value).lower() not in ("false", "0", "", "undefined", "none"):
            settings.left_out[key] = f"{key}: {shorten(str(value), 40)}"
    elif _PERCENT.fullmatch(str(value)):
        name = f"the required coverage of {key}"
        settings.floors[name] = min(float(value), settings.floors.get(name, 100.0))


def _read_json_config(document: Any) -> _TestConfig:
    settings = _TestConfig()
    waiting = [document]
    while waiting:
        one = waiting.pop()
        for key, value in one.items() if isinstance(one, dict) else ():
            if key in _KEYS and not isinstance(value, dict):
                _add_setting(settings, key, value)
            waiting.append(value)
    return settings


def _load_json(text: str) -> Any:
    try:
        return json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None


def _parse_json_config(text: str) -> _TestConfig | None:
    document = _load_json(text)
    return None if document is None else _read_json_config(document)


def _parse_package(text: str) -> _TestConfig | None:
    document = _load_json(text)
    if document is None:
        return None
    settings = _read_json_config(_get_table(document, "jest"))
    scripts = {name: one for name, one in _get_table(document, "scripts").items() if isinstance(one, str)}
    for name, command in scripts.items():
        if CHECKING_SCRIPT.fullmatch(name):
            settings.scripts[f"the script {name}"] = _expand_scripts(command, scripts)
    return settings


def _expand_scripts(command: str, scripts: Mapping[str, str]) -> str:
    """Adds the commands of the scripts that it runs: `npm run unit && npm run lint`."""
    if "no test specified" in command:
        return ""
    called = re.findall(r"\b(?:npm|pnpm|yarn|bun)\s+(?:run\s+)?(?:-\S+\s+)*([\w:.-]+)", command)
    called += re.findall(r"[\w:.-]+", command) if re.match(r"(?:run-[sp]|npm-run-all|concurrently)\b", command) else []
    inner = [scripts[name] for name in dict.fromkeys(called[:50]) if name in scripts]
    return "\n".join([*inner, command]) if inner else command


_TARGET = re.compile(r"(?P<names>[^\s#:=][^:=#]*):(?![=:])(?P<needs>[^=;]*)(?:;(?P<first>.*))?\Z")


def _parse_makefile(text: str) -> _TestConfig:
    targets: dict[str, tuple[list[str], list[str]]] = {}
    now: list[tuple[list[str], list[str]]] = []
    for line in text.replace("\\\n", " ").split("\n"):
        if line.startswith("\t"):
            for _, recipe in now:
                recipe.append(_clean_recipe_line(line.strip()))
        elif line.strip() and not line.startswith("#") and (match := _TARGET.match(line[:5000])):
            now = [targets.setdefault(name, ([], [])) for name in match["names"].split()]
            for needs, recipe in now:
                needs += match["needs"].split()
                recipe += [_clean_recipe_line(match["first"].strip())] if match["first"] else []
        elif line.strip() and not line.startswith("#"):
            now = []
    wanted = [name for name in targets if CHECKING_SCRIPT.fullmatch(name)]
    return _TestConfig(scripts={f"the target {name}": _expand_recipe(name, targets) for name in wanted[:200]})


def _clean_recipe_line(line: str) -> str:
    return f"{line} || true" if line.lstrip("@+ ").startswith("-") else line


def _expand_recipe(name: str, targets: Mapping[str, tuple[list[str], list[str]]]) -> str:
    """The commands of a target and of all its prerequisites."""
    seen, waiting = {name}, [name]
    lines: list[str] = []
    while waiting and len(lines) < 1000:
        needs, recipe = targets.get(waiting.pop(), ([], []))
        lines += recipe
        more = [one for one in needs if one not in seen]
        seen.update(more)
        waiting += more
    return "\n".join(lines)


_CONFIG_READERS: dict[str, _ConfigParser] = {
    "conftest.py": _parse_conftest,
    "pyproject.toml": _parse_toml,
    "pytest.toml": _parse_toml,
    ".pytest.toml": _parse_toml,
    "package.json": _parse_package,
    **dict.fromkeys(("pytest.ini", ".pytest.ini", "setup.cfg", "tox.ini", ".coveragerc"), _parse_ini),
    **dict.fromkeys(("Makefile", "makefile", "GNUmakefile"), _parse_makefile),
}
