"""The old tests with the new names of what they use: if the work renames or moves that, they can't be loaded otherwise.

What became of a name is read from the changed tests. Where a function went is read from the source alone: tests that
import it from somewhere else say nothing about the work.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from ralphtool.judging.guard.test_files import find_language
from ralphtool.judging.renames import find_new_names, list_strings, replace_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ralphtool.judging.guard.model import FileChange
    from ralphtool.judging.proof_evidence import SuiteRun

_Found = TypeVar("_Found")
_LONGEST = 300_000  # bytes of a file
_FOLLOWED = ("py", "js")
_FOLDERS = ("src/", "lib/")  # in which Python finds the modules of a project
_ENDS = ("", ".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx")
_FROM = re.compile(r"^([ \t]*)from[ \t]+(\w[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#(*]+)", re.MULTILINE)
_MODULE = re.compile(r"^([ \t]*import[ \t]+)(\w[\w.]*)([ \t]+as[ \t]+\w+)", re.MULTILINE)
_SPECIFIED = re.compile(
    r"""(?P<head>\bimport\s(?:[^;'"()]{0,4000}?\bfrom\s*)?|\bimport\(\s*|\b(?:const|let|var)\s[^=;]{0,4000}=\s*require\(\s*
    |\b(?:jest|vi)\.\w+\(\s*)(?P<quote>["'])(?P<path>\.[^"'\n]*)(?P=quote)""",
    re.VERBOSE,
)
_DEFAULT = re.compile(r"\b\w+\s*,\s*(?=\{)")
_NAMED = re.compile(r"\{([^{}]*)\}")
_PYTHON_DEFINED = re.compile(
    r"^(?:(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)|(\w+)[ \t]*(?::[^=\n]+)?=[^=])", re.MULTILINE
)
_SCRIPT_DEFINED = re.compile(
    r"^(?:export\s+)?(?:default\s+)?(?:async\s+)?(?:function\*?|class|const|let|var|enum|interface|type)\s+(\w+)"
    r"|^(?:module\.)?exports\.(\w+)\s*=",
    re.MULTILINE,
)


def rename_in_tests(tests: Sequence[FileChange], sources: Sequence[FileChange]) -> dict[str, bytes]:
    """The old test files, by their old paths, with the new names; empty if that changes nothing."""
    became = find_new_names(tests, sources)
    homes = _Homes(sources, became)
    strings = {word for one in tests for word in list_strings(one.new)}
    found = {}
    for one in tests:
        old = (one.old or b"").decode("utf-8", "surrogateescape")
        path = one.old_path or one.path
        if len(old) <= _LONGEST:
            found[path] = replace_names(homes.follow(old, path), became, strings, path).encode(
                "utf-8", "surrogateescape"
            )
    return found if any(found.get(one.old_path or one.path) not in (None, one.old) for one in tests) else {}


def have_run(paths: Iterable[str], runs: Iterable[SuiteRun]) -> bool:
    """Whether the tests with the new names say something. Where imports are not followed, they may only not load."""
    return any(find_language(path) in _FOLLOWED for path in paths) or any(one.count_failed for one in runs)


class _Module(Struct, frozen=True):
    """A changed source file: where it was and is, and what it defines at its top."""

    old_path: str
    path: str  # empty if it is gone
    had: frozenset[str]
    has: frozenset[str]


def _read_module(change: FileChange) -> _Module:
    old, new = (_list_defined(change.path, data) for data in (change.old, change.new))
    return _Module(change.old_path or change.path, "" if change.new is None else change.path, old, new)


def _list_defined(path: str, data: bytes | None) -> frozenset[str]:
    text = (data or b"")[:_LONGEST].decode("utf-8", "replace")
    pattern = _PYTHON_DEFINED if path.endswith(".py") else _SCRIPT_DEFINED
    return frozenset(str(one[one.lastindex or 0]) for one in pattern.finditer(text))


class _Homes:
    """Where the functions of the changed source are now."""

    def __init__(self, sources: Sequence[FileChange], became: Mapping[str, str]) -> None:
        self._modules = [_read_module(one) for one in sources if find_language(one.path) in _FOLLOWED]
        self._by_path = {one.old_path: one for one in self._modules}
        self._by_end = _index((end, one) for path, one in self._by_path.items() for end in _list_ends(path))
        self._places = _index((name, one.path) for one in self._modules for name in one.has)
        self._became = became

    def follow(self, text: str, path: str) -> str:
        """A test file that imports everything from where it is now, and nothing that is gone."""
        if find_language(path) == "py":
            return _MODULE.sub(self._follow_module, _FROM.sub(self._follow_from, text))
        if find_language(path) == "js":
            return _SPECIFIED.sub(lambda found: self._follow_path(found, posixpath.dirname(path)), text)
        return text

    def _group(self, old: _Module, items: Sequence[str]) -> dict[str, list[str]]:
        """What was imported from a file, by the files that it is in now, without what is gone."""
        found: dict[str, list[str]] = {}
        for item in items:
            if (home := self._find_home(old, re.split(r"[\s:]", item)[0])) is not None:
                found.setdefault(home, []).append(item)
        return found

    def _find_home(self, old: _Module, name: str) -> str | None:
        """The only file that defines it now; None if it is gone. If that is unclear, it counts as not moved."""
        new = self._became.get(name, name)
        if name not in old.had or (old.path == old.old_path and new in old.has):
            return old.path or old.old_path
        places = self._places.get(new, [])
        return places[0] if len(places) == 1 else old.old_path if places else None

    # --- Python ---------------------------------------------------------------------------------

    def _follow_from(self, found: re.Match[str]) -> str:
        if (old := self._find_python(found[2])) is None:
            return found[0]
        items = _split_items(re.sub(r"#[^\n]*", "", found[3]).strip("() \t\n"))
        groups = self._group(old, items)
        if groups == {old.old_path: items}:
            return found[0]
        named = {_name_python(place, old.old_path, found[2]): kept for place, kept in groups.items()}
        lines = [f"from {module} import {', '.join(kept)}" for module, kept in named.items()] or ["pass"]
        return "\n".join(f"{found[1]}{line}" for line in lines)

    def _follow_module(self, found: re.Match[str]) -> str:
        old = self._find_python(found[2])
        return f"{found[1]}{_name_python(old.path, old.old_path, found[2])}{found[3]}" if old and old.path else found[0]

    def _find_python(self, module: str) -> _Module | None:
        path = module.replace(".", "/")
        found = [one for end in (".py", "/__init__.py") for one in self._by_end.get(f"{path}{end}", [])]
        return found[0] if len(found) == 1 else None

    # --- JavaScript -----------------------------------------------------------------------------

    def _follow_path(self, found: re.Match[str], folder: str) -> str:
        place = posixpath.normpath(posixpath.join(folder, found["path"]))
        old = next((self._by_path[one] for end in _ENDS if (one := f"{place}{end}") in self._by_path), None)
        if old is None:
            return found[0]
        named = _NAMED.search(found["head"])
        items = _split_items(named[1]) if named else []
        groups = self._group(old, items) if items else {old.path or old.old_path: items}
        if groups == {old.old_path: items}:
            return found[0]
        closing = ");\n" if "(" in found["head"] else ";\n"
        groups = groups or {old.old_path: []}
        first = old.path if old.path in groups else next(iter(groups))  # also has what is imported by default
        heads = {
            one: _keep(found["head"] if one == first else _DEFAULT.sub("", found["head"]), groups[one])
            for one in groups
        }
        return closing.join(
            f"{head}{found['quote']}{_name_script(place, folder, found['path'])}{found['quote']}"
            for place, head in heads.items()
        )


def _list_ends(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[at:]) for at in range(len(parts))]


def _index(pairs: Iterable[tuple[str, _Found]]) -> dict[str, list[_Found]]:
    found: dict[str, list[_Found]] = {}
    for name, one in pairs:
        found.setdefault(name, []).append(one)
    return found


def _split_items(names: str) -> list[str]:
    return [one.strip() for one in names.split(",") if one.strip()]


def _keep(head: str, items: Sequence[str]) -> str:
    """An import with these names only."""
    return _NAMED.sub(lambda _: f"{{ {', '.join(items)} }}", head, count=1)


def _name_python(path: str, old_path: str, module: str) -> str:
    """The dotted name of a file, for tests that call the file at `old_path` `module`."""
    start = old_path.rindex(module.replace(".", "/"))
    inside = path.removeprefix(old_path[:start])
    for one in _FOLDERS:
        inside = inside if old_path[start:].startswith(one) else inside.removeprefix(one)
    return inside.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _name_script(path: str, folder: str, as_written: str) -> str:
    """A file as an import in a folder names it, with a suffix if the import had one."""
    near = posixpath.relpath(path, folder or ".")
    if not posixpath.splitext(as_written)[1]:
        near = posixpath.splitext(near)[0].removesuffix("/index")
    return near if near.startswith(".") else f"./{near}"
