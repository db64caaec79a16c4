"""The bridge between a box's loopback and the proxy: in real boxes, and alone for what the program sees."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from lab import Lab
from patience import PATIENCE

from ralphtool.sandbox import bridge
from ralphtool.sandbox.bubblewrap import NETWORK, BoxPlan
from ralphtool.sandbox.confinement import Confinement
from ralphtool.sandbox.network import NetworkRules, Proxy
from ralphtool.sandbox.trial import Tools, try_box

BOX = try_box()
needs_box = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


# --- in a box ---------------------------------------------------------------------------------------


class Pages(BaseHTTPRequestHandler):
    """Returns its name for any request."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "9")
        self.end_headers()
        self.wfile.write(b"the host\n")

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def host_port() -> Iterator[int]:
    """The port of a server outside of the boxes."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join(PATIENCE)


class Boxes:
    """Starts programs in boxes with one proxy."""

    def __init__(self, slot: Path, proxy: Proxy, ports: Sequence[int]) -> None:
        assert isinstance(BOX, Tools), BOX
        self.proxy = proxy
        plan = BoxPlan(
            top=str(slot),
            slot=str(slot),
            home=os.path.realpath(os.path.expanduser("~")),
            has_network=False,
            network=proxy.folder,
            bwrap=BOX.bwrap,
        )
        self._confinement = Confinement(plan, host_ports=ports)
        self._slot = str(slot)

    def start(self, *argv: str) -> subprocess.Popen[bytes]:
        command, cwd, env = self._confinement.confine(argv, self._slot, dict(os.environ), [])
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=pipe)

    def run(self, *argv: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        with self.start(*argv) as process:
            out, err = process.communicate(given, timeout=PATIENCE)
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def run_python(self, code: str) -> subprocess.CompletedProcess[bytes]:
        return self.run(sys.executable, "-c", code)


@contextmanager
def boxes(folder: Path, *ports: int, hosts: Sequence[str] = ()) -> Iterator[tuple[Boxes, list[tuple[str, int]]]]:
    denied: list[tuple[str, int]] = []
    rules = NetworkRules(hosts=tuple(hosts), ports=ports)
    with Proxy(rules, lambda host, port, allow: denied.append((host, port))) as proxy:
        yield Boxes(folder, proxy, ports), denied


@needs_box
def test_the_host_is_reached_by_its_port_and_nothing_else_is(tmp_path: Path, host_port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, boxes(tmp_path, host_port) as (box, denied):
        closed = other.getsockname()[1]
        code = f"""if True:
            import socket, urllib.request
            for host in ("127.0.0.1", "localhost"):
                print(urllib.request.urlopen(f"http://{{host}}:{host_port}/").read())
            for address in (("127.0.0.1", {closed}), ("192.0.2.1", 80)):
                try:
                    socket.create_connection(address, timeout=5)
                except OSError as error:
                    print(type(error).__name__)
            """
        done = box.run_python(code)
    assert done.stdout.decode().splitlines() == ["b'the host\\n'"] * 2 + ["ConnectionRefusedError", "OSError"], done
    assert denied == []


@needs_box
def test_the_proxy_is_used_by_what_knows_its_variables(tmp_path: Path, host_port: int) -> None:
    with boxes(tmp_path, hosts=["127.0.0.1"]) as (box, denied):
        code = f"""if True:
            import os, urllib.error, urllib.request
            names = sorted(name for name in os.environ if "proxy" in name.lower())
            print(names, os.environ["npm_config_update_notifier"])
            del os.environ["no_proxy"], os.environ["NO_PROXY"]
            print(urllib.request.urlopen("http://127.0.0.1:{host_port}/").read())
            for url in ("https://files.example.org/", "http://files.example.org/"):
                try:
                    urllib.request.urlopen(url)
                except urllib.error.URLError as error:
                    print(error)
            """
        done = box.run_python(code)
    told = 'files.example.org is not allowed; to allow it, set [sandbox] hosts = ["files.example.org"]'
    variables = ["all", "http", "https", "no"]
    names = sorted([*(f"{one}_proxy" for one in variables), *(f"{one}_PROXY".upper() for one in variables)])
    assert done.stdout.decode().splitlines() == [
        f"{sorted([*names, 'NODE_USE_ENV_PROXY'])} false",
        "b'the host\\n'",
        f"<urlopen error Tunnel connection failed: 403 {told}>",
        f"HTTP Error 403: {told}",
    ], done
    assert denied == [("files.example.org", 443), ("files.example.org", 80)]


@needs_box
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_finds_the_proxy(tmp_path: Path, host_port: int) -> None:
    with boxes(tmp_path, hosts=["127.0.0.1"]) as (box, denied):
        for extra in ([], ["--proxytunnel"]):
            done = box.run("curl", "-sS", "--noproxy", "", *extra, f"http://127.0.0.1:{host_port}/")
            assert (done.returncode, done.stdout) == (0, b"the host\n"), done
        refused = box.run("curl", "-sS", "http://files.example.org/")
    assert b'[sandbox] hosts = ["files.example.org"]' in refused.stdout
    assert denied == [("files.example.org", 80)]


SERVER = """if True:
    import http.server, sys, threading, urllib.request
    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(sys.argv[1].encode())
        def log_message(self, *args): pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 8080), Pages)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    print("ready", flush=True)
    sys.stdin.readline()
    print(urllib.request.urlopen("http://localhost:8080/").read().decode(), flush=True)
"""


@needs_box
def test_two_boxes_listen_on_the_same_port_at_once(tmp_path: Path) -> None:
    with boxes(tmp_path) as (box, denied):
        names = ["one", "two"]
        started = [box.start(sys.executable, "-c", SERVER, name) for name in names]
        outputs = [process.stdout for process in started if process.stdout]
        assert [out.readline() for out in outputs] == [b"ready\n"] * 2
        ends = [process.communicate(b"go\n", timeout=PATIENCE) for process in started]
    assert [out.decode().strip() for out, _ in ends] == names, ends
    assert denied == []


@needs_box
def test_streams_and_exit_codes_are_the_programs_own(tmp_path: Path) -> None:
    with boxes(tmp_path) as (box, _):
        done = box.run("sh", "-c", "cat; echo oops >&2; exit 7", given=b"hello\n")
        killed = box.run("sh", "-c", "kill -TERM $$")
        missing = box.run("no-such-program")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"hello\n", b"oops\n")
    assert killed.returncode == 128 + signal.SIGTERM
    assert missing.returncode == 127
    assert b"no-such-program" in missing.stderr


@needs_box
def test_nothing_of_a_box_is_left_when_its_program_ends(tmp_path: Path) -> None:
    with boxes(tmp_path) as (box, _):
        done = box.run("sh", "-c", "sleep 3600 & echo done")  # the box ends while `sleep` is running
        assert (done.returncode, done.stdout) == (0, b"done\n")
        assert find_bridges(box.proxy.folder) == []


def test_a_box_without_a_network_has_no_bridge(tmp_path: Path) -> None:
    plan = BoxPlan(top=str(tmp_path), slot=str(tmp_path), home="/root", has_network=False)
    command, _, env = Confinement(plan, host_ports=[5432]).confine(["true"], str(tmp_path), {"PATH": "/bin"}, [])
    assert command[-2:] == ["--", "true"]
    assert NETWORK not in " ".join(command)
    assert "--share-net" not in command
    assert env == {"PATH": "/bin"}


def find_bridges(folder: str) -> list[str]:
    """The processes that still name this folder, or its path inside boxes, after some time to end."""
    until = time.monotonic() + PATIENCE
    while (found := _find_commands(folder)) and time.monotonic() < until:
        time.sleep(0.02)
    return found


def _find_commands(text: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if text in command and str(os.getpid()) != path.parent.name:
            found.append(command)
    return found


# --- in a run ---------------------------------------------------------------------------------------

STORY = "## 1. First\n\n- [ ] 1.1 Make a\n"


@needs_box
def test_a_run_records_and_shows_what_its_box_was_denied(lab: Lab, host_port: int) -> None:
    lab.repository(STORY, workspace="box")
    config = lab.root / ".ralph/config.toml"
    config.write_text(f"{config.read_text()}[sandbox]\nports = [{host_port}]\n")
    fetch = "import urllib.request as u; print(u.urlopen('{}').read())"
    reach, fail = (
        f'{sys.executable} -c "{fetch.format(url)}"'
        for url in (f"http://127.0.0.1:{host_port}/", "https://files.example.org/")
    )
    first: list[dict[str, Any]] = [{"run": f"{reach} > reached.txt", "must": True}, {"run": f"{fail}; {fail}; true"}]
    lab.play(default=[*first, {"tick": "all"}, {"complete": True}])
    done = lab.run("run")
    allow = '[sandbox] hosts = ["files.example.org"]'
    [denied] = [event for event in lab.events() if event["type"] == "denied"]
    assert {name: denied[name] for name in ("host", "port", "allow", "iteration", "story")} == {
        "host": "files.example.org",
        "port": 443,
        "allow": allow,
        "iteration": 1,
        "story": "1",
    }
    assert done.exit_code == 0, done.stdout
    assert "the host" in lab.git("show", "ralph/add-login:reached.txt")
    line = f"network: files.example.org:443 was denied; to allow it, set {allow}"
    for shown in (done, lab.run("logs"), lab.run("watch", "--replay", "--speed", "0")):
        assert line in shown.stdout, shown.stderr
    assert "network: files.example.org:443 was denied" in lab.run("report").stdout
    explained = lab.run("explain", "1", COLUMNS="200").stdout
    assert f"Sandbox\n  {line}\n" in explained


@needs_box
@pytest.mark.parametrize(("mode", "is_reached"), [("on", True), ("off", False)])
def test_a_run_has_the_network_of_the_machine_or_none(lab: Lab, host_port: int, mode: str, is_reached: bool) -> None:
    lab.repository(STORY, workspace="box")
    config = lab.root / ".ralph/config.toml"
    config.write_text(f'{config.read_text()}[sandbox]\nnetwork = "{mode}"\n')
    code = f"import os, socket; print(sorted(os.environ)); socket.create_connection(('127.0.0.1', {host_port}))"
    run = f'{sys.executable} -c "{code}" > variables.txt && echo yes > reached.txt; true'
    lab.play(default=[{"run": run}, {"tick": "all"}, {"complete": True}])
    assert lab.run("run").exit_code == 0
    assert ("yes" in lab.git("show", "ralph/add-login:reached.txt", check=False)) == is_reached
    assert "NODE_USE_ENV_PROXY" not in lab.git("show", "ralph/add-login:variables.txt")


# --- alone ------------------------------------------------------------------------------------------


def find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def bridged(folder: Path, *argv: str) -> list[str]:
    """A command with a bridge, but without a box and without a proxy."""
    return [sys.executable, "-I", "-S", bridge.__file__, str(folder / "nothing"), str(find_free_port()), "--", *argv]


def test_the_program_takes_the_place_of_the_bridge(tmp_path: Path) -> None:
    """So every signal reaches it, and its exit status is its own."""
    with subprocess.Popen(bridged(tmp_path, "sleep", "600")) as process:
        wait_for_command(process.pid, "sleep")
        process.send_signal(signal.SIGUSR1)
        assert process.wait(PATIENCE) == -signal.SIGUSR1
    assert find_bridges(str(tmp_path)) == []


def wait_for_command(pid: int, name: str) -> None:
    until = time.monotonic() + PATIENCE
    while Path(f"/proc/{pid}/comm").read_text().strip() != name:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_program_sees_nothing_of_the_bridge(tmp_path: Path) -> None:
    """Neither its sockets, nor what Python changes for itself: ignored signals, and the locale."""
    program = ["sh", "-c", "ls /proc/self/fd; grep Sig[IB] /proc/self/status; env"]
    env = {"LANG": "C", "PATH": os.environ["PATH"], "ODD": "\udcff"}
    plain, through = (
        subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, check=True, timeout=PATIENCE).stdout
        for argv in (program, bridged(tmp_path, *program))
    )
    assert through == plain
    assert b"SigIgn" in plain


def test_the_process_that_stays_is_no_child_of_the_program(tmp_path: Path) -> None:
    """A program may wait for all of its children."""
    code = "import os\ntry:\n    os.wait()\nexcept ChildProcessError:\n    print('none')"
    command = bridged(tmp_path, sys.executable, "-c", code)
    assert subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE).stdout == b"none\n"


def test_the_process_that_stays_holds_no_stream_open(tmp_path: Path) -> None:
    command = bridged(tmp_path, "sh", "-c", "echo hi; exec sleep 3600 > /dev/null 2>&1")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        watchdog = threading.Timer(PATIENCE, process.kill)
        watchdog.start()
        assert process.stdout.read() == b"hi\n"  # up to its end, which comes while the program is alive
        watchdog.cancel()
        assert process.poll() is None
        process.kill()


def test_a_script_without_a_first_line_runs(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("exit 5\n")
    script.chmod(0o755)
    assert subprocess.run(bridged(tmp_path, str(script)), check=False, timeout=PATIENCE).returncode == 5
    script.chmod(0o644)
    assert subprocess.run(bridged(tmp_path, str(script)), check=False, timeout=PATIENCE, stderr=-3).returncode == 126


def connecting(folder: Path) -> list[str]:
    """A bridge with a program that connects to it."""
    code = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1]))); print('there')"
    command = bridged(folder, sys.executable, "-c", code)
    return [*command, command[5]]


def test_it_listens_before_the_program_starts(tmp_path: Path) -> None:
    assert subprocess.run(connecting(tmp_path), capture_output=True, check=True, timeout=PATIENCE).stdout == b"there\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gets a network of its own that is down")
def test_a_loopback_that_is_down_is_brought_up(tmp_path: Path) -> None:
    done = subprocess.run(
        ["unshare", "--net", *connecting(tmp_path)], capture_output=True, check=False, timeout=PATIENCE
    )
    assert (done.returncode, done.stdout) == (0, b"there\n"), done.stderr
