"""The world of a simulated run: a virtual clock, places to queue at, and trees without files."""

from __future__ import annotations

import heapq
from collections.abc import Generator
from itertools import count
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

_MASK = (1 << 64) - 1


class Case(Struct, frozen=True, kw_only=True):
    """The parameters, in seconds and fractions; docs/scale.md says which are measured and which are assumed."""

    stories: int = 1_000
    workers: int = 200
    slots: int = 1  # of each worker
    speculate: int = 2
    seed: int = 1
    # the project and its agents
    agent: float = 600.0
    agent_spread: float = 0.5  # the sigma of a log-normal distribution
    gates: float = 120.0
    proof_runs: float = 2.0  # further runs of the gates, for a story that touches tests
    tests_touched: float = 0.8
    conflict: float = 0.001  # of a story with one that was merged after it began
    red_together: float = 0.0002  # in the same way
    own_red: float = 0.1
    flaky: float = 0.01  # of one run of the gates
    return_share: float = 0.5  # of an agent's time, if it gets its story again
    depends: float = 0.0  # stories that depend on one of the twenty before them
    limited: float = 0.0  # agents that hit a rate limit
    rest: float = 300.0  # until the limit is over
    most_attempts: int = 5
    # the loop's own thread
    step: float = 0.002
    find: float = 0.09
    begin: float = 0.10
    take: float = 0.025
    merge: float = 0.14
    show: float = 0.11
    prove: float = 0.03
    settle: float = 0.09
    # the remote
    push: float = 0.032  # if there are no other refs
    push_ref: float = 0.00006  # for each existing ref
    fetch: float = 0.03
    remote_at_once: int = 2  # processors of the remote: further requests wait
    refs: int = 0  # left there by earlier runs
    # Temporal
    temporal: float = 0.067  # of an activity, from its start to its result
    cancel: float = 1.0
    beat: float = 0.001  # of the loop's processor, for one heartbeat; each activity sends one per second
    # alternative designs
    is_gated_first: bool = False  # the worker runs the gates on the story alone, before it is queued
    is_proven_ahead: bool = False  # looking ahead includes replay and own tests
    is_unbound: bool = False  # a waiting story needs no place on the loop's machine
    is_tidied: bool = False  # refs are removed once their commits are fetched
    is_red_aside: bool = False  # a red story leaves the queue while it is tried alone
    limit_growth: float = 0.0  # the share by which lanes grow again after a rate limit; 0 means one lane, as now
    train: int = 0  # stories that are proven as one; 0 means the present queue

    @property
    def places(self) -> int:
        return self.workers * self.slots


# --- time -------------------------------------------------------------------------------------------

Life = Generator["float | Station", None, None]  # what it waits for: some seconds, or a free place


class Process:
    """Something that happens besides the loop, as a generator of what it waits for."""

    def __init__(self, life: Life, rank: int) -> None:
        self.life = life
        self.rank = rank  # decides who comes first if several wait
        self.turn = 0  # plans for an earlier turn are void


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self._plan: list[tuple[float, int, Process, int]] = []
        self._numbers = count()

    def monotonic(self) -> float:
        """The name that the loop's own code uses for the time."""
        return self.now

    def start(self, life: Life, rank: int = 0) -> Process:
        process = Process(life, rank)
        self.wake(process)
        return process

    def wake(self, process: Process, seconds: float = 0.0) -> None:
        """Makes it continue after some seconds, whatever it waited for."""
        process.turn += 1
        heapq.heappush(self._plan, (self.now + seconds, next(self._numbers), process, process.turn))

    def advance(self, until: float) -> None:
        while self._plan and self._plan[0][0] <= until:
            self.go_on()
        self.now = max(self.now, until)

    def go_on(self) -> bool:
        """Executes the next planned step; returns whether there was one."""
        while self._plan:
            at, _, process, turn = heapq.heappop(self._plan)
            if turn == process.turn:
                self.now = max(self.now, at)
                self._resume(process)
                return True
        return False

    def _resume(self, process: Process) -> None:
        wanted = next(process.life, None)
        if isinstance(wanted, Station):
            wanted.enter(process)
        elif wanted is not None:
            self.wake(process, wanted)


class Station:
    """A limited number at once; the others wait, by rank, then in order of arrival."""

    def __init__(self, clock: Clock, places: int) -> None:
        self._clock, self._places = clock, places
        self._waiting: list[tuple[int, int, Process]] = []
        self._numbers = count()
        self._since = 0.0
        self.taken = 0
        self.busy = 0.0  # seconds of all places

    def enter(self, process: Process) -> None:
        if self.taken < self._places:
            self._count(1)
            self._clock.wake(process)
        else:
            heapq.heappush(self._waiting, (process.rank, next(self._numbers), process))

    def leave(self) -> None:
        if self._waiting:
            self._clock.wake(heapq.heappop(self._waiting)[2])
        else:
            self._count(-1)

    def use(self, seconds: float) -> Life:
        yield self
        yield seconds
        self.leave()

    def _count(self, more: int) -> None:
        self.busy += self.taken * (self._clock.now - self._since)
        self.taken, self._since = self.taken + more, self._clock.now

    def measure_busy(self) -> float:
        self._count(0)
        return self.busy


# --- chance -----------------------------------------------------------------------------------------


def draw(*numbers: int) -> float:
    """Between 0 and 1, the same for the same numbers: two stories that collide do so every time."""
    mixed = 0x9E3779B97F4A7C15
    for number in numbers:
        mixed = (mixed ^ (number + 0x9E3779B97F4A7C15)) * 0xBF58476D1CE4E5B9 & _MASK
        mixed = (mixed ^ (mixed >> 29)) * 0x94D049BB133111EB & _MASK
    return (mixed ^ (mixed >> 32)) / (_MASK + 1)


# --- trees ------------------------------------------------------------------------------------------


class Forest:
    """Commits and their trees. A tree is the sum of the work in it, in any order."""

    def __init__(self) -> None:
        self.trees = {"root": "0"}
        self._parents = {"root": ("", 0)}
        self._works: dict[int, int] = {}  # by their summand
        self._numbers = count(1)

    def add(self, tree: str, work: int) -> str:
        """The tree plus the work."""
        summand = int(draw(work) * _MASK)
        self._works[summand] = work
        return f"{int(tree, 16) ^ summand:x}"

    def commit(self, tree: str, parents: list[str], message: str) -> str:
        made = f"c{next(self._numbers)}"
        self.trees[made] = tree
        self._parents[made] = (parents[0], self._works[int(tree, 16) ^ int(self.trees[parents[0]], 16)])
        return made

    def has_same_tree(self, commit: str, other: str) -> bool:
        return self.trees[commit] == self.trees[other]

    def list_between(self, base: str, tip: str) -> Iterator[int]:
        """The work in `tip` that is not in `base`."""
        wanted = self.trees[base]
        while self.trees[tip] != wanted:
            tip, work = self._parents[tip]
            yield work
