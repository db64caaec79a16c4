"""A made-up night of runs, as a record on disk, for the tests of the report."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

RUN = "add-login-20260301-220000-1a2b"
BEGAN = datetime(2026, 3, 1, 22, tzinfo=UTC)
HOSTILE = (
    "<script>alert(1)</script></style><img src=x onerror=alert(2)> ]]> \x00\x1b[31m \ud800 \u202eevil \ufffe & | `x`"
)
STORIES = (
    "Set up the project",
    "Login form",
    "Password reset by mail",
    "Payment provider",
    "Session storage",
    "Rate limits for the login",
    "Audit log of sign-ins",
    "A dark theme (optional)",
    "Documentation for operators",
)


class Night:
    """Writes the record of a run, event by event, with its own clock."""

    def __init__(self) -> None:
        self.now = BEGAN
        self.lines: list[bytes] = []
        self.number = 0

    def add(self, type: str, *, minutes: float = 0, **fields: Any) -> None:
        self.now += timedelta(minutes=minutes)
        event = {"at": self.now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "type": type, **fields}
        self.lines.append(json.dumps(event, separators=(",", ":")).encode())

    def start(self, titles: tuple[str, ...] = STORIES, **more: Any) -> None:
        stories = [
            {
                "id": str(number),
                "title": title,
                "tasks_total": 4,
                "tasks_done": 4 if number == 1 else 0,
                "done": number == 1,
                "optional": "optional" in title,
                "depends_on": ["4"] if number == 9 else [],
            }
            for number, title in enumerate(titles, 1)
        ]
        limits = {
            "attempts": 3,
            "max_iterations": 0,
            "max_time": 36000,
            "timeout": 3600,
            "silence": 900,
            "max_cost": 50,
        }
        fields = {"run": RUN, "change": "add-login", "agent": "claude", "adapter": "openspec", "workspace": "here"}
        gates = {"commands": ["ruff check .", "pytest -q"]}
        self.add(
            "run_started",
            **{
                **fields,
                "branch": "ralph/add-login",
                "pid": 1,
                "stories": stories,
                "limits": limits,
                "gates": gates,
                **more,
            },
        )

    def attempt(
        self,
        story: int,
        attempt: int,
        status: str,
        minutes: float,
        *,
        reasons: tuple[str, ...] = (),
        new: tuple[str, ...] = (),
        action: str = "retry",
        reason: str = "attempts are left",
        summary: str = "",
        agent: str = "claude",
    ) -> str:
        self.number += 1
        entry = f"add-login-{story}-{attempt}"
        self.add(
            "iteration_started",
            number=self.number,
            story=str(story),
            title=STORIES[story - 1],
            entry=entry,
            attempt=attempt,
            attempts=3,
            task=None,
            directory="x",
            agent=agent,
        )
        for _ in range(3):
            self.add("agent", minutes=minutes / 3, event={"kind": "tool", "name": "Edit", "detail": "src/login.py"})
        for command, failed in (("ruff check .", ()), ("pytest -q", new)):
            self.add("gate_started", when="after", command=command)
            self.add(
                "gate",
                minutes=1.5,
                when="after",
                command=command,
                ok=not failed,
                exit_code=bool(failed),
                seconds=90.0,
                failed=list(failed),
                new=list(failed),
                tally="212 passed" + (", 1 failed" if failed else ""),
                log="l",
            )
        self.add(
            "verdict",
            entry=entry,
            story=str(story),
            attempt=attempt,
            status=status,
            summary=summary or f"what {entry} did",
            reasons=list(reasons),
            ticked=[],
            tasks_done=4 if status == "completed" else 1,
            tasks_total=4,
            files=["src/login.py", "tests/test_login.py"],
            findings=[],
            seconds={"agent": minutes * 60, "gates": 180.0},
            input_tokens=int(minutes * 21000),
            output_tokens=int(minutes * 700),
            cost=round(minutes * 0.07, 2),
        )
        self.add(
            "decision",
            entry=entry,
            story=str(story),
            action="next" if status == "completed" else action,
            guidance=""
            if status == "completed"
            else "Compare the hash, not the text.\nLook at tests/test_login.py first.",
            reason="done" if status == "completed" else reason,
        )
        if status == "completed":
            self.add(
                "checkpoint",
                story=str(story),
                commit=f"{story}9f2c1b7d0e5a4c3b8a7f6e5d4c3b2a1908f7e6d",
                subject=STORIES[story - 1],
            )
        return entry

    def end(self, states: dict[int, str], result: str = "unfinished") -> None:
        rows = [
            {
                "id": str(number),
                "title": title,
                "state": states.get(number, "done"),
                "attempts": 1,
                "why": "three attempts failed" if states.get(number) == "failed" else "",
                "question": None,
                "commit": None,
                "optional": False,
            }
            for number, title in enumerate(STORIES, 1)
        ]
        self.add(
            "run_ended",
            minutes=1,
            result=result,
            reason="no story can be worked on now",
            stories=rows,
            spent={"seconds": 27000},
            next=[{"say": "continue", "run": "ralphtool run add-login"}],
        )

    def write(self, root: Path, run: str = RUN) -> Path:
        folder = root / ".ralph/runs" / run
        folder.mkdir(parents=True)
        path = folder / "events.jsonl"
        path.write_bytes(b"".join(line + b"\n" for line in self.lines))
        return path


def a_night() -> Night:
    """Eight stories, retries, a wait, a pause, a hand-over, a question, and an agent that writes what it should not."""
    night = Night()
    night.start()
    night.add("notice", text="There are no end-to-end tests here: stories rest on their checks and unit tests.")
    wrong = "tests/test_login.py::test_wrong_password"
    night.attempt(
        2,
        1,
        "failed",
        31,
        reasons=("pytest -q is newly red",),
        new=(wrong,),
        summary="The form is there; a wrong password is accepted.",
    )
    night.attempt(2, 2, "completed", 14, summary="A wrong password is refused, in constant time.")
    night.attempt(
        3,
        1,
        "partial",
        38,
        reasons=("2 tasks not ticked: 3.3, 3.4",),
        reason="the rest in chunks",
        action="break-chunks",
    )
    night.attempt(3, 2, "completed", 22)
    night.attempt(
        4,
        1,
        "blocked",
        9,
        reasons=("the agent reported a blocker: PAYMENT_KEY is not set",),
        action="manual",
        reason="ralphtool confirmed the blocker: the variable PAYMENT_KEY is missing",
    )
    night.add(
        "question",
        story="4",
        prd_id="add-login-4",
        path="/p/.ralph/questions/add-login-4.md",
        missing="Which payment provider should be used, and where is its key?\nPAYMENT_KEY is not set.",
    )
    night.attempt(5, 1, "completed", 27)
    night.add("waiting", seconds=4200, until="", why="rate-limit: the five-hour limit is reached")
    night.add(
        "handed_over", minutes=70, **{"from": "claude", "to": "codex"}, why="rate-limit: the five-hour limit is reached"
    )
    night.attempt(
        6,
        1,
        "failed",
        24,
        reasons=("pytest -q is newly red",),
        new=("tests/test_limits.py::test_burst", "tests/test_limits.py::test_reset"),
        agent="codex",
    )
    night.attempt(
        6,
        2,
        "failed",
        19,
        reasons=("the same failure came twice",),
        action="fix-state",
        new=("tests/test_limits.py::test_burst",),
        agent="codex",
    )
    night.add("paused", minutes=1, why="you said so")
    night.add(
        "steered", minutes=17, action="guide", story="6", text="use the clock of the server, not that of the client"
    )
    night.add("resumed", minutes=1)
    night.attempt(
        6,
        3,
        "failed",
        21,
        reasons=(HOSTILE, "test_burst still fails"),
        action="stop",
        reason=HOSTILE,
        summary=HOSTILE,
        new=(HOSTILE,),
    )
    night.attempt(7, 1, "completed", 33)
    night.attempt(8, 1, "failed", 6, action="skip", reason="it is optional, and did not complete")
    night.end({4: "waiting", 6: "failed", 8: "skipped", 9: "open"})
    return night
