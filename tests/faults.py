"""Faults on purpose: projects that can be restored, commands killed or failed by strace, races with a common start."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import pytest
from patience import PATIENCE
from project import COMMAND, Ralph, Result

WORKERS = min(4, os.cpu_count() or 1)
KILLED = -9
SMALL = 16 * os.sysconf("SC_PAGE_SIZE")  # bytes of a small disk in memory, where each file takes at least a page

# The system calls that can perform an operation. Which one the C library makes depends on the architecture:
# x86-64 has them all, aarch64 only those that take a folder (`unlinkat`), newer ones only the last of them.
OPERATIONS = {
    "open": ("open", "openat", "openat2"),
    "stat": ("stat", "lstat", "fstat", "newfstatat", "fstatat64", "statx"),
    "access": ("access", "faccessat", "faccessat2"),
    "readlink": ("readlink", "readlinkat"),
    "read": ("read",),
    "pread": ("pread64",),
    "list": ("getdents", "getdents64"),
    "flock": ("flock",),
    "mmap": ("mmap", "mmap2"),
    "write": ("write",),
    "writev": ("writev",),
    "pwrite": ("pwrite64",),
    "truncate": ("truncate", "truncate64"),
    "ftruncate": ("ftruncate", "ftruncate64"),
    "fsync": ("fsync",),
    "fdatasync": ("fdatasync",),
    "rename": ("rename", "renameat", "renameat2"),
    "link": ("link", "linkat"),
    "symlink": ("symlink", "symlinkat"),
    "unlink": ("unlink", "unlinkat"),
    "mkdir": ("mkdir", "mkdirat"),
    "rmdir": ("rmdir", "unlinkat"),
    "chmod": ("chmod", "fchmod", "fchmodat", "fchmodat2"),
    "chown": ("chown", "lchown", "fchown", "fchownat"),
}

# Operations that change files. `open` does so only if it creates a file; the caller has to check that.
CHANGING = frozenset(
    (
        *("write", "pwrite", "writev", "ftruncate", "truncate", "fsync", "fdatasync"),
        *("rename", "link", "symlink", "unlink", "mkdir", "rmdir", "chmod", "chown"),
    )
)

# --- location -----------------------------------------------------------------------------------------

_MEMORY = Path("/dev/shm")
_ROOM = 256 << 20


@contextmanager
def in_memory(otherwise: Path) -> Iterator[Path]:
    """A folder whose files are in memory, if that is possible: thousands of commands sync every file they write.

    A kill is not a power failure: what a process has written survives its death, on any medium.
    """
    if not _has_room(_MEMORY):
        yield otherwise
        return
    with tempfile.TemporaryDirectory(prefix="ralph-faults-", dir=_MEMORY) as folder:
        yield Path(folder)


def _has_room(place: Path) -> bool:
    try:
        return os.access(place, os.W_OK) and shutil.disk_usage(place).free > _ROOM
    except OSError:
        return False


# --- states -----------------------------------------------------------------------------------------

Files = dict[str, str]
"""Every file, by its path within the scene. Moments of time and the scene's place are replaced by names."""

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_ASIDE = re.compile(r"((?:^|/)\.[^/]+\.ralph-aside)(?:-\d+)?$")


def raw_files(top: Path) -> dict[str, bytes]:
    """Every file as it is; a folder has a slash at the end and no content."""
    seen = {}
    for folder, folders, names in os.walk(top):
        place = folder[len(str(top)) :].lstrip("/")
        seen.update({os.path.join(place, name, ""): b"" for name in folders})
        seen.update({os.path.join(place, name): Path(folder, name).read_bytes() for name in names})
    return seen


def comparable(raw: dict[str, bytes], top: Path, times: dict[str, str]) -> Files:
    """Makes two runs of the same commands comparable, whenever and wherever they ran.

    The same time gets the same name everywhere: its time links a lock to its session. `times` has the names given
    so far; it grows. The id of the process that wrote aside is left out.
    """

    def named(found: re.Match[str]) -> str:
        return times.setdefault(found[0], f"<time {len(times)}>")

    seen = {}
    for path in sorted(raw):
        if not path.endswith("/"):
            text = raw[path].decode("latin-1").replace(str(top), "<top>")
            name = _TIME.sub("<moment>", _ASIDE.sub(r"\1", path))
            seen[name] = _DAY.sub("<day>", _TIME.sub(named, text))
    return seen


def asides(files: Iterable[str]) -> list[str]:
    """The files that a killed writer may leave behind, hidden beside the file that it was about to write."""
    return [path for path in files if _ASIDE.search(path)]


def without_asides(files: Files) -> Files:
    return {path: text for path, text in files.items() if not _ASIDE.search(path)}


class Scene:
    """A project in a prepared state, restored as often as needed."""

    def __init__(self, top: Path, prepare: Callable[[Ralph], object]) -> None:
        self.top = top / "now"
        self._saved = top / "saved"
        self.top.mkdir(parents=True)
        self.ralph = Ralph(self.top)
        prepare(self.ralph)
        shutil.copytree(self.top, self._saved)
        self._raw = raw_files(self.top)
        self._times: dict[str, str] = {}
        self.old = comparable(self._raw, self.top, self._times)

    def restore(self) -> None:
        if raw_files(self.top) != self._raw:
            shutil.rmtree(self.top)
            shutil.copytree(self._saved, self.top)

    def files(self) -> Files:
        return comparable(raw_files(self.top), self.top, dict(self._times))

    def whole(self) -> Hashable:
        """Everything that a command can find here: files, folders, contents and permissions."""
        return frozenset(self.files().items()), self.modes()

    def modes(self) -> Hashable:
        """The kind, mode and number of names of every file and folder."""
        found = {str(path.relative_to(self.top)): path.lstat() for path in self.top.rglob("*")}
        named = {_TIME.sub("<moment>", _ASIDE.sub(r"\1", path)): info for path, info in found.items()}
        return frozenset((path, info.st_mode, info.st_nlink) for path, info in named.items())


# --- strace -----------------------------------------------------------------------------------------


def need_strace() -> None:
    """Fails the test, never skips it: without strace nothing would be tested, and that would go unnoticed."""
    if shutil.which("strace") is None:
        pytest.fail("strace is not installed, and these tests need it: `scripts/test` installs it", pytrace=False)
    probe = subprocess.run(["strace", "-qq", "-o", os.devnull, "true"], capture_output=True, text=True)
    if probe.returncode:
        pytest.fail(f"strace can't trace here (a container may need SYS_PTRACE): {probe.stderr}", pytrace=False)


@dataclass(frozen=True)
class Command:
    """`ralphtool agent …` in a session, run directly or under strace."""

    arguments: tuple[str, ...]
    session: str = "s1"

    def run(self, ralph: Ralph) -> Result:
        return ended(self.start(ralph))

    def start(self, ralph: Ralph, *before: str, **more: str) -> subprocess.Popen[bytes]:
        """Starts it, as arguments of the command `before` if there is one."""
        return subprocess.Popen(
            [*before, COMMAND, "agent", *self.arguments],
            cwd=ralph.root,
            env={**ralph.env, "RALPH_SESSION": self.session, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


def ended(process: subprocess.Popen[bytes], timeout: float = PATIENCE) -> Result:
    """How a process ended. One that hangs is a failure like any other, and is killed."""
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return Result(subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr))


# strace stops only at the calls in question. Injected signals get lost that way, injected errors don't.
FILTERED = "--seccomp-bpf"


def traced(ralph: Ralph, command: Command, *options: str, log: str = os.devnull) -> Result:
    """Runs a command under strace. If a signal kills the command, strace ends by the same signal."""
    return ended(command.start(ralph, "strace", "-f", "-qq", "-y", "-o", log, *options))


def list_names(operations: Iterable[str]) -> str:
    """The operations' system calls, for strace. The question mark allows names that are unknown here."""
    return ",".join(sorted({f"?{name}" for operation in operations for name in OPERATIONS[operation]}))


def injected(name: str, number: int, fault: str) -> list[str]:
    """The options that inject a fault into the command's `number`-th call of a system call.

    strace counts each system call separately: `inject=all:…:when=5` would affect only the first one that
    reaches five.
    """
    return ["-e", f"trace={name}", "-e", f"inject={name}:{fault}:when={number}"]


@dataclass(frozen=True)
class Call:
    """One system call of a command: the `number`-th of its `name`, which depends on the architecture.

    So tests use the operation; the name is only for strace, which counts by name.
    """

    name: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.name} #{self.number}: {self.text[:160]}"

    @property
    def operation(self) -> str:
        if self.name == "unlinkat":
            return "rmdir" if "AT_REMOVEDIR" in self.text else "unlink"
        return _OPERATION_OF.get(self.name, self.name)

    @property
    def is_answer(self) -> bool:
        return self.name == "write" and self.text.startswith("1<")


_OPERATION_OF = {name: operation for operation, names in OPERATIONS.items() for name in names}
_LINE = re.compile(r"^\d+ +(\w+)\((.*)$")


def calls_in(log: Path) -> list[Call]:
    counts: Counter[str] = Counter()
    calls = []
    for line in log.read_text(errors="replace").splitlines():
        if found := _LINE.match(line):
            counts[found[1]] += 1
            # strace shows the working directory with each path: that alone does not mean a call on our files.
            calls.append(Call(found[1], counts[found[1]], re.sub(r"AT_FDCWD<[^>]*>", "AT_FDCWD", found[2])))
    return calls


def calls_of(scene: Scene, command: Command) -> list[Call]:
    """Every system call that the command makes, in order."""
    scene.restore()
    log = scene.top.parent / "calls.log"
    result = traced(scene.ralph, command, log=str(log))
    assert result.exit_code == 0, result.stderr
    return calls_in(log)


class Stopped:
    """A command that is stopped after one system call, until it is resumed."""

    def __init__(self, scene: Scene, command: Command, call: Call) -> None:
        self._log = scene.top.parent / "stopped.log"
        self._log.write_text("")
        fault = injected(call.name, call.number, "signal=STOP")
        self._process = command.start(scene.ralph, "strace", "-f", "-qq", "-o", str(self._log), *fault)
        self._pid = self._wait()

    def _wait(self) -> int:
        while self._process.poll() is None:
            for line in self._log.read_text(errors="replace").splitlines():
                if line.endswith("--- stopped by SIGSTOP ---"):
                    return int(line.split()[0])
            time.sleep(0.002)
        raise AssertionError(f"it did not stop: {ended(self._process).stderr}")

    def go_on(self) -> Result:
        os.kill(self._pid, signal.SIGCONT)
        return ended(self._process)


# --- one fault after another ------------------------------------------------------------------------


@dataclass
class Trial:
    """What a command does from a prepared state, and the outcomes of the faults that were tried on it."""

    command: Command
    scenes: list[Scene]
    old: Files
    new: Files
    calls: list[Call]
    struck: set[tuple[str, int]] = field(default_factory=set)
    states: list[Files] = field(default_factory=list)
    judged: set[Hashable] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    guard: Lock = field(default_factory=Lock)

    @classmethod
    def prepare(cls, top: Path, prepare: Callable[[Ralph], object], command: Command) -> Trial:
        scenes = [Scene(top / f"scene{number}", prepare) for number in range(WORKERS)]
        assert command.run(scenes[0].ralph).exit_code == 0
        new = scenes[0].files()
        return cls(command, scenes, scenes[0].old, new, calls_of(scenes[0], command))

    def calls_on_files(self, operations: Iterable[str] | None = None) -> list[Call]:
        """The calls on files of the project and of the temporary directory, and the one that prints the answer."""
        top, wanted = str(self.scenes[0].top), None if operations is None else set(operations)
        calls = [call for call in self.calls if top in call.text or call.is_answer]
        return [call for call in calls if wanted is None or call.operation in wanted]

    def is_first(self, files: Files) -> bool:
        with self.guard:
            if files in self.states:
                return False
            self.states.append(files)
            return True

    def is_new(self, outcome: Hashable) -> bool:
        """Whether this outcome is new. A judge that depends on nothing else need not judge an equal one again."""
        with self.guard:
            if outcome in self.judged:
                return False
            self.judged.add(outcome)
            return True

    def try_each(self, calls: Iterable[Call], attempt: Callable[[Scene, Call], None]) -> None:
        """Makes an attempt at every call, in parallel, each from the prepared state; collects the failures."""
        self._work_off(deque(calls), attempt)

    def _work_off(self, jobs: deque[Call], attempt: Callable[[Scene, Call], None]) -> None:
        def work(scene: Scene) -> None:
            while jobs and len(self.failures) < 5:
                try:
                    job = jobs.popleft()
                except IndexError:  # another thread was faster
                    return
                scene.restore()
                try:
                    attempt(scene, job)
                except (AssertionError, LookupError, ValueError, OSError, subprocess.TimeoutExpired) as error:
                    self.failures.append(f"after {job}\n{type(error).__name__}: {error}")

        with ThreadPoolExecutor(len(self.scenes)) as pool:
            list(pool.map(work, self.scenes))

    def kill_at(self, calls: Sequence[Call], judge: Callable[[Scene, Files], None]) -> None:
        """Kills the command when it enters each of these calls, and at further ones if it then makes more."""
        jobs = deque(calls)
        totals = Counter(call.name for call in self.calls)

        def attempt(scene: Scene, call: Call) -> None:
            result = traced(scene.ralph, self.command, *injected(call.name, call.number, "signal=KILL"))
            files = scene.files()
            if result.exit_code == KILLED:
                self.struck.add((call.name, call.number))
                if call.number >= totals[call.name]:
                    jobs.append(Call(call.name, call.number + 1, "one more"))
            else:
                assert result.exit_code == 0, result.stderr
                assert files == self.new, "the command survived, and did not do its work"
            if self.is_first(files):
                judge(scene, files)

        self._work_off(jobs, attempt)

    def fail_at(self, calls: Sequence[Call], error: str, judge: Callable[[Scene, Call, Result], None]) -> None:
        """Makes each of these calls fail with a system error."""

        def attempt(scene: Scene, call: Call) -> None:
            log = scene.top.parent / "failed.log"
            options = injected(call.name, call.number, f"error={error}")
            result = traced(scene.ralph, self.command, FILTERED, *options, log=str(log))
            struck = [one for one in calls_in(log) if "(INJECTED)" in one.text]
            assert [(one.name, one.number) for one in struck] == [(call.name, call.number)]
            self.struck.add((call.name, call.number))
            judge(scene, call, result)

        self.try_each(calls, attempt)

    def assert_all_well(self) -> None:
        assert not self.failures, "\n\n".join([f"{len(self.failures)} went wrong", *self.failures])


# --- races ------------------------------------------------------------------------------------------


class Race:
    """Commands that start at the same moment: each waits for its line of input until all have been launched."""

    def __init__(self, ralph: Ralph) -> None:
        self.ralph = ralph
        self._gate, self._opener = os.pipe()
        self._open = True
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Race:
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
                process.communicate()
        self.go()

    def enter(self, script: str, *arguments: str, **env: str) -> None:
        """Adds a shell script, in which `ralphtool` is the command under test."""
        prelude = f'read -r _; ralphtool() {{ {shlex.quote(COMMAND)} "$@" </dev/null; }}\n'
        self._running.append(
            subprocess.Popen(
                ["sh", "-c", prelude + script, "sh", *arguments],
                cwd=self.ralph.root,
                env={**self.ralph.env, **env},
                stdin=self._gate,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )

    def go(self) -> None:
        """Closes the pipe that all of them wait for."""
        if self._open:
            os.close(self._gate)
            os.close(self._opener)
            self._open = False

    def running(self) -> bool:
        return any(process.poll() is None for process in self._running)

    def results(self) -> list[Result]:
        """How each ended, in the order in which they were added."""
        self.go()
        with ThreadPoolExecutor(max(1, len(self._running))) as pool:
            return list(pool.map(lambda process: ended(process, timeout=PATIENCE), self._running))
