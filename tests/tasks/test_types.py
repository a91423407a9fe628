"""Arguments and results come back as they were sent, or are refused: at import, or where they are written."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, Optional, TypedDict

import numpy
import pytest

from shardq import Client, CodecError, ConfigError, NoResult
from shardq.clock import SystemClock
from shardq.codec import Codecs, JsonCodec
from shardq.model import DeliveryView, Received
from shardq.ops.results.keep import kept_result
from shardq.protocol.results import VALUE
from shardq.tasks import Task, Tasks
from shardq.tasks.finding import Finder
from shardq.worker.outcome import Reject
from tests.tasks.conftest import Work
from tests.tasks.kinds import ANNOTATIONS, NAIVE, VALUES, Base, Child, Kind, are_same
from tests.worker.running import FunctionKind, of_kind

Echo = Task[[Any], Any, Any]


def echo_of(kind: Any, tasks: Tasks[None] | None = None) -> Echo:
    """Return a task that takes a value of this type, and returns it. ConfigError."""

    def echo(value: Any) -> Any:
        return value

    echo.__annotations__ = {"value": kind, "return": kind}
    return (tasks or Tasks("jobs", result_ttl=60)).task(name="echo", retries=0)(echo)


def taken(task: Task[Any, Any, Any], payload: Any, codecs: Codecs) -> dict[str, Any]:
    """Return the arguments that a worker finds in a payload. Reject."""
    tag, body = codecs.encode(payload)
    received = Received("1-1-d", "t", 1, 1e18, body, tag, {}, "", None, 0.0, "a:b:1:c:d")
    return Finder(SystemClock()).arguments(DeliveryView(received, codecs, SystemClock()), task)


def as_argument(task: Echo, value: Any, codecs: Codecs) -> Any:
    return taken(task, task.call(value), codecs)["value"]


def as_result(task: Echo, value: Any, codecs: Codecs) -> Any:
    kept = kept_result(codecs, 1_000_000, value, task.returns)
    if kept.kind != VALUE:
        raise CodecError("not kept")
    return task.returns.received(codecs, kept.tag, kept.body)


@pytest.mark.parametrize("sent", [as_argument, as_result])
def test_what_is_written_comes_back_as_it_was_sent(sent: Callable[[Echo, Any, Codecs], Any]) -> None:
    codecs, came = Codecs(), Counter[str]()
    for kind in ANNOTATIONS:
        try:
            task = echo_of(kind)
        except ConfigError:
            came["refused at import"] += 1
            continue
        for value in VALUES:
            try:
                back = sent(task, value, codecs)
            except CodecError:
                came["refused where it is written"] += 1
                continue
            came["came back"] += 1
            assert are_same(value, back), f"{kind}: {value!r} came back as {back!r}"
    assert min(came.values()) > 50, came


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Optional[Kind], Kind.NULL),  # noqa: UP045 (as it is often written)
        (int | Literal["1", "all"], "1"),
        (dict[int, str], {1: "a"}),
        (bytes, b"\xff"),
        (list[Base | None], [Base("a", 0.5), None]),
    ],
)
@pytest.mark.parametrize("codec", [None, JsonCodec()])
def test_whatever_codec_a_client_has(kind: Any, value: Any, codec: Any) -> None:
    task, codecs = echo_of(kind), Codecs(codec)
    assert are_same(as_argument(task, value, codecs), value)
    assert are_same(as_result(task, value, codecs), value)


class Line(TypedDict):
    price: float


@dataclass
class Order:
    lines: list[Line]
    day: date


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        (
            list[Line],
            [{"price": 1}, {"price": numpy.float64(2)}],
            "argument value[1].price: numpy.float64: it holds a type without",
        ),
        (
            Order,
            Order([{"price": 1}], NAIVE),
            "argument value.day: datetime.datetime does not come back",
        ),
        (int, True, "argument value: bool does not come back as it was sent: expected int, got bool"),
        (
            list[Base],
            [Child("a")],
            "argument value[0]: tests.tasks.kinds.Child would come back as tests.tasks.kinds.Base: annotate",
        ),
        (float, 2**53 + 1, "argument value: int would come back as float"),
        (dict[str, int], {"secret": True}, "argument value[...]: what is there does not come back"),
        (Any, {"secret": [(1,)]}, "argument value[...][0]: tuple would come back as list: annotate what is sent"),
        (Kind, "secret", "argument value: str does not come back as it was sent: invalid enum value"),
        (list[Any], [len], "argument value[0]: builtin_function_or_method: it has a function"),
    ],
)
def test_an_argument_that_is_refused_is_named_with_place_and_type(kind: Any, value: Any, told: str) -> None:
    with pytest.raises(CodecError) as raised:
        echo_of(kind).call(value)
    assert str(raised.value).startswith(told)
    assert "secret" not in str(raised.value), "no part of the payload"


def test_so_is_a_part_of_any_payload(client: Client) -> None:
    queue = client.queue("plain", create=True)
    with pytest.raises(CodecError, match=r"payload\[0\]\.lines\[1\]\[\.\.\.\]: numpy.float64: it holds a type without"):
        queue.write([Order([{"price": 1}, {"price": numpy.float64(2)}], date(2026, 1, 2))], shard_key="t")
    assert queue.stats().written == 0


def test_a_member_of_a_batch_is_looked_at_too() -> None:
    @Tasks("jobs").batch()
    def index(documents: list[date]) -> None: ...

    with pytest.raises(CodecError, match=r"argument documents: datetime.datetime does not come back"):
        index.call(NAIVE)


def test_the_id_of_a_message_is_text(client: Client, work: Work) -> None:
    tasks: Tasks[None] = Tasks("jobs", result_ttl=60)
    echo, queue = echo_of(list[str], tasks), client.queue(tasks)
    job = queue.write(echo.call([]), shard_key="t")
    again = queue.write(echo.call([job]), shard_key="t")
    work(tasks)
    assert again.result(timeout=5) == [str(job)]


@pytest.mark.parametrize(
    ("kind", "sent", "why"),
    [
        (bool, "false", "value: expected bool, got str"),
        (int, "1", "value: expected int, got str"),
        (float, "1.5", "value: expected float, got str"),
        (Optional[Kind], "nothing secret", "value: invalid enum value"),  # noqa: UP045 (as it is often written)
        (
            list[Order],
            [{"lines": [{"price": "1"}], "day": "2026-01-02"}],
            "value[0].lines[0].price: expected float, got str",
        ),
    ],
)
def test_what_another_program_writes_is_taken_as_it_is(kind: Any, sent: Any, why: str) -> None:
    with pytest.raises(Reject) as raised:
        taken(echo_of(kind), ["echo", {"value": sent}], Codecs())
    assert raised.value.reason == f"task 'echo' does not take its arguments: {why}"


def test_what_a_type_s_own_code_raises_is_not_shown() -> None:
    @dataclass
    class Picky:
        name: str

        def __post_init__(self) -> None:
            raise ValueError(f"{self.name} is no name")

    with pytest.raises(Reject, match=r"arguments: value: its type raised ValueError$"):
        taken(echo_of(Picky), ["echo", {"value": {"name": "secret"}}], Codecs())


def test_a_result_that_would_not_come_back_is_not_kept(
    client: Client, work: Work, functions: FunctionKind, caplog: pytest.LogCaptureFixture
) -> None:
    """Its task is done all the same."""
    caplog.set_level(logging.DEBUG, "shardq")  # the first of its kind is a warning
    tasks: Tasks[None] = Tasks("jobs", result_ttl=60)

    def today() -> list[date]:
        return [date(2026, 1, 2), NAIVE]

    task: Any = tasks.task(name=f"today-{functions}", retries=0)(of_kind(functions, today))
    job = client.queue(tasks).write(task.call(), shard_key="t")
    work(tasks)
    with pytest.raises(NoResult, match="it would not come back as it is"):
        job.result(timeout=5)
    assert client.queue(tasks).stats().acked == 1
    assert "result[1]: datetime.datetime does not come back as it was sent" in caplog.text


async def async_layer(call_next: Any, delivery: Any) -> None:
    await call_next(delivery)  # and forgets what it returns


def plain_layer(call_next: Any, delivery: Any) -> None:
    call_next(delivery)


@pytest.mark.parametrize("layers", [(), (async_layer,), (plain_layer,), (plain_layer, async_layer)])
@pytest.mark.parametrize("keeps", [60, None])
def test_an_async_task_that_returns_a_coroutine_has_failed(
    client: Client, work: Work, layers: Any, keeps: float | None
) -> None:
    tasks: Tasks[None] = Tasks("jobs", middleware=layers, result_ttl=keeps)

    async def save() -> None: ...

    @tasks.task(name="f", retries=0)
    async def forgets() -> Any:
        return save()

    @tasks.batch(name="g", size=1, retries=0)
    async def forgets_too(numbers: list[int]) -> Any:
        return save()

    queue = client.queue(tasks)
    queue.write_many([(forgets.call(), "t"), (forgets_too.call(1), "t")])
    work(tasks)
    assert queue.stats().acked == 0
    assert [letter.last_error.partition(" ")[0] for letter in queue.dead()] == ["ConfigError"] * 2
