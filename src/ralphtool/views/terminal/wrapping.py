"""Wraps lines between words to fit a terminal. Elsewhere lines are not wrapped.

A command in backticks counts as one word, and so does everything in `glue`.
"""

from __future__ import annotations

import os
import re
import sys

import click

_GLUE = "\x1f"  # a non-breaking space
_QUOTED = r"`[^`]{1,300}`"  # a command in a sentence: wrapped, it could not be copied
# Compiled when first used: every run imports this before its first event.
_COMMAND = r"\A(?:git|ralphtool|npm|pip|pipx|gem|sudo|chmod|python[\d.]*|\S*/python[\d.]*) [^,]*"
_WORD = rf" *(?:{_QUOTED}|[^ ])+"


def glue(text: str) -> str:
    """The text as one word, for `echo` and `wrap`."""
    return text.replace(" ", _GLUE)


def glue_command(text: str) -> str:
    """For advice: the command that the text begins with becomes one word, and so do quoted paths."""
    text = re.sub(_COMMAND, lambda found: glue(found[0]), text)
    return re.sub(r"'[^']*'", lambda found: glue(found[0]), text)


def find_width(*, err: bool = False) -> int | None:
    """The number of columns of the terminal; None if the output (with `err`, that of errors) is not a terminal."""
    stream = sys.stderr if err else sys.stdout
    if stream is None or not stream.isatty():
        return None
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):  # it is gone, or is not a file
        return 80


def echo(text: str = "", hang: int = 2, *, err: bool = False) -> None:
    """Prints lines. Lines that don't fit are wrapped, and continued with `hang` more columns of indent."""
    width = find_width(err=err)
    for line in text.split("\n"):
        click.echo((line if width is None else wrap(line, width, hang)).replace(_GLUE, " "), err=err)


def echo_command(command: str) -> None:
    """Prints a command for people to copy, on a line of its own."""
    echo(f"  {glue(command)}")


def wrap(line: str, width: int, hang: int = 2) -> str:
    """The line wrapped into as many lines as it needs. A word that is too long for a line stays whole."""
    if _measure(line) <= width:
        return line.replace(_GLUE, " ")
    deeper = min(len(line) - len(line.lstrip(" ")) + hang, width // 2)
    done, now = [], ""
    for word in re.findall(_WORD, line):
        if now.strip() and _measure(now + word) > width:
            done.append(now)
            now = " " * deeper + word.lstrip(" ")
        else:
            now += word
    return "\n".join([*done, now]).replace(_GLUE, " ")


def _measure(text: str) -> int:
    """The columns that a text takes, without its colours."""
    plain = click.unstyle(text)
    if plain.isascii():
        return len(plain)
    from rich.cells import cell_len  # its import takes longer than a short list of changes

    return cell_len(plain)
