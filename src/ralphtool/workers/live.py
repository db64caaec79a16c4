"""Reports from a worker while it carries out an order: the end of its record, twice a second."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import msgspec

from ralphtool.executors.orders import Beat

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphtool.workers.bench import Bench

_TICK = 0.5  # seconds
_MOST = 32 << 10  # bytes of events in a heartbeat


class Teller:
    """Sends the events that are written while the block runs; `read_lines` returns all of them."""

    def __init__(self, bench: Bench, worker: str, beat: Callable[[bytes], None]) -> None:
        self._bench = bench
        self._worker = worker
        self._beat = beat
        self._start = _size_of(bench.events)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True)

    def __enter__(self) -> Teller:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()

    def _tell(self) -> None:
        while True:
            offset, lines = self._read_end()
            told = Beat(worker=self._worker, root=self._bench.folder, offset=offset, lines=lines)
            self._beat(msgspec.msgpack.encode(told))
            if self._over.wait(_TICK):
                return

    def _read_end(self) -> tuple[int, bytes]:
        """The last complete lines, and their offset from the start of the order."""
        begin = max(self._start, _size_of(self._bench.events) - _MOST)
        data = self._read_from(begin)
        first = data.find(b"\n") + 1 if begin > self._start else 0
        return begin - self._start + first, data[first : data.rfind(b"\n") + 1]

    def read_lines(self) -> bytes:
        """Everything that was written since the start."""
        return self._read_from(self._start)

    def _read_from(self, place: int) -> bytes:
        try:
            with open(self._bench.events, "rb") as file:
                file.seek(place)
                return file.read()
        except FileNotFoundError:
            return b""


def _size_of(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0
