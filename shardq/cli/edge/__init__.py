"""One module per command of `shardq edge`, as in `commands`."""
