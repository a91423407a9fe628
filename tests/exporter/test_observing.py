"""OpenTelemetry gets the numbers of queues whenever a program's provider collects them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from shardq import Client, ConfigError
from shardq.exporter import observe
from shardq.exporter import server as of_server
from shardq.exporter.queues import OF_QUEUES
from shardq.telemetry.instruments import (
    ADDRESS,
    BACKLOG,
    DRAIN_TIME,
    POLL_AGE,
    QUEUE,
    SYSTEM,
    TENANT,
    TENANT_BACKLOG,
    UP,
    WRITTEN,
    Instrument,
)
from shardq.telemetry.options import hashed
from tests.exporter.test_poller import counted
from tests.servers import Server
from tests.telemetry.measuring import metrics_on, nothing_measured, points
from tests.waiting import eventually


@pytest.fixture
def reader() -> Iterator[InMemoryMetricReader]:
    with metrics_on() as reader:
        yield reader


def collected(reader: InMemoryMetricReader) -> dict[str, Any]:
    """The metrics of one collection, by their names."""
    data = reader.get_metrics_data()
    return {
        metric.name: metric
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def numbers(reader: InMemoryMetricReader, instrument: Instrument) -> dict[str, float]:
    """The values of an instrument by queue."""
    return {attributes[QUEUE]: point.value for attributes, point in points(reader, instrument) if QUEUE in attributes}


def test_a_provider_has_the_numbers_of_all_queues(server: Server, client: Client, reader: InMemoryMetricReader) -> None:
    client.queue("mails", streams=1).declare()
    client.queue("mails").pause(seconds=3600)
    client.queue("jobs", streams=1).write(b"x", shard_key="t")
    with observe(client):
        found = collected(reader)
        assert {each.name for each in OF_QUEUES} | {UP.name, POLL_AGE.name} <= found.keys()
        assert {name for name in found if name.startswith("shardq.tenant")} == set()
        for each in OF_QUEUES:
            assert (found[each.name].unit, found[each.name].description) == (each.unit, each.about)
            assert hasattr(found[each.name].data, "is_monotonic") is (each.kind == "counter")
        [attributes] = [at for at, _ in points(reader, BACKLOG) if at[QUEUE] == "jobs"]
        assert attributes == {QUEUE: "jobs", SYSTEM: "shardq", ADDRESS: client.server.address}
        assert numbers(reader, BACKLOG) == numbers(reader, WRITTEN) == {"jobs": 1, "mails": 0}
    assert collected(reader).keys() & {each.name for each in OF_QUEUES} == set()


def test_what_is_not_finite_is_left_out(
    client: Client, reader: InMemoryMetricReader, caplog: pytest.LogCaptureFixture
) -> None:
    client.queue("jobs", streams=1).write(b"x", shard_key="t")  # nobody reads: it never drains
    with observe(client, ["jobs"]):
        assert numbers(reader, DRAIN_TIME) == {}
        assert numbers(reader, BACKLOG) == {"jobs": 1}
    assert caplog.messages == []


def test_a_collection_asks_redis_once(server: Server, client: Client, reader: InMemoryMetricReader) -> None:
    client.queue("jobs", streams=1).declare()
    with observe(client, ["jobs"]):
        collected(reader)
        with counted(server) as done:
            for _ in range(5):
                collected(reader)
    assert done["stats"] <= 1  # a second may have begun


def test_a_queue_that_is_gone_is_left_out(client: Client, reader: InMemoryMetricReader) -> None:
    client.queue("jobs", streams=1)
    with observe(client, ["jobs"]):
        assert numbers(reader, UP) == {}
        assert numbers(reader, BACKLOG) == {}


def test_tenants_are_told_if_they_are_asked_for(client: Client, reader: InMemoryMetricReader) -> None:
    client.queue("jobs", streams=1).write(b"x", shard_key="secret")
    with observe(client, ["jobs"], tenants=3, hash_tenants=True):
        eventually(
            lambda: (
                {at[TENANT]: point.value for at, point in points(reader, TENANT_BACKLOG)}
                == {
                    hashed("secret"): 1,
                    "other": 0,
                }
            )
        )


def test_without_a_provider_nothing_is_asked(server: Server, client: Client) -> None:
    client.queue("jobs", streams=1).declare()
    with nothing_measured(), counted(server) as done, observe(client, ["jobs"]):
        pass
    assert done["stats"] == 0


def test_redis_that_is_away_makes_no_collection_fail(
    server: Server, client: Client, reader: InMemoryMetricReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_server, "PATIENCE", 0.2)
    client.queue("jobs", streams=1).declare()
    with observe(client), observe(client, ["mails"]):
        server.kill9()
        assert "shardq.queue.backlog" not in collected(reader)
        assert numbers(reader, UP) == {"mails": 0}
    server.start()


@pytest.mark.parametrize(
    "how",
    [{"queues": ["a\n"]}, {"queues": "jobs"}, {"tenants": 51}, {"tenants": -1}, {"hash_tenants": 1}, {"client": 1}],
)
def test_bad_arguments_are_told(client: Client, how: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        observe(**{"client": client, **how})
