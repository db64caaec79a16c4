"""How a story is proven: the commands from the configuration, else what the project's own files suggest."""

import os

from ralphtool.core import config, files, quickjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_NO_TEST = "no test specified"


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
    """What the languages of the project usually run; a Makefile only speaks where none of them does."""
    names = set(os.listdir(project))
    found = GateCommands()
    for wanted, guess in _LANGUAGES:
        if name := next((name for name in wanted if name in names), None):
            one = guess(os.path.join(project, name), names)
            found.checks += one.checks
            found.tests += one.tests
    makefile = next((name for name in ("GNUmakefile", "makefile", "Makefile") if name in names), None)
    return _infer_makefile(os.path.join(project, makefile)) if makefile and not found else found


def _read_text(path: str) -> str:
    try:
        return files.read(path).decode("utf-8", "replace")
    except OSError:
        return ""  # a folder of that name, or somebody's file that we may not read, suggests nothing


def _infer_cargo(path: str, names: set[str]) -> GateCommands:
    return GateCommands(["cargo check"], ["cargo test"])


def _infer_go(path: str, names: set[str]) -> GateCommands:
    return GateCommands(["go vet ./..."], ["go test ./..."])


def _infer_python(path: str, names: set[str]) -> GateCommands:
    text = _read_text(path)
    checks = [command for mark, command in (("[tool.ruff", "ruff check ."), ("[tool.mypy", "mypy .")) if mark in text]
    has_pytest = "pytest" in text or bool({"pytest.ini", "conftest.py"} & names)
    has_tests = bool({"tests", "test"} & names)
    if not has_pytest and not has_tests:
        return GateCommands(checks)
    return GateCommands(checks, [f"{_find_python_runner(names)} pytest"])


def _find_python_runner(names: set[str]) -> str:
    """A project whose packages a tool looks after is run by that tool: any other Python would lack them."""
    return "uv run" if "uv.lock" in names else "poetry run" if "poetry.lock" in names else "python -m"


def _infer_node(path: str, names: set[str]) -> GateCommands:
    try:
        scripts = quickjson.loads(_read_text(path)).get("scripts")
    except (ValueError, AttributeError):
        return GateCommands()  # somebody else's broken file: its own tools will say so
    if not isinstance(scripts, dict):
        return GateCommands()
    run = _find_script_runner(names)
    checks = [f"{run} run {script}" for script in ("lint", "typecheck", "check") if script in scripts]
    has_tests = "test" in scripts and _NO_TEST not in str(scripts["test"])
    test = "bun run test" if run == "bun" else f"{run} test"  # `bun test` is bun's own runner, not the script
    return GateCommands(checks, [test] if has_tests else [])


def _find_script_runner(names: set[str]) -> str:
    for lock, command in (("pnpm-lock.yaml", "pnpm"), ("yarn.lock", "yarn"), ("bun.lock", "bun"), ("bun.lockb", "bun")):
        if lock in names:
            return command
    return "npm"


def _infer_makefile(path: str) -> GateCommands:
    heads = [
        line.partition(":")[0].split() for line in _read_text(path).split("\n") if ":" in line and line[:1].isalpha()
    ]
    targets = {target for head in heads for target in head}
    checks = [f"make {target}" for target in ("lint", "check") if target in targets]
    return GateCommands(checks, ["make test"] if "test" in targets else [])


_LANGUAGES = (
    (("Cargo.toml",), _infer_cargo),
    (("package.json",), _infer_node),
    (("pyproject.toml", "setup.cfg", "setup.py"), _infer_python),
    (("go.mod",), _infer_go),
)
