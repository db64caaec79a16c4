"""What was published to an issue tracker: `.ralph/published/<change>.json`, the commit of each story.

The next run sends each story whose commit is missing there, so an outage or a kill loses nothing.
"""

from __future__ import annotations

import os

import msgspec

from ralphtool import typed
from ralphtool.core import files, layout, project
from ralphtool.errors import CorruptState


def path_of(root: str, change: str) -> str:
    return layout.published(root, project.check_name(change, "a change's name"))


def load(root: str, change: str) -> dict[str, str]:
    path = path_of(root, change)
    try:
        return typed.decode(files.read(path), dict[str, str])
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except msgspec.DecodeError as error:
        raise CorruptState(f"{path} is damaged ({error}): delete it, and the next run sends everything again") from None


def save(root: str, change: str, marks: dict[str, str]) -> None:
    path = path_of(root, change)
    folder = os.path.dirname(path)
    files.ensure_folder(folder)
    ignore = os.path.join(folder, ".gitignore")
    if not os.path.lexists(ignore):
        files.create(ignore, b"*\n", 0o644)
    files.replace(path, msgspec.json.encode(marks))
