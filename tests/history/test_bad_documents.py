"""Bad documents of the history, read by the commands."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from history.documents import (
    ENTRY,
    FULL,
    NEW_IN_ENTRY,
    NEWER,
    PROGRESS,
    Steps,
    complaint,
    complaint_when_indexed,
    encoded,
    raw,
    without,
)
from project import Ralph, Result

DEEP = "[" * 100_000 + "]" * 100_000
DEEP_OBJECTS = '{"a":' * 100_000 + "1" + "}" * 100_000
SUMMARY: Steps = ("entries", 0, "summary")
DURATION: Steps = ("entries", 0, "duration_seconds")
NEW_AT_TOP: Steps = ("new_in_1.1",)
NEW_IN_OBSERVATION: Steps = ("entries", 0, "observations", 0, "new_in_1.1")
NEW_IN_LEARNING: Steps = ("learnings", 0, "new_in_1.1")
NEW = {"top": NEW_AT_TOP, "entry": NEW_IN_ENTRY, "observation": NEW_IN_OBSERVATION, "learning": NEW_IN_LEARNING}


NOT_UTF8 = '"caf\udce9"'  # becomes the single byte E9
NO_VERSION = without(FULL, ("version",))


# Each with a text that every command must print about it.
BAD: dict[str, tuple[bytes, str]] = {
    "a wrong type": (encoded(FULL | {"entries": {}}), "entries: an object is not an array"),
    "a wrong type inside": (raw("true", DURATION), "entries[0].duration_seconds: true is not an integer"),
    "a wrong word": (raw('"done"', ("entries", 0, "status")), "entries[0].status: 'done' is not one of "),
    "an unknown field": (encoded(FULL | {"extra": 1}), "extra: unknown field"),
    "two entries of one id": (encoded(FULL | {"entries": [ENTRY, ENTRY]}), "entries[1].id: 'auth-2-1' already exists"),
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
    "no version": (encoded(NO_VERSION), "version: this required field is missing"),
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
    if name == "a link to a document":  # a link may be validated, wherever it leads
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
