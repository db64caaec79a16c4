"""The end of a change: the branch is kept or squashed into the tree, and what does not fit changes nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from lab import DONE, STORIES, Lab, kill, wait_until

WORK = {"1.txt": "work\n", "2.txt": "work\n"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    lab = Lab(tmp_path_factory.mktemp("made")).repository().play(default=DONE)
    result = lab.loop()
    assert result.exit_code == 0, result.stderr
    return lab


@pytest.fixture
def done(made: Lab, lab: Lab) -> Lab:
    """A change whose two stories are done: the branch has 1.txt and 2.txt, the user's tree has neither."""
    shutil.copytree(made.root, lab.root, symlinks=True, dirs_exist_ok=True)
    lab.play(default=DONE).configure()
    lab.git("update-index", "-q", "--refresh")
    return lab


def everything(lab: Lab) -> dict[str, Any]:
    return {**lab.users_state(), "refs": lab.git("for-each-ref")}


def squash(lab: Lab) -> Any:
    return lab.run("finish", "add-login", "--squash")


def has_the_work(lab: Lab) -> bool:
    return all((lab.root / name).read_text() == text for name, text in WORK.items())


# --- keeping ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [(), ("--keep",), ("add-login", "--keep")])
def test_keeping_says_how_to_merge_and_changes_nothing(done: Lab, flags: tuple[str, ...]) -> None:
    before = everything(done)
    told = done.run("finish", *flags)
    assert told.exit_code == 0
    assert "git merge ralph/add-login" in told.stdout
    assert everything(done) == before
    done.git("merge", "--quiet", "ralph/add-login")
    assert has_the_work(done)


def test_an_unknown_change_and_both_flags_are_refused(done: Lab) -> None:
    before = everything(done)
    assert "no branch" in done.run("finish", "other").stderr
    assert "no branch" in done.run("finish", "other", "--squash").stderr
    assert done.run("finish", "--keep", "--squash").exit_code == 2
    assert everything(done) == before


def test_without_any_branch(lab: Lab) -> None:
    lab.repository()
    told = lab.run("finish")
    assert told.exit_code == 1
    assert "ralphtool run" in told.stderr


def test_without_git(lab: Lab) -> None:
    lab.openspec()
    assert "no git repository" in lab.run("finish").stderr


# --- squashing --------------------------------------------------------------------------------------


def test_squashing_stages_all_of_it_and_ends_the_branch(done: Lab) -> None:
    tip, main = done.git("rev-parse", "ralph/add-login"), done.git("rev-parse", "main")
    told = squash(done)
    assert told.exit_code == 0, told.stderr
    assert has_the_work(done)
    assert done.git("diff", "--name-only") == ""
    assert done.git("write-tree") == done.git("rev-parse", f"{tip}^{{tree}}")
    assert done.git("rev-parse", "main") == main
    refs = done.git("for-each-ref", "--format=%(refname)").splitlines()
    assert "refs/heads/ralph/add-login" not in refs
    assert done.git("rev-parse", "refs/ralph/finished/add-login") == tip


def test_unrelated_work_stays_as_it_is(done: Lab) -> None:
    done.write("README.md", "mine\n")
    done.write("own.txt", "mine\n")
    done.write("staged.txt", "mine\n")
    done.git("add", "staged.txt")
    assert squash(done).exit_code == 0
    assert has_the_work(done)
    status = done.git("status", "--porcelain").splitlines()
    assert {" M README.md", "A  staged.txt", "?? own.txt", "A  1.txt"} <= set(status)


def test_files_that_were_only_touched_are_no_obstacle(done: Lab) -> None:
    os.utime(done.tasks_file, (1, 1))
    told = squash(done)
    assert told.exit_code == 0, told.stderr
    assert has_the_work(done)


def unknown_file(lab: Lab) -> None:
    lab.write("1.txt", "mine\n")


def unknown_file_with_the_same_content(lab: Lab) -> None:
    lab.write("2.txt", "mine\n")
    lab.write("1.txt", "work\n")


def unknown_folder(lab: Lab) -> None:
    lab.write("2.txt/mine", "mine\n")


def empty_folder(lab: Lab) -> None:
    lab.write("1.txt", "mine\n")
    (lab.root / "2.txt").mkdir()


def dangling_link(lab: Lab) -> None:
    (lab.root / "2.txt").symlink_to("nowhere")


def ignored_file(lab: Lab) -> None:
    lab.write(".git/info/exclude", "2.txt\n")
    lab.write("2.txt", "mine\n")


def modified_spec(lab: Lab) -> None:
    lab.write("openspec/changes/add-login/tasks.md", STORIES.replace("Make c", "Make c, and mine"))


def staged_file(lab: Lab) -> None:
    lab.write("2.txt", "mine\n")
    lab.git("add", "2.txt")


def removed_spec(lab: Lab) -> None:
    lab.git("rm", "--quiet", "-r", "openspec")


def assumed_unchanged(lab: Lab) -> None:
    lab.git("update-index", "--assume-unchanged", "openspec/changes/add-login/tasks.md")
    modified_spec(lab)


def newer_commit(lab: Lab) -> None:
    lab.write("2.txt", "mine\n")
    lab.git("add", "2.txt")
    lab.git("commit", "--quiet", "--message=mine")


def on_the_branch(lab: Lab) -> None:
    lab.git("switch", "--quiet", "ralph/add-login")


IN_THE_WAY: list[Callable[[Lab], None]] = [
    unknown_file,
    unknown_file_with_the_same_content,
    unknown_folder,
    empty_folder,
    dangling_link,
    ignored_file,
    modified_spec,
    staged_file,
    removed_spec,
    assumed_unchanged,
    newer_commit,
    on_the_branch,
]


@pytest.mark.parametrize("make", IN_THE_WAY, ids=lambda make: make.__name__)
def test_what_does_not_fit_changes_nothing(done: Lab, make: Callable[[Lab], None]) -> None:
    make(done)
    before = everything(done)
    told = squash(done)
    assert told.exit_code == 1
    assert "Traceback" not in told.stderr
    assert everything(done) == before


def test_a_file_where_the_branch_has_a_folder_changes_nothing(lab: Lab) -> None:
    steps = [{"write": "aa.txt", "text": "w\n"}, {"write": "lib/a.txt", "text": "w\n"}, *DONE]
    lab.repository().play(default=steps)
    assert lab.loop().exit_code == 0
    lab.write("lib", "mine\n")
    before = everything(lab)
    assert squash(lab).exit_code == 1
    assert everything(lab) == before


def test_a_branch_of_the_users_that_moved_on_gets_the_work_on_top(done: Lab) -> None:
    done.write("newer.txt", "newer\n")
    done.git("add", "newer.txt")
    done.git("commit", "--quiet", "--message=newer")
    told = squash(done)
    assert told.exit_code == 0, told.stderr
    assert has_the_work(done)
    assert done.git("diff", "--cached", "--name-only", "--diff-filter=D") == ""
    assert (done.root / "newer.txt").read_text() == "newer\n"


def test_uncommitted_files_of_the_change_are_replaced_by_the_branchs(lab: Lab) -> None:
    lab.repository()
    lab.git("rm", "--quiet", "--cached", "-r", "openspec")
    lab.git("commit", "--quiet", "--message=not yet")
    lab.play(default=DONE)
    assert lab.loop().exit_code == 0
    assert "?? openspec/" in lab.git("status", "--porcelain")
    told = squash(lab)
    assert told.exit_code == 0, told.stderr
    assert "- [x] 2.1" in lab.tasks_file.read_text()
    assert list(lab.root.rglob("*.ralph-aside")) == []


def test_staged_or_edited_files_of_the_change_that_began_the_branch_are_replaced(lab: Lab) -> None:
    """They are in the branch's first commit just as they are here, so nothing of the user's is lost."""
    lab.repository()
    lab.tasks_file.write_text(STORIES + "\n<!-- mine -->\n")
    lab.play(default=DONE)
    assert lab.loop().exit_code == 0
    told = squash(lab)
    assert told.exit_code == 0, told.stderr
    assert "- [x] 2.1" in lab.tasks_file.read_text()
    assert "mine" in lab.tasks_file.read_text()


def test_a_repository_without_a_commit(lab: Lab) -> None:
    lab.git("init", "--quiet", "--initial-branch=main")
    lab.openspec(STORIES).configure()  # type: ignore[attr-defined]
    lab.write("own.txt", "mine\n")
    lab.play(default=DONE)
    assert lab.loop().exit_code == 0
    told = squash(lab)
    assert told.exit_code == 0, told.stderr
    assert has_the_work(lab)
    assert (lab.root / "own.txt").read_text() == "mine\n"
    assert (lab.root / ".git/HEAD").read_text() == "ref: refs/heads/main\n"


def test_a_history_that_the_user_tracks_is_no_obstacle(lab: Lab) -> None:
    lab.repository().play(default=DONE)
    assert lab.loop("--max-iterations", "1").exit_code == 1
    assert squash(lab).exit_code == 0
    lab.git("add", "--force", ".ralph/config.toml", ".ralph/progress.json")
    lab.git("commit", "--quiet", "--message=tracked")
    assert lab.loop().exit_code == 0
    entries = lab.endings()
    told = squash(lab)
    assert told.exit_code == 0, told.stderr
    assert has_the_work(lab)
    assert lab.endings() == entries


@pytest.mark.parametrize("value", ["true", "input"])
def test_line_ends_are_no_obstacle(lab: Lab, value: str) -> None:
    lab.repository()
    lab.git("config", "core.autocrlf", value)
    lab.git("rm", "--quiet", "--cached", "-r", ".")
    lab.git("reset", "--quiet", "--hard")
    lab.play(default=[{"run": "echo more >> README.md"}, *DONE])
    assert lab.loop().exit_code == 0
    told = squash(lab)
    assert told.exit_code == 0, told.stderr
    assert "more" in (lab.root / "README.md").read_text()
    assert lab.git("diff", "--name-only") == ""


def test_files_that_are_more_than_text(lab: Lab) -> None:
    commands = [
        "printf '\\000\\001' > bytes.bin; chmod 755 bytes.bin; ln -s README.md link; : > empty; mkdir -p a/b",
        "printf x > 'a/b/with \"quotes\" and space'; git mv README.md READ.md",
    ]
    lab.repository().play(default=[*({"run": command} for command in commands), *DONE])
    assert lab.loop("--max-iterations", "1").exit_code == 1
    tip = lab.git("rev-parse", "ralph/add-login^{tree}")
    assert squash(lab).exit_code == 0
    assert lab.git("write-tree") == tip
    assert os.access(lab.root / "bytes.bin", os.X_OK)
    assert (lab.root / "link").is_symlink()


# --- runs that are not over -------------------------------------------------------------------------


def under_way(lab: Lab) -> subprocess.Popen[bytes]:
    """A run whose first story is done, and whose second one hangs."""
    lab.repository().play(
        {"story": "2", "steps": [{"write": "half.txt", "text": "half\n"}, {"hang": True}]}, default=DONE
    )
    lab.write("own.txt", "mine\n")
    run = lab.start()
    assert wait_until(lambda: (lab.root / "half.txt").exists())
    return run


@pytest.mark.parametrize("flag", ["--squash", "--keep"])
def test_a_change_that_a_run_holds_is_refused(lab: Lab, flag: str) -> None:
    run = under_way(lab)
    try:
        before = lab.git("for-each-ref")
        told = lab.run("finish", "add-login", flag)
        assert told.exit_code == 1
        assert "add-login is held by" in told.stderr
        assert lab.git("for-each-ref") == before
        assert not (lab.root / "own.txt").exists()
    finally:
        kill(run)


def test_after_a_run_that_was_killed_the_tree_is_the_users_first(lab: Lab) -> None:
    run = under_way(lab)
    kill(run)
    told = squash(lab)
    assert told.exit_code == 0, told.stderr
    assert (lab.root / "own.txt").read_text() == "mine\n"
    assert (lab.root / "1.txt").read_text() == "work\n"
    assert not (lab.root / "half.txt").exists()
    assert (lab.root / ".git/HEAD").read_text() == "ref: refs/heads/main\n"


# --- afterwards -------------------------------------------------------------------------------------


def test_a_run_afterwards_finds_everything_done(done: Lab) -> None:
    assert squash(done).exit_code == 0
    done.git("commit", "--quiet", "--message=all of it")
    entries = done.endings()
    assert done.loop().exit_code == 0
    assert done.endings() == entries
    assert done.git("status", "--porcelain", "--", ":!.ralph") == ""


def test_a_run_afterwards_goes_on_with_the_rest(lab: Lab) -> None:
    lab.repository().play(default=DONE)
    assert lab.loop("--max-iterations", "1").exit_code == 1
    assert squash(lab).exit_code == 0
    lab.git("commit", "--quiet", "--message=the first story")
    assert lab.loop().exit_code == 0
    assert lab.endings() == [("add-login-1-1", "completed"), ("add-login-2-1", "completed")]
    assert lab.checkpoints() == ["2"]


def test_a_run_afterwards_keeps_what_is_staged_and_not_committed(done: Lab) -> None:
    assert squash(done).exit_code == 0
    before = done.users_state()
    assert done.loop().exit_code == 0
    assert done.users_state() == before


def test_finishing_twice(done: Lab) -> None:
    assert squash(done).exit_code == 0
    before = everything(done)
    assert "no branch" in squash(done).stderr
    assert everything(done) == before


def test_squashing_works_with_a_working_tree_of_its_own(lab: Lab) -> None:
    lab.repository(workspace="worktree").play(default=DONE)
    assert lab.loop().exit_code == 0
    assert squash(lab).exit_code == 0
    assert has_the_work(lab)
    lab.git("commit", "--quiet", "--message=all of it")
    assert lab.loop().exit_code == 0


def test_from_a_folder_below_the_project(done: Lab) -> None:
    folder = done.root / "below"
    folder.mkdir()
    assert done.run("finish", "--squash", "add-login", cwd=folder).exit_code == 0
    assert has_the_work(done)
