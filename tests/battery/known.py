"""What a run has found out about the gates of a project, for the next case that begins with the same files.

So does a user's second change. Half of what a case takes is what the gates say before any work is done.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

from battery.cases import TruthCase

from ralphtool.core import layout
from ralphtool.judging.gates import build_key
from ralphtool.workspace.git import Repository


@dataclass
class KnownGates:
    """By what they are run on. Only a run whose baseline is still that of the first commit has one to give."""

    _trials: dict[str, bytes] = field(default_factory=dict)
    _baselines: dict[str, bytes] = field(default_factory=dict)

    def give(self, case: TruthCase, root: Path, settings: list[str]) -> None:
        key = _name_group(case, settings)
        for known, path in ((self._trials, _trial(root)), (self._baselines, _state(root))):
            if key in known:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(known[key])

    def learn(self, case: TruthCase, root: Path, settings: list[str]) -> None:
        key = _name_group(case, settings)
        if _trial(root).exists():
            self._trials[key] = _trial(root).read_bytes()
        state = json.loads(_state(root).read_bytes()) if _state(root).exists() else {}
        baseline = state.get("baseline")
        if baseline and baseline["key"] == _build_first_key(root, [*case.option("checks", []), case.gate]):
            self._baselines[key] = json.dumps({"spec": state["spec"], "baseline": baseline}).encode()


def _name_group(case: TruthCase, settings: list[str]) -> str:
    told = [case.files, case.setup.name, case.story.title, case.story.tasks, settings]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _trial(root: Path) -> Path:
    return root / ".git/ralph/workspaces.json"


def _state(root: Path) -> Path:
    return root / ".ralph/standing/change-cart.json"


def _build_first_key(root: Path, commands: list[str]) -> str:
    repository = Repository.find(str(root))
    first = repository.resolve(layout.START + "change-cart") if repository else None
    return build_key(repository.tree_of(first), commands) if repository and first else ""
