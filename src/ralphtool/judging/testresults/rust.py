"""The output of `cargo test`."""

from __future__ import annotations

import re

from ralphtool.judging.testresults.model import Counts, ProgramReport, add_up

_BEGIN = re.compile(r"running \d+ tests?$")
_END = re.compile(r"test result: (?:ok|FAILED)\. (\d{1,9}) passed; (\d{1,9}) failed; (\d{1,9}) ignored;")
_TARGET = re.compile(
    r" +(?:Running (?:unittests )?(\S+) \((\S+)\)|Running `(\S+-[0-9a-f]{16})(?: .*)?`|Doc-tests (\S+))$"
)
_LINE_NUMBER = re.compile(r" \(line \d+\)$")


def read_cargo(lines: list[str]) -> ProgramReport | None:
    """Reads for each target its name, the names below `failures:`, and `test result: FAILED. 1 passed; 1 failed; …`."""
    targets: list[str] = []
    failed: list[list[str]] = []  # by target
    summaries: list[Counts] = []
    listed: list[str] = []
    running = listing = False
    for line in lines:
        if _BEGIN.match(line):
            listed, running = [], True
        elif found := _END.match(line):
            summaries.append(Counts(int(found[1]), int(found[2]), int(found[3])))
            failed.append(listed)
            listed, running = [], False
        elif line == "failures:":  # the last one begins the list; those before it, what the tests printed
            listed, listing = [], True
            continue
        elif not running and (found := _TARGET.match(line)):
            targets.append(_name_target(found))
        elif listing and line.startswith("    "):
            listed.append(_LINE_NUMBER.sub("", line[4:]))
            continue
        listing = False
    # The targets are on stderr, in the same order; with -q there are none.
    named = zip(targets or [""] * len(failed), failed, strict=False)
    complete = not running and len(targets) in (0, len(failed))
    return add_up([f"{target} {name}" for target, names in named for name in names], summaries, complete=complete)


def _name_target(found: re.Match[str]) -> str:
    """Returns `unittests src/lib.rs (target/debug/deps/shop-507999230d6984fa)` without what each build changes."""
    binary = found[2] or found[3] or ""
    crate = binary.replace("\\", "/").rpartition("/")[2].rpartition("-")[0]
    return " ".join(filter(None, (crate, found[1], found[4])))
