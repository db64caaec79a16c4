"""`ralphtool …` for people: parse, wire, exit code."""

from __future__ import annotations

import gc
import importlib
import io
import os
import sys
from typing import TYPE_CHECKING, ClassVar

import click

from ralphtool.cli import end_at_once
from ralphtool.cli.groups import SuggestingGroup
from ralphtool.core import project, quickjson
from ralphtool.core.text import make_lines_printable
from ralphtool.errors import RalphError, UsageError, from_os_error
from ralphtool.views.terminal import wrapping

if TYPE_CHECKING:
    from collections.abc import Sequence


def start() -> int:
    """Runs the command line of this process."""
    return end_at_once(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """Runs one command; turns every ending into a message and an exit code."""
    _prepare_output()
    try:
        result = cli.main(list(arguments), prog_name="ralphtool", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        return _refuse(error, arguments)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except RalphError as error:
        return _fail(error, arguments)
    except BrokenPipeError:
        sys.stdout = None  # the reader is gone: Python must not flush it at exit
        return 1
    except OSError as error:
        return _fail(from_os_error(error), arguments)
    except Exception as error:
        from ralphtool.core import crashlog

        wrapping.echo(f"Error: {crashlog.report(error, list(arguments))}", err=True)
        return 3


def _prepare_output() -> None:
    """Output that can't be written (a character that the locale lacks, a closed stream) must not end a command."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (for as long as we live)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _refuse(error: click.ClickException, arguments: Sequence[str]) -> int:
    """A wrong command line."""
    if "--json" in arguments:
        click.echo(
            quickjson.dumps({"success": False, "error": error.format_message(), "code": UsageError.code}), err=True
        )
    else:
        told = io.StringIO()
        error.show(told)
        wrapping.echo(told.getvalue().rstrip("\n"), err=True)
    return 2


def _fail(error: RalphError, arguments: Sequence[str]) -> int:
    if "--json" in arguments:
        click.echo(quickjson.dumps({"success": False, "error": str(error), "code": error.code}), err=True)
    else:
        wrapping.echo(f"Error: {make_lines_printable(str(error))}", err=True)
    return error.exit_code


class _CommandGroup(SuggestingGroup):
    """Imports commands of other modules only when they are called: the others don't wait for their libraries."""

    elsewhere: ClassVar[dict[str, tuple[str, str]]] = {
        "init": ("setup:init", "Set up a project: detect specs, tests and agents, and write settings."),
        "doctor": ("doctor:doctor", "Check the setup, and show the command that fixes each problem."),
        "new": ("setup:new", "Create a change: a spec for you to fill in."),
        "list": ("listing:list_changes", "List the changes in every format, with their progress."),
        "show": ("changes:show", "Show a change: its stories, tasks and scenarios, and what locks it."),
        "unlock": ("changes:unlock", "Release a change that a dead session still locks."),
        "learnings": (
            "changes:learnings",
            "Show the learnings file of a change: its path, and what agents wrote in it.",
        ),
        "convert": ("convert:convert", "Write a change in another format."),
        "plan": ("drafting:plan", "Draft a change from an idea with your agent."),
        "run": ("run:run", "Run an agent on the stories of a change until all are done."),
        "questions": ("steer:questions_command", "List the questions that need your answer."),
        "answer": ("steer:answer", "Answer a story's question."),
        "guide": ("steer:guide", "Add guidance to the agent's prompts."),
        "pause": ("steer:pause", "Pause a run after its current iteration."),
        "resume": ("steer:resume", "Resume a paused run."),
        "stop": ("steer:stop", "Stop a run from any terminal."),
        "retry": ("steer:retry", "Retry a story with fresh attempts."),
        "skip": ("steer:skip", "Skip a story."),
        "accept": ("accept:accept", "Accept a story, or an attempt at it, as it is."),
        "reject": ("accept:reject", "Reopen a story that is done, and revert its work."),
        "watch": ("watch:watch", "Watch a run live, or replay it afterwards."),
        "web": ("web:web", "Serve a web page to watch and steer runs."),
        "worker": ("worker:worker", "Start a worker for runs on other machines."),
        "workers": ("worker:workers", "List the workers and their current work."),
        "runs": ("runs:runs", "List the runs and their results."),
        "logs": ("logs:logs", "Show the agent's log of an attempt."),
        "report": ("report:report", "Report the results of a run."),
        "otel": ("otel:otel", "Export a run to OpenTelemetry: spans and metrics."),
        "explain": ("attempts:explain", "Explain the verdict on an attempt and the decision that followed."),
        "attempts": ("attempts:attempts", "List the kept attempts and their commits."),
        "diff": ("attempts:diff", "Show what an attempt changed."),
        "backtest": ("backtest:backtest", "Replay past runs with other limits."),
        "progress": ("progress:progress", "Show the history: attempts, observations, learnings."),
        "memory": ("memory:memory", "Show, search and clean up what was learnt."),
        "migrate": ("progress:migrate_command", "Import an old progress.txt into the history."),
        "finish": ("finish:finish_command", "End a change: merge it, squash it, or open a pull request."),
        "agent": ("for_programs:agent", "The agent's commands, for programs."),
        "mcp": ("for_programs:serve_tools", "Serve the agent's commands as MCP tools, over stdin and stdout."),
        "completion": ("for_programs:completion", "Print the shell's completion script."),
        "back": ("finish:back", "Restore your branch and files after a killed run."),
    }
    # Every command is in a section, so that people don't have to search a long list.
    sections: ClassVar[dict[str, tuple[str, ...]]] = {
        "Start": ("init", "doctor", "new", "plan", "convert", "list", "show"),
        "Run and steer": (
            *("run", "watch", "web", "questions", "answer", "guide", "pause", "resume", "stop", "retry", "skip"),
            *("accept", "reject", "unlock", "worker", "workers"),
        ),
        "Results": ("report", "runs", "logs", "explain", "attempts", "diff", "backtest"),
        "History and memory": ("progress", "memory", "learnings", "migrate"),
        "End a change": ("finish", "back"),
        "For programs": ("agent", "mcp", "otel", "completion"),
    }

    def list_commands(self, context: click.Context) -> list[str]:
        return [name for names in self.sections.values() for name in names]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in self.elsewhere:
            return super().get_command(context, name)
        module, _, attribute = self.elsewhere[name][0].partition(":")
        found: click.Command = getattr(importlib.import_module(f"ralphtool.cli.{module}"), attribute)
        return found

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        for room, names in self.sections.items():
            with formatter.section(room):
                formatter.write_dl([(name, self.elsewhere[name][1]) for name in names])


def _show_version(context: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked and not context.resilient_parsing:
        from ralphtool.cli.version import describe_version  # may call git, which other commands don't need

        click.echo(f"ralphtool {describe_version()}")
        context.exit()


@click.group(cls=_CommandGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
@click.pass_context
def cli(context: click.Context) -> None:
    """Run a coding agent on the stories of a written change until all are done, and show the proof.

    Without a command, in a terminal, the full-screen view opens: choose, read, run and watch a change.

    \b
    Examples:
      ralphtool init                 # sets up a project
      ralphtool new "Add login"      # creates a change; `list` shows all
      ralphtool run                  # runs the agent until every story is done
      ralphtool watch                # shows the run, from any terminal
      ralphtool questions            # lists questions; `answer` answers one
      ralphtool report               # reports the results of a run
    """
    gc.freeze()  # the command's modules are loaded by now, and stay
    gc.enable()
    if os.environ.get("NO_COLOR"):
        context.color = False
    if context.invoked_subcommand is None and not _shows_screen():
        click.echo(context.get_help())


def _shows_screen() -> bool:
    """Shows the full screen, if there is a terminal and the package is installed."""
    is_terminal = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    if not is_terminal or os.environ.get("TERM", "dumb") in ("", "dumb", "unknown"):
        return False
    try:
        from ralphtool.views import screen
    except ModuleNotFoundError as error:
        if error.name != "textual":
            raise
        from ralphtool.core.install_hint import build_install_command

        told = f"The full screen needs one more package. Install it: `{build_install_command('screen')}`\n"
        wrapping.echo(told, err=True)
        return False
    screen.main(project.find())  # runs are independent of it, so their results don't affect the exit code
    return True
