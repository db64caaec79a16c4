"""Gates whose programs are not installed: named by the dry run, and once at the start of a run."""

from __future__ import annotations

from lab import DONE, Lab
from project import Result

from ralphtool.judging.gate_programs import find_missing_program

GATE = "pytst -q"
TOLD = f"the gate `{GATE}` can't be started: pytst is not installed; it proves nothing"
TASKS = "## 1. First\n\n- [ ] 1.1 Make a\n"
INSTALL = r"mkdir -p .tools; printf '#!/bin/sh\n' >.tools/pytst; chmod +x .tools/pytst"


def list_told(lab: Lab, result: Result) -> list[str]:
    return [one["text"] for one in lab.events(result) if one["type"] == "notice" and "can't be started" in one["text"]]


def test_a_dry_run_names_it_as_a_problem_of_the_gates(lab: Lab) -> None:
    lab.repository(TASKS, tests=["true", GATE], checks=["lnt"]).play(default=DONE)
    shown = lab.run("run", "--dry-run", COLUMNS="200")
    lint = "the gate `lnt` can't be started: lnt is not installed"
    assert f"Problems of the gates\n  {lint}\n  {TOLD}\n" in shown.stdout
    assert shown.exit_code == 0  # a run can start
    assert lab.run("run", "--dry-run", "--json").json["gate_troubles"] == [lint, TOLD]


def test_a_run_says_it_once_at_its_start(lab: Lab) -> None:
    lab.repository(TASKS, tests=[GATE], workspace="worktree").play(default=DONE)
    assert list_told(lab, lab.loop()) == [TOLD]
    types = [one["type"] for one in lab.events()]
    assert types.index("notice") < types.index("gate_started")


def test_after_setup_commands_it_is_said_when_the_gates_were_tried(lab: Lab) -> None:
    lab.repository(TASKS + "## 2. Second\n\n- [ ] 2.1 Make b\n", tests=[GATE], workspace="worktree", setup=["true"])
    lab.play(default=DONE)
    for _ in range(2):  # such a trial is not remembered: the program may be there in the next run
        assert list_told(lab, lab.loop("--max-iterations", "1")) == [TOLD]


def test_a_program_that_setup_installs_is_not_missed(lab: Lab) -> None:
    lab.write(".gitignore", ".tools/\n")
    lab.repository(TASKS, tests=[".tools/pytst"], workspace="worktree", setup=[INSTALL]).play(default=DONE)
    [told] = lab.run("run", "--dry-run", "--json").json["gate_troubles"]
    assert ".tools/pytst does not exist, or is not executable, unless a setup command installs it" in told
    assert list_told(lab, lab.loop()) == []


def test_only_what_is_certainly_missing_counts(lab: Lab) -> None:
    found = [find_missing_program(one, str(lab.root)) for one in ("cd x && pytst", "A=1 sh -c x", "'", "A=1 pytst -q")]
    assert found == [None, None, None, "pytst"]


def test_a_gate_that_takes_too_long_is_recorded_as_ended_by_the_run(lab: Lab) -> None:
    lab.repository("## 1. One\n\n- [ ] 1.1 Do it\n", tests=["echo begun; test ! -e one.txt || sleep 600"], attempts=1)
    lab.write(".ralph/config.toml", lab.read(".ralph/config.toml").replace("[verify]", '[verify]\ntimeout = "6s"'))
    lab.play(default=[{"run": "touch one.txt"}, {"tick": "all"}, {"complete": True}])
    lab.loop()
    ended = {one["when"]: one["why"] for one in lab.events() if one["type"] == "gate"}
    assert (ended["before"], ended["after"]) == ("", "wall-clock")
