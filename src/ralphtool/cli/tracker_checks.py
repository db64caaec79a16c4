"""The checks of `ralphtool doctor` for issue trackers: whether their programs are installed and logged in."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ralphtool import specs
from ralphtool.cli.checks import ok, warning, wrong
from ralphtool.core import config
from ralphtool.errors import SpecError
from ralphtool.specs import beads_issues, program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphtool.cli.checks import Diagnosis, DoctorContext

_INSTALL_GH = "install the GitHub CLI (https://cli.github.com), then `gh auth login`"
_INSTALL_BEADS = "install the one that your project uses, or set write = false under [specs.beads]"


def check_trackers(project: DoctorContext) -> Iterator[Diagnosis]:
    """Does not use the network: a run shows at its start whether GitHub can be reached."""
    if os.path.isdir(os.path.join(project.root, ".beads")):
        yield from _check_beads(project.root)
    if config.read_tracker(project.root, "github") or specs.adapter("github").changes(project.root):
        yield from _check_github(project.root)


def _check_beads(root: str) -> Iterator[Diagnosis]:
    named, path = beads_issues.find_program(root), beads_issues.find_export(root)
    missing = f"{named} is not" if named else "neither bd nor br is"
    if named and program.find(named):
        yield ok("trackers", f"beads: {named} reads epics, and closes issues when they are done")
        if path is None:
            text = "beads: there is no .beads/issues.jsonl, so `ralphtool list` shows no epics"
            yield warning("trackers", text, "name an epic, as in `ralphtool run --spec beads:ID`, or export the issues")
    elif path is None:
        text = f"beads: {missing} on the PATH, and there is no .beads/issues.jsonl to read"
        yield wrong("trackers", text, "install the one that the project uses")
    elif config.read_tracker(root, "beads").get("write") is not False:
        text = (
            f"beads: {missing} on the PATH: epics are read from {os.path.relpath(path, root)}, and issues are not "
            "closed"
        )
        yield warning("trackers", text, _INSTALL_BEADS)


def _check_github(root: str) -> Iterator[Diagnosis]:
    if program.find("gh") is None:
        yield wrong("trackers", "GitHub issues: gh is not on the PATH", _INSTALL_GH)
        return
    try:
        program.run(["gh", "auth", "token"], root, seconds=10)
    except SpecError as error:
        yield wrong("trackers", f"GitHub issues: gh is not logged in or can't be started: {error}", "gh auth login")
        return
    writes = config.read_tracker(root, "github").get("write") is True
    told = "ticked and closed there when they are done" if writes else "only read: boxes are ticked in the local copy"
    yield ok("trackers", f"GitHub issues: gh is logged in; issues are {told}")
