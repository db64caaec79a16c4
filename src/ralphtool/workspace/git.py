"""Git, as far as the loop needs it: plumbing only, in a repository whose files an agent may have touched.

All work on trees goes through a separate index, so the one that people and agents use can break without harm.
Hooks never run, and nothing is pushed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from ralphtool.core import files, layout
from ralphtool.core.amounts import format_duration
from ralphtool.errors import GitError
from ralphtool.sandbox import beneath
from ralphtool.workspace import plain_git
from ralphtool.workspace.paths import Paths, exclude

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_TICK = 0.5  # seconds between two checks whether a command must end
_SHORT, _LONGEST = 10.0, 1800.0  # seconds for a command when its run must end, and for any
NULL_ID = "0" * 40
_QUIET = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "gc.auto=0",
    "core.quotePath=false",
    "advice.addEmbeddedRepo=false",
    "core.fsync=loose-object,reference",
)
_OPTIONS = tuple(word for setting in _QUIET for word in ("-c", setting))
_MOST_LOOSE, _MOST_READ_LOOSE = 1 << 18, 64  # the most bytes per blob, and blobs, that are read without git
_ID = "[0-9a-f]{40}|[0-9a-f]{64}"
_TREES: dict[str, str] = {}  # of commits, which never change
_ENTRIES: dict[tuple[str, ...], list[bytes]] = {}  # of trees, at or below some paths
_MOST_KNOWN = 100
_OURS = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")
SUBMODULE = "160000"


class ChangedFile(Struct, frozen=True):
    """One file that differs between two trees."""

    status: str  # A, D, M, R or T
    path: str
    old_path: str
    old_blob: str | None
    new_blob: str | None
    is_submodule: bool
    old_mode: str = ""
    new_mode: str = ""


class TreeChanges(NamedTuple):
    """How a working tree differs from an index."""

    changed: list[str]
    unknown: list[str]
    ignored: list[str]


class Repository:
    """A repository and its working tree. `index` is a separate index file that all tree work goes through."""

    def __init__(self, top: str, gitdir: str, common: str, index: str | None = None) -> None:
        self.top = top
        self.gitdir = gitdir
        self.common = common
        self.index = index or os.path.join(layout.in_git(gitdir), "index")
        self._env = _build_environment()
        self._compared = ("", "", "")  # two trees, and git's output about them
        self.held: tuple[int, ...] = ()  # locks that ralphtool's git commands keep if ralphtool is killed
        # Whether the run must end; None: commands have no time limit. Set where agents can leave anything.
        self.must_end: Callable[[], bool] | None = None
        self._longest = _LONGEST

    @staticmethod
    def find(folder: str) -> Repository | None:
        """The repository around a folder; None if there is none, or no git."""
        if top := plain_git.find_top(folder):
            return Repository(top, git := os.path.join(top, ".git"), git)
        return Repository._ask(folder)

    @staticmethod
    def _ask(folder: str) -> Repository | None:
        command = ["git", "rev-parse", "--show-toplevel", "--absolute-git-dir", "--git-common-dir"]
        try:
            done = subprocess.run(
                command, cwd=folder, env=_build_environment(), capture_output=True, check=False, process_group=0
            )
        except FileNotFoundError:
            return None
        if done.returncode:
            told = done.stderr.decode("utf-8", "replace")
            if "dubious ownership" in told:
                raise GitError(plain_git.explain_owner(folder))
            return None
        top, gitdir, common = os.fsdecode(done.stdout).rstrip("\n").split("\n")
        return Repository(top, gitdir, os.path.normpath(os.path.join(folder, common)))

    def at(self, top: str, gitdir: str) -> Repository:
        """Another working tree of the same repository, with the settings that are already known."""
        other = Repository(top, gitdir, self.common)
        other._env, other.empty_tree, other._is_sparse = dict(self._env), self.empty_tree, self._is_sparse
        return other

    def for_network(self, longest: float) -> Repository:
        """The same repository for network commands: each has a time limit, and ssh never prompts."""
        import copy  # most commands don't need it

        other = copy.copy(self)
        other.must_end, other._longest = self.must_end or (lambda: False), longest
        ssh = os.environ.get("GIT_SSH_COMMAND") or self.text("config", "core.sshCommand", check=False) or "ssh"
        asks_nobody = {"GIT_SSH_COMMAND": f"{ssh} -oBatchMode=yes -oConnectTimeout=20", "SSH_ASKPASS_REQUIRE": "never"}
        other._env = self._env | asks_nobody
        return other

    # --- running git ----------------------------------------------------------------------------

    def run(self, *arguments: str, input: bytes | None = None, own_index: bool = True, check: bool = True) -> bytes:
        process = subprocess.Popen(
            ["git", *_OPTIONS, *arguments],
            cwd=self.top,
            env=self._env | ({"GIT_INDEX_FILE": self.index} if own_index else {}),
            stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if check else subprocess.DEVNULL,  # a second pipe adds half the cost of the start
            pass_fds=self.held,
            process_group=0,  # ralphtool answers a Ctrl-C in the terminal: git completes its work
        )
        with process:
            output, errors = self._follow(process, arguments[0], input)
        if process.returncode and check:
            raise self._explain_failure(arguments[0], process.returncode, errors)
        return output

    def _explain_failure(self, name: str, status: int, errors: bytes) -> GitError:
        from ralphtool.workspace.git_failure import explain_failure  # most commands work

        return explain_failure(name, status, errors, (self.top, self.common))

    def _follow(self, process: subprocess.Popen[bytes], name: str, input: bytes | None = None) -> tuple[bytes, bytes]:
        """The output of a command. It is ended when its time is up, and earlier if the run must end.

        A command with an input works on that, not on files that could make it hang.
        """
        began, tick = time.monotonic(), None if self.must_end is None or input is not None else _TICK
        while True:
            try:
                output, errors = process.communicate(input, timeout=tick)
                return output or b"", errors or b""
            except subprocess.TimeoutExpired:
                took = time.monotonic() - began
                if took > self._longest or (took > _SHORT and self.must_end and self.must_end()):
                    os.killpg(process.pid, signal.SIGKILL)
                    process.communicate()
                    raise GitError(f"git {name} was stopped after {format_duration(took)}") from None
            except BaseException:
                process.kill()
                raise

    def text(self, *arguments: str, check: bool = True) -> str:
        return os.fsdecode(self.run(*arguments, check=check)).strip()

    def ensure_identity(self) -> None:
        """If the user has not set a name, commits are made as ralphtool."""
        known = self.run("config", "--get-regexp", r"^user\.(name|email)$", check=False).split(b"\n")
        has = {line.partition(b" ")[0].lower() for line in known if line.partition(b" ")[2].strip()}
        if not {b"user.name", b"user.email"} <= has and not all(self._env.get(name) for name in _OURS):
            self._env |= {name: "ralphtool" if name.endswith("NAME") else "ralphtool@localhost" for name in _OURS}

    def ignore_drivers(self) -> None:
        """Runs none of the user's filters and merge programs from here on, except LFS.

        They may be in the tree, or load modules from it: an agent that changes files could run its own programs.
        """
        listed = self.text(
            "config", "--get-regexp", r"^(filter|merge)\..*\.(clean|smudge|process|driver)$", check=False
        )
        rows = [line.partition(" ")[::2] for line in listed.split("\n") if line]
        keys = [key for key, command in rows if not command.startswith("git-lfs ")]
        off = {key: "false" if key.startswith("merge.") else "" for key in keys}
        off |= {f"{key.rpartition('.')[0]}.required": "false" for key in keys if key.startswith("filter.")}
        settings = {
            f"GIT_CONFIG_{name}_{number}": text
            for number, pair in enumerate(off.items())
            for name, text in zip(("KEY", "VALUE"), pair, strict=True)
        }
        self._env |= {"GIT_CONFIG_COUNT": str(len(off)), **settings}

    # --- refs -----------------------------------------------------------------------------------

    def resolve(self, name: str) -> str | None:
        if known := plain_git.resolve(self.gitdir, self.common, name):
            return known
        return self.text("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", check=False) or None

    def read_loose(self, ref: str) -> str | None:
        """The commit of a ref, if it can be read without git: this is needed in every iteration."""
        try:
            return files.read(os.path.join(self.common, ref)).decode().strip()
        except (OSError, UnicodeDecodeError):
            return None

    def head(self) -> str:
        """What HEAD names: a ref, or a commit when it is detached."""
        named = plain_git.read_head(self.gitdir) or self.text("symbolic-ref", "--quiet", "HEAD", check=False)
        return named or self.text("rev-parse", "HEAD")

    def set_head(self, name: str) -> None:
        if name.startswith("refs/"):
            self.run("symbolic-ref", "HEAD", name)
        else:
            self.run("update-ref", "--no-deref", "HEAD", name)

    def set_refs(self, refs: dict[str, str | None]) -> None:
        """Moves, creates or removes (None) refs, all or none."""
        lines = [f"update {name} {value}\n" if value else f"delete {name}\n" for name, value in refs.items()]
        if lines:
            self.run("update-ref", "--stdin", input=os.fsencode("".join(lines)))

    def refs(self, *prefixes: str) -> dict[str, str]:
        lines = self.text("for-each-ref", "--format=%(refname) %(objectname)", *prefixes).split("\n")
        return {name: value for line in lines if line for name, value in [line.rsplit(" ", 1)]}

    # --- trees and commits ----------------------------------------------------------------------

    def is_ancestor(self, commit: str, other: str) -> bool:
        """Whether `other` is the commit or a descendant of it."""
        if plain_git.is_parent(self.common, commit, other):
            return False  # it is the other way around
        try:
            self.run("merge-base", "--is-ancestor", commit, other)
        except GitError:
            return False
        return True

    def tree_of(self, commit: str) -> str:
        if commit not in _TREES:
            found = plain_git.tree_of(self.common, commit) or self.text("rev-parse", "--verify", f"{commit}^{{tree}}")
            if not re.fullmatch(_ID, commit):
                return found  # a name may mean another commit later
            _TREES[commit] = found
        return _TREES[commit]

    def has_same_tree(self, commit: str, other: str) -> bool:
        return self.tree_of(commit) == self.tree_of(other)

    @cached_property
    def empty_tree(self) -> str:
        return os.fsdecode(self.run("hash-object", "-t", "tree", "-w", "--stdin", input=b"")).strip()

    def commit(self, tree: str, parents: Sequence[str], message: str) -> str:
        words = [word for parent in parents for word in ("-p", parent)]
        text = message.encode("utf-8", "replace")
        made = os.fsdecode(self.run("commit-tree", tree, *words, "-F", "-", input=text)).strip()
        if re.fullmatch(_ID, tree):
            _TREES[made] = tree
        return made

    def add_all(self, excluded: Iterable[str]) -> None:
        """Adds the whole working tree to the separate index, except ignored and excluded files."""
        sparse = ["--sparse"] if self._is_sparse else []
        self.run("add", "--all", *sparse, "--", ":/", *(spec for path in excluded for spec in exclude(path)))

    @cached_property
    def _is_sparse(self) -> bool:
        return self.text("config", "--type=bool", "--get", "core.sparseCheckout", check=False) == "true"

    def drop(self, paths: Sequence[str]) -> None:
        """Removes paths from the separate index again."""
        self.run("update-index", "-z", "--force-remove", "--stdin", input=os.fsencode("\0".join(paths)))

    def write_tree(self) -> str:
        return self.text("write-tree")

    def check_out(self, tree: str, spared: Sequence[str]) -> None:
        """Sets index and files to those of a tree; spared and untracked files are left alone."""
        if tree == self.empty_tree:
            self._remove_tracked(Paths(spared))
            return
        excluded = [f":(exclude,top,literal){path}" for path in spared]
        options = ("--staged", "--worktree", "--ignore-unmerged", "--ignore-skip-worktree-bits")
        # Line endings are those of git's objects: the user's files with other endings are kept elsewhere.
        self.run("-c", "core.autocrlf=false", "restore", f"--source={tree}", *options, "--", ":/", *excluded)

    def list_entries(self, tree: str, paths: Sequence[str]) -> list[bytes]:
        """The entries of a tree at or below some paths, as lines for `stage`."""
        there = plain_git.find_present(self.common, tree, paths)
        return self._list_below(tree, there) if there else []

    def _list_below(self, tree: str, paths: Sequence[str]) -> list[bytes]:
        """Cached, since all boxes of a run ask for the same; but not by name, which may mean another tree later."""
        key = (self.common, tree, *paths)
        found = _ENTRIES.get(key)
        if found is None:
            listed = self.run("ls-tree", "-r", "-z", "--full-tree", tree, "--", *paths)
            found = [line for line in listed.split(b"\0") if line]
            if len(_ENTRIES) >= _MOST_KNOWN:
                _ENTRIES.clear()
            if re.fullmatch(_ID, tree):
                _ENTRIES[key] = found
        return found

    def set_entries(self, tree: str, paths: Sequence[str], contents: Mapping[str, bytes] | None = None) -> None:
        """Sets entries of the separate index to those of a tree, without reading files; some with other contents."""
        wanted = [f":(top,literal){path}" for path in paths]
        known = self.run("ls-files", "-z", "--full-name", "--", *wanted) if paths else b""
        gone = [b"0 %s\t%s" % (b"0" * len(tree), path) for path in known.split(b"\0") if path]
        self.stage([*gone, *(self._with_contents(line, contents or {}) for line in self.list_entries(tree, paths))])

    def _with_contents(self, entry: bytes, contents: Mapping[str, bytes]) -> bytes:
        about, _, path = entry.partition(b"\t")
        data = contents.get(os.fsdecode(path))
        if data is None:
            return entry
        return b"%s %s\t%s" % (about.split(b" ")[0], self.run("hash-object", "-w", "--stdin", input=data).strip(), path)

    def stage(self, entries: Sequence[bytes]) -> None:
        if entries:
            self.run("update-index", "-z", "--index-info", input=b"".join(line + b"\0" for line in entries))

    def _remove_tracked(self, spared: Paths) -> None:
        for path in self.list_items("ls-files", "-z", "--full-name", ":/"):
            full = os.path.join(self.top, path)
            is_file = os.path.islink(full) or os.path.isfile(full)
            if is_file and not spared.cover(path) and beneath.is_reached(self.top, path):
                os.unlink(full)
                files.remove_empty_above(full, self.top)
        self.run("read-tree", "--empty")

    def list_changes(self) -> TreeChanges:
        """How the working tree differs from the separate index; folders end with `/`. Runs two commands at once."""
        files = ("ls-files", "-z", "--full-name", "--exclude-standard", "--others")
        with self._begin(*files, "--ignored", "--directory") as ignored, self._begin(*files, "-t", "-m", "-d") as other:
            try:
                rows = self._end(other)
                changed = dict.fromkeys(row[2:] for row in rows if row[0] in "CR")
                return TreeChanges(list(changed), [row[2:] for row in rows if row[0] == "?"], self._end(ignored))
            finally:
                ignored.kill()  # if the other one failed; otherwise it has ended

    def _begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["git", *_OPTIONS, *arguments, "--", ":/"],
            cwd=self.top,
            env=self._env | {"GIT_INDEX_FILE": self.index},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=self.held,
            process_group=0,
        )

    def _end(self, process: subprocess.Popen[bytes]) -> list[str]:
        output, errors = self._follow(process, "ls-files")
        if process.returncode:
            raise self._explain_failure("ls-files", process.returncode, errors)
        return [one for one in os.fsdecode(output).split("\0") if one]

    def restore_from_index(self, paths: Sequence[str]) -> None:
        self.run("checkout-index", "--force", "-z", "--stdin", input=os.fsencode("\0".join(paths)))

    def list_unknown_files(self) -> list[str]:
        """Files that are neither in the separate index nor ignored."""
        return self.list_items("ls-files", "-z", "--others", "--exclude-standard", "--full-name", "--", ":/")

    def list_uncommitted(self) -> list[str]:
        """The paths in the user's own tree that differ from its last commit; untracked folders end with `/`."""
        command = ("--no-optional-locks", "status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal")
        return [line[3:] for line in self.list_items(*command, "--ignore-submodules=all", own_index=False)]

    def list_items(self, *arguments: str, own_index: bool = True) -> list[str]:
        """The items of a command's NUL-separated output."""
        return [one for one in os.fsdecode(self.run(*arguments, own_index=own_index)).split("\0") if one]

    def staged(self, index: str, commit: str) -> bytes:
        """The entries of an index that a commit does not have, for `make_index`."""
        fields = (
            self.with_index(index).run("diff-index", "--cached", "--raw", "-z", "--no-renames", commit).split(b"\0")
        )
        rows = zip(fields[::2], fields[1::2], strict=False)
        return b"".join(b" ".join((*_parse_new_side(head), b"")).rstrip() + b"\t" + path + b"\0" for head, path in rows)

    def make_index(self, index: str, commit: str, staged: bytes) -> None:
        """Creates an index from a commit, with some entries changed."""
        self.with_index(index).run("read-tree", commit)
        self.with_index(index).run("update-index", "-z", "--index-info", input=staged)

    def tree_of_index(self, index: str) -> str | None:
        """The tree of an index; None if it can't be written as one."""
        try:
            return os.fsdecode(self.with_index(index).run("write-tree")).strip()
        except GitError:
            return None

    def with_index(self, index: str) -> Repository:
        return Repository(self.top, self.gitdir, self.common, index)

    def changed(self, old: str, new: str) -> list[ChangedFile]:
        # Needed when work is taken, and again when it is proven. A name may mean another tree later.
        if self._compared[:2] != (old, new) or not (re.fullmatch(_ID, old) and re.fullmatch(_ID, new)):
            told = os.fsdecode(self.run("diff-tree", "-r", "-z", "--raw", "-M", "--no-commit-id", old, new))
            self._compared = old, new, told
        fields = self._compared[2].split("\0")
        found = []
        position = 0
        while position < len(fields) - 1:
            old_mode, new_mode, old_blob, new_blob, status = fields[position].removeprefix(":").split(" ")
            paths = fields[position + 1 : position + (3 if status[0] in "RC" else 2)]
            position += 1 + len(paths)
            blobs = _blob_or_none(old_blob), _blob_or_none(new_blob)
            is_submodule = SUBMODULE in (old_mode, new_mode)
            found.append(ChangedFile(status[0], paths[-1], paths[0], *blobs, is_submodule, old_mode, new_mode))
        return found

    def blobs(self, ids: Iterable[str]) -> dict[str, bytes]:
        wanted = list(dict.fromkeys(ids))
        found = self._read_loose_blobs(wanted, _MOST_LOOSE)
        asked = [id for id in wanted if id not in found]
        if asked:
            found |= _parse_batch(self.run("cat-file", "--batch", input="".join(f"{id}\n" for id in asked).encode()))
        return {id: found[id] for id in wanted}

    def small_blobs(self, ids: Iterable[str], most: int) -> dict[str, bytes]:
        """The contents of blobs of at most `most` bytes."""
        wanted = list(dict.fromkeys(ids))
        found = self._read_loose_blobs(wanted, min(most, _MOST_LOOSE))
        asked = "".join(f"{id}\n" for id in wanted if id not in found).encode()
        if not asked:
            return found
        lines = self.run("cat-file", "--batch-check=%(objectname) %(objectsize)", input=asked).decode().split("\n")
        sizes = [line.split(" ") for line in lines if line.count(" ") == 1]
        return found | self.blobs(id for id, size in sizes if size.isdecimal() and int(size) <= most)

    def _read_loose_blobs(self, ids: Sequence[str], most: int) -> dict[str, bytes]:
        """Usually the blobs that an attempt has just created; the others are packed, and need git."""
        few = ids[:_MOST_READ_LOOSE]
        read = {id: plain_git.read_object(self.common, id, "blob", most) for id in few}
        return {id: data for id, data in read.items() if data is not None}

    def read_files(self, tree: str, paths: Sequence[str], most: int) -> dict[str, bytes]:
        """The contents of those files that a tree has, and that have at most `most` bytes."""
        if not paths:
            return {}
        listed = os.fsdecode(self.run("--literal-pathspecs", "ls-tree", "-z", "--full-tree", tree, "--", *paths))
        rows = [line.partition("\t")[::2] for line in listed.split("\0") if line]
        ids = {name: about.split(" ")[2] for about, name in rows if " blob " in about}
        found = self.small_blobs(ids.values(), most)
        return {name: found[id] for name, id in ids.items() if id in found}

    def grep(self, tree: str, word: str) -> list[str]:
        """The files of a tree that contain a word."""
        said = self.run("grep", "-l", "-z", "-F", "-I", "--full-name", "-e", word, tree, "--", ":/", check=False)
        return [line.partition(":")[2] for line in os.fsdecode(said).split("\0") if line]

    def files_at(self, tree: str, *paths: str) -> dict[str, bytes]:
        """The files of a tree at or below some paths."""
        listed = [os.fsdecode(line).partition("\t") for line in self._list_below(tree, paths)]
        rows = [(about.split(" "), path) for about, _, path in listed]
        ids = {name: fields[2] for fields, name in rows if fields[1] == "blob"}
        found = self.blobs(ids.values())
        return {name: found[id] for name, id in ids.items()}


def _parse_new_side(head: bytes) -> tuple[bytes, bytes]:
    """Mode and object of the newer side of a line as in `:100644 100644 1234 5678 M`."""
    words = head.split(b" ")
    return words[1], words[3]


def _blob_or_none(id: str) -> str | None:
    return None if set(id) == {"0"} else id


def _parse_batch(data: bytes) -> Iterable[tuple[str, bytes]]:
    position = 0
    while position < len(data):
        end = data.index(b"\n", position)
        head = data[position:end].decode().split(" ")
        if len(head) < 3:
            raise GitError(f"git cat-file: {' '.join(head)}")
        size = int(head[2])
        yield head[0], data[end + 1 : end + 1 + size]
        position = end + 1 + size + 1


def _build_environment() -> dict[str, str]:
    """The process's environment, without variables that would make git look elsewhere."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name in _OURS}
    return kept | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_REPLACE_OBJECTS": "1"}
