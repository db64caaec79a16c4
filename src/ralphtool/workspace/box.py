"""A worktree that programs see at the project's own path, in a sandbox: the user's own tree is not even visible."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import structs

from ralphtool.core import files, layout
from ralphtool.errors import GitError
from ralphtool.sandbox import beneath, layers
from ralphtool.sandbox.agent_home import AgentHome
from ralphtool.sandbox.confinement import find_home
from ralphtool.workspace import submodules
from ralphtool.workspace.git import SUBMODULE
from ralphtool.workspace.ignored import IgnoredFiles
from ralphtool.workspace.lent_index import read_state
from ralphtool.workspace.paths import Paths, printable
from ralphtool.workspace.private_git import PrivateGit, replace_changed
from ralphtool.workspace.shared_branch import BranchConflict, SharedBranch, check_committed, list_checked_out
from ralphtool.workspace.worktree import Worktree

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ralphtool.sandbox.bubblewrap import GitPlace, Layer
    from ralphtool.sandbox.layers import BoxFolder
    from ralphtool.workspace.git import ChangedFile, Repository

_MOST_IN_FILE = 1 << 30  # bytes


class Box(Worktree):
    """A separate working tree, with the user's installed environments, that a sandbox shows in place of theirs."""

    def __init__(
        self,
        repository: Repository,
        project: str,
        change: str,
        must_end: Callable[[], bool] = lambda: False,
        slot: int = 0,
    ) -> None:
        super().__init__(repository, project, change, must_end, slot)
        self.shown_root = project  # where programs see `root`
        self.top = repository.top
        self._folders: list[BoxFolder] = []
        self._dropped: set[str] = set()  # those that git no longer ignores
        self._uppers: dict[str, str] = {}
        self._submodules: list[str] = []
        self._files_to_copy: list[str] = []
        self._unreadable: list[str] = []
        self._agent_home: AgentHome | None = None
        self._merged = ""  # the notice about the user's own commits
        self._store = os.path.join(layout.in_git(repository.common), "boxes", self.slot_name)
        self._is_attempt = True  # programs write for an attempt; otherwise for a checkpoint, which is proven
        self._ignored_at_home: list[str] | None = None  # what git ignores in the user's tree; None: not listed yet
        self._lent: tuple[object, ...] = ()  # the known state of the programs' git folder; empty: unknown
        self._has_run = True  # a program, since ignored files were last listed, or in a killed run

    def open(self, run: str, own_files: Sequence[str]) -> list[str]:
        for place in list_checked_out(self.home, self.ref) if self.slot_name == self.change else ():
            check_committed(place, self.ref, [self.ours])
        told = super().open(run, own_files)
        self._make_usable()
        told.pop()  # the worktree's path is internal
        if self._unreadable:
            told.append(describe_unreadable(self._unreadable))
        if fixed := [one.path for one in self._folders if not one.store]:
            verb = "is" if len(fixed) == 1 else "are"
            told.append(f"this machine does not support overlays: {_join(fixed)} {verb} read-only in the box")
        return told

    def _make_usable(self) -> None:
        self._make_mount_points()
        self._lend_index()

    def open_beside(self, first: Box) -> None:
        """Opens another box of a run. What all of them have in common is not looked up again: for eight boxes, that
        would take as long as the work of eight stories."""
        if os.path.lexists(self.place):
            self.open(self.change, ())
            return
        self._advance(first.tip, first._tip_tree)
        self._ignored_at_home, self._has_overlay = first._ignored_at_home, first._has_overlay
        self._use_prepared(first.repository.at(self.place, self._add_worktree()))
        self.rest()  # until a story begins here
        self._fill_new()
        self._make_usable()
        self._has_run = bool(self._folders)  # otherwise there is nothing that git could ignore

    def _find_ignored(self) -> IgnoredFiles:
        if self.is_new:
            layers.remove_folder(self._store)  # it must be set up again
        if self._ignored_at_home is None:
            self._ignored_at_home = self._list_ignored()
        known = layers.find_ignored(self._ignored_at_home, Paths([self.ours]).cover, is_home=self._is_in_home)
        self._unreadable = layers.list_unreadable(self.top, known)
        self._files_to_copy = known.files
        inside = self._list_submodules()
        self._submodules = inside if self._has_overlay else []
        readable = [path for path in known.folders if path not in self._unreadable]
        self._folders = [self._build_folder(path) for path in [*readable, *self._submodules]]
        self._folders += self._list_made({one.path for one in self._folders})
        for folder in self._folders:
            folder.prepare()
        self._hide_submodule_links()
        self._uppers |= {one.path: one.upper for one in self._folders if one.upper}
        return IgnoredFiles(self.repository, Paths([self.ours]), self._uppers)

    def _build_folder(self, path: str, source: str = "") -> BoxFolder:
        store = os.path.join(self._store, "made" if source else "layers")
        return layers.build_folder(self.top, path, store, source=source, with_overlay=self._has_overlay)

    def _list_made(self, known: Collection[str]) -> list[BoxFolder]:
        """Folders that only the setup created, not the user."""
        made = os.path.join(self._store, "made")
        names = map(layers.unquote, os.listdir(made) if os.path.isdir(made) else ())
        return [self._build_folder(path, self._make_nothing()) for path in names if path not in known]

    def _make_nothing(self) -> str:
        """An empty folder."""
        path = os.path.join(self._store, "nothing")
        os.makedirs(path, exist_ok=True)
        return path

    @property
    def _is_in_home(self) -> bool:
        """Whether the repository is the user's home, or contains it."""
        top, home = os.path.realpath(self.top), find_home()
        return top == home or beneath.is_below(home, top)

    @cached_property
    def _has_overlay(self) -> bool:
        return layers.can_overlay(self._store)

    def show_agents_files(self, needs: Sequence[str], logins: Sequence[str]) -> AgentHome:
        """The agents' own files, renewed for each attempt."""
        has_overlay = self._has_overlay if needs else False
        self._agent_home = AgentHome(needs, logins, os.path.join(self._store, "home"), with_overlay=has_overlay)
        self._agent_home.renew()
        return self._agent_home

    def _list_submodules(self) -> list[str]:
        """The submodules that the user has checked out at the commit that the last checkpoint names."""
        if not os.path.isfile(os.path.join(self.top, ".gitmodules")):
            return []
        registered = submodules.list_registered(self.home)
        rows = (
            self.home.list_items("ls-tree", "-r", "-z", "--full-tree", self.tip, "--", *registered)
            if registered
            else []
        )
        wanted = {path: about.split(" ")[2] for about, _, path in (row.partition("\t") for row in rows)}
        return [path for path, commit in wanted.items() if submodules.read_head(self.home, path) == commit]

    def _hide_submodule_links(self) -> None:
        """A submodule's `.git` names a folder that is not in the box: without it, git treats the submodule as empty."""
        for folder in self._folders:
            if folder.path in self._submodules:
                layers.hide(folder.base, ".git")

    def _list_ignored(self) -> list[str]:
        options = ("--others", "--ignored", "--exclude-standard", "--directory", "--no-empty-directory", "--full-name")
        return self.home.list_items("ls-files", "-z", *options, "--", ":/", own_index=False)

    def _make_mount_points(self) -> None:
        """A file or folder must exist for something to be mounted in its place. Git looks at the folder below the
        mount: if it ignores itself, it must do so there, too."""
        for folder in self._list_shown():
            beneath.make_folder(self.place, folder.path)
            own = os.path.join(self.place, folder.path, ".gitignore")
            if not os.path.lexists(own) and (data := folder.read_own_ignore()):
                files.replace(own, data)
        beneath.make_folder(self.place, self.ours)
        os.makedirs(layout.folder(self.shown_root), exist_ok=True)

    @property
    def _private_git(self) -> PrivateGit:
        return PrivateGit(self.repository, self._store, self.top)

    @property
    def git(self) -> GitPlace:
        return self._private_git.place

    def _use(self, repository: Repository) -> None:
        repository.ignore_drivers()
        super()._use(repository)

    def _use_prepared(self, repository: Repository) -> None:
        super()._use_prepared(repository)
        self.protected_git.is_out_of_reach = True

    # --- what programs see, each time one starts ---------------------------------------------------

    def list_layers(self) -> list[Layer]:
        self._has_run, self._lent = True, ()
        return [one.build_layer(is_attempt=self._is_attempt) for one in self._list_shown()]

    def _list_shown(self) -> list[BoxFolder]:
        return [one for one in self._folders if one.path not in self._dropped]

    def find_cache(self, purpose: str) -> Layer | str:
        """Agents have a separate cache. The gates of an attempt write to a layer over the checkpoints' cache, which is
        removed with the attempt: its code could leave something there for the next one."""
        folder = os.path.join(self._store, "caches", purpose)
        layers.make_usable(folder)
        if purpose == "agent" or not self._is_attempt:
            return folder
        if not self._has_overlay:
            layers.make_usable(self._attempt_cache.upper)
            return self._attempt_cache.upper
        self._attempt_cache.prepare()
        return structs.replace(self._attempt_cache.build_layer(is_attempt=True), source=folder, place="")

    @property
    def _attempt_cache(self) -> BoxFolder:
        return layers.build_folder("/", "attempt", os.path.join(self._store, "caches"), source=self._make_nothing())

    # --- an iteration ---------------------------------------------------------------------------

    def begin(self, kept: str | None, cut_off: str | None = None) -> str | None:
        is_dirty, before = self._has_run, self._files
        files.remove(self._rest_path)
        if is_dirty:
            self._settle_ignored()
        trouble = super().begin(kept, cut_off)
        self._detach()
        self._is_attempt = bool(kept or cut_off)
        if is_dirty or self._dropped or self._files != before:
            self._dropped = self._find_unignored()
        layers.copy_files(self.top, self.place, self._leave_out_committed(self._files_to_copy))
        if os.path.isdir(self._made_files):
            made = layers.list_written(self._made_files)
            layers.copy_files(self._made_files, self.place, self._leave_out_committed(made))
        if self._agent_home:
            self._agent_home.renew()
        self._make_mount_points()
        return trouble

    def _leave_out_committed(self, paths: Sequence[str]) -> list[str]:
        """The paths that the tree in place lacks. A run commits a spec even if git ignores it, and an attempt may stop
        ignoring a file: from then on the branch's version counts, not the user's."""
        entries = self.repository.list_entries(self._files or self._tip_tree, paths) if paths else []
        known = [os.fsdecode(entry.partition(b"\t")[2]) for entry in entries]
        return [path for path in paths if not any(one == path or beneath.is_below(one, path) for one in known)]

    def _detach(self) -> None:
        """Only ralphtool moves HEAD, and its commit always exists. The user may use the branch."""
        replace_changed(os.path.join(self.repository.gitdir, "HEAD"), f"{self.tip}\n".encode())
        files.clear(os.path.join(self.repository.gitdir, "logs"))

    def _lend_index(self) -> None:
        """Does nothing if it is already lent and no program has run since: picking a story calls this often."""
        lent = (self.tip, *read_state(self.repository.index))
        if lent != self._lent:
            self._private_git.drop_objects()
            self._private_git.renew(self.tip)
            self._lent = lent

    def show_upon(self, tip: str, tree: str) -> None:
        super().show_upon(tip, tree)
        self._detach()
        self._dropped = self._find_unignored()  # other stories may have files where this one had ignored ones
        self._make_mount_points()

    def move_upon(self, tip: str) -> None:
        """Keeps the files, and moves to another commit with the same tree."""
        self.catch_up(tip)
        self._lend_index()
        self._detach()

    def rest(self) -> None:
        """The files here are committed: after a kill they don't count as unfinished work."""
        with open(self._rest_path, "wb"):
            pass

    @property
    def _rest_path(self) -> str:
        return os.path.join(self.repository.gitdir, "ralph-is-at-rest")

    @property
    def _is_at_rest(self) -> bool:
        return os.path.exists(self._rest_path)

    def _lend_to_gates(self) -> None:
        self._private_git.renew(self.tip)

    # --- the branch, which the user may change too ------------------------------------------------

    @property
    def _shared_branch(self) -> SharedBranch:
        return SharedBranch(self.repository, self.ref, self.change, self._must_end)

    def _undo_branch_moves(self) -> None:
        """No move can be an agent's: it can't reach refs."""

    def follow_branch(self) -> str:
        try:
            newer = self._shared_branch.find_newer(self.tip)
        except BranchConflict as error:
            raise self._refuse(self.tip, error) from None
        if newer:
            self._follow(newer)
            self._merged = f"you committed to {self.branch}: the run continues from your commit {newer[:10]}"
        told, self._merged = self._merged, ""
        return told

    def _follow(self, commit: str) -> None:
        self._advance(commit, self.repository.tree_of(commit))
        self._proven = None

    def _move_branch(self, refs: dict[str, str], old: str) -> None:
        self.repository.set_refs(dict(refs))
        made = self.tip
        if made == old:
            return
        self._follow(old)  # until the branch has moved
        try:
            moved = self._shared_branch.move(old, made)
        except BranchConflict as error:
            raise self._refuse(made, error) from None
        self._follow(moved)
        if moved != made:
            self._merged = f"you committed to {self.branch}: your commit and the run's work are merged as {moved[:10]}"

    def _refuse(self, work: str, why: BranchConflict) -> GitError:
        kept = self.keep_commit(self.change, work)
        return GitError(
            f"{why}. The branch is as you left it, and the run's work is kept as {kept}: to use it, run `git merge "
            f"{kept}` on {self.branch}. The next run continues from the branch"
        )

    # --- what git ignores -------------------------------------------------------------------------

    def _settle_ignored(self) -> None:
        """Removes what an attempt left. Files from the setup and the gates of a checkpoint are kept out of reach."""
        self._prepare_look()
        self._has_run = False
        covered = Paths([self.ours, *(one.path for one in self._folders)])
        for path in self.ignored.list_ignored():
            if covered.cover(path) or any(one.path.startswith(path) for one in self._folders):
                continue
            if self._is_attempt or layers.is_cache(path):
                beneath.clear(self.place, path.rstrip("/"))
            elif path.endswith("/") and self._has_overlay:
                self._keep_made_folder(path.rstrip("/"))
            elif path not in self._files_to_copy:
                os.makedirs(self._made_files, exist_ok=True)
                layers.copy_files(self.place, self._made_files, [path])

    @property
    def _made_files(self) -> str:
        return os.path.join(self._store, "made-files")

    def _keep_made_folder(self, path: str) -> None:
        folder = self._build_folder(path, self._make_nothing())
        folder.prepare()
        beneath.move(self.place, path, folder.store, "base")
        self._folders.append(folder)
        self._uppers[path] = folder.upper

    def _find_unignored(self) -> set[str]:
        """Folders with a layer in which the tree has, or may have, files: a layer would hide those."""
        if not self._folders:
            return set()
        self._make_mount_points()
        ignored = Paths(path for path in self.ignored.list_ignored() if path.endswith("/"))
        return {one.path for one in self._folders if one.path not in self._submodules and not ignored.cover(one.path)}

    def _bring_in_unignored(self) -> None:
        """An attempt's files in a folder that it stopped ignoring are part of its work."""
        found = self._find_unignored() - self._dropped
        for folder in self._folders:
            for path in layers.list_written(folder.upper) if folder.upper and folder.path in found else ():
                beneath.move(folder.upper, path, self.place, os.path.join(folder.path, path))
        self._dropped |= found

    def _snapshot(self, before: str) -> tuple[str, list[ChangedFile]]:
        """Saves everything except the contents of submodules: git would enter them, and run the filters there."""
        self._prepare_look()
        self._bring_in_unignored()
        self._refuse_huge()
        spared = self._spared
        self._spared = [*spared, *self._list_entered()]
        try:
            return super()._snapshot(before)
        finally:
            self._spared = spared

    def _list_entered(self) -> list[str]:
        """The submodules and embedded repositories in the separate index whose folder is not empty."""
        rows = self.repository.list_items("ls-files", "-z", "--stage", "--full-name", "--", ":/")
        paths = [row.partition("\t")[2] for row in rows if row.startswith(SUBMODULE)]
        return [path for path in paths if _has_entries(os.path.join(self.place, path))]

    def find_dirty_submodules(self) -> list[str]:
        """The submodules that an attempt changed or filled: a box has their files in a layer, not in the worktree."""
        changed = [one.path for one in self._folders if one.path in self._submodules and _has_entries(one.upper)]
        return [*self._list_entered(), *changed]

    def _refuse_huge(self) -> None:
        """A file of a terabyte is created in no time, but takes an hour to read."""
        options = ("--others", "--modified", "--exclude-standard", "--full-name")
        for path in self.repository.list_items("ls-files", "-z", *options, "--", ":/"):
            full = os.path.join(self.place, path)
            size = os.lstat(full).st_size if os.path.lexists(full) else 0
            if size > _MOST_IN_FILE:
                raise GitError(
                    f"{printable(path)} has {size >> 20} MB and is not committed: the maximum is "
                    f"{_MOST_IN_FILE >> 20} MB"
                )

    def mark_attempt(self) -> None:
        if self._has_run:
            self._settle_ignored()
        self._is_attempt = True
        for folder in (*self._folders, self._attempt_cache):
            folder.begin_attempt()
        self._make_mount_points()
        super().mark_attempt()


def describe_unreadable(paths: Sequence[str]) -> str:
    return f"you have no permission to read {_join(paths)}: it is not in the box"


def _join(paths: Sequence[str]) -> str:
    return ", ".join(printable(path) for path in paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


def _has_entries(folder: str) -> bool:
    return os.path.isdir(folder) and not os.path.islink(folder) and bool(os.listdir(folder))
