"""Starts the programs of issue trackers (`gh`, `bd`, `br`), and reads their output.

None of them is trusted: one that hangs is killed, one that prints too much or no JSON is refused, and each error says
what was called and what to do.
"""

import os

from ralphtool.errors import SpecError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

SECONDS = 60.0
MOST_BYTES = 64 * 2**20
_STEP = 0.05
_LONGEST = 300  # characters of a program's error output


def find(name: str) -> str | None:
    """The full path of a program, if it is on the PATH."""
    from shutil import which

    return which(name)


def run(
    command: "Sequence[str]",
    folder: str,
    *,
    given: str = "",
    environment: "Mapping[str, str] | None" = None,
    stop: "Callable[[], bool] | None" = None,
    seconds: float | None = None,
) -> str:
    """The output of a program; SpecError if it failed, was too slow or printed too much."""
    import tempfile

    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as stdin:
        stdin.write(given.encode("utf-8", "replace"))
        stdin.seek(0)
        trouble = _run_to_files(
            command, folder, (stdin, out, err), environment, stop, SECONDS if seconds is None else seconds
        )
        said = _read_text(err, 2**16) or _read_text(out, 2**16)
        if trouble:
            raise SpecError(f"{_name(command)} {trouble}{_add_output(said)}")
        return _decode(out, command)


def _run_to_files(
    command: "Sequence[str]",
    folder: str,
    streams: "tuple[Any, Any, Any]",
    environment: "Mapping[str, str] | None",
    stop: "Callable[[], bool] | None",
    seconds: float,
) -> str:
    """Returns why it failed; empty on success."""
    import subprocess

    quiet = {"NO_COLOR": "1", "GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "BD_NON_INTERACTIVE": "1"}
    try:
        child = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **quiet, **(environment or {})},
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            start_new_session=True,
        )
    except OSError as error:
        return f"can't be started ({error.strerror}): install it, or put it on the PATH"
    trouble = ""
    try:
        trouble = _wait(child, streams[1], stop, seconds)
    finally:
        _end_group(child)
    return trouble or ("" if child.returncode == 0 else f"failed with exit status {child.returncode}")


def _wait(child: "Any", out: "Any", stop: "Callable[[], bool] | None", seconds: float) -> str:
    import subprocess
    import time

    until = time.monotonic() + seconds
    while child.poll() is None:
        if stop is not None and stop():
            return "was stopped, because the run is stopping"
        if os.fstat(out.fileno()).st_size > MOST_BYTES:
            return f"printed more than {MOST_BYTES // 2**20} MB and was stopped"
        if time.monotonic() > until:
            return f"did not respond for {seconds:g} seconds and was stopped: run it by hand to see why"
        try:
            child.wait(_STEP)  # returns earlier if the command ends
        except subprocess.TimeoutExpired:
            pass
    return ""


def _end_group(child: "Any") -> None:
    """Kills the program and every process that is still in its group."""
    import signal

    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    child.wait()


def _read_text(file: "Any", most: int) -> str:
    file.seek(0)
    return str(file.read(most).decode("utf-8", "replace")).strip()


def _decode(out: "Any", command: "Sequence[str]") -> str:
    out.seek(0)
    try:
        return str(out.read(MOST_BYTES).decode("utf-8"))
    except UnicodeDecodeError as error:
        raise SpecError(
            f"{_name(command)} printed bytes that are not UTF-8 (byte {error.start}): update the program"
        ) from None


def _name(command: "Sequence[str]") -> str:
    """A command for people: only its first words, since the rest may be long."""
    return f"`{' '.join([os.path.basename(command[0]), *command[1:3]])}`"


def _add_output(text: str) -> str:
    words = " ".join(" ".join(text.split("\n")[-3:]).split())
    return f": {words[-_LONGEST:]}" if words else ""


# --- JSON -------------------------------------------------------------------------------------------


def parse(text: str, command: "Sequence[str]") -> "Any":
    """The JSON value that a program printed, without bd's envelope."""
    from ralphtool.core import quickjson

    try:
        value = quickjson.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise SpecError(
            f"{_name(command)} did not print JSON ({error}): run it by hand to see why, or update it"
        ) from None
    if isinstance(value, dict) and "schema_version" in value and "data" in value:
        return value["data"]
    return value


def parse_objects(text: str, command: "Sequence[str]") -> "list[dict[str, Any]]":
    """The objects that a program printed: a list of them, or a single one."""
    value = parse(text, command)
    found = value if isinstance(value, list) else [value]
    if not all(isinstance(one, dict) for one in found):
        raise SpecError(f"{_name(command)} printed JSON that is not a list of objects: update the program")
    return found


def parse_lines(text: str, name: str) -> "Iterator[dict[str, Any]]":
    """The objects of JSON Lines; blank lines are skipped."""
    from ralphtool.core import quickjson

    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = quickjson.loads(line)
        except (ValueError, RecursionError) as error:
            raise SpecError(
                f"{name}, line {number}: invalid JSON ({error}): fix it, or export the issues again"
            ) from None
        if not isinstance(value, dict):
            raise SpecError(f"{name}, line {number}: this is not an object: fix it, or export the issues again")
        yield value
