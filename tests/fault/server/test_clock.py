"""The server's clock jumps: by a program that is preloaded into it, and by moving all deadlines instead."""

from __future__ import annotations

import mmap
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from shardq import Client, LeaseLost, Queue
from shardq.protocol.keys import QueueKeys
from tests.parts import GCC
from tests.servers import Server, ServerKind, available
from tests.waiting import eventually

HOUR = 3_600_000
SOON = 15.0


class Shimmed(Server):
    """A server whose clock can be moved, or stands still at a time in milliseconds until it is moved."""

    def __init__(self, kind: ServerKind, folder: Path, *, still_at: int = 0, **settings: Any) -> None:
        library, starter, self._offset = folder / "shim.so", folder / "server", folder / "offset"
        source = Path(__file__).with_name("clockshim.c")
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        self._offset.write_bytes(still_at.to_bytes(8, "little"))
        words = f"CLOCKSHIM={self._offset}{' CLOCKSHIM_STILL=1' if still_at else ''} LD_PRELOAD={library}"
        starter.write_text(f'#!/bin/sh\n{words} exec {kind.binary} "$@"\n')
        starter.chmod(0o755)
        super().__init__(replace(kind, binary=str(starter)), **settings)

    def jump(self, milliseconds: int) -> None:
        """Move the clock, relative to the true time."""
        with self._offset.open("r+b") as file, mmap.mmap(file.fileno(), 8) as page:
            page[:] = milliseconds.to_bytes(8, "little", signed=True)


@pytest.fixture(params=[kind.product for kind in available()])
def movable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shimmed]:
    """A server with a movable clock."""
    GCC.need()
    (kind,) = (kind for kind in available() if kind.product == request.param)
    with Shimmed(kind, tmp_path) as server:
        before = server.run("TIME")[0]
        server.jump(HOUR)  # the server keeps its time for an instant
        eventually(lambda: server.run("TIME")[0] - before >= 3600, what="the clock's jump")
        server.jump(0)
        eventually(lambda: server.run("TIME")[0] - before < 3600, what="the clock's way back")
        yield server


@pytest.fixture(params=[0, 1], ids=["plain", "window"])
def window(request: pytest.FixtureRequest) -> int:
    """With a window leases lie in buckets of their shard keys."""
    return int(request.param)


@pytest.fixture
def queue(movable: Shimmed, window: int) -> Iterator[Queue]:
    """A queue on it, whose client has seen the server's clock."""
    with Client.from_url(movable.url) as client:
        queue = client.queue("jobs", streams=4, visibility_timeout=1.0, window=window)
        queue.write("-", shard_key="-")
        queue.read().ack()
        yield queue


def test_a_forward_jump_ends_no_lease_early(movable: Shimmed, queue: Queue) -> None:
    queue.write_many([(str(n), f"tenant-{n}") for n in range(20)])
    held = queue.read_many(20, visibility_timeout=30)
    movable.jump(HOUR)

    def noticed() -> bool:
        """A server keeps its time for an instant, so the first reads may not see the jump; none may take a lease."""
        assert queue.read_many(50, visibility_timeout=30) == []  # for so long leases are kept longer then
        return b"jump=" in movable.run("HGET", queue.state.keys.meta, "odd")

    eventually(noticed)
    assert queue.read_many(50) == []
    held[0].extend(30)
    assert queue.ack_many(held) == []
    assert queue.stats().acked == 21


@pytest.mark.runs_in("test-all")
def test_after_a_forward_jump_work_goes_on_and_lost_leases_come_back_a_lease_time_later(
    movable: Shimmed, queue: Queue
) -> None:
    lost = queue.write("lost", shard_key="tenant")
    queue.read(visibility_timeout=1.0)
    jumped = time.monotonic()
    movable.jump(HOUR)
    new = queue.write("new", shard_key="tenant")
    found: dict[str, tuple[int, float]] = {}
    while len(found) < 2:
        delivery = queue.read(block=SOON)
        found.setdefault(delivery.message_id, (delivery.count, time.monotonic() - jumped))
    assert {key: count for key, (count, _) in found.items()} == {new: 1, lost: 2}
    assert found[lost][1] > 0.9
    assert found[new][1] < found[lost][1]


def test_a_backward_jump_ends_no_lease_early_and_ids_still_rise(movable: Shimmed, queue: Queue) -> None:
    first = queue.write("first", shard_key="tenant")
    held = queue.read(visibility_timeout=30)
    movable.jump(-HOUR)
    second = queue.write("second", shard_key="tenant")
    assert [int(each.split("-")[0]) for each in (first, second)] == sorted(
        int(each.split("-")[0]) for each in (first, second)
    )
    assert queue.read(visibility_timeout=30).message_id == second
    held.ack()
    assert queue.read_many(1) == []


def behind(queue: Queue, server: Server, milliseconds: int) -> None:
    """As if the server's clock had jumped: all deadlines, and what the client saw of the clock, lie so far back."""
    state: Any = queue.state
    state.server_time = structs.replace(state.server_time, ms=state.server_time.ms - milliseconds)
    keys = QueueKeys(queue.name)
    with server.client() as plain:
        for index in (keys.leases, keys.due):
            for member, score in plain.zrange(index, 0, -1, withscores=True):
                if score < 9e15:
                    plain.zadd(index, {member: score - milliseconds})


@pytest.mark.runs_in("test-all")
def test_a_jump_that_is_only_seen_by_the_deadlines_ends_no_lease_early(
    server: Server, queue_name: str, window: int
) -> None:
    with Client.from_url(server.url) as client:
        queue = client.queue(queue_name, streams=4, visibility_timeout=1.0, window=window)
        queue.write("work", shard_key="tenant")
        held = queue.read(visibility_timeout=30)
        behind(queue, server, HOUR)
        assert queue.read_many(1) == []
        held.ack()
        queue.write("lost", shard_key="tenant")
        lost = queue.read()
        behind(queue, server, HOUR)
        assert queue.read_many(1, visibility_timeout=3) == []  # for so long leases are kept longer then
        eventually(lambda: queue.read_many(1), SOON)
        with pytest.raises(LeaseLost):
            lost.ack()
