"""The scripted model, as a client of each maker's real API sees it: the answers."""

from __future__ import annotations

import json
import subprocess
from http.client import RemoteDisconnected
from pathlib import Path

import pytest
from patience import PATIENCE
from testing.model.apis import ANTHROPIC, CHAT, RESPONSES, Api, Heard, Talk, ask, hear, named_events, send

from ralphtool.testing import (
    All,
    Call,
    Cut,
    Drip,
    Fail,
    Mcp,
    ModelServer,
    Run,
    Say,
    TooLong,
    Turn,
    Write,
    script,
)

TOKEN = "0123456789abcdef0123456789abcdef"

# --- the four APIs ----------------------------------------------------------------------------------


def answered(
    model: ModelServer, turn: Turn, api: Api, talk: Talk | None = None, *, stream: bool = True, root: str = ""
) -> Heard:
    """What one client receives for one turn."""
    model.scenario, model.root = script(turn), root
    heard = hear(model, api, talk, stream=stream)
    assert model.errors == []
    return heard


# --- the answers ------------------------------------------------------------------------------------


def test_what_is_said_comes_word_for_word_with_its_usage(model: ModelServer, api: Api, stream: bool) -> None:
    text = "Two words,  two spaces\nand  a «line» of its own 🙂 "
    assert answered(model, Say(text), api, stream=stream) == Heard(text, [], (1000, 50), api.reasons[0], ended=True)


def test_a_tool_is_called_by_its_very_name(model: ModelServer, api: Api, stream: bool) -> None:
    arguments = {"path": 'a "b" c', "deep": {"list": [1, None, "ü"]}}
    heard = answered(model, Call("any_tool", arguments), api, stream=stream)
    assert heard == Heard("", [("any_tool", arguments)], (1000, 50), api.reasons[1], ended=True)


def test_words_and_a_call_come_in_one_answer(model: ModelServer, api: Api, stream: bool) -> None:
    turn = All((Say("First this."), Call("t", {"a": 1}), Say("Then that.")))
    heard = answered(model, turn, api, stream=stream)
    assert heard == Heard("First this.\nThen that.", [("t", {"a": 1})], (1000, 50), api.reasons[1], ended=True)


def test_an_answer_has_one_call_at_the_most_and_says_so(api: Api) -> None:
    with ModelServer(script(All((Call("one", {"a": 1}), Call("two", {"b": 2}))))) as model:
        with pytest.raises(RemoteDisconnected):
            ask(model, api, Talk())
        assert len(model.errors) == 1
        assert "only one tool" in model.errors[0]


def test_what_is_asked_is_kept_for_the_test_to_look_at(model: ModelServer, api: Api, stream: bool) -> None:
    model.scenario = script()
    ask(model, api, Talk("Go on.", "Be brief.", ("one", "two"), ("first", "second")), stream=stream)
    [request] = model.requests
    assert (request.dialect, request.model, request.stream) == (api.name, "m", stream)
    assert (request.prompt, request.system.strip()) == ("Go on.", "Be brief.")
    assert (request.tools, request.results, request.step) == (("one", "two"), ("first", "second"), 2)
    assert request.headers["x-api-key"] == "k"
    assert request.body == api.body(Talk("Go on.", "Be brief.", ("one", "two"), ("first", "second")), stream)
    assert len(model.began) == 1


SHELLS = {"Bash": "command", "exec_command": "cmd", "run_shell_command": "command", "bash": "command"}
WRITERS = {"Write": ("file_path", "content"), "write_file": ("file_path", "content"), "write": ("filePath", "content")}


@pytest.mark.parametrize("tool", SHELLS)
def test_a_command_is_run_with_the_shell_that_is_offered(model: ModelServer, tool: str, api: Api, stream: bool) -> None:
    [(name, arguments)] = answered(model, Run("ls 'a b'"), api, Talk(tools=("Other", tool)), stream=stream).calls
    assert (name, arguments[SHELLS[tool]]) == (tool, "ls 'a b'")


@pytest.mark.parametrize("tool", WRITERS)
def test_a_file_is_written_with_the_tool_that_is_offered(model: ModelServer, tool: str, api: Api, stream: bool) -> None:
    talk = Talk(tools=("bash", tool))
    path, content = WRITERS[tool]
    heard = answered(model, Write("in/x.txt", "hi\n"), api, talk, stream=stream, root="/there")
    assert heard.calls == [(tool, {path: "/there/in/x.txt", content: "hi\n"})]


@pytest.mark.parametrize(
    "folder",
    [
        "plain",
        pytest.param("a b"),
    ],
)
def test_where_only_a_shell_is_offered_it_writes_the_file(model: ModelServer, folder: str, tmp_path: Path) -> None:
    content = "it's 100% \\n\n$HOME\n"
    talk = Talk(tools=("exec_command",))
    [(_, arguments)] = answered(model, Write(f"{folder}/x.txt", content), RESPONSES, talk, root=str(tmp_path)).calls
    subprocess.run(arguments["cmd"], shell=True, check=False, cwd=tmp_path, timeout=PATIENCE)
    assert [each.name for each in tmp_path.iterdir()] == [folder]
    assert (tmp_path / folder / "x.txt").read_text() == content


def test_without_tools_it_says_what_to_run(model: ModelServer, api: Api, stream: bool) -> None:
    assert answered(model, Run("make test"), api, stream=stream).text == "```bash\nmake test\n```\n"


@pytest.mark.parametrize(
    "before",
    [
        "",
        "old\n",
        pytest.param("old"),
    ],
)
def test_without_tools_it_says_how_to_edit(model: ModelServer, before: str, tmp_path: Path) -> None:
    if before:
        (tmp_path / "x.txt").write_text(before)
    talk = Talk(system="Use SEARCH/REPLACE blocks.")
    lines = answered(model, Write("x.txt", "new\n"), CHAT, talk, root=str(tmp_path)).text.splitlines()
    old = before.splitlines()
    assert lines == ["x.txt", "```", "<<<<<<< SEARCH", *old, "=======", "new", ">>>>>>> REPLACE", "```"]


@pytest.mark.parametrize("offered", ["mcp__notes__read_it", "notes_read_it", "read_it"])
def test_a_tool_of_a_server_is_called_as_it_is_offered(
    model: ModelServer, offered: str, api: Api, stream: bool
) -> None:
    talk = Talk(tools=("bash", "mcp__notes__other", offered))
    assert answered(model, Mcp("read_it", {"a": 1}), api, talk, stream=stream).calls == [(offered, {"a": 1})]


def test_a_tool_of_a_server_that_is_not_offered_is_called_by_its_name(model: ModelServer, api: Api) -> None:
    assert answered(model, Mcp("read_it"), api, Talk(tools=("bash",))).calls == [("read_it", {})]


def test_a_tool_of_a_server_is_not_taken_for_one_that_ends_alike(model: ModelServer) -> None:
    talk = Talk(tools=("mcp__notes__un_read", "mcp__notes__read"))
    assert answered(model, Mcp("read"), ANTHROPIC, talk).calls == [("mcp__notes__read", {})]


def test_tools_that_come_in_groups_are_called_in_their_group(model: ModelServer, stream: bool) -> None:
    body = RESPONSES.body(Talk(), stream)
    body["tools"] = [{"type": "namespace", "name": "mcp__notes", "tools": [{"type": "function", "name": "read_it"}]}]
    model.scenario = script(Mcp("read_it", {"a": 1}))
    reply = send(model, "POST", RESPONSES.path(stream), json.dumps(body).encode())
    output = named_events(reply.body)[-1]["response"]["output"] if stream else reply.json["output"]
    assert (output[0]["namespace"], output[0]["name"]) == ("mcp__notes", "read_it")
    assert "mcp__notes__read_it" in model.requests[0].tools


def test_promise_and_token_are_those_of_the_prompt(model: ModelServer, api: Api, stream: bool) -> None:
    talk = Talk(prompt=f"Some words.\ntoken: {TOKEN}\nMore words.")
    text = answered(model, Say("{promise} and {token} and {other}"), api, talk, stream=stream).text
    assert text == f"<promise>COMPLETE:{TOKEN}</promise> and {TOKEN} and {{other}}"


def test_a_prompt_without_a_token_gets_no_promise(model: ModelServer, api: Api) -> None:
    assert answered(model, Say("[{promise}{token}]"), api, Talk(prompt=f"not a token: {TOKEN}")).text == "[]"


def test_an_agent_that_takes_no_answer_without_a_command_gets_one(model: ModelServer, stream: bool) -> None:
    word = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
    heard = answered(model, Say("Done."), CHAT, Talk(prompt=f"End with echo {word}", tools=("bash",)), stream=stream)
    assert heard.text == "Done."
    assert heard.calls[0][1]["command"] == f"echo {word}"


def test_usage_is_streamed_only_to_those_who_ask_for_it(model: ModelServer) -> None:
    body = CHAT.body(Talk(), True)
    del body["stream_options"]
    model.scenario = script(Say("Hi."))
    heard = CHAT.heard(send(model, "POST", CHAT.path(True), json.dumps(body).encode()), True)
    assert heard == Heard("Hi.", [], None, "stop", ended=True)


def test_every_answer_that_is_no_error_has_the_headers(api: Api, stream: bool) -> None:
    turns = script(Cut(times=1), Fail(status=500, times=1), TooLong(times=1), Drip("a b", 0.001), Say("x"))
    with ModelServer(turns, headers={"x-quota": "97"}) as model:
        replies = [ask(model, api, stream=stream) for _ in range(4)]
        replies.append(ask(model, api, Talk(told=("",)), stream=stream))
    assert [reply.headers.get("x-quota") for reply in replies] == ["97", None, None, "97", "97"]
