"""`ralphtool logs`: a readable transcript. The recordings are from the real programs, and shortened."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, Process, kill, wait_until
from msgspec import to_builtins
from patience import PATIENCE
from project import COMMAND, Ralph

from ralphtool.agents import Message, Output, Quota, Result, Tool
from ralphtool.cli.logs import _read_stderr_tail
from ralphtool.record import iterations
from ralphtool.views.terminal.conversation import Conversation

RUN = "add-login-20260301-220000-7f3a"
LONG = "".join(f"{number}\n" for number in range(1, 61))


def line(**fields: Any) -> str:
    return json.dumps(fields, separators=(",", ":")) + "\n"


def claude(*content: dict[str, Any], role: str = "assistant") -> str:
    usage = {"id": "msg_0", "usage": {"input_tokens": 1000, "output_tokens": 50}} if role == "assistant" else {}
    return line(type=role, message={"role": role, "content": content, **usage}, parent_tool_use_id=None)


def heard(text: str, **more: Any) -> str:
    return claude({"type": "tool_result", "tool_use_id": "toolu_0", "content": text, **more}, role="user")


def bash(command: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": "toolu_0", "name": "Bash", "input": {"command": command, "description": "x"}}


def codex(kind: str, phase: str = "completed", **more: Any) -> str:
    return line(type=f"item.{phase}", item={"id": "item_1", "type": kind, **more})


FAILING = "echo oops >&2; exit 3"
CLAUDE = (
    line(type="system", subtype="init", cwd="/p", session_id="8097", tools=["Bash"], model="claude-opus-4-8")
    + claude({"type": "text", "text": "I count\nto sixty."}, bash("seq 1 60"))
    + heard(LONG.strip(), is_error=False)
    + claude(bash(FAILING))
    + heard("Exit code 3\noops", is_error=True)
    + claude({"type": "text", "text": "All is done."})
    + line(type="result", subtype="success", is_error=False, result="All is done.", total_cost_usd=0.03125)
)
CODEX = (
    line(type="thread.started", thread_id="01a1e2b4")
    + codex("agent_message", text="I count\nto sixty.")
    + codex("command_execution", "started", command="/bin/bash -c 'seq 1 60'", status="in_progress")
    + codex("command_execution", command="x", aggregated_output=LONG, exit_code=0, status="completed")
    + codex("command_execution", command=f"/bin/bash -c '{FAILING}'", aggregated_output="oops\n", exit_code=3).replace(
        "item_1", "item_2"
    )
    + codex("agent_message", text="All is done.")
    + line(type="turn.completed", usage={"input_tokens": 5000, "output_tokens": 250})
)
GEMINI = (
    line(type="init", session_id="d20c", model="gemini-2.5-pro")
    + line(type="message", role="user", content="# Your task")
    + line(type="message", role="assistant", content="I count\n", delta=True)
    + line(type="message", role="assistant", content="to sixty.", delta=True)
    + line(type="tool_use", tool_name="run_shell_command", tool_id="1", parameters={"command": "seq 1 60"})
    + line(type="tool_result", tool_id="1", status="success", output=LONG)
    + line(type="tool_use", tool_name="run_shell_command", tool_id="2", parameters={"command": FAILING})
    + line(type="tool_result", tool_id="2", status="error", output="oops")
    + line(type="message", role="assistant", content="All is done.", delta=True)
    + line(type="result", status="success", stats={})
)


def opencode(kind: str, **part: Any) -> str:
    return line(type=kind, sessionID="ses_e1d4", part={"messageID": "msg_1", **part})


def used(command: str, **state: Any) -> str:
    return opencode("tool_use", tool="bash", state={"status": "completed", "input": {"command": command}, **state})


OPENCODE = (
    opencode("step_start")
    + opencode("text", text="I count\nto sixty.")
    + used("seq 1 60", output=LONG, metadata={"exit": 0, "output": LONG})
    + used(FAILING, output="oops\n", metadata={"exit": 3})
    + opencode("text", text="All is done.")
    + opencode("step_finish", reason="stop", tokens={}, cost=0)
)
RECORDINGS = {"claude": CLAUDE, "codex": CODEX, "gemini": GEMINI, "opencode": OPENCODE}


class Records:
    """A project with the records of runs, and `ralphtool logs` in it."""

    def __init__(self, ralph: Ralph) -> None:
        self.ralph = ralph
        ralph.write(".ralph/config.toml", "")

    def add(
        self, transcript: str | bytes | None, *, agent: str = "claude", number: int = 1, run: str = RUN, **more: Any
    ) -> Path:
        """Adds an iteration that ended with `status`; None for one without an end."""
        entry = more.pop("entry", "add-login-1-1")
        folder = self.ralph.root / f".ralph/runs/{run}/{number:03}-{entry}"
        folder.mkdir(parents=True)
        (folder / "prompt.md").write_text("Do it.")
        if transcript is not None:
            data = transcript if isinstance(transcript, bytes) else transcript.encode()
            (folder / "transcript.log").write_bytes(data)
        status = more.pop("status", "completed")
        start = {"number": number, "story": "1", "title": "First", "entry": entry, "attempt": 1, "attempts": 3}
        self.note(run, "iteration_started", **start, agent=agent)
        if status:
            told = {"status": status, "summary": f"it is {status}", "reasons": [f"because {status}"]}
            seconds = {"agent": 12.0, "gates": 0}
            self.note(run, "verdict", entry=entry, **told, input_tokens=5000, output_tokens=250, seconds=seconds)
        return folder

    def note(self, run: str, kind: str, **fields: Any) -> None:
        with (self.ralph.root / f".ralph/runs/{run}/events.jsonl").open("a") as file:
            file.write(line(at="2026-03-01T22:00:00.000000Z", type=kind, **fields))

    def show(self, *arguments: str, encoding: str = "utf-8") -> str:
        result = self.ralph.run("logs", *arguments, PYTHONIOENCODING=encoding)
        assert result.exit_code == 0, result.stderr
        assert result.stderr == ""
        return result.stdout

    def events(self, *arguments: str) -> list[dict[str, Any]]:
        """The events that `--json` prints, without starting a program."""
        found = iterations.find(str(self.ralph.root), *(arguments or (None,)))
        return [to_builtins(event) for event in iterations.read_events(found)]

    def error(self, *arguments: str) -> str:
        result = self.ralph.run("logs", *arguments)
        assert (result.exit_code, result.stdout) == (1, "")
        return result.stderr


@pytest.fixture
def records(ralph: Ralph) -> Records:
    return Records(ralph)


# --- output -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", RECORDINGS)
def test_a_conversation(records: Records, agent: str) -> None:
    folder = records.add(RECORDINGS[agent], agent=agent)
    (folder / "transcript.log.err").write_text("a warning\n")
    tool = {"claude": "Bash", "codex": "shell", "gemini": "run_shell_command", "opencode": "bash"}[agent]
    oops = ["    Exit code 3", "    oops"] if agent == "claude" else ["    oops"]
    assert records.show("add-login-1-1").splitlines() == [
        f"add-login-1-1 ({RUN}:1)  1. First, attempt 1 of 3, by {agent}",
        "",
        "I count",
        "to sixty.",
        "",
        f"▸ {tool}  seq 1 60",
        *("    1", "    2", "    3", "    … 54 lines more: --full", "    58", "    59", "    60"),
        f"▸ {tool}  {FAILING}",
        "    failed:",
        *oops,
        "",
        "All is done.",
        "",
        "completed: it is completed",
        "used: 5k tokens in, 250 out, agent 12 s",
        "standard error: --errors shows it",
        f"records: {folder}",
    ]
    assert "\n    30\n    31\n" in records.show("--full")
    kinds = [event["kind"] for event in records.events() if event["kind"] not in ("usage", "quota")]
    assert kinds == ["message", "tool", "result", "tool", "result", "message"]


def test_for_programs_each_event_is_a_line(records: Records) -> None:
    records.add(CLAUDE.replace("sixty", "sechzig é"))
    told = records.show("--json")
    assert told.isascii()
    assert [json.loads(one) for one in told.splitlines()] == records.events()
    assert "\nto sechzig \\xe9.\n" in records.show(encoding="ascii")


@pytest.mark.parametrize("agent", RECORDINGS)
@pytest.mark.parametrize("trouble", ["its package is gone", "the settings are broken", "the record is gone"])
def test_whose_it_was_is_seen_from_its_shape(records: Records, agent: str, trouble: str) -> None:
    folder = records.add(RECORDINGS[agent], agent="long-gone")
    if trouble == "the settings are broken":
        records.ralph.write(".ralph/config.toml", "[agents.long-gone\nkind = 7")
    if trouble == "the record is gone":
        os.remove(folder.parent / "events.jsonl")
    told = [event for event in records.events("add-login-1-1") if event["kind"] not in ("usage", "quota")]
    assert [event["kind"] for event in told] == ["message", "tool", "result", "tool", "result", "message"]
    assert told[0]["text"] == "I count\nto sixty."


def test_settings_say_what_kind_a_name_stands_for(records: Records) -> None:
    records.add(line(type="message", text="of the script", role="assistant", content="of Gemini"), agent="mine")
    for kind, text in (("scripted", "of the script"), ("gemini", "of Gemini")):
        records.ralph.write(".ralph/config.toml", f'[agents.mine]\nkind = "{kind}"\n')
        assert records.events() == [{"kind": "message", "text": text}]


def test_a_command_of_ones_own_may_print_as_a_known_agent_does(records: Records) -> None:
    records.add("npm: a warning first\n" + CLAUDE, agent="command")
    assert records.events()[1] == {"kind": "message", "text": "I count\nto sixty."}


def test_an_agent_that_writes_files_of_its_own(records: Records) -> None:
    folder = records.add("mini prints\nfor people\n", agent="mini")
    extra = {"actions": [{"command": "seq 1 60"}]}
    messages = [
        {"role": "assistant", "content": "I count.", "extra": extra},
        {"role": "tool", "content": "…", "extra": {"raw_output": LONG, "returncode": 3}},
    ]
    (folder / "mini.traj.json").write_text(json.dumps({"info": {"exit_status": ""}, "messages": messages}))
    assert records.events() == [
        {"kind": "message", "text": "I count."},
        {"kind": "tool", "name": "bash", "detail": "seq 1 60"},
        {"kind": "result", "text": LONG, "ok": False},
    ]
    (folder / "mini.traj.json").write_text('{"info": {}, "messages": [')  # killed while writing
    assert "\nmini prints\nfor people\n" in records.show()


@pytest.mark.parametrize("agent", ["command", "long-gone", "claude", "mini"])
def test_plain_text_stays_plain_text(records: Records, agent: str) -> None:
    text = "I work.\n\n" + LONG + "no end of line: café"
    records.add(text, agent=agent)
    assert f"\n{text}\n" in records.show()
    assert records.events() == [
        {"kind": "output", "text": text.rpartition("\n")[0]},
        {"kind": "output", "text": text.rpartition("\n")[2]},
    ]


def test_lines_that_nobody_knows_are_shown_as_they_are(records: Records) -> None:
    """Such as lines of a newer version, or of a package that is no longer installed."""
    strange = line(type="thought", words="hm") * 3
    for number, agent in enumerate(("claude", "long-gone"), 1):
        records.add(strange, agent=agent, number=number)
        assert records.events(f"{RUN}:{number}") == [{"kind": "output", "text": strange.strip()}]


def test_failures_are_marked_and_reasons_told(records: Records) -> None:
    retry = line(type="system", subtype="api_retry", error="slow down", error_status=429, attempt=1, max_retries=9)
    folder = records.add(CLAUDE.rpartition('{"type":"result"')[0] + retry, status="failed")
    (folder / "transcript.log.err").write_text("".join(f"complaint {number}\n" for number in range(9)))
    records.note(RUN, "iteration_started", number=2)
    told = records.show()
    assert "\n✗ rate-limit: slow down (retrying, 1 of 9)\n" in told
    assert "\nfailed: because failed\n" in told
    assert "complaint 3" not in told
    assert "    complaint 4\n" in told
    assert records.show("--errors").splitlines() == [f"complaint {number}" for number in range(9)]
    (folder / "transcript.log.err").unlink()
    (folder / "transcript.log.err").symlink_to("/etc/passwd")
    for arguments in ([], ["--follow"], ["--errors"]):
        refused = records.ralph.run("logs", *arguments)
        assert "is a link or a special file" in refused.stderr
        assert "root:" not in refused.stdout
    assert _read_stderr_tail(iterations.find(str(records.ralph.root), None)) == []


def test_one_that_was_interrupted_says_so_once(records: Records) -> None:
    records.add("first\n", agent="command", status="")
    told = {"entry": "add-login-1-1", "status": "interrupted", "summary": "interrupted", "reasons": []}
    records.note(RUN, "verdict", **told)
    assert "\ninterrupted\n" in records.show()


def test_the_agents_own_last_word_is_the_first_one(records: Records) -> None:
    """A second one belongs to the agent that examined a blocker."""
    records.add(CLAUDE, status=None)
    records.note(RUN, "agent", event={"kind": "end", "ok": False, "reason": "the turn failed"})
    records.note(RUN, "agent", event={"kind": "end", "ok": False, "reason": "it only looked"})
    told = records.show()
    assert "\nthe agent ended with: the turn failed\n" in told
    assert "it was never judged: its run was cut off" in told
    assert "used: 1k tokens in, 50 out, $0.03\n" in told, "what the transcript tells, where nobody summed it up"


# --- which iteration --------------------------------------------------------------------------------


def test_which_one_is_meant(records: Records) -> None:
    later = "add-login-20260302-070000-0001"
    records.add("first\n", agent="command", status="interrupted")
    records.add("second\n", agent="command", number=2, status="transient")
    records.add("third\n", agent="command", run=later)
    records.add("fourth\n", agent="command", number=2, run=later, entry="add-login-2-1")
    other = "zebra-20260228-000000-0001"
    records.add("fifth\n", agent="command", run=other, entry="zebra-1-1")
    shown = {
        (): "fourth",
        ("add-login-1-1",): "third",
        ("add-login-2-1",): "fourth",
        (f"{RUN}:1",): "first",
        ("7f3a:002",): "second",
        (":1",): "third",
        ("add-login:1",): "third",
        ("add-login",): "fourth",
        ("zebra",): "fifth",
        (RUN,): "second",
    }
    assert {one: records.events(*one)[0]["text"] for one in shown} == shown
    assert "\ninterrupted: because interrupted\n" in records.show(f"{RUN}:1")
    os.remove(records.ralph.root / f".ralph/runs/{other}/events.jsonl")
    assert records.events("zebra-1-1")[0]["text"] == "fifth"
    assert f"has no iteration '9': there is {RUN}:2, {RUN}:1" in records.error(f"{RUN}:9")
    assert "no story and no attempt 'add-login-9-9'" in records.error("add-login-9-9")
    assert "there is no run nobody" in records.error("nobody:1")
    assert "no story and no attempt" in records.error("../../etc")


def test_nothing_there_yet(ralph: Ralph) -> None:
    assert "no agent has worked here yet: `ralphtool run` starts one" in ralph.run("logs").stderr
    ralph.write(f".ralph/runs/{RUN}/events.jsonl", "")
    assert f"no agent has worked in the run {RUN}" in ralph.run("logs", RUN).stderr


def test_a_missing_transcript_is_an_error_that_tells_what_is_there(records: Records) -> None:
    folder = records.add(None)
    told = records.error()
    assert f"{folder} has no transcript.log" in told
    assert "recorded: prompt.md" in told
    os.symlink("/etc/passwd", folder / "transcript.log")
    assert "is a link or a special file" in records.error()
    assert "root:" not in records.error("--raw")


def test_an_empty_transcript(records: Records) -> None:
    records.add("")
    assert "\nthe agent printed nothing\n" in records.show()
    assert records.events() == []


def test_an_agent_that_says_nothing_but_its_final_message(records: Records) -> None:
    records.add(line(type="end", ok=True, message="I am blocked."), agent="scripted")
    assert records.events() == [{"kind": "message", "text": "I am blocked."}]


def test_a_shell_is_told_the_entries(records: Records) -> None:
    records.add("", entry="add-login-1-1")
    records.add("", entry="add-login-2-1", number=2)
    words = "ralphtool logs add-login-2"
    told = records.ralph.run(COMP_WORDS=words, COMP_CWORD="2", _RALPHTOOL_COMPLETE="bash_complete").stdout
    assert told.split() == ["plain,add-login-2-1"]


# --- control characters and secrets -----------------------------------------------------------------

NASTY = "\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m\ttab\r\u202eright to left \x9b5m\x00 end é"


def test_nothing_in_it_reaches_the_terminal_as_such(records: Records) -> None:
    records.add(
        claude({"type": "text", "text": f"{NASTY}\n{NASTY}"}, bash(NASTY))
        + heard(NASTY)
        + line(type="system", subtype="api_retry", error=NASTY, error_status=429, attempt=1, max_retries=9)
    )
    told = records.show()
    assert all(character.isprintable() or character == "\n" for character in told)
    assert r"\x1b]0;title\x07\x1b[2Jred" in told
    assert told.count(r"\u202eright to left \x9b5m\x00 end é") == 5
    assert records.show(encoding="ascii").isascii()


@pytest.mark.parametrize("agent", ["claude", "long-gone"])
def test_binary_rubbish(records: Records, agent: str) -> None:
    rubbish = bytes(range(256)) * 40 + b"\n" + b"\xff\xfe{" * 100
    records.add(rubbish, agent=agent)
    told = records.show()
    assert all(character.isprintable() or character == "\n" for character in told)
    assert "ABCDEFG" in told


def test_a_cut_transcript_tells_all_that_is_whole(records: Records) -> None:
    records.add(CLAUDE[: CLAUDE.index("Exit code")], status=None)
    assert records.show().split("\n\n")[2].startswith("▸ Bash  seq 1 60\n    1\n")


def test_a_huge_line_is_folded_and_can_be_shown(records: Records) -> None:
    records.add(claude({"type": "text", "text": "m" * 1_000_000}, bash("x")) + heard("y" * 1_000_000))
    told = records.show()
    assert f"    {'y' * 200}… (999800 characters more: --full)\n" in told
    assert "m" * 1_000_000 in told
    assert "y" * 1_000_000 in records.show("--full")


def test_raw_is_byte_for_byte(records: Records) -> None:
    data = bytes(range(256)) * 9000 + b"no end of line"
    folder = records.add(data)
    (folder / "transcript.log.err").write_bytes(data[:1000])
    for arguments, expected in ((["--raw"], data), (["--raw", "--errors"], data[:1000])):
        done = subprocess.run(
            [COMMAND, "logs", *arguments], cwd=records.ralph.root, env=records.ralph.env, capture_output=True
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, expected, b"")


def in_a_terminal(command: list[str], ralph: Ralph) -> bytes:
    ours, theirs = pty.openpty()
    env = {**ralph.env, "LC_ALL": "C.UTF-8", "TERM": "xterm", "NO_COLOR": "1"}
    process = subprocess.Popen(command, cwd=ralph.root, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    told = b""
    try:
        while piece := os.read(ours, 65536):
            told += piece
    except OSError:  # no process has it open any longer
        pass
    process.wait(timeout=PATIENCE)
    os.close(ours)
    return told


def test_raw_on_a_terminal_makes_control_characters_visible(records: Records) -> None:
    records.add(f"{NASTY}\nsecond\n")
    told = in_a_terminal([COMMAND, "logs", "--raw"], records.ralph).decode()
    assert all(character.isprintable() or character in "\r\n" for character in told)
    assert told.startswith(r"\x1b]0;title\x07\x1b[2Jred")
    assert "\r\nsecond\r\n" in told


def test_odd_combinations_are_told(records: Records) -> None:
    records.add(CLAUDE)
    for wrong in (["--raw", "--json"], ["--raw", "-f"]):
        result = records.ralph.run("logs", *wrong)
        assert result.exit_code == 2
        assert "use one" in result.stderr or "give one" in result.stderr


# --- huge transcripts -------------------------------------------------------------------------------

PEAK = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(status, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10)
"""


def megabytes(records: Records, *arguments: str) -> int:
    """The peak memory of a call."""
    command = [sys.executable, "-c", PEAK, COMMAND, "logs", *arguments]
    done = subprocess.run(command, cwd=records.ralph.root, env=records.ralph.env, capture_output=True, check=True)
    status, peak = done.stdout.split()
    assert status == b"0"
    return int(peak)


def test_memory_does_not_grow_with_the_transcript_or_the_record(records: Records) -> None:
    records.add(CLAUDE, entry="small-1-1")
    usual = megabytes(records, "small-1-1")
    said = line(at="2026-03-01T22:00:00.000000Z", type="agent", event={"kind": "output", "text": 'a "verdict" ' * 99})
    with (records.ralph.root / f".ralph/runs/{RUN}/events.jsonl").open("a") as file:
        file.write(said * (20_000_000 // len(said)))
    folder = records.add(None, number=2)
    with (folder / "transcript.log").open("w") as file:
        for _ in range(80):
            file.write(claude(bash("cat huge")) + heard("some words\n" * 90_000))
    assert "by claude" in records.show().partition("\n")[0]
    assert megabytes(records) < usual + 40
    assert megabytes(records, "--raw") < usual + 40


def test_whoever_reads_only_the_beginning_gets_it_at_once(records: Records) -> None:
    records.add(CLAUDE + (claude(bash("cat huge")) + heard("some words\n" * 90_000)) * 60)
    command = f"{COMMAND} logs --full | head -3"
    done = subprocess.run(
        ["bash", "-c", command], cwd=records.ralph.root, env=records.ralph.env, capture_output=True, timeout=PATIENCE
    )
    assert done.stdout.splitlines()[2] == b"I count"
    assert done.stderr == b""


# --- a run in progress ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Process]]:
    """A run whose agent waits for the file `go`."""
    lab = Lab(tmp_path_factory.mktemp("lab"))
    waits = {"run": f"until [ -e {lab.tmp}/go ]; do sleep 0.05; done"}
    lab.repository("## 1. First\n\n- [ ] 1.1 Make a\n").play(
        default=[{"say": "I begin."}, waits, {"run": "echo a > a"}, {"tick": "all"}, {"complete": True}]
    )
    process = lab.start()
    yield lab, process
    kill(process)


def test_one_that_goes_on_can_be_followed(running: tuple[Lab, Process]) -> None:
    lab, process = running
    assert wait_until(lambda: "I begin." in lab.run("logs").stdout), lab.run("logs").stderr
    assert "it is still running: -f follows it" in lab.run("logs").stdout
    following = subprocess.Popen([COMMAND, "logs", "-f"], cwd=lab.root, env=lab.env, stdout=subprocess.PIPE)
    assert following.stdout is not None
    first = [following.stdout.readline().decode() for _ in range(3)]
    assert first[0].endswith("1. First, attempt 1 of 3, by scripted\n")
    assert first[2] == "I begin.\n"
    (lab.tmp / "go").touch()
    rest = following.communicate(timeout=PATIENCE)[0].decode()
    assert "echo a > a" in rest
    assert process.wait(timeout=PATIENCE) == 0
    told = lab.run("logs", "add-login-1-1").stdout
    assert "\ncompleted: every task is ticked" in told
    assert told.count("I begin.") == 1


# --- parts ------------------------------------------------------------------------------------------


def test_results_that_fit_are_shown_as_they_are() -> None:
    conversation = Conversation()
    assert [*conversation.render_event(Result("\n".join("1234567")))] == [
        f"\x1b[2m    {number}\x1b[0m" for number in "1234567"
    ]
    assert [*conversation.render_event(Result("", ok=False))] == ["    \x1b[31mfailed\x1b[0m"]
    assert [*conversation.render_event(Quota(0.5))] == []


def test_events_are_those_of_the_agents_own_reader(records: Records) -> None:
    records.add(CODEX, agent="codex")
    found = iterations.find(str(records.ralph.root), None)
    assert [event for event in iterations.read_events(found) if isinstance(event, Message | Tool | Result)][:3] == [
        Message("I count\nto sixty."),
        Tool("shell", "seq 1 60"),
        Result(LONG),
    ]
    assert [*iterations.decode_plain([b"caf\xc3", b"\xa9\nx"])] == [Output("café"), Output("x")]
    assert len([*iterations.decode_plain([b"x" * 600_000] * 6)]) == 3, "a line without an end fills no memory"
