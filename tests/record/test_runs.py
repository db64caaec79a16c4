"""The runs of a project: which there are, how each ended, and whether one that looks alive is alive."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest
from lab import DONE, Lab, kill, wait_until
from project import Ralph
from record.run_records import ID, NOON, Event, Terminal, ended, line, moment, put, records, started, verdict

from ralphtool.core import locks
from ralphtool.errors import InvalidValue
from ralphtool.record import runs


def read(root: Path, *events: Event | bytes) -> runs.RunSummary:
    put(root, ID, *events)
    return runs.read_summary(str(root), ID)


def test_a_draft_counts_no_stories(tmp_path: Path) -> None:
    assert runs.describe_progress(read(tmp_path, started(stories=1))) == "0/1"
    assert runs.describe_progress(read(tmp_path, started(stories=1, purpose="plan"))) == "plan"
    assert runs.describe_progress(read(tmp_path, started(stories=0))) == ""


# --- real runs --------------------------------------------------------------------------------------


def test_a_real_run_goes_on_and_is_killed_and_the_next_is_done(lab: Lab) -> None:
    lab.repository().play(default=[{"hang": True}])
    process = lab.start()
    try:
        assert wait_until(lambda: any(b"iteration_started" in path.read_bytes() for path in records(lab)))
        [going] = lab.run("runs", "--json").json["runs"]
        assert (going["state"], going["change"], going["agent"]) == ("running", "add-login", "scripted")
        assert (going["stories_done"], going["stories_total"], going["ended"]) == (0, 2, None)
    finally:
        kill(process)
    [dead] = lab.run("runs", "--json").json["runs"]
    assert (dead["id"], dead["state"]) == (going["id"], "died")

    lab.play(default=DONE)
    assert lab.loop().exit_code == 0
    done, before = lab.run("runs", "--json").json["runs"]
    assert (done["state"], done["stories_done"], done["stories_total"]) == ("done", 2, 2)
    assert done["seconds"] > 0
    assert before["state"] == "died"
    told = lab.run("runs").stdout.splitlines()
    assert [row.split()[:2] for row in told] == [
        ["RUN", "CHANGE"],
        [done["id"], "add-login"],
        [dead["id"], "add-login"],
    ]
    assert "  done  " in told[1]
    assert "  died  " in told[2]
    assert lab.run("runs", "--last", "1", "--json").json["runs"][0]["id"] == done["id"]


# --- which there are --------------------------------------------------------------------------------


def test_the_newest_comes_first(tmp_path: Path) -> None:
    names = ["b-20260301-120000-aaaa", "a-20260301-120001-aaaa", "c-20251231-235959-ffff", "by-hand"]
    for name in names:
        put(tmp_path, name, started())
    assert runs.list_ids(str(tmp_path)) == [names[1], names[0], names[2], names[3]]


def test_of_one_second_the_one_that_was_written_last_is_the_newest(tmp_path: Path) -> None:
    for name, written in (("a-20260301-120000-ffff", 1), ("a-20260301-120000-0000", 2)):
        os.utime(put(tmp_path, name, started()), (written, written))
    assert runs.list_ids(str(tmp_path))[0] == "a-20260301-120000-0000"


def test_what_is_no_run_is_not_listed(tmp_path: Path) -> None:
    assert runs.list_ids(str(tmp_path)) == []
    folder = tmp_path / ".ralph/runs"
    (folder / "x-20260301-120000-aaaa/events.jsonl").mkdir(parents=True)
    (folder / "y-20260301-120000-aaaa").mkdir()
    (folder / "z-20260301-120000-aaaa").mkdir()
    (folder / "z-20260301-120000-aaaa/events.jsonl").symlink_to("/dev/zero")
    (folder / "p-20260301-120000-aaaa").mkdir()
    os.mkfifo(folder / "p-20260301-120000-aaaa/events.jsonl")
    (folder / ".gitignore").write_text("*\n")
    assert runs.list_ids(str(tmp_path)) == []


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (None, "add-login-20260301-120001-1a2b"),
        ("add-login-20260301-120000-1a2b", "add-login-20260301-120000-1a2b"),
        ("add-login", "add-login-20260301-120001-1a2b"),
        ("add", "add-20260301-110000-9f9f"),
        ("add-login-20260301-120000", "add-login-20260301-120000-1a2b"),
        ("9f9f", "add-20260301-110000-9f9f"),
        ("1a2b", "1a2b matches add-login-20260301-120001-1a2b, add-login-20260301-120000-1a2b: give more of"),
        ("", "there is no run : `ralphtool runs` lists them"),
        ("nope", "there is no run nope: `ralphtool runs` lists them"),
    ],
)
def test_a_run_is_found_by_its_name(tmp_path: Path, name: str | None, found: str) -> None:
    for id in ("add-login-20260301-120000-1a2b", "add-login-20260301-120001-1a2b", "add-20260301-110000-9f9f"):
        put(tmp_path, id, started())
    try:
        told = runs.find(str(tmp_path), name).id
    except InvalidValue as error:
        told = str(error)
    assert told.startswith(found)


def test_without_any_run(project: Ralph) -> None:
    assert project.run("runs").stdout == "There are no runs here yet: `ralphtool run` starts one.\n"
    assert project.run("runs", "--json").json == {"runs": []}
    with pytest.raises(InvalidValue, match="`ralphtool run` starts one"):
        runs.find(str(project.root), None)


def test_the_newest_of_a_change(tmp_path: Path) -> None:
    long = "c" * 120
    for id, change in (
        ("add-20260301-120000-aaaa", "add"),
        ("add-20260301-120005-aaaa", "add"),
        (f"{long[:90]}-20260301-120000-aaaa", long),
        (f"{long[:90]}-20260301-120009-aaaa", f"{long}d"),
    ):
        put(tmp_path, id, started(change))
    found = runs.find_newest(str(tmp_path), "add")
    assert found
    assert found.id == "add-20260301-120005-aaaa"
    other = runs.find_newest(str(tmp_path), long)
    assert other
    assert other.id == f"{long[:90]}-20260301-120000-aaaa"
    assert runs.find_newest(str(tmp_path), "ad") is None


# --- the contents of a record -----------------------------------------------------------------------


@pytest.mark.parametrize("result", ["done", "unfinished", "interrupted"])
def test_how_a_run_ended(tmp_path: Path, result: str) -> None:
    run = read(tmp_path, started(), verdict("0"), ended(result, reason="why"))
    assert (run.state, run.reason, run.stories_done, run.stories_total) == (result, "why", 2, 2)
    assert (run.began, run.ended, run.spent) == (NOON, "2026-03-01T13:02:03.000000Z", {"cost": 1.5})
    assert runs.measure_duration(run) == 3723
    assert run.end == ended(result, reason="why")


def test_a_run_that_goes_on_tells_how_far_it_is(tmp_path: Path) -> None:
    here = started(pid=os.getpid(), at=moment())
    done = {"at": NOON, "type": "checkpoint", "story": "1", "commit": "9f2c"}
    run = read(tmp_path, here, verdict("1", cost=0.5), done, verdict("0", "failed", cost=0.25))
    assert (run.state, run.stories_done, run.stories_total, run.spent["cost"]) == ("running", 1, 2, 0.75)
    assert read(tmp_path, here, {"at": NOON, "type": "paused", "why": "lunch"}).state == "paused"
    assert read(tmp_path, here, {"type": "paused"}, {"type": "resumed"}).state == "running"
    assert read(tmp_path, here, {"type": "paused"}, {"type": "iteration_started"}).state == "running"


@pytest.mark.parametrize(("branch", "done"), [("ralph/add-login", 0), (None, 1)])
def test_a_verdict_alone_makes_no_story_done_where_there_are_checkpoints(
    tmp_path: Path, branch: str | None, done: int
) -> None:
    """The user moved the branch away, so that nothing could be committed to it."""
    run = read(tmp_path, started(branch=branch), verdict("1"), ended("unfinished", stories=[]))
    assert (run.state, run.stories_done) == ("unfinished", done)


def test_a_long_record_without_an_end_is_counted_from_its_beginning(tmp_path: Path) -> None:
    def told(type: str, story: str, **fields: object) -> Event:
        return {"at": NOON, "type": type, "story": story, **fields}

    early = [verdict(story, cost=0.5) for story in "12"] + [told("checkpoint", story) for story in "12"]
    run = read(tmp_path, started(), *early, 200 * NOISE, told("checkpoint", "3"))
    assert (run.state, run.stories_done, run.spent["cost"]) == ("died", 3, 1.0)
    rejected = told("reopened", "1")
    assert read(tmp_path, started(), *early, 200 * NOISE, rejected).stories_done == 1
    edited = {"at": NOON, "type": "plan_edited", "stories": [{"id": "1"}, {"id": "2", "state": "done"}, {"id": "9"}]}
    accepted, odd = told("proof", "9", receipt={"state": "accepted"}), told("proof", "1", receipt=["accepted"])
    run = read(tmp_path, started(), *early, edited, 200 * NOISE, accepted, odd)
    assert (run.stories_done, run.stories_total) == (2, 3)


@pytest.mark.parametrize("odd", [b'"abc"', b"[1]", b"1e999", b"-1", b"true", b"null", b"{}", b"9" * 400])
def test_what_was_spent_are_numbers(project: Ralph, odd: bytes) -> None:
    spent = {"cost": "ODD", "input_tokens": 7, "of a later version": 1}
    run = read(project.root, started(), line(ended(spent=spent)).replace(b'"ODD"', odd))
    assert (run.state, run.spent) == ("done", {"input_tokens": 7})


def test_what_an_iteration_without_a_verdict_used_is_counted(tmp_path: Path) -> None:
    def used(cost: float | None) -> Event:
        return {"at": NOON, "type": "agent", "event": {"kind": "usage", "input_tokens": 10, "cost": cost}}

    told = verdict("1", cost=0.5, input_tokens=30)
    run = read(tmp_path, started(), used(0.25), used(None), told, used(0.125), NOISE, used(None))
    assert run.spent == {"input_tokens": 50, "output_tokens": 0, "cost": 0.625}
    assert read(tmp_path, started(), told, 200 * NOISE, used(0.125)).spent["cost"] == 0.625


def test_what_an_iteration_beside_others_used_is_counted_before_its_verdict(tmp_path: Path) -> None:
    def used(iteration: int, cost: float) -> Event:
        about = {"event": {"kind": "usage", "cost": cost}, "iteration": iteration}
        return {"at": NOON, "type": "agent", **about}

    run = read(tmp_path, started(), used(1, 0.25), used(2, 1.0), verdict("1", "failed", cost=0.5, iteration=1))
    assert run.spent["cost"] == 1.5


def test_what_a_run_used_that_an_error_ended_is_counted(tmp_path: Path) -> None:
    error = ended("unfinished", reason="the disk is full", stories=[], spent={})
    run = read(tmp_path, started(), verdict("1", "failed", cost=0.5), verdict("1", "failed", cost=0.25), error)
    assert (run.state, run.spent["cost"]) == ("unfinished", 0.75)


NOISE = line({"at": NOON, "type": "agent", "event": {"kind": "output", "text": "x" * 500 + ' "type":"run_ended" '}})


def test_only_head_and_tail_of_two_gigabytes_are_read(tmp_path: Path) -> None:
    path = put(tmp_path, ID, started(), 2000 * NOISE)
    with path.open("r+b") as file:
        file.seek(2 << 30)
        file.write(b"\n" + 2000 * NOISE + line(verdict("0")) + line(ended()))
    begun = time.process_time()
    run = runs.read_summary(str(tmp_path), ID)
    assert (run.state, run.began, run.stories_done) == ("done", NOON, 2)
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    ("events", "state", "change"),
    [
        ([], "died", "add-login"),
        ([b"\0" * 300_000], "died", "add-login"),
        ([b"not json\n" * 9], "died", "add-login"),
        ([b"[1]\n7\nnull\n" + b'{"type": 7}\n' + b"\xff\xfe\n"], "died", "add-login"),
        ([b"x" * 9_000_000], "died", "add-login"),
        ([line(started("other"))[:-9]], "died", "add-login"),
        ([started("other"), line(ended())[:-1]], "died", "other"),
        ([started("other"), line(ended()), b'{"at":"2026'], "done", "other"),
        ([b'{"type": "run_started", "change": 7, "stories": {}}\n{"type": "run_ended"}\n'], "unfinished", "add-login"),
        ([b'{"type": "run_ended", "result": "of a later version", "later": 1}\n'], "unfinished", "add-login"),
        ([started("other", 30_000), NOISE, ended()], "done", "other"),
        ([started("other"), 200 * NOISE, ended(next=[{"say": "x" * 900_000}])], "done", "other"),
        ([started("../../etc")], "died", ""),
        ([started("x; rm -rf ~")], "died", ""),
    ],
)
def test_a_record_can_be_anything(tmp_path: Path, events: list[Event | bytes], state: str, change: str) -> None:
    run = read(tmp_path, *events)
    assert (run.state, run.change) == (state, change)


def test_only_the_process_that_wrote_it_makes_a_run_alive(tmp_path: Path) -> None:
    """A later process may have the same id."""
    with subprocess.Popen([sys.executable, "-c", "open(0).read()"], stdin=subprocess.PIPE) as other:
        assert read(tmp_path, started(pid=other.pid, at=moment(60))).state == "running"
        assert read(tmp_path, started(pid=other.pid, at=moment(-3600))).state == "died"
        assert other.stdin
        other.stdin.close()
    assert read(tmp_path, started(pid=other.pid, at=moment(60))).state == "died"


def lock(root: Path, *, machine: str) -> None:
    """The run locks its change, with an owner that no longer exists, on this machine or another."""
    owner = {"pid": 1, "start_time": "never", "machine": machine}
    about = {"change_name": "add-login", "session_id": ID, "session_file": f"/x/ralph/sessions/{ID}.json"}
    fields: Event = {**about, "acquired_at": NOON, "spec": None, "unlocked": False, "owner": owner, "inherits": []}
    (root / ".ralph/locks").mkdir(exist_ok=True)
    (root / ".ralph/locks/add-login.lock").write_text(json.dumps(fields))


def grow_old(root: Path) -> runs.RunSummary:
    """As if its record had last been written two minutes ago."""
    then = time.time() - 120
    for path in (root / ".ralph/runs" / ID).iterdir():
        os.utime(path, (then, then))
    return runs.read_summary(str(root), ID)


def test_a_run_of_another_machine_lives_as_long_as_it_writes(tmp_path: Path) -> None:
    put(tmp_path, ID, started())
    processes = tmp_path / ".ralph/runs" / ID / "processes"
    processes.touch()
    lock(tmp_path, machine="elsewhere")
    assert runs.read_summary(str(tmp_path), ID).state == "running"
    assert grow_old(tmp_path).state == "died"
    processes.touch()
    assert runs.read_summary(str(tmp_path), ID).state == "running"
    lock(tmp_path, machine=locks.describe_process()["machine"])
    assert runs.read_summary(str(tmp_path), ID).state == "died"


def test_a_killed_run_took_at_least_until_its_last_sign_of_life(ralph: Ralph) -> None:
    """A silent agent writes no events, but its processes are noted every second."""
    put(ralph.root, ID, started(), verdict("1"))
    beside = ralph.root / ".ralph/runs" / ID / "processes-1"
    for name, seconds in (("processes", 5), ("processes-1", 90)):
        path = beside.with_name(name)
        path.touch()
        then = datetime.fromisoformat(NOON).timestamp() + seconds
        os.utime(path, (then, then))
    [run] = ralph.run("runs", "--json").json["runs"]
    assert (run["state"], run["seconds"]) == ("died", 90.0)
    assert " 1 min 30 s  died" in ralph.run("runs").stdout
    assert "It ran for 1 min 30 s, " in ralph.run("report").stdout
    beside.unlink()
    assert ralph.run("runs", "--json").json["runs"][0]["seconds"] == 5.0


@pytest.mark.parametrize(
    ("last", "state"),
    [
        ({"type": "paused"}, "paused"),
        ({"type": "waiting", "until": moment(3600)}, "running"),
        ({"type": "waiting", "until": moment(-3600)}, "died"),
        ({"type": "waiting", "until": "soon"}, "died"),
        ({"type": "resumed"}, "died"),
    ],
)
def test_a_run_of_another_machine_that_rests_is_silent(tmp_path: Path, last: Event, state: str) -> None:
    put(tmp_path, ID, started(), {"at": NOON, **last})
    lock(tmp_path, machine="elsewhere")
    assert grow_old(tmp_path).state == state


def test_a_process_that_has_its_number_by_chance_makes_no_run_alive(tmp_path: Path) -> None:
    """As with the first process of a container."""
    put(tmp_path, ID, started(pid=os.getpid(), at=moment()))
    assert runs.read_summary(str(tmp_path), ID).state == "running"
    assert grow_old(tmp_path).state == "died"


# --- the command ------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_the_list_fits_the_terminal(tmp_path: Path, width: int) -> None:
    ralph = Ralph(tmp_path)
    for number in range(3):
        put(ralph.root, f"a-change-with-a-rather-long-name-20260301-12000{number}-1a2b", started("a-change"), ended())
    with Terminal(ralph, "runs", columns=width, rows=5, NO_COLOR="1") as terminal:
        shown, code = terminal.rest()
    assert code == 0
    lines = shown.splitlines()
    assert len(lines) == 4
    assert all(len(one) <= width and "done" in one for one in lines[1:])
    assert "\x1b" not in shown
    assert ("STORIES" in lines[0]) == (width > 20)


MODULES = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr, flush=True))
from ralphtool.__main__ import main
main()
"""


SLOW = {"locale", "shutil", "ralphtool.cli.agent", "ralphtool.core.spelling"}  # what commands like these don't need


@pytest.mark.parametrize(("command", "told"), [("runs", ID), ("watch", "3 of 3 stories are done.")])
def test_a_run_that_is_over_is_shown_without_rich_and_msgspec(project: Ralph, command: str, told: str) -> None:
    stories = [{"id": id, "title": "Login", "state": "done", "attempts": 1, "seconds": 9} for id in "123"]
    put(project.root, ID, started(), ended(stories=stories, next=[{"say": "Look at it", "run": "git log"}]))
    words = [sys.executable, "-c", MODULES, command]
    done = subprocess.run(words, cwd=project.root, env=project.env, capture_output=True, text=True, check=True)
    assert told in done.stdout
    loaded = set(done.stderr.split())
    assert "ralphtool.cli.watch" in loaded
    assert {"rich", "msgspec", "subprocess", "tempfile", "json", "psutil"} & loaded == set()
    assert SLOW & loaded == set()


def test_a_list_of_changes_loads_only_what_it_shows(project: Ralph) -> None:
    words = [sys.executable, "-c", MODULES, "list"]
    done = subprocess.run(words, cwd=project.root, env=project.env, capture_output=True, text=True, check=True)
    assert "add-login" in done.stdout
    loaded = set(done.stderr.split())
    assert "ralphtool.specs.openspec" in loaded
    assert {"rich", "msgspec", "ralphtool.specs.prd", "ralphtool.judging", "ralphtool.core.session"} & loaded == set()
    assert SLOW & loaded == set()


def test_an_ended_run_is_recognised_by_the_end_of_its_record(tmp_path: Path) -> None:
    stories = [{"id": str(number), "title": "Login" * 50, "state": "done"} for number in range(100)]  # a long last line
    put(tmp_path, ID, started(), ended(stories=stories))
    assert runs.has_ended(tmp_path.as_posix(), ID)
    other = ID.replace("1a2b", "3c4d")
    put(tmp_path, other, started(), ended(stories=stories), verdict("1"))
    assert not runs.has_ended(str(tmp_path), other)
    with pytest.raises(InvalidValue, match="there is no run x"):
        runs.has_ended(str(tmp_path), "x")


def test_hostile_names_are_shown_as_they_are_and_ascii_where_it_must_be(project: Ralph) -> None:
    put(project.root, "é\x1b[2J-20260301-120000-1a2b", started("x\ny"), ended(spent={"cost": "much"}))
    told = project.run("runs", PYTHONIOENCODING="ascii", LC_ALL="C").stdout
    assert told.isascii()
    assert told.splitlines()[1].startswith(r"\xe9\x1b[2J-20260301-120000-1a2b  2026-03-01 ")
    assert "much" not in told


def test_the_runs_of_a_change(project: Ralph) -> None:
    told = project.openspec().run("runs", "--change", "add-login")
    assert told.stdout == "There are no runs of add-login here yet: `ralphtool run add-login` starts one.\n"
    unknown = project.run("runs", "--change", "add-logn")
    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert "there is no change add-logn here: did you mean add-login?" in unknown.stderr
    put(project.root, "gone-20260301-120000-1a2b", started("gone"), ended())
    assert "gone-20260301" in project.run("runs", "--change", "gone").stdout, "its spec was deleted since"
