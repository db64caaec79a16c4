"""The commands of the tutorials print what the tutorials show, and pages generated from the code are up to date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from project import REPOSITORY

SCRIPTS = REPOSITORY / "scripts"
sys.path.insert(0, str(SCRIPTS))

import tutorial  # noqa: E402


@pytest.mark.parametrize("page", tutorial.PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_tutorial_print_what_it_says(page: Path, tmp_path: Path) -> None:
    played = list(tutorial.play(page, tmp_path, tutorial.environment(tmp_path)))
    assert len(played) > 15
    for step, printed in played:
        assert tutorial.masked(printed) == tutorial.masked(step.output), step.command


def test_pages_that_are_made_from_the_code_are_up_to_date() -> None:
    made = subprocess.run([sys.executable, SCRIPTS / "docs.py", "--check"], capture_output=True, text=True)
    assert made.stderr == ""
    assert made.returncode == 0
