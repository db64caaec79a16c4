"""The fixtures of every test: a project of its own, and the sentence model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

# What tests share says as much about an assertion that fails as the tests do; before any of it is imported.
pytest.register_assert_rewrite(
    "project", "lab", "cli", "core", "history", "judging", "record", "specs", "testing", "views"
)

from project import REPOSITORY, TESTS, Ralph  # noqa: E402

SLOW = [line.split() for line in (TESTS / "slow.txt").read_text().splitlines() if line and not line.startswith("#")]
WEIGHTS = REPOSITORY / ".tools/weights"  # of the sentence model, beside .venv: most tests do without


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what slow.txt lists, except for the cases that it keeps."""
    kept = {name: cases for name, *cases in SLOW}
    for item in items:
        name, _, case = item.nodeid.removeprefix("tests/").partition("[")
        if name in kept and case.removesuffix("]") not in kept[name]:
            item.add_marker("slow")


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
    """An empty project for the loop: `lab.repository()` makes it one with git and the change `add-login`."""
    from lab import Lab

    return Lab(tmp_path)
