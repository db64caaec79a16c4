"""The cost of the web page: a part of `scripts/bench`. The real server, and Debian's chromium."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from bench_loop import Rows, measured
from bench_watch import FEW, MANY, Project, at, line, long_run
from browser import CHROMIUM
from playwright.sync_api import Browser, Page, sync_playwright

PYTHON = sys.executable
LARGEST = 30_000  # bytes of the page
QUIET = 8.0  # seconds without events
TABS = 5
SAID = 30  # events whose latency is measured
MEMORY = 40 * 2**20


@contextmanager
def serving(project: Project, *options: str) -> Iterator[tuple[str, psutil.Process]]:
    command = [PYTHON, "-P", "-m", "ralphtool", "web", "--json", *options]
    process = subprocess.Popen(command, cwd=project.root, env=project.env, stdout=subprocess.PIPE)
    try:
        assert process.stdout
        yield json.loads(process.stdout.readline())["address"], psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


@contextmanager
def browsing() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def open_run(browser: Browser, address: str) -> Page:
    page = browser.new_page()
    page.goto(address)
    page.locator(".runs a").first.click()
    page.locator("#log .e").first.wait_for()
    return page


# --- sizes and imports ------------------------------------------------------------------------------


def size(top: Path, rounds: int) -> float:
    with serving(Project(top)) as (address, _), urllib.request.urlopen(address.partition("#")[0]) as answer:
        return len(answer.read()) / LARGEST


def loading(top: Path, rounds: int) -> float:
    """Including uvicorn, which is most of it."""
    code = "import ralphtool.views.web.app, uvicorn"
    return statistics.median(_time(code) / _time("pass") for _ in range(4 * rounds))


def _time(code: str) -> float:
    begun = time.perf_counter()
    subprocess.run([PYTHON, "-I", "-c", code], check=True)
    return time.perf_counter() - begun


# --- latency ----------------------------------------------------------------------------------------

# The page's own clock gives the time at which a row is drawn; the row contains the time at which it was written.
WATCH = """() => {
  window.late = [];
  const look = row => {
    const said = /written at (\\d+)/.exec(row.textContent);
    if (said) window.late.push(Date.now() - said[1]);
  };
  const watch = all => all.forEach(one => one.addedNodes.forEach(look));
  new MutationObserver(watch).observe(document.getElementById("log"), {childList: true});
}"""


def latency(top: Path, rounds: int) -> float:
    """From writing an event to its row in the page: the median / 150 ms."""
    project = Project(top)
    record = project.record(0, long_run(FEW))
    with serving(project) as (address, _), browsing() as browser:
        page = open_run(browser, address)
        page.evaluate(WATCH)
        with record.open("ab", buffering=0) as file:
            for number in range(SAID):
                time.sleep(0.1 + 0.013 * (number % 7))
                file.write(say(f"written at {time.time_ns() // 1_000_000}"))
        while len(late := page.evaluate("window.late")) < SAID:
            time.sleep(0.05)
    return float(statistics.median(late)) / 150


def say(text: str) -> bytes:
    return line({"at": at(0), "type": "agent", "event": {"kind": "message", "text": text}, "story": "1"}).encode()


def first_paint(top: Path, rounds: int) -> float:
    """From opening the address of a run to its first row, at 1,000,000 events / at 1,000, in turns."""
    with browsing() as browser, _serve_both(top) as addresses:
        taken = [{length: _paint(browser, one) for length, one in addresses.items()} for _ in range(2 * rounds + 1)]
    return statistics.median(one[MANY] / one[FEW] for one in taken[1:])


@contextmanager
def _serve_both(top: Path) -> Iterator[dict[int, str]]:
    projects = {}
    for length in (FEW, MANY):
        (top / str(length)).mkdir()
        projects[length] = Project(top / str(length))
        projects[length].record(0, long_run(length))
    with serving(projects[FEW]) as (few, _), serving(projects[MANY]) as (many, _):
        yield {FEW: few, MANY: many}


def _paint(browser: Browser, address: str) -> float:
    """In a fresh browser context, which logs in first."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(address)
    page.locator(".runs a").first.wait_for()
    begun = time.perf_counter()
    page.locator(".runs a").first.click()
    page.locator("#log .e").first.wait_for()
    taken = time.perf_counter() - begun
    context.close()
    return taken


# --- memory and CPU ---------------------------------------------------------------------------------


def memory(top: Path, rounds: int) -> float:
    """The server's memory after reading a run of 1,000,000 events / 40 MiB."""
    project = Project(top)
    project.record(0, long_run(MANY))
    with serving(project) as (address, server), browsing() as browser:
        open_run(browser, address)
        most, still = 0, 0
        while still < 20:  # until it is idle
            time.sleep(0.2)
            busy = server.cpu_percent()
            still = still + 1 if busy < 5 else 0
            most = max(most, server.memory_info().rss)
    return most / MEMORY


def idle(top: Path, rounds: int) -> float:
    """The share of one core while a page shows a run without new events."""
    project = Project(top)
    project.record(0, long_run(FEW))
    with serving(project) as (address, server), browsing() as browser:
        open_run(browser, address)
        time.sleep(2)
        before = server.cpu_times()
        time.sleep(QUIET)
        after = server.cpu_times()
    return (after.user + after.system - before.user - before.system) / QUIET


def watched(top: Path, rounds: int) -> float:
    """A run of twelve stories with five open pages / with none, in turns."""
    ratios = []
    for number in range(2 * rounds + 1):
        places = [top / f"{number}-{name}" for name in ("alone", "seen")]
        for place in places:
            place.mkdir()
        alone = _run_stories(places[0])
        with _listening(_prepare(places[1])) as project:
            ratios.append(_run_stories(places[1], project) / alone)
    return statistics.median(ratios[1:])


def _prepare(top: Path) -> Project:
    project = Project(top)
    (project.root / ".ralph").mkdir()
    steps = [{"run": "echo work >> {story}.txt; sleep 0.2"}, {"flood": 20000, "lines": True}, {"tick": "all"}]
    (top / "script.json").write_text(json.dumps({"defaults": {"steps": [*steps, {"complete": True}]}}))
    (project.root / ".ralph/config.toml").write_text(
        f'[run]\nagent = "scripted"\nworkspace = "here"\n[agents.scripted]\nargs = ["{top / "script.json"}"]\n'
        '[proof]\naccept = "unproven"\n'
    )
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "first")):
        identity = ("-c", "user.name=Bench", "-c", "user.email=bench@example.org")
        subprocess.run(["git", *identity, *words], cwd=project.root, env=project.env, check=True)
    return project


def _run_stories(top: Path, project: Project | None = None) -> float:
    project = project or _prepare(top)
    command = [PYTHON, "-P", "-m", "ralphtool", "run", "--json"]
    begun = time.perf_counter()
    names = {f"GIT_{role}_{key}": "bench" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    subprocess.run(command, cwd=project.root, env={**project.env, **names}, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun


@contextmanager
def _listening(project: Project) -> Iterator[Project]:
    """Opens five streams of the run as soon as it exists, without browsers: those would run on other machines."""
    over = threading.Event()
    with serving(project) as (address, _):
        threads = [threading.Thread(target=_listen, args=(project, address, over)) for _ in range(TABS)]
        for one in threads:
            one.start()
        try:
            yield project
        finally:
            over.set()
    for one in threads:
        one.join()


def _listen(project: Project, address: str, over: threading.Event) -> None:
    base, _, token = address.partition("/#token=")
    headers = {"Origin": base, "Content-Type": "application/json"}
    login = urllib.request.Request(f"{base}/api/login", json.dumps({"token": token}).encode(), headers)
    with urllib.request.urlopen(login) as answer:
        cookie, key = answer.headers["Set-Cookie"].partition(";")[0], json.load(answer)["stream"]
    runs = project.root / ".ralph/runs"
    while not over.is_set() and not (runs.is_dir() and os.listdir(runs)):
        time.sleep(0.02)
    if over.is_set():
        return
    about = f"key={key}&project={_name(project.root)}&run={os.listdir(runs)[0]}"
    stream = urllib.request.Request(f"{base}/api/stream?{about}", headers={"Cookie": cookie})
    with suppress(OSError), urllib.request.urlopen(stream, timeout=5) as told:
        while not over.is_set() and told.readline():
            pass


def _name(root: Path) -> str:
    from ralphtool.views.web.served import name_project

    return name_project(str(root))


ROWS: Rows = {
    "web: page, script and style / 30 kB": (size, 1.0),
    "web: import of the server / a bare interpreter": (loading, 6),
    "web: an event until it is seen / 150 ms": (latency, 1.0),
    "web: first paint at 1,000,000 events / at 1,000": (first_paint, 1.5),
    "web: memory at 1,000,000 events / 40 MiB": (memory, 1.0),
    "web: CPU while nothing happens": (idle, 0.01),
    "web: a run with five pages open / with none": (watched, 1.02),
}


def measure(top: Path, rounds: int, word: str) -> list[dict[str, Any]]:
    return measured(ROWS, "web", top, rounds, word)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for one in measure(Path(place), 3, sys.argv[1] if len(sys.argv) > 1 else "web"):
            print(one, flush=True)
