"""How each language writes its tests: one module for each, loaded when a file of that language is read."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphtool.judging.guard.tree_reader import TreeLanguage

_MODULES = {
    **dict.fromkeys(("js", "jsx", "mjs", "cjs", "ts", "mts", "cts", "tsx"), "javascript"),
    "go": "go",
    "rs": "rust",
    "java": "java",
    **dict.fromkeys(("kt", "kts"), "kotlin"),
    "rb": "ruby",
    "php": "php",
}


def load_language(path: str) -> TreeLanguage | None:
    """None if there is no grammar for it."""
    name = _MODULES.get(path.rpartition(".")[2].lower())
    if name is None:
        return None
    language: TreeLanguage = importlib.import_module(f"ralphtool.judging.guard.languages.{name}").LANGUAGE
    return language
