"""The operations on queues and routers. Each is a generator that yields steps and returns a result.

A step is plain data (`shardq.ops.queue.steps`). A driver runs it and sends the reply back in, or throws `Refused` or
`Unanswered`. So the same code serves threads and asyncio, and a unit test needs neither a server nor a mock.

House rules: parse a reply on the line that receives it; never `yield` inside `finally`; never read a clock but the
state's own; raise one exception type for each kind of failure.
"""
