"""What a web server needs that tells of jobs: one class to catch, whatever is in the URL; and what a client shows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

import shardq
from shardq import Client, ConfigError, MessageDead, MessageNotFound, NoResult, NotAvailable, ResultPending
from shardq.tasks import Tasks
from tests.tasks.conftest import Work

BAD = ["", "no id", "1-2", "../../etc", "x" * 5000, "1732150000000-42-\x00", "\u0661-\u0662-\u0663"]


@pytest.mark.parametrize("message_id", BAD)
def test_a_bad_id_in_a_url_is_no_mistake_of_the_program(client: Client, message_id: str) -> None:
    tasks: Tasks[None] = Tasks("jobs", result_ttl=60)
    task = tasks.task(name="f")(lambda: 1)
    queue = client.queue(tasks)
    queue.write(task.call(), shard_key="t")
    job = queue.job(task, message_id)
    with pytest.raises(NoResult):
        job.result(timeout=0)
    with pytest.raises(MessageNotFound):
        job.status()
    with pytest.raises(MessageNotFound):
        job.cancel()


def test_what_is_no_text_is_one(client: Client) -> None:
    queue = client.queue("jobs", result_ttl=60)
    wrong: Any = 5
    for call in (queue.result, queue.status, queue.cancel):
        with pytest.raises(ConfigError):
            call(wrong)


def test_one_class_is_caught_whatever_there_is_not(client: Client, work: Work) -> None:
    tasks: Tasks[None] = Tasks("jobs", result_ttl=60)
    fails = tasks.task(name="fails", retries=0)(lambda: 1 / 0)
    queue = client.queue(tasks)
    job = queue.write(fails.call(), shard_key="t")
    with pytest.raises(NotAvailable) as pending:
        job.result(timeout=0)
    work(tasks)
    with pytest.raises(NotAvailable) as dead:
        job.result(timeout=0)
    assert (pending.type, dead.type) == (ResultPending, MessageDead)


def test_completion_shows_what_programs_call(client: Client) -> None:
    shown = dir(client)
    assert {"queue", "router", "close"} <= set(shown)
    assert not {"store", "post", "share", "look", "run", "state_of", "end_wait", "prepare", "lend"} & set(shown)


def test_the_type_of_a_queue_s_settings_is_exported() -> None:
    assert "streams" in shardq.QueueSettings.__annotations__


def test_clients_of_an_embedded_server_have_one_each() -> None:
    with Client.from_url("shardq://embedded") as one, Client.from_url("shardq://embedded") as other:
        one.queue("jobs", create=True).write("a", shard_key="t")
        assert other.queue("jobs", create=True).stats().backlog == 0
        with Client.beside(one) as beside:
            assert beside.queue("jobs").stats().backlog == 1


class Color(Enum):
    RED = "red"


@dataclass
class Order:
    number: int


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        (Order(1), {"number": 1}),
        (UUID(int=5), str(UUID(int=5))),
        ({1}, [1]),
        ((1, 2), [1, 2]),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)),
        (Decimal("1.50"), "1.50"),
        (Color.RED, "red"),
        ([b"x"], [b"x"]),
    ],
    ids=repr,
)
def test_what_comes_back_of_a_payload_without_a_type(client: Client, sent: object, received: object) -> None:
    queue = client.queue("jobs", create=True)
    queue.write({"it": sent}, shard_key="t")
    assert queue.read().payload == {"it": received}
