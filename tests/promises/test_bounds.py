"""What a call touches does not grow with what the queue holds: no call looks at a whole index, however large it is.

Each index gets far more members than one call may look at, and the commands of each call are watched: none asks for all
members of something large, and there are no more of them than a call of that kind may run. Nothing is measured by time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from shardq import Limits, Message, Queue
from tests.promises.conftest import OpenQueue, lone
from tests.promises.watching import Command, names, unbounded, watched
from tests.servers import Server
from tests.waiting import eventually

pytestmark = [pytest.mark.runs_in("test-all"), pytest.mark.timeout(600)]
MANY = 20_000
"""Members of an index: four times as many as a call may look at, so that each call which looks at all is seen. That is
told by the commands, which are the same for 10^5 members."""

PAUSES = 9_000
"""The first engine can have no more than 10,000 limits and pauses at once."""

OF_A_CALL = 400
OF_A_MESSAGE = 60
"""Commands that one call may run inside Redis, and those for each message of a batch beside them. Both are far above
what is needed, and far below what one command for each member would be."""


def written(queue: Queue, messages: Sequence[Message]) -> None:
    for start in range(0, len(messages), 5_000):
        queue.write_many(messages[start : start + 5_000], timeout=120)


def each_tenant(count: int = MANY, **settings: float) -> list[Message]:
    return [Message(b"", f"t{number}", **settings) for number in range(count)]  # type: ignore[arg-type]


def read_all(queue: Queue, most: int, visibility: float = 600) -> None:
    """Have so many messages in flight."""
    found = 0
    while found < most:
        some = queue.read_many(min(1000, most - found), visibility_timeout=visibility)
        assert some
        found += len(some)


def after(queue: Queue, seconds: float) -> None:
    now = queue.stats().time
    eventually(lambda: queue.stats().time > now + seconds, 120, every=0.05, what="so much time")


def limited(queue: Queue) -> None:
    """Tenants whose next token is there, while the queue has all in flight that it may have."""
    queue.configure(rate=0.5, burst=1)
    written(queue, each_tenant())
    written(queue, each_tenant())
    read_all(queue, MANY)
    queue.configure(total_in_flight=MANY)
    after(queue, 3)


def limited_below_the_cap(queue: Queue) -> None:
    """Tenants with a token due, and the queue may deliver."""
    queue.configure(rate=0.5, burst=1)
    written(queue, each_tenant())
    written(queue, each_tenant())
    read_all(queue, MANY)
    assert len(queue.read_many(1)) <= 1
    after(queue, 3)


def in_flight(queue: Queue) -> None:
    written(queue, each_tenant())
    read_all(queue, MANY)


def leases_over(queue: Queue) -> None:
    """Leases that ended together."""
    written(queue, each_tenant())
    read_all(queue, MANY, visibility=20)
    written(queue, each_tenant(100))
    after(queue, 21)


def delayed(queue: Queue) -> None:
    written(queue, each_tenant(delay=600))


def due(queue: Queue) -> None:
    """Delays that are over."""
    written(queue, each_tenant(delay=1))
    after(queue, 2)


def dead(queue: Queue) -> None:
    written(queue, each_tenant())
    found = 0
    while found < MANY:
        some = queue.read_many(1000)
        assert queue.reject_many(some, "no") == []
        found += len(some)


def paused(queue: Queue) -> None:
    """Tenants that are paused."""
    for number in range(PAUSES):
        queue.pause(f"t{number}")
    written(queue, each_tenant(PAUSES))


def pauses_over(queue: Queue) -> None:
    """Pauses that ended by themselves; messages waited for the end of each."""
    written(queue, each_tenant(PAUSES))
    for number in range(PAUSES):
        queue.pause(f"t{number}", seconds=15)
    assert len(queue.read_many(1)) <= 1
    after(queue, 16)


def own_limits(queue: Queue) -> None:
    queue.set_limits({f"t{number}": Limits(max_in_flight=1, rate=0.001, burst=1) for number in range(PAUSES)})
    written(queue, each_tenant(PAUSES))
    written(queue, each_tenant(PAUSES))
    read_all(queue, PAUSES)


def idle(queue: Queue) -> None:
    """Tenants with a rate that had something a moment ago."""
    queue.configure(rate=0.001, burst=1)
    written(queue, each_tenant())
    found = 0
    while found < MANY:
        some = queue.read_many(1000)
        assert queue.ack_many(some) == []
        found += len(some)


def unique(queue: Queue) -> None:
    written(queue, [Message(b"", f"t{number}", unique_key=f"k{number}") for number in range(MANY)])


def waiting(queue: Queue) -> None:
    """Tenants that each have more than their window."""
    written(queue, each_tenant())
    written(queue, each_tenant())


INDEXES: dict[str, Callable[[Queue], None]] = {
    each.__name__: each
    for each in (
        limited, limited_below_the_cap, in_flight, leases_over, delayed, due, dead, paused, pauses_over, own_limits,
        idle, unique, waiting,
    )
}  # fmt: skip


def calls(queue: Queue) -> dict[str, tuple[int, Callable[[], object]]]:
    """The calls that are watched, and how many messages each is about."""

    def ack() -> None:
        if found := queue.read_many(1):
            found[0].ack()

    return {
        "an empty read or one message": (1, lambda: queue.read_many(1)),
        "a batch": (100, lambda: queue.read_many(100)),
        "a read and its ack": (2, ack),
        "len": (1, queue.len),
        "stats": (1, queue.stats),
        "write": (1, lambda: queue.write("more", shard_key="other")),
        "write of one of them": (1, lambda: queue.write("more", shard_key="t7")),
        "tenant": (1, lambda: queue.tenant("t7")),
        "pause": (1, lambda: queue.pause("another", seconds=1)),
    }


@lone
@pytest.mark.parametrize("index", INDEXES)
def test_no_call_looks_at_all_of_a_large_index(open_queue: OpenQueue, server: Server, index: str) -> None:
    queue = open_queue(streams=64, streams_per_shard=4, window=1, max_dead=10**6, visibility_timeout=600)
    INDEXES[index](queue)
    found: dict[str, object] = {}
    for name, (messages, call) in calls(queue).items():
        with watched(server) as seen:
            call()
        if looked := unbounded(server, seen):
            found[name] = looked[0]
        if (count := inside(seen)) > (most := OF_A_CALL + OF_A_MESSAGE * messages):
            found[f"{name}, {count} commands, at most {most}"] = names(seen).most_common(3)
    assert found == {}


def inside(commands: Sequence[Command]) -> int:
    return sum(each.inside for each in commands)
