"""`ralphtool convert`: what is kept in another format, what is listed as lost, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from project import Ralph
from specs.formats import MAKERS, make_kiro, open_spec

from ralphtool import specs
from ralphtool.errors import InvalidName, InvalidValue, SpecError
from ralphtool.specs import Spec, conversion, scaffold

# A change with everything that any of the formats has a place for.
TASKS = """\
# Implementation Plan

- [x] 1. Set up the project
  - What it needs: a folder.
  - _Requirements: 1.1_
  - [x] 1.1 Make the folder
    - in `src/`
  - [x] 1.2 Write the file
- [ ] 2. Log in
  - _Requirements: 1.2, 2.1_
  - _Depends: 1_
  - [x] 2.1 Write the form
  - [ ]* 2.2 Write a property test
  - [ ] 2.3 Check the password
- [ ]* 3. Polish
  - _Depends: 1, 2_
"""
REQUIREMENTS = """\
# Requirements Document

## Introduction

Users want in.

### Requirement 1: Forms

1. WHEN a page is asked for THEN the system SHALL show a form
2. WHILE nobody is logged in, WHEN the form is sent THEN the system SHALL check it

### Requirement 2: Passwords

1. THE System SHALL keep passwords hashed
"""
# What is listed as lost from the change above.
LOST: dict[str, list[str]] = {
    "openspec": ["story 2: that 2.2 is optional"],
    "speckit": ["the names of 3 scenarios", "story 2: that 2.2 is optional"],
    "prd": [
        *("the design", "story 1: its scenarios (1)", "story 2: that 2.1 is done", "story 2: that 2.2 is optional"),
        "story 2: its scenarios (2)",
    ],
    "checklist": [
        *("the proposal", "the design", "story 1: its scenarios (1)", "story 2: that 2.2 is optional"),
        "story 2: its scenarios (2)",
    ],
    "taskmaster": [
        *("the proposal", "the design", "story 1: its scenarios (1)", "story 2: that 2.2 is optional"),
        "story 2: its scenarios (2)",
    ],
    "backlog": [
        *("the proposal", "the design", "story 1: its scenarios (1)", "story 2: that 2.2 is optional"),
        "story 2: its scenarios (2)",
    ],
}


@pytest.fixture
def full(ralph: Ralph) -> Ralph:
    ralph.write(".kiro/specs/login/tasks.md", TASKS)
    ralph.write(".kiro/specs/login/requirements.md", REQUIREMENTS)
    ralph.write(".kiro/specs/login/design.md", "# Design\n\nA form.\n")
    return ralph


def content(spec: Spec) -> list[Any]:
    """The content of a change, without the ids that its format assigns."""
    stories = spec.stories()
    titles = {story.id: story.title.partition(" (")[0].rpartition(" - ")[2] for story in stories}
    return [
        (
            titles[story.id],
            [(task.text.partition("\n")[0].partition(" - ")[0].rpartition("] ")[2], task.done) for task in story.tasks],
            story.optional,
            sorted(titles[id] for id in story.depends_on),
        )
        for story in stories
    ]


@pytest.mark.parametrize("format", list(LOST))
def test_all_is_kept_but_what_is_listed(full: Ralph, format: str) -> None:
    before = full.snapshot()
    made = full.run("convert", "login", format, "--json").json
    assert made["lost"] == LOST[format]
    after = full.snapshot()
    assert {path: after[path] for path in before} == before, "the old change stays as it is"
    assert {str(full.root / path) for path in after.keys() - before.keys()} >= set(made["files"])
    new, old = open_spec(full, "login", made["spec"]), open_spec(full, "login", "kiro")
    expected: Any = content(old)
    if format == "prd":  # it has no mark for a single task
        title, tasks, *rest = expected[1]
        expected[1] = (title, [(text, False) for text, _ in tasks], *rest)
    assert content(new) == expected
    assert list(made["stories"]) == ["1", "2", "3"]
    assert list(made["stories"].values()) == [story.id for story in new.stories()]


@pytest.mark.parametrize("format", ["openspec", "speckit"])
def test_and_back_again(full: Ralph, format: str) -> None:
    there = full.run("convert", "login", format, "--json").json
    back = full.run("convert", "login", "kiro", "--spec", there["spec"], "--name", "again", "--json").json
    old, new = open_spec(full, "login", "kiro"), open_spec(full, "again", "kiro")
    assert [one[:1] + one[2:] for one in content(new)] == [one[:1] + one[2:] for one in content(old)]
    said = [one.then for one in old.scenarios(old.stories()[1])]
    again = [one.then for one in new.scenarios(new.stories()[1])]
    assert all(one in again for one in said)
    assert back["change"] == "again"


@pytest.mark.parametrize("source", list(MAKERS))
def test_every_format_converts_to_every_other(ralph: Ralph, source: str) -> None:
    change = MAKERS[source](ralph)
    spec = open_spec(ralph, change)
    old = [(len(story.tasks), story.done) for story in spec.stories()]
    others = [name for name in conversion.formats() if name != source]
    assert len(others) >= 6
    for format in others:
        done = conversion.plan(str(ralph.root), spec, format, name="other")
        scaffold.write(done.made)
        made = specs.open(str(ralph.root), "other", done.made.spec or format)
        assert [(len(story.tasks), story.done) for story in made.stories()] == old, format
        assert done.made.change == "other"


def test_people_are_told_what_is_lost_and_what_to_do_next(full: Ralph) -> None:
    shown = full.run("convert", "login", "checklist", "--file", "docs/login.md")
    assert shown.exit_code == 0
    assert "  docs/login.md\n" in shown.stdout
    assert "checklist does not support:\n  the proposal\n" in shown.stdout
    assert "delete the old one, or select one with `--spec docs/login.md`." in shown.stdout
    assert full.run("show", "login", "--spec", "docs/login.md").exit_code == 0


# --- texts that mean something in the other format --------------------------------------------------

HOSTILE = [
    "## 7. A heading",
    "- [ ] 9.9 a box",
    "  - [x] an indented box",
    "```\n- [ ] in a fence that nobody closes",
    "1.1 WHEN a THEN b\n### Requirement 5: c",
    "<!-- AC:END -->",
    "---\nid: TASK-9\n---",
    'a "quote" and \\ and \u2028',
]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("format", ["openspec", "speckit", "prd", "checklist", "kiro", "backlog"])
def test_a_text_never_becomes_a_story_or_a_task(ralph: Ralph, format: str, text: str) -> None:
    subtask = {"id": 1, "title": "real", "description": text, "status": "pending"}
    tasks = [
        {"id": 1, "title": "One", "description": text, "status": "pending", "subtasks": [subtask, subtask | {"id": 2}]},
        {"id": 2, "title": "Two", "details": text, "status": "done", "subtasks": []},
    ]
    ralph.write(".taskmaster/tasks/tasks.json", json.dumps({"master": {"tasks": tasks}}))
    made = conversion.plan(str(ralph.root), open_spec(ralph, "master"), format).made
    scaffold.write(made)
    spec = open_spec(ralph, "master", made.spec or format)
    assert [(len(story.tasks), story.done) for story in spec.stories()] == [(2, False), (1, True)]
    assert [task.done for story in spec.stories() for task in story.tasks] == [False, False, True]


# --- refused, with nothing written ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["login", "kiro"], "is already in the format kiro"),
        (["login", "nonsense"], "unknown spec format"),
        (["other", "prd"], "no change other"),
        (["login", "prd", "--file", "x.md"], "--file works only with the format checklist"),
        (["login", "checklist", "--file", "../x.md"], "outside the project"),
        (["login", "checklist", "--file", "x.txt"], "not a Markdown file"),
        (["login", "openspec", "--name", "archive"], "can't be called archive"),
        (["login", "openspec", "--name", "../x"], "is not a change's name"),
    ],
)
def test_refused_with_a_reason_and_nothing_written(full: Ralph, arguments: list[str], told: str) -> None:
    before = full.snapshot()
    refused = full.run("convert", *arguments)
    assert refused.exit_code == 1
    assert told in refused.stderr
    assert full.snapshot() == before


@pytest.mark.parametrize(
    ("format", "path"),
    [
        ("openspec", "openspec/changes/login/notes.md"),
        ("speckit", "specs/login/notes.md"),
        ("prd", "prd.json"),
        ("checklist", "plans/login.md"),
        ("backlog", "backlog/tasks/task-1 - Set-up-the-project.md"),
    ],
)
def test_nothing_is_overwritten(full: Ralph, format: str, path: str) -> None:
    text = "---\nid: TASK-1\nmilestone: login\n---\n" if format == "backlog" else "mine\n"
    full.write(path, text)
    before = full.snapshot()
    refused = full.run("convert", "login", format, "--spec", "kiro")
    assert refused.exit_code == 1
    assert "already" in refused.stderr
    assert full.snapshot() == before


def test_a_tag_that_is_there_is_kept(full: Ralph) -> None:
    full.write(".taskmaster/tasks/tasks.json", json.dumps({"login": {"tasks": []}}))
    before = full.snapshot()
    assert "already" in full.run("convert", "login", "taskmaster", "--spec", "kiro").stderr
    assert full.snapshot() == before


def test_a_change_without_stories_is_refused(ralph: Ralph) -> None:
    ralph.write(".kiro/specs/login/requirements.md", REQUIREMENTS)
    with pytest.raises(SpecError, match="no stories"):
        conversion.plan(str(ralph.root), open_spec(ralph, "login"), "prd")


def test_a_format_that_composes_nothing_is_refused(ralph: Ralph, monkeypatch: pytest.MonkeyPatch) -> None:
    make_kiro(ralph)
    monkeypatch.delattr("ralphtool.specs.prd.compose")
    assert "prd" not in conversion.formats()
    with pytest.raises(InvalidValue, match="can't be written as prd: choose one of openspec"):
        conversion.plan(str(ralph.root), open_spec(ralph, "login"), "prd")


def test_a_name_that_is_none_is_refused(ralph: Ralph) -> None:
    make_kiro(ralph)
    with pytest.raises(InvalidName):
        conversion.plan(str(ralph.root), open_spec(ralph, "login"), "prd", name="a b")


def test_files_that_appear_meanwhile_are_kept_and_ours_taken_back(ralph: Ralph) -> None:
    make_kiro(ralph)
    ralph.write("backlog/config.yml", "project_name: x\n")
    done = conversion.plan(str(ralph.root), open_spec(ralph, "login"), "backlog")
    last = Path(done.made.paths[-1])
    last.parent.mkdir()
    last.write_text("somebody was quicker\n")
    before = ralph.snapshot()
    with pytest.raises(FileExistsError):
        scaffold.write(done.made)
    assert ralph.snapshot() == before


def test_text_outside_of_stories_is_listed_where_it_has_no_place(ralph: Ralph) -> None:
    intro = "# Login\n\nWhy we need it.\n\n<!-- how to write -->\n"
    notes = f"{intro}\n## Form\n\n- [ ] show it\n\n## Notes\n\nKeys are with Ann.\n"
    ralph.write("plans/login.md", notes)
    lost = ralph.run("convert", "login", "kiro", "--json").json["lost"]
    assert lost == ["the text 'Why we need it.'", "the text 'Keys are with Ann.'"]
