"""Connects the loopback of a box to the proxy outside it. A separate program, which runs in the box:

    python -I -S bridge.py SOCKET PORT [HOSTPORT…] -- program arguments…

It listens on the box's loopback, leaves a process that forwards every connection to the proxy's Unix socket, and then
becomes the program. So the program has the same process id, streams, signals and exit status as without a bridge, and
nothing needs to pass them on. On PORT the proxy itself answers. A connection to a HOSTPORT goes to the same port of the
host through the proxy, which may refuse it.

`network` imports it for shared code. Standard library only, and little of that at the start: every program of a run
waits for it.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # `signal` and `socket` take longer to import than all the rest
import _socket
import errno
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

# The names of the proxy's socket and of this compiled program, in the folder that is mounted in the box.
SOCKET, COMPILED = "proxy", "bridge.pyc"
_WAITING = 128  # connections that may wait to be accepted
_BLOCK = 1 << 16
_PAUSE = 1.0  # seconds between two checks of a program, if the system can't watch it
_NOT_FOUND, _NOT_RUNNABLE = 127, 126  # the exit codes of shells
_LONGEST_ANSWER = 4096
_GET_FLAGS, _SET_FLAGS, _IS_UP = 0x8913, 0x8914, 1  # of a network interface, for Linux


# --- listening --------------------------------------------------------------------------------------


def listen(port: int) -> list[_socket.socket]:
    """The sockets that listen on a port of the loopback, also for IPv6 if available."""
    found = [_listen_on(_socket.AF_INET, ("127.0.0.1", port))]
    try:
        found.append(_listen_on(_socket.AF_INET6, ("::1", port)))
    except OSError:
        pass  # there is no IPv6
    return found


def _listen_on(family: int, address: tuple[str, int]) -> _socket.socket:
    made = _socket.socket(family, _socket.SOCK_STREAM)
    made.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    made.bind(address)
    made.listen(_WAITING)
    return made


def bring_loopback_up() -> None:
    """Usually it is already up: the program that creates a box does that."""
    import fcntl

    made = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    try:
        asked = fcntl.ioctl(made.fileno(), _GET_FLAGS, b"lo".ljust(40, b"\0"))
        flags = int.from_bytes(asked[16:18], sys.byteorder)
        if not flags & _IS_UP:
            changed = (flags | _IS_UP).to_bytes(2, sys.byteorder)
            fcntl.ioctl(made.fileno(), _SET_FLAGS, asked[:16] + changed + asked[18:])
    except OSError:
        pass  # not permitted, or there is none: connecting will fail with an error
    finally:
        made.close()


# --- forwarding -------------------------------------------------------------------------------------


def relay(near: socket.socket, far: socket.socket) -> None:
    """Copies both ways until both sides are done. Two threads: a slow reader must not block the other direction."""
    import threading

    back = threading.Thread(target=_copy, args=(far, near), daemon=True)
    back.start()
    _copy(near, far)
    back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    """One direction. Its end is passed on; the other direction ends by itself, and may have more data."""
    import select
    import socket

    waiting = select.poll()
    waiting.register(source, select.POLLIN)
    waiting.register(target, 0)  # reports only that the reader is gone
    try:
        while source.fileno() in dict(waiting.poll()) and (data := source.recv(_BLOCK)):
            target.sendall(data)
    except OSError:
        pass  # one of them is gone
    shut(source, socket.SHUT_RD)
    shut(target, socket.SHUT_WR)


def shut(line: socket.socket, how: int) -> None:
    """Ends a connection, or one direction of it, on which another thread may be waiting."""
    try:
        line.shutdown(how)
    except OSError:
        pass  # it has already ended


def forward(listener: socket.socket, path: str, host_port: int) -> None:
    """Passes every connection on to the proxy, or through it to a port of the host, if one is given."""
    import threading

    while True:
        try:
            near, _ = listener.accept()
        except OSError:
            continue  # already closed
        threading.Thread(target=_forward_one, args=(near, path, host_port), daemon=True).start()


def _forward_one(near: socket.socket, path: str, host_port: int) -> None:
    import socket

    with near, socket.socket(socket.AF_UNIX) as far:
        try:
            far.connect(path)
            if not host_port or _ask_for_host_port(far, host_port):
                relay(near, far)
        except OSError:
            return  # the proxy is gone


def _ask_for_host_port(far: socket.socket, port: int) -> bool:
    """Whether the proxy allows that port of the host."""
    far.sendall(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
    answer = b""
    # One byte at a time: anything after the answer is for the program.
    while not answer.endswith(b"\r\n\r\n") and len(answer) < _LONGEST_ANSWER and (byte := far.recv(1)):
        answer += byte
    return answer.startswith(b"HTTP/1.1 200 ")


# --- the two processes ------------------------------------------------------------------------------


def main() -> None:
    split = sys.argv.index("--")
    path, *ports = sys.argv[1:split]
    bring_loopback_up()
    listeners = [(one, int(port)) for port in dict.fromkeys(ports) for one in listen(int(port))]
    _start_forwarding(path, listeners, int(ports[0]))
    _become(sys.argv[split + 1 :])


def _start_forwarding(path: str, listeners: Sequence[tuple[_socket.socket, int]], own_port: int) -> None:
    """Uses a process that is not a child of the program, because the program may wait for all its children."""
    program = os.getpid()
    if between := os.fork():
        os.waitpid(between, 0)
        return
    os.setsid()  # signals to the program's group must not reach this process
    if os.fork() == 0:
        _detach()
        _serve(path, listeners, own_port, program)
    os._exit(0)


def _detach() -> None:
    """Keeps none of the program's resources."""
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(nothing, fd)


def _serve(path: str, listeners: Sequence[tuple[_socket.socket, int]], own_port: int, program: int) -> None:
    """Serves until the program ends."""
    import socket
    import threading

    for one, port in listeners:
        listener = socket.socket(fileno=one.detach())
        arguments = (listener, path, 0 if port == own_port else port)
        threading.Thread(target=forward, args=arguments, daemon=True).start()
    _wait_for_end(program)


def _wait_for_end(program: int) -> None:
    import select
    import time

    try:
        select.select([os.pidfd_open(program)], [], [])
        return
    except ProcessLookupError:
        return
    except (AttributeError, OSError):
        pass  # the system does not support it
    while os.path.exists(f"/proc/{program}"):
        time.sleep(_PAUSE)


def _become(argv: list[str]) -> None:
    """Undoes Python's own changes to the process, and runs the program."""
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)
    _restore_locale()
    try:
        _execute(argv)
    except OSError as error:
        os.write(2, os.fsencode(f"{argv[0]}: {error.strerror}\n"))
        is_missing = isinstance(error, FileNotFoundError) or "/" not in argv[0]
        os._exit(_NOT_FOUND if is_missing else _NOT_RUNNABLE)


def _execute(argv: list[str]) -> None:
    try:
        os.execvp(argv[0], argv)  # noqa: S606
    except OSError as error:
        if error.errno != errno.ENOEXEC or "/" not in argv[0]:
            raise
        os.execv("/bin/sh", ["sh", *argv])  # noqa: S606 - a script that does not say what runs it


def _restore_locale() -> None:
    """Python sets a variable if the locale is plain C."""
    if os.environ.get("LC_CTYPE") == "C.UTF-8":
        with open("/proc/self/environ", "rb") as file:
            if b"\0LC_CTYPE=" not in b"\0" + file.read():
                del os.environ["LC_CTYPE"]


if __name__ == "__main__":
    main()
