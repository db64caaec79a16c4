"""A disk that is really full: one clear error, nothing changed, and everything works when there is space again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import SMALL, asides, raw_files
from patience import PATIENCE
from project import COMMAND, Ralph, Result

FULL = "No space left on device"
INIT = ("session", "init", "--change", "add-login")


class SmallDisk:
    """A file system of a few pages, with a file that can take up all remaining space."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        with self._ballast.open("ab", buffering=0) as file:
            while _writes(file.fileno()):
                pass

    def free(self) -> None:
        self._ballast.unlink()


def _writes(fd: int) -> bool:
    try:
        return os.write(fd, b"x" * 512) > 0
    except OSError:
        return False


def mounted(folder: Path) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL},mode=0700", "tmpfs", str(folder)]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if not mounted(folder):
        pytest.skip("mounting a small disk takes root; test_kills.py shows the same with errors that strace makes")
    yield SmallDisk(folder)
    subprocess.run(["umount", str(folder)], check=True)


def on_disk(ralph: Ralph, disk: SmallDisk, part: str) -> Ralph:
    """Moves the project, or the temporary directory, to the small disk."""
    place = disk.folder / part
    place.mkdir(mode=0o700)
    if part == "tmp":
        ralph.tmp = place
        ralph.env["TMPDIR"] = str(place)
    else:
        ralph.root = place
    return ralph


def files_of(ralph: Ralph) -> dict[str, bytes]:
    """Every file, except for folders and their .gitignore: a failed command may create those."""
    found = {}
    for top in (ralph.root, ralph.tmp, ralph.home):
        found.update({f"{top}/{path}": data for path, data in raw_files(top).items()})
    assert not asides(found)
    return {path: data for path, data in found.items() if not path.endswith(("/", "/.gitignore"))}


def check_full(result: Result) -> None:
    assert (result.exit_code, result.code) == (1, "IO_ERROR")
    assert FULL in result.error["error"]
    assert "free some space" in result.error["error"]


def refused_then_done(ralph: Ralph, disk: SmallDisk, *arguments: str) -> Result:
    """A command on the full disk changes nothing, and works when there is space."""
    disk.fill()
    before = files_of(ralph)
    check_full(ralph.agent(*arguments))
    assert files_of(ralph) == before
    check_full(ralph.agent(*arguments))  # and again: the first attempt left nothing that would disturb it
    assert files_of(ralph) == before
    disk.free()
    result = ralph.agent(*arguments)
    assert result.exit_code == 0, result.stderr
    return result


# --- the temporary directory ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("learn", "something"),
        ("pattern", "layers", "downward"),
        ("observe", "finding", "slow"),
        ("session", "next-story"),
    ],
    ids=lambda arguments: str(arguments[0]),
)
def test_nothing_is_recorded_when_the_temporary_directory_is_full(
    ralph: Ralph, disk: SmallDisk, arguments: tuple[str, ...]
) -> None:
    on_disk(ralph, disk, "tmp").openspec().begin()
    assert ralph.agent("learn", "before").json["total_learnings"] == 1
    refused_then_done(ralph, disk, *arguments)
    assert ralph.session()["learnings"][0]["description"] == "before"


def test_no_session_begins_when_the_temporary_directory_is_full(ralph: Ralph, disk: SmallDisk) -> None:
    on_disk(ralph, disk, "tmp").openspec()
    assert refused_then_done(ralph, disk, *INIT).json["session_id"] == "s1"
    assert ralph.agent("learn", "it works").json["total_learnings"] == 1


def test_no_session_is_taken_over_when_the_temporary_directory_is_full(ralph: Ralph, disk: SmallDisk) -> None:
    on_disk(ralph, disk, "tmp").openspec().begin()
    assert ralph.agent("learn", "before").json
    assert ralph.run("unlock", "add-login").exit_code == 0
    ralph.env["RALPH_SESSION"] = "s2"
    disk.fill()
    before = files_of(ralph)
    check_full(ralph.agent(*INIT, session="s2"))
    assert files_of(ralph) == before
    disk.free()
    assert ralph.agent(*INIT, session="s2").json["session_id"] == "s2"
    assert [learning["description"] for learning in ralph.session("s2")["learnings"]] == ["before"]


def test_a_tick_on_a_full_temporary_directory_is_finished_later(ralph: Ralph, disk: SmallDisk) -> None:
    """The spec is on another disk and is written first: repeating the command completes the tick."""
    on_disk(ralph, disk, "tmp").openspec().begin()
    session = ralph.session_file().read_bytes()
    disk.fill()
    check_full(ralph.agent("task", "done", "1.1"))
    assert ralph.session_file().read_bytes() == session
    assert ralph.tasks_file.read_text().count("- [x]") <= 1
    disk.free()
    assert ralph.agent("task", "done", "1.1").json["remaining"] == ["1.2"]
    assert ralph.session()["completed_tasks"] == ["1.1"]
    assert "- [x] 1.1 " in ralph.tasks_file.read_text()


def test_a_flush_on_a_full_temporary_directory_is_done_or_finished_later(ralph: Ralph, disk: SmallDisk) -> None:
    on_disk(ralph, disk, "tmp").openspec().begin()
    assert ralph.agent("learn", "before").json
    disk.fill()
    flush = ralph.agent("session", "flush")
    disk.free()
    if flush.exit_code:
        check_full(flush)
        assert ralph.agent("session", "flush").json["success"] is True
    assert ralph.design_file.read_text().count("- before\n") == 1
    assert not ralph.session_file().exists()
    assert not ralph.lock_file.exists()


# --- the project ------------------------------------------------------------------------------------


def test_no_session_begins_when_the_project_is_full(ralph: Ralph, disk: SmallDisk) -> None:
    on_disk(ralph, disk, "project").openspec()
    assert refused_then_done(ralph, disk, *INIT).json["session_id"] == "s1"


def test_no_task_is_ticked_when_the_project_is_full(ralph: Ralph, disk: SmallDisk) -> None:
    on_disk(ralph, disk, "project").openspec().begin()
    assert refused_then_done(ralph, disk, "task", "done", "1.1").json["remaining"] == ["1.2"]
    assert "- [x] 1.1 " in ralph.tasks_file.read_text()


@pytest.mark.parametrize("design", [None, "# Design\n\nAs it was.\n"], ids=["made", "rewritten"])
def test_nothing_is_flushed_when_the_project_is_full(ralph: Ralph, disk: SmallDisk, design: str | None) -> None:
    on_disk(ralph, disk, "project").openspec().begin()
    if design:
        ralph.design_file.write_text(design)
    assert ralph.agent("learn", "learnt").json
    assert ralph.agent("pattern", "layers", "downward").json
    assert refused_then_done(ralph, disk, "session", "flush").json["learnings_written"] == 1
    assert ralph.design_file.read_text().count("- learnt\n") == 1
    assert ralph.design_file.read_text().startswith(design or "## Learnings")


def test_learning_goes_on_when_only_the_project_is_full(ralph: Ralph, disk: SmallDisk) -> None:
    on_disk(ralph, disk, "project").openspec().begin()
    disk.fill()
    assert ralph.agent("learn", "learnt").json["total_learnings"] == 1


# --- the answer itself ------------------------------------------------------------------------------


def answered_into(ralph: Ralph, place: str, *arguments: str, session: str = "s1") -> subprocess.CompletedProcess[str]:
    """Runs a command with its stdout, or all its output, written to /dev/full."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {place}', "sh", COMMAND, "agent", *arguments],
        cwd=ralph.root,
        env={**ralph.env, "RALPH_SESSION": session},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_an_answer_that_can_not_be_written_is_an_error(project: Ralph) -> None:
    project.begin()
    done = answered_into(project, ">/dev/full", "learn", "something")
    result = Result(subprocess.CompletedProcess(done.args, done.returncode, b"", done.stderr.encode()))
    assert (result.exit_code, result.code) == (1, "IO_ERROR")
    assert FULL in result.error["error"]
    # Whether it was recorded is unknown. If it is repeated, it is written only once in the end.
    assert project.agent("learn", "something").json
    assert project.agent("session", "flush").json["learnings_written"] == 1
    assert project.design_file.read_text().count("- something\n") == 1


def test_an_error_that_can_not_be_written_leaves_the_exit_code(project: Ralph) -> None:
    done = answered_into(project, "2>/dev/full", "learn", "something", session="nobody")
    assert (done.returncode, done.stdout) == (1, "")
    done = answered_into(project, ">/dev/full 2>&1", *INIT)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
