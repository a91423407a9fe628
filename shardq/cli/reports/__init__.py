"""One module per report of `shardq report`, as in `commands`. DuckDB is imported only when a report is made."""
