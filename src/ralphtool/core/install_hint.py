"""The command that adds the packages of an extra to the environment in which ralphtool runs.

`pip install "ralphtool[web]"` would be wrong: the `pip` on PATH is rarely that of this environment, and no index needs
to have ralphtool. So the command names this Python, and the packages themselves.
"""

import os
import sys

# Used only without the metadata of an installed ralphtool, as for a copy on PYTHONPATH.
_PACKAGES = {"mcp": "mcp", "screen": "textual", "semantic": "numpy", "temporal": "temporalio", "web": "uvicorn"}


def build_install_command(extra: str) -> str:
    """The command for the packages of an extra."""
    return build_package_command(*list_packages(extra))


def build_package_command(*packages: str) -> str:
    """For a shell, with all quotes that it needs."""
    import shlex  # expensive to import, and needed only here

    if os.path.exists(os.path.join(sys.prefix, "pipx_metadata.json")):
        command = ["pipx", "inject", os.path.basename(sys.prefix)]
    else:
        command = build_installer()
    return shlex.join([*command, *packages])


def build_installer() -> list[str]:
    """The words of a command that installs packages for this Python; they go at its end."""
    from importlib.util import find_spec

    if find_spec("pip") is None:  # an environment that uv made has none
        return ["uv", "pip", "install", "--python", sys.executable]
    return [sys.executable, "-m", "pip", "install"]


def list_packages(extra: str) -> list[str]:
    """The requirements of an extra: `["uvicorn>=0.30"]`."""
    from importlib import metadata

    try:
        required = [one.partition(";") for one in metadata.requires("ralphtool") or ()]
    except metadata.PackageNotFoundError:
        return [_PACKAGES[extra]]
    named = (f"extra == '{extra}'", f'extra == "{extra}"')
    return [package.strip() for package, _, marker in required if marker.strip() in named] or [_PACKAGES[extra]]
