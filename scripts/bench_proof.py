"""The cost of a proof besides its gates, and of reading a diff: a part of `scripts/bench`."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from bench_loop import COMMAND, MANY, Lab, Rows, measured

# A tiny test runner: every file of tests/ is a test, which passes if the file that it names exists.
PROGRAM = """\
#!/bin/sh
number=0
for test in tests/*; do
  number=$((number + 1))
  if [ -e "$(cat "$test")" ]; then echo "ok $number - $test"; else echo "not ok $number - $test"; failed=1; fi
done
echo "1..$number"
exit ${failed:-0}
"""
AGENT = """\
#!/bin/sh
token=$(sed -n 's/^token: //p')
echo work >"work-$RALPH_STORY.txt"
{test}
sed -i "s/^- \\\\[ \\\\] $RALPH_STORY\\\\./- [x] $RALPH_STORY./" openspec/changes/add-login/tasks.md
echo "<promise>COMPLETE:$token</promise>"
"""
TEST = 'echo "work-$RALPH_STORY.txt" >"tests/test_$RALPH_STORY.txt"'


def beside_its_gates(lab: Lab, test: str, gate_runs: int) -> float:
    """Seconds for an iteration without its gates, from the record."""
    root = lab.project(MANY)
    (root / "tests").mkdir()
    (root / "tests/test_0.txt").write_text("file-0.txt")
    (root / "run-tests.sh").write_text(PROGRAM)
    (root / ".ralph/config.toml").write_text('[verify]\nchecks = []\ntests = ["sh run-tests.sh"]\n')
    for words in (["add", "--", ".", ":!.ralph"], ["commit", "-qm", "tests"]):
        subprocess.run(["git", *words], cwd=root, env=lab.env, check=True)
    agent = lab.top / "prover.sh"
    agent.write_text(AGENT.replace("{test}", test))
    agent.chmod(0o755)
    done = subprocess.run(
        [COMMAND, "run", "--json", "--agent-command", str(agent)],
        cwd=root,
        env=lab.env,
        check=True,
        capture_output=True,
    )
    shutil.rmtree(root)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    begins = [datetime.fromisoformat(one["at"]) for one in events if one["type"] == "iteration_started"]
    gates: list[float] = [
        one["seconds"] for one in events if one["type"] == "gate" and 1 < one.get("iteration", 0) < MANY
    ]
    assert len(gates) == gate_runs * (MANY - 2), f"{len(gates)} runs of the gate in {MANY - 2} iterations"
    whole = (begins[-1] - begins[1]).total_seconds()
    return (whole - sum(gates)) / (MANY - 2)


def overhead(top: Path, rounds: int) -> float:
    """What replay and own tests add to an iteration, besides gate runs, in iterations of the bash loop."""
    lab = Lab(top)
    return statistics.median(
        (beside_its_gates(lab, TEST, 3) - beside_its_gates(lab, "", 1)) / lab.theirs() for _ in range(rounds)
    )


# --- reading a diff ---------------------------------------------------------------------------------

FILES = {
    "tests/test_{n}.py": "import pytest\n\n\n{tests}",
    "web/{n}.test.ts": "import {{ it, expect }} from 'vitest';\n\n{tests}",
    "pkg/a{n}_test.go": 'package pkg\n\nimport "testing"\n\n{tests}',
    "tests/t{n}.rs": "use shop::*;\n\n{tests}",
    "src/test/java/A{n}Test.java": "class A{n}Test {{\n{tests}}}\n",
    "spec/a{n}_spec.rb": "describe 'a' do\n{tests}end\n",
}
TESTS = (
    "def test_{k}():\n    assert total([{k}]) == {v}\n    assert count({k}) == 1\n\n\n",
    "it('adds {k}', () => {{\n  expect(total([{k}])).toBe({v});\n  expect(count({k})).toBe(1);\n}});\n",
    "func TestAdd{k}(t *testing.T) {{\n\tif Total({k}) != {v} {{\n\t\tt.Fatal(1)\n\t}}\n}}\n\n",
    "#[test]\nfn adds_{k}() {{\n    assert_eq!(total({k}), {v});\n}}\n\n",
    "  @Test void adds{k}() {{\n    assertEquals({v}, total({k}));\n  }}\n",
    "  it 'adds {k}' do\n    expect(total({k})).to eq({v})\n  end\n",
)
READ = """
import resource, sys
from pathlib import Path
from ralphtool.judging.guard.diff import inspect_changes
from ralphtool.judging.guard.model import FileChange
old, new = Path(sys.argv[1]) / "old", Path(sys.argv[1]) / "new"
names = [str(path.relative_to(old)) for path in old.rglob("*") if path.is_file()]
changes = [FileChange(name, (old / name).read_bytes(), (new / name).read_bytes()) for name in names]
before = resource.getrusage(resource.RUSAGE_SELF)
assert len(changes) == 300 and inspect_changes(changes) is not None
after = resource.getrusage(resource.RUSAGE_SELF)
print(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
"""


def write_diff(folder: Path) -> None:
    """300 files of ten tests each, before and after a change of the expected values."""
    for side, shift in (("old", 0), ("new", 1)):
        for (pattern, frame), test in zip(FILES.items(), TESTS, strict=True):
            for number in range(50):
                path = folder / side / pattern.format(n=number)
                path.parent.mkdir(parents=True, exist_ok=True)
                tests = "".join(test.format(k=k, v=k + shift) for k in range(10))
                path.write_text(frame.format(n=number, tests=tests))


def reading(top: Path, rounds: int) -> float:
    write_diff(top / "diff")
    command = [sys.executable, "-c", READ, str(top / "diff")]
    return statistics.median(
        float(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(rounds)
    )


ROWS: Rows = {
    "proof: replay and own tests beside their gates / bash iteration": (overhead, 0.05),
    "proof: CPU seconds to read 300 changed test files in six languages": (reading, 1.5),
}


def measure(top: Path, rounds: int, word: str) -> list[dict[str, Any]]:
    return measured(ROWS, "proof", top, rounds, word)
