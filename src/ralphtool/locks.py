"""Who holds a change: the lock that a session takes when it begins and gives back when it ends.

The lock lies in the project and outlives the command that took it. Whoever needs several things takes
the folder of the locks first, then the session, then the spec: one order, so that nobody waits in a circle.
"""

import os
import stat

from ralphtool import files, project, quickjson, session
from ralphtool.errors import ChangeLocked, CorruptState, RalphError, SessionExists, UnsafePath
from ralphtool.session import Held

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from ralphtool.session import State

    Result = TypeVar("Result")


def start_time_of(pid: int) -> str | None:
    """When a process began, in words that no other process can have; None when it is gone or a zombie."""
    try:
        line = files.read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        boot = files.read("/proc/sys/kernel/random/boot_id").decode().strip()
    except (FileNotFoundError, ProcessLookupError):
        return _start_time_without_proc(pid)
    return None if line[0] in (b"Z", b"X") else f"{boot}/{line[19].decode()}"


def _start_time_without_proc(pid: int) -> str | None:
    if os.path.exists("/proc/self/stat"):
        return None
    import psutil

    try:
        return str(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return None


def _machine() -> str:
    """Where a process id means something: the host, and on Linux the namespace of its processes."""
    try:
        return f"{os.uname().nodename} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return os.uname().nodename


def this_process() -> "dict[str, Any]":
    """What a `run` writes into the lock, so that its death can be seen."""
    return {"pid": os.getpid(), "start_time": start_time_of(os.getpid()), "machine": _machine()}


class Lock:
    """What a lock file says. `abandoned` tells whether somebody else may take the change."""

    def __init__(self, root: str, fields: "dict[str, Any]") -> None:
        self.root = root
        self.fields = fields
        self.session_id: str = fields["session_id"]
        self.session_file: str = fields["session_file"]
        self.acquired_at: str = fields["acquired_at"]
        self.spec: str | None = fields["spec"]
        self.owner: dict[str, Any] | None = fields["owner"]

    @property
    def abandoned(self) -> bool:
        return bool(self.fields["unlocked"]) or self.owner_died or not self.has_session

    @property
    def owner_died(self) -> bool:
        if self.owner is None or self.owner["machine"] != _machine():
            return False  # of a process on another machine nothing can be known from here
        return start_time_of(self.owner["pid"]) != str(self.owner["start_time"])

    @property
    def has_session(self) -> bool:
        try:
            return self.session() is not None
        except CorruptState:
            return True  # what can't be read may still be in use: only a human decides that

    def session(self) -> "State | None":
        """The state of the session that took the lock, if it is still there."""
        try:
            _check_private(self.session_file, self.root)
            state = session.parse(files.read_ours(self.session_file), self.session_file)
        except FileNotFoundError:
            return None
        return state if self.belongs_to(state) else None

    def belongs_to(self, state: "State") -> bool:
        # Another project may use the same session id: the moment tells the two apart.
        return (self.session_id, self.acquired_at) == (state["session_id"], state["created_at"])

    @property
    def estate(self) -> list[tuple[str, str]]:
        """The session files, each with its moment of creation, whose buffers the next session takes over."""
        return [(self.session_file, self.acquired_at), *[(path, made) for path, made in self.fields["inherits"]]]

    def describe(self) -> str:
        since = f"session {self.session_id} (since {self.acquired_at}"
        return f"{since}, process {self.owner['pid']})" if self.owner else f"{since})"


def locks_dir(root: str) -> str:
    return os.path.join(root, ".ralph", "locks")


def lock_path(root: str, change: str) -> str:
    project.check_name(change, "a change's name")
    return os.path.join(locks_dir(root), f"{change}.lock")


def check_folders(root: str) -> None:
    """Refuses a link where our folders of the project belong."""
    for folder in (os.path.join(root, ".ralph"), locks_dir(root)):
        if os.path.islink(folder):
            raise UnsafePath(f"{folder} must be a plain folder, and is a link: move it away")


def read_lock(root: str, change: str) -> Lock | None:
    path = lock_path(root, change)
    check_folders(root)
    try:
        data = files.read_ours(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fields = quickjson.loads(data.decode("utf-8"))
    except ValueError as error:
        raise _damaged_lock(path, change, str(error)) from None
    if not _is_lock(fields, change):
        raise _damaged_lock(path, change, "it does not say who holds the change")
    return Lock(root, fields)


def _damaged_lock(path: str, change: str, why: str) -> CorruptState:
    return CorruptState(f"{path} is damaged ({why}): `ralphtool unlock {change}` puts it aside")


def _is_lock(fields: object, change: str) -> bool:
    return (
        isinstance(fields, dict)
        and fields.get("change_name") == change
        and isinstance(fields.get("acquired_at"), str)
        and isinstance(fields.get("spec"), str | None)
        and isinstance(fields.get("unlocked"), bool)
        and _is_owner(fields.get("owner"))
        and _is_session_path(fields.get("session_file"))
        and f"{fields.get('session_id')}.json" == os.path.basename(fields["session_file"])
        and isinstance(fields.get("inherits"), list)
        and all(_is_heirloom(item) for item in fields["inherits"])
    )


def _is_owner(owner: object) -> bool:
    if owner is None:
        return True
    return isinstance(owner, dict) and type(owner.get("pid")) is int and {"start_time", "machine"} <= set(owner)


def _is_heirloom(item: object) -> bool:
    return isinstance(item, list) and len(item) == 2 and _is_session_path(item[0]) and isinstance(item[1], str)


def _is_session_path(path: object) -> bool:
    if not isinstance(path, str) or not path.endswith(".json") or not os.path.isabs(path):
        return False
    folder, name = os.path.split(path)
    return folder.endswith("/ralph/sessions") and project.is_name(name[: -len(".json")])


def _check_private(path: str, root: str) -> None:
    """A lock can come with somebody else's repository: it must not make us take over, or remove, other files."""
    folder = os.path.dirname(path)
    inside = os.path.realpath(folder).startswith(os.path.join(os.path.realpath(root), ""))
    if inside and folder != os.path.dirname(files.private_path("ralph", "sessions", "any")):
        raise _no_private_folder(folder)
    for part in (os.path.dirname(folder), folder):
        info = os.lstat(part)
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or stat.S_IMODE(info.st_mode) & 0o077:
            raise _no_private_folder(part)


def _no_private_folder(path: str) -> UnsafePath:
    return UnsafePath(f"{path} is no private folder of yours, yet the change's lock names it: `ralphtool unlock` it")


def holder(root: str, change: str) -> Lock | None:
    lock = read_lock(root, change)
    return None if lock is None or lock.abandoned else lock


# --- where a session is at home ---------------------------------------------------------------------


def home_of(state: "State") -> tuple[str, Lock | None]:
    """The project whose lock names the session, wherever the agent stands; without one, the project around us."""
    here = os.getcwd()
    troubles: list[RalphError] = []
    for folder in [*_noted_home(state["session_id"]), *project.upward(here)]:
        try:
            lock = read_lock(folder, state["change_name"])
        except (CorruptState, UnsafePath) as error:
            troubles.append(error)  # one that is none of this session's is no matter, if the right one is found
            continue
        if lock is not None and lock.belongs_to(state):
            return folder, lock
    if troubles:
        raise troubles[0]
    return project.find(here), None


def _note_path(session_id: str) -> str:
    return files.private_path("ralph", "projects", session_id)


def _noted_home(session_id: str) -> list[str]:
    """Where the session began. Agents change folders, and the next project may well have a change of the same name."""
    try:
        root = os.fsdecode(files.read_ours(_note_path(session_id)))
    except FileNotFoundError:
        return []
    return [root] if os.path.isabs(root) and "\0" not in root else []


def _note_home(session_id: str, root: str, undo: files.Undo) -> None:
    path = _note_path(session_id)
    undo.made(files.make_private_folders(path))
    undo.made([path])
    files.replace(path, os.fsencode(root))


# --- beginning and ending ---------------------------------------------------------------------------


class Locks:
    """All transitions of a project's locks happen while this is held: of many beginners exactly one wins."""

    def __init__(self, root: str) -> None:
        self._folders = [os.path.join(root, ".ralph"), locks_dir(root)]
        # The file that we lock is one that has a use of its own: it keeps the locks out of commits.
        self._guard = files.Locked(os.path.join(locks_dir(root), ".gitignore"), ours=True, make=True)
        self.made: list[str] = []

    def __enter__(self) -> "Locks":
        while True:
            try:
                self._make_folders()
                self._guard.__enter__()
                break
            except FileNotFoundError:
                self.made = []  # whoever made the folders failed, and has just taken them away again
        if not os.fstat(self._guard.fd).st_size:
            self._fill()
        return self

    def _fill(self) -> None:
        self.made.append(self._guard.path)
        try:
            with files.Undo() as undo:
                undo.made(self.made)
                os.write(self._guard.fd, b"*\n")
        except OSError:
            self._guard.__exit__(None, None, None)
            raise

    def _make_folders(self) -> None:
        with files.Undo() as undo:
            for folder in self._folders:
                self.made += files.own_dir(folder)
                undo.made(self.made[-1:])

    def __exit__(self, *exception: "Any") -> None:
        self._guard.__exit__(*exception)


class _Estate:
    """What abandoned sessions left, locked until it has been handed over: nothing recorded meanwhile is lost."""

    def __init__(self, root: str, lock: Lock | None) -> None:
        self.root = root
        self.wanted = lock.estate if lock else []
        self.items: list[tuple[str, State]] = []
        self._held: list[files.Locked] = []

    def __enter__(self) -> "_Estate":
        try:
            # One file can be named twice, for two sessions of the same id: it is locked once.
            for path in dict.fromkeys(path for path, _ in self.wanted):
                self._take(path, [made for other, made in self.wanted if other == path])
        except BaseException:
            self.__exit__()
            raise
        return self

    def _take(self, path: str, moments: list[str]) -> None:
        held = files.Locked(path, ours=True)
        try:
            _check_private(path, self.root)
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
) -> "State":
    """Takes the change and makes the session; what an abandoned session had buffered comes along.

    The learnings file is made here too: it has to be there before the first story.
    """
    from ralphtool import learnings

    path = session.path_of(session_id)
    learnings.exists(learnings.path_of(change))
    if _free(root, change) is None:
        _refuse_second_use(path, session_id)
    # The undoing happens inside of the lock: only its holder may take the locked file away.
    with Locks(root) as held, files.Undo() as undo:
        undo.made(held.made)
        with _Estate(root, _free(root, change)) as estate:
            undo.made(files.make_private_folders(path))
            undo.made(learnings.ensure(change))
            return _take_over(root, session.fresh(session_id, change), path, spec, owner, estate, undo)


def _free(root: str, change: str) -> Lock | None:
    """The abandoned lock that is there, if any; ChangeLocked for one that is held."""
    lock = read_lock(root, change)
    if lock is not None and not lock.abandoned:
        raise ChangeLocked(
            f"{change} is held by {lock.describe()}: wait for its flush, or if it is dead, `ralphtool unlock {change}`"
        )
    return lock


def _take_over(
    root: str,
    state: "State",
    path: str,
    spec: str | None,
    owner: "dict[str, Any] | None",
    estate: _Estate,
    undo: files.Undo,
) -> "State":
    again = any(path == left for left, _ in estate.items)
    if not again:
        _refuse_second_use(path, state["session_id"])
    for _, legacy in estate.items:
        session.inherit(state, legacy)
    aside = files.prepare(path, session.encode(state))
    undo.made([aside])
    _note_home(state["session_id"], root, undo)
    # The lock first: killed before the session's file is there, it counts as abandoned, and names the estate.
    _write_lock(root, state, path, spec, owner, estate, undo)
    try:
        files.publish(aside, path, over=again)
    except FileExistsError:
        raise _exists(state["session_id"]) from None
    _remove_estate(estate, path)
    return state


def _remove_estate(estate: _Estate, path: str) -> None:
    for left, legacy in estate.items:
        if left != path:
            files.remove(left)
            files.remove(_note_path(legacy["session_id"]))


def _refuse_second_use(path: str, session_id: str) -> None:
    try:
        session.parse(files.read_ours(path), path)
    except FileNotFoundError:
        return
    raise _exists(session_id)


def _exists(session_id: str) -> SessionExists:
    return SessionExists(
        f"session {session_id} exists already: end it with `ralphtool agent session flush`, or take another id"
    )


def _write_lock(
    root: str,
    state: "State",
    path: str,
    spec: str | None,
    owner: "dict[str, Any] | None",
    estate: _Estate,
    undo: files.Undo,
) -> None:
    fields = {
        "session_id": state["session_id"],
        "change_name": state["change_name"],
        "acquired_at": state["created_at"],
        "session_file": path,
        "spec": spec,
        "owner": owner,
        "unlocked": False,
        "inherits": [[left, legacy["created_at"]] for left, legacy in estate.items],
    }
    lock_file = lock_path(root, state["change_name"])
    if os.path.lexists(lock_file):
        before = files.read_ours(lock_file)
        undo.step(lambda: files.replace(lock_file, before))
    else:
        undo.made([lock_file])
    files.replace(lock_file, session.encode(fields))


def end(session_id: str, root: str, write: "Callable[[State], Result]") -> "Result":
    """Writes out what the session buffered, gives the change free, and removes the session, in that order."""
    if not os.path.isdir(locks_dir(root)):
        with Held(session_id) as held:
            return _close(held, write)
    with Locks(root), Held(session_id) as held:
        return _close(held, write, root)


def _close(held: Held, write: "Callable[[State], Result]", root: str | None = None) -> "Result":
    result = write(held.state)
    # What is written is no longer buffered: a flush that is interrupted after this has nothing to write again.
    if any(held.state[name] for name in session.BUFFERS):
        held.state.update({name: [] for name in session.BUFFERS})
        held.save()
    change = held.state["change_name"]
    lock = read_lock(root, change) if root else None
    if root and lock is not None and lock.belongs_to(held.state):
        files.remove(lock_path(root, change))
    held.remove()
    files.remove(_note_path(held.session_id))
    return result


def unlock(root: str, change: str, *, force: bool = False) -> str | None:
    """The human's way: the change is free, and the holder's buffers wait for the next session. Tells what was done."""
    path = lock_path(root, change)
    if not os.path.lexists(path):
        return None
    with Locks(root):
        try:
            lock = read_lock(root, change)
            return _give_up(path, lock, force) if lock else None
        except (CorruptState, UnsafePath):
            os.replace(path, f"{path}.damaged")
            return f"the lock could not be trusted, and is now {path}.damaged"


def _give_up(path: str, lock: Lock, force: bool) -> str:
    if lock.owner and not lock.abandoned and not force:
        raise ChangeLocked(
            f"{lock.fields['change_name']} is held by {lock.describe()}, which is at work: stop that process, "
            "or repeat with --force"
        )
    if lock.has_session or any(os.path.lexists(left) for left, _ in lock.estate):
        files.replace(path, session.encode(lock.fields | {"unlocked": True}))
    else:
        files.remove(path)
    return f"{lock.describe()} holds it no longer"
