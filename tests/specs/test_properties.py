"""Properties of the specs: what ticking does to any document, not only to those we thought of."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from properties import OURS, examples, folder
from specs.documents import BOX, Document, Line, documents, dotted, is_done, json_texts, json_values, spaced
from specs.formats import all_tasks, done_ids

from ralphtool.specs import Spec, checklist, markdown, openspec, prd, speckit


def has_usual_mark(found: re.Match[str]) -> bool:
    """Whether it is a box in a file with more than tasks, in which `- [1] a footnote` is not one."""
    return is_done(found) or not (found[1] or "").isalnum()


# --- documents --------------------------------------------------------------------------------------


def t_numbers(count: int) -> list[str]:
    return [f"T{count:03}", f"T{count:03}:"]


class Format:
    """A format with boxes: where its file is, which ids its tasks already have, and which boxes count."""

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
    """The line with its box ticked. If that would make a link, a blank keeps it a box."""
    opening, closing = line.index("["), line.index("]")
    made = f"{line[: opening + 1]}x{line[closing:]}"
    return made if BOX.match(made) else f"{line[: opening + 1]}x] {line[closing + 1 :]}"


# --- parse, tick, parse -----------------------------------------------------------------------------


@every_boxed_format
@settings(OURS, max_examples=examples(150))
@given(data=st.data())
def test_boxes_outside_of_fences_are_the_tasks(name: str, data: st.DataObject) -> None:
    document = data.draw(FORMATS[name].documents)
    with folder() as top:
        FORMATS[name].write(top, document)
        tasks = all_tasks(FORMATS[name].opener(top))
    expected = sorted((tag_of(line.text), is_done_line(line)) for line in document.boxes)
    assert sorted((tag_of(task.text), task.done) for task in tasks) == expected


@every_boxed_format
@settings(OURS, max_examples=examples(120))
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
@settings(OURS, max_examples=examples(60))
@given(data=st.data())
def test_ticking_all_tasks_completes_the_change_and_touches_no_code(name: str, data: st.DataObject) -> None:
    document = data.draw(FORMATS[name].documents)
    with folder() as top:
        path = FORMATS[name].write(top, document)
        spec = FORMATS[name].opener(top)
        for task in data.draw(st.permutations(all_tasks(spec))):
            spec.tick(task.id)
        assert all(story.done for story in spec.stories() if story.tasks)
        written = path.read_bytes().decode().removeprefix("\ufeff").split("\n")
    for line, new in zip(document.lines, written, strict=False):
        expected = ticked(line.text) if line in document.boxes and not is_done_line(line) else line.text
        assert new.removesuffix("\r") == expected


def is_done_line(line: Line) -> bool:
    return bool(line.box and is_done(line.box))


@settings(OURS, max_examples=examples(1500))
@given(line=st.text(alphabet="-*+1٣.)[] \txX(~é\u3000😀\r", max_size=14))
@example("- [ ](x)")
@example("- [](x)")
@example("- [x](x)")
@example("1234567890. [ ] x")
def test_a_box_is_what_the_regular_expression_says(line: str) -> None:
    found, box = BOX.match(line), markdown.parse_box(line)
    assert (found is None) == (box is None)
    if found and box:
        assert box.done == is_done(found)
        assert box.text == found[2].strip()
        assert (line[box.start - 1], line[box.end]) == ("[", "]")
        assert (line.index("["), line.index("]")) == (box.start - 1, box.end)


# --- prd --------------------------------------------------------------------------------------------


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
    """The text, with every story's own mark in its placeholder."""
    for place, mark in marks.items():
        frame = frame.replace(f'"{place}"', mark)
    return frame


@settings(OURS, max_examples=examples(150))
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
