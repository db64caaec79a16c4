"""Reads a past iteration: its files, what the run recorded about it, and what its agent said and did.

A transcript or a run's record can be as long as 2 GB, so both are read in pieces and not kept. Only its agent's reader
understands a transcript. If that is not available (its package is gone, the settings are broken, the name meant
something else then), the other readers are tried; the last resort is plain text.
"""

from __future__ import annotations

import codecs
import os
import time
from typing import TYPE_CHECKING, Any

from msgspec import structs

from ralphtool import agents, settings
from ralphtool.agents import Event, Failure, Job, Message, Output, Reader, Result, Runner, Tool
from ralphtool.core import files, layout
from ralphtool.errors import InvalidValue, shorten
from ralphtool.record import runs
from ralphtool.record.events import Agent, Denied, IterationStarted, Proof, RunEnded, Verdict, WorkerJoined, decode
from ralphtool.record.lines import LineReader, is_usage
from ralphtool.record.run_view import RunView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ralphtool.record.events import Event as RunEvent
    from ralphtool.record.view_parts import AttemptView

TRANSCRIPT = "transcript.log"
ERRORS = f"{TRANSCRIPT}.err"
_BLOCK = 1 << 20
_HEAD = 256 << 10  # bytes of a transcript that identify its agent
_HELD = 100  # events that are held back until something more meaningful than output appears
_TICK = 0.2  # seconds between two reads of a growing transcript
_MEANINGFUL = (Failure, Message, Result, Tool)
_SHOWN = 8  # names in a message


class IterationFiles:
    """The records of one iteration."""

    def __init__(self, root: str, run: str, name: str) -> None:
        number, _, self.entry = name.partition("-")
        self.root = root
        self.run = run
        self.number = int(number)
        self.folder = os.path.join(layout.run(root, run), name)
        self._record = _AttemptReader(layout.events(root, run), self.number)

    def read_attempt(self) -> AttemptView | None:
        """What the run's record says about it so far; None if it is not in there."""
        self._record.read_new_lines()
        return self._record.attempt

    def list_denied(self) -> list[Denied]:
        """What its programs were not allowed to reach, as far as `read_attempt` has read."""
        return self._record.denied

    def path(self, name: str = TRANSCRIPT) -> str:
        return os.path.join(self.folder, name)


# --- finding an iteration ---------------------------------------------------------------------------


def find(root: str, name: str | None) -> IterationFiles:
    """The iteration of an entry, or `RUN:NUMBER`; for a run, a change or no name, the last one."""
    if name is None:
        return _find_newest(root)
    if found := find_by_entry(root, name):
        return found[0]
    run, colon, number = name.rpartition(":")
    if colon:
        return _find_numbered(root, runs.find(root, run or None).id, number or None)
    try:
        run = runs.find(root, name).id
    except InvalidValue:
        raise InvalidValue(
            f"there is no entry or run {shorten(name)}: `ralphtool progress entries` lists the entries, and "
            "`ralphtool runs` the runs"
        ) from None
    return _find_numbered(root, run, None)


def find_by_entry(root: str, entry: str) -> list[IterationFiles]:
    """The iterations of an entry, the newest first: it may have been cut off, even repeatedly, before it was judged."""
    return [one for one in list_all(root) if one.entry == entry[-200:]]


def list_all(root: str) -> Iterator[IterationFiles]:
    """All iterations with files, the newest first."""
    for run in _list_runs(root):
        yield from _list_of_run(root, run)


def _find_newest(root: str) -> IterationFiles:
    found = next(list_all(root), None)
    if found is None:
        raise InvalidValue("no agent has worked here yet: `ralphtool run` starts one")
    return found


def _find_numbered(root: str, run: str, number: str | None) -> IterationFiles:
    found = _list_of_run(root, run)
    if not found:
        raise InvalidValue(f"no agent has worked in the run {run}: `ralphtool runs` lists other runs")
    wanted = [one for one in found if number is None or str(one.number) == number.lstrip("0")]
    if not wanted:
        known = ", ".join(f"{run}:{one.number}" for one in found[:_SHOWN])
        raise InvalidValue(f"the run {run} has no iteration {shorten(number or '')}: there is {known}")
    return wanted[0]


def _list_runs(root: str) -> list[str]:
    """Includes runs whose record is gone: their transcripts may still exist."""
    known = runs.list_ids(root)
    return [*known, *sorted(_list_folders(layout.runs(root)) - set(known), reverse=True)]


def _list_of_run(root: str, run: str) -> list[IterationFiles]:
    names = _list_folders(layout.run(root, run))
    found = [IterationFiles(root, run, name) for name in names if name.partition("-")[0].isdecimal() and "-" in name]
    return sorted(found, key=lambda one: one.number, reverse=True)


def _list_folders(folder: str) -> set[str]:
    try:
        return {one.name for one in os.scandir(folder) if one.is_dir(follow_symlinks=False)}
    except OSError:
        return set()


# --- its part of the record -------------------------------------------------------------------------


class _AttemptReader:
    """Looks for the lines about one iteration in a run's record, and decodes few others."""

    def __init__(self, path: str, number: int) -> None:
        self._reader = LineReader(path)
        self._number = number
        self._view = RunView()
        self._is_last = False  # it is the last to begin: in old records, the events that follow are about it
        self._is_judged = False
        self.attempt: AttemptView | None = None
        self.denied: list[Denied] = []

    def read_new_lines(self) -> None:
        """Reads what was added since the last time, up to the verdict, or the receipt if it completed."""
        try:
            for line in self._reader.new_without_prose():
                if self._is_judged:
                    return
                if not is_usage(line) and (event := decode(line)):
                    self._apply_event(event)
        except OSError:
            return  # it can't be read now; perhaps next time

    def _apply_event(self, event: RunEvent) -> None:
        if isinstance(event, IterationStarted):
            self._is_last = (event.iteration or event.number) == self._number
            if self._is_last and self.attempt is None:
                self._view.feed(event)
                self.attempt = self._view.attempt
        elif isinstance(event, Denied):
            self.denied += [event] if event.iteration == self._number else []
        elif self.attempt is not None and self._is_about(event, self.attempt):
            self._view.feed(event)
        if (attempt := self.attempt) and attempt.verdict:
            is_past = isinstance(event, IterationStarted | RunEnded) or attempt.verdict.status != "completed"
            self._is_judged = is_past or attempt.receipt is not None

    def _is_about(self, event: RunEvent, attempt: AttemptView) -> bool:
        if isinstance(event, Proof):
            return event.entry == attempt.start.entry
        if not isinstance(event, Agent | Verdict | WorkerJoined):
            return False
        return event.iteration == self._number if event.iteration else self._is_last


# --- its transcript ---------------------------------------------------------------------------------


def read_events(iteration: IterationFiles, *, follow: bool = False) -> Iterator[Event]:
    """The events in the transcript, and in the files that some agents leave beside it. `follow` waits for more until
    the agent has ended."""
    goes_on = _build_waiter(iteration) if follow else _never_continue
    while not os.path.lexists(iteration.path()) and goes_on():
        pass  # the gates may run first
    reader = _choose_reader(iteration, _read_head(iteration, goes_on))
    if reader is None:
        yield from decode_plain(read_blocks(iteration, goes_on=goes_on))
        return
    held: list[Event] | None = []  # until an event is more meaningful than output
    for event in _feed_reader(reader, iteration, goes_on):
        if held is None:
            yield event
        elif isinstance(event, _MEANINGFUL):
            yield from (*held, event)
            held = None
        elif len(held) < _HELD:
            held.append(event)
    if held is not None:
        yield from _read_final_message(reader) if reader.is_over else decode_plain(read_blocks(iteration))
        yield from (event for event in held if not isinstance(event, Output))


def _read_final_message(reader: Reader) -> Iterator[Event]:
    """An agent may print nothing but its final message."""
    if message := reader.end(0).message:
        yield Message(message)


def read_blocks(
    iteration: IterationFiles, name: str = TRANSCRIPT, goes_on: Callable[[], bool] | None = None
) -> Iterator[bytes]:
    """A file of the iteration, in pieces. If it does not exist, the error lists the files that do."""
    with open(_open_file(iteration, name), "rb", buffering=0) as file:
        while True:
            while block := file.read(_BLOCK):
                yield block
            if goes_on is None or not goes_on():
                break
        if block := file.read(_BLOCK):  # added in the meantime
            yield block


def check_transcript(iteration: IterationFiles) -> None:
    """Raises the error immediately, before anything is shown."""
    os.close(_open_file(iteration, TRANSCRIPT))


def _open_file(iteration: IterationFiles, name: str) -> int:
    try:
        return files.open_in_project(iteration.path(name))
    except (FileNotFoundError, NotADirectoryError):
        raise _build_missing_error(iteration, name) from None


def decode_plain(pieces: Iterable[bytes]) -> Iterator[Event]:
    """Plain text: whole lines, unless they are extremely long."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    for piece in pieces:
        whole, end, rest = (rest + decoder.decode(piece)).rpartition("\n")
        if end:
            yield Output(whole)
        if len(rest) > _BLOCK:
            yield Output(rest)
            rest = ""
    if rest := rest + decoder.decode(b"", final=True):
        yield Output(rest)


def _build_missing_error(iteration: IterationFiles, name: str) -> InvalidValue:
    try:
        there = sorted(os.listdir(iteration.folder))
    except OSError:
        there = []
    more = f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
    told = f"recorded: {', '.join(there[:_SHOWN])}{more}" if there else "nothing else was recorded"
    return InvalidValue(
        f"{iteration.folder} has no {name}: no agent was started, or the file was deleted; {told}. `ralphtool "
        f"explain {iteration.entry}` shows what the history has"
    )


def _never_continue() -> bool:
    return False


def _build_waiter(iteration: IterationFiles) -> Callable[[], bool]:
    """Builds a function that waits a moment and returns whether the agent may still print something."""

    def goes_on() -> bool:
        attempt = iteration.read_attempt()
        if attempt and (attempt.end or attempt.verdict):
            return False
        time.sleep(_TICK)
        return runs.is_alive(runs.read_summary(iteration.root, iteration.run))

    return goes_on


def _read_head(iteration: IterationFiles, goes_on: Callable[[], bool]) -> bytes:
    """The first complete lines; everything if not even one is complete."""
    head = b""
    for block in read_blocks(iteration, goes_on=goes_on):
        head += block[:_HEAD]
        if b"\n" in head or len(head) >= _HEAD:
            break
    return head[: head.rfind(b"\n") + 1] or head


def _feed_reader(reader: Reader, iteration: IterationFiles, goes_on: Callable[[], bool]) -> Iterator[Event]:
    """The order of lines across the two outputs is unknown, so stderr comes at the end."""
    for block in read_blocks(iteration, goes_on=goes_on):
        yield from reader.feed(block)
    if os.path.lexists(iteration.path(ERRORS)):
        for block in read_blocks(iteration, ERRORS):
            yield from reader.feed_errors(block)
    yield from reader.rest()


# --- choosing a reader ------------------------------------------------------------------------------


def _choose_reader(iteration: IterationFiles, head: bytes) -> Reader | None:
    """A reader that understands the transcript, preferably its own agent's; None if it is plain text."""
    job = Job(prompt=iteration.path("prompt.md"), root=iteration.root, folder=iteration.folder, is_past=True)
    own = _make_runner(_find_agent(iteration), _load_options(iteration))
    if own and _count_meaningful(own, job, head):
        return own.reader(job)
    best = max(agents.list_runners(), key=lambda one: _count_meaningful(one, job, head))
    if _count_meaningful(best, job, head):
        return best.reader(job)
    return own.reader(job) if own and (head.lstrip().startswith(b"{") or not head) else None


def _find_agent(iteration: IterationFiles) -> str:
    attempt = iteration.read_attempt()
    return attempt.start.agent if attempt else ""


def _load_options(iteration: IterationFiles) -> Mapping[str, Any]:
    try:
        configured = settings.load(iteration.root).agents.get(_find_agent(iteration))
    except InvalidValue:
        return {}  # showing a transcript must not require valid settings
    return structs.asdict(configured) if configured else {}


def _make_runner(name: str, options: Mapping[str, Any]) -> Runner | None:
    try:
        return agents.make(name, options) if name else None
    except InvalidValue:
        return None  # its package is gone


def _count_meaningful(runner: Runner, job: Job, head: bytes) -> int:
    """How many meaningful events a runner's reader finds in the beginning."""
    reader = runner.reader(job)
    return sum(isinstance(event, _MEANINGFUL) for event in (*reader.feed(head), *reader.rest()))
