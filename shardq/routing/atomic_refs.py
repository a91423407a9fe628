"""Compare-and-swap of a pointer and a generation, made of compare-and-swap of one pointer.

What an I-node holds is in a `ref`, which has `get`, `set` and `compare_and_set`: cereggii's `AtomicRef`
(`shardq.routing.atomic_cas`), or `LockRef` where that cannot be had.

Two words must be compared and one swapped: what the I-node holds, and the trie's generation. As in Harris, Fraser and
Pratt's RDCSS ("A Practical Multi-Word Compare-and-Swap Operation", DISC 2002) and the paper's GCAS, the new content
is first put in the node as a descriptor, undecided. If the trie's generation is still the writer's, the writer replaces
it by the new content, else by the old; that swap decides. Whoever meets it meanwhile does not wait: it decides by
putting `Decided` in its place, which tells the writer whose swap then fails what became of its change.

A root is replaced in a similar way: `Frozen` in the old root keeps it from changing, and whoever finds it puts the
next root in place.

Between the descriptor and what decides it, the head's `stamp` is replaced: `lookup_refs` says why.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from shardq.routing.lookup_refs import glance, lookup, place


class RefNode:
    """An I-node whose content is in a `ref`."""

    __slots__ = ("gen", "ref")

    def __init__(self, ref: Any, gen: object) -> None:
        self.ref = ref
        self.gen = gen

    @property
    def main(self) -> Any:
        """What it holds now; decides what is undecided."""
        while True:
            main = self.ref.get()
            kind = type(main)
            if kind is Frozen:
                return main.main
            if kind is not Pending and kind is not Decided:
                return main
            main.settle()


class Pending(list[Any]):
    """An undecided change of one node: [head, node, old, new, outcome]. A list, since none is made faster."""

    __slots__ = ()

    def settle(self) -> None:
        """Decide it, if nobody did."""
        head, node, old, new, _ = self
        head.stamp.set(object())
        node.ref.compare_and_set(self, Decided(self, new if head.ref.get().gen is node.gen else old))


class Decided:
    """A change that another thread than its writer decided. It gives way to `main` once the writer can see that."""

    __slots__ = ("main", "pending")

    def __init__(self, pending: Pending, main: Any) -> None:
        self.pending, self.main = pending, main

    def settle(self) -> None:
        """Put the outcome in the node."""
        self.pending[4] = self  # before it goes: of all that were made for `pending`, only this one was in the node
        self.pending[1].ref.compare_and_set(self, self.main)


class Frozen:
    """What a root holds that is being replaced: its last content, and that of the next root."""

    __slots__ = ("fresh", "main")

    def __init__(self, main: Any, fresh: Any) -> None:
        self.main, self.fresh = main, fresh


class RefHead:
    """The head for `RefNode`; its subclasses say what a `Ref` is."""

    __slots__ = ("ref", "stamp")
    Ref: Any
    lookup = lookup
    glance = glance
    place = place

    def __init__(self, main: Any) -> None:
        self.ref = self.Ref(self.make(main, object()))
        self.stamp = self.Ref(None)

    @classmethod
    def make(cls, main: Any, gen: object) -> RefNode:
        """As `Head.make`."""
        return RefNode(cls.Ref(main), gen)

    @property
    def root(self) -> Any:
        """The root; puts the next one in place if it is frozen."""
        while True:
            root = self.ref.get()
            main = root.ref.get()
            if type(main) is not Frozen:
                return root
            self.stamp.set(object())
            self.ref.compare_and_set(root, self.make(main.fresh, object()))

    def gcas(self, node: Any, old: Any, new: Any) -> bool:
        """As `Head.gcas`."""
        ref = node.ref
        pending = Pending((self, node, old, new, None))
        if not ref.compare_and_set(old, pending):
            return False
        self.stamp.set(pending)
        good = self.ref.get().gen is node.gen
        if ref.compare_and_set(pending, new if good else old):
            return good
        decided = ref.get()  # somebody met it
        if type(decided) is not Decided or decided.pending is not pending:
            decided = pending[4]
        return decided.main is new

    def renew(self, root: Any, main: Any, fresh: Any) -> bool:
        """As `Head.renew`."""
        if self.root is not root or not root.ref.compare_and_set(main, Frozen(main, fresh)):
            return False
        self.stamp.set(object())
        self.ref.compare_and_set(root, self.make(fresh, object()))  # if it fails, somebody did it for us
        return True


LOCKS: tuple[threading.Lock, ...] = ()


def _make_locks() -> None:
    """In a forked child another thread of the parent may hold one of those that there were."""
    global LOCKS
    LOCKS = tuple(threading.Lock() for _ in range(64))


_make_locks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_make_locks)


class LockRef:
    """A reference that is compared and swapped under one of 64 locks. Not lock-free; reading takes no lock."""

    __slots__ = ("_held",)

    def __init__(self, held: Any) -> None:
        self._held = held

    def get(self) -> Any:
        """What it refers to."""
        return self._held

    def set(self, new: Any) -> None:
        """Refer to *new*."""
        self._held = new

    def compare_and_set(self, old: Any, new: Any) -> bool:
        """Refer to *new* if it is *old* now; whether it does."""
        with LOCKS[id(self) >> 5 & 63]:
            if self._held is not old:
                return False
            self._held = new
            return True


class LockHead(RefHead):
    """The head whose nodes have a `LockRef`, for where the other forms cannot be had."""

    __slots__ = ()
    Ref = LockRef
