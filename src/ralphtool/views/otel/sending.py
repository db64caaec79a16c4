"""The targets of an export: a file or standard output, one request per line, or an OTLP/HTTP endpoint.

Headers come from `OTEL_EXPORTER_OTLP_HEADERS`, as for the SDKs of OpenTelemetry, and never appear in a message.
"""

from __future__ import annotations

import http.client
import re
import time
import urllib.error
import urllib.request
from typing import IO, TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from ralphtool.core import quickjson
from ralphtool.errors import RemoteFailed, WrongSetting
from ralphtool.settings.executor import is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable

HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
_TIMEOUT = 10.0  # seconds
_PAUSES = (1.0, 2.0, 4.0)  # seconds between two tries
_LONGEST_PAUSE = 30.0  # seconds that a server can ask for
_PASSING = (429, 502, 503, 504)
_LONGEST_ANSWER = 64 << 10  # bytes
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class Target(Protocol):
    """Accepts requests, each one line of OTLP/JSON."""

    rejected: int  # spans and points that were not accepted

    def send_spans(self, body: bytes) -> None: ...

    def send_metrics(self, body: bytes) -> None: ...


class LinesTarget:
    """Writes each request as a line, as the file exporter of the collector does."""

    rejected = 0

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def send_spans(self, body: bytes) -> None:
        self._file.write(body + b"\n")
        self._file.flush()

    send_metrics = send_spans


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The headers are for one server only."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


class HttpTarget:
    """Posts each request, and retries where that can help."""

    def __init__(self, endpoint: str, headers: dict[str, str], sleep: Callable[[float], None] = time.sleep) -> None:
        self.rejected = 0
        self._endpoint = endpoint.rstrip("/")
        self._headers = {"User-Agent": "ralphtool", **headers, "Content-Type": "application/json"}
        self._sleep = sleep
        host = urlsplit(endpoint).netloc
        is_local = is_loopback(host) or is_loopback(f"{host}:80")
        # Proxies are only for other machines.
        direct = [urllib.request.ProxyHandler({})] if is_local else []
        self._opener = urllib.request.build_opener(_NoRedirect, *direct)

    def send_spans(self, body: bytes) -> None:
        self._post("/v1/traces", body)

    def send_metrics(self, body: bytes) -> None:
        self._post("/v1/metrics", body)

    def _post(self, path: str, body: bytes) -> None:
        for pause in (*_PAUSES, None):
            wanted, trouble = self._try_post(path, body)
            if not trouble:
                return
            if pause is None or wanted is None:
                raise RemoteFailed(f"{self._endpoint}{path} {trouble}")
            self._sleep(max(pause, wanted))

    def _try_post(self, path: str, body: bytes) -> tuple[float | None, str]:
        """The seconds to wait before a retry, None if a retry is pointless; and what went wrong, if anything."""
        request = urllib.request.Request(self._endpoint + path, body, self._headers)  # noqa: S310 (checked: http, https)
        try:
            with self._opener.open(request, timeout=_TIMEOUT) as response:
                self.rejected += _count_rejected(response.read(_LONGEST_ANSWER))
                return None, ""
        except urllib.error.HTTPError as error:
            with error:
                wanted = _parse_pause(error.headers.get("Retry-After")) if error.code in _PASSING else None
                return wanted, _explain_status(error.code)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            told = getattr(reason, "strerror", None) or type(reason).__name__
            return 0.0, f"can't be reached ({told}): check the address, and that a collector listens there"


def _explain_status(code: int) -> str:
    advice = {401: f"check {HEADERS}", 403: f"check {HEADERS}", 404: "check the address"}
    if 300 <= code < 400:
        return f"answered {code}: redirects are not followed, name the address that it leads to"
    return f"answered {code}: {advice.get(code, 'its log should say why')}"


def _parse_pause(text: str | None) -> float:
    return min(float(text), _LONGEST_PAUSE) if text and text.isascii() and text.isdecimal() else 0.0


def _count_rejected(answer: bytes) -> int:
    """The number of spans and points that the server reports as rejected."""
    try:
        told = quickjson.loads(answer.decode()).get("partialSuccess") or {}
        return sum(int(told.get(name) or 0) for name in ("rejectedSpans", "rejectedDataPoints"))
    except (ValueError, AttributeError, TypeError, OverflowError, RecursionError):
        return 0  # accepted, but the answer has another format


def parse_headers(text: str) -> dict[str, str]:
    """`name=value,name=value`, the values percent-encoded. None of it appears in messages."""
    found: dict[str, str] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        name, equals, value = (part.strip() for part in item.partition("="))
        value = unquote(value)
        if not equals or not _TOKEN.fullmatch(name) or not (value.isascii() and value.isprintable()):
            raise WrongSetting(f"{HEADERS} can't be read: write it as name=value,name=value")
        found[name] = value
    return found
