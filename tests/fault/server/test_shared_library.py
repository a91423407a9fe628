"""All queues of a server share one library: what one queue's users send changes nothing for another queue."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence

import pytest
import redis

from shardq import Client
from shardq.protocol.keys import QueueKeys
from shardq.protocol.scripts import library
from tests.acl import PASSWORD, Users
from tests.servers import Server

pytestmark = pytest.mark.once
MIB = 2**20
OWN = "jobs"
"""The queue that the fixture's users have rights to."""


def inexact(power: int) -> Iterator[int]:
    """Whole numbers from 2 to this power on whose last three digits are not what is left of them by 1,000 in Lua.

    So large a double is not exact: Lua rounds what it takes away.
    """
    step: int = 2 ** (power - 52)
    for number in range(2**power, 2**power + 3000 * step, step):
        value = float(number)
        left = value - float(int(value / 1000.0)) * 1000.0
        if 0 <= left < 1000 and f"{value:.0f}"[-3:] != f"{left:03.0f}":
            yield number


def text(plain: redis.Redis, key: str, field: str) -> str:
    """A field of a hash."""
    found = plain.hget(key, field)
    assert isinstance(found, bytes)
    return found.decode()


def write(plain: redis.Redis, due: Sequence[int]) -> None:
    """Call the verb `write` by hand, with a message that is due at each of these moments."""
    keys = QueueKeys(OWN)
    declared = [getattr(keys, each) for each in library().verbs["write"].keys] + [keys.stream(0)]
    epoch = text(plain, keys.meta, "epoch")
    now = int(time.time() * 1000)
    options = [each for at in due for each in ("\x01", "k", "b", "hello", "", f"|{at - now}|")]
    with contextlib.suppress(redis.ResponseError):  # a refusal is right, too
        head = f"{epoch} 600000 {len(due)} 6 x -"
        plain.execute_command("FCALL", library().function("write"), len(declared), *declared, head, *options)


def test_numbers_that_no_double_holds_change_no_other_queues_ids_and_counts(server: Server, users: Users) -> None:
    with Client.from_url(server.url) as client, server.client(username="producer", password=PASSWORD) as mine:
        client.queue(OWN, streams=1, streams_per_shard=1).declare()
        queue = client.queue("theirs", streams=1, streams_per_shard=1)
        ids = queue.write_many([(n, "t") for n in range(4500)])
        for power in (56, 57, 58, 60):
            write(mine, list(inexact(power))[:1000])
        ids += [queue.write(n, shard_key="t") for n in range(4500, 5500)]
        assert (queue.len(), len({*ids})) == (5500, 5500)
        seen = []
        while deliveries := queue.read_many(500):
            seen += [(each.message_id, each.payload) for each in deliveries]
            queue.ack_many(deliveries)
        assert seen == list(zip(ids, range(5500), strict=True))
        assert queue.stats().acked == 5500


def test_long_texts_of_a_queue_fill_no_memory_of_the_library(server: Server, users: Users) -> None:
    """Lua's memory lies outside of maxmemory: a full server is not what stops it."""
    with Client.from_url(server.url) as client, server.client(username="producer", password=PASSWORD) as mine:
        client.queue(OWN, streams=1, streams_per_shard=1).declare()
        meta = QueueKeys(OWN).meta
        usual = {name: text(mine, meta, name) for name in ("rules", "line")}

        def used() -> int:
            return int(server.info("memory")["used_memory_vm_functions"])

        before = used()
        found: list[int] = []
        for number in range(60):
            mine.hset(meta, "rules", f"{usual['rules']} Z{number}{'x' * 200_000}")
            mine.hset(meta, "line", f"{number:0200000}{usual['line'].lstrip('0123456789')}")
            write(mine, [1])
            found.append(used() - before)
        # Lua collects what nobody holds once it is as much as the rest: so what counts is where it comes down to.
        assert min(found[30:]) < 6 * MIB
