"""From the progress.txt of other loops to the history: once, completely, in any shape."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from faults import Race, list_names, need_strace
from patience import PATIENCE
from project import COMMAND, Ralph, Result

from ralphtool.history import progresstxt

Fields = dict[str, Any]
NOW = "2026-03-01T12:00:00Z"

LOG = """\
# Ralph Progress Log
Started: Fri Jan  9 14:02:11 UTC 2026

## Codebase Patterns
- Migrations: run them with `IF NOT EXISTS`
- **Server actions** live in app/actions.ts
- Errors raise `AppError`, and the page
  shows what it says

---

## 2026-01-09 14:30 - US-001
Thread: https://example.com/threads/T-1
- Added the priority column
- Files changed: db/schema.ts, db/003.sql
- **Learnings for future iterations:**
  - An enum column wants a default
  - The migration fails unless the server is stopped,
    so stop it first
    - and start it again
- **Open:** the badge
---

## 2026-01-10T09:15:00Z - US-002: Badge
- Showed the badge
- **Learnings for future iterations:**
  - Tests want a fixture
---
"""
PATTERNS = [
    ("Migrations", "Migrations: run them with `IF NOT EXISTS`"),
    ("Server actions live in app/actions.ts", "**Server actions** live in app/actions.ts"),
    (
        "Errors raise AppError, and the page shows what it says",
        "Errors raise `AppError`, and the page shows what it says",
    ),
]
LEARNINGS = [
    ("An enum column wants a default", "codebase-pattern", "us-001", "2026-01-09T14:30:00Z"),
    (
        "The migration fails unless the server is stopped, so stop it first",
        "error-workaround",
        "us-001",
        "2026-01-09T14:30:00Z",
    ),
    ("and start it again", "codebase-pattern", "us-001", "2026-01-09T14:30:00Z"),
    ("Tests want a fixture", "test-pattern", "us-002", "2026-01-10T09:15:00Z"),
]
PLACES = ("progress.txt", ".ralph/progress.txt")


def history(ralph: Ralph) -> Fields:
    found: Fields = json.loads(ralph.read(".ralph/progress.json"))
    return found


def whole(ralph: Ralph) -> str:
    """The old text as stored in the history."""
    first: Fields = history(ralph)["learnings"][0]
    expected = {"id": "learning-0000", "type": "codebase-pattern", "context": "Migrated from progress.txt"}
    expected |= {"source_prd_id": "migration"}
    assert {name: first[name] for name in expected} == expected
    assert first["still_valid"]
    return str(first["content"])


def texts(ralph: Ralph) -> list[str]:
    """The names of the old file and of its copies."""
    return sorted(str(path.relative_to(ralph.root)) for path in ralph.root.rglob("*progress.txt*"))


# --- where it is found, and what happens to it ------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "command", [["migrate"], ["progress", "show"], ["progress", "learnings", "--json"], ["progress", "fold"]]
)
def test_the_first_use_takes_it_over_and_puts_it_away(ralph: Ralph, place: str, command: list[str]) -> None:
    ralph.write(place, LOG)
    done = ralph.run(*command)
    assert (done.exit_code, done.stderr) == (0, "")
    assert whole(ralph) == LOG
    assert texts(ralph) == [f"{place}.backup"]
    assert ralph.read(f"{place}.backup") == LOG
    assert ralph.run("progress", "validate", ".ralph/progress.json").exit_code == 0


def test_the_usual_shape_is_read(ralph: Ralph) -> None:
    ralph.write("progress.txt", LOG)
    assert ralph.run("migrate").exit_code == 0
    found = history(ralph)
    assert found["entries"] == []
    assert [(one["name"], one["description"]) for one in found["patterns"]] == PATTERNS
    assert {(one["source_prd_id"], one["confidence"]) for one in found["patterns"]} == {("migration", "medium")}
    assert found["patterns"][2]["type"] == "error-handling"
    made = [(one["content"], one["type"], one["source_prd_id"], one["created_at"]) for one in found["learnings"][1:]]
    assert made == LEARNINGS
    assert {one["context"] for one in found["learnings"]} == {"Migrated from progress.txt"}
    assert [one["id"] for one in found["learnings"]] == [f"learning-{number:04}" for number in range(5)]
    assert [one["id"] for one in found["patterns"]] == [f"pattern-{number:04}" for number in range(1, 4)]


def test_of_two_the_one_in_the_ralph_folder_counts(ralph: Ralph) -> None:
    for place in PLACES:
        ralph.write(place, f"from {place}\n")
    for _ in range(2):
        assert ralph.run("progress", "show").exit_code == 0
    assert whole(ralph) == "from .ralph/progress.txt\n"
    assert texts(ralph) == [".ralph/progress.txt.backup", "progress.txt"]
    assert ralph.read("progress.txt") == "from progress.txt\n"


def test_it_may_lie_beside_a_prd(ralph: Ralph) -> None:
    ralph.write("scripts/ralph/prd.json", '{"userStories": []}')
    ralph.write("scripts/ralph/progress.txt", LOG)
    assert ralph.run("migrate", cwd=ralph.root / "scripts/ralph").exit_code == 0
    assert texts(ralph) == ["scripts/ralph/progress.txt.backup"]
    assert (ralph.root / "scripts/ralph/.ralph/progress.json").exists()


@pytest.mark.parametrize("folder", ["scripts/ralph", "tasks"])
def test_from_the_projects_root_the_one_beside_a_prd_is_found(ralph: Ralph, folder: str) -> None:
    ralph.write(f"{folder}/prd.json", '{"userStories": []}')
    ralph.write(f"{folder}/progress.txt", LOG)
    assert ralph.run("migrate").exit_code == 0
    assert texts(ralph) == [f"{folder}/progress.txt.backup"]
    assert whole(ralph) == LOG


def test_beside_a_prd_in_a_linked_folder_it_is_left_alone(ralph: Ralph, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "prd.json").write_text('{"userStories": []}')
    (elsewhere / "progress.txt").write_text(LOG)
    (ralph.root / "tasks").symlink_to(elsewhere)
    assert ralph.run("migrate", "--json").json == {"migrated": False, "found": None}
    assert (elsewhere / "progress.txt").exists()


@pytest.mark.parametrize("text", ["", " \n\t\n", "\ufeff", "\r\n"])
def test_a_blank_one_is_put_away_and_teaches_nothing(ralph: Ralph, text: str) -> None:
    ralph.write("progress.txt", text)
    assert ralph.run("migrate", "--json").json["migrated"] is True
    assert history(ralph)["learnings"] == history(ralph)["patterns"] == []
    assert texts(ralph) == ["progress.txt.backup"]
    assert ralph.read("progress.txt.backup") == text


@pytest.mark.parametrize("command", [["migrate"], ["migrate", "--dry-run"], ["progress", "show"]])
def test_where_there_is_none_nothing_happens(ralph: Ralph, command: list[str]) -> None:
    (ralph.root / "progress.txt").mkdir()  # not a text file
    before = ralph.snapshot()
    assert ralph.run(*command).exit_code == 0
    assert ralph.run("migrate", "--json").json == {"migrated": False, "found": None}
    assert ralph.snapshot() == before


@pytest.mark.parametrize("place", PLACES)
def test_where_there_is_a_history_already_the_text_is_left_alone(ralph: Ralph, place: str) -> None:
    ralph.write(".ralph/progress.json", json.dumps({"version": "1.0", "created_at": NOW, "entries": []}))
    ralph.write(place, LOG)
    before = ralph.snapshot()
    for command in (["migrate"], ["progress", "show"], ["progress", "learnings", "--json"]):
        assert ralph.run(*command).exit_code == 0
    assert ralph.run("migrate", "--json").json == {"migrated": False, "found": None}
    assert ralph.snapshot() == before


def test_a_broken_history_is_told_and_both_are_left_alone(ralph: Ralph) -> None:
    ralph.write(".ralph/progress.json", "{")
    ralph.write("progress.txt", LOG)
    before = ralph.snapshot()
    assert ralph.run("migrate", "--json").code == "CORRUPT_STATE"
    assert ralph.snapshot() == before


def test_an_older_copy_is_never_overwritten(ralph: Ralph) -> None:
    ralph.write("progress.txt", LOG)
    ralph.write("progress.txt.backup", "precious")
    (ralph.root / "progress.txt.backup.1").symlink_to("nowhere")
    found = ralph.run("migrate", "--json").json["found"]
    assert ralph.read("progress.txt.backup") == "precious"
    assert os.readlink(ralph.root / "progress.txt.backup.1") == "nowhere"
    assert Path(found["backup"]).read_text() == LOG
    assert len(texts(ralph)) == 3


@pytest.mark.parametrize("command", [["schema"], ["validate", "x.json"], ["--help"], ["learnings", "--help"]])
def test_what_has_no_use_for_the_history_leaves_the_text_alone(ralph: Ralph, command: list[str]) -> None:
    ralph.write("progress.txt", LOG)
    ralph.write("x.json", json.dumps({"version": "1.0", "created_at": NOW, "entries": []}))
    before = ralph.snapshot()
    assert ralph.run("progress", *command).exit_code == 0
    assert ralph.snapshot() == before


# --- output of the command --------------------------------------------------------------------------


def test_a_dry_run_tells_all_and_changes_nothing(ralph: Ralph) -> None:
    ralph.write("progress.txt", LOG)
    before = ralph.snapshot()
    told = ralph.run("migrate", "--dry-run").stdout
    assert f"{ralph.root}/progress.txt would become {ralph.root}/progress.txt.backup" in told
    assert "5 learnings and 3 patterns would become" in told
    planned = ralph.run("migrate", "--dry-run", "--json").json
    assert ralph.snapshot() == before
    done = ralph.run("migrate", "--json").json
    assert (planned["migrated"], done["migrated"]) == (False, True)
    assert set(done) == {"migrated", "found"}
    assert set(done["found"]) == {"path", "backup", "learnings", "patterns"}
    for kind in ("learnings", "patterns"):
        assert done["found"][kind] == history(ralph)[kind]
        assert [one["id"] for one in planned["found"][kind]] == [one["id"] for one in done["found"][kind]]
    assert "Nothing to migrate" in ralph.run("migrate").stdout
    assert "Nothing to migrate" in ralph.run("migrate", "--dry-run").stdout


def test_the_command_says_what_it_did(ralph: Ralph) -> None:
    ralph.write(".ralph/progress.txt", LOG)
    told = ralph.run("migrate").stdout
    assert f"{ralph.root}/.ralph/progress.txt became {ralph.root}/.ralph/progress.txt.backup" in told
    assert "5 learnings and 3 patterns became" in told


# --- repeated, concurrent, interrupted, forbidden ---------------------------------------------------


def test_twice_is_once(ralph: Ralph) -> None:
    ralph.write("progress.txt", LOG)
    assert ralph.run("migrate").exit_code == 0
    once = ralph.snapshot()
    assert ralph.run("migrate").exit_code == 0
    assert ralph.run("progress", "show").exit_code == 0
    assert ralph.snapshot() == once
    ralph.write("progress.txt", "a new one, which some other loop began\n")
    assert ralph.run("migrate", "--json").json == {"migrated": False, "found": None}
    assert texts(ralph) == ["progress.txt", "progress.txt.backup"]


@pytest.mark.parametrize("text", [LOG, "\ufeff" + LOG.replace("\n", "\r\n")], ids=["plain", "BOM and CRLF"])
@pytest.mark.parametrize("command", [["migrate"], ["progress", "show"]])
def test_interrupted_before_the_file_was_put_away_it_is_finished(ralph: Ralph, text: str, command: list[str]) -> None:
    ralph.write("progress.txt", text)
    assert ralph.run("migrate").exit_code == 0
    done = ralph.read(".ralph/progress.json")
    os.rename(ralph.root / "progress.txt.backup", ralph.root / "progress.txt")
    assert ralph.run(*command).exit_code == 0
    assert ralph.read(".ralph/progress.json") == done
    assert texts(ralph) == ["progress.txt.backup"]
    assert ralph.read("progress.txt.backup") == text


@pytest.mark.parametrize("place", PLACES)
def test_of_many_at_once_one_does_it_and_all_see_it(ralph: Ralph, place: str) -> None:
    ralph.write(place, LOG)
    commands = ["migrate --json", "progress learnings --json", "progress show --json", "migrate"] * 2
    with Race(ralph) as race:
        for command in commands:
            race.enter(f"ralphtool {command}")
        results = race.results()
    assert [(result.exit_code, result.stderr) for result in results] == [(0, "")] * len(commands)
    for result in (results[1], results[5]):
        assert len(json.loads(result.stdout)["learnings"]) == 5
    assert whole(ralph) == LOG
    assert len(history(ralph)["learnings"]) == 5
    assert texts(ralph) == [f"{place}.backup"]


def test_another_process_may_put_it_away_just_before_it_is_read(ralph: Ralph) -> None:
    """It was found, but is gone when it is opened: the other process has done the work."""
    need_strace()
    place = str(ralph.write("progress.txt", LOG))
    fault = ["strace", "-f", "-qq", "-o", os.devnull, "-P", place]
    fault += ["-e", f"inject={list_names(['open'])}:error=ENOENT:when=1"]
    command = [*fault, COMMAND, "progress", "show"]
    done = Result(subprocess.run(command, cwd=ralph.root, env=ralph.env, capture_output=True, timeout=PATIENCE))
    assert (done.exit_code, done.stderr) == (0, "")


def run_bound(ralph: Ralph, *arguments: str) -> Result:
    """Runs a command that is bound by permissions, even as root."""
    before = ["setpriv", "--bounding-set=-all"] if os.geteuid() == 0 else []
    if before and not shutil.which("setpriv"):
        pytest.skip("root may write everywhere, and there is no setpriv to give that up")
    command = [*before, COMMAND, *arguments]
    return Result(subprocess.run(command, cwd=ralph.root, env=ralph.env, capture_output=True, timeout=PATIENCE))


@pytest.mark.parametrize("place", PLACES)
def test_a_project_that_may_only_be_read_is_read(ralph: Ralph, place: str) -> None:
    text = ralph.write(place, LOG)
    before = ralph.snapshot()
    text.parent.chmod(0o500)
    try:
        shown = run_bound(ralph, "progress", "show", "--json")
        planned = run_bound(ralph, "migrate", "--dry-run", "--json").json["found"]
        told = run_bound(ralph, "migrate", "--json")
    finally:
        text.parent.chmod(0o700)
    assert shown.json["entries"] == 0
    assert len(planned["learnings"]) == 5
    assert ralph.snapshot() == before
    assert told.code == "IO_ERROR", "who asks for the migration is told that it can't be done"
    assert ralph.run("migrate", "--json").json["migrated"] is True


def test_a_flush_takes_it_over_first(project: Ralph) -> None:
    project.write("progress.txt", LOG)
    project.begin()
    assert project.agent("learn", "Tests want a fixture").json
    assert project.agent("learn", "new").json
    assert project.agent("session", "flush").json["learnings_written"] == 2
    assert whole(project) == LOG
    assert [one["content"] for one in history(project)["learnings"][4:]] == ["Tests want a fixture", "new"]
    assert history(project)["learnings"][5]["id"] == "learning-0005"
    assert texts(project) == ["progress.txt.backup"]


def test_an_empty_flush_leaves_it_alone(project: Ralph) -> None:
    project.write("progress.txt", LOG)
    project.begin()
    assert project.agent("session", "flush").json["success"]
    assert texts(project) == ["progress.txt"]


# --- all kinds of text ------------------------------------------------------------------------------


def drawn(text: str) -> tuple[list[str], list[str]]:
    """The learnings, except the one with the whole text, and the descriptions of the patterns."""
    learnings, patterns = progresstxt.parse_text(text, NOW)
    assert not text.strip() or (learnings[0].id, learnings[0].content) == ("learning-0000", text)
    return [one.content for one in learnings[1:]], [str(one.description) for one in patterns]


@pytest.mark.parametrize(
    ("text", "learnings", "patterns"),
    [
        pytest.param(LOG.replace("\n", "\r\n"), [one[0] for one in LEARNINGS], [one[1] for one in PATTERNS], id="CRLF"),
        pytest.param("We did this.\nThen that.\n- and a bullet\n", [], [], id="free text"),
        pytest.param("### Learnings\n- a\n- b\n", ["a", "b"], [], id="a heading"),
        pytest.param("## 2026-01-09 - US-1\n### Learnings:\n* a\n+ b\n", ["a", "b"], [], id="other bullets"),
        pytest.param("**Learnings for future iterations:**\n- a\n\n- b\n---\n- c\n", ["a", "b"], [], id="bold line"),
        pytest.param("- **Learnings:**\n- a\n- b\n- **Next:** c\n- d\n", ["a", "b"], [], id="not indented"),
        pytest.param("- **Learnings**:\n\t- a\n\t- b\n", ["a", "b"], [], id="tabs"),
        pytest.param("- Learnings for future iterations:\n  - a\n    - b\n", ["a", "b"], [], id="nested"),
        pytest.param("### Learnings\n- a\n  over\n  lines\n- b\n", ["a over lines", "b"], [], id="over lines"),
        pytest.param("- **Learnings:**\n\t- a\n\t  over\n\t- b\n", ["a over", "b"], [], id="over lines with tabs"),
        pytest.param("### Learnings\n- a  \n- b\t\n", ["a", "b"], [], id="trailing blanks"),
        pytest.param("## Codebase Patterns\n- a \n- b\n", [], ["a", "b"], id="trailing blanks in patterns"),
        pytest.param("## Codebase Patterns\n\n## 2026-01-09\n- a\n", [], [], id="no patterns yet"),
        pytest.param("# CODEBASE PATTERNS (read first)\n- a\n", [], ["a"], id="another heading of patterns"),
        pytest.param("## Codebase Patterns\n### Database\n- a\n### Pages\n- b\n", [], ["a", "b"], id="in groups"),
        pytest.param(
            "### Learnings\n- Learning rates here\n- b\n", ["Learning rates here", "b"], [], id="begins with the word"
        ),
        pytest.param("**Learnings:**\n- a\n\n**Files changed:**\n- src/x.ts\n", ["a"], [], id="another list behind"),
        pytest.param("### Learnings\n- a\n```\n# no heading\n```\n- b\n", ["a", "b"], [], id="a fence"),
        pytest.param("### Learnings\n- a\n### Files\n- b\n", ["a"], [], id="another part"),
        pytest.param("## US-1\n### Learnings\n- a\n## US-2\n### Learnings\n- a\n", ["a"], [], id="learnt twice"),
        pytest.param("", [], [], id="nothing"),
    ],
)
def test_what_can_be_made_out_is(text: str, learnings: list[str], patterns: list[str]) -> None:
    assert drawn(text) == (learnings, patterns)


DAY = "2026-01-09T00:00:00Z"


@pytest.mark.parametrize(
    ("heading", "story", "moment"),
    [
        ("2026-01-09 14:30 - US-001", "us-001", "2026-01-09T14:30:00Z"),
        ("2026-01-09 14:30:15 – US-001: Title", "us-001", "2026-01-09T14:30:15Z"),
        ("2026-01-09T14:30:00Z - US-001", "us-001", "2026-01-09T14:30:00Z"),
        ("2026-01-09T14:30:00.123456Z - US-001", "us-001", "2026-01-09T14:30:00Z"),
        ("[2026-01-09 14:30] - [US-001]", "us-001", "2026-01-09T14:30:00Z"),
        ("2026-01-09 14:30 UTC | US-001", "us-001", "2026-01-09T14:30:00Z"),
        ("2026-01-09 - US-001", "us-001", DAY),
        ("2026-01-09: feature_login-2", "feature-login-2", DAY),
        ("2026-01-09", "migration", DAY),
        ("2026-01-09 2:30 PM - US-001", "us-001", DAY),
        ("Jan 9, 2026 - US-001", "us-001", NOW),
        ("2026-02-30 - US-001", "us-001", NOW),
        ("2026-01-09 24:00 - US-001", "us-001", NOW),
        ("0000-01-09 - US-001", "us-001", NOW),
        ("١٢٣٤-٠١-٠٩ - US-001", "us-001", NOW),
        ("[Date/Time] - [Story ID]", "migration", NOW),
    ],
)
def test_a_heading_tells_when_and_for_which_story(heading: str, story: str, moment: str) -> None:
    [_, found] = progresstxt.parse_text(f"## {heading}\n- **Learnings for future iterations:**\n  - a\n", NOW)[0]
    assert (found.content, found.source_prd_id, found.created_at) == ("a", story, moment)


def test_the_parts_of_an_entry_belong_to_it() -> None:
    text = "## 2026-01-09 - US-001\n### What was done\n- b\n### Learnings\n- a\n## Notes\n### Learnings\n- c\n"
    found = progresstxt.parse_text(text, NOW)[0][1:]
    made = [(one.content, one.source_prd_id, one.created_at) for one in found]
    assert made == [("a", "us-001", DAY), ("c", "migration", NOW)]


def test_a_zone_that_is_told_is_not_forgotten() -> None:
    [_, found] = progresstxt.parse_text("## 2026-01-09T14:30:00+02:00 - US-001\n### Learnings\n- a\n", NOW)[0]
    assert found.created_at in ("2026-01-09T14:30:00+02:00", "2026-01-09T12:30:00Z")


def test_a_pattern_has_a_short_name() -> None:
    lines = [
        "**Zod:** checks input",
        "word " * 40 + "end",
        "x" * 200,
        f"{'long ' * 20}: rest",
        "http://a.b: c",
        ":",
        "**",
    ]
    patterns = progresstxt.parse_text("## Codebase Patterns\n" + "".join(f"- {line}\n" for line in lines), NOW)[1]
    assert len(patterns) == len(lines)
    assert patterns[0].name == "Zod"
    assert max(len(one.name) for one in patterns) <= 60


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xef\xbb\xbf" + LOG.encode(), LOG),
        (b"## Codebase Patterns\n- caf\xe9\n", "## Codebase Patterns\n- caf\ufffd\n"),
        (b"\xff\xfe\x00\x80\n", "\ufffd\ufffd\x00\ufffd\n"),
        (b"a\x00b \x1b[2J \xed\xa0\x80\n", "a\x00b \x1b[2J \ufffd\ufffd\ufffd\n"),
    ],
    ids=["BOM", "Latin-1", "binary", "control characters"],
)
def test_bytes_of_every_kind_are_kept(ralph: Ralph, data: bytes, text: str) -> None:
    ralph.write("progress.txt", data)
    assert ralph.run("migrate").exit_code == 0
    assert whole(ralph) == text
    assert (ralph.root / "progress.txt.backup").read_bytes() == data
    shown = ralph.run("progress", "learnings")
    assert shown.exit_code == 0
    assert not {"\x00", "\x1b"} & set(shown.stdout)


def cpu_time() -> float:
    """The CPU seconds of all commands that have ended, independent of the load of the machine."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_five_megabytes_are_no_matter(ralph: Ralph) -> None:
    one = "## 2026-01-09 14:30 - US-{0}\n- **Learnings for future iterations:**\n  - Number {0}: {1}\n---\n"
    text = LOG + "".join(one.format(number, "x" * 900) for number in range(5200))
    assert len(text) > 5_000_000
    ralph.write("progress.txt", text)
    start = cpu_time()
    assert ralph.run("progress", "show", "--json").json["learnings"] == 5205
    assert cpu_time() - start < 20
    assert whole(ralph) == text
    assert texts(ralph) == ["progress.txt.backup"]
    assert len(ralph.run("progress", "learnings", "--json").json["learnings"]) == 5205


def test_one_long_text_does_not_make_a_table_slow(ralph: Ralph) -> None:
    """The whole old text is one learning: the other lines must not be padded to its length."""
    learnings = "".join(f"- Number {number} is odd or even\n" for number in range(3000))
    ralph.write("progress.txt", f"### Learnings\n{learnings}\n{'prose ' * 20_000}\n")
    assert ralph.run("migrate").exit_code == 0
    command = [COMMAND, "progress", "learnings"]
    done = subprocess.run(command, cwd=ralph.root, env=ralph.env, capture_output=True, timeout=PATIENCE)
    assert done.returncode == 0
    assert len(done.stdout) < 10_000_000


@pytest.mark.parametrize(
    "line",
    ["- learnings{}. a", "learnings{}. a", "-{}", "- a{}", "# {}", "## 2026-01-09{}", "- **{}", "{}- a", "#{}a"],
)
@pytest.mark.parametrize("filling", [":", "*", " ", "a", "-", "a-"])
def test_no_line_takes_long_to_read(line: str, filling: str) -> None:
    """A repository can contain any progress.txt, and the first command reads it. Quadratic time would be an hour."""
    text = f"## Codebase Patterns\n{line.format(filling * 300_000)}\n"
    assert progresstxt.parse_text(text, NOW)[0][0].content == text
