"""Documents with boxes of every shape, generated at random."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

# As the OpenSpec program reads a box; digits are ASCII digits there.
BOX = re.compile(r"^\s*(?:[-*+]|[0-9]{1,9}[.)])\s*\[(?:\s*([^\]\s]?)\s*\](?![(\[])|\s+\])\s*(.*)")


def is_done(found: re.Match[str]) -> bool:
    return (found[1] or "").lower() == "x"


# --- documents --------------------------------------------------------------------------------------


WORDS = [
    *("alpha", "be", "gamma-3", "1", "2.", "x]", "[y]", "(z)", "`c`", "**b**", "#", "a/b.md", "\\", "&", '"q"', "|"),
    *("ünï", "漢字", "😀", "a\u2028b", "a\x0bb", "a\x85b", "\u00a0", "a\u200bb", "İ"),
]
words = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
indents = st.sampled_from(["", "", "", " ", "  ", "   ", "    ", "\t", "\t\t", " \t"])
marks = st.sampled_from(["", " ", " ", " ", "  ", "\t", "x", "X", " x ", "~", "-", "✓", "é", "[", "😀"])


class Line:
    """A line of a document; a plain one was generated outside of every fence."""

    def __init__(self, text: str, plain: bool = True) -> None:
        self.text = text
        self.box = BOX.match(text) if plain else None


class Document:
    def __init__(self, lines: list[Line], endings: list[str], mark: str) -> None:
        self.lines = lines
        self.boxes = [line for line in lines if line.box]
        self.text = mark + "".join(line.text + ending for line, ending in zip(lines, endings, strict=True))

    def __repr__(self) -> str:
        return repr(self.text)


class Maker:
    """Generates the lines of one document; every box has a unique word, by which it can be found again."""

    def __init__(self, draw: st.DrawFn, own_ids: Callable[[int], list[str]]) -> None:
        self.draw = draw
        self.own_ids = own_ids
        self.count = 0

    def box(self) -> str:
        self.count += 1
        marker = self.draw(st.sampled_from(["-", "-", "*", "+", "1.", "12)", "999999999."]))
        gap = self.draw(st.sampled_from(["", " ", " ", "  ", "\t"]))
        after = self.draw(st.sampled_from([" ", " ", "", "\t", "  "]))
        id = self.draw(st.sampled_from(["", *self.own_ids(self.count)]))
        head = f"{self.draw(indents)}{marker}{gap}[{self.draw(marks)}]{after}"
        glued = "" if id else self.draw(st.sampled_from(["", "", "", "", "(z)", "[y]"]))  # as a link would continue
        return f"{head}{id}{glued} w{self.count}w {self.draw(words)}".rstrip(self.draw(st.sampled_from(["", " "])))

    def heading(self) -> str:
        hashes = "#" * self.draw(st.integers(1, 6))
        number = self.draw(st.integers(0, 12))
        lead = self.draw(
            st.sampled_from(["", f"{number}. ", f"{number}.{number} ", f"Phase {number}: ", "Setup ", "Optional "])
        )
        tail = self.draw(st.sampled_from(["", "", " ##", " (optional)"]))
        return f"{self.draw(st.sampled_from(['', '', ' ', '   ']))}{hashes} {lead}{self.draw(words)}{tail}"

    def prose(self) -> str:
        lead = self.draw(st.sampled_from(["", "", "- ", "> ", "1. ", "    ", "\t", "see - [ ] "]))
        return f"{lead}text {self.draw(words)}"

    def blank(self) -> str:
        return ""

    def any_line(self) -> str:
        return self.draw(st.sampled_from([self.box, self.box, self.heading, self.prose, self.blank]))()

    def code(self) -> list[str]:
        return [self.any_line() for _ in range(self.draw(st.integers(0, 3)))]

    def fence(self) -> list[Line]:
        mark = self.draw(st.sampled_from(["```", "~~~", "````"]))
        info = self.draw(st.sampled_from(["", "md", " python x"]))
        closing = mark + self.draw(st.sampled_from(["", mark[0], "  "]))
        return [Line(text, plain=False) for text in [mark + info, *self.code(), closing]]

    def fence_in_item(self) -> list[Line]:
        """A fence inside a list item: closed, or ended by the next line that is not indented."""
        mark = self.draw(st.sampled_from(["```", "~~~"]))
        closing = self.draw(st.sampled_from([[f"  {mark}"], []]))
        inside = [f"  {mark}", *[f"  {text}" for text in self.code()], *closing]
        return [Line("- item"), *[Line(text, plain=False) for text in inside], Line("text")]

    def block(self) -> list[Line]:
        kind = self.draw(st.integers(0, 9))
        if kind == 0:
            return self.fence()
        if kind == 1:
            return self.fence_in_item()
        return [Line(self.any_line())]

    def lines(self) -> list[Line]:
        made = [line for _ in range(self.draw(st.integers(0, 9))) for line in self.block()]
        if self.draw(st.integers(0, 7)) == 0:  # an unclosed fence
            inside = [self.heading(), self.prose()]  # boxes in it would be refused
            made += [Line(text, plain=False) for text in ["```", *inside]]
        return made or [Line("")]


@st.composite
def documents(draw: st.DrawFn, own_ids: Callable[[int], list[str]]) -> Document:
    lines = Maker(draw, own_ids).lines()
    ending = st.sampled_from(draw(st.sampled_from([["\n"], ["\r\n"], ["\n", "\r\n"]])))
    endings = [draw(ending) for _ in lines]
    endings[-1] = draw(st.sampled_from([endings[-1], ""]))
    return Document(lines, endings, draw(st.sampled_from(["", "", "\ufeff"])))


def dotted(count: int) -> list[str]:
    return [f"1.{count}", f"3.{count}:", f"2.{count}.7"]


# --- shared by several files ------------------------------------------------------------------------


json_texts = st.text(st.characters(codec="utf-8"), max_size=8)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | json_texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(json_texts, inner, max_size=3),
    max_leaves=8,
)


def spaced(value: Any, chance: random.Random) -> str:
    """JSON with blanks wherever they are allowed, and texts with and without escapes."""

    def gap() -> str:
        return "".join(chance.choice(["", "", " ", "\n", "\t", "\r\n", "    "]) for _ in range(2))

    def text(one: Any) -> str:
        return json.dumps(one, ensure_ascii=chance.random() < 0.5)

    if isinstance(value, dict):
        members = [f"{gap()}{text(key)}{gap()}:{gap()}{spaced(inner, chance)}{gap()}" for key, inner in value.items()]
        return "{" + (",".join(members) or gap()) + "}"
    if isinstance(value, list):
        return "[" + (",".join(f"{gap()}{spaced(inner, chance)}{gap()}" for inner in value) or gap()) + "]"
    return text(value)
