"""Jobs that fail: an outage costs no message a delivery, and a message that makes its batches fail is found."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shardq import Client
from shardq.client import Queue
from shardq.errors import ConfigError
from shardq.spark import consuming, settle_failed
from tests.spark.consume.queries import consuming_query, drain, is_done, supervise
from tests.waiting import eventually

pytestmark = [pytest.mark.timeout(600), pytest.mark.runs_in("test-all")]


def fill(queue: Queue, count: int) -> None:
    for first in range(0, count, 5000):
        queue.write_many([(b"%d" % at, f"tenant-{at % 10}") for at in range(first, min(count, first + 5000))])


class Store:
    """An idempotent sink: it keeps each message once, by its id. It may be down, and some payloads it cannot take."""

    def __init__(self, poison: set[bytes] | None = None) -> None:
        self.poison = poison or set()
        self.up = threading.Event()
        self.up.set()
        self.tries: Counter[int] = Counter()
        self.rows: dict[str, bytes] = {}

    def __call__(self, df: Any, batch: int = 0) -> None:
        rows = df.select("message_id", "payload").collect()
        if not rows:
            return
        self.tries[len(rows)] += 1
        if not self.up.is_set():
            raise ConnectionError("the sink is down")
        if bad := [row.payload for row in rows if bytes(row.payload) in self.poison]:
            raise ValueError(f"no number in {len(bad)} rows")
        self.rows |= {row.message_id: bytes(row.payload) for row in rows}

    @property
    def numbers(self) -> list[int]:
        """What it has, sorted."""
        return sorted(map(int, self.rows.values()))


def work_in_blocks(spark: Any, url: str, queue: Queue, store: Store, over: Callable[[], bool]) -> None:
    """Blocks, one after the other, whatever becomes of them."""
    while not over():
        try:
            with consuming(spark, url=url, queue=queue.name) as df:
                store(df)
        except (ConnectionError, ValueError):
            continue


@pytest.fixture
def outage() -> Iterator[Store]:
    """A sink that is down for as long as it takes to try several times."""
    store = Store()
    store.up.clear()
    yield store
    store.up.set()


def over_after(queue: Queue, store: Store, tries: int) -> Callable[[], bool]:
    """Let the sink come back after so many tries."""

    def over() -> bool:
        if store.tries.total() >= tries:
            store.up.set()
        return is_done(queue)

    return over


def test_an_outage_of_the_sink_costs_no_message_a_delivery(spark: Any, url: str, queue: Queue, outage: Store) -> None:
    """Though each may be delivered twice only, and there are 30 failed blocks."""
    fill(queue, 2000)
    work_in_blocks(spark, url, queue, outage, over_after(queue, outage, 30))
    assert outage.numbers == [*range(2000)]
    assert (queue.stats().dead, queue.stats().acked) == (0, 2000)
    assert {1, 2000} <= outage.tries.keys()


@pytest.mark.parametrize("tell", [True, False])
def test_an_outage_costs_no_message_of_a_streaming_query_a_delivery(
    spark: Any, url: str, queue: Queue, outage: Store, tmp_path: Path, tell: bool
) -> None:
    """Also if nobody tells the queue of the failure: then each micro-batch is tried twice as it was."""
    fill(queue, 2000)
    over = over_after(queue, outage, 3)
    supervise(spark, url, outage, tmp_path / "checkpoint", over, tell=tell, subscribe=queue.name)
    assert outage.numbers == [*range(2000)]
    assert (queue.stats().dead, queue.stats().acked) == (0, 2000)
    assert outage.tries[2000] == (1 if tell else 2)


@pytest.mark.parametrize(("count", "poison"), [(200, {b"77"}), (10_000, {b"5", b"4711", b"9999"})])
def test_exactly_the_poison_is_rejected(spark: Any, url: str, queue: Queue, count: int, poison: set[bytes]) -> None:
    fill(queue, count)
    store = Store(poison)
    work_in_blocks(spark, url, queue, store, lambda: is_done(queue))
    rejected(queue, poison)
    assert store.numbers == sorted({*range(count)} - {*map(int, poison)})


def rejected(queue: Queue, poison: set[bytes]) -> None:
    """Exactly these are dead letters, and each says why."""
    letters = queue.dead(100)
    assert {each.body for each in letters} == poison
    for each in letters:
        assert each.reason.startswith("ValueError: no number in 1 rows ("), each.reason
        assert each.count == 1


def test_a_streaming_query_gets_past_a_poison_message_and_blames_no_other_queue(
    spark: Any, url: str, client: Client, queue: Queue, tmp_path: Path
) -> None:
    other = client.queue(f"{queue.name}-other", streams=2, max_deliveries=2)
    fill(queue, 100)
    other.write_many([(b"%d" % at, "t") for at in range(100, 200)])
    store = Store({b"17"})
    supervise(
        spark,
        url,
        store,
        tmp_path / "checkpoint",
        lambda: is_done(queue) and is_done(other),
        subscribe=f"{queue.name},{other.name}",
    )
    rejected(queue, {b"17"})
    assert other.dead(10) == []
    assert store.numbers == sorted({*range(200)} - {17})


def test_what_is_told_of_a_query_that_did_not_fail_in_a_micro_batch(
    spark: Any, url: str, queue: Queue, tmp_path: Path
) -> None:
    """One that runs, one that ended well, and one whose last micro-batch is committed."""
    fill(queue, 10)
    store = Store()
    query = consuming_query(spark, url, store, tmp_path / "a", {"processingTime": "1 hour"}, subscribe=queue.name)
    eventually(lambda: query.lastProgress is not None, 120)
    with pytest.raises(ConfigError, match="still runs"):
        settle_failed(query, url=url)
    query.stop()
    settle_failed(query, url=url)
    assert queue.stats().in_flight == 10
    drain(spark, url, store, tmp_path / "a", subscribe=queue.name)
    assert (queue.stats().acked, store.numbers) == (10, [*range(10)])
