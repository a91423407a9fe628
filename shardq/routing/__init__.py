"""Topics and the queues they go to. `Router` holds bindings of patterns to queues, and matches topics with them.

A router is local and does no I/O; `Client.bind` and `Client.publish` share bindings through Redis. `topic` has the
grammar, `ctrie` the trie, which is made of `nodes` in the I-nodes of `atomic`. `lookup` walks it, and `cache` keeps the
results.

>>> router = Router()
>>> router.bind("orders.*.created", "billing"), router.bind("orders.#", "audit")
(True, True)
>>> sorted(router.match("orders.eu.created")), sorted(router.match("orders"))
(['audit', 'billing'], ['audit'])
"""

from __future__ import annotations

from shardq.routing.ctrie import Ctrie
from shardq.routing.relation import covers, overlaps
from shardq.routing.router import Binding, BoundQueue, Router

__all__ = ["Binding", "BoundQueue", "Ctrie", "Router", "covers", "overlaps"]
