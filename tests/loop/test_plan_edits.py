"""The user may edit the plan at any time: the run follows edits made during it, or between two runs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from lab import DONE, Lab, wait_until
from patience import PATIENCE
from sandbox.boxes import needs_box

PLAN = "## 1. First\n\n- [ ] 1.1 Make one\n\n## 2. Second\n\n- [ ] 2.1 Make two\n"
THIRD = "\n## 3. Third\n\n- [ ] 3.1 Make three\n"
TASKS = "openspec/changes/add-login/tasks.md"
MOVED = "## 1. New\n\n- [ ] 1.1 None\n\n## 2. First\n\n- [ ] 2.1 Make one\n\n## 3. Second\n\n- [ ] 3.1 Make two\n"
WORK = [{"run": "date +%N > made-$$.txt"}, *DONE]  # different each time
WORKSPACES = [pytest.param("box", marks=needs_box), "worktree", "here"]


def edited(lab: Lab) -> list[dict[str, Any]]:
    return [event for event in lab.events() if event["type"] == "plan_edited"]


def notices(lab: Lab) -> str:
    return "\n".join(event["text"] for event in lab.events() if event["type"] == "notice")


def on_branch(lab: Lab, path: str = TASKS) -> str:
    return lab.git("show", f"ralph/add-login:{path}")


def begin(lab: Lab, workspace: str = "worktree", plan: str = PLAN, iterations: int = 1) -> None:
    """Completes the first story; the user has nothing to answer."""
    lab.repository(plan, workspace=workspace).play(default=WORK)
    lab.loop("--max-iterations", str(iterations))
    assert lab.checkpoints() == [str(number) for number in range(1, iterations + 1)]


@pytest.mark.parametrize("workspace", WORKSPACES)
def test_a_story_that_is_added_between_two_runs_is_done(lab: Lab, workspace: str) -> None:
    begin(lab, workspace)
    lab.write(TASKS, PLAN + THIRD)
    result = lab.loop()
    assert result.exit_code == 0, lab.events()[-1]
    assert lab.checkpoints() == ["1", "2", "3"]
    assert on_branch(lab) == (PLAN + THIRD).replace("[ ]", "[x]").rstrip()
    [edit] = edited(lab)
    assert edit["text"] == "you edited the plan of add-login: new: story 3"
    assert [row["id"] for row in edit["stories"]] == ["1", "2", "3"]
    types = [event["type"] for event in lab.events()]
    second = types[len(types) - types[::-1].index("run_started") :]
    assert second.index("plan_edited") < second.index("iteration_started"), "an edit is reported before its story"
    assert (lab.root / TASKS).read_text() == PLAN + THIRD


def test_an_edit_that_was_committed_counts_too(lab: Lab) -> None:
    begin(lab)
    lab.write(TASKS, PLAN + THIRD)
    lab.git("commit", "--all", "--quiet", "--message=third")
    assert lab.loop().exit_code == 0
    assert lab.checkpoints() == ["1", "2", "3"]


@pytest.mark.parametrize("workspace", ["worktree", "here"])
def test_an_edit_counts_in_a_clone_in_which_no_run_has_looked(lab: Lab, workspace: str) -> None:
    """As in CI: each job has a fresh clone, with the branch of the change."""
    begin(lab, workspace)
    for name in ("start", "base"):
        lab.git("update-ref", "-d", f"refs/ralph/{name}/add-login")
    lab.write(TASKS, PLAN + THIRD)
    lab.git("commit", "--quiet", "--message=more", TASKS)
    assert lab.run("list", "--json").json["changes"][0]["stories_total"] == 3
    assert lab.loop().exit_code == 0
    assert [one["text"] for one in edited(lab)] == ["you edited the plan of add-login: new: story 3"]
    assert lab.checkpoints() == ["1", "2", "3"]
    lab.git("update-ref", "-d", "refs/ralph/start/add-login")
    assert lab.loop().exit_code == 0
    assert len(edited(lab)) == 1, "it is taken up once"


@pytest.mark.parametrize("workspace", WORKSPACES[:2])
def test_a_story_that_is_added_during_a_run_is_done_in_the_same_run(lab: Lab, workspace: str) -> None:
    lab.repository(PLAN, workspace=workspace)
    go, ready = lab.root / ".ralph/go", lab.root / ".git/ralph/worktrees/add-login/ready"
    wait = f"touch ready; while test ! -e {go}; do sleep 0.02; done; rm ready"
    lab.play({"story": "2", "steps": [{"run": wait}, *DONE]}, default=DONE)
    run = lab.start()
    assert wait_until(lambda: ready.exists() or run.poll() is not None)
    lab.write(TASKS, PLAN + THIRD)
    go.touch()
    told = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, told
    assert lab.checkpoints() == ["1", "2", "3"]
    assert (lab.root / TASKS).read_text() == PLAN + THIRD


def test_a_reworded_story_is_run_as_reworded_and_with_fresh_attempts(lab: Lab) -> None:
    lab.repository(PLAN, workspace="worktree", attempts=1)
    lab.play({"story": "1", "steps": DONE}, default=[{"say": "I don't know"}])
    assert lab.loop().exit_code == 1
    assert lab.question("add-login-2").exists()
    lab.write(TASKS, PLAN.replace("Make two", "Make two, in blue"))
    lab.play(default=DONE)
    assert lab.loop().exit_code == 0, lab.events()[-1]
    assert "- [x] 2.1 Make two, in blue" in on_branch(lab)
    assert not lab.question("add-login-2").exists()
    prompts = sorted(lab.root.glob(".ralph/runs/*/*-2-*/prompt.md"), key=lambda path: path.stat().st_mtime_ns)
    assert "Make two, in blue" in prompts[-1].read_text()


def reword_while_an_agent_works(lab: Lab, old: str, new: str, *options: str) -> int:
    """The first attempt at story 1 is done when the user has reworded it."""
    go, ready = lab.root / ".ralph/go", lab.root / ".git/ralph/worktrees/add-login/ready"
    wait = f"touch ready; while test ! -e {go}; do sleep 0.02; done; rm ready"
    lab.play({"story": "1", "attempt": 1, "steps": [{"run": f"test -e {go} || {{ {wait}; }}"}, *WORK]}, default=WORK)
    run = lab.start(*options)
    assert wait_until(lambda: ready.exists() or run.poll() is not None)
    lab.write(TASKS, PLAN.replace(old, new))
    go.touch()
    run.communicate(timeout=PATIENCE)
    return int(run.wait())


def test_a_story_that_is_reworded_while_an_agent_does_it_is_done_again(lab: Lab) -> None:
    lab.repository(PLAN, workspace="worktree")
    assert reword_while_an_agent_works(lab, "Make one", "Make one, in blue") == 0
    assert lab.checkpoints() == ["1", "1", "2"]
    [edit] = edited(lab)
    assert edit["text"].endswith("open again, because you reworded it while an agent worked on it: story 1")
    prompts = sorted(lab.root.glob(".ralph/runs/*/*/prompt.md"))
    assert ["Make one, in blue" in path.read_text() for path in prompts[:2]] == [False, True]
    assert "- [x] 1.1 Make one, in blue" in on_branch(lab)


def test_a_run_that_ends_then_does_not_call_the_reworded_story_done(lab: Lab) -> None:
    lab.repository(PLAN, workspace="worktree")
    limit = ("--max-iterations", "1")
    assert reword_while_an_agent_works(lab, "First\n\n- [ ] 1.1 Make one", "A\n\n- [ ] 1.1 Make one", *limit) == 1
    assert lab.events()[-1]["stories"][0]["state"] == "open"
    assert lab.run("list", "--json").json["changes"][0]["stories_done"] == 0
    assert lab.loop().exit_code == 0
    assert lab.checkpoints() == ["1", "1", "2"]


def test_another_story_that_is_reworded_meanwhile_changes_nothing_for_the_first(lab: Lab) -> None:
    lab.repository(PLAN, workspace="worktree")
    assert reword_while_an_agent_works(lab, "Make two", "Make two, in blue") == 0
    assert lab.checkpoints() == ["1", "2"]


def test_the_work_of_a_done_story_that_is_removed_is_named(lab: Lab) -> None:
    begin(lab)
    lab.write(TASKS, "## 1. Second\n\n- [ ] 1.1 Make two\n")
    commit = lab.git("log", "--format=%h", "--abbrev=10", "--grep=Ralph-Story: 1", "ralph/add-login")
    assert lab.loop().exit_code == 0
    assert f"until you revert it there: {commit} (story 1)" in edited(lab)[0]["text"]


def test_a_removed_story_is_not_run(lab: Lab) -> None:
    begin(lab, plan=PLAN + THIRD)
    lab.write(TASKS, PLAN)
    assert lab.loop().exit_code == 0
    assert lab.checkpoints() == ["1", "2"]


def test_a_story_that_is_inserted_moves_the_others_and_nothing_is_done_twice(lab: Lab) -> None:
    begin(lab)
    before = lab.git("rev-parse", "ralph/add-login")
    lab.write(TASKS, MOVED)
    assert lab.loop().exit_code == 0
    assert on_branch(lab) == MOVED.replace("[ ]", "[x]").rstrip()
    later = lab.git(
        "log", "--reverse", "--format=%(trailers:key=Ralph-Story,valueonly,separator=)", f"{before}..ralph/add-login"
    )
    assert later.split() == ["1", "3"]
    [edit] = edited(lab)
    assert edit["renumbered"] == [["1", "2"], ["2", "3"]]
    assert "renumbered: stories 1 → 2, 2 → 3" in " ".join(lab.run("report").stdout.split())
    # The work of the story that is now the second can still be reverted by its new number.
    assert lab.run("reject", "2").exit_code == 0
    assert "- [ ] 2.1 Make one" in on_branch(lab)


def test_a_done_story_in_other_words_stays_done_and_the_user_is_asked(lab: Lab) -> None:
    begin(lab)
    lab.write(TASKS, PLAN.replace("Make one", "Make one, in blue"))
    assert lab.loop().exit_code == 0
    [edit] = edited(lab)
    assert "done before you reworded it: story 1 (`ralphtool reject 1` reopens it)" in edit["text"]
    assert "- [x] 1.1 Make one, in blue" in on_branch(lab)
    assert lab.checkpoints() == ["1", "2"]


def test_a_box_that_is_added_to_a_done_story_is_done(lab: Lab) -> None:
    begin(lab)
    lab.write(TASKS, PLAN.replace("Make one\n", "Make one\n- [ ] 1.2 Make more\n"))
    assert lab.loop().exit_code == 0
    assert lab.checkpoints() == ["1", "1", "2"]


def test_a_box_that_the_user_ticks_counts(lab: Lab) -> None:
    begin(lab)
    lab.write(TASKS, PLAN.replace("- [ ] 2.1", "- [x] 2.1"))
    assert lab.loop().exit_code == 0
    assert lab.checkpoints() == ["1"]


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ("no story at all\n", "it no longer has tasks"),
        ("<<<<<<< HEAD\n" + PLAN + "=======\n" + THIRD + "\n>>>>>>> other\n", "merge conflict markers"),
        (PLAN + "caf\xe9\n", "UTF-8"),
    ],
)
def test_a_plan_that_can_not_be_used_is_told_and_the_last_one_stays(lab: Lab, plan: str, why: str) -> None:
    begin(lab)
    (lab.root / TASKS).write_bytes(plan.encode("latin-1"))
    result = lab.loop()
    assert result.exit_code == 0, result.stderr
    assert lab.checkpoints() == ["1", "2"]
    assert why in notices(lab)


def test_a_plan_that_is_deleted_during_a_run_changes_nothing(lab: Lab) -> None:
    lab.repository(PLAN, workspace="worktree")
    folder = lab.root / "openspec"
    lab.play({"story": "1", "steps": [{"run": f"rm -r {folder}"}, *DONE]}, default=DONE)
    lab.loop()
    assert lab.checkpoints() == ["1", "2"]
    assert "can't be used as it is now, so the last valid version stays in use" in notices(lab)


def test_a_plan_that_is_deleted_between_runs_is_told_and_the_last_one_stays(lab: Lab) -> None:
    begin(lab)
    shutil.rmtree(lab.root / "openspec")
    assert lab.loop("add-login").exit_code == 0
    assert lab.checkpoints() == ["1", "2"]
    assert "it no longer exists" in notices(lab)


def test_people_see_the_plan_that_the_next_run_works_on(lab: Lab) -> None:
    begin(lab)
    lab.write(TASKS, MOVED)
    shown = lab.run("show", "add-login", "--json").json
    assert [(row["title"], row["done"]) for row in shown["stories"]][:2] == [("New", False), ("First", True)]
    assert "plan" in lab.run("run", "--dry-run").stdout.lower()


def test_a_stash_and_another_branch_are_no_edits(lab: Lab) -> None:
    lab.repository(PLAN, workspace="worktree")
    lab.write(TASKS, PLAN + THIRD)
    steps = ("git -C {0} stash --quiet", "git -C {0} stash pop --quiet", "git -C {0} switch --quiet --create other")
    by_user = "unset GIT_TRACE_REFS GIT_TRACE2_EVENT; "  # an agent's commands report what they do to the stash
    turns = [
        {"story": str(number), "steps": [{"run": by_user + step.format(lab.root), "must": True}, *DONE]}
        for number, step in enumerate(steps, 1)
    ]
    lab.play(*turns, default=DONE)
    assert lab.loop().exit_code == 0, lab.events()[-1]
    assert lab.checkpoints() == ["1", "2", "3"]
    assert edited(lab) == []


def test_what_both_wrote_into_the_design_stays(lab: Lab) -> None:
    design = "openspec/changes/add-login/design.md"
    lab.repository(PLAN, workspace="worktree")
    lab.write(design, "# Design\n\nPlain.\n")
    lab.play(default=[{"run": "ralphtool agent learn 'Tea is hot'", "must": True}, *DONE])
    lab.loop("--max-iterations", "1")
    assert "Tea is hot" in on_branch(lab, design)
    lab.write(design, "# Design\n\nPlain.\n\nAnd blue.\n")
    assert lab.loop().exit_code == 0
    assert "And blue." in on_branch(lab, design)
    assert "Tea is hot" in on_branch(lab, design)


def test_an_agent_that_edits_the_spec_still_cheats(lab: Lab) -> None:
    lab.repository(PLAN, workspace="worktree", attempts=1)
    lab.play(default=[{"run": f"sed -i 's/Make one/Make nothing/' {TASKS}"}, *DONE])
    lab.loop("--max-iterations", "1")
    assert lab.checkpoints() == []
    assert edited(lab) == []


@pytest.mark.parametrize("workspace", ["worktree", "here"])
def test_a_checklist_and_prd_json_are_merged_as_well(lab: Lab, workspace: str) -> None:
    lab.git("init", "--quiet", "--initial-branch=main")
    lab.configure(workspace=workspace)
    lab.write("prd.json", _build_prd("one", "two"))
    lab.git("add", "prd.json")
    lab.git("-c", "user.name=n", "-c", "user.email=e@x", "commit", "--quiet", "--message=first")
    lab.play(default=DONE)
    lab.loop("--max-iterations", "1")
    lab.write("prd.json", _build_prd("one", "two", "three"))
    assert lab.loop().exit_code == 0, lab.events()[-1]
    [branch] = lab.git("for-each-ref", "--format=%(refname)", "refs/heads/ralph/").split()
    assert lab.git("show", f"{branch}:prd.json").count('"passes": true') == 3


def _build_prd(*titles: str) -> str:
    rows = [
        f'{{"id": "US-{number}", "title": "{title}", "acceptanceCriteria": ["{title} is there"], "passes": false}}'
        for number, title in enumerate(titles, 1)
    ]
    return '{"userStories": [\n  ' + ",\n  ".join(rows) + "\n]}\n"


def test_the_second_look_finds_nothing_new(lab: Lab, tmp_path: Path) -> None:
    begin(lab)
    lab.write(TASKS, PLAN + THIRD)
    lab.loop("--max-iterations", "1")
    lab.loop("--max-iterations", "1")
    assert len(edited(lab)) == 1
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.mark.parametrize("workspace", ["worktree", "here"])
def test_the_older_plan_of_an_older_branch_is_no_edit(lab: Lab, workspace: str) -> None:
    lab.repository(PLAN, workspace=workspace).play(default=WORK)
    lab.git("branch", "older")
    lab.write(TASKS, PLAN + THIRD)
    lab.git("commit", "--quiet", "--all", "--message=a third one")
    assert lab.loop("--max-iterations", "2").exit_code == 1
    lab.git("switch", "--quiet", "older")
    assert "stories 2/3" in lab.run("list").stdout
    assert lab.loop().exit_code == 0
    assert lab.checkpoints() == ["1", "2", "3"]
    assert lab.run("finish", "add-login", "--merge").exit_code == 0
    assert "- [x] 3.1 Make three" in lab.git("show", f"HEAD:{TASKS}")


# --- between two runs: the ids that people see are those of their plan ------------------------------

SWAPPED = "## 1. Second\n\n- [ ] 1.1 Make two\n\n## 2. New\n\n- [ ] 2.1 None\n\n## 3. First\n\n- [ ] 3.1 Make one\n"


def first_commit(lab: Lab) -> str:
    return lab.git("log", "-1", "--format=%H", "--grep=Ralph-Story: 1", "ralph/add-login")


def test_a_receipt_is_shown_with_the_story_that_it_is_about(lab: Lab) -> None:
    begin(lab, iterations=2)
    commits = {story["title"]: story["proof"]["commit"] for story in lab.run("show", "--json").json["stories"]}
    assert sorted(commits) == ["First", "Second"]
    lab.write(TASKS, SWAPPED)
    shown = {story["title"]: story["proof"] for story in lab.run("show", "--json").json["stories"]}
    assert shown.pop("New") is None
    assert {title: proof["commit"] for title, proof in shown.items()} == commits
    assert "stories 2/3: 2 " in lab.run("list").stdout
    assert "needs" not in lab.run("list").stdout


def test_a_rejection_is_about_the_story_that_has_this_number_in_the_users_plan(lab: Lab) -> None:
    begin(lab, iterations=2)
    lab.write(TASKS, SWAPPED)
    result = lab.run("reject", "3")
    assert result.exit_code == 0, result.stderr
    assert "you edited the plan of add-login: new: story 2; renumbered: stories 2 → 1, 1 → 3" in result.stderr
    assert on_branch(lab) == SWAPPED.replace("- [ ] 1.1", "- [x] 1.1").rstrip()
    assert lab.loop().exit_code == 0, lab.events()[-1]
    assert on_branch(lab) == SWAPPED.replace("[ ]", "[x]").rstrip()


def test_a_page_that_shows_an_earlier_plan_decides_about_no_story(lab: Lab) -> None:
    """The web page of an ended run still has the numbers of that run."""
    begin(lab, iterations=2)
    before = on_branch(lab)
    lab.write(TASKS, SWAPPED)
    for command in (["reject", "2"], ["guide", "1", "Faster"], ["retry", "3"]):
        result = lab.run(*command, RALPH_VIA="web")
        assert result.exit_code == 1
        assert f"story {command[1]} is not clear, because the plan was edited after this run" in result.stderr
    assert on_branch(lab) == before
    assert lab.run("reject", "3").exit_code == 0


@pytest.mark.parametrize("workspace", WORKSPACES)
def test_a_skip_is_about_the_story_that_has_this_number_when_it_is_given(lab: Lab, workspace: str) -> None:
    begin(lab, workspace, plan=PLAN + THIRD)
    assert lab.run("skip", "3").exit_code == 0
    lab.write(TASKS, MOVED + "\n## 4. Third\n\n- [ ] 4.1 Make three\n")
    assert lab.run("skip", "1").exit_code == 0
    lab.loop()
    made = on_branch(lab)
    assert [title in made for title in ("- [ ] 1.1", "- [x] 2.1", "- [x] 3.1", "- [ ] 4.1")] == [True] * 4


def test_a_question_is_listed_and_answered_by_the_number_in_the_users_plan(lab: Lab) -> None:
    lab.repository(PLAN, workspace="worktree", attempts=1)
    lab.play({"told": "tell me", "steps": DONE}, {"story": "1", "steps": DONE}, default=[{"say": "I don't know"}])
    assert lab.loop().exit_code == 1
    lab.write(TASKS, MOVED)
    [asked] = lab.run("questions", "--json").json["questions"]
    assert (asked["story"], asked["title"]) == ("3", "Second")
    assert "needs your answer: `ralphtool answer 3" in lab.run("run", "--dry-run").stdout
    assert lab.run("answer", "2", "I tell me").exit_code == 1, "the first story has no question"
    assert lab.run("answer", "3", "I tell me").exit_code == 0
    lab.loop()
    assert "- [x] 3.1 Make two" in on_branch(lab)


def test_an_attempt_at_another_story_that_had_the_number_is_not_accepted(lab: Lab) -> None:
    lab.repository(PLAN, workspace="worktree", attempts=1)
    lab.play({"story": "1", "steps": DONE}, default=[{"write": "two.txt", "text": "2\n"}])
    assert lab.loop().exit_code == 1
    lab.write(TASKS, PLAN.replace("Second", "Fourth").replace("Make two", "Write a poem"))
    for command in (["accept", "2"], ["explain", "2"], ["diff", "2"], ["logs", "2"]):
        result = lab.run(*command)
        assert result.exit_code == 1, (command, result.stdout)
        assert "no attempt yet" in result.stderr, command
    assert lab.checkpoints() == ["1"]


def test_the_last_attempt_at_a_story_with_a_new_number_is_still_found(lab: Lab) -> None:
    lab.repository(PLAN, workspace="worktree", attempts=1)
    lab.play({"story": "1", "steps": DONE}, default=[{"write": "two.txt", "text": "2\n"}, {"say": "no"}])
    assert lab.loop().exit_code == 1
    lab.write(TASKS, MOVED)
    assert lab.run("explain", "3").stdout.startswith("add-login-2-1")
    assert "two.txt" in lab.run("diff", "3").stdout
    assert lab.run("accept", "3").exit_code == 0
    assert "- [x] 3.1 Make two" in on_branch(lab)
    assert lab.git("show", "ralph/add-login:two.txt") == "2"


def test_during_a_run_an_unclear_number_is_refused(lab: Lab) -> None:
    lab.repository(PLAN + THIRD, workspace="worktree")
    go, ready = lab.root / ".ralph/go", lab.root / ".git/ralph/worktrees/add-login/ready"
    wait = f"touch ready; while test ! -e {go}; do sleep 0.02; done; rm ready"
    lab.play({"story": "1", "steps": [{"tick": "all"}, {"run": wait}, *WORK]}, default=WORK)
    run = lab.start()
    assert wait_until(lambda: ready.exists() or run.poll() is not None)
    lab.write(TASKS, MOVED + "\n## 4. Third\n\n- [ ] 4.1 Make three\n")
    refused, shown = lab.run("skip", "3"), lab.run("show").stdout
    go.touch()
    told = run.communicate(timeout=PATIENCE)
    assert refused.exit_code == 1, refused.stdout
    assert "so '3' is not clear" in refused.stderr
    assert "[ ] 1. New 0/1" in shown, "the task that the agent has ticked had this number before"
    assert run.returncode == 0, told


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ("<<<<<<< HEAD\n" + PLAN + "=======\n" + THIRD + "\n>>>>>>> other\n", "merge conflict markers"),
        (PLAN.replace("Second", "Second (depends on 2)"), f"{TASKS}: "),
    ],
)
def test_a_plan_that_can_not_be_used_is_shown_as_it_was_last(lab: Lab, plan: str, why: str) -> None:
    begin(lab)
    lab.write(TASKS, plan)
    shown = lab.run("show")
    assert shown.exit_code == 0, shown.stderr
    assert "your plan can't be used as it is now, so this is the last valid version: " in shown.stdout
    assert why in shown.stdout
    assert "[ ] 2. Second 0/1" in shown.stdout
    assert lab.run("list").exit_code == 0
    assert lab.run("run", "--dry-run").exit_code != 3
    lab.loop()
    assert f"the last valid version stays in use: {TASKS}" in notices(lab)
