"""What was made of files, kept for as long as they stay as they are.

`ralphtool list` asks for each change by itself. Where all of them are in the same files, those are read once.
"""

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    Made = TypeVar("Made")
    Stamp = tuple[int, int, int]

_FRESH = 1_000_000_000  # nanoseconds; a file so new can change again without a trace in its times
_kept: "dict[str, tuple[object, object]]" = {}


def fetch(key: str, stamps: "dict[str, Stamp | None]", build: "Callable[[], Made]") -> "Made":
    """What `build` made of these files the last time, or makes of them now if one of them has changed."""
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
    """What is kept, whether it still holds or not."""
    return _kept.get(key, (None, None))[1]


def read_stamp(file: "str | os.DirEntry[str]") -> "Stamp | None":
    """What changes when a file does; None if there is none."""
    try:
        info = os.stat(file) if isinstance(file, str) else file.stat()
    except OSError:
        return None
    return info.st_mtime_ns, info.st_size, info.st_ino
