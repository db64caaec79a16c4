"""Several threads use a type for the first time at once: msgspec alone would crash the process."""

from __future__ import annotations

import subprocess
import sys

FIRST_MEETING = """
import sys, threading
from ralphtool.executors import orders

sys.setswitchinterval(1e-6)
together = threading.Barrier(4)

def read():
    together.wait()
    try:
        orders.decode_order(b'{"kind": "work", "settings": {"executor": {}, "run": {}}, "report": {}}')
    except orders.msgspec.ValidationError:
        sys.stdout.write("read\\n")

threads = [threading.Thread(target=read) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_a_type_that_threads_meet_at_once() -> None:
    """Without the lock every second process died here."""
    for _ in range(8):
        result = subprocess.run([sys.executable, "-c", FIRST_MEETING], capture_output=True, text=True, timeout=600)
        assert (result.returncode, result.stdout) == (0, "read\n" * 4), result.stderr
