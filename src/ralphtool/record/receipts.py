"""The receipts of a change: the evidence for the "done" of each of its stories.

A receipt is about one commit, so it is compared with the branch whenever it is read. If the branch was rewritten, it
proves nothing, unless the commit still makes the same change of the same files. See docs/proof.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from msgspec import UNSET, structs

from ralphtool.core import layout
from ralphtool.judging.receipt import ProofState, Receipt
from ralphtool.record import questions
from ralphtool.record.fitting import fit, trim
from ralphtool.workspace import branch
from ralphtool.workspace.checkpoints import is_same_change, is_same_patch, read_details
from ralphtool.workspace.git import Repository

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from ralphtool.workspace.checkpoints import Checkpoint

REWRITTEN = "its proof is about another commit: the branch was rewritten; check it, then accept or reject it"
MOVED = "the branch was rewritten, and the gates have not passed there since; the next run runs them"
MOVED_BEFORE = "the branch was rewritten; the story's change is the same, and the gates are green at the branch's tip"
UNDONE = "its checkpoint is gone from the branch, which was rewritten"
GONE = f"{UNDONE}; check it, then accept or reject it"
UNKNOWN = "no proof of it is recorded"
_ELSEWHERE = "its receipt is where the story was done; the checkpoint's message has its state"


def read_receipts(root: str, change: str) -> dict[str, Receipt]:
    """The receipt of each story that a run or a person has finished, as it applies to the branch now.

    Whether the story is done is decided by the spec and the branch. Stories that the user ticked have no receipt.
    """
    state = questions.load_change_state(root, change)
    stories = state.get("stories", {})
    known = _parse_receipts({id: fields.get("proof") for id, fields in stories.items()})
    finished = _parse_receipts(state.get("finished"))
    completed = {id for id, fields in stories.items() if fields.get("status") == "completed"}
    repository = Repository.find(root) if known or completed or branch.may_exist(root) else None
    return find_current(repository, change, known, finished, completed)


def is_settled(root: str, change: str) -> bool:
    """Whether there is work, and all of it is proven or accepted. Without a branch it is in the commit that is checked
    out, or was finished."""
    claims = read_receipts(root, change).values()
    return bool(claims) and all(one.state != "unproven" for one in claims)


def _parse_receipts(values: Any) -> dict[str, Receipt]:
    found = {id: parse_receipt(value) for id, value in values.items()} if isinstance(values, dict) else {}
    return {id: receipt for id, receipt in found.items() if receipt and isinstance(values[id].get("state"), str)}


def find_current(
    repository: Repository | None,
    change: str,
    known: Mapping[str, Receipt],
    finished: Mapping[str, Receipt],
    completed: Collection[str],
) -> dict[str, Receipt]:
    """What the receipts claim about the branch. `finished` are those of work that `ralphtool finish` has merged;
    `completed` are the stories that an attempt has completed."""
    if repository is None:
        return {**finished, **{id: Receipt(why=UNKNOWN) for id in completed}, **known}
    tip = repository.resolve(layout.BRANCHES + change) or repository.resolve("HEAD")
    there = read_details(repository, change)
    gone = {id: _compare_gone(repository, known.get(id), tip) for id in (*completed, *known) if id not in there}
    return {**finished, **gone, **{id: _compare(repository, known.get(id), made) for id, made in there.items()}}


def _compare(repository: Repository, receipt: Receipt | None, made: Checkpoint) -> Receipt:
    """The receipt of a story that has a checkpoint."""
    if receipt and (receipt.commit in (None, made.commit) or is_same_change(repository, str(receipt.commit), made)):
        return receipt
    if made.noted in get_args(ProofState):
        why = "it was not proven when it was done" if made.noted == "unproven" else ""
        return Receipt(state=made.noted, why=why, told=(_ELSEWHERE,), commit=made.commit)
    if receipt is None:
        return Receipt(why=UNKNOWN, commit=made.commit)
    if not is_same_patch(repository, str(receipt.commit), made):
        return structs.replace(receipt, state="unproven", why=REWRITTEN)
    return structs.replace(receipt, state="unproven", why=MOVED) if receipt.state in ("proven", "held") else receipt


def _compare_gone(repository: Repository, receipt: Receipt | None, tip: str | None) -> Receipt:
    """The receipt of a story that was completed, and has no checkpoint on the branch: it may have been merged since."""
    if receipt is None:
        return Receipt(why=GONE)
    is_there = receipt.commit is None or (tip is not None and repository.is_ancestor(receipt.commit, tip))
    return receipt if is_there else structs.replace(receipt, state="unproven", why=GONE)


def find_by_entry(root: str, change: str, entry: str) -> tuple[Receipt | None, bool]:
    """The receipt of the story whose last attempt this is; and whether old tests failed on its code."""
    for id, fields in questions.load_change_state(root, change).get("stories", {}).items():
        if fields.get("entry") == entry:
            current = read_receipts(root, change) if fields.get("proof") else {}
            return current.get(id), bool(fields.get("accused"))
    return None, False


def parse_receipt(value: Any) -> Receipt | None:
    """As much of an untrusted receipt as matches its type."""
    fitted = fit(Receipt, value) if isinstance(value, dict) else UNSET
    return None if fitted is UNSET else trim(fitted)
