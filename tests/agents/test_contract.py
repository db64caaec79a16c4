"""Every built-in agent keeps the contract of a runner, and the contract detects runners that break it."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ralphtool import agents
from ralphtool.agents import BUILT_IN, End, Event, Job, Message, Output, Start, Tool, Traits
from ralphtool.testing import ContractBroken, check_runner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


def lines(*values: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(value, ensure_ascii=False).encode() + b"\n" for value in values)


# --- built-in runners -------------------------------------------------------------------------------


def leave_aider(job: Job) -> None:
    """Writes the files that aider's reader reads."""
    logged = [
        {"event": "launched", "properties": {}},
        {"event": "message_send_starting", "properties": {}},
        {"event": "message_send", "properties": {"prompt_tokens": 1000, "completion_tokens": 50, "cost": 0.0015}},
        {"event": "exit", "properties": {"reason": "Completed --message-file"}},
    ]
    texts = {
        "aider.jsonl": lines(*(one | {"user_id": "u", "time": 1} for one in logged)),
        "aider-model.log": b"TO LLM 2026-01-01T10:00:01\n-------\nUSER do it\n"
        b"LLM RESPONSE 2026-01-01T10:00:02\nASSISTANT Done\n",
        "aider-chat.md": b"\n# aider chat started at 2026-01-01 10:00:00\n\n> Aider v0.86.2\n\n#### do it\n\nDone\n\n"
        b"> Applied edit to hello.txt  \n",
    }
    for name, text in texts.items():
        with open(os.path.join(job.folder, name), "wb") as file:
            file.write(text)


def leave_mini(job: Job) -> None:
    """Writes the trajectory that mini's reader reads."""
    extra = {"actions": [{"command": "ls"}], "response": {"model": "gpt-4o", "usage": {"prompt_tokens": 1000}}}
    messages = [
        {"role": "user", "content": "do it"},
        {"role": "assistant", "content": "Done.", "extra": extra},
        {"role": "exit", "content": "", "extra": {"exit_status": "Submitted", "submission": ""}},
    ]
    info = {"model_stats": {"instance_cost": 0.02}, "exit_status": "Submitted", "submission": ""}
    with open(os.path.join(job.folder, "mini.traj.json"), "w", encoding="utf-8") as file:
        json.dump({"info": info, "messages": messages, "trajectory_format": "mini-swe-agent-1.1"}, file)


@dataclass(frozen=True)
class Recorded:
    """The output of an agent that wrote a file and said that it was done."""

    output: bytes
    options: dict[str, Any] = field(default_factory=dict)
    prepare: Callable[[Job], object] = lambda job: None
    believes_exit_code: bool = False


def part(kind: str, **more: Any) -> dict[str, Any]:
    """A line of opencode's output."""
    inside = {"id": "prt_1", "messageID": "msg_1", "type": kind.replace("_", "-"), **more}
    return {"type": kind, "timestamp": 1794781454458, "sessionID": "ses_1", "part": inside}


CLAUDE = lines(
    {"type": "system", "subtype": "init", "cwd": "/work", "tools": ["Bash", "Write"], "model": "claude-opus-4-8"},
    {
        "type": "assistant",
        "message": {
            "id": "msg_0000",
            "model": "claude-opus-4-8",
            "content": [{"type": "tool_use", "id": "t", "name": "Write", "input": {"file_path": "/project/hello.txt"}}],
            "usage": {"input_tokens": 1000, "output_tokens": 50},
        },
        "parent_tool_use_id": None,
    },
    {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "content": "ok"}]}},
    {"type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 10, "error_status": 529, "error": "busy"},
    {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1794787501, "utilization": 0.8}},
    {
        "type": "assistant",
        "message": {
            "id": "msg_0001",
            "model": "claude-opus-4-8",
            "content": [{"type": "text", "text": "Fertig – ü"}],
            "usage": {"input_tokens": 1000, "output_tokens": 50},
        },
        "parent_tool_use_id": None,
    },
    {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "api_error_status": None,
        "result": "Fertig – ü",
        "total_cost_usd": 0.0125,
        "usage": {"input_tokens": 2000, "output_tokens": 100},
    },
)
CODEX = lines(
    {"type": "thread.started", "thread_id": "01a1e14e-63f1-7553-8cd9-a62b3378098f"},
    {"type": "turn.started"},
    {
        "type": "item.completed",
        "item": {"id": "item_0", "type": "file_change", "changes": [{"path": "/project/hello"}]},
    },
    {"type": "item.started", "item": {"id": "item_2", "type": "command_execution", "command": "/bin/sh -c 'ls'"}},
    {"type": "item.started", "item": {"id": "item_3", "type": "mcp_tool_call", "server": "a", "tool": "b"}},
    {"type": "item.completed", "item": {"id": "item_4", "type": "error", "message": "no metadata"}},
    {"type": "error", "message": "Reconnecting... 1/5 (unexpected status 429)"},
    {"type": "item.completed", "item": {"id": "item_1", "type": "agent_message", "text": "Fertig – ü"}},
    {"type": "turn.completed", "usage": {"input_tokens": 3000, "cached_input_tokens": 800, "output_tokens": 150}},
)
GEMINI = lines(
    {"type": "init", "session_id": "c421", "model": "gemini-2.5-pro"},
    {"type": "message", "role": "user", "content": "do it"},
    {"type": "tool_use", "tool_name": "write_file", "tool_id": "1", "parameters": {"file_path": "/project/hello.txt"}},
    {"type": "tool_result", "tool_id": "1", "status": "success", "output": "ok"},
    {"type": "error", "severity": "warning", "message": "Loop detected"},
    {"type": "message", "role": "assistant", "content": "Fertig ", "delta": True},
    {"type": "message", "role": "assistant", "content": "– ü", "delta": True},
    {"type": "result", "status": "success", "stats": {"models": {"gemini-2.5-pro": {"input_tokens": 3000}}}},
)
OPENCODE = lines(
    part("step_start"),
    {
        **part("tool_use"),
        "part": {"type": "tool", "tool": "write", "state": {"input": {"filePath": "/project/hello.txt"}}},
    },
    part("text", text="Fertig – ü"),
    part("step_finish", reason="stop", cost=0.25, tokens={"input": 100, "output": 40}),
)
SCRIPTED = lines(
    {"type": "tool", "name": "run", "detail": "make"},
    {"type": "message", "text": "Fertig – ü"},
    {"type": "usage", "input_tokens": 1000, "output_tokens": 50, "cost": 0.1},
    {"type": "error", "trouble": "overload", "text": "busy", "reset_in": 5},
    {"type": "end", "ok": True, "message": "Fertig – ü"},
)
RECORDED = {
    "aider": Recorded(b"Aider v0.86.2\n\nDone\n\nApplied edit to hello.txt\n", prepare=leave_aider),
    "claude": Recorded(CLAUDE),
    "codex": Recorded(CODEX),
    "command": Recorded(b"I look.\nDone.\n", {"command": ["my-agent", "--headless"]}, believes_exit_code=True),
    "gemini": Recorded(GEMINI),
    "mini": Recorded(b"mini-swe-agent (step 1)\nDone.\n", {"permissions": "all"}, leave_mini),
    "opencode": Recorded(OPENCODE),
    "scripted": Recorded(SCRIPTED, {"args": ["/project/script.toml"]}),
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides the agents' own settings on this machine."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "home").mkdir()


def test_every_agent_has_a_recording() -> None:
    assert RECORDED.keys() == BUILT_IN.keys()


@pytest.mark.parametrize("name", BUILT_IN)
def test_it_keeps_the_contract(tmp_path: Path, name: str) -> None:
    recorded = RECORDED[name]
    runner = agents.make(name, recorded.options)
    check_runner(
        runner,
        str(tmp_path / "work"),
        recorded.output,
        believes_exit_code=recorded.believes_exit_code,
        prepare=recorded.prepare,
    )
    assert os.listdir(tmp_path / "home") == []


@pytest.mark.parametrize("name", [name for name in BUILT_IN if name != "command"])
def test_its_recording_tells_what_was_done(tmp_path: Path, name: str) -> None:
    """A recording from which the reader gets no events would prove nothing."""
    recorded = RECORDED[name]
    job = Job(prompt=str(tmp_path / "prompt.md"), root=str(tmp_path), folder=str(tmp_path))
    recorded.prepare(job)
    reader = agents.make(name, recorded.options).reader(job)
    events = [*reader.feed(recorded.output), *reader.rest()]
    assert any(isinstance(event, Message) for event in events)
    assert any(isinstance(event, Tool) for event in events)
    assert reader.end(0).ok


@pytest.mark.parametrize("name", BUILT_IN)
def test_only_its_own_last_word_makes_it_over(tmp_path: Path, name: str) -> None:
    """Agents that write a log, and agents of an unknown format, are over only when their process has ended."""
    recorded = RECORDED[name]
    job = Job(prompt=str(tmp_path / "prompt.md"), root=str(tmp_path), folder=str(tmp_path))
    recorded.prepare(job)
    reader = agents.make(name, recorded.options).reader(job)
    *before, last = recorded.output.splitlines(keepends=True)
    list(reader.feed(b"".join(before)))
    assert not reader.is_over
    list(reader.feed(last))
    assert reader.is_over == (name not in ("aider", "command", "mini"))


def test_a_stranger_keeps_it_by_the_name_that_its_user_gives(tmp_path: Path) -> None:
    runner = agents.make("mine", {"kind": "claude", "command": ["/opt/claude"], "model": "opus"})
    check_runner(runner, str(tmp_path / "work"), CLAUDE)
    assert runner.name == "mine"


# --- runners that break the contract ----------------------------------------------------------------

WELL = b'{"say": "hello"}\n{"say": "done"}\n{"end": true}\n'


class Reader:
    """Emits the messages that it reads, and ends well when it has read the end."""

    def __init__(self) -> None:
        self.begun = b""
        self.ok = False
        self.is_over = False

    def feed(self, chunk: bytes) -> Iterable[Event]:
        *whole, self.begun = (self.begun + chunk).split(b"\n")
        return [event for line in whole for event in self.take(line)]

    def take(self, line: bytes) -> Iterable[Event]:
        try:
            told = msgspec.json.decode(line)
        except (ValueError, RecursionError):
            return []
        if isinstance(told, dict) and told.get("end") is True:
            self.ok = self.is_over = True
        return [Message(told["say"])] if isinstance(told, dict) and isinstance(told.get("say"), str) else []

    def feed_errors(self, chunk: bytes) -> Iterable[Event]:
        return ()

    def rest(self) -> Iterable[Event]:
        return self.feed(b"\n")

    def end(self, exit_code: int) -> End:
        return End(self.ok, reason="it said so" if self.ok else "it did not say so")


class Good:
    """A runner that keeps the contract; each of those below breaks it in one place."""

    name = "good"
    traits = Traits()
    Reads: type[Reader] = Reader

    def check(self) -> None:
        """It is always available."""

    def start(self, job: Job) -> Start:
        return Start(argv=("agent",), stdin=job.prompt)

    def reader(self, job: Job) -> Reader:
        return self.Reads()


class Nameless(Good):
    name = ""


class WithoutProgram(Good):
    def start(self, job: Job) -> Start:
        return Start(argv=(), stdin=job.prompt)


class PromptAsArgument(Good):
    def start(self, job: Job) -> Start:
        with open(job.prompt, encoding="utf-8") as file:
            return Start(argv=("agent", "-p", f"Hello. {file.read().splitlines()[0]}"), stdin=job.prompt)


class PromptInEnvironment(Good):
    def start(self, job: Job) -> Start:
        with open(job.prompt, encoding="utf-8") as file:
            return Start(argv=("agent",), env={"TASK": file.read()})


class WithoutPrompt(Good):
    def start(self, job: Job) -> Start:
        return Start(argv=("agent", "--in", job.folder))


class ZeroByte(Good):
    def start(self, job: Job) -> Start:
        return Start(argv=("agent", "a\0b"), stdin=job.prompt)


class OddVariable(Good):
    def start(self, job: Job) -> Start:
        return Start(argv=("agent",), stdin=job.prompt, env={"A=B": "c"})


class WritesIntoTree(Good):
    def start(self, job: Job) -> Start:
        with open(os.path.join(job.root, ".agent.json"), "w", encoding="utf-8") as file:
            file.write("{}")
        return super().start(job)


class DiffersEachTime(Good):
    count = 0

    def start(self, job: Job) -> Start:
        self.count += 1
        return Start(argv=("agent", f"--session={self.count}"), stdin=job.prompt)


class OnlySaysReadOnly(Good):
    traits = Traits(read_only=True)


class OnlySaysMcp(Good):
    traits = Traits(mcp=True)


class ReaderWrites(Good):
    def reader(self, job: Job) -> Reader:
        with open(os.path.join(job.root, "agent.log"), "w", encoding="utf-8") as file:
            file.write("read")
        return Reader()


class BelievesExitCode(Good):
    class Reads(Reader):
        def end(self, exit_code: int) -> End:
            return End(exit_code == 0)


class BelievesAnything(Good):
    """It treats every line as the end, so garbage is a success."""

    class Reads(Reader):
        def take(self, line: bytes) -> Iterable[Event]:
            self.ok = self.ok or bool(line)
            return []


class NeverBelieves(Good):
    class Reads(Reader):
        def end(self, exit_code: int) -> End:
            return End(False, reason="I believe nobody")


class BelievesTheDead(Good):
    class Reads(Reader):
        def end(self, exit_code: int) -> End:
            return End(self.ok or exit_code != 0)


class RaisesOnGarbage(Good):
    class Reads(Reader):
        def take(self, line: bytes) -> Iterable[Event]:
            told = json.loads(line or b"{}")
            self.ok = self.ok or bool(told.get("end"))
            return []


class RaisesOnErrors(Good):
    class Reads(Reader):
        def feed_errors(self, chunk: bytes) -> Iterable[Event]:
            return [Output(chunk.decode())]


class TakesPiecesForLines(Good):
    """It treats each chunk as whole lines: with a fast pipe this never fails."""

    class Reads(Reader):
        def feed(self, chunk: bytes) -> Iterable[Event]:
            self.ok = self.ok or b'"end": true' in self.begun + chunk
            self.begun = (self.begun + chunk)[-100:]
            return [Message(line.decode()) for line in chunk.splitlines()]

        def rest(self) -> Iterable[Event]:
            return ()


class ForgetsHalfLines(Good):
    class Reads(Reader):
        def feed(self, chunk: bytes) -> Iterable[Event]:
            return [event for line in chunk.split(b"\n") for event in self.take(line)]


class EndAmongEvents(Good):
    class Reads(Reader):
        def rest(self) -> Iterable[Event]:
            return [*super().rest(), End(self.ok)]


class TellsWords(Good):
    class Reads(Reader):
        def take(self, line: bytes) -> Iterable[Event]:
            super().take(line)
            return [line.decode("utf-8", "replace")]  # type: ignore[list-item]


class EndsWithNothing(Good):
    class Reads(Reader):
        def end(self, exit_code: int) -> End:
            return None  # type: ignore[return-value]


class HalfCharacters(Good):
    class Reads(Reader):
        def take(self, line: bytes) -> Iterable[Event]:
            super().take(line)
            return [Message(line.decode("utf-8", "surrogateescape"))]


class BelievesHalfALine(Good):
    class Reads(Reader):
        def rest(self) -> Iterable[Event]:
            self.ok = self.ok or self.begun.startswith(b'{"end": t')
            return super().rest()


class StopsAtGarbage(Good):
    """It gives up at the first line that it does not understand."""

    class Reads(Reader):
        gave_up = False

        def take(self, line: bytes) -> Iterable[Event]:
            self.gave_up = self.gave_up or (bool(line) and not line.startswith(b"{"))
            return [] if self.gave_up else super().take(line)


class TrustsShapes(Good):
    """It reads fields without checking that they are there."""

    class Reads(Reader):
        def take(self, line: bytes) -> Iterable[Event]:
            if b"say" in line and line.endswith(b"}"):
                told = msgspec.json.decode(line)
                return [Message("".join(told["say"]))]
            return super().take(line)


BROKEN: list[tuple[type[Good], str]] = [
    (Nameless, "a runner has a name and traits"),
    (WithoutProgram, "`start` returns the program and its arguments"),
    (PromptAsArgument, "the prompt is not an argument"),
    (PromptInEnvironment, "the prompt is not an argument"),
    (WithoutPrompt, "the prompt is passed on standard input, or by its path"),
    (ZeroByte, "no argument and no variable has a zero byte in it"),
    (OddVariable, "every variable has a name"),
    (WritesIntoTree, "`start` writes nothing into the tree"),
    (DiffersEachTime, "the same job is started the same way again"),
    (OnlySaysReadOnly, "a read-only agent is started differently"),
    (OnlySaysMcp, "ralphtool's MCP server is passed on"),
    (ReaderWrites, "a reader writes nothing into the tree"),
    (BelievesExitCode, "an agent without a final event did not succeed"),
    (BelievesAnything, "an agent without a final event did not succeed"),
    (NeverBelieves, r"the recording of a successful agent ends with success \(it was: I believe nobody\)"),
    (BelievesTheDead, "an agent that failed or was killed without output did not succeed"),
    (RaisesOnGarbage, "whatever an agent prints, a reader returns events, and does not raise JSONDecodeError"),
    (RaisesOnErrors, "whatever an agent prints, a reader returns events, and does not raise UnicodeDecodeError"),
    (TakesPiecesForLines, "in pieces of 1 bytes it returns the same events"),
    (ForgetsHalfLines, "in pieces of 1 bytes it ends the same"),
    (EndAmongEvents, "only `end` returns the end"),
    (TellsWords, "a reader returns events"),
    (EndsWithNothing, "`end` returns the end"),
    (HalfCharacters, "every event can be written as JSON"),
    (BelievesHalfALine, "half of a line is not a terminal event"),
    (TrustsShapes, "whatever an agent prints, a reader returns events, and does not raise TypeError"),
    (StopsAtGarbage, "garbage before a successful end does not hide it"),
]


def test_a_good_one_passes(tmp_path: Path) -> None:
    check_runner(Good(), str(tmp_path / "work"), WELL)
    check_runner(Good(), str(tmp_path / "again"), WELL.rstrip())
    assert os.listdir(tmp_path / "work" / "project") == []


@pytest.mark.parametrize(("broken", "promise"), BROKEN)
def test_one_that_breaks_a_promise_is_told_which(tmp_path: Path, broken: type[Good], promise: str) -> None:
    with pytest.raises(ContractBroken, match=promise):
        check_runner(broken(), str(tmp_path / "work"), WELL)


def test_an_agent_without_a_word_of_its_own_is_believed_only_when_it_ends_well(tmp_path: Path) -> None:
    check_runner(BelievesExitCode(), str(tmp_path / "work"), WELL, believes_exit_code=True)

    class Lenient(Good):
        class Reads(Reader):
            def end(self, exit_code: int) -> End:
                return End(exit_code >= 0)

    with pytest.raises(ContractBroken, match="an agent that failed or was killed"):
        check_runner(Lenient(), str(tmp_path / "again"), WELL, believes_exit_code=True)


def test_a_prompt_in_a_file_of_the_runners_own_is_given_too(tmp_path: Path) -> None:
    class Wraps(Good):
        def start(self, job: Job) -> Start:
            path = os.path.join(job.folder, "wrapped.txt")
            with open(job.prompt, encoding="utf-8") as given, open(path, "w", encoding="utf-8") as file:
                file.write(f"Be good.\n{given.read()}")
            return Start(argv=(sys.executable, f"--file={path}"))

    check_runner(Wraps(), str(tmp_path / "work"), WELL)
    assert (tmp_path / "work" / "records" / "wrapped.txt").exists()
