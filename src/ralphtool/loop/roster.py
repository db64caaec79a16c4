"""Picks the next agent: the first, in the user's order, that can work now."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.agents import Quota
    from ralphtool.settings import Settings

_FIRST_WAIT = 30.0  # seconds, then twice as long each time
_LONGEST_WAIT = 900.0
_WITHOUT_A_TIME = 3600.0  # for a quota without a known reset time
_LATEST = 35 * 24 * 3600.0  # a later reset time is a mistake
_BELIEVED = 2  # times in a row that a reset time is trusted


class NextAgent(Struct, frozen=True):
    """The next agent, how long to wait for it, and why."""

    agent: int
    seconds: float = 0.0
    why: str = ""


class _AgentAvailability:
    def __init__(self, name: str, stop_at: float | None) -> None:
        self.name = name
        self.stop_at = stop_at
        self.failures = 0  # in a row
        self.free_at = 0.0
        self.why = ""


class Roster:
    """The known limits of each agent. `stop_at` is the share of its quota at which each must rest."""

    def __init__(self, names: Sequence[str], stop_at: Sequence[float | None] = ()) -> None:
        shares = (*stop_at, *(None for _ in names))
        self._agents = [_AgentAvailability(name, share) for name, share in zip(names, shares, strict=False)]

    def name(self, agent: int) -> str:
        return self._agents[agent].name

    def find(self, name: str) -> int:
        return [one.name for one in self._agents].index(name)

    def mark_unavailable(self, agent: int, why: str, reset_at: float | None) -> None:
        """An agent reached a limit, or could not be reached: it rests until its reset time, or longer each time."""
        one, now = self._agents[agent], time.time()
        backing_off = min(_FIRST_WAIT * 2 ** min(one.failures, 10), _LONGEST_WAIT)
        one.failures += 1
        told = _plausible_time(reset_at, now)
        # A reset time that was wrong several times in a row is not trusted.
        is_believed = told is not None and one.failures <= _BELIEVED
        one.free_at = told if told is not None and is_believed else max(told or 0.0, now + backing_off)
        one.why = why

    def mark_available(self, agent: int, quotas: Sequence[Quota] = ()) -> None:
        """An agent did its work; it must rest anyway if it used up more of a quota than allowed."""
        one, now = self._agents[agent], time.time()
        one.failures = 0
        over = [quota for quota in quotas if one.stop_at is not None and quota.used >= one.stop_at]
        if not over or one.stop_at is None:
            return
        until = [(_plausible_time(quota.reset_at, now) or now + _WITHOUT_A_TIME, quota) for quota in over]
        one.free_at, quota = max(until, key=lambda each: each[0])
        named = f"its {quota.name} quota" if quota.name else "its quota"
        one.why = f"{one.name} has used {quota.used:.0%} of {named}, and stops at {one.stop_at:.0%}"

    def next(self) -> NextAgent:
        """The first free agent, or the one that is free soonest."""
        now = time.time()
        free = next((number for number, one in enumerate(self._agents) if one.free_at <= now), None)
        if free is not None:
            return NextAgent(free)
        number = min(range(len(self._agents)), key=lambda each: self._agents[each].free_at)
        one = self._agents[number]
        return NextAgent(number, one.free_at - now, one.why)

    def explain_unavailable(self, agent: int) -> str:
        """Why an agent can't work now; empty if it can."""
        one = self._agents[agent]
        return one.why if one.free_at > time.time() else ""


def _plausible_time(moment: float | None, now: float) -> float | None:
    """A time to wait for; None if it has passed, or is absurd."""
    return moment if moment is not None and now < moment <= now + _LATEST else None


def find_quota_limit(settings: Settings, name: str) -> float | None:
    """The share of its quota that an agent may use before another one takes over; None means all."""
    agent = settings.agents.get(name)
    return agent.stop_at if agent else None
