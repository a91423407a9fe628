"""Notes about messages that are not done, and the look at all that is known of one: what Django's results need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from shardq import Delivery, MessageNotFound, NoResult, Queue, ResultPending
from shardq.ops.inspect.status import whole_status
from shardq.ops.results.keep import keep
from shardq.protocol.results import NOTE, VALUE, KeptResult
from shardq.protocol.standing import Whole
from tests.conformance.conftest import OpenQueue

pytestmark = pytest.mark.runs_in("test-all")


def whole(queue: Queue, message_id: str) -> Whole:
    return queue.client.run(whole_status(queue.state, message_id))


def note(queue: Queue, delivery: Delivery, text: bytes) -> None:
    queue.client.run(keep(queue.state, [(delivery.received, KeptResult(NOTE, "b", text))]))


@pytest.mark.everywhere
@pytest.mark.parametrize("settings", [{"window": 0}, {"window": 1}, {"parents": 1}], ids=str)
def test_the_payload_is_told_as_long_as_there_is_one(open_queue: OpenQueue, settings: Mapping[str, int]) -> None:
    queue = open_queue(result_ttl=60, streams=1, **settings)
    payload = b"12345678901234567890 \x00\xff" + b"9" * 5000
    ids = [queue.write(payload, shard_key="t", headers={"a": "b"}) for _ in range(3)]
    ids.append(queue.write(payload, shard_key="t", delay=100))
    states = ["waiting", "waiting" if settings == {"window": 0} else "held_back"]
    for message_id in ids:
        found, bare = whole(queue, message_id), queue.status(message_id)
        assert replace(found.status, time=bare.time) == bare
        assert (found.tag, found.body, found.kept) == ("b", payload, None)
    assert [whole(queue, each).status.state for each in ids[:2]] == states
    assert whole(queue, ids[3]).status.state == "delayed"
    taken = queue.read()
    assert whole(queue, taken.message_id)[1:] == ("b", payload, None)
    assert whole(queue, taken.message_id).status.state == "in_flight"
    taken.ack(result="done")
    done = whole(queue, taken.message_id)
    assert (done.status.state, done.tag, done.body) == ("done", "", b"")
    assert done.kept is not None
    assert (done.kept.kind, queue.client.codecs.decode(*done.kept[1:])) == (VALUE, "done")
    dead = queue.read()
    dead.reject("no")
    assert whole(queue, dead.message_id)[1:] == ("b", payload, None)
    status = whole(queue, dead.message_id).status
    assert (status.state, status.reason, status.headers) == ("dead", "no", {"a": "b"})


def test_a_note_is_no_result(open_queue: OpenQueue) -> None:
    queue = open_queue(result_ttl=60)
    message_id = queue.write(1, shard_key="t")
    delivery = queue.read()
    assert delivery.progress(1, 3, "begun")
    note(queue, delivery, b"one")
    note(queue, delivery, b"two|more")
    assert whole(queue, message_id).kept == KeptResult(NOTE, "b", b"two|more")
    status = queue.status(message_id)
    assert (status.state, status.progress and status.progress.note) == ("in_flight", "begun")
    with pytest.raises(ResultPending):
        queue.result(message_id, timeout=0)
    delivery.nack(error="again")
    assert queue.status(message_id).state == "waiting"
    assert whole(queue, message_id).kept == KeptResult(NOTE, "b", b"two|more")
    again = queue.read()
    again.ack(result=5)
    assert queue.result(message_id, timeout=0) == 5
    stats = queue.stats()
    assert (stats.result_count, stats.results_refused) == (1, 0)


@pytest.mark.parametrize("end", ["cancelled", "acked", "a letter that was deleted"])
def test_a_note_does_not_say_that_a_message_is_done(open_queue: OpenQueue, end: str) -> None:
    queue = open_queue(result_ttl=60)
    message_id = queue.write(1, shard_key="t")
    delivery = queue.read()
    note(queue, delivery, b"text")
    if end == "cancelled":
        delivery.nack()
        queue.cancel(message_id)
    elif end == "acked":
        delivery.ack()
    else:
        delivery.reject("no")
        queue.delete_dead(queue.dead())
    assert queue.status(message_id).state == "unknown"
    assert whole(queue, message_id).kept == KeptResult(NOTE, "b", b"text")
    with pytest.raises(NoResult):
        queue.result(message_id, timeout=0)


def test_only_the_holder_of_the_lease_notes_anything(open_queue: OpenQueue) -> None:
    queue = open_queue(result_ttl=60)
    message_id = queue.write(1, shard_key="t")
    late = queue.read()
    late.nack()
    note(queue, late, b"too late")
    assert whole(queue, message_id).kept is None


def test_a_note_without_room_is_left_out(open_queue: OpenQueue) -> None:
    queue = open_queue(result_ttl=60, max_result_bytes=2000)
    message_id = queue.write(1, shard_key="t")
    delivery = queue.read()
    note(queue, delivery, b"x" * 5000)
    assert whole(queue, message_id).kept is None
    assert queue.stats().result_count == 0
    delivery.ack(result=None)
    assert queue.status(message_id).state == "done"


def test_what_is_no_id_is_not_found(open_queue: OpenQueue) -> None:
    queue = open_queue(result_ttl=60)
    queue.write(1, shard_key="t")
    with pytest.raises(MessageNotFound):
        whole(queue, "nonsense")
    assert whole(queue, "1-2-3").status.state == "unknown"
