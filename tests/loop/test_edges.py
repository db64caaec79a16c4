"""Edge cases of the loop: each was found by trying to break it."""

from __future__ import annotations

import json
import shutil
import time
from typing import Any

import pytest
from lab import DONE, PYTHON, Lab, Process, ignores_term, kill, processes_with, wait_until

from ralphtool.core import locks

TASKS = "openspec/changes/add-login/tasks.md"
THREE = "## 1. A\n\n- [ ] 1.1 a\n- [ ] 1.2 b\n\n## 2. B\n\n- [ ] 2.1 c\n\n## 3. C\n\n- [ ] 3.1 d\n"


def turn(story: str, *steps: dict[str, Any], attempt: int | list[int] | None = None) -> dict[str, Any]:
    return {"story": story, "steps": list(steps)} | ({"attempt": attempt} if attempt else {})


def told(lab: Lab, kind: str, field: str) -> list[Any]:
    return [event[field] for event in lab.events() if event["type"] == kind]


# --- kept work, and other stories in between --------------------------------------------------------


def test_a_part_that_was_kept_goes_on_top_of_what_others_did_meanwhile(lab: Lab) -> None:
    """Story 1 does a part, then needs a human; story 2 is done; after the answer, story 1 resumes from its part."""
    lab.repository(THREE, attempts=2)
    part = turn("1", {"write": "part.txt", "text": "part"}, {"tick": "1.1"}, attempt=1)
    lab.play(part, turn("1", {"say": "no"}, attempt=2), default=DONE)
    assert lab.loop().exit_code == 1
    assert lab.checkpoints() == ["2", "3"]
    lab.question().write_text(lab.question().read_text() + "\nGo on.\n")
    lab.play(turn("1", {"run": "cat part.txt 2.txt"}, *DONE[1:]), default=DONE)
    assert lab.loop().exit_code == 0
    assert lab.checkpoints() == ["2", "3", "1"]
    assert lab.git("show", "ralph/add-login:part.txt") == "part"
    assert "[x] 1.1" in lab.git("show", f"ralph/add-login:{TASKS}")


def test_a_part_that_does_not_fit_any_more_is_begun_anew_and_that_is_said(lab: Lab) -> None:
    lab.repository(THREE, attempts=2)
    part = turn("1", {"write": "same.txt", "text": "part"}, {"tick": "1.1"}, attempt=1)
    other = turn("2", {"write": "same.txt", "text": "other"}, *DONE[1:])
    lab.play(part, turn("1", {"say": "no"}, attempt=2), other, default=DONE)
    assert lab.loop().exit_code == 1
    lab.question().write_text(lab.question().read_text() + "\nGo on.\n")
    lab.play(default=DONE)
    assert lab.loop().exit_code == 0
    assert any("can't be applied on top of newer work" in text for text in told(lab, "notice", "text"))
    assert lab.git("show", "ralph/add-login:same.txt") == "other"
    assert lab.checkpoints() == ["2", "3", "1"]


def test_a_part_that_is_in_another_clone_is_begun_anew_and_that_is_said(lab: Lab) -> None:
    """The history can be committed; the commits of attempts are not fetched."""
    lab.repository(THREE)
    lab.play(turn("1", {"write": "part.txt", "text": "part"}, {"tick": "1.1"}, attempt=1), default=DONE)
    lab.loop("--max-iterations", "1")
    [ref] = lab.git("for-each-ref", "--format=%(refname)", "refs/ralph/attempts").split()
    lab.git("update-ref", "-d", ref)
    lab.git("prune", "--expire=now")
    assert lab.loop().exit_code == 0
    assert any("is not in this clone: starting over" in text for text in told(lab, "notice", "text"))
    assert lab.checkpoints() == ["1", "2", "3"]


# --- gates ------------------------------------------------------------------------------------------


def test_a_gate_that_was_red_as_a_whole_is_not_called_green(lab: Lab) -> None:
    lab.repository(tests=["false"]).play(default=DONE)
    assert lab.loop("--max-iterations", "1").exit_code == 1
    [entry] = lab.entries()
    assert entry["status"] == "completed"
    assert "not proven: `false` was red before and is still red" in entry["summary"]
    assert "green" not in entry["summary"]


REPORT = """<testsuite><testcase classname="a" name="old"><failure/></testcase></testsuite>"""


def test_a_report_that_the_gate_did_not_write_this_time_tells_nothing(lab: Lab) -> None:
    lab.repository(tests=["sh check.sh --junitxml=report.xml"])
    lab.write(".gitignore", "report.xml\n")
    lab.write("check.sh", f"echo '{REPORT}' > report.xml; exit 1\n")
    lab.git("add", "--all", "--", ":!.ralph")
    lab.git("commit", "--quiet", "--message=a test that is red")
    lab.play(turn("1", {"write": "check.sh", "text": "exit 1\n"}, *DONE[1:]), default=DONE)
    lab.loop("--max-iterations", "1")
    [entry] = lab.entries()
    assert entry["status"] == "failed"
    assert "now it fails as a whole" in entry["summary"]


# --- the diff ---------------------------------------------------------------------------------------


def test_replacing_an_object_of_gits_hides_nothing(lab: Lab) -> None:
    lab.repository()
    lab.write("tests/test_a.py", "def test_a():\n    assert 1 + 1 == 2\n")
    lab.git("add", "tests")
    lab.git("commit", "--quiet", "--message=a test")
    weaker = {"write": "tests/test_a.py", "text": "def test_a():\n    assert True\n"}
    swap = "git replace $(git rev-parse HEAD:tests/test_a.py) $(git hash-object -w tests/test_a.py)"
    lab.play(turn("1", weaker, {"run": swap}, *DONE[1:]), default=DONE)
    lab.loop("--max-iterations", "1")
    [receipt] = told(lab, "proof", "receipt")
    assert [one["kind"] for one in receipt["suspicions"]] == ["assertion-weakened"]
    assert receipt["state"] == "unproven"


def test_ticks_of_other_stories_are_never_done_even_where_the_guard_only_warns(lab: Lab) -> None:
    lab.repository(guard="warn")
    tick_all = {"run": f"echo work > work.txt; sed -i 's/\\[ \\]/[x]/' {TASKS}"}
    lab.play(turn("1", tick_all, {"complete": True}), default=DONE)
    assert lab.loop().exit_code == 0
    assert lab.checkpoints() == ["1", "2"]


def test_ticks_of_other_stories_are_not_done_in_the_next_run_either(lab: Lab) -> None:
    lab.repository(guard="warn")
    tick_all = {"run": f"echo work > work.txt; sed -i 's/\\[ \\]/[x]/' {TASKS}"}
    lab.play(turn("1", tick_all, {"complete": True}), default=DONE)
    assert lab.loop("--max-iterations", "1").exit_code == 1
    assert lab.loop().exit_code == 0
    assert lab.checkpoints() == ["1", "2"]


@pytest.mark.parametrize(("guard", "status"), [("off", "completed"), ("warn", "completed"), ("fail", "failed")])
def test_the_guard_can_be_set(lab: Lab, guard: str, status: str) -> None:
    lab.repository(guard=guard)
    lab.play(turn("1", {"run": f"sed -i 's/Make c/Make d/' {TASKS}"}, *DONE))
    lab.loop("--max-iterations", "1")
    assert [entry["status"] for entry in lab.entries()] == [status]
    [findings] = told(lab, "verdict", "findings")
    assert bool(findings) == (guard != "off")


# --- setup, waiting, stopping -----------------------------------------------------------------------


def test_a_set_up_that_fails_ends_the_run_and_uses_up_no_attempt(lab: Lab) -> None:
    lab.repository(setup=["echo no network; exit 3"], workspace="worktree").play(default=DONE)
    result = lab.loop()
    assert result.exit_code == 1
    assert "the setup command `echo no network; exit 3` failed (exit status 3)" in result.stderr
    assert lab.entries() == []
    assert told(lab, "run_ended", "result") == ["unfinished"]


def test_a_reset_time_that_is_over_makes_no_hot_loop(lab: Lab) -> None:
    lab.repository().play(default=[{"error": "rate-limit", "text": "slow down", "reset_in": 0}])
    lab.loop("--max-time", "28s")
    assert len(told(lab, "iteration_started", "number")) == 1
    assert told(lab, "run_ended", "reason") == [
        "rate-limit: slow down: waiting would exceed the time limit (--max-time)"
    ]
    assert lab.entries() == []


def test_the_work_of_an_interrupted_iteration_is_kept_as_a_ref(lab: Lab) -> None:
    lab.repository().play(default=[{"write": "half.txt", "text": "half"}, {"hang": True}])
    process = lab.start()
    assert wait_until((lab.root / "half.txt").exists)
    kill(process, 2)
    assert process.returncode == 130
    assert not (lab.root / "half.txt").exists()
    [ref] = lab.git("for-each-ref", "--format=%(refname)", "refs/ralph/interrupted").split("\n")
    assert lab.git("show", f"{ref}:half.txt") == "half"


def test_an_answer_survives_a_kill_and_is_not_taken_for_the_next_question(lab: Lab) -> None:
    lab.repository(attempts=1).play(turn("1", {"say": "no"}), default=DONE)
    assert lab.loop().exit_code == 1
    asked = lab.question().read_text()
    lab.question().write_text(asked + "\nTry harder.\n")
    # As after a kill: the answer is applied, but its file still exists.
    standing = lab.root / ".ralph/standing/add-login.json"
    state = json.loads(standing.read_text())
    state["stories"]["1"] |= {"question": None, "attempts": 0, "answer": "Try harder."}
    standing.write_text(json.dumps(state))
    assert lab.loop().exit_code == 1
    prompts = sorted(lab.root.glob(".ralph/runs/*/*/prompt.md"), key=lambda path: path.stat().st_mtime_ns)
    assert "A human answered: Try harder." in prompts[-1].read_text()
    assert "Try harder." not in lab.question().read_text(), "the new question is not answered yet"
    assert [id for id, _ in lab.endings() if id.startswith("add-login-1-")] == ["add-login-1-1", "add-login-1-2"]
    assert [path.name for path in lab.root.glob(".ralph/questions/answered/*")] == ["add-login-1-1.md"]


def test_a_project_can_be_moved_while_a_question_waits(lab: Lab) -> None:
    lab.repository(attempts=1).play(turn("1", {"say": "no"}), default=DONE)
    assert lab.loop().exit_code == 1
    moved = lab.root.with_name("moved")
    shutil.move(lab.root, moved)
    lab.root = moved
    lab.question().write_text(lab.question().read_text() + "\nGo on.\n")
    lab.play(default=DONE)
    assert lab.loop().exit_code == 0


def test_names_that_are_not_text(lab: Lab) -> None:
    lab.repository()
    own = lab.root / "mine-\udcff.txt"
    own.write_text("mine")
    lab.play(turn("1", {"run": "printf x > \"$(printf 'agent-\\377.txt')\""}, *DONE[1:]), default=DONE)
    before = lab.users_state()
    assert lab.loop().exit_code == 0
    assert lab.users_state() == before
    assert "agent-\\xff.txt" in lab.entries()[0]["files_modified"]


def test_a_commit_of_the_users_on_the_branch_is_never_dropped(lab: Lab) -> None:
    """A run is killed after its verdict, before it carries out the outcome; then the user commits to the branch."""
    lab.repository().play(default=DONE)
    assert lab.loop("--max-iterations", "1").exit_code == 1
    history = lab.root / ".ralph/progress.json"
    lab.git("update-ref", "refs/heads/ralph/add-login", "ralph/add-login~1")
    history.unlink()
    lab.git("checkout", "--quiet", "ralph/add-login")
    lab.write("mine.txt", "mine\n")
    lab.git("add", "mine.txt")
    lab.git("commit", "--quiet", "--message=mine")
    lab.git("checkout", "--quiet", "main")
    assert lab.loop().exit_code == 0
    assert lab.git("show", "ralph/add-login:mine.txt") == "mine"
    assert lab.checkpoints() == ["1", "2"]


# --- what an agent did before it was interrupted ----------------------------------------------------

COMMITS = {"run": f"sed -i 's/\\[ \\]/[x]/' {TASKS}; git add -A; git commit --quiet --message=all-done"}


@pytest.mark.parametrize("workspace", ["here", "worktree"])
def test_an_agents_own_commits_prove_nothing_when_it_is_interrupted(lab: Lab, workspace: str) -> None:
    lab.repository(workspace=workspace)
    mark = lab.root.parent / "mark"
    lab.play(default=[COMMITS, {"run": f"touch {mark}"}, {"hang": True}])
    process = lab.start()
    assert wait_until(mark.exists)
    kill(process, 2)
    assert "all-done" not in lab.git("log", "--format=%s", "ralph/add-login")
    lab.play(default=[{"say": "nothing"}])
    assert lab.loop("--max-iterations", "1").exit_code == 1
    assert lab.endings() == [("add-login-1-1", "failed")]


def test_an_agents_own_commits_prove_nothing_when_its_run_is_killed(lab: Lab) -> None:
    lab.repository()
    mark = lab.root.parent / "mark"
    lab.play(default=[COMMITS, {"run": f"touch {mark}"}, {"hang": True}])
    process = lab.start()
    assert wait_until(mark.exists)
    kill(process)
    lab.play(default=[{"say": "nothing"}])
    assert lab.loop("--max-iterations", "1").exit_code == 1
    assert lab.endings() == [("add-login-1-1", "failed")]


def test_a_second_interrupt_leaves_nothing_of_the_agents_doings(lab: Lab) -> None:
    lab.repository()
    mark, before = lab.root.parent / "mark", lab.users_state()
    config = lab.read(".ralph/config.toml")
    misdeeds = "git config core.editor evil; echo x > .git/hooks/pre-commit; echo > .ralph/config.toml; "
    misdeeds += "git branch -f main HEAD~0"
    lab.play(default=[COMMITS, {"run": misdeeds}, {"run": f"touch {mark}"}, {"hang": True, "ignore_term": True}])
    process = lab.start()
    assert wait_until(mark.exists)
    assert wait_until(lambda: ignores_term(str(lab.home)))
    process.send_signal(2)
    assert wait_until(lambda: process.poll() is not None, 0.5) is False
    kill(process, 2)
    assert process.returncode == 130
    assert lab.users_state() == before
    assert lab.read(".ralph/config.toml") == config
    assert not (lab.root / ".git/hooks/pre-commit").exists()
    assert "evil" not in (lab.root / ".git/config").read_text()
    assert lab.git("for-each-ref", "refs/ralph/interrupted")


def kill_and_breathe(lab: Lab, process: Process) -> None:
    """Later changes can't be those of the killed run's agent."""
    kill(process)
    assert wait_until(lambda: not processes_with(str(lab.home)))
    time.sleep(locks.HEARTBEAT_SECONDS + 0.5)


def test_a_commit_that_the_user_makes_after_a_kill_stays(lab: Lab) -> None:
    lab.repository().play(default=[{"write": "half.txt", "text": "half"}, {"hang": True}])
    process = lab.start()
    assert wait_until((lab.root / "half.txt").exists)
    kill_and_breathe(lab, process)
    lab.git("checkout", "--quiet", "--force", "main")
    lab.write("mine.txt", "mine\n")
    lab.git("add", "mine.txt")
    lab.git("commit", "--quiet", "--message=mine")
    lab.git("config", "core.editor", "mine")
    lab.git("checkout", "--quiet", "ralph/add-login")
    lab.write("more.txt", "mine\n")
    lab.git("add", "more.txt")
    lab.git("commit", "--quiet", "--message=more")
    more = lab.git("rev-parse", "HEAD")
    told = lab.run("back")
    assert told.exit_code == 0
    assert f"..{more[:10]}` shows them" in " ".join(told.stdout.split())
    assert lab.git("log", "-1", "--format=%s", f"refs/ralph/moved/{more}") == "more"
    assert lab.git("log", "-1", "--format=%s", "main") == "mine"
    assert lab.read("mine.txt") == "mine\n"
    assert lab.git("config", "core.editor") == "mine"


def test_settings_that_the_user_mends_after_a_kill_stay_mended(lab: Lab) -> None:
    lab.repository().play(default=[{"write": "half.txt", "text": "half"}, {"hang": True}])
    process = lab.start()
    assert wait_until((lab.root / "half.txt").exists)
    kill_and_breathe(lab, process)
    lab.configure(checks=["true"])
    mended = lab.read(".ralph/config.toml")
    lab.play(default=DONE)
    assert lab.loop().exit_code == 0
    assert lab.read(".ralph/config.toml") == mended


def test_the_work_of_every_transient_iteration_is_kept(lab: Lab) -> None:
    limit = {"error": "rate-limit", "text": "slow down", "reset_in": 0.3}
    lab.repository().play(default=[{"run": "date +%N > half.txt"}, limit])
    lab.loop("--max-iterations", "3", "--max-time", "20s")
    kept = lab.git("for-each-ref", "--format=%(objectname)", "refs/ralph/interrupted").split("\n")
    assert len(kept) == len(told(lab, "iteration_started", "number")) >= 1
    assert lab.entries() == []


def test_entries_of_another_run_survive_an_agent_that_touches_our_files(lab: Lab) -> None:
    """The history is restored only if it did not grow in the ordinary way."""
    lab.repository()
    other = "import sys; from ralphtool.history import History; from ralphtool.history.records import Entry; "
    other += 'History(sys.argv[1]).append(Entry(id="other-1", timestamp="2026-01-31T09:30:00Z", prd_id="other", '
    other += 'iteration=1, status="completed", observations=()))'
    add = {"run": f"{PYTHON} -c '{other}' \"$PWD\"; echo '# mine' >> .ralph/config.toml"}
    lab.play(turn("1", add, *DONE, attempt=1), default=DONE)
    assert lab.loop().exit_code == 0
    assert [id for id, _ in lab.endings()] == ["other-1", "add-login-1-1", "add-login-1-2", "add-login-2-1"]
    assert "# mine" not in lab.read(".ralph/config.toml")


@pytest.mark.parametrize(
    ("guard", "said"),
    [("off", "the diff was not checked"), ("warn", "set to warn only"), ("fail", "found no cheating")],
)
def test_why_something_is_done_claims_no_more_than_was_looked_at(lab: Lab, guard: str, said: str) -> None:
    lab.repository(guard=guard)
    lab.write("tests/test_a.py", "def test_a():\n    assert 1 + 1 == 2\n")
    lab.git("add", "tests")
    lab.git("commit", "--quiet", "--message=a test")
    cheat = [] if guard == "fail" else [{"delete": "tests/test_a.py"}]
    lab.play(turn("1", *cheat, *DONE))
    lab.loop("--max-iterations", "1")
    told = lab.run("explain", "add-login-1-1").stdout
    assert said in told
    assert "there is no gate" in told
    assert "green" not in told


def test_a_new_change_is_announced_before_its_workspace_is_there(lab: Lab) -> None:
    """The stories of a run are known without waiting for git, and a failure after that is in its record."""
    lab.repository(workspace="worktree").play(default=DONE)
    lab.write(".git/ralph/worktrees", "no folder")
    done = lab.loop()
    events, error = lab.events(), json.loads(done.stderr)
    assert (done.exit_code, error["code"]) == (1, "GIT_ERROR")
    assert [event["type"] for event in events if event["type"] != "notice"] == ["run_started", "run_ended"]
    assert events[0]["branch"] == "ralph/add-login"
    assert [story["id"] for story in events[0]["stories"]] == ["1", "2"]
    assert events[-1]["reason"] == error["error"]
    assert lab.run("watch").stdout.splitlines()[1:3] == ["The run ended with an error.", error["error"]]
