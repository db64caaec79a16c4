"""The scripted agent: every step played by the real program in a real project, bad scripts, and its reader."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab import Lab
from patience import PATIENCE
from project import COMMAND, REPOSITORY, Ralph

from ralphtool import agents
from ralphtool.agents import End, Event, Failure, Job, Message, Tool, Usage, scripted_program
from ralphtool.agents.scripted import Scripted, ScriptedReader
from ralphtool.agents.scripted_program import find_problems
from ralphtool.errors import InvalidValue

PROMPT = "# Story 1\n\ntoken: quoted\n\nWrite the promise with this token:\n\n  token: t0k3n\n"
DOCS = (REPOSITORY / "docs/scripted-agent.md").read_text()


class Played:
    """How a turn went, as the loop sees it."""

    def __init__(self, stdout: bytes, stderr: bytes, exit_code: int) -> None:
        self.stdout = stdout
        self.stderr = stderr.decode()
        self.exit_code = exit_code
        reader = ScriptedReader()
        self.events = [*reader.feed(stdout), *reader.rest()]
        self.end = reader.end(exit_code)

    def tools(self) -> list[tuple[str, str]]:
        return [(event.name, event.detail) for event in self.events if isinstance(event, Tool)]

    def messages(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Message)]


class Stage:
    """A project with a session, and the scripted agent started in it as the loop starts it."""

    def __init__(self, ralph: Ralph) -> None:
        self.ralph = ralph
        self.root = ralph.root
        self.prompt = ralph.tmp / "prompt.md"
        self.prompt.write_text(PROMPT)

    def script(self, script: dict[str, Any]) -> str:
        path = self.ralph.tmp / "script.json"
        path.write_text(json.dumps(script))
        return str(path)

    def start(self, script: str, attempt: int = 1, **env: str) -> subprocess.Popen[bytes]:
        runner = Scripted("scripted", {"args": [script]})
        runner.check()
        start = runner.start(Job(prompt=str(self.prompt), root=str(self.root), attempt=attempt))
        environment = {**self.ralph.env, "RALPH_SESSION": "s1", "RALPH_STORY": "1", **start.env, **env}
        with open(start.stdin or os.devnull) as stdin:
            return subprocess.Popen(
                start.argv,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self.root,
                env=environment,
            )

    def play_file(self, script: str, attempt: int = 1, **env: str) -> Played:
        with self.start(script, attempt, **env) as process:
            try:
                stdout, stderr = process.communicate(timeout=PATIENCE)
            finally:
                process.kill()
        return Played(stdout, stderr, process.returncode)

    def play(self, *steps: dict[str, Any], **env: str) -> Played:
        return self.play_file(self.script({"turn": [{"steps": list(steps)}]}), 1, **env)


@pytest.fixture
def stage(project: Ralph) -> Stage:
    """Story 1 of `add-login` is in scope; nothing is done yet."""
    return Stage(project.begin())


# --- steps: files -----------------------------------------------------------------------------------


def test_files_are_written_appended_changed_moved_and_deleted(stage: Stage) -> None:
    played = stage.play(
        {"write": "src/a.py", "text": "one\r\ntwo é {token}\n"},
        {"append": "src/a.py", "text": "three\n"},
        {"append": "log/new.txt", "text": "first\n"},
        {"replace": "src/a.py", "old": "two", "new": "2"},
        {"write": "gone.txt", "text": ""},
        {"delete": "gone.txt"},
        {"write": "folder/deep/x", "text": "x"},
        {"delete": "folder"},
        {"move": "log/new.txt", "to": "kept/old.txt"},
    )
    assert played.end == End(True)
    assert (stage.root / "src/a.py").read_bytes() == "one\r\n2 é {token}\nthree\n".encode()
    assert (stage.root / "kept/old.txt").read_text() == "first\n"
    assert not any((stage.root / name).exists() for name in ("gone.txt", "folder", "log/new.txt"))
    assert played.tools()[0] == ("write", "src/a.py")
    assert played.tools()[-1] == ("move", "log/new.txt to kept/old.txt")


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ({"replace": "a.txt", "old": "nothing like it", "new": ""}, "does not contain the text"),
        ({"replace": "none.txt", "old": "x", "new": ""}, "No such file"),
        ({"delete": "none.txt"}, "No such file"),
        ({"move": "none.txt", "to": "b"}, "No such file"),
        ({"write": "a.txt/b", "text": ""}, "a.txt"),
    ],
)
def test_an_edit_that_cannot_be_made_fails_the_turn(stage: Stage, step: dict[str, Any], why: str) -> None:
    stage.ralph.write("a.txt", "as it was")
    played = stage.play(step, {"write": "after", "text": ""}, {"complete": True})
    assert not played.end.ok
    assert played.end.reason.startswith(f"step 1 ({next(iter(step))}): ")
    assert why in played.end.reason
    assert played.exit_code == 1
    assert stage.ralph.read("a.txt") == "as it was"
    assert not (stage.root / "after").exists()


@pytest.mark.parametrize(
    "step",
    [
        {"write": "door/x", "text": "mine"},
        {"append": "link", "text": "mine"},
        {"replace": "link", "old": "theirs", "new": "mine"},
        {"delete": "door/theirs"},
        {"move": "door/theirs", "to": "here"},
        {"move": "inside", "to": "door/theirs"},
    ],
)
def test_no_link_leads_a_step_out_of_the_working_directory(stage: Stage, step: dict[str, Any]) -> None:
    outside = stage.ralph.home
    (outside / "theirs").write_text("theirs")
    (stage.root / "door").symlink_to(outside)
    (stage.root / "link").symlink_to(outside / "theirs")
    (stage.root / "inside").write_text("inside")
    played = stage.play(step)
    assert "outside the working directory" in played.end.reason
    assert [path.name for path in outside.iterdir()] == ["theirs"]
    assert (outside / "theirs").read_text() == "theirs"


def test_a_link_itself_is_deleted_or_moved_not_what_it_names(stage: Stage) -> None:
    (stage.ralph.home / "theirs").mkdir()
    (stage.root / "one").symlink_to(stage.ralph.home / "theirs")
    (stage.root / "two").symlink_to(stage.ralph.home / "theirs")
    assert stage.play({"delete": "one"}, {"move": "two", "to": "three"}).end.ok
    assert sorted(path.name for path in stage.root.iterdir() if path.is_symlink()) == ["three"]
    assert (stage.ralph.home / "theirs").is_dir()


def test_an_exclamation_mark_lets_a_step_misbehave(stage: Stage) -> None:
    outside = stage.ralph.home / "deep/notes"
    assert stage.play({"write": f"!{outside}", "text": "mine"}, {"append": "!../home/deep/notes", "text": "!"}).end.ok
    assert outside.read_text() == "mine!"


def test_a_draft_goes_to_the_folder_that_is_asked_for(stage: Stage) -> None:
    folder = stage.ralph.tmp / "draft"
    step = {"draft": "plans/login.md", "text": "# Login\n"}
    assert stage.play(step, RALPH_DRAFT=str(folder)).end.ok
    assert (folder / "plans/login.md").read_text() == "# Login\n"
    played = stage.play(step)
    assert (played.end.ok, played.end.reason) == (
        False,
        "step 1 (draft): this is not a draft: use this step with `ralphtool plan`, and `write` for a story",
    )
    assert not (stage.root / "plans").exists()


def test_the_folder_of_a_draft_is_in_the_environment(tmp_path: Path) -> None:
    start = Scripted("scripted", {"args": ["try.toml"]}).start(Job(prompt="/p.md", root="/r", draft="/d"))
    assert start.env["RALPH_DRAFT"] == "/d"


# --- steps: commands --------------------------------------------------------------------------------


def test_a_command_shows_its_exit_status_and_the_turn_goes_on(stage: Stage) -> None:
    played = stage.play({"run": "echo out; echo err >&2; pwd > where; exit 3"}, {"run": "kill -9 $$"})
    assert played.end == End(True)
    statuses = [detail for name, detail in played.tools() if name == "result"]
    assert statuses == ["exit status 3", "ended by signal 9"]
    assert played.stderr.split() == ["out", "err"]
    assert stage.ralph.read("where").strip() == os.path.realpath(stage.root)


def test_a_command_that_must_succeed_fails_the_turn(stage: Stage) -> None:
    played = stage.play({"run": "true", "must": True}, {"run": "exit 4", "must": True}, {"write": "after", "text": ""})
    assert not played.end.ok
    assert played.end.reason == "step 2 (run): exit 4: exit status 4"
    assert not (stage.root / "after").exists()


def test_a_command_in_the_background_outlives_the_turn_in_a_session_of_its_own(stage: Stage) -> None:
    command = "echo $$ > daemon; exec sleep 3600 >/dev/null 2>&1"
    waits = "while [ ! -s daemon ]; do sleep 0.01; done"
    played = stage.play({"run": command, "background": True}, {"run": waits}, {"complete": True})
    assert played.end.ok
    daemon = int(stage.ralph.read("daemon"))
    try:
        assert os.getsid(daemon) == daemon
    finally:
        os.kill(daemon, signal.SIGKILL)


def test_texts_are_filled_in_where_they_are_said_run_or_forged(stage: Stage) -> None:
    played = stage.play(
        {"say": "{story}.{attempt} {token} {other} {}"},
        {"run": "printf '{story} {attempt} {token} '${HOME:+home} > out"},
        {"forge": "<promise>COMPLETE:{token}x</promise> in {story}"},
    )
    assert played.messages() == ["1.1 t0k3n {other} {}"]
    assert stage.ralph.read("out") == "1 1 t0k3n home"
    assert played.end == End(True, "<promise>COMPLETE:t0k3nx</promise> in 1")


# --- steps: ralphtool agent -------------------------------------------------------------------------


def boxes(stage: Stage) -> list[str]:
    return [line for line in stage.ralph.tasks_file.read_text().splitlines() if line.startswith("- [x]")]


def test_a_task_is_ticked(stage: Stage) -> None:
    played = stage.play({"tick": "1.2"})
    assert played.end.ok
    assert boxes(stage) == ["- [x] 1.2 Write the file"]
    assert stage.ralph.session()["completed_tasks"] == ["1.2"]


def test_all_open_tasks_of_the_story_are_ticked(stage: Stage) -> None:
    stage.play({"tick": "1.1"})
    played = stage.play({"tick": "all"})
    assert [detail for name, detail in played.tools() if name == "tick"] == ["1.2"]
    assert boxes(stage) == ["- [x] 1.1 Make the folder", "- [x] 1.2 Write the file"]


def test_in_a_chunk_all_is_the_chunks_task_alone(stage: Stage) -> None:
    assert stage.play({"tick": "all"}, RALPH_TASK="1.2").end.ok
    assert boxes(stage) == ["- [x] 1.2 Write the file"]


def test_learnings_patterns_and_observations_are_recorded(stage: Stage) -> None:
    played = stage.play(
        {"learn": "--use port 8080\nalways", "type": "error-workaround", "task": "1.1"},
        {"learn": "-"},
        {"pattern": "--names", "text": "- in snake_case", "type": "naming-convention"},
        {
            "observe": "blocker",
            "title": "-no key",
            "description": "--the key is missing",
            "category": "dependency",
            "severity": "high",
            "file": "a.py",
        },
    )
    assert played.end == End(True)
    state = stage.ralph.session()
    said = [(one["description"], one.get("type"), one["task_id"], one["story_id"]) for one in state["learnings"]]
    assert said == [("--use port 8080\nalways", "error-workaround", "1.1", "1"), ("-", None, None, "1")]
    assert (state["patterns"][0]["name"], state["patterns"][0]["description"]) == ("--names", "- in snake_case")
    observation = state["observations"][0]
    wanted = {"type": "blocker", "title": "-no key", "description": "--the key is missing", "category": "dependency"}
    assert wanted.items() <= observation.items()


@pytest.mark.parametrize(
    ("step", "code"),
    [
        ({"tick": "9.9"}, "TASK_NOT_FOUND"),
        ({"tick": "2.1"}, "TASK_OUT_OF_SCOPE"),
        ({"learn": "x", "type": "nonsense"}, "INVALID_VALUE"),
        ({"pattern": "x", "text": ""}, "INVALID_VALUE"),
        ({"observe": "nonsense", "title": "x"}, "INVALID_VALUE"),
    ],
)
def test_a_call_that_fails_is_shown_and_fails_the_turn(stage: Stage, step: dict[str, Any], code: str) -> None:
    played = stage.play(step, {"complete": True})
    assert not played.end.ok
    assert f"({code})" in played.end.reason
    assert played.messages() == [played.end.reason]
    assert boxes(stage) == []


def test_without_a_session_the_call_says_so(stage: Stage) -> None:
    assert "(SESSION_REQUIRED)" in stage.play({"tick": "all"}, RALPH_SESSION="").end.reason


def test_the_command_on_the_path_is_called(stage: Stage) -> None:
    wrapper = stage.ralph.home / "ralphtool"
    wrapper.write_text(f'#!/bin/sh\necho "$@" >> "$HOME/calls"\nexec "{COMMAND}" "$@"\n')
    wrapper.chmod(0o755)
    path = f"{stage.ralph.home}:{stage.ralph.env['PATH']}"
    assert stage.play({"tick": "all"}, PATH=path).end.ok
    calls = (stage.ralph.home / "calls").read_text().splitlines()
    assert calls == ["agent context", "agent task done -- 1.1", "agent task done -- 1.2"]


# --- steps: what is said, and how it ends -----------------------------------------------------------


def test_the_promise_is_the_last_line_of_the_final_message(stage: Stage) -> None:
    assert stage.play({"complete": True}).end == End(True, "<promise>COMPLETE:t0k3n</promise>")
    played = stage.play({"say": "first"}, {"say": "All is done."}, {"complete": True})
    assert played.end == End(True, "All is done.\n<promise>COMPLETE:t0k3n</promise>")
    assert played.messages() == ["first", "All is done."]
    assert played.exit_code == 0


def test_a_blocker_is_promised_with_its_reason(stage: Stage) -> None:
    end = stage.play({"blocked": "the key is missing"}).end
    assert end == End(True, "<promise>BLOCKED:t0k3n: the key is missing</promise>")


def test_without_a_promise_the_final_message_is_what_was_said_last(stage: Stage) -> None:
    assert stage.play({"say": "I tried."}).end == End(True, "I tried.")


def test_a_prompt_without_a_token_can_be_promised_nothing(stage: Stage) -> None:
    stage.prompt.write_text("do it, token none\n")
    played = stage.play({"complete": True})
    assert not played.end.ok
    assert "token" in played.end.reason


def test_usage_and_errors_are_told(stage: Stage) -> None:
    before = time.time()
    played = stage.play(
        {"usage": {"input_tokens": 10, "output_tokens": 2, "cost": 0.01}},
        {"error": "overload", "text": "busy"},
        {"error": "rate-limit", "text": "slow down", "reset_in": 500},
        {"say": "on we go"},
    )
    usage, overload, limit, _ = played.events
    assert usage == Usage(10, 2, 0.01)
    assert overload == Failure("overload", "busy")
    assert isinstance(limit, Failure)
    assert limit.reset_at is not None
    assert before + 500 <= limit.reset_at < before + 500 + PATIENCE
    assert played.end.ok


def test_an_error_that_is_the_last_step_ends_the_turn(stage: Stage) -> None:
    played = stage.play({"error": "login", "text": "log in again"})
    assert played.end == End(False, "log in again", "log in again")
    assert Failure("login", "log in again") in played.events


@pytest.mark.parametrize("size", [0, 1, 999, 64_000, 64_001, 1_000_000])
@pytest.mark.parametrize("lines", [True, False])
def test_a_flood_has_its_size_and_hides_no_event(stage: Stage, size: int, lines: bool) -> None:
    played = stage.play({"say": "before"}, {"flood": size, "lines": lines}, {"say": "after"})
    first, *flood, second, end = played.stdout.splitlines(keepends=True)
    assert sum(map(len, flood)) == size
    assert len(flood) == (-(-size // 1000) if lines else min(size, 1))
    assert played.messages() == ["before", "after"]
    assert [json.loads(line)["type"] for line in (first, second, end)] == ["message", "message", "end"]


def test_raw_bytes_come_out_as_they_are_on_a_line_of_their_own(stage: Stage) -> None:
    played = stage.play({"bytes": "ff00"}, {"bytes": "1b5b"}, {"say": "after"}, {"bytes": "ff0a"})
    assert played.stdout.startswith(b'\xff\x00\x1b[\n{"type"')
    assert played.messages() == ["after"]
    assert played.end == End(True, "after")


@pytest.mark.parametrize("script", [{"steps": [{"sleep": 600}]}, {"steps": [{"say": "late"}], "delay": 600}])
def test_sleeps_and_delays_are_waited_for(stage: Stage, script: dict[str, Any]) -> None:
    with stage.start(stage.script({"defaults": script})) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.kill()
        assert process.communicate() == (b"", b"")


def test_a_short_sleep_ends(stage: Stage) -> None:
    steps = [{"sleep": 0.01}, {"say": "awake"}]
    played = stage.play_file(stage.script({"turn": [{"steps": steps}], "defaults": {"delay": 0.01}}))
    assert played.end == End(True, "awake")


def first_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout
    return process.stdout.readline()


def test_a_hang_lasts_until_it_is_ended(stage: Stage) -> None:
    script = stage.script({"turn": [{"steps": [{"say": "now"}, {"complete": True}, {"hang": True}]}]})
    with stage.start(script) as process:
        assert b"now" in first_line(process)
        process.terminate()
        assert process.wait(PATIENCE) == -signal.SIGTERM
        assert process.stdout
        assert process.stdout.read() == b""


def test_a_hang_can_ignore_that_it_is_asked_to_end(stage: Stage) -> None:
    script = stage.script({"turn": [{"steps": [{"say": "now"}, {"hang": True, "ignore_term": True}]}]})
    with stage.start(script) as process:
        first_line(process)
        deadline = time.monotonic() + PATIENCE
        while not ignores_term(process.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.kill()
        assert process.wait(PATIENCE) == -signal.SIGKILL


def ignores_term(pid: int) -> bool:
    """As the system sees it, where it tells; elsewhere the signal is sent a moment later."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        time.sleep(1)
        return True
    [mask] = re.findall(r"^SigIgn:\s*([0-9a-f]+)", status, re.MULTILINE)
    return bool(int(mask, 16) & 1 << (signal.SIGTERM - 1))


def test_an_interrupted_player_dies_without_a_traceback(stage: Stage) -> None:
    with stage.start(stage.script({"turn": [{"steps": [{"say": "now"}, {"hang": True}]}]})) as process:
        first_line(process)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=PATIENCE)
        assert process.returncode == -signal.SIGINT
        assert stderr == b""


def test_a_closed_stdout_says_nothing_more_and_gets_in_no_file(stage: Stage) -> None:
    played = stage.play(
        {"say": "before"}, {"close": "stdout"}, {"write": "a", "text": "a"}, {"say": "after"}, {"complete": True}
    )
    assert played.messages() == ["before"]
    assert played.end == End(False, reason="ended without a final event (exit status 0)")
    assert stage.ralph.read("a") == "a"


def test_a_closed_stderr_takes_the_output_of_commands_with_it(stage: Stage) -> None:
    played = stage.play({"run": "echo one"}, {"close": "stderr"}, {"run": "echo two"})
    assert played.stderr == "one\n"
    assert played.end.ok


@pytest.mark.parametrize(
    ("step", "exit_code", "ending"),
    [
        ({"exit": 3}, 3, "exit status 3"),
        ({"exit": 0}, 0, "exit status 0"),
        ({"kill": "self"}, -9, "ended by signal 9"),
    ],
)
def test_leaving_without_a_final_event_is_no_good_end(
    stage: Stage, step: dict[str, Any], exit_code: int, ending: str
) -> None:
    played = stage.play({"complete": True}, step)
    assert played.exit_code == exit_code
    assert played.end == End(False, reason=f"ended without a final event ({ending})")


# --- which turn is played ---------------------------------------------------------------------------

TURNS = """\
[[turn]]
story = "1"
task = "1.2"
steps = [{ say = "task 1.2" }]

[[turn]]
story = "1"
attempt = 1
steps = [{ say = "first attempt" }]

[[turn]]
story = "1"
attempt = [2, 4]
steps = [{ say = "even attempt" }]

[[turn]]
attempt = 5
steps = [{ say = "anybody's fifth" }]
"""


@pytest.mark.parametrize(
    ("story", "attempt", "task", "said"),
    [
        ("1", 1, "", "first attempt"),
        ("1", 2, "", "even attempt"),
        ("1", 4, "", "even attempt"),
        ("1", 2, "1.2", "task 1.2"),
        ("1", 1, "1.1", "first attempt"),
        ("7", 5, "", "anybody's fifth"),
    ],
)
def test_the_first_turn_that_fits_is_played(stage: Stage, story: str, attempt: int, task: str, said: str) -> None:
    script = stage.ralph.write("turns.toml", TURNS)
    played = stage.play_file(str(script), attempt, RALPH_STORY=story, RALPH_TASK=task)
    assert played.messages() == [said]


def test_when_no_turn_fits_that_is_said_and_not_ok(stage: Stage) -> None:
    script = str(stage.ralph.write("turns.toml", TURNS))
    played = stage.play_file(script, RALPH_STORY="2")
    why = "no turn of the script matches story 2, attempt 1"
    assert played.end == End(False, why, why)
    assert played.messages() == [why]
    assert stage.play_file(script, 3, RALPH_TASK="1.1").end.reason.endswith("story 1, attempt 3, task 1.1")


def test_when_no_turn_fits_the_default_steps_are_played(stage: Stage) -> None:
    script = str(stage.ralph.write("turns.toml", TURNS + '[defaults]\nsteps = [{ say = "else" }]\n'))
    assert stage.play_file(script, RALPH_STORY="2").end == End(True, "else")


# --- scripts that can't be played -------------------------------------------------------------------


def problems_of(tmp_path: Path, text: str, name: str = "script.toml") -> list[str]:
    path = tmp_path / name
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return [problem.removeprefix(f"{path}").removeprefix(": ") for problem in find_problems(str(path))]


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ('{ wirte = "a", text = "" }', "(step) unknown step 'wirte': did you mean write?"),
        ('{ xyzzy = "a" }', "(step) unknown step 'xyzzy': use one of write, append,"),
        ("{}", "(step) unknown step '': use one of write,"),
        ('{ write = "a" }', "(write) text is missing: it must be a string"),
        ('{ draft = "../a", text = "" }', "(draft) draft must be a path inside the project"),
        ('{ write = "a", txet = "" }', "(write) text is missing: it must be a string"),
        ('{ run = "a", backgruond = true }', "(run) there is no 'backgruond': did you mean background?"),
        ('{ run = "a", say = "b" }', "(step) run and say are two steps: write them as separate steps"),
        ("{ say = 1 }", "(say) say must be a string"),
        ('{ run = "" }', "(run) run must be a non-empty string"),
        ('{ delete = "." }', "(delete) delete must be a path inside the working directory"),
        ('{ write = "../a", text = "" }', "(write) write must be a path inside"),
        ('{ write = "/etc/a", text = "" }', "(write) write must be a path inside"),
        ('{ move = "a", to = "b/../../c" }', "(move) to must be a path inside"),
        ('{ write = "a\\u0000b", text = "" }', "(write) write must be a path inside"),
        ("{ sleep = -1 }", "(sleep) sleep must be a number, at least 0"),
        ("{ sleep = nan }", "(sleep) sleep must be a number, at least 0"),
        ("{ sleep = inf }", "(sleep) sleep must be a number, at least 0"),
        ("{ flood = true }", "(flood) flood must be a whole number, at least 0"),
        ("{ exit = 256 }", "(exit) exit must be a whole number from 0 to 255"),
        ('{ bytes = "f" }', "(bytes) bytes must be bytes as hexadecimal digits"),
        ('{ error = "ratelimit" }', '(error) error must be "rate-limit" or "overload"'),
        ('{ close = "stdin" }', '(close) close must be "stdout" or "stderr"'),
        ('{ kill = "all" }', '(kill) kill must be "self"'),
        ("{ complete = false }", "(complete) complete must be true"),
        ("{ usage = { input_token = 1 } }", "(usage) there is no 'input_token': did you mean input_tokens?"),
        ("{ usage = { cost = -1 } }", "(usage) cost must be a number, at least 0"),
    ],
)
def test_a_bad_step_is_named_with_what_would_be_right(tmp_path: Path, step: str, problem: str) -> None:
    kind, _, words = problem.partition(" ")
    where = "turn 2, step 2" if kind == "(step)" else f"turn 2, step 2 {kind}"
    good = '[[turn]]\nsteps = [{ say = "a" }]\n'
    found = problems_of(tmp_path, f'{good}[[turn]]\nsteps = [{{ say = "b" }}, {step}]\n')
    assert found[0].startswith(f"{where}: {words}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it has no [[turn]]: add one"),
        ("[[turns]]\nsteps = []", "the script: there is no 'turns': did you mean turn?"),
        ("[turn]\nsteps = []", "the script: turn must be a list of tables"),
        ("[[turn]]", "turn 1: steps is missing: it must be a list of tables"),
        ("[[turn]]\nstep = []", "turn 1: steps is missing: it must be a list of tables"),
        ('[[turn]]\nsteps = ["say"]', "turn 1: steps must be a list of tables"),
        ("[[turn]]\nstory = 1\nsteps = []", "turn 1: story must be a non-empty string"),
        ("[[turn]]\nattempt = 0\nsteps = []", "turn 1: attempt must be a whole number, at least 1, or a list of them"),
        ("[[turn]]\nattempt = []\nsteps = []", "turn 1: attempt must be a whole number, at least 1, or a list of them"),
        ("[[turn]]\nsteps = []\n[defaults]\ndelya = 1", "defaults: there is no 'delya': did you mean delay?"),
        ("[defaults]\nsteps = [{ sya = 1 }]", "defaults, step 1: unknown step 'sya': did you mean say?"),
        ("[[turn]\n", "Expected"),
        ("a = '\udcff'", "'utf-8' codec can't decode"),
    ],
)
def test_a_bad_script_is_told_by_its_part(tmp_path: Path, text: str, problem: str) -> None:
    found = problems_of(tmp_path, text)
    assert found[0].startswith(problem)


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    found = problems_of(tmp_path, "[[turn]]\nsteps = [{ say = 1 }, { sleep = 0 }, { slep = 1 }]\n[[turn]]\nx = 1\n")
    assert [problem.split(":")[0] for problem in found] == [
        "turn 1, step 1 (say)",
        "turn 1, step 3",
        "turn 2",
        "turn 2",
    ]


def test_json_scripts_are_read_and_checked_too(tmp_path: Path) -> None:
    assert problems_of(tmp_path, '{"turn": [{"steps": [{"say": "a"}]}]}', "s.json") == []
    assert "turn 1, step 1" in problems_of(tmp_path, '{"turn": [{"steps": [{"sya": "a"}]}]}', "s.json")[0]
    assert problems_of(tmp_path, "[]", "s.json") == [" must be one JSON object"]
    assert problems_of(tmp_path, "[" * 100_000, "s.json")
    assert "must be a string" in problems_of(tmp_path, '{"turn": [{"steps": [{"say": "\\ud800"}]}]}', "s.json")[0]


def test_check_tells_what_is_wrong_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"has no script.*args = \["):
        agents.make("scripted", {}).check()
    with pytest.raises(InvalidValue, match="2 arguments"):
        agents.make("scripted", {"args": ["a", "b"]}).check()
    with pytest.raises(InvalidValue, match=r"none\.toml can't be read: No such file"):
        agents.make("scripted", {"args": [str(tmp_path / "none.toml")]}).check()
    bad = tmp_path / "bad.toml"
    bad.write_text("[[turn]]\nsteps = [{ sya = 'x' }]\n")
    with pytest.raises(InvalidValue, match=r"turn 1, step 1: .* did you mean say"):
        agents.make("scripted", {"args": [str(bad)]}).check()
    bad.write_text("[[turn]]\nsteps = [{ say = 'x' }]\n")
    agents.make("scripted", {"args": [str(bad)]}).check()


def test_a_relative_script_counts_from_here_not_from_where_the_agent_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runner = Scripted("scripted", {"args": ["try.toml"], "env": {"A": "b"}})
    start = runner.start(Job(prompt="/p.md", root="/elsewhere", attempt=3))
    assert start.argv[-1] == str(tmp_path / "try.toml")
    assert start.stdin == "/p.md"
    assert start.env == {"RALPH_ATTEMPT": "3", "A": "b"}


def test_the_player_tells_problems_itself(stage: Stage) -> None:
    bad = stage.ralph.write("bad.toml", "[[turn]]\nsteps = [{ sya = 'x' }]\n")
    done = subprocess.run(
        [sys.executable, "-m", "ralphtool.agents.scripted_program", str(bad)], capture_output=True, input=b""
    )
    played = Played(done.stdout, done.stderr, done.returncode)
    assert not played.end.ok
    assert "did you mean say" in played.end.reason
    assert played.exit_code == 1
    assert played.stderr == ""


def test_the_player_needs_a_script() -> None:
    done = subprocess.run([sys.executable, scripted_program.__file__], capture_output=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert done.stderr.startswith(b"usage: ")


def test_the_tree_that_is_worked_in_cannot_replace_the_standard_library(stage: Stage) -> None:
    for name in ("json.py", "tomllib.py", "subprocess.py"):
        stage.ralph.write(name, "raise SystemExit('not the real one')\n")
    stage.ralph.write("ralphtool/__init__.py", "raise SystemExit('not the real one')\n")
    assert stage.play({"tick": "1.1"}).end.ok
    assert boxes(stage) == ["- [x] 1.1 Make the folder"]


def test_the_player_loads_nothing_but_the_standard_library() -> None:
    show = "import runpy, sys; runpy.run_path(sys.argv[1]); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", show, scripted_program.__file__], capture_output=True, check=True
    )
    loaded = {name.partition(".")[0] for name in done.stdout.decode().split()}
    assert loaded & {"ralphtool", "msgspec", "click", "rich", "psutil", "subprocess", "difflib"} == set()


# --- the reader -------------------------------------------------------------------------------------

STREAM = b"".join(
    line + b"\n"
    for line in (
        b'{"type": "message", "text": "caf\xc3\xa9 \\u00e9"}',
        b"plain words",
        b'{"type": "tool", "name": "write", "detail": "a.py", "more": [1, {"x": null}]}',
        b'{"type": "tool", "name": "hang"}',
        b'{"type": "usage", "input_tokens": 3}',
        b'{"type": "usage", "input_tokens": -3}',
        b'{"type": "message", "text": 5}',
        b'{"type": "message", "text": "\xff"}',
        b'{"type": "message", "text": "\\ud800"}',
        b'{"type": "error", "trouble": "weather", "text": "rain"}',
        b'{"type": "error", "trouble": "network", "text": "gone"}',
        b'{"type": "thought", "text": "hm"}',
        b'["message"]',
        b"",
        b'{"type": "message", "text": "torn',
        b'\x00\xff{"type": "message", "text": "behind rubbish"}',
        b'{"type": "end", "ok": true, "message": "done"}\r',
    )
)
EVENTS: list[Event] = [
    Message("café é"),
    Tool("write", "a.py"),
    Tool("hang"),
    Usage(3),
    Message("\ufffd"),
    Message("?"),
    Failure("network", "gone"),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_lines_may_be_cut_anywhere(cuts: list[int]) -> None:
    places = sorted({0, *cuts, len(STREAM)})
    reader = ScriptedReader()
    events = [event for a, b in itertools.pairwise(places) for event in reader.feed(STREAM[a:b])]
    assert events == EVENTS
    assert reader.end(0) == End(True, "done")


def test_bytes_may_come_one_by_one() -> None:
    reader = ScriptedReader()
    assert [event for byte in STREAM for event in reader.feed(bytes([byte]))] == EVENTS
    assert reader.end(1) == End(True, "done")


@given(st.binary(max_size=300))
def test_no_output_breaks_the_reader(data: bytes) -> None:
    reader = ScriptedReader()
    assert [event for event in reader.feed(data) if not isinstance(event, Event)] == []
    assert isinstance(reader.end(0), End)


def test_deep_nesting_is_no_event() -> None:
    reader = ScriptedReader()
    deep = b'{"type": "message", "text": "x", "more": ' + b"[" * 200_000 + b"\n"
    assert list(reader.feed(deep + b'{"type": "message", "text": "y"}\n')) == [Message("y")]


def test_the_last_final_event_counts_and_needs_no_line_end() -> None:
    reader = ScriptedReader()
    assert list(reader.feed(b'{"type": "end", "ok": true, "message": "a"}\n')) == []
    assert list(reader.feed(b'{"type": "end", "ok": false, "message": "b", "reason": "c"}')) == []
    assert list(reader.rest()) == []
    assert reader.end(0) == End(False, "b", "c")


def test_a_torn_final_event_is_none() -> None:
    reader = ScriptedReader()
    reader.feed(b'{"type": "end", "ok": true, "mess')
    assert reader.end(-9) == End(False, reason="ended without a final event (ended by signal 9)")


@pytest.mark.parametrize("size", [1 << 10, 1 << 16, 64 << 20])
def test_a_line_of_fifty_megabytes_is_dropped_and_costs_no_memory(size: int) -> None:
    reader = ScriptedReader()
    line = b'{"type": "message", "text": "' + b"x" * (50 << 20) + b'"}\n{"type": "message", "text": "next"}\n'
    tracemalloc.start()
    try:
        events = [event for a in range(0, len(line), size) for event in reader.feed(line[a : a + size])]
        # What is handed in is ours as well: one chunk, and twice the longest line while a buffer grows.
        assert tracemalloc.get_traced_memory()[1] < min(size, len(line)) + (4 << 20)
    finally:
        tracemalloc.stop()
    assert events == [Message("next")]


def test_a_long_line_within_the_limit_is_read() -> None:
    text = "x" * ((1 << 20) - 100)
    assert list(ScriptedReader().feed(json.dumps({"type": "message", "text": text}).encode() + b"\n")) == [
        Message(text)
    ]


# --- docs/scripted-agent.md -------------------------------------------------------------------------


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCS, re.DOTALL)


def test_every_script_of_the_docs_can_be_played(tmp_path: Path) -> None:
    scripts = [text for text in blocks("toml") if "[[turn]]" in text]
    assert len(scripts) >= 2
    assert [problems_of(tmp_path, text) for text in scripts] == [[] for _ in scripts]


def test_every_step_of_the_docs_exists_and_every_step_is_there(tmp_path: Path) -> None:
    rows = re.findall(r"^\| `(\{.*?\})` \|", DOCS, re.MULTILINE)
    found = problems_of(tmp_path, "[[turn]]\nsteps = [\n" + ",\n".join(rows) + "\n]\n")
    assert found == []
    shown = {word for row in rows for word in re.findall(r"(\w+) =", row)}
    options = {key for kind in scripted_program.STEP_KINDS.values() for key in (*kind.needs, *kind.may)}
    assert {*scripted_program.STEP_KINDS, *options} - shown == set()


def test_the_recipe_of_the_docs_does_what_it_says(lab: Lab) -> None:
    """In the real loop: the gate catches the first attempt, and is green for the second."""
    recipe = next(text for text in blocks("toml") if "[[turn]]" in text and "attempt = 2" in text)
    gate = tomllib.loads(next(text for text in blocks("toml") if "[verify]" in text))["verify"]["tests"]
    lab.script = lab.script.with_suffix(".toml")
    lab.script.write_text(recipe)
    lab.write("greet.sh", "echo hello\n")
    lab.repository("## 1. Greet\n\n- [ ] 1.1 Greet politely\n", tests=gate)
    assert lab.loop().exit_code == 0
    assert lab.endings() == [("add-login-1-1", "failed"), ("add-login-1-2", "completed")]
    assert "newly red" in lab.entries()[0]["summary"]
