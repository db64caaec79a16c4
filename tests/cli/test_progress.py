"""`ralphtool progress …` as people and programs call it, and what a flush adds to the history."""

from __future__ import annotations

import copy
import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import termios
from pathlib import Path
from typing import Any

import click
import pytest
from faults import Race
from patience import PATIENCE
from project import COMMAND, Ralph, Result

from ralphtool.cli.progress import migrate_command, progress
from ralphtool.history import journal, schema

Fields = dict[str, Any]

# --- a history --------------------------------------------------------------------------------------


def entry(prd_id: str, number: int, status: str, *observations: Fields, **more: object) -> Fields:
    """As it is printed: with every list, and without absent fields."""
    made = {"id": f"{prd_id}-{number}", "timestamp": f"2026-01-{number:02}T10:00:00Z", "prd_id": prd_id}
    lists = {"observations": list(observations), "files_modified": [], "git_commits": []}
    return {**made, "iteration": number, "status": status, **more, **lists}


def learning(number: int, kind: str, content: str, source: str, **more: object) -> Fields:
    moment = {"source_prd_id": source, "created_at": "2026-01-01T10:00:00Z"}
    base = {"id": f"learning-{number:04}", "type": kind, "content": content, **moment}
    return base | {"times_referenced": 0, "still_valid": True} | more


def pattern(number: int, kind: str, name: str, source: str, **more: object) -> Fields:
    base = {"id": f"pattern-{number:04}", "name": name, "type": kind, "examples": []}
    return base | {"discovered_at": "2026-01-01T10:00:00Z", "source_prd_id": source} | more


SLOW = {"type": "finding", "title": "Slow", "category": "tooling-friction", "severity": "high", "action_taken": "none"}
NO_KEY = {"type": "blocker", "title": "No key", "description": "the shop wants one", "category": "dependency"}
DOWN = {"type": "blocker", "title": "Shop is down"}
ENTRIES = [
    entry("login-1", 1, "failed", SLOW, NO_KEY, duration_seconds=59, summary="the build broke"),
    entry("login-1", 2, "completed", duration_seconds=3700, summary="it works"),
    entry("login-2", 1, "blocked", DOWN, SLOW, summary="waits for the shop"),
    entry("search-1", 1, "partial"),
]
LEARNINGS = [
    learning(1, "tool-usage", "ruff knows best", "login-1", context="when linting", times_referenced=2),
    learning(2, "error-workaround", "start it twice", "login-2"),
    learning(3, "build-command", "make all", "login-1", still_valid=False),
]
PATTERNS = [
    pattern(1, "error-handling", "Errors", "login-1", description="one tree", confidence="high"),
    pattern(2, "file-structure", "Folders", "login-2"),
]
HISTORY: Fields = {
    "version": "1.0",
    "created_at": "2026-01-01T00:00:00Z",
    "project_name": "shop",
    "entries": ENTRIES,
    "learnings": LEARNINGS,
    "patterns": PATTERNS,
}


def keep(ralph: Ralph, history: Fields) -> Ralph:
    ralph.write(".ralph/progress.json", json.dumps(history, indent=2) + "\n")
    return ralph


def kept(ralph: Ralph, root: Path | None = None) -> Any:
    return json.loads(((root or ralph.root) / ".ralph/progress.json").read_text())


@pytest.fixture
def past(ralph: Ralph) -> Ralph:
    """A project with a history."""
    return keep(ralph, HISTORY)


def in_journal(*batches: Fields) -> bytes:
    lines = (journal.encode_line(json.dumps(batch).encode()) for batch in batches)
    return journal.build_head() + b"".join(lines)


DAMAGED = b'00000000 {"entries":[]}\n'
NEWER = entry("login-1", 3, "completed", summary="and again")


def cells(result: Result) -> list[list[str]]:
    """The lines of an answer, each as a list of its cells; empty cells are dropped."""
    assert (result.exit_code, result.stderr) == (0, "")
    return [re.split(r" {2,}", line.strip()) for line in result.stdout.splitlines() if line]


# --- as JSON ----------------------------------------------------------------------------------------


def tally(prd_id: str, attempts: int, rate: float, **ends: int) -> Fields:
    none = {"completed": 0, "failed": 0, "blocked": 0, "partial": 0}
    return {"prd_id": prd_id, "attempts": attempts, **none, **ends, "success_rate": rate}


def of_entry(found: Fields, *observations: Fields) -> list[Fields]:
    return [{"entry_id": found["id"], **one} for one in observations]


SUMMARY = {
    "entries": 4,
    "learnings": 3,
    "patterns": 2,
    "valid_learnings": 2,
    "success_rate": 0.25,
    "prds": [
        tally("login-1", 2, 0.5, completed=1, failed=1),
        tally("login-2", 1, 0.0, blocked=1),
        tally("search-1", 1, 0.0, partial=1),
    ],
    "failures": {"tooling-friction": 2, "dependency": 1},
    "last": ENTRIES,
}
OBSERVED = [*of_entry(ENTRIES[0], SLOW, NO_KEY), *of_entry(ENTRIES[2], DOWN, SLOW)]
BLOCKERS = [OBSERVED[1], OBSERVED[2]]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("show", SUMMARY),
        ("entries", {"entries": ENTRIES}),
        ("entries --last 2", {"entries": ENTRIES[2:]}),
        ("entries --last 99", {"entries": ENTRIES}),
        ("entries --prd login-1", {"entries": ENTRIES[:2]}),
        ("entries --prd login-1 --last 1", {"entries": ENTRIES[1:2]}),
        ("entries --prd login", {"entries": []}),
        ("observations", {"observations": OBSERVED}),
        ("observations --last 2", {"observations": OBSERVED[2:]}),
        ("observations --prd login-1", {"observations": OBSERVED[:2]}),
        ("blockers", {"blockers": BLOCKERS}),
        ("blockers --prd login-2", {"blockers": BLOCKERS[1:]}),
        ("blockers --prd search-1", {"blockers": []}),
        ("learnings", {"learnings": LEARNINGS[:2]}),
        ("learnings --all", {"learnings": LEARNINGS}),
        ("learnings --type error-workaround", {"learnings": LEARNINGS[1:2]}),
        ("learnings --type build-command", {"learnings": []}),
        ("learnings --type build-command --all", {"learnings": LEARNINGS[2:]}),
        ("learnings --prd login-1", {"learnings": LEARNINGS[:1]}),
        ("patterns", {"patterns": PATTERNS}),
        ("patterns --type file-structure", {"patterns": PATTERNS[1:]}),
        ("patterns --prd login-1", {"patterns": PATTERNS[:1]}),
        ("learnings --last 1", {"learnings": LEARNINGS[1:2]}),
        ("patterns --last 1", {"patterns": PATTERNS[1:]}),
        ("blockers --last 2", {"blockers": BLOCKERS[1:]}),
        ("failures", {"failures": SUMMARY["failures"]}),
        ("failures --last 2", {"failures": {"tooling-friction": 1}}),
        ("failures --prd login-1", {"failures": {"dependency": 1, "tooling-friction": 1}}),
        ("attempts login-1", {"prd_id": "login-1", "attempts": 2, "last": ENTRIES[1], "next_iteration": 3}),
        ("attempts nobody", {"prd_id": "nobody", "attempts": 0, "last": None, "next_iteration": 1}),
    ],
)
def test_a_program_gets_exactly_the_records(past: Ralph, command: str, expected: Fields) -> None:
    before = past.snapshot()
    assert past.run("progress", *command.split(), "--json").json == expected
    assert past.snapshot() == before


# --- as tables --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            "entries --last 3",
            [
                ["ENTRY", "WHEN", "STATUS", "TOOK", "SUMMARY"],
                ["login-1-2", "2026-01-02 10:00", "completed", "1 h 02 min", "it works"],
                ["login-2-1", "2026-01-01 10:00", "blocked", "waits for the shop"],
                ["search-1-1", "2026-01-01 10:00", "partial"],
            ],
        ),
        (
            "observations --prd login-1",
            [
                ["ENTRY", "KIND", "WHAT"],
                ["login-1-1", "finding tooling-friction high none", "Slow"],
                ["login-1-1", "blocker dependency", "No key: the shop wants one"],
            ],
        ),
        (
            "blockers --prd login-2",
            [["ENTRY", "KIND", "WHAT"], ["login-2-1", "blocker", "Shop is down"]],
        ),
        ("blockers --prd search-1", [["There are no blockers."]]),
        (
            "learnings --all",
            [
                ["LEARNING", "TYPE", "FROM", "USED", "WHAT"],
                ["learning-0001", "tool-usage", "login-1", "2", "ruff knows best"],
                ["learning-0002", "error-workaround", "login-2", "0", "start it twice"],
                ["learning-0003 (invalid)", "build-command", "login-1", "0", "make all"],
            ],
        ),
        (
            "patterns --type error-handling",
            [
                ["PATTERN", "TYPE", "CONFIDENCE", "WHAT"],
                ["pattern-0001", "error-handling", "high", "Errors: one tree"],
            ],
        ),
        (
            "failures",
            [["CATEGORY", "TIMES"], ["tooling-friction", "2", "██████████"], ["dependency", "1", "█████░░░░░"]],
        ),
        (
            "attempts login-1",
            [
                ["ENTRY", "WHEN", "STATUS", "TOOK", "SUMMARY"],
                ["login-1-1", "2026-01-01 10:00", "failed", "59 s", "the build broke"],
                ["login-1-2", "2026-01-02 10:00", "completed", "1 h 02 min", "it works"],
            ],
        ),
        ("attempts nobody", [["nobody was never attempted."]]),
    ],
)
def test_people_get_a_table(past: Ralph, command: str, expected: list[list[str]]) -> None:
    assert cells(past.run("progress", *command.split())) == expected


def test_the_summary_has_counts_endings_rates_and_the_last_entries(past: Ralph) -> None:
    shown = cells(past.run("progress", "show"))
    head = " ".join(word for line in shown[:2] for word in line)
    for fact in ("4 entries", "3 stories", "25%", "2 valid learnings of 3", "2 patterns"):
        assert fact in head
    assert shown[2] == ["▁█▒▄", "█ completed", "▄ partial", "▁ failed", "▒ blocked"]
    assert shown[3:7] == [
        ["STORY", "ATTEMPTS", "COMPLETED", "PARTIAL", "FAILED", "BLOCKED", "SUCCESS"],
        ["login-1", "2", "1", "1", "█████░░░░░ 50%"],
        ["login-2", "1", "1", "░░░░░░░░░░ 0%"],
        ["search-1", "1", "1", "░░░░░░░░░░ 0%"],
    ]
    assert [line[0] for line in shown[7:]] == ["ENTRY", "login-1-1", "login-1-2", "login-2-1", "search-1-1"]


def test_a_long_history_is_shortened_for_people_and_says_so(ralph: Ralph) -> None:
    many = [entry("a-1", number, "failed", SLOW) for number in range(1, 29)]
    stories = [entry(f"b-{number}", 1, "completed") for number in range(1, 51)]
    keep(ralph, HISTORY | {"entries": many + stories})
    shown = ralph.run("progress", "entries", "--prd", "a-1").stdout
    assert shown.count("a-1-") == 20
    assert "8 earlier entries not shown: use --last N" in shown
    assert ralph.run("progress", "entries", "--last", "70").stdout.count("completed") == 50
    assert len(ralph.run("progress", "entries", "--json").json["entries"]) == 78
    summary = ralph.run("progress", "show").stdout
    assert f"{'▁' * 10}{'█' * 50}  " in summary, "the last 60 endings, oldest first"
    assert "the last 20 of 51 stories" in summary
    assert "b-31 " in summary
    assert "b-30 " not in summary


def test_without_a_terminal_nothing_is_cut_coloured_or_filled_up(ralph: Ralph) -> None:
    text = "word " * 2000 + "end"
    long = {"type": "finding", "title": text, "category": "bug"}
    records = {
        "entries": [entry("a" * 300, 1, "failed", long, summary=text)],
        "learnings": [learning(1, "tool-usage", text, "s" * 300)],
        "patterns": [pattern(1, "api-pattern", "Name", "a-1", description=text)],
    }
    keep(ralph, HISTORY | records)
    for command in ("show", "entries", "observations", "learnings", "patterns"):
        shown = ralph.run("progress", command, COLUMNS="40", TERM="xterm")
        assert text in shown.stdout, command
        assert "\x1b" not in shown.stdout
        assert "…" not in shown.stdout
        assert [line for line in shown.stdout.splitlines() if line != line.rstrip()] == []


def test_from_a_folder_further_down_it_is_the_same_history(past: Ralph) -> None:
    folder = past.root / "src/deep"
    folder.mkdir(parents=True)
    assert past.run("progress", "show", "--json", cwd=folder).json == SUMMARY


# --- terminals --------------------------------------------------------------------------------------


def in_a_terminal(ralph: Ralph, *arguments: str, columns: int = 80, **env: str) -> str:
    """What a command prints on a terminal of that width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [COMMAND, *arguments],
        cwd=ralph.root,
        env={**ralph.env, "TERM": "xterm", **env},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 1 << 16):
            shown += chunk
    except OSError:  # the other side is closed: everything has been read
        pass
    os.close(ours)
    told = process.communicate(timeout=PATIENCE)[1].decode()
    assert (process.returncode, told) == (0, "")
    return shown.decode().replace("\r\n", "\n")


def plain(shown: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", shown)


COMMANDS = ("show", "entries", "observations", "blockers", "learnings", "patterns", "failures")


def test_a_terminal_gets_colours_unless_they_are_unwanted(past: Ralph) -> None:
    assert "\x1b[31mfailed" in in_a_terminal(past, "progress", "entries")
    assert not re.search(r"\x1b\[[0-9;]*(3|4|9)[0-9]", in_a_terminal(past, "progress", "show", NO_COLOR="1"))
    assert "\x1b" not in in_a_terminal(past, "progress", "show", TERM="dumb")


@pytest.mark.parametrize("columns", [80, 24])
def test_tables_fit_the_terminal(ralph: Ralph, columns: int) -> None:
    text = "a summary that says a little more than fits into one line of eighty columns " * 3
    name = "add-user-authentication-with-oauth-2"
    seen = {"type": "blocker", "title": text, "category": "tooling-friction", "action_taken": "documented"}
    records = {
        "entries": [entry(name, 1, "failed", seen, summary=text, duration_seconds=7)],
        "learnings": [learning(1, "architecture-constraint", text, name)],
        "patterns": [pattern(1, "naming-convention", "Names", name, description=text, confidence="medium")],
    }
    keep(ralph, HISTORY | records)
    for command in COMMANDS:
        shown = plain(in_a_terminal(ralph, "progress", command, columns=columns))
        assert max(map(len, shown.splitlines())) <= columns, command


@pytest.mark.parametrize("command", ["entries", "observations", "learnings", "patterns"])
def test_what_was_said_has_room_in_eighty_columns(ralph: Ralph, command: str) -> None:
    """The last column is the one that people read: the names before it are shortened."""
    name = "add-user-authentication-with-oauth-2"
    seen = {"type": "completion", "title": "Said", "category": "tooling-friction", "severity": "critical"}
    records = {
        "entries": [entry(name, 1, "completed", {**seen, "action_taken": "documented"}, summary="said " * 40)],
        "learnings": [learning(1, "architecture-constraint", "said " * 40, name)],
        "patterns": [pattern(1, "naming-convention", "Names", name, description="said " * 40, confidence="medium")],
    }
    keep(ralph, HISTORY | records)
    head = plain(in_a_terminal(ralph, "progress", command)).splitlines()[0]
    last = "SUMMARY" if command == "entries" else "WHAT"
    assert last in head
    assert 80 - head.index(last) >= 20


def test_a_very_long_text_does_not_keep_a_terminal_waiting(ralph: Ralph) -> None:
    """An imported progress.txt is one single learning."""
    keep(ralph, HISTORY | {"learnings": [learning(0, "codebase-pattern", "prose only " * 100_000, "migration")]})
    shown = in_a_terminal(ralph, "progress", "learnings")
    assert "learning-0000" in shown
    assert "1100000 characters" in plain(shown).replace("\n", " ").replace("  ", "") or len(shown) < 5000


ASCII: Fields = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}


@pytest.mark.parametrize("command", ["show", "failures"])
def test_marks_are_plain_where_there_is_no_unicode(past: Ralph, command: str) -> None:
    shown = past.run("progress", command, **ASCII)
    assert shown.exit_code == 0
    assert shown.stdout.isascii()
    assert ("-#!+  # completed" if command == "show" else "#####.....") in shown.stdout


def test_a_terminal_without_unicode_gets_everything_all_the_same(ralph: Ralph) -> None:
    name = "n" * 100  # cut in eighty columns, so the mark for that is shown too
    keep(ralph, HISTORY | {"entries": [entry(name, 1, "failed", summary="naïve")]})
    assert "failed" in in_a_terminal(ralph, "progress", "show", **ASCII)


# --- hostile text -----------------------------------------------------------------------------------

RAW = "\x1b[2J\x1b]0;t\x07\u202e\u2066\u200f\x9b31m\x7f\x00"
HOSTILE = f"{RAW}\r\n- NEXT\n[red]b[/red] :smile:"


@pytest.fixture
def hostile(ralph: Ralph) -> Ralph:
    seen = {"type": "blocker", "title": HOSTILE, "description": HOSTILE, "file": HOSTILE, "category": "bug"}
    records = {
        "entries": [entry("x", 1, "failed", seen, summary=HOSTILE) | {"prd_id": HOSTILE}],
        "learnings": [learning(1, "tool-usage", HOSTILE, HOSTILE, context=HOSTILE)],
        "patterns": [pattern(1, "api-pattern", HOSTILE, HOSTILE, description=HOSTILE)],
    }
    return keep(ralph, HISTORY | records)


@pytest.mark.parametrize("command", COMMANDS)
def test_hostile_text_does_not_reach_the_terminal_raw(hostile: Ralph, command: str) -> None:
    shown = hostile.run("progress", command)
    for text in (shown.stdout, plain(in_a_terminal(hostile, "progress", command, columns=800))):
        assert not set(RAW) - set("[2J]0;t31m") & set(text)
        assert command == "failures" or "[red]b[/red] :smile:" in text
        assert not re.search("^ *- NEXT", text, re.MULTILINE), "one record can't forge the line of another"
    assert shown.exit_code == 0


@pytest.mark.parametrize("command", ["show", "learnings", "patterns"])
def test_hostile_text_in_json_is_escaped(hostile: Ralph, command: str) -> None:
    shown = hostile.run("progress", command, "--json")
    assert repr(HOSTILE)[1:-1] in repr(shown.json)
    assert not set(RAW) - set("[2J]0;t31m") & set(shown.stdout)


def test_hostile_arguments_are_escaped_too(hostile: Ralph) -> None:
    name = "\x1b[2J\u202e"
    hostile.write(name, json.dumps(HISTORY))
    for arguments in (["attempts", name], ["validate", name], ["validate", f"no{name}"], ["learnings", "--type", name]):
        told = hostile.run("progress", *arguments)
        assert not {"\x1b", "\u202e"} & set(told.stdout + told.stderr)


# --- without a history ------------------------------------------------------------------------------

NOTHING: Fields = dict.fromkeys(("entries", "learnings", "patterns", "valid_learnings"), 0)


@pytest.mark.parametrize(
    ("command", "told", "expected"),
    [
        ("show", "no history yet", NOTHING | {"success_rate": None, "prds": [], "failures": {}, "last": []}),
        ("entries", "no entries yet", {"entries": []}),
        ("observations", "There are no observations", {"observations": []}),
        ("blockers", "There are no blockers", {"blockers": []}),
        ("learnings", "Nothing has been learnt", {"learnings": []}),
        ("patterns", "No patterns", {"patterns": []}),
        ("failures", "Nothing was observed", {"failures": {}}),
        ("attempts a-1", "never", {"prd_id": "a-1", "attempts": 0, "last": None, "next_iteration": 1}),
    ],
)
def test_reading_makes_no_file_where_there_is_no_history(
    ralph: Ralph, command: str, told: str, expected: Fields
) -> None:
    assert told in ralph.run("progress", *command.split()).stdout
    assert ralph.run("progress", *command.split(), "--json").json == expected
    assert ralph.snapshot() == {}


def test_other_commands_make_no_file_where_there_is_no_history(ralph: Ralph) -> None:
    assert ralph.run("progress", "fold").exit_code == 0
    empty = ralph.run("progress", "export").json
    assert empty.pop("created_at").endswith("Z")
    assert empty == {"version": "1.0", "project_name": "project", "entries": [], "learnings": [], "patterns": []}
    assert ralph.run("migrate").exit_code == 0
    assert ralph.run("progress", "learnings", "invalidate", "learning-0001", "--why", "x").exit_code == 1
    assert ralph.snapshot() == {}


# --- the document and its journal -------------------------------------------------------------------


def test_what_is_in_the_journal_is_seen_exported_and_folded(past: Ralph) -> None:
    past.write(".ralph/progress.journal", in_journal({"entries": [NEWER]}))
    assert past.run("progress", "attempts", "login-1", "--json").json["last"] == NEWER
    exported = past.run("progress", "export").stdout
    assert json.loads(exported) == HISTORY | {"entries": [*ENTRIES, NEWER]}
    assert kept(past) == HISTORY, "asking folds nothing"
    assert "already" not in past.run("progress", "fold").stdout
    assert past.read(".ralph/progress.json") == exported
    assert not (past.root / ".ralph/progress.journal").exists()
    assert "already" in past.run("progress", "fold").stdout
    assert past.run("progress", "export").stdout == exported == past.read(".ralph/progress.json")


@pytest.mark.parametrize("command", ["show", "entries", "learnings", "attempts login-1"])
def test_a_damaged_record_is_told_beside_a_pure_answer(past: Ralph, command: str) -> None:
    past.write(".ralph/progress.journal", in_journal({"entries": [NEWER]}) + DAMAGED)
    told = past.run("progress", *command.split(), "--json")
    assert told.exit_code == 0
    assert json.loads(told.stdout)
    assert told.stderr.startswith("Warning: ")
    assert "checksum" in told.stderr
    assert len(told.stderr.splitlines()) == 1


def test_a_damaged_record_is_set_aside_by_the_next_write(past: Ralph) -> None:
    past.write(".ralph/progress.journal", in_journal({"entries": [NEWER]}) + DAMAGED)
    told = past.run("progress", "export")
    assert json.loads(told.stdout)["entries"][-1] == NEWER
    assert "checksum" in told.stderr
    folded = past.run("progress", "fold")
    assert str(past.root / ".ralph/progress.journal.damaged") in folded.stderr
    assert DAMAGED.decode() in past.read(".ralph/progress.journal.damaged")
    assert kept(past)["entries"][-1] == NEWER
    assert past.run("progress", "show", "--json").json["entries"] == 5


def test_an_entry_that_does_not_follow_is_told(past: Ralph) -> None:
    past.write(".ralph/progress.journal", in_journal({"entries": [entry("login-1", 9, "failed")]}))
    told = past.run("progress", "entries", "--json")
    assert json.loads(told.stdout) == {"entries": ENTRIES}
    assert "iteration 9 does not follow 2" in told.stderr


@pytest.mark.parametrize("command", ["show", "entries", "learnings", "attempts a-1", "export"])
def test_a_broken_document_is_one_clear_error(past: Ralph, command: str) -> None:
    past.write(".ralph/progress.json", json.dumps(HISTORY | {"entries": [ENTRIES[0] | {"status": "done"}]}))
    before = past.snapshot()
    told = past.run("progress", *command.split())
    assert (told.exit_code, told.stdout) == (1, "")
    assert "progress.json: entries[0].status: 'done' is not one of" in told.stderr
    if command != "export":
        assert past.run("progress", *command.split(), "--json").code == "CORRUPT_STATE"
    assert past.snapshot() == before


def test_validate_checks_any_file(past: Ralph) -> None:
    assert "is valid: version 1.0, 4 entries, 3 learnings, 2 patterns" in past.run(
        "progress", "validate", ".ralph/progress.json"
    ).stdout.replace("\n", " ")
    counts = {"entries": 4, "learnings": 3, "patterns": 2}
    found = past.run("progress", "validate", ".ralph/progress.json", "--json").json
    assert found == {"valid": True, "version": "1.0", **counts}
    broken = copy.deepcopy(HISTORY)
    broken["entries"][0]["observations"][0]["category"] = "bugs"
    past.write("elsewhere.json", json.dumps(broken))
    told = past.run("progress", "validate", "elsewhere.json")
    assert (told.exit_code, told.stdout) == (1, "")
    assert "elsewhere.json: entries[0].observations[0].category: 'bugs' is not one of bug, " in told.stderr.replace(
        "api-issue, architecture, ", ""
    )
    assert past.run("progress", "validate", "elsewhere.json", "--json").code == "CORRUPT_STATE"


@pytest.mark.parametrize("name", ["nowhere.json", "folder", "pipe"])
def test_what_is_no_file_can_not_be_validated(ralph: Ralph, name: str) -> None:
    (ralph.root / "folder").mkdir()
    os.mkfifo(ralph.root / "pipe")
    told = ralph.run("progress", "validate", name, "--json")
    assert told.code == "IO_ERROR"
    assert name in told.error["error"]


def test_schema_is_that_of_the_code(ralph: Ralph) -> None:
    shown = ralph.run("progress", "schema")
    assert shown.json == json.loads(json.dumps(schema.build_schema()))
    assert shown.json["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert shown.stdout.startswith("{\n  ")


def test_an_export_into_a_closed_pipe_is_no_crash(ralph: Ralph) -> None:
    keep(ralph, HISTORY | {"entries": [entry("a-1", number, "failed", summary="x" * 900) for number in range(1, 29)]})
    for command in ("export", "entries", "show --json"):
        script = f"{COMMAND} progress {command} | true; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(
            ["bash", "-c", script], cwd=ralph.root, env=ralph.env, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.stderr == ""
        assert done.stdout.strip() in ("0", "1")


# --- invalidating -----------------------------------------------------------------------------------


def invalidate(ralph: Ralph, id: str, why: str, *more: str) -> Result:
    return ralph.run("progress", "learnings", "invalidate", id, "--why", why, *more)


def test_an_invalidated_learning_is_kept_with_the_reason_and_not_shown(past: Ralph) -> None:
    assert invalidate(past, "learning-0001", "ruff\nis gone").stdout == "learning-0001 is no longer valid\n"
    expected = LEARNINGS[0] | {"still_valid": False, "context": "when linting\nruff\nis gone"}
    assert kept(past)["learnings"] == [expected, *LEARNINGS[1:]]
    assert past.run("progress", "learnings", "--json").json == {"learnings": LEARNINGS[1:2]}
    found = invalidate(past, "learning-0002", "once is enough", "--json").json
    assert found == LEARNINGS[1] | {"still_valid": False, "context": "once is enough"}
    assert past.run("progress", "learnings").stdout == "Nothing has been learnt yet.\n"


def test_invalidating_again_changes_nothing(past: Ralph) -> None:
    before = past.read(".ralph/progress.json")
    told = invalidate(past, "learning-0003", "again", "--json")
    assert told.json == LEARNINGS[2]
    assert past.read(".ralph/progress.json") == before


@pytest.mark.parametrize("id", ["learning-0099", "learning-1", "pattern-0001", "", "../x", "\x1b[2J"])
def test_a_learning_that_is_not_there_can_not_be_invalidated(past: Ralph, id: str) -> None:
    before = past.read(".ralph/progress.json")
    assert invalidate(past, id, "x", "--json").code == "INVALID_VALUE"
    told = invalidate(past, id, "x")
    assert (told.exit_code, told.stdout) == (1, "")
    assert "ralphtool progress learnings" in told.stderr
    assert "\x1b" not in told.stderr
    assert past.read(".ralph/progress.json") == before


# --- the command line -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "nonsense",
        "show extra",
        "entries --last 0",
        "entries --last -1",
        "observations --last x",
        "blockers --last 1.5",
        "entries --type tool-usage",
        "learnings --type nonsense",
        "learnings --type file-structure",
        "patterns --type build-command",
        "patterns --all",
        "attempts",
        "validate",
        "learnings invalidate learning-0001",
        "learnings invalidate --why x",
        "learnings invalidate learning-0001 --why=",
        "learnings nonsense",
    ],
)
def test_a_wrong_command_line_is_exit_2(past: Ralph, command: str) -> None:
    before = past.snapshot()
    told = past.run("progress", *command.split())
    assert (told.exit_code, told.stdout) == (2, "")
    assert "Error: " in told.stderr
    assert past.snapshot() == before


def test_a_blank_reason_is_none(past: Ralph) -> None:
    assert invalidate(past, "learning-0001", " \n").exit_code == 2
    assert kept(past) == HISTORY


def paths(command: click.Command, words: tuple[str, ...]) -> list[tuple[str, ...]]:
    inside = command.commands.items() if isinstance(command, click.Group) else ()
    return [words, *(path for name, one in inside for path in paths(one, (*words, name)))]


@pytest.mark.parametrize(
    "words", [*paths(progress, ("progress",)), *paths(migrate_command, ("migrate",))], ids=" ".join
)
def test_every_command_has_an_example_that_begins_with_it(ralph: Ralph, words: tuple[str, ...]) -> None:
    shown = ralph.run(*words, "--help").stdout
    assert f"\n    ralphtool {' '.join(words)}" in shown.partition("Example")[2]


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("prog", {"progress"}),
        ("mig", {"migrate"}),
        ("progress lea", {"learnings"}),
        ("progress e", {"entries", "export"}),
        ("progress learnings inv", {"invalidate"}),
        ("progress learnings --type a", {"api-convention", "architecture-constraint"}),
        ("progress patterns --type st", {"state-management"}),
    ],
)
def test_commands_and_types_are_completed(ralph: Ralph, typed: str, completed: set[str]) -> None:
    words = f"ralphtool {typed}"
    place = str(len(words.split()) - 1)
    shown = ralph.run(_RALPHTOOL_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=place)
    assert {line.partition(",")[2] for line in shown.stdout.splitlines()} == completed


# --- a flush and the history ------------------------------------------------------------------------


def flush(ralph: Ralph, **more: Any) -> Fields:
    return ralph.agent("session", "flush", **more).json


def learnt(ralph: Ralph) -> list[tuple[str, str, str]]:
    return [(one["id"], one["content"], one["source_prd_id"]) for one in kept(ralph)["learnings"]]


def test_a_flush_writes_learnings_and_patterns_with_their_types(project: Ralph) -> None:
    project.begin()
    taught = [
        (("colours are kept in one place", "--task", "1.1"), "codebase-pattern"),
        (("npm run build comes first",), "build-command"),
        (("it fails with EPERM unless started twice",), "error-workaround"),
        (("it fails with EPERM when built", "--type", "tool-usage"), "tool-usage"),
    ]
    found = [
        (("Colours", "kept in one place"), "api-pattern"),
        (("Errors", "raise what has a code"), "error-handling"),
        (("Failures", "raise nothing", "--type", "state-management"), "state-management"),
    ]
    for words, _ in taught:
        assert project.agent("learn", *words).json
    for words, _ in found:
        assert project.agent("pattern", *words).json
    state = project.session()
    assert flush(project) == {"success": True, "learnings_written": 4, "patterns_written": 3}
    history = kept(project)
    assert [one["type"] for one in history["learnings"]] == [kind for _, kind in taught]
    assert [one["type"] for one in history["patterns"]] == [kind for _, kind in found]
    first = learning(1, "codebase-pattern", "colours are kept in one place", "add-login-1")
    context = history["learnings"][0].pop("context")
    assert "1.1" in context
    assert history["learnings"][0] == first | {"created_at": state["learnings"][0]["timestamp"]}
    assert history["patterns"][0] == pattern(
        1, "api-pattern", "Colours", "add-login", description="kept in one place", confidence="medium"
    ) | {"discovered_at": state["patterns"][0]["timestamp"]}
    assert project.run("progress", "validate", ".ralph/progress.json").exit_code == 0
    assert [one["id"] for one in history["learnings"]] == [f"learning-{number:04}" for number in range(1, 5)]


PRD = '{"branchName": "ralph/My_Shop.2", "userStories": [{%s "title": "See", "acceptanceCriteria": ["a"]}]}'


@pytest.mark.parametrize(
    ("path", "text", "change", "story", "expected"),
    [
        ("openspec/changes/Add_Login.2/tasks.md", "## 2. A\n- [ ] 2.1 b\n", "Add_Login.2", "2", "add-login-2-2"),
        ("openspec/changes/Add_Login.2/tasks.md", "## 2. A\n- [ ] 2.1 b\n", "Add_Login.2", None, "add-login-2"),
        ("prd.json", PRD % '"id": "US_01.b",', "My_Shop.2", "US_01.b", "us-01-b"),
        ("prd.json", PRD % '"id": 7,', "My_Shop.2", "7", "7"),
        ("prd.json", PRD % "", "My_Shop.2", "1", "my-shop-2-1"),
        ("prd.json", PRD % '"id": "US-1",', "My_Shop.2", None, "my-shop-2"),
        ("TODO.md", "# To do\n- [ ] one\n", "TODO", "1", "todo-1"),
    ],
)
def test_a_learning_names_the_story_it_came_from(
    ralph: Ralph, path: str, text: str, change: str, story: str | None, expected: str
) -> None:
    ralph.write(path, text)
    assert ralph.agent("session", "init", "--change", change).json
    if story:
        assert ralph.agent("session", "next-story").json["story_id"] == story
    assert ralph.agent("learn", "x").json
    flush(ralph)
    assert learnt(ralph) == [("learning-0001", "x", expected)]


def test_what_is_known_word_for_word_is_not_added_again(project: Ralph) -> None:
    keep(project, HISTORY)
    project.begin()
    for text in ("ruff knows best", "Ruff knows best", "make all", "make all", "new"):
        assert project.agent("learn", text).json
    for words in (("Errors", "one tree"), ("Errors", "two trees"), ("Errors", "two trees"), ("Others", "one tree")):
        assert project.agent("pattern", *words).json
    flush(project)
    assert kept(project)["entries"] == ENTRIES
    assert kept(project)["learnings"][:3] == LEARNINGS
    # The third one of the history is no longer valid: it may be learnt again, but only once.
    fresh = [("learning-0004", "Ruff knows best"), ("learning-0005", "make all"), ("learning-0006", "new")]
    assert [(id, text) for id, text, _ in learnt(project)[3:]] == fresh
    found = [(one["id"], one["name"], one.get("description")) for one in kept(project)["patterns"][2:]]
    assert found == [("pattern-0003", "Errors", "two trees"), ("pattern-0004", "Others", "one tree")]


def test_numbers_go_on_behind_the_highest(project: Ralph) -> None:
    keep(project, HISTORY | {"learnings": [learning(9999, "tool-usage", "a", "b"), LEARNINGS[0]], "patterns": []})
    project.begin()
    assert project.agent("learn", "behind").json
    flush(project)
    assert learnt(project)[-1][0] == "learning-10000"


@pytest.mark.parametrize(
    "broken",
    ["", "{", "null", json.dumps(HISTORY | {"version": "2.0"}), json.dumps(HISTORY | {"extra": 1})],
    ids=["empty", "torn", "null", "newer", "unknown field"],
)
def test_a_flush_into_a_broken_history_is_refused_before_anything_is_written(project: Ralph, broken: str) -> None:
    project.begin()
    assert project.agent("learn", "kept for later").json
    project.write(".ralph/progress.json", broken)
    before = project.snapshot()
    told = project.agent("session", "flush")
    assert told.code == "CORRUPT_STATE"
    assert str(project.root / ".ralph/progress.json") in told.error["error"]
    assert project.snapshot() == before
    keep(project, HISTORY)
    assert flush(project)["learnings_written"] == 1
    assert learnt(project)[-1][1] == "kept for later"
    assert project.design_file.read_text().count("kept for later") == 1


def test_an_empty_flush_writes_nothing_and_does_not_mind_a_broken_history(project: Ralph) -> None:
    project.begin()
    assert flush(project) == {"success": True, "learnings_written": 0, "patterns_written": 0}
    assert [path for path in project.snapshot() if "progress" in path] == []
    assert not project.design_file.exists()
    project.write(".ralph/progress.json", "{")
    project.begin(session="s2")
    assert flush(project, session="s2")["success"]
    assert project.read(".ralph/progress.json") == "{"


@pytest.mark.parametrize("done", ["spec", "spec and history"])
def test_an_interrupted_flush_that_is_run_again_writes_each_thing_once(project: Ralph, done: str) -> None:
    project.begin()
    assert project.agent("learn", "only once").json
    assert project.agent("pattern", "Once", "and no more").json
    state, lock = project.session_file().read_bytes(), project.lock_file.read_bytes()
    flush(project)
    # As if it had been killed before it released the change.
    project.session_file().write_bytes(state)
    project.lock_file.write_bytes(lock)
    if done == "spec":
        (project.root / ".ralph/progress.json").unlink()
    flush(project)
    assert project.design_file.read_text().count("only once") == 1
    assert learnt(project) == [("learning-0001", "only once", "add-login-1")]
    assert [one["name"] for one in kept(project)["patterns"]] == ["Once"]


def test_a_learning_invalidated_meanwhile_is_not_brought_back_by_an_interrupted_flush(project: Ralph) -> None:
    project.begin()
    assert project.agent("learn", "only once").json
    state, lock = project.session_file().read_bytes(), project.lock_file.read_bytes()
    flush(project)
    assert invalidate(project, "learning-0001", "wrong").exit_code == 0
    project.session_file().write_bytes(state)
    project.lock_file.write_bytes(lock)
    flush(project)
    assert [(one["content"], one["still_valid"]) for one in kept(project)["learnings"]] == [("only once", False)]


def test_a_damaged_journal_is_a_warning_beside_the_one_object(project: Ralph) -> None:
    keep(project, HISTORY)
    project.write(".ralph/progress.journal", in_journal({"entries": [NEWER]}) + DAMAGED)
    project.begin()
    assert project.agent("learn", "x").json
    told = project.agent("session", "flush")
    assert json.loads(told.stdout) == {"success": True, "learnings_written": 1, "patterns_written": 0}
    [warning] = [json.loads(line) for line in told.stderr.splitlines()]
    assert set(warning) == {"warning"}
    assert "checksum" in warning["warning"]
    assert DAMAGED.decode() in project.read(".ralph/progress.journal.damaged")
    assert kept(project)["entries"][-1] == NEWER


@pytest.mark.parametrize("place", ["outside", "another checkout", "further down"])
def test_a_flush_finds_the_history_of_its_session(project: Ralph, tmp_path: Path, place: str) -> None:
    project.begin()
    assert project.agent("learn", "x").json
    elsewhere = {"outside": tmp_path / "out", "further down": project.root / "src/deep"}.get(place, tmp_path / "copy")
    if place == "another checkout":
        shutil.copytree(project.root, elsewhere)
    else:
        elsewhere.mkdir(parents=True)
    flush(project, cwd=elsewhere)
    assert learnt(project) == [("learning-0001", "x", "add-login-1")]
    assert not (elsewhere / ".ralph/progress.json").exists()


def test_flushes_at_once_lose_nothing(ralph: Ralph) -> None:
    names = ("a", "b", "c", "d")
    for name in names:
        ralph.openspec(change=name).begin(name, name)
        assert ralph.agent("learn", f"of {name}", session=name).json
        assert ralph.agent("learn", "of all", session=name).json
    with Race(ralph) as race:
        for name in names:
            race.enter("ralphtool agent session flush", RALPH_SESSION=name)
        assert [result.exit_code for result in race.results()] == [0] * len(names)
    assert sorted(id for id, _, _ in learnt(ralph)) == [f"learning-{number:04}" for number in range(1, 6)]
    assert sorted(text for _, text, _ in learnt(ralph)) == ["of a", "of all", "of b", "of c", "of d"]


@pytest.mark.parametrize("moment", [None, "absent", "2026-01-31", "2026-01-31T10:00:00", "yesterday"])
def test_a_session_without_proper_times_can_be_flushed(project: Ralph, moment: str | None) -> None:
    """Earlier formats had other times, or none: the spec accepts them, so the history must not fail on them."""
    project.begin()
    assert project.agent("learn", "old").json
    assert project.agent("pattern", "Old", "as well").json
    state = project.session()
    for note in (state["learnings"][0], state["patterns"][0]):
        note["timestamp"] = moment
        if moment == "absent":
            del note["timestamp"]
    project.session_file().write_text(json.dumps(state))
    flush(project)
    assert learnt(project) == [("learning-0001", "old", "add-login-1")]
    assert project.run("progress", "validate", ".ralph/progress.json").exit_code == 0


def test_secrets_are_not_written_to_the_history(project: Ralph) -> None:
    secrets = {"SHOP_API_KEY": "sk-1234567890", "db_password": "open sesame!"}
    project.begin()
    assert project.agent("learn", "log in with sk-1234567890 or open sesame!", **secrets).json
    assert project.agent("pattern", "Keys", "like sk-1234567890", **secrets).json
    flush(project, **secrets)
    assert [value for value in secrets.values() if value in project.read(".ralph/progress.json")] == []
