"""The cost of a list of many changes: a part of `scripts/bench`. CPU time of `list`: mixed formats / only OpenSpec."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench_loop import Rows, measured
from bench_start import cpu, ratio
from bench_watch import COMMAND

CHANGES = 500
STORIES, TASKS = 5, 4
FOLDERS = 300  # of source code, which are not changes
FILES = ("prd.json", "feature_list.json")
PLACES = ("", "scripts/ralph/", "ralph/", "tasks/", "plans/")


def write(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def boxes(story: int, form: str) -> str:
    return "".join(form.format(story=story, task=task) for task in range(1, TASKS + 1))


def sections(heading: str, form: str) -> str:
    stories = range(1, STORIES + 1)
    return "".join(f"{heading.format(story=story)}\n\n{boxes(story, form)}\n" for story in stories)


def add_openspec(root: Path, number: int) -> None:
    text = sections("## {story}. Part {story}", "- [ ] {story}.{task} Write step {task} and its test\n")
    write(root, f"openspec/changes/change-{number:03}/tasks.md", text)


def add_speckit(root: Path, number: int) -> None:
    text = sections("## Phase {story}: Part {story}", "- [ ] T{story}{task:02} Write step {task} and its test\n")
    write(root, f"specs/{number:03}-feature/tasks.md", text)


def add_plan(root: Path, number: int) -> None:
    text = sections("## Part {story}", "- [ ] Write step {task} and its test\n")
    write(root, f"plans/plan-{number:03}.md", text)


def add_prd(root: Path, number: int) -> None:
    place = PLACES[number % len(PLACES)] + FILES[number // len(PLACES) % len(FILES)]
    criteria = [f"Write step {task} and its test" for task in range(1, TASKS + 1)]
    stories = [
        {"id": f"US-{story}", "title": f"Part {story}", "acceptanceCriteria": criteria, "passes": False}
        for story in range(1, STORIES + 1)
    ]
    write(root, place, json.dumps({"name": f"prd-{number}", "userStories": stories}, indent=2))


def add_kiro(root: Path, number: int) -> None:
    text = sections("- [ ] {story}. Part {story}", "  - [ ] {story}.{task} Write step {task} and its test\n")
    write(root, f".kiro/specs/kiro-{number:03}/tasks.md", "# Implementation Plan\n\n" + text)


def add_backlog(root: Path, number: int) -> None:
    criteria = "".join(f"- [ ] #{task} Write step {task} and its test\n" for task in range(1, TASKS + 1))
    for story in range(1, STORIES + 1):
        id = f"{number}{story:02}"
        head = f"---\nid: task-{id}\ntitle: Part {story}\nstatus: To Do\nmilestone: m-{number}\n---\n\n"
        write(root, f"backlog/tasks/task-{id} - Part-{story}.md", f"{head}## Acceptance Criteria\n\n{criteria}")


def make(top: Path, adders: Sequence[Callable[[Path, int], None]]) -> tuple[Path, dict[str, str]]:
    root = top / "project"
    for number in range(FOLDERS):
        write(root, f"src/part-{number % 20}/module-{number}/code.py", "")
    for number, add in enumerate(adders):
        add(root, number)
    for name in ("home", "tmp"):
        (top / name).mkdir(parents=True)
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(top / "home"), "TMPDIR": str(top / "tmp")}
    return root, env


def list_mixed(top: Path, rounds: int) -> float:
    prds = len(PLACES) * len(FILES)
    mixed = [add_openspec] * 150 + [add_speckit] * 100 + [add_kiro] * 50 + [add_backlog] * 50
    mixed += [add_plan] * (CHANGES - 350 - prds) + [add_prd] * prds
    ours, plain = make(top / "mixed", mixed), make(top / "plain", [add_openspec] * CHANGES)
    return ratio(lambda: cpu([COMMAND, "list"], *ours), lambda: cpu([COMMAND, "list"], *plain), 3 * rounds)


ROWS: Rows = {f"{CHANGES} changes of mixed formats / of OpenSpec": (list_mixed, 1.5)}


def measure(top: Path, rounds: int, word: str) -> list[dict[str, Any]]:
    return measured(ROWS, "list: CPU", top, rounds, word)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for one in measure(Path(place), 3, sys.argv[1] if len(sys.argv) > 1 else ""):
            print(one)
