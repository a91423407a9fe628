"""What if: the jobs of a day once more, through shardq's own Lua on a clock that is moved, under other settings.

`history` is what the table of jobs says of a queue, `alternative` what shall be otherwise, `server` a private server
whose clock stands until it is moved, `crew` the workers on it, and `replay` puts them together. `outcome` has the
numbers of a replay, `comparison` those of several beside what was, and `picture` draws them.
"""
