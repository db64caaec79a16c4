"""Which files of a project a gate is made of: what it runs, what configures that, and what it compares results with."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from ralphtool.judging.guard.test_files import find_language
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
_MAKE = r"\bmake\b"
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
_TEST_WORDS = re.compile(
    rb"pytest|unittest|doctest|jest|vitest|mocha|node:test|--test\b|go test|cargo test|rspec|minitest"
    rb"|phpunit|\btox\b|\bnox\b"
)
_DEEPEST = 4
_LONGEST = 200_000
_ELSEWHERE = re.compile(r"(?:\bcd|\s-C|--prefix|--cwd|--rootdir|--directory|--manifest-path)[ =]+[\"']?([\w./-]+)")


def find_bases(commands: Iterable[str], prefix: str) -> tuple[str, ...]:
    """The folders in which commands run: the project's, and those that they name. The form is `backend/`."""
    named = [found[1].strip("/").removeprefix("./") for text in commands for found in _ELSEWHERE.finditer(text)]
    return tuple(dict.fromkeys([prefix, *(f"{prefix}{one}/" for one in named if _is_inside(one))]))


def find_run_files(commands: Iterable[str], read: Read, bases: Sequence[str] = ("",)) -> frozenset[str]:
    """The files that commands run tests with: named by them, or by the scripts and Makefiles that they call.

    `read` returns files of the last checkpoint. A program that has nothing to do with tests is not included: it may
    be the work itself.
    """
    return frozenset(_follow(commands, read, bases, lambda path, data, is_run: _is_script(path, data)))


def _follow(
    commands: Iterable[str], read: Read, bases: Sequence[str], is_part: Callable[[str, bytes, bool], bool]
) -> dict[str, str]:
    """The scripts that are part of a gate, each with the text that the gate may run of it.

    `is_part` gets a path, its contents, and whether a command starts it rather than only names it.
    """
    texts, found, seen = list(commands), dict[str, str](), set[str]()
    named = {word.removeprefix("./") for text in texts for word in _WORDS.split(text) if "." in word or "/" in word}
    for _ in range(_DEEPEST):
        run = {path for text in texts for path in _list_run(text)}
        asked = sorted(path for path in (named | run) - seen if _is_inside(path))
        files = read([f"{base}{path}" for path in asked for base in bases]) if asked else {}
        seen |= {*named, *run}
        started = {f"{base}{path}" for path in run for base in bases}
        parts = {path: data for path, data in files.items() if is_part(path, data, path in started)}
        texts = [_read_script(path, data, texts) for path, data in parts.items()]
        found |= dict(zip(parts, texts, strict=True))
        named = set()
        if not texts:
            break
    return found


def _list_run(text: str) -> Iterable[str]:
    for pattern, names in _RUNNERS.items():
        if re.search(pattern, text):
            yield from names
    words = [found[1] for found in _INTERPRETED.finditer(text)]
    words += [found[1] or found[2] for found in _DIRECT.finditer(text)]
    modules = [found[1].replace(".", "/") for found in _MODULE.finditer(text)]
    yield from (word.removeprefix("./") for word in words if word)
    yield from (name for module in modules for name in (f"{module}.py", f"{module}/__main__.py"))


def _is_inside(path: str) -> bool:
    """Whether git can look it up."""
    return bool(path) and path[0] not in "/-" and not {"", ".", ".."} & set(path.split("/")) and path.isprintable()


def _is_shell(path: str, data: bytes) -> bool:
    return path.endswith((".sh", ".bash", ".mk")) or re.match(rb"#!.*\b(?:ba|da|z)?sh\b", data) is not None


def _is_script(path: str, data: bytes) -> bool:
    return _is_shell(path, data) or find_role(path) == "config" or _TEST_WORDS.search(data) is not None


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
    return "\n".join([rules[0], *found.values()])


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
        place
        for path, text in {**scripts, **beside}.items()
        for place in _list_named([text], [*bases, f"{path.rpartition('/')[0]}/".lstrip("/")])
    }
    settings = {path for path in named & changed if _is_setting(path, grep, {*scripts, *beside})}
    compared = {path for path in _list_compared(shell, changed, bases) if _is_data(path, grep, scripts)}
    return frozenset((scripts.keys() | beside.keys() | settings | compared) & changed)


def _is_check(path: str, data: bytes, read: Read, grep: Grep, *, is_run: bool) -> bool:
    if _is_shell(path, data) or find_role(path) == "config":
        return True
    if not is_run and not data.startswith(b"#!"):
        return False  # one of the files that a check reads
    importers = _list_importers(path, grep)
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


def _list_importers(path: str, grep: Grep) -> list[str]:
    """The files that seem to import a module, by its name."""
    stem = path.rpartition("/")[2].partition(".")[0]
    words = (f"import {stem}", f"from {stem} ", f".{stem} import", f"/{stem}'", f'/{stem}"', f"/{stem}.js")
    found = {one for word in words for one in grep(word) if one != path}
    return sorted(one for one in found if find_role(one) != "docs" and find_language(one))


def _find_beside(scripts: Mapping[str, str], changes: Sequence[FileChange], grep: Grep) -> dict[str, str]:
    """Changed modules that only the scripts of checks import, with names that say so."""
    asked = [one for one in changes if one.old is not None and find_language(one.path) and one.path not in scripts]
    found = {}
    for one in asked:
        importers = _list_importers(one.path, grep) if _has_check_name(one.path) else []
        if importers and {*importers} <= scripts.keys():
            found[one.path] = (one.old or b"")[:_LONGEST].decode("utf-8", "replace")
    return found


def _list_named(texts: Iterable[str], bases: Sequence[str]) -> set[str]:
    """Every path that texts may name."""
    words = {word for text in texts for word in _WORDS.split(text)}
    bare = {re.sub(r"^(?:\.{0,2}/)+", "", word).strip("/:@") for word in words if len(word) < 500}
    return {f"{base}{word}" for word in bare for base in bases if _is_inside(word)}


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
_COMPARED = re.compile(r".*\.(?:exp|ref|golden|good|gold|want|wanted|ok|std|stdout|stderr|result|tap|ps|pdf|png)", re.I)
_COMPARES = re.compile(r"\b(?:diff|cmp|comm|colordiff|sdiff)\b")
_INSTALLED = re.compile(r"(?:[\w.-]*requirements|constraints)[\w.-]*\.(?:txt|in)", re.I)
_MOST_DATA = 100


def find_test_data(changes: Sequence[FileChange], grep: Grep) -> frozenset[str]:
    """The changed data files that tests name and no source does. `grep` returns the files that contain a word."""
    asked = [one.path for one in changes if one.old is not None and _DATA.fullmatch(one.path)][:_MOST_DATA]
    return frozenset(path for path in asked if _is_test_data(path, grep))


def _is_test_data(path: str, grep: Grep) -> bool:
    *folders, name = path.split("/")
    for word in (name, *([f"{folders[-1]}"] if folders else [])):
        if holders := [one for one in grep(word) if one != path and find_role(one) != "docs"]:
            return all(find_role(one) in TEST_ROLES for one in holders)
    return False


def find_gate_data(
    commands: Sequence[str], changes: Sequence[FileChange], read: Read, grep: Grep, bases: Sequence[str] = ("",)
) -> frozenset[str]:
    """The changed data files that a gate, or a script that it runs, names, and no source does: expected output."""
    changed = {path: one for one in changes if one.old is not None for path in (one.path, one.old_path or one.path)}
    asked = [path for path in changed if _DATA.fullmatch(path) or _COMPARED.fullmatch(path)][:_MOST_DATA]
    if not asked:
        return frozenset()
    scripts = _follow(commands, read, bases, lambda path, data, is_run: _is_script(path, data))
    places = [*bases, *(f"{path.rpartition('/')[0]}/".lstrip("/") for path in scripts)]
    texts = [*commands, *scripts.values()]
    named = _list_named(texts, places) | _list_compared(texts, asked, places)
    return frozenset(path for path in asked if path in named and _is_data(path, grep, scripts))


def _list_compared(texts: Iterable[str], paths: Iterable[str], bases: Sequence[str]) -> set[str]:
    """Those of the paths that commands compare something with; they may only name the folder, as `cases/*.out`."""
    named = _list_named([text for text in texts if _COMPARES.search(text)], bases)
    folders = {one.partition("*")[0].rpartition("/")[0] if "*" in one else one for one in named} - {""}
    return {path for path in paths if path in named or any(path.startswith(f"{one}/") for one in folders)}


def _is_data(path: str, grep: Grep, scripts: Iterable[str]) -> bool:
    """Whether it is data that no source reads; what is installed from it is no result."""
    name = path.rpartition("/")[2]
    if find_language(path) or _INSTALLED.fullmatch(name) or find_role(path) not in ("docs", "source"):
        return False
    known = {*scripts}
    return all(
        one in known or find_role(one) != "source" or not find_language(one) for one in _list_holders(path, grep)
    )


def _list_holders(path: str, grep: Grep) -> list[str]:
    """The files that name it. Settings of ralphtool have the gates themselves, and documents only tell of it."""
    found = [one for one in grep(path.rpartition("/")[2]) if one != path]
    return [one for one in found if find_role(one) != "docs" and not f"/{one}".rpartition("/.ralph/")[1]]
