"""The names that programs may import: docs/api.md lists what each of these modules exports, and nothing else."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROWS = re.findall(r"^\| `(ralphtool\.[\w.]+)` \| (.+?) \|", (ROOT / "docs/api.md").read_text(), re.MULTILINE)
PUBLIC = (
    *("loop.run", "record.lines", "record.events", "settings", "history", "history.records", "memory"),
    *("specs", "specs.boxed", "specs.markdown", "specs.scaffold"),
    *("agents", "agents.program", "agents.json_lines", "agents.failures", "testing", "errors"),
)


def test_the_page_lists_the_public_modules() -> None:
    assert [module for module, _ in ROWS] == [f"ralphtool.{name}" for name in PUBLIC]


@pytest.mark.parametrize(("module", "names"), ROWS)
def test_the_page_lists_what_a_module_exports(module: str, names: str) -> None:
    found = importlib.import_module(module)
    assert re.findall(r"`(\w+)`", names) == sorted(found.__all__)
    assert [name for name in found.__all__ if not hasattr(found, name)] == []


def test_the_package_itself_is_empty_but_for_its_version() -> None:
    tree = ast.parse((ROOT / "src/ralphtool/__init__.py").read_text())
    assert [ast.unparse(node).partition(" ")[0] for node in tree.body[1:]] == ["__version__"]
