"""What `ralphtool agent` records: learnings and other notes, the session's file, the flush."""

from __future__ import annotations

import json

import pytest
from cli.agent.calls import init, ok, record_one_of_each, refuse, start_agent
from patience import PATIENCE
from project import Ralph


class TestRecording:
    def test_a_megabyte_from_stdin(self, project: Ralph) -> None:
        project.begin()
        text = "größer\n" * 150_000
        printed = ok(project, "learn", "-", "--task", "1.1", stdin=text.encode())
        assert printed["learning"]["description"] == text.rstrip("\n")
        assert printed["learning"]["task_id"] == "1.1"
        assert project.session()["learnings"] == [printed["learning"]]
        assert ok(project, "session", "flush")["learnings_written"] == 1
        assert project.design_file.read_text().count("größer") == 150_000

    def test_a_pattern_from_stdin(self, project: Ralph) -> None:
        project.begin()
        printed = ok(project, "pattern", "Layers", "-", stdin=b"downward\nalways\n")
        assert printed["pattern"]["description"] == "downward\nalways"

    def test_as_much_as_an_argument_holds(self, project: Ralph) -> None:
        project.begin()
        text = "x" * (128 * 1024 - 100)
        assert ok(project, "learn", text)["learning"]["description"] == text

    def test_text_is_kept_word_for_word(self, project: Ralph) -> None:
        project.begin()
        text = "  \"quoted\" 'single' \\back\\ \t tab\n## line two\r\n\x01\x1b[0m end  "
        assert ok(project, "learn", text)["learning"]["description"] == text
        assert project.session()["learnings"][0]["description"] == text

    @pytest.mark.parametrize("kind", ["codebase-pattern", "build-command", "test-pattern", "dependency-quirk"])
    def test_types_of_learnings(self, project: Ralph, kind: str) -> None:
        project.begin()
        ok(project, "learn", "x", "--type", kind)
        assert kind in project.session()["learnings"][0].values()

    @pytest.mark.parametrize("kind", ["blocker", "finding", "completion"])
    def test_types_of_observations(self, project: Ralph, kind: str) -> None:
        project.begin()
        assert ok(project, "observe", kind, "x")["observation"]["type"] == kind

    @pytest.mark.parametrize("title", ["設定　画面が開かない", "no\u00a0break", "emoji 👩‍👩‍👧", "עברית"])
    def test_titles_and_names_in_any_script(self, project: Ralph, title: str) -> None:
        project.begin()
        assert ok(project, "observe", "finding", title)["observation"]["title"] == title
        assert ok(project, "pattern", title, "d")["pattern"]["name"] == title

    @pytest.mark.parametrize(
        "words",
        [
            ["learn", ""],
            ["learn", " \n\t "],
            ["learn", "x", "--type", "api-pattern"],
            ["learn", "x", "--type", ""],
            ["learn", "x", "--task", ""],
            ["learn", "x", "--task", "1\n2"],
            ["pattern", "", "d"],
            ["pattern", "n", ""],
            ["pattern", "two\nlines", "d"],
            ["pattern", "n", "d", "--type", "build-command"],
            ["observe", "finding", ""],
            ["observe", "finding", "two\nlines"],
            ["observe", "Finding", "x"],
            ["observe", "finding", "x", "--category", "weather"],
            ["observe", "finding", "x", "--severity", "HIGH"],
            ["observe", "finding", "x", "--description", ""],
            ["observe", "finding", "x", "--file", ""],
        ],
        ids=repr,
    )
    def test_what_can_not_be_used_is_an_invalid_value(self, project: Ralph, words: list[str]) -> None:
        project.begin()
        assert refuse(project, *words)["code"] == "INVALID_VALUE"


class TestSessionFile:
    def test_content_of_a_new_one(self, project: Ralph) -> None:
        printed = init(project)
        assert project.session() == {
            "session_id": "s1",
            "change_name": "add-login",
            "current_story_id": None,
            "created_at": printed["created_at"],
            "learnings": [],
            "patterns": [],
            "completed_tasks": [],
            "iteration": 0,
            "observations": [],
        }

    def test_content_after_work(self, project: Ralph) -> None:
        created_at = init(project)["created_at"]
        ok(project, "session", "next-story")
        learning = ok(project, "learn", "x", "--task", "1.1")["learning"]
        pattern = ok(project, "pattern", "n", "d")["pattern"]
        observation = ok(project, "observe", "finding", "t")["observation"]
        ok(project, "task", "done", "1.1")
        assert project.session() == {
            "session_id": "s1",
            "change_name": "add-login",
            "current_story_id": "1",
            "created_at": created_at,
            "learnings": [learning],
            "patterns": [pattern],
            "completed_tasks": ["1.1"],
            "iteration": 1,
            "observations": [observation],
        }

    def test_nobody_else_may_read_it(self, project: Ralph) -> None:
        project.begin()
        ok(project, "learn", "x")
        for folder in (project.tmp / "ralph", project.tmp / "ralph/sessions", project.tmp / "ralphtool"):
            assert folder.stat().st_mode & 0o777 == 0o700
        for file in (project.session_file(), project.tmp / "ralphtool/add-login-learnings.md"):
            assert file.stat().st_mode & 0o777 == 0o600

    def test_accumulated_learnings_are_read(self, project: Ralph) -> None:
        project.begin()
        learning = ok(project, "learn", "old name")["learning"]
        state = project.session()
        state["accumulated_learnings"] = state.pop("learnings")
        project.session_file().write_text(json.dumps(state))
        assert ok(project, "context")["learnings"] == [learning]
        assert ok(project, "learn", "new name")["total_learnings"] == 2
        assert ok(project, "session", "flush")["learnings_written"] == 2

    def test_a_file_without_the_later_fields_is_read(self, project: Ralph) -> None:
        project.begin()
        state = project.session()
        for name in ("iteration", "observations", "patterns"):
            del state[name]
        project.session_file().write_text(json.dumps(state))
        assert ok(project, "observe", "finding", "x")["observation"]["iteration"] == 0
        assert ok(project, "pattern", "n", "d")["total_patterns"] == 1

    def test_two_sessions_at_once_on_two_changes(self, project: Ralph) -> None:
        project.openspec(change="other")
        project.begin()
        project.begin("other", "s2")
        ok(project, "learn", "mine")
        ok(project, "learn", "yours", session="s2")
        ok(project, "session", "flush")
        assert "mine" in project.design_file.read_text()
        assert "yours" not in project.design_file.read_text()
        assert ok(project, "context", session="s2")["learnings"][0]["description"] == "yours"

    def test_long_ids_that_begin_alike_do_not_meet(self, project: Ralph) -> None:
        """A name may have 128 characters; each session's file is written separately."""
        sessions = ["x" * 127 + letter for letter in "ab"]
        for session, change in zip(sessions, ("add-login", "other"), strict=True):
            project.openspec(change=change)
            init(project, change, session)
        running = [
            start_agent(project, session, "learn", f"of {session[-1]}") for _ in range(15) for session in sessions
        ]
        results = [process.communicate(timeout=PATIENCE) for process in running]
        assert [process.returncode for process in running] == [0] * 30, results
        for session in sessions:
            texts = [one["description"] for one in project.session(session)["learnings"]]
            assert texts == [f"of {session[-1]}"] * 15


class TestFlush:
    def test_it_frees_the_change_and_ends_the_session(self, project: Ralph) -> None:
        project.begin()
        ok(project, "learn", "x")
        ok(project, "session", "flush")
        assert not project.lock_file.exists()
        assert not project.session_file().exists()
        assert project.agent("learn", "y").code == "SESSION_NOT_FOUND"

    def test_twice(self, project: Ralph) -> None:
        project.begin()
        ok(project, "learn", "x")
        ok(project, "session", "flush")
        assert refuse(project, "session", "flush")["code"] == "SESSION_NOT_FOUND"

    def test_interrupted_before_the_end_it_writes_nothing_twice(self, project: Ralph) -> None:
        """The notes are written, but the lock or the session is still there: as if killed in between."""
        project.begin()
        record_one_of_each(project)
        session, lock = project.session_file().read_bytes(), project.lock_file.read_bytes()
        ok(project, "session", "flush")
        design = project.design_file.read_bytes()
        for lock_is_left in (True, False):
            project.session_file().write_bytes(session)
            if lock_is_left:
                project.lock_file.write_bytes(lock)
            printed = ok(project, "session", "flush")
            assert printed == {"success": True, "learnings_written": 0, "patterns_written": 0}
            assert project.design_file.read_bytes() == design
            assert not project.session_file().exists()
            assert not project.lock_file.exists()

    def test_with_empty_buffers_it_writes_nothing(self, project: Ralph) -> None:
        project.begin()
        ok(project, "task", "done", "1.1")
        files = {path: path.read_bytes() for path in (project.root / "openspec").rglob("*") if path.is_file()}
        printed = ok(project, "session", "flush")
        assert printed == {"success": True, "learnings_written": 0, "patterns_written": 0}
        assert {path: path.read_bytes() for path in (project.root / "openspec").rglob("*") if path.is_file()} == files
        assert not project.design_file.exists()

    def test_nothing_reaches_the_spec_before(self, project: Ralph) -> None:
        before = {path: data for path, data in project.snapshot().items() if "openspec" in path}
        init(project)
        ok(project, "learn", "x")
        ok(project, "pattern", "n", "d")
        ok(project, "observe", "finding", "t")
        assert {path: data for path, data in project.snapshot().items() if "openspec" in path} == before

    def test_a_lock_that_somebody_else_has_by_now_stays(self, project: Ralph) -> None:
        project.begin()
        ok(project, "learn", "x")
        kept = project.session_file().read_bytes()
        project.session_file().unlink()
        init(project, session="s2")
        project.session_file().write_bytes(kept)
        assert ok(project, "session", "flush")["learnings_written"] == 1
        assert json.loads(project.lock_file.read_text())["session_id"] == "s2"

    def test_the_next_session_of_the_same_day_joins_the_group(self, project: Ralph) -> None:
        for text in ("first", "second"):
            project.begin()
            ok(project, "learn", text)
            ok(project, "session", "flush")
        assert project.design_file.read_text().endswith("- Story 1\n- first\n- second\n")
