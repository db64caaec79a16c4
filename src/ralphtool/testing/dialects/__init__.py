"""The APIs of different model providers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from ralphtool.testing.scenario import Fail, Request, TooLong

INPUT_TOKENS, OUTPUT_TOKENS = 1000, 50  # in every response


class ToolCall(Struct, frozen=True):
    name: str
    arguments: dict[str, Any]


class Answer(Struct, frozen=True):
    """The model's text, and its tool call, if any."""

    text: str = ""
    call: ToolCall | None = None


class Dialect(Protocol):
    """The API of one provider."""

    name: str
    content_type: str  # of a stream

    def serves(self, path: str) -> bool: ...

    def request(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> Request: ...

    def stream(self, answer: Answer, request: Request) -> list[bytes]:
        """The answer in the pieces that are sent."""
        ...

    def whole(self, answer: Answer, request: Request) -> bytes: ...

    def error(self, turn: Fail | TooLong, request: Request) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body."""
        ...


def event(data: dict[str, Any], name: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def words(text: str) -> list[str]:
    """A text in pieces, the way models stream it."""
    found = text.split(" ")
    return [word + " " for word in found[:-1]] + found[-1:]
