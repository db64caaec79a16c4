"""A branch that the user rewrites after a run: what was proven of other commits is not claimed of the new ones."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from lab import Lab
from loop.shop import UNITTEST_GATE, UNITTESTS, attempt, make_shop

from ralphtool.record import receipts
from ralphtool.workspace import branch

TASKS = "## 1. Add one\n\n- [ ] 1.1 Add one()\n\n## 2. Add two\n\n- [ ] 2.1 Add two()\n"
SOURCE = "def {name}():\n    return 1\n"
TEST = """\
import unittest

from {name} import {name}


class Test(unittest.TestCase):
    def test_{name}(self):
        self.assertEqual({name}(), 1)
"""


def add(name: str) -> list[dict[str, Any]]:
    return attempt({f"{name}.py": SOURCE.format(name=name), f"tests/test_{name}.py": TEST.format(name=name)})


def make_two(lab: Lab) -> Lab:
    """Two stories, both proven by their own tests."""
    make_shop(lab, UNITTEST_GATE)
    lab.openspec(TASKS)
    lab.git("commit", "--quiet", "--all", "--message=two stories")
    lab.configure(tests=[UNITTEST_GATE], accept="held")
    lab.play({"story": "1", "steps": add("one")}, {"story": "2", "steps": add("two")})
    assert lab.loop().exit_code == 0
    assert claims(lab) == {"1": "proven", "2": "proven"}
    return lab


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return make_two(Lab(tmp_path_factory.mktemp("made")))


@pytest.fixture
def two(made: Lab, lab: Lab) -> Lab:
    return lab.copy(made)


def claims(lab: Lab) -> dict[str, str]:
    """What `show`, `list`, `report`, `watch` and the receipts say; all must agree."""
    shown = lab.run("show", "--json").json["stories"]
    found = {one["id"]: one["proof"]["state"] for one in shown if one["proof"]}
    assert {id: one.state for id, one in receipts.read_receipts(str(lab.root), "add-login").items()} == found
    listed = lab.run("list").stdout
    assert all((("not proven" if state == "unproven" else state) in listed) for state in found.values())
    if (lab.root / ".ralph/runs").exists():
        assert report(lab)[1] == found
        assert sorted(watched(lab)) == sorted(found.values())
    return found


def report(lab: Lab) -> tuple[str, dict[str, str]]:
    """The state of the run, and what the report claims of the stories that are done."""
    told = lab.run("report", "--json").json
    return told["state"], {one["id"]: one["proof"] for one in told["stories"] if one["state"] == "done"}


def watched(lab: Lab) -> list[str]:
    """What `watch` claims of the stories that are done: none, if an error ended the run."""
    told = lab.run("watch").stdout.partition("Spent on")[0]
    marks = {"proven by": "proven", "held by": "held", "accepted by": "accepted"}
    lines = [line for line in told.splitlines() if line.startswith("  ✓ ")]
    found = [state for line in lines for words, state in marks.items() if f"({words}" in line]
    return found + ["unproven" for line in told.splitlines() if line.startswith("  ! ")]


def run_again(lab: Lab) -> tuple[int, dict[str, str], dict[str, str]]:
    """The exit code of a further run, what its stories claim, and why. No agent may have worked."""
    result = lab.loop()
    told = lab.events(result)
    assert not [one for one in told if one["type"] == "iteration_started"]
    rows = told[-1]["stories"]
    assert claims(lab) == {one["id"]: one["proof"] for one in rows}
    return (
        result.exit_code,
        {one["id"]: one["proof"] for one in rows},
        {one["id"]: one["proof_why"] for one in rows},
    )


def rewrite(lab: Lab, *commands: tuple[str, ...]) -> None:
    lab.git("checkout", "--quiet", "ralph/add-login")
    for command in commands:
        lab.git(*command)
    lab.git("checkout", "--quiet", "main")


def rebase(lab: Lab) -> None:
    lab.write("other.txt", "other\n")
    lab.git("add", "other.txt")
    lab.git("commit", "--quiet", "--message=other")
    rewrite(lab, ("rebase", "--quiet", "main"))


def test_a_rebased_story_is_held_once_the_gates_have_run_there(two: Lab) -> None:
    rebase(two)
    assert claims(two) == {"1": "unproven", "2": "unproven"}
    assert run_again(two) == (0, {"1": "held", "2": "held"}, {"1": "", "2": ""})
    proofs = [one["receipt"] for one in two.events() if one["type"] == "proof"]
    assert receipts.MOVED_BEFORE in proofs[-1]["told"][-1]


def test_a_rebased_story_is_not_held_by_gates_that_skip_all_tests(two: Lab) -> None:
    rebase(two)
    two.git("checkout", "--quiet", "ralph/add-login")
    for name in ("cart", "one", "two"):
        two.write(f"tests/test_{name}.py", "import unittest\n\nraise unittest.SkipTest('off')\n")
    two.git("commit", "--quiet", "--all", "--message=off")
    two.git("checkout", "--quiet", "main")
    assert run_again(two) == (1, {"1": "unproven", "2": "unproven"}, dict.fromkeys("12", receipts.MOVED))


def test_a_rebased_story_is_not_held_by_red_gates_or_by_none(two: Lab) -> None:
    rebase(two)
    two.configure(accept="held")
    unproven = {"1": "unproven", "2": "unproven"}
    assert run_again(two) == (1, unproven, dict.fromkeys("12", receipts.MOVED))
    two.configure(tests=["true"], accept="held")  # not the gates that were green for them
    assert run_again(two) == (1, unproven, dict.fromkeys("12", receipts.MOVED))
    two.configure(tests=[UNITTEST_GATE], accept="held")
    two.write("tests/test_cart.py", UNITTESTS.replace("3)", "4)"))
    two.git("commit", "--quiet", "--all", "--message=red")
    rewrite(two, ("rebase", "--quiet", "main"))
    assert run_again(two)[:2] == (1, unproven)


def test_an_unproven_story_stays_unproven(lab: Lab) -> None:
    lab.repository(tasks=TASKS, accept="held").play({"story": "1", "steps": add("one")}, default=add("two"))
    assert lab.loop().exit_code == 1
    rebase(lab)
    assert run_again(lab) == (1, dict.fromkeys("12", "unproven"), dict.fromkeys("12", "there is no gate"))


def test_other_code_under_the_same_message_is_not_proven(two: Lab) -> None:
    two.git("checkout", "--quiet", "ralph/add-login")
    two.write("two.py", "def two():\n    return 1 if True else 2\n")
    two.git("commit", "--quiet", "--all", "--amend", "--no-edit")
    two.git("checkout", "--quiet", "main")
    assert run_again(two) == (1, {"1": "proven", "2": "unproven"}, {"1": "", "2": receipts.REWRITTEN})
    assert two.run("accept", "2").exit_code == 0
    assert run_again(two)[:2] == (0, {"1": "proven", "2": "accepted"})
    two.git("checkout", "--quiet", "ralph/add-login")
    two.write("two.py", "def two():\n        return 1 if True else 2\n")  # whitespace is code
    two.git("commit", "--quiet", "--all", "--amend", "--no-edit")
    two.git("checkout", "--quiet", "main")
    assert run_again(two)[:2] == (1, {"1": "proven", "2": "unproven"})


def test_another_message_about_the_same_change_keeps_the_proof(two: Lab) -> None:
    message = two.git("log", "-1", "--format=%B", "ralph/add-login")
    rewrite(two, ("commit", "--quiet", "--amend", f"--message=Better words\n\n{message}"))
    assert run_again(two)[:2] == (0, {"1": "proven", "2": "proven"})


def test_a_clone_and_another_worktree_know_the_proof_from_the_commits(two: Lab) -> None:
    two.git("worktree", "add", "--quiet", "--detach", "../worktree", "main")
    worktree = copy.copy(two)
    worktree.root = two.root.parent / "worktree"
    worktree.write(".ralph/config.toml", two.read(".ralph/config.toml"))
    for other in (worktree, clone(two)):
        assert claims(other) == {"1": "proven", "2": "proven"}
        assert run_again(other)[:2] == (0, {"1": "proven", "2": "proven"})
    rebase(other)  # there is no receipt that could follow
    assert run_again(other) == (1, dict.fromkeys("12", "unproven"), dict.fromkeys("12", receipts.UNKNOWN))


def clone(lab: Lab) -> Lab:
    """A clone with the branch, but without what ralphtool keeps beside it."""
    lab.git("clone", "--quiet", "--config=user.name=A", "--config=user.email=a@example.org", ".", "../clone")
    lab.git("-C", "../clone", "branch", "--quiet", "ralph/add-login", "origin/ralph/add-login")
    other = copy.copy(lab)
    other.root = lab.root.parent / "clone"
    other.write(".ralph/config.toml", lab.read(".ralph/config.toml"))
    return other


@pytest.mark.parametrize("way", ["amend", "squash"])
def test_a_story_whose_checkpoint_is_gone_is_not_done_again(two: Lab, way: str) -> None:
    if way == "amend":
        rewrite(two, ("commit", "--quiet", "--amend", "--message=feat: two"))
    else:
        rewrite(two, ("reset", "--quiet", "--soft", "main"), ("commit", "--quiet", "--message=squashed"))
    gone = {"2"} if way == "amend" else {"1", "2"}
    expected = {id: "unproven" if id in gone else "proven" for id in "12"}
    assert run_again(two) == (1, expected, {id: receipts.GONE if id in gone else "" for id in "12"})
    assert two.run("accept", "2").exit_code == 0
    assert run_again(two)[1]["2"] == "accepted"


def test_a_story_whose_checkpoint_is_gone_can_be_rejected(two: Lab) -> None:
    rewrite(two, ("commit", "--quiet", "--amend", "--message=feat: two"))
    rejected = two.run("reject", "2", "--why", "no")
    assert rejected.exit_code == 0, rejected.stderr
    assert "two.py" not in two.git("ls-tree", "-r", "--name-only", "ralph/add-login")
    assert claims(two) == {"1": "proven"}


def test_every_format_of_a_report_compares_the_stories_with_the_branch(two: Lab) -> None:
    assert report(two) == ("done", {"1": "proven", "2": "proven"})
    assert branch.read_tip(str(two.root), "add-login"), "`watch` compares it without git"
    rewrite(two, ("commit", "--quiet", "--amend", "--message=feat: two"))
    assert report(two) == ("unproven", {"1": "proven", "2": "unproven"})
    markdown, junit = two.run("report").stdout, two.run("report", "--format", "junit").stdout
    assert f"1 done, not proven: {receipts.GONE}" in markdown
    assert "ralphtool accept 2" in markdown
    assert 'failures="1"' in junit
    assert f"1 done, not proven: {receipts.GONE}" in two.run("watch").stdout
    assert two.run("finish", "add-login", "--merge").exit_code == 0
    assert claims(two) == {"1": "proven", "2": "accepted"}
    assert "1 proven by its own tests, 1 accepted by you" in two.run("report").stdout


@pytest.mark.parametrize("way", ["reset", "rename", "squash"])
def test_no_report_claims_or_advises_what_a_lost_branch_had(two: Lab, way: str) -> None:
    if way == "reset":
        two.git("update-ref", "refs/heads/ralph/add-login", "main")
    elif way == "rename":
        two.git("branch", "--quiet", "-m", "ralph/add-login", "mine")
    else:
        two.git("merge", "--quiet", "--squash", "ralph/add-login")
        two.git("branch", "--quiet", "-D", "ralph/add-login")
    expected = {"1": "unproven", "2": "unproven"} if way == "squash" else {}
    assert report(two) == ("unproven" if expected else "unfinished", expected)
    assert watched(two) == list(expected.values())
    assert two.run("list").stdout.splitlines()[0].endswith("2/2: 2 not proven" if expected else "0/2")
    assert len(two.run("questions", "--json").json["questions"]) == len(expected)
    told = two.run("report").stdout + two.run("watch").stdout
    for command in ("ralphtool finish", "ralphtool accept", "ralphtool reject", "HEAD..ralph/add-login"):
        assert command not in told
    assert expected or f"{receipts.UNDONE}\n" in told


def test_a_branch_that_was_merged_by_hand_keeps_its_proofs_and_needs_no_commands(two: Lab) -> None:
    two.git("merge", "--quiet", "--no-edit", "ralph/add-login")
    two.git("branch", "--quiet", "-D", "ralph/add-login")
    assert claims(two) == {"1": "proven", "2": "proven"}
    told = two.run("report").stdout + two.run("watch").stdout
    assert "ralphtool finish" not in told
    assert "HEAD..ralph/add-login" not in told
    again = two.run("run", "add-login")
    assert (again.exit_code, again.stdout) == (0, "add-login is complete and finished: nothing left to run.\n")
    assert not two.git("branch", "--list", "ralph/*")
    assert "nothing is left to finish" in two.run("finish", "add-login", "--squash").stderr


def test_unproven_work_that_was_merged_by_hand_is_still_to_be_proven(lab: Lab) -> None:
    lab.repository(tasks=TASKS, accept="held").play({"story": "1", "steps": add("one")}, default=add("two"))
    lab.loop()
    lab.git("merge", "--quiet", "--no-edit", "ralph/add-login")
    lab.git("branch", "--quiet", "-D", "ralph/add-login")
    assert claims(lab) == {"1": "unproven", "2": "unproven"}
    assert "nothing is left" not in lab.run("finish", "add-login", "--squash").stderr
    assert "nothing left to run" not in lab.loop().stdout
    assert claims(lab) == {"1": "unproven", "2": "unproven"}


def test_work_that_is_merged_by_hand_needs_no_review(two: Lab) -> None:
    two.git("merge", "--quiet", "--no-edit", "ralph/add-login")
    two.configure(tests=[UNITTEST_GATE], accept="held", workspace="worktree")
    steps = [one["run"] for one in two.events(two.loop())[-1]["next"]]
    assert steps == ["ralphtool finish add-login --squash"]


# --- after `finish` ---------------------------------------------------------------------------------


def test_work_that_was_finished_unproven_is_accepted_not_ticked(lab: Lab) -> None:
    lab.repository(tasks=TASKS, accept="held").play({"story": "1", "steps": add("one")}, default=add("two"))
    lab.loop("--max-iterations", "1")
    finished = lab.run("finish", "add-login", "--merge")
    assert "story 1" in finished.stdout
    assert "as it is" in finished.stdout
    result = lab.loop()
    rows = {one["id"]: (one["proof"], one["proof_why"]) for one in lab.events(result)[-1]["stories"]}
    assert rows["1"] == ("accepted", "you finished the change with it")
    assert claims(lab) == {"1": "accepted", "2": "unproven"}


@pytest.mark.parametrize("way", ["--merge", "--squash"])
def test_work_that_was_finished_proven_stays_proven(lab: Lab, way: str, tmp_path: Path) -> None:
    make_shop(lab, UNITTEST_GATE)
    lab.openspec(TASKS)
    lab.git("commit", "--quiet", "--all", "--message=two stories")
    lab.configure(tests=[UNITTEST_GATE], accept="held")
    lab.play({"story": "1", "steps": add("one")}, {"story": "2", "steps": add("two")})
    lab.loop("--max-iterations", "1")
    assert lab.run("finish", "add-login", way).exit_code == 0
    lab.git("commit", "--quiet", "--allow-empty", "--message=finished")
    result = lab.loop()
    assert result.exit_code == 0
    assert {one["id"]: one["proof"] for one in lab.events(result)[-1]["stories"]} == {"1": "proven", "2": "proven"}
    assert claims(lab) == {"1": "proven", "2": "proven"}
    if way == "--merge":
        assert claims(clone(lab)) == {"1": "proven", "2": "proven"}


def test_a_clone_tells_a_change_from_a_finished_one_of_its_name(two: Lab) -> None:
    two.play({"story": "2", "steps": [{"run": "echo 2 >> two.py"}, {"tick": "all"}, {"complete": True}]})
    assert two.run("finish", "add-login", "--merge").exit_code == 0
    two.openspec("## 1. Add three\n\n- [x] 1.1 Add three()\n\n## 2. Add two\n\n- [ ] 2.1 Change two()\n")
    two.git("commit", "--quiet", "--all", "--message=another plan")
    assert two.loop().exit_code == 0
    assert report(two)[1] == {"1": "ticked", "2": "held"}
    rebase(two)
    other = clone(two)
    assert claims(other) == {"2": "unproven"}, "the user ticked the first one"
    assert other.run("reject", "2", "--why", "no").exit_code == 0
    assert other.git("show", "ralph/add-login:two.py") == SOURCE.format(name="two").rstrip()
