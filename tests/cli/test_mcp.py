"""`ralphtool mcp`: the real server, with the SDK's own client, or with raw bytes for input the client can't send."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import jsonschema
import pytest
from patience import PATIENCE
from project import COMMAND, Ralph

from ralphtool import __version__
from ralphtool.cli import agent
from ralphtool.core import session
from ralphtool.core.install_hint import build_install_command

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult

    Talk = Callable[[Client], Awaitable[None]]

COMMANDS = {
    "context": "context",
    "status": "status",
    "recall": "recall",
    "task_done": "task done",
    "learn": "learn",
    "pattern": "pattern",
    "observe": "observe",
}
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
WITHOUT_SDK = "import sys\nsys.modules['mcp'] = sys.modules['mcp_types'] = None\n"

# Stands for a bug: an unexpected error in the middle of a command that reads the spec.
BUG = """\
import sys
def fail(event, arguments):
    if event == "open" and str(arguments[0]).endswith("tasks.md"):
        raise ZeroDivisionError
sys.addaudithook(fail)
"""


def talk(ralph: Ralph, talking: Talk, *, mode: Any = "auto", **env: str) -> None:
    """Starts the server in the project, by default in the session s1, and connects a client to it."""
    # Imported here, so that other tests don't wait for it.
    from mcp import Client, StdioServerParameters

    environment = {**ralph.env, **({"RALPH_SESSION": "s1"} | env)}
    server = StdioServerParameters(command=COMMAND, args=["mcp"], env=environment, cwd=ralph.root)

    async def run() -> None:
        with anyio.fail_after(PATIENCE):
            async with Client(server, mode=mode) as client:
                await talking(client)

    # A browser's tests leave a running event loop in the thread of the tests.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(anyio.run, run).result()


async def ok(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """A call that must succeed: its answer, which is there as text and as structured content."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    return answer_of(result)


async def error(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """A call that must fail with a tool error, not with a protocol error."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, text_of(result)
    answer = answer_of(result)
    assert set(answer) == {"success", "error", "code"}
    assert answer["success"] is False
    assert answer["error"]
    return answer


async def code(client: Client, tool: str, **arguments: Any) -> str:
    return str((await error(client, tool, **arguments))["code"])


def answer_of(result: CallToolResult) -> dict[str, Any]:
    answer = json.loads(text_of(result))
    assert isinstance(answer, dict)
    assert result.structured_content == answer
    return answer


def text_of(result: CallToolResult) -> str:
    [content] = result.content
    assert content.type == "text"
    return content.text


class Wire:
    """The raw pipes of the server."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self.process = process
        self.stdin = process.stdin
        self.stdout = process.stdout
        self.stderr = process.stderr

    def say(self, line: bytes) -> None:
        self.stdin.write(line + b"\n")
        self.stdin.flush()

    def ask(self, number: int, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """The answer to a request. Every line before it must also follow the protocol."""
        self.say(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}).encode())
        for line in self.stdout:
            message: dict[str, Any] = json.loads(line)
            assert message["jsonrpc"] == "2.0"
            if message.get("id") == number:
                return message
        raise AssertionError("the server ended")

    def greet(self) -> None:
        assert self.ask(0, "initialize", HELLO)["result"]["serverInfo"]["name"] == "ralphtool"
        self.say(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')

    def end(self) -> tuple[int, bytes, bytes]:
        """Closes stdin, as a client does when it has finished; returns the exit code and the remaining output."""
        stdout, stderr = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, stdout, stderr


@contextmanager
def wired(ralph: Ralph, largest_file: int | None = None) -> Iterator[Wire]:
    def limit() -> None:
        if largest_file:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))

    process = subprocess.Popen(
        [COMMAND, "mcp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**ralph.env, "RALPH_SESSION": "s1"},
        cwd=ralph.root,
        preexec_fn=limit,
    )
    wire = Wire(process)
    try:
        yield wire
    finally:
        process.kill()
        process.wait()
        for pipe in (wire.stdin, wire.stdout, wire.stderr):
            pipe.close()


# --- the tools --------------------------------------------------------------------------------------


def test_a_model_is_told_what_the_tools_are_and_take(ralph: Ralph) -> None:
    async def talking(client: Client) -> None:
        assert client.server_info
        assert (client.server_info.name, client.server_info.version) == ("ralphtool", __version__)
        assert client.instructions
        assert "context" in client.instructions
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert listed.keys() == COMMANDS.keys()
        for name, tool in listed.items():
            check_schema(name, tool.input_schema)
            assert tool.description
            assert tool.annotations
            assert tool.annotations.read_only_hint is (name in ("context", "recall", "status"))
            assert tool.annotations.destructive_hint is False
        choices = {
            name: choices_in(tool.input_schema) for name, tool in listed.items() if choices_in(tool.input_schema)
        }
        assert choices == {
            "learn": {"type": session.LEARNING_TYPES},
            "pattern": {"type": session.PATTERN_TYPES},
            "observe": {
                "type": session.OBSERVATION_TYPES,
                "category": session.CATEGORIES,
                "severity": session.SEVERITIES,
            },
        }

    talk(ralph, talking)


def check_schema(tool: str, schema: dict[str, Any]) -> None:
    """It is a valid schema, its arguments are those of the command, and each has a description."""
    jsonschema.Draft202012Validator.check_schema(schema)
    command = agent._COMMANDS[COMMANDS[tool]]
    words = [word.lower() for word in command.words]
    assert schema["required"] == words
    assert list(schema["properties"]) == [*words, *command.options]
    assert schema["additionalProperties"] is False
    assert all(one["type"] == "string" and one["description"] for one in schema["properties"].values())


def choices_in(schema: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(one["enum"]) for name, one in schema["properties"].items() if "enum" in one}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_every_tool_answers_as_its_command_does(project: Ralph, mode: str) -> None:
    project.begin()

    async def talking(client: Client) -> None:
        learnt = await ok(client, "learn", text="Run make first", task="1.1", type="build-command")
        assert learnt["total_learnings"] == 1
        assert (
            learnt["learning"].items() >= {"description": "Run make first", "task_id": "1.1", "story_id": "1"}.items()
        )
        seen = await ok(client, "pattern", name="Stores", description="One class a table", type="naming-convention")
        assert seen["pattern"].items() >= {"name": "Stores", "description": "One class a table"}.items()
        told = {"title": "No disk", "description": "df says 0", "file": "a.py", "category": "bug", "severity": "high"}
        observed = await ok(client, "observe", type="blocker", **told)
        assert observed["observation"].items() >= {"type": "blocker", **told}.items()
        assert (await ok(client, "task_done", id="1.1"))["remaining"] == ["1.2"]
        assert (await ok(client, "task_done", id="1.1"))["remaining"] == ["1.2"]
        assert await ok(client, "context") == project.agent("context").json
        assert await ok(client, "status") == project.agent("status").json
        assert (await ok(client, "task_done", id="1.2"))["story_complete"] is True

    talk(project, talking, mode=mode)
    state = project.session()
    assert [one["type"] for one in state["learnings"] + state["patterns"]] == ["build-command", "naming-convention"]
    assert len(state["observations"]) == 1
    assert project.tasks_file.read_text().count("[x]") == 2


def test_texts_are_taken_as_they_are(project: Ralph) -> None:
    """A text that would be an option, stdin or too long on a command line is just a text."""
    texts = [
        "-",
        "--",
        "--help",
        "-h",
        "--task",
        "--task=1.1",
        "- a list\n- of two",
        "ä \U0001f600 \x7f \t",
        "x" * (3 << 20),
    ]
    project.begin()

    async def talking(client: Client) -> None:
        for text in texts:
            assert (await ok(client, "learn", text=text))["learning"]["description"] == text
        assert (await ok(client, "learn", text="plain", task="-", type=None))["learning"]["task_id"] == "-"
        assert (await ok(client, "pattern", name="--type", description="-"))["pattern"]["description"] == "-"
        assert (await ok(client, "observe", type="finding", title="--file"))["observation"]["file"] is None
        assert await code(client, "learn", text="x" * ((4 << 20) + 1)) == "INVALID_VALUE"

    talk(project, talking)
    assert [one["description"] for one in project.session()["learnings"]] == [*texts, "plain"]


def test_calls_at_once_lose_nothing(project: Ralph) -> None:
    project.begin()
    totals = []

    async def talking(client: Client) -> None:
        async def learn(text: str) -> None:
            totals.append((await ok(client, "learn", text=text))["total_learnings"])

        async with anyio.create_task_group() as group:
            for number in range(30):
                group.start_soon(learn, f"fact {number}")
            group.start_soon(anyio.to_thread.run_sync, lambda: project.agent("learn", "from beside").json)
            group.start_soon(client.call_tool, "task_done", {"id": "1.1"})

    talk(project, talking)
    recorded = [one["description"] for one in project.session()["learnings"]]
    assert sorted(recorded) == sorted([*(f"fact {number}" for number in range(30)), "from beside"])
    assert len(set(totals)) == 30
    assert project.session()["completed_tasks"] == ["1.1"]


# --- errors -----------------------------------------------------------------------------------------


def test_a_wrong_call_is_answered_as_the_command_would(project: Ralph) -> None:
    project.begin()
    before = project.snapshot()

    async def talking(client: Client) -> None:
        for tool, arguments, words in (
            ("task_done", {"id": "9.9"}, ["task", "done", "9.9"]),
            ("task_done", {"id": "2.1"}, ["task", "done", "2.1"]),
            ("learn", {"text": "  "}, ["learn", "  "]),
            ("learn", {"text": "a", "type": "no"}, ["learn", "a", "--type", "no"]),
            ("learn", {"text": "a", "task": ""}, ["learn", "a", "--task", ""]),
            ("pattern", {"name": "a\nb", "description": "c"}, ["pattern", "a\nb", "c"]),
            ("observe", {"type": "no", "title": "a"}, ["observe", "no", "a"]),
        ):
            assert await error(client, tool, **arguments) == project.agent(*words).error

    talk(project, talking)
    assert project.snapshot() == before


def test_arguments_of_another_shape_are_refused(project: Ralph) -> None:
    project.begin()
    before = project.snapshot()

    async def talking(client: Client) -> None:
        for tool, arguments, named in (
            ("learn", {}, "text"),
            ("learn", {"text": None}, "text"),
            ("learn", {"text": 5}, "5"),
            ("learn", {"text": ["a"]}, "string"),
            ("learn", {"text": {"a": "b" * 100_000}}, "string"),
            ("learn", {"text": True}, "true"),
            ("learn", {"text": "a", "task": 1.1}, "1.1"),
            ("task_done", {"id": 1.1}, "1.1"),
            ("task_done", {"id": "1.1", "why": "so"}, "why"),
            ("context", {"story": "2"}, "story"),
            ("pattern", {"name": "a"}, "description"),
            ("observe", {"type": "finding"}, "title"),
            ("session_flush", {}, "task_done"),
            ("", {}, "task_done"),
        ):
            told = await error(client, tool, **arguments)
            assert told["code"] == "USAGE"
            assert named in told["error"]
            assert len(told["error"]) < 500

    talk(project, talking)
    assert project.snapshot() == before


def test_the_server_outlives_every_trouble_of_its_files(project: Ralph) -> None:
    project.agent("session", "init", "--change", "add-login").json  # noqa: B018
    file, tasks, away = project.session_file(), project.tasks_file, project.root / "away"

    async def talking(client: Client) -> None:
        assert await code(client, "context") == "STORY_REQUIRED"
        assert project.agent("session", "next-story").json["story_id"] == "1"
        whole = file.read_bytes()
        file.write_bytes(b"{")
        assert await code(client, "learn", text="a") == "CORRUPT_STATE"
        file.unlink()
        assert await code(client, "learn", text="a") == "SESSION_NOT_FOUND"
        file.symlink_to(away)
        assert await code(client, "learn", text="a") == "UNSAFE_PATH"
        file.unlink()
        file.write_bytes(whole)
        file.chmod(0o600)
        tasks.rename(away)
        assert await code(client, "status") == "STORY_NOT_FOUND"
        tasks.parent.rename(project.root / "elsewhere")
        assert await code(client, "status") == "CHANGE_NOT_FOUND"
        (project.root / "elsewhere").rename(tasks.parent)
        away.rename(tasks)
        assert (await ok(client, "task_done", id="1.1"))["remaining"] == ["1.2"]

    talk(project, talking)


def test_a_full_disk_is_told_and_outlived(project: Ralph) -> None:
    project.begin()
    with wired(project, largest_file=8000) as wire:
        wire.greet()
        refused = wire.ask(1, "tools/call", {"name": "learn", "arguments": {"text": "x" * 9000}})["result"]
        assert (refused["isError"], refused["structuredContent"]["code"]) == (True, "IO_ERROR")
        assert wire.ask(2, "tools/call", {"name": "learn", "arguments": {"text": "x"}})["result"]["isError"] is False
    assert [one["description"] for one in project.session()["learnings"]] == ["x"]


def test_a_bug_of_ours_ends_the_call_and_not_the_server(project: Ralph, tmp_path: Path) -> None:
    project.begin()
    (tmp_path / "sitecustomize.py").write_text(BUG)

    async def talking(client: Client) -> None:
        told = await error(client, "status")
        assert told["code"] == "INTERNAL"
        log = Path(told["error"].rpartition(" ")[2])
        assert "ZeroDivisionError" in log.read_text()
        assert (await ok(client, "learn", text="a"))["total_learnings"] == 1

    talk(project, talking, PYTHONPATH=str(tmp_path))


def test_the_environment_counts_as_for_the_commands(project: Ralph) -> None:
    project.begin()

    async def without_session(client: Client) -> None:
        for tool, arguments in (("context", {}), ("learn", {"text": "a"}), ("task_done", {"id": "1.1"})):
            told = await error(client, tool, **arguments)
            assert told["code"] == "SESSION_REQUIRED"
            assert "ralphtool run" in told["error"]

    async def in_story_2(client: Client) -> None:
        assert (await ok(client, "context"))["story"]["id"] == "2"
        assert (await ok(client, "learn", text="a"))["learning"]["story_id"] == "2"
        assert await code(client, "task_done", id="1.1") == "TASK_OUT_OF_SCOPE"

    async def in_no_story(client: Client) -> None:
        assert await code(client, "context") == "STORY_NOT_FOUND"

    talk(project, without_session, RALPH_SESSION="")
    talk(project, in_story_2, RALPH_STORY="2", RALPH_TOKEN="t")
    talk(project, in_no_story, RALPH_STORY="7")


# --- the pipes --------------------------------------------------------------------------------------


def test_garbage_is_survived_and_only_the_protocol_is_printed(project: Ralph) -> None:
    project.begin()
    with wired(project) as wire:
        wire.greet()
        for line in (
            b"garbage",
            b"",
            b"{}",
            b"[]",
            b"null",
            b"\xff\xfe\x00",
            b'{"a": ' * 9999,
            b'{"jsonrpc": "2.0", "id": 1}',
        ):
            wire.say(line)
        assert "error" in wire.ask(2, "no/such/method")
        assert "error" in wire.ask(3, "tools/call", {"arguments": {}})
        assert "error" in wire.ask(4, "tools/call", {"name": "learn", "arguments": []})
        nul = wire.ask(5, "tools/call", {"name": "learn", "arguments": {"text": "a \x00 b"}})
        assert nul["result"]["structuredContent"]["learning"]["description"] == "a \x00 b"
        assert wire.ask(6, "tools/call", {"name": "learn", "arguments": None})["result"]["isError"] is True
        assert wire.ask(7, "ping")["result"] == {}
        assert wire.end() == (0, b"", b"")


def test_it_ends_when_stdin_does(project: Ralph) -> None:
    with wired(project) as wire:
        assert wire.end() == (0, b"", b"")


def test_it_ends_when_interrupted(project: Ralph) -> None:
    with wired(project) as wire:
        wire.greet()
        wire.process.send_signal(signal.SIGINT)
        assert wire.process.wait(PATIENCE) == -signal.SIGINT


def test_a_client_that_has_gone_is_no_bug_of_ours(project: Ralph) -> None:
    with wired(project) as wire:
        wire.greet()
        wire.stdout.close()
        wire.say(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}')
        wire.stdin.close()
        assert wire.process.wait(PATIENCE) == 0
        assert wire.stderr.read() == b""


# --- without the SDK --------------------------------------------------------------------------------


def test_without_the_sdk_it_says_what_to_install(ralph: Ralph, tmp_path: Path) -> None:
    """The SDK is an extra. This file hides it from Python."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_SDK)
    done = ralph.run("mcp", PYTHONPATH=str(tmp_path))
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert build_install_command("mcp") in done.stderr
    shown = ralph.run("mcp", "--help", PYTHONPATH=str(tmp_path))
    assert shown.exit_code == 0
    assert "ralphtool mcp" in shown.stdout
