"""The agent of a case: makes the edits of its plan, ticks the tasks, and claims that the story is complete."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from battery.edits import apply_edits


def main() -> None:
    sys.stdin.read()
    plan = json.loads(Path(sys.argv[1]).read_text())[os.environ["RALPH_STORY"]]
    apply_edits(Path.cwd(), plan["edits"])
    for task in plan["tasks"]:
        subprocess.run(["ralphtool", "agent", "task", "done", task], check=True, stdout=sys.stderr)
    if plan["finding"]:
        subprocess.run(["ralphtool", "agent", "observe", "finding", plan["finding"]], check=True, stdout=sys.stderr)
    sys.stdout.write(f"{plan['played']}\n<promise>COMPLETE:{os.environ['RALPH_TOKEN']}</promise>\n")


if __name__ == "__main__":
    main()
