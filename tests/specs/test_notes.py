"""Rules for every spec format: the notes, where they are written, and that nothing is forged."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from project import Ralph
from specs.formats import MAKERS, every_format, open_spec

from ralphtool.errors import SpecError
from ralphtool.specs import markdown, notes

# --- what the tests of all formats check ------------------------------------------------------------


def sections_of(text: str) -> list[markdown.Section]:
    """The sections of a text that is not a list of tasks."""
    return markdown.sections(text, "")


NOTES_FILES = {
    "openspec": "openspec/changes/add-login/design.md",
    "prd": "add-login-learnings.md",
    "speckit": "specs/001-login/001-login-learnings.md",
    "checklist": "fix_plan-learnings.md",
    "kiro": ".kiro/specs/login/login-learnings.md",
    "taskmaster": ".taskmaster/tasks/add-login-learnings.md",
    "backlog": "backlog/add-login-learnings.md",
}

# --- notes: where they are written ------------------------------------------------------------------


def learning(text: str, day: str = "2026-01-31", story: str | None = None, task: str | None = None) -> dict[str, Any]:
    return {
        "description": text,
        "task_id": task,
        "story_id": story,
        "iteration": 1,
        "timestamp": f"{day}T23:59:59.000001Z",
    }


def pattern(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "description": description, "timestamp": "2026-01-31T09:30:00Z"}


class Notebook:
    """A design.md, and the result of writing notes to it."""

    def __init__(self, folder: Path, text: str | bytes | None) -> None:
        self.path = folder / "design.md"
        if text is not None:
            self.path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def learn(self, *learnings: dict[str, Any]) -> int:
        return notes.write_learnings(str(self.path), learnings)

    def add_patterns(self, *patterns: dict[str, Any]) -> int:
        return notes.write_patterns(str(self.path), patterns)

    @property
    def text(self) -> str:
        return self.path.read_bytes().decode()


@every_format
def test_notes_go_where_the_format_keeps_them(ralph: Ralph, name: str) -> None:
    change = MAKERS[name](ralph)
    spec = open_spec(ralph, change)
    before = ralph.snapshot()
    assert spec.write_learnings([learning("it works", story="1", task="1.1")]) == 1
    path = ralph.root / NOTES_FILES[name]
    assert path.read_text() == "## Learnings\n\n### 2026-01-31 - Story 1\n- it works (Task 1.1)\n"
    assert {**ralph.snapshot(), str(path): None} == {**before, str(path): None}


@every_format
def test_notes_of_a_flush_are_written_through_the_adapter(ralph: Ralph, name: str) -> None:
    ralph.begin(MAKERS[name](ralph))
    ralph.agent("learn", "one")
    ralph.agent("pattern", "layers", "imports go down")
    ralph.agent("observe", "finding", "slow tests", "--severity", "low")
    assert not (ralph.root / NOTES_FILES[name]).exists()
    assert ralph.agent("session", "flush").json == {"success": True, "learnings_written": 1, "patterns_written": 1}
    text = ralph.read(NOTES_FILES[name])
    assert "\n- one\n" in text
    assert "## Patterns\n\n### layers\nimports go down\n" in text
    assert "- finding: slow tests (low)\n" in text


def test_learnings_are_grouped_by_date_and_story_in_the_order_recorded(tmp_path: Path) -> None:
    book = Notebook(tmp_path, None)
    written = book.learn(
        learning("first", "2026-01-30", story="2", task="2.1"),
        learning("second", "2026-01-31", story="2"),
        learning("third", "2026-01-30", story="2"),
        learning("fourth", "2026-01-31"),
        learning("fifth", "2026-01-31", task="9.9"),
    )
    assert written == 5
    assert book.text == textwrap.dedent("""\
        ## Learnings

        ### 2026-01-30 - Story 2
        - first (Task 2.1)
        - third

        ### 2026-01-31 - Story 2
        - second

        ### 2026-01-31 - General
        - fourth
        - fifth (Task 9.9)
        """)


def test_learnings_land_inside_their_section_when_others_follow(tmp_path: Path) -> None:
    book = Notebook(
        tmp_path,
        "# Design\n\n## Learnings\n\n### 2026-01-01 - Story 1\n- old\n\n## Risks\n\nnone\n\n# Appendix\n\nmore\n",
    )
    assert book.learn(learning("new", story="2")) == 1
    assert book.text == (
        "# Design\n\n## Learnings\n\n### 2026-01-01 - Story 1\n- old\n\n### 2026-01-31 - Story 2\n- new\n"
        "\n## Risks\n\nnone\n\n# Appendix\n\nmore\n"
    )


def test_a_later_flush_of_the_same_date_and_story_joins_its_group(tmp_path: Path) -> None:
    book = Notebook(tmp_path, None)
    book.learn(learning("a", story="1"), learning("x", story="2"))
    assert book.learn(learning("b", story="1")) == 1
    assert book.text == ("## Learnings\n\n### 2026-01-31 - Story 1\n- a\n- b\n\n### 2026-01-31 - Story 2\n- x\n")


def test_the_same_date_and_story_in_another_section_is_another_group(tmp_path: Path) -> None:
    book = Notebook(tmp_path, "## Log\n\n### 2026-01-31 - Story 1\n- mine\n\n## Learnings\n")
    book.learn(learning("a", story="1"))
    assert book.text == (
        "## Log\n\n### 2026-01-31 - Story 1\n- mine\n\n## Learnings\n\n### 2026-01-31 - Story 1\n- a\n"
    )


def test_an_empty_section_before_another_is_filled(tmp_path: Path) -> None:
    book = Notebook(tmp_path, "## Learnings\n\n## Risks\nnone\n")
    book.learn(learning("a"))
    assert book.text == "## Learnings\n\n### 2026-01-31 - General\n- a\n\n## Risks\nnone\n"


def test_a_section_right_before_another_heading_is_kept_apart_from_it(tmp_path: Path) -> None:
    book = Notebook(tmp_path, "## Learnings\n## Risks\nnone\n")
    book.learn(learning("a"))
    assert book.text == "## Learnings\n\n### 2026-01-31 - General\n- a\n\n## Risks\nnone\n"


@pytest.mark.parametrize(
    "title", ["## Learnings", "## learnings", "## Learnings ##", "##  Learnings  ", "  ## Learnings", "##\tLearnings"]
)
def test_the_section_is_recognised_however_it_is_written(tmp_path: Path, title: str) -> None:
    book = Notebook(tmp_path, f"# D\n\n{title}\n\ntext\n")
    book.learn(learning("a"))
    assert book.text == f"# D\n\n{title}\n\ntext\n\n### 2026-01-31 - General\n- a\n"


@pytest.mark.parametrize(
    "title", ["# Learnings", "### Learnings", "##Learnings", "## Learnings and more", "    ## Learnings"]
)
def test_what_is_not_the_section_is_left_alone(tmp_path: Path, title: str) -> None:
    book = Notebook(tmp_path, f"{title}\n\ntext\n")
    book.learn(learning("a"))
    assert book.text == f"{title}\n\ntext\n\n## Learnings\n\n### 2026-01-31 - General\n- a\n"


@pytest.mark.parametrize("fence", ["```", "~~~", "````markdown", "  ```"])
def test_a_heading_inside_a_fence_is_no_section(tmp_path: Path, fence: str) -> None:
    close = fence.removesuffix("markdown")
    text = f"# D\n\n{fence}\n## Learnings\n{close}\n\n## Risks\n"
    book = Notebook(tmp_path, text)
    book.learn(learning("a"))
    assert book.text == f"{text}\n## Learnings\n\n### 2026-01-31 - General\n- a\n"


def test_a_heading_inside_a_fence_does_not_end_the_section(tmp_path: Path) -> None:
    book = Notebook(tmp_path, "## Learnings\n\n```\n## not the end\n```\n\n## Risks\n")
    book.learn(learning("a"))
    assert book.text == ("## Learnings\n\n```\n## not the end\n```\n\n### 2026-01-31 - General\n- a\n\n## Risks\n")


def assert_written_once(book: Notebook, before: str) -> None:
    """Writes twice; the old text stays, and a reader of Markdown finds the learning in its section, once."""
    assert book.learn(learning("precious", story="1")) == 1
    after = book.text
    assert after.startswith(before)
    sections = [one for one in sections_of(after) if one.title == "2026-01-31 - Story 1"]
    assert [one.above for one in sections] == [("Learnings",)]
    assert [line for line in sections[0].prose if line] == ["- precious"]
    assert book.learn(learning("precious", story="1")) == 0
    assert book.text == after
    assert book.learn(learning("second", story="1")) == 1
    assert book.text == after + "- second\n"


@pytest.mark.parametrize(
    "before",
    [
        "text\n\n```\nnobody closed this\n## Learnings\n",
        "text\n\n~~~~ python\n```\nnobody closed this\n",
        "- item\n  ```\n  nobody closed this, inside an item\n",
        "1. item\n\n   ~~~\n   nobody closed this, inside an item\n",
        "- item\n  - inner\n    ```\n    nobody closed this, deep inside\n",
    ],
)
def test_an_unclosed_fence_does_not_swallow_the_section(tmp_path: Path, before: str) -> None:
    assert_written_once(Notebook(tmp_path, before), before)


def test_a_fence_is_not_closed_where_none_was_open(tmp_path: Path) -> None:
    """Four blanks make code, in which a fence is only text; a closing one would open a fence."""
    before = "# D\n\n    ```\n\nno fence\n"
    book = Notebook(tmp_path, before)
    book.learn(learning("a"))
    assert book.text == f"{before}\n## Learnings\n\n### 2026-01-31 - General\n- a\n"


@pytest.mark.parametrize(
    "before",
    [
        "## Learnings\n\n```\nnobody closed this\n",
        "## Learnings\n\n- item\n  ```\n  nor this\n",
    ],
)
def test_an_unclosed_fence_inside_the_section_does_not_swallow_the_group(tmp_path: Path, before: str) -> None:
    assert_written_once(Notebook(tmp_path, before), before)


# --- notes: line endings and files ------------------------------------------------------------------


def test_new_lines_take_the_line_ending_of_the_file(tmp_path: Path) -> None:
    book = Notebook(tmp_path, "# Design\r\n\r\n## Learnings\r\n\r\n## Risks\r\n")
    book.learn(learning("a\nb", story="1"))
    assert book.text == (
        "# Design\r\n\r\n## Learnings\r\n\r\n### 2026-01-31 - Story 1\r\n- a\r\n      b\r\n\r\n## Risks\r\n"
    )
    assert book.learn(learning("a\nb", story="1")) == 0
    assert book.learn(learning("c", story="1")) == 1
    assert "- a\r\n      b\r\n- c\r\n\r\n## Risks" in book.text


def test_in_a_mixed_file_what_most_lines_have_decides(tmp_path: Path) -> None:
    book = Notebook(tmp_path, "a\r\nb\r\nc\n")
    book.learn(learning("x"))
    assert book.text == "a\r\nb\r\nc\n\r\n## Learnings\r\n\r\n### 2026-01-31 - General\r\n- x\r\n"
    other = Notebook(tmp_path, "a\r\nb\nc\n")
    other.learn(learning("x"))
    assert other.text == "a\r\nb\nc\n\n## Learnings\n\n### 2026-01-31 - General\n- x\n"


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_file_without_a_line_feed_at_its_end(tmp_path: Path, ending: str) -> None:
    book = Notebook(tmp_path, f"# D{ending}{ending}last")
    book.learn(learning("x"))
    expected = ["# D", "", "last", "", "## Learnings", "", "### 2026-01-31 - General", "- x", ""]
    assert book.text == ending.join(expected)


def test_the_byte_order_mark_stays_and_hides_no_section(tmp_path: Path) -> None:
    book = Notebook(tmp_path, "\ufeff## Learnings\n")
    book.learn(learning("x"))
    assert book.text == "\ufeff## Learnings\n\n### 2026-01-31 - General\n- x\n"


def test_a_missing_file_is_made_with_the_rights_of_other_files(tmp_path: Path) -> None:
    book = Notebook(tmp_path, None)
    (tmp_path / "other").write_text("")
    book.learn(learning("x"))
    assert book.text == "## Learnings\n\n### 2026-01-31 - General\n- x\n"
    assert book.path.stat().st_mode == (tmp_path / "other").stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["design.md", "other"]


def test_an_existing_file_keeps_its_mode(tmp_path: Path) -> None:
    book = Notebook(tmp_path, "# D\n")
    book.path.chmod(0o640)
    book.learn(learning("x"))
    assert book.path.stat().st_mode & 0o7777 == 0o640


def test_notes_in_a_file_that_is_not_utf8_are_refused(tmp_path: Path) -> None:
    book = Notebook(tmp_path, b"# D \xff\n")
    with pytest.raises(SpecError, match="UTF-8"):
        book.learn(learning("x"))
    assert book.path.read_bytes() == b"# D \xff\n"


# --- notes: nothing twice, nothing forged -----------------------------------------------------------


def test_what_is_there_already_is_not_written_twice(tmp_path: Path) -> None:
    book = Notebook(tmp_path, None)
    notes_taken = [learning("a", story="1"), learning("b\n\nwith more", story="1"), learning("c")]
    assert book.learn(*notes_taken) == 3
    before = book.text
    assert book.learn(*notes_taken) == 0
    assert book.text == before
    assert book.learn(learning("d", story="1"), *notes_taken) == 1


def test_the_same_words_for_another_task_story_or_day_are_another_learning(tmp_path: Path) -> None:
    book = Notebook(tmp_path, None)
    same = [
        learning("a", story="1"),
        learning("a", story="1", task="1.1"),
        learning("a", story="2"),
        learning("a", "2026-02-01", story="1"),
    ]
    assert book.learn(*same) == 4


def test_a_text_that_begins_like_another_is_not_taken_for_it(tmp_path: Path) -> None:
    book = Notebook(tmp_path, None)
    assert book.learn(learning("use make")) == 1
    assert book.learn(learning("use make\nnot ninja")) == 1
    assert book.learn(learning("use")) == 1
    assert book.text.endswith("- use make\n- use make\n      not ninja\n- use\n")


HOSTILE = [
    "harmless\n## Risks\nmore",
    "## Risks",
    "# Title",
    "###### deep",
    "a\n\n\n# b",
    "a\r## b",
    "a\r\n## b",
    "```\n## c",
    "~~~\nopen fence",
    "a\n```\nopen fence",
    "a\n   ```python\n   x = 1\n   ```\nb",
    "a\n- b\n- [ ] 9.9 c",
    "- dash first",
    "a\n---\nb",
    "a\n===",
    "\t# tab",
    "a\n\t# tab",
    "bell \x07 escape \x1b[31m nul \x00 delete \x7f",
    "trailing blanks   \nsecond   \n\n",
    "emoji 😀 and ütf",
    "<!-- a comment that never ends",
    "a\n<!--\nb",
    "1. # nested",
    "> ## quoted",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_learning_forges_nothing_and_is_written_once(tmp_path: Path, text: str) -> None:
    before = "# D\n\n## Learnings\n\n## Risks\n\nnone\n"
    book = Notebook(tmp_path, before)
    first = [learning(text, story="1"), learning("after", story="1")]
    assert book.learn(*first) == 2
    once = book.text
    titles = [one.title for one in sections_of(once)]
    assert titles == ["", "D", "Learnings", "2026-01-31 - Story 1", "Risks"]
    assert book.learn(*first) == 0
    assert book.text == once
    assert book.learn(learning("later", story="1")) == 1
    assert book.text == once.replace("- after\n", "- after\n- later\n")


@pytest.mark.parametrize("text", HOSTILE)
def test_a_pattern_forges_nothing_and_is_written_once(tmp_path: Path, text: str) -> None:
    book = Notebook(tmp_path, "# D\n\n## Patterns\n\n## Risks\n\nnone\n")
    first = [pattern("one", text), pattern("two", "after")]
    assert book.add_patterns(*first) == 2
    once = book.text
    assert [one.title for one in sections_of(once)] == ["", "D", "Patterns", "one", "two", "Risks"]
    assert book.add_patterns(*first) == 0
    assert book.text == once
    assert book.learn(learning("x")) == 1
    assert book.text == once + "\n## Learnings\n\n### 2026-01-31 - General\n- x\n"


@pytest.mark.parametrize("text", HOSTILE)
def test_an_observation_forges_nothing_and_is_written_once(tmp_path: Path, text: str) -> None:
    book = Notebook(tmp_path, "# D\n")
    seen = {"type": "blocker", "title": "no disk", "description": text, "timestamp": "2026-01-31T09:30:00Z"}
    assert notes.write_observations(str(book.path), [seen]) == 1
    once = book.text
    assert [one.title for one in sections_of(once)] == ["", "D", "Observations", "2026-01-31 - General"]
    assert notes.write_observations(str(book.path), [seen]) == 0
    assert book.text == once


def test_control_characters_are_made_visible(tmp_path: Path) -> None:
    book = Notebook(tmp_path, None)
    book.learn(learning("a\x1b[2Jb\x00c\x7fd\x9b1me\ttab"))
    assert book.text.endswith("- a\\x1b[2Jb\\x00c\\x7fd\\x9b1me\ttab\n")


@pytest.mark.parametrize("name", ["layers", "Prefer C #", "#", "# Title", "a ## b ##", "```", "naïve 😀", "  padded  "])
def test_a_pattern_of_any_name_is_written_once(tmp_path: Path, name: str) -> None:
    book = Notebook(tmp_path, None)
    assert book.add_patterns(pattern(name, "words")) == 1
    once = book.text
    assert book.add_patterns(pattern(name, "words")) == 0
    assert book.text == once


@pytest.mark.parametrize("id", ["1", "US-1", "1 #", "3.1", "a\n## b", "ü"])
def test_a_learning_of_any_story_is_written_once(tmp_path: Path, id: str) -> None:
    book = Notebook(tmp_path, None)
    assert book.learn(learning("words", story=id)) == 1
    once = book.text
    assert len(sections_of(once)) == 3
    assert book.learn(learning("words", story=id)) == 0
    assert book.text == once


def test_patterns_stand_under_their_heading(tmp_path: Path) -> None:
    book = Notebook(tmp_path, "# D\n\n## Patterns\n\n### old\nwords\n\n## Risks\n")
    assert book.add_patterns(pattern("layers", "imports go down\nnever up"), pattern("names", "explain")) == 2
    assert book.text == textwrap.dedent("""\
        # D

        ## Patterns

        ### old
        words

        ### layers
        imports go down
            never up

        ### names
        explain

        ## Risks
        """)


def test_a_pattern_of_the_same_name_that_says_something_else_is_added(tmp_path: Path) -> None:
    book = Notebook(tmp_path, None)
    assert book.add_patterns(pattern("layers", "down")) == 1
    assert book.add_patterns(pattern("layers", "up"), pattern("layers", "down")) == 1
    assert book.text == "## Patterns\n\n### layers\ndown\n\n### layers\nup\n"


def test_learnings_patterns_and_observations_keep_to_their_sections(tmp_path: Path) -> None:
    book = Notebook(tmp_path, None)
    book.learn(learning("a"))
    book.add_patterns(pattern("p", "q"))
    seen = {"type": "finding", "title": "t", "story_id": "2", "timestamp": "2026-01-31T09:30:00Z"}
    notes.write_observations(str(book.path), [seen])
    book.learn(learning("b"))
    assert book.text == textwrap.dedent("""\
        ## Learnings

        ### 2026-01-31 - General
        - a
        - b

        ## Patterns

        ### p
        q

        ## Observations

        ### 2026-01-31 - Story 2
        - finding: t
        """)


def test_an_interrupted_flush_repeated_writes_each_thing_once(ralph: Ralph) -> None:
    """The notes of a flush that was killed before it removed the session already exist."""
    ralph.openspec().begin()
    ralph.agent("learn", "only once")
    ralph.agent("pattern", "p", "only once too")
    session = ralph.session_file().read_bytes()
    lock = ralph.lock_file.read_bytes()
    ralph.agent("session", "flush")
    written = ralph.design_file.read_text()
    ralph.session_file().write_bytes(session)
    ralph.session_file().chmod(0o600)
    ralph.lock_file.write_bytes(lock)
    assert ralph.agent("session", "flush").json == {"success": True, "learnings_written": 0, "patterns_written": 0}
    assert ralph.design_file.read_text() == written
