"""Every error that a user can see, as one tree.

    RalphError
    ├── UsageError        USAGE              the command line is wrong (exit 2)
    ├── SessionRequired   SESSION_REQUIRED   RALPH_SESSION is not set
    ├── SessionNotFound   SESSION_NOT_FOUND  no such session
    ├── SessionExists     SESSION_EXISTS     the session is busy with another change
    ├── StoryRequired     STORY_REQUIRED     no story is in scope
    ├── StoryNotFound     STORY_NOT_FOUND    the change has no such story
    ├── ChangeNotFound    CHANGE_NOT_FOUND   no spec has such a change
    ├── ChangeLocked      CHANGE_LOCKED      another session or run has locked the change
    ├── TaskNotFound      TASK_NOT_FOUND     the change has no such task
    ├── TaskOutOfScope    TASK_OUT_OF_SCOPE  the task belongs to another story
    ├── InvalidName       INVALID_NAME       not a session id or a change name
    ├── InvalidValue      INVALID_VALUE      an argument or a setting that can't be used
    │   └── WrongSetting                     a setting or a flag that can't be used (exit 2)
    ├── SpecError         SPEC_ERROR         the spec can't be read, or contradicts itself
    ├── CorruptState      CORRUPT_STATE      one of ralphtool's own files is damaged
    ├── UnsafePath        UNSAFE_PATH        a link, a special file or another user's file is where ralphtool's belongs
    ├── IoError           IO_ERROR           the system could not read or write a file
    ├── GitError          GIT_ERROR          git failed; the message contains git's own
    ├── TreeBusy          TREE_BUSY          the working tree can't be used now
    ├── SetupFailed       SETUP_FAILED       the setup commands could not prepare the environment
    ├── RunDied           RUN_DIED           a run ended without recording its end
    ├── DraftFailed       DRAFT_FAILED       the agent drafted no usable change
    └── RemoteFailed      REMOTE_FAILED      a server (of workers, or of OpenTelemetry) can't be reached
        └── RemoteRefused REMOTE_REFUSED     that server refuses the request; waiting does not help

The message of an error says what happened and what to do next. `code` is for programs.
Any other exception that escapes is a bug in ralphtool.
"""

import errno

__all__ = [
    "ChangeLocked",
    "ChangeNotFound",
    "CorruptState",
    "DraftFailed",
    "GitError",
    "InvalidName",
    "InvalidValue",
    "IoError",
    "RalphError",
    "RemoteFailed",
    "RunDied",
    "SessionExists",
    "SessionNotFound",
    "SessionRequired",
    "SetupFailed",
    "SpecError",
    "StoryNotFound",
    "StoryRequired",
    "TaskNotFound",
    "TaskOutOfScope",
    "TreeBusy",
    "UnsafePath",
    "UsageError",
    "WrongSetting",
]


class RalphError(Exception):
    code = "INTERNAL"
    exit_code = 1


class UsageError(RalphError):
    code = "USAGE"
    exit_code = 2


class SessionRequired(RalphError):
    code = "SESSION_REQUIRED"


class SessionNotFound(RalphError):
    code = "SESSION_NOT_FOUND"


class SessionExists(RalphError):
    code = "SESSION_EXISTS"


class StoryRequired(RalphError):
    code = "STORY_REQUIRED"


class StoryNotFound(RalphError):
    code = "STORY_NOT_FOUND"


class ChangeNotFound(RalphError):
    code = "CHANGE_NOT_FOUND"


class ChangeLocked(RalphError):
    code = "CHANGE_LOCKED"


class TaskNotFound(RalphError):
    code = "TASK_NOT_FOUND"


class TaskOutOfScope(RalphError):
    code = "TASK_OUT_OF_SCOPE"


class InvalidName(RalphError):
    code = "INVALID_NAME"


class InvalidValue(RalphError):
    code = "INVALID_VALUE"


class WrongSetting(InvalidValue):
    exit_code = 2


class SpecError(RalphError):
    code = "SPEC_ERROR"


class CorruptState(RalphError):
    code = "CORRUPT_STATE"


class UnsafePath(RalphError):
    code = "UNSAFE_PATH"


class IoError(RalphError):
    code = "IO_ERROR"


class GitError(RalphError):
    code = "GIT_ERROR"

    def __init__(self, message: str, full_disk: str = "") -> None:
        """`full_disk` is a folder whose disk was full, so that git failed."""
        super().__init__(message)
        self.full_disk = full_disk


class TreeBusy(RalphError):
    code = "TREE_BUSY"


class SetupFailed(RalphError):
    code = "SETUP_FAILED"


class RunDied(RalphError):
    code = "RUN_DIED"


class DraftFailed(RalphError):
    code = "DRAFT_FAILED"


class RemoteFailed(RalphError):
    code = "REMOTE_FAILED"


class RemoteRefused(RemoteFailed):
    """The server can be reached but refuses the request: waiting does not help."""

    code = "REMOTE_REFUSED"


_ADVICE = {
    errno.ENOSPC: "free some space on that disk and run the command again",
    errno.EDQUOT: "your disk quota is used up: free some space and run the command again",
    errno.EROFS: "that file system is read-only: make it writable and run the command again",
    errno.EACCES: "check the permissions of that path and run the command again",
    errno.EPERM: "check the owner and the permissions of that path and run the command again",
    errno.EIO: "the disk reported a fault: check it, then run the command again",
}

_ADVICE_ON_PATH = "check what is at that path and run the command again"
_ADVICE_ELSE = "run the command again; if it fails again, `ralphtool doctor` may find the cause"


def from_os_error(error: OSError) -> IoError:
    """The only place where system errors become messages for people."""
    where = f"{error.filename}: " if error.filename else ""
    advice = _ADVICE.get(error.errno or 0, _ADVICE_ON_PATH if where else _ADVICE_ELSE)
    return IoError(f"{where}{error.strerror or error}; {advice}")


def shorten(text: str, limit: int = 60) -> str:
    """Makes hostile or huge input safe to quote in a message."""
    shown = ascii(text[: limit + 1])
    return shown if len(text) <= limit else f"{shown[: limit - 1]}…' ({len(text)} characters)"
