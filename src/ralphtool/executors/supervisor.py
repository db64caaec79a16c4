"""The supervisor: a small program that runs another one, and leaves none of its processes behind.

`process` starts it with only the standard library, so that it starts quickly, and also imports it, for code that both
need. The supervisor adopts all orphans below it, whatever sessions they created: it is a subreaper. So "no children"
means that no process is left. On systems without subreapers (macOS), a mark in the environment of the programs is used
instead.

The two communicate over a socket. Each message is a length and fields with a zero byte between them, which no
argument, folder or variable can contain:

    start, cwd, number of arguments, arguments…, variables…   and three files      ->
                                                  <-  started, pid    or  failed, why
    end, seconds of grace                                                          ->
                                                  <-  ended, exit code, what went wrong, names of processes left…

When the other end of the socket closes, its process is dead: everything is killed at once.
"""

from __future__ import annotations

import functools
import os
import select
import signal
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable, Collection, Mapping, Sequence

LINUX = sys.platform == "linux"
_TERM_GRACE = 0.5  # seconds for processes that were left behind to end cleanly
_SETTLE = 0.05  # seconds for processes that die together with the program, before they count as left behind
_PATIENCE = 5.0  # seconds before giving up on processes that can't be killed: another user's, or stuck in the kernel
_ROUNDS = 50
_MOST_NAMES = 1000
_MARK = "RALPH_SUPERVISOR"
_IGNORED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGPIPE)
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37


# --- messages ---------------------------------------------------------------------------------------


def pack(*fields: bytes) -> bytes:
    body = b"\0".join(fields)
    return len(body).to_bytes(4, "big") + body


def build_request(argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> bytes:
    """The request to start a program; ValueError for values that no program can get."""
    texts = [cwd, *argv, *env, *env.values()]
    if not argv or not argv[0] or any("\0" in text for text in texts):
        raise ValueError("a program, its folder or its environment is empty or has a zero byte in it")
    if any(not name or "=" in name for name in env):
        raise ValueError("the name of an environment variable is empty or has a = in it")
    variables = [f"{name}={value}" for name, value in env.items()]
    fields = ["start", cwd, str(len(argv)), *argv, *variables]
    return pack(*map(os.fsencode, fields))


def receive(line: socket.socket) -> tuple[list[bytes], list[int]] | None:
    """The next message, and the files that came with it; None if the other end is closed."""
    try:
        head, fds, _, _ = socket.recv_fds(line, 4, 3, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
        for fd in fds:
            os.set_inheritable(fd, False)
        head += _receive_exactly(line, 4 - len(head))
        return _receive_exactly(line, int.from_bytes(head, "big")).split(b"\0"), fds
    except OSError:
        return None  # the other side was killed, perhaps in the middle of a message


def _receive_exactly(line: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = line.recv(size - len(data))
        if not piece:
            raise ConnectionResetError
        data += piece
    return bytes(data)


# --- finding processes ------------------------------------------------------------------------------


def adopt_orphans(yes: bool) -> bool:
    """Sets whether this process adopts the orphans below it; returns the previous setting."""
    if not LINUX:
        return False
    before = _prctl(_PR_GET_CHILD_SUBREAPER)
    if before != yes:
        _prctl(_PR_SET_CHILD_SUBREAPER, yes)
    return before


@functools.cache
def _libc() -> ctypes.CDLL:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: bool = False) -> bool:
    import ctypes

    answer = ctypes.c_int()
    if _libc().prctl(option, int(value) if option == _PR_SET_CHILD_SUBREAPER else ctypes.byref(answer), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "the system gives us no orphans")
    return bool(answer.value)


def find_descendants(root: int) -> dict[int, str]:
    """The ids and names of all living processes below one."""
    if not LINUX:
        return _descendants_without_proc(root)
    children = children_of if os.path.exists("/proc/thread-self/children") else _all_children().get
    found: dict[int, str] = {}
    waiting = [root]
    while waiting:
        for child in children(waiting.pop()) or ():
            name = name_of(child) if child not in found else None
            if name is not None:
                found[child] = name
                waiting.append(child)
    return found


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, _read_file(f"/proc/{pid}/task/{thread}/children").split())
    except (FileNotFoundError, ProcessLookupError):
        pass  # it ended meanwhile: its children have another parent, and are found there next time
    return found


def _all_children() -> dict[int, list[int]]:
    """For systems that don't list a process's children: the children of all processes."""
    found: dict[int, list[int]] = {}
    for pid in list_pids():
        if fields := _read_stat(pid):
            found.setdefault(int(fields[1]), []).append(pid)
    return found


def list_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def parent_of(pid: int) -> int:
    if not LINUX:
        return _parent_without_proc(pid)
    fields = _read_stat(pid)
    return int(fields[1]) if fields else 0


def _parent_without_proc(pid: int) -> int:
    import psutil

    try:
        return psutil.Process(pid).ppid()
    except psutil.Error:
        return 0


def name_of(pid: int) -> str | None:
    """The process's name (never its arguments: they may contain secrets); None if it is dead."""
    if not LINUX:
        return _name_without_proc(pid)
    fields = _read_stat(pid)
    # A process whose first thread has ended looks dead too, except for its number of threads.
    return None if fields is None or (fields[0] in "ZX" and int(fields[17]) <= 1) else fields[-1]


def _name_without_proc(pid: int) -> str | None:
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.name()
    except psutil.NoSuchProcess:
        return None


def _read_stat(pid: int) -> list[str] | None:
    """State, parent, and so on; the name is last."""
    try:
        front, _, rest = _read_file(f"/proc/{pid}/stat").decode(errors="replace").rpartition(")")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return [*rest.split(), front.partition("(")[2]]


def _read_file(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        data = file.read()
        return data or b""


def find_marked(variable: str, value: str) -> list[int]:
    """The processes of the same user that have this in their environment."""
    if not LINUX:
        return _find_marked_without_proc(variable, value)
    mark = f"{variable}={value}".encode()
    return [pid for pid in list_pids() if mark in _read_environment(pid)]


def _read_environment(pid: int) -> list[bytes]:
    try:
        ours = os.stat(f"/proc/{pid}").st_uid == os.geteuid()
        return _read_file(f"/proc/{pid}/environ").split(b"\0") if ours else []
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


def _find_marked_without_proc(variable: str, value: str) -> list[int]:
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            if process.uids().effective == os.geteuid() and process.environ().get(variable) == value:
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue  # gone, or the system gives no information about it
    return found


def _descendants_without_proc(root: int) -> dict[int, str]:
    import psutil

    found = {}
    for top in (root, *find_marked(_MARK, str(root))):
        try:
            process = psutil.Process(top)
            found.update({each.pid: each.name() for each in (process, *process.children(recursive=True))})
        except psutil.Error:
            continue
    found.pop(root, None)
    return found


# --- ending -----------------------------------------------------------------------------------------


def kill_all(find: Callable[[], Collection[int]]) -> None:
    """Kills all processes that `find` returns. They are stopped first: a stopped process starts no new one, and still
    counts towards the user's process limit."""
    stopped: set[int] = set()
    for _ in range(_ROUNDS):
        new = set(find()) - stopped
        if not new:
            break
        for pid in new:
            send(pid, signal.SIGSTOP)
        stopped |= new
    for pid in stopped:
        send(pid, signal.SIGKILL)


def send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # gone, or another user's: the next look shows which


# --- the program itself -----------------------------------------------------------------------------


def spawn(argv: list[bytes], cwd: bytes, env: Mapping[bytes, bytes], fds: Sequence[int]) -> int:
    """Starts a program in a new process session, with three files and nothing else inherited."""
    try:
        os.chdir(cwd)
        return _spawn_first(argv, env, [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(fds)])
    finally:
        os.chdir("/")  # so that the folder can be removed
        for fd in fds:
            os.close(fd)


def _spawn_first(argv: list[bytes], env: Mapping[bytes, bytes], files: list[tuple[int, int, int]]) -> int:
    defaults = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    refused: OSError = FileNotFoundError(2, os.strerror(2), argv[0])
    for path in _find_programs(argv[0], env):
        try:
            return os.posix_spawn(path, argv, env, file_actions=files, setsid=True, setsigmask=(), setsigdef=defaults)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            refused = error
    raise refused


def _find_programs(program: bytes, env: Mapping[bytes, bytes]) -> list[bytes]:
    if b"/" in program:
        return [program]
    folders = env.get(b"PATH", os.fsencode(os.defpath)).split(b":")
    paths = [os.path.join(folder or b".", program) for folder in folders]
    return [path for path in paths if os.path.exists(path)]  # a failed try costs a process


class SupervisorProcess:
    """Runs one program after another, as requested, and ends each with all its descendants."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._woken, bell = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(bell, False)
        signal.set_wakeup_fd(bell, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler, nothing is written to the wakeup pipe
        self._poll = select.poll()
        self._poll.register(line, select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)

    def serve(self) -> None:
        while message := receive(self._line):
            fields, fds = message
            # An `end` that crossed the report of an end has no effect.
            if fields[0] == b"start" and not self._run(fields[1:], fds):
                return  # processes that can't be killed must not disturb the next program

    def _run(self, fields: list[bytes], fds: list[int]) -> bool:
        """Runs a program to its end; returns whether no process is left."""
        count = int(fields[1])
        argv, variables = fields[2 : 2 + count], fields[2 + count :]
        env = dict(variable.split(b"=", 1) for variable in variables)
        if not LINUX:
            env[_MARK.encode()] = str(os.getpid()).encode()
        try:
            self._main = spawn(argv, fields[0], env, fds)
        except OSError as error:
            self._say(b"failed", str(error.strerror), os.fsdecode(error.filename or argv[0]))
            return True
        return self._supervise()

    def _supervise(self) -> bool:
        self._code: int | None = None
        self._childless = False
        self._grace: float | None = None
        self._hurry = False
        self._say(b"started", str(self._main))
        while self._code is None and self._grace is None:
            self._wait_for_event(None)
        names = self._end()
        rest = [] if self._none_left() else [name for name in self._find_descendants().values() if name]
        trouble = f"could not be stopped: {', '.join(rest)}" if rest else ""
        self._say(b"ended", str(-signal.SIGKILL if self._code is None else self._code), trouble, *names[:_MOST_NAMES])
        return not rest

    def _say(self, kind: bytes, *fields: str) -> None:
        try:
            self._line.sendall(pack(kind, *(os.fsencode(field).replace(b"\0", b"") for field in fields)))
        except OSError:
            pass  # the other end is closed: `serve` sees that too

    def _wait_for_event(self, seconds: float | None) -> None:
        """Waits for a message, for the end of a process, or for the timeout."""
        for fd, _ in self._poll.poll(None if seconds is None else seconds * 1000):
            if fd == self._woken:
                os.read(fd, 4096)
            else:
                self._listen()
        self._reap()

    def _listen(self) -> None:
        message = receive(self._line)
        if message is None:
            self._poll.unregister(self._line)
        self._grace = float(message[0][1]) if message else 0.0
        self._hurry = self._grace == 0.0

    def _reap(self) -> None:
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._main:
                    self._code = os.waitstatus_to_exitcode(status)
        except ChildProcessError:
            self._childless = True

    def _find_descendants(self) -> dict[int, str]:
        return find_descendants(os.getpid())

    def _none_left(self) -> bool:
        return self._childless and (LINUX or not self._find_descendants())

    def _end(self) -> list[str]:
        """Ends all processes: asks the program, waits, asks the rest, waits, kills. Returns the names of those left."""
        if self._code is None and self._grace:
            _terminate(-self._main)
            self._wait(self._grace, lambda: self._code is not None)
        self._wait(_SETTLE, self._none_left)
        if self._none_left():
            return []
        left = self._find_descendants()
        if not self._hurry:
            for pid in left:
                _terminate(pid)
            self._wait(_TERM_GRACE, self._none_left)
        left.update(self._kill())
        left.pop(self._main, None)
        return list(left.values())

    def _wait(self, seconds: float, done: Callable[[], bool]) -> None:
        until = time.monotonic() + seconds
        while not done() and not self._hurry and (rest := until - time.monotonic()) > 0:
            self._wait_for_event(rest)

    def _kill(self) -> dict[int, str]:
        until = time.monotonic() + _PATIENCE
        killed: dict[int, str] = {}
        while not self._none_left() and time.monotonic() < until:
            killed.update(self._find_descendants())
            kill_all(self._find_descendants)
            self._wait_for_event(0.01)
        return killed


def _terminate(pid: int) -> None:
    send(pid, signal.SIGTERM)
    send(pid, signal.SIGCONT)  # a stopped process does not handle signals


def main() -> None:
    line = socket.socket(fileno=int(sys.argv[1]))
    line.set_inheritable(False)
    sys.path += sys.argv[2:]  # where psutil is, if needed
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the parent may have blocked the signals that wake this process
    for number in _IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    adopt_orphans(True)
    SupervisorProcess(line).serve()
