"""The stories that are skipped: by a person, or by a run that gave up an optional one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ralphtool.core import layout
from ralphtool.record import steering
from ralphtool.record.plain_state import load_change_state

if TYPE_CHECKING:
    from typing import Any


def list_skipped(root: str, change: str) -> list[str]:
    """Includes what the next run will skip. One that was done before it was skipped may be among them."""
    if not any(map(os.path.exists, (layout.change_state(root, change), layout.steering(root, change)))):
        return []
    fields = load_change_state(root, change)
    found = {id: None for id, one in fields.get("stories", {}).items() if _is_skipped(one)}
    for said in steering.list_pending(root, change, fields.get("heeded") or ()):
        if said.action == "skip" and said.story is not None:
            found[said.story] = None
        elif said.action == "retry":
            found.pop(said.story, None)
    return list(found)


def _is_skipped(state: dict[str, Any]) -> bool:
    decision = state.get("decision")
    return isinstance(decision, dict) and decision.get("action") == "skip"
