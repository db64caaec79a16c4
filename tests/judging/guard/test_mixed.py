"""Files that configure tests among other things: the test part stays old, the rest is new."""

from __future__ import annotations

import json
import tomllib

import pytest

from ralphtool.judging.guard.mixed import is_neutral, merge_config


def merge(old: str, new: str, path: str) -> str:
    return merge_config(old.encode(), new.encode(), path).decode()


def test_scripts_and_sections_of_a_package_are_as_they_were() -> None:
    old = {
        "name": "a",
        "scripts": {"test": "jest", "lint": "eslint ."},
        "jest": {"bail": 0},
        "dependencies": {"a": "1"},
    }
    new = {
        "name": "b",
        "scripts": {"test": "true", "pretest": "rm -r test", "build": "tsc"},
        "jest": {"testMatch": []},
        "mocha": {"grep": "x"},
        "dependencies": {"a": "2"},
    }
    merged = merge(json.dumps(old), json.dumps(new, indent=2) + "\n", "web/package.json")
    assert json.loads(merged) == {
        "name": "b",
        "scripts": {"test": "jest", "lint": "eslint .", "build": "tsc"},
        "jest": {"bail": 0},
        "dependencies": {"a": "2"},
    }
    assert merged.startswith('{\n  "name"')
    assert merged.endswith("}\n")


PYPROJECT = '''\
# top
[project]
name = "shop" # here
dependencies = [
    "a",
]
description = """
[tool.pytest.ini_options]
"""

[tool.pytest.ini_options]
addopts = "-q"
matrix = [
    ["x"],
    ["y"]
]

[tool.ruff]
line-length = 100
'''


def test_names_that_tests_import_lead_to_where_they_led() -> None:
    old, new = b'{"imports": {"#cart": "./src/cart.js"}}', b'{"imports": {"#cart": "./copy.js", "#new": "./new.js"}}'
    merged = merge_config(old, new, "package.json")
    assert json.loads(merged) == {"imports": {"#cart": "./src/cart.js", "#new": "./new.js"}}
    assert is_neutral(old, merged, "package.json")


def test_tables_of_tests_are_as_they_were_and_the_rest_is_new_byte_for_byte() -> None:
    new = PYPROJECT.replace('"-q"', '"-q -p cheat"').replace('    "a",\n', '    "a",\n    "b",  # two\n')
    new += "\n[tool.coverage.run]\nomit = ['*']\n"
    merged = merge(PYPROJECT, new, "pyproject.toml")
    rest, tests = merged.split("[tool.pytest.ini_options]\naddopts")
    assert rest == new[: new.index("[tool.pytest.ini_options]\naddopts")] + "[tool.ruff]\nline-length = 100\n\n"
    assert tests.startswith(' = "-q"\n')
    assert "coverage" not in merged
    assert tomllib.loads(merged)["project"]["dependencies"] == ["a", "b"]
    assert merge(PYPROJECT, PYPROJECT, "pyproject.toml").count("line-length") == 1


def test_plugins_that_a_project_registers_are_as_they_were() -> None:
    new = '[project]\nname = "a"\n[project.entry-points.pytest11]\ncheat = "cheat"\n'
    assert merge('[project]\nname = "a"\n', new, "pyproject.toml") == '[project]\nname = "a"\n'


@pytest.mark.parametrize("new", ["[[[ no toml", "tool.pytest.ini_options.addopts = '-p cheat'\n", "\udcff"])
def test_what_can_not_be_taken_apart_is_as_it_was(new: str) -> None:
    assert (
        merge_config(PYPROJECT.encode(), new.encode("utf-8", "surrogateescape"), "pyproject.toml") == PYPROJECT.encode()
    )


def test_sections_of_setup_cfg() -> None:
    old = "[metadata]\nname = a\n[tool:pytest]\naddopts = -q\n"
    new = "[metadata]\nname = b\n[tool:pytest]\naddopts = --ignore=tests\n[flake8]\nmax = 1\n[coverage:run]\nomit = *\n"
    assert merge(old, new, "setup.cfg") == "[metadata]\nname = b\n[flake8]\nmax = 1\n[tool:pytest]\naddopts = -q\n"


TOX = "[testenv]\ncommands = pytest\n"


def test_files_about_nothing_else_are_as_they_were() -> None:
    assert merge(TOX, "[testenv]\ncommands = true\n", "tox.ini") == TOX
    assert merge("a", "b", "pytest.ini") == "a"


def test_targets_and_profiles_of_cargo() -> None:
    old = '[package]\nname = "a"\n\n[lib]\npath = "src/lib.rs"\n\n[[test]]\nname = "it"\n\n[dependencies]\na = "1"\n'
    new = (
        '[package]\nname = "a"\nautotests = false\nversion = "2"\n\n[lib]\npath = "src/lib.rs"\ntest = false\n'
        'doctest = false\n\n[[test]]\nname = "it"\nharness = false\n\n[profile.test]\ndebug-assertions = false\n\n'
        '[dependencies]\na = "2"\n'
    )
    merged = tomllib.loads(merge(old, new, "Cargo.toml"))
    assert merged == {
        "package": {"name": "a", "version": "2"},
        "lib": {"path": "src/lib.rs"},
        "test": [{"name": "it"}],
        "dependencies": {"a": "2"},
    }


def test_keys_of_cargo_that_were_there_come_back() -> None:
    old = '[lib]\nname = "a"\ntest = true\n[[bin]]\nname = "x"\ntest = true\n'
    new = '[lib]\nname = "b"\ntest = false\n[[bin]]\nname = "y"\ntest = false\n[[bin]]\nname = "x"\n'
    merged = tomllib.loads(merge(old, new, "Cargo.toml"))
    assert merged == {"lib": {"name": "b", "test": True}, "bin": [{"name": "y"}, {"name": "x", "test": True}]}
