"""The commands that prove a story: from the configuration, else those that the project's own files suggest."""

import os

from ralphtool.core import config

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_NO_PARTS = {"build", "dist", "docs", "example", "examples", "node_modules", "target", "vendor", "venv"}
_MOST_FOLDERS = 100


class GateCommands:
    """`checks` are fast and inspect the code; `tests` run it."""

    __slots__ = ("checks", "tests")

    def __init__(self, checks: "Iterable[str]" = (), tests: "Iterable[str]" = ()) -> None:
        self.checks = list(checks)
        self.tests = list(tests)

    def __bool__(self) -> bool:
        return bool(self.checks or self.tests)


def find_commands(project: str, place: str | None = None) -> GateCommands:
    """`place` is where the project's files are, if that is not its own folder."""
    told = config.read_verify(project)
    guessed = GateCommands() if len(told) == 2 else infer(place or project)
    return GateCommands(told.get("checks", guessed.checks), told.get("tests", guessed.tests))


def infer(project: str) -> GateCommands:
    """The commands that the project's own files suggest, whether or not their programs are installed."""
    from ralphtool.core import gate_inference  # not needed if the project configures its commands

    return GateCommands(*gate_inference.infer(project))


def suggest(project: str) -> GateCommands:
    """For a project without any: those of the folders directly below it, such as `backend` and `frontend`. Only
    suggested, because a folder may be no part of it."""
    try:
        names = sorted(entry.name for entry in os.scandir(project) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return GateCommands()
    parts = [name for name in names if name.replace("-", "").replace("_", "").isalnum() and name not in _NO_PARTS]
    found = {name: infer(os.path.join(project, name)) for name in parts[:_MOST_FOLDERS]}
    return GateCommands(
        [f"cd {name} && {command}" for name, one in found.items() for command in one.checks],
        [f"cd {name} && {command}" for name, one in found.items() for command in one.tests],
    )


def explain_missing(project: str) -> str:
    """How to configure the commands of a project that has none."""
    quoted = ", ".join(f'"{command}"' for command in suggest(project).tests)
    example = f", such as `tests = [{quoted}]`" if quoted else ""
    return f"set checks and tests under [verify] in .ralph/config.toml{example}"
