"""The command line that runs a change again, as people are told to enter it: with the agent of its last run.

Only the beginning of that run's record is read, because `ralphtool list` and `ralphtool runs` must start quickly.
"""

from __future__ import annotations

import os

from ralphtool.core import files, layout
from ralphtool.errors import RalphError, SpecError
from ralphtool.record import runs
from ralphtool.record.lines import parse_fields, read_first_line
from ralphtool.record.run_end import get_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralphtool.record.runs import RunSummary


def build(root: str, change: str) -> str:
    """Also names the spec of the change, if it can't be detected or another one has a change of that name."""
    return f"ralphtool run {change}{_read_spec_option(root, change)}{_read_agent_options(root, change)}"


def build_located(root: str, change: str, spec: str = "") -> str:
    """For a change whose place is known: `spec` is its file if that must be named."""
    return f"ralphtool run {change}{spec and f' --spec {spec}'}{_read_agent_options(root, change)}"


def build_resuming(run: RunSummary) -> str:
    """Resumes a run, with its own agent."""
    if not run.change:
        return "ralphtool run"
    spec = _read_spec_option(run.root, run.change)
    return f"ralphtool run {run.change}{spec}{get_text(run.start, 'agent_options')}"


def _read_spec_option(root: str, change: str) -> str:
    from ralphtool.record import questions

    try:
        return build_spec_option(root, change, str(questions.load_change_state(root, change).get("spec") or ""))
    except (RalphError, OSError):
        return ""  # advice must not fail: `ralphtool doctor` reports the damage


def build_spec_option(root: str, change: str, ref: str) -> str:
    """Empty if a command that only names the change finds this spec."""
    import shlex  # its import takes longer than reading the state

    from ralphtool import specs

    return f" --spec {shlex.quote(specs.file_of(ref) or ref)}" if ref and _must_name_spec(root, change, ref) else ""


def _must_name_spec(root: str, change: str, ref: str) -> bool:
    """Whether a command that only names the change would not find it, or would find several."""
    from ralphtool import specs

    found = [place for place in specs.find_all(root) if place.change == change]
    if len(found) < 2:
        return not found and ":" in ref
    try:
        return specs.open(root, change).ref != ref
    except SpecError:
        return True


def _read_agent_options(root: str, change: str) -> str:
    for id in runs.list_ids(root, change):
        try:
            started = _read_start(layout.events(root, id))
        except (RalphError, OSError):
            continue  # advice must not fail
        if get_text(started, "change") == change:
            return get_text(started, "agent_options")
    return ""


def _read_start(path: str) -> dict[str, object]:
    fd = files.open_in_project(path)
    try:
        first = parse_fields(read_first_line(fd, os.fstat(fd).st_size))
    finally:
        os.close(fd)
    return first if first and first["type"] == "run_started" else {}
