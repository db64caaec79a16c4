"""Which files of a project name a data file, or a folder above it: they read it. Read from the last checkpoint."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ralphtool.judging.guard.test_files import find_language
from ralphtool.judging.roles import TEST_ROLES, find_role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

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


def is_code(path: str, data: bytes = b"") -> bool:
    """Whether a file seems to be a program or a part of one, in any language."""
    has_suffix = "." in path.rpartition("/")[2].lstrip(".")
    is_program = not has_suffix and data.startswith((b"#!", b"\x7fELF"))
    return is_program or bool(find_language(path)) or _CODE.fullmatch(path) is not None


def is_installed(path: str) -> bool:
    """Whether packages are installed from it: that is no data."""
    return _INSTALLED.fullmatch(path.rpartition("/")[2]) is not None


def find_readers(path: str, grep: Grep) -> list[str]:
    """The source files that name a file itself."""
    return [one for one in _list_naming(path, grep) if _is_source(one)]


def is_read_by_tests(path: str, grep: Grep) -> bool:
    """Whether tests name a file, or else the nearest folder that anything names, and no source does the same.

    As a last resort, tests may name only how it ends: `*.answer`.
    """
    *folders, name = path.split("/")
    for holders in _list_levels(path, folders, name, grep):
        if any(_is_source(one) for one in holders if one != path):
            return False
        if any(find_role(one) in _HOLDS for one in holders if one != path):
            return find_role(path) != "docs" or all(find_role(one) in (*_HOLDS, "docs") for one in holders)
    return False


def _list_levels(path: str, folders: Sequence[str], name: str, grep: Grep) -> Iterable[Sequence[str]]:
    yield _list_naming(path, grep)
    for end in range(len(folders), 0, -1):
        yield _list_naming_folder(folders[:end], grep)
    if "." in name.lstrip("."):
        yield grep(f".{name.rpartition('.')[2]}")


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


def _list_naming_folder(folders: Sequence[str], grep: Grep) -> list[str]:
    """The files that name a folder, the more of its path the better."""
    name = folders[-1]
    if not (known := {*grep(name)}):
        return []
    for start in range(len(folders) - 1):
        if found := [*grep("/".join(folders[start:]))]:
            return found
    if len(name) < _SHORTEST:
        return []
    return sorted(known & {*_list_words(name, grep)})


def _list_words(name: str, grep: Grep) -> Iterable[str]:
    for quote in "\"'`":
        yield from grep(f"{quote}{name}{quote}")
        yield from grep(f"/{name}{quote}")
    yield from grep(f"{name}/")
