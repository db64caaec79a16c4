"""opencode: how it is started, and what its events and its log mean. The lines are the program's own, shortened."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from ralphtool.agents import Event, Failure, Job, McpServer, Message, Result, Tool, Usage, make
from ralphtool.agents.opencode import OpenCode, OpenCodeReader
from ralphtool.errors import InvalidValue
from ralphtool.testing import Request, Say, Silence, script

if TYPE_CHECKING:
    from pathlib import Path

CONTENT = "OPENCODE_CONFIG_CONTENT"
TOKENS = {"total": 1050, "input": 100, "output": 40, "reasoning": 10, "cache": {"write": 200, "read": 700}}
NO_TOKENS = {"input": 0, "output": 0, "reasoning": 0, "cache": {"write": 0, "read": 0}}
LIMIT = "Rate limit reached for requests per min (RPM): Limit 3, Used 3."
LOG = (
    'timestamp=2026-11-15T22:24:45.277Z level=ERROR run=1f17864d message="stream error" providerID=openai modelID=x '
    "session.id=ses_1 small={small} agent=build mode=primary error.error={error}\n"
)


def line(kind: str, **more: Any) -> bytes:
    return json.dumps({"type": kind, "timestamp": 1794781454458, "sessionID": "ses_1", **more}).encode() + b"\n"


def start(message: str = "msg_1") -> bytes:
    return line("step_start", part={"id": "prt_1", "messageID": message, "type": "step-start"})


def text(words: str, message: str = "msg_1", **more: Any) -> bytes:
    return line("text", part={"id": "prt_2", "messageID": message, "type": "text", "text": words, **more})


def tool(name: str, given: dict[str, Any], message: str = "msg_1") -> bytes:
    state = {"status": "completed", "input": given, "output": "<promise>no</promise>", "title": "a title"}
    return line("tool_use", part={"type": "tool", "tool": name, "messageID": message, "state": state})


def finish(reason: str = "stop", message: str = "msg_1", tokens: object = TOKENS, cost: object = 0.25) -> bytes:
    part = {"id": "prt_3", "reason": reason, "messageID": message, "type": "step-finish"}
    return line("step_finish", part=part | {"tokens": tokens, "cost": cost})


def error(name: str, message: str, **more: Any) -> bytes:
    return line("error", error={"name": name, "data": {"message": message, **more}})


def logged(words: str, *, small: bool = False) -> bytes:
    return LOG.format(small=str(small).lower(), error=json.dumps(f"AI_APICallError: {words}")).encode()


def read(*lines: bytes) -> tuple[OpenCodeReader, list[Event]]:
    reader = OpenCodeReader()
    events = [event for one in lines for event in reader.feed(one)]
    return reader, [*events, *reader.rest()]


def failures(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.trouble, event.text) for event in events if isinstance(event, Failure)]


# --- start ------------------------------------------------------------------------------------------


def job(folder: Path, **more: Any) -> Job:
    return Job(prompt=str(folder / "prompt.md"), root=str(folder), folder=str(folder), **more)


def config(runner: OpenCode, one: Job) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(runner.start(one).env[CONTENT])
    return made


@pytest.fixture(autouse=True)
def no_content(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CONTENT, raising=False)


def test_the_prompt_comes_by_stdin_and_the_place_by_name(tmp_path: Path) -> None:
    runner = make("opencode", {"model": "openai/x", "args": ["--variant", "high"], "env": {"A": "b"}})
    made = runner.start(job(tmp_path))
    assert isinstance(runner, OpenCode)
    assert made.stdin == str(tmp_path / "prompt.md")
    assert made.argv[:4] == ("opencode", "run", "--format", "json")
    assert made.argv[made.argv.index("--dir") + 1] == str(tmp_path)
    assert made.argv[made.argv.index("--model") + 1] == "openai/x"
    assert made.argv[-2:] == ("--variant", "high")
    assert made.env["A"] == "b"


def test_unless_all_is_permitted_it_runs_our_commands_only(tmp_path: Path) -> None:
    runner = OpenCode("opencode", {})
    rules = config(runner, job(tmp_path))["permission"]
    assert rules["edit"] == "allow"
    assert list(rules["bash"].items()) == [
        ("*", "deny"),
        ("ralphtool agent *", "allow"),
        ("ralphtool agent *>*", "deny"),
        ("ralphtool agent *`*", "deny"),
        ("ralphtool agent *$(*", "deny"),
        ("ralphtool agent *${*", "deny"),
    ]
    assert "--auto" not in runner.start(job(tmp_path)).argv
    assert "no other command" in runner.traits.notices[0]


def test_with_our_server_it_needs_no_command_at_all(tmp_path: Path) -> None:
    server = McpServer(("ralphtool", "mcp"), {})
    rules = config(OpenCode("opencode", {}), job(tmp_path, mcp=server))["permission"]
    assert (rules["bash"], rules["edit"], rules["ralphtool_*"]) == ("deny", "allow", "allow")
    assert "permission" not in config(OpenCode("opencode", {"permissions": "all"}), job(tmp_path, mcp=server))


@pytest.mark.parametrize(
    ("permissions", "read_only", "is_closed"),
    [("edit", False, True), ("edit", True, True), ("all", True, True), ("all", False, False)],
)
def test_unless_all_is_permitted_the_project_has_no_say(
    tmp_path: Path, permissions: str, read_only: bool, is_closed: bool
) -> None:
    """Not even if the user's own table allows it: those rules would take precedence over ours."""
    theirs = {"OPENCODE_DISABLE_PROJECT_CONFIG": "0", "OPENCODE_PERMISSION": '{"*": "allow"}'}
    runner = OpenCode("opencode", {"permissions": permissions, "env": theirs})
    env = runner.start(job(tmp_path, read_only=read_only)).env
    closed = {"OPENCODE_DISABLE_PROJECT_CONFIG": "1", "OPENCODE_PERMISSION": ""}
    assert {name: env[name] for name in closed} == (closed if is_closed else theirs)
    plain = OpenCode("opencode", {"permissions": permissions}).start(job(tmp_path, read_only=read_only)).env
    assert (closed.items() <= plain.items()) == is_closed
    assert is_closed or not closed.keys() & plain.keys()


def test_when_all_is_permitted_the_users_own_rules_are_left_alone(tmp_path: Path) -> None:
    runner = OpenCode("opencode", {"permissions": "all"})
    assert "--auto" in runner.start(job(tmp_path)).argv
    assert "permission" not in config(runner, job(tmp_path))


@pytest.mark.parametrize("args", [["--agent", "mine"], ["--agent=mine"], ["--agent"]])
def test_who_only_looks_is_an_agent_of_its_own_whatever_was_asked_for(tmp_path: Path, args: list[str]) -> None:
    runner = OpenCode("opencode", {"permissions": "all", "args": ["--pure", *args]})
    one = job(tmp_path, read_only=True)
    argv = runner.start(one).argv
    rules = config(runner, one)["agent"]["ralphtool-reader"]["permission"]
    assert argv[-3:] == ("--pure", "--agent", "ralphtool-reader")
    assert "--auto" not in argv
    assert next(iter(rules.items())) == ("*", "deny")
    assert not {"edit", "bash", "task"} & rules.keys()
    assert "mine" in OpenCode("opencode", {"args": ["--agent", "mine"]}).start(job(tmp_path)).argv


def test_who_drafts_may_write_into_one_folder_only(tmp_path: Path) -> None:
    one = job(tmp_path, read_only=True, draft="/w/.ralph/runs/r-1a2b/draft")
    rules = config(OpenCode("opencode", {"permissions": "all"}), one)["agent"]["ralphtool-reader"]["permission"]
    only = {"*": "deny", "*runs/r-1a2b/draft/*": "allow"}
    assert (rules["edit"], rules["external_directory"], rules["*"]) == (only, only, "deny")
    assert not {"bash", "task"} & rules.keys()


def test_our_server_comes_beside_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        CONTENT, '{"model": "a/b", "mcp": {"theirs": {"type": "remote"}}, "permission": {"edit": "ask"}}'
    )
    made = config(OpenCode("opencode", {}), job(tmp_path, mcp=McpServer(("ralphtool", "mcp"), {"RALPH_SESSION": "s"})))
    assert made["model"] == "a/b"
    assert made["mcp"]["theirs"] == {"type": "remote"}
    assert made["mcp"]["ralphtool"]["command"] == ["ralphtool", "mcp"]
    assert made["mcp"]["ralphtool"]["environment"] == {"RALPH_SESSION": "s"}
    assert made["permission"]["edit"] == "allow"


def test_the_configured_content_comes_before_the_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CONTENT, '{"model": "a/b"}')
    assert config(OpenCode("opencode", {"env": {CONTENT: '{"model": "c/d"}'}}), job(tmp_path))["model"] == "c/d"


@pytest.mark.parametrize("content", ["{", "[]", "3"])
def test_a_content_that_we_cant_add_to_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(InvalidValue, match=CONTENT):
        OpenCode("opencode", {"env": {CONTENT: content}}).start(job(tmp_path))


# --- output -----------------------------------------------------------------------------------------


def test_a_run_from_its_first_step_to_its_last() -> None:
    reader, events = read(
        start("msg_1"),
        text("I look.", "msg_1"),
        tool("bash", {"command": "make\n  test", "description": "tests"}, "msg_1"),
        finish("tool-calls", "msg_1"),
        start("msg_2"),
        tool("write", {"filePath": "/p/a.py", "content": "x"}, "msg_2"),
        finish("tool-calls", "msg_2"),
        start("msg_3"),
        text("All done.", "msg_3"),
        text("Really.", "msg_3"),
        finish("stop", "msg_3"),
    )
    used = Usage(1000, 50, 0.25, 700)
    assert events == [
        Message("I look."),
        Tool("bash", "make test"),
        Result("<promise>no</promise>"),
        used,
        Tool("write", "/p/a.py"),
        Result("<promise>no</promise>"),
        used,
        Message("All done."),
        Message("Really."),
        used,
    ]
    end = reader.end(0)
    assert (end.ok, end.message) == (True, "All done.\nReally.")


@pytest.mark.parametrize(
    ("state", "result"),
    [
        (
            {"status": "completed", "output": "oops\n", "metadata": {"exit": 3, "output": "oops\n"}},
            Result("oops\n", False),
        ),
        ({"status": "completed", "output": "fine", "metadata": {"exit": "?"}}, Result("fine")),
        ({"status": "error", "error": "The user rejected that"}, Result("The user rejected that", False)),
        ({"status": 7, "output": {}, "metadata": 5}, Result("")),
    ],
)
def test_what_tools_gave_back(state: dict[str, Any], result: Result) -> None:
    assert read(line("tool_use", part={"tool": "bash", "state": state}))[1] == [Tool("bash"), result]


def test_a_cost_of_nothing_is_an_unknown_one() -> None:
    _, events = read(finish(cost=0))
    assert events == [Usage(1000, 50, None, 700)]


@pytest.mark.parametrize("odd", [finish(tokens=None, cost=None), line("step_finish", part={"reason": "stop"})])
def test_what_a_step_does_not_tell_takes_nothing_from_its_end(odd: bytes) -> None:
    reader, events = read(text("Done."), odd)
    assert events == [Message("Done."), Usage()]
    assert reader.end(0).ok


def test_the_message_is_the_last_steps_alone() -> None:
    reader, _ = read(text("<promise>", "msg_1"), finish("tool-calls", "msg_1"), start("msg_2"), finish("stop", "msg_2"))
    end = reader.end(0)
    assert (end.ok, end.message) == (True, "")


def test_it_is_over_with_a_stop_until_a_new_step_begins() -> None:
    reader = OpenCodeReader()
    seen = []
    for one in (
        start(),
        text("x"),
        finish("tool-calls"),
        start("msg_2"),
        finish(),
        text("y"),
        start("msg_3"),
        finish(),
    ):
        list(reader.feed(one))
        seen.append(reader.is_over)
    assert seen == [False, False, False, False, True, True, False, True]


@pytest.mark.parametrize(("reason", "code"), [("tool-calls", 0), ("length", 0), ("stop", 1), ("stop", -9)])
def test_another_end_is_no_success(reason: str, code: int) -> None:
    reader, _ = read(text("Done."), finish(reason))
    reader.feed_errors(b"! permission requested: bash (ls); auto-rejecting\n")
    end = reader.end(code)
    assert not end.ok
    assert all(word in end.reason for word in (reason, str(code), "auto-rejecting"))


def test_nothing_at_all_is_no_success() -> None:
    reader, events = read(b"", b"no JSON\n", line("session", part={}), start())
    reader.feed_errors(b"Configuration is invalid\n")
    assert events == []
    end = reader.end(0)
    assert not end.ok
    assert "Configuration is invalid" in end.reason


# --- errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "trouble"), [(401, "login"), (429, "rate-limit"), (500, "overload"), (400, "other")]
)
def test_an_error_is_known_by_its_status(status: int, trouble: str) -> None:
    reader, events = read(error("APIError", "some words", statusCode=status, isRetryable=False))
    assert failures(events) == [(trouble, "some words")]
    end = reader.end(1)
    assert (end.ok, end.reason) == (False, "some words")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "90000", "retry-after": "1"}, 90),
        ({"retry-after": "120"}, 120),
        ({"retry-after-ms": None, "retry-after": "120"}, 120),
    ],
)
def test_when_it_goes_on_is_told_by_the_headers(headers: dict[str, Any], seconds: float) -> None:
    _, events = read(error("APIError", "slow down", statusCode=429, responseHeaders=headers))
    assert isinstance(events[0], Failure)
    assert events[0].reset_at == pytest.approx(time.time() + seconds, abs=30)


def test_an_odd_header_takes_nothing_from_the_error() -> None:
    _, events = read(error("APIError", "slow down", statusCode=429, responseHeaders={"retry-after": "soon"}))
    assert events == [Failure("rate-limit", "slow down")]


def test_an_overflow_is_about_the_context_whatever_its_words() -> None:
    reader, events = read(error("ContextOverflowError", "the server returned 500"))
    assert failures(events) == [("context", "the server returned 500")]
    assert not reader.end(1).ok


def test_an_overflow_that_it_got_over_is_none() -> None:
    reader, events = read(
        error("ContextOverflowError", "too much"),
        start("msg_2"),
        text("A summary with a <promise>.", "msg_2"),
        finish("stop", "msg_2"),
        text("Continue if you have next steps.", "msg_3", synthetic=True, metadata={"compaction_continue": True}),
        start("msg_4"),
        text("Done.", "msg_4"),
        finish("stop", "msg_4"),
    )
    assert Message("Continue if you have next steps.") not in events
    end = reader.end(1)
    assert (end.ok, end.message) == (True, "Done.")


def test_an_answer_without_an_end_is_a_broken_connection() -> None:
    reader, events = read(start(), text("I was about"), finish("unknown", tokens=NO_TOKENS, cost=0))
    assert [one.trouble for one in events if isinstance(one, Failure)] == ["network"]
    assert events[-1] == Failure("network", reader.end(0).reason)
    assert not reader.end(0).ok


def test_a_step_that_begins_again_is_a_broken_connection() -> None:
    reader, events = read(start("msg_1"), start("msg_1"), text("Done."), finish("stop", "msg_1"), start("msg_1"))
    assert [one.trouble for one in events if isinstance(one, Failure)] == ["network"]
    assert reader.end(0).ok


def test_what_it_tries_again_is_told_by_its_log() -> None:
    reader = OpenCodeReader()
    data = logged(LIMIT) + logged('odd "words"') + logged('odd "words"')
    events = [event for at in range(0, len(data), 50) for event in reader.feed_errors(data[at : at + 50])]
    assert failures(events) == [("rate-limit", LIMIT), ("other", 'odd "words"'), ("overload", 'odd "words"')]


def test_an_unquoted_or_broken_error_of_the_log_is_read_too() -> None:
    reader = OpenCodeReader()
    assert failures([*reader.feed_errors(LOG.format(small="false", error="Overloaded").encode())]) == [
        ("overload", "Overloaded")
    ]
    assert failures([*reader.feed_errors(LOG.format(small="false", error='"a \\q b"').encode())])[0][1] == r"a \q b"


@pytest.mark.parametrize(
    "other",
    [
        logged(LIMIT, small=True),
        b'level=ERROR message=process error="' + LIMIT.encode() + b'" stack="AI_APICallError"\n',
        b"rate limit 429\n",
    ],
)
def test_nothing_else_of_the_log_is_an_error(other: bytes) -> None:
    assert list(OpenCodeReader().feed_errors(other)) == []


def test_a_log_without_line_ends_fills_no_memory() -> None:
    reader = OpenCodeReader()
    for _ in range(64):
        assert list(reader.feed_errors(b"x" * (1 << 16))) == []
        assert len(reader._log) <= 1 << 17
    assert failures([*reader.feed_errors(b"\n" + logged(LIMIT))]) == [("rate-limit", LIMIT)]


def test_an_error_that_was_told_as_an_event_is_not_told_again_by_its_words() -> None:
    reader, _ = read(error("APIError", "Sorry about that!", statusCode=500))
    assert list(reader.feed_errors(logged("Sorry about that!"))) == []


def test_a_fault_of_its_own_is_no_trouble_of_the_server() -> None:
    told = error("UnknownError", "Unexpected server error. Check server logs for details.", ref="err_1")
    fault = b'level=ERROR message=failed ref=err_1 error="ModelNotFoundError: Model not found: a/b." cause="x"\n'
    reader = OpenCodeReader()
    events = [*reader.feed_errors(fault), *reader.feed(told)]
    assert failures(events) == [("other", "ModelNotFoundError: Model not found: a/b.")]
    assert reader.end(1).reason == "ModelNotFoundError: Model not found: a/b."
    _, events = read(error("UnknownError", "500 Internal Server Error", ref="err_1"))
    assert [one.trouble for one in events if isinstance(one, Failure)] == ["other"]


# --- requests besides the work ----------------------------------------------------------------------


def test_a_title_takes_no_turn_of_a_script() -> None:
    choose = script(Silence(times=1), Say("Done"))
    title = Request(dialect="chat", system="You are a title generator. You output ONLY a title.", prompt="do", step=0)
    work = Request(dialect="chat", system="You generate titles of pages.", prompt="do", step=0, tools=("bash",))
    assert choose(title) == Say("A title")
    assert choose(work) == Silence(times=1)
    assert choose(title) == Say("A title")
    assert choose(work) == Say("Done")
