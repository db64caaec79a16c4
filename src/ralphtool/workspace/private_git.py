"""The git folder of a working tree in a box: a private one, created anew for each attempt.

An agent may commit, stage and switch: that changes HEAD and the index of its working tree, and its objects are in
quarantine. Git outside the box must not see any of that: it would look for objects that the repository lacks.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from ralphtool.core import files
from ralphtool.sandbox import layers
from ralphtool.sandbox.bubblewrap import GitPlace

if TYPE_CHECKING:
    from ralphtool.workspace.git import Repository

_ALSO = ("config.worktree", "info/sparse-checkout")


class PrivateGit:
    """The private git folder, below `store`."""

    def __init__(self, repository: Repository, store: str, top: str) -> None:
        self._repository = repository
        self._folder = os.path.join(store, "git")
        self._objects = os.path.join(store, "objects")
        self._link = os.path.join(store, "git-link")
        self._top = top

    @property
    def place(self) -> GitPlace:
        name = os.path.basename(self._repository.gitdir)
        return GitPlace(
            common=self._repository.common, name=name, own=self._folder, objects=self._objects, link=self._link
        )

    def renew(self, tip: str) -> None:
        """Sets HEAD to a commit, and copies ralphtool's index."""
        layers.make_empty(self._folder)
        texts = {"HEAD": tip, "commondir": "../..", "gitdir": os.path.join(self._top, ".git")}
        for name, text in texts.items():
            _write(os.path.join(self._folder, name), f"{text}\n")
        shutil.copyfile(self._repository.index, os.path.join(self._folder, "index"))
        own = self._repository.gitdir
        shared = [name for name in os.listdir(own) if name.startswith("sharedindex.")]
        for name in (*_ALSO, *shared):
            if os.path.isfile(os.path.join(own, name)):
                os.makedirs(os.path.dirname(os.path.join(self._folder, name)), exist_ok=True)
                shutil.copyfile(os.path.join(own, name), os.path.join(self._folder, name))

    def drop_objects(self) -> None:
        layers.make_empty(self._objects)
        replace_changed(self._link, f"gitdir: {self.place.inside}\n".encode())


def replace_changed(path: str, data: bytes) -> None:
    """Writes a file if its contents differ: this happens before every program, and a synced write takes time."""
    try:
        is_same = files.read(path) == data
    except OSError:
        is_same = False
    if not is_same:
        files.replace(path, data)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
