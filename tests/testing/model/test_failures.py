"""The scripted model, as a client of each maker's real API sees it: errors, limits and broken connections."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from http.client import RemoteDisconnected
from typing import Any
from urllib.parse import urlsplit

import pytest
from patience import PATIENCE
from testing.model.apis import (
    ANTHROPIC,
    APIS,
    CHAT,
    GEMINI,
    RESPONSES,
    Api,
    Heard,
    Reply,
    Talk,
    ask,
    connect,
    events,
    hear,
    named_events,
    wait_for,
)

from ralphtool.testing import (
    Cut,
    Drip,
    Fail,
    ModelServer,
    Request,
    Say,
    Silence,
    TooLong,
    Turn,
    script,
)

# By status: the status of the answer, and the maker's name for the error.
ERRORS: dict[str, dict[int, tuple[int, str]]] = {
    "anthropic": {
        401: (401, "authentication_error"),
        429: (429, "rate_limit_error"),
        500: (500, "api_error"),
        529: (529, "overloaded_error"),
    },
    "responses": {
        401: (401, "invalid_api_key"),
        429: (429, "rate_limit_exceeded"),
        500: (500, "server_error"),
        529: (529, "server_is_overloaded"),
    },
    "chat": {
        401: (401, "invalid_api_key"),
        429: (429, "rate_limit_exceeded"),
        500: (500, "server_error"),
        529: (529, "overloaded_error"),
    },
    "gemini": {
        401: (401, "UNAUTHENTICATED"),
        429: (429, "RESOURCE_EXHAUSTED"),
        500: (500, "INTERNAL"),
        529: (503, "UNAVAILABLE"),
    },
}
TELLS_RESET = ("retry", "reset", "ratelimit")


def kind_of(api: Api, error: dict[str, Any]) -> Any:
    if api is GEMINI:
        return error["status"]
    return error["type"] if api is ANTHROPIC else error["code"] or error["type"]


@pytest.mark.parametrize("status", [401, 429, 500, 529])
def test_errors_are_told_as_the_maker_tells_them(model: ModelServer, status: int, api: Api, stream: bool) -> None:
    model.scenario = script(Fail(status=status))
    reply = ask(model, api, stream=stream)
    error = reply.json["error"]
    assert (reply.status, kind_of(api, error)) == ERRORS[api.name][status]
    assert reply.headers["content-type"] == "application/json"
    assert error["message"]
    assert reply.json.get("type") == ("error" if api is ANTHROPIC else None)
    assert error.get("code") == reply.status or api is not GEMINI
    assert not [name for name in reply.headers if any(word in name for word in TELLS_RESET)], "nobody said when"
    assert not {"details", "resets_at"} & error.keys()


def test_an_error_has_the_words_and_headers_of_the_script(model: ModelServer, api: Api) -> None:
    model.scenario = script(Fail(status=500, message="It broke.", headers={"x-why": "because"}))
    reply = ask(model, api)
    assert (reply.json["error"]["message"], reply.headers["x-why"]) == ("It broke.", "because")


def limited(model: ModelServer, api: Api, reset_in: float, **more: Any) -> tuple[Reply, range]:
    """The answer, and the times at which the limit may end."""
    model.scenario = script(Fail(status=429, reset_in=reset_in, **more))
    before = round(time.time() + reset_in)
    reply = ask(model, api)
    return reply, range(before, round(time.time() + reset_in) + 1)


def test_anthropic_tells_when_a_limit_ends(model: ModelServer) -> None:
    reply, moments = limited(model, ANTHROPIC, 120, headers={"x-why": "because"})
    assert (reply.headers["retry-after"], reply.headers["x-why"]) == ("120", "because")
    assert reply.headers["anthropic-ratelimit-unified-status"] == "rejected"
    assert int(reply.headers["anthropic-ratelimit-unified-reset"]) in moments


def test_responses_tell_when_a_limit_ends(model: ModelServer) -> None:
    reply, moments = limited(model, RESPONSES, 120)
    error = reply.json["error"]
    assert (error["type"], error["resets_in_seconds"]) == ("usage_limit_reached", 120)
    assert error["resets_at"] in moments
    assert (reply.headers["retry-after"], reply.headers["x-codex-primary-used-percent"]) == ("120", "100")
    assert int(reply.headers["x-codex-primary-reset-at"]) in moments


def test_chat_tells_when_a_limit_ends(model: ModelServer) -> None:
    reply, _ = limited(model, CHAT, 1.5)
    assert (reply.headers["retry-after-ms"], reply.headers["x-ratelimit-reset-requests"]) == ("1500", "1.5s")
    assert reply.headers["retry-after"] == "2"
    assert reply.json["error"]["message"].endswith("Please try again in 1.5s.")
    own, _ = limited(model, CHAT, 1.5, message="Mine.")
    assert own.json["error"]["message"] == "Mine."


@pytest.mark.parametrize(
    ("reset_in", "told"),
    [
        (120, "120s"),
        (1.5, "1.5s"),
        pytest.param(2_592_000, "2592000s"),
    ],
)
def test_gemini_tells_when_a_limit_ends(model: ModelServer, reset_in: float, told: str) -> None:
    reply, _ = limited(model, GEMINI, reset_in)
    [detail] = reply.json["error"]["details"]
    assert detail == {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": told}


TOO_LONG = {
    "anthropic": ("invalid_request_error", "prompt is too long"),
    "chat": ("context_length_exceeded", "maximum context length"),
    "gemini": ("INVALID_ARGUMENT", "exceeds the maximum number of tokens"),
}


@pytest.mark.parametrize("api", [ANTHROPIC, CHAT, GEMINI], ids=lambda each: each.name)
def test_a_conversation_that_is_too_long_is_refused(model: ModelServer, api: Api, stream: bool) -> None:
    model.scenario = script(TooLong())
    reply = ask(model, api, stream=stream)
    kind, words = TOO_LONG[api.name]
    assert (reply.status, kind_of(api, reply.json["error"])) == (400, kind)
    assert words in reply.json["error"]["message"]


def test_responses_tell_in_the_stream_that_a_conversation_is_too_long(model: ModelServer) -> None:
    model.scenario = script(TooLong())
    reply = ask(model, RESPONSES)
    assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream")
    [failed] = named_events(reply.body)
    assert (failed["type"], failed["response"]["status"]) == ("response.failed", "failed")
    assert failed["response"]["error"]["code"] == "context_length_exceeded"


def test_responses_refuse_a_conversation_that_is_too_long_to_those_who_want_no_stream(model: ModelServer) -> None:
    model.scenario = script(TooLong())
    reply = ask(model, RESPONSES, stream=False)
    assert (reply.status, reply.json["error"]["code"]) == (400, "context_length_exceeded")


def test_a_stream_that_is_cut_has_a_beginning_and_no_end(model: ModelServer, api: Api) -> None:
    model.scenario = script(Cut(text="one two three four", times=1), Say("Again."))
    reply = ask(model, api)
    assert not reply.whole
    heard = api.heard(reply, True)
    assert (heard.ended, heard.reason) == (False, None)
    assert heard.text
    assert "one two three four".startswith(heard.text.strip())
    assert hear(model, api).text == "Again.", "the next one is whole"
    assert model.errors == []


def test_an_object_that_is_cut_is_none(model: ModelServer, api: Api) -> None:
    model.scenario = script(Cut())
    reply = ask(model, api, stream=False)
    assert (reply.status, reply.whole) == (200, False)
    assert reply.body.startswith(b"{")
    with pytest.raises(ValueError, match=r"\S"):
        json.loads(reply.body)


def chunks(model: ModelServer, api: Api, stream: bool) -> list[bytes]:
    """The pieces of an answer as they are sent, which no client library shows."""
    body = json.dumps(api.body(Talk(), stream)).encode()
    place = urlsplit(model.url)
    with socket.create_connection((place.hostname, place.port), PATIENCE) as connection:
        head = (
            f"POST {api.path(stream)} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        connection.sendall(head.encode() + body)
        data = b"".join(iter(lambda: connection.recv(65536), b""))
    rest, pieces = data.split(b"\r\n\r\n", 1)[1], []
    while rest:
        size, rest = rest.split(b"\r\n", 1)
        pieces.append(rest[: int(size, 16)])
        assert rest[int(size, 16) :][:2] == b"\r\n"
        rest = rest[int(size, 16) + 2 :]
    assert pieces.pop() == b"", "the last piece is empty: that is how the end is told"
    return pieces


def test_what_drips_comes_piece_by_piece_in_order(model: ModelServer, api: Api) -> None:
    model.scenario = script(Drip("one two {token} three", 0.001))
    pieces = chunks(model, api, True)
    assert all(len(list(events(piece))) == 1 for piece in pieces), "one event each"
    said = [word for piece in pieces for word in (b"one ", b"two ", b"three") if b'"' + word + b'"' in piece]
    assert said == [b"one ", b"two ", b"three"]
    assert api.streamed(b"".join(pieces)) == Heard("one two  three", [], (1000, 50), api.reasons[0], ended=True)


def test_an_object_drips_too(model: ModelServer, api: Api) -> None:
    model.scenario = script(Drip("one two three", 0.001))
    pieces = chunks(model, api, False)
    assert len(pieces) >= 3
    assert api.whole(b"".join(pieces)).text == "one two three"


def closed_amid(scenario: Callable[[Request], Turn], *apis: Api) -> list[Future[Reply]]:
    """What waiting clients got when the server closed. It leaves no thread running."""
    before = set(threading.enumerate())
    with ThreadPoolExecutor() as pool:
        with ModelServer(scenario) as model:
            waiting = [pool.submit(ask, model, api) for api in apis]
            assert wait_for(lambda: len(model.requests) == len(apis))
        wait(waiting, PATIENCE)
    assert wait_for(lambda: set(threading.enumerate()) <= before), "no thread is left"
    assert model.errors == []
    return waiting


def test_what_drips_ends_with_the_server() -> None:
    [waiting] = closed_amid(script(Drip("one two", 3600)), ANTHROPIC)
    assert b"message_stop" not in waiting.result(0).body


def test_what_drips_is_cut_when_the_server_closes() -> None:
    [waiting] = closed_amid(script(Drip("one two", 3600)), CHAT)
    assert not waiting.result(0).whole


def test_silence_ends_with_the_server() -> None:
    for each in closed_amid(script(Silence()), *APIS):
        with pytest.raises(RemoteDisconnected):
            each.result(0)


def test_silence_lasts_until_the_client_gives_up(api: Api, stream: bool) -> None:
    with ModelServer(script(Silence(times=1), Say("Here."))) as model:
        before = set(threading.enumerate())
        connection = connect(model)
        connection.request("POST", api.path(stream), json.dumps(api.body(Talk(), stream)).encode())
        assert wait_for(lambda: bool(model.requests))
        connection.sock.settimeout(0.05)
        with pytest.raises(TimeoutError):
            connection.getresponse()
        connection.close()
        assert wait_for(lambda: set(threading.enumerate()) <= before), "nobody goes on waiting"
        assert hear(model, api, stream=stream).text == "Here."
    assert model.errors == []
