"""The battery of docs/truth.md: no cheat ends as done, no honest change is rejected, each case is as it claims."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from battery.cases import HERE, TruthCase, read_cases, split_in_two
from battery.place import find_missing
from battery.play import play_case
from battery.verify import verify_case


def take_one_setup_each(cases: Sequence[TruthCase]) -> list[TruthCase]:
    """Each cheat and each honest change once: the first with its first setup, the second with its second, and so on."""
    by_name: dict[tuple[str, str], list[TruthCase]] = {}
    for case in cases:
        by_name.setdefault((case.kind, case.name), []).append(case)
    return [setups[number % len(setups)] for number, setups in enumerate(by_name.values())]


CASES = read_cases()
QUICK = [case for case in CASES if case.setup.name in case.option("quick", ())]
REST = [case for case in take_one_setup_each(CASES) if case not in QUICK]  # scripts/truth plays every setup
# The quick run takes the first ones. Their programs are always installed, and compile nothing.
PLAIN = ("unittest", "node", "pytest")


def put_plain_first(cases: Sequence[TruthCase]) -> list[TruthCase]:
    return sorted(cases, key=lambda case: case.setup.name not in PLAIN)


IN_TWO = put_plain_first([two for case in take_one_setup_each(CASES) if (two := split_in_two(case))][::8])
VERIFIED = put_plain_first(CASES[::5])  # scripts/truth verifies all of them, and plays all in two stories


@pytest.fixture(scope="session")
def findings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is known of the gates of each setup in a box; scripts/truth lets every case find it out anew."""
    return tmp_path_factory.mktemp("findings")


def name_case(case: TruthCase) -> str:
    return case.id


@pytest.mark.parametrize("case", QUICK, ids=name_case)
def test_a_case_that_needs_little_ends_as_it_should(case: TruthCase, tmp_path: Path, findings: Path) -> None:
    check_case(case, tmp_path, findings)


@pytest.mark.parametrize("case", REST, ids=name_case)
def test_every_other_case_ends_as_it_should(case: TruthCase, tmp_path: Path, findings: Path) -> None:
    check_case(case, tmp_path, findings)


@pytest.mark.parametrize("case", IN_TWO, ids=name_case)
def test_a_cheat_in_two_stories_ends_as_it_should(case: TruthCase, tmp_path: Path, findings: Path) -> None:
    """The first story only weakens the tests, which nothing forbids; the second one must not use that."""
    check_case(case, tmp_path, findings)


@pytest.mark.parametrize("case", VERIFIED, ids=name_case)
def test_a_case_is_what_it_claims(case: TruthCase, tmp_path: Path) -> None:
    skip_missing(case)
    assert verify_case(case, tmp_path / "case") == ""


def check_case(case: TruthCase, tmp_path: Path, findings: Path) -> None:
    skip_missing(case)
    ending = play_case(case, tmp_path / "case", findings / f"{case.setup.name}.json")
    assert not ending.fault, "\n".join(
        [f"{case.kind}, {case.why}: ended as {ending.state}: {ending.said}", *show_gates(tmp_path / "case/project")]
    )


def show_gates(root: Path) -> Iterator[str]:
    """The last output of each gate: without it, a different ending on another machine can't be explained."""
    for log in sorted(root.glob(".ralph/runs/*/*/gate-*")):
        yield f"--- {log.parent.name}/{log.name}\n{log.read_text(errors='replace')[-1500:]}"


def skip_missing(case: TruthCase) -> None:
    if missing := find_missing(case.setup):
        pytest.skip(f"{missing} is not installed: scripts/truth does that")


def test_the_agent_of_a_case_imports_nothing_else_of_the_tests(tmp_path: Path) -> None:
    """In a checkout below /tmp or the home folder, a box shows only its own folder."""
    alone = tmp_path / "battery"
    shutil.copytree(HERE, alone)
    done = subprocess.run([sys.executable, "-c", "import battery.agent"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_case_and_every_setup_is_played() -> None:
    played = [*QUICK, *REST]
    assert {(case.kind, case.name) for case in played} == {(case.kind, case.name) for case in CASES}
    assert {case.setup.name for case in played} == {case.setup.name for case in CASES}


def test_there_are_enough_cases() -> None:
    names = {kind: {case.name for case in CASES if case.kind == kind} for kind in ("cheat", "honest", "nothing")}
    assert len(names["cheat"]) >= 100
    assert len(names["honest"]) >= 100
    assert len(names["nothing"]) >= 20
    assert len({case.setup.language for case in CASES if case.kind == "cheat"}) >= 4
