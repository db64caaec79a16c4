"""Stories side by side on a disk that one of them fills: nobody is to blame for it, and no work is lost."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from lab import Lab
from loop.lanes import NEEDS_BOXES, ONE, WRITES, check_commits, list_stories, make, meet, of_kind

pytestmark = NEEDS_BOXES
MEGABYTE = 1 << 20


@pytest.fixture
def small(lab: Lab) -> Iterator[Lab]:
    """The lanes of this project are on a disk of four megabytes."""
    place = lab.root.parent / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small disk takes root")
    (lab.root / ".git/ralph").mkdir(parents=True)
    (lab.root / ".git/ralph/worktrees").symlink_to(place)
    yield lab
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def check_nobody_is_blamed(lab: Lab, stories: list[str]) -> None:
    done = lab.loop()
    assert done.exit_code == 0, done.stdout[-3000:]
    assert {entry["status"] for entry in lab.entries()} == {"completed"}
    told = [one["summary"] for one in of_kind(lab.events(done), "verdict") if one["status"] == "transient"]
    assert told
    assert all("is full: free some space there" in one for one in told)
    assert sorted(list_stories(lab)) == stories
    check_commits(lab)


def test_a_disk_that_one_of_them_fills_costs_no_work(small: Lab) -> None:
    make(small, attempts=5)
    full = f"{meet(small)}/full"
    fills = {"run": f"test -e {full} || {{ head -c 9M /dev/zero > big; touch {full}; false; }}"}
    wait = {"run": f"while [ ! -e {full} ]; do sleep 0.05; done"}
    small.play({"story": "2", "steps": [fills, *WRITES]}, default=[wait, *WRITES])
    check_nobody_is_blamed(small, ["1", "2", "3", "4"])


def test_a_disk_that_fills_up_while_git_reads_the_work(small: Lab) -> None:
    """A file with holes takes up space on this kind of disk once git has read it, and then git is killed."""
    full = f"{meet(small)}/full"
    (small.root / "zeros").write_bytes(bytes(3 * MEGABYTE // 2))
    make(small, ONE, side_by_side=2, attempts=5)
    fills = f"test -e {full} || {{ touch zeros {full}; mkdir parts; head -c 1500K /dev/zero > parts/large; }}"
    small.play(default=[{"run": fills}, *WRITES])
    check_nobody_is_blamed(small, ["1"])


@pytest.mark.parametrize(
    ("name", "is_resumed"), [("ignored", True), ("large", False)], ids=["resumed", "not if its files may fill the disk"]
)
def test_what_becomes_of_work_that_met_a_full_disk(small: Lab, name: str, is_resumed: bool) -> None:
    full = f"{meet(small)}/full"
    small.write(".gitignore", "ignored\n")
    make(small, ONE, side_by_side=2, attempts=5)
    fills = f"mkdir parts; echo fine > parts/first.txt; touch {full}; head -c 9M /dev/zero > {name}"
    small.play(default=[{"run": f"test -e {full} || {{ {fills}; }}"}, *WRITES])
    check_nobody_is_blamed(small, ["1"])
    parts = small.git("ls-tree", "--name-only", "ralph/add-login", "parts/").split()
    assert parts == (["parts/1.txt", "parts/first.txt"] if is_resumed else ["parts/1.txt"])
