"""`ralphtool completion`, `agent` and `mcp`: what shells and agents call."""

from __future__ import annotations

import click

from ralphtool.cli.help_text import FittingCommand
from ralphtool.errors import UsageError


@click.command(cls=FittingCommand)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the shell's completion script.

    \b
    Examples:
      eval "$(ralphtool completion bash)"      # in ~/.bashrc
      eval "$(ralphtool completion zsh)"       # in ~/.zshrc
      ralphtool completion fish | source       # in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    from ralphtool.cli.main import cli

    if found := get_completion_class(shell):
        click.echo(found(cli, {}, "ralphtool", "_RALPHTOOL_COMPLETE").source())


@click.command(cls=FittingCommand, add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def agent(arguments: tuple[str, ...]) -> int:
    """The agent's commands, for programs. See `ralphtool agent --help`."""
    from ralphtool.cli.agent import main

    return main(arguments)


@click.command("mcp", cls=FittingCommand)
def serve_tools() -> None:
    """Serve the agent's commands as MCP tools, over stdin and stdout.

    Your agent starts this server once it is in the agent's configuration. The tools are context, task_done,
    recall, learn, pattern, observe and status. Like the commands, they need RALPH_SESSION (and use RALPH_STORY,
    RALPH_TOKEN and TMPDIR) in the environment in which the agent starts the server.

    \b
    Examples:
      claude mcp add ralphtool -- ralphtool mcp
      codex mcp add ralphtool --env RALPH_SESSION="$RALPH_SESSION" -- ralphtool mcp

    \b
    Or, in your agent's MCP configuration file:
      {"mcpServers": {"ralphtool": {"command": "ralphtool", "args": ["mcp"]}}}
    """
    try:
        from ralphtool.cli import mcp
    except ModuleNotFoundError as error:
        from ralphtool.core.install_hint import build_install_command

        raise UsageError(
            f"the MCP server needs a package that is not installed ({error.name}). Install it: "
            f"{build_install_command('mcp')}"
        ) from None
    mcp.serve()
