"""Text of any language with its comments, its strings and its pairs of brackets told apart."""

from __future__ import annotations

import bisect
import re
from array import array
from collections import Counter

SLASHES = r"//[^\n]*|/\*(?:.*?\*/|.*)"
QUOTED = r'"(?:\\.|[^"\\\n])*+"?'
SINGLE = r"'(?:\\.|[^'\\\n])*+'?"
TICKS = r"`(?:\\.|[^`\\])*+`?"
TRIPLE = r'"""(?:.*?"""|.*)'
CHARACTER = r"'(?:\\[^'\n]{1,8}|[^'\\\n])'"
REGEX = r"(?:(?<=[(,=:])|(?<=[(,=:] ))/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*+\]|[^/\\\n\[])++/"


def compile_noise(comment: str, *strings: str) -> re.Pattern[str]:
    """What is no code: comments and strings, whichever begins first."""
    return re.compile(f"(?P<comment>{comment})|(?P<string>{'|'.join(strings)})", re.DOTALL | re.MULTILINE)


SCRIPT_NOISE = compile_noise(SLASHES, REGEX, QUOTED, SINGLE, TICKS)
PYTHON_NOISE = compile_noise(r"#[^\n]*", TRIPLE, r"'''(?:.*?'''|.*)", QUOTED, SINGLE)
FILL = "\x01"
_FILLED = re.compile(f"{FILL}*")
_COMMA_OR_OPENING = re.compile(r"[,(\[{]")
_PARTNER = {")": "(", "]": "[", "}": "{"}


class Source:
    """`code` is the text without comments, `bare` also without what is in strings: all of one length."""

    def __init__(self, text: str, noise: re.Pattern[str]) -> None:
        self.text = text
        self.code, self.bare = mask_text(text, noise)
        self.mates = _match_brackets(self.bare)
        self._drop_dead_blocks()
        self.opens = [found.start() for found in re.finditer(r"\{", self.bare)]

    def _drop_dead_blocks(self) -> None:
        """What stands in `if (false) { … }` is as good as a comment."""
        bare, code, at = [], [], 0
        for found in re.finditer(r"\bif\s*+\(?\s*+(?:false|0)\s*+\)?\s*+\{", self.bare):
            start, end = found.end(), self.mates[found.end() - 1]
            if end > start >= at:
                blank = " " * (end - start)
                bare += [self.bare[at:start], blank]
                code += [self.code[at:start], blank]
                at = end
        self.bare = "".join([*bare, self.bare[at:]])
        self.code = "".join([*code, self.code[at:]])

    def block_after(self, at: int) -> tuple[int, int] | None:
        """The next pair of braces, unless a statement ends before it."""
        index = bisect.bisect_left(self.opens, at)
        start = self.opens[index] if index < len(self.opens) else len(self.bare)
        signature = self.bare[at : min(start, at + 2000)]
        if ";" in signature:
            end = at + signature.index(";")
            return (at, end + 1) if "=>" in signature[: end - at] else None
        return (start, self.end_of(start)) if index < len(self.opens) else None

    def end_of(self, opening: int) -> int:
        mate = self.mates[opening]
        return mate + 1 if mate >= 0 else len(self.bare)

    def arguments(self, opening: int) -> list[str]:
        """What stands between the commas of a pair of brackets; brackets inside are jumped over."""
        found, at, start, closing = [], opening + 1, opening + 1, self.mates[opening]
        if closing < 0:
            return []
        while match := _COMMA_OR_OPENING.search(self.bare, at, closing):
            at = match.end()
            if match[0] == ",":
                found.append(self.code[start : min(match.start(), start + 2000)])
                start = at
            elif self.mates[match.start()] >= 0:
                at = self.mates[match.start()] + 1
        found.append(self.code[start : min(closing, start + 2000)])
        return [text for one in found if (text := " ".join(one.split()))]

    def literal(self, at: int) -> str | None:
        """The string that begins here."""
        if self.bare[at : at + 1] not in ('"', "'", "`"):
            return None
        filled = _FILLED.match(self.bare, at + 1)
        return self.code[at + 1 : filled.end() if filled else at + 1]


def mask_text(text: str, noise: re.Pattern[str]) -> tuple[str, str]:
    """The text without its comments, and also without what is in strings."""
    code, bare, at = [], [], 0
    for found in noise.finditer(text):
        plain, part = text[at : found.start()], found[0]
        if found["comment"] is not None:
            blank = " " * len(part) if "\n" not in part else re.sub(r"[^\n]+", lambda line: " " * len(line[0]), part)
            code += [plain, blank]
            bare += [plain, blank]
        else:
            inner = FILL * (len(part) - 2) if len(part) > 1 else ""
            code += [plain, part]
            bare += [plain, part[0], inner, part[-1] if len(part) > 1 else ""]
        at = found.end()
    return "".join([*code, text[at:]]), "".join([*bare, text[at:]])


def _match_brackets(bare: str) -> array[int]:
    """For each bracket where its partner is, else -1; a bracket that fits nothing is passed over."""
    mates = array("l", [-1]) * len(bare)
    waiting: list[int] = []
    count = Counter[str]()
    for found in re.finditer(r"[(){}\[\]]", bare):
        char, at = found[0], found.start()
        if char not in _PARTNER:
            waiting.append(at)
            count[char] += 1
        elif count[_PARTNER[char]]:
            while bare[opening := waiting.pop()] != _PARTNER[char]:
                count[bare[opening]] -= 1
            count[_PARTNER[char]] -= 1
            mates[opening], mates[at] = at, opening
    return mates
