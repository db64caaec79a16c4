"""The option that names a change in a suggested command, so that the command works when it is pasted."""

from __future__ import annotations

from ralphtool import specs
from ralphtool.errors import RalphError


def build(change: str, *roots: str) -> str:
    """Empty if it is the only change that is found. Several roots: a box has no changes that are not committed."""
    import shlex  # only messages need it

    try:
        is_alone = {place.change for root in roots for place in specs.find_all(root)} == {change}
    except (RalphError, OSError):
        is_alone = False  # advice must not fail, and naming the change is never wrong
    return "" if is_alone else f" --change {shlex.quote(change)}"
