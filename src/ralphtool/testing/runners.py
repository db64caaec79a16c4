"""The contract of a runner, as a function."""

from __future__ import annotations

import json
import os
import random
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ralphtool.agents import End, Event, Job, McpServer, Output, Result, Runner, Start, Traits
from ralphtool.errors import RalphError
from ralphtool.testing.adapters import ContractBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_MARK = "no-word-of-any-command-line"
_PROMPT = f"Do this, and nothing else: {_MARK}.\nThe prompt of a story can be longer than an argument may be.\n"
_PIECES = (1, 7, 4096)
_CUTS = 30  # positions at which a recording is cut off
_SHORT_RUBBISH = (
    b"",
    b"\n\n\n",
    b"plain words\n",
    b"\x1b[2J\x1b]0;title\x07\x1b[31mred\x1b[0m\n",
    b"\xff\xfe\x00\x80\n",
    b'{"type": "message", "text": "half a li',
    b'[]\n{}\nnull\n5\n"x"\n',
    b'{"type": 5}\n{"type": null, "message": [[]]}\n{"type": {"a": 1}}\n',
    b'{"type": "message", "text": "\\ud800", "role": "assistant", "content": "\\udfff"}\n',
    b'{"type": "message", "text": "cut: \xc3", "role": "assistant", "content": "\xf0\x9f"}\n',
    b'{"a": ' * 5000 + b"\n",
)
_RUBBISH = (*_SHORT_RUBBISH, b'{"type": "message", "text": "' + b"x" * (20 << 20) + b'"}\n')
_ODD: tuple[Any, ...] = (None, True, 5, -1, 1e300, 10**30, "", "x", "\ud800", [], [5], [None], {}, {"type": 5})
_MISTAKES = (RalphError, ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)


def check_runner(
    runner: Runner,
    folder: str,
    recording: bytes,
    *,
    believes_exit_code: bool = False,
    prepare: Callable[[Job], object] = lambda job: None,
) -> None:
    """Checks what the loop expects of a runner; raises ContractBroken with the broken promise.

    `recording` is the output of its agent in a successful run. `folder` is an empty folder to work in; `prepare` adds
    the files that the agent would leave, if any. Use `believes_exit_code` for an agent that reports only an exit code.
    """
    job = _build_job(folder)
    _check_start(runner, job)
    _check_modes(runner, folder)
    _check_reading(runner, job, recording, prepare)
    _check_rubbish(runner, _build_job(os.path.join(folder, "rubbish")), believes_exit_code=believes_exit_code)
    if not believes_exit_code:
        _check_cut(runner, _build_job(os.path.join(folder, "cut")), recording)
        _check_odd_values(runner, job, recording)
        _check_amid_rubbish(runner, job, recording)


def _require(holds: bool, promise: str) -> None:
    if not holds:
        raise ContractBroken(promise)


def _build_job(folder: str, **more: Any) -> Job:
    root, records = os.path.join(folder, "project"), os.path.join(folder, "records")
    for each in (root, records):
        os.makedirs(each, exist_ok=True)
    path = os.path.join(records, "prompt.md")
    with open(path, "w", encoding="utf-8") as file:
        file.write(_PROMPT)
    return Job(prompt=path, root=root, folder=records, **more)


# --- starting the agent -----------------------------------------------------------------------------


def _check_start(runner: Runner, job: Job) -> None:
    _require(bool(runner.name) and isinstance(runner.traits, Traits), "a runner has a name and traits")
    for path in runner.traits.config_paths:
        _require(
            "/" not in path[:-1] and path.strip("/*") != "", f"a config path is the name of a file or folder: {path}"
        )
    start = _check_started(runner, job)
    _require(_check_started(runner, job) == start, "the same job is started the same way again")


def _check_modes(runner: Runner, folder: str) -> None:
    """The runner must do what its traits promise."""
    usual = looking = _check_started(runner, _build_job(folder))
    if runner.traits.read_only:
        looking = _check_started(runner, _build_job(folder, read_only=True))
        _require(looking != usual, "an agent that shall change nothing is started in another way")
    if runner.traits.drafts:
        drafting = _check_started(runner, _build_job(folder, read_only=True, draft=os.path.join(folder, "records")))
        _require(drafting not in (usual, looking), "an agent that shall write a draft is started in another way")
    if runner.traits.mcp:
        server = McpServer(("/usr/bin/ralphtool", "mcp"), {"RALPH_SESSION": "a-session"})
        _require(_check_started(runner, _build_job(folder, mcp=server)) != usual, "our MCP server is passed on")
    _check_started(runner, _build_job(folder, cost=1.5))


def _check_started(runner: Runner, job: Job) -> Start:
    start = runner.start(job)
    _require(isinstance(start, Start) and bool(start.argv), "`start` tells the program and its arguments")
    words = [*start.argv, *start.env, *start.env.values()]
    _require(not any("\0" in word for word in words), "no argument and no variable has a zero byte in it")
    _require(all(name and "=" not in name for name in start.env), "every variable has a name, without a = in it")
    _require(not any(_MARK in word for word in words), "the prompt is no argument: it could be too long")
    _require(_gives_prompt(start, job, words), "the prompt is given on standard input, or by its path")
    _require(os.listdir(job.root) == [], "`start` writes nothing into the tree that the agent works in")
    return start


def _gives_prompt(start: Start, job: Job, words: Sequence[str]) -> bool:
    """In its own file, or in one that the runner wrote with the prompt in it."""
    records = [os.path.join(job.folder, name) for name in os.listdir(job.folder)]
    named = [path for path in records if path == start.stdin or any(path in word for word in words)]
    return any(_MARK.encode() in _read_content(path) for path in named if os.path.isfile(path))


def _read_content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


# --- reading the agent's output ---------------------------------------------------------------------


def _read_events(runner: Runner, job: Job, pieces: Iterable[bytes], exit_code: int = 0) -> tuple[list[Event], End]:
    reader = runner.reader(job)
    events = [event for piece in pieces for event in reader.feed(piece)]
    events += reader.rest()
    return events, _check_events(events, reader.end(exit_code))


def _check_events(events: Sequence[Event], end: End) -> End:
    _require(all(isinstance(event, Event) for event in events), "a reader tells events")
    _require(not any(isinstance(event, End) for event in events), "the end is told by `end`, and nowhere else")
    _require(isinstance(end, End), "`end` tells the end")
    _require(all(_can_be_written(event) for event in (*events, end)), "every event can be written down as JSON")
    return end


def _event_fields(event: Event) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


def _can_be_written(event: Event) -> bool:
    try:
        json.dumps(_event_fields(event), ensure_ascii=False).encode()
    except (TypeError, ValueError):  # an object of another type, or half a character
        return False
    return True


def _check_reading(runner: Runner, job: Job, recording: bytes, prepare: Callable[[Job], object]) -> None:
    prepare(job)
    before = _list_names(job.root)
    events, end = _read_events(runner, job, [recording])
    _require(end.ok, f"a run that ended well is a success (it was: {end.reason})")
    for size in _PIECES:
        pieces = [recording[at : at + size] for at in range(0, len(recording), size)]
        _check_same(runner, job, pieces, (events, end), f"in pieces of {size} bytes")
    _check_same(runner, job, _cut_at_random(recording), (events, end), "in pieces of any size")
    _require(_list_names(job.root) == before, "a reader writes nothing into the tree that the agent works in")
    _check_past(runner, job, recording, (events, end))


def _check_past(runner: Runner, job: Job, recording: bytes, whole: tuple[list[Event], End]) -> None:
    """Reading records again gives the same events, perhaps with more results of tools, and does not change them."""
    before = {path: _read_content(path) for path in _list_names(job.folder) if os.path.isfile(path)}
    past = Job(prompt=job.prompt, root=job.root, folder=job.folder, is_past=True)
    events, end = _read_events(runner, past, [recording])
    told, again = ([one for one in _drop_passing(all) if one[0] is not Result] for all in (whole[0], events))
    _require((again, end) == (told, whole[1]), "what is past tells the same when it is read again")
    after = {path: _read_content(path) for path in _list_names(job.folder) if os.path.isfile(path)}
    _require(after == before, "a reader leaves the records of what is past as they are")


def _check_same(runner: Runner, job: Job, pieces: Iterable[bytes], whole: tuple[list[Event], End], how: str) -> None:
    events, end = _read_events(runner, job, pieces)
    _require(end == whole[1], f"{how} it ends the same")
    _require(_drop_passing(events) == _drop_passing(whole[0]), f"{how} it tells the same events")


def _drop_passing(events: Iterable[Event]) -> list[tuple[type[Event], dict[str, Any]]]:
    """Without output that is only shown now and then, and without times, which may be relative to now."""
    told = [event for event in events if not isinstance(event, Output)]
    return [(type(event), {**_event_fields(event), "reset_at": None}) for event in told]


def _list_names(folder: str) -> list[str]:
    return sorted(os.path.join(at, name) for at, folders, names in os.walk(folder) for name in (*folders, *names))


def _cut_at_random(recording: bytes) -> list[bytes]:
    places = _choose_positions(recording, 50)
    return [recording[a:b] for a, b in pairwise([0, *places, len(recording)])]


def _choose_positions(recording: bytes, count: int) -> list[int]:
    chance = random.Random(1)  # noqa: S311
    return sorted({chance.randrange(len(recording) + 1) for _ in range(count)})


# --- invalid output ---------------------------------------------------------------------------------


def _check_rubbish(runner: Runner, job: Job, *, believes_exit_code: bool) -> None:
    for rubbish in _RUBBISH:
        end = _feed_rubbish(runner, job, rubbish)
        _require(believes_exit_code or not end.ok, "without its own final word an agent did not end well")
    for exit_code in (1, -15):
        _, failed = _read_events(runner, job, [], exit_code)
        _require(not failed.ok, "an agent that failed, or was killed, and said nothing did not end well")


def _feed_rubbish(runner: Runner, job: Job, rubbish: bytes) -> End:
    promise = "whatever an agent prints, a reader tells events"
    try:
        reader = runner.reader(job)
        events = [*reader.feed(rubbish), *reader.feed_errors(rubbish), *reader.rest()]
        return _check_events(events, reader.end(0))
    except _MISTAKES as error:
        raise ContractBroken(f"{promise}, and does not raise {type(error).__name__}: {error}") from error


def _check_amid_rubbish(runner: Runner, job: Job, recording: bytes) -> None:
    """Programs print warnings between their lines, and anything on standard error."""
    _, expected = _read_events(runner, job, [recording])
    whole_lines = [each if each.endswith(b"\n") else each + b"\n" for each in _SHORT_RUBBISH]
    for rubbish in whole_lines:
        reader = runner.reader(job)
        events = [*reader.feed(rubbish), *reader.feed_errors(rubbish), *reader.feed(recording)]
        events += [*reader.feed_errors(rubbish), *reader.rest()]
        _require(
            _check_events(events, reader.end(0)).ok == expected.ok, "rubbish before a run that ended well hides no end"
        )


def _check_odd_values(runner: Runner, job: Job, recording: bytes) -> None:
    """The next version of a program may print other values in the same places."""
    for line in recording.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        for changed in _vary_value(value):
            _feed_rubbish(runner, job, json.dumps(changed).encode() + b"\n")


def _vary_value(value: Any) -> Iterator[Any]:
    """The same value, with each of its parts in turn removed, or replaced by an odd one."""
    if isinstance(value, dict):
        for name, inside in value.items():
            others = {key: other for key, other in value.items() if key != name}
            yield others
            for changed in (*_ODD, *_vary_value(inside)):
                yield {**others, name: changed}
    elif isinstance(value, list):
        for inside in value[:1]:
            for changed in (*_ODD, *_vary_value(inside)):
                yield [changed, *value[1:]]


def _check_cut(runner: Runner, job: Job, recording: bytes) -> None:
    """An incomplete terminal event does not count."""
    lines = recording.rstrip().split(b"\n")
    _, end = _read_events(runner, job, [lines[0]])
    _require(not end.ok or len(lines) == 1, "the first line of a run is no success")
    last = len(recording.rstrip()) - 1  # without its last character, no line is complete
    for place in (*_choose_positions(recording[:last], _CUTS), last):
        if recording[place : place + 1] == b"\n":
            continue  # only the end of the line is missing
        whole_lines = recording[: recording.rfind(b"\n", 0, place) + 1]
        expected, cut = (_read_events(runner, job, [data])[1] for data in (whole_lines, recording[:place]))
        _require(cut.ok == expected.ok, "half of a line is no terminal event")
