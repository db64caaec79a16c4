"""`ralphtool plan`: the agent drafts, the rules judge, the user decides; nothing else changes, whatever happens."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from faults import CHANGING, calls_in, in_memory, injected, list_names, need_strace
from lab import Lab, kill, processes_with, wait_until
from patience import PATIENCE
from project import COMMAND, Result
from properties import sample

# Writes what drafts.json says into its draft: the first list entry, or the second one when it was sent back. Then it
# tries to change the project, and prints which writes succeeded.
AGENT = """\
import json, os, sys, time
prompt = sys.stdin.read()
line = next(line for line in prompt.splitlines() if "/draft/" in line)
draft = line[: line.index("/draft/") + len("/draft")]
told = json.load(open(os.path.join(os.path.dirname(os.path.abspath(sys.argv[1])), "drafts.json")))
round = told["rounds"][1 if "Your draft exists already" in prompt and len(told["rounds"]) > 1 else 0]
for path, text in round.items():
    place = os.path.join(draft, path)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with open(place, "w") as file:
        file.write(text)
for path in told.get("links", []):
    os.symlink("/etc/passwd", os.path.join(draft, path))
done = []
for path in told.get("tries", []):
    try:
        with open(path, "w") as file:
            file.write("changed by the agent")
        done.append(path)
    except OSError:
        pass
if told.get("hangs"):
    time.sleep(3600)
print("I could write", json.dumps(done))
sys.exit(told.get("exit", 0))
"""

STORIES = """\
## 1. Write the rows as CSV

- [ ] 1.1 `report.csv_rows` returns one line for each row
- [ ] 1.2 A test in `tests/test_report.py` fails without it

## 2. Quote commas (depends on 1)

- [ ] 2.1 A value with a comma is quoted, and a test shows it

## 3. A header (optional)

- [ ] 3.1 A test shows the header
"""
CHECKLIST = STORIES.replace("## 1. ", "## ").replace("## 2. ", "## ").replace("## 3. ", "## ")
SPEC = """\
## ADDED Requirements

### Requirement: CSV
It SHALL export.

#### Scenario: Rows
- **WHEN** x
- **THEN** y
"""
VAGUE = "## 1. Export\n\n- [ ] 1.1 Make the export work properly\n"
OPENSPEC = "openspec/changes/add-csv-export"
GOOD = {f"{OPENSPEC}/tasks.md": STORIES, f"{OPENSPEC}/specs/report/spec.md": SPEC, f"{OPENSPEC}/proposal.md": "# Why\n"}
PHASES = """\
## Phase 1: User Story 1 - Rows

- [ ] T001 [US1] `report.csv_rows` returns one line for each row, and a test shows it

## Phase 2: User Story 2 - Commas

- [ ] T002 [US2] A value with a comma is quoted, and a test shows it (depends on T001)
"""
FEATURE = """\
# Feature Specification: CSV

### User Story 1 - Rows (Priority: P1)

1. **Given** two rows, **When** they are exported, **Then** two lines are written
"""
PRD = {
    "project": "Add CSV export",
    "branchName": "ralph/add-csv-export",
    "userStories": [
        {
            "id": "US-001",
            "title": "Rows",
            "acceptanceCriteria": ["A test shows two lines"],
            "priority": 1,
            "passes": False,
        }
    ],
}


class PlanLab(Lab):
    """A project whose agent writes drafts."""

    started: list[subprocess.Popen[bytes]]

    def drafts(self, *rounds: dict[str, str], **more: Any) -> PlanLab:
        self.agent_file.parent.mkdir(exist_ok=True)
        self.agent_file.write_text(AGENT)
        self.agent_file.with_name("drafts.json").write_text(json.dumps({"rounds": rounds, **more}))
        return self

    @property
    def agent_file(self) -> Path:
        """In the project, which is visible in a box."""
        return self.root / "tools/agent.py"

    @property
    def command(self) -> list[str]:
        return ["plan", "--agent-command", f"{sys.executable} -S {self.agent_file} {self.agent_file}"]

    def plan(self, *arguments: str, stdin: bytes = b"") -> Result:
        return self.run(*self.command, *(arguments or ("Add CSV export",)), stdin=stdin)

    def told(self, kind: str, field: str) -> list[Any]:
        return [event[field] for event in self.events() if event["type"] == kind]

    def kept(self, place: str = OPENSPEC) -> dict[str, str]:
        top = self.root / place
        found = [top] if top.is_file() else [path for path in top.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.root)): path.read_text() for path in found}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[PlanLab]:
    made = PlanLab(tmp_path)
    made.started = []
    made.drafts(GOOD)
    made.repository()
    yield made
    for process in made.started:
        kill(process)
    assert wait_until(lambda: not processes_with(str(made.home))), processes_with(str(made.home))


# --- the kept change --------------------------------------------------------------------------------


def test_a_draft_is_kept_with_yes(lab: PlanLab) -> None:
    before = lab.own_files()
    result = lab.plan("Add CSV export", "--yes", "--json").json
    assert lab.kept() == GOOD
    assert {path: text for path, text in lab.own_files().items() if OPENSPEC not in path} == before
    assert (result["change"], result["format"], result["kept"]) == ("add-csv-export", "openspec", True)
    assert sorted(result["files"]) == sorted(str(lab.root / path) for path in GOOD)
    assert [one["id"] for one in result["stories"]] == ["1", "2", "3"]
    assert [one["optional"] for one in result["stories"]] == [False, False, True]
    assert result["stories"][1]["depends_on"] == ["1"]
    assert (result["scenarios"], result["problems"], result["left_out"]) == (1, [], [])
    assert "add-csv-export" in [one["name"] for one in lab.run("list", "--json").json["changes"]]


def test_without_a_terminal_nothing_is_kept_and_the_draft_is_named(lab: PlanLab) -> None:
    before = lab.own_files()
    result = lab.plan()
    assert result.exit_code == 1
    assert lab.own_files() == before
    place = Path(result.stdout.split("It is in ")[1].splitlines()[0])
    assert (place / OPENSPEC / "tasks.md").read_text() == STORIES
    assert "3 stories (1 optional), 4 tasks, 1 scenario, 3 files" in result.stdout
    assert "[ ] 1.2 A test in `tests/test_report.py` fails without it" in result.stdout
    command = result.stdout.split("To keep this one:")[1].strip()
    told = lab.plan("Add CSV export", "--json")
    assert (told.exit_code, json.loads(told.stdout)["kept"], json.loads(told.stdout)["files"]) == (1, False, [])
    subprocess.run(command, shell=True, cwd=lab.root, check=True)
    assert lab.kept() == GOOD


FORMATS = {
    "openspec": (GOOD, "add-csv-export"),
    "speckit": (
        {"specs/001-add-csv-export/tasks.md": PHASES, "specs/001-add-csv-export/spec.md": FEATURE},
        "001-add-csv-export",
    ),
    "prd": ({"prd.json": json.dumps(PRD)}, "add-csv-export"),
    "checklist": ({"docs/csv.md": CHECKLIST}, "csv"),
}


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_can_be_drafted_and_run(lab: PlanLab, format: str) -> None:
    files, change = FORMATS[format]
    lab.drafts(files)
    more = ["--file", "docs/csv.md"] if format == "checklist" else ["--format", format]
    result = lab.plan("Add CSV export", "--yes", "--json", *more).json
    assert (result["change"], result["format"], result["problems"]) == (change, format, [])
    assert {path: lab.read(path) for path in files} == files
    spec = ["--spec", result["spec"]] if result["spec"] else []
    shown = lab.run("show", change, *spec, "--json").json
    assert [one["id"] for one in shown["stories"]] == [one["id"] for one in result["stories"]]


@pytest.mark.parametrize(
    ("files", "format"),
    [(["openspec/project.md"], "openspec"), ([".specify/x"], "speckit"), (["TODO.txt"], "checklist")],
)
def test_the_format_is_that_of_the_project(tmp_path: Path, files: list[str], format: str) -> None:
    lab = PlanLab(tmp_path)
    lab.drafts(GOOD)
    for file in files:
        lab.write(file, "x\n")
    told = lab.plan("Add CSV export", "--dry-run", "--json").json
    assert told["format"] == format


def test_several_formats_have_to_be_chosen_from(lab: PlanLab) -> None:
    lab.write(".specify/x", "x\n")
    before = lab.snapshot()
    error = lab.plan("Add CSV export", "--json").error
    assert "give --format, one of openspec, speckit" in error["error"]
    assert lab.snapshot() == before
    assert lab.plan("Add CSV export", "--format", "openspec", "--yes").exit_code == 0


# --- the idea ---------------------------------------------------------------------------------------


def test_an_idea_comes_from_a_file_or_from_stdin(lab: PlanLab) -> None:
    issue = b"title:\tAdd CSV export\nstate:\tOPEN\n--\nPeople want `,` and ```fences```.\n"
    lab.write("issue.txt", issue)
    from_file = lab.plan("--from", "issue.txt", "--dry-run", "--json").json
    from_stdin = lab.plan("--from", "-", "--dry-run", "--json", stdin=issue).json
    assert from_file == from_stdin
    assert from_file["change"] == "add-csv-export"
    assert "People want `,` and ```fences```." in from_file["prompt"]
    both = lab.plan("Export reports", "--from", "issue.txt", "--dry-run", "--json").json
    assert both["change"] == "export-reports"
    assert "People want" in both["prompt"]
    assert lab.plan("--from", "-", "--yes", stdin=issue).exit_code == 0
    assert lab.kept() == GOOD


BAD_INPUT = {
    "nothing": ([], b"", "USAGE"),
    "empty": (["  "], b"", "USAGE"),
    "empty stdin": (["--from", "-"], b" \n", "USAGE"),
    "no such file": (["--from", "missing.md"], b"", "IO_ERROR"),
    "a folder": (["--from", "openspec"], b"", "IO_ERROR"),
    "not text": (["--from", "-"], b"\xff\xfe\x00", "INVALID_VALUE"),
    "NUL": (["--from", "-"], b"Add\0login", "INVALID_VALUE"),
    "too long": (["--from", "-"], b"x " * 60_000, "INVALID_VALUE"),
    "no letters": (["!?"], b"", "INVALID_NAME"),
    "a bad name": (["Add login", "--name", "../x"], b"", "INVALID_NAME"),
    "no such format": (["Add login", "--format", "word"], b"", "INVALID_VALUE"),
    "no such agent": (["Add login", "--agent", "cluade"], b"", "INVALID_VALUE"),
    "a file outside": (["Add login", "--file", "/tmp/x.md"], b"", "INVALID_VALUE"),
    "taken": (["Add login", "--name", "add-login"], b"", "INVALID_VALUE"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_error_and_changes_nothing(lab: PlanLab, case: str) -> None:
    arguments, stdin, code = BAD_INPUT[case]
    before = lab.snapshot()
    command = ["plan"] if "--agent" in arguments else lab.command
    error = lab.run(*command, *arguments, "--yes", "--json", stdin=stdin)
    assert (error.code, lab.snapshot() == before) == (code, True)


def test_a_dry_run_shows_the_prompt_and_changes_nothing(lab: PlanLab) -> None:
    lab.configure(tests=["make check"])
    before = lab.snapshot()
    result = lab.plan("Add CSV export", "--dry-run")
    assert result.exit_code == 0
    for text in (
        "openspec/changes/add-csv-export/tasks.md",
        "make check",
        "Add CSV export",
        "#### Scenario",
        "at most 8",
    ):
        assert text in result.stdout
    assert lab.snapshot() == before


def test_an_own_prompt_replaces_ours(lab: PlanLab) -> None:
    lab.write(".ralph/prompts/plan.md", "Plan {{change}} as a haiku:\n\n{{files}}\n")
    assert lab.plan("Add CSV export", "--dry-run", "--json").json["prompt"].startswith("Plan add-csv-export as a haiku")


# --- what the agent may do --------------------------------------------------------------------------


@pytest.mark.parametrize("workspace", ["auto", "here"])
def test_what_the_agent_changes_elsewhere_is_not_kept(lab: PlanLab, workspace: str) -> None:
    """In a box it can't change other files; in a copy it only changes the copy."""
    lab.configure(workspace=workspace)
    more = {"notes.txt": "x", f"{OPENSPEC}/.claude/settings.json": "{}"}
    tries = ["README.md", "planted.txt", ".git/HEAD"]
    if workspace == "auto":
        tries += [str(lab.root / path) for path in (*tries, ".ralph/config.toml", "openspec/changes/x.md")]
    lab.drafts({**GOOD, **more}, tries=tries)
    before, config = lab.users_state(), lab.read(".ralph/config.toml")
    result = lab.plan("Add CSV export", "--yes", "--json").json
    assert lab.kept() == GOOD
    assert result["left_out"] == ["notes.txt"]
    for path in GOOD:
        (lab.root / path).unlink()
    assert (lab.users_state(), lab.read(".ralph/config.toml")) == (before, config)
    [said] = [one["event"]["message"] for one in lab.events() if one.get("event", {}).get("kind") == "end"]
    could = json.loads(said.partition("I could write ")[2])
    assert lab.told("run_started", "workspace") == ["box" if workspace == "auto" else "copy"]
    assert could == [] if workspace == "auto" else ["README.md", "planted.txt"], "or nothing was tried"
    assert not list(lab.root.glob(".git/ralph/copies/*"))


def test_the_copy_is_what_the_user_has_now(lab: PlanLab) -> None:
    """With uncommitted work, but without ignored files."""
    lab.configure(workspace="here")
    lab.write(".gitignore", "secret\n")
    lab.write("secret", "x")
    lab.write("README.md", "changed\n")
    lab.write("new.txt", "new\n")
    listing = (
        "import json, os, sys; json.dump((sorted(os.listdir('.')), open('README.md').read()), open(sys.argv[1], 'w'))"
    )
    seen = lab.root.parent / "seen"
    command = f'{sys.executable} -c "{listing}" {seen}'
    assert lab.run("plan", "Add CSV export", "--agent-command", command, "--yes").exit_code == 1
    names, readme = json.loads(seen.read_text())
    assert readme == "changed\n"
    assert names == [".gitignore", "README.md", "new.txt", "openspec", "tools"]


def test_without_git_and_box_an_agent_has_to_keep_to_its_draft(tmp_path: Path) -> None:
    lab = PlanLab(tmp_path)
    lab.drafts(GOOD)
    lab.write("openspec/project.md", "x\n")
    lab.configure(workspace="here")
    before = lab.snapshot()
    error = lab.plan("Add CSV export", "--yes", "--json").error
    assert "run `git init`" in error["error"]
    assert lab.snapshot() == before
    lab.configure()
    (lab.root / ".ralph/config.toml").unlink()
    assert lab.plan("Add CSV export", "--yes", "--json").json["kept"], "a box needs no git"


# --- faults of a draft ------------------------------------------------------------------------------


def test_a_draft_with_problems_goes_back_once(lab: PlanLab) -> None:
    lab.drafts({**GOOD, f"{OPENSPEC}/tasks.md": VAGUE}, {f"{OPENSPEC}/tasks.md": STORIES})
    result = lab.plan("Add CSV export", "--yes", "--json").json
    assert lab.kept() == GOOD
    assert result["problems"] == []
    assert lab.told("verdict", "status") == ["failed", "completed"]
    prompt = next(lab.root.glob(".ralph/runs/*/002-plan/prompt.md")).read_text()
    assert 'story 1: the task 1.1 says "properly"' in prompt


def test_problems_that_stay_are_shown_and_it_is_not_sent_back_twice(lab: PlanLab) -> None:
    lab.drafts({**GOOD, f"{OPENSPEC}/tasks.md": VAGUE})
    result = lab.plan("Add CSV export", "--yes")
    assert result.exit_code == 0, result.stderr
    assert "Remaining problems:" in result.stdout
    assert lab.told("iteration_started", "attempt") == [1, 2]
    assert lab.read(f"{OPENSPEC}/tasks.md") == VAGUE


def test_boxes_that_the_agent_ticked_are_open_in_what_is_kept(lab: PlanLab) -> None:
    lab.drafts({**GOOD, f"{OPENSPEC}/tasks.md": STORIES.replace("- [ ]", "- [x]", 2)})
    assert lab.plan("Add CSV export", "--yes").exit_code == 0
    assert lab.kept() == GOOD


def test_a_checklist_without_boxes_says_so(lab: PlanLab) -> None:
    lab.drafts({"docs/csv.md": "# CSV\n\nNo box at all.\n"})
    told = lab.plan("Add CSV export", "--yes", "--file", "docs/csv.md")
    assert told.exit_code == 1
    assert "has no open box" in told.stderr
    lab.drafts({"plans/add-csv-export.md": "# CSV\n\nNo box at all.\n"})
    told = lab.plan("Add CSV export", "--yes", "--format", "checklist")
    assert "plans/add-csv-export.md has no tasks: write them as open boxes" in told.stderr


UNUSABLE = {
    "no boxes": {f"{OPENSPEC}/tasks.md": "## 1. Export\n\nWrite it.\n"},
    "unknown dependency": {f"{OPENSPEC}/tasks.md": STORIES.replace("depends on 1", "depends on 9")},
    "a circle": {f"{OPENSPEC}/tasks.md": STORIES.replace("CSV\n", "CSV (depends on 2)\n", 1)},
    "the examples": {f"{OPENSPEC}/tasks.md": "## 1. A\n\n- [ ] 1.1 One task for each condition that must be true\n"},
    "an open fence": {f"{OPENSPEC}/tasks.md": "```\n" + STORIES},
    "another place": {"openspec/changes/other/tasks.md": STORIES},
    "nothing": {},
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_what_the_adapter_can_not_read_is_never_kept(lab: PlanLab, case: str) -> None:
    lab.drafts(UNUSABLE[case])
    before = lab.own_files()
    error = lab.plan("Add CSV export", "--yes", "--json")
    assert error.code == "DRAFT_FAILED"
    assert lab.own_files() == before
    assert lab.told("iteration_started", "attempt") == [1, 2], "sent back once"
    assert lab.told("run_ended", "result") == ["unfinished"]


def test_links_and_binary_files_are_not_kept(lab: PlanLab) -> None:
    lab.drafts(GOOD, links=[f"{OPENSPEC}/passwd.md", "more"])
    assert lab.plan("Add CSV export", "--yes").exit_code == 0
    assert lab.kept() == GOOD
    lab.drafts({"openspec/changes/other/tasks.md": STORIES + "\0"})
    assert "NUL" in lab.plan("Other", "--yes", "--json").error["error"]


def test_an_agent_that_fails_says_why(lab: PlanLab) -> None:
    lab.drafts({"plans/other.md": CHECKLIST}, exit=3)
    error = lab.plan("Add CSV export", "--yes", "--json").error
    assert "exit status 3" in error["error"]
    assert "what it wrote instead (plans/other.md) is in " in error["error"]
    assert "ralphtool logs" in error["error"]
    report = lab.run("report").stdout
    assert report.startswith("# add-csv-export: no draft was kept.\n")
    assert ('`ralphtool plan "…"`' in report, "ralphtool run" in report) == (True, False), "there is nothing to run"
    assert lab.told("iteration_started", "attempt") == [1], "whoever can't work is not asked again"


def test_when_one_meets_its_limit_the_next_drafts(lab: PlanLab) -> None:
    lab.configure(agent="scripted", agents=["scripted", "writer"])
    with (lab.root / ".ralph/config.toml").open("a") as config:
        words = json.dumps([sys.executable, "-S", str(lab.agent_file), str(lab.agent_file)])
        config.write(f'[agents.writer]\nkind = "command"\ncommand = {words}\n')
    (lab.root / "tools/script.json").write_text(
        json.dumps({"turn": [], "defaults": {"steps": [{"error": "rate-limit", "text": "Slow down"}]}})
    )
    lab.write(".ralph/config.toml", lab.read(".ralph/config.toml").replace(str(lab.script), "tools/script.json"))
    result = lab.run("plan", "Add CSV export", "--yes", "--json")
    assert result.exit_code == 0, result.stderr
    assert lab.told("iteration_started", "agent") == ["scripted", "writer"]
    assert lab.told("handed_over", "to") == ["writer"]
    assert lab.told("verdict", "status") == ["transient", "completed"]


# --- the record -------------------------------------------------------------------------------------


def test_it_is_on_record_like_an_iteration(lab: PlanLab) -> None:
    assert lab.plan("Add CSV export", "--yes").exit_code == 0
    [run] = lab.run("runs", "--json").json["runs"]
    assert (run["change"], run["purpose"], run["state"]) == ("add-csv-export", "plan", "done")
    assert run["spent"]["iterations"] == 1
    assert "I could write" in lab.run("logs").stdout
    assert " plan" in lab.run("runs").stdout
    report = lab.run("report").stdout
    assert report.startswith("# add-csv-export: the change is drafted.\n"), "no story is done"
    assert "ralphtool run add-csv-export" in report
    assert "there is no git" not in report
    assert lab.entries() == [], "the history is about stories"


# --- existing files are never overwritten -----------------------------------------------------------


def test_a_change_that_appears_meanwhile_is_left_alone(lab: PlanLab) -> None:
    mine = lab.root / OPENSPEC / "tasks.md"
    lab.drafts(GOOD)
    slow = lab.agent_file.read_text().replace("done = []", "time.sleep(3)\ndone = []")
    lab.agent_file.write_text(slow)
    running = start(lab, "--yes")
    assert wait_until(lambda: list(lab.root.glob(f".ralph/runs/*/draft/{OPENSPEC}/proposal.md")))
    mine.parent.mkdir(parents=True)
    mine.write_text("mine\n")
    out, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == 1, out
    assert b"already exists and is not changed" in err
    assert lab.kept() == {f"{OPENSPEC}/tasks.md": "mine\n"}
    assert lab.told("run_ended", "result") == ["unfinished"]


def start(lab: PlanLab, *more: str) -> subprocess.Popen[bytes]:
    words = [COMMAND, *lab.command, "Add CSV export", *more]
    pipe = subprocess.PIPE
    lab.started.append(
        subprocess.Popen(words, cwd=lab.root, env=lab.env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    )
    return lab.started[-1]


# --- killed and stopped -----------------------------------------------------------------------------


@pytest.mark.parametrize("workspace", ["auto", "here"])
def test_killed_while_the_agent_works_nothing_is_kept_and_nobody_left(lab: PlanLab, workspace: str) -> None:
    lab.configure(workspace=workspace)
    before = lab.own_files()
    lab.drafts(GOOD, hangs=True)
    before = lab.own_files()
    running = start(lab, "--yes")
    assert wait_until(lambda: list(lab.root.glob(f".ralph/runs/*/draft/{OPENSPEC}/proposal.md")))
    kill(running)
    assert wait_until(lambda: not processes_with(str(lab.home))), "the agent outlived its command"
    assert lab.own_files() == before
    assert lab.run("runs", "--json").json["runs"][0]["state"] == "died"
    lab.drafts(GOOD)
    assert lab.plan("Add CSV export", "--yes").exit_code == 0, "the next one works as if nothing had been"
    assert lab.kept() == GOOD
    assert not list(lab.root.glob(".git/ralph/copies/*"))


def test_an_agent_that_outlived_all_is_ended_by_the_next_command(lab: PlanLab) -> None:
    """Its command and its supervisor were killed at the same time."""
    lab.configure(workspace="here")
    lab.drafts(GOOD, hangs=True)
    running = start(lab, "--yes")
    assert wait_until(lambda: list(lab.root.glob(f".ralph/runs/*/draft/{OPENSPEC}/proposal.md")))
    [supervisor] = psutil.Process(running.pid).children()
    running.send_signal(signal.SIGSTOP)
    supervisor.kill()
    kill(running)
    assert processes_with(str(lab.home)), "nothing is left to be ended"
    lab.drafts(GOOD)
    assert lab.plan("Add CSV export", "--yes").exit_code == 0
    assert processes_with(str(lab.home)) == []


def test_agents_of_a_run_plan_nothing(lab: PlanLab) -> None:
    before = lab.snapshot()
    refused = lab.run(*lab.command, "Add CSV export", "--yes", "--json", RALPH_TOKEN="t")
    assert (refused.code, lab.snapshot() == before) == ("USAGE", True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stopped_nothing_is_kept(lab: PlanLab, number: int) -> None:
    lab.drafts(GOOD, hangs=True)
    before = lab.own_files()
    running = start(lab, "--yes")
    assert wait_until(lambda: list(lab.root.glob(f".ralph/runs/*/draft/{OPENSPEC}/proposal.md")))
    running.send_signal(number)
    _, told = running.communicate(timeout=PATIENCE)
    assert running.returncode == 130
    words = " ".join(told.decode().split())
    assert "Stopped before the draft was complete: what it wrote is in " in words
    assert words.endswith("Nothing was added to your project. To start again, run the same command.")
    assert lab.own_files() == before
    assert lab.told("run_ended", "result") == ["interrupted"]


# --- asking -----------------------------------------------------------------------------------------


class Terminal:
    """The command in a terminal of its own."""

    def __init__(self, lab: PlanLab, *words: str, stdin: bytes | None = None) -> None:
        main, other = pty.openpty()
        self.fd, self.seen = main, ""
        pipe = subprocess.PIPE if stdin is not None else other
        env = {**lab.env, "TERM": "dumb", "EDITOR": str(lab.root.parent / "editor")}
        self.process = subprocess.Popen(
            [COMMAND, *lab.command, *words],
            cwd=lab.root,
            env=env,
            stdin=pipe,
            stdout=other,
            stderr=other,
            start_new_session=True,
            preexec_fn=lambda: __import__("fcntl").ioctl(1, __import__("termios").TIOCSCTTY, 0),
        )
        os.close(other)
        if stdin is not None and self.process.stdin:
            self.process.stdin.write(stdin)
            self.process.stdin.close()
            self.process.stdin = None
        lab.started.append(self.process)

    def wait_for(self, text: str, times: int = 1) -> Terminal:
        end = time.monotonic() + PATIENCE
        while self.seen.count(text) < times and time.monotonic() < end:
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.fd, 65536).decode("utf-8", "replace")
                except OSError:
                    break
        assert self.seen.count(text) >= times, self.seen[-3000:]
        return self

    def say(self, text: str) -> Terminal:
        os.write(self.fd, text.encode())
        return self

    def wait_until_it_reads(self) -> Terminal:
        """Python handles Ctrl-C before and during a read of the terminal, but not in the moment between."""
        place = Path(f"/proc/{self.process.pid}/syscall")
        assert wait_until(lambda: place.read_text().split()[1:2] == ["0x0"]), place.read_text()  # descriptor 0
        return self

    def end(self) -> int:
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < end:
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.fd, 65536).decode("utf-8", "replace")
                except OSError:
                    break
        return self.process.wait(30)


def test_yes_keeps_it(lab: PlanLab) -> None:
    asked = Terminal(lab, "Add CSV export").wait_for("Keep it?")
    assert not (lab.root / OPENSPEC).exists(), "not before the answer"
    assert asked.say("y\n").end() == 0
    assert lab.kept() == GOOD
    asked.wait_for("ralphtool run add-csv-export")


@pytest.mark.parametrize(("answer", "code"), [("n\n", 1), ("\x03", 130), ("\x04", 130)])
def test_no_keeps_nothing(lab: PlanLab, answer: str, code: int) -> None:
    before = lab.own_files()
    asked = Terminal(lab, "Add CSV export").wait_for("Keep it?").wait_until_it_reads().say(answer)
    assert asked.end() == code
    asked.wait_for("The draft was not kept. It is in")
    assert lab.own_files() == before
    assert lab.told("run_ended", "result") == ["unfinished"]


def test_it_can_be_edited_first(lab: PlanLab) -> None:
    editor = lab.root.parent / "editor"
    editor.write_text('#!/bin/sh\nfor file; do sed -i "s/A header/The header/" "$file"; done\n')
    editor.chmod(0o755)
    asked = Terminal(lab, "Add CSV export").wait_for("Keep it?").say("e\n").wait_for("Keep it?", 2)
    assert "3. The header" in asked.seen
    assert asked.say("y\n").end() == 0
    assert "## 3. The header (optional)" in lab.read(f"{OPENSPEC}/tasks.md")


def test_what_can_not_be_read_can_be_edited_but_not_kept(lab: PlanLab) -> None:
    lab.drafts(UNUSABLE["no boxes"])
    editor = lab.root.parent / "editor"
    editor.write_text('#!/bin/sh\nprintf "## 1. A\\n\\n- [ ] 1.1 A test shows it\\n" > "$1"\n')
    editor.chmod(0o755)
    asked = Terminal(lab, "Add CSV export").wait_for("Keep it? [n]o, [e]dit").say("y\n").wait_for("Keep it?", 2)
    assert not (lab.root / OPENSPEC).exists()
    assert asked.say("e\n").wait_for("Keep it? [y]es").say("y\n").end() == 0
    assert "A test shows it" in lab.read(f"{OPENSPEC}/tasks.md")


def test_an_issue_on_stdin_is_asked_about_on_the_terminal(lab: PlanLab) -> None:
    asked = Terminal(lab, "--from", "-", stdin=b"# Add CSV export\n\nPlease.\n").wait_for("Keep it?")
    assert asked.say("y\n").end() == 0
    assert lab.kept() == GOOD


def test_killed_at_the_question_the_draft_stays(lab: PlanLab) -> None:
    before = lab.own_files()
    asked = Terminal(lab, "Add CSV export").wait_for("Keep it?")
    asked.process.kill()
    asked.process.wait()
    assert lab.own_files() == before
    assert next(lab.root.glob(f".ralph/runs/*/draft/{OPENSPEC}/tasks.md")).read_text() == STORIES


# --- killed while it is put in place ----------------------------------------------------------------

KEEP = """\
import sys
from ralphtool.loop import drafted
from ralphtool.specs import scaffold
root, folder, file = sys.argv[1:]
made = scaffold.plan(root, "Add CSV export", file=file or None)
request = drafted.PlanRequest(root=root, idea="Add CSV export", made=made)
draft = drafted.DraftedChange(request=request, run="add-csv-export-20260301-220000-1a2b", folder=folder, texts={})
drafted.keep(drafted.read_draft(draft))
"""


@pytest.mark.parametrize(("files", "file"), [(GOOD, ""), ({"docs/csv.md": CHECKLIST}, "docs/csv.md")])
def test_killed_at_any_system_call_there_is_nothing_or_the_whole_change(
    tmp_path: Path, files: dict[str, str], file: str
) -> None:
    need_strace()
    with in_memory(tmp_path) as top:
        lab = prepare_keeping(top, files)
        words = [sys.executable, "-c", KEEP, str(lab.root), str(top / "draft"), file]
        log = top / "calls.log"
        assert trace(lab, words, "-o", str(log), "-e", f"trace={list_names(CHANGING)}") == 0
        log.write_text("\n".join(f"1 {line}" for line in log.read_text(errors="replace").splitlines()))
        calls = [call for call in calls_in(log) if str(lab.root) in call.text]
        assert {"rename", "mkdir"} <= {call.operation for call in calls} or file
        assert len(calls) >= 6
        for call in sample(calls, 3):
            lab = prepare_keeping(top, files)
            trace(lab, words, "-o", os.devnull, *injected(call.name, call.number, "signal=KILL"))
            check_all_or_nothing(lab, files, str(call))
            again = subprocess.run(words, cwd=lab.root, env=lab.env, capture_output=True, check=False)
            is_there = any(word in again.stderr for word in (b" already", b"it is gone"))  # from the draft's folder
            assert again.returncode == 0 or is_there, f"after {call}: {again.stderr!r}"
            assert {path: lab.read(path) for path in files} == files, str(call)


def prepare_keeping(top: Path, files: dict[str, str]) -> PlanLab:
    """A project, and a draft that its user has accepted."""
    for name in ("project", "tmp", "home", "draft"):
        shutil.rmtree(top / name, ignore_errors=True)
    lab = PlanLab(top)
    lab.write("openspec/project.md", "x\n")
    lab.write(".ralph/runs/add-csv-export-20260301-220000-1a2b/events.jsonl", "")
    for path, text in files.items():
        (top / "draft" / path).parent.mkdir(parents=True, exist_ok=True)
        (top / "draft" / path).write_text(text)
    return lab


def trace(lab: PlanLab, words: list[str], *options: str) -> int:
    """Only the command itself is traced."""
    done = subprocess.run(["strace", "-qq", "-y", *options, *words], cwd=lab.root, env=lab.env, capture_output=True)
    return done.returncode


def check_all_or_nothing(lab: PlanLab, files: dict[str, str], moment: str) -> None:
    found = {str(path.relative_to(lab.root)): path for path in lab.root.rglob("*.md") if path.is_file()}
    there = {name: path.read_text() for name, path in found.items() if ".ralph" not in name}
    there.pop("openspec/project.md")
    assert there in ({}, files), f"after {moment}: {sorted(there)}"
    changes = [one["name"] for one in lab.run("list", "--json").json["changes"]]
    assert changes in ([], ["add-csv-export"]), f"after {moment}"
