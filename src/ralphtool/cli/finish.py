"""Ending a change, and getting one's own files back: finish, back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ralphtool.cli import arguments
from ralphtool.cli.attempts import find_repository
from ralphtool.core import layout, lifecycle, project
from ralphtool.core.text import make_printable
from ralphtool.errors import ChangeNotFound, RalphError, UsageError
from ralphtool.executors import process
from ralphtool.loop import finish, pull_request
from ralphtool.record import change_state
from ralphtool.workspace import branch, in_place
from ralphtool.workspace.protected_state import ProtectedState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.workspace.git import Repository
    from ralphtool.workspace.stash import StashNote


@click.command("finish")
@click.argument("change", **arguments.OPTIONAL)
@click.option("--squash", is_flag=True, help="Put its work into your tree, uncommitted, and end the branch.")
@click.option("--merge", is_flag=True, help="Merge it into your branch, a commit for each story, and end it.")
@click.option("--pr", is_flag=True, help="Push the branch, and open a pull request with gh.")
@click.option("--keep", is_flag=True, help="Leave the branch as it is, and show the ways (the default).")
def finish_command(change: str | None, **ways: bool) -> None:
    """End a change: merge it, squash it, or open a pull request.

    Your own uncommitted work stays as it is; where it is in the way, nothing is changed. Edits of the plan are never
    in the way. Nothing is pushed without --pr.

    \b
    Examples:
      ralphtool finish add-login              shows the ways, and changes nothing
      ralphtool finish add-login --squash     its work is in your tree, staged
      ralphtool finish add-login --merge      its commits are on your branch
      ralphtool finish add-login --pr         a pull request with the report
    """
    chosen = [name for name, is_given in ways.items() if is_given]
    if len(chosen) > 1:
        raise UsageError(f"--{chosen[0]} and --{chosen[1]} exclude each other: give one of them")
    way = chosen[0] if chosen else "keep"
    root = project.find()
    repository = find_repository(root)
    change = change or _find_only_branch(repository)
    project.check_name(change, "a change's name")
    lifecycle.find_abandoned_lock(root, change)
    _restore_user_files(repository, root)
    unproven, spec = _list_unproven(root, change), change_state.load(root, change).spec
    left = _list_open(root, change, spec)
    _FINISH_BY_WAY[way](repository, root, change)
    _warn_of_open(left, change, way)
    _warn_of_unproven(unproven)
    if way in ("squash", "merge") and spec.partition(":")[0] == "openspec":
        click.echo(f"To move it to the archive of OpenSpec: openspec archive {change}")


def _squash(repository: Repository, root: str, change: str) -> None:
    done = finish.squash(repository, root, change)
    click.echo(f"{len(done.paths)} files of {done.branch} are in your working tree, staged: look, then commit.")
    click.echo(f"The branch is gone; its commits are kept as {done.kept}.")


def _merge(repository: Repository, root: str, change: str) -> None:
    if not repository.head().startswith("refs/heads/"):
        raise UsageError("you are on no branch: `git switch BRANCH` first, to the one that is to have the work")
    done = finish.merge(repository, root, change, f"Merge {layout.branch(change)}\n")
    into = repository.head().removeprefix("refs/heads/")
    click.echo(f"{done.branch} is merged into {into}: {len(done.paths)} files, {(done.merge or done.commit)[:10]}.")
    click.echo(f"The branch is gone; its commits are kept as {done.kept}.")


def _open_pull_request(repository: Repository, root: str, change: str) -> None:
    if repository.resolve(layout.BRANCHES + change) is None:
        raise ChangeNotFound(f"there is no branch ralph/{change}: `ralphtool run {change}` makes it")
    made = pull_request.open_pull_request(repository, change, change, _render_report(root, change))
    click.echo(f"{layout.branch(change)} is pushed to {made.remote}: {make_printable(made.url)}")
    click.echo(f"The branch stays. After the merge: git pull, then git branch -D {layout.branch(change)}")


def _render_report(root: str, change: str) -> str:
    """The text of a pull request: what the last run of the change came to."""
    from ralphtool.record import runs
    from ralphtool.views.report import from_record, markdown

    try:
        return markdown.render(from_record.read_facts(runs.find(root, change)), None)
    except RalphError:
        return ""  # its records are gone, and its commits tell enough


def _keep(repository: Repository, root: str, change: str) -> None:
    commit = repository.resolve(layout.BRANCHES + change)
    if commit is None:
        raise ChangeNotFound(f"there is no branch ralph/{change}: `ralphtool run {change}` makes it")
    click.echo(f"{layout.branch(change)} stays as it is, at {commit[:10]}. To take it over, one of:")
    click.echo(f"  ralphtool finish {change} --merge        every story as a commit of its own")
    click.echo(f"  ralphtool finish {change} --squash       all in one, in your working tree")
    click.echo(f"  ralphtool finish {change} --pr           a pull request (pushes the branch)")


_FINISH_BY_WAY = {"squash": _squash, "merge": _merge, "pr": _open_pull_request, "keep": _keep}


def _list_open(root: str, change: str, spec: str) -> list[str]:
    """Stories that the branch does not have yet. A plan that can't be read is no obstacle."""
    try:
        with branch.open_spec(root, change, spec or None) as found:
            stories = found.stories() if found else []
            return [one.id for one in stories if not (one.done or one.optional or one.put_aside == "deferred")]
    except RalphError:
        return []


def _warn_of_open(stories: Sequence[str], change: str, way: str) -> None:
    if stories:
        names = make_printable(", ".join(stories))
        about = f"Story {names} is" if len(stories) == 1 else f"Stories {names} are"
        first = "commit, then " if way == "squash" else ""
        click.echo(f"{about} still open: {first}`ralphtool run {change}` goes on there.")


def _list_unproven(root: str, change: str) -> list[str]:
    stories = change_state.load(root, change).stories
    return [id for id, one in stories.items() if one.proof and one.proof.state == "unproven"]


def _warn_of_unproven(stories: Sequence[str]) -> None:
    if stories:
        noun, verb = ("story", "is") if len(stories) == 1 else ("stories", "are")
        names = make_printable(", ".join(stories))
        click.echo(f"Look at {noun} {names} with care: what {verb} done there is not proven by any test.")


def _find_only_branch(repository: Repository) -> str:
    names = [name.removeprefix(layout.BRANCHES) for name in repository.refs(layout.BRANCHES)]
    if len(names) == 1:
        return names[0]
    if not names:
        raise ChangeNotFound("no change has a branch: `ralphtool run CHANGE` makes one")
    raise UsageError(f"there are several changes, so name one: {', '.join(names)}")


@click.command()
def back() -> None:
    """Give you your branch and your files back, after a run that was killed.

    The next `ralphtool run` does the same by itself. Nothing of the run is lost.

    \b
    Example:
      ralphtool back
    """
    root = project.find()
    told = _restore_user_files(find_repository(root), root)
    click.echo(make_printable(told) if told else "Nothing is to be given back: the tree is yours.")


def _restore_user_files(repository: Repository, root: str) -> str:
    def put_right(note: StashNote) -> None:
        ours = ProtectedState(
            root, note.change, note.run
        )  # which looks for its last sign of life, before we change that
        process.end_orphans(layout.processes(root, note.run), note.run)
        ours.recover()

    return in_place.recover(repository, root, put_right)
