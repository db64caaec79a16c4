"""The command that runs a change again: wherever people are told it, it uses the agent of the change's last run."""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from lab import DONE, Lab, kill, wait_until

from ralphtool.agents import make
from ralphtool.loop.runners import build_agent_options
from ralphtool.settings import Settings

OTHER = '\n[agents.other]\nkind = "scripted"\nargs = ["{script}"]\n'


@pytest.fixture
def unset(lab: Lab) -> Lab:
    """A project whose settings name no agent; an agent works only with `--agent other`."""
    lab.repository(attempts=1)
    settings = lab.read(".ralph/config.toml").replace('agent = "scripted"\n', "")
    lab.write(".ralph/config.toml", settings + OTHER.format(script=lab.script))
    return lab


def find_command(text: str) -> list[str]:
    """The words of the one command that runs a change."""
    found = [part for part in text.replace("`", "\n").splitlines() if part.strip().startswith("ralphtool run ")]
    assert len(set(map(str.strip, found))) == 1, text
    return shlex.split(found[0])


def ask(lab: Lab) -> None:
    lab.play(default=[{"blocked": "the port is not known"}])
    lab.loop("--agent", "other", "--max-iterations", "1")


def fail(lab: Lab) -> None:
    lab.play(default=[{"say": "I could not."}])
    lab.loop("--agent", "other", "--max-iterations", "1")


def finish_one(lab: Lab) -> None:
    lab.play(default=DONE)
    lab.loop("--agent", "other", "--max-iterations", "1")


def pause(lab: Lab) -> None:
    fail(lab)
    lab.run("pause")


@pytest.mark.parametrize(
    ("prepare", "command"),
    [
        (ask, ["answer", "1", "443"]),
        (fail, ["retry", "1"]),
        (pause, ["resume"]),
        (finish_one, ["reject", "1"]),
        (finish_one, ["finish", "--squash"]),
        (finish_one, ["report"]),
    ],
    ids=["answer", "retry", "resume", "reject", "finish", "report"],
)
def test_the_advice_of_a_command_uses_the_agent_of_the_last_run(
    unset: Lab, prepare: Callable[[Lab], None], command: list[str]
) -> None:
    prepare(unset)
    told = unset.run(*command)
    assert told.exit_code == 0, told.stderr
    assert find_command(told.stdout) == ["ralphtool", "run", "add-login", "--agent", "other"]


def test_the_suggested_command_works(unset: Lab) -> None:
    unset.play(default=[{"say": "I could not."}])
    unset.loop("--agent", "other", "--max-iterations", "1")
    words = find_command(unset.run("retry", "1").stdout)
    unset.play(default=DONE)
    assert unset.run(*words[1:]).exit_code == 0
    assert unset.checkpoints() == ["1", "2"]


def test_a_run_that_died_is_resumed_with_its_agent(unset: Lab) -> None:
    unset.play(default=[{"run": "touch started; sleep 60"}])
    process = unset.start("--agent", "other")
    wait_until(lambda: any(one["type"] == "iteration_started" for one in unset.events()))
    kill(process, signal.SIGKILL)
    expected = ["ralphtool", "run", "add-login", "--agent", "other"]
    assert find_command(unset.run("list").stdout) == expected
    assert find_command(unset.run("runs").stdout) == expected
    assert find_command(unset.run("watch").stderr) == expected


def test_a_change_that_never_ran_needs_no_options(unset: Lab) -> None:
    told = unset.run("finish", "add-login")
    assert told.exit_code == 1
    assert find_command(told.stderr) == ["ralphtool", "run", "add-login"]


def test_only_the_start_of_the_last_run_is_read(unset: Lab) -> None:
    """A record of 100 MB, and damaged ones of other versions."""
    fail(unset)
    [record] = unset.root.glob(".ralph/runs/*/events.jsonl")
    with record.open("ab") as file:
        file.truncate(100 << 20)
    for number, text in enumerate(["", "[]\n", '{"type": "run_started", "change": "add-login", "agent_options": 7}\n']):
        other = record.parent.parent / f"other-20200101-00000{number}-0000"
        other.mkdir()
        (other / "events.jsonl").write_text(text)
    assert find_command(unset.run("retry", "1").stdout)[-2:] == ["--agent", "other"]


@pytest.mark.parametrize(
    ("words", "hidden"),
    [
        (["my-agent", "--api-key", "sk-1234567890"], "sk-1234567890"),
        (["my-agent", "--api-key=sk-1234567890"], "sk-1234567890"),
        (["sh", "-c", "OPENAI_API_KEY=sk-1234567890 my-agent --x"], "sk-1234567890"),
        (["sh", "-c", "my-agent --token sk-1234567890 --x"], "sk-1234567890"),
        (["my-agent", "-H", "Authorization: Bearer sk-1234567890"], "sk-1234567890"),
        (["my-agent", "https://me:hunter22@example.org/"], "hunter22"),
        (["my-agent", "it's the secret value"], "it's the secret value"),
    ],
)
def test_a_secret_of_the_command_line_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], hidden: str
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "it's the secret value")
    told = build_agent_options(str(tmp_path), Settings(), [make("command", {"command": words})])
    assert told.startswith(" --agent-command ")
    assert "[redacted]" in told
    command = shlex.split(shlex.split(told)[1])
    assert hidden not in told
    assert hidden not in json.dumps(command)
    assert command[0] == words[0]


def test_a_command_without_secrets_is_repeated_exactly(tmp_path: Path) -> None:
    words = ["sh", "-c", "my-agent --max-tokens 8000 --tokenizer a-long-name --keys vim https://example.org:8080/a@b"]
    told = build_agent_options(str(tmp_path), Settings(), [make("command", {"command": words})])
    assert shlex.split(shlex.split(told)[1]) == words


AGENT = """\
#!/bin/sh
cat > /dev/null
if [ ! -e "$0.asked" ]; then
  touch "$0.asked"
  echo "<promise>BLOCKED:$RALPH_TOKEN:the port is not known</promise>"
  exit
fi
echo work > "$RALPH_STORY.txt"
for task in 1.1 1.2 2.1; do ralphtool agent task done "$task" > /dev/null 2>&1; done
echo "<promise>COMPLETE:$RALPH_TOKEN</promise>"
"""


@pytest.mark.parametrize("command", ["answer", "report"])
def test_the_suggested_command_works_with_an_agent_command(unset: Lab, command: str) -> None:
    agent = unset.root.parent / "my agent's.sh"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    assert unset.run("run", "--agent-command", f'"{agent}" --headless', "--max-iterations", "1").exit_code == 1
    answered = unset.run("answer", "1", "use port 443")
    assert answered.exit_code == 0, answered.stderr
    words = find_command((answered if command == "answer" else unset.run(command)).stdout)
    assert words[:4] == ["ralphtool", "run", "add-login", "--agent-command"]
    done = unset.run(*words[1:], "--max-iterations", "1")
    assert "1. First: completed" in done.stdout, done.stdout
    assert unset.checkpoints() == ["1"]


@pytest.mark.parametrize(
    ("folder", "command"),
    [
        (".", "../my-agent.sh"),
        ("docs/more", "../../../my-agent.sh"),
        ("docs/more", "sh ../../tools/agent.sh"),
        ("tools", "sh agent.sh"),
        ("tools", "./agent.sh"),
    ],
)
def test_paths_in_the_command_count_from_the_folder_where_it_was_typed(unset: Lab, folder: str, command: str) -> None:
    for path in (unset.root.parent / "my-agent.sh", unset.write("tools/agent.sh", "")):
        path.write_text(AGENT)
        path.chmod(0o755)
    unset.write("docs/more/x.md", "x\n")
    unset.git("add", "tools")
    unset.git("commit", "--quiet", "--message=agent")
    done = unset.run("run", "--agent-command", command, "--max-iterations", "1", cwd=unset.root / folder)
    missing = [event["missing"] for event in unset.events() if event["type"] == "question"]
    assert missing == ["the port is not known"], done.stderr


def test_a_program_that_is_not_committed_is_refused(unset: Lab) -> None:
    unset.write("tools/agent.sh", AGENT)
    done = unset.run("run", "--agent-command", "sh agent.sh", cwd=unset.root / "tools")
    assert done.exit_code == 2
    assert "tools/agent.sh, which --agent-command names, is not committed" in done.stderr
    assert unset.events() == []
