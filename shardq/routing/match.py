"""Whether the words that a node or a leaf stands for are those of a topic, and what it holds: for both walks."""

from __future__ import annotations

from typing import Any


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


def ends(tail: str, topic: list[str], at: int) -> bool:
    """Whether the tail of a leaf under `#`, itself without one, matches all words from *at* or from a later one on."""
    start = len(topic) - tail.count(".")
    return start >= at and fits(tail, topic, start)


def values(held: Any) -> list[str]:
    """The values of a leaf, or all in a page."""
    kind = type(held)
    if kind is str:
        return [held]
    if kind is tuple:
        return list(held[1:])
    found: list[str] = []
    todo = [held]
    for page in todo:
        main = page.main
        if type(main) is list:
            todo += filter(None, main)
        else:
            found += main
    return found
