"""Checklists: any Markdown file with boxes. Headings are stories, numbered in their order."""

from __future__ import annotations

import pytest
from project import Ralph
from specs.formats import CHECKLIST, all_tasks, done_ids, open_spec, outline

from ralphtool import specs
from ralphtool.errors import ChangeNotFound, InvalidName, InvalidValue, SpecError
from ralphtool.specs import Spec, checklist


def opened(ralph: Ralph, text: str | bytes) -> Spec:
    ralph.write("fix_plan.md", text)
    return open_spec(ralph, "fix_plan")


# --- stories and tasks ------------------------------------------------------------------------------


def test_headings_are_stories_numbered_as_they_come(ralph: Ralph) -> None:
    spec = opened(ralph, "# Plan\n\n## 7. High\n- [ ] a\n- [x] b\n\n## Nothing here\n\ntext\n\n### Low\n* [X] c\n")
    assert [(story.id, story.title, story.done) for story in spec.stories()] == [
        ("7", "High", False),
        ("2", "Low", True),
    ]
    assert outline(spec) == {"7": ["7.1", "7.2"], "2": ["2.1"]}


def test_items_are_numbered_by_their_position(ralph: Ralph) -> None:
    spec = opened(ralph, "- [ ] a\n- plain\n  - [ ] b\n1. [ ] c\n")
    assert outline(spec) == {"1": ["1.1", "1.2", "1.3"]}
    spec.tick("1.2")
    assert ralph.read("fix_plan.md") == "- [ ] a\n- plain\n  - [x] b\n1. [ ] c\n"


def test_boxes_before_any_heading_are_a_story_named_after_the_file(ralph: Ralph) -> None:
    first, second = opened(ralph, "- [ ] a\n# Later on\n- [ ] b\n").stories()
    assert (first.title, second.title) == ("fix_plan", "Later on")


@pytest.mark.parametrize(
    ("text", "id", "rest"),
    [
        ("4.7 text", "4.7", "text"),
        ("4.7. text", "4.7", "text"),
        ("4.7: text", "4.7", "text"),
        ("4.7) text", "4.7", "text"),
        ("1.2.3 text", "1.2.3", "text"),
        ("**4.7** text", "4.7", "text"),
        ("T001 text", "T001", "text"),
        ("T001: text", "T001", "text"),
        ("`T001` text", "T001", "text"),
        ("ABC-12: text", "ABC-12", "text"),
        ("**ABC-12:** text", "ABC-12", "text"),
        ("text", "1.1", "text"),
        ("3 days of text", "1.1", "3 days of text"),
        ("UTF-8 everywhere", "1.1", "UTF-8 everywhere"),
        ("T-shirts", "1.1", "T-shirts"),
        ("Abc-12: text", "1.1", "Abc-12: text"),
    ],
)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_items_bring_their_own_ids_along(ralph: Ralph, text: str, id: str, rest: str, ending: str) -> None:
    spec = opened(ralph, f"## A{ending}- [ ] {text}{ending}- [ ] other{ending}")
    assert [(task.id, task.text) for task in all_tasks(spec)] == [(id, rest), ("1.2", "other")]
    spec.tick(id)
    assert done_ids(spec) == [id]
    expected = f"## A{ending}- [x] {text}{ending}- [ ] other{ending}"
    assert (ralph.root / "fix_plan.md").read_bytes().decode() == expected


def test_a_duplicate_id_gets_a_suffix_and_a_warning(ralph: Ralph) -> None:
    spec = opened(ralph, "## A\n- [ ] T001 a\n## B\n- [ ] T001 b\n")
    assert [task.id for task in all_tasks(spec)] == ["T001", "T001-2"]
    assert "T001-2" in specs.list_warnings(spec)[0]


@pytest.mark.parametrize(
    "text",
    [
        "## A\n- [ ] 1.2 numbered by hand\n- [ ] not numbered\n",
        "## 2. Comes first\n- [ ] 2.1 numbered by hand\n## 1. Comes second\n- [ ] not numbered\n",
    ],
)
def test_an_id_that_we_give_never_collides_with_one_of_their_own(ralph: Ralph, text: str) -> None:
    """The author wrote no id twice, so no error may say that."""
    spec = opened(ralph, text)
    ids = [task.id for task in all_tasks(spec)]
    assert len(set(ids)) == 2
    spec.tick(ids[1])
    assert ralph.read("fix_plan.md") == text.replace("- [ ] not", "- [x] not")


@pytest.mark.parametrize(("mark", "tasks"), [("~", 1), ("-", 1), ("✓", 1), ("", 1), ("P", 0), ("1", 0), ("é", 0)])
def test_a_letter_or_digit_in_brackets_is_no_box(ralph: Ralph, mark: str, tasks: int) -> None:
    """People write `- [1] a footnote` and `- [P] what P means` in such files."""
    assert len(all_tasks(opened(ralph, f"- [ ] box\n- [{mark}] text\n"))) == 1 + tasks


def test_optional_by_heading_and_by_section(ralph: Ralph) -> None:
    spec = opened(
        ralph,
        "# Plan\n## Must\n- [ ] a\n## Polish (optional)\n- [ ] b\n## Future\n- [ ] c\n### Far\n- [ ] d\n"
        "## Nice to Have\n- [ ] e\n## Must too\n- [ ] f\n",
    )
    assert [story.title for story in spec.stories() if not story.optional] == ["Must", "Must too"]
    assert not specs.is_complete(spec.stories())
    for task in ("1.1", "6.1"):
        spec.tick(task)
    assert specs.is_complete(spec.stories())


def test_depends_on_the_number_of_a_story(ralph: Ralph) -> None:
    spec = opened(ralph, "## A (depends on 2)\n- [ ] a\n## B\n- [ ] b\n")
    assert [story.depends_on for story in spec.stories()] == [("2",), ()]
    for text in ("## A (depends on 2)\n- [ ] a\n", "## A (depends on 1)\n- [ ] a\n"):
        with pytest.raises(SpecError):
            opened(ralph, text).stories()


def test_fences_hide_boxes_and_headings(ralph: Ralph) -> None:
    spec = opened(ralph, "## A\n- [ ] a\n  ```\n  - [ ] code\n  ```\n~~~\n## Code\n- [ ] code\n~~~\n## B\n- [ ] b\n")
    assert outline(spec) == {"1": ["1.1"], "2": ["2.1"]}


def test_ticking_keeps_every_other_byte(ralph: Ralph) -> None:
    text = "\ufeff# Plan\r\n\r\n\t*\t[ ]  a \t\r\n- [ ] b\n\n- [ ] c"
    spec = opened(ralph, text)
    for task, before, after in (("1.1", "[ ]  a", "[x]  a"), ("1.3", "[ ] c", "[x] c")):
        spec.tick(task)
        text = text.replace(before, after)
        assert (ralph.root / "fix_plan.md").read_bytes().decode() == text


def test_not_utf8_is_a_spec_error(ralph: Ralph) -> None:
    ralph.write("fix_plan.md", b"- [ ] \xff\n")
    assert checklist.changes(str(ralph.root)) == ["fix_plan"]
    with pytest.raises(SpecError, match="UTF-8"):
        open_spec(ralph, "fix_plan").stories()


# --- which files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["fix_plan.md", "PLAN.md", "TODO.md", "todo.md", "Plan.md"])
def test_the_usual_files_are_found_and_the_change_is_the_stem(ralph: Ralph, file: str) -> None:
    ralph.write(file, CHECKLIST)
    change = file.removesuffix(".md")
    assert checklist.changes(str(ralph.root)) == [change]
    spec = open_spec(ralph, change)
    assert spec.path == str(ralph.root / file)
    assert outline(spec) == {"1": ["1.1", "1.2"], "2": ["2.1"]}


@pytest.mark.parametrize(
    "file", ["README.md", "CHANGELOG.md", "learnings.md", "fix_plan-learnings.md", "NOTES.md", "TODO.txt"]
)
def test_other_files_are_not_found(ralph: Ralph, file: str) -> None:
    ralph.write(file, CHECKLIST)
    assert specs.find_all(str(ralph.root)) == []


def test_a_usual_file_without_boxes_is_no_change(ralph: Ralph) -> None:
    ralph.write("PLAN.md", "# Plan\n\nSomething great.\n\n```\n- [ ] an example\n```\n")
    assert checklist.changes(str(ralph.root)) == []


def test_a_folder_of_a_usual_name_is_no_change(ralph: Ralph) -> None:
    (ralph.root / "PLAN.md").mkdir()
    assert checklist.changes(str(ralph.root)) == []


@pytest.mark.parametrize(
    "file",
    [
        "README.md",
        "readme.md",
        "docs/README.md",
        "CHANGELOG.md",
        "Changelog.markdown",
        "LEARNINGS.md",
        "x-learnings.md",
    ],
)
def test_never_a_readme_a_changelog_or_learnings(ralph: Ralph, file: str) -> None:
    path = ralph.write(file, CHECKLIST)
    refused = ralph.agent("session", "init", "--change", path.stem, "--spec", file)
    assert refused.code == "INVALID_NAME"
    assert file in refused.error["error"]
    with pytest.raises(InvalidName):
        open_spec(ralph, path.stem, f"checklist:{file}")


@pytest.mark.parametrize("spec", ["docs/roadmap.md", "checklist:docs/roadmap.md"])
def test_a_file_named_on_the_command_line(ralph: Ralph, spec: str) -> None:
    ralph.write("docs/roadmap.md", CHECKLIST)
    init = ralph.agent("session", "init", "--change", "roadmap", "--spec", spec).json
    assert [story["title"] for story in init["stories"]] == ["Set up", "Build"]
    ralph.agent("session", "next-story")
    ralph.agent("task", "done", "1.2")
    ralph.agent("learn", "roads are long")
    ralph.agent("session", "flush")
    assert ralph.read("docs/roadmap.md") == CHECKLIST.replace("[ ] write", "[x] write")
    assert "- roads are long" in ralph.read("docs/roadmap-learnings.md")


def test_an_absolute_path_and_the_other_ending(ralph: Ralph) -> None:
    path = ralph.write("docs/roadmap.markdown", CHECKLIST)
    assert open_spec(ralph, "roadmap", str(path)).path == str(path)


def test_a_file_that_is_not_there_or_has_another_stem(ralph: Ralph) -> None:
    ralph.write("docs/roadmap.md", CHECKLIST)
    for change, spec in (("roadmap", "roadmap.md"), ("other", "docs/roadmap.md")):
        with pytest.raises(ChangeNotFound):
            open_spec(ralph, change, spec)


def test_a_file_named_in_the_configuration(ralph: Ralph) -> None:
    ralph.write("docs/roadmap.md", CHECKLIST)
    ralph.write(".ralph/config.toml", '[run]\nspec = "docs/roadmap.md"\n')
    [listed] = ralph.run("list", "--json").json["changes"]
    assert (listed["name"], listed["adapter"], listed["tasks_total"]) == ("roadmap", "checklist", 3)
    ralph.begin("roadmap")
    ralph.agent("task", "done", "1.1")
    assert ralph.read("docs/roadmap.md") == CHECKLIST.replace("[ ] make", "[x] make")


def test_the_configuration_may_name_a_usual_file(ralph: Ralph) -> None:
    ralph.write("PLAN.md", CHECKLIST)
    ralph.write(".ralph/config.toml", '[run]\nspec = "PLAN.md"\n')
    assert [place.change for place in specs.find_all(str(ralph.root))] == ["PLAN"]
    assert open_spec(ralph, "PLAN").path == str(ralph.root / "PLAN.md")


def test_the_file_of_the_configuration_is_not_mistaken_for_a_usual_one(ralph: Ralph) -> None:
    """The user named docs/PLAN.md: working on another file of that name would be work that nobody asked for."""
    ralph.write("PLAN.md", "- [ ] root\n")
    ralph.write("docs/PLAN.md", "- [ ] docs\n")
    ralph.write(".ralph/config.toml", '[run]\nspec = "docs/PLAN.md"\n')
    assert what_it_works_on(ralph) in (["docs"], "an error that names docs/PLAN.md")


def what_it_works_on(ralph: Ralph) -> list[str] | str:
    try:
        return [task.text for task in all_tasks(open_spec(ralph, "PLAN"))]
    except SpecError as error:
        return "an error that names docs/PLAN.md" if "docs/PLAN.md" in str(error) else str(error)


def test_the_configuration_decides_as_the_command_line_does(ralph: Ralph) -> None:
    ralph.openspec(change="roadmap").write("docs/roadmap.md", CHECKLIST)
    ralph.write(".ralph/config.toml", '[run]\nspec = "docs/roadmap.md"\n')
    assert open_spec(ralph, "roadmap").adapter == "checklist"
    assert open_spec(ralph, "roadmap", "openspec").adapter == "openspec"


def test_a_configured_file_that_is_missing_is_told(ralph: Ralph) -> None:
    ralph.write(".ralph/config.toml", '[run]\nspec = "docs/roadmap.md"\n')
    with pytest.raises(ChangeNotFound, match=r"docs/roadmap\.md"):
        open_spec(ralph, "roadmap")


def test_a_wrong_value_in_the_configuration_is_told(ralph: Ralph) -> None:
    ralph.write(".ralph/config.toml", "[run]\nspec = 7\n")
    with pytest.raises(InvalidValue, match=r"run\.spec must be a string"):
        open_spec(ralph, "roadmap")


def test_a_session_stays_with_its_file(ralph: Ralph) -> None:
    """Another file with the same stem that appears later does not affect an open session."""
    ralph.write("docs/PLAN.md", CHECKLIST)
    ralph.agent("session", "init", "--change", "PLAN", "--spec", "docs/PLAN.md")
    ralph.write("PLAN.md", "- [ ] other\n")
    ralph.agent("session", "next-story")
    assert ralph.agent("task", "done", "1.1").json["remaining"] == ["1.2"]
    assert ralph.read("PLAN.md") == "- [ ] other\n"


def test_boxes_in_the_notes_of_a_checklist_are_no_work(ralph: Ralph) -> None:
    ralph.write("fix_plan.md", CHECKLIST)
    ralph.begin("fix_plan")
    ralph.agent("learn", "- [ ] 9.9 a box in a learning")
    ralph.agent("session", "flush")
    [listed] = ralph.run("list", "--json").json["changes"]
    assert (listed["name"], listed["tasks_total"]) == ("fix_plan", 3)


def test_a_phase_that_was_written_as_prose_is_not_done_and_warned_about(ralph: Ralph) -> None:
    phases = "## Phase 1: Core\n- [x] a\n\n## Phase 2: Rest\n\n1. one\n\n## Phase 3: Set-up ✅\n\ntext\n"
    nested = "\n## Phase 4: Overview\n\ntext\n\n## Phase 5: Deep\n\n### Part\n- [x] b\n\n## 6. Architecture\n\ntext\n"
    spec = opened(ralph, f"# Plan\n\n{phases}{nested}")
    assert [(story.title, story.done) for story in spec.stories()] == [("Core", True), ("Rest", False), ("Part", True)]
    [warning] = specs.list_warnings(spec)
    assert "no boxes below the heading of story 2" in warning
    spec = opened(ralph, f"# Plan\n\n{phases.replace('Rest', 'Rest (optional)')}{nested}")
    assert (spec.stories()[1].optional, specs.list_warnings(spec)) == (True, [])


def test_plans_come_in_the_order_of_their_names(ralph: Ralph) -> None:
    for name in ("thing-2", "thing", "another"):
        ralph.write(f"plans/{name}.md", "## One\n- [ ] a\n")
    assert [place.change for place in checklist.locate(str(ralph.root))] == ["another", "thing", "thing-2"]
