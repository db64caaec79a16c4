"""The architecture, checked by reading the source: which room may import which, and a few style rules."""

from __future__ import annotations

import ast
import gc
import re
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from project import REPOSITORY

from ralphtool.memory.fingerprint import _compile_volatile

SOURCE = REPOSITORY / "src/ralphtool"

# A room imports only from the rooms before it. A new module needs no entry here: its folder decides.
ROOMS = (
    *(
        "",
        "errors",
        "core",
        "typed",
        "settings",
        "specs",
        "agents",
        "history",
        "memory",
        "judging",
        "sandbox",
        "workspace",
    ),
    *("record", "executors", "loop", "workers", "views", "testing", "cli", "__main__"),
)
NEVER = {"views": {"loop", "executors", "workers"}, "testing": {"loop", "workers", "views"}}
THIRD_PARTY = {
    "core": {"psutil"},
    "typed": {"msgspec"},
    "settings": {"msgspec"},
    "agents": {"msgspec"},
    "history": {"msgspec"},
    "memory": {"msgspec", "numpy"},
    "judging": {"msgspec", "tree_sitter"},
    "sandbox": {"msgspec"},
    "workspace": {"msgspec"},
    "record": {"msgspec"},
    "executors": {"msgspec", "psutil"},
    "loop": {"msgspec"},
    "workers": {"msgspec"},
    "views": {"click", "msgspec", "psutil", "rich", "textual", "uvicorn"},  # click colours a line cheaply
    "testing": {"msgspec"},
    "cli": {"anyio", "click", "mcp", "mcp_types", "msgspec", "psutil"},
}
# Further packages that one folder of a room may import.
IN_FOLDERS = {"executors.temporal": {"temporalio"}}
FACES = {"cli", "views", "__main__"}  # the rooms that may print and exit
SPEAKING = ("print", "sys.exit", "exit", "quit", "os._exit")
PROGRAMS = ("agents.scripted_program", "sandbox.bridge")  # separate programs, started by others
BANNED_WORDS = ("manager", "handler", "helper", "service", "engine", "util")
LONGEST_FUNCTION = 45
LONGEST_MODULE = 500
LAST_RESORTS = {
    ("cli.agent", "_run_safely"),
    ("cli.main", "main"),
    ("core.crashlog", "report"),
    ("executors.temporal.serving", "_carry_out_safely"),  # a bug in one job must not end the others
}
# Third-party code is imported here: whatever it raises becomes an error that names the package.
STRANGERS = {("agents", "make"), ("specs", "_load")}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


@cache
def sources() -> dict[str, str]:
    return {name_of(path): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}


@cache
def modules() -> dict[str, ast.Module]:
    gc.disable()  # every node is kept: the search for garbage among them takes three times as long as parsing
    try:
        return {name: ast.parse(text) for name, text in sources().items()}
    finally:
        gc.freeze()
        gc.enable()


@cache
def walk(module: str) -> list[ast.AST]:
    """Every node of a module, including those inside functions."""
    return list(ast.walk(modules()[module]))


def nodes_that_run(module: str) -> Iterator[ast.AST]:
    """Every node except those that only a type checker reads."""
    left: list[ast.AST] = [modules()[module]]
    while left:
        node = left.pop()
        if not (isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"):
            yield node
            left.extend(ast.iter_child_nodes(node))


@cache
def dotted_imports(module: str, *, types: bool = True) -> set[str]:
    """The full names that a module imports: `a.b` for `import a.b`, `a.b.c` for `from a.b import c`."""
    found: set[str] = set()
    for node in walk(module) if types else nodes_that_run(module):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import: write it in full"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@cache
def imports(module: str, *, types: bool = True) -> set[str]:
    """The modules of ralphtool that a module imports."""
    inside = [name.removeprefix("ralphtool.") for name in dotted_imports(module, types=types) if is_ours(name)]
    return {name if name in modules() else name.rpartition(".")[0] for name in inside}


def is_ours(name: str) -> bool:
    return name.partition(".")[0] == "ralphtool"


def functions(module: str) -> list[Function]:
    return [node for node in walk(module) if isinstance(node, Function)]


# --- imports ----------------------------------------------------------------------------------------


def room(module: str) -> str:
    return module.partition(".")[0]


def test_a_room_imports_only_from_rooms_below_it() -> None:
    for module in modules():
        seen = {room(name) for name in imports(module)} - {room(module)}
        assert {name for name in seen if ROOMS.index(name) > ROOMS.index(room(module))} == set(), module
        assert seen & NEVER.get(room(module), set()) == set(), module


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {module: imports(module, types=False) - {module} for module in modules()}
    assert len(list(TopologicalSorter(graph).static_order())) == len(modules())  # raises on a cycle


def test_the_names_of_other_peoples_packages_stay_in_their_rooms() -> None:
    strangers = {
        module: {name.partition(".")[0] for name in dotted_imports(module)} - sys.stdlib_module_names - {"ralphtool"}
        for module in modules()
    }
    assert {module: names for module, names in strangers.items() if names - allowed(module)} == {}


def allowed(module: str) -> set[str]:
    """The third-party packages that a module may import: those of its room, and those of its folder."""
    folders = [names for folder, names in IN_FOLDERS.items() if f"{module}.".startswith(f"{folder}.")]
    return THIRD_PARTY.get(room(module), set()).union(*folders)


def test_one_module_says_where_our_files_and_refs_are() -> None:
    said = ("refs/ralph/", "refs/heads/ralph/")
    spelled = {
        module
        for module in modules()
        for node in walk(module)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if node.value == ".ralph" or node.value.startswith(said)
    }
    assert spelled <= {"core.layout", "core.project"}


def test_the_errors_that_users_meet_are_one_tree() -> None:
    tree = {node.name for node in walk("errors") if isinstance(node, ast.ClassDef)}
    strays = {
        f"{module}.{node.name}"
        for module in modules()
        for node in walk(module)
        if isinstance(node, ast.ClassDef) and tree & {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    }
    assert {name for name in strays if not name.startswith("errors.")} == set()


def concrete(room: str, registry: str) -> set[str]:
    """The built-in adapters or runners, by the names in their registry."""
    told = [node.value for node in walk(registry) if isinstance(node, ast.Constant)]
    names = {str(value).partition(":")[0].removeprefix("ralphtool.") for value in told}
    return {name for name in names if name.startswith(f"{room}.") and name in modules()}


def test_concrete_backends_are_known_by_name_only() -> None:
    adapters, runners = concrete("specs", "core.project"), concrete("agents", "agents")
    assert len(adapters) >= 4
    assert len(runners) >= 8
    assert {module for module in modules() if imports(module) & adapters} == set()
    assert {module for module in modules() if imports(module) & runners} == set()
    assert imports("loop.loop") & {"executors.local", "executors.process", "workspace.git"} == set()


# --- style ------------------------------------------------------------------------------------------


def test_every_module_says_what_it_is_for() -> None:
    assert [module for module, tree in modules().items() if not ast.get_docstring(tree)] == []


def speaks(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        return name in ("print", "exit", "quit", "_exit") and ast.unparse(node.func) in SPEAKING
    return isinstance(node, ast.Raise) and node.exc is not None and "SystemExit" in ast.unparse(node.exc)


def test_only_the_faces_print_and_exit() -> None:
    for module in modules():
        if room(module) not in FACES and module not in PROGRAMS:
            assert [ast.unparse(node) for node in walk(module) if speaks(node)] == [], module


def test_no_name_says_nothing() -> None:
    for module in modules():
        named = (*functions(module), *(node for node in walk(module) if isinstance(node, ast.ClassDef)))
        names = [module, *(node.name for node in named)]
        assert [name for name in names if any(word in name.lower() for word in BANNED_WORDS)] == []


def test_functions_are_short() -> None:
    for module in modules():
        lengths = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions(module)}
        assert {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION} == {}, module


def test_a_long_module_says_why_it_is_one_file() -> None:
    long = [module for module, text in sources().items() if len(text.splitlines()) > LONGEST_MODULE]
    assert [module for module in long if "One file" not in (ast.get_docstring(modules()[module]) or "")] == []


def test_no_pattern_repeats_a_group_possessively() -> None:
    """Before 3.11.5, Python loses its position in such a group: `a(?:_b{1,3}+){0,2}+_1` does not match a_b_1."""
    possessive = re.compile(r"\)(?:[+*?]|\{\d*,?\d*\})\+|\(\?>")
    assert possessive.search("(?:a)++b")
    assert possessive.search("(?:a){1,2}+b")
    strings = [(name, node.value) for name in modules() for node in walk(name) if isinstance(node, ast.Constant)]
    assert {name for name, value in strings if isinstance(value, str) and possessive.search(value)} == set()
    assert not possessive.search(_compile_volatile().pattern)  # put together from parts


def prepares_a_type(node: ast.AST) -> bool:
    """Whether it makes msgspec decode into a type. Two threads must not be the first to do so at the same time."""
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    is_typed = any(keyword.arg == "type" for keyword in node.keywords)
    return called in ("Decoder", "msgspec.json.Decoder", "msgspec.msgpack.Decoder", "msgspec.convert") or (
        called in ("msgspec.json.decode", "msgspec.msgpack.decode") and is_typed
    )


def test_types_are_prepared_in_one_place_that_has_a_lock() -> None:
    found = {module for module in modules() if any(map(prepares_a_type, walk(module)))}
    assert found == {"typed"}
    convert = {module for module in modules() if "msgspec.convert" in dotted_imports(module)}
    assert convert == set()


def is_broad(node: ast.AST) -> bool:
    """Whether it catches everything. A handler that only cleans up and re-raises does not count."""
    if not isinstance(node, ast.ExceptHandler):
        return False
    last = node.body[-1]
    goes_on = isinstance(last, ast.Raise) and last.exc is None
    caught = ["BaseException"] if node.type is None else ast.unparse(node.type).strip("()").split(", ")
    return bool({"Exception", "BaseException"} & set(caught)) and not goes_on


def test_only_the_last_resorts_catch_everything() -> None:
    broad = {module: count for module in modules() if (count := sum(map(is_broad, walk(module))))}
    found = [
        (module, node.name) for module in broad for node in functions(module) if any(map(is_broad, ast.walk(node)))
    ]
    assert set(found) == LAST_RESORTS | STRANGERS
    assert sum(broad.values()) == len(LAST_RESORTS | STRANGERS)
