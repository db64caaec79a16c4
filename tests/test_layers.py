"""How the house is built, held by reading the source: who may import whom, and a few rules of style."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src/ralphtool"

# A module imports only from the rows above its own; "" is the package itself. A new module needs a place here.
LAYERS = (
    ("", "errors", "quickjson", "secrets"),
    ("files", "project"),
    ("bugs", "config", "learnings", "session"),
    ("locks", "questions", "specs", "verify"),
    ("runs", "steering"),
    ("memory.background", "memory.cachefile", "memory.labels", "memory.masking", "memory.wordpiece", "memory.words"),
    ("memory.minilm", "memory.profile", "memory.reading"),
    ("memory.sense", "memory.vectors"),
    ("memory.likeness", "memory.shelf"),
    ("memory.cache",),
    ("memory.meaning",),
    ("memory",),
    ("lifecycle", "history.records"),
    ("history.schema", "history.kinds"),
    ("history.document", "history.journal"),
    ("history.catalog",),
    ("history.resolve", "history.state"),
    ("history.store",),
    ("history.progresstxt", "history.notes"),
    ("history.migrate",),
    ("history",),
    ("guard.model", "guard.names", "guard.source"),
    ("guard.commands", "guard.heads", "guard.pairs", "guard.pythonchecks", "guard.spec", "guard.textchecks"),
    ("guard.coarse", "guard.compare", "guard.configs", "guard.languages", "guard.python"),
    ("agents", "analyzer", "blockers", "events", "git", "guard", "keeper", "settings", "testresults", "usefulness"),
    ("knowledge", "logs"),
    ("recall", "review"),
    ("agents.program", "agents.rollout", "agents.trouble"),
    ("agents.lines", "agents.written"),
    ("agents.command", "agents.play", "away", "branch", "internals", "judge", "prompt", "transcript"),
    ("changes", "skeleton", "starting"),
    ("agents.aider", "agents.claude", "agents.codex", "agents.gemini", "agents.mini", "agents.opencode"),
    ("agents.scripted", "process", "recovery", "roster", "tree"),
    ("workspace",),
    ("recorded", "standing"),
    ("backtest", "briefing", "gates", "ours", "finish"),
    ("change", "executors"),
    ("attention", "dryrun", "limits", "executors.meter", "executors.surroundings", "outcome"),
    ("conclusion", "doctor", "executors.ending", "notify"),
    ("executors.here",),
    ("loop",),
    ("specs.markdown",),
    ("specs.notes",),
    ("specs.boxed",),
    ("specs.checklist", "specs.openspec", "specs.prd", "specs.speckit"),
    ("testing.adapters", "testing.homes", "testing.scenario"),
    ("testing.dialects", "testing.runners"),
    ("testing.dialects.anthropic", "testing.dialects.chat", "testing.dialects.gemini", "testing.dialects.responses"),
    ("testing.tools",),
    ("testing.model",),
    ("agentcli", "testing", "ui", "ui.raw", "ui.terminal"),
    ("ui.plan", "ui.tables"),
    ("ui.summary",),
    ("ui.conversation", "ui.following"),
    ("ui.live",),
    ("screen.launch", "screen.model", "screen.record"),
    ("screen.page",),
    ("screen.change", "screen.changes", "screen.result", "screen.watch"),
    ("screen",),
    ("report", "report.elements", "report.facts", "report.words"),
    ("report.learnt", "report.reading", "report.told", "report.work"),
    ("report.junit", "report.markdown", "report.timeline"),
    ("report.page",),
    ("reportcli",),
    (
        "backtestcli",
        "logscli",
        "mcpserver",
        "memorycli",
        "progresscli",
        "recordcli",
        "runcli",
        "setupcli",
        "steercli",
        "watchcli",
    ),
    ("cli",),
    ("__main__",),
)
ADAPTERS = {"specs.checklist", "specs.openspec", "specs.prd", "specs.speckit"}
THIRD_PARTY = {
    "agents": {"msgspec"},
    "agents.aider": {"msgspec"},
    "agents.claude": {"msgspec"},
    "agents.codex": {"msgspec"},
    "agents.gemini": {"msgspec"},
    "agents.lines": {"msgspec"},
    "agents.mini": {"msgspec"},
    "agents.opencode": {"msgspec"},
    "agents.program": {"msgspec"},
    "agents.rollout": {"msgspec"},
    "agents.scripted": {"msgspec"},
    "analyzer": {"msgspec"},
    "away": {"msgspec"},
    "blockers": {"msgspec"},
    "changes": {"click"},
    "conclusion": {"msgspec"},
    "cli": {"click"},
    "events": {"msgspec"},
    "executors": {"msgspec"},
    "executors.ending": {"msgspec"},
    "executors.here": {"msgspec"},
    "executors.meter": {"msgspec"},
    "finish": {"msgspec"},
    "gates": {"msgspec"},
    "git": {"msgspec"},
    "guard.compare": {"msgspec"},
    "guard.configs": {"msgspec"},
    "guard.heads": {"msgspec"},
    "guard.languages": {"msgspec"},
    "guard.model": {"msgspec"},
    "guard.pairs": {"msgspec"},
    "history": {"msgspec"},
    "history.catalog": {"msgspec"},
    "history.document": {"msgspec"},
    "history.journal": {"msgspec"},
    "history.migrate": {"msgspec"},
    "history.notes": {"msgspec"},
    "history.records": {"msgspec"},
    "history.resolve": {"msgspec"},
    "history.schema": {"msgspec"},
    "history.store": {"msgspec"},
    "internals": {"msgspec"},
    "judge": {"msgspec"},
    "keeper": {"psutil"},
    "limits": {"msgspec"},
    "locks": {"psutil"},
    "loop": {"msgspec"},
    "knowledge": {"msgspec"},
    "memorycli": {"click"},
    "memory.meaning": {"numpy"},
    "memory.minilm": {"numpy"},
    "memory.shelf": {"numpy"},
    "memory.vectors": {"numpy"},
    "usefulness": {"msgspec"},
    "logs": {"msgspec"},
    "logscli": {"click", "msgspec"},
    "ui.conversation": {"click"},
    "watchcli": {"click"},
    "ui.plan": {"click"},
    "steercli": {"click", "psutil"},
    "setupcli": {"click"},
    "starting": {"msgspec"},
    "skeleton": {"msgspec"},
    "doctor": {"msgspec"},
    "dryrun": {"msgspec"},
    "briefing": {"msgspec"},
    "backtestcli": {"click", "msgspec"},
    "backtest": {"msgspec"},
    "recorded": {"msgspec"},
    "mcpserver": {"anyio", "mcp", "mcp_types"},
    "ours": {"msgspec"},
    "outcome": {"msgspec"},
    "process": {"msgspec", "psutil"},
    "progresscli": {"click", "msgspec"},
    "prompt": {"msgspec"},
    "recordcli": {"click", "msgspec"},
    "recovery": {"msgspec"},
    "review": {"msgspec"},
    "roster": {"msgspec"},
    "reportcli": {"click", "msgspec"},
    "report.reading": {"msgspec"},
    "report.learnt": {"msgspec"},
    "report.facts": {"msgspec"},
    "runcli": {"click", "msgspec"},
    "settings": {"msgspec"},
    "screen.record": {"rich"},
    "screen.watch": {"rich", "textual"},
    "screen.result": {"rich", "textual"},
    "screen.page": {"rich", "textual"},
    "screen.changes": {"rich", "textual"},
    "screen.change": {"rich", "textual"},
    "screen": {"rich", "textual"},
    "standing": {"msgspec"},
    "testing.dialects": {"msgspec"},
    "testing.scenario": {"msgspec"},
    "testresults": {"msgspec"},
    "tree": {"msgspec"},
    "ui.live": {"rich"},
    "ui.summary": {"rich"},
    "ui.tables": {"click", "rich"},
    "ui.terminal": {"click"},
}
FACES = {
    *("__main__", "agentcli", "agents.play", "cli", "backtestcli", "memorycli", "progresscli", "recordcli", "runcli"),
    *("logscli", "reportcli", "setupcli", "steercli", "watchcli"),
}
VIEWS = {
    "ui",
    "ui.conversation",
    "ui.following",
    "ui.live",
    "ui.plan",
    "ui.raw",
    "ui.summary",
    "ui.tables",
    "ui.terminal",
}
RUNNERS = {
    "agents.aider",
    "agents.claude",
    "agents.codex",
    "agents.command",
    "agents.gemini",
    "agents.mini",
    "agents.opencode",
    "agents.scripted",
}
BANNED_WORDS = ("manager", "handler", "helper", "service", "engine", "util")
LONGEST_FUNCTION = 60
LAST_RESORTS = {("agentcli", "_ending"), ("cli", "main"), ("bugs", "report")}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {name_of(path): ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}


def nodes(tree: ast.AST, *, types: bool) -> Iterator[ast.AST]:
    """Every node, those inside functions included; without `types`, not what only a type checker reads."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING" and not types:
            continue
        yield child
        yield from nodes(child, types=types)


def dotted_imports(module: str, *, types: bool = True) -> set[str]:
    """The full names that a module imports: `a.b` for `import a.b`, `a.b.c` for `from a.b import c`."""
    found: set[str] = set()
    for node in nodes(MODULES[module], types=types):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import: write it in full"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def imports(module: str, *, types: bool = True) -> set[str]:
    """The modules of ours that a module imports."""
    inside = [name.removeprefix("ralphtool.") for name in dotted_imports(module, types=types) if is_ours(name)]
    return {name if name in MODULES else name.rpartition(".")[0] for name in inside}


def is_ours(name: str) -> bool:
    return name.partition(".")[0] == "ralphtool"


def functions(module: str) -> list[Function]:
    return [node for node in ast.walk(MODULES[module]) if isinstance(node, Function)]


# --- imports ----------------------------------------------------------------------------------------


def test_every_module_has_its_layer() -> None:
    placed = [module for layer in LAYERS for module in layer]
    assert sorted(placed) == sorted(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_downward_only(module: str) -> None:
    height = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    assert [name for name in sorted(imports(module)) if height[name] >= height[module]] == []


def test_the_ground_floor_stands_alone() -> None:
    assert {module: imports(module) for module in LAYERS[0]} == {module: set() for module in LAYERS[0]}
    assert imports("files") == {"errors"}


def test_adapters_never_import_each_other() -> None:
    assert {module: imports(module) & ADAPTERS for module in ADAPTERS} == {module: set() for module in ADAPTERS}


def test_adapters_are_known_by_their_dotted_names_only() -> None:
    assert {module for module in MODULES if imports(module) & ADAPTERS} == set()
    built_in = {node.value for node in ast.walk(MODULES["specs"]) if isinstance(node, ast.Constant)}
    assert {f"ralphtool.{module}" for module in ADAPTERS} <= built_in


def test_the_loop_knows_no_concrete_spec_agent_or_executor() -> None:
    assert {module for module in MODULES if imports(module) & RUNNERS} <= {"agents.scripted"}
    above = {module for module in MODULES if "loop" in imports(module)}
    assert above == {"runcli"}
    assert imports("loop") & {*ADAPTERS, *RUNNERS, "executors.here", "git", "process"} == set()


def test_only_the_start_imports_cli() -> None:
    assert {module for module in MODULES if "cli" in imports(module)} == {"__main__"}


def test_ui_imports_nothing_that_writes() -> None:
    for module in VIEWS:
        assert imports(module, types=False) <= {"", "errors", "events", "project", "quickjson", "runs", *VIEWS}
        called = {ast.unparse(node.func) for node in ast.walk(MODULES[module]) if isinstance(node, ast.Call)}
        writing = {"open", "os.open", "os.write", "os.replace", "os.rename", "os.unlink", "os.remove", "os.mkdir"}
        assert called & writing == set()


def test_other_peoples_packages_stay_where_they_are_needed() -> None:
    tops = {module: {name.partition(".")[0] for name in dotted_imports(module)} for module in MODULES}
    strangers = {module: names - sys.stdlib_module_names - {"ralphtool"} for module, names in tops.items()}
    assert {module: names for module, names in strangers.items() if names} == THIRD_PARTY


# --- style ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", MODULES)
def test_every_module_says_what_it_is_for(module: str) -> None:
    assert ast.get_docstring(MODULES[module])


def speaks(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) in ("print", "sys.exit", "exit", "quit", "os._exit")
    return isinstance(node, ast.Raise) and node.exc is not None and "SystemExit" in ast.unparse(node.exc)


@pytest.mark.parametrize("module", sorted(MODULES.keys() - FACES - VIEWS))
def test_only_the_faces_print_and_exit(module: str) -> None:
    assert [ast.unparse(node) for node in ast.walk(MODULES[module]) if speaks(node)] == []


@pytest.mark.parametrize("module", MODULES)
def test_no_name_says_nothing(module: str) -> None:
    named = (*functions(module), *(node for node in ast.walk(MODULES[module]) if isinstance(node, ast.ClassDef)))
    names = [module, *(node.name for node in named)]
    assert [name for name in names if any(word in name.lower() for word in BANNED_WORDS)] == []


@pytest.mark.parametrize("module", MODULES)
def test_functions_are_short(module: str) -> None:
    lengths = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions(module)}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION} == {}


def is_broad(node: ast.AST) -> bool:
    """Whether it catches everything. What tidies up and raises the same error again catches nothing."""
    if not isinstance(node, ast.ExceptHandler):
        return False
    last = node.body[-1]
    goes_on = isinstance(last, ast.Raise) and last.exc is None
    caught = ["BaseException"] if node.type is None else ast.unparse(node.type).strip("()").split(", ")
    return bool({"Exception", "BaseException"} & set(caught)) and not goes_on


def test_only_the_last_resorts_catch_everything() -> None:
    broad = {module: sum(is_broad(node) for node in ast.walk(tree)) for module, tree in MODULES.items()}
    found = [
        (module, node.name) for module in MODULES for node in functions(module) if any(map(is_broad, ast.walk(node)))
    ]
    assert set(found) == LAST_RESORTS
    assert sum(broad.values()) == len(LAST_RESORTS)
