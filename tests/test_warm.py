"""A forked call behaves like any other: the same output, the same ending, and no process left behind."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from lab import DONE, Lab
from project import COMMAND, Ralph, call, start_warm
from warm import MOST_INPUT, starts_warm

CALLS = [
    ["--version"],
    ["--help"],
    ["list", "--json"],
    ["list"],
    ["progress", "entries", "--json"],
    ["run", "no-such-change", "--json"],
    ["no-such-command"],
    ["list", "--no-such-option", "ünïcode", "\udcff"],
    ["agent", "context"],
    ["agent", "learn", "ünïcode", "\udcff"],
    ["agent", "no-such-command"],
]


def call_cold(ralph: Ralph, arguments: list[str], **env: str) -> subprocess.CompletedProcess[bytes]:
    command = [COMMAND, *arguments]
    return subprocess.run(command, input=b"", cwd=ralph.root, env={**ralph.env, **env}, capture_output=True)


@pytest.mark.parametrize("arguments", CALLS, ids=" ".join)
def test_it_says_and_ends_as_the_command_does(project: Ralph, arguments: list[str]) -> None:
    assert starts_warm(arguments, b"", project.root, project.env)
    warm = start_warm().run(arguments, b"", project.root, project.env, 60)
    cold = call_cold(project, arguments)
    assert (warm.returncode, warm.stdout, warm.stderr) == (cold.returncode, cold.stdout, cold.stderr)


def test_a_session_is_seen_and_changed_as_by_the_command(project: Ralph) -> None:
    project.begin()
    for arguments in (["agent", "context"], ["agent", "status"], ["agent", "task", "done", "1.9"]):
        warm = start_warm().run(arguments, b"", project.root, {**project.env, "RALPH_SESSION": "s1"}, 60)
        cold = call_cold(project, arguments, RALPH_SESSION="s1")
        assert (warm.returncode, warm.stdout, warm.stderr) == (cold.returncode, cold.stdout, cold.stderr)
    assert (
        start_warm()
        .run(["agent", "task", "done", "1.1"], b"", project.root, {**project.env, "RALPH_SESSION": "s1"}, 60)
        .returncode
        == 0
    )
    assert "- [x] 1.1" in project.tasks_file.read_text()


def test_its_folder_is_that_of_the_call(project: Ralph) -> None:
    below = project.root / "below"
    below.mkdir()
    assert b"add-login" in call(["list", "--json"], b"", below, project.env, 60).stdout
    assert b"add-login" not in call(["list", "--json"], b"", project.tmp, project.env, 60).stdout


def test_many_at_once_get_their_own_answers(tmp_path: Path) -> None:
    def ask(number: int) -> str:
        place = tmp_path / str(number)
        place.mkdir()
        ralph = Ralph(place)
        ralph.openspec(change=f"change-{number}")
        return ralph.run("list", "--json").stdout

    with ThreadPoolExecutor(4) as pool:
        for number, told in enumerate(pool.map(ask, range(8))):
            assert f'"change-{number}"' in told


def test_one_that_takes_too_long_is_ended(lab: Lab) -> None:
    lab.repository(timeout="60s").play(default=[{"hang": True}])
    with pytest.raises(subprocess.TimeoutExpired):
        start_warm().run(["run", "--json"], b"", lab.root, lab.env, 3)
    lab.play(default=DONE)
    assert lab.loop().exit_code == 0  # the change is no longer locked


@pytest.mark.parametrize(
    "env", [{"PYTHONPATH": "x"}, {"LD_PRELOAD": "x"}, {"LC_ALL": "C"}, {"LC_ALL": "", "LANG": "x"}]
)
def test_what_python_looks_at_when_it_starts_is_left_to_the_command(ralph: Ralph, env: dict[str, str]) -> None:
    assert starts_warm(["list"], b"", ralph.root, ralph.env)
    assert not starts_warm(["list"], b"", ralph.root, {**ralph.env, **env})


@pytest.mark.parametrize("arguments", [["accept", "1"], ["reject", "1"], ["mcp"]])
def test_what_others_look_at_is_left_to_the_command(ralph: Ralph, arguments: list[str]) -> None:
    assert not starts_warm(arguments, b"", ralph.root, ralph.env)
    assert not starts_warm(["list"], b"x" * (MOST_INPUT + 1), ralph.root, ralph.env)
    assert not starts_warm(["list"], b"", ralph.root / "missing", ralph.env)
