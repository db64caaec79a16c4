"""`ralphtool doctor`: runs every check, prints the findings, and fixes what can be fixed safely."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import click

from ralphtool.cli import checks, executor_checks, gate_checks, sandbox_checks, state_checks, tracker_checks
from ralphtool.cli.checks import Diagnosis, DoctorContext
from ralphtool.cli.help_text import FittingCommand
from ralphtool.core import project, quickjson
from ralphtool.core.text import can_write_unicode, make_lines_printable, make_printable
from ralphtool.errors import GitError, RalphError, from_os_error
from ralphtool.views import look
from ralphtool.views.terminal.wrapping import echo, glue_command

Check = Callable[[DoctorContext], Iterator[Diagnosis]]

# By importance. Later checks use the settings and the repository that earlier ones found.
_CHECKS: dict[str, Check] = {
    "machine": checks.check_machine,
    "settings": checks.check_settings,
    "git": checks.check_git,
    "project": state_checks.check_writable,
    "sandbox": sandbox_checks.check_sandbox,
    "agents": checks.check_agents,
    "executor": executor_checks.check_executor,
    "specs": checks.check_specs,
    "trackers": tracker_checks.check_trackers,
    "locks": state_checks.check_locks,
    "tree": state_checks.check_tree,
    "history": state_checks.check_history,
    "standing": state_checks.check_change_states,
    "memory": state_checks.check_memory,
    "questions": state_checks.check_questions,
    "disk": state_checks.check_disk,
}
_HANG = 12  # the column in which findings begin
_STORY_STATES = {"ok": "done", "warning": "unproven", "wrong": "failed"}  # the story state whose mark a finding gets


def examine(
    root: str, *, with_gates: bool = False, tell: Callable[[str], None] = lambda text: None
) -> Iterator[Diagnosis]:
    """Every finding, by importance. `tell` announces each slow step before it begins."""
    context = DoctorContext(root, runs_gates=with_gates)
    for about, check in _CHECKS.items():
        if about == "agents":
            tell("asking the agents for their versions")
        yield from _run_check(about, check, context)
    yield from gate_checks.check_gates(context, tell)


def _run_check(about: str, check: Check, context: DoctorContext) -> Iterator[Diagnosis]:
    """Runs one check. An error becomes a finding, so that the other checks still run."""
    try:
        yield from check(context)
    except RalphError as error:
        yield checks.from_error(about, error)
    except OSError as error:
        yield checks.wrong(about, str(from_os_error(error)))


def repair(finding: Diagnosis) -> tuple[bool, str]:
    """Fixes a finding if it has a repair. Returns whether it was fixed, and what was done or why not."""
    if finding.repair is None:
        return False, ""
    try:
        return True, finding.repair()
    except (RalphError, GitError) as error:
        return False, str(error)
    except OSError as error:
        return False, str(from_os_error(error))


@click.command(cls=FittingCommand)
@click.option("--fix", is_flag=True, help="Fix what can be fixed safely.")
@click.option(
    "--gates/--no-gates",
    default=False,
    help="Also run the gates, however long they take. Without this they are only listed.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for programs.")
def doctor(fix: bool, gates: bool, as_json: bool) -> int:
    """Check the setup, and show the command that fixes each problem.

    Checks git, the settings, the agents and their logins, the specs, the gates, and leftovers of earlier runs. This
    takes a few seconds. --gates also runs the gates, which may take long: in a box or a worktree, as the next run does,
    and again with broken code, to find gates that can't fail. The next run then skips that trial. No model is called.
    If runs use workers, the Temporal server and the git repository are checked too. The exit code is 1 if something is
    wrong.

    \b
    Examples:
      ralphtool doctor
      ralphtool doctor --gates
      ralphtool doctor --fix
      ralphtool doctor --json | jq '.findings[] | select(.state == "wrong")'
    """
    findings = []
    tell = (lambda text: None) if as_json else _print_progress
    for finding in examine(project.find(), with_gates=gates, tell=tell):
        fixed, done = repair(finding) if fix else (False, "")
        findings.append(finding.as_dict() | {"fixed": fixed, "done": done})
        if not as_json:
            _print_diagnosis(finding, fixed=fixed, done=done)
    left = [one for one in findings if not one["fixed"]]
    counts = {state: sum(one["state"] == state for one in left) for state in ("wrong", "warning")}
    if as_json:
        click.echo(quickjson.dumps({"wrong": counts["wrong"], "warnings": counts["warning"], "findings": findings}))
    else:
        _print_summary(counts, sum(one["fixable"] for one in left))
    return 1 if counts["wrong"] else 0


def _print_progress(text: str) -> None:
    click.echo(click.style(f"  {'… ' if can_write_unicode() else ''}{make_printable(text)}", dim=True), err=True)


def _print_diagnosis(finding: Diagnosis, *, fixed: bool, done: str) -> None:
    mark = _format_mark(finding)
    first, *more = make_lines_printable(finding.text).split("\n")
    echo(f"{mark} {finding.about:9} {first}", _HANG)
    for line in more:
        echo(f"{'':12}{line}", 0)
    if fixed:
        echo(f"{'':12}{click.style('fixed:', fg='green')} {glue_command(make_printable(done))}", 0)
    elif finding.mend:
        echo(f"{'':12}{click.style('to fix:', bold=True)} {glue_command(make_printable(finding.mend))}", 0)
        if done:
            echo(f"{'':12}that failed: {glue_command(make_printable(done))}", 0)


def _format_mark(finding: Diagnosis) -> str:
    if not finding.is_checked:
        return click.style(look.STORIES["open"].mark[0], dim=True)
    symbol, colour = look.STORIES[_STORY_STATES[finding.state]].mark
    return click.style(symbol, fg=colour, bold=True)


def _print_summary(counts: dict[str, int], fixable: int) -> None:
    wrong, warnings = counts["wrong"], counts["warning"]
    words = "nothing is wrong" if not wrong else f"{wrong} {'thing is' if wrong == 1 else 'things are'} wrong"
    if warnings:
        words += f", {warnings} {'warning' if warnings == 1 else 'warnings'}"
    echo(f"\n{words}{f'; `ralphtool doctor --fix` can fix {fixable}' if fixable else ''}")
