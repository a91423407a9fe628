"""A client of the version before partitions reads and writes beside others: nothing is lost, and doctor tells the rest.

The older client is one whose queue is never told the map: all that it asks and says is about the head, as it was then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from threading import Event, Lock, Thread

import pytest

from shardq import Client, Queue
from shardq.cli import main
from shardq.cli.findings import of_partitions
from tests.fault.partitions.beside import OTHERS, PARTITIONS, SOON, TENANTS, queue, quick
from tests.servers import Cluster
from tests.waiting import eventually

__all__ = ["queue", "quick"]  # pytest finds the fixtures here


def older(client: Client, name: str) -> Queue:
    """The queue as a client knows it that has never heard of partitions."""
    queue = client.queue(name)
    queue.state.learn = None
    return queue


@pytest.fixture
def old(cluster: Cluster, queue: Queue) -> Iterator[Queue]:
    with Client.from_url(cluster.url, timeout=SOON) as client:
        yield older(client, queue.name)


@pytest.mark.runs_in("test-all")
def test_nothing_is_lost_while_both_write_and_read_and_the_queue_is_resized(cluster: Cluster, queue: Queue) -> None:
    lock, over, failed = Lock(), Event(), list[Exception]()
    written, read = Counter[str](), Counter[str]()

    def write(queue: Queue, name: str) -> None:
        number = 0
        while not over.is_set():
            some = [(f"{name}.{number + at}", TENANTS[(number + at) % len(TENANTS)]) for at in range(3)]
            queue.write(some[0][0], shard_key=some[0][1])
            queue.write_many(some[1:])
            number += 3
            with lock:
                written.update(payload for payload, _ in some)

    def consume(queue: Queue, name: str) -> None:
        while not (over.is_set() and queue.len() == 0):
            found = queue.read_many(5, block=0.1)
            with lock:
                read.update(str(each.payload) for each in found)
            assert queue.ack_many(found) == [], name

    def run(number: int) -> None:
        try:
            with Client.from_url(cluster.url, timeout=SOON) as client:
                its = older(client, queue.name) if number % 2 else client.queue(queue.name)
                (write, consume)[number // 2](its, f"writer-{number}")
                assert (its.state.parts is None) == bool(number % 2)
        except Exception as error:  # noqa: BLE001 (the test raises it)
            failed.append(error)

    threads = [Thread(target=run, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    try:
        for wanted in (3, 5, 2):
            queue.resize(partitions=wanted)
            before = written.total()
            eventually(lambda before=before: failed or written.total() > before + 100, SOON)  # type: ignore[misc]
    finally:
        over.set()
        for each in threads:
            each.join(SOON)
    assert failed == []
    assert read == written
    assert queue.len() == 0


def test_what_it_cannot_see_waits_for_the_others_and_doctor_tells(
    cluster: Cluster, queue: Queue, old: Queue, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It reads the head alone, so what was written elsewhere waits, and is counted by those who know of it."""
    queue.resize(partitions=PARTITIONS)
    old.write_many([(each, each) for each in TENANTS])
    queue.write_many([(f"new {each}", each) for each in OTHERS])
    assert (old.len(), queue.len()) == (len(TENANTS), len(TENANTS) + len(OTHERS))
    assert old.ack_many(found := old.read_many(100)) == []
    assert sorted(each.payload for each in found) == sorted(TENANTS)
    assert (old.len(), queue.len()) == (0, len(OTHERS))
    monkeypatch.setattr(of_partitions, "UNSEEN_SECONDS", 0.1)

    def is_told() -> bool:
        main(["--url", cluster.url, "server", "doctor", queue.name])
        return "may be of a version before partitions" in capsys.readouterr().out

    eventually(is_told, SOON)
    assert queue.ack_many(queue.read_many(100)) == []
    assert not is_told()


def test_what_it_configures_leaves_the_map_as_it_is(queue: Queue, old: Queue) -> None:
    """It changes the head alone; who knows of the others gives them all the same."""
    queue.resize(partitions=PARTITIONS)
    old.configure(max_deliveries=7)
    old.resize(8)
    assert [each.is_written for each in queue.partitions()] == [True] * PARTITIONS
    queue.write_many([(each, each) for each in TENANTS])
    assert old.len() < queue.len() == len(TENANTS)
    queue.configure(max_deliveries=9)
    assert {each.config.max_deliveries for each in queue.state.parts.states} == {9}
