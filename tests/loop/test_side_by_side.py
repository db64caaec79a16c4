"""Stories side by side: what runs in parallel, what is merged, what is sent back, and that every commit is green."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from faults import CHANGING, Call, calls_in, injected, list_names, need_strace
from lab import Lab, Process, kill, wait_until
from loop.lanes import (
    END,
    FOUR,
    GATE,
    NEEDS_BOXES,
    ONE,
    THIRD,
    TWO,
    WRITES,
    check_commits,
    check_left,
    end,
    list_stories,
    make,
    meet,
    of_kind,
    part,
    set_gate,
    wait_for_all,
    wait_for_begun,
)
from patience import PATIENCE
from project import COMMAND

pytestmark = NEEDS_BOXES

STORM = bool(os.environ.get("RALPH_STORM"))  # as many random runs as `scripts/bench --only side` takes


def test_stories_are_worked_on_at_once_and_all_of_them_are_done(lab: Lab) -> None:
    make(lab).play(default=[wait_for_all(lab, 4), *WRITES])
    done = lab.loop()
    assert done.exit_code == 0, done.stderr
    assert sorted(list_stories(lab)) == ["1", "2", "3", "4"]
    ended = lab.events(done)[-1]
    assert {one["state"] for one in ended["stories"]} == {"done"}
    explained = [lab.run("explain", f"add-login-{number}-1").stdout for number in range(1, 5)]
    assert [one.count(f"after the work: {GATE}") for one in explained] == [1, 1, 1, 1], "its own, and nobody else's"
    assert "- [ ]" not in lab.git("show", "ralph/add-login:openspec/changes/add-login/tasks.md")
    assert {lab.git("show", f"ralph/add-login:parts/{number}.txt") for number in range(1, 5)} == {"fine"}
    check_commits(lab)
    check_left(lab)


def test_no_more_gates_are_run_than_one_by_one(lab: Lab) -> None:
    make(lab).play(default=WRITES)
    gates = of_kind(lab.events(lab.loop()), "gate")
    assert [one["when"] for one in gates].count("after") == 4
    assert [one["when"] for one in gates].count("before") == 1


def test_what_depends_on_another_waits_for_it(lab: Lab) -> None:
    """And for nobody else: the third agent ends only when the second one has begun."""
    tasks = f"{ONE}\n## 2. Second (depends on 1)\n\n- [ ] 2.1 Write it\n\n{THIRD}"
    needs = {"run": f"test -s parts/1.txt && touch {meet(lab)}/begun-2", "must": True}
    waits = {"run": f"timeout 20 sh -c 'until test -e {meet(lab)}/begun-2; do sleep 0.05; done'", "must": True}
    turns = [{"story": "2", "steps": [needs, *WRITES]}, {"story": "3", "steps": [waits, *WRITES]}]
    make(lab, tasks).play(*turns, default=WRITES)
    done = lab.loop()
    assert done.exit_code == 0, done.stderr
    assert list_stories(lab) in (["1", "2", "3"], ["1", "3", "2"]), "the last two are worked on at once"
    assert len(of_kind(lab.events(done), "iteration_started")) == 3


def test_a_conflict_goes_back_to_the_agent_of_its_story(lab: Lab) -> None:
    """Both write the same file; the second agent is shown both versions, and may combine them."""
    solve = """\
mkdir -p parts
if grep -qs '<<<<' parts/same.txt; then echo both > parts/same.txt; else echo {story} > parts/same.txt; fi"""
    make(lab, TWO, side_by_side=2).play(default=[wait_for_all(lab, 2), {"run": solve}, *END])
    done = lab.loop()
    assert done.exit_code == 0, done.stderr
    [back] = of_kind(lab.events(done), "sent_back")
    assert (back["why"], back["files"]) == ("conflict", ["parts/same.txt"])
    assert sorted(list_stories(lab)) == ["1", "2"]
    assert lab.git("show", "ralph/add-login:parts/same.txt") == "both"
    prompts = sorted(lab.root.glob(".ralph/runs/*/003-*/prompt.md"))
    assert "conflict markers" in prompts[0].read_text()
    assert [entry["status"] for entry in lab.entries()] == ["completed", "completed"]  # no attempt was charged
    told = lab.run("explain", f"add-login-{back['story']}-1").stdout
    assert "Sent back to the agent first\n  it conflicts with story" in told
    assert lab.git("for-each-ref", "refs/ralph/interrupted") == "", "what is resolved is kept by no ref"
    check_commits(lab)


def test_only_those_are_named_that_are_in_conflict(lab: Lab) -> None:
    solve = """\
mkdir -p parts
if grep -qs '<<<<' parts/same.txt; then echo both > parts/same.txt; else echo {story} > parts/same.txt; fi"""
    make(lab, f"{TWO}\n{THIRD}", side_by_side=3).play(
        {"story": "3", "steps": [wait_for_all(lab, 3), *WRITES]},
        default=[wait_for_all(lab, 3), {"run": solve}, *END],
    )
    done = lab.loop()
    assert done.exit_code == 0, done.stdout[-3000:]
    backs = of_kind(lab.events(done), "sent_back")
    assert {tuple(one["others"]) for one in backs} <= {("1",), ("2",)}
    assert len(backs) == 1


def test_markers_that_are_left_fail_the_attempt(lab: Lab) -> None:
    """Also in a file whose name is not valid UTF-8."""
    careless = r"""mkdir -p parts; odd=$(printf 'parts/\377'); grep -qs '<<<<' parts/same.txt && exit
echo {story} > parts/same.txt; echo {story} > $odd"""
    make(lab, TWO, side_by_side=2).play(default=[wait_for_all(lab, 2), {"run": careless}, *END])
    done = lab.loop()
    assert done.exit_code == 0, done.stderr
    found = [one for verdict in of_kind(lab.events(done), "verdict") for one in verdict["findings"]]
    assert [(one["kind"], one["path"]) for one in found] == [
        ("conflict-marker", "parts/same.txt"),
        ("conflict-marker", r"parts/\xff"),
    ]
    assert sorted(entry["status"] for entry in lab.entries()) == ["completed", "completed", "failed"]
    assert "<<<<" not in lab.git("log", "-p", "ralph/add-login")
    [prompt] = lab.root.glob(".ralph/runs/*/004-*/prompt.md")
    [back] = of_kind(lab.events(done), "sent_back")
    met = f"it conflicts with story {back['others'][0]}: both change parts/same.txt, parts/\\xff"
    assert met in prompt.read_text(), "the one after knows what it is about"
    check_commits(lab)


def test_who_undoes_the_work_of_others_while_resolving_has_failed(lab: Lab) -> None:
    solve = """\
mkdir -p parts
if grep -qs '<<<<' parts/same.txt
then echo both > parts/same.txt; test $RALPH_ATTEMPT != 1 || rm -f parts/of-*.txt
else echo {story} > parts/same.txt; echo x > parts/of-{story}.txt
fi"""
    make(lab, TWO, side_by_side=2, attempts=1).play(default=[wait_for_all(lab, 2), {"run": solve}, *END])
    found = [one for verdict in of_kind(lab.events(lab.loop()), "verdict") for one in verdict["findings"]]
    assert [one["kind"] for one in found] == ["merge-clobber"]
    assert found[0]["path"].startswith("parts/of-")
    [question] = lab.root.glob(".ralph/questions/*.md")
    assert "both change parts/same.txt" in question.read_text()
    assert "\n  needs your answer: " in lab.run("explain", question.stem + "-1").stdout


def test_two_that_pass_alone_and_fail_together(lab: Lab) -> None:
    look = """\
mkdir -p parts
if grep -qs alone parts/*.txt; then echo fine > parts/{story}.txt; else echo alone > parts/{story}.txt; fi"""
    make(lab, TWO, side_by_side=2).play(default=[wait_for_all(lab, 2), {"run": look}, *END])
    done = lab.loop()
    assert done.exit_code == 0, done.stderr
    [back] = of_kind(lab.events(done), "sent_back")
    assert back["why"] == "red-together"
    assert sorted(list_stories(lab)) == ["1", "2"]
    check_commits(lab)


def test_who_is_red_by_his_own_fault_has_failed(lab: Lab) -> None:
    bad = {
        "story": "2",
        "attempt": 1,
        "steps": [part(""), {"run": f"while [ ! -e {meet(lab)}/one ]; do sleep 0.05; done"}, *END],
    }
    last = {"run": f"touch {meet(lab)}/one"}
    make(lab, TWO, side_by_side=2).play(bad, default=[part(), last, *END])
    done = lab.loop()
    assert done.exit_code == 0, done.stderr
    assert of_kind(lab.events(done), "sent_back") == []
    assert sorted((one["prd_id"], one["status"]) for one in lab.entries()) == [
        ("add-login-1", "completed"),
        ("add-login-2", "completed"),
        ("add-login-2", "failed"),
    ]
    check_commits(lab)


def test_ctrl_c_ends_every_agent(lab: Lab) -> None:
    make(lab).play(default=[{"run": f"touch {meet(lab)}/begun-{{story}}; sleep 3613"}])
    run = lab.start()
    assert wait_until(lambda: len(list(meet(lab).glob("begun-*"))) == 4)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=PATIENCE)
    assert run.returncode == 130
    assert wait_until(
        lambda: subprocess.run(["pgrep", "-f", "sleep 3613"], check=False, capture_output=True).stdout == b""
    )
    check_left(lab)


def test_a_kill_loses_nothing(lab: Lab) -> None:
    make(lab).play(
        *({"story": story, "steps": WRITES} for story in ("1", "2")),
        default=[
            part(),
            {"run": f"test -e {meet(lab)}/go || {{ touch {meet(lab)}/begun-{{story}}; sleep 3614; }}"},
            *END,
        ],
    )
    run = lab.start()
    assert wait_until(lambda: len(list(meet(lab).glob("begun-*"))) == 2)
    assert wait_until(lambda: sorted(list_stories(lab)) == ["1", "2"])
    assert wait_until(lambda: len(list((lab.root / ".git/worktrees").glob("*/ralph-is-at-rest"))) == 2)
    kill(run)
    (meet(lab) / "go").touch()
    done = lab.loop()
    assert done.exit_code == 0, done.stderr
    assert sorted(list_stories(lab)) == ["1", "2", "3", "4"]
    kept = lab.git("for-each-ref", "--format=%(refname)", "refs/ralph/interrupted").splitlines()
    told = [lab.git("diff", "--name-status", f"{ref}^", ref) for ref in kept]
    assert sorted(told) == ["A\tparts/3.txt", "A\tparts/4.txt"], (
        "each upon what it had begun with, and none that is done"
    )
    check_commits(lab)
    check_left(lab)


@pytest.mark.parametrize("seed", range(50 if STORM else 16))
def test_killed_at_random_moments_until_it_is_done(lab: Lab, seed: int) -> None:
    """With two stories in conflict, and two that fail together."""
    dice = random.Random(seed)
    look = """\
mkdir -p parts
case {story} in
1|2) if grep -qs '<<<<' parts/same.txt; then echo both > parts/same.txt; else echo {story} >> parts/same.txt; fi;;
*) if grep -qs alone parts/*.txt; then echo fine > parts/{story}.txt; else echo alone > parts/{story}.txt; fi;;
esac"""
    make(lab).play(default=[{"run": look}, *END])
    for _ in range(5):
        run = lab.start()
        try:
            run.communicate(timeout=dice.uniform(0.5, 4))
        except subprocess.TimeoutExpired:
            end(run, dice.choice([signal.SIGKILL, signal.SIGINT]))
    done = lab.loop()
    assert done.exit_code == 0, done.stderr
    assert sorted(list_stories(lab)) == ["1", "2", "3", "4"]
    assert "- [ ]" not in lab.git("show", "ralph/add-login:openspec/changes/add-login/tasks.md")
    check_commits(lab)
    check_left(lab)


def test_what_one_learns_is_in_the_next_prompt_of_another(lab: Lab) -> None:
    tells = [{"run": "ralphtool agent learn 'The walrus lives in the harbour'"}, *WRITES]
    wait = {"run": f"while [ ! -e {meet(lab)}/go ]; do sleep 0.05; done"}
    make(lab, f"{TWO}\n{THIRD}", side_by_side=2).play(
        {"story": "1", "steps": tells},
        {"story": "2", "steps": [wait, *WRITES]},
        default=[{"run": f"touch {meet(lab)}/go"}, *WRITES],
    )
    assert lab.loop().exit_code == 0
    [prompt] = lab.root.glob(".ralph/runs/*/003-add-login-3-1/prompt.md")
    assert "walrus" in prompt.read_text()


def test_a_question_holds_nobody_else_up(lab: Lab) -> None:
    asks = [{"blocked": "I need the key to the cellar"}]
    make(lab, attempts=1).play({"story": "2", "steps": asks}, default=WRITES)
    done = lab.loop()
    assert done.exit_code == 1
    assert sorted(list_stories(lab)) == ["1", "3", "4"]
    assert lab.run("questions", "--json").json["questions"][0]["story"] == "2"


def test_a_story_that_is_skipped_ends_its_agent_alone(lab: Lab) -> None:
    waits = [{"run": f"touch {meet(lab)}/two; sleep 3615"}]
    make(lab).play(
        {"story": "2", "steps": waits},
        default=[{"run": f"while [ ! -e {meet(lab)}/two ]; do sleep 0.05; done"}, *WRITES],
    )
    run = lab.start()
    assert wait_until(lambda: (meet(lab) / "two").exists())
    assert lab.run("skip", "2").exit_code == 0
    out, _ = run.communicate(timeout=PATIENCE)
    assert sorted(list_stories(lab)) == ["1", "3", "4"]
    ended = json.loads(out.splitlines()[-1])
    assert {one["id"]: one["state"] for one in ended["stories"]}["2"] == "skipped"


def test_what_the_user_commits_to_the_branch_meanwhile_is_kept(lab: Lab) -> None:
    wait = {"run": f"touch {meet(lab)}/begun-{{story}}; while [ ! -e {meet(lab)}/go ]; do sleep 0.05; done"}
    make(lab).play(default=[wait, *WRITES])
    run = lab.start()
    assert wait_until(lambda: len(list(meet(lab).glob("begun-*"))) == 4)
    place = lab.root.parent / "theirs"
    lab.git("worktree", "add", "--quiet", str(place), "ralph/add-login")
    (place / "mine.txt").write_text("mine\n")
    for command in (["add", "mine.txt"], ["commit", "--quiet", "--message=mine"]):
        subprocess.run(["git", *command], cwd=place, env=lab.env, check=True)
    (meet(lab) / "go").touch()
    run.communicate(timeout=PATIENCE)
    assert run.returncode == 0
    assert lab.git("show", "ralph/add-login:mine.txt") == "mine"
    assert sorted(list_stories(lab)) == ["1", "2", "3", "4"]
    assert (place / "parts/1.txt").exists()


def test_in_strict_order_they_are_worked_on_one_by_one(lab: Lab) -> None:
    make(lab, strict_order=True).play(
        default=[{"run": "mkdir -p parts; test $(ls parts | wc -l) = $(({story} - 1))"}, *WRITES]
    )
    done = lab.loop()
    assert done.exit_code == 0, done.stderr
    assert list_stories(lab) == ["1", "2", "3", "4"]
    assert len(of_kind(lab.events(done), "iteration_started")) == 4


def test_without_a_box_they_are_worked_on_one_by_one(lab: Lab) -> None:
    lab.repository(TWO, workspace="worktree", side_by_side=4).play(default=WRITES)
    done = lab.loop()
    assert done.exit_code == 0, done.stderr
    assert any("needs a box" in one["text"] for one in of_kind(lab.events(done), "notice"))


def test_a_box_that_somebody_removes_is_made_anew(lab: Lab) -> None:
    """While an agent works in it, and while it is idle."""
    place = meet(lab)
    wait = f"touch {place}/begun-{{story}}; while [ ! -e {place}/go ]; do sleep 0.05; done"
    make(lab, side_by_side=2).play(default=[{"run": wait}, *WRITES])
    run = lab.start()
    assert wait_until(lambda: len(list(meet(lab).glob("begun-*"))) == 2)
    shutil.rmtree(lab.root / ".git/ralph/worktrees/add-login@1", ignore_errors=True)
    (meet(lab) / "go").touch()
    _, errors = run.communicate(timeout=PATIENCE)
    assert sorted(list_stories(lab)) == ["1", "2", "3", "4"], errors.decode()
    check_commits(lab)
    check_left(lab)


def test_an_agent_that_is_killed_has_failed_and_the_others_go_on(lab: Lab) -> None:
    dies = {"story": "2", "attempt": 1, "steps": [{"run": "kill -9 $PPID"}]}
    make(lab).play(dies, default=WRITES)
    done = lab.loop()
    assert done.exit_code == 0, done.stderr
    assert len(of_kind(lab.events(done), "iteration_started")) == 5
    assert sorted(list_stories(lab)) == ["1", "2", "3", "4"]
    check_left(lab)


def test_a_rate_limit_begins_nothing_new_until_it_is_over(lab: Lab) -> None:
    """All lanes meet it at once; after that, fewer of them work."""
    limit = {"error": "rate-limit", "text": "too many requests", "reset_in": 5}
    make(lab).play(default=[wait_for_all(lab, 4), limit])
    run = lab.start()
    assert wait_until(lambda: len(of_kind(lab.events(), "verdict")) == 4)
    lab.play(default=WRITES)
    run.communicate(timeout=PATIENCE)
    assert run.returncode == 0
    assert sorted(list_stories(lab)) == ["1", "2", "3", "4"]
    found = [one["type"] for one in lab.events() if one["type"] in ("iteration_started", "verdict", "waiting")]
    assert sorted(found[:8]) == ["iteration_started"] * 4 + ["verdict"] * 4
    assert found[8:11] == ["waiting", "iteration_started", "iteration_started"]
    after = [one["type"] for one in lab.events() if one["type"] in ("iteration_started", "queued")][4:]
    at_work = list(itertools.accumulate(1 if one == "iteration_started" else -1 for one in after))
    assert max(at_work) == 2
    assert {entry["status"] for entry in lab.entries()} == {"completed"}


def test_an_edited_plan_is_taken_up_when_nobody_is_at_work(lab: Lab) -> None:
    wait = {"run": f"touch {meet(lab)}/begun-{{story}}; while [ ! -e {meet(lab)}/go ]; do sleep 0.05; done"}
    make(lab, TWO).play(default=[wait, *WRITES])
    run = lab.start()
    assert wait_until(lambda: len(list(meet(lab).glob("begun-*"))) == 2)
    tasks = "openspec/changes/add-login/tasks.md"
    lab.write(tasks, lab.read(tasks) + f"\n{THIRD}")
    (meet(lab) / "go").touch()
    run.communicate(timeout=PATIENCE)
    assert run.returncode == 0
    assert sorted(list_stories(lab)) == ["1", "2", "3"]


def test_a_pause_lets_those_at_work_end(lab: Lab) -> None:
    wait = {"run": f"touch {meet(lab)}/begun-{{story}}; while [ ! -e {meet(lab)}/go ]; do sleep 0.05; done"}
    make(lab, side_by_side=2).play(default=[wait, *WRITES])
    run = lab.start()
    assert wait_until(lambda: len(list(meet(lab).glob("begun-*"))) == 2)
    assert lab.run("pause").exit_code == 0
    (meet(lab) / "go").touch()
    assert wait_until(lambda: any(one["type"] == "paused" for one in lab.events()))
    assert sorted(list_stories(lab)) == ["1", "2"]
    assert lab.run("resume").exit_code == 0
    run.communicate(timeout=PATIENCE)
    assert sorted(list_stories(lab)) == ["1", "2", "3", "4"]


def test_what_a_person_accepts_meanwhile_is_committed_once(lab: Lab) -> None:
    """Its agent is stopped, and the work of that agent does not count."""
    make(lab, TWO, attempts=3).play(
        {"story": "1", "attempt": 1, "steps": [part("half"), {"say": "I can not go on"}]},
        {"story": "1", "attempt": 2, "steps": [{"run": f"touch {meet(lab)}/second; sleep 3616"}]},
        default=WRITES,
    )
    run = lab.start()
    assert wait_until(lambda: (meet(lab) / "second").exists())
    assert lab.run("accept", "add-login-1-1").exit_code == 0
    run.communicate(timeout=PATIENCE)
    assert sorted(list_stories(lab)) == ["1", "2"]
    assert lab.git("show", "ralph/add-login:parts/1.txt") == "half"


def test_what_the_user_commits_while_a_story_is_proven_is_proven_with_it(lab: Lab) -> None:
    """No untested merge: the story's commit is on top of the user's, and has both."""
    make(lab, ONE, side_by_side=2).play(default=WRITES)
    wait = f"test -e parts/1.txt && touch {meet(lab)}/proving && while [ ! -e {meet(lab)}/go ]; do sleep 0.05; done"
    hang = f"{{ {wait}; }}; {GATE}"
    lab.write(".ralph/config.toml", lab.read(".ralph/config.toml").replace(json.dumps([GATE]), json.dumps([hang])))
    run = lab.start()
    assert wait_until(lambda: (meet(lab) / "proving").exists())
    tree = lab.git("rev-parse", "ralph/add-login^{tree}")
    mine = lab.git("commit-tree", tree, "-p", "ralph/add-login", "-m", "mine")
    lab.git("update-ref", "refs/heads/ralph/add-login", mine)
    (meet(lab) / "go").touch()
    run.communicate(timeout=PATIENCE)
    assert run.returncode == 0
    assert lab.git("rev-list", "--merges", "ralph/add-login") == ""
    assert lab.git("rev-parse", "ralph/add-login^") == mine
    ended = lab.events()[-1]
    assert ended["spent"]["gate_seconds"] > 0
    assert len(of_kind(lab.events(), "merging")) == 2


def test_a_finished_story_that_waits_is_not_done_again_after_a_stop(lab: Lab) -> None:
    """The gate of the first one hangs; the second is finished, and waits."""
    make(lab, TWO, side_by_side=2).play(
        {"story": "1", "steps": [part("slow"), *END]},
        default=[{"run": f"while [ ! -e {meet(lab)}/first ]; do sleep 0.05; done"}, *WRITES],
    )
    hang = f"grep -qs slow parts/1.txt && [ ! -e {meet(lab)}/go ] && {{ touch {meet(lab)}/first; sleep 3617; }}; {GATE}"
    lab.write(".ralph/config.toml", lab.read(".ralph/config.toml").replace(json.dumps([GATE]), json.dumps([hang])))
    run = lab.start()
    assert wait_until(lambda: any(one["type"] == "queued" and one["story"] == "2" for one in lab.events()))
    end(run, signal.SIGINT)
    (meet(lab) / "go").touch()
    lab.play(default=[{"run": "test -s parts/{story}.txt", "must": True}, *END])
    done = lab.loop()
    assert done.exit_code == 0, done.stderr
    assert sorted(list_stories(lab)) == ["1", "2"]


def test_files_that_another_story_has_stopped_to_ignore_are_there_for_the_gates(lab: Lab) -> None:
    """A box shows an ignored folder of the user as a layer, which must not hide files that are now committed there."""
    for path in (".gitignore", "build/old.txt"):
        lab.write(path, "build/\n")
    stops = [{"run": "echo > .gitignore; echo new > build/new.txt"}, *WRITES]
    wait = {"run": f"touch {meet(lab)}/begun; while [ ! -e {meet(lab)}/go ]; do sleep 0.05; done"}
    make(lab, TWO, side_by_side=2).play({"story": "1", "steps": stops}, default=[wait, *WRITES])
    gate = f"{{ grep -q build .gitignore || test -s build/new.txt; }} && {GATE}"
    lab.write(".ralph/config.toml", lab.read(".ralph/config.toml").replace(json.dumps([GATE]), json.dumps([gate])))
    run = lab.start()
    assert wait_until(lambda: (meet(lab) / "begun").exists() and list_stories(lab) == ["1"])
    (meet(lab) / "go").touch()
    run.communicate(timeout=PATIENCE)
    assert run.returncode == 0
    assert list_stories(lab) == ["1", "2"]
    assert of_kind(lab.events(), "sent_back") == []


# --- killed at every step of the queue --------------------------------------------------------------


def run_traced(lab: Lab, *options: str) -> int:
    """Only the thread that decides is traced."""
    command = ["strace", "-qq", "-y", "-s", "200", *options, COMMAND, "run", "--json"]
    return subprocess.run(
        command, cwd=lab.root, env=lab.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False
    ).returncode


def make_pairs(top: Path) -> Lab:
    """Two stories that are in conflict, and two that are red together."""
    top.mkdir()
    look = """\
mkdir -p parts
case {story} in
1|2) if grep -qs '<<<<' parts/same.txt; then echo both > parts/same.txt; else echo {story} >> parts/same.txt; fi;;
*) if grep -qs alone parts/*.txt; then echo fine > parts/{story}.txt; else echo alone > parts/{story}.txt; fi;;
esac"""
    lab = Lab(top)
    make(lab).play(default=[{"run": look}, *END])
    return lab


def list_steps(log: Path) -> list[Call]:
    """The deciding thread's writes since the first story was queued; not the record, which is written at any time."""
    lines = log.read_text(errors="replace").splitlines()
    first = next(number for number, line in enumerate(lines) if "events.jsonl" in line and "queued" in line)
    log.write_text("\n".join(f"1 {line}" for line in lines))
    return [call for call in calls_in(log)[first:] if "events.jsonl" not in call.text]


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> list[Call]:
    need_strace()
    top = tmp_path_factory.mktemp("steps")
    log, whole = top / "calls.log", make_pairs(top / "whole")
    assert run_traced(whole, "-o", str(log), "-e", f"trace={list_names(CHANGING)}") == 0
    return list_steps(log)


@pytest.mark.parametrize("number", range(100 if STORM else 6))
def test_killed_at_a_step_of_the_queue(tmp_path: Path, steps: list[Call], number: int) -> None:
    assert len(steps) > 20
    call = steps[number * len(steps) // 100] if STORM else random.Random(number).choice(steps)
    lab = make_pairs(tmp_path / "lab")
    run_traced(lab, "-o", os.devnull, *injected(call.name, call.number, "signal=KILL"))
    done = lab.loop()
    assert done.exit_code == 0, (str(call), done.stderr)
    assert sorted(list_stories(lab)) == ["1", "2", "3", "4"], str(call)
    check_commits(lab)
    check_left(lab)


# --- proofs at once ---------------------------------------------------------------------------------

# Gates that wait for others running at the same time. If `how` is "apart", there must be none; if it is "pairs", those
# of stories 2 and 3 meet, and are green only with both parts or neither.
MEETING = """\
import pathlib, sys, time, uuid
place, wanted, how = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
parts = sorted(path.stem for path in pathlib.Path("parts").glob("*.txt"))
own = place / f"gate-{uuid.uuid4()}"
(place / "-".join(["parts", *parts])).touch()
if parts and (how != "pairs" or parts != ["1"]):
    own.touch()
    others = len(list(place.glob("running-*")))
    (place / own.name.replace("gate", "running")).touch()
    end = time.monotonic() + 100
    while len(list(place.glob("gate-*"))) < wanted and time.monotonic() < end:
        time.sleep(0.05)
    (place / own.name.replace("gate", "running")).unlink()
    if len(list(place.glob("gate-*"))) < wanted or (how == "apart" and others):
        sys.exit("there were not as many at once as there should be")
sys.exit(how == "pairs" and ("2" in parts) != ("3" in parts))
"""


def make_meeting(lab: Lab, tasks: str, wanted: int, how: str = "any", **config: Any) -> Lab:
    make(lab, tasks, **config)
    lab.write("gate.py", MEETING)
    lab.git("add", "gate.py")
    lab.git("commit", "--quiet", "--message=another gate")
    was = lab.read(".ralph/config.toml")
    lab.write(".ralph/config.toml", was.replace(GATE, f"{sys.executable} gate.py {meet(lab)} {wanted} {how}"))
    return lab


@pytest.mark.parametrize("count", [2, 3])
def test_gates_run_on_what_comes_next_meanwhile(lab: Lab, count: int) -> None:
    make_meeting(lab, FOUR, count, speculate=count).play(default=[wait_for_all(lab, 4), *WRITES])
    done = lab.loop()
    assert done.exit_code == 0, done.stdout[-3000:]
    assert sorted(list_stories(lab)) == ["1", "2", "3", "4"]
    gates = [one["when"] for one in of_kind(lab.events(done), "gate")]
    assert (gates.count("before"), gates.count("after")) == (1, 4), "what was found out ahead is not asked again"
    check_left(lab)


def test_one_that_is_in_conflict_holds_up_nobody_behind_it(lab: Lab) -> None:
    """The gates of the first story run at the same time as those of the third, though the second is between them."""
    place, same = meet(lab), {"run": "mkdir -p parts; echo {story} > parts/same.txt"}
    second = [wait_for_all(lab, 3), {"run": f"while [ ! -e {place}/parts-same ]; do sleep 0.05; done"}, same]
    third = [wait_for_all(lab, 3), {"run": f"while [ ! -e {place}/second ]; do sleep 0.05; done"}, *WRITES]
    make_meeting(lab, f"{TWO}\n{THIRD}", 2).play(
        {"story": "1", "steps": [wait_for_all(lab, 3), same, *END]},
        {"story": "2", "steps": [*second, {"tick": "all"}, {"run": f"touch {place}/second"}, {"complete": True}]},
        default=third,
    )
    done = lab.loop()
    assert done.exit_code == 0, done.stdout[-3000:]
    assert sorted(list_stories(lab)) == ["1", "2", "3"]
    assert [one["story"] for one in of_kind(lab.events(done), "sent_back")] == ["2"]


def test_one_by_one_if_that_is_wanted(lab: Lab) -> None:
    make_meeting(lab, FOUR, 1, "apart", speculate=1).play(default=[wait_for_all(lab, 4), *WRITES])
    done = lab.loop()
    assert done.exit_code == 0, done.stdout[-3000:]
    assert sorted(list_stories(lab)) == ["1", "2", "3", "4"]


def test_what_was_green_only_with_one_that_was_red_is_proven_again(lab: Lab) -> None:
    """Two are red by themselves; the later one is green on top of the other, which is never committed."""
    wait = {"run": f"while [ ! -e {meet(lab)}/parts-1 ]; do sleep 0.05; done"}
    make_meeting(lab, f"{TWO}\n{THIRD}", 2, "pairs", attempts=1).play(
        {"story": "1", "steps": [wait_for_all(lab, 3), *WRITES]}, default=[wait_for_all(lab, 3), wait, *WRITES]
    )
    done = lab.loop()
    assert done.exit_code == 1
    assert sorted(entry["status"] for entry in lab.entries()) == ["completed", "failed", "failed"]
    assert list_stories(lab) == ["1"]
    assert (meet(lab) / "parts-1-2-3").exists()
    found = lab.events(done)
    gates = of_kind(found, "gate")
    told = sum(one["seconds"]["gates"] for one in of_kind(found, "verdict"))
    assert told == pytest.approx(sum(one["seconds"] for one in gates if one["iteration"]), abs=0.1)
    whole = sum(one["seconds"] for one in gates)
    assert whole == pytest.approx(found[-1]["spent"]["gate_seconds"], abs=0.1), "also of gates that ran ahead in vain"


def test_agents_and_gates_know_the_number_of_their_box(lab: Lab) -> None:
    make(lab, TWO, side_by_side=2).play(
        default=[wait_for_all(lab, 2), {"run": f"echo $RALPH_SLOT > {meet(lab)}/agent-{{story}}"}, *WRITES]
    )
    gate = f"test ! -d parts || echo $RALPH_SLOT >> {meet(lab)}/gates; {GATE}"
    lab.write(".ralph/config.toml", lab.read(".ralph/config.toml").replace(json.dumps([GATE]), json.dumps([gate])))
    assert lab.loop().exit_code == 0
    assert {(meet(lab) / f"agent-{number}").read_text().strip() for number in (1, 2)} == {"1", "2"}
    assert {"1", "2"} <= set((meet(lab) / "gates").read_text().split())


def test_agents_go_on_while_others_wait_to_be_merged(lab: Lab) -> None:
    """Two lanes: the gates of the first story wait until a third one has started."""
    begun = f"{wait_for_begun(meet(lab), 3)}; test -d parts || true"
    make(lab, f"{TWO}\n{THIRD}", side_by_side=2)
    lab.write(
        ".ralph/config.toml",
        lab.read(".ralph/config.toml").replace(GATE, f"test ! -d parts || timeout 100 sh -c '{begun}'"),
    )
    lab.play(default=[{"run": f"touch {meet(lab)}/begun-{{story}}"}, *WRITES])
    done = lab.loop()
    assert done.exit_code == 0, done.stdout[-3000:]
    assert of_kind(lab.events(done), "verdict")[0]["status"] == "completed"


# --- faults -----------------------------------------------------------------------------------------


def test_a_third_that_fails_only_with_two_others(lab: Lab) -> None:
    look = """\
mkdir -p parts
if [ $(cat parts/*.txt 2>/dev/null | grep -c third) -ge 2 ]; then echo fine > parts/{story}.txt
else echo third > parts/{story}.txt; fi"""
    make(lab, f"{TWO}\n{THIRD}", side_by_side=3).play(default=[wait_for_all(lab, 3), {"run": look}, *END])
    set_gate(lab, "test $(cat parts/*.txt 2>/dev/null | grep -c third) -lt 3")
    done = lab.loop()
    assert done.exit_code == 0, done.stdout[-3000:]
    [back] = of_kind(lab.events(done), "sent_back")
    assert (back["why"], len(back["others"])) == ("red-together", 2)
    assert sorted(list_stories(lab)) == ["1", "2", "3"]


def test_a_test_that_fails_only_once_sends_nothing_back(lab: Lab) -> None:
    make(lab, TWO, side_by_side=2).play(default=[wait_for_all(lab, 2), *WRITES])
    seen = f"{meet(lab)}/seen"
    set_gate(lab, f"test $(ls parts 2>/dev/null | wc -l) -lt 2 || test -e {seen} || {{ touch {seen}; false; }}")
    done = lab.loop()
    assert done.exit_code == 0, done.stdout[-3000:]
    assert of_kind(lab.events(done), "sent_back") == []
    assert sorted(list_stories(lab)) == ["1", "2"]
    assert [entry["status"] for entry in lab.entries()] == ["completed", "completed"]


def test_eight_that_end_at_once(lab: Lab) -> None:
    tasks = "\n".join(f"## {number}. Story {number}\n\n- [ ] {number}.1 Write it\n" for number in range(1, 9))
    make(lab, tasks, side_by_side=8).play(default=[part(), {"tick": "all"}, wait_for_all(lab, 8), {"complete": True}])
    done = lab.loop()
    assert done.exit_code == 0, done.stdout[-3000:]
    assert sorted(list_stories(lab)) == [str(number) for number in range(1, 9)]
    assert len(of_kind(lab.events(done), "iteration_started")) == 8
    check_commits(lab)
    check_left(lab)


def test_a_story_that_is_skipped_while_it_waits_to_be_merged(lab: Lab) -> None:
    make(lab, TWO, side_by_side=2).play(
        {"story": "1", "steps": [part("slow"), *END]},
        default=[{"run": f"while [ ! -e {meet(lab)}/first ]; do sleep 0.05; done"}, *WRITES],
    )
    slow = f"touch {meet(lab)}/first; while [ ! -e {meet(lab)}/go ]; do sleep 0.05; done"
    set_gate(lab, f"grep -qs slow parts/1.txt && {{ {slow}; }}; {GATE}")
    run = lab.start()
    assert wait_until(lambda: any(one["type"] == "queued" and one["story"] == "2" for one in lab.events()))
    assert lab.run("skip", "2").exit_code == 0
    assert wait_until(lambda: of_kind(lab.events(), "steered"))
    (meet(lab) / "go").touch()
    out, _ = run.communicate(timeout=PATIENCE)
    assert list_stories(lab) == ["1"]
    ended = json.loads(out.splitlines()[-1])
    assert {one["id"]: one["state"] for one in ended["stories"]} == {"1": "done", "2": "skipped"}
    check_left(lab)


def test_what_depends_on_work_that_is_taken_back_is_not_committed_before_it(lab: Lab) -> None:
    """A person rejects the first story during the work on the second, which depends on it."""
    tasks = "## 1. First\n\n- [ ] 1.1 Write it\n\n## 2. Second (depends on 1)\n\n- [ ] 2.1 Write it\n"
    place = meet(lab)
    again = f"if [ -e {place}/once ]; then touch {place}/again; while [ ! -e {place}/one ]; do sleep 0.05; done; fi"
    second = f"touch {place}/begun; while [ ! -e {place}/two ]; do sleep 0.05; done"
    make(lab, tasks, side_by_side=2).play(
        {"story": "1", "steps": [{"run": f"{again}; touch {place}/once"}, *WRITES]},
        default=[{"run": second}, *WRITES],
    )
    run = lab.start()
    assert wait_until(lambda: (place / "begun").exists())
    assert lab.run("reject", "1", "--why", "the walrus is missing").exit_code == 0
    assert wait_until(lambda: (place / "again").exists())
    (place / "two").touch()
    assert wait_until(lambda: any(one["story"] == "2" for one in of_kind(lab.events(), "verdict")))
    (place / "one").touch()
    run.communicate(timeout=PATIENCE)
    assert run.returncode == 0
    assert list_stories(lab) == ["1", "1", "2"]
    check_commits(lab)


def test_a_conflict_that_comes_up_again_and_again_is_a_question(lab: Lab) -> None:
    """Another person changes the same lines each time the agent works on them."""
    write = 'mkdir -p parts; echo "mine $(cat /proc/sys/kernel/random/uuid)" > parts/same.txt'
    wait = f"touch {meet(lab)}/begun; while [ ! -e {meet(lab)}/go ]; do sleep 0.05; done; rm {meet(lab)}/go"
    make(lab, ONE, side_by_side=2).play(default=[{"run": f"{write}; {wait}"}, *END])
    run = lab.start()
    place = lab.root.parent / "theirs"
    for number in range(4):
        assert wait_until(lambda: (meet(lab) / "begun").exists())
        if number == 0:
            lab.git("worktree", "add", "--quiet", str(place), "ralph/add-login")
        (place / "parts").mkdir(exist_ok=True)
        (place / "parts/same.txt").write_text(f"theirs {number}\n")
        for command in (["add", "--all"], ["commit", "--quiet", f"--message=theirs {number}"]):
            subprocess.run(["git", *command], cwd=place, env=lab.env, check=True)
        (meet(lab) / "begun").unlink()
        (meet(lab) / "go").touch()
    run.communicate(timeout=PATIENCE)
    assert run.returncode == 1
    assert list_stories(lab) == []
    assert [one["why"] for one in of_kind(lab.events(), "sent_back")] == ["conflict"] * 3
    assert len(of_kind(lab.events(), "verdict")) == 1, "the fourth time"
    [asked] = lab.run("questions", "--json").json["questions"]
    assert asked["story"] == "1"
    lab.git("worktree", "remove", str(place))
    check_left(lab)


def find_below(run: Process, words: list[str]) -> list[psutil.Process]:
    """The processes below a run that were started with a command."""
    found = []
    for one in psutil.Process(run.pid).children(recursive=True):
        try:
            found += [one] if one.cmdline()[-len(words) :] == words else []
        except psutil.Error:  # it has just ended
            continue
    return found


def test_a_supervisor_that_is_killed_costs_its_own_lane_only(lab: Lab) -> None:
    waits = [{"run": f"touch {meet(lab)}/begun; test -e {meet(lab)}/go || sleep 3618"}, *WRITES]
    make(lab, TWO, side_by_side=2).play({"story": "2", "steps": waits}, default=WRITES)
    run = lab.start()
    assert wait_until(lambda: (meet(lab) / "begun").exists() and list_stories(lab) == ["1"])
    (meet(lab) / "go").touch()
    assert wait_until(lambda: find_below(run, ["sleep", "3618"]))
    [agent] = find_below(run, ["sleep", "3618"])
    above = agent.parents()[: agent.parents().index(psutil.Process(run.pid))]
    above[-1].kill()  # the process that the run itself started
    run.communicate(timeout=PATIENCE)
    assert run.returncode == 0
    assert sorted(list_stories(lab)) == ["1", "2"]
    check_left(lab)


def commit_to_branch(lab: Lab, files: dict[str, str], parent: str = "ralph/add-login") -> str:
    """Commits to the branch as a user may do, from anywhere."""
    env = {**lab.env, "GIT_INDEX_FILE": str(lab.root.parent / "index")}

    def git(*words: str, text: str = "") -> str:
        done = subprocess.run(["git", *words], cwd=lab.root, env=env, input=text, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    git("read-tree", parent)
    for name, text in files.items():
        git("update-index", "--add", "--cacheinfo", f"100644,{git('hash-object', '-w', '--stdin', text=text)},{name}")
    made = git("commit-tree", git("write-tree"), "-p", "ralph/add-login", "-m", "mine")
    git("update-ref", "refs/heads/ralph/add-login", made)
    return made


def test_what_is_proven_is_what_is_there(lab: Lab) -> None:
    """The user commits a file that the story needs, and removes that commit while the story is being proven."""
    place = meet(lab)
    work = f"touch {place}/begun; while [ ! -e {place}/go ]; do sleep 0.05; done"
    make(lab, ONE, side_by_side=2, attempts=1).play(default=[{"run": work}, *WRITES])
    wait = f"touch {place}/proving; while [ ! -e {place}/end ]; do sleep 0.05; done"
    set_gate(lab, f"test ! -e parts/1.txt || {{ {wait}; test -e helper.txt; }}")
    run = lab.start()
    assert wait_until(lambda: (place / "begun").exists())
    first = lab.git("rev-parse", "ralph/add-login")
    commit_to_branch(lab, {"helper.txt": "help"})
    (place / "go").touch()
    assert wait_until(lambda: (place / "proving").exists())
    commit_to_branch(lab, {}, first)
    (place / "end").touch()
    run.communicate(timeout=PATIENCE)
    assert run.returncode == 1
    assert list_stories(lab) == []


def test_a_story_that_is_stopped_while_it_waits_keeps_its_own_work_only(lab: Lab) -> None:
    """Its box also has the work of the first one: the gates run on both."""
    place = meet(lab)
    first = [part("slow"), *END]
    second = [{"run": f"while [ ! -e {place}/first ]; do sleep 0.05; done"}, *WRITES]
    make(lab, TWO, side_by_side=2).play({"story": "1", "steps": first}, {"story": "2", "steps": second})
    hang = f"touch {place}/first; test ! -e parts/2.txt || touch {place}/both; sleep 3619"
    set_gate(lab, f"grep -qs slow parts/1.txt && {{ {hang}; }}; {GATE}")
    run = lab.start()
    assert wait_until(lambda: (place / "both").exists())
    end(run, signal.SIGINT)
    kept = lab.git("for-each-ref", "--format=%(refname)", "refs/ralph/interrupted").splitlines()
    told = sorted(lab.git("diff", "--name-status", f"{ref}^", ref, "--", "parts") for ref in kept)
    assert {*told} == {"A\tparts/1.txt", "A\tparts/2.txt"}


@pytest.mark.parametrize("kind", ["openspec", "prd"])
def test_each_format_has_its_marks_in_every_commit(lab: Lab, kind: str) -> None:
    make(lab, TWO, side_by_side=2).play(default=[wait_for_all(lab, 2), *WRITES])
    if kind == "prd":
        shutil.rmtree(lab.root / "openspec")
        stories = [
            {"id": id, "title": f"Story {id}", "acceptanceCriteria": ["Write it"], "priority": 1, "passes": False}
            for id in ("1", "2")
        ]
        told = {"project": "add-login", "branchName": "ralph/add-login", "userStories": stories}
        lab.write("prd.json", json.dumps(told, indent=2))
        lab.git("add", "--all", "--", ":!.ralph")
        lab.git("commit", "--quiet", "--message=a prd")
    done = lab.loop()
    assert done.exit_code == 0, done.stdout[-3000:]
    assert sorted(list_stories(lab)) == ["1", "2"]
    gates = [one["when"] for one in of_kind(lab.events(done), "gate")]
    assert gates.count("after") == 2
    if kind == "prd":
        passes = [one["passes"] for one in json.loads(lab.git("show", "ralph/add-login:prd.json"))["userStories"]]
        assert passes == [True, True]
