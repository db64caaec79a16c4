"""The fixtures of the tests of the specs."""

from __future__ import annotations

from pathlib import Path

import pytest
from project import Ralph
from specs.formats import STRANGER


@pytest.fixture
def stranger(ralph: Ralph, tmp_path: Path) -> Ralph:
    """A package with an adapter on PYTHONPATH, and a project for it."""
    package = tmp_path / "site" / "stranger_jobs"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "formats.py").write_text(STRANGER)
    ralph.env["PYTHONPATH"] = str(package.parent)
    ralph.write("jobs.txt", "todo 1 sweep\ntodo 2 mop\n")
    return ralph
