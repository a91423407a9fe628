"""`make demo-spark`: Spark fills queues, workers and Spark empty them, Spark archives journals; reports judge them.

Every installed Python package is a tenant, and each of its source files is a row. One tenant floods: it has 100 times
as many rows, all due at once, while those of the others become due little by little. Both queues get the same rows; one
has an admission window. A third queue is worked through by a streaming query. After each step the counts are compared;
the exit code is 0 if all agree, else 1. The pages of reports stay in --out.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from examples.demo.files import COPIES, flooding, sources
from shardq import Client, Queue, ShardqError
from shardq.cli.text import printable
from shardq.embedded import EmbeddedServer
from shardq.jobs.making import LiveQueue, make
from shardq.reports.catalog import made
from shardq.spark.pipelines.archive import Archive
from shardq.spark.pipelines.load import LoadColumns, identity, load, messages
from shardq.spark.pipelines.report import PipelineProgress, Report
from shardq.spark.pipelines.session import explained, session

QUEUES = {"plain": 0, "fair": 1}
"""And their admission windows."""

CONSUMED = 20_000
"""So many rows go through the queue that Spark consumes."""

STREAMS, PER_SHARD, SPAN = 16, 2, 10.0
"""Streams, streams per shard, and the seconds over which the quiet tenants' rows become due."""


class Disagreement(Exception):
    """Raised when two counts differ that should be equal."""


def agree(step: str, **counts: int) -> None:
    """Print the counts of a step, and fail unless they are equal."""
    print(f"{step:<10}", ", ".join(f"{name} {count:,}" for name, count in counts.items()))
    if len(set(counts.values())) > 1:
        raise Disagreement(f"{step}: {counts}")


def rows_of(spark: Any, folder: Path, limit: int | None) -> Any:
    """The files of the Python packages here as a DataFrame, kept as Parquet: when each is due, the flood's at once."""
    files = sources(limit)
    noisy = flooding(files)
    quiet = [each for each in files if each.tenant != noisy]
    rows = [(each.tenant, each.path, SPAN * at / len(quiet)) for at, each in enumerate(quiet)]
    flood = [(each.tenant, each.path, 0.0) for each in files if each.tenant == noisy] * COPIES
    spark.createDataFrame(flood + rows, "tenant string, path string, wait double").coalesce(1).write.parquet(
        str(folder)
    )
    tenants = len({each.tenant for each in files})
    print(f"{len(files):,} files of {tenants:,} packages; {noisy} floods with {len(flood):,} rows")
    return spark.read.parquet(str(folder))


@contextmanager
def workers(url: str, queue: str, count: int) -> Iterator[None]:
    """Run *count* worker processes."""
    command = [sys.executable, "-m", "examples.demo_spark.worker", url, queue]
    started = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for each in started:
            each.terminate()
        for each in started:
            each.wait()


def demo(spark: Any, url: str, queues: dict[str, Queue], folder: Path, out: Path, limit: int | None) -> None:
    """All steps, one after the other; the workers wait for the rows."""
    progress = PipelineProgress(Report("demo"))
    rows, columns = rows_of(spark, folder / "rows", limit), LoadColumns("tenant", delay="wait")
    count = rows.count()
    archive = Archive(spark, str(folder / "archive"))
    following = {"url": url, "maxOffsetsPerTrigger": "50000"}
    archived = 0
    for name, queue in queues.items():
        with workers(url, name, 2):
            options = {"url": url, "codec": "json"}
            loaded = load(messages(rows, columns), name, identity(rows, name, columns), options, progress)
            agree(f"{name}: loaded", rows=count, sent=loaded, written=queue.stats().written)
            while queue.stats().acked < count:
                archived += archive.follow("journal", list(queues), following, progress)
    archived += archive.follow("journal", list(queues), following, progress)
    archive.compact("journal")
    events = archive.table("journal")
    kinds = {row.kind: row["count"] for row in events.groupBy("kind").count().collect()}
    agree("archived", rows=count * len(queues), **kinds)
    agree("events", archived=archived, stored=events.count())
    for queue in queues.values():
        judge(queue, out, count)


def judge(queue: Queue, out: Path, count: int) -> None:
    """Make the table of a queue's jobs, and say whether it was fair, and who used what."""
    source, tables = LiveQueue(queue.client, [queue.name]), out / f"{queue.name}.jobs"
    tally = make(source, tables, source.seen)
    agree(f"{queue.name}: jobs", rows=count, ended=tally.jobs)
    fair, used = made("fair", tables), made("used", tables)
    page = out / f"{queue.name}.html"
    page.write_text(fair.html, encoding="utf-8")
    window = f"admission window {QUEUES[queue.name]}" if QUEUES[queue.name] else "no admission window"
    for told in (fair.told.verdict, used.told.verdict):
        print(f"  {window}: {printable(told)}")
    print(f"  the page is {page}")


def consume(spark: Any, url: str, rows: Any, queue: Queue, folder: Path) -> None:
    """Fill a queue, and work through it with a streaming query, whose sink here is a folder for each micro-batch."""
    some = rows.limit(CONSUMED).selectExpr("tenant as shard_key", "path as payload")
    some.write.format("shardq").options(url=url, queue=queue.name).mode("append").save()
    options = {"url": url, "subscribe": queue.name, "mode": "consume", "maxInFlight": "5000"}
    held = spark.readStream.format("shardq").options(**options).load()

    def work(df: Any, batch: int) -> None:
        query = df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")  # new with a new checkpoint
        df.drop("lease").write.mode("overwrite").parquet(str(folder / f"query={query}" / f"batch={batch}"))

    writer = held.writeStream.foreachBatch(work).option("checkpointLocation", str(folder) + "-checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()
    sink, stats = spark.read.parquet(str(folder)), queue.stats()
    messages = sink.select("message_id").distinct().count()
    agree(f"{queue.name}: done", written=stats.written, stored=sink.count(), messages=messages, acked=stats.acked)


def queues_of(client: Client) -> dict[str, Queue]:
    """The queues whose journals are kept, created."""
    made = {}
    for name, window in QUEUES.items():
        made[name] = client.queue(name, streams=STREAMS, streams_per_shard=PER_SHARD, window=window, journal=10_000_000)
        made[name].read_many(1)  # creates it
    return made


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.demo_spark", description=__doc__)
    parser.add_argument("--files", type=int, metavar="N", help="only so many files (all)")
    parser.add_argument("--out", type=Path, default=Path("build/demo-spark"), metavar="DIR", help="for the report")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        with EmbeddedServer() as server, Client.from_url(server.url) as client, tempfile.TemporaryDirectory() as folder:
            print("starting Spark ...", flush=True)
            with explained():
                spark, consumed = session("demo"), client.queue("spark", streams=STREAMS)
                consumed.read_many(1)  # creates it
                demo(spark, server.url, queues_of(client), Path(folder), args.out, args.files)
                rows = spark.read.parquet(str(Path(folder, "rows")))
                consume(spark, server.url, rows, consumed, Path(folder, "consumed"))
    except (Disagreement, ShardqError) as error:
        print(f"FAILED: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
