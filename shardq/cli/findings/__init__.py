"""What `shardq server doctor` finds: each finding has a name, a line that says what is wrong, and what to do.

`of_server` judges what the server says of itself, `of_rights` what its user may do, and `shardq.outlook.findings` the
queues. `health` and `rights` ask the server. Only `finding` knows how a finding is printed.
"""
