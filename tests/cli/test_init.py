"""`ralphtool init`: what it finds, what it writes, and what it leaves alone."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from lab import Lab
from patience import PATIENCE
from project import COMMAND

from ralphtool import settings
from ralphtool.cli import detect
from ralphtool.cli.detect import DetectedProject, GateCommand
from ralphtool.core import gate_commands

SYSTEM = "/usr/bin:/bin"


class Bare(Lab):
    """A project, and a PATH with only the agents that a test puts there."""

    def __init__(self, top: Path) -> None:
        super().__init__(top)
        self.bin = top / "bin"
        self.bin.mkdir()
        self.env["PATH"] = f"{self.bin}:{SYSTEM}"

    def install(self, *names: str, script: str = "echo 99.0.0") -> None:
        for name in names:
            (self.bin / name).write_text(f"#!/bin/sh\n{script}\n")
            (self.bin / name).chmod(0o755)

    @property
    def config(self) -> str:
        return self.read(".ralph/config.toml")

    def ignored(self, path: str) -> bool:
        return self.git("check-ignore", "--no-index", path, check=False) != ""


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    return Bare(tmp_path)


def test_it_writes_what_it_finds(bare: Bare) -> None:
    bare.git("init", "--quiet")
    bare.openspec()
    bare.write("Makefile", "lint:\n\ttrue\ntest:\n\ttrue\n")
    bare.install("codex", "claude", "make")
    before = (bare.git("status", "--porcelain"), bare.read("Makefile"))
    told = bare.run("init", "--json").json
    assert told["created"] is True
    assert (told["agent"], told["agents"]) == ("claude", ["claude", "codex"])
    assert told["changes"] == ["add-login"]
    commit = 'git add .ralph/config.toml && git commit -m "Set up ralphtool"'
    assert told["next"] == ["ralphtool doctor", commit, "ralphtool run --dry-run"]
    loaded = settings.load(str(bare.root))
    assert loaded.run.agent == "claude"
    assert (loaded.verify.checks, loaded.verify.tests) == (("make lint",), ("make test",))
    assert gate_commands.find_commands(str(bare.root)).tests == ["make test"]
    assert len(bare.config.splitlines()) <= 30
    assert told["gitignore"]["added"] is False, "nobody has agreed"
    assert not (bare.root / ".gitignore").exists()
    assert bare.read("Makefile") == before[1]


def test_it_says_what_to_commit(bare: Bare) -> None:
    bare.git("init", "--quiet")
    bare.git("config", "user.name", "Tester")
    bare.git("config", "user.email", "tester@example.org")
    shown = bare.run("init", "--yes").stdout
    [command] = [line.strip() for line in shown.splitlines() if line.startswith("  git add ")]
    assert command == 'git add .gitignore .ralph/config.toml && git commit -m "Set up ralphtool"'
    subprocess.run(["sh", "-c", command], cwd=bare.root, env=bare.env, check=True, stdout=subprocess.DEVNULL)
    assert bare.git("status", "--porcelain") == ""
    assert "git add" not in bare.run("init", "--yes").stdout, "nothing was changed"


def test_it_names_a_file_once_that_was_removed_from_the_index(bare: Bare) -> None:
    bare.git("init", "--quiet")
    bare.write(".gitignore", "build/\n")
    bare.git("add", ".gitignore")
    bare.git("-c", "user.name=Tester", "-c", "user.email=tester@example.org", "commit", "--quiet", "--message=first")
    bare.git("rm", "--quiet", "--cached", ".gitignore")
    assert "  git add .gitignore .ralph/config.toml && git commit" in bare.run("init", "--yes").stdout


def test_what_git_ignores_is_not_to_be_committed(bare: Bare) -> None:
    assert "git add" not in bare.run("init", "--yes", "--here").stdout, "there is no repository"
    shutil.rmtree(bare.root / ".ralph")
    bare.git("init", "--quiet")
    bare.write(".gitignore", ".ralph/\n")
    assert "git add .gitignore &&" not in bare.run("init", "--yes").stdout


def test_in_a_folder_of_a_repository_it_names_that_folder(bare: Bare) -> None:
    bare.git("init", "--quiet")
    place = bare.root / "a shop[1]"
    place.mkdir()
    done = bare.run("init", "--yes", "--here", cwd=place)
    assert "git add .gitignore .ralph/config.toml && git commit" in done.stdout


def test_it_says_where_work_will_happen(bare: Bare) -> None:
    told = bare.run("init").stdout
    assert "where    work happens in " in told
    written = (bare.root / ".ralph/config.toml").read_text()
    assert '# workspace = "auto"' in written
    assert "# [sandbox]" in written


def test_every_example_in_the_settings_holds(tmp_path: Path) -> None:
    """If a # is removed, the file is still valid."""
    gates = (GateCommand("checks", "ruff check .", None), GateCommand("tests", "python -m pytest", "python"))
    found = DetectedProject(root=str(tmp_path), is_repository=True, changes=(), gates=gates, agents=("claude", "codex"))
    for agent in (None, "claude", "mini", "scripted", "command"):
        text = detect.render_settings(found, agent)
        lines = [line.removeprefix("# ") for line in text.splitlines()]
        live = [line for line in lines if line.startswith("[") or " = " in line]
        loaded = settings.parse("\n".join(live), "config.toml")
        assert loaded.run.max_cost == 20
        assert loaded.notify.command == ("notify-send", "ralphtool")
        assert loaded.verify.checks == ("ruff check .",)
        assert loaded.verify.tests == ("python -m pytest",), "a command is right also where its program is missing"
        assert len(text.splitlines()) <= 30


def test_a_second_time_changes_nothing(bare: Bare) -> None:
    bare.git("init", "--quiet")
    bare.install("claude")
    assert bare.run("init", "--yes").exit_code == 0
    before = bare.own_files(), bare.config
    again = bare.run("init", "--yes")
    assert (again.exit_code, again.stderr) == (0, "")
    assert "already exists and is not changed" in again.stdout
    assert "ralphtool doctor" in again.stdout
    assert (bare.own_files(), bare.config) == before
    assert bare.run("init", "--agent", "claude").exit_code == 0
    refused = bare.run("init", "--agent", "codex", "--json")
    assert 'agent = "codex" under [run]' in refused.error["error"]
    assert (bare.own_files(), bare.config) == before


@pytest.mark.parametrize(
    ("files", "command", "note"),
    [
        (
            {"pyproject.toml": "[tool.pytest]\n", "uv.lock": ""},
            "uv run pytest",
            "uv is not installed here: pip install uv",
        ),
        ({"package.json": '{"scripts": {"test": "x"}}', "pnpm-lock.yaml": ""}, "pnpm test", "npm install -g pnpm"),
        ({"go.mod": "module a\n"}, "go test ./...", "go is not installed here: install Go"),
    ],
    ids=["uv", "pnpm", "go"],
)
def test_a_program_that_is_missing_now(bare: Bare, files: dict[str, str], command: str, note: str) -> None:
    for name, text in files.items():
        bare.write(name, text)
    for program in ("uv", "pnpm", "go"):
        if shutil.which(program, path=SYSTEM):
            bare.env["PATH"] = str(bare.bin)
            (bare.bin / "python3").symlink_to(shutil.which("python3") or "")
    told = bare.run("init").stdout
    assert note in told
    assert settings.load(str(bare.root)).verify.tests == (command,)
    [line] = [line for line in bare.config.splitlines() if note in line]
    assert line.startswith("# ")
    assert gate_commands.find_commands(str(bare.root)).tests == [command], "the quick reader can read it too"


def test_a_second_time_shows_what_is_set_and_what_could_be(bare: Bare) -> None:
    bare.install("claude")
    bare.write("Makefile", "lint test:\n")
    bare.write(
        ".ralph/config.toml",
        '[run]\nattempts = 5\n[verify]\ntests = []\nchecks = ["true"]\n'
        '[agents.mine]\ncommand = ["a"]\nenv = {KEY = "hush"}\n',
    )
    before = bare.config
    shown = bare.run("init").stdout
    for words in (
        "run.attempts = 5",
        'verify.checks = ["true"]',
        'agents.mine.command = ["a"]',
        "agents.mine.env: KEY",
    ):
        assert f"  {words}\n" in shown
    assert "hush" not in shown
    told = bare.run("init", "--json").json
    assert told["proposed"] == ["[run]", 'agent = "claude"', "[verify]", 'tests = ["make test"]']
    assert all(f"  {line}\n" in shown for line in told["proposed"])
    assert (bare.config, told["created"]) == (before, False)


def test_a_second_time_where_nothing_is_left_to_add(bare: Bare) -> None:
    bare.install("claude", "make")
    bare.write("Makefile", "lint test:\n")
    assert bare.run("init", "--json").json["proposed"] is None
    assert bare.run("init", "--json").json["proposed"] == []
    assert "You may want to add" not in bare.run("init").stdout


def test_settings_of_the_user_s_are_never_touched(bare: Bare) -> None:
    bare.write(".ralph/config.toml", b"this is \xff no TOML")
    before = bare.snapshot()
    result = bare.run("init", "--yes")
    assert (result.exit_code, "can't be read" in result.stdout) == (0, True)
    assert bare.snapshot() == before


@pytest.mark.parametrize(
    ("before", "end"),
    [(None, "\n"), ("", "\n"), ("*.pyc\n", "\n"), ("*.pyc", "\n"), ("*.pyc\r\n*.o", "\r\n"), ("*.pyc\r\n", "\r\n")],
)
def test_what_git_should_not_keep(bare: Bare, before: str | None, end: str) -> None:
    bare.git("init", "--quiet")
    if before is not None:
        bare.write(".gitignore", before).chmod(0o640)
    assert bare.run("init", "--yes").exit_code == 0
    whole = (before or "") + (end if before and not before.endswith("\n") else "")
    assert bare.read(".gitignore") == whole + end.join((*detect.IGNORED, ""))
    assert before is None or (bare.root / ".gitignore").stat().st_mode & 0o777 == 0o640
    passing = ("locks/a.lock", "memory.index", "runs/x/events.jsonl", "questions/a.md", "progress.journal")
    assert [path for path in passing if not bare.ignored(f".ralph/{path}")] == []
    assert not any(bare.ignored(f".ralph/{path}") for path in ("config.toml", "progress.json", "prompts/task.md"))
    assert bare.run("init", "--json").json["gitignore"]["state"] == "fine"


def test_what_is_kept_out_on_purpose_stays_out(bare: Bare) -> None:
    bare.git("init", "--quiet")
    bare.write(".gitignore", ".ralph/progress.json\n")
    assert bare.run("init", "--yes").exit_code == 0
    assert (bare.ignored(".ralph/progress.json"), bare.ignored(".ralph/config.toml")) == (True, False)
    before = bare.read(".gitignore")
    assert bare.run("init", "--yes").exit_code == 0
    assert bare.read(".gitignore") == before


def test_where_another_rule_wins_no_lines_are_added_again_and_again(bare: Bare) -> None:
    bare.git("init", "--quiet")
    bare.run("init", "--yes")
    bare.write(".ralph/.gitignore", "!runs/\n!runs/*\n")
    before = bare.read(".gitignore")
    for _ in range(2):
        told = json.loads(bare.run("doctor", "--fix", "--no-gates", "--json").stdout)["findings"]
        [finding] = [one for one in told if ".gitignore" in one["text"]]
        assert (finding["fixed"], "check-ignore" in finding["done"]) == (False, True)
    assert bare.read(".gitignore") == before


def test_git_that_ignores_everything_is_told(bare: Bare) -> None:
    bare.git("init", "--quiet")
    bare.write(".gitignore", ".ralph/\n")
    result = bare.run("init", "--yes")
    assert "history (progress.json) are not committed" in result.stdout
    assert bare.read(".gitignore") == ".ralph/\n"


def test_without_git(bare: Bare) -> None:
    result = bare.run("init", "--yes")
    assert result.exit_code == 0
    assert "not a git repository: work can't be committed or undone" in result.stdout
    assert sorted(path.name for path in bare.root.iterdir()) == [".ralph"]


def test_without_any_agent(bare: Bare) -> None:
    result = bare.run("init")
    assert "npm install -g @anthropic-ai/claude-code" in result.stdout
    assert settings.load(str(bare.root)).run.agent is None
    assert '# agent = "claude"' in bare.config


def test_agents_that_are_not_there_to_be_found(bare: Bare) -> None:
    assert bare.run("init", "--agent", "nobody", "--json").error["code"] == "INVALID_VALUE"
    assert not (bare.root / ".ralph").exists()
    assert bare.run("init", "--agent", "scripted").exit_code == 0
    assert settings.load(str(bare.root)).run.agent == "scripted"


def test_a_part_of_a_bigger_project(bare: Bare) -> None:
    bare.git("init", "--quiet")
    part = bare.root / "packages/part"
    part.mkdir(parents=True)
    assert "init --here" in bare.run("init", cwd=part).stdout
    assert (bare.root / ".ralph/config.toml").exists()
    told = bare.run("init", "--here", "--yes", "--json", cwd=part).json
    assert told["root"] == str(part)
    assert bare.ignored("packages/part/.ralph/runs/x")
    assert not bare.ignored("packages/part/.ralph/progress.json")
    assert not (bare.root / ".gitignore").exists()


@pytest.mark.parametrize("kind", ["file", "link"])
def test_where_our_folder_belongs_is_something_else(bare: Bare, kind: str) -> None:
    elsewhere = bare.root.parent / "elsewhere"
    elsewhere.mkdir()
    if kind == "file":
        bare.write(".ralph", "mine")
    else:
        (bare.root / ".ralph").symlink_to(elsewhere)
    result = bare.run("init", "--yes", "--json")
    assert result.error["code"] == "UNSAFE_PATH"
    assert list(elsewhere.iterdir()) == []


def test_a_folder_that_may_only_be_read(bare: Bare) -> None:
    bound = []
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("root may write everywhere, and there is no setpriv to give that up")
        bound = ["setpriv", "--bounding-set=-all"]
    bare.root.chmod(0o555)
    try:
        done = subprocess.run(
            [*bound, COMMAND, "init"], cwd=bare.root, env=bare.env, capture_output=True, timeout=PATIENCE
        )
    finally:
        bare.root.chmod(0o755)
    assert done.returncode == 1
    assert b"check the permissions" in done.stderr
    assert list(bare.root.iterdir()) == []


# --- with a terminal --------------------------------------------------------------------------------


def on_a_terminal(bare: Bare, *answers: str) -> tuple[int, str]:
    """Runs `init` as a person would; each answer is typed when the command asks for it."""
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(bare.root)
        os.execve(COMMAND, [COMMAND, "init"], {**bare.env, "TERM": "dumb"})
    shown, waiting, end = b"", list(answers), time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if not select.select([fd], [], [], 1)[0]:
            continue
        try:
            chunk = os.read(fd, 4096)
        except OSError:
            break
        if not chunk:
            break
        shown += chunk
        if waiting and shown.rstrip().endswith((b"]:", b"?")):
            os.write(fd, waiting.pop(0).encode())
            shown += b"\n"
    os.close(fd)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), shown.decode()


def test_a_person_is_asked(bare: Bare) -> None:
    bare.git("init", "--quiet")
    bare.install("claude", "codex")
    code, shown = on_a_terminal(bare, "codex\n", "\n")
    assert code == 0, shown
    assert settings.load(str(bare.root)).run.agent == "codex"
    assert bare.ignored(".ralph/runs/x"), shown


def test_a_person_who_breaks_off_has_changed_nothing(bare: Bare) -> None:
    bare.git("init", "--quiet")
    bare.install("claude", "codex")
    code, shown = on_a_terminal(bare, "codex\n", "\x04")
    assert code == 130, shown
    assert sorted(path.name for path in bare.root.iterdir()) == [".git"]


def test_what_is_set_is_shown_first(bare: Bare) -> None:
    bare.write("test_x.py", "def test(): pass\n")
    bare.install("codex")
    bare.write(
        ".ralph/config.toml",
        '[run]\nagent = "scripted"\nworkspace = "here"\n[verify]\ntests = ["python3 -m unittest -q"]\n',
    )
    shown = bare.run("init").stdout
    assert "\nagents   scripted, as set; also installed: codex\n" in shown
    assert "\ngates    python3 -m unittest -q, as set\n" in shown


def test_outside_git_the_first_step_is_git_init(bare: Bare) -> None:
    bare.install("codex")
    step = "set checks and tests under [verify] in .ralph/config.toml"  # it has no tests
    assert bare.run("init", "--json").json["next"][:3] == ["git init", step, "ralphtool doctor"]
    bare.git("init", "--quiet")
    assert "git init" not in bare.run("init", "--json").json["next"]


def test_an_empty_project_names_the_next_step(bare: Bare) -> None:
    for told in (bare.run("list").stdout, bare.run("run").stderr):
        assert '`ralphtool new "Add login"`' in told


def test_an_agent_of_the_settings_is_known(bare: Bare) -> None:
    bare.write(".ralph/config.toml", '[run]\nagent = "shop"\n[agents.shop]\ncommand = ["true"]\n')
    assert bare.run("init", "--agent", "shop").exit_code == 0
    unknown = bare.run("init", "--agent", "foo")
    assert unknown.exit_code == 2
    assert "define it in .ralph/config.toml as [agents.foo]" in unknown.stderr
    assert "`ralphtool run --agent-command" in unknown.stderr, "init has no such option"


@pytest.mark.parametrize(
    ("plans", "steps"),
    [
        ({"area": "x", "beams": " ", "cells": " "}, ["ralphtool run beams --dry-run"]),
        ({"area": "x", "beams": "x"}, ['ralphtool new "What it is about"', "ralphtool run --dry-run"]),
        ({"area": "x"}, ['ralphtool new "What it is about"', "ralphtool run --dry-run"]),
        ({"area": "x", "beams": ""}, ["ralphtool run beams --dry-run"]),
    ],
    ids=["two are open", "all are done", "the only one is done", "one has no tasks yet"],
)
def test_it_suggests_an_open_change(bare: Bare, plans: dict[str, str], steps: list[str]) -> None:
    for name, mark in plans.items():
        path = f"plans/{name}.md" if mark else f"openspec/changes/{name}/tasks.md"
        bare.write(path, f"# Plan\n\n## 1. Part\n\n{f'- [{mark}] 1.1 Do it' if mark else 'Later.'}\n")
    told = bare.run("init", "--json").json["next"]
    assert told[told.index("ralphtool doctor") + 1 :] == steps


def test_it_suggests_an_agent_as_long_as_there_is_none(bare: Bare) -> None:
    for _ in range(2):
        assert any(step.startswith("install an agent") for step in bare.run("init", "--yes", "--json").json["next"])
    bare.write(".ralph/config.toml", '[run]\nagent = "claude"\n')
    assert "install an agent" not in str(bare.run("init", "--yes", "--json").json["next"])
