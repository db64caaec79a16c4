"""Gemini's generateContent API."""

from __future__ import annotations

import json
from typing import Any

from ralphtool.testing.dialects import INPUT_TOKENS, OUTPUT_TOKENS, Answer, event, words
from ralphtool.testing.scenario import Fail, Request, TooLong

_STATES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
_TOO_LONG = "The input token count (1196265) exceeds the maximum number of tokens allowed (1048576)."
_RETRY = "type.googleapis.com/google.rpc.RetryInfo"


class GeminiDialect:
    name = "gemini"
    content_type = "text/event-stream"

    def serves(self, path: str) -> bool:
        return "enerateContent" in path

    def request(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> Request:
        contents = body.get("contents") or []
        parts = [part for one in contents if one.get("role") != "model" for part in one.get("parts") or []]
        model, _, method = path.partition("?")[0].rpartition("/")[2].partition(":")
        return Request(
            dialect=self.name,
            model=model,
            system=_text((body.get("systemInstruction") or {}).get("parts") or []),
            prompt=_text(parts),
            step=sum(one.get("role") == "model" for one in contents),
            tools=tuple(tool["name"] for tool in _list_tools(body)),
            results=tuple(_result_text(part["functionResponse"]) for part in parts if "functionResponse" in part),
            stream=method == "streamGenerateContent",
            headers=headers,
            body=body,
        )

    def stream(self, answer: Answer, request: Request) -> list[bytes]:
        *first, last = _parts(answer, request)
        return [*(event(_chunk([part], request)) for part in first), event(_build_last_chunk([last], request))]

    def whole(self, answer: Answer, request: Request) -> bytes:
        said = [{"text": answer.text}] if answer.text else []
        return json.dumps(_build_last_chunk([*said, *_calls(answer, request)], request)).encode()

    def error(self, turn: Fail | TooLong, request: Request) -> tuple[int, dict[str, str], bytes]:
        if isinstance(turn, TooLong):
            return 400, {}, _error(400, _TOO_LONG)
        status = 503 if turn.status == 529 else turn.status  # it has no other status for overload
        message = turn.message or f"the script says {turn.status}"
        if turn.reset_in is None:
            return status, turn.headers, _error(status, message)
        delay = f"{turn.reset_in:.10g}s"
        return status, turn.headers, _error(status, message, {"@type": _RETRY, "retryDelay": delay})


def _error(code: int, message: str, *details: dict[str, Any]) -> bytes:
    error = {"code": code, "message": message, "status": _STATES.get(code, "UNKNOWN")}
    return json.dumps({"error": error | ({"details": details} if details else {})}).encode()


def _text(parts: list[dict[str, Any]]) -> str:
    return "\n".join(part["text"] for part in parts if "text" in part)


def _list_tools(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for group in body.get("tools") or [] for one in group.get("functionDeclarations") or []]


def _result_text(result: dict[str, Any]) -> str:
    response = result.get("response") or {}
    return str(response.get("output") or response.get("error") or json.dumps(response))


def _parts(answer: Answer, request: Request) -> list[dict[str, Any]]:
    """The parts to send one after another; at least one, since an answer without parts is invalid."""
    said = [{"text": word} for word in words(answer.text)] if answer.text or not answer.call else []
    return [*said, *_calls(answer, request)]


def _calls(answer: Answer, request: Request) -> list[dict[str, Any]]:
    if not answer.call:
        return []
    call = {"id": f"call_{request.step:04}", "name": answer.call.name, "args": answer.call.arguments}
    return [{"functionCall": call}]


def _chunk(parts: list[dict[str, Any]], request: Request, **more: str) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": parts}, "index": 0, **more}
    return {"candidates": [candidate], "modelVersion": request.model}


def _build_last_chunk(parts: list[dict[str, Any]], request: Request) -> dict[str, Any]:
    usage = {
        "promptTokenCount": INPUT_TOKENS,
        "candidatesTokenCount": OUTPUT_TOKENS,
        "totalTokenCount": INPUT_TOKENS + OUTPUT_TOKENS,
    }
    return _chunk(parts, request, finishReason="STOP") | {"usageMetadata": usage}
