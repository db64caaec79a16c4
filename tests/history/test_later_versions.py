"""Fields that a later version or another program has written into progress.json survive."""

from __future__ import annotations

import copy
import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from history.documents import (
    FULL,
    LEARNING,
    MOMENT,
    NEW_IN_ENTRY,
    NEWER,
    OURS,
    PATTERN,
    PROGRESS,
    THEIRS,
    Document,
    at,
    complaint,
    complaint_when_indexed,
    documents,
    encoded,
    later,
    places,
    raw,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from project import Ralph
from properties import examples

from ralphtool.history import History
from ralphtool.history.document import parse
from ralphtool.history.records import Entry, Learning, Pattern

# --- documents of a later version, or of another program --------------------------------------------


# Texts that no library would write back unchanged.
EXOTIC = [
    *("12345678901234567890123456789012345678901234567890", "-0", "1.50", "1E+5", "0.10000000000000000000001"),
    *(r'"caf\u00e9 \/ \ud83d\ude00"', '"\u2028 é 😀"', r'"\u0000"', "[ 1 ,2 ]", '{"id" :"x","id":"y"}', "null"),
]


def exotic(document: Document) -> Document:
    """A document of a later version, with a place for every such text in every object."""
    made = copy.deepcopy(document) | {"version": "1.7"}
    for steps in [steps for steps in places(document) if isinstance(at(document, steps), dict)]:
        at(made, steps).update({f"new {number}": f"@{number}@" for number in range(len(EXOTIC))})
    return made


def written(document: Document, **how: Any) -> bytes:
    text = json.dumps(document, ensure_ascii=False, **how)
    return re.sub(r'"@([0-9]+)@"', lambda found: EXOTIC[int(found[1])], text).encode()


BIG = {"project_name": "x" * 1_500_000}  # big enough for a journal
SPREAD: dict[str, Any] = {"separators": (" \n , \t", "\r\n :  ")}
TABS: dict[str, Any] = {"indent": "\t"}
SHAPES: dict[str, Callable[[Document], bytes]] = {
    "ours": lambda one: written(one, indent=2) + b"\n",
    "compact": lambda one: written(one, separators=(",", ":")),
    "tabs": lambda one: written(one, **TABS),
    "CRLF": lambda one: written(one, indent=4).replace(b"\n", b"\r\n") + b"\r\n\r\n",
    "spread": lambda one: b" \n" + written(one, **SPREAD) + b"\t\n\n",
    "backwards": lambda one: written(dict(reversed(one.items())), indent=2),
    "learnings first": lambda one: written({"learnings": one["learnings"], **one}, **TABS),
    "patterns last and learnings first": lambda one: written(
        {
            "learnings": one["learnings"],
            **{k: v for k, v in one.items() if k != "patterns"},
            "patterns": one["patterns"],
        }
    ),
    "only entries": lambda one: written({k: v for k, v in one.items() if k not in ("learnings", "patterns")}, indent=2),
    "no learnings": lambda one: written({k: v for k, v in one.items() if k != "learnings"}),
    "patterns, no learnings, entries": lambda one: written(
        {"patterns": one["patterns"], **{k: v for k, v in one.items() if k != "learnings"}}, **SPREAD
    ),
    "learnings first, no patterns": lambda one: written(
        {"learnings": one["learnings"], **{k: v for k, v in one.items() if k != "patterns"}}, indent=1
    ),
    "empty lists": lambda one: written(one | {"entries": [], "learnings": [], "patterns": []}, indent=2),
    "empty lists with blanks": lambda one: re.sub(
        rb'("(?:entries|learnings|patterns)": )\[\]',
        rb"\1[" + b" \r\n\t" * 3000 + rb"]",
        written(one | {"entries": [], "learnings": [], "patterns": []}, indent=2),
    ),
    "names with escapes": lambda one: (
        written(one, indent=2)
        .replace(b'"entries"', rb'"entr\u0069es"')
        .replace(b'"learnings"', rb'"\u006cearnings"')
        .replace(b'"still_valid"', rb'"still\u005fvalid"')
    ),
    "big": lambda one: written(one | BIG, indent=2),
    "big and backwards": lambda one: written(dict(reversed((one | BIG).items())), **TABS),
}
BASES = {"1.0": FULL, "1.7": exotic(FULL)}
every_shape = pytest.mark.parametrize(("shape", "base"), [(shape, base) for shape in SHAPES for base in BASES])


NEW_ENTRY = Entry(
    id="auth-2-2", timestamp=MOMENT, prd_id="auth-2", iteration=2, status="completed", observations=(), summary='"é"\n'
)
FIRST_ENTRY = Entry(id="other-1", timestamp=MOMENT, prd_id="other", iteration=1, status="partial", observations=())
NEW_LEARNING = Learning(id="learning-0001", type="tool-usage", content="new", source_prd_id="x", created_at=MOMENT)
NEW_PATTERN = Pattern(id="pattern-0001", name="new", type="api-pattern", discovered_at=MOMENT)


class Kept:
    """A project with another program's document; each step is compared with the content before it."""

    def __init__(self, root: Path, data: bytes) -> None:
        self.path = root / PROGRESS
        self.path.parent.mkdir()
        self.path.write_bytes(data)
        self.root = str(root)
        self.history = History(self.root)

    def data(self) -> bytes:
        """The document after a fold, which equals an export before it."""
        exported = self.history.export()
        self.history.fold()
        data = self.path.read_bytes()
        assert data == exported
        return data

    def adds(self, step: Callable[[History], object], name: str) -> Document:
        """Carries out a step that must append one record to a list, and nothing else; returns the record."""
        old = self.path.read_bytes()
        step(self.history)
        new = self.data()
        assert is_insertion(old, new)
        values, expected = exactly(new), exactly(old)
        expected.setdefault(name, []).append(values[name][-1])
        assert values == expected  # numbers compared as text
        self.check()
        return dict(json.loads(new)[name][-1])

    def check(self) -> None:
        """A history opened later reads the same as this one, and the document is valid."""
        found = parse(self.path.read_bytes())
        assert found == self.history.load() == History(self.root).load()
        assert list(found.entries) == self.history.entries() == History(self.root).entries()
        assert list(found.learnings) == self.history.learnings(valid_only=False)
        if found.version == "1.0":
            assert THEIRS.is_valid(json.loads(self.path.read_bytes()))


def exactly(data: bytes) -> Document:
    """The document with its numbers as text. The order of fields does not matter here."""
    found: Document = json.loads(data, parse_int=str, parse_float=str)
    return found


def is_insertion(old: bytes, new: bytes) -> bool:
    """Whether text was inserted in one place and every old byte is still there; spaces in an empty list don't count."""
    old, new = (re.sub(rb"\[[ \t\r\n]+\]", b"[]", data) for data in (old, new))
    start = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), len(old))
    return len(new) > len(old) and new.endswith(old[start:])


@every_shape
def test_additions_are_put_in_and_every_byte_stays(tmp_path: Path, shape: str, base: str) -> None:
    kept = Kept(tmp_path, SHAPES[shape](BASES[base]))
    version = parse(kept.path.read_bytes()).version
    entry = FIRST_ENTRY if shape.startswith("empty") else NEW_ENTRY
    numbers = (kept.history.next_learning_number(), kept.history.next_pattern_number())
    assert kept.adds(lambda history: history.append(entry), "entries")["id"] == entry.id
    assert (
        kept.adds(lambda history: history.add(patterns=[NEW_PATTERN]), "patterns")["id"] == f"pattern-{numbers[1]:04}"
    )
    assert kept.adds(lambda history: history.add([NEW_LEARNING]), "learnings")["id"] == f"learning-{numbers[0]:04}"
    again = FIRST_ENTRY if entry is NEW_ENTRY else Entry(**{**_fields(FIRST_ENTRY), "id": "other-2", "iteration": 2})
    kept.adds(lambda history: history.append(again), "entries")
    assert parse(kept.path.read_bytes()).version == version


def _fields(record: Entry) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


@every_shape
def test_records_of_all_kinds_at_once_leave_the_others_as_they_are(tmp_path: Path, shape: str, base: str) -> None:
    kept = Kept(tmp_path, SHAPES[shape](BASES[base]))
    old = exactly(kept.path.read_bytes())
    entry = FIRST_ENTRY if shape.startswith("empty") else NEW_ENTRY
    kept.history.append(entry, [NEW_LEARNING])
    kept.history.add(patterns=[NEW_PATTERN])
    new = exactly(kept.data())
    for name in ("entries", "learnings", "patterns"):
        assert len(new[name]) == len(old.get(name, [])) + 1
        new[name].pop()
    assert new == {"learnings": [], "patterns": [], **old}
    kept.check()


CHANGED = ("context", "times_referenced", "still_valid")
with_learnings = pytest.mark.parametrize(
    ("shape", "base"),
    [(s, b) for s in SHAPES if "no learn" not in s and "only" not in s and "empty" not in s for b in BASES],
)
WHY = 'it is "gone"\né'


@with_learnings
def test_a_change_of_a_learning_leaves_all_other_values(tmp_path: Path, shape: str, base: str) -> None:
    other = LEARNING | {"id": "learning-0001", "content": "other"}
    document = BASES[base] | {"learnings": [other, *BASES[base]["learnings"], other | {"id": "learning-0009"}]}
    kept = Kept(tmp_path, SHAPES[shape](document))
    old = exactly(kept.path.read_bytes())
    kept.history.count_references(["learning-0007"])
    kept.history.invalidate("learning-0007", WHY)
    new = exactly(kept.data())
    learning = new["learnings"][1]
    assert [learning[name] for name in CHANGED] == [f"login\n{WHY}", "4", False]
    learning.update({name: old["learnings"][1][name] for name in CHANGED})
    assert new == old
    kept.check()


@pytest.mark.parametrize("shape", ["ours", "compact", "tabs", "CRLF", "names with escapes", "big"])
@pytest.mark.parametrize("base", BASES)
def test_a_change_of_a_learning_leaves_all_other_bytes(tmp_path: Path, shape: str, base: str) -> None:
    data = SHAPES[shape](BASES[base])
    kept = Kept(tmp_path, data)
    kept.history.count_references(["learning-0007"])
    counted = re.sub(rb'("times_referenced"[\s:]+)3', rb"\g<1>4", data)
    assert kept.data() == counted
    kept.history.invalidate("learning-0007", "gone")
    expected = re.sub(rb'("still(?:_|\\u005f)valid"[\s:]+)true', rb"\1false", counted)
    assert kept.data() == expected.replace(b'"login"', rb'"login\ngone"')


BARE: Document = {name: LEARNING[name] for name in ("id", "type", "content", "source_prd_id", "created_at")}


@pytest.mark.parametrize("shape", ["ours", "compact", "tabs"])
def test_a_change_of_a_bare_learning_adds_only_what_changed(tmp_path: Path, shape: str) -> None:
    kept = Kept(tmp_path, SHAPES[shape](FULL | {"learnings": [BARE]}))
    old = kept.path.read_bytes()
    kept.history.count_references(["learning-0007"])
    assert json.loads(kept.data())["learnings"] == [BARE | {"times_referenced": 1}]
    assert is_insertion(old, kept.path.read_bytes())
    kept.history.invalidate("learning-0007", "gone")
    expected = BARE | {"times_referenced": 1, "still_valid": False, "context": "gone"}
    assert json.loads(kept.data())["learnings"] == [expected]


def test_a_field_that_does_not_change_keeps_its_escapes(tmp_path: Path) -> None:
    data = raw(r'"caf\u00e9 \/"', ("learnings", 0, "context"))
    kept = Kept(tmp_path, data)
    kept.history.count_references(["learning-0007"])
    assert rb'"caf\u00e9 \/"' in kept.data()


def test_there_is_a_number_behind_every_number(tmp_path: Path) -> None:
    """Ids have at least four digits, without an upper limit."""
    for digits in ("9999", "9" * 18, "9" * 30):
        old = {
            "learnings": [LEARNING | {"id": f"learning-{digits}"}],
            "patterns": [PATTERN | {"id": f"pattern-{digits}"}],
        }
        folder = tmp_path / digits
        folder.mkdir()
        kept = Kept(folder, encoded(FULL | old))
        for step in ("learnings", "learnings", "patterns", "patterns"):
            kept.adds(ADDING[step], step)


@pytest.mark.parametrize("base", ["1.7", "big"])
def test_the_commands_keep_what_a_later_version_has_written(ralph: Ralph, base: str) -> None:
    document = exotic(FULL | ({"project_name": "x" * 1_500_000} if base == "big" else {}))
    path = ralph.write(PROGRESS, SHAPES["ours"](document))
    old = exactly(path.read_bytes())
    assert ralph.run("progress", "learnings", "invalidate", "learning-0007", "--why", "gone", "--json").json["id"]
    assert ralph.run("progress", "fold").exit_code == 0
    new = exactly(path.read_bytes())
    assert new["learnings"][0].pop("context") == "login\ngone"
    assert new["learnings"][0].pop("still_valid") is False
    for name in ("context", "still_valid"):
        del old["learnings"][0][name]
    assert new == old
    assert ralph.run("progress", "export").stdout.encode() == path.read_bytes()
    assert ralph.run("progress", "validate", PROGRESS, "--json").json["version"] == "1.7"


# --- any document, any order of steps ---------------------------------------------------------------


@st.composite
def blanks(draw: st.DrawFn, document: Any) -> str:
    """A document as text, with white space wherever JSON allows it."""
    gap = st.sampled_from(["", "", " ", "\n", "\t", "\r\n", "  \n "])

    def text(value: Any) -> str:
        if isinstance(value, dict):
            inside = ",".join(f"{draw(gap)}{json.dumps(k)}{draw(gap)}:{text(v)}" for k, v in value.items())
            return f"{draw(gap)}{{{inside or draw(gap)}}}{draw(gap)}"
        if isinstance(value, list):
            return f"{draw(gap)}[{','.join(map(text, value)) or draw(gap)}]{draw(gap)}"
        return f"{draw(gap)}{json.dumps(value, ensure_ascii=draw(st.booleans()))}{draw(gap)}"

    return text(document)


@st.composite
def foreign_documents(draw: st.DrawFn) -> bytes:
    document = draw(documents)
    if draw(st.booleans()):
        document = later(document)
    names = draw(st.permutations(list(document)))
    return draw(blanks({name: document[name] for name in names})).encode()


def _next_entry(history: History) -> Entry:
    number = history.next_iteration("fresh-prd")
    return Entry(**_fields(FIRST_ENTRY) | {"id": f"fresh-prd-{number}", "prd_id": "fresh-prd", "iteration": number})


def _next_learning(history: History) -> Learning:
    number = len(history.learnings(valid_only=False))
    return Learning(id="learning-0000", type="tool-usage", content=f"new {number}", source_prd_id="", created_at=MOMENT)


def _next_pattern(history: History) -> Pattern:
    return Pattern(id="pattern-0000", name=f"new {len(history.patterns())}", type="api-pattern", discovered_at=MOMENT)


ADDING: dict[str, Callable[[History], object]] = {
    "entries": lambda history: history.append(_next_entry(history)),
    "learnings": lambda history: history.add([_next_learning(history)]),
    "patterns": lambda history: history.add(patterns=[_next_pattern(history)]),
}


@settings(OURS, max_examples=examples(60))
@given(foreign_documents(), st.lists(st.sampled_from([*ADDING, "reference"]), min_size=1, max_size=5))
def test_whatever_stands_there_stays_whatever_is_added(data: bytes, steps: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        kept = Kept(Path(folder), data)
        for step in steps:
            learnings = kept.history.learnings()
            if step in ADDING:
                kept.adds(ADDING[step], step)
            elif learnings:
                old = exactly(kept.path.read_bytes())
                kept.history.count_references([learnings[-1].id])
                (changed,) = [one for one in old["learnings"] if one["id"] == learnings[-1].id]
                changed["times_referenced"] = str(learnings[-1].times_referenced + 1)
                new = exactly(kept.data())
                for one in (*old["learnings"], *new["learnings"]):
                    one.setdefault("still_valid", True)
                assert new == old
                kept.check()


def test_a_number_of_any_length_in_a_new_field_is_kept() -> None:
    data = raw("1" * 5000, NEW_IN_ENTRY, NEWER)
    assert complaint(data) is None
    assert complaint_when_indexed(data) is None
