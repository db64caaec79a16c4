"""`ralphtool worker` works for runs on other machines; `ralphtool workers` lists the workers."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from ralphtool import settings as settings_module
from ralphtool.cli import arguments
from ralphtool.cli.help_text import FittingCommand
from ralphtool.core import project, quickjson
from ralphtool.core.text import make_printable
from ralphtool.errors import RalphError
from ralphtool.settings import executor
from ralphtool.views.terminal.wrapping import echo, echo_command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralphtool.executors.temporal.link import JobState, WorkerSeen
    from ralphtool.settings.executor import ExecutorSettings

_DOING = {
    "work": "running an agent",
    "prove": "running the proof",
    "gates-ahead": "running gates ahead of the queue",
    "measure": "running gates before the work",
    "tip": "running the last check",
    "examine": "checking a blocker",
}
_FLAGS = {
    "address": "The Temporal server, as HOST:PORT.",
    "namespace": "The namespace on that server.",
    "queue": "The task queue.",
    "tls_cert": "The client certificate for the server.",
    "tls_key": "The key of the client certificate.",
    "tls_ca": "The certificate authorities to accept for the server.",
}

_METAVARS = {"address": "HOST:PORT", "namespace": "NAME", "queue": "NAME"}


def _add_server_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option("--tls", is_flag=True, default=None, help="Use TLS.")(command)
    for key, text in reversed(_FLAGS.items()):
        command = click.option(
            f"--{key.replace('_', '-')}", key, metavar=_METAVARS.get(key, "FILE"), default=None, help=text
        )(command)
    return command


@click.command(cls=FittingCommand)
@_add_server_flags
@click.option(
    "--slots",
    type=arguments.WholeNumber(1, 64),
    default=None,
    help="The number of jobs at once: agents, or the gates of a story. [default: half the processors]",
)
@click.option("--name", default="", metavar="NAME", help="The name of this worker. [default: the machine's name]")
@click.option("--home", default="", metavar="DIR", help="The folder for its clones.")
@click.option("--remote", default="", metavar="URL", help="The git repository, if its address is different from here.")
@click.option("--dev", is_flag=True, help="Start a server and two workers on this machine, to try it out.")
def worker(slots: int | None, name: str, home: str, remote: str, dev: bool, **server: Any) -> None:
    """Carry out iterations for runs on other machines.

    A worker takes work from a task queue of a Temporal server, clones the project from the git repository that the run
    names, and works in boxes as a local run does. It uses its own agents and keys: no secrets are sent or received.
    Ctrl-C stops it: it accepts no new work, and delivers what its agents have done so far.

    Anyone who can add work to the queue can run programs on this machine, so protect the server.

    \b
    Examples:
      ralphtool worker --dev                       # a server and two workers here
      ralphtool worker --address build.example.org:7233 --tls --slots 4
      ralphtool run add-login --executor temporal  # on the machine of the run
    """
    from ralphtool.workers import program

    settings = _read_settings(server)
    if dev:
        _run_dev(settings, slots or 2, home)
        return
    executor.check_connection(settings)
    named = program.find_name(name)
    options = program.WorkerOptions(
        settings=settings,
        name=named,
        slots=slots or max(1, (os.cpu_count() or 2) // 2),
        home=program.find_home(home, named),
        remote=remote,
    )
    with program.stop_by_signals() as stop:
        program.run_worker(options, lambda: _announce(options), stop)
    _leave()


def _leave() -> None:
    """Exits at once: the library's own threads may still wait for an unreachable server, and would abort the process
    when Python shuts down."""
    sys.stdout.flush()
    os._exit(0)


def _announce(options: Any) -> None:
    settings = options.settings
    echo(
        f"{options.name} takes work from {settings.queue} at {settings.address}, {options.slots} at once. "
        "Press Ctrl-C to stop."
    )


def _read_settings(given: dict[str, Any]) -> ExecutorSettings:
    """The settings of the current project, if any, overridden by the environment and the command line."""
    try:
        known = settings_module.load(project.find()).executor
    except RalphError:
        known = executor.ExecutorSettings()
    chosen = {key: value for key, value in given.items() if value is not None}
    return structs.replace(executor.apply_environment(known), **chosen)


def _run_dev(settings: ExecutorSettings, slots: int, home: str) -> None:
    from ralphtool.workers import development, program

    with program.stop_by_signals() as stop, development.start(settings, slots, home) as address:
        echo(f"Started a Temporal server at {address} and two workers with {slots} slots each. In your project, run:\n")
        default = executor.ExecutorSettings().address
        flag = "" if address == default else f"TEMPORAL_ADDRESS={address} "
        echo_command(f"{flag}ralphtool run --executor temporal --side-by-side {2 * slots}")
        click.echo()
        click.echo("Press Ctrl-C to stop.")
        stop.wait()


@click.command(cls=FittingCommand)
@_add_server_flags
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for programs.")
def workers(as_json: bool, **server: Any) -> None:
    """List the workers and their current work.

    \b
    Examples:
      ralphtool workers
      ralphtool workers --address build.example.org:7233 --tls
    """
    from ralphtool.executors.temporal.link import Link

    settings = _read_settings(server)
    link = Link.open(settings, patience=0.0)
    try:
        seen, jobs = link.list_workers(), link.list_jobs()
    finally:
        link.close()
    if as_json:
        told = {"queue": settings.queue, "workers": _list_workers(seen, jobs), "jobs": [*map(_describe_job, jobs)]}
        click.echo(quickjson.dumps(told))
    else:
        _print_workers(settings, seen, jobs)


def _list_workers(seen: Sequence[WorkerSeen], jobs: Sequence[JobState]) -> list[dict[str, Any]]:
    busy = [one.worker for one in jobs if one.worker]
    ages = {one.identity: one.seconds for one in seen}
    return [
        {
            "name": name,
            "seconds_ago": round(ages.get(name, 0.0), 1),
            "jobs": [_describe_job(one) for one in jobs if one.worker == name],
        }
        for name in dict.fromkeys([*ages, *busy])
    ]


def _describe_job(job: JobState) -> dict[str, Any]:
    return {"id": job.id, "state": job.state, "worker": job.worker, "attempt": job.attempt}


def _name_job(id: str) -> str:
    """An order's id consists of its run, the number of the iteration, and the kind of work."""
    run, _, rest = id.partition("/")
    number, _, kind = rest.partition("-")
    doing = next((words for name, words in _DOING.items() if kind.startswith(name)), "working")
    return f"{doing}, iteration {int(number)} of {run}" if number.isdecimal() else id


def _print_workers(settings: ExecutorSettings, seen: Sequence[WorkerSeen], jobs: Sequence[JobState]) -> None:
    rows = _list_workers(seen, jobs)
    if not rows:
        echo(f"No worker is connected to {settings.queue} at {settings.address}. Start one:\n")
        echo_command(f"ralphtool worker --queue {settings.queue} --address {settings.address}")
    for row in rows:
        doing = "; ".join(make_printable(_name_job(job["id"])) for job in row["jobs"]) or "idle"
        echo(f"{make_printable(row['name'])}: {doing}")
    waiting = [one for one in jobs if one.state == "waiting"]
    if waiting:
        click.echo(f"\n{len(waiting)} waiting for a worker")
