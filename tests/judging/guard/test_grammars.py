"""Grammars are loaded when a file of their language changed, and a large diff is read in time."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time

import pytest
from judging.guard.samples import FILES, edit, kinds

from ralphtool.judging.guard import diff
from ralphtool.judging.guard.model import FileChange

_SCRIPT = """
import sys
from ralphtool.judging.guard.diff import inspect_changes
from ralphtool.judging.guard.model import FileChange
from ralphtool.judging.roles import find_role
for path in sys.argv[1:]:
    find_role(path)
inspect_changes([FileChange(path, b"a", b"b") for path in sys.argv[1:]])
print(*sorted(name for name in sys.modules if name.startswith("tree_sitter") and "." not in name))
"""
LOADED = [
    (["test_a.py", "src/a.ts", "README.md", "Makefile", "package.json", "CartTests.cs", "tests/a.cc"], ""),
    (["src/a.test.ts"], "tree_sitter tree_sitter_typescript"),
    (["src/a.test.jsx", "jest.config.js"], "tree_sitter tree_sitter_javascript"),
    (["a_test.go", "spec/a_spec.rb"], "tree_sitter tree_sitter_go tree_sitter_ruby"),
    (["src/lib.rs"], "tree_sitter tree_sitter_rust"),
    (["src/test/ATest.kt"], "tree_sitter tree_sitter_kotlin"),
    (["src/test/ATest.java", "tests/ATest.php"], "tree_sitter tree_sitter_java tree_sitter_php"),
]


@pytest.mark.parametrize(("paths", "modules"), LOADED, ids=lambda value: str(value))
def test_only_the_grammars_of_changed_files_are_loaded(paths: list[str], modules: str) -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT, *paths], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == modules


def test_a_diff_of_300_files_in_six_languages_is_read_in_time() -> None:
    changes = list(_build_changes(50, ("python", "js", "go", "rust", "java", "ruby")))
    assert len(changes) == 300
    started = time.process_time()
    assert diff.inspect_changes(changes) == []
    assert time.process_time() - started < 4.5  # 1.5 s on an idle machine


def _build_changes(count: int, languages: tuple[str, ...]) -> list[FileChange]:
    found = []
    for language in languages:
        path, text = FILES[language]
        for number in range(count):
            old = textwrap.dedent(text) * 4
            name = f"{path.rpartition('/')[0]}/n{number}/{path.rpartition('/')[2]}"
            found.append(edit(name, old, old.replace("3", "4", 1)))
    return found


@pytest.mark.parametrize("language", ["js", "go", "rust", "java", "kotlin", "ruby", "php"])
def test_a_file_that_is_broken_is_still_compared(language: str) -> None:
    path, text = FILES[language]
    broken = text.rstrip()[:-1]
    assert diff.inspect_changes([edit(path, text, broken)]) == []
    assert kinds(edit(path, text, "}}}} ((((")) != []
