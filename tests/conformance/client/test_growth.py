"""Others choose names, of queues, routers and topics. A client remembers those that it uses, and a few besides."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shardq import Client, QueueMissing
from shardq.client.kept import MAX_MISSING, MAX_UNUSED, Kept
from tests.conformance.client.growth import KINDS
from tests.selection import SOAK
from tests.servers import Server

NAMES = 100_000 if SOAK else 20_000
"""The largest bound is 16,384 names, so more of them show no more."""
MAX_GROWTH = 2_000_000


@pytest.mark.once
@pytest.mark.runs_in("test-all", "soak")
@pytest.mark.parametrize("kind", KINDS)
def test_names_that_others_choose_leave_little_behind(server: Server, kind: str) -> None:
    """A queue took 8 kB of a client, and a router 35 kB."""
    command = [sys.executable, "-m", "tests.conformance.client.growth", server.url, kind, str(NAMES)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True).stdout
    assert int(told) < MAX_GROWTH


class Value:
    def __init__(self, *, known: bool) -> None:
        self.known = known


def kept() -> Kept[Value]:
    return Kept(lambda value: value.known)


@pytest.mark.once
def test_what_was_used_last_is_remembered_and_what_is_in_use() -> None:
    values = kept()
    used = Value(known=False)
    values.put("used", used)
    for number in range(3 * MAX_UNUSED):
        values.put(number, Value(known=True))
        assert values.get(0) is not None, "it is used again and again"
    assert values.get("used") is used
    assert [number for number in range(3 * MAX_UNUSED) if values.get(number)] == [
        0,
        *range(2 * MAX_UNUSED + 1, 3 * MAX_UNUSED),
    ]
    assert len(values) == MAX_UNUSED + 1 == len(values.all())


@pytest.mark.once
def test_names_of_nothing_displace_nothing_that_is_there() -> None:
    values = kept()
    values.put("there", Value(known=True))
    later = Value(known=False)
    values.put("later", later)
    later.known = True
    del later
    for number in range(10 * MAX_MISSING):
        values.put(number, Value(known=False))
    assert values.get("there")
    assert values.get("later"), "Redis has said since that it is there"
    assert len(values) == MAX_MISSING + 2


def test_a_queue_that_is_held_is_one_with_that_of_its_name(client: Client, queue_name: str) -> None:
    """Whatever was named in the meantime: settings, epoch and callers are shared."""
    queue = client.queue(queue_name, create=True)
    queue.write(b"x", shard_key="t")
    for number in range(2 * MAX_MISSING):
        with pytest.raises(QueueMissing):
            client.queue(f"{queue_name}-{number}").stats()
    assert client.queue(queue_name).state is queue.state
