"""Compare-and-swap by cereggii's `AtomicRef` (the extra `cas`): for CPython without the GIL, and where in doubt."""

from __future__ import annotations

from cereggii import AtomicRef

from shardq.routing.atomic_refs import RefHead


class CasHead(RefHead):
    """The head whose nodes have an `AtomicRef`."""

    __slots__ = ()
    Ref = AtomicRef
