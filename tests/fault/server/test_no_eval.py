"""Users that may call functions alone (`shardq server acl --no-eval`): they work, and run no text of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from shardq import BackendError, Client
from shardq.protocol.keys import QueueKeys
from shardq.protocol.roles import ROLES
from tests.acl import Users, is_denial
from tests.servers import Server

META = QueueKeys("jobs").meta


@pytest.fixture
def users(server: Server) -> Iterator[Users]:
    """A user for each role. (Another test may have loaded functions.)"""
    server.run("FUNCTION", "FLUSH")
    made = Users(server, scripts=False)
    yield made
    made.remove()


@pytest.mark.parametrize("role", ROLES)
def test_no_role_runs_a_script(users: Users, role: str) -> None:
    for words in (
        ("EVAL", "return 1", 0), ("EVAL_RO", "return 1", 1, META), ("EVAL", "return 1", 1, META),
        ("EVALSHA", "0" * 40, 1, META), ("EVALSHA_RO", "0" * 40, 1, META), ("SCRIPT", "LOAD", "return 1"),
    ):  # fmt: skip
        with pytest.raises(redis.ResponseError) as raised:
            users.run(role, *words)
        assert is_denial(raised.value), words


def test_where_the_library_is_loaded_they_do_their_work(server: Server, users: Users) -> None:
    with Client.from_url(server.url) as client:
        client.queue("other").declare()  # which loads it
    names = ("operator", "producer", "consumer", "observer", "autoscaler")
    clients = {name: Client.from_url(users.url(name)) for name in names}
    queues = {name: client.queue("jobs") for name, client in clients.items()}
    queues["operator"].declare()
    written = queues["producer"].write("work", shard_key="tenant")
    assert queues["observer"].status(written).state == "waiting"
    assert queues["autoscaler"].len() == 1
    queues["consumer"].read(block=5).ack()
    assert queues["autoscaler"].len() == 0
    for client in clients.values():
        client.close()


def test_where_it_is_not_loaded_a_call_says_so_and_changes_nothing(server: Server, users: Users) -> None:
    with Client.from_url(users.url("operator")) as client, pytest.raises(BackendError) as raised:
        client.queue("jobs").declare()
    assert "shardq server lua load" in str(raised.value)
    assert server.run("EXISTS", META) in (0, False)
