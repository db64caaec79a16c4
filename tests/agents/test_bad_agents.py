"""Programs that pose as claude, codex, gemini or opencode, and misbehave: real processes in the real loop."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lab import ACCEPT, PYTHON, Lab, processes_with, wait_until
from patience import PATIENCE
from project import COMMAND, Result

from ralphtool.agents import make, program
from ralphtool.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = ("claude", "codex", "gemini", "opencode")
ONE = "## 1. First\n\n- [ ] 1.1 Make it\n- [ ] 1.2 Prove it\n"
SECRET = "hush-hush-0123456789-abcdef"
ESCAPES = "\x1b[2J\x1b[31mred\x1b]0;pwned\x07\x9b2J\x08\r"

# What each of them prints, in its own format. The fake programs use these functions.
DIALECTS = """
import json, os, subprocess, sys, time

PROMISE = f"<promise>COMPLETE:{os.environ.get('RALPH_TOKEN', '')}</promise>"


def tell(*lines, end="\\n"):
    for line in lines:
        text = line if isinstance(line, (str, bytes)) else json.dumps(line, ensure_ascii=False)
        data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
        sys.stdout.buffer.write(data + end.encode())
        sys.stdout.buffer.flush()


def complain(text):
    sys.stderr.write(text + "\\n")
    sys.stderr.flush()


def work():
    open("made.txt", "w").write("made")
    for task in ("1.1", "1.2"):
        subprocess.run(["ralphtool", "agent", "task", "done", task], check=True, stdout=subprocess.DEVNULL)


def part(kind, **more):
    return {"type": kind, "sessionID": "ses_1", "part": {"messageID": "msg_1", "type": kind.replace("_", "-"), **more}}


def began():
    return {
        "claude": [{"type": "system", "subtype": "init", "session_id": "s"}],
        "codex": [{"type": "thread.started", "thread_id": "t"}, {"type": "turn.started"}],
        "gemini": [{"type": "init", "session_id": "s", "model": "m"}],
        "opencode": [part("step_start")],
    }[KIND]


def said(text):
    block = {"id": "msg_1", "content": [{"type": "text", "text": text}]}
    return {
        "claude": {"type": "assistant", "message": block},
        "codex": {"type": "item.completed", "item": {"id": "i", "type": "agent_message", "text": text}},
        "gemini": {"type": "message", "role": "assistant", "content": text, "delta": True},
        "opencode": part("text", text=text),
    }[KIND]


def used(command):
    item = {"id": command, "type": "command_execution", "command": command}
    return {
        "claude": {
            "type": "assistant",
            "message": {"content": [{"type": "tool_use", "name": "Bash", "input": {"command": command}}]},
        },
        "codex": {"type": "item.started", "item": item},
        "gemini": {"type": "tool_use", "tool_name": "shell", "parameters": {"command": command}},
        "opencode": {"type": "tool_use", "part": {"tool": "bash", "state": {"input": {"command": command}}}},
    }[KIND]


def well(text):
    return [
        *([] if KIND == "claude" else [said(text)]),
        {
            "claude": {"type": "result", "subtype": "success", "is_error": False, "result": text, "session_id": "s"},
            "codex": {"type": "turn.completed", "usage": {"input_tokens": 1}},
            "gemini": {"type": "result", "status": "success"},
            "opencode": part("step_finish", reason="stop", cost=0, tokens={"input": 1}),
        }[KIND],
    ]


def badly(text):
    return {
        "claude": {"type": "result", "subtype": "success", "is_error": True, "result": text},
        "codex": {"type": "turn.failed", "error": {"message": text}},
        "gemini": {"type": "result", "status": "error", "error": {"message": text}},
        "opencode": {"type": "error", "error": {"name": "UnknownError", "data": {"message": text}}},
    }[KIND]

"""


class BadLab(Lab):
    """A project whose agent is a short program written by the test."""

    def agent_is(self, kind: str, body: str, *, version: str = "print('9.9.9')", **run: Any) -> BadLab:
        """`body` is Python; it prints with the functions of DIALECTS."""
        start = f"#!{PYTHON}\nKIND = {kind!r}\nimport sys\nif '--version' in sys.argv:\n    {version}\n    sys.exit()\n"
        self.program(f"{start}{DIALECTS}\n{body}\n")
        self.use(kind, **run)
        return self

    @property
    def path(self) -> Path:
        return self.root.parent / "agent"

    def program(self, text: str, mode: int = 0o755) -> None:
        self.path.write_text(text)
        self.path.chmod(mode)

    def use(self, kind: str, **run: Any) -> None:
        if not (self.root / ".git").exists():
            self.repository(ONE)
        settings = {"agent": kind, "attempts": 1, "max_iterations": 1, "timeout": "120s", **run}
        lines = ["[run]", *(f"{name} = {json.dumps(value)}" for name, value in settings.items())]
        lines += [f"[agents.{kind}]", f"command = [{json.dumps(str(self.path))}]", 'permissions = "all"']
        self.write(".ralph/config.toml", "\n".join([*lines, "[verify]", "checks = []", "tests = []", ACCEPT]) + "\n")

    def records(self, pattern: str = "*") -> dict[str, bytes]:
        """Every file that ralphtool wrote, and the work as git has it."""
        found = {str(path): path.read_bytes() for path in self.root.glob(f".ralph/**/{pattern}") if path.is_file()}
        log = self.git("log", "--all", "--patch", "--format=%B%N", check=False)
        return found | {"git": log.encode("utf-8", "surrogateescape")}

    def emitted(self, result: Result, kind: str) -> list[dict[str, Any]]:
        found = [event["event"] for event in self.events(result) if event["type"] == "agent"]
        return [event for event in found if event["kind"] == kind]

    def verdict(self) -> tuple[str, str]:
        """The status and the summary of the last entry."""
        last = self.entries()[-1]
        return last["status"], last["summary"]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[BadLab]:
    lab = BadLab(tmp_path)
    yield lab
    assert wait_until(lambda: not processes_with(str(lab.home))), processes_with(str(lab.home))


every_kind = pytest.mark.parametrize("kind", KINDS)


# --- output -----------------------------------------------------------------------------------------

NOISE = r"""
sys.stdout.buffer.write(b'{"type": "message", "text": "')
for _ in range(50):
    sys.stdout.buffer.write(b"x" * (1 << 20))
tell(b'"}')
tell(b"\xff\xfe\x00\x80 no UTF-8", b'{"type": "result", "is_error": "\xc3"}')
tell("null", "[]", "5", '{"type": {"a": 1}}', '{"type": "result", "status": [], "is_error": []}')
tell({"type": "assistant", "message": [[]]}, {"type": "item.completed", "item": 5}, {"type": "step_finish", "part": 7})
tell('{"a": ' * 5000, '"' * 100)
for _ in range(20):
    sys.stderr.write("e" * (1 << 20))
complain("\nwarning: rate limit 429. Please run /login")
"""


def _peak(pid: int) -> int:
    """The peak memory of a process so far, in MiB."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")), 0)


@every_kind
def test_noise_of_every_kind_hides_no_end_and_fills_no_memory(lab: BadLab, kind: str) -> None:
    lab.agent_is(kind, f"{NOISE}\ntell(*began())\nwork()\ntell(*well(PROMISE))")
    process = lab.start()
    reader = threading.Thread(target=process.communicate)
    reader.start()
    peak = 0
    while reader.is_alive():
        peak = max(peak, _peak(process.pid))
        reader.join(0.02)
    assert lab.verdict()[0] == "completed", lab.verdict()
    assert process.returncode == 0
    assert 0 < peak < 110
    transcript = next(lab.root.glob(".ralph/runs/*/*/transcript.log"))
    assert transcript.stat().st_size > 50 << 20
    assert sum(path.stat().st_size for path in lab.root.glob(".ralph/runs/*/events.jsonl")) < 100_000


@every_kind
def test_half_a_terminal_event_is_none(lab: BadLab, kind: str) -> None:
    lab.agent_is(
        kind, "tell(*began())\nwork()\n*most, last = well(PROMISE)\ntell(*most)\ntell(json.dumps(last)[:-1], end='')"
    )
    assert lab.loop().exit_code == 1
    status, summary = lab.verdict()
    assert status == "partial"
    assert "the agent failed: ended without a final event (exit status 0)" in summary


@every_kind
def test_control_characters_of_an_agent_are_printed_as_something_else(lab: BadLab, kind: str) -> None:
    telling = "tell(*began(), said('one' + E + 'two'), used('ls' + E), E)"
    lab.agent_is(kind, f"E = {ESCAPES!r}\n{telling}\ncomplain(E)\ntell(badly('bad' + E))")
    done = lab.run("run")
    assert done.exit_code == 1
    assert "bad" in done.stdout
    shown = [done, lab.run("explain", "add-login-1-1"), lab.run("progress", "entries")]
    for text in (each.stdout + each.stderr for each in shown):
        assert text
        assert not set(text) & set("\x1b\x07\x08\x9b\r")


BABBLE = """
for number in range(6):
    tell(said(f"word {number}" + E))
    time.sleep(0.3)
    tell(used("ls" + E))
    time.sleep(0.3)
tell(badly("very bad" + E))
"""


def test_control_characters_of_an_agent_do_nothing_to_a_real_terminal(lab: BadLab, tmp_path: Path) -> None:
    if not shutil.which("tmux"):
        pytest.skip("tmux is not installed")
    lab.agent_is("claude", f"E = {ESCAPES!r}\n{BABBLE}")
    raw, ended, go_on = tmp_path / "raw", tmp_path / "ended", tmp_path / "go-on"
    tmux = ["tmux", "-S", str(tmp_path / "tmux")]
    first = f"echo before; until [ -e {shlex.quote(str(go_on))} ]; do sleep 0.05; done"
    run = f"{first}; {shlex.quote(COMMAND)} run; echo $? > {shlex.quote(str(ended))}; sleep 3600"
    subprocess.run([*tmux, "-f", "/dev/null", "-u", "new-session", "-d", "-x", "90", "-y", "100", "-c", str(lab.root),
                    run], env=lab.env, check=True, timeout=PATIENCE)  # fmt: skip
    try:
        subprocess.run(
            [*tmux, "pipe-pane", f"cat > {shlex.quote(str(raw))}"], env=lab.env, check=True, timeout=PATIENCE
        )
        go_on.touch()
        assert wait_until(ended.exists)
        told = [*tmux, "display-message", "-p", "#{pane_title}"]
        title = subprocess.run(told, env=lab.env, check=True, capture_output=True, timeout=PATIENCE).stdout
        seen = subprocess.run(
            [*tmux, "capture-pane", "-p"], env=lab.env, check=True, capture_output=True, timeout=PATIENCE
        ).stdout.decode()
    finally:
        subprocess.run([*tmux, "kill-server"], env=lab.env, check=False, timeout=PATIENCE)
    assert ended.read_text() == "1\n"
    assert b"pwned" not in title
    assert seen.startswith("before\n")
    assert "very bad" in seen
    written = raw.read_bytes()
    assert b"word " in written
    for raw_escape in (b"\x1b]0;pwned", b"\x1b[2J\x1b[31mred", b"\x9b2J", b"\x08\r"):
        assert raw_escape not in written.replace("\x9b".encode(), b"\x9b")


# --- secrets ----------------------------------------------------------------------------------------

LEAKS = """
S = os.environ["SOME_API_KEY"]
complain("using " + S)
tell(*began(), said("the key is " + S), used("curl -H " + S), S)
tell('{"type": "nothing", "key": "' + S[:9], end="")
time.sleep(0.3)
tell(S[9:] + '"}')
sys.stderr.write(S[:5]); sys.stderr.flush(); time.sleep(0.3); complain(S[5:])
"""


def leaks(lab: BadLab, done: Result, secret: str) -> list[str]:
    """Where a secret was written, as it is or escaped as in JSON."""
    forms = {secret.encode(), json.dumps(secret)[1:-1].encode(), json.dumps(secret, ensure_ascii=False)[1:-1].encode()}
    places = lab.records() | {"screen": (done.stdout + done.stderr).encode()}
    return [name for name, data in places.items() if any(form in data for form in forms)]


@pytest.mark.parametrize(
    ("kind", "ending"),
    [*((kind, "tell(badly('refused: ' + S))") for kind in KINDS), ("codex", "complain('Error: ' + S); sys.exit(3)")],
)
def test_a_secret_that_an_agent_tells_is_written_nowhere(lab: BadLab, kind: str, ending: str) -> None:
    lab.agent_is(kind, LEAKS + ending, workspace="here")  # in a box the agent would not have the secret
    done = lab.loop(SOME_API_KEY=SECRET)
    assert done.exit_code == 1
    assert leaks(lab, done, SECRET) == []
    assert "[redacted]" in lab.verdict()[1]
    assert lab.emitted(done, "message")[0]["text"] == "the key is [redacted]"
    for name, times in (("transcript.log", 4), ("transcript.log.err", 2)):
        (data,) = (data for path, data in lab.records(name).items() if path.endswith(name))
        assert data.count(b"[redacted]") >= times
    plain = lab.run("explain", "add-login-1-1", SOME_API_KEY=SECRET)
    assert SECRET not in plain.stdout + plain.stderr


def test_a_secret_of_the_agent_alone_is_written_nowhere(lab: BadLab) -> None:
    lab.agent_is("claude", LEAKS + "tell(badly('refused: ' + S))")
    config = lab.read(".ralph/config.toml")
    lab.write(
        ".ralph/config.toml", config.replace("permissions =", f'env = {{SOME_API_KEY = "{SECRET}"}}\npermissions =')
    )
    done = lab.loop()
    assert done.exit_code == 1
    assert [name for name in leaks(lab, done, SECRET) if not name.endswith("config.toml")] == []


def test_a_secret_that_json_writes_in_another_way_is_written_nowhere(lab: BadLab) -> None:
    secret = 'quo"te-back\\slash-ü-0123456789'
    telling = "tell(said('it is ' + S), used('echo ' + S), json.dumps(said(S)), badly(S))"
    lab.agent_is("claude", f"S = os.environ['SOME_API_KEY']\n{telling}")
    done = lab.loop(SOME_API_KEY=secret)
    assert done.exit_code == 1
    assert leaks(lab, done, secret) == []


# --- false endings ----------------------------------------------------------------------------------


FORGED = "<promise>COMPLETE:00112233445566778899aabbccddeeff</promise>"


@every_kind
def test_success_of_somebody_else_and_then_a_violent_death(lab: BadLab, kind: str) -> None:
    lab.agent_is(kind, f"tell(*began(), *well('All done. {FORGED}'))\nos.kill(os.getpid(), 9)")
    assert lab.loop().exit_code == 1
    status, summary = lab.verdict()
    assert status == "failed"
    assert "2 tasks not ticked: 1.1, 1.2" in summary
    assert lab.checkpoints() == []


@every_kind
def test_success_and_then_no_end_is_ended_and_judged_by_its_work(lab: BadLab, kind: str) -> None:
    """Here the limit on silence is shorter than the time that the agent gets to exit."""
    lab.agent_is(kind, "tell(*began())\nwork()\ntell(*well(PROMISE))\ntime.sleep(3600)", silence="8s")
    assert lab.loop().exit_code == 0, lab.verdict()
    assert lab.verdict()[0] == "completed"
    assert len(lab.checkpoints()) == 1


def test_success_without_work_and_then_no_end_is_judged_by_its_work_too(lab: BadLab) -> None:
    lab.agent_is("claude", "tell(*began(), *well(PROMISE))\ntime.sleep(3600)", silence="8s")
    assert lab.loop().exit_code == 1
    status, summary = lab.verdict()
    assert status == "failed"
    assert "2 tasks not ticked: 1.1, 1.2" in summary
    assert lab.checkpoints() == []


def test_work_without_a_last_word_and_then_silence_is_none_that_is_done(lab: BadLab) -> None:
    lab.agent_is("claude", "tell(*began())\nwork()\ntell(said(PROMISE))\ntime.sleep(3600)", silence="8s")
    assert lab.loop().exit_code == 1
    status, summary = lab.verdict()
    assert status == "partial"
    assert "2 tasks done, but the agent printed nothing for too long and was stopped" in summary


# --- unusable programs ------------------------------------------------------------------------------


def refused(lab: BadLab, *told: str) -> None:
    before = lab.snapshot()
    result = lab.run("run")
    assert result.exit_code == 1, result.stdout
    for words in told:
        assert words in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert lab.snapshot() == before
    assert lab.git("branch", "--list", "ralph/*") == ""
    as_json = lab.run("run", "--json")
    assert told[0] in json.loads(as_json.stderr)["error"]
    assert lab.snapshot() == before


@pytest.mark.parametrize("kind", ["claude", "gemini"])
def test_a_program_that_is_missing(lab: BadLab, kind: str) -> None:
    lab.use(kind)
    refused(lab, "was not found: install it with `npm install -g", f"[agents.{kind}]")


def test_a_program_that_is_not_executable(lab: BadLab) -> None:
    lab.program("#!/bin/sh\necho 9.9.9\n", 0o644)
    lab.use("claude")
    refused(lab, "was not found", "install it with")


@pytest.mark.parametrize("kind", ["codex", "opencode"])
def test_a_program_that_is_too_old(lab: BadLab, kind: str) -> None:
    lab.agent_is(kind, "", version="print('0.0.7 (Some Code)')")
    refused(lab, "0.0.7 is too old", "update it with `npm install -g")


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("pass", "it printed nothing"),
        ("print('hello')", "hello"),
        ("sys.exit('node is too old')", "node is too old"),
        ("print('9.9.9'); sys.exit(3)", "9.9.9"),
        ("import os; os.kill(os.getpid(), 9)", "it printed nothing"),
        ("sys.stdout.buffer.write(b'\\xff' * 100000)", "printed no version"),
    ],
)
def test_a_program_that_tells_no_version(lab: BadLab, version: str, told: str) -> None:
    lab.agent_is("claude", "", version=version)
    refused(lab, "--version` printed no version", told, "reinstall it with `npm install -g")


def test_a_program_that_can_not_be_started(lab: BadLab) -> None:
    lab.program("#!/no/such/interpreter\n")
    lab.use("claude")
    refused(lab, "printed no version", "No such file or directory")


@pytest.mark.parametrize("workspace", ["here", "auto"])
def test_a_program_that_is_there_for_its_version_only(lab: BadLab, workspace: str) -> None:
    body = f"print('9.9.9'); import os; os.remove({str(lab.path)!r})"
    lab.agent_is("claude", "", version=body, workspace=workspace)
    assert lab.loop().exit_code == 1
    assert "No such file or directory" in lab.verdict()[1]
    assert workspace == "auto" or "the agent could not be started" in lab.verdict()[1]
    assert lab.checkpoints() == []


def test_a_program_that_hangs_when_it_is_asked_for_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "claude"
    path.write_text("#!/bin/sh\nexec sleep 3600\n")
    path.chmod(0o755)
    monkeypatch.setattr(program.Program, "patience", 0.5)
    with pytest.raises(InvalidValue, match=r"printed no version .*no response within 0\.5 seconds.* with `npm"):
        make("claude", {"command": [str(path)]}).check()
    assert processes_with(str(tmp_path)) == []


@every_kind
def test_an_agent_that_nobody_is_logged_in_to_says_so_and_costs_no_attempt(lab: BadLab, kind: str) -> None:
    lab.agent_is(kind, "complain('Please run /login')\nsys.exit(1)")
    done = lab.run("run")
    assert done.exit_code == 1
    assert f"{make(kind, {}).traits.login_hint} (Please run /login)); not counted as an attempt" in done.stdout
    assert lab.entries() == []
    assert lab.checkpoints() == []


def test_an_agent_that_does_not_know_an_option_has_failed(lab: BadLab) -> None:
    lab.agent_is("claude", "complain(\"error: unknown option '--login'\")\nsys.exit(1)")
    done = lab.loop()
    assert done.exit_code == 1
    assert lab.emitted(done, "failure") == []
    assert "ended without a final event (exit status 1): error: unknown option '--login'" in lab.verdict()[1]


def test_an_agent_that_reports_that_nobody_is_logged_in_is_waited_for(lab: BadLab) -> None:
    """The story is not at fault: no attempt is counted."""
    lab.agent_is(
        "claude", "tell(*began(), badly('Not logged in · Please run /login'))", max_time="25s", max_iterations=5
    )
    done = lab.loop()
    assert done.exit_code == 1
    assert lab.entries() == []
    assert [each["trouble"] for each in lab.emitted(done, "failure")] == ["login"]
