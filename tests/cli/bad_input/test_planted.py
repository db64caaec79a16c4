"""Bad input: links, special files and other users' files in place of ralphtool's own."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from cli.bad_input.calls import INIT, RUNNING, WITH_LOCK, ok, refused, refused_for_people
from project import IS_ROOT, Ralph

NOBODY = 65534


def plant(kind: str, path: Path, ralph: Ralph) -> None:
    """Puts something else in place of `path`; the valid original, if any, is moved elsewhere."""
    original = ralph.home / "original"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists():
        shutil.move(path, original)
    elif kind in ("link", "foreign"):
        original.write_text("somebody's own\n")
    if kind == "link":
        path.symlink_to(original)
    elif kind == "dangling link":
        path.symlink_to(ralph.home / "not there")
    elif kind == "link to a folder":
        path.symlink_to(ralph.home)
    elif kind == "link to itself":
        path.symlink_to(path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "file":
        path.write_text("a file\n")
    else:
        assert kind == "foreign"
        shutil.move(original, path)
        os.chown(path, NOBODY, NOBODY)


def only_root(kind: str) -> Any:
    """A parameter that is skipped if it needs root to change the owner of a file."""
    marks = [pytest.mark.skipif(not IS_ROOT, reason="only root gives files away")] if kind == "foreign" else []
    return pytest.param(kind, marks=marks)


LINKS = ["link", "dangling link", "link to a folder", "link to itself"]
FOR_A_FILE = [only_root(kind) for kind in [*LINKS, "fifo", "folder", "foreign"]]
FOR_A_FOLDER = [only_root(kind) for kind in [*LINKS, "fifo", "file", "foreign"]]


def private(path: Path) -> Path:
    path.mkdir(mode=0o700)
    return path


class TestPlanted:
    @pytest.mark.parametrize("kind", FOR_A_FILE)
    def test_where_a_session_is_to_be_made(self, project: Ralph, kind: str) -> None:
        private(private(project.tmp / "ralph") / "sessions")
        plant(kind, project.session_file(), project)
        error = refused(project, *INIT)
        assert error["code"] == "UNSAFE_PATH"
        assert str(project.session_file()) in error["error"]
        assert "move it away" in error["error"]

    @pytest.mark.parametrize("kind", FOR_A_FILE)
    def test_where_the_session_is(self, project: Ralph, kind: str) -> None:
        project.begin()
        plant(kind, project.session_file(), project)
        for command in RUNNING:
            error = refused(project, *command)
            assert error["code"] == "UNSAFE_PATH"
            assert str(project.session_file()) in error["error"]

    @pytest.mark.parametrize("kind", FOR_A_FILE)
    def test_where_the_lock_is_to_be_made(self, project: Ralph, kind: str) -> None:
        plant(kind, project.lock_file, project)
        error = refused(project, *INIT)
        assert error["code"] == "UNSAFE_PATH"
        assert str(project.lock_file) in error["error"]

    @pytest.mark.parametrize("kind", FOR_A_FILE)
    def test_where_the_lock_is(self, project: Ralph, kind: str) -> None:
        project.begin()
        plant(kind, project.lock_file, project)
        for command in WITH_LOCK:
            error = refused(project, *command)
            assert error["code"] == "UNSAFE_PATH"
            assert str(project.lock_file) in error["error"]

    @pytest.mark.parametrize("kind", FOR_A_FILE)
    def test_unlock_does_not_follow_what_is_where_the_lock_is(self, project: Ralph, kind: str) -> None:
        """`unlock` puts it aside, or asks the user to move it: the link's target is left alone either way."""
        project.begin()
        ok(project, "learn", "kept")
        plant(kind, project.lock_file, project)
        before = project.snapshot()
        result = project.run("unlock", "add-login")
        after = project.snapshot()
        locks_of = str(project.lock_file)
        assert {path: content for path, content in after.items() if not path.startswith(locks_of)} == {
            path: content for path, content in before.items() if not path.startswith(locks_of)
        }
        if result.exit_code:
            assert "move it away" in result.stderr
            assert after == before
        else:
            assert not os.path.lexists(project.lock_file)
            assert ok(project, "session", "flush")["learnings_written"] == 1

    @pytest.mark.parametrize("kind", FOR_A_FILE)
    def test_where_the_learnings_file_goes(self, project: Ralph, kind: str) -> None:
        path = private(project.tmp / "ralphtool") / "add-login-learnings.md"
        plant(kind, path, project)
        error = refused(project, *INIT)
        assert error["code"] == "UNSAFE_PATH"
        assert str(path) in error["error"]
        assert "move it away" in refused_for_people(project, "learnings", "add-login")

    @pytest.mark.parametrize("folder", ["ralph", "ralph/sessions", "ralphtool"])
    @pytest.mark.parametrize("kind", FOR_A_FOLDER)
    def test_where_our_temporary_folders_go(self, project: Ralph, folder: str, kind: str) -> None:
        plant(kind, project.tmp / folder, project)
        error = refused(project, *INIT)
        assert error["code"] == "UNSAFE_PATH"
        assert str(project.tmp / folder) in error["error"]
        assert "regular file" not in error["error"]

    @pytest.mark.parametrize("folder", ["ralph", "ralph/sessions"])
    @pytest.mark.parametrize("kind", FOR_A_FOLDER)
    def test_where_our_temporary_folders_are(self, project: Ralph, folder: str, kind: str) -> None:
        project.begin()
        plant(kind, project.tmp / folder, project)
        for command in RUNNING:
            assert refused(project, *command)["code"] == "UNSAFE_PATH"

    @pytest.mark.parametrize("folder", [".ralph", ".ralph/locks"])
    @pytest.mark.parametrize("kind", [*LINKS, "fifo", "file"])
    def test_where_our_folders_of_the_project_go(self, project: Ralph, folder: str, kind: str) -> None:
        plant(kind, project.root / folder, project)
        error = refused(project, *INIT)
        assert error["code"] == "UNSAFE_PATH"
        assert str(project.root / folder) in error["error"]

    @pytest.mark.parametrize("folder", [".ralph", ".ralph/locks"])
    def test_where_our_folders_of_the_project_are(self, project: Ralph, folder: str) -> None:
        """A link to the original folder: the lock is never changed through it."""
        project.begin()
        ok(project, "learn", "x")
        plant("link", project.root / folder, project)
        assert refused(project, "session", "flush")["code"] == "UNSAFE_PATH"
        # The change is also locked: either may be reported.
        assert refused(project, *INIT, session="s2")["code"] in ("UNSAFE_PATH", "CHANGE_LOCKED")
        assert "move it away" in refused_for_people(project, "unlock", "add-login")

    def test_a_socket_where_the_session_is(self, project: Ralph, monkeypatch: pytest.MonkeyPatch) -> None:
        project.begin()
        project.session_file().unlink()
        monkeypatch.chdir(project.session_file().parent)  # the path of a socket must be short
        with socket.socket(socket.AF_UNIX) as one:
            one.bind("s1.json")
            assert refused(project, "learn", "x")["code"] == "UNSAFE_PATH"

    def test_a_link_where_we_write_aside_is_not_followed(self, project: Ralph) -> None:
        """The names of aside files can be guessed."""
        project.begin()
        victim = project.home / "victim"
        victim.write_text("precious")
        for folder, name in (
            (project.session_file().parent, "s1.json"),
            (project.tasks_file.parent, "tasks.md"),
            (project.tasks_file.parent, "design.md"),
        ):
            (folder / f".{name}.ralph-aside").symlink_to(victim)
        ok(project, "learn", "x")
        ok(project, "task", "done", "1.1")
        ok(project, "session", "flush")
        assert victim.read_text() == "precious"
        assert "[x] 1.1" in project.tasks_file.read_text()
        assert "- x\n" in project.design_file.read_text()

    def test_folders_of_ours_that_are_open_to_all_are_closed(self, project: Ralph) -> None:
        for folder in ("ralph", "ralph/sessions", "ralphtool"):
            (project.tmp / folder).mkdir()
            (project.tmp / folder).chmod(0o777)
        project.begin()
        for folder in ("ralph", "ralph/sessions", "ralphtool"):
            assert (project.tmp / folder).stat().st_mode & 0o777 == 0o700
