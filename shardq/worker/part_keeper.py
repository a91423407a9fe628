"""What extends the leases of a worker of a queue with partitions: each in its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from shardq.client import Client
from shardq.errors import ShardqError
from shardq.model import Received
from shardq.ops.queue.retry import ask
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.queue.together import run_together
from shardq.ops.settle import settle
from shardq.worker.beats import Pulse
from shardq.worker.keeper import Keeper, KeeperEvents
from shardq.worker.plan import Plan
from shardq.worker.state import Job

T = TypeVar("T")


class PartKeeper(Keeper):
    """Does as `Keeper`. The worker's beats make trips of their own, since its reads go now here, now there."""

    _patience = 0.0

    def __init__(
        self, client: Client, queue_state: QueueState, plan: Plan, events: KeeperEvents, pulse: Pulse | None = None
    ) -> None:
        super().__init__(client, queue_state, plan, events, pulse)
        self._states: dict[int, QueueState] = {}
        self._cancels: Mapping[int, Any] = {}  # by partition; nothing of one in which no message was cancelled

    @property
    def _beats_alone(self) -> bool:
        return self._pulse is not None

    def _extended(
        self, jobs: Sequence[Job], received: Sequence[Received], duration: float | None
    ) -> Sequence[settle.Settled]:
        dealt = _dealt(jobs)

        def each(head: QueueState) -> Op[list[list[settle.Settled]]]:
            return _all_of(
                [
                    settle.extend(self._state(head, part), [received[at] for at in every], duration, self._timeout)
                    for part, every in dealt.items()
                ]
            )

        results: dict[int, settle.Settled] = {}
        for every, some in zip(dealt.values(), self._run(each), strict=True):
            results.update(zip(every, some, strict=True))
        return [results[at] for at in range(len(jobs))]

    def _count_cancels(self, now: float, held: Sequence[Job]) -> object:
        parts = [*_dealt(held)]

        def each(head: QueueState) -> Op[list[Any]]:
            states = [self._state(head, part) for part in parts]
            return _all_of([ask(state, "HGET", state.keys.meta, "cancelled") for state in states])

        counts = zip(parts, self._run(each), strict=True)
        return {**self._cancels, **{part.number: count for part, count in counts if count is not None}}

    def _state(self, head: QueueState, part: Any) -> QueueState:
        """Return the keeper's own state of a partition."""
        found = self._states.get(part.number)
        if found is None:
            client: Any = self._client
            found = self._states[part.number] = client.state_of_part(head, part.number, part.state.keys.name)
        return found


def _dealt(jobs: Sequence[Job]) -> dict[Any, list[int]]:
    """Return the indexes of *jobs* by the partitions that they are of."""
    found: dict[Any, list[int]] = {}
    for at, job in enumerate(jobs):
        delivery: Any = job.delivery
        found.setdefault(delivery._queue, []).append(at)
    return found


def _all_of(ops: Sequence[Op[T]]) -> Op[list[T]]:
    """Run *ops* at once. Return what they return, or raise the error of the first."""
    found: list[T] = []
    for outcome in (yield from run_together(ops)):
        if isinstance(outcome, ShardqError):
            raise outcome
        found.append(outcome)
    return found
