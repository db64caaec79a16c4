"""Any program: it gets the prompt on standard input, and its output is its final message."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ralphtool.agents import Credentials, End, Event, Job, Output, Start, Traits, read_list
from ralphtool.agents.program import KEYS
from ralphtool.core import programs
from ralphtool.errors import InvalidValue, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TAIL = 64 << 10  # bytes: enough for a promise, and for people
_PAUSE = 0.2  # seconds between two events with output


class Command:
    # It may be a wrapper around any of the others.
    traits = Traits(
        example='command = ["my-agent", "--headless"]',
        credentials=Credentials(
            variables=(*KEYS, "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CODEX_API_KEY"),
        ),
    )

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self.name = name
        self.argv = (*read_list(options, "command"), *read_list(options, "args"))
        self._env = dict(options.get("env") or {})

    def check(self) -> None:
        if not self.argv:
            raise InvalidValue(f'the agent {self.name} has no command: give one, as in --agent-command "my-agent"')
        if programs.find(self.argv[0]) is None:
            raise InvalidValue(f"the program {shorten(self.argv[0])} was not found: install it, or correct its name")

    def start(self, job: Job) -> Start:
        return Start(argv=self.argv, stdin=job.prompt, env=self._env)

    def reader(self, job: Job) -> TailReader:
        return TailReader()


class TailReader:
    """Keeps the end of the output, and shows its last line now and then."""

    is_over = False  # unknown until it exits

    def __init__(self) -> None:
        self._kept = b""
        self._shown = 0.0

    def feed(self, chunk: bytes) -> Iterable[Output]:
        self._kept = (self._kept + chunk)[-_TAIL:] if len(chunk) < _TAIL else chunk[-_TAIL:]
        now = time.monotonic()
        if now - self._shown < _PAUSE:
            return ()
        self._shown = now
        return [Output(line)] if (line := _find_last_line(self._kept)) else ()

    def feed_errors(self, chunk: bytes) -> Iterable[Event]:
        return ()

    def rest(self) -> Iterable[Event]:
        return ()

    def end(self, exit_code: int) -> End:
        message = self._kept.decode("utf-8", "replace")
        ending = f"exit status {exit_code}" if exit_code >= 0 else f"ended by signal {-exit_code}"
        return End(exit_code == 0, message, ending)


def _find_last_line(data: bytes) -> str:
    line = data[-1000:].rstrip().rpartition(b"\n")[2]
    return line.decode("utf-8", "replace")[-200:]
