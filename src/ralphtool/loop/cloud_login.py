"""Agents that reach their model through a cloud: a box withholds that login unless settings pass it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, NamedTuple

from ralphtool.agents.program import list_needs
from ralphtool.sandbox.confinement import list_withheld

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ralphtool.agents import Runner
    from ralphtool.settings import SandboxSettings, Settings

_OFF = ("", "0", "false", "no", "off")


class _Cloud(NamedTuple):
    title: str
    switch: str  # the variable that makes Claude Code use it
    prefixes: tuple[str, ...]  # of variables that belong to its login
    files: tuple[str, ...]  # variables that name a file of the login
    folder: str  # where the login is, if none of them is set
    regions: tuple[str, ...]  # variables that name the region
    region: str
    hosts: tuple[str, ...]


_CLOUDS = (
    _Cloud(
        title="Amazon Bedrock",
        switch="CLAUDE_CODE_USE_BEDROCK",
        prefixes=("AWS_",),
        files=("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"),
        folder="~/.aws",
        regions=("AWS_REGION", "AWS_DEFAULT_REGION"),
        region="us-east-1",
        hosts=tuple(f"{name}.{{region}}.amazonaws.com" for name in ("bedrock-runtime", "bedrock", "sts")),
    ),
    _Cloud(
        title="Google Vertex AI",
        switch="CLAUDE_CODE_USE_VERTEX",
        prefixes=("GOOGLE_", "GCLOUD_", "CLOUDSDK_"),
        files=("GOOGLE_APPLICATION_CREDENTIALS",),
        folder="~/.config/gcloud",
        regions=("CLOUD_ML_REGION",),
        region="global",
        hosts=("{region}-aiplatform.googleapis.com", "oauth2.googleapis.com"),
    ),
)


def list_notices(settings: Settings, runners: Sequence[Runner], root: str) -> list[str]:
    """A notice for each login that a box withholds, with the settings that pass it."""
    return [text for runner in runners for text in _list_for(settings, runner, root)]


def _list_for(settings: Settings, runner: Runner, root: str) -> list[str]:
    if getattr(runner, "program", "") != "claude":
        return []
    own = settings.agents.get(runner.name)
    env = {**_read_configured(list_needs(runner, root)), **os.environ, **(own.env if own else {})}
    used = [cloud for cloud in _CLOUDS if env.get(cloud.switch, "").lower() not in _OFF]
    found = [(cloud, _list_lines(cloud, env, settings.sandbox, root)) for cloud in used]
    return [
        f"{runner.name} uses {cloud.title}, but the box does not have its login. To pass it, write under [sandbox] in "
        f".ralph/config.toml: {'; '.join(lines)}"
        for cloud, lines in found
        if lines
    ]


def _read_configured(needs: Sequence[str]) -> dict[str, str]:
    """The variables that Claude Code's own settings define."""
    found: dict[str, str] = {}
    for folder in needs:
        try:
            with open(os.path.join(folder, "settings.json"), encoding="utf-8") as file:
                known = json.load(file)["env"]
            found |= {name: value for name, value in known.items() if isinstance(value, str)}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # it has no such settings
    return found


def _list_lines(cloud: _Cloud, env: Mapping[str, str], sandbox: SandboxSettings, root: str) -> list[str]:
    """The settings that lack something, with their present values and the missing ones."""
    wanted = {
        "env": [name for name in list_withheld(env, ()) if name.startswith(cloud.prefixes)],
        "read": _list_files(cloud, env),
        "hosts": _list_hosts(cloud, env) if sandbox.network == "allow" else [],
    }
    known = {"env": list(sandbox.env), "read": [*sandbox.read, *sandbox.write], "hosts": list(sandbox.hosts)}
    shown = {"read": {_expand(path, root) for path in known["read"]}}
    lacking = {
        name: [one for one in values if one not in known[name] and _expand(one, root) not in shown.get(name, ())]
        for name, values in wanted.items()
    }
    return [
        f"{name} = {json.dumps([*getattr(sandbox, name), *values], ensure_ascii=False)}"
        for name, values in lacking.items()
        if values
    ]


def _expand(path: str, root: str) -> str:
    return os.path.realpath(os.path.join(root, os.path.expanduser(path)))


def _list_files(cloud: _Cloud, env: Mapping[str, str]) -> list[str]:
    named = [env[name] for name in cloud.files if env.get(name)]
    return [path for path in named or [cloud.folder] if os.path.exists(os.path.expanduser(path))]


def _list_hosts(cloud: _Cloud, env: Mapping[str, str]) -> list[str]:
    region = next((env[name] for name in cloud.regions if env.get(name)), cloud.region)
    return [one.format(region=region).removeprefix("global-") for one in cloud.hosts]
