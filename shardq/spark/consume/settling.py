"""`ack`, `nack` and `reject` of the rows of a DataFrame, as a Spark job: each task settles the leases of its rows.

`settle_last` is for a streaming query that has stopped, `settle_failed` for one whose job failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from shardq.arguments import MAX_BLOCK, seconds
from shardq.codec import Codecs
from shardq.errors import ConfigError, QueueMissing
from shardq.model import Received
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.results.keep import keep, kept_result
from shardq.ops.settle import settle
from shardq.ops.settle.settle import Settled
from shardq.spark.causes import cause_of
from shardq.spark.connection import client_of, queue_of
from shardq.spark.consume.hold import Hold
from shardq.spark.consume.lease import lease_of
from shardq.spark.lags import offsets_of, unfinished_offsets
from shardq.spark.lives import Gone, same_queue
from shardq.spark.options import Connecting

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming import StreamingQuery

Verb = Callable[[QueueState, Sequence[Received], Sequence[Any]], Op[list[Settled]]]
"""Settles rows of a queue, each with its error, its reason or its result."""


class Settlement(NamedTuple):
    """How many rows were `settled`, and how many not: their lease was `lost`, or the message was `cancelled`.

    `ack` returns one. `dead` are those that became dead letters, because they were rejected or had no delivery left.
    """

    settled: int
    lost: int
    cancelled: int
    dead: int


def ack(df: DataFrame, *, url: str, result: Column | None = None) -> Settlement:
    """Say of the messages of *df* that their work is done. It needs the column `lease` only.

    The column *result* has the result of each, which is kept as `Delivery.ack` keeps one: a struct or a map as a dict,
    null as None. ConfigError without the column `lease`, or if a queue keeps no results; BackendError if Redis did not
    answer.

    >>> from shardq import Client
    >>> client = Client.from_url("redis://localhost:6379")
    >>> ids = client.queue("jobs", create=True).write_many([(b"hello", "acme"), (b"", "umbrella")])
    >>> with consuming(spark, url="redis://localhost:6379", queue="jobs", ack_on="job") as df:
    ...     ack(df, url="redis://localhost:6379")
    Settlement(settled=2, lost=0, cancelled=0, dead=0)
    """
    if result is not None:
        return _settled(df, result, url, _ack_with_results)
    return _settled(df, _text(""), url, lambda state, held, _: settle.ack(state, held))


def _ack_with_results(state: QueueState, held: Sequence[Received], results: Sequence[Any]) -> Op[list[Settled]]:
    """Keep the results, then ack; runs in a task."""
    config = state.config
    if config.result_ttl is None:
        raise ConfigError(f"queue {state.keys.name!r} keeps no results: set its result_ttl")
    encoded = (kept_result(Codecs(), config.max_result_size, each) for each in results)
    yield from keep(state, [*zip(held, encoded, strict=True)])
    return (yield from settle.ack(state, held))


def nack(df: DataFrame, *, url: str, delay: float = 0.0, error: str | Column = "") -> Settlement:
    """Give the messages of *df* back, to be delivered again after *delay* seconds. *error* is a text or a column.

    Errors as of `ack`, and ConfigError for a bad *delay*.

    >>> from shardq import Client
    >>> client = Client.from_url("redis://localhost:6379")
    >>> ids = client.queue("jobs", create=True).write_many([(b"hello", "acme"), (b"", "umbrella")])
    >>> with consuming(spark, url="redis://localhost:6379", queue="jobs", ack_on="job") as df:
    ...     nack(df, url="redis://localhost:6379", delay=60, error="the sink is full")
    Settlement(settled=2, lost=0, cancelled=0, dead=0)
    """
    seconds("delay", delay, 0, MAX_BLOCK)
    return _settled(df, _text(error), url, lambda state, held, errors: settle.nack(state, held, delay, errors))


def reject(df: DataFrame, *, url: str, reason: str | Column) -> Settlement:
    """Move the messages of *df* to the dead letters. *reason* is a text, or a column with one for each.

    BackendError and ConfigError as of `ack`.

    >>> from shardq import Client
    >>> client = Client.from_url("redis://localhost:6379")
    >>> ids = client.queue("jobs", create=True).write_many([(b"hello", "acme"), (b"", "umbrella")])
    >>> with consuming(spark, url="redis://localhost:6379", queue="jobs", ack_on="job") as df:
    ...     reject(df.where("payload = ''"), url="redis://localhost:6379", reason="the payload is empty")
    Settlement(settled=0, lost=0, cancelled=0, dead=1)
    """
    return _settled(df, _text(reason), url, settle.reject)


def settle_last(query: StreamingQuery, *, url: str) -> None:
    """Settle the last micro-batch that a stopped query has committed, as the query would have done before its next one.

    Without this its messages come again when their leases end, unless the query is started again before that.
    ConfigError while the query runs. A micro-batch that was not committed is left as it is.

    >>> from shardq import Client
    >>> client = Client.from_url("redis://localhost:6379")
    >>> message_id = client.queue("jobs", create=True).write(b"hello", shard_key="acme")
    >>> held = spark.readStream.format("shardq").options(url="redis://localhost:6379", subscribe="jobs", mode="consume")
    >>> query = held.load().writeStream.format("noop").trigger(availableNow=True).start()
    >>> query.awaitTermination()
    >>> settle_last(query, url="redis://localhost:6379")
    """
    if query.isActive:
        raise ConfigError("the query still runs, and settles its micro-batches itself: stop it first")
    gone = Gone("there is no queue %r any more: nothing of it is left to settle")
    for end in offsets_of(query.lastProgress):
        for queue in end.get("rows", ()) if "hold" in end else ():
            with gone.left_out(queue):
                _hold(url, queue, end).settle(end["batch"], end["ackOn"])


def settle_failed(query: StreamingQuery, *, url: str) -> None:
    """Give back what a streaming query held when its job failed: uncounted, with the job's error, for a second or more.

    The query, started again from its checkpoint, continues with a micro-batch of half the size. Without this it gets
    the same messages once more, and only if it fails again with these they are given back, without the job's error.
    ConfigError while the query runs. Nothing happens if no micro-batch was under way.

    >>> from shardq import Client
    >>> client = Client.from_url("redis://localhost:6379")
    >>> message_id = client.queue("jobs", create=True).write(b"hello", shard_key="acme")
    >>> from pyspark.errors import StreamingQueryException
    >>> def work(df, batch):
    ...     raise ValueError("the sink is away")
    >>> held = spark.readStream.format("shardq").options(url="redis://localhost:6379", subscribe="jobs", mode="consume")
    >>> query = held.load().writeStream.foreachBatch(work).start()
    >>> try:
    ...     query.awaitTermination()
    ... except StreamingQueryException:
    ...     settle_failed(query, url="redis://localhost:6379")
    """
    if query.isActive:
        raise ConfigError("the query still runs: wait until it has ended")
    failure, gone = query.exception(), Gone("there is no queue %r any more: nothing of it is left to give back")
    for end in unfinished_offsets(str(failure)) if failure else ():
        for queue in end["rows"]:
            with gone.left_out(queue):
                _hold(url, queue, end).fail(end, cause_of(failure))


def _hold(url: str, queue: str, end: Mapping[str, Any]) -> Hold:
    options = Connecting(url=url)
    return Hold(client_of(options), same_queue(options, queue, end), end["hold"])


def _text(why: str | Column) -> Column:
    """A text, or a column with one for each row."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.lit(why) if isinstance(why, str) else F.coalesce(why.cast("string"), F.lit(""))


def _settled(df: DataFrame, told: Column, url: str, verb: Verb) -> Settlement:
    """Settle the rows of *df* by *verb*, which also gets the column *told*."""
    _check_lease(df)
    options = Connecting(url=url)

    def task(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        from shardq.spark.maps import listed

        ends: Counter[str] = Counter()
        for batch in batches:
            ends.update(_settle(options, verb, batch.column(0).to_pylist(), listed(batch.column(1))))
        how, rows = pa.array(ends.keys(), pa.string()), pa.array(ends.values(), pa.int64())
        yield pa.record_batch({"how": how, "rows": rows})

    counts: Counter[str] = Counter()
    for row in df.select("lease", told.alias("told")).mapInArrow(task, "how string, rows long").collect():
        counts[row["how"]] += row["rows"]
    return Settlement(*(counts[how.value] for how in (Settled.OK, Settled.LOST, Settled.CANCELLED, Settled.DEAD)))


def _check_lease(df: DataFrame) -> None:
    """ConfigError unless *df* has a column `lease` of text."""
    kinds = dict(df.dtypes)
    if "lease" not in kinds:
        raise ConfigError("column lease is missing: keep it with what you make of the rows")
    if kinds["lease"] != "string":
        raise ConfigError(f"column lease is {kinds['lease']}: it must be string, as `consuming` made it")


def _settle(options: Connecting, verb: Verb, leases: Sequence[str | None], told: Sequence[Any]) -> Iterator[str]:
    """Settle rows, queue by queue, and say how each ended. All leases are looked at before the first is settled."""
    queues: dict[str, list[tuple[Received, Any]]] = {}
    for text, each in zip(leases, told, strict=True):
        lease = lease_of(text)
        queues.setdefault(lease.queue, []).append((lease.received, each))
    for name, rows in queues.items():
        try:
            state = queue_of(options, name)
        except QueueMissing:  # its messages went with it
            yield from [Settled.LOST.value] * len(rows)
            continue
        held = [received for received, _ in rows]
        yield from (how.value for how in client_of(options).run(verb(state, held, [each for _, each in rows])))
