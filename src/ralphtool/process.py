"""Running other people's programs: clocks, transcripts, and nobody left behind.

A `Keeper` runs one program at a time, below a process of its own (see `keeper`) that ends every descendant of the
program, however the program, or we ourselves, come to an end:

- the program ends, or its time is up: the keeper ends the rest, and tells us;
- we are killed: the keeper sees its socket close, and kills everything;
- the keeper is killed: its orphans come to us, and we kill them;
- both are killed: `end_orphans` finds them at the next start, by what the record says and by their environment.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import re
import select
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

from ralphtool import files, keeper
from ralphtool.locks import start_time_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

Why = Literal["exit", "wall-clock", "silence", "stopped", "too-much", "no-room", "keeper-lost", "not-started"]

REDACTED = b"[redacted]"
SESSION = "RALPH_SESSION"
_CHUNK = 1 << 20
_TICK = 0.1  # seconds between two looks at the clocks
_NOTE_EVERY = 1.0
_SLACK = 2.0  # seconds beyond its grace after which the keeper itself must be stuck
_ANSWER = 10.0  # seconds within which a keeper takes what we tell it, on however busy a machine
_NOT_STARTED = 127  # what a shell says
_SETPIPE_SZ = getattr(fcntl, "F_SETPIPE_SZ", None)


class Ended(Struct, frozen=True, kw_only=True):
    """How a program came to its end."""

    exit_code: int  # negative: the signal that ended it
    why: Why
    left: tuple[str, ...] = ()  # the names of descendants that had to be ended
    detail: str = ""
    seconds: float


# --- what it says -----------------------------------------------------------------------------------


class Redactor:
    """Replaces secrets in a stream, however it is cut into pieces."""

    def __init__(self, secrets: Sequence[str]) -> None:
        # Of two that begin alike, the longer one counts.
        found = {secret.encode("utf-8", "surrogateescape") for secret in secrets if secret}
        self._secrets = sorted(found, key=len, reverse=True)
        self._any = re.compile(b"|".join(map(re.escape, self._secrets)))
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What can be told of the stream by now; the beginning of a secret, perhaps, is held back."""
        if not self._secrets:
            return data
        data = self._held + data
        told, at, hold = [], 0, self._unfinished(data, 0)
        for match in self._matches(data):
            if match.start() >= hold:
                break
            told += [data[at : match.start()], REDACTED]
            at = match.end()
            if at > hold:
                hold = self._unfinished(data, at)
        self._held = data[hold:]
        return b"".join((*told, data[at:hold]))

    def rest(self) -> bytes:
        held, self._held = self._held, b""
        return self._any.sub(REDACTED, held) if self._secrets else b""

    def _matches(self, data: bytes) -> Iterator[re.Match[bytes]]:
        # Looking for each of them alone is many times quicker than for any, and mostly there are none.
        return self._any.finditer(data) if any(secret in data for secret in self._secrets) else iter(())

    def _unfinished(self, data: bytes, start: int) -> int:
        """Where the first secret begins that is still to be completed."""
        first = len(data)
        for secret in self._secrets:
            at = data.find(secret[:1], max(start, len(data) - len(secret) + 1))
            while 0 <= at < first:
                if secret.startswith(data[at:]):
                    first = at
                at = data.find(secret[:1], at + 1)
        return first


class _Stream:
    """One of a program's two outputs: out of a pipe, redacted, into a file."""

    def __init__(self, stack: ExitStack, path: str, secrets: Sequence[str]) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        self._file = stack.enter_context(io.FileIO(files.open_here(path, flags), "wb"))
        ours, theirs = os.pipe()
        self.pipe = stack.enter_context(io.FileIO(ours, "rb"))
        self.theirs = stack.enter_context(io.FileIO(theirs, "wb"))
        os.set_blocking(ours, False)
        if _SETPIPE_SZ is not None:
            with suppress(PermissionError):  # a user may have only so much
                fcntl.fcntl(ours, _SETPIPE_SZ, _CHUNK)
        self._redactor = Redactor(secrets)

    def read(self) -> bytes | None:
        """What is there; nothing at the end, None when there is nothing yet."""
        return self.pipe.read(_CHUNK)

    def write(self, data: bytes) -> bytes:
        return self._write(self._redactor.feed(data))

    def finish(self) -> bytes:
        return self._write(self._redactor.rest())

    def _write(self, told: bytes) -> bytes:
        if told:
            files.write_fd(self._file.fileno(), told)
        return told


class _Output:
    """Both outputs of a program, together with the socket on which the keeper speaks."""

    def __init__(self, stack: ExitStack, into: str, secrets: Sequence[str], limit: int | None) -> None:
        self._out = _Stream(stack, into, secrets)
        self._err = _Stream(stack, f"{into}.err", secrets)
        self._open = {stream.pipe.fileno(): stream for stream in (self._out, self._err)}
        self._room = limit
        self._poll = select.poll()
        for fd in self._open:
            self._poll.register(fd, select.POLLIN)
        self.trouble: Why | None = None
        self.heard = time.monotonic()
        self.quiet = True  # nothing had come when we last looked

    def theirs(self) -> list[io.FileIO]:
        return [self._out.theirs, self._err.theirs]

    def listen_to(self, line: socket.socket) -> None:
        self._line = line.fileno()
        self._poll.register(line, select.POLLIN)

    def turn(self) -> Generator[bytes, None, bool]:
        """Waits a little, and takes what has come; tells whether the keeper spoke."""
        spoke = False
        self.quiet = True
        for fd, _ in self._poll.poll(_TICK * 1000):
            spoke = spoke or fd == self._line
            if (stream := self._open.get(fd)) and (data := self._take(stream)):
                yield data
        return spoke

    def rest(self) -> Generator[bytes, None, None]:
        """What is still in the pipes. Nobody who could fill them is left; if a stranger can, we don't wait for him."""
        for stream in list(self._open.values()):
            for _ in range(4):
                if data := self._take(stream):
                    yield data
        for stream in (self._out, self._err):
            data = b"" if self.trouble == "no-room" else self._guarded(stream.finish)
            if data and stream is self._out:
                yield data

    def _take(self, stream: _Stream) -> bytes:
        """Reads and keeps a piece; returns what a reader of standard output shall see of it."""
        if stream.pipe.fileno() not in self._open or (data := stream.read()) is None:
            return b""
        self.heard, self.quiet = time.monotonic(), False
        if not data:
            self._close(stream)
        elif self.trouble is None:
            told = self._keep(stream, data)
            return told if stream is self._out else b""
        return b""

    def _keep(self, stream: _Stream, data: bytes) -> bytes:
        over = self._room is not None and len(data) > self._room
        if self._room is not None:
            data = data[: self._room]
            self._room -= len(data)
        told = self._guarded(lambda: stream.write(data))
        if over:
            self.trouble = self.trouble or "too-much"
        return told

    def _guarded(self, write: Callable[[], bytes]) -> bytes:
        try:
            return write()
        except OSError as error:
            if not is_no_room(error):
                raise
        self.trouble = "no-room"
        for stream in list(self._open.values()):
            self._close(stream)
        return b""

    def _close(self, stream: _Stream) -> None:
        self._poll.unregister(stream.pipe)
        del self._open[stream.pipe.fileno()]


def is_no_room(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


# --- who must be gone before anybody else begins ----------------------------------------------------


class _Record:
    """The file of processes that `end_orphans` reads.

    Nothing here is synced: what a power cut takes from the file, it has taken from the machine as well.
    """

    def __init__(self, path: str | None) -> None:
        self._fd = -1 if path is None else files.open_here(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._noted: set[int] = set()
        self._next = 0.0

    def __enter__(self) -> _Record:
        return self

    def note(self, pid: int, start: str | None = None) -> None:
        if self._fd < 0 or pid in self._noted:
            return
        self._noted.add(pid)
        with suppress(OSError):  # on a full disk, their environment has to do
            files.write_fd(self._fd, f"{pid} {start or start_time_of(pid)}\n".encode())

    def note_below(self, pid: int) -> None:
        """Notes a process's descendants, if the last time was a while ago."""
        now = time.monotonic()
        if self._fd < 0 or now < self._next:
            return
        if self._next:  # most programs are gone before the first time
            for each in keeper.descendants(pid):
                self.note(each)
        self._next = now + _NOTE_EVERY

    def __exit__(self, *exception: object) -> None:
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)


def end_orphans(path: str, session_id: str) -> list[str]:
    """Ends what a run that was killed together with its keeper left behind; tells the names.

    A process counts when its number and its start stand in the file, or when its environment names the session;
    and all its descendants with it.
    """
    noted = _noted(path)
    spared = _ourselves()

    def find() -> dict[int, str]:
        known = [pid for pid, start in noted.items() if start_time_of(pid) == start]
        roots = {*known, *keeper.marked(SESSION, session_id)} - spared
        found = {pid: name for pid in roots if (name := keeper.name_of(pid))}
        for pid in roots:
            found.update(keeper.descendants(pid))
        return found

    ended = _kill_until_none(find, patience=5.0)
    if noted:
        os.close(files.open_here(path, os.O_WRONLY | os.O_TRUNC))
    return sorted(ended.values())


def _noted(path: str) -> dict[int, str]:
    """What the file says. Whatever is no line of ours is nobody: a power cut may have left anything there."""
    try:
        fd = files.open_here(path)
    except FileNotFoundError:
        return {}
    with io.FileIO(fd, "rb") as file:
        lines = [line.split(" ") for line in file.readall().decode("utf-8", "replace").splitlines()]
    return {int(line[0]): line[1] for line in lines if len(line) == 2 and line[0].isdecimal() and len(line[0]) < 10}


def _ourselves() -> set[int]:
    """This process and its ancestors."""
    pid, found = os.getpid(), set[int]()
    while pid > 0 and pid not in found:
        found.add(pid)
        pid = keeper.parent_of(pid)
    return found


def _kill_until_none(find: Callable[[], dict[int, str]], patience: float) -> dict[int, str]:
    """Kills all that can be found, again and again, for so many seconds; returns their names."""
    ended: dict[int, str] = {}
    until = time.monotonic() + patience
    while (found := find()) and time.monotonic() < until:
        ended.update(found)
        keeper.kill_all(find)
        time.sleep(0.005)
    return ended


# --- orphans of a keeper that was killed ------------------------------------------------------------


class _Adoption:
    """Orphans come to us while programs run; at other times we want nobody else's."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.keepers: set[int] = set()
        self._users = 0
        self._before = False

    def __enter__(self) -> None:
        with self.lock:
            if self._users == 0:
                self._before = keeper.adopt_orphans(True)
            self._users += 1

    def __exit__(self, *exception: object) -> None:
        with self.lock:
            self._users -= 1
            if self._users == 0:
                keeper.adopt_orphans(self._before)

    def children(self) -> set[int]:
        """Our children that have another session than we, and are no keepers: orphans, or started by others."""
        if not keeper.LINUX:
            return set()
        with self.lock:
            ours = {os.getsid(0), None}
            children = set(keeper.children_of(os.getpid())) - self.keepers
        return {pid for pid in children if _session_of(pid) not in ours}


_adoption = _Adoption()


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


class _Orphans:
    """Who came to us when a keeper died: children that we did not have before it began."""

    def __init__(self, keeper_pid: int) -> None:
        self._keeper = keeper_pid
        self._known = _adoption.children()
        self.codes: dict[int, int] = {}

    def end(self) -> dict[int, str]:
        return _kill_until_none(self.find, patience=1.0)

    def find(self) -> dict[int, str]:
        found = {} if keeper.LINUX else keeper.descendants(self._keeper)
        for pid in _adoption.children() - self._known:
            if not self._reaped(pid):
                found[pid] = keeper.name_of(pid) or str(pid)
                found.update(keeper.descendants(pid))
        return found

    def _reaped(self, pid: int) -> bool:
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return True
        if done:
            self.codes[pid] = os.waitstatus_to_exitcode(status)
        return bool(done)


# --- running ----------------------------------------------------------------------------------------


class _Link:
    """A keeper that is up, and our end of its socket."""

    def __init__(self, session: str | None) -> None:
        self.line, theirs = socket.socketpair()
        self.line.settimeout(_ANSWER)
        isolated = ["-I", "-S"] if keeper.LINUX else ["-I"]
        command = [sys.executable, *isolated, keeper.__file__, str(theirs.fileno()), *_extra_paths()]
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
            _adoption.keepers.add(self.process.pid)
        self.start = start_time_of(self.process.pid)

    def say(self, message: bytes, fds: Sequence[int] = ()) -> None:
        try:
            sent = socket.send_fds(self.line, [message], fds)
            self.line.sendall(message[sent:])
        except OSError:
            self.process.kill()  # gone already, or stuck with half a message: whoever listens sees it end

    def close(self) -> None:
        """Lets the keeper kill whatever it runs, and go. If we are interrupted here, it does that all the same."""
        self.line.close()
        try:
            self.process.wait(_SLACK)
        except subprocess.TimeoutExpired:
            self.kill()
        _adoption.keepers.discard(self.process.pid)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()  # from then on its orphans are ours


def _extra_paths() -> list[str]:
    """Where the keeper finds psutil, if it needs that: isolated as it is, it does not look everywhere."""
    if keeper.LINUX:
        return []
    import psutil

    return [os.path.dirname(os.path.dirname(psutil.__file__))]


class _Limits(Struct, frozen=True):
    wall: float
    silence: float
    grace: float
    stop: Callable[[], bool]


class _Run:
    """One program, from its start to its end."""

    def __init__(self, link: _Link, output: _Output, limits: _Limits, record: _Record) -> None:
        self._link = link
        self._output = output
        self._limits = limits
        self._record = record
        self._orphans = _Orphans(link.process.pid)
        self._began = time.monotonic()
        self._main = 0
        self._asked: Why | None = None
        self._overdue = 0.0
        record.note(link.process.pid, link.start)
        output.listen_to(link.line)

    def start(self, request: bytes, stdin: str | None) -> None:
        with open(stdin or os.devnull, "rb", buffering=0) as file:
            fds = [each.fileno() for each in (file, *self._output.theirs())]
            self._link.say(request, fds)
        for each in self._output.theirs():
            each.close()

    def follow(self) -> Generator[bytes, None, Ended]:
        ended: Ended | None = None
        while ended is None:
            if (yield from self._output.turn()):
                ended = self._hear()
            elif self._asked is None:
                self._ask()
            elif time.monotonic() > self._overdue:
                ended = self._lost()
            self._record.note_below(self._link.process.pid)
        yield from self._output.rest()
        if ended.why == "exit" and self._output.trouble:
            return replace(ended, why=self._output.trouble)
        return ended

    def _hear(self) -> Ended | None:
        message = keeper.receive(self._link.line)
        if message is None:
            return self._lost()
        kind, *fields = [os.fsdecode(field) for field in message[0]]
        if kind == "started":
            self._main = int(fields[0])
            self._record.note(self._main)
            return None
        if kind == "failed":
            return self._ended(_NOT_STARTED, "not-started", detail=": ".join(fields))
        if fields[1]:
            self._link.close()  # it could not end everybody, and goes
        return self._ended(int(fields[0]), self._asked or "exit", tuple(fields[2:]), fields[1])

    def _ask(self) -> None:
        self._asked = self._reason()
        if self._asked is not None:
            self._link.say(keeper.pack(b"end", str(self._limits.grace).encode()))
            self._overdue = time.monotonic() + self._limits.grace + _SLACK

    def _reason(self) -> Why | None:
        now = time.monotonic()
        if self._output.trouble:
            return self._output.trouble
        if self._limits.stop():
            return "stopped"
        if 0 < self._limits.wall < now - self._began:
            return "wall-clock"
        # Whoever reads what we yield may take his time: that is no silence, if more is waiting then.
        if self._output.quiet and 0 < self._limits.silence < now - self._output.heard:
            return "silence"
        return None

    def _lost(self) -> Ended:
        """The keeper was killed, or does not answer: we do its work."""
        self._link.kill()
        left = self.end_orphans()
        left.pop(self._main, None)
        rest = ", ".join(self._orphans.find().values())
        detail = f"could not be ended: {rest}" if rest else ""
        code = self._orphans.codes.get(self._main, -signal.SIGKILL)
        return self._ended(code, self._asked or "keeper-lost", tuple(left.values()), detail)

    def end_orphans(self) -> dict[int, str]:
        return self._orphans.end()

    def _ended(self, code: int, why: Why, left: tuple[str, ...] = (), detail: str = "") -> Ended:
        return Ended(exit_code=code, why=why, left=left, detail=detail, seconds=time.monotonic() - self._began)


class Keeper:
    """Runs programs, one at a time, and leaves nothing of them behind.

    `record` is the path of the file for `end_orphans`: one for each keeper.
    """

    def __init__(self, record: str | None = None) -> None:
        self._record = record
        self._link: _Link | None = None
        self._busy = False

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the keeper, and all that it runs, at once."""
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
    ) -> Generator[bytes, None, Ended]:
        """Runs a program; yields its standard output as it comes, and returns how it ended.

        `stdin` is the path of what it reads, `into` of its transcript; standard error goes to `<into>.err`. Of the
        times 0 is no limit; `grace` is for ending itself when it is asked to. `limit` is in bytes.
        """
        with ExitStack() as stack:
            try:
                request = _request(argv, cwd, env)
                output = _Output(stack, into, secrets, limit)
                record = stack.enter_context(_Record(self._record))
            except ValueError as error:
                return Ended(exit_code=_NOT_STARTED, why="not-started", detail=str(error), seconds=0.0)
            except OSError as error:
                if not is_no_room(error):
                    raise
                return Ended(exit_code=_NOT_STARTED, why="no-room", detail=str(error), seconds=0.0)
            stack.enter_context(self._alone())
            run = _Run(self._linked(env.get(SESSION)), output, _Limits(wall, silence, grace, stop), record)
            try:
                run.start(request, stdin)
                return (yield from run.follow())
            except BaseException:
                self.close()
                run.end_orphans()
                raise

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._busy:
            raise RuntimeError("a keeper runs one program at a time")
        self._busy = True
        try:
            with _adoption:
                yield
        finally:
            self._busy = False

    def _linked(self, session: str | None) -> _Link:
        if self._link is not None and self._link.process.poll() is not None:
            self.close()
        if self._link is None:
            self._link = _Link(session)
        return self._link


def _request(argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> bytes:
    """What the keeper is told; ValueError for what no program can be given."""
    texts = [cwd, *argv, *env, *env.values()]
    if not argv or not argv[0] or any("\0" in text for text in texts):
        raise ValueError("a program, its folder or its environment is empty or has a zero byte in it")
    if any(not name or "=" in name for name in env):
        raise ValueError("the name of an environment variable is empty or has a = in it")
    variables = [f"{name}={value}" for name, value in env.items()]
    fields = ["start", cwd, str(len(argv)), *argv, *variables]
    return keeper.pack(*map(os.fsencode, fields))
