"""Builds: the contents of wheel and source distribution, the command, and the commit that `--version` prints.

No network is needed: hatchling is a development dependency, and the dependencies of ralphtool come from the
environment of the tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import click
import pytest
from patience import PATIENCE
from project import REPOSITORY

from ralphtool import __version__
from ralphtool.cli.version import read_commit

PARTS = ("src", "bin", "pyproject.toml", "hatch_build.py", "README.md", "CHANGELOG.md", "LICENSE", ".gitignore")
INFO = f"ralphtool-{__version__}.dist-info"
SCRIPT = f"ralphtool-{__version__}.data/scripts/ralphtool"
COMMIT = "ralphtool/commit.txt"


def call(*command: str | Path, cwd: Path, **env: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=os.environ | env, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Tester", "-c", "user.email=tester@example.org")
    return call("git", *identity, *arguments, cwd=folder).strip()


def commit_all(folder: Path) -> str:
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "All of it")
    return git(folder, "rev-parse", "HEAD")


def copy_source(folder: Path) -> Path:
    """The files of a checkout, without git. It has caches, like any checkout that was used."""
    folder.mkdir(parents=True)
    for name in PARTS:
        one = REPOSITORY / name
        if one.is_dir():
            shutil.copytree(one, folder / name, ignore=shutil.ignore_patterns("__pycache__", "commit.txt"))
        else:
            shutil.copy2(one, folder / name)
    for name in ("src/ralphtool/__pycache__/x.cpython-311.pyc", "tests/test_one.py", "tests/__pycache__/one.pyc"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")
    return folder


def build(source: Path, kind: str) -> Path:
    target = source.parent / f"{source.name}-{kind}"
    call(sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", target, cwd=source)
    [built] = target.iterdir()
    return built


def read_wheel(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def files_of(package: Path) -> set[str]:
    names = {path.relative_to(package.parent).as_posix() for path in package.rglob("*") if path.is_file()}
    return {name for name in names if "__pycache__" not in name}


def test_a_wheel_has_the_package_the_command_the_licence_and_nothing_else(tmp_path: Path) -> None:
    source = copy_source(tmp_path / "source")
    commit = commit_all(source)
    found = read_wheel(build(source, "wheel"))
    about = {f"{INFO}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "licenses/LICENSE")}
    assert set(found) == files_of(source / "src/ralphtool") | about | {COMMIT, SCRIPT}
    assert {"ralphtool/py.typed", "ralphtool/views/web/page.html", "ralphtool/loop/prompts/task.md"} <= set(found)
    assert found[COMMIT].decode() == f"{commit}\n"
    assert found[SCRIPT].startswith(b"#!python\n"), "installers put their Python there"
    metadata = Parser().parsestr(found[f"{INFO}/METADATA"].decode())
    assert (metadata["Version"], metadata["License-Expression"]) == (__version__, "MIT")
    assert metadata["Requires-Python"] == ">=3.11"
    assert git(source, "status", "--short") == "", "a build leaves nothing in the checkout"


def test_a_source_distribution_builds_the_same_wheel(tmp_path: Path) -> None:
    source = copy_source(tmp_path / "source")
    commit_all(source)
    call("tar", "-xzf", build(source, "sdist"), cwd=tmp_path)
    unpacked = tmp_path / f"ralphtool-{__version__}"
    assert not [path for path in unpacked.rglob("*") if path.suffix == ".pyc"]
    ours, theirs = read_wheel(build(source, "wheel")), read_wheel(build(unpacked, "wheel"))
    listed = [sorted(wheel.pop(f"{INFO}/RECORD").splitlines()) for wheel in (ours, theirs)]
    assert (theirs, listed[1]) == (ours, listed[0])


def test_without_git_there_is_no_commit(tmp_path: Path) -> None:
    """A copy inside another project's repository does not report that project's commit either."""
    source = copy_source(tmp_path / "theirs/source")
    commit_all(tmp_path / "theirs")
    assert COMMIT not in read_wheel(build(source, "wheel"))
    assert read_commit(str(source / "src/ralphtool")) == ""


def test_a_checkout_tells_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = copy_source(tmp_path / "source")
    commit = commit_all(source)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "another"))  # as in a hook
    assert read_commit(str(source / "src/ralphtool")) == commit
    (source / "src/ralphtool/commit.txt").write_text("abc1234def\n")
    assert read_commit(str(source / "src/ralphtool")) == "abc1234def"


def install(wheel: Path, folder: Path) -> Path:
    """Creates an environment with the wheel; its dependencies are found where the tests find them."""
    venv.create(folder, symlinks=True)
    [packages] = folder.glob("lib/python3*/site-packages")
    (packages / "needed.pth").write_text(str(Path(click.__file__).parent.parent))
    python = folder / "bin/python"
    call(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", wheel, cwd=folder)
    return folder / "bin/ralphtool"


def test_the_command_where_the_path_has_a_blank(tmp_path: Path) -> None:
    """pip writes a first line that no system can execute; agents get a working one, and doctor repairs pip's."""
    source = copy_source(tmp_path / "source")
    wanted = f"ralphtool {__version__} ({commit_all(source)[:7]})\n"
    command = install(build(source, "wheel"), tmp_path / "my 'env' $HOME ü")
    python = command.with_name("python")
    told = call(python, "-c", ASK_PATH, tmp_path, cwd=tmp_path, PATH=f"{command.parent}:{os.environ['PATH']}")
    of_agents = shutil.which("ralphtool", path=told.strip())
    assert of_agents
    assert Path(of_agents).parent == tmp_path / "bin"
    assert call(of_agents, "--version", cwd=tmp_path) == wanted
    with pytest.raises(FileNotFoundError):
        call(command, "--version", cwd=tmp_path)
    subprocess.run([python, "-m", "ralphtool", "doctor", "--fix"], cwd=tmp_path, capture_output=True, check=False)
    assert call(command, "--version", cwd=tmp_path) == wanted


ASK_PATH = "import sys; from ralphtool.executors.environment import build_path; print(build_path(sys.argv[1]))"
