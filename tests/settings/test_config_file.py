"""What a good settings file means, and the values without one."""

from __future__ import annotations

from pathlib import Path

import pytest
from settingsfile import parse

from ralphtool import settings
from ralphtool.settings import AgentSettings, MemorySettings, PromptSettings, RunSettings, Settings, VerifySettings


def test_everything_has_a_default(tmp_path: Path) -> None:
    assert settings.load(str(tmp_path)) == parse("") == Settings()
    run = Settings().run
    assert (run.attempts, run.timeout, run.silence, run.guard, run.workspace) == (3, 3600, 900, "fail", "auto")
    assert Settings().verify == VerifySettings(checks=None, tests=None, timeout=1200)
    assert (Settings().memory.budget_tokens, Settings().prompt.budget_tokens) == (2000, 30000)


WHOLE = """\
[run]
spec = "docs/plan.md"
agent = "claude"
agents = ["claude", "codex"]
attempts = 5
max_iterations = 40
max_time = "8h"
timeout = "1h30m"
silence = 90
strict_order = true
setup = ["npm ci", "make"]
guard = "warn"
workspace = "worktree"
max_tokens = 1_000_000
max_cost = 20
story_tokens = 200_000
story_cost = 2.5

[verify]
checks = []
tests = ["pytest -q"]
timeout = "0"

[memory]
budget_tokens = 0

[prompt]
budget_tokens = 1

[agents.claude]
model = "opus"

[agents."my agent"]
command = ["my-agent", "-q"]
args = ["", "--x"]
env = { PORT = "8080", EMPTY = "" }
"""


def test_a_whole_file() -> None:
    assert parse(WHOLE) == Settings(
        run=RunSettings(
            spec="docs/plan.md",
            agent="claude",
            agents=("claude", "codex"),
            attempts=5,
            max_iterations=40,
            max_time=28800,
            timeout=5400,
            silence=90,
            strict_order=True,
            setup=("npm ci", "make"),
            guard="warn",
            workspace="worktree",
            max_tokens=1_000_000,
            max_cost=20,
            story_tokens=200_000,
            story_cost=2.5,
        ),
        verify=VerifySettings(checks=(), tests=("pytest -q",), timeout=0),
        memory=MemorySettings(budget_tokens=0),
        prompt=PromptSettings(budget_tokens=1),
        agents={
            "claude": AgentSettings(model="opus"),
            "my agent": AgentSettings(command=("my-agent", "-q"), args=("", "--x"), env={"PORT": "8080", "EMPTY": ""}),
        },
    )


@pytest.mark.parametrize(
    "text",
    [
        '[run]\ntimeout = "1m"\n',
        '\ufeff[run]\ntimeout = "1m"\n',
        '[run]\r\n# why\r\ntimeout = "1m"\r\n',
        'run.timeout = "1m"',
        'run = { timeout = "1m" }',
        '"run"."timeout" = 60',
        "['run']\n'timeout' = 60.0",
        "[ run ]\ntimeout=60 # seconds",
    ],
)
def test_one_setting_in_all_spellings(text: str) -> None:
    assert parse(text) == Settings(run=RunSettings(timeout=60))


def test_numbers_have_the_type_of_their_setting() -> None:
    run = parse("[run]\nmax_cost = 3\nmax_time = 60\nmax_tokens = 7").run
    assert [type(value) for value in (run.max_cost, run.max_time, run.max_tokens)] == [float, float, int]


def test_minus_zero_is_zero() -> None:
    assert str(parse("[run]\nmax_cost = -0.0").run.max_cost) == "0.0"


def test_settings_can_not_be_changed() -> None:
    with pytest.raises(AttributeError):
        parse("").run.attempts = 4  # type: ignore[misc]
