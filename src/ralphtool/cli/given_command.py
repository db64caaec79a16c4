"""The agent that a command line names with --agent-command."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from ralphtool import agents
from ralphtool.core.text import make_printable
from ralphtool.errors import UsageError
from ralphtool.sandbox import beneath
from ralphtool.workspace.git import Repository

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.agents import Runner


def make_runner(command: str | None) -> list[Runner]:
    """The agent, if one is given."""
    return [] if command is None else [agents.make("command", {"command": split(command)})]


def split(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--agent-command: {error}: fix the quotes") from None
    if not words:
        raise UsageError('--agent-command is empty: give a program, as in --agent-command "my-agent"')
    return words


def locate(command: str, root: str) -> str:
    """Paths in a command are meant from the folder where it was typed; the agent starts in the project's folder."""
    here = os.path.relpath(os.path.realpath(os.curdir), os.path.realpath(root))
    program, *rest = split(command)
    words = [_locate_program(program, here), *(_locate_word(word, here) for word in rest)]
    typed = rest if os.sep not in program else [program, *rest]  # any other program is found by the PATH
    found = words[len(words) - len(typed) :]
    _refuse_uncommitted([one for one, word in zip(found, typed, strict=True) if not os.path.isabs(word)], root)
    return shlex.join(words)


def _locate_program(word: str, here: str) -> str:
    """Absolute if it is a path that counts from elsewhere: it is looked for before there is a folder for the agent."""
    if os.sep not in word:
        return word
    return os.path.abspath(word) if here != os.curdir and os.path.exists(word) else _locate_word(word, here)


def _locate_word(word: str, here: str) -> str:
    is_path = not os.path.isabs(word) and os.path.exists(word) and (os.sep in word or os.path.isfile(word))
    path = os.path.normpath(os.path.join(here, word))
    if is_path and path.split(os.sep)[0] == os.pardir:
        return os.path.abspath(word)
    return os.path.join(os.curdir, path) if is_path and here != os.curdir else word


def _refuse_uncommitted(words: Sequence[str], root: str) -> None:
    """The agent works on what is committed, so it would not find them."""
    paths = [path for path in (os.path.join(os.path.realpath(root), word) for word in words) if os.path.isfile(path)]
    paths = [path for path in paths if beneath.is_below(os.path.realpath(path), os.path.realpath(root))]
    repository = Repository.find(root) if paths else None
    if repository is None:
        return
    options = ("-z", "--others", "--exclude-standard", "--full-name")
    unknown = repository.list_items("ls-files", *options, "--", *paths, own_index=False)
    if unknown:
        raise UsageError(
            f"{make_printable(unknown[0])}, which --agent-command names, is not committed, and the agent works on what "
            "is committed: commit it, or keep it outside the project"
        )
