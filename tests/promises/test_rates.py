"""A rate is kept: so much is delivered as it says, whoever has it, and never more than that and a burst.

Time passes by moving every time that is stored, so that what passes is the same on a machine that is busy.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardq import Limits, Queue
from tests.conformance.walk.elapsing import elapse
from tests.conformance.walk.ledger import look
from tests.conformance.world import raw_client
from tests.promises.conftest import OpenQueue

RATE, BURST = 50, 500
"""A bucket is full after 10 s without a read: a machine that stands still for a while loses nothing."""
SPAN, STEP = 20_000, 1_000
"""ms in all, and between two reads."""

RATES: dict[str, Callable[[Queue], object]] = {
    "a tenant's own": lambda queue: queue.set_limits({"t": Limits(rate=RATE, burst=BURST)}),
    "of each tenant": lambda queue: queue.configure(rate=RATE, burst=BURST),
    "of the queue": lambda queue: queue.configure(total_rate=RATE, total_burst=BURST),
}


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("batch", [10, 100])
@pytest.mark.runs_in("test-all")
def test_a_rate_is_kept_over_twenty_seconds(open_queue: OpenQueue, server_url: str, rate: str, batch: int) -> None:
    queue = open_queue(streams=4, streams_per_shard=4, window=1)
    queue.write_many([(number, "t") for number in range(BURST + 2 * RATE * SPAN // 1000)])
    RATES[rate](queue)

    def take() -> int:
        """All that may be delivered now."""
        found = 0
        while some := queue.read_many(batch):
            assert queue.ack_many(some) == []
            found += len(some)
        return found

    began, passed, count = queue.stats().time * 1000, 0, 0
    with raw_client(server_url) as raw:
        while passed < SPAN:
            count += take()
            seconds = (passed + queue.stats().time * 1000 - began) / 1000
            assert count <= BURST + RATE * seconds + 1
            elapse(raw, queue.state.keys, look(raw, queue.state.keys), STEP)
            passed += STEP
    before = (passed + queue.stats().time * 1000 - began) / 1000
    count += take()
    seconds = (passed + queue.stats().time * 1000 - began) / 1000
    assert 0.995 * RATE * before - 1 <= count - BURST <= RATE * seconds + 1
