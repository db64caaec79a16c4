"""The schema of progress.json: the published one, ours and the code accept the same documents."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from history.documents import (
    _FORMATS,
    _STRICT,
    ENTRY,
    FULL,
    LEARNING,
    MOMENT,
    OURS,
    PATTERN,
    SEED,
    THEIRS,
    Document,
    Steps,
    at,
    complaint,
    complaint_when_indexed,
    documents,
    encoded,
    later,
    path_of,
    places,
    raw,
    rule_of,
    with_value,
    without,
)
from hypothesis import event, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from project import Ralph
from properties import examples, sample

from ralphtool.core import session
from ralphtool.history.document import parse
from ralphtool.history.schema import build_schema

# --- validators -------------------------------------------------------------------------------------


PRINTED = _STRICT(build_schema(), format_checker=_FORMATS)


def verdicts(document: Any) -> dict[str, bool]:
    data = encoded(document)
    return {
        "seed": THEIRS.is_valid(document),
        "schema": PRINTED.is_valid(document),
        "parse": complaint(data) is None,
        "index": complaint_when_indexed(data) is None,
    }


def disagreement(document: Any) -> dict[str, bool] | None:
    found = verdicts(document)
    return found if len(set(found.values())) > 1 else None


# Allowed in some places, and wrong in most. Without whole floats, foreign digits, newlines and newer versions: there
# the code differs on purpose.
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 7, 1.5, -0.5, 1e-9, 2**63, 2**64, 10**30, -(10**30), "", "x", "1", "é", "a\u0000b"),
    *([], ["x"], ["x", 1], [None], [[]], [{}], {}, {"x": 1}, {"type": "finding", "title": ""}),
]
WORDS = [
    *("completed", "Completed", "bug", "bugs", "high", "none", "retry", "finding", "tool-usage", "error-handling"),
    *("test-pattern", "test-pattern ", "null"),
]
IDS = [
    *("1.0", "1.", "v1.0", "1.0.0", " 1.0", "-1.0", "x-1", "x-", "-1", "--1", "X-1", "x_1", "x-1-", "x-1 ", "a-b-c-22"),
    *("x-1.0", "ä-1", "learning-0001", "learning-001", "learning-00001", "learning-12345", "Learning-0001"),
    *("learning-000x", "pattern-0001", "pattern-001", "pattern-12345", "pattern-", " pattern-0001", "pattern-0001-"),
]
MOMENTS = [
    *("2025-01-15T10:30:00Z", "2025-01-15T10:30:00.000000001Z", "2025-01-15T10:30:00-23:59", "2024-02-29T23:59:59Z"),
    *("2000-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "2025-02-29T00:00:00Z", "2025-02-30T00:00:00Z"),
    *("2025-04-31T00:00:00Z", "2025-12-31T00:00:00Z", "2025-13-01T00:00:00Z", "2025-00-01T00:00:00Z"),
    *("2025-01-00T00:00:00Z", "2025-01-32T00:00:00Z", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
    *("9999-12-31T23:59:59.999999999Z", "10000-01-01T00:00:00Z", "2025-01-15", "2025-01-15T10:30:00"),
    *("2025-01-15T10:30:00.Z", "2025-01-15T10:30:00,5Z", "2025-01-15T10:30Z", "2025-01-15 10:30:00Z"),
    *("2025-01-15t10:30:00Z", "2025-01-15T10:30:00z", "2025-01-15T24:00:00Z", "2025-01-15T10:60:00Z"),
    *("2025-01-15T10:30:60Z", "2025-01-15T10:30:00+24:00", "2025-01-15T10:30:00+05:60", "2025-01-15T10:30:00+0530"),
    *("2025-01-15T10:30:00+05", "2025-1-15T10:30:00Z", "20250115T103000Z", " 2025-01-15T10:30:00Z"),
]
STRANGERS = [*VALUES, *WORDS, *IDS, *MOMENTS]
STRANGE_NAMES = [
    "extra",
    "",
    "Version",
    "ID",
    "id ",
    "still-valid",
    "stillValid",
    "é",
    "a.b",
    "[0]",
    "$ref",
    "__class__",
]


def strangers_at(steps: Steps) -> list[Any]:
    """The values worth trying in a place: where any text is allowed, one is enough."""
    rule = rule_of(steps)
    more = {"enum": WORDS, "pattern": IDS, "format": MOMENTS}
    return [*VALUES, *(value for name, values in more.items() if name in rule for value in values)]


def mutations(document: Document) -> Iterator[tuple[str, Any]]:
    """Every known way to change a document in one place."""
    for steps in places(document):
        where, value = path_of(steps) or "all", at(document, steps)
        for stranger in strangers_at(steps):
            yield f"{where} = {stranger!r}", with_value(document, steps, stranger)
        if steps:
            yield f"without {where}", without(document, steps)
        if isinstance(value, dict):
            for name in STRANGE_NAMES:
                yield f"{where} with {name!r}", with_value(document, steps, value | {name: None})
        if isinstance(value, list):
            for stranger in VALUES:
                yield f"{where} + {stranger!r}", with_value(document, steps, [*value, stranger])


# --- random documents -------------------------------------------------------------------------------


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    document = draw(documents)
    steps = draw(st.sampled_from(list(places(document))))
    value = at(document, steps)
    kinds = ["stranger", "drop" if steps else "stranger", "name" if isinstance(value, dict) else "stranger"]
    kind = draw(st.sampled_from(kinds))
    if kind == "drop":
        return without(document, steps)
    if kind == "name":
        return with_value(document, steps, value | {draw(st.sampled_from(STRANGE_NAMES)): None})
    return with_value(document, steps, draw(st.sampled_from(STRANGERS)))


# --- the schema -------------------------------------------------------------------------------------


def test_the_example_has_every_field_there_is() -> None:
    """So tests with it cover every field."""
    objects = [steps for steps in places(FULL) if isinstance(at(FULL, steps), dict)]
    assert {path_of(steps): sorted(at(FULL, steps)) for steps in objects} == {
        path_of(steps): sorted(rule_of(steps)["properties"]) for steps in objects
    }
    assert len(objects) == 1 + len(SEED["$defs"])
    assert set(verdicts(FULL).values()) == {True}


def test_the_schema_is_a_valid_one_of_2020_12() -> None:
    assert build_schema()["$schema"] == SEED["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert build_schema()["$id"] == SEED["$id"]
    Draft202012Validator.check_schema(build_schema())
    Draft202012Validator.check_schema(SEED)


def test_the_command_prints_exactly_that_schema(ralph: Ralph) -> None:
    assert ralph.run("progress", "schema").stdout == json.dumps(build_schema(), indent=2, ensure_ascii=False) + "\n"
    assert ralph.snapshot() == {}


def _rules(whole: Document, rule: Document, path: str = "") -> Iterator[tuple[str, Document]]:
    rule = whole["$defs"][rule["$ref"].rpartition("/")[2]] if "$ref" in rule else rule
    yield path, rule
    for name, inside in rule.get("properties", {}).items():
        yield from _rules(whole, inside, f"{path}.{name}")
    if "items" in rule:
        yield from _rules(whole, rule["items"], f"{path}[]")


def _essence(rule: Document) -> Document:
    kept = {name: rule.get(name) for name in ("type", "minimum", "format", "additionalProperties")}
    sets = {name: set(rule.get(name) or ()) for name in ("required", "enum", "properties")}
    return {**kept, **sets, "pattern": (rule.get("pattern") or "").replace(r"\d", "[0-9]")}


def test_the_schema_says_what_the_seed_says_field_by_field() -> None:
    ours = {path: _essence(rule) for path, rule in _rules(build_schema(), build_schema())}
    assert ours == {path: _essence(rule) for path, rule in _rules(SEED, SEED)}


@pytest.mark.parametrize(
    ("known", "steps"),
    [
        (session.LEARNING_TYPES, ("learnings", 0, "type")),
        (session.PATTERN_TYPES, ("patterns", 0, "type")),
        (session.OBSERVATION_TYPES, ("entries", 0, "observations", 0, "type")),
        (session.CATEGORIES, ("entries", 0, "observations", 0, "category")),
        (session.SEVERITIES, ("entries", 0, "observations", 0, "severity")),
    ],
)
def test_what_an_agent_may_say_is_what_the_history_may_hold(known: tuple[str, ...], steps: Steps) -> None:
    assert list(known) == rule_of(steps)["enum"]


# --- the schema, the seed and the code accept the same ----------------------------------------------


@settings(OURS, max_examples=examples(150))
@given(documents)
def test_whatever_the_seed_allows_is_accepted_by_the_schema_and_the_code(document: Document) -> None:
    assert set(verdicts(document).values()) == {True}


@settings(OURS, max_examples=examples(300))
@given(mutated())
def test_the_seed_the_schema_and_the_code_agree_on_any_document(document: Any) -> None:
    event(f"accepted: {THEIRS.is_valid(document)}")
    assert disagreement(document) is None


def test_they_agree_on_every_change_of_every_field() -> None:
    told = {name: verdicts(document) for name, document in mutations(FULL)}
    assert {name: found for name, found in told.items() if len(set(found.values())) > 1} == {}
    accepted = sum(found["seed"] for found in told.values())
    assert accepted > 200  # enough for both answers
    assert len(told) - accepted > 2000


def test_a_later_minor_is_held_to_all_that_is_known_of_it() -> None:
    """In known fields, the same is accepted and refused in version 1.1 as in version 1.0."""
    assert complaint(encoded(later(FULL))) is None
    odd = {}
    for name, document in sample(mutations(FULL), 7):
        if not isinstance(document, dict) or document.get("version") != "1.0":
            continue
        if " with " in name or "{'" in name:  # an unknown field, which is allowed here
            continue
        data = encoded(later(document))
        found = [complaint(data) is None, complaint_when_indexed(data) is None]
        if found != [THEIRS.is_valid(document)] * 2:
            odd[name] = found
    assert odd == {}


# --- where SPEC differs from the seed ---------------------------------------------------------------


@pytest.mark.parametrize("text", ["2.0", "1e2", "1E+0", "-0.0"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("steps", [steps for steps in places(FULL) if rule_of(steps)["type"] == "integer"], ids=path_of)
def test_a_whole_float_is_no_integer(steps: Steps, version: str, text: str) -> None:
    document = FULL if version == "1.0" else later(FULL)
    data = raw(text, steps, document)
    if version == "1.0" and text != "-0.0":
        assert Draft202012Validator(SEED).is_valid(json.loads(data))
    assert complaint(data) == complaint_when_indexed(data) == f"{path_of(steps)}: {float(text)} is not an integer"


PATTERNED = [steps for steps in places(FULL) if "pattern" in rule_of(steps)]


@pytest.mark.parametrize("steps", PATTERNED, ids=path_of)
@pytest.mark.parametrize(
    "change", [lambda one: f"{one}\n", lambda one: f"\n{one}", lambda one: re.sub("[0-9]", "\u0663", one)]
)
def test_an_id_is_ascii_and_the_whole_string(steps: Steps, change: Callable[[str], str]) -> None:
    document = with_value(FULL, steps, change(at(FULL, steps)))
    assert not PRINTED.is_valid(document)
    message = complaint(encoded(document))
    assert message == complaint_when_indexed(encoded(document))
    assert message
    assert message.startswith(f"{path_of(steps)}: ")


def test_a_moment_is_the_whole_string() -> None:
    moments = [steps for steps in places(FULL) if rule_of(steps).get("format")]
    assert len(moments) == 4
    for steps in moments:
        for change in ("{}\n", "\n{}", "{}\u0000"):
            data = encoded(with_value(FULL, steps, change.format(MOMENT)))
            assert (complaint(data) or "").startswith(f"{path_of(steps)}: "), change
            assert complaint(data) == complaint_when_indexed(data)
        assert complaint(encoded(with_value(FULL, steps, MOMENT.replace("2025", "\u0662\u0660\u0662\u0665"))))


@pytest.mark.parametrize(
    ("name", "record"),
    [("entries", ENTRY), ("learnings", LEARNING), ("patterns", PATTERN)],
    ids=lambda one: str(one)[:9],
)
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_no_two_records_have_the_same_id(name: str, record: Document, version: str) -> None:
    other = record | {"id": re.sub("[0-9]+$", "9999", record["id"])}
    document = FULL | {"version": version, name: [record, other, record]}
    assert PRINTED.is_valid(document)
    data = encoded(document)
    assert (
        complaint(data)
        == complaint_when_indexed(data)
        == (f"{name}[2].id: {record['id']!r} already exists: ids must be unique")
    )


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2", "1.10", "1.99999999999999999999", "1." + "9" * 100_000])
def test_every_1_x_is_read(version: str) -> None:
    document = FULL | {"version": version}
    assert set(verdicts(document).values()) == {True}
    assert (complaint(encoded(document | {"new": 1})) is None) == (version != "1.0")


@pytest.mark.parametrize("version", ["2.0", "10.0", "11.1", "2.1", "100000000000000000000.0", "9" * 100_000 + ".9"])
@pytest.mark.parametrize("document", [FULL, later(FULL), {"entries": "elsewhere"}], ids=["same", "more", "otherwise"])
def test_a_newer_major_is_refused_whatever_else_it_holds(version: str, document: Document) -> None:
    data = encoded(document | {"version": version})
    expected = f"version {version[:20]} is newer than the 1.x that this ralphtool reads: upgrade ralphtool"
    assert complaint(data) == complaint_when_indexed(data) == expected


def test_what_is_absent_is_told_from_what_is_false() -> None:
    context = FULL["entries"][0]["context"]
    found = parse(encoded(FULL))
    assert found.entries[0].context
    assert found.entries[0].context.blocker_valid is False
    bare = with_value(FULL, ("entries", 0, "context"), {k: v for k, v in context.items() if k != "blocker_valid"})
    bare = without(bare, ("learnings", 0, "still_valid"))
    found = parse(encoded(bare))
    assert found.entries[0].context
    assert found.entries[0].context.blocker_valid is not False
    assert found.learnings[0].still_valid is True
