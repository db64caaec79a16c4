"""Files that take part in tests although they are outside of the test folders: plugins, modules that hide a library
of the test program, and modules that only check results. Read from the last checkpoint, which no attempt can change.
"""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from ralphtool.judging.guard.test_files import find_language
from ralphtool.judging.roles import TEST_ROLES, find_role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ralphtool.judging.guard.model import FileChange

    Read = Callable[[Sequence[str]], Mapping[str, bytes]]
    Grep = Callable[[str], Sequence[str]]

_LONGEST = 200_000
_SEARCHED = ("", "src/", "lib/")  # folders of a project in which programs look for modules


# --- plugins ------------------------------------------------------------------------------------------

_PYTHON_CONFIGS: tuple[str, ...] = (
    "pyproject.toml",
    "setup.cfg",
    "setup.py",
    "tox.ini",
    "tox.toml",
    "pytest.ini",
    ".pytest.ini",
)
_PYTHON_CONFIGS += ("pytest.toml", ".pytest.toml")
_SCRIPT_CONFIGS: tuple[str, ...] = (
    "package.json",
    ".mocharc.json",
    ".mocharc.yml",
    ".mocharc.yaml",
    ".mocharc.js",
    ".mocharc.cjs",
)
_SCRIPT_CONFIGS += tuple(
    f"{name}.config.{suffix}" for name in ("jest", "vitest", "vite") for suffix in ("js", "ts", "mjs", "cjs", "mts")
)
_PLUGINS = re.compile(r"^pytest_plugins\b[^=\n]*=\s*(\[[^\]]*\]|\([^)]*\)|[^\n]*)", re.MULTILINE)
_OPTION = re.compile(r"(?<![\w-])-p(?:[ \t=]*|[\"'],\s*)[\"']?(?!no:)([A-Za-z_][\w.]*)")
_OF_ENTRY = re.compile(r"=\s*[\"']?([A-Za-z_][\w.]*)")
_IS_PLUGIN = re.compile(r"^[ \t]*name\s*=\s*[\"']?pytest[-_]", re.MULTILINE)
_LOADED = re.compile(r"(?:--(?:import|require|loader|experimental-loader)|(?<![\w-])-r)[ =]+[\"']?([\w./-]+)")
_KEYS = re.compile(
    r"(?:setupFiles\w*|globalSetup|globalTeardown|testEnvironment|testRunner|runner|reporters?|transform|testSequencer"
    r"|snapshotSerializers|require|file)[\"']?\s*:\s*(\[[^\]]*\]|\{[^}]*\}|[\"'][^\"'\n]*[\"'])"
)
_QUOTED = re.compile(r"[\"']([^\"'\n]+)[\"']")


def find_plugins(
    changes: Sequence[FileChange], commands: Iterable[str], run: Iterable[str], read: Read, grep: Grep,
    bases: Sequence[str] = ("",),
) -> frozenset[str]:  # fmt: skip
    """The changed files that a test program loads before tests, because its configuration names them.

    `run` has the files that the gates run. A project that is a plugin itself is what is tested.
    """
    languages = {find_language(one.path) for one in changes}
    found = set[str]()
    if "py" in languages:
        found |= _list_python_plugins(commands, run, read, grep, bases)
    if "js" in languages:
        found |= _list_script_plugins(commands, run, read, bases)
    return frozenset(path for one in changes for path in (one.path, one.old_path or one.path) if path in found)


def _list_python_plugins(
    commands: Iterable[str], run: Iterable[str], read: Read, grep: Grep, bases: Sequence[str]
) -> set[str]:
    configs = _read_texts(read, [f"{base}{name}" for base in bases for name in _PYTHON_CONFIGS])
    declared = _read_texts(read, [path for path in grep("pytest_plugins") if path.endswith(".py")])
    lines = [*configs, *_read_texts(read, run), *(text for text in commands if "pytest" in text)]
    names = {name for text in declared for found in _PLUGINS.finditer(text) for name in _QUOTED.findall(found[1])}
    names |= {found[1] for text in lines for found in _OPTION.finditer(text)}
    if not any(_IS_PLUGIN.search(text) for text in configs):
        names |= {name for text in configs for name in _list_entry_points(text)}
    paths = [part.strip().replace(".", "/") for name in names for part in name.split(",")]
    ends = (".py", "/__init__.py")
    return {f"{base}{place}{path}{end}" for path in paths for base in bases for place in _SEARCHED for end in ends}


def _list_entry_points(text: str) -> Iterable[str]:
    """The modules of `pytest11`: in a table of TOML, in a list or table in brackets, or in indented lines."""
    for part in text.split("pytest11")[1:]:
        head, _, rest = part.partition("\n")
        if head.strip("\"' ").startswith("]"):
            block = rest.partition("\n[")[0]
        elif opened := re.search(r"[\[{]", head):
            block = re.split(r"[\]}]", part[opened.end() :])[0]
        else:
            lines = rest.split("\n")
            end = next((at for at, line in enumerate(lines) if line[:1] not in (" ", "\t")), len(lines))
            block = "\n".join(lines[:end])
        yield from _OF_ENTRY.findall(block)


def _list_script_plugins(commands: Iterable[str], run: Iterable[str], read: Read, bases: Sequence[str]) -> set[str]:
    configs = _read_texts(read, [f"{base}{name}" for base in bases for name in _SCRIPT_CONFIGS])
    words = [word for text in configs for found in _KEYS.finditer(text) for word in _QUOTED.findall(found[1])]
    words += [found[1] for text in (*commands, *configs, *_read_texts(read, run)) for found in _LOADED.finditer(text)]
    paths = {word.removeprefix("<rootDir>/").removeprefix("./") for word in words}
    ends = ("", *(f".{one}" for one in ("js", "ts", "mjs", "cjs", "mts")))
    return {f"{base}{path}{end}" for path in paths for base in bases for end in ends}


def _read_texts(read: Read, paths: Iterable[str]) -> list[str]:
    asked = sorted({*paths})[:_MOST]
    return [data[:_LONGEST].decode("utf-8", "replace") for data in read(asked).values()] if asked else []


# --- modules that hide a library ----------------------------------------------------------------------

_MOST = 200  # files that are read for one question
_LIBRARIES = (
    "_pytest pytest py pluggy iniconfig packaging pygments exceptiongroup tomli tomllib colorama attr attrs"
    " execnet xdist typing_extensions importlib_metadata zipp atomicwrites more_itertools pytest_cov pytest_asyncio"
    " pytest_mock pytest_timeout coverage hypothesis sortedcontainers nose nose2 mock six setuptools pkg_resources"
)
_TEST_LIBRARIES = frozenset(_LIBRARIES.split())
_MODULES = (".py", ".pyc", ".so", ".pyd")


def find_hiding(
    changes: Sequence[FileChange], files: Sequence[str], read: Read, grep: Grep, bases: Sequence[str] = ("",), *,
    is_green: bool,
) -> frozenset[str]:  # fmt: skip
    """The new files that Python would import instead of an installed library, which the test program or a file uses.

    `files` are those of the project. `is_green`: all tests passed before, so every module that they import existed.
    """
    found = []
    for one in changes:
        name = _name_top_module(one.path, bases) if one.old is None else ""
        if (
            name
            and not _has_module(name, files)
            and (name in _TEST_LIBRARIES or (is_green and _is_imported(name, read, grep, bases)))
        ):
            found.append(one.path)
    return frozenset(found)


def _name_top_module(path: str, bases: Sequence[str]) -> str:
    if not path.endswith(_MODULES):
        return ""
    base = max((one for one in bases if path.startswith(one)), key=len, default="")
    inside = path.removeprefix(base)
    for folder in _SEARCHED[1:]:
        inside = inside.removeprefix(folder)
    first, _, rest = inside.partition("/")
    return first if rest else first.partition(".")[0]


def _has_module(name: str, files: Iterable[str]) -> bool:
    return any(name in path.removesuffix(".py").split("/") for path in files if path.endswith(".py"))


def _is_imported(name: str, read: Read, grep: Grep, bases: Sequence[str]) -> bool:
    word = re.compile(rf"^[ \t]*(?:import|from)\s+{re.escape(name)}\b".encode(), re.MULTILINE)
    holders = sorted(path for path in grep(name) if path.endswith(".py"))[:_MOST]
    texts = read(holders) if holders else {}
    using = [path for path, data in texts.items() if word.search(data[:_LONGEST])]
    return any(path.startswith(tuple(bases)) for path in using) or _lacks_module(name, using, read)


def _lacks_module(name: str, holders: Sequence[str], read: Read) -> bool:
    """Whether one of the files imports what its folders don't have. Another project of the repository may have it."""
    places = {path: _list_places_above(path, name) for path in holders}
    there = read(sorted({one for found in places.values() for one in found})) if places else {}
    return not all(there.keys() & one for one in places.values())


def _list_places_above(path: str, name: str) -> set[str]:
    parts = path.split("/")[:-1]
    folders = ["".join(f"{part}/" for part in parts[:end]) for end in range(len(parts) + 1)]
    ends = (f"{name}.py", f"{name}/__init__.py")
    return {f"{folder}{place}{end}" for folder in folders for place in _SEARCHED for end in ends}


# --- modules that only check results --------------------------------------------------------------------

_HOLDS = frozenset((*TEST_ROLES, "shadow"))
_FRAMEWORK = re.compile(
    r"^[ \t]*(?:import|from)\s+(?:_?pytest|unittest|hypothesis|numpy\.testing|assertpy)\b", re.MULTILINE
)
_SCRIPT_FRAMEWORK = re.compile(
    r"(?:\bfrom|\brequire\()\s*[\"'](?:node:test|vitest|chai|@jest/globals|expect|bun:test|ava|tape|power-assert)[\"']"
)
_CHECKS_RESULT = re.compile(r"\bassert\w*\b|AssertionError|\bexpect\(|\bassert\.")
_THROWS = re.compile(r"\bthrow\b")
_RETURNS = re.compile(r"\breturn[ \t]+[^;\s}]")
_OFFERED = re.compile(
    r"^[^\n]*?\bexports\.\w+\s*=|^(?:export\s+(?:default\s+)?)?(?:(?:async\s+)?function\b|class\b"
    r"|(?:const|let|var)\s+\w+\s*=\s*(?:async\s*)?(?:\([^)\n]*\)|\w+)\s*=>)",
    re.MULTILINE,
)
_DEEPEST = 3


def find_checking_modules(changes: Sequence[FileChange], read: Read, grep: Grep) -> frozenset[str]:
    """The changed modules that existing tests check results with. No source imports them, and the tests that do also
    import the source that they test: otherwise the module itself could be what is tested."""
    asked = [one for one in changes if one.old is not None and find_language(one.path) in ("py", "js")]
    found = set[str]()
    for one in asked:
        path = one.old_path or one.path
        text = (one.old or b"")[:_LONGEST].decode("utf-8", "replace")
        if find_role(path) == "source" and _checks_results(path, text) and _is_for_tests(path, read, grep, _DEEPEST):
            found |= {path, one.path}
    return frozenset(found)


def _checks_results(path: str, text: str) -> bool:
    """Whether every function that a module offers checks something, or the module uses a test program."""
    if not path.endswith(".py"):
        starts = [found.start() for found in _OFFERED.finditer(text)]
        parts = [text[start:end] for start, end in pairwise([*starts, len(text)])]
        return _SCRIPT_FRAMEWORK.search(text) is not None or bool(parts and all(map(_checks, parts)))
    if _FRAMEWORK.search(text):
        return True
    try:
        nodes = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return False
    offered = [one for one in nodes if isinstance(one, ast.FunctionDef | ast.ClassDef) and one.name[0] != "_"]
    return bool(offered) and all(isinstance(one, ast.FunctionDef) and _asserts(one) for one in offered)


def _offers_work(path: str, text: str) -> bool:
    """Whether a module of JavaScript has functions that don't check: tests import most source of a package, too."""
    return not path.endswith(".py") and _OFFERED.search(text) is not None and not _checks_results(path, text)


def _checks(function: str) -> bool:
    """Whether a function of JavaScript checks something. One that returns a value may throw because of its input."""
    return bool(_CHECKS_RESULT.search(function) or (_THROWS.search(function) and not _RETURNS.search(function)))


def _asserts(function: ast.FunctionDef) -> bool:
    raised = [one.exc for one in ast.walk(function) if isinstance(one, ast.Raise) and one.exc]
    names = [one.func if isinstance(one, ast.Call) else one for one in raised]
    if any(isinstance(one, ast.Name) and one.id == "AssertionError" for one in names):
        return True
    return any(isinstance(one, ast.Assert) for one in ast.walk(function))


def _is_for_tests(path: str, read: Read, grep: Grep, depth: int) -> bool:
    """Whether only tests import it, directly or through modules that only tests import."""
    importers = _find_importers(path, read, grep)
    tests = {one: text for one, text in importers.items() if find_role(one) in _HOLDS}
    others = [one for one in importers if one not in tests]
    if not importers or (others and not depth) or any(_offers_work(one, importers[one]) for one in others):
        return False
    checking = [text for one, text in tests.items() if find_role(one) == "test"]
    if path.endswith(".py"):
        is_checking = all(_imports_python(text, _get_stem(path), read) for text in checking)
    else:
        is_checking = all(_imports_script(text, path, read, grep) for text in checking)
    return is_checking and all(_is_for_tests(one, read, grep, depth - 1) for one in others)


def _get_stem(path: str) -> str:
    """The word by which other files import it."""
    *folders, name = path.split("/")
    stem = name.partition(".")[0]
    return folders[-1] if stem in ("__init__", "index") and folders else stem


def _find_importers(path: str, read: Read, grep: Grep) -> dict[str, str]:
    stem, package = _get_stem(path), "" if path.endswith(".py") else _name_package(path, read)
    word = _IMPORTS_PYTHON if path.endswith(".py") else _IMPORTS_SCRIPT
    words = [re.compile(word.format(re.escape(stem)), re.M)] if not package or stem not in _COMMON else []
    words += [re.compile(_IMPORTS_PACKAGE.format(re.escape(package)))] if package else []
    named = (
        {one for name in (stem, package) if name for one in grep(name)}
        if len(words) > 1 or not package
        else {*grep(package)}
    )
    asked = sorted(one for one in named if one != path and find_language(one))[: _MOST + 1]
    if len(asked) > _MOST:
        return {}  # too common a word to be sure
    texts = {one: data[:_LONGEST].decode("utf-8", "replace") for one, data in (read(asked) if asked else {}).items()}
    return {one: text for one, text in texts.items() if any(word.search(text) for word in words)}


_IMPORTS_PYTHON = r"^[ \t]*(?:from\s[^\n]*\b{0}\b|import\s[^\n]*\b{0}\b)|import_module\([^)]*\b{0}\b"
_IMPORTS_SCRIPT = r"(?:\brequire\(|\bfrom|\bimport\(?)\s*[\"'][^\"'\n]*\b{0}(?:\.\w+)?[\"']"
_IMPORTS_PACKAGE = r"(?:\brequire\(|\bfrom|\bimport\(?)\s*[\"']{0}(?:/[^\"'\n]*)?[\"']"
_COMMON = ("src", "lib", "dist", "source")  # folders of an `index.js` whose names no import has
_IMPORTED = re.compile(r"(?:\brequire\(|\bfrom|\bimport\(?)\s*[\"']([^\"'\n]+)[\"']")
_ALIASES = ("@/", "~/", "~~/", "#", "src/")  # how projects shorten the paths of their own modules


def _name_package(path: str, read: Read) -> str:
    """The name by which tests may import a file: that of its package, if it may be where the package begins."""
    *folders, name = path.split("/")
    asked = ["/".join([*folders[:end], "package.json"]) for end in range(len(folders), 0, -1)]
    files = read(asked) if asked else {}
    nearest = next((one for one in asked if one in files), "")
    about = _read_package(files[nearest]) if nearest else {}
    main, inside = about.get("main"), path.removeprefix(nearest.rpartition("/")[0] + "/")
    is_entry = name.partition(".")[0] == "index" or (isinstance(main, str) and main.removeprefix("./") == inside)
    named = about.get("name")
    return named if is_entry and isinstance(named, str) else ""


def _read_package(data: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _imports_script(text: str, path: str, read: Read, grep: Grep) -> bool:
    """Whether a test imports something of the project other than a module."""
    stem, own = _get_stem(path), _name_package(path, read)
    words = [word for word in dict.fromkeys(_IMPORTED.findall(text)) if not own or f"{word}/".find(f"{own}/") != 0]
    near = [word for word in words if word.startswith((".", *_ALIASES))]
    if any(_get_stem(word.rpartition("/")[2]) != stem for word in near):
        return True
    names = {"/".join(word.split("/")[: 2 if word[0] == "@" else 1]) for word in words if word not in near}
    return any(_is_own_package(name, read, grep) for name in sorted(names)[:_MOST])


def _is_own_package(name: str, read: Read, grep: Grep) -> bool:
    """Whether a package of JavaScript is one of the project."""
    asked = [one for one in grep(f'"{name}"') if one.rpartition("/")[2] == "package.json"][:_MOST]
    return any(_read_package(data).get("name") == name for data in (read(asked) if asked else {}).values())


def _imports_python(text: str, stem: str, read: Read) -> bool:
    """Whether a test imports something of the project other than the module called `stem`."""
    lines = re.findall(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import([^\n]*)|import[ \t]+([\w.]+))", text, re.MULTILINE)
    names = {f"{module or plain}" for module, what, plain in lines if re.findall(r"\w+", what) != [stem]}
    places = {name.lstrip(".").replace(".", "/") for name in names if stem not in name.split(".")} - {""}
    ends = (".py", "/__init__.py")
    asked = [f"{folder}{place}{end}" for place in sorted(places)[:_MOST] for folder in _SEARCHED for end in ends]
    return any(find_role(one) == "source" for one in (read(asked) if asked else ()))
