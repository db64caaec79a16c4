"""Claude Code on a cloud provider has no login in a box: a notice names the settings that pass it in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lab import Lab

from ralphtool import agents
from ralphtool.loop import cloud_login
from ralphtool.settings import SandboxSettings, Settings

AWS_HOSTS = (
    '"bedrock-runtime.eu-west-1.amazonaws.com", "bedrock.eu-west-1.amazonaws.com", "sts.eu-west-1.amazonaws.com"'
)
BEDROCK = {"CLAUDE_CODE_USE_BEDROCK": "1", "AWS_PROFILE": "work", "AWS_REGION": "eu-west-1"}
VERTEX = {"CLAUDE_CODE_USE_VERTEX": "1", "CLOUD_ML_REGION": "us-east5"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (*BEDROCK, *VERTEX, "AWS_DEFAULT_REGION", "GOOGLE_APPLICATION_CREDENTIALS", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws").mkdir()
    return tmp_path


def describe(home: Path, agent: str = "claude", **sandbox: Any) -> list[str]:
    settings = Settings(sandbox=SandboxSettings(**sandbox))
    return cloud_login.list_notices(settings, [agents.make(agent, {"command": ["true"]})], str(home))


def set_all(monkeypatch: pytest.MonkeyPatch, env: dict[str, str]) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)


def test_bedrock_by_a_profile(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, BEDROCK)
    [text] = describe(home)
    assert text.startswith("claude uses Amazon Bedrock, but the box does not have its login.")
    assert text.endswith(f': read = ["~/.aws"]; hosts = [{AWS_HOSTS}]')
    assert describe(home, "codex") == []


def test_bedrock_by_keys_and_with_settings_that_are_there_already(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, {**BEDROCK, "AWS_SECRET_ACCESS_KEY": "a" * 20, "OTHER_TOKEN": "b" * 20})
    [text] = describe(home, env=["MY_TOKEN"], read=[str(home / ".aws")], network="on")
    assert text.endswith(': env = ["MY_TOKEN", "AWS_SECRET_ACCESS_KEY"]')
    assert describe(home, env=["AWS_SECRET_ACCESS_KEY"], write=["~/.aws"], network="on") == []


@pytest.mark.parametrize(
    ("region", "host"),
    [("us-east5", "us-east5-aiplatform.googleapis.com"), ("global", "aiplatform.googleapis.com")],
)
def test_vertex_by_a_file(home: Path, monkeypatch: pytest.MonkeyPatch, region: str, host: str) -> None:
    key = home / "key.json"
    key.touch()
    set_all(monkeypatch, {**VERTEX, "CLOUD_ML_REGION": region, "GOOGLE_APPLICATION_CREDENTIALS": str(key)})
    [text] = describe(home)
    assert text.endswith(f': read = ["{key}"]; hosts = ["{host}", "oauth2.googleapis.com"]')


def test_the_switch_may_be_in_its_own_settings(home: Path) -> None:
    assert describe(home) == []
    (home / ".claude").mkdir()
    settings = home / ".claude/settings.json"
    settings.write_text('{"env": {"CLAUDE_CODE_USE_BEDROCK": "1", "AWS_REGION": "eu-west-1"}}')
    assert AWS_HOSTS in describe(home)[0]
    settings.write_text('{"env": {"CLAUDE_CODE_USE_BEDROCK": "0"}}')
    assert describe(home) == []
    settings.write_text('["no settings"]')
    assert describe(home) == []


def test_doctor_says_so(lab: Lab) -> None:
    lab.repository(agent="claude", workspace="auto")
    lab.env |= BEDROCK
    found = json.loads(lab.run("doctor", "--no-gates", "--json").stdout)["findings"]
    texts = [one["text"] for one in found if one["about"] == "sandbox" and one["state"] == "warning"]
    assert any("Amazon Bedrock" in text and AWS_HOSTS in text for text in texts), found
