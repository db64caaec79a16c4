"""`[executor]`: which connections are refused, and what comes from the environment."""

from __future__ import annotations

import pytest
from settingsfile import parse, read_error

from ralphtool.errors import WrongSetting
from ralphtool.settings.executor import (
    ExecutorSettings,
    apply_environment,
    check_connection,
    is_loopback,
    read_api_key,
    uses_tls,
)


def test_the_section_is_read() -> None:
    found = parse('[run]\nexecutor = "temporal"\n[executor]\naddress = "[::1]:7"\nheartbeat = "1m"\ntls = true')
    assert found.run.executor == "temporal"
    assert found.executor == ExecutorSettings(address="[::1]:7", heartbeat=60, tls=True)


@pytest.mark.parametrize("address", ["", "host", "host:", ":7233", "host:123456", "http://host:7233", "a b:1"])
def test_an_address_has_a_host_and_a_port(address: str) -> None:
    assert "executor.address must be a host with a port" in read_error(f"[executor]\naddress = '{address}'")
    if address:
        with pytest.raises(WrongSetting, match="TEMPORAL_ADDRESS"):
            apply_environment(ExecutorSettings(), {"TEMPORAL_ADDRESS": address})


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1:7233", True),
        ("127.9.9.9:7233", True),
        ("localhost:7233", True),
        ("[::1]:7233", True),
        ("0.0.0.0:7233", False),
        ("10.0.0.1:7233", False),
        ("127.0.0.1.example.org:7233", False),
        ("127.example.org:7233", False),
        ("localhost.example.org:7233", False),
        ("[::2]:7233", False),
    ],
)
def test_only_this_machine_may_be_talked_to_in_the_clear(address: str, local: bool) -> None:
    settings = ExecutorSettings(address=address)
    assert is_loopback(address) is local
    assert uses_tls(settings) is not local
    if local:
        check_connection(settings, {})
    else:
        with pytest.raises(WrongSetting, match=r"executor\.tls = true, or an API key in TEMPORAL_API_KEY"):
            check_connection(settings, {})


@pytest.mark.parametrize(
    "more",
    [{"tls": True}, {"tls_ca": "ca.pem"}, {"tls_cert": "me.pem", "tls_key": "me.key"}, {"api_key_env": "MINE"}],
)
def test_with_tls_or_a_key_any_machine_may(more: dict[str, object]) -> None:
    settings = ExecutorSettings(address="example.org:7233", **more)  # type: ignore[arg-type]
    check_connection(settings, {"MINE": "secret"})
    assert uses_tls(settings)


def test_a_certificate_and_its_key_belong_together() -> None:
    with pytest.raises(WrongSetting, match="belong together"):
        check_connection(ExecutorSettings(tls_cert="me.pem"), {})


def test_a_heartbeat_that_nobody_can_keep_is_refused() -> None:
    with pytest.raises(WrongSetting, match=r"executor\.heartbeat must be at least 3s"):
        check_connection(ExecutorSettings(heartbeat=0), {})


def test_the_environment_wins_over_the_file() -> None:
    settings = ExecutorSettings(address="a:1", namespace="here")
    assert apply_environment(settings, {}) == settings
    given = {"TEMPORAL_ADDRESS": "b:2", "TEMPORAL_NAMESPACE": "there"}
    assert apply_environment(settings, given) == ExecutorSettings(address="b:2", namespace="there")


def test_the_key_comes_from_the_environment_alone() -> None:
    environment = {"TEMPORAL_API_KEY": "usual", "MINE": "own"}
    assert read_api_key(ExecutorSettings(), environment) == "usual"
    assert read_api_key(ExecutorSettings(api_key_env="MINE"), environment) == "own"
    assert read_api_key(ExecutorSettings(api_key_env=""), environment) == ""
    assert read_api_key(ExecutorSettings(), {}) == ""
