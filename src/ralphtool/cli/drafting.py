"""`ralphtool plan`: turns an idea into a change: the agent drafts it, the user reviews it and may keep it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from ralphtool import settings as settings_module
from ralphtool import specs
from ralphtool.cli import given_command, targets
from ralphtool.cli.help_text import FittingCommand
from ralphtool.cli.run import RunViewer, Signals
from ralphtool.core import config, files, gate_commands, project, quickjson
from ralphtool.core.amounts import format_cost
from ralphtool.core.text import make_lines_printable, make_printable
from ralphtool.errors import DraftFailed, InvalidValue, TreeBusy, UsageError
from ralphtool.loop import drafted, drafting
from ralphtool.loop.drafted import PlanRequest, describe_size
from ralphtool.loop.run import StopRequest, recover
from ralphtool.loop.runners import check_runners, make_runners, register_secrets
from ralphtool.record import overview, run_command
from ralphtool.specs import scaffold
from ralphtool.views.terminal.wrapping import echo, echo_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.agents import Runner
    from ralphtool.loop.drafted import DraftedChange
    from ralphtool.settings import Settings

_FILES = [name for name in specs.BUILT_IN if name not in specs.TRACKERS]
_LONGEST_IDEA = 100_000  # characters
_EDITORS = ("VISUAL", "EDITOR")


def _complete_format(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in scaffold.formats() if name.startswith(incomplete)]


@click.command(cls=FittingCommand)
@click.argument("idea", metavar="[IDEA]", required=False)
@click.option("--from", "source", metavar="FILE", help="Read the idea from a file, such as an issue; - is stdin.")
@click.option(
    "--format",
    metavar="FORMAT",
    shell_complete=_complete_format,
    help=f"The format. [default: the project's own] One of {', '.join(_FILES)}, or another adapter.",
)
@click.option("--name", metavar="NAME", help="The name of the change. [default: made from the idea]")
@click.option("--file", metavar="PATH", help="The checklist file to create.")
@click.option("--agent", metavar="NAME", help="The agent that drafts it. [default: the configured agent]")
@click.option(
    "--agent-command", metavar="COMMAND", help="The command that starts the agent. It gets the prompt on stdin."
)
@click.option("--yes", is_flag=True, help="Keep the draft without asking.")
@click.option("--dry-run", is_flag=True, help="Show the place of the change and the prompt; change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for programs.")
def plan(
    idea: str | None,
    source: str | None,
    format: str | None,
    name: str | None,
    file: str | None,
    agent: str | None,
    agent_command: str | None,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Draft a change from an idea with your agent.

    The agent reads the project and writes the change in the project's format: stories that fit into one iteration,
    tasks that tests can prove, scenarios, dependencies, optional stories. It can't change anything else. A draft with
    problems is sent back to the agent once. Then you review it: keep it, edit it, or discard it. Without a terminal it
    is kept only with --yes.

    The exit code is 0 if the change is kept.

    \b
    Examples:
      ralphtool plan "Add CSV export to the report"
      ralphtool plan "Add CSV export" --from notes.md --agent codex
      gh issue view 12 | ralphtool plan --from -
      ralphtool plan "Add CSV export" --yes --json
    """
    root = project.find()
    targets.refuse_agents(root)
    is_tty = not as_json and sys.stdout.isatty()
    text = _read_idea(idea, source)
    if source == "-" and is_tty:
        _take_terminal()
    settings = settings_module.load(root, {"agent": agent} if agent else {})
    request = _build_request(root, text, format, name, file)
    register_secrets(settings)
    given = given_command.make_runner(agent_command and given_command.locate(agent_command, root))
    if dry_run:
        return _print_dry_run(request, settings, given, as_json=as_json)
    asks = not yes and is_tty and sys.stdin is not None and sys.stdin.isatty()
    draft = _write_draft(request, settings, given, as_json=as_json)
    return _settle(draft, asks=asks, yes=yes, as_json=as_json)


# --- the idea ---------------------------------------------------------------------------------------


def _read_idea(idea: str | None, source: str | None) -> str:
    """The text of the idea. Its first line is the title, or serves as one."""
    told = [idea] if idea is not None else []
    if source is not None:
        told.append(_read_source(source))
    if not told:
        raise UsageError('say what the change is about, as in `ralphtool plan "Add login"`, or give --from FILE')
    text = "\n\n".join(part.strip() for part in told if part.strip())
    if not text:
        raise UsageError('the text is empty: say what the change is about, as in `ralphtool plan "Add login"`')
    if len(text) > _LONGEST_IDEA:
        raise InvalidValue(f"the idea has {len(text)} characters: shorten it to at most {_LONGEST_IDEA}")
    return text


def _read_source(source: str) -> str:
    if source == "-":
        data, where = sys.stdin.buffer.read(), "standard input"
    else:
        data, where = files.read(source), source
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidValue(f"{where} is not UTF-8: give a text file") from None
    if "\0" in text:
        raise InvalidValue(f"{where} contains NUL characters: give a text file")
    return text


def _take_terminal() -> None:
    """The idea was read from standard input, so the question about the draft needs the terminal."""
    with suppress(OSError):
        sys.stdin = open("/dev/tty", encoding="utf-8")  # noqa: SIM115 (for as long as the command runs)


def _find_title(text: str) -> str:
    """The first line; for the output of `gh issue view`, the issue's title."""
    first = text.splitlines()[0].strip()
    return first[6:].strip() or first if first.lower().startswith("title:") else first


def _build_request(root: str, text: str, format: str | None, name: str | None, file: str | None) -> PlanRequest:
    if busy := overview.find_running_change(root):
        raise TreeBusy(f"the run of {busy} uses your folder: wait until it ends, or run `ralphtool stop {busy}`")
    if format is None and file is None and config.read_spec(root) is None and len(used := scaffold.list_used(root)) > 1:
        raise InvalidValue(f"this project has changes in several formats: give --format, one of {', '.join(used)}")
    made = scaffold.plan(root, _find_title(text), format=format, name=name, file=file)
    commands = gate_commands.find_commands(root)
    return PlanRequest(root=root, idea=text, made=made, gates=(*commands.checks, *commands.tests))


def _print_dry_run(request: PlanRequest, settings: Settings, given: Sequence[Runner], *, as_json: bool) -> int:
    runners = check_runners(given or make_runners(settings))
    text = drafting.build_prompt(request, request.root, os.path.join(request.root, ".ralph/runs/RUN/draft"))
    made, names = request.made, [runner.name for runner in runners]
    if as_json:
        told = {"change": made.change, "format": made.format, "place": made.place, "agents": names, "prompt": text}
        click.echo(quickjson.dumps(told))
        return 0
    echo(
        f"{make_printable(made.change)} would be drafted by {', '.join(names)}. This is a dry run: nothing is changed."
    )
    echo(f"Format: {made.format}. Place: {make_printable(request.inside)}\n")
    click.echo(make_lines_printable(text))
    return 0


# --- the draft --------------------------------------------------------------------------------------


def _write_draft(request: PlanRequest, settings: Settings, given: Sequence[Runner], *, as_json: bool) -> DraftedChange:
    for text in recover(request.root):
        echo(make_printable(text), err=True)
    stop = StopRequest()
    viewer = nullcontext if as_json else RunViewer
    with Signals(stop):
        try:
            return drafting.write_draft(request, settings, given, viewer, stop)
        except (DraftFailed, KeyboardInterrupt) as error:
            if not stop.count:
                raise
            if not as_json:
                _print_stopped(str(error) or "stopped before the draft was complete")
            raise KeyboardInterrupt from None


def _print_stopped(why: str) -> None:
    told = f"{why[0].upper()}{why[1:]}. Nothing was added to your project. To start again, run the same command."
    echo(make_printable(told), err=True)


def _settle(draft: DraftedChange, *, asks: bool, yes: bool, as_json: bool) -> int:
    """Keeps the draft, or prints where it is."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # from here on, Ctrl-C means no
    if not as_json:
        _print_draft(draft)
    is_kept = False
    try:
        draft, is_kept = _ask(draft) if asks else (draft, yes)
    except (click.Abort, KeyboardInterrupt):
        _print_not_kept(draft)
        raise
    finally:
        if not is_kept:
            drafted.reject(draft, "the draft was not kept")
    if is_kept and draft.blocked:
        drafted.reject(draft, draft.blocked)
        raise DraftFailed(f"the draft can't be kept: {draft.blocked}; it is in {draft.folder}")
    if is_kept:
        _keep(draft)
    if as_json:
        click.echo(quickjson.dumps(_draft_as_dict(draft, is_kept=is_kept)))
    elif is_kept:
        _print_kept(draft)
    else:
        _print_not_kept(draft)
        if not asks and not draft.blocked:
            echo("There is no terminal to ask in: use --yes to keep drafts. To keep this one:")
            echo(f"  {make_printable(_build_copy_command(draft))}")
    return 0 if is_kept else 1


def _print_not_kept(draft: DraftedChange) -> None:
    echo(f"\nThe draft was not kept. It is in {make_printable(draft.folder)}")


def _build_copy_command(draft: DraftedChange) -> str:
    """The command that puts a draft in place by hand, and overwrites nothing."""
    place, inside = draft.request.made.place, os.path.join(draft.folder, draft.request.inside)
    return f"mkdir -p {shlex.quote(os.path.dirname(place))} && cp -rn {shlex.quote(inside)} {shlex.quote(place)}"


def _keep(draft: DraftedChange) -> None:
    try:
        drafted.keep(draft)
    except (InvalidValue, DraftFailed, OSError) as error:
        drafted.reject(draft, str(error))
        raise


def _ask(draft: DraftedChange) -> tuple[DraftedChange, bool]:
    """Asks whether to keep the draft; the user may edit it first."""
    while True:
        choices = ["n", "e"] if draft.blocked else ["y", "n", "e"]
        words = "[n]o, [e]dit" if draft.blocked else "[y]es, [n]o, [e]dit"
        told = click.prompt(f"\nKeep it? {words}", type=click.Choice(choices), show_choices=False)
        if told != "e":
            return draft, told == "y"
        _edit(draft.paths)
        draft = drafted.read_draft(draft)
        _print_draft(draft)


def _edit(paths: Sequence[str]) -> None:
    editor = next((os.environ[name] for name in _EDITORS if os.environ.get(name)), "vi")
    try:
        code = subprocess.call([*shlex.split(editor), *paths])
    except (OSError, ValueError) as error:
        echo(
            (f"The editor {make_printable(editor)} can't be started ({error}): set EDITOR to another program"), err=True
        )
        return
    if code:
        echo(f"{make_printable(editor)} exited with {code}: using the draft as it is now.", err=True)


# --- output -----------------------------------------------------------------------------------------


def _print_draft(draft: DraftedChange) -> None:
    made = draft.request.made
    echo(f"\n{click.style(made.change, bold=True)} ({made.format}): {describe_size(draft)}{_describe_cost(draft)}")
    for story in draft.stories:
        title = story.title.lower()  # some formats have these words in the title
        needs = story.depends_on if "depends on" not in title else ()
        remarks = [f"depends on {', '.join(needs)}"] if needs else []
        remarks += ["optional"] if story.optional and "optional" not in title else []
        told = f"  ({'; '.join(remarks)})" if remarks else ""
        echo(f"\n{make_printable(f'{story.id}. {story.title}')}{make_printable(told)}")
        for task in story.tasks:
            echo(f"  [ ] {make_printable(f'{task.id} {task.text}')}")
    if draft.left_out:
        echo(f"\nLeft out, because it is not part of the change: {make_printable(', '.join(draft.left_out))}")
    if complaints := draft.list_complaints():
        echo(click.style("\nRemaining problems:", fg="yellow"))
        for text in complaints:
            echo(f"  {make_printable(text)}")


def _describe_cost(draft: DraftedChange) -> str:
    spent = draft.spent
    return f"; it cost {format_cost(spent.cost)}" if spent.cost else ""


def _print_kept(draft: DraftedChange) -> None:
    made = draft.request.made
    spec = f" --spec {made.spec}" if made.spec else ""
    echo(f"\n{made.change} is in {make_printable(draft.request.inside)}. Next steps:")
    echo_command(f"ralphtool show {made.change}{spec}")
    echo_command(make_printable(run_command.build_located(draft.request.root, made.change, made.spec or "")))


def _draft_as_dict(draft: DraftedChange, *, is_kept: bool) -> dict[str, Any]:
    made = draft.request.made
    names = [os.path.join(made.place, name) if name else made.place for name in draft.texts]
    return {
        "change": made.change,
        "format": made.format,
        "kept": is_kept,
        "files": names if is_kept else [],
        "draft": draft.folder,
        "spec": made.spec,
        "run": draft.run,
        "stories": [_story_as_dict(story) for story in draft.stories],
        "scenarios": draft.scenarios,
        "problems": draft.list_complaints(),
        "left_out": list(draft.left_out),
        "spent": to_builtins(draft.spent),
    }


def _story_as_dict(story: specs.Story) -> dict[str, Any]:
    return {
        "id": story.id,
        "title": story.title,
        "optional": story.optional,
        "depends_on": list(story.depends_on),
        "tasks": [{"id": task.id, "description": task.text} for task in story.tasks],
    }
