"""The shared part of the readers of agents that print JSON, one object per line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from msgspec import Struct
from msgspec.json import Decoder

from ralphtool.agents import End, Event, Failure, Message
from ralphtool.agents.json_lines import Lines

if TYPE_CHECKING:
    from collections.abc import Iterable


class SaidLine(Struct, frozen=True, tag="said", tag_field="type"):
    text: str


class OverLine(Struct, frozen=True, tag="over", tag_field="type"):
    pass


class Plain(Lines["SaidLine | OverLine"]):
    """The simplest possible reader."""

    decoder: ClassVar[Decoder[Any]] = Decoder(SaidLine | OverLine)

    def take(self, line: SaidLine | OverLine) -> Iterable[Event]:
        if isinstance(line, OverLine):
            self.is_over = True
            return ()
        return (Message(line.text),)

    def end(self, exit_code: int) -> End:
        return End(True) if self.is_over else self.without_an_end(exit_code)


def said(text: str) -> bytes:
    return json.dumps({"type": "said", "text": text}).encode() + b"\n"


def rest(output: bytes, errors: bytes) -> list[Event]:
    """The events when the program has ended."""
    reader = Plain()
    list(reader.feed(output))
    list(reader.feed_errors(errors))
    return [*reader.rest()]


# --- a program that did not start -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("errors", "trouble", "text"),
    [
        (b"Please run /login\n", "login", "Please run /login"),
        (b"a warning\n\n  Not logged in. Please run /login  \n\n", "login", "Not logged in. Please run /login"),
        (b"x" * 10_000 + b"\nInvalid API key\n", "login", "Invalid API key"),
        (b"fetch failed", "network", "fetch failed"),
    ],
)
def test_why_it_did_not_begin_is_a_failure_if_that_passes(errors: bytes, trouble: str, text: str) -> None:
    assert rest(b"", errors) == [Failure(trouble, text)]  # type: ignore[arg-type]
    assert rest(b"Welcome!\n{}\n", errors) == [Failure(trouble, text)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "errors",
    [
        b"",
        b"\n \n",
        b"error: unknown option '--login'\n",
        b"error: unknown option '--api-key': Invalid API key\n",
        b"Segmentation fault\n",
        b"Prompt is too long\n",
        b"\xff\xfe\n",
    ],
)
def test_what_no_waiting_mends_is_none(errors: bytes) -> None:
    assert rest(b"", errors) == []


def test_a_program_that_began_says_itself_what_went_wrong() -> None:
    assert rest(said("I look."), b"Please run /login\n") == []
    assert rest(said("I look.").rstrip(), b"Please run /login\n") == [Message("I look.")]


def test_the_complaint_stays_the_reason() -> None:
    reader = Plain()
    list(reader.feed_errors(b"Please run /login\n"))
    list(reader.rest())
    assert reader.end(1) == End(False, reason="ended without a final event (exit status 1): Please run /login")


# --- is_over ----------------------------------------------------------------------------------------


def test_it_is_over_when_its_whole_last_word_has_come() -> None:
    reader = Plain()
    assert not reader.is_over
    list(reader.feed(said("Done") + b'{"type": "over"'))
    assert not reader.is_over
    list(reader.feed(b"}\n"))
    assert reader.is_over


def test_a_last_word_without_a_line_end_comes_with_the_rest() -> None:
    reader = Plain()
    list(reader.feed(b'{"type": "over"}'))
    assert not reader.is_over
    assert [*reader.rest()] == []
    assert reader.is_over
    assert reader.end(0).ok
