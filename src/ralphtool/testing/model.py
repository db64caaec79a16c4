"""A model that follows a script, on 127.0.0.1, so that agent programs can run without cost.

It has the APIs of the real ones: Anthropic's Messages, OpenAI's Responses and Chat Completions, Gemini's
generateContent; streamed or not, as the agent requests.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from ralphtool.testing import homes, tools
from ralphtool.testing.dialects import Answer, Dialect
from ralphtool.testing.dialects.anthropic import AnthropicDialect
from ralphtool.testing.dialects.chat import ChatDialect
from ralphtool.testing.dialects.gemini import GeminiDialect
from ralphtool.testing.dialects.responses import ResponsesDialect
from ralphtool.testing.scenario import Cut, Drip, Fail, Request, Say, Scenario, Silence, TooLong, Turn

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ModelServer", "Request"]

DIALECTS: tuple[Dialect, ...] = (AnthropicDialect(), ChatDialect(), GeminiDialect(), ResponsesDialect())
_LONGEST_SILENCE = 600.0  # seconds; a forgotten test must not keep a thread forever


class ModelServer:
    """Serves a scenario while its context is open. `requests` has the requests so far.

    `root` is the folder that the agent works in: relative paths in a scenario are below it. `headers` are sent with
    every response except errors: providers report the used quota there.
    """

    def __init__(self, scenario: Scenario, root: str = "", headers: dict[str, str] | None = None) -> None:
        self.scenario = scenario
        self.root = root
        self.headers = headers or {}
        self.requests: list[Request] = []
        self.errors: list[str] = []  # of a scenario, or our own: a test should see none
        self.began: list[float] = []  # the time of each request, by time.monotonic()
        self.closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Exchange)
        self._server.model = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def environment(self, agent: str, home: str) -> dict[str, str]:
        """The variables that make a real program use this server, with `home` as its own fresh home."""
        return homes.environment(agent, self.url, home)

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def turn(self, request: Request) -> Turn:
        """Chooses under a lock, so that hindrances are counted correctly even with concurrent requests."""
        with self._server.lock:
            self.requests.append(request)
            self.began.append(time.monotonic())
            return self.scenario(request)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    model: ModelServer

    def __init__(self, address: tuple[str, int], exchange: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, exchange)
        self.lock = threading.Lock()

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if not isinstance(error, OSError):  # an agent that disconnects is not an error
            self.model.errors.append("".join(traceback.format_exception(error)))


class _Exchange(BaseHTTPRequestHandler):
    """One connection of an agent."""

    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Tests use `requests` instead."""

    def parse_request(self) -> bool:
        """Once the server is closing, no request is served, even on kept-alive connections."""
        self.close_connection = self.server.model.closing.is_set()
        return not self.close_connection and super().parse_request()

    def do_HEAD(self) -> None:
        self._send_plain(200, b"")

    def do_GET(self) -> None:
        self._send_plain(200, b'{"data": [], "models": []}')

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        dialect = next((one for one in DIALECTS if one.serves(path)), None)
        if dialect is None:
            self._send_plain(404, b'{"error": {"message": "there is nothing here", "type": "not_found_error"}}')
            return
        try:
            body = json.loads(data)
        except ValueError:
            self._send_plain(400, b'{"error": {"message": "this is no JSON", "type": "invalid_request_error"}}')
            return
        request = dialect.request(self.path, body, {name.lower(): value for name, value in self.headers.items()})
        try:
            turn = self.server.model.turn(request)
        except OSError as error:  # an error of the scenario; other OSErrors come from disconnected agents
            raise RuntimeError(f"the scenario failed: {error}") from error
        self._answer(dialect, request, turn)

    def _answer(self, dialect: Dialect, request: Request, turn: Turn) -> None:
        match turn:
            case Fail() | TooLong():
                status, headers, body = dialect.error(turn, request)
                self._send_plain(status, body, headers)
            case Silence():
                self._say_nothing()
            case Cut():
                pieces, kind = self._build_pieces(dialect, request, turn)
                self._stream(pieces[: max(1, len(pieces) // 2)], kind, is_whole=False)
            case Drip():
                self._stream(*self._build_pieces(dialect, request, turn), pause=turn.pause)
            case _:
                self._send_answer(dialect, request, tools.answer(turn, request, self.server.model.root))

    def _build_pieces(self, dialect: Dialect, request: Request, turn: Cut | Drip) -> tuple[Sequence[bytes], str]:
        """The answer in pieces, and their type; without streaming, the single object is sent in pieces too."""
        answer = tools.answer(Say(turn.text), request, self.server.model.root)
        if request.stream:
            return dialect.stream(answer, request), dialect.content_type
        body = dialect.whole(answer, request)
        size = max(1, len(body) // max(2, len(turn.text.split())))
        return [body[start : start + size] for start in range(0, len(body), size)], "application/json"

    def _send_answer(self, dialect: Dialect, request: Request, answer: Answer) -> None:
        if request.stream:
            self._stream(dialect.stream(answer, request), dialect.content_type)
        else:
            self._send_plain(200, dialect.whole(answer, request), self.server.model.headers)

    def _send_plain(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self._send(body)

    def _stream(self, pieces: Sequence[bytes], kind: str, pause: float = 0.0, *, is_whole: bool = True) -> None:
        self.send_response(200)
        for name, value in {"Content-Type": kind, "Transfer-Encoding": "chunked", **self.server.model.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        for piece in pieces:
            if pause and self.server.model.closing.wait(pause):
                is_whole = False
                break
            self._send(b"%x\r\n%b\r\n" % (len(piece), piece))
        if is_whole:
            self._send(b"0\r\n\r\n")
        else:
            self.close_connection = True

    def _send(self, data: bytes) -> None:
        try:
            self.wfile.write(data)
            self.wfile.flush()
        except OSError:  # the agent has disconnected
            self.close_connection = True

    def _say_nothing(self) -> None:
        """Waits until the other side disconnects, up to a limit."""
        until = time.monotonic() + _LONGEST_SILENCE
        while time.monotonic() < until and not self.server.model.closing.wait(0.1) and self._is_connected():
            pass
        self.close_connection = True

    def _is_connected(self) -> bool:
        self.connection.setblocking(False)
        try:
            return bool(self.connection.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            self.connection.setblocking(True)
