"""The agents of a run, as the settings name them."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

from msgspec import structs

from ralphtool import agents
from ralphtool import settings as settings_module
from ralphtool.core import secrets
from ralphtool.errors import InvalidValue, RalphError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.agents import Runner
    from ralphtool.settings import Settings


def register_secrets(settings: Settings) -> None:
    """Keeps the values of the agents' environments out of every record."""
    for agent in settings.agents.values():
        secrets.register(agent.env)


def make_runners(settings: Settings, *, is_boxed: bool = False) -> list[Runner]:
    """The agents that the settings name, in order. In a box they may do anything, unless configured otherwise."""
    run = settings.run
    names = [run.agent, *(name for name in run.agents if name != run.agent)] if run.agent else list(run.agents)
    if not names:
        raise InvalidValue(
            'no agent is configured: give one with --agent-command "…" or --agent NAME, or set agent = "…" under [run] '
            "in .ralph/config.toml"
        )
    return [agents.make(name, _read_options(settings, name, is_boxed=is_boxed), settings.agents) for name in names]


def _read_options(settings: Settings, name: str, *, is_boxed: bool) -> dict[str, Any]:
    found = settings.agents.get(name)
    options = structs.asdict(found) if found else {}
    may_do_all = is_boxed and not options.get("permissions")
    return options | {"is_boxed": is_boxed} | ({"permissions": "all"} if may_do_all else {})


def check_runners(runners: Sequence[Runner]) -> Sequence[Runner]:
    """Checks that each agent can work."""
    for runner in runners:
        runner.check()
    return runners


def build_agent_options(root: str, settings: Settings, given: Sequence[Runner]) -> str:
    """The options with which `ralphtool run` uses the same agent again; empty if the project's settings name it."""
    if given:  # by a program, or by --agent-command
        command = getattr(given[0], "argv", ())
        return _build_command_option(command) if command else ""
    name = settings.run.agent or ""
    found = settings.agents.get(name)
    try:
        known = settings_module.load(root)
    except RalphError:
        known = settings_module.Settings()
    if name == "command" and found and name not in known.agents:  # workers find it in the settings
        return _build_command_option(found.command)
    return f" --agent {shlex.quote(name)}" if name and name != known.run.agent else ""


def _build_command_option(command: Sequence[str]) -> str:
    words = [_mask_word(before, word) for before, word in zip(("", *command), command, strict=False)]
    return f" --agent-command {shlex.quote(shlex.join(words))}"


# What is recorded and printed must not contain a password that a person has put on the command line. A shorter value
# is a number or an ordinary word.
_NAMED = r"[\w-]*(?:api[_-]?key|token|secret|password)"
# Compiled when first used: a run's start does not need them for most commands.
_NAMED_VALUE = rf"""(\b{_NAMED}['"]?[=:]\s*|-{_NAMED}\s+|\bbearer\s+)[^\s'"]{{8,}}"""
_LOGIN_IN_URL = r"(://[^\s/:@]*:)[^\s/@]+(?=@)"
_SHORTEST = 8  # characters


def _mask_word(before: str, word: str) -> str:
    if len(word) < _SHORTEST:
        return word  # too short for a secret value, and for a URL with a name, a password and a host
    if re.fullmatch(rf"-{_NAMED}", before, re.IGNORECASE):
        return secrets.MASK
    text = re.sub(_NAMED_VALUE, rf"\1{secrets.MASK}", word, flags=re.IGNORECASE)
    text = re.sub(_LOGIN_IN_URL, rf"\1{secrets.MASK}", text)
    return str(secrets.mask(text, secrets.list_values()))
