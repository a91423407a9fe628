"""Topics, routed to queues: `Router` keeps patterns bound to queues and says which queues a topic goes to.

It is local and does no I/O; `Client.bind` and `Client.publish` share bindings through Redis. Within: `topic` is the
grammar, `ctrie` the trie, made of `nodes` in I-nodes of `atomic`, `lookup` the way through it, `cache` what is before.

>>> router = Router()
>>> router.bind("orders.*.created", "billing"), router.bind("orders.#", "audit")
(True, True)
>>> sorted(router.match("orders.eu.created")), sorted(router.match("orders"))
(['audit', 'billing'], ['audit'])
"""

from __future__ import annotations

from shardq.routing.ctrie import Ctrie
from shardq.routing.relation import covers, overlaps
from shardq.routing.router import Binding, Router

__all__ = ["Binding", "Ctrie", "Router", "covers", "overlaps"]
