"""Copies a program's output from its pipes to files, redacted, in bounded memory."""

from __future__ import annotations

import fcntl
import io
import os
import re
import select
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Literal

from ralphtool.core import files
from ralphtool.core.disk import is_disk_full

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Generator, Iterator, Sequence

REDACTED = b"[redacted]"
_CHUNK = 1 << 20
_TICK = 0.1  # seconds between two checks of the time limits
_SETPIPE_SZ = getattr(fcntl, "F_SETPIPE_SZ", None)


class Redactor:
    """Replaces secrets in a stream, however it is split into pieces."""

    def __init__(self, secrets: Sequence[str]) -> None:
        # Of two that begin the same, the longer one counts.
        found = {secret.encode("utf-8", "surrogateescape") for secret in secrets if secret}
        self._secrets = sorted(found, key=len, reverse=True)
        self._any = re.compile(b"|".join(map(re.escape, self._secrets)))
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """The part of the stream that is certain by now; a possible beginning of a secret is held back."""
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
        # Searching for each one separately is many times faster than for any, and usually there are none.
        return self._any.finditer(data) if any(secret in data for secret in self._secrets) else iter(())

    def _unfinished(self, data: bytes, start: int) -> int:
        """Where the first incomplete secret begins."""
        first = len(data)
        for secret in self._secrets:
            at = data.find(secret[:1], max(start, len(data) - len(secret) + 1))
            while 0 <= at < first:
                if secret.startswith(data[at:]):
                    first = at
                at = data.find(secret[:1], at + 1)
        return first


class StderrChunk(bytes):
    """A piece of standard error, among pieces of standard output."""


class _Stream:
    """One of a program's two outputs: from a pipe, redacted, to a file."""

    def __init__(self, stack: ExitStack, path: str, secrets: Sequence[str]) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        self._file = stack.enter_context(io.FileIO(files.open_in_project(path, flags), "wb"))
        ours, theirs = os.pipe()
        self.pipe = stack.enter_context(io.FileIO(ours, "rb"))
        self.theirs = stack.enter_context(io.FileIO(theirs, "wb"))
        os.set_blocking(ours, False)
        if _SETPIPE_SZ is not None:
            with suppress(PermissionError):  # a user's pipe memory is limited
                fcntl.fcntl(ours, _SETPIPE_SZ, _CHUNK)
        self._redactor = Redactor(secrets)

    def read(self) -> bytes | None:
        """The available data; empty at the end, None if there is nothing yet."""
        return self.pipe.read(_CHUNK)

    def write(self, data: bytes) -> bytes:
        return self._write(self._redactor.feed(data))

    def finish(self) -> bytes:
        return self._write(self._redactor.rest())

    def _write(self, told: bytes) -> bytes:
        if told:
            files.write_fd(self._file.fileno(), told)
        return told


class ProgramOutput:
    """Both outputs of a program, together with the supervisor's socket."""

    def __init__(
        self, stack: ExitStack, into: str, secrets: Sequence[str], limit: int | None, *, complaints: bool = False
    ) -> None:
        self._yields_stderr = complaints
        self._out = _Stream(stack, into, secrets)
        self._err = _Stream(stack, f"{into}.err", secrets)
        self._open = {stream.pipe.fileno(): stream for stream in (self._out, self._err)}
        self._room = limit
        self._poll = select.poll()
        for fd in self._open:
            self._poll.register(fd, select.POLLIN)
        self.trouble: Literal["too-much", "no-room"] | None = None
        self.heard = time.monotonic()
        self.quiet = True  # nothing had arrived at the last look

    def theirs(self) -> list[io.FileIO]:
        return [self._out.theirs, self._err.theirs]

    def listen_to(self, line: socket.socket) -> None:
        self._line = line.fileno()
        self._poll.register(line, select.POLLIN)

    def turn(self) -> Generator[bytes, None, bool]:
        """Waits a little, and reads what has arrived; returns whether the supervisor has sent something."""
        spoke = False
        self.quiet = True
        for fd, _ in self._poll.poll(_TICK * 1000):
            spoke = spoke or fd == self._line
            if (stream := self._open.get(fd)) and (data := self._take(stream)):
                yield data
        return spoke

    def rest(self) -> Generator[bytes, None, None]:
        """What is still in the pipes. The program's processes are gone; any other writer is not waited for."""
        for stream in list(self._open.values()):
            for _ in range(4):
                if data := self._take(stream):
                    yield data
        for stream in (self._out, self._err):
            data = b"" if self.trouble == "no-room" else self._write_guarded(stream.finish)
            if told := self._filter_for_reader(stream, data):
                yield told

    def _filter_for_reader(self, stream: _Stream, told: bytes) -> bytes:
        if stream is self._out:
            return told
        return StderrChunk(told) if self._yields_stderr else b""

    def _take(self, stream: _Stream) -> bytes:
        """Reads and keeps a piece; returns the part that the reader gets."""
        if stream.pipe.fileno() not in self._open or (data := stream.read()) is None:
            return b""
        self.heard, self.quiet = time.monotonic(), False
        if not data:
            self._close(stream)
        elif self.trouble is None:
            return self._filter_for_reader(stream, self._keep(stream, data))
        return b""

    def _keep(self, stream: _Stream, data: bytes) -> bytes:
        over = self._room is not None and len(data) > self._room
        if self._room is not None:
            data = data[: self._room]
            self._room -= len(data)
        told = self._write_guarded(lambda: stream.write(data))
        if over:
            self.trouble = self.trouble or "too-much"
        return told

    def _write_guarded(self, write: Callable[[], bytes]) -> bytes:
        try:
            return write()
        except OSError as error:
            if not is_disk_full(error):
                raise
        self.trouble = "no-room"
        for stream in list(self._open.values()):
            self._close(stream)
        return b""

    def _close(self, stream: _Stream) -> None:
        self._poll.unregister(stream.pipe)
        del self._open[stream.pipe.fileno()]
