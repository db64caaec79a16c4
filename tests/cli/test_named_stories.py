"""`explain`, `logs` and `diff` accept a story, or one of its attempts."""

from __future__ import annotations

import pytest
from lab import Lab

PLAN = "# Plan\n\n## 1. First\n\n- [ ] 1.1 Make a\n\n## {second}. Second\n\n- [ ] {second}.1 Make b\n"
COMMANDS = ["explain", "logs", "diff"]


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Two changes with a story 1. Story 1 of `colours` failed twice, no other was tried."""
    lab = Lab(tmp_path_factory.mktemp("named"))
    lab.repository(attempts=2)
    lab.git("rm", "-rq", "openspec")
    lab.write("plans/colours.md", PLAN.format(second=2))
    lab.git("add", "plans")
    lab.git("commit", "--quiet", "--message=plans")
    lab.play({"story": "1", "attempt": 1, "steps": [{"say": "one"}, {"run": "echo 1 > first.txt"}]},
             {"story": "1", "attempt": 2, "steps": [{"say": "two"}, {"run": "echo 2 > second.txt"}]})  # fmt: skip
    lab.loop("colours", "--max-iterations", "2")
    assert [id for id, _ in lab.endings()] == ["colours-1-1", "colours-1-2"]
    return lab


@pytest.fixture
def two(tried: Lab) -> Lab:
    tried.write("plans/sounds.md", PLAN.format(second=3))
    return tried


@pytest.mark.parametrize(
    ("command", "words"),
    [("explain", "logs colours-1-2"), ("logs", "two"), ("diff", "second.txt")],
)
def test_a_story_selects_its_last_attempt(tried: Lab, command: str, words: str) -> None:
    (tried.root / "plans/sounds.md").unlink(missing_ok=True)
    for name in ("1", "colours-1", "colours-1-2"):
        told = tried.run(command, name)
        assert told.exit_code == 0, told.stderr
        assert words in told.stdout
    assert words not in tried.run(command, "colours-1-1").stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_a_story_of_several_changes_must_be_chosen(two: Lab, command: str) -> None:
    told = two.run(command, "1")
    assert told.exit_code == 2
    assert "several changes have a story 1: add --change NAME (colours, sounds)" in told.stderr
    assert two.run(command, "1", "--change", "colours").exit_code == 0
    assert two.run(command, "colours-1").exit_code == 0, "the name is unique"
    assert "story '1' has no attempt yet" in two.run(command, "1", "--change", "sounds").stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_story_of_only_one_change_needs_no_change(two: Lab, command: str) -> None:
    assert "story '2' has no attempt yet" in two.run(command, "2").stderr
    assert "story '3' has no attempt yet" in two.run(command, "3").stderr


@pytest.mark.parametrize("command", [*COMMANDS, "guide", "accept"])
def test_an_unknown_story_is_reported_in_the_same_words(tried: Lab, command: str) -> None:
    (tried.root / "plans/sounds.md").unlink(missing_ok=True)
    told = tried.run(command, "colour-1", *(["x"] if command == "guide" else []))
    assert told.exit_code == 1
    what = "no story" if command == "guide" else "no story and no attempt"
    assert f"colours has {what} 'colour-1'; its stories are 1, 2" in told.stderr
    assert "did you mean colours-1?" in told.stderr


def test_empty_standard_error_is_reported(tried: Lab) -> None:
    told = tried.run("logs", "colours-1-2", "--errors")
    assert (told.exit_code, told.stdout) == (0, "The agent wrote nothing to standard error.\n")
    assert tried.run("logs", "colours-1-2", "--errors", "--json").stdout == ""
