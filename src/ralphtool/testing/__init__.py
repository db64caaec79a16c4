"""For authors of adapters, runners and executors, and tests of agents: contracts as functions, and a scripted model.

from ralphtool.testing import ModelServer, Run, Say, Write, check_adapter, script

with ModelServer(script(Write("hello.txt", "hi\\n"), Run("make test"), Say("Done."))) as model:
    subprocess.run(["claude", "-p", "…"], env=os.environ | model.environment("claude", home))
"""

from ralphtool.testing.adapters import ContractBroken, check_adapter
from ralphtool.testing.executors import EXECUTOR_CASES, EXECUTOR_SECRET, ExecutorOutcome, check_executor
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
    "EXECUTOR_CASES",
    "EXECUTOR_SECRET",
    "All",
    "Call",
    "ContractBroken",
    "Cut",
    "Drip",
    "ExecutorOutcome",
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
    "check_executor",
    "check_runner",
    "script",
]
