"""A connection to the server, for either side."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING

from ralphtool.core import files
from ralphtool.errors import RemoteFailed, RemoteRefused, UsageError, from_os_error
from ralphtool.settings.executor import ExecutorSettings, check_connection, read_api_key, uses_tls

if TYPE_CHECKING:
    from temporalio.client import Client
    from temporalio.runtime import Runtime
    from temporalio.service import RPCError, TLSConfig

ACTIVITY = "iterate"  # the name of the one kind of job
MOST_BYTES = 256 * 1024  # of a payload: the server warns above that, and fails at 2 MB with an error that is retried
_CONNECT = timedelta(seconds=5)


def name_queue(settings: ExecutorSettings, worker: str = "") -> str:
    """The queue of all workers, or a worker's own queue: it is best at continuing its own work."""
    return f"{settings.queue}@{worker}" if worker else settings.queue


def is_queue(settings: ExecutorSettings, name: str) -> bool:
    return name == settings.queue or name.startswith(f"{settings.queue}@")


def require_temporal() -> None:
    try:
        import temporalio.client  # noqa: F401
    except ImportError:
        raise UsageError('workers need one more package: `pip install "ralphtool[temporal]"`') from None


async def connect(settings: ExecutorSettings, *, identity: str) -> Client:
    """Raises RemoteFailed if the server can't be reached, has no such namespace, or refuses the connection."""
    from temporalio.client import Client
    from temporalio.service import RetryConfig, RPCError

    check_connection(settings)
    try:
        client = await Client.connect(
            settings.address,
            namespace=settings.namespace,
            api_key=read_api_key(settings) or None,
            tls=_build_tls(settings),
            # ralphtool retries itself: the library would block each call for ten seconds.
            retry_config=RetryConfig(max_elapsed_time_millis=500, max_retries=1),
            connect_timeout=_CONNECT,
            identity=identity,
            runtime=_build_quiet_runtime(),
        )
        await _check_namespace(client)
    except RPCError as error:
        raise explain(settings, error) from None
    except RuntimeError as error:  # what the library raises if there is no answer
        raise RemoteFailed(
            f"no Temporal server answers at {settings.address}{_find_cause(str(error))}: start it, or correct "
            "executor.address; `ralphtool worker --dev` starts one to try it out"
        ) from None
    return client


@cache
def _build_quiet_runtime() -> Runtime:
    """The library's own threads, one set per process. By default they print a warning whenever a server is away."""
    from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

    errors = TelemetryFilter(core_level="ERROR", other_level="ERROR")
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=errors)))


async def _check_namespace(client: Client) -> None:
    from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest

    request = DescribeNamespaceRequest(namespace=client.namespace)
    await client.workflow_service.describe_namespace(request, timeout=_CONNECT)


def _build_tls(settings: ExecutorSettings) -> bool | TLSConfig:
    from temporalio.service import TLSConfig

    if not uses_tls(settings):
        return False
    return TLSConfig(
        server_root_ca_cert=_read_pem(settings.tls_ca),
        client_cert=_read_pem(settings.tls_cert),
        client_private_key=_read_pem(settings.tls_key),
    )


def _read_pem(path: str) -> bytes | None:
    try:
        return files.read(path) if path else None
    except OSError as error:
        raise from_os_error(error) from None


def is_away(error: RPCError) -> bool:
    """Whether the server did not answer, or was too busy: it may answer a little later."""
    from temporalio.service import RPCStatusCode as Code

    return error.status in (
        *(Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.CANCELLED, Code.UNKNOWN),
        *(Code.RESOURCE_EXHAUSTED, Code.INTERNAL, Code.ABORTED),
    )


def explain(settings: ExecutorSettings, error: RPCError) -> RemoteFailed:
    """The error for a refused call, with what to do."""
    from temporalio.service import RPCStatusCode as Code

    advice = {
        Code.NOT_FOUND: f"create the namespace {settings.namespace} there, or correct executor.namespace",
        Code.UNAUTHENTICATED: f"check the API key in {settings.api_key_env or 'executor.api_key_env'}",
        Code.PERMISSION_DENIED: f"check the API key or the certificate for {settings.namespace}",
        Code.UNIMPLEMENTED: "it needs standalone activities: use server version 1.32 or newer",
    }.get(error.status)
    said = f"the Temporal server at {settings.address} says: {_shorten(error.message)}"
    return RemoteRefused(f"{said}; {advice}") if advice else RemoteFailed(f"{said}; check that server")


def _find_cause(text: str) -> str:
    """The system's message within the library's longer error."""
    found = re.search(r'message: "([^"]*)"', text) or re.search(r"kind: (\w+)", text)
    return f" ({found[1]})" if found else ""


def _shorten(text: str) -> str:
    """The first line: the library's errors can contain a whole trace."""
    return text.strip().partition("\n")[0][:200]
