"""Configuration that follows moved files, and configuration that does more."""

from __future__ import annotations

import pytest

from ralphtool.judging.guard.model import FileChange
from ralphtool.judging.moves import only_follows_moves

MOVED = FileChange("src/shop/cart.py", b"a", b"a", "shop/cart.py")
OLD = '[tool.pytest.ini_options]\npythonpath = ["."]\ntestpaths = ["tests"]\n'


def follows(new: str, *changes: FileChange) -> bool:
    return only_follows_moves(FileChange("pyproject.toml", OLD.encode(), new.encode()), changes)


def test_the_folder_that_files_were_moved_to_may_be_named() -> None:
    assert follows(OLD.replace('"."', '"src"'), MOVED)
    assert follows(OLD + '[tool.setuptools.packages.find]\nwhere = ["src"]\n', MOVED)


@pytest.mark.parametrize(
    "new",
    [
        pytest.param(OLD.replace('"."', '"fakes"'), id="a folder that nothing was moved to"),
        pytest.param(OLD + 'addopts = "-p src"\n', id="an option"),
        pytest.param(OLD.replace('testpaths = ["tests"]\n', ""), id="a setting that is gone"),
        pytest.param(OLD + 'python_functions = "cart"\n', id="a key of the test program"),
    ],
)
def test_nothing_else_follows(new: str) -> None:
    assert not follows(new, MOVED)


def test_without_a_moved_file_there_is_nothing_to_follow() -> None:
    assert not follows(OLD.replace('"."', '"src"'), FileChange("src/shop/cart.py", None, b"a"))
