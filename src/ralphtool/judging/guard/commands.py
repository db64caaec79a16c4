"""Command lines: which programs they run, which tests they leave out, whether they ignore failures."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from ralphtool.judging.guard.model import shorten

CHECKING_SCRIPT = re.compile(
    r"(?:pre|post)?(?:tests?|lint|check|type-?check|types|verify|ci|validate|unit|e2e|integration)"
    r"(?:[:_.-](?!.*(?:watch|ui|debug|dev|open|update|snapshots?|cov|coverage)\b).*)?"
)
_SWALLOWED = re.compile(r"\|\|\s*(?:true|:|exit\s+0|echo|/bin/true)(?![\w-])|;\s*(?:true|:|exit\s+0)\s*\Z")
_NO_PROGRAMS = {"true", ":", "exit", "echo", "printf", "sleep", "cd", "set", "export", "no-op", "noop"}
_WRAPPERS = {"npx", "yarn", "pnpm", "npm", "bun", "bunx", "exec", "run", "dlx", "cross-env", "env", "sudo", "time"}
_WRAPPERS |= {"uv", "poetry", "pipenv", "hatch", "pdm", "bundle", "python", "python3", "coverage", "dotenv"}
_WRAPPERS |= {"command", "node", "c8", "nyc"}
_WITH_VERB = {"cargo", "go", "dotnet", "mix", "gradle", "./gradlew", "mvn", "./mvnw", "swift", "deno", "rails"}
_WITH_VERB |= {"ng", "nx"}
_KNOWN_PROGRAMS = re.compile(
    r"jest|vitest|mocha|ava|tap|karma|jasmine|playwright|cypress|eslint|biome|oxlint|tsc|vue-tsc|pytest|unittest|tox|nox"
    r"|ruff|mypy|pyright|flake8|pylint|rspec|rake|phpunit|pest|ctest|wdio|tsd|xo|standard|turbo|nx|lerna|make|rubocop"
)
_OPTION = re.compile(
    r"--(?:ignore|ignore-glob|deselect|testPathIgnorePatterns|exclude|testNamePattern|testPathPattern|passWithNoTests"
    r"|suppress-no-test-exit-code|collect-only|co|no-verify|skip|grep)|-[kmt]"
)
_WITHOUT_VALUE = re.compile(r"--(?:passWithNoTests|suppress|collect-only|co\b|no-verify)")
_BENIGN = {"node_modules", "dist", "build", "out", "target", "coverage", "venv", "env", "git", "tox", "nox"}
_BENIGN |= {"next", "nuxt", "pycache", "eggs", "egg", "cache", "vendor", "lib", "bower_components", "rootdir"}
_BENIGN |= {"cypress", "idea", "svn", "hg"}


def find_weakened_scripts(old: Mapping[str, str], new: Mapping[str, str], ran: set[str]) -> list[str]:
    """The scripts that do less than before. `ran` has all programs that still run, also from other scripts."""
    found = []
    for name, before in old.items():
        had = list_programs(before)
        if name not in new:
            found += [f"{name} is gone: it ran {shorten(before)}"] if had - ran else []
        elif why := _describe_weakening(before, new[name], had):
            found.append(f"{name} {why}")
    return found


def _describe_weakening(before: str, after: str, had: set[str]) -> str | None:
    if len(_SWALLOWED.findall(_blank_strings(after))) > len(_SWALLOWED.findall(_blank_strings(before))):
        return f"lets failures pass: {shorten(after)}"
    has = list_programs(after)
    gone = had - has
    if gone and len(gone) > sum(1 for program in has - had if _KNOWN_PROGRAMS.match(program)):
        return f"no longer runs {shorten(', '.join(sorted(gone)))}: {shorten(after)}"
    known = list_options(before)
    added = [shown for key, shown in list_options(after).items() if key not in known]
    return f"adds {shorten(added[0])}" if added else None


def list_programs(command: str) -> set[str]:
    """The programs that a command line runs, without those that check nothing."""
    found = set()
    for part in re.split(r"&&|\|\||[;|&\n]", _blank_strings(command))[:500]:
        words = [word for word in part.strip().lstrip("@-+ ").split() if not re.match(r"\w+=", word)]
        while len(words) > 1 and (words[0] in _WRAPPERS or words[0].startswith("-")):
            words = words[1:]
        name = words[0].strip("'").rpartition("/")[2] if words else ""
        if name and name not in _NO_PROGRAMS and not name.startswith("#"):
            verb = next((word for word in words[1:] if not word.startswith("-")), "") if words[0] in _WITH_VERB else ""
            found.add(f"{name} {verb}".strip())
    return found


_QUOTED = re.compile(r"(?<!-c )(?:\"[^\"\n]*\"|'[^'\n]*')")  # after -c it is another command line
_UNQUOTED = re.compile(r"[^\w./:@-]")


def _blank_strings(command: str) -> str:
    """Text in quotes is not an operator: `jest --testPathPattern 'a|b'`."""
    return _QUOTED.sub(lambda found: f"'{_UNQUOTED.sub('_', found[0][1:-1])}'", command)


def list_options(command: str) -> dict[str, str]:
    """The options of a command line that leave tests out."""
    try:
        words = shlex.split(command[:20_000])
    except ValueError:
        words = command[:20_000].split()
    found = {}
    for word, following in zip(words, [*words, ""][1:], strict=True):
        name, equals, value = word.partition("=")
        if not _OPTION.fullmatch(name) or (name == "-t" and "pytest" not in command):
            continue
        value = value if equals else "" if _WITHOUT_VALUE.match(name) else following
        module = name == "-m" and re.fullmatch(r"[\w.]+", value)
        if not (module and f"python -m {value}" in command.replace("python3", "python")) and not is_benign(value):
            found[f"{name} {value}"] = f"{name} {value}".strip()
    return found


def is_benign(value: str) -> bool:
    """Whether it names only folders that never contain the project's own tests."""
    words = re.findall(r"\w+", value.lower())
    return bool(words) and all(word.strip("_") in _BENIGN for word in words)
