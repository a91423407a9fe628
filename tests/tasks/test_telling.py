"""What is told of a task that fails: with its dead letter, in the log, to middleware; and what of its call is shown."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import msgspec
import pytest

from shardq import Client, ConfigError, Delivery, Nack, Reject
from shardq.backoff import Constant
from shardq.codec import JsonCodec
from shardq.model.call import called
from shardq.tasks import Tasks
from tests.tasks.conftest import Work
from tests.waiting import eventually
from tests.worker.running import FunctionKind, of_kind


def total(numbers: list[int]) -> int:
    """A function of the user's, of which a frame is in the traceback."""
    raise ValueError(f"the payload is {numbers}")


@pytest.mark.parametrize("stores_text", [False, True])
def test_class_and_frames_of_an_error_are_with_the_dead_letter(client: Client, work: Work, stores_text: bool) -> None:
    """Its text may hold a part of the payload, so that is stored only if the tasks say so."""
    tasks: Tasks[None] = Tasks("jobs", error_text=stores_text)

    @tasks.task(name="report", retries=1, backoff=Constant(0))
    def report(numbers: list[int]) -> int:
        return total(numbers)

    queue = client.queue(tasks)
    queue.write(report.call([7, 8]), shard_key="t")
    work(tasks)
    (letter,) = queue.dead()
    head = "ValueError: the payload is [7, 8]" if stores_text else "ValueError"
    line, own = report.function.__code__.co_firstlineno + 2, total.__code__.co_firstlineno + 2
    frames = f"report tasks/test_telling.py:{line} > total tasks/test_telling.py:{own}"
    assert letter.last_error == letter.reason == f"{head} ({frames})"


def test_of_a_deep_traceback_the_innermost_frames_are_kept(client: Client, work: Work) -> None:
    tasks: Tasks[None] = Tasks("jobs")

    def deep(left: int) -> None:
        if left:
            deep(left - 1)
        raise KeyError

    tasks.task(name="f", retries=0)(lambda: deep(500))
    client.queue(tasks).write(["f", {}], shard_key="t")
    work(tasks)
    (letter,) = client.queue(tasks).dead()
    assert len(letter.last_error) <= 500
    assert letter.last_error.count(" > ") == 7


def test_a_dead_letter_is_told_once_with_queue_tenant_task_and_id(
    client: Client, work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    tasks: Tasks[None] = Tasks("jobs")

    @tasks.task(name="report", retries=1, backoff=Constant(0))
    def report(secret: str) -> None:
        raise ValueError

    job = client.queue(tasks).write(report.call("a secret"), shard_key="acct-7")
    work(tasks)
    where = f"queue 'jobs', tenant 'acct-7', task report, message {job}: "
    records = [each for each in caplog.records if each.message.startswith(where)]
    said = [each.message.removeprefix(where).partition(": ")[0] for each in records]
    assert said == ["failed, delivery 1, again in 0.0 s", "is a dead letter, after delivery 2"]
    assert all(each.exc_text and each.exc_text.endswith("\nValueError") for each in records)
    facts = vars(records[1])
    assert [facts[name] for name in ("queue", "tenant", "task", "message_id")] == ["jobs", "acct-7", "report", job]
    assert "a secret" not in caplog.text


def test_each_message_is_told_to_those_who_want_to_see_it(
    client: Client, work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "shardq")
    tasks: Tasks[None] = Tasks("jobs")
    tasks.task(name="f")(lambda: None)
    job = client.queue(tasks).write(["f", {}], shard_key="t")
    work(tasks)
    (line,) = [each.message for each in caplog.records if "took" in each.message]
    assert line.startswith(f"queue 'jobs', tenant 't', task f, message {job}: delivery 1 took 0.")
    assert line.endswith(" s: ack")


def test_middleware_is_around_each_task(client: Client, work: Work, functions: FunctionKind) -> None:
    events: list[str] = []

    def noting(name: str) -> Callable[..., Any]:
        def plain(call_next: Callable[[Any], Any], delivery: Any) -> Any:
            events.append(f"{name} {delivery.task}")
            try:
                return call_next(delivery) + 1
            except ValueError:
                events.append(f"{name} failed")
                raise

        async def coroutine(call_next: Callable[[Any], Awaitable[Any]], delivery: Any) -> Any:
            events.append(f"{name} {delivery.task}")
            try:
                return await call_next(delivery) + 1
            except ValueError:
                events.append(f"{name} failed")
                raise

        return plain if functions == "plain" else coroutine

    tasks: Tasks[None] = Tasks("jobs", middleware=[noting("outer"), noting("inner")], result_ttl=60)

    @tasks.task(name="f", retries=0)
    def f(number: int) -> int:
        events.append("task")
        if number < 0:
            raise ValueError
        return number

    queue = client.queue(tasks)
    job = queue.write(f.call(1), shard_key="t")
    work(tasks)
    assert job.result(timeout=0) == 3
    assert events == ["outer f", "inner f", "task"]
    events.clear()
    queue.write(f.call(-1), shard_key="t")
    work(tasks)
    assert events == ["outer f", "inner f", "task", "inner failed", "outer failed"]
    assert len(queue.dead()) == 1


def test_an_error_reporter_is_told_of_what_tasks_raise(
    client: Client, work: Work, functions: FunctionKind, caplog: pytest.LogCaptureFixture
) -> None:
    """Not of what they ask for; and one that fails changes nothing for the task."""
    told: list[tuple[str, str, str]] = []

    def report(delivery: Any, error: BaseException) -> None:
        told.append((delivery.task, delivery.shard_key, type(error).__name__))
        raise LookupError("the reporter is away")

    tasks: Tasks[None] = Tasks("jobs", on_error=report)

    def fails(what: str) -> None:
        if what == "fails":
            raise ValueError
        if what == "rejects":
            raise Reject("no")
        if what == "waits" and tasks.delivery.count == 1:
            raise Nack(0)

    f: Any = tasks.task(name="f", retries=1, backoff=Constant(0))(of_kind(functions, fails))
    queue = client.queue(tasks)
    for what in ("fails", "rejects", "waits", "returns"):
        queue.write(f.call(what), shard_key=what)
    queue.write(["nobody", {}], shard_key="t")
    work(tasks)
    assert told == [("f", "fails", "ValueError")] * 2
    assert sorted(letter.reason for letter in queue.dead())[1:] == ["no"]
    assert queue.dead()[0].last_error.startswith(("ValueError (", "no"))
    assert sum("the worker's on_error raised an error" in each.message for each in caplog.records) == 2
    with pytest.raises(ConfigError, match="on_error"):
        Tasks("jobs", on_error="sentry")  # type: ignore[call-overload]


def test_an_error_reporter_is_told_of_a_task_that_takes_longer_than_its_own_limit(
    client: Client, work: Work, functions: FunctionKind
) -> None:
    """Once, though a task that is cancelled for it raises CancelledError then."""
    told: list[str] = []
    ended = threading.Event()
    tasks: Tasks[None] = Tasks("jobs", on_error=lambda _, error: told.append(repr(error)))

    def slow() -> None:
        tasks.delivery.on_lost(lambda _: ended.set())
        assert ended.wait(30)

    async def slow_async() -> None:
        await asyncio.sleep(30)

    tasks.task(name="slow", time_limit=0.1, retries=0)(slow if functions == "plain" else slow_async)
    client.queue(tasks).write(["slow", {}], shard_key="t")
    work(tasks)
    (letter,) = client.queue(tasks).dead()
    assert letter.last_error == "TimeLimit: it ran for more than 0.1 s"
    assert told == ["TimeLimit('it ran for more than 0.1 s')"]


def test_an_error_reporter_that_takes_long_holds_up_neither_a_timer_nor_the_end_of_its_task(
    client: Client, work: Work
) -> None:
    """The client's timers are those of all leases. The message is settled meanwhile; the worker waits at its end."""
    told: list[tuple[bool, ...]] = []
    ended = threading.Event()

    def report(delivery: Delivery, _: BaseException) -> None:
        fired = threading.Event()
        delivery.queue.client.timer.call_later(0, fired.set)
        settled = eventually(lambda: client.queue(tasks).stats().dead == 1)
        told.append((fired.wait(10), ended.wait(10), settled))

    tasks: Tasks[None] = Tasks("jobs", on_error=report)

    @tasks.task(name="slow", time_limit=0.1, retries=0)
    def slow() -> None:
        tasks.delivery.on_lost(lambda _: ended.set())
        assert ended.wait(30)

    client.queue(tasks).write(slow.call(), shard_key="t")
    work(tasks)
    assert told == [(True, True, True)]


def test_an_error_reporter_may_wait_for_what_the_event_loop_does(client: Client, work: Work) -> None:
    """It is called in a thread, for async tasks, too: while it is slow, others go on."""
    reporting, others_ran, told = threading.Event(), threading.Event(), list[bool]()

    def report(_: Delivery, __: BaseException) -> None:
        reporting.set()
        told.append(others_ran.wait(30))

    tasks: Tasks[None] = Tasks("jobs", on_error=report)

    @tasks.task(name="failing", retries=0)
    async def failing() -> None:
        raise ValueError

    @tasks.task(name="other")
    async def other() -> None:
        while not reporting.is_set():  # noqa: ASYNC110 (set in a thread)
            await asyncio.sleep(0.01)
        others_ran.set()

    client.queue(tasks).write_many([(failing.call(), "t"), (other.call(), "u")])
    work(tasks)
    assert told == [True]


def test_an_error_reporter_is_not_told_of_a_task_that_ends_while_its_time_limit_is_judged(
    client: Client, work: Work
) -> None:
    told: list[BaseException] = []
    ends = threading.Event()
    tasks: Tasks[None] = Tasks("jobs", on_error=lambda _, error: told.append(error))

    def backoff(count: int, random: Random) -> float:
        ends.set()
        eventually(lambda: queue.stats().acked == 1)
        return 0

    @tasks.task(name="late", time_limit=0.1, retries=1, backoff=backoff)
    def late() -> None:
        assert ends.wait(30)

    queue = client.queue(tasks)
    queue.write(late.call(), shard_key="t")
    work(tasks)
    assert (told, queue.stats().acked) == ([], 1)


def test_a_task_that_awaits_what_was_cancelled_has_failed(client: Client, work: Work) -> None:
    """Nobody cancelled the task itself, so its own retries say what becomes of it, and the reporter is told."""
    told: list[str] = []
    tasks: Tasks[None] = Tasks("jobs", on_error=lambda _, error: told.append(type(error).__name__))

    @tasks.task(name="f", retries=1, backoff=Constant(0))
    async def f() -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    client.queue(tasks).write(f.call(), shard_key="t")
    work(tasks)
    (letter,) = client.queue(tasks).dead()
    assert (letter.count, told) == (2, ["CancelledError"] * 2)


def test_middleware_is_a_function() -> None:
    with pytest.raises(ConfigError, match="middleware"):
        Tasks("jobs", middleware=["x"])  # type: ignore[list-item]


def test_the_name_of_a_task_is_seen_wherever_its_message_is(client: Client) -> None:
    """Without its arguments, and without the payload."""
    tasks: Tasks[None] = Tasks("jobs", window=1)
    task = tasks.task(name="app.tasks.report")(lambda secret: None)
    queue = client.queue(tasks)
    ids = [queue.write(task.call("a secret" * 100), shard_key="t") for _ in range(3)]
    queue.write(task.call("a secret"), shard_key="t", delay=60)
    queue.write(["no call", 5], shard_key="u")
    assert queue.status(ids[0]).task == "app.tasks.report"
    names = [each.task for each in queue.peek(10).messages]
    assert sorted(names) == ["", *["app.tasks.report"] * 3]
    for state in ("held_back", "delayed"):
        assert {each.task for each in queue.peek(10, state=state).messages} == {"app.tasks.report"}
    found = queue.peek(10, payloads=True).messages
    assert sorted(each.task for each in found) == sorted(names)
    assert {each.size for each in queue.peek(10).messages} == {each.size for each in found}
    deliveries = queue.read_many(10)
    assert sorted(each.task for each in deliveries) == ["", *["app.tasks.report"] * 3]
    queue.reject_many(deliveries, ["no"] * 4)
    assert sorted(each.task for each in queue.dead()) == ["", *["app.tasks.report"] * 3]
    assert sorted(each.task for each in queue.peek(10, state="dead").messages) == ["", *["app.tasks.report"] * 3]


def test_a_journal_names_the_tasks_of_what_was_written(client: Client, url: str) -> None:
    """Written singly and together, as MessagePack and as JSON; and no argument of them."""
    queue = client.queue("jobs", journal=1000)
    payloads = [["f", {"a": "secret"}], ["no call"], ["a" * 40, {}], b"bytes", ["größe", {}]]
    for payload in payloads:
        queue.write(payload, shard_key="t")
    queue.write_many([(payload, "t") for payload in payloads])
    queue.write_many([("plain", "t")] * 2)
    with Client.from_url(url, codec=JsonCodec()) as other:
        other.queue("jobs").write(["in.json", {"a": "secret"}], shard_key="t")
    queue.read()
    events = queue.journal(100).events
    names = ["f", "", "a" * 40, "", "größe"]
    assert [each.task for each in events] == [*names, *names, "", "", "in.json", ""]
    assert {each.client for each in events[:-1]} == {""}
    assert events[-1].client != ""


@pytest.mark.parametrize(
    ("payload", "name"),
    [
        (["f", {}], "f"),
        (["a" * 31, {"a": 1}], "a" * 31),
        (["a" * 200, dict.fromkeys("abcdefghijklmnopqrstuvwxyz")], "a" * 200),
        (["module.<locals>.größe", {}], "module.<locals>.größe"),
        (["a" * 201, {}], ""),
        (["what a secret", {}], ""),
        (["f", []], ""),
        (["f"], ""),
        ({"f": {}}, ""),
        ([{}, {}], ""),
        ("f", ""),
    ],
)
def test_a_call_is_told_from_other_payloads(payload: Any, name: str) -> None:
    body = msgspec.msgpack.encode(payload)
    assert called("m", body) == called("m", body[:204]) == name
    assert called("j", JsonCodec().encode(payload)) == name
    assert called("b", body) == called("X", body) == ""
    for cut in range(min(40, len(body))):
        called("m", body[:cut])
