"""A git command that fails because a disk is full says so: it is not the fault of the story."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from shutil import which

import pytest
from lab import DONE, Lab

from ralphtool.errors import GitError
from ralphtool.workspace.git import Repository

MEGABYTE = 1 << 20


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A repository on a disk of two megabytes."""
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], capture_output=True).returncode:
        pytest.skip("mounting a small disk takes root")
    subprocess.run(["git", "init", "--quiet", str(place)], check=True)
    (place / ".git/ralph").mkdir()
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def add_all(place: Path) -> None:
    repository = Repository.find(str(place))
    assert repository is not None
    repository.add_all([])


def test_a_git_that_is_killed_for_lack_of_a_page(small: Path) -> None:
    """A file with holes takes up space on this kind of disk once git reads it."""
    with (small / "holes").open("wb") as file:
        file.truncate(8 * MEGABYTE)
    with pytest.raises(GitError, match="exit status -7") as told:
        add_all(small)
    assert told.value.full_disk == str(small)


def fill(file: FileIO) -> None:
    with contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass


def test_a_git_that_says_so(small: Path) -> None:
    (small / "story.txt").write_text("work\n")
    with (small / "filling").open("wb", buffering=0) as file:
        fill(file)
    with pytest.raises(GitError) as told:
        add_all(small)
    assert told.value.full_disk == str(small)
    assert str(told.value).endswith(f"(the disk of {small} is full: free some space there)")


def use_git(lab: Lab, ends: str) -> Path:
    """Once, the git that looks for huge files ends in another way. Returns the mark of that."""
    met, program = lab.root.parent / "met", lab.root.parent / "bin/git"
    program.parent.mkdir()
    is_it = f'case "$*" in *--modified*) [ -e {met} ] || {{ touch {met}; {ends}; }};; esac'
    program.write_text(f'#!/bin/sh\n{is_it}\nexec {which("git")} "$@"\n')
    program.chmod(0o755)
    lab.env["PATH"] = f"{program.parent}:{lab.env['PATH']}"
    return met


def test_it_is_not_an_attempt_even_if_space_was_freed_meanwhile(lab: Lab) -> None:
    lab.repository("## 1. First\n\n- [ ] 1.1 Make a\n", workspace="box").play(default=DONE)
    met = use_git(lab, "echo 'fatal: write error: No space left on device' >&2; exit 128")
    done = lab.loop()
    assert met.exists()
    assert (done.exit_code, lab.endings()) == (0, [("add-login-1-1", "completed")])
    [told] = [one["summary"] for one in lab.events(done) if one["type"] == "verdict" and one["status"] == "transient"]
    assert "is full: free some space there" in told


def test_a_story_that_fills_the_disk_of_the_project_leaves_room_for_its_records(small: Path, tmp_path: Path) -> None:
    lab, full = Lab(small), tmp_path / "full"
    lab.repository("## 1. First\n\n- [ ] 1.1 Make a\n", workspace="worktree")
    lab.play(default=[{"run": f"test -e {full} || {{ touch {full}; head -c 9M /dev/zero > big; }}"}, *DONE])
    done = lab.loop()
    assert (done.exit_code, lab.endings()) == (0, [("add-login-1-1", "completed")]), done.stderr[-2000:]


def test_the_same_signal_with_enough_space_is_a_failure(lab: Lab) -> None:
    lab.repository("## 1. First\n\n- [ ] 1.1 Make a\n", workspace="box").play(default=DONE)
    met = use_git(lab, "kill -BUS $$")
    assert lab.loop().exit_code == 0
    assert met.exists()
    assert lab.endings() == [("add-login-1-1", "failed"), ("add-login-1-2", "completed")]


def test_other_errors_are_git_errors(lab: Lab) -> None:
    lab.repository()
    repository = Repository.find(str(lab.root))
    assert repository is not None
    with pytest.raises(GitError) as told:
        repository.run("rev-parse", "no such ref")
    assert told.value.full_disk == ""
