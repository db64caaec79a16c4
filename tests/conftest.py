"""Fixtures for every test: its own project, and the sentence model."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from ralphtool.executors.temporal.dev_server import DevServer

# Each test worker gets at most one CPU: more numpy threads would spin while they wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# As in an activated environment: gates need the `python3` that has pytest. That of a version manager may start a
# dozen shells first.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

# Failed assertions in shared modules get the same details as in tests. Must come before the imports.
pytest.register_assert_rewrite(
    "project",
    "lab",
    "cli.agent.calls",
    "cli.bad_input.calls",
    "core.test_full_disk",
    "executors.temporal.jobs",
    "history.documents",
    "history.store.histories",
    "history.store.journals",
    "history.store.plain",
    "history.store.samples",
    "judging.guard.samples",
    "judging.testresults.reading_lab",
    "judging.testresults.recordings",
    "record.run_records",
    "specs.documents",
    "specs.formats",
    "testing.model.apis",
    "views.night",
    "views.run_events",
    "views.tmux",
    "views.web.hostile",
    "workers.farm",
)

import properties  # noqa: E402, F401  (its settings hold for every property)
from project import REPOSITORY, TESTS, Ralph  # noqa: E402


class Share(NamedTuple):
    """Which cases of a long test are taken."""

    quick: int  # the quick run takes one case in so many; 0: none
    parts: int = 1  # `scripts/test --all` takes those, and one of so many parts of the rest


LINES = (line for line in (TESTS / "slow.txt").read_text().splitlines() if not line.startswith("#"))
SLOW = {name: Share(*map(int, numbers)) for name, *numbers in map(str.split, LINES)}
# Which part `scripts/test --all` takes: it depends on the commit, so that in time all cases are tried.
TURN = int(os.environ.get("RALPH_TURN", "0")) if os.environ.get("RALPH_TESTS") == "all" else None
WAITING = ("executors/temporal/", "workers/")
WEIGHTS = REPOSITORY / ".tools/weights"  # of the sentence model, beside .venv; most tests don't need them


def pytest_configure() -> None:
    """A shell starts what is in its background with these signals ignored, and every process would inherit that."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collecting the tests creates no garbage worth looking for: without that it takes a tenth less time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the cases that the quick run leaves out, and leaves out those of another turn.

    Tests that wait for other machines come first: as the last ones, they would keep one worker busy alone.
    """
    items.sort(key=lambda item: not item.nodeid.removeprefix("tests/").startswith(WAITING))
    seen: Counter[str] = Counter()
    later = {item for item in items if mark_slow(item, seen)}
    if later:
        config.hook.pytest_deselected(items=list(later))
        items[:] = [item for item in items if item not in later]


def mark_slow(item: pytest.Item, seen: Counter[str]) -> bool:
    """Whether it is the turn of another part of the cases of this test."""
    name = item.nodeid.removeprefix("tests/").partition("[")[0]
    if name not in SLOW:
        return False
    share, number = SLOW[name], seen[name]
    seen[name] += 1
    if share.quick and number % share.quick == 0:
        return False
    item.add_marker("slow")
    return TURN is not None and (number + TURN) % share.parts != 0


def pytest_collection_finish() -> None:
    """The tests themselves stay until the end, so the garbage collector need not scan them repeatedly."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence model, as if it were installed."""
    if not WEIGHTS.is_dir():
        pytest.skip("the sentence model is not installed: scripts/test does that")
    monkeypatch.syspath_prepend(str(WEIGHTS))


@pytest.fixture
def ralph(tmp_path: Path) -> Ralph:
    """An empty project."""
    return Ralph(tmp_path)


@pytest.fixture
def project(ralph: Ralph) -> Ralph:
    """A project with the OpenSpec change `add-login`: stories 1 and 2 with two tasks each, and one scenario."""
    return ralph.openspec()


@pytest.fixture
def lab(tmp_path: Path) -> Any:
    """An empty project for the loop: `lab.repository()` adds git and the change `add-login`."""
    from lab import Lab

    return Lab(tmp_path)


# --- a real Temporal server -------------------------------------------------------------------------


@pytest.fixture(scope="module")  # not longer: tests of processes look at all processes
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    """One for all tests of a module; each test has its own queue on it."""
    from ralphtool.executors.temporal.dev_server import DevServer

    with DevServer(str(tmp_path_factory.mktemp("temporal"))) as server:
        yield server


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[DevServer]:
    """One that a test may kill."""
    from ralphtool.executors.temporal.dev_server import DevServer

    folder = tmp_path / "server"
    folder.mkdir()
    with DevServer(str(folder)) as server:
        yield server
