"""What a queue delivered, in the order in which it did, as its journal tells it: one entry is one call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shardq.protocol.keys import QueueKeys


def calls_of(raw: Any, keys: QueueKeys) -> Iterator[tuple[str, list[str]]]:
    """What each call did: 'w' wrote or 'd' delivered, and the ids of these messages."""
    for _, fields in raw.xrange(keys.journal):
        kinds, ids, *_ = fields[b"2"].decode().split("\n")
        if kinds.startswith("w"):
            ms, before, places = ids.split("|")
            yield "w", [f"{ms}-{int(before) + at}-{place}" for at, place in enumerate(places.split(","), 1)]
        elif found := [each for kind, each in zip(kinds, ids.split(","), strict=True) if kind == "d"]:
            yield "d", found


def waits_of(raw: Any, keys: QueueKeys, wanted: set[str], most: int) -> list[int]:
    """How many deliveries came after each of the *wanted* messages was written and before the call that delivered it.

    Of the first so many deliveries; what did not come among them has waited until the end.
    """
    written: dict[str, int] = {}
    waits: list[int] = []
    done = 0
    for kind, ids in calls_of(raw, keys):
        if kind == "w":
            written |= {each: done for each in ids if each in wanted}
            continue
        waits += [done - written.pop(each) for each in ids if each in written]
        done += len(ids)
        if done >= most:
            break
    return waits + [done - since for since in written.values()]
