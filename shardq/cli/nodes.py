"""Connections of a command to the nodes behind a URL, without a client: one refuses a server that is unfit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from shardq.clock import SystemClock
from shardq.ops.queue.retry import retry_until
from shardq.ops.queue.steps import Ask

if TYPE_CHECKING:
    from shardq.drivers import Driver, Target


class NodeRow(NamedTuple):
    """One node that takes writes, and a driver for it alone. Its `name` is '' if there is no other."""

    name: str
    driver: Driver


@contextmanager
def address_of(url: str) -> Iterator[str]:
    """The URL under which the server that *url* names is reached by all: an embedded one runs for so long."""
    from shardq.drivers import Target

    target = Target.parse(url)
    if target.kind != "embedded":
        yield url
        return
    from shardq.embedded import EmbeddedServer  # not every system has one

    with EmbeddedServer(target.settings.get("directory")) as server:
        yield server.url


@contextmanager
def driver_for(url: str) -> Iterator[Driver]:
    """A driver for the server that *url* names."""
    from shardq.drivers import Target

    with ExitStack() as stack:
        yield _driver(stack, Target.parse(stack.enter_context(address_of(url))))


@contextmanager
def nodes_of(url: str, driver: Driver, timeout: float) -> Iterator[list[NodeRow]]:
    """The nodes behind *url*, to which *driver* leads: each primary of a cluster, else the one server."""
    from shardq.drivers import Target

    target = Target.parse(url)
    if target.kind != "cluster":
        yield [NodeRow("", driver)]
        return
    clock = SystemClock()
    slots = driver.run(retry_until(lambda _: Ask(("CLUSTER", "SLOTS")), clock.monotonic() + timeout, clock))
    addresses = sorted({(primary[0].decode(), int(primary[1])) for _, _, primary, *_ in slots})
    with ExitStack() as stack:
        yield [
            NodeRow(
                f"{host}:{port}",
                _driver(stack, Target("single", target.settings | {"host": host, "port": port}, tls=target.tls)),
            )
            for host, port in addresses
        ]


def _driver(stack: ExitStack, target: Target) -> Driver:
    from shardq.drivers import Driver

    driver = Driver(target, max_connections=1, block=1.0)
    stack.callback(driver.close)
    return driver
