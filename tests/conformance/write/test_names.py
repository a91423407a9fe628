"""Bad input gets a clear error from shardq's own tree, before anything is written: afterwards no key exists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shardq import Client, CodecError, ConfigError, Message, Queue, ShardqError
from tests.conformance.world import World

pytestmark = pytest.mark.once


@pytest.fixture(autouse=True)
def _nothing_is_written(world: World) -> Iterator[None]:
    yield
    assert world.stored() == set()


@pytest.mark.parametrize(
    "name",
    ["", "{a}", "a}b", "a b", "a*", "\n", "é", "x" * 201, None, 7, b"q", "a\0b"],
    ids=lambda name: repr(name)[:20],
)
def test_a_bad_queue_name(client: Client, name: str) -> None:
    with pytest.raises(ConfigError, match="queue name"):
        client.queue(name, create=True)


BAD_WRITES: dict[str, dict[str, Any]] = {
    "no shard key": {"shard_key": ""},
    "a shard key that is a number": {"shard_key": 7},
    "no shard key at all": {"shard_key": None},
    "a shard key that is too long": {"shard_key": "x" * 1025},
    "a shard key with half a character": {"shard_key": "\ud800"},
    "a negative delay": {"delay": -0.1},
    "a delay that is text": {"delay": "1"},
    "a deadline that is over": {"deadline": 0},
    "a deadline that is not a number": {"deadline": float("nan")},
    "a deadline before the delay": {"delay": 2, "deadline": 1},
    "an empty dedup key": {"dedup_key": ""},
    "a dedup key that is a number": {"dedup_key": 7},
    "a dedup key that is too long": {"dedup_key": "x" * 513},
    "headers that are a list": {"headers": [("a", "b")]},
    "a header that is a number": {"headers": {"a": 1}},
    "a header without a name": {"headers": {"": "a"}},
    "too many headers": {"headers": {str(number): "" for number in range(65)}},
    "headers that are too large": {"headers": {"a": "x" * 9000}},
    "a timeout that is text": {"timeout": "soon"},
    "a negative timeout": {"timeout": -1},
    "a timeout that is not a number": {"timeout": float("nan")},
}
each_bad_write = pytest.mark.parametrize("settings", BAD_WRITES.values(), ids=BAD_WRITES.keys())


@each_bad_write
def test_a_bad_write(queue: Queue, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        queue.write("payload", **({"shard_key": "t"} | settings))


@each_bad_write
def test_a_bad_message_of_a_batch(queue: Queue, settings: dict[str, Any]) -> None:
    timeout = {"timeout": settings["timeout"]} if "timeout" in settings else {}
    bad = Message("payload", **({"shard_key": "t"} | settings if not timeout else {"shard_key": "t"}))
    with pytest.raises(ConfigError):
        queue.write_many([("good", "t"), bad], **timeout)


@pytest.mark.parametrize("payload", [object(), {1, object()}, lambda: 0, 2**70], ids=lambda each: type(each).__name__)
def test_a_payload_that_cannot_be_encoded(queue: Queue, payload: Any) -> None:
    with pytest.raises(CodecError):
        queue.write(payload, shard_key="t")
    with pytest.raises(CodecError):
        queue.write_many([("good", "t"), (payload, "t")])


def test_a_payload_that_is_too_large(world: World, queue_name: str) -> None:
    queue = world.client(max_payload=1000).queue(queue_name, create=True)
    with pytest.raises(ConfigError, match="1,001 bytes, more than max_payload = 1,000"):
        queue.write(bytes(1001), shard_key="t")


@pytest.mark.parametrize("item", [7, ("payload",), ("payload", "t", "u"), ["payload", "t"], None], ids=repr)
def test_a_batch_of_something_else(queue: Queue, item: Any) -> None:
    with pytest.raises(ConfigError, match="message 1 of the batch"):
        queue.write_many([("good", "t"), item])


BAD_CALLS: dict[str, Callable[[Queue], object]] = {
    "block that is negative": lambda queue: queue.read(block=-1),
    "block that is text": lambda queue: queue.read(block="5"),  # type: ignore[arg-type]
    "block that never ends": lambda queue: queue.read(block=float("inf")),
    "visibility of nothing": lambda queue: queue.read(visibility_timeout=0),
    "visibility that is text": lambda queue: queue.read(visibility_timeout="5"),  # type: ignore[arg-type]
    "visibility of a year": lambda queue: queue.read(visibility_timeout=365 * 86_400),
    "count of none": lambda queue: queue.read_many(0),
    "count of too many": lambda queue: queue.read_many(1001),
    "count that is text": lambda queue: queue.read_many("5"),  # type: ignore[arg-type]
    "stream that is negative": lambda queue: queue.read(prefer_stream=-1),
    "timeout that is text": lambda queue: queue.read(timeout="5"),  # type: ignore[arg-type]
    "timeout that is negative": lambda queue: queue.len(timeout=-1),
    "resize to none": lambda queue: queue.resize(0),
    "unknown setting": lambda queue: queue.configure(colour="red"),
    "count of dead ones": lambda queue: queue.dead(0),
    "dead after nonsense": lambda queue: queue.dead(after="nonsense"),
    "block that is huge": lambda queue: queue.read(block=10**5000),
    "count that is huge": lambda queue: queue.read_many(10**5000),
    "streams by configure": lambda queue: queue.configure(streams=8),
    "batch of nothing": lambda queue: queue.write_many(None),  # type: ignore[arg-type]
    "batch of one message": lambda queue: queue.write_many(Message(1, "t")),  # type: ignore[arg-type]
    "acks of nothing": lambda queue: queue.ack_many(None),  # type: ignore[arg-type]
    "acks of ids": lambda queue: queue.ack_many(["1-2-3"]),  # type: ignore[list-item]
    "acks of an iterator": lambda queue: queue.ack_many(iter([])),  # type: ignore[arg-type]
    "nacks of one thing": lambda queue: queue.nack_many(7),  # type: ignore[arg-type]
    "redrive of nothing": lambda queue: queue.redrive(None),  # type: ignore[call-overload]
    "redrive of ids": lambda queue: queue.redrive(["1-2-3"]),  # type: ignore[list-item]
}


@pytest.mark.parametrize("call", BAD_CALLS.values(), ids=BAD_CALLS.keys())
def test_a_bad_call(queue: Queue, call: Callable[[Queue], object]) -> None:
    with pytest.raises(ConfigError):
        call(queue)


BAD_SETTINGS: list[dict[str, Any]] = [
    {"streams": 0},
    {"streams": 4097},
    {"streams": "4"},
    {"streams_per_shard": 0},
    {"visibility_timeout": 0},
    {"visibility_timeout": -1},
    {"max_deliveries": 1},
    {"max_len": -1},
    {"max_dead": 0},
    {"max_dedup": 0},
    {"max_bulk_offsets": 0},
    {"dedup_window": 0},
    {"ttl": 0.5},
    {"ttl": 0},
    {"ttl": "60"},
    {"colour": "red"},
    {"legacy_stream": "s"},
    {"legacy_stream": 7, "legacy_group": "g"},
    {"legacy_stream": "", "legacy_group": ""},
]


@pytest.mark.parametrize("settings", BAD_SETTINGS, ids=str)
def test_a_bad_setting_of_a_queue(client: Client, queue_name: str, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        client.queue(queue_name, **settings)


def test_the_error_names_the_message_of_a_batch_that_is_wrong(queue: Queue) -> None:
    with pytest.raises(
        ConfigError, match=r"^message 1 of the batch: a shard key must be str or bytes, not int$"
    ) as key:
        queue.write_many([("good", "t"), ("bad", 7)])  # type: ignore[list-item]
    with pytest.raises(CodecError, match=r"^message 2 of the batch: cannot encode") as encoding:
        queue.write_many([("good", "t"), ("good", "t"), (object(), "t")])
    with pytest.raises(ConfigError, match="message 1 of the batch must be") as kind:
        queue.write_many([("good", "t"), "bad"])  # type: ignore[list-item]
    assert [each.value.index for each in (key, encoding, kind)] == [1, 2, 1]
    assert queue.len() == 0


def test_an_error_never_shows_the_payload(queue: Queue) -> None:
    with pytest.raises(ShardqError) as caught:
        queue.write({"password": "hunter2", "bad": object()}, shard_key="t")
    error: BaseException | None = caught.value
    while error is not None:
        assert "hunter2" not in str(error) + repr(error)
        error = error.__cause__ or error.__context__
