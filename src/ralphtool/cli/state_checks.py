"""The checks of `ralphtool doctor` for leftovers of runs: locks, the working tree, `.ralph/`, the disk."""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
from functools import partial
from typing import TYPE_CHECKING

from ralphtool.cli.checks import from_error, is_alive, ok, warning, wrong
from ralphtool.core import files, layout, lifecycle, locks
from ralphtool.core.project import is_name
from ralphtool.errors import IoError, RalphError
from ralphtool.history import neighbour
from ralphtool.history.store import Store
from ralphtool.record import change_state, questions
from ralphtool.workspace import in_place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphtool.cli.checks import Diagnosis, DoctorContext
    from ralphtool.core.locks import ChangeLock

_MIB = 1 << 20
_TOO_LITTLE_SPACE = 100 * _MIB  # with less, the next run is likely to fail
_LITTLE_SPACE = 1024 * _MIB


def check_writable(project: DoctorContext) -> Iterator[Diagnosis]:
    """A run writes in the project, in git's folder, and in the temporary directory."""
    git = [project.repository.common] if project.repository else []
    for path in (project.root, project.folder, *git):
        if os.path.isdir(path) and not os.access(path, os.W_OK | os.X_OK):
            yield _describe_read_only(path)
            return  # one is enough: the others usually have the same cause
    try:
        files.tmp_dir()
    except IoError as error:
        yield from_error("project", error)


def _describe_read_only(path: str) -> Diagnosis:
    text = f"{path} can't be written, but a run must write to it"
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return wrong("project", f"{text}: its file system is read-only", "mount it writable, or use a copy")
    is_ours = os.stat(path).st_uid == os.geteuid()
    quoted = shlex.quote(path)
    return wrong("project", text, f"chmod u+w {quoted}" if is_ours else f'sudo chown -R "$(id -un)" {quoted}')


def check_locks(project: DoctorContext) -> Iterator[Diagnosis]:
    folder = layout.locks(project.root)
    locks.check_folders(project.root)
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        change = name.removesuffix(".lock")
        if name.endswith(".lock") and is_name(change):
            yield from _check_lock(project.root, change)


def _check_lock(root: str, change: str) -> Iterator[Diagnosis]:
    unlock = f"ralphtool unlock {change}"
    try:
        lock = locks.read_lock(root, change)
    except RalphError as error:
        yield wrong("locks", str(error), unlock, partial(_unlock, root, change))
        return
    if lock is None or lock.fields["unlocked"]:
        return  # the next session takes over its buffers
    if lock.is_abandoned:
        text = f"{change} is locked by {_describe_dead_lock(lock)}; the next run takes it over"
        yield warning("locks", text, unlock, partial(_unlock, root, change))
    else:
        yield ok("locks", f"{change} is locked by {lock.describe()}")


def _describe_dead_lock(lock: ChangeLock) -> str:
    return f"{lock.describe()}, which is {'dead' if lock.has_dead_owner else 'gone'}"


def _unlock(root: str, change: str) -> str:
    return lifecycle.unlock(root, change) or f"{change} is already released"


def check_tree(project: DoctorContext) -> Iterator[Diagnosis]:
    note = in_place.find_note(project.repository, project.root) if project.repository else None
    if note is None:
        return
    if is_alive(project.root, note.change, note.run):
        yield ok("tree", f"the run {note.run} uses your working tree; your own files are restored when it ends")
    else:
        text = f"the run {note.run} was killed: your branch and your own files must be restored"
        yield wrong("tree", text, "ralphtool back")


def check_history(project: DoctorContext) -> Iterator[Diagnosis]:
    store = Store(project.root)  # not History, which would import an old progress.txt
    try:
        if not os.path.isdir(project.folder):
            return
        problems = store.ask(lambda state: [reason for _, reason in state.catalog.problems()])
    except RalphError as error:
        path = os.path.relpath(store.path, project.root)
        yield wrong("history", str(error), f"ralphtool progress validate {shlex.quote(path)}")
        return
    finally:
        store.close()
    yield from _check_neighbour(project.root)
    if problems:
        text = f"{'; '.join(problems[:5])}: the next write sets them aside"
        yield warning("history", text, "ralphtool progress fold", partial(_fold, project.root))
    if os.path.lexists(store.damaged_path):
        text = f"unreadable records were set aside in {store.damaged_path}"
        yield warning("history", text, "check whether anything is missing, then delete that file")
    elif not problems and os.path.lexists(store.path):
        yield ok("history", "the history can be read")


def _check_neighbour(root: str) -> Iterator[Diagnosis]:
    ours, other = neighbour.find_path(root), os.path.join(layout.folder(root), layout.HISTORY)
    if ours == other or not os.path.lexists(other):
        return
    if neighbour.is_foreign_file(other):
        text = f".ralph/{layout.HISTORY} belongs to another program and is not touched"
        yield ok("history", f"{text}; the history of ralphtool is .ralph/{layout.HISTORY_APART}")
    else:
        text = f".ralph/{layout.HISTORY} is also a history, but is not used: .ralph/{layout.HISTORY_APART} is"
        yield warning("history", text, "keep one of them: move the other away")


def _fold(root: str) -> str:
    store = Store(root)
    try:
        store.fold()
    finally:
        store.close()
    return f"unreadable records are set aside in {store.damaged_path}"


def check_change_states(project: DoctorContext) -> Iterator[Diagnosis]:
    folder = layout.change_states(project.root)
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        change = name.removesuffix(".json")
        if not name.endswith(".json") or not is_name(change):
            continue
        try:
            change_state.load(project.root, change)
        except RalphError as error:
            path = shlex.quote(change_state.path_of(project.root, change))
            yield wrong("standing", str(error), f"mv {path} {path}.damaged")


def check_memory(project: DoctorContext) -> Iterator[Diagnosis]:
    path = layout.memory_index(project.root)
    if not os.path.lexists(path):
        return
    if why := _find_database_problem(path):
        text = f"{path} can't be used ({why}); it is only a cache and is rebuilt"
        yield warning("memory", text, f"rm {shlex.quote(path)}", partial(_remove_cache, path))


def _find_database_problem(path: str) -> str:
    if os.path.islink(path) or not os.path.isfile(path):
        return "it is not a regular file"
    try:
        db = sqlite3.connect(f"file:{_quote_for_uri(path)}?mode=ro", uri=True, timeout=5)
        try:
            [(told,)] = db.execute("PRAGMA quick_check(1)")
        finally:
            db.close()
    except (sqlite3.Error, UnicodeDecodeError, ValueError) as error:
        return "" if "locked" in str(error) else str(error)  # another process is using it
    return "" if told == "ok" else str(told)


def _quote_for_uri(path: str) -> str:
    return os.path.abspath(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _remove_cache(path: str) -> str:
    for name in (path, f"{path}-journal", f"{path}-wal", f"{path}-shm"):
        files.clear(name)
    return f"{path} is removed"


def check_questions(project: DoctorContext) -> Iterator[Diagnosis]:
    waiting = [one for one in questions.list_open(project.root) if one.answer is None]
    for one in waiting[:5]:
        text = f"story {one.story} of {one.change} needs your answer"
        command = questions.build_answer_command(project.root, one)
        yield warning("questions", text, f"ralphtool questions, then {command}")


def check_disk(project: DoctorContext) -> Iterator[Diagnosis]:
    seen = set()
    try:
        places = [project.root, files.tmp_dir()]
    except IoError:
        places = [project.root]  # which is a separate finding
    for place in places:
        device = os.stat(place).st_dev
        if device not in seen:
            seen.add(device)
            yield from check_disk_space(place, shutil.disk_usage(place).free)


def check_disk_space(place: str, free: int) -> Iterator[Diagnosis]:
    if free >= _LITTLE_SPACE:
        return
    text = f"the disk of {place} has {free // _MIB} MiB left"
    yield (wrong if free < _TOO_LITTLE_SPACE else warning)("disk", text, "free some disk space")
