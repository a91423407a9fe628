"""PySpark's daemon, with everything imported that its children need.

PySpark starts a child for each step of planning what uses a data source of Python, and others for tasks. Each imports
PySpark, PyArrow and shardq before it does a thing, which is much of the CPU that a small job takes. PySpark's own
daemon imports nothing for them, since what users import may start threads, which a fork loses.
"""

from __future__ import annotations

import gc
import os
from importlib import import_module

from pyspark.daemon import manager

CHILDREN = (
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.worker",
)

OURS = ("source", "reader", "writer", "stream", "consume.fetch", "consume.stream")

if __name__ == "__main__":
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # NumPy's threads; the one of PyArrow's allocator minds no fork
    for name in (*CHILDREN, *(f"shardq.spark.{each}" for each in OURS)):
        import_module(name)
    gc.freeze()
    manager()
