"""Where a program listens: the form of an address, and all addresses that it stands for."""

from __future__ import annotations

import socket

import pytest

from shardq import ConfigError
from shardq.sockets import address_of, check_address, listeners


@pytest.mark.parametrize(
    "listen", [":9464", "0.0.0.0:0", "127.0.0.1:65535", "[::1]:7400", "[::]:0", "host:1", "unix:/s"]
)
def test_these_are_addresses(listen: str) -> None:
    assert check_address("--listen", listen) == listen


@pytest.mark.parametrize("listen", ["", ":", "9464", "host", "host:", "host:65536", "host:x", "::1:9", "unix:", "\0:1"])
def test_these_are_none(listen: str) -> None:
    with pytest.raises(ConfigError, match=r"^--listen must be HOST:PORT or unix:PATH"):
        check_address("--listen", listen)


@pytest.mark.parametrize("listen", [":99999", ":x", "host:", "127.0.0.1:-1"])
def test_a_port_that_is_none_is_named(listen: str) -> None:
    port = listen.rpartition(":")[2]
    with pytest.raises(ConfigError, match=rf"the port is a number from 0 to 65535, not '{port}'$"):
        check_address("--listen", listen)


def test_without_a_host_a_port_is_that_of_all_addresses() -> None:
    """Where `::` takes IPv4, too, the port was taken when IPv4 wanted it."""
    opened = listeners(":0")
    try:
        families = {each.family for each in opened}
        assert socket.AF_INET in families
        assert len({each.getsockname()[1] for each in opened}) == 1
        assert address_of(":0", opened) == f":{opened[0].getsockname()[1]}"
    finally:
        for each in opened:
            each.close()
