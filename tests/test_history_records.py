"""The records of the history: what may stand in progress.json, how it is told what may not, and what survives.

`seed_progress_schema.json` is the published schema of version 1.0, without its descriptions; ids of learnings and
patterns may have more than four digits. Whatever it accepts and refuses, our schema and our code do too.
"""

from __future__ import annotations

import copy
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Ralph, Result
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.validators import extend
from rfc3339_validator import validate_rfc3339  # type: ignore[import-untyped]

from ralphtool.core import session
from ralphtool.history import History
from ralphtool.history.catalog import Catalog
from ralphtool.history.document import Invalid, parse
from ralphtool.history.records import Entry, Learning, Pattern
from ralphtool.history.schema import schema

Document = dict[str, Any]
Steps = tuple[str | int, ...]

# The same examples every time: a build that fails must fail again when somebody looks into it.
OURS = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

SEED: Document = json.loads(Path(__file__).with_name("seed_progress_schema.json").read_text())
MOMENT = "2025-01-15T10:30:00Z"

# Every field there is, each with a value that is allowed.
FULL: Document = {
    "version": "1.0",
    "created_at": MOMENT,
    "project_name": "shop",
    "entries": [
        {
            "id": "auth-2-1",
            "timestamp": "2025-01-15T10:30:00.123456789+05:30",
            "prd_id": "auth-2",
            "iteration": 1,
            "status": "failed",
            "duration_seconds": 90,
            "summary": "no token",
            "observations": [
                {
                    "type": "blocker",
                    "title": "no token",
                    "description": "the server wants one",
                    "file": "auth.py",
                    "category": "bug",
                    "severity": "high",
                    "action_taken": "deferred",
                    "related_learning_id": "learning-0007",
                }
            ],
            "files_modified": ["auth.py"],
            "git_commits": ["a1b2c3"],
            "context": {
                "retry_count": 0,
                "previous_failure_reason": "none",
                "recovery_action": "retry",
                "recovery_guidance": "again",
                "dependencies_completed": ["auth-1"],
                "blocker_verified": True,
                "blocker_valid": False,
            },
        }
    ],
    "learnings": [
        {
            "id": "learning-0007",
            "type": "tool-usage",
            "content": "use the token",
            "context": "login",
            "source_prd_id": "auth-2",
            "source_entry_id": "auth-2-1",
            "created_at": MOMENT,
            "times_referenced": 3,
            "still_valid": True,
        }
    ],
    "patterns": [
        {
            "id": "pattern-0003",
            "name": "errors",
            "type": "error-handling",
            "description": "one tree",
            "examples": ["errors.py"],
            "discovered_at": MOMENT,
            "source_prd_id": "auth-2",
            "confidence": "medium",
        }
    ],
}
ENTRY, LEARNING, PATTERN = FULL["entries"][0], FULL["learnings"][0], FULL["patterns"][0]


# --- places in a document ---------------------------------------------------------------------------


def places(value: Any, steps: Steps = ()) -> Iterator[Steps]:
    """The way to every value in a document; the document itself comes first."""
    yield steps
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, one in inside:
        yield from places(one, (*steps, step))


def at(value: Any, steps: Steps) -> Any:
    for step in steps:
        value = value[step]
    return value


def with_value(document: Document, steps: Steps, value: Any) -> Any:
    if not steps:
        return value
    made = copy.deepcopy(document)
    at(made, steps[:-1])[steps[-1]] = value
    return made


def without(document: Document, steps: Steps) -> Document:
    made = copy.deepcopy(document)
    del at(made, steps[:-1])[steps[-1]]
    return made


def path_of(steps: Steps) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")


def rule_of(steps: Steps) -> Document:
    """What the seed says about a place."""
    rule = SEED
    for step in steps:
        rule = rule["items"] if isinstance(step, int) else rule["properties"][step]
        rule = SEED["$defs"][rule["$ref"].rpartition("/")[2]] if "$ref" in rule else rule
    return rule


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def raw(text: str, steps: Steps, document: Document = FULL) -> bytes:
    """The document with a text in one place that no JSON library would write there."""
    return encoded(with_value(document, steps, "@@@")).replace(b'"@@@"', text.encode("utf-8", "surrogateescape"))


# --- who accepts what -------------------------------------------------------------------------------

_FORMATS = FormatChecker(())
# A whole float is no integer here, as SPEC says; for JSON Schema it is one.
_STRICT = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda checker, value: type(value) is int),
)


@_FORMATS.checks("date-time")
def _is_moment(value: object) -> bool:
    """As jsonschema's own checker has it (RFC 3339 allows t and z), but for the newline that it allows at the end."""
    return not isinstance(value, str) or (validate_rfc3339(value.upper()) and not value.endswith("\n"))


THEIRS = _STRICT(SEED, format_checker=_FORMATS)
PRINTED = _STRICT(schema(), format_checker=_FORMATS)


def complaint(data: bytes) -> str | None:
    """What the code says about a document that is read whole."""
    try:
        parse(data)
    except Invalid as error:
        return str(error)
    return None


def complaint_when_indexed(data: bytes) -> str | None:
    """What it says when the document is read record by record, as for questions and before writing."""
    catalog = Catalog.in_memory()
    try:
        catalog.fill(data)
    except Invalid as error:
        return str(error)
    finally:
        catalog.close()
    return None


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


# Allowed in some places, and wrong in most. No whole floats, foreign digits, newlines or newer versions: those are
# where the code is meant to differ.
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
    """What is worth trying in a place: one text is like another where any will do."""
    rule = rule_of(steps)
    more = {"enum": WORDS, "pattern": IDS, "format": MOMENTS}
    return [*VALUES, *(value for name, values in more.items() if name in rule for value in values)]


def mutations(document: Document) -> Iterator[tuple[str, Any]]:
    """Every way to change a document in one place that we know of."""
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


# --- documents made at random -----------------------------------------------------------------------


@st.composite
def moments(draw: st.DrawFn) -> str:
    day = draw(st.datetimes()).strftime("%m-%dT%H:%M:%S")
    year = draw(st.sampled_from([4, 1904, 2000, 2024, 2400, 9996]))  # leap years, so that any day will do
    fraction = draw(st.sampled_from(["", ".5", ".123456789", ".000"]))
    zone = draw(st.sampled_from(["Z", "+00:00", "-00:00", "+05:30", "-23:59"]))
    return f"{year:04}-{day}{fraction}{zone}"


def values(rule: Document) -> st.SearchStrategy[Any]:
    """Everything that a part of the seed's schema allows; versions are 1.0, and ids are unique."""
    if "$ref" in rule:
        return values(SEED["$defs"][rule["$ref"].rpartition("/")[2]])
    if "enum" in rule:
        return st.sampled_from(rule["enum"])
    if "pattern" in rule:
        pattern = rule["pattern"].replace(r"\d", "[0-9]")
        return st.just("1.0") if "." in pattern else st.from_regex(pattern.replace("$", r"\Z"))
    if rule.get("format") == "date-time":
        return moments()
    if rule["type"] == "array":
        unique = (lambda one: one["id"]) if "id" in _properties(rule["items"]) else None
        return st.lists(values(rule["items"]), max_size=3, unique_by=unique)
    if rule["type"] == "object":
        return _objects(rule)
    return {
        "string": st.text(max_size=8),
        "boolean": st.booleans(),
        "integer": st.integers(min_value=rule.get("minimum", 0)),
    }[rule["type"]]


def _properties(rule: Document) -> Document:
    found: Document = SEED["$defs"][rule["$ref"].rpartition("/")[2]]["properties"] if "$ref" in rule else {}
    return found


def _objects(rule: Document) -> st.SearchStrategy[Document]:
    parts = {name: values(inside) for name, inside in rule["properties"].items()}
    required = {name: parts.pop(name) for name in rule.get("required", ())}
    return st.fixed_dictionaries(required, optional=parts)


documents = values(SEED)


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
    """What is shown with it is shown for every field."""
    objects = [steps for steps in places(FULL) if isinstance(at(FULL, steps), dict)]
    assert {path_of(steps): sorted(at(FULL, steps)) for steps in objects} == {
        path_of(steps): sorted(rule_of(steps)["properties"]) for steps in objects
    }
    assert len(objects) == 1 + len(SEED["$defs"])
    assert set(verdicts(FULL).values()) == {True}


def test_the_schema_is_a_valid_one_of_2020_12() -> None:
    assert schema()["$schema"] == SEED["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema()["$id"] == SEED["$id"]
    Draft202012Validator.check_schema(schema())
    Draft202012Validator.check_schema(SEED)


def test_the_command_prints_exactly_that_schema(ralph: Ralph) -> None:
    assert ralph.run("progress", "schema").stdout == json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
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
    ours = {path: _essence(rule) for path, rule in _rules(schema(), schema())}
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


@settings(OURS, max_examples=150)
@given(documents)
def test_whatever_the_seed_allows_is_accepted_by_the_schema_and_the_code(document: Document) -> None:
    assert set(verdicts(document).values()) == {True}


@settings(OURS, max_examples=300)
@given(mutated())
def test_the_seed_the_schema_and_the_code_agree_on_any_document(document: Any) -> None:
    event(f"accepted: {THEIRS.is_valid(document)}")
    assert disagreement(document) is None


def test_they_agree_on_every_change_of_every_field() -> None:
    told = {name: verdicts(document) for name, document in mutations(FULL)}
    assert {name: found for name, found in told.items() if len(set(found.values())) > 1} == {}
    accepted = sum(found["seed"] for found in told.values())
    assert accepted > 200  # so that both answers are shown to agree
    assert len(told) - accepted > 2000


def later(document: Document) -> Document:
    """The document as a later version would have it: with a new field in every object."""
    made = copy.deepcopy(document) | {"version": "1.1"}
    for steps in [steps for steps in places(document) if isinstance(at(document, steps), dict)]:
        at(made, steps).update({"new_in_1.1": {"deep": [1, None, {"id": "x"}]}, "tags": []})
    return made


def test_a_later_minor_is_held_to_all_that_is_known_of_it() -> None:
    """In the fields that we know, a document of version 1.1 is accepted and refused like one of version 1.0."""
    assert complaint(encoded(later(FULL))) is None
    odd = {}
    for name, document in mutations(FULL):
        if not isinstance(document, dict) or document.get("version") != "1.0":
            continue
        if " with " in name or "{'" in name:  # there a field is unknown, which is no fault here
            continue
        data = encoded(later(document))
        found = [complaint(data) is None, complaint_when_indexed(data) is None]
        if found != [THEIRS.is_valid(document)] * 2:
            odd[name] = found
    assert odd == {}


# --- where SPEC decides otherwise than the seed -----------------------------------------------------


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
        == (f"{name}[2].id: {record['id']!r} is there already: ids are unique")
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


# --- what an error says -----------------------------------------------------------------------------

# Of four entries the last is wrong, so that its number has to be right.
FOUR = FULL | {"entries": [copy.deepcopy(ENTRY) | {"id": f"auth-2-{n}", "iteration": n} for n in (1, 2, 3, 4)]}
LAST: Steps = ("entries", 3)
IN_LAST = [steps for steps in places(FOUR) if steps[:2] == LAST or steps[:1] != ("entries",) or len(steps) == 1]


def told(document: Any) -> str:
    """The one message that the code has for a document, however it reads it."""
    data = encoded(document)
    message = complaint(data)
    assert message == complaint_when_indexed(data)
    assert message is not None
    return message


def listed(text: str) -> set[str]:
    return set(text.split(", "))


def test_the_error_names_the_entry_the_observation_and_all_that_is_allowed() -> None:
    message = told(with_value(FOUR, (*LAST, "observations", 0, "category"), "bugs"))
    head, _, allowed = message.partition(" is not one of ")
    assert head == "entries[3].observations[0].category: 'bugs'"
    assert listed(allowed) == set(session.CATEGORIES)


@pytest.mark.parametrize("steps", [one for one in IN_LAST if "enum" in rule_of(one)], ids=path_of)
def test_a_wrong_word_is_told_with_the_right_ones(steps: Steps) -> None:
    for word in ("bogus", "", at(FOUR, steps).upper(), f"{at(FOUR, steps)} "):
        head, _, allowed = told(with_value(FOUR, steps, word)).partition(" is not one of ")
        assert head == f"{path_of(steps)}: {word!r}"
        assert listed(allowed) == set(rule_of(steps)["enum"])


@pytest.mark.parametrize("steps", [one for one in IN_LAST if isinstance(at(FOUR, one), dict)], ids=path_of)
def test_an_unknown_field_is_told_with_the_known_ones(steps: Steps) -> None:
    for name, shown in (("extra", "extra"), ("a b", "'a b'"), ("\x1b[2J", r"'\x1b[2J'"), ("", "''")):
        document = with_value(FOUR, steps, at(FOUR, steps) | {name: 1})
        head, _, allowed = told(document).partition(": there is no such field; the fields are ")
        assert head == f"{path_of(steps)}.{shown}".lstrip(".")
        assert listed(allowed) == set(rule_of(steps)["properties"])


REQUIRED = [
    one for one in IN_LAST if one and isinstance(one[-1], str) and one[-1] in rule_of(one[:-1]).get("required", ())
]


@pytest.mark.parametrize("steps", REQUIRED, ids=path_of)
def test_a_missing_field_is_told(steps: Steps) -> None:
    assert told(without(FOUR, steps)) == f"{path_of(steps)}: it is required, and missing"


def test_every_required_field_is_among_them() -> None:
    everywhere = [SEED, *SEED["$defs"].values()]
    assert len(REQUIRED) == sum(len(rule.get("required", ())) for rule in everywhere)


ARTICLES = {"string": "a", "integer": "an", "boolean": "a", "array": "an", "object": "an"}
OF_TYPE: dict[str, list[tuple[Any, str]]] = {
    "string": [("x", "'x'"), ("y" * 1000, "'yyy")],
    "integer": [(5, "5"), (10**30, str(10**30))],
    "boolean": [(True, "true"), (False, "false")],
    "array": [([], "an array"), ([1, 2], "an array")],
    "object": [({}, "an object"), ({"x": 1}, "an object")],
    "null": [(None, "null")],
    "number": [(1.5, "1.5"), (-1.5, "-1.5")],
}


@pytest.mark.parametrize("data", [b"[]", b"5", b'"x"', b"null", b"true", b"1.5"])
def test_a_document_that_is_no_object_is_told(data: bytes) -> None:
    for message in (complaint(data), complaint_when_indexed(data)):
        assert message
        assert re.fullmatch("the document: .+ is not an object", message)


@pytest.mark.parametrize("steps", IN_LAST[1:], ids=path_of)
def test_a_wrong_type_is_told_with_the_right_one(steps: Steps) -> None:
    wanted = rule_of(steps)["type"]
    for kind, examples in OF_TYPE.items():
        for value, shown in examples if kind != wanted else ():
            message = told(with_value(FOUR, steps, value))
            assert message.startswith(f"{path_of(steps)}: {shown}")
            assert message.endswith(f" is not {ARTICLES[wanted]} {wanted}")
            assert len(message) < 200


@pytest.mark.parametrize("steps", [one for one in IN_LAST if "pattern" in rule_of(one)], ids=path_of)
def test_a_wrong_id_is_told_with_its_pattern(steps: Steps) -> None:
    pattern = rule_of(steps)["pattern"].replace(r"\d", "[0-9]")
    for id in ("", "x", "Ä-1", "learning_1", "1", f"{at(FOUR, steps)} "):
        assert told(with_value(FOUR, steps, id)) == f"{path_of(steps)}: {id!a} does not match {pattern}"


WRONG_MOMENTS = [
    *("", "x", "2025-02-30T00:00:00Z", "2025-01-15T10:30:00", "2025-01-15", "0000-01-01T00:00:00Z"),
    *("2025-01-15t10:30:00", "2025-01-15 10:30:00Z", "2025-01-15T10:30:00+0100", "2025-01-15T24:00:00Z"),
]


@pytest.mark.parametrize("steps", [one for one in IN_LAST if rule_of(one).get("format")], ids=path_of)
def test_a_wrong_moment_is_told_with_an_example(steps: Steps) -> None:
    for moment in WRONG_MOMENTS:
        expected = f"{moment!r} is not a date and time with its zone, as in 2026-01-31T09:30:00Z"
        assert told(with_value(FOUR, steps, moment)) == f"{path_of(steps)}: {expected}"


@pytest.mark.parametrize("steps", [one for one in IN_LAST if "minimum" in rule_of(one)], ids=path_of)
def test_a_number_that_is_too_small_is_told_with_the_smallest(steps: Steps) -> None:
    least = rule_of(steps)["minimum"]
    for number in (least - 1, -(2**63), -(10**30)):
        assert told(with_value(FOUR, steps, number)) == f"{path_of(steps)}: {number} is less than {least}"


HOSTILE = ["x - at `$.entries", "x - at `$.entries[0].id`", "x - at `$`", "`", "$.version", "[0]"]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_leads_the_error_to_another_field(name: str) -> None:
    """The library that decodes puts names into its messages, and the path behind them."""
    for steps, record in (((), FOUR), (LAST, FOUR["entries"][3]), (("learnings", 0), LEARNING)):
        message = told(with_value(FOUR, steps, record | {name: 1}))
        where = path_of(steps)
        assert message.startswith(f"{where}{'.' if where else ''}{name!r}: there is no such field")


@pytest.mark.parametrize("word", HOSTILE)
def test_no_value_leads_the_error_to_another_field(word: str) -> None:
    for steps in ((*LAST, "status"), (*LAST, "id"), ("version",), ("learnings", 0, "created_at")):
        assert told(with_value(FOUR, steps, word)).startswith(f"{path_of(steps)}: {word!r} ")


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(FULL | {"y" * 1_000_000: 1}, id="name"),
        pytest.param(FULL | {"version": "y" * 1_000_000}, id="version"),
        pytest.param(with_value(FULL, ("entries", 0, "status"), "y" * 1_000_000), id="enum"),
        pytest.param(with_value(FULL, ("entries", 0, "iteration"), "y" * 1_000_000), id="type"),
        pytest.param(with_value(FULL, ("entries", 0, "iteration"), -(10**4000)), id="minimum"),
        pytest.param(FULL | {"entries": [ENTRY | {"id": "y" * 1_000_000 + "-1"}] * 2}, id="twice"),
    ],
)
def test_an_error_stays_short_however_long_the_value_is(document: Document) -> None:
    assert len(told(document)) < 400


def test_a_field_that_stands_twice_in_a_record_is_told_by_its_own_path() -> None:
    data = encoded(FOUR).replace(b'"status": "failed"', b'"status": "bogus", "status": "failed"')
    for message in (complaint(data), complaint_when_indexed(data)):
        assert message
        assert message.startswith("entries[0].status: ")
        assert "bogus" in message


# --- bad documents, met by the commands -------------------------------------------------------------

PROGRESS = ".ralph/progress.json"
DEEP = "[" * 100_000 + "]" * 100_000
DEEP_OBJECTS = '{"a":' * 100_000 + "1" + "}" * 100_000
NEWER = later(FULL)
SUMMARY: Steps = ("entries", 0, "summary")
DURATION: Steps = ("entries", 0, "duration_seconds")
NEW_AT_TOP: Steps = ("new_in_1.1",)
NEW_IN_ENTRY: Steps = ("entries", 0, "new_in_1.1")
NEW_IN_OBSERVATION: Steps = ("entries", 0, "observations", 0, "new_in_1.1")
NEW_IN_LEARNING: Steps = ("learnings", 0, "new_in_1.1")
NEW = {"top": NEW_AT_TOP, "entry": NEW_IN_ENTRY, "observation": NEW_IN_OBSERVATION, "learning": NEW_IN_LEARNING}

NOT_UTF8 = '"caf\udce9"'  # which becomes the byte E9 alone
NO_VERSION = without(FULL, ("version",))

# Each with words that every command has to say about it.
BAD: dict[str, tuple[bytes, str]] = {
    "a wrong type": (encoded(FULL | {"entries": {}}), "entries: an object is not an array"),
    "a wrong type inside": (raw("true", DURATION), "entries[0].duration_seconds: true is not an integer"),
    "a wrong word": (raw('"done"', ("entries", 0, "status")), "entries[0].status: 'done' is not one of "),
    "an unknown field": (encoded(FULL | {"extra": 1}), "extra: there is no such field"),
    "two entries of one id": (encoded(FULL | {"entries": [ENTRY, ENTRY]}), "entries[1].id: 'auth-2-1' is there"),
    "a date without a zone": (raw('"2025-01-15T10:30:00"', ("created_at",)), "created_at: '2025-01-15T10:30:00' is"),
    "NaN": (raw("NaN", DURATION), "not JSON"),
    "Infinity": (raw("-Infinity", DURATION), "not JSON"),
    "NaN in a new field": (raw("NaN", NEW_IN_ENTRY, NEWER), "not JSON"),
    "a number beyond all": (raw("1e400", DURATION), "entries[0].duration_seconds: "),
    "an integer of 5000 digits": (raw("1" * 5000, DURATION), "entries[0].duration_seconds: "),
    "a byte order mark": (b"\xef\xbb\xbf" + encoded(FULL), "byte order mark"),
    "UTF-16": (json.dumps(FULL).encode("utf-16"), "not UTF-8"),
    "truncated": (encoded(FULL)[:-1], "truncated"),
    "truncated within a record": (encoded(FULL)[:400], "truncated"),
    "two documents": (encoded(FULL) + b"\n" + encoded(FULL), "trailing characters"),
    "a merge gone wrong": (b"<<<<<<< HEAD\n" + encoded(FULL), "not JSON"),
    "nothing": (b"", "it is empty"),
    "nothing but blanks": (b" \r\n\t", "it is empty"),
    "zeros": (bytes(4096), "not JSON"),
    "a list": (b"[]", "is not an object"),
    "null": (b"null", "is not an object"),
    "not UTF-8": (raw(NOT_UTF8, SUMMARY), "not UTF-8"),
    "not UTF-8 in a list": (raw(NOT_UTF8, ("patterns", 0, "examples", 0)), "not UTF-8"),
    "not UTF-8 at the top": (raw(NOT_UTF8, ("project_name",)), "not UTF-8"),
    "half a surrogate pair": (raw(r'"\ud800"', SUMMARY), "not JSON"),
    "half a surrogate pair in a new field": (raw(r'"\ud800"', NEW_IN_LEARNING, NEWER), "not JSON"),
    "a surrogate as bytes": (encoded(FULL).replace(b"no token", b"\xed\xa0\x80", 1), "not UTF-8"),
    "a raw newline in a string": (raw('"a\nb"', SUMMARY), "not JSON"),
    "a comma too many": (raw("1,", DURATION), "not JSON"),
    "a comment": (raw("1 // one", DURATION), "not JSON"),
    "no version": (encoded(NO_VERSION), "version: it is required, and missing"),
    "version null": (encoded(FULL | {"version": None}), "version: null is not a string"),
    "version 2.0": (encoded(NEWER | {"version": "2.0"}), "version 2.0 is newer than the 1.x"),
    "version 10.0": (encoded(FULL | {"version": "10.0"}), "version 10.0 is newer than the 1.x"),
    "version abc": (encoded(FULL | {"version": "abc"}), "version: 'abc' does not match"),
    "version of many digits": (encoded(FULL | {"version": "9" * 1_000_000 + ".0"}), "is newer than the 1.x"),
    "version of many letters": (encoded(FULL | {"version": "v" * 1_000_000}), "version: 'vvv"),
    "version twice": (encoded(FULL)[:-1] + b', "version": "1.0"}', "twice"),
    "entries twice": (encoded(FULL)[:-1] + b', "entries": []}', "twice"),
    "a new field twice": (encoded(NEWER)[:-1] + b', "tags": []}', "twice"),
    "nested deeply": (b'{"version": ' + DEEP.encode() + b"}", "nested too deeply"),
    "nested deeply, and not closed": (b'{"entries": ' + b"[" * 100_000, "nested too deeply"),
    "objects nested deeply": (DEEP_OBJECTS.encode(), "nested too deeply"),
    **{f"depth in a new field ({name})": (raw(DEEP, one, NEWER), "nested too deeply") for name, one in NEW.items()},
    **{f"not UTF-8 in a new field ({name})": (raw(NOT_UTF8, one, NEWER), "not UTF-8") for name, one in NEW.items()},
}

COMMANDS = (("show",), ("learnings", "invalidate", "learning-0007", "--why", "it is gone"), ("validate", PROGRESS))


def check_refused(result: Result, words: str, code: str) -> None:
    assert result.exit_code == 1, result.stderr
    assert result.stdout == ""
    error = result.stderr
    if error.startswith("{"):
        assert result.code == code
        error = f"Error: {result.error['error']}\n"
    assert re.fullmatch(r"Error: [^\n]*\n", error)
    assert "progress.json" in error
    assert words in error
    assert "bug" not in error
    assert len(error) < 1000


@pytest.mark.parametrize("name", BAD)
def test_a_bad_document_is_one_clear_error_and_stays_as_it_was(ralph: Ralph, name: str) -> None:
    data, words = BAD[name]
    ralph.write(PROGRESS, data)
    before = ralph.snapshot()
    for number, command in enumerate(COMMANDS):
        as_json = ("--json",) if number == 0 else ()
        check_refused(ralph.run("progress", *command, *as_json), words, "CORRUPT_STATE")
        assert ralph.snapshot() == before


def test_where_the_text_is_no_utf8_is_told_by_its_place_in_the_file() -> None:
    for document, steps in ((FULL, SUMMARY), (NEWER, SUMMARY), (NEWER, NEW_IN_ENTRY), (NEWER, NEW_AT_TOP)):
        data = raw(NOT_UTF8, steps, document)
        assert complaint(data) == complaint_when_indexed(data) == f"it is not UTF-8 (byte {data.index(0xE9)})"


def _link(path: Path) -> None:
    path.with_name("other.json").write_bytes(encoded(FULL))
    path.symlink_to("other.json")


NO_FILES: dict[str, Callable[[Path], object]] = {
    "a folder": lambda path: path.mkdir(),
    "a pipe": lambda path: os.mkfifo(path),
    "a link to a document": _link,
    "a link to nowhere": lambda path: path.symlink_to("nowhere.json"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("name", NO_FILES)
def test_what_is_no_plain_file_is_refused_in_its_place(ralph: Ralph, name: str) -> None:
    path = ralph.write(PROGRESS, "")
    path.unlink()
    NO_FILES[name](path)
    before = ralph.snapshot()
    for command in COMMANDS[:2]:
        check_refused(ralph.run("progress", *command, "--json"), "link or a special file", "UNSAFE_PATH")
        assert ralph.snapshot() == before
    if name == "a link to a document":  # which may be validated wherever it lies
        assert ralph.run("progress", *COMMANDS[2], "--json").json["valid"] is True
    else:
        check_refused(ralph.run("progress", *COMMANDS[2], "--json"), "", "IO_ERROR")
    assert ralph.snapshot() == before


def test_a_file_that_is_not_there_can_not_be_validated_and_is_an_empty_history(ralph: Ralph) -> None:
    check_refused(ralph.run("progress", *COMMANDS[2]), "No such file", "IO_ERROR")
    assert ralph.run("progress", "show", "--json").json["entries"] == 0
    assert ralph.snapshot() == {}


def test_a_good_document_is_valid_and_left_alone(ralph: Ralph) -> None:
    for document in (FULL, NEWER):
        ralph.write("old.json", json.dumps(document, indent="\t").replace("\n", "\r\n"))
        before = ralph.snapshot()
        expected = {"valid": True, "version": document["version"], "entries": 1, "learnings": 1, "patterns": 1}
        assert ralph.run("progress", "validate", "old.json", "--json").json == expected
        assert ralph.run("progress", "validate", "old.json").stdout == (
            f"old.json is valid: version {document['version']}, 1 entries, 1 learnings, 1 patterns\n"
        )
        assert ralph.snapshot() == before


def test_two_hundred_megabytes_are_read_and_a_fault_at_their_end_is_told(ralph: Ralph) -> None:
    entry = json.dumps(ENTRY | {"summary": "the token is read from a header, and the cache keeps it; " * 16})
    count = 200_000_000 // len(entry) + 1
    path = ralph.write(PROGRESS, "")
    with path.open("w") as file:
        file.write('{"version": "1.0", "created_at": "2025-01-15T10:30:00Z", "learnings": [], "entries": [\n')
        file.writelines(f"{entry.replace('auth-2', f'p-{n}')},\n" for n in range(1, count))
        file.write(f"{entry}]}}\n")
    size = path.stat().st_size
    assert size >= 200_000_000
    assert ralph.run("progress", "validate", PROGRESS, "--json").json["entries"] == count
    shown = ralph.run("progress", "entries", "--last", "1", "--json").json["entries"]
    assert [one["id"] for one in shown] == [ENTRY["id"]]
    os.truncate(path, size - 3)
    for command in (COMMANDS[0], COMMANDS[2]):
        check_refused(ralph.run("progress", *command), "truncated", "CORRUPT_STATE")
    assert path.stat().st_size == size - 3


# --- what a later version, or another program, has written ------------------------------------------

# Texts that no library writes again as they are.
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


BIG = {"project_name": "x" * 1_500_000}  # so big that a journal is kept
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
    """A project with a document of somebody else's in it; each step is looked at with all that stood there before."""

    def __init__(self, root: Path, data: bytes) -> None:
        self.path = root / PROGRESS
        self.path.parent.mkdir()
        self.path.write_bytes(data)
        self.root = str(root)
        self.history = History(self.root)

    def data(self) -> bytes:
        """The document when all is folded; until then it is what an export says."""
        exported = self.history.export()
        self.history.fold()
        data = self.path.read_bytes()
        assert data == exported
        return data

    def adds(self, step: Callable[[History], object], name: str) -> Document:
        """Does what puts one record behind the others of a list, and nothing else; tells the record."""
        old = self.path.read_bytes()
        step(self.history)
        new = self.data()
        assert is_insertion(old, new)
        values, expected = exactly(new), exactly(old)
        expected.setdefault(name, []).append(values[name][-1])
        assert values == expected  # numbers as they are written
        self.check()
        return dict(json.loads(new)[name][-1])

    def check(self) -> None:
        """Whoever comes later reads what we know by now, and the document is valid."""
        found = parse(self.path.read_bytes())
        assert found == self.history.load() == History(self.root).load()
        assert list(found.entries) == self.history.entries() == History(self.root).entries()
        assert list(found.learnings) == self.history.learnings(valid_only=False)
        if found.version == "1.0":
            assert THEIRS.is_valid(json.loads(self.path.read_bytes()))


def exactly(data: bytes) -> Document:
    """The document with its numbers as they are written. The order of fields counts for nothing here."""
    found: Document = json.loads(data, parse_int=str, parse_float=str)
    return found


def is_insertion(old: bytes, new: bytes) -> bool:
    """Whether something was put in at one place and every old byte is there; blanks in an empty list don't count."""
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
    """Ids have four digits or more, with no most."""
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
    """A document as text, with blanks wherever JSON allows them."""
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


@settings(OURS, max_examples=60)
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
