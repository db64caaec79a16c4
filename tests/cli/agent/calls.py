"""Calls of `ralphtool agent` that several tests make, and changes locked by other sessions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from patience import PATIENCE
from project import COMMAND, Ralph

# Locks a change as `ralphtool run` does, until its stdin is closed.
HOLD = """
import sys
from ralphtool import specs
from ralphtool.core import lifecycle, locks
root, change, session_id = sys.argv[1:]
spec = specs.open(root, change)
lifecycle.begin(root, session_id, change, spec.ref, owner=locks.describe_process())
print("held", flush=True)
sys.stdin.read()
"""


def ok(ralph: Ralph, *arguments: str, **more: Any) -> dict[str, Any]:
    """A call that must succeed."""
    return ralph.agent(*arguments, **more).json


def init(ralph: Ralph, change: str = "add-login", session: str = "s1") -> dict[str, Any]:
    return ok(ralph, "session", "init", "--change", change, session=session)


def start_owner(ralph: Ralph, change: str, session: str) -> subprocess.Popen[bytes]:
    owner = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(ralph.root), change, session],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=ralph.env,
        cwd=ralph.root,
    )
    assert owner.stdout
    assert owner.stdout.readline() == b"held\n"
    return owner


def finish(owner: subprocess.Popen[bytes]) -> None:
    owner.kill()
    owner.communicate(timeout=PATIENCE)


@contextmanager
def held_by_a_run(ralph: Ralph, change: str = "add-login", session: str = "s1") -> Iterator[subprocess.Popen[bytes]]:
    """During the block, a live process locks the change as `ralphtool run` does."""
    owner = start_owner(ralph, change, session)
    try:
        yield owner
    finally:
        finish(owner)


def record_one_of_each(ralph: Ralph, session: str = "s1") -> None:
    """Fills all four buffers of a session."""
    ok(ralph, "session", "next-story", session=session)
    ok(ralph, "learn", f"learnt by {session}", session=session)
    ok(ralph, "pattern", f"Pattern of {session}", "how", session=session)
    ok(ralph, "observe", "finding", f"seen by {session}", session=session)
    ok(ralph, "task", "done", "1.1", session=session)


def refuse(ralph: Ralph, *arguments: str, **more: Any) -> dict[str, Any]:
    """A call that must fail and change nothing."""
    before = ralph.snapshot()
    error = ralph.agent(*arguments, **more).error
    assert ralph.snapshot() == before
    return error


def start_agent(ralph: Ralph, session: str, *arguments: str, cwd: Path | None = None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [COMMAND, "agent", *arguments],
        env={**ralph.env, "RALPH_SESSION": session},
        cwd=cwd or ralph.root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
