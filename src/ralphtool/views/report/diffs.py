"""The diffs of attempts, from git, cut to what fits into a page."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from typing import TYPE_CHECKING

from ralphtool.errors import RalphError
from ralphtool.history import History
from ralphtool.record import kept_attempts
from ralphtool.views.report import formatting
from ralphtool.views.report.facts import Diff
from ralphtool.workspace.git import Repository

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ralphtool.views.report.facts import ReportAttempt

_LONGEST = 60_000  # bytes of one diff
_ALL = 2_000_000  # bytes of all diffs
_KNOWN: dict[tuple[str, str, int], Diff] = {}
_MOST_KNOWN = 50
_KINDS = {"+": "plus", "-": "minus", "@": "hunk"}
_SAFE = ("--no-color", "--no-ext-diff", "--no-textconv", "--submodule=short")


def read_diffs(root: str, attempts: Iterable[ReportAttempt]) -> dict[str, Diff]:
    """The diff of each entry whose work is kept; none without git."""
    try:
        repository = Repository.find(root)
        attempts = [one for one in attempts if one.counts]
        wanted = [one.entry for one in attempts]
        kept = kept_attempts.read_own(repository, root, History(root), wanted) if repository else {}
    except RalphError:
        return {}
    found: dict[str, Diff] = {}
    room = _ALL
    for one in attempts:
        commit = kept.get(one.entry)
        if repository is not None and commit and room > 0:
            found[one.entry] = diff = _read_diff(repository, commit, min(room, _LONGEST))
            room -= sum(len(line) for _, line in diff.lines)
    return found


def _read_diff(repository: Repository, commit: str, longest: int) -> Diff:
    """Cached: pages ask repeatedly, and the diff of a commit never changes."""
    key = repository.top, commit, longest
    if key not in _KNOWN:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = _ask_git(repository, commit, longest)
    return _KNOWN[key]


def _ask_git(repository: Repository, commit: str, longest: int) -> Diff:
    before = repository.resolve(f"{commit}^") or repository.empty_tree
    data, is_cut = _run_git(repository, ["diff", *_SAFE, "-M", before, commit], longest)
    text = data.decode("utf-8", "replace")
    whole = text.rpartition("\n")[0] if is_cut else text  # the last line may be incomplete
    lines = tuple(_classify_lines(formatting.clean_block(whole, longest + 1).split("\n"))) if whole.strip() else ()
    kinds = Counter(kind for kind, _ in lines)
    return Diff(lines, kinds["plus"], kinds["minus"], is_cut)


def _run_git(repository: Repository, arguments: list[str], longest: int) -> tuple[bytes, bool]:
    """The beginning of git's output: a diff may be larger than the memory."""
    with subprocess.Popen(
        ["git", "-c", "core.quotePath=false", *arguments],
        cwd=repository.top,
        env={name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        data = process.stdout.read(longest + 1) if process.stdout else b""
        if len(data) > longest:
            process.kill()
    return data[:longest], len(data) > longest


def _classify_lines(lines: list[str]) -> Iterator[tuple[str, str]]:
    """The kind of a line depends on its place: in a hunk, `--- x` is a removed line."""
    in_hunk = False
    for line in lines:
        in_hunk = line.startswith("@@") or (in_hunk and not line.startswith("diff --git "))
        yield (_KINDS.get(line[:1], "") if in_hunk else "head"), line
