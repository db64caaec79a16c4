"""The checks of `ralphtool doctor` for runs on other machines: the Temporal server, its workers, the git repository."""

from __future__ import annotations

import importlib.util
import shlex
from typing import TYPE_CHECKING

from msgspec import structs

from ralphtool.cli.checks import ok, warning, wrong
from ralphtool.core import config, layout
from ralphtool.core.install_hint import build_install_command
from ralphtool.errors import GitError, InvalidValue, RemoteFailed
from ralphtool.loop.remote_place import find_remote
from ralphtool.settings import executor
from ralphtool.settings.executor import ExecutorSettings
from ralphtool.workspace.git import Repository
from ralphtool.workspace.remote import hide_login

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphtool.cli.checks import Diagnosis, DoctorContext
    from ralphtool.settings import Settings
    from ralphtool.workspace.remote import Remote

_ABOUT = "executor"
_NO_ACTIVITIES = "use a server of 1.32 or newer, or set activity.enableStandalone in its dynamic configuration"


def check_executor(project: DoctorContext) -> Iterator[Diagnosis]:
    """Only if iterations may run on other machines. Problems are errors if every run needs it, otherwise warnings."""
    settings = project.settings
    if settings is None or not _is_wanted(project, settings):
        return
    is_used = settings.run.executor == "temporal"
    for found in _list_findings(project, settings):
        yield found if is_used or found.state == "ok" else structs.replace(found, state="warning")


def _is_wanted(project: DoctorContext, settings: Settings) -> bool:
    is_set = settings.executor != ExecutorSettings()
    return settings.run.executor == "temporal" or is_set or config.mentions(project.root, "[executor]")


def _list_findings(project: DoctorContext, settings: Settings) -> Iterator[Diagnosis]:
    if importlib.util.find_spec("temporalio") is None:
        yield wrong(_ABOUT, "the package temporalio is not installed", build_install_command("temporal"))
    else:
        yield from _check_server(settings.executor)
    yield from _check_remote(project, settings)
    if settings.run.workspace == "here":
        text = 'workspace = "here" has no effect with workers: they use their own boxes or worktrees'
        yield warning(_ABOUT, text, 'remove workspace = "here" under [run]')


# --- the server -------------------------------------------------------------------------------------


def _check_server(given: ExecutorSettings) -> Iterator[Diagnosis]:
    from ralphtool.executors.temporal.link import Link

    try:
        known = executor.apply_environment(given)
        executor.check_connection(known)
    except InvalidValue as error:
        yield wrong(_ABOUT, str(error), "edit [executor] in .ralph/config.toml")
        return
    try:
        link = Link.open(known, identity="ralphtool doctor", patience=0.0)
    except RemoteFailed as error:
        yield wrong(_ABOUT, str(error), _suggest_server(known))
        return
    try:
        busy = [job.worker for job in link.list_jobs() if job.worker]
        names = [*dict.fromkeys([*(one.identity for one in link.list_workers()), *busy])]
    except RemoteFailed as error:
        yield wrong(_ABOUT, str(error), _NO_ACTIVITIES if "tandalone" in str(error) else _suggest_server(known))
        return
    finally:
        link.close()
    yield ok(_ABOUT, f"a Temporal server answers at {known.address}, with the namespace {known.namespace}")
    yield _describe_workers(known, names)


def _suggest_server(known: ExecutorSettings) -> str:
    if executor.is_loopback(known.address):
        return "start one to try it out with `ralphtool worker --dev`, or set executor.address to your server"
    return f"check the server, or change executor.address (now {known.address})"


def _describe_workers(known: ExecutorSettings, names: list[str]) -> Diagnosis:
    if not names:
        command = f"ralphtool worker --address {known.address} --queue {shlex.quote(known.queue)}"
        return wrong(_ABOUT, f"no worker is connected to the queue {known.queue}", f"on each worker, run: {command}")
    counted = "1 worker is" if len(names) == 1 else f"{len(names)} workers are"
    return ok(_ABOUT, f"{counted} connected to the queue {known.queue}, or left it minutes ago: {', '.join(names)}")


# --- the git repository -----------------------------------------------------------------------------


def _check_remote(project: DoctorContext, settings: Settings) -> Iterator[Diagnosis]:
    repository = Repository.find(project.root)
    if repository is None:
        yield wrong(_ABOUT, "workers exchange work as git commits, but this is not a git repository", "git init")
    elif settings.executor.remote:
        repository.must_end = lambda: True  # gives up after ten seconds without an answer
        yield _try_remote(repository, find_remote(repository, settings))
    elif executor.is_loopback(executor.apply_environment(settings.executor).address):
        yield ok(
            _ABOUT, ("executor.remote is not set: commits are exchanged inside .git, with workers on this machine only")
        )
    else:
        fix = "set executor.remote to a git repository that you and all workers can push to"
        yield wrong(_ABOUT, "executor.remote is not set, and the server is on another machine", fix)


def _try_remote(repository: Repository, remote: Remote) -> Diagnosis:
    named, head = hide_login(remote.url), repository.resolve("HEAD")
    try:
        remote.list(layout.ORDERS + "*")
    except GitError as error:
        return wrong(_ABOUT, f"the git repository {named} can't be reached: {error}", _suggest_remote(remote))
    if head is None:
        return warning(_ABOUT, "there is no commit yet to push to the workers", "git commit")
    try:
        remote.try_push(layout.ORDERS + "doctor", head)
    except GitError as error:
        text = f"can't push to the git repository {named}: {error}"
        return wrong(_ABOUT, text, "allow yourself and the workers to push there, or change executor.remote")
    return ok(_ABOUT, f"commits are exchanged through {named}; pushing works")


def _suggest_remote(remote: Remote) -> str:
    return (
        "set executor.remote to a repository that git can read without a prompt; to check: `git ls-remote "
        f"{shlex.quote(hide_login(remote.url))}`"
    )
