"""The check of `ralphtool doctor` for the workspace of the next run: a box, a worktree, or the user's own folder."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from ralphtool import workspace
from ralphtool.cli.checks import ok, warning, wrong
from ralphtool.core import gate_commands
from ralphtool.errors import RalphError, shorten
from ralphtool.loop import cloud_login
from ralphtool.loop.runners import make_runners
from ralphtool.loop.workspace_choice import AGAIN, Findings, find_next, needs_box
from ralphtool.sandbox.trial import NoBox, try_box
from ralphtool.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphtool.cli.checks import Diagnosis, DoctorContext
    from ralphtool.loop.workspace_choice import Choice
    from ralphtool.workspace.git import Repository


def check_sandbox(project: DoctorContext) -> Iterator[Diagnosis]:
    settings = project.settings
    if project.repository is None or settings is None:
        return  # which is a separate finding
    yield from _check_paths(settings, project.root)
    wanted = settings.run.workspace
    if wanted in ("here", "worktree") and settings.sandbox.mode == "require":
        yield wrong("sandbox", f'mode = "require", but workspace = "{wanted}"', 'set workspace = "auto"')
        return
    if wanted == "here":
        yield warning("sandbox", f'workspace = "here": {workspace.RISK}', 'set workspace = "auto" under [run]')
    elif wanted == "worktree":
        yield ok("sandbox", workspace.describe("worktree"))
    else:
        yield _check_box(project, project.repository, settings)
        yield from _check_cloud_logins(project, settings)


def _check_cloud_logins(project: DoctorContext, settings: Settings) -> Iterator[Diagnosis]:
    """Warns here, because an agent without its login fails in a box with an error that does not mention the box."""
    try:
        runners = make_runners(settings, is_boxed=True) if settings.run.agent or settings.run.agents else []
    except RalphError:
        return  # the check of the agents reports it
    for text in cloud_login.list_notices(settings, runners, project.root):
        yield warning("sandbox", text, "add these lines to give the agent that login")


def _check_box(project: DoctorContext, repository: Repository, settings: Settings) -> Diagnosis:
    tools = try_box(project.seconds_left)
    if isinstance(tools, NoBox) and needs_box(settings):
        return wrong("sandbox", f"no box is available: {tools.why}", tools.help)
    commands = gate_commands.find_commands(project.root)
    found = Findings(repository, settings, [*commands.checks, *commands.tests])
    has_gates = bool(commands.checks or commands.tests)
    return _describe_next(find_next(tools, found, settings), found, has_gates=has_gates, is_tried=project.runs_gates)


def _describe_next(choice: Choice, found: Findings, *, has_gates: bool, is_tried: bool) -> Diagnosis:
    """The workspace of a new change's next run, as far as is known."""
    text = "\n".join((f"the next run: {workspace.describe(choice.kind)}", *(f"why: {one}" for one in choice.why)))
    if choice.why:
        repair = partial(_forget, found) if found.read_trouble("box") else None
        return warning("sandbox", text, "; ".join(choice.help or (AGAIN,)), repair)
    if has_gates and not found.is_suitable(choice.kind):
        if is_tried:
            return ok("sandbox", "a box is available; it is used if your gates have the same results in it as outside")
        first = "a box is available; the next run first tries your gates in it, and uses it if the results are the same"
        return ok("sandbox", f"{first} as outside")
    return ok("sandbox", text)


def _forget(found: Findings) -> str:
    found.forget()
    return "cleared the results of the last trial: the next run tries your gates in a box again"


def _check_paths(settings: Settings, root: str) -> Iterator[Diagnosis]:
    for name in ("read", "write"):
        for path in getattr(settings.sandbox, name):
            if not os.path.exists(os.path.join(root, os.path.expanduser(path))):
                text = f"{name} under [sandbox] names {shorten(path)}, which does not exist: no run can start"
                yield wrong("sandbox", text, "create it, or remove it from the list")
