"""Bad input: read-only folders, full disks, files where folders are expected."""

from __future__ import annotations

import resource
import shutil
import subprocess
from collections.abc import Callable

import pytest
from cli.bad_input.calls import INIT, RECORDING, ok, refused
from patience import PATIENCE
from project import COMMAND, Ralph, Result, bound_by_permissions


def run_bound(ralph: Ralph, *arguments: str, caller: str = "s1") -> Result:
    done = subprocess.run(
        [*bound_by_permissions(), COMMAND, "agent", *arguments],
        env={**ralph.env, "RALPH_SESSION": caller},
        cwd=ralph.root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
    )
    return Result(done)


def files_of(ralph: Ralph) -> dict[str, bytes | str]:
    return {path: content for path, content in ralph.snapshot().items() if content is not None}


def io_error(ralph: Ralph, result: Callable[[], Result]) -> str:
    """A system error that leaves every file as it was."""
    before = files_of(ralph)
    ended = result()
    assert ended.code == "IO_ERROR"
    assert files_of(ralph) == before
    return str(ended.error["error"])


class TestUnwritableFolder:
    def test_of_the_change_when_a_task_is_ticked(self, project: Ralph) -> None:
        project.begin()
        project.tasks_file.parent.chmod(0o500)
        message = io_error(project, lambda: run_bound(project, "task", "done", "1.1"))
        assert str(project.tasks_file.parent) in message
        assert "permissions" in message
        project.tasks_file.parent.chmod(0o700)
        assert ok(project, "task", "done", "1.1")["remaining"] == ["1.2"]

    @pytest.mark.parametrize("has_design", [True, False])
    def test_of_the_change_at_the_flush(self, project: Ralph, has_design: bool) -> None:
        if has_design:
            project.write("openspec/changes/add-login/design.md", "# Design\n")
        project.begin()
        ok(project, "learn", "kept")
        project.tasks_file.parent.chmod(0o500)
        message = io_error(project, lambda: run_bound(project, "session", "flush"))
        assert str(project.tasks_file.parent) in message
        project.tasks_file.parent.chmod(0o700)
        assert ok(project, "session", "flush")["learnings_written"] == 1

    @pytest.mark.parametrize("command", [*RECORDING, ("session", "next-story")], ids=" ".join)
    def test_of_the_sessions_when_something_is_recorded(self, project: Ralph, command: tuple[str, ...]) -> None:
        project.begin()
        folder = project.session_file().parent
        folder.chmod(0o500)
        message = io_error(project, lambda: run_bound(project, *command))
        assert str(folder) in message
        folder.chmod(0o700)
        assert ok(project, *command)

    @pytest.mark.parametrize("folder", ["ralph", "ralph/sessions", "ralphtool"])
    def test_under_the_temporary_directory_at_init(self, project: Ralph, folder: str) -> None:
        (project.tmp / folder).mkdir(parents=True)
        (project.tmp / "ralph").mkdir(exist_ok=True)
        (project.tmp / "ralph").chmod(0o700)
        (project.tmp / folder).chmod(0o500)
        message = io_error(project, lambda: run_bound(project, *INIT))
        assert str(project.tmp / folder) in message
        (project.tmp / folder).chmod(0o700)
        assert ok(project, *INIT, session="s2")["session_id"] == "s2", "the failed one holds nothing"

    @pytest.mark.parametrize("folder", ["", ".ralph", ".ralph/locks"])
    def test_of_the_project_at_init(self, project: Ralph, folder: str) -> None:
        path = project.root / folder
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o500)
        message = io_error(project, lambda: run_bound(project, *INIT))
        assert str(path) in message
        path.chmod(0o700)
        assert ok(project, *INIT, session="s2")["session_id"] == "s2"

    def test_of_the_locks_at_the_flush(self, project: Ralph) -> None:
        """Two places are written here: running it again completes it."""
        project.begin()
        ok(project, "learn", "once")
        project.lock_file.parent.chmod(0o500)
        assert run_bound(project, "session", "flush").code == "IO_ERROR"
        assert project.session_file().exists()
        project.lock_file.parent.chmod(0o700)
        ok(project, "session", "flush")
        assert project.design_file.read_text().count("once") == 1
        assert not project.lock_file.exists()
        assert not project.session_file().exists()

    @pytest.mark.parametrize("file", ["session", "lock", "tasks"])
    def test_a_file_that_may_not_be_read(self, project: Ralph, file: str) -> None:
        project.begin()
        path = {"session": project.session_file(), "lock": project.lock_file, "tasks": project.tasks_file}[file]
        path.chmod(0)
        before = project.snapshot()
        result = run_bound(project, "status")
        assert result.code == "IO_ERROR" or (file, result.code) == ("tasks", "SPEC_ERROR")
        assert str(path) in result.error["error"]
        assert project.snapshot() == before


def run_without_room(ralph: Ralph, room: int, *arguments: str) -> Result:
    """Files may not grow beyond `room` bytes: a write fails halfway, as on a full disk."""
    done = subprocess.run(
        [COMMAND, "agent", *arguments],
        env={**ralph.env, "RALPH_SESSION": "s1"},
        cwd=ralph.root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
    )
    return Result(done)


@pytest.mark.parametrize("room", [0, 20])
class TestNoRoom:
    @pytest.mark.parametrize("command", [*RECORDING, ("task", "done", "1.1"), ("session", "next-story")], ids=" ".join)
    def test_in_a_session(self, project: Ralph, room: int, command: tuple[str, ...]) -> None:
        project.begin()
        io_error(project, lambda: run_without_room(project, room, *command))
        assert ok(project, *command)

    def test_at_init(self, project: Ralph, room: int) -> None:
        io_error(project, lambda: run_without_room(project, room, *INIT))
        assert ok(project, *INIT, session="s2")["session_id"] == "s2"

    @pytest.mark.parametrize("has_design", [True, False])
    def test_at_the_flush(self, project: Ralph, room: int, has_design: bool) -> None:
        if has_design:
            project.write("openspec/changes/add-login/design.md", "# Design\n")
        project.begin()
        ok(project, "learn", "kept")
        message = io_error(project, lambda: run_without_room(project, room, "session", "flush"))
        assert str(project.design_file) in message
        assert ok(project, "session", "flush")["learnings_written"] == 1


class TestFileWhereAFolderIsExpected:
    @pytest.mark.parametrize("path", ["openspec", "openspec/changes", "openspec/changes/add-login", "specs"])
    def test_of_a_spec(self, ralph: Ralph, path: str) -> None:
        ralph.write(path, "a file\n")
        error = refused(ralph, *INIT)
        assert error["code"] == "CHANGE_NOT_FOUND"
        assert "ralphtool list" in error["error"]

    def test_the_scenarios_folder(self, project: Ralph) -> None:
        shutil.rmtree(project.tasks_file.parent / "specs")
        project.write("openspec/changes/add-login/specs", "a file\n")
        project.begin()
        assert ok(project, "context")["scenarios"] == []

    @pytest.mark.parametrize("name", ["fix_plan.md", "PLAN.md"])
    def test_a_folder_named_like_a_checklist_is_none(self, project: Ralph, name: str) -> None:
        (project.root / name).mkdir()
        assert ok(project, *INIT)["change_name"] == "add-login"

    def test_a_folder_named_like_a_prd_does_not_keep_other_changes_from_working(self, project: Ralph) -> None:
        (project.root / "prd.json").mkdir()
        assert ok(project, *INIT)["change_name"] == "add-login"

    @pytest.mark.parametrize("name", ["package.json", "Cargo.toml", "Makefile", "pyproject.toml", "go.mod"])
    def test_a_folder_named_like_a_build_file(self, project: Ralph, name: str) -> None:
        (project.root / name).mkdir()
        project.begin()
        assert ok(project, "context")["story"]["id"] == "1"
