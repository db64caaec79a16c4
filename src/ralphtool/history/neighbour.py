"""Other loops have their own `.ralph/progress.json`: how to distinguish it from ours, and where ours is then."""

from __future__ import annotations

import os

from ralphtool.core import files, layout

_OURS = {"version", "entries"}  # a document with neither key is not ours
_HEAD = 64  # bytes


def find_path(root: str) -> str:
    """The path of the history, even if it does not exist yet. Raises OSError or UnsafePath for an unreadable file."""
    path = layout.history(root)
    return layout.history_apart(root) if is_foreign_file(path) else path


def is_foreign_file(path: str) -> bool:
    try:
        fd = files.open_in_project(path)
    except FileNotFoundError:
        return False
    try:
        return not _begins_like_ours(os.pread(fd, _HEAD, 0)) and is_foreign(files.read_fd(fd))
    finally:
        os.close(fd)


def _begins_like_ours(data: bytes) -> bool:
    """Whether its first key is one of ours, as in every document that we wrote. The cost is the same for any size."""
    before, _, rest = data[:_HEAD].partition(b'"')
    return before.strip() == b"{" and rest.partition(b'"')[0].decode("utf-8", "replace") in _OURS


def is_foreign(data: bytes) -> bool:
    """Whether this is another program's document. An empty file, or one that is not JSON, may be ours and damaged."""
    if _begins_like_ours(data):
        return False
    import json  # slow to import, and not needed if the history is ours or does not exist yet

    try:
        found = json.loads(data.removeprefix(b"\xef\xbb\xbf"))
    except (ValueError, RecursionError):
        return False
    return isinstance(found, list) or (isinstance(found, dict) and not _OURS & found.keys())
