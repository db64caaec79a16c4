"""Whether the files of a story may be what fills a disk."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ralphtool.agents import End
from ralphtool.executors import Report, disk

MEGABYTE = 1 << 20


def fills(root: Path, prefix: str, *paths: str) -> bool:
    workspace: Any = SimpleNamespace(root=str(root), prefix=prefix)
    report = Report(ending="exit", end=End(False), paths=paths, full_disk="/small")
    return disk.look_at(report, workspace, str(root)).fills_disk


@pytest.fixture(autouse=True)
def _full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda place: SimpleNamespace(f_bfree=0, f_bavail=0, f_frsize=1, f_files=0))


def test_large_files_do_and_small_ones_do_not(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(2 * MEGABYTE))
    (tmp_path / "small").write_bytes(b"x")
    assert fills(tmp_path, "", "large")
    assert not fills(tmp_path, "", "small", "removed by the story")


def test_many_small_files_do(tmp_path: Path) -> None:
    names = [str(number) for number in range(400)]
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    assert fills(tmp_path, "", *names) == (sum((tmp_path / name).stat().st_blocks for name in names) * 512 > MEGABYTE)
    assert fills(tmp_path, "", *(str(number) for number in range(10_001)))


def test_paths_are_those_of_the_repository(tmp_path: Path) -> None:
    (tmp_path / "shop/web").mkdir(parents=True)
    (tmp_path / "shop/web/large").write_bytes(bytes(2 * MEGABYTE))
    assert fills(tmp_path / "shop/web", "shop/web/", "shop/web/large")
