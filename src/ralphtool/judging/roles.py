"""The role of a file for the tests of a project, by its name and folder alone.

Replay runs the old tests on the new source: the role decides which files it restores.
"""

from __future__ import annotations

import re
from typing import Literal

from ralphtool.judging.guard.test_files import find_language, in_test_folder, is_named_test, is_production_folder

Role = Literal["test", "helper", "snapshot", "fixture", "config", "shadow", "lint", "docs", "source"]
TEST_ROLES: frozenset[Role] = frozenset(("test", "helper", "snapshot", "fixture"))
"""What tests are made of, as opposed to what configures or replaces the program that runs them."""

_SNAPSHOTS = re.compile(
    r".*\.(?:snap|ambr|approved\.\w+|verified\.\w+|golden|snap\.new)|.*[._-]golden(?:\.\w+)?|.*\.golden\.\w+|.*-snapshots?\.\w+",
    re.I,
)
_SNAPSHOT_FOLDERS = {"__snapshots__", "__image_snapshots__", "snapshots", "golden", "goldens", "__file_snapshots__"}
_GOLDEN_FOLDERS = {"__snapshots__", "golden", "goldens"}
_FIXTURE_FOLDERS = {"testdata", "fixtures", "__fixtures__", "cassettes", "test-fixtures", "test_fixtures", "test-data"}
_FIXTURE_FOLDERS |= {"test_data", "testfixtures"}
_HELPER_FOLDERS = {
    "__mocks__",
    "testutil",
    "testutils",
    "test_util",
    "test_utils",
    "test-util",
    "test-utils",
    "testhelpers",
}
_HELPER_FOLDERS |= {"test_helpers", "test-helpers", "testsupport", "test_support", "test-support", "testfixture"}
_HELPER_FOLDERS |= {"step_definitions", "step-definitions", "stepdefinitions", "step_defs"}
# What test programs run, in a language of their own. Their changes can't be read, as those of a fixture.
_INPUTS = re.compile(r".*\.(?:feature|robot|bats|hurl|tavern\.ya?ml)", re.I)
_HELPERS = re.compile(
    r"(?:spec|rails|test|swagger)_helper\.rb|(?:jest|vitest|test|tests)[._-]?(?:setup|env|globals?)[\w.-]*\.[cm]?[jt]sx?"
    r"|setup[._-]?(?:jest|tests?|vitest|files?)[\w.-]*\.[cm]?[jt]sx?|global[._-]?(?:setup|teardown)\.(?:test\.)?[cm]?[jt]s"
    r"|test_?(?:utils?|helpers?|support|case|base)\w*\.\w+|(?:export|helpers?|main)_test\.go|.*[._-]test[._-](?:utils?|helpers?)\.\w+"
    r"|.*[._-](?:mocks?|stubs?|fakes?)\.[cm]?[jt]sx?",
    re.I,
)

_CONFIGS = re.compile(
    r"pytest\.ini|\.pytest\.ini|\.?pytest\.toml|pyproject\.toml|setup\.cfg|setup\.py|tox\.ini|tox\.toml|noxfile\.py|\.coveragerc"
    r"|\.?(?:jest|vitest|vite|mocha|ava|karma|playwright|cypress|wdio|jasmine|nightwatch|c8|nyc|tap|web-test-runner|babel|swc"
    r"|stryker|testem)(?:rc)?(?:[._-](?:config|conf|workspace|projects?|base|unit|e2e|integration|ci|dev))*"
    r"(?:\.(?:[cm]?[jt]s|jsonc?|ya?ml|toml))?"
    r"|\.(?:mocha|nyc|babel|swc|c8|tap)rc(?:\.\w+)?|\.taprc|package\.json|deno\.jsonc?|bunfig\.toml|angular\.json|nx\.json|turbo\.json"
    r"|(?:GNU)?makefile|.*\.mk|\.?justfile|taskfile\.ya?ml|rakefile|cmakelists\.txt|ctestconfig\.cmake|.*\.cmake|meson\.build"
    r"|cargo\.toml|nextest\.toml|build\.rs|go\.mod|go\.work|\.rspec|\.simplecov|gemfile|phpunit\.xml(?:\.dist)?|pest\.php|composer\.json"
    r"|.*\.gradle(?:\.kts)?|gradle\.properties|pom\.xml|testng\.xml|junit-platform\.properties|.*\.runsettings|.*\.(?:cs|fs|vb)proj"
    r"|directory\.build\.(?:props|targets)|xunit\.runner\.json|package\.swift|.*\.xctestplan|mix\.exs|test_helper\.exs|\.formatter\.exs"
    r"|hatch\.toml|pixi\.toml|manage\.py|runtests?\.\w+|run[_-]tests?(?:\.\w+)?|dockerfile|docker-compose[\w.-]*\.ya?ml|\.pre-commit-config\.ya?ml",
    re.I,
)
# Settings with which a program runs only in tests: they may hide what the settings of the product say.
_TEST_SETTINGS = re.compile(
    r"(?:.*/)?(?:(?:config|conf|settings|environments)/(?:[^/]+/)*|(?:application|appsettings|config|settings|bootstrap)[._-])"
    r"test(?:ing)?\.(?:json[5c]?|ya?ml|toml|ini|cfg|conf|properties|env|exs|rb|xml)",
    re.I,
)
_CONFIG_FOLDERS = {".cargo", ".config", ".github", ".circleci", ".mvn"}

_SHADOWS = re.compile(
    r"(?:site|user)customize\.py|.*\.pth|conftest\.py|\.npmrc|\.yarnrc(?:\.yml)?|\.pnpmfile\.cjs|\.env(?:\.\w+)*", re.I
)
# Programs that run tests, and modules that tests are written with: a file of that name in the root takes precedence.
_PROGRAMS = {
    "pytest",
    "_pytest",
    "py",
    "unittest",
    "nose",
    "nose2",
    "tox",
    "nox",
    "coverage",
    "hypothesis",
    "pluggy",
    "mock",
}
_PROGRAMS |= {
    "jest",
    "vitest",
    "mocha",
    "ava",
    "chai",
    "karma",
    "playwright",
    "cypress",
    "node",
    "npm",
    "npx",
    "go",
    "cargo",
}
_PROGRAMS |= {"rspec", "minitest", "phpunit", "make", "doctest", "asyncio", "importlib", "runpy", "python", "python3"}
_PROGRAM_SUFFIXES = ("", ".py", ".pyi", ".so", ".pyd", ".sh", ".bat", ".cmd", ".exe", ".js", ".cjs", ".mjs")
# Folders with these names take precedence over the real packages, or contain the setup of tests.
_PACKAGES = {"pytest", "_pytest", "unittest", "nose", "nose2", "tox", "nox", "coverage", "hypothesis", "pluggy", "mock"}
_PACKAGES |= {"doctest", "asyncio", "importlib", "runpy", "jest", "vitest", "mocha", "karma", "cypress", "playwright"}
_BROUGHT = {"node_modules", ".venv", "venv", "site-packages", ".tox", ".nox", ".yarn"}

_LINTS = re.compile(
    r"\.?eslintrc(?:\.\w+)?|eslint\.config\.\w+|\.eslintignore|tsconfig[\w.-]*\.json|jsconfig\.json|\.?mypy\.ini|\.?ruff\.toml|\.flake8"
    r"|\.?pylintrc|pyrightconfig\.json|\.golangci\.(?:ya?ml|toml|json)|\.?clippy\.toml|\.?rustfmt\.toml|deny\.toml|biome\.jsonc?"
    r"|\.?oxlintrc\.json|\.?prettierrc(?:\.\w+)?|prettier\.config\.\w+|\.prettierignore|\.?stylelintrc(?:\.\w+)?|\.rubocop[\w.]*\.yml"
    r"|phpstan[\w.-]*\.neon(?:\.dist)?|psalm\.xml|\.php-cs-fixer[\w.]*\.php|phpcs\.xml(?:\.dist)?|\.?detekt\.ya?ml|checkstyle\.xml"
    r"|\.editorconfig|\.swiftlint\.yml|\.credo\.exs|\.clang-(?:tidy|format)|\.shellcheckrc|\.yamllint(?:\.ya?ml)?|tslint\.json|pmd\.xml",
    re.I,
)
_DOCS = re.compile(
    r".*\.(?:md|mdx|rst|adoc|asciidoc|txt|pdf|png|jpe?g|gif|svg)|(?:license|copying|authors|notice|changelog|readme)(?:\..*)?",
    re.I,
)


def find_role(path: str) -> Role:
    """Roles that can affect test results most are checked first."""
    *folders, name = path.split("/")
    if _is_shadow(folders, name):
        return "shadow"
    if _is_snapshot(folders, name):
        return "snapshot"
    if _LINTS.fullmatch(name):
        return "lint"
    if _CONFIGS.fullmatch(name) or _CONFIG_FOLDERS & set(folders):
        return "config"
    if (role := _find_test_role(path, folders, name)) is None and _TEST_SETTINGS.fullmatch(path):
        return "config"
    return role or ("docs" if _is_docs(folders, name) else "source")


def _is_shadow(folders: list[str], name: str) -> bool:
    if _SHADOWS.fullmatch(name) or _BROUGHT & set(folders) or folders[:1] == ["vendor"]:
        return True
    if any(one.endswith((".egg-info", ".dist-info")) for one in folders):
        return True  # its entry points are plugins of the test program, if Python finds it
    stem, dot, suffix = name.partition(".")
    if folders:
        # `src/` is where Python looks first in a project that has one; `bin/` is on the path of a project's scripts.
        first = folders[1] if folders[0] in ("src", "bin", "lib") and len(folders) > 1 else folders[0]
        return first in _PACKAGES or (folders == ["bin"] and stem in _PROGRAMS)
    return stem in _PROGRAMS and dot + suffix in _PROGRAM_SUFFIXES


def _is_snapshot(folders: list[str], name: str) -> bool:
    if _SNAPSHOTS.fullmatch(name) or "__snapshots__" in folders:
        return True
    if _GOLDEN_FOLDERS & set(folders) and not find_language(name):
        return True
    return bool(_SNAPSHOT_FOLDERS & set(folders)) and in_test_folder("/".join([*folders, name]))


def _find_test_role(path: str, folders: list[str], name: str) -> Role | None:
    lower = {folder.lower() for folder in folders}
    if is_production_folder(path):
        return None
    if lower & _FIXTURE_FOLDERS or _INPUTS.fullmatch(name):
        return "fixture"
    if lower & _HELPER_FOLDERS or (_HELPERS.fullmatch(name) and find_language(path)):
        return "helper"
    if is_named_test(path):
        return "test"
    if not in_test_folder(path):
        return None
    return _find_role_below_tests(path, name)


def _find_role_below_tests(path: str, name: str) -> Role:
    """Below a folder of tests, a file that no runner picks up by its name is a helper of those that it does."""
    language = find_language(path)
    if not language:
        return "docs" if re.fullmatch(r"readme(?:\..*)?|.*\.mdx?", name, re.I) else "fixture"
    return "helper" if language in ("py", "go", "rb", "exs", "java", "cs", "php") else "test"


def _is_docs(folders: list[str], name: str) -> bool:
    return bool(_DOCS.fullmatch(name)) or bool(folders and folders[0].lower() in ("docs", "doc", "documentation"))
