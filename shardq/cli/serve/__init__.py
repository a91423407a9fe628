"""One module per command of `shardq serve`, as in `commands`."""
