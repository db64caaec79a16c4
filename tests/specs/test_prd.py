"""prd.json: names, order, criteria as tasks; and that only `passes` ever changes in it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from project import Ralph
from specs.formats import PRD, done_ids, open_spec, outline

from ralphtool import specs
from ralphtool.errors import ChangeNotFound, SpecError, TaskNotFound
from ralphtool.specs import Spec, prd

SNARKTANK = {
    "project": "TaskApp",
    "branchName": "ralph/task-status",
    "description": "Track the status of tasks",
    "userStories": [
        {
            "id": "US-002",
            "title": "Show the status",
            "description": "As a user, I want to see the status.",
            "acceptanceCriteria": ["Badge on each card", "Typecheck passes"],
            "priority": 2,
            "passes": False,
            "notes": "",
        },
        {
            "id": "US-001",
            "title": "Add the status field",
            "description": "As a developer, I need to store it.",
            "acceptanceCriteria": ["Column is there", "Migration runs", "Typecheck passes"],
            "priority": 1,
            "passes": True,
            "notes": "done by hand",
        },
    ],
}

RALPH_TUI = {
    "name": "Shop",
    "description": "Sell things",
    "branchName": "feature/shop",
    "userStories": [
        {
            "id": "US-001",
            "title": "Basket",
            "description": "A basket",
            "acceptanceCriteria": ["Add", "Remove"],
            "priority": 1,
            "passes": False,
            "labels": ["ui", "backend"],
            "dependsOn": [],
        },
        {
            "id": "US-002",
            "title": "Checkout",
            "acceptanceCriteria": ["Pay"],
            "priority": 1,
            "passes": False,
            "dependsOn": ["US-001"],
            "completionNotes": None,
        },
    ],
    "metadata": {"createdAt": "2026-01-31T00:00:00Z", "version": "1.0.0"},
}


def opened(ralph: Ralph, document: Any, change: str | None = None) -> Spec:
    """Opens the change of a document: text is written as it is, anything else as JSON."""
    ralph.write("prd.json", document if isinstance(document, str | bytes) else json.dumps(document, indent=2))
    return open_spec(ralph, change or prd.changes(str(ralph.root))[0])


def with_stories(*stories: Any) -> dict[str, Any]:
    return {"name": "shop", "userStories": list(stories)}


# --- reading ----------------------------------------------------------------------------------------


def test_the_shape_of_snarktank(ralph: Ralph) -> None:
    spec = opened(ralph, SNARKTANK)
    assert (spec.change, spec.proposal(), spec.design()) == ("task-status", "Track the status of tasks", None)
    first, second = spec.stories()
    assert (first.id, first.title, first.done) == ("US-001", "Add the status field", True)
    assert (second.id, second.description) == ("US-002", "As a user, I want to see the status.")
    assert [(task.id, task.text, task.done) for task in second.tasks] == [
        ("US-002.1", "Badge on each card", False),
        ("US-002.2", "Typecheck passes", False),
    ]
    assert spec.scenarios(first) == []


def test_the_shape_of_ralph_tui(ralph: Ralph) -> None:
    spec = opened(ralph, RALPH_TUI)
    assert spec.change == "feature-shop"
    assert outline(spec) == {"US-001": ["US-001.1", "US-001.2"], "US-002": ["US-002.1"]}
    assert [story.depends_on for story in spec.stories()] == [(), ("US-001",)]


@pytest.mark.parametrize(
    ("document", "name"),
    [
        ({"branchName": "ralph/add-login", "project": "P", "name": "N"}, "add-login"),
        ({"branchName": "add-login", "project": "P"}, "add-login"),
        ({"project": "P", "name": "N"}, "P"),
        ({"name": "N"}, "N"),
        ({}, "project"),
        ({"branchName": "", "project": "P"}, "P"),
        ({"branchName": "ralph/", "name": "N"}, "N"),
        ({"branchName": None, "project": 7, "name": "N"}, "N"),
        ({"branchName": "ralph/feature/login"}, "feature-login"),
        ({"branchName": "ralph/ralph/x"}, "ralph-x"),
        ({"project": "My Shop: Part 2!"}, "my-shop-part-2"),
        ({"name": "../../etc/passwd"}, "etc-passwd"),
        ({"name": "日本"}, "project"),
        ({"name": "v1.2_b-3"}, "v1.2_b-3"),
    ],
)
def test_the_change_is_named_after_branch_project_name_or_folder(
    ralph: Ralph, document: dict[str, Any], name: str
) -> None:
    spec = opened(ralph, {**document, "userStories": []})
    assert spec.change == name
    with pytest.raises(ChangeNotFound, match=f"contains the change {name}, not other"):
        open_spec(ralph, "other", "prd")


def test_a_very_long_name_is_made_to_fit(ralph: Ralph) -> None:
    [name] = prd.changes(str(ralph.write("prd.json", json.dumps({"name": "n " * 200, "userStories": []})).parent))
    assert len(name) <= 128
    assert open_spec(ralph, name).change == name


def test_stories_come_by_priority_then_in_order(ralph: Ralph) -> None:
    stories = [
        {"id": "late", "title": "t"},
        {"id": "ten", "title": "t", "priority": 10},
        {"id": "two-a", "title": "t", "priority": 2},
        {"id": "two-b", "title": "t", "priority": 2},
        {"id": "half", "title": "t", "priority": 1.5},
        {"id": "none", "title": "t", "priority": None},
        {"id": "minus", "title": "t", "priority": -1},
    ]
    assert list(outline(opened(ralph, with_stories(*stories)))) == [
        "minus",
        "half",
        "two-a",
        "two-b",
        "ten",
        "late",
        "none",
    ]


def test_without_criteria_the_title_is_the_task(ralph: Ralph) -> None:
    spec = opened(
        ralph, with_stories({"id": "A", "title": "Do it"}, {"id": "B", "title": "Too", "acceptanceCriteria": []})
    )
    assert [(task.id, task.text) for story in spec.stories() for task in story.tasks] == [
        ("A.1", "Do it"),
        ("B.1", "Too"),
    ]


def test_what_is_done_is_kept_in_the_session(ralph: Ralph) -> None:
    spec = opened(ralph, SNARKTANK)
    assert done_ids(spec, ["US-002.2"]) == ["US-001.1", "US-001.2", "US-001.3", "US-002.2"]
    assert done_ids(spec) == ["US-001.1", "US-001.2", "US-001.3"]


@pytest.mark.parametrize("id", ["US-1", 7, "a.b"])
def test_ids_may_be_texts_or_numbers(ralph: Ralph, id: str | int) -> None:
    assert outline(opened(ralph, with_stories({"id": id, "title": "t"}))) == {str(id): [f"{id}.1"]}


def test_numbers_as_ids_can_be_depended_on_as_numbers(ralph: Ralph) -> None:
    spec = opened(ralph, with_stories({"id": 1, "title": "a"}, {"id": 2, "title": "b", "dependsOn": [1]}))
    assert [story.depends_on for story in spec.stories()] == [(), ("1",)]


def test_a_story_without_an_id_has_its_position(ralph: Ralph) -> None:
    spec = opened(ralph, with_stories({"title": "a"}, {"title": "b", "priority": 1}))
    assert outline(spec) == {"2": ["2.1"], "1": ["1.1"]}


def test_stories_is_read_as_user_stories(ralph: Ralph) -> None:
    spec = opened(ralph, {"name": "shop", "stories": [{"id": "A", "title": "t"}]})
    spec.tick("A.1")
    assert done_ids(spec) == ["A.1"]


@pytest.mark.parametrize(
    "story",
    [
        {"optional": True},
        {"labels": ["ui", "optional"]},
        {"labels": ["Optional"]},
        {"title": "Gild it (optional)"},
    ],
)
def test_optional_by_field_label_or_title(ralph: Ralph, story: dict[str, Any]) -> None:
    spec = opened(ralph, with_stories({"id": "A", "title": "t", **story}, {"id": "B", "title": "t", "optional": False}))
    assert [story.optional for story in spec.stories()] == [True, False]


def test_depends_on(ralph: Ralph) -> None:
    spec = opened(ralph, with_stories({"id": "A", "title": "a", "dependsOn": ["B"]}, {"id": "B", "title": "b"}))
    story = specs.next_story(spec.stories())
    assert story is not None
    assert story.id == "B"


@pytest.mark.parametrize(
    ("stories", "message"),
    [
        ([{"id": "A", "title": "a", "dependsOn": ["C"]}], "depends on C, which does not exist"),
        (
            [{"id": "A", "title": "a", "dependsOn": ["B"]}, {"id": "B", "title": "b", "dependsOn": ["A"]}],
            "A, B depend on each other",
        ),
    ],
)
def test_circles_and_unknown_dependencies_are_spec_errors(
    ralph: Ralph, stories: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        opened(ralph, with_stories(*stories)).stories()


# --- what can't be read -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        '"text"',
        '{"name": "shop"} more',
        '{"name": "shop", /* comment */ "userStories": []}',
        '// comment\n{"name": "shop", "userStories": []}',
        '{"name": "shop", "userStories": [],}',
        "{'name': 'shop'}",
        '{"name": NaN}',
        b"\xff\xfe{}",
        "[" * 100_000,
    ],
)
def test_what_is_no_json_object_is_a_spec_error_everywhere(ralph: Ralph, text: str | bytes) -> None:
    ralph.write("prd.json", text)
    with pytest.raises(SpecError, match=r"prd\.json"):
        prd.changes(str(ralph.root))
    refused = ralph.agent("session", "init", "--change", "shop")
    assert refused.code == "SPEC_ERROR"
    assert "prd.json" in refused.error["error"]


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"name": "shop"}, "userStories"),
        ({"name": "shop", "userStories": {}}, "userStories"),
        ({"name": "shop", "userStories": None}, "userStories"),
        (with_stories("text"), r"userStories\[0\]"),
        (with_stories({"title": "t"}, 7), r"userStories\[1\]"),
        (with_stories({"id": True, "title": "t"}), r"userStories\[0\]\.id"),
        (with_stories({"id": ["a"], "title": "t"}), r"userStories\[0\]\.id"),
        (with_stories({"id": 1.5, "title": "t"}), r"userStories\[0\]\.id"),
        (with_stories({"title": 7}), r"userStories\[0\]\.title"),
        (with_stories({"title": "t", "passes": "yes"}), r"userStories\[0\]\.passes"),
        (with_stories({"title": "t", "passes": 1}), r"userStories\[0\]\.passes"),
        (with_stories({"title": "t", "priority": ["high"]}), r"userStories\[0\]\.priority"),
        (with_stories({"title": "t", "priority": True}), r"userStories\[0\]\.priority"),
        (with_stories({"title": "t", "acceptanceCriteria": "one"}), r"userStories\[0\]\.acceptanceCriteria"),
        (with_stories({"title": "t", "acceptanceCriteria": ["a", 7]}), r"userStories\[0\]\.acceptanceCriteria\[1\]"),
        (with_stories({"title": "t", "dependsOn": "A"}), r"userStories\[0\]\.dependsOn"),
        (with_stories({"title": "t", "labels": [None]}), r"userStories\[0\]\.labels\[0\]"),
        (with_stories({"title": "t", "optional": "no"}), r"userStories\[0\]\.optional"),
        (with_stories({"title": "t", "description": []}), r"userStories\[0\]\.description"),
    ],
)
def test_a_wrong_type_is_a_spec_error_that_names_the_field(ralph: Ralph, document: dict[str, Any], field: str) -> None:
    spec = opened(ralph, document)
    before = ralph.snapshot()
    with pytest.raises(SpecError, match=field):
        spec.stories()
    with pytest.raises(SpecError, match=field):
        spec.tick("1.1")
    assert ralph.snapshot() == before


def test_unknown_keys_and_nulls_are_fine(ralph: Ralph) -> None:
    story: dict[str, Any] = {
        "id": None,
        "title": None,
        "description": None,
        "acceptanceCriteria": None,
        "passes": None,
        "x": [{}],
    }
    spec = opened(ralph, {**with_stories(story), "$schema": "x", "extra": {"deep": [1, 2]}})
    assert outline(spec) == {"1": ["1.1"]}
    assert done_ids(spec) == []


def test_a_priority_of_any_size_is_no_reason_to_fall_over(ralph: Ralph) -> None:
    stories = [{"id": "big", "title": "t", "priority": 10**400}, {"id": "small", "title": "t", "priority": 1}]
    assert list(outline(opened(ralph, with_stories(*stories)))) == ["small", "big"]


# --- writing ----------------------------------------------------------------------------------------


def test_passes_turns_true_with_the_last_criterion_and_not_before(ralph: Ralph) -> None:
    spec = opened(ralph, PRD)
    spec.tick("US-1.2", [])
    assert ralph.read("prd.json") == PRD
    spec.tick("US-1.1", ["US-1.2"])
    assert ralph.read("prd.json") == PRD.replace('"a button"], "passes": false', '"a button"], "passes": true')
    spec.tick("US-2.1", [])
    assert ralph.read("prd.json") == PRD.replace("false", "true")


def test_ticking_again_changes_nothing(ralph: Ralph) -> None:
    spec = opened(ralph, PRD)
    spec.tick("US-2.1", [])
    before = ralph.read("prd.json")
    spec.tick("US-2.1", ["US-2.1"])
    spec.tick("US-2.1", [])
    assert ralph.read("prd.json") == before


def test_unproven_work_never_sets_passes(ralph: Ralph) -> None:
    spec = opened(ralph, PRD)
    spec.tick("US-2.1", [], proven=False)
    assert ralph.read("prd.json") == PRD


def test_an_unknown_task_changes_nothing(ralph: Ralph) -> None:
    spec = opened(ralph, PRD)
    for task in ("US-2.2", "US-2", "US-1.10", "x"):
        with pytest.raises(TaskNotFound):
            spec.tick(task, [])
    assert ralph.read("prd.json") == PRD


ODD = """\
 \t{ "zeta" : 1.0e5,\r
  "branchName":"ralph\\/add-login" ,
\t"userStories" :[ {"note":"\\u00e9 é 😀 \\ud83d\\ude00 \\"}]{[", "passes" :  false  , "id": "US-1","priority":1E0},
    {
      "passes": {"passes": false}, "nested": [{"passes": false, "id": "US-1"}],
      "passes":\t\tnull
      ,"id" : "US-2", "x": -0.0, "big": 12345678901234567890
    }
  ] ,
  "alpha":null , "passes": false }

"""


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize(
    ("task", "before", "after"),
    [
        ("US-1.1", '"passes" :  false  ,', '"passes" :  true  ,'),
        ("US-2.1", '"passes":\t\tnull', '"passes":\t\ttrue'),
    ],
)
def test_all_but_passes_stays_byte_for_byte(ralph: Ralph, mark: str, task: str, before: str, after: str) -> None:
    """Keys, order, spacing, escapes, numbers and line endings; of a duplicate key the last one counts."""
    spec = opened(ralph, mark + ODD)
    assert spec.change == "add-login"
    spec.tick(task, [])
    assert (ralph.root / "prd.json").read_bytes().decode() == mark + ODD.replace(before, after)
    assert done_ids(spec) == [task]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"title": "t"}', '{"title": "t","passes": true}'),
        ('{ "title": "t" }', '{ "title": "t", "passes": true }'),
        ('{\n      "title": "t"\n    }', '{\n      "title": "t",\n      "passes": true\n    }'),
        ('{\n\t"title": "t",\n\t"z": [\n]\n}', '{\n\t"title": "t",\n\t"z": [\n],\n\t"passes": true\n}'),
        ("{}", '{"passes": true}'),
        ("{ }", '{"passes": true }'),
    ],
)
def test_a_missing_passes_is_added_as_the_other_keys_are_spaced(
    ralph: Ralph, ending: str, before: str, after: str
) -> None:
    frame = '{\n  "name": "shop",\n  "userStories": [\n    %s\n  ]\n}\n'.replace("\n", ending)
    spec = opened(ralph, frame % before.replace("\n", ending))
    spec.tick("1.1", [])
    assert (ralph.root / "prd.json").read_bytes().decode() == frame % after.replace("\n", ending)
    assert done_ids(spec) == ["1.1"]


def test_a_key_written_with_escapes_is_the_same_key(ralph: Ralph) -> None:
    text = '{"name": "shop", "user\\u0053tories": [{"\\u0069d": "A", "title": "t", "pass\\u0065s": false}]}'
    spec = opened(ralph, text)
    spec.tick("A.1", [])
    assert ralph.read("prd.json") == text.replace("false", "true")


def test_the_right_story_is_ticked_whatever_the_priorities(ralph: Ralph) -> None:
    document = with_stories(
        {"id": "c", "title": "t", "priority": 3, "passes": False},
        {"id": "a", "title": "t", "priority": 1, "passes": False},
        {"id": "b", "title": "t", "priority": 2, "passes": False},
    )
    spec = opened(ralph, document)
    spec.tick("a.1", [])
    written = json.loads(ralph.read("prd.json"))
    assert [story["passes"] for story in written["userStories"]] == [False, True, False]


# --- by command -------------------------------------------------------------------------------------


def test_a_whole_session(ralph: Ralph) -> None:
    ralph.write("prd.json", PRD)
    ralph.begin()
    assert ralph.agent("task", "done", "US-1.2").json["remaining"] == ["US-1.1"]
    assert ralph.session()["completed_tasks"] == ["US-1.2"]
    assert ralph.read("prd.json") == PRD
    assert ralph.agent("status").json["story"] == {"id": "US-1", "tasks_done": 1, "tasks_total": 2}
    [first, second] = ralph.agent("context").json["tasks"]
    assert (first["done"], second["done"]) == (False, True)
    assert ralph.agent("task", "done", "US-1.1").json["story_complete"] is True
    assert json.loads(ralph.read("prd.json"))["userStories"][0]["passes"] is True
    assert ralph.agent("session", "next-story").json["story_id"] == "US-2"
    ralph.agent("task", "done", "US-2.1")
    assert ralph.agent("session", "next-story").json == {"complete": True}
    ralph.agent("learn", "all done")
    ralph.agent("session", "flush")
    assert ralph.read("prd.json") == PRD.replace("false", "true")
    assert "### " in ralph.read("add-login-learnings.md")


def test_a_story_that_passes_is_not_given_again(ralph: Ralph) -> None:
    ralph.write("prd.json", PRD.replace('"a button"], "passes": false', '"a button"], "passes": true'))
    ralph.agent("session", "init", "--change", "add-login")
    assert ralph.agent("session", "next-story").json["story_id"] == "US-2"
