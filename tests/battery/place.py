"""The folder of one case: its project, and an environment without network access or the user's home."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from battery.cases import Setup, TruthCase
from patience import PATIENCE
from project import REPOSITORY

TOOLS = REPOSITORY / ".tools/truth"
LONG_AGO = 1_600_000_000  # when the files of the project were written: no real project is a second old


def find_path() -> str:
    """This Python with its pytest, then the programs that scripts/truth installs, then the user's."""
    node = REPOSITORY / ".tools/node/node_modules/node/bin"
    first = [Path(sys.executable).parent, *([node] if node.is_dir() else [])]
    return os.pathsep.join([*map(str, first), os.environ["PATH"], str(TOOLS / "python/bin")])


def find_missing(setup: Setup) -> str:
    """The first program that a setup needs and that is not installed, or an empty text."""
    for name in setup.needs:
        if shutil.which(name, path=find_path()) is None or not has_toolchain(name):
            return name
    for name in setup.packages:
        if not (TOOLS / "node/node_modules" / name).is_dir():
            return name
    return ""


@cache
def has_toolchain(name: str) -> bool:
    """False for the cargo of rustup in a home without a toolchain: it starts nothing."""
    return name != "cargo" or subprocess.run([name, "--version"], capture_output=True, check=False).returncode == 0


def build_environment(top: Path) -> dict[str, str]:
    home = Path.home()
    for name in ("home", "tmp"):
        (top / name).mkdir(parents=True, exist_ok=True)
    return {
        "PATH": find_path(),
        "HOME": str(top / "home"),
        "TMPDIR": str(top / "tmp"),
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", str(home / ".rustup")),
        "CARGO_NET_OFFLINE": "true",
        "GOCACHE": str(TOOLS / "go-cache"),
        # Otherwise go writes to that cache, which is read-only in a box, once files are two seconds old.
        "GODEBUG": "goindex=0",
        "GOPROXY": "off",
        "npm_config_offline": "true",
        "npm_config_update_notifier": "false",
        # This Python has the plugins of ralphtool's own tests, which would take half of the time.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }


def lay_out(root: Path, case: TruthCase, env: Mapping[str, str]) -> None:
    """Writes the project as it is before the story, including files that git ignores."""
    root.mkdir(parents=True)
    for name, text in case.files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (LONG_AGO, LONG_AGO))
        if text.startswith("#!"):
            path.chmod(0o755)
    link_packages(root, case.setup.packages)
    if case.setup.has_venv:
        make_venv(root, env)


def link_packages(root: Path, names: tuple[str, ...]) -> None:
    """A node_modules for the project, whose packages are links."""
    for name in names:
        package = TOOLS / "node/node_modules" / name
        binary = (package.parent / ".bin" / name).resolve()
        (root / "node_modules/.bin").mkdir(parents=True, exist_ok=True)
        (root / "node_modules" / name).symlink_to(package)
        (root / "node_modules/.bin" / name).symlink_to(binary)


def make_venv(root: Path, env: Mapping[str, str]) -> None:
    """A .venv for the project, which uses the pytest of this environment."""
    run([sys.executable, "-m", "venv", "--without-pip", ".venv"], root, env).check_returncode()
    [packages] = (root / ".venv/lib").glob("python3*/site-packages")
    ours = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "ours.pth").write_text("\n".join(ours) + "\n")


def run(command: list[str], root: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
    """Runs a command to its end; if it takes too long, ends it with every process that it started."""
    process = subprocess.Popen(
        command,
        cwd=root,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)
