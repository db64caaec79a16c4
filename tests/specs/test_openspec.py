"""OpenSpec changes: what counts as a story, a task, a scenario; and that ticking changes one box and nothing else."""

from __future__ import annotations

import textwrap

import pytest
from project import SPEC, Ralph
from specs.formats import all_tasks, done_ids, open_spec, outline

from ralphtool import specs
from ralphtool.errors import ChangeNotFound, SpecError, TaskNotFound
from ralphtool.specs import Scenario, Spec, openspec

CHANGE = "add-login"


def opened(ralph: Ralph, tasks: str | bytes) -> Spec:
    return open_spec(ralph.openspec(tasks), CHANGE)


def text_of(lines: str) -> str:
    return textwrap.dedent(lines).lstrip("\n")


# --- stories and tasks ------------------------------------------------------------------------------


def test_numbered_headings_are_stories_and_numbered_boxes_their_tasks(ralph: Ralph) -> None:
    spec = opened(
        ralph, "# Tasks\n\n## 1. Set up\n\n- [ ] 1.1 Make it\n- [x] 1.2 Mend it\n\n## 2. Build\n- [X] 2.1 All\n"
    )
    first, second = spec.stories()
    assert (first.id, first.title, second.id, second.title) == ("1", "Set up", "2", "Build")
    assert [(task.id, task.text, task.done) for task in first.tasks] == [
        ("1.1", "Make it", False),
        ("1.2", "Mend it", True),
    ]
    assert (first.done, second.done) == (False, True)


@pytest.mark.parametrize(
    ("line", "done"),
    [
        ("- [ ] 1.1 text", False),
        ("* [ ] 1.1 text", False),
        ("+ [ ] 1.1 text", False),
        ("1. [ ] 1.1 text", False),
        ("12) [ ] 1.1 text", False),
        ("123456789. [ ] 1.1 text", False),
        ("- [x] 1.1 text", True),
        ("- [X] 1.1 text", True),
        ("* [X] 1.1 text", True),
        ("- [ x ] 1.1 text", True),
        ("- [] 1.1 text", False),
        ("- [  ] 1.1 text", False),
        ("- [\t] 1.1 text", False),
        ("- [~] 1.1 text", False),
        ("- [-] 1.1 text", False),
        ("- [✓] 1.1 text", False),
        ("-[ ] 1.1 text", False),
        ("-  [ ]  1.1  text", False),
        ("-\t[ ]\t1.1\ttext", False),
        ("  - [ ] 1.1 text", False),
        ("      - [x] 1.1 text", True),
        ("\t- [ ] 1.1 text", False),
        ("\t\t* [X]\t1.1 text", True),
        ("- [ ]1.1 text", False),
        ("- [ ] 1.1. text", False),
        ("- [ ] 1.1: text", False),
        ("- [ ] 1.1) text", False),
        ("- [ ] 1.1 - text", False),
        ("- [ ] 1.1 text   ", False),
        ("- [ ] **1.1** text", False),
        ("- [ ] **1.1:** text", False),
        ("- [ ] `1.1` text", False),
        ("- [ ] __1.1__ text", False),
    ],
)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_box_is_read_however_it_is_written(ralph: Ralph, line: str, done: bool, ending: str) -> None:
    spec = opened(ralph, f"## 1. One{ending}{line}{ending}- [ ] 1.10 other{ending}")
    assert outline(spec) == {"1": ["1.1", "1.10"]}
    task = all_tasks(spec)[0]
    assert (task.text, task.done) == ("text", done)


@pytest.mark.parametrize(
    "line",
    [
        "[ ] 1.1 no list item",
        "text - [ ] 1.1 in the middle",
        "- [xx] 1.1 two letters",
        "- [link](1.1) elsewhere",
        "- [x](http://x) a link",
        "- [1][ref] a link",
        "- [](x) an empty link",
        "- [ 1.1 never closed",
        "-- [ ] 1.1 two dashes",
        "1234567890. [ ] 1.1 ten digits",
        "> - [ ] 1.1 quoted",
        "١. [ ] 1.1 digits of another script",
    ],
)
def test_what_is_no_box_is_no_task(ralph: Ralph, line: str) -> None:
    assert outline(opened(ralph, f"## 1. One\n{line}\n- [ ] 1.2 box\n")) == {"1": ["1.2"]}


def test_a_blank_box_before_brackets_is_a_task(ralph: Ralph) -> None:
    assert len(all_tasks(opened(ralph, "## 1. One\n- [ ](docs.md) read\n- [ ][x] write\n"))) == 2


@pytest.mark.parametrize(
    ("heading", "id", "title"),
    [
        ("## 1. Title", "1", "Title"),
        ("##  1.  Title  ", "1", "Title"),
        ("##\t1.\tTitle", "1", "Title"),
        ("## 1. Title ##", "1", "Title"),
        ("  ## 1. Title", "1", "Title"),
        ("## 1 Title", "1", "Title"),
        ("## 1) Title", "1", "Title"),
        ("## 1: Title", "1", "Title"),
        ("## 1 - Title", "1", "Title"),
        ("## 1.2 Title", "1.2", "Title"),
        ("## 1. Use C#", "1", "Use C#"),
        ("# 1. Title", "1", "Title"),
    ],
)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_heading_is_read_however_it_is_written(ralph: Ralph, heading: str, id: str, title: str, ending: str) -> None:
    [story] = opened(ralph, f"{heading}{ending}- [ ] 7.1 text{ending}").stories()
    assert (story.id, story.title) == (id, title)


@pytest.mark.parametrize("line", ["##1. Title", "    ## 1. Title", "####### 1. Title", "\\## 1. Title"])
def test_what_is_no_heading_begins_no_story(ralph: Ralph, line: str) -> None:
    assert outline(opened(ralph, f"## 5. Five\n{line}\n- [ ] 5.1 text\n")) == {"5": ["5.1"]}


def test_story_10_comes_after_2(ralph: Ralph) -> None:
    spec = opened(ralph, "## 10. Ten\n- [ ] 10.1 x\n## 1. One\n- [ ] 1.1 x\n## 2. Two\n- [ ] 2.10 x\n- [ ] 2.2 x\n")
    assert outline(spec) == {"1": ["1.1"], "2": ["2.10", "2.2"], "10": ["10.1"]}
    assert list(outline(spec)) == ["1", "2", "10"]


def test_parts_of_numbers_count_as_numbers(ralph: Ralph) -> None:
    spec = opened(ralph, "".join(f"## {id} T\n- [ ] {id}.9 x\n" for id in ("1.10", "2", "1.2", "1")))
    assert list(outline(spec)) == ["1", "1.2", "1.10", "2"]


def test_boxes_without_a_number_are_counted_in_their_story(ralph: Ralph) -> None:
    spec = opened(
        ralph, "## 1. One\n- [ ] first\n- [ ] 1.1 numbered\n- [x] second\n## 2. Two\n- [ ] third\n- [ ] 3 days\n"
    )
    assert outline(spec) == {"1": ["1.#1", "1.1", "1.#2"], "2": ["2.#1", "2.#2"]}
    assert [task.text for task in all_tasks(spec)] == ["first", "numbered", "second", "third", "3 days"]
    spec.tick("2.#1")
    assert done_ids(spec) == ["1.#2", "2.#1"]


def test_boxes_under_headings_without_a_number_are_work_too(ralph: Ralph) -> None:
    spec = opened(ralph, "## 1. One\n- [ ] 1.1 x\n## Testing\n- [ ] run it\n## 2. Two\n- [ ] 2.1 x\n")
    assert outline(spec) == {"1": ["1.1"], "testing": ["testing.#1"], "2": ["2.1"]}
    assert list(outline(spec)) == ["1", "testing", "2"]
    spec.tick("testing.#1")
    assert ralph.read("openspec/changes/add-login/tasks.md").count("- [x] run it\n") == 1


def test_two_headings_of_the_same_words_are_two_stories(ralph: Ralph) -> None:
    spec = opened(ralph, "## Testing\n- [ ] a\n## Testing\n- [ ] b\n")
    assert outline(spec) == {"testing": ["testing.#1"], "testing-2": ["testing-2.#1"]}


def test_boxes_before_any_heading_are_work_too(ralph: Ralph) -> None:
    spec = opened(ralph, "- [ ] early\n- [ ] 0.1 bird\n\n## 1. One\n- [ ] 1.1 x\n")
    first, second = spec.stories()
    assert [task.text for task in first.tasks] == ["early", "bird"]
    assert second.id == "1"


def test_only_boxes_and_no_heading_at_all(ralph: Ralph) -> None:
    spec = opened(ralph, "- [ ] 1.1 a\n- [x] 1.2 b\n")
    [story] = spec.stories()
    assert [(task.id, task.done) for task in story.tasks] == [("1.1", False), ("1.2", True)]


def test_boxes_below_the_title_are_work_too(ralph: Ralph) -> None:
    spec = opened(ralph, "# Tasks\n- [ ] early\n## 1. One\n- [ ] 1.1 x\n")
    assert [len(story.tasks) for story in spec.stories()] == [1, 1]


def test_sections_below_a_story_belong_to_it(ralph: Ralph) -> None:
    spec = opened(ralph, "## 1. One\n### Part A\n- [ ] 1.1 a\n### Part B\n- [ ] 1.2 b\n#### Deeper\n- [ ] 1.3 c\n")
    assert outline(spec) == {"1": ["1.1", "1.2", "1.3"]}


def test_a_number_that_comes_again_goes_on_with_its_story(ralph: Ralph) -> None:
    spec = opened(ralph, "## 1. One\n- [ ] 1.1 a\n## 2. Two\n- [ ] 2.1 b\n## 1. More of one\n- [ ] 1.2 c\n- [ ] d\n")
    assert outline(spec) == {"1": ["1.1", "1.2", "1.#1"], "2": ["2.1"]}


def test_prose_is_the_description_and_no_story(ralph: Ralph) -> None:
    spec = opened(
        ralph, "# Tasks\n\nintro\n\n## Notes\n\nnothing to do here\n\n## 1. One\n\nRead this first.\n\n- [ ] 1.1 a\n"
    )
    [story] = spec.stories()
    assert (story.id, story.description) == ("1", "Read this first.")


def test_what_is_indented_below_a_box_belongs_to_its_task(ralph: Ralph) -> None:
    spec = opened(ralph, "## 1. One\n- [ ] 1.1 first\n  and more\n    - detail\n- [ ] 1.2 second\n")
    assert [task.text for task in all_tasks(spec)] == ["first\nand more\n- detail", "second"]


def test_a_story_without_tasks_is_not_done_and_warned_about(ralph: Ralph) -> None:
    spec = opened(ralph, "## 1. Nothing\n\n## 2. Something\n- [ ] 2.1 x\n\n## 3. Notes\n\nprose\n")
    assert [(story.id, story.done) for story in spec.stories()] == [("1", False), ("2", False)]
    [warning] = specs.list_warnings(spec)
    assert "no boxes below the heading of story 1" in warning
    assert ralph.agent("session", "init", "--change", CHANGE).json["stories"][0] == {
        "id": "1",
        "title": "Nothing",
        "tasks_total": 0,
        "tasks_done": 0,
    }
    assert ralph.agent("session", "next-story").json["story_id"] == "2"


# --- fences -----------------------------------------------------------------------------------------

FENCED = [
    "```\n- [ ] 1.2 code\n## 3. Code\n```\n",
    "~~~\n- [ ] 1.2 code\n## 3. Code\n~~~\n",
    "```markdown\n- [ ] 1.2 code\n## 3. Code\n```\n",
    "````\n```\n- [ ] 1.2 code\n```\n## 3. Code\n````\n",
    "```\n~~~\n- [ ] 1.2 code\n## 3. Code\n```\n",
    "```\n- [ ] 1.2 code\n\n\n## 3. Code\n`````\n",
    "\ntext\n\n   ```\n- [ ] 1.2 code\n## 3. Code\n   ```\n",
    "  ```\n  - [ ] 1.2 code\n  ## 3. Code\n  ```\n",
    "- ```\n  - [ ] 1.2 code\n  ## 3. Code\n  ```\n",
    "\n  ~~~ sh\n  - [ ] 1.2 code\n\n  ## 3. Code\n  ~~~\n",
    "  - deeper\n    ```\n    - [ ] 1.2 code\n    ## 3. Code\n    ```\n",
    "\t```\n\t- [ ] 1.2 code\n\t## 3. Code\n\t```\n",
]


@pytest.mark.parametrize("fence", FENCED)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_boxes_and_headings_inside_a_fence_are_none(ralph: Ralph, fence: str, ending: str) -> None:
    text = f"## 1. One\n- [ ] 1.1 box\n{fence}- [ ] 1.3 box\n## 2. Two\n- [ ] 2.1 box\n".replace("\n", ending)
    spec = opened(ralph, text)
    assert outline(spec) == {"1": ["1.1", "1.3"], "2": ["2.1"]}
    for task in ("1.1", "1.3", "2.1"):
        spec.tick(task)
    expected = text.replace("[ ] 1.1", "[x] 1.1").replace("[ ] 1.3", "[x] 1.3").replace("[ ] 2.1", "[x] 2.1")
    assert ralph.tasks_file.read_bytes().decode() == expected


@pytest.mark.parametrize(
    "before",
    [
        "- [ ] 1.1 box\n  ```\n  nobody closes this\n",
        "* [ ] 1.1 box\n\n  ~~~ python\n  nobody closes this\n\n",
        "1. [ ] 1.1 box\n   ```\n   nobody closes this\n",
        "- [ ] 1.1 box\n  - inner\n    ```\n    nobody closes this\n",
        "- [ ] 1.1 ```\n",
        "-\t[ ] 1.1 box\n\t```\n\tnobody closes this\n",
    ],
)
def test_a_fence_inside_an_item_ends_with_it(ralph: Ralph, before: str) -> None:
    """One forgotten fence must not hide all the tasks that follow."""
    spec = opened(ralph, f"## 1. One\n{before}- [ ] 1.2 box\n## 2. Two\n- [ ] 2.1 box\n")
    assert outline(spec) == {"1": ["1.1", "1.2"], "2": ["2.1"]}


def test_an_unclosed_fence_that_hides_boxes_is_told(ralph: Ralph) -> None:
    """The boxes that it hides would never be done, and the change would look complete."""
    spec = opened(ralph, "## 1. One\n- [x] 1.1 box\n\ntext\n\n```\n- [ ] 1.2 code\n## 2. Code\n- [ ] 2.1 code\n")
    for act in (spec.stories, lambda: spec.tick("1.1")):
        with pytest.raises(SpecError, match=r"tasks\.md.*fence in line 6 is never closed"):
            act()


def test_an_unclosed_fence_that_hides_no_boxes_runs_to_the_end(ralph: Ralph) -> None:
    spec = opened(ralph, "## 1. One\n- [ ] 1.1 box\n\n```\n## 2. Code\n")
    assert outline(spec) == {"1": ["1.1"]}


@pytest.mark.parametrize(
    "line",
    [
        "``` on one line ```",
        "``inline``",
        "text ```",
        "    ```",
        "    ~~~",
    ],
)
def test_what_is_no_fence_hides_nothing(ralph: Ralph, line: str) -> None:
    spec = opened(ralph, f"## 1. One\n\ntext\n\n{line}\n\n- [ ] 1.1 box\n## 2. Two\n- [ ] 2.1 box\n")
    assert outline(spec) == {"1": ["1.1"], "2": ["2.1"]}


@pytest.mark.parametrize("close", ["``", "~~~", "``` no", "text ```"])
def test_what_does_not_close_a_fence(ralph: Ralph, close: str) -> None:
    spec = opened(ralph, f"## 1. One\n```\n{close}\n- [ ] 1.1 code\n```\n- [ ] 1.2 box\n")
    assert outline(spec) == {"1": ["1.2"]}


# --- optional and depends on ------------------------------------------------------------------------


def test_optional_by_heading_and_by_section(ralph: Ralph) -> None:
    spec = opened(
        ralph,
        text_of("""
            # Now
            ## 1. Must
            - [ ] 1.1 x
            ## 2. Extra (optional)
            - [ ] 2.1 x
            # Future
            ## 3. Later
            - [ ] 3.1 x
            # Nice to Have
            ## 4. Gold
            - [ ] 4.1 x
            # Again now
            ## 5. Must too
            - [ ] 5.1 x
            ## Optional
            - [ ] 6.1 x
            """),
    )
    assert [story.id for story in spec.stories() if not story.optional] == ["1", "5"]


@pytest.mark.parametrize(
    ("title", "is_optional"),
    [
        ("Phase B: 清理冗余模块（可选，延后）", True),
        ("Extra (Optional, later)", True),
        ("Pulido (opcional)", True),
        ("Support calls of find(optional, name)", False),
        ("Read optional (or missing) fields", False),
        ("Fields (optionals)", False),
    ],
)
def test_optional_with_a_remark_and_in_other_languages(ralph: Ralph, title: str, is_optional: bool) -> None:
    spec = opened(ralph, f"## 1. Must\n- [ ] 1.1 x\n## {title}\n- [ ] x\n")
    assert spec.stories()[1].optional == is_optional


def test_optional_stories_do_not_hold_up_the_change(ralph: Ralph) -> None:
    spec = opened(ralph, "## 1. Must\n- [x] 1.1 x\n## 2. Extra (optional)\n- [ ] 2.1 x\n")
    assert specs.is_complete(spec.stories())


def test_depends_on_in_the_heading(ralph: Ralph) -> None:
    spec = opened(
        ralph, "## 1. A (depends on 2, 3)\n- [ ] 1.1 x\n## 2. B\n- [ ] 2.1 x\n## 3. C (depends on 2)\n- [ ] 3.1 x\n"
    )
    assert [story.depends_on for story in spec.stories()] == [("2", "3"), (), ("2",)]
    given = []
    while story := specs.next_story(spec.stories()):
        given.append(story.id)
        spec.tick(story.tasks[0].id)
    assert given == ["2", "3", "1"]


def test_without_depends_on_stories_do_not_wait(ralph: Ralph) -> None:
    assert all(
        story.depends_on == () for story in opened(ralph, "## 1. A\n- [ ] 1.1 x\n## 2. B\n- [ ] 2.1 x\n").stories()
    )


@pytest.mark.parametrize(
    "tasks",
    [
        "## 1. A (depends on 2)\n- [ ] 1.1 x\n## 2. B (depends on 1)\n- [ ] 2.1 x\n",
        "## 1. A (depends on 1)\n- [ ] 1.1 x\n",
        "## 1. A (depends on 9)\n- [ ] 1.1 x\n",
    ],
)
def test_circles_and_unknown_dependencies_are_spec_errors(ralph: Ralph, tasks: str) -> None:
    ralph.openspec(tasks)
    before = ralph.snapshot()
    refused = ralph.agent("session", "init", "--change", CHANGE)
    assert refused.code == "SPEC_ERROR"
    assert "tasks.md" in refused.error["error"]
    assert not ralph.session_file().exists()
    assert ralph.snapshot().items() >= before.items()


# --- what can't be read -----------------------------------------------------------------------------


def test_a_missing_tasks_file_has_no_stories_yet(ralph: Ralph) -> None:
    ralph.write(f"openspec/changes/{CHANGE}/proposal.md", "# Why\n")
    assert open_spec(ralph, CHANGE).stories() == []
    with pytest.raises(SpecError, match=r"tasks\.md is missing"):
        open_spec(ralph, CHANGE).tick("1.1")


@pytest.mark.parametrize("text", ["", "\ufeff", "\n\n", "# Tasks\n", "prose only\n"])
def test_an_empty_tasks_file_has_no_stories(ralph: Ralph, text: str) -> None:
    assert opened(ralph, text).stories() == []
    assert ralph.agent("session", "init", "--change", CHANGE).json["stories"] == []
    refused = ralph.agent("session", "next-story")
    assert refused.code == "SPEC_ERROR"
    assert "has no tasks yet" in refused.error["error"]
    assert "- [ ] 1.1" in refused.error["error"]


def test_not_utf8_is_a_spec_error(ralph: Ralph) -> None:
    spec = opened(ralph, b"## 1. One\n- [ ] 1.1 caf\xe9\n")
    with pytest.raises(SpecError, match=r"tasks\.md: byte 23 is not UTF-8"):
        spec.stories()
    with pytest.raises(SpecError, match="UTF-8"):
        spec.tick("1.1")
    assert ralph.tasks_file.read_bytes() == b"## 1. One\n- [ ] 1.1 caf\xe9\n"


@pytest.mark.parametrize(
    "tasks", ["## 1. A\n- [ ] 1.1 x\n- [ ] 1.1 y\n", "## 1. A\n- [ ] 1.1 x\n## 2. B\n- [x] 1.1 y\n"]
)
def test_a_duplicate_task_id_gets_a_suffix_and_a_warning(ralph: Ralph, tasks: str) -> None:
    spec = opened(ralph, tasks)
    assert [task.id for task in all_tasks(spec)] == ["1.1", "1.1-2"]
    [warning] = specs.list_warnings(spec)
    assert "1.1-2" in warning
    spec.tick("1.1-2")
    assert ralph.tasks_file.read_text() == tasks.replace("[ ] 1.1 y", "[x] 1.1 y")


def test_an_unknown_task_changes_nothing(ralph: Ralph) -> None:
    spec = opened(ralph, "## 1. A\n- [ ] 1.1 x\n")
    before = ralph.snapshot()
    with pytest.raises(TaskNotFound, match=r"no task '1\.2'"):
        spec.tick("1.2")
    assert ralph.snapshot() == before


def test_a_number_of_any_length_is_no_reason_to_fall_over(ralph: Ralph) -> None:
    digits = "9" * 5000
    spec = opened(ralph, f"## {digits}. Big\n- [ ] 9.1 x\n## 1. Small\n- [ ] 1.1 x\n")
    assert sorted(task.id for task in all_tasks(spec)) == ["1.1", "9.1"]


# --- ticking ----------------------------------------------------------------------------------------


def test_ticking_1_1_leaves_1_10_alone(ralph: Ralph) -> None:
    spec = opened(ralph, "## 1. A\n- [ ] 1.10 ten\n- [ ] 1.1 one\n- [ ] 1.11 eleven\n")
    spec.tick("1.1")
    assert done_ids(spec) == ["1.1"]
    assert ralph.tasks_file.read_text() == "## 1. A\n- [ ] 1.10 ten\n- [x] 1.1 one\n- [ ] 1.11 eleven\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("- [ ] 1.1 text", "- [x] 1.1 text"),
        ("* [] 1.1 text", "* [x] 1.1 text"),
        ("+  [  ]  1.1  text  ", "+  [x]  1.1  text  "),
        ("\t1)\t[\t]\t1.1\ttext\t", "\t1)\t[x]\t1.1\ttext\t"),
        ("- [~] 1.1 text [ ] more", "- [x] 1.1 text [ ] more"),
        ("- [X] 1.1 text", "- [X] 1.1 text"),
        ("- [ x] 1.1 text", "- [ x] 1.1 text"),
        ("- [ ] 1.1 ünïcödé 😀 \u2028 \x0b \x85", "- [x] 1.1 ünïcödé 😀 \u2028 \x0b \x85"),
    ],
)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_ticking_keeps_every_other_byte(ralph: Ralph, before: str, after: str, mark: str, ending: str) -> None:
    frame = f"{mark}## 1. One  {ending}{ending}  text {ending}%s{ending}\r- [ ] 1.2 b\n- [ ] 1.3 c\r\n\r\n\tend"
    spec = opened(ralph, frame % before)
    spec.tick("1.1")
    assert ralph.tasks_file.read_bytes().decode() == frame % after
    spec.tick("1.1")
    assert ralph.tasks_file.read_bytes().decode() == frame % after


@pytest.mark.parametrize("rest", ["(docs.md) read", "[docs] read"])
def test_a_box_before_brackets_stays_a_task_when_it_is_ticked(ralph: Ralph, rest: str) -> None:
    """`[x](docs.md)` would be a link: the task would be gone, and those after it would have other ids."""
    spec = opened(ralph, f"## 1. A\n- [ ]{rest}\n- [ ] other\n")
    spec.tick("1.#1")
    assert [(task.id, task.done) for task in all_tasks(spec)] == [("1.#1", True), ("1.#2", False)]
    assert ralph.tasks_file.read_text() == f"## 1. A\n- [x] {rest}\n- [ ] other\n"


def test_ticking_keeps_mode_and_link(ralph: Ralph) -> None:
    spec = opened(ralph, "## 1. A\n- [ ] 1.1 x\n")
    real = ralph.write("elsewhere.md", "## 1. A\n- [ ] 1.1 x\n")
    real.chmod(0o640)
    ralph.tasks_file.unlink()
    ralph.tasks_file.symlink_to(real)
    spec.tick("1.1")
    assert ralph.tasks_file.is_symlink()
    assert real.read_text() == "## 1. A\n- [x] 1.1 x\n"
    assert real.stat().st_mode & 0o7777 == 0o640


def test_a_box_moved_between_reading_and_ticking_is_found_again(ralph: Ralph) -> None:
    spec = opened(ralph, "## 1. A\n- [ ] 1.1 x\n")
    spec.stories()
    ralph.tasks_file.write_text("# New title\n\n## 1. A\n- [ ] 1.2 y\n- [ ] 1.1 x\n")
    spec.tick("1.1")
    assert ralph.tasks_file.read_text() == "# New title\n\n## 1. A\n- [ ] 1.2 y\n- [x] 1.1 x\n"


# --- finding changes --------------------------------------------------------------------------------


def test_archived_changes_are_no_changes(ralph: Ralph) -> None:
    ralph.openspec().write("openspec/changes/archive/2026-01-31-old/tasks.md", "## 1. Old\n- [ ] 1.1 x\n")
    assert openspec.changes(str(ralph.root)) == [CHANGE]
    for name in ("archive", "2026-01-31-old"):
        with pytest.raises(ChangeNotFound):
            open_spec(ralph, name)
        with pytest.raises(ChangeNotFound):
            open_spec(ralph, name, "openspec")


def test_only_folders_with_fit_names_are_changes(ralph: Ralph) -> None:
    ralph.openspec().write("openspec/changes/README.md", "- [ ] 1.1 x\n")
    ralph.write("openspec/changes/.hidden/tasks.md", "- [ ] 1.1 x\n")
    ralph.write("openspec/changes/with blank/tasks.md", "- [ ] 1.1 x\n")
    assert openspec.changes(str(ralph.root)) == [CHANGE, "with-blank"]


def test_changes_are_listed_by_name(ralph: Ralph) -> None:
    for change in ("b", "a", "c"):
        ralph.openspec(change=change)
    assert openspec.changes(str(ralph.root)) == ["a", "b", "c"]


def test_proposal_and_design_come_with_the_change(ralph: Ralph) -> None:
    spec = opened(ralph, "## 1. A\n- [ ] 1.1 x\n")
    assert spec.proposal() == "# Why\nUsers want in.\n"
    assert spec.design() is None
    ralph.design_file.write_text("# How\n")
    assert spec.design() == "# How\n"


# --- scenarios --------------------------------------------------------------------------------------


def scenarios(ralph: Ralph, text: str | bytes, path: str = "auth/spec.md") -> list[Scenario]:
    spec = opened(ralph, "## 1. A\n- [ ] 1.1 x\n")
    (ralph.root / f"openspec/changes/{CHANGE}/specs/auth/spec.md").unlink()
    ralph.write(f"openspec/changes/{CHANGE}/specs/{path}", text)
    return spec.scenarios(spec.stories()[0])


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_scenario_has_capability_and_requirement(ralph: Ralph, ending: str, mark: str) -> None:
    [one] = scenarios(ralph, mark + SPEC.replace("\n", ending))
    assert one.as_dict() == {
        "capability": "auth",
        "requirement": "Login",
        "name": "Good password",
        "given": ["a known user"],
        "when": ["the password is right"],
        "then": ["the user is in"],
    }


def test_scenarios_of_every_spec_below_specs(ralph: Ralph) -> None:
    ralph.openspec()
    for path in ("billing/spec.md", "auth/session/spec.md", "spec.md"):
        ralph.write(f"openspec/changes/{CHANGE}/specs/{path}", SPEC)
    ralph.write(f"openspec/changes/{CHANGE}/specs/auth/notes.md", SPEC)
    spec = open_spec(ralph, CHANGE)
    found = [one.capability for one in spec.scenarios(spec.stories()[0])]
    assert found == [None, "auth", "auth/session", "billing"]


def test_several_scenarios_each_under_its_requirement(ralph: Ralph) -> None:
    found = scenarios(
        ralph,
        text_of("""
            ## ADDED Requirements
            ### Requirement: First
            #### Scenario: one
            - **WHEN** a
            - **THEN** b
            #### Scenario: two
            - **WHEN** c
            - **THEN** d
            ## MODIFIED Requirements
            ### Requirement: Second
            #### Scenario: three
            - **WHEN** e
            - **THEN** f
            """),
    )
    assert [(one.requirement, one.name, one.when, one.then) for one in found] == [
        ("First", "one", ["a"], ["b"]),
        ("First", "two", ["c"], ["d"]),
        ("Second", "three", ["e"], ["f"]),
    ]


def clauses(ralph: Ralph, body: str) -> tuple[list[str], list[str], list[str]]:
    [one] = scenarios(ralph, f"### Requirement: R\n#### Scenario: S\n{body}")
    return one.given, one.when, one.then


def test_and_and_but_go_on_with_the_clause_before(ralph: Ralph) -> None:
    body = """
        - **GIVEN** a
        - **AND** b
        - **WHEN** c
        - **AND** d
        - **THEN** e
        - **BUT** not f
        - **AND** g
        - **THEN** h
        """
    assert clauses(ralph, text_of(body)) == (["a", "b"], ["c", "d"], ["e", "not f", "g", "h"])


def test_what_follows_a_clause_belongs_to_it(ralph: Ralph) -> None:
    body = """
        - **WHEN** the file holds
          several lines
          - with a list

        - **THEN** the format is:
          ```
          - **WHEN** in a fence is text
          #### Scenario: in a fence is none
          ```
        """
    assert clauses(ralph, text_of(body)) == (
        [],
        ["the file holds\nseveral lines\n- with a list"],
        ["the format is:\n```\n- **WHEN** in a fence is text\n#### Scenario: in a fence is none\n```"],
    )


@pytest.mark.parametrize(
    "body",
    [
        "- **WHEN** a\n- **THEN** b\n",
        "* **WHEN** a\n* **THEN** b\n",
        "+ **When** a\n+ **Then** b\n",
        "**WHEN** a\n**THEN** b\n",
        "WHEN a\nTHEN b\n",
        "- WHEN a\n- THEN b\n",
        "- **WHEN:** a\n- **THEN:** b\n",
        "- **WHEN**: a\n- **THEN**: b\n",
        "- **WHEN**, a\n- **THEN**, b\n",
        "  -  __WHEN__  a\r\n  -  __THEN__  b\r\n",
        "\t- *When* a\n\t- *Then* b\n",
    ],
)
def test_a_clause_is_read_however_it_is_written(ralph: Ralph, body: str) -> None:
    assert clauses(ralph, body) == ([], ["a"], ["b"])


@pytest.mark.parametrize("word", ["WHENEVER", "THENCE", "ANDROID", "BUTTONS", "GIVENS"])
def test_a_word_that_only_begins_so_is_no_clause(ralph: Ralph, word: str) -> None:
    assert clauses(ralph, f"- **WHEN** a\n- {word} b\n- **THEN** c\n") == ([], [f"a\n- {word} b"], ["c"])


def test_text_before_the_first_clause_belongs_to_none(ralph: Ralph) -> None:
    assert clauses(ralph, "Some words.\n- **AND** lost\n- **WHEN** a\n- **THEN** b\n") == ([], ["a"], ["b"])


def test_scenarios_of_removed_requirements_are_left_out(ralph: Ralph) -> None:
    found = scenarios(
        ralph,
        "## REMOVED Requirements\n### Requirement: Old\n#### Scenario: gone\n- **WHEN** a\n- **THEN** b\n"
        "## ADDED Requirements\n### Requirement: New\n#### Scenario: there\n- **WHEN** c\n- **THEN** d\n",
    )
    assert [(one.requirement, one.name) for one in found] == [("New", "there")]


def test_a_scenario_inside_a_fence_is_none(ralph: Ralph) -> None:
    assert scenarios(ralph, "### Requirement: R\n```\n#### Scenario: S\n- **WHEN** a\n```\n") == []


def test_a_spec_that_is_not_utf8_is_read_and_told(ralph: Ralph) -> None:
    """It is only context: one bad byte must not block the work on a whole change."""
    text = b"### Requirement: A\n#### Scenario: caf\xe9\n- **WHEN** x\n- **THEN** y\n"
    [scenario] = scenarios(ralph, text)
    assert scenario.name == "caf\ufffd"
    spec = open_spec(ralph, CHANGE)
    spec.scenarios(spec.stories()[0])
    [warning] = specs.list_warnings(spec)
    assert "spec.md: byte 37 is not UTF-8" in warning


def test_a_change_without_specs_has_no_scenarios(ralph: Ralph) -> None:
    ralph.write(f"openspec/changes/{CHANGE}/tasks.md", "## 1. A\n- [ ] 1.1 x\n")
    spec = open_spec(ralph, CHANGE)
    assert spec.scenarios(spec.stories()[0]) == []


def test_scenarios_reach_the_agent(project: Ralph) -> None:
    project.begin()
    expected = {
        "capability": "auth",
        "requirement": "Login",
        "name": "Good password",
        "given": ["a known user"],
        "when": ["the password is right"],
        "then": ["the user is in"],
    }
    assert project.agent("context").json["scenarios"] == [expected]
    assert project.agent("task", "done", "1.1").json["scenarios"] is None
    assert project.agent("task", "done", "1.2").json["scenarios"] == [expected]


# --- learnings --------------------------------------------------------------------------------------


def test_learnings_go_to_design_md_and_tasks_stay_as_they_are(project: Ralph) -> None:
    project.write(f"openspec/changes/{CHANGE}/design.md", "# Design\n\n## Learnings\n\n## Risks\n\nnone\n")
    project.begin()
    project.agent("learn", "Use IF NOT EXISTS", "--task", "1.2")
    day = project.session()["learnings"][0]["timestamp"][:10]
    assert project.agent("session", "flush").json["learnings_written"] == 1
    assert project.design_file.read_text() == (
        f"# Design\n\n## Learnings\n\n### {day} - Story 1\n- Use IF NOT EXISTS (Task 1.2)\n\n## Risks\n\nnone\n"
    )
