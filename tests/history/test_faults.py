"""The history under faults: kills, system errors, a full disk, and many processes at once.

Whatever happens, progress.json is a complete document, and each acknowledged record is in the history once.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from core.test_full_disk import SmallDisk
from faults import (
    CHANGING,
    KILLED,
    WORKERS,
    Call,
    Command,
    Race,
    Scene,
    Trial,
    calls_of,
    ended,
    in_memory,
    injected,
    need_strace,
    raw_files,
    traced,
)
from project import COMMAND, Ralph, Result
from properties import THOROUGH, sample

from ralphtool.errors import RalphError
from ralphtool.history import History, document
from ralphtool.history.journal import Batch
from ralphtool.history.records import Entry, Learning, Observation, Progress

MOMENT = "2025-06-01T12:00:00Z"
MEBIBYTE = 1 << 20
BIG, NEARLY_BIG, FEW = 720, 560, 5  # numbers of entries: for a document above 1 MiB, one just below it, and a small one

# Runs in separate processes, on the history of the working directory.
PROGRAM = """\
import json, os, sys, time
import msgspec
from msgspec import structs
from ralphtool.errors import RalphError
from ralphtool.history import History, document
from ralphtool.history.records import Entry, Learning, Pattern

history = History(os.getcwd())

def say(text):
    print(text, flush=True)

def follow(template, summary=None):
    def make(number):
        return structs.replace(template, id=f"{template.prd_id}-{number}", iteration=number,
                               summary=summary or template.summary)
    return history.append_next(template.prd_id, make)

def append(text):
    history.append(msgspec.json.decode(text, type=Entry))

def follows(text):
    say(follow(msgspec.json.decode(text, type=Entry)).id)

def fold():
    history.fold()

def storm(text, name, times):
    template = msgspec.json.decode(text, type=Entry)
    for number in range(int(times)):
        prd_id = name if number % 2 else f"shared-{number % 3}"
        mark = f"{name}/{number}/{os.getpid()}"
        entry = follow(structs.replace(template, prd_id=prd_id), f"{mark} {template.summary}")
        say(f"{mark} {entry.id}")

def learn(name, times):
    for number in range(int(times)):
        moment = f"2025-06-01T12:00:{number:02}Z"
        texts = [f"{name} says {number}", f"all say {number}"]
        history.add(
            [Learning(id="learning-0000", type="tool-usage", content=one, source_prd_id=name, created_at=moment)
             for one in texts],
            [Pattern(id="pattern-0000", name=one, type="api-pattern", discovered_at=moment) for one in texts],
        )

def until(stop, work, pause):
    looks, deadline = 0, time.monotonic() + 900
    while not os.path.exists(stop) or not looks:
        work()
        looks += 1
        assert time.monotonic() < deadline
        time.sleep(pause)
    say(looks)

def folds(stop):
    until(stop, history.fold, 0.05)

def reads(stop):
    seen = []
    def look():
        with open(history.path, "rb") as file:
            data = file.read()
        ids = [entry["id"] for entry in json.loads(data)["entries"]]
        document.parse(data)
        assert ids[:len(seen)] == seen, "the document has lost something"
        seen[:] = ids
    until(stop, look, 0.05)

def asks(stop):
    seen = [0]
    def look():
        count = history.counts()["entries"]
        last = history.entries(last=10)
        assert len(last) == 10 and len({entry.id for entry in last}) == 10
        assert seen[0] <= count <= sum(tally.attempts for tally in history.tallies()) <= len(history.load().entries)
        assert history.problems() == [], history.problems()
        seen[0] = count
    until(stop, look, 0.03)

try:
    globals()[sys.argv[1]](*sys.argv[2:])
except (RalphError, OSError) as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


@dataclass(frozen=True)
class Program(Command):
    """Any program in the project's folder, run directly or under strace."""

    def start(self, ralph: Ralph, *before: str, **more: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*before, *self.arguments],
            cwd=ralph.root,
            env={**ralph.env, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


def program(name: str, *arguments: str) -> Program:
    """One of the functions above. In isolated mode, Python searches nothing in the project."""
    return Program((sys.executable, "-I", "-c", PROGRAM, name, *arguments))


def ralphtool(*arguments: str) -> Program:
    return Program((COMMAND, *arguments))


@pytest.fixture
def top(tmp_path: Path) -> Iterator[Path]:
    with in_memory(tmp_path) as folder:
        yield folder


# --- records, and initial states --------------------------------------------------------------------


def entry(prd_id: str, iteration: int, summary: str = "What happened. ") -> Entry:
    """About 1.5 KB, like a real entry."""
    return Entry(
        id=f"{prd_id}-{iteration}",
        timestamp=MOMENT,
        prd_id=prd_id,
        iteration=iteration,
        status="failed",
        summary=summary * 80,
        observations=(Observation(type="blocker", title="no network", category="tooling-friction"),),
    )


def text_of(record: Entry) -> str:
    return msgspec.json.encode(record).decode()


def learning(number: int, content: str) -> Learning:
    id = f"learning-{number:04}"
    return Learning(id=id, type="tool-usage", content=content, source_prd_id="old", created_at=MOMENT)


@contextmanager
def history_of(ralph: Ralph) -> Iterator[History]:
    with closing(History(str(ralph.root))) as history:
        yield history


def folder_of(ralph: Ralph) -> Path:
    return ralph.root / ".ralph"


def document_of(ralph: Ralph) -> Progress | None:
    """progress.json as a program without support for journals reads it."""
    path = folder_of(ralph) / "progress.json"
    return document.parse(path.read_bytes()) if path.exists() else None


def filled(ralph: Ralph, count: int) -> None:
    batch = Batch(
        entries=tuple(entry("old", number) for number in range(1, count + 1)),
        learnings=(learning(1, "the first thing learnt"), learning(2, "the second thing learnt")),
    )
    with history_of(ralph) as history:
        history.write(lambda state: batch)


def few(ralph: Ralph) -> None:
    filled(ralph, FEW)


def make_index(ralph: Ralph) -> None:
    """Builds the index as a later process does."""
    path = folder_of(ralph) / "progress.index"
    path.unlink()
    with history_of(ralph) as history:
        history.counts()
    assert path.exists()


def big(ralph: Ralph) -> None:
    filled(ralph, BIG)
    assert (folder_of(ralph) / "progress.json").stat().st_size > MEBIBYTE
    make_index(ralph)


def big_without_an_index(ralph: Ralph) -> None:
    big(ralph)
    (folder_of(ralph) / "progress.index").unlink()


def big_with_a_journal(ralph: Ralph) -> None:
    big(ralph)
    with history_of(ralph) as history:
        for number in range(1, 4):
            history.append(entry("new", number))
        history.add([learning(0, "the third thing learnt")])
        history.invalidate("learning-0002", "it changed")
    assert (folder_of(ralph) / "progress.journal").exists()


def about_to_fold(ralph: Ralph) -> None:
    """With the next entry, the journal reaches a tenth of the document."""
    big(ralph)
    document, journal = (folder_of(ralph) / f"progress.{name}" for name in ("json", "journal"))
    used = length = number = 0
    with history_of(ralph) as history:
        while (used + length) * 10 < document.stat().st_size:
            number += 1
            history.append(entry("new", number))
            length = len(journal.read_bytes().rstrip(b"\0")) - used
            used += length


def with_a_damaged_journal(ralph: Ralph) -> None:
    """A record in the middle has a flipped bit; the next one is intact, and belongs to another PRD."""
    big(ralph)
    with history_of(ralph) as history:
        for one in (entry("new", 1), entry("new", 2), entry("other", 1)):
            history.append(one)
    path = folder_of(ralph) / "progress.journal"
    path.write_bytes(path.read_bytes().replace(b'"id":"new-2"', b'"ie":"new-2"'))


def nothing(ralph: Ralph) -> None:
    pass


# --- judging ----------------------------------------------------------------------------------------

OURS = {"progress.json", "progress.index", "progress.journal", "progress.journal.damaged"}
ASIDES = {
    ".progress.json.ralph-aside",
    "progress.index.aside",
    "progress.index-journal",
    "progress.index.aside-journal",
}


def records_of(progress: Progress) -> Counter[str]:
    """Every record, by a text that identifies it."""
    words = [f"{one.content} {one.still_valid} {one.context or ''}" for one in progress.learnings]
    return Counter([*(one.id for one in progress.entries), *words, *(one.name for one in progress.patterns)])


def records_in_document(ralph: Ralph) -> Counter[str]:
    found = document_of(ralph)
    return records_of(found) if found else Counter()


class Before(NamedTuple):
    """The records before: in the document, and in document and journal together."""

    document: Counter[str]
    all: Counter[str]


@dataclass(frozen=True)
class Case:
    """A command, its initial state, and the records that it adds and removes; `again`: those that a second run adds."""

    name: str
    prepare: Callable[[Ralph], object]
    command: Program
    made: tuple[str, ...] = ()
    unmade: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    aside: str = ""  # the text that ends up in progress.journal.damaged

    def __str__(self) -> str:
        return self.name

    def judge(self, scene: Scene, before: Before, *, acknowledged: bool) -> None:
        try:
            self._judge(scene.ralph, before, acknowledged)
        except RalphError as error:
            raise AssertionError(f"{type(error).__name__}: {error}") from error

    def _judge(self, ralph: Ralph, before: Before, acknowledged: bool) -> None:
        after = before.all - Counter(self.unmade) + Counter(self.made)
        folded = records_in_document(ralph)
        assert not (before.document & before.all) - folded - Counter(self.unmade), "the document has lost something"
        assert not folded - (before.document | before.all | after)
        found = self._loaded(ralph)
        assert found in ((after,) if acknowledged else (before.all, after)), changed(before.all, found)
        is_done = found == after
        result = self.command.run(ralph)
        assert result.exit_code == 0, result.stderr
        found, wanted = self._loaded(ralph), after + Counter(self.again if is_done else ())
        assert found == wanted, changed(wanted, found)
        self._check_later(ralph, found)

    def _loaded(self, ralph: Ralph) -> Counter[str]:
        with history_of(ralph) as history:
            progress = history.load()
            assert len(progress.entries) == history.counts()["entries"]
        for prd_id, numbers in iterations_of(progress).items():
            assert numbers == list(range(1, len(numbers) + 1)), prd_id
        return records_of(progress)

    def _check_later(self, ralph: Ralph, found: Counter[str]) -> None:
        """Work can continue, and in the end only the expected files are left."""
        with history_of(ralph) as history:
            history.append(entry("later", 1))
            history.fold()
            assert history.notices == []
        assert records_in_document(ralph) == found + Counter(["later-1"])
        names = set(os.listdir(folder_of(ralph)))
        wanted = {"progress.json", *(["progress.journal.damaged"] if self.aside else [])}
        assert names - {"progress.index"} == wanted
        if self.aside:
            assert (folder_of(ralph) / "progress.journal.damaged").read_text().count(self.aside) == 1


def changed(wanted: Counter[str], found: Counter[str]) -> str:
    return f"missing: {dict(wanted - found)}; too much: {dict(found - wanted)}"


def iterations_of(progress: Progress) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for one in progress.entries:
        found.setdefault(one.prd_id, []).append(one.iteration)
    return found


APPEND = program("append", text_of(entry("story", 1)))
NEXT = program("follows", text_of(entry("story", 1)))
INVALIDATE = ralphtool("progress", "learnings", "invalidate", "learning-0001", "--why", "it is gone")
INVALIDATED = (("the first thing learnt False it is gone",), ("the first thing learnt True ",))
STORY = ("story-1",)
CASES = [
    Case("append-to-the-journal", big_with_a_journal, APPEND, STORY),
    Case("append-makes-the-journal", big, APPEND, STORY),
    Case("append-makes-the-index", big_without_an_index, APPEND, STORY),
    Case("append-while-small", few, APPEND, STORY),
    Case("append-to-nothing", nothing, APPEND, STORY),
    Case("fold", big_with_a_journal, program("fold")),
    Case("append-folds", about_to_fold, APPEND, STORY),
    Case("append-repairs", with_a_damaged_journal, APPEND, STORY, aside='"ie":"new-2"'),
    Case("invalidate", big_with_a_journal, INVALIDATE, *INVALIDATED),
    Case("invalidate-while-small", few, INVALIDATE, *INVALIDATED),
]
# The entry's number comes from the history, so an entry that is added twice by mistake is there twice.
NUMBERED = [
    Case("next-to-the-journal", big_with_a_journal, NEXT, STORY, again=("story-2",)),
    Case("next-while-small", few, NEXT, STORY, again=("story-2",)),
    Case("next-folds", about_to_fold, NEXT, STORY, again=("story-2",)),
]

EVERYWHERE = {"append-to-the-journal", "append-while-small", "fold"}
each_case = pytest.mark.parametrize("case", CASES, ids=str)


_IDENTITY = re.compile(rb'"identity":\[[\d,]+\]')


class Kept(Scene):
    """An index does not match a copy of its document, so restoring rebuilds the index if there was one."""

    def __init__(self, top: Path, prepare: Callable[[Ralph], object]) -> None:
        super().__init__(top, prepare)
        self._restored: object = None

    def restore(self) -> None:
        if self._restored == self._exactly():
            return
        shutil.rmtree(self.top)
        shutil.copytree(self._saved, self.top)
        if (folder_of(self.ralph) / "progress.index").exists():
            make_index(self.ralph)
        self._restored = self._exactly()

    def _exactly(self) -> object:
        """All contents, and the identity of the document's file."""
        return raw_files(self.top), self.modes(), self._identity()

    def whole(self) -> Hashable:
        """An index belongs to one document on disk: it only matters whether that is this one."""
        files = {}
        for path, data in raw_files(self.top).items():
            files[path] = _IDENTITY.sub(b"another document", data.replace(self._identity(), b"this document"))
        return frozenset(files.items()), self.modes()

    def _identity(self) -> bytes:
        """The document's identity as the index stores it."""
        path = folder_of(self.ralph) / "progress.json"
        if not path.exists():
            return b'"identity":null'
        info = path.stat()
        numbers = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
        return f'"identity":[{",".join(map(str, numbers))}]'.encode()

    def twin(self, top: Path) -> Kept:
        """Another scene with the same initial bytes."""
        return Kept(top, lambda ralph: shutil.copytree(self._saved / "project", ralph.root, dirs_exist_ok=True))


def trial_of(top: Path, prepare: Callable[[Ralph], object], command: Program) -> Trial:
    need_strace()
    first = Kept(top / "scene0", prepare)
    scenes: list[Scene] = [first, *(first.twin(top / f"scene{number}") for number in range(1, WORKERS))]
    return Trial(command, scenes, {}, {}, calls_of(first, command))


def records_before(trial: Trial) -> Before:
    trial.scenes[0].restore()
    ralph = trial.scenes[0].ralph
    with history_of(ralph) as history:
        return Before(records_in_document(ralph), records_of(history.load()))


def is_about_the_index(call: Call) -> bool:
    """Whether it concerns SQLite's files, which are only a cache."""
    return "/progress.index" in call.text


def is_change(call: Call) -> bool:
    return call.operation in CHANGING or "O_CREAT" in call.text


# --- kills ------------------------------------------------------------------------------------------


def calls_to_die_at(trial: Trial, sample: int = 6) -> list[Call]:
    """Every change of a file of ours, and a sample of the other calls since the first one on our folder."""
    ours = trial.calls_on_files()
    changes = [call for call in ours if is_change(call) and not is_about_the_index(call)]
    rest = [call for call in calls_at_work(trial) if call not in changes]
    return changes + rest[:: max(1, len(rest) // sample)]


def calls_at_work(trial: Trial) -> list[Call]:
    """The calls after the start of Python."""
    first = next(index for index, call in enumerate(trial.calls) if "/.ralph" in call.text)
    return trial.calls[first:]


def kill(trial: Trial, calls: Sequence[Call], judge: Callable[[Scene, bool], None]) -> None:
    def attempt(scene: Scene, call: Call) -> None:
        result = traced(scene.ralph, trial.command, *injected(call.name, call.number, "signal=KILL"))
        assert result.exit_code in (KILLED, 0), result.stderr
        if result.exit_code == KILLED:
            trial.struck.add((call.name, call.number))
        if trial.is_new((scene.whole(), result.exit_code)):
            judge(scene, result.exit_code == 0)

    trial.try_each(calls, attempt)
    trial.assert_all_well()
    assert {(call.name, call.number) for call in calls if is_change(call)} <= trial.struck


@each_case
def test_killed_at_any_change_of_a_file(case: Case, top: Path) -> None:
    trial = trial_of(top, case.prepare, case.command)
    before = records_before(trial)
    # With `scripts/test --all`, appends and folds are killed at every system call; otherwise where it matters.
    calls = calls_at_work(trial) if THOROUGH and str(case) in EVERYWHERE else calls_to_die_at(trial)
    assert sum(is_change(call) for call in calls) >= 2
    kill(trial, calls, lambda scene, done: case.judge(scene, before, acknowledged=done))


# --- system errors ----------------------------------------------------------------------------------

FAILING = ("write", "pwrite", "fsync", "fdatasync", "ftruncate", "rename", "open", "mkdir")
MESSAGES = {"ENOSPC": "No space left on device", "EIO": "Input/output error"}


def calls_to_fail_at(trial: Trial, error: str) -> list[Call]:
    """Only a sample of SQLite's many writes."""
    operations = FAILING if error == "ENOSPC" else (*FAILING, "unlink")
    calls = [call for call in trial.calls_on_files(operations) if "/.ralph" in call.text and not call.is_answer]
    calls = [call for call in calls if error == "EIO" or call.operation != "open" or "O_CREAT" in call.text]
    index = [call for call in calls if is_about_the_index(call)]
    return [call for call in calls if not is_about_the_index(call)] + index[:: max(1, len(index) // 4)]


def check_error(result: Result, error: str) -> None:
    """One line with the system's message."""
    assert result.exit_code == 1, result.stderr
    assert MESSAGES[error] in result.stderr, result.stderr
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr


@pytest.mark.parametrize(
    ("case", "error"),
    [*((case, error) for case in CASES for error in MESSAGES), *((case, "ENOSPC") for case in NUMBERED)],
    ids=str,
)
def test_failed_by_the_system_at_any_call(case: Case, error: str, top: Path) -> None:
    trial = trial_of(top, case.prepare, case.command)
    before = records_before(trial)
    calls = calls_to_fail_at(trial, error)
    assert {"open", "fsync"} & {call.operation for call in calls}

    def judge(scene: Scene, call: Call, result: Result) -> None:
        if is_about_the_index(call):
            assert result.exit_code == 0, f"a cache made it fail: {result.stderr}"
        if result.exit_code:
            check_error(result, error)
        names = {path.name for path in folder_of(scene.ralph).glob("*")}
        assert names <= OURS | {"progress.index.aside"}, "what was begun aside has to be cleared away"
        # A command may report that its work is done, and then fail while it looks for warnings.
        acknowledged = result.exit_code == 0 or bool(result.stdout)
        if trial.is_new((scene.whole(), acknowledged)):
            case.judge(scene, before, acknowledged=acknowledged)

    trial.fail_at(calls, error, judge)
    trial.assert_all_well()
    assert len(trial.struck) == len(calls)


def test_a_journal_that_may_only_be_read_is_told_by_its_name(top: Path) -> None:
    trial = trial_of(top, big_with_a_journal, APPEND)
    before = records_before(trial)
    call = [call for call in trial.calls_on_files(["open"]) if '/progress.journal"' in call.text][-1]

    def judge(scene: Scene, call: Call, result: Result) -> None:
        assert result.exit_code == 1
        assert "Permission denied" in result.stderr
        assert "/progress.journal" in result.stderr
        CASES[0].judge(scene, before, acknowledged=False)

    trial.fail_at([call], "EACCES", judge)
    trial.assert_all_well()


# --- migration --------------------------------------------------------------------------------------

OLD_TEXT = "## Codebase Patterns\n- Layers: imports go downward\n\n## 2025-01-02 - US-1\n- **Learnings:**\n  - Wait\n"
OLD_RECORDS = {"Wait", "Layers", OLD_TEXT}


def with_progress_txt(ralph: Ralph) -> None:
    ralph.write("progress.txt", OLD_TEXT)


def judge_migration(scene: Scene, done: bool) -> None:
    """The text has its old name, its new one, or both; if it lacks the old name, the history has it."""
    ralph = scene.ralph
    found = document_of(ralph)
    texts = {name: ralph.read(name) for name in os.listdir(ralph.root) if name.startswith("progress.txt")}
    assert set(texts.values()) == {OLD_TEXT}
    assert found is None or {*names_of(found)} == OLD_RECORDS
    if done or "progress.txt" not in texts:
        assert found is not None
    result = ralph.run("migrate")
    assert result.exit_code == 0, result.stderr
    assert sorted(name for name in os.listdir(ralph.root) if "progress" in name) == ["progress.txt.backup"]
    with history_of(ralph) as history:
        assert sorted(names_of(history.load())) == sorted(OLD_RECORDS)
        history.append(entry("later", 1))
    assert set(os.listdir(folder_of(ralph))) == {"progress.json"}


def names_of(progress: Progress) -> list[str]:
    return [*(one.content for one in progress.learnings), *(one.name for one in progress.patterns)]


def test_a_migration_that_is_killed_loses_nothing(top: Path) -> None:
    trial = trial_of(top, with_progress_txt, ralphtool("migrate"))
    kill(trial, sample(calls_to_die_at(trial), 2), judge_migration)


@pytest.mark.parametrize("error", MESSAGES)
def test_a_migration_that_fails_loses_nothing(error: str, top: Path) -> None:
    trial = trial_of(top, with_progress_txt, ralphtool("migrate"))

    def judge(scene: Scene, call: Call, result: Result) -> None:
        if result.exit_code:
            check_error(result, error)
        if trial.is_new((scene.whole(), result.exit_code)):
            judge_migration(scene, result.exit_code == 0)

    trial.fail_at(calls_to_fail_at(trial, error), error, judge)
    trial.assert_all_well()


# --- a disk that is really full ---------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs", str(folder)]
    try:
        is_mounted = subprocess.run(mount, capture_output=True).returncode == 0
    except FileNotFoundError:
        is_mounted = False
    if not is_mounted:
        pytest.skip("mounting a small disk takes root; above, the same is shown with errors that strace makes")
    yield SmallDisk(folder)
    subprocess.run(["umount", str(folder)], check=True)


def on_disk(ralph: Ralph, disk: SmallDisk, prepare: Callable[[Ralph], object]) -> Ralph:
    ralph.root = disk.folder / "project"
    ralph.root.mkdir()
    prepare(ralph)
    return ralph


def records_at(ralph: Ralph) -> Counter[str]:
    with history_of(ralph) as history:
        return records_of(history.load())


@pytest.mark.parametrize(
    "case", [case for case in [*CASES, *NUMBERED] if case.prepare not in (nothing, about_to_fold)], ids=str
)
def test_nothing_is_written_to_a_full_disk_and_nothing_lost(case: Case, ralph: Ralph, disk: SmallDisk) -> None:
    on_disk(ralph, disk, case.prepare)
    before = records_at(ralph)
    journal = folder_of(ralph) / "progress.journal"
    if journal.exists():  # without the spare room at its end
        journal.write_bytes(journal.read_bytes().rstrip(b"\0"))
    disk.fill()
    kept = {name: (folder_of(ralph) / name).read_bytes() for name in ("progress.json", "progress.journal")
            if (folder_of(ralph) / name).exists()}  # fmt: skip
    for _ in range(2):
        check_error(case.command.run(ralph), "ENOSPC")
        assert records_at(ralph) == before, "whoever asks gets an answer on a full disk too"
    assert {name: (folder_of(ralph) / name).read_bytes() for name in kept} == kept
    disk.free()
    result = case.command.run(ralph)
    assert result.exit_code == 0, result.stderr
    assert records_at(ralph) == before - Counter(case.unmade) + Counter(case.made)
    assert not ASIDES & set(os.listdir(folder_of(ralph)))


def test_an_entry_is_safe_in_the_journal_when_there_is_no_space_to_fold_it(ralph: Ralph, disk: SmallDisk) -> None:
    """A little more space each time: what fits changes, but the meaning of an answer never does."""
    on_disk(ralph, disk, about_to_fold)
    before = records_at(ralph)
    folded = records_in_document(ralph)
    disk.fill()
    ballast = disk.folder / "ballast"
    answers = []
    for _ in range(24):
        os.truncate(ballast, ballast.stat().st_size - 12 * 1024)
        result = NEXT.run(ralph)
        if result.exit_code:
            check_error(result, "ENOSPC")
        answers += result.stdout.split()
        assert records_at(ralph) == before + Counter(answers)
    assert answers == [f"story-{number}" for number in range(1, len(answers) + 1)]
    assert answers
    assert records_in_document(ralph) == folded
    disk.free()
    assert NEXT.run(ralph).exit_code == 0
    assert records_in_document(ralph) == before + Counter([*answers, f"story-{len(answers) + 1}"])


def test_an_index_that_does_not_fit_takes_no_space_from_an_entry(ralph: Ralph, disk: SmallDisk) -> None:
    on_disk(ralph, disk, lambda ralph: filled(ralph, 3 * BIG))
    make_index(ralph)
    index = folder_of(ralph) / "progress.index"
    assert index.stat().st_size > 190 * 1024
    index.unlink()
    before = records_in_document(ralph)
    disk.fill()
    ballast = disk.folder / "ballast"
    os.truncate(ballast, ballast.stat().st_size - 160 * 1024)  # a new journal takes 130 KiB
    result = APPEND.run(ralph)
    assert result.exit_code == 0, result.stderr
    assert records_at(ralph) == before + Counter(STORY)


# --- many at once -----------------------------------------------------------------------------------


@contextmanager
def running(ralph: Ralph, programs: Iterable[Program]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that are always ended, whatever happens."""
    started = [one.start(ralph) for one in programs]
    try:
        yield started
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.communicate()


def all_well(processes: Iterable[subprocess.Popen[bytes]], timeout: float = 170) -> list[list[str]]:
    """The lines that each process printed."""
    results = [ended(process, timeout) for process in processes]
    assert not [result.stderr for result in results if result.exit_code]
    return [result.stdout.splitlines() for result in results]


def marks_of(progress: Progress) -> dict[str, str]:
    """The entry of each mark; no two entries may have the same mark."""
    marked = [one for one in progress.entries if one.prd_id != "old"]
    marks = {str(one.summary).split()[0]: one.id for one in marked}
    assert len(marks) == len(marked), "something is there twice"
    return marks


def check_numbers(progress: Progress) -> None:
    for prd_id, numbers in iterations_of(progress).items():
        assert numbers == list(range(1, len(numbers) + 1)), prd_id
    assert len({one.id for one in progress.entries}) == len(progress.entries)


def check_end(ralph: Ralph) -> Progress:
    """Document and journal have the same records as the document after a fold; nothing was set aside."""
    with history_of(ralph) as history:
        assert history.problems() == []
        found = history.load()
        exported = document.parse(history.export())
        history.fold()
        assert history.notices == []
    assert not (folder_of(ralph) / "progress.journal.damaged").exists()
    assert found == exported == document_of(ralph)
    check_numbers(found)
    assert set(os.listdir(folder_of(ralph))) - {"progress.index", "locks"} == {"progress.json"}
    return found


def test_16_processes_append_200_entries_each_while_others_fold_and_read(ralph: Ralph) -> None:
    writers, times = 16, 200
    filled(ralph, NEARLY_BIG)
    assert (folder_of(ralph) / "progress.json").stat().st_size < MEBIBYTE
    stop = ralph.home / "stop"
    template = text_of(entry("any", 1))
    others = [program(name, str(stop)) for name in ("folds", "reads", "asks")]
    with (
        running(ralph, others) as watching,
        running(ralph, [program("storm", template, f"own-{number}", str(times)) for number in range(writers)]) as busy,
    ):
        said = all_well(busy)
        stop.touch()
        looks = [int(lines[0]) for lines in all_well(watching, 30)]
    found = check_end(ralph)
    acknowledged = dict(line.split() for lines in said for line in lines)
    assert len(acknowledged) == writers * times
    assert marks_of(found) == acknowledged
    assert len(found.entries) == NEARLY_BIG + writers * times
    assert min(looks) >= 2, "all of them have looked while others were writing"


@pytest.mark.parametrize("seed", [1, 2])
def test_what_was_acknowledged_survives_the_killing_of_its_writers(ralph: Ralph, seed: int) -> None:
    chance = random.Random(seed)
    filled(ralph, NEARLY_BIG if seed == 1 else BIG)
    template = text_of(entry("any", 1))
    said: list[str] = []
    kills = 0

    def writer(number: int) -> Program:
        return program("storm", template, f"own-{number}", "150")

    with running(ralph, [writer(number) for number in range(5)]) as busy:
        for number in range(5, 25):
            time.sleep(chance.uniform(0.02, 0.15))
            victim = busy.pop(chance.randrange(len(busy)))
            victim.kill()
            kills += victim.wait(60) == KILLED
            said += ended(victim).stdout.splitlines()
            busy.append(writer(number).start(ralph))
        said += [line for lines in all_well(busy) for line in lines]
    # An incomplete line does not count as an acknowledgement.
    acknowledged = {line.split()[0]: line.split()[1] for line in said if re.fullmatch(r"\S+ \S+-\d+", line)}
    marks = marks_of(check_end(ralph))
    assert {mark: marks.get(mark) for mark in acknowledged} == acknowledged
    assert len(marks) <= len(acknowledged) + kills, "each one that was killed may have written one that it did not say"
    assert kills >= 5


@pytest.mark.parametrize("prepare", [few, big], ids=["small", "big"])
def test_8_processes_learn_at_once(ralph: Ralph, prepare: Callable[[Ralph], object]) -> None:
    prepare(ralph)
    with running(ralph, [program("learn", f"process {number}", "15") for number in range(8)]) as busy:
        all_well(busy)
    found = check_end(ralph)
    words = {f"{name} {number}" for number in range(15) for name in said_by(8)}
    contents = Counter(one.content for one in found.learnings)
    assert contents == Counter({*words, "the first thing learnt", "the second thing learnt"})
    assert Counter(one.name for one in found.patterns) == Counter(words)
    for records in (found.learnings, found.patterns):
        assert sorted(int(one.id.rpartition("-")[2]) for one in records) == list(range(1, len(records) + 1))


def said_by(processes: int) -> list[str]:
    return ["all say", *(f"process {number} says" for number in range(processes))]


def test_what_one_process_added_stays_when_another_one_asks_in_between(ralph: Ralph) -> None:
    """The query updates the index without the knowledge of the process that continues to add."""
    big(ralph)
    with history_of(ralph) as adding, history_of(ralph) as asking:
        for number in range(1, 13):
            adding.append(entry("new", number))
            if number % 3 == 1:
                assert asking.attempts("new") == number
        assert adding.attempts("new") == 12
        assert adding.problems() == []
        adding.fold()
    assert iterations_of(check_end(ralph))["new"] == list(range(1, 13))


# --- sessions that end at the same time -------------------------------------------------------------


@pytest.mark.parametrize("prepare", [nothing, few, big], ids=["nothing", "small", "big"])
def test_what_sessions_that_end_at_once_have_learnt_is_in_the_history_once(
    ralph: Ralph, prepare: Callable[[Ralph], object]
) -> None:
    prepare(ralph)
    names = [f"change-{number}" for number in range(6)]
    for name in names:
        ralph.openspec(change=name).begin(change=name, session=name)
        for text in (f"only {name} knows", "all know"):
            assert ralph.agent("learn", text, session=name).json
        assert ralph.agent("pattern", "layers", "imports go downward", session=name).json
    with Race(ralph) as race:
        for name in names:
            race.enter("ralphtool agent session flush", RALPH_SESSION=name)
        for result in race.results():
            assert result.json["success"] is True
    found = check_end(ralph)
    words = Counter(one.content for one in found.learnings if not one.content.endswith("thing learnt"))
    assert words == Counter([*(f"only {name} knows" for name in names), "all know"])
    assert [one.name for one in found.patterns] == ["layers"]
    assert len({one.id for one in found.learnings}) == len(found.learnings)
    for name in names:
        design = json.dumps(ralph.read(f"openspec/changes/{name}/design.md"))
        assert design.count(f"only {name} knows") == 1
