"""The speed of the history, and how its costs grow: the second part of `scripts/bench`.

All comparisons run in turns, in this process, on real files; a row is the median of the rounds' ratios.
`.venv/bin/python scripts/bench_history.py --growth` prints the table of docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from ralphtool.history import History, document, journal
from ralphtool.history.analyzer import look_back
from ralphtool.history.journal import Batch
from ralphtool.history.records import Entry, Learning, Pattern, Progress

TEXT = (
    "the login form reads its token from a header and the cache keeps results until the tests run again because "
    "fixtures share state between modules so every migration has to be applied before pytest starts the server"
)
WORDS = TEXT.split(" ")
SIZES = (100, 1_000, 10_000, 100_000)
PRDS_PER_ENTRY = 0.4
MOMENT = "2026-01-31T09:30:00.000123Z"


# --- samples ----------------------------------------------------------------------------------------


class Sample:
    """Histories of any size, with realistic entries of about 1.5 KB each."""

    def __init__(self) -> None:
        self._random = random.Random(7)
        self._prds = count(900_000)

    def _text(self, words: int) -> str:
        return " ".join(self._random.choices(WORDS, k=words))

    def entry(self, prd: int, iteration: int) -> Entry:
        prd_id = f"change-{prd:06}-story-{prd % 7}"
        observations = [
            {
                "type": self._random.choice(["blocker", "finding", "finding", "completion"]),
                "title": self._text(6),
                "description": self._text(30),
                "file": "src/handlers/login.py",
                "category": self._random.choice(["bug", "architecture", "dependency", "tooling-friction"]),
                "severity": "medium",
                "action_taken": "documented",
            }
            for _ in range(2)
        ]
        value = {
            "id": f"{prd_id}-{iteration}",
            "timestamp": MOMENT,
            "prd_id": prd_id,
            "iteration": iteration,
            "status": self._random.choice(["completed", "completed", "failed", "blocked", "partial"]),
            "duration_seconds": self._random.randrange(5000),
            "summary": self._text(14),
            "observations": observations,
            "files_modified": ["src/handlers/login.py", "src/models/user.py", "tests/test_login.py"],
            "git_commits": ["5f2d3c1b9a8e7d6c5b4a39281706f5e4d3c2b1a0"],
            "context": {"retry_count": iteration - 1, "previous_failure_reason": self._text(10)},
        }
        return msgspec.convert(value, Entry)

    def project(self, root: Path, entries: int) -> Path:
        """A project with this many entries, a learning for every twentieth and a pattern for every two hundredth."""
        prds = max(1, int(entries * PRDS_PER_ENTRY))
        progress = Progress(
            version="1.0",
            created_at=MOMENT,
            entries=tuple(self.entry(number % prds, number // prds + 1) for number in range(entries)),
            learnings=tuple(self._learning(number) for number in range(1, entries // 20 + 1)),
            patterns=tuple(self._pattern(number) for number in range(1, entries // 200 + 1)),
        )
        (root / ".ralph").mkdir(parents=True)
        data = msgspec.json.format(msgspec.json.encode(progress), indent=2)
        (root / ".ralph/progress.json").write_bytes(data + b"\n")
        os.sync()  # otherwise the next measurement would pay for it
        return root

    def _learning(self, number: int) -> Learning:
        kind = self._random.choice(["codebase-pattern", "error-workaround", "tool-usage", "test-pattern"])
        value = {"id": f"learning-{number:04}", "type": kind, "content": f"{number} {self._text(25)}"}
        return msgspec.convert({**value, "source_prd_id": "change-1", "created_at": MOMENT}, Learning)

    def _pattern(self, number: int) -> Pattern:
        value = {"id": f"pattern-{number:04}", "name": f"{number} {self._text(4)}", "type": "api-pattern"}
        return msgspec.convert({**value, "description": self._text(20), "discovered_at": MOMENT}, Pattern)

    def new_entries(self, number: int) -> list[Entry]:
        """Entries that no history has yet; three for every PRD."""
        prds = [next(self._prds) for _ in range(number // 3 + 1)]
        return [self.entry(prd, attempt) for prd in prds for attempt in (1, 2, 3)]


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def raw_write(path: Path) -> Callable[[Entry], None]:
    """The minimum for an append: one write of the same bytes, and one sync."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def write(entry: Entry) -> None:
        os.write(fd, journal.encode_line(journal.encode(Batch(entries=(entry,)))))
        os.fdatasync(fd)

    return write


def rewrite(path: Path) -> Callable[[Entry], None]:
    """A full rewrite for each append, done well: read, check, write aside, sync, rename, sync."""
    path.write_bytes(document.build_empty(MOMENT, "rewritten"))

    def append(entry: Entry) -> None:
        progress = document.parse(path.read_bytes())
        grown = msgspec.structs.replace(progress, entries=(*progress.entries, entry))
        aside = path.with_suffix(".aside")
        with aside.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(grown), indent=2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        aside.rename(path)
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    return append


# --- rows -------------------------------------------------------------------------------------------


class Bench:
    """One project of each size, created on first use."""

    def __init__(self, top: Path, rounds: int) -> None:
        self.top = top
        self.rounds = rounds
        self.sample = Sample()

    def root(self, entries: int, use: str = "appending") -> Path:
        root = self.top / f"{entries}-{use}"
        if not root.exists():
            self.sample.project(root, entries)
            History(str(root)).add(patterns=[self.sample._pattern(0)])  # creates the index of a large one
        return root

    def history(self, entries: int, use: str = "appending") -> History:
        return History(str(self.root(entries, use)))

    def _median(self, one: Callable[[], object], other: Callable[[], object], rounds: int) -> float:
        for work in (one, other):
            work()
        pairs = [(seconds(one), seconds(other)) for _ in range(rounds)]
        return statistics.median(first / second for first, second in pairs)

    def _appending(self, append: Callable[[Entry], object], number: int) -> Callable[[], object]:
        """Appends one of these entries, which are created before the timing starts."""
        entries = iter(self.sample.new_entries(number + 1))
        return lambda: append(next(entries))

    def append_at(self, many: int, few: int) -> float:
        rounds = 3 * self.rounds
        ours, theirs = (self._appending(self.history(size).append, rounds) for size in (many, few))
        return self._median(ours, theirs, rounds)

    def append_against_raw(self) -> float:
        rounds = 5 * self.rounds
        ours = self._appending(self.history(100_000).append, rounds)
        return self._median(ours, self._appending(raw_write(self.top / "raw"), rounds), rounds)

    def append_amortised(self) -> float:
        """Over enough appends for one fold; at 100 entries, each append is a fold."""
        many, few = self.history(100_000), self.history(100)
        many.fold()
        appends = os.path.getsize(many.path) // 10 // 1200
        ours, theirs = self._appending(many.append, appends), self._appending(few.append, 200)
        first = seconds(lambda: [ours() for _ in range(appends)]) / appends
        if os.path.exists(many.journal_path) and os.path.getsize(many.journal_path) > os.path.getsize(many.path) / 10:
            raise SystemExit("no fold has happened")
        return first / (seconds(lambda: [theirs() for _ in range(200)]) / 200)

    def append_against_rewrite(self) -> float:
        """A thousand in total, in turns of a hundred."""
        (self.top / "appended").mkdir()
        ours = self._appending(History(str(self.top / "appended")).append, 1000)
        theirs = self._appending(rewrite(self.top / "rewritten.json"), 1000)
        turns = [[seconds(lambda: [work() for _ in range(100)]) for work in (ours, theirs)] for _ in range(10)]  # noqa: B023
        return sum(one for one, _ in turns) / sum(other for _, other in turns)

    def last_ten(self) -> float:
        """By a new object, on an unchanged history."""
        many, few = (partial(_last_ten, self, size) for size in (100_000, 100))
        return self._median(many, few, self.rounds)

    def load_against_json(self) -> float:
        path = self.root(10_000) / ".ralph/progress.json"
        history = self.history(10_000)
        history.fold()
        return self._median(history.load, lambda: json.loads(path.read_bytes()), max(5, self.rounds // 4))

    def look_back(self, entries: int = 100_000) -> tuple[float, float]:
        """CPU milliseconds and megabytes for one look back, in a fresh process."""
        command = [sys.executable, __file__, "--look-back", str(self.root(entries))]
        cpu, memory = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        return float(cpu), float(memory)


def one_look_back(root: str) -> None:
    import psutil

    process = psutil.Process()
    before, start = process.memory_info().rss, time.process_time()
    look_back(History(root), "change-000077-story-0")
    print((time.process_time() - start) * 1000, (process.memory_info().rss - before) / 1e6)


def _row(what: str, measure: str, measured: float, at_most: float | None) -> dict[str, Any]:
    ok = at_most is None or measured <= at_most
    return {"what": what, "measure": measure, "measured": round(measured, 3), "at_most": at_most, "ok": ok}


def rows(bench: Bench) -> dict[str, Callable[[], list[dict[str, Any]]]]:
    def ratio(what: str, measured: Callable[[], float], at_most: float | None) -> None:
        table[what] = lambda: [_row(what, "time", measured(), at_most)]

    def looked_back() -> list[dict[str, Any]]:
        found = [bench.look_back() for _ in range(5)]
        cpu, memory = (statistics.median(values) for values in zip(*found, strict=True))
        return [_row("look_back at 100,000 entries", "ms of CPU", cpu, 50), _row("likewise", "MB", memory, 20)]

    table: dict[str, Callable[[], list[dict[str, Any]]]] = {}
    ratio("history append at 100,000 entries / at 100", lambda: bench.append_at(100_000, 100), 1.1)
    ratio("history append at 100,000 entries / at 1,000", lambda: bench.append_at(100_000, 1_000), 1.1)
    ratio("history append / raw write and fdatasync", bench.append_against_raw, 1.5)
    ratio("history append, amortised over a fold, at 100,000 / at 100", bench.append_amortised, 2.0)
    ratio("history 1,000 appends / load, check, rewrite, rename", bench.append_against_rewrite, 0.5)
    ratio("history last 10 entries at 100,000 / at 100", bench.last_ten, 2.0)
    table["history look_back at 100,000 entries"] = looked_back
    ratio("history load and check 10,000 entries / json.load", bench.load_against_json, 1.0)
    return table


def measure(top: Path, rounds: int, word: str) -> list[dict[str, Any]]:
    found = rows(Bench(top, rounds))
    return [one for what, measured in found.items() if word in what for one in measured()]


# --- growth -----------------------------------------------------------------------------------------


def _timed(work: Callable[[], object], rounds: int) -> float:
    return statistics.median(seconds(work) for _ in range(rounds))


def _last_ten(bench: Bench, entries: int) -> None:
    bench.history(entries, "asking").entries(last=10)


def growth(top: Path, rounds: int) -> None:
    """Prints times relative to those at 100 entries, and the memory of `look_back`."""
    bench = Bench(top, rounds)
    table: dict[str, list[float]] = {}
    for entries in SIZES:
        history = bench.history(entries)
        load = _timed(history.load, 3)
        cpu, memory = bench.look_back(entries)
        timed = {
            "append": _timed(bench._appending(history.append, rounds), rounds),
            "last 10 entries": _timed(partial(_last_ten, bench, entries), rounds),
            "look_back (ms of CPU)": cpu,
            "look_back (MB)": memory,
            "load and check everything": load,
            "fold": seconds(history.fold),
            "size of the document (MB)": os.path.getsize(history.path) / 1e6,
        }
        for name, value in timed.items():
            table.setdefault(name, []).append(value)
    print(f"{'':28}" + "".join(f"{size:>10,}" for size in SIZES))
    for name, values in table.items():
        # At 100 entries there is nothing to fold: every append was a fold.
        unit = 1 if "(" in name else values[1] if name == "fold" else values[0]
        shown = [value / unit for value in values]
        print(f"{name:28}" + "".join(f"{value:>10.2f}" for value in shown))


def main() -> int:
    parser = argparse.ArgumentParser(description="Measures the history.")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--growth", action="store_true", help="how costs grow from 100 to 100,000 entries")
    parser.add_argument("--look-back", metavar="ROOT", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.look_back:
        one_look_back(chosen.look_back)
    elif chosen.growth:
        with tempfile.TemporaryDirectory(prefix="ralphtool-bench-") as top:
            growth(Path(top), chosen.rounds)
    else:
        parser.error("use scripts/bench, or say --growth")
    return 0


if __name__ == "__main__":
    sys.exit(main())
