"""An agent that is any program: what its last line says if it fails."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest
from lab import Lab

from ralphtool.agents import End, Job, make

if TYPE_CHECKING:
    from pathlib import Path

    from ralphtool.agents import Reader

LIMIT = "Claude AI usage limit reached"
ONE = "## 1. First\n\n- [ ] 1.1 Make it\n"


def read(output: bytes, errors: bytes = b"") -> Reader:
    reader = make("command", {"command": ["true"]}).reader(Job(prompt="prompt.md", root="."))
    list(reader.feed(output))
    list(reader.feed_errors(errors))
    return reader


@pytest.mark.parametrize(
    ("output", "errors", "exit_code", "reason"),
    [
        (
            b"",
            b"Traceback:\n  File\nModuleNotFoundError: no shop\n\n",
            1,
            "exit status 1: ModuleNotFoundError: no shop",
        ),
        (b"half of it\nunknown model\n", b"", 3, "exit status 3: unknown model"),
        (b"output", b"its complaint", 2, "exit status 2: its complaint"),
        (b"", b"", 1, "exit status 1"),
        (b"", b"bye", -9, "ended by signal 9: bye"),
        (b"done", b"a warning", 0, "exit status 0"),
        (b"<promise>COMPLETE:abc</promise>\n", b"", 1, "exit status 1"),
    ],
)
def test_its_end_says_why(output: bytes, errors: bytes, exit_code: int, reason: str) -> None:
    assert read(output, errors).end(exit_code) == End(exit_code == 0, output.decode(), reason)


def test_only_the_end_of_a_flood_is_kept() -> None:
    reader = read(b"", b"x" * 1_000_000)
    list(reader.feed_errors(b"\nthe reason\n"))
    assert reader.end(1).reason == "exit status 1: the reason"


@pytest.mark.parametrize(
    ("output", "errors", "troubles"),
    [
        (LIMIT.encode(), b"", ["rate-limit"]),
        (b"", b"Please run /login", ["login"]),
        (b"", b"fetch failed", ["network"]),
        (b"FAILED test_client: connection refused", b"", []),  # perhaps of the user's own server
        (LIMIT.encode(), b"some other error", []),
        (f"{LIMIT}\nno, it was another error".encode(), b"", []),
        (b"<promise>BLOCKED:abc: " + b"so " * 80 + b"the API key is missing</promise>\n", b"", []),
        (b"", b"", []),
    ],
)
def test_its_last_line_may_be_no_fault_of_the_story(output: bytes, errors: bytes, troubles: list[str]) -> None:
    assert [getattr(event, "trouble", event) for event in read(output, errors).rest()] == troubles


def run_agent(lab: Lab, script: str) -> tuple[int, str]:
    agent = lab.root.parent / "agent"
    agent.write_text(script)
    lab.repository(ONE, attempts=1, max_iterations=1)
    done = lab.run("run", "--agent-command", f"sh {shlex.quote(str(agent))}")
    return done.exit_code, done.stdout


def test_a_limit_costs_no_attempt(tmp_path: Path) -> None:
    code, output = run_agent(lab := Lab(tmp_path), f"echo '{LIMIT}'; exit 1")
    assert code == 1
    assert f"rate-limit: {LIMIT}" in output
    assert "not counted as an attempt" in output
    assert lab.entries() == []


def test_words_about_a_limit_mean_nothing_if_it_succeeds(tmp_path: Path) -> None:
    """They are its work, then: here a story about limits, whose promise is missing."""
    run_agent(lab := Lab(tmp_path), f"echo '{LIMIT}' >&2; echo '{LIMIT}'")
    assert lab.endings() == [("add-login-1-1", "failed")]


def test_a_blocker_is_reported_though_its_words_look_like_a_missing_login(tmp_path: Path) -> None:
    run_agent(lab := Lab(tmp_path), 'echo "<promise>BLOCKED:$RALPH_TOKEN: the API key is missing</promise>"; exit 1')
    assert lab.endings() == [("add-login-1-1", "blocked")]
    assert "the API key is missing" in lab.question().read_text()


def test_a_failure_is_named_with_its_reason(tmp_path: Path) -> None:
    code, output = run_agent(lab := Lab(tmp_path), "echo 'unknown option --headles' >&2; exit 64")
    assert code == 1
    assert "the agent failed: exit status 64: unknown option --headles" in output
    assert "unknown option --headles" in lab.question().read_text()
    assert lab.endings() == [("add-login-1-1", "failed")]
