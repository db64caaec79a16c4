"""An iteration read again: where its records lie, what the run told about it, and what its agent said and did.

A transcript, and a run's record too, can be as long as 2 GB: both are read in pieces, and nothing of them is kept. What
a transcript means only its agent's reader knows. Where that is not to be had (its package is gone, the settings are
broken, the name stood for something else then) the other readers are tried, and at last it is plain text.
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
from ralphtool.record.events import Agent, IterationStarted, Verdict, decode
from ralphtool.record.lines import LineReader, tells_usage
from ralphtool.record.run_view import RunView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ralphtool.record.events import Event as RunEvent
    from ralphtool.record.run_view import AttemptView

TRANSCRIPT = "transcript.log"
ERRORS = f"{TRANSCRIPT}.err"
_BLOCK = 1 << 20
_HEAD = 256 << 10  # bytes of a transcript that show whose it is
_HELD = 100  # pieces of output that are kept until it is clear that there is more than that
_TICK = 0.2  # seconds between two looks at a transcript that grows
_TELLING = (Failure, Message, Result, Tool)
_SHOWN = 8  # names in a message


class Iteration:
    """The records of one iteration."""

    def __init__(self, root: str, run: str, name: str) -> None:
        number, _, self.entry = name.partition("-")
        self.root = root
        self.run = run
        self.number = int(number)
        self.folder = os.path.join(layout.run(root, run), name)
        self._record = _Record(layout.events(root, run), self.number)

    def attempt(self) -> AttemptView | None:
        """What the run's record says about it by now; None if it is not in there."""
        self._record.read_on()
        return self._record.attempt

    def path(self, name: str = TRANSCRIPT) -> str:
        return os.path.join(self.folder, name)


# --- which one is meant -----------------------------------------------------------------------------


def find(root: str, name: str | None) -> Iteration:
    """The iteration of an entry, or `RUN:NUMBER`; of a run or a change the last one, and so without a name."""
    if name is None:
        return _newest(root)
    if found := of_entry(root, name):
        return found[0]
    run, colon, number = name.rpartition(":")
    if colon:
        return _numbered(root, runs.find(root, run or None).id, number or None)
    try:
        run = runs.find(root, name).id
    except InvalidValue:
        raise InvalidValue(
            f"there is no entry {shorten(name)}, and no run: `ralphtool progress entries` lists the entries, and "
            "`ralphtool runs` the runs"
        ) from None
    return _numbered(root, run, None)


def of_entry(root: str, entry: str) -> list[Iteration]:
    """Those that were about an entry, the newest first: before it was judged it may have been cut off, and more often
    than once."""
    return [one for one in every(root) if one.entry == entry[-200:]]


def every(root: str) -> Iterator[Iteration]:
    """All that have records, the newest first."""
    for run in _run_names(root):
        yield from _of_run(root, run)


def _newest(root: str) -> Iteration:
    found = next(every(root), None)
    if found is None:
        raise InvalidValue("no agent has worked here yet: `ralphtool run` starts one")
    return found


def _numbered(root: str, run: str, number: str | None) -> Iteration:
    found = _of_run(root, run)
    if not found:
        raise InvalidValue(f"no agent has worked in the run {run}: `ralphtool runs` lists the others")
    wanted = [one for one in found if number is None or str(one.number) == number.lstrip("0")]
    if not wanted:
        known = ", ".join(f"{run}:{one.number}" for one in found[:_SHOWN])
        raise InvalidValue(f"the run {run} has no iteration {shorten(number or '')}: there is {known}")
    return wanted[0]


def _run_names(root: str) -> list[str]:
    """Of one whose record is gone the transcripts may still be there."""
    known = runs.ids(root)
    return [*known, *sorted(_names(layout.runs(root)) - set(known), reverse=True)]


def _of_run(root: str, run: str) -> list[Iteration]:
    names = _names(layout.run(root, run))
    found = [Iteration(root, run, name) for name in names if name.partition("-")[0].isdecimal() and "-" in name]
    return sorted(found, key=lambda one: one.number, reverse=True)


def _names(folder: str) -> set[str]:
    try:
        return {one.name for one in os.scandir(folder) if one.is_dir(follow_symlinks=False)}
    except OSError:
        return set()


# --- what the record says about it ------------------------------------------------------------------


class _Record:
    """Looks for the lines about one iteration in a run's record, and decodes few others."""

    def __init__(self, path: str, number: int) -> None:
        self._reader = LineReader(path)
        self._number = number
        self._view = RunView()
        self._is_last = False  # of those that have begun: in old records, what follows is about it
        self.attempt: AttemptView | None = None

    def read_on(self) -> None:
        """Reads what was added since the last time, up to the verdict."""
        try:
            for line in self._reader.new_without_prose():
                if self.attempt and self.attempt.verdict:
                    return
                if not tells_usage(line) and (event := decode(line)):
                    self._take(event)
        except OSError:
            return  # it can't be read now; perhaps at the next look

    def _take(self, event: RunEvent) -> None:
        if isinstance(event, IterationStarted):
            self._is_last = (event.iteration or event.number) == self._number
            if self._is_last and self.attempt is None:
                self._view.feed(event)
                self.attempt = self._view.attempt
        elif isinstance(event, Agent | Verdict) and self.attempt is not None and self._is_about(event.iteration):
            self._view.feed(event)

    def _is_about(self, iteration: int) -> bool:
        return iteration == self._number if iteration else self._is_last


# --- what its agent said and did --------------------------------------------------------------------


def events(iteration: Iteration, *, follow: bool = False) -> Iterator[Event]:
    """What the transcript, and the files that some agents leave beside it, tell. `follow` waits for more of it until
    the agent has ended."""
    goes_on = _clock(iteration) if follow else _never
    while not os.path.lexists(iteration.path()) and goes_on():
        pass  # the gates may run first
    reader = _reader(iteration, _head(iteration, goes_on))
    if reader is None:
        yield from plain(blocks(iteration, goes_on=goes_on))
        return
    held: list[Event] | None = []  # until something tells more than output does
    for event in _read(reader, iteration, goes_on):
        if held is None:
            yield event
        elif isinstance(event, _TELLING):
            yield from (*held, event)
            held = None
        elif len(held) < _HELD:
            held.append(event)
    if held is not None:
        yield from _last_word(reader) if reader.is_over else plain(blocks(iteration))
        yield from (event for event in held if not isinstance(event, Output))


def _last_word(reader: Reader) -> Iterator[Event]:
    """An agent may say nothing but its final message."""
    if message := reader.end(0).message:
        yield Message(message)


def blocks(iteration: Iteration, name: str = TRANSCRIPT, goes_on: Callable[[], bool] | None = None) -> Iterator[bytes]:
    """A file of the iteration, in pieces. A transcript that is not there is an error that tells what is."""
    with open(_open(iteration, name), "rb", buffering=0) as file:
        while True:
            while block := file.read(_BLOCK):
                yield block
            if goes_on is None or not goes_on():
                break
        if block := file.read(_BLOCK):  # what came while we asked
            yield block


def check(iteration: Iteration) -> None:
    """Raises the error at once, before anything is shown."""
    os.close(_open(iteration, TRANSCRIPT))


def _open(iteration: Iteration, name: str) -> int:
    try:
        return files.open_here(iteration.path(name))
    except (FileNotFoundError, NotADirectoryError):
        raise _missing(iteration, name) from None


def plain(pieces: Iterable[bytes]) -> Iterator[Event]:
    """What is nothing but text: whole lines, as long as they are not endless."""
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


def _missing(iteration: Iteration, name: str) -> InvalidValue:
    try:
        there = sorted(os.listdir(iteration.folder))
    except OSError:
        there = []
    more = f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
    told = f"there is {', '.join(there[:_SHOWN])}{more}" if there else "there is nothing else either"
    return InvalidValue(
        f"{iteration.folder} has no {name}: no agent was started, or somebody took it away; {told}. "
        f"`ralphtool explain {iteration.entry}` tells what the history knows"
    )


def _never() -> bool:
    return False


def _clock(iteration: Iteration) -> Callable[[], bool]:
    """Waits a moment; tells whether the agent may still say something."""

    def goes_on() -> bool:
        attempt = iteration.attempt()
        if attempt and (attempt.end or attempt.verdict):
            return False
        time.sleep(_TICK)
        return runs.is_alive(runs.read(iteration.root, iteration.run))

    return goes_on


def _head(iteration: Iteration, goes_on: Callable[[], bool]) -> bytes:
    """The first lines, as far as they are whole; all of it if not even one is."""
    head = b""
    for block in blocks(iteration, goes_on=goes_on):
        head += block[:_HEAD]
        if b"\n" in head or len(head) >= _HEAD:
            break
    return head[: head.rfind(b"\n") + 1] or head


def _read(reader: Reader, iteration: Iteration, goes_on: Callable[[], bool]) -> Iterator[Event]:
    """Nobody knows any more what came between what on the two outputs: what went wrong is told at the end."""
    for block in blocks(iteration, goes_on=goes_on):
        yield from reader.feed(block)
    if os.path.lexists(iteration.path(ERRORS)):
        for block in blocks(iteration, ERRORS):
            yield from reader.feed_errors(block)
    yield from reader.rest()


# --- whose reader -----------------------------------------------------------------------------------


def _reader(iteration: Iteration, head: bytes) -> Reader | None:
    """A reader that makes something of the transcript: its own agent's, if it can; None if it is plain text."""
    job = Job(prompt=iteration.path("prompt.md"), root=iteration.root, folder=iteration.folder, is_past=True)
    own = _runner(_agent_of(iteration), _options(iteration))
    if own and _tells(own, job, head):
        return own.reader(job)
    best = max(agents.known(), key=lambda one: _tells(one, job, head))
    if _tells(best, job, head):
        return best.reader(job)
    return own.reader(job) if own and (head.lstrip().startswith(b"{") or not head) else None


def _agent_of(iteration: Iteration) -> str:
    attempt = iteration.attempt()
    return attempt.start.agent if attempt else ""


def _options(iteration: Iteration) -> Mapping[str, Any]:
    try:
        configured = settings.load(iteration.root).agents.get(_agent_of(iteration))
    except InvalidValue:
        return {}  # whoever looks at a transcript need not mend the settings first
    return structs.asdict(configured) if configured else {}


def _runner(name: str, options: Mapping[str, Any]) -> Runner | None:
    try:
        return agents.make(name, options) if name else None
    except InvalidValue:
        return None  # its package is gone


def _tells(runner: Runner, job: Job, head: bytes) -> int:
    """How much a runner's reader makes of the beginning."""
    reader = runner.reader(job)
    return sum(isinstance(event, _TELLING) for event in (*reader.feed(head), *reader.rest()))
