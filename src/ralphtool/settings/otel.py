"""The settings of the export to OpenTelemetry: `[otel]`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from ralphtool.settings.values import Switch, ValueKind

# No login, because it would appear in files and messages. A path may follow, and `/v1/traces` is added to it.
URL = r"https?://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~/%-]*)?"
Endpoint = Annotated[
    str, Meta(pattern=rf"\A(?:{URL})?\Z"), ValueKind("a URL without a login", '"http://127.0.0.1:4318"')
]


class OtelSettings(Struct, frozen=True, kw_only=True):
    """`[otel]`: where spans and metrics of a run go."""

    endpoint: Endpoint = ""
    """The OTLP/HTTP endpoint to which `ralphtool run` sends spans and metrics; by default nothing is sent."""
    content: Switch = False
    """Whether prompts, messages, tool inputs and results, and gate output are sent too."""
