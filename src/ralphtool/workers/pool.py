"""The benches of a worker: opened when they are needed, kept for the next order, closed when there are too many."""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ralphtool.core import layout
from ralphtool.workers.bench import Bench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ralphtool.executors.orders import Order
    from ralphtool.workers.clones import ProjectClone
    from ralphtool.workspace.git import Repository

_TICK = 0.1
_FINDINGS = "workspaces.json"


class BenchPool:
    def __init__(self, most: int) -> None:
        self._most = most
        self._idle: list[tuple[str, Bench]] = []  # with their projects, the last used one at the end
        self._numbers: set[int] = set()
        self._lock = threading.Lock()
        self._opening = threading.Lock()  # the first finds out what the others then know

    @contextmanager
    def lend(self, clone: ProjectClone, order: Order, stop: Callable[[], bool]) -> Iterator[Bench]:
        """A bench for an order. A bench that failed is not used again."""
        bench = self._take(clone, order) or self._open(clone, order, stop)
        try:
            yield bench
        except BaseException:
            self._drop(bench)
            raise
        self._give_back(clone, bench)

    def _take(self, clone: ProjectClone, order: Order) -> Bench | None:
        """The free bench that already has the work, else one whose work is proven, or that was used longest ago."""
        with self._lock:
            fitting = [one for project, one in self._idle if project == clone.folder and one.fits(order)]
            own = [one for one in fitting if one.token == order.assignment.token]
            # Work on another bench must be proven soon: so open one more, as long as the limit allows.
            others = fitting if len(self._numbers) >= self._most else []
            bench = next(iter([*own, *(one for one in fitting if not one.awaits_proof), *others]), None)
            self._idle = [(project, one) for project, one in self._idle if one is not bench]
            return bench

    def _open(self, clone: ProjectClone, order: Order, stop: Callable[[], bool]) -> Bench:
        with self._lock:
            number = next(number for number in range(1, 1000) if number not in self._numbers)
            self._numbers.add(number)
        bench: Bench | None = None
        try:
            while not self._opening.acquire(timeout=_TICK):
                pass
            try:
                repository = clone.open_folder(order.assignment.change, number)
                self._copy_findings(clone, repository)
                bench = Bench(repository, number, order)
                bench.open(order, stop)
                self._keep_findings(clone, repository)
            finally:
                self._opening.release()
        except BaseException:
            self._numbers.discard(number)
            raise
        return bench

    def _copy_findings(self, clone: ProjectClone, repository: Repository) -> None:
        known = os.path.join(clone.folder, _FINDINGS)
        if os.path.exists(known):
            os.makedirs(layout.in_git(repository.common), exist_ok=True)
            shutil.copyfile(known, os.path.join(layout.in_git(repository.common), _FINDINGS))

    def _keep_findings(self, clone: ProjectClone, repository: Repository) -> None:
        made = os.path.join(layout.in_git(repository.common), _FINDINGS)
        if os.path.exists(made):
            shutil.copyfile(made, os.path.join(clone.folder, _FINDINGS))

    def _give_back(self, clone: ProjectClone, bench: Bench) -> None:
        with self._lock:
            self._idle.append((clone.folder, bench))
            over = [one for _, one in self._idle[: max(0, len(self._idle) - self._most)]]
            self._idle = self._idle[len(over) :]
        for one in over:
            self._drop(one)

    def _drop(self, bench: Bench) -> None:
        try:
            bench.close()
        finally:
            self._numbers.discard(bench.number)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for _, bench in idle:
            self._drop(bench)
