"""Specs in the shapes that people use, one small project for each: `shapes/*.toml`.

`change` is its name, `spec` the value of `--spec` if it is not found without, `path` where it was found. `stories` are
lines with a story's id, why it is put aside, and the ids of its tasks; `done`, `optional`, `waits` and `warns` are what
else is read from it. `refused` says why it can't be read. `tick` is a task, and what ticking replaces with what, after
the tasks in `completed`. `rest` says why something is left when everything assigned is done; `complete_with` are the
tasks with which the change is complete. `both_marks` is for a last criterion with a mark besides that of its story.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from project import Ralph
from specs.formats import all_tasks, done_ids

from ralphtool import specs
from ralphtool.errors import SpecError
from ralphtool.specs import Spec, Story, remaining

FOLDER = Path(__file__).parent / "shapes"
SHAPES = {
    f"{file.stem}-{shape['name']}": {**shape, "adapter": file.stem}
    for file in sorted(FOLDER.glob("*.toml"))
    for shape in tomllib.loads(file.read_text())["shape"]
}
READ = [name for name, shape in SHAPES.items() if "refused" not in shape]
TICKED = [name for name in READ if "tick" in SHAPES[name]]
WITH_TASKS = [name for name in READ if any(line.partition(":")[2] for line in SHAPES[name]["stories"])]
WITHOUT_TASKS = [name for name in READ if name not in WITH_TASKS]


def make(ralph: Ralph, name: str) -> dict[str, Any]:
    shape = SHAPES[name]
    for path, content in shape["files"].items():
        ralph.write(path, bytes.fromhex(content["hex"]) if isinstance(content, dict) else content.removeprefix("\n"))
    return shape


def opened(ralph: Ralph, shape: dict[str, Any]) -> Spec:
    return specs.open(str(ralph.root), shape["change"], shape.get("spec"))


def describe(story: Story) -> str:
    return f"{' '.join(filter(None, (story.id, story.put_aside)))}: {' '.join(task.id for task in story.tasks)}".strip()


def test_there_are_about_as_many_as_people_have() -> None:
    assert len(SHAPES) >= 50
    assert {shape["adapter"] for shape in SHAPES.values()} == {"openspec", "speckit", "checklist", "prd"}


@pytest.mark.parametrize("name", READ)
def test_it_is_read(ralph: Ralph, name: str) -> None:
    shape = make(ralph, name)
    spec = opened(ralph, shape)
    stories = spec.stories()
    assert [describe(story) for story in stories] == shape["stories"]
    assert spec.adapter == shape["adapter"]
    assert done_ids(spec) == shape.get("done", [])
    assert [task.id for task in all_tasks(spec) if task.optional] == shape.get("optional", [])
    assert {story.id: list(story.depends_on) for story in stories if story.depends_on} == shape.get("waits", {})
    warnings = specs.list_warnings(spec)
    assert len(warnings) == len(shape.get("warns", []))
    for text, warning in zip(shape.get("warns", []), warnings, strict=True):
        assert text in warning
    if "path" in shape:
        assert spec.path == str(ralph.root / shape["path"])


@pytest.mark.parametrize("name", [name for name in READ if "spec" not in SHAPES[name]])
def test_it_is_found_by_looking_and_by_its_path(ralph: Ralph, name: str) -> None:
    shape = make(ralph, name)
    root = str(ralph.root)
    assert [place.change for place in specs.find_all(root)].count(shape["change"]) == 1
    spec = opened(ralph, shape)
    ref = specs.parse_ref(root, spec.path)
    assert specs.open(root, shape["change"], ref).path == spec.path
    assert specs.find_named(root, spec.path) == shape["change"]


@pytest.mark.parametrize("name", [name for name in SHAPES if "refused" in SHAPES[name]])
def test_it_is_refused_for_the_stated_reason(ralph: Ralph, name: str) -> None:
    shape = make(ralph, name)
    before = ralph.snapshot()
    with pytest.raises(SpecError) as caught:
        opened(ralph, shape).stories()
    assert shape["refused"] in str(caught.value)
    assert ralph.snapshot() == before


@pytest.mark.parametrize("name", TICKED)
def test_a_tick_changes_this_and_nothing_else(ralph: Ralph, name: str) -> None:
    shape = make(ralph, name)
    before = ralph.snapshot()
    spec = opened(ralph, shape)
    task, old, new = shape["tick"]
    completed: list[str] = shape.get("completed", [])
    for other in completed:
        spec.tick(other, completed)
    spec.tick(task, completed)
    changed = {path: data for path, data in ralph.snapshot().items() if before.get(path) != data}
    [(path, data)] = changed.items()
    was = before[path]
    assert isinstance(was, bytes)
    assert data == was.replace(old.encode(), new.encode(), 1)
    assert task in done_ids(opened(ralph, shape))


@pytest.mark.parametrize("name", WITH_TASKS)
def test_every_tick_changes_one_thing(ralph: Ralph, name: str) -> None:
    shape = make(ralph, name)
    spec = opened(ralph, shape)
    completed: list[str] = []
    for task in [task.id for task in all_tasks(spec) if not task.done]:
        before, done = ralph.snapshot(), set(done_ids(spec, completed))
        spec.tick(task, completed)
        completed.append(task)
        assert set(done_ids(spec, completed)) == done | {task}
        changed = [path for path, data in ralph.snapshot().items() if before[path] != data]
        assert len(changed) <= 1
        for path in changed:
            assert count_changed(before[path], ralph.snapshot()[path]) <= (40 if shape.get("both_marks") else 12)
    assert all(story.done for story in spec.stories(completed) if story.tasks)


def count_changed(old: Any, new: Any) -> int:
    """How many bytes there are between the first and the last that differ."""
    assert isinstance(old, bytes)
    assert isinstance(new, bytes)
    start = next((index for index, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), 0)
    tail = zip(reversed(old[start:]), reversed(new[start:]), strict=False)
    end = next((index for index, (a, b) in enumerate(tail) if a != b), 0)
    return max(len(old), len(new)) - start - end


@pytest.mark.parametrize("name", WITHOUT_TASKS)
def test_without_tasks_it_is_never_complete(ralph: Ralph, name: str) -> None:
    shape = make(ralph, name)
    spec = opened(ralph, shape)
    assert not specs.is_complete(spec.stories())
    option = ["--spec", shape["spec"]] if "spec" in shape else []
    shown = ralph.run("show", shape["change"], *option)
    assert "No tasks yet" in shown.stdout
    assert remaining.describe_task(spec) in shown.stdout
    assert ralph.agent("session", "init", "--change", shape["change"], *option).exit_code == 0
    refused = ralph.agent("session", "next-story")
    assert refused.code == "SPEC_ERROR"
    assert remaining.describe_task(spec) in refused.error["error"]


@pytest.mark.parametrize("name", ["openspec-no-tasks-file", "speckit-specified-but-no-tasks-yet", "prd-no-stories-yet"])
def test_without_tasks_list_says_so_and_run_refuses(ralph: Ralph, name: str) -> None:
    shape = make(ralph, name)
    assert "no tasks yet" in ralph.run("list").stdout
    before = ralph.snapshot()
    refused = ralph.run("run", shape["change"], "--agent-command", "true")
    assert refused.exit_code == 1
    assert "has no tasks yet" in refused.stderr
    assert "- [ ]" in refused.stderr or "userStories" in refused.stderr
    assert ralph.snapshot() == before


@pytest.mark.parametrize("name", [name for name in READ if "rest" in SHAPES[name]])
def test_what_is_not_handed_out_keeps_it_from_being_complete(ralph: Ralph, name: str) -> None:
    shape = make(ralph, name)
    ralph.agent("session", "init", "--change", shape["change"])
    while "story_id" in (answer := ralph.agent("session", "next-story")).stdout:
        for task in ralph.agent("context").json["tasks"]:
            ralph.agent("task", "done", task["id"])
        assert ralph.agent("status").json["change_complete"] is False, answer.stdout
    assert answer.code == "SPEC_ERROR"
    assert shape["rest"] in answer.error["error"]


@pytest.mark.parametrize("name", [name for name in READ if "complete_with" in SHAPES[name]])
def test_it_is_complete_without_what_is_optional(ralph: Ralph, name: str) -> None:
    shape = make(ralph, name)
    spec = opened(ralph, shape)
    for task in shape["complete_with"]:
        spec.tick(task)
    assert specs.is_complete(spec.stories())
    assert done_ids(spec) == shape["complete_with"]


def test_a_byte_that_is_not_utf8_in_context_is_replaced_and_told(ralph: Ralph) -> None:
    make(ralph, "openspec-numbered-headings")
    ralph.write("openspec/changes/add-login/proposal.md", b"# Caf\xe9\n")
    ralph.agent("session", "init", "--change", "add-login")
    ralph.agent("session", "next-story")
    assert ralph.agent("context").json["proposal"] == "# Caf\ufffd\n"
    shown = ralph.run("show", "add-login")
    assert "proposal.md: byte 5 is not UTF-8" in " ".join(shown.stdout.split())


def test_a_path_is_never_taken_for_a_module(ralph: Ralph) -> None:
    make(ralph, "openspec-numbered-headings")
    for path in ("docs/missing.json", "docs/missing.md", "missing.json"):
        refused = ralph.agent("session", "init", "--change", "missing", "--spec", path)
        assert refused.code == "CHANGE_NOT_FOUND"
        assert path in refused.error["error"]
    refused = ralph.agent("session", "init", "--change", "x", "--spec", "docs/plan.yml")
    assert refused.code == "CHANGE_NOT_FOUND"
    ralph.write("docs/plan.yml", "a: 1\n")
    refused = ralph.agent("session", "init", "--change", "x", "--spec", "docs/plan.yml")
    assert refused.code == "INVALID_VALUE"
    assert "docs/plan.yml" in refused.error["error"]


@pytest.mark.parametrize("path", ["openspec/changes/add-login", "openspec/changes/add-login/tasks.md", "prd.json"])
def test_a_path_decides_between_specs_of_one_name(ralph: Ralph, path: str) -> None:
    make(ralph, "openspec-numbered-headings")
    ralph.write("prd.json", '{"name": "add-login", "userStories": [{"id": "US-1", "title": "Log in"}]}')
    assert ralph.agent("session", "init", "--change", "add-login").code == "SPEC_ERROR"
    stories = ralph.agent("session", "init", "--change", "add-login", "--spec", path).json["stories"]
    assert stories[0]["id"] == ("US-1" if path == "prd.json" else "1")


def test_specs_of_one_name_and_format_are_told_apart_by_their_paths(ralph: Ralph) -> None:
    make(ralph, "prd-snarktank-in-scripts-ralph")
    ralph.write("prd.json", (ralph.root / "scripts/ralph/prd.json").read_bytes())
    listed = ralph.run("list").stdout
    assert "scripts/ralph/prd.json" in listed
    refused = ralph.agent("session", "init", "--change", "add-login")
    assert "prd, prd:scripts/ralph/prd.json" in refused.error["error"]
    ralph.agent("session", "init", "--change", "add-login", "--spec", "scripts/ralph/prd.json")
    ralph.agent("session", "next-story")
    for task in ("US-001.1", "US-001.2"):
        ralph.agent("task", "done", task)
    assert '"passes": true' in ralph.read("scripts/ralph/prd.json")
    assert '"passes": false' in ralph.read("prd.json")


def test_one_broken_file_hides_no_other_of_its_format(ralph: Ralph) -> None:
    make(ralph, "prd-snarktank-in-scripts-ralph")
    ralph.write("prd.json", "{")
    result = ralph.run("list", "--json")
    listed = json.loads(result.stdout)["changes"]
    assert [(one["name"], one["tasks_total"]) for one in listed] == [("project", None), ("add-login", 2)]
    assert "prd.json is not JSON" in result.stderr


def test_a_run_refuses_what_no_commit_of_it_could_hold(ralph: Ralph) -> None:
    make(ralph, "checklist-fix-plan-in-the-ralph-folder")
    refused = ralph.run("run", "fix_plan", "--agent-command", "true")
    assert refused.exit_code == 1
    assert "mv .ralph/fix_plan.md fix_plan.md" in refused.stderr


def test_a_nested_change_gives_way_to_one_of_the_project_itself(ralph: Ralph) -> None:
    make(ralph, "openspec-nested-in-a-monorepo")
    own = ralph.write("openspec/changes/add-login/tasks.md", "## 7. Own\n- [ ] 7.1 x\n").parent
    root = str(ralph.root)
    assert specs.open(root, "add-login").path == str(own)
    nested = "packages/web/openspec/changes/add-login"
    assert specs.open(root, "add-login", nested).path == str(ralph.root / nested)
    assert [place.change for place in specs.find_all(root)] == ["add-login", "add-login"]
