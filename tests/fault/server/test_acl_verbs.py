"""Each verb with each role: what a role must do works in all its cases, and what it must not do is denied.

One client with all rights goes through whatever a queue can do. Each call that it makes is made again by a user of each
role, on the same state of the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, get_args

import pytest
import redis

from shardq import Client, Limits, Message, Where
from shardq.model.peeked import PeekState
from shardq.model.schedule import FixedSchedule
from shardq.model.timetable import timetable
from shardq.ops.inspect.beats import beat_call
from shardq.ops.queue.steps import MORE_KEYS, Call
from shardq.ops.read.give_back import recover
from shardq.ops.read.waiting import Outstanding
from shardq.ops.results.waiters import result_waiting_of
from shardq.ops.schedules.attend import Attendant
from shardq.ops.write.outgoing import Outgoing
from shardq.ops.write.release import release
from shardq.ops.write.write import write_many
from shardq.protocol.keys import QueueKeys
from shardq.protocol.roles import ROLES, Role
from shardq.protocol.script import FUNCTION, Form
from shardq.spark.ops.holds import remember
from tests.acl import Users
from tests.inner import inner_looks, run
from tests.servers import Server
from tests.surface import differences, functions
from tests.waiting import eventually

KEYS = QueueKeys("jobs")
LEGACY = "{jobs}old"
MOST = 20
"""Calls of one verb that are tried."""

BESIDES = {
    "producer": "facts glance len plans present release",
    "caller": "complete dead due facts fetch glance held leased len peek plans present recount release runs skip "
    "states tenant waiting",
    "scheduler": "complete facts glance len move_schedules plans present recount release",
    "gateway": "complete facts glance len plans present recount",
    "consumer": "accounts cancel complete dead due facts fetch held holders leased len peek plans present recount "
    "redrive release runs skip states tenant waiting pause_schedule",
    "autoscaler": "due fetch glance held peek plans present runs skip tenant waiting",
    "observer": "glance holders sample skip states",
    "analyst": "accounts due glance held journal peek plans present runs tenant waiting",
    "operator": "complete glance holders knows move_schedules recount release sample skip states",
    "loader": "",
    "doctor": "due facts glance plans present",
}
"""Verbs that a role is not for, of which some run only what it may all the same: Redis knows of commands, not of verbs.
"""


class Made(NamedTuple):
    """The command of a call, and what was in Redis before it: the dump of each key."""

    verb: str
    command: bytes
    before: dict[bytes, bytes]


class Recorder:
    """Notes the calls that clients make, with the state before each."""

    def __init__(self, server: Server) -> None:
        self._plain = server.client()
        self.made: dict[str, list[Made]] = {}

    def note(self, verb: str, command: bytes) -> None:
        """Note a call that is about to be sent."""
        made = self.made.setdefault(verb, [])
        if len(made) < MOST:
            made.append(Made(verb, command, self._dumps()))

    def restore(self, made: Made) -> None:
        """Make the server's keys what they were."""
        with self._plain.pipeline(transaction=False) as pipe:
            pipe.flushall()
            for key, dump in made.before.items():
                pipe.restore(key, 0, dump)
            pipe.execute()

    def close(self) -> None:
        """Close the connection."""
        self._plain.close()

    def _dumps(self) -> dict[bytes, bytes]:
        keys: Any = self._plain.keys("*")
        with self._plain.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.dump(key)
            return dict(zip(keys, pipe.execute(), strict=True))


def messages(client: Client, **settings: Any) -> None:
    """Write, read and settle messages of all kinds, with keys, delays, limits, results and dead letters."""
    queue = client.queue(
        "jobs", streams=4, streams_per_shard=2, dedup_window=600, result_ttl=600, max_deliveries=2, journal=1000,
        visibility_timeout=600, **settings,
    )  # fmt: skip
    queue.declare()
    queue.write_many([Message(number, f"tenant-{number % 3}") for number in range(30)])
    queue.peek(5, payloads=True)
    for _ in range(2):
        queue.write("keyed", shard_key="tenant", dedup_key="key")
        queue.write("unique", shard_key="tenant", unique_key="one", on_conflict="existing")
        later = queue.write("later", shard_key="tenant", unique_key="two", on_conflict="replace", delay=60)
    queue.write_many([Message("soon", "tenant", delay=0.01, deadline=60) for _ in range(3)])
    queue.set_limits({"limited": Limits(max_in_flight=1, rate=50), "paused": Limits(rate=1)})
    queue.write_many([("waits", key) for key in ("limited", "paused") for _ in range(3)])
    first, second, third, fourth, *rest = queue.read_many(20)
    first.progress(1, 2, "half")
    first.ack(result="done")
    second.reject("bad")
    third.nack(error="again", delay=0.01)
    fourth.extend(60)
    queue.cancel(rest[0].message_id)
    queue.cancel(later)
    queue.ack_many(rest[:4])
    queue.nack_many(rest[4:8], error="again")
    queue.read_many(1, visibility_timeout=0.05)
    eventually(lambda: queue.read_many(40, block=1.0) == [])
    queue.write("last", shard_key="tenant")
    queue.read(block=1.0)
    run(queue, beat_call(queue.state, "worker", "0|8|2.50|", "", "", first=True))
    lost = rest[8].received.token.split(":")[3]
    client.run(recover(queue.state, Outstanding(lost, 0, 60_000), queue.state.until()))


def looks(client: Client) -> None:
    """Look at all that a queue tells."""
    queue = client.queue("jobs", create=True)
    queue.write_many([("seen", f"tenant-{number % 3}") for number in range(9)])
    queue.write("much later", shard_key="tenant", delay=600)
    dead = queue.dead()
    for wanted in get_args(PeekState):
        listed = queue.peek(100, state=wanted, payloads=True).messages
        for each in listed[:3]:
            queue.status(each.message_id)
    queue.peek(100, shard_key="tenant")
    looks: list[Callable[[], object]] = [
        queue.stats, queue.len, queue.tenants, queue.limits, queue.paused, queue.weights, queue.assignment,
        queue.journal, queue.plans, queue.settings, client.queues, queue.workers, queue.history, client.workers,
        queue.failures, queue.outlook, queue.actions,
    ]  # fmt: skip
    for look in looks:
        look()
    queue.tenant("tenant")
    queue.status(dead[0].message_id)
    for call in inner_looks(KEYS).values():
        run(queue, call)
    run(queue, Call.on(KEYS, "complete", (1000, "o:w:0")))


def schedules(client: Client) -> None:
    """Store schedules, and let their calls be written."""
    queue = client.queue("jobs", create=True)
    queue.configure(max_schedules=10)
    fixed = FixedSchedule("f", "f", timetable(None, "UTC", 30), "tenant", "skip", "call")
    for name in ("often", "seldom"):
        queue.schedules.add(name, "call", shard_key="tenant", every=60)
    client.run(Attendant(queue.state, client.codecs, [fixed]).attend(5.0))
    queue.schedules.pause("often")
    queue.schedules.resume("often")
    queue.schedules.run("often")
    queue.schedules.remove("often")
    queue.schedules.list()


def waits(client: Client) -> None:
    """Wait for a result, and release what a gateway remembers."""
    queue = client.queue("jobs", create=True)
    message_id = queue.write("asked", shard_key="asker")
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(queue.result, message_id, timeout=60)
        eventually(lambda: result_waiting_of(queue.state).waiters())
        while (delivery := queue.read(block=1.0)).message_id != message_id:
            delivery.ack()
        delivery.ack(result="done")
        answer.result(30)
    state = client.state_of("jobs", {}, remember=3600.0)
    client.run(write_many(state, [Outgoing(b"t", "b", b"x", dedup_key="k", most_ids=9)]))
    client.run(release(state, ["k"]))
    client.run(remember(queue.state, "query", 1, b"record"))


def operate(client: Client) -> None:
    """Do what operators do."""
    queue = client.queue("jobs", create=True)
    queue.configure(max_len=100_000)
    queue.configure(ttl=600)
    queue.state.touch_at = 0.0
    queue.write("touches", shard_key="tenant")
    queue.set_weights({"tenant-1": 2})
    queue.set_plan("gold", max_in_flight=5)
    queue.pause(seconds=60)
    queue.resume()
    queue.pause("tenant-2")
    queue.resume("tenant-2")
    queue.assign(["tenant", "another"])
    queue.unassign()
    client.bind("orders.*", queue)
    client.router().match("orders.new")
    client.unbind("orders.*", queue)
    queue.redrive(queue.dead()[:1])
    queue.read().reject("bad")
    queue.delete_dead(queue.dead())
    queue.write("bad", shard_key="tenant")
    queue.read().reject("bad")
    queue.redrive(Where(state="dead")).wait()
    queue.resize(8)
    queue.resize(2)
    queue.ack_many(queue.read_many(1000))
    queue.purge(shard_key="tenant")
    queue.purge()
    queue.ack_many(queue.read_many(1000))
    queue.state.shrink_at = 0.0
    queue.read_many(1)
    queue.delete(expected=None)


@pytest.fixture(params=["plain", "parents", "legacy"])
def recorder(request: pytest.FixtureRequest, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """The calls of a client that did everything."""
    settings: dict[str, dict[str, Any]] = {
        "plain": {"window": 1, "total_in_flight": 1000, "max_backlog": 1000, "ttl": 600}, "parents": {"parents": 1},
        "legacy": {"legacy_stream": LEGACY, "legacy_group": "old"},
    }  # fmt: skip
    recorder, pack = Recorder(server), Call.packed
    if request.param == "legacy":
        for number in range(3):
            server.run("XADD", LEGACY, "*", "field", str(number))

    def packed(call: Call, form: Form, *words: Any, **named: Any) -> bytes:
        command = pack(call, form, *words, **named)
        if form is FUNCTION:
            recorder.note(call.script.name, command)
        return command

    with Client.from_url(server.url) as client, monkeypatch.context() as patched:
        patched.setattr(Call, "packed", packed)
        messages(client, **settings[request.param])
        looks(client)
        schedules(client)
        waits(client)
        operate(client)
    yield recorder
    recorder.close()


def must(role: Role, made: Made) -> bool:
    """Whether a role must be able to make a call."""
    verbs = role.verbs.split()
    return made.verb in verbs or (made.verb == "open" and "find" in verbs and KEYS.meta.encode() in made.before)


def tried(user: redis.Connection, recorder: Recorder, made: Made) -> str:
    """What becomes of a call by this user: "done" or "denied"."""
    recorder.restore(made)
    user.send_packed_command([made.command], check_health=False)
    try:
        user.read_response()
    except redis.ResponseError as error:  # the call is one that was answered: only the user's rights are others
        return "done" if str(error).startswith(MORE_KEYS) else "denied"  # some were: with this refusal
    return "done"


@pytest.mark.everywhere
@pytest.mark.runs_in("test-all")
def test_a_role_may_call_its_verbs_and_no_others(server: Server, recorder: Recorder) -> None:
    assert differences(recorder.made, functions()) == []
    users = Users(server, legacy=LEGACY)
    wrong = []
    for name, role in ROLES.items():
        with users.connection(name) as user:
            for verb, calls in recorder.made.items():
                ends = [(must(role, each), tried(user, recorder, each)) for each in calls]
                if (True, "denied") in ends:
                    wrong.append(f"{name} must be able to {verb}: {ends}")
                if verb not in BESIDES[name].split() and not any(due or end == "denied" for due, end in ends):
                    wrong.append(f"{name} must not be able to {verb}")
    users.remove()
    assert wrong == []


@pytest.mark.once
def test_each_verb_has_a_role() -> None:
    verbs = {verb for role in ROLES.values() for verb in role.verbs.split()}
    assert differences(verbs - {"find"}, functions()) == []


@pytest.mark.once
def test_what_a_role_may_do_besides_is_said_of_each_role() -> None:
    assert differences(BESIDES, ROLES) == []
    for name, verbs in BESIDES.items():
        assert {*verbs.split()} <= functions().keys() - {*ROLES[name].verbs.split()}, name
