"""The receipt of a story: the evidence for its "done". It is in the record and in the state of the change."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from ralphtool.judging.proof_words import describe_proof

ProofState = Literal["proven", "held", "unproven", "accepted"]
RunKind = Literal["before", "gates", "replay", "checks", "own-tests", "guarded"]
MOST_NAMES = 50  # tests that a receipt names; the rest are only counted

_Count = Annotated[int, Meta(ge=0, le=10**15)]


class ProofRun(Struct, frozen=True, kw_only=True):
    """One command that was run for a proof."""

    kind: str = ""
    """`before` (at the checkpoint), `gates` (the finished work), `replay` (old tests, new source),
    `checks` (checks as they were, new source), `own-tests` (new tests, old source),
    `guarded` (tests that earlier stories changed, as they were, new source)"""
    command: str = ""
    """the command"""
    ok: bool = False
    """whether it was green"""
    tally: str | None = None
    """`12 passed, 1 failed`; null if the program reports no tally"""


class Suspicion(Struct, frozen=True, kw_only=True):
    """Something suspicious in a diff."""

    kind: str = ""
    """its kind"""
    path: str = ""
    """the file"""
    detail: str = ""
    """a description, in one line"""


class Receipt(Struct, frozen=True, kw_only=True):
    """The evidence that a story is done."""

    state: str = "unproven"
    """`proven`, `held`, `unproven` or `accepted`"""
    why: str = ""
    """why it is not proven; for an accepted story, the reason that the person gave"""
    own_tests: tuple[str, ...] = ()
    """tests that fail without the work and pass with it; at most 50"""
    own_count: _Count = 0
    """the number of such tests"""
    own_unloaded: _Count = 0
    """how many of them can't even be loaded without the work"""
    passed_before: _Count | None = None
    """the number of tests that passed at the checkpoint; null if no program reports it"""
    passed_after: _Count | None = None
    """the number of tests that pass now"""
    lost: tuple[str, ...] = ()
    """original tests that passed before and fail on the new source; at most 50"""
    removed: tuple[str, ...] = ()
    """tests that were removed although they still pass; at most 50"""
    removed_count: _Count = 0
    """the number of such tests, which may have no names"""
    weakened: tuple[Suspicion, ...] = ()
    """tests that were skipped or check less now although they still pass as they were; at most 50"""
    allowed: str = ""
    """what allows the loss: the story's text, or a setting"""
    suspicions: tuple[Suspicion, ...] = ()
    """the suspicions in the diff"""
    cleared: str = ""
    """how the suspicion was cleared"""
    runs: tuple[ProofRun, ...] = ()
    """the commands that were run"""
    told: tuple[str, ...] = ()
    """other notes: files that were set aside, flaky tests, an environment that was used unchanged"""
    by: str = ""
    """who accepted it"""
    at: str = ""
    """when it was accepted"""
    commit: str | None = None
    """the story's commit"""

    @property
    def number_removed(self) -> int:
        """Receipts of older versions only have the names."""
        return max(self.removed_count, len(self.removed))


def describe(receipt: Receipt) -> str:
    """One line: `held by the existing tests`, `done, not proven: there is no gate`."""
    return describe_proof(receipt.state, receipt.why)
