"""One module per command of `shardq topics`, as in `commands`."""
