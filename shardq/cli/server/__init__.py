"""One module per command of `shardq server`, as in `commands`."""
