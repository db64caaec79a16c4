from conftest import Ralph


def test_a_whole_session(project: Ralph) -> None:
    project.begin()
    assert project.agent("task", "done", "1.1").json["remaining"] == ["1.2"]
    assert project.agent("learn", "hello", "--task", "1.1").json["total_learnings"] == 1
    assert project.agent("session", "flush").json == {"success": True, "learnings_written": 1, "patterns_written": 0}
    assert "- hello (Task 1.1)" in project.design_file.read_text()
    assert "- [x] 1.1 Make" in project.tasks_file.read_text()
