"""Requests and responses as values: the small part of HTTP that one page needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_MOST_PARAMETERS = 20
_HEADERS = (
    ("Cache-Control", "no-store"),
    ("Connection", "close"),  # so that every request must arrive soon after its connection
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
)


class Request(NamedTuple):
    method: str
    path: str
    query: Mapping[str, str]
    headers: tuple[tuple[str, str], ...]  # names in lower case; repeated headers are kept

    def list_values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    def list_cookies(self, name: str) -> list[str]:
        """All cookies of that name: another server on this machine can set a second one."""
        pairs = [one.strip().partition("=") for line in self.list_values("cookie") for one in line.split(";")]
        return [value for key, _, value in pairs if key == name]


class Response(NamedTuple):
    status: int
    content_type: str = "application/json"
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


def read_request(scope: Mapping[str, Any]) -> Request:
    """A request from an ASGI scope. A malformed query counts as empty."""
    try:
        pairs = parse_qsl(scope["query_string"].decode("ascii"), True, max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        pairs = []
    headers = tuple((key.decode("latin-1").lower(), value.decode("latin-1")) for key, value in scope["headers"])
    return Request(scope["method"], scope["path"], dict(pairs), headers)


def answer_json(value: object, status: int = 200, *headers: tuple[str, str]) -> Response:
    return Response(status, "application/json", msgspec.json.encode(value), headers)


def refuse(status: int, why: str, *headers: tuple[str, str]) -> Response:
    """An error response: one sentence that says what to do."""
    return answer_json({"error": why}, status, *headers)


def encode_headers(content_type: str, *more: tuple[str, str]) -> list[tuple[bytes, bytes]]:
    pairs = (("Content-Type", content_type), *_HEADERS, *more)
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in pairs]
