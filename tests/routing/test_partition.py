"""A process that was cut off from Redis has the same bindings as the others once it is back."""

from __future__ import annotations

import pytest

from shardq import BackendError, Client
from tests.proxy import Proxy
from tests.servers import Server, ServerKind


@pytest.mark.parametrize("trimmed", [False, True])
def test_a_process_that_was_partitioned_catches_up(server: Server, trimmed: bool) -> None:
    with (
        Proxy(server.url) as proxy,
        Client.from_url(server.url) as here,
        Client.from_url(proxy.url, timeout=0.3) as there,
    ):
        here.bind("before", "q")
        assert there.publish("before", 1, shard_key="t")
        proxy.blackhole()
        proxy.drop()
        here.unbind("before", "q")
        for number in range(20):
            here.bind(f"*.k{number}", "q")
        if trimmed:
            with server.client() as raw:
                raw.xtrim(here.router_state().keys.changes, maxlen=2, approximate=False)
        with pytest.raises(BackendError):
            there.router()
        stale = there.router_state()
        assert (stale.version, here.router_state().version) == (1, 22)
        assert stale.router.match("before") == {"q"}
        proxy.heal()
        assert set(there.router(timeout=5).bindings()) == set(here.router().bindings())
        assert (stale.version, stale.loads) == (22, 2 if trimmed else 1)


def test_bindings_survive_a_restart_of_the_server(kind: ServerKind | None, tmp_path: object) -> None:
    options = {"appendonly": "yes", "appendfsync": "always"}
    with Server(kind, directory=str(tmp_path), options=options) as server, Client.from_url(server.url) as client:
        client.bind("a.#", "q")
        server.restart()
        assert client.bind("b", "q")
        with Client.from_url(server.url) as other:
            assert set(other.router().bindings()) == set(client.router().bindings()) == {("a.#", "q"), ("b", "q")}
        assert client.router_state().loads == 1


def test_a_repeated_bind_whose_reply_was_lost_says_that_it_bound(server: Server) -> None:
    with Proxy(server.url) as proxy, Client.from_url(proxy.url) as client:
        client.router()
        cut = proxy.cut_after_request(b"a.lost")
        assert client.bind("a.lost", "q")
        assert cut.struck.is_set()
        assert set(client.router().bindings()) == {("a.lost", "q")}
