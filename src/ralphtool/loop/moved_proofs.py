"""Proofs of work that moved: after a rebase, a story's commit makes the same change on other files.

What was proven on the old files is not proven on the new ones. But if the gates that were green for it are green on the
tip of the branch, the existing tests hold it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from ralphtool.record import events, receipts

if TYPE_CHECKING:
    from ralphtool.judging.receipt import ProofRun, Receipt
    from ralphtool.loop.change import Change
    from ralphtool.record.event_parts import LastCheck
    from ralphtool.record.log import Log


def hold_moved(change: Change, tip: LastCheck | None, log: Log) -> LastCheck | None:
    """Renews the receipts of such stories, if the last check allows it; returns that check."""
    if tip is None or not tip.ok:
        return tip
    for story, claim in change.read_receipts().items():
        state = change.change_state.story(story)
        if claim.why == receipts.MOVED and state.proof and _is_covered(state.proof, tip):
            told = (*state.proof.told, f"{receipts.MOVED_BEFORE}: it was {state.proof.state} before")
            commit = change.workspace.checkpoints().get(story)
            state.proof = structs.replace(state.proof, state="held", why="", told=told, commit=commit)
            change.save()
            log.note(events.Proof(story=story, entry=state.entry or "", receipt=state.proof))
    return tip


def _is_covered(receipt: Receipt, tip: LastCheck) -> bool:
    """Whether the gates that were green for the story are green now, and still run tests."""
    now = {run.command: run for run in tip.runs if run.ok}
    gates = [run for run in receipt.runs if run.kind == "gates" and run.ok]
    return bool(gates) and all(_is_as_good(run, now.get(run.command)) for run in gates)


def _is_as_good(before: ProofRun, now: ProofRun | None) -> bool:
    return now is not None and (_has_passed(now) or not _has_passed(before))


def _has_passed(run: ProofRun) -> bool:
    return "passed" in (run.tally or "")
