"""A worker from its start to its end."""

from __future__ import annotations

import fcntl
import os
import platform
import re
import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.core import files, layout
from ralphtool.errors import InvalidValue, RalphError
from ralphtool.executors.temporal import serving
from ralphtool.loop.run import recover
from ralphtool.workers.carrying import Carrier
from ralphtool.workers.clones import list_clones, list_folders, shrink
from ralphtool.workers.pool import BenchPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ralphtool.settings.executor import ExecutorSettings

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SPARE = 2  # benches besides those that agents work on: work that waits to be proven keeps its bench


class WorkerOptions(Struct, frozen=True, kw_only=True):
    settings: ExecutorSettings
    name: str
    slots: int
    home: str
    remote: str = ""  # replaces the one that an offer names


def find_name(given: str) -> str:
    """A name by which people recognize the machine."""
    name = given or re.sub(r"[^A-Za-z0-9._-]+", "-", platform.node()).strip("-.") or "worker"
    if not _NAME.fullmatch(name):
        raise InvalidValue("a worker's name may have letters, digits, dots and dashes, at most 64 characters")
    return name


def find_home(given: str, name: str) -> str:
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.abspath(given or os.path.join(state, "ralphtool", "workers", name))


def run_worker(options: WorkerOptions, ready: Callable[[], None], stop: threading.Event) -> None:
    """Carries out orders until it is stopped."""
    with _hold_home(options):
        _clean_up(options.home)
        pool = BenchPool(options.slots + _SPARE)
        carrier = Carrier(options.home, options.name, pool, options.remote)
        try:
            serving.serve(
                options.settings,
                slots=options.slots,
                identity=options.name,
                carry_out=carrier.carry_out,
                stop=stop,
                ready=ready,
            )
        finally:
            pool.close()


@contextmanager
def stop_by_signals() -> Iterator[threading.Event]:
    """On Ctrl-C, a closed terminal or SIGTERM: no new work, and running work is handed over."""
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *given: stop.set())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield stop
    finally:
        for number, known in before.items():
            signal.signal(number, known)


@contextmanager
def _hold_home(options: WorkerOptions) -> Iterator[None]:
    os.makedirs(options.home, mode=0o700, exist_ok=True)
    lock = os.open(os.path.join(options.home, "worker.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise InvalidValue(
            f"another worker uses {options.home}: give this one another name with --name, or another folder with --home"
        ) from None
    finally:
        os.close(lock)


def _clean_up(home: str) -> None:
    """Cleans up after a killed worker: ends its processes, and releases its locks."""
    for place in list_clones(home):
        for folder in list_folders(place):
            with suppress(RalphError, OSError):  # errors there are reported when the folder is used again
                recover(folder)
                files.clear(layout.runs(folder))
        with suppress(RalphError, OSError):
            shrink(place)
