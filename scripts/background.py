"""Generates the background table: how many paragraphs of documentation contain a word, for the memory's cold start.

    .venv/bin/python scripts/background.py FOLDER … > src/ralphtool/memory/background.txt

Any folders with documentation will do: Markdown, reStructuredText, man pages, Python docstrings. The shipped table was
generated from the manual pages, READMEs and docstrings of some hundred free programs and libraries, at most 80 files
of each, without cloud providers, which have too many pages. The output has only counts, no text.
"""

from __future__ import annotations

import gzip
import math
import os
import re
import sys
import textwrap
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

from ralphtool.memory import tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

FEWEST = 4  # paragraphs: a word in fewer is left out, and so counts as rare
STEP = 1.15  # counts are rounded to powers of this: exact ones are not needed
MOST_FILES, MOST_CHARACTERS = 80, 20_000
DOCSTRING = re.compile(r'"""(.*?)"""', re.DOTALL)
LEFT_OUT = ("gcloud", "google-cloud", "awscli", "boto", "azure")


def main() -> None:
    counts: Counter[str] = Counter()
    paragraphs = set(prose(sys.argv[1:]))
    for paragraph in paragraphs:
        counts.update(set(tokens.split_tokens(paragraph)))
    print(len(paragraphs))
    # A name with dots is an address or a file, which says nothing about other texts.
    kept = {word: count for word, count in counts.items() if count >= FEWEST and "." not in word}
    rounded = {word: round(STEP ** round(math.log(count, STEP))) for word, count in kept.items()}
    by_count = sorted(rounded, key=lambda word: (-rounded[word], word))
    for count, group in groupby(by_count, rounded.__getitem__):
        lines = textwrap.wrap(" ".join(group), 100, break_on_hyphens=False, break_long_words=False)
        print(*(f"{count} {line}" for line in lines), sep="\n")


def prose(folders: list[str]) -> Iterator[str]:
    taken: Counter[str] = Counter()
    for folder in folders:
        for place, _, names in os.walk(folder):
            for name in sorted(names):
                path = os.path.join(place, name)
                package = "/".join(path[len(folder) :].split("/")[:3])
                if taken[package] < MOST_FILES and not any(word in path.lower() for word in LEFT_OUT):
                    found = list(paragraphs_of(path))
                    taken[package] += bool(found)
                    yield from found


def paragraphs_of(path: str) -> Iterator[str]:
    for block in re.split(r"\n[ \t]*\n", text_of(path)[:MOST_CHARACTERS]):
        paragraph = block.strip()
        letters = sum(mark.isalpha() or mark == " " for mark in paragraph)
        if 80 <= len(paragraph) <= 1500 and letters >= 0.75 * len(paragraph):
            yield paragraph


def text_of(path: str) -> str:
    if not os.path.isfile(path):
        return ""
    if path.endswith((".md", ".rst")):
        return read(path)
    if path.endswith(".py"):
        return "\n\n".join(re.sub(r"\n +", "\n", one) for one in DOCSTRING.findall(read(path)))
    if re.search(r"\.[1-8]\.gz$", path):
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as page:
            return re.sub(r"\\f.|\\", "", re.sub(r"(?m)^\..*$", "", page.read()))
    return ""


def read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


if __name__ == "__main__":
    main()
