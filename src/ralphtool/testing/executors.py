"""The contract of an executor, as a function.

    from ralphtool.testing import check_executor

    def test_my_machines(tmp_path):
        check_executor(str(tmp_path), {"run": {"executor": "temporal"}, "executor": {"queue": "mine"}})

It does not inspect an executor's internals: it starts runs that use it, with faults in them, and checks the results.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ralphtool.testing.adapters import ContractBroken
from ralphtool.testing.executor_cases import CASES, SECRET_NAME, SECRET_VALUE
from ralphtool.testing.sample_project import SampleProject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ralphtool.testing.executor_cases import ExecutorCase

EXECUTOR_CASES = tuple(CASES)
EXECUTOR_SECRET = {SECRET_NAME: SECRET_VALUE}
_COMMAND = (sys.executable, "-m", "ralphtool")
_UNSAFE = re.compile(r"[^a-z]+")
_PATIENCE = 900.0  # seconds for a run


class ExecutorOutcome(Struct, frozen=True, kw_only=True):
    """The results of a case, without times and ids: they are the same wherever its iterations ran."""

    exit_code: int
    statuses: dict[str, list[str]]  # the verdicts of each story, in order
    stories: list[str]  # with a commit
    entries: list[dict[str, Any]]  # of progress.json
    learnings: list[str]
    proofs: dict[str, str]  # the proof of each "done"
    files: dict[str, str]  # of the branch


def check_executor(
    folder: str,
    settings: Mapping[str, Mapping[str, Any]],
    *,
    cases: Iterable[str] = EXECUTOR_CASES,
    command: Sequence[str] = _COMMAND,
    env: Mapping[str, str] | None = None,
    patience: float = _PATIENCE,
) -> dict[str, ExecutorOutcome]:
    """Runs `ralphtool run` on small changes; raises ContractBroken with the case and the broken promise.

    `folder` is an empty folder that agents and gates can read wherever they run; `settings` are tables of
    `.ralph/config.toml` that choose the executor. Returns the results of each case, which are equal for any two
    executors.
    """
    outcomes = {}
    for name in cases:
        place = os.path.join(folder, _UNSAFE.sub("-", name))
        os.makedirs(place)
        project = SampleProject(place, command, settings, {**EXECUTOR_SECRET, **(env or {})}, patience)
        try:
            outcomes[name] = _check_case(CASES[name], project)
        except ContractBroken as error:
            where = f"its project is {project.root}; its last output:\n{project.read_last_output()}"
            raise ContractBroken(f"{name}: {error}; {where}") from error
    return outcomes


def _require(holds: bool, promise: str) -> None:
    if not holds:
        raise ContractBroken(promise)


def _check_case(case: ExecutorCase, project: SampleProject) -> ExecutorOutcome:
    project.make(case.files, case.settings)
    project.play(case.turns)
    before = _read_users_state(project)
    exit_code = case.act(project)
    outcome = _read_outcome(project, exit_code)
    _require(outcome.statuses == case.statuses, f"the verdicts are {case.statuses}, not {outcome.statuses}")
    _require(outcome.stories == case.stories, f"the commits are of the stories {case.stories}, not {outcome.stories}")
    _require(exit_code == case.exit_code, f"the exit code is {case.exit_code}, not {exit_code}")
    _require(_read_users_state(project) == before, "the user's files and branches are unchanged")
    _check_records(project)
    case.check(project)
    return outcome


def _read_users_state(project: SampleProject) -> tuple[str, ...]:
    return tuple(project.git(*words) for words in (["status", "--porcelain"], ["rev-parse", "HEAD", "main"]))


def _check_records(project: SampleProject) -> None:
    """Every file that an event names must exist, for views of the run."""
    found = project.read_events()
    logs = [event["log"] for event in found if event.get("log")]
    folders = [event["directory"] for event in found if event["type"] == "iteration_started"]
    named = [*logs, *(os.path.join(one, name) for one in folders for name in ("prompt.md", "transcript.log"))]
    missing = [path for path in named if not os.path.isfile(os.path.join(project.root, path))]
    _require(not missing, f"files named in events exist: {', '.join(missing)} does not")
    numbers = {event["iteration"] for event in found if event["type"] == "iteration_started"}
    ended = {event["iteration"] for event in found if event["type"] == "agent" and event["event"]["kind"] == "end"}
    _require(ended == numbers, "the record says how the agent of each iteration ended")


# --- results of a case ------------------------------------------------------------------------------


def _read_outcome(project: SampleProject, exit_code: int) -> ExecutorOutcome:
    found = project.read_events()
    return ExecutorOutcome(
        exit_code=exit_code,
        statuses=_group_statuses(found),
        stories=project.list_stories(),
        entries=sorted(map(_drop_moments, project.read_history("entries")), key=lambda entry: str(entry["id"])),
        learnings=sorted(one["content"] for one in project.read_history("learnings")),
        proofs={event["story"]: event["receipt"]["state"] for event in found if event["type"] == "proof"},
        files=project.read_branch(),
    )


def _group_statuses(found: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for event in found:
        if event["type"] == "verdict":
            grouped.setdefault(event["story"], []).append(event["status"])
    return dict(sorted(grouped.items()))


def _drop_moments(entry: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in entry.items() if name not in ("timestamp", "duration_seconds")}
    return {**kept, "git_commits": len(entry.get("git_commits", ()))}
