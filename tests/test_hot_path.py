"""Which modules the agent's commands import. An accidental import would make them slow, and fails here.

ralphtool's modules are listed exactly; of the standard library, only those named here may be added to what Python
itself loads, which differs between versions. docs/performance.md has the cost of imports.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from project import COMMAND, REPOSITORY, Ralph

import ralphtool

# Runs when Python starts, before the command; at the very end it writes down the loaded modules.
RECORDER = """\
import atexit, os, sys

@atexit.register
def record():
    with open(os.environ["RECORD"], "w") as file:
        file.write("\\n".join(sys.modules))
"""

# Not a daemon thread, so Python waits for it.
THREAD = "import threading, time; threading.Thread(target=lambda: (time.sleep(0.3), print('told'))).start()"

# All of these are small and in C.
STANDARD = {"_json", "_stat", "atexit", "errno", "fcntl", "gc", "stat", "time"}

EVERY = {
    *("", "cli", "cli.agent", "core", "core.files", "core.project", "core.quickjson", "core.session", "errors"),
}
GUESSES = {f"core.gate_{name}" for name in ("inference", "node", "python", "sources")}
MARKDOWN = {"specs.boxed", "specs.markdown"}
SPEC = EVERY | {"core.layout", "core.locks", "specs"}
OPENSPEC = SPEC | MARKDOWN | {"specs.openspec"}

COMMANDS: dict[str, tuple[list[str], set[str]]] = {
    "learn": (["learn", "text", "--task", "1.1"], EVERY),
    "pattern": (["pattern", "name", "description"], EVERY),
    "observe": (["observe", "finding", "title", "--severity", "low"], EVERY),
    "task done": (["task", "done", "1.1"], OPENSPEC),
    "status": (["status"], OPENSPEC),
    "next-story": (["session", "next-story"], OPENSPEC),
    "context": (["context"], OPENSPEC | {"core.config", "core.gate_commands"}),
}
# Searching the memory costs more: SQLite and regular expressions, but neither the history nor anything else.
MEMORY = {
    "memory",
    "memory.word_frequency",
    "memory.cache",
    "memory.cachefile",
    "memory.labels",
    "memory.profile",
    "memory.tokens",
}
FORMATS: dict[str, tuple[str, str, str, set[str]]] = {
    "prd": (
        "prd.json",
        '{"name": "x", "userStories": [{"id": "1", "title": "a"}]}',
        "x",
        MARKDOWN | {"specs.prd", "specs.prd_shape"},
    ),
    "speckit": ("specs/x/tasks.md", "## Phase 1: Setup\n- [ ] T001 a\n", "x", MARKDOWN | {"specs.speckit"}),
    "checklist": ("PLAN.md", "# Work\n- [ ] a\n", "PLAN", MARKDOWN | {"specs.checklist"}),
    "kiro": (".kiro/specs/x/tasks.md", "- [ ] 1. a\n", "x", MARKDOWN | {"specs.kiro", "specs.unique"}),
    "taskmaster": (
        ".taskmaster/tasks/tasks.json",
        '{"x": {"tasks": [{"id": 1, "title": "a"}]}}',
        "x",
        MARKDOWN | {"specs.cache", "specs.jsontext", "specs.taskmaster", "specs.unique"},
    ),
    "backlog": (
        "backlog/tasks/task-1 - a.md",
        "---\nid: TASK-1\n---\n",
        "backlog",
        MARKDOWN | {"specs.backlog", "specs.cache", "specs.frontmatter", "specs.unique"},
    ),
    "github": (
        ".ralph-issues/github-12.md",
        '<!-- ralphtool copy of ["github", "12"] -->\n# T\n\n## 1: A\n\n- [ ] 1.1 a\n',
        "github-12",
        MARKDOWN | {"specs.github", "specs.issue_copy"},
    ),
    "beads": (
        ".ralph-issues/shop-1.md",
        '<!-- ralphtool copy of ["beads", "shop-1"] -->\n# T\n\n## shop-1.1: A\n\n- [ ] shop-1.1.1 a\n',
        "shop-1",
        MARKDOWN | {"specs.beads", "specs.issue_copy"},
    ),
}
# Whole rooms, and single modules. The rest may be slow to import, including the history: only a flush needs it.
HOT = {"", "__main__", "cli", "cli.agent", "core", "errors", "specs"}


class Recorded:
    """The modules that a command loads beyond those of a bare Python that starts in the same way."""

    def __init__(self, ralph: Ralph) -> None:
        self.ralph = ralph
        self.folder = ralph.root.parent / "recorder"
        self.folder.mkdir()
        (self.folder / "sitecustomize.py").write_text(RECORDER)
        self.record = self.folder / "modules"
        self.env = {**ralph.env, "PYTHONPATH": str(self.folder), "RECORD": str(self.record), "RALPH_SESSION": "s1"}

    def added(self, *arguments: str) -> set[str]:
        return self._loaded(COMMAND, *arguments) - self._loaded(sys.executable, "-c", "pass")

    def _loaded(self, *command: str) -> set[str]:
        self.record.unlink(missing_ok=True)
        done = subprocess.run(command, cwd=self.ralph.root, env=self.env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return set(self.record.read_text().split("\n"))


def ours(modules: set[str]) -> set[str]:
    """ralphtool's modules, without the package's name; "" is the package itself."""
    return {name[len("ralphtool") :].lstrip(".") for name in modules if is_ours(name)}


def is_ours(name: str) -> bool:
    return name == "ralphtool" or name.startswith("ralphtool.")


def others(modules: set[str]) -> set[str]:
    return {name for name in modules if not is_ours(name)}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_imports_these_modules_and_no_other(project: Ralph, name: str) -> None:
    arguments, wanted = COMMANDS[name]
    project.write(".ralph/config.toml", '[verify]\nchecks = ["make lint"]\ntests = ["make test"]\n')
    added = Recorded(project.begin()).added("agent", *arguments)
    assert ours(added) == wanted
    assert others(added) <= STANDARD


def test_recall_imports_the_memory_and_not_the_history(project: Ralph) -> None:
    assert project.begin().agent("learn", "The tests need make db first").exit_code == 0
    assert project.agent("recall", "tests").json["learnings"]  # this creates the index
    added = Recorded(project).added("agent", "recall", "tests")
    assert ours(added) == EVERY | MEMORY | {"core.layout", "core.locks", "memory.recall", "core.secrets"}
    assert not {"typing", "msgspec", "json", "hashlib", "subprocess", "numpy"} & added


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_imports_no_more_than_its_own_adapter(ralph: Ralph, name: str) -> None:
    path, text, change, wanted = FORMATS[name]
    ralph.write(path, text)
    added = Recorded(ralph.begin(change)).added("agent", "status")
    assert ours(added) == SPEC | wanted
    assert others(added) <= STANDARD


def test_context_infers_commands_with_little_more(project: Ralph) -> None:
    project.write("package.json", '{"scripts": {"test": "jest"}}')
    project.write("pyproject.toml", "[tool.ruff]\n")
    added = Recorded(project.begin()).added("agent", "context")
    assert ours(added) == COMMANDS["context"][1] | GUESSES
    assert others(added) <= STANDARD


def test_the_recorder_sees_what_the_other_commands_import(project: Ralph) -> None:
    assert {"click", "re", "ralphtool.cli.main"} <= Recorded(project).added("--version")


def test_the_command_is_our_own_script() -> None:
    """pip's script for an entry point imports `re`, which takes longer than most commands."""
    installed = Path(COMMAND).read_text()
    shebang, _, body = installed.partition("\n")
    assert shebang.startswith("#!")
    assert body == (REPOSITORY / "bin/ralphtool").read_text().partition("\n")[2]
    assert imported(ast.parse(installed)) == {"sys", "ralphtool.__main__", "ralphtool.cli.agent"}


def hot_modules() -> dict[str, Path]:
    top = Path(ralphtool.__file__).parent
    found = {}
    for path in top.rglob("*.py"):
        name = ".".join(path.relative_to(top).with_suffix("").parts).removesuffix("__init__").removesuffix(".")
        if {name, name.partition(".")[0] if not name.startswith("cli.") else name} & HOT:
            found[f"ralphtool.{name}".rstrip(".")] = path
    return found


def imported(tree: ast.AST) -> set[str]:
    """All names that a module imports, also inside functions."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def test_no_hot_module_imports_regular_expressions() -> None:
    modules = hot_modules()
    assert {"ralphtool.cli.agent", "ralphtool.specs.markdown"} <= set(modules)
    guilty = [name for name, path in modules.items() if "re" in imported(ast.parse(path.read_text()))]
    assert guilty == []


def test_importing_every_hot_module_loads_next_to_nothing() -> None:
    """So none of them can compile a regular expression, or build anything large, when it is imported."""
    code = (
        f"import sys; before = set(sys.modules); import {', '.join(hot_modules())}; print(*set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    added = set(done.stdout.split())
    assert ours(added) == {name[len("ralphtool") :].lstrip(".") for name in hot_modules()}
    assert others(added) <= STANDARD


@pytest.mark.parametrize("last_words", ["print('told')", "import atexit; atexit.register(print, 'told')", THREAD])
def test_what_an_adapter_has_still_to_say_is_said_though_the_process_ends_at_once(
    project: Ralph, last_words: str
) -> None:
    recorded = Recorded(project.begin())
    (recorded.folder / "sitecustomize.py").write_text(last_words)
    done = subprocess.run([COMMAND, "agent", "status"], cwd=project.root, env=recorded.env, capture_output=True)
    assert done.returncode == 0
    assert b"told" in done.stdout
