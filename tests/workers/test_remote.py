"""The traffic through a shared remote: which run owns which refs, what others may write here, how a URL is shown."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ralphtool.errors import GitError, UnsafePath
from ralphtool.loop import remote_refs
from ralphtool.workspace.git import Repository
from ralphtool.workspace.remote import Remote, hide_login, read_folder, write_files


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    for name, bare in (("remote.git", ["--bare"]), ("project", [])):
        subprocess.run(["git", "init", "--quiet", *bare, str(tmp_path / name)], check=True)
    repository = Repository.find(str(tmp_path / "project"))
    assert repository
    repository.ensure_identity()
    return Remote(repository, str(tmp_path / "remote.git"))


def commit(remote: Remote, contents: dict[str, bytes] | None = None) -> str:
    return remote.repository.commit(write_files(remote.repository, contents or {"a": b"a"}), [], "one\n")


def test_the_refs_of_a_run_that_is_alive_stay(remote: Remote) -> None:
    """A project may run several changes at once, each with its own refs."""
    made = commit(remote)
    own, other = ("refs/ralph/orders/a-1/001-work-x", "refs/ralph/results/b-1/001-prove-x")
    remote.push({own: made, other: made})
    remote_refs.clear_earlier(remote, lambda run: run == "a-1")
    assert remote.list("refs/ralph/*") == {other: made}
    remote_refs.clear(remote, "b-1")
    assert remote.list("refs/ralph/*") == {}


def test_an_order_of_another_version_does_not_hinder(remote: Remote) -> None:
    made = commit(remote, {"order.json": b'{"what": "is that"}'})
    remote.repository.set_refs({"refs/ralph/sent/a/a-1-1": made})
    remote.push({"refs/ralph/orders/a-1/001-work-x": made})
    remote_refs.clear_earlier(remote, lambda run: True)
    assert remote.list("refs/ralph/*") == {}


def test_a_ref_is_made_once(remote: Remote) -> None:
    first, second = commit(remote), commit(remote, {"b": b"b"})
    assert remote.push_new("refs/ralph/results/x", first)
    assert remote.push_new("refs/ralph/results/x", first), "the same again is no other"
    assert not remote.push_new("refs/ralph/results/x", second)
    assert remote.find("refs/ralph/results/x") == first


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("ssh://git@host/x", "ssh://git@host/x"),
        ("ssh://git:pw@host:22/x", "ssh://git@host:22/x"),
        ("https://u:p@ss@h/x", "https://h/x"),
        ("https://u:p/w@h.org/x.git", "https://h.org/x.git"),
        ("git@host:team/x.git", "git@host:team/x.git"),
        ("fatal: https://a:b@h/x: no, https://c@d/y end", "fatal: https://h/x: no, https://d/y end"),
    ],
)
def test_a_login_is_told_to_nobody(url: str, told: str) -> None:
    assert hide_login(url) == told


def test_a_url_that_is_an_option_is_refused(remote: Remote) -> None:
    with pytest.raises(GitError, match="is not a git repository"):
        Remote(remote.repository, "--upload-pack=touch x")


def test_files_of_others_stay_in_their_folder(remote: Remote, tmp_path: Path) -> None:
    tree = write_files(remote.repository, {"deep/log": b"fine", "log": b"too"})
    read_folder(remote.repository, tree, str(tmp_path / "records"))
    assert (tmp_path / "records/deep/log").read_bytes() == b"fine"
    blob = remote.repository.run("hash-object", "-w", "--stdin", input=b"/etc/passwd").strip().decode()
    linked = remote.repository.run("mktree", input=f"120000 blob {blob}\tlink\n".encode()).strip().decode()
    with pytest.raises(UnsafePath):
        read_folder(remote.repository, linked, str(tmp_path / "records"))
    assert not (tmp_path / "records/link").exists()
