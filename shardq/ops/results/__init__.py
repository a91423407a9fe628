"""Results of messages: keep them, and wait for them.

Begin with `keep`. `wait` waits for the results of messages, over one connection for all who wait; they meet in
`waiters`.
"""
