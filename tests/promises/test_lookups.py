"""A call whose own request was never sent says that nothing happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from shardq import Client, Limits, Queue, ShardqError
from tests.promises.conftest import OpenClient, OpenQueue, lone
from tests.proxy import Proxy
from tests.servers import Server

pytestmark = pytest.mark.runs_in("test-all")
PATIENCE = 0.5
CHANGES: dict[str, Callable[[Queue], object]] = {
    "write": lambda queue: queue.write("work", shard_key="t", timeout=PATIENCE),
    "write_many": lambda queue: queue.write_many([("work", "t")], timeout=PATIENCE),
    "configure": lambda queue: queue.configure(max_len=5, timeout=PATIENCE),
    "set_limits": lambda queue: queue.set_limits({"t": Limits(rate=1)}, timeout=PATIENCE),
    "pause": lambda queue: queue.pause("t", timeout=PATIENCE),
    "resize": lambda queue: queue.resize(5, timeout=PATIENCE),
    "purge": lambda queue: queue.purge(timeout=PATIENCE),
}
LOOKS: dict[str, Callable[[Queue], object]] = {
    "len": lambda queue: queue.len(timeout=PATIENCE),
    "stats": lambda queue: queue.stats(timeout=PATIENCE),
    "status": lambda queue: queue.status("1795654687255-1-3", timeout=PATIENCE),
    "tenant": lambda queue: queue.tenant("t", timeout=PATIENCE),
}


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.url) as proxy:
        yield proxy


def error_of(call: Callable[[], object]) -> str:
    """The error with which a call ends."""
    try:
        call()
    except ShardqError as error:
        return type(error).__name__
    return "none"


@lone
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_was_never_sent_did_not_happen_though_a_look_up_before_it_got_no_answer(
    open_queue: OpenQueue, open_client: OpenClient, proxy: Proxy, change: str
) -> None:
    """A new client looks at the queue first. It has a connection, but the server does not answer any more."""
    queue = open_queue(streams=4)
    fresh = open_client(proxy.url)
    fresh.queues()
    proxy.blackhole()
    assert error_of(lambda: CHANGES[change](fresh.queue(queue.name))) == "BackendTimeout"
    proxy.pass_on()
    assert (queue.len(), queue.settings().max_len, queue.paused(), queue.limits()) == (0, 0, {}, {})


@lone
@pytest.mark.parametrize("look", LOOKS)
def test_a_look_that_waits_for_a_connection_was_never_sent(
    open_queue: OpenQueue, open_client: OpenClient, proxy: Proxy, look: str
) -> None:
    """Another one has the client's only connection, and gets no answer."""
    queue = open_queue(streams=4)
    client: Client = open_client(proxy.url, max_connections=1)
    mine = client.queue(queue.name)
    mine.len()
    proxy.blackhole()
    with ThreadPoolExecutor(3) as pool:
        errors = [*pool.map(lambda _: error_of(lambda: LOOKS[look](mine)), range(3))]
    proxy.pass_on()
    assert errors.count("BackendTimeout") >= 2
