"""A `.ralph/progress.json` of another program: it blocks nothing, and is left alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.agent.calls import init, ok
from history.documents import FULL, encoded
from lab import DONE, Lab
from project import Ralph

from ralphtool.history import History, neighbour

THEIRS = b'{"project": "shop", "userStories": [{"id": "US-1", "passes": false, "version": 3}]}\n'
FOREIGN = {
    "an object": THEIRS,
    "nothing in it": b"{}",
    "a list": b'[{"story": 1}]',
    "a byte order mark": b"\xef\xbb\xbf" + THEIRS,
    "what only some read": b'{"cost": NaN}',
}
OURS = {
    "whole": encoded(FULL),
    "of another version": b'{"version": "7.0"}',
    "damaged": b'{"entries": 7}',
    "truncated": encoded(FULL)[:400],
    "empty": b"",
    "null": b"null",
}
OTHER, APART = ".ralph/progress.json", ".ralph/progress.ralphtool.json"


@pytest.mark.parametrize("data", FOREIGN.values(), ids=FOREIGN.keys())
def test_it_is_left_alone(project: Ralph, data: bytes) -> None:
    project.write(OTHER, data)
    init(project)
    ok(project, "session", "next-story")
    ok(project, "learn", "The till rounds down.")
    ok(project, "session", "flush")
    assert (project.root / OTHER).read_bytes() == data
    assert "The till rounds down." in project.read(APART)
    assert "The till rounds down." in project.run("progress", "learnings").stdout


@pytest.mark.parametrize("data", OURS.values(), ids=OURS.keys())
def test_what_may_be_ours_is_no_other_program_s(data: bytes) -> None:
    assert not neighbour.is_foreign(data)


def test_our_history_keeps_its_name_when_the_other_file_is_gone(tmp_path: Path) -> None:
    (tmp_path / ".ralph").mkdir()
    other = tmp_path / OTHER
    other.write_bytes(THEIRS)
    history = History(str(tmp_path))
    assert history.load().learnings == ()
    history.close()
    (tmp_path / APART).write_bytes(encoded(FULL))
    other.unlink()
    assert len(History(str(tmp_path)).load().entries) == len(FULL["entries"])


def test_it_may_come_while_the_history_is_open(tmp_path: Path) -> None:
    (tmp_path / ".ralph").mkdir()
    history = History(str(tmp_path))
    assert history.load().entries == ()
    (tmp_path / OTHER).write_bytes(THEIRS)
    assert history.load().entries == ()
    second = History(str(tmp_path))
    (tmp_path / APART).write_bytes(encoded(FULL))
    assert [len(one.load().entries) for one in (history, second)] == [len(FULL["entries"])] * 2
    assert (tmp_path / OTHER).read_bytes() == THEIRS


def test_an_old_progress_txt_is_taken_over_beside_it(project: Ralph) -> None:
    project.write(OTHER, THEIRS)
    project.write(".ralph/progress.txt", "- The till rounds down.\n")
    assert project.run("migrate").exit_code == 0
    assert "The till rounds down." in project.read(APART)


def test_a_run_beside_another_program(lab: Lab) -> None:
    """It writes its file while the agent works: that is not cheating, and nothing is reverted."""
    lab.repository(tests=["true"])
    lab.write(OTHER, THEIRS)
    newer = '{"project": "shop", "iteration": 2}'
    lab.play(default=[{"run": f"echo '{newer}' > {OTHER}"}, *DONE])
    result = lab.loop()
    assert result.exit_code == 0, result.stderr
    assert json.loads(lab.read(OTHER)) == json.loads(newer)
    assert {ending for _, ending in lab.endings()} == {"completed"}
    assert json.loads(lab.read(APART))["entries"]


def test_an_agent_that_damages_our_history_costs_the_other_program_nothing(lab: Lab) -> None:
    lab.repository(tests=["true"])
    lab.write(OTHER, THEIRS)
    newer = '{"iteration": 2}'
    lab.play(default=[{"run": f"echo '{newer}' > {OTHER}; echo garbage > {APART}"}, *DONE])
    lab.loop()
    assert json.loads(lab.read(OTHER)) == json.loads(newer)
    assert json.loads(lab.read(APART))["entries"]


def test_an_agent_that_removes_our_history_beside_it_is_found_out(lab: Lab) -> None:
    lab.repository(tests=["true"], attempts=1)
    lab.write(OTHER, THEIRS)
    lab.play(default=[{"run": f"rm -f {APART} .ralph/progress.journal"}, *DONE])
    lab.loop()
    statuses = [ending for _, ending in lab.endings()]
    assert statuses[0] == "completed", "there was nothing to remove yet"
    assert "failed" in statuses[1:]
    assert len(json.loads(lab.read(APART))["entries"]) == len(statuses)


def test_an_agent_can_t_hide_our_history_behind_a_file_of_its_own(lab: Lab) -> None:
    lab.repository(tests=["true"], attempts=1)
    lab.play(default=[{"run": f"echo '{{}}' > {OTHER}"}, *DONE])
    lab.loop()
    assert "failed" in [ending for _, ending in lab.endings()]
    assert not (lab.root / APART).exists()


def test_doctor_names_both(project: Ralph) -> None:
    def tell() -> list[tuple[str, str]]:
        found = json.loads(project.run("doctor", "--json").stdout)["findings"]
        return [(one["state"], one["text"]) for one in found if one["about"] == "history"]

    project.write(OTHER, THEIRS)
    [(state, text)] = tell()
    assert (state, APART in text, "another program" in text) == ("ok", True, True)
    project.write(APART, encoded(FULL))
    project.write(OTHER, encoded(FULL))
    assert ("warning", f"{OTHER} is also a history, but is not used: {APART} is") in tell()
    (project.root / OTHER).write_bytes(b'{"entries": 7}')
    (project.root / APART).unlink()
    assert [state for state, _ in tell()] == ["wrong"]
