"""What the samples of a queue say of a pause: that there is one, and when it ends."""

from __future__ import annotations

import pytest

from shardq.exporter.poller import Poller
from shardq.exporter.queues import QueueSamples
from shardq.testing import fake_client


@pytest.mark.parametrize(("seconds", "told"), [(None, []), (3600.0, [3600.0])], ids=["without an end", "with an end"])
def test_a_pause_that_ends_by_itself_says_when(seconds: float | None, told: list[float]) -> None:
    client = fake_client()
    queue = client.queue("jobs", streams=4)
    queue.write("payload", shard_key="acme")
    queue.pause(seconds=seconds)
    samples = {each.instrument.text: each.value for each in QueueSamples(Poller(client), ["jobs"]).samples()}
    assert samples["shardq_queue_paused"] == 1
    left = [value for name, value in samples.items() if name == "shardq_queue_pause_left_seconds"]
    assert left == pytest.approx(told, abs=60)
    queue.resume()
    samples = {each.instrument.text: each.value for each in QueueSamples(Poller(client), ["jobs"]).samples()}
    assert samples["shardq_queue_paused"] == 0
    assert "shardq_queue_pause_left_seconds" not in samples
