"""What each level of durability survives, found by killing a primary, is what docs/durability.md says of it.

The replica hears nothing of the last writes, so it is known to the message what a promotion loses. Not tried here is a
loss of power, which takes a disk that forgets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from shardq import Client, DurabilityUnknown, Queue
from shardq.drivers import wire
from tests.conftest import Record
from tests.levels import not_survived, survives_kill, survives_promotion
from tests.servers import Replicated, Sentinels, Server, ServerKind
from tests.waiting import eventually

EARLY: Final = {f"early {number}" for number in range(10)}
"""What is written while each replica follows."""

LATE: Final = {f"late {number}" for number in range(5)}
"""What is written while one does not."""

OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "none": {"appendonly": "no"},
    "process": {"appendonly": "yes"},
    "disk": {"appendonly": "yes", "appendfsync": "always"},
    "replica(1)": {"appendonly": "yes"},
}
"""What the server has, by level. It takes writes without replicas, so that the client's own wait is what counts."""

pytestmark = [pytest.mark.runs_in("test-all"), pytest.mark.once]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica may take its time."""
    monkeypatch.setattr(wire, "REPLICA_TIMEOUT_MS", 20_000)


def opened(url: str, level: str) -> Client:
    return Client.from_url(url, timeout=60, durability=level)


def jobs(client: Client) -> Queue:
    return client.queue("jobs", streams=4, streams_per_shard=2)


def write(queue: Queue, values: set[str]) -> set[str]:
    """Write each. Return which were confirmed."""
    confirmed = set[str]()
    for each in sorted(values):
        try:
            queue.write(each, shard_key=each)
        except DurabilityUnknown:
            continue
        confirmed.add(each)
    return confirmed


def stored(url: str) -> set[str]:
    """All that can be read, each once."""
    found: list[str] = []
    with opened(url, "none") as client:
        queue = jobs(client)
        while some := queue.read_many(100):
            found += [str(each.payload) for each in some]
            assert queue.ack_many(some) == []
    assert len(found) == len({*found}), "stored twice"
    return {*found}


@contextmanager
def unheard(pair: Replicated, replica: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A replica hears nothing from now on, until the primary is dead, which is at the end."""
    replica.pause()
    try:
        pair.primary.run("CLIENT", "KILL", "TYPE", "replica")  # or what is on its way would reach it later
        others = len(pair.replicas) - 1
        eventually(lambda: pair.primary.run("WAIT", 0, 0) == others, what="the others follow again")
        with monkeypatch.context() as patched:
            if not others:
                patched.setattr(wire, "REPLICA_TIMEOUT_MS", 100)
            yield
        pair.primary.kill9()
    finally:
        replica.resume()


@pytest.mark.parametrize("level", OPTIONS)
def test_a_server_that_is_killed_and_started_has_what_the_page_says(
    kind: ServerKind | None, quick_disk: Path, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "REPLICA_TIMEOUT_MS", 1)  # it has none
    with Server(kind, directory=quick_disk, options=OPTIONS[level]) as server:
        with opened(server.url, level) as client:
            write(jobs(client), EARLY)
        server.restart()
        kept = stored(server.url)
    assert kept == (EARLY if survives_kill(level) else set())


@pytest.mark.parametrize("level", OPTIONS)
def test_a_promotion_loses_what_was_confirmed_without_the_replica_where_the_page_says_so(
    kind: ServerKind | None, quick_disk: Path, level: str, monkeypatch: pytest.MonkeyPatch, record_property: Record
) -> None:
    with Replicated(kind, folder=quick_disk, options=OPTIONS[level]) as pair:
        (replica,) = pair.replicas
        confirmed, _ = written_until_death(pair, pair.primary.url, level, monkeypatch)
        replica.run("REPLICAOF", "NO", "ONE")
        judge(level, confirmed, stored(replica.url), record_property)


@pytest.mark.parametrize("level", ["none", "replica(1)"])
def test_sentinels_lose_what_was_confirmed_without_the_replica_where_the_page_says_so(
    kind: ServerKind | None, quick_disk: Path, level: str, monkeypatch: pytest.MonkeyPatch, record_property: Record
) -> None:
    with Replicated(kind, folder=quick_disk, options=OPTIONS[level]) as pair, Sentinels(pair, kind) as sentinels:
        hosts = ",".join(f"{host}:{port}" for host, port in sentinels.addresses)
        url = f"redis+sentinel://{hosts}/{sentinels.service}/0"
        confirmed, _ = written_until_death(pair, url, level, monkeypatch)
        judge(level, confirmed, stored(url), record_property)


def written_until_death(
    pair: Replicated, url: str, level: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[set[str], str]:
    """Write some that the first replica has, and some that it lacks. Return what was confirmed, and what was acked."""
    with opened(url, level) as client:
        queue = jobs(client)
        early = write(queue, EARLY)
        assert early == EARLY
        pair.wait_in_sync()
        with unheard(pair, pair.replicas[0], monkeypatch):
            late = write(queue, LATE)
            delivery = queue.read()
            delivery.ack()
    return early | late, str(delivery.payload)


def judge(level: str, confirmed: set[str], found: set[str], record_property: Record) -> None:
    """What is lost was confirmed late, and by a level that allows it; what was acked is there again."""
    lost = confirmed - found
    record_property("note", f"promoted, {level}: {len(confirmed)} confirmed, {len(lost)} lost")
    assert found == EARLY, "an ack waits for no replica"
    if survives_promotion(level):
        assert lost == set()
    else:
        assert lost == LATE
    assert level != "disk" or "a failover" in not_survived(level)


def test_a_replica_that_lacks_what_another_confirmed_loses_it_when_it_is_promoted(
    kind: ServerKind | None, quick_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One replica confirms, the other is promoted by somebody who does not look which has more."""
    level = "replica(1)"
    with Replicated(kind, replicas=2, folder=quick_disk, options=OPTIONS[level]) as group:
        confirmed, settled = written_until_death(group, group.primary.url, level, monkeypatch)
        lacking, having = group.replicas
        for each in group.replicas:
            each.run("REPLICAOF", "NO", "ONE")
        assert confirmed == EARLY | LATE
        assert stored(lacking.url) == EARLY
        assert stored(having.url) | {settled} == confirmed
    assert "promotion of a replica that lacks it" in not_survived(level)
