"""What stands in a list twice counts once: in each verb that takes a list and changes something, called by hand too.

Of deliveries, letters, keys and names it counts as it stands first; of settings, limits, weights and shards as it
stands last, as in a dict. (Messages with the same keys are in tests/conformance/write/test_in_one_call.py.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from shardq import Delivery, Limits, Message, Queue, Where
from shardq.ops.queue.opening import new_epoch
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.steps import Argument, Call
from shardq.ops.settle.command import settle_call
from shardq.ops.write.outgoing import Outgoing
from shardq.ops.write.write import write_many
from shardq.protocol.actions import AskedAction, spelled
from shardq.protocol.keys import RouterKeys
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World
from tests.house.lua_modules import Modules

LUA = Path(__file__).parents[3] / "lua"
LATER = 60_000
"""ms"""
NUMBER = "1|60000 p:somebody:0"
"""Of a call, in a producer sequence."""


def run(queue: Queue, call: Call) -> Any:
    """The reply to one call."""
    return queue._client.run(retry_until(always(call), queue.state.until(), queue.state.clock))


def by_hand(queue: Queue, verb: str, *args: Argument, keys: RouterKeys | None = None) -> Any:
    """Call the function of a verb. No code of shardq looks at the arguments."""
    return run(queue, Call.on(keys or queue.state.keys, verb, args))


def changed(queue: Queue, world: World, verb: str, *args: Argument) -> Any:
    """Call the function of a verb that moves the epoch on."""
    epoch = world.raw.hget(queue.state.keys.meta, "epoch")
    return by_hand(queue, verb, epoch, new_epoch(), "somebody", *args)


def token(delivery: Delivery) -> str:
    """Its lease."""
    return delivery.received.token


def sound(queue: Queue, world: World, in_flight: int, over: int) -> None:
    """So many messages are in flight, so many are not, and all that is counted is there."""
    stats = queue.stats()
    assert (stats.in_flight, stats.backlog + stats.delayed + stats.dead + stats.acked) == (in_flight, over)
    assert world.census(queue).problems() == []


# --- deliveries

KINDS = {"ack": "a", "nack": "n", "nack at last": "n", "reject": "r", "uncounted": "u", "unseen": "g"}


@pytest.mark.parametrize("window", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_a_lease_is_ended_once(open_queue: OpenQueue, world: World, kind: str, window: int) -> None:
    queue = open_queue(streams=4, window=window, max_deliveries=2, journal=100)
    queue.write_many([(number, "t") for number in range(3)])
    if kind == "nack at last":
        queue.nack_many(queue.read_many(3))
    one, other, _ = queue.read_many(3)
    leases = [token(one), token(one), token(other)]
    words: list[Argument] = [*leases]
    if kind not in ("ack", "unseen"):
        words = [word for lease, delay in zip(leases, (0, LATER, 0), strict=True) for word in (lease, delay, "why", "")]
    streams = tuple(queue.state.keys.stream(number) for number in range(4))
    letters = run(queue, settle_call(queue.state, KINDS[kind], words, streams, costs="1,1,1"))[1]
    assert letters == (b"ddd" if kind in ("reject", "nack at last") else b"ooo")
    assert queue.stats().delayed == 0
    sound(queue, world, 1, 2)


def test_a_lease_is_extended_once_and_its_work_is_charged_once(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4)
    queue.write_many([(number, key) for number in range(4) for key in "tuv"])
    one, other = queue.read_many(2)  # others wait meanwhile, so the work is charged
    cost = "=100000.0"
    reply = by_hand(queue, "extend", LATER, ",".join([cost] * 3), "host-7", token(one), token(one), token(other))
    assert reply[1] == b"ooo"
    ahead = [queue.tenant(each.shard_key).ahead for each in (one, other)]
    assert ahead[0] == ahead[1] > 50


METHODS: dict[str, Callable[[Queue, Sequence[Delivery]], list[Delivery]]] = {
    "ack_many": lambda queue, batch: queue.ack_many(batch),
    "nack_many": lambda queue, batch: queue.nack_many(batch),
    "nack_many uncounted": lambda queue, batch: queue.nack_many(batch, error="no", counted=False),
    "reject_many": lambda queue, batch: queue.reject_many(batch, "no"),
}


@pytest.mark.parametrize("many", [1, 300], ids=["in one call", "in two calls"])
@pytest.mark.parametrize("method", METHODS)
def test_a_delivery_that_a_method_is_given_twice_counts_once(
    queue: Queue, world: World, method: str, many: int
) -> None:
    queue.write_many([(number, "t") for number in range(2)])
    one, other = queue.read_many(2)
    batch = [one, *[one] * many, other]
    assert METHODS[method](queue, batch) == []
    assert (one.lost, other.lost) == (False, False)
    sound(queue, world, 0, 2)
    lost = METHODS[method](queue, batch)
    assert [each.message_id for each in lost] == [one.message_id, other.message_id]


def test_its_first_place_and_its_first_terms_count(queue: Queue, world: World) -> None:
    queue.write_many([(number, "t") for number in range(4)])
    one, other, bad, worse = queue.read_many(4)
    queue.nack_many([one, other, one], delay=[0.0, 0.0, 60.0], error=["first", "second", "third"])
    queue.reject_many([bad, worse, bad], ["first", "second", "third"])
    assert {each.message_id: each.last_error for each in queue.read_many(9)} == {
        one.message_id: "first", other.message_id: "second",
    }  # fmt: skip
    assert [(letter.message_id, letter.reason) for letter in queue.dead()] == [
        (bad.message_id, "first"), (worse.message_id, "second"),
    ]  # fmt: skip
    sound(queue, world, 2, 2)


def test_of_two_results_of_a_delivery_the_first_is_kept(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, result_ttl=60)
    message_id = queue.write(0, shard_key="t")
    delivery = queue.read()
    assert queue.ack_many([delivery, delivery], results=["first", "second"]) == []
    assert queue.result(message_id, timeout=0) == "first"
    sound(queue, world, 0, 1)


def _keep(queue: Queue, world: World) -> None:
    ids = queue.write_many([(number, "t") for number in range(2)])
    one, other = queue.read_many(2)
    words: list[Argument] = []
    for delivery, text in ((one, "j|1"), (one, "j|20"), (other, "j|3")):
        words += (token(delivery), delivery.message_id, "v", text)
    assert by_hand(queue, "keep", *words)[1] == b"ooo"
    assert [queue.result(each, timeout=0) for each in ids] == [1, 3]
    by_hand(queue, "keep", token(one), one.message_id, "v", "j|1")
    assert queue.stats().result_count == 2
    assert (
        queue.stats().result_bytes
        == queue.tenant("t").result_bytes
        == sum(
            len(text) + 2 * len(field) + 200
            for field, text in world.raw.hgetall(queue.state.keys.results).items()
            if field
        )
    )


def _await(queue: Queue, world: World) -> None:
    message_id = queue.write(0, shard_key="t")
    queue.read().ack(result=7)
    texts = by_hand(queue, "await", 1000, message_id, message_id)[2]
    assert texts[0] == texts[1] != b""


# --- dead letters


def _dead(queue: Queue, count: int) -> list[Any]:
    queue.write_many([(number, "t") for number in range(count)])
    queue.reject_many(queue.read_many(count), "no")
    return queue.dead()


def _delete_dead(queue: Queue, world: World) -> None:
    one, other = _dead(queue, 2)
    names = (one.message_id, one.message_id, one.entry_id, one.entry_id)
    for _ in range(2):  # the second one is a repetition
        assert by_hand(queue, "delete_dead", "somebody", NUMBER, "", 0, 2, *names) == [b"OK", b"1|0"]
    assert (queue.stats().dead_deleted, queue.tenant("t").dead) == (1, 1)
    assert queue.delete_dead([other, other]) == 1
    assert queue.tenant("t").dead == 0
    (third,) = _dead(queue, 1)
    assert queue.delete_dead(ids=[third.message_id, third.message_id]) == 1


def _redrive(queue: Queue, world: World) -> None:
    first, second = (letter.entry_id for letter in _dead(queue, 2))
    for _ in range(2):  # the second one is a repetition
        assert by_hand(queue, "redrive", NUMBER, "somebody", first, first) == [b"OK", b"1|0|0"]
    assert by_hand(queue, "redrive", "-", "somebody", first, second, second) == [b"OK", b"1|0|0"]
    assert (queue.tenant("t").backlog, queue.tenant("t").dead) == (2, 0)
    (third,) = _dead(queue, 1)
    assert queue.redrive([third, third]) == 1


def test_a_second_letter_of_a_message_that_is_there_stays_a_letter(queue: Queue, world: World) -> None:
    """A version before this one could write two of one message."""
    (letter,) = _dead(queue, 1)
    dead = queue.state.keys.dead
    world.raw.xadd(dead, dict(world.raw.xrange(dead)[0][1]))
    assert queue.redrive(queue.dead()) == 1
    (second,) = queue.dead()
    assert second.message_id == letter.message_id
    assert len(queue.read_many(9)) == 1
    sound(queue, world, 1, 1)
    assert queue.delete_dead([second]) == 1


# --- settings


def _limit(queue: Queue, world: World) -> None:
    queue.write_many([(number, key) for number in range(3) for key in "tu"])
    one, none = (1, "-", "-", ""), ("-", "-", "-", "")
    assert changed(queue, world, "limit", "", "t", *one, "t", *none, "u", *none, "u", *one) == b"OK"
    assert queue.limits() == {"u": Limits(max_in_flight=1)}
    assert sorted(str(each.shard_key) for each in queue.read_many(9)) == ["t", "t", "t", "u"]
    queue.set_plan("gold", max_in_flight=2)
    assert (
        changed(queue, world, "limit", "", "t", "=gold", "-", "-", "", "t", "=gold", "-", "-", "", "u", *none) == b"OK"
    )
    assert (queue.limits(), queue.plans()["gold"].tenants) == ({"t": "gold"}, 1)


def _weigh(queue: Queue, world: World) -> None:
    assert changed(queue, world, "weigh", "", "t", 5, "t", 1, "u", 1, "u", 3) == b"OK"
    assert queue.weights() == {"u": 3} == queue.set_weights({"v": 5, b"v": 1})
    assert (queue.tenant("t").weight, queue.tenant("u").weight, queue.tenant("v").weight) == (1, 3, 1)


def _configure(queue: Queue, world: World) -> None:
    assert changed(queue, world, "configure", "max_len", 7, "max_len", 9) == b"OK"
    assert queue.settings().max_len == 9


def _open(queue: Queue, world: World) -> None:
    queue.delete(expected=None)
    streams = tuple(queue.state.keys.stream(number) for number in range(2))
    args = (2, new_epoch(), "accounts", 1, "max_len", 7, "max_len", 9)
    assert run(queue, Call.on(queue.state.keys, "open", args, rest=streams))[0] == b"CREATED"
    assert queue.settings().max_len == 9


def _assign(queue: Queue, world: World) -> None:
    args = (queue.state.epoch, new_epoch(), "1|2", 3, 2, "t", "t", "t", "0,1", "t", "1,2")
    assert by_hand(queue, "assign", *args) == b"OK"
    assert dict(queue.assignment().items()) == {b"t": (1, 2)}
    assert len(queue.assign(["u", "u", b"u"])) == 2
    assert len(queue.unassign(["u", b"u"])) == 1


# --- keys, offsets, schedules and bindings


def _write(queue: Queue, world: World) -> None:
    keys: list[dict[str, Any]] = [{"dedup_key": "k"}, {"unique_key": "k"}]
    for each in keys:
        first, *others = queue.write_many([Message(number, "t", **each) for number in range(3)])
        assert others == [first, first]
    assert queue.stats().written == queue.tenant("t").dedup_keys == 2


def _knows(queue: Queue, world: World) -> None:
    meta, epochs = queue.state.keys.meta, [new_epoch() for _ in range(3)]
    queue.write("x", shard_key="t", dedup_key="k")
    words = ("t", "k", "k", "t", "k", "k", "t", "u", "k")
    for generation, epoch, now in ((3, 0, 0), (3, 1, 0), (2, 1, 0), (4, 2, 2)):
        assert by_hand(queue, "knows", generation, epochs[epoch], *words) == b"110"
        assert world.raw.hget(meta, "epoch") == epochs[now].encode(), "it moves once for each map that is newer"
    assert world.raw.hget(meta, "generation") == b"4"


def _release(queue: Queue, world: World) -> None:
    ids = [Outgoing("t", "b", b"x", dedup_key=f"token:{number}", most_ids=9) for number in range(2)]
    queue._client.run(write_many(queue.state, ids))
    assert by_hand(queue, "release", "token:0", "token:0", "token:1") == 2
    assert world.raw.hget(queue.state.keys.dedup, "i:") == b"0"


def _complete(queue: Queue, world: World) -> None:
    offsets, far = queue.state.keys.bulk_offsets, 9e12
    world.raw.zadd(offsets, {"o:w:0": far, "o:w:1": far})
    assert by_hand(queue, "complete", LATER, "o:w:0", "o:w:0") == b"OK"
    assert world.raw.zscore(offsets, "o:w:0") < world.raw.zscore(offsets, "o:w:1") == far


def _move_schedules(queue: Queue, world: World) -> None:
    queue.schedules.add("often", "call", shard_key="t", every=60)
    _, _, (_, said, *_) = by_hand(queue, "schedules", "0", 1, "often")
    assert by_hand(queue, "move_schedules", "often", said, 5, "often", said, 7) == 1
    assert world.raw.zscore(queue.state.keys.schedule_due, "u:often") == 5


def _bind(queue: Queue, world: World) -> None:
    router, most, kept = RouterKeys("default"), 1, 100
    for repeated in (0, 1):
        words = ("+", most, kept, 0, "nonce", repeated, "a q", "a q")
        assert by_hand(queue, "bind", *words, keys=router) == [b"OK", b"1", [1, 0]]
    assert by_hand(queue, "bind", "+", most, kept, 1, "other", 0, "b q", "b q", keys=router) == [b"FULL", 1]
    assert by_hand(queue, "bind", "-", most, kept, 1, "third", 0, "a q", "a q", keys=router) == [b"OK", b"2", [1, 0]]
    client = queue._client
    assert client.bind_many([("a", "q"), ("a", "q")]) == []
    assert client.bind_many([("a", "q"), ("a", "q")]) == [("a", "q")], "it was there"
    assert client.unbind_many([("a", "q"), ("a", "q")]) == []


def _act(queue: Queue, world: World) -> None:
    first, second = (letter.entry_id for letter in _dead(queue, 2))
    asked = spelled(AskedAction("redrive", Where(state="dead")))
    assert by_hand(queue, "steer", "begin", "x", "me", asked, "me")[0] == b"OK"
    rows = [("0-0-d", "d", each, "", "dead", 0) for each in (first, first, second, first)]
    words = ("x", "me", 0, "somebody", "redrive", "running", "", "-", "", *(word for row in rows for word in row))
    assert by_hand(queue, "act", *words) == [b"OK", b"running", 2, 2, 0]
    assert by_hand(queue, "act", *words) == [b"OK", b"running", 2, 2, 0], "a repetition of the call"
    message_id = queue.write(1, shard_key="t", delay=60)
    row = (message_id, "d", message_id.rpartition("-")[0], "", "delayed", 0)
    words = ("x", "me", 1, "somebody", "cancel", "done", "", "-", "", *row, *row)
    assert by_hand(queue, "act", *words) == [b"OK", b"done", 1, 1, 0]


CASES: dict[str, Callable[[Queue, World], None]] = {
    "keep": _keep, "await": _await, "delete_dead": _delete_dead, "redrive": _redrive, "limit": _limit, "weigh": _weigh,
    "configure": _configure, "open": _open, "assign": _assign, "write": _write, "knows": _knows,
    "release": _release, "complete": _complete, "act": _act, "move_schedules": _move_schedules, "bind": _bind,
}  # fmt: skip


@pytest.mark.parametrize("verb", CASES)
def test_each_verb_counts_it_once(open_queue: OpenQueue, world: World, verb: str) -> None:
    queue = open_queue(streams=4, result_ttl=60, max_schedules=10)
    queue.declare()
    CASES[verb](queue, world)
    assert world.census(queue).problems() == []


@pytest.mark.once
def test_no_verb_that_takes_a_list_is_left_out() -> None:
    lists = {verb.name for verb in Modules(LUA).verbs if verb.more and "no-writes" not in verb.flags}
    alone = {"settle", "extend", "beat", "delete", "store_schedule"}  # the last three have one word more at most
    assert lists == CASES.keys() | alone
