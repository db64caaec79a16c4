"""The tests with strace read the same operations on every architecture, whatever its system calls are named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from faults import CHANGING, OPERATIONS, Call, calls_in, injected, list_names, need_strace
from patience import PATIENCE

# As strace writes them on aarch64, where there is neither `unlink` nor `rename` nor `open`.
AARCH64 = r"""
811 openat(AT_FDCWD</top/project>, "/top/project/.a.ralph-aside", O_WRONLY|O_CREAT|O_CLOEXEC, 0666) = 3</top/project/a>
811 newfstatat(3</top/project/.a.ralph-aside>, "", {st_mode=S_IFREG|0644, st_size=0, ...}, AT_EMPTY_PATH) = 0
811 write(3</top/project/.a.ralph-aside>, "text", 4) = 4
811 fsync(3</top/project/.a.ralph-aside>) = 0
811 renameat(AT_FDCWD</top/project>, "/top/project/.a.ralph-aside", AT_FDCWD</top/project>, "/top/project/a") = 0
811 renameat2(AT_FDCWD</top/project>, "/top/project/a", AT_FDCWD</top/project>, "/top/project/b", RENAME_NOREPLACE) = 0
811 linkat(AT_FDCWD</top/project>, "/top/project/b", AT_FDCWD</top/project>, "/top/project/c", 0) = 0
811 symlinkat("/top/project/c", AT_FDCWD</top/project>, "/top/project/d") = 0
811 mkdirat(AT_FDCWD</top/project>, "/top/project/folder", 0777) = 0
811 fchmodat(AT_FDCWD</top/project>, "/top/project/c", 0600) = 0
811 unlinkat(AT_FDCWD</top/project>, "/top/project/c", 0) = 0
811 unlinkat(5</top/project>, "folder", AT_REMOVEDIR) = 0
811 unlinkat(AT_FDCWD</top/project>, "/top/project/d", 0 <unfinished ...>
811 <... unlinkat resumed>) = 0
811 getdents64(3</top/project>, 0xaaaae0d0 /* 2 entries */, 32768) = 48
811 statx(AT_FDCWD</top/project>, "/top/project/b", AT_STATX_SYNC_AS_STAT, STATX_BASIC_STATS, {stx_size=4, ...}) = 0
811 faccessat(AT_FDCWD</top/project>, "/top/project/b", R_OK) = 0
811 readlinkat(AT_FDCWD</top/project>, "/top/project/d", 0xffffd0, 4096) = -1 ENOENT (No such file or directory)
811 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|SIGCHLD, child_tidptr=0xffff9f) = 812
811 write(1<pipe:[7]>, "{}\n", 3) = 3
811 +++ exited with 0 +++
"""
MEANT = [
    *("open", "stat", "write", "fsync", "rename", "rename", "link", "symlink", "mkdir", "chmod", "unlink", "rmdir"),
    *("unlink", "list", "stat", "access", "readlink", "clone", "write"),
]

# With a folder, each of them is the call that aarch64 has; without one, the older call where there is one.
WORK = """
import os, sys
if sys.argv[1] == "aarch64":
    fd = os.open(".", os.O_RDONLY)
    one, two = {"dir_fd": fd}, {"src_dir_fd": fd, "dst_dir_fd": fd}
else:
    one, two = {}, {}
os.mkdir("folder", **one)
os.symlink("b", "d", **one)
os.rename("a", "b", **two)
os.link("b", "c", **two)
os.chmod("c", 0o600, **one)
os.unlink("c", **one)
os.unlink("d", **one)
os.rmdir("folder", **one)
"""
WORKED = ["mkdir", "symlink", "rename", "link", "chmod", "unlink", "unlink", "rmdir"]


def read(tmp_path: Path, text: str) -> list[Call]:
    log = tmp_path / "calls.log"
    log.write_text(text)
    return calls_in(log)


def trace(folder: Path, how: str, *options: str) -> tuple[int, list[Call]]:
    (folder / "a").write_text("")
    log = folder / "calls.log"
    command = ["strace", "-f", "-qq", "-y", "-o", str(log), *options, sys.executable, "-I", "-c", WORK, how]
    done = subprocess.run(command, cwd=folder, stderr=subprocess.DEVNULL, timeout=PATIENCE)
    return done.returncode, calls_in(log)


def test_calls_of_aarch64_are_the_operations_that_they_are(tmp_path: Path) -> None:
    calls = read(tmp_path, AARCH64)
    assert [call.operation for call in calls] == MEANT
    assert [call.is_answer for call in calls] == [False] * (len(calls) - 1) + [True]


def test_calls_of_aarch64_are_counted_by_the_name_that_strace_knows(tmp_path: Path) -> None:
    calls = [call for call in read(tmp_path, AARCH64) if call.name == "unlinkat"]
    assert [call.number for call in calls] == [1, 2, 3]
    assert [call.operation for call in calls] == ["unlink", "rmdir", "unlink"]
    assert injected(calls[2].name, calls[2].number, "signal=KILL")[-1] == "inject=unlinkat:signal=KILL:when=3"


@pytest.mark.parametrize(
    ("line", "operation"),
    [
        ('unlink("/x") = 0', "unlink"),
        ('unlinkat(AT_FDCWD, "/x", 0) = 0', "unlink"),
        ('rmdir("/x") = 0', "rmdir"),
        ('unlinkat(5, "x", AT_REMOVEDIR) = 0', "rmdir"),
        ('rename("/a", "/b") = 0', "rename"),
        ('renameat(AT_FDCWD, "/a", AT_FDCWD, "/b") = 0', "rename"),
        ('renameat2(AT_FDCWD, "/a", AT_FDCWD, "/b", RENAME_NOREPLACE) = 0', "rename"),
        ('open("/x", O_RDONLY) = 3', "open"),
        ('openat(AT_FDCWD, "/x", O_RDONLY) = 3', "open"),
        ('statfs("/x", {f_bsize=4096}) = 0', "statfs"),
    ],
)
def test_a_call_is_the_same_operation_by_each_of_its_names(line: str, operation: str, tmp_path: Path) -> None:
    [call] = read(tmp_path, f"7 {line}\n")
    assert call.operation == operation


def test_every_operation_that_changes_files_has_names() -> None:
    assert set(OPERATIONS) >= CHANGING


def test_the_calls_of_both_architectures_are_read_alike(tmp_path: Path) -> None:
    need_strace()
    for how in ("x86-64", "aarch64"):
        folder = tmp_path / how
        folder.mkdir()
        code, calls = trace(folder, how, "-e", f"trace={list_names({*CHANGING} - {'write'})}")
        assert (code, [call.operation for call in calls]) == (0, WORKED)
        assert how == "x86-64" or {call.name for call in calls} >= {"mkdirat", "unlinkat", "linkat"}


def test_strace_takes_names_that_the_architecture_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_strace()
    monkeypatch.setitem(OPERATIONS, "unlink", ("no_such_call", "unlink", "unlinkat"))
    fault = f"inject={list_names(['unlink'])}:error=EIO:when=1"
    code, calls = trace(tmp_path, "aarch64", "-e", f"trace={list_names(['unlink'])}", "-e", fault)
    [struck] = [call for call in calls if "(INJECTED)" in call.text]
    assert (code, struck.operation, struck.text.endswith("EIO (Input/output error) (INJECTED)")) == (1, "unlink", True)
    assert os.path.exists(tmp_path / "c")
