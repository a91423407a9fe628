"""Producer, gateway and Redis are killed again and again while batches go through them: each message is stored once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

import pytest

from shardq import Client
from shardq.edge import Edge, EdgeMessage
from shardq.edge.effort import Effort
from tests.edge.test_end_to_end import drained
from tests.gateway.conftest import GatewayProcess, run_gateway
from tests.selection import SOAK
from tests.servers import Server
from tests.waiting import eventually

__all__ = ["run_gateway"]  # pytest finds the fixture here

pytestmark = [pytest.mark.once, pytest.mark.runs_in("test-all", "soak"), pytest.mark.timeout(3_600 if SOAK else 180)]
Run = Callable[..., GatewayProcess]
MESSAGES: Final = 400_000 if SOAK else 16_000
KILLS: Final = 60 if SOAK else 9
AT_ONCE: Final = 200
VICTIMS: Final = ("producer", "gateway", "server")

MOST: Final = 2**17
"""Bytes of prefixes here."""

SENDS: Final = """
import sys
from shardq.edge import Edge, EdgeMessage, effort, prefixes
if sys.argv[4] == "prefixes":
    effort.Effort.uses_prefix, prefixes.MOST = True, int(sys.argv[5])
edge = Edge(sys.argv[1], spool=sys.argv[2])
for at in range(0, 1_000_000, 200):
    edge.send_many(EdgeMessage(f"{sys.argv[3]}.{each} and what all have, ".encode() * 6, f"t-{each % 7}", "jobs")
                   for each in range(at, at + 200))
    print(at + 200, flush=True)
    sys.stdin.readline()
"""
"""It tells how many it has put, and goes on when it is told to."""


class Producer:
    """A producer in a process of its own. `put` counts the messages that it told to have put."""

    def __init__(self, gateway: str, spool: Path, name: str, frames: str) -> None:
        command = [sys.executable, "-c", SENDS, gateway, str(spool), name, frames, str(MOST)]
        self.name, self.put = name, 0
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def put_some(self) -> None:
        """Let it put `AT_ONCE` more, and wait until it has."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self.put:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        self.put = int(self._process.stdout.readline())

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def messages(self) -> set[bytes]:
        return {f"{self.name}.{each} and what all have, ".encode() * 6 for each in range(self.put)}


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Server]:
    """A server that may be killed, and keeps what it has acknowledged."""
    with Server(directory=tmp_path / "data") as server:
        yield server


@pytest.fixture
def server_url(own: Server) -> str:
    return own.url


def restarted(gateway: GatewayProcess, run_gateway: Run) -> GatewayProcess:
    """Another gateway, in the place of one that is killed."""
    listen = gateway.address
    gateway.signal(signal.SIGKILL)
    gateway.end()
    Path(listen.removeprefix("unix:")).unlink(missing_ok=True)
    return run_gateway("--insecure", listen=listen)


def put_until_a_prefix_is_in_use(edge: Edge) -> set[bytes]:
    """Put messages until their frames are made with what went before; these."""
    put = set[bytes]()
    while edge._delivering._prefixes.use is None:
        some = {b"%06d, of the end" % each * 10 for each in range(len(put), len(put) + AT_ONCE)}
        edge.send_many(EdgeMessage(each, "t", "jobs") for each in some)
        edge.flush(600)
        put |= some
    return put


@pytest.mark.parametrize("frames", ["batches", "prefixes"])
def test_kills_of_producers_gateways_and_servers_lose_and_double_nothing(
    own: Server, run_gateway: Run, tmp_path: Path, rng: Random, frames: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while frames are made with what went before, which a gateway that is killed has forgotten."""
    if frames == "prefixes":
        monkeypatch.setattr(Effort, "uses_prefix", True)
        monkeypatch.setattr("shardq.edge.prefixes.MAX_PREFIX_BYTES", MOST)
    listen, spool, wanted, lives = f"unix:{tmp_path}/gateway", tmp_path / "s.db", set[bytes](), 0
    with Client.from_url(own.url, timeout=60) as client:
        queue = client.queue("jobs", streams=4)
        queue.declare()
        gateway, producer = run_gateway("--insecure", listen=listen), Producer(listen, spool, "life-0", frames)
        rounds = [KILLS * at // (MESSAGES // AT_ONCE) for at in range(MESSAGES // AT_ONCE)]
        for before, number in zip([0, *rounds], rounds, strict=False):
            producer.put_some()
            if number == before:
                continue
            stored = queue.len()
            eventually(lambda stored=stored: queue.len() > stored, 60)  # type: ignore[misc]
            victim = VICTIMS[number % 3] if number < 4 else rng.choice(VICTIMS)
            if victim == "producer":
                producer.kill()
                wanted |= producer.messages()
                lives += 1
                producer = Producer(listen, spool, f"life-{lives}", frames)
            elif victim == "gateway":
                gateway = restarted(gateway, run_gateway)
            else:
                own.restart()
        producer.kill()
        wanted |= producer.messages()
        assert len(wanted) == MESSAGES
        with Edge(listen, spool=spool) as edge:
            if frames == "prefixes":
                wanted |= put_until_a_prefix_is_in_use(edge)
                gateway = restarted(gateway, run_gateway)
                edge.send_many(EdgeMessage(b"%d, the last" % each, "t", "jobs") for each in range(2 * AT_ONCE))
                wanted |= {b"%d, the last" % each for each in range(2 * AT_ONCE)}
            edge.flush(600)
            assert edge.status().spool.refused == 0
        found = drained(queue)
    assert found == Counter(wanted), "each was stored, and once"
