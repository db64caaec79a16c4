"""The gates of a Python project: which tool runs its tests, and which one manages its packages."""

import os

from ralphtool.core.gate_sources import find_values, is_only_test, is_python_test, list_quoted, parse_tables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralphtool.core.gate_sources import Guess, SourceFolder

# Files in which a project names the tools that it uses.
_SAYS = ("pyproject.toml", "setup.cfg", "setup.py", "tox.ini", "tox.toml", "Pipfile", "noxfile.py")
_PYTEST_FILES = {"pytest.ini", ".pytest.ini", "conftest.py"}
_SCRIPTS = ("runtests.py", "tests/runtests.py")  # Django's own tests and those of its apps: they need settings first
_RUFF_FILES = ("ruff.toml", ".ruff.toml")
_MOST_TESTS = 30  # test files that are read to find out which test runner they need
_LOCKS = (("uv.lock", "uv run"), ("poetry.lock", "poetry run"), ("pdm.lock", "pdm run"), ("Pipfile", "pipenv run"))
_TABLES = (("tool.uv", "uv run"), ("tool.poetry", "poetry run"), ("tool.pdm", "pdm run"))


def infer(folder: "SourceFolder") -> "Guess":
    tables = parse_tables(folder.read("pyproject.toml"))
    return _list_checks(folder, tables), _list_tests(folder, tables)


def _list_checks(folder: "SourceFolder", tables: dict[str, str]) -> list[str]:
    found = []
    if _has_table(tables, "tool.ruff") or folder.names.intersection(_RUFF_FILES):
        found.append(f"ruff check {_keep_ruff_from_fixing(folder, tables)}.")
    elif ".flake8" in folder.names or "flake8" in parse_tables(folder.read("setup.cfg")):
        found.append("flake8")
    if mypy := _find_mypy(folder, tables):
        found.append(mypy)
    if "tool.pyright" in tables or "pyrightconfig.json" in folder.names:
        found.append("pyright")
    return [_run_tool(folder, tables, command) for command in found]


def _keep_ruff_from_fixing(folder: "SourceFolder", tables: dict[str, str]) -> str:
    """ruff can be set to change files: a gate must only look: what it changes is not committed."""
    bodies = [tables.get("tool.ruff", ""), *(parse_tables(folder.read(name))[""] for name in _RUFF_FILES)]
    settings = [find_values(body) for body in bodies]
    keys = [key for key in ("fix", "fix-only") if any(one.get(key, "").startswith("true") for one in settings)]
    return "".join(f"--no-{key} " for key in keys)


def _find_mypy(folder: "SourceFolder", tables: dict[str, str]) -> str:
    """mypy reads the first of these files; if that names no targets, mypy needs an argument."""
    for name, table in (("mypy.ini", "mypy"), (".mypy.ini", "mypy"), ("", "tool.mypy"), ("setup.cfg", "mypy")):
        found = parse_tables(folder.read(name)) if name else tables
        if table in found or (name in folder.names and name.endswith("mypy.ini")):
            keys = find_values(found.get(table, ""))
            return "mypy" if {"files", "packages", "modules"} & keys.keys() else "mypy ."
    return "mypy ." if any(name.strip("[]").startswith("tool.mypy") for name in tables) else ""


def _has_table(tables: dict[str, str], name: str) -> bool:
    return any(one == name or one.startswith(f"{name}.") for one in tables)


# --- running the tools ------------------------------------------------------------------------------


def _find_runner(folder: "SourceFolder", tables: dict[str, str]) -> str:
    """The tool that manages the project's packages also runs its commands: any other Python would lack them."""
    named = next((run for lock, run in _LOCKS if lock in folder.names), "")
    runner = named or next((run for table, run in _TABLES if _has_table(tables, table)), "")
    return f"{runner} --all-packages" if runner == "uv run" and "tool.uv.workspace" in tables else runner


def _run_tool(folder: "SourceFolder", tables: dict[str, str], command: str) -> str:
    if runner := _find_runner(folder, tables):
        group = _find_group(tables, command.split()[0]) if runner == "uv run" else ""
        return f"{runner} {group}{command}"
    program, space, arguments = command.partition(" ")
    return f"{_find_own(folder, program) or program}{space}{arguments}"


def _run_python(folder: "SourceFolder", tables: dict[str, str], arguments: str) -> str:
    runner = _find_runner(folder, tables)
    return f"{runner} python {arguments}" if runner else f"{_find_python(folder)} {arguments}"


def _find_python(folder: "SourceFolder", tool: str = "python") -> str:
    """The project's own environment if it has the tool and an active one does not; else the name of Python here."""
    if _find_own(folder, tool if os.environ.get("VIRTUAL_ENV") else "python") and (
        own := _find_below(folder, "python")
    ):
        return own
    return "python" if _is_on_path("python") or not _is_on_path("python3") else "python3"


def _find_own(folder: "SourceFolder", program: str) -> str:
    """An active environment may be another one, such as that of ralphtool itself, without the project's tools."""
    active = os.environ.get("VIRTUAL_ENV")
    is_active = active and os.path.exists(os.path.join(active, "bin", program))
    return "" if is_active else _find_below(folder, program)


def _find_below(folder: "SourceFolder", program: str) -> str:
    places = [f"{name}/bin/{program}" for name in (".venv", "venv")]
    return next((one for one in places if os.path.exists(os.path.join(folder.path, one))), "")


def _is_on_path(name: str) -> bool:
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return any(os.access(os.path.join(place, name), os.X_OK) for place in places if place)


# --- tests ------------------------------------------------------------------------------------------


def _list_tests(folder: "SourceFolder", tables: dict[str, str]) -> list[str]:
    if _names_pytest(folder):
        return [_run_pytest(folder, tables, _find_only_tests(folder))]
    if script := next((one for one in _SCRIPTS if os.path.exists(os.path.join(folder.path, one))), ""):
        return [_run_python(folder, tables, script)]
    if "manage.py" in folder.names:
        return [_run_python(folder, tables, "manage.py test")]
    found = _find_test_files(folder) or _find_only_tests(folder)
    if found and _are_for_unittest(folder, found):
        return [_run_python(folder, tables, f"-m unittest{_find_discovery(folder, found)}")]
    if found:
        return [_run_pytest(folder, tables, _find_only_tests(folder))]
    has_tox = bool({"tox.ini", "tox.toml"} & folder.names) or _has_table(tables, "tool.tox")
    return [_run_tool(folder, tables, "tox run -e py")] if has_tox else []


def _names_pytest(folder: "SourceFolder") -> bool:
    if _PYTEST_FILES & (folder.names | folder.open("tests").names | folder.open("test").names):
        return True
    needs = [name for name in folder.names if "requirements" in name and name.endswith((".txt", ".in"))]
    return any("pytest" in folder.read(name) for name in (*_SAYS, *needs))


def _run_pytest(folder: "SourceFolder", tables: dict[str, str], files: list[str]) -> str:
    command = " ".join(("pytest", *files))
    runner = _find_runner(folder, tables)
    if not runner:
        return f"{_find_python(folder, 'pytest')} -m {command}"
    group = _find_group(tables, "pytest") if runner == "uv run" else ""
    return f"{runner} {group}{command}"


def _find_group(tables: dict[str, str], tool: str) -> str:
    """The option that `uv run` needs if a tool is in a group or extra that it does not install by default."""
    groups = find_values(tables.get("dependency-groups", ""))
    usual = list_quoted(find_values(tables.get("tool.uv", "")).get("default-groups", '"dev"'))
    included = {name for one in usual for name in list_quoted(groups.get(one, ""))}
    with_tool = [name for name, value in groups.items() if _lists(tool, value)]
    needed = find_values(tables.get("project", "")).get("dependencies", "")
    if _lists(tool, needed) or any(name in usual or name in included for name in with_tool):
        return ""
    if with_tool:
        return f"--group {with_tool[0]} "
    extras = find_values(tables.get("project.optional-dependencies", ""))
    return next((f"--extra {name} " for name, value in extras.items() if _lists(tool, value)), "")


def _lists(tool: str, value: str) -> bool:
    return any(one.strip().lower().startswith(tool) for one in list_quoted(value))


def _find_test_files(folder: "SourceFolder") -> list[str]:
    """The first test files at the top, in `tests` and `test`, and in the packages."""
    skipped = {"node_modules", "build", "dist", "site-packages", "venv", "env"}
    tops = sorted(name for name in folder.names if "." not in name and name not in skipped)
    places = ["", "tests", "test", *(f"{top}/{below}".rstrip("/") for top in tops[:50] for below in ("", "tests"))]
    found = [os.path.join(place, name) for place in dict.fromkeys(places) for name in _list_named(folder, place)]
    return found[:_MOST_TESTS]


def _list_named(folder: "SourceFolder", place: str) -> list[str]:
    return sorted(name for name in folder.open(place).names if is_python_test(name))


def _find_only_tests(folder: "SourceFolder") -> list[str]:
    """`test.py` at the top, if it has all the tests: not a scratch file, and not found by the rules of the project."""
    has_others = bool({"tests", "test"} & folder.names) or _find_test_files(folder)
    if has_others or any("python_files" in folder.read(name) for name in (*_SAYS, *_PYTEST_FILES)):
        return []
    names = sorted(name for name in folder.names if is_only_test(name))
    return [name for name in names if "def test" in folder.read(name)]


def _are_for_unittest(folder: "SourceFolder", found: list[str]) -> bool:
    """unittest comes with Python; pytest is only used for tests that unittest can't run."""
    texts = [folder.open(os.path.dirname(path)).read(os.path.basename(path)) for path in found]
    return any("unittest" in text for text in texts) and not any(
        "import pytest" in text or text.startswith("def test_") or "\ndef test_" in text for text in texts
    )


def _find_discovery(folder: "SourceFolder", found: list[str]) -> str:
    """Empty if unittest finds the tests by itself: at the top, and in packages."""
    first = os.path.dirname(found[0])
    is_seen = not first or all(
        "__init__.py" in folder.open(place).names for place in (first, os.path.dirname(first)) if place
    )
    start = "" if is_seen else f" -s {first}"
    pattern = "" if any(os.path.basename(path).startswith("test") for path in found) else " -p '*_test.py'"
    return f" discover{start}{pattern}" if start or pattern else ""
