"""Lint and type checks: a weaker configuration is a warning, a stricter one is not reported."""

from __future__ import annotations

from typing import get_args

import pytest
from judging.guard.samples import edit

from ralphtool.judging.guard import diff
from ralphtool.judging.guard.model import DECISIVE, SUSPICIONS, WARNINGS, FindingKind, GuardFinding

ESLINT = '{"rules": {"no-unused-vars": "error", "eqeqeq": ["error", "always"]}, "ignorePatterns": ["dist"]}\n'
FLAT = "export default [{ ignores: ['dist'] }, { rules: { eqeqeq: 'error' } }]\n"
TSCONFIG = (
    '{\n  // ours\n  "compilerOptions": { "strict": true, "noUnusedLocals": true, },\n'
    '  "exclude": ["node_modules"]\n}\n'
)
MYPY = "[mypy]\nstrict = true\n"
RUFF = '[lint]\nselect = ["E", "F", "S"]\nignore = ["E501"]\n'
PYPROJECT = '[tool.mypy]\nstrict = true\n\n[tool.ruff.lint]\nselect = ["E", "F"]\n'
GOLANGCI = "linters:\n  enable:\n    - govet\n    - errcheck\nissues:\n  exclude-rules:\n    - path: gen/\n"
CARGO = '[package]\nname = "a"\n\n[lints.clippy]\nunwrap_used = "deny"\n'
WEAKER = [
    (".eslintrc.json", ESLINT, ESLINT.replace('"error"', '"off"', 1)),
    (".eslintrc.json", ESLINT, ESLINT.replace('["error", "always"]', '["warn", "always"]')),
    (".eslintrc.json", ESLINT, ESLINT.replace('"dist"', '"dist", "src/cart"')),
    (".eslintrc.json", ESLINT, None),
    ("eslint.config.mjs", FLAT, FLAT.replace("'error'", "0")),
    ("eslint.config.mjs", FLAT, FLAT.replace("'dist'", "'dist', 'src'")),
    ("tsconfig.json", TSCONFIG, TSCONFIG.replace('"strict": true', '"strict": false')),
    ("tsconfig.json", TSCONFIG, TSCONFIG.replace('"strict": true, ', "")),
    ("tsconfig.json", TSCONFIG, TSCONFIG.replace('"noUnusedLocals": true', '"noUnusedLocals": false')),
    ("tsconfig.json", TSCONFIG, TSCONFIG.replace('["node_modules"]', '["node_modules", "src/cart.ts"]')),
    ("mypy.ini", MYPY, "[mypy]\nstrict = false\n"),
    ("mypy.ini", MYPY, f"{MYPY}[mypy-shop.*]\nignore_errors = true\n"),
    ("mypy.ini", MYPY, f"{MYPY}exclude = shop/old\n"),
    ("setup.cfg", MYPY, f"{MYPY}disallow_untyped_defs = false\n"),
    ("ruff.toml", RUFF, RUFF.replace('"E501"', '"E501", "S101"')),
    ("ruff.toml", RUFF, RUFF.replace(', "S"', "")),
    ("ruff.toml", RUFF, f'exclude = ["shop"]\n{RUFF}'),
    ("pyproject.toml", PYPROJECT, f'{PYPROJECT}\n[tool.ruff.lint.per-file-ignores]\n"shop/*.py" = ["F401"]\n'),
    ("pyproject.toml", PYPROJECT, f'{PYPROJECT}\n[[tool.mypy.overrides]]\nmodule = "shop.*"\nignore_errors = true\n'),
    (".golangci.yml", GOLANGCI, f"{GOLANGCI}    - path: shop/\n"),
    (".golangci.yml", GOLANGCI, GOLANGCI.replace("issues:", "  disable:\n    - errcheck\nissues:")),
    ("Cargo.toml", CARGO, CARGO.replace("deny", "allow")),
]
SILENT = [
    (".eslintrc.json", ESLINT, ESLINT.replace('"dist"', "")),
    (".eslintrc.json", ESLINT.replace('"error"', '"off"', 1), ESLINT),
    (".eslintrc.json", None, '{"rules": {"eqeqeq": "off"}}'),
    ("eslint.config.mjs", FLAT, FLAT.replace("eqeqeq: 'error'", "eqeqeq: 'error', curly: 'error'")),
    ("tsconfig.json", TSCONFIG, TSCONFIG.replace("// ours", '// "strict": false')),
    ("tsconfig.json", TSCONFIG, TSCONFIG.replace('"strict": true', '"strict": true, "target": "es2022"')),
    ("mypy.ini", MYPY, f"{MYPY}warn_unreachable = true\n"),
    ("ruff.toml", RUFF, RUFF.replace('"S"', '"S", "B"')),
    ("ruff.toml", RUFF, "not toml ["),
    ("pyproject.toml", PYPROJECT, f'[project]\nname = "a"\n{PYPROJECT}'),
    (".golangci.yml", GOLANGCI, GOLANGCI.replace("    - errcheck", "    - errcheck\n    - gosec")),
    ("Cargo.toml", CARGO, CARGO.replace('"a"', '"b"')),
]


@pytest.mark.parametrize("case", WEAKER, ids=lambda case: f"{case[0]}: {' '.join((case[2] or 'gone').split())[-50:]}")
def test_configuration_that_asks_less_is_a_warning(case: tuple[str, str | None, str | None]) -> None:
    found = diff.inspect_changes([edit(*case)])
    assert {(one.kind, one.path) for one in found} == {("lint-config", case[0])}
    assert all(one.is_warning and not one.is_decisive and not one.is_suspicion for one in found)


@pytest.mark.parametrize("case", SILENT, ids=lambda case: f"{case[0]}: {' '.join((case[2] or 'gone').split())[-50:]}")
def test_configuration_that_asks_no_less_is_silent(case: tuple[str, str | None, str | None]) -> None:
    assert diff.inspect_changes([edit(*case)]) == []


def test_settings_may_move_to_another_file() -> None:
    moved = [
        edit("mypy.ini", "[mypy]\nstrict = true\nexclude = gen\n", None),
        edit("setup.cfg", "", "[mypy]\nexclude = gen\nstrict=true\n"),
    ]
    assert [one for one in diff.inspect_changes(moved) if "gone" not in one.detail] == []


def test_every_kind_is_decisive_a_suspicion_or_a_warning() -> None:
    kinds = sorted([*DECISIVE, *SUSPICIONS, *WARNINGS])
    assert kinds == sorted(get_args(FindingKind))
    assert GuardFinding("spec-edited", "a", "b").is_decisive
    assert GuardFinding("test-skipped", "a", "b").is_suspicion
