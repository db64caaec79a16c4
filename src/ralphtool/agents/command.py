"""Any program: it gets the prompt on standard input, and its output is its final message.

If it fails, the last line that it printed says why: on standard error, or on standard output if that is empty.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ralphtool.agents import TRANSIENT, Credentials, End, Event, Job, Output, Start, Traits, describe_exit, read_list
from ralphtool.agents.program import KEYS
from ralphtool.core import programs
from ralphtool.errors import InvalidValue, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TAIL = 64 << 10  # bytes: enough for a promise, and for people
_SHORT_TAIL = 4 << 10  # bytes of standard error: its last line
_PAUSE = 0.2  # seconds between two events with output
_SELF_MADE = ("network",)  # what the tests that an agent runs also print, so its output does not show whose it was


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
        self._errors = b""
        self._shown = 0.0

    def feed(self, chunk: bytes) -> Iterable[Output]:
        self._kept = (self._kept + chunk)[-_TAIL:] if len(chunk) < _TAIL else chunk[-_TAIL:]
        now = time.monotonic()
        if now - self._shown < _PAUSE:
            return ()
        self._shown = now
        return [Output(line)] if (line := _find_last_line(self._kept)) else ()

    def feed_errors(self, chunk: bytes) -> Iterable[Event]:
        self._errors = (self._errors + chunk[-_SHORT_TAIL:])[-_SHORT_TAIL:]
        return ()

    def rest(self) -> Iterable[Event]:
        """A limit or a missing login, which counts only if the program fails, too."""
        from ralphtool.agents import failures  # its patterns would delay the first event of every run

        said = failures.failure(self._complaint())
        if said.trouble not in TRANSIENT or (said.trouble in _SELF_MADE and not _find_last_line(self._errors)):
            return ()
        return [said]

    def end(self, exit_code: int) -> End:
        message, complaint = self._kept.decode("utf-8", "replace"), self._complaint()
        why = f": {complaint}" if exit_code and complaint else ""
        return End(exit_code == 0, message, f"{describe_exit(exit_code)}{why}")

    def _complaint(self) -> str:
        line = _find_last_line(self._errors) or _find_last_line(self._kept)
        # The reason in a promise is about the story, as in "BLOCKED:…: the API key is missing".
        return "" if line.endswith("</promise>") else line


def _find_last_line(data: bytes) -> str:
    line = data[-1000:].rstrip().rpartition(b"\n")[2]
    return line.decode("utf-8", "replace")[-200:]
