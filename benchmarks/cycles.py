"""Cycles: messages of quiet tenants that are written, read and acked, in queues that differ by one feature."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from benchmarks.report import Table, times, us
from benchmarks.rounds import Contender, middle, ratio, take_runs
from benchmarks.settings import Place
from shardq import Client, Queue

PAYLOAD: Final = b"x" * 100


def make_queue(place: Place, client: Client, name: str, **settings: Any) -> Queue:
    """A new queue with the streams that the benchmark's settings say."""
    chosen = place.settings
    made = client.queue(
        f"{name}-{uuid.uuid4().hex[:8]}",
        streams=chosen.streams,
        streams_per_shard=chosen.per_shard,
        visibility_timeout=600.0,
        **settings,
    )
    made.declare()
    return made


def cost_table(place: Place, server: Any, name: str, title: str, queues: Mapping[str, Queue]) -> Table:
    """What a cycle costs in each queue, in batches and one at a time, beside the first. The keys say what differs."""
    chosen = place.settings
    sizes = {chosen.batch: chosen.messages, 1: max(20, chosen.messages // 5)}
    contenders = [
        Contender(_said(text, batch), messages, _running(queue, messages, batch))
        for text, queue in queues.items()
        for batch, messages in sizes.items()
    ]
    runs = take_runs(server, contenders, chosen.rounds, chosen.seed)
    reference = next(iter(queues))
    rows = []
    for text in queues:
        for batch in sizes:
            own, other = runs[_said(text, batch)], runs[_said(reference, batch)]
            ratios = [times(ratio(own, other, what)) for what in ("server", "wall")]
            rows.append((_said(text, batch), us(middle(own, "server")), *ratios))
    return Table(
        name,
        title,
        place.described(),
        ("written, read and acked", "server CPU", "of none", "by the clock"),
        rows,
        data={each: [run._asdict() for run in found] for each, found in runs.items()},
    )


def _said(text: str, batch: int) -> str:
    return f"{text}, one at a time" if batch == 1 else f"{text}, in batches of {batch}"


def _running(queue: Queue, messages: int, batch: int) -> Callable[[], None]:
    """Write, read and ack *messages* for quiet tenants; with results, if the queue keeps them."""
    result = PAYLOAD if queue.state.config.result_ttl is not None else None
    return (
        (lambda: _singles(queue, messages, result)) if batch == 1 else lambda: _batches(queue, messages, batch, result)
    )


def _singles(queue: Queue, messages: int, result: bytes | None) -> None:
    for number in range(messages):
        queue.write(PAYLOAD, shard_key=f"t{number % 1000}")
        delivery = queue.read()
        if result is None:
            delivery.ack()
        else:
            delivery.ack(result=result)


def _batches(queue: Queue, messages: int, batch: int, result: bytes | None) -> None:
    for start in range(0, messages, batch):
        queue.write_many([(PAYLOAD, f"t{number % 1000}") for number in range(start, start + batch)])
        left = batch
        while left:
            found = queue.read_many(left)
            left -= len(found)
            assert not queue.ack_many(found, results=[result] * len(found) if result else None)
