"""Anthropic's Messages API."""

from __future__ import annotations

import json
import time
from typing import Any

from ralphtool.testing.dialects import INPUT_TOKENS, OUTPUT_TOKENS, Answer, event, words
from ralphtool.testing.scenario import Fail, Request, TooLong

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class AnthropicDialect:
    name = "anthropic"
    content_type = "text/event-stream"

    def serves(self, path: str) -> bool:
        return path.endswith("/v1/messages")

    def request(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> Request:
        messages = body.get("messages") or []
        blocks = [block for one in messages if one["role"] == "user" for block in _blocks(one["content"])]
        return Request(
            dialect=self.name,
            model=body.get("model", ""),
            system="\n".join(block.get("text", "") for block in _blocks(body.get("system") or [])),
            prompt="\n".join(block["text"] for block in blocks if block.get("type") == "text"),
            step=sum(one["role"] == "assistant" for one in messages),
            tools=tuple(tool["name"] for tool in body.get("tools") or [] if "name" in tool),
            results=tuple(_result_text(block) for block in blocks if block.get("type") == "tool_result"),
            stream=bool(body.get("stream")),
            headers=headers,
            body=body,
        )

    def stream(self, answer: Answer, request: Request) -> list[bytes]:
        start = _message([], request) | {"stop_reason": None}
        pieces = [_build_event({"type": "message_start", "message": start})]
        for index, block in enumerate(_content(answer, request)):
            pieces += _stream_block(index, block)
        pieces.append(
            _build_event(
                {
                    "type": "message_delta",
                    "delta": {"stop_reason": _reason(answer), "stop_sequence": None},
                    "usage": {"output_tokens": OUTPUT_TOKENS},
                }
            )
        )
        return [*pieces, _build_event({"type": "message_stop"})]

    def whole(self, answer: Answer, request: Request) -> bytes:
        message = _message(_content(answer, request), request)
        return json.dumps(message | {"stop_reason": _reason(answer)}).encode()

    def error(self, turn: Fail | TooLong, request: Request) -> tuple[int, dict[str, str], bytes]:
        if isinstance(turn, TooLong):
            return 400, {}, _error("invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum")
        kind = _TYPES.get(turn.status, "api_error" if turn.status >= 500 else "invalid_request_error")
        headers = dict(turn.headers)
        if turn.reset_in is not None:
            at = time.time() + turn.reset_in
            headers |= {
                "retry-after": str(round(turn.reset_in)),
                "anthropic-ratelimit-unified-status": "rejected",
                "anthropic-ratelimit-unified-reset": str(round(at)),
            }
        return turn.status, headers, _error(kind, turn.message or f"the script says {turn.status}")


def _build_event(data: dict[str, Any]) -> bytes:
    return event(data, data["type"])


def _error(kind: str, message: str) -> bytes:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()


def _blocks(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _result_text(block: dict[str, Any]) -> str:
    return "\n".join(one.get("text", "") for one in _blocks(block.get("content") or []))


def _reason(answer: Answer) -> str:
    return "tool_use" if answer.call else "end_turn"


def _content(answer: Answer, request: Request) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": answer.text}] if answer.text else []
    if answer.call:
        call = {"type": "tool_use", "id": f"toolu_{request.step:04}", "name": answer.call.name}
        blocks.append(call | {"input": answer.call.arguments})
    return blocks


def _message(content: list[dict[str, Any]], request: Request) -> dict[str, Any]:
    return {
        "id": f"msg_{request.step:04}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": content,
        "stop_sequence": None,
        "usage": {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS},
    }


def _stream_block(index: int, block: dict[str, Any]) -> list[bytes]:
    if block["type"] == "text":
        empty, deltas = block | {"text": ""}, [{"type": "text_delta", "text": word} for word in words(block["text"])]
    else:
        empty = block | {"input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
    return [
        _build_event({"type": "content_block_start", "index": index, "content_block": empty}),
        *(_build_event({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas),
        _build_event({"type": "content_block_stop", "index": index}),
    ]
