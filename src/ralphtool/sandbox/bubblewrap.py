"""The command line of a box: what is shown where, and what may be written. Nothing is run here.

Later mounts cover earlier ones: first the whole machine, read-only; then empty folders over what is private; then the
worktree over the project, git, the installed environments, and what was asked for by name.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GIT = "/run/ralph/git"  # the repository, in the box
OBJECTS = "/run/ralph/objects"  # what git writes there
NETWORK = "/run/ralph/network"  # the way out
PROGRAMS = "/run/ralph/programs"  # files of the user's own tree that a command names
_EMPTY = ("/tmp", "/var/tmp", "/run")  # noqa: S108
# Settings of the kernel for the whole machine, which root may write to without any capability.
_KERNEL = ("/proc/sys", "/proc/fs", "/proc/acpi", "/proc/scsi")


class GitPlace(Struct, frozen=True, kw_only=True):
    """A repository that the box may read, and one working tree of it that is the box's own."""

    common: str
    name: str  # of the working tree, below `worktrees` of the repository
    own: str  # what is shown in the place of its git folder: git outside of the box never looks there
    objects: str  # where objects go that are made in the box
    link: str  # a file that stands in for `.git`

    @property
    def inside(self) -> str:
        return f"{GIT}/worktrees/{self.name}"


class Layer(Struct, frozen=True, kw_only=True):
    """An installed environment, such as `.venv`, as the box has it."""

    source: str  # the user's own
    place: str  # where it is shown; empty: somebody else sees to that
    above: tuple[str, ...] = ()  # folders that cover the source, the first of them all others
    upper: str = ""  # where changes go; empty: there are none, it is read-only
    work: str = ""
    merged: str = ""


class BoxPlan(Struct, frozen=True, kw_only=True):
    """One box, as it will be made."""

    top: str  # where the worktree is shown: the root of the user's repository
    slot: str  # the worktree
    is_read_only: bool = False  # nothing in the worktree may be changed
    home: str
    homes: tuple[str, ...] = ()  # of others, with all that is in them: not shown either
    git: GitPlace | None = None
    read: tuple[str, ...] = ()  # shown where they are, read-only
    write: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()  # read-only again, in what may be written
    hidden: tuple[str, ...] = ()  # files and folders in them that are not shown
    sockets: tuple[str, ...] = ()  # of daemons: nothing is at their place
    temporary: str = ""  # a folder for temporary files besides /tmp
    cache: str = ""  # what is `~/.cache` in the box
    programs: tuple[tuple[str, str], ...] = ()  # single files, and where they are shown
    copies: tuple[tuple[str, str], ...] = ()  # and those that may be written
    layers: tuple[Layer, ...] = ()
    has_network: bool = True  # the machine's own
    network: str = ""  # the folder with the proxy's socket, where that is the only way out
    # The programs that make it, by their paths: an agent's PATH has no say in that.
    bwrap: str = "/usr/bin/bwrap"
    unshare: str = "/usr/bin/unshare"
    mount: str = "/usr/bin/mount"
    as_user: tuple[int, int] | None = None  # user and group in the box, where the mounts need a namespace of their own


def build_command(plan: BoxPlan, argv: Sequence[str], cwd: str) -> list[str]:
    """How a program is started in a box. It keeps the environment of whoever starts this."""
    box = [plan.bwrap, *_list_options(plan, cwd), *_list_mounts(plan), "--", *argv]
    return build_overlay_command(plan, box)


def build_overlay_command(plan: BoxPlan, command: Sequence[str]) -> list[str]:
    """How a command is started with the overlays of a box, in a mount namespace of its own."""
    overlays = [layer for layer in plan.layers if layer.upper]
    if not overlays:
        return list(command)
    lines = [*(_build_mount(layer, plan) for layer in overlays), *(_build_mask(path, plan) for path in plan.sockets)]
    script = "".join(f"{line} || exit 125\n" for line in lines) + 'exec "$@"\n'
    own = ("--user", "--map-root-user") if plan.as_user else ()
    return [plan.unshare, *own, "--mount", "--propagation", "private", "--", "/bin/sh", "-c", script, "box", *command]


def _list_options(plan: BoxPlan, cwd: str) -> Iterator[str]:
    yield from ("--unshare-all", "--die-with-parent", "--new-session", "--hostname", "box", "--chdir", cwd)
    # Root keeps its capabilities otherwise, also that of a namespace: enough to mount and unmount.
    yield from ("--cap-drop", "ALL")
    if plan.has_network:
        yield "--share-net"
    if plan.as_user and any(layer.upper for layer in plan.layers):
        user, group = plan.as_user
        yield from ("--unshare-user", "--uid", str(user), "--gid", str(group))


def _list_mounts(plan: BoxPlan) -> Iterator[str]:
    yield from ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
    for folder in _KERNEL if plan.as_user is None else ():
        yield from ("--ro-bind-try", folder, folder)
    for folder in dict.fromkeys(filter(None, [*_EMPTY, *plan.homes, plan.home, plan.temporary])):
        yield from ("--tmpfs", folder)
    yield from ("--ro-bind-try", "/run/systemd/resolve", "/run/systemd/resolve")
    if plan.cache:
        yield from ("--bind", plan.cache, os.path.join(plan.home, ".cache"))
    for path in plan.read:
        yield from ("--ro-bind-try", path, path)
        if plan.temporary.startswith(f"{path}/"):  # which is covered now, and has to be writable
            yield from ("--tmpfs", plan.temporary)
    is_masked = any(layer.upper for layer in plan.layers)  # they are covered already, where the overlays are made
    yield from _list_hiding_mounts((*plan.hidden, *(() if is_masked else plan.sockets)))
    yield from ("--ro-bind" if plan.is_read_only else "--bind", plan.slot, plan.top)
    yield from _list_git_mounts(plan)
    yield from _list_copied_mounts(plan)
    # What lies deeper comes later: a folder that is kept may have one in it that is written.
    for path in sorted({*plan.write, *plan.kept}):
        yield from ("--bind" if path in plan.write else "--ro-bind", path, path)
    if plan.network:
        yield from ("--ro-bind", plan.network, NETWORK)
    for path, place in plan.programs:
        yield from ("--ro-bind", path, place)


def _list_hiding_mounts(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        yield from ("--tmpfs", path) if os.path.isdir(path) else ("--ro-bind", "/dev/null", path)


def _list_copied_mounts(plan: BoxPlan) -> Iterator[str]:
    """What the user has, and the box has for itself."""
    for path, place in plan.copies:
        yield from ("--bind", path, place)
    for layer in filter(lambda layer: layer.place, plan.layers):
        yield from ("--bind", layer.merged, layer.place) if layer.upper else ("--ro-bind", layer.source, layer.place)


def _list_git_mounts(plan: BoxPlan) -> Iterator[str]:
    if git := plan.git:
        yield from ("--ro-bind", git.common, GIT, "--bind", git.own, git.inside)
        yield from ("--bind", git.objects, OBJECTS, "--ro-bind", git.link, os.path.join(plan.top, ".git"))


def _build_mount(layer: Layer, plan: BoxPlan) -> str:
    lower = ":".join(map(_escape, (*layer.above, layer.source)))
    options = f"lowerdir={lower},upperdir={_escape(layer.upper)},workdir={_escape(layer.work)}"
    # Without privileges, the marks of the overlay are attributes that a user may write.
    more = ",userxattr" if plan.as_user else ""
    return f"{plan.mount} -t overlay overlay -o {shlex.quote(options + more)} {shlex.quote(layer.merged)}"


def _build_mask(path: str, plan: BoxPlan) -> str:
    """A socket may be gone by now, with the daemon that listened on it."""
    quoted = shlex.quote(path)
    return f"{plan.mount} --bind /dev/null {quoted} 2>/dev/null || test ! -e {quoted}"


def _escape(path: str) -> str:
    return path.replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")
