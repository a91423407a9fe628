"""What a queue promises, tested from the promise: no test here knows how an engine keeps it."""
