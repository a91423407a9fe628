"""I-nodes, and how a thread replaces what one holds without a lock: compare-and-swap in three forms.

An I-node has `main`, what it holds now, and `gen`, the generation it was made in. A head has `root`, the I-node at the
top; the root's generation is the trie's. Three steps change things, each at one instant:

- `gcas(node, old, new)`: `node.main` becomes `new` if it is `old` and the trie's generation still is the node's;
- `renew(root, main, fresh)`: if the root and what it holds are still these, a new root holds `fresh`, in a generation
  of its own. From then on no `gcas` on a node of an older generation succeeds: it belongs to a snapshot.
- reading `main` and `root`, without waiting for anyone.

`lookup(topic)` is how a head is read: it depends on the form what can be read at one instant.

Source: "Concurrent Tries with Efficient Non-Blocking Snapshots" (Prokopec, Bronson, Bagwell, Odersky, PPoPP 2012),
where these are GCAS, RDCSS on the root, and GCAS_READ.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol, TypeVar

from shardq.errors import ConfigError
from shardq.routing.atomic_refs import LockHead
from shardq.routing.lookup import glance, lookup, place

T = TypeVar("T")


class INode(Protocol):
    """A place in the trie that stays while what it holds is replaced."""

    gen: object

    @property
    def main(self) -> Any:
        """What it holds now."""


class Head(Protocol):
    """Where a trie hangs."""

    @property
    def root(self) -> Any:
        """The I-node at the top."""

    def make(self, main: Any, gen: object) -> Any:
        """A new I-node."""

    def gcas(self, node: Any, old: Any, new: Any) -> bool:
        """Let *node* hold *new* if it holds *old* and is of the trie's generation; whether it does."""

    def renew(self, root: Any, main: Any, fresh: Any) -> bool:
        """Put a new root, holding *fresh* in a new generation, in the place of *root* if that still holds *main*."""

    def lookup(self, text: str) -> frozenset[str]:
        """The values of the patterns that match the topic *text*, as of one instant during the call."""

    def glance(self, ask: Callable[[Any], T]) -> T:
        """What *ask* says of what the root holds and what is below it, all of one instant during the call."""

    def place(self, page: Any, key: str) -> tuple[Any, Any, int]:
        """As `shardq.routing.lookup.place`."""


class GilNode:
    """An I-node whose `main` is stored plainly."""

    __slots__ = ("gen", "main")

    def __init__(self, main: Any, gen: object) -> None:
        self.main = main
        self.gen = gen


class GilHead:
    """Compare-and-swap by the GIL: each is one line of Python, which CPython does not interrupt.

    Since 3.10, CPython gives the GIL away only when a Python function is entered or a loop jumps back (bpo-29988). In
    the two lines below nothing is called and nothing jumps: slots are read and written, identities compared. So does
    CPython work, not a promise of Python, so `best` takes this form only for versions it was tested on, and
    tests/routing/test_atomic.py tests it, beside forms that must fail. Tools that stop inside a line (branch events of
    `sys.monitoring`, opcode tracing) break it; take another form under them.

    Each change replaces `stamp`, too, in the same line. What is stored in a node is never stored there again, so a
    stamp that somebody holds does not come back.
    """

    __slots__ = ("root", "stamp")
    make = GilNode
    lookup = lookup
    glance = glance
    place = place

    def __init__(self, main: Any) -> None:
        self.root = GilNode(main, object())
        self.stamp: Any = None

    def gcas(self, node: GilNode, old: Any, new: Any) -> bool:
        """As `Head.gcas`."""
        done = False
        if node.main is old and self.root.gen is node.gen: node.main = self.stamp = new; done = True  # fmt: skip # noqa: E701, E702
        return done

    def renew(self, root: GilNode, main: Any, fresh: Any) -> bool:
        """As `Head.renew`."""
        done, node = False, GilNode(fresh, object())
        if self.root is root and root.main is main: self.root = self.stamp = node; done = True  # fmt: skip # noqa: E701, E702
        return done


def forms() -> dict[str, Any]:
    """The forms that work here, the best first."""
    found: dict[str, Any] = {}
    if gil_form_holds():
        found["gil"] = GilHead
    if find_spec("cereggii"):
        found["cas"] = import_module("shardq.routing.atomic_cas").CasHead
    found["locks"] = LockHead
    return found


def gil_form_holds() -> bool:
    """Whether the one-line form is atomic here: CPython with the GIL, of a version it was tested on."""
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    return sys.implementation.name == "cpython" and gil and (3, 11) <= sys.version_info[:2] <= (3, 14)


def form_of(name: str | None) -> Any:
    """The head class of that form, of the best one for None; ConfigError if it cannot be had here."""
    found = forms()
    chosen = name or next(iter(found))
    if chosen not in found:
        raise ConfigError(f"the form {chosen!r} of compare-and-swap cannot be had here; there are {', '.join(found)}")
    return found[chosen]
