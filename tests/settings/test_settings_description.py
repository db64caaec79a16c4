"""Every setting is described: for the settings page, and for the help of the flags."""

from __future__ import annotations

import re
from pathlib import Path

import click
from settingsfile import parse, read_error

from ralphtool import settings
from ralphtool.cli.run import run
from ralphtool.settings import (
    AgentSettings,
    BlockerSettings,
    MemorySettings,
    NotifySettings,
    PriceSettings,
    PromptSettings,
    ProofSettings,
    RunSettings,
    SandboxSettings,
    Settings,
    VerifySettings,
)
from ralphtool.settings.executor import ExecutorSettings
from ralphtool.settings.otel import OtelSettings
from ralphtool.settings.trackers import BeadsSettings, GithubSettings

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "settings.md").read_text()


def test_every_setting_is_described() -> None:
    rows = settings.describe()
    tables = {
        "run": RunSettings,
        "verify": VerifySettings,
        "proof": ProofSettings,
        "memory": MemorySettings,
        "prompt": PromptSettings,
        "sandbox": SandboxSettings,
        "blockers": BlockerSettings,
        "executor": ExecutorSettings,
        "notify": NotifySettings,
        "otel": OtelSettings,
        "specs.github": GithubSettings,
        "specs.beads": BeadsSettings,
        "agents.NAME": AgentSettings,
        "prices.MODEL": PriceSettings,
    }
    wanted = [(name, key) for name, table in tables.items() for key in table.__struct_fields__]
    assert [(row.table, row.key) for row in rows] == wanted
    assert [row for row in rows if not row.help.endswith(".") or not row.words] == []


def test_settings_that_are_true_or_false_are_flags_without_a_value() -> None:
    rows = {row.key: row for row in settings.describe("run") if row.flag}
    flags = dict(settings.list_flags())
    assert flags == {key: row.default in ("true", "false") for key, row in rows.items()}
    options = {one.name: one for one in run.params if isinstance(one, click.Option) and one.name in flags}
    assert {name: one.is_flag for name, one in options.items()} == flags
    assert {name: one.opts for name, one in options.items()} == {key: [row.flag] for key, row in rows.items()}


def test_the_defaults_that_are_told_are_the_defaults() -> None:
    told = [row for row in settings.describe() if row.default]
    lines = "".join(f"{row.table}.{row.key} = {row.default}\n" for row in told)
    assert parse(lines) == Settings(agents={"NAME": AgentSettings()}, prices={"MODEL": PriceSettings()})
    assert {row.key: row.default for row in told if row.table == "run"}["timeout"] == '"1h"'


def test_flags_are_the_settings_of_run_that_are_no_lists() -> None:
    flags = [row.flag for row in settings.describe() if row.flag]
    wanted = [key for key in RunSettings.__struct_fields__ if key not in ("spec", "agents", "setup")]
    assert flags == ["--" + key.replace("_", "-") for key in wanted]


def test_the_page_has_every_setting() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    wanted = []
    for row in settings.describe():
        default = f"`{row.default}`" if row.default else ""
        wanted.append(f"| `{row.table}.{row.key}` | {default} | {row.words} | {row.help} |")
    assert rows == wanted


def test_the_example_of_the_page_is_right() -> None:
    [text] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    found = parse(text)
    assert found.run.timeout == 2700
    assert found.agents["mine"] == AgentSettings(command=("my-agent", "--quiet"), env={"MY_AGENT_PORT": "8080"})


def test_the_complaint_of_the_page_is_what_is_said() -> None:
    [told] = re.findall(r"^\.ralph/config\.toml, (line 7: .*)$", PAGE, re.MULTILINE)
    assert read_error("\n" * 5 + "[run]\ntimout = 1") == f"config.toml, {told}"


def test_the_page_of_events_names_every_limit() -> None:
    [row] = re.findall(r"^\| `limits` \| (.*?);", (DOCS / "events.md").read_text(), re.MULTILINE)
    assert re.findall("`([a-z_]+)`", row) == list(settings.list_limits())
