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
    return shlex.join([_locate_program(program, here), *(_locate_word(word, here) for word in rest)])


def _locate_program(word: str, here: str) -> str:
    """Absolute if it is a path that counts from elsewhere: it is looked for before there is a folder for the agent."""
    if os.sep not in word:
        return word  # it is found by the PATH
    return os.path.abspath(word) if here != os.curdir and os.path.exists(word) else _locate_word(word, here)


def _locate_word(word: str, here: str) -> str:
    """A path below the project begins with `./`: a workspace then knows that it is one."""
    is_path = os.path.exists(word) if os.sep in word else "." in word and os.path.isfile(word)
    if os.path.isabs(word) or not is_path:
        return word
    path = os.path.normpath(os.path.join(here, word))
    return os.path.abspath(word) if path.split(os.sep)[0] == os.pardir else os.path.join(os.curdir, path)


def refuse_uncommitted(command: str, root: str) -> None:
    """In the user's own folder, files that are not committed are set aside while the agent works."""
    top = os.path.realpath(root)
    named = [os.path.join(top, word) for word in split(command) if os.sep in word]
    paths = [path for path in named if os.path.isfile(path) and beneath.is_below(os.path.realpath(path), top)]
    repository = Repository.find(root) if paths else None
    if repository is None:
        return
    options = ("-z", "--others", "--exclude-standard", "--full-name")
    unknown = repository.list_items("ls-files", *options, "--", *paths, own_index=False)
    if unknown:
        raise UsageError(
            f"{make_printable(unknown[0])}, which --agent-command names, is not committed: it would be set aside while "
            'the agent works in your folder; commit it, or set [run] workspace = "auto"'
        )
