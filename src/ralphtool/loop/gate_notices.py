"""What a run says at its start about gates that can prove nothing: there are none, or one can't be started.

A run is not refused for that: a setup command or a story may install the program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphtool.core import gate_commands
from ralphtool.judging.gate_programs import NOT_STARTED, explain_missing, explain_unstartable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralphtool.judging.gates import GateResult
    from ralphtool.settings import Settings


def list_for_plan(settings: Settings, root: str, gates: Sequence[str]) -> list[str]:
    """The gates whose programs are not installed here, for a dry run."""
    if settings.run.executor != "local":
        return []  # workers have their own programs
    unless = ", unless a setup command installs it" if settings.run.setup else ""
    return [_add_result(root, one, f"{text}{unless}") for one, text in explain_missing(gates, root).items()]


def list_at_start(settings: Settings, root: str, gates: Sequence[str]) -> list[str]:
    """The same for a run, before anything else. If there are setup commands, they come first."""
    if not gates:
        way = gate_commands.explain_missing(root)
        return [f"no gates configured: no story can be proven until the project has tests, or you {way}"]
    return [] if settings.run.setup else list_for_plan(settings, root, gates)


def list_tried(settings: Settings, root: str, results: Sequence[GateResult]) -> Iterator[str]:
    """The gates that could not be started where the run works; those that were named at its start are left out."""
    named = {} if settings.run.setup else explain_missing([one.command for one in results], root)
    for one in results:
        if one.exit_code in NOT_STARTED and one.command not in named:
            yield _add_result(root, one.command, explain_unstartable(one.command, root))


def _add_result(root: str, command: str, text: str) -> str:
    is_check = command not in gate_commands.find_commands(root).tests
    return text if is_check else f"{text}; it proves nothing"
