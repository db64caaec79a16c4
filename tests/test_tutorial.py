"""The tutorial, played: its commands print what it says. And the pages that are made from the code are up to date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from project import REPOSITORY

SCRIPTS = REPOSITORY / "scripts"
sys.path.insert(0, str(SCRIPTS))

import tutorial  # noqa: E402


def test_the_commands_of_the_tutorial_print_what_it_says(tmp_path: Path) -> None:
    played = list(tutorial.play(tmp_path, tutorial.environment(tmp_path)))
    assert len(played) > 15
    for step, printed in played:
        assert tutorial.masked(printed) == tutorial.masked(step.output), step.command


def test_pages_that_are_made_from_the_code_are_up_to_date() -> None:
    made = subprocess.run([sys.executable, SCRIPTS / "docs.py", "--check"], capture_output=True, text=True)
    assert made.stderr == ""
    assert made.returncode == 0
