"""Real agent programs, driven by the real loop, against a scripted model on 127.0.0.1."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import Result
from lab import Lab, processes_with

from ralphtool.testing import All, Fail, ModelServer, Request, Run, Say, Scenario, Turn, Write, script

TOOLS = Path(__file__).parent.parent / ".tools/agents"
PROGRAMS = {name: TOOLS / name / "node_modules/.bin" / name for name in ("claude", "codex", "gemini", "opencode")}
PROGRAMS |= {name: TOOLS / name / "bin" / name for name in ("aider", "mini")}
QUICK = ("claude", "codex")
SLOW = ("gemini", "opencode", "aider", "mini")
MODELS = {"aider": "openai/gpt-4o", "mini": "openai/gpt-4o", "opencode": "scripted/x", "gemini": "gemini-2.5-pro"}
AGENTS = [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
EVERY_AGENT = pytest.mark.parametrize("agent", AGENTS)

# One story is enough where it is about how an agent ends.
ONE_STORY = "## 1. First\n\n- [ ] 1.1 Make a\n"
_STORY = re.compile(r"^Story (\S+): ", re.MULTILINE)


def turns(agent: str, *wanted: Turn) -> list[Turn]:
    """Turns of a conversation; an agent that asks only once gets them all in one answer."""
    return [All(wanted)] if agent == "aider" else list(wanted)


def work(agent: str, story: str, *tasks: str) -> list[Turn]:
    """What a model does that does a story well: a file, the ticks, a learning, the promise."""
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
    """A project whose agent is a real program. `model` serves what it is told to do."""

    longest = 240.0

    def prepare(self, name: str, model: ModelServer, tasks: str = ONE_STORY, **run: Any) -> RealLab:
        """A repository, with settings in which the agent may do all."""
        model.root = str(self.root)
        self.env |= model.environment(name, str(self.root.parent / "home"))
        settings = {"agent": name, "permissions": "all", "max_iterations": 4, "timeout": "100s", **run}
        self.repository(tasks)
        self.use(name, **settings)
        return self

    def use(self, name: str, *, permissions: str = "all", gate: str = "true", agents: Any = (), **run: Any) -> None:
        lines = ["[run]", *(f"{key} = {json.dumps(value)}" for key, value in run.items())]
        lines += [f"agents = {json.dumps(list(agents))}"] if agents else []
        lines += ["[verify]", "checks = []", f"tests = {json.dumps([gate])}"]
        for each in {name, *agents}:
            lines += [f"[agents.{each}]", f'command = ["{PROGRAMS[each]}"]', f'permissions = "{permissions}"']
            lines += [f'model = "{MODELS[each]}"'] if each in MODELS else []
        self.write(".ralph/config.toml", "\n".join(lines) + "\n")

    def told(self, result: Result, kind: str, field: str) -> list[Any]:
        return [event[field] for event in self.events(result) if event["type"] == kind]

    def emitted(self, result: Result, kind: str) -> list[dict[str, Any]]:
        """The events of the agent itself."""
        found = [event["event"] for event in self.events(result) if event["type"] == "agent"]
        return [event for event in found if event["kind"] == kind]

    def nobody_is_left(self) -> None:
        assert processes_with(str(self.root.parent)) == []


def limited(**more: Any) -> Scenario:
    return script(Fail(status=429, **more))
