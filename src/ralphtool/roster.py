"""Whose turn it is: the first of the agents, in the order that the user gave, that can work now."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.agents import Quota

_FIRST_WAIT = 30.0  # seconds, then twice as long each time
_LONGEST_WAIT = 900.0
_FOR_EVER = 366 * 24 * 3600.0  # whoever tells a later time has made a mistake


class Turn(Struct, frozen=True):
    """The agent that is next, how long that is to wait for, and why."""

    agent: int
    seconds: float = 0.0
    why: str = ""


class _Agent:
    def __init__(self, name: str, stop_at: float | None) -> None:
        self.name = name
        self.stop_at = stop_at
        self.failures = 0  # in a row
        self.free_at = 0.0
        self.why = ""


class Roster:
    """What is known about each agent's limits. `stop_at` is the share of its quota at which each has to rest."""

    def __init__(self, names: Sequence[str], stop_at: Sequence[float | None] = ()) -> None:
        shares = (*stop_at, *(None for _ in names))
        self._agents = [_Agent(name, share) for name, share in zip(names, shares, strict=False)]

    def name(self, agent: int) -> str:
        return self._agents[agent].name

    def could_not(self, agent: int, why: str, reset_at: float | None) -> None:
        """An agent met a limit, or could not be reached: it rests until the time that it told, or longer each time."""
        one, now = self._agents[agent], time.time()
        backing_off = min(_FIRST_WAIT * 2**one.failures, _LONGEST_WAIT)
        one.failures += 1
        # A time that is over tells nothing.
        told = min(reset_at or 0.0, now + _FOR_EVER)
        one.free_at = told if told > now else now + backing_off
        one.why = why

    def could(self, agent: int, quota: Quota | None) -> None:
        """An agent did its work; if it has used up more of its quota than it may, it rests as well."""
        one, now = self._agents[agent], time.time()
        one.failures = 0
        if quota is None or one.stop_at is None or quota.used < one.stop_at:
            return
        told = min(quota.reset_at or 0.0, now + _FOR_EVER)
        one.free_at = told if told > now else now + _LONGEST_WAIT
        named = f"its {quota.name} quota" if quota.name else "its quota"
        one.why = f"{one.name} has used {quota.used:.0%} of {named}, and stops at {one.stop_at:.0%}"

    def next(self) -> Turn:
        """The first that is free; else the one that is free soonest."""
        now = time.time()
        free = next((number for number, one in enumerate(self._agents) if one.free_at <= now), None)
        if free is not None:
            return Turn(free)
        number = min(range(len(self._agents)), key=lambda each: self._agents[each].free_at)
        one = self._agents[number]
        return Turn(number, one.free_at - now, one.why)

    def why_not(self, agent: int) -> str:
        """What keeps an agent from working now; empty when nothing does."""
        one = self._agents[agent]
        return one.why if one.free_at > time.time() else ""
