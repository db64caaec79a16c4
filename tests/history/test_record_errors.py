"""Error messages about invalid records in progress.json."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from history.documents import (
    ENTRY,
    FULL,
    LEARNING,
    SEED,
    Document,
    Steps,
    at,
    complaint,
    complaint_when_indexed,
    encoded,
    path_of,
    places,
    rule_of,
    with_value,
    without,
)

from ralphtool.core import session

# The last of four entries is wrong: the error must have the right number.
FOUR = FULL | {"entries": [copy.deepcopy(ENTRY) | {"id": f"auth-2-{n}", "iteration": n} for n in (1, 2, 3, 4)]}
LAST: Steps = ("entries", 3)
IN_LAST = [steps for steps in places(FOUR) if steps[:2] == LAST or steps[:1] != ("entries",) or len(steps) == 1]


def told(document: Any) -> str:
    """The code's message for a document, the same in both ways of reading it."""
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
        head, _, allowed = told(document).partition(": unknown field; the fields are ")
        assert head == f"{path_of(steps)}.{shown}".lstrip(".")
        assert listed(allowed) == set(rule_of(steps)["properties"])


REQUIRED = [
    one for one in IN_LAST if one and isinstance(one[-1], str) and one[-1] in rule_of(one[:-1]).get("required", ())
]


@pytest.mark.parametrize("steps", REQUIRED, ids=path_of)
def test_a_missing_field_is_told(steps: Steps) -> None:
    assert told(without(FOUR, steps)) == f"{path_of(steps)}: this required field is missing"


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
    """The decoding library puts names into its messages, followed by the path."""
    for steps, record in (((), FOUR), (LAST, FOUR["entries"][3]), (("learnings", 0), LEARNING)):
        message = told(with_value(FOUR, steps, record | {name: 1}))
        where = path_of(steps)
        assert message.startswith(f"{where}{'.' if where else ''}{name!r}: unknown field")


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
