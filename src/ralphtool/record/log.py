"""The events of a run as they happen: one JSON object per line, in `.ralph/runs/<run>/events.jsonl`.

The loop writes it; any process can read it at any time to watch the run. There are no callbacks.
Every event has `at` (the time) and `type`; record/events.py has the types and their fields.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from ralphtool.core import files, layout, secrets, session
from ralphtool.record import events

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ralphtool.record.events import Event, RunEnded

_BLOCK = 1 << 20


class Log:
    """The events of one run, open for writing, by more than one thread."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.iteration = events.IterationStarted()  # the last to begin
        self._began = ""  # the time of the first event
        self._lock = threading.Lock()
        self._secrets = secrets.list_values()
        self._fd = self._open()
        files.sync_folder(path)

    def _open(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def close(self) -> None:
        os.close(self._fd)

    @property
    def is_empty(self) -> bool:
        return os.fstat(self._fd).st_size == 0

    def restore(self) -> bool:
        """Restores the file if it was removed or replaced; returns whether it was. The open file is still complete."""
        with self._lock:
            try:
                if os.path.samestat(os.stat(self.path), os.fstat(self._fd)):
                    return False
            except FileNotFoundError:
                os.makedirs(os.path.dirname(self.path), exist_ok=True)
            lost, self._fd = self._fd, self._open()
            os.lseek(lost, 0, os.SEEK_SET)
            while block := os.read(lost, _BLOCK):
                files.write_fd(self._fd, block)
            os.close(lost)
        return True

    def end(self, event: RunEnded) -> RunEnded:
        """Adds the last event, with the time since the first: so all views show the same duration of the run."""
        at = session.now()
        began, ended = (datetime.fromisoformat(one) for one in (self._began or at, at))
        if event.spent.seconds is not None:
            seconds = round(max(0.0, (ended - began).total_seconds()), 3)
            event = structs.replace(event, spent=structs.replace(event.spent, seconds=seconds))
        self.add(event, at)
        return event

    def add(self, event: Event, at: str = "") -> None:
        """Adds an event that others may rely on: it is on disk when this returns."""
        self.note(event, at)
        os.fdatasync(self._fd) if hasattr(os, "fdatasync") else os.fsync(self._fd)

    def note(self, event: Event, at: str = "") -> None:
        """Adds an event that is only for display: it is synced to disk together with the next `add`.

        `at` is given for an event that happened elsewhere, some time ago.
        """
        if isinstance(event, events.IterationStarted):
            self.iteration = event
        at = at or session.now()
        self._began = self._began or at
        fields = events.encode_fields(event, at)
        if self._secrets:
            fields = secrets.mask(msgspec.to_builtins(fields), self._secrets)
        line = msgspec.json.encode(fields) + b"\n"
        with self._lock:
            files.write_fd(self._fd, line)

    def note_texts(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.note(events.Notice(text=text))


@contextmanager
def open_log(root: str, run: str) -> Iterator[Log]:
    """The record of a run. An error before its first event means that the run was refused: then it leaves no record,
    and the newest run is still the one before."""
    log = Log(layout.events(root, run))
    try:
        yield log
    except BaseException:
        if log.is_empty:
            files.clear(layout.run(root, run))
        raise
    finally:
        log.close()


class LaneLog(Log):
    """The same record, for one of several lanes that write to it: each has its own last iteration."""

    def __init__(self, log: Log) -> None:
        self.path = log.path
        self.iteration = events.IterationStarted()
        self._log = log

    def close(self) -> None:
        """Does nothing: the file belongs to the run."""

    def restore(self) -> bool:
        return self._log.restore()

    def add(self, event: Event, at: str = "") -> None:
        self._keep(event)
        self._log.add(event, at)

    def note(self, event: Event, at: str = "") -> None:
        self._keep(event)
        self._log.note(event, at)

    def _keep(self, event: Event) -> None:
        if isinstance(event, events.IterationStarted):
            self.iteration = event
