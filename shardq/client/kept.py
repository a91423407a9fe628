"""Values that a client remembers by name, within bounds: strangers may choose names, such as those in URLs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar
from weakref import WeakValueDictionary

V = TypeVar("V")

MAX_UNUSED: Final = 1024
"""Values that nobody uses, of queues and routers that Redis has: those used last stay."""
MAX_MISSING: Final = 128
"""Values of names that Redis does not know: most of these will not be named again."""


class Kept(Generic[V]):
    """Values by their names: all that somebody uses, and those that were asked for last.

    *is_known* says of a value whether Redis has what it is of, or will by the program's own settings. The caller has a
    lock.
    """

    def __init__(self, is_known: Callable[[V], bool]) -> None:
        self._is_known = is_known
        self._used: WeakValueDictionary[Hashable, V] = WeakValueDictionary()
        self._known: OrderedDict[Hashable, V] = OrderedDict()
        self._named: OrderedDict[Hashable, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._used)

    def all(self) -> list[V]:
        """Return all values."""
        return [*self._used.values()]

    def get(self, name: Hashable) -> V | None:
        """Return the value of this name, if it is remembered."""
        found = self._used.get(name)
        if found is not None:
            self._note(name, found)
        return found

    def put(self, name: Hashable, value: V) -> None:
        """Remember a value in the place of the one that had its name."""
        self._known.pop(name, None)
        self._named.pop(name, None)
        self._used[name] = value
        self._note(name, value)

    def _note(self, name: Hashable, value: V) -> None:
        """Note that it was used, and forget those that were not for longest."""
        if self._is_known(value):
            self._named.pop(name, None)
            self._known[name] = value
            self._known.move_to_end(name)
            if len(self._known) > MAX_UNUSED:
                self._known.popitem(last=False)
            return
        self._named[name] = value
        self._named.move_to_end(name)
        if len(self._named) > MAX_MISSING:
            name, value = self._named.popitem(last=False)
            if self._is_known(value):  # Redis has said so since
                self._note(name, value)
