"""How programs are found: as `shutil.which` does, and without its module."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ralphtool.core import programs


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two folders: `tool` is a folder in the first and a program in the second, `text` can't be started."""
    for folder in ("one/tool", "two"):
        (tmp_path / folder).mkdir(parents=True)
    for name, mode in (("tool", 0o755), ("text", 0o644)):
        (tmp_path / "two" / name).write_text("#!/bin/sh\n")
        (tmp_path / "two" / name).chmod(mode)
    (tmp_path / "two/gone").symlink_to("nowhere")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}/none:{tmp_path}/one:{tmp_path}/two")
    return tmp_path


def test_it_is_found_on_the_path(places: Path) -> None:
    assert programs.find("tool") == str(places / "two/tool")


@pytest.mark.parametrize("name", ["tool", "text", "gone", "no-such-program", "two/tool", "./two/text", "one/tool", ""])
@pytest.mark.parametrize("path", [None, "", "two", ":two", "one:two"])
def test_the_same_as_the_standard_library(places: Path, name: str, path: str | None) -> None:
    assert programs.find(name, path) == shutil.which(name, path=path)


def test_a_program_in_the_working_directory_is_found_only_if_the_path_has_it(places: Path) -> None:
    os.chdir("two")
    assert programs.find("tool", "/nowhere") is None
    assert programs.find("tool", ":/nowhere") == "tool"
