"""Test files that could not run because something that they use does not exist, as compilers and interpreters say it.

A command may also be red because a linter or a script stopped it before the tests: that says nothing about them. So a
message counts only if it is about a missing name, module or argument. What it is about is one of the files it names.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MOST_LINES = 20_000

# Codes of TypeScript that do not depend on how strict it is.
_TYPESCRIPT = r"error TS(?:230[567]|2339|2345|2353|2459|2460|2551|255[45]|2614|2724):"
# Not `undefined name`: no linter looks for it in another file, so the work can't have added it.
_MISSING = (
    r"[Cc](?:annot|an't) find|could not be resolved|has no (?:attribute|member|field|method)\b|unknown import symbol"
    r"|[Cc]annot access attribute|package \S+ does not exist|name '.+' does not exist|undeclared|not declared in this"
    r"|\bundefined: |undefined \(type|fatal error: .+(?:No such file|file not found)|no such module|is not in std"
    r"|no required module|[Uu]nresolved reference|No name '|Unable to import|implementation or library stub"
    r"|(?:Too many|not enough|Missing positional|Unexpected keyword) argument"
)
_FILE = r"(?:file://)?((?:[\w@.+-]*/)*[\w@.+-]+\.\w+)"
_AT = rf"(?:^|[\s(\[]){_FILE}(?::\[?\d|\(\d)"


class _Message(Struct, frozen=True):
    """A message, and the lines around it that name its files."""

    text: str
    place: str
    before: int = 0
    after: int = 0
    is_nearest: bool = False  # only the last place before it


_MESSAGES = (
    _Message(_TYPESCRIPT, _AT),
    _Message(rf"^(?!.*error TS\d).*?(?:{_MISSING})", _AT),
    _Message(r"undefined reference to ", rf"{_FILE}:(?:\d|\(\.)", before=1),
    _Message(r"^error(?:\[E\d{4}\]: |: (?:cannot find|couldn't read) )", r"^ *--> (\S+?):\d", after=8),  # Rust
    _Message(  # Node, and Mocha
        r"^(?:\S* | Exception during run: )?\w*Error(?: \[\w+\])?: .*"
        r"(?:Cannot find (?:module|package)|does not provide an export named|not found\. The requested module"
        r"|is not a (?:function|constructor)|is not defined|of undefined)",
        rf"(?:^|[\s('\"-]){_FILE}",
        before=6,
        after=12,
    ),
    _Message(  # ESLint
        r"^\s+\d+:\d+\s+error\s.*\s(?:import/(?:named|default|namespace|no-unresolved)|(?:n|node)/no-missing-\w+)$",
        rf"^{_FILE}$",
        before=40,
        is_nearest=True,
    ),
    _Message(
        r"^(?:\w+\.)*(?:Import|ModuleNotFound|Attribute|Name|Type)Error: ", r"^ +File \"(.+?)\", line \d", before=30
    ),
    _Message(r"^ImportError while loading conftest '", r"conftest '(.+?)'"),
    _Message(r"Fatal error: .*\bnot found in |undefined function .* in ", r" in (\S+?)(?::\d+|\(\d+\)| on line \d+)"),
    _Message(r"^Can't locate |^Undefined subroutine |is not exported by the ", r" at (\S+) line \d+", after=1),  # Perl
)


def find_uncompiled(lines: Sequence[str]) -> frozenset[str]:
    """Returns the files that such messages name; not all of them need to be at fault."""
    from ralphtool.judging.testresults.model import shorten_path

    shown = lines[-_MOST_LINES:]
    return frozenset(shorten_path(path) for one in _MESSAGES for path in _find_places(shown, one))


def _find_places(lines: Sequence[str], message: _Message) -> Iterator[str]:
    text, place = re.compile(message.text), re.compile(message.place)
    for at, line in enumerate(lines):
        if text.search(line[:2000]):
            near = lines[max(0, at - message.before) : at + message.after + 1]
            found = [path for one in near for path in place.findall(one[:2000])]
            yield from found[-1:] if message.is_nearest else found


def is_same_file(path: str, place: str) -> bool:
    """Whether a test's file may be this one: it may have been compiled into another folder, with another suffix."""
    stem = path.rpartition("/")[2].rpartition(".")[0]
    return f".{stem}." in f".{place.replace('/', '.')}."
