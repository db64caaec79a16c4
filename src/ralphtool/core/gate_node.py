"""The gates of a JavaScript project: the scripts of its package.json, or those of its workspace's packages."""

from ralphtool.core import quickjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ralphtool.core.gate_sources import Guess, SourceFolder

_NO_TEST = "no test specified"
_CHECKS = ("lint", "typecheck", "type-check", "check-types", "check:types", "check")
_LOCKS = (
    *(("pnpm-lock.yaml", "pnpm"), ("pnpm-workspace.yaml", "pnpm"), ("yarn.lock", "yarn"), ("bun.lock", "bun")),
    *(("bun.lockb", "bun"), ("package-lock.json", "npm")),
)
# Runs a script in every package of a workspace that has it.
_IN_ALL = {
    "npm": "npm run {} --workspaces --if-present",
    "pnpm": "pnpm -r run --if-present {}",
    "yarn": "yarn workspaces foreach -A run {}",
    "bun": "bun run --filter '*' {}",
}


def infer(folder: "SourceFolder") -> "Guess":
    package = _read_package(folder)
    runner = _find_runner(folder, package)
    own, theirs = _list_scripts(package), _list_member_scripts(folder, package)
    if runner == "yarn" and ".yarnrc.yml" not in folder.names:
        theirs = set()  # yarn 1 can't run a script that only some packages have
    checks = [command for name in _CHECKS if (command := _run_script(runner, name, own, theirs))]
    test = _run_script(runner, "test", own, theirs)
    return checks, [test] if test else []


def _read_package(folder: "SourceFolder") -> "dict[str, Any]":
    return read_json(folder, "package.json")


def read_json(folder: "SourceFolder", name: str) -> "dict[str, Any]":
    try:
        found = quickjson.loads(folder.read(name))
    except ValueError:
        return {}  # not our file: the project's own tools will report it
    return found if isinstance(found, dict) else {}


def _list_scripts(package: "dict[str, Any]") -> set[str]:
    scripts = package.get("scripts")
    found = scripts if isinstance(scripts, dict) else {}
    return {name for name, text in found.items() if _NO_TEST not in str(text) and not _rewrites(found, name)}


def _rewrites(scripts: "dict[str, Any]", name: str) -> bool:
    """Whether a script changes files: a gate must only look at them. `doctor --gates` runs it on the user's own."""
    words = " ".join(str(scripts.get(one, "")) for one in (f"pre{name}", name, f"post{name}")).split()
    return name in _CHECKS and any(word in ("--fix", "--write") or word.endswith(":fix") for word in words)


def _run_script(runner: str, script: str, own: set[str], theirs: set[str]) -> str:
    """The project's top-level script takes precedence over those of its packages."""
    if script not in own:
        return _IN_ALL[runner].format(script) if script in theirs else ""
    # `bun test` is bun's own runner, not the script
    return f"{runner} test" if script == "test" and runner != "bun" else f"{runner} run {script}"


def _find_runner(folder: "SourceFolder", package: "dict[str, Any]") -> str:
    named = str(package.get("packageManager", "")).partition("@")[0]
    if named in _IN_ALL:
        return named
    return next((runner for lock, runner in _LOCKS if lock in folder.names), "npm")


def _list_member_scripts(folder: "SourceFolder", package: "dict[str, Any]") -> set[str]:
    """The scripts of all packages of the workspace."""
    members = folder.list_members(_list_patterns(folder, package))
    return {script for one in members if "package.json" in one.names for script in _list_scripts(_read_package(one))}


def _list_patterns(folder: "SourceFolder", package: "dict[str, Any]") -> list[str]:
    told = package.get("workspaces")
    if isinstance(told, dict):
        told = told.get("packages")
    found = [one for one in told if isinstance(one, str)] if isinstance(told, list) else []
    return [one for one in found + _list_pnpm_patterns(folder) if not one.startswith("!")]


def _list_pnpm_patterns(folder: "SourceFolder") -> list[str]:
    """The list under `packages:` of pnpm-workspace.yaml."""
    found, inside = [], False
    for line in folder.read("pnpm-workspace.yaml").split("\n"):
        text = line.partition(" #")[0].strip()
        if text.startswith("- ") and inside:
            found.append(text[2:].strip().strip("\"'"))
        elif text and not text.startswith("#"):
            inside = text == "packages:"
    return found
