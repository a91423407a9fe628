"""status: where a message is in each of its states, and that asking changes nothing."""

from __future__ import annotations

import pytest

from shardq import Limits, MessageNotFound, MessageStatus, Queue, QueueMissing
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World

SETTINGS = [
    {"window": 0}, {"window": 1}, {"window": 1, "parents": 1}, {"window": 0, "max_in_flight": 5}, {"journal": 1000},
]  # fmt: skip


def known(status: MessageStatus, *names: str) -> dict[str, object]:
    """The state, and those fields."""
    return {"state": status.state} | {name: getattr(status, name) for name in names}


@pytest.mark.everywhere
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_each_state_has_its_facts(open_queue: OpenQueue, world: World, settings: dict[str, int]) -> None:
    queue = open_queue(streams=4, streams_per_shard=4, max_deliveries=3, **settings)
    message_id = queue.write(b"12345", shard_key="a/b", headers={"x": "y"}, deadline=900)
    written_at = int(message_id.partition("-")[0]) / 1000
    status = queue.status(message_id)
    assert known(status, "shard_key", "ahead", "deliveries", "size", "written_at", "last_error") == {
        "state": "waiting", "shard_key": "a/b", "ahead": 0, "deliveries": 0, "size": 5, "written_at": written_at,
        "last_error": "",
    }  # fmt: skip
    assert (status.message_id, status.stream, status.headers) == (message_id, int(message_id[-1]), {"x": "y"})
    assert status.deadline == pytest.approx(written_at + 900, abs=0.01)

    delivery = queue.read(visibility_timeout=20)
    status = queue.status(message_id)
    assert known(status, "deliveries", "stream", "ahead") == {
        "state": "in_flight", "deliveries": 1, "stream": None, "ahead": None,
    }  # fmt: skip
    assert status.until is not None
    assert 0 < status.until - status.time <= 20
    assert status.holder == delivery.received.token.split(":")[3][:8]

    delivery.nack(delay=30, error="not now")
    status = queue.status(message_id)
    assert known(status, "deliveries", "last_error") == {"state": "delayed", "deliveries": 1, "last_error": "not now"}
    assert status.until is not None
    assert status.until == status.since
    assert 0 < status.until - status.time <= 30

    world.elapse(queue, 30)
    assert known(queue.status(message_id), "stream", "deliveries") == {
        "state": "waiting", "stream": None, "deliveries": 1,
    }  # fmt: skip
    again = queue.read(visibility_timeout=20)
    assert known(queue.status(message_id), "deliveries") == {"state": "in_flight", "deliveries": 2}
    again.nack(error="now")
    assert known(queue.status(message_id), "ahead", "deliveries", "last_error") == {
        "state": "waiting", "ahead": 0, "deliveries": 2, "last_error": "now",
    }  # fmt: skip
    queue.read().ack()
    status = queue.status(message_id)
    assert status == MessageStatus(message_id, "unknown", status.time)


def test_a_lease_that_has_ended_waits(queue: Queue, world: World) -> None:
    message_id = queue.write(1, shard_key="t")
    queue.read(visibility_timeout=20)
    world.elapse(queue, 30)
    assert known(queue.status(message_id), "reason", "stream", "deliveries") == {
        "state": "waiting", "reason": "lease ended", "stream": None, "deliveries": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"window": 1}, "window"), ({"window": 0, "max_in_flight": 1}, "max_in_flight"), ({"parents": 1}, "window")],
    ids=str,
)
def test_what_is_held_back_says_why(open_queue: OpenQueue, settings: dict[str, int], reason: str) -> None:
    queue = open_queue(streams=4, streams_per_shard=4, **settings)
    queue.write_many([(at, f"other-{at}") for at in range(8)])
    ids = queue.write_many([(at, "flood") for at in range(300)])
    held = [queue.status(each) for each in ids]
    assert [each.state for each in held] == ["waiting"] + ["held_back"] * 299
    assert {each.reason for each in held[1:]} == {reason}
    aheads = [each.ahead or 0 for each in held[1:]]
    assert (aheads[0], aheads[-1]) == (1, 299)
    assert max(abs(ahead - at) for at, ahead in enumerate(aheads, 1)) < 32
    assert {each.stream for each in held[1:]} == {None}


def test_what_is_paused_or_limited_says_so(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, streams_per_shard=4)
    ids = {key: queue.write_many([(at, key) for at in range(10)]) for key in ("a", "b", "c")}
    queue.set_limits({"a": Limits(max_in_flight=1), "b": Limits(rate=0.001, burst=1)})
    queue.pause("c", seconds=100)
    lying = queue.status(ids["c"][0])
    assert known(lying, "reason") == {"state": "waiting", "reason": "paused"}
    assert lying.until is not None
    assert 0 < lying.until - lying.time <= 100
    queue.read_many(20)
    last = {key: queue.status(written[-1]) for key, written in ids.items()}
    assert {key: (each.state, each.reason) for key, each in last.items()} == {
        "a": ("held_back", "max_in_flight"), "b": ("held_back", "rate"), "c": ("held_back", "paused"),
    }  # fmt: skip
    assert (last["a"].ahead, last["c"].ahead) == (8, 9)
    queue.resume("c")
    queue.pause()
    found = queue.status(ids["c"][-1])
    assert known(found, "reason", "until") == {"state": "held_back", "reason": "paused", "until": None}


def test_ahead_says_about_how_many_of_the_stream_come_before(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=1, window=0)
    ids = queue.write_many([(at, "t") for at in range(200)])
    queue.ack_many(queue.read_many(50))
    assert [queue.status(each).ahead for each in ids[50:]] == list(range(150))
    queue.read().nack()
    assert [queue.status(each).ahead for each in ids[50:52]] == [0, 0]  # of the stream, of its shard key


def test_one_past_its_own_deadline_says_so(queue: Queue, world: World) -> None:
    message_id = queue.write(1, shard_key="t", deadline=0.001)
    while not (found := queue.status(message_id)).reason:
        assert found.state == "waiting"
    assert found.reason == "deadline"


def test_a_cancelled_message_in_flight_says_so(plain_queue: Queue) -> None:
    """Without a window its lease is found, too."""
    message_id = plain_queue.write(1, shard_key="t")
    delivery = plain_queue.read()
    plain_queue.cancel(message_id)
    status = plain_queue.status(message_id)
    assert known(status, "cancelled", "deliveries") == {"state": "in_flight", "cancelled": True, "deliveries": 1}
    assert status.holder == delivery.received.token.split(":")[3][:8]
    assert len(plain_queue.ack_many([delivery])) == 1  # nobody wants it any more
    assert plain_queue.status(message_id).state == "unknown"


@pytest.mark.parametrize("window", [0, 1])
def test_a_redriven_message_is_found_by_its_own_id(open_queue: OpenQueue, window: int) -> None:
    queue = open_queue(streams=4, streams_per_shard=4, window=window)
    message_id = queue.write(1, shard_key="t")
    queue.read().reject("no")
    assert queue.status(message_id).state == "dead"
    queue.redrive(queue.dead())
    assert known(queue.status(message_id), "deliveries", "last_error", "shard_key") == {
        "state": "waiting", "deliveries": 1, "last_error": "no", "shard_key": "t",
    }  # fmt: skip
    delivery = queue.read()
    assert known(queue.status(message_id), "deliveries") == {"state": "in_flight", "deliveries": 2}
    delivery.ack()
    assert queue.status(message_id).state == "unknown"


def test_what_waits_for_room_among_the_dead_letters_is_delayed(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, max_dead=1)
    ids = queue.write_many([(at, f"t-{at}") for at in range(2)])
    for each in queue.read_many(2):
        each.reject("bad")
    assert sorted(queue.status(each).state for each in ids) == ["dead", "delayed"]
    assert {queue.status(each).reason for each in ids} == {"max_dead", "bad"}


@pytest.mark.once
def test_a_lease_among_very_many_is_in_flight_all_the_same(open_queue: OpenQueue, real: None) -> None:
    queue = open_queue(streams=4, streams_per_shard=4, window=0)
    ids = queue.write_many([(at, "t") for at in range(1200)])
    found: dict[str, int] = {}
    for visibility in range(20, 32):
        found |= {each.message_id: visibility for each in queue.read_many(100, visibility_timeout=visibility)}
    assert len(found) == 1200
    last = next(each for each in ids if found[each] == 31)
    assert known(queue.status(last), "until", "holder") == {"state": "in_flight", "until": None, "holder": None}
    first = next(each for each in ids if found[each] == 20)
    assert queue.status(first).until


def test_an_id_that_never_was_is_unknown(queue: Queue) -> None:
    queue.write(1, shard_key="t")
    for each in ("1700000000000-99-0", "1700000000000-99-d", "1700000000000-99-l", "1700000000000-99-9999"):
        assert queue.status(each).state == "unknown"
    with pytest.raises(MessageNotFound, match="message_id"):
        queue.status("x")


def test_a_queue_that_is_not_there_is_missing(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(create=False)
    for each in ("1700000000000-99-0", "1700000000000-99-l"):
        with pytest.raises(QueueMissing):
            queue.status(each)
    assert world.stored() == set()


def test_a_message_of_the_legacy_stream_is_known_once_it_was_read(
    open_queue: OpenQueue, queue_name: str, world: World
) -> None:
    legacy = f"{{{queue_name}}}:old"
    queue = open_queue(streams=4, legacy_stream=legacy, legacy_group="g")
    queue.declare()
    entry = world.raw.xadd(legacy, {"old": "x" * 10})
    message_id = f"{entry.decode()}-l"
    assert queue.status(message_id).state == "unknown"
    delivery = queue.read()
    assert delivery.message_id == message_id
    assert known(queue.status(message_id), "shard_key", "size") == {"state": "in_flight", "shard_key": "", "size": 13}
    delivery.nack()
    assert known(queue.status(message_id), "stream", "deliveries") == {
        "state": "waiting", "stream": None, "deliveries": 1,
    }  # fmt: skip


def test_asking_changes_nothing(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, journal=100)
    ids = queue.write_many([(at, f"t-{at % 3}") for at in range(30)])
    ids.append(queue.write(1, shard_key="t", delay=60))
    held = queue.read_many(6, visibility_timeout=20)
    held[0].nack(delay=5)
    held[1].nack()
    held[2].reject("no")
    world.elapse(queue, 21)
    queue.read_many(2)
    queue.cancel(queue.read().message_id)
    ids.append(queue.write(1, shard_key="other"))
    before = world.dump()
    assert {queue.status(each).state for each in ids} >= {"waiting", "held_back", "delayed", "in_flight"}
    assert world.dump() == before
