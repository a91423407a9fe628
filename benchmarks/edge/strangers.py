"""What an honest producer notices of strangers and of another token that floods.

Round trips, one after the other, alone and beside each attack.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import redis

from benchmarks.edge.contest import line_of, process
from benchmarks.edge.producer import QUEUE
from benchmarks.edge.stranger import ATTACKS
from benchmarks.processes import cpu_of, peak
from benchmarks.report import Table, Target, times
from benchmarks.settings import Place
from shardq import Client
from shardq.datasink import messages
from shardq.gateway.tokens import fresh_token
from tests.gateway.flood import KINDS

ALONE = "alone"
CHECK = "/grpc.health.v1.Health/Check"
OWN = [("grpc.use_local_subchannel_pool", 1)]
CONNECTIONS = 64
"""Those of the token that floods."""
LEAST = 3.0
"""Seconds of round trips, at least: for one percent of them to be some."""
WARM = 2.0
"""Seconds that an attack has before its effects are measured."""


@dataclass
class Seen:
    """Seconds of round trips on one connection, and of health checks over new ones; and what failed."""

    trips: list[float] = field(default_factory=list)
    checks: list[float] = field(default_factory=list)
    failed: int = 0
    cpu: float = 0.0

    @property
    def p99(self) -> float:
        """That of the round trips."""
        return sorted(self.trips)[len(self.trips) * 99 // 100]


def beside_strangers(where: Place) -> Table:
    """A gateway with one honest producer, and each attack for some seconds."""
    seconds = max(LEAST, where.settings.seconds)
    (secret, first), (floods, second) = fresh_token(), fresh_token()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        tokens = Path(folder) / "tokens.toml"
        tokens.write_text("".join(map(_token, ("honest", "floods"), (first, second))))
        with redis.from_url(where.url) as plain, Client.from_url(where.url) as client:
            plain.flushall()
            client.queue(QUEUE, streams=16).read_many(1)
        words = ("gateway", "--tokens", str(tokens), "--listen", "127.0.0.1:0", "--redis", where.url, "--json")
        gateway = stack.enter_context(process("shardq.cli", *words))
        address = json.loads(line_of(gateway))["address"]
        seen: dict[str, Seen] = {}
        for name, program in _attacks(address, floods).items():
            with ExitStack() as attack:
                if program:
                    line_of(attack.enter_context(process(*program)))
                    time.sleep(WARM)
                before = cpu_of(gateway.pid)
                seen[name] = asyncio.run(_observe(address, secret, seconds))
                seen[name].cpu = (cpu_of(gateway.pid) - before) / seconds
            time.sleep(WARM)  # until the gateway has noticed that they are gone
        memory = peak([gateway.pid])
    return _table(where, seen, seconds, memory)


def _token(name: str, digest: str) -> str:
    words = f'name = "{name}"\nsha256 = "{digest}"\nqueues = ["{QUEUE}*"]\nshard_keys = ["*"]\none_tenant = true\n'
    return f"[[tokens]]\n{words}"


def _attacks(address: str, token: str) -> dict[str, tuple[str, ...]]:
    """The programs that attack: strangers, and producers with a *token*."""
    strangers = {name: ("benchmarks.edge.stranger", address, name) for name in ATTACKS}
    producers = {
        f"a token's {CONNECTIONS} connections: {name}": (
            "tests.gateway.flood", address, token, name, str(CONNECTIONS), QUEUE,
        )
        for name in KINDS
    }  # fmt: skip
    return {ALONE: (), **strangers, **producers}


async def _observe(address: str, secret: str, seconds: float) -> Seen:
    """Send one message after the other, and ask twice a second over a new connection how the gateway is."""
    seen, until = Seen(), time.monotonic() + seconds

    async def check() -> None:
        while time.monotonic() < until:
            began = time.monotonic()
            async with grpc.aio.insecure_channel(address, options=OWN) as channel:
                try:
                    await channel.unary_unary(CHECK)(b"", timeout=20)
                except grpc.RpcError:
                    seen.failed += 1
            seen.checks.append(time.monotonic() - began)
            await asyncio.sleep(0.5)

    async def trips() -> None:
        async with grpc.aio.insecure_channel(address, options=OWN) as channel:
            call: Any = channel.stream_stream(messages.SEND)(metadata=(("authorization", f"Bearer {secret}"),))
            await call.read()
            while not seen.trips or time.monotonic() < until:
                began = time.monotonic()
                await call.write(_request())
                answer = messages.Response.FromString(await call.read())
                seen.failed += answer.WhichOneof("response") != "ack"
                seen.trips.append(time.monotonic() - began)
                await asyncio.sleep(0.002)
            call.cancel()

    await asyncio.gather(check(), trips())
    return seen


def _request() -> bytes:
    made = messages.Request(version=messages.VERSION, message_id=os.urandom(12), queue=QUEUE, shard_key=b"t")
    made.plain_message = b"x" * 200
    return bytes(made.SerializeToString())


def _table(where: Place, seen: dict[str, Seen], seconds: float, memory: int) -> Table:
    alone = seen[ALONE]
    rows: list[tuple[str, ...]] = [
        (
            name, f"{1000 * each.p99:.1f} ms", times(each.p99 / alone.p99), f"{1000 * max(each.checks):.0f} ms",
            f"{each.failed}", f"{each.cpu:.0%}",
        )
        for name, each in seen.items()
    ]  # fmt: skip
    worst = max(seen.values(), key=lambda each: each.p99)
    slowest = max(max(each.checks) for each in seen.values())
    machine = f"{os.cpu_count()} cores ({platform.machine()}), load {os.getloadavg()[0]:.1f}"
    return Table(
        "edge_strangers",
        "An honest producer beside strangers, and beside a token that floods",
        f"{where.server.name}, no AOF, loopback; {machine}, Python {platform.python_version()}; {seconds:.0f} s each; "
        f"the gateway held {memory / 1e6:.0f} MB at most",
        ("", "99 % of round trips within", "of alone", "slowest health check", "failed", "gateway's CPU"),
        rows,
        [
            Target("the producer's p99 beside any attack, of alone", worst.p99 / alone.p99, 3, most=True),
            Target("the producer's p99 beside any attack", 1000 * worst.p99, 100, most=True, unit=" ms"),
            Target("the slowest health check", slowest, 1, most=True, unit=" s"),
        ],
        {name: {"trips": each.trips, "checks": each.checks, "failed": each.failed} for name, each in seen.items()},
    )
