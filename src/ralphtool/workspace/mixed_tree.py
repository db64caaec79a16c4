"""Trees that are not in any commit: the finished work with the old tests, or the old source with the new tests."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ralphtool.core import files
from ralphtool.errors import GitError
from ralphtool.workspace.git import NULL_ID, Repository
from ralphtool.workspace.paths import printable
from ralphtool.workspace.swapped_files import FileState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ralphtool.workspace.swapped_files import Contents

_PLAIN_FILE = b"100644"
_NO_FILES = (b"040000", b"160000")  # the modes of a folder and of a submodule
_LONGEST_LINE = 50_000
_MOST_RESTORED = 100_000_000  # bytes of a file that only has to be written as it was


def build_mixed_tree(repository: Repository, base: str, other: str, paths: Sequence[str], contents: Contents) -> str:
    """The tree `base`, but with `paths` as in `other` (or removed), and with the `contents` of some files.

    Without contents (None), a file is removed.
    """
    index = f"{repository.index}.mixed"
    aside = Repository(repository.top, repository.gitdir, repository.common, index)
    try:
        aside.run("read-tree", base)
        modes = read_modes(aside, base, contents)
        lines = [*_take_over(aside, other, paths), *_write_contents(aside, contents, modes)]
        aside.run("update-index", "-z", "--index-info", input=b"".join(line + b"\0" for line in lines))
        return aside.write_tree()
    finally:
        files.remove(index)


def _take_over(repository: Repository, other: str, paths: Sequence[str]) -> Iterable[bytes]:
    """Removes all paths first, so that a file can replace a folder; then adds those that `other` has."""
    yield from map(_describe_removal, paths)
    if paths:
        # The length of a command line is limited: beyond that, the whole tree is listed.
        asked = paths if sum(map(len, paths)) < _LONGEST_LINE else ()
        listed = repository.run("--literal-pathspecs", "ls-tree", "-r", "-z", "--full-tree", other, "--", *asked)
        wanted = {os.fsencode(path) for path in paths}
        yield from (line for line in listed.split(b"\0") if line.partition(b"\t")[2] in wanted)


def _describe_removal(path: str) -> bytes:
    return b"0 %s\t%s" % (NULL_ID.encode(), os.fsencode(path))


def read_states(repository: Repository, commit: str, paths: Sequence[str]) -> dict[str, FileState]:
    """Those files that a commit has, as they are there."""
    modes = read_modes(repository, commit, paths)
    found = repository.read_files(commit, paths, _MOST_RESTORED)
    if large := [path for path, mode in modes.items() if path not in found and mode not in _NO_FILES]:
        raise GitError(f"{printable(large[0])} is too large")
    return {path: FileState(modes[path].decode(), data) for path, data in found.items()}


def read_modes(repository: Repository, tree: str, paths: Iterable[str]) -> dict[str, bytes]:
    if not (asked := list(paths)):
        return {}
    listed = repository.run("--literal-pathspecs", "ls-tree", "-z", "--full-tree", tree, "--", *asked)
    rows = [line.partition(b"\t") for line in listed.split(b"\0") if line]
    return {os.fsdecode(path): about.split(b" ")[0] for about, _, path in rows}


def _write_contents(repository: Repository, contents: Contents, modes: Mapping[str, bytes]) -> Iterable[bytes]:
    yield from (_describe_removal(path) for path in contents)  # first, so that a file can replace a folder
    for path, data in contents.items():
        if data is None:
            continue
        state = data if isinstance(data, FileState) else FileState(modes.get(path, _PLAIN_FILE).decode(), data)
        blob = repository.run("hash-object", "-w", "--stdin", input=state.data).strip()
        yield b"%s %s\t%s" % (state.mode.encode(), blob, os.fsencode(path))
