"""Documents of the history with a value in every place, and the validators.

`seed_progress_schema.json` is the published schema of version 1.0, unchanged."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.validators import extend
from project import DATA
from rfc3339_validator import validate_rfc3339  # type: ignore[import-untyped]

from ralphtool.history.catalog import Catalog
from ralphtool.history.document import InvalidDocument, parse

Document = dict[str, Any]
Steps = tuple[str | int, ...]


# The same examples every time: a build that fails must fail again during debugging.
OURS = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


SEED: Document = json.loads((DATA / "seed_progress_schema.json").read_text())
MOMENT = "2025-01-15T10:30:00Z"


# Every field, each with an allowed value.
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
    """The path to every value in a document; the document itself comes first."""
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
    """The seed's rule for a place."""
    rule = SEED
    for step in steps:
        rule = rule["items"] if isinstance(step, int) else rule["properties"][step]
        rule = SEED["$defs"][rule["$ref"].rpartition("/")[2]] if "$ref" in rule else rule
    return rule


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def raw(text: str, steps: Steps, document: Document = FULL) -> bytes:
    """The document with a raw text in one place, which no JSON library would write there."""
    return encoded(with_value(document, steps, "@@@")).replace(b'"@@@"', text.encode("utf-8", "surrogateescape"))


# --- validators -------------------------------------------------------------------------------------


_FORMATS = FormatChecker(())
# A whole float is not an integer here, as SPEC says; for JSON Schema it is one.
_STRICT = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda checker, value: type(value) is int),
)


@_FORMATS.checks("date-time")
def _is_moment(value: object) -> bool:
    """Like jsonschema's own checker (RFC 3339 allows t and z), but without a newline at the end, which that allows."""
    return not isinstance(value, str) or (validate_rfc3339(value.upper()) and not value.endswith("\n"))


THEIRS = _STRICT(SEED, format_checker=_FORMATS)


def complaint(data: bytes) -> str | None:
    """The code's error for a document that is read as a whole."""
    try:
        parse(data)
    except InvalidDocument as error:
        return str(error)
    return None


def complaint_when_indexed(data: bytes) -> str | None:
    """Its error when the document is read record by record, as for queries and before writing."""
    catalog = Catalog.in_memory()
    try:
        catalog.fill(data)
    except InvalidDocument as error:
        return str(error)
    finally:
        catalog.close()
    return None


# --- random documents -------------------------------------------------------------------------------


@st.composite
def moments(draw: st.DrawFn) -> str:
    day = draw(st.datetimes()).strftime("%m-%dT%H:%M:%S")
    year = draw(st.sampled_from([4, 1904, 2000, 2024, 2400, 9996]))  # leap years, so that any day is valid
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

# --- other shared parts -----------------------------------------------------------------------------


def later(document: Document) -> Document:
    """The document as in a later version: with a new field in every object."""
    made = copy.deepcopy(document) | {"version": "1.1"}
    for steps in [steps for steps in places(document) if isinstance(at(document, steps), dict)]:
        at(made, steps).update({"new_in_1.1": {"deep": [1, None, {"id": "x"}]}, "tags": []})
    return made


PROGRESS = ".ralph/progress.json"
NEWER = later(FULL)
NEW_IN_ENTRY: Steps = ("entries", 0, "new_in_1.1")
