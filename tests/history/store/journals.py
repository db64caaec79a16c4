"""A damaged journal, and how the store continues with it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from history.store.plain import Content, answers, on_disk
from history.store.samples import entry

from ralphtool.history import History


class Journaled(NamedTuple):
    """A project with a document and a journal, recreated as often as needed."""

    document: bytes
    journal: bytes
    expected: Content

    def make(
        self, root: Path, journal: bytes | None = None, *, document: bytes | None = None, index: bool = False
    ) -> History:
        """Building an index takes time: unless it is wanted, a folder in its place prevents it."""
        folder = root / ".ralph"
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("index", "journal.damaged"):
            (folder / f"progress.{name}").unlink(missing_ok=True)
        (folder / "progress.json").write_bytes(self.document if document is None else document)
        (folder / "progress.journal").write_bytes(self.journal if journal is None else journal)
        if not index:
            (folder / "progress.index.aside/inside").mkdir(parents=True, exist_ok=True)
        return History(str(root))

    @property
    def text(self) -> bytes:
        """The journal without the spare room at its end."""
        return self.journal.rstrip(b"\0")


def damaged(history: History) -> bytes:
    path = Path(history.damaged_path)
    return path.read_bytes() if path.exists() else b""


def goes_on(history: History, before: Content | None = None) -> Content:
    """Checks that the next write succeeds, changes nothing else, and is visible. Returns the content before it."""
    before = answers(history) if before is None else before
    added = history.append_next("next", lambda iteration: entry(iteration, "next"))
    expected = before._replace(entries=(*before.entries, added))
    assert answers(History(history.root)) == answers(history) == expected
    assert history.problems() == []
    history.fold()
    assert on_disk(history) == expected
    return before
