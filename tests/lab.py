"""A project with git, a change, and a scripted agent: for tests of the loop as a whole."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from patience import PATIENCE
from project import COMMAND, Ralph, Result, start_warm
from warm import WarmProcess, starts_warm

Process = subprocess.Popen[bytes] | WarmProcess

STORIES = """\
## 1. First

- [ ] 1.1 Make a
- [ ] 1.2 Make b

## 2. Second

- [ ] 2.1 Make c
"""
ACCEPT = '[proof]\naccept = "unproven"'  # for tests that are not about proof, and have no gates
DONE: list[dict[str, Any]] = [{"run": "echo work > {story}.txt"}, {"tick": "all"}, {"complete": True}]


class Lab(Ralph):
    """`play` says what the scripted agent does, `loop` runs `ralphtool run`."""

    def __init__(self, top: Path) -> None:
        super().__init__(top)
        self.script = top / "script.json"
        self.env |= {"GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C.UTF-8"}

    def git(self, *arguments: str, check: bool = True) -> str:
        """Runs git in the project; returns its output."""
        done = subprocess.run(["git", *arguments], cwd=self.root, env=self.env, capture_output=True, check=False)
        assert not check or done.returncode == 0, done.stderr.decode()
        return done.stdout.decode("utf-8", "surrogateescape").rstrip("\n")

    def repository(self, tasks: str = STORIES, change: str = "add-login", **config: Any) -> Lab:
        """A repository whose first commit has a README and the change; the agent is scripted."""
        self.git("init", "--quiet", "--initial-branch=main")
        with (self.root / ".git/config").open("a") as settings:  # two processes less than by `git config`
            settings.write("[user]\n\tname = Tester\n\temail = tester@example.org\n")
        self.write("README.md", "hello\n")
        self.openspec(tasks, change)
        self.configure(**config)
        self.git("add", "--all", "--", ":!.ralph")
        self.git("-c", "maintenance.auto=false", "commit", "--quiet", "--message=first")
        return self

    def configure(
        self,
        *,
        checks: list[str] | None = None,
        tests: list[str] | None = None,
        accept: str = "unproven",
        **run: Any,
    ) -> None:
        """Writes `.ralph/config.toml`; further arguments are settings of `[run]`.

        Most tests are not about proof and have no gates: unproven work counts as done.
        """
        settings = {"agent": "scripted", "workspace": "here", **run}
        lines = ["[run]", *(f"{name} = {json.dumps(value)}" for name, value in settings.items())]
        lines += ["[agents.scripted]", f"args = {json.dumps([str(self.script)])}"]
        lines += ["[proof]", f"accept = {json.dumps(accept)}"]
        lines += ["[verify]", f"checks = {json.dumps(checks or [])}", f"tests = {json.dumps(tests or [])}"]
        self.write(".ralph/config.toml", "\n".join(lines) + "\n")

    def play(self, *turns: dict[str, Any], default: list[dict[str, Any]] | None = None) -> Lab:
        """Each turn: {"story": "1", "attempt": 1, "steps": [...]}; `default` has the steps if none matches."""
        script: dict[str, Any] = {"turn": list(turns)}
        if default is not None:
            script["defaults"] = {"steps": default}
        self.script.write_text(json.dumps(script))
        return self

    def copy(self, made: Lab) -> Lab:
        """Becomes a copy of another project: where many tests need the same finished run, it is made once."""
        shutil.copytree(made.root, self.root, symlinks=True, dirs_exist_ok=True)
        shutil.copy(made.script, self.script)
        config = self.read(".ralph/config.toml")
        self.write(".ralph/config.toml", config.replace(str(made.script), str(self.script)))
        self.git("update-index", "-q", "--refresh")
        return self

    def loop(self, *arguments: str, **more: Any) -> Result:
        return self.run("run", "--json", *arguments, **more)

    def start(self, *arguments: str, stdout: int | None = None) -> Process:
        """Starts `ralphtool run` and does not wait for it."""
        words = ["run", "--json", *arguments]
        if stdout is None and starts_warm(words, b"", self.root, self.env):
            return start_warm().start(words, b"", self.root, self.env)
        return subprocess.Popen(
            [COMMAND, *words],
            cwd=self.root,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE,
        )

    def events(self, result: Result | None = None) -> list[dict[str, Any]]:
        """The events that a run printed; without one, the events of all runs, in order."""
        if result is not None:
            return [json.loads(line) for line in result.stdout.splitlines()]
        paths = sorted(self.root.glob(".ralph/runs/*/events.jsonl"), key=lambda path: path.stat().st_mtime_ns)
        return [json.loads(line) for path in paths for line in path.read_text().splitlines()]

    def entries(self) -> list[dict[str, Any]]:
        path = self.root / ".ralph/progress.json"
        if not path.exists():
            return []
        entries = self.run("progress", "entries", "--json").json["entries"]
        assert isinstance(entries, list)
        return entries

    def endings(self) -> list[tuple[str, str]]:
        """The id and the status of every entry."""
        return [(entry["id"], entry["status"]) for entry in self.entries()]

    def checkpoints(self, change: str = "add-login") -> list[str]:
        """The stories that have a checkpoint on the branch, oldest first."""
        told = self.git(
            "log", "--reverse", "--format=%(trailers:key=Ralph-Story,valueonly,separator=)", f"ralph/{change}"
        )
        return [line for line in told.split("\n") if line]

    def question(self, prd_id: str = "add-login-1") -> Path:
        return self.root / f".ralph/questions/{prd_id}.md"

    def own_files(self) -> dict[str, bytes | str]:
        """The user's tree: every file outside of `.ralph` and `.git`, byte for byte, with its mode."""
        seen: dict[str, bytes | str] = {}
        for path in sorted(self.root.rglob("*")):
            inside = path.relative_to(self.root)
            if inside.parts[0] in (".git", ".ralph") or (path.is_dir() and not path.is_symlink()):
                continue
            seen[str(inside)] = os.readlink(path) if path.is_symlink() else path.read_bytes()
            seen[f"{inside} mode"] = oct(path.lstat().st_mode)
        return seen

    def users_state(self) -> dict[str, Any]:
        """Everything of the user's that a run must restore."""
        return {
            "files": self.own_files(),
            "head": (self.root / ".git/HEAD").read_text(),
            "index": self.git("ls-files", "--stage", "--debug", check=False).count("\n")
            and self.git("ls-files", "--stage"),
            "status": [line for line in self.git("status", "--porcelain").split("\n") if line and ".ralph" not in line],
            "main": self.git("rev-parse", "--verify", "--quiet", "main", check=False),
            "stash": self.git("stash", "list"),
        }


def ignores_term(marker: str) -> bool:
    """Whether a process with a text in its environment ignores SIGTERM: then a script has reached its `hang`."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
            status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        except OSError:
            continue
        if marker.encode() in environ and int(status["SigIgn"], 16) >> (signal.SIGTERM - 1) & 1:
            return True
    return False


def processes_with(marker: str) -> list[str]:
    """The command lines of all other processes that have a text in their arguments or environment."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            text = words + Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if marker.encode() in text and state != "Z" and int(pid) != os.getpid():
            found.append(words.replace(b"\0", b" ").decode("utf-8", "replace"))
    return found


def wait_until(holds: Any, seconds: float = PATIENCE) -> bool:
    """Waits for a condition, for at most so long: on a busy machine everything is late."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.02)
    return bool(holds())


def kill(process: Process, number: int = signal.SIGKILL) -> None:
    """Ends a process that a test has started, and reads its output."""
    if process.poll() is None:
        process.send_signal(number)
    process.communicate(timeout=PATIENCE)


PYTHON = sys.executable
