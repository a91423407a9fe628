"""The parts that both clients need to keep results and to note progress."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, final

from shardq.arguments import shown
from shardq.errors import ConfigError
from shardq.ops.results.keep import Results, kept_result

if TYPE_CHECKING:
    from shardq.client.async_queue import AsyncQueue
    from shardq.client.leases import LeasedDelivery
    from shardq.client.queue import Queue

PACE: Final = 1.0
"""Seconds between two notes of progress of one delivery."""

MAX_AMOUNT: Final = 2.0**53


@final
class Nothing:
    """The result of an ack that keeps none."""

    def __repr__(self) -> str:
        """How it is shown in signatures."""
        return "NOTHING"


NO_VALUE: Final = Nothing()


def results_of(queue: Queue | AsyncQueue, deliveries: Sequence[LeasedDelivery], results: Sequence[Any]) -> Results:
    """Return the *results* of *deliveries*, encoded. ConfigError if the queue keeps none, or they are not as many."""
    config = queue.state.config
    if config.result_ttl is None:
        raise ConfigError(f"queue {queue.name!r} keeps no results: set its result_ttl")
    if not isinstance(results, Sequence) or isinstance(results, (str, bytes, bytearray, memoryview)):
        raise ConfigError(f"results must be a list; this is of type {type(results).__name__}")
    if len(results) != len(deliveries):
        raise ConfigError(f"{len(deliveries)} deliveries need as many results, not {len(results)}")
    return [
        (delivery.received, kept_result(queue.client.codecs, config.max_result_size, value))
        for delivery, value in zip(deliveries, results, strict=True)
    ]


def checked_progress(done: float, total: float | None, note: str) -> None:
    """ConfigError unless these can be noted as progress."""
    _check_amount("done", done)
    if total is not None:
        _check_amount("total", total)
    if not isinstance(note, str):
        raise ConfigError(f"note must be a str, not {shown(note)}")


def _check_amount(name: str, value: object) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= MAX_AMOUNT:  # type: ignore[operator]
        raise ConfigError(f"{name} must be a number from 0 to 2**53, not {shown(value)}")
