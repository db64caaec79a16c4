"""How a story is proven: the commands from the configuration, else what the project's own files suggest."""

from ralphtool.core import config

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class GateCommands:
    """`checks` are quick and look at the code; `tests` run it."""

    __slots__ = ("checks", "tests")

    def __init__(self, checks: "Iterable[str]" = (), tests: "Iterable[str]" = ()) -> None:
        self.checks = list(checks)
        self.tests = list(tests)

    def __bool__(self) -> bool:
        return bool(self.checks or self.tests)


def find_commands(project: str) -> GateCommands:
    told = config.read_verify(project)
    guessed = GateCommands() if len(told) == 2 else infer(project)
    return GateCommands(told.get("checks", guessed.checks), told.get("tests", guessed.tests))


def infer(project: str) -> GateCommands:
    """What the project's own files suggest, whether or not the programs for it are installed."""
    from ralphtool.core import gate_inference  # which a project that names its commands does without

    return GateCommands(*gate_inference.infer(project))
