"""One module per pipeline of `shardq pipeline`, as in `commands`. PySpark is imported only when a pipeline runs."""
