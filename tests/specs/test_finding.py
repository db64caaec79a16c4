"""Rules for every spec format: how a change is found, and how changes are listed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from project import Ralph
from specs.formats import BACKLOG, CHECKLIST, KIRO, MAKERS, PRD, SPECKIT, TASKMASTER, every_format, open_spec

from ralphtool import specs
from ralphtool.errors import ChangeNotFound, InvalidName, InvalidValue, SpecError

# --- finding ----------------------------------------------------------------------------------------


@every_format
def test_a_change_is_found_by_looking(ralph: Ralph, name: str) -> None:
    change = MAKERS[name](ralph)
    found = open_spec(ralph, change)
    assert (found.adapter, found.change) == (name, change)
    assert Path(found.path).exists()


@every_format
def test_the_commands_know_no_format(ralph: Ralph, name: str) -> None:
    ralph.begin(MAKERS[name](ralph))
    tasks = ralph.agent("context").json["tasks"]
    for index, task in enumerate(tasks, 1):
        answer = ralph.agent("task", "done", task["id"]).json
        assert answer["remaining"] == [other["id"] for other in tasks[index:]]
        assert answer["story_complete"] is (index == len(tasks))
    assert ralph.agent("status").json["change"] == {"stories_done": 1, "stories_total": 2}


def test_nothing_there_is_change_not_found_and_names_what_is(ralph: Ralph) -> None:
    ralph.openspec().write("fix_plan.md", CHECKLIST)
    with pytest.raises(ChangeNotFound, match=r"no change nope.*add-login, fix_plan"):
        open_spec(ralph, "nope")


def test_an_empty_project_has_no_changes(ralph: Ralph) -> None:
    assert specs.find_all(str(ralph.root)) == []
    with pytest.raises(ChangeNotFound, match="no changes yet"):
        open_spec(ralph, "nope")


@pytest.mark.parametrize("name", ["..", "../x", "a/b", "", "a b", "a\0b", "x" * 129, ".hidden", "ａ"])
def test_a_name_that_is_none_is_refused_before_looking(ralph: Ralph, name: str) -> None:
    with pytest.raises(InvalidName):
        open_spec(ralph, name)


# --- several formats --------------------------------------------------------------------------------


def test_a_change_in_several_formats_is_an_error_that_names_them(ralph: Ralph) -> None:
    ralph.openspec().write("prd.json", PRD)
    with pytest.raises(SpecError, match=r"openspec.*prd.*--spec"):
        open_spec(ralph, "add-login")


def test_all_formats_that_hold_a_change_are_named(ralph: Ralph) -> None:
    ralph.openspec(change="PLAN").write("prd.json", PRD.replace("ralph/add-login", "ralph/PLAN"))
    ralph.write("specs/PLAN/tasks.md", SPECKIT).with_name("spec.md").write_text("# Spec\n")
    ralph.write("PLAN.md", CHECKLIST)
    ralph.write(".kiro/specs/PLAN/tasks.md", KIRO)
    ralph.write(".taskmaster/tasks/tasks.json", TASKMASTER.replace("add-login", "PLAN"))
    ralph.write("backlog/tasks/task-1 - Set-up.md", BACKLOG.replace("add-login", "PLAN"))
    with pytest.raises(SpecError) as caught:
        open_spec(ralph, "PLAN")
    for name in MAKERS:
        assert name in str(caught.value)


@pytest.mark.parametrize("name", ["openspec", "prd"])
def test_spec_decides_between_formats(ralph: Ralph, name: str) -> None:
    ralph.openspec().write("prd.json", PRD)
    assert open_spec(ralph, "add-login", name).adapter == name


def test_what_spec_decided_holds_for_the_whole_session(ralph: Ralph) -> None:
    ralph.openspec().write("prd.json", PRD)
    refused = ralph.agent("session", "init", "--change", "add-login")
    assert refused.code == "SPEC_ERROR"
    assert "openspec" in refused.error["error"]
    assert "prd" in refused.error["error"]
    assert "--spec" in refused.error["error"]
    init = ralph.agent("session", "init", "--change", "add-login", "--spec", "prd").json
    assert [story["id"] for story in init["stories"]] == ["US-1", "US-2"]
    ralph.agent("session", "next-story")
    assert ralph.agent("task", "done", "US-1.1").json["remaining"] == ["US-1.2"]
    ralph.agent("learn", "kept in the right place")
    ralph.agent("session", "flush")
    assert "kept in the right place" in ralph.read("add-login-learnings.md")
    assert not ralph.design_file.exists()


def test_show_takes_spec_too(ralph: Ralph) -> None:
    ralph.openspec().write("prd.json", PRD)
    assert ralph.run("show", "add-login", "--spec", "openspec", "--json").json["adapter"] == "openspec"
    assert ralph.run("show", "add-login", "--json").exit_code == 1


def test_list_shows_both_of_the_same_name(ralph: Ralph) -> None:
    ralph.openspec().write("prd.json", PRD)
    listed = ralph.run("list", "--json").json["changes"]
    assert [(one["name"], one["adapter"]) for one in listed] == [("add-login", "openspec"), ("add-login", "prd")]


def test_an_unknown_format_names_the_known_ones(ralph: Ralph) -> None:
    with pytest.raises(InvalidValue, match=r"unknown spec format 'kanban'.*openspec, prd, speckit, checklist"):
        open_spec(ralph.openspec(), "add-login", "kanban")


@pytest.mark.parametrize("name", ["openspec", "prd", "speckit", "checklist"])
def test_spec_names_a_format_that_does_not_hold_the_change(ralph: Ralph, name: str) -> None:
    ralph.write("README.md", "hello")
    with pytest.raises(ChangeNotFound):
        open_spec(ralph, "add-login", name)


# --- the list ---------------------------------------------------------------------------------------


@every_format
def test_list_json_has_these_keys(ralph: Ralph, name: str) -> None:
    change = MAKERS[name](ralph)
    [listed] = ralph.run("list", "--json").json["changes"]
    assert {**listed, "path": ""} == {
        "name": change,
        "adapter": name,
        "path": "",
        "stories_total": 2,
        "stories_done": 0,
        "tasks_total": {"openspec": 4}.get(name, 3),
        "tasks_done": 0,
        "locked_by": None,
    }
    assert Path(listed["path"]) == Path(open_spec(ralph, change).path)


@every_format
def test_list_follows_the_session(ralph: Ralph, name: str) -> None:
    ralph.begin(MAKERS[name](ralph))
    ralph.agent("task", "done", ralph.agent("context").json["tasks"][0]["id"])
    [listed] = ralph.run("list", "--json").json["changes"]
    assert (listed["tasks_done"], listed["stories_done"], listed["locked_by"]) == (1, 0, "s1")


def test_one_broken_change_does_not_hide_the_others(ralph: Ralph) -> None:
    ralph.openspec().write("openspec/changes/broken/tasks.md", b"- [ ] 1.1 \xff\n")
    ralph.write("prd.json", "{")
    result = ralph.run("list", "--json")
    assert result.exit_code == 0
    listed = {one["name"]: one for one in json.loads(result.stdout)["changes"]}
    assert listed["add-login"]["tasks_total"] == 4
    assert listed["broken"]["tasks_total"] is None
    assert "UTF-8" in result.stderr
    assert "prd.json" in result.stderr


TASKS = "## 1. Story\n\n- [ ] 1.1 Do it\n"


@pytest.mark.parametrize(
    "folder", ["test/fixtures/p", "pkg/testdata", "src/__fixtures__", "src/__tests__/p", "TestData/p", "node_modules/p"]
)
def test_changes_in_test_data_are_found_only_from_within(ralph: Ralph, folder: str) -> None:
    ralph.write("openspec/changes/real/tasks.md", TASKS)
    ralph.write(f"{folder}/openspec/changes/fake/tasks.md", TASKS)
    assert [one["name"] for one in ralph.run("list", "--json").json["changes"]] == ["real"]
    inside = ralph.run("list", "--json", cwd=ralph.root / folder)
    assert [one["name"] for one in inside.json["changes"]] == ["fake"]


def test_a_list_says_where_the_change_of_a_nested_project_is(ralph: Ralph) -> None:
    ralph.write("openspec/changes/real/tasks.md", TASKS)
    ralph.write("packages/web/openspec/changes/add-login/tasks.md", TASKS)
    own, nested = ralph.run("list").stdout.splitlines()
    assert "openspec/changes/real" not in own
    assert nested.startswith("add-login")
    assert nested.endswith("  packages/web/openspec/changes/add-login")
