"""The output of RSpec."""

from __future__ import annotations

import re

from ralphtool.judging.testresults.model import Counts, ProgramReport, add_up, parse_counts, shorten_path

_END = re.compile(r"\d+ examples?, \d+ failures?(?:, \d+ pending)?(?:, \d+ errors? occurred outside of examples)?$")
_LINE_NUMBER = re.compile(r"(?::\d+|\[[\d:]+\])$")
_ERROR_OUTSIDE = "An error occurred "


def read_rspec(lines: list[str]) -> ProgramReport | None:
    """Reads `7 examples, 4 failures`, and after it `rspec ./spec/a_spec.rb:7 # cart same` for each failure."""
    names: list[str] = []
    summaries, listing = list[Counts](), False
    for line in lines:
        if _END.match(line):
            summaries.append(_parse_summary(line))
        elif line.startswith(_ERROR_OUTSIDE):
            names.append(line.removeprefix(_ERROR_OUTSIDE).removesuffix("."))
        elif listing and line.startswith("rspec "):
            names.append(_parse_id(line))
        listing = line == "Failed examples:" or (listing and (not line or line.startswith("rspec ")))
    return add_up(names, summaries)


def _parse_summary(line: str) -> Counts:
    words = parse_counts(line)
    passed = words["example"] - words["failure"] - words["pending"]
    return Counts(max(0, passed), words["failure"] + words["error"], words["pending"])


def _parse_id(line: str) -> str:
    """Leaves out the line number: it changes with every line that is added above."""
    place, _, description = line.removeprefix("rspec ").partition(" # ")
    return f"{shorten_path(_LINE_NUMBER.sub('', place.strip(chr(39))))} # {description}"
