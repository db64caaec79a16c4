"""OpenAI's Chat Completions API, which many other providers support too."""

from __future__ import annotations

import json
from typing import Any

from ralphtool.testing.dialects import INPUT_TOKENS, OUTPUT_TOKENS, Answer, ToolCall, event, words
from ralphtool.testing.scenario import Fail, Request, TooLong

_CREATED = 1767225600  # any time will do

# The type, the code and the text of an error, by its status.
_ERRORS: dict[int, tuple[str, str | None, str]] = {
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided: no-key-i***here."),
    403: (
        "invalid_request_error",
        "unsupported_country_region_territory",
        "Country, region, or territory not supported",
    ),
    404: ("invalid_request_error", "model_not_found", "The model does not exist or you do not have access to it."),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached for requests per min (RPM): Limit 3, Used 3."),
    500: ("server_error", None, "The server had an error while processing your request. Sorry about that!"),
    503: ("server_error", None, "That model is currently overloaded with other requests."),
    529: ("overloaded_error", None, "Overloaded"),
}
_OTHER = ("invalid_request_error", None, "")
_TOO_LONG = (
    "This model's maximum context length is 128000 tokens. However, your messages resulted in 208310 tokens. "
    "Please reduce the length of the messages."
)


class ChatDialect:
    name = "chat"
    content_type = "text/event-stream"

    def serves(self, path: str) -> bool:
        return path.endswith("/chat/completions")

    def request(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> Request:
        messages = body.get("messages") or []
        return Request(
            dialect=self.name,
            model=body.get("model", ""),
            system="\n".join((*_list_texts(messages, "system"), *_list_texts(messages, "developer"))),
            prompt="\n".join(_list_texts(messages, "user")),
            step=_count_steps(messages),
            tools=tuple(tool["function"]["name"] for tool in body.get("tools") or [] if "function" in tool),
            results=tuple(_list_texts(messages, "tool")),
            stream=bool(body.get("stream")),
            headers=headers,
            body=body,
        )

    def stream(self, answer: Answer, request: Request) -> list[bytes]:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": word} for word in words(answer.text) if word]
        if answer.call:
            deltas.append({"tool_calls": [{"index": 0, **_build_call(answer.call, request)}]})
        pieces = [_chunk(request, [_choice(delta=delta)]) for delta in deltas]
        pieces.append(_chunk(request, [_choice(_reason(answer), delta={})]))
        if (request.body.get("stream_options") or {}).get("include_usage"):
            pieces.append(_chunk(request, [], usage=_usage()))
        return [*pieces, b"data: [DONE]\n\n"]

    def whole(self, answer: Answer, request: Request) -> bytes:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": None}
        if answer.call:
            message["tool_calls"] = [_build_call(answer.call, request)]
        choices = [_choice(_reason(answer), message=message)]
        return json.dumps(_head("chat.completion", request) | {"choices": choices, "usage": _usage()}).encode()

    def error(self, turn: Fail | TooLong, request: Request) -> tuple[int, dict[str, str], bytes]:
        if isinstance(turn, TooLong):
            return 400, {}, _error("invalid_request_error", "context_length_exceeded", _TOO_LONG, "messages")
        kind, code, text = _ERRORS.get(turn.status, _ERRORS[500] if turn.status >= 500 else _OTHER)
        text, headers = turn.message or text, dict(turn.headers)
        if turn.reset_in is not None:
            headers |= _reset(turn.reset_in)
            text += "" if turn.message else f" Please try again in {turn.reset_in:.10g}s."
        return turn.status, headers, _error(kind, code, text or f"the script says {turn.status}")


# aider begins every conversation with an invented one, in which the model's answers begin like this.
_AIDER = ("SEARCH/REPLACE", "Act as an expert code analyst")
_MADE_UP = ("Ok.", "Ok, based on your requests", "Ok, I won't try", "Ok, any changes I propose", "Ok, I will use th")
_ASKS_AGAIN = "I added these files to the chat"  # sent by aider before it processes an answer that names new files


def _count_steps(messages: list[dict[str, Any]]) -> int:
    if not any(mark in text for text in _list_texts(messages, "system") for mark in _AIDER):
        return sum(one["role"] == "assistant" for one in messages)
    talk: list[tuple[str, str]] = [
        (one["role"], _text(one.get("content"))) for one in messages if one["role"] in ("assistant", "user")
    ]
    made_up = [place for place, (role, text) in enumerate(talk) if role == "assistant" and text.startswith(_MADE_UP)]
    talk = talk[made_up[-1] + 1 :] if made_up else talk
    spoken = sum(role == "assistant" for role, _ in talk)
    return spoken - sum(role == "user" and text.startswith(_ASKS_AGAIN) for role, text in talk)


def _list_texts(messages: list[dict[str, Any]], role: str) -> list[str]:
    return [_text(one.get("content")) for one in messages if one["role"] == role]


def _text(content: str | list[dict[str, Any]] | None) -> str:
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if part.get("type") == "text")
    return content or ""


def _reason(answer: Answer) -> str:
    return "tool_calls" if answer.call else "stop"


def _build_call(call: ToolCall, request: Request) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    return {"id": f"call_{request.step:04}", "type": "function", "function": function}


def _choice(reason: str | None = None, **content: dict[str, Any]) -> dict[str, Any]:
    return {"index": 0, **content, "logprobs": None, "finish_reason": reason}


def _head(kind: str, request: Request) -> dict[str, Any]:
    return {"id": f"chatcmpl-{request.step:04}", "object": kind, "created": _CREATED, "model": request.model}


def _chunk(request: Request, choices: list[dict[str, Any]], **more: dict[str, Any]) -> bytes:
    return event(_head("chat.completion.chunk", request) | {"choices": choices, **more})


def _usage() -> dict[str, Any]:
    return {
        "prompt_tokens": INPUT_TOKENS,
        "completion_tokens": OUTPUT_TOKENS,
        "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def _reset(seconds: float) -> dict[str, str]:
    return {
        "retry-after": str(round(seconds)),
        "retry-after-ms": str(round(seconds * 1000)),
        "x-ratelimit-limit-requests": "3",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": f"{seconds:.10g}s",
    }


def _error(kind: str, code: str | None, message: str, param: str | None = None) -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}}).encode()
