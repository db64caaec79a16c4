"""The command that installs the packages of an extra, in each kind of environment."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tomllib
import venv
from importlib import metadata
from pathlib import Path

import pytest
from patience import PATIENCE
from project import REPOSITORY

from ralphtool.core import install_hint
from ralphtool.core.install_hint import build_install_command, build_installer, build_package_command, list_packages

EXTRAS: dict[str, list[str]] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]


@pytest.mark.parametrize("extra", EXTRAS)
def test_it_names_this_python_and_the_packages_of_the_extra(extra: str) -> None:
    assert shlex.split(build_install_command(extra)) == [sys.executable, "-m", "pip", "install", *EXTRAS[extra]]


def test_a_package_that_no_extra_has() -> None:
    assert build_package_command("x y") == f"{shlex.quote(sys.executable)} -m pip install 'x y'"


def test_without_metadata_it_knows_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", requires)
    for extra, [package] in EXTRAS.items():
        assert list_packages(extra) == [package.partition(">")[0]]
    assert set(EXTRAS) == set(install_hint._PACKAGES)


@pytest.mark.parametrize("quoted", ["extra == 'web'", 'extra == "web"'])
def test_both_quotes_of_a_marker(monkeypatch: pytest.MonkeyPatch, quoted: str) -> None:
    monkeypatch.setattr(metadata, "requires", lambda name: ["click>=8", f"uvicorn>=7 ; {quoted}", "x; extra == 'webs'"])
    assert list_packages("web") == ["uvicorn>=7"]


def test_an_environment_of_pipx_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place = tmp_path / "ralphtool-next"
    place.mkdir()
    (place / "pipx_metadata.json").touch()
    monkeypatch.setattr(sys, "prefix", str(place))
    assert build_install_command("web") == f"pipx inject ralphtool-next '{EXTRAS['web'][0]}'"


def test_an_environment_without_pip_is_one_of_uv(tmp_path: Path) -> None:
    """A real one, on a path that a shell must have quoted."""
    place = tmp_path / "my env"
    venv.create(place, with_pip=False, symlinks=True)
    program = f"import sys; sys.path.insert(0, {str(REPOSITORY / 'src')!r})\n"
    program += "from ralphtool.core.install_hint import *; print(build_install_command('web'))"
    done = subprocess.run(
        [place / "bin/python", "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert done.stdout == f"uv pip install --python '{place / 'bin/python'}' uvicorn\n"


def test_the_installer_of_this_environment_starts() -> None:
    done = subprocess.run([*build_installer(), "--help"], capture_output=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0


def test_no_text_names_an_extra_of_a_package_that_no_index_has() -> None:
    texts = [path for folder in ("src", "docs") for path in (REPOSITORY / folder).rglob("*.[pm][yd]")]
    named = [path.name for path in [*texts, REPOSITORY / "README.md"] if "ralphtool[" in path.read_text()]
    assert sorted(named) == ["install.md", "install_hint.py"]  # both say that it does not work
