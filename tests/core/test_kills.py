"""Killed, or failed by the system, at every system call: the state is the old or the new one, and nothing is lost.

Each case is a command and an initial state. After each fault its judge checks the files, runs the command again,
and completes the session: then everything that was ever acknowledged is in the spec, once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from faults import (
    CHANGING,
    Call,
    Command,
    Files,
    Scene,
    Trial,
    asides,
    in_memory,
    need_strace,
    without_asides,
)
from project import Ralph, Result

SESSION = "tmp/ralph/sessions/s1.json"
NEXT_SESSION = "tmp/ralph/sessions/s2.json"
LEGACY = (SESSION, "tmp/ralph/projects/s1@<moment>")
LOCK = "project/.ralph/locks/add-login.lock"
TASKS = "project/openspec/changes/add-login/tasks.md"
DESIGN = "project/openspec/changes/add-login/design.md"
IGNORE = "project/.ralph/locks/.gitignore"

ACKNOWLEDGED = ("the first thing learnt", "the second thing learnt")
PATTERN = "### layers"
OBSERVATION = "- finding: the build is slow"

INIT = ("session", "init", "--change", "add-login")
FLUSH = ("session", "flush")


@dataclass(frozen=True)
class Seen:
    """The state after a fault. `error`: the command itself reported it; `answered`: only writing the answer failed."""

    scene: Scene
    command: Command
    old: Files
    new: Files
    files: Files
    error: bool = False
    answered: bool = False

    @property
    def ralph(self) -> Ralph:
        return self.scene.ralph

    def again(self) -> Result:
        return self.command.run(self.ralph)


@dataclass(frozen=True)
class Case:
    """A command, its initial state, and what must hold after a fault.

    `leftovers` are files that it may leave behind if only their removal failed.
    """

    name: str
    prepare: Callable[[Ralph], object]
    command: Command
    judge: Callable[[Seen], None]
    leftovers: tuple[str, ...] = ()


@pytest.fixture(autouse=True)
def _strace() -> None:
    need_strace()


@pytest.fixture
def top(tmp_path: Path) -> Iterator[Path]:
    with in_memory(tmp_path) as folder:
        yield folder


# --- initial states ---------------------------------------------------------------------------------


def empty_project(ralph: Ralph) -> None:
    ralph.openspec()


def session_with_learnings(ralph: Ralph) -> None:
    ralph.openspec().begin()
    for text in ACKNOWLEDGED:
        assert ralph.agent("learn", text, "--task", "1.1").json
    assert ralph.agent("task", "done", "1.1").json


def session_with_everything(ralph: Ralph) -> None:
    session_with_learnings(ralph)
    assert ralph.agent("pattern", "layers", "imports go downward").json
    assert ralph.agent("observe", "finding", "the build is slow").json


def abandoned_session(ralph: Ralph) -> None:
    session_with_everything(ralph)
    assert ralph.run("unlock", "add-login").exit_code == 0


PRD = {
    "branchName": "ralph/add-login",
    "userStories": [{"id": "US-1", "title": "Login", "acceptanceCriteria": ["one", "two"], "passes": False}],
}


def prd_with_one_task_left(ralph: Ralph) -> None:
    ralph.write("prd.json", json.dumps(PRD, indent=2))
    ralph.begin()
    for text in ACKNOWLEDGED:
        assert ralph.agent("learn", text).json
    assert ralph.agent("task", "done", "US-1.1").json


def spec_that_only_the_lock_knows(ralph: Ralph) -> None:
    ralph.write("prd.json", "{}")
    ralph.write("docs/add-login.md", "## One\n\n- [ ] 1.1 Make it\n")
    assert ralph.agent(*INIT, "--spec", "docs/add-login.md").json
    for text in ACKNOWLEDGED:
        assert ralph.agent("learn", text).json


# --- judges -----------------------------------------------------------------------------------------


def texts_of(ralph: Ralph, session: str) -> list[str]:
    return [learning["description"] for learning in ralph.session(session)["learnings"]]


def stands_once(text: str, whole: str) -> bool:
    return sum(line == text or line.startswith(f"{text} (Task ") for line in whole.split("\n")) == 1


def check_notes(ralph: Ralph, path: str, lines: Iterable[str]) -> None:
    whole = ralph.read(path)
    for line in lines:
        assert stands_once(line, whole), f"{line!r} has to stand once in\n{whole}"


def check_flushed(seen: Seen, session: str, texts: Iterable[str], path: str = DESIGN) -> None:
    """Ends the session: everything acknowledged is written once, and no file of ralphtool is left behind."""
    assert seen.ralph.agent(*FLUSH, session=session).json["success"] is True
    check_notes(seen.ralph, path.removeprefix("project/"), [f"- {text}" for text in texts])
    left = seen.scene.files()
    assert LOCK not in left
    assert f"tmp/ralph/sessions/{session}.json" not in left
    assert not [path for path in asides(left) if path.startswith("project/openspec")], "in the user's own folder"


def after_learn(seen: Seen) -> None:
    assert seen.files in (seen.old, seen.new)
    recorded = seen.files == seen.new
    assert seen.again().json["total_learnings"] == len(ACKNOWLEDGED) + 1 + recorded
    assert not asides(seen.scene.files())
    check_flushed(seen, "s1", [*ACKNOWLEDGED, "learnt under fire"])


def after_task_done(seen: Seen) -> None:
    ticked_only = seen.old | {TASKS: seen.new[TASKS]}
    assert seen.files in (seen.old, ticked_only, seen.new)
    again = seen.again().json
    assert (again["remaining"], again["story_complete"]) == ([], True)
    assert seen.scene.files() == seen.new
    check_flushed(seen, "s1", ACKNOWLEDGED)


def after_last_criterion(seen: Seen) -> None:
    passed_only = seen.old | {"project/prd.json": seen.new["project/prd.json"]}
    assert '"passes": true' in seen.new["project/prd.json"]
    assert seen.files in (seen.old, passed_only, seen.new)
    assert seen.again().json["story_complete"] is True
    assert seen.scene.files() == seen.new
    check_flushed(seen, "s1", ACKNOWLEDGED, "project/add-login-learnings.md")


def check_each_file(seen: Seen, but: Iterable[str] = ()) -> None:
    """Every file is the old or the new one, independently of the others."""
    for path in {*seen.files, *seen.old, *seen.new} - {*but}:
        assert seen.files.get(path) in (seen.old.get(path), seen.new.get(path)), path


def after_init(seen: Seen) -> None:
    # The .gitignore is created to be locked, and may still be empty. A lock without its session counts as abandoned.
    check_each_file(seen, but=[IGNORE])
    _init_again(seen, begun=SESSION in seen.files)
    assert without_asides(seen.scene.files()) == seen.new, "a session that has begun has all that belongs to it"
    assert seen.ralph.agent("learn", "it works").json["total_learnings"] == 1
    check_flushed(seen, "s1", ["it works"])


def _init_again(seen: Seen, begun: bool) -> None:
    """It works; or, if the session had started and no failure was reported, the change is locked."""
    again = seen.again()
    if begun and (seen.answered or not seen.error):
        assert again.code == "CHANGE_LOCKED"
        assert f"session {seen.command.session} " in again.error["error"]
    else:
        assert again.json["session_id"] == seen.command.session


def after_taking_over(seen: Seen) -> None:
    check_each_file(seen)
    assert SESSION in seen.files or NEXT_SESSION in seen.files, "the heir is not there yet, and the legacy is gone"
    _init_again(seen, begun=NEXT_SESSION in seen.files)
    _check_inherited(seen, "s2")


def after_taking_over_ones_own(seen: Seen) -> None:
    check_each_file(seen)
    _init_again(seen, begun=all(seen.files[path] == seen.new[path] for path in (LOCK, SESSION)))
    _check_inherited(seen, "s1")


def _check_inherited(seen: Seen, heir: str) -> None:
    assert texts_of(seen.ralph, heir) == list(ACKNOWLEDGED)
    state = seen.ralph.session(heir)
    assert [len(state[name]) for name in ("patterns", "observations", "completed_tasks")] == [1, 1, 1]
    check_flushed(seen, heir, ACKNOWLEDGED)
    check_notes(seen.ralph, DESIGN.removeprefix("project/"), [PATTERN, OBSERVATION])


def after_flush(seen: Seen) -> None:
    """What is not in the spec is still in the session. The lock is removed after the last write, then the session."""
    check_each_file(seen, but=[DESIGN, SESSION])
    lines = [*[f"- {text}" for text in ACKNOWLEDGED], PATTERN, OBSERVATION]
    design = seen.files.get(DESIGN, "")
    written = [line for line in lines if stands_once(line, design)]
    assert sum(design.count(line) for line in lines) == len(written), "something stands there twice"
    if seen.files.get(SESSION) != seen.old[SESSION] or LOCK not in seen.files:
        assert written == lines
    if SESSION not in seen.files:
        assert LOCK not in seen.files
    _flush_again(seen)


def _flush_again(seen: Seen) -> None:
    again = seen.again()
    if SESSION in seen.files:
        assert again.json["success"] is True
    else:
        assert again.code == "SESSION_NOT_FOUND"
    # An aside of the session's file may outlive it: it is in ralphtool's folder of the temporary directory.
    left = seen.scene.files()
    assert not [path for path in asides(left) if path.startswith("project/")]
    assert without_asides(left) == seen.new


def after_flush_of_learnings(seen: Seen) -> None:
    check_each_file(seen, but=[SESSION])
    if seen.files.get(SESSION) != seen.old[SESSION]:
        assert seen.files[DESIGN] == seen.new[DESIGN]
    _flush_again(seen)


def after_flush_elsewhere(seen: Seen) -> None:
    check_each_file(seen, but=[SESSION])
    _flush_again(seen)
    check_notes(seen.ralph, "docs/add-login-learnings.md", [f"- {text}" for text in ACKNOWLEDGED])


def without(files: Files, paths: Iterable[str]) -> Files:
    left_out = set(paths)
    return {path: text for path, text in files.items() if path not in left_out}


def check_json(files: Files) -> None:
    for path, text in files.items():
        if path.endswith(".json") or path == LOCK:
            assert isinstance(json.loads(text), dict), path


# --- the cases --------------------------------------------------------------------------------------

CASES = [
    Case("learn", session_with_learnings, Command(("learn", "learnt under fire")), after_learn),
    Case("task-done", session_with_learnings, Command(("task", "done", "1.2")), after_task_done),
    Case("init", empty_project, Command((*INIT, "--spec", "openspec")), after_init),
    Case("init-takes-over", abandoned_session, Command((*INIT, "--spec", "openspec"), "s2"), after_taking_over, LEGACY),
    Case("flush", session_with_everything, Command(FLUSH), after_flush),
]
MORE_CASES = [
    # Without --spec it searches every installed package for adapters, which takes a thousand more calls.
    Case("init-finds-the-spec", empty_project, Command(INIT), after_init),
    Case("task-done-prd", prd_with_one_task_left, Command(("task", "done", "US-1.2")), after_last_criterion),
    Case(
        "init-takes-over-its-own", abandoned_session, Command((*INIT, "--spec", "openspec")), after_taking_over_ones_own
    ),
    Case("flush-learnings-only", session_with_learnings, Command(FLUSH), after_flush_of_learnings),
    Case("flush-of-a-named-spec", spec_that_only_the_lock_knows, Command(FLUSH), after_flush_elsewhere),
]

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
every_case = pytest.mark.parametrize("case", [*CASES, *MORE_CASES], ids=lambda case: case.name)


# --- kills ------------------------------------------------------------------------------------------


def kill(trial: Trial, case: Case, calls: Sequence[Call]) -> None:
    def judge(scene: Scene, files: Files) -> None:
        settled = without_asides(files)
        check_json(settled)
        case.judge(Seen(scene, case.command, trial.old, trial.new, settled))

    trial.kill_at(calls, judge)
    trial.assert_all_well()
    # The kills happened where they should: at every change of a file, so also between two of them.
    changes = [call for call in trial.calls if call.operation in CHANGING]
    assert {"write", "fsync", "unlink"} <= {call.operation for call in changes}
    wanted = {(call.name, call.number) for call in changes}
    assert wanted <= trial.struck
    assert trial.old in trial.states
    assert trial.new in trial.states
    assert any(asides(files) for files in trial.states)


@every_case
def test_killed_at_any_change_of_a_file_of_ours(case: Case, top: Path) -> None:
    """No file of ours changes between two of these calls: a kill there leaves the same as a kill at the next one."""
    trial = Trial.prepare(top, case.prepare, case.command)
    kill(trial, case, trial.calls_on_files(CHANGING))


@pytest.mark.skipif("RALPH_STORM" not in os.environ, reason="takes thousands of processes; set RALPH_STORM=1")
@each_case
def test_killed_at_any_system_call(case: Case, top: Path) -> None:
    trial = Trial.prepare(top, case.prepare, case.command)
    assert len(trial.calls) > 300, "starting Python alone takes that many"
    kill(trial, case, trial.calls)


# --- system errors ----------------------------------------------------------------------------------

ERRORS = {
    "ENOSPC": ["write", "fsync", "rename", "link", "mkdir", "open"],
    "EIO": [*CHANGING, "open", "read", "flock", "list"],
}
MESSAGES = {"ENOSPC": "No space left on device", "EIO": "Input/output error"}


def can_fail(call: Call, error: str) -> bool:
    return error == "EIO" or call.operation != "open" or "O_CREAT" in call.text


def unreadable(call: Call) -> str | None:
    """The other error code that is allowed if a spec or a setting can't be read."""
    if call.operation in CHANGING or "O_CREAT" in call.text:
        return None
    if "/.ralph/config.toml" in call.text:
        return "INVALID_VALUE"
    return "SPEC_ERROR" if any(f"/project/{place}" in call.text for place in ("openspec", "docs", "prd.json")) else None


@pytest.mark.parametrize("error", ERRORS)
@every_case
def test_failed_by_the_system_at_any_call(case: Case, error: str, top: Path) -> None:
    trial = Trial.prepare(top, case.prepare, case.command)
    calls = [call for call in trial.calls_on_files(ERRORS[error]) if can_fail(call, error)]
    assert {"write", "fsync", "open"} <= {call.operation for call in calls}

    def judge(scene: Scene, call: Call, result: Result) -> None:
        files = scene.files()
        settled = without_asides(files)
        check_json(settled)
        if result.exit_code == 0:
            assert not call.is_answer
            assert without(files, case.leftovers) == trial.new, "it said that all is well"
            if trial.is_new((scene.whole(), "well")):
                case.judge(Seen(scene, case.command, trial.old, trial.new, settled))
            return
        assert result.exit_code == 1
        assert result.code in ("IO_ERROR", unreadable(call))
        assert MESSAGES[error] in result.error["error"]
        if call.operation != "unlink":
            assert not asides(files), "what was begun aside has to be cleared away"
        if trial.is_new((scene.whole(), call.is_answer)):
            case.judge(Seen(scene, case.command, trial.old, trial.new, settled, error=True, answered=call.is_answer))

    trial.fail_at(calls, error, judge)
    trial.assert_all_well()
    assert len(trial.struck) == len(calls)


# --- durability -------------------------------------------------------------------------------------


@every_case
def test_every_change_is_on_disk_before_the_answer(case: Case, top: Path) -> None:
    """Written aside and synced before it gets its name; its folder synced before the answer is printed."""
    trial = Trial.prepare(top, case.prepare, case.command)
    calls = trial.calls_on_files([*CHANGING, "open"])
    answer = next(index for index, call in enumerate(calls) if call.is_answer)
    published = [index for index, call in enumerate(calls) if call.operation in ("rename", "link")]
    removed = [index for index, call in enumerate(calls) if _removes(call)]
    assert published or removed
    assert max(published + removed) < answer
    for index in published:
        source, target = _paths(calls[index])
        assert any(_syncs(call, source) for call in calls[:index]), f"not synced before {calls[index]}"
        assert any(_syncs(call, os.path.dirname(target)) for call in calls[index:answer]), f"not after {calls[index]}"
    for index in removed:
        [target] = _paths(calls[index])
        assert any(_syncs(call, os.path.dirname(target)) for call in calls[index:answer]), f"not after {calls[index]}"


def _paths(call: Call) -> list[str]:
    return call.text.split('"')[1::2]


def _removes(call: Call) -> bool:
    return call.operation == "unlink" and not asides(_paths(call)) and call.text.endswith("= 0")


def _syncs(call: Call, path: str) -> bool:
    return call.operation == "fsync" and f"<{path}>" in call.text and call.text.endswith("= 0")
