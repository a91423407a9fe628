"""A call whose own request was never sent says that nothing happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from shardq import Queue, ShardqError
from tests.promises.conftest import OpenClient, OpenQueue, lone
from tests.proxy import Proxy
from tests.servers import Server
from tests.verbs import LOOKS, SETTINGS, VERBS, furnish

pytestmark = pytest.mark.runs_in("test-all")
PATIENCE = 0.5
OWN = "its own request is the first"
ASKS = "VERBS asks by another call what there is"
APART = dict.fromkeys(
    (
        "Client.bind", "Client.bind_many", "Client.unbind", "Client.unbind_many", "Queue.declare", "Schedules.pause",
        "Schedules.remove", "Schedules.resume",
    ),
    OWN,
) | dict.fromkeys((
        "Action.status", "Action.stop", "Action.wait, cancel", "Action.wait, delete", "Action.wait, redrive",
        "Action.wait, retry", "Queue.cancel", "Queue.delete_dead", "Queue.delete_dead, by id", "Queue.redrive",
        "Queue.result", "Queue.stop_action", "Queue.take_over",
    ), ASKS)  # fmt: skip
"""Changes that are looked at elsewhere, and why."""

CHANGES = VERBS.keys() - {*LOOKS, *APART}
LOST = {"Writer.close": "PartlyWritten", "Writer.flush": "PartlyWritten"}
"""What is raised by calls that tell of messages one by one, where others raise BackendTimeout."""


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.url) as proxy:
        yield proxy


def error_of(call: Callable[[Queue], object], queue: Queue) -> str:
    """The error with which a call ends."""
    try:
        call(queue)
    except ShardqError as error:
        return type(error).__name__
    return "none"


@lone
def test_a_call_that_was_never_sent_did_not_happen_though_a_look_up_before_it_got_no_answer(
    open_queue: OpenQueue, open_client: OpenClient, server: Server, proxy: Proxy
) -> None:
    """A new client looks at the queue first. It has a connection, but the server does not answer any more."""
    assert APART.keys() <= VERBS.keys()
    queue = open_queue(**SETTINGS)
    furnish(queue)
    clients = {name: open_client(proxy.url, timeout=PATIENCE) for name in CHANGES}
    for client in clients.values():
        client.queues()
    before = server.run("DEBUG", "DIGEST")
    proxy.blackhole()
    with ThreadPoolExecutor(len(clients)) as pool:
        made = {name: pool.submit(error_of, VERBS[name], each.queue(queue.name)) for name, each in clients.items()}
    proxy.pass_on()
    assert {name: error for name, each in made.items() if (error := each.result()) != "BackendTimeout"} == LOST
    assert server.run("DEBUG", "DIGEST") == before


@lone
def test_a_look_that_waits_for_a_connection_was_never_sent(
    open_queue: OpenQueue, open_client: OpenClient, proxy: Proxy
) -> None:
    """Another one has the client's only connection, and gets no answer."""
    queue = open_queue(**SETTINGS)
    furnish(queue)
    mine = {name: open_client(proxy.url, max_connections=1, timeout=PATIENCE).queue(queue.name) for name in LOOKS}
    for each in mine.values():
        each.len()
    proxy.blackhole()
    with ThreadPoolExecutor(3 * len(mine)) as pool:
        made = {name: [pool.submit(error_of, VERBS[name], each) for _ in range(3)] for name, each in mine.items()}
    proxy.pass_on()
    errors = {name: [each.result() for each in calls] for name, calls in made.items()}
    assert {name: each for name, each in errors.items() if each.count("BackendTimeout") < 2} == {}
