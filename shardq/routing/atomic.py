"""I-nodes, and the compare-and-swap that replaces what one of them holds.

An I-node stays where it is in the trie. Its `main` is what it holds now (a C-node, a page or a T-node), and its `gen`
is the generation in which it was made. The head of a trie has `root`, the I-node at the top, whose generation is the
trie's, and `stamp`, an object that every change replaces. Two operations change a trie:

- `gcas(node, old, new)` sets `node.main` to `new` if it is `old` and the node is of the trie's generation;
- `renew(root, main, fresh)` puts a new root, which holds `fresh` and begins a new generation, in the place of `root`,
  if the trie still has this root and the root still holds `main`. From then on `gcas` fails for every node of an older
  generation: such nodes belong to snapshots.

Reading `root`, `stamp` and `main` takes no lock.

There are two forms of these operations. `GilHead` needs no lock, and is used by CPython 3.11 to 3.14 with the GIL.
`LockHead` is used by every other Python: free-threaded builds, newer versions, other implementations.

Source: "Concurrent Tries with Efficient Non-Blocking Snapshots" (Prokopec, Bronson, Bagwell, Odersky, PPoPP 2012).
There the two operations are GCAS, and RDCSS on the root.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from shardq.arguments import shown
from shardq.errors import ConfigError
from shardq.platforms import after_fork


class INode:
    """A place in the trie that stays while what it holds is replaced."""

    __slots__ = ("gen", "main")

    def __init__(self, main: Any, gen: object) -> None:
        self.main = main
        self.gen = gen


class Head:
    """The head of a trie: its root, and the stamp that every change replaces.

    A thread that reads the same stamp before and after reading several I-nodes has read what was true at one instant
    (`shardq.routing.lookup`). No object is ever a stamp twice, since each change makes a new one.
    """

    __slots__ = ("root", "stamp")
    make = INode

    def __init__(self, main: Any) -> None:
        self.root = INode(main, object())
        self.stamp: Any = None

    def gcas(self, node: INode, old: Any, new: Any) -> bool:
        """Set *node*'s content to *new* if it is *old* and *node* is of the trie's generation; whether it was set."""
        raise NotImplementedError

    def renew(self, root: INode, main: Any, fresh: Any) -> bool:
        """Replace *root*, if it is the root and holds *main*, by one of a new generation that holds *fresh*."""
        raise NotImplementedError


class GilHead(Head):
    """Compare-and-swap in one line of Python, which CPython does not interrupt while it holds the GIL.

    Since 3.10, CPython gives the GIL away only where a Python function is entered or a loop jumps back (bpo-29988). The
    two lines below do neither: they read and write slots, and compare identities. CPython works so, but Python does not
    promise it. Therefore `gil_form_holds` lists the versions it was checked for; tests/routing/test_atomic.py looks at
    the bytecode, and lets threads race. A tool that stops inside a line, as branch coverage by `sys.monitoring` and
    opcode tracing do, breaks it: use `Router(form="lock")` under such a tool.
    """

    __slots__ = ()

    def gcas(self, node: INode, old: Any, new: Any) -> bool:
        """Set *node*'s content to *new* if it is *old* and *node* is of the trie's generation; whether it was set."""
        done = False
        if node.main is old and self.root.gen is node.gen: node.main = self.stamp = new; done = True  # fmt: skip # noqa: E701, E702
        return done

    def renew(self, root: INode, main: Any, fresh: Any) -> bool:
        """Replace *root*, if it is the root and holds *main*, by one of a new generation that holds *fresh*."""
        done, node = False, INode(fresh, object())
        if self.root is root and root.main is main: self.root = self.stamp = node; done = True  # fmt: skip # noqa: E701, E702
        return done


_lock = threading.Lock()


def _unlock_in_child() -> None:
    """Make a new lock in a forked child, where the thread that holds the old one does not exist."""
    global _lock
    _lock = threading.Lock()


after_fork(_unlock_in_child)


class LockHead(Head):
    """Compare-and-swap under a lock, one for all tries of the process.

    A lookup takes the lock only if writers disturbed it so often that it takes a snapshot.

    The stamp is replaced before the content. So between two replacements of the stamp there is exactly one change of
    content. A lookup that reads the same stamp before and after may overlap that one change: it has read the changed
    node either before or after it, and no other node changed, so what it read was true at one instant.

    A finalizer or a signal handler must not write to a trie: it could interrupt a thread that holds the lock.
    """

    __slots__ = ()

    def gcas(self, node: INode, old: Any, new: Any) -> bool:
        """Set *node*'s content to *new* if it is *old* and *node* is of the trie's generation; whether it was set."""
        with _lock:
            if node.main is not old or self.root.gen is not node.gen:
                return False
            self.stamp = new
            node.main = new
            return True

    def renew(self, root: INode, main: Any, fresh: Any) -> bool:
        """Replace *root*, if it is the root and holds *main*, by one of a new generation that holds *fresh*."""
        node = INode(fresh, object())
        with _lock:
            if self.root is not root or root.main is not main:
                return False
            self.stamp = node
            self.root = node
            return True


def gil_form_holds() -> bool:
    """Whether `GilHead` is atomic here: in CPython with the GIL, in a version that it was checked for."""
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    return sys.implementation.name == "cpython" and gil and (3, 11) <= sys.version_info[:2] <= (3, 14)


def forms() -> dict[str, type[Head]]:
    """The forms that work on this Python, the one to use first."""
    return {"gil": GilHead, "lock": LockHead} if gil_form_holds() else {"lock": LockHead}


def form_of(name: str | None) -> type[Head]:
    """The head class of the form *name*, or of the one to use here for None; ConfigError if it does not work here."""
    found = forms()
    chosen = next(iter(found)) if name is None else name
    if not isinstance(chosen, str) or chosen not in found:
        known = ", ".join(found)
        raise ConfigError(f"compare-and-swap has no form {shown(chosen)} on this Python; there are: {known}")
    return found[chosen]
