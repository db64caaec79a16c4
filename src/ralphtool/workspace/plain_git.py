"""Reads git's own files without git where they are unambiguous: a run does that many times.

Anything unusual is left to git: then these functions return None, never a wrong answer.
"""

from __future__ import annotations

import os
import re
import shlex
import zlib
from typing import TYPE_CHECKING

from ralphtool.core import files, layout, programs

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNUSUAL = (b"worktree", b"include", b"bare = true", b"extensions")
_ID = b"[0-9a-f]{40}|[0-9a-f]{64}"
_SYMBOLIC = b"ref: "
_MOST_PACKED = 1 << 20  # bytes of an object file: larger ones are left to git


# --- repositories -----------------------------------------------------------------------------------


def is_bare(folder: str) -> bool:
    return all(os.path.exists(os.path.join(folder, name)) for name in ("HEAD", "objects", "refs"))


def is_plain(git: str) -> bool:
    """Whether git would agree: the folder is complete, its owner is trusted, and its settings are the usual ones."""
    owners = {os.stat(path).st_uid for path in (git, os.path.dirname(git))}
    if owners != {os.geteuid()} or not is_bare(git) or programs.find("git") is None:
        return False
    config = files.read(os.path.join(git, "config")).lower()
    is_usual = b"repositoryformatversion = 0" in config and not any(word in config for word in _UNUSUAL)
    return is_usual and files.read(os.path.join(git, "HEAD")).startswith(b"ref: refs/heads/")


# --- refs -------------------------------------------------------------------------------------------


def read_head(gitdir: str) -> str | None:
    """The ref that HEAD names; None when it is detached."""
    said = _read(os.path.join(gitdir, "HEAD"))
    name = said.removeprefix(_SYMBOLIC).strip() if said is not None and said.startswith(_SYMBOLIC) else b""
    return os.fsdecode(name) if name.startswith(b"refs/") else None


def resolve(gitdir: str, common: str, name: str) -> str | None:
    """The commit of HEAD, or of a ref that all worktrees share, if ref and commit are both loose files."""
    ref = read_head(gitdir) if name == "HEAD" else name
    if ref is None or not ref.startswith(("refs/heads/", layout.REFS)) or "^" in ref or ".." in ref:
        return None
    id = (_read(os.path.join(common, ref)) or b"").strip()
    if not re.fullmatch(_ID, id):
        return None
    commit = read_object(common, id.decode(), "commit", _MOST_PACKED)
    return id.decode() if commit is not None else None


# --- objects ----------------------------------------------------------------------------------------


def read_object(common: str, id: str, kind: str, most: int) -> bytes | None:
    """The contents of a loose object of a kind, if they have at most `most` bytes."""
    packed = _read(os.path.join(common, "objects", id[:2], id[2:]), _MOST_PACKED)
    if packed is None:
        return None
    limit = most + 32  # for its header: kind and size
    try:
        data = zlib.decompressobj().decompress(packed, limit)
    except zlib.error:
        return None
    head, _, contents = data.partition(b"\0")
    is_whole = len(data) < limit and head == b"%s %d" % (kind.encode(), len(contents))
    return contents if is_whole and len(contents) <= most and _hash(data, len(id)) == id else None


def tree_of(common: str, commit: str) -> str | None:
    head = _read_commit_head(common, commit)
    return head[0].removeprefix("tree ") if head else None


def is_parent(common: str, commit: str, other: str) -> bool:
    """Whether `other` is a parent of a commit; False if that is not certain."""
    return f"parent {other}" in _read_commit_head(common, commit)


def _read_commit_head(common: str, commit: str) -> list[str]:
    said = read_object(common, commit, "commit", _MOST_PACKED) or b""
    return said.partition(b"\n\n")[0].decode("utf-8", "replace").split("\n") if said.startswith(b"tree ") else []


def find_present(common: str, tree: str, paths: Sequence[str]) -> Sequence[str]:
    """The paths that a tree may contain: without those whose first folder it certainly lacks."""
    entries = read_object(common, tree, "tree", _MOST_PACKED)
    return paths if entries is None else [path for path in paths if _may_have(entries, path)]


def _may_have(entries: bytes, path: str) -> bool:
    first = path.split("/", 1)[0]
    return first in ("", ".", "..") or b" %s\0" % os.fsencode(first) in entries


def _hash(data: bytes, digits: int) -> str:
    import hashlib  # loads OpenSSL

    made = hashlib.sha1(data, usedforsecurity=False) if digits == 40 else hashlib.sha256(data)
    return made.hexdigest()


def _read(path: str, most: int = 4096) -> bytes | None:
    try:
        return files.read(path) if os.stat(path).st_size <= most else None
    except (OSError, ValueError):
        return None


def find_top(folder: str) -> str | None:
    """The top of a usual repository: a `.git` of the same user around the folder, and nothing that would make git look
    elsewhere. A run needs this many times."""
    here = os.path.realpath(folder)
    try:
        device = os.stat(here).st_dev
        while not os.path.lexists(os.path.join(here, ".git")):
            above = os.path.dirname(here)
            if above == here or os.stat(above).st_dev != device or is_bare(here):
                return None
            here = above
        return here if is_plain(os.path.join(here, ".git")) else None
    except OSError:
        return None


def explain_owner(folder: str) -> str:
    """Why git refuses a repository of another user: common in containers, where the job's files have another owner."""
    place = os.path.abspath(folder)
    while not os.path.lexists(os.path.join(place, ".git")) and place != os.path.dirname(place):
        place = os.path.dirname(place)
    return (
        f"git refuses {place}: it belongs to another user, and you are uid {os.geteuid()}. If you trust it, run"
        f" `git config --global --add safe.directory {shlex.quote(place)}`; else run ralphtool as its owner"
    )
