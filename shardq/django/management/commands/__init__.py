"""`shardq_worker`."""
