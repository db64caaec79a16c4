"""The commands: parse, wire, exit code."""

import atexit
import os
import sys


def end_at_once(exit_code: int) -> int:
    """Ends the process without unloading its modules, which takes a fifth of a short command; not if a thread runs."""
    threads = sys.modules.get("threading")
    if threads and threads.active_count() > 1:
        return exit_code
    atexit._run_exitfuncs()
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except BrokenPipeError:
        os._exit(1)  # the reader is gone; the interpreter would complain about it at exit
    except (OSError, ValueError):
        return exit_code  # the interpreter handles it at exit
    os._exit(exit_code)
