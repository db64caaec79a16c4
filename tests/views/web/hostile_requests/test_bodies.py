"""Bodies that are no command are refused and change nothing."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

import pytest
from views.web.hostile import (
    CHUNKED,
    Changes,
    Server,
    check_refused,
    each,
    read_answer,
    send,
    wait_for_commands,
)

# --- bodies -----------------------------------------------------------------------------------------

LENGTHS: dict[str, tuple[Sequence[str], int]] = {
    "a little too long": (["20001"], 413),
    "a gigabyte": (["1000000000"], 413),
    "absurd": (["9" * 18], 413),
    "more than absurd": (["9" * 40], 400),
    "negative": (["-1"], 400),
    "with a sign": (["+5"], 400),
    "hexadecimal": (["0x10"], 400),
    "a fraction": (["1.5"], 400),
    "empty": ([""], 400),
    "two of them": (["5", "6"], 400),
    "a list": (["5, 6"], 400),
    "no ASCII": (["\xb2"], 400),
}


@each("lengths,status", LENGTHS)
def test_a_wrong_length_is_refused_before_anything_is_read(server: Server, lengths: Sequence[str], status: int) -> None:
    check_refused(server, server.build_order({"Content-Length": lengths}), status)


def test_a_body_of_one_hundred_kilobytes_is_refused(server: Server) -> None:
    check_refused(server, server.build_order(text="x" * 100_000), 413)


def _build_chunks(*sizes: int) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (size, b"x" * size) for size in sizes)


@each(
    "body,status",
    {
        "a large chunk": (_build_chunks(30_000), 413),
        "many chunks": (_build_chunks(*[100] * 300), 413),
        "tiny chunks": (_build_chunks(*[1] * 21_000), 413),
        "a chunk without end": (b"ffffffffffffff\r\n" + b"x" * 30_000, 413),
        "a size that is none": (b"zz\r\n", 400),
        "a negative size": (b"-1\r\n", 400),
        "a size beyond everything": (b"f" * 40 + b"\r\n", 400),
        "an extension without end": (b"1;" + b"x" * 20_000, 400),
        "nothing": (b"0\r\n\r\n", 400),
    },
)
def test_a_body_in_chunks_has_the_same_limit(server: Server, body: bytes, status: int) -> None:
    check_refused(server, server.build("POST", "/api/do", CHUNKED, body), status)


@each("encodings", {"gzip": ["gzip"], "twice": ["chunked, chunked"], "two": ["chunked", "identity"], "made up": ["x"]})
def test_a_body_in_another_encoding_is_refused(server: Server, encodings: Sequence[str]) -> None:
    changes = {"Content-Length": [], "Transfer-Encoding": encodings}
    check_refused(server, server.build("POST", "/api/do", changes, b"0\r\n\r\n"), 400)


@pytest.mark.parametrize("length", ["0", "5", "1000"])
def test_a_second_request_is_not_smuggled_in_a_body_with_two_lengths(server: Server, length: str) -> None:
    changes = {**CHUNKED, "Content-Length": [length]}
    said = server.build("POST", "/api/do", changes, b"0\r\n\r\n" + server.build_order())
    check_refused(server, said, 400)
    wait_for_commands(server)


@pytest.mark.parametrize("changes", [{"Content-Length": ["0"]}, {"Content-Length": []}], ids=["length", "no-length"])
def test_a_second_request_of_a_connection_is_not_heard(server: Server, changes: Changes) -> None:
    """Whatever a proxy in between takes for the end of the first one."""
    before = server.look()
    answer = server.ask(server.build(target="/api/session", changes=changes) + server.build_order())
    assert (answer.status, answer.raw.count(b"HTTP/1.1 ")) == (200, 1)
    wait_for_commands(server)
    assert server.look() == before


def test_a_body_that_ends_too_early_is_no_command(server: Server) -> None:
    before = server.look()
    with server.connect() as line:
        send(line, server.build_order()[:-1])
        line.shutdown(socket.SHUT_WR)
        assert read_answer(line).status in (0, 400)
    wait_for_commands(server)
    assert server.look() == before
    assert server.is_answering()


# --- requests of the page itself that make no sense --------------------------------------------------

ORDERS: dict[str, tuple[dict[str, Any], int]] = {
    "unknown field": ({"shell": "rm -rf /"}, 400),
    "number as action": ({"do": 1}, 400),
    "list as action": ({"do": ["pause"]}, 400),
    "nothing as change": ({"change": None}, 400),
    "object as text": ({"text": {"a": "b"}}, 400),
    "true as story": ({"story": True}, 400),
    "a long story": ({"story": "x" * 201}, 400),
    "a long change": ({"change": "x" * 201}, 400),
    "a long text": ({"text": "x" * 16_001}, 400),
    "half a character in the text": ({"do": "guide", "text": "\ud800"}, 400),
    "half a character in the story": ({"do": "retry", "story": "\udfff"}, 400),
    "nul in the text": ({"do": "guide", "text": "a\0b"}, 409),
    "nul in the story": ({"do": "retry", "story": "1\0"}, 409),
    "nul in the change": ({"change": "add\0"}, 409),
    "no such action": ({"do": "exec"}, 409),
    "a command that is no action": ({"do": "web"}, 409),
    "an action in upper case": ({"do": "PAUSE"}, 409),
    "an action with an option": ({"do": "stop --after"}, 409),
    "an attribute as action": ({"do": "__class__"}, 409),
    "no action": ({"do": ""}, 409),
    "no story": ({"do": "accept"}, 409),
    "no such project": ({"project": "00000000"}, 404),
    "a project that is a path": ({"project": "../.."}, 404),
    "a change that is a path": ({"change": "../../etc"}, 409),
    "a change that is absolute": ({"change": "/etc/passwd"}, 409),
    "a change that is an option": ({"change": "--help"}, 409),
    "a change that is a short option": ({"change": "-h"}, 409),
    "a change with a blank": ({"change": "a b"}, 409),
    "a change with a new line": ({"change": "a\r\nSet-Cookie: a=b"}, 409),
    "no change": ({"change": ""}, 409),
    "the folder as change": ({"change": "."}, 409),
    "a run of a path": ({"do": "run", "change": "../../etc"}, 409),
    "a run of an option": ({"do": "run", "change": "--help"}, 409),
    "a run of a file": ({"do": "run", "change": "/etc/passwd"}, 409),
}


@each("fields,status", ORDERS)
def test_an_order_that_makes_no_sense_is_refused(server: Server, fields: dict[str, Any], status: int) -> None:
    answer = check_refused(server, server.build_order(**fields), status)
    assert set(answer.json) == {"error"}
    assert answer.get("set-cookie") == ""


@each(
    "body",
    {
        "nothing": b"",
        "no JSON": b"do=pause",
        "a list": b'["pause"]',
        "null": b"null",
        "deep": b"[" * 19_000,
        "deep in a field": b'{"do":' + b'{"a":' * 3_000,
        "deep in an unknown field": b'{"x":' + b"[" * 9_000 + b"]" * 9_000 + b"}",
        "no UTF-8": b'{"project":"\xff\xfe","do":"pause","change":"x"}',
        "a number beyond everything": b'{"do":' + b"9" * 19_000 + b"}",
        "two values": b'{"do":"pause"}{"do":"pause"}',
        "not a number": b'{"do":NaN}',
        "another encoding": '{"do":"pause"}'.encode("utf-16"),
    },
)
def test_a_body_that_is_no_order_is_refused(server: Server, body: bytes) -> None:
    check_refused(server, server.build("POST", "/api/do", body=body), 400)


@each(
    "fields",
    {
        "help": {"do": "accept", "story": "--help"},
        "short help": {"do": "retry", "story": "-h"},
        "an option that does something": {"do": "guide", "story": "--clear", "text": "x"},
        "an option with a value": {"do": "answer", "story": "--change=other", "text": "x"},
        "standard input": {"do": "retry", "story": "-", "text": "x"},
        "the end of options": {"do": "reject", "story": "--", "text": "--help"},
    },
)
def test_a_story_is_never_read_as_an_option(server: Server, fields: dict[str, Any]) -> None:
    answer = check_refused(server, server.build_order(**fields), 409, tells=True)
    assert "Examples" not in answer.json["error"]
    assert "story" in answer.json["error"]
