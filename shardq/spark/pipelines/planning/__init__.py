"""N and M for tenants by the million: every tenant's shard drawn or dealt, and its wait beside floods predicted.

`model` predicts waits, `survey` applies it to tenants in chunks, `pipeline` runs the survey on Spark and recommends.
"""
