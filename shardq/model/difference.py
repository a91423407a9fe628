"""Where a value that was sent, and what came back of it, are not the same."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, NamedTuple

from shardq.model.written import Written
from shardq.parts import MISSING, bounded, fields_of, kind_of, parts_of

_OF_ONE_KIND: Final = (int, str, bool, bytes)
_SETS: Final = (set, frozenset)


class Difference(NamedTuple):
    """The path to a part that is not the same, the part that was sent there, and the one that came back."""

    path: str
    sent: Any
    back: Any

    def __str__(self) -> str:
        """Say it by the types, and show no value."""
        other = kind_of(self.back) if type(self.back) is not type(self.sent) else "another value"
        return f"{bounded(self.path)}: {kind_of(self.sent)} would come back as {other}"


def difference(sent: Any, back: Any, names: Collection[str] = (), path: str = "") -> Difference | None:
    """Return the first difference, type by type; None if there is none. Paths show *names*, those of the annotation.

    An int is a float where one is asked for, as Python's types say, if that loses no digit; and the id of a message,
    which is a str, comes back as a plain one.
    """
    kind = type(sent)
    if kind is not type(back):
        return None if _stands_for(sent, back) else Difference(path, sent, back)
    if kind in _SETS:
        twins = {each: each for each in back}
        back = [twins.get(each, MISSING) for each in sent]
    elif kind in (list, tuple) and _are_plain(sent, back):
        return None
    elif not isinstance(sent, (list, tuple, dict)) and fields_of(sent) is None:
        return None if _is_equal(sent, back) else Difference(path, sent, back)
    if isinstance(sent, (list, tuple, dict)) and len(sent) != len(back):
        return Difference(path, sent, back)
    parts = zip(parts_of(sent, names), parts_of(back, names), strict=False)
    found = (difference(one, other, names, path + step) for (step, one), (_, other) in parts)
    return next(filter(None, found), None)


def _stands_for(sent: Any, back: Any) -> bool:
    if type(sent) is int:
        return type(back) is float and sent == back
    return isinstance(sent, Written) and type(back) is str and sent == back


def _are_plain(sent: Any, back: Any) -> bool:
    """Return whether both are equal, and all their members of one plain type: most lists are."""
    kinds = {*map(type, sent)}
    return len(kinds) == 1 and kinds.issubset(_OF_ONE_KIND) and kinds == {*map(type, back)} and sent == back


def _is_equal(sent: Any, back: Any) -> bool:
    return bool(sent == back or (sent != sent and back != back))
