"""What Redis said of a queue is taken whole: whatever other threads look up meanwhile, no call mixes two epochs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shardq.ops.queue.opening import remember
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call
from shardq.ops.write.command import call_of, positions_of
from shardq.protocol.replies import NOTHING_ASSIGNED
from shardq.spark.ops.bulk import BulkOffset, _call
from shardq.spark.ops.rows import Rows
from shardq.testing import ManualClock
from tests.unit.driving import state_of
from tests.unit.wire import write_head


def meta(epoch: str, streams: int) -> dict[str, str]:
    """What Redis says of a queue."""
    return {
        "epoch": epoch,
        "created": "1",
        "id": "1-x",
        "streams": str(streams),
        "wanted": str(streams),
        "assigned": "",
        "streams_per_shard": "2",
    }


class Overtaken(list[str]):
    """Shard keys; when somebody goes through them, another thread has just looked the queue up."""

    def __init__(self, state: QueueState, streams: int, keys: list[str]) -> None:
        super().__init__(keys)
        self._state, self._streams = state, streams

    def __getitem__(self, part: Any) -> Any:
        found = super().__getitem__(part)
        return Overtaken(self._state, self._streams, found) if isinstance(part, slice) else found

    def __iter__(self) -> Iterator[str]:
        remember(self._state, meta("2", self._streams), NOTHING_ASSIGNED, created=False, known=True)
        return super().__iter__()


@pytest.mark.parametrize(("before", "after"), [(4, 1000), (1000, 4)])
def test_a_call_is_of_one_epoch_whatever_other_threads_look_up_meanwhile(before: int, after: int) -> None:
    keys = [f"tenant-{n}" for n in range(20)]
    for bulk in (False, True):
        state = state_of(ManualClock())
        remember(state, meta("1", before), NOTHING_ASSIGNED, created=False, known=True)
        overtaken = Overtaken(state, after, keys)
        call: Call
        if bulk:
            call = _call(state, BulkOffset("w", "0"), 0, Rows(overtaken, "b", [b"x"] * 20), 0, 20)
        else:
            view = state.view
            numbers, _ = positions_of(view, overtaken)
            call = call_of(state, view, "field", 1, numbers, [[b""]] * 4)
        declared = [int(key.rpartition(":s")[2]) for key in call.keys if key.rpartition(":s")[2].isdigit()]
        assert write_head(call).epoch == "1"
        assert max(declared) < before
        assert len(declared) == (before if before == 4 else len({n for key in keys for n in _shard(before, key)}))


def _shard(streams: int, key: str) -> tuple[int, ...]:
    state = state_of(ManualClock())
    remember(state, meta("1", streams), NOTHING_ASSIGNED, created=False, known=True)
    return state.view.shard(key)


def test_who_forgets_an_epoch_keeps_the_rest_until_it_is_looked_up() -> None:
    state = state_of(ManualClock())
    state.forget()
    assert (state.epoch, state.streams, state.wanted) == ("", 4, 4)
