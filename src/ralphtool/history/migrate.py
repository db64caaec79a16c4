"""Migrates progress.txt, the file of earlier loops, to progress.json: once, and without losing anything.

The whole old text becomes learning-0000, and the file is kept as progress.txt.backup. If the text has the usual
structure, the items below "Codebase Patterns" also become patterns, and "Learnings for future iterations" become
learnings.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from ralphtool.core import files, layout, project, session
from ralphtool.history.journal import Batch
from ralphtool.history.records import learning_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphtool.history.records import Learning, Pattern
    from ralphtool.history.state import HistoryState
    from ralphtool.history.store import Store


# The errors of file systems without hard links.
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EMLINK, errno.EOPNOTSUPP, errno.EXDEV)


class Migration(Struct, frozen=True):
    """What was, or would be, migrated, and from where."""

    path: str
    backup: str
    learnings: tuple[Learning, ...]
    patterns: tuple[Pattern, ...]
    text: str


def run(store: Store) -> Migration | None:
    """Migrates a progress.txt if there is no progress.json yet; completes an interrupted migration."""
    found = plan(store)
    if found is None:
        return None
    made = store.create(Batch(learnings=found.learnings, patterns=found.patterns))
    if not made and not store.ask(lambda state: _is_migrated(state, store.masked(found.text))):
        return None  # another process has created a history meanwhile
    _move_to_backup(found)
    return found


def plan(store: Store) -> Migration | None:
    """What to migrate; None if there is already a history."""
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
        return None  # another process has just moved it


def _find_progress_txt(root: str) -> str | None:
    folders = (layout.folder(root), root, *_list_prd_folders(root))
    paths = (os.path.join(folder, "progress.txt") for folder in folders)
    # Not through a link: one in a cloned repository could point to a private file.
    return next((path for path in paths if os.path.isfile(path) and not os.path.islink(path)), None)


def _list_prd_folders(root: str) -> Iterator[str]:
    """Some loops keep progress.txt beside their prd.json. Folders that are links are left out, too."""
    real_root = os.path.realpath(root)
    for place in project.PRD_FILES:
        folder = os.path.dirname(os.path.join(real_root, place))
        if os.path.isfile(os.path.join(root, place)) and os.path.realpath(folder) == folder:
            yield os.path.dirname(os.path.join(root, place))


def _is_open_for(state: HistoryState, text: str) -> bool:
    """Whether there is no history (the file may be another program's), or one that began with this same text."""
    return state.document.info is None or _is_migrated(state, text)


def _is_migrated(state: HistoryState, text: str) -> bool:
    """Whether an earlier migration was interrupted after adding the text, before moving the file."""
    known = state.catalog.learning(learning_id(0))
    return known is not None and known.content == text


def _find_backup_path(path: str) -> str:
    """The new path of the old file, never that of another file. It may already be there after an interruption."""
    names = [f"{path}.backup", *(f"{path}.backup.{number}" for number in range(1, 1000))]
    return next(name for name in names if not os.path.lexists(name) or _is_same(name, path))


def _is_same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except FileNotFoundError:
        return False


def _move_to_backup(found: Migration) -> None:
    try:
        os.link(found.path, found.backup)  # unlike a rename, it never replaces anything
    except FileExistsError:
        if not _is_same(found.backup, found.path):
            _move_to_backup(structs.replace(found, backup=_find_backup_path(found.path)))
            return
    except FileNotFoundError:
        return  # another process has just done it
    except OSError as error:
        if error.errno not in _NO_LINKS or os.path.lexists(found.backup):
            raise
        os.rename(found.path, found.backup)
    files.remove(found.path)
