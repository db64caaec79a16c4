"""Arguments that several commands share, with their shell completion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ralphtool.core import project
from ralphtool.errors import RalphError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class WholeNumber(click.IntRange):
    """A number of a range; its errors say which numbers are valid."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            valid = f"from {self.min} to {self.max}" if self.max is not None else f"of at least {self.min}"
            self.fail(f"{str(value)[:100]!r} is not a whole number {valid}.", param, ctx)


def _complete_change(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from ralphtool.record import overview

    try:
        found = overview.list_names(project.find())
    except (RalphError, OSError):
        return []  # shell completion can't show errors
    return [CompletionItem(name) for name in found if name.startswith(incomplete)]


ARGUMENT: dict[str, Any] = {"shell_complete": _complete_change, "metavar": "CHANGE"}
OPTIONAL: dict[str, Any] = {"shell_complete": _complete_change, "metavar": "[CHANGE]", "required": False}
