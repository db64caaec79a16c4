"""`ralphtool doctor`: what it finds, how to fix it, and what it fixes itself."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lab import DONE, Lab, kill, wait_until
from patience import PATIENCE
from project import COMMAND, Result, bound_by_permissions
from realagents import PROGRAMS
from sandbox.boxes import needs_box

from ralphtool import agents
from ralphtool.agents.program import Program
from ralphtool.cli import state_checks
from ralphtool.history import journal
from ralphtool.judging.gate_trouble import Trouble
from ralphtool.loop.workspace_choice import Findings
from ralphtool.settings import load
from ralphtool.workspace.git import Repository

GREEN = "true"
RED = "echo the last words >&2; exit 3"


def findings(result: Result) -> list[dict[str, Any]]:
    found = json.loads(result.stdout)["findings"]
    assert isinstance(found, list)
    return found


def troubles(result: Result, about: str | None = None) -> list[str]:
    """The findings that are not ok, as texts."""
    shown = [one for one in findings(result) if one["state"] != "ok" and about in (None, one["about"])]
    return [f"{one['state']}: {one['text']}" for one in shown]


def examined(lab: Lab, *arguments: str, **env: Any) -> Result:
    return lab.run("doctor", "--json", *arguments, **env)


@pytest.fixture
def well(lab: Lab) -> Lab:
    """A project without problems."""
    lab.repository(tests=[GREEN], workspace="auto").play(default=DONE)
    assert lab.run("init", "--yes").exit_code == 0
    return lab


def test_a_project_that_is_well(well: Lab) -> None:
    before = well.snapshot()
    result = examined(well, "--gates")
    assert troubles(result) == []
    assert result.exit_code == 0
    assert json.loads(result.stdout)["wrong"] == 0
    assert {one["about"] for one in findings(result)} >= {"git", "settings", "agents", "specs", "gates"}
    shown = well.run("doctor", "--gates")
    assert "nothing is wrong" in shown.stdout
    assert "running true" in shown.stderr
    inside = str(well.root / ".git/")
    kept = {path: text for path, text in well.snapshot().items() if not path.startswith(inside)}
    assert kept == {path: text for path, text in before.items() if not path.startswith(inside)}, "looking is harmless"


def test_nothing_at_all(lab: Lab) -> None:
    """A new user's first command, in an empty folder, without an agent."""
    result = examined(lab, PATH="/usr/bin:/bin")
    assert result.exit_code == 1
    told = " ".join(troubles(result))
    for words in (
        "not a git repository",
        "there is no .ralph/config.toml",
        "no known agent is installed",
        "no change",
    ):
        assert words in told
    assert list(lab.root.iterdir()) == []
    mends = [one["mend"] for one in findings(result) if one["state"] != "ok"]
    assert all(mends)


def test_an_own_agent_configured_as_suggested_is_found(lab: Lab) -> None:
    lab.repository()
    lab.write(".ralph/config.toml", "")
    [found] = [one for one in findings(examined(lab, PATH="/usr/bin:/bin")) if one["about"] == "agents"]
    assert 'agent = "NAME" in [run], and command = ["…"] in [agents.NAME]' in found["mend"]
    lab.write(".ralph/config.toml", '[run]\nagent = "mine"\n[agents.mine]\ncommand = ["cat"]\n')
    assert not troubles(examined(lab, PATH="/usr/bin:/bin"), "agents")


def test_gates(well: Lab) -> None:
    well.configure(checks=["no-such-program --x"], tests=[RED, GREEN])
    marked = examined(well, "--gates")
    assert marked.exit_code == 1
    missing, red = troubles(marked, "gates")
    assert "no-such-program is not installed" in missing
    assert "is already red (exit status 3)" in red
    assert "the last words" in red
    assert troubles(examined(well), "gates") == [missing], "they are only run when that is asked for"
    well.configure(tests=["sleep 3600"])
    well.write(".ralph/config.toml", well.read(".ralph/config.toml") + 'timeout = "1s"\n')
    assert "took longer than 1 s" in troubles(examined(well, "--gates"), "gates")[0]


def test_a_gate_whose_program_is_only_in_the_project_s_environment(well: Lab) -> None:
    well.write(".venv/bin/pytst", "#!/bin/sh\nexit 0\n").chmod(0o755)
    well.configure(tests=["pytst -q"])
    [found] = [one for one in findings(examined(well)) if one["about"] == "gates"]
    assert found["text"] == "`pytst -q`: pytst is not on the PATH, but .venv/bin/pytst exists"
    assert found["mend"] == "replace pytst by .venv/bin/pytst in [verify] of .ralph/config.toml"
    [told] = well.run("run", "--dry-run", "--json").json["gate_troubles"]
    assert "pytst is not on the PATH; set `.venv/bin/pytst` in [verify]" in told


def test_the_cause_of_a_red_gate(well: Lab) -> None:
    well.write("package.json", "{}")
    well.write("bin/npm", "#!/bin/sh\nno-such-runner\n").chmod(0o755)
    well.configure(tests=["npm test"])  # in the user's own folder
    result = examined(well, "--gates", PATH=f"{well.root}/bin:{well.env['PATH']}")
    [found] = [one for one in findings(result) if one["about"] == "gates"]
    assert "exit status 127" in found["text"]
    assert "its packages are not installed" in found["text"]
    assert found["mend"] == "npm install"


def test_gates_that_are_not_run_are_listed(well: Lab) -> None:
    well.configure(tests=["touch was-run"])
    [found] = [one for one in findings(examined(well)) if one["about"] == "gates"]
    assert (found["state"], "`touch was-run`: not run" in found["text"]) == ("ok", True)
    [shown] = [line for line in well.run("doctor").stdout.splitlines() if "not run" in line]
    assert shown.startswith("· gates"), "it is neither good nor bad"
    assert not (well.root / "was-run").exists()


def test_an_agent_that_never_answers_is_not_waited_for(well: Lab) -> None:
    """The program would take an hour; the user waits a few seconds."""
    well.write("bin/codex", "#!/bin/sh\nsleep 3600\n").chmod(0o755)
    well.write(".ralph/config.toml", '[run]\nagent = "codex"\n')
    [told] = troubles(examined(well, PATH=f"{well.root}/bin:{well.env['PATH']}"), "agents")
    found = re.search(r"no response within ([\d.]+) seconds", told)
    assert found is not None
    assert float(found[1]) <= 8


def test_a_project_that_may_only_be_read(well: Lab) -> None:
    command = [*bound_by_permissions(), COMMAND, "doctor", "--json"]
    well.root.chmod(0o555)
    try:
        done = subprocess.run(command, cwd=well.root, env=well.env, capture_output=True, timeout=PATIENCE)
    finally:
        well.root.chmod(0o755)
    assert done.returncode == 1
    [found] = [one for one in json.loads(done.stdout)["findings"] if one["about"] == "project"]
    assert found["text"].startswith(f"{well.root} can't be written")
    assert found["mend"] == f"chmod u+w {well.root}"


def test_a_temporary_directory_that_can_t_be_written(well: Lab) -> None:
    nowhere = str(well.root / "nowhere")
    result = examined(well, TMPDIR=nowhere)
    assert [one for one in troubles(result) if "TMPDIR" in one] == troubles(result, "project")
    assert well.run("run", "--dry-run", "--json", TMPDIR=nowhere).error["code"] == "IO_ERROR"
    assert well.agent("session", "init", "--change", "add-login", TMPDIR=nowhere).error["code"] == "IO_ERROR"
    assert not (well.root / "nowhere").exists()


def test_secrets_are_not_shown(well: Lab) -> None:
    well.configure(tests=["echo $MY_TOKEN; exit 1"])  # in the user's own folder: a box has no such variable
    result = examined(well, "--gates", MY_TOKEN="abcdefghijkl")
    assert "[redacted]" in result.stdout
    assert "abcdefghijkl" not in result.stdout


def test_settings_that_can_t_be_read(well: Lab) -> None:
    well.write(".ralph/config.toml", "[run]\nattemps = 3\n")
    result = examined(well)
    assert result.exit_code == 1
    assert any("line 2: unknown setting run.attemps: did you mean run.attempts?" in one for one in troubles(result))


def test_settings_that_can_t_hold(well: Lab) -> None:
    well.write(".ralph/config.toml", '[run]\nagent = "mine"\nmax_cost = 5.0\n[agents.mine]\ncommand = ["cat"]\n')
    assert any("the cost limit can't be enforced for mine" in one for one in troubles(examined(well), "agents"))
    well.write(".ralph/config.toml", '[run]\nagents = ["mine", "other"]\n[agents.mine]\ncommand = ["no-such-thing"]\n')
    missing, unknown = troubles(examined(well), "agents")
    assert "no-such-thing' was not found" in missing
    assert "unknown agent 'other'" in unknown


def test_specs_that_can_t_be_read(well: Lab) -> None:
    well.write("openspec/changes/broken/tasks.md", b"\xff\xfe")
    well.write("prd.json", "{")
    result = examined(well)
    told = " ".join(troubles(result, "specs"))
    assert result.exit_code == 1
    assert "not JSON" in told
    assert "not UTF-8" in told


def test_git_that_is_in_the_middle_of_something(well: Lab) -> None:
    well.configure(tests=[GREEN], workspace="here")
    well.write(".git/MERGE_HEAD", well.git("rev-parse", "HEAD") + "\n")
    well.git("config", "--unset", "user.email")
    busy, nameless = sorted(troubles(examined(well), "git"), reverse=True)
    assert "merge, rebase or similar operation is in progress" in busy
    assert "has no user name and email" in nameless


def test_a_merge_matters_to_finish_in_every_workspace(well: Lab) -> None:
    well.write(".git/MERGE_HEAD", well.git("rev-parse", "HEAD") + "\n")
    result = examined(well)
    [busy] = troubles(result, "git")
    assert "(MERGE_HEAD): until it ends, `ralphtool finish` refuses" in busy
    assert result.exit_code == 0, "the next run works in a box or a worktree"


def test_locks_held_by_nobody(well: Lab) -> None:
    gone = {"pid": 2**22 + 5, "start_time": "0", "machine": ""}
    code = "import json; from ralphtool.core import locks; print(json.dumps(locks.describe_process()))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    gone |= json.loads(told.stdout)
    lock = {"session_id": "s1", "change_name": "add-login", "acquired_at": "2026-01-01T00:00:00Z", "unlocked": False}
    lock |= {"session_file": str(well.session_file()), "spec": None, "owner": gone, "inherits": []}
    well.write(".ralph/locks/add-login.lock", json.dumps(lock)).chmod(0o600)
    well.write(".ralph/locks/other.lock", "{ damaged").chmod(0o600)
    dead, damaged = troubles(examined(well), "locks")
    assert "which is dead" in dead
    assert damaged.startswith("wrong")
    mended = examined(well, "--fix")
    assert mended.exit_code == 0
    assert [one["fixed"] for one in findings(mended) if one["about"] == "locks"] == [True, True]
    assert troubles(examined(well), "locks") == []
    assert not well.lock_file.exists()


def test_files_of_ours_that_are_damaged(well: Lab) -> None:
    well.write(".ralph/memory.index", b"SQLite format 3\0" + b"\xff" * 5000)
    well.write(".ralph/standing/add-login.json", '{"stories": 5}')
    well.write(".ralph/progress.json", "{")
    (well.root / ".gitignore").unlink()
    result = examined(well, "--fix")
    assert result.exit_code == 1
    by_name = {one["about"]: one for one in findings(result)}
    assert (by_name["memory"]["state"], by_name["memory"]["fixed"]) == ("warning", True)
    assert (by_name["standing"]["state"], by_name["standing"]["fixed"]) == ("wrong", False)
    path = f"{well.root}/.ralph/standing/add-login.json"
    assert by_name["standing"]["mend"] == f"mv {path} {path}.damaged"
    assert by_name["history"]["state"] == "wrong"
    assert not (well.root / ".ralph/memory.index").exists()
    assert well.read(".ralph/progress.json") == "{", "what is not ours to judge is left as it is"
    assert (well.root / ".gitignore").exists()
    left = troubles(examined(well))
    assert len(left) >= 2
    assert not any("memory" in one or ".gitignore" in one for one in left)


def test_a_record_that_can_t_be_read_is_set_aside(well: Lab) -> None:
    well.write(".ralph/progress.journal", journal.build_head() + b"damaged\n")
    [told] = troubles(examined(well), "history")
    assert "the next write sets them aside" in told
    assert examined(well, "--fix").exit_code == 0
    assert "damaged" in well.read(".ralph/progress.journal.damaged")


def test_a_run_that_was_killed_and_one_that_goes_on(well: Lab, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    well.configure(tests=[GREEN], workspace="here")
    well.play(default=[{"run": f"touch {marks}/begun; sleep 3600"}])
    process = well.start()
    try:
        assert wait_until((marks / "begun").exists)
        well.configure(tests=[f"touch {marks}/gate"])
        during = examined(well, "--gates")
        assert troubles(during, "tree") == []
        assert troubles(during, "locks") == []
        assert not (marks / "gate").exists(), "a gate would get in the way of the run"
    finally:
        kill(process, signal.SIGKILL)
    after = examined(well)
    assert after.exit_code == 1
    [killed] = [one for one in findings(after) if one["about"] == "tree"]
    assert (killed["state"], killed["mend"]) == ("wrong", "ralphtool back")
    assert any("which is dead" in one for one in troubles(after, "locks"))
    assert well.run("back").exit_code == 0
    assert troubles(examined(well, "--fix"), "tree") == []


def test_working_trees_that_nobody_needs(well: Lab) -> None:
    well.git("worktree", "add", "--quiet", "--detach", str(well.root / ".git/ralph/worktrees/finished"))
    well.git("worktree", "add", "--quiet", "--detach", str(well.tmp / "gone"))
    shutil.rmtree(well.tmp / "gone")
    orphan, prunable = troubles(examined(well), "git")
    assert "a worktree of finished, whose branch is gone" in orphan
    assert "folders are gone" in prunable
    assert examined(well, "--fix").exit_code == 0
    assert troubles(examined(well), "git") == []
    assert not (well.root / ".git/ralph/worktrees/finished").exists()


def test_unfinished_work_in_a_working_tree_is_kept(well: Lab) -> None:
    place = well.root / ".git/ralph/worktrees/finished"
    well.git("worktree", "add", "--quiet", "--detach", str(place))
    (place / "half.txt").write_text("half\n")
    assert any("whose branch is gone" in text for text in troubles(examined(well), "git"))
    assert (place / "half.txt").exists(), "only --fix removes it"
    [fixed] = [one for one in findings(examined(well, "--fix")) if one["fixed"]]
    assert "kept as refs/ralph/interrupted/finished-1" in fixed["done"]
    assert well.git("show", "refs/ralph/interrupted/finished-1:half.txt") == "half"
    assert not place.exists()


def test_working_trees_of_stories_side_by_side_belong_to_their_change(well: Lab) -> None:
    well.git("branch", "ralph/under-way")
    well.git("worktree", "add", "--quiet", "--detach", str(well.root / ".git/ralph/worktrees/under-way@1"))
    assert troubles(examined(well), "git") == []


def test_a_disk_that_is_nearly_full() -> None:
    states = [[one.state for one in state_checks.check_disk_space("/", mib << 20)] for mib in (5000, 500, 50)]
    assert states == [[], ["warning"], ["wrong"]]


# --- agents -----------------------------------------------------------------------------------------


def runner(name: str, **env: str) -> Program:
    options = {"command": [str(PROGRAMS[name])] if PROGRAMS[name].exists() else [name], "env": env}
    made = agents.make(name, options)
    assert isinstance(made, Program)
    return made


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home without any login."""
    for name in [name for name in os.environ if name.endswith(("_KEY", "_TOKEN")) or name.startswith("GOOGLE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


KEYS = {"claude": "ANTHROPIC_API_KEY", "codex": "CODEX_API_KEY", "gemini": "GEMINI_API_KEY", "aider": "OPENAI_API_KEY"}
KEYS |= {"opencode": "ANTHROPIC_API_KEY", "mini": "OPENAI_API_KEY"}
FILES = {
    "claude": (".claude/.credentials.json", '{"claudeAiOauth": {"accessToken": "a", "refreshToken": "b"}}', "yes"),
    "codex": (".codex/auth.json", '{"OPENAI_API_KEY": "sk-x"}', "yes"),
    "gemini": (".gemini/oauth_creds.json", "{}", "yes"),
    "opencode": (".local/share/opencode/auth.json", '{"anthropic": {"type": "api", "key": "x"}}', "yes"),
}


@pytest.mark.parametrize("name", KEYS)
def test_a_key_is_a_login(nobody: Path, name: str) -> None:
    assert runner(name, **{KEYS[name]: "x"}).login(str(nobody)).answer == "yes"


@pytest.mark.parametrize("name", FILES)
def test_the_real_programs_agree_who_is_logged_in(nobody: Path, name: str) -> None:
    if not PROGRAMS[name].exists():
        pytest.skip(f"{name} is not installed: scripts/test does that")
    one = runner(name)
    before = one.login(str(nobody)).answer
    assert before == ("unknown" if name == "opencode" else "no")
    path, text, answer = FILES[name]
    (nobody / path).parent.mkdir(parents=True, exist_ok=True)
    (nobody / path).write_text(text)
    assert one.login(str(nobody)).answer == answer


def test_ways_that_nobody_sees(nobody: Path) -> None:
    (nobody / ".gemini").mkdir()
    (nobody / ".gemini/settings.json").write_text('{"security": {"auth": {"selectedType": "vertex-ai"}}}')
    assert runner("gemini").login(str(nobody)).answer == "unknown"
    project = nobody / "project"
    project.mkdir()
    (nobody / ".gemini/settings.json").unlink()
    assert runner("gemini").login(str(project)).answer == "no"
    (project / ".env").write_text("GEMINI_API_KEY=x\n")
    assert runner("gemini").login(str(project)).answer == "unknown"


def script_named(name: str, folder: Path, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def test_an_old_version_is_not_asked_what_it_might_take_for_a_prompt(nobody: Path) -> None:
    body = f'[ "$1" = --version ] && echo 2.1.0 || touch {nobody}/asked'
    script_named("claude", nobody, body)
    made = agents.make("claude", {"command": [str(nobody / "claude")]})
    assert isinstance(made, Program)
    assert made.login(str(nobody)).answer == "unknown"
    assert not (nobody / "asked").exists()


def test_agents_are_told_apart(well: Lab) -> None:
    """Too old, not logged in, unknown: each with its own text, in the order of the settings."""
    place = well.home / "bin"
    place.mkdir()
    script_named("claude", place, '[ "$1" = --version ] && echo 2.1.197 || exit 1')
    script_named("codex", place, "echo codex-cli 0.1.0")
    script_named("aider", place, "echo aider 0.86.2")
    script_named("opencode", place, "exit 7")
    well.write(".ralph/config.toml", '[run]\nagents = ["claude", "codex", "aider", "opencode"]\n')
    result = examined(well, PATH=f"{place}:{well.env['PATH']}")
    told = [one["text"] for one in findings(result) if one["about"] == "agents" and "MCP" not in one["text"]]
    assert told[0] == "claude 2.1.197: not logged in"
    assert "codex 0.1.0 is too old" in told[1]
    assert "could not check whether it is logged in" in told[2]
    assert "printed no version" in told[3]
    assert result.exit_code == 1


# --- workspace of the next run ------------------------------------------------------------------------


def read_sandbox(lab: Lab, *arguments: str) -> list[dict[str, Any]]:
    return [one for one in findings(examined(lab, "--no-gates", *arguments)) if one["about"] == "sandbox"]


@needs_box
def test_what_the_next_run_does_is_told_by_what_is_known(well: Lab) -> None:
    [first] = read_sandbox(well)
    assert "first tries your gates in it" in first["text"]
    repository = Repository.find(str(well.root))
    assert repository is not None
    settings = load(str(well.root))
    known = Findings(repository, settings, settings.verify.tests or ())
    known.remember("box", None)
    [found] = read_sandbox(well)
    assert (found["state"], "work happens in a box" in found["text"]) == ("ok", True)
    known.remember("box", Trouble(what="`make test` passes in your own folder, but not there", help="set it"))
    [found] = read_sandbox(well)
    assert (found["state"], found["mend"]) == ("warning", "set it")
    assert "work happens in a worktree" in found["text"]
    assert "passes in your own folder, but not there" in found["text"]
    assert [one["fixed"] for one in read_sandbox(well, "--fix")] == [True]
    assert "tries your gates" in read_sandbox(well)[0]["text"]


def test_paths_for_a_box_that_are_not_there(well: Lab) -> None:
    config = well.root / ".ralph/config.toml"
    config.write_text(config.read_text() + '[sandbox]\nread = ["~/nowhere"]\n')
    [found] = [one for one in read_sandbox(well) if one["state"] == "wrong"]
    assert (found["state"], "nowhere" in found["text"]) == ("wrong", True)


def test_a_missing_gitignore_is_called_missing(lab: Lab) -> None:
    lab.repository()
    shown = lab.run("doctor").stdout
    assert f"there is no {lab.root}/.gitignore" in shown
    lab.write(".gitignore", "*.pyc\n")
    assert f"{lab.root}/.gitignore has no rules for them" in lab.run("doctor").stdout


def test_the_advice_for_a_change_in_two_formats_works(lab: Lab) -> None:
    lab.repository()
    assert lab.run("convert", "add-login", "checklist", "--file", "plans/add-login.md").exit_code == 0
    [found] = [one for one in findings_of(lab) if "several specs" in one["text"]]
    assert found["mend"].startswith('set spec = "openspec" under [run] in .ralph/config.toml')
    config = lab.read(".ralph/config.toml")
    for ref in ("openspec", "checklist:plans/add-login.md"):
        lab.write(".ralph/config.toml", config.replace("[run]\n", f'[run]\nspec = "{ref}"\n'))
        assert not [one for one in findings_of(lab) if "several specs" in one["text"]]


def findings_of(lab: Lab) -> list[dict[str, Any]]:
    found = json.loads(lab.run("doctor", "--json").stdout)["findings"]
    assert isinstance(found, list)
    return found
