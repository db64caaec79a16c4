"""The files of a spec: reads and restores them, and checks whether an agent only ticked its tasks in them."""

from __future__ import annotations

import os
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ralphtool import specs
from ralphtool.core import files
from ralphtool.errors import RalphError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ralphtool.specs import Spec


def read_files(spec: Spec) -> dict[str, bytes]:
    """The files of the spec, without its notes file, which does not define any work."""
    notes = f"{spec.change}-learnings.md"
    return {name: data for name, data in _read_files_below(spec.path).items() if os.path.basename(name) != notes}


def _read_files_below(path: str) -> dict[str, bytes]:
    """The files at or below a path, by relative path."""
    if not os.path.isdir(path):
        return {os.path.basename(path): files.read(path)} if os.path.exists(path) else {}
    found = {}
    for folder, _, names in os.walk(path):
        for name in names:
            full = os.path.join(folder, name)
            if os.path.isfile(full):
                found[os.path.relpath(full, path)] = files.read(full)
    return found


def write_files(path: str, contents: Mapping[str, bytes]) -> None:
    """Writes the files of a spec, as `read_files` returned them, to the spec's place."""
    in_folder = os.path.isdir(path) or list(contents) != [os.path.basename(path)]
    for name, data in contents.items():
        place = os.path.join(path, name) if in_folder else path
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.write(data)


def has_only_ticks(root: str, before: Mapping[str, bytes], now: Spec, ticked: Sequence[str]) -> bool:
    """Whether the spec is what its adapter writes for these ticks: a format need not have boxes."""
    with TemporaryDirectory(prefix="ralph-") as folder:
        write_files(os.path.join(folder, os.path.relpath(now.path, root)), before)
        try:
            copy = specs.open(folder, now.change, now.ref)
            for task in ticked:
                copy.tick(task, ticked, proven=False)
            return read_files(copy) == read_files(now)
        except (RalphError, OSError):
            return False
