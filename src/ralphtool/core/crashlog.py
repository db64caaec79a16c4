"""The last resort for an unexpected error: writes a log that can be pasted into a bug report."""

import os

from ralphtool import __version__
from ralphtool.core import files


def report(error: BaseException, arguments: list[str]) -> str:
    """Writes the log; returns a message that says where it is."""
    import platform
    import traceback

    text = "\n".join(
        [
            f"ralphtool {__version__}, Python {platform.python_version()}, {platform.platform()}",
            # Arguments may be private; their number alone already helps.
            f"command: ralphtool {' '.join(arguments[:2])} ({len(arguments)} arguments)",
            "",
            "".join(traceback.format_exception(error)),
        ]
    )
    what = f"{type(error).__name__} in ralphtool itself: this is a bug in ralphtool"
    try:
        path = files.private_path("ralph", "logs", f"bug-{os.getpid()}.log")
        files.make_private_folders(path)
        files.replace(path, text.encode("utf-8", "backslashreplace"))
    except Exception as second:
        return f"{what}. Please report it ({error}; no log could be written: {second})"
    return f"{what}. Please report it with {path}"
