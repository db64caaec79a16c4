"""Starts a run from Python, and watches it by reading its record: `python examples/embed.py`.

The project is a copy of examples/shop, and the agent is scripted, so no account is needed.
"""

import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ralphtool import agents
from ralphtool.loop import run
from ralphtool.record import events, lines

SHOP = Path(__file__).with_name("shop")


@contextmanager
def print_verdicts(record: str) -> Iterator[None]:
    """A viewer, independent of the run: it reads the record in its own thread; any other process could do the same."""
    is_over = threading.Event()
    thread = threading.Thread(target=follow, args=(lines.LineReader(record), is_over))
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def follow(reader: lines.LineReader, is_over: threading.Event) -> None:
    is_last = False
    while not is_last:
        is_last = is_over.wait(0.1)
        for event in map(events.decode, reader.new()):
            if isinstance(event, events.Verdict):
                print(f"story {event.story}, attempt {event.attempt}: {event.summary}")


with tempfile.TemporaryDirectory() as folder:
    project = str(shutil.copytree(SHOP, Path(folder, "shop")))
    for words in ("init --quiet", "add .", "-c user.name=me -c user.email=me commit --quiet -m first"):
        subprocess.run(["git", *words.split()], cwd=project, check=True)
    agent = agents.make("scripted", {"args": [str(SHOP / "agent.toml")]})
    result = run.start(project, "add-discounts", runners=[agent], viewer=print_verdicts)
    print(f"{result.ended.result}: {result.ended.reason}")
