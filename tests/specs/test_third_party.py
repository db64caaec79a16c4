"""A third-party format works as well as a built-in one: the same work, through the same commands.

The adapter is the checklist under another file name, so that all results can be compared with those of the real one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from lab import DONE, Lab

ADAPTER = '''\
"""Todos: boxes under headings in `todo.txt`."""

import os

from ralphtool.errors import ChangeNotFound
from ralphtool.specs import checklist
from ralphtool.specs.checklist import Checklist

name = "todos"
found_in = "todo.txt"


def changes(project):
    return ["todo"] if os.path.exists(os.path.join(project, "todo.txt")) else []


def open(project, change, where=None):
    if change not in changes(project):
        raise ChangeNotFound(f"there is no {change}")
    return Todos(os.path.join(project, "todo.txt"), change, name)


def places(change, where=None):
    return ["todo.txt"]


def scaffold(project, text, name, file):
    from ralphtool.specs.scaffold import Scaffold

    made = checklist.scaffold(project, text, "todo", None)
    return Scaffold("todo", os.path.join(project, "todo.txt"), made.texts)


class Todos(Checklist):
    adapter = name
'''

# The first story was done by its author before any run.
PLAN = """\
# Plan

## First

- [x] sweep

## Second

- [ ] mop
- [ ] wipe

## Third

- [ ] dry
"""


def install(lab: Lab, top: Path, *, entry_point: bool) -> None:
    """Installs the adapter as a package on PYTHONPATH, with or without an installer's metadata."""
    package = top / "site/strangers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "todos.py").write_text(ADAPTER)
    if entry_point:
        info = top / "site/strangers-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strangers\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[ralphtool.specs]\ntodos = strangers.todos\n")
    lab.env["PYTHONPATH"] = str(package.parent)


def normalised(text: str) -> str:
    """Without anything that differs from run to run, and without the name of the format."""
    for pattern, plain in (
        (r"/(ours|theirs)/", "/"),
        (r"strangers\.todos|\btodos\b", "checklist"),
        (r"todo\.txt", "todo.md"),
        (r"todo-\d{8}-\d{6}[\w-]*", "RUN"),
        (r"\b[0-9a-f]{7,40}\b", "HASH"),
        (r"\d[\d.,:]*( ?(ms|s|min)\b( \d+ s)?)?", "0"),
        (r"[▁▂▃▄▅▆▇█]+| +|-{3,}", " "),
    ):
        text = re.sub(pattern, plain, text)
    return text


def without_paths(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_paths(one) for key, one in value.items() if key not in ("path", "files", "spec")}
    return [without_paths(one) for one in value] if isinstance(value, list) else value


def journey(lab: Lab, file: str, new: list[str], **config: Any) -> dict[str, Any]:
    """Takes a change from start to finish; returns all results."""
    lab.repository(**config)
    lab.git("rm", "-r", "--quiet", "openspec")
    lab.git("commit", "--quiet", "--message=without")
    seen: dict[str, Any] = {"new": without_paths(lab.run("new", "Add login", *new, "--json").json)}
    refused = lab.loop("todo")
    seen["untouched"] = (refused.exit_code, "still has the examples" in refused.stderr)
    lab.write(file, PLAN)
    seen["list"] = without_paths(lab.run("list", "--json").json)
    seen["show"] = without_paths(lab.run("show", "todo", "--json").json)
    lab.play(default=DONE)
    done = lab.loop()
    assert done.exit_code == 0, done.stderr + done.stdout[-2000:]
    seen["events"] = [event["type"] for event in lab.events(done) if event["type"] not in ("event", "agent", "ticked")]
    seen["entries"] = lab.endings()
    seen["checkpoints"] = lab.checkpoints("todo")
    seen["in the tree"] = lab.read(file)
    seen["on the branch"] = lab.git("show", f"ralph/todo:{file}")
    seen["list afterwards"] = without_paths(lab.run("list", "--json").json)
    seen["show afterwards"] = without_paths(lab.run("show", "todo", "--json").json)
    for command in (["watch", "todo"], ["report", "todo"], ["explain", "todo-2-1"], ["logs", "todo-2-1"]):
        told = lab.run(*command)
        assert (told.exit_code, bool(told.stdout)) == (0, True), (command, told.stderr)
        seen[command[0]] = normalised(told.stdout)
    finished = lab.run("finish", "todo", "--squash")
    seen["finish"] = (finished.exit_code, normalised(finished.stdout))
    seen["finished"] = lab.read(file)
    return without_formats(seen)


def without_formats(seen: dict[str, Any]) -> dict[str, Any]:
    for name in ("new", "list", "show", "list afterwards", "show afterwards"):
        seen[name] = normalised(str(seen[name]).replace("True", "yes"))
    return seen


@pytest.mark.parametrize("how", ["dotted path", "entry point"])
def test_it_is_as_good_as_one_of_ours(tmp_path: Path, how: str) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    ours, theirs = Lab(tmp_path / "ours"), Lab(tmp_path / "theirs")
    install(theirs, tmp_path, entry_point=how == "entry point")
    wanted = journey(ours, "todo.md", ["--file", "todo.md"])
    if how == "entry point":
        told = journey(theirs, "todo.txt", ["--format", "todos"])
    else:
        told = journey(theirs, "todo.txt", [], spec="strangers.todos")
    assert wanted["entries"] == [("todo-2-1", "completed"), ("todo-3-1", "completed")]
    assert wanted["on the branch"].count("- [x]") == 4
    for name in wanted:
        assert told[name] == wanted[name], name


def test_a_format_without_boxes_is_ticked_by_its_own_rules(tmp_path: Path) -> None:
    """The guard does not treat the adapter's own writes as edits of the spec."""
    lab = Lab(tmp_path)
    install(lab, tmp_path, entry_point=True)
    adapter = tmp_path / "site/strangers/todos.py"
    adapter.write_text(ADAPTER.replace("class Todos(Checklist):", WITHOUT_BOXES))
    lab.repository()
    lab.git("rm", "-r", "--quiet", "openspec")
    lab.write("todo.txt", "todo mop\n")
    lab.git("add", "todo.txt")
    lab.git("commit", "--quiet", "--message=plan")
    lab.play(default=DONE)
    assert lab.loop().exit_code == 0
    assert lab.git("show", "ralph/todo:todo.txt") == "done mop"
    lab.git("branch", "--quiet", "-D", "ralph/todo")
    cheated = [{"run": "sed -i s/mop/nothing/ todo.txt"}, *DONE]
    lab.play(default=cheated)
    told = lab.loop("--max-iterations", "1")
    kinds = {one["kind"] for event in lab.events(told) for one in event.get("findings") or ()}
    assert "spec-edited" in kinds


WITHOUT_BOXES = '''
from ralphtool.errors import TaskNotFound
from ralphtool.specs import Story, Task


class Todos(Checklist):
    """One job a line: "todo mop", "done mop"."""

    def stories(self, completed=()):
        with __builtins__["open"](self.path) as file:
            words = [line.split(None, 1) for line in file if line.strip()]
        tasks = [Task(f"1.{n}", text.strip(), mark == "done") for n, (mark, text) in enumerate(words, 1)]
        return [Story("1", "All jobs", tasks)]

    def tick(self, task_id, completed=(), *, proven=True):
        with __builtins__["open"](self.path) as file:
            lines = file.readlines()
        at = int(task_id.partition(".")[2]) - 1
        lines[at] = lines[at].replace("todo", "done", 1)
        with __builtins__["open"](self.path, "w") as file:
            file.writelines(lines)
'''
