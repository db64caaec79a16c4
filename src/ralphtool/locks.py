"""Who holds a change: the lock that a session takes when it begins and gives back when it ends.

The lock lies in the project and outlives the command that took it. Whoever needs several things takes
the folder of the locks first, then the session, then the spec: one order, so that nobody waits in a circle.
"""

import os

from ralphtool import files, learnings, project, quickjson, session
from ralphtool.errors import ChangeLocked, CorruptState, SessionExists
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

    def __init__(self, fields: "dict[str, Any]") -> None:
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


def read_lock(root: str, change: str) -> Lock | None:
    path = lock_path(root, change)
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
    return Lock(fields)


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
    # A lock can come with somebody else's repository: it must not make us read or remove any other file.
    if not isinstance(path, str) or not path.endswith(".json") or not os.path.isabs(path):
        return False
    folder, name = os.path.split(path)
    return folder.endswith("/ralph/sessions") and project.is_name(name[: -len(".json")])


def holder(root: str, change: str) -> Lock | None:
    lock = read_lock(root, change)
    return None if lock is None or lock.abandoned else lock


def home_of(state: "State", start: str | None = None) -> tuple[str, Lock | None]:
    """The project that a session works in: the nearest one whose lock names the session."""
    here = os.path.abspath(start or os.getcwd())
    for folder in project.upward(here):
        if os.path.isdir(os.path.join(folder, ".ralph")):
            lock = read_lock(folder, state["change_name"])
            if lock is not None and lock.belongs_to(state):
                return folder, lock
    return project.find(here), None


# --- beginning and ending ---------------------------------------------------------------------------


class Locks:
    """All transitions of a project's locks happen while this is held: of many beginners exactly one wins."""

    def __init__(self, root: str) -> None:
        files.own_dir(os.path.join(root, ".ralph"))
        files.own_dir(locks_dir(root))
        self._lock = files.Locked(locks_dir(root))

    def __enter__(self) -> None:
        self._lock.__enter__()

    def __exit__(self, *exception: "Any") -> None:
        self._lock.__exit__(*exception)


class _Estate:
    """What abandoned sessions left, locked until it has been handed over: nothing recorded meanwhile is lost."""

    def __init__(self, lock: Lock | None) -> None:
        self.wanted = lock.estate if lock else []
        self.found: list[tuple[files.Locked, State]] = []

    def __enter__(self) -> "_Estate":
        try:
            for path, made in self.wanted:
                self._take(path, made)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _take(self, path: str, made: str) -> None:
        held = files.Locked(path, ours=True)
        try:
            held.__enter__()
        except FileNotFoundError:
            return
        self.found.append((held, {}))
        state = session.parse(held.read(), path)
        if state["created_at"] == made:
            self.found[-1] = (held, state)

    def __exit__(self, *exception: "Any") -> None:
        for held, _ in self.found:
            held.__exit__(None, None, None)

    @property
    def items(self) -> "list[tuple[str, State]]":
        return [(held.path, state) for held, state in self.found if state]


def begin(
    root: str, session_id: str, change: str, spec: str | None = None, owner: "dict[str, Any] | None" = None
) -> "State":
    """Takes the change and makes the session; what an abandoned session had buffered comes along.

    The learnings file is made here too: it has to be there before the first story.
    """
    path = session.path_of(session_id)
    learnings.exists(learnings.path_of(change))
    if not os.path.lexists(lock_path(root, change)):
        _refuse_second_use(path, session_id)
    with Locks(root):
        old = read_lock(root, change)
        if old is not None and not old.abandoned:
            raise ChangeLocked(
                f"{change} is held by {old.describe()}: wait for its flush, or if it is dead, "
                f"`ralphtool unlock {change}`"
            )
        with _Estate(old) as estate:
            return _take_over(root, session.fresh(session_id, change), path, spec, owner, estate)


def _take_over(
    root: str, state: "State", path: str, spec: str | None, owner: "dict[str, Any] | None", estate: _Estate
) -> "State":
    again = any(path == left for left, _ in estate.items)
    if not again:
        _refuse_second_use(path, state["session_id"])
    for _, legacy in estate.items:
        session.inherit(state, legacy)
    learnings.ensure(state["change_name"])
    # The lock first: killed before the session's file is there, it counts as abandoned, and names the estate.
    _write_lock(root, state, path, spec, owner, estate)
    _make_session(path, state, again)
    for left, _ in estate.items:
        if left != path:
            files.remove(left)
    return state


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
    root: str, state: "State", path: str, spec: str | None, owner: "dict[str, Any] | None", estate: _Estate
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
    files.replace(lock_path(root, state["change_name"]), session.encode(fields))


def _make_session(path: str, state: "State", again: bool) -> None:
    if again:
        files.replace(path, session.encode(state))
        return
    files.make_private_folders(path)
    with files.Locked(os.path.dirname(path)):
        try:
            files.create(path, session.encode(state))
        except FileExistsError:
            raise _exists(state["session_id"]) from None


def end(session_id: str, root: str, write: "Callable[[State], Result]") -> "Result":
    """Writes out what the session buffered, gives the change free, and removes the session, in that order."""
    if not os.path.isdir(locks_dir(root)):
        with Held(session_id) as held:
            return _close(held, write)
    with Locks(root), Held(session_id) as held:
        return _close(held, write, root)


def _close(held: Held, write: "Callable[[State], Result]", root: str | None = None) -> "Result":
    result = write(held.state)
    change = held.state["change_name"]
    lock = read_lock(root, change) if root else None
    if root and lock is not None and lock.belongs_to(held.state):
        files.remove(lock_path(root, change))
    held.remove()
    return result


def unlock(root: str, change: str, *, force: bool = False) -> str | None:
    """The human's way: the change is free, and the holder's buffers wait for the next session. Tells what was done."""
    path = lock_path(root, change)
    if not os.path.lexists(path):
        return None
    with Locks(root):
        try:
            lock = read_lock(root, change)
        except CorruptState:
            os.replace(path, f"{path}.damaged")
            return f"the damaged lock is now {path}.damaged"
        if lock is None:
            return None
        return _give_up(path, lock, force)


def _give_up(path: str, lock: Lock, force: bool) -> str:
    if lock.owner and not lock.abandoned and not force:
        raise ChangeLocked(
            f"{lock.fields['change_name']} is held by {lock.describe()}, which is at work: stop that process, "
            "or repeat with --force"
        )
    if any(os.path.lexists(left) for left, _ in lock.estate):
        files.replace(path, session.encode(lock.fields | {"unlocked": True}))
    else:
        files.remove(path)
    return f"{lock.describe()} holds it no longer"
