"""The leases of a client in the wheel of its timer: lost at their time, told once, never after they were settled."""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from shardq import Client, Delivery, Queue
from shardq.client.leases import DeliveryLease, Leases, delivered, note_results
from shardq.model import Received
from shardq.ops.settle.settle import Settled
from shardq.testing import ManualClock
from shardq.timing import ThreadTimer, Timer
from shardq.timing.aside import Aside
from tests.waiting import eventually

NOWHERE = "redis://127.0.0.1:1"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timer(clock: ManualClock) -> Timer:
    return Timer(clock=clock)


@pytest.fixture
def leases(timer: Timer, clock: ManualClock) -> Leases:
    return Leases(timer, clock, lambda function: function())


class Told:
    """A worker's side of a lease: what it was told."""

    def __init__(self) -> None:
        self.lost = self.shortened = 0

    def on_lease_lost(self, job: object) -> None:
        """The lease is lost."""
        self.lost += 1

    def on_lease_shortened(self, job: object) -> None:
        """The deadline is earlier than it was."""
        self.shortened += 1


def watched(lease: DeliveryLease) -> list[str]:
    """What *lease* tells, from now on."""
    told: list[str] = []
    lease.when_lost(lambda: told.append("lost"))
    return told


def to(clock: ManualClock, timer: Timer, time: float) -> None:
    """Let the time come, and what is due by then run."""
    clock.advance(max(0.0, time - clock.monotonic()))
    timer.run_due()


def received(deadline: float) -> Received:
    return Received("1-1-0", "t", 1, deadline, b"x", "b", {}, "", 0, 0.0, "0:1-1:1:holder")


def delivery_of(row: Received, queue: Queue) -> Delivery:
    (delivery,) = delivered(Delivery, [row], queue)
    return delivery


def test_a_lease_is_lost_at_its_deadline_and_tells_it_once(leases: Leases, clock: ManualClock, timer: Timer) -> None:
    lease = leases.hold(10.0)
    told = watched(lease)
    to(clock, timer, 9.99)
    assert (lease.lost, told, len(timer)) == (False, [], 1)
    to(clock, timer, 10.0)
    assert (lease.lost, told, len(timer)) == (True, ["lost"], 0)
    to(clock, timer, 100.0)
    assert told == ["lost"]


def test_the_clock_decides_also_while_the_timer_is_held_up(leases: Leases, clock: ManualClock, timer: Timer) -> None:
    """A suspended machine: the clock has jumped, and the timer's thread did not run yet."""
    held = [leases.hold(10.0 + number) for number in range(100)]
    told = [watched(lease) for lease in held]
    clock.advance(3600)
    assert all(lease.lost for lease in held)
    timer.run_due()
    assert told == [["lost"]] * 100


@pytest.mark.parametrize("late", [False, True])
def test_a_settled_lease_is_not_lost_and_tells_nothing(
    leases: Leases, clock: ManualClock, timer: Timer, late: bool
) -> None:
    """Also one that was settled after its deadline by the local clock, which is earlier than the server's."""
    lease = leases.hold(10.0)
    told = watched(lease)
    if late:
        clock.advance(10.5)
    lease.settle()
    assert (lease.lost, len(timer)) == (False, 0)
    to(clock, timer, 100.0)
    lease.lose()  # a second ack was refused
    lease.when_lost(lambda: told.append("lost"))
    assert (lease.lost, told) == (False, [])


def test_a_lease_that_redis_ended_is_lost_at_once(leases: Leases, clock: ManualClock, timer: Timer) -> None:
    lease = leases.hold(10.0)
    told = watched(lease)
    lease.lose()
    lease.lose()
    assert (lease.lost, told, len(timer)) == (True, ["lost"], 0)
    assert watched(lease) == ["lost"], "who asks later is told at once"
    lease.move(100.0)
    assert lease.lost, "an answer that comes late does not bring it back"


def test_an_extension_moves_the_end(leases: Leases, clock: ManualClock, timer: Timer) -> None:
    """It takes no second entry; the one that is there comes up at the old deadline and goes in again."""
    lease = leases.hold(10.0)
    told = watched(lease)
    for deadline in (20.0, 30.0):
        lease.move(deadline)
    assert len(timer) == 1
    to(clock, timer, 29.9)
    assert (lease.lost, told, len(timer)) == (False, [], 1)
    to(clock, timer, 30.0)
    assert (lease.lost, told) == (True, ["lost"])


def test_a_lease_can_be_made_shorter(leases: Leases, clock: ManualClock, timer: Timer) -> None:
    lease, holder = leases.hold(10.0), Told()
    told, lease.holder = watched(lease), (holder, None)
    lease.move(2.0)
    assert holder.shortened == 1
    to(clock, timer, 2.0)
    assert (told, holder.lost) == (["lost"], 1)


@pytest.mark.parametrize("seen", [True, False])
def test_lost_is_lost(leases: Leases, clock: ManualClock, timer: Timer, seen: bool) -> None:
    """The server's deadline is later than the holder's, so a late extension can succeed: too late if one had looked."""
    lease = leases.hold(10.0)
    told = watched(lease)
    clock.advance(10.1)
    assert not seen or lease.lost
    lease.move(20.0)
    assert lease.lost == seen
    timer.run_due()
    assert (told, lease.lost, len(timer)) == ((["lost"], True, 0) if seen else ([], False, 1))
    to(clock, timer, 20.0)
    assert (told, lease.lost) == (["lost"], True)


def test_against_a_list_that_is_scanned(rng: Random, leases: Leases, clock: ManualClock, timer: Timer) -> None:
    """A naive oracle: at each moment, what the wheel told is what a scan of all leases finds."""
    held: list[DeliveryLease] = []
    ends: list[float | None] = []  # None: settled; -1: Redis said that it is lost
    told: Counter[int] = Counter()
    expected: set[int] = set()
    for _ in range(1000):
        what, number = rng.random(), rng.randrange(max(1, len(held)))
        now = clock.monotonic()
        end = ends[number] if held else None
        live = end is not None and end > now
        if what < 0.3 or not held:
            ends.append(now + rng.choice((0.0, 0.003, rng.random() * 3)))
            held.append(lease := leases.hold(ends[-1] or now))
            lease.when_lost(partial(told.update, [len(held) - 1]))
        elif what < 0.45 and live:
            ends[number] = now + rng.random() * 3
            held[number].move(ends[number] or now)
        elif what < 0.6 and live:
            ends[number] = None
            held[number].settle()
        elif what < 0.65 and live:
            ends[number] = -1
            held[number].lose()
        else:
            clock.advance(rng.random() * 0.2)
            timer.run_due()
            clock.advance(0.001)  # a tick: what a time between two ticks was rounded up to
            timer.run_due()
        now = clock.monotonic()
        expected |= {at for at, end in enumerate(ends) if end is not None and end <= now - 0.001}
        assert expected <= set(told)
        assert all(end is not None and end <= now for end in map(ends.__getitem__, told))
        assert [lease.lost for lease in held] == [end is not None and end <= now for end in ends]
    to(clock, timer, clock.monotonic() + 0.001)
    assert set(told.values()) == {1}
    assert len(timer) == sum(lease.state == "held" and not lease.lost for lease in held)


# --- with a client -------------------------------------------------------------------------------------------------


def test_a_callback_gets_the_delivery_in_a_thread_of_its_own() -> None:
    """It may take long, and may fail: neither holds up the timer or the callbacks after it."""
    clock, go = ManualClock(), threading.Event()
    seen: list[Delivery | str] = []
    with Client.from_url(NOWHERE, clock=clock) as client:
        deliveries = [delivery_of(received(10.0), client.queue("q", create=True)) for _ in range(3)]

        def slow(delivery: Delivery) -> None:
            go.wait(30)
            seen.append(delivery)
            sys.exit(1)

        for delivery in deliveries:
            delivery.on_lost(slow)
        clock.advance(11.0)
        other = client.timer.call_later(0.0, lambda: seen.append("the timer goes on"))
        eventually(lambda: not other.pending and seen)
        assert seen == ["the timer goes on"]
        go.set()
        eventually(lambda: len(seen) == 4)
        assert seen == ["the timer goes on", *deliveries]


def test_a_callback_that_was_due_is_not_called_after_the_delivery_was_settled() -> None:
    clock = ManualClock()
    waiting: list[Callable[[], object]] = []
    with Client.from_url(NOWHERE, clock=clock) as client:
        client.leases.call = waiting.append  # a thread that does not get on
        first, second = (delivery_of(received(10.0), client.queue("q", create=True)) for _ in range(2))
        seen: list[Delivery] = []
        for delivery in (first, second):
            delivery.on_lost(seen.append)
        clock.advance(11.0)
        eventually(lambda: len(waiting) == 2)
        assert note_results([first, second], [Settled.OK, Settled.LOST]) == [second]
        for function in waiting:
            function()
        assert (seen, first.lost, second.lost) == ([second], False, True)


def test_a_failing_callback_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with Client.from_url(NOWHERE) as client, caplog.at_level(logging.ERROR, "shardq"):
        delivery = delivery_of(received(0.0), client.queue("q", create=True))
        delivery.on_lost(lambda _: 1 / 0)
        eventually(lambda: "ZeroDivisionError" in caplog.text)


def test_a_delivery_that_is_forgotten_is_freed_at_once() -> None:
    """What is left in the wheel until the deadline holds neither the payload nor the client."""
    gc.disable()
    try:
        client = Client.from_url(NOWHERE)
        row = received(client.clock.monotonic() + 3600)
        before = sys.getrefcount(row)
        delivery = delivery_of(row, client.queue("q", create=True))
        assert len(client.timer) == 1
        del delivery
        assert sys.getrefcount(row) == before
        refs: list[weakref.ref[object]] = [weakref.ref(client), weakref.ref(client.timer)]
        del client
        assert [ref() for ref in refs] == [None, None], "the wheel keeps neither itself nor the client"
    finally:
        gc.enable()


def test_a_closed_client_tells_nothing_but_the_clock_still_decides() -> None:
    clock = ManualClock()
    client = Client.from_url(NOWHERE, clock=clock)
    queue = client.queue("q", create=True)
    seen: list[Delivery] = []
    delivery = delivery_of(received(10.0), queue)
    delivery.on_lost(seen.append)
    client.close()
    late = delivery_of(received(10.0), queue)  # a read that was under way
    late.on_lost(seen.append)
    delivery._lease.move(20.0)
    clock.advance(15.0)
    assert (delivery.lost, late.lost) == (False, True)
    assert len(client.timer) == 0


def test_closing_does_not_wait_for_what_the_timer_runs() -> None:
    go = threading.Event()
    with Client.from_url(NOWHERE) as client:
        busy = threading.Event()

        def run() -> None:
            busy.set()
            go.wait(60)

        client.timer.call_later(0.0, run)
        assert busy.wait(30)
        client.close()
    go.set()


@pytest.mark.runs_in("test-all")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_a_timer_of_its_own() -> None:
    """The parent is told of the parent's leases, and the child of its own."""
    clock = ManualClock()
    with Client.from_url(NOWHERE, clock=clock) as client:
        queue = client.queue("q", create=True)
        seen: list[str] = []
        delivery = delivery_of(received(10.0), queue)
        delivery.on_lost(lambda _: seen.append("the parent's"))
        assert len(client.timer) == 1
        child = os.fork()
        if child == 0:
            code = 1
            try:
                own = delivery_of(received(10.0), queue)
                own.on_lost(lambda _: seen.append("the child's"))
                assert len(client.timer) == 1
                clock.advance(11.0)
                eventually(lambda: seen)
                assert (seen, own.lost, delivery.lost) == (["the child's"], True, True)
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert seen == []
        clock.advance(11.0)
        eventually(lambda: seen == ["the parent's"])


def test_idle_clients_have_no_thread() -> None:
    """The timer's starts with the first lease, that of callbacks with the first callback, which it does not outlive."""

    def names() -> set[str]:
        return {each.name for each in threading.enumerate()} & {"shardq-timer", "shardq-callbacks"}

    before = names()
    clock = ManualClock()
    with Client.from_url(NOWHERE, clock=clock) as client:
        assert not client.timer._thread
        delivery = delivery_of(received(10.0), client.queue("q", create=True))
        assert client.timer._thread
        told = threading.Event()
        delivery.on_lost(lambda _: told.set())
        assert not client._aside._running
        clock.advance(11.0)
        assert told.wait(30)
        eventually(lambda: not client._aside._running)
    eventually(lambda: names() <= before)


def test_many_threads_hand_functions_over() -> None:
    """Each runs once, and the thread may end and start anew between any two of them."""
    aside, ran = Aside(), Counter[int]()

    def work(base: int) -> None:
        for number in range(base, base + 500):
            aside(partial(ran.update, [number]))

    threads = [threading.Thread(target=work, args=(base,)) for base in range(0, 4000, 500)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: not aside._running)
    assert ran == dict.fromkeys(range(4000), 1)


def test_settling_races_the_clock() -> None:
    """Whatever the order, a lease that was settled is not lost, and no entry is left."""
    clock = ManualClock()
    timer = ThreadTimer(clock=clock)
    leases = Leases(timer, clock, lambda function: function())
    with timer:
        for _ in range(300):
            lease = leases.hold(clock.monotonic() + 0.001)
            lease.move(clock.monotonic() + 0.002)
            clock.advance(0.001)
            mover = threading.Thread(target=lambda lease=lease: lease.move(clock.monotonic() + 5))
            mover.start()
            clock.advance(0.001)
            lease.settle()
            mover.join()
            lease.settle()
            assert not lease.lost
        eventually(lambda: len(timer) == 0)
