"""The memory's texts in SQLite: a cache, which may be thrown away at any time, and is made anew when it is of no use.

An index of words (FTS5) tells which texts have a word. A file that is locked by somebody, that we may not write, or
that is not ours is left alone; then the texts are kept in this process only.
"""

from __future__ import annotations

import os
import sqlite3
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    Result = TypeVar("Result")

_OURS = 0x52414C50  # in the head of the file: RALP
_FORMAT = 1  # another one is made anew; to be raised when words are found otherwise than before
_PATIENCE = 1.0  # seconds for somebody else's writing
_AT_ONCE = 500  # values in one question: SQLite has a limit
_TABLES = """\
CREATE TABLE texts (num INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB UNIQUE, text BLOB, label TEXT, terms TEXT,
  times BLOB, length INTEGER, norm REAL, vector BLOB);
CREATE INDEX texts_without_vector ON texts (num) WHERE vector IS NULL;
CREATE TABLE totals (count INTEGER, length INTEGER);
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
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
# Where SQLite was built without FTS5. It does the same; adding costs more.
_PLAIN_WORDS = "CREATE TABLE plain_words (word TEXT, num INTEGER, PRIMARY KEY (word, num)) WITHOUT ROWID;"


class Cache:
    """One connection to the file, or to a database in memory that stands in for it."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = os.fspath(path) if path is not None else None
        self._db = (_opened(self.path) if self.path and _is_free(self.path) else None) or _in_memory()

    def close(self) -> None:
        self._db.close()

    @property
    def is_kept(self) -> bool:
        """Whether what is added will be there after reopening."""
        return bool(self._db.execute("PRAGMA database_list").fetchone()[2])

    def ask(self, question: str, *values: Any) -> list[Any]:
        return self._patiently(lambda db: db.execute(question, values).fetchall())

    def select(self, columns: str, table: str, key: str, values: Sequence[Any]) -> list[Any]:
        """The rows whose key is one of these, of which there may be any number."""
        rows: list[Any] = []
        for start in range(0, len(values), _AT_ONCE):
            part = values[start : start + _AT_ONCE]
            places = ", ".join("?" * len(part))
            rows += self.ask(f"SELECT {columns} FROM {table} WHERE {key} IN ({places})", *part)
        return rows

    def try_again(self) -> None:
        """Uses the file again, if it could not be used for a while."""
        if self.path and not self.is_kept and _is_free(self.path) and (found := _opened(self.path)):
            self._db.close()
            self._db = found

    # --- which texts have a word ------------------------------------------------------------------

    def texts_with(self, word: str, limit: int) -> list[int]:
        """The newest ones first."""
        if self._has_fts:
            question = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid DESC LIMIT ?"
            return [number for (number,) in self.ask(question, f'"{word}"', limit)]
        question = "SELECT num FROM plain_words WHERE word = ? ORDER BY num DESC LIMIT ?"
        return [number for (number,) in self.ask(question, word, limit)]

    @property
    def _has_fts(self) -> bool:
        return has_fts(self._db)

    def renew(self) -> None:
        """Throws away what is there, which turned out to be of no use."""
        self._db.close()
        if self.path and _is_free(self.path):
            remove(self.path)
        self._db = (_opened(self.path) if self.path and _is_free(self.path) else None) or _in_memory()

    def change(self, work: Callable[[sqlite3.Connection], object]) -> None:
        """Does something as one step: after a kill all of it is there, or nothing."""
        self._patiently(lambda db: _at_once(db, work))

    def _patiently(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Where the file is of no use, with a new one; where that can't be, without a file."""
        for _ in range(2):
            try:
                return work(self._db)
            except sqlite3.Error as error:
                self._db = self._another(error)
        try:
            return work(self._db)
        except sqlite3.Error:
            self._db.close()
            self._db = _in_memory()
            return work(self._db)

    def _another(self, error: sqlite3.Error) -> sqlite3.Connection:
        if self.path is None or not self.is_kept or _is_busy(error):
            return self._copied()
        self._db.close()
        remove(self.path)
        return _opened(self.path) or _in_memory()

    def _copied(self) -> sqlite3.Connection:
        """What can still be read, in memory."""
        fresh = _in_memory()
        try:
            self._db.backup(fresh)
            fresh.execute("SELECT count(*) FROM texts, totals")
        except sqlite3.Error:
            fresh = _in_memory()
        self._db.close()
        return fresh


def index_words(db: sqlite3.Connection, number: int, terms: str) -> None:
    if has_fts(db):
        db.execute("INSERT INTO words (rowid, terms) VALUES (?, ?)", (number, terms))
    else:
        db.executemany("INSERT INTO plain_words VALUES (?, ?)", [(word, number) for word in terms.split()])


def forget_words(db: sqlite3.Connection, number: int, terms: str) -> None:
    if has_fts(db):
        db.execute("INSERT INTO words (words, rowid, terms) VALUES ('delete', ?, ?)", (number, terms))
    else:
        values = [(word, number) for word in terms.split()]
        db.executemany("DELETE FROM plain_words WHERE word = ? AND num = ?", values)


def has_fts(db: sqlite3.Connection) -> bool:
    return not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'plain_words'").fetchone()


def remove(path: str) -> None:
    """Throws the cache away."""
    for name in (path, f"{path}-wal", f"{path}-shm", f"{path}-journal"):
        try:
            os.unlink(name)
        except OSError:
            pass  # what can't be removed can't be opened as ours either


def _is_free(path: str) -> bool:
    """Whether a file of ours may lie there: nothing does, or a plain file."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _opened(path: str) -> sqlite3.Connection | None:
    """The file as it is, or made anew; None if it is somebody else's, or can't be used."""
    for _ in range(2):
        db = None
        try:
            db = _connect(path)
            if _is_current(db) and not _has_strange_things(db):
                return db
            whose = db.execute("PRAGMA application_id").fetchone()[0]
            if whose not in (0, _OURS) or (whose == 0 and db.execute("SELECT 1 FROM sqlite_master").fetchone()):
                db.close()
                return None  # another program's database
            db.close()
            remove(path)
            return _made(path)
        except (sqlite3.Error, ValueError) as error:  # the latter for bytes that are no text
            if db:
                db.close()
            if _is_busy(error) or not _is_free(path):
                return _read_only(path)
            remove(path)
        except OSError:
            return None
    return None


def _connect(path: str, *, is_fixed: bool = False) -> sqlite3.Connection:
    if is_fixed:
        from urllib.parse import quote

        path = f"file:{quote(path)}?immutable=1"
    db = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False, uri=is_fixed)
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA cache_size = -16000")
    return db


def _is_current(db: sqlite3.Connection) -> bool:
    head = [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
    return head == [_OURS, _FORMAT]


def _has_strange_things(db: sqlite3.Connection) -> bool:
    """Views and triggers could do things when asked, or take for ever: none of them is ours."""
    return bool(db.execute("SELECT 1 FROM sqlite_master WHERE type IN ('view', 'trigger')").fetchone())


def _made(path: str) -> sqlite3.Connection | None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    db = _connect(path)
    db.execute("PRAGMA journal_mode = WAL")  # who reads does not wait for who writes, and a commit needs no sync
    _make_tables(db)
    return db


def _read_only(path: str) -> sqlite3.Connection | None:
    """One that we may only read, in a copy of our own."""
    fresh = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    try:
        there = _connect(path, is_fixed=True)
        there.backup(fresh)
        there.close()
        if _is_current(fresh):
            return fresh
    except sqlite3.Error:
        pass  # then without
    fresh.close()
    return None


def _in_memory() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    _make_tables(db)
    return db


def _make_tables(db: sqlite3.Connection) -> None:
    words = _WORDS if _knows_fts(db) else _PLAIN_WORDS
    head = f"PRAGMA application_id = {_OURS}; PRAGMA user_version = {_FORMAT};"
    db.executescript(f"BEGIN; {_TABLES} {words} {head} COMMIT;")


def _knows_fts(db: sqlite3.Connection) -> bool:
    return bool(db.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchone())


def _is_busy(error: Exception) -> bool:
    name = getattr(error, "sqlite_errorname", "") or ""
    return name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM"))


def _at_once(db: sqlite3.Connection, work: Callable[[sqlite3.Connection], object]) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        work(db)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
