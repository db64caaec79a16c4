"""Gemini CLI: how it is started, and what its lines mean. The lines are those of version 0.61.0, shortened."""

from __future__ import annotations

import json
import os
import re
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ralphtool.agents import End, Event, Failure, Job, McpServer, Message, Result, Start, Tool, Usage, gemini, make
from ralphtool.agents.gemini import Gemini, GeminiReader
from ralphtool.errors import InvalidValue

INIT = '{"type":"init","timestamp":"2026-11-15T22:25:57.351Z","session_id":"c421","model":"gemini-2.5-pro"}'
PROMPT = '{"type":"message","role":"user","content":"do it <promise>COMPLETE:aa</promise>"}'
WRITE = (
    '{"type":"tool_use","tool_name":"write_file","tool_id":"write_file__1",'
    '"parameters":{"file_path":"/project/hello.txt","content":"hi\\n"}}'
)
WRITTEN = '{"type":"tool_result","tool_id":"write_file__1","status":"success","output":"<promise>no</promise>"}'
STATS = {"total_tokens": 3170, "input_tokens": 3000, "output_tokens": 150, "cached": 200, "input": 2800}
WELL = json.dumps({"type": "result", "status": "success", "stats": {**STATS, "models": {"gemini-2.5-pro": STATS}}})
QUOTA = "Please wait and try again later. To increase your limits, request a quota increase through AI Studio"


def said(text: str) -> str:
    return json.dumps({"type": "message", "role": "assistant", "content": text, "delta": True})


def badly(message: str) -> str:
    return json.dumps({"type": "result", "status": "error", "error": {"type": "unknown", "message": message}})


def read(*lines: str, errors: str = "", exit_code: int = 0) -> tuple[list[Event], End]:
    reader = GeminiReader()
    events = [*reader.feed_errors(errors.encode()), *reader.feed("".join(f"{line}\n" for line in lines).encode())]
    return [*events, *reader.rest()], reader.end(exit_code)


# --- output -----------------------------------------------------------------------------------------


def test_a_run_that_ends_well() -> None:
    events, end = read(INIT, PROMPT, said("I "), said("write."), WRITE, WRITTEN, said("Done "), said("<p>"), WELL)
    assert events == [
        Message("I write."),
        Tool("write_file", "/project/hello.txt"),
        Result("<promise>no</promise>"),
        Message("Done <p>"),
        Usage(3000, 170, cached_tokens=200, model="gemini-2.5-pro"),
    ]
    assert end == End(True, "Done <p>", "success")


def test_it_does_not_matter_where_the_output_is_cut() -> None:
    reader = GeminiReader()
    data = "".join(f"{line}\n" for line in (INIT, WRITE, WRITTEN, said("Done."), WELL)).encode()
    events = [event for byte in data for event in reader.feed(bytes([byte]))] + [*reader.rest()]
    assert [type(event) for event in events] == [Tool, Result, Message, Usage]
    assert reader.end(0).message == "Done."


@pytest.mark.parametrize(
    ("told", "result"),
    [
        ({"status": "success"}, Result("")),
        ({"status": "error", "error": {"type": "denied", "message": "Not allowed"}}, Result("Not allowed", False)),
        ({"status": "error", "output": "half of it", "error": 7}, Result("half of it", False)),
    ],
)
def test_what_tools_gave_back(told: dict[str, object], result: Result) -> None:
    assert read(INIT, WRITE, json.dumps({"type": "tool_result", "tool_id": "1", **told}))[0][1:] == [result]


def test_what_it_said_before_a_tool_is_not_its_final_message() -> None:
    _, end = read(INIT, said("<promise>"), WRITE, WRITTEN, WELL)
    assert end == End(True, "", "success")


def test_without_a_result_there_is_no_success() -> None:
    events, end = read(INIT, said("Done."), errors="Ripgrep is not available.\n", exit_code=0)
    assert events == [Message("Done.")]
    assert not end.ok
    assert "without a final event (exit status 0): Ripgrep" in end.reason


@pytest.mark.parametrize(
    "odd",
    [
        '{"type":"result","status":"success","stats":"none","error":7}',
        '{"type":"result","status":"success","stats":{"models":{"m":{"input_tokens":"many"}}}}',
        '{"status":"success","new":[1],"type":"result"}',
    ],
)
def test_odd_values_lose_no_ending(odd: str) -> None:
    assert read(INIT, "no JSON", "{}", '{"type":"message"}', said("x"), odd) == (
        [Message("x")],
        End(True, "x", "success"),
    )


@pytest.mark.parametrize(
    ("parameters", "detail"),
    [
        ({"command": "make\ntest", "description": "tests"}, "make"),
        ({"pattern": "x" * 300}, "x" * 200),
        ({"id": "1.1"}, ""),
        (["odd"], ""),
    ],
)
def test_the_detail_of_a_tool_is_one_short_line(parameters: Any, detail: str) -> None:
    line = json.dumps({"type": "tool_use", "tool_name": "a_tool", "parameters": parameters})
    assert read(INIT, line)[0] == [Tool("a_tool", detail)]


# --- errors -----------------------------------------------------------------------------------------

STACK = (
    "Error when talking to Gemini API RetryableQuotaError: told\n    at classify (chunk.js:1:2) {{\n  status: {0}\n}}\n"
)
SOCKET = "TypeError: terminated\n    at Fetch.onAborted (undici:1) {\n  [cause]: SocketError: other side closed\n  }\n"


@pytest.mark.parametrize(
    ("message", "errors", "expected"),
    [
        ('[API Error: {"error":{"code":401,"message":"told","status":"UNAUTHENTICATED"}}]', "", "login"),
        ('[API Error: {"error":{"code":400,"message":"API key not valid. Please pass a valid one."}}]', "", "login"),
        (f"[API Error: told]\n{QUOTA}", STACK.format(429), "rate-limit"),
        ('[API Error: {"error":{"code":500,"message":"told","status":"INTERNAL"}}]', STACK.format(429), "overload"),
        ("[API Error: told]", STACK.format(503), "overload"),
        ('[API Error: {"error":{"code":400,"message":"The input token count (1196265) exceeds the maximum '
         'number of tokens allowed (1048576)."}}]', "", "context"),
        ("[API Error: terminated]", SOCKET, "network"),
        ("[API Error: exception TypeError: fetch failed sending request]", "", "network"),
        ("Reached max session turns for this session.", "", "other"),
    ],
)  # fmt: skip
def test_errors(message: str, errors: str, expected: str) -> None:
    events, end = read(INIT, PROMPT, badly(message), errors=errors, exit_code=173)
    (failure,) = events
    assert isinstance(failure, Failure)
    assert failure.trouble == expected
    assert not end.ok
    assert "\n" not in end.reason
    assert end.reason.startswith(message[:12])


def test_the_time_of_reset() -> None:
    (failure,), _ = read(INIT, badly(f"[API Error: told\nSuggested retry after 7200s.]\n{QUOTA}"))
    assert isinstance(failure, Failure)
    assert failure.reset_at is not None
    assert 7100 < failure.reset_at - time.time() <= 7200


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('Attempt 1 failed with status 500. Retrying with backoff... _ApiError: {"error":{"code":500}}', "overload"),
        ("Attempt 1 failed with status 429. Retrying with backoff... _ApiError: {}", "rate-limit"),
        ("Attempt 1 failed: You are out of luck. Retrying after 5320ms...", "rate-limit"),
        ("Attempt 1 failed. Retrying with backoff... Error: exception TypeError: fetch failed", "network"),
    ],
)
def test_retries_are_told_while_they_happen(line: str, expected: str) -> None:
    reader = GeminiReader()
    assert not list(reader.feed_errors(line[:20].encode()))
    (failure,) = reader.feed_errors(f"{line[20:]}\n    at async retry (chunk.js:1:2)\n".encode())
    assert isinstance(failure, Failure)
    assert failure.trouble == expected


def test_the_last_try_is_told_by_the_result() -> None:
    assert not list(GeminiReader().feed_errors(b"Attempt 2 failed: told. Max attempts reached\n"))


def test_a_retry_is_no_failure_of_the_run() -> None:
    retry = "Attempt 1 failed with status 500. Retrying with backoff... {\n  status: 500\n}\n"
    events, end = read(INIT, said("fine"), WELL, errors=retry)
    assert [event.trouble for event in events if isinstance(event, Failure)] == ["overload"]
    assert end.ok


def test_an_error_event_is_a_failure_and_the_reason() -> None:
    line = '{"type":"error","severity":"error","message":"The model returned an empty response."}'
    events, end = read(INIT, line, '{"type":"result","status":"error","stats":{}}')
    assert [type(event) for event in events] == [Failure, Failure]
    assert end == End(False, "", "The model returned an empty response.")


@pytest.mark.parametrize(
    "complaint",
    [
        "When using Gemini API, you must specify the GEMINI_API_KEY environment variable.\nUpdate your environment!\n",
        "Invalid auth method selected.\n",
    ],
)
def test_nobody_is_logged_in(complaint: str) -> None:
    (failure,), end = read(errors=f"YOLO mode is enabled.\n{complaint}", exit_code=41)
    assert isinstance(failure, Failure)
    assert failure.trouble == "login"
    assert failure.text == complaint.splitlines()[0]
    assert not end.ok


def test_other_complaints_before_the_start_are_reasons_only() -> None:
    events, end = read(errors="Unknown argument: nonsense\n", exit_code=1)
    assert events == []
    assert end.reason.endswith(": Unknown argument: nonsense")


def test_a_login_that_it_mentions_in_the_middle_of_its_work_is_no_ending() -> None:
    assert read(INIT, errors="a server of yours asks to authenticate\n", exit_code=-15)[0] == []


def test_words_of_the_agent_are_no_errors() -> None:
    events, end = read(INIT, PROMPT, said("HTTP 429: rate limit, quota, 401 unauthorized"), WELL)
    assert not [event for event in events if isinstance(event, Failure)]
    assert end.ok


# --- start ------------------------------------------------------------------------------------------


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    for name in ("root", "folder", "home", "tmp"):
        (tmp_path / name).mkdir()
    (tmp_path / "prompt.md").write_text("do it")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.delenv("GEMINI_CLI_HOME", raising=False)
    monkeypatch.setattr(gemini, "_ADMINISTRATED", (str(tmp_path / "policies"),))
    return Job(prompt=str(tmp_path / "prompt.md"), root=str(tmp_path / "root"), folder=str(tmp_path / "folder"))


def with_fields(job: Job, **fields: Any) -> Job:
    return Job(**{name: getattr(job, name) for name in job.__struct_fields__} | fields)


def rules(start: Start) -> list[dict[str, Any]]:
    path = start.argv[start.argv.index("--admin-policy") + 1]
    found: list[dict[str, Any]] = tomllib.loads(Path(path).read_text())["rule"]
    return found


def mode(start: Start) -> str:
    return start.argv[start.argv.index("--approval-mode") + 1]


def test_the_prompt_comes_on_standard_input_and_the_options_are_passed_on(job: Job) -> None:
    options = {"model": "gemini-3-pro", "args": ["--debug"], "env": {"GEMINI_CLI_TRUST_WORKSPACE": "false"}}
    start = make("gemini", options).start(job)
    assert start.stdin is not None
    assert Path(start.stdin).read_text() == "do it"
    assert start.argv[:3] == ("gemini", "--output-format", "stream-json")
    assert start.argv[-3:] == ("--model", "gemini-3-pro", "--debug")
    assert start.env == {"GEMINI_TELEMETRY_ENABLED": "false", "GEMINI_CLI_TRUST_WORKSPACE": "false"}


def test_files_that_the_prompt_merely_names_are_not_sent_along(job: Job) -> None:
    text = "Install @types/node, see @~/.netrc, mail a@b.c: é\n"
    Path(job.prompt).write_text(text)
    stdin = Gemini("gemini", {}).start(job).stdin
    assert stdin is not None
    assert os.path.dirname(stdin) == job.folder
    assert Path(stdin).read_text() == r"Install \@types/node, see \@~/.netrc, mail a\@b.c: é" + "\n"
    assert Path(job.prompt).read_text() == text


def test_it_may_edit_and_tick_and_never_leave_these_bounds(job: Job) -> None:
    start = Gemini("gemini", {}).start(job)
    assert mode(start) == "default"
    allowed = [rule for rule in rules(start) if rule["decision"] == "allow"]
    assert [rule.get("commandPrefix") or rule.get("mcpName") or rule["toolName"] for rule in allowed] == [
        ["write_file", "replace"],
        "ralphtool agent",
        "ralphtool",
        ["list_directory", "read_file", "read_many_files", "grep_search", "glob"],
    ]
    denied = [rule["toolName"] for rule in rules(start) if rule["decision"] == "deny"]
    assert denied == [["enter_plan_mode", "exit_plan_mode"], "*"]


def test_its_policy_ends_with_a_refusal_of_all_else(job: Job) -> None:
    """No rule of the user or the project comes below it: those belong to another tier."""
    *others, last = rules(Gemini("gemini", {}).start(job))
    assert (last["toolName"], last["decision"]) == ("*", "deny")
    assert last.keys() == {"toolName", "decision", "priority"}
    assert last["priority"] < min(rule["priority"] for rule in others)


def test_all_is_permitted_only_when_that_is_said(job: Job) -> None:
    runner = Gemini("gemini", {"permissions": "all"})
    assert mode(runner.start(job)) == "yolo"
    assert "--admin-policy" not in runner.start(job).argv
    assert "without asking" in runner.traits.notices[0]
    assert "without asking" not in Gemini("gemini", {}).traits.notices[0].partition(";")[0]


@pytest.mark.parametrize("permissions", ["all", "edit"])
def test_reading_only_is_all_that_is_left(job: Job, permissions: str) -> None:
    start = Gemini("gemini", {"permissions": permissions}).start(with_fields(job, read_only=True))
    assert mode(start) == "default"
    allowed, denied = rules(start)
    assert (denied["toolName"], denied["decision"]) == ("*", "deny")
    assert allowed["priority"] > denied["priority"]
    assert not {"write_file", "replace", "run_shell_command", "exit_plan_mode", "*"} & set(allowed["toolName"])


INSIDE = ["/w/a draft+/x.md", "/w/a draft+/specs/y.md"]
OUTSIDE = ["/w/a draft+x.md", "/w/x.md", "/w/a draft+/../x.md", "x.md", "/w/a draaft/x.md"]


@pytest.mark.parametrize("path", [*INSIDE, *OUTSIDE])
def test_who_drafts_may_write_into_one_folder_only(job: Job, path: str) -> None:
    """Content that looks like a path argument changes nothing."""
    start = Gemini("gemini", {"permissions": "all"}).start(with_fields(job, read_only=True, draft="/w/a draft+"))
    denied, allowed, *_, rest = rules(start)
    told = json.dumps({"content": f'"file_path":"{INSIDE[0]}"', "file_path": path}, separators=(",", ":"))
    assert (denied["decision"], allowed["decision"], rest["decision"]) == ("deny", "allow", "deny")
    assert denied["priority"] > allowed["priority"] > rest["priority"]
    assert denied["toolName"] == allowed["toolName"] == ["write_file", "replace"]
    assert bool(re.search(denied["argsPattern"], told)) == (path in OUTSIDE)


def test_who_only_looks_gets_none_of_the_users_arguments(job: Job) -> None:
    runner = Gemini("gemini", {"model": "gemini-3-pro", "args": ["--yolo", "--allowed-tools", "run_shell_command"]})
    assert runner.start(job).argv[-3:] == ("--yolo", "--allowed-tools", "run_shell_command")
    argv = runner.start(with_fields(job, read_only=True)).argv
    assert argv[-2:] == ("--model", "gemini-3-pro")
    assert not {"--yolo", "--allowed-tools"} & set(argv)


def test_a_policy_that_it_would_not_find_is_refused(job: Job, tmp_path: Path) -> None:
    (tmp_path / "a,b").mkdir()
    with pytest.raises(InvalidValue, match="without a comma"):
        Gemini("gemini", {}).start(with_fields(job, folder=str(tmp_path / "a,b")))


def test_where_an_administrator_has_policies_it_promises_less(job: Job, tmp_path: Path) -> None:
    assert Gemini("gemini", {}).traits.read_only
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "house.toml").write_text("")
    assert not Gemini("gemini", {}).traits.read_only
    assert not Gemini("gemini", {}).traits.mcp
    assert Gemini("gemini", {"permissions": "all"}).traits.mcp


# --- our MCP server ---------------------------------------------------------------------------------

SERVER = McpServer(("/opt/ralphtool", "mcp"), {"RALPH_SESSION": "s1"})


def extension(start: Start) -> Path:
    return Path(start.env["GEMINI_CLI_HOME"], ".gemini", "extensions", "ralphtool")


def test_our_server_comes_as_one_more_extension(job: Job, tmp_path: Path) -> None:
    theirs = tmp_path / "home" / ".gemini"
    (theirs / "extensions" / "mine").mkdir(parents=True)
    (theirs / "settings.json").write_text('{"mcpServers": {}}')
    (tmp_path / "home" / ".env").write_text("A=1\n")
    start = Gemini("gemini", {}).start(with_fields(job, mcp=SERVER))

    described = json.loads((extension(start) / "gemini-extension.json").read_text())
    assert described["mcpServers"] == {
        "ralphtool": {"command": "/opt/ralphtool", "args": ["mcp"], "env": {"RALPH_SESSION": "s1"}}
    }
    home = Path(start.env["GEMINI_CLI_HOME"])
    assert home.parent == tmp_path / "tmp" / "ralph" / "gemini"
    assert os.listdir(home) == [".gemini"]
    for name in (".gemini/settings.json", ".gemini/extensions/mine"):
        assert os.path.samefile(home / name, tmp_path / "home" / name)
    assert sorted(os.listdir(theirs)) == ["extensions", "settings.json"]
    assert os.listdir(theirs / "extensions") == ["mine"]


def test_a_home_without_settings_will_do_and_so_will_a_second_start(job: Job, tmp_path: Path) -> None:
    (tmp_path / "home" / ".env").write_text("A=1\n")
    runner = Gemini("gemini", {})
    first = runner.start(with_fields(job, mcp=SERVER))
    assert runner.start(with_fields(job, mcp=SERVER)) == first
    assert os.listdir(Path(first.env["GEMINI_CLI_HOME"]) / ".gemini" / "extensions") == ["ralphtool"]


def everything_below(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def test_its_home_goes_with_it_and_nothing_that_it_links_to(job: Job, tmp_path: Path) -> None:
    """Neither the user's files, nor anything that the agent linked to from there, is deleted."""
    theirs = tmp_path / "home" / ".gemini"
    (theirs / "extensions" / "mine").mkdir(parents=True)
    (theirs / "extensions" / "mine" / "code.js").write_text("1")
    (theirs / "history").mkdir()
    (theirs / "history" / "old").write_text("2")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("3")
    before = [everything_below(tmp_path / "home"), everything_below(tmp_path / "precious")]
    one = with_fields(job, mcp=SERVER)
    home = Path(Gemini("gemini", {}).start(one).env["GEMINI_CLI_HOME"])
    assert os.path.samefile(home / ".gemini" / "history", theirs / "history")
    (home / "link").symlink_to(tmp_path / "precious")
    (home / ".gemini" / "tmp").mkdir()
    (home / ".gemini" / "tmp" / "link").symlink_to(tmp_path / "precious")
    (home / ".gemini" / "tmp").chmod(0o500)

    reader = Gemini("gemini", {}).reader(one)
    assert home.is_dir()
    list(reader.rest())
    assert not os.path.lexists(home)
    assert [everything_below(tmp_path / "home"), everything_below(tmp_path / "precious")] == before


def test_a_link_in_the_place_of_its_home_is_taken_away_and_not_followed(job: Job, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("3")
    one = with_fields(job, mcp=SERVER)
    home = Path(Gemini("gemini", {}).start(one).env["GEMINI_CLI_HOME"])
    list(Gemini("gemini", {}).reader(one).rest())
    home.symlink_to(tmp_path / "precious")
    assert Gemini("gemini", {}).start(one).env["GEMINI_CLI_HOME"] == str(home)
    assert not home.is_symlink()
    list(Gemini("gemini", {}).reader(one).rest())
    home.symlink_to(tmp_path / "precious")
    list(Gemini("gemini", {}).reader(one).rest())
    assert not os.path.lexists(home)
    assert os.listdir(tmp_path / "precious") == ["file"]


def test_two_iterations_have_a_home_each(job: Job, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one, other = with_fields(job, mcp=SERVER), with_fields(job, mcp=SERVER, folder=str(tmp_path / "other"))
    homes = [Path(Gemini("gemini", {}).start(each).env["GEMINI_CLI_HOME"]) for each in (one, other)]
    list(Gemini("gemini", {}).reader(one).rest())
    assert [home.is_dir() for home in homes] == [False, True]


def test_who_reads_its_record_again_leaves_its_home(job: Job) -> None:
    """The agent may still be running."""
    home = Path(Gemini("gemini", {}).start(with_fields(job, mcp=SERVER)).env["GEMINI_CLI_HOME"])
    list(Gemini("gemini", {}).reader(with_fields(job, is_past=True)).rest())
    assert home.is_dir()


def test_the_home_that_the_user_chose_for_it_is_the_one(job: Job, tmp_path: Path) -> None:
    (tmp_path / "other" / ".gemini").mkdir(parents=True)
    (tmp_path / "other" / ".gemini" / "settings.json").write_text("{}")
    options = {"env": {"GEMINI_CLI_HOME": str(tmp_path / "other")}}
    start = Gemini("gemini", options).start(with_fields(job, mcp=SERVER))
    settings = Path(start.env["GEMINI_CLI_HOME"]) / ".gemini" / "settings.json"
    assert os.path.samefile(settings, tmp_path / "other" / ".gemini" / "settings.json")


def test_without_a_server_the_home_is_not_touched(job: Job) -> None:
    assert "GEMINI_CLI_HOME" not in Gemini("gemini", {}).start(job).env
