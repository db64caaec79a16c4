"""The locks of changes: reading a lock file, whether it is still valid, and finding the project of a session.

A lock is in the project and outlives the command that created it. `lifecycle` writes it.
"""

import os
import stat

from ralphtool.core import files, layout, project, quickjson
from ralphtool.errors import CorruptState, RalphError, SessionNotFound, UnsafePath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ralphtool.core.session import SessionState


def read_start_time(pid: int) -> str | None:
    """The start time of a process, as a text that is unique to it; None if it is gone or a zombie."""
    try:
        line = files.read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        boot = files.read("/proc/sys/kernel/random/boot_id").decode().strip()
    except (FileNotFoundError, ProcessLookupError):
        return _read_start_time_elsewhere(pid)
    return None if line[0] in (b"Z", b"X") else f"{boot}/{line[19].decode()}"


def _read_start_time_elsewhere(pid: int) -> str | None:
    if os.path.exists("/proc/self/stat"):
        return None
    import psutil

    try:
        return str(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return None


def _identify_machine() -> str:
    """The scope in which process ids are valid: the host, and on Linux the PID namespace."""
    try:
        return f"{os.uname().nodename} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return os.uname().nodename


def describe_process() -> "dict[str, Any]":
    """Identifies a `run` in its lock, so that others can see whether it died."""
    return {"pid": os.getpid(), "start_time": read_start_time(os.getpid()), "machine": _identify_machine()}


class ChangeLock:
    """The contents of a lock file. `is_abandoned` says whether another session may take over the change."""

    def __init__(self, root: str, fields: "dict[str, Any]") -> None:
        self.root = root
        self.fields = fields
        self.session_id: str = fields["session_id"]
        self.session_file: str = fields["session_file"]
        self.acquired_at: str = fields["acquired_at"]
        self.spec: str | None = fields["spec"]
        self.owner: dict[str, Any] | None = fields["owner"]

    @property
    def is_abandoned(self) -> bool:
        return bool(self.fields["unlocked"]) or self.has_dead_owner or not self.has_session

    @property
    def has_dead_owner(self) -> bool:
        if self.owner is None or self.owner["machine"] != _identify_machine():
            return False  # nothing is known here about a process on another machine
        return read_start_time(self.owner["pid"]) != str(self.owner["start_time"])

    @property
    def has_session(self) -> bool:
        try:
            return self.session() is not None
        except CorruptState:
            return True  # an unreadable session may still be in use: a person must decide

    def session(self) -> "SessionState | None":
        """The state of the session that created the lock, if it still exists."""
        try:
            from ralphtool.core import session  # not needed where nothing is locked

            check_private(self.session_file, self.root)
            state = session.parse(files.read_private(self.session_file), self.session_file)
        except FileNotFoundError:
            return None
        return state if self.belongs_to(state) else None

    def belongs_to(self, state: "SessionState") -> bool:
        # Another project may use the same session id: the creation time distinguishes them.
        return (self.session_id, self.acquired_at) == (state["session_id"], state["created_at"])

    @property
    def inherited_sessions(self) -> list[tuple[str, str]]:
        """The session files, each with its creation time, whose buffers the next session takes over."""
        return [(self.session_file, self.acquired_at), *[(path, made) for path, made in self.fields["inherits"]]]

    def describe(self) -> str:
        from ralphtool.core.amounts import format_recorded_time  # only messages need it

        since = f"session {self.session_id} (since {format_recorded_time(self.acquired_at) or self.acquired_at}"
        return f"{since}, process {self.owner['pid']})" if self.owner else f"{since})"


def lock_path(root: str, change: str) -> str:
    project.check_name(change, "a change's name")
    return os.path.join(layout.locks(root), f"{change}.lock")


def check_folders(root: str) -> None:
    """Refuses a link in place of one of our folders in the project."""
    for folder in (layout.folder(root), layout.locks(root)):
        if os.path.islink(folder):
            raise UnsafePath(f"{folder} must be a plain folder, but is a link: move it away")


def read_lock(root: str, change: str) -> ChangeLock | None:
    path = lock_path(root, change)
    check_folders(root)
    try:
        data = files.read_private(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fields = quickjson.loads(data.decode("utf-8"))
    except ValueError as error:
        raise _build_damaged_error(path, change, str(error)) from None
    if not _is_lock(fields, change):
        raise _build_damaged_error(path, change, "it does not name its session")
    return ChangeLock(root, fields)


def _build_damaged_error(path: str, change: str, why: str) -> CorruptState:
    return CorruptState(f"{path} is damaged ({why}): `ralphtool unlock {change}` sets it aside")


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
        and all(_is_inherited_session(item) for item in fields["inherits"])
    )


def _is_owner(owner: object) -> bool:
    if owner is None:
        return True
    return isinstance(owner, dict) and type(owner.get("pid")) is int and {"start_time", "machine"} <= set(owner)


def _is_inherited_session(item: object) -> bool:
    return isinstance(item, list) and len(item) == 2 and _is_session_path(item[0]) and isinstance(item[1], str)


def _is_session_path(path: object) -> bool:
    if not isinstance(path, str) or not path.endswith(".json") or not os.path.isabs(path):
        return False
    if os.path.normpath(path) != path or path.startswith("//"):
        return False  # each file must have only one name, so that it is locked once
    folder, name = os.path.split(path)
    return folder.endswith("/ralph/sessions") and project.is_name(name[: -len(".json")])


def check_private(path: str, root: str) -> None:
    """A lock can come with a cloned repository: it must not make us take over, or remove, other files."""
    folder = os.path.dirname(path)
    inside = os.path.realpath(folder).startswith(os.path.join(os.path.realpath(root), ""))
    if inside and folder != os.path.dirname(files.private_path("ralph", "sessions", "any")):
        raise _build_path_error(folder)
    for part in (os.path.dirname(folder), folder):
        info = os.lstat(part)
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or stat.S_IMODE(info.st_mode) & 0o077:
            raise _build_path_error(part)


def _build_path_error(path: str) -> UnsafePath:
    return UnsafePath(
        f"the change's lock names {path}, which is not a private folder of yours: release the change with `ralphtool "
        "unlock`"
    )


def list_locked_changes(root: str) -> list[str]:
    """The changes that have a lock, held or abandoned."""
    try:
        names = sorted(os.listdir(layout.locks(root)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [name[:-5] for name in names if name.endswith(".lock") and project.is_name(name[:-5])]


def find_holder(root: str, change: str) -> ChangeLock | None:
    lock = read_lock(root, change)
    return None if lock is None or lock.is_abandoned else lock


def list_completed_tasks(root: str, change: str) -> list[str]:
    """The tasks that the lock's session recorded as done, abandoned or not: some formats have no boxes."""
    lock = read_lock(root, change)
    state = lock.session() if lock else None
    return list(state["completed_tasks"]) if state else []


# --- the project of a session -----------------------------------------------------------------------


def find_project(state: "SessionState") -> tuple[str, ChangeLock | None]:
    """The project whose lock names the session, whatever the agent's current folder; else the current project."""
    here = os.getcwd()
    noted = _read_project_note(state)
    troubles: list[RalphError] = []
    for folder in [*noted, *project.list_parents(here)]:
        try:
            lock = read_lock(folder, state["change_name"])
        except (CorruptState, UnsafePath) as error:
            troubles.append(error)  # irrelevant if the lock of this session is found elsewhere
            continue
        if lock is not None and lock.belongs_to(state):
            return folder, lock
    if troubles:
        raise troubles[0]
    return _choose_project(state["session_id"], noted, here), None


def _choose_project(session_id: str, noted: list[str], here: str) -> str:
    # The lock was removed. If the project that the session began in is known, no other one may be used.
    if noted and not os.path.isdir(noted[0]):
        raise SessionNotFound(
            f"session {session_id} was created in {noted[0]}, which is gone: restore that folder, then try again"
        )
    return noted[0] if noted else project.find(here)


def note_path(state: "SessionState") -> str:
    # The creation time makes the name unique: another project may use the same session id.
    moment = state["created_at"].replace("/", "_")[:40]
    return files.private_path("ralph", "projects", f"{state['session_id']}@{moment}")


def _read_project_note(state: "SessionState") -> list[str]:
    """The project that the session began in. Agents change folders, and another project may have the same change."""
    try:
        root = os.fsdecode(files.read_private(note_path(state)))
    except FileNotFoundError:
        return []
    return [root] if os.path.isabs(root) and "\0" not in root else []


# --- is a run at work? ------------------------------------------------------------------------------

HEARTBEAT_SECONDS = 3.0  # a live run shows activity more often than that


def read_last_heartbeat(root: str, run: str) -> float | None:
    """When a run last showed activity; None if its records are gone."""
    signs = (layout.processes(root, run), layout.events(root, run))
    return max((os.stat(path).st_mtime for path in signs if os.path.exists(path)), default=None)
