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
from ralphtool.errors import InvalidValue, UnsafePath, shorten
from ralphtool.record import runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

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

    def told(self) -> Told:
        """What the run has told about it by now."""
        self._record.read_on()
        return self._record.told

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


# --- what its run told ------------------------------------------------------------------------------


class Told:
    """What stands in the run's record about an iteration; each is empty where it does not stand there."""

    def __init__(self) -> None:
        self.start: dict[str, Any] = {}  # the event `iteration_started`
        self.end: dict[str, Any] = {}  # the agent's last word
        self.verdict: dict[str, Any] = {}

    @property
    def agent(self) -> str:
        name = self.start.get("agent")
        return name if isinstance(name, str) else ""


class _Record:
    """Looks for the lines about one iteration in a run's record, and decodes no others."""

    def __init__(self, path: str, number: int) -> None:
        self._path = path
        self._number = number
        self._offset = 0
        self._is_ours = self._is_over = False
        self.told = Told()

    def read_on(self) -> None:
        """Reads what was added since the last time."""
        try:
            fd = files.open_here(self._path)
        except (OSError, UnsafePath):
            return
        try:
            while not self._is_over and (block := files.read_at(fd, self._offset, self._offset + _BLOCK)):
                if not self._take(block):
                    return
        finally:
            os.close(fd)

    def _take(self, block: bytes) -> bool:
        """Takes the lines that are whole; tells whether there were any."""
        end = block.rfind(b"\n") + 1
        if not end and len(block) < _BLOCK:
            return False
        self._offset += end or len(block)  # half a line of that length is none of those that we look for
        wanted = (b'"verdict"', b'"end"') if self._is_ours else ()
        if any(word in block for word in (b'"iteration_started"', *wanted)):
            for line in block[:end].split(b"\n"):
                self._look_at(line)
        return True

    def _look_at(self, line: bytes) -> None:
        kind = runs.quick_type(line)
        is_wanted = kind in (b"iteration_started", b"verdict", None) or (kind == b"agent" and b'"end"' in line)
        if self._is_over or not (is_wanted and (event := runs.event_of(line))):
            return
        if event["type"] == "iteration_started":
            self._is_over = self._is_ours
            self._is_ours = event.get("number") == self._number
            self.told.start = event if self._is_ours and not self._is_over else self.told.start
        elif event["type"] == "verdict" and self._is_ours:
            self.told.verdict, self._is_over = event, True
        elif event["type"] == "agent" and self._is_ours and not self.told.end:  # a second is of one who only looked
            said = event.get("event")
            self.told.end = said if isinstance(said, dict) and said.get("kind") == "end" else {}


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
        told = iteration.told()
        if told.end or told.verdict:
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
    own = _runner(iteration.told().agent, _options(iteration))
    if own and _tells(own, job, head):
        return own.reader(job)
    best = max(agents.known(), key=lambda one: _tells(one, job, head))
    if _tells(best, job, head):
        return best.reader(job)
    return own.reader(job) if own and (head.lstrip().startswith(b"{") or not head) else None


def _options(iteration: Iteration) -> Mapping[str, Any]:
    try:
        configured = settings.load(iteration.root).agents.get(iteration.told().agent)
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
