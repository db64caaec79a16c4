"""Turns actions on the page into the commands that a user would run in a terminal.

The page sends an action, a story and a text; the command line is built here. So everything that the commands check,
refuse and record applies to the page too, and a run that checks who accepted a story finds a waiting command.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from ralphtool.core import project
from ralphtool.core.sender import VIA
from ralphtool.core.text import make_lines_printable
from ralphtool.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Callable

_PATIENCE = 60.0  # seconds: `accept` waits up to half of that for the run's reply
_LONGEST_ANSWER = 4000  # bytes of a command's output


class Order(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the page sends."""

    project: Annotated[str, Meta(max_length=40)]
    do: Annotated[str, Meta(max_length=20)]
    change: Annotated[str, Meta(max_length=200)]
    story: Annotated[str, Meta(max_length=200)] = ""
    text: Annotated[str, Meta(max_length=16_000)] = ""


class CommandLine(Struct, frozen=True):
    words: list[str]
    text: str = ""  # for standard input


def _say_to_change(name: str, *options: str) -> Callable[[Order], CommandLine]:
    return lambda order: CommandLine([name, *options, "--", order.change])


def _decide(name: str) -> Callable[[Order], CommandLine]:
    """A decision about a story, with a reason if there is one."""

    def build(order: Order) -> CommandLine:
        why = [f"--why={order.text}"] if order.text else []
        return CommandLine([name, f"--change={order.change}", *why, "--", _need_story(order)])

    return build


def _answer(order: Order) -> CommandLine:
    return CommandLine(["answer", f"--change={order.change}", "--", _need_story(order), "-"], order.text)


def _guide(order: Order) -> CommandLine:
    story = [order.story] if order.story else []
    return CommandLine(["guide", f"--change={order.change}", "--", *story, "-"], order.text)


def _retry(order: Order) -> CommandLine:
    told = ["-"] if order.text else []
    return CommandLine(["retry", f"--change={order.change}", "--", _need_story(order), *told], order.text)


def _need_story(order: Order) -> str:
    if not order.story:
        raise InvalidValue(f"name the story to {order.do}")
    return order.story


_ACTIONS: dict[str, Callable[[Order], CommandLine]] = {
    "answer": _answer,
    "guide": _guide,
    "pause": _say_to_change("pause"),
    "resume": _say_to_change("resume"),
    "stop": _say_to_change("stop"),
    "stop-after": _say_to_change("stop", "--after"),
    "retry": _retry,
    "skip": _decide("skip"),
    "accept": _decide("accept"),
    "reject": _decide("reject"),
}


def build_command(order: Order) -> CommandLine:
    """The command for an order of the page; raises an error if the order is invalid."""
    build = _ACTIONS.get(order.do)
    if build is None:
        raise InvalidValue("there is no such action")
    project.check_name(order.change, "a change's name")
    if any("\0" in text or not _can_be_written(text) for text in (order.story, order.text)):
        raise InvalidValue("there are characters in it that no text has: leave them out")
    return build(order)


def _can_be_written(text: str) -> bool:
    return text == text.encode("utf-8", "replace").decode()


async def run_command(root: str, command: CommandLine) -> tuple[bool, str]:
    """Whether it succeeded, and its output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "ralphtool", *command.words),
        cwd=root,
        env={**os.environ, VIA: "web", "NO_COLOR": "1", "COLUMNS": "1000", "PYTHONUTF8": "1"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(command.text.encode()), _PATIENCE)
    except TimeoutError:
        process.kill()
        await process.wait()
        return False, f"it took longer than {_PATIENCE:.0f} seconds: try it in a terminal"
    text = make_lines_printable(said[-_LONGEST_ANSWER:].decode("utf-8", "replace").strip())
    return process.returncode == 0, text.removeprefix("Error: ")
