"""Makes untrusted text safe for a terminal, a prompt or a report: nothing in it stays hidden or breaks out."""

import sys


def make_printable(text: str) -> str:
    """For one line: control characters, and those that change the text direction, become visible."""
    if text.isprintable():
        return text
    return _spell_out(text, {c for c in set(text) if not c.isprintable()})


_JOINED = {"Lo", "Lm", "Mn", "Mc", "Sk", "Sm", "So"}  # letters without upper case, their marks, and emoji
_JOINERS = {"\u200c", "\u200d"}  # parts of words in Persian and in Indian scripts, and of many emoji


def _spell_out(text: str, hidden: "set[str]") -> str:
    if not hidden:
        return text
    # Not character by character: hostile texts are long.
    spelled = {ord(c): ascii(c)[1:-1] for c in hidden}
    parts, start = [], 0
    for at in _find_joiners(text) if hidden & _JOINERS else []:
        parts += [text[start:at].translate(spelled), text[at]]
        start = at + 1
    return "".join([*parts, text[start:].translate(spelled)])


def _find_joiners(text: str) -> list[int]:
    """Those that join two letters or emoji. Anywhere else, they only hide something."""
    found = [at for at, character in enumerate(text[1:-1], 1) if character in _JOINERS]
    return [at for at in found if _can_be_joined(text[at - 1]) and _can_be_joined(text[at + 1])]


def _can_be_joined(character: str) -> bool:
    """Not letters of Latin, Greek or Cyrillic: two words could look the same."""
    import unicodedata  # such texts are rare

    return not character.isascii() and unicodedata.category(character) in _JOINED


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
