"""Commands for people: list, show, unlock, completion, and what errors look like."""

from __future__ import annotations

import errno
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest
from patience import PATIENCE
from project import COMMAND, Ralph

from ralphtool import __version__
from ralphtool.core import crashlog
from ralphtool.errors import from_os_error

PRD = (
    '{"branchName": "ralph/orders", "userStories": [{"id": "US-1", "title": "See", "acceptanceCriteria": ["a", "b"]}]}'
)


@pytest.fixture
def every_format(project: Ralph) -> Ralph:
    project.write("prd.json", PRD)
    project.write("specs/001-search/tasks.md", "## Phase 1: Setup\n- [x] T001 a\n- [ ] T002 b\n")
    project.write("TODO.md", "# To do\n- [ ] one\n")
    return project


def test_list_shows_every_format(every_format: Ralph) -> None:
    every_format.begin()
    every_format.agent("task", "done", "1.1")
    shown = every_format.run("list")
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["add-login", "openspec"],
        ["orders", "prd"],
        ["001-search", "speckit"],
        ["TODO", "checklist"],
    ]
    assert lines[0].endswith("███░░░░░░░░░  tasks 1/4  stories 0/2  locked by s1")
    assert "\x1b" not in shown.stdout


def test_list_json_has_exactly_the_promised_keys(every_format: Ralph) -> None:
    every_format.begin("orders")
    every_format.agent("task", "done", "US-1.1")
    changes = every_format.run("list", "--json").json["changes"]
    assert changes[1] == {
        "name": "orders",
        "adapter": "prd",
        "path": str(every_format.root / "prd.json"),
        "stories_total": 1,
        "stories_done": 0,
        "tasks_total": 2,
        "tasks_done": 1,
        "locked_by": "s1",
    }
    assert all(set(change) == set(changes[1]) for change in changes)
    assert [change["locked_by"] for change in changes] == [None, "s1", None, None]


def test_list_goes_on_when_one_change_is_broken(every_format: Ralph) -> None:
    every_format.write("openspec/changes/add-login/tasks.md", b"## 1. A\n- [ ] 1.1 \xff\n")
    every_format.write("openspec/changes/empty/proposal.md", "# Why\n")
    every_format.write("prd.json", "{ // no\n}")
    shown = every_format.run("list")
    assert shown.exit_code == 0
    assert "UTF-8" in shown.stdout.splitlines()[0]
    assert "no tasks yet" in shown.stdout.splitlines()[1]
    assert "not JSON" in shown.stdout.splitlines()[2]
    assert len(shown.stdout.splitlines()) == 5
    counted = every_format.run("list", "--json")
    assert counted.exit_code == 0
    assert counted.stderr.count("Warning:") == 2


def test_list_tells_a_newcomer_where_it_looks(ralph: Ralph) -> None:
    shown = ralph.run("list")
    assert shown.exit_code == 0
    for place in ("openspec/changes", "prd.json", "specs/", "fix_plan.md"):
        assert place in shown.stdout
    assert ralph.run("list", "--json").json == {"changes": []}


def test_show_has_stories_tasks_scenarios_and_the_holder(project: Ralph) -> None:
    project.begin()
    project.agent("task", "done", "1.1")
    shown = project.run("show", "add-login").stdout
    for text in ("locked by session s1", "[ ] 1. Set up 1/2", "    [x] 1.1  Make the folder", "auth / Login"):
        assert text in shown
    assert re.search(r"locked by session s1 \(since \d{4}-\d\d-\d\d \d\d:\d\d\)", shown)  # as people write times
    for clause in ("given a known user", "when the password is right", "then the user is in"):
        assert clause in shown
    project.agent("session", "flush")
    assert "not locked" in project.run("show", "add-login").stdout


def test_show_says_what_waits_and_what_is_optional(ralph: Ralph) -> None:
    ralph.write("TODO.md", "## A\n- [ ] a\n## B (depends on 1)\n- [ ] b\n# Future\n## C\n- [ ] c\n")
    shown = ralph.run("show", "TODO").stdout
    assert "2. B (depends on 1) 0/1  (waits for 1)" in shown
    assert "3. C 0/1  (optional)" in shown
    stories = ralph.run("show", "TODO", "--json").json["stories"]
    assert [story["depends_on"] for story in stories] == [[], ["1"], []]
    assert [story["optional"] for story in stories] == [False, False, True]


def test_hostile_text_does_not_reach_the_terminal_raw(ralph: Ralph) -> None:
    ralph.write("TODO.md", "## \x1b]0;title\x07 \u202eleft\n- [ ] \x1b[2J gone\n")
    for shown in (ralph.run("show", "TODO"), ralph.run("show", "TODO", "--json")):
        assert shown.exit_code == 0
        assert not {"\x1b", "\x07", "\u202e"} & set(shown.stdout)
    assert "\\x1b[2J gone" in ralph.run("show", "TODO").stdout


def test_unlock_frees_the_change_and_says_so(project: Ralph) -> None:
    project.begin()
    project.agent("learn", "kept")
    told = project.run("unlock", "add-login")
    assert told.exit_code == 0
    assert "s1" in told.stdout
    assert project.run("list", "--json").json["changes"][0]["locked_by"] is None
    project.agent("session", "init", "--change", "add-login", session="s2")
    assert [learning["description"] for learning in project.session("s2")["learnings"]] == ["kept"]
    assert not project.session_file("s1").exists()


def test_unlock_of_a_free_change_is_no_error(project: Ralph) -> None:
    before = project.snapshot()
    told = project.run("unlock", "add-login")
    assert told.exit_code == 0
    assert "not locked" in told.stdout
    assert project.snapshot() == before


def test_unlock_puts_a_damaged_lock_aside(project: Ralph) -> None:
    project.write(".ralph/locks/add-login.lock", b"\x00garbage")
    assert project.run("unlock", "add-login").exit_code == 0
    assert project.read(".ralph/locks/add-login.lock.damaged") == "\x00garbage"
    assert project.agent("session", "init", "--change", "add-login").exit_code == 0


def test_errors_name_the_next_step(project: Ralph) -> None:
    told = project.run("show", "add-logni")
    assert told.exit_code == 1
    assert told.stdout == ""
    assert told.stderr.startswith("Error: ")
    assert "add-login" in told.stderr
    assert "ralphtool list" in told.stderr


def test_errors_are_json_where_json_was_asked_for(project: Ralph) -> None:
    assert project.run("show", "nothing", "--json").code == "CHANGE_NOT_FOUND"


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["show", "a", "b"], ["list", "--nonsense"], ["completion", "tcsh"]]
)
def test_a_wrong_command_line_is_exit_2(ralph: Ralph, arguments: list[str]) -> None:
    told = ralph.run(*arguments)
    assert told.exit_code == 2
    assert "--help" in told.stderr


def test_what_can_not_be_written_ends_no_command(project: Ralph) -> None:
    assert project.run("--help", PYTHONIOENCODING="latin-1").exit_code == 0
    for command in (["list"], ["runs"], ["questions"], ["--help"]):
        told = subprocess.run(["sh", "-c", f"{COMMAND} {' '.join(command)} >&-"], cwd=project.root, env=project.env)
        assert told.returncode == 0


def test_version(ralph: Ralph) -> None:
    assert re.fullmatch(rf"ralphtool {re.escape(__version__)}( \([0-9a-f]{{7}}\))?\n", ralph.run("--version").stdout)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_has_examples(ralph: Ralph, arguments: list[str]) -> None:
    shown = ralph.run(*arguments)
    assert shown.exit_code == 0
    assert "Examples:" in shown.stdout
    assert "agent" in shown.stdout


@pytest.mark.parametrize("command", ["list", "show", "learnings", "unlock", "completion"])
def test_every_command_has_an_example(ralph: Ralph, command: str) -> None:
    assert "Example" in ralph.run(command, "--help").stdout


def test_agent_help_says_that_it_is_for_programs(ralph: Ralph) -> None:
    for arguments in (["--help"], ["learn", "--help"], ["session", "-h"]):
        shown = ralph.agent(*arguments, session=None)
        assert shown.exit_code == 0
        assert "for programs" in shown.stdout
        assert shown.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(ralph: Ralph, shell: str) -> None:
    shown = ralph.run("completion", shell)
    assert shown.exit_code == 0
    assert "_RALPHTOOL_COMPLETE" in shown.stdout


def test_the_names_of_changes_are_completed(project: Ralph) -> None:
    shown = project.run(_RALPHTOOL_COMPLETE="bash_complete", COMP_WORDS="ralphtool show add", COMP_CWORD="2")
    assert shown.stdout == "plain,add-login\n"


def in_a_terminal(project: Ralph, **env: str) -> str:
    """What `ralphtool list` prints when its output is a terminal."""
    ours, theirs = pty.openpty()
    environment = {**project.env, "TERM": "xterm", **env}
    subprocess.run([COMMAND, "list"], cwd=project.root, env=environment, stdout=theirs, check=True, timeout=PATIENCE)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:  # the other side is closed: everything has been read
        pass
    os.close(ours)
    return shown.decode()


def test_colours_in_a_terminal_unless_they_are_unwanted(project: Ralph) -> None:
    assert "\x1b[1m" in in_a_terminal(project)
    assert "\x1b" not in in_a_terminal(project, NO_COLOR="1")


def test_ascii_bars_where_the_terminal_has_no_unicode(project: Ralph) -> None:
    assert "............" in project.run("list", PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C").stdout


def test_output_into_a_closed_pipe_is_no_crash(every_format: Ralph) -> None:
    script = f"{COMMAND} show add-login | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=every_format.root,
        env=every_format.env,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stderr == ""
    assert done.stdout.strip() in ("0", "1")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["list", "extra"], "unexpected extra argument"),
        (["show", "--bogus"], "No such option '--bogus'"),
        (["progress", "entries", "--last", "x"], "'--last': 'x'"),
        (["progress", "learnings", "--type", "nope"], "'nope' is not one of 'codebase-pattern'"),
    ],
)
def test_a_wrong_command_line_is_one_object_with_json(ralph: Ralph, words: list[str], told: str) -> None:
    error = ralph.run(*words, "--json")
    assert (error.exit_code, error.stdout, error.code) == (2, "", "USAGE")
    assert told in error.stderr
    assert "Usage: " in ralph.run(*words).stderr


@pytest.mark.parametrize("path", ["notes.txt", None])
def test_an_unusual_error_of_the_system_says_what_can_be_done(path: str | None) -> None:
    told = str(from_os_error(OSError(errno.ENOTDIR, "Not a directory", path)))
    assert "fix that" not in told
    assert ("check what is at that path" in told) == (path is not None)
    assert ("`ralphtool doctor`" in told) == (path is None)


def test_a_bug_claims_nothing_about_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have come after some were written."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    told = crashlog.report(KeyError("x"), ["run"])
    assert re.fullmatch(r"KeyError in ralphtool itself: this is a bug in ralphtool\. Please report it with \S+", told)
