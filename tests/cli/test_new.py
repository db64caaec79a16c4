"""`ralphtool new`: a scaffold in every format, read by ralphtool and by the format's own program."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from lab import Lab
from patience import PATIENCE
from project import REPOSITORY, Ralph

from ralphtool import specs
from ralphtool.errors import RalphError
from ralphtool.specs import scaffold

OPENSPEC = REPOSITORY / ".tools/openspec/node_modules/.bin/openspec"
HOSTILE = 'A "quoted" {brace} <!-- # é ✨ --> `x` %s \\'


@pytest.mark.parametrize(
    ("format", "change"),
    [("checklist", "add-login"), ("openspec", "add-login"), ("prd", "add-login"), ("speckit", "001-add-login")],
)
def test_it_can_be_read_at_once(ralph: Ralph, format: str, change: str) -> None:
    told = ralph.run("new", "Add login", "--format", format, "--json").json
    assert (told["change"], told["format"]) == (change, format)
    shown = ralph.run("show", change, "--json").json
    assert shown["adapter"] == format
    assert [len(story["tasks"]) for story in shown["stories"]] == [2, 2]
    assert [story["done"] for story in shown["stories"]] == [False, False]
    assert shown["stories"][1]["depends_on"] == [shown["stories"][0]["id"]], "its title says so"
    files = {str(path) for path in ralph.root.rglob("*") if path.is_file()}
    assert files == set(told["files"])
    before = ralph.snapshot()
    again = ralph.run("new", "Add login", "--format", format, "--name", change, "--json")
    assert "already" in again.error["error"]
    assert ralph.snapshot() == before


FILES = [name for name in specs.BUILT_IN if name not in specs.TRACKERS]


@pytest.mark.parametrize(("format", "program"), [("github", "gh issue create"), ("beads", "bd create")])
def test_a_change_of_an_issue_tracker_is_begun_there(ralph: Ralph, format: str, program: str) -> None:
    told = ralph.run("new", "Add login", "--format", format)
    assert told.exit_code == 1
    assert program in told.stderr


@pytest.mark.parametrize(
    "text", ["Add login", HOSTILE, "word " * 2000, "- [ ] 9.9 a box\n## 7. A story\n" + "word " * 50]
)
def test_whatever_is_said_stays_text(ralph: Ralph, text: str) -> None:
    root = str(ralph.root)
    for format in FILES:
        made = scaffold.plan(root, text, format=format, name=None if format == "checklist" else f"in-{format}")
        scaffold.write(made)
        stories = specs.open(root, made.change, format).stories()
        assert [len(story.tasks) for story in stories] == [2, 2], format


@pytest.mark.skipif(
    not OPENSPEC.exists(), reason="the OpenSpec program is not installed: tests/test_openspec_peer.py does"
)
def test_the_real_openspec_finds_it_valid(ralph: Ralph) -> None:
    for text, name in (("Add login", "add-login"), (HOSTILE, "hostile"), ("word " * 2000, "long")):
        assert ralph.run("new", text, "--name", name, "--format", "openspec").exit_code == 0
    env = {**ralph.env, "OPENSPEC_TELEMETRY": "0", "DO_NOT_TRACK": "1"}
    command = [str(OPENSPEC), "validate", "--changes", "--strict", "--json"]
    done = subprocess.run(command, cwd=ralph.root, env=env, capture_output=True, timeout=PATIENCE)
    items = json.loads(done.stdout)["items"]
    assert {item["id"]: item["valid"] for item in items} == {"add-login": True, "hostile": True, "long": True}, items


def test_the_format_is_the_project_s(ralph: Ralph) -> None:
    root = str(ralph.root)
    assert scaffold.detect_format(root) == "checklist"
    ralph.write("specs/004-old/tasks.md", "## Phase 1: A\n- [ ] T001 b\n")
    assert scaffold.detect_format(root) == "speckit"
    assert scaffold.plan(root, "Add login").change == "005-add-login"
    ralph.write("prd.json", '{"userStories": []}')
    assert scaffold.detect_format(root) == "prd"
    (ralph.root / "openspec").mkdir()
    assert scaffold.detect_format(root) == "openspec"
    ralph.write(".ralph/config.toml", '[run]\nspec = "checklist:docs/plan.md"\n')
    assert scaffold.detect_format(root) == "checklist"


@pytest.mark.parametrize("format", FILES)
def test_examples_that_nobody_has_replaced_are_not_run(lab: Lab, format: str) -> None:
    lab.configure()
    lab.play()
    assert lab.run("new", "Add login", "--format", format).exit_code == 0
    told = lab.run("run")
    assert (told.exit_code, "still has the examples" in told.stderr) == (1, True)
    assert not (lab.root / ".ralph/runs").exists()
    planned = lab.run("run", "--dry-run")
    assert (planned.exit_code, "still has the examples" in planned.stdout) == (1, True)


def test_doctor_warns_of_examples_that_nobody_has_replaced(lab: Lab) -> None:
    lab.run("new", "Add login")
    findings = json.loads(lab.run("doctor", "--json").stdout)["findings"]
    found = [one for one in findings if one["about"] == "specs"]
    assert [one["state"] for one in found] == ["warning", "ok"]
    assert found[0]["text"].endswith("plans/add-login.md still has the examples of `ralphtool new`")
    assert found[0]["mend"] == "replace them with your own stories"


@pytest.mark.parametrize(
    ("text", "name"),
    [("Größe ändern", "grosse-andern"), ("Añadir  sesión!", "anadir-sesion"), ("a" * 10_000, "a" * 60)],
)
def test_names_are_made_of_words(ralph: Ralph, text: str, name: str) -> None:
    assert scaffold.plan(str(ralph.root), text, format="openspec").change == name


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["🎉🎉", "--format", "openspec"], "--name add-login"),
        ([" \t\n\x07", "--format", "checklist"], "say what the change is about"),
        (["", "--format", "openspec"], "say what the change is about"),
        (["x", "--format", "openspec", "--name", "../../etc"], "letters, digits"),
        (["Archive", "--format", "openspec"], "another name with --name"),
        (["x", "--file", "/tmp/elsewhere.md"], "outside the project"),
        (["x", "--file", "../elsewhere.md"], "outside the project"),
        (["x", "--file", "docs/plan.txt"], "ends in .md"),
        (["x", "--file", "README.md"], "can't be called"),
        (["x", "--file", "a.md", "--format", "prd"], "use --file or --format"),
    ],
)
def test_what_can_t_be_begun(ralph: Ralph, arguments: list[str], words: str) -> None:
    before = ralph.snapshot()
    assert words in ralph.run("new", *arguments, "--json").error["error"]
    assert ralph.snapshot() == before


def test_control_characters_reach_neither_terminal_nor_file(ralph: Ralph) -> None:
    result = ralph.run("new", "Add\x1b[2J login\x00"[:-1] + "\x07", "--format", "openspec")
    assert result.exit_code == 0, result.stderr
    texts = [path.read_text() for path in ralph.root.rglob("*.md")]
    assert all("\x1b" not in text and "\x07" not in text for text in [*texts, result.stdout])


def test_a_checklist_that_is_there_already(ralph: Ralph) -> None:
    ralph.write("plan.md", "my own\n")
    ralph.write("plans/add-login.md", "my own\n")
    assert ralph.run("new", "Add login", "--json").json["change"] == "add-login-2"
    refused = ralph.run("new", "Add login", "--file", "plan.md", "--json")
    assert "--file docs/NAME.md" in refused.error["error"]
    result = ralph.run("new", "Add login", "--file", "docs/login.md")
    assert 'spec = "docs/login.md" under [run]' in result.stdout
    assert len(ralph.run("show", "login", "--spec", "docs/login.md", "--json").json["stories"]) == 2
    ralph.write(".ralph/config.toml", '[run]\nspec = "docs/login.md"\n')
    assert [one["name"] for one in ralph.run("list", "--json").json["changes"]] == ["add-login-2", "login"]
    assert ralph.read("plan.md") == "my own\n"


def test_a_name_that_another_format_has(project: Ralph) -> None:
    refused = project.run("new", "Add login", "--format", "prd", "--name", "add-login", "--json")
    assert "there is already a change add-login (openspec)" in refused.error["error"]
    assert project.run("new", "Add login", "--format", "prd", "--json").json["change"] == "add-login-2"


def test_a_second_change_always_has_a_place(ralph: Ralph) -> None:
    assert ralph.run("new", "First thing", "--format", "prd").exit_code == 0
    made = ralph.run("new", "Second thing", "--json").json
    assert (made["change"], made["format"]) == ("second-thing", "checklist")
    listed = {one["name"]: one.get("title") for one in ralph.run("list", "--json").json["changes"]}
    assert listed == {"first-thing": None, "second-thing": None}


def test_one_that_was_killed_midway_is_in_nobody_s_way(ralph: Ralph) -> None:
    ralph.write("openspec/changes/.add-login.ralph-aside/tasks.md", "half")
    assert ralph.run("list", "--json").json["changes"] == []
    assert ralph.run("new", "Add login").exit_code == 0
    assert sorted(os.listdir(ralph.root / "openspec/changes")) == ["add-login"]


def test_somebody_was_quicker(ralph: Ralph) -> None:
    made = scaffold.plan(str(ralph.root), "Add login", format="openspec")
    ralph.write("openspec/changes/add-login/tasks.md", "theirs")
    with pytest.raises((RalphError, OSError)):
        scaffold.write(made)
    assert ralph.read("openspec/changes/add-login/tasks.md") == "theirs"
