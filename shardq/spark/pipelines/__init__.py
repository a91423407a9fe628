"""The pipelines of a multi-tenant queue, on Spark: what `shardq pipeline NAME` runs. docs/pipelines.md tells of each.

`session` is the Spark they run in, `inputs` what they read, `report` what they say. Each pipeline takes DataFrames and
gives figures, so it can be a step of a job of your own as well.
"""

from __future__ import annotations

from shardq.extras import extra

with extra("spark"):
    import numpy  # noqa: F401 - all pipelines need these
    import pyarrow  # noqa: F401
    import pyspark  # noqa: F401
