"""A queue over several nodes of a cluster: a thin layer above ordinary queues, each with a hash tag of its own.

A partition is a queue that knows nothing of the others. Begin with `map`, which says which partitions there are.
`homes` deals shard keys to them, `placing` spreads them over the nodes, and
`turns` decides which of them is read next. `parts` has what one client knows of the partitions, and asks them. `shapes`
says of each method of a queue how it goes over them.
"""
