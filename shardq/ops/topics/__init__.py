"""Topics: bind queues to patterns, and publish to those that match.

Begin with `bindings`, a client's copy of what is bound and the changes to it; `load` follows the changes of others, and
`publish` writes to every queue that a topic reaches.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardq.ops.topics import bindings, gone, publish

__all__ = ["bindings", "gone", "publish"]


def __getattr__(name: str) -> ModuleType:
    """Import a module when it is first asked for: few programs publish."""
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
