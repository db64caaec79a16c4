"""A receiver of OTLP/HTTP, on this machine: it reads requests with the real protocol."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

KINDS: dict[str, Any] = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


class Receiver:
    """The requests, by path; `answers` are the statuses of the next answers, 200 if there are none."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[bytes]] = {path: [] for path in KINDS}
        self.headers: list[dict[str, str]] = []
        self.answers: list[int] = []
        self.answer = b"{}"
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._make_reply())
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def read_spans(self) -> list[Any]:
        requests = [json_format.Parse(body, ExportTraceServiceRequest()) for body in self.bodies["/v1/traces"]]
        return [span for one in requests for span in one.resource_spans[0].scope_spans[0].spans]

    def _make_reply(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Reply(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
                status = receiver.answers.pop(0) if receiver.answers else 200
                if status == 200:
                    json_format.Parse(body, KINDS[self.path]())
                    receiver.bodies[self.path].append(body)
                self.send_response(status)
                self.send_header("Location", f"{receiver.url}/elsewhere")
                self.send_header("Content-Length", str(len(receiver.answer)))
                self.end_headers()
                self.wfile.write(receiver.answer)

            def log_message(self, *about: Any) -> None:
                """Nobody reads it."""

        return Reply
