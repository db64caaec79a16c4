"""The output of `ralphtool run` for programs at its end: the object of `--format json`, and the files of `--junit` and
`--report`. However the command ends, they are written exactly once.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

import click

from ralphtool.core import files, quickjson
from ralphtool.errors import IoError, RalphError, UsageError, from_os_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.loop.run import RunResult
    from ralphtool.record.runs import RunSummary
    from ralphtool.views.report.facts import Facts
    from ralphtool.views.report.final import FinalError, FinalPaths, FinalResult
    from ralphtool.views.report.junit import NoRun

FORMATS = ("text", "events", "json")
Format = Literal["text", "events", "json"]
_INTERRUPTED, _CRASHED = 130, 3  # exit codes


class Wanted(NamedTuple):
    """The requested output."""

    form: Format = "text"
    junit: str | None = None
    report: str | None = None
    is_all: bool = False  # several changes: one object for all of them


class _Ending(NamedTuple):
    """How the run of one change ended."""

    root: str
    change: str | None
    record: str | None  # None if no run started
    exit_code: int
    reason: str = ""
    error: FinalError | None = None


def choose_format(form: str | None, *, as_json: bool) -> Format:
    return "json" if form == "json" else "events" if as_json or form == "events" else "text"


class RunOutput:
    """Collects the endings of the runs of one command. Leaving the context, even by an error, writes the output."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self._endings: list[_Ending] = []
        self._root = ""
        self._change: str | None = None
        self._record: str | None = None
        self._exit_code = 0
        self._may_write = False  # the requested files
        self._written: set[str] = set()

    @property
    def form(self) -> Format:
        return self.wanted.form

    def check(self, form: str | None, *, as_json: bool, is_dry: bool) -> None:
        """Refuses options that contradict each other, and files that can't be written, before anything runs."""
        if as_json and form not in (None, "events"):
            raise UsageError(f"--json and --format {form} can't be combined: --json is the same as --format events")
        for option, path in (("--junit", self.wanted.junit), ("--report", self.wanted.report)):
            if path is not None:
                _check_target(option, path, is_dry=is_dry)
        junit_path, report_path = (
            os.path.realpath(one) if one else None for one in (self.wanted.junit, self.wanted.report)
        )
        if junit_path and junit_path == report_path:
            raise UsageError("--junit and --report name the same file: give each its own")
        if self.wanted.report and self.wanted.is_all:
            raise UsageError("--report is about one run: leave it out, and run `ralphtool report CHANGE` for each")
        if self.wanted.report:
            from ralphtool.cli import report

            report.choose_format(None, self.wanted.report, as_json=False)
        self._may_write = not is_dry

    def begin(self, root: str, change: str) -> None:
        self._root, self._change, self._record = root, change, None

    def note_record(self, path: str) -> None:
        self._record = path

    def end(self, result: RunResult, exit_code: int) -> None:
        self._endings.append(_Ending(self._root, self._change, result.record, exit_code, result.ended.reason))
        self._change = self._record = None

    def fail(self, error: BaseException, change: str | None = None, exit_code: int | None = None) -> None:
        """The run of this change ended with an error, or did not start."""
        code = exit_code or find_exit_code(error)
        described = None if code == _INTERRUPTED else describe_error(error)
        record = self._record if self._record and os.path.exists(self._record) else None  # a refused run has none
        self._endings.append(_Ending(self._root, self._change or change, record, code, error=described))
        self._change = self._record = None

    def __enter__(self) -> RunOutput:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.form != "json" and self.wanted == Wanted(self.form, is_all=self.wanted.is_all):
            return
        if error is not None:
            self._exit_code = find_exit_code(error)
            self.fail(error)
        trouble = self._write_files() if self._may_write else None
        if self.form == "json" and self._endings:
            self._print_object(trouble)
        if trouble and error is None:
            raise trouble
        if trouble:
            click.echo(f"Error: {trouble}", err=True)

    # --- the files ------------------------------------------------------------------------------

    def _write_files(self) -> RalphError | None:
        """Returns an error if a file could not be written: a job must not show the file of an earlier job."""
        troubles: list[RalphError] = []
        for path, write in ((self.wanted.junit, self._write_junit), (self.wanted.report, self._write_report)):
            try:
                if path and write(path):
                    self._written.add(path)
            except OSError as error:
                troubles.append(from_os_error(error))
            except RalphError as error:
                troubles.append(error)
        return troubles[0] if troubles else None

    def _write_junit(self, path: str) -> bool:
        from ralphtool.cli import report
        from ralphtool.views.report import junit

        report.write_file(path, junit.render_all([_read(one) for one in self._endings]))
        return True

    def _write_report(self, path: str) -> bool:
        """Returns whether there is a run to report."""
        from ralphtool.cli import report

        ending = self._endings[-1] if self._endings else None
        if ending is None or ending.record is None:
            return False
        run = _read_summary(ending, ending.record)
        form = report.choose_format(None, path, as_json=False)
        report.write_file(path, report.render_report(ending.root, run, form, None))
        return True

    # --- the object -----------------------------------------------------------------------------

    def _print_object(self, trouble: RalphError | None) -> None:
        from msgspec import to_builtins

        from ralphtool.views.report.final import FinalResults

        results = [self._build(one, trouble) for one in self._endings]
        code = max([self._exit_code, *(one.exit_code for one in results)])
        if not self.wanted.is_all:
            click.echo(quickjson.dumps(to_builtins(results[-1])))
            return
        named = tuple(one for one in results if one.change)
        error = next((one.error for one in results if not one.change), None)
        click.echo(quickjson.dumps(to_builtins(FinalResults(exit_code=code, error=error, changes=named))))

    def _build(self, ending: _Ending, trouble: RalphError | None) -> FinalResult:
        from ralphtool.views.report import final

        error = ending.error or (describe_error(trouble) if trouble else None)
        code = max(ending.exit_code, trouble.exit_code if trouble else 0)
        paths = self._build_paths(ending)
        found = _read(ending)
        if isinstance(found, tuple):
            refused = "refused" if code != _CRASHED else "crashed"
            result = "interrupted" if code == _INTERRUPTED else refused if error else "nothing-to-do"
            reason = ending.reason or None
            return final.FinalResult(
                change=ending.change, result=result, exit_code=code, reason=reason, error=error, paths=paths
            )
        return final.build_result(found, code, paths, error)

    def _build_paths(self, ending: _Ending) -> FinalPaths:
        from ralphtool.views.report.final import FinalPaths

        wanted = (self.wanted.junit, self.wanted.report)
        junit, report = (os.path.abspath(one) if one in self._written else None for one in wanted)
        return FinalPaths(record=ending.record, report=report, junit=junit)


def find_exit_code(error: BaseException) -> int:
    """The exit code that `main` gives to this error."""
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return _INTERRUPTED
    if isinstance(error, click.ClickException):
        return 2
    if isinstance(error, RalphError):
        return error.exit_code
    return IoError.exit_code if isinstance(error, OSError) else _CRASHED


def describe_error(error: BaseException) -> FinalError:
    from ralphtool.views.report.final import FinalError

    if isinstance(error, OSError):
        error = from_os_error(error)
    if isinstance(error, RalphError):
        return FinalError(code=error.code, message=str(error))
    if isinstance(error, click.ClickException):
        return FinalError(code=UsageError.code, message=error.format_message())
    return FinalError(code=RalphError.code, message=f"{type(error).__name__} in ralphtool itself: a bug")


def print_usage_error(arguments: Sequence[str], error: click.ClickException) -> None:
    """The command line can't be parsed, so the requested output is found in its words."""
    pairs = zip(arguments, [*arguments[1:], ""], strict=True)
    if "--format=json" in arguments or ("--format", "json") in pairs:
        output = RunOutput(Wanted("json", is_all="--all" in arguments))
        output.__exit__(None, error, None)


def _check_target(option: str, path: str, *, is_dry: bool) -> None:
    if is_dry:
        raise UsageError(f"{option} is about a run, and --dry-run starts none: leave one of them out")
    if path in ("", "-"):
        raise UsageError(f"{option} needs the name of a file: standard output is for --format")
    if os.path.isdir(path):
        raise UsageError(f"{option}: {path} is a folder: name the file to write")
    if os.path.lexists(path) and not os.path.isfile(path):  # also a link that leads nowhere
        raise UsageError(f"{option}: {path} is not a regular file: name another one")
    folder = files.folder_of(path)
    if not os.path.isdir(folder):
        raise UsageError(f"{option}: there is no folder {folder}: create it first, or name another file")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{option}: the folder {folder} can't be written to: name a file elsewhere")


def _read(ending: _Ending) -> Facts | NoRun:
    """The facts in the record; without a record, why there is none."""
    from ralphtool.views.report import from_record
    from ralphtool.views.report.junit import NoRun

    if ending.record is None:
        why = ending.error.message if ending.error else ending.reason or "interrupted before the run began"
        is_error = ending.error is not None or ending.exit_code == _INTERRUPTED
        return NoRun(ending.change or "ralphtool", why, is_error=is_error)
    return from_record.read_facts(_read_summary(ending, ending.record))


def _read_summary(ending: _Ending, record: str) -> RunSummary:
    from ralphtool.record import runs

    run = runs.read_summary(ending.root, os.path.basename(os.path.dirname(record)))
    if run.end is None:  # the run was in this process, so it is not alive
        run.state = "interrupted" if ending.exit_code == _INTERRUPTED else "died"
    return run
