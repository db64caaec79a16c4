"""Which change is meant on a command line: the one that is named, or the only one there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ralphtool import project, specs
from ralphtool.errors import ChangeNotFound, RalphError, UsageError

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    try:
        found = names(project.find())
    except (RalphError, OSError):
        return []  # a shell waits for words, and has no place for an error
    return [CompletionItem(name) for name in found if name.startswith(incomplete)]


ARGUMENT: dict[str, Any] = {"shell_complete": _complete, "metavar": "CHANGE"}


def names(root: str) -> list[str]:
    return sorted({place.change for place in specs.find_all(root)})


def only(root: str) -> str:
    found = names(root)
    if len(found) == 1:
        return found[0]
    if not found:
        raise ChangeNotFound("there is no change here: `ralphtool list` tells where ralphtool looks for them")
    raise UsageError(f"there are several changes, so name one: {', '.join(found)}")
