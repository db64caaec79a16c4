"""Writes the agents' learnings and observations to the spec, as one more commit, and to the history."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ralphtool import specs
from ralphtool.core import secrets
from ralphtool.history import from_session
from ralphtool.sandbox import beneath

if TYPE_CHECKING:
    from ralphtool.core.session import SessionState
    from ralphtool.history import History
    from ralphtool.loop.change import Change


def write_out(change: Change, history: History, state: SessionState) -> None:
    workspace = change.workspace
    workspace.begin(None)
    spec, state = change.spec, secrets.mask(state, secrets.list_values())
    _remove_link_outside(getattr(spec, "notes_file", ""), workspace.root)
    spec.write_learnings(state["learnings"])
    spec.write_patterns(state["patterns"])
    spec.write_observations(state["observations"])
    taken = workspace.take()
    if taken.tree and taken.paths:
        commit = workspace.commit(taken.tree, f"Learnings of {change.name}\n\nRalph-Change: {change.name}\n")
        workspace.publish("", commit, tree=taken.tree)
    from_session.write(history, state, lambda story: specs.prd_id(spec, story))


def _remove_link_outside(path: str, root: str) -> None:
    """An agent may have committed a link in place of the notes: its target would be written to."""
    if os.path.islink(path) and not beneath.is_below(os.path.realpath(path), os.path.realpath(root)):
        os.unlink(path)
