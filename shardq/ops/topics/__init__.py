"""Topics: bind queues to patterns, and publish to those that match.

Begin with `bindings`, a client's copy of what is bound and the changes to it; `load` follows the changes of others, and
`publish` writes to every queue that a topic reaches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardq.later import modules_of

if TYPE_CHECKING:
    from shardq.ops.topics import bindings, gone, publish

__all__ = ["bindings", "gone", "publish"]

__getattr__ = modules_of(__name__, __all__)
"""Few programs publish."""
