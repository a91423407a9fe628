"""The findings of `shardq server doctor`: each has a name, a line that says the problem, and what to do.

`of_server` judges what the server says of itself, `of_rights` what its user may do, and `shardq.outlook.findings` the
queues. `health` and `rights` ask the server. Only `finding` knows how a finding is printed.
"""
