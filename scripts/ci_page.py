"""Generates the tables of `docs/ci.md` from the types of the object that `run --format json` prints."""

from __future__ import annotations

from pathlib import Path

from events_page import docstrings, sentence, table
from msgspec import Struct

from ralphtool.views.report import final

FIRST, LAST = "<!-- fields: made by scripts/docs.py -->\n", "<!-- end of fields -->\n"
KINDS: tuple[tuple[str, type[Struct]], ...] = (
    ("The object", final.FinalResult),
    ("`stories`", final.FinalStory),
    ("`counts`", final.FinalCounts),
    ("`last_check`", final.FinalCheck),
    ("`used`", final.FinalUse),
    ("`commits`", final.FinalCommit),
    ("`next`", final.FinalStep),
    ("`paths`", final.FinalPaths),
    ("`error`", final.FinalError),
    ("With `--all`", final.FinalResults),
)


def ci_page(docs: Path) -> str:
    """The page; everything but the tables is kept."""
    before, _, rest = (docs / "ci.md").read_text().partition(FIRST)
    _, _, after = rest.partition(LAST)
    return f"{before}{FIRST}\n{''.join(section(title, kind) for title, kind in KINDS)}{LAST}{after}"


def section(title: str, kind: type[Struct]) -> str:
    rows = list(docstrings(final)[kind.__name__].items())
    return f"### {title}\n\n{sentence(kind)}\n\n{table(('field', 'what'), rows)}\n\n"
