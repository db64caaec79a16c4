"""Codex: how it is started, and how its output and its record are read."""

from __future__ import annotations

import json
import os
import time
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from ralphtool import agents
from ralphtool.agents import End, Event, Failure, Job, McpServer, Message, Output, Quota, Result, Tool, Usage
from ralphtool.agents.codex import Codex, CodexReader
from ralphtool.testing.runners import check_runner

if TYPE_CHECKING:
    from pathlib import Path

THREAD = "01a1e14e-63f1-7553-8cd9-a62b3378098f"
USAGE = {"input_tokens": 3000, "cached_input_tokens": 800, "output_tokens": 150, "reasoning_output_tokens": 20}
BEGIN: list[dict[str, Any]] = [{"type": "thread.started", "thread_id": THREAD}, {"type": "turn.started"}]
LIMIT = "You’ve hit your usage limit. Visit https://chatgpt.com/settings/usage or try again at Nov 19th, 2026 9:44 AM."


def item(kind: str, number: int = 1, *, phase: str = "completed", **fields: Any) -> dict[str, Any]:
    return {"type": f"item.{phase}", "item": {"id": f"item_{number}", "type": kind, **fields}}


def said(text: str) -> dict[str, Any]:
    return item("agent_message", 9, text=text)


def read(
    home: Path | str, *lines: dict[str, Any] | bytes, errors: bytes = b"", exit_code: int = 0
) -> tuple[list[Event], End]:
    reader = CodexReader(str(home), "gpt-5.5")
    data = b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    events = [event for at in range(0, len(data), 50) for event in reader.feed(data[at : at + 50])]
    events += reader.feed_errors(errors)
    events += reader.rest()
    return events, reader.end(exit_code)


def failed(message: str) -> list[dict[str, Any]]:
    return [{"type": "error", "message": message}, {"type": "turn.failed", "error": {"message": message}}]


def write_record(home: Path, *payloads: dict[str, Any], thread: str = THREAD, padding: int = 0) -> Path:
    folder = home / "sessions" / time.strftime("%Y/%m/%d")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rollout-2026-11-15T22-22-53-{thread}.jsonl"
    lines = [json.dumps({"timestamp": "…", "type": "event_msg", "payload": payload}) for payload in payloads]
    path.write_text("x" * padding + "\n" + "\n".join(lines) + "\n")
    return path


def count(
    primary: dict[str, Any] | None = None, secondary: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    limits = {"limit_id": "codex", "primary": primary, "secondary": secondary, "plan_type": None}
    return {"type": "token_count", "info": None, "rate_limits": limits, **more}


# --- output -----------------------------------------------------------------------------------------


def test_a_turn_that_went_well(tmp_path: Path) -> None:
    command = "/bin/bash -c 'cat hello.txt'"
    events, end = read(
        tmp_path,
        *BEGIN,
        item("error", 0, message="Model metadata for `x` not found."),
        said("I will look."),
        item("command_execution", 1, phase="started", command=command, exit_code=None, status="in_progress"),
        item("command_execution", 1, command=command, aggregated_output="rate limit 429\n", exit_code=0),
        item("file_change", 2, changes=[{"path": "/p/a.py", "kind": "add"}, {"path": "/p/b.py", "kind": "update"}]),
        item("mcp_tool_call", 3, phase="started", server="ralphtool", tool="task_done", arguments={"id": "1.1"}),
        item("web_search", 4, phase="started", query=""),
        item("web_search", 4, query="msgspec"),
        item("todo_list", 5, items=[]),
        said("Done"),
        {"type": "turn.completed", "usage": USAGE},
    )
    assert events == [
        Output("Model metadata for `x` not found."),
        Message("I will look."),
        Tool("shell", "cat hello.txt"),
        Result("rate limit 429\n"),
        Tool("edit", "/p/a.py, /p/b.py"),
        Tool("ralphtool.task_done", '{"id": "1.1"}'),
        Tool("search", "msgspec"),
        Message("Done"),
        Usage(3000, 150, cached_tokens=800, model="gpt-5.5"),
    ]
    assert end == End(True, "Done", "completed")


@pytest.mark.parametrize(
    ("message", "trouble"),
    [
        ("unexpected status 401 Unauthorized: no such key, url: http://127.0.0.1:45500/v1/responses", "login"),
        ("Missing environment variable: `MY_GATEWAY`.", "login"),
        ("Your access token could not be refreshed. Please log out and sign in again.", "login"),
        ("exceeded retry limit, last status: 429 Too Many Requests", "rate-limit"),
        (LIMIT, "rate-limit"),
        ("We’re currently experiencing high demand, which may cause temporary errors.", "overload"),
        ("Selected model is at capacity. Please try a different model.", "overload"),
        ("unexpected status 529 <unknown status code>: busy, url: http://127.0.0.1:1/v1/responses", "overload"),
        ("stream disconnected before completion: Transport error: network error", "network"),
        ("Codex ran out of room in the model's context window. Start a new thread.", "context"),
        ("unexpected status 404 Not Found: no such model", "other"),
    ],
)
def test_an_error_is_told_once_by_its_kind(tmp_path: Path, message: str, trouble: str) -> None:
    events, end = read(tmp_path, *BEGIN, *failed(message), exit_code=1)
    assert [(event.trouble, event.text) for event in events if isinstance(event, Failure)] == [(trouble, message)]
    assert (end.ok, end.reason) == (False, message)


@pytest.mark.parametrize(
    ("message", "trouble"),
    [
        ("Reconnecting... 1/5", "network"),
        ("Reconnecting... 1/5 (exceeded retry limit, last status: 429 Too Many Requests)", "rate-limit"),
        ("Reconnecting... 1/5 (unexpected status 503 Service Unavailable)", "overload"),
        ("No reconnecting here", "other"),
    ],
)
def test_a_retry_has_the_trouble_that_it_tells(tmp_path: Path, message: str, trouble: str) -> None:
    events, _ = read(tmp_path, *BEGIN, {"type": "error", "message": message})
    assert [event.trouble for event in events if isinstance(event, Failure)] == [trouble]


def test_what_it_thinks_is_shown_and_is_not_its_last_word(tmp_path: Path) -> None:
    thought = {"type": "item.completed", "item": {"id": "item_7", "type": "reasoning", "text": "**Looking around**"}}
    odd = {"type": "item.completed", "item": {"id": "item_8", "type": "reasoning", "text": None}}
    events, end = read(tmp_path, *BEGIN, said("Done"), thought, odd, {"type": "turn.completed", "usage": USAGE})
    assert [event.text for event in events if isinstance(event, Message)] == ["Done", "**Looking around**"]
    assert end.message == "Done"


def test_every_retry_is_a_failure_and_success_stays_one(tmp_path: Path) -> None:
    waiting = {"type": "error", "message": "Reconnecting... waiting for network (Connection failed)"}
    events, end = read(tmp_path, *BEGIN, waiting, waiting, said("Done"), {"type": "turn.completed", "usage": USAGE})
    assert [event.trouble for event in events if isinstance(event, Failure)] == ["network", "network"]
    assert end.ok


@pytest.mark.parametrize("exit_code", [0, 1, -15])
def test_without_a_terminal_event_nothing_is_done(tmp_path: Path, exit_code: int) -> None:
    _, end = read(tmp_path, *BEGIN, said("Done"), errors=b"Reading prompt from stdin...\n", exit_code=exit_code)
    assert not end.ok
    assert end.reason.startswith("ended without a final event")
    assert "Reading prompt" not in end.reason


def test_why_it_did_not_begin_is_told_and_not_the_backtrace(tmp_path: Path) -> None:
    errors = b"Error: Model provider `nope` not found\n\nStack backtrace:\n   0: <unknown>\n"
    _, end = read(tmp_path, errors=errors, exit_code=1)
    assert end.reason.endswith("Error: Model provider `nope` not found")


def test_its_terminal_event_counts_and_not_its_exit_code(tmp_path: Path) -> None:
    done = {"type": "turn.completed", "usage": USAGE}
    assert read(tmp_path, *BEGIN, said("Done"), done, exit_code=1)[1].ok
    assert not read(tmp_path, *BEGIN, said("Done"), *failed("no"), exit_code=0)[1].ok


def test_odd_values_lose_neither_the_message_nor_the_end(tmp_path: Path) -> None:
    odd = {"id": 7, "type": "agent_message", "text": "Done", "message": ["?"], "changes": 5, "command": {}}
    events, end = read(
        tmp_path,
        *BEGIN,
        b"no JSON at all",
        item("command_execution", 1, command="/bin/bash -c 'it is"),
        item("file_change", 2, changes=["?", {"kind": "add"}]),
        {"type": "item.completed", "item": odd},
        {"type": "turn.completed", "usage": {"input_tokens": "many", "output_tokens": 5}},
    )
    assert events == [
        Tool("shell", "/bin/bash -c 'it is"),
        Result(""),
        Tool("edit"),
        Message("Done"),
        Usage(output_tokens=5, model="gpt-5.5"),
    ]
    assert end.ok
    assert read(tmp_path, {"type": "turn.failed", "error": 7})[1] == End(False, "", "7")


def mcp(**more: Any) -> dict[str, Any]:
    return item("mcp_tool_call", 1, server="s", tool="t", arguments={}, **more)


@pytest.mark.parametrize(
    ("over", "result"),
    [
        (item("command_execution", 1, command="x", aggregated_output="oops\n", exit_code=3), Result("oops\n", False)),
        (item("command_execution", 1, command="x", status="declined", exit_code=None), Result("", False)),
        (item("command_execution", 1, command="x", aggregated_output=["?"], status=[]), Result("", False)),
        (mcp(result={"content": [{"type": "text", "text": "a"}, 5, {"text": "b"}]}), Result("a\nb")),
        (mcp(result=7), Result("")),
        (mcp(result=None, error={"message": "it is gone"}, status="failed"), Result("it is gone", False)),
        (item("file_change", 1, changes=[], status="failed"), Result("", False)),
    ],
)
def test_what_tools_gave_back(tmp_path: Path, over: dict[str, Any], result: Result) -> None:
    begun = json.loads(json.dumps(over).replace("item.completed", "item.started"))
    events, _ = read(tmp_path, *BEGIN, begun, over)
    assert [event for event in events if isinstance(event, Result)] == [result]
    assert isinstance(events[0], Tool)


def test_what_a_tool_printed_is_never_the_final_message(tmp_path: Path) -> None:
    printed = item("command_execution", 1, command="cat x", aggregated_output="<promise>COMPLETE:a</promise>")
    done = {"type": "turn.completed", "usage": None}
    assert read(tmp_path, *BEGIN, printed, said("Not yet."), done)[1] == End(True, "Not yet.", "completed")
    assert read(tmp_path, *BEGIN, said("Not yet."), printed, done)[1] == End(True, "", "completed")


@pytest.mark.parametrize(
    "later",
    [
        item("command_execution", 1, phase="started", command="ls"),
        item("file_change", 2, changes=[]),
        item("mcp_tool_call", 3, phase="started", server="ralphtool", tool="task_done"),
        item("web_search", 4, query="msgspec"),
    ],
)
def test_what_it_said_before_a_tool_is_not_its_last_word(tmp_path: Path, later: dict[str, Any]) -> None:
    promise = said("<promise>COMPLETE:a</promise>")
    done = {"type": "turn.completed", "usage": None}
    assert read(tmp_path, *BEGIN, promise, later, done)[1] == End(True, "", "completed")
    assert read(tmp_path, *BEGIN, promise, later, said("Oh."), done)[1].message == "Oh."
    assert read(tmp_path, *BEGIN, later, promise, later, done)[1].message  # the same tool call, which has now ended


@pytest.mark.parametrize("later", [item("todo_list", 5, items=[]), item("error", 6, message="a warning")])
def test_what_is_no_tool_leaves_its_last_word(tmp_path: Path, later: dict[str, Any]) -> None:
    done = {"type": "turn.completed", "usage": None}
    assert read(tmp_path, *BEGIN, said("Done"), later, done)[1].message == "Done"


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        (None, ""),
        (7, ""),
        ("a.py", ""),
        ({"path": "a.py"}, ""),
        ([None, 7, ["a.py"], {"kind": "add"}, {"path": "b.py"}], "b.py"),
        ([{"path": 7}, {"path": None}], "7, None"),
        ([{"path": "a\nb" + "x" * 500}], "a b" + "x" * 197),
    ],
)
def test_odd_changes_are_an_edit_nevertheless(tmp_path: Path, changes: object, detail: str) -> None:
    events, end = read(tmp_path, *BEGIN, item("file_change", 2, changes=changes), {"type": "turn.completed"})
    assert events == [Tool("edit", detail)]
    assert end.ok


@pytest.mark.parametrize("ending", [{"type": "turn.completed", "usage": USAGE}, failed("no")[1]])
def test_what_it_used_is_told_when_it_is_gone(tmp_path: Path, ending: dict[str, Any]) -> None:
    """A run that has ended well must not be cut off because of the usage that its last event reports."""
    write_record(tmp_path, count(info={"total_token_usage": USAGE}))
    reader = CodexReader(str(tmp_path))
    lines = [*BEGIN, said("Done"), ending]
    fed = [event for line in lines for event in reader.feed(json.dumps(line).encode() + b"\n")]
    assert not [event for event in fed if isinstance(event, Usage)]
    assert reader.is_over
    assert [*reader.rest()] == [Usage(3000, 150, cached_tokens=800)]


def test_a_long_command_is_one_short_line(tmp_path: Path) -> None:
    events, _ = read(tmp_path, *BEGIN, item("command_execution", 1, command="cat <<E\n" + "line of text\n" * 90_000))
    tool, result = events
    assert isinstance(tool, Tool)
    assert result == Result("")
    assert len(tool.detail) <= 200
    assert "\n" not in tool.detail


def test_it_keeps_the_contract_of_a_runner(tmp_path: Path) -> None:
    lines = [*BEGIN, said("Done"), {"type": "turn.completed", "usage": USAGE}]
    recording = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    runner = Codex("codex", {"env": {"CODEX_HOME": str(tmp_path / "home")}})
    check_runner(runner, str(tmp_path / "work"), recording)
    assert not (tmp_path / "home").exists()


# --- its record -------------------------------------------------------------------------------------


def test_the_quota_comes_from_its_record(tmp_path: Path) -> None:
    primary = {"used_percent": 37.0, "window_minutes": 300, "resets_at": 1794785714}
    secondary = {"used_percent": 91.5, "window_minutes": 10080, "resets_at": None}
    write_record(tmp_path, count(), count(primary, secondary), {"type": "task_complete"}, padding=1 << 20)
    events, _ = read(tmp_path, *BEGIN, said("Done"), {"type": "turn.completed", "usage": USAGE})
    assert events[2:] == [Quota(0.37, 1794785714, "5 hours"), Quota(0.915, None, "7 days")]


def test_a_failed_turn_has_used_tokens_too_and_none_is_counted_twice(tmp_path: Path) -> None:
    write_record(tmp_path, count(info={"total_token_usage": USAGE, "last_token_usage": {"input_tokens": 7}}))
    used = Usage(3000, 150, cached_tokens=800, model="gpt-5.5")
    events, _ = read(tmp_path, *BEGIN, *failed("unexpected status 500"), exit_code=1)
    assert used in events
    events, _ = read(tmp_path, *BEGIN, {"type": "turn.completed", "usage": USAGE})
    assert events == [used]


def test_a_limit_that_is_reached_tells_its_moment_to_the_second(tmp_path: Path) -> None:
    moment = int(time.time()) + 3 * 86_400
    weekly = {"used_percent": 100.0, "window_minutes": 10080, "resets_at": moment}
    write_record(tmp_path, count({"used_percent": 100.0, "window_minutes": 300, "resets_at": 1794785714}, weekly))
    events, _ = read(tmp_path, *BEGIN, *failed(LIMIT), exit_code=1)
    last = events[-1]
    assert isinstance(last, Failure)
    assert (last.trouble, last.reset_at) == ("rate-limit", moment)


def test_a_limit_that_is_just_reached_is_no_failure_of_a_turn_that_went_well(tmp_path: Path) -> None:
    write_record(tmp_path, count({"used_percent": 100.0, "window_minutes": 300, "resets_at": 1794785714}))
    retried = {"type": "error", "message": "Reconnecting... 1/5 (unexpected status 429)"}
    events, _ = read(tmp_path, *BEGIN, retried, said("Done"), {"type": "turn.completed", "usage": USAGE})
    assert not isinstance(events[-1], Failure)


def test_only_the_record_of_its_own_thread_is_read(tmp_path: Path) -> None:
    write_record(tmp_path, count({"used_percent": 50.0}), thread="01a1e14e-0000-7553-8cd9-a62b3378098f")
    assert read(tmp_path, *BEGIN)[0] == []
    assert read(tmp_path, {"type": "turn.started"})[0] == []


def test_whatever_lies_in_place_of_the_record_hinders_nobody(tmp_path: Path) -> None:
    path = write_record(tmp_path)
    path.write_bytes(
        b'{"type": "event_msg", "payload": {"type": "token_count", "rate_limits": 7}}\n\xff\n' + b"[" * 100
    )
    assert read(tmp_path, *BEGIN)[0] == []
    path.unlink()
    os.mkfifo(path)
    assert read(tmp_path, *BEGIN)[0] == []
    path.unlink()
    path.mkdir()
    assert read(tmp_path, *BEGIN)[0] == []


# --- start ------------------------------------------------------------------------------------------


def pairs(argv: tuple[str, ...], option: str) -> list[str]:
    return [argv[at + 1] for at, word in enumerate(argv) if word == option]


def test_it_may_edit_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    folder = tmp_path / "project" / ".ralph" / "runs" / "r" / "001"
    for path in (folder, tmp_path / "ralph"):
        path.mkdir(parents=True)
    runner = Codex("codex", {"model": "gpt-5.5", "args": ["--search"], "env": {"A": "b"}})
    start = runner.start(Job(prompt="/p/prompt.md", root="/w", folder=str(folder)))
    assert start.argv[:4] == ("codex", "exec", "--json", "--skip-git-repo-check")
    assert pairs(start.argv, "--sandbox") == ["workspace-write"]
    writable = [word.partition("=")[2] for word in start.argv if word.startswith("--add-dir=")]
    assert writable == [str(tmp_path / "project" / ".ralph"), str(tmp_path / "ralph")]
    assert pairs(start.argv, "--model") == ["gpt-5.5"]
    assert "allow_login_shell=false" in pairs(start.argv, "-c")
    assert start.argv[-1] == "--search"
    assert (start.stdin, start.env) == ("/p/prompt.md", {"A": "b"})


def test_read_only_wins_over_all_permissions() -> None:
    runner = Codex("codex", {"permissions": "all"})
    bypass = "--dangerously-bypass-approvals-and-sandbox"
    everything = runner.start(Job(prompt="p", root="/w")).argv
    assert bypass in everything
    assert "--sandbox" not in everything
    reading = runner.start(Job(prompt="p", root="/w", read_only=True)).argv
    assert pairs(reading, "--sandbox") == ["read-only"]
    assert bypass not in reading


def test_who_drafts_may_write_into_one_folder_only() -> None:
    args = ["-c", 'sandbox_workspace_write.writable_roots=["/"]', "--add-dir", "/"]
    runner = Codex("codex", {"permissions": "all", "args": args})
    argv = runner.start(Job(prompt="p", root="/w", read_only=True, draft="/w/draft")).argv
    assert (pairs(argv, "--sandbox"), pairs(argv, "--cd")) == (["workspace-write"], ["/w/draft"])
    assert not {"--add-dir", "--dangerously-bypass-approvals-and-sandbox"} & set(argv)
    roots = [value for value in pairs(argv, "-c") if value.startswith("sandbox_workspace_write")]
    assert sorted(roots) == [
        "sandbox_workspace_write.exclude_slash_tmp=true",
        "sandbox_workspace_write.exclude_tmpdir_env_var=true",
        "sandbox_workspace_write.writable_roots=[]",
    ]


@pytest.mark.parametrize(
    ("args", "kept"),
    [
        (["--search", "--add-dir", "/", "--dangerously-bypass-approvals-and-sandbox"], []),
        (["-c", "model_provider=mine", "--yolo"], ["-c", "model_provider=mine"]),
        (["--full-auto", "-m", "gpt-5.5", "--profile", "work"], ["-m", "gpt-5.5", "--profile", "work"]),
        (["-c", "sandbox_mode=danger-full-access", "--config", "a=b"], ["--config", "a=b"]),
        (["-c", "approval_policy=never", "-c", "mcp_servers.x.command=y"], []),
        (["-c", "sandbox_workspace_write.network_access=true", "-s", "danger-full-access"], []),
        (["--sandbox", "danger-full-access", "-c"], []),
        (["-c", "a=b", "-c", "c=d"], ["-c", "a=b", "-c", "c=d"]),
    ],
)
def test_of_the_users_arguments_only_the_harmless_ones_are_left_to_who_only_looks(
    args: list[str], kept: list[str]
) -> None:
    runner = Codex("codex", {"permissions": "all", "args": args})
    plain = Codex("codex", {}).start(Job(prompt="p", root="/w", read_only=True)).argv
    assert runner.start(Job(prompt="p", root="/w", read_only=True)).argv == (*plain, *kept)
    assert runner.start(Job(prompt="p", root="/w")).argv[-len(args) :] == tuple(args)


def test_our_mcp_server_is_one_more_setting() -> None:
    server = McpServer(("/a b/ralphtool", "mcp"), {"RALPH_SESSION": 'a"b\\c', "HOME": "/home/é😀\x7f"})
    start = Codex("codex", {}).start(Job(prompt="p", root="/w", mcp=server))
    setting = next(one for one in pairs(start.argv, "-c") if one.startswith("mcp_servers.ralphtool="))
    assert tomllib.loads(setting)["mcp_servers"]["ralphtool"] == {
        "command": "/a b/ralphtool",
        "args": ["mcp"],
        "env": server.env,
        "default_tools_approval_mode": "approve",
    }


def test_its_notices_say_what_is_allowed() -> None:
    careful, bold = Codex("codex", {}), agents.make("big", {"kind": "codex", "permissions": "all"})
    assert "sandbox" in careful.traits.notices[0]
    assert "any command" in bold.traits.notices[0]
    assert (careful.traits.cost, careful.traits.read_only, careful.traits.mcp) == ("tokens", True, True)


def test_the_record_is_looked_for_where_the_program_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_record(tmp_path / "own", count({"used_percent": 50.0}))
    write_record(tmp_path / "home" / ".codex", count({"used_percent": 60.0}))
    monkeypatch.delenv("CODEX_HOME", raising=False)
    for env, used in (({"CODEX_HOME": str(tmp_path / "own")}, 0.5), ({"HOME": str(tmp_path / "home")}, 0.6)):
        reader = Codex("codex", {"env": env}).reader(Job(prompt="p", root="/w"))
        assert [*reader.feed(json.dumps(BEGIN[0]).encode() + b"\n")] == []
        assert [*reader.rest()] == [Quota(used)]
