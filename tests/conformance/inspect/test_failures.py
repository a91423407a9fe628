"""What fails is told in groups of one task, one class of error and one way to fail; the dead of each are true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from shardq import Client, Delivery, Failure, Message, Queue
from shardq.model.failed import FailedTry
from shardq.ops.queue.steps import Call
from shardq.ops.read.give_back import unread
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World

MAIL = ["mail.send", {"to": "ada"}]
SLOT = 300
"""Seconds that one count covers."""


def raised(error: BaseException) -> BaseException:
    """The error with a traceback, as a handler's is caught."""
    try:
        raise error
    except type(error) as caught:
        return caught


class RecipientsRefused(Exception):
    """An error of an application's own."""


def told(queue: Queue) -> dict[tuple[str, str, str], tuple[int, int]]:
    """By task, class and reason: how many were retried, and how many are dead."""
    return {(each.task, each.error_type, each.reason): (each.retried, each.dead) for each in queue.failures()}


def one(queue: Queue) -> Failure:
    (found,) = queue.failures()
    return found


def letters_by_group(queue: Queue) -> Counter[tuple[str, str, str]]:
    return Counter((each.task, each.error_type, each.failure_reason) for each in queue.dead())


def check_dead(queue: Queue) -> None:
    """What the groups say is dead is what there is."""
    counted = {group: dead for group, (_, dead) in told(queue).items() if dead}
    assert counted == letters_by_group(queue)


def fail(queue: Queue, error: str | BaseException | FailedTry, count: int = 1) -> list[Delivery]:
    """Give back what is delivered next."""
    held = queue.read_many(count)
    queue.nack_many(held, error=error)
    return held


def bury(queue: Queue, error: str | BaseException | FailedTry, count: int = 1) -> None:
    """Reject what is delivered next."""
    queue.reject_many(queue.read_many(count), error)


@pytest.mark.everywhere
def test_tries_are_counted_by_task_class_and_reason(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, max_deliveries=2)
    queue.write(MAIL, shard_key="acme")
    queue.write({"plain": 1}, shard_key="globex")
    assert queue.failures() == []
    for delivery in queue.read_many(2):
        assert delivery.nack(error=raised(TimeoutError("slow")))
    assert told(queue) == {("mail.send", "TimeoutError", "retry"): (1, 0), ("", "TimeoutError", "retry"): (1, 0)}
    again = {delivery.shard_key: delivery for delivery in queue.read_many(2)}
    again["acme"].reject(raised(RecipientsRefused("ada")))
    assert not again["globex"].nack(error="too late")
    assert told(queue) == {
        ("mail.send", "TimeoutError", "retry"): (1, 0),
        ("", "TimeoutError", "retry"): (1, 0),
        ("mail.send", "RecipientsRefused", "rejected"): (0, 1),
        ("", "", "dead"): (0, 1),
    }
    assert queue.stats().failed == 4
    check_dead(queue)


def test_a_group_says_since_when_how_often_lately_and_of_whom(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4)
    before = queue.stats().time
    ids = [queue.write(MAIL, shard_key=f"t{number}") for number in range(9)]
    for _ in range(2):
        fail(queue, raised(TimeoutError("slow")), 9)
    found = one(queue)
    assert (found.retried, found.recent, found.minutes, found.tenants_lately) == (18, 18, (*[0] * 11, 18), 9)
    assert before <= found.first <= found.last <= queue.stats().time
    assert found.newest in ids
    assert len(found.tenants) == 5
    assert {*found.tenants} <= {f"t{number}" for number in range(9)}
    frame = found.trace.splitlines()[-1]
    assert "test_failures.py:" in frame
    assert frame.endswith(" in raised")
    assert "slow" not in found.trace


def test_what_has_failed_is_told_with_its_class(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=1, max_deliveries=2)
    message_id = queue.write(MAIL, shard_key="t")
    queue.read().nack(delay=50, error=raised(TimeoutError("slow|er")))
    status = queue.status(message_id)
    assert (status.state, status.last_error, status.error_type) == ("delayed", "TimeoutError: slow|er", "TimeoutError")
    (peeked,) = queue.peek(state="delayed").messages
    assert (peeked.last_error, peeked.error_type) == ("TimeoutError: slow|er", "TimeoutError")
    world.elapse(queue, 51)
    delivery = queue.read()
    assert delivery.last_error == "TimeoutError: slow|er"
    status = queue.status(message_id)
    assert (status.state, status.last_error, status.error_type) == (
        "in_flight",
        "TimeoutError: slow|er",
        "TimeoutError",
    )
    assert not delivery.nack(error=FailedTry("a|b", "TimeLimit", "time limit"))
    (letter,) = queue.dead()
    assert (letter.last_error, letter.error_type, letter.failure_reason) == ("a|b", "TimeLimit", "time limit")
    status = queue.status(message_id)
    assert (status.state, status.last_error, status.error_type) == ("dead", "a|b", "TimeLimit")
    (peeked,) = queue.peek(state="dead").messages
    assert (peeked.last_error, peeked.error_type) == ("a|b", "TimeLimit")
    queue.redrive([letter])
    status = queue.status(message_id)
    assert (status.last_error, status.error_type) == ("a|b", "TimeLimit")
    assert queue.read().last_error == "a|b"


@pytest.mark.parametrize(
    "reason", ["retry", "time limit", "process died", "no such task", "cannot decode", "lease ended", "whatever"]
)
def test_how_a_try_failed_is_one_of_few_reasons(open_queue: OpenQueue, reason: str) -> None:
    queue = open_queue(streams=1)
    queue.write(MAIL, shard_key="t")
    fail(queue, FailedTry("why", "Error", reason))
    found = one(queue)
    assert (found.error_type, found.reason) == ("Error", "retry" if reason == "whatever" else reason)


def test_a_lease_that_ended_is_counted_when_its_message_is_delivered_again_once(
    open_queue: OpenQueue, world: World
) -> None:
    queue = open_queue(streams=2, visibility_timeout=30, max_deliveries=3)
    queue.write(MAIL, shard_key="acme")
    queue.read()
    world.elapse(queue, 31)
    assert queue.failures() == []
    second = queue.read()
    assert (second.last_error, told(queue)) == ("lease ended", {("mail.send", "", "lease ended"): (1, 0)})
    # Given back as readers do that have read ahead: the lease that ended before is not counted twice.
    given_back(queue, [second])
    third = queue.read()
    assert (third.last_error, third.count, told(queue)) == (
        "lease ended", 2, {("mail.send", "", "lease ended"): (1, 0)},
    )  # fmt: skip
    world.elapse(queue, 31)
    queue.read()
    world.elapse(queue, 31)
    assert queue.read_many(1) == []
    assert told(queue) == {("mail.send", "", "lease ended"): (2, 1)}
    assert one(queue).recent == 3
    (letter,) = queue.dead()
    assert (letter.reason, letter.last_error, letter.failure_reason) == ("max deliveries", "lease ended", "lease ended")
    check_dead(queue)


def given_back(queue: Queue, held: Iterable[Delivery]) -> None:
    queue._client.run(unread(queue.state, [each.received for each in held], 60))


def test_a_lease_that_ended_after_an_error_is_no_error_again(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=1, visibility_timeout=30)
    queue.write(MAIL, shard_key="t")
    fail(queue, raised(TimeoutError()))
    queue.read()
    world.elapse(queue, 31)
    queue.read().nack()  # no failure: it says nothing
    assert told(queue) == {("mail.send", "TimeoutError", "retry"): (1, 0), ("mail.send", "", "lease ended"): (1, 0)}
    assert queue.read().last_error == "lease ended"


def test_what_is_given_back_without_a_word_has_not_failed(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=1, max_deliveries=3)
    queue.write(MAIL, shard_key="t")
    queue.read().nack()
    given_back(queue, queue.read_many(1))
    fail(queue, "")
    assert (queue.failures(), queue.stats().failed) == ([], 0)
    queue.read().nack()  # but it dies of the last one
    assert told(queue) == {("mail.send", "", "dead"): (0, 1)}


def test_a_message_that_is_given_back_uncounted_has_failed(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=1)
    queue.write(MAIL, shard_key="t")
    queue.nack_many(queue.read_many(1), error=FailedTry("unknown", "", "no such task"), counted=False)
    assert told(queue) == {("mail.send", "", "no such task"): (1, 0)}


def test_redrive_and_deletion_count_the_dead_down(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4)
    for number in range(8):
        queue.write(MAIL if number % 2 else {"plain": 1}, shard_key=f"t{number}")
    for number, delivery in enumerate(queue.read_many(8)):
        delivery.reject(raised(TimeoutError()) if number % 3 else "no")
    check_dead(queue)
    assert sum(dead for _, dead in told(queue).values()) == 8
    letters = queue.dead()
    queue.redrive(letters[:2])
    check_dead(queue)
    queue.redrive([*letters[:2], letters[2], letters[2]])  # the first are gone, one comes twice
    check_dead(queue)
    queue.delete_dead([letters[3], letters[3]])
    queue.delete_dead(ids=[letters[4].message_id])
    check_dead(queue)
    queue.delete_dead(queue.dead())
    check_dead(queue)
    assert sum(dead for _, dead in told(queue).values()) == 0
    assert world.census(queue).problems() == []


def test_letters_that_make_room_for_others_are_counted_down(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=2, max_dead=3, drop_dead=1)
    for number in range(9):
        queue.write([f"task.{number % 2}", {}], shard_key="t")
        bury(queue, raised(TimeoutError()))
    assert queue.stats().dead <= 3
    check_dead(queue)


def test_a_message_that_waits_for_room_among_the_dead_is_counted_once(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=2, max_dead=1)
    queue.write(MAIL, shard_key="t")
    queue.write(MAIL, shard_key="t")
    for _ in range(2):
        bury(queue, FailedTry("why", "TimeLimit", "time limit"))
    assert (told(queue), one(queue).recent) == ({("mail.send", "TimeLimit", "time limit"): (0, 1)}, 2)
    queue.delete_dead(queue.dead())
    assert told(queue) == {("mail.send", "TimeLimit", "time limit"): (0, 0)}
    world.elapse(queue, 6)
    assert queue.read_many(1) == []
    assert (told(queue), one(queue).recent) == ({("mail.send", "TimeLimit", "time limit"): (0, 1)}, 2)
    check_dead(queue)


def test_of_many_groups_those_that_were_seen_lately_are_kept_and_their_counts_are_right(
    open_queue: OpenQueue, world: World
) -> None:
    queue = open_queue(streams=1, max_deliveries=10_000)
    queue.write(MAIL, shard_key="t")
    for number in range(500):
        fail(queue, FailedTry("why", f"Error{number}", frames=f"app.py:{number} in work"))
        fail(queue, FailedTry("why", "Steady"))
        aged(world, queue, 1)
    found = {each.error_type: each for each in queue.failures()}
    assert len(found) == 200
    assert found["Steady"].retried == 500
    assert {each.retried for name, each in found.items() if name != "Steady"} == {1}
    newest = [name for name in found if name != "Steady" and int(name.removeprefix("Error")) >= 400]
    assert len(newest) >= 80  # of 5 by chance the one that was seen longest ago goes: 100, if it were of all
    stored = world.raw.hgetall(queue.state.keys.failures)
    assert len(stored) <= 801
    assert int(stored[b""]) == 200


def test_groups_that_begin_in_one_call_are_counted_once_each(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=1, max_deliveries=10)
    queue.write_many([([f"task{number}", {}], "t") for number in range(30)])
    for size in (7, 1, 22):
        held = queue.read_many(size)
        queue.nack_many(held, delay=60, error=ValueError("wrong"))
        assert world.raw.hget(queue.state.keys.failures, "") == str(len(queue.failures())).encode()
    assert len(queue.failures()) == 30


def test_no_try_of_many_groups_that_begin_at_once_is_lost(open_queue: OpenQueue, world: World) -> None:
    """There are as many groups as are kept, so each new one takes the place of another."""
    queue = open_queue(streams=1, max_deliveries=10_000)
    queue.write_many([(MAIL, "t") for _ in range(50)])
    for number in range(10):
        held = queue.read_many(50)
        for at, delivery in enumerate(held):
            if number < 4:
                assert delivery.nack(error=FailedTry("why", f"Error{number}x{at}"))
        if number >= 4:
            queue.nack_many(held, error=[FailedTry("why", f"Error{number}x{at}") for at in range(50)])
        found = queue.failures()
        assert {each.retried for each in found} == {1}
        assert len(found) == min(200, 50 * (number + 1))
        assert int(world.raw.hget(queue.state.keys.failures, "")) == len(found)


def moved(world: World, queue: Queue, seconds: int, change: Callable[[list[bytes]], None]) -> None:
    """Change what is stored of all groups, and let so much time pass for what is counted apart, of one second."""
    key = queue.state.keys.failures
    before = world.raw.hgetall(key)
    after = {}
    for field, text in before.items():
        if field[:1] in b"+x" and field.count(b"|") == 3:
            second, _, group = field[1:].partition(b"|")
            after[b"%b%d|%b" % (field[:1], int(second) - seconds, group)] = text
            continue
        words = text.split(b"|", 10)
        if len(words) == 11:
            words[6] = words[6] and str(int(words[6]) - seconds).encode()
            change(words)
        after[field] = b"|".join(words)
    if gone := before.keys() - after.keys():
        world.raw.hdel(key, *gone)
    world.raw.hset(key, mapping=after)


def aged(world: World, queue: Queue, seconds: int) -> None:
    """Let time pass for what is stored of failures."""

    def change(words: list[bytes]) -> None:
        for at in (2, 3, 5):
            words[at] = str(max(0, int(words[at]) - seconds * 1000)).encode()

    moved(world, queue, seconds, change)


def shifted(world: World, queue: Queue, slots: int) -> None:
    """Let so many times five minutes pass for the counts of all groups."""

    def change(words: list[bytes]) -> None:
        words[7] = str(int(words[7]) - slots).encode()

    moved(world, queue, slots * SLOT, change)


def test_counts_are_of_five_minutes_each_for_an_hour(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=1, max_deliveries=10_000)
    queue.write_many([(MAIL, "a"), (MAIL, "b"), (MAIL, "c")])
    fail(queue, "why", 3)
    shifted(world, queue, 1)
    assert (one(queue).minutes, one(queue).tenants_lately) == ((*[0] * 10, 3, 0), 3)
    fail(queue, "why", 1)
    assert (one(queue).minutes, one(queue).recent) == ((*[0] * 10, 3, 1), 4)
    shifted(world, queue, 1)
    assert (one(queue).recent >= 1, one(queue).tenants_lately) == (True, 3), "of those that are recent"
    shifted(world, queue, -1)
    shifted(world, queue, 3)
    assert (one(queue).minutes, one(queue).recent, one(queue).tenants_lately) == ((*[0] * 7, 3, 1, 0, 0, 0), 0, 0)
    fail(queue, "why", 2)
    assert one(queue).minutes == (*[0] * 7, 3, 1, 0, 0, 2)
    shifted(world, queue, 8)
    assert one(queue).minutes == (1, 0, 0, 2, *[0] * 8)
    fail(queue, "why", 1)
    assert (one(queue).minutes, one(queue).tenants_lately) == ((1, 0, 0, 2, *[0] * 7, 1), 1)
    shifted(world, queue, 12)
    assert (one(queue).minutes, one(queue).retried) == ((0,) * 12, 7)
    fail(queue, "why", 1)
    assert one(queue).minutes == (*[0] * 11, 1)
    shifted(world, queue, -20)  # the clock was set back
    assert (sum(one(queue).minutes), one(queue).recent) == (0, 0)
    fail(queue, "why", 1)
    assert one(queue).minutes == (*[0] * 11, 1)
    shifted(world, queue, 1)
    fail(queue, "why", 2)
    assert one(queue).minutes == (*[0] * 10, 1, 2)
    shifted(world, queue, -1)  # by a little only
    assert one(queue).recent > 0


def test_where_many_fail_all_are_counted_and_of_the_first_of_each_second_more_is_told(
    open_queue: OpenQueue, world: World
) -> None:
    queue = open_queue(streams=1, max_deliveries=10_000)
    queue.write_many([(MAIL, f"t{number}") for number in range(40)])
    queue.nack_many(queue.read_many(10), error="why")
    for number in range(1, 91):
        fail(queue, "why")
        assert (one(queue).retried, one(queue).recent) == (10 + number, 10 + number)
    assert one(queue).tenants_lately >= 10
    shifted(world, queue, 1)
    assert one(queue).minutes == (*[0] * 10, 100, 0)
    for number in range(1, 31):
        bury(queue, "why")
        fail(queue, "why")
        found = {each.reason: each for each in queue.failures()}
        assert (found["retry"].retried, found["retry"].minutes) == (100 + number, (*[0] * 10, 100, number))
        check_dead(queue)
    for letter in queue.dead()[:10]:
        queue.delete_dead([letter])
        check_dead(queue)
    bury(queue, "why")
    check_dead(queue)
    assert queue.stats().failed == 161
    assert world.census(queue).problems() == []


def test_the_worst_comes_first(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=1, max_deliveries=10_000)
    queue.write(MAIL, shard_key="t")
    for _ in range(9):
        fail(queue, FailedTry("why", "Old"))
    shifted(world, queue, 5)
    for name in ("Rare", "Often", "Often", "Rarer"):
        fail(queue, FailedTry("why", name))
    names = [each.error_type for each in queue.failures()]
    assert (names[0], {*names[1:3]}, names[3]) == ("Often", {"Rare", "Rarer"}, "Old")


def test_a_traceback_is_stored_at_most_once_a_minute(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=1, max_deliveries=10_000)
    queue.write(MAIL, shard_key="t")
    for line in (1, 2):
        fail(queue, FailedTry("why", "Error", frames=f"app.py:{line} in work"))
    assert one(queue).trace == "app.py:1 in work"
    aged(world, queue, 61)
    fail(queue, FailedTry("why", "Error", frames="app.py:3 in work"))
    assert one(queue).trace == "app.py:3 in work"


NASTY = {
    "newlines": "two\nlines\r\n", "bars": "a|b|retry", "zeros": "a\0b", "long": "x" * 10_000, "blank": " a  b ",
    "surrogate": "\ud800", "trace": "trace|a|b", "quotes": "'\"{}[]*?\\",
}  # fmt: skip


@pytest.mark.parametrize("name", NASTY.values(), ids=NASTY)
def test_hostile_names_and_texts_are_bounded_and_harm_nothing(open_queue: OpenQueue, world: World, name: str) -> None:
    queue = open_queue(streams=2, max_deliveries=2)
    error = raised(type(name.replace("\0", "0").encode(errors="replace").decode(), (Exception,), {})(name))
    queue.write(MAIL, shard_key=name[:200].encode(errors="replace").decode() or "t")
    for _ in range(2):
        fail(queue, error)
    groups = queue.failures()
    assert sorted(each.reason for each in groups) == ["dead", "retry"]
    assert {each.task for each in groups} == {"mail.send"}
    assert all(len(each.error_type) <= 100 and not {*each.error_type} & {*"|\n\r\0 "} for each in groups)
    (letter,) = queue.dead()
    assert letter.failure_reason == "dead"
    check_dead(queue)
    queue.redrive([letter])
    check_dead(queue)
    assert world.census(queue).problems() == []


def test_what_a_hostile_caller_says_of_a_try_is_not_believed(open_queue: OpenQueue, world: World) -> None:
    """It may call the verb itself, and say anything that is not too long."""
    queue = open_queue(streams=2)
    said = [
        b"", b"|", b"||", b"a|b", b"a|b|c|d", b"?||retry", b"x y|Error|time-limit", b"a\nb|c|dead",
        b"\xff\xfe|\xff|dead", b"||\0",
        b"task|" + b"c" * 3000 + b"|", b"t" * 3000 + b"||", b"task|a\0b|", b"task|Error|\n" + b"f" * 3000,
        b"task|Error|lease ended\n", b"|||||||||||", b"task|a b|time-limit\ntrace", b"trace|X|time-limit",
    ]  # fmt: skip
    for each in said:
        queue.write(MAIL, shard_key="t")
        (delivery,) = queue.read_many(1)
        call = Call.on(
            queue.state.keys, "settle", ("r", "-", False, "", "c", delivery.received.token, 0, "why", each),
            rest=queue.state.declared(["0", "1"]),
        )  # fmt: skip
        now, letters = queue._client.run(asked(call))
        assert letters == b"o" or letters == b"d", (now, each)
    groups = queue.failures()
    assert all(len(each.task) <= 800 and len(each.error_type) <= 100 and len(each.trace) <= 2048 for each in groups)
    assert sum(each.dead for each in groups) == len(said) == queue.stats().dead
    queue.redrive(queue.dead()[:5])
    queue.delete_dead(queue.dead()[:5])
    assert sum(each.dead for each in queue.failures()) == len(said) - 10 == queue.stats().dead
    stored = world.raw.hgetall(queue.state.keys.failures)
    assert all(field.count(b"|") in (0, 2, 3) for field in stored)


def asked(call: Call) -> Any:
    reply = yield call
    return reply


def test_a_key_of_another_type_fails_no_call(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=1)
    queue.write_many([(MAIL, "t"), (MAIL, "t")])
    world.raw.delete(queue.state.keys.failures)
    world.raw.set(queue.state.keys.failures, "somebody's")
    bury(queue, raised(TimeoutError()))
    assert [letter.error_type for letter in queue.dead()] == ["TimeoutError"]
    queue.redrive(queue.dead())
    assert queue.delete_dead(queue.dead()) == 0
    bury(queue, raised(TimeoutError()), 2)
    assert queue.delete_dead(queue.dead()) == 2
    assert world.raw.get(queue.state.keys.failures) == b"somebody's"


def test_what_another_program_wrote_into_the_key_is_passed_over(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=1, max_deliveries=10_000)
    queue.write(MAIL, shard_key="t")
    fail(queue, raised(TimeoutError()))
    key = queue.state.keys.failures
    world.raw.hset(key, mapping={f"junk-{n}": "x" for n in range(1000)} | {"a|b|retry": "nonsense", "": "many"})
    assert len(queue.failures()) <= 1
    for number in range(300):
        fail(queue, FailedTry("why", f"Error{number % 250}"))
    found = queue.failures()
    assert len(found) <= 801
    assert all(each.retried <= 2 for each in found)  # of so many fields some are told, by chance
    world.raw.hset(key, mapping={f"mail.send|Broken{n}|retry": "1|2" for n in range(3)})
    fail(queue, FailedTry("why", "Broken1"))
    assert [each.retried for each in queue.failures() if each.error_type == "Broken1"] in ([1], [0], [])


def test_entries_of_earlier_versions_are_read(open_queue: OpenQueue, world: World) -> None:
    """They keep errors as `due||text`, and their letters name no group."""
    queue = open_queue(streams=1, max_deliveries=5)
    first = queue.write(MAIL, shard_key="t")
    queue.read().nack(error="old")
    keys = queue.state.keys
    (entry,) = (field for field in world.raw.hkeys(keys.errors) if field)
    world.raw.hset(keys.errors, entry, "||an old |error")
    status = queue.status(first)
    assert (status.last_error, status.error_type) == ("an old |error", "")
    queue.read().reject("no")
    raw = world.node(keys.dead)
    ((entry_id, words),) = raw.execute_command("EVAL", "return redis.call('XRANGE', KEYS[1], '-', '+')", 1, keys.dead)
    assert words[12] == b"m"
    raw.xdel(keys.dead, entry_id)
    moved = raw.hget(keys.moved, first)
    again = raw.execute_command("XADD", keys.dead, "*", *words[:12])
    raw.hset(keys.moved, first, moved.replace(entry_id, again))
    (letter,) = queue.dead()
    assert (letter.message_id, letter.error_type, letter.failure_reason) == (first, "", "")
    assert queue.status(first).error_type == ""
    before = raw.hgetall(keys.failures)
    assert queue.redrive([letter]) == 1
    assert raw.hgetall(keys.failures) == before  # it is not known to be of any group
    assert queue.read().last_error == "no"


def test_a_letter_of_a_group_that_was_dropped_is_not_counted_down_from_the_next_one(
    open_queue: OpenQueue, world: World
) -> None:
    queue = open_queue(streams=1)
    key, group = queue.state.keys.failures, "mail.send|TimeoutError|rejected"
    for _ in range(2):
        queue.write(MAIL, shard_key="t")
        bury(queue, raised(TimeoutError()))
    first, second = queue.dead()
    words = world.raw.hget(key, group).split(b"|")
    words[1], words[2] = b"1", str(int(first.died_at * 1000) + 5000).encode()  # it began long after the first letter
    world.raw.hset(key, group, b"|".join(words))
    queue.delete_dead([first])
    assert one(queue).dead == 1
    words[2] = str(int(second.died_at * 1000)).encode()
    world.raw.hset(key, group, b"|".join(words))
    queue.delete_dead([second])
    assert one(queue).dead == 0


def test_with_parents_a_tenant_is_the_parent(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=2, parents=1)
    queue.write_many([Message(MAIL, f"acme/{number}") for number in range(3)])
    bury(queue, raised(TimeoutError()), 3)
    assert (one(queue).tenants, one(queue).tenants_lately) == (("acme",), 1)
    check_dead(queue)


def test_nobody_has_written_to_the_queue_yet(world: World, client: Client) -> None:
    assert client.queue("fresh", streams=2).failures() == []
