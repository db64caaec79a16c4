"""What the git commands of an agent did, as git itself reports it to files that the agent's environment names.

It tells an agent's moves of refs from those of the user, who may work in the repository at the same time. An agent can
avoid it: then its moves count as possibly the user's, and are reported instead of reverted.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.core import files

if TYPE_CHECKING:
    from collections.abc import Iterator

_WRITTEN = re.compile(r" \d+: (refs/\S+) [0-9a-f]+ -> ([0-9a-f]{40,}) \(F=0x([0-9a-f]+)")
_DELETED = re.compile(r":\d+ +(refs/\S+)$")  # one of several
_REMOVED = re.compile(r" (?:reflog_expire|delete_reflog|rename_ref): (refs/\S+?):? (?:0$|->)")
_HAS_NEW = 4  # git's flag for an update that sets a value
_WRITES_CONFIG = {"config", "remote", "submodule"}
_MOST = 256 << 20  # bytes that are read


class AgentTrace:
    """The files, in a folder of git's. Each of the agent's git commands appends to them."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._refs = os.path.join(folder, "refs.log")
        self._commands = os.path.join(folder, "commands.log")

    @property
    def variables(self) -> dict[str, str]:
        """For the agent's environment."""
        return {"GIT_TRACE_REFS": self._refs, "GIT_TRACE2_EVENT": self._commands}

    def restart(self) -> None:
        self.clear()
        os.makedirs(self._folder, exist_ok=True)

    def clear(self) -> None:
        files.clear(self._folder)

    def read(self) -> TracedGit:
        written: dict[str, set[str]] = {}
        for line in _read_lines(self._refs):
            for ref, value in _find_written(line):
                written.setdefault(ref, set()).add(value)
        return TracedGit(written, [words for line in _read_lines(self._commands) if (words := _find_words(line))])


class TracedGit(Struct, frozen=True):
    """The values that the agent gave to refs (empty: it removed the ref or its log), and its commands that may have
    changed settings, as lower-case words."""

    written: dict[str, set[str]]
    commands: list[list[str]]

    def has_written(self, ref: str, value: str | None) -> bool:
        return (value or "") in self.written.get(ref, ())

    def has_touched(self, ref: str) -> bool:
        return ref in self.written

    def has_set(self, key: str) -> bool:
        """Whether it changed a setting: named it, its section, or the remote that it is about."""
        name = key.lower()
        about = {name, name.partition(".")[2].rpartition(".")[0]} - {""}
        if name.startswith("branch.") and self.has_touched(f"refs/heads/{key.partition('.')[2].rpartition('.')[0]}"):
            return True
        return any(word in about or name.startswith(f"{word}.") for words in self.commands for word in words)


def _read_lines(path: str) -> Iterator[str]:
    read = 0
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                yield line.rstrip("\n")
                read += len(line)
                if read > _MOST:
                    return
    except OSError:
        return  # the agent started no git command, or removed it


def _find_written(line: str) -> Iterator[tuple[str, str]]:
    if found := _WRITTEN.search(line):
        if int(found[3], 16) & _HAS_NEW:
            yield found[1], found[2] if found[2].strip("0") else ""
    elif found := _REMOVED.search(line) or _DELETED.search(line):
        yield found[1], ""


def _find_words(line: str) -> list[str]:
    if '"event":"start"' not in line:
        return []
    try:
        words = json.loads(line)["argv"][1:]
    except (ValueError, KeyError, TypeError):
        return []
    lowered = [word.lower() for word in words if isinstance(word, str)]
    return lowered if _WRITES_CONFIG & set(lowered) else []
