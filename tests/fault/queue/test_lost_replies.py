"""A connection that breaks before or after the server acted: every script, both clients; nothing is lost or doubled."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec.structs import asdict

from shardq import (
    Client,
    Delivery,
    LeaseLost,
    Limits,
    Message,
    MessageCancelled,
    MessageNotFound,
    OutcomeUnknown,
    Queue,
)
from shardq.cli.commands.stats import COUNTERS
from tests.conformance.census import take
from tests.fault.conftest import Cutter, Open
from tests.fault.queue.bench import CHANGES, LOOKS, Bench, Furnished
from tests.proxy import Cut, Proxy, on_the_wire
from tests.servers import Server
from tests.waiting import eventually

CALLS = CHANGES | LOOKS
SOON = 15.0  # far below the lease time of 30 s: what comes back so soon did not wait for a lease to end


@pytest.fixture
def client(proxy: Proxy, open_client: Open) -> Client:
    """A client whose connections go through the proxy."""
    return open_client(proxy.url)


@pytest.fixture
def queue(client: Client, queue_name: str) -> Queue:
    """A queue that exists."""
    queue = client.queue(queue_name, streams=4, streams_per_shard=2, max_deliveries=3)
    queue.write("-", shard_key="-")
    queue.read().ack()
    return queue


@pytest.fixture
def other(server: Server, queue: Queue) -> Iterator[Queue]:
    """The same queue, seen by somebody with a good connection."""
    with Client.from_url(server.url) as client:
        yield client.queue(queue.name, create=True)


def numbers(queue: Queue) -> tuple[int, int, int, int]:
    """backlog, in flight, delayed, dead."""
    stats = queue.stats()
    return stats.backlog, stats.in_flight, stats.delayed, stats.dead


def taken(queue: Queue, **write: float) -> Delivery:
    """One message, written and read."""
    queue.write("work", shard_key="tenant", **write)  # type: ignore[call-overload]
    return queue.read(block=SOON)


def blocked(server: Server) -> int:
    """How many clients wait on the server."""
    return int(server.info("clients")["blocked_clients"])


def struck(cut: Cut) -> bool:
    return cut.struck.wait(SOON)


@pytest.mark.everywhere
def test_a_write_is_stored_once_under_the_id_that_it_returns(queue: Queue, other: Queue, lose: Cutter) -> None:
    cut = lose("write")
    message_id = queue.write("work", shard_key="tenant")
    assert struck(cut)
    assert numbers(other) == (1, 0, 0, 0)
    assert other.read().message_id == message_id


def test_a_write_that_the_window_holds_back_is_stored_once(queue: Queue, other: Queue, lose: Cutter) -> None:
    before = [other.write(number, shard_key="tenant") for number in range(20)]
    assert other.stats().held_back
    cut = lose("write")
    message_id = queue.write("work", shard_key="tenant")
    assert struck(cut)
    assert [each.message_id for each in other.read_many(50)] == [*before, message_id]


def test_the_write_that_creates_the_queue_is_stored_once(
    client: Client, other: Queue, queue_name: str, lose: Cutter
) -> None:
    fresh = client.queue(f"{queue_name}.fresh", create=True)
    cuts = [lose("open"), lose("write")]
    message_id = fresh.write("work", shard_key="tenant")
    assert all(map(struck, cuts))
    assert [each.message_id for each in fresh.read_many(10)] == [message_id]


def test_a_delayed_write_is_stored_once(queue: Queue, other: Queue, lose: Cutter) -> None:
    cut = lose("write")
    message_id = queue.write("work", shard_key="tenant", delay=0.05)
    assert struck(cut)
    assert other.read(block=SOON).message_id == message_id
    assert numbers(other) == (0, 1, 0, 0)


def test_a_write_with_a_dedup_key_is_stored_once(queue: Queue, other: Queue, lose: Cutter) -> None:
    cut = lose("write")
    message_id = queue.write("work", shard_key="tenant", dedup_key="once")
    assert struck(cut)
    assert other.write("work", shard_key="tenant", dedup_key="once") == message_id
    assert numbers(other) == (1, 0, 0, 0)


@pytest.mark.runs_in("test-all")
@pytest.mark.once
def test_a_write_is_stored_once_though_its_retry_comes_after_the_dedup_window(
    client: Client, server: Server, proxy: Proxy, queue_name: str
) -> None:
    queue = client.queue(queue_name, streams=4, dedup_window=1)
    queue.write("first", shard_key="tenant")
    write = on_the_wire("write")
    cuts = [proxy.cut_after_request(write), *(proxy.cut_before_request(write) for _ in range(500))]
    with ThreadPoolExecutor() as pool:
        writing = pool.submit(queue.write, "work", shard_key="tenant")
        assert struck(cuts[0])
        others, ends = 0, time.monotonic() + 2.0
        with Client.from_url(server.url) as active:  # and forgets what is old
            while time.monotonic() < ends:
                others += len(active.queue(queue_name, create=True).write_many([("other", "tenant")] * 5))
        proxy.heal()
        writing.result()
    assert queue.stats().written == others + 2


def test_a_batch_is_stored_once_in_order_whichever_part_is_cut(queue: Queue, other: Queue, lose: Cutter) -> None:
    cut = lose("write", skip=1)
    ids = queue.write_many([Message(str(n), "tenant") for n in range(700)])
    assert struck(cut)
    assert len(set(ids)) == 700
    assert {each.message_id: each.payload for each in other.read_many(1000)} == {
        message_id: str(n) for n, message_id in enumerate(ids)
    }


@pytest.mark.everywhere
def test_a_lost_read_costs_no_lease_time_and_counts_no_delivery(queue: Queue, other: Queue, lose: Cutter) -> None:
    ids = other.write_many([(str(n), "tenant") for n in range(20)])
    cut = lose("read")
    started = time.monotonic()
    deliveries = queue.read_many(20, block=SOON)
    assert struck(cut)
    assert time.monotonic() - started < SOON
    deliveries += queue.read_many(20)
    assert sorted(each.message_id for each in deliveries) == sorted(ids)
    assert {each.count for each in deliveries} == {1}
    assert numbers(other) == (0, 20, 0, 0)
    assert queue.ack_many(deliveries) == []


@pytest.mark.parametrize("verb", ["ack", "read"])
def test_an_ack_and_a_read_in_one_round_trip_each_happen_once_whichever_reply_is_lost(
    queue: Queue, other: Queue, lose: Cutter, verb: str
) -> None:
    before = other.stats().acked
    first = taken(queue)
    message_id = other.write("next", shard_key="tenant")
    cut = lose(verb)
    delivery = queue.read(ack=first, block=SOON)
    assert struck(cut)
    assert (delivery.message_id, delivery.count) == (message_id, 1)
    assert (first.answered, first.lost) == (True, False)
    assert (other.stats().acked - before, numbers(other)) == (1, (0, 1, 0, 0))


def test_what_a_lost_read_was_granted_leaves_nothing_behind(
    queue: Queue, other: Queue, server: Server, lose: Cutter
) -> None:
    """Nothing is remembered of a message that was never delivered, so that its ack need not forget anything."""
    other.write_many([(str(n), "tenant") for n in range(20)])
    cut = lose("read")
    deliveries = queue.read_many(20, block=SOON)
    assert struck(cut)
    other.cancel(deliveries.pop().message_id)
    assert queue.ack_many(deliveries) == []
    with server.client() as raw:
        assert take(raw, other.state.keys).problems() == []
        assert raw.hgetall(other.state.keys.errors) == {b"": b""}


def test_a_lost_first_read_of_a_client_costs_no_lease_time(
    proxy: Proxy, open_client: Open, other: Queue, lose: Cutter
) -> None:
    message_id = other.write("work", shard_key="tenant")
    cut = lose("read")
    delivery = open_client(proxy.url).queue(other.name, create=True).read(block=SOON)
    assert struck(cut)
    assert (delivery.message_id, delivery.count) == (message_id, 1)


def test_a_lost_read_is_recovered_among_thousands_in_flight(queue: Queue, other: Queue, lose: Cutter) -> None:
    other.write_many([("other", f"tenant-{n}") for n in range(2500)])
    while other.read_many(1000, visibility_timeout=20):
        pass
    message_id = other.write("work", shard_key="tenant")
    cut = lose("read")
    delivery = queue.read(block=SOON)
    assert struck(cut)
    assert (delivery.message_id, delivery.count) == (message_id, 1)


def test_a_lost_read_is_looked_for_a_page_at_a_time(
    queue: Queue, other: Queue, lose: Cutter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much is in flight, no call looks at all of it; among pages are some of others' leases alone."""
    monkeypatch.setattr("shardq.ops.read.give_back.RECOVER_PAGE", 3)
    ids = other.write_many([(str(n), "tenant") for n in range(30)])
    theirs = [delivery for _ in range(3) for delivery in other.read_many(4)]
    cut = lose("read")
    deliveries = queue.read_many(30, block=SOON)
    assert struck(cut)
    assert {each.count for each in deliveries} == {1}
    assert {each.message_id for each in [*theirs, *deliveries]} == set(ids)
    assert other.ack_many(theirs) == queue.ack_many(deliveries) == []


def test_a_redelivery_that_is_lost_keeps_its_count_and_error(queue: Queue, other: Queue, lose: Cutter) -> None:
    taken(other).nack(error="first try")
    cut = lose("read")
    delivery = queue.read(block=SOON)
    assert struck(cut)
    assert (delivery.count, delivery.last_error) == (2, "first try")


def test_recovery_survives_a_lost_reply_of_its_own(queue: Queue, other: Queue, proxy: Proxy, lose: Cutter) -> None:
    message_id = other.write("work", shard_key="tenant")
    read, recovery = proxy.cut_after_request(on_the_wire("read")), lose("recover")
    delivery = queue.read(block=SOON)
    assert struck(read)
    assert struck(recovery)
    assert (delivery.message_id, delivery.count) == (message_id, 1)


def test_a_connection_lost_while_waiting_does_not_end_the_wait(queue: Queue, proxy: Proxy) -> None:
    cuts = [proxy.cut_before_request(b"XREADGROUP"), proxy.cut_after_request(b"XREADGROUP", skip=1)]
    started = time.monotonic()
    assert queue.read_many(1, block=0.5) == []
    assert time.monotonic() - started >= 0.5
    assert struck(cuts[0])


@pytest.mark.everywhere
def test_a_message_is_not_lost_with_its_wake_up(queue: Queue, other: Queue, server: Server, proxy: Proxy) -> None:
    cut = proxy.cut_after_request(b"XREADGROUP")  # the notification is taken, and its reply lost
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(queue.read, block=SOON)
        eventually(lambda: blocked(server))
        message_id = other.write("work", shard_key="tenant")
        assert reading.result().message_id == message_id
    assert struck(cut)


@pytest.mark.parametrize("skip", [0, 1])
def test_a_replacement_happens_once(queue: Queue, other: Queue, lose: Cutter, skip: int) -> None:
    message_id = other.write("first", shard_key="tenant", unique_key="k")
    cut = lose("write" if skip else "replace")
    assert queue.write("second", shard_key="tenant", unique_key="k", on_conflict="replace") == message_id
    assert struck(cut)
    assert numbers(other) == (1, 0, 0, 0)
    delivery = other.read()
    assert (delivery.message_id, delivery.payload, delivery.count) == (message_id, "second", 1)


def test_a_replacement_that_comes_again_late_changes_nothing(queue: Queue, other: Queue, proxy: Proxy) -> None:
    """Its first try happened, the message was worked on and done, and others have the key, before it is tried again."""
    message_id = other.write("first", shard_key="tenant", unique_key="k")
    cut = proxy.cut_after_request(on_the_wire("replace"))
    with ThreadPoolExecutor() as pool:
        write = pool.submit(queue.write, "second", shard_key="tenant", unique_key="k", on_conflict="replace")
        assert struck(cut)
        delivery = other.read(block=SOON)
        delivery.ack()
        assert (delivery.payload, write.result(SOON)) == ("second", message_id)
    assert numbers(other) == (0, 0, 0, 0)


def lost_for_a_while(proxy: Proxy) -> Cut:
    """The first replacement happens, and its next tries, for some 0.3 s, do not reach the server."""
    call = on_the_wire("replace")
    for skip in (1, 2, 3):
        proxy.cut_before_request(call, skip=skip)
    return proxy.cut_after_request(call)


def test_a_replacement_that_comes_again_late_takes_no_later_one_back(queue: Queue, other: Queue, proxy: Proxy) -> None:
    message_id = other.write("first", shard_key="tenant", unique_key="k")
    cut = lost_for_a_while(proxy)
    with ThreadPoolExecutor() as pool:
        write = pool.submit(queue.write, "second", shard_key="tenant", unique_key="k", on_conflict="replace")
        assert struck(cut)
        assert other.write("third", shard_key="tenant", unique_key="k", on_conflict="replace") == message_id
        assert write.result(SOON) == message_id
    assert [each.payload for each in other.read_many(9)] == ["third"]


def test_a_replacement_that_comes_again_in_another_epoch_changes_nothing(
    queue: Queue, other: Queue, proxy: Proxy
) -> None:
    message_id = other.write("first", shard_key="tenant", unique_key="k")
    cut = lost_for_a_while(proxy)
    with ThreadPoolExecutor() as pool:
        write = pool.submit(queue.write, "second", shard_key="tenant", unique_key="k", on_conflict="replace")
        assert struck(cut)
        other.resize(6)
        other.read(block=SOON).ack()
        assert write.result(SOON) == message_id
    assert numbers(other) == (0, 0, 0, 0)


def test_a_write_that_takes_a_key_over_happens_once(queue: Queue, other: Queue, lose: Cutter) -> None:
    first = other.write("first", shard_key="tenant", unique_key="k")
    delivery = other.read()
    cut = lose("write", skip=1)  # the one after the replacement was refused
    second = queue.write("second", shard_key="tenant", unique_key="k", on_conflict="replace")
    assert struck(cut)
    assert second != first
    delivery.ack()
    assert [each.payload for each in other.read_many(9)] == ["second"]


@pytest.mark.everywhere
def test_an_ack_is_done_once(queue: Queue, other: Queue, lose: Cutter) -> None:
    delivery = taken(queue)
    cut = lose("ack")
    delivery.ack()
    assert struck(cut)
    assert numbers(other) == (0, 0, 0, 0)
    assert other.stats().acked == 2
    with pytest.raises(LeaseLost):
        delivery.ack()


def test_a_batch_of_acks_is_done_once_whichever_part_is_cut(queue: Queue, other: Queue, lose: Cutter) -> None:
    other.write_many([("work", "tenant")] * 700)
    deliveries = queue.read_many(1000)
    cut = lose("ack", skip=1)
    assert queue.ack_many(deliveries) == []
    assert struck(cut)
    assert numbers(other) == (0, 0, 0, 0)
    assert other.stats().acked == 701


def test_an_ack_of_a_cancelled_message_ends_it(queue: Queue, other: Queue, lose: Cutter) -> None:
    delivery = taken(queue)
    assert other.cancel(delivery.message_id) == "in flight"
    cut = lose("ack")
    with contextlib.suppress(MessageCancelled):  # a repeated ack only sees that the message is gone
        delivery.ack()
    assert struck(cut)
    assert numbers(other) == (0, 0, 0, 0)


def test_a_nack_gives_back_once(queue: Queue, other: Queue, lose: Cutter) -> None:
    delivery = taken(queue)
    cut = lose("nack")
    delivery.nack(error="again")
    assert struck(cut)
    assert numbers(other) == (1, 0, 0, 0)
    again = other.read()
    assert (again.message_id, again.count, again.last_error) == (delivery.message_id, 2, "again")
    assert other.read_many(1) == []


def test_a_nack_with_a_delay_gives_back_once(queue: Queue, other: Queue, lose: Cutter) -> None:
    delivery = taken(queue)
    cut = lose("nack")
    delivery.nack(delay=60)
    assert struck(cut)
    assert numbers(other) == (0, 0, 1, 0)


def test_a_last_nack_buries_once(queue: Queue, other: Queue, lose: Cutter) -> None:
    taken(queue).nack()
    queue.read().nack()
    delivery = queue.read()
    cut = lose("nack")
    delivery.nack(error="enough")
    assert struck(cut)
    assert numbers(other) == (0, 0, 0, 1)
    assert [letter.message_id for letter in other.dead()] == [delivery.message_id]


def test_a_reject_buries_once(queue: Queue, other: Queue, lose: Cutter) -> None:
    delivery = taken(queue)
    cut = lose("nack")
    delivery.reject("poison")
    assert struck(cut)
    assert [(letter.message_id, letter.reason) for letter in other.dead()] == [(delivery.message_id, "poison")]
    assert numbers(other) == (0, 0, 0, 1)


def test_an_extended_lease_is_still_held(queue: Queue, other: Queue, lose: Cutter) -> None:
    delivery = taken(queue)
    cut = lose("extend")
    delivery.extend(60)
    assert struck(cut)
    assert delivery.remaining > 30
    assert numbers(other) == (0, 1, 0, 0)
    delivery.ack()


def test_a_waiting_message_is_cancelled_once(queue: Queue, other: Queue, lose: Cutter) -> None:
    message_id = other.write("work", shard_key="tenant")
    cut = lose("cancel")
    assert queue.cancel(message_id) == "removed"
    assert struck(cut)
    assert numbers(other) == (0, 0, 0, 0)
    assert other.stats().cancelled == 1


def test_a_message_in_flight_is_cancelled_once(queue: Queue, other: Queue, lose: Cutter) -> None:
    delivery = taken(other)
    cut = lose("cancel")
    assert queue.cancel(delivery.message_id) == "in flight"
    assert struck(cut)
    with pytest.raises(MessageCancelled):
        delivery.ack()
    assert numbers(other) == (0, 0, 0, 0)
    assert other.stats().cancelled == 1


@pytest.mark.parametrize("over", ["acked", "never written"])
def test_what_is_over_is_not_cancelled_by_a_cancel_that_is_tried_again(
    queue: Queue, other: Queue, lose: Cutter, over: str
) -> None:
    message_id = "1795893997505-99999-0"
    if over == "acked":
        message_id = other.write("work", shard_key="tenant")
        other.read().ack()
    cut = lose("cancel")
    with pytest.raises(MessageNotFound):
        queue.cancel(message_id)
    assert struck(cut)
    assert other.stats().cancelled == 0


def test_a_dead_letter_stays_though_its_cancel_is_tried_again(queue: Queue, other: Queue, lose: Cutter) -> None:
    delivery = taken(other)
    delivery.reject("poison")
    cut = lose("cancel")
    assert queue.cancel(delivery.message_id) == "dead"
    assert struck(cut)
    assert numbers(other) == (0, 0, 0, 1)


def test_a_cancel_that_comes_once_more_cancels_nothing_that_was_written_since(
    queue: Queue, other: Queue, proxy: Proxy
) -> None:
    """A network held its request back. Its caller was told that the letter is dead, and redrove it."""
    delivery = taken(other)
    delivery.reject("poison")
    requests = proxy.copies(on_the_wire("cancel"))
    assert queue.cancel(delivery.message_id) == "dead"
    assert queue.redrive(queue.dead()) == 1
    proxy.deliver(requests[0])
    assert numbers(other) == (1, 0, 0, 0)


def test_dead_letters_are_redriven_once(queue: Queue, other: Queue, lose: Cutter) -> None:
    ids = other.write_many([(str(n), "tenant") for n in range(3)])
    for delivery in other.read_many(3):
        delivery.reject("poison")
    cut = lose("redrive")
    assert queue.redrive(queue.dead()) == 3
    assert struck(cut)
    assert numbers(other) == (3, 0, 0, 0)
    assert sorted(each.message_id for each in other.read_many(10)) == sorted(ids)


def test_letters_that_somebody_else_redrove_are_not_counted_by_a_redrive_that_is_tried_again(
    queue: Queue, other: Queue, lose: Cutter
) -> None:
    other.write_many([(str(n), "tenant") for n in range(3)])
    other.reject_many(other.read_many(3), "poison")
    letters = queue.dead()
    assert other.redrive(letters[:2]) == 2
    cut = lose("redrive")
    assert queue.redrive(letters) == 1
    assert struck(cut)
    assert numbers(other) == (3, 0, 0, 0)


def test_a_resize_is_done_once(queue: Queue, other: Queue, lose: Cutter) -> None:
    cut = lose("resize")
    assert queue.resize(7) == (7, 7)
    assert struck(cut)
    assert len(other.stats().streams) == 7


def test_a_shrinking_resize_is_done_once(queue: Queue, other: Queue, lose: Cutter) -> None:
    cut = lose("shrink")
    assert queue.resize(2) == (2, 2)
    assert struck(cut)
    assert len(other.stats().streams) == 2


@pytest.mark.parametrize("script", ["assign", "assignment"])
def test_shards_are_given_and_taken_back_once(queue: Queue, other: Queue, lose: Cutter, script: str) -> None:
    cut = lose(script)
    made = queue.assign(["a", "b", "c"])
    assert struck(cut)
    assert dict(other.assignment().items()) == dict(made.items())
    assert len(made) == 3
    cut = lose(script)
    assert dict(queue.unassign(["b"]).items()) == {key: streams for key, streams in made.items() if key != b"b"}
    assert struck(cut)
    assert len(other.assignment()) == 2


def test_a_setting_is_changed_once(queue: Queue, other: Queue, lose: Cutter) -> None:
    cut = lose("configure")
    assert queue.configure(max_deliveries=9).max_deliveries == 9
    assert struck(cut)
    assert other.settings().max_deliveries == 9


def test_an_expiry_is_set_on_all_keys(server: Server, queue: Queue, lose: Cutter) -> None:
    cut = lose("touch")
    queue.configure(ttl=3600)
    assert struck(cut)
    with server.client() as plain:
        assert min(plain.ttl(key) for key in plain.keys("shardq:{*")) > 3000


def test_a_purge_removes_all_and_leaves_what_is_in_flight(queue: Queue, other: Queue, lose: Cutter) -> None:
    delivery = taken(other)
    other.write_many([("work", f"tenant-{n}") for n in range(50)])
    other.write("later", shard_key="tenant", delay=60)
    cut = lose("purge")
    assert queue.purge() == 51
    assert struck(cut)
    assert numbers(other) == (0, 1, 0, 0)
    assert other.stats().purged == 51
    delivery.ack()


def test_letters_are_counted_once_that_a_call_deletes(queue: Queue, other: Queue, lose: Cutter) -> None:
    other.write_many([(str(n), f"tenant-{n % 5}") for n in range(250)])
    other.reject_many(other.read_many(250), "poison")
    letters = other.dead(250)
    cuts = [lose("delete_dead"), lose("delete_dead", skip=1)]
    assert queue.delete_dead(letters) == 250
    assert all(map(struck, cuts))
    assert other.stats().dead_deleted == 250


def test_a_queue_that_was_deleted_by_a_lost_call_is_gone_and_nobody_knows_how_much_it_held(
    queue: Queue, other: Queue, proxy: Proxy
) -> None:
    other.write_many([("work", "tenant")] * 3)
    cut = proxy.cut_after_request(on_the_wire("delete"))
    with pytest.raises(OutcomeUnknown, match="how many messages it held is not known"):
        queue.delete(expected=None)
    assert struck(cut)
    assert queue.name not in other.client.queues()
    assert queue.delete(expected=None) == 0


def test_a_delete_that_did_not_come_is_made_again_and_counts(queue: Queue, other: Queue, proxy: Proxy) -> None:
    other.write_many([("work", "tenant")] * 3)
    cut = proxy.cut_before_request(on_the_wire("delete"))
    assert queue.delete(expected=3) == 3
    assert struck(cut)


def test_a_delete_that_is_tried_again_deletes_no_queue_that_was_made_since(
    queue: Queue, other: Queue, proxy: Proxy
) -> None:
    delete = on_the_wire("delete")
    cut = proxy.cut_after_request(delete)
    proxy.before_request(delete, lambda: other.write("newer", shard_key="tenant"), skip=1)
    with pytest.raises(OutcomeUnknown):
        queue.delete(expected=None)
    assert struck(cut)
    assert [each.payload for each in other.read_many(9)] == ["newer"]
    assert queue.name in other.client.queues()


@pytest.mark.parametrize("script", ["len", "stats", "dead"])
def test_numbers_are_told_all_the_same(queue: Queue, other: Queue, lose: Cutter, script: str) -> None:
    taken(other).reject("poison")
    other.write("work", shard_key="tenant")
    cut = lose(script)
    assert queue.len() == 1
    assert numbers(queue) == (1, 0, 0, 1)
    assert len(queue.dead()) == 1
    assert struck(cut)


def test_a_hundred_cuts_at_random_lose_and_double_nothing(
    queue: Queue, other: Queue, proxy: Proxy, lose: Cutter
) -> None:
    ids: list[str] = []
    for n in range(30):
        cuts = [lose(script, skip=n % 3) for script in ("write", "read", "ack")]
        ids += queue.write_many([(f"{n}.{k}", f"tenant-{k}") for k in range(3)])
        for delivery in queue.read_many(2, block=SOON):
            delivery.ack()
            ids.remove(delivery.message_id)
        assert n % 3 or eventually(lambda cuts=cuts: any(cut.struck.is_set() for cut in cuts))  # type: ignore[misc]
        proxy.heal()
    left: list[Delivery] = []

    def collect() -> bool:
        left.extend(queue.read_many(100))
        return len(left) >= len(ids)

    eventually(collect, SOON)
    assert sorted(each.message_id for each in left) == sorted(ids)
    assert {each.count for each in left} == {1}


def test_limits_of_many_shard_keys_are_all_set_though_a_reply_is_lost(proxy: Proxy, queue: Queue) -> None:
    """They take several calls, and the repeated one is answered as the first was."""
    cut = proxy.cut_after_request(on_the_wire("limit"))
    limits: dict[str | bytes, Limits | str] = {f"acct-{number}": Limits(max_in_flight=2) for number in range(120)}
    queue.set_limits(limits)
    assert cut.struck.is_set()
    assert queue.limits() == limits


@pytest.mark.runs_in("test-all")
@pytest.mark.once
@pytest.mark.parametrize("client_kind", ["sync"], indirect=True)
@pytest.mark.parametrize("lose", ["reply"], indirect=True)
@pytest.mark.parametrize("call", CALLS)
def test_each_function_leaves_what_it_leaves_without_a_fault(
    server: Server, client: Client, queue_name: str, lose: Cutter, call: str
) -> None:
    """As many members of each key, and the same numbers: nothing was done twice, nor left out.

    But readers may be woken once more, and which messages a later read finds in the streams depends on the time.
    """
    bench = Furnished(server, client, queue_name)
    begin = bench.picture()
    CALLS[call](bench)
    expected = numbers_of(bench), sizes_of(bench)
    bench.restore(begin)
    cut = lose(call.partition(",")[0])
    # Of a queue that is gone nobody can say any more how much it held.
    with pytest.raises(OutcomeUnknown) if call == "delete" else contextlib.nullcontext():
        CALLS[call](bench)
    assert struck(cut)
    found = numbers_of(bench), sizes_of(bench)
    if call.startswith("read"):  # what it was handed, and did not hear of, is delivered once more
        for name in ("delivered", "redelivered"):
            assert found[0].pop(name) >= expected[0].pop(name)
    assert found[0] == expected[0]
    assert call.startswith("read") or found[1] == expected[1]
    bench.plain.close()


def numbers_of(bench: Bench) -> dict[str, int]:
    """What the queue holds and has counted, as long as there is one."""
    with Client.from_url(bench.url) as client:
        if bench.queue.name not in client.queues():
            return {}
        told = asdict(client.queue(bench.queue.name).stats())
    return {name: told[name] for name in (*COUNTERS, "backlog", "in_flight", "delayed", "dead")}


def sizes_of(bench: Bench) -> dict[str, int]:
    """How many members each key has."""
    sizes = {key.decode().rpartition(":")[2]: size for key, (_, size) in bench.shape().items()}
    return {key: size for key, size in sizes.items() if key != "notifications"}
