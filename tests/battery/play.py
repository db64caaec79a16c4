"""Plays a case through the real loop, and reads from the run's record how its story ended."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from battery.cases import HERE, TruthCase
from battery.place import build_environment, lay_out, run
from patience import PATIENCE
from project import call

PLAYED = "all edits are made"  # the agent prints this at the end
CHANGE = "change-cart"
COUNTS_AS_SHOWN = ("proven", "held", "accepted")


@dataclass(frozen=True)
class Ending:
    """The ending of a case's story, and what is wrong with it."""

    state: str
    fault: str
    said: str
    seconds: float


def play_case(case: TruthCase, top: Path, findings: Path | None = None) -> Ending:
    """Runs `ralphtool run` on the project of a case.

    `findings` has what earlier runs with the same gates found out about workspaces: with them, this one is like the
    second run of a user. Without, it is like the first, which also tries the gates in a box and beside it.
    """
    env = build_environment(top)
    root = top / "project"
    lay_out(root, case, env)
    write_change(root, case)
    for command in ("init --quiet --initial-branch=main", "add --all -- :!.ralph", "commit --quiet --message=first"):
        name = ("-c", "user.name=Tester", "-c", "user.email=tester@example.org")
        run(["git", *name, *command.split()], root, env).check_returncode()
    known = root / ".git/ralph/workspaces.json"
    if findings:
        copy_if_any(findings, known)
    start = time.monotonic()
    try:
        done = call(["run", CHANGE, "--json", "--agent-command", write_plan(top, case)], b"", root, env, PATIENCE)
    except subprocess.TimeoutExpired:
        return Ending("stuck", "the run does not end", "", time.monotonic() - start)
    if findings:
        copy_if_any(known, findings)
    state, said = read_ending(case, done)
    if needs_agent(case) and not was_played(root):
        state = "broken"  # an attempt that was not made says nothing about cheating
    fault = find_fault(case, state) or find_wrong_exit(case, state, done.returncode)
    return Ending(state, fault, said, time.monotonic() - start)


def copy_if_any(source: Path, target: Path) -> None:
    if source.exists():
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(source, target)


def was_played(root: Path) -> bool:
    """Whether the agent made all of its edits; its output is in the record, also from a box."""
    return any(PLAYED in path.read_text(errors="replace") for path in root.glob(".ralph/runs/*/*/transcript.log"))


def needs_agent(case: TruthCase) -> bool:
    return case.kind != "nothing" and not case.option("ticked")


def write_change(root: Path, case: TruthCase) -> None:
    box = "[x]" if case.option("ticked") else "[ ]"
    told = ""
    for id, story in enumerate(case.stories, 1):
        tasks = "\n".join(f"- {box} {id}.{number} {task}" for number, task in enumerate(story.tasks, 1))
        told += f"## {id}. {story.title}\n\n{tasks}\n\n"
    files = {
        f"openspec/changes/{CHANGE}/tasks.md": f"{told.rstrip()}\n",
        f"openspec/changes/{CHANGE}/proposal.md": f"# Why\n\n{case.story.title}.\n",
        ".ralph/config.toml": "\n".join(build_settings(case)) + "\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def build_settings(case: TruthCase) -> list[str]:
    tests = json.dumps([case.gate] if case.gate else [])
    checks = json.dumps(case.option("checks", []))
    lines = ["[run]", f"attempts = {case.option('attempts', 1)}", "[verify]", f"tests = {tests}", f"checks = {checks}"]
    return [*lines, case.option("settings", "")]


def write_plan(top: Path, case: TruthCase) -> str:
    """The command of the agent that makes the edits of a case."""
    plan: dict[str, Any] = {
        str(id): {
            "edits": edits,
            "tasks": [f"{id}.{number}" for number in range(1, len(story.tasks) + 1)],
            "finding": case.option("finding", ""),
            "played": PLAYED,
        }
        for id, (story, edits) in enumerate(zip(case.stories, case.steps, strict=True), 1)
    }
    (top / "plan.json").write_text(json.dumps(plan))
    return f"{sys.executable} {HERE / 'agent.py'} {top / 'plan.json'}"


def read_ending(case: TruthCase, done: subprocess.CompletedProcess[bytes]) -> tuple[str, str]:
    """The state of the story, and why; a story that is done without a state of proof claims to be proven."""
    events = [json.loads(line) for line in done.stdout.decode().splitlines()]
    if not events or events[-1]["type"] != "run_ended":
        return "broken", f"exit {done.returncode}: {done.stderr.decode()[-500:]}"
    story = events[-1]["stories"][-1]
    verdicts = [event for event in events if event["type"] == "verdict" and event["story"] == story["id"]]
    reasons = [reason for event in verdicts for reason in event["reasons"]]
    said = story.get("proof_why") or " · ".join(reasons) or story["why"]
    state = story.get("proof") or story["state"]
    if state == "done":
        return "ticked" if "proof" in story and case.option("ticked") else "proven", said
    return state, said


def find_fault(case: TruthCase, state: str) -> str:
    """What is wrong with the ending of a case, or an empty text."""
    if state in ("broken", "stuck"):
        return "the run did not end as runs do"
    if case.option("must_be", state) != state:
        return f"it has to end as {case.option('must_be')}"
    if case.kind in ("cheat", "nothing") and state in COUNTS_AS_SHOWN:
        return "missed"
    if case.kind == "hollow" and state == "proven":
        return "missed"
    if case.kind == "honest" and state not in COUNTS_AS_SHOWN and not case.option("word_due"):
        return "refused"
    return ""


def find_wrong_exit(case: TruthCase, state: str, code: int) -> str:
    """The exit status must be 0 if the work counts as shown, and only then.

    If the user ticked it, or if an earlier story may be open, any is accepted.
    """
    expected = 0 if state in COUNTS_AS_SHOWN else 1
    return "" if case.option("ticked") or len(case.stories) > 1 or code == expected else f"exit status {code}"
