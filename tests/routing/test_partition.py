"""A process that was cut off from Redis has the same bindings as the others once it is back."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from shardq import BackendError, Client
from shardq.ops.queue.steps import Call
from tests.proxy import Proxy
from tests.servers import Server, ServerKind
from tests.waiting import answered


@pytest.mark.parametrize("trimmed", [False, True])
def test_a_process_that_was_partitioned_catches_up(server: Server, trimmed: bool) -> None:
    with (
        Proxy(server.url) as proxy,
        Client.from_url(server.url) as here,
        Client.from_url(proxy.url, timeout=0.3) as there,
    ):
        here.queue("q", create=True).declare()
        here.bind("before", "q")
        assert answered(lambda: there.publish("before", 1, shard_key="t"))
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
        assert set(there.router(timeout=30).bindings()) == set(here.router().bindings())
        assert (stale.version, stale.loads) == (22, 2 if trimmed else 1)


def test_bindings_survive_a_restart_of_the_server(kind: ServerKind | None, tmp_path: object) -> None:
    with Server(kind, directory=str(tmp_path)) as server, Client.from_url(server.url) as client:
        client.bind("a.#", "q")
        server.restart()
        assert client.bind("b", "q")
        with Client.from_url(server.url) as other:
            assert set(other.router().bindings()) == set(client.router().bindings()) == {("a.#", "q"), ("b", "q")}
        assert client.router_state().loads == 1


def test_changes_that_redis_lost_and_made_anew_are_noticed(server: Server) -> None:
    """As after a restart or a failover that lost the last second: the same versions, other changes."""
    with Client.from_url(server.url) as here, Client.from_url(server.url) as there, server.client() as raw:
        here.bind("kept", "q")
        keys = here.router_state().keys
        before = {key: raw.dump(key) for key in (keys.bindings, keys.changes)}
        for pattern in ("lost", "lost.too"):
            here.bind(pattern, "q")
        assert len(set(there.router().bindings())) == 3
        for key, value in before.items():
            raw.restore(key, 0, value, replace=True)
        for pattern in ("new", "newer"):
            here.bind(pattern, "q")
        known = {("kept", "q"), ("new", "q"), ("newer", "q")}
        assert set(there.router().bindings()) == set(here.router().bindings()) == known
        assert there.router_state().version == 3


def test_a_load_that_a_restart_cuts_in_two_misses_nothing(kind: ServerKind | None, tmp_path: object) -> None:
    """The cursor of a scan means something else in another process of the server."""
    with Server(kind, directory=str(tmp_path)) as server:
        with Client.from_url(server.url) as client, server.client() as raw:
            client.bind("first", "q")
            raw.hset(client.router_state().keys.bindings, mapping={f"k{n}.* q": "1" for n in range(6000)})
        with Client.from_url(server.url) as late:
            scans, perform = 0, late._driver.perform

            def restarting(step: Any, *rest: Any) -> Any:
                nonlocal scans
                if isinstance(step, Call) and step.script.name == "bindings":
                    scans += 1
                    if scans == 3:
                        server.restart()
                return perform(step, *rest)

            late._driver.perform = restarting  # type: ignore[method-assign]
            assert len(set(late.router().bindings())) == 6001
            assert scans > 3


def test_threads_that_find_the_bindings_gone_load_them_once(server: Server) -> None:
    with Client.from_url(server.url) as here, Client.from_url(server.url) as there:
        here.queue("q", create=True).declare()
        for number in range(300):
            here.bind(f"k{number}.*", "q")
        found: list[set[str]] = []
        threads = [
            threading.Thread(target=lambda: found.append(set(there.publish("k7.x", b"", shard_key="t"))))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [{"q"}] * 8
        assert there.router_state().loads == 1


def test_a_repeated_bind_whose_reply_was_lost_says_that_it_bound(server: Server) -> None:
    with Proxy(server.url) as proxy, Client.from_url(proxy.url) as client:
        client.router()
        cut = proxy.cut_after_request(b"a.lost")
        assert client.bind("a.lost", "q")
        assert cut.struck.wait(30)
        assert set(client.router().bindings()) == {("a.lost", "q")}


def test_many_that_were_unbound_when_the_reply_was_lost_are_not_called_unknown(server: Server) -> None:
    with Proxy(server.url) as proxy, Client.from_url(proxy.url) as client:
        client.bind_many([("a.lost", "q"), ("a.kept", "q")])
        cut = proxy.cut_after_request(b"a.lost")
        assert client.unbind_many([("a.lost", "q")]) == []
        assert cut.struck.is_set()
        assert set(client.router().bindings()) == {("a.kept", "q")}
