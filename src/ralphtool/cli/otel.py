"""`ralphtool otel`: a run as spans and metrics, for OpenTelemetry."""

from __future__ import annotations

import os
import re
import sys
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, cast
from urllib.parse import urlsplit

import click
from click.shell_completion import CompletionItem

from ralphtool import settings as settings_module
from ralphtool.cli.help_text import FittingCommand
from ralphtool.cli.watch import RunEndSignal
from ralphtool.core import files, project
from ralphtool.core.text import make_printable
from ralphtool.errors import InvalidValue, RalphError, RemoteFailed, UnsafePath
from ralphtool.record import events, runs
from ralphtool.settings.otel import URL
from ralphtool.views.otel import otlp, sending
from ralphtool.views.otel.metrics import MetricSums
from ralphtool.views.otel.spans import SpanBuilder
from ralphtool.views.terminal import raw
from ralphtool.views.terminal.wrapping import echo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ralphtool.record.follow import StopSignal
    from ralphtool.record.runs import RunSummary
    from ralphtool.views.otel.model import Span
    from ralphtool.views.otel.sending import Target

_BATCH = 500  # spans per request
_PATIENCE, _TICK = 10.0, 0.05  # seconds
_LONGEST_FILE = 32 << 10  # bytes of a prompt, or of the end of a log


def _complete_run(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        found = runs.list_ids(project.find())
    except (RalphError, OSError):
        return []  # shell completion can't show errors
    return [CompletionItem(id) for id in found if id.startswith(incomplete)]


@click.command(cls=FittingCommand)
@click.argument("run", required=False, metavar="[RUN]", shell_complete=_complete_run)
@click.option("-f", "--follow", is_flag=True, help="Keep exporting until the run ends: each span is sent when it ends.")
@click.option(
    "--to",
    metavar="URL|FILE",
    help="An OTLP/HTTP endpoint, a file, or - for standard output. [default: endpoint of [otel], else -]",
)
def otel(run: str | None, follow: bool, to: str | None) -> None:
    """Export a run to OpenTelemetry: spans and metrics, as OTLP/JSON.

    The run, its attempts, agents and their tools, gates, merges and waits become spans. Ids are derived from the run,
    so exporting it twice adds nothing. For a run in progress, the spans that have ended are exported. Prompts, messages
    and outputs are left out unless `content = true` is set under `[otel]`.

    The endpoint gets POST requests at /v1/traces and /v1/metrics, with the headers of OTEL_EXPORTER_OTLP_HEADERS.
    RUN is a part of a run's id, or a change; the default is the newest run.

    \b
    Examples:
      ralphtool otel --to http://127.0.0.1:4318
      ralphtool otel add-login --to run.jsonl
      ralphtool otel --follow --to https://otel.example.org
      ralphtool otel | jq '.resourceSpans[]?.scopeSpans[].spans[].name'
    """
    root = project.find()
    told = settings_module.load(root).otel
    found = _wait_for_start(root, runs.find(root, run)) if follow else runs.find(root, run)
    read = _make_reader(found) if told.content else None
    to = (told.endpoint or "-") if to is None else to
    if os.path.exists(to) and os.path.samefile(to, found.path):
        raise InvalidValue(f"--to {to} is the record of the run, which is only read: name another file")
    with _open_target(to) as target:
        export = _Export(found, target, read)
        export.follow(RunEndSignal(found)) if follow else export.write_all()
        if target.rejected:
            raise RemoteFailed(f"the server rejected {target.rejected} spans or values: check its log")
    if _is_url(to):
        echo(make_printable(f"{export.sent} spans of {found.id} are sent to {urlsplit(to).netloc}"))


def _wait_for_start(root: str, run: RunSummary) -> RunSummary:
    """The record of a new run is empty for a moment; until then it is unknown whether the run is alive."""
    end = time.monotonic() + _PATIENCE
    while not run.start and not os.path.getsize(run.path) and time.monotonic() < end:
        time.sleep(_TICK)
        run = runs.read_summary(root, run.id)
    return run


def _is_url(to: str) -> bool:
    return "://" in to


@contextmanager
def _open_target(to: str) -> Iterator[Target]:
    if _is_url(to):
        if not re.fullmatch(URL, to):
            raise InvalidValue("--to must be a file or a URL without a login, such as http://127.0.0.1:4318")
        yield sending.HttpTarget(to, sending.parse_headers(os.environ.get(sending.HEADERS, "")))
    elif to == "-":
        yield sending.LinesTarget(cast("IO[bytes]", sys.stdout.buffer))
    else:
        if not to or os.path.isdir(to):
            raise InvalidValue(f"--to {to} is not a file: name the file to write")
        with open(to, "wb") as file:
            yield sending.LinesTarget(file)


class _Export:
    """Reads the record of a run, and sends the spans that have ended."""

    def __init__(self, run: RunSummary, target: Target, read: Callable[[str], str] | None) -> None:
        self._run = run
        self._target = target
        self._read = read
        self._restart()

    def _restart(self) -> None:
        self.sent = 0
        self._builder = SpanBuilder(self._run.id, self._read)
        self._sums = MetricSums()
        self._has_new_sums = False
        self._batch: list[Span] = []

    def write_all(self) -> None:
        """Sends everything at once; for a run in progress, the spans that have ended."""
        is_over = self._run.end is not None or not runs.is_alive(self._run)
        for event in self._read_events(_Now()):
            self._take(self._builder.feed(event) if event else [])
        self._take(self._builder.finish() if is_over else [])
        self._flush()

    def follow(self, stop: StopSignal) -> None:
        """Sends each span when it has ended. If that fails once, everything is sent again at the end."""
        target = self._target
        for event in self._read_events(stop):
            try:
                self._take([] if event is None else self._builder.feed(event))
                if event is None:
                    self._flush()
            except RemoteFailed as error:
                echo(f"Warning: {make_printable(str(error))}; retrying at the end of the run", err=True)
                self._target = _Nowhere()
        if self._target is target:
            self._take(self._builder.finish())
            self._flush()
        else:
            self._target = target
            self._restart()
            self.write_all()

    def _read_events(self, stop: StopSignal) -> Iterator[events.Event | None]:
        """None means that there are no more for now."""
        for line in raw.follow_lines(self._run.path, stop):
            event = events.decode(line) if line else None
            if event or line is None:
                yield event
            if self._builder.is_over:
                return

    def _take(self, spans: list[Span]) -> None:
        for span in spans:
            self._has_new_sums = self._sums.add(span, self._builder.start) or self._has_new_sums
        self._batch += spans
        while len(self._batch) >= _BATCH:
            self._send(self._batch[:_BATCH])
            self._batch = self._batch[_BATCH:]

    def _send(self, spans: list[Span]) -> None:
        self._target.send_spans(otlp.encode_spans(make_printable(self._run.id), spans))
        self.sent += len(spans)

    def _flush(self) -> None:
        if self._batch:
            self._send(self._batch)
            self._batch = []
        if self._has_new_sums:
            metrics = self._sums.list_metrics()
            self._target.send_metrics(otlp.encode_metrics(make_printable(self._run.id), metrics))
            self._has_new_sums = False


class _Now:
    """A stop signal that is always set: reads what is there, without waiting."""

    def is_set(self) -> bool:
        return True

    def wait(self, timeout: float) -> None:
        """Never waits."""


class _Nowhere:
    rejected = 0

    def send_spans(self, body: bytes) -> None:
        """Sends nothing now: everything is sent at the end."""

    send_metrics = send_spans


def _make_reader(run: RunSummary) -> Callable[[str], str]:
    """Reads prompts and logs that a record names. The record is not trusted: only files in its own folder are read."""
    folder = os.path.realpath(run.folder)

    def read(path: str) -> str:
        try:
            full = os.path.realpath(os.path.join(run.root, path))
            fd = files.open_in_project(full) if full.startswith(os.path.join(folder, "")) else None
        except (OSError, UnsafePath, ValueError):
            return ""
        return "" if fd is None else _read_text(fd, from_start=full.endswith("prompt.md"))

    return read


def _read_text(fd: int, *, from_start: bool) -> str:
    try:
        size = os.fstat(fd).st_size
        start = 0 if from_start else max(size - _LONGEST_FILE, 0)
        return files.read_at(fd, start, min(size, start + _LONGEST_FILE)).decode("utf-8", "replace")
    finally:
        os.close(fd)
