"""The diff guard on the configuration of tests: a change that leaves tests out is reported."""

from __future__ import annotations

import pytest
from judging.guard.samples import altered, edit

from ralphtool.judging.guard import diff

PACKAGE = (
    '{"scripts": {"test": "eslint . && jest --ci", "lint": "eslint .", "start": "node ."}, "jest": {"bail": false}}'
)
MAKEFILE = "PY = python\n\n.PHONY: test\ntest: lint\n\t@$(PY) -m pytest -q\n\nlint:\n\truff check .\n\nrun:\n\t./run\n"
PYPROJECT = """\
    [project]
    name = "shop"

    [tool.pytest.ini_options]
    testpaths = ["tests"]
    addopts = "-q --strict-markers"

    [tool.coverage.report]
    fail_under = 90
"""
INI = "[pytest]\naddopts = -q\nnorecursedirs = .git\n"
JEST = """\
    module.exports = {
      // testPathIgnorePatterns: ['old']
      testEnvironment: 'node',
      testPathIgnorePatterns: ['/node_modules/'],
      coverageThreshold: { global: { branches: 80, lines: 90 } },
    }
"""
VITEST = """\
    export default defineConfig({
      test: {
        globals: true,
        coverage: { exclude: ['scripts/**'], thresholds: { lines: 90 } },
      },
    })
"""
CONFIG_CHEATS = [
    ("conftest.py", "", 'collect_ignore = ["test_login.py"]\n'),
    ("conftest.py", 'collect_ignore = ["setup.py"]\n', 'collect_ignore = ["setup.py", "test_login.py"]\n'),
    ("tests/conftest.py", None, 'collect_ignore_glob = ["*_slow.py"]\n'),
    (
        "tests/conftest.py",
        "import pytest\n",
        "import pytest\n\ndef pytest_collection_modifyitems(items):\n    items[:] = []\n",
    ),
    ("tests/conftest.py", "", "def pytest_ignore_collect(path):\n    return True\n"),
    ("tests/conftest.py", "", "def pytest_sessionfinish(session):\n    session.exitstatus = 0\n"),
    ("pytest.ini", INI, INI.replace("-q", "-q --ignore=tests/test_login.py")),
    ("pytest.ini", INI, INI.replace("-q", "-q --ignore tests/test_login.py")),
    ("pytest.ini", INI, INI.replace("-q", "-q --deselect tests/test_a.py::test_b")),
    ("pytest.ini", INI, INI.replace("-q", "-q -k 'not login'")),
    ("pytest.ini", INI, INI.replace("-q", '-q -m "not slow"')),
    ("pytest.ini", INI, INI.replace(".git", ".git tests/login")),
    ("pytest.ini", None, "[pytest]\naddopts = --ignore=tests/test_login.py\n"),
    ("setup.cfg", "[metadata]\nname = a\n", "[metadata]\nname = a\n[tool:pytest]\naddopts = --ignore=tests/login\n"),
    ("tox.ini", "[testenv]\ncommands = pytest -q\n", "[testenv]\ncommands = true\n"),
    ("tox.ini", "[pytest]\naddopts =\n", "[pytest]\naddopts = --deselect=tests/a.py\n"),
    ("pyproject.toml", PYPROJECT, altered("-q --strict", "-q --ignore=tests/e2e --strict", PYPROJECT)),
    ("pyproject.toml", PYPROJECT, altered('["tests"]', '["tests/unit"]', PYPROJECT)),
    ("pyproject.toml", PYPROJECT, altered("fail_under = 90", "fail_under = 50", PYPROJECT)),
    ("pyproject.toml", PYPROJECT, altered("    fail_under = 90\n", "", PYPROJECT)),
    ("package.json", PACKAGE, altered("eslint . && jest --ci", "true", PACKAGE)),
    ("package.json", PACKAGE, altered("eslint . && jest --ci", "exit 0", PACKAGE)),
    ("package.json", PACKAGE, altered("eslint . && jest --ci", "echo ok", PACKAGE)),
    ("package.json", PACKAGE, altered("jest --ci", "jest --ci || true", PACKAGE)),
    ("package.json", PACKAGE, altered("jest --ci", "sh -c 'jest --ci || true'", PACKAGE)),
    ("package.json", PACKAGE, altered(" && jest --ci", "", PACKAGE)),
    ("package.json", PACKAGE, altered("jest --ci", "jest --passWithNoTests", PACKAGE)),
    ("package.json", PACKAGE, altered("jest --ci", "jest --testPathIgnorePatterns=login", PACKAGE)),
    ("package.json", PACKAGE, altered("jest --ci", "node scripts/ok.js", PACKAGE)),
    ("package.json", PACKAGE, altered('"test": "eslint . && jest --ci", ', "", PACKAGE)),
    ("package.json", PACKAGE, altered('"bail": false', '"testPathIgnorePatterns": ["login"]', PACKAGE)),
    ("jest.config.js", JEST, altered("['/node_modules/']", "['/node_modules/', 'login']", JEST)),
    ("jest.config.js", JEST, altered("testEnvironment: 'node',", "passWithNoTests: true,", JEST)),
    ("jest.config.js", JEST, altered("branches: 80", "branches: 10", JEST)),
    ("jest.config.js", JEST, altered("coverageThreshold: { global: { branches: 80, lines: 90 } },", "", JEST)),
    (
        "vitest.config.ts",
        VITEST,
        altered("globals: true,", "globals: true,\n        exclude: ['src/login/**'],", VITEST),
    ),
    ("vite.config.ts", VITEST, altered("globals: true,", "exclude: ['src/login/**'],", VITEST)),
    ("Makefile", MAKEFILE, altered("pytest -q", "pytest -q || true", MAKEFILE)),
    ("Makefile", MAKEFILE, altered("\t@$(PY) -m pytest -q\n", "", MAKEFILE)),
    ("Makefile", MAKEFILE, altered("@$(PY) -m pytest -q", "@echo ok", MAKEFILE)),
    ("Makefile", MAKEFILE, altered("\t@$(PY)", "\t-@$(PY)", MAKEFILE)),
    ("Makefile", MAKEFILE, altered("pytest -q", "pytest -q --ignore=tests/login", MAKEFILE)),
    ("Makefile", MAKEFILE, altered("test: lint", "test:", MAKEFILE)),
    ("Makefile", MAKEFILE, None),
]
CONFIG_HONEST = [
    # Only coverage, early stopping, or scripts for development.
    ("package.json", PACKAGE, altered('"bail": false', '"bail": 1', PACKAGE)),
    ("package.json", PACKAGE, altered("jest --ci", "jest --ci --bail", PACKAGE)),
    ("package.json", PACKAGE, altered("jest --ci", "c8 jest --ci", PACKAGE)),
    ("package.json", altered("jest --ci", "nyc --reporter=text jest --ci", PACKAGE), PACKAGE),
    (
        "package.json",
        altered('"lint"', '"test:watch": "jest --watch", "coverage": "jest --coverage", "lint"', PACKAGE),
        PACKAGE,
    ),
    (
        "package.json",
        altered('"lint"', '"test:watch": "jest --watch", "lint"', PACKAGE),
        altered('"lint"', '"test:watch": "jest --watch -t cart", "lint"', PACKAGE),
    ),
    ("pytest.ini", INI, INI.replace("-q", "-q --cov=shop --cov-report=xml -x --maxfail=2")),
    ("pytest.ini", INI.replace("-q", "-q --cov=shop"), INI),
    ("pyproject.toml", PYPROJECT, altered("fail_under = 90", 'fail_under = 90\n    omit = ["shop/old.py"]', PYPROJECT)),
    ("jest.config.js", JEST, altered("testEnvironment: 'node',", "bail: 1, coveragePathIgnorePatterns: ['x'],", JEST)),
    ("vitest.config.ts", VITEST, altered("globals: true,", "globals: true, bail: 3,", VITEST)),
    # Operators in quotes don't count.
    ("package.json", PACKAGE, altered("jest --ci", "jest --ci --reporters='a|b;true' --color", PACKAGE)),
    ("package.json", PACKAGE, altered("eslint .", 'eslint \\"src/**/*.{ts,tsx}\\" \\"a && b\\"', PACKAGE)),
    (
        "package.json",
        altered("jest --ci", "jest --ci --name 'one | two'", PACKAGE),
        altered("jest --ci", "jest --ci --name 'one | three || true'", PACKAGE),
    ),
    ("Makefile", MAKEFILE, altered("pytest -q", "pytest -q -W 'ignore::A|B'", MAKEFILE)),
    ("conftest.py", "", "import pytest\n\n@pytest.fixture\ndef shop():\n    return 1\n"),
    ("conftest.py", "", "# collect_ignore = ['x']\nNOTE = 'pytest_collection_modifyitems'\n"),
    ("conftest.py", 'collect_ignore = ["test_a.py"]\n', ""),
    ("pytest.ini", INI, INI.replace("-q", "-q -ra --strict-config -x")),
    ("pytest.ini", INI, INI.replace("-q", "-q --ignore=node_modules --ignore build/")),
    ("pytest.ini", INI, INI.replace(".git", ".git node_modules .venv")),
    ("setup.cfg", "[metadata]\nname = a\n", "[metadata]\nname = b\n"),
    ("tox.ini", "[testenv]\ncommands = pytest -q\n", "[testenv]\ncommands = python -m pytest -q {posargs}\n"),
    ("pyproject.toml", PYPROJECT, altered('"shop"', '"cart"', PYPROJECT)),
    ("pyproject.toml", PYPROJECT, altered("fail_under = 90", "fail_under = 95", PYPROJECT)),
    ("pyproject.toml", PYPROJECT, altered('["tests"]', '["tests", "e2e"]', PYPROJECT)),
    ("pyproject.toml", PYPROJECT, altered('["tests"]', '["test"]', PYPROJECT)),
    ("pyproject.toml", PYPROJECT, PYPROJECT + '    [tool.ruff]\n    exclude = ["a"]\n'),
    ("pyproject.toml", "[project]\n", PYPROJECT),
    ("pyproject.toml", PYPROJECT, "[[[ not toml"),
    ("package.json", PACKAGE, altered("node .", "node ./server", PACKAGE)),
    ("package.json", PACKAGE, altered("jest --ci", "jest --ci --coverage", PACKAGE)),
    ("package.json", PACKAGE, altered("jest --ci", "vitest run", PACKAGE)),
    ("package.json", PACKAGE, altered("eslint . && jest --ci", "eslint . && tsc --noEmit && jest", PACKAGE)),
    (
        "package.json",
        PACKAGE,
        altered('"eslint . && jest --ci"', '"npm run lint && npm run unit", "unit": "npx jest"', PACKAGE),
    ),
    ("package.json", '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}', PACKAGE),
    ("package.json", None, PACKAGE),
    ("jest.config.js", JEST, altered("lines: 90", "lines: 95", JEST)),
    ("jest.config.js", None, JEST),
    ("jest.config.js", JEST, JEST.replace("'", '"')),
    ("vitest.config.ts", VITEST, altered("'scripts/**'", "'scripts/**', 'docs/**'", VITEST)),
    (
        "vite.config.ts",
        VITEST,
        altered("defineConfig({", "defineConfig({\n      optimizeDeps: { exclude: ['a'] },", VITEST),
    ),
    ("Makefile", MAKEFILE, altered("pytest -q", "pytest -q -n auto", MAKEFILE)),
    ("Makefile", MAKEFILE, altered("./run", "./run || true", MAKEFILE)),
    ("Makefile", MAKEFILE, altered("test: lint", "test: lint types", MAKEFILE) + "\ntypes:\n\tmypy .\n"),
]


@pytest.mark.parametrize(
    "case", CONFIG_CHEATS, ids=lambda case: f"{case[0]}: {' '.join((case[2] or 'gone').split())[-60:]}"
)
def test_configuration_that_leaves_tests_out_is_named(case: tuple[str, str | None, str | None]) -> None:
    path, old, new = case
    assert {(found.kind, found.path) for found in diff.inspect_changes([edit(path, old, new)])} == {
        ("test-config", path)
    }


@pytest.mark.parametrize(
    "case", CONFIG_HONEST, ids=lambda case: f"{case[0]}: {' '.join((case[2] or 'gone').split())[-60:]}"
)
def test_honest_configuration_is_silent(case: tuple[str, str | None, str | None]) -> None:
    assert diff.inspect_changes([edit(*case)]) == []


def test_settings_may_move_from_one_file_to_another() -> None:
    old = "[pytest]\naddopts = --ignore=tests/data\n"
    new = '[tool.pytest.ini_options]\naddopts = "--ignore=tests/data"\n'
    assert diff.inspect_changes([edit("pytest.ini", old, None), edit("pyproject.toml", "", new)]) == []
