"""The contents of `.ralph/runs`: which runs there are, how each ended, and which are still running.

A record may be as long as 2 GB, and `ralphtool runs` reads twenty of them: only the head and the tail of each are read,
and only the lines that matter are decoded. Only to count the stories of a long record without an end, all of it is
read. Standard library only, because that command must start quickly.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import contextmanager

from ralphtool.core import files, layout, locks, project
from ralphtool.errors import CorruptState, InvalidName, InvalidValue, UnsafePath
from ralphtool.judging.proof_words import count_states
from ralphtool.record.lines import LineReader, is_usage, parse_fields, read_first_line, read_last_lines, read_type
from ralphtool.record.run_end import get_number, get_rows, get_text, is_sane

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    EventFields = dict[str, Any]

RUN_STATES = ("running", "paused", "done", "unproven", "unfinished", "interrupted", "died")
_MOMENT = len("-20260301-220000-1a2b")  # how the names of runs end
_SHOWN = 5  # names in a message
_NAMED = 90  # characters of a change in the name of a run
_SPENT = ("seconds", "agent_seconds", "gate_seconds", "input_tokens", "output_tokens", "cost", "iterations")
_END = 4 << 10  # bytes that the end of most runs fits into
_HEARTBEAT_TIMEOUT = 60.0  # seconds; an active run writes to its records far more often
_COUNTED = (b"verdict", b"checkpoint", b"proof", b"reopened", b"plan_edited", None)
_SHOWS_STATE = (*_COUNTED, b"iteration_started", b"waiting", b"paused", b"resumed", b"run_ended")


class RunSummary:
    """One run, as far as the head and the tail of its record show; its counts are right, however long that is."""

    __slots__ = (
        *("id", "folder", "path", "root", "change", "agent", "branch", "pid", "began", "ended", "last"),
        *("state", "reason", "start", "end", "purpose", "proofs"),
        *("_stories_total", "_stories_done", "_spent", "_has_uncounted"),
    )

    def __init__(self, root: str, id: str) -> None:
        self.root = root
        self.id = id
        self.folder = layout.run(root, id)
        self.path = layout.events(root, id)
        self.start: EventFields = {}  # the `run_started` event
        self.end: EventFields | None = None  # the `run_ended` event
        self.change = _check_name(parse_change(id))  # empty if unknown
        self.agent = self.branch = self.began = self.reason = ""
        self.purpose = ""  # `plan` for the draft of a change
        self.last = ""  # time of its last event
        self.ended: str | None = None
        self.pid: int | None = None
        self.state = "died"
        self._stories_total = self._stories_done = 0
        self.proofs: dict[str, int] = {}  # the number of stories for each proof state; empty in old records
        self._spent: dict[str, float] = {}
        self._has_uncounted = False  # whether events that count were not read yet

    @property
    def stories_total(self) -> int:
        self._count_all()
        return self._stories_total

    @property
    def stories_done(self) -> int:
        self._count_all()
        return self._stories_done

    @property
    def spent(self) -> dict[str, float]:
        self._count_all()
        return self._spent

    def _count_all(self) -> None:
        if self._has_uncounted:
            self._has_uncounted = False
            lines = LineReader(self.path).new_without_prose()
            self._count([event for line in lines if _counts(line) and (event := parse_fields(line))])

    def _apply_start(self, event: EventFields) -> None:
        self.start = event
        self.change = _check_name(get_text(event, "change")) if get_text(event, "change") else self.change
        self.agent, self.branch, self.began = (get_text(event, name) for name in ("agent", "branch", "at"))
        self.purpose = get_text(event, "purpose")
        self.pid = event["pid"] if type(event.get("pid")) is int else None
        stories = get_rows(event, "stories")
        self._stories_total, self._stories_done = len(stories), len(_list_done(stories))

    def _apply_tail(self, tail: list[EventFields], *, is_whole: bool) -> None:
        self.last = next((get_text(one, "at") for one in reversed(tail)), self.began)
        self._has_uncounted = not is_whole
        if is_whole:
            self._count(tail)

    def _count(self, events: list[EventFields]) -> None:
        self._count_stories(events)
        told = list(_select_usage(events))
        names = ("input_tokens", "output_tokens", "cost")
        self._spent = {name: sum(get_number(one, name) for one in told) for name in names}

    def _count_stories(self, events: Iterable[EventFields]) -> None:
        done = _list_done(get_rows(self.start, "stories"))
        for one in events:
            if one["type"] == "plan_edited":  # it has all stories, by their new ids
                done, self._stories_total = _list_done(get_rows(one, "stories")), len(get_rows(one, "stories"))
            elif one["type"] == "reopened":
                done.discard(get_text(one, "story"))
            elif self._is_completion(one):
                done.add(get_text(one, "story"))
        self._stories_done = len(done)

    def _is_completion(self, event: EventFields) -> bool:
        """Whether it makes a story done: its checkpoint, or a person; without git, there is only the verdict."""
        if event["type"] == "proof":
            receipt = event.get("receipt")
            return isinstance(receipt, dict) and receipt.get("state") == "accepted"
        if self.branch:
            return bool(event["type"] == "checkpoint")
        return event["type"] == "verdict" and event.get("status") == "completed"

    def _apply_end(self, event: EventFields) -> None:
        self.end = event
        self.ended = self.last = get_text(event, "at")
        result = get_text(event, "result")
        self.state = result if result in RUN_STATES else "unfinished"
        self.reason = get_text(event, "reason")
        spent, stories = event.get("spent"), get_rows(event, "stories")
        if spent or stories:  # else an error ended the run: then the events before it show what was used
            told = spent if isinstance(spent, dict) else {}
            self._spent = {name: told[name] for name in _SPENT if is_sane(told.get(name))}
            self._has_uncounted = False
        if stories:
            self._stories_total = len(stories)
            done = [one for one in stories if one.get("state") == "done"]
            self._stories_done, self.proofs = len(done), count_states(get_text(one, "proof") for one in done)


# --- finding runs -----------------------------------------------------------------------------------


def list_ids(root: str, change: str | None = None) -> list[str]:
    """The runs that have a record, the newest first, by the moment in their names. No record is read.

    With `change`, only those whose name may stand for it: a long name of a change is truncated there.
    """
    try:
        names = os.listdir(layout.runs(root))
    except (FileNotFoundError, NotADirectoryError):
        return []
    if change is not None:
        names = [name for name in names if parse_change(name) == change[:_NAMED]]
    dated = [(_parse_moment(name), changed, name) for name in names if (changed := _read_mtime(root, name)) is not None]
    return [name for _, _, name in sorted(dated, reverse=True)]


def _read_mtime(root: str, id: str) -> int | None:
    """When its record was last written, which orders runs of the same second; None if there is no record."""
    try:
        info = os.lstat(layout.events(root, id))
    except OSError:
        return None
    return info.st_mtime_ns if stat.S_ISREG(info.st_mode) else None


def _parse_moment(id: str) -> str:
    """For example `20260301-220000`; empty if the name has none."""
    end = id[-_MOMENT:]
    is_dated = len(end) == _MOMENT and (end[0], end[9], end[16]) == ("-", "-", "-")
    return end[1:16] if is_dated and (end[1:9] + end[10:16]).isdecimal() else ""


def parse_change(id: str) -> str:
    """The change in the name of a run, which may be truncated."""
    return id[:-_MOMENT] if _parse_moment(id) else id


def find(root: str, name: str | None) -> RunSummary:
    """The run with this id, or with a unique prefix or suffix of it; the newest run of a change, or of all."""
    known = list_ids(root)
    if not known:
        raise InvalidValue("there are no runs yet: `ralphtool run` starts one")
    if name is None or name in known:
        return read_summary(root, name or known[0])
    if found := next((id for id in known if parse_change(id) == name[:_NAMED]), None):
        return read_summary(root, found)
    matching = [id for id in known if name and (id.startswith(name) or id.endswith(name))]
    if len(matching) == 1:
        return read_summary(root, matching[0])
    if not matching:
        from ralphtool.core import spelling  # needed only for the error

        names = [*known, *map(parse_change, known)]
        raise InvalidValue(
            f"there is no run {name[:100]}: {spelling.suggest(name, names, '`ralphtool runs` lists them')}"
        )
    more = f" and {len(matching) - _SHOWN} more" if len(matching) > _SHOWN else ""
    raise InvalidValue(f"{name[:100]} matches {', '.join(matching[:_SHOWN])}{more}: give more of the name")


def find_newest(root: str, change: str) -> RunSummary | None:
    """The newest run of a change."""
    for id in list_ids(root, change):
        if (run := read_summary(root, id)).change == change:
            return run
    return None


# --- reading a run ----------------------------------------------------------------------------------


def read_summary(root: str, id: str) -> RunSummary:
    """Reads the head and the tail of a record, however long it is."""
    run = RunSummary(root, id)
    with _open_record(root, id) as fd:
        _read_ends(run, fd)
    return run


@contextmanager
def _open_record(root: str, id: str) -> Iterator[int]:
    try:
        fd = files.open_in_project(layout.events(root, id))
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidValue(f"there is no run {id}: `ralphtool runs` lists them") from None
    try:
        yield fd
    finally:
        os.close(fd)


def has_ended(root: str, id: str) -> bool:
    """Whether the record ends with the end of the run: cheaper than its summary."""
    with _open_record(root, id) as fd:
        return _read_whole_end(fd, os.fstat(fd).st_size) is not None


def _read_ends(run: RunSummary, fd: int) -> None:
    size = os.fstat(fd).st_size
    if first := parse_fields(read_first_line(fd, size)):
        run.last = get_text(first, "at")
        if first["type"] == "run_started":
            run._apply_start(first)
    tail, is_whole = _read_tail(fd, size)
    run._apply_tail(tail, is_whole=is_whole)
    end = next((one for one in reversed(tail) if one["type"] == "run_ended"), None)
    if end is not None:
        run._apply_end(end)
    elif is_alive(run):
        run.state = "paused" if _is_paused(tail) else "running"


def _read_tail(fd: int, size: int) -> tuple[list[EventFields], bool]:
    """The last events that show the state of the run, and whether these are from the whole record."""
    if (told := _read_whole_end(fd, size)) is not None:
        return [told], False
    lines, is_whole = read_last_lines(fd, size)
    return list(_select_events(lines)), is_whole


def _read_whole_end(fd: int, size: int) -> EventFields | None:
    """The last event, if it is the end of the run and lists its stories: then nothing before it matters."""
    lines, _ = read_last_lines(fd, size, _END)
    if not lines or read_type(lines[-1]) != b"run_ended":
        return None
    event = parse_fields(lines[-1])
    return event if event is not None and get_rows(event, "stories") else None


def _select_events(lines: list[bytes]) -> Iterator[EventFields]:
    """The last event, and those before it that show the state of the run."""
    for number, line in enumerate(lines, 1):
        is_wanted = number == len(lines) or read_type(line) in _SHOWS_STATE or is_usage(line)
        if is_wanted and (event := parse_fields(line)):
            yield event


def _counts(line: bytes) -> bool:
    return read_type(line) in _COUNTED or is_usage(line)


def _select_usage(tail: list[EventFields]) -> list[EventFields]:
    """The events with the usage of each iteration: its verdict, or before that the reports of its agent."""
    verdicts = [number for number, one in enumerate(tail) if one["type"] == "verdict"]
    last, judged = verdicts[-1] if verdicts else -1, [tail[number].get("iteration") for number in verdicts]
    emitted = [
        one["event"]
        for number, one in enumerate(tail)
        if one["type"] == "agent"
        and isinstance(one.get("event"), dict)
        # Old records don't name the iteration: then what comes after the last verdict was not judged.
        and (one["iteration"] not in judged if one.get("iteration") else number > last)
    ]
    return [*(tail[number] for number in verdicts), *(one for one in emitted if one.get("kind") == "usage")]


def _is_paused(tail: list[EventFields]) -> bool:
    telling = [one["type"] for one in tail if one["type"] in ("paused", "resumed", "iteration_started")]
    return telling[-1:] == ["paused"]


def _check_name(text: str) -> str:
    """The name of a change, if it is valid: people copy commands that contain it."""
    return text if project.is_name(text) else ""


def _list_done(stories: list[EventFields]) -> set[str]:
    return {get_text(one, "id") for one in stories if _was_done(one)}


def _was_done(story: EventFields) -> bool:
    """Whether a story was done when its run began; records of older versions have no state."""
    return story.get("state") == "done" if "state" in story else story.get("done") is True


def describe_progress(run: RunSummary) -> str:
    """As in `2/3`, of its stories; `plan` if it drafted a change."""
    if run.purpose == "plan":
        return "plan"
    return f"{run.stories_done}/{run.stories_total}" if run.stories_total else ""


def measure_duration(run: RunSummary) -> float | None:
    """How long a run took, or has taken so far; None if its record doesn't say."""
    began, end = _parse_time(run.began), time.time() if run.state in ("running", "paused") else find_end(run)
    return None if began is None or end is None else max(0.0, end - began)


def find_end(run: RunSummary) -> float | None:
    """When a run was last alive. One that was killed may have waited for a silent program since its last event."""
    last = _parse_time(run.last)
    if run.state != "died" or last is None:
        return last
    records = [layout.processes(run.root, run.id), *layout.list_processes(run.root, run.id)]
    return max([last, *filter(None, map(_read_touched, records))])


def _read_touched(path: str) -> float | None:
    try:
        return min(os.lstat(path).st_mtime, time.time())
    except OSError:
        return None


def _parse_time(moment: str) -> float | None:
    """None for a record of another version: without a time, or without a time zone."""
    from datetime import datetime

    try:
        parsed = datetime.fromisoformat(moment)
        return parsed.timestamp() if parsed.tzinfo else None
    except (ValueError, TypeError, OverflowError):
        return None


# --- is it still running? ---------------------------------------------------------------------------


def is_alive(run: RunSummary) -> bool:
    """Whether a run without an end is still running: in its record, one that was killed looks the same."""
    lock = _find_lock(run)
    if lock is None:
        return run.pid is not None and _has_recent_writes(run) and _began_before(run.pid, run.began)
    if lock.owner is not None and lock.owner["machine"] == locks.describe_process()["machine"]:
        return not lock.has_dead_owner
    # A process on another machine can be observed from here only by what it writes.
    return _has_recent_writes(run) or _is_resting(run)


def _find_lock(run: RunSummary) -> locks.ChangeLock | None:
    """The lock of its change, if the run holds it."""
    try:
        lock = locks.read_lock(run.root, run.change)
    except (CorruptState, InvalidName, UnsafePath):
        return None
    return lock if lock is not None and lock.session_id == run.id else None


def _has_recent_writes(run: RunSummary) -> bool:
    """Whether it wrote to its records recently. The file `processes` is touched every second while a program runs."""
    for path in (run.path, os.path.join(run.folder, "processes")):
        try:
            if time.time() - os.lstat(path).st_mtime < _HEARTBEAT_TIMEOUT:
                return True
        except OSError:
            continue  # it does not exist, or no longer does
    return False


def _is_resting(run: RunSummary) -> bool:
    """Whether it is expected to be silent: it is paused, or waits for a time in the future."""
    try:
        fd = files.open_in_project(run.path)
    except (OSError, UnsafePath):
        return False
    try:
        lines, _ = read_last_lines(fd, os.fstat(fd).st_size)
    finally:
        os.close(fd)
    telling = ("waiting", "paused", "resumed", "iteration_started")
    last = next((one for one in reversed(list(_select_events(lines))) if one["type"] in telling), {"type": ""})
    return last["type"] == "paused" or (last["type"] == "waiting" and not _is_past(get_text(last, "until")))


def _is_past(moment: str) -> bool:
    from datetime import datetime

    try:
        return datetime.fromisoformat(moment).timestamp() + _HEARTBEAT_TIMEOUT < time.time()
    except (ValueError, OverflowError):
        return True


def _began_before(pid: int, moment: str) -> bool:
    """Whether the process with this id already existed at that time: then it is the same one, not a later one.

    For the short time in which a run no longer holds a lock and has not yet recorded its end.
    """
    from datetime import datetime

    try:
        made = locks.read_start_time(pid)
        return made is not None and _parse_start_time(made) <= datetime.fromisoformat(moment).timestamp() + 2
    except (OSError, OverflowError, ValueError):
        return False


def _parse_start_time(made: str) -> float:
    """What `locks.read_start_time` returns, in seconds since the epoch."""
    boot, _, ticks = made.rpartition("/")
    if not boot:
        return float(made)
    since_boot = float(files.read("/proc/uptime").split()[0])
    return time.time() - since_boot + int(ticks) / os.sysconf("SC_CLK_TCK")
