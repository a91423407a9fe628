"""All that shardq uses of PySpark and that PySpark does not promise. Another version may break this file, and no other.

Versions 4.0 to 4.3 have it. tests/house/test_privates.py counts the uses.
"""

from __future__ import annotations

import subprocess
import sys
from threading import Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import DataFrame, SparkSession


def jvm_of(spark: SparkSession) -> Any:
    """The classes in the JVM of a session; None in a client of Spark Connect, which has no JVM."""
    return getattr(spark, "_jvm", None)


def _in_java(spark: SparkSession) -> Any:
    return spark._jsparkSession


def make_active(spark: SparkSession) -> None:
    """Make a session the one in which the calling thread looks formats up."""
    jvm_of(spark).SparkSession.setActiveSession(_in_java(spark))


def hadoop_path(spark: SparkSession, path: str, *, is_url: bool = False) -> Any:
    """A path as Hadoop has it, which knows its file system. The escapes of a URL are read."""
    jvm = jvm_of(spark)
    return jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(path) if is_url else path)


def file_system(spark: SparkSession, path: Any) -> Any:
    """The file system of a path of Hadoop, with the settings of the session."""
    return path.getFileSystem(_in_java(spark).sessionState().newHadoopConf())


def text_of(spark: SparkSession, stream: Any) -> str:
    """All that is in a stream of Java, as text."""
    return str(jvm_of(spark).org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))


def partition_folder(spark: SparkSession, column: str, value: str) -> str:
    """The name of the folder that Spark writes the rows with this *value* of a column to."""
    catalog = jvm_of(spark).org.apache.spark.sql.catalyst.catalog
    return f"{column}={catalog.ExternalCatalogUtils.escapePathName(value)}"


def analyzed(rows: DataFrame) -> Any:
    """The steps of the query that makes *rows*, as Spark has analyzed it."""
    return rows._jdf.queryExecution().analyzed()


def session_there() -> SparkSession | None:
    """The session that this process has made, whichever thread asks."""
    from pyspark.sql import SparkSession

    return SparkSession._instantiatedSession


def context_there() -> SparkContext | None:
    """The context that this process has made; it may have no session yet."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context


def gateway_there() -> Any:
    """The connection to the JVM that this process uses; None without one."""
    from pyspark import SparkContext

    return SparkContext._gateway


def forget_gateway() -> None:
    """Let the next session start a JVM of its own."""
    from pyspark import SparkContext

    SparkContext._gateway = SparkContext._jvm = None


def launch(conf: SparkConf, popen: dict[str, Any]) -> Any:
    """Start a JVM, by a process with these arguments of Popen. Return the connection to it."""
    from pyspark.java_gateway import launch_gateway

    return launch_gateway(conf, popen)


def process_of(gateway: Any) -> subprocess.Popen[bytes] | None:
    """The process of the JVM at the other end of a connection; None if this process has not started it."""
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    return process


def process_begun(thread: Thread) -> subprocess.Popen[bytes] | None:
    """The process that a thread has begun in `launch`, which is still under way: PySpark has it in a variable."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        process = frame.f_locals.get("proc")
        if isinstance(process, subprocess.Popen):
            return process
        frame = frame.f_back
    return None


def say_nothing_of_the_end(context: SparkContext) -> None:
    """Let PySpark print nothing if the JVM ends: it would be 20 lines, and what waits for an answer says so."""
    server: Any = context._accumulatorServer
    server.handle_error = lambda *_: None


def stacks_of(error: Exception) -> str:
    """The stacks of Java that an error of Spark brings, "" if none."""
    return str(getattr(error, "_stackTrace", ""))
