"""Bad input: texts of agents, which must not forge ralphtool's own lines."""

from __future__ import annotations

import pytest
from cli.bad_input.calls import check_harmless, flush_twice, ok, refused
from project import Ralph

HOSTILE = {
    "heading": "## Decisions\n- forged",
    "heading in the second line": "fact\n## Decisions\n### 2020-01-01 - Story 9\n- forged",
    "indented heading": "fact\n   # Top\n\t## Tab\n    ## Four",
    "underlined heading": "Title\n=====\nSub\n---\n",
    "heading after blank lines": "fact\n\n\n## Decisions\n\n\n- forged",
    "heading with CR": "fact\r## Decisions\r\n# Top\r",
    "heading with other line ends": "fact\x0b## a\x0c## b\x1c## c\x1d## d\x1e## e\x85## f\u2028## g\u2029## h",
    "open fence": "fact\n```\nnever closed",
    "fence at once": "```\nnever closed",
    "tilde fence": "~~~~\nnever closed\n~~~",
    "open comment": "<!-- never closed",
    "HTML": "<h2>Decisions</h2><script>alert(1)</script>",
    "control characters": "".join(map(chr, range(1, 32))) + "\x7f" + "".join(map(chr, range(128, 160))) + "end",
    "ESC sequences": "\x1b[2J\x1b]0;title\x07\x1b[31mred\x9b0m",
    "quotes": """'single' "double" `back` \\ $(id) ${HOME} %s {0}""",
    "boxes": "[ ] 1.1 not a task\n- [ ] 1.2 nor this",
    "list items": "a\n- b\n* c\n1. d",
    "rule": "---\n***\n",
    "bidi and zero width": "a\u202eb\u200bc\ufeffd",
}


class TestHostileText:
    @pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
    def test_in_a_learning(self, project: Ralph, text: str) -> None:
        project.write("openspec/changes/add-login/design.md", "# Design\n\n## Learnings\n\n## After\n\nEnd.\n")
        project.begin()
        result = project.agent("learn", text)
        assert result.json["learning"]["description"] == text
        assert result.stdout[:-1].isprintable()
        ok(project, "learn", "the next one")
        assert flush_twice(project)["learnings_written"] == 2
        check_harmless(project.design_file, ["# Design", "## Learnings", "### ", "## After"])
        lines = project.design_file.read_text().split("\n")
        assert "- the next one" in lines
        assert lines[-4:] == ["## After", "", "End.", ""]

    @pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
    def test_in_a_pattern(self, project: Ralph, text: str) -> None:
        project.begin()
        ok(project, "pattern", "Name", text)
        ok(project, "pattern", "Other", "the next one")
        assert flush_twice(project)["patterns_written"] == 2
        check_harmless(project.design_file, ["## Patterns", "### Name", "### Other"])

    @pytest.mark.parametrize("name", ["## a", "C #", "#", "a ##", "a   b", "`code`", "[ ] box", "- item", "<!--", "*"])
    def test_in_a_pattern_s_name(self, project: Ralph, name: str) -> None:
        project.begin()
        ok(project, "pattern", name, "description")
        assert flush_twice(project)["patterns_written"] == 1
        check_harmless(project.design_file, ["## Patterns", "### "])

    @pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
    def test_in_an_observation(self, project: Ralph, text: str) -> None:
        project.begin()
        ok(project, "observe", "finding", "## Title", "--description", text, "--file", text)
        ok(project, "learn", "the next one")
        flush_twice(project)
        text = project.design_file.read_text()
        levels = [line.split()[0] for line in text.split("\n") if line.startswith("#")]
        check_harmless(project.design_file, levels)
        assert levels in (["##", "###"], ["##", "###", "##", "###"])

    def test_a_megabyte_of_headings_on_stdin(self, project: Ralph) -> None:
        project.begin()
        ok(project, "learn", "-", stdin=b"## Forged\n\x1b[31m```\n" * 55_000)
        assert flush_twice(project)["learnings_written"] == 1
        assert project.design_file.stat().st_size > 1_000_000
        check_harmless(project.design_file, ["## Learnings", "### "])

    @pytest.mark.parametrize("story", ["1\n## Forged", "\x1b[31m", "## x", "../x", "x" * 4000, "\udcff"], ids=ascii)
    def test_in_the_story_s_variable(self, project: Ralph, story: str) -> None:
        """Refused, or accepted and harmless."""
        project.begin()
        before = project.snapshot()
        result = project.agent("learn", "fact", RALPH_STORY=story)
        if result.exit_code:
            assert result.code == "INVALID_VALUE"
            assert project.snapshot() == before
        else:
            flush_twice(project)
            check_harmless(project.design_file, ["## Learnings", "### "])

    @pytest.mark.parametrize("story", ["1\n2", "\x1b[31m", "x" * 4000, "\udcff", "\u0661"], ids=ascii)
    def test_in_the_story_s_variable_where_a_story_is_needed(self, project: Ralph, story: str) -> None:
        project.begin()
        for command in (("context",), ("status",), ("task", "done", "1.1")):
            assert refused(project, *command, RALPH_STORY=story)["code"] in ("INVALID_VALUE", "STORY_NOT_FOUND")

    @pytest.mark.parametrize(
        "words",
        [
            ["learn", "caf\udce9"],
            ["learn", "\udcff" * 4000],
            ["learn", "x", "--task", "\udcff"],
            ["learn", "x", "--type", "\udcff"],
            ["pattern", "\udcff", "d"],
            ["pattern", "n", "\udcff"],
            ["observe", "\udcff", "t"],
            ["observe", "finding", "\udcff"],
            ["observe", "finding", "t", "--description", "\udcff"],
            ["observe", "finding", "t", "--file", "\udcff"],
            ["observe", "finding", "t", "--category", "\udcff"],
            ["learn", "x", "--task", "a\nb"],
            ["learn", "x", "--task", "\x1b[31m"],
            ["learn", "x", "--task", "x" * 4000],
            ["pattern", "a\nb", "d"],
            ["pattern", "\x1b[31m", "d"],
            ["pattern", "x" * 4000, "d"],
            ["observe", "finding", "a\nb"],
            ["observe", "finding", "\x7f"],
            ["observe", "x" * 4000, "t"],
        ],
        ids=lambda words: ascii(words)[:50],
    )
    def test_what_is_no_text_or_no_label(self, project: Ralph, words: list[str]) -> None:
        project.begin()
        assert refused(project, *words)["code"] == "INVALID_VALUE"

    @pytest.mark.parametrize(
        "words", [["task", "done", "\udcff"], ["task", "done", "1.1\n"], ["task", "done", "\x1b[31m"]], ids=ascii
    )
    def test_in_a_task_s_id(self, project: Ralph, words: list[str]) -> None:
        project.begin()
        assert refused(project, *words)["code"] == "TASK_NOT_FOUND"

    @pytest.mark.parametrize("words", [["\udcff"], ["learn", "x", "--\udcff", "y"], ["\x1b[31m", "\x07"]], ids=ascii)
    def test_in_a_wrong_command_line(self, project: Ralph, words: list[str]) -> None:
        assert refused(project, *words)["code"] == "USAGE"

    @pytest.mark.parametrize("data", [b"caf\xe9", b"\xff\xfe\x00x", b"\xed\xa0\x80", b"", b"\n\r\n", b" \t "])
    def test_on_stdin(self, project: Ralph, data: bytes) -> None:
        project.begin()
        for words in (("learn", "-"), ("pattern", "n", "-")):
            assert refused(project, *words, stdin=data)["code"] == "INVALID_VALUE"

    def test_nul_on_stdin(self, project: Ralph) -> None:
        project.begin()
        assert ok(project, "learn", "-", stdin=b"a\0b")["learning"]["description"] == "a\0b"
        flush_twice(project)
        check_harmless(project.design_file, ["## Learnings", "### "])

    def test_too_much_on_stdin(self, project: Ralph) -> None:
        project.begin()
        error = refused(project, "learn", "-", stdin=b"x" * (64 << 20))
        assert error["code"] == "INVALID_VALUE"
        assert "too long" in error["error"]
