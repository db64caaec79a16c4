"""The settings of an executor on other machines: `[executor]`."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct, structs

from ralphtool.errors import WrongSetting, shorten
from ralphtool.settings.values import Argument, Seconds, Switch, Text, ValueKind, describe_text

if TYPE_CHECKING:
    from collections.abc import Mapping

_HOST = r"\A(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}\Z"
_LEAST_HEARTBEAT = 3  # one per second, and one may be late
Address = Annotated[str, Meta(pattern=_HOST), ValueKind("a host with a port", '"127.0.0.1:7233"')]
Path = Annotated[Argument, ValueKind("a path", '"/etc/ralph/client.pem"')]
Variable = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_]*\Z"), ValueKind("a variable name", '"MY_API_KEY"')]
Remote = Annotated[Argument, ValueKind("a URL or a path", '"git@example.org:team/work.git"')]


class ExecutorSettings(Struct, frozen=True, kw_only=True):
    """`[executor]`: the Temporal server that hands iterations out to other machines."""

    address: Address = "127.0.0.1:7233"
    """The Temporal server; the environment variable `TEMPORAL_ADDRESS` overrides it."""
    namespace: Annotated[Text, describe_text("default")] = "default"
    """The namespace on that server; the environment variable `TEMPORAL_NAMESPACE` overrides it."""
    queue: Annotated[Text, describe_text("ralphtool")] = "ralphtool"
    """The task queue that connects runs and workers."""
    remote: Remote = ""
    """The git repository through which runs and workers exchange commits; all of them must be able to push to it."""
    tls: Switch = False
    """Whether the connection uses TLS; connections to other machines always do."""
    tls_cert: Path = ""
    """The client certificate, a PEM file."""
    tls_key: Path = ""
    """The key of the client certificate, a PEM file."""
    tls_ca: Path = ""
    """The certificate authorities to accept for the server, a PEM file; by default the system's."""
    api_key_env: Variable = "TEMPORAL_API_KEY"
    """The environment variable that holds the API key, if the server needs one."""
    heartbeat: Seconds = 30
    """How long a worker may be silent before its work is given to another worker."""


def apply_environment(settings: ExecutorSettings, environment: Mapping[str, str] = os.environ) -> ExecutorSettings:
    """Applies Temporal's own environment variables, as its other programs do."""
    names = {"address": "TEMPORAL_ADDRESS", "namespace": "TEMPORAL_NAMESPACE"}
    given = {key: environment[name] for key, name in names.items() if environment.get(name)}
    if not re.match(_HOST, given.get("address", settings.address)):
        raise WrongSetting(f"TEMPORAL_ADDRESS is {shorten(given['address'])}: it must be a host with a port")
    return structs.replace(settings, **given)


def read_api_key(settings: ExecutorSettings, environment: Mapping[str, str] = os.environ) -> str:
    """The API key; empty if there is none. ralphtool never writes it to a file."""
    return environment.get(settings.api_key_env, "") if settings.api_key_env else ""


def uses_tls(settings: ExecutorSettings) -> bool:
    """Always for other machines: an API key must not be sent unencrypted."""
    return settings.tls or bool(settings.tls_cert or settings.tls_ca) or not is_loopback(settings.address)


def is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    # No other name: a name server decides what those mean.
    return host in ("localhost", "::1") or _is_local_ipv4(host)


def _is_local_ipv4(host: str) -> bool:
    parts = host.split(".")
    return len(parts) == 4 and parts[0] == "127" and all(part.isdecimal() and int(part) < 256 for part in parts)


def check_connection(settings: ExecutorSettings, environment: Mapping[str, str] = os.environ) -> None:
    """Refuses a connection to another machine that others could impersonate or eavesdrop on."""
    if settings.heartbeat < _LEAST_HEARTBEAT:
        raise WrongSetting(f"executor.heartbeat must be at least {_LEAST_HEARTBEAT}s: workers report once a second")
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise WrongSetting("executor.tls_cert and executor.tls_key belong together: set both, or neither")
    safe = settings.tls or settings.tls_cert or settings.tls_ca or read_api_key(settings, environment)
    if not safe and not is_loopback(settings.address):
        key = settings.api_key_env or "executor.api_key_env"
        raise WrongSetting(
            f"{settings.address} is another machine, and the connection would not be encrypted: set executor.tls = "
            f"true, or an API key in {key}"
        )
