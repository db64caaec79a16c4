"""Reading git's own files gives the same as git itself, or nothing."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest
from lab import Lab

from ralphtool.errors import GitError
from ralphtool.workspace import plain_git
from ralphtool.workspace.git import Repository


@pytest.fixture
def repository(lab: Lab) -> Repository:
    return find(lab.repository())


def find(lab: Lab) -> Repository:
    found = Repository.find(str(lab.root))
    assert found is not None
    return found


def ask(repository: Repository, name: str) -> str | None:
    return repository.text("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", check=False) or None


def read(repository: Repository, name: str) -> str | None:
    return plain_git.resolve(repository.gitdir, repository.common, name)


def object_file(repository: Repository, id: str) -> Path:
    return Path(repository.common, "objects", id[:2], id[2:])


# --- refs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["HEAD", "refs/heads/main", "refs/ralph/base/add-login"])
def test_a_commit_that_a_ref_is_at_is_read(lab: Lab, repository: Repository, name: str) -> None:
    lab.git("update-ref", "refs/ralph/base/add-login", "HEAD")
    assert read(repository, name) == ask(repository, name) == lab.git("rev-parse", "HEAD")
    assert repository.head() == "refs/heads/main"


def test_a_repository_of_longer_ids(lab: Lab) -> None:
    lab.git("init", "--quiet", "--initial-branch=main", "--object-format=sha256")
    repository = find(lab.repository())
    assert read(repository, "HEAD") == ask(repository, "HEAD")
    assert len(str(read(repository, "HEAD"))) == 64


def test_a_working_tree_has_its_own_head_and_the_refs_of_all(lab: Lab, repository: Repository) -> None:
    lab.git("worktree", "add", "--quiet", "-b", "other", "../other")
    other = Repository.find(str(lab.root.parent / "other"))
    assert other is not None
    assert other.head() == "refs/heads/other"
    (lab.root.parent / "other/new.txt").write_text("new\n")
    other.run("add", "new.txt", own_index=False)
    other.run("commit", "--quiet", "--message=second", own_index=False)
    assert read(other, "HEAD") == ask(other, "HEAD") != read(repository, "HEAD")
    assert read(other, "refs/heads/main") == ask(repository, "HEAD")


UNUSUAL = ["packed", "no such ref", "a tag", "a blob", "a symbolic one", "gone", "broken", "of another", "a pipe", "?"]


@pytest.mark.parametrize("how", UNUSUAL)
def test_anything_unusual_is_left_to_git(lab: Lab, repository: Repository, how: str) -> None:
    commit, ref = lab.git("rev-parse", "HEAD"), Path(repository.common, "refs/heads/main")
    name = make_unusual(lab, repository, how, commit, ref)
    assert read(repository, name) is None
    if how != "a pipe":  # git would wait for a writer
        assert repository.resolve(name) == ask(repository, name)


def make_unusual(lab: Lab, repository: Repository, how: str, commit: str, ref: Path) -> str:
    if how == "packed":
        lab.git("pack-refs", "--all")
    elif how == "no such ref":
        return "refs/heads/none"
    elif how == "a tag":
        lab.git("tag", "--annotate", "--message=one", "one")
        lab.git("update-ref", "refs/ralph/base/add-login", lab.git("rev-parse", "one"))
        return "refs/ralph/base/add-login"
    elif how == "a blob":
        lab.git("update-ref", "refs/ralph/base/add-login", lab.git("rev-parse", "HEAD:README.md"))
        return "refs/ralph/base/add-login"
    elif how == "a symbolic one":
        lab.git("symbolic-ref", "refs/heads/also", "refs/heads/main")
        return "refs/heads/also"
    elif how == "a pipe":
        ref.unlink()
        os.mkfifo(ref)
    else:
        damage(repository, how, commit)
    return "refs/heads/main"


def damage(repository: Repository, how: str, commit: str) -> None:
    path = object_file(repository, commit)
    path.chmod(0o644)
    if how == "gone":
        path.unlink()
    elif how == "broken":
        path.write_bytes(path.read_bytes()[:-9])
    elif how == "of another":
        changed = zlib.decompress(path.read_bytes()).replace(b"Tester", b"Taster")
        path.write_bytes(zlib.compress(changed))
    else:
        path.write_bytes(b"?")


def test_a_head_that_is_detached_is_left_to_git(lab: Lab, repository: Repository) -> None:
    lab.git("switch", "--quiet", "--detach")
    assert read(repository, "HEAD") is None
    assert repository.head() == repository.resolve("HEAD") == lab.git("rev-parse", "main")


# --- objects ----------------------------------------------------------------------------------------


def test_blobs_are_the_same_packed_or_not(lab: Lab, repository: Repository) -> None:
    wanted = {os.urandom(size): size for size in (0, 1, 5000, 1 << 18, (1 << 18) + 1, 1 << 21)}
    ids = {repository.run("hash-object", "-w", "--stdin", input=data).decode().strip(): data for data in wanted}
    small = {id: data for id, data in ids.items() if len(data) <= 5000}
    for _ in range(2):
        assert repository.blobs(ids) == ids
        assert repository.small_blobs(ids, 5000) == small
        lab.git("update-ref", "refs/heads/kept", repository.commit(make_tree(repository, ids), [], "all"))
        lab.git("repack", "-a", "-d", "--quiet")
        assert not any(object_file(repository, id).exists() for id in ids)


def make_tree(repository: Repository, ids: dict[str, bytes]) -> str:
    os.makedirs(os.path.dirname(repository.index), exist_ok=True)
    repository.stage([f"100644 {id}\t{id}".encode() for id in ids])
    return repository.write_tree()


def test_more_blobs_than_are_read_one_by_one(repository: Repository) -> None:
    contents = [b"%d" % number for number in range(100)]
    ids = [repository.run("hash-object", "-w", "--stdin", input=data).decode().strip() for data in contents]
    assert list(repository.blobs(ids).items()) == list(zip(ids, contents, strict=True))
    assert repository.small_blobs(ids, 1) == dict(zip(ids[:10], contents[:10], strict=True))


def test_a_blob_that_is_not_there_is_an_error(repository: Repository) -> None:
    with pytest.raises(GitError, match="missing"):
        repository.blobs(["12" * 20])


def test_a_tree_is_asked_for_what_it_may_have_only(lab: Lab, repository: Repository) -> None:
    tree = lab.git("rev-parse", "HEAD^{tree}")
    paths = ["README.md", "none", "openspec/none", "none/README.md", ".", "./README.md", "README"]
    there = plain_git.find_present(repository.common, tree, paths)
    assert there == ["README.md", "openspec/none", ".", "./README.md"]
    for path in paths:
        listed = lab.git("ls-tree", "-r", "-z", "--full-tree", tree, "--", path)
        assert b"\0".join(repository.list_entries(tree, [path])).decode() == listed.rstrip("\0")
    lab.git("repack", "-a", "-d", "--quiet")
    assert plain_git.find_present(repository.common, tree, paths) == paths


def test_who_was_made_upon_whom(lab: Lab, repository: Repository) -> None:
    first = lab.git("rev-parse", "HEAD")
    tree = repository.tree_of(first)
    assert tree == lab.git("rev-parse", "HEAD^{tree}")
    second = repository.commit(tree, [first], f"second\n\nparent {first}")
    third = repository.commit(tree, [second], f"third\n\nparent {first}")
    commits = (first, second, third)
    found = {(one, two) for one in commits for two in commits if repository.is_ancestor(one, two)}
    assert found == {(first, first), (first, second), (first, third), (second, second), (second, third), (third, third)}
    assert not plain_git.is_parent(repository.common, third, first), "its message does not count"
