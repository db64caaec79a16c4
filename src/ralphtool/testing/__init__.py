"""For those who write an adapter or a runner, or test a coding agent: contracts as functions, and a model to talk to.

from ralphtool.testing import ModelServer, Run, Say, Write, check_adapter, script

with ModelServer(script(Write("hello.txt", "hi\\n"), Run("make test"), Say("Done."))) as model:
    subprocess.run(["claude", "-p", "…"], env=os.environ | model.environment("claude", home))
"""

from ralphtool.testing.adapters import ContractBroken, check_adapter
from ralphtool.testing.model import ModelServer, Request
from ralphtool.testing.runners import check_runner
from ralphtool.testing.scenario import (
    All,
    Call,
    Cut,
    Drip,
    Fail,
    Mcp,
    Run,
    Say,
    Scenario,
    Silence,
    TooLong,
    Turn,
    Write,
    script,
)

__all__ = [
    "All",
    "Call",
    "ContractBroken",
    "Cut",
    "Drip",
    "Fail",
    "Mcp",
    "ModelServer",
    "Request",
    "Run",
    "Say",
    "Scenario",
    "Silence",
    "TooLong",
    "Turn",
    "Write",
    "check_adapter",
    "check_runner",
    "script",
]
