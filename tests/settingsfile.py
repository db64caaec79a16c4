"""Shared by the tests of the settings: parsing a text, the resulting error, writing a settings file."""

from __future__ import annotations

from pathlib import Path

import pytest

from ralphtool import settings
from ralphtool.errors import InvalidValue, WrongSetting
from ralphtool.settings import Settings


def parse(text: str) -> Settings:
    return settings.parse(text, "config.toml")


def read_error(text: str) -> str:
    with pytest.raises(WrongSetting) as caught:
        parse(text)
    assert caught.value.exit_code == 2
    assert isinstance(caught.value, InvalidValue)
    return str(caught.value)


def write_settings(project: Path, content: str | bytes) -> str:
    file = project / ".ralph/config.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(file)
