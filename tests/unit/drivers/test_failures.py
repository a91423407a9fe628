"""What is said of a connection that cannot be made."""

from __future__ import annotations

import pytest
import redis

from shardq.drivers.failures import unconnected

HINT = "the server closed the new connection: it may have too many clients, see its maxclients"


@pytest.mark.parametrize(
    ("text", "hinted"),
    [
        ("Error 32 while writing to socket. Broken pipe.", True),
        ("Error 104 while writing to socket. Connection reset by peer.", True),
        ("Error UNKNOWN while writing to socket. Connection lost.", True),
        ("Connection closed by server.", True),
        ("max number of clients reached", False),  # this says it already
        ("Error 111 connecting to localhost:1. Connection refused.", False),
    ],
)
def test_a_server_that_closes_a_new_connection_may_have_too_many_clients(text: str, hinted: bool) -> None:
    said = str(unconnected(redis.ConnectionError(text)))
    assert text in said
    assert (HINT in said) is hinted
