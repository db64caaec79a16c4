"""Suggests a `[sandbox]` setting for a program that lacks something in its box, from its output."""

from __future__ import annotations

import os
import re
import socket
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.sandbox.network import name_setting
from ralphtool.sandbox.shown import list_shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_HIDDEN = ("/home", "/root", "/tmp", "/var/tmp", "/run")  # noqa: S108 - what a box does not show
# Never suggest showing these to an agent.
_SECRETS = (".ssh", ".gnupg", ".aws", ".azure", ".kube", ".netrc", ".docker", ".config/gcloud", ".config/gh")
_LACKS = re.compile(
    r"no such file|not found|cannot (?:open|find|read|stat|access)|can't (?:open|find|read)"
    r"|could not (?:open|find|read)|does ?n[o']t exist|is missing|is not there|not readable"
    r"|unable to (?:open|read|find)|ENOENT|EACCES"
    r"|permission denied|failed to (?:open|read|load)|FileNotFound",
    re.IGNORECASE,
)
_PATH = re.compile(r"(?:~|(?<![\w.])/)[^\s'\"`=:;,|&<>(){}$*?\[\]]+")
_REFUSED = re.compile(
    r"(?:localhost|127\.0\.0\.1|\[?::1\]?)(?:\"|')?[:, ]+(?:port[ =]+)?(\d{2,5})\b|port[ =:]+(\d{2,5})\b", re.IGNORECASE
)
_REFUSALS = re.compile(r"refused|could not connect|can't connect|unable to connect|unreachable", re.IGNORECASE)
_LONGEST = 200_000
_CONNECT_SECONDS = 0.5


class Present(Struct, frozen=True):
    """The present values of the settings that may be suggested."""

    read: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()


_NOTHING = Present()


def suggest(
    said: str,
    top: str,
    home: str,
    denied: Iterable[str] = (),
    *,
    present: Present = _NOTHING,
    shown: Sequence[str] = (),
    is_claim: bool = False,
) -> str:
    """What to set so that the missing thing is available; empty if nothing is found. `denied` has settings that the
    network rules named themselves; the box already has the project, `top`, and the paths in `shown`. In the output of
    a program only paths that it reports as missing count; in an agent's claim to be blocked, every path does."""
    said = said[:_LONGEST]
    has = [top, *shown, *list_shown(home, os.environ, ())]
    path = next(_find_hidden_paths(said, has, home, is_claim=is_claim), "")
    found = name_setting("read", present.read, _shorten(path, home)) if path else next(iter(denied), "")
    if not found and (port := next((one for one in _find_ports(said) if _is_answering(one)), None)):
        found = name_setting("ports", present.ports, port)
    # In this form people can copy it: in TOML, the name of a table is on a line of its own.
    return f"set {found.removeprefix('[sandbox] ')} under [sandbox]" if found else ""


def _find_hidden_paths(said: str, shown: Sequence[str], home: str, *, is_claim: bool) -> Iterator[str]:
    """Files that exist on this machine, but not in a box."""
    for line in said.splitlines():
        for word in _PATH.findall(line) if is_claim or _LACKS.search(line) else ():
            path = os.path.normpath(_expand(word.rstrip(".!"), home))
            if _is_hidden(path, shown, home) and os.path.lexists(path):
                yield path


def _expand(word: str, home: str) -> str:
    return home + word[1:] if word == "~" or word.startswith("~/") else word


def _is_hidden(path: str, shown: Sequence[str], home: str) -> bool:
    is_private = any(_is_in(path, one) and path != one for one in (*_HIDDEN, home))
    others = (*shown, *(os.path.join(home, name) for name in _SECRETS))
    return is_private and path not in (home, os.path.dirname(home)) and not any(_is_in(path, one) for one in others)


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _shorten(path: str, home: str) -> str:
    return f"~{path[len(home) :]}" if _is_in(path, home) else path


def _find_ports(said: str) -> Iterator[int]:
    for line in said.splitlines():
        if _REFUSALS.search(line):
            yield from (int(one or other) for one, other in _REFUSED.findall(line) if int(one or other) < 65536)


def _is_answering(port: int) -> bool:
    try:
        with socket.create_connection(("localhost", port), _CONNECT_SECONDS):
            return True
    except OSError:
        return False
