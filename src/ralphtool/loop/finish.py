"""The end of a change: all of its work goes into the user's working tree at once, as a merge or uncommitted."""

from __future__ import annotations

import os
import shlex
from itertools import count
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from ralphtool import specs
from ralphtool.core import files, layout, session
from ralphtool.errors import ChangeNotFound, GitError
from ralphtool.loop import plan_edits
from ralphtool.record import change_state, questions, receipts, run_command, steering
from ralphtool.record.change_state import ChangeState
from ralphtool.workspace import revert, slots, user_plan
from ralphtool.workspace.change_lock import hold_change
from ralphtool.workspace.git import Repository
from ralphtool.workspace.mixed_tree import build_mixed_tree
from ralphtool.workspace.paths import Paths, join_first, printable
from ralphtool.workspace.revert import SpecPlace
from ralphtool.workspace.shared_branch import list_checked_out
from ralphtool.workspace.stash import find_under_way
from ralphtool.workspace.user_plan import UnusablePlan

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from ralphtool.judging.receipt import Receipt
    from ralphtool.workspace.git import ChangedFile, Repository
    from ralphtool.workspace.slots import LeftTrees


class Finished(Struct, frozen=True):
    """The result of finishing a change."""

    branch: str
    commit: str  # the branch's last commit
    paths: tuple[str, ...]  # that changed in the user's tree
    merge: str | None = None  # the commit that merges it; None if the user's branch already had it
    kept: str = ""  # the ref that keeps its commits
    interrupted: tuple[str, ...] = ()  # the refs that keep unfinished work
    notices: tuple[str, ...] = ()


def squash(repository: Repository, root: str, change: str) -> Finished:
    """Puts the work of the branch into index and files, uncommitted. If it does not apply, nothing changes."""
    return _finish(repository, root, change, None)


def merge(repository: Repository, root: str, change: str, message: str) -> Finished:
    """Like `squash`, but commits it as a merge: every story stays a separate commit."""
    return _finish(repository, root, change, message)


def _finish(repository: Repository, root: str, change: str, message: str | None) -> Finished:
    repository.ensure_identity()
    if not any(repository.resolve(prefix + change) for prefix in (layout.BRANCHES, layout.FINISHED)):
        raise build_no_branch_error(repository, root, change)
    with hold_change(repository, root, change, "`ralphtool finish`"):
        return _finish_locked(repository, root, change, message)


def _finish_locked(repository: Repository, root: str, change: str, message: str | None) -> Finished:
    ref = layout.BRANCHES + change
    commit = repository.resolve(ref)
    if commit is None:
        return _finish_killed(repository, root, change)
    if repository.head() == ref:
        raise GitError(f"the branch ralph/{change} itself is checked out: `git switch` to the branch to merge into")
    _check_not_checked_out(repository, ref)
    if name := find_under_way(repository):  # its own commit would include the work of the branch
        raise GitError(
            f"a merge, rebase or similar operation is in progress ({name}): finish or abort it, then try again"
        )
    repository.run("update-index", "-q", "--refresh", own_index=False, check=False)
    place = SpecPlace(repository, root, change, change_state.load(root, change).spec)
    commit = _take_up_plan(place, commit) if place.ref else commit
    head = repository.resolve("HEAD")
    old, new = _find_trees(place, head, _keep_own_folder(repository, root, commit))
    changed = repository.changed(old, new)
    room = _SpecFilesAside(place, [one.path for one in changed])
    room.restore_leftovers()
    if not _is_applied(repository, changed):
        _check_obstacles(repository, change, changed)
        with room:
            _apply(repository, change, old, new)
    made = _commit_merge(repository, new, head, commit, message) if message is not None else None
    left = slots.keep_left(repository, root, change, commit)  # after everything that could refuse
    _keep_receipts(root, change)  # while the branch shows what they are about
    kept = _end_branch(repository, change, commit, made)
    notices = _remove_rest(repository, root, change, left)
    paths = tuple(one.path for one in changed)
    return Finished(layout.branch(change), commit, paths, made, kept, left.kept, notices)


def _commit_merge(repository: Repository, tree: str, head: str | None, commit: str, message: str) -> str | None:
    """None if the user has merged the branch themselves: another merge would be empty."""
    if head and repository.is_ancestor(commit, head) and repository.tree_of(head) == tree:
        return None
    return repository.commit(tree, [*([head] if head else []), commit], message)


def _check_not_checked_out(repository: Repository, ref: str) -> None:
    """Without its branch, all files of a working tree would seem new, and its next commit would have no parent."""
    for place in list_checked_out(repository, ref):
        folder = shlex.quote(place.top)
        raise GitError(
            f"the branch {ref.removeprefix('refs/heads/')}, which would be deleted, is checked out in {place.top}: "
            f"remove that worktree (`git worktree remove {folder}`) or run `git -C {folder} switch --detach`, "
            "then try again. Nothing was changed"
        )


def _finish_killed(repository: Repository, root: str, change: str) -> Finished:
    """There is no branch: an earlier `finish` was killed at its very end, or there never was one."""
    done = repository.resolve(layout.FINISHED + change)
    if done and _has_records(root, change):
        left = slots.keep_left(repository, root, change, done)
        notices = _remove_rest(repository, root, change, left)
        kept = layout.FINISHED + change
        return Finished(layout.branch(change), done, (), kept=kept, interrupted=left.kept, notices=notices)
    raise build_no_branch_error(repository, root, change)


def build_no_branch_error(repository: Repository, root: str, change: str) -> ChangeNotFound:
    command = run_command.build(root, change)
    if repository.resolve(layout.FINISHED + change):
        return ChangeNotFound(
            f"{change} is already finished, and its commits are kept as {layout.FINISHED}{change}; `{command}` creates "
            "a new branch if there is more to do"
        )
    if receipts.is_settled(root, change):
        return ChangeNotFound(
            f"there is no branch ralph/{change}, and your branch has the work that runs have done: nothing is left to "
            f"finish. `{command}` creates a new branch if there is more to do"
        )
    if not questions.load_change_state(root, change).get("spec"):
        specs.open(root, change)  # raises an error if there is no such change, which a run could not start either
    return ChangeNotFound(f"there is no branch ralph/{change}: `{command}` creates it")


def _end_branch(repository: Repository, change: str, commit: str, made: str | None) -> str:
    """Sets all refs in one step. The commits of an earlier change of that name are kept under a number."""
    over: dict[str, str | None] = dict.fromkeys(one + change for one in (layout.BRANCHES, layout.BASE, layout.START))
    earlier = repository.resolve(layout.FINISHED + change)
    if earlier and earlier != commit:
        taken = repository.refs(f"{layout.FINISHED_BEFORE}{change}/")
        number = next(number for number in count(1) if f"{layout.FINISHED_BEFORE}{change}/{number}" not in taken)
        over[f"{layout.FINISHED_BEFORE}{change}/{number}"] = earlier
    merged = {repository.head(): made} if made else {}
    repository.set_refs({**over, layout.FINISHED + change: commit, **merged})
    return layout.FINISHED + change


# --- the plan, which may be edited ------------------------------------------------------------------


def _take_up_plan(place: SpecPlace, commit: str) -> str:
    """The user's edits to the plan are committed to the branch first: from then on they can't be lost."""
    repository, paths = place.repository, place.list_paths()
    start = user_plan.find_seen(repository, place.change, paths)
    if start is None:
        return commit
    theirs = user_plan.take_files(repository, paths)
    if user_plan.is_left_behind(repository, place.change, paths, repository.files_at(theirs, *paths)):
        return commit
    try:
        merged = user_plan.merge(place, start, commit, theirs)
    except UnusablePlan:
        merged = user_plan.take_as_it_is(place, start, commit, theirs)
    if merged is None:
        return commit
    made = repository.commit(merged.tree, [commit], plan_edits.build_message(place.change, merged.edit))
    seen = repository.commit(theirs, [], plan_edits.build_note(place.change, merged.edit))
    repository.set_refs({layout.BRANCHES + place.change: made, layout.START + place.change: seen})
    return made


def _is_applied(repository: Repository, changed: Sequence[ChangedFile]) -> bool:
    """Whether index and files already have all the work: an earlier `finish` was killed just after applying it."""
    lines = repository.list_items("ls-files", "-z", "--stage", "--full-name", ":/", own_index=False)
    index = {line.partition("\t")[2]: line.split(" ")[1] for line in lines}
    differing = set(repository.list_items("diff-files", "-z", "--name-only", own_index=False))
    return all(index.get(one.path) == one.new_blob and one.path not in differing for one in changed)


def _remove_rest(repository: Repository, root: str, change: str, left: LeftTrees) -> tuple[str, ...]:
    """The records last: if this is killed, the next `finish` finds the rest by them. Returns notices."""
    stuck = slots.remove_left(repository, left)
    _remove_records(root, change)
    return (*left.notices, *stuck)


def _remove_records(root: str, change: str) -> None:
    """Questions are archived: their stories no longer exist."""
    known = change_state.load(root, change)
    for state in known.stories.values():
        if state.question:
            questions.archive(questions.path_of(root, state.question.name))
    rest = _build_rest(root, change, known)
    if _is_empty(rest):
        files.remove(change_state.path_of(root, change))
    else:
        change_state.save(root, change, rest)
    steering.clear(root, change, rest.heeded)


def _build_rest(root: str, change: str, known: ChangeState) -> ChangeState:
    """What is claimed of the finished work, and what a person has decided about it: both are still reported. The next
    prompt of a story that was rejected has the reason."""
    rejected = {id: one for id, one in known.stories.items() if change_state.is_rejected(one)}
    applied = [one.id for one in steering.list_pending(root, change) if one.id in known.heeded]
    return ChangeState(spec=known.spec, stories=rejected, finished=known.finished, heeded=applied)


def _is_empty(rest: ChangeState) -> bool:
    return rest == ChangeState(spec=rest.spec)


def _has_records(root: str, change: str) -> bool:
    """Whether there is more than what a complete `finish` leaves."""
    known = change_state.load(root, change)
    is_whole = known == _build_rest(root, change, known) and not _is_empty(known)
    return os.path.exists(change_state.path_of(root, change)) and not is_whole


def _keep_receipts(root: str, change: str) -> None:
    """A later run must know what is claimed of this work, though its checkpoints are gone by then."""
    known = change_state.load(root, change)
    claims = receipts.read_receipts(root, change)
    if claims:
        known.finished = {id: _accept(one) if one.state == "unproven" else one for id, one in claims.items()}
        change_state.save(root, change, known)


def _accept(claim: Receipt) -> Receipt:
    """Unproven work counts as accepted: `finish` names it, and the user merges it as it is."""
    told = (*claim.told, f"it was not proven: {claim.why}")
    return structs.replace(claim, state="accepted", why="you finished the change with it", told=told, at=session.now())


def _check_obstacles(repository: Repository, change: str, changed: Sequence[ChangedFile]) -> None:
    """Git writes file by file, and stops halfway where something that the work does not remove is in the way."""
    removed = {
        os.path.join(repository.top, one.old_path) for one in changed if one.new_blob is None or one.status == "R"
    }
    for one in changed:
        full = os.path.join(repository.top, one.path)
        above = os.path.dirname(full)
        while not os.path.lexists(above):
            above = os.path.dirname(above)
        is_folder = os.path.isdir(full) and not os.path.islink(full) and not one.is_submodule
        is_blocked_above = os.path.islink(above) or not os.path.isdir(above)
        place = full if is_folder and one.new_blob else above if is_blocked_above else None
        if place and not _is_removed(place, removed):
            raise GitError(
                f"{one.path} can't be written, because something else is in its place: move it away, then try again"
            )


def _is_removed(path: str, removed: Set[str]) -> bool:
    """Whether the work removes a file or link, or everything in a folder: git then removes the folder, too."""
    if os.path.islink(path) or not os.path.isdir(path):
        return path in removed
    names = os.listdir(path)
    return bool(names) and all(_is_removed(os.path.join(path, name), removed) for name in names)


def _find_trees(place: SpecPlace, head: str | None, commit: str) -> tuple[str, str]:
    """The user's tree without and with the branch's work. The plan is taken from the branch, which has both sides."""
    repository = place.repository
    new = repository.tree_of(commit)
    if head is None:
        return repository.empty_tree, new
    base = repository.text("merge-base", head, commit, check=False)
    old = repository.tree_of(head)
    if base == head:
        return old, new
    before = repository.tree_of(base) if base else repository.empty_tree
    sides = [place.take_from(tree, new) if place.ref else tree for tree in (before, old)]
    merged = revert.merge(repository, sides[0], sides[1], new)
    if merged.conflicts:
        paths = ", ".join(printable(path) for path in merged.conflicts[:3])
        raise GitError(
            f"ralph/{place.change} and your branch changed the same lines ({paths}): merge by hand "
            f"({_describe_merge(place)})"
        )
    return old, merged.tree


def _describe_merge(place: SpecPlace) -> str:
    """Git refuses to merge over uncommitted files of the plan. The branch has all edits of them."""
    there = [path for path in place.list_paths() if os.path.lexists(os.path.join(place.repository.top, path))]
    top = [f":(top,literal){path}" for path in there]
    command = ("--no-optional-locks", "status", "--porcelain", "-z", "--untracked-files=all", "--", *top)
    merge = f"git merge ralph/{place.change}"
    if not there or not place.repository.list_items(*command, own_index=False):
        return f"`{merge}`"
    named = " ".join(shlex.quote(f":/{path}") for path in there)
    stash = f"git stash push --include-untracked -- {named}"
    return f"`{stash} && {merge}`; the stash has your copy of the plan, and the branch has its edits, too"


def _keep_own_folder(repository: Repository, root: str, commit: str) -> str:
    """The branch's last commit, or one with the same work that leaves `.ralph` alone: its files belong to the user
    and to ralphtool, and change during a run."""
    inside = os.path.relpath(os.path.realpath(layout.folder(root)), os.path.realpath(repository.top))
    base = repository.text("merge-base", "HEAD", commit, check=False)
    if not base:
        return commit
    changed = [one.path for one in repository.changed(base, commit) if Paths([inside]).cover(one.path)]
    if not changed:
        return commit
    tree = build_mixed_tree(repository, commit, base, changed, {})
    return repository.commit(tree, [commit], "ralphtool: the work alone\n")


class _SpecFilesAside:
    """The change's own files may be uncommitted or edited here. A ref keeps them, so they can be moved away."""

    def __init__(self, place: SpecPlace, paths: Sequence[str]) -> None:
        repository = self.repository = place.repository
        self._index = os.path.join(repository.gitdir, "index")
        seen = repository.resolve(layout.START + place.change)
        known = repository.files_at(seen, ".") if seen else {}
        self._paths = [path for path in paths if path in known and self._has_content(known[path], path)]
        self._kept = files.read(self._index) if os.path.exists(self._index) else None

    def _full_path(self, path: str) -> str:
        return os.path.join(self.repository.top, path)

    def _has_content(self, data: bytes, path: str) -> bool:
        """Line endings may differ, if git is configured to convert them."""
        full = self._full_path(path)
        return os.path.isfile(full) and (files.read(full) == data or self._read_as_git(path) == data)

    def _read_as_git(self, path: str) -> bytes | None:
        """A file as git would commit it."""
        return self.repository.files_at(user_plan.take_files(self.repository, [path]), path).get(path)

    def _aside_path(self, path: str) -> str:
        return os.path.join(self.repository.gitdir, "ralph", "finish", path)

    def restore_leftovers(self) -> None:
        """Moves back files that a killed `finish` left aside, except where another file is in their place now."""
        top = os.path.join(self.repository.gitdir, "ralph", "finish")
        for folder, _, names in os.walk(top):
            for name in names:
                path = os.path.relpath(os.path.join(folder, name), top)
                if not os.path.lexists(self._full_path(path)) or self._is_as_committed(path):
                    os.makedirs(os.path.dirname(self._full_path(path)), exist_ok=True)
                    os.replace(self._aside_path(path), self._full_path(path))
        files.clear(top)

    def _is_as_committed(self, path: str) -> bool:
        head = self.repository.resolve("HEAD")
        known = self.repository.files_at(head, path).get(path) if head else None
        return known is not None and self._has_content(known, path)

    def __enter__(self) -> None:
        for path in self._paths:
            os.makedirs(os.path.dirname(self._aside_path(path)), exist_ok=True)
            os.rename(self._full_path(path), self._aside_path(path))
        if self._paths:
            spec = [f":(top,literal){path}" for path in self._paths]
            self.repository.run("rm", "-q", "--cached", "--ignore-unmatch", "--", *spec, own_index=False)
            if self.repository.resolve("HEAD"):
                self._restore_committed()

    def _restore_committed(self) -> None:
        listed = self.repository.list_items(
            "ls-tree", "-r", "-z", "--name-only", "--full-tree", "HEAD", "--", *self._paths
        )
        if listed:
            spec = [f":(top,literal){path}" for path in listed]
            options = ("--source=HEAD", "--staged", "--worktree")
            self.repository.run("restore", *options, "--", *spec, own_index=False)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        for path in self._paths:
            if kind:
                os.replace(self._aside_path(path), self._full_path(path))
            else:
                os.unlink(self._aside_path(path))
        if kind and self._kept is not None:
            files.replace(self._index, self._kept)


def _apply(repository: Repository, change: str, old: str, new: str) -> None:
    patch = _diff(repository, old, new)
    try:
        _apply_patch(repository, patch)
    except GitError as error:
        raise _build_conflict_error(repository, change, old, new, str(error)) from None


def _diff(repository: Repository, old: str, new: str, *paths: str) -> bytes:
    spec = [f":(top,literal){path}" for path in paths]
    return repository.run("diff-tree", "-p", "--binary", "--full-index", old, new, "--", *spec)


def _apply_patch(repository: Repository, patch: bytes, *options: str) -> None:
    if patch:
        repository.run("apply", "--index", "--whitespace=nowarn", *options, "-", input=patch, own_index=False)


def _build_conflict_error(repository: Repository, change: str, old: str, new: str, words: str) -> GitError:
    if paths := _find_conflicting(repository, old, new):
        return GitError(
            f"your uncommitted changes in {join_first(paths)} conflict with ralph/{change}: commit or stash them, and "
            "try again. Nothing was changed"
        )
    said = "; ".join(line.strip() for line in words.splitlines())
    return GitError(
        f"git can't apply the work of ralph/{change} to your files ({said}): commit or stash your uncommitted changes, "
        "and try again"
    )


def _find_conflicting(repository: Repository, old: str, new: str) -> list[str]:
    """The files with uncommitted changes to which the work does not apply."""
    edited = {
        path
        for options in ((), ("--cached",))
        for path in repository.list_items("diff-index", "-z", "--name-only", *options, old, own_index=False)
    }
    changed = repository.changed(old, new)
    untracked = {one.path for one in changed if one.status in "AR" and _is_there(repository, one)}
    wanted = sorted(untracked | (edited & {path for one in changed for path in (one.old_path, one.path)}))
    return [path for path in wanted if not _applies(repository, _diff(repository, old, new, path))]


def _is_there(repository: Repository, one: ChangedFile) -> bool:
    return os.path.lexists(os.path.join(repository.top, one.path))


def _applies(repository: Repository, patch: bytes) -> bool:
    try:
        _apply_patch(repository, patch, "--check")
    except GitError:
        return False
    return True
