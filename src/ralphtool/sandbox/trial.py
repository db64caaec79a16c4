"""Whether a box is available on this machine: tested, not guessed; and if not, why, and what would help."""

from __future__ import annotations

import os
import platform
import subprocess

from msgspec import Struct

from ralphtool.core import programs

_PATIENCE = 20.0  # seconds, for a busy machine


class Tools(Struct, frozen=True, kw_only=True):
    """The programs that create a box."""

    bwrap: str
    unshare: str
    mount: str


class NoBox(Struct, frozen=True, kw_only=True):
    """Why there is no box, and the command or step that helps."""

    why: str
    help: str


def try_box(patience: float = _PATIENCE) -> Tools | NoBox:
    """Starts a real box."""
    if platform.system() != "Linux":
        return NoBox(why=f"boxes need Linux, but this is {platform.system()}", help='set workspace = "worktree"')
    found = {name: _find_program(name) for name in ("bwrap", "unshare", "mount")}
    if not found["bwrap"]:
        return NoBox(why="bubblewrap is not installed", help="sudo apt install bubblewrap")
    if missing := [name for name, path in found.items() if not path]:
        return NoBox(why=f"{missing[0]} is not installed", help="sudo apt install util-linux")
    said = _start([found["bwrap"], "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", *_PROBE], patience)
    return Tools(**found) if said is None else explain(said)


_PROBE = ("--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--", "/bin/true")  # noqa: S108


def _find_program(name: str) -> str:
    """Searches only system folders, so as not to use a project's own program."""
    return programs.find(name, path="/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin:/run/current-system/sw/bin") or ""


def _start(command: list[str], patience: float) -> str | None:
    """The error output if it failed; None if it worked."""
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=patience, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.decode("utf-8", "replace").strip()


def explain(said: str) -> NoBox:
    """Why a box did not start, according to the machine's settings."""
    if _read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
        helps = "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for bwrap"
        return NoBox(why="AppArmor forbids user namespaces here, as Ubuntu 24.04 does by default", help=helps)
    if _read("/proc/sys/kernel/unprivileged_userns_clone") == "0":
        return NoBox(why="user namespaces are turned off", help="sudo sysctl kernel.unprivileged_userns_clone=1")
    if _read("/proc/sys/user/max_user_namespaces") == "0":
        return NoBox(why="user namespaces are turned off", help="sudo sysctl user.max_user_namespaces=15000")
    if said and (os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv")):
        helps = "start the container with --security-opt seccomp=unconfined --security-opt systempaths=unconfined"
        return NoBox(why=f"this container does not allow it: {said}", help=helps)
    why = (
        f"bubblewrap could not start a box: {said}" if said else "bubblewrap could not start a box, and did not say why"
    )
    return NoBox(why=why, help="`bwrap --unshare-all --ro-bind / / true` must work")


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        return ""
