"""Caches what was built from files until one of them changes.

`ralphtool list` reads each change separately. If all of them are in the same files, those are read only once.
"""

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    Made = TypeVar("Made")
    Stamp = tuple[int, int, int]

_FRESH = 1_000_000_000  # nanoseconds; a newer file can change again with the same mtime
_kept: "dict[str, tuple[object, object]]" = {}


def fetch(key: str, stamps: "dict[str, Stamp | None]", build: "Callable[[], Made]") -> "Made":
    """The last result of `build`, or a new one if one of these files has changed."""
    known = _kept.get(key)
    if known and known[0] == stamps:
        return known[1]  # type: ignore[return-value]
    made = build()
    if all(stamp is None or stamp[0] < time.time_ns() - _FRESH for stamp in stamps.values()):
        _kept[key] = (stamps, made)
    else:
        _kept.pop(key, None)
    return made


def peek(key: str) -> object:
    """The cached value, whether or not it is still valid."""
    return _kept.get(key, (None, None))[1]


def read_stamp(file: "str | os.DirEntry[str]") -> "Stamp | None":
    """Values that change when a file does; None if there is no file."""
    try:
        info = os.stat(file) if isinstance(file, str) else file.stat()
    except OSError:
        return None
    return info.st_mtime_ns, info.st_size, info.st_ino
