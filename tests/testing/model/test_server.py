"""The scripted model: what clients should not send, and the server itself."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable
from http.client import RemoteDisconnected
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from patience import PATIENCE
from testing.model.apis import (
    ANTHROPIC,
    APIS,
    CHAT,
    GEMINI,
    Api,
    Talk,
    ask,
    connect,
    exchange,
    hear,
    send,
    wait_for,
)

from ralphtool.testing import (
    All,
    Drip,
    Fail,
    ModelServer,
    Request,
    Say,
    Silence,
    Turn,
    script,
)


@pytest.mark.parametrize("body", [b"", b"{", b"no json", b'{"model": "\xff"}'])
def test_a_body_that_is_no_json_is_refused(model: ModelServer, body: bytes, api: Api) -> None:
    model.scenario = script(Say("Hi."))
    reply = send(model, "POST", api.path(True), body)
    assert (reply.status, reply.json["error"]["type"]) == (400, "invalid_request_error")
    assert hear(model, api).text == "Hi."
    assert (len(model.requests), model.errors) == (1, [])


@pytest.mark.parametrize("body", [b"[]", b"null", b'"text"', b'{"messages": 1, "contents": 1, "input": 1}'])
def test_a_body_of_another_shape_ends_at_once_and_is_told(model: ModelServer, body: bytes, api: Api) -> None:
    model.scenario = script(Say("Hi."))
    try:
        assert send(model, "POST", api.path(True), body).status == 400
    except RemoteDisconnected:
        assert len(model.errors) == 1, "no agent does this unseen"
    assert hear(model, api).text == "Hi."


def test_where_nothing_is_there_is_nothing_served(model: ModelServer) -> None:
    model.scenario = script(Say("Hi."))
    for path in ("/", "/v1/messages/count_tokens", "/v1/embeddings", "/v1/responses/compact"):
        reply = send(model, "POST", path, b"{}")
        assert (reply.status, reply.json["error"]["type"]) == (404, "not_found_error")
    assert send(model, "DELETE", "/v1/messages").status == 501
    assert (model.requests, model.errors) == ([], [])


def test_looking_whether_somebody_is_there_is_no_request(model: ModelServer) -> None:
    model.scenario = script(Say("Hi."))
    there, models = send(model, "HEAD", "/"), send(model, "GET", "/v1/models?limit=9")
    assert (there.status, there.body) == (200, b"")
    assert (models.status, models.json["data"]) == (200, [])
    assert (model.requests, model.errors) == ([], [])


def test_one_connection_serves_many_requests(model: ModelServer) -> None:
    model.scenario = script(Fail(status=500, times=1), Say("Hi."))
    connection = connect(model)
    exchange(connection, "HEAD", "/")
    first = connection.sock
    for api in APIS:
        for stream in (True, False):
            exchange(connection, "POST", api.path(stream), json.dumps(api.body(Talk(), stream)).encode())
    exchange(connection, "POST", "/nowhere", b"{}")
    exchange(connection, "POST", "/v1/messages", b"{")
    assert exchange(connection, "GET", "/").status == 200
    assert connection.sock is first, "nobody had to connect again"
    connection.close()
    assert len(model.requests) == 8


def test_when_it_has_closed_nobody_is_served() -> None:
    with ModelServer(script(Say("Hi."))) as model:
        connection = connect(model)
        exchange(connection, "GET", "/")
    try:
        with pytest.raises(OSError, match=r"\S"):
            exchange(connection, "GET", "/")
    finally:
        connection.close()


def mistaken(request: Request) -> Turn:
    raise LookupError("a mistake in the script")


def unreadable(request: Request) -> Turn:
    return Say(Path("/no/such/file").read_text())


def no_turn(request: Request) -> Turn:
    return None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        (mistaken, "LookupError: a mistake in the script"),
        (no_turn, "no answer to None"),
        (script(All((Say("a"), Silence()))), "no answer to Silence"),
        pytest.param(unreadable, "FileNotFoundError"),
    ],
)
def test_a_mistake_in_a_scenario_is_told(
    model: ModelServer, scenario: Callable[[Request], Turn], words: str, stream: bool
) -> None:
    model.scenario = scenario
    with pytest.raises(RemoteDisconnected):
        ask(model, ANTHROPIC, stream=stream)
    assert len(model.errors) == 1
    assert words in model.errors[0]
    model.scenario = script(Say("Hi."))
    assert hear(model, ANTHROPIC, stream=stream).text == "Hi.", "the next one is served"
    assert len(model.requests) == 2


def test_a_client_that_goes_away_is_no_error(api: Api) -> None:
    before = set(threading.enumerate())
    with ModelServer(script(Drip("word " * 50, 0.001))) as model:
        connection = connect(model)
        connection.request("POST", api.path(True), json.dumps(api.body(Talk(), True)).encode())
        connection.getresponse().close()
        connection.close()
    assert wait_for(lambda: set(threading.enumerate()) <= before)
    assert (len(model.requests), model.errors) == (1, [])


def test_a_client_that_breaks_off_is_no_error() -> None:
    before = set(threading.enumerate())
    with ModelServer(script()) as model:
        place = urlsplit(model.url)
        with socket.create_connection((place.hostname, place.port), PATIENCE) as connection:
            head = b"POST /v1/messages HTTP/1.1\r\nContent-Length: 50\r\nExpect: 100-continue\r\n\r\n"
            connection.sendall(head)
            assert connection.recv(100).startswith(b"HTTP/1.1 100 "), "it waits for the rest"
            connection.sendall(b"{")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset, not closed
    assert wait_for(lambda: set(threading.enumerate()) <= before)
    assert (model.requests, model.errors) == ([], [])


def test_it_listens_to_this_machine_only() -> None:
    with ModelServer(script()) as model:
        place = urlsplit(model.url)
        assert place.hostname == "127.0.0.1"
        assert place.port
        assert send(model, "HEAD", "/").status == 200
        for other in ("127.0.0.2", "::1"):
            with pytest.raises(OSError, match=r"\S"):
                socket.create_connection((other, place.port), 1).close()


def test_two_servers_know_nothing_of_each_other() -> None:
    with ModelServer(script(Say("One."))) as one, ModelServer(script(Say("Two."))) as two:
        assert one.url != two.url
        assert (hear(one, CHAT).text, hear(two, GEMINI).text) == ("One.", "Two.")
    assert [[each.dialect for each in model.requests] for model in (one, two)] == [["chat"], ["gemini"]]


def test_a_closed_server_is_gone() -> None:
    with ModelServer(script()) as model:
        pass
    with pytest.raises(ConnectionRefusedError):
        ask(model, CHAT)
