"""The command line of a box: what is mounted where, and what is writable. Nothing is run here.

Later mounts cover earlier ones: first the whole machine, read-only; then empty folders over private ones; then the
worktree over the project, git, the installed environments, and everything that was requested by name.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GIT = "/run/ralph/git"  # the repository, in the box
OBJECTS = "/run/ralph/objects"  # the objects that git writes there
NETWORK = "/run/ralph/network"  # the folder with the proxy's socket
PROGRAMS = "/run/ralph/programs"  # files of the user's own tree that a command names
_EMPTY = ("/tmp", "/var/tmp", "/run")  # noqa: S108
# Kernel settings of the whole machine, which root may write without any capability.
_KERNEL = ("/proc/sys", "/proc/fs", "/proc/acpi", "/proc/scsi")


class GitPlace(Struct, frozen=True, kw_only=True):
    """A repository that the box may read, and one of its working trees, which belongs to the box."""

    common: str
    name: str  # of the working tree, below the repository's `worktrees`
    own: str  # mounted in place of its git folder: git outside the box never reads it
    objects: str  # where objects created in the box are written
    link: str  # a file that replaces `.git`

    @property
    def inside(self) -> str:
        return f"{GIT}/worktrees/{self.name}"


class Layer(Struct, frozen=True, kw_only=True):
    """An installed environment, such as `.venv`, as the box has it."""

    source: str  # the user's own
    place: str  # where it is mounted; empty: another mount shows it
    above: tuple[str, ...] = ()  # folders that cover the source; the first is on top
    upper: str = ""  # where changes go; empty: it is read-only
    work: str = ""
    merged: str = ""


class BoxPlan(Struct, frozen=True, kw_only=True):
    """The plan of one box."""

    top: str  # where the worktree is mounted: the root of the user's repository
    slot: str  # the worktree
    is_read_only: bool = False  # nothing in the worktree may be changed
    home: str
    homes: tuple[str, ...] = ()  # folders with the homes of all users: not shown either
    git: GitPlace | None = None
    read: tuple[str, ...] = ()  # at their own paths, read-only
    write: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()  # read-only, inside writable folders
    hidden: tuple[str, ...] = ()  # files and folders inside these that are not shown
    sockets: tuple[str, ...] = ()  # of daemons: masked
    temporary: str = ""  # a folder for temporary files besides /tmp
    cache: str = ""  # the folder that is `~/.cache` in the box
    programs: tuple[tuple[str, str], ...] = ()  # single files, and where they are mounted
    copies: tuple[tuple[str, str], ...] = ()  # the same for writable ones
    layers: tuple[Layer, ...] = ()
    has_network: bool = True  # the machine's own network
    network: str = ""  # the folder with the proxy's socket, if that is the only way out
    # The programs that create it, by absolute path: an agent's PATH must not influence that.
    bwrap: str = "/usr/bin/bwrap"
    unshare: str = "/usr/bin/unshare"
    mount: str = "/usr/bin/mount"
    as_user: tuple[int, int] | None = None  # user and group in the box, if the mounts need a separate namespace


def build_command(plan: BoxPlan, argv: Sequence[str], cwd: str) -> list[str]:
    """The command that starts a program in a box. It keeps the environment of its caller."""
    box = [plan.bwrap, *_list_options(plan, cwd), *_list_mounts(plan), "--", *argv]
    return build_overlay_command(plan, box)


def build_overlay_command(plan: BoxPlan, command: Sequence[str]) -> list[str]:
    """The command that starts another with the overlays of a box, in a separate mount namespace."""
    overlays = [layer for layer in plan.layers if layer.upper]
    if not overlays:
        return list(command)
    lines = [*(_build_mount(layer, plan) for layer in overlays), *(_build_mask(path, plan) for path in plan.sockets)]
    script = "".join(f"{line} || exit 125\n" for line in lines) + 'exec "$@"\n'
    own = ("--user", "--map-root-user") if plan.as_user else ()
    return [plan.unshare, *own, "--mount", "--propagation", "private", "--", "/bin/sh", "-c", script, "box", *command]


def _list_options(plan: BoxPlan, cwd: str) -> Iterator[str]:
    yield from ("--unshare-all", "--die-with-parent", "--new-session", "--hostname", "box", "--chdir", cwd)
    # Otherwise root, even that of a namespace, keeps its capabilities: enough to mount and unmount.
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
        if plan.temporary.startswith(f"{path}/"):  # it is covered now, but must be writable
            yield from ("--tmpfs", plan.temporary)
    is_masked = any(layer.upper for layer in plan.layers)  # already masked where the overlays are mounted
    yield from _list_hiding_mounts((*plan.hidden, *(() if is_masked else plan.sockets)))
    yield from ("--ro-bind" if plan.is_read_only else "--bind", plan.slot, plan.top)
    yield from _list_git_mounts(plan)
    yield from _list_copied_mounts(plan)
    # Deeper paths come later: a read-only folder may contain a writable one.
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
    """The user's files and folders of which the box has its own version."""
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
    # Without privileges, the overlay stores its marks in attributes that a user may write.
    more = ",userxattr" if plan.as_user else ""
    return f"{plan.mount} -t overlay overlay -o {shlex.quote(options + more)} {shlex.quote(layer.merged)}"


def _build_mask(path: str, plan: BoxPlan) -> str:
    """The socket may have disappeared meanwhile, with its daemon."""
    quoted = shlex.quote(path)
    return f"{plan.mount} --bind /dev/null {quoted} 2>/dev/null || test ! -e {quoted}"


def _escape(path: str) -> str:
    return path.replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")
