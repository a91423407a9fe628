"""Run a gateway until it is asked to stop: SIGTERM and SIGINT drain it, SIGHUP reads the tokens anew."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from shardq.client import AsyncClient
from shardq.gateway.counters import Counters
from shardq.gateway.server import Gateway
from shardq.gateway.settings import GatewaySettings
from shardq.worker.signals import stop_signals


async def serve(client: AsyncClient, settings: GatewaySettings, announce: Callable[[Gateway, str], None]) -> Counters:
    """Serve until a signal comes, and return what was done. A second signal ends the process at once.

    *announce* gets the gateway and its address when it listens. ConfigError if the gateway cannot start.
    """
    gateway = Gateway(client, settings)
    loop, asked = asyncio.get_running_loop(), asyncio.Event()

    def stop(number: int) -> None:
        if asked.is_set():
            os._exit(128 + number)
        asked.set()

    before = {number: signal.getsignal(number) for number in (*stop_signals(), signal.SIGHUP)}
    for number in stop_signals():
        loop.add_signal_handler(number, stop, number)  # it wakes the loop also if another thread gets the signal
    loop.add_signal_handler(signal.SIGHUP, gateway.reload)
    try:
        announce(gateway, await gateway.start())
        await asked.wait()
        await gateway.stop()
        return gateway.totals()
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
