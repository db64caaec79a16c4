"""Decisions between two runs: a story or an attempt is accepted as it is, or work is rejected."""

from __future__ import annotations

import getpass
import json
from typing import Any

import pytest
from lab import DONE, Lab, kill, wait_until

from ralphtool.cli import accept
from ralphtool.judging.receipt import Receipt
from ralphtool.loop import idle
from ralphtool.record import change_state
from ralphtool.record.steering import SteeringCommand

THREE = (
    "## 1. First\n\n- [ ] 1.1 Make a\n- [ ] 1.2 Make b\n\n## 2. Second\n\n- [ ] 2.1 Make c\n\n"
    "## 3. Third\n\n- [ ] 3.1 Make d\n"
)
ME = "Tester <tester@example.org>"
REFUSED: list[dict[str, Any]] = [{"run": "echo refused > {story}.txt"}, {"say": "I give up"}]


def state_of(lab: Lab, story: str, change: str = "add-login") -> change_state.StoryState:
    return change_state.load(str(lab.root), change).story(story)


def set_proof(lab: Lab, story: str, receipt: Receipt | None, change: str = "add-login") -> None:
    current = change_state.load(str(lab.root), change)
    current.story(story).proof = receipt
    change_state.save(str(lab.root), change, current)


def on_branch(lab: Lab, path: str, change: str = "add-login") -> str:
    return lab.git("show", f"ralph/{change}:{path}", check=False)


def tasks(lab: Lab) -> str:
    return on_branch(lab, "openspec/changes/add-login/tasks.md")


def trailers(lab: Lab, key: str) -> list[str]:
    told = lab.git("log", "-1", f"--format=%(trailers:key={key},valueonly)", "ralph/add-login")
    return [line for line in told.split("\n") if line]


def seen(lab: Lab, type: str) -> list[dict[str, Any]]:
    return [one for one in lab.events() if one["type"] == type]


def frozen(lab: Lab) -> Any:
    """Everything that a command could change: refs, index, files, state, history."""
    state = (lab.root / ".ralph/standing/add-login.json").read_bytes()
    return (
        lab.git("for-each-ref"),
        lab.users_state(),
        state,
        lab.endings(),
        sorted(lab.root.glob(".ralph/steering/*/*")),
    )


@pytest.fixture(scope="module")
def made_finished(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    lab = Lab(tmp_path_factory.mktemp("finished")).repository(THREE)
    lab.play(default=DONE)
    assert lab.loop().exit_code in (0, 1)
    assert lab.checkpoints() == ["1", "2", "3"]
    set_proof(lab, "1", Receipt(state="unproven", why="there is no gate", passed_after=4))
    return lab


@pytest.fixture
def finished(made_finished: Lab, lab: Lab) -> Lab:
    """A change whose three stories are done, each with its own file."""
    return lab.copy(made_finished)


@pytest.fixture(scope="module")
def made_refused(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    lab = Lab(tmp_path_factory.mktemp("refused")).repository(THREE, attempts=1)
    lab.play({"story": "1", "steps": REFUSED}, default=DONE)
    assert lab.loop().exit_code == 1
    assert (lab.checkpoints(), lab.question().exists()) == (["2", "3"], True)
    return lab


@pytest.fixture
def refused(made_refused: Lab, lab: Lab) -> Lab:
    """A change whose first story needs an answer after an attempt that was not accepted; the others are done."""
    return lab.copy(made_refused)


# --- accepting a story that is done -----------------------------------------------------------------


def test_a_story_that_is_not_proven_is_accepted_with_who_and_why(finished: Lab) -> None:
    before = finished.git("for-each-ref"), finished.users_state(), finished.endings()
    told = finished.run("accept", "1", "--why", "I looked at it")
    assert (told.exit_code, told.stdout) == (0, "story 1 of add-login is accepted\n")
    proof = state_of(finished, "1").proof
    assert proof is not None
    assert (proof.state, proof.by, proof.why) == ("accepted", ME, "I looked at it")
    assert (proof.told, proof.passed_after, bool(proof.at)) == (("it was not proven: there is no gate",), 4, True)
    assert (finished.git("for-each-ref"), finished.users_state(), finished.endings()) == before, "nothing else changes"


def test_what_was_accepted_between_two_runs_is_in_the_record_of_the_next(finished: Lab) -> None:
    finished.run("accept", "1", "--why", "fine")
    finished.loop()
    [said], [proof] = seen(finished, "steered"), [one for one in seen(finished, "proof") if one["iteration"] == 0]
    assert (said["action"], said["story"], said["text"], said["by"]) == ("accept", "1", "fine", ME)
    assert (proof["story"], proof["receipt"]["state"], proof["receipt"]["by"]) == ("1", "accepted", ME)
    assert list(finished.root.glob(".ralph/steering/*/*.json")) == []
    finished.loop()
    assert len(seen(finished, "steered")) == 1


@pytest.mark.parametrize("state", ["proven", "held", "accepted"])
def test_a_story_that_needs_no_acceptance_says_so(finished: Lab, state: str) -> None:
    set_proof(finished, "1", Receipt(state=state))
    before = frozen(finished)
    told = finished.run("accept", "1")
    assert (told.exit_code, ": there is nothing to accept" in told.stdout) == (0, True)
    assert frozen(finished) == before


def test_a_story_that_the_user_ticked_is_theirs(lab: Lab) -> None:
    lab.repository(THREE.replace("[ ] 2.1", "[x] 2.1"))
    lab.play(default=DONE)
    lab.loop()
    before = frozen(lab)
    told = lab.run("accept", "2")
    assert (told.exit_code, "was ticked by you" in told.stdout) == (0, True)
    told = lab.run("reject", "2")
    assert (told.exit_code, "untick its boxes instead" in told.stderr) == (1, True)
    assert frozen(lab) == before


def test_without_git_a_story_is_accepted_and_none_can_be_rejected(lab: Lab) -> None:
    lab.openspec(THREE)
    lab.configure()
    lab.play(default=DONE)
    lab.loop()
    assert lab.run("accept", "1", "--why", "fine").exit_code == 0
    proof = state_of(lab, "1").proof
    assert proof is not None
    assert (proof.state, proof.why, bool(proof.by)) == ("accepted", "fine", True)
    told = lab.run("reject", "1")
    assert (told.exit_code, "has no git repository" in told.stderr) == (1, True)


# --- accepting an attempt ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["1", "add-login-1", "add-login-1-1"])
def test_a_refused_attempt_becomes_the_checkpoint_of_its_story(refused: Lab, name: str) -> None:
    mine = refused.users_state()
    told = refused.run("accept", name, "--why", "I read\nthe diff")
    assert "the attempt add-login-1-1 is accepted as it is" in told.stdout, told.stderr
    assert refused.checkpoints() == ["2", "3", "1"]
    assert (on_branch(refused, "1.txt"), on_branch(refused, "2.txt")) == ("refused", "work"), "upon newer work"
    assert "[ ]" not in tasks(refused)
    assert (trailers(refused, "Ralph-Entry"), trailers(refused, "Ralph-Story")) == (["add-login-1-2"], ["1"])
    assert (trailers(refused, "Ralph-Accepted-By"), trailers(refused, "Ralph-Change")) == ([ME], ["add-login"])
    assert refused.endings()[-1] == ("add-login-1-2", "completed")
    entry = refused.entries()[-1]
    assert entry["summary"] == f"accepted as it is (add-login-1-1) by {ME}: I read\nthe diff"
    assert (entry["files_modified"][-1], entry["git_commits"]) == (
        *("openspec/changes/add-login/tasks.md", [refused.git("rev-parse", "ralph/add-login")]),
    )
    assert refused.git("rev-parse", "refs/ralph/attempts/add-login-1-2") == refused.git("rev-parse", "ralph/add-login")
    assert (refused.question().exists(), refused.run("questions").stdout) == (False, "Nothing needs your answer.\n")
    assert refused.users_state() == mine


def test_a_person_without_a_name_is_left_out(refused: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    idle.decide(str(refused.root), "add-login", SteeringCommand("", "accept", "1", ""))
    idle.decide(str(refused.root), "add-login", SteeringCommand("", "reject", "2", ""))
    assert trailers(refused, "Ralph-Rejected") == ["2"]
    log = refused.git("log", "--format=%B", "ralph/add-login")
    assert "Ralph-Entry: add-login-1-2\nRalph-Story: 1\n" in log
    assert ("Ralph-Accepted-By" in log, "Ralph-Rejected-By" in log) == (False, False)
    monkeypatch.setattr(getpass, "getuser", lambda: (_ for _ in ()).throw(OSError("no such user")))
    refused.git("config", "user.name", "")
    refused.git("config", "user.email", "")
    assert accept._describe_person(str(refused.root)) == ""


def test_what_was_found_about_a_refused_attempt_stays_on_record(refused: Lab) -> None:
    refused.run("accept", "1")
    told = refused.run("explain", "1").stdout
    assert "accepted by you" in told
    assert "it was judged failed: " in told
    assert "the agent exited normally" not in told, "no agent has completed it"


def test_the_next_run_finds_an_accepted_attempt_done(refused: Lab) -> None:
    refused.run("accept", "1")
    refused.play(default=[{"say": "never"}])
    refused.loop()
    end = seen(refused, "run_ended")[-1]
    assert ([row["state"] for row in end["stories"]], end["spent"]["iterations"]) == (["done"] * 3, 0)
    assert [row["attempts"] for row in end["stories"]] == [1, 1, 1], "a decision is not an attempt"
    assert refused.run("accept", "1").stdout.count("already") == 1


def test_an_earlier_attempt_can_be_chosen(lab: Lab) -> None:
    lab.repository(THREE, attempts=2)
    lab.play(
        {"story": "1", "attempt": 1, "steps": [{"run": "echo one > 1.txt"}, {"say": "no"}]},
        {"story": "1", "attempt": 2, "steps": [{"run": "echo two > 1.txt"}, {"say": "no"}]},
        default=DONE,
    )
    lab.loop()
    assert lab.run("accept", "add-login-1-1").exit_code == 0
    assert on_branch(lab, "1.txt") == "one"
    told = lab.run("accept", "add-login-1-2")
    assert (told.exit_code, "ralphtool reject 1" in told.stderr) == (1, True)


def test_an_attempt_that_does_not_fit_changes_nothing(lab: Lab) -> None:
    lab.repository(THREE, attempts=1)
    writing = [{"run": "echo {story} > shared.txt"}]
    lab.play({"story": "1", "steps": [*writing, {"say": "no"}]}, default=[*writing, *DONE])
    lab.loop()
    before = frozen(lab)
    told = lab.run("accept", "1")
    assert (told.exit_code, "shared.txt" in told.stderr, "nothing was changed" in told.stderr) == (1, True, True)
    assert frozen(lab) == before


def test_an_attempt_that_broke_the_spec_is_accepted_with_the_spec_of_the_branch(lab: Lab) -> None:
    lab.repository(THREE, attempts=1)
    lab.play({"story": "1", "steps": [{"run": "rm -r openspec; echo x > 1.txt"}, {"say": "no"}]}, default=DONE)
    lab.loop("--max-iterations", "1")
    assert lab.run("accept", "1").exit_code == 0
    assert on_branch(lab, "1.txt") == "x"
    assert tasks(lab) == THREE.replace("[ ] 1", "[x] 1").rstrip("\n")


def test_a_change_in_prd_json_is_accepted_and_rejected(lab: Lab) -> None:
    lab.repository(THREE)
    stories = [{"id": "US-1", "title": "One", "acceptanceCriteria": ["a", "b"], "passes": False}]
    lab.write("prd.json", json.dumps({"project": "shop", "userStories": stories}))
    lab.play(default=REFUSED)
    lab.loop("shop", "--attempts", "1")
    assert lab.run("accept", "US-1", "--change", "shop").exit_code == 0
    assert json.loads(on_branch(lab, "prd.json", "shop"))["userStories"][0]["passes"] is True
    assert lab.run("reject", "us-1", "--why", "no").exit_code == 0, "its name in the history tells the change"
    assert json.loads(on_branch(lab, "prd.json", "shop"))["userStories"][0]["passes"] is False
    lab.play(default=DONE)
    lab.loop("shop")
    assert lab.checkpoints("shop") == ["US-1", "US-1"]


# --- rejecting --------------------------------------------------------------------------------------


def test_a_rejected_story_is_open_again_and_its_next_agent_knows_why(finished: Lab) -> None:
    mine, before = finished.users_state(), len(finished.endings())
    told = finished.run("reject", "2", "--why", "it logs passwords")
    assert told.stdout == ("story 2 of add-login is open again: its work is reverted\n  ralphtool run add-login\n"), (
        told.stderr
    )
    assert [on_branch(finished, f"{id}.txt") for id in "123"] == ["work", "", "work"]
    assert tasks(finished) == THREE.replace("[ ]", "[x]").replace("[x] 2", "[ ] 2").rstrip("\n")
    assert (trailers(finished, "Ralph-Rejected"), trailers(finished, "Ralph-Rejected-By")) == (["2"], [ME])
    assert (finished.users_state(), len(finished.endings())) == (mine, before)
    state = state_of(finished, "2")
    assert (state.proof, state.attempts, state.decision and state.decision.reason) == (
        *(None, 0, "you rejected it: it logs passwords"),
    )
    finished.loop()
    [text] = [path.read_text() for path in finished.root.glob(".ralph/runs/*/*add-login-2-2/prompt.md")]
    assert "A human says: The earlier work on this story was rejected: it logs passwords" in text
    assert finished.checkpoints() == ["1", "2", "3", "2"]
    assert [one["by"] for one in seen(finished, "steered")] == [ME]


def test_a_rejected_story_is_not_done_by_its_old_commit(finished: Lab) -> None:
    assert finished.run("reject", "add-login-2-1").exit_code == 0
    finished.play(default=[{"tick": "all"}, {"say": "no promise"}])
    finished.loop("--attempts", "1")
    rows = {row["id"]: row["state"] for row in seen(finished, "run_ended")[-1]["stories"]}
    assert rows["2"] != "done"
    assert finished.run("accept", "add-login-2-1").exit_code == 0, "and its old attempt can be taken all the same"
    assert on_branch(finished, "2.txt") == "work"


def test_a_story_that_was_opened_again_for_a_new_task_loses_all_of_its_work(finished: Lab) -> None:
    finished.openspec(THREE.replace("## 2.", "- [ ] 1.3 Make more\n\n## 2."))
    finished.play(default=[{"run": "echo more > more.txt"}, {"tick": "all"}, {"complete": True}])
    finished.loop()
    assert finished.checkpoints() == ["1", "2", "3", "1"]
    told = finished.run("reject", "1")
    assert told.stdout.startswith("story 1 of add-login is open again: its work is reverted\n"), told.stderr
    assert [on_branch(finished, f"{name}.txt") for name in ("1", "2", "3", "more")] == ["", "work", "work", ""]
    assert tasks(finished).count("[ ] 1.") == 3


def test_later_stories_that_changed_the_same_lines_are_reopened_too(lab: Lab) -> None:
    lab.repository(THREE)
    lab.play({"story": "2", "steps": [{"run": "echo x > other.txt"}, *DONE]},
             default=[{"run": "echo {story} > shared.txt"}, *DONE])  # fmt: skip
    lab.loop()
    told = lab.run("reject", "1", "--why", "wrong")
    assert "stories that changed the same lines are reverted and open again, too: 3" in told.stdout, told.stderr
    assert (on_branch(lab, "shared.txt"), on_branch(lab, "other.txt")) == ("", "x")
    assert trailers(lab, "Ralph-Rejected") == ["3", "1"], "the newest first"
    assert tasks(lab).count("[x]") == 1
    assert "story 1, which you rejected" in str(state_of(lab, "3").decision)
    lab.loop()
    assert lab.checkpoints() == ["1", "2", "3", "1", "3"]


def test_the_stories_that_are_open_again_are_listed_in_the_order_of_the_plan(lab: Lab) -> None:
    lab.repository(THREE)
    lab.play(default=[{"run": "echo {story} > shared.txt"}, *DONE])
    lab.loop()
    assert "are reverted and open again, too: 2, 3" in lab.run("reject", "1", "--why", "wrong").stdout


def test_marks_in_one_line_do_not_conflict(lab: Lab) -> None:
    lab.repository(THREE)
    stories = [{"id": id, "title": id, "acceptanceCriteria": ["a"], "passes": False} for id in ("US", "US-1")]
    lab.write("prd.json", json.dumps({"project": "shop", "userStories": stories}))
    lab.play(default=DONE)
    lab.loop("shop")
    assert lab.checkpoints("shop") == ["US", "US-1"]
    told = lab.run("accept", "us-1")
    assert (told.exit_code, "is story US-1, and an attempt at story US" in told.stderr) == (2, True)
    assert "open again too" not in lab.run("reject", "US", "--change", "shop").stdout
    assert [one["passes"] for one in json.loads(on_branch(lab, "prd.json", "shop"))["userStories"]] == [False, True]


def test_work_that_a_stranger_built_on_is_not_taken_back(finished: Lab) -> None:
    finished.git("checkout", "--quiet", "ralph/add-login")
    finished.write("3.txt", "mine\n")
    finished.git("commit", "--quiet", "--all", "--message=mine")
    finished.git("checkout", "--quiet", "main")
    before = frozen(finished)
    told = finished.run("reject", "3")
    assert (told.exit_code, "by a commit that belongs to no story" in told.stderr) == (1, True)
    assert frozen(finished) == before


def test_a_story_that_is_open_has_nothing_to_reject(refused: Lab) -> None:
    before = frozen(refused)
    told = refused.run("reject", "1")
    assert (told.exit_code, "is not done: there is nothing to reject" in told.stdout) == (0, True)
    assert frozen(refused) == before


# --- the branch is checked out ----------------------------------------------------------------------


@pytest.mark.parametrize("words", [["reject", "2"], ["reject", "3"]])
def test_a_branch_that_is_checked_out_moves_with_its_files(finished: Lab, words: list[str]) -> None:
    finished.git("checkout", "--quiet", "ralph/add-login")
    finished.write("untracked.txt", "mine\n")
    assert finished.run(*words).exit_code == 0
    assert finished.git("status", "--porcelain", "--untracked-files=no") == ""
    assert (finished.root / f"{words[1]}.txt").exists() is False
    assert (finished.root / "untracked.txt").read_text() == "mine\n"


def test_uncommitted_changes_on_the_branch_are_refused(finished: Lab) -> None:
    finished.git("checkout", "--quiet", "ralph/add-login")
    finished.write("README.md", "mine\n")
    before = frozen(finished)
    told = finished.run("reject", "2")
    assert (told.exit_code, "commit or `git stash`" in told.stderr) == (1, True)
    assert frozen(finished) == before
    assert finished.run("accept", "1").exit_code == 0, "which touches no file"


def test_a_working_tree_of_its_own_does_not_stay_behind(lab: Lab) -> None:
    lab.repository(THREE, workspace="worktree")
    lab.play(default=DONE)
    lab.loop()
    assert lab.run("reject", "2").exit_code == 0
    lab.loop()
    assert lab.checkpoints() == ["1", "2", "3", "2"]
    assert lab.git("for-each-ref", "refs/ralph/interrupted") == "", "nothing was cut off"


def test_a_detached_head_is_no_matter(finished: Lab) -> None:
    finished.git("checkout", "--quiet", "--detach", "ralph/add-login")
    finished.write("README.md", "mine\n")
    mine = finished.users_state()
    assert finished.run("reject", "2").exit_code == 0
    assert finished.users_state() == mine


def test_a_file_in_the_way_is_named(refused: Lab) -> None:
    refused.git("checkout", "--quiet", "ralph/add-login")
    refused.write("1.txt", "mine\n")
    before = frozen(refused)
    told = refused.run("accept", "1")
    assert (told.exit_code, "1.txt" in told.stderr, "would be overwritten" in told.stderr) == (1, True, True)
    assert frozen(refused) == before


# --- invalid requests -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["accept", "9"], 1, "no story and no attempt '9'; its stories are 1, 2, 3"),
        (["accept", "add-login-9-1"], 1, "no story and no attempt"),
        (["accept", "add-login-1-7"], 1, "add-login-1-7 was not kept"),
        (["accept", "1", "--why", "x" * 20_000], 1, "too long"),
        (["accept", "1", "--change", "nothing"], 1, "no change nothing"),
        (["accept", "1", "--change", "../evil"], 1, "../evil"),
        (["accept"], 2, "STORY|ENTRY"),
        (["accept", "1", "2"], 2, "2"),
        (["reject", "9"], 1, "no story"),
        (["reject", "add-login-2-7"], 1, "ralphtool reject 2"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(
    refused: Lab, words: list[str], code: int, said: str
) -> None:
    before = frozen(refused)
    told = refused.run(*words)
    assert (told.exit_code, said in told.stderr) == (code, True), told.stderr
    assert frozen(refused) == before


def test_before_the_first_run_there_is_nothing_to_decide_about(lab: Lab) -> None:
    lab.repository(THREE)
    for command in ("accept", "reject"):
        told = lab.run(command, "1")
        assert (told.exit_code, "ralphtool run add-login" in told.stderr) == (1, True)
    assert not (lab.root / ".ralph/steering").exists()


def test_several_changes_have_to_be_told_apart(finished: Lab) -> None:
    finished.openspec(THREE, "pay")
    told = finished.run("accept", "1")
    assert (told.exit_code, "several changes" in told.stderr) == (2, True)
    assert finished.run("accept", "add-login-1").exit_code == 0, "the name in the history tells the change"
    assert finished.run("reject", "2", "--change", "add-login").exit_code == 0


@pytest.mark.parametrize("command", ["accept", "reject"])
def test_an_agent_can_not_decide(finished: Lab, command: str) -> None:
    before = frozen(finished)
    told = finished.run(command, "1", RALPH_TOKEN="t")
    assert (told.exit_code, "for people" in told.stderr) == (2, True)
    assert frozen(finished) == before


def test_a_killed_run_gives_the_files_back_first(lab: Lab) -> None:
    lab.repository(THREE)
    began = lab.tmp / "began"
    lab.play({"story": "2", "steps": [{"run": f"touch {began}; sleep 3600"}]}, default=DONE)
    process = lab.start()
    assert wait_until(began.exists, 60)
    kill(process)
    told = lab.run("reject", "1")
    assert (told.exit_code, "ralphtool back" in told.stderr) == (1, True)
    assert lab.run("back").exit_code == 0
    assert lab.run("reject", "1").exit_code == 0
    assert (lab.checkpoints(), on_branch(lab, "1.txt")) == (["1"], "")


@pytest.mark.parametrize("command", ["accept", "reject"])
def test_help_fits_a_terminal_and_has_examples(lab: Lab, command: str) -> None:
    told = lab.run(command, "--help").stdout
    assert "Examples:" in told
    assert max(map(len, told.splitlines())) <= 80
