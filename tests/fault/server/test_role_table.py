"""What docs/acls.md says of each role: every sentence of its table, shown by calls of a user with that role."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import redis

from shardq import BackendError, Client, Limits, Message, Queue, QueueMissing
from shardq.ops.queue.steps import Call
from shardq.protocol.keys import QueueKeys
from shardq.protocol.roles import ROLES
from tests.acl import Users, is_denial
from tests.house.doc_blocks import ROOT
from tests.inner import run
from tests.servers import Server
from tests.surface import differences

PAGE = (ROOT / "docs/acls.md").read_text()
KEYS = QueueKeys("jobs")
SECRET = b"payload"


class World:
    """A queue with something of everything, which all roles may reach as far as their rights go."""

    def __init__(self, server: Server, users: Users, client: Client) -> None:
        self.server, self.users = server, users
        self.own = client.queue(
            "jobs", streams=1, streams_per_shard=1, result_ttl=600, max_schedules=9, visibility_timeout=600
        )
        self.own.declare()
        self.own.write_many([Message(SECRET, f"tenant-{number}") for number in range(9)])
        self.later = self.own.write(SECRET, shard_key="tenant", delay=600)
        self.own.write(SECRET, shard_key="keyed", dedup_key="once", unique_key="one")
        self.own.schedules.add("often", "call", shard_key="tenant", every=60)
        first, second, self.third, self.fourth, self.fifth = self.own.read_many(5)
        self.own.ack_many([first], results=[SECRET])
        second.reject("bad")
        self.done = first.message_id

    def can(self, role: str, *words: Any) -> Any:
        """The answer to a command of this role."""
        return self.users.run(role, *words)

    def is_denied(self, role: str, *words: Any) -> bool:
        """Whether Redis denies this role a command."""
        try:
            self.users.run(role, *words)
        except redis.ResponseError as error:
            return is_denial(error)
        return False

    def refuses(self, role: str, call: Callable[[Queue], object]) -> bool:
        """Whether a call of this role is denied, and has changed nothing."""
        before = self._content()
        try:
            self.call(role, call)
        except BackendError as error:
            return "right" in str(error) and self._content() == before
        return False

    def call(self, role: str, call: Callable[[Queue], object]) -> Any:
        """What a call of this role returns."""
        with Client.from_url(self.users.url(role)) as client:
            return call(client.queue("jobs"))

    def _content(self) -> list[Any]:
        with self.server.client() as plain:
            found: Any = plain.keys("*")
            return [
                (key, plain.hgetall(key) if plain.type(key) == b"hash" else plain.dump(key)) for key in sorted(found)
            ]


def stored_payload(world: World, role: str) -> None:
    assert SECRET in world.can(role, "HGET", KEYS.bodies, world.later.rpartition("-")[0])


def keys_and_producers(world: World, role: str) -> None:
    assert world.can(role, "ZRANGEBYSCORE", KEYS.dedup_index, "-inf", "+inf")
    assert world.can(role, "ZRANGEBYSCORE", KEYS.producers, "-inf", "+inf")


def small_state(world: World, role: str) -> None:
    world.can(role, "HSET", KEYS.meta, "field", "value")


def as_a_producer(world: World, role: str) -> None:
    for each in (stored_payload, keys_and_producers, small_state):
        each(world, role)


def payloads_and_results(world: World, role: str) -> None:
    entries(world, role)
    assert world.call(role, lambda queue: queue.dead())[0].payload == SECRET
    assert world.call(role, lambda queue: queue.result(world.done)) == SECRET


def payloads_of_schedules(world: World, role: str) -> None:
    assert world.can(role, "HGET", KEYS.schedules, "often")


def all_but_limits_and_shards(world: World, role: str) -> None:
    assert world.call(role, lambda queue: queue.redrive(queue.dead())) == 1
    assert world.call(role, lambda queue: queue.ack_many(queue.read_many(2))) == []
    assert world.call(role, lambda queue: queue.cancel(world.later)) == "removed"
    for call in OPERATORS:
        assert world.refuses(role, call), call


OPERATORS: tuple[Callable[[Queue], object], ...] = (
    lambda queue: queue.pause(),
    lambda queue: queue.pause("tenant"),
    lambda queue: queue.set_limits({"tenant": Limits(rate=1)}),
    lambda queue: queue.set_weights({"tenant": 2}),
    lambda queue: queue.set_plan("gold", rate=1),
    lambda queue: queue.configure(max_len=9),
    lambda queue: queue.assign(["tenant"]),
    lambda queue: queue.resize(2),
    lambda queue: queue.purge(),
)


def entries(world: World, role: str) -> None:
    assert SECRET in repr(world.can(role, "XRANGE", KEYS.stream(0), "-", "+")).encode()


def all_of_the_queue(world: World, role: str) -> None:
    all_messages(world, role)
    assert world.call(role, lambda queue: queue.peek(9, payloads=True).messages)
    assert world.can(role, "HGET", KEYS.results, world.done)


def all_messages(world: World, role: str) -> None:
    entries(world, role)
    stored_payload(world, role)
    assert world.call(role, lambda queue: queue.dead())[0].payload == SECRET


def leases_and_acks(world: World, role: str) -> None:
    assert world.call(role, lambda queue: queue.read()).payload == SECRET
    world.own.purge()
    world.own.write(SECRET, shard_key="lone")
    acked = world.own.stats().acked
    world.call(role, lambda queue: queue.read().ack())
    assert world.own.stats().acked == acked + 1


def changes_all(world: World, role: str) -> None:
    for call in OPERATORS:
        world.call(role, call)


def writes(world: World, role: str) -> None:
    assert world.call(role, lambda queue: queue.write(SECRET, shard_key="tenant")).is_new


def settles_nothing(world: World, role: str) -> None:
    assert world.refuses(role, lambda queue: queue.nack_many([world.third]))
    assert world.refuses(role, lambda queue: queue.reject_many([world.fourth], "bad"))
    token = world.fifth.received.token
    assert world.refuses(role, lambda queue: run(queue, Call.on(KEYS, "extend", (60_000, "", "", token))))


def no_setting(world: World, role: str) -> None:
    assert world.is_denied(role, "CONFIG", "GET", "maxmemory")


def replaces_functions(world: World, role: str) -> None:
    assert world.can(role, "FUNCTION", "LOAD", "REPLACE", "#!lua name=of_a_test\nredis.register_function('of_a_test', "
                     "function() return 1 end)")  # fmt: skip
    world.can(role, "FUNCTION", "DELETE", "of_a_test")


def passwords(world: World, role: str) -> None:
    assert world.can(role, "CONFIG", "GET", "requirepass")


Claim = Callable[[World, str], None]
TABLE: dict[str, dict[str, Claim]] = {
    "producer": {
        "reading the payload of a message that waits outside of the streams, if it knows its id": stored_payload,
        "listing dedup and unique keys, and names of producers": keys_and_producers,
        "changing the queue's small state, as each write does": small_state,
    },
    "caller": {"reading payloads, results and dead letters": payloads_and_results},
    "scheduler": {"the same as a producer": as_a_producer, "reading the payloads of schedules": payloads_of_schedules},
    "gateway": {"the same as a producer": as_a_producer},
    "consumer": {
        "reading and changing whatever is in the queue but its limits and shards": all_but_limits_and_shards,
    },
    "autoscaler": {"reading payloads, since it looks at messages for their ages": entries},
    "observer": {"it reads all of the queue": all_of_the_queue},
    "analyst": {"it reads all messages": all_messages},
    "operator": {
        "writing messages": writes,
        "leasing messages as a consumer does, and acking a lone one": leases_and_acks,
        "changing all of the queue": changes_all,
        "It neither nacks, rejects nor extends any": settles_nothing,
        "it reads no setting of the server": no_setting,
    },
    "loader": {"replacing functions that others call, with their rights": replaces_functions},
    "doctor": {"reading the passwords among these: Redis cannot allow single settings": passwords},
}
"""By role what stands in the last column, in its parts, and what shows each."""


def said(role: str) -> list[str]:
    """What the page says that a role cannot be kept from, in its parts."""
    (cell,) = re.findall(rf"^\| {role} \|.*\| ([^|]+) \|$", PAGE, re.MULTILINE)
    return re.split(r"; |\. ", cell)


@pytest.fixture
def world(server: Server) -> Any:
    """A queue, and a user for each role."""
    users = Users(server)
    with Client.from_url(server.url) as client:
        yield World(server, users, client)
    users.remove()


@pytest.mark.once
def test_the_table_says_of_each_role_what_is_shown_here() -> None:
    assert differences(TABLE, ROLES) == []
    assert {role: said(role) for role in TABLE} == {role: [*claims] for role, claims in TABLE.items()}


@pytest.mark.parametrize("role", TABLE)
def test_what_a_role_cannot_be_kept_from_is_true(world: World, role: str) -> None:
    for claim in TABLE[role].values():
        claim(world, role)


@pytest.mark.parametrize("role", [role for role in TABLE if role not in ("consumer", "operator", "loader", "doctor")])
def test_only_a_consumer_or_an_operator_creates_a_queue(world: World, role: str) -> None:
    world.own.delete(expected=None)
    with pytest.raises((BackendError, QueueMissing)):
        world.call(role, lambda queue: queue.write(SECRET, shard_key="tenant"))
    assert world.refuses(role, lambda queue: queue.declare())
    with world.server.client() as plain:
        assert plain.exists(KEYS.meta) == 0


@pytest.mark.parametrize("role", [role for role in TABLE if role not in ("operator", "loader", "doctor")])
def test_pauses_limits_weights_settings_and_shards_are_the_operators(world: World, role: str) -> None:
    for call in OPERATORS:
        assert world.refuses(role, call), call


@pytest.mark.parametrize("role", TABLE)
def test_no_role_sees_what_shows_payloads_of_all_queues(world: World, role: str) -> None:
    assert world.is_denied(role, "SLOWLOG", "GET")
    assert world.is_denied(role, "MONITOR")
