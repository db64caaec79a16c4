"""beads (`bd`, `br`): an epic is a change, its children are stories.

`.beads/issues.jsonl` is only read: the programs have a database besides it, and writing to the file would bypass
that. A run copies the epic into `.ralph-issues`, and closes issues through the program once they are proven.
"""

import os

from ralphtool.errors import ChangeNotFound
from ralphtool.specs import issue_copy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralphtool.specs.issue_copy import IssueCopy
    from ralphtool.specs.tracker import DoneStory

name = "beads"
found_in = "epics of beads (.beads/issues.jsonl; any other issue with --spec beads:ID)"
begun_by = "create the epic with `bd create` or `br create`, then `ralphtool run --spec beads:ID`"
# The program may write `.beads/issues.jsonl`, which must not happen while an agent works in the same tree.
publishes_during_run = False


def changes(project: str) -> list[str]:
    from ralphtool.core import config

    named = config.read_spec_of(project, name)
    known = [*([named] if named else []), *issue_copy.list_changes(project, name)]
    if not os.path.isdir(os.path.join(project, ".beads")):
        return list(dict.fromkeys(known))
    from ralphtool.specs import beads_issues

    return list(dict.fromkeys([*beads_issues.list_open_epics(project), *known]))


def open(project: str, change: str, where: str | None = None) -> "IssueCopy":
    try:
        return issue_copy.open_copy(project, change, name, where)
    except ChangeNotFound:
        from ralphtool.specs import beads_issues

        return beads_issues.open_export(project, where or change)


def places(change: str, where: str | None = None) -> list[str]:
    return issue_copy.list_places(change)


def name_change(where: str) -> str:
    """The change has the name of its epic."""
    return where


def download(project: str, change: str, where: str | None, stop: "Callable[[], bool]") -> tuple[str, list[str]]:
    from ralphtool.specs import beads_issues

    return beads_issues.download(project, where or change, stop)


def publish(
    project: str,
    change: str,
    where: str | None,
    done: "Sequence[DoneStory]",
    is_complete: bool,
    stop: "Callable[[], bool]",
) -> list[str] | None:
    from ralphtool.specs import beads_issues

    return beads_issues.publish(project, where or change, done, is_complete=is_complete, stop=stop)
