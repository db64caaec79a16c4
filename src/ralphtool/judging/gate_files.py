"""Which files of a project a gate is made of: what it runs, what configures that, and what it compares results with."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

import msgspec

from ralphtool.judging.guard.test_files import find_language
from ralphtool.judging.naming import (
    Sources,
    find_readers,
    is_code,
    is_installed,
    is_read_by_tests,
    list_importers,
    select,
)
from ralphtool.judging.roles import TEST_ROLES, find_role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ralphtool.judging.guard.model import FileChange

    Read = Callable[[Sequence[str]], Mapping[str, bytes]]
    Grep = Callable[[str], Sequence[str]]

_WORDS = re.compile(r"[\s;&|()<>\"'=`,\[\]{}]+")
_INTERPRETED = re.compile(
    r"(?:^|[\s;&|(\"'`@/])(?:\$[({]?\w+[)}]?|bash|sh|zsh|dash|node|deno run|bun(?: run)?|tsx|ts-node|python[\d.]*"
    r"|uv run|ruby|perl|php|source|\.|exec|time|env)(?:[ \t]+-[\w-]+)*[ \t]+([\w./-]+)",
    re.MULTILINE,
)
_DIRECT = re.compile(r"(?:^|[\s;&|(\"'`@])\./([\w./-]+)|([\w./-]+\.(?:sh|bash|mk))\b", re.MULTILINE)
_MODULE = re.compile(r"\bpython[\d.]*(?:[ \t]+-\w)*[ \t]+-m[ \t]+([\w.]+)")
_MAKE = r"\bmake\b|\$[({]MAKE[)}]"
_RUNNERS = {
    _MAKE: ("GNUmakefile", "makefile", "Makefile"),
    r"\b(?:npm|pnpm|yarn|bun|npx)\b": ("package.json",),
    r"\btox\b": ("tox.ini",),
    r"\bnox\b": ("noxfile.py",),
    r"\bjust\b": ("justfile", ".justfile", "Justfile"),
    r"\btask\b": ("Taskfile.yml", "Taskfile.yaml"),
    r"\brake\b": ("Rakefile",),
    r"\b(?:hatch|poe|pdm|poetry|pixi|rye)\b": ("pyproject.toml",),
    r"\bpre-commit\b": (".pre-commit-config.yaml",),
    r"\blefthook\b": ("lefthook.yml", ".lefthook.yml"),
}
_LOADED = re.compile(
    r"(?:--tsconfig(?:-override)?|\bTS_NODE_PROJECT|\bTSX_TSCONFIG_PATH|\bts-node\b[^\n;&|]{0,200}?[ ](?:-P|--project))"
    r"[ =]+[\"']?([\w./-]+)"
)
_TEST_WORDS = re.compile(
    rb"pytest|unittest|doctest|jest|vitest|mocha|node:test|--test\b|go test|cargo test|rspec|minitest"
    rb"|phpunit|\btox\b|\bnox\b"
)
_DEEPEST = 4
_LONGEST = 200_000
_LONGEST_WORD = 500
_MOST_PLACES = 20  # to which one script goes
_MOST_WORDS = 500  # of one script
_ELSEWHERE = re.compile(r"(?:\bcd|\s-C|--prefix|--cwd|--rootdir|--directory|--manifest-path)[ =]+[\"']?([\w./-]+)")
_INCLUDE = re.compile(r"^[ \t]*[-s]?include[ \t]+([^#\n]+)", re.MULTILINE)
_HERE = re.compile(r"\"?\$(?:\(\s*dirname\b[^)]*\)|\(\w+\)|\{[^}]*\}|\w+)\"?/+")
_UPWARDS = re.compile(r"^(?:\.\.?/+)+")
_WILD = re.compile(r"[*?\[]")
_VARIABLE = re.compile(r"^(?:\$\{?\w*\}?|%\w+%)?/+")


def find_bases(commands: Iterable[str], prefix: str) -> tuple[str, ...]:
    """The folders in which commands run: the project's, and those that they name. The form is `backend/`."""
    named = [found[1] for text in commands for found in _ELSEWHERE.finditer(text)]
    places = [f"{place}/".lstrip("/") for one in named if (place := _resolve(prefix, one)) is not None]
    return tuple(dict.fromkeys([prefix, *places]))


def _resolve(base: str, word: str) -> str | None:
    """A path of the repository, "" for its root; None if it lies outside, or git can't look it up."""
    if not word or word[0] in "/-" or not word.isprintable() or "//" in word:
        return None
    path = posixpath.normpath(f"{base}{word}")
    return None if path.split("/")[0] == ".." else "" if path == "." else path


def find_run_files(commands: Iterable[str], read: Read, bases: Sequence[str] = ("",)) -> frozenset[str]:
    """The files that commands run tests with: named by them, or by the scripts and Makefiles that they call.

    `read` returns files of the last checkpoint. A program that has nothing to do with tests is not included: it may
    be the work itself. Included is the configuration with which programs in TypeScript are started.
    """
    scripts = _follow(commands, read, bases, _is_run_script)
    callers = [(text, bases) for text in commands]
    callers += [(text, list_places(path, bases)) for path, text in scripts.items()]
    named = {
        path for text, places in callers for found in _LOADED.finditer(text) for path in _resolve_all(found[1], places)
    }
    return frozenset(scripts.keys() | (read(sorted(named)).keys() if named else set()))


def _follow(
    commands: Iterable[str], read: Read, bases: Sequence[str], is_part: Callable[[str, bytes, bool], bool]
) -> dict[str, str]:
    """The scripts that are part of a gate, each with the text that the gate may run of it.

    `is_part` gets a path, its contents, and whether a command starts it rather than only names it.
    """
    callers = [(text, bases) for text in commands]
    named = {path for text in commands for path in _list_named([text], bases, is_loose=False)}
    found, seen = dict[str, str](), set[str]()
    for _ in range(_DEEPEST):
        run = {path for text, places in callers for word in _list_run(text) for path in _resolve_all(word, places)}
        asked = sorted((named | run) - seen)
        files = read(asked) if asked else {}
        seen |= {*asked}
        parts = {path: data for path, data in files.items() if is_part(path, data, path in run)}
        texts = [_read_script(path, data, [text for text, _ in callers]) for path, data in parts.items()]
        found |= dict(zip(parts, texts, strict=True))
        callers = [(text, _list_run_places(path, text, bases)) for path, text in zip(parts, texts, strict=True)]
        # What a script only names may be the work, unless it is a script itself.
        named = {path for text, places in callers for path in _list_named([text], places) if not find_language(path)}
        if not callers:
            break
    return found


def list_places(script: str, bases: Sequence[str]) -> tuple[str, ...]:
    """The folders to which the words of a script may refer: where gates run, its own folder, and those above it."""
    folders = script.split("/")[:-1]
    above = [f"{'/'.join(folders[:end])}/".lstrip("/") for end in range(len(folders), -1, -1)]
    return tuple(dict.fromkeys([*bases, *above]))


def _list_run_places(script: str, text: str, bases: Sequence[str]) -> tuple[str, ...]:
    """Also the folders to which the script goes: `$(MAKE) -C backend`."""
    places = list_places(script, bases)
    named = [one for found in _ELSEWHERE.finditer(text) for one in sorted(_resolve_all(found[1], places))]
    return tuple(dict.fromkeys([*places, *(f"{one}/" for one in named[:_MOST_PLACES])]))


def _resolve_all(word: str, places: Iterable[str]) -> set[str]:
    return {path for place in places if (path := _resolve(place, word))}


def _list_run(text: str) -> Iterable[str]:
    for pattern, names in _RUNNERS.items():
        if re.search(pattern, text):
            yield from names
    text = _HERE.sub("./", text)  # `. "$(dirname "$0")/common.sh"`: the caller knows where its scripts may be
    words = [found[1] for found in _INTERPRETED.finditer(text)]
    words += [found[1] or found[2] for found in _DIRECT.finditer(text)]
    words += [word for found in _INCLUDE.finditer(text) for word in found[1].split()]
    modules = [found[1].replace(".", "/") for found in _MODULE.finditer(text)]
    yield from (word.removeprefix("./") for word in words if word)
    yield from (name for module in modules for name in (f"{module}.py", f"{module}/__main__.py"))


def _is_shell(path: str, data: bytes) -> bool:
    return path.endswith((".sh", ".bash", ".mk")) or re.match(rb"#!.*\b(?:ba|da|z)?sh\b", data) is not None


def _is_script(path: str, data: bytes) -> bool:
    return _is_shell(path, data) or find_role(path) == "config" or _TEST_WORDS.search(data) is not None


def _is_run_script(path: str, data: bytes, is_run: bool) -> bool:
    """Also what a script reads in as a part of itself: `. ci/settings`, `include mk/rules`."""
    is_plain = is_run and not is_code(path, data) and find_role(path) == "source" and b"\0" not in data[:_LONGEST]
    return is_plain or _is_script(path, data)


def _read_script(path: str, data: bytes, callers: Sequence[str]) -> str:
    """The parts of a script that its callers may run: only the named ones of a Makefile or package.json."""
    text, name = data[:_LONGEST].decode("utf-8", "replace"), path.rpartition("/")[2]
    words = {word for caller in callers for word in _WORDS.split(caller)}
    if name in _RUNNERS[_MAKE]:
        return _read_recipes(text, words)
    if name == "pyproject.toml":
        return ""  # most of it is about something else
    return _read_package_scripts(text, words) if name == "package.json" else text


def _read_recipes(text: str, targets: set[str]) -> str:
    rules = re.split(r"^(?=[^\s#:=][^:=\n]*:(?!=))", text.replace("\\\n", " "), flags=re.MULTILINE)
    by_target = {word: rule for rule in rules[1:] for word in rule.partition(":")[0].split()}
    wanted, found = [one for one in targets if one in by_target] or list(by_target)[:1], dict[str, str]()
    while wanted:
        if (target := wanted.pop()) not in found and target in by_target:
            found[target] = by_target[target]
            wanted += found[target].partition(":")[2].partition("\n")[0].split()
    included = [one[0] for one in _INCLUDE.finditer(text)]
    return "\n".join([rules[0], *found.values(), *included])


def _read_package_scripts(text: str, words: set[str]) -> str:
    try:
        scripts = msgspec.json.decode(text).get("scripts")
    except (msgspec.DecodeError, AttributeError):
        return ""
    known = {name: text for name, text in scripts.items() if isinstance(text, str)} if isinstance(scripts, dict) else {}
    wanted, found = [name for name in known if name in words] or ["test"], dict[str, str]()
    while wanted:
        if (name := wanted.pop()) not in found and name in known:
            found[name] = known[name]
            wanted += [f"pre{name}", f"post{name}", *_WORDS.split(known[name])]
    return "\n".join(found.values())


# --- files that checks run --------------------------------------------------------------------------

_CHECK_WORD = re.compile(
    r"(?<![a-z])(?:lint\w*|check\w*|verif\w*|validat\w*|styl(?:e|ing)|audit\w*|format\w*|polic(?:y|ies)|rules?)(?![a-z])"
)
_TOOL_FOLDERS = {"tools", "tool", "scripts", "script", "ci", "hack", "dev", "bin", "etc"}
_SETTINGS = re.compile(r"\.[^/]+|[^/]+rc")
_PYTHON_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import|import[ \t]+([\w.]+))", re.MULTILINE)
_SCRIPT_IMPORT = re.compile(r"(?:\brequire\(|\bfrom|\bimport\(?)\s*[\"'](\.[^\"']*)[\"']")


def find_check_files(
    commands: Sequence[str], changes: Sequence[FileChange], read: Read, grep: Grep, bases: Sequence[str] = ("",)
) -> frozenset[str]:
    """The changed files that decide what checks find: their scripts, and what configures those.

    A program that uses the project's own code is the work rather than a check of it, unless its name says otherwise.
    """
    if not commands or not changes:
        return frozenset()
    scripts = _follow(
        commands, read, bases, lambda path, data, is_run: _is_check(path, data, read, grep, is_run=is_run)
    )
    changed = {path for one in changes for path in (one.path, one.old_path or one.path)}
    beside = _find_beside(scripts, changes, grep)
    shell = [*commands, *(text for path, text in scripts.items() if not find_language(path))]
    named = _list_named(list(commands), bases) | {
        place for path, text in {**scripts, **beside}.items() for place in _list_named([text], list_places(path, bases))
    }
    settings = {path for path in named & changed if _is_setting(path, grep, {*scripts, *beside})}
    sources = Sources(read, grep)
    compared = {path for path in _list_compared(shell, changed, bases) if _is_data(path, sources, scripts)}
    return frozenset((scripts.keys() | beside.keys() | settings | compared) & changed)


def _is_check(path: str, data: bytes, read: Read, grep: Grep, *, is_run: bool) -> bool:
    if _is_shell(path, data) or find_role(path) == "config":
        return True
    if not is_run and not data.startswith(b"#!"):
        return False  # one of the files that a check reads
    importers = list_importers(path, grep)
    if _has_check_name(path) and all(find_role(one) in TEST_ROLES for one in importers):
        return True
    return not importers and not _uses_project(path, data, read)


def _has_check_name(path: str) -> bool:
    *folders, name = path.lower().split("/")
    return bool(_TOOL_FOLDERS & set(folders)) or _CHECK_WORD.search(name.rpartition(".")[0] or name) is not None


def _uses_project(path: str, data: bytes, read: Read) -> bool:
    """Whether a program imports other files of the project."""
    text = data[:_LONGEST].decode("utf-8", "replace")
    if not path.endswith(".py"):
        return _SCRIPT_IMPORT.search(text) is not None
    names = {(found[1] or found[2]) for found in _PYTHON_IMPORT.finditer(text)}
    folder = f"{path.rpartition('/')[0]}/".lstrip("/")
    tops = {name.partition(".")[0] for name in names} - {""}
    places = [f"{place}{top}{end}" for top in tops for place in {"", "src/", folder} for end in (".py", "/__init__.py")]
    return any(name.startswith(".") for name in names) or bool(places and read(places))


def _find_beside(scripts: Mapping[str, str], changes: Sequence[FileChange], grep: Grep) -> dict[str, str]:
    """Changed modules that only the scripts of checks import, with names that say so."""
    asked = [one for one in changes if one.old is not None and find_language(one.path) and one.path not in scripts]
    found = {}
    for one in asked:
        importers = list_importers(one.path, grep) if _has_check_name(one.path) else []
        if importers and {*importers} <= scripts.keys():
            found[one.path] = (one.old or b"")[:_LONGEST].decode("utf-8", "replace")
    return found


def _list_named(texts: Iterable[str], places: Iterable[str], *, is_loose: bool = True) -> set[str]:
    """Every path that texts may name. `is_loose`: also words that need not be paths, and `$HERE/common`."""
    words = dict.fromkeys(word for text in texts for word in _WORDS.split(text) if len(word) < _LONGEST_WORD)
    if is_loose:
        bare = [_VARIABLE.sub("", word).strip("/:@\\") for word in words]
        # A script may have gone to another folder before: `cd out && diff a ../expected.txt`.
        words = dict.fromkeys(one for word in bare for one in (word, _UPWARDS.sub("", word)))
    else:
        words = {word: None for word in words if "." in word or "/" in word}
    asked = [*words][:_MOST_WORDS]
    return {path for word in asked if not _WILD.search(word) for path in _resolve_all(word, places)}


def _list_named_folders(text: str, places: Sequence[str]) -> set[str]:
    """The folders whose files a text takes together, as `steps/*`."""
    words = [_VARIABLE.sub("", word) for word in re.split(r"[\s;&|()<>\"'=`,]+", text) if _WILD.search(word)]
    heads = {_WILD.split(word)[0].rpartition("/")[0] for word in words} - {""}
    return {path for head in heads for path in _resolve_all(head, places)}


def _is_setting(path: str, grep: Grep, checks: Iterable[str]) -> bool:
    """Whether it only configures checks: by its name, or because nothing else of the project reads it."""
    if find_language(path) or find_role(path) in ("docs", "test"):
        return False
    if _SETTINGS.fullmatch(path.rpartition("/")[2]):
        return True
    holders = _list_holders(path, grep)
    return bool(holders) and {*holders} <= {*checks}


# --- files that gates compare results with ------------------------------------------------------------

_DATA = re.compile(
    r".*\.(?:json[5cl]?|ya?ml|csv|tsv|txt|xml|html?|out|dat|bin|sql|expected|log|svg|pickle|npy|md|rst)", re.I
)
_COMPARES = re.compile(r"\b(?:diff|cmp|comm|colordiff|sdiff)\b")


def find_test_data(changes: Sequence[FileChange], read: Read, grep: Grep) -> frozenset[str]:
    """The changed data files that tests name, or a folder of, and no source does.

    `grep` returns the files that contain a word, `read` those of the last checkpoint.
    """
    asked = {one.old_path or one.path: one for one in changes if one.old is not None and _may_be_data(one)}
    sources = Sources(read, grep)
    found = select([*asked], lambda path: is_read_by_tests(path, sources))
    return frozenset(one for path in found for one in (path, asked[path].path))


def _may_be_data(change: FileChange) -> bool:
    path = change.old_path or change.path
    return bool(_DATA.fullmatch(path)) or not (is_code(path, change.old or b"") or is_installed(path))


def find_gate_data(
    commands: Sequence[str], changes: Sequence[FileChange], read: Read, grep: Grep, bases: Sequence[str] = ("",)
) -> frozenset[str]:
    """The changed files that a gate, or a script that it runs, names, and no source does: expected output, settings.

    Included are modules of the programs that start tests, and what lies beside the scripts in a folder such as `ci/`.
    """
    old = {path: one for one in changes if one.old is not None for path in (one.path, one.old_path or one.path)}
    if not old:
        return frozenset()
    sources = Sources(read, grep)

    def is_part(path: str, data: bytes, is_run: bool) -> bool:
        is_started = is_run and (_is_runner(path, data, read) or _is_verifying(path, sources.grep))
        return is_started or _is_run_script(path, data, is_run)

    scripts = _follow(commands, read, bases, is_part)
    helpers = _find_runner_modules(scripts, changes, sources.grep)
    callers = [
        *((text, bases) for text in commands),
        *((text, list_places(one, bases)) for one, text in scripts.items()),
    ]
    asked = [path for path in _list_reached(callers, old, scripts) if _may_be_data(old[path])]
    data = select(asked, lambda path: _is_data(path, sources, scripts))
    runners = {path for path in scripts if path in old and find_role(path) == "source" and find_language(path)}
    return frozenset({*data} | helpers | runners)


def _list_reached(
    callers: Iterable[tuple[str, Sequence[str]]], paths: Iterable[str], scripts: Iterable[str]
) -> list[str]:
    """Those of the paths that a command or a script names, itself or by its folder, and those beside the scripts."""
    named, taken = set[str](), set[str]()
    folders = {place for one in scripts if (place := _find_tool_folder(one))}
    for text, places in callers:
        named |= _list_named([text], places) | _list_compared([text], paths, places)
        taken |= _list_named_folders(text, places)
    return [
        path
        for path in paths
        if path in named or path.rpartition("/")[0] in taken or any(path.startswith(f"{one}/") for one in folders)
    ]


def _find_tool_folder(script: str) -> str:
    """The folder of a script, if that is one for tools. Programs of the product may be in `bin/`."""
    *folders, _ = script.lower().split("/")
    at = next((end for end, one in enumerate(folders, 1) if one.lstrip(".") in _TOOL_FOLDERS - {"bin", "etc"}), 0)
    return "/".join(script.split("/")[:at])


# --- programs that start tests ------------------------------------------------------------------------

_LAUNCHES = re.compile(r"\bsubprocess\b|child_process|\bos\.(?:system|exec\w*|spawn\w*)|\brunpy\b|\bpytest\.main\b")
_VERIFIES = re.compile(r"(?<![a-z])(?:verif\w*|check\w*|validat\w*|smoke\w*|self_?test\w*)(?![a-z])")
_CHECKS = re.compile(r"\bassert\w*\b|TestCase|\bexpect\(")


def _is_runner(path: str, data: bytes, read: Read) -> bool:
    """Whether a tool has modules beside it that have to do with tests."""
    if find_role(path) != "source" or not find_language(path) or not _has_check_name(path):
        return False
    beside = _list_beside(path, data[:_LONGEST].decode("utf-8", "replace"))
    return any(_TEST_WORDS.search(one) for one in (read(beside).values() if beside else ()))


def _is_verifying(path: str, grep: Grep) -> bool:
    """Whether a tool contains the cases that it checks, by its name: a gate starts it, and no source imports it."""
    if find_role(path) != "source" or not find_language(path) or not _find_tool_folder(path):
        return False
    is_named = _VERIFIES.search(path.rpartition("/")[2].lower()) is not None
    return is_named and all(find_role(one) in TEST_ROLES for one in list_importers(path, grep))


def _list_beside(path: str, text: str) -> list[str]:
    """Where the modules may be that a program imports from its own folder."""
    folder = f"{path.rpartition('/')[0]}/".lstrip("/")
    if path.endswith(".py"):
        names = {(found[1] or found[2]).strip(".").replace(".", "/") for found in _PYTHON_IMPORT.finditer(text)}
        names |= {name.rpartition("/")[2] for name in names}
        ends: tuple[str, ...] = (".py", "/__init__.py")
    else:
        names = {found[1] for found in _SCRIPT_IMPORT.finditer(text)}
        ends = ("", ".js", ".mjs", ".cjs", ".ts")
    return sorted(f"{place}{end}" for name in names for place in _resolve_all(name, [folder]) for end in ends)


def _find_runner_modules(scripts: Mapping[str, str], changes: Sequence[FileChange], grep: Grep) -> set[str]:
    """The changed modules that only the programs that start tests import. One that those check is the work."""
    known = {path: text for path, text in scripts.items() if find_language(path)}
    beside = {one for path, text in known.items() for one in _list_beside(path, text)}
    found = set[str]()
    for one in changes:
        path, old = one.old_path or one.path, (one.old or b"")[:_LONGEST]
        if one.old is None or path in scripts or path not in beside or find_role(path) != "source":
            continue
        importers = list_importers(path, grep)
        callers = "\n".join(known.get(importer, "") for importer in importers)
        starts = _TEST_WORDS.search(old) or (_LAUNCHES.search(callers) and not _CHECKS.search(callers))
        if starts and importers and {*importers} <= known.keys() and (_has_check_name(path) or _TEST_WORDS.search(old)):
            found |= {path, one.path}
    return found


def _list_compared(texts: Iterable[str], paths: Iterable[str], places: Sequence[str]) -> set[str]:
    """Those of the paths that commands compare something with; they may only name the folder, as `cases/*.out`."""
    compared = [text for text in texts if _COMPARES.search(text)]
    named = _list_named(compared, places)
    folders = named | {folder for text in compared for folder in _list_named_folders(text, places)}
    return {path for path in paths if path in named or any(path.startswith(f"{one}/") for one in folders)}


def _is_data(path: str, sources: Sources, scripts: Iterable[str]) -> bool:
    """Whether it is data that no source reads; what is installed from it is no result."""
    if find_language(path) or is_installed(path) or find_role(path) not in ("docs", "source"):
        return False
    known = {*scripts}
    return all(one in known or not find_language(one) for one in find_readers(path, sources) if one != path)


def _list_holders(path: str, grep: Grep) -> list[str]:
    """The files that name it. Settings of ralphtool have the gates themselves, and documents only tell of it."""
    found = [one for one in grep(path.rpartition("/")[2]) if one != path]
    return [one for one in found if find_role(one) != "docs" and not f"/{one}".rpartition("/.ralph/")[1]]
