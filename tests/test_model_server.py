"""The scripted model, as a client of each maker's real API sees it: what is sent is read here by nothing of ours."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from http.client import HTTPConnection, IncompleteRead, RemoteDisconnected
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from ralphtool.testing import (
    All,
    Call,
    Cut,
    Drip,
    Fail,
    Mcp,
    ModelServer,
    Request,
    Run,
    Say,
    Silence,
    TooLong,
    Turn,
    Write,
    script,
)

PATIENCE = 10.0  # seconds; only a hang takes that long
TOKEN = "0123456789abcdef0123456789abcdef"


class Talk(NamedTuple):
    """A conversation so far. `told` is what tools told: before each, the model called one."""

    prompt: str = "Do it."
    system: str = "Be good."
    tools: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


class Heard(NamedTuple):
    """An answer, as a client understands it. Without its end it is only the beginning of one."""

    text: str
    calls: list[tuple[str, Any]]
    usage: tuple[int, int] | None = None
    reason: str | None = None
    ended: bool = False


class Reply(NamedTuple):
    """What came over the wire."""

    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool  # the connection did not break before its end

    @property
    def json(self) -> Any:
        return json.loads(self.body)


# --- the four ways to speak to a model --------------------------------------------------------------


class Api:
    """One maker's API, from the client's side."""

    name: str
    reasons: tuple[str, str]  # why an answer ended: it was said; a tool is called

    def path(self, stream: bool) -> str:
        raise NotImplementedError

    def body(self, talk: Talk, stream: bool) -> dict[str, Any]:
        raise NotImplementedError

    def streamed(self, data: bytes) -> Heard:
        raise NotImplementedError

    def whole(self, data: bytes) -> Heard:
        raise NotImplementedError

    def heard(self, reply: Reply, stream: bool) -> Heard:
        assert reply.status == 200, reply
        kind = "text/event-stream" if stream else "application/json"
        assert reply.headers["content-type"].startswith(kind)
        return self.streamed(reply.body) if stream else self.whole(reply.body)


def events(data: bytes) -> Iterator[tuple[str, str]]:
    """Name and data of each server-sent event that came whole."""
    for block in data.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        yield fields.get("event", ""), fields["data"]


def named_events(data: bytes) -> list[dict[str, Any]]:
    """Those of the makers that name each event as its data does."""
    found = [(name, json.loads(text)) for name, text in events(data)]
    assert [name for name, _ in found] == [each["type"] for _, each in found]
    return [each for _, each in found]


class Anthropic(Api):
    name = "anthropic"
    reasons = ("end_turn", "tool_use")

    def path(self, stream: bool) -> str:
        return "/v1/messages?beta=true"

    def body(self, talk: Talk, stream: bool) -> dict[str, Any]:
        messages: list[dict[str, Any]] = [{"role": "user", "content": talk.prompt}]
        for number, told in enumerate(talk.told):
            use = {"type": "tool_use", "id": f"toolu_{number}", "name": "x", "input": {}}
            result = {"type": "tool_result", "tool_use_id": use["id"], "content": [{"type": "text", "text": told}]}
            messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
        tools = [{"name": name, "input_schema": {"type": "object"}} for name in talk.tools]
        system = [{"type": "text", "text": talk.system}]
        return {"model": "m", "system": system, "messages": messages, "tools": tools, "stream": stream}

    def streamed(self, data: bytes) -> Heard:
        start, *rest = named_events(data)
        assert (start["type"], start["message"]["role"], start["message"]["content"]) == (
            "message_start",
            "assistant",
            [],
        )
        blocks, usage = self._blocks(rest), start["message"]["usage"]
        end = next((each for each in rest if each["type"] == "message_delta"), None)
        usage |= end["usage"] if end else {}
        content = [each | {"input": json.loads(each["so_far"])} if "so_far" in each else each for each in blocks]
        heard = self._heard(content, usage, end["delta"]["stop_reason"] if end else None)
        return heard._replace(ended=rest[-1] == {"type": "message_stop"})

    def _blocks(self, rest: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        for each in rest:
            if each["type"] == "content_block_start":
                assert each["index"] == len(blocks)
                blocks.append(dict(each["content_block"]))
            elif each["type"] == "content_block_delta" and each["delta"]["type"] == "text_delta":
                blocks[each["index"]]["text"] += each["delta"]["text"]
            elif each["type"] == "content_block_delta":
                before = blocks[each["index"]].get("so_far", "")
                blocks[each["index"]]["so_far"] = before + each["delta"]["partial_json"]
        return blocks

    def whole(self, data: bytes) -> Heard:
        message = json.loads(data)
        assert (message["type"], message["role"], message["model"]) == ("message", "assistant", "m")
        return self._heard(message["content"], message["usage"], message["stop_reason"])._replace(ended=True)

    def _heard(self, content: list[dict[str, Any]], usage: dict[str, int], reason: str | None) -> Heard:
        uses = [each for each in content if each["type"] == "tool_use"]
        assert all(each["id"].startswith("toolu_") for each in uses)
        text = "".join(each["text"] for each in content if each["type"] == "text")
        calls = [(each["name"], each["input"]) for each in uses]
        return Heard(text, calls, (usage["input_tokens"], usage["output_tokens"]), reason)


class Responses(Api):
    name = "responses"
    reasons = ("completed", "completed")

    def path(self, stream: bool) -> str:
        return "/v1/responses"

    def body(self, talk: Talk, stream: bool) -> dict[str, Any]:
        part = {"type": "input_text", "text": talk.prompt}
        items: list[dict[str, Any]] = [{"type": "message", "role": "user", "content": [part]}]
        for number, told in enumerate(talk.told):
            called = {"type": "function_call", "call_id": f"call_{number}", "name": "x", "arguments": "{}"}
            items += [called, {"type": "function_call_output", "call_id": f"call_{number}", "output": told}]
        tools = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in talk.tools]
        return {"model": "m", "instructions": talk.system, "input": items, "tools": tools, "stream": stream}

    def streamed(self, data: bytes) -> Heard:
        start, *rest = named_events(data)
        assert (start["type"], start["response"]["status"]) == ("response.created", "in_progress")
        deltas: dict[str, str] = {}
        for each in rest:
            if each["type"].endswith(".delta"):
                deltas[each["item_id"]] = deltas.get(each["item_id"], "") + each["delta"]
        if not rest or rest[-1]["type"] != "response.completed":
            return Heard("".join(deltas.values()), [])
        response = rest[-1]["response"]
        done = [each["item"] for each in rest if each["type"] == "response.output_item.done"]
        assert done == response["output"], "what came piece by piece is what is told at the end"
        assert deltas == {each["id"]: self._said(each) for each in done}
        return self.whole(json.dumps(response).encode())

    def _said(self, item: dict[str, Any]) -> str:
        return str(item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"])

    def whole(self, data: bytes) -> Heard:
        response = json.loads(data)
        assert (response["object"], response["model"]) == ("response", "m")
        text = "".join(self._said(each) for each in response["output"] if each["type"] == "message")
        uses = [each for each in response["output"] if each["type"] == "function_call"]
        assert all(each["call_id"].startswith("call_") for each in uses)
        calls = [(each["name"], json.loads(each["arguments"])) for each in uses]
        usage = (response["usage"]["input_tokens"], response["usage"]["output_tokens"])
        return Heard(text, calls, usage, response["status"], ended=True)


class Chat(Api):
    name = "chat"
    reasons = ("stop", "tool_calls")

    def path(self, stream: bool) -> str:
        return "/v1/chat/completions"

    def body(self, talk: Talk, stream: bool) -> dict[str, Any]:
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": talk.system},
            {"role": "user", "content": [{"type": "text", "text": talk.prompt}]},
        ]
        for number, told in enumerate(talk.told):
            called = {"id": f"call_{number}", "type": "function", "function": {"name": "x", "arguments": "{}"}}
            messages.append({"role": "assistant", "content": None, "tool_calls": [called]})
            messages.append({"role": "tool", "tool_call_id": called["id"], "content": told})
        tools = [{"type": "function", "function": {"name": name}} for name in talk.tools]
        more = {"stream_options": {"include_usage": True}} if stream else {}
        return {"model": "m", "messages": messages, "tools": tools, "stream": stream, **more}

    def streamed(self, data: bytes) -> Heard:
        found = [text for name, text in events(data) if not name]
        ended = found[-1] == "[DONE]"
        chunks = [json.loads(text) for text in (found[:-1] if ended else found)]
        assert all((each["object"], each["model"]) == ("chat.completion.chunk", "m") for each in chunks)
        choices = [choice for each in chunks for choice in each["choices"]]
        assert choices[0]["delta"]["role"] == "assistant"
        text = "".join(each["delta"].get("content") or "" for each in choices)
        calls = [each for choice in choices for each in choice["delta"].get("tool_calls", [])]
        usage = next((each["usage"] for each in chunks if each.get("usage")), None)
        return self._heard(text, calls, usage, choices[-1]["finish_reason"])._replace(ended=ended)

    def whole(self, data: bytes) -> Heard:
        completion = json.loads(data)
        assert (completion["object"], completion["model"]) == ("chat.completion", "m")
        [choice] = completion["choices"]
        assert choice["message"]["role"] == "assistant"
        text, calls = choice["message"]["content"] or "", choice["message"].get("tool_calls", [])
        return self._heard(text, calls, completion["usage"], choice["finish_reason"])._replace(ended=True)

    def _heard(self, text: str, calls: Any, usage: dict[str, int] | None, reason: str | None) -> Heard:
        assert all(each["id"].startswith("call_") and each["type"] == "function" for each in calls)
        found = [(each["function"]["name"], json.loads(each["function"]["arguments"])) for each in calls]
        return Heard(text, found, (usage["prompt_tokens"], usage["completion_tokens"]) if usage else None, reason)


class Gemini(Api):
    name = "gemini"
    reasons = ("STOP", "STOP")

    def path(self, stream: bool) -> str:
        return f"/v1beta/models/m:{'streamGenerateContent?alt=sse' if stream else 'generateContent'}"

    def body(self, talk: Talk, stream: bool) -> dict[str, Any]:
        contents: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": talk.prompt}]}]
        for told in talk.told:
            contents.append({"role": "model", "parts": [{"functionCall": {"name": "x", "args": {}}}]})
            response = {"name": "x", "response": {"output": told}}
            contents.append({"role": "user", "parts": [{"functionResponse": response}]})
        tools = [{"functionDeclarations": [{"name": name} for name in talk.tools]}] if talk.tools else []
        return {"systemInstruction": {"parts": [{"text": talk.system}]}, "contents": contents, "tools": tools}

    def streamed(self, data: bytes) -> Heard:
        found = list(events(data))
        assert not any(name for name, _ in found)
        return self._heard([json.loads(text) for _, text in found])

    def whole(self, data: bytes) -> Heard:
        return self._heard([json.loads(data)])

    def _heard(self, chunks: list[dict[str, Any]]) -> Heard:
        assert all(each["modelVersion"] == "m" for each in chunks)
        candidates = [candidate for each in chunks for candidate in each["candidates"]]
        assert {each["content"]["role"] for each in candidates} == {"model"}
        parts = [part for each in candidates for part in each["content"]["parts"]]
        calls = [(each["functionCall"]["name"], each["functionCall"]["args"]) for each in parts if "text" not in each]
        told, reason = chunks[-1].get("usageMetadata"), candidates[-1].get("finishReason")
        usage = (told["promptTokenCount"], told["candidatesTokenCount"]) if told else None
        return Heard("".join(each.get("text", "") for each in parts), calls, usage, reason, ended=reason is not None)


ANTHROPIC, RESPONSES, CHAT, GEMINI = APIS = (Anthropic(), Responses(), Chat(), Gemini())


@pytest.fixture(params=APIS, ids=lambda each: each.name)
def api(request: pytest.FixtureRequest) -> Api:
    found: Api = request.param
    return found


@pytest.fixture(params=[True, False], ids=["streamed", "whole"])
def stream(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def running() -> Iterator[ModelServer]:
    with ModelServer(script()) as model:
        yield model


@pytest.fixture
def model(running: ModelServer) -> ModelServer:
    """A server as if it were a new one: to begin and to end one takes its time, which most tests are not about."""
    running.scenario, running.root, running.headers = script(), "", {}
    for record in (running.requests, running.errors, running.began):
        record.clear()
    return running


def connect(model: ModelServer, patience: float = PATIENCE) -> HTTPConnection:
    return HTTPConnection(urlsplit(model.url).netloc, timeout=patience)


def exchange(connection: HTTPConnection, method: str, path: str, body: bytes | None = None) -> Reply:
    connection.request(method, path, body, {"Content-Type": "application/json", "X-Api-Key": "k"})
    answer = connection.getresponse()
    try:
        data, whole = answer.read(), True
    except IncompleteRead as error:
        data, whole = error.partial, False
    return Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, data, whole)


def send(model: ModelServer, method: str, path: str, body: bytes | None = None, patience: float = PATIENCE) -> Reply:
    connection = connect(model, patience)
    try:
        return exchange(connection, method, path, body)
    finally:
        connection.close()


def ask(
    model: ModelServer, api: Api, talk: Talk | None = None, *, stream: bool = True, patience: float = PATIENCE
) -> Reply:
    body = json.dumps(api.body(talk or Talk(), stream)).encode()
    return send(model, "POST", api.path(stream), body, patience)


def hear(model: ModelServer, api: Api, talk: Talk | None = None, *, stream: bool = True) -> Heard:
    return api.heard(ask(model, api, talk, stream=stream), stream)


def answered(
    model: ModelServer, turn: Turn, api: Api, talk: Talk | None = None, *, stream: bool = True, root: str = ""
) -> Heard:
    """What one client hears of one turn."""
    model.scenario, model.root = script(turn), root
    heard = hear(model, api, talk, stream=stream)
    assert model.errors == []
    return heard


def wait_for(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + PATIENCE
    while not holds() and time.monotonic() < until:
        time.sleep(0.01)
    return holds()


# --- what is answered -------------------------------------------------------------------------------


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
        assert "one tool only" in model.errors[0]


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


# --- what goes wrong --------------------------------------------------------------------------------

# By status: what is answered with, and how the maker calls that.
ERRORS: dict[str, dict[int, tuple[int, str]]] = {
    "anthropic": {
        401: (401, "authentication_error"),
        429: (429, "rate_limit_error"),
        500: (500, "api_error"),
        529: (529, "overloaded_error"),
    },
    "responses": {
        401: (401, "invalid_api_key"),
        429: (429, "rate_limit_exceeded"),
        500: (500, "server_error"),
        529: (529, "server_is_overloaded"),
    },
    "chat": {
        401: (401, "invalid_api_key"),
        429: (429, "rate_limit_exceeded"),
        500: (500, "server_error"),
        529: (529, "overloaded_error"),
    },
    "gemini": {
        401: (401, "UNAUTHENTICATED"),
        429: (429, "RESOURCE_EXHAUSTED"),
        500: (500, "INTERNAL"),
        529: (503, "UNAVAILABLE"),
    },
}
TELLS_RESET = ("retry", "reset", "ratelimit")


def kind_of(api: Api, error: dict[str, Any]) -> Any:
    if api is GEMINI:
        return error["status"]
    return error["type"] if api is ANTHROPIC else error["code"] or error["type"]


@pytest.mark.parametrize("status", [401, 429, 500, 529])
def test_errors_are_told_as_the_maker_tells_them(model: ModelServer, status: int, api: Api, stream: bool) -> None:
    model.scenario = script(Fail(status=status))
    reply = ask(model, api, stream=stream)
    error = reply.json["error"]
    assert (reply.status, kind_of(api, error)) == ERRORS[api.name][status]
    assert reply.headers["content-type"] == "application/json"
    assert error["message"]
    assert reply.json.get("type") == ("error" if api is ANTHROPIC else None)
    assert error.get("code") == reply.status or api is not GEMINI
    assert not [name for name in reply.headers if any(word in name for word in TELLS_RESET)], "nobody said when"
    assert not {"details", "resets_at"} & error.keys()


def test_an_error_has_the_words_and_headers_of_the_script(model: ModelServer, api: Api) -> None:
    model.scenario = script(Fail(status=500, message="It broke.", headers={"x-why": "because"}))
    reply = ask(model, api)
    assert (reply.json["error"]["message"], reply.headers["x-why"]) == ("It broke.", "because")


def limited(model: ModelServer, api: Api, reset_in: float, **more: Any) -> tuple[Reply, range]:
    """The answer, and the moments that the limit may end at."""
    model.scenario = script(Fail(status=429, reset_in=reset_in, **more))
    before = round(time.time() + reset_in)
    reply = ask(model, api)
    return reply, range(before, round(time.time() + reset_in) + 1)


def test_anthropic_tells_when_a_limit_ends(model: ModelServer) -> None:
    reply, moments = limited(model, ANTHROPIC, 120, headers={"x-why": "because"})
    assert (reply.headers["retry-after"], reply.headers["x-why"]) == ("120", "because")
    assert reply.headers["anthropic-ratelimit-unified-status"] == "rejected"
    assert int(reply.headers["anthropic-ratelimit-unified-reset"]) in moments


def test_responses_tell_when_a_limit_ends(model: ModelServer) -> None:
    reply, moments = limited(model, RESPONSES, 120)
    error = reply.json["error"]
    assert (error["type"], error["resets_in_seconds"]) == ("usage_limit_reached", 120)
    assert error["resets_at"] in moments
    assert (reply.headers["retry-after"], reply.headers["x-codex-primary-used-percent"]) == ("120", "100")
    assert int(reply.headers["x-codex-primary-reset-at"]) in moments


def test_chat_tells_when_a_limit_ends(model: ModelServer) -> None:
    reply, _ = limited(model, CHAT, 1.5)
    assert (reply.headers["retry-after-ms"], reply.headers["x-ratelimit-reset-requests"]) == ("1500", "1.5s")
    assert reply.headers["retry-after"] == "2"
    assert reply.json["error"]["message"].endswith("Please try again in 1.5s.")
    own, _ = limited(model, CHAT, 1.5, message="Mine.")
    assert own.json["error"]["message"] == "Mine."


@pytest.mark.parametrize(
    ("reset_in", "told"),
    [
        (120, "120s"),
        (1.5, "1.5s"),
        pytest.param(2_592_000, "2592000s"),
    ],
)
def test_gemini_tells_when_a_limit_ends(model: ModelServer, reset_in: float, told: str) -> None:
    reply, _ = limited(model, GEMINI, reset_in)
    [detail] = reply.json["error"]["details"]
    assert detail == {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": told}


TOO_LONG = {
    "anthropic": ("invalid_request_error", "prompt is too long"),
    "chat": ("context_length_exceeded", "maximum context length"),
    "gemini": ("INVALID_ARGUMENT", "exceeds the maximum number of tokens"),
}


@pytest.mark.parametrize("api", [ANTHROPIC, CHAT, GEMINI], ids=lambda each: each.name)
def test_a_conversation_that_is_too_long_is_refused(model: ModelServer, api: Api, stream: bool) -> None:
    model.scenario = script(TooLong())
    reply = ask(model, api, stream=stream)
    kind, words = TOO_LONG[api.name]
    assert (reply.status, kind_of(api, reply.json["error"])) == (400, kind)
    assert words in reply.json["error"]["message"]


def test_responses_tell_in_the_stream_that_a_conversation_is_too_long(model: ModelServer) -> None:
    model.scenario = script(TooLong())
    reply = ask(model, RESPONSES)
    assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream")
    [failed] = named_events(reply.body)
    assert (failed["type"], failed["response"]["status"]) == ("response.failed", "failed")
    assert failed["response"]["error"]["code"] == "context_length_exceeded"


def test_responses_refuse_a_conversation_that_is_too_long_to_those_who_want_no_stream(model: ModelServer) -> None:
    model.scenario = script(TooLong())
    reply = ask(model, RESPONSES, stream=False)
    assert (reply.status, reply.json["error"]["code"]) == (400, "context_length_exceeded")


def test_a_stream_that_is_cut_has_a_beginning_and_no_end(model: ModelServer, api: Api) -> None:
    model.scenario = script(Cut(text="one two three four", times=1), Say("Again."))
    reply = ask(model, api)
    assert not reply.whole
    heard = api.heard(reply, True)
    assert (heard.ended, heard.reason) == (False, None)
    assert heard.text
    assert "one two three four".startswith(heard.text.strip())
    assert hear(model, api).text == "Again.", "the next one is whole"
    assert model.errors == []


def test_an_object_that_is_cut_is_none(model: ModelServer, api: Api) -> None:
    model.scenario = script(Cut())
    reply = ask(model, api, stream=False)
    assert (reply.status, reply.whole) == (200, False)
    assert reply.body.startswith(b"{")
    with pytest.raises(ValueError, match=r"\S"):
        json.loads(reply.body)


def chunks(model: ModelServer, api: Api, stream: bool) -> list[bytes]:
    """The pieces of an answer as they are sent, which no client library shows."""
    body = json.dumps(api.body(Talk(), stream)).encode()
    place = urlsplit(model.url)
    with socket.create_connection((place.hostname, place.port), PATIENCE) as connection:
        head = (
            f"POST {api.path(stream)} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        connection.sendall(head.encode() + body)
        data = b"".join(iter(lambda: connection.recv(65536), b""))
    rest, pieces = data.split(b"\r\n\r\n", 1)[1], []
    while rest:
        size, rest = rest.split(b"\r\n", 1)
        pieces.append(rest[: int(size, 16)])
        assert rest[int(size, 16) :][:2] == b"\r\n"
        rest = rest[int(size, 16) + 2 :]
    assert pieces.pop() == b"", "the last piece is empty: that is how the end is told"
    return pieces


def test_what_drips_comes_piece_by_piece_in_order(model: ModelServer, api: Api) -> None:
    model.scenario = script(Drip("one two {token} three", 0.001))
    pieces = chunks(model, api, True)
    assert all(len(list(events(piece))) == 1 for piece in pieces), "one event each"
    said = [word for piece in pieces for word in (b"one ", b"two ", b"three") if b'"' + word + b'"' in piece]
    assert said == [b"one ", b"two ", b"three"]
    assert api.streamed(b"".join(pieces)) == Heard("one two  three", [], (1000, 50), api.reasons[0], ended=True)


def test_an_object_drips_too(model: ModelServer, api: Api) -> None:
    model.scenario = script(Drip("one two three", 0.001))
    pieces = chunks(model, api, False)
    assert len(pieces) >= 3
    assert api.whole(b"".join(pieces)).text == "one two three"


def closed_amid(scenario: Callable[[Request], Turn], *apis: Api) -> list[Future[Reply]]:
    """What clients got who were waiting when the server closed. Nothing of it is left running."""
    before = set(threading.enumerate())
    with ThreadPoolExecutor() as pool:
        with ModelServer(scenario) as model:
            waiting = [pool.submit(ask, model, api) for api in apis]
            assert wait_for(lambda: len(model.requests) == len(apis))
        wait(waiting, PATIENCE)
    assert wait_for(lambda: set(threading.enumerate()) <= before), "no thread is left"
    assert model.errors == []
    return waiting


def test_what_drips_ends_with_the_server() -> None:
    [waiting] = closed_amid(script(Drip("one two", 3600)), ANTHROPIC)
    assert b"message_stop" not in waiting.result(0).body


def test_what_drips_is_cut_when_the_server_closes() -> None:
    [waiting] = closed_amid(script(Drip("one two", 3600)), CHAT)
    assert not waiting.result(0).whole


def test_silence_ends_with_the_server() -> None:
    for each in closed_amid(script(Silence()), *APIS):
        with pytest.raises(RemoteDisconnected):
            each.result(0)


def test_silence_lasts_until_the_client_gives_up(api: Api, stream: bool) -> None:
    with ModelServer(script(Silence(times=1), Say("Here."))) as model:
        before = set(threading.enumerate())
        connection = connect(model)
        connection.request("POST", api.path(stream), json.dumps(api.body(Talk(), stream)).encode())
        assert wait_for(lambda: bool(model.requests))
        connection.sock.settimeout(0.05)
        with pytest.raises(TimeoutError):
            connection.getresponse()
        connection.close()
        assert wait_for(lambda: set(threading.enumerate()) <= before), "nobody goes on waiting"
        assert hear(model, api, stream=stream).text == "Here."
    assert model.errors == []


# --- scripts ----------------------------------------------------------------------------------------


def told(count: int) -> Talk:
    return Talk(told=("ok",) * count)


def test_turns_come_by_how_often_the_model_has_spoken(model: ModelServer, api: Api, stream: bool) -> None:
    model.scenario = script(Call("t"), Say("Two."), Say("Three."))
    asked = [0, 1, 1, 2, 3, 7, 0]
    heard = [hear(model, api, told(count), stream=stream) for count in asked]
    nothing = "I have nothing more to say."
    assert [each.text for each in heard] == ["", "Two.", "Two.", "Three.", nothing, nothing, ""]
    assert (heard[0].calls, heard[-1].calls) == ([("t", {})], [("t", {})]), "a fresh conversation begins anew"
    assert [each.step for each in model.requests] == asked


def test_all_that_one_response_had_is_one_turn(model: ModelServer) -> None:
    model.scenario = script(All((Say("One."), Call("t"))), Say("Two."))
    body = RESPONSES.body(told(1), True)
    words = [{"type": "output_text", "text": "One."}]
    body["input"][1:1] = [{"type": "reasoning"}, {"type": "message", "role": "assistant", "content": words}]
    reply = send(model, "POST", RESPONSES.path(True), json.dumps(body).encode())
    assert RESPONSES.heard(reply, True).text == "Two."


def test_a_model_may_begin_with_ok(model: ModelServer) -> None:
    model.scenario = script(Say("Ok. I begin."), Say("Two."))
    body = CHAT.body(Talk(tools=("bash",)), True)
    body["messages"] += [{"role": "assistant", "content": "Ok. I begin."}, {"role": "user", "content": "Go on."}]
    reply = send(model, "POST", CHAT.path(True), json.dumps(body).encode())
    assert CHAT.heard(reply, True).text == "Two."


def test_hindrances_come_so_often_before_the_turn_after_them(model: ModelServer, api: Api) -> None:
    turns = script(
        Fail(status=500, times=2), Fail(status=429, times=1), Say("One."), Fail(status=529, times=1), Say("2")
    )
    model.scenario = turns
    first = [ask(model, api).status for _ in range(5)]
    second = [ask(model, api, told(1)).status for _ in range(3)]
    again = ask(model, api).status
    assert first == [500, 500, 429, 200, 200]
    assert second == [503 if api is GEMINI else 529, 200, 200]
    assert again == 200, "what is used up stays so, in a fresh conversation too"


def test_a_hindrance_without_a_number_stays_for_ever(model: ModelServer) -> None:
    model.scenario = script(Say("One."), Fail(status=500), Say("Never."))
    assert hear(model, CHAT).text == "One."
    assert [ask(model, CHAT, told(1)).status for _ in range(4)] == [500] * 4


def test_a_title_is_given_beside_the_work(model: ModelServer, api: Api, stream: bool) -> None:
    asks = Talk(system="You are a title generator. You output ONLY a thread title.")
    model.scenario = script(Fail(status=500, times=1), Say("One."))
    assert hear(model, api, asks, stream=stream).text == "A title"
    assert ask(model, api).status == 500, "the title has used nothing up"
    with_tools = asks._replace(tools=("bash",))
    assert hear(model, api, with_tools, stream=stream).text == "One.", "who has tools is at work"


def test_hindrances_are_counted_right_whoever_asks_at_the_same_time() -> None:
    with ModelServer(script(Fail(status=500, times=5), Say("One."))) as model, ThreadPoolExecutor(12) as pool:
        replies = list(pool.map(lambda number: ask(model, APIS[number % 4]), range(12)))
    assert sorted(reply.status for reply in replies) == [200] * 7 + [500] * 5
    assert len(model.requests) == len(model.began) == 12


def test_a_scenario_is_asked_by_one_at_a_time() -> None:
    seen = 0

    def choose(request: Request) -> Turn:
        nonlocal seen
        number = seen
        time.sleep(0.002)
        seen = number + 1
        return Say(str(number))

    with ModelServer(choose) as model, ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda _: hear(model, CHAT).text, range(8)))
    assert sorted(texts) == [str(number) for number in range(8)]


# --- what nobody should send, and the server itself -------------------------------------------------


@pytest.mark.parametrize("body", [b"", b"{", b"no json", b'{"model": "\xff"}'])
def test_a_body_that_is_no_json_is_refused(model: ModelServer, body: bytes, api: Api) -> None:
    model.scenario = script(Say("Hi."))
    reply = send(model, "POST", api.path(True), body)
    assert (reply.status, reply.json["error"]["type"]) == (400, "invalid_request_error")
    assert hear(model, api).text == "Hi."
    assert (len(model.requests), model.errors) == (1, [])


@pytest.mark.parametrize("body", [b"[]", b"null", b'"text"', b'{"messages": 1, "contents": 1, "input": 1}'])
def test_a_body_of_another_shape_ends_at_once_and_is_told(model: ModelServer, body: bytes, api: Api) -> None:
    model.scenario = script(Say("Hi."))
    try:
        assert send(model, "POST", api.path(True), body).status == 400
    except RemoteDisconnected:
        assert len(model.errors) == 1, "no agent does this unseen"
    assert hear(model, api).text == "Hi."


def test_where_nothing_is_there_is_nothing_served(model: ModelServer) -> None:
    model.scenario = script(Say("Hi."))
    for path in ("/", "/v1/messages/count_tokens", "/v1/embeddings", "/v1/responses/compact"):
        reply = send(model, "POST", path, b"{}")
        assert (reply.status, reply.json["error"]["type"]) == (404, "not_found_error")
    assert send(model, "DELETE", "/v1/messages").status == 501
    assert (model.requests, model.errors) == ([], [])


def test_looking_whether_somebody_is_there_is_no_request(model: ModelServer) -> None:
    model.scenario = script(Say("Hi."))
    there, models = send(model, "HEAD", "/"), send(model, "GET", "/v1/models?limit=9")
    assert (there.status, there.body) == (200, b"")
    assert (models.status, models.json["data"]) == (200, [])
    assert (model.requests, model.errors) == ([], [])


def test_one_connection_serves_many_requests(model: ModelServer) -> None:
    model.scenario = script(Fail(status=500, times=1), Say("Hi."))
    connection = connect(model)
    exchange(connection, "HEAD", "/")
    first = connection.sock
    for api in APIS:
        for stream in (True, False):
            exchange(connection, "POST", api.path(stream), json.dumps(api.body(Talk(), stream)).encode())
    exchange(connection, "POST", "/nowhere", b"{}")
    exchange(connection, "POST", "/v1/messages", b"{")
    assert exchange(connection, "GET", "/").status == 200
    assert connection.sock is first, "nobody had to connect again"
    connection.close()
    assert len(model.requests) == 8


def test_when_it_has_closed_nobody_is_served() -> None:
    with ModelServer(script(Say("Hi."))) as model:
        connection = connect(model)
        exchange(connection, "GET", "/")
    try:
        with pytest.raises(OSError, match=r"\S"):
            exchange(connection, "GET", "/")
    finally:
        connection.close()


def mistaken(request: Request) -> Turn:
    raise LookupError("a mistake in the script")


def unreadable(request: Request) -> Turn:
    return Say(Path("/no/such/file").read_text())


def no_turn(request: Request) -> Turn:
    return None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        (mistaken, "LookupError: a mistake in the script"),
        (no_turn, "no answer to None"),
        (script(All((Say("a"), Silence()))), "no answer to Silence"),
        pytest.param(unreadable, "FileNotFoundError"),
    ],
)
def test_a_mistake_in_a_scenario_is_told(
    model: ModelServer, scenario: Callable[[Request], Turn], words: str, stream: bool
) -> None:
    model.scenario = scenario
    with pytest.raises(RemoteDisconnected):
        ask(model, ANTHROPIC, stream=stream)
    assert len(model.errors) == 1
    assert words in model.errors[0]
    model.scenario = script(Say("Hi."))
    assert hear(model, ANTHROPIC, stream=stream).text == "Hi.", "the next one is served"
    assert len(model.requests) == 2


def test_a_client_that_goes_away_is_no_error(api: Api) -> None:
    before = set(threading.enumerate())
    with ModelServer(script(Drip("word " * 50, 0.001))) as model:
        connection = connect(model)
        connection.request("POST", api.path(True), json.dumps(api.body(Talk(), True)).encode())
        connection.getresponse().close()
        connection.close()
    assert wait_for(lambda: set(threading.enumerate()) <= before)
    assert (len(model.requests), model.errors) == (1, [])


def test_a_client_that_breaks_off_is_no_error() -> None:
    before = set(threading.enumerate())
    with ModelServer(script()) as model:
        place = urlsplit(model.url)
        with socket.create_connection((place.hostname, place.port), PATIENCE) as connection:
            head = b"POST /v1/messages HTTP/1.1\r\nContent-Length: 50\r\nExpect: 100-continue\r\n\r\n"
            connection.sendall(head)
            assert connection.recv(100).startswith(b"HTTP/1.1 100 "), "it waits for the rest"
            connection.sendall(b"{")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset, not closed
    assert wait_for(lambda: set(threading.enumerate()) <= before)
    assert (model.requests, model.errors) == ([], [])


def test_it_listens_to_this_machine_only() -> None:
    with ModelServer(script()) as model:
        place = urlsplit(model.url)
        assert place.hostname == "127.0.0.1"
        assert place.port
        assert send(model, "HEAD", "/").status == 200
        for other in ("127.0.0.2", "::1"):
            with pytest.raises(OSError, match=r"\S"):
                socket.create_connection((other, place.port), 1).close()


def test_two_servers_know_nothing_of_each_other() -> None:
    with ModelServer(script(Say("One."))) as one, ModelServer(script(Say("Two."))) as two:
        assert one.url != two.url
        assert (hear(one, CHAT).text, hear(two, GEMINI).text) == ("One.", "Two.")
    assert [[each.dialect for each in model.requests] for model in (one, two)] == [["chat"], ["gemini"]]


def test_a_closed_server_is_gone() -> None:
    with ModelServer(script()) as model:
        pass
    with pytest.raises(ConnectionRefusedError):
        ask(model, CHAT)
