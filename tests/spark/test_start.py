"""What the Python imports that Spark starts for each streaming query: it plans the query, and reads no rows."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from shardq.client import Queue

NEEDLESS = {
    "grpc",
    "opentelemetry.exporter",
    "pandas",
    "pyarrow.compute",
    "shardq.cli",
    "shardq.dashboard",
    "shardq.exporter",
    "shardq.gateway",
    "shardq.jobs",
    "shardq.spark.columns",
    "shardq.spark.committing",
    "shardq.spark.consume.block",
    "shardq.spark.consume.fetch",
    "shardq.spark.consume.rows",
    "shardq.spark.consume.settling",
    "shardq.spark.dead",
    "shardq.spark.entries",
    "shardq.spark.events",
    "shardq.spark.lags",
    "shardq.spark.ops.bulk",
    "shardq.spark.ops.sweep",
    "shardq.spark.parsing",
    "shardq.spark.pipelines",
    "shardq.spark.privates",
    "shardq.spark.reader",
    "shardq.spark.shape",
    "shardq.spark.shipped",
    "shardq.spark.sinks",
    "shardq.spark.sweep",
    "shardq.spark.writer",
    "shardq.spark.written",
    "shardq.tasks",
    "shardq.worker",
}
"""What the readers of streams must not import before a task reads."""

PLANNING = """
import json, sys
import pyspark.sql.streaming.python_streaming_source_runner  # what PySpark itself imports there
before = {*sys.modules}
from shardq.spark.source import ShardqDataSource

source = ShardqDataSource(json.loads(sys.argv[1]))
reader = source.streamReader(source.schema())
start = reader.initialOffset()
end = reader.latestOffset(start, reader.getDefaultReadLimit())
print(json.dumps([len(reader.partitions(start, end)), sorted({*sys.modules} - before)]))
reader.stop()
"""


@pytest.mark.parametrize(
    "options",
    [
        {"state": "journal", "startingOffsets": "earliest"},
        {"state": "dead", "startingOffsets": "earliest"},
        {"mode": "consume"},
    ],
    ids=["journal", "dead", "consume"],
)
def test_the_python_of_a_streaming_query_imports_what_planning_needs(
    url: str, queue: Queue, options: dict[str, str]
) -> None:
    queue.configure(journal=1000)
    queue.write(b"bad", shard_key="acme")
    delivery = queue.read()
    assert delivery is not None
    delivery.reject("bad")
    queue.write(b"good", shard_key="acme")
    given = json.dumps({"url": url, "subscribe": queue.name, **options})
    done = subprocess.run([sys.executable, "-c", PLANNING, given], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    parts, imported = json.loads(done.stdout)
    assert parts == 1
    assert "shardq.spark.stream" in imported
    assert [each for each in imported if _is_needless(each)] == []


def _is_needless(module: str) -> bool:
    words = module.split(".")
    return any(".".join(words[:upto]) in NEEDLESS for upto in range(1, len(words) + 1))
