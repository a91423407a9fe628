"""Topics: bind queues to patterns, and publish to those that match.

Begin with `bindings`, a client's copy of what is bound and the changes to it; `load` follows the changes of others, and
`publish` writes to every queue that a topic reaches.
"""
