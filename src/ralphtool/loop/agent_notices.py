"""Notices for people about the agents of a run, before it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphtool.loop import budget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.agents import Runner
    from ralphtool.settings import Settings


def list_agent_notices(runners: Sequence[Runner], settings: Settings) -> list[str]:
    """What each agent may do, and the limits that can't be enforced for it."""
    notices = [text for runner in runners for text in runner.traits.notices]
    unknown = [(runner.name, budget.explain_unknown_cost(runner, settings)) for runner in runners]
    if settings.run.max_cost or settings.run.story_cost:
        notices += [f"the cost limit can't be enforced for {name}: {why}" for name, why in unknown if why]
    return notices
