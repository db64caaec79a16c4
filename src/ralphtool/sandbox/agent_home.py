"""The files that an agent's program keeps in the user's home, as a box has them.

The user's own next session reads those files, and runs what they name: hooks, servers, commands. So a box changes a
copy, which is discarded with the attempt. Only the login files are the user's own: a token that was renewed in a copy
would be lost, and the user logged out.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from ralphtool.core import files
from ralphtool.sandbox import layers

if TYPE_CHECKING:
    from collections.abc import Sequence


class AgentHome:
    """The files and folders of the agents of one box."""

    def __init__(self, needs: Sequence[str], logins: Sequence[str], store: str, *, with_overlay: bool) -> None:
        """Without overlays a folder is the user's own: it may be too big to copy for every attempt."""
        self.unreadable = [path for path in dict.fromkeys([*needs, *logins]) if not os.access(path, os.R_OK)]
        needs = [path for path in dict.fromkeys(needs) if path not in self.unreadable]
        logins = [path for path in logins if path not in self.unreadable]
        folders = [path for path in needs if os.path.isdir(path)]
        own = [path for path in needs if os.path.isfile(path) and path not in logins]
        self.layers = layers.build_layers("/", folders, store) if with_overlay else []
        self.copies = [(os.path.join(store, layers.quote(path)), path) for path in own]
        self.write = [*logins, *(() if with_overlay else folders)]
        self.read = [target for folder in folders for target in _list_targets(folder)]

    def renew(self) -> None:
        """Resets everything to the user's version."""
        layers.prepare(self.layers)
        for layer in self.layers:
            layers.reset(layer)
        for copy, path in self.copies:
            files.clear(copy)
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            if os.access(path, os.R_OK):
                shutil.copy2(path, copy)
            else:  # it was removed, or is unreadable; a copy must exist to be mounted
                open(copy, "wb").close()


def _list_targets(folder: str) -> list[str]:
    """The targets of links in a folder: many people keep their settings in a separate repository."""
    links = (entry.path for entry in os.scandir(folder) if entry.is_symlink())
    return [os.path.realpath(link) for link in links if os.path.exists(link)]
