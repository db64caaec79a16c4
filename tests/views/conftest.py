"""The fixtures of the tests of the views."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from views.tmux import Terminal


@pytest.fixture
def terminal(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    if not shutil.which("tmux"):
        pytest.skip("tmux is not installed")
    started = Terminal(tmp_path, *request.param)
    yield started
    started("kill-server")
