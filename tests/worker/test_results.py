"""What a handler returns is its message's result, wherever the handler runs; and a child process says it, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardq import AsyncDelivery, Client, Delivery, MessageDead, NoResult, Queue
from shardq.backoff import Constant
from shardq.model import DeliveryView
from tests.waiting import eventually
from tests.worker import handlers
from tests.worker.conftest import Begin
from tests.worker.running import FunctionKind, RunningWorker


@pytest.fixture
def kept(client: Client) -> Queue:
    """The queue `jobs`, which keeps results."""
    queue = client.queue("jobs", streams=8, max_deliveries=2, result_ttl=60, max_result_size=1000)
    queue.declare()
    return queue


def doubled(delivery: DeliveryView) -> Any:
    if delivery.payload == "fail":
        raise ValueError("boom")
    return delivery.payload * 2


def test_what_a_handler_returns_is_the_result(kept: Queue, begin: Begin) -> None:
    ids = [kept.write(number, shard_key=f"t{number % 9}") for number in range(600)]
    fails = kept.write("fail", shard_key="t")
    large = kept.write("x" * 600, shard_key="t")
    running = begin(doubled, concurrency=8, backoff=Constant(0))
    assert [kept.result(each, timeout=60) for each in ids] == [number * 2 for number in range(600)]
    with pytest.raises(MessageDead, match="max deliveries"):
        kept.result(fails, timeout=60)
    eventually(lambda: kept.status(large).reason == "size")
    running.stop()
    stats = kept.stats()
    assert (stats.acked, stats.in_flight, stats.result_count, stats.results_refused) == (601, 0, 601, 1)


def test_the_progress_of_what_is_done_is_forgotten(jobs: Queue, begin: Begin, functions: FunctionKind) -> None:
    def tell(delivery: Delivery) -> None:
        assert delivery.progress(1, 2)

    async def tell_async(delivery: AsyncDelivery) -> None:
        assert await delivery.progress(1, 2)

    ids = [jobs.write(number, shard_key=f"t{number}") for number in range(20)]
    running = begin(tell if functions == "plain" else tell_async, functions=functions)
    eventually(lambda: jobs.stats().acked == len(ids))
    running.stop()
    assert [jobs.status(each).state for each in ids] == ["unknown"] * len(ids)
    assert (jobs.stats().result_count, jobs.stats().result_bytes) == (0, 0)


def test_a_worker_keeps_no_results_before_the_queue_does(jobs: Queue, begin: Begin) -> None:
    first = jobs.write(1, shard_key="t")
    running = begin(doubled)
    eventually(lambda: jobs.stats().acked == 1)
    assert jobs.status(first).state == "unknown"
    jobs.configure(result_ttl=60)

    def kept() -> bool:
        """It learns of the setting with a read, so the messages of that read have no results yet."""
        try:
            return bool(jobs.result(jobs.write(29, shard_key="t"), timeout=60) == 58)
        except NoResult:
            return False

    eventually(kept)
    running.stop()


@pytest.mark.runs_in("test-all")
def test_a_child_process_says_what_it_returns(
    kept: Queue, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDQ_TEST_LOG", str(tmp_path / "log"))
    ids = {payload: kept.write(payload, shard_key="t") for payload in ("fine", "none", "odd", "long")}
    with RunningWorker("sync", url, "jobs", handlers.returning, run_in="processes", concurrency=2) as running:
        assert kept.result(ids["fine"], timeout=60) == {"fine": [1, None]}
        assert kept.result(ids["none"], timeout=60) is None
        for payload, reason in (("odd", "codec"), ("long", "size")):
            eventually(lambda name=payload, why=reason: kept.status(ids[name]).reason == why)  # type: ignore[misc]
        running.stop()
