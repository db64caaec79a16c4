"""Stories and tasks in `ralphtool agent`: scope, ticking, the next story."""

from __future__ import annotations

import pytest
from cli.agent.calls import held_by_a_run, init, ok, refuse
from project import SPEC, Ralph

PRD = """\
{
  "branchName": "ralph/shop",
  "unknown": [1, 2.50],
  "userStories": [
    {"id": "US-1", "title": "Cart", "acceptanceCriteria": ["can add", "can remove"], "priority": 1, "passes": false},
    {"id": "US-2", "title": "Pay", "priority": 2, "passes": false}
  ]
}
"""


class TestStoryScope:
    def test_the_variable_comes_before_the_session(self, project: Ralph) -> None:
        project.begin()
        assert ok(project, "status", RALPH_STORY="2")["story"]["id"] == "2"
        assert ok(project, "context", RALPH_STORY="2")["story"]["title"] == "Build"
        assert ok(project, "learn", "x", RALPH_STORY="2")["learning"]["story_id"] == "2"
        assert ok(project, "observe", "finding", "x", RALPH_STORY="2")["observation"]["story_id"] == "2"
        assert project.agent("task", "done", "1.1", RALPH_STORY="2").code == "TASK_OUT_OF_SCOPE"
        assert ok(project, "task", "done", "2.1", RALPH_STORY="2")["remaining"] == ["2.10"]
        assert project.session()["current_story_id"] == "1"

    def test_the_variable_alone_is_enough(self, project: Ralph) -> None:
        init(project)
        assert ok(project, "status", RALPH_STORY="2")["story"]["id"] == "2"

    def test_an_empty_variable_counts_as_absent(self, project: Ralph) -> None:
        init(project)
        assert project.agent("status", RALPH_STORY="").code == "STORY_REQUIRED"
        assert ok(project, "learn", "x", RALPH_STORY="")["learning"]["story_id"] is None
        ok(project, "session", "next-story")
        assert ok(project, "status", RALPH_STORY="")["story"]["id"] == "1"

    @pytest.mark.parametrize("command", [("context",), ("status",), ("task", "done", "1.1")], ids=" ".join)
    def test_who_needs_a_story(self, project: Ralph, command: tuple[str, ...]) -> None:
        init(project)
        assert refuse(project, *command)["code"] == "STORY_REQUIRED"
        assert refuse(project, *command, RALPH_STORY="none")["code"] == "STORY_NOT_FOUND"

    def test_who_needs_none(self, project: Ralph) -> None:
        init(project)
        assert ok(project, "learn", "x")["learning"]["story_id"] is None
        assert ok(project, "observe", "finding", "x")["observation"]["story_id"] is None
        assert "story_id" not in ok(project, "pattern", "n", "d")["pattern"]
        day = project.session()["learnings"][0]["timestamp"][:10]
        ok(project, "session", "flush")
        assert f"### {day} - General\n- x\n" in project.design_file.read_text()

    def test_iteration_counts_the_stories_handed_out(self, project: Ralph) -> None:
        init(project)
        assert ok(project, "learn", "before")["learning"]["iteration"] == 0
        assert ok(project, "session", "next-story")["iteration"] == 1
        assert ok(project, "session", "next-story") == {
            "complete": False,
            "story_id": "1",
            "story_title": "Set up",
            "iteration": 2,
        }
        assert ok(project, "learn", "after")["learning"]["iteration"] == 2
        assert ok(project, "observe", "finding", "x")["observation"]["iteration"] == 2
        assert project.session()["iteration"] == 2


class TestTaskDone:
    def test_one_box_is_all_that_changes(self, project: Ralph) -> None:
        project.begin()
        before = project.tasks_file.read_bytes()
        ok(project, "task", "done", "1.1")
        assert project.tasks_file.read_bytes() == before.replace(b"[ ] 1.1 ", b"[x] 1.1 ")

    def test_it_is_idempotent(self, project: Ralph) -> None:
        project.begin()
        first = project.agent("task", "done", "1.1").stdout
        after = project.snapshot()
        assert project.agent("task", "done", "1.1").stdout == first
        assert project.snapshot() == after

    @pytest.mark.parametrize("order", [["1.1", "1.10"], ["1.10", "1.1"]], ids=" ".join)
    def test_1_1_is_not_1_10(self, ralph: Ralph, order: list[str]) -> None:
        text = "## 1. One\n\n- [ ] 1.10 ten\n- [ ] 1.1 one\n- [ ] 1.11 eleven\n"
        ralph.openspec(text).begin()
        for task in order:
            ok(ralph, "task", "done", task)
            text = text.replace(f"[ ] {task} ", f"[x] {task} ")
            assert ralph.tasks_file.read_text() == text
        assert ok(ralph, "status")["story"]["tasks_done"] == 2

    def test_what_is_ticked_already_stays_as_it_was_written(self, project: Ralph) -> None:
        text = project.tasks_file.read_text().replace("[ ] 1.1", "[X] 1.1")
        project.tasks_file.write_text(text)
        project.begin()
        assert ok(project, "task", "done", "1.1")["remaining"] == ["1.2"]
        assert project.tasks_file.read_text() == text
        assert project.session()["completed_tasks"] == ["1.1"]

    def test_a_box_cleared_by_hand_is_ticked_again(self, project: Ralph) -> None:
        project.begin()
        before = project.tasks_file.read_bytes()
        ok(project, "task", "done", "1.1")
        project.tasks_file.write_bytes(before)
        assert ok(project, "status")["story"]["tasks_done"] == 0
        ok(project, "task", "done", "1.1")
        assert ok(project, "status")["story"]["tasks_done"] == 1
        assert project.session()["completed_tasks"] == ["1.1"]

    @pytest.mark.parametrize("task", ["1", "1.", "1.3", "01.1", "1.1 ", " 1.1", "１.1", "x" * 5000])
    def test_no_such_task(self, project: Ralph, task: str) -> None:
        project.begin()
        error = refuse(project, "task", "done", task)
        assert error["code"] == "TASK_NOT_FOUND"
        assert len(error["error"]) < 500

    def test_a_task_of_another_story_names_both(self, project: Ralph) -> None:
        project.begin()
        error = refuse(project, "task", "done", "2.10")
        assert error["code"] == "TASK_OUT_OF_SCOPE"
        assert "story 2" in error["error"]
        assert "1" in error["error"].partition("current story is")[2]

    def test_file_mode_is_kept(self, project: Ralph) -> None:
        project.tasks_file.chmod(0o640)
        project.begin()
        ok(project, "task", "done", "1.1")
        assert project.tasks_file.stat().st_mode & 0o777 == 0o640


class TestNextStory:
    def order(self, ralph: Ralph) -> list[str]:
        """All stories in the order they are handed out; each is done before the next one is requested."""
        init(ralph)
        seen: list[str] = []
        while "story_id" in (answer := ok(ralph, "session", "next-story")):
            seen.append(answer["story_id"])
            assert len(seen) < 20, "it goes on for ever"
            for task in ok(ralph, "context")["tasks"]:
                if not task["done"]:
                    ok(ralph, "task", "done", task["id"])
        assert answer == {"complete": True}
        return seen

    def test_by_number(self, ralph: Ralph) -> None:
        ralph.openspec("## 10. Ten\n- [ ] 10.1 a\n## 2. Two\n- [ ] 2.1 b\n## 1. One\n- [x] 1.1 c\n")
        assert self.order(ralph) == ["2", "10"]

    def test_optional_stories_come_last(self, ralph: Ralph) -> None:
        ralph.openspec("## 1. Extra (optional)\n- [ ] 1.1 a\n## 2. Two\n- [ ] 2.1 b\n## 3. Three\n- [ ] 3.1 c\n")
        assert self.order(ralph) == ["2", "3", "1"]

    def test_dependencies_are_waited_for(self, ralph: Ralph) -> None:
        ralph.openspec(
            "## 1. A (depends on 3)\n- [ ] 1.1 a\n## 2. B (depends on 1, 3)\n- [ ] 2.1 b\n## 3. C\n- [ ] 3.1 c\n"
        )
        assert self.order(ralph) == ["3", "1", "2"]

    def test_what_waits_for_an_optional_story_comes_after_it(self, ralph: Ralph) -> None:
        ralph.openspec(
            "## 1. One (depends on 2)\n- [ ] 1.1 a\n## 2. Two (optional)\n- [ ] 2.1 b\n## 3. Three\n- [ ] 3.1 c\n"
        )
        assert self.order(ralph) == ["3", "2", "1"]

    def test_a_story_without_tasks_is_not_handed_out_nor_done(self, ralph: Ralph) -> None:
        ralph.openspec("## 1. Nothing\n\n## 2. Two\n- [ ] 2.1 b\n").begin()
        assert ok(ralph, "status")["story"]["id"] == "2"
        ok(ralph, "task", "done", "2.1")
        assert ok(ralph, "status")["change_complete"] is False
        refused = ralph.agent("session", "next-story")
        assert refused.code == "SPEC_ERROR"
        assert "story 1 has no tasks" in refused.error["error"]

    def test_the_open_one_is_given_again(self, project: Ralph) -> None:
        init(project)
        assert [ok(project, "session", "next-story")["story_id"] for _ in range(3)] == ["1", "1", "1"]

    def test_stories_do_not_wait_for_each_other_otherwise(self, project: Ralph) -> None:
        project.begin()
        ok(project, "task", "done", "2.1", RALPH_STORY="2")
        assert project.session()["completed_tasks"] == ["2.1"]

    def test_the_change_is_complete_without_its_optional_stories(self, ralph: Ralph) -> None:
        ralph.openspec("## 1. One\n- [ ] 1.1 a\n## 2. Two (optional)\n- [ ] 2.1 b\n").begin()
        assert ok(ralph, "status")["change_complete"] is False
        ok(ralph, "task", "done", "1.1")
        assert ok(ralph, "status") == {
            "story": {"id": "1", "tasks_done": 1, "tasks_total": 1},
            "change": {"stories_done": 1, "stories_total": 2},
            "story_complete": True,
            "change_complete": True,
        }
        assert ok(ralph, "session", "next-story")["story_id"] == "2", "optional, but still to be had"

    def test_an_empty_change_is_never_complete(self, ralph: Ralph) -> None:
        ralph.openspec("")
        assert init(ralph)["stories"] == []
        assert ralph.agent("session", "next-story").code == "SPEC_ERROR"


class TestPrd:
    def shop(self, ralph: Ralph) -> Ralph:
        ralph.write("prd.json", PRD)
        return ralph

    def test_criteria_are_tasks_that_the_session_keeps(self, ralph: Ralph) -> None:
        self.shop(ralph).begin("shop")
        assert [task["id"] for task in ok(ralph, "context")["tasks"]] == ["US-1.1", "US-1.2"]
        printed = ok(ralph, "task", "done", "US-1.1")
        assert (printed["remaining"], printed["story_complete"]) == (["US-1.2"], False)
        assert ralph.read("prd.json") == PRD
        assert ralph.session()["completed_tasks"] == ["US-1.1"]
        assert ok(ralph, "status")["story"] == {"id": "US-1", "tasks_done": 1, "tasks_total": 2}

    def test_the_last_one_sets_passes_and_nothing_else(self, ralph: Ralph) -> None:
        self.shop(ralph).begin("shop")
        ok(ralph, "task", "done", "US-1.2")
        printed = ok(ralph, "task", "done", "US-1.1")
        assert (printed["remaining"], printed["story_complete"], printed["scenarios"]) == ([], True, [])
        assert ralph.read("prd.json") == PRD.replace('1, "passes": false', '1, "passes": true')
        assert ok(ralph, "session", "next-story")["story_id"] == "US-2"

    def test_without_criteria_the_title_is_the_task(self, ralph: Ralph) -> None:
        self.shop(ralph).begin("shop")
        assert ok(ralph, "context", RALPH_STORY="US-2")["tasks"] == [
            {"id": "US-2.1", "description": "Pay", "done": False}
        ]
        ok(ralph, "task", "done", "US-2.1", RALPH_STORY="US-2")
        assert ralph.read("prd.json") == PRD.replace('2, "passes": false', '2, "passes": true')

    def test_in_a_run_passes_waits_for_the_gates(self, ralph: Ralph) -> None:
        self.shop(ralph)
        with held_by_a_run(ralph, "shop"):
            ok(ralph, "session", "next-story")
            ok(ralph, "task", "done", "US-1.1")
            printed = ok(ralph, "task", "done", "US-1.2")
            assert (printed["remaining"], printed["story_complete"]) == ([], True)
            assert ok(ralph, "status")["story_complete"] is True
            assert ralph.read("prd.json") == PRD

    def test_what_was_done_before_is_taken_over(self, ralph: Ralph) -> None:
        self.shop(ralph).begin("shop")
        ok(ralph, "task", "done", "US-1.1")
        assert ralph.run("unlock", "shop").exit_code == 0
        ralph.begin("shop", "s2")
        assert ok(ralph, "status", session="s2")["story"]["tasks_done"] == 1

    def test_learnings_go_beside_it(self, ralph: Ralph) -> None:
        self.shop(ralph).begin("shop")
        ok(ralph, "learn", "a fact", "--task", "US-1.1")
        ok(ralph, "session", "flush")
        assert ralph.read("shop-learnings.md").endswith("- Story US-1\n- a fact (Task US-1.1)\n")
        assert ralph.read("prd.json") == PRD


def test_scenarios_belong_to_their_capability_and_requirement(project: Ralph) -> None:
    project.write("openspec/changes/add-login/specs/deep/er/spec.md", SPEC.replace("Login", "Logout"))
    project.begin()
    found = {(one["capability"], one["requirement"]) for one in ok(project, "context")["scenarios"]}
    assert found == {("auth", "Login"), ("deep/er", "Logout")}
