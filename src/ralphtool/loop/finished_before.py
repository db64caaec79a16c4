"""What is still claimed of work that `ralphtool finish` has merged, when a run begins a new branch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphtool.core import layout
from ralphtool.record import change_state
from ralphtool.workspace.earlier_work import list_outdated
from ralphtool.workspace.git import Repository

if TYPE_CHECKING:
    from ralphtool.specs import Spec


def forget_other_claims(root: str, spec: Spec) -> None:
    """An earlier change may have had the same name: then the claims are about its stories."""
    known, repository = change_state.load(root, spec.change), Repository.find(root)
    done = repository.resolve(layout.FINISHED + spec.change) if repository and known.finished else None
    if repository is None or done is None or repository.resolve(layout.BRANCHES + spec.change):
        return
    claims = dict.fromkeys(known.finished, done)
    if other := list_outdated(repository, root, spec.change, claims, spec.ref):
        known.finished = {id: one for id, one in known.finished.items() if id not in other}
        change_state.save(root, spec.change, known)
