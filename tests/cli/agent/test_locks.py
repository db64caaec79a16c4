"""The lock of a change, taken and released by `ralphtool agent`, and `unlock`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from cli.agent.calls import finish, held_by_a_run, init, ok, record_one_of_each, refuse, start_agent, start_owner
from patience import PATIENCE
from project import Ralph, Result

# Runs a command; just before it creates a folder, the same one is created, as if by another process.
BE_QUICKER = """
import os, sys
making = []
def somebody(event, arguments):
    if event == "os.mkdir" and arguments[0] not in making:
        making.append(arguments[0])
        os.mkdir(arguments[0], 0o700)
sys.addaudithook(somebody)
from ralphtool.cli import agent
status = agent.main(sys.argv[1:])
assert len(making) > 2
sys.exit(status)
"""


def buffers(state: dict[str, Any]) -> dict[str, list[Any]]:
    return {name: state[name] for name in ("learnings", "patterns", "observations", "completed_tasks")}


class TestLock:
    def test_same_session_same_change(self, project: Ralph) -> None:
        init(project)
        error = refuse(project, "session", "init", "--change", "add-login")
        assert error["code"] == "CHANGE_LOCKED"
        assert "s1" in error["error"]

    def test_same_session_other_change(self, project: Ralph) -> None:
        project.openspec(change="other")
        init(project)
        error = refuse(project, "session", "init", "--change", "other")
        assert error["code"] == "SESSION_EXISTS"
        assert not (project.root / ".ralph/locks/other.lock").exists()

    def test_other_session_same_change(self, project: Ralph) -> None:
        init(project, session="holder")
        error = refuse(project, "session", "init", "--change", "add-login", session="s2")
        assert error["code"] == "CHANGE_LOCKED"
        assert "holder" in error["error"]

    def test_it_outlives_init_and_all_but_the_flush(self, project: Ralph) -> None:
        init(project)
        record_one_of_each(project)
        assert refuse(project, "session", "init", "--change", "add-login", session="s2")["code"] == "CHANGE_LOCKED"
        ok(project, "session", "flush")
        assert init(project, session="s2")["session_id"] == "s2"

    def test_init_alone_leaves_no_process_in_it(self, project: Ralph) -> None:
        init(project)
        assert json.loads(project.lock_file.read_text())["owner"] is None

    def test_of_many_inits_at_once_exactly_one_wins(self, project: Ralph) -> None:
        arguments = ("session", "init", "--change", "add-login")
        running = [start_agent(project, f"s{number}", *arguments) for number in range(12)]
        errors = [process.communicate(timeout=PATIENCE)[1] for process in running]
        assert sorted(process.returncode for process in running) == [0] + [1] * 11
        assert {json.loads(error)["code"] for error in errors if error} == {"CHANGE_LOCKED"}
        [winner] = [number for number, process in enumerate(running) if process.returncode == 0]
        assert json.loads(project.lock_file.read_text())["session_id"] == f"s{winner}"
        assert [path.name for path in (project.tmp / "ralph/sessions").iterdir()] == [f"s{winner}.json"]

    def test_somebody_else_makes_each_folder_a_moment_before_us(self, project: Ralph) -> None:
        """As if the first sessions of two projects started at once."""
        done = subprocess.run(
            [sys.executable, "-c", BE_QUICKER, "session", "init", "--change", "add-login"],
            env={**project.env, "RALPH_SESSION": "s1"},
            cwd=project.root,
            capture_output=True,
            timeout=PATIENCE,
        )
        assert Result(done).json["session_id"] == "s1"

    def test_a_lock_whose_session_is_gone_is_reclaimed(self, project: Ralph) -> None:
        init(project)
        project.session_file().unlink()
        assert init(project, session="s2")["session_id"] == "s2"
        assert json.loads(project.lock_file.read_text())["session_id"] == "s2"

    def test_a_lock_whose_session_is_gone_is_reclaimed_by_its_own_id(self, project: Ralph) -> None:
        init(project)
        project.session_file().unlink()
        assert init(project)["session_id"] == "s1"

    def test_a_lock_whose_session_id_serves_another_project_now(self, project: Ralph, tmp_path: Path) -> None:
        init(project)
        project.session_file().unlink()
        other = project.root / "nested"
        project.write("nested/openspec/changes/another/tasks.md", "")
        ok(project, "session", "init", "--change", "another", cwd=other)
        assert init(project, session="s2")["session_id"] == "s2"
        assert project.session()["change_name"] == "another", "not ours to take"

    def test_a_dead_owner_is_followed_and_its_buffers_carried_over(self, project: Ralph) -> None:
        with held_by_a_run(project, session="dead"):
            record_one_of_each(project, "dead")
            left = buffers(project.session("dead"))
        init(project, session="heir")
        assert buffers(project.session("heir")) == left
        assert not project.session_file("dead").exists()
        assert project.session("heir")["iteration"] == 0
        printed = ok(project, "session", "flush", session="heir")
        assert printed == {"success": True, "learnings_written": 1, "patterns_written": 1}
        assert project.design_file.read_text().count("learnt by dead") == 1

    def test_a_dead_owner_is_followed_by_the_same_id(self, project: Ralph) -> None:
        with held_by_a_run(project):
            record_one_of_each(project)
            left = buffers(project.session())
        init(project)
        assert buffers(project.session()) == left
        assert json.loads(project.lock_file.read_text())["owner"] is None

    def test_a_dead_owner_that_nobody_has_waited_for(self, project: Ralph) -> None:
        """A zombie still has its pid, but no longer does anything."""
        owner = start_owner(project, "add-login", "dead")
        owner.kill()
        os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)
        try:
            assert init(project, session="heir")["session_id"] == "heir"
        finally:
            finish(owner)

    def test_a_pid_that_serves_another_process_now(self, project: Ralph) -> None:
        with held_by_a_run(project) as owner:
            lock = json.loads(project.lock_file.read_text())
            assert lock["owner"]["pid"] == owner.pid
            lock["owner"]["start_time"] = "another boot/17"
            project.lock_file.write_text(json.dumps(lock))
            assert init(project, session="s2")["session_id"] == "s2"

    def test_a_live_owner_is_left_alone(self, project: Ralph) -> None:
        with held_by_a_run(project, session="alive") as owner:
            record_one_of_each(project, "alive")
            error = refuse(project, "session", "init", "--change", "add-login", session="s2")
            assert error["code"] == "CHANGE_LOCKED"
            assert "session alive" in error["error"]
            assert str(owner.pid) in error["error"]

    def test_the_heir_of_an_heir_has_it_all(self, project: Ralph) -> None:
        for session in ("a", "b", "c"):
            with held_by_a_run(project, session=session):
                ok(project, "learn", f"by {session}", session=session)
        init(project, session="d")
        assert [one["description"] for one in project.session("d")["learnings"]] == ["by a", "by b", "by c"]


class TestUnlock:
    def test_the_buffers_pass_to_the_next_session(self, project: Ralph) -> None:
        init(project, session="old")
        record_one_of_each(project, "old")
        left = buffers(project.session("old"))
        assert project.run("unlock", "add-login").exit_code == 0
        init(project, session="new")
        assert buffers(project.session("new")) == left
        assert project.agent("status", session="old").code == "SESSION_NOT_FOUND"

    def test_what_is_learnt_after_the_unlock_is_not_lost(self, project: Ralph) -> None:
        project.begin(session="old")
        assert project.run("unlock", "add-login").exit_code == 0
        ok(project, "learn", "late", session="old")
        init(project, session="new")
        assert [one["description"] for one in project.session("new")["learnings"]] == ["late"]

    def test_the_old_session_may_still_flush(self, project: Ralph) -> None:
        project.begin()
        ok(project, "learn", "x")
        assert project.run("unlock", "add-login").exit_code == 0
        assert ok(project, "session", "flush")["learnings_written"] == 1
        assert not project.lock_file.exists()

    def test_a_live_owner_needs_force(self, project: Ralph) -> None:
        with held_by_a_run(project, session="alive") as owner:
            ok(project, "learn", "kept", session="alive")
            before = project.snapshot()
            result = project.run("unlock", "add-login")
            assert (result.exit_code, result.stdout) == (1, "")
            assert str(owner.pid) in result.stderr
            assert "--force" in result.stderr
            assert project.snapshot() == before
            assert project.run("unlock", "add-login", "--force").exit_code == 0
            init(project, session="next")
        assert [one["description"] for one in project.session("next")["learnings"]] == ["kept"]

    def test_a_dead_owner_needs_none(self, project: Ralph) -> None:
        with held_by_a_run(project):
            pass
        assert project.run("unlock", "add-login").exit_code == 0
        assert init(project, session="next")["session_id"] == "next"

    def test_nothing_to_unlock(self, project: Ralph) -> None:
        before = project.snapshot()
        result = project.run("unlock", "add-login")
        assert result.exit_code == 0
        assert "not locked" in result.stdout
        assert project.snapshot() == before

    def test_after_the_session_is_gone_nothing_is_left(self, project: Ralph) -> None:
        init(project)
        project.session_file().unlink()
        assert project.run("unlock", "add-login").exit_code == 0
        assert not project.lock_file.exists()
