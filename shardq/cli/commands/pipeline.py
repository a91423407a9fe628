"""`shardq pipeline NAME`: run one of the data pipelines on Spark."""

from __future__ import annotations

from typing import Final

from shardq.cli.menu import Menu
from shardq.cli.parsing import group

ABOUT = """The pipelines need Java 17 or newer. They run on all cores of this machine, on the cluster that --master
names, or, under spark-submit, on the cluster of that. Progress goes to stderr, a short report to stdout."""

EXAMPLES = """  shardq pipeline load day.parquet jobs --key tenant
  shardq pipeline archive archive/ jobs mails"""

MENU: Final = Menu(
    "shardq.cli.pipelines",
    {
        "": {
            "load": "write the rows of a table into a queue",
            "archive": "store journals and dead letters as Parquet",
            "jobs": "make the table of jobs, one row a message",
            "route": "send events to the queues of their topics",
            "redrive": "move chosen dead letters back",
            "what-if": "replay hours of jobs under other settings",
        }
    },
)

run = group(MENU, ABOUT, EXAMPLES, title="pipelines", extra="spark")
