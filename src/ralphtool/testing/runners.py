"""The contract of a runner, as a function."""

from __future__ import annotations

import os
import random
from itertools import pairwise
from typing import TYPE_CHECKING

from ralphtool.agents import End, Event, Job, Runner, Start, Traits
from ralphtool.testing.adapters import ContractBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_PROMPT = "Do this, and nothing else. The prompt of a story can be longer than an argument may be.\n"
_PIECES = (1, 7, 4096)
_RUBBISH = (
    b"",
    b"\n\n\n",
    b"plain words\n",
    b"\x1b[2J\x1b]0;title\x07\x1b[31mred\x1b[0m\n",
    b"\xff\xfe\x00\x80\n",
    b'{"type": "message", "text": "half a li',
    b'[]\n{}\nnull\n5\n"x"\n',
    b'{"type": 5}\n{"type": null, "message": [[]]}\n{"type": {"a": 1}}\n',
    b'{"a": ' * 5000 + b"\n",
    b'{"type": "message", "text": "' + b"x" * (20 << 20) + b'"}\n',
)


def check_runner(
    runner: Runner,
    folder: str,
    recording: bytes,
    *,
    believes_exit_code: bool = False,
    prepare: Callable[[Job], object] = lambda job: None,
) -> None:
    """Holds a runner to what the loop builds on; raises ContractBroken with the broken promise.

    `recording` is what its agent printed in a run that ended well. `folder` is an empty one to work in; `prepare` puts
    files there that the agent leaves, if it does. An agent that tells nothing but its exit code `believes_exit_code`.
    """
    job = _job(folder)
    _check_start(runner, job)
    _check_reading(runner, job, recording, prepare)
    _check_rubbish(runner, _job(os.path.join(folder, "rubbish")), believes_exit_code=believes_exit_code)
    if not believes_exit_code:
        _check_cut(runner, _job(os.path.join(folder, "cut")), recording)


def _require(holds: bool, promise: str) -> None:
    if not holds:
        raise ContractBroken(promise)


def _job(folder: str) -> Job:
    root, records = os.path.join(folder, "project"), os.path.join(folder, "records")
    for each in (root, records):
        os.makedirs(each, exist_ok=True)
    path = os.path.join(records, "prompt.md")
    with open(path, "w", encoding="utf-8") as file:
        file.write(_PROMPT)
    return Job(prompt=path, root=root, folder=records)


def _check_start(runner: Runner, job: Job) -> None:
    _require(bool(runner.name) and isinstance(runner.traits, Traits), "a runner has a name and traits")
    start = runner.start(job)
    _require(isinstance(start, Start) and bool(start.argv), "`start` tells the program and its arguments")
    words = [*start.argv, *start.env, *start.env.values()]
    _require(not any("\0" in word for word in words), "no argument and no variable has a zero byte in it")
    _require(not any(_PROMPT.strip() in word for word in words), "the prompt is no argument: it could be too long")
    is_given = start.stdin == job.prompt or any(job.prompt in word for word in words)
    _require(is_given, "the prompt is given on standard input, or by its path")
    _require(os.listdir(job.root) == [], "`start` writes nothing into the tree that the agent works in")
    _require(runner.start(job) == start, "the same job is started the same way again")


def _read(runner: Runner, job: Job, pieces: Iterable[bytes], exit_code: int = 0) -> tuple[list[Event], End]:
    reader = runner.reader(job)
    events = [event for piece in pieces for event in reader.feed(piece)]
    events += reader.rest()
    end = reader.end(exit_code)
    _require(all(isinstance(event, Event) for event in events), "a reader tells events")
    _require(not any(isinstance(event, End) for event in events), "the end is told by `end`, and nowhere else")
    _require(isinstance(end, End), "`end` tells the end")
    return events, end


def _check_reading(runner: Runner, job: Job, recording: bytes, prepare: Callable[[Job], object]) -> None:
    prepare(job)
    _, end = _read(runner, job, [recording])
    _require(end.ok, f"a run that ended well is a success (it was: {end.reason})")
    for size in _PIECES:
        pieces = [recording[at : at + size] for at in range(0, len(recording), size)]
        _require(_read(runner, job, pieces)[1] == end, f"in pieces of {size} bytes it ends the same")
    _require(_read(runner, job, _at_random(recording))[1] == end, "in pieces of any size it ends the same")


def _at_random(recording: bytes) -> list[bytes]:
    chance = random.Random(1)  # noqa: S311
    places = sorted({0, len(recording), *(chance.randrange(len(recording) + 1) for _ in range(50))})
    return [recording[a:b] for a, b in pairwise(places)]


def _check_rubbish(runner: Runner, job: Job, *, believes_exit_code: bool) -> None:
    for rubbish in _RUBBISH:
        reader = runner.reader(job)
        events = [*reader.feed(rubbish), *reader.feed_errors(rubbish), *reader.rest()]
        _require(all(isinstance(event, Event) for event in events), "whatever an agent prints, a reader tells events")
        end = reader.end(0)
        _require(believes_exit_code or not end.ok, "without its own final word an agent did not end well")
    _, killed = _read(runner, job, [], -15)
    _require(not killed.ok, "an agent that was killed did not end well")


def _check_cut(runner: Runner, job: Job, recording: bytes) -> None:
    """A terminal event that did not come whole is none."""
    lines = recording.rstrip().split(b"\n")
    _, end = _read(runner, job, [b"\n".join(lines[:1])])
    _require(not end.ok, "the first line of a run is no success")
