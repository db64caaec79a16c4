"""What the user commits in the worktree of a change while nothing runs."""

from __future__ import annotations

from lab import DONE, Lab

FOLDER = ".git/ralph/worktrees/add-login"


def commit_there(lab: Lab) -> None:
    """After the first story; the worktree is on no branch."""
    lab.repository(workspace="worktree", tests=["true"]).play(default=DONE)
    lab.loop("--max-iterations", "1")
    lab.write(f"{FOLDER}/mine.txt", "mine\n")
    lab.git("-C", FOLDER, "add", "mine.txt")
    lab.git("-C", FOLDER, "commit", "--quiet", "--message=mine")


def list_kept(lab: Lab) -> list[str]:
    return lab.git("for-each-ref", "--format=%(refname)", "refs/ralph/interrupted").split()


def test_the_next_run_continues_upon_it(lab: Lab) -> None:
    commit_there(lab)
    done = lab.loop()
    assert done.exit_code == 0
    assert lab.git("show", "ralph/add-login:mine.txt").strip() == "mine"
    assert any("/add-login are on ralph/add-login now" in one.get("text", "") for one in lab.events(done))


def test_it_is_kept_if_the_branch_has_changed_since(lab: Lab) -> None:
    """The commit of the first story was dropped on purpose: the branch must not get it back."""
    commit_there(lab)
    lab.git("branch", "--quiet", "--force", "ralph/add-login", "ralph/add-login~")
    done = lab.loop()
    [ref] = list_kept(lab)
    assert lab.git("show", f"{ref}:mine.txt").strip() == "mine"
    assert any(one.get("text", "").endswith(f"git merge {ref}") for one in lab.events(done))
    assert "mine.txt" not in lab.git("ls-tree", "--name-only", "ralph/add-login")


def test_it_is_kept_if_the_change_is_finished(lab: Lab) -> None:
    commit_there(lab)
    lab.run("finish", "add-login", "--squash")
    [ref] = list_kept(lab)
    assert lab.git("show", f"{ref}:mine.txt").strip() == "mine"
