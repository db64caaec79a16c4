"""Which files of an attempt belong to the tests: replay restores them, and own tests are taken from them.

A file's name and folder usually decide (`judging.roles`). Beyond that, a file belongs to the tests if a gate runs it,
also through a Makefile or a script; if a test program named tests in it; if it uses a test framework; or if it
contains data that only tests read.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, structs

from ralphtool.judging.guard.inline import (
    extract_tests,
    has_tests_inside,
    is_test_module,
    remove_tests,
    splice_tests,
)
from ralphtool.judging.guard.mixed import is_neutral
from ralphtool.judging.guard.model import FileChange
from ralphtool.judging.renames import is_same_but_renamed
from ralphtool.judging.roles import find_role
from ralphtool.judging.touched import find_touched_tests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ralphtool.judging.roles import Role

_TEST_SIDE: frozenset[Role] = frozenset(("test", "helper", "snapshot", "fixture", "config", "shadow"))
_TEST: frozenset[Role] = frozenset(("test",))
_OWN: frozenset[Role] = frozenset(("test", "helper", "snapshot", "fixture"))
_MANIFEST_NAMES = (
    "package.json package-lock.json yarn.lock pnpm-lock.yaml bun.lockb pyproject.toml setup.py setup.cfg uv.lock"
    " poetry.lock Pipfile Pipfile.lock Gemfile Gemfile.lock composer.json composer.lock go.mod go.sum Cargo.toml"
    " Cargo.lock environment.yml"
)
_MANIFESTS = frozenset(_MANIFEST_NAMES.split())
_REQUIREMENTS = re.compile(r"(?:.*/)?[\w.-]*requirements[\w.-]*\.(?:txt|in)")


class TestHints(Struct, frozen=True, kw_only=True):
    """Facts about files beyond their names."""

    __test__ = False  # otherwise pytest collects it as a test

    run: frozenset[str] = frozenset()  # by a gate
    tested: frozenset[str] = frozenset()  # a test program named tests in them
    data: frozenset[str] = frozenset()  # only tests read them
    bases: tuple[str, ...] = ("",)  # the folders in which the gates run: "", or for example "backend/"


def has_manifest(paths: Iterable[str]) -> bool:
    """Whether one of the files declares the dependencies of a project."""
    names = [path.rpartition("/")[2] for path in paths]
    return any(name in _MANIFESTS or _REQUIREMENTS.fullmatch(name) for name in names)


class ChangedPaths(Struct, frozen=True):
    """The files of an attempt, by their role for the tests."""

    changes: tuple[FileChange, ...]
    hints: TestHints = TestHints()

    def find_base_role(self, path: str) -> Role:
        """The role by name, relative to each of the folders in which the gates run."""
        seen = [find_role(path.removeprefix(base)) for base in self.hints.bases if path.startswith(base)]
        return next((role for role in seen if role not in ("source", "docs")), seen[0] if seen else find_role(path))

    def list_side(self, roles: frozenset[Role]) -> list[FileChange]:
        return [one for one in self.changes if self._find_roles(one) & roles]

    def _find_roles(self, change: FileChange) -> set[Role]:
        return {self._find_role(path, change) for path in (change.path, change.old_path or change.path)}

    def _find_role(self, path: str, change: FileChange) -> Role:
        role = self.find_base_role(path)
        if role == "config" and is_neutral(change.old or b"", change.new or b"", path):
            return "source"
        if role not in ("source", "docs") or self._is_mixed(path, change):
            return role
        if change.old is None and self._hides_library(path):
            return "shadow"
        if path in self.hints.run:
            return "config"
        data = change.new if change.old is None else change.old
        if role == "docs":
            is_test = path in self.hints.tested
        else:
            is_test = is_test_module(path, data or b"", is_known=path in self.hints.tested)
        return "test" if is_test else "fixture" if path in self.hints.data else role

    def _is_mixed(self, path: str, change: FileChange) -> bool:
        """Whether it is source with tests inside."""
        is_known = path in self.hints.tested or path in self.hints.run
        return has_tests_inside(change.old or b"", change.new or b"", path, is_known=is_known)

    def _hides_library(self, path: str) -> bool:
        """Whether Python would import it instead of a module of its standard library."""
        inside = [path.removeprefix(base).removeprefix("src/") for base in self.hints.bases if path.startswith(base)]
        first = {one.partition("/")[0].removesuffix(".py") for one in inside if one.endswith(".py")}
        return bool(first & (sys.stdlib_module_names - {"test", "site", "this"}))

    @property
    def tests(self) -> list[FileChange]:
        return self.list_side(_TEST_SIDE)

    @property
    def builds(self) -> list[FileChange]:
        """Files that may also build or locate the source: the old versions may not work with the new source."""
        named = [one for one in self.tests if self._find_role(one.path, one) == "config"]
        return [*named, *(one for one in self.tests if one.old is None and self._hides_library(one.path))]

    @property
    def own(self) -> list[FileChange]:
        """Files that may contain own tests: test files, their helpers and data that exist now, and inline tests."""
        side = [one for one in self.list_side(_OWN) if one.new is not None]
        return [*side, *self.inline]

    @property
    def inline(self) -> list[FileChange]:
        """Source files whose inline tests differ."""
        sources = [one for one in self.changes if self.find_base_role(one.path) == "source"]
        found = [one for one in sources if self._is_mixed(one.path, one)]
        return [one for one in found if splice_tests(one.old or b"", one.new or b"", one.path) != (one.new or b"")]

    @property
    def sources(self) -> list[FileChange]:
        return [one for one in self.changes if one not in self.tests]

    def is_same_but_renamed(self) -> bool:
        """Whether the tests only follow names that the work renamed, and nothing else around them was changed."""
        known = [one for one in self.tests if one.old is not None]
        are_tests = all(self._find_role(one.path, one) == "test" for one in self.tests)
        inside = [_rewrite(one, extract_tests) for one in self.inline]
        can_read = not any(one.path.endswith(".py") for one in self.inline)  # their tests can't be separated
        # A name that occurred only in the inline tests of a source was not renamed by the work.
        sources = [_rewrite(one, remove_tests) for one in self.sources]
        return are_tests and can_read and is_same_but_renamed([*known, *inside], sources)

    def find_touched_tests(self) -> frozenset[str] | None:
        """None if more than tests was changed: that may change the meaning of any test."""
        are_tests = all(one.new is None or self._find_role(one.path, one) == "test" for one in self.tests)
        return find_touched_tests([*self.list_side(_TEST), *self.inline]) if are_tests else None

    @property
    def has_test_files(self) -> bool:
        return bool(self.list_side(_OWN) or self.inline)

    @property
    def has_new_tests(self) -> bool:
        """Whether the test files contain lines that were not there before."""
        return any(set((one.new or b"").split(b"\n")) - set((one.old or b"").split(b"\n")) for one in self.tests)

    @property
    def has_manifest(self) -> bool:
        return has_manifest(one.path for one in self.changes)

    @property
    def unsure(self) -> list[FileChange]:
        """Files whose names do not show whether they belong to the tests."""
        return [one for one in self.changes if self.find_base_role(one.path) in ("source", "docs")]


def _rewrite(change: FileChange, rewrite: Callable[[bytes, str], bytes]) -> FileChange:
    old, new = (None if data is None else rewrite(data, change.path) for data in (change.old, change.new))
    return structs.replace(change, old=old, new=new)


# --- files that gates run ---------------------------------------------------------------------------

_WORDS = re.compile(r"[\s;&|()<>\"'=`,\[\]{}]+")
_INTERPRETED = re.compile(
    r"(?:^|[\s;&|(\"'`@])(?:\$\(?\w+\)?|bash|sh|zsh|dash|node|deno run|bun(?: run)?|tsx|ts-node|python[\d.]*"
    r"|uv run|ruby|perl|php|source|\.|exec|time|env)(?:[ \t]+-[\w-]+)*[ \t]+([\w./-]+)",
    re.MULTILINE,
)
_DIRECT = re.compile(r"(?:^|[\s;&|(\"'`@])\./([\w./-]+)|([\w./-]+\.(?:sh|bash|mk))\b", re.MULTILINE)
_MODULE = re.compile(r"\bpython[\d.]*(?:[ \t]+-\w)*[ \t]+-m[ \t]+([\w.]+)")
_RUNNERS = {
    r"\bmake\b": ("GNUmakefile", "makefile", "Makefile"),
    r"\b(?:npm|pnpm|yarn|bun|npx)\b": ("package.json",),
    r"\btox\b": ("tox.ini",),
    r"\bnox\b": ("noxfile.py",),
    r"\bjust\b": ("justfile", ".justfile", "Justfile"),
    r"\btask\b": ("Taskfile.yml", "Taskfile.yaml"),
    r"\brake\b": ("Rakefile",),
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


def find_run_files(
    commands: Iterable[str], read: Callable[[Sequence[str]], Mapping[str, bytes]], bases: Sequence[str] = ("",)
) -> frozenset[str]:
    """The files that commands run tests with: named by them, or by the scripts and Makefiles that they call.

    `read` returns files of the last checkpoint. A program that has nothing to do with tests is not included: it may
    be the work itself.
    """
    texts, found, seen = list(commands), set[str](), set[str]()
    asked = {word.removeprefix("./") for text in texts for word in _WORDS.split(text) if "." in word or "/" in word}
    for _ in range(_DEEPEST):
        asked |= {path for text in texts for path in _list_run(text)}
        files = read(sorted(f"{base}{path}" for path in asked - seen if _is_inside(path) for base in bases))
        seen |= asked
        scripts = {path: data for path, data in files.items() if _is_script(path, data)}
        found |= scripts.keys()
        texts = [_read_script(path, data, texts) for path, data in scripts.items()]
        if not texts:
            break
    return frozenset(found)


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


def _is_script(path: str, data: bytes) -> bool:
    is_shell = path.endswith((".sh", ".bash", ".mk")) or re.match(rb"#!.*\b(?:ba|da|z)?sh\b", data) is not None
    return is_shell or find_role(path) == "config" or _TEST_WORDS.search(data) is not None


def _read_script(path: str, data: bytes, callers: Sequence[str]) -> str:
    """The parts of a script that its callers may run: only the named ones of a Makefile or package.json."""
    text, name = data[:_LONGEST].decode("utf-8", "replace"), path.rpartition("/")[2]
    words = {word for caller in callers for word in _WORDS.split(caller)}
    if name in _RUNNERS[r"\bmake\b"]:
        return _read_recipes(text, words)
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


# --- files that test programs name ------------------------------------------------------------------


def find_tested_files(names: Iterable[str], changes: Sequence[FileChange]) -> frozenset[str]:
    """The changed files that contain tests with names such as `check/total.py::test_a`, `check.total.Case.test_a`."""
    heads = {re.split(r"::| > ", name)[0] for name in names}
    modules = {".".join(parts[:end]) for head in heads for parts in [head.split(".")] for end in range(1, len(parts))}
    ends = {"/".join(parts[at:]) for one in changes for parts in [one.path.split("/")] for at in range(len(parts))}
    known = {end for end in ends if end in heads or _name_module(end) in modules}
    return frozenset(one.path for one in changes if any(f"/{one.path}".endswith(f"/{end}") for end in known))


def _name_module(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".") if path.endswith(".py") else path


# --- files that only tests read ---------------------------------------------------------------------

_DATA = re.compile(
    r".*\.(?:json[5cl]?|ya?ml|csv|tsv|txt|xml|html?|out|dat|bin|sql|expected|log|svg|pickle|npy|md|rst)", re.I
)
_MOST_DATA = 100


def find_test_data(changes: Sequence[FileChange], grep: Callable[[str], Sequence[str]]) -> frozenset[str]:
    """The changed data files that tests name and no source does. `grep` returns the files that contain a word."""
    asked = [one.path for one in changes if one.old is not None and _DATA.fullmatch(one.path)][:_MOST_DATA]
    return frozenset(path for path in asked if _is_test_data(path, grep))


def _is_test_data(path: str, grep: Callable[[str], Sequence[str]]) -> bool:
    *folders, name = path.split("/")
    for word in (name, *([f"{folders[-1]}"] if folders else [])):
        if holders := [one for one in grep(word) if one != path and find_role(one) != "docs"]:
            return all(find_role(one) in _OWN for one in holders)
    return False
