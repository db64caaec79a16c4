"""A project with everything around it that an agent might attack, and a run in which an agent tries to."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from patience import PATIENCE
from project import COMMAND, REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Sequence

SECRET = "escaped-secret-"
MARK = "OUTCOME "
ORDINARY = "ralphtester"
CONFIG = '[run]\nworkspace = "box"\nattempts = {}\n[sandbox]\nnetwork = "off"\n'
WAYS_OUT = (
    "SSH_AUTH_SOCK",
    "DOCKER_HOST",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
    "TMUX",
    "VSCODE_IPC_HOOK_CLI",
)
OTHERS = ("config.toml", "runs/old-run/events.jsonl", "standing/other.json")  # in .ralph, but not of this run
TOOL_FILES = ("tool/credentials.json", "tool/config.yml", "tool/bin/tool", "tool/bin/auth.json")  # one is on PATH
HOME_FILES = (".ssh/id_rsa", ".ssh/authorized_keys", ".aws/credentials", ".netrc", ".config/gh/hosts.yml", ".bashrc")
VARIABLES = {"AWS_SECRET_ACCESS_KEY": f"{SECRET}aws", "GITHUB_TOKEN": f"{SECRET}github"}

# The agent's program: runs each attempt in a separate shell, and prints one line with its output.
AGENT = """\
import json, os, subprocess, sys
place = json.load(open(sys.argv[1]))
variables = os.environ | place["variables"]
for name, script in place["attempts"].items():
    try:
        done = subprocess.run(["bash", "-c", script], env=variables | {"NAME": name}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20)
        said, code = done.stdout.decode("utf-8", "replace"), done.returncode
    except subprocess.TimeoutExpired as error:
        said, code = (error.stdout or b"").decode("utf-8", "replace"), "timeout"
    print("OUTCOME " + json.dumps({"name": name, "code": code, "said": said[-3000:]}), flush=True)
"""


def ensure_user(name: str) -> None:
    try:
        pwd.getpwnam(name)
    except KeyError:
        subprocess.run(["useradd", "--create-home", "--shell", "/bin/sh", name], check=True)


class Attempt(NamedTuple):
    """One attempt to escape: a shell script for the box, and a check of its effects outside."""

    name: str
    script: str
    check: Any  # of a stage, and of the script's output


class Listener:
    """A socket that a daemon of the user listens on; counts connections."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.visitors = 0
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(address)
        if not address.startswith("\0"):
            os.chmod(address, 0o777)
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                other, _ = self._socket.accept()
                self.visitors += 1
                other.close()

    def close(self) -> None:
        self._socket.close()
        if not self.address.startswith("\0"):
            os.unlink(self.address)


class Stage:
    """The parts of the user's machine that an agent might harm. `user` is None for the current user."""

    def __init__(self, user: str | None, iterations: int) -> None:
        self.iterations = iterations
        self.user = pwd.getpwnam(user) if user else pwd.getpwuid(os.geteuid())
        # Not below /tmp: a box has its own, so writing there could do no harm.
        self.base = Path(tempfile.mkdtemp(prefix="ralph-escapes-", dir="/var/lib" if os.geteuid() == 0 else "/var/tmp"))
        self.project, self.home, self.outside = (self.base / name for name in ("project", "home", "outside"))
        self.temporary, self.agent = Path(tempfile.mkdtemp(prefix="ralph-escapes-")), self.base / "agent"
        self.token = self.base.name.rpartition("-")[2]
        self.listeners = self._listen()
        self.said: dict[str, str] = {}  # by each attempt
        self.output = b""  # of the run
        self.looked_at = ""  # the attempt whose outcome is being checked
        self._make()
        self.neighbour = subprocess.Popen(["sleep", "600"], **self._as_user())
        self.before = self.after = self.take_down()

    # --- making it ------------------------------------------------------------------------------

    def _listen(self) -> dict[str, Listener]:
        run = "/run" if os.access("/run", os.W_OK) else str(self.temporary)
        places = {"ssh": f"{self.temporary}/agent.sock", "docker": f"{run}/docker-{self.token}.sock"}
        # As of daemons that keep their socket with their data.
        places["daemon"] = f"{self.base}/daemon.sock"
        return {name: Listener(place) for name, place in {**places, "abstract": f"\0ralph-{self.token}"}.items()}

    def _make(self) -> None:
        for folder in (self.project, self.home, self.outside, self.agent, self.temporary / "tmp"):
            folder.mkdir()
        for name in (*HOME_FILES, *TOOL_FILES):
            write(self.home / name, f"{SECRET}{name}\n")
        write(self.home / ".gitconfig", "[user]\nname = A\nemail = a@example.org\n[init]\ndefaultBranch = main\n")
        write(self.outside / "victim.txt", "as it was\n")
        self._make_project()
        write(self.agent / "agent.py", AGENT)
        for place in (self.base, self.temporary):
            os.chmod(place, 0o755)
            subprocess.run(["chown", "-R", f"{self.user.pw_uid}:{self.user.pw_gid}", place], check=True)
        self._make_linked()
        for word in (
            "init -q",
            "add -A",
            "commit -qm first",
            "branch other",
            "tag v1",
            "gc -q",
            *_WORKTREE,
            *_SETTINGS,
        ):
            self.git(*word.split())
        write(self.project / "user.txt", "the user's\n")  # not committed
        write(self.project / ".ralph/config.toml", CONFIG.format(self.iterations))
        for name in OTHERS[1:]:
            write(self.project / ".ralph" / name, '{"old": true}\n')
        subprocess.run(["chown", "-R", f"{self.user.pw_uid}:{self.user.pw_gid}", self.project], check=True)

    def _make_linked(self) -> None:
        """A repository in the project, which git knows as a submodule."""
        write(self.project / "linked/read.me", "linked\n")
        subprocess.run(["chown", "-R", f"{self.user.pw_uid}:{self.user.pw_gid}", self.project], check=True)
        for word in ("init -q", "add -A", "commit -qm linked"):
            self.git("-C", "linked", *word.split())
        shutil.copytree(self.project / "linked/.git", self.agent / "linked.git")

    def _make_project(self) -> None:
        change = "openspec/changes/c"
        write(self.project / change / "tasks.md", "## 1. Add x\n\n- [ ] 1.1 Add x\n")
        write(self.project / change / "proposal.md", "# Why\n")
        write(self.project / "code.py", "x = 1\n")
        write(self.project / "clean.sh", "#!/bin/sh\ncat\n").chmod(0o755)
        write(self.project / ".gitignore", ".venv/\n.env\n.ralph/\nbuild/\nlarge/\n")
        write(self.project / ".venv/lib.py", "installed = 1\n")
        write(self.project / "build/out.o", "built\n")
        write(self.project / ".env", "KEY=1\n")

    # --- inspecting it --------------------------------------------------------------------------

    def git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.project), *arguments]
        done = subprocess.run(command, check=True, capture_output=True, **self._as_user())
        return str(done.stdout.decode())

    def take_down(self) -> dict[str, Any]:
        """The state that must be the same afterwards."""
        common = self.project / ".git"
        return {
            "refs": [line for line in self.git("for-each-ref").split("\n") if "ralph/" not in line],
            "config": (common / "config").read_bytes(),
            "hooks": read_all(common / "hooks"),
            "packs": read_all(common / "objects/pack"),
            "slot": read_all(common / "worktrees/slot") | read_all(self.base / "slot"),
            "tree": read_all(self.project, but=(".git", ".ralph")),
            "home": read_all(self.home),
            "outside": read_all(self.outside),
            "settings": [(self.project / ".ralph" / name).read_bytes() for name in OTHERS],
            "neighbour": self.neighbour.poll(),
        }

    # --- the run --------------------------------------------------------------------------------

    def play(self, attempts: Sequence[Attempt]) -> subprocess.CompletedProcess[bytes]:
        """Starts a run in which the agent makes all of these attempts, once in each iteration."""
        write(
            self.agent / "place.json", json.dumps({"variables": self._variables(), "attempts": dict(_pairs(attempts))})
        )
        command = [
            *self._become_user(),
            COMMAND,
            "run",
            "c",
            "--json",
            "--agent-command",
            f"{_find_python()} {self.agent}/agent.py {self.agent}/place.json",
        ]
        done = subprocess.run(
            command,
            cwd=self.project,
            check=False,
            capture_output=True,
            timeout=PATIENCE,
            **self._as_user(is_wrapped=True),
        )
        for path in sorted(self.project.glob(".ralph/runs/*/**/transcript.log")):
            for line in path.read_text(errors="replace").splitlines():
                if MARK in line:
                    with suppress(ValueError):
                        one = json.loads(line.partition(MARK)[2])
                        self.said[one["name"]] = self.said.get(one["name"], "") + one["said"]
        self.after = self.take_down()
        return done

    def _variables(self) -> dict[str, str]:
        known = {
            "TOP": self.project,
            "OUT": self.outside,
            "BASE": self.base,
            "REAL_HOME": self.home,
            "TOKEN": self.token,
        }
        pids = {"NEIGHBOUR": self.neighbour.pid, "TESTER": os.getpid()}
        sockets = {f"{name.upper()}_SOCKET": one.address.replace("\0", "@") for name, one in self.listeners.items()}
        return {name: str(value) for name, value in (known | pids | sockets | {"SHARED": self.temporary}).items()}

    def _become_user(self) -> list[str]:
        if self.user.pw_uid == os.geteuid():
            return []
        return become_user(self.user, self.base, [REPOSITORY / "src"])

    def _as_user(self, *, is_wrapped: bool = False) -> dict[str, Any]:
        ways_out = dict.fromkeys(WAYS_OUT, self.listeners["ssh"].address)
        env = {
            "HOME": str(self.home),
            "PATH": f"{os.environ['PATH']}:{self.home}/tool/bin",
            "TMPDIR": f"{self.temporary}/tmp",
            "LANG": "C.UTF-8",
        }
        other = (
            {}
            if is_wrapped or self.user.pw_uid == os.geteuid()
            else {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}
        )
        return {"env": env | ways_out | VARIABLES, "start_new_session": True, **other}

    def close(self) -> None:
        self.neighbour.kill()
        self.neighbour.wait()
        for one in self.listeners.values():
            one.close()
        for folder in (self.base, self.temporary):
            shutil.rmtree(folder, ignore_errors=True)


_SETTINGS = (
    "config extensions.worktreeConfig true",
    "config filter.fmt.clean ./clean.sh",
    "config filter.fmt.smudge ./clean.sh",
)
_WORKTREE = ("worktree add -q ../slot other",)


def _pairs(attempts: Sequence[Attempt]) -> list[tuple[str, str]]:
    return [(one.name, one.script) for one in attempts]


def become_user(user: pwd.struct_passwd, base: Path | str, shown: Sequence[Path]) -> list[str]:
    """The prefix of a command that runs as another user, and shows them the needed programs, wherever those are."""
    needed = [os.path.realpath(str(path)) for path in (sys.base_prefix, sys.prefix, *shown)]
    script = ""
    for closed in dict.fromkeys(filter(None, map(_find_closed, needed))):
        inside = [path for path in needed if path.startswith(f"{closed}/")]
        for number, path in enumerate(inside):
            script += f"mkdir -p {base}/held/{number} && mount --bind {path} {base}/held/{number} &&"
        script += f"mount -t tmpfs -o mode=755 tmpfs {closed} &&"
        for number, path in enumerate(inside):
            script += f"mkdir -p {path} && mount --bind {base}/held/{number} {path} &&"
    ids = (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--inh-caps=-all")
    shell = ("sh", "-c", f'{script} exec "$@"', "sh", "setpriv", *ids, "--")
    return ["unshare", "--mount", "--propagation", "private", "--", *shell]


def _find_closed(path: str) -> str | None:
    """The first folder above a path that others may not enter."""
    above = [str(folder) for folder in reversed(Path(path).parents)]
    return next((folder for folder in above if not os.stat(folder).st_mode & 1), None)


def _find_python() -> str:
    return os.path.realpath(sys.executable)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def read_all(folder: Path, but: Sequence[str] = ()) -> dict[str, Any]:
    """Every file below a folder, and the targets of links."""
    found: dict[str, Any] = {}
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in but]
        for name in [*names, *folders]:
            path = Path(parent, name)
            if path.is_symlink():
                found[str(path)] = os.readlink(path)
            elif path.is_dir():
                found[str(path)] = None
            elif path.is_file():
                found[str(path)] = path.read_bytes()
            else:
                found[str(path)] = "special"
    return found


def list_processes(word: str) -> list[str]:
    """The commands running on this machine that contain a word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            text = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            found += [text] if word in text else []
    return found


def connect(address: str) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as one:
        one.connect(address)
