"""The memory's texts in SQLite: a cache, which may be deleted at any time, and is rebuilt if it can't be used.

An index of words (FTS5) finds the texts with a word. If the file can't be used, the texts are kept only in this
process; `cachefile.py` decides that.
"""

from __future__ import annotations

import os
import sqlite3

from ralphtool.memory import cachefile
from ralphtool.memory.cachefile import CACHE_ERRORS, FileConnection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    Result = TypeVar("Result")

_AT_ONCE = 500  # values in one query: SQLite has a limit


class CacheDamaged(sqlite3.DatabaseError):
    """The file contains something that we can't have written."""


class MemoryCache:
    """One connection to the file, or to a database in memory as a substitute."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = os.fspath(path) if path is not None else None
        self.times_made = 0  # if it changes, earlier results are from another database
        self.is_kept = False  # whether added texts persist
        self._db = self._open()
        self._known_db: sqlite3.Connection | None = None  # the connection that `_knows_fts` is about
        self._knows_fts = True

    def close(self) -> None:
        self._db.close()

    def rebuild(self) -> None:
        """Discards the current database, which proved unusable."""
        self._db.close()
        self.times_made += 1
        self._db = self._open(self._identity)

    def reopen(self) -> None:
        """Uses the file again, if it was unusable for a while."""
        if self.path and not self.is_kept and (found := cachefile.open_file(self.path)):
            self._db.close()
            self.times_made += 1
            self._take(found)
            self._db = found

    # --- queries and changes ----------------------------------------------------------------------

    def ask(self, question: str, *values: Any, read: Callable[[list[Any]], Any] = list) -> Any:
        """The rows as decoded by `read`; if that fails, they are damaged."""

        def work(db: sqlite3.Connection) -> Any:
            rows = db.execute(question, values).fetchall()
            try:
                return read(rows)
            except (ValueError, TypeError, AttributeError) as error:
                raise CacheDamaged(str(error)) from error

        return self._patiently(work)

    def select(
        self, columns: str, table: str, key: str, values: Sequence[Any], read: Callable[[list[Any]], Any] = list
    ) -> list[Any]:
        """The rows whose key is one of these values, however many."""
        rows: list[Any] = []
        for start in range(0, len(values), _AT_ONCE):
            part = values[start : start + _AT_ONCE]
            places = ", ".join("?" * len(part))
            rows += self.ask(f"SELECT {columns} FROM {table} WHERE {key} IN ({places})", *part, read=read)
        return rows

    def find_texts(self, word: str, limit: int) -> list[int]:
        """The texts that contain a word, the newest first."""
        fts = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid DESC LIMIT ?", f'"{word}"'
        plain = "SELECT num FROM plain_words WHERE word = ? ORDER BY num DESC LIMIT ?", word
        if self._known_db is not self._db:
            self._knows_fts, self._known_db = self._patiently(_has_fts), self._db
        question, value = fts if self._knows_fts else plain
        return [number for (number,) in self.ask(question, value, limit)]

    def change(self, work: Callable[[sqlite3.Connection], object]) -> None:
        """Runs `work` as one transaction: after a kill, all or nothing of it is done."""
        self._patiently(lambda db: _run_transaction(db, work))

    # --- an unusable file -------------------------------------------------------------------------

    def _patiently(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Runs `work`; if the file is unusable, with a new one; if that fails too, without a file."""
        for _ in range(2):
            try:
                return work(self._db)
            except CACHE_ERRORS as error:
                self._db = self._replace_connection(error)
        try:
            return work(self._db)
        except CACHE_ERRORS:
            self._db.close()
            self.times_made, self.is_kept, self._db = self.times_made + 1, False, cachefile.open_in_memory()
            return work(self._db)

    def _replace_connection(self, error: Exception) -> sqlite3.Connection:
        self.times_made += 1
        if self.path is None or not self.is_kept or not cachefile.is_file_broken(error):
            self.is_kept = False
            fresh = cachefile.copy_to_memory(self._db)
            self._db.close()
            return fresh
        self._db.close()
        return self._open(self._identity)

    def _open(self, broken: cachefile.Identity | None = None) -> sqlite3.Connection:
        db = cachefile.open_file(self.path, broken) if self.path else None
        self._take(db)
        return db or cachefile.open_in_memory()

    def _take(self, db: sqlite3.Connection | None) -> None:
        self.is_kept = isinstance(db, FileConnection)
        self._identity = cachefile.read_identity(self.path) if self.path and self.is_kept else None


def index_words(db: sqlite3.Connection, number: int, terms: str) -> None:
    if _has_fts(db):
        db.execute("INSERT INTO words (rowid, terms) VALUES (?, ?)", (number, terms))
    else:
        db.executemany("INSERT INTO plain_words VALUES (?, ?)", [(word, number) for word in terms.split()])


def merge_words(db: sqlite3.Connection) -> None:
    """Called after adding many texts: otherwise a later addition pays for the merge."""
    if _has_fts(db):
        db.execute("INSERT INTO words (words) VALUES ('optimize')")


def remove_words(db: sqlite3.Connection, number: int, terms: str) -> None:
    if _has_fts(db):
        db.execute("INSERT INTO words (words, rowid, terms) VALUES ('delete', ?, ?)", (number, terms))
    else:
        values = [(word, number) for word in terms.split()]
        db.executemany("DELETE FROM plain_words WHERE word = ? AND num = ?", values)


def _has_fts(db: sqlite3.Connection) -> bool:
    return not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'plain_words'").fetchone()


def _run_transaction(db: sqlite3.Connection, work: Callable[[sqlite3.Connection], object]) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        work(db)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
