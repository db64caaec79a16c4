"""The four APIs of models, as a client of each maker's real API uses them: no code of ralphtool reads the answers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPConnection, IncompleteRead
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from patience import PATIENCE

from ralphtool.testing import (
    ModelServer,
)


class Talk(NamedTuple):
    """A conversation so far. `told` are the results of tools: before each, the model called one."""

    prompt: str = "Do it."
    system: str = "Be good."
    tools: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


class Heard(NamedTuple):
    """An answer, as a client understands it. Without its end it is incomplete."""

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


class Api:
    """One maker's API, from the client's side."""

    name: str
    reasons: tuple[str, str]  # why an answer ended: it is complete; a tool is called

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
    """Name and data of each complete server-sent event."""
    for block in data.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        yield fields.get("event", ""), fields["data"]


def named_events(data: bytes) -> list[dict[str, Any]]:
    """The events of makers whose event names equal the types in the data."""
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


def wait_for(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + PATIENCE
    while not holds() and time.monotonic() < until:
        time.sleep(0.01)
    return holds()
