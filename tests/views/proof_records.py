"""A change with five stories, done in five ways, as a record and a state on disk, for the tests of the views."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from project import Ralph

from ralphtool.history import History
from ralphtool.history.records import Entry

RUN = "add-login-20260301-220000-1a2b"
NAMES = ("Set up", "Login form", "Sign out", "Colours", "Read me")
STATES = ("proven", "held", "unproven", "accepted", "ticked")
WHY = "`pytest -q` was red before the work, and is no better now"
EVIL = "tests/test_a.py::test_<script>alert(1)</script>[red]x[/red] \x1b[31m \x00 | `x` \u202eevil " + "x" * 10_000
HEADLINE = (
    "5 of 5 stories are done: 1 proven by its own tests, 1 held by the existing tests, 1 accepted by you, "
    f"1 ticked by you, 1 done, not proven: {WHY}."
)


def commit(number: int) -> str:
    return f"{number}9f2c1b7d0e5a4c3b8a7f6e5d4c3b2a1908f7e6d"


def receipt(state: str, number: int = 1, **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"state": state, "commit": commit(number), "passed_before": 210, "passed_after": 212}
    gates = {"kind": "gates", "command": "pytest -q", "ok": state != "unproven", "tally": "212 passed"}
    return {**fields, "runs": [gates], **more}


OWN = tuple(f"tests/test_form.py::test_{name}" for name in ("empty", "wrong_password", "locked", "reset", "mail"))
WEAKENED = {"kind": "assertion-weakened", "path": "tests/test_form.py", "detail": "test_form compares less"}
WEAKER = "1 test that still passes was removed; 1 assertion that still passes was weakened: tests/test_form.py"
RECEIPTS = {
    "1": receipt(
        "proven",
        1,
        own_tests=OWN,
        own_count=60,
        removed=["tests/test_old.py::test_twice"],
        suspicions=[WEAKENED],
        weakened=[WEAKENED],
        cleared="the tests as they were pass on the new code",
        runs=[
            {"kind": "gates", "command": "pytest -q", "ok": True, "tally": "212 passed"},
            {"kind": "replay", "command": "pytest -q", "ok": True, "tally": "210 passed"},
            {"kind": "own-tests", "command": "pytest -q", "ok": False, "tally": "210 passed, 60 failed"},
        ],
    ),
    "2": receipt("held", 2, told=["pytest/ was set aside: git ignores it, and the attempt made it"]),
    "3": receipt("unproven", 3, why=WHY, lost=["tests/test_out.py::test_out"]),
    "4": receipt("accepted", 4, why="the colours are as I want them", by="Ann", at="2026-03-02T07:30:00Z"),
}


def line(type: str, second: int = 0, **fields: Any) -> bytes:
    return json.dumps({"at": f"2026-03-01T22:00:{second:02}.000000Z", "type": type, **fields}).encode() + b"\n"


def story_row(number: int, state: str = "done", **more: Any) -> dict[str, Any]:
    id = str(number)
    proof = {"proof": STATES[number - 1], "proof_why": WHY if number == 3 else ""}
    proof |= {"weaker_tests": WEAKER} if number == 1 else {}
    made = {"id": id, "title": NAMES[number - 1], "state": state, "commit": commit(number), **proof}
    return {**made, "entry": f"add-login-{id}-1", **more}


def start(count: int = len(NAMES)) -> bytes:
    stories = [
        {"id": str(number), "title": name, "tasks_total": 1, "tasks_done": number == 5, "done": number == 5}
        for number, name in enumerate(NAMES[:count], 1)
    ]
    return line("run_started", run=RUN, change="add-login", agent="claude", branch="ralph/add-login", stories=stories)


def work(number: int, found: dict[str, Any]) -> list[bytes]:
    """All events of a story that completes in one attempt."""
    id = str(number)
    about = {"story": id, "entry": f"add-login-{id}-1", "iteration": number}
    begun = line("iteration_started", number, **about, title=NAMES[number - 1], attempt=1, attempts=3, agent="claude")
    judged = line("verdict", number, **about, attempt=1, status="completed", summary="It is there.", tasks_total=1)
    kept = line("checkpoint", number, story=id, commit=commit(number), subject="x", proof=found["state"])
    return [begun, judged, kept, line("proof", number, **about, receipt=found)]


def end(result: str = "unproven", **more: Any) -> bytes:
    rows = [story_row(number) for number in range(1, 6)]
    steps = [{"say": "accept story 3 as it is", "run": "ralphtool accept 3"}]
    return line("run_ended", 59, **{"result": result, "reason": "x", "stories": rows, "next": steps, **more})


def record(receipts: dict[str, Any] = RECEIPTS, **more: Any) -> list[bytes]:
    made = [event for id, found in receipts.items() for event in work(int(id), found)]
    return [start(), *made, end(**more)]


def write(ralph: Ralph, lines: list[bytes], receipts: dict[str, Any] = RECEIPTS) -> Ralph:
    """Writes the spec, the state, the history and the record of a run."""
    ralph.openspec(
        "".join(f"## {number}. {name}\n\n- [x] {number}.1 Do it\n\n" for number, name in enumerate(NAMES, 1))
    )
    stories = {
        id: {"proof": found, "entry": f"add-login-{id}-1", "status": "completed"} for id, found in receipts.items()
    }
    ralph.write(".ralph/standing/add-login.json", json.dumps({"stories": stories}))
    put(ralph.root, lines)
    history = History(str(ralph.root))
    for id in receipts:
        named: Any = {"id": f"add-login-{id}-1", "prd_id": f"add-login-{id}", "timestamp": "2026-03-01T22:00:01Z"}
        history.append(Entry(**named, iteration=1, status="completed", summary="It is there.", observations=()))
    return ralph


def put(root: Path, lines: list[bytes]) -> None:
    folder = root / ".ralph/runs" / RUN
    for number in range(1, 5):
        (folder / f"{number:03}-add-login-{number}-1").mkdir(parents=True, exist_ok=True)
        (folder / f"{number:03}-add-login-{number}-1" / "transcript.log").write_text("I did it.\n")
    (folder / "events.jsonl").write_bytes(b"".join(lines))
