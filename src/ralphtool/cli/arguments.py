"""Arguments that several commands share, with their shell completion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ralphtool.core import project
from ralphtool.errors import RalphError
from ralphtool.record import overview

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem


def _complete_change(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    try:
        found = overview.list_names(project.find())
    except (RalphError, OSError):
        return []  # shell completion can't show errors
    return [CompletionItem(name) for name in found if name.startswith(incomplete)]


ARGUMENT: dict[str, Any] = {"shell_complete": _complete_change, "metavar": "CHANGE"}
OPTIONAL: dict[str, Any] = {"shell_complete": _complete_change, "metavar": "[CHANGE]", "required": False}
