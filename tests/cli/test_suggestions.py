"""Mistyped words: every message suggests the word that was probably meant."""

from __future__ import annotations

import pytest
from lab import Lab

from ralphtool.core import spelling

MISTYPED = {
    "a command": (["rum"], "Did you mean 'ralphtool run'?"),
    "a command of another tool": (["status"], "Did you mean 'ralphtool list'?"),
    "a command in a group": (["progress", "entires"], "Did you mean 'ralphtool progress entries'?"),
    "a command of the memory": (["memory", "serch"], "Did you mean 'ralphtool memory search'?"),
    "an option": (["run", "--agnt", "x"], "'--agent'"),
    "an agent": (["run", "--agent", "cluade"], "did you mean claude?"),
    "an agent to set up": (["init", "--agent", "cluade"], "did you mean claude?"),
    "an agent of the settings": (["run", "--agent", "shop-agnt"], "did you mean shop-agent?"),
    "a change to show": (["show", "add-logn"], "did you mean add-login?"),
    "a change to run": (["run", "add-logn"], "did you mean add-login?"),
    "a change, in capitals": (["run", "ADD-LOGIN"], "did you mean add-login?"),
    "a change to unlock": (["unlock", "add-logn"], "did you mean add-login?"),
    "a change to steer": (["pause", "add-logn"], "did you mean add-login?"),
    "a story": (["retry", "US-01"], "its stories are US-001, US-002; did you mean US-001?"),
    "a story to accept": (["accept", "US-02"], "did you mean US-002?"),
    "a format": (["new", "A thing", "--format", "opensepc"], "did you mean openspec?"),
    "a command of the agent": (["agent", "lern", "x"], "did you mean learn?"),
    "two words of the agent": (["agent", "sesion", "init"], "did you mean session init?"),
}
PRD = """{"name": "add-login", "userStories": [
  {"id": "US-001", "title": "One", "passes": false}, {"id": "US-002", "title": "Two", "passes": false}]}"""


@pytest.mark.parametrize(("arguments", "words"), MISTYPED.values(), ids=MISTYPED.keys())
def test_the_right_word_is_suggested(lab: Lab, arguments: list[str], words: str) -> None:
    lab.write("prd.json", PRD)
    lab.write(".ralph/config.toml", '[agents.shop-agent]\ncommand = ["true"]\n')
    result = lab.run(*arguments)
    assert result.exit_code in (1, 2)
    assert words in result.stderr + result.stdout


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("unit-2", "did you mean units-2?"),
        ("unit-2-1", "did you mean units-2?"),
        ("units-2-7", "did you mean units-2?"),
        ("units-9", ""),
        ("units-9-1", ""),
        ("units-1-2-3", ""),
        ("units", "units is a change: name one of its stories, 1, 2 (with --change units)"),
    ],
)
def test_no_other_story_is_suggested(lab: Lab, wrong: str, words: str) -> None:
    for name in ("units", "sounds"):
        lab.write(f"plans/{name}.md", "## 1. One\n\n- [ ] 1.1 Do it\n\n## 2. Two\n\n- [ ] 2.1 Do it\n")
    for more in ([], ["--change", "units"]):
        told = lab.run("explain", wrong, *more)
        assert (told.exit_code, told.stdout) == (1, "")
        assert (words.partition(" (with")[0] if more else words) in " ".join(told.stderr.split())
        assert ("did you mean" in told.stderr) == words.startswith("did you mean")


def test_what_is_near_to_nothing() -> None:
    assert spelling.suggest("zzzz", ["run", "list"], "see the list") == "see the list"
    assert spelling.suggest("", ["run"]) == ""
    assert spelling.find_nearest("x" * 1_000_000, ["run"]) is None
