"""The file of a memory's cache: opened if it is ours and usable, rebuilt if unusable, left alone if not ours.

Only one process at a time creates or removes it. The error decides what happens: a damaged file is replaced; a file
that is locked or read-only, or whose disk is full, is not touched.
"""

from __future__ import annotations

import os
import sqlite3
import stat

APPLICATION_ID = 0x52414C50  # in the file's header: RALP
FORMAT = 1  # a file with another one is rebuilt; raise it if words are split in another way
# The text of an error that quotes a damaged schema may not be decodable.
CACHE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
_PATIENCE = 1.0  # seconds to wait for another writer
_TEMPORARY_ERRORS = ("BUSY", "LOCKED", "READONLY", "CANTOPEN", "PERM", "FULL", "IOERR", "NOMEM", "PROTOCOL")
_TABLES = """\
CREATE TABLE texts (num INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB UNIQUE, text BLOB, label BLOB, terms TEXT,
  times BLOB, length INTEGER, norm REAL, vector BLOB);
CREATE INDEX texts_without_vector ON texts (num) WHERE vector IS NULL;
CREATE TABLE totals (count INTEGER, length INTEGER);
CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE uses (digest TEXT PRIMARY KEY, id TEXT, shown INTEGER, helped INTEGER) WITHOUT ROWID;
CREATE INDEX uses_by_help ON uses (helped) WHERE helped > 1;
CREATE TABLE attempts (entry TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE endings (is_done INTEGER PRIMARY KEY, count INTEGER);
INSERT INTO totals VALUES (0, 0);
INSERT INTO endings VALUES (0, 0), (1, 0);
"""
_WORDS = """\
CREATE VIRTUAL TABLE words USING fts5(terms, content='', detail='none', columnsize=0,
  tokenize="ascii tokenchars '._-'");
INSERT INTO words (words, rank) VALUES ('automerge', 16);
"""
# For SQLite without FTS5. It does the same, but adding costs more.
_PLAIN_WORDS = "CREATE TABLE plain_words (word TEXT, num INTEGER, PRIMARY KEY (word, num)) WITHOUT ROWID;"


class FileConnection(sqlite3.Connection):
    """A connection to a file."""


Identity = tuple[int, int]


def open_file(path: str, broken: Identity | None = None) -> sqlite3.Connection | None:
    """The existing file, or a new one; None if it is not ours, or can't be used. A broken one is replaced."""
    if not _is_usable_path(path):
        return None
    try:
        if broken is None and (db := _open_existing(path)):
            return db
        folder = _lock_folder(path)
        if folder is None:
            return None
        try:
            return _create(path, broken)
        finally:
            os.close(folder)
    except CACHE_ERRORS:
        return _open_read_only(path)
    except OSError:
        return None


def open_in_memory() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    _make_tables(db)
    return db


def copy_to_memory(db: sqlite3.Connection) -> sqlite3.Connection:
    """The part of it that is still readable, in memory."""
    fresh = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    try:
        db.backup(fresh)
        fresh.execute("SELECT count(*) FROM texts, totals")
        return fresh
    except CACHE_ERRORS:
        fresh.close()
        return open_in_memory()


def read_identity(path: str) -> Identity | None:
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino


def is_file_broken(error: Exception) -> bool:
    """Whether the file itself is broken, rather than locked, read-only, or on a full disk."""
    name = getattr(error, "sqlite_errorname", "") or ""
    return not name.removeprefix("SQLITE_").startswith(_TEMPORARY_ERRORS)


# --- creating it ------------------------------------------------------------------------------------


def _open_existing(path: str) -> sqlite3.Connection | None:
    """The file if it is ours and current. Raises an error if it is locked."""
    head = _read_head(path)
    # Another version is not even opened: on close, SQLite would clean up after a process that rebuilt it meanwhile.
    if not _is_database(head) or (_parse_owner(head), _parse_version(head)) != (APPLICATION_ID, FORMAT):
        return None
    db = None
    try:
        db = _connect(path)
        if _is_current(db) and not _has_foreign_objects(db):
            return db
    except CACHE_ERRORS as error:
        if not is_file_broken(error):
            raise
    if db:
        db.close()
    return None


def _create(path: str, broken: Identity | None) -> sqlite3.Connection | None:
    """Called with the folder locked; another process may have created the file meanwhile."""
    if (broken is None or broken != read_identity(path)) and (db := _open_existing(path)):
        return db
    head = _read_head(path)
    if _is_database(head) and _parse_owner(head) != APPLICATION_ID:
        return None
    _remove(path)
    _create_aside(f"{path}-new")
    os.replace(f"{path}-new", path)
    return _connect(path)


def _create_aside(path: str) -> None:
    """Others see the file only when it is complete: SQLite can't change the journal of one that is in use."""
    _remove(path)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    db = _connect(path)
    try:
        _make_tables(db)
        db.execute("PRAGMA journal_mode = WAL")  # readers don't wait for writers, and a commit needs no sync
    except CACHE_ERRORS:
        db.close()
        _remove(path)
        raise
    db.close()


def _make_tables(db: sqlite3.Connection) -> None:
    words = _WORDS if _can_use_fts(db) else _PLAIN_WORDS
    head = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT};"
    db.executescript(f"BEGIN; {_TABLES} {words} {head} COMMIT;")


def _can_use_fts(db: sqlite3.Connection) -> bool:
    return bool(db.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchone())


def _connect(path: str, *, is_fixed: bool = False) -> sqlite3.Connection:
    if is_fixed:
        from urllib.parse import quote

        path = f"file:{quote(os.fsencode(os.path.abspath(path)))}?immutable=1"
    db = sqlite3.connect(
        path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False, uri=is_fixed, factory=FileConnection
    )
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA cache_size = -16000")
    return db


def _is_current(db: sqlite3.Connection) -> bool:
    head = [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
    return head == [APPLICATION_ID, FORMAT]


def _has_foreign_objects(db: sqlite3.Connection) -> bool:
    """Views and triggers could have side effects, or take forever: none of them is ours."""
    return bool(db.execute("SELECT 1 FROM sqlite_master WHERE type IN ('view', 'trigger')").fetchone())


def _open_read_only(path: str) -> sqlite3.Connection | None:
    """A copy in memory of a read-only file."""
    fresh = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    try:
        there = _connect(path, is_fixed=True)
        there.backup(fresh)
        there.close()
        if _is_current(fresh) and not _has_foreign_objects(fresh):
            return fresh
    except CACHE_ERRORS:
        pass  # work without it
    fresh.close()
    return None


# --- file operations --------------------------------------------------------------------------------


def _is_usable_path(path: str) -> bool:
    """Whether we may use these paths: each is free, or a regular file."""
    return all(_is_free_or_plain(name) for name in _list_paths(path))


def _is_free_or_plain(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return True  # a path that can't be looked at can't be opened either


def _list_paths(path: str) -> tuple[str, ...]:
    return path, f"{path}-wal", f"{path}-shm", f"{path}-journal"


def _remove(path: str) -> None:
    for name in _list_paths(path):
        try:
            os.unlink(name)
        except OSError:
            pass  # one that can't be removed can't be opened as ours either


def _read_head(path: str) -> bytes:
    """The header that identifies the file, read without SQLite, which would change other programs' files."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        return os.read(fd, 100)
    finally:
        os.close(fd)


def _parse_owner(head: bytes) -> int:
    return int.from_bytes(head[68:72], "big")


def _parse_version(head: bytes) -> int:
    return int.from_bytes(head[60:64], "big", signed=True)


def _is_database(head: bytes) -> bool:
    """Whether SQLite could have written this header; a file that only claims to be a database may be replaced."""
    size = int.from_bytes(head[16:18], "big")
    is_size = size == 1 or (size >= 512 and size & (size - 1) == 0)
    return len(head) == 100 and head.startswith(b"SQLite format 3\0") and is_size and set(head[18:20]) <= {1, 2}


def _lock_folder(path: str) -> int | None:
    """Locks the folder of the file, so that only one process at a time creates or removes it."""
    import fcntl
    import time

    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for _ in range(int(_PATIENCE / 0.01)):
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return folder
        except BlockingIOError:
            time.sleep(0.01)
    os.close(folder)
    return None
