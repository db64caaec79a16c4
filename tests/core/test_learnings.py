"""The learnings file: created once, distinguished from its template, capped and fenced (SPEC section 5)."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from project import Ralph

from ralphtool.core import learnings_file

CHANGE = "add-login"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path / "ralphtool" / f"{CHANGE}-learnings.md"


def test_init_makes_it_before_the_first_story(project: Ralph) -> None:
    project.agent("session", "init", "--change", CHANGE)
    made = project.tmp / "ralphtool" / f"{CHANGE}-learnings.md"
    text = made.read_text()
    assert text.count("<!--") == text.count("-->") == 1
    for word in ("Discoveries", "Decisions", "Gotchas"):
        assert word in text.partition("<!--")[2].partition("-->")[0]
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert stat.S_IMODE(made.parent.stat().st_mode) == 0o700


def test_it_is_never_overwritten_and_never_deleted(project: Ralph) -> None:
    made = project.tmp / "ralphtool" / f"{CHANGE}-learnings.md"
    project.begin()
    made.write_text("mine\n")
    project.agent("session", "flush")
    project.begin()
    project.agent("session", "flush")
    assert made.read_text() == "mine\n"


def test_the_template_alone_is_no_content(file: Path) -> None:
    learnings_file.ensure(CHANGE)
    assert file.exists()
    assert learnings_file.read(CHANGE) is None


def test_a_missing_or_empty_file_is_no_content(file: Path) -> None:
    assert learnings_file.read(CHANGE) is None
    learnings_file.ensure(CHANGE)
    file.write_text(" \n\n")
    assert learnings_file.read(CHANGE) is None


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: text.replace("Gotchas", "Traps").replace("# Learnings: add-login", "# What we know"),
        lambda text: text.partition("<!--")[0],
        lambda text: "<!--" + text.partition("<!--")[2],
        lambda text: text + "\n\n<!-- another remark -->\n",
    ],
    ids=["CRLF", "BOM", "reworded", "title only", "comment only", "second comment"],
)
def test_an_edited_template_is_no_content(file: Path, edit: object) -> None:
    assert callable(edit)
    learnings_file.ensure(CHANGE)
    file.write_bytes(edit(file.read_text()).encode())
    assert learnings_file.read(CHANGE) is None


def test_content_is_given_verbatim_without_the_template(file: Path) -> None:
    learnings_file.ensure(CHANGE)
    with file.open("a") as notes:
        notes.write("\n## Gotchas\n\n- `make test` needs a database\n")
    assert learnings_file.read(CHANGE) == "## Gotchas\n\n- `make test` needs a database"


def test_content_after_an_edited_template_is_content(file: Path) -> None:
    learnings_file.ensure(CHANGE)
    file.write_text(file.read_text().replace("Gotchas", "Traps") + "use port 8080\n")
    assert "use port 8080" in (learnings_file.read(CHANGE) or "")


def test_content_behind_a_comment_that_never_ends_is_not_lost(file: Path) -> None:
    learnings_file.ensure(CHANGE)
    file.write_text("<!-- oops\nuse port 8080\n")
    assert "use port 8080" in (learnings_file.read(CHANGE) or "")


def test_what_is_not_utf8_is_replaced(file: Path) -> None:
    learnings_file.ensure(CHANGE)
    file.write_bytes(b"caf\xe9 is closed\n")
    assert learnings_file.read(CHANGE) == "caf\ufffd is closed"


def test_no_content_can_break_out_of_the_fence() -> None:
    text = "before\n```\n````\nafter"
    first, *body, last = learnings_file.format_for_prompt(text, 1000, "/p").split("\n")
    assert first.strip("markdown") == last == "`````"
    assert "\n".join(body) == text
    assert not any(line.startswith(last) for line in body)


def test_what_is_too_long_keeps_its_end_and_says_so() -> None:
    text = "\n".join(f"line {number}" for number in range(1000))
    _, notice, *body, _ = learnings_file.format_for_prompt(text, 100, "/p/file.md").split("\n")
    shown = "\n".join(body)
    assert text.endswith(shown)
    assert 80 < len(shown) <= 100
    assert str(len(text) - len(shown)) in notice
    assert "/p/file.md" in notice


def test_one_endless_line_is_capped_too() -> None:
    fenced = learnings_file.format_for_prompt("x" * 5000, 100, "/p")
    assert len(fenced) < 300
    assert "4900 characters left out" in fenced


def test_people_see_its_path_and_content(project: Ralph) -> None:
    project.begin()
    made = project.tmp / "ralphtool" / f"{CHANGE}-learnings.md"
    with made.open("a") as notes:
        notes.write("port \x1b[31m8080\n")
    shown = project.run("learnings")
    assert shown.exit_code == 0
    assert shown.stdout.split("\n")[0] == str(made)
    assert "port \\x1b[31m8080" in shown.stdout
    assert project.run("learnings", CHANGE, "--json").json == {"path": str(made), "content": "port \x1b[31m8080"}


def test_people_are_told_when_there_is_nothing_yet(project: Ralph) -> None:
    shown = project.run("learnings", CHANGE)
    assert shown.exit_code == 0
    assert shown.stdout.startswith(os.path.join(project.tmp, "ralphtool"))
    assert "The file has no learnings yet" in shown.stdout


def test_of_several_changes_one_has_to_be_named(project: Ralph) -> None:
    project.write("TODO.md", "- [ ] one\n")
    told = project.run("learnings")
    assert told.exit_code == 2
    assert "TODO" in told.stderr
    assert CHANGE in told.stderr
