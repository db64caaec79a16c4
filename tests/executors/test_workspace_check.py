"""Source that is broken on purpose, to test whether the gates notice."""

from __future__ import annotations

import time
from pathlib import Path

from ralphtool.executors.workspace_check import break_file


def test_a_broken_file_is_newer_by_whole_seconds(tmp_path: Path) -> None:
    """Python's compileall checks nothing else, and the gate before may have compiled the file in the same second."""
    source = tmp_path / "cart.py"
    source.write_text("total = 3\n")
    began = int(time.time())
    break_file(str(source))
    assert "total" not in source.read_text()
    assert source.stat().st_mtime >= began + 2
