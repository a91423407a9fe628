"""`make demo-spark`: a queue filled by Spark, worked off, archived by a streaming query, and judged.

Every Python package that is installed is a tenant, each of its source files a row; one tenant has 100 times as many.
After each step the counts are compared; exit code 0 if all agree, else 1. The fairness report stays in --out.
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
from shardq.spark.pipelines.archive import Archive
from shardq.spark.pipelines.fairness.pipeline import Asked, run
from shardq.spark.pipelines.load import Columns, identity, load, messages
from shardq.spark.pipelines.report import Progress, Report
from shardq.spark.pipelines.session import explained, session

QUEUE, STREAMS, PER_SHARD = "files", 32, 2


class Disagreement(Exception):
    """Two counts that should be the same are not."""


def agree(step: str, **counts: int) -> None:
    """Print the counts of a step, and fail unless they are equal."""
    print(f"{step:<10}", ", ".join(f"{name} {count:,}" for name, count in counts.items()))
    if len(set(counts.values())) > 1:
        raise Disagreement(f"{step}: {counts}")


def rows_of(spark: Any, folder: Path, limit: int | None) -> Any:
    """The files of the Python packages here as a DataFrame, kept as Parquet; the flood first."""
    files = sources(limit)
    noisy = flooding(files)
    rows = [(each.tenant, each.path, each.size) for each in files]
    flood = [row for row in rows if row[0] == noisy] * COPIES
    schema = "tenant string, path string, size long"
    spark.createDataFrame(flood + rows, schema).coalesce(1).write.parquet(str(folder))
    tenants = len({row[0] for row in rows})
    print(f"{len(rows):,} files of {tenants:,} packages; {noisy} floods with {len(flood):,} rows more")
    return spark.read.parquet(str(folder))


@contextmanager
def workers(url: str, count: int) -> Iterator[None]:
    """So many worker processes."""
    command = [sys.executable, "-m", "examples.demo_spark.worker", url, QUEUE]
    started = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for each in started:
            each.terminate()
        for each in started:
            each.wait()


def demo(spark: Any, url: str, queue: Queue, folder: Path, out: Path, limit: int | None) -> None:
    """All steps, one after the other; the archive runs while the workers work, and once more when they are done."""
    progress = Progress(Report("demo"))
    rows, columns = rows_of(spark, folder / "rows", limit), Columns("tenant")
    count = rows.count()
    options = {"url": url, "codec": "json"}
    loaded = load(messages(rows, columns), QUEUE, identity(rows, QUEUE, columns), options, progress)
    agree("loaded", rows=count, written=loaded, backlog=queue.len())
    archive = Archive(spark, str(folder / "archive"))
    following = {"url": url, "maxOffsetsPerTrigger": "50000"}
    archived = 0
    with workers(url, 2):
        while queue.len():
            archived += archive.follow("journal", [QUEUE], following, progress)
    archived += archive.follow("journal", [QUEUE], following, progress)
    agree("worked off", rows=count, acked=queue.stats().acked)
    archive.compact("journal")
    events = archive.table("journal")
    kinds = {row.kind: row["count"] for row in events.groupBy("kind").count().collect()}
    agree("archived", rows=count, **kinds)
    agree("events", told=archived, stored=events.count())
    (found,) = run(events, Asked(1, (STREAMS, PER_SHARD), QUEUE, out), progress)
    agree("judged", rows=count, arrived=found.totals["arrived"], served=found.totals["picked"])
    for remark in progress.report.remarks[1:]:
        print(printable(remark))
    print(f"the picture is {out / (QUEUE + '.png')}, the page {out / (QUEUE + '.html')}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.demo_spark", description=__doc__)
    parser.add_argument("--files", type=int, metavar="N", help="only so many files (all)")
    parser.add_argument("--out", type=Path, default=Path("build/demo-spark"), metavar="DIR", help="for the report")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        with EmbeddedServer() as server, Client.from_url(server.url) as client, tempfile.TemporaryDirectory() as folder:
            queue = client.queue(QUEUE, streams=STREAMS, streams_per_shard=PER_SHARD, journal=10_000_000)
            queue.read_many(1)  # creates it
            print("starting Spark ...", flush=True)
            with explained():
                demo(session("demo"), server.url, queue, Path(folder), args.out, args.files)
    except (Disagreement, ShardqError) as error:
        print(f"FAILED: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
