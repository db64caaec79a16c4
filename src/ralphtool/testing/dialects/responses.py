"""OpenAI's Responses API."""

from __future__ import annotations

import json
import time
from typing import Any

from ralphtool.testing.dialects import INPUT_TOKENS, OUTPUT_TOKENS, Answer, ToolCall, event, words
from ralphtool.testing.scenario import Fail, Request, TooLong

_SPOKEN = ("function_call", "custom_tool_call", "local_shell_call", "reasoning")
_ERRORS = {  # by status: type and code
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "unsupported_country_region_territory"),
    429: ("requests", "rate_limit_exceeded"),
    503: ("service_unavailable_error", "server_is_overloaded"),
    529: ("service_unavailable_error", "server_is_overloaded"),
}
_TOO_LONG = "Your input exceeds the context window of this model. Please adjust your input and try again."


class ResponsesDialect:
    name = "responses"
    content_type = "text/event-stream"

    def serves(self, path: str) -> bool:
        return path.endswith("/responses")

    def request(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> Request:
        items = _items(body.get("input") or [])
        return Request(
            dialect=self.name,
            model=body.get("model", ""),
            system="\n".join([body.get("instructions") or "", *_texts(items, "developer", "system")]),
            prompt="\n".join(_texts(items, "user")),
            step=_count_steps(items),
            tools=tuple(_map_tools(body.get("tools") or [])),
            results=tuple(_text(item.get("output")) for item in items if item.get("type", "").endswith("_output")),
            stream=bool(body.get("stream")),
            headers=headers,
            body=body,
        )

    def stream(self, answer: Answer, request: Request) -> list[bytes]:
        pieces = [_build_event({"type": "response.created", "response": _response([], request, "in_progress")})]
        output = _output(answer, request)
        for index, item in enumerate(output):
            pieces += _stream_item(index, item)
        return [
            *pieces,
            _build_event({"type": "response.completed", "response": _response(output, request, "completed")}),
        ]

    def whole(self, answer: Answer, request: Request) -> bytes:
        return json.dumps(_response(_output(answer, request), request, "completed")).encode()

    def error(self, turn: Fail | TooLong, request: Request) -> tuple[int, dict[str, str], bytes]:
        if isinstance(turn, TooLong) and request.stream:
            return _build_too_long_error()
        if isinstance(turn, TooLong):
            told = {"message": _TOO_LONG, "type": "invalid_request_error", "code": "context_length_exceeded"}
            return 400, {}, json.dumps({"error": told | {"param": "input"}}).encode()
        kind, code = _ERRORS.get(turn.status, ("server_error" if turn.status >= 500 else "invalid_request_error", None))
        error = {"message": turn.message or f"the script says {turn.status}", "type": kind, "param": None, "code": code}
        headers = dict(turn.headers)
        if turn.reset_in is not None:
            headers |= {"retry-after": str(round(turn.reset_in))} | quota(100, turn.reset_in)
            error |= _build_quota_error(turn.reset_in)
        return turn.status, headers, json.dumps({"error": error}).encode()


def quota(used_percent: float, reset_in: float, minutes: int = 300) -> dict[str, str]:
    """The headers that report how much of a subscription's quota is used."""
    return {
        "x-codex-primary-used-percent": str(used_percent),
        "x-codex-primary-window-minutes": str(minutes),
        "x-codex-primary-reset-at": str(round(time.time() + reset_in)),
    }


def _build_quota_error(reset_in: float) -> dict[str, Any]:
    """A subscription's limit, the only one that is reported with its reset time."""
    return {
        "type": "usage_limit_reached",
        "code": None,
        "plan_type": "plus",
        "resets_at": round(time.time() + reset_in),
        "resets_in_seconds": round(reset_in),
    }


def _build_too_long_error() -> tuple[int, dict[str, str], bytes]:
    """Reported in the stream: the status was sent before the tokens were counted, so it is 200."""
    error = {"code": "context_length_exceeded", "message": _TOO_LONG}
    failed = {"id": "resp_failed", "object": "response", "status": "failed", "error": error, "output": []}
    return 200, {"Content-Type": "text/event-stream"}, _build_event({"type": "response.failed", "response": failed})


def _build_event(data: dict[str, Any]) -> bytes:
    return event(data, data["type"])


# --- requests ---------------------------------------------------------------------------------------


def _items(given: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given


def _texts(items: list[dict[str, Any]], *roles: str) -> list[str]:
    return [_text(item.get("content")) for item in items if item.get("role") in roles]


def _text(content: Any) -> str:
    """Content is a text, or a list of parts that have one."""
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content)
    return content if isinstance(content, str) else ""


def _count_steps(items: list[dict[str, Any]]) -> int:
    """Consecutive items of the model count as one answer."""
    spoken = [item.get("role") == "assistant" or item.get("type") in _SPOKEN for item in items]
    return sum(now and not before for before, now in zip([False, *spoken], spoken, strict=False))


def _map_tools(tools: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """The names by which each tool is called. Tools of an MCP server come as one tool that contains them."""
    names = {tool.get("name") or tool.get("type", ""): {"name": tool.get("name", "")} for tool in tools}
    inner = {
        f"{tool['name']}__{one['name']}": {"namespace": tool["name"], "name": one["name"]}
        for tool in tools
        for one in tool.get("tools") or []
    }
    return names | inner


# --- responses --------------------------------------------------------------------------------------


def _output(answer: Answer, request: Request) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if answer.text:
        part = {"type": "output_text", "text": answer.text, "annotations": []}
        items.append({"type": "message", "id": f"msg_{request.step:04}", "role": "assistant", "content": [part]})
    if answer.call:
        items.append(_call(answer.call, request))
    return [item | {"status": "completed"} for item in items]


def _call(call: ToolCall, request: Request) -> dict[str, Any]:
    names = _map_tools(request.body.get("tools") or []).get(call.name, {"name": call.name})
    ids = {"id": f"fc_{request.step:04}", "call_id": f"call_{request.step:04}"}
    return {"type": "function_call", **ids, **names, "arguments": json.dumps(call.arguments)}


def _response(output: list[dict[str, Any]], request: Request, status: str) -> dict[str, Any]:
    response = {
        "id": f"resp_{request.step:04}",
        "object": "response",
        "created_at": int(time.time()),
        "status": status,
        "model": request.model,
        "output": output,
    }
    return response | ({"usage": _usage()} if status == "completed" else {})


def _usage() -> dict[str, Any]:
    return {
        "input_tokens": INPUT_TOKENS,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": OUTPUT_TOKENS,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
    }


def _stream_item(index: int, item: dict[str, Any]) -> list[bytes]:
    place = {"output_index": index, "item_id": item["id"]}
    if item["type"] == "message":
        empty = item | {"content": []}
        deltas = [
            {"type": "response.output_text.delta", "content_index": 0, "delta": word}
            for word in words(item["content"][0]["text"])
        ]
    else:
        empty = item | {"arguments": ""}
        deltas = [{"type": "response.function_call_arguments.delta", "delta": item["arguments"]}]
    return [
        _build_event(
            {"type": "response.output_item.added", "output_index": index, "item": empty | {"status": "in_progress"}}
        ),
        *(_build_event(delta | place) for delta in deltas),
        _build_event({"type": "response.output_item.done", "output_index": index, "item": item}),
    ]
