"""Compare-and-swap by cereggii's `AtomicRef` (the extra `cas`): for CPython without the GIL, and where in doubt.

Two words must be compared and one swapped: what the I-node holds, and the trie's generation. As in Harris, Fraser and
Pratt's RDCSS ("A Practical Multi-Word Compare-and-Swap Operation", DISC 2002) and the paper's GCAS, the new content
is first put in the node as a descriptor, undecided. Whoever finds it decides: one compare-and-swap of `outcome`, to
the new content if the trie's generation is still the writer's, else back to the old. So nobody waits for a writer
that stopped.

A root is replaced the same way: `Frozen` in the old root keeps it from changing, and whoever finds it puts the next
root in place.
"""

from __future__ import annotations

from typing import Any

from cereggii import AtomicRef


class CasNode:
    """An I-node whose content is an `AtomicRef`."""

    __slots__ = ("gen", "ref")

    def __init__(self, main: Any, gen: object) -> None:
        self.ref = AtomicRef(main)
        self.gen = gen

    @property
    def main(self) -> Any:
        """What it holds now; decides what is undecided."""
        main = self.ref.get()
        kind = type(main)
        return main.settle() if kind is Pending else main.main if kind is Frozen else main


class Pending:
    """An undecided change of one node."""

    __slots__ = ("head", "new", "node", "old", "outcome")

    def __init__(self, head: CasHead, node: CasNode, old: Any, new: Any) -> None:
        self.head, self.node, self.old, self.new = head, node, old, new
        self.outcome = AtomicRef(None)

    def settle(self) -> Any:
        """Decide it, if nobody did, and put the outcome in the node; the outcome."""
        if self.outcome.get() is None:
            current = self.head.ref.get().gen is self.node.gen
            self.outcome.compare_and_set(None, self.new if current else self.old)
        outcome = self.outcome.get()
        self.node.ref.compare_and_set(self, outcome)
        return outcome


class Frozen:
    """What a root holds that is being replaced: its last content, and that of the next root."""

    __slots__ = ("fresh", "main")

    def __init__(self, main: Any, fresh: Any) -> None:
        self.main, self.fresh = main, fresh


class CasHead:
    """The head for `CasNode`."""

    __slots__ = ("ref",)
    make = CasNode

    def __init__(self, main: Any) -> None:
        self.ref = AtomicRef(CasNode(main, object()))

    @property
    def root(self) -> CasNode:
        """The root; puts the next one in place if it is frozen."""
        while True:
            root: CasNode = self.ref.get()
            main = root.ref.get()
            if type(main) is not Frozen:
                return root
            self.ref.compare_and_set(root, CasNode(main.fresh, object()))

    def gcas(self, node: CasNode, old: Any, new: Any) -> bool:
        """As `Head.gcas`."""
        pending = Pending(self, node, old, new)
        return bool(node.ref.compare_and_set(old, pending)) and pending.settle() is new

    def renew(self, root: CasNode, main: Any, fresh: Any) -> bool:
        """As `Head.renew`."""
        if self.root is not root or not root.ref.compare_and_set(main, Frozen(main, fresh)):
            return False
        self.ref.compare_and_set(root, CasNode(fresh, object()))  # if it fails, somebody did it for us
        return True
