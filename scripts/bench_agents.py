"""The cost of driving real agents: the fourth part of `scripts/bench`."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from bench_loop import COMMAND, Rows, measured

from ralphtool.testing import Call, ModelServer, Run, Say, Turn, script

CHECKOUT = Path(__file__).resolve().parent.parent
CLAUDE = str(CHECKOUT / ".tools/agents/claude/node_modules/.bin/claude")
STREAM = 100 << 20
STARTS = 9  # of each kind, in turns

# --- reading ----------------------------------------------------------------------------------------

OURS = """
import sys, resource
from ralphtool.agents.claude import ClaudeReader
reader, count = ClaudeReader(), 0
before = resource.getrusage(resource.RUSAGE_SELF)
with open(sys.argv[1], "rb") as file:
    while chunk := file.read(1 << 20):
        for event in reader.feed(chunk):
            count += 1
after = resource.getrusage(resource.RUSAGE_SELF)
assert count and reader.end(0).ok
print(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
"""
THEIRS = """
import json, sys, resource
before = resource.getrusage(resource.RUSAGE_SELF)
with open(sys.argv[1], "rb") as file:
    for line in file:
        json.loads(line)
after = resource.getrusage(resource.RUSAGE_SELF)
print(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
"""


def reading(top: Path, rounds: int) -> float:
    """CPU time for a recorded stream of Claude, with its middle repeated up to 100 MB."""
    stream = top / "stream.jsonl"
    first, *middle, last = _recording(top).splitlines(keepends=True)
    again = b"".join(middle)
    stream.write_bytes(first + again * (STREAM // len(again) + 1) + last)

    def cpu(program: str) -> float:
        return float(subprocess.run([sys.executable, "-c", program, stream], check=True, capture_output=True).stdout)

    return statistics.median(cpu(OURS) / cpu(THEIRS) for _ in range(rounds))


def _recording(top: Path) -> bytes:
    """A typical conversation: files are read and written, commands are run, and there is a message."""
    root, path = top / "recorded", str(top / "recorded/code.py")
    root.mkdir()
    code = "".join(f"def step_{n}(given: int) -> int:\n    return given + {n}\n\n\n" for n in range(60))
    Path(path).write_text(code)
    turns: list[Turn] = [
        Call("Read", {"file_path": path}),
        Call("Edit", {"file_path": path, "old_string": "given + 7\n", "new_string": "given + 7 + 0\n"}),
        Run("grep -n return code.py"),
        Call("Write", {"file_path": str(root / "more.py"), "content": code[:2000]}),
        Run("ls -la; git status"),
        Say("The steps are in place. " * 20),
    ]
    with ModelServer(script(*turns), str(root)) as model:
        return _claude(model, top, root).stdout


def _claude(model: ModelServer, top: Path, root: Path) -> subprocess.CompletedProcess[bytes]:
    command = [CLAUDE, "-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"]
    env = os.environ | model.environment("claude", str(top / "home")) | {"IS_SANDBOX": "1"}
    return subprocess.run(command, input=b"Do it.", cwd=root, env=env, capture_output=True, check=True)


# --- starting ---------------------------------------------------------------------------------------


def starting(top: Path, rounds: int) -> float:
    """From an agent's start to its first request: in an iteration of the loop / started by hand."""
    pairs = [(_by_the_loop(top / f"loop-{n}"), _by_hand(top / f"bare-{n}")) for n in range(STARTS)]
    return statistics.median(ours for ours, _ in pairs) / statistics.median(bare for _, bare in pairs)


def _by_hand(top: Path) -> float:
    (top / "project").mkdir(parents=True)
    with ModelServer(script(Say("Done."))) as model:
        began = time.monotonic()
        _claude(model, top, top / "project")
        return model.began[0] - began


def _by_the_loop(top: Path) -> float:
    """From the start of the iteration in the record, so the loop's work before the agent starts counts as well."""
    root = _project(top)
    with ModelServer(script(Say("Done."))) as model:
        env = os.environ | model.environment("claude", str(top / "home"))
        settings = f'[run]\nagent = "claude"\n[agents.claude]\ncommand = ["{CLAUDE}"]\npermissions = "all"\n'
        (root / ".ralph/config.toml").write_text(f"{settings}[verify]\nchecks = []\ntests = []\n")
        events = _run(root, env, "--max-iterations", "1")
        # Converts a time of the wall clock to the monotonic one.
        shift = time.monotonic() - time.time()
        return model.began[0] - (_moment(events, "iteration_started") + shift)


# --- ending -----------------------------------------------------------------------------------------

ENDS = """\
#!/bin/sh
cat > /dev/null
date +%s.%N > {when}
"""


def ending(top: Path, rounds: int) -> float:
    """From an agent's last action to the verdict, without gates and git / an empty Python."""
    return statistics.median(_verdict(top / f"ending-{n}") / _python() for n in range(STARTS * 3))


def _verdict(top: Path) -> float:
    root = _project(top)
    agent, when = top / "agent.sh", top / "when"
    agent.write_text(ENDS.format(when=when))
    agent.chmod(0o755)
    (root / ".ralph/config.toml").write_text("[verify]\nchecks = []\ntests = []\n")
    events = _run(root, dict(os.environ), "--max-iterations", "1", "--agent-command", str(agent))
    spent = _moment(events, "verdict") - float(when.read_text())
    shutil.rmtree(top)
    return spent


def _python() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-I", "-c", "pass"], check=True)
    return time.perf_counter() - began


def _project(top: Path) -> Path:
    root = top / "project"
    change = root / "openspec/changes/add-login"
    change.mkdir(parents=True)
    (root / ".ralph").mkdir()
    (change / "tasks.md").write_text("## 1. Story\n\n- [ ] 1.1 Do it\n")
    return root


def _run(root: Path, env: dict[str, str], *flags: str) -> list[dict[str, Any]]:
    env |= {"TMPDIR": str(root.parent)}
    done = subprocess.run([COMMAND, "run", "--json", *flags], cwd=root, env=env, stdout=subprocess.PIPE, check=False)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _moment(events: list[dict[str, Any]], kind: str) -> float:
    return datetime.fromisoformat(next(one["at"] for one in events if one["type"] == kind)).timestamp()


ROWS: Rows = {
    "agents: CPU to read 100 MB of Claude's stream / json.loads": (reading, 0.35),
    "agents: start to first request in the loop / by hand": (starting, 1.1),
    "agents: an agent's end to its verdict / python -I -c pass": (ending, 2.0),
}


def measure(top: Path, rounds: int, word: str) -> list[dict[str, Any]]:
    return measured(ROWS, "agents", top, rounds, word)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        for one in measure(Path(place), 3, sys.argv[1] if len(sys.argv) > 1 else ""):
            print(one)
