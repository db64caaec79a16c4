"""Whether a test may end differently although nothing was changed: by chance, by the clock, by what another run left.

Such a test may fail without the work and pass with it, and still have nothing to do with it. Its text only raises the
suspicion; what counts is how it ends when it runs again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ralphtool.judging.guard.model import decode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralphtool.judging.guard.model import FileChange

_CHANCE = (
    r"(?:\w+_)?[ds]?rand(?:om|int|range|bytes|n|perm)?\d*(?:_\w+)?|urandom|getrandom|shuffle|choice|secrets|uuid\d?"
    r"|faker|nonce"
)
_CLOCK = (
    r"now|utcnow|today|time_ns|monotonic(?:_ns)?|perf_counter(?:_ns)?|perf_hooks|performance|hrtime|SystemTime"
    r"|Instant|clock_gettime|microtime|sleep|set(?:Timeout|Interval|Immediate)"
)
_ORDER = r"threads?|threading|multiprocessing|fork|goroutine|spawn|getpid|pid|ppid|PYTHONHASHSEED"
_OUTSIDE = r"gettempdir|tmpdir|temp_dir|TempDir|homedir|expanduser|home_dir|sys_get_temp_dir"
_SUSPICIOUS = re.compile(
    rf"\b(?:{_CHANCE}|{_CLOCK}|{_ORDER}|{_OUTSIDE})\b"
    r"|\btime\.time\(|\bnew Date\(\)|\bhash\(|\bid\(|\bgo func\b|\bPath\.home\("
    r"|/(?:tmp|var/tmp|dev/shm|run)\b|/proc/self",
    re.IGNORECASE,
)


def may_vary(changes: Iterable[FileChange]) -> bool:
    """Whether one of the lines that were added to these files names a source of chance, or files that runs share."""
    return any(_SUSPICIOUS.search(line) for one in changes for line in _list_added(one))


def _list_added(change: FileChange) -> list[str]:
    old = set(decode(change.old).splitlines())
    return [line for line in decode(change.new).splitlines() if line not in old]
