"""Many commands at once: nothing that was acknowledged is lost, and the files are complete at every moment."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faults import CHANGING, Call, Command, Race, Scene, Stopped, Trial, ended, need_strace
from patience import PATIENCE
from project import Ralph, Result
from properties import sample

INIT = "ralphtool agent session init --change add-login"


def answers(result: Result) -> list[dict[str, Any]]:
    """The JSON objects that a script's commands printed when they succeeded."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def errors(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stderr.splitlines()]


def texts_of(ralph: Ralph, session: str = "s1") -> list[str]:
    return [learning["description"] for learning in ralph.session(session)["learnings"]]


def lines_of_design(ralph: Ralph) -> Counter[str]:
    return Counter(line.removeprefix("- ") for line in ralph.design_file.read_text().splitlines())


# --- many agents in one session ---------------------------------------------------------------------


def tasks_file(stories: int, tasks: int) -> str:
    parts = []
    for story in range(1, stories + 1):
        boxes = [f"- [ ] {story}.{task} Do thing {task}\n" for task in range(1, tasks + 1)]
        parts.append(f"## {story}. Story\n\n{''.join(boxes)}\n")
    return "\n".join(parts)


class Reader:
    """Reads the session and the tasks all the time: each time both are complete, and nothing has disappeared."""

    def __init__(self, ralph: Ralph) -> None:
        self.ralph = ralph
        self.blank = ralph.tasks_file.read_text()
        self.looks = 0
        self._learnings: list[Any] = []
        self._ticked = 0

    def look(self) -> None:
        state = self.ralph.session()
        assert state["learnings"][: len(self._learnings)] == self._learnings
        self._learnings = state["learnings"]
        tasks = self.ralph.tasks_file.read_text()
        assert tasks.replace("- [x]", "- [ ]") == self.blank
        assert tasks.count("- [x]") >= self._ticked
        self._ticked = tasks.count("- [x]")
        self.looks += 1


def test_64_processes_learn_while_others_tick(ralph: Ralph) -> None:
    learners, each, stories, tasks = 64, 20, 8, 10
    ralph.openspec(tasks_file(stories, tasks)).begin()
    reader = Reader(ralph)
    learn = 'for i in $(seq 20); do ralphtool agent learn "learner $1 says $i" || exit 1; done'
    tick = 'for i in $(seq 10); do ralphtool agent task done "$RALPH_STORY.$i" || exit 1; done'
    with Race(ralph) as race:
        for number in range(learners):
            race.enter(learn, str(number), RALPH_SESSION="s1")
        for story in range(1, stories + 1):
            race.enter(tick, RALPH_SESSION="s1", RALPH_STORY=str(story))
        race.go()
        while race.running():
            reader.look()
        results = race.results()

    assert [(result.exit_code, result.stderr) for result in results] == [(0, "")] * (learners + stories)
    assert reader.looks > 20
    said = [answer for result in results[:learners] for answer in answers(result)]
    texts = texts_of(ralph)
    assert len(said) == learners * each
    assert Counter(texts) == Counter(f"learner {n} says {i}" for n in range(learners) for i in range(1, each + 1))
    # Each learning got a different number: its position.
    assert {answer["total_learnings"]: answer["learning"]["description"] for answer in said} == dict(
        enumerate(texts, 1)
    )
    everything = {f"{story}.{task}" for story in range(1, stories + 1) for task in range(1, tasks + 1)}
    assert sorted(ralph.session()["completed_tasks"]) == sorted(everything)
    assert "- [ ]" not in ralph.tasks_file.read_text()

    assert ralph.agent("session", "flush").json["learnings_written"] == learners * each
    written = lines_of_design(ralph)
    assert {text: written[text] for text in texts} == dict.fromkeys(texts, 1)


def test_sessions_with_almost_the_same_long_id_do_not_mix(ralph: Ralph) -> None:
    """The name of an aside file is made from its target's name: two long ones must not share it."""
    ids = [f"{'a' * 127}{number}" for number in range(2)]
    for number, id in enumerate(ids):
        ralph.openspec(change=f"change{number}").begin(f"change{number}", id)
    learn = 'for i in $(seq 10); do ralphtool agent learn "$1 says $i" || exit 1; done'
    with Race(ralph) as race:
        for number, id in enumerate(ids):
            for learner in range(4):
                race.enter(learn, f"{number} {learner}", RALPH_SESSION=id)
        results = race.results()
    assert [(result.exit_code, result.stderr) for result in results] == [(0, "")] * 8
    for number, id in enumerate(ids):
        expected = Counter(f"{number} {learner} says {i}" for learner in range(4) for i in range(1, 11))
        assert Counter(texts_of(ralph, id)) == expected


# --- starting and taking over -----------------------------------------------------------------------


def race_for_the_change(ralph: Ralph, count: int) -> str:
    """Starts many sessions at once; returns the one that won."""
    ids = [f"runner{number}" for number in range(count)]
    with Race(ralph) as race:
        for id in ids:
            race.enter(INIT, RALPH_SESSION=id)
        results = dict(zip(ids, race.results(), strict=True))
    winners = [id for id, result in results.items() if result.exit_code == 0]
    assert len(winners) == 1, {id: result.stderr for id, result in results.items()}
    [winner] = winners
    for id in set(ids) - {winner}:
        assert results[id].code == "CHANGE_LOCKED"
        assert f"session {winner} " in results[id].error["error"]
    assert results[winner].json["session_id"] == winner
    assert json.loads(ralph.lock_file.read_text())["session_id"] == winner
    assert [file.name for file in ralph.session_file().parent.glob("*.json")] == [f"{winner}.json"]
    return winner


@pytest.mark.parametrize("attempt", range(3))
def test_of_many_inits_at_once_exactly_one_wins(project: Ralph, attempt: int) -> None:
    winner = race_for_the_change(project, 24)
    assert texts_of(project, winner) == []


@pytest.mark.parametrize("attempt", range(3))
def test_of_many_that_take_over_at_once_exactly_one_inherits_all(project: Ralph, attempt: int) -> None:
    project.begin()
    learnt = [f"learnt before {number}" for number in range(5)]
    for text in learnt:
        assert project.agent("learn", text).json
    assert project.run("unlock", "add-login").exit_code == 0
    winner = race_for_the_change(project, 24)
    assert texts_of(project, winner) == learnt
    assert project.agent("session", "flush", session=winner).json["learnings_written"] == len(learnt)


def test_first_sessions_of_many_projects_at_once_all_begin(tmp_path: Path) -> None:
    """They share the temporary directory, in which ralphtool has no files yet."""
    tops = [tmp_path / f"top{number}" for number in range(12)]
    for top in tops:
        top.mkdir()
    projects = [Ralph(top).openspec(change=top.name) for top in tops]
    with Race(projects[0]) as race:
        for ralph, top in zip(projects, tops, strict=True):
            script = f'cd "$1" && ralphtool agent session init --change {top.name}'
            race.enter(script, str(ralph.root), RALPH_SESSION=f"session-of-{top.name}")
        results = race.results()
    assert [result.stderr for result in results] == [""] * len(tops)
    assert [answer["change_name"] for result in results for answer in answers(result)] == [top.name for top in tops]
    for top in tops:
        assert (projects[0].tmp / f"ralphtool/{top.name}-learnings.md").is_file()


# --- learning while the session ends ----------------------------------------------------------------


def learn_until_refused(ralph: Ralph, session: str, count: int, then: Callable[[], Result]) -> tuple[list[str], Result]:
    """Learners continue until an error says that the session is gone; returns the acknowledged learnings."""
    script = 'i=0; while [ $i -lt 1000 ] && ralphtool agent learn "learner $1 says $i"; do i=$((i+1)); done'
    with Race(ralph) as race:
        for number in range(count):
            race.enter(script, str(number), RALPH_SESSION=session)
        race.go()
        wait_for_learnings(ralph, session, 3 * count)
        last = then()
        results = race.results()
    for result in results:
        assert [error["code"] for error in errors(result)] == ["SESSION_NOT_FOUND"]
    return [answer["learning"]["description"] for result in results for answer in answers(result)], last


def wait_for_learnings(ralph: Ralph, session: str, count: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while len(texts_of(ralph, session)) < count:
        assert time.monotonic() < deadline, "nobody learns anything"
        time.sleep(0.01)


@pytest.mark.parametrize("attempt", range(3))
def test_what_is_acknowledged_during_a_flush_is_written_once(project: Ralph, attempt: int) -> None:
    project.begin()
    acknowledged, flush = learn_until_refused(project, "s1", 8, lambda: project.agent("session", "flush"))
    written = lines_of_design(project)
    assert {text: written[text] for text in acknowledged} == dict.fromkeys(acknowledged, 1)
    assert flush.json["learnings_written"] == len(acknowledged)
    assert not project.session_file().exists(), "a late learner must not bring the session back"
    assert not project.lock_file.exists()


@pytest.mark.parametrize("attempt", range(3))
def test_what_is_acknowledged_during_a_take_over_is_inherited(project: Ralph, attempt: int) -> None:
    project.begin()
    assert project.run("unlock", "add-login").exit_code == 0
    init = ("session", "init", "--change", "add-login")
    acknowledged, begun = learn_until_refused(project, "s1", 8, lambda: project.agent(*init, session="s2"))
    assert begun.json["session_id"] == "s2"
    assert Counter(texts_of(project, "s2")) == Counter(acknowledged)
    assert not project.session_file("s1").exists()


def test_of_many_flushes_at_once_each_thing_is_written_once(project: Ralph) -> None:
    project.begin()
    learnt = [f"learnt {number}" for number in range(10)]
    for text in learnt:
        assert project.agent("learn", text).json
    with Race(project) as race:
        for _ in range(12):
            race.enter("ralphtool agent session flush", RALPH_SESSION="s1")
        results = race.results()
    [winner] = [result for result in results if result.exit_code == 0]
    assert winner.json["learnings_written"] == len(learnt)
    assert {result.code for result in results if result is not winner} == {"SESSION_NOT_FOUND"}
    written = lines_of_design(project)
    assert {text: written[text] for text in learnt} == dict.fromkeys(learnt, 1)


LATE = Command(("learn", "late"))


def learn_at_every_step(
    top: Path, prepare: Callable[[Ralph], object], command: Command, check: Callable[[Ralph, bool], None]
) -> None:
    """Runs `learn` while a command is stopped after each of its changes; it waits, or is recorded."""
    need_strace()
    trial = Trial.prepare(top, prepare, command)
    calls = trial.calls_on_files([*CHANGING, "flock"])[:-1]
    assert {"flock", "fsync", "unlink"} <= {call.operation for call in calls}

    def attempt(scene: Scene, call: Call) -> None:
        stopped = Stopped(scene, command, call)
        learner = LATE.start(scene.ralph)
        with contextlib.suppress(subprocess.TimeoutExpired):
            learner.wait(0.15)
        assert stopped.go_on().exit_code == 0
        late = ended(learner)
        assert late.exit_code == 0 or late.code == "SESSION_NOT_FOUND"
        check(scene.ralph, late.exit_code == 0)

    trial.try_each(sample(calls, 3), attempt)
    trial.assert_all_well()


def session_with_a_learning(ralph: Ralph) -> None:
    ralph.openspec().begin()
    assert ralph.agent("learn", "learnt").json


def abandoned_session(ralph: Ralph) -> None:
    session_with_a_learning(ralph)
    assert ralph.run("unlock", "add-login").exit_code == 0


def test_learning_at_any_step_of_a_flush(tmp_path: Path) -> None:
    def check(ralph: Ralph, acknowledged: bool) -> None:
        written = lines_of_design(ralph)
        assert (written["learnt"], written["late"]) == (1, 1 if acknowledged else 0)
        assert not ralph.session_file().exists()

    learn_at_every_step(tmp_path, session_with_a_learning, Command(("session", "flush")), check)


def test_learning_at_any_step_of_a_take_over(tmp_path: Path) -> None:
    def check(ralph: Ralph, acknowledged: bool) -> None:
        assert texts_of(ralph, "s2") == ["learnt", *(["late"] if acknowledged else [])]
        assert not ralph.session_file("s1").exists()

    init = Command(("session", "init", "--change", "add-login", "--spec", "openspec"), "s2")
    learn_at_every_step(tmp_path, abandoned_session, init, check)


def test_learning_at_any_step_of_a_task_that_is_done(tmp_path: Path) -> None:
    def check(ralph: Ralph, acknowledged: bool) -> None:
        assert acknowledged
        assert texts_of(ralph) == ["learnt", "late"]
        assert ralph.session()["completed_tasks"] == ["1.1"]
        assert "- [x] 1.1 " in ralph.tasks_file.read_text()

    learn_at_every_step(tmp_path, session_with_a_learning, Command(("task", "done", "1.1")), check)


# --- ticking at the same time -----------------------------------------------------------------------


def prd_file(criteria: int) -> str:
    story = {"id": "US-1", "title": "Login", "acceptanceCriteria": [f"c{n}" for n in range(criteria)], "passes": False}
    other = {"id": "US-2", "title": "Logout", "acceptanceCriteria": ["c"], "passes": False, "unknown": [1.0]}
    return json.dumps({"branchName": "ralph/add-login", "userStories": [story, other]}, indent=3)


def test_the_last_of_many_criteria_sets_passes(ralph: Ralph) -> None:
    count = 24
    text = prd_file(count)
    file = ralph.write("prd.json", text)
    ralph.begin()
    with Race(ralph) as race:
        for number in range(1, count + 1):
            race.enter('ralphtool agent task done "$1"', f"US-1.{number}", RALPH_SESSION="s1")
        race.go()
        while race.running():
            # The spec is written first: when the story passes there, at most the last task is missing in the session.
            passes = json.loads(file.read_text())["userStories"][0]["passes"]
            assert not passes or len(ralph.session()["completed_tasks"]) >= count - 1
        results = race.results()
    assert [result.exit_code for result in results] == [0] * count
    assert [result.json["story_complete"] for result in results].count(True) == 1
    assert file.read_text() == text.replace('"passes": false', '"passes": true', 1)
    assert sorted(ralph.session()["completed_tasks"]) == sorted(f"US-1.{number}" for number in range(1, count + 1))


# --- editors, which ignore our locks ----------------------------------------------------------------

TICK = Command(("task", "done", "1.1"))
FLUSH = Command(("session", "flush"))
NOTE = "- [ ] 1.3 Added by hand\n"
DESIGN = "# Design\n\nWritten by hand.\n"

Edit = Callable[[Path, str], None]


def replace_by_editor(file: Path, text: str) -> None:
    """As most editors save: a new file replaces the old one."""
    aside = file.with_name(f"{file.name}~")
    aside.write_text(text)
    os.replace(aside, file)


def overwrite_by_editor(file: Path, text: str) -> None:
    """As the others do: the same file, truncated and rewritten."""
    file.write_text(text)


def calls_on(trial: Trial, file: str) -> list[Call]:
    """All calls on a file, or beside it, before a new one replaces it."""
    calls = [call for call in trial.calls_on_files() if file in call.text]
    published = [index for index, call in enumerate(calls) if call.operation in ("rename", "link")]
    return calls[: published[0]]


def before_the_last_look(calls: list[Call]) -> list[Call]:
    """An editor that saves in the microseconds between our last check and the rename can't be noticed."""
    looks = [index for index, call in enumerate(calls) if call.operation == "stat"]
    return calls[: looks[-1]]


each_editor = pytest.mark.parametrize("edit", [replace_by_editor, overwrite_by_editor])


@each_editor
def test_an_editor_that_saves_the_tasks_meanwhile_loses_nothing(edit: Edit, tmp_path: Path) -> None:
    need_strace()
    trial = Trial.prepare(tmp_path, lambda ralph: ralph.openspec().begin(), TICK)
    calls = before_the_last_look(calls_on(trial, "tasks.md"))
    assert {"open", "flock", "read", "write", "fsync"} <= {call.operation for call in calls}

    def attempt(scene: Scene, call: Call) -> None:
        stopped = Stopped(scene, TICK, call)
        edited = scene.ralph.tasks_file.read_text().replace("## 2.", f"{NOTE}\n## 2.")
        edit(scene.ralph.tasks_file, edited)
        result = stopped.go_on()
        assert result.exit_code == 0, result.stderr
        assert scene.ralph.tasks_file.read_text() == edited.replace("- [ ] 1.1", "- [x] 1.1")

    trial.try_each(calls, attempt)
    trial.assert_all_well()


@each_editor
def test_a_design_that_somebody_begins_during_a_flush_is_kept(edit: Edit, tmp_path: Path) -> None:
    need_strace()
    trial = Trial.prepare(tmp_path, session_with_a_learning, FLUSH)
    calls = calls_on(trial, "design.md")
    assert {"open", "write", "fsync"} <= {call.operation for call in calls}

    def attempt(scene: Scene, call: Call) -> None:
        stopped = Stopped(scene, FLUSH, call)
        edit(scene.ralph.design_file, DESIGN)
        result = stopped.go_on()
        if result.exit_code:  # it may ask to be run again, but then it must work
            result = scene.ralph.agent("session", "flush")
        assert result.json["learnings_written"] == 1
        text = scene.ralph.design_file.read_text()
        assert text.startswith(DESIGN), text
        assert text.count("- learnt\n") == 1

    trial.try_each(calls, attempt)
    trial.assert_all_well()
