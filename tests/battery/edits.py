"""The edits of an attempt: made by the agent in the loop, and by hand to verify a case."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Edit = Mapping[str, str]


class WrongEdit(Exception):
    """An edit that does not fit its project."""


def apply_edits(
    root: Path, edits: Sequence[Edit], env: Mapping[str, str] | None = None, timeout: float | None = None
) -> None:
    """Makes every edit, in order. Those already made are left as they are.

    The agent of a case runs in a box, which may show nothing of the tests but this folder: no other imports.
    """
    for edit in edits:
        name = next(iter(edit))
        if name not in EDITS:
            raise WrongEdit(f"no edit is called {name}")
        if name == "run":
            command = ["sh", "-c", edit["run"]]
            subprocess.run(command, cwd=root, env=env, check=True, capture_output=True, timeout=timeout)
        else:
            EDITS[name](find_inside(root, edit[name]), edit)


def find_inside(root: Path, name: str) -> Path:
    """A path inside the project, never outside through a link: all cases share the packages."""
    path = root / name
    if not path.parent.resolve().is_relative_to(root.resolve()):
        raise WrongEdit(f"{name} is outside of the project")
    return path


def write(path: Path, edit: Edit) -> None:
    if path.is_symlink():
        path.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(edit["text"])
    if edit["text"].startswith("#!"):
        path.chmod(0o755)


def append(path: Path, edit: Edit) -> None:
    text = path.read_text()
    if not text.endswith(edit["text"]):
        path.write_text(text + edit["text"])


def replace(path: Path, edit: Edit) -> None:
    text = path.read_text()
    if edit["old"] in text:
        path.write_text(text.replace(edit["old"], edit["new"]))
    elif edit["new"] not in text:
        raise WrongEdit(f"{path.name} has no {edit['old']!r}")


def delete(path: Path, edit: Edit) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def move(path: Path, edit: Edit) -> None:
    target = find_inside(path.parents[len(Path(edit["move"]).parts) - 1], edit["to"])
    target.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(path):
        path.rename(target)


def run(path: Path, edit: Edit) -> None:
    raise WrongEdit("commands are run by apply_edits")


EDITS: dict[str, Callable[[Path, Edit], None]] = {
    "write": write,
    "append": append,
    "replace": replace,
    "delete": delete,
    "move": move,
    "run": run,
}
