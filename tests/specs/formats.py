"""One change in every format, and what the tests of all formats check."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest
from project import Ralph

from ralphtool import specs
from ralphtool.specs import Spec, Task

# --- what the tests of all formats check ------------------------------------------------------------


def open_spec(ralph: Ralph, change: str, spec: str | None = None) -> Spec:
    return specs.open(str(ralph.root), change, spec)


def outline(spec: Spec, completed: Collection[str] = ()) -> dict[str, list[str]]:
    """The ids of the stories in order, each with those of its tasks."""
    return {story.id: [task.id for task in story.tasks] for story in spec.stories(completed)}


def done_ids(spec: Spec, completed: Collection[str] = ()) -> list[str]:
    return [task.id for story in spec.stories(completed) for task in story.tasks if task.done]


def all_tasks(spec: Spec) -> list[Task]:
    return [task for story in spec.stories() for task in story.tasks]


PRD = """\
{
  "project": "shop",
  "branchName": "ralph/add-login",
  "userStories": [
    {"id": "US-1", "title": "Log in", "acceptanceCriteria": ["a form", "a button"], "passes": false},
    {"id": "US-2", "title": "Log out", "passes": false}
  ]
}
"""


SPECKIT = """\
# Tasks: login

## Phase 1: Setup

- [ ] T001 Make the folder
- [ ] T002 [P] Write the file

## Phase 2: User Story 1 - Log in

- [ ] T003 [P] [US1] Write the form
"""


CHECKLIST = """\
# Plan

## Set up

- [ ] make the folder
- [ ] write the file

## Build

* [ ] compile
"""


KIRO = """\
# Implementation Plan

- [ ] 1. Set up
  - [ ] 1.1 Make the folder
    - _Requirements: 1.1_
  - [ ] 1.2 Write the file

- [ ] 2. Log in
"""


TASKMASTER = """\
{
  "add-login": {
    "tasks": [
      {
        "id": 1,
        "title": "Set up",
        "status": "pending",
        "dependencies": [],
        "subtasks": [
          {"id": 1, "title": "Make the folder", "status": "pending", "dependencies": []},
          {"id": 2, "title": "Write the file", "status": "pending", "dependencies": [1]}
        ]
      },
      {"id": "2", "title": "Log in", "status": "pending", "dependencies": [1], "subtasks": []}
    ],
    "metadata": {"created": "2026-01-31T09:30:00Z"}
  }
}
"""


BACKLOG = """\
---
id: TASK-1
title: Set up
status: To Do
assignee: []
milestone: add-login
dependencies: []
---

## Description

The groundwork.

## Acceptance Criteria
<!-- AC:BEGIN -->
- [ ] #1 There is a folder
- [ ] #2 There is a file
<!-- AC:END -->
"""


def make_openspec(ralph: Ralph) -> str:
    ralph.openspec()
    return "add-login"


def make_prd(ralph: Ralph) -> str:
    ralph.write("prd.json", PRD)
    return "add-login"


def make_speckit(ralph: Ralph) -> str:
    ralph.write("specs/001-login/tasks.md", SPECKIT)
    return "001-login"


def make_checklist(ralph: Ralph) -> str:
    ralph.write("fix_plan.md", CHECKLIST)
    return "fix_plan"


def make_kiro(ralph: Ralph) -> str:
    ralph.write(".kiro/specs/login/tasks.md", KIRO)
    return "login"


def make_taskmaster(ralph: Ralph) -> str:
    ralph.write(".taskmaster/tasks/tasks.json", TASKMASTER)
    return "add-login"


def make_backlog(ralph: Ralph) -> str:
    ralph.write("backlog/config.yml", 'statuses: ["To Do", "In Progress", "Done"]\n')
    ralph.write("backlog/tasks/task-1 - Set-up.md", BACKLOG)
    other = "---\nid: TASK-2\ntitle: Log in\nstatus: To Do\nmilestone: add-login\ndependencies: [task-1]\n---\n"
    ralph.write("backlog/tasks/task-2 - Log-in.md", other)
    return "add-login"


MAKERS: dict[str, Callable[[Ralph], str]] = {
    "openspec": make_openspec,
    "prd": make_prd,
    "speckit": make_speckit,
    "checklist": make_checklist,
    "kiro": make_kiro,
    "taskmaster": make_taskmaster,
    "backlog": make_backlog,
}


every_format = pytest.mark.parametrize("name", list(MAKERS))

# --- shared by several files ------------------------------------------------------------------------


STRANGER = '''
"""Jobs, one a line, in jobs.txt: "todo 1 sweep" or "done 1 sweep"."""
import os
from ralphtool.errors import ChangeNotFound, TaskNotFound
from ralphtool.specs import Story, Task, notes


class Jobs:
    adapter, change = "jobs", "jobs"

    def __init__(self, folder, ref):
        self.path, self.ref, self.notes = os.path.join(folder, "jobs.txt"), ref, os.path.join(folder, "jobs-notes.md")

    def _lines(self):
        with open(self.path, newline="") as file:
            return file.read().split("\\n")

    def stories(self, completed=()):
        words = [line.split(None, 2) for line in self._lines() if line.strip()]
        return [Story("all", "All jobs", [Task(id, text, mark == "done") for mark, id, text in words])]

    def tick(self, task_id, completed=(), *, proven=True):
        lines = self._lines()
        at = [n for n, line in enumerate(lines) if line.split()[1:2] == [task_id]]
        if not at:
            raise TaskNotFound(task_id)
        lines[at[0]] = lines[at[0]].replace("todo", "done", 1)
        with open(self.path, "w", newline="") as file:
            file.write("\\n".join(lines))

    def proposal(self):
        return None

    def design(self):
        return None

    def scenarios(self, story):
        return []

    def write_learnings(self, learnings):
        return notes.write_learnings(self.notes, learnings)

    def write_patterns(self, patterns):
        return notes.write_patterns(self.notes, patterns)

    def write_observations(self, observations):
        return notes.write_observations(self.notes, observations)


class Adapter:
    name = "jobs"
    found_in = "jobs.txt"

    def __init__(self, ref):
        self.ref = ref

    def changes(self, project):
        return ["jobs"] if os.path.exists(os.path.join(project, "jobs.txt")) else []

    def open(self, project, change, where=None):
        if change not in self.changes(project):
            raise ChangeNotFound(change)
        return Jobs(project, self.ref)

    def places(self, change, where=None):
        return ["jobs.txt"]


by_path = Adapter("stranger_jobs.formats:by_path")
by_name = Adapter("jobs")
'''
