"""What real workers did in real time, replayed under other settings: as real workers do under these."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from shardq import Client, Delivery, Worker
from shardq.jobs.making import LiveQueue, make, settings_if_there
from shardq.whatif.alternative import Alternative
from shardq.whatif.history import History
from shardq.whatif.outcome import waits_of
from shardq.whatif.replay import Replayed, replayed
from shardq.whatif.server import MovedServer
from shardq.whatif.tables import recorded
from tests.servers import Server

pytestmark = [pytest.mark.runs_in("test-all"), pytest.mark.once]

JOBS = [("flood", 0.2), ("flood", 0.3), ("quiet", 0.2), ("flood", 0.4)] * 20
"""Whose they are, and for how long each runs, in seconds."""


def handle(delivery: Delivery) -> None:
    time.sleep(delivery.payload)


def played(
    server: Server, name: str, path: Path, workers: int, slots: int, weights: Mapping[Any, int] | None = None
) -> History:
    """Let real workers do all jobs, which are written before they come. Return the history that `shardq jobs` tells."""
    with Client.from_url(server.url) as client:
        queue = client.queue(name, journal=10_000)
        queue.declare()
        if weights:
            queue.set_weights(weights)
        for key, seconds in JOBS:
            queue.write(seconds, shard_key=key)
        clients = [Client.from_url(server.url, name=f"w{number}") for number in range(workers)]
        crew = [Worker(each.queue(name), handle, concurrency=slots, signals=False, until="empty") for each in clients]
        threads = [Thread(target=each.run) for each in crew]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for each in clients:
            each.close()
        make(LiveQueue(client, [name]), path / name, lambda *of: settings_if_there(client, *of))
    history = recorded(path / name).history(name)
    assert history is not None
    return history


def waits_in(history: History, found: Replayed, key: str | None = None) -> list[float]:
    return [
        (ran.first_at or 0.0) - each.ready_at
        for each, ran in zip(history.arrivals, found.jobs, strict=True)
        if key in (None, each.shard_key)
    ]


def waits_of_history(history: History, key: str | None = None) -> list[float]:
    return [each.waited or 0.0 for each in history.arrivals if key in (None, each.shard_key)]


def test_more_slots_come_out_as_they_do(server: Server, tmp_path: Path) -> None:
    was = played(server, "was", tmp_path, workers=2, slots=2)
    assert [each.slots for each in was.stays] == [2, 2]  # as the workers told
    truth = waits_of(waits_of_history(played(server, "truth", tmp_path, workers=2, slots=8)))
    with MovedServer() as moved:
        same = waits_of(waits_in(was, replayed(was, Alternative("same"), moved)))
        told = waits_of(waits_in(was, replayed(was, Alternative("more", workers=2, slots=8), moved)))
    assert told.p99 == pytest.approx(truth.p99, rel=0.1, abs=0.25)
    assert same.p99 == pytest.approx(waits_of(waits_of_history(was)).p99, rel=0.1, abs=0.25)
    assert (told.p99 or 0.0) < (same.p99 or 0.0)


def test_weights_come_out_as_they_do(server: Server, tmp_path: Path) -> None:
    was = played(server, "was", tmp_path, workers=1, slots=4)
    heavy = played(server, "truth", tmp_path, 1, 4, {"flood": 9})
    with MovedServer() as moved:
        same = replayed(was, Alternative("same"), moved)
        told = replayed(was, Alternative("weighted", weights={"flood": 9}), moved)
    for key in ("flood", "quiet"):
        truth = waits_of(waits_of_history(heavy, key))
        assert waits_of(waits_in(was, told, key)).p99 == pytest.approx(truth.p99, rel=0.1, abs=0.25)
    assert half(waits_of_history(was, "quiet")) < half(waits_of_history(heavy, "quiet"))
    assert half(waits_in(was, same, "quiet")) < half(waits_in(was, told, "quiet"))


def half(waits: list[float]) -> float:
    return waits_of(waits).p50 or 0.0
