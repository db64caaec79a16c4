"""Bad input: tasks.md and the files beside it."""

from __future__ import annotations

import os
import subprocess

import pytest
from cli.bad_input.calls import INIT, WITH_SPEC, ok, refused
from patience import PATIENCE
from project import COMMAND, TASKS, Ralph, Result


def break_tasks(ralph: Ralph, how: str) -> None:
    texts = {
        "not UTF-8": TASKS.encode().replace(b"folder", b"f\xf6lder"),
        "UTF-16": TASKS.encode("utf-16"),
        "depends on nothing": TASKS.replace("2. Build", "2. Build (depends on 7)").encode(),
        "waits for itself": TASKS.replace("2. Build", "2. Build (depends on 2)").encode(),
    }
    ralph.tasks_file.unlink()
    if how == "a folder":
        ralph.tasks_file.mkdir()
    elif how != "missing":
        ralph.tasks_file.write_bytes(texts[how])


BROKEN_TASKS = [
    "not UTF-8",
    "UTF-16",
    "depends on nothing",
    "waits for itself",
]


class TestBrokenTasks:
    @pytest.mark.parametrize("how", BROKEN_TASKS)
    def test_spec_error(self, project: Ralph, how: str) -> None:
        break_tasks(project, how)
        error = refused(project, *INIT)
        assert error["code"] == "SPEC_ERROR"
        assert str(project.tasks_file) in error["error"]

    @pytest.mark.parametrize("how", BROKEN_TASKS)
    def test_spec_error_in_a_session(self, project: Ralph, how: str) -> None:
        project.begin()
        break_tasks(project, how)
        for command in WITH_SPEC:
            assert refused(project, *command)["code"] == "SPEC_ERROR"

    def test_missing_it_has_no_tasks_yet(self, project: Ralph) -> None:
        break_tasks(project, "missing")
        assert ok(project, *INIT)["stories"] == []
        error = refused(project, "session", "next-story")
        assert error["code"] == "SPEC_ERROR"
        assert "no tasks yet" in error["error"]

    def test_missing_in_a_session(self, project: Ralph) -> None:
        project.begin()
        break_tasks(project, "missing")
        for command in WITH_SPEC:
            assert refused(project, *command)["code"] in ("SPEC_ERROR", "STORY_NOT_FOUND")

    def test_a_folder_in_its_place(self, project: Ralph) -> None:
        break_tasks(project, "a folder")
        error = refused(project, *INIT)
        assert error["code"] in ("SPEC_ERROR", "IO_ERROR")
        assert str(project.tasks_file) in error["error"]

    @pytest.mark.parametrize("command", [("context",), ("session", "flush")], ids=" ".join)
    @pytest.mark.parametrize("file", ["tasks.md", "proposal.md", "design.md"])
    def test_a_fifo_does_not_keep_us_waiting(self, project: Ralph, file: str, command: tuple[str, ...]) -> None:
        """Nothing will ever be written to it, and a run at night is not watched."""
        project.begin()
        ok(project, "learn", "x")
        path = project.tasks_file.parent / file
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        done = subprocess.run(
            [COMMAND, "agent", *command],
            env={**project.env, "RALPH_SESSION": "s1"},
            cwd=project.root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
        )
        result = Result(done)
        if command == ("context",) or file == "design.md":
            assert result.code in ("SPEC_ERROR", "IO_ERROR", "UNSAFE_PATH")
            assert str(path) in result.error["error"]
        else:
            assert result.json["learnings_written"] == 1, "it needs neither"

    def test_learnings_are_kept_and_flushed_all_the_same(self, project: Ralph) -> None:
        project.begin()
        break_tasks(project, "missing")
        ok(project, "learn", "x")
        assert ok(project, "session", "flush")["learnings_written"] == 1

    @pytest.mark.parametrize("file", ["proposal.md", "design.md", "specs/auth/spec.md"])
    def test_not_utf_8_beside_it_keeps_nobody_from_working(self, project: Ralph, file: str) -> None:
        project.begin()
        path = project.write(f"openspec/changes/add-login/{file}", b"# caf\xe9\n")
        assert ok(project, "context")["story"]["id"] == "1"
        assert f"{path.name}: byte 5 is not UTF-8" in " ".join(project.run("show", "add-login").stdout.split())

    def test_the_last_task_is_not_ticked_when_its_scenarios_can_not_be_read(self, project: Ralph) -> None:
        project.begin()
        ok(project, "task", "done", "1.1")
        path = project.tasks_file.parent / "specs/auth/spec.md"
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(path)
        error = refused(project, "task", "done", "1.2")
        assert error["code"] == "SPEC_ERROR"
        assert str(path) in error["error"]

    def test_design_that_can_not_be_read_keeps_the_learnings(self, project: Ralph) -> None:
        project.begin()
        ok(project, "learn", "x")
        path = project.write("openspec/changes/add-login/design.md", b"\xff")
        error = refused(project, "session", "flush")
        assert error["code"] == "SPEC_ERROR"
        assert str(path) in error["error"]
        path.write_text("# Design\n")
        assert ok(project, "session", "flush")["learnings_written"] == 1
        assert path.read_text().endswith("- x\n")

    def test_design_that_is_a_folder_keeps_the_learnings(self, project: Ralph) -> None:
        project.begin()
        ok(project, "learn", "x")
        project.design_file.mkdir()
        error = refused(project, "session", "flush")
        assert error["code"] in ("SPEC_ERROR", "IO_ERROR")
        assert str(project.design_file) in error["error"]
        project.design_file.rmdir()
        assert ok(project, "session", "flush")["learnings_written"] == 1


class TestUnusualTasksThatWork:
    def test_empty(self, ralph: Ralph) -> None:
        ralph.openspec(b"")
        assert ok(ralph, *INIT)["stories"] == []
        assert refused(ralph, "session", "next-story")["code"] == "SPEC_ERROR"
        assert ok(ralph, "session", "flush")["success"] is True

    def test_twenty_megabytes(self, ralph: Ralph) -> None:
        stories, tasks, text = 50, 10, "word " * 8000
        lines = [
            f"## {story}. Story {story}\n\n"
            + "".join(f"- [ ] {story}.{task} {text}\n" for task in range(1, tasks + 1))
            + "\n"
            for story in range(1, stories + 1)
        ]
        data = "".join(lines).encode()
        assert len(data) > 20_000_000
        ralph.openspec(data).begin()
        assert ok(ralph, "task", "done", "1.1")["remaining"] == [f"1.{n}" for n in range(2, 11)]
        assert ok(ralph, "status")["change"] == {"stories_done": 0, "stories_total": stories}
        assert ralph.tasks_file.read_bytes() == data.replace(b"[ ] 1.1 ", b"[x] 1.1 ", 1)

    def test_twenty_megabytes_of_many_tasks(self, ralph: Ralph) -> None:
        count, text = 100_000, "do a small thing here, " * 8
        data = ("## 1. One\n\n" + "".join(f"- [ ] 1.{n} {text}\n" for n in range(1, count + 1))).encode()
        assert len(data) > 19_000_000
        ralph.openspec(data)
        assert ok(ralph, *INIT)["stories"] == [{"id": "1", "title": "One", "tasks_total": count, "tasks_done": 0}]
        ok(ralph, "task", "done", "1.5499", RALPH_STORY="1")
        assert ralph.tasks_file.read_bytes() == data.replace(b"[ ] 1.5499 ", b"[x] 1.5499 ", 1)

    def test_crlf(self, ralph: Ralph) -> None:
        data = TASKS.replace("\n", "\r\n").encode()
        ralph.openspec(data).begin()
        assert ok(ralph, "context")["tasks"][1] == {"id": "1.2", "description": "Write the file", "done": False}
        ok(ralph, "task", "done", "1.2")
        assert ralph.tasks_file.read_bytes() == data.replace(b"[ ] 1.2", b"[x] 1.2")

    def test_byte_order_mark(self, ralph: Ralph) -> None:
        data = "\ufeff## 1. One\n- [ ] 1.1 a\n".encode()
        ralph.openspec(data).begin()
        assert ok(ralph, "status")["story"] == {"id": "1", "tasks_done": 0, "tasks_total": 1}
        ok(ralph, "task", "done", "1.1")
        assert ralph.tasks_file.read_bytes() == data.replace(b"[ ]", b"[x]")

    @pytest.mark.parametrize("fence", ["```", "~~~", "`````", "```md", "   ```"])
    def test_boxes_in_fences_are_no_tasks(self, ralph: Ralph, fence: str) -> None:
        end = fence.replace("md", "")
        data = f"## 1. One\n{fence}\n- [ ] 1.1 example\n## 9. No story\n{end}\n- [ ] 1.1 real\n".encode()
        ralph.openspec(data)
        assert ok(ralph, *INIT)["stories"] == [{"id": "1", "title": "One", "tasks_total": 1, "tasks_done": 0}]
        ok(ralph, "task", "done", "1.1", RALPH_STORY="1")
        assert ralph.tasks_file.read_bytes() == data.replace(b"[ ] 1.1 real", b"[x] 1.1 real")

    def test_control_characters_and_no_line_feed_at_the_end(self, ralph: Ralph) -> None:
        data = b"## 1. One\x1b[31m\n- [ ] 1.1 a\x00b\x07\n- [ ] 1.2 \xe2\x80\xa8c"
        ralph.openspec(data).begin()
        result = ralph.agent("context")
        assert [task["id"] for task in result.json["tasks"]] == ["1.1", "1.2"]
        assert result.stdout[:-1].isprintable()
        ok(ralph, "task", "done", "1.2")
        assert ralph.tasks_file.read_bytes() == data.replace(b"[ ] 1.2", b"[x] 1.2")
