"""An agent that spoils everything it can uses the user's tree, which is restored byte for byte, even after a kill."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ralphtool.errors import TreeBusy
from ralphtool.workspace import in_place
from ralphtool.workspace.git import Repository
from ralphtool.workspace.in_place import InPlace
from ralphtool.workspace.worktree import Worktree

CHANGE = "add-login"
MINE = "mine\n"  # in all of the user's own files: no commit may contain it
COMMITTED = {
    "README.md": "hello\n",
    "src/a.txt": "a\n",
    "src/b.txt": "b\n",
    "d/x": "x\n",
    "d/y": "y\n",
    "notes.txt": "notes\n",
    ".gitignore": "*.log\n.env\nbuild/\n",
}
LEFT_ALONE = (b".ralph", b".venv", b"node_modules", b"nested", b"sub/", b"build", b"data", b"cache", b"deep", b"huge")
Files = dict[bytes, tuple[int, bytes]]


class User:
    """A repository, and what its user does in it."""

    def __init__(self, top: Path, inside: str = "") -> None:
        self.top = top
        self.project = top / inside

    def git(self, *arguments: str, cwd: Path | None = None) -> str:
        done = subprocess.run(["git", *arguments], cwd=cwd or self.top, capture_output=True, check=False)
        assert done.returncode == 0, (arguments, done.stderr.decode())
        return done.stdout.decode("utf-8", "surrogateescape")

    def begin(self) -> User:
        self.project.mkdir(parents=True, exist_ok=True)
        self.git("init", "--quiet", "--initial-branch=main")
        for name, value in (("user.name", "U"), ("user.email", "u@example.org")):
            self.git("config", name, value)
        for path, text in COMMITTED.items():
            self.write(path, text)
        self.write("run.sh", "#!/bin/sh\n", 0o755)
        (self.top / "link").symlink_to("README.md")
        self.save("first")
        return self

    def save(self, message: str) -> None:
        self.git("add", "--all", "--", ":/", ":!.ralph")
        self.git("commit", "--quiet", f"--message={message}")

    def write(self, path: str | bytes, text: str | bytes = MINE, mode: int | None = None) -> None:
        full = os.path.join(os.fsencode(self.top), os.fsencode(path))
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(text.encode() if isinstance(text, str) else text)
        if mode is not None:
            os.chmod(full, mode)

    def remove(self, path: str) -> None:
        full = self.top / path
        if full.is_dir() and not full.is_symlink():
            shutil.rmtree(full)
        else:
            full.unlink()

    # --- what must be the same ------------------------------------------------------------------

    def files(self) -> Files:
        """Files, links and empty folders, with mode and content, without git's own."""
        top = os.fsencode(self.top)
        seen: Files = {}
        for folder, folders, names in os.walk(top):
            folders[:] = [name for name in folders if name != b".git"]
            links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            for name in [*names, *links]:
                seen[os.path.relpath(os.path.join(folder, name), top)] = _seen(os.path.join(folder, name))
            if not os.listdir(folder):
                seen[os.path.relpath(folder, top) + b"/"] = (0, b"")
        return seen

    def state(self) -> dict[str, Any]:
        refs = self.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        gitdir = Path(self.git("rev-parse", "--absolute-git-dir").strip())
        return {
            "files": self.files(),
            "head": (gitdir / "HEAD").read_text(),
            "status": self.git("status", "--porcelain=v2", "-z", "--untracked-files=all").split("\0"),
            "index": self.git("ls-files", "-z", "--stage", "-v").split("\0"),
            "refs": [ref for ref in refs if not ref.startswith(("refs/heads/ralph/", "refs/ralph/"))],
            "stash": self.git("stash", "list"),
            "config": self.git("config", "--local", "--list"),
        }

    # --- the loop -------------------------------------------------------------------------------

    def repository(self) -> Repository:
        found = Repository.find(str(self.project))
        assert found is not None
        return found

    def here(self) -> InPlace:
        return InPlace(self.repository(), str(self.project), CHANGE)

    def recover(self) -> list[str]:
        return in_place.recover(self.repository(), str(self.project))


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The differences, in few words."""
    found = [
        f"{os.fsdecode(path)}: {_short(before['files'].get(path))} became {_short(after['files'].get(path))}"
        for path in sorted({**before["files"], **after["files"]})
        if before["files"].get(path) != after["files"].get(path)
    ]
    others = [name for name in sorted(before) if name != "files" and before[name] != after[name]]
    return [*found, *(f"{name}: {before[name]} became {after[name]}" for name in others)]


def _short(file: tuple[int, bytes] | None) -> str:
    return "nothing" if file is None else f"{file[0]:o} {file[1][:30]!r}"


def _seen(path: bytes) -> tuple[int, bytes]:
    if os.path.islink(path):
        return 0, os.readlink(path)
    with open(path, "rb") as file:
        return os.stat(path).st_mode & 0o7777, file.read()


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> User:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[protocol.file]\n\tallow = always\n")
    monkeypatch.setenv("HOME", str(home))
    return User(tmp_path / "project").begin()


def spoil(user: User, known: Files) -> None:
    """An agent that overwrites everything it finds, and every name that the user has a file for."""
    for path in known:
        if path != b".git" and not path.endswith(b"/") and not any(one in path for one in LEFT_ALONE):
            _spoil_one(os.path.join(os.fsencode(user.top), path))
    for name in ("src/b.txt", "notes.txt"):
        if (user.top / name).is_file():
            os.unlink(user.top / name)
    if not (user.top / "notes.txt").exists():
        user.write("notes.txt/inside", "the agent's\n")


def _spoil_one(full: bytes) -> None:
    if os.path.islink(full):
        os.unlink(full)
    try:
        os.makedirs(os.path.dirname(full), exist_ok=True)
    except OSError:
        return
    if not os.path.isdir(full):
        with open(full, "ab") as file:
            file.write(b"the agent's\n")


def one_story(user: User, here: InPlace, before: Files) -> None:
    """Begins, checks that none of the user's files would be committed, lets the agent work, and keeps its work."""
    assert here.begin(None) is None
    assert here.take().paths == ()
    here.begin(None)
    spoil(user, before)
    taken = here.take()
    assert not taken.trouble
    assert taken.paths
    commit = here.commit(taken.tree, "a story\n")
    here.publish(f"{CHANGE}-1-1", commit, tree=taken.tree, story="1")
    here.begin(None)


def is_free_of_the_users(user: User, name: str) -> bool:
    found = subprocess.run(["git", "grep", "-q", MINE.strip(), name], cwd=user.top, capture_output=True, check=False)
    return found.returncode == 1


# --- all kinds of trees ------------------------------------------------------------------------------


def modified(user: User) -> None:
    user.write("src/a.txt")
    user.write("notes.txt")


def staged(user: User) -> None:
    user.write("src/a.txt")
    user.git("add", "src/a.txt")


def staged_and_modified_again(user: User) -> None:
    staged(user)
    user.write("src/a.txt", MINE + MINE)


def added(user: User) -> None:
    user.write("new/one.txt")
    user.write("new/two.txt")
    user.git("add", "new")
    user.write("new/two.txt", MINE * 3)
    user.write("new/three.txt")


def added_and_removed(user: User) -> None:
    user.write("new.txt")
    user.git("add", "new.txt")
    user.remove("new.txt")


def removed_from_tree(user: User) -> None:
    user.remove("src/a.txt")
    user.remove("notes.txt")


def removed_from_index(user: User) -> None:
    user.git("rm", "--quiet", "src/a.txt")
    user.git("rm", "--quiet", "--cached", "src/b.txt")


def removed_from_index_and_written_again(user: User) -> None:
    user.git("rm", "--quiet", "src/a.txt")
    user.write("src/a.txt")


def renamed(user: User) -> None:
    user.git("mv", "src/a.txt", "src/c.txt")
    user.git("mv", "d", "e")


def file_to_link(user: User) -> None:
    user.remove("src/a.txt")
    (user.top / "src/a.txt").symlink_to("mine")


def link_to_file(user: User) -> None:
    user.remove("link")
    user.write("link")


def file_to_folder(user: User) -> None:
    user.remove("src/a.txt")
    user.write("src/a.txt/under/it")


def folder_to_file(user: User) -> None:
    user.remove("d")
    user.write("d")


def folder_to_link(user: User) -> None:
    shutil.move(user.top / "d", user.top.parent / "elsewhere")
    (user.top / "d").symlink_to("../elsewhere")


def folder_to_link_inside(user: User) -> None:
    user.remove("d")
    user.write("src/x")
    (user.top / "d").symlink_to("src")


def unknown(user: User) -> None:
    user.write("own.txt")
    user.write("own/under/file.txt")
    user.write("src/own.txt")
    user.write("own/seen.log")


def very_many_unknown(user: User) -> None:
    for number in range(500):
        user.write(f"src/many-{number:04}")
        user.write(f"many/{number % 10}/{number:04}")


def folder_where_the_agent_makes_one_too(user: User) -> None:
    user.remove("notes.txt")
    user.write("notes.txt/inside")


def empty_folders(user: User) -> None:
    (user.top / "hollow/under").mkdir(parents=True)
    (user.top / "src/hollow").mkdir()
    user.write("own/file")
    (user.top / "own/hollow").mkdir()


def removed_folder(user: User) -> None:
    user.remove("d")


def modes(user: User) -> None:
    (user.top / "src/a.txt").chmod(0o755)
    (user.top / "run.sh").chmod(0o644)
    user.write("own.sh", MINE, 0o700)
    user.write("secret.txt", MINE, 0o600)
    user.write("src/b.txt", MINE, 0o640)
    user.write("fixed.txt", MINE, 0o444)
    user.write("fixed/file.txt", MINE, 0o400)


def private_but_unchanged(user: User) -> None:
    (user.top / "src/a.txt").chmod(0o600)


def line_ends_true(user: User) -> None:
    user.git("config", "core.autocrlf", "true")
    user.write("src/a.txt", b"a\r\n")
    user.write("src/b.txt", b"mine\r\nmine\n")
    user.write("own.txt", b"mine\r\nmine\n")


def line_ends_input(user: User) -> None:
    user.git("config", "core.autocrlf", "input")
    user.write("src/a.txt", b"a\r\n")
    user.write("src/b.txt", b"mine\r\nmine\n")


def filter_that_forgets(user: User) -> None:
    user.git("config", "filter.forget.clean", "sed /SECRET/d")
    user.write(".gitattributes", "*.book filter=forget\n")
    user.write("one.book", "kept\n")
    user.write("two.book", "kept\n")
    user.save("books")
    user.write("one.book", "kept\nSECRET result\n")
    user.write("two.book", MINE + "SECRET result\n")
    user.git("add", "one.book")


def strange_names(user: User) -> None:
    for name in ("a\nb", 'with "quotes"', "-rf", "--all", ":(top)x", ":!x", "*", "[a]", " ", "ümlaut", "back\\slash"):
        user.write(name)
        user.write(f"src/{name}")
    user.write(":(exclude)src/a.txt")


def names_that_are_no_text(user: User) -> None:
    user.write(b"caf\xe9")
    user.write(b"src/\xff\xfe")


def intended(user: User) -> None:
    user.write("own.txt")
    user.git("add", "--intent-to-add", "own.txt")


def assumed_unchanged(user: User) -> None:
    user.write("src/a.txt")
    user.git("update-index", "--assume-unchanged", "src/a.txt")


def skipped(user: User) -> None:
    user.write("src/a.txt")
    user.git("update-index", "--skip-worktree", "src/a.txt")


def _submodule(user: User) -> Path:
    other = User(user.top.parent / "other").begin()
    user.git("submodule", "--quiet", "add", str(other.top), "sub")
    user.save("submodule")
    inside = user.top / "sub"
    user.git("config", "user.name", "U", cwd=inside)
    user.git("config", "user.email", "u@example.org", cwd=inside)
    return inside


def clean_submodule(user: User) -> None:
    _submodule(user)


def dirty_submodule(user: User) -> None:
    inside = _submodule(user)
    (inside / "README.md").write_text(MINE)
    (inside / "own.txt").write_text(MINE)


def moved_submodule(user: User) -> None:
    inside = _submodule(user)
    (inside / "README.md").write_text(MINE)
    user.git("commit", "--quiet", "--all", "--message=mine", cwd=inside)


def staged_submodule(user: User) -> None:
    moved_submodule(user)
    user.git("add", "sub")


def new_submodule(user: User) -> None:
    other = User(user.top.parent / "other").begin()
    user.git("submodule", "--quiet", "add", str(other.top), "sub")


def nested_repositories(user: User) -> None:
    for place in ("nested", "own/nested"):
        inner = User(user.top / place).begin()
        inner.write("README.md")
    (user.top / "hollow-nested").mkdir()
    user.git("init", "--quiet", cwd=user.top / "hollow-nested")


def ignored_by_an_uncommitted_line(user: User) -> None:
    user.write("data/big.bin", MINE * 300_000)
    user.write("data/deep/small.bin")
    user.write("huge.bin", MINE * 300_000)
    user.write(".gitignore", COMMITTED[".gitignore"] + "data/\nhuge.bin\n")


def ignored_by_an_unknown_file(user: User) -> None:
    user.write("cache/.gitignore", "*\n")
    user.write("cache/big.bin", MINE * 300_000)
    user.write("src/.gitignore", "deep/\n.gitignore\n")
    user.write("src/deep/file", MINE * 300_000)


def ignored_by_a_newer_commit(user: User) -> None:
    user.git("branch", f"ralph/{CHANGE}")
    user.write(".gitignore", COMMITTED[".gitignore"] + "data/\nhuge.bin\n")
    user.save("ignore data")
    user.write("data/big.bin", MINE * 300_000)
    user.write("huge.bin", MINE * 300_000)


def sparse(user: User) -> None:
    user.git("sparse-checkout", "set", "src")
    user.write("src/a.txt")


def split_index(user: User) -> None:
    user.git("config", "core.splitIndex", "true")
    user.git("update-index", "--split-index")
    staged_and_modified_again(user)


def environments(user: User) -> None:
    user.write(".venv/pyvenv.cfg", "home = /usr\n")
    user.write(".venv/bin/python")
    user.write("node_modules/left/index.js")
    user.write("front/node_modules/left/index.js")


def own_folder_staged(user: User) -> None:
    user.write(".ralph/config.toml", "# " + MINE)
    user.write(".ralph/progress.json", "{}")
    user.git("add", "--force", ".ralph")


def own_folder_committed_after_the_branch(user: User) -> None:
    user.git("branch", f"ralph/{CHANGE}")
    user.write(".ralph/config.toml", "# settings\n")
    user.write(".ralph/progress.json", "{}")
    user.git("add", "--force", ".ralph")
    user.git("commit", "--quiet", "--message=settings")


def own_folder_committed_and_modified(user: User) -> None:
    user.write(".ralph/config.toml", "# settings\n")
    user.git("add", "--force", ".ralph")
    user.git("commit", "--quiet", "--message=settings")
    user.write(".ralph/config.toml", "# " + MINE)


def conflicts_without_a_merge(user: User) -> None:
    user.write("src/a.txt")
    user.git("stash", "--quiet")
    user.write("src/a.txt", "theirs\n")
    user.git("commit", "--quiet", "--all", "--message=theirs")
    subprocess.run(["git", "stash", "pop"], cwd=user.top, capture_output=True, check=False)


def stashed(user: User) -> None:
    user.write("src/a.txt")
    user.git("stash", "--quiet")
    user.write("src/b.txt")


def detached(user: User) -> None:
    user.git("switch", "--quiet", "--detach")
    modified(user)


STATES: list[Callable[[User], None]] = [
    modified,
    staged,
    staged_and_modified_again,
    added,
    added_and_removed,
    removed_from_tree,
    removed_from_index,
    removed_from_index_and_written_again,
    renamed,
    file_to_link,
    link_to_file,
    file_to_folder,
    folder_to_file,
    folder_to_link,
    folder_to_link_inside,
    unknown,
    very_many_unknown,
    folder_where_the_agent_makes_one_too,
    empty_folders,
    removed_folder,
    modes,
    private_but_unchanged,
    line_ends_true,
    line_ends_input,
    filter_that_forgets,
    strange_names,
    names_that_are_no_text,
    intended,
    assumed_unchanged,
    skipped,
    clean_submodule,
    dirty_submodule,
    moved_submodule,
    staged_submodule,
    new_submodule,
    nested_repositories,
    ignored_by_an_uncommitted_line,
    ignored_by_an_unknown_file,
    ignored_by_a_newer_commit,
    sparse,
    split_index,
    environments,
    own_folder_staged,
    own_folder_committed_after_the_branch,
    own_folder_committed_and_modified,
    conflicts_without_a_merge,
    stashed,
    detached,
]


def named(make: Callable[[User], None]) -> str:
    return make.__name__


@pytest.mark.parametrize("make", STATES, ids=named)
def test_everything_is_back_after_a_run(user: User, make: Callable[[User], None]) -> None:
    make(user)
    before = user.state()
    here = user.here()
    here.open("run-1", [])
    one_story(user, here, before["files"])
    here.close()
    assert differences(before, user.state()) == []
    assert is_free_of_the_users(user, f"ralph/{CHANGE}")


@pytest.mark.parametrize("make", STATES, ids=named)
def test_everything_is_back_after_a_run_that_was_killed(user: User, make: Callable[[User], None]) -> None:
    make(user)
    before = user.state()
    here = user.here()
    here.open("run-1", [])
    one_story(user, here, before["files"])
    spoil(user, before["files"])
    os.close(here._lock)  # as the end of a process does
    assert "your files are restored" in user.recover()[0]
    assert differences(before, user.state()) == []
    assert user.recover() == []


# --- ignored files ----------------------------------------------------------------------------------


def ignored(user: User) -> dict[str, Any]:
    user.write(".env", MINE, 0o600)
    user.write("src/.env")
    user.write("big.log", MINE * 300_000)
    user.write("build/out.bin", MINE * 10)
    return user.state()


def test_small_ignored_files_are_back_whatever_an_agent_did_to_them(user: User) -> None:
    before = ignored(user)
    here = user.here()
    here.open("run-1", [])
    here.begin(None)
    user.write(".env", "the agent's\n", 0o644)
    user.remove("src/.env")
    here.take()
    here.begin(None)
    here.close()
    assert differences(before, user.state()) == []


@pytest.mark.parametrize("lines", ["", "!*\n"], ids=["no longer ignored", "asked for"])
def test_an_agent_that_changes_what_is_ignored_gets_none_of_it(user: User, lines: str) -> None:
    before = ignored(user)
    here = user.here()
    here.open("run-1", [])
    here.begin(None)
    user.write(".gitignore", lines)
    taken = here.take()
    here.publish(f"{CHANGE}-1-1", here.commit(taken.tree, "a story\n"))
    here.begin(None)
    here.close()
    assert differences(before, user.state()) == []
    assert is_free_of_the_users(user, f"refs/ralph/attempts/{CHANGE}-1-1")


def test_an_ignored_folder_that_an_agent_puts_in_the_place_of_a_file_goes(user: User) -> None:
    before = user.state()
    here = user.here()
    here.open("run-1", [])
    here.begin(None)
    user.remove("README.md")
    user.write("README.md/seen.log", "the agent's\n")
    user.remove("src")
    user.write("src", "the agent's\n")
    assert not here.take().trouble
    here.begin(None)
    here.close()
    assert differences(before, user.state()) == []


# --- interrupted at every step ----------------------------------------------------------------------


class Cut(BaseException):
    """Simulates the end of the process."""


def cut_at(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Fails before the call with this number that renames or removes a file."""
    left = [number]

    def cutting(act: Callable[..., None]) -> Callable[..., None]:
        def instead(*arguments: Any, **more: Any) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Cut
            act(*arguments, **more)

        return instead

    for name in ("rename", "replace", "unlink"):
        monkeypatch.setattr(os, name, cutting(getattr(os, name)))


def everything(user: User) -> dict[str, Any]:
    for make in (staged_and_modified_again, added, added_and_removed, unknown, link_to_file):
        make(user)
    user.remove("d/x")
    user.write("src/b.txt", MINE, 0o755)
    user.write(".env")
    return user.state()


def let_go(here: InPlace) -> None:
    if here._lock >= 0:
        try:
            os.close(here._lock)
        except OSError:
            pass


@pytest.mark.parametrize("number", range(0, 24, 3))
def test_cut_off_while_leaving(user: User, number: int) -> None:
    before = everything(user)
    here = user.here()
    with pytest.MonkeyPatch.context() as patch:
        cut_at(patch, number)
        try:
            here.open("run-1", [])
        except Cut:
            pass
    let_go(here)
    user.recover()
    assert differences(before, user.state()) == []


@pytest.mark.parametrize("number", range(0, 30, 4))
def test_cut_off_while_returning(user: User, number: int) -> None:
    before = everything(user)
    here = user.here()
    here.open("run-1", [])
    one_story(user, here, before["files"])
    with pytest.MonkeyPatch.context() as patch:
        cut_at(patch, number)
        try:
            here.close()
        except Cut:
            pass
    let_go(here)
    user.recover()
    assert differences(before, user.state()) == []


def test_a_move_that_fails_leaves_nothing_aside(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a folder in the tree belongs to another user: the run can't start, so the tree stays the user's."""
    before = everything(user)

    def refused(source: str, target: str) -> None:
        if source.endswith("own.txt"):
            raise PermissionError(13, "Permission denied", source)
        rename(source, target)

    rename = os.rename
    monkeypatch.setattr(os, "rename", refused)
    here = user.here()
    with pytest.raises(PermissionError):
        here.open("run-1", [])
    let_go(here)
    assert differences(before, user.state()) == []


@pytest.mark.parametrize(
    "make",
    [removed_from_index, removed_from_index_and_written_again, file_to_folder, folder_to_file, folder_to_link_inside],
    ids=named,
)
def test_a_run_that_fails_to_begin_or_to_end_is_answered_by_going_back(
    user: User, make: Callable[[User], None]
) -> None:
    make(user)
    before = user.state()
    here = user.here()
    try:
        here.open("run-1", [])
        here.close()
    except OSError:
        pass
    let_go(here)
    user.recover()
    assert differences(before, user.state()) == []


# --- where the tree is ------------------------------------------------------------------------------


def test_a_repository_without_a_commit(tmp_path: Path, user: User) -> None:
    fresh = User(tmp_path / "fresh")
    fresh.top.mkdir()
    fresh.git("init", "--quiet", "--initial-branch=main")
    fresh.write("own.txt")
    fresh.write("staged.txt")
    fresh.git("add", "staged.txt")
    before = fresh.files(), fresh.git("status", "--porcelain"), fresh.git("ls-files", "--stage")
    here = fresh.here()
    here.open("run-1", [])
    one_story(fresh, here, before[0])
    here.close()
    assert (fresh.files(), fresh.git("status", "--porcelain"), fresh.git("ls-files", "--stage")) == before
    assert (fresh.top / ".git/HEAD").read_text() == "ref: refs/heads/main\n"


@pytest.mark.parametrize("is_known", [True, False])
def test_a_project_in_a_subfolder(user: User, is_known: bool) -> None:
    user.project = user.top / "part"
    user.write("part/own.txt", "part\n")
    if is_known:
        user.save("part")
    user.write("part/.ralph/config.toml")
    user.write("part/more.txt")
    user.write("src/a.txt")
    before = user.state()
    here = user.here()
    here.open("run-1", [])
    one_story(user, here, before["files"])
    here.close()
    assert differences(before, user.state()) == []
    assert is_free_of_the_users(user, f"ralph/{CHANGE}")


def linked(user: User) -> User:
    other = User(user.top.parent / "linked")
    user.git("worktree", "add", "--quiet", "-b", "side", str(other.top))
    return other


def test_a_linked_working_tree(user: User) -> None:
    other = linked(user)
    before_here = everything(user)
    before = everything(other)
    here = other.here()
    here.open("run-1", [])
    one_story(other, here, before["files"])
    here.close()
    assert differences(before, other.state()) == []
    assert differences(before_here, user.state()) == []


def test_what_the_user_commits_in_the_main_tree_while_a_linked_one_is_lent_stays(user: User) -> None:
    here = linked(user).here()
    here.open("run-1", [])
    here.begin(None)
    user.write("src/a.txt")
    user.git("commit", "--quiet", "--all", "--message=mine")
    mine = user.git("rev-parse", "main")
    assert here.take().findings == ()
    here.close()
    assert user.git("rev-parse", "main") == mine


def test_what_the_user_does_in_another_tree_meanwhile_stays(user: User) -> None:
    """They switch from one branch to another, and fetch or create a tag."""
    other = linked(user)
    here = user.here()
    here.open("run-1", [])
    here.begin(None)
    other.write("src/a.txt")
    other.git("commit", "--quiet", "--all", "--message=mine")
    mine = other.git("rev-parse", "side")
    other.git("tag", "mine")
    other.git("switch", "--quiet", "--create", "side-2")
    here.take()
    here.close()
    assert user.git("rev-parse", "side", "mine").split() == [mine.strip()] * 2


def test_two_runs_leave_each_others_attempts(user: User) -> None:
    one = user.here()
    one.open("run-1", [])
    one.begin(None)
    other = Worktree(user.repository(), str(user.project), "other")
    other.open("run-2", [])
    other.begin(None)
    (Path(other.root) / "made.txt").write_text("the agent's\n")
    taken = other.take()
    other.publish("other-1-1", other.commit(taken.tree, "other\n"), tree=taken.tree, story="1")
    user.write("made.txt", "the agent's\n")
    assert one.take().findings == ()
    one.close()
    assert "refs/ralph/attempts/other-1-1" in user.git("for-each-ref")
    assert "refs/ralph/base/other" in user.git("for-each-ref")


def test_a_run_that_begins_beside_another_one_does_not_spoil_its_index(user: User) -> None:
    one = user.here()
    one.open("run-1", [])
    one.begin(None)
    user.write("made.txt", "the agent's\n")
    first = one.take()
    one.publish(f"{CHANGE}-1-1", one.commit(first.tree, "one\n"), tree=first.tree, story="1")
    Worktree(user.repository(), str(user.project), "other").open("run-2", [])
    one.begin(None)
    assert one.take().paths == ()
    assert (user.top / "made.txt").exists()
    one.close()


def test_a_users_stash_and_settings_stay_while_a_worktree_is_worked_in(user: User) -> None:
    tree = Worktree(user.repository(), str(user.project), CHANGE)
    tree.open("run-1", [])
    tree.begin(None)
    user.write("src/a.txt")
    user.git("stash", "--quiet")
    user.git("config", "branch.main.remote", "origin")
    before = user.state()
    assert tree.take().findings == ()
    tree.close()
    assert differences(before, user.state()) == []
    assert user.git("stash", "list").count("\n") == 1


def test_a_user_on_the_branch_itself_has_the_new_work_and_a_clean_tree(user: User) -> None:
    user.git("switch", "--quiet", "--create", f"ralph/{CHANGE}")
    user.write("own.txt")
    here = user.here()
    here.open("run-1", [])
    here.begin(None)
    user.write("made.txt", "the agent's\n")
    taken = here.take()
    here.publish(f"{CHANGE}-1-1", here.commit(taken.tree, "one\n"), tree=taken.tree, story="1")
    here.close()
    assert (user.top / ".git/HEAD").read_text() == f"ref: refs/heads/ralph/{CHANGE}\n"
    assert user.git("status", "--porcelain") == "?? own.txt\n"


def test_a_branch_that_an_agent_moved_before_it_was_killed_is_where_it_was(user: User) -> None:
    before = user.state()
    here = user.here()
    here.open("run-1", [])
    here.begin(None)
    user.git("checkout", "--quiet", "main")
    user.write("src/a.txt", "the agent's\n")
    user.git("commit", "--quiet", "--all", "--message=the agent's")
    user.git("checkout", "--quiet", "ralph/add-login")
    let_go(here)
    user.recover()
    assert differences(before, user.state()) == []


def test_a_merge_under_way_is_one_error_and_nothing_changes(user: User) -> None:
    user.git("switch", "--quiet", "--create", "side")
    user.write("src/a.txt", "side\n")
    user.save("side")
    user.git("switch", "--quiet", "main")
    user.write("src/a.txt", "main\n")
    user.save("main")
    subprocess.run(["git", "merge", "side"], cwd=user.top, capture_output=True, check=False)
    before, refs = user.state(), user.git("for-each-ref")
    here = user.here()
    with pytest.raises(TreeBusy, match="is in progress in"):
        here.open("run-1", [])
    let_go(here)
    assert differences(before, user.state()) == []
    assert user.git("for-each-ref") == refs
