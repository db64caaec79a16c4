"""Untrusted text, made fit for a terminal, a prompt or a report: nothing in it is hidden or breaks out."""

import sys


def make_printable(text: str) -> str:
    """One line of it: control characters, and those that turn the direction of writing, become visible."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def make_lines_printable(text: str) -> str:
    return "\n".join(make_printable(line.rstrip("\r").expandtabs(4)) for line in text.split("\n"))


def can_write_unicode() -> bool:
    """Whether standard output can show more than ASCII."""
    return (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "").startswith("utf")


def make_visible(text: str) -> str:
    """Control characters, and letters that are not seen, spelled out. Spaces of other widths hide nothing."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(line if line.isprintable() else "".join(map(_spell_out, line)) for line in lines)


def _spell_out(character: str) -> str:
    from unicodedata import category  # only where a character asks for it: this module is on the agent's hot path

    is_harmless = character.isprintable() or character == "\t" or category(character) == "Zs"
    return character if is_harmless else ascii(character)[1:-1]


def fence(text: str, language: str = "text") -> str:
    """Text within a Markdown fence that it can't close."""
    ticks = "`" * max(3, count_longest_run(text) + 1)
    return f"{ticks}{language}\n{text}\n{ticks}"


def fence_visible(text: str) -> str:
    """The same; control characters that could hide something become visible."""
    return fence(make_visible(text).strip("\n"))


def count_longest_run(text: str) -> int:
    """How many backticks stand in a row at the most; by asking for ever more, then ever more closely."""
    low, high = 0, 1
    while "`" * high in text:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if "`" * middle in text else (low, middle)
    return low
