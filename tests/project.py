"""A project for one test, with its own temporary directory, and the installed command run in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE
from warm import COMMAND as COMMAND
from warm import Warm, starts_warm

REPOSITORY = Path(__file__).resolve().parent.parent
TESTS = REPOSITORY / "tests"
DATA = TESTS / "data"

TASKS = """\
# Tasks

## 1. Set up

- [ ] 1.1 Make the folder
- [ ] 1.2 Write the file

## 2. Build

- [ ] 2.1 Compile
- [ ] 2.10 Link
"""

SPEC = """\
## ADDED Requirements

### Requirement: Login
Users SHALL be able to log in.

#### Scenario: Good password
- **GIVEN** a known user
- **WHEN** the password is right
- **THEN** the user is in
"""


@cache
def start_warm() -> Warm:
    """One for each test worker, started at its first call."""
    return Warm()


def call(
    arguments: Sequence[str], stdin: bytes, cwd: Path, env: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[bytes]:
    """Runs `ralphtool …` in a separate process, with its modules preloaded where that makes no difference."""
    if starts_warm(arguments, stdin, cwd, env):
        return start_warm().run(arguments, stdin, cwd, env, timeout)
    command = [COMMAND, *arguments]
    return subprocess.run(command, input=stdin, cwd=cwd, env=env, capture_output=True, timeout=timeout)


class Result:
    """How one call of the command ended."""

    def __init__(self, done: subprocess.CompletedProcess[bytes]) -> None:
        self.exit_code = done.returncode
        self.stdout = done.stdout.decode()
        self.stderr = done.stderr.decode()

    @property
    def json(self) -> dict[str, Any]:
        """What a call that succeeded printed: one JSON object, and nothing on stderr."""
        assert self.exit_code == 0, self.stderr
        assert self.stderr == ""
        value = json.loads(self.stdout)
        assert isinstance(value, dict)
        return value

    @property
    def error(self) -> dict[str, Any]:
        """What a call that failed printed: one JSON object on stderr, and nothing on stdout."""
        assert self.exit_code != 0, self.stdout
        assert self.stdout == ""
        value = json.loads(self.stderr)
        assert set(value) == {"success", "error", "code"}
        assert value["success"] is False
        assert value["error"]
        return dict(value)

    @property
    def code(self) -> str:
        return str(self.error["code"])


class Ralph:
    """A project folder, and the real command run in it. Each has its own HOME and TMPDIR."""

    longest = PATIENCE

    def __init__(self, top: Path) -> None:
        self.root = top / "project"
        self.tmp = top / "tmp"
        self.home = top / "home"
        for folder in (self.root, self.tmp, self.home):
            folder.mkdir()
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        self.env = {**kept, "HOME": str(self.home), "TMPDIR": str(self.tmp)}
        self.env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # our own plugins would take half the time of a gate

    def run(
        self, *arguments: str, stdin: bytes = b"", cwd: Path | None = None, session: str | None = None, **env: str
    ) -> Result:
        """Runs `ralphtool …`; keyword arguments in capitals are environment variables."""
        environment = {**self.env, **env}
        if session is not None:
            environment["RALPH_SESSION"] = session
        return Result(call(arguments, stdin, cwd or self.root, environment, self.longest))

    def agent(self, *arguments: str, session: str | None = "s1", **more: Any) -> Result:
        return self.run("agent", *arguments, session=session, **more)

    def begin(self, change: str = "add-login", session: str = "s1") -> Ralph:
        """Starts a session with the first story in scope."""
        assert self.agent("session", "init", "--change", change, session=session).json
        assert self.agent("session", "next-story", session=session).json
        return self

    def write(self, path: str, text: str | bytes) -> Path:
        """Writes a file of the project, byte for byte."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    def read(self, path: str) -> str:
        return (self.root / path).read_bytes().decode()

    def openspec(self, tasks: str | bytes = TASKS, change: str = "add-login") -> Ralph:
        """Creates an OpenSpec change."""
        self.write(f"openspec/changes/{change}/tasks.md", tasks)
        self.write(f"openspec/changes/{change}/proposal.md", "# Why\nUsers want in.\n")
        self.write(f"openspec/changes/{change}/specs/auth/spec.md", SPEC)
        return self

    @property
    def tasks_file(self) -> Path:
        return self.root / "openspec/changes/add-login/tasks.md"

    @property
    def design_file(self) -> Path:
        return self.root / "openspec/changes/add-login/design.md"

    @property
    def lock_file(self) -> Path:
        return self.root / ".ralph/locks/add-login.lock"

    def session_file(self, session: str = "s1") -> Path:
        return self.tmp / "ralph/sessions" / f"{session}.json"

    def session(self, session: str = "s1") -> dict[str, Any]:
        value = json.loads(self.session_file(session).read_text())
        assert isinstance(value, dict)
        return value

    def snapshot(self) -> dict[str, bytes | str | None]:
        """Every file, link and folder, byte for byte: to show that nothing changed."""
        seen: dict[str, bytes | str | None] = {}
        for top in (self.root, self.tmp, self.home):
            for path in sorted(top.rglob("*")):
                if path.is_symlink():
                    seen[str(path)] = os.readlink(path)
                else:
                    seen[str(path)] = path.read_bytes() if path.is_file() else None
        return seen


# --- permissions ------------------------------------------------------------------------------------

IS_ROOT = os.geteuid() == 0


def bound_by_permissions() -> list[str]:
    """Put before a command, makes permissions apply to root too."""
    if not IS_ROOT:
        return []
    if not shutil.which("setpriv"):
        pytest.skip("root may write everywhere, and there is no setpriv to give that up")
    return ["setpriv", "--bounding-set=-all"]
