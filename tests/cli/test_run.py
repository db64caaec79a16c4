"""`ralphtool run` as a command line: what it accepts, what it refuses, and the environment of the agent."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path

import pytest
from lab import DONE, Lab
from project import COMMAND


@pytest.mark.parametrize(
    ("arguments", "config", "told"),
    [
        (("--timout", "5m"), "", "--timeout"),
        (("--timeout", "soon"), "", "--timeout"),
        (("--attempts", "0"), "", "--attempts"),
        (("--guard", "maybe"), "", "fail"),
        (
            (),
            '[run]\nagent = "scripted"\nattemps = 3\n',
            "line 3: unknown setting run.attemps: did you mean run.attempts?",
        ),
        ((), "[run]\nagent = 3\n", "line 2"),
        ((), "[run\n", "line 1"),
        (("--agent-command", "'"), "", "quotes"),
        (("--agent-command", ""), "", "empty"),
        (("--no-such-flag",), "", "no-such-flag"),
        (("--agent", "claud"), "", "unknown agent 'claud'"),
        ((), '[run]\nagent = "claud"\n', "did you mean claude?"),
    ],
)
def test_wrong_usage_is_exit_2_and_changes_nothing(
    lab: Lab, arguments: tuple[str, ...], config: str, told: str
) -> None:
    lab.repository()
    if config:
        lab.write(".ralph/config.toml", config)
    before = lab.snapshot()
    result = lab.run("run", *arguments)
    assert result.exit_code == 2
    assert told in result.stderr
    assert lab.snapshot() == before


@pytest.mark.parametrize(
    ("arguments", "config", "told"),
    [
        ((), "", "no agent is configured"),
        (("--agent-command", "no-such-program --x"), "", "was not found: install it"),
        (("no-such-change", "--agent-command", "true"), "", "there is no change no-such-change"),
        (("--agent", "scripted"), '[agents.scripted]\nargs = ["/no/such/script"]\n', "/no/such/script"),
    ],
)
def test_what_can_not_run_is_one_clear_error_and_changes_nothing(
    lab: Lab, arguments: tuple[str, ...], config: str, told: str
) -> None:
    lab.repository()
    lab.write(".ralph/config.toml", config)
    before = lab.snapshot()
    result = lab.run("run", *arguments)
    assert result.exit_code in (1, 2)
    assert told in result.stderr
    assert lab.snapshot() == before
    as_json = lab.run("run", "--json", *arguments)
    assert told in json.loads(as_json.stderr)["error"]
    assert as_json.stdout == ""


def test_several_changes_have_to_be_named(lab: Lab) -> None:
    lab.repository()
    lab.openspec(change="other")
    result = lab.run("run")
    assert result.exit_code == 2
    assert "add-login, other" in result.stderr


def test_stories_that_the_history_could_not_tell_apart_are_refused(lab: Lab) -> None:
    lab.repository("## 1. One\n- [ ] 1.1 a\n").play(default=DONE)
    shutil.rmtree(lab.root / "openspec")
    stories = [{"id": id, "title": id, "passes": False} for id in ("US 1", "US-1")]
    lab.write("prd.json", json.dumps({"project": "shop", "userStories": stories}))
    before = lab.users_state()
    result = lab.loop()
    assert result.exit_code == 1
    assert "the stories US 1 and US-1 are the same in the history" in result.stderr
    assert lab.users_state() == before


ENVIRONMENT = """#!/bin/sh
env > "$SEEN"
command -v ralphtool >> "$SEEN.which"
command -v python3 >> "$SEEN.which"
cat > "$SEEN.prompt"
ralphtool agent session flush 2> "$SEEN.flush"
ralphtool agent session next-story 2>> "$SEEN.flush"
ralphtool agent status > "$SEEN.status"
echo work > work.txt
ralphtool agent task done 1.1 > /dev/null && ralphtool agent task done 1.2 > /dev/null
echo "<promise>COMPLETE:$RALPH_TOKEN</promise>"
"""


def test_what_an_agent_finds_around_itself(lab: Lab, tmp_path: Path) -> None:
    lab.repository()
    agent = tmp_path / "agent.sh"
    agent.write_text(ENVIRONMENT)
    agent.chmod(0o755)
    seen = tmp_path / "seen"
    # Without the folder of this installation: the agent gets `ralphtool`, and nothing else from there.
    path = os.pathsep.join(part for part in lab.env["PATH"].split(os.pathsep) if part != str(Path(COMMAND).parent))
    result = lab.loop("--max-iterations", "1", "--agent-command", str(agent), SEEN=str(seen), PATH=path)
    assert result.exit_code == 1, result.stderr
    assert lab.endings() == [("add-login-1-1", "completed")]
    variables = dict(line.split("=", 1) for line in seen.read_text().splitlines() if "=" in line)
    [run] = [event["run"] for event in lab.events(result) if event["type"] == "run_started"]
    assert (variables["RALPH_SESSION"], variables["RALPH_STORY"]) == (run, "1")
    assert f"\ntoken: {variables['RALPH_TOKEN']}\n" in Path(f"{seen}.prompt").read_text()
    ralphtool, python = Path(f"{seen}.which").read_text().splitlines()
    assert ralphtool.endswith("/bin/ralphtool")
    assert python == shutil.which("python3", path=path)
    assert json.loads(Path(f"{seen}.status").read_text())["story"]["id"] == "1"
    refused = [json.loads(line)["code"] for line in Path(f"{seen}.flush").read_text().splitlines()]
    assert refused == ["CHANGE_LOCKED", "CHANGE_LOCKED"]


def test_a_prompt_of_any_size_reaches_the_agent(lab: Lab, tmp_path: Path) -> None:
    lab.repository("## 1. One\n\n- [ ] 1.1 " + "long " * 400_000 + "\n")
    lab.write(
        ".ralph/config.toml",
        '[run]\nworkspace = "here"\n[prompt]\nbudget_tokens = 1000000\n[verify]\nchecks = []\ntests = []\n',
    )
    agent = tmp_path / "agent.sh"
    agent.write_text('#!/bin/sh\nwc -c > "$SEEN"\n')
    agent.chmod(0o755)
    seen = tmp_path / "seen"
    lab.loop("--max-iterations", "1", "--agent-command", str(agent), SEEN=str(seen))
    assert int(seen.read_text()) > 2_000_000


def test_events_are_one_object_a_line_and_nothing_else(lab: Lab) -> None:
    lab.repository().play(default=DONE)
    result = lab.loop()
    assert (result.exit_code, result.stderr) == (0, "")
    kinds = [event["type"] for event in lab.events(result)]
    assert kinds[0] == "run_started"
    assert kinds[-1] == "run_ended"
    assert [event["commit"][:7] for event in lab.events(result) if event["type"] == "checkpoint"]
    [path] = lab.root.glob(".ralph/runs/*/events.jsonl")
    assert [json.loads(line) for line in path.read_text().splitlines()] == lab.events(result)


def test_plain_lines_and_a_summary_without_a_terminal(lab: Lab) -> None:
    lab.repository().play(default=DONE)
    result = lab.run("run")
    assert result.exit_code == 0
    assert "✓ 1. First: completed (attempt 1, 2/2 tasks" in result.stdout
    assert "\n2 of 2 stories are done" in result.stdout
    assert "\x1b" not in result.stdout
    assert "ralphtool finish add-login --squash" in result.stdout


def test_a_change_that_is_done_is_done_at_once(lab: Lab) -> None:
    lab.repository().play(default=DONE)
    assert lab.loop().exit_code == 0
    again = lab.loop()
    assert again.exit_code == 0
    assert [event["type"] for event in lab.events(again)] == ["run_started", "notice", "workspace", "run_ended"]
    assert lab.checkpoints() == ["1", "2"]


def test_all_goes_on_where_one_change_is_not_filled_in(lab: Lab) -> None:
    lab.repository(change="zebra").play(default=DONE)
    assert lab.run("new", "Another thing", "--format", "openspec").exit_code == 0
    result = lab.run("run", "--all")
    assert "another-thing is skipped" in result.stderr
    assert "still has the examples" in result.stderr
    assert lab.git("for-each-ref", "--format=%(refname)", "refs/heads/ralph") == "refs/heads/ralph/zebra"
    assert result.exit_code == 1


def test_a_change_that_is_not_filled_in_is_not_chosen(lab: Lab) -> None:
    lab.repository(change="zebra").play(default=DONE)
    lab.run("new", "Another thing", "--format", "openspec")
    result = lab.run("run")
    assert result.exit_code == 0, result.stderr
    assert lab.git("for-each-ref", "--format=%(refname)", "refs/heads/ralph") == "refs/heads/ralph/zebra"


def test_show_needs_no_name_where_there_is_one_change(lab: Lab) -> None:
    lab.repository(change="zebra")
    assert lab.run("show").stdout.startswith("zebra")


def test_all_names_what_it_leaves_out_and_runs_the_rest(lab: Lab) -> None:
    lab.repository(workspace="worktree").play(default=DONE)
    lab.run("new", "A thing", "--format", "checklist")
    lab.write("plans/bad.md", "## One (depends on 9)\n\n- [ ] x\n")
    told = lab.run("run", "--all")
    assert told.exit_code == 1
    assert "a-thing is skipped: " in told.stderr
    assert "bad is skipped: " in told.stderr
    assert "story 1 depends on 9, which does not exist" in told.stderr
    assert lab.checkpoints() == ["1", "2"]


def test_all_is_not_done_while_a_story_has_no_boxes(lab: Lab) -> None:
    lab.repository("## 1. First\n\n- [x] 1.1 Make a\n\n## 2. Build it\n\n1. Write it.\n", workspace="worktree")
    told = lab.play(default=DONE).run("run", "--all")
    assert told.exit_code == 1
    assert "story 2 has no tasks" in told.stdout


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--agent-command", "sh -c 'echo \"it is\" $HOME; exit 1'"], None),
        (["--agent", "other"], ["--agent", "other"]),
        (["--agent", "scripted"], []),  # the settings name it
        ([], []),
    ],
)
def test_the_command_that_continues_a_run_uses_the_same_agent(lab: Lab, flags: list[str], words: list[str]) -> None:
    lab.repository(attempts=1).play(default=[{"say": "I could not."}])
    other = f'[agents.other]\nkind = "scripted"\nargs = ["{lab.script}"]\n'
    lab.write(".ralph/config.toml", lab.read(".ralph/config.toml") + other)
    told = lab.run("run", *flags, "--max-iterations", "1", COLUMNS="200")
    assert told.exit_code == 1
    [command] = [line.strip() for line in told.stdout.splitlines() if line.strip().startswith("ralphtool run")]
    assert shlex.split(command) == ["ralphtool", "run", "add-login", *(flags if words is None else words)]
    [ended] = [one for one in lab.events() if one["type"] == "run_ended"]
    assert command in [one["run"] for one in ended["next"]]
    assert command in lab.run("report").stdout
