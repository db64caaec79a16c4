"""Makes untrusted text safe for a terminal, a prompt or a report: nothing in it stays hidden or breaks out."""

import sys


def make_printable(text: str) -> str:
    """For one line: control characters, and those that change the text direction, become visible."""
    if text.isprintable():
        return text
    return _spell_out(text, {c for c in set(text) if not c.isprintable()})


def _spell_out(text: str, hidden: "set[str]") -> str:
    # Not character by character: hostile texts are long.
    return text.translate({ord(c): ascii(c)[1:-1] for c in hidden}) if hidden else text


def make_lines_printable(text: str) -> str:
    return "\n".join(make_printable(line.rstrip("\r").expandtabs(4)) for line in text.split("\n"))


def can_write_unicode() -> bool:
    """Whether standard output can show more than ASCII."""
    return (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "").startswith("utf")


def make_visible(text: str) -> str:
    """Escapes control and invisible characters. Spaces of other widths are kept, since they hide nothing."""
    text = text.replace("\r\n", "\n")
    return _spell_out(text, {c for c in set(text) if not (c.isprintable() or c in "\t\n" or _is_space(c))})


def _is_space(character: str) -> bool:
    from unicodedata import category  # imported only if needed: this module is on the agent's hot path

    return category(character) == "Zs"


def fence(text: str, language: str = "text") -> str:
    """Text inside a Markdown fence that it can't close."""
    ticks = "`" * max(3, count_longest_run(text) + 1)
    return f"{ticks}{language}\n{text}\n{ticks}"


def fence_visible(text: str) -> str:
    """Like `fence`; control characters that could hide something become visible."""
    return fence(make_visible(text).strip("\n"))


def count_longest_run(text: str) -> int:
    """The length of the longest run of backticks, by doubling and then bisecting."""
    low, high = 0, 1
    while "`" * high in text:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if "`" * middle in text else (low, middle)
    return low
