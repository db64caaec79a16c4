"""The receipts of a change: the evidence for the "done" of each of its stories, from the change state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from ralphtool.judging.receipt import Receipt
from ralphtool.record import questions
from ralphtool.record.fitting import fit, trim

if TYPE_CHECKING:
    from typing import Any


def read_receipts(root: str, change: str) -> dict[str, Receipt]:
    """The receipt of each story that has one. Whether the story is done is decided by the spec and the branch."""
    stories = questions.load_change_state(root, change).get("stories", {})
    found = {story: parse_receipt(fields.get("proof")) for story, fields in stories.items()}
    return {story: receipt for story, receipt in found.items() if receipt is not None}


def find_by_entry(root: str, change: str, entry: str) -> tuple[Receipt | None, bool]:
    """The receipt of the story whose last attempt this is; and whether old tests failed on its code."""
    for fields in questions.load_change_state(root, change).get("stories", {}).values():
        if fields.get("entry") == entry:
            return parse_receipt(fields.get("proof")), bool(fields.get("accused"))
    return None, False


def parse_receipt(value: Any) -> Receipt | None:
    """As much of an untrusted receipt as matches its type."""
    fitted = fit(Receipt, value) if isinstance(value, dict) else UNSET
    return None if fitted is UNSET else trim(fitted)
