"""Checks whether something that an agent reports as missing is really missing, before a human is asked."""

from __future__ import annotations

import os
import re
import shutil
import socket
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


class _LazyPattern:
    """A pattern that is compiled on first use: most runs are never blocked."""

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self._pattern = pattern
        self._flags = flags

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self._pattern, self._flags)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        return self.compiled.finditer(text)


# A mere mention proves nothing. What counts is a clause that says that something is missing, or the words right after
# "no" or "needs".
_CLAUSE = _LazyPattern(r"[;!?()\n]|\.(?=\s|$)|\bbut\b")
_STATES = (
    "set|found|there|here|installed|available|defined|present|provided|given|configured|reachable|listening|running|"
    r"answer\w*|respond\w*|exist\w*|in the environment|on the path"
)
_LACKS = _LazyPattern(
    r"\b(?:missing|absent|unset|undefined|unavailable|unreachable|lacks?|lacking|empty|refused|closed|down|neither)\b"
    r"|\bno (?:such|value)\b|\b(?:nothing|nobody) (?:listens|answers)\b"
    rf"|(?:\bnot|\bnever|n't) (?:yet )?(?:{_STATES})\b"
    r"|\b(?:can't|cannot|can not|could not|couldn't) (?:find|open|read|reach|connect)\b"
    r"|\b(?:must|(?:has|have) to) be (?:set|made|created|added|provided|given|installed)\b",
    re.IGNORECASE,
)
_WANTS = _LazyPattern(r"\b(?:no|without|needs?|needed|requires?)((?:\s+\S+){1,5})", re.IGNORECASE)
_VARIABLE = _LazyPattern(r"\b[A-Z][A-Z0-9_]*_[A-Z0-9_]*[A-Z][A-Z0-9_]*\b")
_QUOTED = _LazyPattern(r"[`'\"]([^`'\"\n]{1,200})[`'\"]")
# A slash alone does not make a path: and/or, origin/main, /api/login. The last part must look like a file name.
_PATH = _LazyPattern(
    r"(?<![\w/.-])(?:~|\.{1,2})?/?(?:[\w.-]+/)+[\w-]*\.\w+|(?<![\w/.-])(?:[\w-]+\.(?:json|toml|ya?ml|env|pem|key|csv|sql|txt|md)|\.env(?:\.\w+)?)\b"
)
_FILE = _LazyPattern(
    r"\b(?:file|folder|directory)\s+(?:named\s+|called\s+)?[`'\"]([\w.-]{1,100})[`'\"]"
    r"|\b(?:file|folder|directory)\s+([\w.-]{1,100})\s+(?:is|was|does|did)\b"
    r"|\b(?-i:([A-Z]\w*file))\b",
    re.IGNORECASE,
)
_KIND = r"(?:command|program|binary|tool|executable)"
_COMMAND = _LazyPattern(
    rf"{_KIND}\s+[`'\"]([A-Za-z0-9][\w.+-]*)[`'\"]"
    rf"|{_KIND}\s+([A-Za-z0-9][\w.+-]*)\s+(?:is|was)\s+(?:missing|not\s+(?:installed|found|there|available))"
    r"|([A-Za-z0-9][\w.+-]*): (?:command )?not found",
    re.IGNORECASE,
)
# Matches only local ports: other machines are contacted only if the user has named them.
_PORT = _LazyPattern(
    r"\bports?\s+(\d{2,5})\b|\b(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\]):(\d{2,5})\b", re.IGNORECASE
)
_TAKEN = _LazyPattern(r"\b(?:in use|taken|occupied|busy|allocated|already bound|EADDRINUSE)\b", re.IGNORECASE)
_CONNECT_SECONDS = 1.0
_NO_FILES = ("file", "it", "there", "that", "this", "which")
_NOTHING = "it names nothing that can be checked"
_LONGEST = 10_000
_LONGEST_ANSWER = 500


class BlockerCheck(Struct, frozen=True):
    """The result of a check: `is_real` is None if nothing was named that can be looked up."""

    is_real: bool | None
    found: str


class Needs(Protocol):
    """What a project needs, according to `[blockers]`."""

    @property
    def variables(self) -> Sequence[str]: ...
    @property
    def files(self) -> Sequence[str]: ...
    @property
    def commands(self) -> Sequence[str]: ...
    @property
    def ports(self) -> Sequence[str]: ...


def check_claim(text: str, root: str, environ: Mapping[str, str], needs: Needs | None = None) -> BlockerCheck:
    """Looks up what a claimed blocker names, and those needs of the project that the claim mentions.

    A claim that names nothing is real if something is missing that the project needs; otherwise it is undecided.
    """
    text = _extract_missing_claims(text[:_LONGEST])
    things = _Lookup(root, environ)
    named = things.look_up(_find_all(_VARIABLE, text), _find_paths(text), _find_all(_COMMAND, text), _find_ports(text))
    if needs:
        named |= things.look_up_needs(needs, lambda name: _is_mentioned(text, name))
    if not named:
        missing = _list_missing(things.look_up_needs(needs, lambda name: True)) if needs else []
        return BlockerCheck(True, f"{_join_things(missing)} missing") if missing else BlockerCheck(None, _NOTHING)
    if missing := _list_missing(named):
        return BlockerCheck(True, f"{_join_things(missing)} missing")
    return BlockerCheck(False, f"{_join_things(list(named))} available")


def _extract_missing_claims(text: str) -> str:
    """The parts of a claim that say that something is missing."""
    clauses = _CLAUSE.compiled.split(text.replace("\u2019", "'"))
    return "\n".join(one if _LACKS.compiled.search(one) else "\n".join(_WANTS.compiled.findall(one)) for one in clauses)


class _Lookup:
    """Looks things up, and returns for each whether it exists."""

    def __init__(self, root: str, environ: Mapping[str, str]) -> None:
        self._root = root
        self._environ = environ

    def look_up(
        self, variables: Iterable[str], files: Iterable[str], commands: Iterable[str], ports: Iterable[str]
    ) -> dict[str, bool]:
        found = {f"the variable {name}": bool(self._environ.get(name)) for name in variables}
        found |= {f"the file {path}": _exists(self._root, path) for path in files}
        found |= {f"the command {name}": shutil.which(name) is not None for name in commands}
        return found | {f"an answer on port {port}": _is_answering(port) for port in ports}

    def look_up_needs(self, needs: Needs, is_meant: Callable[[str], bool]) -> dict[str, bool]:
        kinds = (needs.variables, needs.files, needs.commands, needs.ports)
        return self.look_up(*([name for name in names if is_meant(name)] for names in kinds))


def _list_missing(named: Mapping[str, bool]) -> list[str]:
    return [what for what, is_there in named.items() if not is_there]


def _is_mentioned(text: str, name: str) -> bool:
    """Whether a name occurs in a text as a whole word; for a host with a port, the port is enough."""
    own = name.rpartition(":")[2]
    return re.search(rf"(?<![\w-]){re.escape(own)}(?![\w-])", text, re.IGNORECASE) is not None


def parse_answer(message: str, token: str) -> BlockerCheck | None:
    """The result of an agent that checked a blocker, from the last line of its final message."""
    line = message.rstrip().rpartition("\n")[2].strip()
    for word, is_real in (("REAL", True), ("UNREAL", False)):
        start = f"<promise>{word}:{token}:"
        if line.startswith(start) and line.endswith("</promise>"):
            why = _clean_line(line[len(start) : -len("</promise>")])
            return BlockerCheck(is_real, f"an agent checked it: {why or 'it gave no reason'}")
    return None


def _clean_line(text: str) -> str:
    """Untrusted text as one line that is safe for a terminal or a page."""
    words = "".join(mark if mark.isprintable() else " " for mark in text[:_LONGEST_ANSWER]).split()
    return " ".join(words).replace("<", "(").replace(">", ")")


def _join_things(things: list[str]) -> str:
    return f"{', '.join(things[:5])} {'is' if len(things) == 1 else 'are'}"


def _find_all(pattern: _LazyPattern, text: str) -> list[str]:
    return list(dict.fromkeys(next(filter(None, found.groups()), found[0]) for found in pattern.finditer(text)))


def _find_paths(text: str) -> list[str]:
    quoted = [one for one in _QUOTED.compiled.findall(text) if "/" in one and " " not in one and "://" not in one]
    plain = [one for one in _PATH.compiled.findall(text) if "://" not in one]
    named = [one for one in _find_all(_FILE, text) if one.lower() not in _NO_FILES]
    return list(dict.fromkeys([*quoted, *plain, *named]))[:20]


def _find_ports(text: str) -> list[str]:
    """Ports that should answer. Empty if the claim is that a port is in use: an answer would prove the opposite."""
    return (
        [] if _TAKEN.compiled.search(text) else [port for port in _find_all(_PORT, text) if 0 < int(port) < 65536][:5]
    )


def _is_answering(place: str) -> bool:
    host, _, port = place.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]") or "localhost", int(port)), _CONNECT_SECONDS):
            return True
    except OSError:
        return False


def _exists(root: str, path: str) -> bool:
    try:
        return os.path.lexists(os.path.join(root, os.path.expanduser(path)))
    except ValueError:  # not a valid path
        return False
