"""The nine commands of `ralphtool agent`: their output."""

from __future__ import annotations

import re

from cli.agent.calls import init, ok, record_one_of_each
from project import Ralph

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


class TestWhatIsPrinted:
    """Exactly the keys of the contract, with the right values, and null for what is absent."""

    def test_session_init(self, project: Ralph) -> None:
        printed = init(project)
        assert MOMENT.fullmatch(printed.pop("created_at"))
        assert printed == {
            "session_id": "s1",
            "change_name": "add-login",
            "stories": [
                {"id": "1", "title": "Set up", "tasks_total": 2, "tasks_done": 0},
                {"id": "2", "title": "Build", "tasks_total": 2, "tasks_done": 0},
            ],
        }

    def test_session_init_counts_what_is_done(self, project: Ralph) -> None:
        project.tasks_file.write_text(project.tasks_file.read_text().replace("[ ] 1.2", "[X] 1.2"))
        assert [story["tasks_done"] for story in init(project)["stories"]] == [1, 0]

    def test_session_next_story(self, project: Ralph) -> None:
        init(project)
        expected = {"complete": False, "story_id": "1", "story_title": "Set up", "iteration": 1}
        assert ok(project, "session", "next-story") == expected

    def test_session_next_story_when_all_is_done(self, project: Ralph) -> None:
        project.tasks_file.write_text(project.tasks_file.read_text().replace("[ ]", "[x]"))
        init(project)
        result = project.agent("session", "next-story")
        assert result.stdout == '{"complete": true}\n'
        assert project.session()["iteration"] == 0

    def test_session_flush(self, project: Ralph) -> None:
        project.begin()
        record_one_of_each(project)
        expected = {"success": True, "learnings_written": 1, "patterns_written": 1}
        assert ok(project, "session", "flush") == expected

    def test_context(self, project: Ralph) -> None:
        project.write("openspec/changes/add-login/design.md", "# How\n")
        project.write(".ralph/config.toml", '[verify]\nchecks = ["lint it"]\ntests = ["try it"]\n')
        project.begin()
        learning = ok(project, "learn", "a fact")["learning"]
        pattern = ok(project, "pattern", "Layers", "downward")["pattern"]
        ok(project, "task", "done", "1.2")
        assert ok(project, "context") == {
            "story": {"id": "1", "title": "Set up", "description": None},
            "tasks": [
                {"id": "1.1", "description": "Make the folder", "done": False},
                {"id": "1.2", "description": "Write the file", "done": True},
            ],
            "proposal": "# Why\nUsers want in.\n",
            "design": "# How\n",
            "scenarios": [
                {
                    "capability": "auth",
                    "requirement": "Login",
                    "name": "Good password",
                    "given": ["a known user"],
                    "when": ["the password is right"],
                    "then": ["the user is in"],
                }
            ],
            "learnings": [learning],
            "patterns": [pattern],
            "verify": {"checks": ["lint it"], "tests": ["try it"]},
        }

    def test_context_of_a_bare_change(self, ralph: Ralph) -> None:
        ralph.write("openspec/changes/bare/tasks.md", "## 1. One\nSome words.\n\n- [ ] 1.1 do\n")
        ralph.begin("bare")
        assert ok(ralph, "context") == {
            "story": {"id": "1", "title": "One", "description": "Some words."},
            "tasks": [{"id": "1.1", "description": "do", "done": False}],
            "proposal": None,
            "design": None,
            "scenarios": [],
            "learnings": [],
            "patterns": [],
            "verify": {"checks": [], "tests": []},
        }

    def test_context_gives_the_stored_objects(self, project: Ralph) -> None:
        project.begin()
        ok(project, "learn", "build first", "--type", "build-command")
        ok(project, "pattern", "Layers", "downward", "--type", "file-structure")
        context, state = ok(project, "context"), project.session()
        assert context["learnings"] == state["learnings"]
        assert context["patterns"] == state["patterns"]
        assert "build-command" in context["learnings"][0].values()
        assert "file-structure" in context["patterns"][0].values()

    def test_task_done(self, project: Ralph) -> None:
        project.begin()
        assert ok(project, "task", "done", "1.1") == {
            "success": True,
            "task_id": "1.1",
            "remaining": ["1.2"],
            "story_complete": False,
            "scenarios": None,
        }

    def test_task_done_of_the_last_one(self, project: Ralph) -> None:
        project.begin()
        ok(project, "task", "done", "1.2")
        printed = ok(project, "task", "done", "1.1")
        assert set(printed) == {"success", "task_id", "remaining", "story_complete", "scenarios"}
        assert (printed["remaining"], printed["story_complete"]) == ([], True)
        assert printed["scenarios"] == ok(project, "context")["scenarios"]
        assert [scenario["name"] for scenario in printed["scenarios"]] == ["Good password"]

    def test_status(self, project: Ralph) -> None:
        project.begin()
        ok(project, "task", "done", "1.1")
        assert ok(project, "status") == {
            "story": {"id": "1", "tasks_done": 1, "tasks_total": 2},
            "change": {"stories_done": 0, "stories_total": 2},
            "story_complete": False,
            "change_complete": False,
        }

    def test_status_when_all_is_done(self, project: Ralph) -> None:
        project.begin()
        project.tasks_file.write_text(project.tasks_file.read_text().replace("[ ]", "[x]"))
        assert ok(project, "status") == {
            "story": {"id": "1", "tasks_done": 2, "tasks_total": 2},
            "change": {"stories_done": 2, "stories_total": 2},
            "story_complete": True,
            "change_complete": True,
        }

    def test_learn(self, project: Ralph) -> None:
        project.begin()
        printed = ok(project, "learn", "a fact", "--task", "1.1", "--type", "tool-usage")
        assert MOMENT.fullmatch(printed["learning"].pop("timestamp"))
        assert printed == {
            "success": True,
            "learning": {"description": "a fact", "task_id": "1.1", "story_id": "1", "iteration": 1},
            "total_learnings": 1,
        }

    def test_pattern(self, project: Ralph) -> None:
        project.begin()
        printed = ok(project, "pattern", "Layers", "imports go downward", "--type", "file-structure")
        assert MOMENT.fullmatch(printed["pattern"].pop("timestamp"))
        assert printed == {
            "success": True,
            "pattern": {"name": "Layers", "description": "imports go downward"},
            "total_patterns": 1,
        }

    def test_observe(self, project: Ralph) -> None:
        project.begin()
        more = ("--description", "waits", "--file", "a.py", "--category", "bug", "--severity", "high")
        printed = ok(project, "observe", "blocker", "It hangs", *more)
        assert MOMENT.fullmatch(printed["observation"].pop("timestamp"))
        assert printed == {
            "success": True,
            "observation": {
                "type": "blocker",
                "title": "It hangs",
                "description": "waits",
                "file": "a.py",
                "category": "bug",
                "severity": "high",
                "story_id": "1",
                "iteration": 1,
            },
            "total_observations": 1,
        }

    def test_absent_values_are_null(self, project: Ralph) -> None:
        init(project)
        learning = ok(project, "learn", "a fact")["learning"]
        assert set(learning) == {"description", "task_id", "story_id", "iteration", "timestamp"}
        assert (learning["task_id"], learning["story_id"], learning["iteration"]) == (None, None, 0)
        observation = ok(project, "observe", "finding", "odd")["observation"]
        absent = ("description", "file", "category", "severity", "story_id")
        assert {name: observation[name] for name in absent} == dict.fromkeys(absent)
        assert observation["iteration"] == 0

    def test_totals_count_up(self, project: Ralph) -> None:
        init(project)
        for total in (1, 2, 3):
            assert ok(project, "learn", f"fact {total}")["total_learnings"] == total
            assert ok(project, "pattern", f"name {total}", "d")["total_patterns"] == total
            assert ok(project, "observe", "finding", f"title {total}")["total_observations"] == total

    def test_stdout_is_one_line_of_ascii(self, project: Ralph) -> None:
        """So an agent's text can do no harm in any terminal, locale or log."""
        project.begin()
        result = project.agent("learn", "\x1b[31mröt\x7f\u2028")
        assert result.json["learning"]["description"] == "\x1b[31mröt\x7f\u2028"
        assert result.stdout.endswith("}\n")
        assert result.stdout[:-1].isascii()
        assert result.stdout[:-1].isprintable()

    def test_any_locale_will_do(self, project: Ralph) -> None:
        project.begin()
        assert ok(project, "learn", "größer", LC_ALL="C")["learning"]["description"] == "größer"
