"""The commands that install a project's packages, from its lock files: suggested as `setup`, never run unasked."""

import os

_VENV = "python3 -m venv .venv && .venv/bin/pip install -r "
# In each group, the first file that exists decides.
_GROUPS = (
    (
        ("pnpm-lock.yaml", "pnpm install --frozen-lockfile"),
        ("yarn.lock", "yarn install --frozen-lockfile"),
        ("bun.lock", "bun install --frozen-lockfile"),
        ("bun.lockb", "bun install --frozen-lockfile"),
        ("package-lock.json", "npm ci"),
        ("npm-shrinkwrap.json", "npm ci"),
        ("package.json", "npm install"),
    ),
    (
        ("uv.lock", "uv sync"),
        ("poetry.lock", "poetry install"),
        ("pdm.lock", "pdm sync"),
        ("Pipfile.lock", "pipenv sync --dev"),
        ("requirements-dev.txt", f"{_VENV}requirements-dev.txt"),
        ("requirements.txt", f"{_VENV}requirements.txt"),
    ),
    (("Gemfile", "bundle install"),),
    (("composer.json", "composer install"),),
    (("mix.exs", "mix deps.get"),),
)


def infer(root: str) -> list[str]:
    found = [[command for name, command in group if os.path.isfile(os.path.join(root, name))] for group in _GROUPS]
    return [commands[0] for commands in found if commands]


def render(root: str) -> str:
    """As a line of the settings; an example if nothing is known."""
    quoted = ", ".join(f'"{command}"' for command in infer(root) or ["make install"])
    return f"setup = [{quoted}]"
