"""Connections of a command to the nodes behind a URL, without a client: one refuses a server that is unfit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from shardq.clock import SystemClock
from shardq.drivers import Driver, Target
from shardq.ops.queue.retry import retry_until
from shardq.ops.queue.steps import Ask


class Node(NamedTuple):
    """One node that takes writes, and a driver for it alone. Its `name` is '' if there is no other."""

    name: str
    driver: Driver


@contextmanager
def driver_for(url: str) -> Iterator[Driver]:
    """A driver for the server that *url* names."""
    with ExitStack() as stack:
        target = Target.parse(url)
        if target.kind == "embedded":
            from shardq.embedded import EmbeddedServer  # not every system has one

            server = stack.enter_context(EmbeddedServer(target.settings.get("directory")))
            target = Target.parse(server.url)
        yield _driver(stack, target)


@contextmanager
def nodes_of(url: str, driver: Driver, timeout: float) -> Iterator[list[Node]]:
    """The nodes behind *url*, to which *driver* leads: each primary of a cluster, else the one server."""
    target = Target.parse(url)
    if target.kind != "cluster":
        yield [Node("", driver)]
        return
    clock = SystemClock()
    slots = driver.run(retry_until(lambda _: Ask(("CLUSTER", "SLOTS")), clock.monotonic() + timeout, clock))
    addresses = sorted({(primary[0].decode(), int(primary[1])) for _, _, primary, *_ in slots})
    with ExitStack() as stack:
        yield [
            Node(
                f"{host}:{port}",
                _driver(stack, Target("single", target.settings | {"host": host, "port": port}, tls=target.tls)),
            )
            for host, port in addresses
        ]


def _driver(stack: ExitStack, target: Target) -> Driver:
    driver = Driver(target, max_connections=1, block=1.0)
    stack.callback(driver.close)
    return driver
