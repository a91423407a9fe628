"""How a queue differs from what a file declares, of made-up values: nothing is asked of a server."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from shardq import AsyncClient, Client
from shardq.assignment import Assignment
from shardq.declared import Change, DeclaredQueue, Found, of_queue, of_router, parsed
from shardq.errors import ConfigError, ShardqError
from shardq.model import Controls, LimitControl, Limits, Plan, QueueConfig, WeightControl
from shardq.routing import Binding


@pytest.fixture
def client() -> Iterator[Client]:
    """One that is never used: nobody listens there."""
    with Client.from_url("redis://localhost:1") as client:
        yield client


def found(controls: Controls | None = None, **settings: Any) -> Found:
    """What Redis has of a queue."""
    config = QueueConfig(**settings)
    assigned = Assignment.of({}, config.streams, config.streams_per_shard, max_overlap=1)
    return Found(config, controls or Controls(0, {}, {}, {}, {}), assigned)


def lines(changes: Iterator[Change]) -> list[str]:
    return [line for change in changes for line in change.lines]


def declared(text: str) -> DeclaredQueue:
    (queue,) = parsed(f"[queues.jobs]\n{text}".encode()).queues
    return queue


def test_what_is_as_declared_is_no_change(client: Client) -> None:
    assert lines(of_queue(client, declared("streams = 8\nttl = 'none'"), found(streams=8, max_len=5))) == []


def test_each_setting_weight_plan_and_limit_that_differs_is_a_line(client: Client) -> None:
    controls = Controls(
        0, {}, {"b": LimitControl(until=math.inf, limits="old"), "c": LimitControl(until=99.0, limits=Limits(rate=1))},
        {"a": WeightControl(until=math.inf, weight=2)}, {"old": Plan(rate=1, tenants=1)},
    )  # fmt: skip
    file = "max_len = 7\nstreams = 4\nweights = { b = 3 }\nplans = { gold = { rate = 9 } }\nlimits = { a = 'gold' }"
    assert lines(of_queue(client, declared(file), found(controls, streams=8))) == [
        "max_len: 0 -> 7", "streams: 8 -> 4", "weight of 'a': 2 -> 1", "weight of 'b': 1 -> 3",
        "plan 'gold': none -> rate=9", "limits of 'b': plan old -> none", "limits of 'a': none -> plan gold",
        "delete plan 'old'",
    ]  # fmt: skip


def test_a_queue_that_is_not_there_is_made(client: Client) -> None:
    assert lines(of_queue(client, declared("streams = 8"), None)) == ["create it with streams=8"]


def test_what_cannot_be_is_told_before_anything_is_changed(client: Client) -> None:
    with pytest.raises(ShardqError, match="there is no plan 'gold'"):
        lines(of_queue(client, declared("limits = { a = 'gold' }"), found()))
    with pytest.raises(ConfigError, match="max_len must be"):
        declared("max_len = -1")


def test_only_bindings_of_the_queues_that_are_named_go(client: Client) -> None:
    there = [Binding("a.*", "jobs"), Binding("b", "other")]
    wanted = frozenset({Binding("c", "jobs")})
    assert lines(of_router(client, "default", wanted, there, {"jobs"})) == [
        "bind 'c' to 'jobs'",
        "unbind 'a.*' from 'jobs'",
    ]


async def test_a_client_for_asyncio_has_the_same_lines() -> None:
    async with AsyncClient.from_url("redis://localhost:1") as client:
        assert lines(of_queue(client, declared("max_len = 7"), found())) == ["max_len: 0 -> 7"]
