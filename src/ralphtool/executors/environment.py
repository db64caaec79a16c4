"""The environment of an agent: `ralphtool` on its PATH, and files without secrets."""

from __future__ import annotations

import os
import shutil

from ralphtool.core import files
from ralphtool.executors import own_command
from ralphtool.executors.transcript import REDACTED
from ralphtool.record import trace_ids

_LONGEST_FILE = 128 << 20  # bytes
# Only a working agent gets these: neither gates nor a read-only agent belong to a session.
HIDDEN_VARIABLES = (
    *("RALPH_SESSION", "RALPH_STORY", "RALPH_TOKEN", "RALPH_ATTEMPT", "RALPH_TASK", "RALPH_WORKSPACE", "RALPH_DRAFT"),
    "TEMPORAL_API_KEY",  # it allows sending work to every worker
)


def check_session_id(session_id: str) -> str:
    """The session id for a read-only agent."""
    return f"{session_id}-check"


def build_check_variables(session_id: str, run: str, iteration: int) -> dict[str, str]:
    """The variables of a read-only agent: the second agent of its iteration."""
    traceparent = trace_ids.build_traceparent(run or session_id, iteration, 1)
    return {"RALPH_SESSION": check_session_id(session_id), "TRACEPARENT": traceparent}


def build_path(run_folder: str) -> str:
    """The PATH of an agent. If `ralphtool` is not on it already, a folder with only that command is added, so that an
    agent gets no other program of this installation."""
    script, path = own_command.find_script(), os.environ.get("PATH", os.defpath)
    found = shutil.which("ralphtool", path=path)
    if found and os.path.realpath(found) == os.path.realpath(script) and own_command.can_start(script):
        return path
    return f"{_make_command_folder(run_folder, script)}{os.pathsep}{path}"


def _make_command_folder(run_folder: str, script: str) -> str:
    """Checked for every iteration, and created anew if it was changed: agents can write there."""
    folder = os.path.join(run_folder, "bin")
    target = os.path.join(folder, "ralphtool")
    if os.path.islink(target) and os.readlink(target) == script and os.listdir(folder) == ["ralphtool"]:
        return folder
    files.clear(folder)
    os.makedirs(folder)
    if own_command.can_start(script):
        os.symlink(script, target)
    else:
        files.create(target, own_command.build_startable(script), 0o755)
    return folder


def redact(folder: str, hidden: tuple[str, ...]) -> None:
    """Removes secrets from the files that an agent's program writes."""
    for entry in os.scandir(folder) if hidden else ():
        is_plain = entry.is_file(follow_symlinks=False) and entry.stat().st_size <= _LONGEST_FILE
        if is_plain and not entry.name.startswith("transcript.log"):
            data = told = files.read(entry.path)
            for secret in hidden:
                told = told.replace(secret.encode(), REDACTED)
            if told != data:
                files.replace(entry.path, told)
