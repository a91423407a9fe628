"""A server's clock that is wrong for a while: nobody is limited for long, and no live lease is taken."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from shardq import Client, Delivery, Limits, Queue
from tests.fault.server.test_clock import HOUR, Shimmed
from tests.parts import GCC
from tests.promises.conftest import OpenClient, OpenQueue
from tests.servers import ServerKind
from tests.waiting import eventually

pytestmark = pytest.mark.runs_in("test-all")
DAY = 24 * HOUR
RATE, BURST = 2, 3
SOON = 8.0
"""Seconds within which a pause of one second is over, also on a busy machine."""


@pytest.fixture
def server(kind: ServerKind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shimmed]:
    """A server whose clock can be moved, in place of the usual one."""
    GCC.need()
    with Shimmed(kind, tmp_path_factory.mktemp("clock")) as server:
        yield server


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Both kinds of client on the default server."""
    if "client_kind" in metafunc.fixturenames:
        metafunc.parametrize("client_kind", ["sync"], indirect=True)


def move(server: Shimmed, milliseconds: int) -> None:
    """Set the clock so much off the true time, and wait until the server has noticed."""
    server.jump(milliseconds)
    eventually(
        lambda: abs(server.run("TIME")[0] * 1000 - (time.time() * 1000 + milliseconds)) < 5_000, what="the clock's jump"
    )


def limit_tenant(queue: Queue) -> None:
    queue.set_limits({"t": Limits(rate=RATE, burst=BURST)})


def limit_each(queue: Queue) -> None:
    queue.configure(rate=RATE, burst=BURST)


def limit_queue(queue: Queue) -> None:
    queue.configure(total_rate=RATE, total_burst=BURST)


RATES: dict[str, Callable[[Queue], None]] = {each.__name__: each for each in (limit_tenant, limit_each, limit_queue)}


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    queue = open_queue(streams=4, streams_per_shard=2, window=1, visibility_timeout=60)
    queue.write("-", shard_key="-")
    queue.read().ack()
    return queue


def all_tokens(queue: Queue) -> list[Delivery]:
    """What may be delivered at once, which is acked: the tenant has nothing in flight, and has to wait."""
    found = []
    while some := queue.read_many(10):
        assert queue.ack_many(some) == []
        found += some
    return found


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("ahead", [HOUR, DAY])
def test_a_clock_that_was_ahead_for_a_while_blocks_nobody_for_longer_than_a_burst(
    server: Shimmed, client: Client, rate: str, ahead: int
) -> None:
    """While it was ahead all tokens were used up, and a reader saw that there are none. It looks again as soon as the
    clock is right, and so much time later.

    There are several queues, so that one which happens to look around in this instant does not hide the others.
    """
    queues = [client.queue(f"queue-{number}", create=True, streams=4) for number in range(10)]
    for queue in queues:
        queue.write_many([(number, "t") for number in range(20)])
        RATES[rate](queue)
    move(server, ahead)
    for queue in queues:
        assert len(all_tokens(queue)) >= BURST
    move(server, 0)
    found = [len(all_tokens(queue)) for queue in queues]
    now = queues[0].stats().time
    eventually(lambda: queues[0].stats().time > now + BURST / RATE + 0.1, what="so much time")
    found = [before + len(queue.read_many(1)) for before, queue in zip(found, queues, strict=True)]
    assert 0 not in found


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_a_clock_that_goes_wrong_and_is_put_right_gives_at_most_one_burst_more(
    server: Shimmed, queue: Queue, rate: str, jump: int
) -> None:
    RATES[rate](queue)
    queue.write_many([(number, "t") for number in range(200)])
    started = time.monotonic()
    count = len(all_tokens(queue))
    for milliseconds in (jump, 0):
        move(server, milliseconds)
        count += len(all_tokens(queue))
    elapsed = time.monotonic() - started
    assert count <= 2 * BURST + RATE * elapsed + 1


@pytest.mark.parametrize("whose", ["t", None])
def test_a_pause_that_was_made_while_the_clock_was_ahead_lasts_no_longer_than_it_says(
    server: Shimmed, queue: Queue, whose: str | None
) -> None:
    move(server, DAY)
    queue.pause(whose, seconds=1)
    queue.write("work", shard_key="t")
    assert queue.read_many(10) == []
    move(server, 0)
    assert queue.read_many(1, block=SOON)


@pytest.mark.parametrize("limits", [Limits(max_in_flight=1), Limits(rate=0.001, burst=1)], ids=str)
def test_limits_that_were_given_while_the_clock_was_ahead_end_no_later_than_they_say(
    server: Shimmed, queue: Queue, limits: Limits
) -> None:
    move(server, DAY)
    queue.set_limits({"t": limits}, seconds=1)
    queue.set_weights({"t": 3}, seconds=1)
    queue.write_many([(number, "t") for number in range(2)])
    assert len(queue.read_many(10)) == 1
    move(server, 0)
    assert queue.read_many(1, block=SOON)
    eventually(lambda: not queue.limits() and not queue.weights(), what="the end")


@pytest.mark.parametrize("jumps", [(-HOUR,), (HOUR, 0), (-HOUR, 0), (DAY, -DAY, 0)], ids=str)
def test_limits_that_end_do_so_wherever_the_clock_jumps(server: Shimmed, queue: Queue, jumps: tuple[int, ...]) -> None:
    queue.write_many([(number, "t") for number in range(3)])
    queue.set_limits({"t": Limits(max_in_flight=1)}, seconds=1)
    assert len(queue.read_many(10)) == 1
    for milliseconds in jumps:
        move(server, milliseconds)
        queue.stats()
    assert queue.read_many(10, block=SOON), "it lasts no longer than a second from the last jump on"
    assert queue.limits() == {}


@pytest.mark.parametrize("window", [0, 1])
@pytest.mark.parametrize("jump", [HOUR, DAY, -HOUR])
def test_the_first_read_of_a_new_client_after_a_jump_takes_no_live_lease(
    server: Shimmed, open_client: OpenClient, window: int, jump: int
) -> None:
    """It has seen nothing of the clock before."""
    queue = open_client().queue("leased", create=True, streams=4, visibility_timeout=120, window=window)
    queue.write("work", shard_key="t")
    held = queue.read()
    move(server, jump)
    fresh: Client = open_client()
    for _ in range(5):
        assert fresh.queue("leased").read_many(10) == [], "the holder of this message works on it"
    held.ack()


def test_a_jump_to_and_fro_takes_no_live_lease_of_a_client_that_reads_on(server: Shimmed, queue: Queue) -> None:
    queue.write_many([(number, f"t{number}") for number in range(20)])
    held = queue.read_many(20, visibility_timeout=120)
    for milliseconds in (HOUR, 0, -HOUR, 0):
        move(server, milliseconds)
        for _ in range(3):
            assert queue.read_many(20) == []
    assert queue.ack_many(held) == []


@pytest.mark.parametrize("streams_per_shard", [1, 4])
def test_first_deliveries_come_in_order_while_the_clock_jumps(
    server: Shimmed, open_queue: OpenQueue, streams_per_shard: int
) -> None:
    queue = open_queue(streams=4, streams_per_shard=streams_per_shard, window=1, visibility_timeout=600)
    came = []
    for number, milliseconds in enumerate((0, HOUR, 0, -HOUR, 0)):
        move(server, milliseconds)
        queue.write_many([(6 * number + n, "t") for n in range(6)])
        found = queue.read_many(2)
        came += [each.payload for each in found]
        assert queue.ack_many(found) == []
    while found := queue.read_many(3):
        came += [each.payload for each in found]
        assert queue.ack_many(found) == []
    assert came == [*range(30)]
