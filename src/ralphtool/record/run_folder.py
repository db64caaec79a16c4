"""The folder of a run's records, and its name."""

from __future__ import annotations

import os
import time

from ralphtool.core import files, layout


def build_id(change: str) -> str:
    return f"{change[:90]}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.urandom(2).hex()}"


def make_folder(root: str, run: str) -> str:
    for parent in (layout.runs(root), layout.change_states(root)):
        files.ensure_folder(parent)
        ignore = os.path.join(parent, ".gitignore")
        if not os.path.lexists(ignore):
            files.create(ignore, b"*\n", 0o644)
    folder = layout.run(root, run)
    files.ensure_folder(folder)
    return folder
