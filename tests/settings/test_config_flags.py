"""Command-line flags override the file, and a wrong one is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from settingsfile import write_settings

from ralphtool import settings
from ralphtool.errors import WrongSetting
from ralphtool.settings import RunSettings, Settings, VerifySettings


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ({}, RunSettings(attempts=7, timeout=60)),
        ({"attempts": None, "timeout": None}, RunSettings(attempts=7, timeout=60)),
        ({"attempts": "5", "timeout": "2m"}, RunSettings(attempts=5, timeout=120)),
        ({"attempts": 5, "timeout": 120}, RunSettings(attempts=5, timeout=120)),
        ({"timeout": "0"}, RunSettings(attempts=7, timeout=0)),
        (
            {"max_cost": "2.5", "story_cost": "3", "max_tokens": "9"},
            RunSettings(attempts=7, timeout=60, max_cost=2.5, story_cost=3, max_tokens=9),
        ),
        ({"strict_order": True}, RunSettings(attempts=7, timeout=60, strict_order=True)),
        ({"strict_order": "true", "guard": "off"}, RunSettings(attempts=7, timeout=60, strict_order=True, guard="off")),
        (
            {"agent": "codex", "agents": ["a", "b"]},
            RunSettings(attempts=7, timeout=60, agent="codex", agents=("a", "b")),
        ),
    ],
)
def test_flags_win_over_the_file(tmp_path: Path, flags: dict[str, Any], wanted: RunSettings) -> None:
    write_settings(tmp_path, "[run]\nattempts = 7\ntimeout = 60\n[verify]\ntimeout = 1\n")
    assert settings.load(str(tmp_path), flags) == Settings(run=wanted, verify=VerifySettings(timeout=1))


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ({"timeout": "soon"}, '--timeout: must be a duration, as in --timeout "30m"'),
        ({"timeout": "-5"}, '--timeout: must be a duration, as in --timeout "30m"'),
        ({"max_time": "9999h"}, "--max-time: is too big: the maximum is a year"),
        ({"attempts": "x"}, "--attempts: must be a whole number, at least 1, as in --attempts 3"),
        ({"attempts": "0"}, "--attempts: must be a whole number, at least 1, as in --attempts 3"),
        ({"attempts": "2.0"}, "--attempts: must be a whole number, at least 1, as in --attempts 3"),
        ({"attempts": "9" * 5000}, "--attempts: is too big: the maximum is 1000000000000"),
        ({"max_cost": "nan"}, "--max-cost: must be a number, at least 0, as in --max-cost 2.50"),
        ({"guard": "of"}, '--guard: must be "off", "warn", "fail" or "strict": did you mean "off"?'),
        ({"strict_order": "maybe"}, "--strict-order: must be true or false, as in --strict-order true"),
        ({"agent": "\udcff"}, '--agent: must be a non-empty string, as in --agent "claude"'),
        ({"guard": "\udcff"}, '--guard: must be "off", "warn", "fail" or "strict"'),
        ({"attempts": "\udcff"}, "--attempts: must be a whole number, at least 1, as in --attempts 3"),
        ({"max_tim": "1"}, "unknown flag --max-tim: did you mean --max-time?"),
        ({"xyzzy": "1"}, "unknown flag --xyzzy: see ralphtool run --help"),
    ],
)
def test_wrong_flags_are_named(tmp_path: Path, flags: dict[str, Any], wanted: str) -> None:
    with pytest.raises(WrongSetting) as caught:
        settings.load(str(tmp_path), flags)
    assert str(caught.value) == wanted
    assert caught.value.exit_code == 2
