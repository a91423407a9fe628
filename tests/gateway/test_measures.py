"""What a gateway stores is measured as what any client writes: by queue, with what the queue refuses."""

from __future__ import annotations

import pytest

from shardq import AsyncClient
from shardq.telemetry.instruments import DURATION, REFUSED, SENT
from tests.gateway.conftest import Start, TokenFile
from tests.gateway.producer import batch, request
from tests.gateway.test_traces import stored
from tests.telemetry.measuring import tally_on, values

pytestmark = pytest.mark.once


async def test_what_is_stored_and_what_is_refused(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile
) -> None:
    await redis_client.queue(queue_name, create=True, max_len=3).declare()
    sent = batch(*(request(number, queue_name) for number in range(1, 4)))
    with tally_on() as tally:
        await stored(start, tokens, tokens.add("t"), sent)
    assert values(tally, SENT) == {("write",): 3}
    assert {key: sum(value.counts) for key, value in values(tally, DURATION).items()}["write",] == 1
    assert values(tally, REFUSED) == {}
