"""The scenarios of seeds 000, 002 and 004: each has its own test, named after it.

Where the contract differs from a seed, the test asserts the contract's form, and its docstring says so.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from project import TASKS, Ralph

EVERY_COMMAND = (
    ("session", "init", "--change", "add-login"),
    ("session", "next-story"),
    ("session", "flush"),
    ("context",),
    ("status",),
    ("task", "done", "1.1"),
    ("learn", "something"),
    ("pattern", "name", "description"),
    ("observe", "finding", "title"),
)
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def ok(ralph: Ralph, *arguments: str, **more: Any) -> dict[str, Any]:
    """A call that must succeed."""
    return ralph.agent(*arguments, **more).json


def init(ralph: Ralph, change: str = "add-login", session: str = "s1") -> dict[str, Any]:
    return ralph.agent("session", "init", "--change", change, session=session).json


def check_new_session(project: Ralph) -> None:
    """Initialize new session: the file, the lock, and the output."""
    printed = init(project)
    assert project.session_file().is_file()
    assert project.lock_file.is_file()
    assert project.agent("session", "init", "--change", "add-login", session="other").code == "CHANGE_LOCKED"
    assert printed["session_id"] == "s1"
    assert printed["change_name"] == "add-login"
    assert MOMENT.fullmatch(printed["created_at"])
    assert printed["stories"] == [
        {"id": "1", "title": "Set up", "tasks_total": 2, "tasks_done": 0},
        {"id": "2", "title": "Build", "tasks_total": 2, "tasks_done": 0},
    ]


def check_locked_by_another(project: Ralph) -> None:
    init(project)
    before = project.snapshot()
    error = project.agent("session", "init", "--change", "add-login", session="s2").error
    assert error["code"] == "CHANGE_LOCKED"
    assert "session s1" in error["error"]
    assert project.snapshot() == before


def check_change_not_found(project: Ralph) -> None:
    before = project.snapshot()
    error = project.agent("session", "init", "--change", "no-such-change").error
    assert error["code"] == "CHANGE_NOT_FOUND"
    assert "no-such-change" in error["error"]
    assert project.snapshot() == before


def check_next_story_comes_into_scope(project: Ralph) -> None:
    init(project)
    assert project.agent("status").code == "STORY_REQUIRED"
    printed = project.agent("session", "next-story").json
    assert (printed["complete"], printed["story_id"]) == (False, "1")
    assert project.session()["current_story_id"] == "1"
    assert project.agent("status").json["story"]["id"] == "1"
    assert project.agent("context").json["story"]["id"] == "1"
    assert project.agent("task", "done", "1.1").json["remaining"] == ["1.2"]


def check_all_complete(ralph: Ralph) -> None:
    ralph.openspec(TASKS.replace("[ ]", "[x]"))
    init(ralph)
    assert ralph.agent("session", "next-story").json == {"complete": True}


def check_nothing_left_of_the_session(project: Ralph) -> None:
    assert not project.lock_file.exists()
    assert not project.session_file().exists()
    assert init(project, session="s2"), "the change is free again"


def check_flush_with_learnings(project: Ralph) -> None:
    project.begin()
    ok(project, "learn", "Ports are fixed")
    assert project.agent("session", "flush").json["learnings_written"] == 1
    design = project.design_file.read_text()
    assert "- Ports are fixed\n" in design.partition("## Learnings\n")[2]
    check_nothing_left_of_the_session(project)


def check_flush_empty(project: Ralph) -> None:
    design = project.write("openspec/changes/add-login/design.md", "# Design\n\nAs it was.\n")
    before = design.stat()
    project.begin()
    assert project.agent("session", "flush").json == {"success": True, "learnings_written": 0, "patterns_written": 0}
    after = design.stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino), "not even rewritten as it was"
    check_nothing_left_of_the_session(project)


def check_session_is_required(project: Ralph, command: tuple[str, ...]) -> None:
    before = project.snapshot()
    result = project.agent(*command, session=None)
    assert result.exit_code == 1
    assert result.code == "SESSION_REQUIRED"
    assert "RALPH_SESSION" in result.error["error"]
    assert "ralphtool run" in result.error["error"]
    assert project.snapshot() == before


def check_file_location(project: Ralph) -> None:
    init(project, session="my-session.7")
    assert (project.tmp / "ralph" / "sessions" / "my-session.7.json").is_file()


class TestSeed000RecordLearning:
    def test_record_a_learning(self, project: Ralph) -> None:
        """Seed 000, Record a learning: buffered, not written to files, and confirmed."""
        project.begin()
        before = project.snapshot()
        printed = project.agent("learn", "Use IF NOT EXISTS for migrations").json
        assert printed["success"] is True
        assert printed["learning"]["description"] == "Use IF NOT EXISTS for migrations"
        assert printed["total_learnings"] == 1
        after = project.snapshot()
        changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        assert changed == {str(project.session_file())}
        assert [one["description"] for one in project.session()["learnings"]] == ["Use IF NOT EXISTS for migrations"]

    def test_learning_with_task_reference(self, project: Ralph) -> None:
        """Seed 000, Learning with task reference: it carries task, story and iteration."""
        project.begin()
        ok(project, "session", "next-story")  # the second story handed out
        ok(project, "learn", "Pattern X", "--task", "2.1")
        [stored] = project.session()["learnings"]
        assert stored["task_id"] == "2.1"
        assert stored["story_id"] == "1"
        assert stored["iteration"] == 2


class TestSeed000LearningsAccumulatedInSession:
    def test_multiple_learnings_in_iteration(self, project: Ralph) -> None:
        """Seed 000, Multiple learnings in iteration: all kept, in order; design.md waits for the flush."""
        project.begin()
        for number in range(5):
            assert project.agent("learn", f"fact {number}").json["total_learnings"] == number + 1
        assert [one["description"] for one in project.session()["learnings"]] == [f"fact {n}" for n in range(5)]
        assert not project.design_file.exists()
        ok(project, "session", "flush")
        design = project.design_file.read_text()
        assert [line for line in design.split("\n") if line.startswith("- ")] == [f"- fact {n}" for n in range(5)]

    def test_learnings_flushed_to_design_md(self, project: Ralph) -> None:
        """Seed 000, Learnings flushed to design.md: under `## Learnings`, with date and task reference."""
        project.write("openspec/changes/add-login/design.md", "# Design\n\nWhy.\n")
        project.begin()
        day = project.agent("learn", "with a task", "--task", "1.2").json["learning"]["timestamp"][:10]
        ok(project, "learn", "without")
        ok(project, "session", "flush")
        assert project.design_file.read_text() == (
            f"# Design\n\nWhy.\n\n## Learnings\n\n### {day} - Story 1\n- with a task (Task 1.2)\n- without\n"
        )


class TestSeed000LearningsAvailableInContext:
    def test_context_includes_learnings(self, project: Ralph) -> None:
        """Seed 000, Context includes learnings: those of all earlier iterations of the session."""
        project.begin()
        ok(project, "learn", "from the first")
        for task in ("1.1", "1.2"):
            ok(project, "task", "done", task)
        assert project.agent("session", "next-story").json["story_id"] == "2"
        ok(project, "learn", "from the second")
        seen = [(one["description"], one["story_id"], one["iteration"]) for one in self.learnings(project)]
        assert seen == [("from the first", "1", 1), ("from the second", "2", 2)]

    def test_learnings_from_current_iteration(self, project: Ralph) -> None:
        """Seed 000, Learnings from current iteration: what was just recorded is included immediately."""
        project.begin()
        assert self.learnings(project) == []
        learning = project.agent("learn", "new").json["learning"]
        assert self.learnings(project) == [learning]

    def learnings(self, project: Ralph) -> list[dict[str, Any]]:
        found = project.agent("context").json["learnings"]
        assert isinstance(found, list)
        return found


class TestSeed000LearningFormatInDesignMd:
    def test_learning_format(self, project: Ralph) -> None:
        """Seed 000, Learning format: `### <date> - Story <id>`, then the texts, each with its task if it has one."""
        project.begin()
        day = project.agent("learn", "one", "--task", "1.1").json["learning"]["timestamp"][:10]
        ok(project, "learn", "two")
        ok(project, "learn", "of the next", "--task", "2.10", RALPH_STORY="2")
        ok(project, "session", "flush")
        assert project.design_file.read_text() == (
            f"## Learnings\n\n### {day} - Story 1\n- one (Task 1.1)\n- two\n\n"
            f"### {day} - Story 2\n- of the next (Task 2.10)\n"
        )


class TestSeed002SessionInitialization:
    def test_initialize_new_session(self, project: Ralph) -> None:
        """Seed 002, Initialize new session."""
        check_new_session(project)

    def test_session_already_exists_for_change(self, project: Ralph) -> None:
        """Seed 002, Session already exists for change."""
        check_locked_by_another(project)

    def test_invalid_change_name(self, project: Ralph) -> None:
        """Seed 002, Invalid change name."""
        check_change_not_found(project)


class TestSeed002StoryIteration:
    def test_get_next_story(self, project: Ralph) -> None:
        """Seed 002, Get next story: the adapter decides, even if a box was ticked by hand."""
        check_next_story_comes_into_scope(project)
        project.tasks_file.write_text(project.tasks_file.read_text().replace("[ ] 1.2", "[x] 1.2"))
        assert project.agent("session", "next-story").json["story_id"] == "2"

    def test_all_stories_complete(self, ralph: Ralph) -> None:
        """Seed 002, All stories complete."""
        check_all_complete(ralph)


class TestSeed002SessionFlush:
    def test_flush_with_learnings(self, project: Ralph) -> None:
        """Seed 002, Flush with learnings: the adapter wrote them, the lock and the session are gone."""
        check_flush_with_learnings(project)

    def test_flush_with_patterns(self, project: Ralph) -> None:
        """Seed 002, Flush with patterns: the adapter wrote them under `## Patterns`."""
        project.begin()
        ok(project, "pattern", "Layers", "imports go downward")
        ok(project, "pattern", "Errors", "named after what happened")
        printed = project.agent("session", "flush").json
        assert printed == {"success": True, "learnings_written": 0, "patterns_written": 2}
        assert project.design_file.read_text() == (
            "## Patterns\n\n### Layers\nimports go downward\n\n### Errors\nnamed after what happened\n"
        )
        check_nothing_left_of_the_session(project)

    def test_flush_empty_session(self, project: Ralph) -> None:
        """Seed 002, Flush empty session: nothing is written."""
        check_flush_empty(project)


class TestSeed002SessionRequired:
    @pytest.mark.parametrize("command", EVERY_COMMAND, ids=" ".join)
    def test_missing_session_environment(self, project: Ralph, command: tuple[str, ...]) -> None:
        """Seed 002, Missing session environment: any command."""
        check_session_is_required(project, command)


class TestSeed002SessionStateStorage:
    def test_session_file_location(self, project: Ralph) -> None:
        """Seed 002, Session file location."""
        check_file_location(project)

    def test_session_state_contents(self, project: Ralph) -> None:
        """Seed 002, Session state contents; the contract adds iteration and observations."""
        project.begin()
        learning = project.agent("learn", "x").json["learning"]
        pattern = project.agent("pattern", "n", "d").json["pattern"]
        ok(project, "task", "done", "1.1")
        state = project.session()
        assert MOMENT.fullmatch(state.pop("created_at"))
        assert state == {
            "session_id": "s1",
            "change_name": "add-login",
            "current_story_id": "1",
            "learnings": [learning],
            "patterns": [pattern],
            "completed_tasks": ["1.1"],
            "iteration": 1,
            "observations": [],
        }


class TestSeed002SessionOwnsLearnings:
    def test_learnings_stored_in_session(self, project: Ralph) -> None:
        """Seed 002, Learnings stored in session: description, task, story and timestamp."""
        project.begin()
        ok(project, "learn", "first", "--task", "1.1")
        ok(project, "learn", "second")
        first, second = project.session()["learnings"]
        assert (first["description"], first["task_id"], first["story_id"]) == ("first", "1.1", "1")
        assert (second["description"], second["task_id"], second["story_id"]) == ("second", None, "1")
        assert MOMENT.fullmatch(first["timestamp"])
        assert first["timestamp"] < second["timestamp"]


class TestSeed002SessionOwnsPatterns:
    def test_patterns_stored_in_session(self, project: Ralph) -> None:
        """Seed 002, Patterns stored in session: name and description."""
        project.begin()
        ok(project, "pattern", "Layers", "imports go downward")
        [pattern] = project.session()["patterns"]
        assert (pattern["name"], pattern["description"]) == ("Layers", "imports go downward")
        assert not project.design_file.exists()


class TestSeed004SessionInitialization:
    def test_initialize_new_session(self, project: Ralph) -> None:
        """Seed 004, Initialize new session."""
        check_new_session(project)

    def test_session_already_exists_for_change(self, project: Ralph) -> None:
        """Seed 004, Session already exists for change."""
        check_locked_by_another(project)

    def test_invalid_change_name(self, project: Ralph) -> None:
        """Seed 004, Invalid change name."""
        check_change_not_found(project)


class TestSeed004StoryIteration:
    def test_get_next_story(self, project: Ralph) -> None:
        """Seed 004, Get next story."""
        check_next_story_comes_into_scope(project)

    def test_all_stories_complete(self, ralph: Ralph) -> None:
        """Seed 004, All stories complete."""
        check_all_complete(ralph)


class TestSeed004SessionFlush:
    def test_flush_with_learnings(self, project: Ralph) -> None:
        """Seed 004, Flush with learnings."""
        check_flush_with_learnings(project)

    def test_flush_empty_session(self, project: Ralph) -> None:
        """Seed 004, Flush empty session."""
        check_flush_empty(project)


class TestSeed004SessionRequired:
    @pytest.mark.parametrize("command", EVERY_COMMAND, ids=" ".join)
    def test_missing_session_environment(self, project: Ralph, command: tuple[str, ...]) -> None:
        """Seed 004, Missing session environment: any command; an empty variable is a missing one."""
        assert project.agent(*command, session="").code == "SESSION_REQUIRED"
        check_session_is_required(project, command)


class TestSeed004SessionStateStorage:
    def test_session_file_location(self, project: Ralph) -> None:
        """Seed 004, Session file location."""
        check_file_location(project)

    def test_session_state_contents(self, project: Ralph) -> None:
        """Seed 004, Session state contents: its accumulated_learnings is what seed 002 calls learnings, and is read."""
        project.begin()
        learning = project.agent("learn", "x").json["learning"]
        state = project.session()
        assert {"session_id", "change_name", "current_story_id", "created_at", "completed_tasks"} <= set(state)
        state["accumulated_learnings"] = state.pop("learnings")
        project.session_file().write_text(json.dumps(state))
        assert project.agent("context").json["learnings"] == [learning]
        assert project.agent("learn", "y").json["total_learnings"] == 2
        assert [one["description"] for one in project.session()["learnings"]] == ["x", "y"]
