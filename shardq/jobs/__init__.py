"""The table of jobs: one row for each message of a queue that ended, made of the events of its journal.

Begin at `schema`, which says what the columns hold and how a folder of these tables is laid out. Spark is not needed,
only pyarrow: `shardq.spark` spreads over a cluster what stands here.
"""
