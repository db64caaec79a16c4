"""Running programs: clocks, transcripts, and no process left behind, whichever one is killed."""

from __future__ import annotations

import gc
import json
import os
import platform
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from faults import SMALL
from hypothesis import given
from hypothesis import strategies as st
from patience import PATIENCE

from ralphtool.core.locks import read_start_time
from ralphtool.errors import UnsafePath
from ralphtool.executors import supervisor
from ralphtool.executors.process import ProcessResult, Supervisor, end_orphans
from ralphtool.executors.transcript import Redactor

LINUX_ONLY = pytest.mark.skipif(not supervisor.LINUX, reason="it looks into /proc")

# Leaves a daemon with its own session that ignores signals; then runs the code in its argument.
DAEMON = """
import os, signal, subprocess, sys, time
ready = sys.argv[1]
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        open(ready, "w").close()
        time.sleep(3600)
    os._exit(0)
os.wait()
while not os.path.exists(ready):
    time.sleep(0.01)
exec(sys.argv[2])
"""


class Bench:
    """Runs programs with a mark, and finds those that are still running."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = f"mark-{uuid.uuid4().hex}"
        self.supervisor = Supervisor(str(folder / "processes"))
        self.into = folder / "transcript"
        self.env = {"PATH": os.environ["PATH"], "TEST_MARK": self.mark, "RALPH_SESSION": self.mark}
        self._others = psutil.Process().children()  # of fixtures that several test modules share, such as a browser

    def start(self, *argv: str, **options: Any) -> Any:
        wanted = {"cwd": str(self.folder), "env": self.env, "stdin": None, "into": str(self.into)}
        return self.supervisor.run(argv, **{**wanted, "wall": 240, "silence": 0, **options})

    def run(self, *argv: str, **options: Any) -> tuple[ProcessResult, bytes]:
        return finish(self.start(*argv, **options))

    def python(self, code: str, *arguments: str, **options: Any) -> tuple[ProcessResult, bytes]:
        return self.run(sys.executable, "-S", "-c", code, *arguments, **options)

    def daemon(self, then: str) -> tuple[str, ...]:
        return sys.executable, "-S", "-c", DAEMON, str(self.folder / f"ready-{uuid.uuid4().hex}"), then

    def alive(self) -> list[psutil.Process]:
        return [each for each in psutil.process_iter() if environment(each).get("TEST_MARK") == self.mark]

    def gone(self) -> bool:
        return eventually(lambda: not self.alive())

    def children(self) -> list[psutil.Process]:
        """The child processes of this test."""
        return [each for each in psutil.Process().children() if each not in self._others]


def environment(each: psutil.Process) -> dict[str, str]:
    try:
        return each.environ()
    except (psutil.Error, OSError):
        return {}


def is_dead(each: psutil.Process) -> bool:
    return not each.is_running() or each.status() == psutil.STATUS_ZOMBIE


def eventually(holds: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def finish(running: Any) -> tuple[ProcessResult, bytes]:
    chunks = []
    while True:
        try:
            chunks.append(next(running))
        except StopIteration as stop:
            return stop.value, b"".join(chunks)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.supervisor.close()
    left = made.alive()
    for each in left:
        each.kill()
    assert left == []


# --- a program ends ---------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 3, 255])
def test_an_exit_code(bench: Bench, code: int) -> None:
    ended, _ = bench.run("sh", "-c", f"exit {code}")
    assert (ended.exit_code, ended.why, ended.left, ended.detail) == (code, "exit", (), "")
    assert 0 < ended.seconds < 240


@pytest.mark.parametrize("name", ["KILL", "TERM", "SEGV", "PIPE"])
def test_a_signal_is_a_negative_code(bench: Bench, name: str) -> None:
    ended, _ = bench.run("sh", "-c", f"kill -{name} $$")
    assert (ended.exit_code, ended.why) == (-getattr(signal, f"SIG{name}"), "exit")


def test_both_outputs_are_kept_and_one_is_yielded(bench: Bench) -> None:
    bench.into.write_text("from before")
    _, said = bench.run("sh", "-c", "echo out; echo err >&2; echo more")
    assert said == bench.into.read_bytes() == b"out\nmore\n"
    assert Path(f"{bench.into}.err").read_bytes() == b"err\n"


def test_output_comes_while_the_program_runs(bench: Bench) -> None:
    running = bench.start("sh", "-c", "echo first; read line < fifo; echo second")
    os.mkfifo(bench.folder / "fifo")
    assert next(running) == b"first\n"
    (bench.folder / "fifo").write_text("go on\n")
    assert finish(running)[1] == b"second\n"


def test_bytes_are_kept_as_they_are(bench: Bench) -> None:
    data = bytes(range(256)) * 5000 + b"\xff\xfe\xc3"
    (bench.folder / "data").write_bytes(data)
    _, said = bench.run("cat", "data")
    assert said == bench.into.read_bytes() == data


def test_standard_input_is_a_file_or_empty(bench: Bench) -> None:
    prompt = bench.folder / "prompt"
    prompt.write_bytes(b"x" * 3_000_000)
    assert bench.run("sh", "-c", "exec cat | wc -c", stdin=str(prompt))[1].strip() == b"3000000"
    assert bench.run("cat")[1] == b""
    assert bench.run("true", stdin=str(prompt))[0].exit_code == 0


def test_folder_and_environment_are_those_given(bench: Bench) -> None:
    env = {"PATH": os.environ["PATH"], "A": "b=c", "EMPTY": "", "ODD": "\udcff"}
    _, said = bench.run(sys.executable, "-S", "-c", "import os; print(os.environb, os.getcwd())", env=env)
    for part in (b"b'A': b'b=c'", b"b'EMPTY': b''", b"b'ODD': b'\\xff'", str(bench.folder).encode()):
        assert part in said
    assert b"HOME" not in said


def test_programs_are_found_on_the_path_given(bench: Bench) -> None:
    program = bench.folder / "bin" / "frobnicate"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho found $1\n")
    program.chmod(0o755)
    env = {"PATH": f"/nonexistent:{program.parent}"}
    assert bench.run("frobnicate", "it", env=env)[1] == b"found it\n"
    assert bench.run("bin/frobnicate", "", env={})[1] == b"found\n"
    assert bench.run("sh", "-c", "echo plain", env={})[1] == b"plain\n"


@LINUX_ONLY
def test_a_program_gets_nothing_else_of_ours(bench: Bench) -> None:
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    inherited = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(inherited, True)
    umask = os.umask(0o027)
    try:
        assert bench.run("ls", "/proc/self/fd")[1].split() == [b"0", b"1", b"2", b"3"]  # the last one is its own
        _, said = bench.run("sh", "-c", "umask; exec cat /proc/self/status /proc/self/stat")
    finally:
        os.umask(umask)
        os.close(inherited)
        signal.signal(signal.SIGUSR1, before)
    assert said.startswith(b"0027\n")
    blocked, ignored = (int(found, 16) for found in re.findall(rb"(?:SigBlk|SigIgn):\s+(\w+)\n", said))
    assert (blocked, ignored & ~(3 << 31)) == (0, 0)  # 32 and 33 are the C library's own
    fields = said.splitlines()[-1].split()
    assert fields[0] == fields[4] == fields[5]  # pid, group, session


@pytest.mark.parametrize(
    ("argv", "options", "detail"),
    [
        (["no-such-program"], {}, "No such file or directory: no-such-program"),
        (["./no-such-program"], {}, "No such file or directory"),
        (["./data"], {}, "Permission denied"),
        (["true"], {"cwd": "/nonexistent"}, "No such file or directory: /nonexistent"),
        (["true", "x" * 3_000_000], {}, "Argument list too long"),
        (["true", "a\0b"], {}, "zero byte"),
        (["true"], {"env": {"A=B": "c"}}, "environment variable"),
        ([], {}, "empty"),
    ],
    ids=["program", "path", "permission", "folder", "too long", "zero byte", "variable", "nothing"],
)
def test_a_program_that_can_not_be_started(bench: Bench, argv: list[str], options: Any, detail: str) -> None:
    (bench.folder / "data").write_text("no program")
    ended, said = bench.run(*argv, **options)
    assert (ended.exit_code, ended.why, said) == (127, "not-started", b"")
    assert detail in ended.detail
    assert bench.run("sh", "-c", "exit 5")[0].exit_code == 5


def test_hundreds_of_runs_leave_nothing(bench: Bench) -> None:
    us = psutil.Process()
    bench.run("true")
    (its_supervisor,) = bench.children()
    gc.collect()  # closes files that an earlier test forgot to close
    before = us.num_fds(), its_supervisor.num_fds()
    for number in range(150):
        assert bench.run("sh", "-c", f"echo {number}")[1] == b"%d\n" % number
        assert bench.run("no-such-program")[0].why == "not-started"
    assert (us.num_fds(), its_supervisor.num_fds()) == before
    assert bench.children() == [its_supervisor]
    assert its_supervisor.children() == []
    bench.supervisor.close()
    assert bench.children() == []


def test_one_program_at_a_time(bench: Bench) -> None:
    running = bench.start("sh", "-c", "echo on; sleep 3600")
    next(running)
    with pytest.raises(RuntimeError):
        bench.run("true", into=str(bench.folder / "other"))
    running.close()
    assert bench.run("true")[0].why == "exit"


# --- clocks and limits ------------------------------------------------------------------------------


def test_the_wall_clock(bench: Bench) -> None:
    ended, said = bench.run("sh", "-c", "echo on; sleep 3600", wall=4)
    assert (ended.exit_code, ended.why, ended.left, said) == (-signal.SIGTERM, "wall-clock", (), b"on\n")
    assert ended.seconds < 120


@pytest.mark.parametrize("first", ["echo on", "echo on >&2", "true"])
def test_the_silence_clock(bench: Bench, first: str) -> None:
    ended, _ = bench.run("sh", "-c", f"{first}; sleep 3600", silence=0.3)
    assert (ended.exit_code, ended.why) == (-signal.SIGTERM, "silence")


def test_standard_error_is_no_silence(bench: Bench) -> None:
    code = "for i in $(seq 20); do sleep 0.25; echo $i >&2; done"
    ended, _ = bench.run("sh", "-c", code, silence=4)
    assert (ended.exit_code, ended.why) == (0, "exit")


def test_a_slow_reader_makes_no_silence(bench: Bench) -> None:
    running = bench.start("sh", "-c", "for i in 1 2 3 4 5; do echo $i; sleep 0.1; done", silence=4)
    next(running)
    time.sleep(5)
    assert finish(running)[0].why == "exit"


def test_a_stop_leaves_time_to_tidy_up(bench: Bench) -> None:
    code = "trap 'sleep 1; echo tidied; exit 7' TERM; echo on; while :; do sleep 0.05; done"
    ended, said = bench.run("sh", "-c", code, stop=lambda: bench.into.read_bytes() == b"on\n")
    assert (ended.exit_code, ended.why, said) == (7, "stopped", b"on\ntidied\n")


def test_a_stopped_program_hears_that_it_shall_end(bench: Bench) -> None:
    ended, said = bench.run("sh", "-c", "trap 'echo heard; exit 7' TERM; kill -STOP $$", wall=4)
    assert (ended.exit_code, said) == (7, b"heard\n")


def test_one_that_does_not_listen_is_killed_after_its_grace(bench: Bench) -> None:
    ended, _ = bench.run("sh", "-c", "trap '' TERM; while :; do sleep 0.1; done", wall=4, grace=0.3)
    assert (ended.exit_code, ended.why) == (-signal.SIGKILL, "wall-clock")
    assert ended.seconds < 120


def test_too_much_output(bench: Bench) -> None:
    ended, said = bench.run("sh", "-c", "echo no >&2; exec yes", limit=1000)
    assert (ended.why, bench.into.read_bytes()) == ("too-much", said)
    assert len(said) + Path(f"{bench.into}.err").stat().st_size == 1000
    assert bench.run("sh", "-c", "echo 1234", limit=5)[0].why == "exit"
    assert bench.run("sh", "-c", "echo 12345", limit=5)[0].why == "too-much"


FLOOD = """
import resource, sys
from ralphtool.executors.process import Supervisor
with Supervisor() as ours:
    total = 0
    running = ours.run(["head", "-c", "200000000", "/dev/zero"], cwd="/", env={}, stdin=None, into=sys.argv[1],
        wall=240, silence=0, secrets=("not-in-there",))
    for chunk in running:
        total += len(chunk)
if sys.platform == "linux":  # where getrusage tells of whoever started us, too
    peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(total, peak)
"""


def test_a_flood_needs_no_memory(bench: Bench) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FLOOD, str(bench.into)], capture_output=True, timeout=PATIENCE, check=True
    )
    total, kilobytes = map(int, done.stdout.split())
    assert total == bench.into.stat().st_size == 200_000_000
    assert kilobytes < 60_000 * (1 if supervisor.LINUX else 1024)
    bench.into.unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL},mode=0700", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a small disk takes root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("more", ["; sleep 3600", ""], ids=["lives on", "ends"])
def test_a_full_disk_ends_the_program(bench: Bench, small_disk: Path, more: str) -> None:
    into = str(small_disk / "transcript")
    ended, said = bench.run("sh", "-c", f"head -c 1000000 /dev/zero{more}", into=into)
    assert ended.why == "no-room"
    assert len(said) <= os.stat(into).st_size <= SMALL


def test_a_disk_without_room_for_a_transcript(bench: Bench, small_disk: Path) -> None:
    for number in range(1000):
        try:
            (small_disk / str(number)).write_bytes(b"x")
        except OSError:
            break
    for number in range(1000):  # nor space for another name
        try:
            (small_disk / f"folder-{number}").mkdir()
        except OSError:
            break
    assert bench.run("echo", "hello", into=str(small_disk / "transcript"))[0].why == "no-room"


# --- secrets ----------------------------------------------------------------------------------------


def in_pieces(secrets: tuple[str, ...], pieces: list[bytes]) -> bytes:
    redactor = Redactor(secrets)
    return b"".join([*map(redactor.feed, pieces), redactor.rest()])


@pytest.mark.parametrize("text", ["a SECRETKEY b", "SECRETKEY", "SECSECRETKEYSECRET", "SECRETKEYSECRETKEY", "SECRETKE"])
def test_a_secret_is_replaced_wherever_it_is_cut(text: str) -> None:
    data = text.encode()
    wanted = data.replace(b"SECRETKEY", b"[redacted]")
    for first in range(len(data) + 1):
        for second in range(first, len(data) + 1):
            assert in_pieces(("SECRETKEY",), [data[:first], data[first:second], data[second:]]) == wanted
    assert in_pieces(("SECRETKEY",), [data[at : at + 1] for at in range(len(data))]) == wanted


@given(
    st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=4),
    st.lists(st.text("abc", max_size=8), max_size=8),
)
def test_secrets_that_overlap_are_replaced_as_in_the_whole(secrets: list[str], pieces: list[str]) -> None:
    longest_first = sorted(secrets, key=len, reverse=True)
    wanted = re.sub("|".join(longest_first), "[redacted]", "".join(pieces))
    assert in_pieces(tuple(secrets), [piece.encode() for piece in pieces]) == wanted.encode()


def test_without_secrets_nothing_is_copied() -> None:
    data = b"x" * 100
    redactor = Redactor(("",))
    assert redactor.feed(data) is data
    assert redactor.rest() == b""


def test_secrets_stay_out_of_everything_that_is_kept(bench: Bench) -> None:
    code = "printf 'my pässw'; sleep 0.3; printf 'ord1 pä'; printf 'is pässword1\\n' >&2"
    ended, said = bench.run("sh", "-c", code, secrets=("pässword1",))
    assert ended.why == "exit"
    assert said.decode() == bench.into.read_text() == "my [redacted] pä"
    assert Path(f"{bench.into}.err").read_text() == "is [redacted]\n"


# --- no process is left -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("then", "options", "why"),
    [
        ("sys.exit(3)", {}, "exit"),
        ("os.kill(os.getpid(), 9)", {}, "exit"),
        ("time.sleep(3600)", {"wall": 6}, "wall-clock"),
        ("time.sleep(3600)", {"silence": 6}, "silence"),
        ("print('on', flush=True); time.sleep(3600)", {"limit": 0}, "too-much"),
    ],
    ids=["exit", "signal", "wall clock", "silence", "too much"],
)
def test_a_daemon_is_ended_with_its_program(bench: Bench, then: str, options: Any, why: str) -> None:
    ended, _ = bench.run(*bench.daemon(then), grace=0.2, **options)
    assert ended.why == why
    assert bench.alive() == []
    assert len(ended.left) == 1
    assert ended.left[0].startswith("python")


def test_a_daemon_is_ended_when_its_program_is_stopped(bench: Bench) -> None:
    on = bench.folder / "on"
    ended, _ = bench.run(*bench.daemon(f"open({str(on)!r}, 'w'); time.sleep(3600)"), stop=on.exists, grace=0.2)
    assert ended.why == "stopped"
    assert bench.alive() == []


@pytest.mark.parametrize("ending", ["close", "throw", "forget"])
def test_a_daemon_is_ended_when_nobody_reads_on(bench: Bench, ending: str) -> None:
    running = bench.start(*bench.daemon("print('on', flush=True); time.sleep(3600)"))
    assert next(running) == b"on\n"
    assert len(bench.alive()) == 2
    if ending == "close":
        running.close()
    elif ending == "throw":
        with pytest.raises(KeyboardInterrupt):
            running.throw(KeyboardInterrupt)
    del running
    assert bench.alive() == []
    assert bench.run("true")[0].why == "exit"


def test_an_error_while_writing_ends_the_program(bench: Bench) -> None:
    def interrupt() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.run(*bench.daemon("time.sleep(3600)"), stop=interrupt)
    assert bench.alive() == []


LOOP = """
import json, os, sys
from ralphtool.executors.process import Supervisor
argv, env, folder = json.loads(sys.argv[1])
with Supervisor(folder + "/processes") as ours:
    for chunk in ours.run(argv, cwd=folder, env=env, stdin=None, into=folder + "/transcript", wall=120, silence=0):
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
"""


def loop(bench: Bench, *argv: str) -> subprocess.Popen[bytes]:
    """A separate process that runs a program; returns when the program has printed something."""
    what = json.dumps([argv, bench.env, str(bench.folder)])
    started = subprocess.Popen([sys.executable, "-c", LOOP, what], stdout=subprocess.PIPE)
    assert started.stdout
    assert started.stdout.readline() == b"on\n"
    return started


def kill(started: subprocess.Popen[bytes]) -> None:
    started.kill()
    started.communicate(timeout=PATIENCE)


def test_a_daemon_is_ended_when_we_are_killed(bench: Bench) -> None:
    killed = loop(bench, *bench.daemon("print('on', flush=True); time.sleep(3600)"))
    assert len(bench.alive()) == 2
    kill(killed)
    assert bench.gone()


def test_we_are_killed_while_a_program_is_being_ended(bench: Bench) -> None:
    """The program's grace period does not delay the supervisor when this process is gone."""
    killed = loop(bench, *bench.daemon("print('on', flush=True); sys.exit(0)"))
    kill(killed)
    assert bench.gone()


@LINUX_ONLY
@pytest.mark.parametrize("then", ["time.sleep(3600)", "sys.exit(0)"], ids=["lives on", "ends"])
def test_a_program_that_kills_its_supervisor(bench: Bench, then: str) -> None:
    ended, _ = bench.run(*bench.daemon(f"os.kill(os.getppid(), 9); {then}"))
    assert ended.why == "supervisor-lost"
    assert ended.exit_code in (-signal.SIGKILL, 0)
    assert any(name.startswith("python") for name in ended.left)
    assert bench.alive() == []
    assert bench.children() == []
    assert bench.run("sh", "-c", "exit 5")[0].exit_code == 5


def test_a_supervisor_that_died_between_two_programs(bench: Bench) -> None:
    bench.run("true")
    (its_supervisor,) = bench.children()
    its_supervisor.kill()
    assert eventually(lambda: its_supervisor.status() == psutil.STATUS_ZOMBIE)
    assert bench.run("sh", "-c", "exit 5")[0].exit_code == 5


@LINUX_ONLY
def test_a_program_that_stops_its_supervisor(bench: Bench) -> None:
    ended, _ = bench.run(*bench.daemon("os.kill(os.getppid(), signal.SIGSTOP); time.sleep(3600)"), wall=6, grace=0.1)
    assert (ended.why, ended.exit_code) == ("wall-clock", -signal.SIGKILL)
    assert bench.alive() == []
    assert bench.children() == []


@LINUX_ONLY
def test_a_lost_supervisor_costs_nobody_else_his_life(bench: Bench, tmp_path: Path) -> None:
    ours = subprocess.Popen(["sleep", "600"])
    session = subprocess.Popen(["sleep", "600"], start_new_session=True)
    (tmp_path / "other").mkdir()
    other = Bench(tmp_path / "other")
    result: list[ProcessResult] = []
    wait = "while [ ! -e go-on ]; do sleep 0.1; done; exit 6"
    runs = threading.Thread(target=lambda: result.append(other.run("sh", "-c", wait)[0]))
    runs.start()
    try:
        assert eventually(lambda: len(other.alive()) >= 1)
        assert bench.run(*bench.daemon("os.kill(os.getppid(), 9); time.sleep(3600)"))[0].why == "supervisor-lost"
        assert (ours.poll(), session.poll()) == (None, None)
    finally:
        (other.folder / "go-on").touch()
        runs.join(120)
        other.supervisor.close()
        for each in (ours, session):
            each.kill()
            each.wait()
    assert (result[0].exit_code, result[0].why) == (6, "exit")


@LINUX_ONLY
def test_we_take_orphans_only_while_a_program_runs(bench: Bench) -> None:
    assert bench.run("true")[0].why == "exit"
    assert supervisor.adopt_orphans(False) is False
    running = bench.start("sh", "-c", "echo on; sleep 3600")
    next(running)
    assert supervisor.adopt_orphans(True) is True
    running.close()
    assert supervisor.adopt_orphans(False) is False


STORM = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for number in range(200):
    if os.fork() == 0:
        if number % 2:
            os.setsid()
        time.sleep(3600)
        os._exit(0)
print("on", flush=True)
"""


def test_two_hundred_are_ended(bench: Bench) -> None:
    ended, said = bench.python(STORM)
    assert (ended.exit_code, said, len(ended.left)) == (0, b"on\n", 200)
    assert bench.alive() == []


# Each lives for a moment, and leaves another one: at most 20,000 of them, for at most 15 minutes.
RUNNING_AWAY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork():
    os._exit(0)
until = time.monotonic() + 900
for number in range(20000):
    if time.monotonic() > until:
        break
    if os.fork():
        os._exit(0)
    os.setsid()
open(sys.argv[1], "w").close()
"""


def test_one_that_runs_from_child_to_child_is_caught(bench: Bench) -> None:
    escaped = bench.folder / "escaped"
    ended, _ = bench.python(RUNNING_AWAY, str(escaped))
    assert (ended.exit_code, ended.why) == (0, "exit")
    assert bench.alive() == []
    assert not escaped.exists()


HEADLESS = """
import ctypes, sys, threading, time
threading.Thread(target=lambda: (print("on", flush=True), open(sys.argv[1], "w").close(), time.sleep(3600))).start()
ctypes.CDLL(None).syscall(%d, 0)
"""
STARTS_HEADLESS = """
on = ready + "-headless"
child = subprocess.Popen([sys.executable, "-c", code, on])
while not os.path.exists(on) or open(f"/proc/{child.pid}/stat").read().rpartition(")")[2].split()[0] != "Z":
    time.sleep(0.01)
"""


@LINUX_ONLY
@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="the number of a system call")
def test_one_that_looks_dead_is_ended_too(bench: Bench) -> None:
    """Its first thread has ended: the system shows a zombie, but the other threads continue."""
    code = HEADLESS % {"x86_64": 60, "aarch64": 93}[platform.machine()]
    ended, said = bench.run(*bench.daemon(f"code = {code!r}\n{STARTS_HEADLESS}"))
    assert (ended.exit_code, said, len(ended.left)) == (0, b"on\n", 2)
    assert bench.gone()


def test_a_child_that_ends_by_itself_was_not_left(bench: Bench) -> None:
    """It has a moment for that, which may be too short on a busy machine, so the test tries again."""
    for _ in range(30):
        ended, said = bench.run("sh", "-c", "(sleep 0.005; echo late) & echo early")
        if not ended.left:
            break
    assert (ended.left, said) == ((), b"early\nlate\n")


# --- open outputs -----------------------------------------------------------------------------------


def test_a_program_that_closes_its_outputs_is_waited_for(bench: Bench) -> None:
    ended, said = bench.run("sh", "-c", "echo on; exec >&- 2>&-; sleep 0.4; exit 4")
    assert (ended.exit_code, ended.why, said) == (4, "exit", b"on\n")
    ended, _ = bench.run("sh", "-c", "exec >&- 2>&-; sleep 3600", wall=0.3)
    assert ended.why == "wall-clock"


def test_a_daemon_that_holds_the_output_is_not_waited_for(bench: Bench) -> None:
    on = str(bench.folder / "on")
    code = f"import sys,time\nprint('daemon', flush=True)\nopen({on!r}, 'w').close()\ntime.sleep(3600)"
    then = f"subprocess.Popen([sys.executable, '-c', {code!r}], start_new_session=True)\n"
    then += f"while not os.path.exists({on!r}): time.sleep(0.01)\nprint('main')"
    ended, said = bench.run(*bench.daemon(then))
    assert (ended.exit_code, ended.why) == (0, "exit")
    assert said == bench.into.read_bytes() == b"daemon\nmain\n"
    assert bench.alive() == []


def test_what_a_daemon_says_at_its_end_is_kept(bench: Bench) -> None:
    code = "trap 'echo bye; exit' TERM; echo on; touch on; while :; do sleep 0.05; done"
    ended, said = bench.run("sh", "-c", f'sh -c "{code}" & until [ -e on ]; do sleep 0.05; done; exit 0')
    assert ended.left[0] == "sh"
    assert said == b"on\nbye\n"


# --- program and supervisor both killed -------------------------------------------------------------


@pytest.fixture
def orphan() -> Iterator[subprocess.Popen[bytes]]:
    made = subprocess.Popen(["sleep", "600"], env={"PATH": os.environ["PATH"]}, start_new_session=True)
    yield made
    made.kill()
    made.wait()


def kill_with_its_supervisor(started: subprocess.Popen[bytes]) -> None:
    """A loop and its supervisor die together: the supervisor is suspended while the loop is killed."""
    its_supervisor = psutil.Process(started.pid).children()[0]
    its_supervisor.suspend()
    kill(started)
    its_supervisor.kill()
    assert eventually(lambda: _has_died(its_supervisor))


def _has_died(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_orphans_are_known_by_their_environment(bench: Bench) -> None:
    kill_with_its_supervisor(loop(bench, *bench.daemon("print('on', flush=True); time.sleep(3600)")))
    (bench.folder / "processes").unlink()
    assert len(bench.alive()) == 2
    assert end_orphans(str(bench.folder / "processes"), "another session") == []
    assert len(bench.alive()) == 2
    names = end_orphans(str(bench.folder / "processes"), bench.mark)
    assert [name[:6] for name in names] == ["python", "python"]
    assert bench.gone()
    assert end_orphans(str(bench.folder / "processes"), bench.mark) == []


def test_orphans_are_known_by_the_record(bench: Bench) -> None:
    """Nothing in their environment names the session, and one of them has no ancestor that does."""
    del bench.env["RALPH_SESSION"]
    record = bench.folder / "processes"
    noted = loop(bench, *bench.daemon("print('on', flush=True); time.sleep(3600)"))
    assert eventually(lambda: len(record.read_text().splitlines()) == 3)
    kill_with_its_supervisor(noted)
    assert len(bench.alive()) == 2
    assert len(end_orphans(str(record), "another session")) == 2
    assert bench.gone()
    assert record.read_bytes() == b""


def test_descendants_are_noted_while_a_program_runs(bench: Bench) -> None:
    record, go_on = bench.folder / "processes", bench.folder / "go-on"
    seen = []

    def look() -> bool:
        seen.append(record.read_text().splitlines())
        if len(seen[-1]) == 3:
            go_on.touch()
        return False

    then = f"print('on', flush=True)\nwhile not os.path.exists({str(go_on)!r}): time.sleep(0.05)"
    running = bench.start(*bench.daemon(then), stop=look)
    assert next(running) == b"on\n"
    (its_supervisor,) = bench.children()
    pids = [its_supervisor.pid, *{each.pid for each in bench.alive()}]
    wanted = {f"{pid} {read_start_time(pid)}" for pid in pids}
    assert finish(running)[0].why == "exit"
    assert set(seen[-1]) == wanted
    assert record.read_bytes() == b""


def test_descendants_of_orphans_are_ended_too(tmp_path: Path) -> None:
    parent = subprocess.Popen(["sh", "-c", "sleep 3600; true"], start_new_session=True)
    assert eventually(lambda: [one.name() for one in psutil.Process(parent.pid).children()] == ["sleep"])
    child = psutil.Process(parent.pid).children()[0]
    record = tmp_path / "processes"
    record.write_text(f"{parent.pid} {read_start_time(parent.pid)}\n")
    assert end_orphans(str(record), "none") == ["sh", "sleep"]
    assert parent.wait(120) == -signal.SIGKILL
    assert eventually(lambda: is_dead(child))


def test_a_process_that_began_at_another_time_is_left_alone(orphan: subprocess.Popen[bytes], tmp_path: Path) -> None:
    record = tmp_path / "processes"
    boot, _, ticks = str(read_start_time(orphan.pid)).rpartition("/")
    for start in (f"{boot}/{int(ticks) - 1}", f"other/{ticks}", "None", ""):
        record.write_text(f"{orphan.pid} {start}\n")
        assert end_orphans(str(record), "none") == []
    assert orphan.poll() is None
    record.write_text(f"{orphan.pid} {boot}/{ticks}\n")
    assert end_orphans(str(record), "none") == ["sleep"]
    assert orphan.wait(120) == -signal.SIGKILL


@pytest.mark.parametrize(
    "data", [b"", b"\0\0\0\0", b"x y\n", b"-1 a/1\n1\n", b"\xff 1\n", b"0 None\n99999999999999999999 a/1\n"]
)
def test_a_damaged_record_names_nobody(tmp_path: Path, data: bytes) -> None:
    record = tmp_path / "processes"
    record.write_bytes(data)
    assert end_orphans(str(record), "none") == []


SELF = """
import os, sys
from ralphtool.core.locks import read_start_time
from ralphtool.executors.process import end_orphans
with open(sys.argv[1], "w") as file:
    for pid in (os.getpid(), os.getppid()):
        file.write(f"{pid} {read_start_time(pid)}\\n")
print(end_orphans(sys.argv[1], "mine"))
"""


def test_nobody_ends_himself_or_his_ancestors(tmp_path: Path) -> None:
    command = 'RALPH_SESSION=mine; export RALPH_SESSION; "$@"; echo still here'
    argv = [
        "sh",
        "-c",
        command,
        "sh",
        "sh",
        "-c",
        '"$@"; true',
        "sh",
        sys.executable,
        "-c",
        SELF,
        str(tmp_path / "processes"),
    ]
    done = subprocess.run(argv, capture_output=True, timeout=PATIENCE, env={**os.environ, "RALPH_SESSION": "mine"})
    assert (done.stdout, done.stderr) == (b"[]\nstill here\n", b"")


def test_nothing_of_it_is_a_link(bench: Bench) -> None:
    (bench.folder / "victim").write_text("precious")
    bench.into.symlink_to("victim")
    with pytest.raises(UnsafePath):
        bench.run("echo", "hello")
    assert (bench.folder / "victim").read_text() == "precious"
