"""The cache of files that several changes share: it is never older than the files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ralphtool.specs import cache

LONG_AGO = 1_700_000_000


def write(path: Path, text: str, when: int = LONG_AGO) -> None:
    path.write_text(text)
    os.utime(path, (when, when))


def read(path: Path) -> str:
    return cache.fetch(str(path), {str(path): cache.read_stamp(str(path))}, path.read_text)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write(tmp_path / "a", "one")
    return tmp_path / "a"


def test_a_file_that_stays_as_it_is_is_read_once(file: Path) -> None:
    assert read(file) == "one"
    before = file.stat()
    with file.open("r+") as opened:  # without a change of its times
        opened.write("two")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert read(file) == "one"
    assert cache.peek(str(file)) == "one"


def test_a_change_is_seen_by_its_time_its_size_and_its_place(file: Path, tmp_path: Path) -> None:
    assert read(file) == "one"
    write(file, "two", LONG_AGO + 1)
    assert read(file) == "two"
    write(file, "three", LONG_AGO + 1)
    assert read(file) == "three"
    write(tmp_path / "new", "eerht", LONG_AGO + 1)
    os.replace(tmp_path / "new", file)
    assert read(file) == "eerht"


def test_a_file_that_was_just_written_is_read_again(file: Path) -> None:
    file.write_text("now")
    assert read(file) == "now"
    assert cache.peek(str(file)) is None


def test_a_file_that_is_gone_is_no_reason_to_keep_what_it_said(file: Path) -> None:
    assert read(file) == "one"
    file.unlink()
    with pytest.raises(FileNotFoundError):
        read(file)
