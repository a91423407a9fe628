"""Run a gateway until it is asked to stop: SIGTERM and SIGINT drain it, SIGHUP reads the tokens again."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Callable

from shardq.extras import extra

with extra("gateway"):
    import grpc  # noqa: F401 - else what the edge has, too, would say that its extra is missing

from shardq.client import AsyncClient
from shardq.errors import ConfigError
from shardq.gateway import door, strangers
from shardq.gateway.counters import Counters
from shardq.gateway.server import Gateway
from shardq.gateway.settings import GatewaySettings
from shardq.platforms import posix
from shardq.worker.signals import stop_signals

with posix("a gateway"):
    import resource

SPARE_DESCRIPTORS = 128
"""Descriptors for all else than connections: Redis, files, pipes."""


def raise_descriptors(settings: GatewaySettings) -> None:
    """Let this process have as many descriptors as its settings may need. ConfigError if it may not."""
    connections = (
        settings.max_connections
        + len(settings.addresses) * strangers.ALL_STRANGERS_FACTOR * settings.connections_per_address
    )
    wanted = door.PER_CONNECTION * connections + SPARE_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise ConfigError(
            f"these bounds of connections may need {wanted:,} open files, and the system allows {hard:,}: "
            "raise its limit (ulimit -n, or LimitNOFILE of systemd), or lower the bounds"
        )
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def serve(client: AsyncClient, settings: GatewaySettings, announce: Callable[[Gateway, str], None]) -> Counters:
    """Serve until a signal comes, and return what was done. A second signal ends the process at once.

    *announce* gets the gateway and its address when it listens. ConfigError if the gateway cannot start.
    """
    raise_descriptors(settings)
    gateway = Gateway(client, settings)
    loop, asked = asyncio.get_running_loop(), asyncio.Event()

    def stop(number: int) -> None:
        if asked.is_set():
            gateway.close()
            os._exit(128 + number)
        asked.set()

    before = {number: signal.getsignal(number) for number in (*stop_signals(), signal.SIGHUP)}
    for number in stop_signals():
        loop.add_signal_handler(number, stop, number)  # it wakes the loop also if another thread gets the signal
    reloads = set[asyncio.Task[bool]]()  # the loop itself keeps only weak references to tasks

    def reload() -> None:
        reloads.add(task := loop.create_task(gateway.reload()))
        task.add_done_callback(reloads.discard)

    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        address = await gateway.start()
        gc.collect()
        gc.freeze()  # what lasts as long as the process is not looked through again, which would stop all for a moment
        announce(gateway, address)
        await asked.wait()
        await gateway.stop()
        return gateway.totals()
    finally:
        gateway.close()
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
