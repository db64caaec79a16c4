"""The end of a change: the branch is kept or squashed into the tree; if it does not fit, nothing changes."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faults import CHANGING, Call, calls_in, injected, list_names, need_strace
from lab import DONE, STORIES, Lab, Process, kill, wait_until
from patience import PATIENCE
from project import COMMAND
from sandbox.boxes import needs_box

MOMENTS = 100 if os.environ.get("RALPH_STORM") else 6
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
    return lab.copy(made)


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
    assert "ralphtool finish add-login --merge" in told.stdout
    assert everything(done) == before
    done.git("merge", "--quiet", "ralph/add-login")
    assert has_the_work(done)


def test_a_branch_that_the_user_has_merged_needs_no_other_merge(done: Lab) -> None:
    done.git("merge", "--quiet", "--no-edit", "ralph/add-login")
    head = done.git("rev-parse", "HEAD")
    told = done.run("finish", "add-login", "--merge")
    assert told.exit_code == 0
    assert "main already has all the work of ralph/add-login" in told.stdout
    assert done.git("rev-parse", "HEAD") == head
    assert "refs/heads/ralph/add-login" not in done.git("for-each-ref")


def test_an_unknown_change_and_both_flags_are_refused(done: Lab) -> None:
    before = everything(done)
    assert "there is no change other" in done.run("finish", "other").stderr
    assert "there is no change other" in done.run("finish", "other", "--squash").stderr
    assert done.run("finish", "--keep", "--squash").exit_code == 2
    assert everything(done) == before


def test_without_any_branch(lab: Lab) -> None:
    lab.repository()
    told = lab.run("finish")
    assert told.exit_code == 1
    assert "ralphtool run" in told.stderr


def test_without_git(lab: Lab) -> None:
    lab.openspec()
    assert "not in a git repository" in lab.run("finish").stderr


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


def test_a_report_of_a_finished_change_names_no_branch_that_is_gone(done: Lab) -> None:
    assert "`ralphtool finish add-login --squash`" in done.run("report").stdout
    assert squash(done).exit_code == 0
    told = done.run("report").stdout
    assert "ralphtool finish" not in told
    assert "`git log -p refs/ralph/finished/add-login`" in told
    assert done.git("log", "-p", "refs/ralph/finished/add-login")
    for flags in ((), ("--pr",), ("--merge",)):
        assert "add-login is already finished" in done.run("finish", "add-login", *flags).stderr


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


def staged_file(lab: Lab) -> None:
    lab.write("2.txt", "mine\n")
    lab.git("add", "2.txt")


def removed_spec(lab: Lab) -> None:
    lab.git("rm", "--quiet", "-r", "openspec")


def newer_commit(lab: Lab) -> None:
    lab.write("2.txt", "mine\n")
    lab.git("add", "2.txt")
    lab.git("commit", "--quiet", "--message=mine")


def on_the_branch(lab: Lab) -> None:
    lab.git("switch", "--quiet", "ralph/add-login")


def rebase_under_way(lab: Lab) -> None:
    lab.git("switch", "--quiet", "--create", "other")
    lab.write("README.md", "theirs\n")
    lab.git("commit", "--quiet", "--all", "--message=theirs")
    lab.git("switch", "--quiet", "main")
    lab.write("README.md", "mine\n")
    lab.git("commit", "--quiet", "--all", "--message=mine")
    lab.git("rebase", "other", check=False)


IN_THE_WAY: list[Callable[[Lab], None]] = [
    unknown_file,
    unknown_file_with_the_same_content,
    unknown_folder,
    empty_folder,
    dangling_link,
    ignored_file,
    staged_file,
    removed_spec,
    newer_commit,
    on_the_branch,
    rebase_under_way,
]


@pytest.mark.parametrize("make", IN_THE_WAY, ids=lambda make: make.__name__)
def test_what_does_not_fit_changes_nothing(done: Lab, make: Callable[[Lab], None]) -> None:
    make(done)
    before = everything(done)
    told = squash(done)
    assert told.exit_code == 1
    assert "Traceback" not in told.stderr
    assert everything(done) == before


@pytest.mark.parametrize("flag", ["--squash", "--merge"])
def test_files_links_and_folders_may_take_each_others_place(lab: Lab, flag: str) -> None:
    lab.write("folder/deep/a.txt", "a\n")
    lab.write("file", "f\n")
    (lab.root / "link").symlink_to("folder")
    (lab.root / "other").symlink_to("file")
    swap = "rm -r folder file link other; mkdir file link; echo b > file/b; echo c > link/c; echo f > folder"
    lab.repository().play(default=[{"run": f"{swap}; ln -s x other", "must": True}, *DONE])
    lab.run("run", "--max-iterations", "1")
    assert lab.run("finish", "add-login", flag).exit_code == 0
    assert [(lab.root / path).read_text() for path in ("file/b", "link/c", "folder")] == ["b\n", "c\n", "f\n"]
    assert (lab.root / "other").readlink() == Path("x")


def test_a_file_where_the_branch_has_a_folder_changes_nothing(lab: Lab) -> None:
    steps = [{"write": "aa.txt", "text": "w\n"}, {"write": "lib/a.txt", "text": "w\n"}, *DONE]
    lab.repository().play(default=steps)
    assert lab.loop().exit_code == 0
    lab.write("lib", "mine\n")
    before = everything(lab)
    assert squash(lab).exit_code == 1
    assert everything(lab) == before


def test_the_files_that_conflict_are_named_in_one_line(lab: Lab) -> None:
    """Of five: staged, edited, untracked, and one each that is edited elsewhere or not changed by the branch."""
    lab.repository()
    text = "".join(f"{number}\n" for number in range(20))
    for name in ("a.txt", "b.txt", "fits.txt", "own.txt"):
        lab.write(name, text)
    lab.git("add", "--all", "--", ":!.ralph")
    lab.git("commit", "--quiet", "--message=files")
    steps: list[dict[str, Any]] = [
        {"write": f"{name}.txt", "text": f"work\n{text}"} for name in ("a", "b", "c", "fits")
    ]
    lab.play(default=[*steps, *DONE])
    assert lab.loop().exit_code == 0
    for name in ("a.txt", "b.txt", "c.txt", "own.txt"):
        lab.write(name, f"mine\n{text}")
    lab.write("fits.txt", f"{text}mine\n")
    lab.git("add", "a.txt", "fits.txt")
    before = everything(lab)
    told = squash(lab).stderr
    assert told == (
        "Error: your uncommitted changes in a.txt, b.txt, c.txt conflict with ralph/add-login: commit or stash them, "
        "and try again. Nothing was changed\n"
    )
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
    """The branch's first commit has them exactly as they are here, so the user loses nothing."""
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


@pytest.mark.parametrize("workspace", ["worktree", pytest.param("box", marks=needs_box), "here"])
def test_committed_files_of_ours_stay_as_they_are(lab: Lab, workspace: str) -> None:
    """On the branch and in the user's tree, also for the second change, when the history has grown."""
    lab.repository(workspace=workspace)
    lab.openspec(STORIES.replace("First", "Another"), "second")
    lab.git("add", "--force", "openspec", ".ralph/config.toml")
    lab.git("commit", "--quiet", "--message=tracked")
    for change in ("add-login", "second"):
        began = lab.git("ls-tree", "-r", "main", "--", ".ralph")
        lab.play(default=[{"run": f"echo {{story}} >> {change}.txt"}, *DONE[1:]])
        assert lab.loop(change).exit_code == 0
        assert lab.git("ls-tree", "-r", f"ralph/{change}", "--", ".ralph") == began
        told = lab.run("finish", change, "--squash")
        assert told.exit_code == 0, told.stderr
        assert ".ralph" not in lab.git("diff", "--cached", "--name-only")
        lab.git("add", "--force", ".ralph/progress.json")
        lab.git("commit", "--quiet", "--all", "--message=finished")
    assert (lab.root / ".ralph/config.toml").exists()


def test_a_branch_that_lost_our_files_is_no_obstacle(done: Lab) -> None:
    """Earlier versions created such branches."""
    done.git("add", "--force", ".ralph/config.toml", ".ralph/progress.json")
    done.git("commit", "--quiet", "--message=tracked")
    done.git("checkout", "--quiet", "-b", "moved", "main")
    done.git("update-ref", "refs/ralph/base/add-login", "main")
    tree = done.git("rev-parse", "ralph/add-login^{tree}")
    commit = done.git("commit-tree", tree, "-p", "main", "-m", "work without our files")
    done.git("update-ref", "refs/heads/ralph/add-login", commit)
    done.write(".ralph/progress.json", done.read(".ralph/progress.json") + "\n")
    told = squash(done)
    assert told.exit_code == 0, told.stderr
    assert ".ralph" not in done.git("diff", "--cached", "--name-only")
    assert has_the_work(done)
    assert (done.root / ".ralph/config.toml").exists()


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


def test_an_edited_plan_with_line_ends_that_git_converts_is_no_obstacle(lab: Lab) -> None:
    lab.repository(workspace="worktree").play(default=DONE)
    lab.git("config", "core.autocrlf", "true")
    assert lab.loop().exit_code == 0
    plan = lab.root / "openspec/changes/add-login/tasks.md"
    plan.write_bytes((STORIES + "\n## 3. Third\n\n- [ ] 3.1 Make d\n").replace("\n", "\r\n").encode())
    told = lab.run("finish", "add-login", "--merge")
    assert told.exit_code == 0, told.stderr
    assert has_the_work(lab)
    assert b"- [x] 2.1 Make c\r\n\r\n## 3. Third\r\n\r\n- [ ] 3.1 Make d\r\n" in plan.read_bytes()


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


# --- runs that have not ended -----------------------------------------------------------------------


def under_way(lab: Lab) -> Process:
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
        assert "add-login is locked by" in told.stderr
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


def test_a_change_that_a_run_in_another_worktree_holds_is_refused(done: Lab) -> None:
    lock = done.write(".git/ralph/changes/add-login.lock", "the run r1 in /elsewhere")
    before = everything(done)
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        told = squash(done)
    assert told.exit_code == 1
    assert "add-login is locked by the run r1 in /elsewhere" in told.stderr
    assert everything(done) == before


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
    assert "is already finished" in squash(done).stderr
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


@pytest.mark.parametrize(
    ("first", "second", "name"), [("web", ".", "web"), (".", "web", "at the top of the repository")]
)
def test_a_branch_of_another_project_of_the_repository_is_left_alone(
    lab: Lab, first: str, second: str, name: str
) -> None:
    """The projects `web` and `.` have a change of the same name."""
    lab.repository(workspace="worktree").play(default=DONE)
    for path in (".ralph/config.toml", "openspec/changes/add-login/tasks.md"):
        lab.write(f"web/{path}", lab.read(path))
    lab.loop("add-login", "--max-iterations", "1", cwd=lab.root / first)
    before = lab.git("for-each-ref")
    for command in (["run", "add-login"], ["finish", "add-login", "--squash"]):
        told = lab.run(*command, cwd=lab.root / second)
        assert told.exit_code == 1
        assert f"belongs to the change add-login of the project {name}" in told.stderr
    assert lab.git("for-each-ref") == before


def test_projects_of_a_repository_show_only_their_own_attempts(lab: Lab) -> None:
    """The projects `web`, `api` and `.` have a change of the same name; its attempts have the same refs."""
    failed = {"story": "1", "steps": [{"write": "mine.txt", "text": "mine\n"}]}
    lab.repository(workspace="worktree").play(failed)
    for name in (".ralph/config.toml", "openspec/changes/add-login/tasks.md"):
        for project in ("api", "web"):
            lab.write(f"{project}/{name}", lab.read(name))
    lab.git("add", "web/openspec", "api/openspec")
    lab.git("commit", "--quiet", "--message=more projects")
    lab.loop("add-login", "--max-iterations", "1")
    mine = lab.git("rev-parse", "refs/ralph/attempts/add-login-1-1")
    lab.play({"story": "1", "steps": [{"write": "theirs.txt", "text": "theirs\n"}]})
    lab.loop("add-login", "--max-iterations", "1", cwd=lab.root / "web")
    assert lab.git("rev-parse", "refs/ralph/attempts/add-login-1-1") != mine
    show = ("diff", "add-login-1-1", "--stat")
    assert "mine.txt" in lab.run(*show).stdout
    assert mine[:10] in lab.run("attempts").stdout
    assert "theirs.txt" in lab.run(*show, cwd=lab.root / "web").stdout
    lab.git("prune", "--expire=now")
    for told in (lab.run(*show), lab.run(*show, cwd=lab.root / "api"), lab.run("accept", "add-login-1-1")):
        assert told.exit_code == 1
        assert "add-login-1-1 is an attempt of the project web" in told.stderr
    assert "theirs" not in lab.run("report", "--format", "html").stdout


# --- the working trees ------------------------------------------------------------------------------

BOTH = ["worktree", pytest.param("box", marks=needs_box)]
HALF = {"story": "2", "steps": [{"write": "half.txt", "text": "half\n"}, {"hang": True}]}


def list_working_trees(lab: Lab) -> list[str]:
    ours = lab.root / ".git/ralph"
    return sorted(path.name for name in ("worktrees", "boxes") for path in ours.glob(f"{name}/*"))


def list_interrupted(lab: Lab) -> list[str]:
    return lab.git("for-each-ref", "--format=%(refname)", "refs/ralph/interrupted").splitlines()


def killed_in_story_2(lab: Lab, workspace: str) -> Lab:
    lab.repository(workspace=workspace).play(HALF, default=DONE)
    run = lab.start()
    place = lab.root / ".git/ralph/worktrees/add-login"
    assert wait_until(lambda: (place / "half.txt").exists())
    kill(run)
    return lab


@pytest.mark.parametrize("way", ["--squash", "--merge"])
@pytest.mark.parametrize("workspace", BOTH)
def test_a_finished_change_leaves_no_working_tree(lab: Lab, workspace: str, way: str) -> None:
    lab.repository(workspace=workspace).play(default=DONE)
    assert lab.loop().exit_code == 0
    assert "add-login" in list_working_trees(lab)
    told = lab.run("finish", "add-login", way)
    assert (told.exit_code, told.stderr) == (0, "")
    assert list_working_trees(lab) == []
    assert len(lab.git("worktree", "list").splitlines()) == 1
    assert "interrupted" not in told.stdout
    assert list_interrupted(lab) == []
    assert has_the_work(lab)


def test_the_worktree_in_which_gates_were_only_tried_holds_no_work(lab: Lab) -> None:
    """The run went on in the user's own folder, so the branch has moved on since."""
    lab.repository(workspace="auto", tests=["test -d .git"]).play(default=DONE)
    lab.loop()
    assert lab.git("-C", ".git/ralph/worktrees/add-login", "rev-parse", "HEAD") == lab.git("rev-parse", "HEAD")
    told = squash(lab)
    assert has_the_work(lab)
    assert (list_interrupted(lab), "not committed" in told.stdout) == ([], False)


@pytest.mark.parametrize("workspace", BOTH)
def test_the_work_of_a_killed_run_is_kept_before_its_working_tree_is_removed(lab: Lab, workspace: str) -> None:
    killed_in_story_2(lab, workspace)
    told = squash(lab)
    assert told.exit_code == 0, told.stderr
    [kept] = list_interrupted(lab)
    assert f"kept as {kept}" in told.stdout
    assert lab.git("show", f"{kept}:half.txt") == "half"
    assert lab.git("diff", "--name-status", f"{kept}^", kept) == "A\thalf.txt"
    assert list_working_trees(lab) == []
    assert not (lab.root / "half.txt").exists()


def test_an_attempt_that_was_judged_is_not_unfinished_work(lab: Lab) -> None:
    """A run may be killed after it has kept an attempt, and before it has cleaned up."""
    killed_in_story_2(lab, "worktree")
    place = lab.root / ".git/ralph/worktrees/add-login"
    lab.git("-C", str(place), "add", "half.txt")
    tree = lab.git("-C", str(place), "write-tree")
    lab.git("update-ref", "refs/ralph/attempts/add-login-2-1", lab.git("commit-tree", tree, "-m", "an attempt"))
    assert squash(lab).exit_code == 0
    assert list_interrupted(lab) == []
    assert list_working_trees(lab) == []


@pytest.mark.parametrize("workspace", BOTH)
def test_a_refused_finish_leaves_the_working_tree_as_it_is(lab: Lab, workspace: str) -> None:
    killed_in_story_2(lab, workspace)
    lab.write("1.txt", "mine\n")
    before = lab.git("for-each-ref")
    assert squash(lab).exit_code == 1
    place = lab.root / ".git/ralph/worktrees/add-login"
    assert (place / "half.txt").read_text() == "half\n"
    assert (lab.root / ".git/worktrees/add-login/ralph-is-set-up").exists()
    assert lab.git("for-each-ref") == before


@needs_box
def test_the_boxes_of_stories_side_by_side_are_removed_too(lab: Lab) -> None:
    both: list[dict[str, Any]] = [{"run": "echo half > half-{story}.txt"}, {"hang": True}]
    lab.repository(workspace="box", side_by_side=2, tests=["true"]).play(default=both)
    run = lab.start()
    assert wait_until(lambda: len(list(lab.root.glob(".git/ralph/worktrees/*/half-*.txt"))) == 2)
    kill(run)
    assert any("@" in name for name in list_working_trees(lab))
    told = squash(lab)
    assert told.exit_code == 0, told.stderr
    kept = list_interrupted(lab)
    assert sorted(lab.git("diff", "--name-only", f"{ref}^", ref) for ref in kept) == ["half-1.txt", "half-2.txt"]
    assert all(ref in told.stdout for ref in kept)
    assert list_working_trees(lab) == []


def finish_traced(lab: Lab, *options: str) -> int:
    command = ["strace", "-qq", "-y", "-s", "200", *options, COMMAND, "finish", "add-login", "--merge"]
    done = subprocess.run(
        command, cwd=lab.root, env=lab.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False
    )
    return done.returncode


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> list[Call]:
    """What `finish` itself changes; git's own steps are git's concern."""
    need_strace()
    top = tmp_path_factory.mktemp("steps")
    log = top / "calls.log"
    whole = killed_in_story_2(Lab(top), "worktree")
    assert finish_traced(whole, "-o", str(log), "-e", f"trace={list_names(CHANGING)}") == 0
    log.write_text("\n".join(f"1 {line}" for line in log.read_text(errors="replace").splitlines()))
    return [call for call in calls_in(log) if str(whole.root) in call.text]


@pytest.mark.parametrize("number", range(MOMENTS))
def test_a_finish_that_is_killed_is_completed_by_the_next(lab: Lab, steps: list[Call], number: int) -> None:
    assert len(steps) > 20
    call = steps[(number + 1) * len(steps) // MOMENTS - 1]
    killed_in_story_2(lab, "worktree")
    assert finish_traced(lab, "-o", os.devnull, *injected(call.name, call.number, "signal=KILL")) != 0, str(call)
    told = lab.run("finish", "add-login", "--merge")
    assert told.exit_code == 0 or "is already finished" in told.stderr, (str(call), told.stderr)
    assert (lab.root / "1.txt").read_text() == "work\n", str(call)
    kept = list_interrupted(lab)
    assert [lab.git("show", f"{ref}:half.txt") for ref in kept] == ["half"], str(call)
    assert list_working_trees(lab) == [], str(call)
    assert lab.git("status", "--porcelain", "--", ":!.ralph") == "", str(call)


def test_a_working_tree_that_can_not_be_read_stays_and_is_named(lab: Lab) -> None:
    lab.repository(workspace="worktree").play(default=DONE)
    assert lab.loop().exit_code == 0
    place = lab.root / ".git/ralph/worktrees/add-login"
    (place / "mine.txt").write_text("mine\n")
    (place / ".git").unlink()
    told = squash(lab)
    assert told.exit_code == 0
    assert f"rm -rf {place}" in told.stderr
    assert (place / "mine.txt").exists()
    assert has_the_work(lab)


def test_a_working_tree_that_can_not_be_removed_is_a_notice(lab: Lab) -> None:
    lab.repository(workspace="worktree").play(default=DONE)
    assert lab.loop().exit_code == 0
    lab.write(".git/ralph/worktrees/_removed-add-login", "a file is in the way\n")
    (lab.root / ".git/ralph/worktrees/_removed-add-login").unlink()
    (lab.root / ".git/ralph/worktrees/_removed-add-login").symlink_to("nowhere")
    told = squash(lab)
    assert told.exit_code == 0, told.stderr
    assert "can't be removed: rm -rf" in told.stderr
    assert has_the_work(lab)
    assert "is already finished" in squash(lab).stderr


# --- an edited plan ---------------------------------------------------------------------------------

EDITED = STORIES.replace("Make c", "Make c, and mine")
SWAPPED = "## 1. Second\n\n- [ ] 1.1 Make c\n\n## 2. First\n\n- [ ] 2.1 Make a\n- [ ] 2.2 Make b\n"


@pytest.mark.parametrize("how", ["--squash", "--merge"])
@pytest.mark.parametrize("state", ["edited", "staged", "committed", "hidden"])
def test_an_edited_plan_is_no_obstacle_and_stays_edited(done: Lab, state: str, how: str) -> None:
    if state == "hidden":
        done.git("update-index", "--assume-unchanged", "openspec/changes/add-login/tasks.md")
    done.tasks_file.write_text(EDITED)
    if state in ("staged", "committed"):
        done.git("add", "openspec")
    if state == "committed":
        done.git("commit", "--quiet", "--message=edited")
    told = done.run("finish", "add-login", how)
    assert told.exit_code == 0, told.stderr
    assert has_the_work(done)
    assert done.tasks_file.read_text() == EDITED.replace("[ ]", "[x]")


def test_a_plan_that_can_not_be_read_is_no_obstacle_either(done: Lab) -> None:
    done.tasks_file.write_bytes(b"caf\xe9\n")
    told = squash(done)
    assert told.exit_code == 0, told.stderr
    assert done.tasks_file.read_bytes() == b"caf\xe9\n"


def test_the_merge_that_is_suggested_works_beside_a_plan_that_is_not_committed(lab: Lab) -> None:
    lab.repository()
    lab.git("rm", "--quiet", "--cached", "-r", "openspec")
    lab.git("commit", "--quiet", "--message=not yet")
    lab.play(default=DONE)
    assert lab.loop().exit_code == 0
    lab.write("1.txt", "mine\n")
    lab.git("add", "1.txt")
    lab.git("commit", "--quiet", "--message=mine")
    told = lab.run("finish", "add-login", "--merge")
    assert told.exit_code == 1
    command = told.stderr.partition("by hand (`")[2].partition("`")[0]
    assert "git merge ralph/add-login" in command
    merged = subprocess.run(command, shell=True, cwd=lab.root, capture_output=True, text=True, check=False)
    assert "CONFLICT (add/add): Merge conflict in 1.txt" in merged.stdout, merged.stderr
    lab.git("checkout", "--quiet", "--theirs", "1.txt")
    lab.git("commit", "--quiet", "--all", "--message=merged")
    assert lab.run("finish", "add-login", "--merge").exit_code == 0
    assert "- [x] 2.1" in lab.tasks_file.read_text()
    assert lab.git("status", "--porcelain", "--", "openspec", "1.txt") == ""


def test_a_finish_that_is_refused_leaves_every_story_its_own_proof(done: Lab) -> None:
    proofs = {one["title"]: one["proof"]["commit"] for one in done.run("show", "--json").json["stories"]}
    done.tasks_file.write_text(SWAPPED)
    done.write("1.txt", "mine\n")
    done.git("add", "1.txt")
    done.git("commit", "--quiet", "--message=mine")
    assert "changed the same lines" in done.run("finish", "add-login", "--merge").stderr
    shown = done.run("show", "--json").json["stories"]
    assert {one["title"]: one["proof"]["commit"] for one in shown} == proofs
    assert [one["title"] for one in shown] != list(proofs), "the order is another one"


# --- merging, and pull requests ---------------------------------------------------------------------


def test_merging_keeps_every_story_as_a_commit_and_other_work_as_it_is(done: Lab) -> None:
    done.write("mine.txt", "mine\n")
    done.write("staged.txt", "staged\n")
    done.git("add", "staged.txt")
    told = done.run("finish", "--merge")
    assert told.exit_code == 0, told.stderr
    assert has_the_work(done)
    assert done.git("status", "--porcelain").split("\n") == ["A  staged.txt", "?? .ralph/", "?? mine.txt"]
    assert done.git("log", "--first-parent", "--format=%s", "-1") == "Merge ralph/add-login"
    assert "(add-login 1)" in done.git("log", "--format=%s")
    assert done.git("for-each-ref", "refs/heads/ralph") == ""


def test_merging_without_a_branch_is_refused(done: Lab) -> None:
    done.git("switch", "--quiet", "--detach")
    before = everything(done)
    told = done.run("finish", "--merge")
    assert told.exit_code == 2
    assert "git switch" in told.stderr
    assert everything(done) == before


def test_the_refs_of_an_earlier_change_of_the_same_name_stay(done: Lab) -> None:
    assert squash(done).exit_code == 0
    first = done.git("rev-parse", "refs/ralph/finished/add-login")
    done.git("commit", "--quiet", "--message=all")
    for number in (1, 2):
        done.tasks_file.write_text(f"## {number}. Again\n\n- [ ] {number}.1 Make it\n")
        done.play(default=[{"run": f"echo {number} > again-{number}.txt"}, *DONE])
        assert done.loop().exit_code == 0, done.events()[-1]
        assert squash(done).exit_code == 0
        done.git("commit", "--quiet", "--message=again")
    kept = done.git("for-each-ref", "--format=%(objectname)", "refs/ralph/finished-before").split()
    assert first in kept
    assert len(kept) == 2


GH = """#!/bin/sh
echo "$@" >> {log}
case "$1 $2" in
  "auth status") exit {auth} ;;
  "pr create") {create} ;;
  "pr view") echo '{{"url": "https://example.org/pull/7", "state": "OPEN"}}' ;;
esac
"""
CREATED = 'echo; echo https://example.org/pull/8; cp "${{10}}" {body}'


def put_gh(lab: Lab, create: str = CREATED, auth: int = 0) -> None:
    """A program that answers like `gh`, and a remote to push to."""
    folder = lab.root.parent / "programs"
    folder.mkdir()
    told = create.format(body=folder / "body.md")
    (folder / "gh").write_text(GH.format(log=folder / "log", auth=auth, create=told))
    (folder / "gh").chmod(0o755)
    lab.env["PATH"] = f"{folder}{os.pathsep}{lab.env['PATH']}"
    lab.git("init", "--quiet", "--bare", str(lab.root.parent / "remote.git"))
    lab.git("remote", "add", "origin", str(lab.root.parent / "remote.git"))


def pushed(lab: Lab) -> str:
    return lab.git("ls-remote", "origin")


def test_a_pull_request_has_the_branch_and_the_report(done: Lab) -> None:
    put_gh(done)
    before = done.users_state()
    told = done.run("finish", "--pr")
    assert told.exit_code == 0, told.stderr
    assert "https://example.org/pull/8" in told.stdout
    assert pushed(done).endswith("refs/heads/ralph/add-login")
    body = (done.root.parent / "programs/body.md").read_text()
    assert body.startswith("# add-login")
    assert "--head ralph/add-login --base main" in (done.root.parent / "programs/log").read_text()
    assert done.users_state() == before
    assert done.git("rev-parse", "ralph/add-login")


@pytest.mark.parametrize("how", ["--no-ff", "--squash"])
def test_after_a_pull_request_was_merged_the_suggested_command_ends_the_change(done: Lab, how: str) -> None:
    put_gh(done)
    told = done.run("finish", "--pr")
    assert "`git pull`, then `ralphtool finish add-login --squash`" in told.stdout
    done.git("merge", "--quiet", how, "ralph/add-login")
    done.git("commit", "--quiet", "--allow-empty", "--message=merged")
    before = done.git("rev-parse", "HEAD")
    told = done.run("finish", "add-login", "--squash")
    assert (told.exit_code, told.stderr) == (0, "")
    assert "Your branch already has all the work of ralph/add-login." in told.stdout
    assert (done.git("rev-parse", "HEAD"), done.git("diff", "--cached", "--name-only")) == (before, "")
    assert done.git("branch", "--list", "ralph/*") == ""


def test_a_second_time_the_open_one_is_brought_up_to_date(done: Lab) -> None:
    put_gh(done, create="echo 'already exists' >&2; exit 1")
    told = done.run("finish", "--pr")
    assert (told.exit_code, "pull/7" in told.stdout) == (0, True), told.stderr


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda lab: lab.git("init", "--quiet"), "git remote add"),
        (lambda lab: put_gh(lab, auth=1), "gh auth login"),
        (lambda lab: put_gh(lab) or lab.git("remote", "set-url", "origin", "/nowhere"), "could not push"),  # type: ignore[func-returns-value]
        (lambda lab: put_gh(lab) or lab.git("switch", "--quiet", "--detach"), "git switch"),  # type: ignore[func-returns-value]
    ],
    ids=["no remote", "not logged in", "no push", "no branch"],
)
def test_a_request_that_can_not_be_made_says_why_and_changes_nothing(
    done: Lab, prepare: Callable[[Lab], object], words: str
) -> None:
    prepare(done)
    before = everything(done)
    told = done.run("finish", "--pr")
    assert told.exit_code == 1
    assert words in told.stderr
    assert everything(done) == before
    assert pushed(done) == "" if "origin" in done.git("remote") and words != "could not push" else True


def test_without_gh_the_command_that_helps_is_said(done: Lab, tmp_path: Any) -> None:
    put_gh(done)
    (done.root.parent / "programs/gh").unlink()
    programs = tmp_path / "few"
    programs.mkdir()
    for name in ("git", "sh", "env"):
        (programs / name).symlink_to(shutil.which(name) or "")
    told = done.run("finish", "--pr", PATH=str(programs))
    assert told.exit_code == 1
    assert "git push -u origin ralph/add-login" in told.stderr
    assert pushed(done) == ""


def test_gh_that_fails_says_what_is_done_and_what_is_not(done: Lab) -> None:
    put_gh(done, create="echo 'GraphQL: no' >&2; exit 1")
    gh = done.root.parent / "programs/gh"
    gh.write_text(gh.read_text().replace("OPEN", "CLOSED"))
    told = done.run("finish", "--pr")
    assert told.exit_code == 1
    assert "is pushed to origin, but gh did not open a pull request: GraphQL: no" in told.stderr


def test_what_is_still_open_is_said(lab: Lab) -> None:
    lab.repository().play(default=DONE)
    lab.loop("--max-iterations", "1")
    told = squash(lab)
    assert told.exit_code == 0, told.stderr
    assert "Story 2 is still open: commit, then `ralphtool run add-login` continues there." in told.stdout
    assert "openspec archive" not in told.stdout, "its change goes on"


def test_finishing_twice_says_that_it_is_finished(done: Lab) -> None:
    told = squash(done).stdout
    assert "still open" not in told
    assert "To archive it in OpenSpec: `openspec archive add-login`" in told
    before = everything(done)
    told = squash(done)
    assert (told.exit_code, "add-login is already finished" in told.stderr) == (1, True)
    assert everything(done) == before


@pytest.mark.parametrize("way", ["--merge", "--squash"])
def test_a_branch_that_is_checked_out_in_another_worktree_is_not_deleted(done: Lab, tmp_path: Path, way: str) -> None:
    place = tmp_path / "their place"
    done.git("worktree", "add", "--quiet", str(place), "ralph/add-login")
    before = everything(done)
    told = done.run("finish", "add-login", way)
    assert told.exit_code == 1
    assert f"is checked out in {place}" in told.stderr.replace("\n", " ")
    assert everything(done) == before
    done.git("-C", str(place), "switch", "--quiet", "--detach")
    assert done.run("finish", "add-login", way).exit_code == 0
    assert has_the_work(done)


def test_a_plan_that_was_archived_on_the_branch_is_no_obstacle(done: Lab, tmp_path: Path) -> None:
    done.write("other.txt", "main has gone on\n")
    done.git("add", "other.txt")
    done.git("commit", "--quiet", "--message=another")
    place, plan = tmp_path / "theirs", "openspec/changes"
    done.git("worktree", "add", "--quiet", "--force", str(place), "ralph/add-login")
    (place / plan / "archive").mkdir()
    for command in (["mv", f"{plan}/add-login", f"{plan}/archive/add-login"], ["commit", "--quiet", "--message=x"]):
        subprocess.run(["git", *command], cwd=place, env=done.env, check=True)
    done.git("worktree", "remove", "--force", str(place))
    told = squash(done)
    assert told.exit_code == 0, told.stderr
    assert (done.root / plan / "archive/add-login/tasks.md").exists()
