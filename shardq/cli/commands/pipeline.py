"""`shardq pipeline NAME`: run one of the data pipelines on Spark."""

from __future__ import annotations

from shardq.cli.parsing import group
from shardq.cli.pipelines import archive, fairness, load, plan, redrive, route

ABOUT = """The pipelines need the extra "spark" (pip install 'shardq[spark]') and Java 17 or newer. They run on all
cores of this machine, on the cluster that --master names, or, under spark-submit, on the cluster of that. Progress goes
to stderr, a short report to stdout."""

EXAMPLES = """  shardq pipeline fairness archive/journal --out report/
  shardq pipeline fairness --queue jobs"""


run = group(
    "pipeline",
    "load, archive, judge and plan queues with Spark",
    ABOUT,
    EXAMPLES,
    title="pipelines",
    members=(load.run, archive.run, fairness.run, plan.run, route.run, redrive.run),
)
