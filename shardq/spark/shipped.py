"""Whether the Pythons that Spark starts have the shardq of the driver, and what to do where they have not.

Tasks run in the executors' Python, and streams are planned in one on the driver's host. A zip that was shipped
(`--py-files shardq.zip`) reaches the executors. Spark looks for it in a wrong folder when it plans a stream, so that
Python gets its path by the environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shardq.errors import ConfigError
from shardq.version import __version__

if TYPE_CHECKING:
    from pyspark import SparkContext

PATIENCE: Final = 30.0
"""Seconds that a cluster has to run the tasks that look: it may have no room for them."""
_CHECKED: Final[set[tuple[str, int]]] = set()
JOB: Final = "shardq: which version do the executors have?"


def ship(context: SparkContext) -> None:
    """Let the Python in which streams are planned find shardq where it was shipped with the application."""
    from pyspark import SparkFiles

    entry = Path(__file__).parents[2]
    listed = context.getConf().get("spark.submit.pyFiles", "") or ""
    names = {Path(each).name for each in listed.split(",") if each}
    if entry.name not in names and not entry.is_relative_to(SparkFiles.getRootDirectory()):
        return
    before = context.environment.get("PYTHONPATH", "").split(os.pathsep)
    context.environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([str(entry), *filter(None, before)]))


def check_executors(context: SparkContext) -> None:
    """ConfigError unless the executors that the cluster has now have this version of shardq.

    They are asked once for each number of cores: with more of them, new executors have come. Nothing is known of a
    cluster that has no room for a few tasks now.
    """
    seen = context.applicationId, context.defaultParallelism
    if context.master.startswith("local") or seen in _CHECKED:
        return
    for host, version in sorted(_told(context, context.defaultParallelism)):
        if version != __version__:
            what = f"has shardq {version}" if version[:1].isdigit() else f"cannot import shardq ({version})"
            raise ConfigError(
                f"the Python of the executors on {host} {what}, and the driver has {__version__}: install this version "
                "there, name the Python that has it by PYSPARK_PYTHON, or ship it by --py-files shardq.zip "
                "(docs/spark-cluster.md)"
            )
    _CHECKED.add(seen)


def _told(context: SparkContext, cores: int) -> set[tuple[str, str]]:
    """The reports of tasks on all cores: host, and version of shardq or why it cannot be imported."""
    from pyspark import InheritableThread

    found: list[tuple[str, str]] = []

    def look() -> None:
        context.setJobGroup(JOB, JOB, interruptOnCancel=True)
        found.extend(context.parallelize(range(cores), cores).mapPartitions(_probe()).collect())

    thread = InheritableThread(look, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if thread.is_alive():
        context.cancelJobGroup(JOB)
    return set(found)


def _probe() -> Callable[[Any], Iterator[tuple[str, str]]]:
    """A task that needs no shardq: a name defined within a function is sent whole, not by its module's name."""

    def probe(_: Any) -> Iterator[tuple[str, str]]:
        from socket import gethostname

        try:
            from shardq.version import __version__ as version
        except ImportError as error:
            version = str(error)
        yield gethostname(), version

    return probe
