"""Describes a box to its agents, and finds blockers that a setting may resolve."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ralphtool.judging.blockers import BlockerCheck
from ralphtool.loop import way_out
from ralphtool.loop.workspace_choice import list_denied
from ralphtool.workspace.git import Repository

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphtool.agents import Runner
    from ralphtool.settings import Settings
    from ralphtool.workspace import Workspace

_MOST_HOSTS = 8


def is_boxed(place: Workspace) -> bool:
    """Whether programs see the workspace at another path than its real one."""
    return place.shown_root != place.root


def describe_box(settings: Settings, runners: Sequence[Runner], root: str) -> str:
    """Three lines for a prompt."""
    return (
        f"You are in a sandbox. {_describe_network(settings, runners, root)}\n"
        "Your home and /tmp are private and start empty; other files of this machine are hidden or read-only.\n"
        "Don't push: commits stay here. If you need a hidden file or another host, report a blocker that names it.\n"
    )


def _describe_network(settings: Settings, runners: Sequence[Runner], root: str) -> str:
    mode = settings.sandbox.network
    if mode != "allow":
        return "Network: unrestricted." if mode == "on" else "Network: none."
    rules = way_out.build_rules(settings, runners, root)
    hosts = [
        *rules.hosts[:_MOST_HOSTS],
        *([f"{len(rules.hosts) - _MOST_HOSTS} more"] if rules.hosts[_MOST_HOSTS:] else []),
    ]
    ports = [f"port {port} of this machine" for port in rules.ports[:_MOST_HOSTS]]
    names = ", ".join((*hosts, *ports))
    return f"Network, through HTTPS_PROXY only: {names}." if names else "Network: none."


def list_filter_notices(root: str) -> list[str]:
    """A notice if files have filters of git: in a box, a program that an agent could change must not run for git."""
    if (repository := Repository.find(root)) is None:
        return []
    listed = repository.text("config", "--get-regexp", r"^filter\..*\.(clean|process)$", check=False)
    rows = [line.partition(" ")[::2] for line in listed.split("\n") if line]
    known = {key.split(".", 1)[1].rpartition(".")[0] for key, command in rows if not command.startswith("git-lfs ")}
    grep = ("grep", "-hoE", "filter=[^[:space:]]+", "HEAD", "--", ":(top,glob)**/.gitattributes")
    used = (
        {line.removeprefix("filter=") for line in repository.text(*grep, check=False).split("\n")} if known else set()
    )
    return [
        f"the git filter {name} does not run in a box: files that it would encrypt or clean are committed as they are; "
        'to let it run: [run] workspace = "worktree"'
        for name in sorted(known & used)
    ]


def check_hidden(place: Workspace, settings: Settings, record: str, claim: str) -> BlockerCheck | None:
    """Checks whether the thing that a blocker names is only hidden or blocked by the box: then a person decides at
    once, and is shown the setting that allows it."""
    if not is_boxed(place):
        return None
    from ralphtool.sandbox.advice import Present, suggest

    home = os.path.realpath(os.path.expanduser("~"))
    shown = [_expand(path, place.shown_root, home) for path in (*settings.sandbox.read, *settings.sandbox.write)]
    denied = [event.allow for event in list_denied(record) if event.host and event.host.lower() in claim.lower()]
    present = Present(settings.sandbox.read, settings.sandbox.ports)
    advice = suggest(claim, place.shown_root, home, denied, present=present, shown=shown, is_claim=True)
    if not advice:
        return None
    return BlockerCheck(True, f"the box hides or blocks it: to allow it, {advice} in .ralph/config.toml")


def _expand(path: str, root: str, home: str) -> str:
    return os.path.normpath(os.path.join(root, home + path[1:] if path.startswith("~") else path))
