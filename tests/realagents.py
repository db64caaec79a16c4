"""Real agent programs, driven by the real loop, against a scripted model on 127.0.0.1."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from lab import Lab, processes_with
from project import REPOSITORY, Result

from ralphtool.testing import All, ModelServer, Request, Run, Say, Scenario, Turn, Write, script

TOOLS = REPOSITORY / ".tools/agents"
PROGRAMS = {name: TOOLS / name / "node_modules/.bin" / name for name in ("claude", "codex", "gemini", "opencode")}
PROGRAMS |= {name: TOOLS / name / "bin" / name for name in ("aider", "mini")}
QUICK = ("claude", "codex")
SLOW = ("gemini", "opencode", "aider", "mini")
# Further settings of each. The sandbox of Codex briefly creates folders wherever it may write; in /tmp they would
# disturb other tests.
_OWN: dict[str, dict[str, Any]] = {
    "aider": {"model": "openai/gpt-4o"},
    "codex": {"args": ["-c", "sandbox_workspace_write.exclude_slash_tmp=true"]},
    "gemini": {"model": "gemini-2.5-pro"},
    "mini": {"model": "openai/gpt-4o"},
    "opencode": {"model": "scripted/x"},
}


def some(*names: str) -> pytest.MarkDecorator:
    chosen = [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in names]
    return pytest.mark.parametrize("agent", chosen)


EVERY_AGENT = some(*QUICK, *SLOW)

# One story is enough for tests of how an agent ends.
ONE_STORY = "## 1. First\n\n- [ ] 1.1 Make a\n"
_STORY = re.compile(r"^Story (\S+): ", re.MULTILINE)


def turns(agent: str, *wanted: Turn) -> list[Turn]:
    """Turns of a conversation; an agent that makes only one request gets them all in one answer."""
    return [All(wanted)] if agent == "aider" else list(wanted)


def work(agent: str, story: str, *tasks: str) -> list[Turn]:
    """The turns of a model that completes a story: a file, the ticks, a learning, the promise."""
    ticks = " && ".join(f"ralphtool agent task done {task}" for task in tasks)
    learn = f'ralphtool agent learn "Story {story} needs its own file" --task {tasks[0]}'
    made = Write(f"{story}.txt", f"work on {story}\n")
    return turns(agent, made, Run(f"{ticks} && {learn}"), Say("All is done.\n\n{promise}"))


def by_story(**turns: list[Turn]) -> Scenario:
    """A script for each story: `story_1=[…]`."""
    scripts = {name.removeprefix("story_"): script(*of) for name, of in turns.items()}
    other = script(Say("I don't know that story."))

    def choose(request: Request) -> Turn:
        found = _STORY.search(request.prompt)
        return scripts.get(found[1] if found else "", other)(request)

    return choose


class RealLab(Lab):
    """A project whose agents are real programs. `model` serves their instructions."""

    def prepare(
        self, agents: str, model: ModelServer, tasks: str = ONE_STORY, *, more: dict[str, Any] | None = None, **run: Any
    ) -> RealLab:
        """A repository, and the settings of a run with these agents (`claude codex`); `more` is for `[agents.NAME]`."""
        names = agents.split()
        model.root = str(self.root)
        for name in names:
            self.env |= model.environment(name, str(self.root.parent / "home"))
        self.repository(tasks)
        gate = run.pop("gate", "true")
        settings = {"agents": names, "max_iterations": 4, "timeout": "15m", **run}
        lines = ["[run]", *(f"{key} = {json.dumps(value)}" for key, value in settings.items())]
        lines += ["[verify]", "checks = []", f"tests = {json.dumps([gate])}"]
        for name in names:
            own = {"command": [str(PROGRAMS[name])], "permissions": "all", **_OWN.get(name, {}), **(more or {})}
            lines += [f"[agents.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in own.items())]
        self.write(".ralph/config.toml", "\n".join(lines) + "\n")
        return self

    def told(self, result: Result, kind: str, field: str) -> list[Any]:
        return [event[field] for event in self.events(result) if event["type"] == kind]

    def nobody_is_left(self) -> None:
        assert processes_with(str(self.root.parent)) == []
