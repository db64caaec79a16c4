"""Properties: what must hold for every document and every order of commands, not only for those we thought of."""

from __future__ import annotations

import json
import math
import os
import random
import re
import signal
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from test_specs_common import all_tasks, done_ids

from ralphtool.cli import agent
from ralphtool.core import config, lifecycle, quickjson
from ralphtool.errors import InvalidValue
from ralphtool.specs import Spec, checklist, markdown, notes, openspec, prd, speckit

# The same examples every time: a build that fails must fail again when somebody looks into it.
settings.register_profile(
    "ours",
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=False,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
OURS = settings.get_profile("ours")

# As the OpenSpec program reads a box; digits are those of ASCII there.
BOX = re.compile(r"^\s*(?:[-*+]|[0-9]{1,9}[.)])\s*\[(?:\s*([^\]\s]?)\s*\](?![(\[])|\s+\])\s*(.*)")


def is_done(found: re.Match[str]) -> bool:
    return (found[1] or "").lower() == "x"


def has_usual_mark(found: re.Match[str]) -> bool:
    """Whether it is a box in a file that people write for more than tasks: `- [1] a footnote` is none there."""
    return is_done(found) or not (found[1] or "").isalnum()


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


# --- documents --------------------------------------------------------------------------------------

WORDS = [
    *("alpha", "be", "gamma-3", "1", "2.", "x]", "[y]", "(z)", "`c`", "**b**", "#", "a/b.md", "\\", "&", '"q"', "|"),
    *("ünï", "漢字", "😀", "a\u2028b", "a\x0bb", "a\x85b", "\u00a0", "a\u200bb", "İ"),
]
words = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
indents = st.sampled_from(["", "", "", " ", "  ", "   ", "    ", "\t", "\t\t", " \t"])
marks = st.sampled_from(["", " ", " ", " ", "  ", "\t", "x", "X", " x ", "~", "-", "✓", "é", "[", "😀"])


class Line:
    """A line of a document; a plain one stands outside of every fence, by how it was made."""

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
    """Makes the lines of one document; every box has a word of its own, by which it can be found again."""

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
        glued = "" if id else self.draw(st.sampled_from(["", "", "", "", "(z)", "[y]"]))  # as a link would go on
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
        """A fence inside a list item: closed, or ended by what is not indented any more."""
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
        if self.draw(st.integers(0, 7)) == 0:  # a fence that nobody closes
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


def t_numbers(count: int) -> list[str]:
    return [f"T{count:03}", f"T{count:03}:"]


class Format:
    """A boxed format: where its file lies, which ids its tasks bring along, and which boxes count."""

    def __init__(
        self,
        file: str,
        own_ids: Callable[[int], list[str]],
        opener: Callable[[Path], Spec],
        counts: Callable[[re.Match[str]], bool] = has_usual_mark,
    ) -> None:
        self.file = file
        self.documents = documents(own_ids).map(self.with_its_boxes)
        self.opener = opener
        self.counts = counts

    def with_its_boxes(self, document: Document) -> Document:
        document.boxes = [line for line in document.boxes if line.box and self.counts(line.box)]
        return document

    def write(self, top: Path, document: Document) -> Path:
        path = top / self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(document.text.encode())
        return path


FORMATS = {
    "openspec": Format("openspec/changes/c/tasks.md", dotted, lambda top: openspec.open(str(top), "c"), bool),
    "speckit": Format("specs/c/tasks.md", t_numbers, lambda top: speckit.open(str(top), "c")),
    "checklist": Format("c.md", t_numbers, lambda top: checklist.open(str(top), "c", "c.md")),
}
every_boxed_format = pytest.mark.parametrize("name", list(FORMATS))


def tag_of(text: str) -> str:
    found = re.search(r"w[0-9]+w", text)
    assert found, text
    return found[0]


def ticked(line: str) -> str:
    """The line with its box ticked. Where a link would come of it, a blank keeps it a box."""
    opening, closing = line.index("["), line.index("]")
    made = f"{line[: opening + 1]}x{line[closing:]}"
    return made if BOX.match(made) else f"{line[: opening + 1]}x] {line[closing + 1 :]}"


# --- parse, tick, parse -----------------------------------------------------------------------------


@every_boxed_format
@settings(OURS, max_examples=150)
@given(data=st.data())
def test_boxes_outside_of_fences_are_the_tasks(name: str, data: st.DataObject) -> None:
    document = data.draw(FORMATS[name].documents)
    with folder() as top:
        FORMATS[name].write(top, document)
        tasks = all_tasks(FORMATS[name].opener(top))
    expected = sorted((tag_of(line.text), is_done_line(line)) for line in document.boxes)
    assert sorted((tag_of(task.text), task.done) for task in tasks) == expected


@every_boxed_format
@settings(OURS, max_examples=120)
@given(data=st.data())
def test_ticking_one_task_changes_that_task_and_no_other_byte(name: str, data: st.DataObject) -> None:
    document = data.draw(FORMATS[name].documents.filter(lambda one: bool(one.boxes)))
    with folder() as top:
        path = FORMATS[name].write(top, document)
        spec = FORMATS[name].opener(top)
        before = {task.id: (task.text, task.done) for task in all_tasks(spec)}
        chosen = data.draw(st.sampled_from(sorted(before)))
        text, done = before[chosen]
        spec.tick(chosen)
        after = {task.id: (task.text, task.done) for task in all_tasks(spec)}
        written = path.read_bytes().decode()
        spec.tick(chosen)
        assert path.read_bytes().decode() == written
    assert after == {**before, chosen: (text, True)}
    [line] = [line.text for line in document.boxes if tag_of(line.text) == tag_of(text)]
    assert written == (document.text if done else document.text.replace(line, ticked(line), 1))


@every_boxed_format
@settings(OURS, max_examples=60)
@given(data=st.data())
def test_ticking_all_tasks_completes_the_change_and_touches_no_code(name: str, data: st.DataObject) -> None:
    document = data.draw(FORMATS[name].documents)
    with folder() as top:
        path = FORMATS[name].write(top, document)
        spec = FORMATS[name].opener(top)
        for task in data.draw(st.permutations(all_tasks(spec))):
            spec.tick(task.id)
        assert all(story.done for story in spec.stories())
        written = path.read_bytes().decode().removeprefix("\ufeff").split("\n")
    for line, new in zip(document.lines, written, strict=False):
        expected = ticked(line.text) if line in document.boxes and not is_done_line(line) else line.text
        assert new.removesuffix("\r") == expected


def is_done_line(line: Line) -> bool:
    return bool(line.box and is_done(line.box))


@settings(OURS, max_examples=1500)
@given(line=st.text(alphabet="-*+1٣.)[] \txX(~é\u3000😀\r", max_size=14))
@example("- [ ](x)")
@example("- [](x)")
@example("- [x](x)")
@example("1234567890. [ ] x")
def test_a_box_is_what_the_regular_expression_says(line: str) -> None:
    found, box = BOX.match(line), markdown.box(line)
    assert (found is None) == (box is None)
    if found and box:
        assert box.done == is_done(found)
        assert box.text == found[2].strip()
        assert (line[box.start - 1], line[box.end]) == ("[", "]")
        assert (line.index("["), line.index("]")) == (box.start - 1, box.end)


# --- prd --------------------------------------------------------------------------------------------

json_texts = st.text(st.characters(codec="utf-8"), max_size=8)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | json_texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(json_texts, inner, max_size=3),
    max_leaves=8,
)


def spaced(value: Any, chance: random.Random) -> str:
    """JSON with blanks wherever they may stand, and texts with and without escapes."""

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


@st.composite
def prd_documents(draw: st.DrawFn) -> dict[str, Any]:
    stories = []
    for number in range(draw(st.integers(1, 4))):
        fields: dict[str, Any] = {"id": f"US-{number}", "title": draw(json_texts)}
        if criteria := draw(st.none() | st.lists(json_texts, max_size=3)):
            fields["acceptanceCriteria"] = criteria
        if priority := draw(st.none() | st.integers(-3, 3) | st.floats(-2, 2)):
            fields["priority"] = priority
        fields |= draw(st.sampled_from([{}, {"passes": f"@{number}@"}]))
        fields |= {
            f"x{key}": value for key, value in draw(st.dictionaries(json_texts, json_values, max_size=2)).items()
        }
        order = draw(st.permutations(sorted(fields)))
        stories.append({key: fields[key] for key in order})
    more = {f"x{key}": value for key, value in draw(st.dictionaries(json_texts, json_values, max_size=2)).items()}
    return {**more, "name": "c", "userStories": stories, **draw(st.sampled_from([{}, {"passes": False}]))}


def rendered(frame: str, marks: dict[str, str]) -> str:
    """The text, with every story's own mark in the place that was kept for it."""
    for place, mark in marks.items():
        frame = frame.replace(f'"{place}"', mark)
    return frame


@settings(OURS, max_examples=150)
@given(document=prd_documents(), chance=st.randoms(use_true_random=False), data=st.data())
def test_prd_ticking_a_story_changes_its_passes_and_no_other_byte(
    document: dict[str, Any], chance: random.Random, data: st.DataObject
) -> None:
    frame = chance.choice(["", "\ufeff"]) + spaced(document, chance) + chance.choice(["", "\n", "\r\n"])
    marks = {f"@{number}@": chance.choice(["false", "null", "true"]) for number in range(4)}
    text = rendered(frame, marks)
    with folder() as top:
        path = top / "prd.json"
        path.write_bytes(text.encode())
        spec = prd.open(str(top), "c")
        story = data.draw(st.sampled_from(spec.stories()))
        before = done_ids(spec)
        completed: list[str] = []
        for task in data.draw(st.permutations(story.tasks)):
            assert path.read_bytes().decode() == text  # not before the last one
            spec.tick(task.id, completed)
            completed.append(task.id)
        written = path.read_bytes().decode()
        assert sorted(done_ids(spec)) == sorted({*before, *completed})
    place = f"@{story.id.removeprefix('US-')}@"
    if f'"{place}"' in frame:
        assert written == rendered(frame, {**marks, place: "true"})
    else:
        assert_passes_was_added(text, written, int(story.id.removeprefix("US-")))


def assert_passes_was_added(text: str, written: str, number: int) -> None:
    length = len(written) - len(text)
    added = [
        written[at : at + length]
        for at in range(len(text) + 1)
        if text[:at] == written[:at] and text[at:] == written[at + length :]
    ]
    assert any(re.fullmatch(r',\s*"passes": true', one) for one in added), (text, written)
    assert json.loads(written.removeprefix("\ufeff"))["userStories"][number]["passes"] is True


# --- notes ------------------------------------------------------------------------------------------

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
    """The lines of `new` that are not those of `old`; fails if one of the old ones is gone or changed."""
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
@settings(OURS, max_examples=250)
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
        assert write(str(path), taken + later) == 0  # what came later hides nothing of what came first
    assert first <= len(taken)
    assert (once == old) == (first == 0)
    added = added_lines(old, once)
    section = f"## {kind.capitalize()}"
    headings = [line for line in added if re.match(r" {0,3}#{1,6}(\s|$)", line)]
    assert all(line == section or line.startswith("### ") for line in headings)
    assert headings.count(section) <= 1
    if first and old.endswith("\n"):  # an ending that was there stays, and what is new has that of most lines
        added_endings = once.count("\r\n") - old.count("\r\n")
        total = once.count("\n") - old.count("\n")
        assert added_endings == (total if 2 * old.count("\r\n") > old.count("\n") else 0)


@settings(OURS, max_examples=150)
@given(old=notebooks(), data=st.data())
def test_notes_land_in_their_section_and_group(old: str, data: st.DataObject) -> None:
    """A reader of the written text finds every learning once, in its group, inside of the section."""
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


# --- JSON -------------------------------------------------------------------------------------------


def refuse(constant: str) -> Any:
    raise ValueError(constant)


def standard(text: str) -> tuple[str, Any]:
    try:
        return "value", json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        return "refused", None


def ours(text: str) -> tuple[str, Any]:
    try:
        return "value", quickjson.loads(text)
    except ValueError:
        return "refused", None


def same(one: Any, other: Any) -> bool:
    """Equal in type too: 1, 1.0 and True are three things; and -0.0 is not 0.0."""
    return repr(one) == repr(other)


@settings(OURS, max_examples=300)
@given(value=json_values, chance=st.randoms(use_true_random=False))
def test_quickjson_reads_what_the_standard_package_reads(value: Any, chance: random.Random) -> None:
    text = spaced(value, chance)
    assert same(quickjson.loads(text), json.loads(text))


@settings(OURS, max_examples=300)
@given(value=json_values)
@example(value={"\x7f": "\x00\x1b\x7f\x9b\u2028é😀\ud800"})
def test_quickjson_writes_what_the_standard_package_writes(value: Any) -> None:
    text = quickjson.dumps(value)
    assert text.isascii()
    assert text.isprintable()
    assert text == json.dumps(value).replace("\x7f", "\\u007f")
    assert same(json.loads(text), json.loads(json.dumps(value)))


@settings(OURS, max_examples=600)
@given(value=json_values, chance=st.randoms(use_true_random=False))
def test_quickjson_refuses_what_the_standard_package_refuses(value: Any, chance: random.Random) -> None:
    """Texts that were damaged in one place: some are JSON still, most are not."""
    text = spaced(value, chance)
    at = chance.randrange(len(text) + 1)
    damage = chance.choice(
        ["", ",", "]", "}", "{", "[", '"', "\\", "\x01", "/", "#", "NaN", "-", "0", ".", "e", "\ufeff", "\x00"]
    )
    broken = text[:at] + damage + text[at + chance.randrange(3) :]
    assert repr(ours(broken)) == repr(standard(broken))


@settings(OURS, max_examples=600)
@given(text=st.text(alphabet='[]{}",:\\ntrufalse01-.eE \t/*u', max_size=12))
@example("NaN")
@example("-Infinity")
@example("[1,]")
@example('{"a":1,}')
@example('"\\ud800"')
@example("01")
@example("1 2")
@example("")
@example(" ")
@example('{"a":1,"a":2}')
@example("\u00a01")
@example('"\t"')
def test_quickjson_agrees_on_texts_that_are_hardly_json(text: str) -> None:
    assert repr(ours(text)) == repr(standard(text))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, [math.nan], {"a": math.inf}])
def test_quickjson_writes_no_number_that_json_has_not(value: Any) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        quickjson.dumps(value)


@pytest.mark.parametrize("value", [{1, 2}, b"x", object(), {"a": {1}}])
def test_quickjson_refuses_what_json_can_not_say(value: Any) -> None:
    with pytest.raises(TypeError):
        quickjson.dumps(value)


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_quickjson_refuses_what_is_nested_too_deeply(opening: str) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        quickjson.loads(opening * 200_000)


# --- the small reader of TOML -----------------------------------------------------------------------

toml_texts = st.text(alphabet="ab #=[]{}',.\\\"verify\té", max_size=8)


def basic(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def literal(text: str) -> str:
    return f"'{text}'" if "'" not in text else basic(text)


@st.composite
def toml_strings(draw: st.DrawFn) -> str:
    text = draw(toml_texts)
    made = [basic(text), literal(text), f'"""\n{text.replace(chr(92), "").replace(chr(34), "")}"""']
    return draw(st.sampled_from([*made[:2], *made]))


@st.composite
def toml_arrays(draw: st.DrawFn) -> str:
    """A list of texts in one of the many ways in which it may be written."""
    items = draw(st.lists(toml_strings(), max_size=3))
    gap = st.sampled_from(["", " ", "\n", "\n    ", "\n# a comment\n", " # why\n", "\r\n\t"])
    comma = draw(st.sampled_from(["", ","])) if items else ""
    body = ",".join(f"{draw(gap)}{item}{draw(gap)}" for item in items)
    return f"[{body}{comma}{draw(gap)}]"


toml_others = st.sampled_from(
    [
        "7",
        "true",
        "1.5",
        "2026-01-31",
        '"20m"',
        "[1, 2]",
        '[["a"], ["b"]]',
        '{ a = "b" }',
        "[{ a = 1 }]",
        "[]",
        "[\n[\n]\n]",
    ]
)
toml_keys = st.sampled_from(
    ["checks", "tests", "timeout", '"checks"', "'tests'", "checks.x", '"a = b"', "verify", "other"]
)
toml_headers = st.sampled_from(
    [
        "[run]",
        "[verify]",
        "[verify]",
        "[verify]",
        "[ verify ]",
        '["verify"]',
        "[verify] # why",
        "[verify.x]",
        "[x.verify]",
        "[[agents]]",
        "  [verify]  ",
    ]
)


@st.composite
def toml_lines(draw: st.DrawFn) -> str:
    kind = draw(st.integers(0, 6))
    if kind == 0:
        return draw(toml_headers)
    if kind == 1:
        return draw(st.sampled_from(["", "# a comment", "# [verify]", '# checks = ["x"]', "   # verify"]))
    value = draw(st.one_of(toml_arrays(), toml_arrays(), toml_strings(), toml_others))
    tail = draw(st.sampled_from(["", "", "  ", " # why", " # [verify]"]))
    equals = draw(st.sampled_from([" = ", "=", "\t=  "]))
    return f"{draw(st.sampled_from(['', '', '  ']))}{draw(toml_keys)}{equals}{value}{tail}"


@st.composite
def toml_files(draw: st.DrawFn) -> str:
    before = draw(st.lists(toml_lines(), max_size=2))
    after = draw(st.lists(toml_lines(), max_size=4))
    ending = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    lines = [*before, draw(st.sampled_from(["[verify]", "[verify]", "[verify]", "[ verify ]", ""])), *after]
    return ending.join(lines) + draw(st.sampled_from(["", ending]))


def expected_commands(text: str) -> dict[str, list[str]] | str:
    """What the settings say according to the standard library alone."""
    try:
        table = tomllib.loads(text).get("verify", {})
    except tomllib.TOMLDecodeError:
        return "refused"
    if not isinstance(table, dict):
        return "refused"
    commands = {key: table[key] for key in ("checks", "tests") if key in table}
    for value in commands.values():
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            return "refused"
    return commands


def read_commands(text: str) -> dict[str, list[str]] | str:
    with folder() as top:
        (top / ".ralph").mkdir()
        (top / ".ralph/config.toml").write_bytes(text.encode())
        try:
            return config.verify(str(top))
        except InvalidValue:
            return "refused"


@settings(OURS, max_examples=400)
@given(text=toml_files())
@example('[verify]\nchecks = ["a", "b"]\ntests = [\n  "c",\n]\n')
@example('[verify]\n"checks" = ["a"]\n')
@example("[verify]\nchecks.x = 1\n")
@example('verify = { checks = ["a"] }\n')
@example('verify.checks = ["a"]\n')
@example('[run]\nx = """\n[verify]\nchecks = ["no"]\n"""\n')
@example('[[verify]]\nchecks = ["a"]\n')
@example('[verify]\nchecks = "make"\n')
def test_settings_are_read_as_the_standard_library_reads_them(text: str) -> None:
    expected = expected_commands(text)
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        assume(False)  # what is no TOML at all has its own test
    assert read_commands(text) == expected


@settings(OURS, max_examples=300)
@given(items=st.lists(toml_strings(), max_size=3), chance=st.randoms(use_true_random=False))
@example(items=['"a"', '"b"'], chance=random.Random(1))
def test_commands_that_are_no_toml_are_refused_not_guessed(items: list[str], chance: random.Random) -> None:
    """A comma too few or too many, a key twice: what we would make of it is not what the user meant."""
    text = (
        "[verify]\nchecks = ["
        + chance.choice([",", " ", "", ", ,"]).join(items)
        + chance.choice(["]", ",]", ",,]", "] x", "", "]]"])
        + "\n"
    )
    text += chance.choice(["", 'tests = ["t"]\n', 'checks = ["twice"]\n', "tests\n"])
    assert read_commands(text) == expected_commands(text)


# --- random interleavings of commands ---------------------------------------------------------------

TASKS = """\
# Tasks

## 1. One
- [ ] 1.1 a
- [ ] 1.10 b

## 2. Two (depends on 1)
- [ ] 2.1 c

## 3. Three (optional)
- [ ] 3.1 d
"""
CHANGES = ("alpha", "beta")
SESSIONS = ("s1", "s2", "s3")
STORY_OF = {"1.1": "1", "1.10": "1", "2.1": "2", "3.1": "3"}


class Buffer:
    """What the model knows of a session."""

    def __init__(self, change: str) -> None:
        self.change = change
        self.story: str | None = None
        self.iteration = 0
        self.notes: list[str] = []
        self.completed: list[str] = []


class Interleavings(RuleBasedStateMachine):
    """Sessions of two changes call the agent's commands in any order; a model of a few lines says what must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.top = tempfile.TemporaryDirectory()
        root = Path(self.top.name)
        self.root, self.tmp = root / "project", root / "tmp"
        self.tmp.mkdir()
        for change in CHANGES:
            (self.root / "openspec/changes" / change).mkdir(parents=True)
            self.file(change, "tasks.md").write_text(TASKS)
        self.sessions: dict[str, Buffer] = {}
        self.holder: dict[str, str] = {}
        self.unlocked: set[str] = set()
        self.done: dict[str, set[str]] = {change: set() for change in CHANGES}
        self.flushed: dict[str, list[str]] = {change: [] for change in CHANGES}
        self.count = 0

    def teardown(self) -> None:
        self.top.cleanup()

    def file(self, change: str, name: str) -> Path:
        return self.root / "openspec/changes" / change / name

    # --- calling the real commands ---

    def call(self, session: str, *arguments: str) -> tuple[str, dict[str, Any]]:
        """The error's code, or an empty text, and what was printed."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            with self.surroundings(session), redirected(1, out.fileno()), redirected(2, err.fileno()), not_for_ever():
                exit_code = agent.main(arguments)
            printed, failed = contents(out.fileno()), contents(err.fileno())
        if exit_code == 0:
            assert failed == b""
            return "", json.loads(printed)
        assert printed == b""
        error = json.loads(failed)
        assert set(error) == {"success", "error", "code"}
        return error["code"], error

    @contextmanager
    def surroundings(self, session: str) -> Iterator[None]:
        kept, here = dict(os.environ), os.getcwd()
        os.environ.update({"RALPH_SESSION": session, "TMPDIR": str(self.tmp)})
        os.environ.pop("RALPH_STORY", None)
        os.chdir(self.root)
        try:
            yield
        finally:
            os.chdir(here)
            os.environ.clear()
            os.environ.update(kept)

    def fresh_word(self) -> str:
        self.count += 1
        return f"n{self.count}n"

    # --- the commands ---

    @rule(session=st.sampled_from(SESSIONS), change=st.sampled_from(CHANGES))
    def init(self, session: str, change: str) -> None:
        code, answer = self.call(session, "session", "init", "--change", change)
        held = change in self.holder and change not in self.unlocked
        busy = session in self.sessions and self.holder.get(change) != session
        if held or busy:
            allowed = {"CHANGE_LOCKED"} if held else set()
            assert code in allowed | ({"SESSION_EXISTS"} if busy else set())
            return
        assert code == "", answer
        fresh = Buffer(change)
        if heir_of := self.holder.get(change):
            legacy = self.sessions.pop(heir_of)
            fresh.notes, fresh.completed = legacy.notes, legacy.completed
        self.sessions[session] = fresh
        self.holder[change] = session
        self.unlocked.discard(change)
        assert [story["id"] for story in answer["stories"]] == ["1", "2", "3"]
        assert sum(story["tasks_done"] for story in answer["stories"]) == len(self.done[change])

    def expected_next(self, change: str) -> str | None:
        done = self.done[change]
        if not {"1.1", "1.10"} <= done:
            return "1"
        return "2" if "2.1" not in done else "3" if "3.1" not in done else None

    @rule(session=st.sampled_from(SESSIONS))
    def next_story(self, session: str) -> None:
        code, answer = self.call(session, "session", "next-story")
        if session not in self.sessions:
            assert code == "SESSION_NOT_FOUND"
            return
        state = self.sessions[session]
        expected = self.expected_next(state.change)
        if expected is None:
            assert answer == {"complete": True}
            return
        state.story = expected
        state.iteration += 1
        assert (answer["story_id"], answer["iteration"]) == (expected, state.iteration)

    @rule(session=st.sampled_from(SESSIONS), task=st.sampled_from([*STORY_OF, "9.9"]))
    def task_done(self, session: str, task: str) -> None:
        code, answer = self.call(session, "task", "done", task)
        if session not in self.sessions:
            assert code == "SESSION_NOT_FOUND"
            return
        state = self.sessions[session]
        if state.story is None:
            assert code == "STORY_REQUIRED"
        elif task not in STORY_OF:
            assert code == "TASK_NOT_FOUND"
        elif STORY_OF[task] != state.story:
            assert code == "TASK_OUT_OF_SCOPE"
        else:
            self.done[state.change].add(task)
            if task not in state.completed:
                state.completed.append(task)
            mine = [other for other, story in STORY_OF.items() if story == state.story]
            assert answer["remaining"] == [other for other in mine if other not in self.done[state.change]]

    @rule(session=st.sampled_from(SESSIONS), kind=st.sampled_from(["learn", "pattern", "observe"]))
    def note(self, session: str, kind: str) -> None:
        word = self.fresh_word()
        arguments = {
            "learn": ["learn", word],
            "pattern": ["pattern", word, "text"],
            "observe": ["observe", "finding", word],
        }
        code, answer = self.call(session, *arguments[kind])
        if session not in self.sessions:
            assert code == "SESSION_NOT_FOUND"
            return
        state = self.sessions[session]
        state.notes.append(word)
        if kind == "learn":
            assert answer["learning"]["story_id"] == state.story
            assert answer["learning"]["iteration"] == state.iteration

    @rule(session=st.sampled_from(SESSIONS))
    def look(self, session: str) -> None:
        code, answer = self.call(session, "status")
        if session not in self.sessions:
            assert code == "SESSION_NOT_FOUND"
            return
        state = self.sessions[session]
        if state.story is None:
            assert code == "STORY_REQUIRED"
            return
        done = self.done[state.change]
        assert answer["story"]["id"] == state.story
        assert answer["change_complete"] is ({"1.1", "1.10", "2.1"} <= done)

    @precondition(lambda self: bool(self.sessions))
    @rule(data=st.data())
    def flush(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(sorted(self.sessions)))
        code, answer = self.call(session, "session", "flush")
        assert code == "", answer
        state = self.sessions.pop(session)
        self.flushed[state.change] += state.notes
        del self.holder[state.change]
        self.unlocked.discard(state.change)

    @rule(session=st.sampled_from(SESSIONS))
    def flush_what_is_not_there(self, session: str) -> None:
        if session not in self.sessions:
            assert self.call(session, "session", "flush")[0] == "SESSION_NOT_FOUND"

    @rule(change=st.sampled_from(CHANGES))
    def unlock(self, change: str) -> None:
        with self.surroundings("s1"), not_for_ever():
            done = lifecycle.unlock(str(self.root), change)
        assert (done is None) == (change not in self.holder)
        if change in self.holder:
            self.unlocked.add(change)

    @rule(change=st.sampled_from(CHANGES))
    def an_editor_saves_a_note_of_its_own(self, change: str) -> None:
        word = self.fresh_word()
        path = self.file(change, "design.md")
        old = path.read_text() if path.exists() else ""
        path.write_text(f"{word}\n\n{old}")
        self.flushed[change].append(word)

    # --- what must hold after each of them ---

    @invariant()
    def nothing_is_lost_and_nothing_twice(self) -> None:
        for change in CHANGES:
            path = self.file(change, "design.md")
            found = re.findall(r"n[0-9]+n", path.read_text() if path.exists() else "")
            assert sorted(found) == sorted(self.flushed[change])
        folder_of_sessions = self.tmp / "ralph/sessions"
        files = sorted(folder_of_sessions.iterdir()) if folder_of_sessions.exists() else []
        assert [file.name for file in files] == [f"{session}.json" for session in sorted(self.sessions)]
        for file in files:
            state = json.loads(file.read_text())
            model = self.sessions[file.stem]
            buffered = re.findall(
                r"n[0-9]+n", json.dumps([state[name] for name in ("learnings", "patterns", "observations")])
            )
            assert sorted(buffered) == sorted(model.notes)
            assert state["completed_tasks"] == model.completed

    @invariant()
    def boxes_are_those_that_were_ticked(self) -> None:
        for change in CHANGES:
            expected = TASKS
            for task in self.done[change]:
                expected = expected.replace(f"- [ ] {task} ", f"- [x] {task} ")
            assert self.file(change, "tasks.md").read_text() == expected

    @invariant()
    def locks_are_exclusive(self) -> None:
        place = self.root / ".ralph/locks"
        names = sorted(path.name for path in place.glob("*.lock"))
        assert names == [f"{change}.lock" for change in CHANGES if change in self.holder]
        for change, session in self.holder.items():
            fields = json.loads((place / f"{change}.lock").read_text())
            assert (fields["session_id"], fields["unlocked"]) == (session, change in self.unlocked)


class StuckError(BaseException):
    """A command waits for a lock that nobody will give back."""


@contextmanager
def not_for_ever() -> Iterator[None]:
    """Fails when a call does not come back: alone in its project, a command has nobody to wait for."""

    def stop(*_: object) -> None:
        raise StuckError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 3)
    try:
        yield
    except StuckError:
        raise AssertionError("the command waits for ever") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def redirected(fd: int, target: int) -> Iterator[None]:
    kept = os.dup(fd)
    os.dup2(target, fd)
    try:
        yield
    finally:
        os.dup2(kept, fd)
        os.close(kept)


def contents(fd: int) -> bytes:
    os.lseek(fd, 0, os.SEEK_SET)
    return os.read(fd, 1 << 20)


def test_a_session_begun_again_and_again_waits_for_nobody() -> None:
    """An heir of the same id inherits from a file that is its own: that file must not be waited for."""
    state = Interleavings()
    for _ in range(3):
        state.init(session="s1", change="alpha")
        state.note(session="s1", kind="learn")
        state.unlock(change="alpha")
    state.init(session="s2", change="alpha")
    state.nothing_is_lost_and_nothing_twice()
    assert len(state.sessions["s2"].notes) == 3
    state.teardown()


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(OURS, max_examples=80, stateful_step_count=40)
