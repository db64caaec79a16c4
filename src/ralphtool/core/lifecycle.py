"""Starts and ends sessions, and with them the locks of their changes.

Several locks are always taken in one order, to avoid deadlocks: the project's locks, the session, the spec.
"""

import errno
import os

from ralphtool.core import files, layout, learnings_file, locks, session
from ralphtool.core.session import LockedSession
from ralphtool.errors import ChangeLocked, CorruptState, SessionExists, SessionNotFound, UnsafePath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from ralphtool.core.locks import ChangeLock
    from ralphtool.core.session import SessionState

    Result = TypeVar("Result")


_MAX_TRIES = 1000  # attempts to create folders that another process keeps removing


class ProjectLock:
    """Locks of a project change only while this is held: if several sessions start at once, exactly one wins."""

    def __init__(self, root: str) -> None:
        self._folders = [layout.folder(root), layout.locks(root)]
        # The locked file also has another use: it keeps the locks out of commits.
        self._guard = files.FileLock(os.path.join(layout.locks(root), ".gitignore"), ours=True, make=True)
        self.made: list[str] = []

    def __enter__(self) -> "ProjectLock":
        for _ in range(_MAX_TRIES):
            if self._try_enter():
                return self
        raise FileNotFoundError(
            errno.ENOENT, ("it can't be created, or another program keeps deleting it"), self._folders[-1]
        )

    def _try_enter(self) -> bool:
        """Takes the lock; returns False if a failed process that created the folders has just removed them again."""
        with files.Undo() as undo:
            self.made = []
            try:
                for folder in self._folders:
                    self.made += files.ensure_folder(folder)
                    undo.made(self.made[-1:])
                self._guard.__enter__()
            except FileNotFoundError:
                return False
            if not os.fstat(self._guard.fd).st_size:
                self._fill()
        return True

    def _fill(self) -> None:
        self.made.append(self._guard.path)
        try:
            with files.Undo() as undo:
                undo.made(self.made)
                os.write(self._guard.fd, b"*\n")
        except OSError:
            self._guard.__exit__(None, None, None)
            raise

    def __exit__(self, *exception: "Any") -> None:
        self._guard.__exit__(*exception)


class _AbandonedSessions:
    """The files of abandoned sessions, locked until they are taken over, so that nothing recorded meanwhile is lost."""

    def __init__(self, root: str, lock: "ChangeLock | None") -> None:
        self.root = root
        self.wanted = lock.inherited_sessions if lock else []
        self.items: list[tuple[str, SessionState]] = []
        self._held: list[files.FileLock] = []

    def __enter__(self) -> "_AbandonedSessions":
        try:
            # One file can be named twice, for two sessions with the same id; it is locked once.
            for path in dict.fromkeys(path for path, _ in self.wanted):
                self._take(path, [made for other, made in self.wanted if other == path])
        except BaseException:
            self.__exit__()
            raise
        return self

    def _take(self, path: str, moments: list[str]) -> None:
        held = files.FileLock(path, ours=True)
        try:
            locks.check_private(path, self.root)
            held.__enter__()
        except FileNotFoundError:
            return
        self._held.append(held)
        state = session.parse(held.read(), path)
        if state["created_at"] in moments:
            self.items.append((path, state))

    def __exit__(self, *exception: "Any") -> None:
        for held in self._held:
            held.__exit__(None, None, None)


def begin(
    root: str, session_id: str, change: str, spec: str | None = None, owner: "dict[str, Any] | None" = None
) -> "SessionState":
    """Locks the change and creates the session, which takes over the buffers of an abandoned one.

    The learnings file is created here too: it must exist before the first story.
    """
    path = session.path_of(session_id)
    learnings_file.exists(learnings_file.path_of(change))
    if find_abandoned_lock(root, change) is None:
        _refuse_second_use(path, session_id)
    # Undo while the lock is held: only its holder may remove the locked file.
    with ProjectLock(root) as held, files.Undo() as undo:
        undo.made(held.made)
        with _AbandonedSessions(root, find_abandoned_lock(root, change)) as abandoned:
            return _SessionStart(root, session.build_state(session_id, change), abandoned, undo).run(spec, owner)


def find_abandoned_lock(root: str, change: str) -> "ChangeLock | None":
    """The change's abandoned lock, if any; raises ChangeLocked if the lock is held."""
    lock = locks.read_lock(root, change)
    if lock is not None and not lock.is_abandoned:
        way = "`ralphtool watch` shows it, `ralphtool stop` stops it" if lock.owner else "wait for its flush"
        raise ChangeLocked(
            f"{change} is locked by {lock.describe()}: {way}. If it is dead, run `ralphtool unlock {change}`"
        )
    return lock


def _refuse_second_use(path: str, session_id: str) -> None:
    try:
        session.parse(files.read_private(path), path)
    except FileNotFoundError:
        return
    raise _build_exists_error(session_id)


def _build_exists_error(session_id: str) -> SessionExists:
    return SessionExists(
        f"session {session_id} already exists: end it with `ralphtool agent session flush`, or use another id"
    )


class _SessionStart:
    """The steps of locking a change. Until the session's file is in place, a failing step undoes them all."""

    def __init__(self, root: str, state: "SessionState", abandoned: _AbandonedSessions, undo: files.Undo) -> None:
        self.root = root
        self.state = state
        self.abandoned = abandoned
        self.undo = undo
        self.session_id: str = state["session_id"]
        self.path = session.path_of(self.session_id)
        self.again = any(self.path == left for left, _ in abandoned.items)

    def run(self, spec: str | None, owner: "dict[str, Any] | None") -> "SessionState":
        if not self.again:
            _refuse_second_use(self.path, self.session_id)
        aside = self._prepare_session()
        self._write_project_note()
        self.undo.made(learnings_file.ensure(self.state["change_name"]))
        # The lock first: after a kill, a lock without its session file counts as abandoned and names what it inherits.
        self._write_lock(spec, owner)
        self._publish_session(aside)
        self.undo.forget()
        self._remove_abandoned()
        return self.state

    def _prepare_session(self) -> str:
        for _, legacy in self.abandoned.items:
            session.inherit(self.state, legacy)
        self.undo.made(files.make_private_folders(self.path))
        aside = files.prepare(self.path, session.encode(self.state))
        self.undo.made([aside])
        return aside

    def _publish_session(self, aside: str) -> None:
        if self.again:
            self._restore_on_failure(self.path)
        self._publish(aside, self.path, over=self.again)

    def _write_project_note(self) -> None:
        """Two projects can want one id in the same microsecond: the note of the first must stay as it is."""
        path = locks.note_path(self.state)
        self.undo.made(files.make_private_folders(path))
        aside = files.prepare(path, os.fsencode(self.root))
        self.undo.made([aside])
        self._publish(aside, path)

    def _publish(self, aside: str, path: str, *, over: bool = False) -> None:
        try:
            files.publish(aside, path, over=over)
        except FileExistsError:
            raise _build_exists_error(self.session_id) from None
        if not over:
            self.undo.made([path])
        files.finish_publish(aside, path)

    def _write_lock(self, spec: str | None, owner: "dict[str, Any] | None") -> None:
        path = locks.lock_path(self.root, self.state["change_name"])
        self._write(path, session.encode(self._lock(spec, owner)))

    def _write(self, path: str, data: bytes) -> None:
        self._restore_on_failure(path)
        files.replace(path, data)

    def _restore_on_failure(self, path: str) -> None:
        try:
            before = files.read_private(path)
        except FileNotFoundError:
            self.undo.made([path])
        else:
            self.undo.step(lambda: files.replace(path, before))

    def _lock(self, spec: str | None, owner: "dict[str, Any] | None") -> "dict[str, Any]":
        return {
            "session_id": self.session_id,
            "change_name": self.state["change_name"],
            "acquired_at": self.state["created_at"],
            "session_file": self.path,
            "spec": spec,
            "owner": owner,
            "unlocked": False,
            "inherits": [[left, legacy["created_at"]] for left, legacy in self.abandoned.items],
        }

    def _remove_abandoned(self) -> None:
        for left, legacy in self.abandoned.items:
            # Next to the old session, which may be under another temporary directory.
            name = os.path.basename(locks.note_path(legacy))
            note = os.path.join(os.path.dirname(os.path.dirname(left)), "projects", name)
            try:
                files.remove(note)
                if left != self.path:
                    files.remove(left)
            except OSError:
                pass  # harmless: its contents have been taken over, and the lock names it


def end(session_id: str, root: str, write: "Callable[[SessionState], Result]") -> "list[Result]":
    """Writes out the session's buffers, then releases the change and removes the session.

    The buffers are emptied once written, so an interrupted end writes nothing twice. Emptying them replaces the
    file that we hold; the next round writes out anything that is recorded in between.
    """
    if not os.path.isdir(layout.locks(root)):  # it was removed: there is no lock to release
        return _flush_and_end(session_id, root, write)
    with ProjectLock(root):
        return _flush_and_end(session_id, root, write)


def abort(session_id: str, root: str, change: str, *, is_resumed: bool) -> None:
    """Releases the change after a run that an error ended, or that was refused. The lock stays only for what the next
    session takes over: recorded notes, or the work of a killed run that this one has not resumed (`is_resumed`)."""
    try:
        state = session.load(session_id)
        is_needed = is_resumed or any(state[name] for name in session.BUFFERS)
    except (CorruptState, SessionNotFound):
        is_needed = True
    if is_needed:
        unlock(root, change, force=True)
    else:
        end(session_id, root, lambda state: None)


def drain(session_id: str, write: "Callable[[SessionState], object]") -> None:
    """Writes out the session's buffers; the session continues."""
    while True:
        with LockedSession(session_id) as held:
            if not any(held.state[name] for name in session.NOTES):
                return
            write(held.state)
            held.state.update({name: [] for name in session.NOTES})
            held.save()


def _flush_and_end(session_id: str, root: str, write: "Callable[[SessionState], Result]") -> "list[Result]":
    results: list[Result] = []
    while not _flush_or_end(session_id, root, write, results):
        pass
    return results


def _flush_or_end(
    session_id: str, root: str, write: "Callable[[SessionState], Result]", results: "list[Result]"
) -> bool:
    with LockedSession(session_id) as held:
        if any(held.state[name] for name in session.NOTES):
            results.append(write(held.state))
            held.state.update({name: [] for name in session.NOTES})
            held.save()
            return False
        _release_and_remove(root, held)
        return True


def _release_and_remove(root: str, held: LockedSession) -> None:
    """An agent repeats a flush that was killed, so its session is removed last. A run does not repeat its end, so its
    lock is removed last: the next run takes over the lock and the files that it names."""
    lock = locks.read_lock(root, held.state["change_name"])
    own = lock if lock is not None and lock.belongs_to(held.state) else None
    if own and not own.owner:
        files.remove(locks.lock_path(root, held.state["change_name"]))
    files.remove(locks.note_path(held.state))
    held.remove()
    if own and own.owner:
        files.remove(locks.lock_path(root, held.state["change_name"]))


def unlock(root: str, change: str, *, force: bool = False) -> str | None:
    """Releases a change for a person; the next session takes over the holder's buffers. Returns what was done."""
    path = locks.lock_path(root, change)
    if not os.path.lexists(path):
        return None
    with ProjectLock(root):
        try:
            lock = locks.read_lock(root, change)
            return _release_lock(path, lock, force) if lock else None
        except (CorruptState, UnsafePath):
            return f"the lock file was damaged; it is now {_put_aside(path)}"


def _put_aside(path: str) -> str:
    count = 0
    while os.path.lexists(place := f"{path}.damaged{f'-{count}' if count else ''}"):
        count += 1
    os.replace(path, place)
    return place


def _release_lock(path: str, lock: "ChangeLock", force: bool) -> str:
    if lock.owner and not lock.is_abandoned and not force:
        raise ChangeLocked(
            f"{lock.fields['change_name']} is locked by {lock.describe()}, which is still running: stop that "
            "process, or use --force"
        )
    if lock.fields["unlocked"]:
        return f"it is already released; the next session takes over the records of {lock.describe()}"
    if lock.has_session or any(os.path.lexists(left) for left, _ in lock.inherited_sessions):
        files.replace(path, session.encode(lock.fields | {"unlocked": True}))
    else:
        files.remove(path)
    return f"released it from {lock.describe()}"
