"""Which files of a project name a data file, or a folder above it: they read it. Read from the last checkpoint."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ralphtool.judging.guard.test_files import find_language
from ralphtool.judging.quoted import may_name, read_source
from ralphtool.judging.roles import TEST_ROLES, find_role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ralphtool.judging.quoted import SourceText

    Read = Callable[[Sequence[str]], Mapping[str, bytes]]
    Grep = Callable[[str], Sequence[str]]

# Files that a program consists of, although no test of them can be told from its name.
_CODE = re.compile(
    r".*\.(?:[bz]?a?sh|fish|ps1|bat|cmd|bats|awk|sed|jq|lua|p[lm]|r|jl|scala|sc|clj[cs]?|hs|mli?|fsx?|vb|dart|zig|nim|d"
    r"|erl|hrl|lisp|el|scm|rkt|tcl|groovy|mm?|pas|f(?:90|95|or)?|cob|asm|s|sol|vue|svelte|astro|s?css|sass|less|proto"
    r"|thrift|graphql|gql|prisma|erb|ejs|hbs|mustache|haml|slim|jinja2?|j2|twig|tmpl|tpl|liquid|pug|xslt?|mk|cmake|nix"
    r"|tf|hcl|bzl|gradle|ipynb|cuh?|glsl|vert|frag|wgsl|hlsl|s?v|vhdl?|rego|cue|dhall|lark|g4|pest|peg|[yl]|wasm|so"
    r"|class|jar)",
    re.I,
)
_INSTALLED = re.compile(
    r"(?:[\w.-]*requirements|constraints)[\w.-]*\.(?:txt|in)|.*\.(?:lock|lockb|lockfile|sum)|[\w.-]*[-.]lock\.\w+"
    r"|npm-shrinkwrap\.json|pipfile|environment\.ya?ml|\.gitignore|\.gitattributes|\.gitmodules",
    re.I,
)
_HOLDS = frozenset((*TEST_ROLES, "shadow"))
_SHORTEST = 3  # of a folder that can be told from other words
_LONGEST = 200_000
_MOST = 200  # source files that are read for one word


class Sources:
    """The files of a project that contain a word, and the text of its source. Each is looked up once."""

    def __init__(self, read: Read, grep: Grep) -> None:
        self._read, self._grep = read, grep
        self._found: dict[str, Sequence[str]] = {}
        self._texts: dict[str, SourceText | None] = {}

    def grep(self, word: str) -> Sequence[str]:
        if word not in self._found:
            self._found[word] = self._grep(word)
        return self._found[word]

    def list_naming(self, paths: Iterable[str], names: Sequence[str]) -> list[str]:
        """Those of the source files that name a file, rather than contain such a word in a comment."""
        asked = [one for one in paths if _is_source(one)]
        unknown = [one for one in asked if one not in self._texts]
        if len(unknown) > _MOST:
            return asked  # too common a word to look at each
        for path, data in (self._read(unknown) if unknown else {}).items():
            self._texts[path] = read_source(path, data[:_LONGEST].decode("utf-8", "replace"))
        return [one for one in asked if may_name(self._texts.get(one), names)]


def is_code(path: str, data: bytes = b"") -> bool:
    """Whether a file seems to be a program or a part of one, in any language."""
    has_suffix = "." in path.rpartition("/")[2].lstrip(".")
    is_program = not has_suffix and data.startswith((b"#!", b"\x7fELF"))
    return is_program or bool(find_language(path)) or _CODE.fullmatch(path) is not None


def is_installed(path: str) -> bool:
    """Whether packages are installed from it: that is no data."""
    return _INSTALLED.fullmatch(path.rpartition("/")[2]) is not None


def find_readers(path: str, sources: Sources) -> list[str]:
    """The source files that name a file itself."""
    return sources.list_naming(_list_naming(path, sources.grep), _list_names(path))


def is_read_by_tests(path: str, sources: Sources) -> bool:
    """Whether tests name a file, or else the nearest folder that anything names, and no source does the same.

    As a last resort, tests may name only how it ends: `*.answer`.
    """
    for found, names in _list_levels(path, sources.grep):
        holders = [one for one in found if one != path]
        if sources.list_naming(holders, names):
            return False
        if any(find_role(one) in _HOLDS for one in holders):
            return find_role(path) != "docs" or all(find_role(one) in (*_HOLDS, "docs") for one in holders)
    return False


def _list_levels(path: str, grep: Grep) -> Iterable[tuple[Sequence[str], Sequence[str]]]:
    """The files that may name a file, its folder and so on, and the names themselves."""
    *folders, name = path.split("/")
    yield _list_naming(path, grep), _list_names(path)
    for end in range(len(folders), 0, -1):
        yield _list_naming_folder(folders[:end], grep)
    if "." in name.lstrip("."):
        suffix = f".{name.rpartition('.')[2]}"
        yield grep(suffix), [suffix]


def _list_names(path: str) -> list[str]:
    """How a file that uses another one may name it."""
    folder, _, name = path.rpartition("/")
    stem = name.partition(".")[0]
    if stem != name:
        return [name, *([f"/{stem}"] if stem else [])]
    return [name, *([f"{folder.rpartition('/')[2]}/{name}"] if folder else [])]


def _is_source(path: str) -> bool:
    return find_role(path) == "source" and is_code(path)


def _list_naming(path: str, grep: Grep) -> list[str]:
    """The files that name a file. A name without a suffix may be any word, unless it is part of a path."""
    folder, _, name = path.rpartition("/")
    stem = name.partition(".")[0]
    imported = _list_quoted_ends(stem, grep) if stem != name else []
    if stem != name:
        return list(dict.fromkeys([*grep(name), *(one for one in imported if _is_source(one))]))
    last = folder.rpartition("/")[2]
    found = [*grep(f"{last}/{name}")] if last else []
    return found or [one for quote in "\"'`" for one in grep(f"{quote}{name}{quote}")]


def _list_quoted_ends(stem: str, grep: Grep) -> list[str]:
    """The files that import it without its suffix: `./rates`."""
    return [one for quote in "\"'" for one in grep(f"/{stem}{quote}")]


def _list_naming_folder(folders: Sequence[str], grep: Grep) -> tuple[list[str], list[str]]:
    """The files that name a folder, the more of its path the better, and that path."""
    name = folders[-1]
    if not (known := {*grep(name)}):
        return [], [name]
    for start in range(len(folders) - 1):
        if found := [*grep("/".join(folders[start:]))]:
            return found, ["/".join(folders[start:])]
    if len(name) < _SHORTEST:
        return [], [name]
    return sorted(known & {*_list_words(name, grep)}), [name]


def _list_words(name: str, grep: Grep) -> Iterable[str]:
    for quote in "\"'`":
        yield from grep(f"{quote}{name}{quote}")
        yield from grep(f"/{name}{quote}")
    yield from grep(f"{name}/")


def list_importers(path: str, grep: Grep) -> list[str]:
    """The files that seem to import a module, by its name."""
    stem = path.rpartition("/")[2].partition(".")[0]
    words = (f"import {stem}", f"from {stem} ", f".{stem} import", f"/{stem}'", f'/{stem}"', f"/{stem}.js")
    found = {one for word in words for one in grep(word) if one != path}
    return sorted(one for one in found if find_role(one) != "docs" and find_language(one))


# --- many files ---------------------------------------------------------------------------------------

_MOST_ASKED = 100


def select(paths: Sequence[str], decide: Callable[[str], bool]) -> list[str]:
    """Those of the paths for which `decide` is true. Of many files it is asked about some in each folder.

    Any other file is like most of those that were asked about in its folder, or in the nearest one above.
    """
    asked = _spread(paths)[:_MOST_ASKED]
    known = {path: decide(path) for path in asked}
    if len(known) == len({*paths}):
        return [path for path in paths if known[path]]
    votes: dict[str, list[bool]] = {}
    for path, is_chosen in known.items():
        for folder in _list_above(path):
            votes.setdefault(folder, []).append(is_chosen)
    return [path for path in paths if known.get(path, _is_like_most(path, votes))]


def _spread(paths: Sequence[str]) -> list[str]:
    """First one file of each folder, then the second one of each, and so on."""
    seen: dict[str, int] = {}
    places = []
    for path in dict.fromkeys(paths):
        folder = path.rpartition("/")[0]
        places.append((seen.setdefault(folder, 0), path))
        seen[folder] += 1
    return [path for _, path in sorted(places, key=lambda one: one[0])]


def _list_above(path: str) -> list[str]:
    folders = path.split("/")[:-1]
    return ["/".join(folders[:end]) for end in range(len(folders), -1, -1)]


def _is_like_most(path: str, votes: Mapping[str, Sequence[bool]]) -> bool:
    near = next(votes[folder] for folder in _list_above(path) if folder in votes)
    return sum(near) * 2 >= len(near)
