"""The stories that have a checkpoint, according to the commits of a branch.

A checkpoint's message notes what its proof claims, and which trees that is about: the one before and the one after the
story. So a clone knows it too. The note counts only while the commit still makes exactly that change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ralphtool.core import layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ralphtool.workspace.git import Repository

_ARROW = " -> "
_SHORT = 16  # digits of a tree's id in a message
_KEYS = ("Change", "Story", "Proof", "Rejected", "Removed", "Renumbered")


class Checkpoint(Struct, frozen=True, kw_only=True):
    """The commit of a story that is done."""

    commit: str
    trees: tuple[str, str]  # before and after it
    noted: str = ""  # the proof state in its message, if that is about these trees


def read_checkpoints(repository: Repository, change: str) -> dict[str, str]:
    """Each story with its commit, oldest first."""
    return {story: one.commit for story, one in read_details(repository, change).items()}


def read_details(repository: Repository, change: str) -> dict[str, Checkpoint]:
    """Each story with its last checkpoint, oldest first; empty without a branch."""
    found: dict[str, Checkpoint] = {}
    for story, made in read_work(repository, change):
        found.pop(story, None)
        found[story] = made
    return found


def read_work(repository: Repository, change: str) -> list[tuple[str, Checkpoint]]:
    """All checkpoints of the stories, oldest first: a story to which the user added a task has several."""
    base, ref = repository.resolve(layout.BASE + change), layout.BRANCHES + change
    if repository.resolve(ref) is None:
        return []
    return _read(repository, change, f"{base}..{ref}" if base else ref)


def read_earlier(repository: Repository, change: str, start: str) -> dict[str, str]:
    """Each story with the commit of its last checkpoint below the one where a branch begins: of work that is merged, of
    this change or of an earlier one of the same name."""
    filters = ("--fixed-strings", f"--grep=Ralph-Change: {change}")  # the other commits of a long history
    return {story: one.commit for story, one in _read(repository, change, *filters, start)}


def _read(repository: Repository, change: str, *commits: str) -> list[tuple[str, Checkpoint]]:
    form = "%x00".join(["%H", "%T", "%P", *map(_build_field, _KEYS)])
    told = repository.text("log", "--reverse", f"--format={form}", *commits, "--")
    rows = [line.split("\0") for line in told.split("\n") if line.count("\0") == len(_KEYS) + 2]
    trees = {commit: tree for commit, tree, *_ in rows}
    found: list[tuple[str, Checkpoint]] = []
    for commit, tree, parents, name, story, proof, *more in rows:
        if name == change:
            before = _find_tree(repository, trees, parents.split(" ")[0]) if story else ""
            made = Checkpoint(commit=commit, trees=(before, tree), noted=_read_note(proof, (before, tree)))
            found = _follow(found, *(one.split("\x1f") for one in more)) + ([(story, made)] if story else [])
    return found


def find_project(repository: Repository, change: str) -> str | None:
    """The folder of the project whose checkpoints the branch has, below the top of the repository: "" for the top, and
    for those that don't say it. None without checkpoints."""
    base, ref = repository.resolve(layout.BASE + change), layout.BRANCHES + change
    if base is None or repository.resolve(ref) is None:
        return None
    form = "%x00".join(map(_build_field, ("Change", "Story", "Project")))
    # Not those that a merge brought: a finished change may have had the same name.
    lines = repository.text("log", "--first-parent", f"--format={form}", f"{base}..{ref}", "--").split("\n")
    rows = [line.split("\0") for line in lines if line.count("\0") == 2]
    return next((project for name, story, project in rows if name == change and story), None)


def read_project(repository: Repository, commit: str) -> str:
    """The project of a commit, as in `find_project`."""
    return repository.text("log", "-1", f"--format={_build_field('Project')}", commit, "--").strip()


def build_project_trailer(prefix: str) -> str:
    """Two projects of a repository may have a change of the same name, and so the same branch."""
    return f"Ralph-Project: {prefix.rstrip('/')}\n" if prefix else ""


def _find_tree(repository: Repository, trees: dict[str, str], commit: str) -> str:
    """Empty if it is unknown: a shallow clone lacks old commits."""
    if not commit:
        return repository.empty_tree
    return trees.get(commit) or (repository.tree_of(commit) if repository.resolve(commit) else "")


def _build_field(name: str) -> str:
    """The git format for the values of a trailer that may occur several times."""
    separator = "%x2C" if name in ("Change", "Story") else "%x1F"
    return f"%(trailers:key=Ralph-{name},valueonly,separator={separator})"


def _follow(
    found: Sequence[tuple[str, Checkpoint]], rejected: list[str], removed: list[str], renumbered: Iterable[str]
) -> list[tuple[str, Checkpoint]]:
    """What is left of the work after a commit that rejects stories or edits the plan, by the new numbers."""
    names = dict(one.split(_ARROW, 1) for one in renumbered if _ARROW in one)
    return [(names.get(id, id), one) for id, one in found if id not in {*rejected, *removed}]


# --- what the proof is about ------------------------------------------------------------------------


def build_note(state: str, before: str, after: str) -> str:
    """The trailer of a checkpoint that says what its proof claims about which change of the files."""
    return f"Ralph-Proof: {state} {before[:_SHORT]}..{after[:_SHORT]}\n"


def _read_note(value: str, trees: tuple[str, str]) -> str:
    state, _, noted = value.partition(" ")
    return state if noted == "..".join(tree[:_SHORT] for tree in trees) else ""


def is_same_change(repository: Repository, commit: str, other: Checkpoint) -> bool:
    """Whether a commit makes the same change of the same files, whatever its message says."""
    found = _read_trees(repository, commit)
    return found is not None and found == other.trees


def is_same_patch(repository: Repository, commit: str, other: Checkpoint) -> bool:
    """Whether a commit makes the same change, perhaps of other files: a rebase leaves most patches as they are.

    Not `git patch-id`, which ignores whitespace: in some languages that is code."""
    found = _read_trees(repository, commit)
    return found is not None and _read_patch(repository, found) == _read_patch(repository, other.trees)


def _read_trees(repository: Repository, commit: str) -> tuple[str, str] | None:
    """The trees before and after a commit; None if this repository does not have it."""
    told = repository.text("log", "-1", "--format=%T %P", commit, "--", check=False).split(" ")
    if len(told) < 2 or repository.resolve(told[1]) is None:
        return None
    return repository.tree_of(told[1]), told[0]


def _read_patch(repository: Repository, trees: tuple[str, str]) -> list[bytes]:
    """The lines of a patch without the places where it applies."""
    options = ("-p", "--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv")
    lines = repository.run("diff-tree", *options, *trees).split(b"\n")
    return [b"@@" if line.startswith(b"@@ ") else line for line in lines if not line.startswith(b"index ")]


def build_trailers(removed: Iterable[str], renumbered: Iterable[tuple[str, str]]) -> str:
    """The trailers about stories in the commit of an edited plan."""
    lines = [f"Ralph-Removed: {id}\n" for id in removed]
    return "".join([*lines, *(f"Ralph-Renumbered: {old}{_ARROW}{new}\n" for old, new in renumbered)])
