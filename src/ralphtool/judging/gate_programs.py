"""Whether the program of a gate is installed, as far as its command shows that."""

from __future__ import annotations

import os
import re
import shlex

from ralphtool.core import programs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_ENVIRONMENTS = (".venv/bin", "venv/bin", "node_modules/.bin")
NOT_STARTED = (126, 127)  # the exit codes of a shell whose command can't be started
_BUILTIN_NAMES = (
    ". : case cd command eval exec exit export for if read set shift source test trap type ulimit umask unset until"
    " wait while"
)
_SHELL_BUILTINS = frozenset(_BUILTIN_NAMES.split())


def find_missing_program(command: str, root: str) -> str | None:
    """The program of a shell command, if it is certainly not installed."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None  # the shell will report what is wrong
    while words and re.fullmatch(r"[A-Za-z_]\w*=.*", words[0], re.DOTALL):
        del words[0]
    if not words or not re.fullmatch(r"[\w./+-]+", words[0]) or words[0] in _SHELL_BUILTINS:
        return None
    there = os.access(os.path.join(root, words[0]), os.X_OK) if "/" in words[0] else programs.find(words[0])
    return None if there else words[0]


def find_in_environment(program: str, root: str) -> str | None:
    """The path of a program that is not on the PATH, in an environment of the project, relative to its root."""
    places = [os.path.join(folder, program) for folder in _ENVIRONMENTS]
    return next((one for one in places if "/" not in program and os.access(os.path.join(root, one), os.X_OK)), None)


def explain_missing(commands: Sequence[str], root: str) -> dict[str, str]:
    """The commands whose programs are certainly not installed here, each with a sentence about that."""
    return {one: explain_unstartable(one, root) for one in commands if find_missing_program(one, root)}


def explain_unstartable(command: str, root: str) -> str:
    """A sentence about a command that can't be started."""
    program = find_missing_program(command, root) or "a program in it"
    if own := find_in_environment(program, root):
        return f"the gate `{command}` can't be started: {program} is not on the PATH; set `{own}` in [verify]"
    why = "does not exist, or is not executable" if "/" in program else "is not installed"
    return f"the gate `{command}` can't be started: {program} {why}"
