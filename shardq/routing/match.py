"""Whether the words that a node or a leaf stands for are those of a topic: what both walks of `lookup` share."""

from __future__ import annotations

from collections.abc import Iterable


def same(run: tuple[str, ...], topic: list[str], at: int) -> bool:
    """Whether the topic's words from *at* on begin with those of a run, which has no `#`."""
    if at + len(run) > len(topic):
        return False
    for word in run:
        if word != topic[at] and word != "*":
            return False
        at += 1
    return True


def fits(tail: str, topic: list[str], at: int) -> bool:
    """Whether the tail matches all words from *at* on; only its last word may be `#`."""
    left = len(topic) - at
    wanted = tail.count(".")
    if tail[-2:] == ".#":
        wanted -= 1
        if left < wanted:
            return False
    elif left != wanted:
        return False
    for word in tail.split(".")[1 : wanted + 1]:
        if word != topic[at] and word != "*":
            return False
        at += 1
    return True


def under(branch: object, topic: list[str], at: int, lowest: dict[int, int]) -> Iterable[int]:
    """Where what is under `#` goes on, after any of the words from *at* on: at most once in a lookup at each."""
    below = lowest.get(id(branch), len(topic) + 1)
    if at < below:
        lowest[id(branch)] = at
    return range(at, below)


def ends(tail: str, topic: list[str], starts: Iterable[int]) -> bool:
    """Whether the tail of a leaf under `#` matches all words from one of *starts* on."""
    if not tail:
        return True
    return any(fits(tail, topic, at) for at in starts)
