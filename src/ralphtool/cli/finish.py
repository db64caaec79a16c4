"""Ending a change, and restoring the user's files: finish, back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ralphtool.cli import arguments, targets
from ralphtool.cli.attempts import find_repository
from ralphtool.cli.help_text import FittingCommand
from ralphtool.core import layout, lifecycle, project
from ralphtool.core.amounts import pluralize
from ralphtool.core.text import make_printable
from ralphtool.errors import ChangeNotFound, RalphError, UsageError
from ralphtool.loop import finish, pull_request
from ralphtool.loop.run import recover_from
from ralphtool.record import change_state, receipts, run_command
from ralphtool.views.terminal.wrapping import echo, glue
from ralphtool.workspace import branch, in_place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.loop.finish import Finished
    from ralphtool.workspace.git import Repository
    from ralphtool.workspace.stash import StashNote


@click.command("finish", cls=FittingCommand)
@click.argument("change", **arguments.OPTIONAL)
@click.option("--squash", is_flag=True, help="Stage its work in your tree, uncommitted, and delete the branch.")
@click.option("--merge", is_flag=True, help="Merge it into your branch, one commit per story, and delete the branch.")
@click.option("--pr", is_flag=True, help="Push the branch and open a pull request with gh.")
@click.option("--keep", is_flag=True, help="Keep the branch as it is and show the options (the default).")
def finish_command(change: str | None, **ways: bool) -> None:
    """End a change: merge it, squash it, or open a pull request.

    Your uncommitted work is not touched; if it conflicts, nothing is changed. Edits of the plan never conflict.
    Nothing is pushed without --pr.

    \b
    Examples:
      ralphtool finish add-login            # shows the options, changes nothing
      ralphtool finish add-login --squash   # stages its work in your tree
      ralphtool finish add-login --merge    # merges its commits into your branch
      ralphtool finish add-login --pr       # opens a pull request with the report
    """
    chosen = [name for name, is_given in ways.items() if is_given]
    if len(chosen) > 1:
        raise UsageError(f"--{chosen[0]} and --{chosen[1]} can't be combined: use one of them")
    way = chosen[0] if chosen else "keep"
    root = project.find()
    repository = find_repository(root)
    change = change or _find_only_branch(repository)
    project.check_name(change, "a change's name")
    killed = lifecycle.find_abandoned_lock(root, change)
    _restore_user_files(repository, root)
    if way != "keep":
        targets.apply_edit(root, change)  # before the branch gets it: the state of its stories has to follow
    unproven, spec = _list_unproven(root, change), change_state.load(root, change).spec
    left, command = _list_open(root, change, spec), run_command.build(root, change)
    if killed and killed.has_dead_owner and way in ("squash", "merge"):
        list(recover_from(root, change, killed.session_id))
    _FINISH_BY_WAY[way](repository, root, change)
    _warn_of_open(left, command, way)
    _warn_of_unproven(unproven, way)
    if way in ("squash", "merge") and spec.partition(":")[0] == "openspec" and not left:
        echo(f"To archive it in OpenSpec: `openspec archive {change}`")


def _squash(repository: Repository, root: str, change: str) -> None:
    done = finish.squash(repository, root, change)
    echo(_describe_staged(done.branch, len(done.paths)))
    _print_rest(done)


def _describe_staged(branch: str, number: int) -> str:
    if number == 0:
        return f"Your branch already has all the work of {branch}."
    is_staged, it = ("is staged", "it") if number == 1 else ("are staged", "them")
    files = pluralize(number, "file", "files")
    return f"{files} of {branch} {is_staged} in your working tree: review {it}, then commit."


def _merge(repository: Repository, root: str, change: str) -> None:
    if not repository.head().startswith("refs/heads/"):
        raise UsageError("no branch is checked out: run `git switch BRANCH` first, with the branch to merge into")
    done = finish.merge(repository, root, change, f"Merge {layout.branch(change)}\n")
    into = repository.head().removeprefix("refs/heads/")
    if done.merge is None:
        echo(f"{into} already has all the work of {done.branch}: nothing to merge.")
    else:
        files = pluralize(len(done.paths), "file", "files")
        echo(f"{done.branch} is merged into {into}: {files}, {done.merge[:10]}.")
    _print_rest(done)


def _print_rest(done: Finished) -> None:
    echo(f"The branch is deleted; its commits are kept as {done.kept}.")
    for ref in done.interrupted:
        echo(f"The run's folder had files that are not committed; they are kept as {ref} (`git show {ref}`).")
    for notice in done.notices:
        echo(f"Notice: {make_printable(notice)}", err=True)


def _open_pull_request(repository: Repository, root: str, change: str) -> None:
    if repository.resolve(layout.BRANCHES + change) is None:
        raise finish.build_no_branch_error(repository, root, change)
    made = pull_request.open_pull_request(repository, change, change, _render_report(root, change))
    echo(f"{layout.branch(change)} is pushed to {made.remote}: {make_printable(made.url)}")
    echo(f"The branch is kept. After the merge: `git pull`, then `ralphtool finish {change} --squash`")


def _render_report(root: str, change: str) -> str:
    """The text of a pull request: the report of the change's last run."""
    from ralphtool.record import runs
    from ralphtool.views.report import from_record, markdown

    try:
        return markdown.render(from_record.read_facts(runs.find(root, change)), None)
    except RalphError:
        return ""  # its records are gone, and its commits say enough


def _keep(repository: Repository, root: str, change: str) -> None:
    commit = repository.resolve(layout.BRANCHES + change)
    if commit is None:
        raise finish.build_no_branch_error(repository, root, change)
    echo(f"{layout.branch(change)} is kept as it is, at {commit[:10]}. To use its work, run one of:")
    for way, about in _WAYS.items():
        echo(f"  {glue(f'ralphtool finish {change} {way}')}{' ' * (15 - len(way))}{about}", 4)


_ACCEPTED = dict.fromkeys(("squash", "merge"), " For later runs, it is accepted by you as it is.")
_WAYS = {
    "--merge": "one commit per story",
    "--squash": "everything in one, staged in your working tree",
    "--pr": "a pull request (pushes the branch)",
}
_FINISH_BY_WAY = {"squash": _squash, "merge": _merge, "pr": _open_pull_request, "keep": _keep}


def _list_open(root: str, change: str, spec: str) -> list[str]:
    """Stories that are not done on the branch; empty if the plan can't be read."""
    try:
        with branch.open_spec(root, change, spec or None) as found:
            stories = found.stories() if found else []
            return [one.id for one in stories if not (one.done or one.optional or one.put_aside == "deferred")]
    except RalphError:
        return []


def _warn_of_open(stories: Sequence[str], command: str, way: str) -> None:
    if stories:
        names = make_printable(", ".join(stories))
        about = f"Story {names} is" if len(stories) == 1 else f"Stories {names} are"
        first = "commit, then " if way == "squash" else ""
        echo(f"{about} still open: {first}{glue(make_printable(f'`{command}`'))} continues there.")


def _list_unproven(root: str, change: str) -> list[str]:
    return [id for id, one in receipts.read_receipts(root, change).items() if one.state == "unproven"]


def _warn_of_unproven(stories: Sequence[str], way: str) -> None:
    if stories:
        noun, whose = ("story", "its") if len(stories) == 1 else ("stories", "their")
        names = make_printable(", ".join(stories))
        echo(f"Check {noun} {names} with care: no test proves {whose} work.{_ACCEPTED.get(way, '')}")


def _find_only_branch(repository: Repository) -> str:
    names = [name.removeprefix(layout.BRANCHES) for name in repository.refs(layout.BRANCHES)]
    if len(names) == 1:
        return names[0]
    if not names:
        raise ChangeNotFound("no change has a branch: `ralphtool run CHANGE` creates one")
    raise UsageError(f"there are several changes: name one ({', '.join(names)})")


@click.command(cls=FittingCommand)
def back() -> None:
    """Restore your branch and your files after a run that was killed.

    The next `ralphtool run` does the same automatically. The run's work is not lost.

    \b
    Example:
      ralphtool back
    """
    root = project.find()
    if not _restore_user_files(find_repository(root), root):
        echo("Nothing to restore: your branch and files are in place.")


def _restore_user_files(repository: Repository, root: str) -> bool:
    """Says what was done; returns whether anything was."""

    def put_right(note: StashNote) -> None:
        list(recover_from(root, note.change, note.run))

    told = in_place.recover(repository, root, put_right)
    for line in told:
        echo(make_printable(line))
    return bool(told)
