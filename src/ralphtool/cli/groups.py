"""A group of commands with help that fits into the terminal, and suggestions for mistyped commands."""

from __future__ import annotations

import click

from ralphtool.cli.help_text import FittingCommand

# The names in other tools; only words that are not commands of ralphtool.
_SYNONYMS = {
    **dict.fromkeys(("start", "loop", "go"), "run"),
    **dict.fromkeys(("status", "ls", "changes"), "list"),
    **dict.fromkeys(("cancel", "abort", "kill", "halt"), "stop"),
    **dict.fromkeys(("continue", "unpause"), "resume"),
    **dict.fromkeys(("add", "create"), "new"),
    **dict.fromkeys(("check", "verify"), "doctor"),
    **dict.fromkeys(("setup", "config", "configure"), "init"),
    **dict.fromkeys(("merge", "squash", "done"), "finish"),
    **dict.fromkeys(("history",), "progress"),
    **dict.fromkeys(("summary",), "report"),
    **dict.fromkeys(("view", "cat"), "show"),
    **dict.fromkeys(("tail", "follow", "attach"), "watch"),
}


class SuggestingGroup(FittingCommand, click.Group):
    """Suggests the nearest command, including those that are imported only when called."""

    command_class = FittingCommand
    group_class = type  # nested groups are of this class too

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Full descriptions: click would cut them in the middle of a sentence."""
        found = [(name, self.get_command(context, name)) for name in self.list_commands(context)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(200)) for name, one in found if one and not one.hidden])

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if arguments[:1] == ["help"] and "help" not in self.list_commands(context):
            if not arguments[1:]:
                click.echo(context.get_help())
                context.exit()
            arguments = [arguments[1], "--help"]
        name = arguments[0] if arguments else ""
        known = self.list_commands(context)
        if name and name not in known and not name.startswith("-") and self.get_command(context, name) is None:
            from ralphtool.core import spelling  # needed only for the error

            near = _SYNONYMS.get(name) if _SYNONYMS.get(name) in known else spelling.find_nearest(name, known)
            advice = f" Did you mean '{context.command_path} {near}'?" if near else ""
            context.fail(f"No such command '{name[:100]}'.{advice}")
        return super().resolve_command(context, arguments)
