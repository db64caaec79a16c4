"""What a box shows of folders that are otherwise empty in it: the programs that its commands need, and no secrets.

A home, `/tmp` and `/run` contain keys, sockets and other people's work, but also the tools that people install for
themselves. The tools are shown read-only: paths in PATH, paths in commands, and the usual places of toolchains.
"""

from __future__ import annotations

import itertools
import os
import pwd
import re
import stat
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

HOMES = ("/home", "/root")
_PRIVATE = ("/tmp", "/var/tmp", "/run", *HOMES)  # noqa: S108
# Below a home: where toolchains are. Secrets beside them are hidden.
_TOOLCHAINS = (
    *(".pyenv", ".rbenv", ".nvm", ".asdf", ".volta", ".rustup", ".cargo", ".sdkman", ".bun", ".deno", ".gem", "go"),
    *(".local/bin", ".local/lib", ".local/share/uv", ".local/share/pipx", ".local/share/mise", ".local/share/pnpm"),
    *(".local/pipx", ".m2/repository", ".nix-profile", ".local/state/nix", ".npm-global", ".linuxbrew"),
)
_SECRETS = (
    *(".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".bun/install/global/.npmrc"),
    *(".netrc", ".npmrc", ".pypirc", ".pgpass", ".my.cnf", ".git-credentials", ".vault-token", ".boto", ".s3cfg"),
    *(
        ".ssh",
        ".gnupg",
        ".aws",
        ".azure",
        ".kube",
        ".docker",
        ".oci",
        ".config/gcloud",
        ".config/gh",
        ".config/glab-cli",
    ),
    *(".config/hub", ".config/op", ".config/doctl", ".config/hcloud", ".config/rclone", ".config/sops", ".terraform.d"),
    *(".pulumi", ".fly", ".password-store", ".local/share/keyrings", ".mozilla", ".config/google-chrome"),
    *(".config/chromium", ".config/BraveSoftware", ".thunderbird", ".cache/huggingface/token", ".gitconfig.local"),
)
# Names of folders that contain keys wherever they are.
SECRET_FOLDERS = frozenset(
    (".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".password-store", ".pulumi", ".fly")
)
# Files beside programs: the usual names of files with a login.
_SECRET_FILE = re.compile(
    r"\.?(?:credentials?|auth|tokens?|secrets?|access[_-]token)(?:\.(?:json|ya?ml|toml|txt|db))?|\.netrc|\.npmrc|\.pypirc"
    r"|\.git-credentials|id_(?:rsa|dsa|ecdsa|ed25519)|.+\.(?:pem|key|p12|pfx|kdbx)",
    re.IGNORECASE,
)
# What makes the folder above `bin` an environment: its programs need the files beside them.
_MARKS = (
    *("pyvenv.cfg", "conda-meta", "lib/node_modules", "include/node", "lib/rustlib", "lib/modules", "lib/ruby"),
    *("pkg/tool", "package.json", "lib/dart", "jmods", "lib/jvm.cfg", "libexec/git-core", "lib/erlang", "lib/elixir"),
)
_BESIDE = ("lib", "lib64", "libexec", "share", "include", "packages", "src")  # next to a `bin` of unknown kind
# Privileged daemons, whose sockets may be created at any time.
DAEMONS = (
    "/var/snap/lxd",
    "/var/lib/lxd",
    "/var/lib/incus",
    "/var/lib/docker",
    "/var/lib/containerd",
    "/var/lib/libvirt",
)
_MOST_PROGRAMS = 2000  # in a folder of PATH
_LISTENS, _DATAGRAM = "00010000", "0002"  # in /proc/net/unix
_PATH_WORD = re.compile(r"(?<![\w.])/[^\s'\"=:;|&<>(){}$`*?\[\]]+")


def list_shown(home: str, env: Mapping[str, str], commands: Iterable[str]) -> list[str]:
    """The paths that must be shown for commands to run, without those below others."""
    named = [path for text in commands for path in _PATH_WORD.findall(text)]
    parts = env.get("PATH", "").split(os.pathsep)
    wanted = [
        *(os.path.join(one, name) for one in (home, _find_own_home()) for name in _TOOLCHAINS),
        *(folder for part in parts for folder in _find_environment(part, home)),
        *(place for part in parts if _is_private(part, home) for place in _find_linked(part, home)),
        *(folder for path in named for folder in _find_environment(path, home)),
        *_list_own(),
    ]
    hidden = [*_PRIVATE, home]
    there = {path for path in wanted if os.path.lexists(path) and any(_is_below(path, one) for one in hidden)}
    return sorted(path for path in there if path not in hidden and not any(_is_below(path, one) for one in there))


def list_secrets(home: str, shown: Sequence[str]) -> list[str]:
    """Files and folders with secrets in the shown folders."""
    known = [os.path.join(one, name) for one in dict.fromkeys((home, _find_own_home())) for name in _SECRETS]
    there = [path for path in known if any(_is_below(path, one) for one in shown) and os.path.lexists(path)]
    beside = [path for folder in shown if _is_private(folder, home) for path in _list_secret_files(folder)]
    return list(dict.fromkeys([*there, *beside]))


def _is_private(path: str, home: str) -> bool:
    return any(_is_below(path, one) for one in (*_PRIVATE, home))


def _list_secret_files(folder: str) -> list[str]:
    """Finds them by name, only in the folder itself: libraries have modules with such names."""
    try:
        with os.scandir(folder) as found:
            return [one.path for one in found if _SECRET_FILE.fullmatch(one.name) and one.is_file()]
    except OSError:
        return []


def list_sockets(home: str, shown: Sequence[str]) -> list[str]:
    """Sockets of this machine's daemons that a box could reach; folders that are empty in it have none."""
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as file:
            rows = [line.rstrip("\n").split(" ", 7) for line in file]
    except OSError:
        return []
    paths = {
        row[7].lstrip("0123456789 ") for row in rows if len(row) == 8 and (row[3] == _LISTENS or row[4] == _DATAGRAM)
    }
    hidden = [*_PRIVATE, home, "/dev", "/proc"]
    return sorted(
        path
        for path in paths
        if path.startswith("/")
        and (any(_is_below(path, one) for one in shown) or not any(_is_below(path, one) for one in hidden))
        and os.path.realpath(path) == path
        and _is_socket(path)
    )


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode) and os.access(path, os.W_OK)
    except OSError:
        return False


def _find_own_home() -> str:
    """The home in the user database: `HOME` may name another."""
    try:
        return os.path.realpath(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        return "/root"


def _list_own() -> Iterator[str]:
    """What ralphtool itself needs: agents call its commands."""
    yield from (sys.prefix, sys.base_prefix, os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
    yield from (path for path in sys.path if path.endswith("-packages"))


def _find_environment(path: str, home: str) -> Iterator[str]:
    """A program, or a folder of programs, with the environment that it belongs to: `/x/.venv` for `/x/.venv/bin/y`."""
    if not os.path.isabs(path):
        return
    for one in dict.fromkeys((os.path.normpath(path), os.path.realpath(path))):
        folder = one if os.path.isdir(one) else os.path.dirname(one)
        if os.path.basename(folder) in ("bin", "sbin", ".bin"):
            yield from _find_around(folder, home)
        else:
            yield one if _is_broad(folder, home) else folder  # a script may need the files beside it
        yield from _find_base(os.path.dirname(folder))


def _find_around(folder: str, home: str) -> Iterator[str]:
    """A folder of programs, with everything around it if that is an environment. Otherwise only known folders: many
    tools keep their login beside their `bin`."""
    above = os.path.dirname(folder)
    yield folder
    if _is_broad(above, home):
        return
    is_environment = os.path.basename(folder) == ".bin" or any(
        os.path.exists(os.path.join(above, mark)) for mark in _MARKS
    )
    yield from (above,) if is_environment else (os.path.join(above, name) for name in _BESIDE)


def _find_linked(folder: str, home: str) -> Iterator[str]:
    """The programs that a folder in PATH links to, such as `~/opt/node/bin/node` from `~/bin`, with the environments
    that they belong to. What is beside other programs is not shown: that may be a project."""
    for path in _list_links(folder):
        above = os.path.dirname(os.path.dirname(path))
        is_program = os.path.basename(os.path.dirname(path)) in ("bin", "sbin") and not _is_broad(above, home)
        marks = [mark for mark in _MARKS if is_program and os.path.exists(os.path.join(above, mark))]
        is_environment = marks not in ([], ["package.json"]) or (marks and "/node_modules/" in above)
        yield above if is_environment else path
        yield from _find_base(above)


def _list_links(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as found:
            links = [one.path for one in itertools.islice(found, _MOST_PROGRAMS) if one.is_symlink()]
    except OSError:
        return []
    return [path for path in map(os.path.realpath, links) if os.path.isfile(path) and os.access(path, os.X_OK)]


def _find_base(folder: str) -> Iterator[str]:
    """The base Python of a virtual environment."""
    try:
        with open(os.path.join(folder, "pyvenv.cfg"), encoding="utf-8") as file:
            found = re.search(r"^home\s*=\s*(.+)/bin\s*$", file.read(), re.MULTILINE)
    except (OSError, UnicodeDecodeError):
        return
    if found:
        yield found[1]


def _is_broad(folder: str, home: str) -> bool:
    """Whether a folder contains more than one environment."""
    is_home = os.path.dirname(folder) in HOMES
    return (
        is_home or folder in (home, os.path.join(home, ".local"), *_PRIVATE) or _is_below(home, folder) or folder == "/"
    )


def _is_below(path: str, folder: str) -> bool:
    return path != folder and path.startswith(folder.rstrip("/") + "/")
