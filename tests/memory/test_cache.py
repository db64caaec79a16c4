"""The memory's file under faults: whatever is there and whatever happens, there is an answer, and nothing else changes.

The file is a cache: a useless one is created again, and one that can't be used or belongs to another program is left
alone. As long as it can be used, it contains everything that was acknowledged.
"""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from faults import (
    CHANGING,
    KILLED,
    Call,
    Command,
    Scene,
    Trial,
    calls_of,
    in_memory,
    injected,
    need_strace,
    raw_files,
    traced,
)
from patience import PATIENCE
from project import Ralph, Result, bound_by_permissions
from properties import sample

import ralphtool
from ralphtool.memory import Memory, cachefile

SOURCE = str(Path(ralphtool.__file__).parent.parent)
OLD = {
    f"old-{number}": f"The {word} needs a database migration" for number, word in enumerate(["lion", "tiger", "lynx"])
}
ZEBRA = "A zebra stands on the crossing"

# For separate processes. The first argument is the folder of the code that this test has loaded.
PROGRAM = """\
import json, os, sqlite3, sys, time
sys.path.insert(0, sys.argv[1])
from ralphtool.memory import Memory, cachefile

def say(value):
    print(json.dumps(value), flush=True)

def add(path, id, text):
    with Memory(path, by_meaning=False) as memory:
        memory.add(id, text)
        assert id in dict(memory.search(text)), "what was added is not found"
        say({"kept": memory.cache.is_kept, "held": sorted(memory.held()), "mark": memory.fact("mark")})

def look(path, *queries):
    with Memory(path, by_meaning=False) as memory:
        found = [[id for id, _ in memory.search(query)] for query in queries]
        say({"kept": memory.cache.is_kept, "held": sorted(memory.held()), "found": found})

def storm(path, name, times):
    cachefile._PATIENCE = 900.0  # on a busy machine, another writer may need more than the usual second
    sys.stdin.readline()
    with Memory(path, by_meaning=False) as memory:
        for number in range(int(times)):
            memory.add(f"{name}/{number}", f"text {number} by {name}")
            memory.add("shared", f"shared text {number} by {name}")
            if memory.cache.is_kept:
                say(f"{name}/{number}")

def search(path, times):
    sys.stdin.readline()
    with Memory(path, by_meaning=False) as memory:
        for _ in range(int(times)):
            found = memory.search("database text", 50)
            assert len(found) == len(set(found))
            memory.repeat_of("database text 7")
        say(len(found))

def replace(path, times):
    sys.stdin.readline()
    with Memory(path, by_meaning=False) as memory:
        for number in range(int(times)):
            memory.add(str(number % 30), f"database text {number}")
            memory.remove(str(number * 7 % 30))

def hold(path, how):
    db = sqlite3.connect(path, isolation_level=None)
    for statement in how.split(";"):
        db.execute(statement).fetchall()
    say("held")
    sys.stdin.readline()

def leave(path, how):
    db = sqlite3.connect(path, isolation_level=None)
    for statement in how.split(";"):
        db.execute(statement).fetchall()
    os._exit(0)

def add_and_die(path, id, text):
    Memory(path, by_meaning=False).add(id, text)
    os._exit(0)

globals()[sys.argv[2]](*sys.argv[3:])
"""


def command(name: str, *arguments: str | Path) -> list[str]:
    return [sys.executable, "-I", "-c", PROGRAM, SOURCE, name, *map(str, arguments)]


def said(name: str, *arguments: str | Path, before: tuple[str, ...] = ()) -> Any:
    """The output of one of the functions above, in a separate process."""
    done = subprocess.run(
        [*before, *command(name, *arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout else None


@contextmanager
def held(path: Path, how: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that is using the file."""
    with subprocess.Popen(
        command("hold", path, how), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == '"held"\n'
        yield process
        assert process.stdin
        process.stdin.close()
        assert process.wait(60) == 0


def opened(path: Path) -> Memory:
    return Memory(str(path), by_meaning=False)


def fill(path: Path) -> None:
    with opened(path) as memory:
        assert memory.update({id: (text, "") for id, text in OLD.items()}, mark="up to date")
        assert memory.cache.is_kept


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file will be, beside other files."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "progress.json").write_text("{}")
    (folder / "memory.index.bak").write_text("mine")
    return folder / "memory.index"


@pytest.fixture
def full(path: Path) -> Path:
    fill(path)
    return path


def others(path: Path) -> dict[str, bytes]:
    """Everything beside the file that is not one of SQLite's parts of it."""
    return {name: data for name, data in raw_files(path.parent).items() if not is_part(path, name)}


def is_part(path: Path, name: str) -> bool:
    return name in {path.name, f"{path.name}-wal", f"{path.name}-shm", f"{path.name}-journal"}


def answers(path: Path) -> bool:
    """Checks that every question is answered, and that a new text is found; returns whether it is kept."""
    with opened(path) as memory:
        memory.search("lion database migration")
        memory.repeat_of(OLD["old-0"])
        memory.add("new", ZEBRA)
        assert [id for id, _ in memory.search("zebra")] == ["new"]
        assert memory.get(["new"]) == {"new": (ZEBRA, "")}
        assert len(memory) == len(memory.held())
        memory.add("new", f"{ZEBRA} again")
        memory.remove("old-1")
        assert memory.update({}, since=memory.fact("mark"), mark="seen")
        assert (memory.fact("mark"), memory.get(["old-1"])) == ("seen", {})
        assert memory.search("zebra again")[0][0] == "new"
        return memory.cache.is_kept


def check_kept(path: Path) -> None:
    with opened(path) as memory:
        assert memory.cache.is_kept
        assert memory.get(["new"]) == {"new": (f"{ZEBRA} again", "")}
        assert memory.search("zebra")[0][0] == "new"
        assert (memory.fact("mark"), len(memory)) == ("seen", len(memory.held()))
    check_whole(path)


def check_whole(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        db.execute("INSERT INTO words (words) VALUES ('integrity-check')")


def check_made_anew(path: Path) -> None:
    """A useless file is replaced by a good one."""
    before = others(path)
    assert answers(path)
    check_kept(path)
    assert others(path) == before


def check_left_alone(path: Path, tree: Callable[[], object]) -> None:
    before = tree()
    assert not answers(path)
    assert tree() == before
    with opened(path) as memory:
        assert memory.get(["new"]) == {}
    assert tree() == before


# --- a foreign file ---------------------------------------------------------------------------------


def test_a_file_is_made_for_us_alone(path: Path) -> None:
    before = os.umask(0)
    try:
        check_made_anew(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(path.parent)) == ["memory.index", "memory.index.bak", "progress.json"]


@pytest.mark.parametrize("version", [0, cachefile.FORMAT + 1, 77_777, -1, 2**31 - 1])
def test_a_file_of_another_version_is_made_anew(version: int, full: Path) -> None:
    with closing(sqlite3.connect(full)) as db:
        db.execute(f"PRAGMA user_version = {version}")
    with opened(full) as memory:
        assert (len(memory), memory.fact("mark"), memory.search("lion")) == (0, "", [])
    check_made_anew(full)


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE words",
        "DROP TABLE totals",
        "DELETE FROM totals",
        "DROP TABLE facts",
        "ALTER TABLE texts DROP COLUMN label",
        "ALTER TABLE texts RENAME COLUMN text TO content",
        "UPDATE totals SET count = NULL",
        "UPDATE totals SET count = 'many', length = x'00'",
        "UPDATE texts SET terms = 'fewer'",
        "UPDATE texts SET times = x''",
        "UPDATE texts SET text = NULL",
        "UPDATE texts SET text = 7, norm = 'long'",
        "UPDATE texts SET text = x'ff00'",
        "UPDATE texts SET label = NULL",
        "UPDATE texts SET length = -1, norm = 0",
        "UPDATE totals SET count = -5, length = -5",
        "INSERT INTO words (words) VALUES ('delete-all')",
        "DELETE FROM texts",
    ],
)
def test_a_file_that_is_not_as_we_made_it(change: str, full: Path) -> None:
    """It has the right version, but another program has changed it."""
    with closing(sqlite3.connect(full)) as db:
        db.executescript(change)
    before = others(full)
    check_damaged(full)
    assert others(full) == before


FOREIGN = {
    "of another application": "PRAGMA application_id = 252006674; CREATE TABLE texts (id)",
    "of another application, empty": "PRAGMA application_id = 252006674; PRAGMA user_version = 1",
    "without a mark": "CREATE TABLE their (own); INSERT INTO their VALUES ('data')",
    "without a mark, of our version": "CREATE TABLE texts (id, text); PRAGMA user_version = 1",
    "with a log": "PRAGMA journal_mode = WAL; CREATE TABLE their (own); INSERT INTO their VALUES ('data')",
    "with a log and a mark": "PRAGMA application_id = 77; PRAGMA journal_mode = WAL; CREATE TABLE their (own)",
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("end", ["leave", "close"])
def test_another_programs_database_is_left_as_it_is(content: str, end: str, path: Path) -> None:
    """To the byte, with the log that a killed process has left."""
    if end == "leave":
        said("leave", path, content)
    else:
        with closing(sqlite3.connect(path)) as db:
            db.executescript(content)
    assert path.exists()
    check_left_alone(path, lambda: raw_files(path.parent))


def test_another_programs_database_is_not_thrown_away_when_ours_is(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(FOREIGN["without a mark"])
    before = raw_files(path.parent)
    with opened(path) as memory:
        memory.add("new", ZEBRA)
        memory.cache.rebuild()
        assert (len(memory), memory.cache.is_kept) == (0, False)
    assert raw_files(path.parent) == before


def test_what_is_of_no_use_is_thrown_away(full: Path) -> None:
    with opened(full) as memory:
        memory.cache.rebuild()
        assert (memory.held(), memory.fact("mark"), memory.cache.is_kept) == ({}, "", True)
        memory.add("new", ZEBRA)
    with opened(full) as memory:
        assert list(memory.held()) == ["new"]
    check_made_anew(full)


def test_another_programs_database_may_be_in_use(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(FOREIGN["without a mark"])
    before = raw_files(path.parent)
    with held(path, "BEGIN EXCLUSIVE"):
        assert not answers(path)
    assert raw_files(path.parent) == before


NO_DATABASE = {
    "empty": b"",
    "one byte": b"\0",
    "text": b"What I learnt today\n" * 300,
    "zeros": bytes(8192),
    "only the head": b"SQLite format 3\0",
    "a head and zeros": b"SQLite format 3\0" + bytes(4080),
    "noise": random.Random(6).randbytes(20_000),
}


@pytest.mark.parametrize("content", NO_DATABASE.values(), ids=NO_DATABASE)
def test_what_is_no_database_is_made_anew(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    check_made_anew(path)


# --- a damaged file ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file with enough in it for several levels."""
    path = tmp_path_factory.mktemp("sound") / "index"
    with opened(path) as memory:
        texts = [
            (f"id-{number}", f"Step {number}: the {animal} needs a database migration, said {number * 7919}")
            for number in range(40)
            for animal in ("lion", "tiger")
        ]
        memory.add_all([*OLD.items(), *texts])
        memory.update({}, mark="up to date")
    return path.read_bytes()


def check_damaged(path: Path) -> None:
    """Every question is answered, also after reopening, and what is added is kept."""
    for _ in range(2):
        with opened(path) as memory:
            memory.search("lion database migration 7919")
            memory.repeat_of(OLD["old-0"])
            assert len(memory) >= 0
            assert set(memory.get(OLD)) <= set(OLD)
            memory.held()
            memory.remove("id-1", "old-1")
            memory.update({}, since=memory.fact("mark"), mark="seen")
            memory.add("new", ZEBRA)
            assert "new" in dict(memory.search("zebra"))
    with opened(path) as memory:
        assert memory.cache.is_kept
        assert memory.get(["new"]) == {"new": (ZEBRA, "")}


def replace(path: Path, content: bytes) -> None:
    for part in ("", "-wal", "-shm", "-journal"):
        Path(f"{path}{part}").unlink(missing_ok=True)
    path.write_bytes(content)


def damages(path: Path, contents: Iterator[tuple[str, bytes]]) -> list[str]:
    wrong = []
    for name, content in contents:
        try:
            replace(path, content)
            check_damaged(path)
        except Exception as error:  # a sweep reports everything it found
            wrong.append(f"{name}: {type(error).__name__}: {error}")
    return wrong


def test_a_file_that_was_cut_off_anywhere(path: Path, sound: bytes) -> None:
    before = others(path)
    places = [*range(0, 200, 9), *range(200, len(sound), 1531), *range(4096, len(sound), 4096), len(sound) - 1]
    assert damages(path, ((f"cut at {place}", sound[:place]) for place in places)) == []
    assert others(path) == before


def test_a_file_that_was_cut_off_is_never_taken_for_whole(path: Path, sound: bytes) -> None:
    """Updates of the memory rely on its mark, which must not hide a loss."""
    for place in range(4096, len(sound), 4096):
        replace(path, sound[:place])
        with opened(path) as memory:
            count = len(memory.held())
            assert (memory.fact("mark") == "") == (count < 83), f"{count} texts of a file cut off at {place}"


def flipped(sound: bytes, seed: int) -> bytes:
    chance = random.Random(seed)
    data = bytearray(sound)
    for _ in range(chance.choice([1, 1, 2, 8, 40])):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def test_a_file_with_flipped_bits(path: Path, sound: bytes) -> None:
    before = others(path)
    assert damages(path, ((f"seed {seed}", flipped(sound, seed)) for seed in range(200))) == []
    assert others(path) == before


def test_a_file_with_a_page_of_something_else(path: Path, sound: bytes) -> None:
    def pages() -> Iterator[tuple[str, bytes]]:
        for start in range(0, len(sound), 4096):
            for filler in (b"\0", b"\xff", b"\x0d"):
                yield f"{filler!r} at {start}", sound[:start] + filler * 4096 + sound[start + 4096 :]

    before = others(path)
    assert damages(path, pages()) == []
    assert others(path) == before


# --- not a file at all ------------------------------------------------------------------------------


def tree(top: Path) -> dict[str, object]:
    """Everything there is, including links and pipes."""
    seen: dict[str, object] = {}
    for entry in sorted(top.rglob("*")):
        info = entry.lstat()
        content = os.readlink(entry) if entry.is_symlink() else entry.read_bytes() if entry.is_file() else None
        seen[str(entry)] = (info.st_mode, info.st_ino, content)
    return seen


def put(kind: str, path: Path) -> None:
    if kind == "folder":
        path.mkdir()
        (path / "inside").write_text("mine")
    elif kind == "link to a file":
        (path.parent / "target").write_text("mine")
        path.symlink_to("target")
    elif kind == "link to a memory":
        fill(path.parent / "target")
        path.symlink_to("target")
    elif kind == "dangling link":
        path.symlink_to("nowhere")
    elif kind == "link to itself":
        path.symlink_to(path.name)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(os.path.relpath(path))


@pytest.mark.parametrize(
    "kind", ["folder", "link to a file", "link to a memory", "dangling link", "link to itself", "fifo", "socket"]
)
def test_what_is_no_plain_file_is_left_alone(kind: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    put(kind, path)
    check_left_alone(path, lambda: tree(path.parent))


@pytest.mark.parametrize(
    "place", ["nowhere/memory.index", "progress.json/memory.index", "x" * 300, "y" * 200 + "/" + "z" * 200]
)
def test_where_no_file_can_be_there_is_none(place: str, path: Path) -> None:
    check_left_alone(path.parent / place, lambda: tree(path.parent))


NAMES = ["a b", "a?b=c", "a#b", "a%41b", "file:a", ":memory:", "ä", "-x", "'", "a\nb", os.fsdecode(b"a\xffb"), "名"]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_path_may_have_any_name(name: str, path: Path) -> None:
    folder = path.parent / name
    folder.mkdir()
    check_made_anew(folder / name)
    assert os.listdir(folder) == [name]
    with held(folder / name, "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE"), opened(folder / name) as memory:
        assert memory.search("zebra")[0][0] == "new"


@pytest.mark.parametrize("part", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize("kind", ["folder", "link to a file", "dangling link", "fifo"])
def test_what_lies_in_place_of_a_part_of_the_file(kind: str, part: str, full: Path) -> None:
    """In a separate process, which can be killed: nothing will ever write to a pipe."""
    put(kind, Path(f"{full}{part}"))
    target = full.parent / "target"
    before = target.read_bytes() if target.exists() else None
    for number in range(2):
        assert f"new-{number}" in said("add", full, f"new-{number}", ZEBRA)["held"]
    assert (target.read_bytes() if target.exists() else None) == before


# --- what may not be changed ------------------------------------------------------------------------


@contextmanager
def modes(**paths: tuple[Path, int]) -> Iterator[None]:
    before = {path: path.stat().st_mode for path, _ in paths.values()}
    for path, mode in paths.values():
        path.chmod(mode)
    try:
        yield
    finally:
        for path, mode in before.items():
            if path.exists():
                path.chmod(mode)


def contents(path: Path) -> dict[str, bytes]:
    """What matters: a log may be empty, and reading it leaves a mark in its index."""
    return {name: data for name, data in raw_files(path.parent).items() if data and not name.endswith("-shm")}


@pytest.mark.parametrize("state", ["closed", "with a log"])
@pytest.mark.parametrize(("file", "folder"), [(0o444, 0o755), (0o644, 0o555), (0o444, 0o555)])
def test_a_file_that_may_only_be_read(file: int, folder: int, state: str, full: Path) -> None:
    """It answers what it can; additions stay in the process, and the file does not change."""
    if state == "with a log":
        said("add_and_die", full, "late", "An ocelot came late")
    before = contents(full)
    with modes(file=(full, file), folder=(full.parent, folder)):
        bound = tuple(bound_by_permissions())
        seen = said("look", full, "lion", "tiger", before=bound)
        added = said("add", full, "new", ZEBRA, before=bound)
        assert seen["found"] == [["old-0"], ["old-1"]]
        assert {"new", *OLD} <= set(added["held"])
    assert added["kept"] or contents(full) == before
    with opened(full) as memory:
        assert set(OLD) <= set(memory.held())
        assert state == "closed" or memory.search("ocelot")[0][0] == "late"
        assert not added["kept"] or memory.search("zebra")[0][0] == "new"


def test_a_file_that_may_not_even_be_read(full: Path) -> None:
    before = raw_files(full.parent)
    with modes(file=(full, 0)):
        bound = tuple(bound_by_permissions())
        assert said("add", full, "new", ZEBRA, before=bound) == {"kept": False, "held": ["new"], "mark": ""}
    assert raw_files(full.parent) == before


def test_a_folder_in_which_nothing_can_be_made(path: Path) -> None:
    before = tree(path.parent)
    with modes(folder=(path.parent, 0o555)):
        bound = tuple(bound_by_permissions())
        assert said("add", path, "new", ZEBRA, before=bound)["held"] == ["new"]
        assert said("look", path, "zebra", before=bound) == {"kept": False, "held": [], "found": [[]]}
    assert tree(path.parent).keys() == before.keys()


@pytest.mark.parametrize("filler", [b"\0", b"\xff"])
def test_a_damaged_file_that_may_not_be_replaced(filler: bytes, path: Path, sound: bytes) -> None:
    """It can neither be used nor be created again."""
    for start in range(4096, len(sound), 8192):
        path.write_bytes(sound[:start] + filler * 4096 + sound[start + 4096 :])
        with modes(file=(path, 0o444), folder=(path.parent, 0o555)):
            bound = tuple(bound_by_permissions())
            said("look", path, "lion database migration 7919", before=bound)
            assert "new" in said("add", path, "new", ZEBRA, before=bound)["held"]


# --- used by others ---------------------------------------------------------------------------------

LOCKS = ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; DELETE FROM facts"]


@pytest.mark.parametrize("how", LOCKS)
def test_a_file_that_is_locked_is_read_and_left_alone(how: str, full: Path) -> None:
    with held(full, how), opened(full) as memory:
        assert memory.search("lion")[0][0] == "old-0"
        memory.add("new", ZEBRA)
        assert memory.search("zebra")[0][0] == "new"
        assert memory.search("lion")[0][0] == "old-0"
        assert not memory.cache.is_kept
        memory.add("newer", ZEBRA)
        assert set(memory.held()) == {*OLD, "new", "newer"}
    with opened(full) as memory:
        assert (set(memory.held()), memory.fact("mark")) == (set(OLD), "up to date")
    check_made_anew(full)


def test_a_lock_that_is_soon_given_back_is_waited_for(full: Path) -> None:
    with held(full, "BEGIN IMMEDIATE") as holder, ThreadPoolExecutor(1) as pool:
        added = pool.submit(said, "add", full, "new", ZEBRA)
        time.sleep(0.5)
        assert not added.done()
        assert holder.stdin
        holder.stdin.close()
        assert added.result()["kept"]
    with opened(full) as memory:
        assert set(memory.held()) == {*OLD, "new"}


def run_together(*commands: list[str]) -> list[str]:
    """Starts all at the same moment; returns the output of each."""
    started = [
        subprocess.Popen(one, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for one in commands
    ]
    time.sleep(0.3)
    for process in started:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    with ThreadPoolExecutor(len(started)) as pool:
        ends = list(pool.map(lambda process: process.communicate(timeout=PATIENCE), started))
    assert [process.returncode for process in started] == [0] * len(started), [error for _, error in ends]
    return [out for out, _ in ends]


@pytest.mark.parametrize("rounds", range(4))
@pytest.mark.parametrize("state", ["no file", "an empty file", "a file", "of another version"])
def test_what_many_processes_add_at_once_is_all_there(state: str, rounds: int, path: Path) -> None:
    if state == "an empty file":
        path.touch()
    elif state != "no file":
        fill(path)
    if state == "of another version":
        with closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA user_version = 77777")
    outs = run_together(*(command("storm", path, name, "6") for name in "abcd"))
    wanted = {json.loads(line) for out in outs for line in out.splitlines()}
    assert wanted == {f"{name}/{number}" for name in "abcd" for number in range(6)}
    with opened(path) as memory:
        assert set(memory.held()) == wanted | {"shared"} | (set(OLD) if state == "a file" else set())
        assert len(memory) == len(memory.held())
        assert len(memory.search("shared text")) > 0
    check_whole(path)


def test_no_other_process_sees_the_file_before_it_is_complete(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite can't change the journal of a file that another process reads: it was thrown away under both."""
    make = cachefile._make_tables

    def make_and_read(db: sqlite3.Connection) -> None:
        make(db)
        if path.exists() and not reader.in_transaction:
            reader.execute("ATTACH ? AS file", [str(path)])
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM file.texts").fetchall()

    monkeypatch.setattr(cachefile, "_make_tables", make_and_read)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as reader, opened(path) as memory:
        memory.add("new", ZEBRA)
        assert memory.cache.is_kept
    with opened(path) as memory:
        assert set(memory.held()) == {"new"}


def test_a_search_is_answered_while_others_replace_what_it_finds(path: Path) -> None:
    with opened(path) as memory:
        memory.add_all([(str(number), f"database text {number}") for number in range(30)])
    searches = [command("search", path, "150")] * 2
    run_together(*searches, command("replace", path, "400"))
    with opened(path) as memory:
        assert len(memory) == len(memory.held())


def test_a_file_that_is_removed_while_it_is_open(full: Path) -> None:
    with opened(full) as memory:
        for part in ("", "-wal", "-shm"):
            Path(f"{full}{part}").unlink(missing_ok=True)
        memory.add("new", ZEBRA)
        assert memory.search("zebra")[0][0] == "new"
        assert memory.search("lion")[0][0] == "old-0"
        check_made_anew(full)
        memory.add("newer", ZEBRA)
        assert memory.search(ZEBRA)
    check_kept(full)


def test_a_file_that_is_replaced_while_it_is_open(full: Path) -> None:
    """By one that was created elsewhere. SQLite may mix the two: the result is a damaged file like any other."""
    other = full.parent / "other"
    with opened(other) as memory:
        memory.add("other", "An ocelot")
    with opened(full) as memory:
        memory.add("new", ZEBRA)
        os.replace(other, full)
        memory.add("newer", ZEBRA)
        assert "newer" in dict(memory.search("zebra"))
    check_damaged(full)


def test_a_file_that_is_damaged_while_it_is_open(full: Path) -> None:
    with opened(full) as memory:
        memory.search("lion")
        full.write_bytes(b"no database at all" * 1_000)
        Path(f"{full}-wal").write_bytes(b"")
        memory.search("tiger")
        memory.add("new", ZEBRA)
        assert "new" in dict(memory.search("zebra"))
    check_made_anew(full)


# --- what a killed process leaves -------------------------------------------------------------------


def test_what_was_acknowledged_before_a_kill_is_there(full: Path) -> None:
    for number in range(3):
        said("add_and_die", full, f"late-{number}", f"Ocelot number {number}")
        assert Path(f"{full}-wal").exists()
    with opened(full) as memory:
        assert set(memory.held()) == {*OLD, "late-0", "late-1", "late-2"}
        assert len(memory.search("ocelot")) == 3
    check_made_anew(full)


@pytest.mark.parametrize("state", ["no file", "a file", "an empty file"])
@pytest.mark.parametrize(
    "content", [b"", b"\0" * 4096, b"noise" * 3_000, b"of another"], ids=["empty", "zeros", "noise", "another"]
)
def test_a_log_that_is_not_of_this_file(content: bytes, state: str, path: Path) -> None:
    if content == b"of another":
        said("add_and_die", path, "late", "An ocelot")
        logs = {part: Path(f"{path}{part}").read_bytes() for part in ("-wal", "-shm")}
        path.unlink()
    else:
        logs = dict.fromkeys(("-wal", "-shm"), content)
    for part in logs:
        Path(f"{path}{part}").unlink(missing_ok=True)
    if state == "a file":
        fill(path)
    elif state == "an empty file":
        path.touch()
    for part, data in logs.items():
        Path(f"{path}{part}").write_bytes(data)
    check_made_anew(path)
    assert sorted(os.listdir(path.parent)) == ["memory.index", "memory.index.bak", "progress.json"]


INDEX = "project/memory.index"


@dataclass(frozen=True)
class Add(Command):
    """Adds a text, in a process that can be killed or failed by strace."""

    arguments: tuple[str, ...] = ("new", ZEBRA)

    def start(self, ralph: Ralph, *before: str, **more: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*before, *command("add", "memory.index", *self.arguments)],
            cwd=ralph.root,
            env={**ralph.env, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


def index_of(ralph: Ralph) -> Path:
    return ralph.root / "memory.index"


def nothing(ralph: Ralph) -> None:
    ralph.write("progress.json", "{}")


def a_file(ralph: Ralph) -> None:
    nothing(ralph)
    fill(index_of(ralph))


def a_file_with_a_log(ralph: Ralph) -> None:
    a_file(ralph)
    said("add_and_die", index_of(ralph), "late", "An ocelot came late")


def a_file_of_another_version(ralph: Ralph) -> None:
    a_file(ralph)
    with closing(sqlite3.connect(index_of(ralph))) as db:
        db.execute("PRAGMA user_version = 77777")


def a_damaged_file(ralph: Ralph) -> None:
    nothing(ralph)
    index_of(ralph).write_bytes(b"no database at all" * 100)


STATES: dict[str, tuple[Callable[[Ralph], None], set[str]]] = {
    "nothing": (nothing, set()),
    "a file": (a_file, set(OLD)),
    "a file with a log": (a_file_with_a_log, {*OLD, "late"}),
    "a file of another version": (a_file_of_another_version, set()),
    "a damaged file": (a_damaged_file, set()),
}
# The other states lead to much the same writes: they are for RALPH_STORM=1.
SWEPT = STATES if os.environ.get("RALPH_STORM") else {name: STATES[name] for name in ("nothing", "a file with a log")}
each_state = pytest.mark.parametrize(("prepare", "there"), SWEPT.values(), ids=SWEPT)


@pytest.fixture
def top(tmp_path: Path) -> Iterator[Path]:
    need_strace()
    with in_memory(tmp_path) as folder:
        yield folder


def trial_of(top: Path, prepare: Callable[[Ralph], None]) -> Trial:
    scenes = [Scene(top / f"scene{number}", prepare) for number in range(2)]
    return Trial(Add(), scenes, {}, {}, calls_of(scenes[0], Add()))


def changes_of(trial: Trial) -> list[Call]:
    """The calls that change the file, or one beside it; of the many page writes, only a sample."""
    calls = [call for call in trial.calls if "memory.index" in call.text]
    changes = [call for call in calls if call.operation in CHANGING or "O_CREAT" in call.text]
    pages = [call for call in changes if call.operation == "pwrite"]
    return [call for call in changes if call not in pages] + pages[:: max(1, len(pages) // 12)]


def judge(ralph: Ralph, there: set[str], *, acknowledged: bool) -> None:
    """The old texts are still there, the new one is there whole or not at all, and adding it again succeeds."""
    path = index_of(ralph)
    new = {"new"} if acknowledged else set()
    with opened(path) as memory:
        held = set(memory.held())
        assert there | new <= held <= {*there, "new"}, held
        assert ("new" in dict(memory.search("zebra"))) == ("new" in held)
        assert len(memory) == len(held)
        assert (memory.fact("mark") == "up to date") == bool(there)
    assert json.loads(Add().run(ralph).stdout)["held"] == sorted({*there, "new"})
    check_whole(path)
    assert sorted(os.listdir(ralph.root)) == ["memory.index", "progress.json"]


@each_state
def test_killed_at_any_change_of_a_file(prepare: Callable[[Ralph], None], there: set[str], top: Path) -> None:
    trial = trial_of(top, prepare)
    changes = changes_of(trial)
    assert len(changes) >= 3
    calls = sample(changes, 2)

    def attempt(scene: Scene, call: Call) -> None:
        result = traced(scene.ralph, Add(), *injected(call.name, call.number, "signal=KILL"))
        assert result.exit_code in (KILLED, 0), result.stderr
        if result.exit_code == KILLED:
            trial.struck.add((call.name, call.number))
        judge(scene.ralph, there, acknowledged=bool(result.stdout))

    trial.try_each(calls, attempt)
    trial.assert_all_well()
    assert {(call.name, call.number) for call in calls} == trial.struck


# --- errors of the system ---------------------------------------------------------------------------

FAILING = {
    "ENOSPC": ("pwrite", "fdatasync", "ftruncate", "open", "mmap"),
    "EIO": ("pread", "pwrite", "fdatasync"),
}


def answered(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    assert "new" in answer["held"]
    return answer


@pytest.mark.parametrize("error", FAILING)
@pytest.mark.parametrize("state", SWEPT if os.environ.get("RALPH_STORM") else ["a file with a log"])
def test_failed_by_the_system_at_any_call(state: str, error: str, top: Path) -> None:
    """There is an answer. A full disk loses none of the old texts; if reading fails, everything is rebuilt."""
    prepare, there = STATES[state]
    trial = trial_of(top, prepare)
    calls = [call for call in trial.calls if call.operation in FAILING[error] and "memory.index" in call.text]
    calls = sample(calls[:: max(1, len(calls) // 20)], 2)
    assert len(calls) >= 3

    def check(scene: Scene, call: Call, result: Result) -> None:
        answer = answered(result)
        with opened(index_of(scene.ralph)) as memory:
            held, mark = set(memory.held()), memory.fact("mark")
        assert (mark == "up to date") == bool(there & held)
        if error == "ENOSPC":
            assert there <= held, "a full disk is no reason to throw away what there is"
            assert not answer["kept"] or "new" in held, "acknowledged, and lost"
        else:
            assert there <= held or not there & held, "it looks whole, and is not"
        assert json.loads(Add().run(scene.ralph).stdout)["kept"]
        check_whole(index_of(scene.ralph))
        assert (scene.ralph.root / "progress.json").read_text() == "{}"

    trial.fail_at(calls, error, check)
    trial.assert_all_well()


class Disk:
    """A file system of one megabyte, with a file that takes up all but some bytes of the free space."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self, but: int) -> None:
        self._ballast.unlink(missing_ok=True)
        room = shutil.disk_usage(self.folder).free
        self._ballast.write_bytes(bytes(max(0, room - but)))

    def free(self) -> None:
        self._ballast.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk takes root; the errors that strace makes show the same")
    yield Disk(folder)
    gc.collect()  # a failed connection is closed when nothing refers to it any more
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("but", [0, 4096, 16_384, 40_960, 65_536])
@pytest.mark.parametrize("state", ["no file", "a file"])
def test_a_disk_that_is_full(state: str, but: int, disk: Disk) -> None:
    path = disk.folder / "memory.index"
    if state == "a file":
        fill(path)
    disk.fill(but)
    big = "".join(f"word{number} " for number in range(9_000))
    with opened(path) as memory:
        assert state == "no file" or memory.search("lion")[0][0] == "old-0"
        memory.add("new", ZEBRA)
        is_kept = memory.cache.is_kept
        memory.add("big", big)
        assert memory.search("word77")[0][0] == "big"
        assert memory.search("zebra")[0][0] == "new"
        assert not memory.cache.is_kept
    disk.free()
    with opened(path) as memory:
        assert set(memory.held()) >= ({*OLD} if state == "a file" else set())
        assert not is_kept or memory.search("zebra")[0][0] == "new"
    check_made_anew(path)
