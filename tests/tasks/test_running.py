"""What a worker does with calls: it runs them, tries them again, refuses them or leaves them to another release."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Any

import msgspec
import pytest

from shardq import (
    AsyncDelivery,
    Client,
    CodecError,
    ConfigError,
    DeadLetter,
    Delivery,
    LeaseLost,
    MessageCancelled,
    ProcessDied,
    ShardqError,
    TimeLimit,
)
from shardq.backoff import Constant
from shardq.clock import SystemClock
from shardq.codec import Codecs, JsonCodec
from shardq.model import DeliveryView, Received
from shardq.tasks import PartlyFailed, Tasks, finding
from shardq.worker.outcome import GiveBack
from tests.clients import ClientKind
from tests.tasks.conftest import Work
from tests.worker.running import FunctionKind, of_kind, run_worker

NOW = Constant(0)
NO_CALL = "it is no call of a task: its payload must be [name, {argument: value}]"


@dataclass
class Totals:
    sum: int
    day: date


def test_a_call_is_run_and_its_result_has_its_type(client: Client, work: Work, functions: FunctionKind) -> None:
    tasks: Tasks[None] = Tasks("jobs", result_ttl=60)

    def of_numbers(day: date, numbers: list[int], factor: int = 2) -> Totals:
        return Totals(sum(numbers) * factor, day)

    total: Any = tasks.task(name="total")(of_kind(functions, of_numbers))
    queue = client.queue(tasks)
    job = queue.write(total.call(date(2026, 1, 2), [1, 2]), shard_key="t")
    other = queue.write(total.call(date(2026, 1, 2), [1], factor=5), shard_key="t")
    assert job.is_new
    assert queue.status(job).state == "waiting"
    work(tasks)
    assert job.result(timeout=5) == Totals(6, date(2026, 1, 2))
    assert queue.job(total, other.id).result(timeout=0) == Totals(5, date(2026, 1, 2))


def test_a_result_of_another_release_is_told(client: Client, work: Work) -> None:
    tasks: Tasks[None] = Tasks("jobs", result_ttl=60)
    tasks.task(name="f")(lambda: "text")
    later: Tasks[None] = Tasks("jobs", result_ttl=60)

    @later.task(name="f")
    def number() -> int:
        return 1

    job = client.queue(later).write(number.call(), shard_key="t")
    work(tasks)
    with pytest.raises(CodecError, match="expected int, got str"):
        job.result(timeout=5)


def test_a_plain_function_tells_how_far_it_is_in_each_worker(client: Client, work: Work) -> None:
    """In a thread, where nothing can be awaited."""
    tasks: Tasks[None] = Tasks("jobs", result_ttl=60)
    queue = client.queue(tasks)

    @tasks.task
    def plain() -> tuple[bool, float]:
        is_noted = tasks.delivery.progress(1, 2, "adding up")
        tasks.delivery.cost = 0.5
        found = queue.status(tasks.delivery.message_id).progress
        return is_noted, 0.0 if found is None else found.done

    @tasks.batch(wait=0)
    def many(numbers: list[int]) -> None:
        noted.extend(each.progress(1, 2) for each in tasks.delivery)

    noted: list[bool] = []
    job = queue.write(plain.call(), shard_key="t")
    queue.write(many.call(3), shard_key="t")
    work(tasks)
    assert job.result(timeout=5) == (True, 1)
    assert noted == [True]


def test_a_plain_function_learns_that_its_work_is_in_vain(client: Client, work: Work) -> None:
    tasks: Tasks[None] = Tasks("jobs", result_ttl=60, visibility_timeout=1)
    queue = client.queue(tasks)
    learned: list[type[BaseException]] = []

    @tasks.task
    def plain() -> None:
        queue.cancel(tasks.delivery.message_id)
        try:
            tasks.delivery.progress(1, 2)
        except LeaseLost as lost:
            learned.append(type(lost))

    queue.write(plain.call(), shard_key="t")
    work(tasks)
    assert learned == [MessageCancelled]


def plain_layer(call_next: Any, delivery: Any) -> Any:
    return call_next(delivery)


async def async_layer(call_next: Any, delivery: Any) -> Any:
    return await call_next(delivery)


@pytest.mark.parametrize(
    "layers",
    [(), (plain_layer,), (async_layer,), (plain_layer, async_layer), (async_layer, plain_layer) * 2],
    ids=lambda layers: "-".join(each.__name__.partition("_")[0] for each in layers) or "bare",
)
def test_functions_of_both_kinds_run_in_either_worker(
    client: Client, work: Work, client_kind: ClientKind, layers: Any
) -> None:
    """Each has a delivery of its kind, and so has each batch. Threads that wait for others do not use up all slots.

    Async ones run in the loop of the program, which is here in the main thread, or in one of the worker's own.
    """
    tasks: Tasks[None] = Tasks("jobs", middleware=layers)
    seen: list[tuple[str, int, type]] = []
    in_main: set[tuple[type, bool]] = set()

    def kind_of(delivery: Any) -> type:
        found = AsyncDelivery if isinstance(delivery, AsyncDelivery) else type(delivery)
        in_main.add((found, threading.current_thread() is threading.main_thread()))
        return found

    @tasks.task(name="plain")
    def plain(number: int) -> None:
        seen.append(("plain", number, kind_of(tasks.delivery)))

    @tasks.task(name="coroutine")
    async def coroutine(number: int) -> None:
        await asyncio.sleep(0)
        seen.append(("coroutine", number, kind_of(tasks.delivery)))

    @tasks.batch(name="batch", size=3, wait=0.01)
    def batch(numbers: list[int]) -> None:
        seen.extend(("batch", number, kind_of(each)) for number, each in zip(numbers, tasks.delivery, strict=True))

    @tasks.batch(name="async-batch", size=3, wait=0.01)
    async def async_batch(numbers: list[int]) -> None:
        seen.extend(("async", number, kind_of(each)) for number, each in zip(numbers, tasks.delivery, strict=True))

    queue = client.queue(tasks)
    for number in range(10):
        for task in (plain, coroutine, batch, async_batch):
            queue.write(task.call(number), shard_key=f"t{number}")
    work(tasks, concurrency=4)
    kinds = {"plain": Delivery, "coroutine": AsyncDelivery, "batch": Delivery, "async": AsyncDelivery}
    assert sorted(seen, key=str) == sorted(((name, n, kinds[name]) for name in kinds for n in range(10)), key=str)
    assert in_main == {(Delivery, False), (AsyncDelivery, client_kind == "async")}


NAMED_A, NAMED_AB = b"\xa1a\x05", b"\xa1a\x05\xa1b\x05"


@pytest.mark.parametrize(
    "head",
    [
        b"\x92\xa1f",
        b"\x92\xd9\x01f",
        b"\xdc\x00\x02\xa1f",
        b"\xdc\x00\x02\xd9\x01f",
        b"\xdd\x00\x00\x00\x02\xda\x00\x01f",
    ],
)
@pytest.mark.parametrize(("one", "two"), [(b"\x81", b"\x82"), (b"\xde\x00\x01", b"\xde\x00\x02")])
def test_unknown_arguments_are_seen_however_a_producer_spells_the_call(head: bytes, one: bytes, two: bytes) -> None:
    """Other encoders need not choose the shortest marks, and ours are looked for at their usual place."""
    tasks: Tasks[None] = Tasks("jobs")
    tasks.task(name="f")(lambda a: a)
    finder, task = finding.Finder(SystemClock()), tasks.find("f")

    def found(body: bytes) -> dict[str, Any]:
        received = Received("1-1-d", "t", 1, 1e18, body, "m", {}, "", None, 0.0, "a:b:1:c:d")
        return finder.arguments(DeliveryView(received, Codecs(None), SystemClock()), task)

    assert found(head + one + NAMED_A) == {"a": 5}
    with pytest.raises(GiveBack, match="no parameter 'b'"):
        found(head + two + NAMED_AB)


class Sealed:
    """A codec of the user's own, as one that encrypts."""

    tag = "S"

    def encode(self, value: Any) -> bytes:
        return msgspec.msgpack.encode(value)[::-1]

    def decode(self, body: bytes) -> Any:
        return msgspec.msgpack.decode(body[::-1])


def test_calls_of_a_codec_of_the_user_s_own_are_run_like_all_others(url: str, client_kind: ClientKind) -> None:
    """With their middleware, collected in batches, async ones in the loop, and `on_error` is told."""
    seen: list[Any] = []

    def around(call_next: Callable[[Any], Any], delivery: Any) -> Any:
        seen.append("around")
        return call_next(delivery)

    tasks: Tasks[None] = Tasks(
        "jobs", middleware=[around], on_error=lambda _, error: seen.append(type(error)), max_deliveries=2
    )

    @tasks.task(backoff=NOW)
    async def awaited(number: int) -> None:
        seen.append(number)

    @tasks.task(retries=0)
    def failing() -> None:
        raise ValueError

    @tasks.batch(size=2, wait=60, backoff=NOW)
    def collected(numbers: list[int]) -> None:
        seen.append(sorted(numbers))

    with Client.from_url(url, codec=Sealed()) as client:
        queue = client.queue(tasks)
        calls = [awaited.call(1), failing.call(), collected.call(2), collected.call(3)]
        queue.write_many([(each, "t") for each in calls])
        run_worker(client_kind, url, {tasks: 1}, tasks, client={"codec": Sealed()}, until="empty")
        assert queue.stats().acked == 3
        assert [letter.last_error[:10] for letter in queue.dead()] == ["ValueError"]
    assert sorted(map(repr, seen)) == sorted(map(repr, ["around"] * 4 + [1, ValueError, [2, 3]]))


class Exiting(Sealed):
    """A codec that ends its thread where it does not know what to do."""

    def decode(self, body: bytes) -> Any:
        value = super().decode(body)
        return sys.exit("unknown") if value == "unknown" else value


def test_a_codec_that_exits_ends_no_worker(url: str, client_kind: ClientKind) -> None:
    tasks: Tasks[None] = Tasks("jobs")
    run = tasks.task(name="run")(lambda: None)
    with Client.from_url(url, codec=Exiting()) as client:
        queue = client.queue(tasks)
        queue.write_many([("unknown", "t"), (run.call(), "t")])
        run_worker(client_kind, url, {tasks: 1}, tasks, client={"codec": Exiting()}, until="empty")
        assert queue.stats().acked == 1
        assert [letter.reason for letter in queue.dead()] == [NO_CALL]


@pytest.mark.parametrize("tag", ["m", "j"])
def test_arguments_that_are_too_deep_are_no_call_and_end_no_worker(
    client: Client, url: str, work: Work, tag: str
) -> None:
    tasks: Tasks[None] = Tasks("jobs")
    seen: list[int] = []

    @tasks.task(name="f")
    def f(a: int) -> None:
        seen.append(a)

    deep = (
        b"\x92\xa1f\x81\xa1a" + b"\x91" * 5000 + b"\xc0"
        if tag == "m"
        else b'["f",{"a":' + b"[" * 5000 + b"]" * 5000 + b"}]"
    )
    queue = client.queue(tasks)
    with Client.from_url(url, codec=None if tag == "m" else JsonCodec()) as other:
        other.queue(tasks).write(msgspec.Raw(deep), shard_key="t")
    queue.write(["f", {"a": 1}], shard_key="t")
    work(tasks)
    assert seen == [1]
    assert [letter.reason for letter in queue.dead()] == [NO_CALL]


def test_what_is_never_awaited_is_no_success(client: Client, work: Work) -> None:
    """A plain function that returns a coroutine: of a task whose decorators are in the wrong order, say."""
    tasks: Tasks[None] = Tasks("jobs", result_ttl=60)

    class Coroutine:
        def __await__(self) -> Iterator[None]:
            yield

    @tasks.task(name="f", retries=0)
    def f() -> Any:
        return Coroutine()

    client.queue(tasks).write(["f", {}], shard_key="t")
    work(tasks)
    (letter,) = client.queue(tasks).dead()
    assert "ConfigError" in letter.last_error


@pytest.mark.parametrize("retries", [0, 2])
def test_it_is_tried_so_often(client: Client, work: Work, retries: int) -> None:
    tasks: Tasks[None] = Tasks("jobs", result_ttl=60)
    counts = []

    @tasks.task(retries=retries, backoff=NOW)
    def fails() -> None:
        counts.append(tasks.delivery.count)
        raise ValueError("no")

    job = client.queue(tasks).write(fails.call(), shard_key="t")
    work(tasks)
    assert counts == list(range(1, retries + 2))
    (letter,) = client.queue(tasks).dead()
    assert letter.message_id == job
    assert letter.last_error.startswith("ValueError (fails tasks/test_running.py:")


def test_a_lease_that_ended_counts(client: Client, work: Work) -> None:
    """Its worker died: the message was delivered as often as it may be, and nobody has finished."""
    tasks: Tasks[None] = Tasks("jobs", visibility_timeout=0.1)
    ran = []
    tasks.task(name="f", retries=0)(lambda: ran.append(1))
    queue = client.queue(tasks)
    queue.write(["f", {}], shard_key="t")
    queue.read()
    again = queue.read(block=5)
    assert again.count == 2
    again.nack()
    work(tasks)
    assert ran == []
    assert "none was finished" in queue.dead()[0].last_error


def test_a_redriven_call_has_all_of_its_tries_again(client: Client, work: Work) -> None:
    """Its deliveries before that are told by `count`, but a redrive begins anew."""
    tasks: Tasks[None] = Tasks("jobs")
    counts = []

    @tasks.task(name="f", retries=1, backoff=NOW)
    def fails() -> None:
        counts.append(tasks.delivery.count)
        raise ValueError

    queue = client.queue(tasks)
    queue.write(fails.call(), shard_key="t")
    work(tasks)
    assert queue.redrive(queue.dead()) == 1
    work(tasks)
    assert counts == [1, 2, 3, 4]
    assert len(queue.dead()) == 1


@pytest.mark.parametrize(
    ("options", "tries"),
    [
        ({"retry_on": (ConnectionError,)}, 2),
        ({"retry_on": ()}, 2),
        ({"give_up_on": (TimeLimit, ProcessDied)}, 1),
        ({"give_up_on": (TimeoutError, ShardqError), "retry_on": (TimeLimit, ProcessDied)}, 1),
    ],
)
@pytest.mark.parametrize(
    "error", [TimeLimit("too long"), ProcessDied("killed")], ids=lambda error: type(error).__name__
)
def test_what_ended_a_task_from_outside_is_tried_again_unless_it_is_given_up(
    error: BaseException, options: dict[str, Any], tries: int
) -> None:
    """Its function did not raise it, so `retry_on` says nothing of it."""
    task = Tasks("jobs").task(name="f", retries=1, **options)(lambda: None)
    assert [task.retries.tries_again(error, delivery) for delivery in (1, 2)] == [tries == 2, False]


def number_of(letter: DeadLetter) -> int:
    """In which place it was written."""
    return int(letter.message_id.split("-")[1])


def test_arguments_that_do_not_fit_are_refused_with_their_path(client: Client, work: Work) -> None:
    tasks: Tasks[None] = Tasks("jobs")

    @tasks.task(name="f")
    def wide(width: int, totals: list[Totals] = []) -> None: ...  # noqa: B006

    queue = client.queue(tasks)
    for arguments in (
        {"width": "wide"}, {}, {"width": 1, "totals": [{"sum": 1, "day": "2026-01-01"}, {"sum": 1, "day": 5}]}, [1], 5,
    ):  # fmt: skip
        queue.write(["f", arguments], shard_key="t")
    queue.write({"no": "call"}, shard_key="t")
    queue.write(b"no call", shard_key="t")
    work(tasks)
    told = [letter.last_error for letter in sorted(queue.dead(), key=number_of)]
    assert [text.partition("arguments: ")[2] for text in told[:5]] == [
        "width: expected int, got str",
        "width: missing",
        "totals[1].day: expected date, got int",
        "the arguments are no map of names",
        "the arguments are no map of names",
    ]
    assert all("it is no call of a task" in text for text in told[5:])


def test_a_call_that_no_release_here_knows_is_given_back_uncounted(
    client: Client, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    old: Tasks[None] = Tasks("jobs", max_deliveries=2, result_ttl=60)
    new: Tasks[None] = Tasks("jobs", max_deliveries=2, result_ttl=60)
    old.task(name="f")(lambda a=1: None)

    @new.task(name="f")
    def f(a: int = 1, b: int = 2) -> int:
        return a + b

    @new.task(name="g")
    def g() -> str:
        return "g"

    monkeypatch.setattr(finding, "UNKNOWN_PAUSE", 2.0)  # else it is runnable again before the worker has looked
    queue = client.queue(new)
    jobs = [queue.write(call, shard_key="t") for call in (g.call(), f.call(b=5))]
    work(old)
    monkeypatch.setattr(finding, "UNKNOWN_PAUSE", 0.0)
    for _ in range(4):  # more often than a message may be delivered
        delivery = queue.read(block=10)
        with pytest.raises(GiveBack) as given:
            finding.Finder(delivery._clock).arguments(delivery, old.find(finding.name_in(delivery)))
        queue.nack_many([delivery], counted=False, error=given.value.reason)
    work(new)
    assert [job.result(timeout=5) for job in jobs] == ["g", 6]


def test_a_call_that_nobody_knows_for_an_hour_is_a_dead_letter(client: Client, work: Work) -> None:
    tasks: Tasks[None] = Tasks("jobs")
    queue = client.queue(tasks)
    queue.write(["nobody", {}], shard_key="t")
    work(tasks)  # such a call does not keep a worker that ends with its queue
    (kept,) = queue.peek(state="delayed").messages
    assert (kept.deliveries, queue.stats().dead) == (0, 0)
    since = int(kept.last_error.removeprefix("unknown since ").partition(":")[0])
    assert abs(since - queue.stats().time) < 60
    queue.write(["nobody", {}], shard_key="u")
    queue.nack_many([queue.read()], counted=False, error=f"unknown since {since - 3601}: no such task")
    work(tasks)
    assert [letter.last_error for letter in queue.dead()] == ["there is no task 'nobody' here"]


def test_the_lifespan_is_around_all_messages(client: Client, work: Work, functions: FunctionKind) -> None:
    events: list[str] = []

    @contextmanager
    def plain() -> Iterator[list[str]]:
        events.append("open")
        yield events
        events.append("close")

    @asynccontextmanager
    async def coroutine() -> AsyncIterator[list[str]]:
        with plain() as found:
            yield found

    tasks: Tasks[list[str]] = Tasks("jobs", lifespan=plain if functions == "plain" else coroutine)

    @tasks.task(name="f")
    def task(number: str) -> None:
        tasks.resources.append(number)

    client.queue(tasks).write_many([(task.call(str(number)), "t") for number in range(3)])
    with pytest.raises(ConfigError, match="only in a worker"):
        tasks.resources.append("outside")
    work(tasks)
    assert events == ["open", "0", "1", "2", "close"]


def test_of_a_batch_each_is_settled_by_itself(client: Client, work: Work, functions: FunctionKind) -> None:
    tasks: Tasks[None] = Tasks("jobs", streams=8)
    sizes, failed = [], {3: 0, 50: 0, 77: 0}

    def write(numbers: range) -> None:
        queue.write_many([(task.call(number), f"t{number % 9}") for number in numbers])

    def index(documents: list[int]) -> None:
        sizes.append(len(documents))
        errors: dict[int, BaseException] = {}
        for place, each in enumerate(documents):
            if each in failed and failed[each] < 2:
                failed[each] += 1
                errors[place] = ValueError(each)
        if errors:
            write(range(100, 197))  # those that fail and these are a whole batch: it need not wait for others
            raise PartlyFailed(errors)

    task: Any = tasks.batch(size=100, wait=60, retries=2, backoff=NOW)(of_kind(functions, index))
    queue = client.queue(tasks)
    write(range(100))
    work(tasks, concurrency=100)
    assert sizes == [100, 100, 100]
    assert (queue.stats().acked, queue.stats().dead) == (100 + 97 + 97, 0)


def test_what_a_batch_raises_all_have_failed_with(client: Client, work: Work, functions: FunctionKind) -> None:
    tasks: Tasks[None] = Tasks("jobs")

    def index(documents: list[int]) -> None:
        raise ValueError(len(documents))

    task: Any = tasks.batch(size=3, wait=30, retries=0)(of_kind(functions, index))
    queue = client.queue(tasks)
    queue.write_many([(task.call(number), "t") for number in range(3)])
    work(tasks)
    assert [letter.last_error.partition(" ")[0] for letter in queue.dead()] == ["ValueError"] * 3


def test_each_tenant_of_a_batch_is_charged_its_part(client: Client, work: Work) -> None:
    """And not for the time that a message waited for others."""
    tasks: Tasks[None] = Tasks("jobs")
    costs: list[Any] = []

    def index(documents: list[int]) -> None:
        costs.extend(tasks.delivery)
        began = time.monotonic()
        while time.monotonic() < began + 0.4:
            time.sleep(0.01)

    task = tasks.batch(name="index", size=4, wait=30)(index)
    queue = client.queue(tasks)
    queue.write_many([(task.call(number), f"t{number}") for number in range(4)])
    began = time.monotonic()
    work(tasks)
    assert len({each.cost for each in costs}) == 1
    assert 0.1 <= costs[0].cost <= (time.monotonic() - began) / 4


def test_several_queues_share_a_worker(client: Client, work: Work) -> None:
    """A task of one queue writes to another, which is empty by then: the worker does that, too, before it ends."""
    tasks: Tasks[None] = Tasks("jobs", result_ttl=60)
    mails: Tasks[None] = Tasks("mails", streams=4, result_ttl=60)
    running, most, lock = set[int](), [0], threading.Lock()

    @tasks.task(name="mail")
    def mail(number: int) -> int:
        return number

    @tasks.task(name="order")
    def order(number: int) -> int:
        with lock:
            running.add(number)
            most[0] = max(most[0], len(running))
        client.queue(mails).write(mail.call(number), shard_key="t")
        with lock:
            running.discard(number)
        return number

    queue = client.queue(tasks)
    jobs = queue.write_many([(order.call(number), f"t{number % 5}") for number in range(50)])

    assert work(tasks, {tasks: 3, mails: 1}, concurrency=4).tally["ack"] == 100
    assert most[0] <= 4
    assert [queue.result(job, timeout=0) for job in jobs] == list(range(50))
    assert client.queue("mails").stats().acked == 50
