"""From progress.txt, which loops used to keep, to progress.json: once, and nothing is lost on the way.

The old text becomes learning-0000, whole, and the file is kept as progress.txt.backup. Besides, as far as the text
has the usual shape, what stands under "Codebase Patterns" becomes patterns, and "Learnings for future iterations"
become learnings.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from ralphtool.core import files, layout, session
from ralphtool.history.journal import Batch
from ralphtool.history.records import learning_id

if TYPE_CHECKING:
    from ralphtool.history.records import Learning, Pattern
    from ralphtool.history.state import HistoryState
    from ralphtool.history.store import Store


# What file systems answer that know no second names for a file.
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EMLINK, errno.EOPNOTSUPP, errno.EXDEV)


class Migration(Struct, frozen=True):
    """What was, or would be, taken over from where."""

    path: str
    backup: str
    learnings: tuple[Learning, ...]
    patterns: tuple[Pattern, ...]
    text: str


def run(store: Store) -> Migration | None:
    """Takes over a progress.txt if there is one and no progress.json yet; finishes what was interrupted."""
    found = plan(store)
    if found is None:
        return None
    made = store.create(Batch(learnings=found.learnings, patterns=found.patterns))
    if not made and not store.ask(lambda state: _is_migrated(state, store.masked(found.text))):
        return None  # somebody has begun a history meanwhile
    _move_to_backup(found)
    return found


def plan(store: Store) -> Migration | None:
    """What there is to take over; nothing if there is a history already."""
    path = _find_progress_txt(store.root)
    text = _read_text(path) if path else None
    if path is None or text is None:
        return None
    if os.path.lexists(store.path) and not store.ask(lambda state: _is_open_for(state, store.masked(text))):
        return None
    from ralphtool.history import progresstxt

    return Migration(path, _find_backup_path(path), *progresstxt.parse_text(text, session.now()), text)


def _read_text(path: str) -> str | None:
    try:
        return files.read(path).decode("utf-8", "replace").removeprefix("\ufeff")
    except FileNotFoundError:
        return None  # somebody else has just put it away


def _find_progress_txt(root: str) -> str | None:
    places = (os.path.join(layout.folder(root), "progress.txt"), os.path.join(root, "progress.txt"))
    # Not through a link: one that came with somebody's repository could lead to what is nobody's business.
    return next((path for path in places if os.path.isfile(path) and not os.path.islink(path)), None)


def _is_open_for(state: HistoryState, text: str) -> bool:
    """Whether there is no history (the file may be another program's), or one that was begun with this very text."""
    return state.document.info is None or _is_migrated(state, text)


def _is_migrated(state: HistoryState, text: str) -> bool:
    """Whether we were interrupted after the text had been taken over, and before the file was put away."""
    known = state.catalog.learning(learning_id(0))
    return known is not None and known.content == text


def _find_backup_path(path: str) -> str:
    """Where the old file goes: never over another one. It may be there already, if we were interrupted."""
    names = [f"{path}.backup", *(f"{path}.backup.{number}" for number in range(1, 1000))]
    return next(name for name in names if not os.path.lexists(name) or _is_same(name, path))


def _is_same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except FileNotFoundError:
        return False


def _move_to_backup(found: Migration) -> None:
    try:
        os.link(found.path, found.backup)  # which, unlike renaming, never replaces anything
    except FileExistsError:
        if not _is_same(found.backup, found.path):
            _move_to_backup(structs.replace(found, backup=_find_backup_path(found.path)))
            return
    except FileNotFoundError:
        return  # somebody else has just done it
    except OSError as error:
        if error.errno not in _NO_LINKS or os.path.lexists(found.backup):
            raise
        os.rename(found.path, found.backup)
    files.remove(found.path)
