"""Specs with git's merge conflict markers: they would have the stories of both sides."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab import DONE, Lab
from project import Ralph
from specs.formats import MAKERS, open_spec

from ralphtool import specs
from ralphtool.errors import SpecError

FILES = {
    "openspec": "openspec/changes/add-login/tasks.md",
    "prd": "prd.json",
    "speckit": "specs/001-login/tasks.md",
    "checklist": "fix_plan.md",
    "kiro": ".kiro/specs/login/tasks.md",
    "taskmaster": ".taskmaster/tasks/tasks.json",
    "backlog": "backlog/tasks/task-1 - Set-up.md",
}
PLAN = "# Plan\n\n## Alpha\n- [ ] Add alpha\n\n"
CONFLICT = "<<<<<<< HEAD\n## Beta\n- [ ] Add beta\n=======\n## Beta two\n- [ ] Add beta2\n>>>>>>> x\n"
WITHIN_STYLE = CONFLICT.replace("=======", "||||||| 1a2b3c4\n## Old\n- [ ] Old\n=======").replace("\n", "\r\n")


def break_file(ralph: Ralph, path: str) -> None:
    """The second half of a file is in conflict."""
    lines = ralph.read(path).splitlines(keepends=True)
    first, second = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    ralph.write(path, "".join([*first, "<<<<<<< HEAD\n", *second, "=======\n", *second, ">>>>>>> other\n"]))


@pytest.mark.parametrize("name", MAKERS)
def test_a_conflict_is_refused_in_every_format(ralph: Ralph, name: str) -> None:
    change = MAKERS[name](ralph)
    break_file(ralph, FILES[name])
    with pytest.raises(SpecError, match=r"has merge conflict markers \(from line \d+ on\): resolve the conflict"):
        open_spec(ralph, change).stories()


def test_a_conflict_in_front_matter_is_refused(ralph: Ralph) -> None:
    MAKERS["backlog"](ralph)
    text = ralph.read(FILES["backlog"])
    start, _, rest = text.partition("status: ")
    line, _, end = rest.partition("\n")
    both = f"<<<<<<< HEAD\nstatus: {line}\n=======\nstatus: Done\n>>>>>>> x\n"
    ralph.write(FILES["backlog"], f"{start}{both}{end}")
    with pytest.raises(SpecError, match="merge conflict markers"):
        open_spec(ralph, "add-login").stories()
    ralph.write(FILES["backlog"], f"<<<<<<< HEAD\n{text}=======\n{text}>>>>>>> x\n")  # so that no id is found
    errors = [str(place.error) for place in specs.find_all(str(ralph.root)) if place.error]
    assert len(errors) == 1
    assert "merge conflict markers (from line 1 on)" in errors[0]


@pytest.mark.parametrize(
    "text", [CONFLICT, WITHIN_STYLE, f"Title\n=======\n\n{CONFLICT}", f"```\ncode\n```\n{CONFLICT}"]
)
def test_other_styles_of_markers_are_found(ralph: Ralph, text: str) -> None:
    ralph.write("plans/one.md", PLAN + text)
    with pytest.raises(SpecError, match="merge conflict markers"):
        open_spec(ralph, "one").stories()


@pytest.mark.parametrize(
    "text",
    [
        f"```\n{CONFLICT}```\n",
        f"- [ ] Explain\n\n  ```text\n  {CONFLICT.replace(chr(10), f'{chr(10)}  ')}\n  ```\n",
        "Title\n=======\n",
        "<<<<<<< HEAD\n",
        "<<<<<<< HEAD\n=======\n",
        ">>>>>>> x\n=======\n<<<<<<< HEAD\n",
        "Search for `<<<<<<< HEAD`\n=======\nand `>>>>>>> x`\n",
        "<<<<<<< HEAD\n>>>>>>> x\n",
        "> <<<<<<< HEAD\n> =======\n> >>>>>>> x\n",
    ],
)
def test_text_about_conflicts_is_accepted(ralph: Ralph, text: str) -> None:
    ralph.write("plans/one.md", f"{PLAN}{text}\n## Last\n- [ ] Add last\n")
    assert [story.title for story in open_spec(ralph, "one").stories()] == ["Alpha", "Last"]


def test_every_command_says_what_to_do(tmp_path: Path) -> None:
    lab = Lab(tmp_path).repository().play(default=DONE)
    lab.git("rm", "-rq", "openspec")
    lab.write("plans/one.md", PLAN + CONFLICT)
    lab.git("add", "plans")
    lab.git("commit", "--quiet", "--message=a merge gone wrong")
    wanted = ("plans/one.md has merge conflict markers (from line 6 on)", "resolve the conflict, then try again")
    for words in (["list"], ["show"], ["doctor"], ["run", "--dry-run"], ["run"]):
        done = lab.run(*words)
        said = " ".join((done.stdout + done.stderr).split())
        assert all(part in said for part in wanted), (words, said)
        assert done.exit_code != 0 or words == ["list"], (words, said)
    assert lab.entries() == []
