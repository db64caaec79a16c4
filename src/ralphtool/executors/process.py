"""Runs third-party programs, with time limits and transcripts, and leaves no process behind.

A `Supervisor` runs one program at a time, below a separate process (see `supervisor`) that ends every descendant of the
program, however the program, or ralphtool itself, ends:

- the program ends, or its time is up: the supervisor ends the rest, and reports it;
- ralphtool is killed: the supervisor sees its socket close, and kills everything;
- the supervisor is killed: ralphtool inherits its orphans, and kills them;
- both are killed: `end_orphans` finds the processes at the next start, by the record and by their environment.
"""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from ralphtool.core import files
from ralphtool.core.disk import is_disk_full
from ralphtool.core.locks import read_start_time
from ralphtool.executors import supervisor
from ralphtool.executors.transcript import ProgramOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    Start = tuple[Sequence[str], str, Mapping[str, str]]  # a command, its working directory, its environment
    Confine = Callable[[Sequence[str], str, Mapping[str, str], Sequence[str], str], Start]

EndReason = Literal["exit", "wall-clock", "silence", "stopped", "too-much", "no-room", "supervisor-lost", "not-started"]

SESSION = "RALPH_SESSION"
_NOTE_EVERY = 1.0
_SLACK = 2.0  # seconds after the grace period, after which the supervisor itself must be stuck
_ANSWER = 10.0  # seconds within which a supervisor accepts a command, even on a busy machine
_NOT_STARTED = 127  # as in a shell
# Imported, not run as a script: Python caches the bytecode of modules only.
_START = "import sys; sys.path.append(sys.argv.pop(1)); import supervisor; supervisor.main()"


class ProcessResult(Struct, frozen=True, kw_only=True):
    """How a program ended."""

    exit_code: int  # negative: the signal that ended it
    why: EndReason
    left: tuple[str, ...] = ()  # the names of descendants that had to be ended
    detail: str = ""
    seconds: float


# --- processes that must be gone before the next run ------------------------------------------------


class _ProcessRecord:
    """The file of processes that `end_orphans` reads.

    Nothing here is synced: after a power cut, the processes are gone too.
    """

    def __init__(self, path: str | None) -> None:
        self._fd = -1 if path is None else files.open_in_project(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._noted: set[int] = set()
        self._next = 0.0

    def __enter__(self) -> _ProcessRecord:
        return self

    def note(self, pid: int, start: str | None = None) -> None:
        if self._fd < 0 or pid in self._noted:
            return
        self._noted.add(pid)
        with suppress(OSError):  # on a full disk, their environment must be enough
            files.write_fd(self._fd, f"{pid} {start or read_start_time(pid)}\n".encode())

    def note_descendants(self, pid: int) -> None:
        """Notes a process's descendants, if the last time was a while ago."""
        now = time.monotonic()
        if self._fd < 0 or now < self._next:
            return
        if self._next:  # most programs end before the first time
            os.utime(self._fd)  # a sign of life: shows later when ralphtool was killed
            for each in supervisor.find_descendants(pid):
                self.note(each)
        self._next = now + _NOTE_EVERY

    def __exit__(self, *exception: object) -> None:
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)


def end_orphans(path: str, session_id: str, *beside: str) -> list[str]:
    """Ends the processes that a run left when it was killed together with its supervisor; returns their names.

    A process counts if its id and start time are in one of the files, or if its environment names the session; so do
    all its descendants.
    """
    records = {one: _read_record(one) for one in (path, *beside)}
    noted = {pid: start for record in records.values() for pid, start in record.items()}
    spared = _own_processes()

    def find() -> dict[int, str]:
        known = [pid for pid, start in noted.items() if read_start_time(pid) == start]
        roots = {*known, *supervisor.find_marked(SESSION, session_id)} - spared
        found = {pid: name for pid in roots if (name := supervisor.name_of(pid))}
        for pid in roots:
            found.update(supervisor.find_descendants(pid))
        return found

    ended = _kill_until_none(find, patience=5.0)
    for one, record in records.items():
        if record:
            _truncate(one)
    return sorted(ended.values())


def _truncate(path: str) -> None:
    """Keeps the file's time, which shows when the run was last active."""
    fd = files.open_in_project(path, os.O_WRONLY)
    try:
        info = os.fstat(fd)
        os.ftruncate(fd, 0)
        os.utime(fd, ns=(info.st_atime_ns, info.st_mtime_ns))
    finally:
        os.close(fd)


def _read_record(path: str) -> dict[int, str]:
    """The processes in the file. Invalid lines are skipped: a power cut may have left anything there."""
    try:
        fd = files.open_in_project(path)
    except FileNotFoundError:
        return {}
    with io.FileIO(fd, "rb") as file:
        lines = [line.split(" ") for line in file.readall().decode("utf-8", "replace").splitlines()]
    return {int(line[0]): line[1] for line in lines if len(line) == 2 and line[0].isdecimal() and len(line[0]) < 10}


def _own_processes() -> set[int]:
    """This process and its ancestors."""
    pid, found = os.getpid(), set[int]()
    while pid > 0 and pid not in found:
        found.add(pid)
        pid = supervisor.parent_of(pid)
    return found


def _kill_until_none(find: Callable[[], dict[int, str]], patience: float) -> dict[int, str]:
    """Kills all processes that `find` returns, repeatedly, for up to `patience` seconds; returns their names."""
    ended: dict[int, str] = {}
    until = time.monotonic() + patience
    while (found := find()) and time.monotonic() < until:
        ended.update(found)
        supervisor.kill_all(find)
        time.sleep(0.005)
    return ended


# --- orphans of a killed supervisor ---------------------------------------------------------------------


class _Adoption:
    """This process adopts orphans only while programs run, to get no unrelated ones."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.supervisors: set[int] = set()
        self._users = 0
        self._before = False

    def __enter__(self) -> None:
        with self.lock:
            if self._users == 0:
                self._before = supervisor.adopt_orphans(True)
            self._users += 1

    def __exit__(self, *exception: object) -> None:
        with self.lock:
            self._users -= 1
            if self._users == 0:
                supervisor.adopt_orphans(self._before)

    def children(self) -> set[int]:
        """Children in another process session that are not supervisors: orphans, or started by other code here."""
        if not supervisor.LINUX:
            return set()
        with self.lock:
            ours = {os.getsid(0), None}
            children = set(supervisor.children_of(os.getpid())) - self.supervisors
        return {pid for pid in children if _session_of(pid) not in ours}


_adoption = _Adoption()


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


class _Orphans:
    """The orphans of a dead supervisor: children that this process did not have before it began."""

    def __init__(self, supervisor_pid: int) -> None:
        self._supervisor_pid = supervisor_pid
        self._known = _adoption.children()
        self.codes: dict[int, int] = {}

    def end(self) -> dict[int, str]:
        return _kill_until_none(self.find, patience=1.0)

    def find(self) -> dict[int, str]:
        found = {} if supervisor.LINUX else supervisor.find_descendants(self._supervisor_pid)
        for pid in _adoption.children() - self._known:
            if not self._reap(pid):
                found[pid] = supervisor.name_of(pid) or str(pid)
                found.update(supervisor.find_descendants(pid))
        return found

    def _reap(self, pid: int) -> bool:
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return True
        if done:
            self.codes[pid] = os.waitstatus_to_exitcode(status)
        return bool(done)


# --- running ----------------------------------------------------------------------------------------


class _SupervisorLink:
    """A running supervisor, and this end of its socket."""

    def __init__(self, session: str | None) -> None:
        self.line, theirs = socket.socketpair()
        self.line.settimeout(_ANSWER)
        isolated = ["-I", "-S"] if supervisor.LINUX else ["-I"]
        folder = os.path.dirname(supervisor.__file__)
        command = [sys.executable, *isolated, "-c", _START, folder, str(theirs.fileno()), *_extra_paths()]
        env = {**os.environ, SESSION: session} if session else None
        with theirs, _adoption.lock:
            self.process = subprocess.Popen(
                command,
                cwd="/",
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            _adoption.supervisors.add(self.process.pid)
        self.start = read_start_time(self.process.pid)

    def say(self, message: bytes, fds: Sequence[int] = ()) -> None:
        try:
            sent = socket.send_fds(self.line, [message], fds)
            self.line.sendall(message[sent:])
        except OSError:
            self.process.kill()  # already gone, or stuck with half a message: the reader sees it end

    def close(self) -> None:
        """Makes the supervisor kill its program and exit. It does so even if this is interrupted."""
        self.line.close()
        try:
            self.process.wait(_SLACK)
        except subprocess.TimeoutExpired:
            self.kill()
        _adoption.supervisors.discard(self.process.pid)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()  # from then on its orphans are children of this process


def _extra_paths() -> list[str]:
    """Where the supervisor finds psutil, if it needs it: it runs isolated, so it does not search everywhere."""
    if supervisor.LINUX:
        return []
    import psutil

    return [os.path.dirname(os.path.dirname(psutil.__file__))]


class _ProcessLimits(Struct, frozen=True):
    wall: float
    silence: float
    grace: float
    stop: Callable[[], bool]


class _RunningProgram:
    """One program, from its start to its end."""

    def __init__(
        self, link: _SupervisorLink, output: ProgramOutput, limits: _ProcessLimits, record: _ProcessRecord
    ) -> None:
        self._link = link
        self._output = output
        self._limits = limits
        self._record = record
        self._orphans = _Orphans(link.process.pid)
        self._began = time.monotonic()
        self._main = 0
        self._end_reason: EndReason | None = None
        self._overdue = 0.0
        record.note(link.process.pid, link.start)
        output.listen_to(link.line)

    def start(self, request: bytes, stdin: str | None) -> None:
        with open(stdin or os.devnull, "rb", buffering=0) as file:
            fds = [each.fileno() for each in (file, *self._output.theirs())]
            self._link.say(request, fds)
        for each in self._output.theirs():
            each.close()

    def follow(self) -> Generator[bytes, None, ProcessResult]:
        ended: ProcessResult | None = None
        while ended is None:
            if (yield from self._output.turn()):
                ended = self._receive()
            elif self._end_reason is None:
                self._ask()
            elif time.monotonic() > self._overdue:
                ended = self._end_without_supervisor()
            self._record.note_descendants(self._link.process.pid)
        yield from self._output.rest()
        if ended.why == "exit" and self._output.trouble:
            return replace(ended, why=self._output.trouble)
        return ended

    def _receive(self) -> ProcessResult | None:
        message = supervisor.receive(self._link.line)
        if message is None:
            return self._end_without_supervisor()
        kind, *fields = [os.fsdecode(field) for field in message[0]]
        if kind == "started":
            self._main = int(fields[0])
            self._record.note(self._main)
            return None
        if kind == "failed":
            return self._build_result(_NOT_STARTED, "not-started", detail=": ".join(fields))
        if fields[1]:
            self._link.close()  # it could not end every process, and exits
        return self._build_result(int(fields[0]), self._end_reason or "exit", tuple(fields[2:]), fields[1])

    def _ask(self) -> None:
        self._end_reason = self._reason()
        if self._end_reason is not None:
            self._link.say(supervisor.pack(b"end", str(self._limits.grace).encode()))
            self._overdue = time.monotonic() + self._limits.grace + _SLACK

    def _reason(self) -> EndReason | None:
        now = time.monotonic()
        if self._output.trouble:
            return self._output.trouble
        if self._limits.stop():
            return "stopped"
        if 0 < self._limits.wall < now - self._began:
            return "wall-clock"
        # The caller may take long to process the output: that is not silence if more output is waiting.
        if self._output.quiet and 0 < self._limits.silence < now - self._output.heard:
            return "silence"
        return None

    def _end_without_supervisor(self) -> ProcessResult:
        """The supervisor was killed, or does not answer: this process does its work."""
        self._link.kill()
        left = self.end_orphans()
        left.pop(self._main, None)
        rest = ", ".join(self._orphans.find().values())
        detail = f"could not be stopped: {rest}" if rest else ""
        code = self._orphans.codes.get(self._main, -signal.SIGKILL)
        return self._build_result(code, self._end_reason or "supervisor-lost", tuple(left.values()), detail)

    def end_orphans(self) -> dict[int, str]:
        return self._orphans.end()

    def _build_result(self, code: int, why: EndReason, left: tuple[str, ...] = (), detail: str = "") -> ProcessResult:
        return ProcessResult(exit_code=code, why=why, left=left, detail=detail, seconds=time.monotonic() - self._began)


class Supervisor:
    """Runs programs, one at a time, and leaves no process behind.

    `record` is the path of the file for `end_orphans`: one for each supervisor.
    """

    def __init__(self, record: str | None = None, confine: Confine | None = None) -> None:
        self._record = record
        self._confine = confine
        self._link: _SupervisorLink | None = None
        self._busy = False

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def prepare(self, session: str) -> None:
        """Starts the supervisor process in advance, so that the first program need not wait for it."""
        self._ensure_link(session)

    def close(self) -> None:
        """Ends the supervisor, and everything that it runs, at once."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        stdin: str | None,
        into: str,
        wall: float,
        silence: float,
        secrets: tuple[str, ...] = (),
        stop: Callable[[], bool] = lambda: False,
        grace: float = 5.0,
        limit: int | None = None,
        complaints: bool = False,
        writable: Sequence[str] = (),
        purpose: str = "agent",
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Generator[bytes, None, ProcessResult]:
        """Runs a program; yields its standard output as it arrives, and returns how it ended.

        With `complaints`, standard error is yielded too, as pieces of the type StderrChunk.

        `stdin` is the path of its input, `into` of its transcript; standard error goes to `<into>.err`. A time of 0
        means no limit; in `grace` seconds it may end itself when asked to. `limit` is in bytes. `writable` are folders
        outside its working directory that it may write to if it is confined; programs of another `purpose` don't share
        its caches there. `meanwhile` is called once, when the program has been started.
        """
        if self._confine is not None:
            argv, cwd, env = self._confine(argv, cwd, env, writable, purpose)
        with ExitStack() as stack:
            try:
                request = supervisor.build_request(argv, cwd, env)
                output = ProgramOutput(stack, into, secrets, limit, complaints=complaints)
                record = stack.enter_context(_ProcessRecord(self._record))
            except ValueError as error:
                return ProcessResult(exit_code=_NOT_STARTED, why="not-started", detail=str(error), seconds=0.0)
            except OSError as error:
                if not is_disk_full(error):
                    raise
                return ProcessResult(exit_code=_NOT_STARTED, why="no-room", detail=str(error), seconds=0.0)
            stack.enter_context(self._reserve())
            limits = _ProcessLimits(wall, silence, grace, stop)
            run = _RunningProgram(self._ensure_link(env.get(SESSION)), output, limits, record)
            return (yield from self._follow(run, request, stdin, meanwhile))

    def _follow(
        self, run: _RunningProgram, request: bytes, stdin: str | None, meanwhile: Callable[[], None]
    ) -> Generator[bytes, None, ProcessResult]:
        try:
            run.start(request, stdin)
            meanwhile()
            return (yield from run.follow())
        except BaseException:
            self.close()
            run.end_orphans()
            raise

    @contextmanager
    def _reserve(self) -> Iterator[None]:
        if self._busy:
            raise RuntimeError("a supervisor runs one program at a time")
        self._busy = True
        try:
            with _adoption:
                yield
        finally:
            self._busy = False

    def _ensure_link(self, session: str | None) -> _SupervisorLink:
        if self._link is not None and self._link.process.poll() is not None:
            self.close()
        if self._link is None:
            self._link = _SupervisorLink(session)
        return self._link
