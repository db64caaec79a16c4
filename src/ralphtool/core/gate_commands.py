"""The commands that prove a story: from the configuration, else those that the project's own files suggest."""

from ralphtool.core import config

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


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
