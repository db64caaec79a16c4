"""The hosts and ports that the programs of a run may reach from their box, and the proxy that enforces it."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import TYPE_CHECKING

from ralphtool.agents.endpoints import list_configured, list_endpoints
from ralphtool.agents.program import list_needs
from ralphtool.record.events import Denied
from ralphtool.sandbox.network import NetworkRules, Proxy, is_this_machine
from ralphtool.sandbox.upstream import find_upstream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from ralphtool.agents import Runner
    from ralphtool.record.log import Log
    from ralphtool.settings import Settings

_EVERYWHERE = "0.0.0.0"  # noqa: S104 - what a server listens on, and people take for its address


def open_proxy(rules: NetworkRules, settings: Settings, log: Log) -> AbstractContextManager[Proxy | None]:
    """The proxy, if the settings ask for one. Denied connections are recorded."""
    if settings.sandbox.network != "allow":
        return nullcontext()

    def record(host: str, port: int, allow: str) -> None:
        now = log.iteration
        log.note(Denied(host=host, port=port, allow=allow, iteration=now.number, story=now.story))

    return Proxy(rules, record, upstream=find_upstream(os.environ))


def build_rules(
    settings: Settings, runners: Sequence[Runner], root: str, env: Mapping[str, str] = os.environ
) -> NetworkRules:
    """The hosts and ports that the settings name, and those that the agents need."""
    hosts = [*settings.sandbox.hosts, *(host for runner in runners for host in runner.traits.hosts)]
    ports = list(settings.sandbox.ports)
    for host, port in _list_addresses(settings, runners, root, env):
        if is_this_machine(host) or host == _EVERYWHERE:
            ports.append(port)
        else:
            hosts.append(host)
    return NetworkRules(
        hosts=tuple(dict.fromkeys(hosts)),
        ports=tuple(dict.fromkeys(ports)),
        set_hosts=settings.sandbox.hosts,
        set_ports=settings.sandbox.ports,
    )


def _list_addresses(
    settings: Settings, runners: Sequence[Runner], root: str, env: Mapping[str, str]
) -> Iterator[tuple[str, int]]:
    """The addresses of the agents' models, as far as the environment and their own configuration name them."""
    for runner in runners:
        own = settings.agents.get(runner.name)
        yield from list_endpoints({**env, **(own.env if own else {})})
        yield from list_configured(list_needs(runner, root))
