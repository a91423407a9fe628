"""Messages of one call that have keys in common: they are as if they had been written one after the other."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from shardq import Message, PartlyWritten, Queue, UniqueConflict
from shardq.model.message import OnConflict
from shardq.model.written import Written
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World, drained

MODES: tuple[OnConflict, ...] = ("existing", "existing", "replace", "raise")
SETTINGS: list[dict[str, Any]] = [{"window": 0}, {"window": 1}, {"key_scope": "queue"}, {"parents": 1}]
ROUNDS = 12


def random_message(rng: random.Random, payload: str) -> Message:
    """With one of few keys of each kind, or none."""
    unique_key = rng.choice((None, "u", "u", "v"))
    return Message(
        payload, rng.choice(("t/1", "t/2")), dedup_key=rng.choice((None, None, "d", "e")), unique_key=unique_key,
        on_conflict=rng.choice(MODES) if unique_key else "existing", delay=rng.choice((None, None, 0, 50)),
    )  # fmt: skip


def together(queue: Queue, messages: Sequence[Message]) -> list[object]:
    """Write them in one call. Return an id or an error for each."""
    try:
        return [*queue.write_many(messages)]
    except PartlyWritten as error:
        return [*error.results]


def singly(queue: Queue, messages: Sequence[Message]) -> list[object]:
    """Write each in a call of its own."""
    return [result for message in messages for result in together(queue, [message])]


def prepare(queue: Queue, rng: random.Random) -> list[str]:
    """Write some messages, of which one may be in flight. Return their ids."""
    ids = [str(each) for each in singly(queue, [random_message(rng, f"before {number}") for number in range(3)])]
    busy = rng.choice(ids)
    for delivery in drained(queue):
        if delivery.message_id != busy:
            delivery.nack()
    return ids


def told(results: Sequence[object], before: Sequence[str]) -> list[object]:
    """What was told of each message, whatever the ids are: as which one it is known, and whether it is new."""
    names = {each: f"before {number}" for number, each in reversed([*enumerate(before)])}
    found: list[object] = []
    for number, result in enumerate(results):
        if isinstance(result, UniqueConflict):
            found.append(("in the way", names.get(result.message_id)))
        else:
            assert isinstance(result, Written), result
            found.append((names.setdefault(str(result), f"message {number}"), result.is_new))
    return found


def contents(queue: Queue, world: World) -> list[str]:
    """The payloads of all that is delivered."""
    world.elapse(queue, 60)
    assert world.census(queue).problems() == []
    return sorted(str(each.payload) for each in drained(queue))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_call_of_many_messages_is_what_calls_of_one_are(
    world: World, queue_name: str, seed: int, settings: dict[str, Any]
) -> None:
    for number in range(ROUNDS):
        queues, results = [], []
        messages = [random_message(random.Random(f"{seed} {number} {at}"), f"message {at}") for at in range(6)]
        for how in (singly, together):
            queue = world.client().queue(f"{queue_name}-{how.__name__}-{number}", create=True, streams=4, **settings)
            before = prepare(queue, random.Random(f"{seed} {number}"))
            results.append(told(how(queue, messages), before))
            queues.append(queue)
        assert results[1] == results[0], f"round {number}: {messages}"
        assert contents(queues[1], world) == contents(queues[0], world), f"round {number}: {messages}"


def test_a_message_that_an_earlier_one_stands_for_takes_no_unique_key(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4)
    first = Message("a", "t", dedup_key="d")
    again = Message("b", "t", dedup_key="d", unique_key="u")
    a, b, c, d = queue.write_many([first, again, Message("c", "t", unique_key="u"), Message("d", "t", unique_key="u")])
    assert (b, d) == (a, c)
    assert [each.is_new for each in (a, b, c, d)] == [True, False, True, False]
    assert sorted(each.payload for each in drained(queue)) == ["a", "c"]


@pytest.mark.parametrize("bound", [{"max_len": 1}, {"max_backlog": 1}, {"max_dedup": 1}], ids=str)
@pytest.mark.parametrize("key", ["dedup_key", "unique_key"])
def test_it_takes_no_place_in_a_bound(open_queue: OpenQueue, bound: dict[str, int], key: str) -> None:
    queue = open_queue(streams=4, **bound)
    keys: dict[str, Any] = {key: "k"}
    first, again = queue.write_many([Message(number, "t", **keys) for number in range(2)])
    assert (again, again.is_new) == (first, False)
    assert queue.stats().backlog == 1


def test_what_follows_a_replacement_finds_the_message_that_took_the_key(queue: Queue) -> None:
    """The first one is being worked on, so that its key goes to the second."""
    first = queue.write("first", shard_key="t", unique_key="u")
    queue.read()
    modes: list[OnConflict] = ["replace", "existing", "raise"]
    batch = [Message(mode, "t", unique_key="u", on_conflict=mode) for mode in modes]
    with pytest.raises(PartlyWritten) as partly:
        queue.write_many(batch)
    second, third, conflict = partly.value.results
    assert second != first
    assert third == second
    assert isinstance(conflict, UniqueConflict)
    assert conflict.message_id == second
    assert [each.payload for each in drained(queue)] == ["replace"]
