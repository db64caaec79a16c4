"""Properties of the notes: what writing them does to every notebook."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import OURS, examples, folder

from ralphtool.specs import markdown, notes

FRAGMENTS = [
    *("word", "two words", "", "", "# h", "## Learnings", "### 2026-01-31 - Story 1", "```", "~~~", "``` x", "````"),
    *(
        "- x",
        "- [ ] 1.1",
        "1. ```",
        "> ## q",
        "    code",
        "\t# t",
        "---",
        "===",
        "<!--",
        "\\",
        "a\rb",
        "\x1b[1m",
        "\x00",
    ),
    *("a\u2028# b", "é 😀", "  ## two", "   ```", "trailing  ", "####### seven", "#no"),
]
note_texts = (
    st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=4).map("\n".join).filter(lambda text: bool(text.strip()))
)
note_names = st.sampled_from(["one", "two", "C #", "#", "a ## b", "```", "x  y", "naïve", "- dash", "One"])
stories_in_notes = st.sampled_from([None, "1", "2", "US-1", "1 #"])
days = st.sampled_from(["2026-01-31T10:00:00Z", "2026-02-01T10:00:00Z"])


learnings = st.fixed_dictionaries(
    {
        "description": note_texts,
        "task_id": st.sampled_from([None, "1.1"]),
        "story_id": stories_in_notes,
        "timestamp": days,
    }
)
patterns = st.fixed_dictionaries({"name": note_names, "description": note_texts, "timestamp": days})
observations = st.fixed_dictionaries(
    {
        "type": st.just("finding"),
        "title": note_names,
        "description": st.none() | note_texts,
        "story_id": stories_in_notes,
        "timestamp": days,
    }
)
Writer = Callable[[str, list[dict[str, Any]]], int]
WRITERS: dict[str, tuple[Writer, st.SearchStrategy[dict[str, Any]]]] = {
    "learnings": (notes.write_learnings, learnings),
    "patterns": (notes.write_patterns, patterns),
    "observations": (notes.write_observations, observations),
}
NOTE_LINES = [
    *(
        "text",
        "",
        "",
        "- item",
        "  more",
        "# Title",
        "## Learnings",
        "## Patterns",
        "## Observations",
        "## Other",
        "## learnings ##",
    ),
    *(
        "### 2026-01-31 - Story 1",
        "### 2026-02-01 - General",
        "### one",
        "- word",
        "```",
        "~~~",
        "  ```",
        "- ```",
        "    ```",
        "<!--",
        "-->",
    ),
]


@st.composite
def notebooks(draw: st.DrawFn) -> str:
    lines = draw(st.lists(st.sampled_from(NOTE_LINES), max_size=8))
    ending = st.sampled_from(draw(st.sampled_from([["\n"], ["\r\n"], ["\n", "\r\n"]])))
    text = "".join(line + draw(ending) for line in lines)
    mark = draw(st.sampled_from(["", "", "\ufeff"]))
    return mark + draw(st.sampled_from([text, text, text.rstrip("\r\n")]))


def added_lines(old: str, new: str) -> list[str]:
    """The lines of `new` that are not in `old`; fails if an old one is missing or changed."""
    assert new.startswith("\ufeff") == old.startswith("\ufeff")
    rest = [line.removesuffix("\r") for line in new.removeprefix("\ufeff").split("\n")]
    added = []
    for line in old.removeprefix("\ufeff").split("\n"):
        bare = line.removesuffix("\r")
        assert bare in rest, f"{line!r} is gone"
        at = rest.index(bare)
        added += rest[:at]
        del rest[: at + 1]
    return added + rest


@pytest.mark.parametrize("kind", list(WRITERS))
@settings(OURS, max_examples=examples(250))
@given(data=st.data())
def test_notes_written_twice_are_there_once_and_change_no_line(kind: str, data: st.DataObject) -> None:
    write, records = WRITERS[kind]
    old = data.draw(notebooks())
    taken = data.draw(st.lists(records, min_size=1, max_size=3))
    with folder() as top:
        path = top / "notes.md"
        path.write_bytes(old.encode())
        first = write(str(path), taken)
        once = path.read_bytes().decode()
        assert write(str(path), taken) == 0
        assert path.read_bytes().decode() == once
        later = data.draw(st.lists(records, min_size=1, max_size=2))
        write(str(path), later)
        assert write(str(path), taken + later) == 0  # later notes hide none of the first ones
    assert first <= len(taken)
    assert (once == old) == (first == 0)
    added = added_lines(old, once)
    section = f"## {kind.capitalize()}"
    headings = [line for line in added if re.match(r" {0,3}#{1,6}(\s|$)", line)]
    assert all(line == section or line.startswith("### ") for line in headings)
    assert headings.count(section) <= 1
    if first and old.endswith("\n"):  # existing endings stay, and new lines have the ending of most lines
        added_endings = once.count("\r\n") - old.count("\r\n")
        total = once.count("\n") - old.count("\n")
        assert added_endings == (total if 2 * old.count("\r\n") > old.count("\n") else 0)


@settings(OURS, max_examples=examples(150))
@given(old=notebooks(), data=st.data())
def test_notes_land_in_their_section_and_group(old: str, data: st.DataObject) -> None:
    """A reader of the written text finds every learning once, in its group, inside the section."""
    drawn = data.draw(st.lists(learnings, min_size=1, max_size=3))
    stories = st.sampled_from([None, "1", "US-1"])
    taken = [
        {**one, "description": f"k{number}k {one['description']}", "story_id": data.draw(stories)}
        for number, one in enumerate(drawn)
    ]
    with folder() as top:
        path = top / "notes.md"
        path.write_bytes(old.encode())
        assert notes.write_learnings(str(path), taken) == len(taken)
        written = path.read_bytes().decode().removeprefix("\ufeff")
    for number, one in enumerate(taken):
        [section] = [one for one in markdown.sections(written, "") if f"k{number}k" in "".join(one.prose)]
        story = f"Story {one['story_id']}" if one["story_id"] else "General"
        assert (section.level, section.title) == (3, f"{str(one['timestamp'])[:10]} - {story}")
        assert section.above[-1].lower() == "learnings"
